//! A map of bounded size that lets go of what was used least recently.

use crate::slots::{Place, Slots};
use bearing_types::IdHasher;
use hashbrown::HashTable;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

/// See the module. Keys are found by a table of places, so an entry takes ten bytes beyond its slot.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    places: HashTable<Place>,
    slots: Slots<(K, V)>,
    count_max: usize,
}

/// Where a key stands in tables of places.
pub(crate) fn hash_of(key: impl Hash) -> u64 {
    BuildHasherDefault::<IdHasher>::default().hash_one(key)
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// An empty map for at most `count_max` entries.
    pub fn new(count_max: usize) -> Bounded<K, V> {
        assert!(count_max > 0, "a cache for no entries at all cannot hold what was just put in");
        assert!(count_max < Place::MAX as usize, "a cache has fewer than 2^32 - 1 entries, not {count_max}");
        Bounded { places: HashTable::new(), slots: Slots::new(), count_max }
    }

    /// The value, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        self.slots.used(place);
        Some(&mut self.slots[place].1)
    }

    /// The value, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        Some(&self.slots[self.place(key)?].1)
    }

    /// Puts a value in; gives back what had to go for it, if anything.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(place) = self.place(&key) {
            self.slots.used(place);
            self.slots[place].1 = value;
            return None;
        }
        let full = self.slots.len() == self.count_max;
        let gone = self.slots.oldest().filter(|_| full).map(|oldest| self.take(oldest));
        let hash = hash_of(&key);
        let place = self.slots.add((key, value));
        self.places.insert_unique(hash, place, |place| hash_of(&self.slots[*place].0));
        gone
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key)?;
        Some(self.take(place).1)
    }

    /// All entries, in an order that says nothing but is the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().map(|(key, value)| (key, value))
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        *self = Bounded::new(self.count_max);
    }

    fn place(&self, key: &K) -> Option<Place> {
        self.places.find(hash_of(key), |place| self.slots[*place].0 == *key).copied()
    }

    fn take(&mut self, place: Place) -> (K, V) {
        let hash = hash_of(&self.slots[place].0);
        let found = self.places.find_entry(hash, |other| *other == place);
        found.expect("what has a place is found").remove();
        self.slots.take(place)
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
                prop_assert!(map.slots.slots() <= 4, "slots are used again");
            }
        }
    }
}
