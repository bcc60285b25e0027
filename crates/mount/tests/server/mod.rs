//! A server in a thread, for tests of the mount: one tablet, one root directory, and as many files as are
//! asked for. What it does wrong is up to the test.

use bearing_env::handshake::{Heard, Responder};
use bearing_env::{Clock, Destination, Endpoint, Incoming, Transport, Waker};
use bearing_placement::{Assignment, LookupKind, Scheme, Seat};
use bearing_proto::client::{
    Answer, Body, Call, ClusterMap, DirectoryView, EntryView, Handle, LeaseMs, NodeView, Reply, Request,
    ServerEntry, ServerKind, StatfsView,
};
use bearing_proto::envelope::{self, Message, Sender, Stamp, Start, Versions};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::hello;
use bearing_proto::keys::{Key, ServerKeys};
use bearing_types::{
    AclHash, Attributes, Block, Epoch, FileType, FilesystemId, Gid, MapVersion, Mode, Name, NameKey, NodeId,
    Position, ServerId, SessionId, Uid, Wall,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No test waits longer.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The server's id.
pub const SERVER: ServerId = ServerId(1);
/// The enrolment secret that it knows.
pub fn secret() -> Key {
    Key::new([7; 32])
}

fn keys() -> ServerKeys {
    ServerKeys::new(&Key::new([8; 32]), secret())
}

const START: Start = Start(5);

/// How the server misbehaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// It ignores the first copy of every n-th lookup.
    pub loses_every: Option<u64>,
    /// It answers lookups only when so many wait, the last first.
    pub answers_in_reversed_groups_of: Option<usize>,
    /// It answers a statfs by datagram with "too large".
    pub statfs_by_stream_only: bool,
    /// It speaks another version of the protocol.
    pub speaks: Option<u16>,
}

/// What the server saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests other than renewals, in their order.
    pub requests: Vec<Request>,
    /// How many requests each packet held.
    pub packed: Vec<usize>,
    /// Numbers of recalls that were answered.
    pub recalled: Vec<u64>,
    /// By which transports statfs was asked.
    pub statfs: Vec<Transport>,
    /// The client.
    pub client: Option<(SessionId, Destination)>,
}

struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    /// Messages that the test wants to be sent to the client.
    outbox: Mutex<Vec<Message>>,
    is_over: Mutex<bool>,
}

