//! What a server was asked: counters by verb, resource and user, and the last requests with their times.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{ask::Ask, request::Verb};

/// Requests that are remembered one by one; counters know all.
const REMEMBERED: usize = 1024;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// When it came in.
    pub at: Timestamp,
    /// What was to be done.
    pub verb: Verb,
    /// `pods`, `deployments.apps` or `pods/eviction`; empty for a path that is no object's.
    pub resource: String,
    /// The path.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// Who asked.
    pub user: String,
    /// The status that was answered, once there is one.
    pub code: Option<u16>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("-".to_owned(), |code| code.to_string());
        write!(f, "{} {code:>3} {:<16} {}", self.at, self.verb, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        write!(f, " by {}", self.user)
    }
}

/// What a server was asked until a moment: all of it, or what a question left of it.
///
/// ```
/// # use clustercache_testkit::api::{FakeApi, Verb};
/// # let api = FakeApi::new();
/// api.history().verb(Verb::List).resource("nodes").assert_count(0);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct History {
    counts: BTreeMap<Counted, u64>,
    entries: Vec<Entry>,
}

/// Verb, resource, user.
type Counted = (Verb, String, String);

impl History {
    /// Those of one verb.
    pub fn verb(self, verb: Verb) -> Self {
        self.only(|(one, ..)| *one == verb)
    }

    /// Those for one resource: `pods`, `deployments.apps`, `pods/eviction`.
    pub fn resource(self, resource: &str) -> Self {
        self.only(|(_, one, _)| one == resource)
    }

    /// Those of one user.
    pub fn user(self, user: &str) -> Self {
        self.only(|(.., one)| one == user)
    }

    fn only(mut self, wanted: impl Fn(&Counted) -> bool) -> Self {
        self.counts.retain(|counted, _| wanted(counted));
        self.entries
            .retain(|entry| wanted(&(entry.verb, entry.resource.clone(), entry.user.clone())));
        self
    }

    /// How many there were, also of those that are no longer remembered one by one.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The last of them, oldest first; 1,024 are remembered.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Fails, and shows what there was, unless there were that many.
    ///
    /// # Panics
    /// If there were more or fewer.
    #[track_caller]
    pub fn assert_count(&self, wanted: u64) {
        let count = self.count();
        assert!(
            count == wanted,
            "{count} requests in place of {wanted}:\n{self}"
        );
    }

    /// Fails, and shows what there was, if there were more than that.
    ///
    /// # Panics
    /// If there were more.
    #[track_caller]
    pub fn assert_at_most(&self, limit: u64) {
        let count = self.count();
        assert!(
            count <= limit,
            "{count} requests, more than {limit}:\n{self}"
        );
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            writeln!(f, "{entry}")?;
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Journal(Mutex<Book>);

#[derive(Default)]
struct Book {
    counts: BTreeMap<Counted, u64>,
    entries: VecDeque<Entry>,
    /// How many were forgotten: the number of the first that is remembered.
    forgotten: u64,
}

impl Journal {
    /// Records a request, and returns its number.
    pub(super) fn record(&self, ask: &Ask, at: Timestamp) -> u64 {
        let entry = Entry {
            at,
            verb: ask.verb(),
            resource: ask.resource(),
            path: ask.path.to_string(),
            query: ask.query.to_string(),
            user: ask.caller.user.to_string(),
            code: None,
        };
        let mut book = self.0.lock();
        let counted = (entry.verb, entry.resource.clone(), entry.user.clone());
        *book.counts.entry(counted).or_default() += 1;
        if book.entries.len() == REMEMBERED {
            book.entries.pop_front();
            book.forgotten += 1;
        }
        book.entries.push_back(entry);
        book.forgotten + book.entries.len() as u64 - 1
    }

    pub(super) fn answered(&self, number: u64, code: u16) {
        let mut book = self.0.lock();
        let place = number.checked_sub(book.forgotten);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| book.entries.get_mut(place)) {
            entry.code = Some(code);
        }
    }

    pub(super) fn until_now(&self) -> History {
        let book = self.0.lock();
        History {
            counts: book.counts.clone(),
            entries: book.entries.iter().cloned().collect(),
        }
    }

    pub(super) fn forget(&self) {
        let mut book = self.0.lock();
        let forgotten = book.forgotten + book.entries.len() as u64;
        *book = Book {
            forgotten,
            ..Book::default()
        };
    }
}
