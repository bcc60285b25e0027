//! Log entries: what one record of a tablet's log does to the tablet.

use crate::record::key::Key;
use crate::record::records::{Record, RecordError, decode_versioned, encode_versioned};
use crate::record::recover::KeyChange;
use bearing_types::Epoch;
use serde::{Deserialize, Serialize, Serializer};

/// The version of log records. Since version 2 there are records of intents: they have the index 0 and change
/// [`Key::Intent`] alone; since version 3 there are those at which servers compare what they have; since
/// version 4 a key is written as what it does not share with the one before it.
pub const LOG_VERSION: u8 = 4;
const LOG_VERSION_OF_WHOLE_KEYS: u8 = 3;

/// One absolute change in a log record: encoded key, encoded record (`None` deletes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedChange {
    /// The key.
    pub key: Vec<u8>,
    /// The record.
    pub value: Option<Vec<u8>>,
}

/// What one log record does to its tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Whether it is an entry like most.
    pub kind: EntryKind,
    /// What changes.
    pub changes: Vec<LoggedChange>,
}

/// What a log record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Changes after all that came before.
    Changes,
    /// With it an epoch has begun: what lower epochs have behind it is void.
    Epoch,
    /// Without changes: a server that applies it computes a digest of the tablet's records as of this entry.
    Compare,
    /// Everything before it is void: servers that moved tablets without learners wrote this.
    Replacement,
    /// A part of a snapshot, under the index that all its parts have. Everything before the first is void;
    /// none counts before the last.
    Part {
        /// It is the first.
        first: bool,
        /// It is the last.
        last: bool,
    },
}

impl EntryKind {
    const fn to_byte(self) -> u8 {
        match self {
            EntryKind::Changes => 0,
            EntryKind::Replacement => 1,
            EntryKind::Epoch => 4,
            EntryKind::Compare => 8,
            EntryKind::Part { first, last } => 2 | (first as u8) | (last as u8) << 2,
        }
    }

    fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            0 => Some(EntryKind::Changes),
            1 => Some(EntryKind::Replacement),
            4 => Some(EntryKind::Epoch),
            8 => Some(EntryKind::Compare),
            2 | 3 | 6 | 7 => Some(EntryKind::Part { first: byte & 1 != 0, last: byte & 4 != 0 }),
            _ => None,
        }
    }
}

impl Serialize for EntryKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.to_byte())
    }
}

impl<'de> Deserialize<'de> for EntryKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<EntryKind, D::Error> {
        let byte = u8::deserialize(deserializer)?;
        EntryKind::from_byte(byte).ok_or_else(|| serde::de::Error::custom("no kind of entry"))
    }
}

/// How many bytes a key begins with that the key before it begins with too, the others, and the value.
type PackedChange<'a> = (usize, &'a [u8], Option<&'a [u8]>);

/// The same, where it was read: serde takes a `Vec<u8>` byte by byte, and a restart decodes a whole log.
#[derive(Deserialize)]
struct PackedEntry<'a> {
    kind: EntryKind,
    #[serde(borrow)]
    changes: Vec<PackedChange<'a>>,
}

/// The same before version 4.
#[derive(Deserialize)]
struct WholeEntry<'a> {
    kind: EntryKind,
    #[serde(borrow)]
    changes: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// As a `Vec<u8>`, in one piece.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl LogEntry {
    /// The record's bytes: a version byte, then the entry in postcard's encoding.
    pub fn encode(&self) -> Vec<u8> {
        let changes = self.changes.iter();
        encode_entry(self.kind, changes.map(|change| (change.key.as_slice(), change.value.as_deref())))
    }

    /// The bytes of the entry with which an epoch has begun.
    pub(crate) fn encode_epoch() -> Vec<u8> {
        LogEntry { kind: EntryKind::Epoch, changes: Vec::new() }.encode()
    }

    /// The bytes of an entry at which servers compare what they have.
    pub(crate) fn encode_compare() -> Vec<u8> {
        LogEntry { kind: EntryKind::Compare, changes: Vec::new() }.encode()
    }

    /// Under planted bugs: the record of an epoch becomes an entry like others.
    pub(crate) fn plain_epoch(bytes: &mut Vec<u8>) {
        if *bytes == LogEntry::encode_epoch() {
            *bytes = LogEntry::encode_changes(&[]);
        }
    }

    /// The bytes of an entry with these changes.
    pub(crate) fn encode_changes(changes: &[KeyChange]) -> Vec<u8> {
        let keys: Vec<Vec<u8>> = changes.iter().map(|(key, _)| key.encode()).collect();
        let values = changes.iter().map(|(_, value)| value.as_deref());
        encode_entry(EntryKind::Changes, keys.iter().map(Vec::as_slice).zip(values))
    }

    /// An entry from its bytes.
    pub fn decode(bytes: &[u8]) -> Result<LogEntry, RecordError> {
        let Some((&(1..=LOG_VERSION_OF_WHOLE_KEYS), body)) = bytes.split_first() else {
            let packed: PackedEntry<'_> = decode_versioned(bytes, LOG_VERSION)?;
            return Ok(LogEntry { kind: packed.kind, changes: unpacked(packed.changes)? });
        };
        let whole: WholeEntry<'_> = postcard::from_bytes(body).map_err(|_| RecordError::Malformed)?;
        let owned = |(key, value): (&[u8], Option<&[u8]>)| LoggedChange {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        Ok(LogEntry { kind: whole.kind, changes: whole.changes.into_iter().map(owned).collect() })
    }

    /// That this server intends to serve the tablet under an epoch.
    pub fn of_intent(epoch: Epoch) -> LogEntry {
        let change = LoggedChange::new(&Key::Intent, Some(&Record::Intent(epoch)));
        LogEntry { kind: EntryKind::Changes, changes: vec![change] }
    }

    /// The epoch of [`LogEntry::of_intent`].
    pub(crate) fn intent(&self) -> Result<Epoch, RecordError> {
        match &self.changes[..] {
            [change] => match change.decode()? {
                (Key::Intent, Some(Record::Intent(epoch))) => Ok(epoch),
                _ => Err(RecordError::Misplaced),
            },
            _ => Err(RecordError::Misplaced),
        }
    }

    /// Whether a record with these bytes, and an index lower than those before it, voids what is behind it.
    pub fn voids_later(bytes: &[u8]) -> bool {
        let replaces = |kind| !matches!(kind, EntryKind::Changes | EntryKind::Compare);
        LogEntry::decode(bytes).is_ok_and(|entry| replaces(entry.kind))
    }
}

