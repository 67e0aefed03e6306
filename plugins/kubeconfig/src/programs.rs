//! When programs are run: at first, ahead of the end of what they gave, again with backoff where they failed, and when somebody asks.
//! What one does is of no matter to another, and all of them go when this does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{
    sync::Semaphore,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::exec::{ExecFailure, Issued, Spec, SpecId, Terms, run};

/// Programs that run at once; those that did not end in time have places of their own, so that a hundred that hang do not keep one
/// waiting that works.
const PLACES: usize = 16;
const PLACES_HUNG: usize = 4;

/// Between the end of a run and the next, whoever asks.
const SPACING: Duration = Duration::from_secs(1);

/// A credential is renewed when a fifth of its time is left, and at most this long before its end.
const AHEAD: Duration = Duration::from_secs(300);

const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// Credentials that programs gave, by what was run: they outlive a stream of the source.
pub(crate) type Kept = Mutex<BTreeMap<SpecId, Held>>;

/// A credential, and until when.
#[derive(Clone)]
pub(crate) struct Held {
    issued: Arc<Issued>,
    /// When it ends, and when it is renewed.
    times: Option<(Instant, Instant)>,
}

/// What can be said of a program.
pub(crate) enum Outcome<'a> {
    /// It gave this, which has not ended.
    Issued(&'a Issued),
    Failed(&'a ExecFailure),
    /// It has not said anything yet.
    Waiting,
}

/// The programs of one stream.
pub(crate) struct Programs {
    terms: Arc<Terms>,
    kept: Arc<Kept>,
    known: BTreeMap<SpecId, Program>,
    running: JoinSet<Result<Issued, ExecFailure>>,
    places: Arc<Semaphore>,
    places_hung: Arc<Semaphore>,
}

struct Program {
    spec: Arc<Spec>,
    held: Option<Held>,
    failure: Option<ExecFailure>,
    failures: u32,
    due: Option<Instant>,
    ended: Option<Instant>,
    running: Option<AbortHandle>,
}

impl Programs {
    pub(crate) fn new(terms: Terms, kept: Arc<Kept>) -> Self {
        Self {
            terms: Arc::new(terms),
            kept,
            known: BTreeMap::new(),
            running: JoinSet::new(),
            places: Arc::new(Semaphore::new(PLACES)),
            places_hung: Arc::new(Semaphore::new(PLACES_HUNG)),
        }
    }

    /// These are needed and no others: what runs of others is killed.
    pub(crate) fn want<'a>(&mut self, specs: impl Iterator<Item = &'a Arc<Spec>>) {
        let mut before = std::mem::take(&mut self.known);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for spec in specs {
            self.known.entry(spec.id).or_insert_with(|| {
                let known = before.remove(&spec.id);
                known.unwrap_or_else(|| Program::new(spec, kept.get(&spec.id).cloned()))
            });
        }
        kept.retain(|id, _| self.known.contains_key(id));
        drop(kept);
        for gone in before.into_values() {
            if let Some(running) = gone.running {
                running.abort();
            }
        }
    }

    /// Has it run again: what it gave was refused.
    pub(crate) fn ask(&mut self, id: &SpecId) {
        if let Some(program) = self.known.get_mut(id)
            && program.running.is_none()
        {
            let now = Instant::now();
            let earliest = program
                .ended
                .map_or(now, |ended| (ended + SPACING).max(now));
            program.due = Some(program.due.map_or(earliest, |due| due.min(earliest)));
        }
    }

    pub(crate) fn outcome(&self, id: &SpecId) -> Outcome<'_> {
        let Some(program) = self.known.get(id) else {
            return Outcome::Waiting;
        };
        match (&program.held, &program.failure) {
            (Some(held), _) => Outcome::Issued(&held.issued),
            (None, Some(failure)) => Outcome::Failed(failure),
            (None, None) => Outcome::Waiting,
        }
    }

    /// Until something else can be said of a program; runs those whose time has come. May be dropped at any time.
    pub(crate) async fn changed(&mut self) -> SpecId {
        loop {
            if let Some(id) = self.turn(Instant::now()) {
                return id;
            }
            let next = self.known.values().filter_map(Program::next).min();
            let time = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = self.running.join_next_with_id() => {
                    if let Some(id) = self.take(done) {
                        return id;
                    }
                }
                () = time => {}
            }
        }
    }

    /// Starts what is due. Yields one whose credential has ended.
    fn turn(&mut self, now: Instant) -> Option<SpecId> {
        for (id, program) in &mut self.known {
            if program
                .held
                .as_ref()
                .is_some_and(|held| held.has_ended(now))
            {
                program.held = None;
                self.kept
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(id);
                return Some(*id);
            }
            if program.due.is_some_and(|due| due <= now) && program.running.is_none() {
                program.due = None;
                let places = match &program.failure {
                    Some(ExecFailure::TimedOut(_)) => &self.places_hung,
                    _ => &self.places,
                };
                let (places, terms) = (Arc::clone(places), Arc::clone(&self.terms));
                let spec = Arc::clone(&program.spec);
                let run = async move {
                    // It is never closed.
                    let permit = places.acquire_owned().await;
                    run(spec, terms, permit.map_err(|_| ExecFailure::Panicked)?).await
                };
                program.running = Some(self.running.spawn(run));
            }
        }
        None
    }

    /// Takes what a run gave, unless nobody wants it any more.
    fn take(
        &mut self,
        done: Result<(Id, Result<Issued, ExecFailure>), JoinError>,
    ) -> Option<SpecId> {
        let (task, result) = match done {
            Ok(done) => done,
            Err(error) => (error.id(), Err(ExecFailure::Panicked)),
        };
        let ran = |program: &Program| program.running.as_ref().is_some_and(|run| run.id() == task);
        let (id, program) = self.known.iter_mut().find(|(_, program)| ran(program))?;
        program.running = None;
        let now = Instant::now();
        program.ended = Some(now);
        match result.and_then(|issued| Held::from(issued, now, wall_clock())) {
            Ok(held) => {
                program.succeeded(held.clone());
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.insert(*id, held);
            }
            Err(failure) => program.failed(failure, now),
        }
        Some(*id)
    }
}

