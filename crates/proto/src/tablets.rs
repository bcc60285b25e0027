//! What an operator is told of tablets: by each metadata server of those that it has, as owner or as copy.

use bearing_types::{Block, Epoch, LogIndex, ServerId, TabletSerial, Wall};
use serde::{Deserialize, Serialize};

/// Tablets in one answer, at most: with five members each they fit into a packet.
pub const TABLETS_TOLD_MAX: usize = 8192;

/// What one metadata server has of tablets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletsView {
    /// Those that it owns, and those that it holds for others, by serial.
    pub tablets: Vec<TabletView>,
    /// Tablets that are left out because there are too many.
    pub left_out: u64,
    /// Copies of its own tablets that are being made again.
    pub restoring: Restoring,
    /// The chunks of its own tablets.
    pub chunks: ChunkTally,
}

/// The chunks of a server's tablets, as they were looked at last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkTally {
    /// All chunks.
    pub chunks: u64,
    /// Of these, those that nobody appends to any more.
    pub sealed: u64,
    /// Chunks that have fewer good copies than they should.
    pub lacking: u64,
    /// Bytes left to copy for that.
    pub lacking_bytes: u64,
    /// Bytes that were copied for that since the server's start.
    pub copied_bytes: u64,
    /// Chunks with a copy that is damaged.
    pub damaged: u64,
    /// Chunks that nobody refers to and that are being removed.
    pub dead: u64,
    /// Bytes of sealed chunks that files refer to; of a chunk that was not scanned yet, all.
    pub live_bytes: u64,
    /// Bytes of sealed chunks that no file refers to any more.
    pub dead_bytes: u64,
    /// Chunks that are being compacted.
    pub compacting: u64,
    /// Bytes of them that are in use and are written anew.
    pub compacting_bytes: u64,
}

impl ChunkTally {
    /// Counts others too.
    pub fn add(&mut self, other: &ChunkTally) {
        self.chunks += other.chunks;
        self.sealed += other.sealed;
        self.lacking += other.lacking;
        self.lacking_bytes += other.lacking_bytes;
        self.copied_bytes += other.copied_bytes;
        self.damaged += other.damaged;
        self.dead += other.dead;
        self.live_bytes += other.live_bytes;
        self.dead_bytes += other.dead_bytes;
        self.compacting += other.compacting;
        self.compacting_bytes += other.compacting_bytes;
    }
}

/// A tablet on one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletView {
    /// The tablet.
    pub serial: TabletSerial,
    /// Where it lies, if the server has read its register.
    pub block: Option<Block>,
    /// The newest epoch that the server knows of.
    pub epoch: Epoch,
    /// Everything up to this entry is known to be committed.
    pub committed: LogIndex,
    /// The newest entry.
    pub last: LogIndex,
    /// What the server is to it.
    pub role: TabletRole,
    /// The digest of its records that was computed last.
    pub compared: Option<Compared>,
    /// As of this entry one is being computed.
    pub comparing: Option<LogIndex>,
}

/// What a server is to a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TabletRole {
    /// Its owner.
    Owner(Box<OwnerView>),
    /// It holds it for another one.
    Copy {
        /// Who sent what is here of the newest epoch; nobody since the server started.
        owner: Option<ServerId>,
        /// It is being given it: parts of the snapshot that are here.
        arriving: Option<u32>,
    },
}

/// What the owner of a tablet knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerView {
    /// Whether it serves.
    pub phase: OwnerPhase,
    /// The other members.
    pub members: Vec<MemberView>,
    /// Who is becoming a member.
    pub learner: Option<LearnerView>,
    /// How it came from another server, if it did so since this one started.
    pub taken: Option<TakenOver>,
    /// The newest entry at which members compute digests, in this life of the server.
    pub compare_at: Option<LogIndex>,
    /// The newest checkpoint of it, as far as this server has read or stored one.
    pub checkpoint: Option<CheckpointView>,
}

/// A checkpoint of a tablet, on data servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// The tablet is in it as it was after this entry.
    pub index: LogIndex,
    /// When it was begun.
    pub at: Wall,
}

/// Whether a tablet is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerPhase {
    /// Not yet.
    Adopting,
    /// It is.
    Serving,
    /// Not any more: another server will.
    Leaving(ServerId),
}

/// What an owner knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Which server.
    pub server: ServerId,
    /// Entries that it has not said to have synced.
    pub lag: u64,
    /// About as many bytes.
    pub lag_bytes: u64,
    /// Whether it leaves the tablet to the owner now.
    pub relies: bool,
}

