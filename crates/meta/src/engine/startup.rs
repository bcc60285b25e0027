//! From the coordinator's registers to tablets that serve: each is taken under epoch + 1 before it serves,
//! also by the server that had it before.

use crate::config::Config;
use crate::decide::rules::namespace::{REAPER, empty_fragment};
use crate::engine::disk_state::DiskState;
use crate::engine::machine::MetaServer;
use crate::engine::registers::{AskKind, FIRST_ASK, Open, StartLoad};
use crate::event::{Command, LoadResult, LoadTicket, Note};
use crate::mutant::Mutant;
use crate::record::{
    DirectoryContent, Key, NodeContent, NodeRecord, RESIDENT_TAGS, Reach, Record, Recovered, decode_pairs,
};
use crate::tablet::{Answered, Tablet};
use crate::words::LockedBy;
use bearing_lookup::Located;
use bearing_placement::{Assignment, Seat, Tablet as Assigned};
use bearing_proto::client::{Body, FilesystemRecord, Handle, ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    AskCall, FILESYSTEM_KEY, Register, RegisterChanges, RegisterError, SERVER_PREFIX, TABLET_PREFIX,
    TellBody, Told, block_of_key, decode_register, encode_register, server_key, tablet_key,
};
use bearing_proto::disk::{DiskRecord, disk_key};
use bearing_seams::KeyRange;
use bearing_types::{
    Acls, Attributes, Block, Epoch, FileType, Gid, LogIndex, MapVersion, Mode, Now, Position, ServerId, Uid,
    Version, Wall,
};
use std::collections::{BTreeMap, BTreeSet};

/// The mode of a filesystem's root.
const ROOT_MODE: u32 = 0o755;

impl MetaServer {
    pub(crate) fn start(&mut self, now: Now, recovered: Recovered, out: &mut Vec<Command>) {
        self.number_from(now);
        self.disk = DiskState::new(&recovered);
        self.startup.recovered =
            recovered.tablets.iter().map(|(serial, found)| (*serial, found.last)).collect();
        self.poll_map(now, out);
    }

    /// Questions get other numbers than those of this server's earlier lives, so that an answer that was on
    /// its way for long is not taken for another's.
    fn number_from(&mut self, now: Now) {
        let since = now.wall.0.unsigned_abs();
        // Jobs' numbers are shifted by those of their questions.
        self.next_job = (since >> 10) & ((1 << 47) - 1);
        self.next_data = since >> 1;
        self.startup.next_ask = FIRST_ASK | since >> 2;
    }

    /// Asks for the registers if it is time, and again what was not answered.
    pub(crate) fn poll_map(&mut self, now: Now, out: &mut Vec<Command>) {
        let (resend, poll) = (self.config.resend_interval, self.config.map_interval);
        let startup = &mut self.startup;
        if self.config.planted(Mutant::LateAnswerForgotten) {
            startup.forget_late(now, &self.config);
        }
        startup.ask_again(now, &self.config, out);
        let listing = startup.asks.values().any(|open| matches!(open.kind, AskKind::Changes { .. }));
        let wait = if startup.wanted { resend / 4 } else { poll };
        let due = startup.polled.is_none_or(|polled| now.mono.since(polled) >= wait);
        if !listing && due {
            startup.polled = Some(now.mono);
            let anew = std::mem::take(&mut startup.wanted);
            let call = AskCall::Changes { prefix: String::new(), since: startup.version };
            startup.ask(now, AskKind::Changes { anew }, call, out);
        }
    }

    pub(crate) fn on_told(&mut self, now: Now, told: Told, out: &mut Vec<Command>) {
        let Some(Open { kind, .. }) = self.startup.asks.remove(&told.id) else { return };
        match (kind, told.result) {
            (AskKind::Changes { anew }, Ok(TellBody::Registers(changes))) => {
                self.on_changes(now, changes, anew, out)
            }
            (AskKind::Take(block, epoch), Ok(TellBody::Swapped(version))) if !self.is_past(block, epoch) => {
                self.taken(now, block, epoch, version, out)
            }
            // An earlier copy of the same question took effect: this life of the server has put it there, for
            // nobody else and no earlier life asks for that epoch after the registers were listed.
            (AskKind::Take(block, epoch), Ok(TellBody::Conflict { present, .. }))
                if self.is_own(&present, block, epoch) && !self.is_past(block, epoch) =>
            {
                self.taken(now, block, epoch, present[0].version, out)
            }
            (AskKind::Take(block, _), _) => {
                // Somebody else was quicker: the registers tell.
                self.startup.pending.remove(&block.start());
                self.startup.want_map();
            }
            // The listing judges: it may be another's disk that is registered.
            (AskKind::Disk, _) => self.startup.want_map(),
            (AskKind::Changes { .. }, Ok(_)) => {}
            (AskKind::Changes { .. }, Err(_)) => self.startup.want_map(),
        }
    }

