//! How a fake cluster is reached, who is let in, what was shown to which endpoint, and who it is: its CA.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use super::{
    FakeCluster, FleetError,
    access::{FakeAccess, FakeCredential},
    endpoint::Endpoint,
    tls::Identity,
};
use crate::pki::{ClusterCa, PkiError, Validity};

/// Where it is and how it is reached.
impl FakeCluster {
    /// The name that it was started with.
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// The address of the current endpoint.
    pub fn addr(&self) -> SocketAddr {
        self.endpoint().addr
    }

    /// `https://ADDRESS:PORT` of the current endpoint, which is on loopback.
    pub fn url(&self) -> String {
        url(self.addr())
    }

    pub(super) fn endpoint(&self) -> Arc<Endpoint> {
        self.inner()
            .endpoints
            .lock()
            .last()
            .expect("a cluster has an endpoint from its start on")
            .clone()
    }

    /// The addresses of all endpoints that it ever had, oldest first; the last is the current one.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.inner()
            .endpoints
            .lock()
            .iter()
            .map(|endpoint| endpoint.addr)
            .collect()
    }

    /// The certificate of the CA, as PEM.
    pub fn ca_pem(&self) -> String {
        self.inner().identity.lock().ca.pem()
    }

    /// Access with the current endpoint, CA and token.
    pub fn access(&self) -> FakeAccess {
        self.access_with(FakeCredential::Token(self.token()))
    }

    /// Access with the current endpoint and CA, and a credential of the caller's choice.
    pub fn access_with(&self, credential: FakeCredential) -> FakeAccess {
        FakeAccess {
            name: self.name().to_owned(),
            url: self.url(),
            ca_pem: self.ca_pem(),
            credential,
        }
    }

    /// A new client certificate for `common_name` by the current CA. It lets in only an accepted user, see
    /// [`accept_user`](Self::accept_user).
    pub fn client_certificate(
        &self,
        common_name: &str,
        validity: Validity,
    ) -> Result<FakeCredential, PkiError> {
        let leaf = self
            .identity()
            .ca
            .client(common_name, Some("system:masters"), validity)?;
        Ok(FakeCredential::Certificate {
            certificate_pem: leaf.certificate_pem(),
            key_pem: leaf.key_pem(),
        })
    }

    /// A kubeconfig with one context, named as the cluster: current endpoint, CA and token, all inline.
    pub fn kubeconfig(&self) -> String {
        self.access().kubeconfig()
    }
}

/// Who is let in, and what was shown.
impl FakeCluster {
    /// The current token.
    pub fn token(&self) -> String {
        self.inner().auth.current()
    }

    /// All tokens that are valid now.
    pub fn valid_tokens(&self) -> BTreeSet<String> {
        self.inner().auth.valid()
    }

    /// Makes a new token the current one and the only valid one. From the next request on the others are answered 401.
    pub fn rotate_token(&self) -> String {
        self.new_token(false)
    }

    /// Makes a new token the current one; the others stay valid.
    pub fn add_token(&self) -> String {
        self.new_token(true)
    }

    fn new_token(&self, keep_old: bool) -> String {
        let token = new_token(self.name());
        self.inner().auth.rotate(&token, keep_old);
        token
    }

    /// Lets in a token of the caller's choice, beside the others; the current one stays.
    pub fn accept_token(&self, token: &str) {
        self.inner().auth.accept_token(token);
    }

    /// No longer lets in a token.
    pub fn revoke_token(&self, token: &str) {
        self.inner().auth.revoke_token(token);
    }

    /// Lets in certificates of the CA with this common name, beside the others.
    pub fn accept_user(&self, common_name: &str) {
        self.inner().auth.accept_user(common_name);
    }

    /// No longer lets in certificates with this common name.
    pub fn reject_user(&self, common_name: &str) {
        self.inner().auth.reject_user(common_name);
    }

    /// All tokens that were ever shown to any of its endpoints, valid or not.
    pub fn seen_tokens(&self) -> BTreeSet<String> {
        self.inner().auth.seen()
    }

    /// All tokens that were ever shown to one of its endpoints, valid or not.
    pub fn seen_tokens_at(&self, endpoint: SocketAddr) -> BTreeSet<String> {
        self.inner().auth.seen_at(endpoint)
    }
}

/// Its identity.
impl FakeCluster {
    /// Renews the CA with the key that it has: the same cluster. New handshakes see a certificate by the new CA.
    pub fn renew_ca(&self) -> Result<(), FleetError> {
        let ca = self.identity().ca.renewed()?;
        self.present(ca, Validity::years())
    }

    /// Becomes another cluster at the same address: another CA, another token, other UIDs, none of the old objects.
    /// Open connections end.
    pub fn replace(&self) -> Result<(), FleetError> {
        let ca = ClusterCa::new(&format!("{}-ca", self.name()))?;
        self.present(ca, Validity::years())?;
        self.rotate_token();
        self.api().replace();
        self.close_connections();
        Ok(())
    }

    /// Presents a server certificate of this validity to new handshakes.
    pub fn present_certificate(&self, validity: Validity) -> Result<(), FleetError> {
        self.present(self.identity().ca, validity)
    }

    fn identity(&self) -> Identity {
        self.inner().identity.lock().clone()
    }

    fn present(&self, ca: ClusterCa, validity: Validity) -> Result<(), FleetError> {
        let identity = self.identity().with(ca, validity);
        // So that what is wrong is said here.
        identity.config()?;
        *self.inner().identity.lock() = identity;
        Ok(())
    }
}

pub(super) fn url(addr: SocketAddr) -> String {
    format!("https://{addr}")
}

pub(super) fn new_token(name: &str) -> String {
    format!("{name}.{:032x}", fastrand::u128(..))
}
