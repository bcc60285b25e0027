//! Reads a data server's chunks for what a recovery wants to know of them.

use super::found::{Found, FoundFrame, FoundReplica};
use crate::record::CHECKPOINT_NODE;
use bearing_proto::frame::{FrameHeader, HEADER_BYTES_MAX, MAGIC};
use bearing_seams::{ChunkEntry, ChunkLog, EngineResult};
use bearing_types::ServerId;

/// Frames begin at a multiple of it.
const ALIGN: usize = 8;
/// Read at a time where the next frame is sought behind damage.
const SOUGHT_BYTES: u32 = 1 << 20;

/// Notes what a data server holds of a chunk. Of frames of files that are sealed the headers are read only:
/// whoever reads the bytes checks them. What may be torn is read as a whole.
pub fn scan_chunk(
    log: &mut dyn ChunkLog,
    server: ServerId,
    entry: &ChunkEntry,
    found: &mut Found,
) -> EngineResult<()> {
    if entry.epoch == ChunkEntry::HEADLESS {
        return Ok(());
    }
    let end = entry.sealed.map_or(entry.length, |sealed| sealed.min(entry.length));
    let (mut at, mut whole) = (0, 0);
    while at < end {
        let Some(header) = whole_header(log, entry, at, end)? else {
            match next_magic(log, entry, at + ALIGN as u64, end)? {
                Some(next) => at = next,
                None => break,
            }
            continue;
        };
        let (payload_at, payload) = (at + u64::from(header.header_bytes), header.payload_bytes);
        let is_checkpoint = header.owner.node == CHECKPOINT_NODE;
        let is_wanted = is_checkpoint && !found.has_piece(&header.owner);
        let next = at + header.frame_bytes();
        // What is not read may be damaged: of a file, whoever reads it finds out; of a checkpoint, another
        // one has given it.
        let bytes = match is_wanted || entry.sealed.is_none() {
            true => Some(read(log, entry, payload_at, payload)?),
            false => None,
        };
        let verify = |bytes: &Vec<u8>| bytes.len() == payload as usize && header.verify(0, bytes);
        let is_whole = bytes.as_ref().is_none_or(verify);
        if is_whole && (is_wanted || !is_checkpoint) {
            let frame = FoundFrame { chunk: entry.chunk, frame: at, payload, owner: header.owner };
            found.frame(frame, || bytes.unwrap_or_default());
        }
        if is_whole {
            whole = next;
        }
        at = next;
    }
    found.replica(
        server,
        entry.chunk,
        FoundReplica { epoch: entry.epoch, sealed: entry.sealed, length: whole },
    );
    Ok(())
}

/// What is damaged gives nothing.
fn read(log: &mut dyn ChunkLog, entry: &ChunkEntry, at: u64, length: u32) -> EngineResult<Vec<u8>> {
    match log.read(entry.chunk, at, length) {
        Err(bearing_seams::EngineError::Corrupt { .. }) => Ok(Vec::new()),
        other => other,
    }
}

/// The header that begins there, if its frame ends before the chunk does.
fn whole_header(
    log: &mut dyn ChunkLog,
    entry: &ChunkEntry,
    at: u64,
    end: u64,
) -> EngineResult<Option<FrameHeader>> {
    let bytes = read(log, entry, at, HEADER_BYTES_MAX.min((end - at).min(u64::from(u32::MAX)) as u32))?;
    Ok(FrameHeader::decode(&bytes).ok().filter(|header| at + header.frame_bytes() <= end))
}

/// Where a frame may begin at the earliest.
fn next_magic(
    log: &mut dyn ChunkLog,
    entry: &ChunkEntry,
    mut at: u64,
    end: u64,
) -> EngineResult<Option<u64>> {
    while at < end {
        let bytes = read(log, entry, at, SOUGHT_BYTES)?;
        let found = bytes.chunks(ALIGN).position(|chunk| chunk.starts_with(&MAGIC));
        if let Some(found) = found {
            return Ok(Some(at + (found * ALIGN) as u64));
        }
        at += u64::from(SOUGHT_BYTES);
    }
    Ok(None)
}
