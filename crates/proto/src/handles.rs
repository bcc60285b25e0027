//! What finds nodes and chunks.

use bearing_types::{ChunkId, NodeId, Position};
use serde::{Deserialize, Serialize};

/// What finds a node whatever was renamed or unlinked: its id and the position at which it was born.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle {
    /// The node.
    pub node: NodeId,
    /// Its home.
    pub home: Position,
}

/// What finds a chunk's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkRef {
    /// The chunk.
    pub chunk: ChunkId,
    /// The position of its record.
    pub position: Position,
}
