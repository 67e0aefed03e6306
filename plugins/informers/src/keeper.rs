//! What is done to the objects of one kind in one cluster, and when readers see it: the only writer of a stock.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use clustercache::Generation;
use tokio::time::Instant;

use crate::{
    entry::Kept,
    error::{Misplaced, Trouble},
    json::Object,
    objects::Objects,
    stock::{Standing, Stock, View},
    version::Version,
    writer::{Change, Writer},
};

pub(crate) struct Keeper {
    pub(crate) stock: Arc<Stock>,
    writer: Writer,
    standing: Standing,
    trouble: Option<Trouble>,
    /// What was changed since it was published.
    dirty: bool,
}

impl Keeper {
    pub(crate) fn new(stock: Arc<Stock>) -> Self {
        let View {
            objects,
            standing,
            trouble,
        } = View::clone(&stock.view());
        Self {
            stock,
            writer: Writer::new(objects),
            standing,
            trouble,
            dirty: false,
        }
    }

    /// What it takes, with a list that is on its way.
    pub(crate) fn bytes(&self) -> usize {
        self.writer.bytes()
    }

    pub(crate) fn read<'a>(&self, json: &'a str) -> Result<Object<'a>, Misplaced> {
        Ok(Object::read(json, &self.stock.kind.recipe.paths)?)
    }

    /// Part of a list.
    pub(crate) fn stage(&mut self, object: &Object<'_>, trusts: bool) {
        let recipe = &self.stock.kind.recipe;
        self.writer.stage(object, trusts, || recipe.draft(object));
    }

    /// Gone before the list was complete.
    pub(crate) fn stage_deletion(&mut self, object: &Object<'_>) {
        self.writer.stage_deletion(object);
    }

    /// What is new, and as of which version all is known by that.
    pub(crate) fn apply(&mut self, object: &Object<'_>, there: bool, version: Option<&Version>) {
        let stock = &self.stock;
        let mut tell = |change| tell(stock, &change);
        if there {
            self.writer
                .apply(object, || stock.kind.recipe.draft(object), &mut tell);
        } else {
            self.writer.delete(object, &mut tell);
        }
        self.writer.set_version(version);
        self.trouble = None;
        self.dirty = true;
    }

    /// The list is complete.
    pub(crate) fn commit(&mut self, version: Option<&Version>, generation: Option<Generation>) {
        let stock = &self.stock;
        self.writer.commit(&mut |change| tell(stock, &change));
        self.known_to(version, generation);
    }

    /// All up to this version has come.
    pub(crate) fn known_to(&mut self, version: Option<&Version>, generation: Option<Generation>) {
        self.writer.set_version(version);
        let since = match self.standing {
            Standing::Synced { since, .. } => since,
            _ => Instant::now(),
        };
        self.standing = Standing::Synced { since, generation };
        self.trouble = None;
        self.dirty = true;
    }

    /// A watch goes on where another was: what there was is what there is, and changes come.
    pub(crate) fn resumed(&mut self) {
        if !matches!(self.standing, Standing::Synced { .. }) {
            self.standing = Standing::Synced {
                since: Instant::now(),
                generation: None,
            };
            self.dirty = true;
        }
    }

    /// The list comes to nothing.
    pub(crate) fn forget_list(&mut self) {
        self.writer.forget_list();
    }

    /// Something goes wrong: what there was stays, for those who may read it still.
    pub(crate) fn troubled(&mut self, trouble: Trouble, standing: Option<Standing>) {
        self.trouble = Some(trouble);
        self.standing = standing.unwrap_or(self.standing);
        self.dirty = true;
    }

    /// Nothing is kept any more: there is no room for it. Nobody is told of deletions, for there were none.
    pub(crate) fn clear(&mut self) {
        self.writer = Writer::new(Objects::new(self.stock.kind.indexes.len()));
        self.dirty = true;
    }

    /// Readers see it.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.stock.publish(View {
                objects: self.writer.objects().clone(),
                standing: self.standing,
                trouble: self.trouble.clone(),
            });
        }
    }
}

/// What changes is told to whom it concerns: for now it is counted.
fn tell(stock: &Stock, change: &Change) {
    let (count, entry) = match change {
        Change::Added(new) => (&stock.counts.added, new),
        Change::Modified { new, .. } => (&stock.counts.modified, new),
        Change::Deleted(_) => {
            stock.counts.deleted.fetch_add(1, Relaxed);
            return;
        }
    };
    count.fetch_add(1, Relaxed);
    if matches!(entry.kept, Kept::Broken(_)) {
        stock.counts.undecodable.fetch_add(1, Relaxed);
    }
}
