//! A metadata server's host: its machine, its store and its tablet log.
//!
//! Commands are carried out in the order given. Store commands take effect at once and are reported a little
//! later, in order. Appends are gathered while a sync is under way, then written and synced together; a crash
//! in between leaves what a disk could have kept. A crash may also come in the middle of the commands of one
//! step, at each named step of a protocol.

mod notes;
mod relays;

use crate::clock::{Instantly, MILLISECOND};
use crate::cluster::{COORDINATOR, COORDINATOR_HOST, Hosts, Role};
use crate::crash_point::CrashPoints;
use crate::disks::{Disks, WrongDisk};
use crate::ledger::Ledger;
use crate::limits::{Limits, RESERVE_BYTES};
use crate::nemesis::Crowded;
use crate::network::{HostId, Way};
use crate::options::Planted;
use crate::post::Post;
use crate::world::{Happening, World};
use bearing_lookup::Trail;
use bearing_meta::{
    AppendNumber, Asked, Bound, Command, Config, DiskSpace, Event, HELD_MAX, Headroom, LoadResult, LogEntry,
    MetaServer, RecoverError, Recovered, Relays, RingView, compared_pairs,
};
use bearing_placement::Tablet;
use bearing_proto::client::Answer;
use bearing_proto::peer::{PeerBody, Told, Vote};
use bearing_proto::tablets::{Digest, TabletRole, TabletView};
use bearing_proto::{Message, Sender};
use bearing_seams::{
    Cut, DiskLabel, EngineError, LogMark, LoggedRecord, MemStore, MemTabletLog, Store, TabletLog, Unapplied,
};
use bearing_types::{Block, DiskId, Epoch, ServerId, SessionId, TabletSerial};
use bearing_workload::Seeded;
use std::collections::{BTreeMap, BTreeSet};

/// The log is cut when it is longer than this; small, so that cutting happens.
const LOG_BYTES_MAX: u64 = 128 << 10;
/// It is never longer than this, whatever is wrong: what waits for the store's flush and what comes
/// meanwhile.
const LOG_BYTES_LIMIT: usize = 4 << 20;

/// Copies are compared with one of so many wakes.
const COMPARED_EVERY: u64 = 100;
const ROOMY: DiskSpace = DiskSpace { free: 1 << 30, total: 1 << 30 };

/// Records that are being made stable.
struct Syncing {
    mark: LogMark,
    last: AppendNumber,
    records: Vec<LoggedRecord>,
}

/// See the module.
pub struct MetaHost {
    host: HostId,
    server: ServerId,
    hosts: Hosts,
    machine: Option<MetaServer>,
    /// Passes requests on, where servers do.
    relays: Option<Relays<SessionId>>,
    store: MemStore,
    log: MemTabletLog,
    post: Post,
    rng: Seeded,
    disks: Disks,
    /// The tablet of which a record cannot be read.
    spoilt: Option<TabletSerial>,
    /// The server that it heard last.
    heard_last: HostId,
    /// Whether there was such a record when it started: it knows of it from then on.
    started_spoilt: bool,
    /// What a crash loses.
    faults: Option<Seeded>,
    planted: Planted,
    limits: Limits,
    /// Sessions that this life of the server has heard from: only these it can reach.
    heard: BTreeSet<SessionId>,
    gathered: Vec<(AppendNumber, LoggedRecord)>,
    syncing: Option<Syncing>,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    store_last: Instantly,
    unapplied: Unapplied,
    /// The store is flushed, and the log not cut yet.
    flushed: Option<Cut>,
    wake_at: Option<Instantly>,
    /// How often it was woken in this life.
    wakes: u64,
    out: Vec<Command>,
    disk: DiskSpace,
    /// What was gathered finds no space.
    stuck: bool,
    /// Syncs take so many times longer than usual.
    pub slowness: u64,
    /// The next sync fails.
    pub fail_sync: bool,
    /// Where it may die.
    pub crash_points: CrashPoints,
    /// It wants to die now, and why.
    pub dying: Option<String>,
    /// In this life of it the coordinator's registers were older ones for a while: it may have read these.
    pub met_older_registers: bool,
    /// It has refused the coordinator's registers.
    pub waits_for_registers: bool,
    /// The record that makes entries void, until it is stable.
    voiding: Option<AppendNumber>,
}

enum Job {
    Sync,
    Report(Box<Event>),
}

