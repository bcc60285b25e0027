//! A client's host: its machine, the kernel above it, and the workers that use it.

use crate::clock::{Instantly, MILLISECOND};
use crate::cluster::{Hosts, Role};
use crate::complaint::{Complaint, Promise};
use crate::crash_point::CrashPoints;
use crate::flow_host::address_of;
use crate::kernel::{Kernel, Locks};
use crate::ledger::{Ledger, NameNews};
use crate::nemesis::Act;
use crate::network::{HostId, Way};
use crate::options::Planted;
use crate::post::Post;
use crate::program::{Meaning, Program};
use crate::recorder::Recorder;
use crate::worker;
use crate::world::{Happening, World};
use bearing_client::{
    AheadConfig, Answer, Client, ClientConfig, Command, Event, Found, Note, Operation, Target, Ticket,
    Transport,
};
use bearing_proto::client::Handle;
use bearing_proto::{Message, Sender};
use bearing_types::{Code, FilesystemId, Mono, NodeId, SessionId};
use bearing_workload::{Generator, GeneratorOptions, Query, Seeded, Weights};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How many workers each client of a run has, one as likely as the other: many meet each other in the same
/// tablets, and leave much under way where something dies.
pub const WORKERS: [usize; 4] = [3, 3, 6, 12];
/// With delegations, one of so many programs asks for stability and does nothing else; one of five after a
/// change that the client decided by itself.
const SYNC_EVERY: u64 = 40;
/// With delegations, after so many syncs that succeeded a client dies.
const DIES_AFTER_SYNC: u64 = 6;
/// An operation may take so long; longer means that somebody waits for ever.
const PATIENCE: u64 = 55 * crate::clock::SECOND;

/// An operation under way.
#[derive(Debug)]
pub struct Asked {
    /// Whose it is; `None`: the simulator's own.
    pub worker: Option<usize>,
    /// Its change in the history.
    pub entry: Option<usize>,
    /// What it means.
    pub meaning: Meaning,
    /// The machine's own word for it, without the bytes of writes.
    pub what: Operation,
    /// When it began.
    pub invoked: Mono,
    locks: Locks,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// What it does.
    pub program: Program,
    /// It waits for a lock of the kernel.
    parked: bool,
    /// An operation of it is under way.
    busy: bool,
}

/// See the module.
pub struct ClientHost {
    /// The host.
    pub host: HostId,
    hosts: Hosts,
    machine: Option<Client>,
    session: SessionId,
    post: Post,
    planted: Planted,
    delegations: bool,
    /// It asks for delegations in every session.
    pub always_delegates: bool,
    /// What the client itself draws.
    pub rng: Seeded,
    /// What it does next.
    pub generator: Option<Generator>,
    /// Its workers.
    pub workers: Vec<Worker>,
    kernel: Kernel,
    asked: BTreeMap<Ticket, Asked>,
    next_ticket: u64,
    next_seed: u8,
    wake_at: Option<Instantly>,
    invalidating: BTreeMap<u64, Vec<bearing_client::Invalidation>>,
    /// When each node that this client wrote was last open for writing.
    pub written: BTreeMap<NodeId, Mono>,
    /// When it last began to write files out.
    pub write_outs: BTreeMap<NodeId, Vec<Mono>>,
    /// What the last operation found or made.
    pub last_found: Option<Found>,
    /// Finished operations of the simulator's own.
    finished: VecDeque<(Ticket, Result<Answer, Code>)>,
    /// Servers have ended the session, and there is no other one yet.
    session_lost: bool,
    /// Steps that it decided are lost, since it began.
    steps_lost: bool,
    /// Operations of that time whose end means nothing any more.
    abandoned: BTreeSet<Ticket>,
    /// It has decided a change by itself since a program asked for something last.
    decided: bool,
    /// The session is over, or something else makes a new start necessary.
    pub restart_wanted: bool,
    has_begun: bool,
    /// Where it may die.
    pub crash_points: CrashPoints,
    /// It wants to die now, and why.
    pub dying: Option<String>,
}

