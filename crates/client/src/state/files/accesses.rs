//! Files that were read, of which their homes have not heard yet.

use bearing_proto::client::Handle;
use bearing_types::{NodeId, Wall};
use std::collections::BTreeMap;

/// Files that are noted at the same time; when there are so many, further reads are not noted until these
/// were told.
const NOTED_MAX: usize = 4096;
/// Reads that the files' homes have not heard of.
#[derive(Default)]
pub(super) struct Accesses {
    noted: BTreeMap<NodeId, (Handle, Wall)>,
    planned: bool,
}

impl Accesses {
    /// When a file was read, if its home has not heard of that.
    pub fn of(&self, node: NodeId) -> Option<Wall> {
        self.noted.get(&node).map(|(_, at)| *at)
    }

    /// Somebody says what the time of access shall be.
    pub fn forget(&mut self, node: NodeId) {
        self.noted.remove(&node);
    }

    /// A file is read. Whether somebody has to plan to tell of it.
    pub fn note(&mut self, file: Handle, now: Wall) -> bool {
        if self.noted.len() >= NOTED_MAX || self.noted.contains_key(&file.node) {
            return false;
        }
        self.noted.insert(file.node, (file, now));
        !std::mem::replace(&mut self.planned, true)
    }

    /// The planned time has come.
    pub fn begin_telling(&mut self) {
        self.planned = false;
    }

    /// All that was noted.
    pub fn take(&mut self) -> Vec<(Handle, Wall)> {
        std::mem::take(&mut self.noted).into_values().collect()
    }
}
