//! Keys of a tablet's records, and their bytes in the store (`docs/formats/records.md`).
//!
//! Encoded keys compare as the fields do: one tag byte, then fields big-endian. All keys are of fixed size: a
//! name is found by its hash and an ordinal among names of equal hash, and the record says the name itself.
//! So a lookup is a point read, and a listing a range read in cookie order.

use bearing_proto::peer::ItemId;
use bearing_types::{
    Block, ChunkId, Epoch, LogIndex, NameHash, NodeId, Position, Sequence, SessionId, TabletSerial,
    TransactionId,
};

/// The key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A name in a directory.
    Name(NodeId, NameHash, u16),
    /// A node at home here.
    Node(NodeId),
    /// A directory's content in this tablet.
    Fragment(NodeId),
    /// A run of a file's bytes, by file offset.
    Extent(NodeId, u64),
    /// A chunk.
    Chunk(ChunkId),
    /// A directory that was removed; it refuses every child operation.
    Dead(NodeId),
    /// An unlinked node that a session has open.
    Orphan(NodeId, SessionId),
    /// A session, in the tablet of its position.
    Session(SessionId),
    /// A session that ended, in any tablet that knew it.
    Ended(SessionId),
    /// A session that may hold leases of this tablet.
    Holder(SessionId),
    /// The reply to a mutation, kept until the client says it has it.
    Reply(SessionId, Sequence),
    /// A part of a transaction that is prepared here.
    Prepare(TransactionId, u8),
    /// A transaction coordinated here that is committed but not settled everywhere.
    Decision(TransactionId),
    /// An item on its way to another tablet.
    Outbox(ItemId),
    /// What was executed of the items of another tablet.
    Inbox(TabletSerial),
    /// The next id to give out (only in the tablet at position 0).
    NextId,
    /// A directory that is delegated to a session.
    Delegation(NodeId),
    /// A chunk that files of this tablet take no new bytes from.
    Closed(ChunkId),
    /// A chunk that files of this tablet may refer to: its record says so too.
    Joined(ChunkId),
    /// The move token (only in the tablet at position 0): locked by the transaction that moves a directory.
    MoveToken,
    /// Extended attributes of a node at home here: 0 names them all and their numbers, under which their
    /// values are.
    Xattr(NodeId, u16),
    /// The locks that are held on a file at home here.
    Locks(NodeId),
    /// A quota, at the home of the directory that has it.
    Quota(NodeId),
    /// What is used of a quota in this tablet.
    Usage(NodeId),
    /// Where the tablet's checkpoint lies.
    Checkpoint,
    /// The newest epoch under which this server has intended to serve the tablet: of its disk, not of the
    /// tablet.
    Intent,
}

macro_rules! tags {
    ($($name:ident = $tag:literal),* $(,)?) => {
        $(const $name: u8 = $tag;)*
    };
}

tags! {
    NAME = 1, NODE = 2, FRAGMENT = 3, EXTENT = 4, CHUNK = 5, DEAD = 6, ORPHAN = 7, SESSION = 8, ENDED = 9, HOLDER = 10,
    REPLY = 11, PREPARE = 12, DECISION = 13, OUTBOX_BY_INDEX = 14, INBOX_BY_START = 15, NEXT_ID = 16, MOVE_TOKEN = 17, DELEGATION = 18,
    XATTR = 19, LOCKS = 20, QUOTA = 21, USAGE = 22, CLOSED = 24, JOINED = 25, OUTBOX = 26, INBOX = 27, CHECKPOINT = 28, INTENT = 255,
}

impl Key {
    /// The first of all marks.
    pub(crate) const FIRST_MARK: Key = Key::Dead(NodeId(0));

    /// Whether anything is decided by the record of this key alone. What the others say stands in tables of
    /// the tablet: they are read when it starts.
    pub fn is_looked_up(&self) -> bool {
        let kept_in_tables = matches!(
            self,
            Key::Delegation(_)
                | Key::Holder(_)
                | Key::Reply(..)
                | Key::Prepare(..)
                | Key::Decision(_)
                | Key::Outbox(_)
                | Key::Inbox(_)
                | Key::Intent
        );
        !kept_in_tables
    }

