//! Every public call of the handle, made from inside `init`, `teardown`, `Drop`, a filter, a waker, and by who reads events: it comes back at once, or says
//! `WouldDeadlock` (rules 11 and 12). A table of all of them, in simulated time: that no time passes shows that none of them waited.
//!
//! The engine itself runs on tokio, which no model checker schedules; what the calls meet below it is model-checked in `src/events/model.rs`,
//! `src/registry/model.rs`, `src/cache/model.rs` and `src/engine/hooks/model.rs`.

#![allow(clippy::unit_arg, clippy::drop_non_drop)] // a table of calls, whatever they return

#[path = "../sim/mod.rs"]
mod sim;

mod ended;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

use clustercache::{Changes, ClusterCache, EngineStatus, MemorySource};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use sim::*;
use tokio::time::{Instant, timeout};

/// A call, by its name; its future is ready with what came of it.
type Call = (&'static str, fn(ClusterCache) -> BoxFuture<'static, String>);

fn said(answer: impl Debug) -> String {
    format!("{answer:?}")
}

/// What a plain call comes to.
macro_rules! plain {
    ($cache:ident, $call:expr) => {
        |$cache| {
            let answer = said($call);
            async { answer }.boxed()
        }
    };
}

const A: fn() -> clustercache::ClusterKey = || key("a");

const CALLS: [Call; 44] = [
    (
        "ClusterCache::builder",
        plain!(_cache, ClusterCache::builder().build().err()),
    ),
    ("ClusterCache::get", plain!(cache, cache.get::<Net>(&A()))),
    ("ClusterCache::cluster", plain!(cache, cache.cluster(&A()))),
    ("ClusterCache::access", plain!(cache, cache.access(&A()))),
    ("ClusterCache::state", plain!(cache, cache.state(&A()))),
    ("ClusterCache::phase", plain!(cache, cache.phase(&A()))),
    ("ClusterCache::keys", plain!(cache, cache.keys())),
    ("ClusterCache::states", plain!(cache, cache.states())),
    (
        "ClusterCache::subscribe",
        plain!(cache, cache.subscribe().next().now_or_never()),
    ),
    ("ClusterCache::wait_for", |cache| {
        async move { said(cache.wait_for(&A(), LONG).await) }.boxed()
    }),
    ("ClusterCache::wait_for_start", |cache| {
        async move { said(cache.wait_for_start(LONG).await) }.boxed()
    }),
    (
        "ClusterCache::retry_now",
        plain!(cache, cache.retry_now(&A())),
    ),
    // Of a known one each new connection's init would ask for another, for ever.
    (
        "ClusterCache::reconnect",
        plain!(cache, cache.reconnect(&key("none"))),
    ),
    (
        "ClusterCache::reconsider",
        plain!(cache, cache.reconsider::<Custom<0>>(&A())),
    ),
    (
        "ClusterCache::release_brake",
        plain!(cache, cache.release_brake()),
    ),
    ("ClusterCache::shutdown", |cache| {
        async move { said(cache.shutdown().await) }.boxed()
    }),
    ("ClusterCache::status", plain!(cache, cache.status())),
    ("ClusterCache::counters", plain!(cache, cache.counters())),
    ("ClusterCache::census", plain!(cache, cache.census())),
    (
        "ClusterCache::subscribers",
        plain!(cache, cache.subscribers()),
    ),
    ("ClusterCache::dials", plain!(cache, cache.dials())),
    ("ClusterCache::now", plain!(cache, cache.now())),
    (
        "Cluster::key",
        plain!(cache, cache.cluster(&A()).map(|a| a.key().clone())),
    ),
    (
        "Cluster::get",
        plain!(cache, cache.cluster(&A()).map(|a| a.get::<Net>())),
    ),
    (
        "Cluster::borrow",
        plain!(
            cache,
            cache.cluster(&A()).map(|a| a.borrow::<Net>().is_ok())
        ),
    ),
    (
        "Cluster::snapshot",
        plain!(cache, cache.cluster(&A()).map(|a| a.snapshot().is_ok())),
    ),
    (
        "Cluster::access",
        plain!(cache, cache.cluster(&A()).map(|a| a.access())),
    ),
    (
        "Cluster::state",
        plain!(cache, cache.cluster(&A()).map(|a| a.state())),
    ),
    (
        "Cluster::generation",
        plain!(cache, cache.cluster(&A()).map(|a| a.generation())),
    ),
    (
        "ClusterSnapshot::get",
        plain!(cache, snapshot(&cache).map(|it| it.get::<Net>().is_ok())),
    ),
    (
        "ClusterSnapshot::generation",
        plain!(cache, snapshot(&cache).map(|it| it.generation())),
    ),
    (
        "ClusterSnapshot::state",
        plain!(cache, snapshot(&cache).map(|it| it.state().clone())),
    ),
    (
        "Resource::key",
        plain!(cache, net(&cache).map(|net| net.key().clone())),
    ),
    (
        "Resource::generation",
        plain!(cache, net(&cache).map(|net| net.generation())),
    ),
    (
        "Resource::incarnation",
        plain!(cache, net(&cache).map(|net| net.incarnation())),
    ),
    (
        "Resource::is_current",
        plain!(cache, net(&cache).map(|net| net.is_current())),
    ),
    ("Resource::retired", |cache| {
        let net = net(&cache);
        async move {
            match net {
                Some(net) => said(net.retired().await),
                None => said(net),
            }
        }
        .boxed()
    }),
    (
        "Subscription::unhealthy_for",
        plain!(cache, cache.subscribe().unhealthy_for(LONG)),
    ),
    (
        "Subscription::only",
        plain!(cache, cache.subscribe().only(Changes::CONNECTED)),
    ),
    (
        "Subscription::key",
        plain!(cache, cache.subscribe().key(&A())),
    ),
    ("Subscription::next", |cache| {
        // The first of a subscription is there: one is known.
        async move { said(cache.subscribe().next().await) }.boxed()
    }),
    (
        "drop of a Subscription",
        plain!(cache, drop(cache.subscribe().unhealthy_for(LONG))),
    ),
    (
        "drop of a Cluster",
        plain!(cache, drop(cache.cluster(&A()))),
    ),
    ("drop of a ClusterCache", plain!(cache, drop(cache))),
];

