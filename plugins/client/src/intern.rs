//! One copy of what many clusters have alike. Equality decides, so that no cluster can pass its own off as another's; what nobody holds any
//! more goes.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, PoisonError, Weak},
};

pub(crate) struct Interner<T> {
    hasher: RandomState,
    table: Mutex<Table<T>>,
}

struct Table<T> {
    known: HashMap<u64, Vec<Weak<T>>>,
    /// At so many hashes, those of which nothing is left are forgotten.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 64;

impl<T: Hash + Eq> Interner<T> {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            table: Mutex::new(Table {
                known: HashMap::new(),
                sweep_at: FIRST_SWEEP,
            }),
        }
    }

    /// The one copy of `value`.
    pub(crate) fn intern(&self, value: T) -> Arc<T> {
        let hash = self.hasher.hash_one(&value);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = table.known.entry(hash).or_default();
        let mut living = alike.iter().filter_map(Weak::upgrade);
        if let Some(known) = living.find(|known| **known == value) {
            return known;
        }
        let value = Arc::new(value);
        alike.retain(|known| known.strong_count() > 0);
        alike.push(Arc::downgrade(&value));
        table.sweep();
        value
    }
}

impl<T> Table<T> {
    fn sweep(&mut self) {
        if self.known.len() < self.sweep_at {
            return;
        }
        self.known
            .retain(|_, alike| alike.iter().any(|known| known.strong_count() > 0));
        self.sweep_at = (self.known.len() * 2).max(FIRST_SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_one_copy_and_goes_with_its_last_holder() {
        let interner = Interner::new();
        let one = interner.intern("a".to_owned());
        assert!(Arc::ptr_eq(&one, &interner.intern("a".to_owned())));
        assert!(!Arc::ptr_eq(&one, &interner.intern("b".to_owned())));
        let weak = Arc::downgrade(&one);
        drop(one);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn of_what_is_gone_the_table_keeps_nothing_for_long() {
        let interner = Interner::new();
        let held = interner.intern(0);
        for number in 1..10_000 {
            interner.intern(number);
        }
        assert!(interner.table.lock().unwrap().known.len() <= FIRST_SWEEP);
        assert!(Arc::ptr_eq(&held, &interner.intern(0)));
    }
}
