//! The metadata server: which event goes where. What each kind of event means is told in the neighbouring
//! files.

use crate::chunks::Health;
use crate::config::Config;
use crate::disk_space::Space;
use crate::engine::adopt::Adoption;
use crate::engine::claims::Claim;
use crate::engine::compares::Compares;
use crate::engine::disk_state::DiskState;
use crate::engine::early_state::Early;
use crate::engine::jobs::Jobs;
use crate::engine::registers::Startup;
use crate::engine::replicate::{Outgoing, owned};
use crate::engine::restore::Restore;
use crate::engine::ring_state::Ring;
use crate::engine::takeovers::Takeovers;
use crate::event::{AppendNumber, Appends, Command, Event, LoadTicket, Note};
use crate::record::Key;
use crate::replication::{Copy, Log, Pairs};
use crate::tablet::Tablet;
use crate::view::Ids;
use crate::words::JobId;
use bearing_lookup::ClientMap;
use bearing_placement::{Assignment, Balance};
use bearing_proto::client::{Answer, FilesystemRecord, ServerEntry};
use bearing_proto::keys::ServerKeys;
use bearing_proto::peer::PeerMessage;
use bearing_seams::EngineError;
use bearing_types::{MapVersion, Mono, Now, Position, ServerId, SessionId, TabletSerial, TransactionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Counts of what the server did. Shells publish them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of clients.
    pub requests: u64,
    /// Runs of `decide`; more than requests because of loads.
    pub runs: u64,
    /// Store loads.
    pub loads: u64,
    /// Log records.
    pub records: u64,
    /// Recalls sent.
    pub recalls: u64,
    /// Open-state queries sent.
    pub open_state_queries: u64,
    /// Transactions begun.
    pub transactions: u64,
    /// Of these, aborted.
    pub aborts: u64,
    /// Requests referred elsewhere.
    pub referrals: u64,
    /// Bytes of chunks that were copied again.
    pub copied_bytes: u64,
    /// Checkpoints of tablets that were stored.
    pub checkpoints: u64,
    /// Checkpoints that came to nothing.
    pub checkpoint_failures: u64,
    /// Chunks that were removed.
    pub chunks_removed: u64,
    /// Bytes of snapshots of tablets that were sent.
    pub restored_bytes: u64,
    /// Tablets of other servers that this one serves instead.
    pub takeovers: u64,
    /// How long nobody served these, each from its claim on, in microseconds together.
    pub takeover_us: u64,
    /// Members that tablets of this server's went on without.
    pub swapped_out: u64,
}

