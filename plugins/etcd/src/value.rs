//! What readers get: the newest certificate of a cluster, whoever renews it.

use std::{fmt, sync::Arc};

use clustercache::IdentityHandle;

use crate::{CurrentError, IssuedCertificate, tenant::Tenant};

/// The etcd client certificate of a cluster. It is renewed in place: ask for [`current`](Self::current) at each new connection to etcd.
pub struct EtcdCertificate {
    /// The tenant's own: here it is found without a step through memory.
    identity: IdentityHandle,
    tenant: Arc<Tenant>,
}

impl EtcdCertificate {
    pub(crate) fn of(tenant: Arc<Tenant>) -> Self {
        Self {
            identity: tenant.identity().clone(),
            tenant,
        }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The newest that is valid. Never waits. What was handed out stays whole, and is valid until it ends or its CA is taken from etcd.
    ///
    /// It goes on over reconnects, and ends with the cluster's identity: a handle to a cluster that was replaced by another of its name has
    /// nothing more.
    #[inline]
    pub fn current(&self) -> Result<Arc<IssuedCertificate>, CurrentError> {
        let newest = self.tenant.newest();
        if !self.identity.is_current() {
            return Err(CurrentError::Retired);
        }
        newest.ok_or(CurrentError::Expired)
    }
}

impl fmt::Debug for EtcdCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdCertificate")
            .field(&self.current())
            .finish()
    }
}