    fn on_changes(&mut self, now: Now, changes: RegisterChanges, anew: bool, out: &mut Vec<Command>) {
        let RegisterChanges { version, whole, present, absent } = changes;
        let news = whole || !present.is_empty() || !absent.is_empty();
        if self.startup.version > version || !(news || anew) {
            return;
        }
        if whole {
            self.startup.registers.clear();
            self.startup.disk = None;
            self.servers.clear();
        }
        absent.iter().for_each(|key| self.forget_register(key));
        for register in present {
            let key = register.key.clone();
            if let Err(error) = self.learn_register(register) {
                return self.refuse_register(&key, error, out);
            }
        }
        let tablets = self.startup.registers.values().map(|(_, tablet)| tablet.clone());
        let Ok(assignment) = Assignment::new(tablets) else {
            // Everything is asked for.
            self.startup.version = 0;
            return self.startup.want_map();
        };
        self.startup.version = version;
        self.map.replace(MapVersion(version), &assignment);
        self.assignment = Some(assignment.clone());
        self.watch_data_servers(now);
        out.push(Command::Map(MapVersion(version), assignment, self.servers()));
        if self.check_disk(now, self.startup.disk, out) {
            self.match_registers(now, out);
        }
    }

    fn learn_register(&mut self, register: Register) -> Result<(), RegisterError> {
        let Register { key, version, value } = register;
        if key.starts_with(TABLET_PREFIX) {
            self.startup.put_tablet(version, decode_register(&value)?);
        } else if key.starts_with(SERVER_PREFIX) {
            let entry: ServerEntry = decode_register(&value)?;
            self.servers.insert(entry.server, entry);
        } else if key == disk_key(self.id) {
            self.startup.disk = Some(decode_register::<DiskRecord>(&value)?.disk);
        } else if key == FILESYSTEM_KEY {
            self.filesystem = Some(decode_register(&value)?);
        }
        Ok(())
    }

    fn forget_register(&mut self, key: &str) {
        if let Some(block) = block_of_key(key) {
            self.startup.remove_tablet(block);
        } else if key == disk_key(self.id) {
            self.startup.disk = None;
        } else {
            self.servers.retain(|server, _| server_key(*server) != key);
        }
    }

    /// Where everybody is.
    pub(crate) fn servers(&self) -> Vec<ServerEntry> {
        self.servers.values().cloned().collect()
    }

    // A map with a part left out is a wrong map, and a tablet may be somebody else's by what cannot be read:
    // nothing is served any more.
    fn refuse_register(&mut self, key: &str, error: RegisterError, out: &mut Vec<Command>) {
        let what = format!("the coordinator's register {key} {error}");
        out.push(Command::Note(Note::Unreadable(what)));
        self.stop_serving();
    }

    /// Takes what the registers say is ours, and leaves what they say is not.
    fn match_registers(&mut self, now: Now, out: &mut Vec<Command>) {
        let registers: Vec<(u64, Assigned)> = self.startup.registers.values().cloned().collect();
        for (version, assigned) in registers {
            let start = assigned.block.start();
            let serving = self.tablets.get(&start).map(|tablet| tablet.epoch);
            let mine = assigned.owner == self.id;
            match serving {
                Some(epoch) if assigned.epoch > epoch => {
                    self.leave(start, !mine, out);
                    out.push(Command::Note(Note::Step("tablet left")));
                }
                Some(_) => continue,
                None => {}
            }
            let busy = self.startup.pending.contains(&start) || self.arriving.contains_key(&start);
            if mine && !busy {
                if !self.disk_has(&assigned, out) {
                    return;
                }
                self.take_tablet(now, &assigned, version, out);
            }
        }
    }

