//! One cluster with a plain model of the shell that does what it asks for, checks what must hold after every input, and answers as the
//! test says. Here is the model; the rules by name are in [`rules`], arbitrary histories in [`histories`].

use std::{collections::BTreeMap, sync::LazyLock};

use super::*;
use crate::{
    ClusterKey, Identity, Upsert, Verdict,
    lifecycle::{
        detector::ProbeResult,
        resources::{Failure, Outcome, Step},
        shell::{Mail, Planned, Shell, assert_ahead, plan},
    },
    resource::Then,
    vitals::Vitals,
};

mod histories;
mod rules;

/// One that was sent: over which connection, its number, and whether all was calm.
type Probe = (Generation, u64, bool);

struct World {
    plan: Plan,
    options: Options,
    clock: Clock,
    rng: fastrand::Rng,
    generations: u64,
    now: Instant,
    cluster: Option<Cluster>,
    /// Connections whose teardown is not over.
    lines: BTreeMap<Generation, Line>,
    /// Those that are torn down and not abandoned, in that order.
    retiring: VecDeque<Generation>,
    probes: Vec<Probe>,
    /// The fleet brake withholds teardowns by verdict.
    brake: bool,
    /// Every access that a source ever gave.
    upserted: Vec<ClusterAccess>,
    /// What counts by the model, and until when it lingers, for what comes then.
    claim: Option<Claim>,
    lingers: Option<(Instant, Option<Claim>)>,
    shut_down: bool,
    /// By what was told.
    connected: bool,
    verdict: Verdict,
    /// What was asked for since the test last looked.
    seen: Vec<Action>,
}

/// What the engine keeps of a connection.
struct Line {
    shell: Shell,
    access: ClusterAccess,
    /// Whose it is, by what the source said and as the cluster counts.
    of: (Identity, u64),
    vitals: Arc<Vitals>,
    retiring: bool,
    abandoned: bool,
}

impl World {
    fn new(resources: &[Planned], health: usize) -> Self {
        Self {
            plan: plan(resources, health),
            options: Options::default(),
            clock: Clock::start(),
            rng: fastrand::Rng::with_seed(7),
            generations: 0,
            now: Instant::now(),
            cluster: None,
            lines: BTreeMap::new(),
            retiring: VecDeque::new(),
            probes: Vec::new(),
            brake: false,
            upserted: Vec::new(),
            claim: None,
            lingers: None,
            shut_down: false,
            connected: false,
            verdict: Verdict::Unknown,
            seen: Vec::new(),
        }
    }

    /// A source says this; `None`: nobody names the key.
    fn word(&mut self, claim: Option<Claim>) {
        if let Some(SourcedAccess::Ready(access)) = claim.as_ref().map(|claim| &claim.upsert.access)
        {
            self.upserted.push(access.clone());
        }
        match (&self.claim, &claim) {
            _ if self.shut_down => {}
            (Some(old), Some(new)) if new.source <= old.source => {
                self.claim = claim.clone();
                self.lingers = None;
            }
            (None, _) => self.claim = claim.clone(),
            (Some(_), _) => {
                let year = Duration::from_secs(365 * 86_400);
                let until = self.now + self.options.source.linger.min(year);
                self.lingers.get_or_insert((until, None)).1 = claim.clone();
            }
        }
        match claim {
            Some(_) if self.cluster.is_none() && self.shut_down => {}
            Some(claim) if self.cluster.is_none() => {
                self.with(|_, cx| Some(Cluster::new(claim, cx)));
            }
            claim => self.input(|cluster, cx| cluster.claim(claim, cx)),
        }
    }

