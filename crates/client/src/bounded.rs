//! A map of bounded size that lets go of what was used least recently.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// See the module. Values lie in slots of one array, which are chained in the order of their use: a use costs one search and no memory.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    places: BTreeMap<K, u32>,
    slots: Vec<Slot<K, V>>,
    /// The first free slot; free ones are chained by `newer`.
    free: u32,
    oldest: u32,
    newest: u32,
    count_max: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// None if it is free.
    entry: Option<(K, V)>,
    older: u32,
    newer: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

impl<K: Ord + Clone, V> Bounded<K, V> {
    /// An empty map for at most `count_max` entries.
    pub fn new(count_max: usize) -> Bounded<K, V> {
        assert!(count_max > 0, "a cache for no entries at all cannot hold what was just put in");
        assert!(count_max < NONE as usize, "a cache has fewer than 2^32 - 1 entries, not {count_max}");
        let places = BTreeMap::new();
        Bounded { places, slots: Vec::new(), free: NONE, oldest: NONE, newest: NONE, count_max }
    }

    /// The value, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let place = *self.places.get(key)?;
        if place != self.newest {
            self.unchain(place);
            self.chain_newest(place);
        }
        self.slots[place as usize].entry.as_mut().map(|(_, value)| value)
    }

    /// The value, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        let place = *self.places.get(key)?;
        self.slots[place as usize].entry.as_ref().map(|(_, value)| value)
    }

    /// Looks at the values of a range of keys, in their order, without counting as a use.
    pub fn each_in(&mut self, keys: RangeInclusive<K>, mut look: impl FnMut(&mut V)) {
        for (_, place) in self.places.range(keys) {
            if let Some((_, value)) = &mut self.slots[*place as usize].entry {
                look(value);
            }
        }
    }

    /// Puts a value in; gives back what had to go for it, if anything.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        self.remove(&key);
        let gone = if self.places.len() == self.count_max { self.free_slot(self.oldest) } else { None };
        let place = self.take_slot();
        self.places.insert(key.clone(), place);
        self.slots[place as usize].entry = Some((key, value));
        self.chain_newest(place);
        gone
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = *self.places.get(key)?;
        self.free_slot(place).map(|(_, value)| value)
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let slots = self.places.values().map(|place| &self.slots[*place as usize]);
        slots.filter_map(|slot| slot.entry.as_ref().map(|(key, value)| (key, value)))
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        *self = Bounded::new(self.count_max);
    }

    fn take_slot(&mut self) -> u32 {
        if self.free == NONE {
            self.slots.push(Slot { entry: None, older: NONE, newer: NONE });
            return (self.slots.len() - 1) as u32;
        }
        let place = self.free;
        self.free = self.slots[place as usize].newer;
        place
    }

    fn free_slot(&mut self, place: u32) -> Option<(K, V)> {
        self.unchain(place);
        let slot = &mut self.slots[place as usize];
        slot.newer = std::mem::replace(&mut self.free, place);
        let entry = slot.entry.take()?;
        self.places.remove(&entry.0);
        Some(entry)
    }

    fn chain_newest(&mut self, place: u32) {
        let before = std::mem::replace(&mut self.newest, place);
        let slot = &mut self.slots[place as usize];
        (slot.older, slot.newer) = (before, NONE);
        match before {
            NONE => self.oldest = place,
            before => self.slots[before as usize].newer = place,
        }
    }

    fn unchain(&mut self, place: u32) {
        let Slot { older, newer, .. } = self.slots[place as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
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
                let (mut seen, low) = (Vec::new(), key.min(4));
                map.each_in(low..=key, |value| seen.push(*value));
                let inside = sorted.iter().filter(|(known, _)| (low..=key).contains(known));
                prop_assert_eq!(seen, inside.map(|(_, value)| *value).collect::<Vec<_>>());
                prop_assert_eq!(map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>(), sorted);
                prop_assert!(map.slots.len() <= 4, "slots are used again");
            }
        }
    }
}
