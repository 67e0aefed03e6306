use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    time::SystemTime,
};

use futures_util::{FutureExt, StreamExt};
use proptest::prelude::*;

use super::*;
use crate::{Identity, Phase, Verdict};

/// A registry that is nothing but states, whose `attempts` count what was published of each; under the checkers' own lock.
#[derive(Default)]
pub(super) struct Model(Mutex<BTreeMap<ClusterKey, (Phase, u32)>>);

impl Model {
    pub(super) fn set(&self, key: &ClusterKey, phase: Phase) {
        let mut clusters = lock(&self.0);
        let (held, changes) = clusters.entry(key.clone()).or_insert((phase, 0));
        *held = phase;
        *changes += 1;
    }

    pub(super) fn remove(&self, key: &ClusterKey) {
        lock(&self.0).remove(key);
    }
}

impl Clusters for Model {
    fn keys(&self) -> Vec<ClusterKey> {
        lock(&self.0).keys().cloned().collect()
    }

    fn state(&self, key: &ClusterKey) -> Option<ClusterState> {
        let (phase, attempts) = *lock(&self.0).get(key)?;
        let mut state = state(key, phase);
        state.attempts = attempts;
        Some(state)
    }
}

pub(crate) fn state(key: &ClusterKey, phase: Phase) -> ClusterState {
    ClusterState {
        key: key.clone(),
        identity: Identity::ByCa,
        source: "test".into(),
        shadowed: Vec::new(),
        owned: true,
        phase,
        since: SystemTime::UNIX_EPOCH,
        gate: None,
        refused: None,
        removing: false,
        generation: None,
        replacing: false,
        retiring: 0,
        health: Verdict::Unknown,
        not_ready: None,
        held_by_brake: false,
        attempts: 0,
        first_failure: None,
        next_attempt: None,
        last_probe: None,
        last_success: None,
        stalled: None,
        consecutive_failures: 0,
        probes_succeeded: 0,
        probes_failed: 0,
        last_error: None,
        resources: Vec::new(),
        credential_expires: None,
        access: None,
    }
}

fn events(limit: usize) -> (Events, Arc<Model>) {
    let model = Arc::new(Model::default());
    (
        Events::over(Arc::clone(&model) as Arc<dyn Clusters>, limit),
        model,
    )
}

fn key(name: impl ToString + Copy) -> ClusterKey {
    ClusterKey::named(&name.to_string())
}

type Told = (ClusterKey, Changes, Option<Phase>);

fn told(event: Event) -> Option<Told> {
    match event {
        Event::Cluster {
            key,
            changes,
            state,
        } => Some((key, changes, state.map(|state| state.phase))),
        Event::Resync => None,
    }
}

/// All that can be read now.
fn read(events: &mut Subscription) -> Vec<Option<Told>> {
    let ready = std::iter::from_fn(|| events.next().now_or_never().flatten());
    ready.map(told).collect()
}

#[test]
fn a_subscription_starts_with_every_known_cluster() {
    let (events, model) = events(9);
    model.set(&key("a"), Phase::Connected);
    model.set(&key("b"), Phase::Down);
    let mut subscription = events.subscribe(|| {});
    assert_eq!(
        read(&mut subscription),
        [
            Some((
                key("a"),
                Changes::KNOWN | Changes::CONNECTED,
                Some(Phase::Connected)
            )),
            Some((key("b"), Changes::KNOWN, Some(Phase::Down))),
        ]
    );
}

#[test]
fn changes_of_a_cluster_between_two_reads_are_one_event_with_the_newest_state() {
    let (events, model) = events(9);
    let (a, b) = (key("a"), key("b"));
    let mut subscription = events.subscribe(|| {});
    assert_eq!(read(&mut subscription), []);
    model.set(&b, Phase::Down);
    events.tell(&b, Changes::DISCONNECTED);
    model.set(&a, Phase::Connected);
    events.tell(&a, Changes::CONNECTED);
    model.set(&b, Phase::Connected);
    events.tell(&b, Changes::CONNECTED);
    assert_eq!(
        read(&mut subscription),
        [
            Some((
                b,
                Changes::DISCONNECTED | Changes::CONNECTED,
                Some(Phase::Connected)
            )),
            Some((a, Changes::CONNECTED, Some(Phase::Connected))),
        ],
        "in the order in which they first changed"
    );
}

