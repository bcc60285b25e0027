//! The extents of files that are worked on, all of each that has few enough: so that neither a commit nor a
//! reader asks the store again and again. A database of 1 GiB that is written in pages of 4 KiB has 262,144.
//!
//! A store keeps every version of a key in memory until it writes a table, so a range that is rewritten all
//! the time is read ever more slowly.
//!
//! Invariant: what is held of a file is what the store holds, as far as applies are confirmed; what is newer
//! lies in the overlay, as for all keys. It is taken over when the store's answer is delivered, and followed
//! from then on.

use crate::record::{ExtentRecord, Key, Record};
use bearing_types::NodeId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Files with more extents are not held: while they come into memory the server answers nobody, 0.1 s for so
/// many.
pub(crate) const EXTENTS_MAX: usize = 300_000;
/// Files of one generation; two are held.
const FILES_MAX: usize = 64;
/// Extents of one generation, when a file gets into it: about 30 MB.
const GENERATION_MAX: usize = 1 << 19;

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// All its extents, by offset.
    All(BTreeMap<u64, ExtentRecord>),
    /// It has too many to be held.
    TooMany,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FileExtents {
    young: BTreeMap<NodeId, Known>,
    old: BTreeMap<NodeId, Known>,
    /// Extents in `young`, as of when its files got there.
    young_extents: usize,
}

impl Known {
    fn count(&self) -> usize {
        match self {
            Known::All(extents) => extents.len(),
            Known::TooMany => 0,
        }
    }
}

/// The keys of all extents of a file: the range that is asked for to hold them.
pub(crate) fn whole(node: NodeId) -> RangeInclusive<Key> {
    Key::Extent(node, 0)..=Key::Extent(node, u64::MAX)
}

impl FileExtents {
    /// What is known of a file; `None` if the store must be asked.
    pub fn get(&mut self, node: NodeId) -> Option<&Known> {
        if let Some(known) = self.old.remove(&node) {
            self.insert(node, known);
        }
        self.young.get(&node)
    }

    /// The store has answered with the pairs of a range, at most so many.
    pub fn range_loaded(&mut self, keys: &RangeInclusive<Key>, count_max: usize, pairs: &[(Key, Record)]) {
        let Key::Extent(node, _) = *keys.start() else { return };
        if *keys != whole(node) || count_max != EXTENTS_MAX {
            return;
        }
        let extents = pairs.iter().filter_map(|pair| match pair {
            (Key::Extent(_, offset), Record::Extent(extent)) => Some((*offset, *extent)),
            _ => None,
        });
        let known = if pairs.len() < count_max { Known::All(extents.collect()) } else { Known::TooMany };
        self.old.remove(&node);
        self.insert(node, known);
    }

    /// The store has applied a change.
    pub fn applied(&mut self, key: &Key, record: Option<&Record>) {
        let Key::Extent(node, offset) = *key else { return };
        let Some(known) = self.young.get_mut(&node).or(self.old.get_mut(&node)) else { return };
        let Known::All(extents) = known else { return };
        match record {
            Some(Record::Extent(extent)) => drop(extents.insert(offset, *extent)),
            _ => drop(extents.remove(&offset)),
        }
        if extents.len() >= EXTENTS_MAX {
            *known = Known::TooMany;
        }
    }

    fn insert(&mut self, node: NodeId, known: Known) {
        let count = known.count();
        let full = self.young.len() >= FILES_MAX || self.young_extents + count > GENERATION_MAX;
        if full && !self.young.contains_key(&node) {
            self.old = std::mem::take(&mut self.young);
            self.young_extents = 0;
        }
        self.young_extents += count;
        self.young.insert(node, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::ChunkRef;
    use bearing_types::{ChunkId, Position};

    fn pair(node: u64, offset: u64, length: u32) -> (Key, Record) {
        let chunk = ChunkRef { chunk: ChunkId(1), position: Position(0) };
        (Key::Extent(NodeId(node), offset), Record::Extent(ExtentRecord { length, chunk, frame: 0, skip: 0 }))
    }

    fn offsets(held: &mut FileExtents, node: u64) -> Option<Vec<u64>> {
        match held.get(NodeId(node))? {
            Known::All(extents) => Some(extents.keys().copied().collect()),
            Known::TooMany => None,
        }
    }

    #[test]
    fn a_file_that_was_loaded_whole_follows_what_is_applied_and_others_are_not_held() {
        let mut held = FileExtents::default();
        let pairs = [pair(1, 0, 5), pair(1, 10, 5)];
        let part = Key::Extent(NodeId(1), 0)..=Key::Extent(NodeId(1), 20);
        held.range_loaded(&part, EXTENTS_MAX, &pairs);
        assert_eq!(held.get(NodeId(1)), None);
        held.range_loaded(&whole(NodeId(1)), EXTENTS_MAX, &pairs);
        let (key, record) = pair(1, 20, 1);
        held.applied(&key, Some(&record));
        held.applied(&pairs[0].0, None);
        let (key, record) = pair(2, 0, 1);
        held.applied(&key, Some(&record));
        assert_eq!((offsets(&mut held, 1), held.get(NodeId(2))), (Some(vec![10, 20]), None));
    }

    #[test]
    fn what_has_too_many_is_not_held_and_what_is_used_stays_longest() {
        let mut held = FileExtents::default();
        let many: Vec<_> = (0..EXTENTS_MAX as u64).map(|offset| pair(1, offset, 1)).collect();
        held.range_loaded(&whole(NodeId(1)), EXTENTS_MAX, &many);
        assert_eq!(held.get(NodeId(1)), Some(&Known::TooMany));
        held.range_loaded(&whole(NodeId(2)), EXTENTS_MAX, &[]);
        for (key, record) in (0..EXTENTS_MAX as u64).map(|offset| pair(2, offset, 1)) {
            held.applied(&key, Some(&record));
        }
        assert_eq!(held.get(NodeId(2)), Some(&Known::TooMany));
        for node in 3..1_000 {
            held.range_loaded(&whole(NodeId(node)), EXTENTS_MAX, &[]);
            assert!(held.get(NodeId(2)).is_some());
        }
        assert_eq!(held.get(NodeId(1)), None);
        assert!(held.young.len() + held.old.len() <= 2 * FILES_MAX);
    }

    #[test]
    fn many_large_files_are_not_held_at_the_same_time() {
        let mut held = FileExtents::default();
        for node in 1..=8 {
            let pairs: Vec<_> = (0..GENERATION_MAX as u64 / 3).map(|offset| pair(node, offset, 1)).collect();
            held.range_loaded(&whole(NodeId(node)), EXTENTS_MAX, &pairs);
            assert!(matches!(held.get(NodeId(node)), Some(Known::All(_))));
        }
        let count: usize = held.young.values().chain(held.old.values()).map(Known::count).sum();
        assert!(count <= 2 * GENERATION_MAX, "{count} extents are held");
    }
}
