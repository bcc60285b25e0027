//! A map of bounded size that lets go of what was used least recently.

use crate::slots::Place;
use crate::table::Table;
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
        let gone = if full { self.table.remove_oldest() } else { None };
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

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let mut map = Bounded::new(2);
        map.insert(1, 'a');
        map.insert(2, 'b');
        assert_eq!(map.get(&1), Some(&mut 'a'));
        assert_eq!(map.insert(3, 'c'), Some((2, 'b')));
        assert_eq!((map.peek(&1), map.peek(&2), map.peek(&3)), (Some(&'a'), None, Some(&'c')));
    }

    proptest! {
        // The oracle is a list in the order of use.
        #[test]
        fn it_holds_what_was_used_last(steps in proptest::collection::vec((0u8..8, 0u8..9, any::<u16>()), 0..200)) {
            let mut map = Bounded::new(4);
            let mut oracle: Vec<(u8, u16)> = Vec::new();
            for (what, key, value) in steps {
                let known = oracle.iter().position(|(known, _)| *known == key).map(|at| oracle.remove(at));
                match what {
                    0..=2 => {
                        let gone = if oracle.len() == 4 { Some(oracle.remove(0)) } else { None };
                        oracle.push((key, value));
                        prop_assert_eq!(map.insert(key, value), gone);
                    }
                    3 => prop_assert_eq!(map.remove(&key), known.map(|(_, value)| value)),
                    4 if value % 16 == 0 => {
                        map.clear();
                        oracle.clear();
                    }
                    _ => {
                        prop_assert_eq!(map.get(&key).copied(), known.map(|(_, value)| value));
                        oracle.extend(known);
                    }
                }
                let mut sorted = oracle.clone();
                sorted.sort_unstable();
                let mut held: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
                held.sort_unstable();
                prop_assert_eq!(&held, &sorted);
                for key in 0..9 {
                    let known = sorted.iter().find(|(known, _)| *known == key);
                    prop_assert_eq!(map.peek(&key), known.map(|(_, value)| value));
                }
                prop_assert!(map.table.slots() <= 4, "slots are used again");
            }
        }
    }
}
