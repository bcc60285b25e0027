//! Frames: how written bytes lie in a chunk's log. Made by the writer, checked by every server that appends
//! or reads them.
//!
//! ```text
//! offset size  field (little endian)
//!      0    4  magic "BXTF"
//!      4    2  version
//!      6    2  bytes of the header, name and checksums included; a multiple of 8
//!      8    4  bytes of the payload
//!     12    4  CRC32C of the header without this field
//!     16    8  node
//!     24    8  the node's home
//!     32    8  parent directory at the time
//!     40    8  file offset of the first payload byte
//!     48    8  the node's version at the time
//!     56    4  mode
//!     60    4  uid
//!     64    4  gid
//!     68    2  bytes of the name
//!     70    2  number of payload checksums
//!     72    8  when it was written, in nanoseconds since 1970 by its writer's clock; since version 2
//!     80    8  flags, since version 2; 1: the file offset is a guess, as the file's home places the bytes
//!     88    4n CRC32C of each 64 KiB of payload (the last may be shorter); in version 1 at offset 72
//!      -    -  name, then zeros up to the header's end
//!      -    -  payload, then zeros up to a multiple of 8
//! ```
//!
//! The owner's details make a scan of the chunks enough to give contents under last-known names.

use bearing_types::{Gid, Mode, NodeId, Position, Uid, Version, Wall};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The version of the frame format.
pub const VERSION: u16 = 2;
/// The one before it: frames did not say when they were written.
const VERSION_WITHOUT_TIME: u16 = 1;
/// Payload bytes under one checksum.
pub const BLOCK_BYTES: u32 = 64 << 10;
/// The longest payload of one frame, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 4 << 20;
/// Bytes of the fixed part in all versions: read so many to learn the header's length.
pub const FIXED_BYTES: usize = 72;
/// Bytes before the checksums.
const FIELDS_BYTES: usize = 88;
/// A flag: [`FrameOwner::is_guess`].
const GUESS: u64 = 1;
/// The longest header: all checksums and the longest name.
pub const HEADER_BYTES_MAX: u32 =
    (FIELDS_BYTES as u32 + 4 * (PAYLOAD_BYTES_MAX / BLOCK_BYTES) + NAME_BYTES_MAX as u32).next_multiple_of(8);
/// The longest name of a frame's owner.
pub const NAME_BYTES_MAX: usize = 255;

/// How every frame begins.
pub const MAGIC: [u8; 4] = *b"BXTF";

/// Whose bytes a frame holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameOwner {
    /// The node.
    pub node: NodeId,
    /// Its home.
    pub home: Position,
    /// Its parent directory at the time.
    pub parent: NodeId,
    /// Its name at the time.
    pub name: Vec<u8>,
    /// File offset of the first payload byte.
    pub file_offset: u64,
    /// The node's version at the time.
    pub version: Version,
    /// Its mode.
    pub mode: Mode,
    /// Its owner.
    pub uid: Uid,
    /// Its group.
    pub gid: Gid,
    /// When they were written, by the writer's clock; 0 in frames of version 1.
    pub written: Wall,
    /// The file offset is a guess: of what is appended the file's home says where it goes.
    pub is_guess: bool,
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the header.
    pub header_bytes: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Whose bytes they are.
    pub owner: FrameOwner,
    /// CRC32C of each block of the payload.
    pub checksums: Vec<u32>,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Cut short, no magic, or a checksum that does not fit.
    Damaged,
    /// A newer version.
    Version(u16),
}

