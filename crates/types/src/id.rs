//! Identifiers. Each is a newtype, so that no function takes two bare integers.

use crate::ring::{Block, Position};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

id!(/// One filesystem (namespace) of a cluster.
    FilesystemId(u32), "fs");
id!(/// A node (inode). Unique in the cluster for ever: given out in ranges that are burnt, never reused.
    NodeId(u64), "n");
id!(/// A metadata or data server. A server that lost its disk returns under a new id.
    ServerId(u32), "s");
id!(/// A client's session, chosen at random by the client when it enrols.
    SessionId(u64), "c");
id!(/// The number of a request within its session. (session, sequence) identifies a mutation.
    Sequence(u64), "#");
id!(/// A tablet's epoch: it alone fences. A server serves a tablet only under the current one.
    Epoch(u64), "e");
id!(/// A tablet's number, for ever: other tablets may lie where it lay, and have the same block. Items in
    /// queues and replies belong to it, and servers keep its records under it.
    TabletSerial(u64), "t");
id!(/// The version of the map of tablets and servers. It only tells caches that they are old.
    MapVersion(u64), "m");
id!(/// The index of a record in one tablet's log, from 1, without gaps within the tablet's life.
    LogIndex(u64), "i");
id!(/// How often a directory has been re-seated.
    Generation(u32), "g");
id!(/// A chunk: a checksummed append-only log on R data servers.
    ChunkId(u64), "k");
id!(/// A node's change counter: it grows with every change of attributes or content.
    Version(u64), "v");
id!(/// The hash of a directory's access control list. 0 when it has none.
    AclHash(u64), "a");

/// A disk: what a server keeps its data on, named at random when it is first used. It lies in the directories
/// that it speaks for and in the coordinator, so that a server notices when it is given another disk than
/// before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiskId(pub u128);

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl NodeId {
    /// The root directory of the first filesystem.
    pub const ROOT: NodeId = NodeId(1);
}

impl Epoch {
    /// The epoch that follows this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl TabletSerial {
    /// Tablets that come of a split get serials from here on.
    pub const FIRST_OF_SPLITS: TabletSerial = TabletSerial(1 << 32);

    /// The serial of a tablet that a cluster was made with: a leading one, then the bits of its prefix. So
    /// all of one cut differ, and what was written before there were serials gets the same one everywhere.
    /// `None` for blocks that no cluster is made with, which have more than 31 bits.
    pub fn of_first(block: Block) -> Option<TabletSerial> {
        let bits = u32::from(block.prefix_bits());
        let prefix = block.start().0.checked_shr(64 - bits).unwrap_or(0);
        (bits < 32).then_some(TabletSerial(1 << bits | prefix))
    }

    /// The block of a tablet that a cluster was made with; `None` for a tablet that came of a split.
    pub fn first_block(self) -> Option<Block> {
        let bits = self.0.checked_ilog2().filter(|bits| *bits < 32)?;
        let prefix = self.0 ^ 1 << bits;
        Some(Block::around(Position(prefix.checked_shl(64 - bits).unwrap_or(0)), bits as u8))
    }
}

impl LogIndex {
    /// Before the first record.
    pub const ZERO: LogIndex = LogIndex(0);

    /// The index that follows this one.
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }
}

impl Sequence {
    /// The sequence number that follows this one.
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl Version {
    /// The version that follows this one.
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

impl Generation {
    /// The generation a directory is born with.
    pub const FIRST: Generation = Generation(1);
}

/// A transaction across tablets: the start of its coordinating tablet, the epoch in which it began, and a
/// number within that epoch. The epoch makes numbers of an earlier, crashed owner unrepeatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// A position inside the coordinating tablet: where a participant in doubt asks.
    pub coordinator: Position,
    /// The coordinating tablet's epoch when the transaction began.
    pub epoch: Epoch,
    /// Counts the transactions of that epoch.
    pub number: u64,
}

/// A half-open range of node ids, burnt by a log record before the first of them is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdRange {
    /// The next id to give out.
    pub next: NodeId,
    /// The first id that is not of this range.
    pub end: NodeId,
}

impl NodeIdRange {
    /// A range without ids.
    pub const EMPTY: NodeIdRange = NodeIdRange { next: NodeId(0), end: NodeId(0) };

    /// Takes the next id, or `None` when the range is used up.
    pub fn take(&mut self) -> Option<NodeId> {
        if self.next.0 >= self.end.0 {
            return None;
        }
        let id = self.next;
        self.next = NodeId(id.0 + 1);
        Some(id)
    }

    /// Takes ids in a row, as many as are wanted or half of what is left. Gives the first and how many;
    /// `None` when there are too few to share.
    pub fn take_some(&mut self, wanted: u32) -> Option<(NodeId, u32)> {
        let count = u64::from(wanted).min(self.left() / 2) as u32;
        if count == 0 {
            return None;
        }
        let first = self.next;
        self.next = NodeId(first.0 + u64::from(count));
        Some((first, count))
    }

    /// How many ids are left.
    pub fn left(&self) -> u64 {
        self.end.0.saturating_sub(self.next.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_tablet_and_its_serial_say_each_other_and_no_two_of_a_cut_are_alike() {
        for bits in [0_u8, 1, 4, 16] {
            let blocks = (0..1_u64 << bits).map(|index| Block::RING.sub_block(bits, index));
            for (block, expected) in blocks.zip(1_u64 << bits..) {
                let serial = TabletSerial::of_first(block).unwrap();
                assert_eq!((serial.0, serial.first_block()), (expected, Some(block)));
            }
        }
        assert_eq!(TabletSerial(0).first_block(), None);
        assert_eq!(TabletSerial::FIRST_OF_SPLITS.first_block(), None);
        assert_eq!(TabletSerial::of_first(Block::around(Position(1 << 40), 32)), None);
    }
}
