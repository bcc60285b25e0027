//! What is committed and was not made stable, of open files and of closed ones.

use super::file::File;
use super::table::Files;
use bearing_types::{ChunkId, Code, NodeId};
use std::collections::BTreeMap;

/// Where the last frame of a file ends in a chunk, if nobody remembers whether it has any there.
pub(crate) const UNKNOWN_END: u64 = u64::MAX;

impl Files {
    /// Open files in which something that lies in a chunk was not synced.
    pub fn unsynced_in(&self, chunk: ChunkId) -> Vec<NodeId> {
        let files = self.files.iter().filter(|(_, file)| file.unsynced.contains_key(&chunk));
        files.map(|(node, _)| *node).collect()
    }

    /// What a file has in a chunk is stable.
    pub fn synced_in(&mut self, node: NodeId, chunk: ChunkId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.unsynced.remove(&chunk);
        }
    }

    /// Whether anything was not synced in a chunk, also of files that are closed.
    pub fn is_unsynced_anywhere(&self, chunk: ChunkId) -> bool {
        self.files.values().any(|file| file.unsynced.contains_key(&chunk))
            || self.left_behind.is_unsynced_in(chunk)
    }

    /// Where frames of a file lie that were not synced, and where the last of them end.
    pub fn unsynced_of(&self, node: NodeId) -> BTreeMap<ChunkId, u64> {
        let Some(file) = self.files.get(&node) else { return BTreeMap::new() };
        let mut unsynced = file.unsynced.clone();
        if file.unsynced_unknown {
            for chunk in self.left_behind.unknown() {
                unsynced.entry(chunk).or_insert(UNKNOWN_END);
            }
        }
        unsynced
    }

    /// What came of the sync of a file that was closed.
    pub fn closed_synced(
        &mut self,
        node: NodeId,
        admitted: bool,
        synced: Result<(), Code>,
    ) -> Result<(), Code> {
        let Some(file) = self.files.get_mut(&node) else { return synced };
        match synced {
            // A loss is noted already; otherwise it is asked again.
            Ok(()) | Err(Code::Io | Code::Unreachable | Code::SessionEnded | Code::Unauthenticated) => synced,
            // It is no more, and nobody misses anything.
            Err(Code::Stale | Code::NotFound) if admitted => {
                file.unsynced.clear();
                Ok(())
            }
            // Nobody can say whether it refers to what is lost.
            Err(_) => {
                file.unsynced.clear();
                file.losses.note(Code::Io);
                Err(Code::Io)
            }
        }
    }

    /// Frames of a file are committed in a chunk, the last of which ends there, and were not synced.
    pub fn note_unsynced(&mut self, node: NodeId, chunk: ChunkId, end: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            let known = file.unsynced.entry(chunk).or_insert(0);
            *known = end.max(*known);
        }
    }

    /// What was not synced of a file is synced, or lost.
    pub fn earlier_synced(&mut self, node: NodeId, earlier: &BTreeMap<ChunkId, u64>, lost: bool) {
        if let Some(file) = self.files.get_mut(&node) {
            file.unsynced.retain(|chunk, _| !earlier.contains_key(chunk));
            file.unsynced_unknown = false;
            if lost {
                file.losses.note(Code::Io);
            }
        }
    }

    /// A sync of everything is over: tells of what files lost, once. See [`LeftBehind::tell`].
    ///
    /// [`LeftBehind::tell`]: super::left::LeftBehind::tell
    pub fn tell_lost(&mut self, has_lost: impl Fn(ChunkId) -> bool) -> Result<(), Code> {
        let told = self.files.values_mut().map(|file| file.losses.tell_all());
        let open = told.fold(Ok(()), Result::and);
        self.left_behind.tell(has_lost).and(open)
    }

    /// Which chunks are stable, so that no file has anything to make stable or to lose in them.
    pub fn forget_stable(&mut self, is_stable: impl Fn(ChunkId) -> bool) {
        for file in self.files.values_mut() {
            file.unsynced.retain(|chunk, _| !is_stable(*chunk));
        }
        self.left_behind.retain_chunks(|chunk| !is_stable(chunk));
    }

    /// The next sync of everything is to tell of what was lost although one has told of it.
    pub fn tell_lost_again(&mut self) {
        self.files.values_mut().for_each(|file| file.losses.told_by_all = 0);
        self.left_behind.tell_again();
    }

    /// The closed files that left something unsynced.
    pub fn left_unsynced(&self) -> Vec<NodeId> {
        self.left_behind.unsynced()
    }

    /// Has a closed file as if it were open, so that it can be synced. Whether there was anything to sync.
    pub fn revive(&mut self, node: NodeId) -> bool {
        let Some(left) = self.left_behind.take_unsynced(node) else { return false };
        let revived = || File::new(left.handle, left.attributes);
        let file = self.files.entry(node).or_insert_with(revived);
        file.unsynced.extend(left.chunks);
        if file.opens == 0 {
            file.open_for = left.open_for;
        }
        true
    }
}