fn net(cache: &ClusterCache) -> Option<clustercache::Resource<Net>> {
    cache.get(&A()).ok()
}

fn snapshot(cache: &ClusterCache) -> Option<clustercache::ClusterSnapshot> {
    cache.cluster(&A()).ok()?.snapshot().ok()
}

const SHUTDOWN: &str = "ClusterCache::shutdown";

/// These wait; where one may not, they say so.
const WAITS: [&str; 4] = [
    "ClusterCache::wait_for",
    "ClusterCache::wait_for_start",
    SHUTDOWN,
    "Resource::retired",
];

#[test]
fn the_table_has_every_public_call() {
    let sources = [
        ("ClusterCache", include_str!("../../src/cache.rs")),
        (
            "Subscription",
            include_str!("../../src/events/subscription.rs"),
        ),
        ("Resource", include_str!("../../src/resource.rs")),
    ];
    let table: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    for (first, source) in sources {
        let mut whose = first;
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.strip_prefix("<R: ClusterResource>").unwrap_or(rest);
                whose = rest.trim().split([' ', '<', '{']).next().unwrap();
            }
            // What a provider declares is no call of the handle.
            let ours = [
                "ClusterCache",
                "Cluster",
                "ClusterSnapshot",
                "Subscription",
                "Resource",
            ];
            let is_fn = line
                .strip_prefix("    pub fn ")
                .or(line.strip_prefix("    pub async fn "));
            if let Some(name) = is_fn.filter(|_| ours.contains(&whose)) {
                let name = format!("{whose}::{}", name.split(['(', '<']).next().unwrap());
                assert!(table.contains(&*name), "{name} is not called");
            }
        }
    }
}

/// Where the calls are made from, and what came of each.
#[derive(Clone, Default)]
struct Place {
    cache: Arc<OnceLock<ClusterCache>>,
    answers: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Place {
    fn cache(&self) -> ClusterCache {
        self.cache
            .get()
            .expect("it is set before it starts")
            .clone()
    }

    /// Inside a hook that may await.
    async fn calls(&self) {
        for (name, call) in CALLS {
            let answer = timeout(LONG, call(self.cache())).await;
            self.note(name, answer.unwrap_or_else(|_| "never".into()));
        }
    }

    /// Inside code that cannot: what waits is polled, and given up. A shutdown that was polled was asked for: that has a test of its own.
    fn polls(&self) {
        for (name, call) in CALLS {
            if name == SHUTDOWN && self.cache().status() == EngineStatus::Running {
                continue;
            }
            let answer = call(self.cache()).now_or_never();
            self.note(name, answer.unwrap_or_else(|| "waits".into()));
        }
    }

    fn note(&self, name: &'static str, answer: String) {
        self.answers.lock().unwrap().push((name, answer));
    }

    /// Each was made once or more, and came back; those that wait said that they would, if they had to.
    fn check(&self, place: &str, would_deadlock: bool) {
        let answers = self.answers.lock().unwrap();
        for (name, _) in CALLS {
            if name == SHUTDOWN && !would_deadlock {
                continue;
            }
            let mut of = answers
                .iter()
                .filter(|(called, _)| *called == name)
                .peekable();
            assert!(of.peek().is_some(), "{place}: {name} was not called");
            for (_, answer) in of {
                assert_ne!(answer, "never", "{place}: {name}");
                if would_deadlock && WAITS.contains(&name) {
                    // There may be no value of which to await the end.
                    let none = name == "Resource::retired" && answer == "None";
                    assert!(
                        none || answer.contains("WouldDeadlock"),
                        "{place}: {name}: {answer}"
                    );
                }
            }
        }
    }
}

/// Makes every call when it is dropped.
struct Calls(Place);

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.polls();
    }
}

