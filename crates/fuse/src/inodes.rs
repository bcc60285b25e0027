//! Which nodes the kernel knows: inode numbers to handles, with the kernel's lookup counts.
//!
//! Invariants: the inode number of a node is its id, that of the root is 1. A node stays until the kernel has
//! forgotten it as often as it was told about it; the root stays for ever. `keep_cache` is granted only when
//! every page that the kernel may hold is of the version being opened. This module must not know servers or
//! replies.

use bearing_mount::{Found, Handle};
use bearing_types::{FileType, IdMap, NodeId, Position, Version};
use fuser::INodeNo;
use std::sync::{Mutex, MutexGuard};

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    /// The node.
    pub handle: Handle,
    /// Its kind.
    pub file_type: FileType,
}

/// Whether the kernel may keep the pages that it holds of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// They are of the version that is being opened.
    Keep,
    /// They may be older.
    Drop,
}

/// What is known of a node, whose id it is kept under. The kernel may know a million, so it is small.
#[derive(Debug)]
struct Known {
    home: Position,
    /// The version of all pages that the kernel may hold, if `pages_known`.
    pages: Version,
    /// How often the kernel was told, less how often it forgot; `MAX`: more often than is counted.
    told: u32,
    /// Open files of this mount; `MAX`: more than are counted.
    open: u16,
    file_type: FileType,
    pages_known: bool,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Inodes {
    root: Inode,
    /// By their ids. One table would be copied as it grows while all requests wait, and leave its former self
    /// behind.
    shards: [Mutex<IdMap<NodeId, Known>>; SHARDS],
}

/// No power of two: a table doubles when it is seven eighths full, and with the 131,072 files and names that
/// a client keeps these are four fifths full.
const SHARDS: usize = 80;

impl Inodes {
    /// A table that knows the root.
    pub fn new(root: Handle) -> Inodes {
        Inodes {
            root: Inode { handle: root, file_type: FileType::Directory },
            shards: std::array::from_fn(|_| Mutex::new(IdMap::default())),
        }
    }

    /// The number under which the kernel knows a node.
    pub fn number(&self, node: NodeId) -> INodeNo {
        if node == self.root.handle.node { INodeNo::ROOT } else { INodeNo(node.0) }
    }

    /// What a number stands for; none when the kernel has forgotten it or never knew it.
    pub fn get(&self, number: INodeNo) -> Option<Inode> {
        if number == INodeNo::ROOT {
            return Some(self.root);
        }
        let node = NodeId(number.0);
        let shown =
            |known: &Known| Inode { handle: Handle { node, home: known.home }, file_type: known.file_type };
        self.shard(node).get(&node).map(shown)
    }

    /// Counts that the kernel is being told about a node, and gives its number. To be called before the reply
    /// leaves: the kernel may forget it at once.
    pub fn tell(&self, found: &Found) -> INodeNo {
        let node = found.node.node;
        if node != self.root.handle.node {
            let (home, file_type) = (found.node.home, found.attributes.file_type);
            let unknown = Known { home, pages: Version(0), told: 0, open: 0, file_type, pages_known: false };
            let mut table = self.shard(node);
            let known = table.entry(node).or_insert(unknown);
            // It stays when it was told more often than can be counted.
            known.told = known.told.saturating_add(1);
        }
        self.number(node)
    }

    /// The kernel has forgotten a node so many times.
    pub fn forget(&self, number: INodeNo, times: u64) {
        let node = NodeId(number.0);
        let mut table = self.shard(node);
        if let Some(known) = table.get_mut(&node) {
            if known.told < u32::MAX {
                known.told = known.told.saturating_sub(u32::try_from(times).unwrap_or(u32::MAX));
            }
            if known.told == 0 {
                table.remove(&node);
            }
        }
    }

    /// A file of this version is being opened: whether the kernel may keep its pages.
    pub fn opened(&self, number: INodeNo, version: Version) -> Pages {
        let node = NodeId(number.0);
        let mut table = self.shard(node);
        let Some(known) = table.get_mut(&node) else { return Pages::Drop };
        let same = known.pages_known && known.pages == version;
        let pages = if same { Pages::Keep } else { Pages::Drop };
        // While an older file is open, reads through it may fill pages of the older version after the kernel
        // dropped them.
        (known.pages, known.pages_known) = (version, same || known.open == 0);
        known.open = known.open.saturating_add(1);
        pages
    }

