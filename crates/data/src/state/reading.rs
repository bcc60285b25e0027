//! A read under way.

use super::core::Asker;
use bearing_proto::data::Flow;
use bearing_proto::frame::FrameHeader;
use bearing_proto::grant::FramePart;
use bearing_types::ChunkId;

/// Who gets the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Who asked for them.
    Asker(Asker),
    /// The append of this number.
    Fetch(u64),
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub reader: Reader,
    pub chunk: ChunkId,
    pub part: FramePart,
    pub flow: Option<Flow>,
    /// What it counts for in the limit.
    pub cost: u64,
    /// Once known.
    pub header: Option<Box<FrameHeader>>,
}
