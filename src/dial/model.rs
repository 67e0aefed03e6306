//! Model checks of the dial pool: no place and no wake-up is lost, whoever gives up at whatever moment, and a new cluster gets the place of one
//! that fails. By shuttle only: for loom there are too many schedules. `models/Cargo.toml` has the commands.

use std::{future::poll_fn, task::Poll};

use super::*;
use crate::events::model::checker::{block_on, check, spawn};

/// One place of each kind, and no pace: time is none of the checker's.
fn pool() -> Arc<DialPool> {
    Arc::new(DialPool::new(&DialOptions {
        per_second: u32::MAX,
        silent: 1,
        handshakes: 1,
    }))
}

fn is_empty(pool: &DialPool) {
    assert_eq!(pool.counts(), Dials::default());
    assert!(pool.0.lock().wakes.is_empty());
}

#[test]
fn every_dial_gets_its_place_whoever_gives_up_while_it_waits_or_holds_one() {
    check(|| {
        let pool = pool();
        let dials = ["a", "b"].map(|name| {
            let pool = Arc::clone(&pool);
            spawn(move || {
                block_on(async {
                    let mut permit = pool.permit(&ClusterKey::named(name), 0).await;
                    assert_eq!(pool.counts().silent, 1);
                    permit.received().await;
                    assert_eq!(pool.counts().handshakes, 1);
                });
            })
        });
        let c = ClusterKey::named("c");
        let mut gives_up = Box::pin(async {
            let mut permit = pool.permit(&c, 0).await;
            permit.received().await;
        });
        block_on(poll_fn(|cx| {
            Poll::Ready(gives_up.as_mut().poll(cx).is_ready())
        }));
        drop(gives_up);
        for dial in dials {
            dial.join().unwrap();
        }
        is_empty(&pool);
    });
}

#[test]
fn a_new_cluster_gets_the_place_of_one_that_is_silent_and_failed_before() {
    check(|| {
        let pool = pool();
        let failed = spawn({
            let pool = Arc::clone(&pool);
            move || {
                block_on(async {
                    let permit = pool.permit(&ClusterKey::named("failed"), 1).await;
                    permit.evicted().await;
                });
            }
        });
        // Until the other has the place; one that came first is not evicted, and would be waited for.
        while pool.counts().silent == 0 {
            shuttle::thread::yield_now();
        }
        let permit = block_on(pool.permit(&ClusterKey::named("new"), 0));
        failed.join().unwrap();
        drop(permit);
        is_empty(&pool);
    });
}

#[test]
fn whoever_waits_for_a_place_is_let_on_by_a_permit_that_is_dropped_elsewhere() {
    check(|| {
        let pool = pool();
        let permit = block_on(pool.permit(&ClusterKey::named("a"), 0));
        let waits = spawn({
            let pool = Arc::clone(&pool);
            move || {
                let b = ClusterKey::named("b");
                drop(block_on(pool.permit(&b, 0)));
            }
        });
        drop(permit);
        waits.join().unwrap();
        is_empty(&pool);
    });
}
