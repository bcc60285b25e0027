//! Checks of what a request shows, before anything is touched.

use crate::state::Cx;
use bearing_proto::Sender;
use bearing_proto::data::DataError;
use bearing_proto::frame::FrameHeader;
use bearing_proto::grant::{Capability, DataRight, FramePart};
use bearing_types::{ChunkId, Epoch, ServerId};

/// The epoch under which a client may append to a chunk that lies on these servers, of which this one is the
/// first. Whoever opened the chunk may, and nobody in its place, and nowhere else.
pub(crate) fn append(
    cx: &Cx<'_>,
    from: Sender,
    shown: &Capability,
    (chunk, servers): (ChunkId, &[ServerId]),
) -> Result<Epoch, DataError> {
    let DataRight::Append(epoch, on) = shown.body.right else { return Err(DataError::Capability) };
    let asks = from == Sender::Client(shown.body.session) && on == DataRight::of_servers(servers);
    if asks && leads(cx, servers) && good(cx, shown, chunk) { Ok(epoch) } else { Err(DataError::Capability) }
}

/// Whether somebody may read a part of a frame. A server that asks has seen to it that its client is the one
/// whom the right was given to.
pub(crate) fn read(
    cx: &Cx<'_>,
    from: Sender,
    shown: &Capability,
    (chunk, part): (ChunkId, FramePart),
) -> Result<(), DataError> {
    let asks = match from {
        Sender::Client(session) => session == shown.body.session,
        Sender::Server(_) => true,
        Sender::Nobody => false,
    };
    let allowed = asks && shown.body.right.reads(part) && good(cx, shown, chunk);
    if allowed { Ok(()) } else { Err(DataError::Capability) }
}

/// Whether a capability is ours, of this chunk, and alive.
fn good(cx: &Cx<'_>, shown: &Capability, chunk: ChunkId) -> bool {
    let alive = cx.now.wall <= shown.body.expires.after(cx.core.config.skew_max);
    shown.body.chunk == chunk && alive && shown.verify(&cx.core.grants)
}

/// Whether this server is the first of a chunk's servers, and they are different ones.
fn leads(cx: &Cx<'_>, servers: &[ServerId]) -> bool {
    let distinct = servers.iter().enumerate().all(|(at, server)| !servers[..at].contains(server));
    servers.first() == Some(&cx.core.server) && distinct && servers.len() <= cx.core.config.copies_max
}

/// Whether attached bytes are exactly one frame and came whole. The primary also checks the payload's own
/// checksums, because a frame that does not fit them could never be read again.
pub(crate) fn frame(bytes: &[u8], crc: u32, payload_too: bool) -> Result<(), DataError> {
    if crc32c::crc32c(bytes) != crc {
        return Err(DataError::Damaged);
    }
    let header = FrameHeader::decode(bytes).map_err(|_| DataError::Damaged)?;
    let payload = header.header_bytes as usize..(header.header_bytes + header.payload_bytes) as usize;
    let whole = header.header_bytes <= bearing_proto::frame::HEADER_BYTES_MAX
        && header.header_bytes.is_multiple_of(8)
        && header.frame_bytes() == bytes.len() as u64;
    if whole && (!payload_too || header.verify(0, &bytes[payload])) {
        Ok(())
    } else {
        Err(DataError::Damaged)
    }
}
