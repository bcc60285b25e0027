//! The files that exist, each in a slot: popularity is a slot's, names change.
//!
//! Invariants: the files of a shape lie in the order of a walk that visits a directory's files before its
//! directories, so that a subtree is a range of slots; a removed file's slot is given to the next file, which
//! is made in the same directory, so that this stays so as far as renames allow; one file is always there.

use super::shape::{DirectoryNumber, Shape};
use bearing_workload::Seeded;
use std::ops::Range;

/// A file's place among all.
pub(super) type Slot = u32;

/// A file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) directory: DirectoryNumber,
    pub(super) name: u32,
}

/// No file's.
const ABSENT: FileName = FileName { directory: DirectoryNumber(u32::MAX), name: u32::MAX };

/// See the module.
#[derive(Debug)]
pub(super) struct Files {
    slots: Vec<FileName>,
    /// Free slots, with the names that their files had.
    removed: Vec<(Slot, FileName)>,
    /// So many stay there.
    least: usize,
    /// By directory of the shape: where its own files and those below it lie.
    subtrees: Vec<Range<Slot>>,
}

impl Files {
    /// Those of a shape, which has at least one.
    pub(super) fn of(shape: &Shape) -> Files {
        let directories: Vec<(DirectoryNumber, u32)> = shape.iter().collect();
        let mut totals: Vec<u32> = directories.iter().map(|(_, files)| *files).collect();
        for (number, (parent, _)) in directories.iter().enumerate().skip(1).rev() {
            totals[parent.0 as usize] += totals[number];
        }
        // Where a directory's next subtree begins. Directories come after the one that they lie in.
        let mut next = vec![0; directories.len()];
        let mut slots = vec![ABSENT; totals[0] as usize];
        let mut subtrees = Vec::with_capacity(directories.len());
        for (number, (parent, files)) in directories.into_iter().enumerate() {
            let from = next[parent.0 as usize];
            next[parent.0 as usize] = from + totals[number];
            next[number] = from + files;
            let directory = DirectoryNumber(number as u32);
            for name in 0..files {
                slots[(from + name) as usize] = FileName { directory, name };
            }
            subtrees.push(from..from + totals[number]);
        }
        Files { least: slots.len().div_ceil(2), slots, removed: Vec::new(), subtrees }
    }

    /// Where the files of each of the shape's subtrees lie, by the directory at its top.
    pub(super) fn subtrees(&self) -> &[Range<Slot>] {
        &self.subtrees
    }

    /// The file of a slot, if it has one.
    pub(super) fn get(&self, slot: Slot) -> Option<FileName> {
        self.slots.get(slot as usize).copied().filter(|file| *file != ABSENT)
    }

    /// The slot itself if it has a file, or the next one that has. At most half of the shape's are free.
    pub(super) fn at_or_after(&self, slot: Slot) -> (Slot, FileName) {
        let count = self.slots.len();
        let there = |at: &usize| self.slots[*at] != ABSENT;
        let at =
            (slot as usize..count).chain(0..slot as usize).find(there).expect("one file is always there");
        (at as Slot, self.slots[at])
    }

    /// Any file.
    pub(super) fn any(&self, rng: &mut Seeded) -> (Slot, FileName) {
        self.at_or_after(rng.below(self.slots.len() as u64) as Slot)
    }

    /// Whether one may be removed: less than half of what there was in the beginning is never left.
    pub(super) fn may_remove(&self) -> bool {
        self.slots.len() - self.removed.len() > self.least
    }

    /// Removes the file of a slot.
    pub(super) fn remove(&mut self, slot: Slot) {
        let file = std::mem::replace(&mut self.slots[slot as usize], ABSENT);
        debug_assert_ne!(file, ABSENT);
        self.removed.push((slot, file));
    }

    /// One of the free slots, with the name that its file had. It has to be filled.
    pub(super) fn take_removed(&mut self, rng: &mut Seeded) -> Option<(Slot, FileName)> {
        match self.removed.len() as u64 {
            0 => None,
            count => Some(self.removed.swap_remove(rng.below(count) as usize)),
        }
    }

    /// Gives a slot a file: one that was taken, or a moved one.
    pub(super) fn put(&mut self, slot: Slot, file: FileName) {
        self.slots[slot as usize] = file;
    }

    /// A file in a slot of its own.
    pub(super) fn add(&mut self, file: FileName) -> Slot {
        self.slots.push(file);
        (self.slots.len() - 1) as Slot
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::ShapeBuilder;
    use super::*;

    #[test]
    fn a_subtree_is_a_range_and_free_slots_are_passed() {
        let mut builder = ShapeBuilder::default();
        let a = builder.directory(ShapeBuilder::ROOT).expect("shallow");
        let b = builder.directory(ShapeBuilder::ROOT).expect("shallow");
        let below_a = builder.directory(a).expect("shallow");
        for (directory, files) in [(ShapeBuilder::ROOT, 1), (a, 2), (b, 3), (below_a, 4)] {
            builder.files(directory, files).expect("few");
        }
        let mut files = Files::of(&builder.finish());
        assert_eq!(files.subtrees(), [0..10, 1..7, 7..10, 3..7]);
        let directories: Vec<u32> = files.slots.iter().map(|file| file.directory.0).collect();
        assert_eq!(directories, [0, 1, 1, 3, 3, 3, 3, 2, 2, 2]);
        for slot in [8, 9, 0] {
            assert!(files.may_remove());
            files.remove(slot);
        }
        assert_eq!(files.get(9), None);
        assert_eq!(files.at_or_after(8), (1, FileName { directory: a, name: 0 }));
        files.remove(1);
        files.remove(2);
        assert!(!files.may_remove());
        let (slot, file) = files.take_removed(&mut Seeded::new(1)).expect("five are free");
        files.put(slot, file);
        assert_eq!(files.get(slot), Some(file));
    }
}
