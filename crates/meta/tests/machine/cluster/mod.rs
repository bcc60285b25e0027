//! A small cluster of metadata servers in one thread, without faults: messages arrive in order, syncs succeed
//! at once. Faults are the simulator's business.

pub mod chunks;
mod coordinator;
pub mod delegations;
pub mod disks;
pub mod members;

use bearing_meta::{AppendNumber, Command, Config, Event, LoadResult, MetaServer, Note, recover};
use bearing_placement::{Assignment, Scheme, position_of_session};
use bearing_proto::client::{
    Answer, Body, Call, ChunkView, Detail, DirectoryView, Extent, FilesystemRecord, Handle, LockFree,
    NewNode, OpenStateQuery, Recall, RenameMode, Reply, Request, ServerEntry, ServerKind,
};
use bearing_proto::coordinator::{
    FILESYSTEM_KEY, RegisterValue, Told, decode_register, encode_register, server_key, tablet_key,
};
use bearing_proto::data::{DataBody, DataError, DataReply, DataRequest};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, Grant, OpenToken};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::questions::Unanswered;
use bearing_proto::registrar::Registrar;
use bearing_seams::{
    Coordinator, DiskLabel, EngineError, MemCoordinator, MemStore, MemTabletLog, RegisterChange, Store,
    TabletLog,
};
use bearing_types::{
    Block, ChunkId, Code, Credentials, DiskId, Epoch, FileType, FilesystemId, Mode, Mono, Name, NameHash,
    NameKey, NodeId, Now, Position, Sequence, ServerId, SessionId, Squash, TabletSerial, Wall,
};
use members::digested;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub struct Host {
    pub machine: MetaServer,
    pub store: MemStore,
    pub log: MemTabletLog,
}

pub type DataAnswers = Box<dyn FnMut(ServerId, &DataRequest) -> Option<Result<DataBody, DataError>>>;

pub struct Cluster {
    config: Config,
    pub now: Now,
    pub hosts: BTreeMap<ServerId, Host>,
    coordinator: MemCoordinator,
    registrar: Registrar,
    /// How often a server said that the registers are older than what it knows.
    pub older_registers: usize,
    pub replies: BTreeMap<(SessionId, Sequence), Reply>,
    pub recalls: Vec<(SessionId, Recall)>,
    pub open_state_queries: Vec<(SessionId, OpenStateQuery)>,
    pub free: Vec<(SessionId, LockFree)>,
    /// What clients say they have open.
    pub open: std::collections::BTreeSet<(SessionId, NodeId)>,
    /// The smallest number of a request that its client may send again.
    pub repeated_from: Option<Sequence>,
    events: VecDeque<(ServerId, Event)>,
    pub next_sequence: u64,
    /// Recalls and open-state queries are answered at once.
    pub obedient: bool,
    /// What data servers answer; `None`: nothing.
    pub data: DataAnswers,
    /// A data server that hears what the others are asked, and answers first.
    pub overheard_by: Option<ServerId>,
    /// How far servers' wall clocks are ahead of `now`, in nanoseconds.
    pub ahead: BTreeMap<ServerId, i64>,
    /// Messages between servers do not arrive for now.
    pub hold_peers: bool,
    /// Nothing goes these ways between servers, and to the coordinator.
    pub cut: std::collections::BTreeSet<(ServerId, ServerId)>,
    held_peers: Vec<(ServerId, Event)>,
    pub kept_replication: Option<Vec<(ServerId, Event)>>,
    /// Logs are not synced for now.
    pub hold_syncs: bool,
    pub hung_log: Option<ServerId>,
    held_syncs: BTreeMap<ServerId, AppendNumber>,
    /// Stores answer only after so long.
    pub stores_take: Duration,
    late_loads: VecDeque<(Mono, ServerId, Event)>,
    /// The coordinator takes so long for each question.
    pub coordinator_takes: Duration,
    /// And each listing so long.
    pub listings_take: Duration,
    /// So many swaps came.
    pub swaps_asked: u32,
    /// So many of its next answers to swaps are lost.
    pub swaps_unanswered: u32,
    late_told: VecDeque<(Mono, ServerId, Told)>,
    unanswered: Unanswered,
    /// The key of a record that stores say is damaged.
    pub unreadable: Option<Vec<u8>>,
    /// Whether servers have reason to complain.
    pub may_complain: bool,
    /// What they complained of.
    pub complaints: Vec<Note>,
    /// As whom clients' users count.
    pub squash: Squash,
    /// How many messages of the ring servers have sent.
    pub ring_messages: BTreeMap<ServerId, u32>,
}

