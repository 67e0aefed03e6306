//! A cluster of four parts that are built on each other, each of whose hooks passes its points one poll at a time; at one of them a trap goes off.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterResource, FailureKind,
    HealthCheck, InitContext, InitError, MemorySource, Phase, Refresh, Requires, Resource,
    SourcedAccess, TeardownContext, Upsert, options::GatePolicy,
};
use tokio::{
    sync::Notify,
    task::{AbortHandle, yield_now},
};

use crate::{
    facts::{Fact, REQUIRES, Whose, judge},
    sim::{Builder, Cache, Scripted, cluster, key},
};

/// What all parts of a run share. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Stage(Arc<Inner>);

#[derive(Default)]
struct Inner {
    source: Option<MemorySource>,
    cache: Mutex<Option<ClusterCache>>,
    engine: Mutex<Option<AbortHandle>>,
    trap: Mutex<Option<(Point, Act)>>,
    facts: Mutex<Vec<Fact>>,
    /// What a reader may never see, and saw.
    faults: Mutex<Vec<String>>,
    /// How often a part was asked to take an access.
    asked: AtomicUsize,
    /// What makes a part say that it has gone bad.
    gone_bad: [Notify; 4],
}

/// A place in the code of a hook: before the first await, between two, or after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) slot: usize,
    pub(crate) hook: Hook,
    pub(crate) poll: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Init,
    Teardown,
    Refresh,
    Check,
}

/// As many polls each hook takes.
pub(crate) const POLLS: usize = 3;

/// What a trap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Panics,
    NeverCompletes,
    Fails,
    Does(Deed),
}

/// What somebody else does at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Removes,
    Replaces,
    Moves,
    ChangesToken,
    ClosesGate,
    Reconnects,
    Fails(usize),
    ShutsDown,
    DropsEngine,
}

pub(crate) const DEEDS: [Deed; 12] = [
    Deed::Removes,
    Deed::Replaces,
    Deed::Moves,
    Deed::ChangesToken,
    Deed::ClosesGate,
    Deed::Reconnects,
    Deed::Fails(0),
    Deed::Fails(1),
    Deed::Fails(2),
    Deed::Fails(3),
    Deed::ShutsDown,
    Deed::DropsEngine,
];

pub(crate) const NAMES: [&str; 4] = ["base", "left", "right", "top"];

impl Stage {
    /// Starts the cache.
    pub(crate) fn start() -> (Self, Cache) {
        let source = MemorySource::new("test");
        let stage = Self(Arc::new(Inner {
            source: Some(source.clone()),
            ..Inner::default()
        }));
        let (cache, engine) = Builder::default()
            .source(source)
            .resource(Part::<0>(stage.clone()))
            .resource(Part::<1>(stage.clone()))
            .resource(Part::<2>(stage.clone()))
            .resource(Part::<3>(stage.clone()))
            .health_from::<Part<0>>()
            .configure(|options| {
                options.seed = Some(7);
                options.source.linger = std::time::Duration::ZERO;
                options.source.gate = GatePolicy::Close;
            })
            .build()
            .unwrap();
        let engine = tokio::spawn(engine.run());
        *stage.0.engine.lock().unwrap() = Some(engine.abort_handle());
        *stage.0.cache.lock().unwrap() = Some(cache.clone());
        (stage, cache)
    }

    pub(crate) fn set_trap(&self, point: Point, act: Act) {
        *self.0.trap.lock().unwrap() = Some((point, act));
    }

    /// Whether the trap has not gone off.
    pub(crate) fn is_armed(&self) -> bool {
        self.0.trap.lock().unwrap().is_some()
    }

    pub(crate) fn says(&self, uid: &str, host: &str, token: &str) {
        self.source().upsert(cluster("a", uid, host, token));
    }

    pub(crate) fn run(&self, deed: Deed) {
        let cache = self.0.cache.lock().unwrap().clone();
        let Some(cache) = cache else { return };
        match deed {
            Deed::Removes => self.source().remove(&key("a")),
            Deed::Replaces => self.says("another", "a", "t"),
            Deed::Moves => self.says("a", "elsewhere", "t"),
            Deed::ChangesToken => self.says("a", "a", "of-the-trap"),
            Deed::ClosesGate => self.source().upsert(Upsert {
                access: SourcedAccess::Gated("the trap says so".into()),
                ..cluster("a", "a", "a", "t")
            }),
            Deed::Reconnects => cache.reconnect(&key("a")),
            Deed::Fails(slot) => self.0.gone_bad[slot].notify_waiters(),
            Deed::ShutsDown => {
                tokio::spawn(async move { cache.shutdown().await });
            }
            Deed::DropsEngine => {
                let engine = self.0.engine.lock().unwrap().take();
                engine.iter().for_each(AbortHandle::abort);
            }
        }
    }

