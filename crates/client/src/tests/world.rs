//! A shell without sockets: keeps what the machine sends until a test, or the small servers, answer it.

use crate::*;
use bearing_placement::{Assignment, LookupKind, Scheme, Seat};
use bearing_proto::Message;
use bearing_proto::client::{
    Answer as WireAnswer, Body, Call, ChangedDirectory, ClusterMap, DirectoryView, EntryView, Handle,
    LeaseMs, NodeView, Recall, Reply, Request, ServerEntry, ServerKind,
};
use bearing_proto::grant::{Grant, GrantBody, OpenRights, OpenToken};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::collections::BTreeMap;
use std::time::Duration;

pub const S1: ServerId = ServerId(1);
pub const S2: ServerId = ServerId(2);
pub const NAME_KEY: NameKey = NameKey(77);
pub const SESSION: SessionId = SessionId(42);
/// After this time steps that nobody waits for are sent.
pub const GATHERED: Duration = Duration::from_millis(11);

/// Something the machine sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub to: Target,
    pub transport: Transport,
    pub message: Message,
    pub attachment: Vec<u8>,
}

pub struct World {
    pub client: Client,
    pub now: Now,
    pub sent: Vec<Sent>,
    pub finished: BTreeMap<Ticket, Result<Answer, Code>>,
    pub invalidations: Vec<(u64, Vec<Invalidation>)>,
    pub notes: Vec<Note>,
    /// Servers that were only to hear of the session.
    pub greeted: Vec<Target>,
    /// Nobody agrees on a session.
    pub is_mute: bool,
    next_ticket: u64,
}

impl Sent {
    pub fn request(&self) -> &Request {
        match &self.message {
            Message::Request(request) => request,
            other => panic!("a request was expected, not {other:?}"),
        }
    }
}

impl World {
    pub fn new(config: ClientConfig) -> World {
        World {
            client: Client::new(config, 1),
            now: Now { mono: Mono(1_000_000_000), wall: Wall(1_000_000_000) },
            sent: Vec::new(),
            finished: BTreeMap::new(),
            invalidations: Vec::new(),
            notes: Vec::new(),
            greeted: Vec::new(),
            is_mute: false,
            next_ticket: 1,
        }
    }

    /// A world whose session is open and whose map gives the lower half of the ring to S1 and the upper to
    /// S2.
    pub fn open() -> World {
        World::open_with(config())
    }

    pub fn open_with(config: ClientConfig) -> World {
        let mut world = World::new(config);
        world.step(Event::Tick);
        world.answer_one(Body::Map(Some(Box::new(map()))));
        world.answer_one(Body::Session { renew_within_ms: 30_000 });
        assert!(world.sent.is_empty());
        world
    }

    pub fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        let mut enrols = false;
        self.client.step(self.now, event, &mut out);
        for command in out {
            match command {
                Command::Enrol => enrols = true,
                Command::Send {
                    to,
                    transport: Transport::Datagram,
                    message: Message::Request(request),
                    ..
                } if matches!(request.call, Call::Map { .. }) => {
                    self.greeted.push(to);
                }
                Command::Send { to, transport, message, attachment } => {
                    self.sent.push(Sent { to, transport, message, attachment });
                }
                Command::Finish(ticket, result) => {
                    assert!(self.finished.insert(ticket, result).is_none(), "an operation ends once");
                }
                Command::Invalidate { number, what } => self.invalidations.push((number, what)),
                Command::Servers(..) | Command::Decided(_) => {}
                Command::Note(note) => self.notes.push(note),
            }
        }
        if enrols && !self.is_mute {
            self.step(Event::Enrolled(SESSION));
        }
    }

    pub fn start(&mut self, operation: Operation) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.step(Event::Start(ticket, operation));
        ticket
    }

    pub fn pass(&mut self, duration: Duration) {
        self.now.mono = self.now.mono.after(duration);
        self.now.wall = self.now.wall.after(duration);
        self.step(Event::Tick);
    }

    /// Goes to the next time the machine asked for. `false` if there is none.
    pub fn pass_to_next(&mut self) -> bool {
        let Some(due) = self.client.next_wake() else { return false };
        self.pass(due.since(self.now.mono));
        true
    }

    /// The only thing sent and not answered.
    pub fn take_one(&mut self) -> Sent {
        assert_eq!(self.sent.len(), 1, "{:#?}", self.sent);
        self.sent.remove(0)
    }

    pub fn take_request(&mut self) -> Request {
        self.take_one().request().clone()
    }

    pub fn reply(&mut self, sequence: Sequence, answer: WireAnswer) {
        self.reply_from(Target::Server(S1), sequence, answer);
    }

    pub fn reply_from(&mut self, from: Target, sequence: Sequence, answer: WireAnswer) {
        let message = Message::Reply(Reply { sequence, answer });
        self.step(Event::Message { from, message, attachment: Vec::new() });
    }

    pub fn reply_done(&mut self, request: &Request, result: Result<Body, Code>) {
        let tablet = map().assignment.tablet_at(request.position).clone();
        let (tablet, epoch) = (tablet.block, tablet.epoch);
        let answer = WireAnswer::Done { tablet, epoch, result: result.map(Box::new), changed: Vec::new() };
        self.reply(request.sequence, answer);
    }

    /// Answers a change in the root, and says what became of it.
    pub fn reply_changed(&mut self, request: &Request, body: Body, entries: u64, version: u64, lease: u32) {
        let tablet = map().assignment.tablet_at(request.position).clone();
        let (tablet, epoch, result) = (tablet.block, tablet.epoch, Ok(Box::new(body)));
        let mut node = root_view(lease).node;
        node.attributes.size = entries;
        let changed = vec![ChangedDirectory { node, version: Version(version) }];
        self.reply(request.sequence, WireAnswer::Done { tablet, epoch, result, changed });
    }

    /// The kernel has forgotten what it was to forget.
    pub fn kernel_forgets(&mut self) {
        while !self.invalidations.is_empty() {
            let (number, _) = self.invalidations.remove(0);
            self.step(Event::Invalidated(number));
        }
    }

    /// Answers the only thing sent.
    pub fn answer_one(&mut self, body: Body) -> Request {
        let request = self.take_request();
        self.reply_done(&request, Ok(body));
        request
    }

    pub fn refuse_one(&mut self, code: Code) -> Request {
        let request = self.take_request();
        self.reply_done(&request, Err(code));
        request
    }

    pub fn result(&mut self, ticket: Ticket) -> Result<Answer, Code> {
        self.finished.remove(&ticket).expect("the operation is not over")
    }

    pub fn found(&mut self, ticket: Ticket) -> Found {
        match self.result(ticket) {
            Ok(Answer::Found(found)) => found,
            other => panic!("a node was expected, not {other:?}"),
        }
    }

    pub fn recall(&mut self, number: u64, keys: Vec<bearing_proto::client::LeaseKey>) {
        let tablet = map().assignment.tablet_at(Position(0)).clone();
        let recall = Recall { tablet: tablet.block, epoch: tablet.epoch, number, keys };
        let message = Message::Recall(recall);
        self.step(Event::Message { from: Target::Server(S1), message, attachment: Vec::new() });
    }
}