/// The data servers.
pub const DATA: [ServerId; 2] = [ServerId(100), ServerId(101)];
pub const NAME_KEY: NameKey = NameKey(7);
pub const ALICE: SessionId = SessionId(11);
pub const BOB: SessionId = SessionId(12);

/// What who opened the chunks of extents got with them.
pub fn filled_by(session: SessionId, extents: &[Extent]) -> Vec<Capability> {
    let chunks: std::collections::BTreeSet<ChunkId> =
        extents.iter().map(|extent| extent.chunk.chunk).collect();
    chunks.into_iter().map(|chunk| opened_by(session, chunk)).collect()
}

/// What who opened a chunk got with it.
pub fn opened_by(session: SessionId, chunk: ChunkId) -> Capability {
    let right = DataRight::append(Epoch(1), &[]);
    Capability::sign(CapabilityBody { session, chunk, right, expires: Wall(0) }, keys().grants())
}

pub fn keys() -> ServerKeys {
    ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]))
}

fn encode<T: RegisterValue>(value: &T) -> Option<Vec<u8>> {
    Some(encode_register(value))
}

impl Cluster {
    pub fn new(servers: u32, scheme: Scheme) -> Cluster {
        Cluster::with_config(servers, scheme, members::still())
    }

    pub fn with_config(servers: u32, scheme: Scheme, config: Config) -> Cluster {
        Cluster::with_data(servers, scheme, config, &DATA)
    }

    /// The same with these data servers.
    pub fn with_data(servers: u32, scheme: Scheme, config: Config, data: &[ServerId]) -> Cluster {
        Cluster::made(servers, scheme, config, data, 1)
    }

    fn made(servers: u32, scheme: Scheme, config: Config, data: &[ServerId], copies: u8) -> Cluster {
        let ids: Vec<ServerId> = (1..=servers).map(ServerId).collect();
        let mut coordinator = MemCoordinator::new();
        let mut put = |key: String, value| {
            coordinator.swap(&[RegisterChange::new(key, None, value)]).unwrap();
        };
        for tablet in Assignment::even(&ids, 4, usize::from(copies)).unwrap().tablets() {
            put(tablet_key(tablet.block), encode(tablet));
        }
        let filesystem = FilesystemRecord {
            filesystem: FilesystemId(1),
            name_key: NAME_KEY,
            scheme,
            root: NodeId::ROOT,
            data_copies: 2,
            metadata_copies: copies,
        };
        put(FILESYSTEM_KEY.to_owned(), encode(&filesystem));
        let data = data.iter().map(|server| (*server, ServerKind::Data));
        for (server, kind) in ids.iter().map(|id| (*id, ServerKind::Metadata)).chain(data) {
            let entry = ServerEntry { server, kind, address: "127.0.0.1:1".parse().unwrap() };
            put(server_key(server), encode(&entry));
        }
        let mut cluster = Cluster {
            config,
            now: Now { mono: Mono(1), wall: Wall(1_000_000_000_000) },
            hosts: BTreeMap::new(),
            coordinator,
            registrar: Registrar::default(),
            older_registers: 0,
            replies: BTreeMap::new(),
            recalls: Vec::new(),
            open_state_queries: Vec::new(),
            free: Vec::new(),
            open: std::collections::BTreeSet::new(),
            repeated_from: None,
            events: VecDeque::new(),
            next_sequence: 1,
            obedient: true,
            data: Box::new(|_, _| {
                Some(Ok(DataBody::Space {
                    used: 0,
                    free: 1 << 30,
                    filesystem: None,
                    damaged: Vec::new(),
                    life: 1,
                    waiting: 0,
                }))
            }),
            overheard_by: None,
            ahead: BTreeMap::new(),
            hold_peers: false,
            cut: std::collections::BTreeSet::new(),
            kept_replication: None,
            held_peers: Vec::new(),
            hold_syncs: false,
            hung_log: None,
            stores_take: Duration::ZERO,
            late_loads: VecDeque::new(),
            coordinator_takes: Duration::ZERO,
            listings_take: Duration::ZERO,
            swaps_asked: 0,
            swaps_unanswered: 0,
            late_told: VecDeque::new(),
            unanswered: Unanswered::default(),
            held_syncs: BTreeMap::new(),
            unreadable: None,
            may_complain: false,
            complaints: Vec::new(),
            squash: Squash::None,
            ring_messages: BTreeMap::new(),
        };
        for id in ids {
            cluster.start(id, MemStore::new(), MemTabletLog::new());
        }
        cluster.pass(Duration::from_millis(200));
        cluster
    }

