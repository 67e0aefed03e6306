//! How the objects of a kind become what is kept of them, without their type: what a [`Kind`](crate::Kind) was declared to be, as functions.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    entry::{Draft, DraftKeys, Kept},
    error::Misplaced,
    json::{Object, Paths},
    version::{Uid, Version},
};

/// An object of a kind, without its type.
pub(crate) type AnyObject = Arc<dyn Any + Send + Sync>;

/// How the objects of a kind are kept, and become what readers get.
pub(crate) struct Recipe {
    /// The fields that are indexed as they are in the JSON.
    pub(crate) paths: Paths,
    /// Managed fields stay.
    pub(crate) keeps_managed: bool,
    pub(crate) making: Making,
    /// From what is kept to what is read.
    pub(crate) read: fn(&str) -> Result<AnyObject, Misplaced>,
}

/// What is done on arrival.
pub(crate) enum Making {
    /// Nothing: the JSON is kept.
    Nothing,
    /// It is decoded, and made into what is kept.
    Decoded(MakeFn),
}

/// From the JSON to what is kept, with the keys of its indexes.
pub(crate) type MakeFn = Box<dyn Fn(&str, &mut DraftKeys) -> Result<Made, Misplaced> + Send + Sync>;

pub(crate) struct Made {
    pub(crate) kept: Kept,
    pub(crate) bytes: usize,
}

impl Recipe {
    pub(crate) fn draft<'o>(&self, object: &'o Object<'_>) -> Draft<'o> {
        let mut keys = object.values.clone();
        let json = if self.keeps_managed {
            object.json().into()
        } else {
            object.stripped()
        };
        let (kept, bytes) = match &self.making {
            Making::Nothing => {
                let json = json.into_owned().into_boxed_str();
                let bytes = json.len();
                (Kept::Encoded(json), bytes)
            }
            Making::Decoded(make) => match made(make, &json, &mut keys) {
                Ok(Made { kept, bytes }) => (kept, bytes),
                // One that does not fit must not hide the others, nor be hidden.
                Err(why) => {
                    let bytes = why.len();
                    (Kept::Broken(why), bytes)
                }
            },
        };
        Draft {
            namespace: &object.namespace,
            name: &object.name,
            uid: Uid::of(&object.uid),
            version: Version::of(&object.version),
            keys,
            kept,
            bytes,
        }
    }
}

/// Closures of the user's run in here: one that panics spoils one object, and no other.
fn made(make: &MakeFn, json: &str, keys: &mut DraftKeys) -> Result<Made, Arc<str>> {
    match catch_unwind(AssertUnwindSafe(|| make(json, keys))) {
        Ok(done) => done.map_err(|error| error.to_string().into()),
        Err(_) => Err("its transform, projection or index panicked".into()),
    }
}
