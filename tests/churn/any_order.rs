//! Anything in any order: a thousand random interleavings of what sources, clusters, providers and users may do (rules 2, 6 and 8).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use clustercache::{
    ClusterCache, ClusterResource, EngineStatus, Generation, InitContext, InitError, MemorySource,
    Phase, Refresh, Requires, SourcedAccess, TeardownReason, Upsert,
};
use tokio::time::sleep;

use crate::{beside_others, sim::*, tasks};

/// What was done to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    cluster: usize,
    generation: Generation,
    slot: usize,
    incarnation: u32,
}

#[derive(Debug)]
enum Fact {
    Up(Whose),
    /// It is said to have gone bad, or cannot take an access: it may go alone, with what is built on it.
    Bad(Whose),
    Down(Whose, TeardownReason),
}

/// One seed's world.
#[derive(Clone)]
struct Run {
    seed: u64,
    rng: Arc<Mutex<fastrand::Rng>>,
    facts: Arc<Mutex<Vec<Fact>>>,
    live: Arc<AtomicUsize>,
    /// Whether providers misbehave; not any more when everything is to come up in the end.
    wild: Arc<AtomicBool>,
}

struct Made {
    live: Arc<AtomicUsize>,
    ending: AtomicBool,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
    }
}

const CLUSTERS: [&str; 3] = ["0", "1", "2"];
/// Slot 0 is the health provider; what each of the others is built on besides that.
const BUILT_ON: [&[usize]; 5] = [&[], &[1], &[1], &[2], &[]];

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            facts: Arc::default(),
            live: Arc::default(),
            wild: Arc::new(AtomicBool::new(true)),
        }
    }

    fn dice(&self, sides: u64) -> u64 {
        self.rng.lock().unwrap().u64(0..sides)
    }

    fn provider<const N: usize>(&self) -> Custom<N> {
        let (init, teardown, refresh) = (self.clone(), self.clone(), self.clone());
        let custom = Custom::<N>::new()
            .requires(|requires| match N {
                1 | 2 => requires.resource::<Custom<0>>().access(),
                3 => requires.resource::<Custom<1>>().wants::<Custom<4>>(),
                _ => requires,
            })
            .init_timeout(secs(5))
            .init(move |cx| {
                let run = init.clone();
                async move { run.make(&cx, N + 1).await }
            })
            .teardown(move |value, cx| {
                let made = value.made::<Made>();
                assert!(!made.ending.swap(true, SeqCst), "torn down twice");
                let whose = whose(&value.cx, N + 1);
                let (run, reason) = (teardown.clone(), cx.reason());
                async move {
                    match run.dice(10) {
                        0 => sleep(millis(run.dice(3_000))).await,
                        1 => tokio::task::yield_now().await,
                        _ => {}
                    }
                    run.note(Fact::Down(whose, reason));
                    let panics = run.dice(30) == 0 && run.wild.load(SeqCst);
                    assert!(!panics, "the dice say so");
                }
            });
        custom.refresh(move |value, _| match refresh.dice(10) {
            0 if refresh.wild.load(SeqCst) => {
                refresh.note(Fact::Bad(whose(&value.cx, N + 1)));
                Refresh::Rebuild
            }
            1 => Refresh::InPlace,
            _ => Refresh::Unchanged,
        })
    }

    fn note(&self, fact: Fact) {
        self.facts.lock().unwrap().push(fact);
    }

    fn knows_not_applicable(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    async fn make(&self, cx: &InitContext, slot: usize) -> Result<Made, InitError> {
        match self.dice(30) {
            _ if !self.wild.load(SeqCst) => {}
            0 | 1 => return Err(Scripted.into()),
            2 => panic!("the dice say so"),
            3 if self.knows_not_applicable() => {
                return Err(InitError::not_applicable("the dice say so"));
            }
            4 => return Err(InitError::needs_access(Scripted)),
            5 => std::future::pending().await,
            6..10 => sleep(millis(self.dice(3_000))).await,
            10 => {
                let (run, whose) = (self.clone(), whose(cx, slot));
                cx.spawn(async move {
                    run.note(Fact::Bad(whose));
                    panic!("the dice say so");
                });
            }
            _ => tokio::task::yield_now().await,
        }
        cx.spawn(std::future::pending());
        self.live.fetch_add(1, SeqCst);
        self.note(Fact::Up(whose(cx, slot)));
        let ending = AtomicBool::new(false);
        Ok(Made {
            live: Arc::clone(&self.live),
            ending,
        })
    }

    /// What a reader may never see.
    fn look(&self, cache: &ClusterCache) {
        for name in CLUSTERS {
            let Ok(cluster) = cache.cluster(&key(name)) else {
                continue;
            };
            let snapshot = cluster.snapshot().unwrap();
            let state = snapshot.state();
            let generation = snapshot.generation();
            let net = snapshot.get::<Net>();
            assert_eq!(
                net.is_ok(),
                generation.is_some(),
                "seed {}: {state:?}",
                self.seed
            );
            let Ok(net) = net else { continue };
            assert!(net.is_current() && Some(net.generation()) == generation);
            let all = [
                seen::<0>(&snapshot),
                seen::<1>(&snapshot),
                seen::<2>(&snapshot),
                seen::<3>(&snapshot),
                seen::<4>(&snapshot),
            ];
            for (slot, seen) in all.iter().enumerate() {
                let Some(seen) = seen else { continue };
                assert_eq!(Some(seen.generation), generation, "seed {}", self.seed);
                assert!(
                    !seen.ending,
                    "seed {}: visible, and being torn down",
                    self.seed
                );
                for base in BUILT_ON[slot] {
                    let built_on = seen.built_on;
                    let visible = all[base - 1].as_ref().map(|base| base.incarnation);
                    assert_eq!(
                        built_on, visible,
                        "seed {}: {slot} without its base",
                        self.seed
                    );
                }
            }
            // One that was not applicable, and is asked again, is excused.
            if state.phase == Phase::Connected && !self.knows_not_applicable() {
                let missing = |resource: &clustercache::ResourceState| {
                    use clustercache::ResourcePhase::{NotApplicable, Up};
                    resource.essential && !matches!(resource.phase, Up | NotApplicable)
                };
                assert!(
                    !state.resources.iter().any(missing),
                    "seed {}: {state:?}",
                    self.seed
                );
            }
        }
    }

    fn act(&self, world: &World, source: &MemorySource, cache: &ClusterCache) {
        let which = usize::try_from(self.dice(3)).unwrap();
        let name = CLUSTERS[which];
        let host = |n: u64| format!("{name}-{n}");
        let upsert = |uid: u64, server: u64, token: u64| {
            source.upsert(cluster(
                name,
                &uid.to_string(),
                &host(server),
                &token.to_string(),
            ));
        };
        let gone_bad = |cx: &InitContext, slot: usize| {
            self.note(Fact::Bad(whose(cx, slot)));
            cx.failed(Scripted);
        };
        match self.dice(20) {
            0..3 => upsert(0, self.dice(2), 0),
            3..5 => upsert(0, 0, self.dice(100)),
            5 => upsert(self.dice(3), 0, 0),
            6 | 7 => source.remove(&key(name)),
            8 => source.upsert(Upsert::refused(key(name), "no").with_uid("0")),
            9 => {
                let access = SourcedAccess::Gated("no".into());
                source.upsert(Upsert {
                    access,
                    ..cluster(name, "0", "x", "t")
                });
            }
            10 => world.set(&host(self.dice(2)), Answers::Never),
            11 => world.set(&host(self.dice(2)), Answers::Refuses),
            12 => world.set(&host(self.dice(2)), Answers::Status(401)),
            13 => world.set(&host(self.dice(2)), Answers::FailsOnce),
            14 | 15 => (0..2).for_each(|n| world.set(&host(n), Answers::Well)),
            16 => {
                let custom = cache.get::<Custom<0>>(&key(name));
                let _ = custom.map(|it| gone_bad(&it.cx, 1));
            }
            17 => {
                let custom = cache.get::<Custom<1>>(&key(name));
                let _ = custom.map(|it| gone_bad(&it.cx, 2));
            }
            18 => {
                let _ = cache
                    .get::<Net>(&key(name))
                    .map(|it| it.cx.failed(Scripted));
            }
            _ => match self.dice(4) {
                0 => cache.reconnect(&key(name)),
                1 => cache.retry_now(&key(name)),
                2 => cache.reconsider::<Custom<1>>(&key(name)),
                _ => cache.reconsider::<Custom<0>>(&key(name)),
            },
        }
    }

    /// Each value was torn down at most once, in the reverse of the order in which it came up. Says how many were not.
    fn check(&self) -> u64 {
        let (mut up, mut bad) = <(Vec<Whose>, Vec<Whose>)>::default();
        for fact in self.facts.lock().unwrap().iter() {
            match *fact {
                Fact::Up(whose) => {
                    assert!(!up.contains(&whose), "seed {}: twice {whose:?}", self.seed);
                    up.push(whose);
                }
                Fact::Bad(whose) => bad.push(whose),
                Fact::Down(whose, reason) => {
                    let at = up.iter().position(|other| *other == whose);
                    let at = at.unwrap_or_else(|| panic!("seed {}: never up {whose:?}", self.seed));
                    let same = |other: &&Whose| {
                        (other.cluster, other.generation) == (whose.cluster, whose.generation)
                    };
                    let later: Vec<_> = up[at + 1..].iter().filter(same).collect();
                    // It goes alone if it has gone bad, or what it is built on; then what came later stays.
                    let base = |it: &Whose| it.slot == whose.slot || requires(whose.slot, it.slot);
                    let mut bases = up.iter().filter(same).filter(|it| base(it));
                    let alone =
                        reason == TeardownReason::Replaced && bases.any(|it| bad.contains(it));
                    let on_it = |other: &&&Whose| requires(other.slot, whose.slot);
                    let wrong = later.iter().any(|other| !alone || on_it(&other));
                    assert!(
                        !wrong,
                        "seed {}: {whose:?} {reason:?} before {later:?}",
                        self.seed
                    );
                    up.remove(at);
                }
            }
        }
        up.len() as u64
    }
}