impl ClientHost {
    /// A host that is down.
    pub fn new(
        host: HostId,
        hosts: Hosts,
        rng: Seeded,
        workers: usize,
        (planted, delegations): (Planted, bool),
    ) -> ClientHost {
        assert!(matches!(hosts.role(host), Role::Client(_)), "{host:?} is no client");
        let workers =
            (0..workers).map(|_| Worker { program: Program::Idle, parked: false, busy: false }).collect();
        ClientHost {
            host,
            hosts,
            machine: None,
            session: SessionId(0),
            post: Post::new(host, Sender::Nobody),
            planted,
            delegations,
            always_delegates: false,
            rng,
            generator: None,
            workers,
            kernel: Kernel::default(),
            asked: BTreeMap::new(),
            next_ticket: 1,
            next_seed: 0,
            wake_at: None,
            invalidating: BTreeMap::new(),
            written: BTreeMap::new(),
            write_outs: BTreeMap::new(),
            last_found: None,
            finished: VecDeque::new(),
            session_lost: false,
            steps_lost: false,
            abandoned: BTreeSet::new(),
            decided: false,
            restart_wanted: false,
            has_begun: false,
            crash_points: CrashPoints::default(),
            dying: None,
        }
    }

    /// Opens a new session.
    pub fn start(&mut self, world: &mut World, recorder: &mut Recorder) {
        world.toggle(self.host);
        self.session = SessionId(self.rng.next());
        world.learn_session(self.session, self.host);
        self.post = Post::new(self.host, Sender::Client(self.session));
        let mut config = ClientConfig::standard(FilesystemId(1));
        config.list_page = 8;
        config.chunk_bytes_max = 64 << 10;
        config.large_frame_bytes = 4 << 10;
        config.unsynced_chunks_max = 2;
        config.extents_page = 4;
        if self.session.0.is_multiple_of(3) {
            config.write_out_bytes = 1 << 10;
        }
        (config.prefetch_after, config.prefetch_timeout) = (2, Duration::from_secs(5));
        config.prefetch_delay = Duration::from_millis(200);
        config.prefetch_delay_max = Duration::from_secs(1);
        // Small, so that files of a few thousand bytes are fetched ahead, in pieces and by plans.
        config.addresses = vec![address_of(self.host)];
        config.ahead = AheadConfig {
            after: 100,
            window_min: 600,
            window_max: 4_000,
            bytes_max: 6_000,
            run_max: 5_000,
            piece: 500,
            pieces_max: 3,
            ask_min: 200,
            flow_timeout: Duration::from_millis(20),
        };
        config.mutant = self.planted.client;
        // What the first client makes before the work begins, all are told of without having looked it up: it
        // must not be its own.
        let prepares =
            !std::mem::replace(&mut self.has_begun, true) && self.hosts.role(self.host) == Role::Client(0);
        config.access_times = true;
        config.delegates = self.delegations && self.rng.chance(3, 4) && !prepares || self.always_delegates;
        config.tells_steps = true;
        if self.session.0.is_multiple_of(2) {
            config.delegated_entries_max = if self.session.0.is_multiple_of(4) { 4 } else { 12 };
        }
        self.machine = Some(Client::new(config, self.rng.next()));
        self.step(world, recorder, Event::Tick);
        let life = world.life(self.host);
        for worker in 0..self.workers.len() {
            let delay = self.rng.between(1, 50) * MILLISECOND;
            world.after(delay, Happening::Go(self.host, life, worker));
        }
    }

    /// The host dies with all that it buffered.
    pub fn crash(&mut self, world: &mut World, recorder: &mut Recorder) {
        world.toggle(self.host);
        self.machine = None;
        self.kernel = Kernel::default();
        self.asked.clear();
        self.wake_at = None;
        self.invalidating.clear();
        (self.session_lost, self.steps_lost) = (false, false);
        self.abandoned.clear();
        self.restart_wanted = false;
        self.dying = None;
        self.written.clear();
        self.write_outs.clear();
        for worker in &mut self.workers {
            *worker = Worker { program: Program::Idle, parked: false, busy: false };
        }
        recorder.client_died(world, self.host);
    }

