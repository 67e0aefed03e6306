//! Setting a cache up. Nothing fails here before `start` or `build`, which report every mistake at once.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;

use crate::{
    ClusterCache, ClusterResource, ClusterSource, EngineStatus, HealthCheck, PlanError, StandIn,
    Upsert,
    clock::Clock,
    counters::Counters,
    dial::DialPool,
    engine::{Engine, Filter, RegisteredSource},
    events::Events,
    inbox::Inbox,
    latch::Latch,
    options::Options,
    plan::{Plan, Spec},
    registry::Registry,
    resource::{Health, Provider, erase, erase_health},
    shared::{Registered, Shared},
};

/// How many reports of tasks may wait for the engine; a task waits when there are more.
const REPORTS: usize = 1_024;

/// Sets a [`ClusterCache`] up.
///
/// ```
/// # use async_trait::async_trait;
/// # use clustercache::*;
/// # struct Client;
/// # #[async_trait]
/// # impl ClusterResource for Client {
/// #     type Value = ();
/// #     fn name(&self) -> &'static str { "client" }
/// #     async fn init(&self, _: &InitContext) -> Result<(), InitError> { Ok(()) }
/// # }
/// # #[async_trait]
/// # impl HealthCheck for Client {
/// #     async fn check(&self, _: &(), _: &CheckContext) -> Result<Answer, CheckError> { Ok(Answer::Ready) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StartError> {
/// let cache = ClusterCache::builder()
///     .source(MemorySource::new("fleet"))
///     .resource(Client)
///     .health_from::<Client>()
///     .start()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Default)]
pub struct Builder {
    sources: Vec<Arc<dyn ClusterSource>>,
    filters: Vec<Filter>,
    providers: Vec<Candidate>,
    health: Vec<HealthFrom>,
    options: Options,
}

/// A provider as it was registered.
struct Candidate {
    provider: Arc<dyn Provider>,
    type_name: &'static str,
    essential: bool,
    /// The same provider as its type, for `health_from`.
    typed: Typed,
}

/// Who is to give the verdict. Found among the providers at `build`, whatever the order of the calls.
struct HealthFrom {
    type_id: TypeId,
    type_name: &'static str,
    of: fn(&Typed) -> Option<Arc<dyn Health>>,
}

/// An `Arc<R>` of a provider.
type Typed = Arc<dyn std::any::Any + Send + Sync>;