#[test]
fn a_removal_is_an_event_without_a_state_and_a_removal_that_was_undone_has_one() {
    let (events, model) = events(9);
    let mut subscription = events.subscribe(|| {});
    read(&mut subscription);
    events.tell(&key("a"), Changes::REMOVED);
    assert_eq!(
        read(&mut subscription),
        [Some((key("a"), Changes::REMOVED, None))]
    );
    // The engine takes it out first and tells then: who reads between the two is told what holds.
    events.tell(&key("a"), Changes::DISCONNECTED);
    assert_eq!(
        read(&mut subscription),
        [Some((
            key("a"),
            Changes::DISCONNECTED | Changes::REMOVED,
            None
        ))]
    );
    events.tell(&key("a"), Changes::REMOVED);
    model.set(&key("a"), Phase::Connecting);
    events.tell(&key("a"), Changes::STATE);
    assert_eq!(
        read(&mut subscription),
        [Some((
            key("a"),
            Changes::REMOVED | Changes::STATE,
            Some(Phase::Connecting)
        ))]
    );
}

#[test]
fn a_name_that_comes_and_goes_for_ever_costs_one_slot() {
    let (events, model) = events(1);
    let mut subscription = events.subscribe(|| {});
    read(&mut subscription);
    for _ in 0..1_000 {
        model.set(&key("a"), Phase::Connecting);
        events.tell(&key("a"), Changes::STATE);
        model.remove(&key("a"));
        events.tell(&key("a"), Changes::REMOVED);
    }
    assert_eq!(
        read(&mut subscription),
        [Some((key("a"), Changes::STATE | Changes::REMOVED, None))]
    );
}

#[test]
fn a_subscriber_that_falls_behind_is_told_to_resync_and_then_every_known_cluster() {
    let (events, model) = events(3);
    let mut subscription = events.subscribe(|| {});
    read(&mut subscription);
    for name in 0..5 {
        model.set(&key(name), Phase::Connecting);
        events.tell(&key(name), Changes::STATE);
    }
    model.remove(&key(0));
    events.tell(&key(0), Changes::REMOVED);
    let known = |name| Some((key(name), Changes::KNOWN, Some(Phase::Connecting)));
    assert_eq!(
        read(&mut subscription),
        [None, known(1), known(2), known(3), known(4)]
    );
}

#[test]
fn a_subscriber_that_is_always_behind_still_learns_of_every_cluster() {
    let (events, model) = events(2);
    let all = (0..10).map(key).collect::<Vec<_>>();
    for key in &all {
        model.set(key, Phase::Connecting);
    }
    let mut subscription = events.subscribe(|| {});
    let mut seen = Vec::new();
    while seen.len() < 10 {
        // More than it may hold, before each read.
        for key in &all {
            events.tell(key, Changes::STATE);
        }
        let event = subscription.next().now_or_never().flatten().unwrap();
        seen.extend(event.key().cloned());
    }
    assert_eq!(seen, all);
}

#[test]
fn only_what_was_asked_for_is_told_also_if_it_came_before_it_was_said() {
    let (events, model) = events(9);
    model.set(&key("a"), Phase::Connected);
    model.set(&key("b"), Phase::Connected);
    let subscription = events.subscribe(|| {});
    events.tell(&key("b"), Changes::DISCONNECTED);
    events.tell(&key("c"), Changes::DISCONNECTED);
    let mut subscription = subscription.key(&key("a")).only(Changes::DISCONNECTED);
    assert_eq!(read(&mut subscription).len(), 1, "a is known");
    events.tell(&key("a"), Changes::STATE | Changes::ACCESS);
    events.tell(&key("b"), Changes::DISCONNECTED);
    assert_eq!(read(&mut subscription), []);
    events.tell(&key("a"), Changes::STATE | Changes::DISCONNECTED);
    assert_eq!(
        read(&mut subscription),
        [Some((
            key("a"),
            Changes::DISCONNECTED,
            Some(Phase::Connected)
        ))]
    );
}

#[test]
fn unhealthy_is_told_to_those_who_asked_about_just_that_time() {
    let (events, model) = events(9);
    let (short, long) = (Duration::from_secs(50), Duration::from_secs(300));
    let notified = Arc::new(AtomicUsize::new(0));
    let subscribe = || {
        let notified = Arc::clone(&notified);
        events.subscribe(move || {
            notified.fetch_add(1, Ordering::Relaxed);
        })
    };
    let mut both = subscribe().unhealthy_for(long).unhealthy_for(short);
    let mut one = subscribe().unhealthy_for(short).only(Changes::CONNECTED);
    let mut none = subscribe();
    assert_eq!(notified.load(Ordering::Relaxed), 3);
    let _ = events.newcomers();
    assert_eq!(events.unhealthy_times(), [short, long]);
    model.set(&key("a"), Phase::Down);
    let mut after = |time| {
        for subscription in [&mut both, &mut one, &mut none] {
            read(subscription);
        }
        events.unhealthy(&key("a"), time);
        [&mut both, &mut one, &mut none].map(|subscription| read(subscription).len())
    };
    assert_eq!(after(short), [1, 1, 0]);
    assert_eq!(after(long), [1, 0, 0]);
    drop(both);
    assert_eq!(events.unhealthy_times(), [short]);
    drop(one);
    assert!(events.unhealthy_times().is_empty());
}