    /// Lets workers draw from these directories and logs.
    pub fn employ(&mut self, private: Handle, shared: Handle, logs: Vec<Handle>) {
        let rng = self.rng.fork(7);
        let mut options = GeneratorOptions::default();
        if self.delegations {
            (options.shared_percent, options.names) = (20, 40);
            options.weights = Weights::AT_HOME;
        }
        let generator = Generator::new(rng, options, private, shared);
        self.generator = Some(generator.with_logs(logs));
    }

    /// Whether it asks for delegations in some of its sessions.
    pub fn asks_for_delegations(&self) -> bool {
        self.delegations
    }

    /// Has the first worker do this next.
    pub fn perform(&mut self, world: &mut World, program: Program) {
        self.last_found = None;
        self.workers[0].program = program;
        let life = world.life(self.host);
        world.after(1_000, Happening::Go(self.host, life, 0));
    }

    /// Its session of the moment.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether it runs: one whose session ended begins anew after a while.
    pub fn is_running(&self) -> bool {
        self.machine.is_some()
    }

    /// Operations that should have been over long ago.
    pub fn overdue(
        &self,
        world: &World,
        recorder: &Recorder,
        ledger: &Ledger,
        peace: Instantly,
    ) -> Vec<String> {
        let late = |asked: &&Asked| world.now().0 > asked.invoked.0.max(peace.0) + PATIENCE;
        // Bytes that were never synced may be lost; who reads them is told so only when all hope is given up.
        let lost = |asked: &&Asked| match &asked.meaning {
            Meaning::Question(Query::Content { node, .. }) => {
                recorder.was_written_since(*node, asked.invoked)
                    || !recorder.are_safe(&ledger.model.frames_of(*node))
            }
            Meaning::Question(_) | Meaning::Change(_) => false,
            // The simulator looks after its own.
            Meaning::Part => asked.worker.is_none(),
        };
        self.asked
            .values()
            .filter(|asked| late(asked) && !lost(asked))
            .map(|asked| format!("{:?} since {} us", asked.what, asked.invoked.0 / 1000))
            .collect()
    }

    /// Somebody else has changed a name. The kernel here must not go by what it led to; but while an
    /// operation of its own on that name is under way, nobody can say what it should go by. Gives what it
    /// goes by then.
    pub fn goes_by(&self, world: &World, news: &NameNews) -> Option<NodeId> {
        let NameNews { directory, name, .. } = news;
        let touched = |asked: &Asked| match &asked.what {
            Operation::Rename { source, source_name, target, target_name, .. } => {
                (source.node, source_name) == (*directory, name)
                    || (target.node, target_name) == (*directory, name)
            }
            Operation::Lookup { directory: of, name: other, .. }
            | Operation::Create { directory: of, name: other, .. }
            | Operation::MakeDirectory { directory: of, name: other, .. }
            | Operation::Link { directory: of, name: other, .. }
            | Operation::Unlink { directory: of, name: other, .. }
            | Operation::RemoveDirectory { directory: of, name: other, .. } => {
                (of.node, other) == (*directory, name)
            }
            _ => false,
        };
        if self.machine.is_none() || news.author == Some(self.session) || self.asked.values().any(touched) {
            return None;
        }
        let known = self.kernel.name(world.clock_of(self.host).mono, *directory, name)?;
        (news.node != Some(known)).then_some(known)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.workers.iter().all(|worker| matches!(worker.program, Program::Idle))
    }

