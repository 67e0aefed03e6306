//! Whatever happens at whatever await: a provider's hook that panics, fails or never completes at each of its polls, and somebody else who
//! interferes after each poll of the whole engine. Each value is torn down once in reverse, or counted; nothing half-open is visible,
//! and nothing is left behind (rules 2, 6, 8 and 10).

#[path = "../sim/mod.rs"]
mod sim;

mod facts;
mod stage;

use std::{future::poll_fn, panic, sync::Once, task::Poll};

use sim::{Cache, key, secs};
use stage::{Act, DEEDS, Deed, Hook, NAMES, POLLS, Point, Stage};
use tokio::time::sleep;

type Turn = fn(&Stage, &Cache);

/// What happens to the cluster one after the other, and what has come of it before the next.
const STORY: [(Turn, &str); 7] = [
    (
        |stage, _| stage.says("a", "a", "first"),
        "Some(Connected) 4 up, 0 torn down, 0 asked",
    ),
    (
        |stage, _| stage.says("a", "a", "second"),
        "Some(Connected) 4 up, 0 torn down, 4 asked",
    ),
    (
        |stage, _| stage.run(Deed::Fails(1)),
        "Some(Degraded) 4 up, 2 torn down, 4 asked",
    ),
    (
        |_, cache| cache.retry_now(&key("a")),
        "Some(Connected) 6 up, 2 torn down, 4 asked",
    ),
    (
        |stage, _| stage.says("a", "b", "second"),
        "Some(Connected) 10 up, 6 torn down, 4 asked",
    ),
    (
        |stage, _| stage.says("another", "b", "second"),
        "Some(Connected) 14 up, 10 torn down, 4 asked",
    ),
    (
        |stage, _| stage.run(Deed::Removes),
        "None 14 up, 14 torn down, 4 asked",
    ),
];

/// In the end it is removed, whatever it has come to; then nothing is left.
async fn end(stage: &Stage, cache: &Cache, what: &str) {
    stage.run(Deed::Removes);
    sleep(secs(20)).await;
    stage.look();
    // Without an engine nothing is known.
    let left = cache.states().unwrap_or_default();
    assert!(left.is_empty(), "{what}: {left:?}");
    cache.shutdown().await.unwrap();
    sleep(secs(2)).await;
    stage.check(cache, what);
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_eq!(tasks.num_alive_tasks(), 0, "{what}: tasks left");
}

fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let as_ever = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.to_string().contains("the trap says so") {
                as_ever(panic);
            }
        }));
    });
}

/// Runs on a runtime of its own, that looks at its main future after each poll of a task.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .event_interval(1)
        .build();
    runtime.unwrap().block_on(test);
}

// === A hook at each of its polls ===

fn points(hook: Hook) -> Vec<Point> {
    let (slots, polls) = match hook {
        Hook::Init | Hook::Teardown => (0..4, POLLS),
        Hook::Refresh => (0..4, 1),
        Hook::Check => (0..1, POLLS),
    };
    let of = |slot| (0..polls).map(move |poll| Point { slot, hook, poll });
    slots.flat_map(of).collect()
}

fn trapped(point: Point, act: Act) {
    let what = format!("{point:?} {act:?}");
    run(async {
        let (stage, cache) = Stage::start();
        stage.set_trap(point, act);
        // Long enough for probes, time limits and retries.
        for (change, _) in STORY {
            change(&stage, &cache);
            sleep(secs(12)).await;
        }
        end(&stage, &cache, &what).await;
        assert!(!stage.is_armed(), "{what}: it never came there");
        if act == Act::Panics {
            cache.expect_panic(NAMES[point.slot]);
        }
    });
}

fn each_point_of(hook: Hook, acts: &[Act]) {
    quiet();
    for point in points(hook) {
        for act in acts {
            trapped(point, *act);
        }
        for deed in DEEDS {
            trapped(point, Act::Does(deed));
        }
    }
}

#[test]
fn an_init_may_panic_fail_hang_or_be_overtaken_at_each_of_its_polls() {
    each_point_of(Hook::Init, &[Act::Panics, Act::Fails, Act::NeverCompletes]);
}

#[test]
fn a_teardown_may_panic_hang_or_be_overtaken_at_each_of_its_polls() {
    each_point_of(Hook::Teardown, &[Act::Panics, Act::NeverCompletes]);
}

#[test]
fn a_refresh_may_panic_refuse_or_be_overtaken() {
    each_point_of(Hook::Refresh, &[Act::Panics, Act::Fails]);
}

#[test]
fn a_health_check_may_panic_fail_hang_or_be_overtaken_at_each_of_its_polls() {
    each_point_of(Hook::Check, &[Act::Panics, Act::Fails, Act::NeverCompletes]);
}

// === Anybody else after each poll of the whole ===

/// Each change is over after so many polls of tasks, as the next test shows.
const PAUSE: usize = 64;

/// Lets so many polls be made; after `at` of them the deed is done, and a reader looks after each.
async fn polls(stage: &Stage, interferes: Option<(usize, Deed)>) {
    let mut polls = 0..PAUSE;
    poll_fn(|cx| {
        let Some(poll) = polls.next() else {
            return Poll::Ready(());
        };
        if let Some((at, deed)) = interferes {
            stage.look();
            if poll == at {
                stage.run(deed);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn each_change_is_over_before_the_next_if_nobody_interferes() {
    run(async {
        let (stage, cache) = Stage::start();
        for (change, comes) in STORY {
            change(&stage, &cache);
            polls(&stage, None).await;
            let phase = cache.state(&key("a")).map(|state| state.phase).ok();
            assert_eq!(format!("{phase:?} {}", stage.so_far()), comes);
        }
        end(&stage, &cache, "undisturbed").await;
    });
}

fn overtaken(deed: Deed) {
    for chapter in 0..STORY.len() {
        for at in 0..PAUSE {
            let what = format!("{deed:?} {at} polls after change {chapter}");
            run(async {
                let (stage, cache) = Stage::start();
                for (index, (change, _)) in STORY[..=chapter].iter().enumerate() {
                    change(&stage, &cache);
                    let interferes = (index == chapter).then_some((at, deed));
                    polls(&stage, interferes).await;
                }
                polls(&stage, Some((PAUSE, deed))).await;
                end(&stage, &cache, &what).await;
            });
        }
    }
}

#[test]
fn a_removal_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Removes);
}

#[test]
fn another_identity_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Replaces);
}

#[test]
fn another_endpoint_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Moves);
}

#[test]
fn a_new_credential_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::ChangesToken);
}

#[test]
fn a_gate_that_closes_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::ClosesGate);
}

#[test]
fn a_reconnect_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Reconnects);
}

#[test]
fn the_health_provider_that_fails_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order()
{
    overtaken(Deed::Fails(0));
}

#[test]
fn a_part_that_fails_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Fails(1));
}

#[test]
fn the_last_part_that_fails_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::Fails(3));
}

#[test]
fn a_shutdown_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::ShutsDown);
}

#[test]
fn an_engine_that_is_dropped_after_each_poll_of_the_whole_leaves_nothing_and_breaks_no_order() {
    overtaken(Deed::DropsEngine);
}
