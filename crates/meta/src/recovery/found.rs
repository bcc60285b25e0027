//! What a scan of data servers has found: frames of files, checkpoints, and who holds which chunk how far.

use crate::record::{CHECKPOINT_NODE, CheckpointChunk, ReadCheckpoint, StreamError, read_checkpoint};
use bearing_proto::frame::FrameOwner;
use bearing_types::{ChunkId, Epoch, NodeId, ServerId, TabletSerial, Version, Wall};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How the bytes of a scan begin, with their version.
const SCAN_MAGIC: &[u8; 12] = b"BRG-SCAN\x01\0\0\0";

/// What one data server holds of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundReplica {
    /// Its epoch.
    pub epoch: Epoch,
    /// The length at which it was sealed, if it was.
    pub sealed: Option<u64>,
    /// Where its last whole frame ends.
    pub length: u64,
}

/// A whole frame of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFrame {
    /// Its chunk.
    pub chunk: ChunkId,
    /// Where it starts.
    pub frame: u64,
    /// Bytes of its payload.
    pub payload: u32,
    /// Whose bytes they are.
    pub owner: FrameOwner,
}

impl FoundFrame {
    /// What counts of two frames for the same bytes of a file is the larger one.
    pub(super) fn order(&self) -> (Version, Wall) {
        (self.owner.version, self.owner.written)
    }
}

/// A piece of a checkpoint's stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    chunk: ChunkId,
    bytes: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Servers whose disks were read, and of metadata servers whether they have kept anything.
    pub servers: BTreeMap<ServerId, bool>,
    /// Who holds each chunk.
    pub chunks: BTreeMap<ChunkId, BTreeMap<ServerId, FoundReplica>>,
    /// Frames by chunk and by where they start.
    pub(super) frames: BTreeMap<(ChunkId, u64), FoundFrame>,
    /// By tablet, then by checkpoint (its first chunk), then by where the piece lies in the stream.
    pieces: BTreeMap<TabletSerial, BTreeMap<ChunkId, BTreeMap<u64, Piece>>>,
}

/// Checkpoints that were found.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// The newest whole one of each tablet, and where it lies.
    pub newest: BTreeMap<TabletSerial, (ReadCheckpoint, Vec<CheckpointChunk>)>,
    /// Those that could not be read, with why. One that is cut off was being written.
    pub unread: Vec<(TabletSerial, StreamError)>,
    /// Chunks of all others.
    pub others: BTreeMap<TabletSerial, Vec<CheckpointChunk>>,
}

impl Checkpoints {
    /// Chunks of all of them.
    pub fn all_chunks(&self) -> impl Iterator<Item = &CheckpointChunk> {
        let newest = self.newest.values().flat_map(|(_, chunks)| chunks);
        newest.chain(self.others.values().flatten())
    }
}

impl Found {
    /// Its bytes, for another host.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, SCAN_MAGIC.to_vec()).expect("plain values always encode")
    }

    /// What another host has found; none if these are no such bytes, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Found> {
        postcard::from_bytes(bytes.strip_prefix(SCAN_MAGIC)?).ok()
    }

    /// Another host has found this.
    pub fn absorb(&mut self, other: Found) {
        for (chunk, replicas) in other.chunks {
            self.chunks.entry(chunk).or_default().extend(replicas);
        }
        self.servers.extend(other.servers);
        self.frames.extend(other.frames);
        for (tablet, streams) in other.pieces {
            let known = self.pieces.entry(tablet).or_default();
            for (first, pieces) in streams {
                known.entry(first).or_default().extend(pieces);
            }
        }
    }

    /// How many frames of files there are.
    pub fn frames_len(&self) -> usize {
        self.frames.len()
    }

    /// A data server holds something of a chunk.
    pub fn replica(&mut self, server: ServerId, chunk: ChunkId, replica: FoundReplica) {
        self.chunks.entry(chunk).or_default().insert(server, replica);
    }

    /// A frame is whole somewhere. Of a checkpoint its payload is wanted.
    pub fn frame(&mut self, found: FoundFrame, payload: impl FnOnce() -> Vec<u8>) {
        if found.owner.node == CHECKPOINT_NODE {
            let tablet = TabletSerial(found.owner.parent.0);
            let stream = self.pieces.entry(tablet).or_default();
            let stream = stream.entry(ChunkId(found.owner.version.0)).or_default();
            let piece = || Piece { chunk: found.chunk, bytes: payload() };
            stream.entry(found.owner.file_offset).or_insert_with(piece);
        } else {
            self.frames.entry((found.chunk, found.frame)).or_insert(found);
        }
    }

    /// Whether a piece of a checkpoint, whose frame says so, was found already.
    pub fn has_piece(&self, owner: &FrameOwner) -> bool {
        let tablet = self.pieces.get(&TabletSerial(owner.parent.0));
        let stream = tablet.and_then(|streams| streams.get(&ChunkId(owner.version.0)));
        stream.is_some_and(|pieces| pieces.contains_key(&owner.file_offset))
    }

    /// A frame of a file.
    pub fn frame_at(&self, chunk: ChunkId, frame: u64) -> Option<&FoundFrame> {
        self.frames.get(&(chunk, frame))
    }

    /// Frames of files, by node.
    pub(super) fn frames_by_node(&self) -> BTreeMap<NodeId, Vec<&FoundFrame>> {
        let mut nodes: BTreeMap<NodeId, Vec<&FoundFrame>> = BTreeMap::new();
        for frame in self.frames.values() {
            nodes.entry(frame.owner.node).or_default().push(frame);
        }
        nodes.values_mut().for_each(|frames| frames.sort_by_key(|frame| frame.order()));
        nodes
    }

    /// The largest id that anything has.
    pub(super) fn largest_id(&self) -> u64 {
        let chunks = self.chunks.keys().map(|chunk| chunk.0);
        let nodes = self.frames.values().map(|frame| frame.owner.node.0.max(frame.owner.parent.0));
        chunks.chain(nodes).max().unwrap_or(0)
    }

    /// Reads the checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        let mut checkpoints = Checkpoints::default();
        let holders = |chunk: &ChunkId| {
            self.chunks.get(chunk).map(|held| held.keys().copied().collect()).unwrap_or_default()
        };
        for (serial, streams) in &self.pieces {
            for pieces in streams.values() {
                let chunks: BTreeSet<ChunkId> = pieces.values().map(|piece| piece.chunk).collect();
                let chunks =
                    chunks.iter().map(|chunk| CheckpointChunk { chunk: *chunk, servers: holders(chunk) });
                let mut chunks: Vec<CheckpointChunk> = chunks.collect();
                let mut stream = Vec::new();
                for (offset, piece) in pieces {
                    if *offset != stream.len() as u64 {
                        break;
                    }
                    stream.extend_from_slice(&piece.bytes);
                }
                match read_checkpoint(&stream) {
                    Ok(read) => {
                        let known = checkpoints.newest.get(serial);
                        let order = |read: &ReadCheckpoint| (read.header.epoch, read.index);
                        if known.is_none_or(|(known, _)| order(known) < order(&read)) {
                            let before = checkpoints.newest.insert(*serial, (read, chunks));
                            chunks = before.map(|(_, chunks)| chunks).unwrap_or_default();
                        }
                    }
                    Err(StreamError::Cut) => {}
                    Err(error) => checkpoints.unread.push((*serial, error)),
                }
                checkpoints.others.entry(*serial).or_default().append(&mut chunks);
            }
        }
        checkpoints
    }
}
