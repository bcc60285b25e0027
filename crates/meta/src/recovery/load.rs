//! What the checkpoints of all tablets say together. They are not of the same moment: a transaction may be
//! decided in one and not in another.

use super::Shape;
use super::tree::{Names, Parts};
use crate::memory::quota_table;
use crate::record::{
    ChunkRecord, DirectoryContent, ExtentRecord, FragmentRecord, Key, LoggedChange, NameRecord, NodeContent,
    NodeRecord, PrepareRecord, QuotaRecord, Record, UsageRecord,
};
use bearing_proto::peer::Deferred;
use bearing_proto::rules;
use bearing_types::{Amount, ChunkId, NodeId, TabletSerial, TransactionId, Version, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Extents of a file, by where they begin in it.
pub(super) type Extents = BTreeMap<u64, ExtentRecord>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    names: Names,
    nodes: BTreeMap<NodeId, NodeRecord>,
    fragments: BTreeMap<NodeId, BTreeMap<TabletSerial, FragmentRecord>>,
    /// Directories that were about to be made.
    made: BTreeMap<NodeId, NodeRecord>,
    pub extents: BTreeMap<NodeId, Extents>,
    pub chunks: BTreeMap<ChunkId, ChunkRecord>,
    /// Nodes without a name, or about to lose one.
    pub unlinked: BTreeSet<NodeId>,
    xattrs: BTreeMap<(NodeId, u16), Record>,
    quotas: BTreeMap<NodeId, QuotaRecord>,
    pub next_id: u64,
    prepared: Vec<(TabletSerial, TransactionId, PrepareRecord)>,
    decided: BTreeSet<TransactionId>,
}

pub(super) fn load(checkpoints: impl Iterator<Item = (TabletSerial, BTreeMap<Key, Record>)>) -> Loaded {
    let mut loaded = Loaded::default();
    for (serial, records) in checkpoints {
        records.into_iter().for_each(|(key, record)| loaded.take(serial, key, record));
    }
    loaded.settle();
    loaded
}

impl Loaded {
    fn take(&mut self, serial: TabletSerial, key: Key, record: Record) {
        match (key, record) {
            (Key::Name(directory, hash, ordinal), Record::Name(name)) => {
                self.names.insert((directory, hash, ordinal), name);
            }
            (Key::Node(node), Record::Node(record)) => drop(self.nodes.insert(node, *record)),
            (Key::Fragment(directory), Record::Fragment(fragment)) => {
                self.fragments.entry(directory).or_default().insert(serial, *fragment);
            }
            (Key::Extent(node, offset), Record::Extent(extent)) => {
                self.extents.entry(node).or_default().insert(offset, extent);
            }
            (Key::Chunk(chunk), Record::Chunk(record)) => drop(self.chunks.insert(chunk, *record)),
            (Key::Orphan(node, _), _) => drop(self.unlinked.insert(node)),
            (Key::Xattr(node, number), record) => drop(self.xattrs.insert((node, number), record)),
            (Key::Quota(directory), Record::Quota(quota)) => drop(self.quotas.insert(directory, *quota)),
            (Key::NextId, Record::NextId(next)) => self.next_id = self.next_id.max(next.0),
            (Key::Decision(transaction), _) => drop(self.decided.insert(transaction)),
            (Key::Prepare(transaction, _), Record::Prepare(prepare)) => {
                self.prepared.push((serial, transaction, *prepare));
            }
            (Key::Outbox(_), Record::Outbox(item)) => self.take_item(item.work),
            // Sessions are over, with all that was theirs. What stands for chunks is made anew.
            _ => {}
        }
    }

    fn take_item(&mut self, work: Deferred) {
        match work {
            Deferred::MakeDirectory { seat, parent, name, access, acls, born, quota } => {
                let content = DirectoryContent {
                    seat,
                    parent,
                    name: name.as_bytes().to_vec(),
                    fragments: Vec::new(),
                    modified_set: Wall(i64::MIN),
                    access_version: Version(0),
                };
                let node = NodeRecord {
                    home: seat.home,
                    attributes: rules::attributes_of_new_directory(access, born),
                    content: NodeContent::Directory(Box::new(content)),
                    xattrs: false,
                    acls: *acls,
                    quota,
                };
                self.made.insert(seat.node, node);
            }
            Deferred::DropLink { node, .. } => drop(self.unlinked.insert(node.node)),
            Deferred::ReleaseSpace { .. } | Deferred::Touch { .. } => {}
        }
    }

