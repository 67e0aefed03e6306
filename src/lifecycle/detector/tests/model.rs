//! Arbitrary inputs at arbitrary times, against a model that only keeps what was said: every round that was ordered, with its results.

use proptest::{prelude::*, sample::Index};

use super::*;

#[derive(Clone, Debug)]
enum Input {
    Timer,
    /// Of one that is under way.
    Result(Index, u8),
    /// Of one that is not.
    Stray(u64, u8),
    Bytes,
    Answer,
    Doubt,
    NewAccess,
    Stall(Duration),
    Held,
}

fn any_input() -> impl Strategy<Value = Input> {
    let kind = || prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => Just(2), 1 => Just(3)];
    prop_oneof![
        8 => Just(Input::Timer),
        12 => (any::<Index>(), kind()).prop_map(|(of, kind)| Input::Result(of, kind)),
        1 => (0..60_u64, kind()).prop_map(|(number, kind)| Input::Stray(number, kind)),
        1 => Just(Input::Bytes),
        1 => Just(Input::Answer),
        1 => Just(Input::Doubt),
        1 => Just(Input::NewAccess),
        1 => (0..100_000_u64).prop_map(|time| Input::Stall(Duration::from_millis(time))),
        1 => Just(Input::Held),
    ]
}

fn result(kind: u8) -> ProbeResult {
    match kind {
        0 => fails(0.0, FailureKind::TimedOut).1,
        1 => fails(0.0, FailureKind::Unauthorized).1,
        2 => fails(0.0, FailureKind::Busy).1,
        _ => alive().1,
    }
}

/// One probe of a round: its number, its route, what came.
type Sent = (u64, Route, Option<u8>);

#[derive(Default)]
struct Model {
    rounds: Vec<Vec<Sent>>,
    verdict: Verdict,
    since: Option<Instant>,
    by_answer: bool,
    /// Failed rounds, each at its time, moved on by stalls.
    failed: Vec<Instant>,
    replace: usize,
}

impl Model {
    fn healthy(&mut self) {
        *self = Self {
            verdict: Verdict::Healthy,
            replace: self.replace,
            ..Self::default()
        };
    }

    fn signs(&mut self, signs: Signs, withheld: bool) {
        let sign = if self.by_answer {
            signs.answer
        } else {
            signs.any
        };
        let fresh = self
            .since
            .is_some_and(|since| sign.is_some_and(|at| at > since));
        if fresh && (self.verdict == Verdict::Suspect || withheld) {
            self.healthy();
        }
    }

    fn result(&mut self, now: Instant, number: u64, kind: u8) {
        let of = |round: &Vec<Sent>| {
            round
                .iter()
                .any(|sent| sent.0 == number && sent.2.is_none())
        };
        let Some(at) = self.rounds.iter().position(of) else {
            return;
        };
        for sent in &mut self.rounds[at] {
            if sent.0 == number {
                sent.2 = Some(kind);
            }
        }
        let round = self.rounds[at].clone();
        let got = |route, kinds: &[u8]| {
            round
                .iter()
                .any(|sent| sent.1 == route && sent.2.is_some_and(|kind| kinds.contains(&kind)))
        };
        if got(Route::Fresh, &[3]) {
            self.healthy();
            self.replace += usize::from(got(Route::Pooled, &[0, 1]));
            if round.iter().any(|sent| sent.2.is_none()) {
                self.rounds.push(round);
            }
            return;
        }
        if kind == 3 {
            return self.healthy();
        }
        if kind != 2 {
            self.since.get_or_insert(now);
            self.by_answer |= kind == 1;
            if self.verdict == Verdict::Healthy {
                self.verdict = Verdict::Suspect;
            }
        }
    }

    /// Rounds that are all in, once it is known what else was ordered for them.
    fn settle(&mut self, now: Instant, options: &HealthOptions) {
        let failed = |sent: &Sent| matches!(sent.2, Some(0 | 1));
        let (done, open) = std::mem::take(&mut self.rounds)
            .into_iter()
            .partition::<Vec<_>, _>(|round| round.iter().all(|sent| sent.2.is_some()));
        self.rounds = open;
        for _ in done.iter().filter(|round| round.iter().any(failed)) {
            self.failed.push(now);
        }
        let enough =
            self.failed.len() >= options.down_failures as usize && self.failed.last() == Some(&now);
        if enough && now - self.failed[0] >= options.down_after && self.verdict == Verdict::Suspect
        {
            self.verdict = Verdict::Down;
            self.rounds.clear();
        }
    }

