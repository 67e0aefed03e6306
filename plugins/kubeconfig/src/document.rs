//! A document, read and judged: what it names, and the access or the refusal of each of its contexts. Nothing here opens a file, runs
//! a program or reads the environment (rule 17 of the design).

use std::{collections::BTreeMap, fmt, sync::Arc};

use clustercache::ClusterAccess;

use crate::{
    Policy, Refusal, RefusalReason,
    allow::{DOCUMENT, Fields, wrong},
    entry::{Cluster, Context, Entry, User},
    refusal::Place,
    tree::{self, Node},
};

/// A kubeconfig that was read, and found to be one. Cheap to clone; its secrets do not print.
///
/// What is wrong with an entry (a user with a program to run, a cluster without a CA) is the matter of the contexts that use it: they
/// are refused and the others are not. An entry that no context uses is never looked at again.
///
/// ```
/// use clustercache_kubeconfig::{Kubeconfig, Policy, RefusalReason};
///
/// let text = br"
/// apiVersion: v1
/// kind: Config
/// clusters: [{name: c, cluster: {server: 'http://10.0.0.1'}}]
/// users: [{name: u, user: {exec: {command: aws}}}]
/// contexts: [{name: dev, context: {cluster: c, user: u}}]
/// current-context: dev
/// ";
/// let kubeconfig = Kubeconfig::parse(text, &Policy::tenant())?;
/// let (name, access) = kubeconfig.contexts().next().unwrap();
/// let refusal = access.unwrap_err();
/// assert_eq!((name, refusal.path()), ("dev", "clusters[0].cluster.certificate-authority-data"));
/// # Ok::<(), clustercache_kubeconfig::Refusal>(())
/// ```
#[derive(Clone)]
pub struct Kubeconfig {
    pub(crate) clusters: Entries<Cluster>,
    pub(crate) users: Entries<User>,
    pub(crate) contexts: Entries<Context>,
    pub(crate) current: Option<(String, Place)>,
    /// Those of the three lists that the document has, be they empty.
    pub(crate) lists: Vec<&'static str>,
    place: Place,
}

/// The entries of a list by their names.
pub(crate) type Entries<T> = BTreeMap<String, Result<Arc<T>, Refusal>>;

impl Kubeconfig {
    /// Reads a document: YAML or JSON, of at most as many bytes as the policy says. Fails for what concerns the whole of it: the
    /// form, fields at its top that are not known, names that are missing or not unique.
    pub fn parse(bytes: &[u8], policy: &Policy) -> Result<Self, Refusal> {
        Self::parse_from(bytes, policy, None)
    }

    /// The same for a document with a name, which its refusals tell.
    pub(crate) fn parse_from(
        bytes: &[u8],
        policy: &Policy,
        origin: Option<&Arc<str>>,
    ) -> Result<Self, Refusal> {
        let node = tree::parse(bytes, policy.limit(), origin)?;
        let place = Place::root(origin);
        let mut fields = Fields::judge(node, DOCUMENT, place.clone())?;
        for (name, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
            // kubectl takes a document without them.
            if fields
                .text(name)?
                .is_some_and(|said| !said.is_empty() && *said != expected)
            {
                let reason = RefusalReason::NotAKubeconfig { expected };
                return Err(place.field(name).refuse(reason));
            }
        }
        let lists = [Cluster::LIST, Context::LIST, User::LIST];
        let lists = lists.into_iter().filter(|list| fields.has(list)).collect();
        let current = fields
            .text("current-context")?
            .filter(|name| !name.is_empty());
        Ok(Self {
            clusters: entries(&mut fields)?,
            users: entries(&mut fields)?,
            contexts: entries(&mut fields)?,
            current: current.map(|name| (name.to_string(), fields.place("current-context"))),
            lists,
            place,
        })
    }

    /// The contexts by name, each with the way to its cluster or with why there is none.
    pub fn contexts(&self) -> impl Iterator<Item = (&str, Result<ClusterAccess, Refusal>)> {
        self.contexts
            .iter()
            .map(|(name, context)| (name.as_str(), self.access(context)))
    }

    /// The context that `current-context` names, and the way to its cluster. Fails if it names none, or one that is not there.
    pub fn current(&self) -> Result<(&str, ClusterAccess), Refusal> {
        let Some((name, place)) = &self.current else {
            let place = self.place.field("current-context");
            return Err(place.refuse(RefusalReason::Missing));
        };
        let context = self
            .contexts
            .get(name)
            .ok_or_else(|| place.refuse(RefusalReason::Dangling { what: "a context" }))?;
        Ok((name, self.access(context)?))
    }

    fn access(&self, context: &Result<Arc<Context>, Refusal>) -> Result<ClusterAccess, Refusal> {
        let context = context.as_ref().map_err(Clone::clone)?;
        let dangling = |field, what| {
            let reason = RefusalReason::Dangling { what };
            context.place(field).refuse(reason)
        };
        let cluster = self.clusters.get(&context.cluster);
        let cluster = cluster.ok_or_else(|| dangling("cluster", "a cluster"))?;
        let user = self.users.get(&context.user);
        let user = user.ok_or_else(|| dangling("user", "a user"))?;
        match (cluster, user) {
            (Ok(cluster), Ok(user)) => context.access(cluster, user),
            (Err(refusal), _) | (_, Err(refusal)) => Err(refusal.clone()),
        }
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("contexts", &self.contexts.keys())
            .finish_non_exhaustive()
    }
}

/// The entries of a list. Without a name nobody can use one, and with one name for two nobody knows which is meant: both concern the
/// document, as they do for kubectl.
fn entries<T: Entry>(fields: &mut Fields) -> Result<Entries<T>, Refusal> {
    let list = fields.place(T::LIST);
    let mut entries = Entries::new();
    for (index, item) in fields.list(T::LIST)?.into_iter().enumerate() {
        let place = list.item(index);
        let Node::Map(mut item) = item else {
            return Err(wrong(&place, "a mapping with a name"));
        };
        let named = place.field("name");
        let name = match item.remove("name").filter(|name| !name.is_null()) {
            Some(Node::Text { text, .. }) if !text.is_empty() => text.to_string(),
            None | Some(Node::Text { .. }) => return Err(named.refuse(RefusalReason::Missing)),
            Some(_) => return Err(wrong(&named, "text")),
        };
        let entry = item.remove(T::FIELD).unwrap_or(Node::Map(BTreeMap::new()));
        let entry = match item.keys().next() {
            Some(unknown) => Err(place.field(unknown).refuse(RefusalReason::UnknownField)),
            None => T::judge(entry, place.field(T::FIELD)).map(Arc::new),
        };
        if entries.insert(name, entry).is_some() {
            return Err(named.refuse(RefusalReason::DuplicateName));
        }
    }
    Ok(entries)
}
