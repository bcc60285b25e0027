//! Frames of the tablet log and headers of its segments, byte by byte as in docs/formats/tablet-log.md.

use bearing_seams::LoggedRecord;
use bearing_types::{Block, Epoch, LogIndex, Position, TabletSerial};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of a frame before its payload, in the layout that is written.
pub const FRAME_HEADER_BYTES: usize = 56;
/// Frames begin at multiples of this.
pub const ALIGNMENT: usize = 8;
/// The largest payload.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The version of the format that is written, and the newest read.
pub const VERSION: u32 = 2;

const SEGMENT_MAGIC: &[u8; 8] = b"BRG-TLOG";
/// A frame's first bytes.
pub const FRAME_MAGIC: &[u8; 4] = b"tfrm";
/// The checksum is the last of a frame's header.
const CRC_BYTES: usize = 4;

/// How the frames of a segment lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Of segments of version 1: tablets by their blocks, and nothing of what was committed.
    Blocks,
    /// Of segments of version 2, and the one written.
    Serials,
}

/// What a segment's header can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// The segment's records begin with this mark, in this layout.
    First(u64, Layout),
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
        1 => SegmentHeader::First(u64_at(header, 16), Layout::Blocks),
        VERSION => SegmentHeader::First(u64_at(header, 16), Layout::Serials),
        newer if newer > VERSION => SegmentHeader::Newer(newer),
        _ => SegmentHeader::Invalid,
    }
}

/// Bytes of a frame with a payload of this size, in the layout that is written.
pub fn frame_bytes(payload_bytes: usize) -> usize {
    Layout::Serials.frame_bytes(payload_bytes)
}

/// Appends a record's frame. `synced` is the mark before which everything was stable when it was written.
pub fn encode_frame(out: &mut Vec<u8>, mark: u64, synced: u64, record: &LoggedRecord) {
    let start = out.len();
    out.extend_from_slice(FRAME_MAGIC);
    out.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&record.serial.0.to_le_bytes());
    out.extend_from_slice(&record.epoch.0.to_le_bytes());
    out.extend_from_slice(&record.index.0.to_le_bytes());
    out.extend_from_slice(&record.commit.0.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let crc = frame_crc(mark, &out[start..], &record.bytes);
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

impl Layout {
    /// Bytes of a frame before its payload.
    pub fn header_bytes(self) -> usize {
        match self {
            Layout::Blocks => 48,
            Layout::Serials => FRAME_HEADER_BYTES,
        }
    }

    /// Bytes of a frame with a payload of this size, with the zeros that fill it up.
    pub fn frame_bytes(self, payload_bytes: usize) -> usize {
        (self.header_bytes() + payload_bytes).next_multiple_of(ALIGNMENT)
    }

    /// The start of a frame: how much there is to read.
    pub fn payload_bytes(self, header: &[u8]) -> Option<usize> {
        let is_frame = header.len() >= self.header_bytes() && header[..4] == FRAME_MAGIC[..];
        let length = is_frame.then(|| u32_at(header, 4))?;
        (length as usize <= PAYLOAD_BYTES_MAX).then_some(length as usize)
    }

    /// A whole frame, and what it says was synced before it. `None` if it is not valid at this mark.
    pub fn decode_frame(self, frame: &[u8], mark: u64) -> Option<(LoggedRecord, u64)> {
        let length = self.payload_bytes(frame)?;
        let (header, rest) = frame.split_at(self.header_bytes());
        let payload = rest.get(..length)?;
        let crc_at = header.len() - CRC_BYTES;
        if frame_crc(mark, &header[..crc_at], payload) != u32_at(header, crc_at) {
            return None;
        }
        let index = LogIndex(u64_at(header, 24));
        let (serial, commit, synced) = match self {
            // What was found in such a log counted as committed.
            Layout::Blocks => (serial_of_block(u64_at(header, 8), header[40])?, index, u64_at(header, 32)),
            Layout::Serials => {
                (TabletSerial(u64_at(header, 8)), LogIndex(u64_at(header, 32)), u64_at(header, 40))
            }
        };
        let record =
            LoggedRecord { serial, epoch: Epoch(u64_at(header, 16)), index, commit, bytes: payload.to_vec() };
        Some((record, synced))
    }
}

fn serial_of_block(start: u64, prefix_bits: u8) -> Option<TabletSerial> {
    let block = (prefix_bits <= 64).then(|| Block::around(Position(start), prefix_bits))?;
    TabletSerial::of_first(block).filter(|_| block.start().0 == start)
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
            serial: TabletSerial(19),
            epoch: Epoch(5),
            index: LogIndex(6),
            commit: LogIndex(4),
            bytes: b"payload".to_vec(),
        }
    }

    #[test]
    fn a_frame_is_valid_at_its_own_mark_only_and_any_flipped_bit_spoils_it() {
        let mut frame = Vec::new();
        encode_frame(&mut frame, 1000, 900, &record());
        assert_eq!(frame.len(), 64);
        assert_eq!(Layout::Serials.decode_frame(&frame, 1000), Some((record(), 900)));
        assert_eq!(Layout::Serials.decode_frame(&frame, 1008), None);
        for bit in 0..(FRAME_HEADER_BYTES + 7) * 8 {
            let mut spoilt = frame.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Layout::Serials.decode_frame(&spoilt, 1000), None, "bit {bit}");
        }
        for length in 0..FRAME_HEADER_BYTES + 7 {
            assert_eq!(Layout::Serials.decode_frame(&frame[..length], 1000), None, "{length} bytes");
        }
    }

    #[test]
    fn a_segment_header_tells_newer_versions_from_damage() {
        let header = encode_segment_header(77);
        assert_eq!(decode_segment_header(&header), SegmentHeader::First(77, Layout::Serials));
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
