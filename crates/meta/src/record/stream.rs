//! The bytes of a checkpoint: a header, then entries as a tablet's log has them, each with its length, then
//! how it ends (`docs/formats/checkpoint.md`).
//!
//! The parts of a snapshot, and before each part the entries behind the base that the store had when it was
//! read: so whoever does all entries one after the other has the tablet as it was after the last one. Whether
//! the bytes came whole is known by the checksums of the frames that carry them.

use crate::record::entry::{EntryKind, LogEntry};
use crate::record::key::Key;
use crate::record::records::Record;
use bearing_proto::frame::FrameOwner;
use bearing_types::{
    Block, ChunkId, Epoch, Gid, LogIndex, Mode, NodeId, Position, TabletSerial, Uid, Version, Wall,
};
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"BRG-CKPT";
/// The version of this format.
const CHECKPOINT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 48;
/// Instead of an entry's length: there are no more.
const END: u32 = u32::MAX;
const END_BYTES: usize = 28;

/// The node of frames that carry checkpoints: no file has it.
pub const CHECKPOINT_NODE: NodeId = NodeId(0);
/// Their name.
const FRAME_NAME: &[u8] = b"checkpoint";

/// What a checkpoint says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The tablet.
    pub serial: TabletSerial,
    /// Where it lies.
    pub block: Block,
    /// Under which epoch it was begun.
    pub epoch: Epoch,
    /// When.
    pub at: Wall,
}

impl CheckpointHeader {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.block.prefix_bits()).to_le_bytes());
        for field in [self.serial.0, self.block.start().0, self.epoch.0, self.at.0 as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<CheckpointHeader, StreamError> {
        let header = bytes.get(..HEADER_BYTES).ok_or(StreamError::Cut)?;
        if &header[..8] != MAGIC {
            return Err(StreamError::Malformed);
        }
        let version = u32_at(header, 8);
        if version != CHECKPOINT_VERSION {
            return Err(StreamError::Version(version));
        }
        let bits = u8::try_from(u32_at(header, 12)).ok().filter(|bits| *bits <= 64);
        let bits = bits.ok_or(StreamError::Malformed)?;
        Ok(CheckpointHeader {
            serial: TabletSerial(u64_at(header, 16)),
            block: Block::around(Position(u64_at(header, 24)), bits),
            epoch: Epoch(u64_at(header, 32)),
            at: Wall(u64_at(header, 40) as i64),
        })
    }
}

/// Adds an entry's bytes to those of a checkpoint.
pub(crate) fn push_entry(stream: &mut Vec<u8>, entry: &[u8]) {
    stream.extend_from_slice(&(entry.len() as u32).to_le_bytes());
    stream.extend_from_slice(entry);
}

/// Adds its end: so many entries are in it, and with them the tablet is as it was after this one, which was
/// committed by then.
pub(crate) fn push_end(stream: &mut Vec<u8>, entries: u64, index: LogIndex, ended: Wall) {
    stream.extend_from_slice(&END.to_le_bytes());
    stream.extend_from_slice(&entries.to_le_bytes());
    stream.extend_from_slice(&index.0.to_le_bytes());
    stream.extend_from_slice(&ended.0.to_le_bytes());
}

/// Whose bytes a frame of a checkpoint holds: the tablet in place of a home and a directory, the checkpoint's
/// first chunk in place of a version. So a scan tells apart those of one tablet.
pub(crate) fn frame_owner(
    tablet: (TabletSerial, Position),
    first: ChunkId,
    stream_offset: u64,
    written: Wall,
) -> FrameOwner {
    FrameOwner {
        node: CHECKPOINT_NODE,
        home: tablet.1,
        parent: NodeId(tablet.0.0),
        name: FRAME_NAME.to_vec(),
        file_offset: stream_offset,
        version: Version(first.0),
        mode: Mode::new(0),
        uid: Uid(0),
        gid: Gid(0),
        written,
        is_guess: false,
    }
}

/// Why bytes are no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// They end before it does: it was being written, or a part of it is lost.
    Cut,
    /// They make no sense.
    Malformed,
    /// A newer version of the format, or of an entry in it.
    Version(u32),
}

