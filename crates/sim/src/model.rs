//! The state of the whole namespace as the stable records tell it, and its invariants, checked after every
//! record on what it touched.
//!
//! A committed decision counts for all its parts at once, although participants write theirs later: so the
//! invariants hold at every record, with no exception for transactions under way. Exceptions that the
//! promises name: a link count may be too high while a queued drop is on its way, and the name of a queued
//! mkdir may wait for its node.

use crate::complaint::Promise;
use bearing_meta::{FragmentRecord, Key, LoggedChange, NameEntry, NodeContent, NodeRecord, Record};
use bearing_proto::peer::{Deferred, ItemId};
use bearing_types::{Amount, Block, FileType, Name, NameHash, NodeId, SessionId, TransactionId};
use std::collections::{BTreeMap, BTreeSet};

type NamePlace = (NodeId, NameHash, u16);
/// A promise that is broken, and how.
pub type Broken = (Promise, String);
type Changes = Vec<(Key, Option<Record>)>;

/// What the names of a directory in one tablet add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    entries: u64,
    directories: u32,
}

/// See the module.
#[derive(Default)]
pub struct Model {
    stored: BTreeMap<Block, BTreeMap<Vec<u8>, Vec<u8>>>,
    names: BTreeMap<NamePlace, (Block, NameEntry)>,
    /// How many names each node has, and (of a directory) in which directory the last one was put.
    referred: BTreeMap<NodeId, BTreeSet<NamePlace>>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    fragments: BTreeMap<(NodeId, Block), FragmentRecord>,
    sums: BTreeMap<(NodeId, Block), Sum>,
    dead: BTreeSet<NodeId>,
    orphans: BTreeSet<(NodeId, SessionId)>,
    prepared: BTreeMap<(TransactionId, Block, u8), Changes>,
    decided: BTreeSet<TransactionId>,
    outbox: BTreeMap<ItemId, Deferred>,
    /// Nodes that queued mkdirs will make.
    promised: BTreeSet<NodeId>,
    /// Nodes that ever were.
    ever: BTreeSet<NodeId>,
    /// The first id that is not given out, as far as that is stable.
    next_id: Option<NodeId>,
    /// Names that came, went or lead elsewhere since this was last taken.
    turned: BTreeSet<(NodeId, NameHash, Name)>,
}

/// What one record touched.
#[derive(Default)]
struct Touched {
    nodes: BTreeSet<NodeId>,
    directories: BTreeSet<(NodeId, Block)>,
    moved: BTreeSet<NodeId>,
    born: BTreeSet<NodeId>,
}

static NOTHING: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();