fn requires(slot: usize, base: usize) -> bool {
    slot > 0
        && BUILT_ON[slot - 1]
            .iter()
            .any(|on| *on == base || requires(*on, base))
}

struct Seen {
    generation: Generation,
    incarnation: u32,
    ending: bool,
    built_on: Option<u32>,
}

fn seen<const N: usize>(snapshot: &clustercache::ClusterSnapshot) -> Option<Seen> {
    let value = snapshot.get::<Custom<N>>().ok()?;
    let built_on = match N {
        1 | 2 => value
            .cx
            .get::<Custom<0>>()
            .ok()
            .map(|base| base.incarnation()),
        3 => value
            .cx
            .get::<Custom<1>>()
            .ok()
            .map(|base| base.incarnation()),
        _ => None,
    };
    Some(Seen {
        generation: value.generation(),
        incarnation: value.incarnation(),
        ending: value.made::<Made>().ending.load(SeqCst),
        built_on,
    })
}

fn whose(cx: &InitContext, slot: usize) -> Whose {
    Whose {
        cluster: cx.key().name().parse().unwrap(),
        generation: cx.generation(),
        slot,
        incarnation: cx.incarnation(),
    }
}

async fn interleaving(seed: u64) {
    let run = Run::new(seed);
    let (world, source) = (World::default(), MemorySource::new("test"));
    let before = tasks();
    let (cache, engine) = builder(&world, &source)
        .resource(run.provider::<0>())
        .resource(run.provider::<1>())
        .optional(run.provider::<2>())
        .resource(run.provider::<3>())
        .optional(run.provider::<4>())
        .configure(|options| options.seed = Some(seed))
        .build()
        .unwrap();
    let engine = tokio::spawn(engine.run());
    for _ in 0..60 {
        run.act(&world, &source, &cache);
        match run.dice(6) {
            0 => {}
            1 => sleep(millis(run.dice(8_000))).await,
            2 => settle().await,
            3 => sleep(millis(run.dice(500))).await,
            _ => {
                for _ in 0..run.dice(20) {
                    tokio::task::yield_now().await;
                    run.look(&cache);
                }
            }
        }
        run.look(&cache);
    }
    let abandoned = || cache.counters().abandoned();
    match seed % 4 {
        0 => {
            // In the end everything is well: then everything comes up.
            run.wild.store(false, SeqCst);
            for name in CLUSTERS {
                world.set(&format!("{name}-0"), Answers::Well);
                source.upsert(cluster(name, "0", &format!("{name}-0"), "last"));
            }
            for name in CLUSTERS {
                let waited = cache.wait_for(&key(name), LONG).await;
                assert!(waited.is_ok(), "seed {seed}: {waited:?}");
                until(&cache, name, |state| {
                    let net = cache.get::<Net>(&key(name));
                    let there = net.is_ok_and(|net| {
                        let access = net.access.lock().unwrap();
                        access.endpoint().url().host() == Some(&format!("{name}-0"))
                    });
                    let done = !state.replacing && state.retiring == 0;
                    there && done && state.phase == Phase::Connected
                })
                .await;
            }
            cache.shutdown().await.unwrap();
            let noted = world.noted();
            let nets = |how: &str| noted.iter().filter(|line| line.contains(how)).count() as u64;
            let not_ended = run.check() + nets(" net up") - nets(" net down");
            assert_eq!(not_ended, abandoned(), "seed {seed}");
        }
        1 => {
            // All are removed: then nothing is left, and nobody was told to hurry but by replacements.
            for name in CLUSTERS {
                source.remove(&key(name));
            }
            sleep(secs(600)).await;
            assert_eq!(cache.keys().unwrap(), [], "seed {seed}");
            assert_eq!(run.live.load(SeqCst), 0, "seed {seed}");
            cache.shutdown().await.unwrap();
        }
        2 => {
            cache.shutdown().await.unwrap();
            assert_eq!(cache.status(), EngineStatus::Ended);
        }
        _ => {
            engine.abort();
            sleep(secs(60)).await;
        }
    }
    settle().await;
    sleep(secs(2)).await;
    run.check();
    // Who panics, if anybody, is for the dice to say; the health provider is not.
    let panics = cache.counters().panics();
    for name in panics.keys().filter(|name| name.starts_with("custom-")) {
        cache.expect_panic(name);
    }
    assert_eq!(run.live.load(SeqCst), 0, "seed {seed}: values left");
    assert_eq!(tasks(), before, "seed {seed}: tasks left");
}