pub fn config() -> ClientConfig {
    ClientConfig::standard(FilesystemId(1))
}

pub fn map() -> ClusterMap {
    let servers = [(1, ServerKind::Metadata), (2, ServerKind::Metadata), (11, ServerKind::Data)];
    ClusterMap {
        version: MapVersion(1),
        assignment: Assignment::even(&[S1, S2], 1, 1).unwrap(),
        servers: servers
            .map(|(number, kind)| ServerEntry {
                server: ServerId(number),
                kind,
                address: format!("[::1]:{}", 9000 + number).parse().unwrap(),
            })
            .to_vec(),
        lookup: LookupKind::ClientMap,
        prefix: None,
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn root_seat() -> Seat {
    Seat::root(NodeId::ROOT, Scheme::AnglecutHashed.seating())
}

pub fn root() -> Handle {
    Handle { node: NodeId::ROOT, home: root_seat().home }
}

/// Opens a file for reading, as root.
pub fn open_to_read(node: Handle) -> Operation {
    let who = Credentials::ROOT;
    Operation::Open { node, who, read: true, write: false, truncate: false, execute: false }
}

pub fn attributes(file_type: FileType, version: u64) -> Attributes {
    Attributes {
        version: Version(version),
        ..Attributes::new(file_type, Mode::new(0o755), (Uid(0), Gid(0)), Wall(0))
    }
}

/// The root with a lease of so many milliseconds.
pub fn root_view(lease: u32) -> DirectoryView {
    directory_view(root_seat(), lease)
}

pub fn directory_view(seat: Seat, lease: u32) -> DirectoryView {
    let node = Handle { node: seat.node, home: seat.home };
    let attributes = attributes(FileType::Directory, 1);
    let body = GrantBody {
        filesystem: FilesystemId(1),
        name_key: NAME_KEY,
        session: SESSION,
        seat,
        access: attributes.access(),
        access_version: Version(0),
        acl: AclHash(0),
        quota: None,
        expires: Wall(i64::MAX),
    };
    DirectoryView {
        node: NodeView { node, attributes, lease: LeaseMs(lease), may_open: false, extended: false },
        parent: root(),
        grant: Grant::sign(body, &Key::new([9; 32])),
        access_lease: LeaseMs(lease),
    }
}

pub fn hash_of(text: &str) -> NameHash {
    NameHash::of(NAME_KEY, &name(text))
}

/// The file that a name of the root leads to.
pub fn file(node: u64, text: &str) -> Handle {
    Handle { node: NodeId(node), home: root_seat().position_of(hash_of(text)) }
}

pub fn file_view(node: Handle, version: u64, lease: u32) -> NodeView {
    NodeView {
        node,
        attributes: attributes(FileType::Regular, version),
        lease: LeaseMs(lease),
        may_open: true,
        extended: false,
    }
}

/// What comes with a file that was opened for reading.
pub fn read_token(node: Handle) -> OpenToken {
    OpenToken::sign(node.node, SESSION, OpenRights::Read, &Key::new([9; 32]))
}

pub fn entry(node: Handle, lease: u32) -> Body {
    let view = EntryView {
        node,
        file_type: FileType::Regular,
        lease: LeaseMs(lease),
        attributes: Some(file_view(node, 1, lease)),
        directory: None,
    };
    Body::Entry(view, None)
}

pub fn lookup(text: &str) -> Operation {
    Operation::Lookup { directory: root(), name: name(text), who: Credentials::ROOT }
}

/// The root is cached under a long lease.
pub fn with_root_cached() -> World {
    let mut world = World::open();
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    world
}

/// A call's kind, for scripts.
pub fn is_lookup(call: &Call) -> bool {
    matches!(call, Call::Lookup { .. })
}
