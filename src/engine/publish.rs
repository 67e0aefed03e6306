//! What readers get to see.

use super::Running;
use crate::{
    ClusterKey,
    registry::{Snapshot, Values},
};

impl Running {
    /// Swaps what readers see of a cluster for what it is now.
    pub(super) fn publish(&self, key: &ClusterKey) {
        let Some(record) = self.clusters.get(key) else {
            return;
        };
        let shared = &self.shared;
        let cluster = &record.cluster;
        let mut values = Values::new(&shared.plan);
        let published = cluster.published();
        let line = published.and_then(|(generation, _)| {
            record
                .lines
                .iter()
                .find(|line| line.connection.generation == generation)
        });
        if let Some(line) = line {
            for (slot, _) in shared
                .plan
                .slots()
                .filter(|(slot, _)| cluster.is_readable(*slot))
            {
                if let Some(up) = line.connection.value(slot) {
                    values.insert(slot, up.value, &*shared.providers[slot].provider);
                }
            }
        }
        let state = cluster.state(&shared.plan, &shared.registry.clock, &self.sources.names);
        let snapshot = Snapshot {
            identity: cluster.identity(),
            generation: published.map(|(generation, _)| generation),
            values,
            state: state.into(),
            vitals: published.map(|(_, vitals)| vitals.clone()),
            probes: cluster.probes().clone(),
            access: cluster.access().cloned(),
        };
        if cluster.is_gone() {
            // Who holds a handle to it reads this last snapshot; nobody else finds it.
            if shared.registry.contains(key) {
                shared.registry.publish(key, snapshot);
                shared.registry.remove(key);
            }
        } else {
            shared.registry.publish(key, snapshot);
        }
    }
}
