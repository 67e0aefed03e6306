//! A page as Prometheus would read it, and providers that do what a test says.
#![allow(dead_code, unreachable_pub)] // each test file uses its part of it

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    ClusterAccess, ClusterResource, InitContext, InitError, Refresh, Requires, Resource, Standing,
    TeardownContext,
};
use clustercache_metrics::CacheMetrics;
use prometheus::{Registry, TextEncoder};

/// What a registry with nothing but these metrics has on its page.
pub struct Exporter(Registry);

impl Exporter {
    pub fn new(metrics: CacheMetrics) -> Self {
        let registry = Registry::new();
        registry.register(Box::new(metrics)).expect("good metrics");
        Self(registry)
    }

    pub fn text(&self) -> String {
        let families = self.0.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .expect("a good page")
    }

    pub fn page(&self) -> Page {
        Page::parse(&self.text())
    }

    /// Scrapes until the page is as `is` says; time may be simulated.
    pub async fn until(&self, is: impl Fn(&Page) -> bool) -> Page {
        let so = async {
            loop {
                let page = self.page();
                if is(&page) {
                    return page;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let so = tokio::time::timeout(Duration::from_secs(600), so).await;
        so.unwrap_or_else(|_| panic!("never so:\n{}", self.text()))
    }
}

/// The text format, read strictly.
#[derive(Debug, Default)]
pub struct Page(pub BTreeMap<String, Family>);

#[derive(Debug, Default)]
pub struct Family {
    pub help: String,
    pub kind: String,
    /// By the whole name of the series, with its labels in their order: `name{a="b",c="d"}`.
    pub samples: BTreeMap<String, f64>,
}

impl Page {
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name, and a text");
                let family = Family {
                    help: help.into(),
                    ..Family::default()
                };
                assert!(page.0.insert(name.into(), family).is_none(), "{name} twice");
                name.clone_into(&mut current);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name, and a type");
                assert_eq!(name, current, "help first");
                page.family(name).kind = kind.into();
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series, and a value");
                let value = value.parse().expect("a number");
                assert!(series.starts_with(&current), "{series} under {current}");
                let before = page.family(&current).samples.insert(series.into(), value);
                assert!(before.is_none(), "{series} twice");
            }
        }
        page
    }

    fn family(&mut self, name: &str) -> &mut Family {
        self.0.get_mut(name).expect("a family that was begun")
    }

    /// The value of a series; it must be there.
    pub fn value(&self, series: &str) -> f64 {
        self.find(series)
            .unwrap_or_else(|| panic!("no {series} in {:?}", self.0.keys()))
    }

    pub fn find(&self, series: &str) -> Option<f64> {
        let mut families = self.0.values();
        families.find_map(|family| family.samples.get(series).copied())
    }

    pub fn series(&self) -> usize {
        self.0.values().map(|family| family.samples.len()).sum()
    }
}

/// Two values are the same number.
pub fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

/// A provider that does what the test says at each of its hooks.
#[derive(Clone, Default)]
pub struct Odd(Arc<Mutex<Act>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Act {
    #[default]
    Works,
    Fails(&'static str),
    Panics,
    Blocks,
    /// Has a permit to dial, and keeps it for so long.
    Dials(Duration),
    /// Its teardown does not end.
    EndsNever,
    /// It takes no new credential.
    Rebuilds,
    /// What it holds ends so many seconds after 1970, and is not renewed.
    Ages(u64),
}

impl Odd {
    pub fn acts(&self, act: Act) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = act;
    }

    fn act(&self) -> Act {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ClusterResource for Odd {
    type Value = ();

    fn name(&self) -> &'static str {
        "odd"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().access()
    }

    async fn init(&self, cx: &InitContext) -> Result<(), InitError> {
        match self.act() {
            Act::Fails(why) => return Err(InitError::retry(why)),
            Act::Panics => panic!("the test says so"),
            // It stands for a hook that does not await.
            Act::Blocks => std::thread::park_timeout(Duration::from_millis(150)),
            Act::Dials(time) => {
                let _permit = cx.dial().await;
                tokio::time::sleep(time).await;
            }
            Act::Ages(seconds) => {
                let end = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
                let why = std::io::Error::other("nobody renews it");
                let standing = Standing::well().expires(end).trouble(2, &why);
                cx.reporter().stands(standing);
            }
            Act::Works | Act::EndsNever | Act::Rebuilds => (),
        }
        Ok(())
    }

    async fn teardown(&self, _: Resource<Self>, _: &TeardownContext) {
        if self.act() == Act::EndsNever {
            pending::<()>().await;
        }
    }

    fn refresh(&self, (): &(), _: &ClusterAccess) -> Refresh {
        match self.act() {
            Act::Rebuilds => Refresh::Rebuild,
            _ => Refresh::Unchanged,
        }
    }
}