/// See the module.
pub struct MetaServer {
    pub(crate) id: ServerId,
    pub(crate) config: Config,
    pub(crate) keys: ServerKeys,
    pub(crate) tablets: BTreeMap<Position, Tablet>,
    /// Tablets that are this server's and not served yet.
    pub(crate) adoptions: BTreeMap<Position, Adoption>,
    /// Where each of these begins.
    pub(crate) starts: BTreeMap<TabletSerial, Position>,
    /// Tablets that others own, or nobody yet.
    pub(crate) copies: BTreeMap<TabletSerial, Copy>,
    pub(crate) claims: BTreeMap<TabletSerial, Claim>,
    pub(crate) pairs: Pairs,
    /// Servers that are members of tablets of this one's.
    pub(crate) partners: Vec<ServerId>,
    pub(crate) outgoing: Outgoing,
    pub(crate) next_beacon: Mono,
    /// Tablets with records that are not synced.
    pub(crate) appending: BTreeSet<TabletSerial>,
    /// Since when there are such, and none was synced.
    pub(crate) stuck_since: Option<Mono>,
    pub(crate) jobs: Jobs,
    pub(crate) ready: VecDeque<JobId>,
    pub(crate) next_job: u64,
    pub(crate) appends: Appends,
    pub(crate) next_data: u64,
    /// Which request to a data server belongs to which job's slot, and when it was sent.
    pub(crate) data_requests: BTreeMap<u64, (JobId, usize, Mono)>,
    /// Loads under way, with the job and the keys it asked for.
    pub(crate) loads: BTreeMap<LoadTicket, (JobId, Vec<Key>)>,
    pub(crate) next_load: u64,
    /// Which job coordinates which transaction.
    pub(crate) transactions: BTreeMap<TransactionId, JobId>,
    pub(crate) map: ClientMap,
    pub(crate) assignment: Option<Assignment>,
    pub(crate) servers: BTreeMap<ServerId, ServerEntry>,
    pub(crate) startup: Startup,
    pub(crate) disk: DiskState,
    pub(crate) filesystem: Option<FilesystemRecord>,
    pub(crate) ids: Ids,
    pub(crate) ids_asked: bool,
    pub(crate) health: Health,
    /// Messages of this server's tablets to each other.
    pub(crate) inward: VecDeque<PeerMessage>,
    pub(crate) failed: bool,
    /// No grants, capabilities or times of changes go out, and none come in.
    pub(crate) clock_off: bool,
    pub(crate) space: Space,
    pub(crate) next_upkeep: Mono,
    /// When it did anything last.
    pub(crate) awake: Mono,
    /// Questions of several jobs are asked by one of them.
    pub(crate) asks_for_others: bool,
    pub(crate) next_resend: Mono,
    pub(crate) restore: Restore,
    /// Who shall own which tablet, by the registers.
    pub(crate) balance: Balance,
    pub(crate) ring: Ring,
    pub(crate) takeovers: Takeovers,
    pub(crate) compares: Compares,
    pub(crate) early: Early,
    pub(crate) counters: Counters,
    /// Under the planted bug alone: jobs that keep what they touch while they wait for clients.
    pub(crate) waiting_for_recall: Vec<JobId>,
    /// Requests that make something and found no id for it.
    pub(crate) waiting_for_ids: Vec<JobId>,
    /// When one of those looks again who wait for clients.
    pub(crate) next_parked: Option<Mono>,
    /// When this server last learnt of new owners of tablets.
    pub(crate) owners_changed: Option<Mono>,
}

impl MetaServer {
    /// A server that knows nothing but its name and its keys.
    pub fn new(id: ServerId, config: Config, keys: ServerKeys) -> MetaServer {
        MetaServer {
            id,
            ring: Ring::new(id, &config),
            config,
            keys,
            tablets: BTreeMap::new(),
            adoptions: BTreeMap::new(),
            starts: BTreeMap::new(),
            copies: BTreeMap::new(),
            claims: BTreeMap::new(),
            pairs: Pairs::new(0, Mono::ZERO),
            partners: Vec::new(),
            outgoing: Outgoing::default(),
            next_beacon: Mono::ZERO,
            appending: BTreeSet::new(),
            stuck_since: None,
            jobs: Jobs::default(),
            ready: VecDeque::new(),
            next_job: 0,
            appends: Appends::default(),
            next_data: 0,
            data_requests: BTreeMap::new(),
            loads: BTreeMap::new(),
            next_load: 0,
            transactions: BTreeMap::new(),
            map: ClientMap::new(),
            assignment: None,
            servers: BTreeMap::new(),
            startup: Startup::new(),
            disk: DiskState::unknown(),
            filesystem: None,
            ids: Ids::EMPTY,
            ids_asked: false,
            health: Health::default(),
            inward: VecDeque::new(),
            failed: false,
            clock_off: false,
            space: Space::default(),
            next_upkeep: Mono::ZERO,
            awake: Mono::ZERO,
            asks_for_others: false,
            next_resend: Mono::ZERO,
            restore: Restore::new(),
            balance: Balance::default(),
            takeovers: Takeovers::default(),
            compares: Compares::default(),
            early: Early::default(),
            counters: Counters::default(),
            waiting_for_recall: Vec::new(),
            waiting_for_ids: Vec::new(),
            next_parked: None,
            owners_changed: None,
        }
    }