impl Builder {
    /// Adds a source. Of several that name a key, the one added first wins.
    pub fn source(mut self, source: impl ClusterSource) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Lets in only clusters for which `filter` says so; all filters must. Evaluated again at every change of the cluster, on a task
    /// of its source. A filter that panics lets nothing in.
    pub fn filter(mut self, filter: impl Fn(&Upsert) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Arc::new(filter));
        self
    }

    /// Adds a provider that a cluster must have to count as connected.
    pub fn resource<R: ClusterResource>(self, provider: R) -> Self {
        self.add(provider, true)
    }

    /// Adds a provider without which a cluster counts as connected all the same.
    pub fn optional<R: ClusterResource>(self, provider: R) -> Self {
        self.add(provider, false)
    }

    /// For unit tests: adds something that takes the place of a provider `R`.
    pub fn stand_in<R: ClusterResource>(mut self, stand_in: StandIn<R>) -> Self {
        self.providers.push(Candidate {
            type_name: std::any::type_name::<R>(),
            essential: stand_in.essential,
            provider: Arc::new(stand_in),
            typed: Arc::new(()),
        });
        self
    }

    /// Says which provider gives the verdict on a connection: exactly one, and it must be essential.
    pub fn health_from<R: HealthCheck>(mut self) -> Self {
        self.health.push(HealthFrom {
            type_id: TypeId::of::<R>(),
            type_name: std::any::type_name::<R>(),
            of: |typed| Some(erase_health(Arc::clone(typed).downcast::<R>().ok()?)),
        });
        self
    }

    /// Changes options.
    pub fn configure(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    fn add<R: ClusterResource>(mut self, provider: R, essential: bool) -> Self {
        let typed = Arc::new(provider);
        self.providers.push(Candidate {
            provider: erase(Arc::clone(&typed)),
            type_name: std::any::type_name::<R>(),
            essential,
            typed,
        });
        self
    }

    /// Starts the cache: spawns its engine on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(self) -> Result<ClusterCache, StartError> {
        let (cache, engine) = self.build()?;
        // From now on, not from its first poll: a shutdown that comes before that is one of a cache that runs.
        cache.shared.registry.set_status(EngineStatus::Running);
        tokio::spawn(engine.run());
        Ok(cache)
    }

    /// Builds the cache and its engine, for those who drive it themselves.
    pub fn build(self) -> Result<(ClusterCache, Engine), StartError> {
        let mut mistakes: Vec<Mistake> = self
            .options
            .mistakes()
            .into_iter()
            .map(Mistake::Option)
            .collect();
        for source in &self.sources {
            let of = || format!("source {}", source.name());
            mistakes.extend(
                source
                    .mistakes()
                    .into_iter()
                    .map(|text| Mistake::Given { to: of(), text }),
            );
        }
        for Candidate { provider, .. } in &self.providers {
            let to = || provider.name().to_owned();
            mistakes.extend(
                provider
                    .mistakes()
                    .into_iter()
                    .map(|text| Mistake::Given { to: to(), text }),
            );
        }
        if self.sources.is_empty() {
            mistakes.push(Mistake::NoSource);
        }
        if self.health.len() > 1 {
            mistakes.push(Mistake::ManyHealth(
                self.health.iter().map(|from| from.type_name).collect(),
            ));
        }
        let specs: Vec<Spec> = self.providers.iter().map(Candidate::spec).collect();
        let from = self.health.first();
        let planned = Plan::new(&specs, from.map(|from| (from.type_id, from.type_name)));
        let planned = planned
            .map_err(|errors| mistakes.extend(errors.into_iter().map(Mistake::Plan)))
            .ok();
        let health = from.zip(planned.as_ref()).and_then(|(from, plan)| {
            let health = (from.of)(&self.providers[plan.slot(plan.health()).spec].typed);
            if health.is_none() {
                mistakes.push(Mistake::HealthFromStandIn(from.type_name));
            }
            health
        });
        let (Some(plan), Some(health), true) = (planned, health, mistakes.is_empty()) else {
            return Err(StartError { mistakes });
        };
        let plan = Arc::new(plan);
        let providers = plan
            .slots()
            .map(|(_, slot)| self.providers[slot.spec].registered())
            .collect();
        let registry = Arc::new(Registry::new(Arc::clone(&plan), Clock::start()));
        let (sender, reports) = mpsc::channel(REPORTS);
        let shared = Arc::new(Shared {
            events: Events::new(&self.options.events, Arc::clone(&registry)),
            dials: DialPool::new(&self.options.dial),
            counters: Counters::new(&plan),
            options: self.options,
            plan,
            providers,
            health,
            registry,
            inbox: Inbox::default(),
            reports: sender,
            started: Latch::default(),
            ended: Latch::default(),
            shutdown: Mutex::default(),
        });
        let filters: Arc<[Filter]> = self.filters.into();
        let registered = |source: Arc<dyn ClusterSource>| RegisteredSource {
            name: source.name().into(),
            source,
            filters: Arc::clone(&filters),
        };
        let sources = self.sources.into_iter().map(registered).collect();
        let cache = ClusterCache {
            shared: Arc::clone(&shared),
        };
        Ok((cache, Engine::new(shared, sources, reports)))
    }
}

impl Candidate {
    fn spec(&self) -> Spec {
        Spec {
            name: self.provider.name(),
            type_id: self.provider.type_id(),
            type_name: self.type_name,
            essential: self.essential,
            requires: self.provider.requires(),
        }
    }

    fn registered(&self) -> Registered {
        Registered {
            init_timeout: self.provider.init_timeout(),
            teardown_timeout: self.provider.teardown_timeout(),
            provider: Arc::clone(&self.provider),
        }
    }
}

/// Every mistake in the set-up of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    mistakes: Vec<Mistake>,
}

impl StartError {
    /// Each of them.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache cannot start: ")?;
        let mut mistakes = self.mistakes.iter();
        if let Some(first) = mistakes.next() {
            first.fmt(f)?;
        }
        mistakes.try_for_each(|mistake| write!(f, "; {mistake}"))
    }
}

impl std::error::Error for StartError {}