    /// What the machine counted since it was started.
    pub fn count(&self, world: &mut World) {
        let Some(machine) = &self.machine else { return };
        let counters = machine.counters();
        for (name, count) in [
            ("client: requests sent again", counters.resends),
            ("client: told to retry", counters.retries),
            ("client: referred", counters.referrals),
            ("client: maps taken", counters.maps),
            ("client: recalls answered", counters.recalls),
            ("client: open-state queries answered", counters.open_state_queries),
            ("client: names from leases", counters.name_hits),
            ("client: names looked up ahead", counters.names_prefetched),
            ("client: of these asked for", counters.names_prefetched_used),
            ("client: attributes from leases", counters.attribute_hits),
            ("client: grants from leases", counters.grant_hits),
            ("client: chunks lost", counters.chunks_lost),
            ("client: replicas passed over", counters.replicas_passed_over),
            ("client: opened without asking", counters.local_opens),
            ("client: delegated directories not held whole any more", counters.thinned),
            ("client: entries of those dropped", counters.entries_dropped),
            ("client: names of those asked for", counters.names_learnt),
            ("client: such directories decided in again", counters.shown_again),
            ("client: late replies", counters.late_replies),
            ("client: bytes read ahead", counters.bytes_read_ahead),
            ("client: flow server silent", counters.flow_silent),
            ("client: pieces fetched twice", counters.pieces_twice),
        ] {
            world.counts.add_many(name, count);
        }
    }

    // --- operations ---

    /// Starts an operation of the simulator's own.
    pub fn ask(&mut self, world: &mut World, recorder: &mut Recorder, operation: Operation) -> Ticket {
        let asked = Asked {
            worker: None,
            entry: None,
            meaning: Meaning::Part,
            what: without_bytes(&operation),
            invoked: world.true_mono(),
            locks: Vec::new(),
        };
        self.begin(world, recorder, operation, asked)
    }

    /// A finished operation of the simulator's own.
    pub fn take_finished(&mut self) -> Option<(Ticket, Result<Answer, Code>)> {
        self.finished.pop_front()
    }

