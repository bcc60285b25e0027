//! The bytes of files: those that checkpoints name, where they lie by now, and those written since.

use super::found::{Found, FoundFrame};
use super::load::Extents;
use super::tree::Tree;
use super::{Lost, Report, Why};
use crate::record::{ChunkRecord, ExtentRecord, NodeContent, NodeRecord, take_range};
use bearing_placement::position_of_chunk;
use bearing_proto::client::ChunkRef;
use bearing_types::{Acls, Attributes, ChunkId, FileType, NodeId, Position, TabletSerial, Version, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Clocks of clients and servers may differ by so much, and what a client decides in a directory that is
/// delegated to it may be so long on its way: a file whose bytes were written so long before a checkpoint
/// ended is in it, or was removed, or is not stable.
const MARGIN: i64 = 1_000_000_000;
/// So long bytes may wait on data servers until their file takes them: what was written to a file so long
/// before its checkpoint may have become part of it since, if nothing else did.
const COMMITTED_WITHIN: i64 = 10_000_000_000;

/// What files are made of.
pub(super) struct Files<'a> {
    pub found: &'a Found,
    /// Frames by node, what counts last behind.
    pub frames: &'a BTreeMap<NodeId, Vec<&'a FoundFrame>>,
    pub extents: BTreeMap<NodeId, Extents>,
    /// When each tablet's checkpoint ended.
    pub ended: BTreeMap<TabletSerial, Wall>,
    /// Chunks as checkpoints have them.
    pub known: &'a BTreeMap<ChunkId, ChunkRecord>,
    /// Where the records of chunks lie.
    pub positions: BTreeMap<ChunkId, Position>,
}

/// Gives every file its bytes, and names and places to those that lack them. Gives the extents of all.
pub(super) fn restore(
    tree: &mut Tree,
    mut files: Files,
    unlinked: &BTreeSet<NodeId>,
    report: &mut Report,
) -> BTreeMap<NodeId, Extents> {
    let mut younger = BTreeSet::new();
    for entry in tree.dangling() {
        let node = entry.node.node;
        if tree.node(node).is_some() {
            continue;
        }
        match files.frames.get(&node).filter(|_| entry.file_type == FileType::Regular) {
            Some(frames) => {
                tree.add(node, young_file(entry.node.home, frames));
                younger.insert(node);
            }
            None => {
                report.lost.push(Lost { path: tree.path_of(node), node, why: Why::NoNode });
                tree.remove(node);
            }
        }
    }
    for node in tree.others() {
        if tree.is_named(node) {
            continue;
        }
        if unlinked.contains(&node) {
            tree.remove(node);
            files.extents.remove(&node);
            continue;
        }
        tree.tell(node, Why::LastName);
        tree.attach_at_last(files.last_name(node), node);
    }
    for (node, frames) in files.frames {
        let known = tree.node(*node).is_some() || unlinked.contains(node);
        if known || !frames.iter().any(|frame| files.may_be_younger(tree, frame)) {
            continue;
        }
        let Some(last) = frames.last() else { continue };
        tree.add(*node, young_file(last.owner.home, frames));
        tree.attach_at_last(files.last_name(*node), *node);
        younger.insert(*node);
    }
    let mut whole = BTreeMap::new();
    for node in tree.others() {
        let is_young = younger.contains(&node);
        if !matches!(tree.node(node).map(|node| &node.content), Some(NodeContent::File)) {
            continue;
        }
        if let Some(extents) = fill(tree, &mut files, node, is_young, report) {
            report.bytes += tree.node(node).map_or(0, |node| node.attributes.size);
            whole.insert(node, extents);
        }
    }
    report.younger = younger
        .iter()
        .filter(|node| whole.contains_key(node))
        .map(|node| (*node, tree.path_of(*node)))
        .collect();
    whole
}

/// A file of which only frames are known.
fn young_file(home: Position, frames: &[&FoundFrame]) -> NodeRecord {
    let last = frames.last().map(|frame| &frame.owner).expect("somebody found a frame");
    let written = frames.iter().map(|frame| frame.owner.written).max().expect("the same");
    let attributes = Attributes::new(FileType::Regular, last.mode, (last.uid, last.gid), written);
    let attributes = Attributes { version: Version(last.version.0 + 1), ..attributes };
    NodeRecord {
        home,
        attributes,
        content: NodeContent::File,
        xattrs: false,
        acls: Acls::default(),
        quota: None,
    }
}