    /// Takes an event; appends what is to be done to `out`.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        if self.failed {
            return self.step_failed(event, out);
        }
        self.notice_stop(now);
        let from = out.len();
        match event {
            Event::Start(recovered) => self.start(now, recovered, out),
            Event::Request(session, squash, mut request) => {
                request.call.squash(squash);
                self.on_request(now, session, request, out);
            }
            Event::Recalled(session, recalled) => self.on_recalled(now, session, recalled, out),
            Event::OpenState(session, open_state) => self.on_open_state(now, session, open_state, out),
            Event::Peer(_, message) => self.on_peer(now, message, out),
            Event::Replication(server, message) => self.on_replication(now, server, message, out),
            Event::Ring(server, message) => self.on_ring(now, server, &message, out),
            Event::Data(server, reply) => self.on_data(now, server, reply),
            Event::Told(told) => self.on_told(now, told, out),
            Event::Loaded(ticket, result) => self.on_loaded(now, ticket, result, out),
            Event::Synced(number, result) => self.on_synced(now, number, result, out),
            Event::Applied(serial, index, result) => self.on_applied(serial, index, result, out),
            Event::Digested(serial, index, result) => self.on_digest(now, serial, index, result, out),
            Event::Compare(serials) => self.begin_compare(&serials, out),
            Event::Checkpoint => self.ask_checkpoints(now),
            Event::Move(block, to) => self.begin_move(now, block, to),
            Event::LogFull => self.apply_all(out),
            Event::ClockOff(off) => self.clock_off = off,
            Event::Space(disk) => self.on_space(disk, out),
            Event::LogStuck(stuck) => self.on_stuck(stuck, out),
            Event::Tick => {}
        }
        if now.mono >= self.next_upkeep {
            self.upkeep(now, out);
        }
        self.wake_overdue(now);
        self.beacon(now);
        self.take_early(now, out);
        self.settle(now, out);
        self.ask_for_claims(now, out);
        self.send_entries(now, from, out);
    }

    /// When the machine wants a [`Event::Tick`].
    pub fn next_wake(&self) -> Mono {
        let next = self.next_parked.map_or(self.next_upkeep, |next| next.min(self.next_upkeep));
        match self.partners.is_empty() && self.copies.is_empty() {
            true => next,
            false => next.min(self.next_beacon),
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        Counters { records: self.appends.count(), ..self.counters }
    }

    /// Whether its disk is known to be the one that is registered as this server's.
    pub fn has_own_disk(&self) -> bool {
        self.disk.is_ours()
    }

    /// The tablets that it serves now, with their epochs.
    pub fn serving(&self) -> impl Iterator<Item = (bearing_types::Block, bearing_types::Epoch)> + Clone + '_ {
        self.tablets.values().map(|tablet| (tablet.block, tablet.epoch()))
    }

    /// Who owns what, by the newest map.
    pub fn assignment(&self) -> Option<(MapVersion, &Assignment)> {
        Some((self.map.version()?, self.assignment.as_ref()?))
    }

    /// Whether it goes by its disk, and knows whose tablets are whose.
    pub fn is_settled_in(&self) -> bool {
        self.disk.is_ours() && !self.failed
    }

    /// Whether any tablet of it holds something for a session: leases, delegations, open files, replies.
    pub fn holds_for(&self, session: SessionId) -> bool {
        self.tablets.values().any(|tablet| tablet.holds_for(session))
    }

    /// Runs what is ready and delivers inward messages until nothing moves.
    fn settle(&mut self, now: Now, out: &mut Vec<Command>) {
        loop {
            if let Some(job) = self.ready.pop_front() {
                self.run(now, job, out);
            } else if let Some(message) = self.inward.pop_front() {
                self.on_peer(now, message, out);
            } else {
                break;
            }
        }
    }

    // After a failed sync nothing is known about what is stable: no reply leaves any more, reads included.
    fn step_failed(&mut self, event: Event, out: &mut Vec<Command>) {
        if let Event::Request(session, _, request) = event {
            self.answer_at_once(session, request.sequence, Answer::Unknown, out);
        }
    }

    pub(crate) fn fail(&mut self, doing: &str, error: &EngineError, out: &mut Vec<Command>) {
        let what = format!("{doing}: {error}");
        out.push(Command::Note(Note::Failed(what)));
        self.stop_serving();
    }

    pub(crate) fn stop_serving(&mut self) {
        self.failed = true;
        self.tablets.clear();
        self.adoptions.clear();
        self.starts.clear();
        self.copies.clear();
        self.claims.clear();
        self.jobs.clear();
        self.ready.clear();
    }

    /// The log of a tablet that this server owns.
    pub(crate) fn owned(&mut self, serial: TabletSerial) -> Option<&mut Log> {
        owned(&mut self.tablets, &mut self.adoptions, &self.starts, serial)
    }

    pub(crate) fn tablet_holding(&self, position: Position) -> Option<&Tablet> {
        let (_, tablet) = self.tablets.range(..=position).next_back()?;
        tablet.block.contains(position).then_some(tablet)
    }

    pub(crate) fn tablet_at(&mut self, position: Position) -> Option<&mut Tablet> {
        let (_, tablet) = self.tablets.range_mut(..=position).next_back()?;
        tablet.block.contains(position).then_some(tablet)
    }

    pub(crate) fn next_append_number(&mut self) -> AppendNumber {
        self.appends.next()
    }

    // --- the log and the store ---

    fn on_synced(
        &mut self,
        now: Now,
        number: AppendNumber,
        result: Result<(), EngineError>,
        out: &mut Vec<Command>,
    ) {
        if let Err(error) = result {
            return self.fail("sync the tablet log", &error, out);
        }
        self.on_appended(now, number, out);
        self.intents_stable(now, number, out);
    }

    pub(crate) fn apply_all(&mut self, out: &mut Vec<Command>) {
        let served = self.tablets.values_mut().map(|tablet| &mut tablet.log);
        let held = self.copies.values_mut().map(|copy| &mut copy.log);
        served.chain(held).for_each(|log| log.apply(out));
    }

    fn on_applied(
        &mut self,
        serial: TabletSerial,
        index: bearing_types::LogIndex,
        result: Result<(), EngineError>,
        out: &mut Vec<Command>,
    ) {
        if let Err(error) = result {
            return self.fail("apply to the store", &error, out);
        }
        if let Some(copy) = self.copies.get_mut(&serial) {
            copy.log.on_applied(index);
        }
        let Some(start) = self.starts.get(&serial).copied() else { return };
        if let Some(adoption) = self.adoptions.get_mut(&start) {
            adoption.log.on_applied(index);
        }
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.on_applied(index);
        }
    }

    fn on_loaded(
        &mut self,
        now: Now,
        ticket: LoadTicket,
        result: Result<crate::event::LoadResult, EngineError>,
        out: &mut Vec<Command>,
    ) {
        let loaded = match result {
            Ok(loaded) => loaded,
            // What is damaged is not answered; the rest of the store is as good as before.
            Err(EngineError::Corrupt { what }) => return self.on_damaged_load(now, ticket, what, out),
            Err(error) => return self.fail("read the store", &error, out),
        };
        if let Some(start) = self.start_of_load(ticket) {
            return self.on_startup_load(now, start, loaded, out);
        }
        let mut loaded = loaded;
        if self.on_part_load(now, ticket, &mut loaded, out) {
            return;
        }
        if let Some(start) = self.start_of_checkpoint_load(ticket) {
            return self.on_checkpoint_load(now, start, &mut loaded, out);
        }
        self.on_job_load(ticket, loaded, out);
    }
}