/// What an owner knows of the server that learns a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnerView {
    /// Which server.
    pub server: ServerId,
    /// Parts of the snapshot that it has.
    pub parts: u32,
    /// Bytes of the snapshot that were read for it.
    pub sent_bytes: u64,
    /// Whether it has the whole snapshot.
    pub has_snapshot: bool,
    /// Entries behind the snapshot that are kept for it.
    pub tail: u64,
}

/// A tablet that was another server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// Whose.
    pub from: ServerId,
    /// When it was served again, by the new owner's clock.
    pub at: Wall,
    /// From the claim until then, in microseconds.
    pub after_us: u64,
}

/// How far copies are that a server makes of its tablets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoring {
    /// Tablets with fewer members than they should have.
    pub lacking: u32,
    /// Bytes that were sent since they are lacking.
    pub sent_bytes: u64,
    /// For how long they are, in milliseconds.
    pub since_ms: u64,
    /// About as many bytes are left to be sent; `None`: nobody knows how large a tablet is.
    pub left_bytes: Option<u64>,
    /// No more bytes are sent in a second.
    pub bytes_per_second_max: u64,
}

/// A digest of a tablet's records on one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// They are as this entry left them.
    pub index: LogIndex,
    /// The digest, or why there is none.
    pub digest: Result<Digest, String>,
}

/// What pairs of keys and values are, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many.
    pub pairs: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The first half of BLAKE3 over each in order: length of the key (u32, little-endian), key, length of
    /// the value, value.
    pub hash: [u8; 16],
}

impl Digest {
    /// The digest of pairs, in the order given; the first error, if there is one.
    pub fn of<E>(pairs: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), E>>) -> Result<Digest, E> {
        let mut hasher = blake3::Hasher::new();
        let (mut count, mut bytes) = (0, 0);
        for pair in pairs {
            let (key, value) = pair?;
            for part in [&key, &value] {
                hasher.update(&(part.len() as u32).to_le_bytes()).update(part);
                bytes += part.len() as u64;
            }
            count += 1;
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Ok(Digest { pairs: count, bytes, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_with_every_byte_and_with_where_a_key_ends() {
        let digest = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| Ok::<_, ()>((key.as_bytes().to_vec(), value.as_bytes().to_vec())));
            Digest::of(pairs).unwrap()
        };
        let one = digest(&[("a", "bc"), ("d", "")]);
        assert_eq!((one.pairs, one.bytes), (2, 4));
        assert_eq!(one, digest(&[("a", "bc"), ("d", "")]));
        for other in [[("ab", "c"), ("d", "")], [("a", "bc"), ("", "d")], [("a", "bd"), ("d", "")]] {
            assert_ne!(one.hash, digest(&other).hash, "{other:?}");
        }
        assert_eq!(Digest::of([Err("damaged")].into_iter()), Err("damaged"));
    }

    #[test]
    fn the_most_that_is_told_of_tablets_fits_into_a_packet() {
        let member = MemberView { server: ServerId(999), lag: u64::MAX, lag_bytes: u64::MAX, relies: true };
        let learner = LearnerView {
            server: ServerId(999),
            parts: u32::MAX,
            sent_bytes: u64::MAX,
            has_snapshot: true,
            tail: u64::MAX,
        };
        let taken = TakenOver { from: ServerId(999), at: Wall(i64::MAX), after_us: u64::MAX };
        let role = TabletRole::Owner(Box::new(OwnerView {
            phase: OwnerPhase::Leaving(ServerId(999)),
            members: vec![member; 5],
            learner: Some(learner),
            taken: Some(taken),
            compare_at: Some(LogIndex(u64::MAX)),
            checkpoint: Some(CheckpointView { index: LogIndex(u64::MAX), at: Wall(i64::MAX) }),
        }));
        let digest = Digest { pairs: u64::MAX, bytes: u64::MAX, hash: [7; 16] };
        let view = TabletView {
            serial: TabletSerial(u64::MAX),
            block: Some(Block::RING),
            epoch: Epoch(u64::MAX),
            committed: LogIndex(u64::MAX),
            last: LogIndex(u64::MAX),
            role,
            compared: Some(Compared { index: LogIndex(u64::MAX), digest: Ok(digest) }),
            comparing: Some(LogIndex(u64::MAX)),
        };
        let view = TabletsView { tablets: vec![view; TABLETS_TOLD_MAX], ..TabletsView::default() };
        assert!(postcard::to_allocvec(&view).unwrap().len() + 1024 < crate::envelope::PACKET_BYTES_MAX);
    }
}
