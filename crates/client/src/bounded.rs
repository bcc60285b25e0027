//! A map of bounded size that lets go of what was used least recently.

use std::collections::BTreeMap;

/// See the module. Order of use is kept beside, so every step costs a logarithm.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    entries: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    count_max: usize,
}

impl<K: Ord + Clone, V> Bounded<K, V> {
    /// An empty map for at most `count_max` entries.
    pub fn new(count_max: usize) -> Bounded<K, V> {
        assert!(count_max > 0, "a cache for no entries at all cannot hold what was just put in");
        Bounded { entries: BTreeMap::new(), by_use: BTreeMap::new(), clock: 0, count_max }
    }

    /// The value, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        let key = self.by_use.remove(used).expect("every entry has its place in the order of use");
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(value)
    }

    /// The value, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Puts a value in; gives back what had to go for it, if anything.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        self.remove(&key);
        self.clock += 1;
        self.by_use.insert(self.clock, key.clone());
        self.entries.insert(key, (self.clock, value));
        if self.entries.len() <= self.count_max {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first().expect("more entries than allowed are some");
        self.remove_entry(&oldest)
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.remove_entry(key).map(|(_, value)| value)
    }

    fn remove_entry(&mut self, key: &K) -> Option<(K, V)> {
        let (key, (used, value)) = self.entries.remove_entry(key)?;
        self.by_use.remove(&used);
        Some((key, value))
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.by_use.clear();
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
        #[test]
        fn the_order_of_use_always_names_exactly_the_entries(steps in proptest::collection::vec((0u8..3, 0u8..9), 0..200)) {
            let mut map = Bounded::new(4);
            for (what, key) in steps {
                match what {
                    0 => drop(map.insert(key, ())),
                    1 => drop(map.remove(&key)),
                    _ => drop(map.get(&key).is_some()),
                }
                prop_assert!(map.entries.len() <= 4);
                let mut used: Vec<_> = map.by_use.values().copied().collect();
                used.sort_unstable();
                prop_assert_eq!(used, map.entries.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
