//! The two header slots of a chunk's file, byte by byte as in docs/formats/chunk-log.md.

use bearing_seams::End;
use bearing_types::{ChunkId, Epoch};

/// Bytes between the slots: a torn or failed write to one sector never touches the other slot.
pub const SLOT_BYTES: usize = 4096;
/// Where the chunk's bytes begin in its file.
pub const DATA_OFFSET: u64 = 2 * SLOT_BYTES as u64;
/// Bytes of a slot that are used.
pub const HEADER_BYTES: usize = 64;
/// The version of the format.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"BRG-CHNK";
const SEALED: u32 = 1;
const FENCED: u32 = 2;
const RESTARTED: u32 = 4;
const CRC_OFFSET: usize = 60;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The chunk.
    pub chunk: ChunkId,
    /// Counts the headers of this chunk, from 1. The larger one of two valid ones counts; it lies in slot
    /// `generation % 2`.
    pub generation: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// What its end is.
    pub end: End,
    /// Its length when it was fenced or sealed.
    pub length: u64,
}

/// What the two slots say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// This is the header.
    Valid(Header),
    /// A newer program wrote one of them.
    Newer(u32),
    /// Nothing was ever written: the creation was not synced.
    Blank,
    /// Neither is valid.
    Damaged,
}

/// The bytes of a header.
pub fn encode(header: Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&flags_of(header.end).to_le_bytes());
    bytes[16..24].copy_from_slice(&header.chunk.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.generation.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.epoch.0.to_le_bytes());
    bytes[40..48].copy_from_slice(&header.length.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
    bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn flags_of(end: End) -> u32 {
    let restarted = if end.restarted() { RESTARTED } else { 0 };
    match end {
        End::Open => 0,
        End::Fenced { .. } => FENCED | restarted,
        End::Sealed { .. } => SEALED | restarted,
    }
}

fn end_of(flags: u32) -> End {
    let restarted = flags & RESTARTED != 0;
    match flags {
        _ if flags & SEALED != 0 => End::Sealed { restarted },
        _ if flags & FENCED != 0 => End::Fenced { restarted },
        _ => End::Open,
    }
}

/// Where the header of a generation lies.
pub fn slot_offset(generation: u64) -> u64 {
    generation % 2 * SLOT_BYTES as u64
}

const MARK_MAGIC: &[u8; 8] = b"BRG-SYNC";
/// Where a mark lies in its slot: in a sector of its own, so that a torn one leaves the header whole.
const MARK_OFFSET: usize = 512;
const MARK_BYTES: usize = 32;

/// Where the mark of a generation lies.
pub fn mark_offset(generation: u64) -> u64 {
    slot_offset(generation) + MARK_OFFSET as u64
}

/// The bytes of a mark: all below this length is synced. It counts as long as the header of its generation
/// does.
pub fn encode_mark(generation: u64, synced: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(MARK_MAGIC);
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    bytes[16..24].copy_from_slice(&synced.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// What the mark of a generation says; 0 without one. `bytes` is the beginning of the file, up to
/// [`DATA_OFFSET`].
pub fn decode_mark(bytes: &[u8], generation: u64) -> u64 {
    let start = mark_offset(generation) as usize;
    let Some(bytes) = bytes.get(start..start + MARK_BYTES) else { return 0 };
    let whole = bytes[..8] == MARK_MAGIC[..] && crc32c::crc32c(&bytes[..28]) == u32_at(bytes, 28);
    if whole && u64_at(bytes, 8) == generation { u64_at(bytes, 16) } else { 0 }
}

/// Reads both slots; `bytes` is the beginning of the file, up to [`DATA_OFFSET`].
pub fn decode(bytes: &[u8]) -> Slots {
    let slots = [decode_slot(bytes, 0), decode_slot(bytes, SLOT_BYTES)];
    if let Some(newer) = slots.iter().filter_map(|slot| slot.as_ref()?.err()).max() {
        return Slots::Newer(newer);
    }
    match slots.into_iter().flatten().flatten().max_by_key(|header| header.generation) {
        Some(header) => Slots::Valid(header),
        None if bytes.iter().all(|byte| *byte == 0) => Slots::Blank,
        None => Slots::Damaged,
    }
}

/// A valid header, the version of a newer one, or nothing.
fn decode_slot(bytes: &[u8], offset: usize) -> Option<Result<Header, u32>> {
    let bytes = bytes.get(offset..offset + HEADER_BYTES)?;
    if bytes[..8] != MAGIC[..] || crc32c::crc32c(&bytes[..CRC_OFFSET]) != u32_at(bytes, CRC_OFFSET) {
        return None;
    }
    match u32_at(bytes, 8) {
        VERSION => {}
        newer if newer > VERSION => return Some(Err(newer)),
        _ => return None,
    }
    Some(Ok(Header {
        chunk: ChunkId(u64_at(bytes, 16)),
        generation: u64_at(bytes, 24),
        epoch: Epoch(u64_at(bytes, 32)),
        end: end_of(u32_at(bytes, 12)),
        length: u64_at(bytes, 40),
    }))
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

    fn header(generation: u64) -> Header {
        let ends = [End::Open, End::Fenced { restarted: generation > 2 }, End::Sealed { restarted: false }];
        let (epoch, end) = (Epoch(generation + 100), ends[generation as usize % 3]);
        Header { chunk: ChunkId(9), generation, epoch, end, length: generation * 7 }
    }

    fn file(headers: &[Header]) -> Vec<u8> {
        let mut bytes = vec![0; DATA_OFFSET as usize];
        for header in headers {
            let offset = slot_offset(header.generation) as usize;
            bytes[offset..offset + HEADER_BYTES].copy_from_slice(&encode(*header));
        }
        bytes
    }

    #[test]
    fn the_newer_of_two_headers_counts_and_a_torn_one_leaves_the_other() {
        assert_eq!(decode(&file(&[header(1)])), Slots::Valid(header(1)));
        let both = file(&[header(1), header(2)]);
        assert_eq!(decode(&both), Slots::Valid(header(2)));
        for torn in 0..HEADER_BYTES {
            let mut bytes = both.clone();
            bytes[torn] ^= 0x40;
            assert_eq!(decode(&bytes), Slots::Valid(header(1)), "the slot of generation 2, byte {torn}");
        }
    }

    #[test]
    fn a_mark_counts_for_its_own_generation_and_only_whole() {
        let mut bytes = vec![0; DATA_OFFSET as usize];
        assert_eq!(decode_mark(&bytes, 3), 0);
        let at = mark_offset(3) as usize;
        bytes[at..at + MARK_BYTES].copy_from_slice(&encode_mark(3, 77));
        assert_eq!((decode_mark(&bytes, 3), decode_mark(&bytes, 5), decode_mark(&bytes, 4)), (77, 0, 0));
        bytes[at + 16] ^= 1;
        assert_eq!(decode_mark(&bytes, 3), 0);
        assert_eq!(decode_mark(&[], 3), 0);
    }

    #[test]
    fn nothing_written_newer_and_damaged_are_told_apart() {
        assert_eq!(decode(&[]), Slots::Blank);
        assert_eq!(decode(&file(&[])), Slots::Blank);
        assert_eq!(decode(&[7; 8192]), Slots::Damaged);
        let mut newer = file(&[header(1)]);
        let offset = slot_offset(1) as usize;
        newer[offset + 8] = 3;
        let crc = crc32c::crc32c(&newer[offset..offset + CRC_OFFSET]);
        newer[offset + CRC_OFFSET..offset + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&newer), Slots::Newer(3));
    }
}
