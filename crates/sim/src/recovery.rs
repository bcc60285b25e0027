//! What data servers hold is enough: at the end of a run all tablets store checkpoints, and what is made anew
//! of the data servers' disks alone is what metadata servers have.

use crate::clock::SECOND;
use crate::cluster::{METADATA, Role};
use crate::complaint::Promise;
use crate::network::HostId;
use crate::sim::Sim;
use bearing_meta::recovery::{Found, Rebuilt, Shape, rebuild};
use bearing_meta::{Key, NodeContent, Record};
use bearing_placement::Seat;
use bearing_proto::tablets::TabletRole;
use bearing_types::{ChunkId, NodeId, ServerId, TabletSerial, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Longer than bytes may wait until their file takes them.
const QUIET: u64 = 11 * SECOND;
/// So long it may take until all checkpoints are stored.
const STORED_WITHIN: u64 = 120 * SECOND;

/// Records of all tablets.
type Records = BTreeMap<(TabletSerial, Key), Record>;

impl Sim {
    /// See the module.
    pub(crate) fn check_recovery(&mut self) {
        if !self.ledger.complaints.is_empty() {
            return;
        }
        self.run_for(QUIET);
        let (before, end) = (self.checkpoints(), self.world.now().0 + STORED_WITHIN);
        for host in &mut self.metadata {
            host.store_checkpoints(&mut self.world, &mut self.ledger);
        }
        let count = self.coordinator.tablets().len();
        let is_old = |(serial, at): (&TabletSerial, &Wall)| before.get(serial) == Some(at);
        loop {
            let stored = self.checkpoints();
            if stored.len() == count && !stored.iter().any(is_old) {
                break;
            }
            if self.world.now().0 >= end {
                let what = "not all tablets have stored checkpoints".to_owned();
                return self.ledger.blame(&self.world, Promise::Recovered, what);
            }
            self.run_for(SECOND);
        }
        let found = self.scan_data();
        let filesystem = self.coordinator.filesystem();
        let tablets = self.coordinator.tablets().into_iter();
        let shape = Shape {
            tablets: tablets.map(|tablet| (tablet.serial, tablet.block)).collect(),
            root: Seat::root(filesystem.root, filesystem.scheme.seating()),
            name_key: filesystem.name_key,
            now: self.world.clock_of(HostId(1)).wall,
        };
        let rebuilt = rebuild(&shape, &found);
        self.world.counts.add("recovery: all metadata made anew");
        self.world.counts.add_many("recovery: lost", rebuilt.report.lost.len() as u64);
        for what in self.wrongly_rebuilt(&shape, &rebuilt, &found).into_iter().take(5) {
            self.ledger.blame(&self.world, Promise::Recovered, what);
        }
    }

    /// Every checkpoint that is whole by now, whatever happened while it was written, has exactly what its
    /// tablet had as of its entry.
    pub(crate) fn check_checkpoints(&mut self) {
        let checkpoints = self.scan_data().checkpoints();
        for (serial, error) in checkpoints.unread {
            let what = format!("a checkpoint of {serial} cannot be read: {error:?}");
            self.ledger.blame(&self.world, Promise::Recovered, what);
        }
        for (serial, (read, _)) in checkpoints.newest {
            let block = read.header.block;
            let Some(had) = self.ledger.records_as_of(block, read.index) else {
                let what = format!("a checkpoint of {serial} is as of {}, which is not stable", read.index);
                self.ledger.blame(&self.world, Promise::Recovered, what);
                continue;
            };
            let has = read.records.iter().map(|(key, record)| (key.encode(), record.encode()));
            let has: BTreeMap<Vec<u8>, Vec<u8>> = has.collect();
            let had: BTreeMap<Vec<u8>, Vec<u8>> =
                had.into_iter().filter(|(key, _)| *key != Key::Intent.encode()).collect();
            let keys: BTreeSet<&Vec<u8>> = had.keys().chain(has.keys()).collect();
            let wrong = keys.into_iter().find(|key| had.get(*key) != has.get(*key));
            self.world.counts.add("recovery: checkpoint compared");
            if let Some(key) = wrong {
                let what = format!(
                    "the checkpoint of {serial} as of {} differs in {:?}: had {:?}, has {:?}",
                    read.index,
                    Key::decode(key),
                    had.get(key).map(|value| Record::decode(value)),
                    has.get(key).map(|value| Record::decode(value))
                );
                self.ledger.blame(&self.world, Promise::Recovered, what);
            }
        }
    }

    /// When the newest checkpoints of tablets were begun, by their owners' clocks.
    fn checkpoints(&self) -> BTreeMap<TabletSerial, Wall> {
        let tablets = self.metadata.iter().flat_map(|host| host.tablets(&self.world));
        let stored = tablets.filter_map(|tablet| match tablet.role {
            TabletRole::Owner(owner) => Some((tablet.serial, owner.checkpoint?.at)),
            TabletRole::Copy { .. } => None,
        });
        stored.collect()
    }

    fn scan_data(&mut self) -> Found {
        let mut found = Found::default();
        for host in self.hosts.data().collect::<Vec<_>>() {
            let Role::Data(server) = self.hosts.role(host) else { continue };
            if Some(host) == self.lost || self.servers.absent.contains(&host) {
                continue;
            }
            self.data[usize::from(host.0 - 1 - METADATA)].scan(server, &mut found);
        }
        found
    }

    /// What metadata servers have and is not there, or is there and they do not have.
    fn wrongly_rebuilt(&self, shape: &Shape, rebuilt: &Rebuilt, found: &Found) -> Vec<String> {
        let mut had = Records::new();
        for (serial, block) in &shape.tablets {
            for (key, value) in self.ledger.model.stored(*block) {
                if let (Some(key), Ok(record)) = (Key::decode(key), Record::decode(value)) {
                    had.insert((*serial, key), record);
                }
            }
        }
        let mut now = Records::new();
        for (serial, (_, records)) in &rebuilt.tablets {
            now.extend(records.iter().map(|(key, record)| ((*serial, *key), record.clone())));
        }
        let is_lost: BTreeSet<NodeId> = rebuilt.report.lost.iter().map(|lost| lost.node).collect();
        // Whose clock was far ahead has written later than it did.
        let is_off = self.world.counts.of("fault: clock off by more than servers allow") > 0;
        let changed = rebuilt.report.changed.iter().filter(|_| is_off).map(|(node, _)| *node);
        let is_lost: BTreeSet<NodeId> = is_lost.into_iter().chain(changed).collect();
        let named: BTreeSet<NodeId> = had.values().filter_map(named_by).collect();
        let is_told = |key: &Key, record: &Record| match (key, record) {
            // Nobody has what of it is damaged everywhere; the report says so.
            (Key::Name(..), record) => named_by(record).is_none_or(|node| !is_lost.contains(&node)),
            (Key::Extent(node, _), Record::Extent(extent)) => {
                named.contains(node)
                    && !is_lost.contains(node)
                    && found.frame_at(extent.chunk.chunk, extent.frame).is_some()
            }
            (Key::Node(node) | Key::Xattr(node, _), _) => {
                (named.contains(node) || *node == NodeId::ROOT) && !is_lost.contains(node)
            }
            (Key::Quota(_) | Key::Fragment(_), _) => true,
            _ => false,
        };
        let relevant = |records: &Records| -> BTreeMap<(TabletSerial, Key), String> {
            let told = records.iter().filter(|((_, key), record)| is_told(key, record));
            told.map(|(key, record)| (*key, shown(record, found))).collect()
        };
        let (had, now) = (relevant(&had), relevant(&now));
        let keys: BTreeSet<&(TabletSerial, Key)> = had.keys().chain(now.keys()).collect();
        let wrong = keys.into_iter().filter(|key| had.get(key) != now.get(key));
        wrong
            .map(|key| format!("recovered: {key:?}: had {:?}, has {:?}", had.get(key), now.get(key)))
            .collect()
    }
}

fn named_by(record: &Record) -> Option<NodeId> {
    if let Record::Name(name) = record { Some(name.entry.as_ref()?.node.node) } else { None }
}

/// What counts of a record: in which order a directory lists its fragments does not, nor what shares of a
/// quota tablets were given. Of bytes that compaction has moved since the checkpoint the old place is as
/// good: what was written counts, and which part of it.
fn shown(record: &Record, found: &Found) -> String {
    match record {
        Record::Extent(extent) => match found.frame_at(extent.chunk.chunk, extent.frame) {
            Some(frame) => format!("{:?}, {} bytes from {}", frame.owner, extent.length, extent.skip),
            None => format!("{extent:?}"),
        },
        Record::Node(node) => {
            let mut node = node.clone();
            if let NodeContent::Directory(content) = &mut node.content {
                content.fragments.clear();
            }
            format!("{node:?}")
        }
        Record::Quota(_) => String::new(),
        other => format!("{other:?}"),
    }
}

/// The chunks that a data server holds for checkpoints.
pub(crate) fn checkpoint_chunks(record: &bearing_meta::CheckpointRecord) -> Vec<(ServerId, ChunkId)> {
    let whole = record.whole.iter().flat_map(|whole| &whole.chunks);
    let all = whole.chain(&record.draft).chain(&record.former);
    all.flat_map(|held| held.servers.iter().map(|server| (*server, held.chunk))).collect()
}