fn encode_entry<'a>(kind: EntryKind, changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Vec<u8> {
    let (mut before, mut about): (&[u8], _) = (&[], 16);
    let packed = changes.map(|(key, value)| {
        let shared = key.iter().zip(before).take_while(|(byte, other)| byte == other).count();
        before = key;
        about += key.len() - shared + value.map_or(0, <[u8]>::len) + 8;
        (shared, Raw(&key[shared..]), value.map(Raw))
    });
    let packed: Vec<_> = packed.collect();
    encode_versioned(&(kind, packed), LOG_VERSION, about)
}

/// No key is longer.
const KEY_BYTES_MAX: usize = 128;

fn unpacked(packed: Vec<PackedChange<'_>>) -> Result<Vec<LoggedChange>, RecordError> {
    let mut changes: Vec<LoggedChange> = Vec::with_capacity(packed.len());
    for (shared, rest, value) in packed {
        let before = changes.last().map_or(&[][..], |change| &change.key);
        // What few bytes say may not take much memory.
        if shared > KEY_BYTES_MAX {
            return Err(RecordError::Malformed);
        }
        let key = [before.get(..shared).ok_or(RecordError::Malformed)?, rest].concat();
        changes.push(LoggedChange { key, value: value.map(<[u8]>::to_vec) });
    }
    Ok(changes)
}

impl LoggedChange {
    /// A change from its parts.
    pub fn new(key: &Key, record: Option<&Record>) -> LoggedChange {
        LoggedChange { key: key.encode(), value: record.map(Record::encode) }
    }

    /// The parts of a change.
    pub fn decode(&self) -> Result<(Key, Option<Record>), RecordError> {
        let key = Key::decode(&self.key).ok_or(RecordError::Malformed)?;
        let record = self.value.as_deref().map(|value| Record::decode_at(&key, value)).transpose()?;
        Ok((key, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::envelope::PACKET_BYTES_MAX;
    use bearing_types::NodeId;

    #[test]
    fn a_new_epoch_voids_what_is_behind_it_when_it_is_whole_and_not_before() {
        // More may have to be written again.
        assert!(!LogEntry::voids_later(&LogEntry::encode_changes(&[])));
        assert!(LogEntry::voids_later(&LogEntry::encode_epoch()));
        assert!(!LogEntry::voids_later(&LogEntry::encode_compare()));
        assert!(!LogEntry::voids_later(b"of a newer version"));
    }

    #[test]
    fn entries_of_earlier_versions_are_read() {
        for (bytes, kind) in [([1, 0, 0], EntryKind::Changes), ([2, 4, 0], EntryKind::Epoch)] {
            assert_eq!(LogEntry::decode(&bytes), Ok(LogEntry { kind, changes: Vec::new() }));
        }
        let changes = [("ab", Some("v")), ("ac", None)];
        let change = |(key, value): (&str, Option<&str>)| LoggedChange {
            key: key.into(),
            value: value.map(Into::into),
        };
        let entry = LogEntry { kind: EntryKind::Changes, changes: changes.map(change).to_vec() };
        let whole = [&[3, 0, 2, 2][..], b"ab", &[1, 1], b"v", &[2], b"ac", &[0]].concat();
        let packed = [&[4, 0, 2, 0, 2][..], b"ab", &[1, 1], b"v", &[1, 1], b"c", &[0]].concat();
        assert_eq!(LogEntry::decode(&whole).as_ref(), Ok(&entry));
        assert_eq!((LogEntry::decode(&packed).as_ref(), entry.encode()), (Ok(&entry), packed));
        assert_eq!(LogEntry::encode_compare(), [4, 8, 0]);
        assert_eq!(LogEntry::decode(&[5, 0, 0]), Err(RecordError::Version(5)));
        // More of the key before than it has.
        assert_eq!(LogEntry::decode(&[4, 0, 1, 1, 1, 7, 0]), Err(RecordError::Malformed));
    }

    #[test]
    fn what_the_largest_cut_of_a_file_deletes_fits_into_a_packet() {
        let extent = |number: u64| (Key::Extent(NodeId(u64::MAX / 3), number * 4096 + number % 4096), None);
        let changes: Vec<KeyChange> = (0..1 << 20).map(extent).collect();
        let bytes = LogEntry::encode_changes(&changes);
        assert!(bytes.len() + (64 << 10) < PACKET_BYTES_MAX, "{} bytes", bytes.len());
        let keys = LogEntry::decode(&bytes).unwrap().changes.into_iter().map(|change| change.key);
        assert!(keys.eq(changes.iter().map(|(key, _)| key.encode())));
    }
}