/// A checkpoint that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCheckpoint {
    /// What it says of itself.
    pub header: CheckpointHeader,
    /// The tablet is as it was after this entry.
    pub index: LogIndex,
    /// When that was.
    pub ended: Wall,
    /// Its records.
    pub records: BTreeMap<Key, Record>,
}

/// Reads all of a checkpoint.
pub fn read_checkpoint(bytes: &[u8]) -> Result<ReadCheckpoint, StreamError> {
    let header = CheckpointHeader::decode(bytes)?;
    let (mut rest, mut entries) = (&bytes[HEADER_BYTES..], 0u64);
    let mut values: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    loop {
        let length = rest.get(..4).map(|bytes| u32_at(bytes, 0)).ok_or(StreamError::Cut)?;
        if length == END {
            let end = rest.get(..END_BYTES).ok_or(StreamError::Cut)?;
            if u64_at(end, 4) != entries {
                return Err(StreamError::Malformed);
            }
            let mut records = BTreeMap::new();
            for (key, value) in values {
                let key = Key::decode(&key).ok_or(StreamError::Malformed)?;
                let record = Record::decode_at(&key, &value).map_err(|_| StreamError::Malformed)?;
                records.insert(key, record);
            }
            let (index, ended) = (LogIndex(u64_at(end, 12)), Wall(u64_at(end, 20) as i64));
            return Ok(ReadCheckpoint { header, index, ended, records });
        }
        let entry = rest.get(4..4 + length as usize).ok_or(StreamError::Cut)?;
        rest = &rest[4 + length as usize..];
        entries += 1;
        let entry = LogEntry::decode(entry).map_err(|_| StreamError::Malformed)?;
        if matches!(entry.kind, EntryKind::Changes | EntryKind::Part { .. }) {
            for change in entry.changes {
                match change.value {
                    Some(value) => drop(values.insert(change.key, value)),
                    None => drop(values.remove(&change.key)),
                }
            }
        }
    }
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
    use crate::record::LoggedChange;
    use bearing_types::ChunkId;
    use proptest::prelude::*;

    fn put(chunk: u64, at: i64) -> LoggedChange {
        LoggedChange::new(&Key::Joined(ChunkId(chunk)), Some(&Record::Mark(Wall(at))))
    }

    fn stream() -> (CheckpointHeader, Vec<u8>) {
        let block = Block::around(Position(1 << 63), 1);
        let header = CheckpointHeader { serial: TabletSerial(3), block, epoch: Epoch(7), at: Wall(9) };
        let mut stream = header.encode();
        let part = EntryKind::Part { first: true, last: true };
        let gone = LoggedChange::new(&Key::Joined(ChunkId(2)), None);
        for (kind, changes) in [
            (part, vec![put(1, 1), put(2, 1)]),
            (EntryKind::Changes, vec![gone, put(3, 5)]),
            (EntryKind::Epoch, vec![]),
        ] {
            push_entry(&mut stream, &LogEntry { kind, changes }.encode());
        }
        push_end(&mut stream, 3, LogIndex(40), Wall(11));
        (header, stream)
    }

    #[test]
    fn what_a_checkpoint_says_is_what_its_entries_leave_in_their_order() {
        let (header, stream) = stream();
        let read = read_checkpoint(&stream).unwrap();
        assert_eq!((read.header, read.index, read.ended), (header, LogIndex(40), Wall(11)));
        let marks: Vec<Key> = read.records.into_keys().collect();
        assert_eq!(marks, [Key::Joined(ChunkId(1)), Key::Joined(ChunkId(3))]);
    }

    #[test]
    fn one_that_is_cut_anywhere_is_none_and_a_newer_one_is_refused_by_its_number() {
        let (_, mut stream) = stream();
        for length in 0..stream.len() {
            assert_eq!(read_checkpoint(&stream[..length]), Err(StreamError::Cut), "{length} bytes");
        }
        stream[8] = 2;
        assert_eq!(read_checkpoint(&stream), Err(StreamError::Version(2)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let (_, mut stream) = stream();
            stream.truncate(at);
            stream.extend(bytes);
            let _ = read_checkpoint(&stream);
        }
    }
}
