//! Bytes that are equal are kept once, over all servers of the process: a thousand clusters with the same pods hold what these have beside
//! their metadata (names, UIDs, versions) a single time.

use std::{
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;

/// All that anybody holds. Its lock is taken when an object is written and when it goes, and never to read one.
static KEPT: LazyLock<Mutex<HashSet<Arc<[u8]>>>> = LazyLock::new(Mutex::default);

/// Bytes that nobody else keeps a second time.
#[derive(Clone)]
pub(super) struct SharedBytes(Option<Arc<[u8]>>);

impl SharedBytes {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut kept = KEPT.lock();
        if let Some(known) = kept.get(bytes) {
            return Self(Some(known.clone()));
        }
        let bytes: Arc<[u8]> = bytes.into();
        kept.insert(bytes.clone());
        Self(Some(bytes))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        let Some(bytes) = self.0.take() else {
            return;
        };
        // Given up while the lock is held, so that of two that go at once one sees that it is the last.
        let mut kept = KEPT.lock();
        if Arc::strong_count(&bytes) == 2 {
            kept.remove(&bytes);
            // What a fleet needed that is gone.
            if kept.len() < kept.capacity() / 4 {
                kept.shrink_to_fit();
            }
        }
        drop(bytes);
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn kept(bytes: &[u8]) -> bool {
        KEPT.lock().contains(bytes)
    }

    #[test]
    fn equal_bytes_are_kept_once_and_as_long_as_somebody_has_them() {
        let [one, other] = [0; 2].map(|_| SharedBytes::new(b"kept once"));
        assert_eq!(one.as_ptr(), other.as_ptr());
        assert_ne!(one.as_ptr(), SharedBytes::new(b"kept apart").as_ptr());
        drop(one);
        assert!(kept(b"kept once"));
        let clone = other.clone();
        drop(other);
        assert_eq!(&*clone, b"kept once");
        drop(clone);
        assert!(!kept(b"kept once"));
    }

    #[test]
    fn nothing_is_left_of_what_many_threads_hold_at_once() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..10_000_u32 {
                        let bytes = (round % 3).to_be_bytes();
                        let shared = SharedBytes::new(&bytes);
                        assert_eq!(*shared.clone(), bytes);
                    }
                });
            }
        });
        assert!((0..3_u32).all(|number| !kept(&number.to_be_bytes())));
    }
}