    pub(crate) fn so_far(&self) -> String {
        let facts = self.0.facts.lock().unwrap();
        let count = |is: fn(&Fact) -> bool| facts.iter().filter(|fact| is(fact)).count();
        let up = count(|fact| matches!(fact, Fact::Up(_)));
        let down = count(|fact| matches!(fact, Fact::TornDown(_)));
        let asked = self.0.asked.load(SeqCst);
        format!("{up} up, {down} torn down, {asked} asked")
    }

    fn source(&self) -> &MemorySource {
        self.0.source.as_ref().expect("a stage that was started")
    }

    /// All is over: what was done to values was right, each that was not torn down was counted, and readers saw nothing that they may not.
    pub(crate) fn check(&self, cache: &ClusterCache, what: &str) {
        *self.0.cache.lock().unwrap() = None;
        let faults = self.0.faults.lock().unwrap();
        assert!(faults.is_empty(), "{what}: {faults:?}");
        let facts = self.0.facts.lock().unwrap();
        let left = judge(&facts).unwrap_or_else(|why| panic!("{what}: {why}: {facts:#?}"));
        let abandoned = cache.counters().abandoned();
        // Inits that ran when the engine was dropped are counted too.
        let dropped = self.0.engine.lock().unwrap().is_none();
        let most = if dropped { left + 4 } else { left };
        assert!(
            (left..=most).contains(&abandoned),
            "{what}: {left} values without the end of their teardown, {abandoned} abandoned: {facts:#?}"
        );
    }

    fn note(&self, fact: Fact) {
        self.0.facts.lock().unwrap().push(fact);
    }

    /// The points that a hook passes.
    async fn pass(&self, slot: usize, hook: Hook) -> Result<(), Scripted> {
        for poll in 0..POLLS {
            if poll > 0 {
                yield_now().await;
            }
            self.look();
            match self.spring(Point { slot, hook, poll }) {
                None => {}
                Some(Act::Panics) => panic!("the trap says so"),
                Some(Act::NeverCompletes) => pending().await,
                Some(Act::Fails) => return Err(Scripted),
                Some(Act::Does(deed)) => self.run(deed),
            }
        }
        Ok(())
    }

    fn spring(&self, point: Point) -> Option<Act> {
        let mut trap = self.0.trap.lock().unwrap();
        trap.take_if(|(at, _)| *at == point).map(|(_, act)| act)
    }

    /// Looks as a reader does.
    pub(crate) fn look(&self) {
        let cache = self.0.cache.lock().unwrap().clone();
        let cluster = cache.and_then(|cache| cache.cluster(&key("a")).ok());
        let Some(snapshot) = cluster.and_then(|cluster| cluster.snapshot().ok()) else {
            return;
        };
        let seen = [
            Seen::of::<0>(&snapshot),
            Seen::of::<1>(&snapshot),
            Seen::of::<2>(&snapshot),
            Seen::of::<3>(&snapshot),
        ];
        if let Err(fault) = may_be_seen(&snapshot, &seen) {
            self.0.faults.lock().unwrap().push(fault);
        }
    }
}

/// A value as a reader got it.
struct Seen {
    whose: Whose,
    ending: bool,
    built_on: Vec<Whose>,
}

impl Seen {
    fn of<const N: usize>(snapshot: &clustercache::ClusterSnapshot) -> Option<Self> {
        let value = snapshot.get::<Part<N>>().ok()?;
        Some(Self {
            whose: value.whose,
            ending: value.ending.load(SeqCst),
            built_on: value.built_on.clone(),
        })
    }
}

fn may_be_seen(
    snapshot: &clustercache::ClusterSnapshot,
    seen: &[Option<Seen>; 4],
) -> Result<(), String> {
    let (state, generation) = (snapshot.state(), snapshot.generation());
    if seen[0].is_some() != generation.is_some() {
        return Err(format!("published without its base: {state:?}"));
    }
    if state.phase == Phase::Connected && seen.iter().any(Option::is_none) {
        return Err(format!("connected, and not whole: {state:?}"));
    }
    for value in seen.iter().flatten() {
        if Some(value.whose.generation) != generation || value.ending {
            return Err(format!(
                "of another generation, or ending: {:?}",
                value.whose
            ));
        }
        for base in &value.built_on {
            let visible = seen[base.slot].as_ref().map(|base| base.whose);
            if visible != Some(*base) {
                return Err(format!("{:?} without {base:?}", value.whose));
            }
        }
    }
    Ok(())
}