#[test]
fn who_comes_late_to_an_outage_is_told_of_it_once_and_nobody_else_is_again() {
    let (events, model) = events(9);
    let (a, time) = (key("a"), Duration::from_secs(50));
    model.set(&a, Phase::Down);
    let mut early = events.subscribe(|| {}).unhealthy_for(time);
    events.newcomers().tell(&a, &[]);
    read(&mut early);
    events.unhealthy(&a, time);
    assert_eq!(read(&mut early).len(), 1);
    let mut late = events.subscribe(|| {}).unhealthy_for(time);
    read(&mut late);
    events.unhealthy(&a, time);
    assert_eq!(read(&mut late), [], "before the engine has heard of it");
    read(&mut early);
    events.newcomers().tell(&a, &[time]);
    events.newcomers().tell(&a, &[time]);
    assert_eq!((read(&mut early).len(), read(&mut late).len()), (0, 1));
    events.unhealthy(&a, time);
    assert_eq!((read(&mut early).len(), read(&mut late).len()), (1, 1));
}

#[test]
fn a_dropped_subscriber_leaves_nothing_behind() {
    let (events, _) = events(9);
    let subscriptions: Vec<_> = (0..9).map(|_| events.subscribe(|| {})).collect();
    events.tell(&key("a"), Changes::STATE);
    let mailboxes = || lock(&events.hub.0).mailboxes.len();
    assert_eq!(mailboxes(), 9);
    drop(subscriptions);
    assert_eq!(mailboxes(), 0);
}

#[tokio::test]
async fn a_change_wakes_a_subscriber_and_all_who_wait_for_that_cluster() {
    let (events, _) = events(9);
    let mut subscription = events.subscribe(|| {});
    assert_eq!(read(&mut subscription), []);
    let reader = tokio::spawn(async move { subscription.next().await });
    let waiters: Vec<_> = (0..50)
        .map(|_| tokio::spawn(events.next(&key("a"))))
        .collect();
    let other = events.next(&key("b"));
    tokio::task::yield_now().await;
    events.tell(&key("a"), Changes::CONNECTED);
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(reader.await.unwrap().is_some());
    assert_eq!(other.now_or_never(), None);
}

#[test]
fn who_waits_is_registered_before_the_first_poll_and_gone_when_dropped() {
    let (events, _) = events(9);
    let keys = || lock(&events.hub.0).waiters.keys();
    let told = events.next(&key("a"));
    let (one, two) = (events.next(&key("b")), events.next(&key("b")));
    assert_eq!(keys(), 2);
    events.tell(&key("a"), Changes::STATE);
    assert_eq!(told.now_or_never(), Some(()));
    drop(one);
    assert_eq!(keys(), 1);
    drop(two);
    assert_eq!(keys(), 0);
}

#[tokio::test]
async fn the_end_ends_every_stream_after_what_it_was_told_and_every_wait() {
    let (events, model) = events(9);
    model.set(&key("a"), Phase::Connected);
    let mut subscription = events.subscribe(|| {});
    read(&mut subscription);
    let never_read = events.subscribe(|| {});
    let waiter = events.next(&key("b"));
    events.tell(&key("a"), Changes::DISCONNECTED);
    events.close();
    events.tell(&key("a"), Changes::CONNECTED);
    assert_eq!(
        subscription.next().await.unwrap().changes(),
        Changes::DISCONNECTED
    );
    assert!(subscription.next().await.is_none());
    assert!(subscription.next().await.is_none(), "and stays ended");
    assert_eq!(never_read.count().await, 0);
    waiter.await;
    assert_eq!(events.subscribe(|| {}).count().await, 0);
    events.next(&key("a")).await;
}

#[test]
fn no_lock_is_held_while_a_subscriber_is_woken_or_its_waker_is_dropped() {
    struct Reenters(Arc<Events>);
    impl Reenters {
        fn everything(&self) {
            self.0.unhealthy_times();
            drop(self.0.subscribe(|| {}));
            drop(self.0.next(&key("a")));
            self.0.tell(&key("b"), Changes::STATE);
        }
    }
    impl std::task::Wake for Reenters {
        fn wake(self: Arc<Self>) {
            self.everything();
        }
    }
    impl Drop for Reenters {
        fn drop(&mut self) {
            self.everything();
        }
    }
    let (events, _) = events(9);
    let events = Arc::new(events);
    let waker = || std::task::Waker::from(Arc::new(Reenters(Arc::clone(&events))));
    let mut subscription = events.subscribe(|| {});
    let mut waiter = events.next(&key("a"));
    for _ in 0..2 {
        let waker = waker();
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(subscription.poll_next_unpin(&mut cx).is_pending());
        assert!(waiter.poll_unpin(&mut cx).is_pending());
    }
    events.tell(&key("a"), Changes::STATE);
    assert!(
        poll_fn(|cx| Poll::Ready(subscription.poll_next_unpin(cx)))
            .now_or_never()
            .is_some_and(|poll| poll.is_ready())
    );
    read(&mut subscription);
    let waker = waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(subscription.poll_next_unpin(&mut cx).is_pending());
    drop(waker);
    drop(subscription);
}

