//! What a read costs (rule 1): by key and by handle, alone, on two threads, and while clusters change all the time. The reference is the least that any
//! cache of this kind can do: hash the key, pin the map, clone an `Arc`; with the same map, hasher, keys and values.

use std::{alloc::System, hint::black_box, str::FromStr, sync::Barrier, time::Duration};

use clustercache::{ClusterCache, ClusterKey, Event, GetError, Resource};
use figure::{Figures, Unit::Nanoseconds, Unit::Of, count, median, per_call, percentile};
use futures_util::StreamExt;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::time::Instant;
use trivial::{Clusters, Part};

mod figure;
mod trivial;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 10_000;

/// Reads in one turn.
const TURN: usize = 1_000;
const TURNS: usize = 2_000;

type Bare = papaya::HashMap<ClusterKey, Resource<Part<2>>, foldhash::fast::RandomState>;

fn main() {
    let clusters = Clusters::new(CLUSTERS);
    let (cache, bare) = start(&clusters);
    let keys = shuffled(&clusters);
    let mut figures = Figures::default();
    by_key(&mut figures, &cache, &clusters, &keys);
    one_at_a_time(&mut figures, &cache, &bare, &keys);
    allocations(&mut figures, &cache, &keys);
    by_handle(&mut figures, &cache, &keys[0]);
    two_threads(&mut figures, &cache, &clusters);
    busy(&mut figures, &cache, &clusters, &keys);
    figures.print();
}

/// The engine has a thread of its own, and nothing to do on it but what a bench makes it do. The bare map is filled as clusters
/// connect, as a map of one's own would be: filled at once it would lie in memory as none does.
fn start(clusters: &Clusters) -> (ClusterCache, Bare) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let clusters = clusters.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (cache, bare) = (clusters.start(), Bare::default());
            let mut events = cache.subscribe();
            while bare.len() < CLUSTERS {
                let event = events.next().await.expect("the engine runs");
                if let Event::Cluster { key, .. } = event
                    && let Ok(part) = cache.get(&key)
                {
                    bare.pin().insert(key, part);
                }
            }
            sender.send((cache, bare)).expect("main waits");
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().expect("the engine starts")
}

/// Keys of the reader's own, as one that comes out of a queue is.
fn shuffled(clusters: &Clusters) -> Vec<ClusterKey> {
    let own = |key: ClusterKey| ClusterKey::from_str(key.as_str()).unwrap_or_else(|no| match no {});
    let mut keys: Vec<_> = clusters.keys().into_iter().map(own).collect();
    fastrand::shuffle(&mut keys);
    keys
}

fn read(cache: &ClusterCache, keys: &[ClusterKey]) {
    for key in keys {
        let _ = black_box(cache.get::<Part<2>>(black_box(key)));
    }
}

/// Which key is read next hangs on what was read: a reconciler does not read twenty clusters at once either, as a processor would.
fn one_by_one(keys: &[ClusterKey], get: impl Fn(&ClusterKey) -> Option<Resource<Part<2>>>) {
    let mut at = 0;
    while let Some(key) = keys.get(at) {
        let part = black_box(get(key)).expect("connected");
        at += usize::from(*part == trivial::VALUE);
    }
}

/// One read after the other, as fast as they go: a processor overlaps several.
fn by_key(figures: &mut Figures, cache: &ClusterCache, clusters: &Clusters, keys: &[ClusterKey]) {
    let bare = Bare::default();
    for key in clusters.keys() {
        let value = cache.get(&key).expect("connected");
        bare.pin().insert(key, value);
    }
    let read_bare = |keys: &[ClusterKey]| {
        for key in keys {
            let _ = black_box(bare.pin().get(black_box(key)).cloned());
        }
    };
    in_turns(
        "keyed_get",
        figures,
        keys,
        |keys| read(cache, keys),
        read_bare,
    );
}

/// The same where each read waits for the one before, against a map that was filled as clusters connected: what a single read takes.
fn one_at_a_time(figures: &mut Figures, cache: &ClusterCache, bare: &Bare, keys: &[ClusterKey]) {
    in_turns(
        "keyed_get_one_at_a_time",
        figures,
        keys,
        |keys| one_by_one(keys, |key| cache.get(key).ok()),
        |keys| one_by_one(keys, |key| bare.pin().get(key).cloned()),
    );
}

