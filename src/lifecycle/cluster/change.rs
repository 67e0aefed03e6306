//! What a source's word does to a cluster: the three kinds of change of access, removal with its lingering, gates and refusals.

use std::sync::Arc;

use super::{Action, Claim, Cluster, Cx, Life, Removal};
use crate::{
    AccessChange, Changes, ClusterAccess, Generation, Identity, SourcedAccess, TeardownReason,
    options::GatePolicy,
};

impl Cluster {
    /// What counts for the key changed; `None`: nobody names it any more.
    pub(crate) fn claim(&mut self, claim: Option<Claim>, cx: &mut Cx<'_>) {
        match claim {
            _ if matches!(self.removal, Removal::Shutdown) => return,
            None => self.linger(None, cx),
            // The winner is gone; what a lower source says takes over when the lingering is over.
            Some(claim) if claim.source > self.claim.source && !self.is_gone() => {
                self.linger(Some(claim), cx);
            }
            Some(claim) => self.take_claim(claim, cx),
        }
        self.settle(cx);
    }

    fn linger(&mut self, next: Option<Claim>, cx: &mut Cx<'_>) {
        let next = next.map(Box::new);
        match &mut self.removal {
            Removal::No => {
                self.end_building(TeardownReason::Removed, cx);
                let until = cx.later(cx.options.source.linger);
                self.removal = Removal::Lingers { until, then: next };
            }
            Removal::Lingers { then, .. } => *then = next,
            Removal::Gone | Removal::Shutdown => {}
        }
        cx.tell(Changes::STATE);
        cx.out.push(Action::Publish);
    }

    /// Nobody names it, and the lingering is over.
    pub(super) fn remove(&mut self, cx: &mut Cx<'_>) {
        self.end_all(TeardownReason::Removed, cx);
        self.forget(cx);
        self.removal = Removal::Gone;
        cx.tell(Changes::REMOVED);
    }

    /// Takes a claim that counts now.
    pub(super) fn take_claim(&mut self, claim: Claim, cx: &mut Cx<'_>) {
        if std::mem::replace(&mut self.removal, Removal::No).is_gone() {
            // Its last connections are still on their way out; for everybody else it is named for the first time.
            self.identity += 1;
            cx.out.push(Action::NewIdentity);
            cx.tell(Changes::KNOWN);
        } else if !self.is_same(&claim) {
            // Kind 3: another cluster has the name. Nothing of the old is served from now on.
            self.end_all(TeardownReason::Replaced, cx);
            self.identity += 1;
            self.forget(cx);
            cx.tell(Changes::REPLACED);
        }
        let was_ready =
            self.claim.owned && matches!(self.claim.upsert.access, SourcedAccess::Ready(_));
        self.claim = claim;
        cx.out.push(Action::Publish);
        cx.tell(Changes::STATE);
        if !self.claim.owned {
            return self.close(cx);
        }
        match self.claim.upsert.access.clone() {
            SourcedAccess::Ready(access) => {
                if !was_ready {
                    // It was mended, or let in: nothing that happened before puts it off.
                    self.next_build = None;
                }
                self.take_access(&access, cx);
            }
            SourcedAccess::Refused(_) => self.end_building(TeardownReason::Replaced, cx),
            SourcedAccess::Gated(_) => match cx.options.source.gate {
                GatePolicy::Keep => self.end_building(TeardownReason::Removed, cx),
                GatePolicy::Close => self.close(cx),
            },
        }
    }

    /// Whether a claim speaks of the cluster that we know. Without a UID its CA tells; without an access, nothing says otherwise.
    fn is_same(&self, claim: &Claim) -> bool {
        match (&self.claim.upsert.identity, &claim.upsert.identity) {
            (Identity::Uid(old), Identity::Uid(new)) => old == new,
            (Identity::Uid(_), _) | (_, Identity::Uid(_)) => false,
            _ => match (self.place(), claim.upsert.place()) {
                (Some(old), Some(new)) => old.continues(new),
                _ => true,
            },
        }
    }

    /// Where it is, as far as is known.
    fn place(&self) -> Option<&ClusterAccess> {
        match &self.claim.upsert.identity {
            Identity::ByCaOf(place) => Some(place),
            _ => self.access.as_ref(),
        }
    }

    /// Nothing that was known of the identity is known any more.
    fn forget(&mut self, cx: &mut Cx<'_>) {
        self.access = None;
        self.backoff.reset();
        self.forget_attempts();
        self.seen = None;
        self.last_success = None;
        self.last_probe = None;
        self.stalled = None;
        self.probes = Arc::default();
        self.last_error = None;
        cx.out.push(Action::NewIdentity);
    }

    /// It may not be connected any more, though it is still named. That is nobody's outage.
    fn close(&mut self, cx: &mut Cx<'_>) {
        let had = self.published.is_some();
        self.end_all(TeardownReason::Removed, cx);
        self.forget_attempts();
        if had {
            cx.tell(Changes::REMOVED);
        }
    }

    pub(super) fn end_building(&mut self, reason: TeardownReason, cx: &mut Cx<'_>) {
        if let Some(building) = &self.building {
            self.end(building.generation, reason, cx);
        }
    }

    /// The access as it is now, classified against each living connection's own. What has to be made beside the published connection
    /// then is for [`settle`](Self::settle) to see.
    fn take_access(&mut self, access: &ClusterAccess, cx: &mut Cx<'_>) {
        let known = self.access.replace(access.clone());
        if known
            .as_ref()
            .is_some_and(|known| known.is_identical(access))
        {
            return;
        }
        cx.tell(Changes::ACCESS);
        if known.as_ref() == Some(access) {
            // It is known better when it ends: shown, and nothing else.
            return self.prolong(access, cx);
        }
        // New access is tried at once, whatever waited.
        self.next_build = None;
        let change = |life: &Life| life.access.change_to(access);
        // Also where the access is that of the published connection again: then none is needed.
        if self.building.as_deref().map(change) == Some(AccessChange::Endpoint) {
            self.end_building(TeardownReason::Replaced, cx);
        }
        for generation in self.lives() {
            if self.life(generation).map(change) == Some(AccessChange::Credential) {
                self.take_credential(generation, access, cx);
            }
        }
    }

    fn prolong(&mut self, access: &ClusterAccess, cx: &mut Cx<'_>) {
        let lives = self.published.iter_mut().chain(&mut self.building);
        for life in lives.filter(|life| life.access == *access) {
            life.access = access.clone();
            cx.out.push(Action::SetAccess {
                generation: life.generation,
                access: access.clone(),
            });
        }
    }

    /// Kind 1: a credential is taken in place.
    fn take_credential(&mut self, generation: Generation, access: &ClusterAccess, cx: &mut Cx<'_>) {
        let lives = self.published.iter_mut().chain(&mut self.building);
        for life in lives.filter(|life| life.generation == generation) {
            life.access = access.clone();
        }
        cx.out.push(Action::SetAccess {
            generation,
            access: access.clone(),
        });
        self.detect(generation, cx, |detector, now, _| {
            detector.new_access(now.at);
        });
        self.step(generation, cx, |resources, rules, steps| {
            resources.new_access(rules, steps);
        });
    }
}