/// A thousand of them, a quarter a test.
async fn interleavings(quarter: u64) {
    static QUIET: Once = Once::new();
    let _beside = beside_others().await;
    QUIET.call_once(|| {
        let as_ever = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.to_string().contains("the dice say so") {
                as_ever(panic);
            }
        }));
    });
    for seed in seeds(1_000).filter(|seed| seed / 4 % 4 == quarter) {
        interleaving(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_any_interleaving_values_go_once_in_reverse_and_nothing_half_open_is_seen_1() {
    interleavings(0).await;
}

#[tokio::test(start_paused = true)]
async fn in_any_interleaving_values_go_once_in_reverse_and_nothing_half_open_is_seen_2() {
    interleavings(1).await;
}

#[tokio::test(start_paused = true)]
async fn in_any_interleaving_values_go_once_in_reverse_and_nothing_half_open_is_seen_3() {
    interleavings(2).await;
}

#[tokio::test(start_paused = true)]
async fn in_any_interleaving_values_go_once_in_reverse_and_nothing_half_open_is_seen_4() {
    interleavings(3).await;
}

// What the resources of a run are, so that a change of one table is seen in the other.
#[test]
fn what_is_built_on_what_is_said_once() {
    let run = Run::new(0);
    let requires: BTreeMap<usize, String> = [
        (1, ClusterResource::requires(&run.provider::<0>())),
        (2, ClusterResource::requires(&run.provider::<1>())),
        (3, ClusterResource::requires(&run.provider::<2>())),
        (4, ClusterResource::requires(&run.provider::<3>())),
        (5, ClusterResource::requires(&run.provider::<4>())),
    ]
    .map(|(slot, requires): (usize, Requires)| (slot, format!("{requires:?}")))
    .into();
    for (slot, requires) in requires {
        for base in 1..=5 {
            let name = format!("Custom<{}>", base - 1);
            let said = requires.contains(&format!("{name}\", required: true"));
            assert_eq!(
                said,
                BUILT_ON[slot - 1].contains(&base),
                "{slot} on {base}: {requires}"
            );
        }
    }
}