/// One of the four: `Part<0>` is the health provider.
pub(crate) struct Part<const N: usize>(Stage);

pub(crate) struct Value {
    whose: Whose,
    stage: Stage,
    ending: AtomicBool,
    built_on: Vec<Whose>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.stage.note(Fact::Dropped(self.whose));
    }
}

#[async_trait]
impl<const N: usize> ClusterResource for Part<N> {
    type Value = Value;

    fn name(&self) -> &'static str {
        NAMES[N]
    }

    fn requires(&self) -> Requires {
        REQUIRES[N]
            .iter()
            .fold(Requires::nothing().access(), |all, base| match base {
                0 => all.resource::<Part<0>>(),
                1 => all.resource::<Part<1>>(),
                _ => all.resource::<Part<2>>(),
            })
    }

    async fn init(&self, cx: &InitContext) -> Result<Value, InitError> {
        let Self(stage) = self;
        let whose = Whose {
            slot: N,
            generation: cx.generation(),
            incarnation: cx.incarnation(),
        };
        let (bad, tells) = (stage.clone(), cx.clone());
        cx.spawn(async move {
            bad.0.gone_bad[N].notified().await;
            bad.note(Fact::Bad(whose));
            tells.failed(Scripted);
            pending::<()>().await;
        });
        stage.pass(N, Hook::Init).await?;
        stage.note(Fact::Up(whose));
        Ok(Value {
            whose,
            stage: stage.clone(),
            ending: AtomicBool::new(false),
            built_on: bases(cx, N),
        })
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        let (whose, stage) = (value.whose, &self.0);
        if value.is_current() || value.ending.swap(true, SeqCst) {
            let fault = format!("torn down twice, or while readers get it: {whose:?}");
            stage.0.faults.lock().unwrap().push(fault);
        }
        stage.note(Fact::Teardown(whose, cx.reason()));
        let mut end = End {
            stage,
            whose,
            cut_short: true,
        };
        let _ = stage.pass(N, Hook::Teardown).await;
        end.cut_short = false;
    }

    fn refresh(&self, value: &Value, _: &ClusterAccess) -> Refresh {
        let point = Point {
            slot: N,
            hook: Hook::Refresh,
            poll: 0,
        };
        self.0.look();
        self.0.0.asked.fetch_add(1, SeqCst);
        let bad = || self.0.note(Fact::Bad(value.whose));
        match self.0.spring(point) {
            Some(Act::Panics) => {
                bad();
                panic!("the trap says so");
            }
            Some(Act::Fails) => {
                bad();
                return Refresh::Rebuild;
            }
            Some(Act::Does(deed)) => self.0.run(deed),
            _ => {}
        }
        Refresh::InPlace
    }
}

/// Says how a teardown ended.
struct End<'a> {
    stage: &'a Stage,
    whose: Whose,
    cut_short: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let cut_short = self.cut_short && !std::thread::panicking();
        self.stage.note(if cut_short {
            Fact::CutShort(self.whose)
        } else {
            Fact::TornDown(self.whose)
        });
    }
}

fn bases(cx: &InitContext, slot: usize) -> Vec<Whose> {
    let base = |base: &usize| {
        let incarnation = match base {
            0 => cx.get::<Part<0>>().map(|it| it.incarnation()),
            1 => cx.get::<Part<1>>().map(|it| it.incarnation()),
            _ => cx.get::<Part<2>>().map(|it| it.incarnation()),
        };
        Whose {
            slot: *base,
            generation: cx.generation(),
            incarnation: incarnation.expect("it was declared"),
        }
    };
    REQUIRES[slot].iter().map(base).collect()
}

#[async_trait]
impl HealthCheck for Part<0> {
    async fn check(&self, _: &Value, _: &CheckContext) -> Result<Answer, CheckError> {
        let passed = self.0.pass(0, Hook::Check).await;
        passed.map_err(|why| CheckError::new(FailureKind::Other, why))?;
        Ok(Answer::Ready)
    }
}
