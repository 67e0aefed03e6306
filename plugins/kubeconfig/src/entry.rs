//! One entry of a document's lists: a cluster, a user or a context, judged by itself, so that what is wrong with one is the matter of
//! those contexts only that use it.

use std::{path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use clustercache::{AccessError, ClusterAccess};
use zeroize::Zeroizing;

use crate::{
    Refusal, RefusalReason,
    allow::{CONTEXT, Fields},
    exec::{Issued, Spec},
    material::{Bytes, Contents},
    policy::Grants,
    refusal::Place,
    tree::Node,
};

mod cluster;
mod user;

pub(crate) use cluster::Cluster;
pub(crate) use user::User;

/// An entry of a list; the same whatever its kind.
pub(crate) trait Entry: Sized {
    /// The field that has the list.
    const LIST: &'static str;
    /// The field of an item that has the entry.
    const FIELD: &'static str;

    fn judge(node: Node, grants: Grants<'_>, place: Place) -> Result<Self, Refusal>;
}

/// Which user at which cluster.
pub(crate) struct Context {
    place: Place,
    pub(crate) cluster: String,
    pub(crate) user: String,
}

impl Entry for Context {
    const LIST: &'static str = "contexts";
    const FIELD: &'static str = "context";

    fn judge(node: Node, grants: Grants<'_>, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, CONTEXT, grants, place.clone())?;
        Ok(Self {
            place,
            cluster: fields.needed("cluster")?.to_string(),
            user: fields.needed("user")?.to_string(),
        })
    }
}

impl Context {
    pub(crate) fn place(&self, field: &str) -> Place {
        self.place.field(field)
    }
}

/// A user at a cluster: all that a context means.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) user: Arc<User>,
}

/// How a context's cluster is reached.
pub(crate) enum Reach {
    Now(ClusterAccess),
    /// Once a program has given a credential.
    By(Program),
}

/// A context that waits for what a program says.
pub(crate) struct Program {
    pair: Pair,
    ca: Option<Bytes>,
    /// Where the cluster is: known before the program has said who we are.
    pub(crate) site: ClusterAccess,
    pub(crate) spec: Arc<Spec>,
}

impl Pair {
    /// The files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.cluster.files().chain(self.user.files())
    }

    pub(crate) fn reach(&self, contents: &Contents) -> Result<Reach, Refusal> {
        let ca = self.cluster.read_ca(contents)?;
        if let Some(exec) = self.user.exec() {
            // So that what is wrong with the cluster is told before a program is run for it.
            let site = self.cluster.site(ca.as_ref())?;
            let info = exec.wants_cluster().then(|| self.cluster.info(ca.as_ref()));
            return Ok(Reach::By(Program {
                spec: Arc::new(exec.spec(info)),
                pair: self.clone(),
                ca,
                site,
            }));
        }
        let builder = self.cluster.builder(ca.as_ref());
        let builder = self.user.give_to(builder, contents)?;
        let built = builder.build().map_err(|error| {
            let place = self.user.blamed(&error);
            access(&place.unwrap_or_else(|| self.cluster.blamed(&error)), error)
        })?;
        Ok(Reach::Now(built))
    }
}

impl Program {
    pub(crate) fn access(&self, issued: &Issued) -> Result<ClusterAccess, Refusal> {
        let builder = self.pair.cluster.builder(self.ca.as_ref());
        let builder = issued.give_to(self.pair.user.impersonate(builder));
        // Both were built alone, so this does not fail; if it did, it would be the user's fault.
        builder.build().map_err(|error| access(self.place(), error))
    }

    /// Of the program.
    pub(crate) fn place(&self) -> &Place {
        &self.spec.place
    }
}

/// Base64 as client-go takes it: padded, and with line breaks, which a block scalar leaves in.
fn decoded(text: Zeroizing<String>, place: &Place) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut dense = text;
    dense.retain(|c| !c.is_ascii_whitespace());
    STANDARD
        .decode(dense.as_bytes())
        .map(Zeroizing::new)
        .map_err(|_| place.refuse(RefusalReason::Base64))
}

fn access(place: &Place, error: AccessError) -> Refusal {
    place.refuse(RefusalReason::Access(Arc::new(error)))
}