    /// Makes this server the owner under the next epoch, if nobody else was quicker.
    pub(crate) fn take_tablet(
        &mut self,
        now: Now,
        assigned: &Assigned,
        version: u64,
        out: &mut Vec<Command>,
    ) {
        // What arrives while it is not known whose disk this is waits.
        if !self.disk.is_ours() {
            return;
        }
        self.startup.pending.insert(assigned.block.start());
        self.intend(now, assigned.block, assigned.epoch.next(), version, out);
    }

    /// Swaps a tablet's register, which has this version: to take it under an epoch is intended, stably.
    pub(crate) fn ask_to_take(
        &mut self,
        now: Now,
        block: Block,
        epoch: Epoch,
        version: u64,
        out: &mut Vec<Command>,
    ) {
        let value = Some(encode_register(&self.own(block, epoch)));
        let call = AskCall::swap(tablet_key(block), Some(version), value);
        self.startup.ask(now, AskKind::Take(block, epoch), call, out);
    }

    /// Writes the register of the disk, when that is due and not under way.
    pub(crate) fn register_disk(&mut self, now: Now, out: &mut Vec<Command>) {
        let Some(disk) = self.disk.registering() else { return };
        if self.startup.asks.values().any(|open| matches!(open.kind, AskKind::Disk)) {
            return;
        }
        let value = Some(encode_register(&DiskRecord { disk }));
        let call = AskCall::swap(disk_key(self.id), None, value);
        self.startup.ask(now, AskKind::Disk, call, out);
    }

    /// The last record of a tablet that is in this server's store, or on its way there.
    pub(crate) fn last_here(&self, block: Block) -> LogIndex {
        match self.arriving.get(&block.start()) {
            Some(arriving) => LogIndex(arriving.next_index().0 - 1),
            None => {
                let serial = self.startup.serial_of(block);
                self.startup.recovered.get(&serial).copied().unwrap_or(LogIndex::ZERO)
            }
        }
    }

    /// Whether a tablet is known to have a later epoch already: an answer may come very late.
    fn is_past(&self, block: Block, epoch: Epoch) -> bool {
        let known = self.startup.registers.get(&block.start());
        known.is_some_and(|(_, assigned)| assigned.epoch > epoch)
    }

    /// What the register of a tablet says when it is ours.
    fn own(&self, block: Block, epoch: Epoch) -> Assigned {
        let serial = self.startup.registers.get(&block.start()).map(|(_, assigned)| assigned.serial);
        let serial = serial.expect("a tablet that is taken has a register");
        Assigned { block, serial, epoch, owner: self.id, members: vec![self.id], learner: None }
    }

    /// Whether that is what stands in the way of taking it.
    fn is_own(&self, present: &[Register], block: Block, epoch: Epoch) -> bool {
        present.first().is_some_and(|register| decode_register(&register.value) == Ok(self.own(block, epoch)))
    }

    /// The register is ours: load what has to be in memory.
    fn taken(&mut self, _now: Now, block: Block, epoch: Epoch, version: u64, out: &mut Vec<Command>) {
        let start = block.start();
        self.startup.registers.insert(start, (version, self.own(block, epoch)));
        self.map.learn(Located { block, epoch, owner: self.id });
        self.startup.want_map();
        let (serial, next_index) = (self.startup.serial_of(block), self.last_here(block).next());
        self.arriving.remove(&start);
        let ticket = LoadTicket(self.next_load);
        self.next_load += 1;
        out.push(Command::Note(Note::Step("epoch taken")));
        out.push(Command::CreateTablet(serial));
        let ranges = RESIDENT_TAGS
            .iter()
            .map(|tag| (KeyRange { start: vec![*tag], end: Some(vec![*tag + 1]) }, usize::MAX));
        let root = self.root_here(block).map(|(_, seat)| Key::Node(seat.node).encode());
        out.push(Command::Load {
            ticket,
            tablet: serial,
            keys: root.into_iter().collect(),
            ranges: ranges.collect(),
        });
        self.startup.loads.insert(ticket, StartLoad { block, serial, epoch, next_index });
    }

