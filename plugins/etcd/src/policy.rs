//! How long a private key is used, and by whom.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    EtcdKeyCounts, IssueError, KeyAlgorithm,
    flight::Flight,
    key::ClientKey,
    work::{self, Kind},
};

/// Whose a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// A cluster's, for as long as it is known.
    PerCluster,
    /// One certificate's.
    PerCertificate,
    /// The whole process's: one of each algorithm that is asked for.
    Shared,
}

/// A key that is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) algorithm: KeyAlgorithm,
    /// It must have been made after the key was rotated so often.
    pub(crate) rotation: u64,
    /// It must not be older.
    pub(crate) max_age: Option<Duration>,
}

/// A key that is used for several certificates. It is made once, whoever wants it, and dropped with its last user when another is made.
#[derive(Default)]
pub(crate) struct KeyCell {
    key: Mutex<Option<(u64, Arc<ClientKey>)>>,
    flight: Arc<Flight>,
}

impl KeyCell {
    pub(crate) async fn get(
        self: &Arc<Self>,
        wanted: Wanted,
        counts: &Arc<EtcdKeyCounts>,
    ) -> Result<Arc<ClientKey>, IssueError> {
        loop {
            if let Some(key) = self.has(wanted) {
                return Ok(key);
            }
            let making = || Arc::clone(self).make(wanted, Arc::clone(counts));
            self.flight.join(making).landed().await?;
        }
    }

    /// The key, if it is as wanted.
    pub(crate) fn has(&self, wanted: Wanted) -> Option<Arc<ClientKey>> {
        let key = self.lock();
        let (rotation, key) = key.as_ref()?;
        let age = key.born.elapsed();
        let is_it = key.algorithm == wanted.algorithm
            && *rotation >= wanted.rotation
            && wanted.max_age.is_none_or(|most| age < most);
        is_it.then(|| Arc::clone(key))
    }

    /// Nobody will want it any more.
    pub(crate) fn clear(&self) {
        let old = self.lock().take();
        drop(old);
    }

    async fn make(
        self: Arc<Self>,
        wanted: Wanted,
        counts: Arc<EtcdKeyCounts>,
    ) -> Result<(), IssueError> {
        let key = generate(wanted.algorithm, &counts).await?;
        let old = self.lock().replace((wanted.rotation, Arc::new(key)));
        drop(old);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, Arc<ClientKey>)>> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a key, and counts it.
pub(crate) async fn generate(
    algorithm: KeyAlgorithm,
    counts: &EtcdKeyCounts,
) -> Result<ClientKey, IssueError> {
    if !algorithm.is_available() {
        return Err(IssueError::Unavailable { algorithm });
    }
    let begun = Instant::now();
    let mut key = work::run(Kind::Key, move || ClientKey::generate(algorithm, begun)).await?;
    // Neither its turn nor its making counts as its age: one that took longer than its most would be made again for ever.
    key.born = Instant::now();
    counts.key();
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::{num::NonZero, sync::mpsc, thread::available_parallelism};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_longer_for_its_turn_than_it_may_be_old_is_made_once() {
        let age = Duration::from_secs(2);
        let wanted = Wanted {
            algorithm: KeyAlgorithm::Ed25519,
            rotation: 0,
            max_age: Some(age),
        };
        let (cell, counts) = (Arc::<KeyCell>::default(), Arc::<EtcdKeyCounts>::default());
        // Somebody else's keys have all turns.
        let turns = available_parallelism().map_or(1, NonZero::get);
        let others = (0..turns).map(|_| {
            let (end, ended) = mpsc::channel::<()>();
            let making = move || ended.recv().map_err(|_| IssueError::Retired);
            tokio::spawn(work::run(Kind::Key, making));
            end
        });
        let others: Vec<_> = others.collect();
        let asked = tokio::spawn({
            let (cell, counts) = (Arc::clone(&cell), Arc::clone(&counts));
            async move { cell.get(wanted, &counts).await }
        });
        // Until it waits: one task after the other has its first turn.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(age * 2).await;
        drop(others);
        asked.await.unwrap().unwrap();
        assert_eq!(counts.keys(), 1);
    }
}