    fn input(&mut self, input: impl FnOnce(&mut Cluster, &mut Cx<'_>)) {
        self.with(|cluster, cx| {
            let mut cluster = cluster?;
            input(&mut cluster, cx);
            Some(cluster)
        });
        if self.cluster().is_some_and(Cluster::wants_down) {
            let brake = self.brake;
            self.with(|cluster, cx| {
                let mut cluster = cluster?;
                if brake {
                    cluster.hold(cx);
                } else {
                    cluster.fall(cx);
                }
                Some(cluster)
            });
            assert_eq!(self.cluster().is_some_and(Cluster::wants_down), brake);
        }
    }

    /// What the engine does for every input.
    fn with(&mut self, input: impl FnOnce(Option<Cluster>, &mut Cx<'_>) -> Option<Cluster>) {
        let mut out = Vec::new();
        let mut cx = Cx {
            now: self.now,
            options: &self.options,
            plan: &self.plan,
            clock: self.clock,
            rng: &mut self.rng,
            generations: &mut self.generations,
            out: &mut out,
        };
        self.cluster = input(self.cluster.take(), &mut cx);
        let (opens, rest): (Vec<_>, Vec<_>) = out
            .into_iter()
            .partition(|action| matches!(action, Action::Open { .. }));
        for action in opens.into_iter().chain(rest) {
            self.act(&action);
            self.seen.push(action);
        }
        self.check();
        if self.cluster().is_some_and(Cluster::is_over) {
            self.cluster = None;
            assert!(self.claim.is_none() || self.shut_down);
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Open {
                generation,
                access,
                vitals,
                predecessor,
            } => self.open(*generation, access, vitals, *predecessor),
            Action::Step { generation, step } => {
                self.lines
                    .get_mut(generation)
                    .unwrap()
                    .shell
                    .take(&self.plan, step.clone());
            }
            Action::SetAccess { generation, access } => {
                assert!(
                    self.upserted.contains(access),
                    "not a credential of this endpoint"
                );
                let line = self.lines.get_mut(generation).unwrap();
                let change = line.access.change_to(access);
                assert_ne!(change, AccessChange::Endpoint);
                assert!(!line.access.is_identical(access));
                line.access = access.clone();
                if change == AccessChange::Credential {
                    line.shell.new_access();
                }
            }
            Action::Probe {
                generation,
                number,
                calm,
                ..
            } => self.probes.push((*generation, *number, *calm)),
            Action::Retire { generation, .. } => {
                let line = self.lines.get_mut(generation).expect("it lives");
                assert!(
                    !std::mem::replace(&mut line.retiring, true),
                    "retired twice"
                );
                line.shell.retire(&self.plan);
                self.retiring.push_back(*generation);
            }
            Action::Abandon { generation } => {
                assert_eq!(
                    self.retiring.pop_front(),
                    Some(*generation),
                    "the oldest first"
                );
                self.lines.get_mut(generation).unwrap().abandoned = true;
            }
            Action::Tell(changes) if *changes == Changes::CONNECTED => self.connected = true,
            Action::Tell(changes) if *changes == Changes::DISCONNECTED => {
                assert!(
                    std::mem::replace(&mut self.connected, false),
                    "it was connected"
                );
            }
            Action::Verdict(verdict) => self.verdict = *verdict,
            _ => {}
        }
    }

    fn open(
        &mut self,
        generation: Generation,
        access: &ClusterAccess,
        vitals: &Arc<Vitals>,
        predecessor: Option<Generation>,
    ) {
        let newest = self.lines.keys().next_back();
        assert!(
            newest.is_none_or(|newest| *newest < generation),
            "generations grow"
        );
        let claim = self.claim.as_ref().expect("somebody names it");
        assert!(
            !self.shut_down && self.lingers.is_none() && claim.owned,
            "not to be dialled"
        );
        assert_eq!(
            claim.upsert.access,
            SourcedAccess::Ready(access.clone()),
            "the newest access"
        );
        if let Some(old) = predecessor {
            assert!(!self.lines[&old].retiring, "it has nothing to hand over");
        }
        let line = Line {
            shell: Shell::new(&self.plan),
            access: access.clone(),
            of: (
                claim.upsert.identity.clone(),
                self.cluster().unwrap().identity(),
            ),
            vitals: Arc::clone(vitals),
            retiring: false,
            abandoned: false,
        };
        self.lines.insert(generation, line);
    }

    /// What must hold after every input.
    fn check(&mut self) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        let published = cluster.published.as_ref();
        assert_eq!(
            self.connected,
            published.is_some(),
            "told what is published"
        );
        assert_eq!(
            self.verdict,
            cluster.published_verdict(),
            "told what the verdict is"
        );
        if let Some(life) = published {
            let of = &self.lines[&life.generation].of;
            assert_eq!(
                of.1,
                cluster.identity(),
                "a value of another identity is served"
            );
            if let (Identity::Uid(old), Some(Identity::Uid(new))) = (
                &of.0,
                self.claim.as_ref().map(|claim| &claim.upsert.identity),
            ) {
                assert_eq!(old, new, "a value of another identity is served");
            }
        }
        let lives: Vec<_> = published.iter().copied().chain(&cluster.building).collect();
        let mut living: Vec<_> = lives.iter().map(|life| life.generation).collect();
        living.sort();
        let not_retired = self.lines.iter().filter(|(_, line)| !line.retiring);
        assert!(
            not_retired.map(|(generation, _)| generation).eq(&living),
            "lives or is retired"
        );
        for life in lives {
            let line = self.lines.get_mut(&life.generation).unwrap();
            assert_eq!(life.access, line.access);
            line.shell.check(&self.plan, &life.resources);
            let health = life.resources.is_up(self.plan.health());
            assert_eq!(
                life.detector.is_some(),
                health,
                "one judges while health is up"
            );
            assert!(!life.held || life.is_down(), "held without a reason");
        }
        assert_eq!(cluster.retiring, self.retiring);
        assert!(
            cluster.building.is_none() || self.lingers.is_none(),
            "it is not dialled"
        );
        assert!(cluster.retiring.len() <= self.options.end.retiring);
        assert!(cluster.outage().is_none_or(|since| since <= self.now));
        let names = ["first".into(), "second".into()];
        let state = cluster.state(&self.plan, &self.clock, &names);
        assert_eq!(
            state.phase.is_connected(),
            published.is_some() && !cluster.is_gone()
        );
    }

    fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    fn deliver(&mut self, generation: Generation, mail: Mail) {
        match mail {
            Mail::Finished {
                slot,
                incarnation,
                outcome,
            } => self
                .input(|cluster, cx| cluster.finished(generation, slot, incarnation, outcome, cx)),
            Mail::Ended(slots) => self.input(|cluster, cx| cluster.ended(generation, &slots, cx)),
            Mail::Refreshed { rebuild } => {
                self.input(|cluster, cx| cluster.refreshed(generation, rebuild, cx));
            }
            Mail::Retired => {
                self.lines.remove(&generation);
                self.retiring.retain(|retiring| *retiring != generation);
                self.input(|cluster, cx| cluster.retired(generation, cx));
            }
        }
    }

    fn answer(&mut self, (generation, number, calm): Probe, result: ProbeResult) {
        self.input(|cluster, cx| {
            if calm && result == (ProbeResult::Alive { not_ready: None }) {
                cluster.answered(generation, number, cx.now, cx);
            } else {
                cluster.probed(generation, number, result, cx);
            }
        });
    }

    fn deadline(&self) -> Option<Instant> {
        self.cluster()?.deadline(&self.clock)
    }

    /// The calls that are due.
    fn turn(&mut self) {
        for _ in 0..3 {
            if self.deadline().is_none_or(|at| at > self.now) {
                return;
            }
            if let Some((_, then)) = self.lingers.take_if(|(until, _)| *until <= self.now) {
                self.claim = then;
            }
            self.input(Cluster::timer);
        }
        assert_ahead(self.deadline(), self.now);
    }

    /// Time passes; probes that are sent meanwhile stay without an answer.
    fn wait(&mut self, until: Instant) {
        self.turn();
        while let Some(at) = self.deadline().filter(|at| *at <= until) {
            self.now = at;
            self.turn();
        }
        self.now = until;
    }

    /// Everything that is under way ends, and works; says whether there was anything.
    fn work(&mut self) -> bool {
        let mut news = Vec::new();
        for (generation, line) in &mut self.lines {
            let shell = &mut line.shell;
            while !shell.running.is_empty() && !shell.retires {
                shell.finish(0, Outcome::Up);
            }
            shell.answer(|_| false);
            shell.tear_down(false);
            news.extend(shell.mail.drain(..).map(|mail| (*generation, mail)));
        }
        let probes = std::mem::take(&mut self.probes);
        let something = !(news.is_empty() && probes.is_empty());
        for (generation, mail) in news {
            self.deliver(generation, mail);
        }
        for probe in probes {
            self.answer(probe, ProbeResult::Alive { not_ready: None });
        }
        self.turn();
        something
    }

    /// Everything works, until this is so; says how long it took.
    fn works_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Duration {
        let begun = self.now;
        for _ in 0..2_000 {
            if !self.work() {
                if done(self) {
                    return self.now - begun;
                }
                let at = self
                    .deadline()
                    .unwrap_or_else(|| panic!("{what}: nothing to wait for"));
                self.now = self.now.max(at);
                self.turn();
            }
        }
        panic!(
            "{what}: not within {:?}: {:?}",
            self.now - begun,
            self.cluster
        );
    }

    /// Published with all it can have, and nothing else left.
    fn is_settled(&self) -> bool {
        self.cluster().is_some_and(|cluster| {
            let published = cluster.published.as_ref();
            cluster.building.is_none()
                && cluster.retiring.is_empty()
                && published.is_some_and(|life| life.resources.deadline().is_none())
        })
    }
}

/// CAs: one, the same renewed, another, and both.
static CAS: LazyLock<[String; 4]> = LazyLock::new(|| {
    let pem = |key: &rcgen::KeyPair, serial: u64| {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.serial_number = Some(serial.into());
        params.self_signed(key).unwrap().pem()
    };
    let key = || rcgen::KeyPair::generate().unwrap();
    let (one, other) = (key(), key());
    let both = pem(&one, 1) + &pem(&other, 2);
    [pem(&one, 1), pem(&one, 3), pem(&other, 2), both]
});

/// An access, of which there are so many that a test can tell them apart.
fn access(endpoint: usize, ca: usize, token: &str) -> ClusterAccess {
    let builder = ClusterAccess::builder(format!("https://server-{endpoint}"));
    builder
        .ca_pem(CAS[ca].as_str())
        .token(token.to_owned())
        .build()
        .unwrap()
}

/// The word of the first source about a cluster with a UID.
fn claim(access: SourcedAccess) -> Claim {
    Claim {
        source: 0,
        upsert: Upsert {
            key: ClusterKey::named("a"),
            identity: Identity::Uid("one".into()),
            labels: crate::Labels::default(),
            access,
        },
        owned: true,
        shadowed: Vec::new(),
    }
}
