//! Faults as the control endpoint takes them: flat JSON, in which nothing unknown is let pass.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use clustercache_testkit::{
    api::{self, Verb},
    fleet::{BadCertificate, ConnectionFault, FleetFault, Injected, Latency, Then},
    hostile::{Answer, Behaviour, Step, http2},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Running, commands::chosen};

/// A fault, and where it is to be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    /// As commands have it; by default all.
    clusters: Option<String>,
    fault: Kind,
    // Of connections.
    connections: Option<Age>,
    path_prefix: Option<String>,
    seed: Option<u64>,
    part: Option<Part>,
    after: Option<u64>,
    then: Option<End>,
    milliseconds: Option<u64>,
    quantiles: Option<Vec<(f64, u64)>>,
    bytes_per_second: Option<u64>,
    certificate: Option<BadCertificate>,
    behaviour: Option<Hostile>,
    // Of answers.
    verb: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    user: Option<String>,
    share: Option<f64>,
    code: Option<u16>,
    retry_after: Option<u32>,
    events: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    BlackHole,
    Unplug,
    Pause,
    Refuse,
    Stop,
    Latency,
    Bandwidth,
    Certificate,
    Hostile,
    Status,
    Unauthorized,
    Forbidden,
    Gone,
    Hang,
    WithoutAggregatedDiscovery,
    WatchExpired,
    WatchEnded,
    WatchStalled,
    WatchWithoutBookmarks,
    WatchCut,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Age {
    All,
    Old,
    New,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Tls,
    Head,
    Body,
    Watch,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Silence,
    Close,
    Reset,
}

/// A few of what the library can do: see `hostile::Behaviour`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Hostile {
    /// Plain text in place of TLS.
    NoTls,
    /// TLS, and no answer.
    Silent,
    /// Answers whose body has no end.
    Endless,
    /// HTTP/2 that ends each connection at its first request.
    Goaway,
}

impl Hostile {
    fn behaviour(self) -> Behaviour {
        match self {
            Self::NoTls => Behaviour::tcp().greeting(Step::write("SSH-2.0-OpenSSH_9.6\r\n")),
            Self::Silent => Behaviour::http2(),
            Self::Endless => Behaviour::http2().on(
                "/",
                vec![
                    Step::Answer(Answer::new(200).unfinished()),
                    Step::Body(vec![b' '; 1024].into(), u64::MAX),
                ],
            ),
            Self::Goaway => {
                let goaway = http2::goaway(0, http2::NO_ERROR);
                Behaviour::http2().on("/", Step::Write(goaway))
            }
        }
    }
}

impl Order {
    fn fault(&self) -> anyhow::Result<FleetFault> {
        let plain: fn() -> api::Fault = match self.fault {
            Kind::Unauthorized => api::Fault::unauthorized,
            Kind::Forbidden => api::Fault::forbidden,
            Kind::Gone => api::Fault::gone,
            Kind::Hang => api::Fault::hang,
            Kind::WithoutAggregatedDiscovery => api::Fault::without_aggregated_discovery,
            Kind::WatchExpired => api::Fault::watch_expired,
            Kind::WatchEnded => api::Fault::watch_ended,
            Kind::WatchStalled => api::Fault::watch_stalled,
            Kind::WatchWithoutBookmarks => api::Fault::watch_without_bookmarks,
            Kind::Status => {
                let fault = api::Fault::status(self.code.context("`code` is missing")?);
                return self.of_answers(match self.retry_after {
                    Some(seconds) => fault.retry_after(seconds),
                    None => fault,
                });
            }
            Kind::WatchCut => {
                return self.of_answers(match (self.events, self.milliseconds) {
                    (Some(events), None) => api::Fault::watch_cut_after_events(events),
                    (None, Some(ms)) => api::Fault::watch_cut_after(Duration::from_millis(ms)),
                    _ => bail!("`watch-cut` takes `events` or `milliseconds`"),
                });
            }
            _ => return self.of_connections(),
        };
        self.of_answers(plain())
    }

    fn of_answers(&self, mut fault: api::Fault) -> anyhow::Result<FleetFault> {
        if let Some(verb) = &self.verb {
            let known = Verb::ALL.iter().find(|known| known.name() == verb);
            fault = fault.verb(*known.with_context(|| format!("{verb:?} is no verb"))?);
        }
        if let Some(resource) = &self.resource {
            fault = fault.resource(resource);
        }
        if let Some(namespace) = &self.namespace {
            fault = fault.namespace(namespace);
        }
        if let Some(user) = &self.user {
            fault = fault.user(user);
        }
        if let Some(share) = self.share {
            fault = fault.share(share);
        }
        Ok(fault.into())
    }

