//! What holds for one connection now: all faults that meet it, put together.

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use rustls::ServerConfig;

use super::{
    FleetError,
    cluster::Inner,
    connection_fault::{ConnectionFault, Effect, Latency, Part, Stop},
    counters::PathClass,
    tls::BadCertificate,
    wire::Flow,
};
use crate::hostile::Guest;

/// A fault that holds at an endpoint, and what was made for it there.
pub(super) struct Holding {
    pub(super) id: u64,
    pub(super) fault: Arc<ConnectionFault>,
    /// Connections with a lower number were open when it was injected.
    since: u64,
    config: OnceLock<Arc<ServerConfig>>,
    guest: OnceLock<Guest>,
}

impl Holding {
    pub(super) fn new(id: u64, fault: Arc<ConnectionFault>, since: u64) -> Arc<Self> {
        Arc::new(Self {
            id,
            fault,
            since,
            config: OnceLock::new(),
            guest: OnceLock::new(),
        })
    }

    fn meets(&self, connection: u64) -> bool {
        self.fault.meets(connection < self.since)
    }

    /// Whether new connections meet it.
    pub(super) fn meets_new(&self) -> bool {
        self.fault.meets(false)
    }

    /// What a handshake needs that is to see the wrong certificate.
    pub(super) fn config(
        &self,
        cluster: &Inner,
        bad: BadCertificate,
    ) -> Result<Arc<ServerConfig>, FleetError> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let identity = cluster.identity.lock().clone();
        let config = identity.spoilt(bad)?;
        Ok(self.config.get_or_init(|| config).clone())
    }

    /// Who serves in the cluster's place.
    pub(super) fn guest(&self, cluster: &Inner) -> Option<Guest> {
        let Effect::Hostile(behaviour) = &self.fault.effect else {
            return None;
        };
        let guest = self.guest.get_or_init(|| {
            let identity = cluster.identity.lock().clone();
            let (tasks, ended) = (cluster.tasks.clone(), cluster.ended.clone());
            Guest::new(behaviour.clone(), &identity, tasks, ended)
        });
        Some(guest.clone())
    }
}

/// What holds for one connection. The default: nothing is wrong.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) flow: Flow,
    pub(super) latency: Option<(Latency, u64)>,
    pub(super) bandwidth: Option<NonZeroU64>,
    pub(super) stop: Option<(u64, Stop)>,
    answers: Vec<Arc<Holding>>,
    pub(super) certificate: Option<(BadCertificate, Arc<Holding>)>,
    pub(super) hostile: Option<Arc<Holding>>,
}

impl Terms {
    /// Of the connection with this number.
    pub(super) fn of(all: &[Arc<Holding>], connection: u64) -> Self {
        let mut terms = Self::default();
        for holding in all.iter().filter(|holding| holding.meets(connection)) {
            terms.add(holding);
        }
        terms
    }

    fn add(&mut self, holding: &Arc<Holding>) {
        let fault = &holding.fault;
        let flow = match &fault.effect {
            Effect::BlackHole | Effect::Unplug => Flow::Swallowed,
            Effect::Pause => Flow::Paused,
            Effect::Refuse => Flow::Reset,
            _ => Flow::Open,
        };
        self.flow = self.flow.max(flow);
        match &fault.effect {
            Effect::Stop(stop) => self.stop = Some((holding.id, *stop)),
            Effect::StopAnswer(..) => self.answers.push(holding.clone()),
            Effect::Latency(latency) => self.latency = Some((latency.clone(), fault.seed)),
            Effect::Bandwidth(rate) => self.bandwidth = Some(*rate),
            Effect::Certificate(bad) => self.certificate = Some((*bad, holding.clone())),
            Effect::Hostile(_) => self.hostile = Some(holding.clone()),
            Effect::BlackHole | Effect::Unplug | Effect::Pause | Effect::Refuse => {}
        }
    }

    /// Whether the fault with this id still stops this connection.
    pub(super) fn stop(&self, id: u64) -> bool {
        let on_tcp = self.stop.is_some_and(|(stop, _)| stop == id);
        on_tcp || self.answers.iter().any(|holding| holding.id == id)
    }

    /// Where the answer to a request stops, if it does, and by which fault.
    pub(super) fn of_answer(&self, class: PathClass, path: &str) -> Option<(u64, Part, Stop)> {
        self.answers.iter().rev().find_map(|holding| {
            let (part, stop) = holding.fault.stops(class, path)?;
            Some((holding.id, part, stop))
        })
    }

    /// Whether bytes do not leave as they come.
    pub(super) fn is_paced(&self) -> bool {
        self.latency.is_some() || self.bandwidth.is_some()
    }
}