    /// A file was closed for good.
    pub fn closed(&self, number: INodeNo) {
        let node = NodeId(number.0);
        if let Some(known) = self.shard(node).get_mut(&node)
            && known.open < u16::MAX
        {
            known.open = known.open.saturating_sub(1);
        }
    }

    /// The kernel's pages of a file cannot be trusted, for instance because a write that they show was lost.
    pub fn distrust(&self, number: INodeNo) {
        let node = NodeId(number.0);
        if let Some(known) = self.shard(node).get_mut(&node) {
            known.pages_known = false;
        }
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, IdMap<NodeId, Known>> {
        let shard = &self.shards[node.0 as usize % SHARDS];
        shard.lock().expect("no thread panics while it holds the inode table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{found, handle};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn table() -> Inodes {
        Inodes::new(handle(1))
    }

    #[test]
    fn the_root_is_number_one_and_never_forgotten() {
        let inodes = table();
        inodes.forget(INodeNo::ROOT, 100);
        assert_eq!(inodes.get(INodeNo::ROOT), Some(inodes.root));
        assert_eq!(inodes.tell(&found(1, FileType::Directory)), INodeNo::ROOT);
    }

    #[test]
    fn a_root_of_another_id_is_number_one_too() {
        let inodes = Inodes::new(handle(77));
        assert_eq!(inodes.tell(&found(77, FileType::Directory)), INodeNo::ROOT);
        assert_eq!(inodes.get(INodeNo::ROOT).unwrap().handle, handle(77));
    }

    #[test]
    fn pages_are_kept_only_while_the_version_stays_the_same() {
        let inodes = table();
        let number = inodes.tell(&found(5, FileType::Regular));
        assert_eq!(inodes.opened(number, Version(1)), Pages::Drop, "the first time nothing is known");
        inodes.closed(number);
        assert_eq!(inodes.opened(number, Version(1)), Pages::Keep);
        inodes.closed(number);
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
        inodes.closed(number);
        inodes.distrust(number);
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
    }

    #[test]
    fn pages_read_through_an_older_open_file_are_not_trusted_later() {
        let inodes = table();
        let number = inodes.tell(&found(5, FileType::Regular));
        inodes.opened(number, Version(1));
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
        assert_eq!(
            inodes.opened(number, Version(2)),
            Pages::Drop,
            "the first file may have filled pages since"
        );
        inodes.closed(number);
        inodes.closed(number);
        inodes.closed(number);
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
        inodes.closed(number);
        assert_eq!(inodes.opened(number, Version(2)), Pages::Keep);
    }

    #[test]
    fn pages_of_a_file_that_was_opened_more_often_than_is_counted_are_not_trusted_after_a_change() {
        let inodes = table();
        let number = inodes.tell(&found(5, FileType::Regular));
        let times = u32::from(u16::MAX) + 1;
        (0..times).for_each(|_| _ = inodes.opened(number, Version(1)));
        (1..times).for_each(|_| inodes.closed(number));
        // One is open yet, and may fill pages of the first version.
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
        inodes.closed(number);
        assert_eq!(inodes.opened(number, Version(2)), Pages::Drop);
    }

    #[test]
    fn a_known_node_takes_no_more_room_than_is_said() {
        assert_eq!(size_of::<(NodeId, Known)>(), 32);
    }

    proptest! {
        // The oracle is a plain count per node.
        #[test]
        fn a_node_is_known_exactly_while_it_was_told_more_often_than_forgotten(
            steps in proptest::collection::vec((2u64..6, any::<bool>(), 1u64..4), 0..60)
        ) {
            let inodes = table();
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            for (node, tells, times) in steps {
                let count = counts.entry(node).or_default();
                if tells {
                    prop_assert_eq!(inodes.tell(&found(node, FileType::Regular)), INodeNo(node));
                    *count += 1;
                } else {
                    // The kernel never forgets more than it was told.
                    let times = times.min(*count);
                    inodes.forget(INodeNo(node), times);
                    *count -= times;
                }
                for (node, count) in &counts {
                    let expected = (*count > 0).then(|| handle(*node));
                    prop_assert_eq!(inodes.get(INodeNo(*node)).map(|inode| inode.handle), expected);
                }
            }
        }
    }
}
