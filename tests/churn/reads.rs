//! A read allocates nothing, also when it fails (rule 1). The counters are of the whole process, in which the harness allocates at times: what a
//! read itself did would be there in every batch of reads.

use clustercache::{Cluster, ClusterCache, MemorySource, Phase};

use crate::{HEAP, alone, sim::*};

const BATCHES: usize = 20;
const READS: usize = 1_000;

/// The fewest allocations, with those moved, that a batch of reads was seen with.
fn fewest(mut read: impl FnMut()) -> usize {
    let batch = || {
        let before = HEAP.stats();
        (0..READS).for_each(|_| read());
        let after = HEAP.stats();
        (after.allocations - before.allocations) + (after.reallocations - before.reallocations)
    };
    std::iter::repeat_with(batch)
        .take(BATCHES)
        .min()
        .unwrap_or_default()
}

type Read = (&'static str, fn(&ClusterCache, &Cluster));

const READS_OF_ALL_KINDS: [Read; 6] = [
    ("by key", |cache, a| drop(cache.get::<Net>(a.key()))),
    ("by handle", |_, a| drop(a.get::<Net>())),
    ("borrowed", |_, a| drop(a.borrow::<Net>())),
    ("snapshot", |_, a| drop(a.snapshot())),
    ("phase", |cache, a| drop(cache.phase(a.key()))),
    ("not registered", |cache, a| {
        drop(cache.get::<Custom<4>>(a.key()));
    }),
];

#[tokio::test(start_paused = true)]
async fn no_read_allocates_whether_there_is_a_value_or_not() {
    let _alone = alone().await;
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let none = |state: &str| {
        for (name, read) in READS_OF_ALL_KINDS {
            assert_eq!(fewest(|| read(&cache, &a)), 0, "{name}, {state}");
        }
    };
    assert!(
        fewest(|| drop(std::hint::black_box(Box::new(7)))) >= READS,
        "it would be seen"
    );
    none("connected");
    world.set("a", Answers::Refuses);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    none("down");
    source.upsert(cluster("a", "another", "a", "t"));
    until(&cache, "a", |state| state.phase == Phase::Connecting).await;
    none("replaced");
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    none("unknown");
    cache.shutdown().await.unwrap();
    none("ended");
}
