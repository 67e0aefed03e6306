//! What one kind's loop does to its objects: changes as they come, and lists, of which nothing counts before they are complete. A list
//! is taken as differences: what is the same stays the same object, each deletion is told once, and a new object under an old name is a
//! deletion and an addition.

use std::sync::Arc;

use crate::{
    entry::{Draft, Entry, hash_of},
    json::Object,
    objects::Objects,
    trie::{Hashed, Trie},
    version::{Uid, Version},
};

/// A difference between one version of the objects and the next.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "tests add up what is told; outside of them it is counted"
    )
)]
pub(crate) enum Change {
    Added(Arc<Entry>),
    Modified { old: Arc<Entry>, new: Arc<Entry> },
    Deleted(Arc<Entry>),
}

pub(crate) struct Writer {
    objects: Objects,
    list: Option<Box<List>>,
}

/// A list on its way.
struct List {
    /// What there is, with what was listed so far.
    objects: Objects,
    /// What was listed so far.
    seen: Trie<Arc<Entry>>,
}

impl Writer {
    pub(crate) fn new(objects: Objects) -> Self {
        Self {
            objects,
            list: None,
        }
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// What is there, with what a list that is on its way will add.
    pub(crate) fn bytes(&self) -> usize {
        let list = self.list.as_ref().map_or(0, |list| list.objects.bytes());
        list.max(self.objects.bytes())
    }

    /// A change since the last one. `draft` is asked only where the object is not known as it is.
    pub(crate) fn apply<'o>(
        &mut self,
        object: &'o Object<'_>,
        draft: impl FnOnce() -> Draft<'o>,
        tell: &mut impl FnMut(Change),
    ) {
        if same(&self.objects, object).is_some() {
            return;
        }
        let (new, old) = self.objects.put(draft());
        change(old, new, tell);
    }

    /// It is gone. Of another one of its name nothing is known by that.
    pub(crate) fn delete(&mut self, object: &Object<'_>, tell: &mut impl FnMut(Change)) {
        if let Some(old) = take(&mut self.objects, object) {
            tell(Change::Deleted(old));
        }
    }

    /// Part of a list. `trusts` says whether an object that has the version that is known is the one that is known.
    pub(crate) fn stage<'o>(
        &mut self,
        object: &'o Object<'_>,
        trusts: bool,
        draft: impl FnOnce() -> Draft<'o>,
    ) {
        let list = self.list();
        let entry = match same(&list.objects, object).filter(|_| trusts) {
            Some(entry) => Arc::clone(entry),
            None => list.objects.put(draft()).0,
        };
        let is = |old: &Arc<Entry>| old.is(&object.namespace, &object.name);
        list.seen.put(entry, is);
    }

    /// Gone before the list was complete: a stream tells of that.
    pub(crate) fn stage_deletion(&mut self, object: &Object<'_>) {
        let list = self.list();
        if take(&mut list.objects, object).is_some() {
            let hash = hash_of(&object.namespace, &object.name);
            list.seen
                .remove(hash, |old| old.is(&object.namespace, &object.name));
        }
    }

    fn list(&mut self) -> &mut List {
        let objects = &self.objects;
        self.list.get_or_insert_with(|| {
            Box::new(List {
                objects: objects.clone(),
                seen: Trie::default(),
            })
        })
    }

    /// The list is complete: what is not in it is gone.
    pub(crate) fn commit(&mut self, tell: &mut impl FnMut(Change)) {
        // One without any object.
        self.list();
        let Some(list) = self.list.take() else { return };
        let List { mut objects, seen } = *list;
        let unseen = |entry: &&Arc<Entry>| {
            let is = |old: &Arc<Entry>| old.is(&entry.namespace, &entry.name);
            seen.get(entry.hashed(), is).is_none()
        };
        let gone: Vec<_> = objects.iter().filter(unseen).map(Arc::clone).collect();
        for entry in gone {
            objects.remove(&entry.namespace, &entry.name);
        }
        let before = std::mem::replace(&mut self.objects, objects);
        for old in before.iter() {
            if self.objects.get(&old.namespace, &old.name).is_none() {
                tell(Change::Deleted(Arc::clone(old)));
            }
        }
        for new in self.objects.iter() {
            let old = before.get(&new.namespace, &new.name);
            if old.is_none_or(|old| !Arc::ptr_eq(old, new)) {
                change(old.cloned(), Arc::clone(new), tell);
            }
        }
    }

    /// The list comes to nothing.
    pub(crate) fn forget_list(&mut self) {
        self.list = None;
    }

    /// As of which version this is.
    pub(crate) fn set_version(&mut self, version: Option<&Version>) {
        self.objects.version = version.cloned();
    }
}

/// The object as it is, if it is known so already.
fn same<'a>(objects: &'a Objects, object: &Object<'_>) -> Option<&'a Arc<Entry>> {
    let entry = objects.get(&object.namespace, &object.name)?;
    let version = Version::of(&object.version);
    // Without versions nothing is known to be the same.
    let same = entry.version == version && !version.is_nothing();
    (same && entry.uid == Uid::of(&object.uid)).then_some(entry)
}

fn take(objects: &mut Objects, object: &Object<'_>) -> Option<Arc<Entry>> {
    let entry = objects.get(&object.namespace, &object.name)?;
    if entry.uid != Uid::of(&object.uid) {
        return None;
    }
    objects.remove(&object.namespace, &object.name)
}

fn change(old: Option<Arc<Entry>>, new: Arc<Entry>, tell: &mut impl FnMut(Change)) {
    match old {
        None => tell(Change::Added(new)),
        Some(old) if old.uid == new.uid => tell(Change::Modified { old, new }),
        Some(old) => {
            tell(Change::Deleted(old));
            tell(Change::Added(new));
        }
    }
}
