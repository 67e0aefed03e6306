//! Model checks of the inbox: what users and tasks tell the engine at any time is taken by it, and wakes it. By shuttle only: for loom there are too
//! many schedules. `models/Cargo.toml` has the commands.

use super::*;
use crate::events::model::checker::{block_on, check, spawn};

#[test]
fn the_engine_is_woken_for_whatever_it_is_told_and_takes_it_once() {
    check(|| {
        let inbox = Arc::new(Inbox::default());
        let (a, generation) = (ClusterKey::named("a"), Generation(1));
        let tells = [(); 2].map(|()| {
            let (inbox, a) = (Arc::clone(&inbox), a.clone());
            move || inbox.signal(&a, generation, Signal::Doubt)
        });
        let [one, other] = tells.map(spawn);
        let asks = spawn({
            let (inbox, a) = (Arc::clone(&inbox), a.clone());
            move || inbox.command(Command::RetryNow(a))
        });
        let ends = spawn({
            let inbox = Arc::clone(&inbox);
            // Whoever has told everything says so last.
            move || {
                for told in [one, other, asks] {
                    told.join().unwrap();
                }
                inbox.command(Command::Shutdown);
            }
        });
        let (mut doubts, mut commands) = (0, Vec::new());
        while commands.last() != Some(&Command::Shutdown) {
            block_on(inbox.arrived());
            let letters = inbox.take();
            doubts += letters.signals.values().filter(|of| of.doubt).count();
            commands.extend(letters.commands);
        }
        assert_eq!(commands, [Command::RetryNow(a.clone()), Command::Shutdown]);
        assert!((1..=2).contains(&doubts), "{doubts}");
        ends.join().unwrap();
    });
}