/// Makes every call when it is woken.
struct Wakes(Place, AtomicBool);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.store(true, SeqCst);
        self.0.polls();
    }
}

#[tokio::test(start_paused = true)]
async fn every_public_call_comes_back_wherever_it_is_made_or_would_deadlock() {
    let places = [(); 6].map(|()| Place::default());
    let [init, teardown, dropped, filter, waker, reader] = places.clone();
    let (world, source) = (World::default(), MemorySource::new("test"));
    let (in_init, in_teardown, in_drop, in_filter) = (
        init.clone(),
        teardown.clone(),
        dropped.clone(),
        filter.clone(),
    );
    let custom = Custom::<0>::new()
        .requires(clustercache::Requires::access)
        .init(move |_| {
            let (place, calls) = (in_init.clone(), Calls(in_drop.clone()));
            async move {
                place.calls().await;
                Ok(calls)
            }
        })
        .teardown(move |_, _| {
            let place = in_teardown.clone();
            async move { place.calls().await }
        });
    let (cache, engine) = builder(&world, &source)
        .resource(custom)
        .filter(move |_| {
            in_filter.polls();
            true
        })
        .build()
        .unwrap();
    for place in &places {
        place.cache.set(cache.clone()).unwrap();
    }
    tokio::spawn(engine.run());
    settle().await;
    let told = Arc::new(Wakes(waker.clone(), AtomicBool::new(false)));
    let is_woken = Waker::from(Arc::clone(&told));
    let mut woken = cache.subscribe();
    assert!(
        woken
            .poll_next_unpin(&mut Context::from_waker(&is_woken))
            .is_pending()
    );
    let begun = Instant::now();
    source.upsert(plain("a"));
    cache.wait_for(&A(), LONG).await.unwrap();
    settle().await;
    assert!(told.1.load(SeqCst), "by the engine, while it tells");
    // Who reads events may call anything too.
    let mut events = cache.subscribe();
    assert!(events.next().await.is_some());
    reader.polls();
    assert_eq!(cache.get::<Custom<0>>(&A()).unwrap().incarnation(), 1);
    cache.shutdown().await.unwrap();
    settle().await;
    assert_eq!(begun.elapsed(), secs(0), "nobody waited");
    for (place, name) in [&init, &teardown].into_iter().zip(["init", "teardown"]) {
        place.check(name, true);
    }
    for (place, name) in [
        (&dropped, "drop"),
        (&filter, "filter"),
        (&waker, "waker"),
        (&reader, "reader"),
    ] {
        place.check(name, false);
    }
}

/// Asks for the end when it is woken.
struct Ends(Place);

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        assert!(self.0.cache().shutdown().now_or_never().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_a_filter_or_a_waker_asks_for_ends_the_cache() {
    for by_waker in [false, true] {
        let (place, in_filter) = <(Place, Place)>::default();
        let (world, source) = (World::default(), MemorySource::new("test"));
        let (cache, engine) = builder(&world, &source)
            .filter({
                let place = in_filter.clone();
                move |_| by_waker || place.cache().shutdown().now_or_never().is_none()
            })
            .build()
            .unwrap();
        for place in [&place, &in_filter] {
            place.cache.set(cache.clone()).unwrap();
        }
        tokio::spawn(engine.run());
        settle().await;
        let waker = Waker::from(Arc::new(Ends(place.clone())));
        let mut events = cache.subscribe();
        if by_waker {
            let polled = events.poll_next_unpin(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        source.upsert(plain("a"));
        settle().await;
        assert_eq!(cache.status(), EngineStatus::Ended, "by waker: {by_waker}");
    }
}