    fn begin(
        &mut self,
        world: &mut World,
        recorder: &mut Recorder,
        operation: Operation,
        asked: Asked,
    ) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        world.tell(|| format!("{:?} {ticket:?} {operation:?}", self.host));
        world.digest.number(ticket.0);
        self.asked.insert(ticket, asked);
        self.step(world, recorder, Event::Start(ticket, operation));
        ticket
    }

    /// A worker goes on.
    pub fn go(&mut self, world: &mut World, recorder: &mut Recorder, worker: usize) {
        if self.workers[worker].busy {
            return;
        }
        if matches!(self.workers[worker].program, Program::Idle) && !worker::draw(self, recorder, worker) {
            return;
        }
        worker::refresh(self, recorder, worker);
        let Some(ask) = self.workers[worker].program.next() else { return };
        if let Meaning::Change(change) = &ask.meaning
            && self.is_under_way(change)
        {
            // Two equal changes of one client could not be told apart at the wire.
            self.workers[worker].program.give_up_operation();
            return self.think(world, worker);
        }
        if !self.kernel.lock(&ask.locks) {
            self.workers[worker].parked = true;
            world.counts.add("kernel: waited for a lock");
            return;
        }
        self.workers[worker].parked = false;
        self.workers[worker].busy = true;
        recorder.operations_left = recorder.operations_left.saturating_sub(1);
        world.counts.add("operations");
        let entry = match &ask.meaning {
            Meaning::Change(change) => Some(recorder.begin(world, self.host, change.clone())),
            Meaning::Question(_) | Meaning::Part => None,
        };
        worker::begun(self, world, recorder, worker);
        let invoked = world.true_mono();
        let what = without_bytes(&ask.operation);
        let asked =
            Asked { worker: Some(worker), entry, meaning: ask.meaning, what, invoked, locks: ask.locks };
        let waits = matches!(ask.operation, Operation::Lock { waits: true, .. });
        let ticket = self.begin(world, recorder, ask.operation, asked);
        // Some lose patience; the others wait however long it takes.
        if waits && self.rng.chance(1, 3) {
            let (patience, life) = (self.rng.between(10, 5_000) * MILLISECOND, world.life(self.host));
            world.after(patience, Happening::GiveUp(self.host, life, ticket.0));
        }
    }

    /// Somebody has lost patience.
    pub fn give_up(&mut self, world: &mut World, recorder: &mut Recorder, ticket: u64) {
        if self.asked.contains_key(&Ticket(ticket)) {
            self.step(world, recorder, Event::GiveUp(Ticket(ticket)));
        }
    }

    fn is_under_way(&self, change: &bearing_workload::Mutation) -> bool {
        self.asked.values().any(|asked| matches!(&asked.meaning, Meaning::Change(other) if other == change))
    }

    fn has_open(&self, worker: usize) -> bool {
        matches!(&self.workers[worker].program, Program::File(run) if run.file.is_some())
    }

    fn has_locked(&self, worker: usize) -> bool {
        matches!(&self.workers[worker].program, Program::File(run) if run.locked.is_some())
    }

    /// Whether some worker has a file open.
    pub fn has_any_open(&self) -> bool {
        (0..self.workers.len()).any(|worker| self.has_open(worker))
    }

    /// Whether a program asks for stability now, instead of doing something.
    pub fn wants_sync(&mut self) -> bool {
        let often = if std::mem::take(&mut self.decided) { 5 } else { SYNC_EVERY };
        self.delegations && self.generator.is_some() && self.rng.chance(1, often)
    }

    /// Whatever is stable only a moment after it was said to be is lost then.
    fn perhaps_die_after_sync(&mut self, world: &mut World, succeeded: bool) {
        if self.delegations && self.generator.is_some() && succeeded && self.rng.chance(1, DIES_AFTER_SYNC) {
            world.counts.add("fault: a client dies when its sync is answered");
            let downtime = self.rng.between(20, 900) * MILLISECOND;
            world.after(1, Happening::Act(Act::Crash(self.host, downtime)));
        }
    }

    /// The worker goes on after a while.
    pub fn think(&mut self, world: &mut World, worker: usize) {
        let delay = match self.rng.below(20) {
            // A file is left open so long that others remove it, and that a client that is cut off loses its
            // leases. Others wait for what is locked. What was decided here is synced before it was sent.
            0..10 if self.decided => 0,
            0..15 if matches!(self.workers[worker].program, Program::Tree(_)) => 0,
            0..10 if self.has_locked(worker) => self.rng.between(1, 100),
            0..3 if self.has_open(worker) => self.rng.between(1_000, 12_000),
            0 => self.rng.between(200, 1500),
            1..6 => 0,
            _ => self.rng.between(1, 60),
        };
        let life = world.life(self.host);
        world.after(delay * MILLISECOND + 1, Happening::Go(self.host, life, worker));
    }

    fn finish(
        &mut self,
        world: &mut World,
        recorder: &mut Recorder,
        ticket: Ticket,
        result: Result<Answer, Code>,
    ) {
        world.tell(|| format!("{:?} {ticket:?} -> {result:?}", self.host));
        if self.abandoned.remove(&ticket) {
            return;
        }
        match &result {
            Ok(Answer::Bytes(bytes)) => world.digest.bytes(bytes),
            other => world.digest.bytes(format!("{other:?}").as_bytes()),
        }
        recorder.told(self.host, result.as_ref().err().copied());
        let asked = self.asked.remove(&ticket).expect("operations finish once");
        self.kernel.unlock(&asked.locks);
        let found = result.as_ref().map_err(|code| *code).map(|answer| match answer {
            Answer::Found(found) | Answer::Opened(_, found) => Some(found),
            _ => None,
        });
        self.kernel.told(world.clock_of(self.host).mono, &asked.what, found);
        let syncs = matches!(
            asked.what,
            Operation::Sync { .. } | Operation::SyncAll | Operation::SyncNames | Operation::End
        );
        if syncs {
            recorder.synced(self.session, asked.invoked, result.is_ok());
            self.perhaps_die_after_sync(world, result.is_ok());
        }
        match asked.worker {
            None => self.finished.push_back((ticket, result)),
            Some(worker) => {
                self.workers[worker].busy = false;
                worker::finished(self, world, recorder, worker, asked, result);
                self.think(world, worker);
            }
        }
        for parked in 0..self.workers.len() {
            if std::mem::take(&mut self.workers[parked].parked) {
                let life = world.life(self.host);
                world.after(1_000, Happening::Go(self.host, life, parked));
            }
        }
    }

    // --- the machine ---

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, recorder: &mut Recorder, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        let Sender::Server(server) = packet.sender else { return };
        let mut attachment = Some(packet.attachment);
        for message in packet.messages {
            match &message {
                Message::Reply(reply) => recorder.replied(world, self.session, reply),
                Message::DataReply(reply) => recorder.data_replied(self.session, reply),
                _ => {}
            }
            let event = Event::Message {
                from: Target::Server(server),
                message,
                attachment: attachment.take().unwrap_or_default(),
            };
            self.step(world, recorder, event);
        }
    }

    /// The machine wanted to be woken now.
    pub fn wake(&mut self, world: &mut World, recorder: &mut Recorder) {
        if self.wake_at == Some(world.now()) {
            self.wake_at = None;
            self.step(world, recorder, Event::Tick);
        }
    }

    /// The kernel has taken an invalidation.
    pub fn done(&mut self, world: &mut World, recorder: &mut Recorder, number: u64) {
        let Some(what) = self.invalidating.remove(&number) else { return };
        self.kernel.invalidate(number, what);
        self.tell_invalidated(world, recorder);
    }

    fn tell_invalidated(&mut self, world: &mut World, recorder: &mut Recorder) {
        for number in self.kernel.invalidated() {
            self.step(world, recorder, Event::Invalidated(number));
        }
    }

    fn step(&mut self, world: &mut World, recorder: &mut Recorder, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front().filter(|_| self.dying.is_none()) {
            let Some(machine) = &mut self.machine else { return };
            let mut out = Vec::new();
            machine.step(world.clock_of(self.host), event, &mut out);
            for command in out {
                world.commanded(self.host, &command);
                self.carry_out(world, recorder, command, &mut events);
                if self.dying.is_some() {
                    break;
                }
            }
            for host in self.post.flush(world) {
                if let Some(server) = self.hosts.entry(host).map(|entry| entry.server) {
                    world.counts.add("client: unreachable hints");
                    events.push_back(Event::Unreachable(server));
                }
            }
            events.extend(self.kernel.invalidated().into_iter().map(Event::Invalidated));
        }
        self.set_wake(world);
    }

    fn carry_out(
        &mut self,
        world: &mut World,
        recorder: &mut Recorder,
        command: Command,
        events: &mut VecDeque<Event>,
    ) {
        match command {
            Command::Send { to, transport, message, attachment } => {
                match &message {
                    Message::Request(request) => {
                        world.tell(|| format!("{:?} asks {request:?}", self.host));
                        recorder.sent(world, self.host, self.session, request);
                    }
                    Message::Data(request) => recorder.data_sent(self.session, request, &attachment),
                    _ => {}
                }
                self.send(world, to, transport, &message, &attachment, events);
            }
            Command::Finish(ticket, result) => self.finish(world, recorder, ticket, result),
            Command::Invalidate { number, what } => {
                world.counts.add("kernel: invalidations");
                self.invalidating.insert(number, what);
                let delay = self.rng.between(5_000, 300_000);
                let life = world.life(self.host);
                world.after(delay, Happening::Done(self.host, life, number));
            }
            Command::Decided(step) => {
                world.counts.add("client: changes decided in delegated directories");
                recorder.decided(world, self.host, self.session, &step);
                self.decided = true;
            }
            Command::Enrol => {
                self.enrol(world);
                events.push_back(Event::Enrolled(self.session));
            }
            Command::Servers(..) => {}
            Command::Note(note) => self.note(world, recorder, note),
        }
    }

    fn send(
        &mut self,
        world: &mut World,
        to: Target,
        transport: Transport,
        message: &Message,
        bulk: &[u8],
        events: &mut VecDeque<Event>,
    ) {
        let server = match to {
            Target::Server(server) => server,
            // The network's tables may be older than what the client knows, or newer: then it comes to a
            // server that it is not sealed for, which does not take it.
            Target::Carried(position, server) => match world.carried_to(position) {
                Some(owner) if owner == server => server,
                _ => {
                    return world.counts.add("network: a request came to a server that it is not sealed for");
                }
            },
            Target::AnySeed => {
                self.next_seed = self.next_seed % crate::cluster::METADATA + 1;
                bearing_types::ServerId(u32::from(self.next_seed))
            }
        };
        let Some(host) = self.hosts.host_of(server) else { return };
        let way = match transport {
            Transport::Datagram => Way::Datagram,
            Transport::Stream => Way::Stream,
        };
        if !self.post.send(world, host, Sender::Server(server), way, message, bulk) {
            world.counts.add("client: unreachable hints");
            events.push_back(Event::Unreachable(server));
        }
    }

    /// The handshake, which is no part of the simulation: a session, or another one if servers ended the
    /// last.
    fn enrol(&mut self, world: &mut World) {
        if std::mem::take(&mut self.session_lost) {
            world.counts.add("client: went on with another session");
            self.session = SessionId(self.rng.next());
            world.learn_session(self.session, self.host);
            self.post = Post::new(self.host, Sender::Client(self.session));
        }
    }

    /// Servers have ended the session. For the history it is as if the client had died: what was under way is
    /// answered by nothing but EIO. Its kernel lives on.
    fn lose_session(&mut self, world: &mut World, recorder: &mut Recorder) {
        world.counts.add("client: session lost");
        self.session_lost = true;
        self.written.clear();
        self.write_outs.clear();
        recorder.client_died(world, self.host);
        let asked = std::mem::take(&mut self.asked);
        for (ticket, asked) in asked {
            if asked.worker.is_none() {
                self.asked.insert(ticket, asked);
            } else {
                self.kernel.unlock(&asked.locks);
                self.abandoned.insert(ticket);
            }
        }
        for worker in 0..self.workers.len() {
            self.workers[worker] = Worker { program: Program::Idle, parked: false, busy: false };
            self.think(world, worker);
        }
    }

    fn note(&mut self, world: &mut World, recorder: &mut Recorder, note: Note) {
        world.tell(|| format!("{:?} {note:?}", self.host));
        match note {
            Note::SessionLost => self.lose_session(world, recorder),
            Note::SessionOver(code) => {
                world.counts.add(&format!("client: session over ({code:?})"));
                self.restart_wanted = true;
            }
            Note::Step(name) => {
                if self.crash_points.meet(&mut world.counts, &mut self.rng, "client ", name) {
                    self.dying = Some(format!("a crash at {name:?}"));
                }
            }
            Note::StepsRefused(code) => {
                let what = format!("a server refused what {:?} decided: {code:?}", self.host);
                recorder.complaints.push(Complaint { promise: Promise::DecidedAlike, what });
            }
            Note::StepsLost(count) => {
                world.counts.add_many("client: decided changes lost", count);
                self.steps_lost = true;
            }
            Note::WriteOut(node) => {
                let begun = self.write_outs.entry(node).or_default();
                begun.push(world.true_mono());
                // Only the last ones can be asked for.
                begun.drain(..begun.len().saturating_sub(16));
            }
            Note::WritesLost(node, code) => {
                world.counts.add("client: buffered writes lost");
                if !self.steps_lost {
                    recorder.writes_lost(self.host, node, code);
                }
                worker::writes_lost(self, node);
            }
            Note::SessionOpen(_)
            | Note::MapTaken(_)
            | Note::ChunkLost(_)
            | Note::ReplicaPassedOver(_)
            | Note::Looked { .. } => {}
        }
    }

    fn set_wake(&mut self, world: &mut World) {
        let Some(due) = self.machine.as_ref().and_then(Client::next_wake) else { return };
        let at = world.when(self.host, due);
        if self.wake_at.is_none_or(|set| at < set) {
            self.wake_at = Some(at);
            let life = world.life(self.host);
            world.at(at, Happening::Wake(self.host, life));
        }
    }
}

fn without_bytes(operation: &Operation) -> Operation {
    match operation {
        Operation::Write { file, offset, set_ids, .. } => {
            Operation::Write { file: *file, offset: *offset, bytes: Vec::new(), set_ids: *set_ids }
        }
        other => other.clone(),
    }
}