    /// Transactions that are decided anywhere are done here. So are those without which a node would have no
    /// name: the tablet that decided was ahead.
    fn settle(&mut self) {
        let (decided, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.prepared)
            .into_iter()
            .partition(|(_, transaction, _)| self.decided.contains(transaction));
        for (serial, _, prepare) in decided {
            self.apply(serial, &prepare.changes);
        }
        for (serial, _, prepare) in open {
            let entries = self.names.values().filter_map(|name| name.entry.as_ref());
            let named: BTreeSet<NodeId> = entries.map(|entry| entry.node.node).collect();
            let wanted =
                prepare.changes.iter().filter_map(|change| change.decode().ok()).any(|(_, record)| {
                    let Some(Record::Name(NameRecord { entry: Some(entry), .. })) = record else {
                        return false;
                    };
                    self.nodes.contains_key(&entry.node.node) && !named.contains(&entry.node.node)
                });
            if wanted {
                self.apply(serial, &prepare.changes);
            }
        }
    }

    fn apply(&mut self, serial: TabletSerial, changes: &[LoggedChange]) {
        for (key, record) in changes.iter().filter_map(|change| change.decode().ok()) {
            match (key, record) {
                (key, Some(record)) => self.take(serial, key, record),
                (Key::Name(directory, hash, ordinal), None) => {
                    self.names.remove(&(directory, hash, ordinal));
                }
                (Key::Node(node), None) => drop(self.nodes.remove(&node)),
                (Key::Fragment(directory), None) => {
                    self.fragments.entry(directory).or_default().remove(&serial);
                }
                (Key::Extent(node, offset), None) => {
                    self.extents.entry(node).or_default().remove(&offset);
                }
                (_, None) => {}
            }
        }
    }

    /// The largest id that is known to have been given out.
    pub fn largest_id(&self) -> u64 {
        let entries = self.names.values().filter_map(|name| name.entry.as_ref());
        let named = entries.map(|entry| entry.node.node);
        let nodes = self.nodes.keys().chain(self.made.keys()).copied().chain(named);
        let chunks = self.chunks.keys().map(|chunk| chunk.0);
        nodes.map(|node| node.0).chain(chunks).max().unwrap_or(0).max(self.next_id)
    }

    /// Names, nodes and fragments, to be put in order.
    pub fn take_tree(&mut self) -> Parts {
        Parts {
            names: std::mem::take(&mut self.names),
            nodes: std::mem::take(&mut self.nodes),
            fragments: std::mem::take(&mut self.fragments),
            made: std::mem::take(&mut self.made),
        }
    }

    /// What belongs to nodes that are there, what quotas count, and the next id.
    pub fn put_rest(
        &self,
        shape: &Shape,
        tablets: &mut BTreeMap<TabletSerial, BTreeMap<Key, Record>>,
        next_id: u64,
    ) {
        let mut used: BTreeMap<(NodeId, TabletSerial), UsageRecord> = BTreeMap::new();
        let mut homes: BTreeMap<NodeId, TabletSerial> = BTreeMap::new();
        for (serial, records) in tablets.iter() {
            for (key, record) in records {
                if let Key::Node(node) = key {
                    homes.insert(*node, *serial);
                }
                if let Some((quota, amount)) = quota_table::counted(record) {
                    let nothing = UsageRecord { quota, used: Amount { space: 0, entries: 0 } };
                    let sum = &mut used.entry((quota.node, *serial)).or_insert(nothing).used;
                    sum.space += amount.space;
                    sum.entries += amount.entries;
                }
            }
        }
        let mut put = |serial: TabletSerial, key: Key, record: Record| {
            tablets.entry(serial).or_default().insert(key, record);
        };
        for ((node, number), record) in &self.xattrs {
            if let Some(serial) = homes.get(node) {
                put(*serial, Key::Xattr(*node, *number), record.clone());
            }
        }
        for (directory, quota) in &self.quotas {
            let Some(serial) = homes.get(directory) else { continue };
            let mut quota = quota.clone();
            for share in &mut quota.shares {
                let tablet = shape.tablet_at(share.tablet).0;
                let now = used.get(&(*directory, tablet)).map(|usage| usage.used);
                share.used = now.unwrap_or(Amount { space: 0, entries: 0 });
            }
            put(*serial, Key::Quota(*directory), Record::Quota(Box::new(quota)));
        }
        for ((directory, serial), usage) in used {
            put(serial, Key::Usage(directory), Record::Usage(usage));
        }
        put(shape.tablet_at(bearing_types::Position(0)).0, Key::NextId, Record::NextId(NodeId(next_id)));
    }
}