impl MetaHost {
    /// A host that is down, with nothing stored.
    pub fn new(host: HostId, hosts: Hosts, mut rng: Seeded, planted: Planted) -> MetaHost {
        let Role::Metadata(server) = hosts.role(host) else { unreachable!("{host:?} is no metadata server") };
        MetaHost {
            host,
            server,
            hosts,
            machine: None,
            relays: None,
            store: MemStore::new(),
            log: MemTabletLog::new(),
            post: Post::new(host, Sender::Server(server)),
            limits: Limits::draw(&mut rng),
            rng,
            disks: Disks::default(),
            spoilt: None,
            started_spoilt: false,
            heard_last: host,
            faults: None,
            planted,
            heard: BTreeSet::new(),
            gathered: Vec::new(),
            syncing: None,
            jobs: BTreeMap::new(),
            next_job: 0,
            store_last: Instantly(0),
            unapplied: Unapplied::default(),
            flushed: None,
            wake_at: None,
            wakes: 0,
            out: Vec::new(),
            disk: ROOMY,
            stuck: false,
            slowness: 1,
            fail_sync: false,
            crash_points: CrashPoints::default(),
            dying: None,
            met_older_registers: false,
            waits_for_registers: false,
            voiding: None,
        }
    }

    /// Recovers and starts the machine.
    pub fn start(&mut self, world: &mut World, ledger: &mut Ledger) {
        world.toggle(self.host);
        self.started_spoilt = self.spoilt.is_some();
        self.met_older_registers = world.older_registers;
        let fresh = DiskId(u128::from(self.rng.next()) << 64 | u128::from(self.rng.next()));
        let mut config = self.limits.config(self.planted.meta, world.delegations);
        config.lookup = world.lookup;
        let relays = Relays::new(self.server, world.lookup);
        self.relays = relays.map(|relays| relays.with_planted(&config));
        while self.crash_points.per_million > 0 && !self.disks.is_rotten() && self.rng.chance(1, 8) {
            world.counts.add("fault: a crash inside recovery");
            self.recover(fresh, &config);
            let mut fault = crate::nemesis::crash_fault(&mut self.rng, &mut world.counts);
            self.log.crash(&mut fault);
            self.store.crash(&mut fault);
        }
        if self.disks.is_rotten() {
            let opened = bearing_meta::recover(&mut self.store, &mut self.log, fresh, &config);
            assert!(
                matches!(opened, Err(RecoverError::Engine(EngineError::Corrupt { .. }))),
                "a damaged log does not open"
            );
            return world.toggle(self.host);
        }
        let recovered = self.recover(fresh, &config);
        self.unapplied = Unapplied::found(recovered.unapplied());
        if self.disks.wrong().is_none() {
            ledger.recovered(world, self.host, &recovered);
        }
        self.machine = Some(MetaServer::new(self.server, config, world.keys.clone()));
        self.step(world, ledger, Event::Start(recovered));
        self.step(world, ledger, Event::Space(self.disk));
        self.finish_step(world, ledger);
    }

    fn recover(&mut self, fresh: DiskId, config: &Config) -> Recovered {
        let recovered = bearing_meta::recover(&mut self.store, &mut self.log, fresh, config);
        recovered.unwrap_or_else(|error| panic!("{} cannot recover: {error}", self.server))
    }