    fn start(&mut self, id: ServerId, mut store: MemStore, mut log: MemTabletLog) {
        let fresh = DiskId(u128::from(self.now.mono.0 << 8 | u64::from(id.0)));
        let recovered = recover(&mut store, &mut log, fresh, &self.config).unwrap();
        let machine = MetaServer::new(id, self.config.clone(), keys());
        self.hosts.insert(id, Host { machine, store, log });
        self.events.push_back((id, Event::Start(recovered)));
        self.settle();
    }

    /// Puts records into a server's store behind its back: it is started again with them.
    pub fn plant(
        &mut self,
        id: ServerId,
        tablet: Block,
        records: &[(bearing_meta::Key, bearing_meta::Record)],
    ) {
        let Host { mut store, log, .. } = self.hosts.remove(&id).unwrap();
        let tablet = serial(tablet);
        let applied = store.applied(tablet).unwrap().unwrap();
        let change = |(key, record): &(bearing_meta::Key, bearing_meta::Record)| bearing_seams::Change {
            key: key.encode(),
            value: Some(record.encode()),
        };
        store.apply(tablet, applied, &records.iter().map(change).collect::<Vec<_>>()).unwrap();
        self.start(id, store, log);
        self.pass(Duration::from_millis(200));
    }

    /// Changes the stored value of a record that is not cached any more: the server is started again from it.
    pub fn damage(&mut self, id: ServerId, tablet: Block, key: &[u8], damage: impl FnOnce(&mut Vec<u8>)) {
        // What is committed is in the stores after the next upkeep.
        self.pass(Duration::from_millis(50));
        let Host { mut store, log, .. } = self.hosts.remove(&id).unwrap();
        let tablet = serial(tablet);
        let mut value = store.get(tablet, key).unwrap().expect("the record is in the store");
        damage(&mut value);
        let applied = store.applied(tablet).unwrap().unwrap();
        store
            .apply(tablet, applied, &[bearing_seams::Change { key: key.to_vec(), value: Some(value) }])
            .unwrap();
        self.start(id, store, log);
        self.pass(Duration::from_millis(200));
    }

    /// Kills a server and starts it again from what it has logged.
    pub fn restart(&mut self, id: ServerId) {
        let Host { store: _, mut log, .. } = self.hosts.remove(&id).unwrap();
        self.events.retain(|(to, _)| *to != id);
        let mut store = MemStore::new();
        log.disk().unwrap().into_iter().for_each(|disk| store.set_disk(disk).unwrap());
        self.start(id, store, log);
        self.pass(Duration::from_millis(200));
    }

