//! A detector, a cluster and a network that are simulated in time.

use super::*;

type Server = Box<dyn FnMut(Duration, Route) -> (Duration, ProbeResult)>;

pub(super) struct Sim {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) detector: Detector,
    pub(super) options: HealthOptions,
    pub(super) signs: Signs,
    /// What a probe sent at a time comes to, and after how long.
    pub(super) server: Server,
    pub(super) flight: Vec<(Instant, u64, ProbeResult)>,
    pub(super) orders: Vec<(Duration, Order)>,
    /// Whether the brake holds what is down.
    pub(super) brake: bool,
    pub(super) down_at: Option<Duration>,
}

pub(super) const RTT: Duration = Duration::from_millis(10);

pub(super) fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub(super) fn alive() -> (Duration, ProbeResult) {
    (RTT, ProbeResult::Alive { not_ready: None })
}

pub(super) fn fails(after: f64, kind: FailureKind) -> (Duration, ProbeResult) {
    let text = "".into();
    (secs(after), ProbeResult::Failed { kind, text })
}

/// As the shell reports it.
pub(super) fn silence() -> (Duration, ProbeResult) {
    fails(3.0, FailureKind::TimedOut)
}

pub(super) fn unauthorized() -> (Duration, ProbeResult) {
    fails(0.01, FailureKind::Unauthorized)
}

impl Sim {
    pub(super) fn new(
        server: impl FnMut(Duration, Route) -> (Duration, ProbeResult) + 'static,
    ) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            detector: Detector::new(start),
            options: HealthOptions::default(),
            signs: Signs::default(),
            server: Box::new(server),
            flight: Vec::new(),
            orders: Vec::new(),
            brake: false,
            down_at: None,
        }
    }

    pub(super) fn run_until(&mut self, end: f64) {
        let end = self.start + secs(end);
        loop {
            self.flight.sort_by_key(|(due, ..)| *due);
            let due = self.flight.first().map(|(due, ..)| *due);
            let deadline = self.detector.deadline().max(self.now);
            let next = due.map_or(deadline, |due| due.min(deadline));
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if due == Some(next) {
                let (_, number, result) = self.flight.remove(0);
                self.result(number, result);
            } else {
                self.timer();
            }
        }
    }

    pub(super) fn result(&mut self, number: u64, result: ProbeResult) {
        if matches!(result, ProbeResult::Alive { .. }) {
            self.sign(true);
        }
        let mut out = Vec::new();
        let (detector, signs) = (&mut self.detector, self.signs);
        detector.probed(self.now, number, result, signs, &self.options, &mut out);
        self.obey(out);
    }

    pub(super) fn timer(&mut self) {
        let mut out = Vec::new();
        self.detector
            .timer(self.now, self.signs, &self.options, &mut out);
        assert!(self.detector.deadline() > self.now, "a timer that spins");
        self.obey(out);
    }

    pub(super) fn sign(&mut self, answer: bool) {
        self.signs.any = Some(self.now);
        if answer {
            self.signs.answer = Some(self.now);
        }
    }

    pub(super) fn obey(&mut self, orders: Vec<Order>) {
        let at = self.now - self.start;
        for order in orders {
            self.orders.push((at, order));
            if let Order::Probe { number, route } = order {
                let (delay, result) = (self.server)(at, route);
                self.flight.push((self.now + delay, number, result));
            }
        }
        if self.detector.verdict() == Verdict::Down {
            self.down_at.get_or_insert(at);
            if self.brake {
                self.detector.held(self.now, &self.options);
            }
        }
    }

    pub(super) fn count(&self, of: impl Fn(&Order) -> bool) -> usize {
        self.orders.iter().filter(|(_, order)| of(order)).count()
    }

    pub(super) fn replaced(&self) -> usize {
        self.count(|order| *order == Order::ReplacePooled)
    }

    pub(super) fn reread(&self) -> usize {
        self.count(|order| *order == Order::Reread)
    }

    /// Of the probes: when, in hundredths of a second, and P or F.
    pub(super) fn probes(&self) -> String {
        let probes = self.orders.iter().filter_map(|(at, order)| match order {
            Order::Probe { route, .. } => Some(format!(
                "{}{}",
                (at.as_secs_f64() * 100.0).round() / 100.0,
                if *route == Route::Pooled { "P" } else { "F" }
            )),
            _ => None,
        });
        probes.collect::<Vec<_>>().join(" ")
    }
}