/// One mistake in the set-up of a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// An option.
    #[error("{0}")]
    Option(String),
    /// Something that a source or a provider was given.
    #[error("{to}: {text}")]
    Given {
        /// Which source or provider.
        to: String,
        /// What is wrong with it, and what to give instead.
        text: String,
    },
    /// There is no source.
    #[error("there is no source of clusters; add one with .source()")]
    NoSource,
    /// More than one provider was named for the verdict.
    #[error("health_from is called {} times ({}); name one provider", .0.len(), .0.join(", "))]
    ManyHealth(Vec<&'static str>),
    /// The verdict is to come from a [`StandIn`](crate::StandIn), which checks nothing.
    #[error(
        "health_from names {0}, in whose place there is a stand-in, which checks nothing; name another provider"
    )]
    HealthFromStandIn(&'static str),
    /// Something in how the providers depend on each other.
    #[error(transparent)]
    Plan(PlanError),
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{
        Answer, CheckContext, CheckError, InitContext, InitError, MemorySource, Requires, StandIn,
    };

    struct Health;

    #[async_trait]
    impl ClusterResource for Health {
        type Value = ();

        fn name(&self) -> &'static str {
            "health"
        }

        fn mistakes(&self) -> Vec<String> {
            vec!["it was given nothing".into()]
        }

        async fn init(&self, _: &InitContext) -> Result<(), InitError> {
            Ok(())
        }
    }

    #[async_trait]
    impl HealthCheck for Health {
        async fn check(&self, (): &(), _: &CheckContext) -> Result<Answer, CheckError> {
            Ok(Answer::Ready)
        }
    }

    /// Requires what nobody registered.
    struct Lonely;

    #[async_trait]
    impl ClusterResource for Lonely {
        type Value = ();

        fn name(&self) -> &'static str {
            "lonely"
        }

        fn requires(&self) -> Requires {
            Requires::nothing().resource::<Health>()
        }

        async fn init(&self, _: &InitContext) -> Result<(), InitError> {
            Ok(())
        }
    }

    fn mistakes(builder: Builder) -> Vec<Mistake> {
        let error = builder.build().map(|_| ()).expect_err("it has mistakes");
        error.mistakes().to_vec()
    }

    #[test]
    fn mistakes_of_every_kind_are_reported_at_once() {
        let found = mistakes(
            Builder::default()
                .configure(|options| options.dial.silent = 0)
                .health_from::<Health>()
                .health_from::<Health>()
                .resource(Health)
                .resource(Health),
        );
        let is = |kind: fn(&Mistake) -> bool| found.iter().any(kind);
        assert!(is(|it| matches!(it, Mistake::Option(_))), "{found:?}");
        assert!(is(|it| matches!(it, Mistake::Given { .. })), "{found:?}");
        assert!(is(|it| matches!(it, Mistake::NoSource)), "{found:?}");
        assert!(is(
            |it| matches!(it, Mistake::ManyHealth(names) if names.len() == 2)
        ));
        assert!(is(|it| matches!(it, Mistake::Plan(_))), "{found:?}");
    }

    #[test]
    fn who_gives_the_verdict_may_be_named_before_it_is_registered() {
        let builder = Builder::default()
            .source(MemorySource::new("test"))
            .health_from::<Health>()
            .resource(Health);
        // But for what the provider itself says, nothing is wrong.
        let found = mistakes(builder);
        assert!(matches!(&found[..], [Mistake::Given { .. }]), "{found:?}");
    }

    #[test]
    fn a_stand_in_gives_no_verdict() {
        let stand_in = StandIn::<Health>::new("health", |_| async { Ok(()) });
        let builder = Builder::default().source(MemorySource::new("test"));
        let found = mistakes(builder.stand_in(stand_in).health_from::<Health>());
        assert!(
            matches!(&found[..], [Mistake::HealthFromStandIn(name)] if name.contains("Health")),
            "{found:?}"
        );
    }

    #[test]
    fn what_nobody_registered_cannot_be_required() {
        let builder = Builder::default().source(MemorySource::new("test"));
        let found = mistakes(builder.resource(Lonely).health_from::<Health>());
        assert!(
            found.iter().all(|it| matches!(it, Mistake::Plan(_))),
            "{found:?}"
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
