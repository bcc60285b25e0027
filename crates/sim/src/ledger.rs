//! What has become stable, record by record, in one order over all tablets: the witness of the checker, and
//! the model on which the invariants are checked after every record.
//!
//! Each log record that a sync (or a lucky crash) makes stable is decoded here. Replies give the witness,
//! which request was committed when, by code of its own (`witness`).

use crate::cluster::Hosts;
use crate::complaint::{Complaint, Promise};
use crate::line::{Line, Synced, Told};
use crate::model::Model;
use crate::network::HostId;
use crate::witness::{self, Said};
use crate::world::World;
use bearing_meta::{ChunkRecord, EntryKind, Key, LogEntry, LoggedChange, Record, Recovered};
use bearing_placement::Tablet;
use bearing_proto::data::Pieces;
use bearing_proto::peer::ItemId;
use bearing_proto::tablets::Digest;
use bearing_seams::LoggedRecord;
use bearing_types::{Block, ChunkId, Epoch, LogIndex, Mono, Name, NodeId, Position, SessionId, TabletSerial};
use bearing_workload::{RequestId, WitnessEvent, WitnessKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub struct Ledger {
    /// In order.
    pub witness: Vec<WitnessEvent>,
    /// What all stable records together say.
    pub model: Model,
    /// What was broken, with the time.
    pub complaints: Vec<Complaint>,
    /// When sessions were over.
    pub ended: BTreeMap<SessionId, Mono>,
    /// Chunks that are sealed, at which length, and heirs of which frames of which chunk they are made, since
    /// this was last taken.
    pub chunk_news: Vec<ChunkNews>,
    /// When a record of a chunk was first on a disk, while it is not stable.
    decided: BTreeMap<Vec<u8>, u64>,
    /// Names that changed, since this was last taken.
    pub name_news: Vec<NameNews>,
    lines: BTreeMap<Block, Line>,
    /// What stores had of tablets as of an entry, as the first server said that told.
    digests: BTreeMap<(TabletSerial, LogIndex), (HostId, Digest)>,
    committed: BTreeSet<RequestId>,
    /// Tablets that were left to another member, and since when they are not served.
    yielded: BTreeMap<Block, u64>,
    /// How long tablets were not served that others took over so, in nanoseconds, since this was last taken.
    pub handed_over: Vec<(Block, u64)>,
    /// Queued drops of links on their way: whose they are.
    owed: BTreeMap<ItemId, RequestId>,
    /// Items that were executed.
    executed: BTreeSet<ItemId>,
}

/// What the stable record of a chunk says.
pub enum ChunkNews {
    /// It is sealed: its servers have kept what is below stable before this was logged, which was then.
    Sealed(ChunkId, Box<ChunkRecord>, u64),
    /// It is made of these frames of another one.
    Gathers(ChunkId, ChunkId, Pieces),
}

/// A name leads elsewhere now, or nowhere.
pub struct NameNews {
    /// Who wanted that.
    pub author: Option<SessionId>,
    /// The directory.
    pub directory: NodeId,
    /// The name.
    pub name: Name,
    /// What it leads to.
    pub node: Option<NodeId>,
}

/// Complaints beyond so many only repeat the first ones.
const COMPLAINTS_MAX: usize = 30;

impl Ledger {
    /// Something is wrong.
    pub fn blame(&mut self, world: &World, promise: Promise, what: String) {
        world.tell(|| format!("BROKEN: {promise}: {what}"));
        if self.complaints.len() < COMPLAINTS_MAX {
            let what = format!("at {} us: {what}", world.now().0 / 1000);
            self.complaints.push(Complaint { promise, what });
        }
    }

    /// The coordinator has this register of a tablet from now on.
    pub fn registered(&mut self, world: &World, tablet: &Tablet, hosts: Hosts) {
        world.tell(|| format!("registered: {tablet:?}"));
        let members = tablet.members.iter().filter_map(|server| hosts.host_of(*server)).collect();
        self.lines.entry(tablet.block).or_default().registered(
            tablet.epoch,
            hosts.host_of(tablet.owner),
            members,
        );
    }

    /// A host starts, and finds this on its own disk.
    pub fn recovered(&mut self, world: &World, host: HostId, recovered: &Recovered) {
        let mut wrong = Vec::new();
        for (block, line) in &self.lines {
            let serial = TabletSerial::of_first(*block).expect("tablets of the simulator are few");
            let Some(found) = recovered.tablets.get(&serial) else { continue };
            for (index, changes) in (found.last.0 + 1..).map(LogIndex).zip(&found.prepared) {
                let changes = changes
                    .iter()
                    .map(|(key, value)| LoggedChange { key: key.encode(), value: value.clone() });
                let entry = LogEntry { kind: EntryKind::Changes, changes: changes.collect() };
                if !is_unique(&entry) {
                    continue;
                }
                if let Some(voided) = line.found(host, index, &entry.encode()) {
                    wrong.push(format!(
                        "{host:?} finds {index} of {block}, which the record of {voided} voids"
                    ));
                }
            }
        }
        wrong.into_iter().for_each(|what| self.blame(world, Promise::LogOrder, what));
    }

    /// A host has another disk: what it had synced is not there any more.
    pub fn disk_replaced(&mut self, host: HostId) {
        self.lines.values_mut().for_each(|line| line.disk_replaced(host));
    }

    /// A server says something for the tablet at a position, to a client or to another server: nobody else
    /// may own it by then.
    pub fn speaks(&mut self, world: &World, host: HostId, at: Position) {
        let Some((tablet, line)) = self.lines.iter().find(|(block, _)| block.contains(at)) else { return };
        if let Some((epoch, owner)) = line.owner_but(host) {
            let what = format!("{host:?} speaks for {tablet}, which is {owner:?}'s under {epoch}");
            self.blame(world, Promise::OneOwner, what);
        }
    }

    /// A server says what its store has of a tablet as of an entry: others that say so have the same.
    pub fn compared(
        &mut self,
        world: &mut World,
        host: HostId,
        at: (TabletSerial, LogIndex),
        digest: Digest,
    ) {
        let (first, of_first) = *self.digests.entry(at).or_insert((host, digest));
        if first != host {
            world.counts.add("meta: stores of two members compared");
        }
        if of_first != digest {
            let (tablet, index) = at;
            let what = format!("{host:?} and {first:?} have different records of {tablet} as of {index}");
            self.blame(world, Promise::StoreHolds, what);
        }
    }

    /// A server says that another one counts for what is committed of a tablet, before it is a member.
    pub fn counts(&mut self, tablet: Block, epoch: Epoch, host: HostId) {
        self.lines.entry(tablet).or_default().counts(epoch, host);
    }

    /// A server says that it leaves a tablet, which was not served for so long, to another one.
    pub fn yielded(&mut self, world: &mut World, tablet: Block, refused: Duration) {
        world.counts.add("meta: tablets left to another member");
        self.yielded.insert(tablet, world.now().0 - refused.as_nanos() as u64);
    }

    /// A server says that it serves a tablet.
    pub fn serving(&mut self, world: &World, host: HostId, tablet: Block, epoch: Epoch) {
        let line = self.lines.entry(tablet).or_default();
        let newest = line.owners.last_key_value().map(|(newest, owner)| (*newest, *owner));
        line.owners.insert(epoch, host);
        if let Some(since) = self.yielded.remove(&tablet) {
            self.handed_over.push((tablet, world.now().0 - since));
        }
        // One that has other members, and does not know yet that it lost them, can say nothing to anybody.
        let late = |newest| newest > epoch && line.has_others(epoch);
        if let Some((newest, owner)) = newest.filter(|(newest, _)| *newest >= epoch && !late(*newest)) {
            let what =
                format!("{tablet} is served by {host:?} under {epoch}, but {owner:?} had it under {newest}");
            self.blame(world, Promise::OneOwner, what);
        }
    }

    /// A record is stable now.
    pub fn commit(&mut self, world: &mut World, host: HostId, record: &LoggedRecord) {
        let tablet = block_of(record);
        let entry = match LogEntry::decode(&record.bytes) {
            Ok(entry) => entry,
            Err(error) => {
                let what = format!("{host:?} logged a record of {tablet}: {error}");
                return self.blame(world, Promise::Readable, what);
            }
        };
        world.counts.add("log records");
        world.tell(|| {
            let LoggedRecord { epoch, index, commit, .. } = record;
            let keys: Vec<_> = entry.changes.iter().map(|change| Key::decode(&change.key)).collect();
            format!(
                "{host:?} synced {index} of {tablet} under {epoch} commit {commit}: {:?} {keys:?}",
                entry.kind
            )
        });
        // Of its server's disk, not of the tablet.
        if record.index == LogIndex::ZERO {
            return world.counts.add("log records of intents");
        }
        // What is in it is stable; how well it was copied the stores show at the end.
        if matches!(entry.kind, EntryKind::Part { .. } | EntryKind::Replacement) {
            return world.counts.add("log records of snapshots");
        }
        // An epoch record that is written again under a later epoch is an entry like others.
        let bytes = LogEntry { kind: EntryKind::Changes, changes: entry.changes.clone() }.encode();
        let line = self.lines.entry(tablet).or_default();
        let is_epoch_record = entry.kind == EntryKind::Epoch;
        let told = Told { is_epoch_record, is_unique: is_unique(&entry) };
        let synced = line.synced(host, &LoggedRecord { bytes, ..record.clone() }, told);
        let of_chunks =
            entry.changes.iter().filter(|change| matches!(Key::decode(&change.key), Some(Key::Chunk(_))));
        for value in of_chunks.filter_map(|change| change.value.clone()) {
            self.decided.entry(value).or_insert(world.now().0);
        }
        match synced {
            Synced::Stable => {}
            Synced::Open => return world.counts.add("log records that other members lack"),
            Synced::Known => return world.counts.add("log records written again"),
            Synced::Wrong(what) => return self.blame(world, Promise::LogOrder, format!("{tablet}: {what}")),
            Synced::Void => return world.counts.add("log records that came too late"),
            Synced::OfAnother => return world.counts.add("log records of learners"),
        }
        let mut changes = Vec::new();
        for change in &entry.changes {
            match change.decode() {
                Ok(change) => changes.push(change),
                Err(error) => {
                    let what = format!("{host:?} logged a change of {tablet}: {error}");
                    self.blame(world, Promise::Readable, what);
                }
            }
        }
        for (key, value) in &changes {
            if matches!(
                key,
                Key::Chunk(_) | Key::Extent(..) | Key::Joined(_) | Key::Closed(_) | Key::Fragment(_)
            ) {
                world.tell(|| format!("{host:?} logged {key:?}: {value:?}"));
            }
        }
        for (change, logged) in changes.iter().zip(&entry.changes) {
            if let (Key::Chunk(chunk), Some(Record::Chunk(record))) = change {
                let decided = logged.value.as_ref().and_then(|value| self.decided.remove(value));
                self.chunk_news.extend(news_of(*chunk, record, decided.unwrap_or(world.now().0)));
            }
        }
        match witness::read(&record.bytes) {
            Ok(said) => self.bear_witness(world, &said),
            Err(error) => {
                let what = format!(
                    "{host:?} logged {} of {tablet} otherwise than documented: {error}",
                    record.index
                );
                self.blame(world, Promise::Readable, what);
            }
        }
        let author = changes.iter().find_map(|(key, record)| match (key, record) {
            (Key::Reply(session, _), Some(_)) => Some(*session),
            _ => None,
        });
        for (promise, what) in self.model.apply(tablet, &entry.changes, changes) {
            self.blame(world, promise, what);
        }
        let turned = self.model.take_turned().into_iter();
        self.name_news.extend(turned.map(|(directory, name, node)| NameNews {
            author,
            directory,
            name,
            node,
        }));
    }

    fn bear_witness(&mut self, world: &World, said: &[Said]) {
        let at = world.true_mono();
        let queued =
            || said.iter().filter_map(|said| if let Said::Queued(item) = said { Some(*item) } else { None });
        let link_owed = queued().next().is_some();
        for said in said {
            let (request, kind) = match *said {
                Said::Answered(request, created) => {
                    self.owed.extend(queued().map(|item| (item, request)));
                    (request, WitnessKind::Committed { created, link_owed })
                }
                Said::Stepped(request, created) => {
                    (request, WitnessKind::Committed { created, link_owed: false })
                }
                Said::Done(item) => {
                    // Told again with each one that is done later.
                    let request = self.owed.get(&item).copied();
                    let Some(request) = request.filter(|_| self.executed.insert(item)) else { continue };
                    (request, WitnessKind::LinkDropped)
                }
                Said::Ended(session) => {
                    self.ended.entry(session).or_insert(at);
                    continue;
                }
                Said::Queued(_) => continue,
            };
            let is_commit = matches!(kind, WitnessKind::Committed { .. });
            self.witness.push(WitnessEvent { at, request, kind });
            if is_commit && !self.committed.insert(request) {
                let what = format!("{request:?} was committed a second time");
                self.blame(world, Promise::CommittedOnce, what);
            }
        }
    }

    /// Who serves a tablet, by its newest epoch.
    pub fn owner_of(&self, tablet: Block) -> Option<HostId> {
        self.lines.get(&tablet)?.owners.last_key_value().map(|(_, host)| *host)
    }

    /// Who holds a tablet's log by its register.
    pub fn members_of(&self, tablet: Block) -> Vec<HostId> {
        self.lines.get(&tablet).into_iter().flat_map(Line::members).collect()
    }

    /// What a tablet had as of an entry; none if that is not stable.
    pub fn records_as_of(&self, tablet: Block, index: LogIndex) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut records = BTreeMap::new();
        for entry in self.lines.get(&tablet)?.entries_up_to(index)? {
            let entry = LogEntry::decode(entry).ok()?;
            for change in entry.changes {
                match change.value {
                    Some(value) => drop(records.insert(change.key, value)),
                    None => drop(records.remove(&change.key)),
                }
            }
        }
        Some(records)
    }

    /// All tablets.
    pub fn tablets(&self) -> impl Iterator<Item = Block> + '_ {
        self.lines.keys().copied()
    }
}

/// Whether an entry says when it was made: nobody makes the same again. A node alone may have nothing new but
/// the time at which a client says that it read it.
fn is_unique(entry: &LogEntry) -> bool {
    let made = entry.changes.iter().filter(|change| change.value.is_some());
    let keys: Vec<Key> = made.filter_map(|change| Key::decode(&change.key)).collect();
    let timed = keys.iter().any(|key| matches!(key, Key::Node(_) | Key::Fragment(_)));
    timed && !keys.iter().all(|key| matches!(key, Key::Node(_) | Key::Reply(..)))
}

/// The tablet of a record: the simulator splits none.
fn block_of(record: &LoggedRecord) -> Block {
    record.serial.first_block().expect("records are of tablets that the cluster was made with")
}

fn news_of(chunk: ChunkId, record: &ChunkRecord, decided: u64) -> Option<ChunkNews> {
    match (&record.gather, record.sealed) {
        (Some(gather), _) if !gather.made => {
            Some(ChunkNews::Gathers(chunk, gather.from, gather.pieces.clone()))
        }
        (_, Some(_)) => Some(ChunkNews::Sealed(chunk, Box::new(record.clone()), decided)),
        (_, None) => None,
    }
}
