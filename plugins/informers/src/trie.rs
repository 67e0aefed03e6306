//! A hash trie whose versions share what is equal in them: a reader keeps one, the writer changes its own copy of the few nodes above what
//! changes, and no copy at all where nobody has seen them yet. That is how a store of 100,000 objects has a version for each event, and how
//! reading one never waits for the writer.
//!
//! Our own, because of what it is measured by: an item takes 17 bytes beside itself, and is three or four steps away. Of the persistent maps
//! that there are, `rpds` has two allocations of its own for each item of each index, and `imbl` is under a licence that we do not take.

use std::{slice, sync::Arc};

/// What is kept: it knows its own hash.
pub(crate) trait Hashed: Clone {
    fn hashed(&self) -> u64;
}

#[derive(Clone)]
pub(crate) struct Trie<T> {
    root: Arc<Node<T>>,
    len: usize,
}

#[derive(Clone)]
struct Node<T> {
    /// Which of the 32 places are taken. At the deepest level there are none: items of one hash stand side by side.
    taken: u32,
    /// Those that are, in their order.
    children: Vec<Child<T>>,
}

#[derive(Clone)]
enum Child<T> {
    Item(T),
    Node(Arc<Node<T>>),
}

/// Of a hash, each level takes so many.
const BITS: u32 = 5;

/// Levels, until all of a hash but its last bits is used.
const DEEPEST: u32 = 64 / BITS;

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self {
            root: Arc::new(Node::EMPTY),
            len: 0,
        }
    }
}

impl<T> Trie<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The item of this hash that `is` it.
    #[inline]
    pub(crate) fn get(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = &*self.root;
        for level in 0..DEEPEST {
            let place = Place::of(hash, level);
            match node.child(place)? {
                Child::Item(item) => return is(item).then_some(item),
                Child::Node(next) => node = next,
            }
        }
        node.items().find(|item| is(item))
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        Iter {
            stack: vec![self.root.children.iter()],
            left: self.len,
        }
    }
}

impl<T: Hashed> Trie<T> {
    /// Puts it in the place of the one that `is` it, which is returned.
    pub(crate) fn put(&mut self, item: T, is: impl Fn(&T) -> bool) -> Option<T> {
        let hash = item.hashed();
        let old = Node::put(&mut self.root, 0, hash, item, &is);
        self.len += usize::from(old.is_none());
        old
    }

    /// The item of this hash that `is` it, to be changed; its hash must stay.
    pub(crate) fn get_mut(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&mut T> {
        // Nothing is copied for what is not there.
        self.get(hash, &is)?;
        let mut node = Arc::make_mut(&mut self.root);
        for level in 0..DEEPEST {
            let index = node.index(Place::of(hash, level))?;
            match &mut node.children[index] {
                Child::Item(item) => return Some(item),
                Child::Node(next) => node = Arc::make_mut(next),
            }
        }
        node.items_mut().find(|item| is(item))
    }

    /// Takes out the item of this hash that `is` it.
    pub(crate) fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<T> {
        self.get(hash, &is)?;
        let old = Node::remove(&mut self.root, 0, hash, &is)?;
        self.len -= 1;
        Some(old)
    }
}

/// One of the 32 places of a node.
#[derive(Clone, Copy)]
struct Place(u32);

impl Place {
    #[inline]
    fn of(hash: u64, level: u32) -> Self {
        Self(1 << ((hash >> (level * BITS)) & 31))
    }
}

impl<T> Node<T> {
    const EMPTY: Self = Self {
        taken: 0,
        children: Vec::new(),
    };

    #[inline]
    fn rank(&self, place: Place) -> usize {
        (self.taken & (place.0 - 1)).count_ones() as usize
    }

    #[inline]
    fn index(&self, place: Place) -> Option<usize> {
        (self.taken & place.0 != 0).then(|| self.rank(place))
    }

    #[inline]
    fn child(&self, place: Place) -> Option<&Child<T>> {
        self.children.get(self.index(place)?)
    }

    fn items(&self) -> impl Iterator<Item = &T> {
        self.children.iter().filter_map(|child| match child {
            Child::Item(item) => Some(item),
            Child::Node(_) => None,
        })
    }

    fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.children.iter_mut().filter_map(|child| match child {
            Child::Item(item) => Some(item),
            Child::Node(_) => None,
        })
    }

    fn add(&mut self, index: usize, item: T) {
        // No room beyond it: most nodes are written seldom.
        self.children.reserve_exact(1);
        self.children.insert(index, Child::Item(item));
    }
}

