//! A listing of frames under way.

use super::core::Asker;
use bearing_proto::data::FrameAt;
use bearing_proto::frame::FrameHeader;
use bearing_proto::frame::HEADER_BYTES_MAX;
use bearing_types::ChunkId;

/// A listing under way.
#[derive(Debug)]
pub(crate) struct Listing {
    pub asker: Asker,
    pub chunk: ChunkId,
    pub at: u64,
    pub end: u64,
    /// Up to there it is here.
    pub here: u64,
    pub count_max: usize,
    pub frames: Vec<FrameAt>,
}

impl Listing {
    /// Takes the frames whose headers lie in what was read; the first must.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let start = self.at;
        while self.at < self.here && self.frames.len() < self.count_max {
            let rest = bytes.get((self.at - start) as usize..).unwrap_or_default();
            // Cut off by the window, not by damage: it is read again from its start.
            let cut_off = self.at > start && rest.len() < HEADER_BYTES_MAX as usize;
            let header = match FrameHeader::decode(rest) {
                Ok(header) => header,
                Err(_) if cut_off => return true,
                Err(_) => return false,
            };
            let (node, home) = (header.owner.node, header.owner.home);
            self.frames.push(FrameAt { frame: self.at, payload: header.payload_bytes, node, home });
            self.at = self.at.saturating_add(header.frame_bytes());
        }
        true
    }
}
