//! Every record in its tablet, and those of chunks made anew: they say who holds what, and the rest of their
//! life is as usual. What is not sealed is sealed soon; what nobody refers to is found by the next scan.

use super::Shape;
use super::found::{Checkpoints, Found, FoundReplica};
use super::load::Extents;
use super::tree::Parts;
use crate::record::{Checkpoint, CheckpointChunk, CheckpointRecord, ChunkRecord, Key, Record};
use bearing_placement::position_of_chunk;
use bearing_types::{ChunkId, Epoch, NodeId, Position, ServerId, TabletSerial, Wall};
use std::collections::{BTreeMap, BTreeSet};

type Tablets = BTreeMap<TabletSerial, BTreeMap<Key, Record>>;

/// Puts everything in its place.
pub(super) fn place(
    shape: &Shape,
    parts: Parts,
    extents: BTreeMap<NodeId, Extents>,
    known: &BTreeMap<ChunkId, ChunkRecord>,
    found: &Found,
    checkpoints: &Checkpoints,
) -> Tablets {
    let mut tablets: Tablets = shape.tablets.iter().map(|(serial, _)| (*serial, BTreeMap::new())).collect();
    let mut put = |serial: TabletSerial, key: Key, record: Record| {
        tablets.entry(serial).or_default().insert(key, record);
    };
    let mut users: BTreeMap<ChunkId, (Position, BTreeSet<Position>)> = BTreeMap::new();
    for (node, extents) in extents {
        let Some(home) = parts.nodes.get(&node).map(|node| node.home) else { continue };
        let (serial, block) = shape.tablet_at(home);
        for (offset, extent) in extents {
            let (_, tablets) =
                users.entry(extent.chunk.chunk).or_insert((extent.chunk.position, BTreeSet::new()));
            if tablets.insert(block.start()) {
                put(serial, Key::Joined(extent.chunk.chunk), Record::Mark(shape.now));
            }
            put(serial, Key::Extent(node, offset), Record::Extent(extent));
        }
    }
    for ((directory, hash, ordinal), name) in parts.names {
        let content = parts.nodes.get(&directory).and_then(|node| node.directory().ok());
        let Some(content) = content else { continue };
        let (serial, _) = shape.tablet_at(content.seat.position_of(hash));
        put(serial, Key::Name(directory, hash, ordinal), Record::Name(name));
    }
    for (directory, fragments) in parts.fragments {
        for (serial, fragment) in fragments {
            put(serial, Key::Fragment(directory), Record::Fragment(Box::new(fragment)));
        }
    }
    for (node, record) in parts.nodes {
        put(shape.tablet_at(record.home).0, Key::Node(node), Record::Node(Box::new(record)));
    }
    let of_checkpoints: BTreeSet<ChunkId> = checkpoints.all_chunks().map(|held| held.chunk).collect();
    let none = BTreeMap::new();
    let chunks: BTreeSet<ChunkId> = found.chunks.keys().chain(users.keys()).copied().collect();
    for chunk in chunks.difference(&of_checkpoints) {
        let replicas = found.chunks.get(chunk).unwrap_or(&none);
        let used = users.get(chunk);
        // What remains of a removed chunk, and keeps it from coming back.
        if used.is_none() && replicas.values().all(|replica| replica.sealed == Some(0)) {
            continue;
        }
        let position = used.map(|(position, _)| *position).or(known.get(chunk).map(|record| record.position));
        let position = position.unwrap_or_else(|| position_of_chunk(*chunk, shape.tablets[0].1));
        let record = chunk_record(position, replicas, shape.now);
        let users = used.map(|(_, users)| users.iter().copied().collect()).unwrap_or_default();
        let record = ChunkRecord { users, ..record };
        put(shape.tablet_at(position).0, Key::Chunk(*chunk), Record::Chunk(Box::new(record)));
    }
    for (serial, record) in checkpoint_records(checkpoints) {
        put(serial, Key::Checkpoint, Record::Checkpoint(Box::new(record)));
    }
    tablets
}

/// What is known of a chunk by who holds it. Where some have it sealed, these have it, and what others hold
/// goes; where nobody has, it is sealed as usual, at its furthest whole frame. What nobody holds has no byte.
fn chunk_record(position: Position, replicas: &BTreeMap<ServerId, FoundReplica>, now: Wall) -> ChunkRecord {
    let epoch = replicas.values().map(|replica| replica.epoch).max().unwrap_or(Epoch(1));
    let sealed = match replicas.is_empty() {
        true => Some(0),
        false => replicas.values().filter_map(|replica| replica.sealed).max(),
    };
    let counts = |replica: &FoundReplica| sealed.is_none() || replica.sealed == sealed;
    let those = |counting: bool| -> Vec<ServerId> {
        let those = replicas.iter().filter(|(_, replica)| counts(replica) == counting);
        those.map(|(server, _)| *server).collect()
    };
    let opened = if sealed.is_some() { now } else { Wall(0) };
    ChunkRecord { epoch, sealed, former: those(false), ..ChunkRecord::new(position, those(true), opened) }
}

/// The checkpoints stay until there are others.
fn checkpoint_records(checkpoints: &Checkpoints) -> BTreeMap<TabletSerial, CheckpointRecord> {
    let mut records: BTreeMap<TabletSerial, CheckpointRecord> = BTreeMap::new();
    for (serial, chunks) in &checkpoints.others {
        records.entry(*serial).or_default().former.clone_from(chunks);
    }
    for (serial, (read, chunks)) in &checkpoints.newest {
        let chunks: Vec<CheckpointChunk> = chunks.clone();
        let whole = Checkpoint { chunks, index: read.index, at: read.header.at };
        records.entry(*serial).or_default().whole = Some(whole);
    }
    records
}
