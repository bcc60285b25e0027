//! Metadata recovery: what metadata servers had, made anew from what data servers hold. Checkpoints give what
//! is older than they are; frames of files, which say whose bytes they are and under which name, give what is
//! younger and what is where by now. Transactions that were under way, sessions, leases, locks and
//! delegations are over.
//!
//! Nothing here reads or writes anything: who calls brings what was found and stores what comes out.

mod chunks;
mod content;
mod found;
mod load;
mod report;
mod scan;
#[cfg(test)]
mod tests;
mod tree;

pub use found::{Checkpoints, Found, FoundFrame, FoundReplica};
pub use report::{Lost, Path, Report, Why};
pub use scan::scan_chunk;

use crate::record::{Key, Record};
use bearing_placement::Seat;
use bearing_types::{Block, LogIndex, NameKey, TabletSerial, Wall};
use std::collections::BTreeMap;

/// Ids behind the largest that was seen are left out: they may have been given to clients.
const IDS_LEFT_OUT: u64 = 1 << 24;
/// And log entries behind the last one of a checkpoint: they may have been written.
const ENTRIES_LEFT_OUT: u64 = 1 << 32;

/// The cluster whose metadata it is.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its tablets, by their places on the ring.
    pub tablets: Vec<(TabletSerial, Block)>,
    /// The root's seat.
    pub root: Seat,
    /// How names are hashed.
    pub name_key: NameKey,
    /// What the time is.
    pub now: Wall,
}

impl Shape {
    /// The tablet of a position.
    fn tablet_at(&self, position: bearing_types::Position) -> (TabletSerial, Block) {
        let at = self.tablets.iter().find(|(_, block)| block.contains(position));
        *at.expect("tablets cover the ring")
    }
}

/// All metadata, anew.
#[derive(Debug)]
pub struct Rebuilt {
    /// The records of each tablet, and the entry that they are of.
    pub tablets: BTreeMap<TabletSerial, (LogIndex, BTreeMap<Key, Record>)>,
    /// What became of what.
    pub report: Report,
}

/// Makes it.
pub fn rebuild(shape: &Shape, found: &Found) -> Rebuilt {
    let checkpoints = found.checkpoints();
    let mut report = Report::default();
    let missing = shape.tablets.iter().filter(|(serial, _)| !checkpoints.newest.contains_key(serial));
    report.tablets_without = missing.map(|(serial, _)| *serial).collect();
    let ends = checkpoints.newest.iter().map(|(serial, (read, _))| (*serial, (read.index, read.ended)));
    let ends: BTreeMap<TabletSerial, (LogIndex, Wall)> = ends.collect();
    let records = checkpoints.newest.iter().map(|(serial, (read, _))| (*serial, read.records.clone()));
    let mut loaded = load::load(records);
    report.unread = checkpoints.unread.iter().map(|(serial, _)| *serial).collect();
    let largest = loaded.largest_id().max(found.largest_id()) + IDS_LEFT_OUT;
    let frames = found.frames_by_node();
    let mut tree = tree::Tree::new(shape, loaded.take_tree(), largest);
    let files = content::Files {
        found,
        frames: &frames,
        extents: std::mem::take(&mut loaded.extents),
        ended: ends.iter().map(|(serial, (_, ended))| (*serial, *ended)).collect(),
        known: &loaded.chunks,
        positions: loaded.chunks.iter().map(|(chunk, record)| (*chunk, record.position)).collect(),
    };
    let extents = content::restore(&mut tree, files, &loaded.unlinked, &mut report);
    let (parts, next_id) = tree.finish(&mut report);
    let mut tablets = chunks::place(shape, parts, extents, &loaded.chunks, found, &checkpoints);
    loaded.put_rest(shape, &mut tablets, next_id);
    let end =
        |serial: &TabletSerial| LogIndex(ends.get(serial).map_or(0, |(index, _)| index.0) + ENTRIES_LEFT_OUT);
    let tablets = tablets.into_iter().map(|(serial, records)| (serial, (end(&serial), records))).collect();
    Rebuilt { tablets, report }
}
