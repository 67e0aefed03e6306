use proptest::prelude::*;

use super::*;

fn key(name: impl ToString + Copy) -> ClusterKey {
    ClusterKey::named(&name.to_string())
}

fn queue(per_second: u32, silent: usize, handshakes: usize) -> Queue {
    Queue::new(&DialOptions {
        per_second,
        silent,
        handshakes,
    })
}

/// Lets one after the other dial, and says of which cluster each was.
fn served(queue: &mut Queue, mut now: Duration) -> Vec<String> {
    let mut served = Vec::new();
    while queue.waiting() > 0 {
        now += Duration::from_secs(1);
        for ticket in queue.turn(now).granted {
            served.push(queue.dials[&ticket].key.name().to_owned());
            queue.leave(ticket);
        }
    }
    served
}

#[test]
fn one_cluster_with_many_waiting_dials_starves_nobody() {
    let mut queue = queue(1_000, 1, 1);
    for _ in 0..5 {
        queue.ask(&key("many"), 0);
    }
    queue.ask(&key("one"), 0);
    assert_eq!(served(&mut queue, Duration::ZERO)[..2], ["many", "one"]);
}

#[test]
fn one_turn_in_four_goes_to_those_that_failed() {
    let mut queue = queue(1_000, 1, 1);
    for n in 0..9 {
        queue.ask(&key(&*format!("new{n}")), 0);
        queue.ask(&key(&*format!("failed{n}")), 1 + n);
    }
    let served = served(&mut queue, Duration::ZERO);
    let failed: Vec<_> = (0..18).filter(|n| served[*n].starts_with('f')).collect();
    assert_eq!(failed[..4], [3, 7, 11, 12], "then no new one is left");
}

#[test]
fn nobody_is_evicted_if_nobody_failed_and_one_for_each_that_is_new() {
    let mut queue = queue(1_000, 4, 1);
    let second = Duration::from_secs;
    let zeros: Vec<_> = (0..2).map(|n| queue.ask(&key(n), 0)).collect();
    queue.turn(second(1));
    let failed: Vec<_> = (2..4).map(|n| queue.ask(&key(n), 1)).collect();
    assert_eq!(queue.turn(second(2)).granted, failed);
    queue.ask(&key("again"), 1);
    assert_eq!(queue.turn(second(3)).evicted, []);
    queue.ask(&key("new"), 0);
    assert_eq!(queue.turn(second(3)).evicted, failed[..1]);
    assert_eq!(queue.turn(second(4)).evicted, [], "one is on its way out");
    queue.ask(&key("new too"), 0);
    queue.ask(&key("and new"), 0);
    assert_eq!(queue.turn(second(4)).evicted, failed[1..]);
    assert_eq!(queue.turn(second(5)).evicted, []);
    assert!(
        zeros
            .iter()
            .all(|ticket| queue.dials[ticket].place == Place::Silent)
    );
}

