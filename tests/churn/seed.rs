//! A seed repeats a whole run (rule 16): what is told when, what is done to values in which order, and what is left at the end.

use std::sync::{Arc, Mutex};

use clustercache::{Changes, Event, MemorySource, TeardownReason};
use futures_util::StreamExt;
use tokio::time::{Instant, advance, sleep};

use crate::{beside_others, sim::*};

/// A provider that fails, panics, hangs and ends slowly, as the names of clusters say.
fn moody(note: impl Fn(String) + Send + Sync + Clone + 'static) -> Custom<0> {
    let ends = note.clone();
    Custom::<0>::new()
        .init_timeout(secs(3))
        .init(move |cx| {
            let (name, nth, note) = (cx.key().name().to_owned(), cx.attempt(), note.clone());
            async move {
                note(format!("{name} tries {nth}"));
                match (&name[2..], nth) {
                    ("1", 1..4) => return Err(Scripted.into()),
                    ("2", 1) => panic!("the test says so"),
                    ("3", 1) => std::future::pending().await,
                    _ => {}
                }
                Ok(())
            }
        })
        .teardown(move |value, cx| {
            let name = value.cx.key().name().to_owned();
            let hangs = cx.reason() == TeardownReason::Shutdown && name.ends_with('4');
            ends(format!("{name} ends {:?}", cx.reason()));
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
            }
        })
}

/// Everything that was seen of it, with its time.
async fn run(seed: u64) -> Vec<String> {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let begun = Instant::now();
    let note = {
        let lines = Arc::clone(&lines);
        move |line: String| {
            let line = format!("{:?} {line}", begun.elapsed());
            lines.lock().unwrap().push(line);
        }
    };
    let cache = builder(&world, &source)
        .resource(moody(note.clone()))
        .configure(|options| options.seed = Some(seed))
        .start()
        .unwrap();
    cache.expect_panic("custom-0");
    let mut events = cache.subscribe().unhealthy_for(secs(20));
    let hears = tokio::spawn({
        let (note, cache) = (note.clone(), (*cache).clone());
        async move {
            while let Some(Event::Cluster {
                key,
                changes,
                state,
                ..
            }) = events.next().await
            {
                let next = state.as_ref().and_then(|state| state.next_attempt);
                let next = next.map(|at| at.duration_since(cache.now()));
                let phase = state.map(|state| (state.phase, state.attempts, state.generation));
                note(format!("{key} {changes:?} {phase:?} {next:?}"));
            }
        }
    });
    let names: Vec<String> = (0..30).map(|n| format!("c{n:02}")).collect();
    for name in &names {
        source.upsert(plain(name));
    }
    sleep(secs(100)).await;
    // Most of them fail at once, some for ever; then the process does not run.
    for (n, name) in names.iter().enumerate().skip(8) {
        world.set(
            name,
            if n % 2 == 0 {
                Answers::Never
            } else {
                Answers::Refuses
            },
        );
    }
    sleep(secs(90)).await;
    advance(secs(60)).await;
    cache.release_brake();
    sleep(secs(200)).await;
    for name in &names[12..] {
        world.set(name, Answers::Well);
    }
    source.upsert(cluster("c05", "another", "c05", "t"));
    source.upsert(cluster("c06", "c06", "elsewhere", "t"));
    source.remove(&key("c07"));
    let unhealthy = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(30));
    sleep(secs(100)).await;
    drop(unhealthy);
    let report = cache.shutdown().await.unwrap();
    note(report.to_string());
    note(format!("{:?}", world.journal()));
    hears.await.unwrap();
    lines.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_a_whole_run_and_another_one_does_not() {
    let _beside = beside_others().await;
    let (first, again, other) = (run(7).await, run(7).await, run(8).await);
    assert!(first.len() > 300, "{} lines", first.len());
    let differs = first
        .iter()
        .zip(&again)
        .position(|(one, other)| one != other);
    if let Some(at) = differs {
        panic!("line {at}: {} or {}", first[at], again[at]);
    }
    assert_eq!(first.len(), again.len());
    assert_ne!(first, other);
}
