//! The entry cache of one tablet: the newest version of every record that is not yet applied to the store
//! (the overlay), and a bounded choice of the others.
//!
//! Invariant: a record leaves the overlay only when the store has confirmed its apply. Store commands run in
//! order, so whatever was read before that is delivered before the confirmation, while the overlay still
//! corrects it.

use crate::memory::clean::Clean;
use crate::memory::file_extents::{FileExtents, Known};
use crate::record::{Key, Record};
use bearing_types::{LogIndex, NodeId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A record, or the knowledge that there is none; and the log record that made it so (zero: long ago).
#[derive(Clone, Debug)]
pub struct Slot {
    /// The record.
    pub record: Option<Record>,
    /// The log record.
    pub index: LogIndex,
}

/// See the module.
#[derive(Debug)]
pub struct Cache {
    overlay: BTreeMap<Key, Slot>,
    clean: Clean,
    extents: FileExtents,
}

impl Cache {
    /// A cache of at most about `entries_max` clean entries, and of at least 4,096.
    pub fn new(entries_max: usize) -> Cache {
        Cache { overlay: BTreeMap::new(), clean: Clean::new(entries_max), extents: FileExtents::default() }
    }

    /// What is known of a key; `None` if the store must be asked.
    pub fn get(&mut self, key: &Key) -> Option<Slot> {
        if let Some(slot) = self.overlay.get(key) {
            return Some(slot.clone());
        }
        debug_assert!(key.is_looked_up(), "{key:?}");
        self.clean.get(key).map(|record| Slot { record, index: LogIndex::ZERO })
    }

    /// Takes what the store said of a key, unless something newer is known.
    pub fn loaded(&mut self, key: Key, record: Option<Record>) {
        if !self.overlay.contains_key(&key) && !self.clean.contains(&key) {
            self.clean.insert(key, record.as_ref());
        }
    }

    /// Notes a change made by the log record `index`.
    pub fn change(&mut self, key: Key, record: Option<Record>, index: LogIndex) {
        // What is clean of it is hidden until this is applied, and replaced then.
        self.overlay.insert(key, Slot { record, index });
    }

    /// The store has applied these keys' changes up to a log record.
    pub fn applied(&mut self, keys: impl IntoIterator<Item = Key>, up_to: LogIndex) {
        for key in keys {
            if self.overlay.get(&key).is_some_and(|slot| slot.index <= up_to) {
                let slot = self.overlay.remove(&key).expect("seen just now");
                match key {
                    // Extents are asked for by range only.
                    Key::Extent(..) => self.extents.applied(&key, slot.record.as_ref()),
                    key if key.is_looked_up() => self.clean.insert(key, slot.record.as_ref()),
                    _ => {}
                }
            }
        }
    }

    /// Takes what the store said of a range.
    pub fn range_loaded(&mut self, keys: &RangeInclusive<Key>, count_max: usize, pairs: &[(Key, Record)]) {
        self.extents.range_loaded(keys, count_max, pairs);
    }

    /// What the store holds of a file's extents, without the overlay; `None` if it must be asked.
    pub fn extents(&mut self, node: NodeId) -> Option<&Known> {
        self.extents.get(node)
    }

    /// Where the last extent begins that begins before an offset, with what is logged and decided since; the
    /// offset itself if there is none. `None` if the file's extents are not held.
    pub fn extent_before(
        &mut self,
        node: NodeId,
        offset: u64,
        decided: &BTreeMap<Key, Option<Record>>,
    ) -> Option<u64> {
        let Some(Known::All(extents)) = self.extents.get(node) else { return None };
        let Some(last) = offset.checked_sub(1) else { return Some(offset) };
        let overlay = &self.overlay;
        let keys = Key::Extent(node, 0)..=Key::Extent(node, last);
        let begins = |key: &Key| if let Key::Extent(_, at) = key { Some(*at) } else { None };
        let put = |key: &Key| match decided.get(key) {
            Some(record) => record.is_some(),
            None => overlay.get(key).is_none_or(|slot| slot.record.is_some()),
        };
        let stored = extents.range(..offset).map(|(at, _)| *at).rfind(|at| put(&Key::Extent(node, *at)));
        let logged = overlay.range(keys.clone()).map(|(key, _)| key).rfind(|key| put(key)).and_then(begins);
        let decided = decided.range(keys).map(|(key, _)| key).rfind(|key| put(key)).and_then(begins);
        Some(stored.max(logged).max(decided).unwrap_or(offset))
    }

    /// The overlay's part of a range of keys, deletions included.
    pub fn overlay(&self, range: RangeInclusive<Key>) -> impl Iterator<Item = (&Key, &Slot)> {
        self.overlay.range(range)
    }

    /// How many entries are held, clean and not.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.overlay.len() + self.clean.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Wall;

    fn mark(time: i64) -> Option<Record> {
        Some(Record::Mark(Wall(time)))
    }

    #[test]
    fn the_overlay_wins_over_what_the_store_says_until_it_is_applied() {
        let mut cache = Cache::new(0);
        let key = Key::Node(NodeId(1));
        cache.change(key, mark(2), LogIndex(5));
        cache.loaded(key, mark(1));
        assert_eq!(cache.get(&key).unwrap().record, mark(2));
        cache.applied([key], LogIndex(4));
        assert_eq!(cache.get(&key).unwrap().index, LogIndex(5));
        cache.applied([key], LogIndex(5));
        let slot = cache.get(&key).unwrap();
        assert_eq!((slot.record, slot.index), (mark(2), LogIndex::ZERO));
    }

    #[test]
    fn clean_entries_are_bounded_and_recently_used_ones_stay() {
        let mut cache = Cache::new(0);
        for node in 0..10_000 {
            cache.loaded(Key::Node(NodeId(node)), None);
            assert!(cache.get(&Key::Node(NodeId(0))).is_some());
        }
        assert!(cache.len() <= 4096);
        assert!(cache.get(&Key::Node(NodeId(1))).is_none());
    }
}