    /// Whether the server holds anything for a session.
    pub fn holds_for(&self, session: SessionId) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.holds_for(session))
    }

    /// The host dies: what was not synced is lost, torn or kept as the fault says. What survives of the
    /// records under way is stable from now on.
    pub fn crash(&mut self, world: &mut World, ledger: &mut Ledger) {
        world.toggle(self.host);
        self.keep_refilled_disk(world);
        self.machine = None;
        self.post = Post::new(self.host, Sender::Server(self.server));
        self.heard.clear();
        self.gathered.clear();
        self.jobs.clear();
        self.wake_at = None;
        self.fail_sync = false;
        (self.dying, self.voiding, self.waits_for_registers) = (None, None, false);
        self.stuck = false;
        self.unapplied = Unapplied::default();
        self.flushed = None;
        let mut fault =
            crate::nemesis::crash_fault(self.faults.as_mut().unwrap_or(&mut self.rng), &mut world.counts);
        self.log.crash(&mut fault);
        self.store.crash(&mut fault);
        let Some(syncing) = self.syncing.take() else { return };
        let kept = self.log.read(Some(syncing.mark), syncing.records.len()).expect("a log in memory reads");
        let lost = syncing.records.len() - kept.len();
        world.counts.add_many("fault: unsynced log records lost", lost as u64);
        world.counts.add_many("fault: unsynced log records kept", kept.len() as u64);
        for (_, record) in kept {
            ledger.commit(world, self.host, &record);
        }
    }

    /// A record of a tablet, drawn by a number, cannot be read from now on. Whether there is one.
    pub fn spoil(&mut self, tablet: TabletSerial, number: u64) -> bool {
        self.spoilt = self.store.spoil(tablet, number).then_some(tablet);
        self.spoilt.is_some()
    }

    /// All records can be read again.
    pub fn unspoil(&mut self) {
        self.spoilt.take().map(|tablet| self.store.unspoil(tablet));
    }

    /// Whether it runs without what can be read by now: it has refused to serve, or will.
    pub fn is_to_start_again(&self) -> bool {
        self.started_spoilt || self.machine.is_none() && self.disks.wrong().is_none()
    }

    /// Whether a record cannot be read.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt.is_some()
    }

    /// A copy of the disk is made, as a machine that runs can be copied.
    pub fn copy_disk(&mut self) {
        if self.spoilt.is_none() {
            self.disks.copy(&self.store, &self.log);
        }
    }

    /// The host, which is down, is given another disk; whether there was one of that kind.
    pub fn give_wrong_disk(&mut self, world: &mut World, kind: WrongDisk, tablets: &[Tablet]) -> bool {
        self.unspoil();
        let here = (&self.store, &self.log);
        let registered = (self.server, tablets);
        let taken = self.disks.take_out(&mut world.counts, &mut self.rng, kind, here, registered);
        let Some((store, log)) = taken else { return false };
        (self.store, self.log) = (store, log);
        true
    }

    /// The right disk is put back, if another one was in its place. The host is down.
    pub fn put_disk_back(&mut self) {
        if let Some((store, log)) = self.disks.put_back() {
            (self.store, self.log) = (store, log);
            // It may have been full when it was taken out, and whoever puts it back has made room.
            self.log.set_full(false);
        }
    }

    /// A disk with less on it that its server was taken for a member with is the right one from then on:
    /// nobody would put the other one back.
    pub fn keep_refilled_disk(&mut self, world: &mut World) {
        if !self.machine.as_ref().is_some_and(MetaServer::is_settled_in) {
            return;
        }
        if self.disks.settled_in_has_less() {
            world.counts.add("meta: a disk with less on it was filled up");
            self.disks.keep();
        }
    }

    /// Whether the right disk may turn out to be lost for good.
    pub fn may_be_replaced(&self) -> bool {
        self.disks.is_refused()
    }

    /// The right disk is lost for good: what is in its place is the server's from now on.
    pub fn replace_disk(&mut self, world: &mut World) {
        world.counts.add("fault: a metadata disk is lost and replaced");
        if self.disks.is_rotten() {
            (self.store, self.log) = (MemStore::new(), MemTabletLog::new());
        }
        self.disks.replace();
    }

    /// Whether another disk is in the place of the right one.
    pub fn has_wrong_disk(&self) -> bool {
        self.disks.wrong().is_some()
    }

    /// What is kept for others, and how much of it may be.
    pub fn bounds(&self) -> Vec<Bound> {
        let mut bounds = self.machine.as_ref().map(MetaServer::bounds).unwrap_or_default();
        let log = Bound {
            name: "bytes of the log",
            count: self.log.bytes_used() as usize,
            count_max: LOG_BYTES_LIMIT,
        };
        bounds.push(log);
        bounds.extend(self.relays.as_ref().map(|relays| Bound {
            name: "requests that its lookup holds",
            count: relays.held(),
            count_max: HELD_MAX,
        }));
        bounds
    }

    /// What it knows of the ring, unless it is down or may serve nothing.
    pub fn ring(&self) -> Option<(ServerId, Option<RingView>)> {
        let machine = self.machine.as_ref().filter(|machine| machine.is_settled_in())?;
        Some((self.server, machine.ring()))
    }

    /// The tablets that it serves, with their epochs.
    pub fn serving(&self) -> Vec<(Block, Epoch)> {
        self.machine.iter().flat_map(MetaServer::serving).collect()
    }

    /// What its crash loses is drawn from here from now on.
    pub fn draw_faults_from(&mut self, rng: Seeded) {
        self.faults = Some(rng);
    }

    /// Where the server's records can be looked at.
    pub fn store(&mut self) -> &mut MemStore {
        &mut self.store
    }

    /// Somebody wants a tablet served elsewhere.
    pub fn move_tablet(&mut self, world: &mut World, ledger: &mut Ledger, block: Block, to: ServerId) {
        self.step(world, ledger, Event::Move(block, to));
        self.finish_step(world, ledger);
    }

    /// Its clock is too far from those of others, or is so no more.
    pub fn judge_clock(&mut self, world: &mut World, ledger: &mut Ledger, off: bool) {
        if off {
            world.counts.add("fault: clock off, noticed");
        }
        self.step(world, ledger, Event::ClockOff(off));
        self.finish_step(world, ledger);
    }

    /// Its disk has little space or none, or as much as it should.
    pub fn crowd(&mut self, world: &mut World, ledger: &mut Ledger, crowded: Option<Crowded>) {
        self.log.set_full(crowded == Some(Crowded::Full));
        self.disk.free = match crowded {
            None => ROOMY.free,
            Some(Crowded::Low) => RESERVE_BYTES / 2,
            Some(Crowded::Short) => RESERVE_BYTES / 20,
            // The log meets it before anybody has looked.
            Some(Crowded::Full) => return,
        };
        self.step(world, ledger, Event::Space(self.disk));
        self.finish_step(world, ledger);
    }

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, ledger: &mut Ledger, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        if let Sender::Client(session) = packet.sender {
            self.heard.insert(session);
        }
        if let Sender::Server(server) = packet.sender {
            self.heard_last = self.hosts.host_of(server).unwrap_or(self.heard_last);
        }
        for message in packet.messages {
            let event = match (packet.sender, message) {
                (Sender::Client(session), Message::Request(request)) => {
                    let asked = Asked { from: session, request, hops: 0, trail: Trail::default() };
                    match way {
                        Way::Datagram => self.pass_on(world, ledger, asked),
                        Way::Stream => self.decide(world, ledger, session, asked.request),
                    }
                    continue;
                }
                (Sender::Server(_), Message::Relay(relay)) => {
                    let Ok(ticket) = relay.ticket.try_into() else { continue };
                    world.counts.add("meta: requests that another server passed on");
                    let from = SessionId(u64::from_le_bytes(ticket));
                    let trail = Trail { level: relay.trail.0, entry: relay.trail.1 };
                    let asked = Asked { from, request: relay.request, hops: relay.hops, trail };
                    self.pass_on(world, ledger, asked);
                    continue;
                }
                (Sender::Server(server), Message::Filters(message)) => {
                    self.hear_filters(world, ledger, server, &message);
                    continue;
                }
                (Sender::Client(session), Message::Recalled(recalled)) => Event::Recalled(session, recalled),
                (Sender::Client(session), Message::OpenState(open_state)) => {
                    Event::OpenState(session, open_state)
                }
                (Sender::Server(server), Message::Peer(message)) => Event::Peer(server, message),
                (Sender::Server(server), Message::Replication(message)) => {
                    Event::Replication(server, message)
                }
                (Sender::Server(server), Message::Ring(message)) => Event::Ring(server, message),
                (Sender::Server(server), Message::DataReply(reply)) => Event::Data(server, reply),
                (Sender::Server(_), Message::Told(told)) => Event::Told(told),
                _ => continue,
            };
            self.step(world, ledger, event);
        }
        self.finish_step(world, ledger);
    }

    /// The machine wanted to be woken now.
    pub fn wake(&mut self, world: &mut World, ledger: &mut Ledger) {
        // It may have been stopped when the time came.
        if self.wake_at.is_none_or(|at| at > world.now()) {
            return;
        }
        self.wake_at = None;
        self.step(world, ledger, Event::Tick);
        self.wakes += 1;
        if world.compares && self.wakes.is_multiple_of(COMPARED_EVERY) {
            self.compare(world, ledger);
        }
        self.finish_step(world, ledger);
    }

    /// An operator wants the copies of its tablets compared.
    fn compare(&mut self, world: &mut World, ledger: &mut Ledger) {
        let Some(machine) = &self.machine else { return };
        let tablets = machine.tablets(world.clock_of(self.host).mono).tablets.into_iter();
        let owned = tablets.filter(|tablet| matches!(tablet.role, TabletRole::Owner(_)));
        let serials = owned.map(|tablet| tablet.serial).collect();
        self.step(world, ledger, Event::Compare(serials));
    }

    /// An operator wants checkpoints of its tablets stored.
    pub fn store_checkpoints(&mut self, world: &mut World, ledger: &mut Ledger) {
        self.step(world, ledger, Event::Checkpoint);
        self.finish_step(world, ledger);
    }

    /// The tablets that it has.
    pub fn tablets(&self, world: &World) -> Vec<TabletView> {
        let machine = self.machine.as_ref();
        machine.map(|machine| machine.tablets(world.clock_of(self.host).mono).tablets).unwrap_or_default()
    }

    /// Something of the disk is done now.
    pub fn done(&mut self, world: &mut World, ledger: &mut Ledger, number: u64) {
        match self.jobs.remove(&number) {
            Some(Job::Sync) => self.synced(world, ledger),
            Some(Job::Report(event)) => {
                if let Event::Digested(tablet, index, Ok(digest)) = &*event {
                    ledger.compared(world, self.host, (*tablet, *index), *digest);
                }
                self.step(world, ledger, *event);
            }
            None => return,
        }
        self.finish_step(world, ledger);
    }

    // --- commands ---

    fn step(&mut self, world: &mut World, ledger: &mut Ledger, event: Event) {
        if self.dying.is_some() {
            return;
        }
        let Some(machine) = &mut self.machine else { return };
        let mut commands = std::mem::take(&mut self.out);
        machine.step(world.clock_of(self.host), event, &mut commands);
        for command in commands.drain(..) {
            world.commanded(self.host, &command);
            self.carry_out(world, ledger, command);
            if self.dying.is_some() {
                break;
            }
        }
        // The buffer is used again.
        commands.clear();
        self.out = commands;
    }

    fn finish_step(&mut self, world: &mut World, ledger: &mut Ledger) {
        // A host that is down does nothing: least of all it flushes a store that lacks what only its log has,
        // and cuts that log when it is up again.
        if self.machine.is_none() {
            return;
        }
        self.tend_relays(world, ledger);
        self.begin_sync(world, ledger);
        self.flush_if_due(world, ledger);
        self.post.flush(world);
        self.set_wake(world);
    }

    fn carry_out(&mut self, world: &mut World, ledger: &mut Ledger, command: Command) {
        match command {
            Command::Reply(session, reply) => {
                // What is of no tablet has no epoch.
                if let Answer::Done { tablet, epoch, .. } = &reply.answer
                    && *epoch > Epoch(0)
                {
                    ledger.speaks(world, self.host, tablet.start());
                }
                let Some(host) = self.reach(world, session) else { return };
                let message = Message::Reply(reply);
                self.post.answer(world, host, Sender::Client(session), &message, &[]);
            }
            Command::Recall(session, recall) => {
                let Some(host) = self.reach(world, session) else { return };
                let message = Message::Recall(recall);
                self.post.send(world, host, Sender::Client(session), Way::Datagram, &message, &[]);
            }
            Command::OpenStateQuery(session, open_state_query) => {
                let Some(host) = self.reach(world, session) else { return };
                let message = Message::OpenStateQuery(open_state_query);
                self.post.send(world, host, Sender::Client(session), Way::Datagram, &message, &[]);
            }
            Command::LockFree(session, free) => {
                let Some(host) = self.reach(world, session) else { return };
                let message = Message::LockFree(free);
                self.post.send(world, host, Sender::Client(session), Way::Datagram, &message, &[]);
            }
            Command::Peer(server, message) => {
                if !could_be_anybodys(&message.body) {
                    ledger.speaks(world, self.host, message.from);
                }
                self.send(world, server, &Message::Peer(message));
            }
            Command::Replication(server, message) => self.send(world, server, &Message::Replication(message)),
            Command::Ring(server, message) => self.send(world, server, &Message::Ring(message)),
            Command::Data(server, request, bytes) => {
                self.send_with(
                    world,
                    server,
                    &Message::Data(request),
                    bytes.as_deref().map_or(&[], Vec::as_slice),
                );
            }
            Command::Ask(ask) => {
                let receiver = Sender::Server(COORDINATOR);
                self.post.send(world, COORDINATOR_HOST, receiver, Way::Datagram, &Message::Ask(ask), &[]);
            }
            Command::Append(number, record) => self.append(world, number, record),
            Command::Load { ticket, tablet, keys, ranges } => {
                let result = LoadResult::read(&mut self.store, tablet, &keys, &ranges);
                self.report(world, Event::Loaded(ticket, result));
            }
            Command::Apply(tablet, index, changes) => {
                let result = self.store.apply(tablet, index, &changes);
                self.unapplied.applied(tablet, index);
                self.report(world, Event::Applied(tablet, index, result));
            }
            Command::Digest(tablet, index) => {
                let digest = compared_pairs(&mut self.store, tablet).and_then(Digest::of);
                self.report(world, Event::Digested(tablet, index, digest));
            }
            Command::SetDisk(disk) => {
                self.log.set_disk(disk).expect("a log in memory keeps an id");
                self.store.set_disk(disk).expect("a store in memory keeps an id");
            }
            Command::CreateTablet(tablet) => {
                self.store.create_tablet(tablet).expect("a store in memory makes tablets");
            }
            Command::RemoveTablet(tablet) => {
                self.unapplied.forget(tablet);
                self.store.remove_tablet(tablet).expect("a store in memory removes tablets");
            }
            Command::Map(..) => world.counts.add("meta: maps taken"),
            Command::Note(note) => self.note(world, ledger, note),
        }
    }

    fn reach(&self, world: &mut World, session: SessionId) -> Option<HostId> {
        if !self.heard.contains(&session) {
            world.counts.add("meta: session of unknown address");
            return None;
        }
        world.host_of_session(session)
    }

    fn send(&mut self, world: &mut World, server: ServerId, message: &Message) {
        self.send_with(world, server, message, &[]);
    }

    fn send_with(&mut self, world: &mut World, server: ServerId, message: &Message, attachment: &[u8]) {
        let Some(host) = self.hosts.host_of(server) else { return };
        let way = if attachment.is_empty() { Way::Datagram } else { Way::Stream };
        self.post.send(world, host, Sender::Server(server), way, message, attachment);
    }

    // --- the disk ---

    fn append(&mut self, world: &mut World, number: AppendNumber, record: LoggedRecord) {
        world.digest.bytes(&record.bytes);
        self.unapplied.append(&record, LogEntry::voids_later);
        self.gathered.push((number, record));
    }

    fn begin_sync(&mut self, world: &mut World, ledger: &mut Ledger) {
        self.try_sync(world);
        let told = self.machine.as_ref().is_some_and(|machine| machine.headroom() == Headroom::None);
        if self.stuck != told {
            world.counts.add(if self.stuck { "meta: log waited for space" } else { "meta: log goes on" });
            self.step(world, ledger, Event::LogStuck(self.stuck));
        }
    }

    fn try_sync(&mut self, world: &mut World) {
        if self.syncing.is_some() || self.gathered.is_empty() || self.dying.is_some() {
            return;
        }
        let gathered = std::mem::take(&mut self.gathered);
        let last = gathered.last().expect("not empty").0;
        let (numbers, records): (Vec<AppendNumber>, Vec<LoggedRecord>) = gathered.into_iter().unzip();
        match self.log.append(&records) {
            Ok(mark) => (self.stuck, self.syncing) = (false, Some(Syncing { mark, last, records })),
            // Tried again at the next step: the machine wants to be woken all the time.
            Err(EngineError::Full { .. }) => {
                self.stuck = true;
                return self.gathered = numbers.into_iter().zip(records).collect();
            }
            Err(error) => {
                self.report(world, Event::Synced(last, Err(error)));
                return;
            }
        }
        self.unapplied.begin();
        let usual = self.rng.between(80_000, 2 * MILLISECOND);
        self.next_job += 1;
        self.jobs.insert(self.next_job, Job::Sync);
        let life = world.life(self.host);
        world.after(usual * self.slowness, Happening::Done(self.host, life, self.next_job));
        self.meet_boundary(world);
    }

    fn synced(&mut self, world: &mut World, ledger: &mut Ledger) {
        if std::mem::take(&mut self.fail_sync) {
            world.counts.add("fault: log sync failed");
            self.log.fail_next_sync();
        }
        let result = self.log.sync();
        let Some(last) = self.syncing.as_ref().map(|syncing| syncing.last) else { return };
        if let Err(error) = result {
            // Nobody knows what reached the disk: the crash that follows decides.
            return self.step(world, ledger, Event::Synced(last, Err(error)));
        }
        let syncing = self.syncing.take().expect("seen just now");
        for record in &syncing.records {
            ledger.commit(world, self.host, record);
        }
        self.unapplied.written(syncing.mark);
        if let Some(cut) = self.flushed.take() {
            world.counts.add("meta: log cut");
            let before = match cut {
                Cut::All => syncing.mark,
                Cut::Before(mark) => mark,
            };
            self.log.cut(before).expect("a log in memory cuts");
            self.meet_death(world, "log cut");
        }
        self.meet_death(world, "synced, nobody told");
        if self.voiding.take_if(|number| *number <= syncing.last).is_some() {
            self.meet_death(world, "void entries are stable");
        }
        if self.dying.is_some() {
            return;
        }
        self.meet_boundary(world);
        self.step(world, ledger, Event::Synced(last, Ok(())));
    }

    /// Perhaps it dies here.
    fn meet_death(&mut self, world: &mut World, step: &'static str) {
        if self.crash_points.meet(&mut world.counts, &mut self.rng, "", step) {
            self.dying = Some(format!("a crash at {step:?}"));
        }
    }

    fn meet_boundary(&mut self, world: &mut World) {
        if world.boundaries.meet(self.host) {
            self.dying = Some("a cut at a sync".into());
        }
    }

    /// As the daemon does it: when the log is long, what is committed goes to the store, and that is flushed;
    /// the log is cut after the next append, before all that was not handed to the store by now.
    fn flush_if_due(&mut self, world: &mut World, ledger: &mut Ledger) {
        if self.flushed.is_some() || self.log.bytes_used() < LOG_BYTES_MAX {
            return;
        }
        self.step(world, ledger, Event::LogFull);
        if self.dying.is_some() {
            return;
        }
        self.flushed = self.unapplied.cut();
        if self.flushed.is_some() {
            self.store.flush().expect("a store in memory flushes");
            self.meet_death(world, "store flushed, log not cut");
        }
    }

    /// Reports from the store come in the order of its commands.
    fn report(&mut self, world: &mut World, event: Event) {
        let delay = if self.rng.chance(1, 40) {
            self.rng.between(1, 8) * MILLISECOND
        } else {
            self.rng.between(1_000, 80_000)
        };
        let at = Instantly(world.now().0 + delay).max(self.store_last);
        self.store_last = at;
        self.next_job += 1;
        self.jobs.insert(self.next_job, Job::Report(Box::new(event)));
        let life = world.life(self.host);
        world.at(at, Happening::Done(self.host, life, self.next_job));
    }

    fn set_wake(&mut self, world: &mut World) {
        let Some(due) = self.machine.as_ref().map(MetaServer::next_wake) else { return };
        let due = self.relays.as_ref().and_then(Relays::next_wake).map_or(due, |relays| relays.min(due));
        let at = world.when(self.host, due);
        if self.wake_at.is_none_or(|set| at < set) {
            self.wake_at = Some(at);
            let life = world.life(self.host);
            world.at(at, Happening::Wake(self.host, life));
        }
    }
}