    /// What was ordered at once is a round; a fresh one alone belongs to the round that was just answered 401.
    fn ordered(&mut self, number: u64, orders: &[Order]) {
        let mut round = Vec::new();
        for order in orders {
            let Order::Probe { number: new, route } = *order else {
                continue;
            };
            let alone = route == Route::Fresh && round.is_empty();
            let own = self
                .rounds
                .iter_mut()
                .find(|r| r.iter().any(|sent| sent.0 == number));
            match own.filter(|_| alone) {
                Some(own) => own.push((new, route, None)),
                None => round.push((new, route, None)),
            }
        }
        if !round.is_empty() {
            self.rounds.push(round);
        }
    }
}

proptest! {
    #[test]
    fn whatever_comes_the_verdict_is_what_the_plain_model_says(
        inputs in proptest::collection::vec((0..4_000_u64, any_input()), 0..120),
    ) {
        let mut sim = Sim::new(|_, _| alive());
        // What never comes back has an example of its own.
        sim.options.probe_timeout = Duration::from_secs(1_000_000);
        let mut model = Model::default();
        model.healthy();
        let (mut withheld, mut bursts, mut probes) = (false, 1, 0);
        for (wait, input) in inputs {
            sim.now += Duration::from_millis(wait);
            let now = sim.now;
            let (before, verdict) = (sim.orders.len(), model.verdict);
            let mut number = u64::MAX;
            match input {
                Input::Timer => {
                    model.signs(sim.signs, withheld);
                    sim.timer();
                }
                Input::Result(of, kind) => {
                    let waiting = model.rounds.iter().flatten().filter(|sent| sent.2.is_none());
                    let waiting: Vec<_> = waiting.map(|sent| sent.0).collect();
                    if !waiting.is_empty() {
                        number = *of.get(&waiting);
                        if kind == 3 {
                            sim.sign(true);
                        } else {
                            model.signs(sim.signs, withheld);
                        }
                        model.result(now, number, kind);
                        sim.result(number, result(kind));
                    }
                }
                Input::Stray(stray, kind) => {
                    if !model.rounds.iter().flatten().any(|sent| sent.0 == stray && sent.2.is_none()) && kind != 3 {
                        model.signs(sim.signs, withheld);
                        sim.result(stray, result(kind));
                    }
                }
                Input::Bytes => sim.sign(false),
                Input::Answer => sim.sign(true),
                Input::Doubt => sim.detector.doubt(now),
                Input::NewAccess => {
                    sim.detector.new_access(now);
                    bursts += 1;
                    let (by_answer, healthy) = (model.by_answer, model.verdict == Verdict::Healthy);
                    model.healthy();
                    if !healthy {
                        model.verdict = Verdict::Suspect;
                        model.since = Some(now);
                        model.by_answer = by_answer;
                    }
                }
                Input::Stall(time) => {
                    sim.detector.stalled(now, time);
                    bursts += 1;
                    model.rounds.clear();
                    if let Some(first) = model.failed.first_mut() {
                        *first = (*first + time).min(now);
                    }
                }
                Input::Held => {
                    sim.detector.held(now, &sim.options);
                    withheld |= model.verdict == Verdict::Down;
                }
            }
            let orders: Vec<_> = sim.orders[before..].iter().map(|(_, order)| *order).collect();
            model.ordered(number, &orders);
            model.settle(now, &sim.options);
            withheld &= model.verdict == Verdict::Down;
            probes += orders.iter().filter(|order| matches!(order, Order::Probe { .. })).count();

            prop_assert_eq!(sim.detector.verdict(), model.verdict);
            prop_assert_eq!(sim.detector.failures() as usize, model.failed.len());
            prop_assert_eq!(sim.replaced(), model.replace);
            prop_assert!(sim.detector.rounds.len() <= schedule::MOST_ROUNDS);
            let seconds = usize::try_from((now - sim.start).as_secs()).unwrap();
            prop_assert!(probes <= 3 * (seconds + 1 + bursts), "{} in {} s", probes, seconds);
            if model.verdict == Verdict::Down && verdict != Verdict::Down {
                let last = model.failed[model.failed.len() - 1];
                prop_assert!(model.failed.len() >= 3 && last - model.failed[0] >= secs(6.0));
            }
        }
    }
}
