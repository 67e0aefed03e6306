//! A fleet without a network: five providers whose values cost nothing, so that what is measured is the framework alone.
#![allow(dead_code, unreachable_pub)] // each bench uses its part of it

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    ClusterSource, HealthCheck, InitContext, InitError, Requires, SourceError, SourceEvent, Upsert,
};
use futures_util::{StreamExt, future::ready, stream, stream::BoxStream};
use tokio::{sync::watch, time::MissedTickBehavior};

/// Registered with each cluster.
pub const PROVIDERS: usize = 5;

/// What each of them makes.
pub const VALUE: u64 = 7;

/// The `N`th provider. The first gives the verdict, and the others require it.
pub struct Part<const N: usize>;

#[async_trait]
impl<const N: usize> ClusterResource for Part<N> {
    type Value = u64;

    fn name(&self) -> &'static str {
        ["part-0", "part-1", "part-2", "part-3", "part-4"][N]
    }

    fn requires(&self) -> Requires {
        match N {
            0 => Requires::nothing().access(),
            _ => Requires::nothing().resource::<Part<0>>(),
        }
    }

    async fn init(&self, _: &InitContext) -> Result<u64, InitError> {
        Ok(VALUE)
    }
}

#[async_trait]
impl HealthCheck for Part<0> {
    async fn check(&self, _: &u64, _: &CheckContext) -> Result<Answer, CheckError> {
        Ok(Answer::Ready)
    }
}

/// Names so many clusters, then changes a label of random ones, so many times a second, for as long as it is told to.
#[derive(Clone)]
pub struct Clusters {
    named: Arc<Vec<Upsert>>,
    changes_a_millisecond: Arc<watch::Sender<usize>>,
    changed: Arc<AtomicU64>,
}

impl Clusters {
    pub fn new(count: usize) -> Self {
        let cluster = |number: usize| {
            let name = format!("cluster-{number:05}");
            let access = ClusterAccess::builder(format!("https://{name}.example:6443"))
                .token(format!("token-of-{name}"))
                .build()
                .expect("a good access");
            Upsert::ready(ClusterKey::new("fleet", &name), access).with_uid(name)
        };
        Self {
            named: Arc::new((0..count).map(cluster).collect()),
            changes_a_millisecond: Arc::default(),
            changed: Arc::default(),
        }
    }

    pub fn keys(&self) -> Vec<ClusterKey> {
        self.named
            .iter()
            .map(|cluster| cluster.key.clone())
            .collect()
    }

    /// From now on so many clusters change a millisecond.
    pub fn change(&self, a_millisecond: usize) {
        self.changes_a_millisecond.send_replace(a_millisecond);
    }

    /// Changes so far.
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// A cache over these clusters, all quiet: nothing is probed.
    pub fn start(&self) -> ClusterCache {
        const NEVER: Duration = Duration::from_secs(86_400);
        ClusterCache::builder()
            .source(self.clone())
            .resource(Part::<0>)
            .health_from::<Part<0>>()
            .resource(Part::<1>)
            .resource(Part::<2>)
            .resource(Part::<3>)
            .resource(Part::<4>)
            .configure(|options| {
                options.health.probe_after = NEVER;
                options.health.authenticate_every = NEVER;
                options.health.stall_after = NEVER;
            })
            .start()
            .expect("a good set-up")
    }

    async fn next_changes(&self, ticks: &mut tokio::time::Interval) -> Vec<SourceEvent> {
        let mut rate = self.changes_a_millisecond.subscribe();
        if *rate.borrow_and_update() == 0 {
            let _ = rate.wait_for(|rate| *rate > 0).await;
            ticks.reset();
        }
        ticks.tick().await;
        let changes = *rate.borrow();
        let change = |_| {
            let number = self.changed.fetch_add(1, Ordering::Relaxed);
            let cluster = fastrand::choice(self.named.iter()).expect("there are clusters");
            let label = ("number".to_owned(), number.to_string());
            SourceEvent::Upsert(cluster.clone().with_labels([label]))
        };
        (0..changes).map(change).collect()
    }
}

impl ClusterSource for Clusters {
    fn name(&self) -> &'static str {
        "clusters"
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        let named = Arc::clone(&self.named);
        let all = (0..named.len()).map(move |at| SourceEvent::Upsert(named[at].clone()));
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let changes = stream::unfold((self.clone(), ticks), |(clusters, mut ticks)| async {
            let changes = clusters.next_changes(&mut ticks).await;
            Some((stream::iter(changes), (clusters, ticks)))
        });
        stream::iter(all)
            .chain(stream::once(ready(SourceEvent::Synced)))
            .chain(changes.flatten())
            .map(Ok)
            .boxed()
    }
}
