//! Checks of what a request shows, before anything is touched.

use crate::context::Cx;
use bearing_proto::data::DataError;
use bearing_proto::frame::{BLOCK_BYTES, FIXED_BYTES, FrameHeader, PAYLOAD_BYTES_MAX};
use bearing_proto::grant::{Capability, DataRight};
use bearing_types::{ChunkId, ServerId};

/// The longest header that a valid frame has: all checksums and a name of 255 bytes.
pub(crate) const HEADER_BYTES_MAX: u32 =
    (FIXED_BYTES as u32 + 4 * (PAYLOAD_BYTES_MAX / BLOCK_BYTES) + 255).next_multiple_of(8);

/// Whether a capability is ours, of this chunk, alive, and allows `right`. Its epoch and range are checked where they matter.
pub(crate) fn capability(
    cx: &Cx<'_>,
    shown: &Capability,
    chunk: ChunkId,
    right: DataRight,
) -> Result<(), DataError> {
    let body = &shown.body;
    let allowed = body.right >= right;
    let alive = cx.now.wall <= body.expires.after(cx.core.config.skew_max);
    if body.chunk == chunk && allowed && alive && shown.verify(&cx.core.grants) {
        Ok(())
    } else {
        Err(DataError::Capability)
    }
}

/// Whether this server is the first of a chunk's servers, and they are different ones.
pub(crate) fn leads(cx: &Cx<'_>, servers: &[ServerId]) -> Result<(), DataError> {
    let distinct = servers.iter().enumerate().all(|(at, server)| !servers[..at].contains(server));
    if servers.first() == Some(&cx.core.server) && distinct && servers.len() <= cx.core.config.copies_max {
        Ok(())
    } else {
        Err(DataError::Capability)
    }
}

/// Whether attached bytes are exactly one frame and came whole. The primary also checks the payload's own checksums, because a frame that
/// does not fit them could never be read again.
pub(crate) fn frame(bytes: &[u8], crc: u32, payload_too: bool) -> Result<(), DataError> {
    if crc32c::crc32c(bytes) != crc {
        return Err(DataError::Damaged);
    }
    let header = FrameHeader::decode(bytes).map_err(|_| DataError::Damaged)?;
    let payload = header.header_bytes as usize..(header.header_bytes + header.payload_bytes) as usize;
    let whole = header.header_bytes <= HEADER_BYTES_MAX
        && header.header_bytes.is_multiple_of(8)
        && header.frame_bytes() == bytes.len() as u64;
    if whole && (!payload_too || header.verify(0, &bytes[payload])) {
        Ok(())
    } else {
        Err(DataError::Damaged)
    }
}