    /// The key's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match *self {
            Key::Name(directory, hash, ordinal) => {
                put(&mut bytes, NAME, &[directory.0]);
                bytes.extend_from_slice(&hash.to_bits().to_be_bytes()[2..]);
                bytes.extend_from_slice(&ordinal.to_be_bytes());
            }
            Key::Node(node) => put(&mut bytes, NODE, &[node.0]),
            Key::Fragment(directory) => put(&mut bytes, FRAGMENT, &[directory.0]),
            Key::Extent(node, offset) => put(&mut bytes, EXTENT, &[node.0, offset]),
            Key::Chunk(chunk) => put(&mut bytes, CHUNK, &[chunk.0]),
            Key::Dead(directory) => put(&mut bytes, DEAD, &[directory.0]),
            Key::Orphan(node, session) => put(&mut bytes, ORPHAN, &[node.0, session.0]),
            Key::Session(session) => put(&mut bytes, SESSION, &[session.0]),
            Key::Ended(session) => put(&mut bytes, ENDED, &[session.0]),
            Key::Holder(session) => put(&mut bytes, HOLDER, &[session.0]),
            Key::Reply(session, sequence) => put(&mut bytes, REPLY, &[session.0, sequence.0]),
            Key::Prepare(transaction, part) => {
                put_transaction(&mut bytes, PREPARE, transaction);
                bytes.push(part);
            }
            Key::Decision(transaction) => put_transaction(&mut bytes, DECISION, transaction),
            Key::Outbox(item) => {
                put(&mut bytes, OUTBOX, &[item.tablet.0, item.index.0]);
                bytes.push(item.place);
            }
            Key::Inbox(source) => put(&mut bytes, INBOX, &[source.0]),
            Key::NextId => bytes.push(NEXT_ID),
            Key::MoveToken => bytes.push(MOVE_TOKEN),
            Key::Delegation(directory) => put(&mut bytes, DELEGATION, &[directory.0]),
            Key::Xattr(node, number) => {
                put(&mut bytes, XATTR, &[node.0]);
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            Key::Locks(node) => put(&mut bytes, LOCKS, &[node.0]),
            Key::Closed(chunk) => put(&mut bytes, CLOSED, &[chunk.0]),
            Key::Joined(chunk) => put(&mut bytes, JOINED, &[chunk.0]),
            Key::Quota(directory) => put(&mut bytes, QUOTA, &[directory.0]),
            Key::Usage(directory) => put(&mut bytes, USAGE, &[directory.0]),
            Key::Checkpoint => bytes.push(CHECKPOINT),
            Key::Intent => bytes.push(INTENT),
        }
        bytes
    }

    /// Whether a key is put once and deleted once and then never used again.
    pub fn is_written_once(&self) -> bool {
        matches!(self, Key::Reply(..) | Key::Outbox(_))
    }

    /// Whether the key says all, but for the time at which its record was made.
    pub fn is_mark(&self) -> bool {
        matches!(
            self,
            Key::Dead(_)
                | Key::Orphan(..)
                | Key::Session(_)
                | Key::Ended(_)
                | Key::Holder(_)
                | Key::Closed(_)
                | Key::Joined(_)
                | Key::MoveToken
        )
    }

    /// A key from its bytes; `None` if they are not a key.
    pub fn decode(bytes: &[u8]) -> Option<Key> {
        let mut fields = Fields(bytes.get(1..)?);
        let key = match bytes[0] {
            NAME => {
                let directory = NodeId(fields.u64()?);
                let hash = fields.take::<6>()?;
                let hash = u64::from_be_bytes([0, 0, hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]]);
                Key::Name(directory, NameHash::from_bits(hash), u16::from_be_bytes(fields.take()?))
            }
            NODE => Key::Node(NodeId(fields.u64()?)),
            FRAGMENT => Key::Fragment(NodeId(fields.u64()?)),
            EXTENT => Key::Extent(NodeId(fields.u64()?), fields.u64()?),
            CHUNK => Key::Chunk(ChunkId(fields.u64()?)),
            DEAD => Key::Dead(NodeId(fields.u64()?)),
            ORPHAN => Key::Orphan(NodeId(fields.u64()?), SessionId(fields.u64()?)),
            SESSION => Key::Session(SessionId(fields.u64()?)),
            ENDED => Key::Ended(SessionId(fields.u64()?)),
            HOLDER => Key::Holder(SessionId(fields.u64()?)),
            REPLY => Key::Reply(SessionId(fields.u64()?), Sequence(fields.u64()?)),
            PREPARE => Key::Prepare(fields.transaction()?, fields.take::<1>()?[0]),
            DECISION => Key::Decision(fields.transaction()?),
            OUTBOX => {
                let tablet = TabletSerial(fields.u64()?);
                Key::Outbox(fields.item(tablet)?)
            }
            INBOX => Key::Inbox(TabletSerial(fields.u64()?)),
            NEXT_ID => Key::NextId,
            MOVE_TOKEN => Key::MoveToken,
            DELEGATION => Key::Delegation(NodeId(fields.u64()?)),
            XATTR => Key::Xattr(NodeId(fields.u64()?), u16::from_be_bytes(fields.take()?)),
            LOCKS => Key::Locks(NodeId(fields.u64()?)),
            JOINED => Key::Joined(ChunkId(fields.u64()?)),
            CLOSED => Key::Closed(ChunkId(fields.u64()?)),
            QUOTA => Key::Quota(NodeId(fields.u64()?)),
            USAGE => Key::Usage(NodeId(fields.u64()?)),
            CHECKPOINT => Key::Checkpoint,
            INTENT => Key::Intent,
            _ => return None,
        };
        fields.0.is_empty().then_some(key)
    }

    /// Whether these are the bytes of a key of an item or an inbox as they were before version 4 of records.
    pub(crate) fn is_before_serials(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&OUTBOX_BY_INDEX | &INBOX_BY_START))
    }

    /// The key that such bytes, found in a tablet, are now. Clusters of that time are cut evenly, so the
    /// tablet's serial tells the sender's from where it starts.
    pub(crate) fn from_before_serials(bytes: &[u8], tablet: TabletSerial) -> Option<Key> {
        let mut fields = Fields(bytes.get(1..)?);
        let key = match bytes[0] {
            OUTBOX_BY_INDEX => Key::Outbox(fields.item(tablet)?),
            INBOX_BY_START => {
                let bits = tablet.first_block()?.prefix_bits();
                let sender = Block::around(Position(fields.u64()?), bits);
                Key::Inbox(TabletSerial::of_first(sender)?)
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(key)
    }
}

/// The keys of items and inboxes as they were before version 4 of records, from the first to where they end.
pub(crate) const KEYS_BEFORE_SERIALS: ([u8; 1], [u8; 1]) = ([OUTBOX_BY_INDEX], [INBOX_BY_START + 1]);

/// Where keys begin whose records are of the server's disk and not of the tablet: they stay when the tablet
/// goes elsewhere.
pub(crate) const KEYS_END: [u8; 1] = [INTENT];

/// The tags whose records a tablet keeps in memory from the start: what decides over duplicates, locks and
/// deliveries.
pub(crate) const RESIDENT_TAGS: [u8; 13] = [
    ORPHAN, SESSION, ENDED, HOLDER, REPLY, PREPARE, DECISION, OUTBOX, INBOX, DELEGATION, LOCKS, USAGE,
    CHECKPOINT,
];

fn put(bytes: &mut Vec<u8>, tag: u8, fields: &[u64]) {
    bytes.push(tag);
    for field in fields {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
}

fn put_transaction(bytes: &mut Vec<u8>, tag: u8, transaction: TransactionId) {
    put(bytes, tag, &[transaction.coordinator.0, transaction.epoch.0, transaction.number]);
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn item(&mut self, tablet: TabletSerial) -> Option<ItemId> {
        Some(ItemId { tablet, index: LogIndex(self.u64()?), place: self.take::<1>()?[0] })
    }

    fn transaction(&mut self) -> Option<TransactionId> {
        Some(TransactionId {
            coordinator: Position(self.u64()?),
            epoch: Epoch(self.u64()?),
            number: self.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Key> {
        let transaction = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(at, epoch, number)| {
            TransactionId { coordinator: Position(at), epoch: Epoch(epoch), number }
        });
        prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(node, hash, ordinal)| Key::Name(
                NodeId(node),
                NameHash::from_bits(hash),
                ordinal
            )),
            any::<u64>().prop_map(|node| Key::Node(NodeId(node))),
            any::<u64>().prop_map(|node| Key::Fragment(NodeId(node))),
            (any::<u64>(), any::<u64>()).prop_map(|(node, offset)| Key::Extent(NodeId(node), offset)),
            (any::<u64>(), any::<u64>())
                .prop_map(|(node, session)| Key::Orphan(NodeId(node), SessionId(session))),
            (any::<u64>(), any::<u64>())
                .prop_map(|(session, number)| Key::Reply(SessionId(session), Sequence(number))),
            (transaction.clone(), any::<u8>())
                .prop_map(|(transaction, part)| Key::Prepare(transaction, part)),
            transaction.prop_map(Key::Decision),
            (any::<u64>(), any::<u64>(), any::<u8>()).prop_map(|(tablet, index, place)| {
                Key::Outbox(ItemId { tablet: TabletSerial(tablet), index: LogIndex(index), place })
            }),
            any::<u64>().prop_map(|tablet| Key::Inbox(TabletSerial(tablet))),
            (any::<u64>(), any::<u16>()).prop_map(|(node, number)| Key::Xattr(NodeId(node), number)),
            any::<u64>().prop_map(|node| Key::Locks(NodeId(node))),
            any::<u64>().prop_map(|chunk| Key::Closed(ChunkId(chunk))),
            any::<u64>().prop_map(|chunk| Key::Joined(ChunkId(chunk))),
            any::<u64>().prop_map(|node| Key::Quota(NodeId(node))),
            any::<u64>().prop_map(|node| Key::Usage(NodeId(node))),
            Just(Key::NextId),
            Just(Key::Checkpoint),
            Just(Key::Intent),
        ]
    }

    #[test]
    fn a_key_from_before_serials_names_the_tablet_by_the_cut_of_its_cluster() {
        let tablet = TabletSerial(0b1_0011);
        let renewed = |bytes: &[u8]| Key::from_before_serials(bytes, tablet);
        let item = ItemId { tablet, index: LogIndex(300), place: 2 };
        let stored = [14, 0, 0, 0, 0, 0, 0, 1, 0x2c, 2];
        assert_eq!(renewed(&stored), Some(Key::Outbox(item)));
        let from = [15, 0xf0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(renewed(&from), Some(Key::Inbox(TabletSerial(0b1_1111))));
        for old in [&stored[..], &from] {
            assert!(Key::is_before_serials(old) && Key::decode(old).is_none());
            assert_eq!((renewed(&old[..old.len() - 1]), renewed(&[old, &[0]].concat())), (None, None));
            let key = renewed(old).unwrap();
            assert!(!Key::is_before_serials(&key.encode()) && renewed(&key.encode()).is_none());
        }
    }

    proptest! {
        #[test]
        fn a_key_survives_its_bytes(key in keys()) {
            prop_assert_eq!(Key::decode(&key.encode()), Some(key));
        }

        #[test]
        fn bytes_compare_as_keys_do(a in keys(), b in keys()) {
            let tags = (a.encode()[0], b.encode()[0]);
            if tags.0 == tags.1 {
                prop_assert_eq!(a.cmp(&b), a.encode().cmp(&b.encode()));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Key::decode(&bytes);
        }
    }
}