impl Program {
    fn new(spec: &Arc<Spec>, held: Option<Held>) -> Self {
        let due = match &held {
            Some(held) => held.times.map(|(_, renewed)| renewed),
            None => Some(Instant::now()),
        };
        Self {
            spec: Arc::clone(spec),
            held,
            failure: None,
            failures: 0,
            due,
            ended: None,
            running: None,
        }
    }

    /// When its turn comes.
    fn next(&self) -> Option<Instant> {
        let end = self.held.as_ref().and_then(|held| held.times);
        let due = self.due.filter(|_| self.running.is_none());
        [end.map(|(end, _)| end), due].into_iter().flatten().min()
    }

    fn succeeded(&mut self, held: Held) {
        let program = self.spec.command.escape_debug();
        if self.failures > 0 {
            tracing::info!(%program, place = %self.spec.place, "a program gives credentials again");
        } else {
            tracing::debug!(%program, place = %self.spec.place, "a program gave a credential");
        }
        self.due = held.times.map(|(_, renewed)| renewed);
        self.held = Some(held);
        self.failures = 0;
        self.failure = None;
    }

    /// What it gave before holds until its own end.
    fn failed(&mut self, failure: ExecFailure, now: Instant) {
        let program = self.spec.command.escape_debug();
        let kept = self.held.is_some();
        if self.failure.as_ref() == Some(&failure) {
            tracing::debug!(%program, place = %self.spec.place, %failure, kept, "a program gave no credential again");
        } else {
            tracing::warn!(%program, place = %self.spec.place, %failure, kept, "a program gave no credential");
        }
        let ceiling = Duration::from_millis(500) * (1 << self.failures.min(7));
        let jitter = ceiling.min(LONGEST_BACKOFF).mul_f64(fastrand::f64());
        self.due = Some(now + jitter.max(SPACING));
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(failure);
    }
}

impl Held {
    /// `now` by both clocks.
    fn from(issued: Issued, now: Instant, wall: SystemTime) -> Result<Self, ExecFailure> {
        let times = match issued.expires {
            None => None,
            Some(at) => {
                let left = at.duration_since(wall);
                let left = left.ok().filter(|left| !left.is_zero());
                let left = left.ok_or(ExecFailure::Expired)?;
                let renewed = left.saturating_sub((left / 5).min(AHEAD)).max(SPACING);
                // A time that no clock of ours can have is as good as none.
                now.checked_add(left).zip(now.checked_add(renewed))
            }
        };
        Ok(Self {
            issued: Arc::new(issued),
            times,
        })
    }

    fn has_ended(&self, now: Instant) -> bool {
        self.times.is_some_and(|(end, _)| end <= now)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program says by the wall clock when its credential ends; from then on the monotonic clock counts"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: SystemTime = SystemTime::UNIX_EPOCH;

    /// After how many seconds a credential of so many ends, and is renewed.
    fn times(seconds: Option<u64>) -> Result<Option<(u64, u64)>, ExecFailure> {
        let now = Instant::now();
        let issued = Issued::ending(seconds.map(|seconds| BEGIN + Duration::from_secs(seconds)));
        let held = Held::from(issued, now, BEGIN)?;
        let after = |at: Instant| (at - now).as_secs();
        Ok(held
            .times
            .map(|(end, renewed)| (after(end), after(renewed))))
    }

    #[test]
    fn a_credential_is_renewed_ahead_of_its_end() {
        assert_eq!(times(Some(100)), Ok(Some((100, 80))));
        assert_eq!(times(Some(840)), Ok(Some((840, 672))));
        assert_eq!(times(Some(36_000)), Ok(Some((36_000, 35_700))));
        assert_eq!(times(Some(1)), Ok(Some((1, 1))), "not at once, and again");
        assert_eq!(times(None), Ok(None));
        assert_eq!(times(Some(0)), Err(ExecFailure::Expired));
        let before = Issued::ending(Some(BEGIN - Duration::from_secs(1)));
        let held = Held::from(before, Instant::now(), BEGIN).map(drop);
        assert_eq!(held, Err(ExecFailure::Expired));
    }
}
