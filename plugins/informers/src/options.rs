//! The times and limits of informers. The defaults are those of the field where it has any.

use std::time::Duration;

/// Times and limits of the list/watch loop of each kind.
///
/// ```
/// use std::time::Duration;
/// use clustercache_informers::{Informers, LoopOptions};
///
/// let mut options = LoopOptions::default();
/// options.retry_most = Duration::from_secs(10);
/// let provider = Informers::new().loop_options(options);
/// # let _ = provider;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopOptions {
    /// Objects of a page. Default 500.
    pub page: u32,
    /// What there is comes as a stream: no line for so long, and the server is taken for one that does not know how to end it. Default 10 s.
    pub initial_quiet: Duration,
    /// What there is comes as a stream: all of it. Default 5 min.
    pub initial_within: Duration,
    /// A watch lives at least so long. Default 5 min.
    pub watch_least: Duration,
    /// A watch lives at most so long; how long is left to chance. Default 10 min.
    pub watch_most: Duration,
    /// A watch that its server does not end in time is ended by us after so much more. Default 30 s.
    pub overtime: Duration,
    /// How often bookmarks come at least, of a server that sends any. A watch that hears nothing for twice as long, or for twice the longest
    /// time that was seen between two, is begun again, after a look at whether versions went back. Default 1 min.
    pub bookmarks: Duration,
    /// The highest first wait after a failure; it doubles each time, and what is waited is anything up to it. Default 0.8 s.
    pub retry_least: Duration,
    /// The highest wait after many failures. Default 30 s.
    pub retry_most: Duration,
    /// A watch that lived so long ends the doubling. Default 30 s.
    pub reset_after: Duration,
    /// What a server may tell us to wait (429). Default 60 s.
    pub retry_after_most: Duration,
}

impl Default for LoopOptions {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            page: 500,
            initial_quiet: secs(10),
            initial_within: secs(300),
            watch_least: secs(300),
            watch_most: secs(600),
            overtime: secs(30),
            bookmarks: secs(60),
            retry_least: Duration::from_millis(800),
            retry_most: secs(30),
            reset_after: secs(30),
            retry_after_most: secs(60),
        }
    }
}

impl LoopOptions {
    /// Every mistake, as text that says which option, what was wrong and what to give instead.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            page,
            initial_quiet,
            initial_within,
            watch_least,
            watch_most,
            overtime,
            bookmarks,
            retry_least,
            retry_most,
            reset_after,
            retry_after_most,
        } = *self;
        let mut mistakes = Vec::new();
        if page == 0 {
            mistakes.push("loop_options.page is zero; give at least one object".into());
        }
        for (name, time) in [
            ("initial_quiet", initial_quiet),
            ("initial_within", initial_within),
            ("watch_least", watch_least),
            ("overtime", overtime),
            ("bookmarks", bookmarks),
            ("retry_least", retry_least),
            ("reset_after", reset_after),
            ("retry_after_most", retry_after_most),
        ] {
            if time.is_zero() {
                mistakes.push(format!("loop_options.{name} is zero; give a longer time"));
            } else if time > LONGEST {
                mistakes.push(format!(
                    "loop_options.{name} is longer than a day; give a shorter time"
                ));
            }
        }
        for (least, most, name) in [
            (watch_least, watch_most, "watch"),
            (retry_least, retry_most, "retry"),
        ] {
            if most < least || most > LONGEST {
                mistakes.push(format!(
                    "loop_options.{name}_most is shorter than {name}_least, or longer than a day; give a time between"
                ));
            }
        }
        mistakes
    }
}

/// One that is longer is a mistake, and could not be added to the time.
const LONGEST: Duration = Duration::from_secs(86_400);

/// What all clusters' informers share. One that is used up makes them wait, or says so; it never ends the process.
///
/// ```
/// use clustercache_informers::{Budgets, Informers};
///
/// let mut budgets = Budgets::default();
/// budgets.cached_bytes = 4 << 30;
/// let provider = Informers::new().budgets(budgets);
/// # let _ = provider;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Budgets {
    /// Lists that are read at once. One whose server says nothing does not count. Default 64.
    pub lists: usize,
    /// What pages of lists may take at once until they are stored, in bytes. Default 256 MiB.
    pub list_bytes: usize,
    /// What the objects of all clusters may take, in bytes as they are counted: JSON as it is, decoded objects as five times their JSON. A kind
    /// that would be beyond it is `OverBudget`. Default: no limit.
    pub cached_bytes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            lists: 64,
            list_bytes: 256 << 20,
            cached_bytes: usize::MAX,
        }
    }
}

impl Budgets {
    /// As [`LoopOptions::mistakes`].
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            lists,
            list_bytes,
            cached_bytes,
        } = *self;
        let all = [
            ("lists", lists),
            ("list_bytes", list_bytes),
            ("cached_bytes", cached_bytes),
        ];
        let zero = all.into_iter().filter(|(_, limit)| *limit == 0);
        zero.map(|(name, _)| format!("budgets.{name} is zero; give more"))
            .collect()
    }
}