    /// Kills a server and starts it again on another disk.
    pub fn replace_disk(&mut self, id: ServerId, store: MemStore, log: MemTabletLog) {
        self.hosts.remove(&id);
        self.events.retain(|(to, _)| *to != id);
        self.start(id, store, log);
    }

    /// Removes a register behind the servers' backs.
    pub fn remove_register(&mut self, key: &str) {
        let entry = self.coordinator.read(key).unwrap().expect("the register is there");
        self.coordinator.swap(&[RegisterChange::new(key, Some(entry.version), None)]).unwrap();
        self.tell_news();
    }

    /// Lets time pass in which these sessions are renewed.
    pub fn pass_with(&mut self, sessions: &[SessionId], duration: Duration) {
        let mut left = duration;
        while !left.is_zero() {
            for session in sessions {
                let home = bearing_placement::position_of_session(*session);
                self.call(*session, home, Call::RenewSession).unwrap();
            }
            let step = left.min(Duration::from_secs(5));
            self.pass(step);
            left -= step;
        }
    }

    /// Time passes in which nobody does anything, as if all processes were stopped.
    pub fn stop_for(&mut self, duration: Duration) {
        self.now = Now { mono: self.now.mono.after(duration), wall: self.now.wall.after(duration) };
    }

    /// Lets time pass, in steps small enough for every timer.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now.mono.after(duration);
        while self.now.mono < end {
            let step = Duration::from_millis(5);
            self.now = Now { mono: self.now.mono.after(step), wall: self.now.wall.after(step) };
            while self.late_loads.front().is_some_and(|(due, ..)| *due <= self.now.mono) {
                self.events.extend(self.late_loads.pop_front().map(|(_, id, loaded)| (id, loaded)));
            }
            self.tell_due();
            let ids: Vec<ServerId> = self.hosts.keys().copied().collect();
            self.events.extend(ids.into_iter().map(|id| (id, Event::Tick)));
            self.settle();
        }
    }

    pub fn send(&mut self, id: ServerId, event: Event) {
        self.events.push_back((id, event));
        self.settle();
    }

    fn settle(&mut self) {
        while let Some((id, event)) = self.events.pop_front() {
            let mut commands = Vec::new();
            let Some(host) = self.hosts.get_mut(&id) else { continue };
            let ahead = self.ahead.get(&id).copied().unwrap_or(0);
            let now = Now { wall: Wall(self.now.wall.0 + ahead), ..self.now };
            host.machine.step(now, event, &mut commands);
            self.run(id, commands);
        }
    }

    fn run(&mut self, id: ServerId, commands: Vec<Command>) {
        let mut appended = None;
        for command in commands {
            let Some(host) = self.hosts.get_mut(&id) else { return };
            match command {
                Command::Reply(session, reply) => {
                    self.replies.insert((session, reply.sequence), reply);
                }
                Command::Recall(session, recall) => {
                    if self.obedient {
                        let recalled = bearing_proto::client::Recalled {
                            tablet: recall.tablet,
                            epoch: recall.epoch,
                            number: recall.number,
                            finished_below: self.finished_below(),
                            open: self.open_files(session),
                        };
                        self.events.push_back((id, Event::Recalled(session, recalled)));
                    }
                    self.recalls.push((session, recall));
                }
                Command::Peer(to, _) | Command::Replication(to, _) | Command::Ring(to, _)
                    if self.cut.contains(&(id, to)) => {}
                Command::Ask(_) if self.cut.contains(&(id, members::COORDINATOR)) => {}
                Command::Peer(to, message) if self.hold_peers => {
                    self.held_peers.push((to, Event::Peer(id, message)));
                }
                Command::OpenStateQuery(session, open_state_query) => {
                    if self.obedient {
                        let open_state = bearing_proto::client::OpenState {
                            tablet: open_state_query.tablet,
                            epoch: open_state_query.epoch,
                            number: open_state_query.number,
                            finished_below: self.finished_below(),
                            open: self.open_files(session),
                        };
                        self.events.push_back((id, Event::OpenState(session, open_state)));
                    }
                    self.open_state_queries.push((session, open_state_query));
                }
                Command::LockFree(session, free) => self.free.push((session, free)),
                Command::Peer(to, message) => self.events.push_back((to, Event::Peer(id, message))),
                Command::Replication(to, message) => {
                    if let Some(kept) = &mut self.kept_replication {
                        kept.push((to, Event::Replication(id, message.clone())));
                    }
                    self.events.push_back((to, Event::Replication(id, message)));
                }
                Command::Ring(to, message) => {
                    *self.ring_messages.entry(id).or_default() += 1;
                    self.events.push_back((to, Event::Ring(id, message)));
                }
                Command::Data(server, request, _) => {
                    let overheard_by = self.overheard_by.filter(|other| *other != server);
                    for server in overheard_by.into_iter().chain([server]) {
                        if let Some(result) = (self.data)(server, &request) {
                            let reply = DataReply { id: request.id, result };
                            self.events.push_back((id, Event::Data(server, reply)));
                        }
                    }
                }
                Command::Ask(ask) => self.ask(id, ask),
                Command::Append(number, record) => {
                    host.log.append(&[record]).unwrap();
                    appended = Some(number);
                }
                Command::Load { ticket, keys, .. }
                    if self.unreadable.as_ref().is_some_and(|key| keys.contains(key)) =>
                {
                    let error = EngineError::Corrupt { what: "a block of the store".to_owned() };
                    self.events.push_back((id, Event::Loaded(ticket, Err(error))));
                }
                Command::Load { ticket, tablet, keys, ranges } => {
                    let loaded = LoadResult::read(&mut host.store, tablet, &keys, &ranges);
                    match self.stores_take {
                        Duration::ZERO => self.events.push_back((id, Event::Loaded(ticket, loaded))),
                        take => {
                            let due = self.now.mono.after(take);
                            self.late_loads.push_back((due, id, Event::Loaded(ticket, loaded)));
                        }
                    }
                }
                Command::Apply(tablet, index, changes) => {
                    host.store.apply(tablet, index, &changes).unwrap();
                    self.events.push_back((id, Event::Applied(tablet, index, Ok(()))));
                }
                Command::Digest(at, index) => self.events.push_back((id, digested(host, at, index))),
                Command::SetDisk(disk) => {
                    host.store.set_disk(disk).unwrap();
                    host.log.set_disk(disk).unwrap();
                }
                Command::CreateTablet(tablet) => host.store.create_tablet(tablet).unwrap(),
                Command::RemoveTablet(tablet) => host.store.remove_tablet(tablet).unwrap(),
                Command::Map(..) => {}
                Command::Note(note) if members::is_complaint(&note) => {
                    assert!(self.may_complain, "{note:?}");
                    self.complaints.push(note);
                }
                Command::Note(Note::OlderRegisters) => self.older_registers += 1,
                Command::Note(_) => {}
            }
        }
        if let Some(number) = appended {
            if self.hold_syncs || self.hung_log == Some(id) {
                self.held_syncs.insert(id, number);
                return;
            }
            self.hosts.get_mut(&id).unwrap().log.sync().unwrap();
            self.events.push_back((id, Event::Synced(number, Ok(()))));
        }
    }

    /// Changes the value of a register behind the servers' backs.
    pub fn change_register(&mut self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut entry = self.coordinator.read(key).unwrap().expect("the register is there");
        change(&mut entry.value);
        let change = RegisterChange::new(key, Some(entry.version), Some(entry.value));
        self.coordinator.swap(&[change]).unwrap();
        self.tell_news();
    }

    /// Who serves a position, under which epoch.
    pub fn owner(&self, position: Position) -> (ServerId, Block, Epoch) {
        let serving = self
            .hosts
            .iter()
            .flat_map(|(id, host)| host.machine.serving().map(move |(block, epoch)| (*id, block, epoch)));
        serving.into_iter().find(|(_, block, _)| block.contains(position)).expect("every position is served")
    }

    /// Asks until there is an answer other than "retry".
    pub fn call(&mut self, session: SessionId, position: Position, call: Call) -> Result<Body, Code> {
        self.next_sequence += 1;
        self.call_as(session, Sequence(self.next_sequence), position, call)
    }

    /// Sends a call once and gives what was answered.
    pub fn answer_of(&mut self, session: SessionId, position: Position, call: Call) -> Option<Answer> {
        self.next_sequence += 1;
        let sequence = Sequence(self.next_sequence);
        let (server, _, epoch) = self.owner(position);
        let request = Request { sequence, finished_below: sequence, position, epoch, call };
        self.send(server, Event::Request(session, self.squash, request));
        self.answer(session, sequence)
    }

    /// The seat of a directory.
    pub fn seat_of(&mut self, session: SessionId, directory: Handle) -> bearing_placement::Seat {
        self.directory(session, directory).unwrap().grant.body.seat
    }

    /// Sends a call once.
    pub fn send_call(&mut self, session: SessionId, position: Position, call: Call) -> Sequence {
        let sequence = self.new_sequence();
        let (server, _, epoch) = self.owner(position);
        let request = Request { sequence, finished_below: Sequence(0), position, epoch, call };
        self.send(server, Event::Request(session, self.squash, request));
        sequence
    }

    /// What was held between servers is lost.
    pub fn lose_peers(&mut self) {
        self.hold_peers = false;
        self.held_peers.clear();
    }

    /// What was held between servers arrives.
    pub fn release_peers(&mut self) {
        self.hold_peers = false;
        self.events.extend(std::mem::take(&mut self.held_peers));
        self.settle();
    }

    /// Logs are synced again, and what was appended meanwhile with them.
    pub fn release_syncs(&mut self) {
        (self.hold_syncs, self.hung_log) = (false, None);
        for (id, number) in std::mem::take(&mut self.held_syncs) {
            let Some(host) = self.hosts.get_mut(&id) else { continue };
            host.log.sync().unwrap();
            self.events.push_back((id, Event::Synced(number, Ok(()))));
        }
        self.settle();
    }

    /// What was answered last to a request.
    pub fn answer(&self, session: SessionId, sequence: Sequence) -> Option<Answer> {
        self.replies.get(&(session, sequence)).map(|reply| reply.answer.clone())
    }

    /// The number of a request that is going to be repeated.
    pub fn new_sequence(&mut self) -> Sequence {
        self.next_sequence += 1;
        let sequence = Sequence(self.next_sequence);
        self.repeated_from.get_or_insert(sequence);
        sequence
    }

    /// All requests below are finished at their clients.
    fn finished_below(&self) -> Sequence {
        self.repeated_from.unwrap_or(Sequence(self.next_sequence + 1))
    }

    fn open_files(&self, session: SessionId) -> Vec<NodeId> {
        self.open.iter().filter(|(opener, _)| *opener == session).map(|(_, node)| *node).collect()
    }

    pub fn call_as(
        &mut self,
        session: SessionId,
        sequence: Sequence,
        position: Position,
        call: Call,
    ) -> Result<Body, Code> {
        for _ in 0..2000 {
            let (server, _, epoch) = self.owner(position);
            let finished_below = self.finished_below().min(sequence);
            let request = Request { sequence, finished_below, position, epoch, call: call.clone() };
            self.replies.remove(&(session, sequence));
            self.send(server, Event::Request(session, self.squash, request));
            if matches!(self.answer(session, sequence), Some(Answer::Retry { .. }) | None) {
                self.pass(Duration::from_millis(5));
            }
            match self.answer(session, sequence) {
                Some(Answer::Done { result, .. }) => return result.map(|body| *body),
                Some(Answer::Retry { .. }) | None => {}
                Some(other) => panic!("{call:?} was answered {other:?}"),
            }
        }
        panic!("{call:?} got no answer");
    }

    // --- what tests say ---

    pub fn open_session(&mut self, session: SessionId) {
        self.call(session, position_of_session(session), Call::OpenSession).unwrap();
    }

    pub fn root(&mut self, session: SessionId) -> DirectoryView {
        let position = bearing_placement::Seat::root(NodeId::ROOT, self.scheme().seating()).home;
        match self.call(session, position, Call::Root { filesystem: FilesystemId(1) }).unwrap() {
            Body::Directory(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn scheme(&mut self) -> Scheme {
        let entry = self.coordinator.read(FILESYSTEM_KEY).unwrap().unwrap();
        decode_register::<FilesystemRecord>(&entry.value).unwrap().scheme
    }

    pub fn directory(&mut self, session: SessionId, directory: Handle) -> Result<DirectoryView, Code> {
        match self.call(session, directory.home, Call::Directory { directory })? {
            Body::Directory(view) => Ok(*view),
            other => panic!("{other:?}"),
        }
    }

    pub fn mkdir(&mut self, session: SessionId, grant: &Grant, name: &str) -> Result<Handle, Code> {
        let call = Call::MakeDirectory {
            grant: grant.clone(),
            who: root_user(),
            name: self::name(name),
            mode: Mode::new(0o755),
        };
        entry(self.call(session, position(grant, name), call))
    }

    pub fn create(&mut self, session: SessionId, grant: &Grant, name: &str) -> Result<Handle, Code> {
        self.create_open(session, grant, name, regular(0o644)).map(|(node, _)| node)
    }

    /// Makes a file and keeps it open.
    pub fn create_open(
        &mut self,
        session: SessionId,
        grant: &Grant,
        text: &str,
        new: NewNode,
    ) -> Result<(Handle, OpenToken), Code> {
        let call = Call::Create { grant: grant.clone(), who: root_user(), name: name(text), new };
        match self.call(session, position(grant, text), call)? {
            Body::Entry(entry, Some(token)) => Ok((entry.node, token)),
            other => panic!("an entry was expected, not {other:?}"),
        }
    }

    /// Makes a directory. Gives its grant, too.
    pub fn make(&mut self, session: SessionId, grant: &Grant, name: &str) -> (Handle, Grant) {
        let node = self.mkdir(session, grant, name).unwrap();
        (node, self.directory(session, node).unwrap().grant)
    }

    /// Opens a chunk of this position's tablet.
    pub fn open_chunk(&mut self, session: SessionId, position: Position) -> ChunkView {
        match self.call(session, position, Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() }) {
            Ok(Body::Chunk(view)) => view,
            other => panic!("a chunk was expected, not {other:?}"),
        }
    }

    /// Seals it.
    pub fn seal_chunk(&mut self, session: SessionId, chunk: &ChunkView) -> ChunkView {
        let call = Call::SealChunk { chunk: chunk.chunk, epoch: chunk.epoch };
        match self.call(session, chunk.chunk.position, call) {
            Ok(Body::Chunk(view)) => view,
            other => panic!("a chunk was expected, not {other:?}"),
        }
    }

    pub fn lookup(&mut self, session: SessionId, grant: &Grant, name: &str) -> Result<Handle, Code> {
        let call = Call::Lookup { grant: grant.clone(), who: root_user(), name: self::name(name) };
        entry(self.call(session, position(grant, name), call))
    }

    /// What a name leads to, or an id that no node has.
    fn node_of(&mut self, session: SessionId, grant: &Grant, name: &str) -> NodeId {
        self.lookup(session, grant, name).map_or(NodeId(u64::MAX), |handle| handle.node)
    }

    pub fn unlink(&mut self, session: SessionId, grant: &Grant, name: &str) -> Result<(), Code> {
        let node = self.node_of(session, grant, name);
        let call = Call::Unlink {
            grant: grant.clone(),
            who: root_user(),
            name: self::name(name),
            node,
            keep_open: false,
        };
        self.call(session, position(grant, name), call).map(|_| ())
    }

    pub fn rmdir(&mut self, session: SessionId, grant: &Grant, name: &str) -> Result<(), Code> {
        let node = self.node_of(session, grant, name);
        let call =
            Call::RemoveDirectory { grant: grant.clone(), who: root_user(), name: self::name(name), node };
        self.call(session, position(grant, name), call).map(|_| ())
    }

    pub fn rename(
        &mut self,
        session: SessionId,
        from: (&Grant, &str),
        to: (&Grant, &str),
    ) -> Result<(), Code> {
        self.rename_as(session, RenameMode::Replace, from, to)
    }

    pub fn exchange(
        &mut self,
        session: SessionId,
        from: (&Grant, &str),
        to: (&Grant, &str),
    ) -> Result<(), Code> {
        self.rename_as(session, RenameMode::Exchange, from, to)
    }

    fn rename_as(
        &mut self,
        session: SessionId,
        mode: RenameMode,
        from: (&Grant, &str),
        to: (&Grant, &str),
    ) -> Result<(), Code> {
        let moved = self.node_of(session, from.0, from.1);
        let replaced = Some(self.node_of(session, to.0, to.1));
        let call = Call::Rename {
            moved,
            replaced,
            source: from.0.clone(),
            source_name: self::name(from.1),
            target: to.0.clone(),
            target_name: self::name(to.1),
            who: root_user(),
            mode,
            keep_open: false,
        };
        self.call(session, position(to.0, to.1), call).map(|_| ())
    }

    pub fn link(
        &mut self,
        session: SessionId,
        node: Handle,
        grant: &Grant,
        name: &str,
    ) -> Result<Handle, Code> {
        let call = Call::Link { grant: grant.clone(), who: root_user(), name: self::name(name), node };
        entry(self.call(session, position(grant, name), call))
    }

    pub fn links(&mut self, session: SessionId, node: Handle) -> Result<u32, Code> {
        match self.call(session, node.home, Call::Attributes { node })? {
            Body::Node(view) => Ok(view.attributes.links),
            other => panic!("{other:?}"),
        }
    }

    /// The whole listing, tablet by tablet, in pages of `count_max`.
    pub fn list(&mut self, session: SessionId, grant: &Grant, count_max: u32) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), bearing_types::Cookie::START);
        loop {
            let (list, who) = (grant.clone(), root_user());
            let call = Call::List { grant: list, who, after, count_max, detail: Detail::Attributes };
            let at = grant.body.seat.position_of(after.hash());
            let Body::List { entries, next } = self.call(session, at, call).unwrap() else {
                panic!("a listing")
            };
            let last = entries.last().map(|entry| entry.cookie);
            names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
            let Some(next) = next else { return names };
            after = last.unwrap_or(after).max(bearing_types::Cookie::new(next, 0));
        }
    }
}

/// Under which servers keep the records of a tablet.
pub fn serial(tablet: Block) -> TabletSerial {
    TabletSerial::of_first(tablet).unwrap()
}

/// A regular file that is to be made.
pub fn regular(mode: u32) -> NewNode {
    NewNode { file_type: FileType::Regular, mode: Mode::new(mode), device: 0, target: Vec::new() }
}

/// Runs a test on three servers with sessions of Alice and Bob, under each scheme that a cluster can run.
pub fn both(test: fn(Cluster)) {
    for scheme in Scheme::LIVE {
        let mut cluster = Cluster::new(3, scheme);
        cluster.open_session(ALICE);
        cluster.open_session(BOB);
        test(cluster);
    }
}

pub fn root_user() -> Credentials {
    Credentials::ROOT
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn position(grant: &Grant, text: &str) -> Position {
    grant.body.seat.position_of(NameHash::of(NAME_KEY, &name(text)))
}

fn entry(result: Result<Body, Code>) -> Result<Handle, Code> {
    match result? {
        Body::Entry(entry, _) => Ok(entry.node),
        other => panic!("{other:?}"),
    }
}