impl FrameHeader {
    /// Bytes of the whole frame in the log.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.header_bytes) + u64::from(self.payload_bytes.next_multiple_of(8))
    }

    /// Decodes and checks a header; `bytes` may run on into the payload.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        let header_bytes = header_bytes(bytes)? as usize;
        let header = bytes.get(..header_bytes).ok_or(FrameError::Damaged)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        if crc != u32_at(header, 12) {
            return Err(FrameError::Damaged);
        }
        let (name_bytes, count) = (usize::from(u16_at(header, 68)), usize::from(u16_at(header, 70)));
        let payload_bytes = u32_at(header, 8);
        let timed = u16_at(header, 4) != VERSION_WITHOUT_TIME;
        let checksums_at = if timed { FIELDS_BYTES } else { FIXED_BYTES };
        let name_at = checksums_at + 4 * count;
        let name = header.get(name_at..name_at + name_bytes).ok_or(FrameError::Damaged)?;
        // The name lies behind all that is read below, however long it is.
        if payload_bytes > PAYLOAD_BYTES_MAX || count != payload_bytes.div_ceil(BLOCK_BYTES) as usize {
            return Err(FrameError::Damaged);
        }
        Ok(FrameHeader {
            header_bytes: header_bytes as u32,
            payload_bytes,
            owner: FrameOwner {
                node: NodeId(u64_at(header, 16)),
                home: Position(u64_at(header, 24)),
                parent: NodeId(u64_at(header, 32)),
                name: name.to_vec(),
                file_offset: u64_at(header, 40),
                version: Version(u64_at(header, 48)),
                mode: Mode::new(u32_at(header, 56)),
                uid: Uid(u32_at(header, 60)),
                gid: Gid(u32_at(header, 64)),
                written: Wall(if timed { u64_at(header, FIXED_BYTES) as i64 } else { 0 }),
                is_guess: timed && u64_at(header, FIXED_BYTES + 8) & GUESS != 0,
            },
            checksums: (0..count).map(|block| u32_at(header, checksums_at + 4 * block)).collect(),
        })
    }

    /// The payload bytes that must be read, whole blocks, to check and give a part of the payload. `None` if
    /// the part lies outside.
    pub fn blocks_for(&self, skip: u32, length: u32) -> Option<Range<u32>> {
        let end = skip.checked_add(length).filter(|end| *end <= self.payload_bytes)?;
        let start = skip / BLOCK_BYTES * BLOCK_BYTES;
        Some(start..end.next_multiple_of(BLOCK_BYTES).min(self.payload_bytes))
    }

    /// Whether whole blocks, the first starting at payload offset `start`, fit their checksums.
    pub fn verify(&self, start: u32, blocks: &[u8]) -> bool {
        let first = (start / BLOCK_BYTES) as usize;
        let expected = self.checksums.get(first..).unwrap_or(&[]);
        let chunks = blocks.chunks(BLOCK_BYTES as usize);
        start.is_multiple_of(BLOCK_BYTES)
            && chunks.len() <= expected.len()
            && chunks.zip(expected).all(|(block, expected)| crc32c::crc32c(block) == *expected)
    }
}

/// The length of a header from its first [`FIXED_BYTES`] bytes, not yet checked against its checksum.
pub fn header_bytes(bytes: &[u8]) -> Result<u32, FrameError> {
    if bytes.len() < FIXED_BYTES || bytes[..4] != MAGIC {
        return Err(FrameError::Damaged);
    }
    let version = u16_at(bytes, 4);
    if version > VERSION {
        return Err(FrameError::Version(version));
    }
    let header_bytes = u32::from(u16_at(bytes, 6));
    if (header_bytes as usize) < FIXED_BYTES { Err(FrameError::Damaged) } else { Ok(header_bytes) }
}

fn header_bytes_for(owner: &FrameOwner, payload_bytes: u32) -> usize {
    let checksums = payload_bytes.div_ceil(BLOCK_BYTES) as usize;
    (FIELDS_BYTES + 4 * checksums + owner.name.len()).next_multiple_of(8)
}

/// How long the frame is that [`encode`] makes of a payload of so many bytes.
pub fn frame_bytes(owner: &FrameOwner, payload_bytes: u32) -> u64 {
    header_bytes_for(owner, payload_bytes) as u64 + u64::from(payload_bytes).next_multiple_of(8)
}

/// Appends a frame to `log`.
///
/// # Panics
/// If the payload exceeds [`PAYLOAD_BYTES_MAX`] or the name [`NAME_BYTES_MAX`], which are bugs of the caller.
pub fn encode(owner: &FrameOwner, payload: &[u8], log: &mut Vec<u8>) {
    encode_parts(owner, std::iter::once(payload), log);
}