impl Model {
    /// The stable records of a tablet, as stored.
    pub fn stored(&self, tablet: Block) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        self.stored.get(&tablet).unwrap_or(&NOTHING)
    }

    /// Takes a record in. Gives what is broken now.
    pub fn apply(
        &mut self,
        tablet: Block,
        logged: &[LoggedChange],
        changes: Vec<(Key, Option<Record>)>,
    ) -> Vec<Broken> {
        let mut touched = Touched::default();
        let mut broken = Vec::new();
        let stored = self.stored.entry(tablet).or_default();
        for change in logged {
            match &change.value {
                Some(value) => stored.insert(change.key.clone(), value.clone()),
                None => stored.remove(&change.key),
            };
        }
        for (key, record) in changes {
            match (key, record) {
                (Key::Prepare(transaction, part), Some(Record::Prepare(prepare))) => {
                    let changes = prepare.changes.iter().filter_map(|change| change.decode().ok()).collect();
                    self.prepared.insert((transaction, tablet, part), changes);
                }
                (Key::Prepare(transaction, part), None) => {
                    self.prepared.remove(&(transaction, tablet, part));
                }
                (Key::Decision(transaction), Some(Record::Decision(participants))) => {
                    self.decide(transaction, &participants, &mut touched, &mut broken);
                }
                (Key::Decision(transaction), None) => {
                    self.decided.remove(&transaction);
                }
                (Key::Outbox(item), record) => self.note_outbox(item, record),
                (key, record) => self.put(tablet, key, record, &mut touched),
            }
        }
        self.check(tablet, &touched, &mut broken);
        broken
    }

    fn note_outbox(&mut self, item: ItemId, record: Option<Record>) {
        match record {
            Some(Record::Outbox(outbox)) => {
                if let Deferred::MakeDirectory { seat, .. } = &outbox.work {
                    self.promised.insert(seat.node);
                }
                self.outbox.insert(item, outbox.work);
            }
            _ => {
                if let Some(Deferred::MakeDirectory { seat, .. }) = self.outbox.remove(&item) {
                    self.promised.remove(&seat.node);
                }
            }
        }
    }

    /// All parts of a transaction count from its decision on.
    fn decide(
        &mut self,
        transaction: TransactionId,
        participants: &[bearing_types::Position],
        touched: &mut Touched,
        broken: &mut Vec<Broken>,
    ) {
        self.decided.insert(transaction);
        let parts: Vec<_> = self
            .prepared
            .iter()
            .filter(|((of, ..), _)| *of == transaction)
            .map(|((_, tablet, _), changes)| (*tablet, changes.clone()))
            .collect();
        for position in participants {
            if !parts.iter().any(|(tablet, _)| tablet.contains(*position)) {
                broken.push((
                    Promise::Prepared,
                    format!("{transaction:?} was decided, but its part at {position} is not stable"),
                ));
            }
        }
        for (tablet, changes) in parts {
            for (key, record) in changes {
                self.put(tablet, key, record, touched);
            }
        }
    }

    fn put(&mut self, tablet: Block, key: Key, record: Option<Record>, touched: &mut Touched) {
        match (key, record) {
            (Key::Name(directory, hash, ordinal), record) => {
                let entry = match record {
                    Some(Record::Name(name)) => name.entry,
                    _ => None,
                };
                self.put_name(tablet, (directory, hash, ordinal), entry, touched);
            }
            (Key::Node(node), Some(Record::Node(record))) => {
                if self.ever.insert(node) {
                    touched.born.insert(node);
                }
                let parent =
                    |record: &NodeRecord| record.directory().ok().map(|directory| directory.parent.node);
                if self.nodes.get(&node).and_then(parent) != parent(&record) {
                    touched.moved.insert(node);
                }
                self.nodes.insert(node, *record);
                touched.nodes.insert(node);
            }
            (Key::Node(node), _) => {
                self.nodes.remove(&node);
                touched.nodes.insert(node);
            }
            (Key::Fragment(directory), Some(Record::Fragment(record))) => {
                self.fragments.insert((directory, tablet), *record);
                touched.directories.insert((directory, tablet));
            }
            (Key::Fragment(directory), _) => {
                self.fragments.remove(&(directory, tablet));
                touched.directories.insert((directory, tablet));
            }
            (Key::Dead(directory), Some(_)) => {
                self.dead.insert(directory);
                touched.directories.insert((directory, tablet));
            }
            // The mark goes some day; the directory stays dead.
            (Key::Dead(_), None) => {}
            (Key::NextId, Some(Record::NextId(next))) => self.next_id = Some(next),
            (Key::Orphan(node, session), Some(_)) => {
                self.orphans.insert((node, session));
            }
            (Key::Orphan(node, session), None) => {
                self.orphans.remove(&(node, session));
            }
            _ => {}
        }
    }

    fn put_name(&mut self, tablet: Block, place: NamePlace, entry: Option<NameEntry>, touched: &mut Touched) {
        touched.directories.insert((place.0, tablet));
        if let Some((block, before)) = self.names.remove(&place) {
            self.turned.insert((place.0, place.1, before.name.clone()));
            touched.nodes.insert(before.node.node);
            let sum = self.sums.entry((place.0, block)).or_default();
            sum.entries -= 1;
            sum.directories -= u32::from(before.file_type == FileType::Directory);
            if let Some(places) = self.referred.get_mut(&before.node.node) {
                places.remove(&place);
            }
        }
        if let Some(entry) = entry {
            self.turned.insert((place.0, place.1, entry.name.clone()));
            touched.nodes.insert(entry.node.node);
            let sum = self.sums.entry((place.0, tablet)).or_default();
            sum.entries += 1;
            sum.directories += u32::from(entry.file_type == FileType::Directory);
            self.referred.entry(entry.node.node).or_default().insert(place);
            self.names.insert(place, (tablet, entry));
        }
    }

    /// Names that changed since this was last asked, and what they lead to now.
    pub fn take_turned(&mut self) -> Vec<(NodeId, Name, Option<NodeId>)> {
        let turned = std::mem::take(&mut self.turned).into_iter();
        let now = |(directory, hash, name): (NodeId, NameHash, Name)| {
            let places = (directory, hash, 0)..=(directory, hash, u16::MAX);
            let entry = self.names.range(places).find(|(_, (_, entry))| entry.name == name);
            let node = entry.map(|(_, (_, entry))| entry.node.node);
            (directory, name, node)
        };
        turned.map(now).collect()
    }

    // --- invariants ---

    fn check(&self, tablet: Block, touched: &Touched, broken: &mut Vec<Broken>) {
        for node in &touched.nodes {
            self.check_node(*node, broken);
        }
        let given = |node: &&NodeId| **node == NodeId::ROOT || Some(**node) < self.next_id;
        for node in touched.born.iter().filter(|node| !given(node)) {
            let what = format!("{node} was made, but ids are given out up to {:?} only", self.next_id);
            broken.push((Promise::IdsOnce, what));
        }
        for (directory, block) in &touched.directories {
            self.check_directory(*directory, *block, broken);
        }
        for node in &touched.moved {
            self.check_path(*node, broken);
        }
        for (_, what) in broken.iter_mut() {
            what.push_str(&format!(" (after a record of {tablet})"));
        }
    }

    fn names_of(&self, node: NodeId) -> usize {
        self.referred.get(&node).map_or(0, BTreeSet::len)
    }

    /// What has names exists; a directory has one, where it says; link counts are never too low.
    fn check_node(&self, node: NodeId, broken: &mut Vec<Broken>) {
        let names = self.names_of(node);
        let Some(record) = self.nodes.get(&node) else {
            if names > 0 && !self.promised.contains(&node) {
                broken.push((Promise::NamedExists, format!("{node} has {names} names but is nowhere")));
            }
            return;
        };
        match &record.content {
            NodeContent::Directory(directory) => {
                let place = self.referred.get(&node).and_then(BTreeSet::first);
                if names > 1 {
                    broken.push((Promise::OneName, format!("directory {node} has {names} names")));
                }
                if let Some((parent, ..)) = place.filter(|(parent, ..)| *parent != directory.parent.node) {
                    let says = directory.parent.node;
                    broken.push((
                        Promise::OneName,
                        format!("directory {node} is named in {parent}, but says its parent is {says}"),
                    ));
                }
            }
            NodeContent::File | NodeContent::Symlink(_) | NodeContent::Special => {
                let links = record.attributes.links as usize;
                if links < names {
                    broken.push((
                        Promise::LinkCount,
                        format!("{node} counts {links} links but has {names} names"),
                    ));
                }
            }
        }
    }

    /// A fragment counts what is there; what is dead is empty.
    fn check_directory(&self, directory: NodeId, block: Block, broken: &mut Vec<Broken>) {
        let sum = self.sums.get(&(directory, block)).copied().unwrap_or_default();
        let counted = self.fragments.get(&(directory, block)).map_or(Sum::default(), |fragment| Sum {
            entries: fragment.entries,
            directories: fragment.directories,
        });
        if sum != counted {
            broken.push((
                Promise::FragmentCount,
                format!("directory {directory} has {sum:?} in {block}, its fragment counts {counted:?}"),
            ));
        }
        if self.dead.contains(&directory) && sum.entries > 0 {
            broken.push((
                Promise::DeadIsEmpty,
                format!("directory {directory} is dead but holds {sum:?} in {block}"),
            ));
        }
    }

    /// From every directory the parents lead to the root.
    fn check_path(&self, node: NodeId, broken: &mut Vec<Broken>) {
        let (mut at, mut steps) = (node, 0);
        while at != NodeId::ROOT {
            let Some(parent) = self.nodes.get(&at).and_then(|record| record.directory().ok()) else { return };
            at = parent.parent.node;
            steps += 1;
            if at == node || steps > 10_000 {
                return broken.push((Promise::NoLoop, format!("directory {node} lies below itself")));
            }
        }
    }

    /// What may not be left when nothing happens any more.
    pub fn check_quiet(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        if let Some((transaction, ..)) = self.prepared.keys().next() {
            broken.push((Promise::Settled, format!("a part of {transaction:?} is still prepared")));
        }
        if let Some(transaction) = self.decided.first() {
            broken.push((Promise::Settled, format!("{transaction:?} is still not settled")));
        }
        if let Some((item, work)) = self.outbox.first_key_value() {
            broken.push((Promise::Settled, format!("{item:?} is still not delivered: {work:?}")));
        }
        for (node, record) in &self.nodes {
            let names = self.names_of(*node);
            let orphaned =
                self.orphans.range((*node, SessionId(0))..).next().is_some_and(|(of, _)| of == node);
            let is_directory = record.directory().is_ok();
            if !is_directory && record.attributes.links as usize != names {
                let links = record.attributes.links;
                broken
                    .push((Promise::LinkCount, format!("{node} counts {links} links but has {names} names")));
            }
            if names == 0 && *node != NodeId::ROOT && !orphaned {
                broken.push((Promise::Settled, format!("{node} has no name and nobody has it open")));
            }
        }
        for (directory, block) in self.fragments.keys() {
            if !self.nodes.contains_key(directory) {
                broken.push((
                    Promise::Settled,
                    format!("directory {directory} is gone, but a fragment of it is left in {block}"),
                ));
            }
        }
        broken.extend(self.check_usage());
        let (first, last) = (Key::Locks(NodeId(0)), Key::Locks(NodeId(u64::MAX)));
        for stored in self.stored.values() {
            for (key, _) in stored.range(first.encode()..=last.encode()) {
                if let Some(Key::Locks(node)) = Key::decode(key)
                    && !self.nodes.contains_key(&node)
                {
                    broken.push((Promise::Settled, format!("{node} is gone, but locks of it are left")));
                }
            }
        }
        let (first, last) = (Key::Delegation(NodeId(0)), Key::Delegation(NodeId(u64::MAX)));
        for stored in self.stored.values() {
            for (key, _) in stored.range(first.encode()..=last.encode()) {
                if let Some(Key::Delegation(node)) = Key::decode(key)
                    && !self.nodes.contains_key(&node)
                {
                    let what = format!("directory {node} is gone, but it is delegated");
                    broken.push((Promise::Settled, what));
                }
            }
        }
        let (first, last) = (Key::Xattr(NodeId(0), 0), Key::Xattr(NodeId(u64::MAX), u16::MAX));
        for (block, stored) in &self.stored {
            for (key, _) in stored.range(first.encode()..=last.encode()) {
                if let Some(Key::Xattr(node, number)) = Key::decode(key)
                    && self.nodes.get(&node).is_none_or(|record| !record.xattrs)
                {
                    let what =
                        format!("{node} has no extended attributes, but number {number} is left in {block}");
                    broken.push((Promise::Settled, what));
                }
            }
        }
        broken
    }

    /// How many tablets have anything.
    pub fn tablets(&self) -> u64 {
        self.stored.len() as u64
    }

    /// What lies in all tablets, counted by quotas.
    pub fn used_of_quotas(&self) -> Amount {
        let all = self.stored.values().flat_map(counted);
        all.fold(Amount::ZERO, |sum, (_, used)| sum.plus(used))
    }

    /// What tablets say is used of quotas is what lies in them.
    fn check_usage(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        for (block, stored) in &self.stored {
            let mut lies = counted(stored);
            let mut says = BTreeMap::new();
            for (key, value) in stored {
                if let (Some(Key::Usage(quota)), Ok(Record::Usage(usage))) =
                    (Key::decode(key), Record::decode(value))
                {
                    says.insert(quota, usage.used);
                }
            }
            lies.retain(|_, used| *used != Amount::ZERO);
            says.retain(|_, used| *used != Amount::ZERO);
            if lies != says {
                broken.push((
                    Promise::Settled,
                    format!("{block} says that {says:?} is used of quotas, but it is {lies:?}"),
                ));
            }
        }
        broken
    }

    /// Every frame of a chunk that a file refers to.
    pub fn frames_of(&self, node: NodeId) -> Vec<(bearing_types::ChunkId, u64)> {
        let mut frames = Vec::new();
        for stored in self.stored.values() {
            let (first, last) = (Key::Extent(node, 0).encode(), Key::Extent(node, u64::MAX).encode());
            for value in stored.range(first..=last).map(|(_, value)| value) {
                if let Ok(Record::Extent(extent)) = Record::decode(value) {
                    frames.push((extent.chunk.chunk, extent.frame));
                }
            }
        }
        frames
    }
}

/// What lies in a tablet, by the quota that counts it.
fn counted(stored: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<NodeId, Amount> {
    let mut lies: BTreeMap<NodeId, Amount> = BTreeMap::new();
    for (key, value) in stored {
        match (Key::decode(key), Record::decode(value)) {
            (Some(Key::Node(_)), Ok(Record::Node(node))) if !node.attributes.is_directory() => {
                let Some(quota) = node.quota else { continue };
                lies.entry(quota.node).or_default().space += node.attributes.space;
            }
            (Some(Key::Fragment(_)), Ok(Record::Fragment(fragment))) => {
                let Some(quota) = fragment.quota else { continue };
                lies.entry(quota.node).or_default().entries += fragment.entries;
            }
            _ => {}
        }
    }
    lies
}
