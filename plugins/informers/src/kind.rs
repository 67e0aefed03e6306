//! What of a cluster is to be at hand: a kind, which of its objects, how they are kept, and by what they are found.

use std::{any::TypeId, borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use kube::{
    Resource,
    core::{ApiResource, DynamicObject, GroupVersionKind, Selector},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    entry::{DraftKeys, Kept},
    error::Misplaced,
    json::Paths,
    recipe::{AnyObject, Made, Making, Recipe},
};

/// How objects are kept.
///
/// | | a pod of 3.5 KB of JSON takes | a read | on arrival |
/// | --- | --- | --- | --- |
/// | decoded | 18 KB | a few tens of nanoseconds | is decoded |
/// | encoded | 3.7 KB | is decoded: 15 µs | is walked through once |
///
/// Encoded is right for what is read one by one, by key or by index; decoded for what is read in bulk, at each reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// As `Arc<K>`.
    Decoded,
    /// As the JSON that they came in, decoded at each read. A transform, or an index by a closure, decodes them on arrival too.
    Encoded,
}

/// Objects of a kind that are to be at hand in each cluster, read as `T`s: `K` itself, unless they are [projected](Self::project).
///
/// ```
/// use clustercache_informers::{Keep, Kind};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let pods = Kind::<Pod>::new()
///     .labels("app=web")
///     .index_field("node", "spec.nodeName")
///     .index("owner", |pod: &Pod| {
///         let owners = pod.metadata.owner_references.iter().flatten();
///         owners.map(|owner| owner.uid.clone()).collect::<Vec<_>>()
///     })
///     .keep(Keep::Decoded);
/// # let _ = pods;
/// ```
#[must_use]
pub struct Kind<K, T = K> {
    what: What,
    keep: Keep,
    keeps_managed: bool,
    essential: bool,
    indexes: Vec<(Cow<'static, str>, By<K>)>,
    transform: Option<TransformFn<K>>,
    project: Option<ProjectFn<K, T>>,
    read: PhantomData<fn() -> T>,
}

type KeysFn<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;
type TransformFn<K> = Arc<dyn Fn(&mut K) + Send + Sync>;
type ProjectFn<K, T> = Arc<dyn Fn(K) -> T + Send + Sync>;

enum By<K> {
    Path(Cow<'static, str>),
    Keys(KeysFn<K>),
}

/// Which objects.
#[derive(Clone)]
pub(crate) struct What {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) plural: String,
    /// Of their metadata only.
    pub(crate) metadata: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl What {
    /// As it is named in errors: `pods`, `deployments.apps`.
    pub(crate) fn resource(&self) -> String {
        match &*self.gvk.group {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

impl<K> Kind<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
{
    /// All objects of a type, in all namespaces, kept encoded. Of a [`PartialObjectMeta`](kube::core::PartialObjectMeta) nothing but
    /// the metadata is asked for.
    pub fn new() -> Self {
        Self::of(&())
    }
}

impl<K> Default for Kind<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl Kind<DynamicObject> {
    /// All objects of a kind that is not known at compile time.
    pub fn dynamic(resource: &ApiResource) -> Self {
        Self::of(resource)
    }
}

impl<K> Kind<K>
where
    K: Resource + DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
{
    /// All objects of a kind that is named at run time, such as a [`PartialObjectMeta`](kube::core::PartialObjectMeta) of a dynamic one.
    pub fn of(kind: &K::DynamicType) -> Self {
        let gvk = GroupVersionKind {
            group: K::group(kind).into(),
            version: K::version(kind).into(),
            kind: K::kind(kind).into(),
        };
        Self {
            what: What {
                gvk,
                plural: K::plural(kind).into(),
                metadata: K::metadata_api(),
                namespace: None,
                labels: None,
                fields: None,
            },
            keep: Keep::Encoded,
            keeps_managed: false,
            essential: true,
            indexes: Vec::new(),
            transform: None,
            project: None,
            read: PhantomData,
        }
    }

    /// What is kept, and read, is what `project` makes of an object: a type of your own, with the few fields that you need. Its bytes are taken
    /// for the size of the type.
    pub fn project<T: Send + Sync + 'static>(
        self,
        project: impl Fn(K) -> T + Send + Sync + 'static,
    ) -> Kind<K, T> {
        Kind {
            what: self.what,
            keep: self.keep,
            keeps_managed: self.keeps_managed,
            essential: self.essential,
            indexes: self.indexes,
            transform: self.transform,
            project: Some(Arc::new(project)),
            read: PhantomData,
        }
    }
}

impl<K, T> Kind<K, T> {
    /// Only those in a namespace.
    pub fn within(mut self, namespace: impl Into<String>) -> Self {
        self.what.namespace = Some(namespace.into());
        self
    }

    /// Only those with these labels, as in `kubectl get -l`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.what.labels = Some(selector.into());
        self
    }

    /// As [`labels`](Self::labels), typed.
    pub fn labels_from(self, selector: &Selector) -> Self {
        self.labels(selector.to_string())
    }

    /// Only those with these fields, as in `kubectl get --field-selector`. The servers select: by which fields is theirs to say.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.what.fields = Some(selector.into());
        self
    }

    /// How objects are kept. Default: [`Keep::Encoded`].
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// `metadata.managedFields` stays; else it is cut out on arrival, before anything else is done.
    pub fn keep_managed_fields(mut self) -> Self {
        self.keeps_managed = true;
        self
    }

    /// A cluster counts as connected without it: no `init` waits for it, and nothing fails with it but its own reads.
    pub fn best_effort(mut self) -> Self {
        self.essential = false;
        self
    }

    /// What is kept of an object is what this leaves of it.
    pub fn transform(mut self, transform: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Objects are found by the keys that this gives: none, one, or several.
    pub fn index<I>(
        mut self,
        name: impl Into<Cow<'static, str>>,
        keys: impl Fn(&K) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let keys: KeysFn<K> =
            Arc::new(move |object: &K| keys(object).into_iter().map(Into::into).collect());
        self.indexes.push((name.into(), By::Keys(keys)));
        self
    }

    /// Objects are found by what they have at a path, such as `spec.nodeName`: a text, a number or a boolean; each element of an array
    /// counts. Nothing is decoded for it.
    pub fn index_field(
        mut self,
        name: impl Into<Cow<'static, str>>,
        path: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.indexes.push((name.into(), By::Path(path.into())));
        self
    }
}

/// A kind without its types, as the loop has it.
pub(crate) struct Declared {
    pub(crate) what: What,
    pub(crate) resource: String,
    pub(crate) essential: bool,
    /// As what it is read.
    pub(crate) type_id: TypeId,
    /// By their numbers, from 1.
    pub(crate) indexes: Vec<Cow<'static, str>>,
    pub(crate) recipe: Recipe,
}

impl<K, T> Kind<K, T>
where
    K: Resource + DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    pub(crate) fn declare(self) -> Declared {
        let Self {
            what,
            keep,
            keeps_managed,
            essential,
            indexes,
            transform,
            project,
            ..
        } = self;
        let mut paths = Paths::default();
        let mut by_keys = Vec::new();
        let mut names = Vec::new();
        for (number, (name, by)) in (1..).zip(indexes) {
            names.push(name);
            match by {
                By::Path(path) => paths.add(&path, number),
                By::Keys(keys) => by_keys.push((number, keys)),
            }
        }
        let making = match (project, keep) {
            (Some(project), _) => {
                Making::Decoded(Box::new(move |json: &str, keys: &mut DraftKeys| {
                    let object = arrive(json, transform.as_ref(), &by_keys, keys)?;
                    let kept: AnyObject = Arc::new(project(object));
                    Ok(Made {
                        kept: Kept::Decoded(kept),
                        bytes: size_of::<T>(),
                    })
                }))
            }
            (None, Keep::Decoded) => {
                Making::Decoded(Box::new(move |json: &str, keys: &mut DraftKeys| {
                    let object: K = arrive(json, transform.as_ref(), &by_keys, keys)?;
                    // What was decoded has room for more than it holds; a copy has not.
                    let kept: AnyObject = Arc::new(object.clone());
                    Ok(Made {
                        kept: Kept::Decoded(kept),
                        bytes: json.len() * DECODED,
                    })
                }))
            }
            (None, Keep::Encoded) if transform.is_none() && by_keys.is_empty() => Making::Nothing,
            (None, Keep::Encoded) => {
                Making::Decoded(Box::new(move |json: &str, keys: &mut DraftKeys| {
                    let object: K = arrive(json, transform.as_ref(), &by_keys, keys)?;
                    let json: Box<str> = match &transform {
                        Some(_) => serde_json::to_string(&object)?.into(),
                        None => json.into(),
                    };
                    let bytes = json.len();
                    Ok(Made {
                        kept: Kept::Encoded(json),
                        bytes,
                    })
                }))
            }
        };
        Declared {
            resource: what.resource(),
            what,
            essential,
            type_id: TypeId::of::<T>(),
            indexes: names,
            recipe: Recipe {
                paths,
                keeps_managed,
                making,
                // Never asked of a projection: that is kept decoded.
                read: |json| {
                    let object: AnyObject = Arc::new(serde_json::from_str::<K>(json)?);
                    Ok(object)
                },
            },
        }
    }
}

/// What a decoded object takes, as a multiple of its JSON: measured on pods.
const DECODED: usize = 5;

fn arrive<K: DeserializeOwned>(
    json: &str,
    transform: Option<&TransformFn<K>>,
    by_keys: &[(u16, KeysFn<K>)],
    keys: &mut DraftKeys,
) -> Result<K, Misplaced> {
    let mut object: K = serde_json::from_str(json)?;
    // Indexes are of what the server has.
    for (number, of) in by_keys {
        keys.extend(of(&object).into_iter().map(|key| (*number, key)));
    }
    if let Some(transform) = transform {
        transform(&mut object);
    }
    Ok(object)
}

impl<K, T> fmt::Debug for Kind<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("resource", &self.what.resource())
            .field("keep", &self.keep)
            .field("essential", &self.essential)
            .finish_non_exhaustive()
    }
}