/// The same for a payload that lies in parts.
pub fn encode_parts<'a>(
    owner: &FrameOwner,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    log: &mut Vec<u8>,
) {
    let payload_bytes: usize = parts.clone().map(<[u8]>::len).sum();
    assert!(payload_bytes <= PAYLOAD_BYTES_MAX as usize && owner.name.len() <= NAME_BYTES_MAX);
    let header_bytes = header_bytes_for(owner, payload_bytes as u32);
    let checksums = payload_bytes.div_ceil(BLOCK_BYTES as usize);
    let (start, end) = (log.len(), log.len() + header_bytes + payload_bytes.next_multiple_of(8));
    log.reserve_exact(end - start);
    log.extend_from_slice(&MAGIC);
    log.extend_from_slice(&VERSION.to_le_bytes());
    log.extend_from_slice(&(header_bytes as u16).to_le_bytes());
    log.extend_from_slice(&(payload_bytes as u32).to_le_bytes());
    log.extend_from_slice(&[0; 4]);
    for field in [owner.node.0, owner.home.0, owner.parent.0, owner.file_offset, owner.version.0] {
        log.extend_from_slice(&field.to_le_bytes());
    }
    for field in [owner.mode.bits(), owner.uid.0, owner.gid.0] {
        log.extend_from_slice(&field.to_le_bytes());
    }
    log.extend_from_slice(&(owner.name.len() as u16).to_le_bytes());
    log.extend_from_slice(&(checksums as u16).to_le_bytes());
    log.extend_from_slice(&owner.written.0.to_le_bytes());
    log.extend_from_slice(&if owner.is_guess { GUESS } else { 0 }.to_le_bytes());
    let checksums_start = log.len();
    log.resize(checksums_start + 4 * checksums, 0);
    log.extend_from_slice(&owner.name);
    log.resize(start + header_bytes, 0);
    parts.for_each(|part| log.extend_from_slice(part));
    let (header, payload) = log[start..].split_at_mut(header_bytes);
    let checksums = header[checksums_start - start..].chunks_exact_mut(4);
    for (checksum, block) in checksums.zip(payload.chunks(BLOCK_BYTES as usize)) {
        checksum.copy_from_slice(&crc32c::crc32c(block).to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    log.resize(end, 0);
}

/// The checksum that messages carry of a frame.
pub fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c(frame)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(name: &[u8]) -> FrameOwner {
        FrameOwner {
            node: NodeId(5),
            home: Position(6),
            parent: NodeId(7),
            name: name.to_vec(),
            file_offset: 8,
            version: Version(9),
            mode: Mode::new(0o640),
            uid: Uid(10),
            gid: Gid(11),
            written: Wall(12),
            is_guess: true,
        }
    }

    proptest! {
        #[test]
        fn a_frame_gives_back_its_owner_and_checks_its_payload(name in proptest::collection::vec(any::<u8>(), 0..255), length in 0usize..200_000) {
            let payload: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
            let mut log = Vec::new();
            encode(&owner(&name), &payload, &mut log);
            let header = FrameHeader::decode(&log).unwrap();
            prop_assert_eq!(&header.owner, &owner(&name));
            prop_assert_eq!(header.frame_bytes(), log.len() as u64);
            prop_assert_eq!(frame_bytes(&header.owner, length as u32), log.len() as u64);
            let at = header.header_bytes as usize;
            prop_assert!(header.verify(0, &log[at..at + length]));
        }

        #[test]
        fn a_flipped_bit_is_noticed(at in 0usize..70_000, bit in 0u8..8) {
            let payload = vec![3; 70_000];
            let mut log = Vec::new();
            encode(&owner(b"name"), &payload, &mut log);
            let end = log.len();
            log[at % end] ^= 1 << bit;
            let intact = FrameHeader::decode(&log).is_ok_and(|header| {
                let start = header.header_bytes as usize;
                header.verify(0, &log[start..start + payload.len()])
            });
            prop_assert!(!intact);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = FrameHeader::decode(&bytes);
            let mut with_head = b"BXTF\x01\x00\x60\x00".to_vec();
            with_head.extend(bytes);
            let _ = FrameHeader::decode(&with_head);
        }
    }

    #[test]
    fn a_frame_of_version_1_opens_and_says_no_time() {
        let mut log = Vec::new();
        encode(&owner(b"name"), &[3; 100], &mut log);
        // As version 1 wrote it: without the time and the flags, and so 16 bytes shorter.
        log.drain(72..88);
        log[4..6].copy_from_slice(&1u16.to_le_bytes());
        let header_bytes = u16_at(&log, 6) - 16;
        log[6..8].copy_from_slice(&header_bytes.to_le_bytes());
        let header = &log[..usize::from(header_bytes)];
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        log[12..16].copy_from_slice(&crc.to_le_bytes());
        let header = FrameHeader::decode(&log).unwrap();
        assert_eq!(header.owner, FrameOwner { written: Wall(0), is_guess: false, ..owner(b"name") });
        assert_eq!(header.frame_bytes(), log.len() as u64);
        assert!(header.verify(0, &log[usize::from(header_bytes)..][..100]));
    }

    #[test]
    fn a_part_of_the_payload_needs_whole_blocks() {
        let mut log = Vec::new();
        encode(&owner(b""), &vec![1; 150_000], &mut log);
        let header = FrameHeader::decode(&log).unwrap();
        assert_eq!(header.blocks_for(65_536, 10), Some(65_536..131_072));
        assert_eq!(header.blocks_for(140_000, 10_000), Some(131_072..150_000));
        assert_eq!(header.blocks_for(140_000, 10_001), None);
    }
}