    fn root_here(&self, block: Block) -> Option<(FilesystemRecord, Seat)> {
        let filesystem = self.filesystem?;
        let seat = Seat::root(filesystem.root, filesystem.scheme.seating());
        block.contains(seat.home).then_some((filesystem, seat))
    }

    /// A tablet's records cannot be read: it is not served, and tried again.
    pub(crate) fn forget_startup_load(&mut self, ticket: LoadTicket) {
        if let Some(load) = self.startup.loads.remove(&ticket) {
            self.startup.pending.remove(&load.block.start());
        }
    }

    pub(crate) fn on_startup_load(
        &mut self,
        now: Now,
        ticket: LoadTicket,
        loaded: LoadResult,
        out: &mut Vec<Command>,
    ) {
        let Some(load) = self.startup.loads.remove(&ticket) else { return };
        let start = load.block.start();
        self.startup.pending.remove(&start);
        let StartLoad { block, serial, epoch, next_index } = load;
        let mut tablet = Tablet::new(now, block, serial, epoch, next_index, &self.config);
        for pairs in loaded.ranges {
            match decode_pairs(pairs) {
                Ok(pairs) => pairs
                    .into_iter()
                    .for_each(|(key, record)| remember(&mut tablet, now, key, record, &self.config)),
                // What decides over duplicates and locks is damaged: serving without it could lose or repeat
                // operations.
                Err(what) => {
                    return out.push(Command::Note(Note::Damaged(format!("tablet {}: {what}", load.block))));
                }
            }
        }
        link_waiters(&mut tablet);
        let sessions: Vec<_> = tablet.horizon.sessions().collect();
        let until = now.mono.after(self.config.lease_ttl_max);
        sessions.iter().for_each(|(session, _)| tablet.opens.inherit(*session, until));
        let recalls = tablet.leases.inherit(sessions, now.mono, &self.config);
        let reaping: Vec<_> = std::mem::take(&mut tablet.reaping).into_iter().collect();
        self.tablets.insert(start, tablet);
        self.starts.insert(serial, start);
        if let (Some((_, seat)), Some(None)) = (self.root_here(load.block), loaded.values.first()) {
            self.make_root(now, start, seat, out);
        }
        out.push(Command::Note(Note::Serving(load.block, load.epoch)));
        self.send_recalls(start, recalls, out);
        for node in reaping {
            self.begin_reaping(now, start, node);
        }
    }

    /// The first owner of a new filesystem's root makes it.
    fn make_root(&mut self, now: Now, start: Position, seat: Seat, out: &mut Vec<Command>) {
        let number = self.next_append_number();
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let node = root_node(seat, tablet.block, now.wall);
        let mut batch = BTreeMap::from([(Key::Node(seat.node), Some(Record::Node(Box::new(node))))]);
        if tablet.block.covers(seat.name_block) {
            let fragment = empty_fragment(seat.name_block, now.wall, Version(0), None);
            batch.insert(Key::Fragment(seat.node), Some(Record::Fragment(Box::new(fragment))));
        }
        tablet.write(batch, number, out);
    }

    /// Stops serving a tablet. What clients and peers had under way here is theirs to repeat elsewhere.
    pub(crate) fn leave(&mut self, start: Position, forget: bool, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.remove(&start) else { return };
        for id in self.jobs.of_tablet(start) {
            self.jobs.remove(id);
        }
        self.transactions.retain(|transaction, _| transaction.coordinator != start);
        out.push(Command::Note(Note::Left(tablet.block)));
        self.starts.remove(&tablet.serial);
        self.startup.recovered.insert(tablet.serial, tablet.log.last());
        if forget {
            self.remove_stored(tablet.serial, out);
        }
    }

    fn watch_data_servers(&mut self, now: Now) {
        let data: BTreeSet<ServerId> = self
            .servers
            .values()
            .filter(|entry| entry.kind == ServerKind::Data)
            .map(|entry| entry.server)
            .collect();
        self.health.servers_are(now.mono, data);
    }
}

