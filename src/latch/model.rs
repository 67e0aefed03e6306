//! Model checks of latches, on which every wait of the core's ends (rule 11: they are no locks): no wake-up is lost, whoever else waits,
//! gives up, or sets another moment. A wake-up that is lost is a deadlock there, which the checker reports. `models/Cargo.toml` has the
//! commands.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use super::*;
use crate::events::model::checker::{block_on, check, spawn};

/// Polls it once, and drops it.
fn gives_up(wait: impl Future<Output = ()>) {
    let mut wait = pin!(wait);
    block_on(poll_fn(|cx| {
        let _ = wait.as_mut().poll(cx);
        Poll::Ready(())
    }));
}

#[test]
fn whoever_waits_for_a_latch_is_woken_whoever_else_gives_up() {
    check(|| {
        let latch = Arc::new(Latch::default());
        let waits = [(); 2].map(|()| {
            let latch = Arc::clone(&latch);
            spawn(move || {
                block_on(latch.wait());
                assert!(latch.is_set());
            })
        });
        gives_up(latch.wait());
        latch.set();
        for waits in waits {
            waits.join().unwrap();
        }
    });
}

#[test]
fn whoever_waits_for_a_moment_is_woken_by_it_whatever_other_comes_first() {
    check(|| {
        let moments = Arc::new(Moments::default());
        let waits = [Moment::Stop, Moment::Retired].map(|moment| {
            let moments = Arc::clone(&moments);
            spawn(move || {
                block_on(moments.wait(moment));
                assert!(moments.is_set(moment));
            })
        });
        let other = spawn({
            let moments = Arc::clone(&moments);
            move || moments.set(Moment::Retired)
        });
        moments.set(Moment::Done);
        moments.set(Moment::Stop);
        other.join().unwrap();
        for waits in waits {
            waits.join().unwrap();
        }
    });
}