/// Whether a message says only where to ask, or to ask again.
fn could_be_anybodys(body: &PeerBody) -> bool {
    match body {
        PeerBody::NotMine { .. } => true,
        PeerBody::Told { told, .. } => *told == Told::Later,
        PeerBody::Prepared { vote, .. } => *vote == Vote::Later,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::LogIndex;

    fn record(index: u64) -> LoggedRecord {
        LoggedRecord {
            serial: TabletSerial(1),
            epoch: Epoch(1),
            index: LogIndex(index),
            commit: LogIndex(index - 1),
            bytes: vec![7; 8 << 10],
        }
    }

    #[test]
    fn nothing_happens_to_the_store_and_the_log_of_a_host_that_is_down() {
        let hosts = Hosts { clients: 1 };
        let mut world = World::new(1, hosts.count());
        let mut ledger = Ledger::default();
        let mut host = MetaHost::new(HostId(1), hosts, Seeded::new(1), Planted::default());
        // It died when its log was long, and before all of that was applied.
        host.log.append(&(1..40).map(record).collect::<Vec<_>>()).unwrap();
        host.log.sync().unwrap();
        assert!(host.log.bytes_used() >= LOG_BYTES_MAX);
        host.crowd(&mut world, &mut ledger, Some(Crowded::Low));
        host.crowd(&mut world, &mut ledger, None);
        assert!(host.flushed.is_none(), "or the log would be cut when the host is up again");
    }
}
