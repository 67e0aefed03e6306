//! Model checks of events (rule 13): subscribers and waiters against changes, drops, slow readers and the end, under schedules that a
//! checker chooses. A wake-up that is lost is a deadlock there, which the checker reports.
//!
//! `models/Cargo.toml` has the commands: 10,000 random schedules of each, or
//! `CLUSTERCACHE_SCHEDULES`. With `clustercache_loom` in its place: all schedules of smaller ones, up to two preemptions.

use std::{collections::BTreeMap, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use futures_util::{FutureExt, StreamExt};

use self::checker::{block_on, check, spawn};
use super::{tests::Model, *};
use crate::Phase;

#[cfg(clustercache_shuttle)]
pub(crate) mod checker {
    pub(crate) use shuttle::{future::block_on, thread::spawn};

    pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
        let schedules = std::env::var("CLUSTERCACHE_SCHEDULES");
        let schedules = schedules.map_or(10_000, |text| {
            text.parse().expect("CLUSTERCACHE_SCHEDULES is a number")
        });
        shuttle::check_random(model, schedules);
    }
}

#[cfg(clustercache_loom)]
pub(crate) mod checker {
    pub(crate) use loom::{future::block_on, thread::spawn};

    pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }
}

/// How often each cluster changes.
const CHANGES: u32 = if cfg!(clustercache_loom) { 1 } else { 3 };

fn a() -> ClusterKey {
    ClusterKey::named("a")
}

fn b() -> ClusterKey {
    ClusterKey::named("b")
}

struct Cache {
    events: Events,
    model: Arc<Model>,
}

impl Cache {
    fn new(pending: usize) -> Arc<Self> {
        let model = Arc::new(Model::default());
        let events = Events::over(Arc::clone(&model) as Arc<dyn Clusters>, pending);
        Arc::new(Self { events, model })
    }

    fn change(&self, key: &ClusterKey) {
        self.model.set(key, Phase::Connected);
        self.events.tell(key, Changes::STATE);
    }

    fn remove(&self, key: &ClusterKey) {
        self.model.remove(key);
        self.events.tell(key, Changes::REMOVED);
    }
}

/// What a subscriber knows by what it was told: how often each cluster had changed.
#[derive(Default)]
struct View(BTreeMap<ClusterKey, u32>);

impl View {
    fn learn(&mut self, event: Event) {
        match event {
            Event::Resync => self.0.clear(),
            Event::Cluster {
                key,
                state: Some(state),
                ..
            } => {
                let before = self.0.insert(key, state.attempts);
                assert!(before <= Some(state.attempts), "an older state");
            }
            Event::Cluster {
                key, state: None, ..
            } => {
                self.0.remove(&key);
            }
        }
    }
}

/// Reads until the view is `wanted`; if no wake-up comes, for ever.
fn read_until(cache: &Cache, wanted: &[(ClusterKey, u32)]) {
    let wanted = wanted.iter().cloned().collect();
    let mut subscription = cache.events.subscribe(|| {});
    let mut view = View::default();
    while view.0 != wanted {
        view.learn(block_on(subscription.next()).expect("not closed"));
    }
}

#[test]
fn no_newest_state_and_no_wake_up_is_lost() {
    check(|| {
        let cache = Cache::new(9);
        let reader = spawn({
            let cache = Arc::clone(&cache);
            move || read_until(&cache, &[(a(), CHANGES), (b(), CHANGES)])
        });
        for _ in 0..CHANGES {
            cache.change(&a());
            cache.change(&b());
        }
        reader.join().unwrap();
    });
}

#[test]
fn nor_when_a_slow_reader_is_resynced() {
    check(|| {
        let cache = Cache::new(1);
        let reader = spawn({
            let cache = Arc::clone(&cache);
            move || read_until(&cache, &[(a(), CHANGES), (b(), CHANGES)])
        });
        for _ in 0..CHANGES {
            cache.change(&a());
            cache.change(&b());
        }
        reader.join().unwrap();
    });
}

#[test]
fn what_was_told_before_the_end_is_read_and_what_comes_and_goes_leaves_nothing() {
    check(|| {
        let cache = Cache::new(1);
        let reader = spawn({
            let cache = Arc::clone(&cache);
            move || {
                let mut subscription = cache.events.subscribe(|| {});
                let mut view = View::default();
                let mut begun = false;
                while let Some(event) = block_on(subscription.next()) {
                    view.learn(event);
                    begun = true;
                }
                (begun, view.0)
            }
        });
        cache.change(&b());
        cache.change(&a());
        cache.remove(&b());
        cache.events.close();
        let (begun, view) = reader.join().unwrap();
        // One that came to read after the end was told nothing.
        assert!(!begun || view == BTreeMap::from([(a(), 1)]), "{view:?}");
    });
}

#[test]
fn a_subscriber_that_is_dropped_at_any_time_disturbs_no_other() {
    check(|| {
        let cache = Cache::new(9);
        let reader = spawn({
            let cache = Arc::clone(&cache);
            move || read_until(&cache, &[(a(), 1)])
        });
        let leaver = spawn({
            let cache = Arc::clone(&cache);
            move || {
                let mut subscription = cache.events.subscribe(|| {});
                block_on(poll_fn(|cx| {
                    let _ = subscription.poll_next_unpin(cx);
                    Poll::Ready(())
                }));
            }
        });
        cache.change(&a());
        reader.join().unwrap();
        leaver.join().unwrap();
        assert!(lock(&cache.events.hub.0).mailboxes.is_empty());
    });
}

/// As `wait_for` does it: registered, then looked, then waited.
fn wait_for(cache: &Cache, done: impl Fn() -> bool) {
    block_on(async {
        loop {
            let next = cache.events.next(&a());
            if done() {
                return;
            }
            next.await;
        }
    });
}

#[test]
fn who_waits_for_a_cluster_is_woken_by_its_change_whoever_else_gives_up() {
    check(|| {
        let cache = Cache::new(9);
        let waiter = {
            let cache = Arc::clone(&cache);
            move || wait_for(&cache, || cache.model.state(&a()).is_some())
        };
        let waiters = [spawn(waiter.clone()), spawn(waiter)];
        {
            let mut gives_up = pin!(cache.events.next(&a()));
            let _ = block_on(poll_fn(|cx| Poll::Ready(gives_up.poll_unpin(cx))));
        }
        cache.change(&a());
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(lock(&cache.events.hub.0).waiters.keys(), 0);
    });
}

#[test]
fn who_waits_when_the_engine_ends_is_woken() {
    check(|| {
        let cache = Cache::new(9);
        let ended = Arc::new(Mutex::new(false));
        let waiter = spawn({
            let (cache, ended) = (Arc::clone(&cache), Arc::clone(&ended));
            move || wait_for(&cache, || *lock(&ended))
        });
        *lock(&ended) = true;
        cache.events.close();
        waiter.join().unwrap();
        assert_eq!(lock(&cache.events.hub.0).waiters.keys(), 0);
    });
}
