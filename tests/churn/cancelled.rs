//! An init that ends just as it is cancelled, on two threads: its value is torn down exactly once, or there is none (rule 6).

use std::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use clustercache::MemorySource;

use crate::{beside_others, sim::*};

/// Counts itself while it is there.
struct Value(Arc<AtomicUsize>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// An init that may end from the moment on that the test opens its gate, and makes its value in the next of its polls.
fn gated(world: &World, open: &Arc<AtomicBool>, live: &Arc<AtomicUsize>) -> Custom<0> {
    let (made, ends) = (world.clone(), world.clone());
    let (open, live) = (Arc::clone(open), Arc::clone(live));
    Custom::<0>::new()
        .init(move |_| {
            let (world, open, live) = (made.clone(), Arc::clone(&open), Arc::clone(&live));
            async move {
                world.note("it waits".into());
                while !open.load(Relaxed) {
                    tokio::task::yield_now().await;
                }
                live.fetch_add(1, SeqCst);
                world.note("value up".into());
                Ok(Value(live))
            }
        })
        .teardown(move |_, _| {
            ends.note("value down".into());
            async {}
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_init_that_ends_as_it_is_cancelled_is_torn_down_once_in_reverse_or_made_nothing() {
    const ROUNDS: usize = 300;
    let _beside = beside_others().await;
    let (world, source) = (World::default(), MemorySource::new("test"));
    let (open, live) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    let cache = builder(&world, &source)
        .resource(gated(&world, &open, &live))
        .configure(|options| options.source.linger = secs(0))
        .start()
        .unwrap();
    // Whoever was first, the other is a little sooner the next time: so both are, again and again.
    let (mut removal_first, mut made, mut without) = (0_u32, 0, 0);
    for round in 0..ROUNDS {
        open.store(false, Relaxed);
        source.upsert(plain("a"));
        world.until_noted("it waits").await;
        source.remove(&key("a"));
        (0..removal_first).for_each(|_| spin_loop());
        open.store(true, Relaxed);
        world.until_noted("a net down").await;
        until_unknown(&cache, "a").await;
        let journal = world.journal();
        let (begin, end) = (["a net up", "it waits"], "a net down Removed");
        let made_one = journal.len() > 3;
        let expected: Vec<&str> = if made_one {
            begin
                .into_iter()
                .chain(["value up", "value down", end])
                .collect()
        } else {
            begin.into_iter().chain([end]).collect()
        };
        assert_eq!(journal, expected, "round {round}");
        assert_eq!(live.load(SeqCst), 0, "round {round}");
        if made_one {
            made += 1;
            removal_first += 1 + removal_first / 8;
        } else {
            without += 1;
            removal_first -= removal_first.div_ceil(8);
        }
    }
    assert!(
        made > 0 && without > 0,
        "{made} made one, {without} did not"
    );
    assert!(cache.shutdown().await.unwrap().is_clean());
    assert_eq!(cache.counters().abandoned(), 0);
}
