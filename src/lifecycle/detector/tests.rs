//! The rules of "Health" by examples, in simulated time.

use super::*;

mod model;
mod random;
mod sim;

use sim::{RTT, Sim, alive, fails, secs, silence, unauthorized};

#[test]
fn without_a_sign_for_five_seconds_one_pooled_probe_is_sent() {
    let mut sim = Sim::new(|_, _| alive());
    sim.run_until(2.0);
    sim.sign(true);
    sim.run_until(14.0);
    assert_eq!(sim.probes(), "7P 12.01P");
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
}

#[test]
fn a_probe_may_go_a_moment_early_with_others_and_no_sooner() {
    let mut sim = Sim::new(|_, _| alive());
    sim.timer();
    let window = (sim.detector.soonest(), sim.detector.deadline());
    assert_eq!(window, (sim.start + secs(4.9), sim.start + secs(5.0)));
    sim.now = sim.start + secs(4.89);
    sim.timer();
    sim.now = sim.start + secs(4.9);
    sim.timer();
    assert_eq!(sim.probes(), "4.9P");
    // Nor does that make it more than one a second.
    sim.run_until(5.0);
    sim.detector.doubt(sim.now);
    sim.timer();
    assert_eq!(sim.detector.soonest(), sim.start + secs(5.9));
}

#[test]
fn bytes_prove_reach_and_once_a_minute_a_request_proves_the_credential() {
    let mut sim = Sim::new(|_, _| alive());
    for second in 1..130 {
        sim.run_until(f64::from(second));
        sim.sign(false);
    }
    assert_eq!(sim.probes(), "60P 120.01P");
}

#[test]
fn a_black_hole_is_down_after_five_and_three_and_six_seconds() {
    let mut sim = Sim::new(|_, _| silence());
    sim.run_until(7.99);
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
    sim.run_until(8.0);
    assert_eq!(sim.detector.verdict(), Verdict::Suspect);
    sim.run_until(60.0);
    assert_eq!(sim.down_at, Some(secs(14.0)));
    let expected = "5P 8P 8F 9P 9F 10P 10F 11P 11F 12P 12F 13P 13F 14P 14F";
    assert_eq!(sim.probes(), expected);
    assert!(sim.detector.failures() >= 3);
}

#[test]
fn a_probe_that_never_comes_back_is_a_failure_too() {
    let mut sim = Sim::new(|_, _| (Duration::from_secs(3_600), alive().1));
    sim.run_until(60.0);
    assert_eq!(sim.down_at, Some(secs(18.0)), "the third is lost");
}

#[test]
fn one_failed_probe_between_good_ones_is_suspect_for_a_moment() {
    let one = |at, _| if at == secs(5.0) { silence() } else { alive() };
    let mut sim = Sim::new(one);
    sim.run_until(60.0);
    assert_eq!((sim.down_at, sim.replaced()), (None, 0));
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
    assert!(sim.probes().starts_with("5P 8P 8F 13.01P"));
}

#[test]
fn a_fresh_connection_that_answers_replaces_the_pooled_one_once_and_nothing_is_down() {
    for slow in [0.005, 3.0] {
        let mut sim = Sim::new(move |at, route| match route {
            Route::Pooled if at < secs(9.0) => fails(slow, FailureKind::TimedOut),
            _ => alive(),
        });
        sim.run_until(12.0);
        assert_eq!((sim.down_at, sim.replaced()), (None, 1), "{slow}");
        assert_eq!(
            (sim.detector.verdict(), sim.detector.failures()),
            (Verdict::Healthy, 0)
        );
        sim.run_until(60.0);
        assert_eq!((sim.down_at, sim.replaced()), (None, 1));
    }
}

#[test]
fn a_probe_that_got_no_stream_says_nothing_and_is_sent_again() {
    let mut sim = Sim::new(|_, _| fails(0.01, FailureKind::Busy));
    sim.run_until(8.5);
    assert_eq!(sim.probes(), "5P 6P 7P 8P");
    assert_eq!(
        (sim.detector.verdict(), sim.detector.failures()),
        (Verdict::Healthy, 0)
    );
}

