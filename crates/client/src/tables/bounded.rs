//! A map of bounded size that drops what was not used lately.
//!
//! Not of what was used least recently of all: that order would have to be kept up with each use. A use sets
//! a bit, and what is met with its bit set has a second chance.

use crate::tables::{Place, Table};
use std::hash::Hash;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    table: Table<K, V>,
    count_max: usize,
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// An empty map for at most `count_max` entries.
    pub fn new(count_max: usize) -> Bounded<K, V> {
        assert!(count_max > 0, "a cache for no entries at all cannot hold what was just put in");
        assert!(count_max < Place::MAX as usize, "a cache has fewer than 2^32 - 1 entries, not {count_max}");
        Bounded { table: Table::new(), count_max }
    }

    /// The same, for so many that making room on the way would be noticed.
    pub fn with_places(count_max: usize) -> Bounded<K, V> {
        Bounded { table: Table::with_places(count_max), ..Bounded::new(count_max) }
    }

    /// The value, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.table.use_now(key)
    }

    /// The value, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.table.get(key)
    }

    /// Puts a value in; gives back what had to go for it, if anything.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(known) = self.table.use_now(&key) {
            *known = value;
            return None;
        }
        let full = self.table.len() == self.count_max;
        let gone = if full { self.table.remove_idle() } else { None };
        self.table.insert(key, value);
        gone
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.table.remove(key)
    }

    /// All entries, in an order that says nothing but is the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.table.iter()
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_was_not_used_goes_first() {
        let mut map = Bounded::new(2);
        map.insert(1, 'a');
        map.insert(2, 'b');
        assert_eq!(map.get(&1), Some(&mut 'a'));
        assert_eq!(map.insert(3, 'c'), Some((2, 'b')));
        assert_eq!((map.peek(&1), map.peek(&2), map.peek(&3)), (Some(&'a'), None, Some(&'c')));
    }

    /// What is known of an entry beside its value.
    #[derive(Clone, Copy, Debug)]
    struct Uses {
        value: u16,
        ever: bool,
        since_eviction: bool,
        /// How often something had to go since it came, or was used.
        spared: usize,
    }

    proptest! {
        // The oracle remembers everything that should be there, and what may be said of what goes.
        #[test]
        fn it_holds_what_was_used_lately(steps in proptest::collection::vec((0u8..8, 0u8..9, any::<u16>()), 0..200)) {
            let mut map = Bounded::new(4);
            let mut oracle: BTreeMap<u8, Uses> = BTreeMap::new();
            for (what, key, value) in steps {
                match what {
                    0..=2 => {
                        let known = oracle.contains_key(&key);
                        let gone = map.insert(key, value);
                        prop_assert_eq!(gone.is_some(), !known && oracle.len() == 4);
                        if let Some((gone, value)) = gone {
                            let uses = oracle.remove(&gone).unwrap();
                            prop_assert_eq!(value, uses.value);
                            let all_used = oracle.values().all(|uses| uses.ever);
                            prop_assert!(!uses.since_eviction || all_used, "{} went, but was used", gone);
                            for uses in oracle.values_mut() {
                                (uses.since_eviction, uses.spared) = (false, uses.spared + 1);
                                prop_assert!(uses.spared <= 8, "what nobody uses goes some time");
                            }
                        }
                        let fresh = Uses { value, ever: false, since_eviction: false, spared: 0 };
                        let used = Uses { ever: true, since_eviction: true, ..fresh };
                        oracle.insert(key, if known { used } else { fresh });
                    }
                    3 => prop_assert_eq!(map.remove(&key), oracle.remove(&key).map(|uses| uses.value)),
                    4 if value % 16 == 0 => {
                        map.clear();
                        oracle.clear();
                    }
                    _ => {
                        let known = oracle.get_mut(&key);
                        prop_assert_eq!(map.get(&key).copied(), known.as_ref().map(|uses| uses.value));
                        if let Some(uses) = known {
                            *uses = Uses { ever: true, since_eviction: true, spared: 0, ..*uses };
                        }
                    }
                }
                let held: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(held, oracle.iter().map(|(key, uses)| (*key, uses.value)).collect());
                for key in 0..9 {
                    prop_assert_eq!(map.peek(&key).copied(), oracle.get(&key).map(|uses| uses.value));
                }
                prop_assert!(map.table.slots() <= 4, "slots are used again");
            }
        }
    }
}
