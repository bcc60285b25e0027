//! Which directories are worth asking for.

use bearing_types::{Mono, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes of a directory after which it is asked for.
const WORTH_ASKING: u32 = 2;
/// Entries that are worth one change more.
const ENTRIES_A_CHANGE: u64 = 128;
/// A directory that was called back is not asked for so long; for twice as long each time that it was called
/// back soon.
pub(crate) const CALLED_BACK: Duration = Duration::from_millis(20);
const CALLED_BACK_MAX: Duration = Duration::from_secs(3);
/// Called back within this time, it was hardly worth asking for.
const SOON: Duration = Duration::from_secs(1);
/// Directories whose changes are counted.
const WORTH_MAX: usize = 4096;

/// Changes seen of directories that are not delegated, and when asking for them is worth it again.
#[derive(Default)]
pub(super) struct Worths(BTreeMap<NodeId, Worth>);

#[derive(Clone, Copy, Debug)]
struct Worth {
    changes: u32,
    not_before: Mono,
    /// How long it is let alone when it is called back soon.
    pause: Duration,
}

impl Worths {
    /// To insert into: what is forgotten is only asked for sooner, or later.
    fn bounded(&mut self) -> &mut BTreeMap<NodeId, Worth> {
        if self.0.len() >= WORTH_MAX {
            self.0.clear();
        }
        &mut self.0
    }

    /// A directory of so many entries was changed. Whether to ask for it: a large one takes longer to come
    /// over, so more has to happen in it; where the directory that it lies in is ours, less.
    pub fn changed(&mut self, directory: NodeId, entries: u64, near: bool, now: Mono) -> bool {
        let fresh = Worth { changes: 0, not_before: Mono::ZERO, pause: CALLED_BACK };
        let known = self.bounded().entry(directory).or_insert(fresh);
        known.changes += 1;
        let wanted = if near { 1 } else { WORTH_ASKING };
        let wanted = wanted.max(u32::try_from(entries / ENTRIES_A_CHANGE).unwrap_or(u32::MAX));
        known.changes >= wanted && now >= known.not_before
    }

    /// A program walks from a directory of ours into this one of so many entries. Whether to ask for it.
    pub fn walked_into(&self, directory: NodeId, entries: u64, now: Mono) -> bool {
        let not_before = self.0.get(&directory).map_or(Mono::ZERO, |worth| worth.not_before);
        entries <= ENTRIES_A_CHANGE && now >= not_before
    }

    /// It is not asked for before that.
    pub fn not_before(&mut self, directory: NodeId, not_before: Mono) {
        let pause = self.0.get(&directory).map_or(CALLED_BACK, |worth| worth.pause);
        self.bounded().insert(directory, Worth { changes: 0, not_before, pause });
    }

    /// A directory that was ours since then is called back.
    pub fn called_back(&mut self, directory: NodeId, since: Mono, now: Mono) {
        let soon = now.since(since) < SOON;
        let worth = self.0.get(&directory).filter(|_| soon);
        let before = worth.map_or(CALLED_BACK, |worth| worth.pause);
        let pause = (before * 2).min(CALLED_BACK_MAX);
        self.bounded().insert(directory, Worth { changes: 0, not_before: now.after(before), pause });
    }
}
