//! Frames of the tablet log and headers of its segments, byte by byte as in docs/formats/tablet-log.md.

use bearing_seams::LoggedRecord;
use bearing_types::{Block, Epoch, LogIndex, Position};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 48;
/// Frames begin at multiples of this.
pub const ALIGNMENT: usize = 8;
/// The largest payload.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The version of the format.
pub const VERSION: u32 = 1;

const SEGMENT_MAGIC: &[u8; 8] = b"BRG-TLOG";
/// A frame's first bytes.
pub const FRAME_MAGIC: &[u8; 4] = b"tfrm";
const CRC_OFFSET: usize = 44;

/// What a segment's header can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// The segment's records begin with this mark.
    First(u64),
    /// Written by a newer program.
    Newer(u32),
    /// Not a header, or a damaged one.
    Invalid,
}

/// A segment's header.
pub fn encode_segment_header(first: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&first.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Reads a segment's header.
pub fn decode_segment_header(header: &[u8]) -> SegmentHeader {
    if header.len() < SEGMENT_HEADER_BYTES || header[..8] != SEGMENT_MAGIC[..] {
        return SegmentHeader::Invalid;
    }
    if crc32c::crc32c(&header[..60]) != u32_at(header, 60) {
        return SegmentHeader::Invalid;
    }
    match u32_at(header, 8) {
        VERSION => SegmentHeader::First(u64_at(header, 16)),
        newer if newer > VERSION => SegmentHeader::Newer(newer),
        _ => SegmentHeader::Invalid,
    }
}

/// Bytes of a frame with a payload of this size, with the zeros that fill it up.
pub fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// Appends a record's frame. `synced` is the mark before which everything was stable when it was written.
pub fn encode_frame(out: &mut Vec<u8>, mark: u64, synced: u64, record: &LoggedRecord) {
    let start = out.len();
    out.extend_from_slice(FRAME_MAGIC);
    out.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&record.tablet.start().0.to_le_bytes());
    out.extend_from_slice(&record.epoch.0.to_le_bytes());
    out.extend_from_slice(&record.index.0.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&[record.tablet.prefix_bits(), 0, 0, 0]);
    let crc = frame_crc(mark, &out[start..start + CRC_OFFSET], &record.bytes);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&record.bytes);
    out.resize(start + frame_bytes(record.bytes.len()), 0);
}

/// The mark is part of what is summed, so a frame is valid at its own place only: bytes of an old segment, or
/// a frame inside a payload, do not pass for records.
fn frame_crc(mark: u64, header: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&mark.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, header), payload)
}

/// The start of a frame: how much there is to read.
pub fn payload_bytes(header: &[u8]) -> Option<usize> {
    let length =
        (header.len() >= FRAME_HEADER_BYTES && header[..4] == FRAME_MAGIC[..]).then(|| u32_at(header, 4))?;
    (length as usize <= PAYLOAD_BYTES_MAX).then_some(length as usize)
}

/// A whole frame, and what it says was synced before it. `None` if it is not valid at this mark.
pub fn decode_frame(frame: &[u8], mark: u64) -> Option<(LoggedRecord, u64)> {
    let length = payload_bytes(frame)?;
    let payload = frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length)?;
    if frame_crc(mark, &frame[..CRC_OFFSET], payload) != u32_at(frame, CRC_OFFSET) {
        return None;
    }
    let (start, prefix_bits) = (Position(u64_at(frame, 8)), frame[40]);
    if prefix_bits > 64 || Block::around(start, prefix_bits).start() != start {
        return None;
    }
    let record = LoggedRecord {
        tablet: Block::around(start, prefix_bits),
        epoch: Epoch(u64_at(frame, 16)),
        index: LogIndex(u64_at(frame, 24)),
        bytes: payload.to_vec(),
    };
    Some((record, u64_at(frame, 32)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LoggedRecord {
        LoggedRecord {
            tablet: Block::around(Position(3 << 60), 4),
            epoch: Epoch(5),
            index: LogIndex(6),
            bytes: b"payload".to_vec(),
        }
    }

    #[test]
    fn a_frame_is_valid_at_its_own_mark_only_and_any_flipped_bit_spoils_it() {
        let mut frame = Vec::new();
        encode_frame(&mut frame, 1000, 900, &record());
        assert_eq!(frame.len(), 56);
        assert_eq!(decode_frame(&frame, 1000), Some((record(), 900)));
        assert_eq!(decode_frame(&frame, 1008), None);
        for bit in 0..(FRAME_HEADER_BYTES + 7) * 8 {
            let mut spoilt = frame.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_frame(&spoilt, 1000), None, "bit {bit}");
        }
        for length in 0..FRAME_HEADER_BYTES + 7 {
            assert_eq!(decode_frame(&frame[..length], 1000), None, "{length} bytes");
        }
    }

    #[test]
    fn a_segment_header_tells_newer_versions_from_damage() {
        let header = encode_segment_header(77);
        assert_eq!(decode_segment_header(&header), SegmentHeader::First(77));
        let mut newer = header;
        newer[8] = 9;
        let crc = crc32c::crc32c(&newer[..60]);
        newer[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_segment_header(&newer), SegmentHeader::Newer(9));
        let mut damaged = header;
        damaged[17] ^= 1;
        assert_eq!(decode_segment_header(&damaged), SegmentHeader::Invalid);
        assert_eq!(decode_segment_header(&header[..63]), SegmentHeader::Invalid);
    }
}