/// Gives a file its extents; none if nothing of it is left, and it goes.
fn fill(
    tree: &mut Tree,
    files: &mut Files,
    node: NodeId,
    is_young: bool,
    report: &mut Report,
) -> Option<Extents> {
    let record = tree.node(node)?.clone();
    let before = files.extents.remove(&node).unwrap_or_default();
    let (mut extents, mut used) = (Extents::new(), BTreeSet::new());
    let (mut lost, mut first_lost) = (0u64, None);
    for (offset, extent) in &before {
        files.positions.entry(extent.chunk.chunk).or_insert(extent.chunk.position);
        used.insert((extent.chunk.chunk, extent.frame));
        // What was gone when the checkpoint was stored is as it was.
        if !files.has(node, extent) && !files.was_gone(extent) {
            lost += u64::from(extent.length);
            first_lost = first_lost.or(Some(*offset));
        }
        extents.insert(*offset, *extent);
    }
    let is_newer = |frame: &&&FoundFrame| {
        is_young
            || (!used.contains(&(frame.chunk, frame.frame))
                && files.is_newer(tree, frame, record.home, record.attributes.version))
    };
    let newer: Vec<&FoundFrame> = match files.frames.get(&node) {
        Some(frames) => frames.iter().filter(is_newer).copied().collect(),
        None => Vec::new(),
    };
    let all = before.values().map(|extent| u64::from(extent.length)).sum::<u64>();
    // A chunk that the checkpoints do not know was gone before them, or came after: such a file may be as it
    // was.
    let were_there = before.values().all(|extent| files.known.contains_key(&extent.chunk.chunk));
    if lost > 0 && lost == all && were_there && newer.is_empty() {
        report.lost.push(Lost { path: tree.path_of(node), node, why: Why::NoBytes });
        tree.remove(node);
        return None;
    }
    if let Some(first) = first_lost {
        tree.tell(node, Why::SomeBytes(lost, first));
    }
    let (mut end, mut misplaced) = (record.attributes.size, 0);
    for frame in &newer {
        let offset = frame.owner.file_offset;
        // Several have appended at the same time: where this belongs its home has known, and nobody else.
        if frame.owner.is_guess && offset != end {
            misplaced += u64::from(frame.payload);
            continue;
        }
        let chunk =
            ChunkRef { chunk: frame.chunk, position: files.position_of(tree, frame.chunk, record.home) };
        let extent = ExtentRecord { length: frame.payload, chunk, frame: frame.frame, skip: 0 };
        files.lay(&mut extents, offset, extent, frame);
        end = end.max(offset + u64::from(frame.payload));
    }
    if misplaced > 0 {
        tree.tell(node, Why::Misplaced(misplaced));
    }
    if !newer.is_empty() && !is_young {
        report.changed.push((node, tree.path_of(node)));
    }
    let attributes = &mut tree.node_mut(node)?.attributes;
    attributes.size = end;
    attributes.space = extents.values().map(|extent| u64::from(extent.length)).sum();
    if let Some(written) = newer.iter().map(|frame| frame.owner.written).max() {
        (attributes.modified, attributes.changed) =
            (attributes.modified.max(written), attributes.changed.max(written));
        attributes.version =
            Version(attributes.version.0.max(newer.iter().map(|frame| frame.owner.version.0).max()?) + 1);
    }
    Some(extents)
}

/// Puts an extent into a file, over what is there.
fn lay_over(extents: &mut Extents, offset: u64, extent: ExtentRecord) {
    if extent.length == 0 {
        return;
    }
    take_range(extents, offset, offset + u64::from(extent.length), |_, _| ());
    extents.insert(offset, extent);
}

impl Files<'_> {
    fn last_name(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        let last = self.frames.get(&node)?.last()?;
        Some((last.owner.parent, &last.owner.name))
    }

    /// Puts a frame into a file, over what is older.
    fn lay(&self, extents: &mut Extents, offset: u64, extent: ExtentRecord, frame: &FoundFrame) {
        let end = offset + u64::from(extent.length);
        let is_newer = |there: &ExtentRecord| {
            let found = self.found.frame_at(there.chunk.chunk, there.frame);
            found.is_some_and(|found| found.order() > frame.order())
        };
        let reaches = |(start, there): &(&u64, &ExtentRecord)| *start + u64::from(there.length) > offset;
        let newer = extents.range(..end).filter(reaches).filter(|(_, there)| is_newer(there));
        let newer: Vec<(u64, ExtentRecord)> = newer.map(|(start, there)| (*start, *there)).collect();
        lay_over(extents, offset, extent);
        newer.into_iter().for_each(|(start, there)| lay_over(extents, start, there));
    }

    fn ended_at(&self, tree: &Tree, home: Position) -> Option<Wall> {
        self.ended.get(&tree.shape.tablet_at(home).0).copied()
    }

    /// Whether a frame of a node that no checkpoint has may be younger than these; else the file was removed.
    fn may_be_younger(&self, tree: &Tree, frame: &FoundFrame) -> bool {
        let ended = self.ended_at(tree, frame.owner.home);
        ended.is_none_or(|ended| frame.owner.written.0 >= ended.0 - MARGIN)
    }

    /// Whether a frame that the checkpoint does not name was written to a file since.
    fn is_newer(&self, tree: &Tree, frame: &FoundFrame, home: Position, version: Version) -> bool {
        let Some(ended) = self.ended_at(tree, home) else { return true };
        let written = frame.owner.written.0;
        written >= ended.0 + MARGIN
            || (written >= ended.0 - COMMITTED_WITHIN && frame.owner.version >= version)
    }

    /// Whether an extent's bytes are where they were. Chunks whose content was moved by compaction are kept
    /// until all checkpoints are newer.
    fn has(&self, node: NodeId, extent: &ExtentRecord) -> bool {
        let end = u64::from(extent.skip) + u64::from(extent.length);
        let frame = self.found.frame_at(extent.chunk.chunk, extent.frame);
        frame.is_some_and(|frame| frame.owner.node == node && u64::from(frame.payload) >= end)
    }

    /// Whether the checkpoint says itself that the frame was not kept when its chunk was sealed.
    fn was_gone(&self, extent: &ExtentRecord) -> bool {
        self.known.get(&extent.chunk.chunk).is_some_and(|record| !record.keeps(extent.frame))
    }

    fn position_of(&mut self, tree: &Tree, chunk: ChunkId, home: Position) -> Position {
        let (_, tablet) = tree.shape.tablet_at(home);
        *self.positions.entry(chunk).or_insert_with(|| position_of_chunk(chunk, tablet))
    }
}
