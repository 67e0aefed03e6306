//! What a cluster was asked, whoever answered: counters by verb, resource, credential and answer, and the last requests with
//! their times.
//!
//! What got through to the API server is also in [`FakeApi::history`](crate::api::FakeApi::history), by user.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    counters::PathClass,
    requests::{RequestSeen, ShownCredential},
};
use crate::api::Verb;

/// Requests of a cluster that are remembered one by one; counters know all.
const REMEMBERED: usize = 256;

/// Who answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AnsweredBy {
    /// A fault in front of the API server, told by the path.
    Front,
    /// Nobody was let in: 401.
    Authentication,
    /// The API server, or one of its faults.
    Api,
}

/// A request and its answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestEntry {
    /// What was asked, by whom, when and where.
    pub request: Arc<RequestSeen>,
    /// The status that was answered and by whom, once there is one.
    pub answer: Option<(u16, AnsweredBy)>,
}

impl fmt::Display for RequestEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        let code = self.answer.map_or("-".into(), |(code, _)| code.to_string());
        let (at, verb, path) = (request.at, request.verb, request.path.escape_debug());
        write!(f, "{at} {code:>3} {verb:<16} {path}")?;
        if !request.query.is_empty() {
            write!(f, "?{}", request.query.escape_debug())?;
        }
        match &request.credential {
            ShownCredential::Nothing => f.write_str(" by nobody"),
            ShownCredential::Token(token) => write!(f, " by token {}", token.escape_debug()),
            ShownCredential::Certificate(user) => {
                write!(f, " by certificate of {}", user.escape_debug())
            }
        }
    }
}

/// What a cluster, or a fleet, was asked until a moment: all of it, or what a question left of it.
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// use clustercache_testkit::{api::Verb, fleet::Fleet};
///
/// let fleet = Fleet::start(2).await?;
/// // … the controller under test …
/// fleet.history().verb(Verb::List).resource("pods").assert_at_most(2);
/// fleet[0].history().code(401).assert_count(0);
/// # anyhow::Ok(())
/// # })?;
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RequestHistory {
    counts: BTreeMap<Counted, u64>,
    entries: Vec<RequestEntry>,
}

/// All that counters tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    class: PathClass,
    verb: Verb,
    resource: String,
    credential: ShownCredential,
    answer: Option<(u16, AnsweredBy)>,
}

impl Counted {
    fn of(entry: &RequestEntry) -> Self {
        let request = &entry.request;
        Self {
            class: request.class,
            verb: request.verb,
            resource: request.resource.clone(),
            credential: request.credential.clone(),
            answer: entry.answer,
        }
    }
}

/// Questions.
impl RequestHistory {
    /// Those of one class of path.
    pub fn class(self, class: PathClass) -> Self {
        self.only(|one| one.class == class)
    }

    /// Those of one verb, for objects.
    pub fn verb(self, verb: Verb) -> Self {
        self.only(|one| one.verb == verb && !one.resource.is_empty())
    }

    /// Those for one resource: `pods`, `deployments.apps`, `pods/eviction`.
    pub fn resource(self, resource: &str) -> Self {
        self.only(|one| one.resource == resource)
    }

    /// Those with one credential, valid or not.
    pub fn credential(self, credential: &ShownCredential) -> Self {
        self.only(|one| one.credential == *credential)
    }

    /// Those that were answered with this status.
    pub fn code(self, code: u16) -> Self {
        self.only(|one| one.answer.is_some_and(|(answered, _)| answered == code))
    }

    /// Those that were answered by this.
    pub fn answered_by(self, by: AnsweredBy) -> Self {
        self.only(|one| one.answer.is_some_and(|(_, answered)| answered == by))
    }

    /// Those that have no answer, or had none when their client went away.
    pub fn unanswered(self) -> Self {
        self.only(|one| one.answer.is_none())
    }

    fn only(mut self, wanted: impl Fn(&Counted) -> bool) -> Self {
        self.counts.retain(|counted, _| wanted(counted));
        self.entries.retain(|entry| wanted(&Counted::of(entry)));
        self
    }

    /// How many there were, also of those that are no longer remembered one by one.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The last of them, oldest first; 256 of each cluster are remembered.
    pub fn entries(&self) -> &[RequestEntry] {
        &self.entries
    }
}

/// Assertions.
impl RequestHistory {
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

    /// Fails, and shows what there was, if there were fewer than that.
    ///
    /// # Panics
    /// If there were fewer.
    #[track_caller]
    pub fn assert_at_least(&self, limit: u64) {
        let count = self.count();
        assert!(
            count >= limit,
            "{count} requests, fewer than {limit}:\n{self}"
        );
    }
}

impl fmt::Display for RequestHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            writeln!(f, "{entry}")?;
        }
        Ok(())
    }
}

/// Put together, in the order of their times.
impl Extend<RequestHistory> for RequestHistory {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, others: I) {
        for other in others {
            for (counted, count) in other.counts {
                *self.counts.entry(counted).or_default() += count;
            }
            self.entries.extend(other.entries);
        }
        self.entries.sort_by_key(|entry| entry.request.at);
    }
}

#[derive(Default)]
pub(super) struct Journal(Mutex<Book>);

#[derive(Default)]
struct Book {
    counts: BTreeMap<Counted, u64>,
    entries: VecDeque<RequestEntry>,
    /// How many were forgotten: the number of the first that is remembered.
    forgotten: u64,
    /// Those before this one are not even counted.
    cleared: u64,
}

impl Journal {
    /// Records a request, and returns its number.
    pub(super) fn record(&self, request: Arc<RequestSeen>) -> u64 {
        let entry = RequestEntry {
            request,
            answer: None,
        };
        let mut book = self.0.lock();
        *book.counts.entry(Counted::of(&entry)).or_default() += 1;
        if book.entries.len() == REMEMBERED {
            book.entries.pop_front();
            book.forgotten += 1;
        }
        book.entries.push_back(entry);
        book.forgotten + book.entries.len() as u64 - 1
    }

    /// What was answered to the request that has this number.
    pub(super) fn answered(
        &self,
        number: u64,
        request: &Arc<RequestSeen>,
        code: u16,
        by: AnsweredBy,
    ) {
        let mut entry = RequestEntry {
            request: request.clone(),
            answer: None,
        };
        let before = Counted::of(&entry);
        entry.answer = Some((code, by));
        let mut book = self.0.lock();
        if number < book.cleared {
            return;
        }
        if let Some(count) = book.counts.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                book.counts.remove(&before);
            }
        }
        *book.counts.entry(Counted::of(&entry)).or_default() += 1;
        let place = number.checked_sub(book.forgotten);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(remembered) = place.and_then(|place| book.entries.get_mut(place)) {
            *remembered = entry;
        }
    }

    pub(super) fn until_now(&self) -> RequestHistory {
        let book = self.0.lock();
        RequestHistory {
            counts: book.counts.clone(),
            entries: book.entries.iter().cloned().collect(),
        }
    }

    pub(super) fn forget(&self) {
        let mut book = self.0.lock();
        let forgotten = book.forgotten + book.entries.len() as u64;
        *book = Book {
            forgotten,
            cleared: forgotten,
            ..Book::default()
        };
    }
}
