//! Issuers that a program holds itself.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use clustercache::{ClusterKey, Identity};
use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::sync::Notify;

use crate::{EtcdIssuer, EtcdIssuerSource, IssuerChange, IssuerError};

/// Issuers that a program sets by hand. All clones are one.
///
/// ```
/// use clustercache::ClusterKey;
/// use clustercache_etcd::{EtcdClientKey, EtcdIssuer, MemoryIssuers};
///
/// # fn ca() -> (String, String) { Default::default() }
/// let issuers = MemoryIssuers::new();
/// let provider = EtcdClientKey::per_cluster(issuers.clone());
/// let (certificates, key) = ca();
/// issuers.set(&ClusterKey::named("eu-1"), EtcdIssuer::ca("the CA of eu-1", certificates, key));
/// # let _ = provider;
/// ```
#[derive(Clone, Default)]
pub struct MemoryIssuers(Arc<Issuers>);

#[derive(Default)]
struct Issuers {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    by_cluster: HashMap<ClusterKey, (EtcdIssuer, Option<Identity>)>,
    /// What changed last comes last. One place a cluster: the newest is what counts.
    changes: Vec<(u64, ClusterKey)>,
    number: u64,
}

impl MemoryIssuers {
    /// Without any issuer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The issuer of whichever cluster has this name.
    pub fn set(&self, cluster: &ClusterKey, issuer: EtcdIssuer) {
        self.put(cluster, Some((issuer, None)));
    }

    /// The issuer of just this cluster: another one of the name does not get it.
    pub fn set_of(&self, cluster: &ClusterKey, identity: Identity, issuer: EtcdIssuer) {
        self.put(cluster, Some((issuer, Some(identity))));
    }

    /// There is none any more.
    pub fn remove(&self, cluster: &ClusterKey) {
        self.put(cluster, None);
    }

    fn put(&self, cluster: &ClusterKey, issuer: Option<(EtcdIssuer, Option<Identity>)>) {
        let mut known = self.lock();
        let old = match issuer {
            Some(issuer) => known.by_cluster.insert(cluster.clone(), issuer),
            None => known.by_cluster.remove(cluster),
        };
        known.number += 1;
        let number = known.number;
        known.changes.retain(|(_, changed)| changed != cluster);
        known.changes.push((number, cluster.clone()));
        drop(known);
        drop(old);
        self.0.changed.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first change after this one.
    async fn after(self, last: u64) -> (u64, ClusterKey) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before it is looked at: what comes between the two wakes us.
            changed.as_mut().enable();
            match self.next(last) {
                Some(next) => return next,
                None => changed.await,
            }
        }
    }

    fn next(&self, last: u64) -> Option<(u64, ClusterKey)> {
        let known = self.lock();
        let at = known.changes.partition_point(|(number, _)| *number <= last);
        known.changes.get(at).cloned()
    }
}

#[async_trait]
impl EtcdIssuerSource for MemoryIssuers {
    async fn read(
        &self,
        cluster: &ClusterKey,
        identity: &Identity,
    ) -> Result<EtcdIssuer, IssuerError> {
        let what = || format!("the issuer of {}", cluster.as_str().escape_debug());
        let known = self.lock();
        let found = known.by_cluster.get(cluster);
        let (issuer, whose) = found.ok_or_else(|| IssuerError::Missing { what: what() })?;
        match whose {
            Some(whose) if whose != identity => Err(IssuerError::Foreign {
                what: what(),
                owner: match whose {
                    Identity::Uid(uid) => uid.to_string(),
                    _ => "unknown".to_owned(),
                },
            }),
            _ => Ok(issuer.clone()),
        }
    }

    fn changes(&self) -> BoxStream<'static, Result<IssuerChange, IssuerError>> {
        let issuers = self.clone();
        let changes = stream::unfold((issuers, 0), |(issuers, last)| async move {
            let (number, cluster) = issuers.clone().after(last).await;
            let change = IssuerChange {
                cluster,
                version: None,
            };
            Some((Ok(change), (issuers, number)))
        });
        changes.boxed()
    }
}

impl fmt::Debug for MemoryIssuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.lock().by_cluster.len();
        write!(f, "MemoryIssuers({known} known)")
    }
}