/// The two read the same keys, and never one after the other.
fn in_turns(
    figure: &str,
    figures: &mut Figures,
    keys: &[ClusterKey],
    our: impl Fn(&[ClusterKey]),
    bare: impl Fn(&[ClusterKey]),
) {
    let turns = keys.chunks(TURN).zip(keys.chunks(TURN).rev()).cycle();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (keys, others) in turns.take(TURNS) {
        ours.push(per_call(TURN, || our(keys)));
        theirs.push(per_call(TURN, || bare(others)));
    }
    let reference = ("hash_pin_clone", median(&mut theirs));
    figures.against(figure, median(&mut ours), Nanoseconds, reference);
}

fn allocations(figures: &mut Figures, cache: &ClusterCache, keys: &[ClusterKey]) {
    struct Unregistered;
    #[async_trait::async_trait]
    impl clustercache::ClusterResource for Unregistered {
        type Value = ();
        fn name(&self) -> &'static str {
            "unregistered"
        }
        async fn init(&self, _: &clustercache::InitContext) -> Result<(), clustercache::InitError> {
            Ok(())
        }
    }
    let unknown = ClusterKey::named("unknown");
    // A thread's first read through a snapshot makes its place among arc-swap's readers, once.
    let _ = cache.get::<Unregistered>(&keys[0]);
    let region = Region::new(HEAP);
    read(cache, keys);
    for key in keys {
        let failed = cache.get::<Unregistered>(black_box(key));
        assert!(matches!(failed, Err(GetError::NotRegistered { .. })));
        let failed = cache.get::<Part<2>>(black_box(&unknown));
        assert!(matches!(failed, Err(GetError::Unknown { .. })));
    }
    let allocations = region.change().allocations;
    figures.add(
        "keyed_get_allocations",
        count(allocations),
        Of("allocations"),
    );
}

fn by_handle(figures: &mut Figures, cache: &ClusterCache, key: &ClusterKey) {
    let cluster = cache.cluster(key).expect("known");
    let (mut owned, mut borrowed) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        owned.push(per_call(TURN, || {
            for _ in 0..TURN {
                let _ = black_box(black_box(&cluster).get::<Part<2>>());
            }
        }));
        borrowed.push(per_call(TURN, || {
            for _ in 0..TURN {
                let part = black_box(&cluster).borrow::<Part<2>>().expect("connected");
                black_box(*part);
            }
        }));
    }
    figures.add("handle_get", median(&mut owned), Nanoseconds);
    figures.add("handle_borrow", median(&mut borrowed), Nanoseconds);
}

/// Alone and beside another, in turns.
fn two_threads(figures: &mut Figures, cache: &ClusterCache, clusters: &Clusters) {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        alone.extend(reading(1, cache, clusters));
        beside.extend(reading(2, cache, clusters));
    }
    let reference = ("one_thread", median(&mut alone));
    let value = median(&mut beside);
    figures.against("keyed_get_2_threads", value, Nanoseconds, reference);
}

/// So many threads read at once; what each read took on each of them.
fn reading(threads: usize, cache: &ClusterCache, clusters: &Clusters) -> Vec<f64> {
    let together = Barrier::new(threads);
    let one = || {
        let keys = shuffled(clusters);
        together.wait();
        let turns = keys.chunks(TURN).cycle().take(TURNS / 20);
        turns
            .map(|keys| per_call(TURN, || read(cache, keys)))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

/// Batches of 64 reads, in turns while nothing changes and while 10,000 clusters a second do.
fn busy(figures: &mut Figures, cache: &ClusterCache, clusters: &Clusters, keys: &[ClusterKey]) {
    const BATCH: usize = 64;
    const FOR: Duration = Duration::from_millis(500);
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    let (mut changes, mut time) = (0, Duration::ZERO);
    let batches = |times: &mut Vec<f64>| {
        let begun = Instant::now();
        for batch in keys.chunks_exact(BATCH).cycle() {
            times.push(per_call(1, || read(cache, batch)));
            if begun.elapsed() > FOR {
                break;
            }
        }
        begun.elapsed()
    };
    for _ in 0..10 {
        batches(&mut idle);
        clusters.change(10);
        std::thread::park_timeout(Duration::from_millis(50));
        let before = clusters.changed();
        time += batches(&mut busy);
        changes += clusters.changed() - before;
        clusters.change(0);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let rate = count(usize::try_from(changes).expect("few")) / time.as_secs_f64();
    eprintln!("clusters that changed a second while busy: {rate:.0}");
    let reference = ("idle_p99", percentile(&mut idle, 99));
    let p99 = percentile(&mut busy, 99);
    figures.against("keyed_get_busy_p99", p99, Nanoseconds, reference);
}