#[test]
fn bytes_newer_than_the_first_failure_end_a_suspicion() {
    let mut sim = Sim::new(|_, _| silence());
    sim.run_until(13.9);
    sim.sign(false);
    sim.run_until(14.5);
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
    sim.run_until(60.0);
    assert_eq!(sim.down_at, Some(secs(13.9 + 14.0)));
}

#[test]
fn a_401_rereads_shakes_hands_afresh_and_is_tried_by_its_schedule() {
    let mut sim = Sim::new(|_, _| unauthorized());
    sim.brake = true;
    for tenth in 0..1_000 {
        sim.run_until(f64::from(tenth) / 10.0);
        sim.sign(false);
    }
    // Bytes come all the time, so that only the minute's proof of the credential finds out.
    let expected = "60P 60.01F 61.01P 63.01P 67.01P 75.01P 90.01P";
    assert_eq!(sim.probes(), expected);
    assert_eq!(sim.reread(), 1);
    assert_eq!(sim.down_at.map(|at| at.as_secs()), Some(67));
    sim.sign(true);
    sim.timer();
    assert_eq!(
        sim.detector.verdict(),
        Verdict::Healthy,
        "an answer ends it"
    );
}

#[test]
fn an_answer_between_the_tries_of_a_401_is_seen_within_a_second() {
    let mut sim = Sim::new(|_, _| unauthorized());
    sim.run_until(6.5);
    sim.sign(true);
    sim.run_until(7.5);
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
}

#[test]
fn a_token_mended_after_the_first_401_recovers_at_the_first_try() {
    let mended = |at, _| {
        if at < secs(5.2) {
            unauthorized()
        } else {
            alive()
        }
    };
    let mut sim = Sim::new(mended);
    sim.run_until(6.5);
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
    assert_eq!(sim.probes(), "5P 5.01F 6.01P");

    let mut sim = Sim::new(mended);
    sim.run_until(5.3);
    sim.detector.new_access(sim.now);
    assert_eq!(sim.detector.failures(), 0);
    sim.run_until(5.4);
    assert_eq!(
        sim.detector.verdict(),
        Verdict::Healthy,
        "at once on new access"
    );
}

#[test]
fn what_is_down_and_held_is_probed_more_slowly_and_heals() {
    let mut sim = Sim::new(|at, _| if at < secs(40.0) { silence() } else { alive() });
    sim.brake = true;
    sim.run_until(40.0);
    assert_eq!(sim.detector.verdict(), Verdict::Down);
    let expected = " 14F 19P 19F 24P 24F 29P 29F 34P 34F 39P 39F";
    assert!(sim.probes().ends_with(expected), "{}", sim.probes());
    sim.run_until(45.0);
    assert_eq!(
        (sim.detector.verdict(), sim.detector.failures()),
        (Verdict::Healthy, 0)
    );
}

#[test]
fn a_stall_of_the_process_is_nobodys_failure() {
    let mut sim = Sim::new(|_, _| silence());
    sim.run_until(8.5);
    let gone = secs(60.0);
    sim.now += gone;
    sim.flight.clear();
    sim.detector.stalled(sim.now, gone);
    sim.run_until(74.49);
    assert_eq!(sim.down_at, None);
    sim.run_until(90.0);
    assert_eq!(sim.down_at, Some(secs(74.5)), "six seconds of ours");
}

#[test]
fn a_doubt_is_probed_at_once_and_no_more_than_once_a_second() {
    let mut sim = Sim::new(|_, _| alive());
    for tenth in 0..25 {
        sim.run_until(1.0 + f64::from(tenth) / 10.0);
        sim.detector.doubt(sim.now);
    }
    assert_eq!(sim.probes(), "1P 2P 3P");
}

#[test]
fn not_ready_is_alive_and_shown_until_it_is_ready() {
    let mut sim = Sim::new(|at, _| {
        let not_ready = (at < secs(7.0)).then(|| "etcd".into());
        (RTT, ProbeResult::Alive { not_ready })
    });
    sim.run_until(6.0);
    assert_eq!(sim.detector.not_ready().map(|text| &**text), Some("etcd"));
    assert_eq!(sim.detector.verdict(), Verdict::Healthy);
    sim.run_until(12.0);
    assert_eq!(sim.detector.not_ready(), None);
}
