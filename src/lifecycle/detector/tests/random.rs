//! Clusters that behave at random for a while, in simulated time: what must hold then, whatever came before.

use proptest::prelude::*;

use super::*;

/// How probes end in each second of a random past: by route.
fn any_past() -> impl Strategy<Value = Vec<[u8; 2]>> {
    proptest::collection::vec(proptest::array::uniform2(0..6_u8), 0..40)
}

fn outcome(of: u8) -> (Duration, ProbeResult) {
    match of {
        0 => silence(),
        1 => fails(0.02, FailureKind::Refused),
        2 => unauthorized(),
        3 => fails(0.001, FailureKind::Busy),
        4 => (secs(2.9), alive().1),
        _ => alive(),
    }
}

fn past_then(
    past: Vec<[u8; 2]>,
    mut then: impl FnMut(Route) -> (Duration, ProbeResult) + 'static,
) -> (Sim, u32) {
    let end = u32::try_from(past.len()).unwrap();
    let sim = Sim::new(move |at, route| {
        let second = usize::try_from(at.as_secs()).unwrap();
        match past.get(second) {
            Some(outcomes) => outcome(outcomes[usize::from(route == Route::Fresh)]),
            None => then(route),
        }
    });
    (sim, end)
}

proptest! {
    #[test]
    fn a_black_hole_is_down_in_fifteen_seconds_whatever_was_before(
        past in any_past(),
        signs in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let (mut sim, end) = past_then(past, |_| silence());
        for second in 0..end {
            sim.run_until(f64::from(second));
            if signs[second as usize] {
                sim.sign(true);
            }
        }
        sim.run_until(f64::from(end));
        // What was sent before the hole has no answer either.
        for (due, _, result) in &mut sim.flight {
            *due += Duration::from_secs(3);
            *result = silence().1;
        }
        sim.run_until(f64::from(end) + 15.0);
        let down = sim.down_at;
        prop_assert!(down.is_some(), "{}", sim.probes());
    }

    #[test]
    fn one_failed_probe_between_good_ones_is_never_down(
        at in 0.0..60.0_f64,
        kind in prop_oneof![Just(0_u8), Just(1), Just(2), Just(3)],
        rtt in 0.0..2.0_f64,
    ) {
        let mut failed = false;
        let mut sim = Sim::new(move |now, _| {
            if now >= secs(at) && !failed {
                failed = true;
                return outcome(kind);
            }
            (secs(rtt), alive().1)
        });
        sim.run_until(100.0);
        prop_assert_eq!((sim.down_at, sim.detector.verdict()), (None, Verdict::Healthy));
        prop_assert!(sim.replaced() <= 1);
        prop_assert!(sim.detector.failures() == 0);
    }

    #[test]
    fn at_most_twelve_requests_in_a_minute_of_401(
        start in 0.0..30.0_f64,
        rtt in 0.0..1.0_f64,
        brake in any::<bool>(),
        new_access in proptest::option::of(0.0..60.0_f64),
    ) {
        let mut sim = Sim::new(move |now, _| {
            if now < secs(start) { alive() } else { fails(rtt, FailureKind::Unauthorized) }
        });
        sim.brake = brake;
        if let Some(at) = new_access {
            sim.run_until(start + at);
            sim.detector.new_access(sim.now);
        }
        sim.run_until(start + 180.0);
        let probes = |order: &Order| matches!(order, Order::Probe { .. });
        let times: Vec<_> = sim.orders.iter().filter(|(at, order)| *at >= secs(start) && probes(order)).collect();
        for (first, _) in &times {
            let minute = times.iter().filter(|(at, _)| at >= first && *at < *first + secs(60.0));
            prop_assert!(minute.count() <= 12, "{}", sim.probes());
        }
        prop_assert!(sim.reread() >= 1 && sim.reread() <= 2);
        prop_assert!(sim.down_at.is_some());
    }

    #[test]
    fn what_answers_again_is_healthy_in_a_moment(past in any_past(), brake in any::<bool>()) {
        let (mut sim, end) = past_then(past, |_| alive());
        sim.brake = brake;
        sim.run_until(f64::from(end) + 16.0);
        let expected = if sim.down_at.is_some() && !brake { Verdict::Down } else { Verdict::Healthy };
        prop_assert_eq!(sim.detector.verdict(), expected);
    }

    #[test]
    fn a_process_that_stops_now_and_then_makes_nobody_down(
        stops in proptest::collection::vec((0.0..3.0_f64, 1.0..600.0_f64, any::<bool>()), 1..20),
        lost in any::<bool>(),
    ) {
        let mut sim = Sim::new(move |_, _| silence());
        let (mut end, mut own) = (0.0, 0.0);
        for (runs, stops, answers) in stops {
            // Down takes six seconds of our own time, however long the others were.
            own += runs;
            if own >= 5.9 {
                break;
            }
            sim.run_until(end + runs);
            end = (sim.now - sim.start).as_secs_f64() + stops;
            sim.now += secs(stops);
            if lost {
                sim.flight.clear();
            }
            sim.detector.stalled(sim.now, secs(stops));
            let number = sim.detector.rounds.first().map_or(0, |round| round.number);
            sim.result(number, fails(0.0, FailureKind::TimedOut).1);
            if answers {
                sim.sign(true);
                own = 0.0;
            }
            sim.timer();
            prop_assert_eq!(sim.down_at, None);
        }
    }
}
