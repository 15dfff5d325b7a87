//! A shared value that knows its own hash.
//!
//! The checker hashes and copies states millions of times, and a step changes one member of them.
//! So members and messages are hashed once, when they are made, and copied by reference.

use core::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value that does not change any more.
pub(crate) struct Keyed<T> {
    key: u64,
    value: Arc<T>,
}

impl<T: Hash> Keyed<T> {
    pub(crate) fn new(value: T) -> Self {
        // With fixed keys: the order of a network, and so every path, is the same in every run.
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Keyed { key: hasher.finish(), value: Arc::new(value) }
    }
}

impl<T> Keyed<T> {
    pub(crate) fn key(&self) -> u64 {
        self.key
    }
}

impl<T> Clone for Keyed<T> {
    fn clone(&self) -> Self {
        Keyed { key: self.key, value: Arc::clone(&self.value) }
    }
}

impl<T> Deref for Keyed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Keyed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && (Arc::ptr_eq(&self.value, &other.value) || self.value == other.value)
    }
}

impl<T: Eq> Eq for Keyed<T> {}

impl<T> Hash for Keyed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key);
    }
}

impl<T: fmt::Debug> fmt::Debug for Keyed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
