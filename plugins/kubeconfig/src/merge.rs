//! Several documents as one, by kubectl's rules.

use std::collections::btree_map::Entry;

use crate::{Kubeconfig, document::Entries};

impl Kubeconfig {
    /// Adds what `later` has and this does not, as kubectl does for the files of `$KUBECONFIG`: the first document that has an entry of
    /// a name gives the whole entry, also when it is one that is refused; the first that says `current-context` decides it. A context
    /// of one document may use a cluster or a user of another.
    #[must_use]
    pub fn merge(mut self, later: &Self) -> Self {
        add(&mut self.clusters, &later.clusters);
        add(&mut self.users, &later.users);
        add(&mut self.contexts, &later.contexts);
        self.current = self.current.or_else(|| later.current.clone());
        self
    }
}

fn add<T>(first: &mut Entries<T>, later: &Entries<T>) {
    for (name, entry) in later {
        if let Entry::Vacant(free) = first.entry(name.clone()) {
            free.insert(entry.clone());
        }
    }
}
