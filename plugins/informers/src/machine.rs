//! When a kind is listed, watched, listed anew and left alone: the list/watch loop, without I/O and without a clock. What was heard and the
//! time go in; what is to be done with it, and what is to be asked next, come out.
//!
//! ```text
//!            ┌── stream: initial events ──┐        ended, broken, silent: go on from the last version
//!  begin ────┤                            ├──▶ watch ◀───┐
//!            └── pages ──▶ … ──▶ last ────┘     │ └──────┘
//!                 ▲                             │ too old, too large, went back
//!                 └───────── backoff ◀──────────┘
//! ```

use std::time::Duration;

use tokio::time::Instant;

use crate::{machine::backoff::Backoff, options::LoopOptions, version::Version};

mod backoff;
#[cfg(test)]
mod tests;

/// The loop of one kind in one cluster.
pub(crate) struct Machine {
    options: LoopOptions,
    /// How what there is is asked for.
    way: Way,
    /// Up to here everything is known.
    version: Option<Version>,
    state: State,
    backoff: Backoff,
    /// Versions may have been given out twice: what has the version that is known may be something else.
    doubts: bool,
    /// How often bookmarks come: what was seen, and at least what is usual.
    bookmarks: Duration,
    /// This server sends them.
    has_bookmarks: bool,
    rng: fastrand::Rng,
}

/// How what there is is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A watch that begins with what there is.
    Stream,
    /// A list in pages: the server does not know better.
    Pages,
}

enum State {
    /// Nothing is in flight. What is next is to be asked at this time.
    Idle {
        next: Next,
        at: Instant,
    },
    /// The initial events of a stream.
    Stream {
        since: Instant,
        heard: Instant,
    },
    /// A page was asked for.
    Page,
    /// The newest version was asked for.
    Check,
    Watch(Watch),
}

#[derive(Clone)]
enum Next {
    List,
    Page(String),
    Check,
    Watch,
}

struct Watch {
    since: Instant,
    heard: Instant,
    bookmark: Option<Instant>,
    /// It should have ended by then.
    until: Instant,
    opened: bool,
}

/// What is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A watch without a version that begins with what there is, to live so long.
    Stream { lives: Duration },
    /// A page of a list without a version: so many objects, from where the last one ended.
    Page { limit: u32, next: Option<String> },
    /// As good as nothing of a list: its version is what is asked for. A server whose versions went back takes a watch from one that is
    /// yet to come, and says nothing for as long.
    Check,
    /// A watch from a version, to live so long.
    Watch { version: Version, lives: Duration },
}

/// What came.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The head of the answer, and it is not a refusal.
    Opened,
    /// An object that is there, or is gone.
    Object(Version),
    Bookmark {
        version: Version,
        ends_initial: bool,
    },
    /// A page, and where the next begins.
    Page {
        version: Version,
        next: Option<String>,
    },
    /// The server ended a watch.
    Ended,
    Failed(Failure),
}

/// How a request, or what it led to, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// 410 in any form: the version, or the page, is no more.
    Expired,
    /// The version is not there yet, and may never be.
    TooLarge,
    /// 429: not before this, if it says so.
    Busy(Option<Duration>),
    /// 400 or 422: as an answer to a stream, that the server does not know it.
    Invalid,
    /// The kind is not served.
    Missing,
    /// We may not.
    Forbidden,
    /// There is no room for what there is.
    OverBudget,
    /// A page is larger than there is room for.
    PageTooLarge,
    /// Whatever else: another status, a broken connection, nonsense.
    Other,
}

/// What is to be done with what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Then {
    /// Nothing.
    Nothing,
    /// It is part of a list: it waits for the rest.
    Stage,
    /// The list is complete: it is what there is now.
    Commit,
    /// It is what is new.
    Apply,
    /// The request is over, or is to be ended; a list that is not complete is forgotten.
    Close(Why),
}

/// Why a request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It ended, and the next goes on from there.
    Ended,
    /// Nothing came for long.
    Silent,
    /// It failed.
    Failed(Failure),
    /// A version that is older than what is known.
    WentBack,
    /// The server takes a stream for a mere watch.
    NoStream,
}

impl Machine {
    /// Begins with nothing, or from a version that was known before.
    pub(crate) fn new(
        options: LoopOptions,
        way: Way,
        version: Option<Version>,
        now: Instant,
        rng: fastrand::Rng,
    ) -> Self {
        let next = version.as_ref().map_or(Next::List, |_| Next::Watch);
        Self {
            backoff: Backoff::new(options.retry_least, options.retry_most),
            bookmarks: options.bookmarks,
            has_bookmarks: false,
            options,
            way,
            version,
            doubts: false,
            state: State::Idle { next, at: now },
            rng,
        }
    }

    /// How this server is asked for what there is.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    pub(crate) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Whether what has a version that is known is what is known by it. Not so once versions went back, as after a restored backup.
    pub(crate) fn trusts_versions(&self) -> bool {
        !self.doubts
    }