#[test]
fn the_pace_is_even_after_a_tenth_of_a_second_at_once() {
    let mut queue = queue(100, 1_000, 1);
    for n in 0..100 {
        queue.ask(&key(n), 0);
    }
    let turn = queue.turn(Duration::ZERO);
    assert_eq!(turn.granted.len(), 10);
    assert_eq!(turn.again, Some(Duration::from_millis(10)));
    assert_eq!(queue.turn(Duration::from_millis(9)).granted.len(), 0);
    assert_eq!(queue.turn(Duration::from_millis(10)).granted.len(), 1);
    assert_eq!(
        queue.turn(Duration::from_millis(50)).granted.len(),
        4,
        "a timer that is late loses nothing"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, u32),
    Received(prop::sample::Index),
    Leave(prop::sample::Index),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..5, prop_oneof![Just(0), 1_u32..4]).prop_map(|(key, failures)| Step::Ask(key, failures)),
        2 => any::<prop::sample::Index>().prop_map(Step::Received),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (0_u64..500).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn bounds_hold_places_are_used_turns_are_shared_and_nothing_leaks(
        steps in prop::collection::vec(step(), 1..200),
        per_second in 1_u32..50,
        silent in 1_usize..5,
        handshakes in 1_usize..4,
    ) {
        let mut queue = queue(per_second, silent, handshakes);
        let (mut now, mut all) = (Duration::ZERO, Vec::<Ticket>::new());
        let (mut granted, mut passed_over) = (0_u128, 0);
        let (mut order, mut newest) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Ask(name, failures) => all.push(queue.ask(&key(name), failures)),
                Step::Received(_) | Step::Leave(_) if all.is_empty() => {}
                Step::Received(index) => queue.received(*index.get(&all)),
                Step::Leave(index) => {
                    let ticket = all.swap_remove(index.index(all.len()));
                    queue.leave(ticket);
                    queue.leave(ticket);
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
            }
            let waited = places(&queue, &[Place::Waiting]);
            let failed_waits = waited.iter().any(|ticket| queue.dials[ticket].failures > 0);
            let turn = queue.turn(now);

            for ticket in &turn.granted {
                order.insert(*ticket, order.len());
                newest.insert(queue.dials[ticket].key.clone(), queue.dials[ticket].failures);
                prop_assert!(waited.contains(ticket));
                let failed = queue.dials[ticket].failures > 0;
                passed_over = if failed || !failed_waits { 0 } else { passed_over + 1 };
                prop_assert!(passed_over < 4 || !failed_waits);
            }
            granted += turn.granted.len() as u128;
            let pace = now.as_nanos() * u128::from(per_second) / 1_000_000_000;
            prop_assert!(granted <= pace + u128::from((per_second / 10).max(1)) + 1);

            let silents = places(&queue, &[Place::Silent, Place::Evicted]);
            prop_assert_eq!(silents.len(), queue.silent());
            prop_assert!(queue.silent() <= silent);
            prop_assert_eq!(places(&queue, &[Place::Handshake]).len(), queue.handshakes());
            prop_assert!(queue.handshakes() <= handshakes);
            prop_assert_eq!(places(&queue, &[Place::Waiting]).len(), queue.waiting());
            prop_assert_eq!(places(&queue, &[Place::Evicted]).len(), queue.evicted);

            // Who waits does so because there is no place, or it is not time yet, and then it is said when.
            if queue.waiting() > 0 && queue.silent() < silent {
                prop_assert!(turn.again.is_some_and(|at| at > now));
            }
            if !places(&queue, &[Place::Received]).is_empty() {
                prop_assert_eq!(queue.handshakes(), handshakes);
            }
            for (n, victim) in turn.evicted.iter().enumerate() {
                let mut silents = places(&queue, &[Place::Silent]);
                silents.extend(&turn.evicted[n..]);
                let failures = |ticket: &Ticket| newest[&queue.dials[ticket].key];
                let most = silents.iter().map(failures).max().unwrap();
                prop_assert!(most > 0 && failures(victim) == most);
                let same = |ticket: &&Ticket| queue.dials[*ticket].key == queue.dials[victim].key;
                let oldest = silents.iter().filter(same).min_by_key(|ticket| order[*ticket]);
                prop_assert_eq!(oldest, Some(victim));
            }
            prop_assert!(turn.evicted.is_empty() || queue.evicted <= queue.waiting.fresh.len());
        }
        // All that waits is served in the end.
        while queue.waiting() > 0 {
            now += Duration::from_secs(1);
            let turn = queue.turn(now);
            if turn.granted.is_empty() {
                let stuck = places(&queue, &[Place::Silent, Place::Evicted]);
                prop_assert!(!stuck.is_empty());
                queue.leave(stuck[0]);
            }
        }
        for ticket in all {
            queue.leave(ticket);
        }
        prop_assert!(queue.dials.is_empty());
        prop_assert_eq!((queue.waiting(), queue.silent(), queue.evicted, queue.handshakes()), (0, 0, 0, 0));
        for ring in [&queue.waiting.fresh, &queue.waiting.failed, &queue.shaking.fresh, &queue.shaking.failed] {
            prop_assert!(ring.clusters.is_empty() && ring.order.is_empty() && ring.is_empty());
        }
        prop_assert!(queue.victims.clusters.is_empty() && queue.victims.rank.is_empty());
    }
}

fn places(queue: &Queue, places: &[Place]) -> Vec<Ticket> {
    let dials = queue.dials.iter();
    let mut tickets: Vec<_> = dials
        .filter(|(_, dial)| places.contains(&dial.place))
        .map(|(ticket, _)| *ticket)
        .collect();
    tickets.sort_unstable();
    tickets
}