/// See the module. It ends when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server.
    pub fn start(manners: Manners) -> Server {
        let endpoint = Endpoint::server("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, waker) = (endpoint.local_address(), endpoint.waker());
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            changed: Condvar::new(),
            outbox: Mutex::default(),
            is_over: Mutex::new(false),
        });
        let speaks = manners.speaks.map_or(Versions::SPOKEN, |only| Versions { lowest: only, highest: only });
        let run = Run {
            shared: shared.clone(),
            endpoint,
            address,
            manners,
            lookups: 0,
            held: Vec::new(),
            responder: Responder::new(SERVER, speaks, keys(), Duration::from_secs(3600)),
            counter: 0,
            sessions: BTreeMap::new(),
        };
        let thread = Some(std::thread::spawn(move || run.run()));
        Server { shared, address, waker, thread }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it saw so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen.lock().unwrap()
    }

    /// Waits until it has seen something.
    pub fn wait_until(&self, what: &str, is_there: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen();
        while !is_there(&seen) {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("the server did not see {what}: {seen:?}"));
            seen = self.shared.changed.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Sends a message to the client.
    pub fn say(&self, message: Message) {
        self.shared.outbox.lock().unwrap().push(message);
        self.waker.wake();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.shared.is_over.lock().unwrap() = true;
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}

struct Run {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    address: SocketAddr,
    manners: Manners,
    lookups: u64,
    held: Vec<(SessionId, Incoming, Message)>,
    responder: Responder,
    counter: u64,
    sessions: BTreeMap<SessionId, Key>,
}

impl Run {
    fn run(mut self) {
        let mut incoming = Vec::new();
        while !*self.shared.is_over.lock().unwrap() {
            self.endpoint.receive(None, &mut incoming).unwrap();
            for packet in std::mem::take(&mut incoming) {
                self.take(packet);
            }
            let said = std::mem::take(&mut *self.shared.outbox.lock().unwrap());
            let client = self.shared.seen.lock().unwrap().client;
            if let (Some((session, to)), false) = (client, said.is_empty()) {
                self.send(session, to, Transport::Datagram, &said);
            }
            self.endpoint.flush().unwrap();
        }
    }

    fn take(&mut self, packet: Incoming) {
        if hello::is_handshake(&packet.bytes) {
            let heard = self.responder.take(Clock.now(), packet.peer, START, &packet.bytes, |_| Some(false));
            if let Heard::Answer(answer) | Heard::Refusal(_, answer) = heard {
                self.endpoint.send(packet.from, packet.transport, &answer).unwrap();
            }
            return;
        }
        let header = envelope::header(&packet.bytes).unwrap();
        let Sender::Client(session) = header.sender else { return };
        if let Some(ticket) = self.responder.open_ticket(envelope::ticket(&packet.bytes, &header)) {
            self.sessions.insert(session, ticket.secret);
        }
        let opened =
            envelope::open_with(&packet.bytes, packet.bulk.clone(), self.sessions.get(&session)).unwrap();
        if let Destination::Connection(connection) = packet.from {
            self.endpoint.vouch(connection, bearing_env::Peer::Client(session.0));
        }
        if opened.messages.is_empty() {
            return;
        }
        let (mut replies, mut requests) = (Vec::new(), 0);
        for message in opened.messages {
            let mut seen = self.shared.seen.lock().unwrap();
            seen.client = Some((session, packet.from));
            match message {
                Message::Recalled(recalled) => seen.recalled.push(recalled.number),
                Message::Request(request) => {
                    requests += 1;
                    seen.requests.push(request.clone());
                    if request.call == Call::Statfs {
                        seen.statfs.push(packet.transport);
                    }
                    drop(seen);
                    replies.extend(self.answer(session, &packet, request));
                }
                _ => {}
            }
        }
        self.shared.seen.lock().unwrap().packed.push(requests);
        self.shared.changed.notify_all();
        if !replies.is_empty() {
            self.send(session, packet.from, packet.transport, &replies);
        }
    }

    fn send(&mut self, session: SessionId, to: Destination, transport: Transport, messages: &[Message]) {
        let mut packing = envelope::Packing::new();
        messages.iter().for_each(|message| assert!(packing.push(message, envelope::PACKET_BYTES_MAX)));
        self.counter += 1;
        let stamp = Stamp {
            version: envelope::VERSION,
            sender: Sender::Server(SERVER),
            counter: self.counter,
            from: START,
            to: 0,
            ticket: &[],
        };
        let bytes = packing.seal(&stamp, self.sessions.get(&session), &[]);
        self.endpoint.send(to, transport, &bytes).unwrap();
    }

    /// The reply to send at once, if there is one.
    fn answer(&mut self, session: SessionId, packet: &Incoming, request: Request) -> Option<Message> {
        let is_lookup = matches!(request.call, Call::Lookup { .. });
        if is_lookup {
            self.lookups += 1;
            if self.manners.loses_every.is_some_and(|every| self.lookups.is_multiple_of(every)) {
                return None;
            }
        }
        let too_large = request.call == Call::Statfs
            && self.manners.statfs_by_stream_only
            && packet.transport == Transport::Datagram;
        let answer = if too_large {
            Answer::TooLarge
        } else {
            let body = self.body(session, request.call)?;
            Answer::Done {
                tablet: Block::RING,
                epoch: Epoch(1),
                result: Ok(Box::new(body)),
                changed: Vec::new(),
            }
        };
        let reply = Message::Reply(Reply { sequence: request.sequence, answer });
        match self.manners.answers_in_reversed_groups_of {
            Some(count) if is_lookup => {
                self.held.push((session, packet.clone(), reply));
                if self.held.len() >= count {
                    for (session, packet, reply) in std::mem::take(&mut self.held).into_iter().rev() {
                        self.send(session, packet.from, packet.transport, &[reply]);
                    }
                }
                None
            }
            _ => Some(reply),
        }
    }

    fn body(&self, session: SessionId, call: Call) -> Option<Body> {
        Some(match call {
            Call::OpenSession | Call::RenewSession => Body::Session { renew_within_ms: 60_000 },
            Call::CloseSession => Body::Done,
            Call::Map { .. } => Body::Map(Some(Box::new(ClusterMap {
                version: MapVersion(1),
                assignment: Assignment::even(&[SERVER], 0, 1).unwrap(),
                servers: vec![ServerEntry {
                    server: SERVER,
                    kind: ServerKind::Metadata,
                    address: self.address,
                }],
                lookup: LookupKind::ClientMap,
                prefix: None,
            }))),
            Call::Root { .. } | Call::Directory { .. } => Body::Directory(Box::new(root(session))),
            Call::Lookup { name, .. } => Body::Entry(entry(&name), None),
            Call::Statfs => Body::Statfs(StatfsView { bytes_total: 1 << 40, bytes_free: 1 << 39 }),
            _ => return None,
        })
    }
}

/// The number of the node that a name means: files are named by it.
pub fn node_of(name: &Name) -> u64 {
    String::from_utf8_lossy(name.as_bytes()).parse().unwrap()
}

fn node(node: u64, file_type: FileType) -> NodeView {
    let attributes = Attributes::new(file_type, Mode::new(0o755), (Uid(0), Gid(0)), Wall(0));
    let node = Handle { node: NodeId(node), home: Position(0) };
    NodeView { node, attributes, lease: LeaseMs(600_000), may_open: true, extended: false }
}

fn entry(name: &Name) -> EntryView {
    let view = node(node_of(name), FileType::Regular);
    EntryView {
        node: view.node,
        file_type: FileType::Regular,
        lease: LeaseMs(600_000),
        attributes: Some(view),
        directory: None,
    }
}

fn root(session: SessionId) -> DirectoryView {
    let view = node(1, FileType::Directory);
    let body = GrantBody {
        filesystem: FilesystemId(1),
        name_key: NameKey(5),
        session,
        seat: Seat::root(NodeId(1), Scheme::AnglecutHashed.seating()),
        access: view.attributes.access(),
        access_version: bearing_types::Version(0),
        acl: AclHash(0),
        quota: None,
        expires: Wall(i64::MAX),
    };
    DirectoryView {
        parent: view.node,
        grant: Grant::sign(body, &Key::new([9; 32])),
        access_lease: LeaseMs(600_000),
        node: view,
    }
}