    /// How often in a row it went wrong.
    pub(crate) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Whether what is in flight, or would be next, is a list.
    pub(crate) fn is_listing(&self) -> bool {
        match &self.state {
            State::Idle { next, .. } => !matches!(next, Next::Watch | Next::Check),
            State::Stream { .. } | State::Page => true,
            State::Watch(_) | State::Check => false,
        }
    }

    /// What is to be asked now, if it is time: then it is in flight.
    pub(crate) fn request(&mut self, now: Instant) -> Option<Request> {
        let State::Idle { next, at } = &self.state else {
            return None;
        };
        if now < *at {
            return None;
        }
        let next = next.clone();
        let lives = self.life();
        let (state, request) = match (next, self.version.clone()) {
            (Next::Watch, Some(version)) => {
                let watch = Watch {
                    since: now,
                    heard: now,
                    bookmark: None,
                    until: now + lives + self.options.overtime,
                    opened: false,
                };
                (State::Watch(watch), Request::Watch { version, lives })
            }
            (Next::Check, Some(_)) => (State::Check, Request::Check),
            (Next::Page(next), _) => (State::Page, self.page(Some(next))),
            _ if self.way == Way::Pages => (State::Page, self.page(None)),
            _ => {
                let stream = State::Stream {
                    since: now,
                    heard: now,
                };
                (stream, Request::Stream { lives })
            }
        };
        self.state = state;
        Some(request)
    }

    fn page(&self, next: Option<String>) -> Request {
        let limit = self.options.page;
        Request::Page { limit, next }
    }

    /// Not all at once: watches that began together do not end together.
    fn life(&mut self) -> Duration {
        let (least, most) = (self.options.watch_least, self.options.watch_most);
        least + most.saturating_sub(least).mul_f64(self.rng.f64())
    }

