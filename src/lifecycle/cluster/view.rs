//! A cluster as its readers see it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Action, Changes, Cluster, Cx, Life, Removal};
use crate::{
    AccessState, ClusterAccess, ClusterState, Generation, Identity, LastError, Phase,
    ResourcePhase, ResourceState, SourcedAccess, Stall, Verdict,
    clock::Clock,
    lifecycle::detector::Detector,
    plan::Plan,
    vitals::{Probes, Vitals},
};

impl Cluster {
    /// What it is.
    pub(crate) fn phase(&self) -> Phase {
        if matches!(self.removal, Removal::Gone | Removal::Shutdown) {
            return Phase::Removed;
        }
        if self.published.is_some() {
            return if self.is_degraded() {
                Phase::Degraded
            } else {
                Phase::Connected
            };
        }
        match &self.claim.upsert.access {
            _ if !self.claim.owned => Phase::NotOwned,
            SourcedAccess::Gated(_) => Phase::Gated,
            SourcedAccess::Refused(_) => Phase::Refused,
            SourcedAccess::Ready(_) if self.was_down => Phase::Down,
            SourcedAccess::Ready(_) => Phase::Connecting,
        }
    }

    /// Set when an input made an essential resource of the published connection absent.
    fn is_degraded(&self) -> bool {
        self.published.as_ref().is_some_and(|life| life.degraded)
    }

    /// Whether its first chance to be connected is over: it is connected, has failed once, or may not be connected.
    pub(crate) fn has_been_tried(&self) -> bool {
        self.published.is_some()
            || self.first_failure.is_some()
            || self.phase() != Phase::Connecting
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// What its source says that makes it this one.
    pub(crate) fn named(&self) -> &Identity {
        &self.claim.upsert.identity
    }

    /// The newest access, if the cluster is ours.
    pub(crate) fn access(&self) -> Option<&ClusterAccess> {
        self.access.as_ref().filter(|_| self.claim.owned)
    }

    /// By which the dials of a connection are served: attempts to connect in vain, or, of one that is up and suspect, failed rounds of probes.
    pub(crate) fn dial_failures(&self, generation: Generation) -> u32 {
        let detector = self
            .life(generation)
            .and_then(|life| life.detector.as_ref());
        let rounds = detector.map_or(0, |detector| match detector.verdict() {
            Verdict::Suspect | Verdict::Down => detector.failures().max(1),
            _ => 0,
        });
        self.attempts.max(rounds)
    }

    /// The published connection, and its signs of life.
    pub(crate) fn published(&self) -> Option<(Generation, &Arc<Vitals>)> {
        self.published
            .as_ref()
            .map(|life| (life.generation, &life.vitals))
    }

    /// What came of its probes; counted on while this is held.
    pub(crate) fn probes(&self) -> &Arc<Probes> {
        &self.probes
    }

    /// Whether readers may have this slot of the published connection.
    pub(crate) fn is_readable(&self, slot: usize) -> bool {
        self.published
            .as_ref()
            .is_some_and(|life| life.resources.is_up(slot))
    }

    /// Notices that what readers see of the phase changed.
    pub(super) fn notice(&mut self, cx: &mut Cx<'_>) {
        if let Some(life) = &mut self.published {
            life.degraded = life.resources.degraded(cx.plan);
        }
        let phase = self.phase();
        if self.seen != Some(phase) {
            let known_before = self.seen.replace(phase).is_some();
            self.phase_since = cx.now;
            cx.out.push(Action::Publish);
            if known_before {
                cx.tell(Changes::STATE);
            }
        }
    }

    pub(crate) fn state(&self, plan: &Plan, clock: &Clock, sources: &[Arc<str>]) -> ClusterState {
        let wall = |at: Instant| clock.wall(at);
        let upsert = &self.claim.upsert;
        let shown = self.published.as_deref().or(self.building.as_deref());
        let detector = shown.and_then(|life| life.detector.as_ref());
        let (probes_succeeded, probes_failed) = self.probes.read();
        ClusterState {
            key: upsert.key.clone(),
            identity: match &upsert.identity {
                Identity::ByCaOf(_) => Identity::ByCa,
                identity => identity.clone(),
            },
            source: Arc::clone(&sources[self.claim.source]),
            shadowed: self
                .claim
                .shadowed
                .iter()
                .map(|source| Arc::clone(&sources[*source]))
                .collect(),
            owned: self.claim.owned,
            phase: self.phase(),
            since: wall(self.phase_since),
            gate: match &upsert.access {
                SourcedAccess::Gated(why) => Some(Arc::clone(why)),
                _ => None,
            },
            refused: match &upsert.access {
                SourcedAccess::Refused(why) => Some(Arc::clone(why)),
                _ => None,
            },
            removing: matches!(self.removal, Removal::Lingers { .. }),
            generation: self.published.as_ref().map(|life| life.generation),
            replacing: self.published.is_some() && self.building.is_some(),
            retiring: self.retiring.len(),
            health: detector.map_or(Verdict::Unknown, Detector::verdict),
            not_ready: detector.and_then(Detector::not_ready).cloned(),
            held_by_brake: self.published.as_ref().is_some_and(|life| life.held),
            attempts: self.attempts
                + u32::from(self.published.is_none() && self.building.is_some()),
            first_failure: self.first_failure.map(wall),
            next_attempt: self.next_attempt(plan).map(wall),
            last_probe: self.last_probe.map(wall),
            last_success: self.last_success.map(wall),
            stalled: self.stalled.map(|(until, time)| Stall {
                until: wall(until),
                time,
            }),
            consecutive_failures: detector.map_or(0, Detector::failures),
            probes_succeeded,
            probes_failed,
            last_error: self
                .last_error
                .as_ref()
                .map(|(stage, kind, message, at)| LastError {
                    stage: *stage,
                    kind: *kind,
                    message: Arc::clone(message),
                    at: wall(*at),
                }),
            resources: plan
                .slots()
                .map(|(slot, _)| resource_state(shown, plan, slot))
                .collect(),
            credential_expires: self
                .access
                .as_ref()
                .and_then(|access| access.credential().expires()),
            access: self.access.as_ref().map(|access| AccessState {
                endpoint: Arc::clone(access.endpoint().text()),
                ca: access.ca().fingerprint(),
                credential: access.credential().fingerprint(),
            }),
        }
    }

    fn next_attempt(&self, plan: &Plan) -> Option<Instant> {
        if self.published.is_some() {
            return None;
        }
        match &self.building {
            Some(life) => plan
                .slots()
                .filter_map(|(slot, _)| life.resources.next_try(slot))
                .min(),
            None => self.next_build.filter(|_| self.wanted().is_some()),
        }
    }
}

fn resource_state(life: Option<&Life>, plan: &Plan, slot: usize) -> ResourceState {
    let planned = plan.slot(slot);
    let resources = life.map(|life| &life.resources);
    let standing = resources.and_then(|resources| resources.standing(slot));
    ResourceState {
        name: planned.name,
        essential: planned.essential,
        phase: resources.map_or(ResourcePhase::Waiting, |resources| resources.phase(slot)),
        failures: resources.map_or(0, |resources| resources.failures(slot)),
        message: resources
            .and_then(|resources| resources.message(slot))
            .cloned(),
        expires: standing.and_then(|standing| standing.expires),
    }
}