fn root_node(seat: Seat, block: Block, born: Wall) -> NodeRecord {
    let root = Handle { node: seat.node, home: seat.home };
    let attributes = Attributes {
        file_type: FileType::Directory,
        mode: Mode::new(ROOT_MODE),
        uid: Uid(0),
        gid: Gid(0),
        links: 2,
        size: 0,
        space: 0,
        device: 0,
        accessed: born,
        modified: born,
        changed: born,
        born,
        version: Version(1),
    };
    let fragments = if block.covers(seat.name_block) { vec![block] } else { Vec::new() };
    let content = DirectoryContent {
        seat,
        parent: root,
        name: Vec::new(),
        fragments,
        modified_set: Wall(i64::MIN),
        access_version: Version(0),
    };
    NodeRecord {
        home: seat.home,
        attributes,
        content: NodeContent::Directory(Box::new(content)),
        xattrs: false,
        acls: Acls::default(),
        quota: None,
    }
}

/// Puts a record that decides over duplicates, locks or deliveries where it belongs.
fn remember(tablet: &mut Tablet, now: Now, key: Key, record: Record, config: &Config) {
    match (key, record) {
        (Key::Session(session), _) => {
            tablet.sessions.register(session, now.mono);
        }
        (Key::Ended(session), _) => {
            tablet.sessions.end(session);
        }
        (Key::Holder(session), record) => {
            let reach = match record {
                Record::Holder(reach) if !config.planted(Mutant::WaitForEverybody) => reach,
                _ => Reach::of_anything(config),
            };
            tablet.horizon.inherit(session, reach, now.mono);
            // So that it is asked after when it stays silent.
            tablet.sessions.expect(session, now.mono);
        }
        (Key::Orphan(node, REAPER), _) => {
            tablet.reaping.insert(node);
        }
        (Key::Orphan(node, session), _) => {
            tablet.opens.orphaned(session, node, now.mono);
            tablet.sessions.expect(session, now.mono);
        }
        (Key::Reply(session, sequence), Record::Reply(reply)) => {
            // Perhaps this reply is on its way yet, and the file is opened once it arrives.
            if let Body::Entry(view, Some(_)) = &reply.body {
                let lease_end = now.mono.after(config.lease_ttl_max);
                tablet.opens.give(session, view.node.node, sequence, lease_end, config);
            }
            let answered =
                Answered { result: Ok(reply.body), index: LogIndex::ZERO, awaited: BTreeSet::new() };
            tablet.sessions.expect(session, now.mono);
            tablet.sessions.keep_answer(session, sequence, answered);
        }
        (Key::Prepare(transaction, part), Record::Prepare(record)) => {
            tablet.keys.lock_encoded(&record.locks, LockedBy::Transaction(transaction));
            // Asked at once: the coordinator may have decided long ago.
            tablet.participant.prepare((transaction, part), *record, LogIndex::ZERO, None);
        }
        (Key::Decision(transaction), Record::Decision(participants)) => {
            let waiting = participants.into_iter().collect();
            tablet.coordinated.decide(transaction, waiting, LogIndex::ZERO, None);
        }
        (Key::Outbox(item), Record::Outbox(record)) => {
            tablet.keys.lock_encoded(&record.locks, LockedBy::Item(item));
            tablet.queue.restore(item, *record);
        }
        (Key::Inbox(sender), Record::Inbox(record)) => {
            tablet.queue.restore_executed(sender, *record);
        }
        (Key::Locks(node), Record::Locks(locks)) => {
            for held in locks.iter() {
                tablet.sessions.expect(held.session, now.mono);
            }
            tablet.locks.note(node, Some(&locks));
        }
        (Key::Usage(directory), Record::Usage(used)) => tablet.quotas.note(directory, Some(used)),
        (Key::Delegation(directory), Record::Delegation(delegated)) => {
            let holder = delegated.holder;
            tablet.delegations.delegate(directory, *delegated);
            tablet.leases.delegate(directory, holder.session, now.mono, config);
            tablet.sessions.expect(holder.session, now.mono);
        }
        _ => {}
    }
}

/// A reply waits for its items again.
fn link_waiters(tablet: &mut Tablet) {
    for (item, (session, sequence)) in tablet.queue.awaited() {
        tablet.sessions.await_item(session, sequence, item);
    }
}

/// How often upkeep looks.
pub(crate) fn upkeep_interval(config: &Config) -> std::time::Duration {
    config.resend_interval / 4
}
