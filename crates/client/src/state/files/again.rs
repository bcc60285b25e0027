//! Open files, when a session is followed by another one.

use super::file::{File, Losses};
use super::left::LeftBehind;
use super::open::{Left, Open};
use super::table::Files;
use crate::operation::OpenFile;
use bearing_proto::rules::OpenWish;
use bearing_types::{Code, NodeId};
use std::collections::BTreeSet;

impl Files {
    /// Takes over what stays of the files of the session before.
    pub fn follow(&mut self, before: &mut Files) {
        self.next_open = before.next_open;
        self.left = std::mem::take(&mut before.left);
        let unstable =
            |file: &File| file.is_dirty() || file.written_end.is_some() || !file.unsynced.is_empty();
        let nodes = before.files.iter().filter(|(_, file)| unstable(file)).map(|(node, _)| *node);
        let left_behind = std::mem::replace(&mut before.left_behind, LeftBehind::new(1));
        self.left_behind.follow(left_behind, nodes);
        for (number, open) in std::mem::take(&mut before.opens) {
            let Some(file) = before.files.get(&open.node) else { continue };
            let untold = file.losses.count > open.told_by_sync;
            let Open { who, read, write, execute, .. } = open;
            let wish = OpenWish { read, write, truncate: false, execute };
            let left = Left { node: file.handle, wish, who, lost: unstable(file) || untold };
            self.left.insert(number, left);
        }
    }

    /// Nodes that are open, or of which something is buffered.
    pub fn in_use(&self) -> impl Iterator<Item = NodeId> + '_ {
        let left = self.left.values().map(|left| left.node.node);
        self.files.keys().copied().chain(left).collect::<BTreeSet<_>>().into_iter()
    }

    /// A file that was open in a session before this one, and was not used since.
    pub fn left(&self, file: OpenFile) -> Option<Left> {
        self.left.get(&file).cloned()
    }

    /// A file was opened again: from now on it has its old number. Gives the new one back if somebody else
    /// did that meanwhile.
    pub fn take_place(&mut self, new: OpenFile, old: OpenFile) -> Option<OpenFile> {
        let Some(left) = self.left.remove(&old) else { return Some(new) };
        let mut open = self.opens.remove(&new)?;
        if let Some(file) = self.files.get_mut(&open.node) {
            if left.lost && file.losses.count == 0 {
                file.losses.note(Code::Io);
            }
            if left.lost {
                (open.told_by_sync, open.told_by_flush) = (file.losses.count - 1, file.losses.count - 1);
            }
        }
        self.opens.insert(old, open);
        None
    }

    /// A file is closed that was not used since a session before this one. Whether anybody was to be told
    /// that it lost something.
    pub fn close_left(&mut self, file: OpenFile) -> Option<Result<(), Code>> {
        let left = self.left.remove(&file)?;
        Some(if left.lost { Err(Code::Io) } else { Ok(()) })
    }

    /// A file is opened: whether it lost something that nobody was told of.
    pub fn note_lost(&mut self, node: NodeId) {
        if self.left_behind.take_lost(node)
            && let Some(file) = self.files.get_mut(&node)
        {
            file.losses = Losses::default();
            file.losses.note(Code::Io);
        }
    }
}
