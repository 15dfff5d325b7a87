//! A map that is copied at once, however much it holds.
//!
//! A snapshot needs the whole state as it was at one point of the log, while writes go on. Copying all keys under the
//! lock stops the service for as long as that takes: half a second with 1.5 million keys. So keys are spread over
//! many small maps, and a copy shares them. Who changes a map that is shared copies that one map first, a few hundred or
//! thousand keys. The one who writes the snapshot lets go of each as soon as it is written.
//!
//! A persistent tree (crate `imbl` or `rpds`) would copy a few nodes instead of a small map. It was not taken: it costs
//! a dependency and makes every read and write slower. `figures_of_a_copy` below compares this with one map.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

/// So many maps. With ten million keys, a copy is of 2,400.
const SHARDS: usize = 4096;

/// A map in many parts.
#[derive(Clone, Debug)]
pub(crate) struct Shards<K, V> {
    parts: Vec<Arc<BTreeMap<K, V>>>,
    length: usize,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        Shards { parts: (0..SHARDS).map(|_| Arc::default()).collect(), length: 0 }
    }
}

impl<K: Ord + Hash + Clone, V: Clone> Shards<K, V> {
    pub(crate) fn get<Q: Ord + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts[place(key)].get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = Arc::make_mut(&mut self.parts[place(&key)]).insert(key, value);
        self.length += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove<Q: Ord + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let part = &mut self.parts[place(key)];
        // A key that is not there is no reason to copy.
        part.get(key)?;
        let before = Arc::make_mut(part).remove(key);
        self.length -= usize::from(before.is_some());
        before
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// All parts, each let go of when the next is taken.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = Arc<BTreeMap<K, V>>> {
        self.parts.into_iter()
    }
}

/// Which part a key is in. The same in every process is not needed, within one it is.
fn place<Q: Hash + ?Sized>(key: &Q) -> usize {
    let mut hasher = crc32fast::Hasher::new();
    key.hash(&mut hasher);
    hasher.finalize() as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut map: Shards<String, u32> = Shards::default();
        for key in 0..10_000 {
            assert_eq!(map.insert(key.to_string(), key), None);
        }
        let copy = map.clone();
        assert_eq!(map.insert("7".into(), 70), Some(7));
        assert_eq!(map.remove("8"), Some(8));
        assert_eq!(map.remove("nothing"), None);
        assert_eq!((map.get("7"), map.get("8"), map.len()), (Some(&70), None, 9_999));
        assert_eq!((copy.get("7"), copy.get("8"), copy.len()), (Some(&7), Some(&8), 10_000));
        let copied = |parts: &[Arc<BTreeMap<String, u32>>]| {
            parts.iter().zip(&copy.parts).filter(|(a, b)| !Arc::ptr_eq(a, b)).count()
        };
        assert_eq!(copied(&map.parts), 2, "two keys were changed, so two parts were copied");
        let all: usize = copy.clone().into_parts().map(|part| part.len()).sum();
        assert_eq!(all, 10_000);
        let fullest = copy.parts.iter().map(|part| part.len()).max().unwrap();
        assert!(fullest < 40, "keys are spread: {fullest}");
    }

    /// The figure of the guide: `cargo test -p mandate-kv --lib -- --ignored --nocapture figures_of_a_copy`
    #[test]
    #[ignore = "it only measures"]
    fn figures_of_a_copy() {
        let mut plain: BTreeMap<String, u64> = BTreeMap::new();
        let mut shards: Shards<String, u64> = Shards::default();
        for key in 0..1_500_000_u64 {
            plain.insert(format!("key {key}"), key);
            shards.insert(format!("key {key}"), key);
        }
        let began = std::time::Instant::now();
        let copy = plain.clone();
        eprintln!("1.5 million keys in one map: copied in {:?}", began.elapsed());
        drop(copy);
        let began = std::time::Instant::now();
        let copy = shards.clone();
        eprintln!("in {SHARDS}: shared in {:?}", began.elapsed());
        let mut longest = std::time::Duration::ZERO;
        for key in 0..20_000_u64 {
            let began = std::time::Instant::now();
            shards.insert(format!("key {key}"), 0);
            longest = longest.max(began.elapsed());
        }
        eprintln!("the longest of 20,000 writes meanwhile: {longest:?}");
        drop(copy);
    }
}