#[test]
fn a_waker_that_panics_is_its_owners_loss_alone() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("expected by this test");
        }
    }
    let (events, _) = events(9);
    let (mut bad, mut good) = (events.subscribe(|| {}), events.subscribe(|| {}));
    assert_eq!(read(&mut good), []);
    let waker = std::task::Waker::from(Arc::new(Panics));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(bad.poll_next_unpin(&mut cx).is_pending());
    events.tell(&key("a"), Changes::STATE);
    assert_eq!((read(&mut good).len(), read(&mut bad).len()), (1, 1));
}

#[test]
fn changes_print_their_names() {
    let changes = Changes::REMOVED | Changes::KNOWN;
    assert_eq!(format!("{changes:?}"), "KNOWN | REMOVED");
    assert_eq!(format!("{:?}", Changes::default()), "(none)");
    assert!(changes.contains(Changes::KNOWN) && !changes.contains(Changes::KNOWN | Changes::STATE));
    assert!(changes.intersects(Changes::KNOWN | Changes::STATE));
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8, u16),
    Remove(u8),
    Unhealthy(u8),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..6, 1_u16..8).prop_map(|(name, bits)| Step::Publish(name, bits << 4)),
        2 => (0_u8..6).prop_map(Step::Remove),
        1 => (0_u8..6).prop_map(Step::Unhealthy),
        3 => (0_usize..6).prop_map(Step::Read),
    ]
}

proptest! {
    /// The plain model: for each key the union of what happened since it was last told, until there are too many of them.
    #[test]
    fn who_has_read_all_knows_what_holds_and_was_told_of_every_change_or_to_resync(
        steps in proptest::collection::vec(step(), 1..80),
        limit in 1_usize..8,
    ) {
        let (events, model) = events(limit);
        let time = Duration::from_secs(1);
        let mut subscription = events.subscribe(|| {}).unhealthy_for(time);
        let _ = events.newcomers();
        let (mut untold, mut view) = (BTreeMap::<ClusterKey, Changes>::new(), BTreeMap::new());
        let mut behind = false;
        for step in steps.into_iter().chain([Step::Read(usize::MAX)]) {
            let mut tell = |name: u8, changes| {
                *untold.entry(key(name)).or_default() |= changes;
                behind |= untold.len() > limit;
            };
            match step {
                Step::Publish(name, bits) => {
                    model.set(&key(name), Phase::Connecting);
                    events.tell(&key(name), Changes(bits));
                    tell(name, Changes(bits));
                }
                Step::Remove(name) => {
                    model.remove(&key(name));
                    events.tell(&key(name), Changes::REMOVED);
                    tell(name, Changes::REMOVED);
                }
                Step::Unhealthy(name) => {
                    events.unhealthy(&key(name), time);
                    events.unhealthy(&key(name), time * 2);
                    tell(name, Changes::UNHEALTHY);
                }
                Step::Read(events) => {
                    for _ in 0..events {
                        match subscription.next().now_or_never() {
                            None => {
                                prop_assert!(untold.is_empty() && !behind);
                                let attempts = |key: ClusterKey| {
 let state = model.state(&key)?;
 Some((key, state.attempts))
 };
                                let holds: BTreeMap<_, _> = model.keys().into_iter().filter_map(attempts).collect();
                                prop_assert_eq!(&view, &holds);
                                break;
                            }
                            Some(None) => prop_assert!(false, "it has not ended"),
                            Some(Some(Event::Resync)) => {
                                prop_assert!(behind, "it was told no more than it may hold");
                                behind = false;
                                untold.clear();
                                view.clear();
                            }
                            Some(Some(Event::Cluster { key, changes, state })) => {
                                let wanted = untold.remove(&key).unwrap_or_default();
                                prop_assert!(behind || changes.contains(wanted));
                                prop_assert_eq!(state.is_none(), changes.contains(Changes::REMOVED) && model.state(&key).is_none());
                                match state {
                                    Some(state) => view.insert(key, state.attempts),
                                    None => view.remove(&key),
                                };
                            }
                        }
                    }
                }
            }
            prop_assert!(subscription.unread() <= limit);
        }
    }
}
