//! What a source's word does to a cluster: the three kinds of change of access, removal with its lingering, gates and refusals.

use super::{Action, Because, Claim, Cluster, Cx, Removal};
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
            Some(claim) => {
                self.removal = Removal::No;
                self.take_claim(claim, cx);
            }
        }
        self.settle(cx);
    }

    fn linger(&mut self, next: Option<Claim>, cx: &mut Cx<'_>) {
        match &mut self.removal {
            Removal::No => {
                self.end_building(TeardownReason::Removed, cx);
                let until = cx.now + cx.options.source.linger;
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
        if !self.is_same(&claim) {
            // Kind 3: another cluster has the name. Nothing of the old is served from now on.
            self.end_all(TeardownReason::Replaced, cx);
            self.identity += 1;
            self.forget(cx);
            cx.tell(Changes::REPLACED);
        }
        self.claim = claim;
        cx.out.push(Action::Publish);
        cx.tell(Changes::STATE);
        if !self.claim.owned {
            return self.close(cx);
        }
        match self.claim.upsert.access.clone() {
            SourcedAccess::Ready(access) => self.take_access(access, cx),
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
            (Identity::ByCa, Identity::ByCa) => match (&self.access, &claim.upsert.access) {
                (Some(old), SourcedAccess::Ready(new)) => old.continues(new),
                _ => true,
            },
            _ => false,
        }
    }

    /// Nothing that was known of the identity is known any more.
    fn forget(&mut self, cx: &mut Cx<'_>) {
        self.access = None;
        self.backoff.reset();
        self.next_build = None;
        self.was_down = false;
        self.attempts = 0;
        self.first_failure = None;
        self.last_success = None;
        self.last_probe = None;
        self.last_error = None;
        cx.out.push(Action::NewIdentity);
    }

    /// It may not be connected any more, though it is still named.
    fn close(&mut self, cx: &mut Cx<'_>) {
        let had = self.published.is_some();
        self.end_all(TeardownReason::Removed, cx);
        if had {
            cx.tell(Changes::REMOVED);
        }
    }

    fn end_building(&mut self, reason: TeardownReason, cx: &mut Cx<'_>) {
        if let Some(building) = &self.building {
            self.end(building.generation, reason, cx);
        }
    }

    /// The access as it is now, classified against each living connection's own.
    fn take_access(&mut self, access: ClusterAccess, cx: &mut Cx<'_>) {
        if self.access.as_ref() == Some(&access) {
            return;
        }
        self.access = Some(access.clone());
        cx.tell(Changes::ACCESS);
        // New access is tried at once, whatever waited.
        self.next_build = None;
        let of_published = self
            .published
            .as_ref()
            .map(|life| life.access.change_to(&access));
        let (of_building, because) = match &self.building {
            Some(life) => (life.access.change_to(&access), life.because),
            None => (AccessChange::None, Because::First),
        };
        let published_can = matches!(
            of_published,
            Some(AccessChange::None | AccessChange::Credential)
        );
        // A replacement that was for an endpoint is not needed when the published connection can have the access.
        if of_building == AccessChange::Endpoint || (published_can && because == Because::Access) {
            self.end_building(TeardownReason::Replaced, cx);
        }
        let lives = self.published.iter().chain(&self.building);
        let in_place =
            lives.filter(|life| life.access.change_to(&access) == AccessChange::Credential);
        for generation in in_place.map(|life| life.generation).collect::<Vec<_>>() {
            self.take_credential(generation, &access, cx);
        }
    }

    /// Kind 1: a credential is taken in place.
    fn take_credential(&mut self, generation: Generation, access: &ClusterAccess, cx: &mut Cx<'_>) {
        for life in self.published.iter_mut().chain(&mut self.building) {
            if life.generation == generation {
                life.access = access.clone();
                if let Some(detector) = &mut life.detector {
                    detector.new_access(cx.now);
                }
            }
        }
        cx.out.push(Action::SetAccess {
            generation,
            access: access.clone(),
        });
        self.step(generation, cx, |resources, rules, steps| {
            resources.new_access(rules, steps)
        });
    }
}
