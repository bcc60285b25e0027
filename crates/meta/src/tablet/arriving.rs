//! A tablet that arrives from another server (see `engine/handover.rs`).

use crate::event::AppendNumber;
use bearing_seams::{Change, Pair};
use bearing_types::{Block, Epoch, LogIndex, Position, TabletSerial};

/// A part of a tablet as it arrives.
pub(crate) struct CopiedPart {
    pub block: Block,
    pub epoch: Epoch,
    pub number: u32,
    pub pairs: Vec<Pair>,
    pub base: LogIndex,
    pub last: bool,
}

/// A tablet that is arriving.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub block: Block,
    pub serial: TabletSerial,
    pub epoch: Epoch,
    pub from: Position,
    pub base: LogIndex,
    pub parts: u32,
    pub complete: bool,
    /// Parts that are logged but not stable.
    pub unstable: Vec<(AppendNumber, u32, Vec<Change>)>,
}

impl Arriving {
    /// The index with which the tablet goes on here.
    pub fn next_index(&self) -> LogIndex {
        part_index(self.base, self.parts)
    }
}

/// Parts get indices after the source's last record, so that they follow whatever this server may still hold
/// of the tablet.
pub(crate) fn part_index(base: LogIndex, part: u32) -> LogIndex {
    LogIndex(base.0 + 1 + u64::from(part))
}
