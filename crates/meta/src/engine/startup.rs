//! From the coordinator's registers to tablets that serve: each is taken under epoch + 1 before it serves,
//! also by the server that had it before.

use crate::config::Config;
use crate::decide::rules::namespace::{REAPER, empty_fragment};
use crate::engine::adopt::Adoption;
use crate::engine::disk_state::DiskState;
use crate::engine::machine::MetaServer;
use crate::engine::registers::{AskKind, FIRST_ASK, Open};
use crate::event::{Command, LoadResult, LoadTicket, Note};
use crate::mutant::Mutant;
use crate::record::{
    DirectoryContent, Key, NodeContent, NodeRecord, Reach, Record, Recovered, RecoveredTablet, decode_pairs,
};
use crate::replication::{Copy, Log, Members, Pairs};
use crate::tablet::{Answered, Tablet};
use crate::words::LockedBy;
use bearing_placement::{Assignment, Seat, Tablet as Assigned};
use bearing_proto::client::{Body, FilesystemRecord, Handle, ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    AskCall, DRAIN_PREFIX, DrainRecord, FILESYSTEM_KEY, Register, RegisterChanges, RegisterError,
    SERVER_PREFIX, TABLET_PREFIX, TellBody, Told, block_of_key, decode_register, drain_key, encode_register,
    server_key,
};
use bearing_proto::disk::{DiskRecord, disk_key};
use bearing_types::{
    Acls, Attributes, Block, Epoch, FileType, Gid, LogIndex, MapVersion, Mode, Now, Position, TabletSerial,
    Uid, Version, Wall,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Registers that are older than those known here are listed so often.
const OLDER_LISTED_EVERY: Duration = Duration::from_millis(500);
/// Whether a coordinator that was slow is still so is looked at so often.
const SLOW_LISTED_EVERY: Duration = Duration::from_secs(2);
/// The mode of a filesystem's root.
const ROOT_MODE: u32 = 0o755;

impl MetaServer {
    pub(crate) fn start(&mut self, now: Now, recovered: Recovered, out: &mut Vec<Command>) {
        self.number_from(now);
        self.disk = DiskState::new(&recovered);
        self.pairs = Pairs::new(recovered.fresh.0 as u64, now.mono);
        // One with a gap is as good as none.
        let is_whole = |found: &RecoveredTablet| found.gap.is_none() && !found.damaged;
        let whole = recovered.tablets.into_iter().filter(|(_, found)| is_whole(found));
        self.copies = whole.map(|(serial, found)| (serial, Copy::recovered(serial, found))).collect();
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

    /// Asks for the registers if they are wanted, for their next change, and again what was not answered.
    pub(crate) fn poll_map(&mut self, now: Now, out: &mut Vec<Command>) {
        let startup = &mut self.startup;
        if self.config.planted(Mutant::LateAnswerForgotten) {
            let forgotten = startup.forget_late(now, &self.config);
            self.claims.retain(|_, claim| !claim.is_asked_in(&forgotten));
        }
        // What was claimed may have been won by a listing: then no answer is waited for.
        let claims = &self.claims;
        startup.asks.retain(|id, open| {
            !matches!(open.kind, AskKind::Claims) || claims.values().any(|claim| claim.is_asked_in(&[*id]))
        });
        startup.ask_again(now, &self.config, out);
        self.list_registers(now, out);
        self.await_news(now, out);
    }

    /// Lists what changed at once, if the map turned out to be old; and again and again until the
    /// coordinator's registers are those that are known here again, and it answers promptly.
    fn list_registers(&mut self, now: Now, out: &mut Vec<Command>) {
        let startup = &mut self.startup;
        let listing = startup.asks.values().any(|open| matches!(open.kind, AskKind::Changes));
        let slow = !startup.is_prompt(now.mono);
        let pause = if startup.older {
            OLDER_LISTED_EVERY
        } else if startup.wanted {
            self.config.resend_interval / 4
        } else {
            SLOW_LISTED_EVERY
        };
        let due = startup.listed.is_none_or(|listed| now.mono.since(listed) >= pause);
        if (startup.wanted || startup.older || slow) && !listing && due {
            startup.listed = Some(now.mono);
            startup.wanted = false;
            let call = AskCall::Changes { prefix: String::new(), since: startup.version };
            startup.ask(now, AskKind::Changes, call, out);
        }
    }

    /// The coordinator is always asked for the next change.
    fn await_news(&mut self, now: Now, out: &mut Vec<Command>) {
        let startup = &mut self.startup;
        let waits = startup.asks.values().any(|open| matches!(open.kind, AskKind::News));
        if startup.version > 0 && !startup.older && !waits {
            let call = AskCall::Await { prefix: String::new(), since: startup.version };
            startup.ask(now, AskKind::News, call, out);
        }
    }

    pub(crate) fn on_told(&mut self, now: Now, told: Told, out: &mut Vec<Command>) {
        if told.result == Ok(TellBody::Slow) {
            return;
        }
        let Some(open) = self.startup.asks.remove(&told.id) else { return };
        self.startup.answered(now.mono, &open);
        let Open { kind, call, .. } = open;
        match (kind, told.result) {
            (AskKind::News, Ok(TellBody::Registers(changes))) => {
                self.on_listing(now, &call, changes, false, out);
                self.await_news(now, out);
            }
            (AskKind::Changes, Ok(TellBody::Registers(changes))) => {
                self.on_listing(now, &call, changes, true, out)
            }
            (AskKind::Claims, Ok(TellBody::Swapped(version))) => self.on_swapped(now, told.id, version, out),
            (AskKind::Claims, Ok(TellBody::Conflict { present, .. })) => {
                self.on_conflict(now, told.id, present, out)
            }
            // Asked again, with whatever is known by then.
            (AskKind::Claims, _) => {
                self.claims.retain(|_, claim| !claim.is_asked_in(&[told.id]));
                self.startup.want_map();
            }
            // The listing judges: it may be another's disk that is registered.
            (AskKind::Disk, _) => self.startup.want_map(),
            (AskKind::Changes | AskKind::News, Ok(_)) => {}
            (AskKind::Changes | AskKind::News, Err(_)) => self.startup.want_map(),
        }
    }

    /// What changed since the version that the question names; later ones may have been told since.
    fn on_listing(
        &mut self,
        now: Now,
        call: &AskCall,
        changes: RegisterChanges,
        anew: bool,
        out: &mut Vec<Command>,
    ) {
        let (AskCall::Changes { since, .. } | AskCall::Await { since, .. }) = call else { return };
        if changes.version < *since {
            return self.on_older_registers(out);
        }
        self.startup.older = false;
        if changes.version < self.startup.version {
            self.startup.wanted |= anew;
        } else {
            self.on_changes(now, changes, anew, out);
        }
    }

    fn on_changes(&mut self, now: Now, changes: RegisterChanges, anew: bool, out: &mut Vec<Command>) {
        let RegisterChanges { version, whole, present, absent } = changes;
        let news = whole || !present.is_empty() || !absent.is_empty();
        if !(news || anew) {
            return;
        }
        let (owners, draining) = (self.startup.owners(), self.startup.draining.clone());
        if whole {
            self.startup.registers.clear();
            self.startup.disk = None;
            self.startup.draining.clear();
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
        self.early.on_news();
        if self.startup.owners() != owners {
            self.owners_changed = Some(now.mono);
        }
        self.assignment = Some(assignment.clone());
        self.watch_data_servers(now);
        self.weigh(now);
        let others = self.others();
        self.ring.servers_are(&others, &self.config);
        if self.startup.draining != draining {
            self.tablets.values_mut().for_each(|tablet| tablet.maintenance.count_anew());
        }
        out.push(Command::Map(MapVersion(version), assignment, self.servers()));
        if self.check_disk(now, self.startup.disk, out) && self.are_registers_new_enough(out) {
            self.match_registers(now, out);
        }
    }

    /// The coordinator's versions never go back, unless its registers were put back from an older copy. What
    /// is served goes on under the epochs that are newer; nothing is claimed.
    pub(crate) fn on_older_registers(&mut self, out: &mut Vec<Command>) {
        if !std::mem::replace(&mut self.startup.older, true) {
            out.push(Command::Note(Note::OlderRegisters));
        }
    }

    /// Whether no register has an older epoch than it had by what was found on this disk. If one has, epochs
    /// would be given away twice.
    fn are_registers_new_enough(&mut self, out: &mut Vec<Command>) -> bool {
        let older = self.startup.registers.values().find_map(|(_, assigned)| {
            let had = self.disk.registered.get(&assigned.serial)?;
            (assigned.epoch < *had).then_some((assigned.block, assigned.epoch, *had))
        });
        let Some((block, epoch, had)) = older else { return true };
        out.push(Command::Note(Note::Unreadable(format!(
            "the coordinator's registers are older than what this server has of tablet {block}: {epoch} in the register, {had} here. Put the newest \
             copy of the coordinator's registers.redb back"
        ))));
        self.stop_serving();
        false
    }

    fn learn_register(&mut self, register: Register) -> Result<(), RegisterError> {
        let Register { key, version, value } = register;
        if key.starts_with(TABLET_PREFIX) {
            self.startup.put_tablet(version, decode_register(&value)?);
        } else if key.starts_with(SERVER_PREFIX) {
            let entry: ServerEntry = decode_register(&value)?;
            self.servers.insert(entry.server, entry);
        } else if key.starts_with(DRAIN_PREFIX) {
            self.startup.draining.insert(decode_register::<DrainRecord>(&value)?.server);
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
            self.startup.draining.retain(|server| drain_key(*server) != key);
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

    /// Claims what the registers say is ours, and leaves what they say is not.
    fn match_registers(&mut self, now: Now, out: &mut Vec<Command>) {
        let registers: Vec<(u64, Assigned)> = self.startup.registers.values().cloned().collect();
        for (version, assigned) in registers {
            let owned = self.owned(assigned.serial).map(|log| log.epoch());
            let mine = assigned.owner == self.id;
            let holds = assigned.members.contains(&self.id);
            if let Some(copy) = self.copies.get_mut(&assigned.serial) {
                if copy.is_news(assigned.epoch) && !self.config.planted(Mutant::NoGraceAfterRestart) {
                    self.pairs.is_named(now.mono, assigned.owner);
                }
                copy.on_registered(assigned.epoch, holds);
            }
            // Its answer is on its way yet, or lost.
            if self.claims.get(&assigned.serial).is_some_and(|claim| claim.is_won_by(&assigned)) {
                self.win(now, assigned.serial, version, out);
                continue;
            }
            let serving = self.tablets.get(&assigned.block.start());
            let serves_on = holds && serving.is_some_and(|tablet| self.serves_on(tablet));
            match owned {
                Some(epoch) if assigned.epoch > epoch && !serves_on => {
                    self.pairs.is_named(now.mono, assigned.owner);
                    self.leave(assigned.serial, !holds, out);
                    out.push(Command::Note(Note::Step("tablet left")));
                }
                Some(_) => continue,
                None => {}
            }
            self.drop_damaged(&assigned, out);
            if mine && !self.claims.contains_key(&assigned.serial) {
                if self.is_yielded_at_once(&assigned) {
                    continue;
                }
                if !self.disk_has(&assigned, out) {
                    return;
                }
                if self.config.planted(Mutant::EpochResumed) && assigned.epoch > Epoch(1) {
                    self.begin_epoch(now, &assigned, out);
                    continue;
                }
                self.claim_own(&assigned, version, out);
            }
        }
        self.drop_copies(out);
    }

    /// Removes what is held of tablets that are others' by now.
    fn drop_copies(&mut self, out: &mut Vec<Command>) {
        let me = self.id;
        let others = |assigned: &Assigned| !assigned.members.contains(&me) && assigned.learner != Some(me);
        let registers = self.startup.registers.values().map(|(_, assigned)| assigned);
        let dropped: Vec<TabletSerial> = registers
            .filter(|assigned| others(assigned) && !self.claims.contains_key(&assigned.serial))
            .filter(|assigned| {
                let older = |copy: &Copy| copy.log.epoch() < assigned.epoch;
                let has_gap = self.disk.gaps.contains_key(&assigned.serial);
                self.copies.get(&assigned.serial).map_or(has_gap, older)
            })
            .map(|assigned| assigned.serial)
            .collect();
        for serial in dropped {
            self.remove_stored(serial, out);
        }
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

    /// What the store has of a tablet, or is being given, ends with this record.
    pub(crate) fn stored(&mut self, serial: TabletSerial) -> LogIndex {
        let up_to = |copy: &Copy| if copy.is_arriving() { LogIndex::ZERO } else { copy.log.stored() };
        let held = self.copies.get(&serial).map(up_to);
        held.or_else(|| self.owned(serial).map(|log| log.stored())).unwrap_or(LogIndex::ZERO)
    }

    pub(crate) fn root_here(&self, block: Block) -> Option<(FilesystemRecord, Seat)> {
        let filesystem = self.filesystem?;
        let seat = Seat::root(filesystem.root, filesystem.scheme.seating());
        block.contains(seat.home).then_some((filesystem, seat))
    }

    /// Which tablet's records are loaded.
    pub(crate) fn start_of_load(&self, ticket: LoadTicket) -> Option<Position> {
        let loading = self.adoptions.iter().find(|(_, adoption)| adoption.loading == Some(ticket));
        loading.map(|(start, _)| *start)
    }

    /// A tablet's records cannot be read: it is not served, and tried again.
    pub(crate) fn forget_startup_load(&mut self, start: Position) {
        if let Some(adoption) = self.adoptions.remove(&start) {
            self.give_back(adoption.log);
        }
    }

    pub(crate) fn on_startup_load(
        &mut self,
        now: Now,
        start: Position,
        loaded: LoadResult,
        out: &mut Vec<Command>,
    ) {
        if self.adoptions.get(&start).is_some_and(|adoption| adoption.yielded) {
            return;
        }
        let Some(Adoption { block, log, .. }) = self.adoptions.remove(&start) else { return };
        let mut tablet = Tablet::new(now, block, log, &self.config);
        for pairs in loaded.ranges {
            match decode_pairs(pairs) {
                Ok(pairs) => pairs
                    .into_iter()
                    .for_each(|(key, record)| remember(&mut tablet, now, key, record, &self.config)),
                // What decides over duplicates and locks is damaged: serving without it could lose or repeat
                // operations.
                Err(what) => {
                    self.give_back(tablet.log);
                    return out.push(Command::Note(Note::Damaged(format!("tablet {block}: {what}"))));
                }
            }
        }
        link_waiters(&mut tablet);
        let mut sessions: Vec<_> = tablet.horizon.sessions().collect();
        if self.config.planted(Mutant::HorizonForgotten) {
            sessions.clear();
        }
        let until = now.mono.after(self.config.lease_ttl_max);
        sessions.iter().for_each(|(session, _)| tablet.opens.inherit(*session, until));
        let recalls = tablet.leases.inherit(sessions, now.mono, &self.config);
        let reaping: Vec<_> = std::mem::take(&mut tablet.reaping).into_iter().collect();
        let epoch = tablet.epoch();
        if let Some(after_us) = self.takeovers.served(tablet.serial, now) {
            self.counters.takeovers += 1;
            self.counters.takeover_us += after_us;
        }
        self.tablets.insert(start, tablet);
        if let (Some((_, seat)), Some(None)) = (self.root_here(block), loaded.values.first()) {
            self.make_root(now, start, seat, out);
        }
        out.push(Command::Note(Note::Serving(block, epoch)));
        self.early.on_news();
        self.draw_ids(now);
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
    pub(crate) fn leave(&mut self, serial: TabletSerial, forget: bool, out: &mut Vec<Command>) {
        let Some(start) = self.starts.get(&serial).copied() else { return };
        let log = match (self.tablets.remove(&start), self.adoptions.remove(&start)) {
            (Some(tablet), _) => {
                for id in self.jobs.of_tablet(start) {
                    self.jobs.remove(id);
                }
                self.transactions.retain(|transaction, _| transaction.coordinator != start);
                out.push(Command::Note(Note::Left(tablet.block)));
                tablet.log
            }
            (None, Some(adoption)) => adoption.log,
            (None, None) => return,
        };
        self.restore.stays(serial);
        self.takeovers.left(serial);
        self.compares.not_owned(serial);
        self.give_back(log);
        if forget {
            self.remove_stored(serial, out);
        }
    }

    /// What this server owned is a copy like any other.
    pub(crate) fn give_back(&mut self, mut log: Log) {
        (log.members, log.learner, log.tail) = (Members::default(), None, None);
        self.starts.remove(&log.serial());
        self.copies.insert(log.serial(), Copy::new(log, None));
    }

    fn watch_data_servers(&mut self, now: Now) {
        let data = self.servers.values().filter(|entry| entry.kind == ServerKind::Data);
        let leaves = |server| self.startup.draining.contains(&server);
        let data = data.map(|entry| (entry.server, leaves(entry.server))).collect();
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
        // One that its client closed has its record beside the mark.
        (Key::Session(session), _) if !tablet.sessions.has_ended(session) => {
            tablet.sessions.register(session, now.mono);
        }
        (Key::Ended(session), _) => tablet.sessions.end_registered(session),
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
            let answered = Answered {
                result: Ok(reply.body),
                changed: Vec::new(),
                index: LogIndex::ZERO,
                awaited: BTreeSet::new(),
            };
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
        (Key::Checkpoint, Record::Checkpoint(record)) => tablet.checkpoint.remember(*record),
        (Key::Usage(directory), Record::Usage(used)) => tablet.quotas.note(directory, Some(used)),
        (Key::Delegation(directory), Record::Delegation(delegated)) => {
            let holder = delegated.holder;
            tablet.delegations.delegate(directory, *delegated, now.mono, config);
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