impl<T: Hashed> Node<T> {
    fn put(
        node: &mut Arc<Self>,
        level: u32,
        hash: u64,
        item: T,
        is: &impl Fn(&T) -> bool,
    ) -> Option<T> {
        let node = Arc::make_mut(node);
        if level == DEEPEST {
            if let Some(old) = node.items_mut().find(|item| is(item)) {
                return Some(std::mem::replace(old, item));
            }
            node.add(node.children.len(), item);
            return None;
        }
        let place = Place::of(hash, level);
        let rank = node.rank(place);
        if node.taken & place.0 == 0 {
            node.taken |= place.0;
            node.add(rank, item);
            return None;
        }
        let child = &mut node.children[rank];
        match child {
            Child::Node(next) => Self::put(next, level + 1, hash, item, is),
            Child::Item(old) if is(old) => Some(std::mem::replace(old, item)),
            Child::Item(old) => {
                // Two of one place are one level further down.
                let mut next = Arc::new(Self::EMPTY);
                let old = old.clone();
                Self::put(&mut next, level + 1, old.hashed(), old, &Self::none);
                Self::put(&mut next, level + 1, hash, item, &Self::none);
                *child = Child::Node(next);
                None
            }
        }
    }

    fn none(_: &T) -> bool {
        false
    }

    /// It is there.
    fn remove(node: &mut Arc<Self>, level: u32, hash: u64, is: &impl Fn(&T) -> bool) -> Option<T> {
        let node = Arc::make_mut(node);
        if level == DEEPEST {
            let index = node
                .children
                .iter()
                .position(|child| matches!(child, Child::Item(item) if is(item)))?;
            return node.take(index);
        }
        let place = Place::of(hash, level);
        let index = node.index(place)?;
        let Child::Node(next) = &mut node.children[index] else {
            node.taken &= !place.0;
            return node.take(index);
        };
        let old = Self::remove(next, level + 1, hash, is);
        // One that is alone needs no node of its own.
        if let [Child::Item(alone)] = &next.children[..] {
            node.children[index] = Child::Item(alone.clone());
        }
        old
    }

    fn take(&mut self, index: usize) -> Option<T> {
        let taken = self.children.remove(index);
        self.children.shrink_to_fit();
        match taken {
            Child::Item(item) => Some(item),
            Child::Node(_) => None,
        }
    }
}

/// All items of a trie, in no order.
pub(crate) struct Iter<'a, T> {
    stack: Vec<slice::Iter<'a, Child<T>>>,
    left: usize,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            let Some(child) = self.stack.last_mut()?.next() else {
                self.stack.pop();
                continue;
            };
            match child {
                Child::Item(item) => {
                    self.left -= 1;
                    return Some(item);
                }
                Child::Node(node) => self.stack.push(node.children.iter()),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A number under a hash that many share, in its lowest or highest bits.
    #[derive(Clone, Debug, PartialEq)]
    struct Numbered(u64, u32);

    fn hash(number: u64) -> u64 {
        match number % 4 {
            0 => 0,
            1 => number << 58,
            2 => number,
            _ => number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    impl Hashed for Numbered {
        fn hashed(&self) -> u64 {
            hash(self.0)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(u64, u32),
        Remove(u64),
        Change(u64, u32),
        Keep,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..200_u64, any::<u32>()).prop_map(|(key, value)| Step::Put(key, value)),
            3 => (0..200_u64).prop_map(Step::Remove),
            1 => (0..200_u64, any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            1 => Just(Step::Keep),
        ]
    }

    fn same(trie: &Trie<Numbered>, model: &BTreeMap<u64, u32>) {
        assert_eq!(trie.len(), model.len());
        let mut all: Vec<_> = trie.iter().map(|item| (item.0, item.1)).collect();
        assert_eq!(all.len(), trie.iter().len());
        all.sort_unstable();
        assert!(
            all.into_iter()
                .eq(model.iter().map(|(key, value)| (*key, *value)))
        );
        for key in 0..200 {
            let found = trie.get(hash(key), |item| item.0 == key);
            assert_eq!(found.map(|item| item.1), model.get(&key).copied());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_is_a_map_and_a_version_that_is_kept_stays_as_it_was(steps in prop::collection::vec(step(), 1..300)) {
            let (mut trie, mut model) = (Trie::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let old = trie.put(Numbered(key, value), |item| item.0 == key);
                        prop_assert_eq!(old.map(|old| old.1), model.insert(key, value));
                    }
                    Step::Remove(key) => {
                        let old = trie.remove(hash(key), |item| item.0 == key);
                        prop_assert_eq!(old.map(|old| old.1), model.remove(&key));
                    }
                    Step::Change(key, value) => {
                        let found = trie.get_mut(hash(key), |item| item.0 == key);
                        let known = model.get_mut(&key);
                        prop_assert_eq!(found.is_some(), known.is_some());
                        if let (Some(found), Some(known)) = (found, known) {
                            (found.1, *known) = (value, value);
                        }
                    }
                    Step::Keep if kept.len() < 8 => kept.push((trie.clone(), model.clone())),
                    Step::Keep => (),
                }
            }
            kept.push((trie, model));
            for (trie, model) in &kept {
                same(trie, model);
            }
        }
    }

    #[test]
    fn what_is_taken_out_leaves_no_node() {
        let mut trie = Trie::default();
        for key in 0..1_000 {
            trie.put(Numbered(key, 0), |item| item.0 == key);
        }
        for key in 0..1_000 {
            trie.remove(hash(key), |item| item.0 == key);
        }
        assert!(trie.is_empty() && trie.root.children.is_empty());
    }
}
