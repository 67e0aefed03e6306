//! A document, read and judged: what it names, and the access or the refusal of each of its contexts. Nothing here opens a file, runs
//! a program or reads the environment (rule 17 of the design); what a file's document needs of that is told to the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clustercache::ClusterAccess;

use crate::{
    Policy, Refusal, RefusalReason,
    allow::{DOCUMENT, Fields, wrong},
    entry::{Cluster, Context, Entry, Pair, Reach, User},
    material::Contents,
    policy::Grants,
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
/// assert_eq!((name, refusal.path()), ("dev", "clusters[0].cluster.server"));
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
    ///
    /// No file is opened and no program is run for it, whatever the policy: that is for [`KubeconfigFile`](crate::KubeconfigFile), and
    /// a context that needs it is refused here.
    pub fn parse(bytes: &[u8], policy: &Policy) -> Result<Self, Refusal> {
        Self::parse_from(bytes, policy, None)
    }

    /// The same for a document that is a file's, which its refusals tell: it may name others, from its own directory.
    pub(crate) fn parse_from(
        bytes: &[u8],
        policy: &Policy,
        file: Option<&Path>,
    ) -> Result<Self, Refusal> {
        let origin = file.map(|file| Arc::from(file.to_string_lossy()));
        let grants = Grants {
            policy,
            directory: file.and_then(Path::parent),
        };
        let node = tree::parse(bytes, policy.limit(), origin.as_ref())?;
        let place = Place::root(origin.as_ref());
        let mut fields = Fields::judge(node, DOCUMENT, grants, place.clone())?;
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
            clusters: entries(&mut fields, grants)?,
            users: entries(&mut fields, grants)?,
            contexts: entries(&mut fields, grants)?,
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

    /// The contexts by name, each with what it takes to reach its cluster, given what the files that it names have in them.
    pub(crate) fn reaches(
        &self,
        contents: &Contents,
    ) -> impl Iterator<Item = (&str, Result<Reach, Refusal>)> {
        self.contexts.iter().map(|(name, context)| {
            let pair = self.pair(context);
            (name.as_str(), pair.and_then(|pair| pair.reach(contents)))
        })
    }

    /// The files that its contexts name.
    pub(crate) fn files(&self) -> BTreeSet<PathBuf> {
        let pairs = self
            .contexts
            .values()
            .filter_map(|context| self.pair(context).ok());
        let mut files = BTreeSet::new();
        pairs.for_each(|pair| files.extend(pair.files().map(Path::to_owned)));
        files
    }

    fn access(&self, context: &Result<Arc<Context>, Refusal>) -> Result<ClusterAccess, Refusal> {
        match self.pair(context)?.reach(&Contents::new())? {
            Reach::Now(access) => Ok(access),
            // Of a document that is no file's, the allow-list has refused it.
            Reach::By(program) => Err(program.place().refuse(RefusalReason::Exec)),
        }
    }

    fn pair(&self, context: &Result<Arc<Context>, Refusal>) -> Result<Pair, Refusal> {
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
            (Ok(cluster), Ok(user)) => Ok(Pair {
                cluster: Arc::clone(cluster),
                user: Arc::clone(user),
            }),
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
fn entries<T: Entry>(fields: &mut Fields, grants: Grants<'_>) -> Result<Entries<T>, Refusal> {
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
            None => T::judge(entry, grants, place.field(T::FIELD)).map(Arc::new),
        };
        if entries.insert(name, entry).is_some() {
            return Err(named.refuse(RefusalReason::DuplicateName));
        }
    }
    Ok(entries)
}
