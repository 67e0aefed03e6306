//! What must hold whatever happens in whatever order: each value torn down once, in reverse, nothing half-open visible, nothing left behind.

#[path = "../sim/mod.rs"]
mod sim;

mod any_order;
mod cancelled;
mod reads;
mod seed;

use std::{alloc::System, sync::atomic::AtomicUsize};

use clustercache::MemorySource;
use sim::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::sleep,
};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The heap is everybody's: who measures it runs alone, the others beside each other.
static HEAP_IS_MEASURED: RwLock<()> = RwLock::const_new(());

async fn alone() -> RwLockWriteGuard<'static, ()> {
    HEAP_IS_MEASURED.write().await
}

async fn beside_others() -> RwLockReadGuard<'static, ()> {
    HEAP_IS_MEASURED.read().await
}

fn live_heap() -> isize {
    let stats = HEAP.stats();
    let signed = |bytes: usize| isize::try_from(bytes).unwrap();
    signed(stats.bytes_allocated) - signed(stats.bytes_deallocated)
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn after_10_000_adds_and_removes_heap_and_tasks_are_what_they_were() {
    let _alone = alone().await;
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = builder(&world, &source)
        .resource(Layer::<0> {
            world: world.clone(),
            script: Script::default(),
        })
        .resource(Custom::<0>::new().init(|cx| async move {
            cx.spawn(std::future::pending());
            let _ = cx.identity_state::<AtomicUsize>();
            Ok(vec![0_u8; 1_000])
        }))
        .start()
        .unwrap();
    let mut events = cache.subscribe();
    let mut next = 0;
    let mut rounds = async |rounds: usize| {
        for round in 0..rounds {
            let names: Vec<String> = (0..100).map(|n| format!("c{}", next + n)).collect();
            next += 100;
            // Some never answer, some fail, some are replaced before they go.
            for (n, name) in names.iter().enumerate() {
                match n % 10 {
                    8 => world.set(name, Answers::Never),
                    9 => world.set(name, Answers::Refuses),
                    _ => {}
                }
                source.upsert(plain(name));
            }
            sleep(millis(500)).await;
            assert!(cache.get::<Custom<0>>(&key(&names[0])).is_ok());
            source.upsert(cluster(&names[1], "other", &names[1], "t"));
            source.upsert(cluster(&names[2], &names[2], &names[1], "t"));
            sleep(millis(500)).await;
            for name in &names {
                source.remove(&key(name));
            }
            sleep(secs(6)).await;
            assert_eq!(cache.keys().unwrap(), [], "round {round}");
            while let Some(Some(_)) =
                futures_util::FutureExt::now_or_never(futures_util::StreamExt::next(&mut events))
            {
            }
            world.clear();
        }
    };
    rounds(10).await;
    let (heap, alive) = (live_heap(), tasks());
    rounds(100).await;
    assert_eq!(tasks(), alive);
    let grown = live_heap() - heap;
    assert!(
        grown < 100_000,
        "{grown} bytes more, {} a cluster",
        grown / 10_000
    );
}

// === Steps in turn ===

/// Net, and a chain of three on it.
fn chain() -> (World, Script, MemorySource, Cache) {
    let (world, script) = <(World, Script)>::default();
    let source = MemorySource::new("test");
    let cache = builder(&world, &source)
        .resource(Layer::<0> {
            world: world.clone(),
            script: script.clone(),
        })
        .resource(Layer::<1> {
            world: world.clone(),
            script: script.clone(),
        })
        .resource(Layer::<2> {
            world: world.clone(),
            script: script.clone(),
        })
        .configure(|options| options.source.linger = secs(0))
        .start()
        .unwrap();
    (world, script, source, cache)
}

#[tokio::test(start_paused = true)]
async fn when_each_step_fails_in_turn_the_others_stay_and_it_comes_up() {
    let _beside = beside_others().await;
    for step in 0..4 {
        for act in [Act::Fails, Act::Panics, Act::Hangs] {
            let (world, script, source, cache) = chain();
            if step == 0 {
                world.set("a", Answers::FailsOnce);
            } else {
                let mut acts = vec![Act::Works; step - 1];
                acts.push(act);
                if act == Act::Panics {
                    cache.expect_panic(["layer-0", "layer-1", "layer-2"][step - 1]);
                }
                script.set_all("a", acts);
            }
            source.upsert(plain("a"));
            cache.wait_for(&key("a"), LONG).await.unwrap();
            let ups: Vec<_> = world
                .journal()
                .into_iter()
                .filter(|line| line.ends_with(" up"))
                .collect();
            assert_eq!(
                ups,
                ["a net up", "a layer-0 up", "a layer-1 up", "a layer-2 up"]
            );
            source.remove(&key("a"));
            until_unknown(&cache, "a").await;
            settle().await;
            assert_eq!(
                world.journal(),
                [
                    "a layer-2 down Removed",
                    "a layer-1 down Removed",
                    "a layer-0 down Removed",
                    "a net down Removed"
                ],
                "{step} {act:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn removal_during_each_step_tears_down_what_is_up_once_in_reverse() {
    let _beside = beside_others().await;
    let all = ["a net", "a layer-0", "a layer-1", "a layer-2"];
    for step in 0..=4 {
        let (world, script, source, cache) = chain();
        settle().await;
        let before = tasks();
        if step == 0 {
            world.set("a", Answers::Never);
        }
        script.set("a", [Act::Slow(secs(1)); 3]);
        source.upsert(plain("a"));
        // In the middle of that step, or after all.
        sleep(secs(step).saturating_sub(millis(500))).await;
        settle().await;
        source.remove(&key("a"));
        until_unknown(&cache, "a").await;
        settle().await;
        let journal = world.journal();
        let of = |how: &str| -> Vec<_> {
            let lines = journal.iter().filter_map(|line| line.strip_suffix(how));
            lines.map(str::to_owned).collect()
        };
        let mut expected: Vec<_> = all[..usize::try_from(step).unwrap()].to_vec();
        assert_eq!(of(" up"), expected, "{step}");
        expected.reverse();
        assert_eq!(of(" down Removed"), expected, "{step}");
        assert_eq!(tasks(), before);
    }
}