    fn of_connections(&self) -> anyhow::Result<FleetFault> {
        let mut fault = match self.fault {
            Kind::BlackHole => ConnectionFault::black_hole(),
            Kind::Unplug => ConnectionFault::unplug(),
            Kind::Pause => ConnectionFault::pause(),
            Kind::Refuse => ConnectionFault::refuse(),
            Kind::Stop => self.stop()?,
            Kind::Latency => ConnectionFault::latency(self.latency()?),
            Kind::Bandwidth => {
                let rate = self.bytes_per_second;
                ConnectionFault::bandwidth(rate.context("`bytesPerSecond` is missing")?)
            }
            Kind::Certificate => {
                let bad = self.certificate.context("`certificate` is missing")?;
                ConnectionFault::certificate(bad)
            }
            Kind::Hostile => {
                let hostile = self.behaviour.context("`behaviour` is missing")?;
                ConnectionFault::hostile(hostile.behaviour())
            }
            other => bail!("{other:?} is no fault of connections"),
        };
        fault = match self.connections.unwrap_or(Age::All) {
            Age::All => fault,
            Age::Old => fault.old_connections(),
            Age::New => fault.new_connections(),
        };
        if let Some(prefix) = &self.path_prefix {
            fault = fault.path_prefix(prefix);
        }
        if let Some(seed) = self.seed {
            fault = fault.seed(seed);
        }
        Ok(fault.into())
    }

    fn stop(&self) -> anyhow::Result<ConnectionFault> {
        let after = self.after.context("`after`, in bytes, is missing")?;
        let then = match self.then.unwrap_or(End::Silence) {
            End::Silence => Then::Silence,
            End::Close => Then::Close,
            End::Reset => Then::Reset,
        };
        Ok(match self.part.context("`part` is missing")? {
            Part::Tls => ConnectionFault::stop_after(after, then),
            Part::Head => ConnectionFault::stop_in_head(after, then),
            Part::Body => ConnectionFault::stop_in_body(after, then),
            Part::Watch => ConnectionFault::stop_in_watch(after, then),
        })
    }

    fn latency(&self) -> anyhow::Result<Latency> {
        let ms = Duration::from_millis;
        Ok(match (self.milliseconds, &self.quantiles) {
            (Some(fixed), None) => Latency::fixed(ms(fixed)),
            (None, Some(quantiles)) => {
                let all: Vec<_> = quantiles
                    .iter()
                    .map(|(share, at)| (*share, ms(*at)))
                    .collect();
                Latency::quantiles(&all)
            }
            _ => bail!("`latency` takes `milliseconds` or `quantiles`"),
        })
    }
}

/// The faults that hold.
#[derive(Default)]
pub(crate) struct Orders(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    all: BTreeMap<u64, (Value, Injected)>,
}

impl Orders {
    /// Injects a fault, and returns its number.
    pub(crate) fn take(&self, running: &Running, order: &[u8]) -> anyhow::Result<u64> {
        let document: Value = serde_json::from_slice(order)?;
        let order = Order::deserialize(&document)?;
        let fault = order.fault()?;
        let names = order.clusters.as_deref().unwrap_or("all");
        let clusters = chosen(&running.fleet, names)?;
        let mut injected = Injected::default();
        for cluster in clusters {
            injected.extend([cluster.inject(fault.clone())]);
        }
        let mut state = self.0.lock();
        state.last += 1;
        let number = state.last;
        state.all.insert(number, (document, injected));
        Ok(number)
    }

    /// Undoes a fault; false if there is none of that number.
    pub(crate) fn undo(&self, number: u64) -> bool {
        let undone = self.0.lock().all.remove(&number);
        undone.map(|(_, injected)| injected.undo()).is_some()
    }

    pub(crate) fn undo_all(&self) {
        let all = std::mem::take(&mut self.0.lock().all);
        for (_, injected) in all.into_values() {
            injected.undo();
        }
    }

    pub(crate) fn list(&self) -> Value {
        let state = self.0.lock();
        let all = state.all.iter();
        all.map(|(id, (order, _))| json!({ "id": id, "order": order }))
            .collect()
    }
}