    /// When there is something to do, though nothing is heard: a request, or the end of one that is silent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Idle { at, .. } => Some(*at),
            State::Stream { since, heard } => {
                let quiet = *heard + self.options.initial_quiet;
                Some(quiet.min(*since + self.options.initial_within))
            }
            // A list has the deadline of its call.
            State::Page | State::Check => None,
            State::Watch(watch) if self.has_bookmarks => {
                Some(watch.until.min(watch.heard + self.bookmarks * 2))
            }
            State::Watch(watch) => Some(watch.until),
        }
    }

    /// The deadline may have passed.
    pub(crate) fn tick(&mut self, now: Instant) -> Then {
        if self.deadline().is_none_or(|at| now < at) {
            return Then::Nothing;
        }
        match &self.state {
            State::Idle { .. } | State::Page | State::Check => Then::Nothing,
            State::Stream { since, .. } if now < *since + self.options.initial_within => {
                self.fall_back(now)
            }
            // All the time something came, and no end of it.
            State::Stream { .. } => self.fail(now, Failure::Other),
            State::Watch(_) => {
                self.note_life(now);
                self.idle(Next::Check, now);
                Then::Close(Why::Silent)
            }
        }
    }

    /// Takes what came.
    pub(crate) fn hear(&mut self, now: Instant, heard: Heard) -> Then {
        match &mut self.state {
            // What was there is gone, whatever was to be asked next.
            State::Idle { .. } if matches!(heard, Heard::Failed(Failure::OverBudget)) => {
                self.fail(now, Failure::OverBudget)
            }
            State::Idle { .. } => Then::Nothing,
            State::Stream { heard: last, .. } => {
                *last = now;
                self.hear_stream(now, heard)
            }
            State::Page => self.hear_page(now, heard),
            State::Check => self.hear_check(now, heard),
            State::Watch(watch) => {
                watch.heard = now;
                self.hear_watch(now, heard)
            }
        }
    }

    fn hear_stream(&mut self, now: Instant, heard: Heard) -> Then {
        match heard {
            Heard::Opened => Then::Nothing,
            // They come in no order.
            Heard::Object(_) => Then::Stage,
            Heard::Bookmark {
                version,
                ends_initial: true,
            } if !version.is_nothing() => {
                self.version = Some(version);
                self.doubts = false;
                self.has_bookmarks = true;
                // The stream goes on as a watch.
                self.state = State::Watch(Watch {
                    since: now,
                    heard: now,
                    bookmark: Some(now),
                    until: now + self.options.watch_most + self.options.overtime,
                    opened: true,
                });
                Then::Commit
            }
            // The end of what there is comes first, where a server knows of it.
            Heard::Bookmark { .. } | Heard::Ended | Heard::Failed(Failure::Invalid) => {
                self.fall_back(now)
            }
            Heard::Page { .. } => self.fail(now, Failure::Other),
            Heard::Failed(failure) => self.fail(now, failure),
        }
    }

    /// From now on this server is asked for pages.
    fn fall_back(&mut self, now: Instant) -> Then {
        self.way = Way::Pages;
        // It is asked only once in a server's life: nothing is gained by waiting.
        self.idle(Next::List, now);
        Then::Close(Why::NoStream)
    }

    fn hear_page(&mut self, now: Instant, heard: Heard) -> Then {
        match heard {
            Heard::Opened => Then::Nothing,
            Heard::Page {
                next: Some(next), ..
            } => {
                self.idle(Next::Page(next), now);
                Then::Stage
            }
            // It can be listed, and not be watched.
            Heard::Page {
                version,
                next: None,
            } if version.is_nothing() => self.fail(now, Failure::Other),
            Heard::Page {
                version,
                next: None,
            } => {
                self.version = Some(version);
                self.doubts = false;
                self.idle(Next::Watch, now);
                Then::Commit
            }
            Heard::Failed(failure) => self.fail(now, failure),
            Heard::Object(_) | Heard::Bookmark { .. } | Heard::Ended => {
                self.fail(now, Failure::Other)
            }
        }
    }

    fn hear_check(&mut self, now: Instant, heard: Heard) -> Then {
        match heard {
            Heard::Opened => Then::Nothing,
            Heard::Page { version, .. } => {
                if self
                    .version
                    .as_ref()
                    .is_some_and(|last| version.is_before(last))
                {
                    return self.anew(now, Why::WentBack);
                }
                self.idle(Next::Watch, now);
                Then::Nothing
            }
            // What could not be asked is not known. Who may watch may not be allowed to list.
            heard => {
                self.wait(Next::Watch, now, None);
                let failure = match heard {
                    Heard::Failed(failure) => failure,
                    _ => Failure::Other,
                };
                Then::Close(Why::Failed(failure))
            }
        }
    }

    fn hear_watch(&mut self, now: Instant, heard: Heard) -> Then {
        match heard {
            Heard::Opened => {
                if let State::Watch(watch) = &mut self.state {
                    watch.opened = true;
                    watch.since = now;
                }
                Then::Nothing
            }
            Heard::Object(version) if self.advance(&version) => Then::Apply,
            Heard::Object(_) => self.anew(now, Why::WentBack),
            Heard::Bookmark { version, .. } => {
                self.note_bookmark(now);
                if self.advance(&version) {
                    Then::Nothing
                } else {
                    self.anew(now, Why::WentBack)
                }
            }
            Heard::Ended => {
                if self.note_life(now) {
                    self.idle(Next::Watch, now);
                } else {
                    self.wait(Next::Watch, now, None);
                }
                Then::Close(Why::Ended)
            }
            Heard::Failed(failure) => self.fail(now, failure),
            Heard::Page { .. } => self.fail(now, Failure::Other),
        }
    }

    fn note_bookmark(&mut self, now: Instant) {
        self.has_bookmarks = true;
        let State::Watch(watch) = &mut self.state else {
            return;
        };
        if let Some(last) = watch.bookmark.replace(now) {
            let gap = (now - last).min(self.options.bookmarks * 5);
            self.bookmarks = self.bookmarks.max(gap);
        }
    }

    /// Up to here all is known; false if that would be a step back.
    fn advance(&mut self, version: &Version) -> bool {
        if version.is_nothing() {
            return true;
        }
        let back = self
            .version
            .as_ref()
            .is_some_and(|last| version.is_before(last));
        if !back {
            self.version = Some(version.clone());
        }
        !back
    }

    fn fail(&mut self, now: Instant, failure: Failure) -> Then {
        self.note_life(now);
        let resumes = matches!(self.state, State::Watch(_));
        match failure {
            Failure::Expired | Failure::TooLarge => return self.anew(now, Why::Failed(failure)),
            // The next is smaller.
            Failure::PageTooLarge => self.options.page = (self.options.page / 2).max(1),
            // What comes under this name later is another collection.
            Failure::Missing | Failure::OverBudget => self.version = None,
            _ => (),
        }
        let next = if resumes && self.version.is_some() {
            Next::Watch
        } else {
            Next::List
        };
        let told = match failure {
            Failure::Busy(told) => told,
            // Nothing has changed by the next moment.
            Failure::OverBudget => Some(self.options.retry_after_most),
            _ => None,
        };
        self.wait(next, now, told);
        Then::Close(Why::Failed(failure))
    }

    /// All is listed again.
    fn anew(&mut self, now: Instant, why: Why) -> Then {
        self.version = None;
        self.doubts |= matches!(why, Why::WentBack | Why::Failed(Failure::TooLarge));
        self.wait(Next::List, now, None);
        Then::Close(why)
    }

    /// A watch that lived long is no failure, however it ends, and ends those before it. Says whether it did.
    fn note_life(&mut self, now: Instant) -> bool {
        let State::Watch(watch) = &self.state else {
            return false;
        };
        let long = watch.opened && now >= watch.since + self.options.reset_after;
        if long {
            self.backoff.reset();
        }
        long
    }

    fn idle(&mut self, next: Next, at: Instant) {
        self.state = State::Idle { next, at };
    }

    fn wait(&mut self, next: Next, now: Instant, told: Option<Duration>) {
        let wait = self.backoff.next(&mut self.rng);
        let told = told.map(|told| told.min(self.options.retry_after_most));
        // Those who were told the same time do not all come at it.
        let wait = told.map_or(wait, |told| told + wait.min(told));
        self.idle(next, now + wait);
    }
}
