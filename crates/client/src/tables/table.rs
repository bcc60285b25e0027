//! A map that takes little room: entries lie in slots, and keys are found by a table of places, so that an
//! entry takes about ten bytes beyond itself. It can be asked for one that was not used lately.

use crate::tables::{Place, Slots};
use bearing_types::IdHasher;
use hashbrown::HashTable;
use std::hash::Hash;

/// See the module.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    places: HashTable<Place>,
    slots: Slots<(K, V)>,
}

/// An empty table gives back the room of more places than this.
const PLACES_KEPT: usize = 1024;

impl<K: Eq + Hash, V> Table<K, V> {
    /// An empty one.
    pub fn new() -> Table<K, V> {
        Table { places: HashTable::new(), slots: Slots::new() }
    }

    /// With room for so many places: with a hundred thousand, making room takes milliseconds.
    pub fn with_places(count: usize) -> Table<K, V> {
        Table { places: HashTable::with_capacity(count), slots: Slots::new() }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many slots there are, free ones included.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Whether there is such a key.
    pub fn contains(&self, key: &K) -> bool {
        self.place(key).is_some()
    }

    /// The value.
    pub fn get(&self, key: &K) -> Option<&V> {
        Some(&self.slots[self.place(key)?].1)
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        Some(&mut self.slots[place].1)
    }

    /// As [`Table::get_mut`], and counts as a use.
    pub fn use_now(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        self.slots.used(place);
        Some(&mut self.slots[place].1)
    }

    /// Puts a value in; gives back the one that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.use_now(&key) {
            return Some(std::mem::replace(known, value));
        }
        let hash = IdHasher::hash_of(&key);
        let place = self.slots.add((key, value));
        self.places.insert_unique(hash, place, |place| IdHasher::hash_of(&self.slots[*place].0));
        None
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key)?;
        let value = self.take(place).1;
        if self.is_empty() && self.places.capacity() > PLACES_KEPT {
            self.places = HashTable::new();
        }
        Some(value)
    }

    /// Takes out what was not used lately ([`Slots::idle`]).
    pub fn remove_idle(&mut self) -> Option<(K, V)> {
        let idle = self.slots.idle()?;
        Some(self.take(idle))
    }

    /// All entries, in an order that says nothing but is the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().map(|(key, value)| (key, value))
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.places.clear();
        self.slots = Slots::new();
    }

    fn place(&self, key: &K) -> Option<Place> {
        self.places.find(IdHasher::hash_of(key), |place| self.slots[*place].0 == *key).copied()
    }

    fn take(&mut self, place: Place) -> (K, V) {
        let hash = IdHasher::hash_of(&self.slots[place].0);
        self.places.find_entry(hash, |other| *other == place).expect("what has a place is found").remove();
        self.slots.take(place)
    }
}

impl<K: Eq + Hash, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table::new()
    }
}
