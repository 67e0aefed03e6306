//! Permits to dial: fair between clusters, bounded in descriptors, CPU and rate.

use crate::{ClusterKey, options::DialOptions};

/// Hands out permits.
pub(crate) struct DialPool {}

/// Leave to dial once. Dropping it gives it back.
pub struct DialPermit {}

impl DialPool {
    pub(crate) fn new(options: &DialOptions) -> Self {
        let _ = options;
        todo!()
    }

    /// Waits for a permit. `failures`: how often this cluster was dialled in vain, in a row. Dropping the future gives up the place.
    pub(crate) async fn permit(&self, key: &ClusterKey, failures: u32) -> DialPermit {
        let _ = (key, failures);
        todo!()
    }
}

impl DialPermit {
    /// The first byte from the other side has come: the dial is silent no more, and waits for its turn as a handshake.
    pub async fn received(&mut self) {
        todo!()
    }

    /// Returns when the dial must be given up, because it has been silent for long and a newer cluster needs the descriptor.
    pub async fn evicted(&self) {
        todo!()
    }
}
