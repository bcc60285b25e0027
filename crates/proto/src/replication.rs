//! Between metadata servers: log entries on their way to the members of their tablets, what these have of
//! them, and the leases that ride on both.

use bearing_types::{Epoch, LogIndex, TabletSerial};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// From an owner to a member of some of its tablets, or back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicationMessage {
    /// From an owner.
    Append(Append),
    /// From a member.
    Held(Held),
}

/// Entries for a member, or none: then it is a beacon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// The sender's life, chosen at its start.
    pub life: u64,
    /// When it was sent, by the sender's clock: comes back with the answer. Grows within a life.
    pub stamp: u64,
    /// The stamp of the newest answer that the sender has of the receiver; 0 if it has none.
    pub answered: u64,
    /// Entries, each tablet's in order.
    pub entries: Vec<Entries>,
    /// How far tablets are committed. Each is answered.
    pub commits: Vec<Progress>,
    /// Parts of snapshots, for a learner. Each is answered.
    pub parts: Vec<SnapshotPart>,
    /// Tablets that the sender no longer serves, and leaves to the receiver, which is a member: committed up
    /// to these entries.
    pub yields: Vec<Progress>,
}

/// A part of a tablet's records as the owner's store has them. Parts are read one after the other while the
/// tablet is served, so later ones are of a later state: the entries behind `base`, which follow the last
/// part, make all of it one state again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The tablet.
    pub serial: TabletSerial,
    /// The epoch under which it is sent.
    pub epoch: Epoch,
    /// The epoch under which the receiver became a learner: names the snapshot.
    pub snapshot: Epoch,
    /// Every part has all up to this entry.
    pub base: LogIndex,
    /// No part has anything behind this entry: known with the last one.
    pub end: LogIndex,
    /// Counts the parts from 0.
    pub number: u32,
    /// What the log keeps of it.
    pub entry: EntryBytes,
}

/// How many parts of a snapshot a learner has synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsHeld {
    /// The tablet.
    pub serial: TabletSerial,
    /// Names the snapshot.
    pub snapshot: Epoch,
    /// So many, from 0 on. None: it has lost those that it had, or has the tablet already.
    pub parts: u32,
}

/// Entries of a tablet's log, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// The tablet.
    pub serial: TabletSerial,
    /// The epoch under which they were written.
    pub epoch: Epoch,
    /// The first entry of that epoch: what a member has there and behind it of lower epochs is void.
    pub first: LogIndex,
    /// The tablet was committed up to this entry when they were sent.
    pub commit: LogIndex,
    /// The index of the first of them.
    pub index: LogIndex,
    /// What the log keeps of each.
    pub entries: Vec<EntryBytes>,
}

/// What the log keeps of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBytes(pub Vec<u8>);

// As a `Vec<u8>`, but in one piece: serde would take it byte by byte.
impl Serialize for EntryBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for EntryBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EntryBytes, D::Error> {
        Ok(EntryBytes(<&[u8]>::deserialize(deserializer)?.to_vec()))
    }
}

/// How far a tablet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The tablet.
    pub serial: TabletSerial,
    /// The epoch.
    pub epoch: Epoch,
    /// Up to this entry.
    pub index: LogIndex,
}

/// What a member has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The life of the server that is answered.
    pub life: u64,
    /// The newest stamp of it that has arrived.
    pub stamp: u64,
    /// The term of the sender towards that server: what was confirmed in another one counts no more.
    pub term: u64,
    /// Tablets that are held for that server under these epochs, synced up to these entries.
    pub synced: Vec<Progress>,
    /// Tablets of which entries are lacking: the last one that is there.
    pub lacking: Vec<Progress>,
    /// Tablets that are not held for that server under its epoch, with the newest epoch that is known.
    pub refused: Vec<Progress>,
    /// Snapshots that are arriving.
    pub parts: Vec<PartsHeld>,
    /// The sender's clock is too far from those of most servers: it would serve nothing.
    pub clock_off: bool,
}
