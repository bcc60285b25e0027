//! A client made by hand: its packets are well made, and say whatever the test wants.

use super::common::TestCluster;
use bearing_env::handshake::{Initiator, Outcome};
use bearing_env::{Clock, Destination, Endpoint, Incoming, Transport, read_enrolment};
use bearing_placement::{Assignment, position_of_session};
use bearing_proto::client::{
    Answer, Body, Call, ChunkRef, ChunkView, Extent, Handle, LockView, NewNode, Reply, Request,
};
use bearing_proto::data::{DataCall, DataError, DataRequest};
use bearing_proto::envelope::{self, Header, Refusal, Stamp, Start, Versions};
use bearing_proto::freshness::{Next, Sending};
use bearing_proto::grant::{Admission, Capability, OpenToken};
use bearing_proto::keys::Key;
use bearing_proto::ticket::Agreed;
use bearing_proto::{Message, Sender};
use bearing_types::{
    Code, Credentials, FilesystemId, Lock, Name, NameHash, Position, Sequence, ServerId, SessionId,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How long anything is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What was not answered by then is sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// A socket with an address of its own, and what it received and nobody looked at yet.
pub struct Socket {
    endpoint: Endpoint,
    inbox: VecDeque<Incoming>,
}

impl Socket {
    pub fn new() -> Socket {
        Socket { endpoint: Endpoint::client().unwrap(), inbox: VecDeque::new() }
    }

    pub fn send(&mut self, to: SocketAddr, packet: &[u8]) {
        self.endpoint.send(Destination::Address(to), Transport::Datagram, packet).unwrap();
        self.endpoint.flush().unwrap();
    }

    /// The next packet, or none in this time.
    pub fn next(&mut self, patience: Duration) -> Option<Incoming> {
        let deadline = Clock.mono().after(patience);
        let mut incoming = Vec::new();
        loop {
            let left = deadline.since(Clock.mono());
            if self.inbox.is_empty() {
                self.endpoint.receive(Some(left), &mut incoming).unwrap();
                self.inbox.extend(incoming.drain(..));
            }
            if !self.inbox.is_empty() || left.is_zero() {
                return self.inbox.pop_front();
            }
        }
    }

    /// Sends what no server may take, and waits until it says so.
    #[track_caller]
    pub fn is_refused(&mut self, to: SocketAddr, packet: &[u8]) {
        self.send(to, packet);
        let answer = self.next(PATIENCE).expect("a refusal");
        let answer = envelope::open(&answer.bytes, None).expect("something unsigned");
        let [Message::Refused(Refusal::Unauthenticated | Refusal::NeedTicket)] = answer.messages[..] else {
            panic!("{answer:?}");
        };
    }

    /// Sends again what somebody else sent. The first answer is the one to a changed copy, sent after it.
    #[track_caller]
    pub fn repeats_in_vain(&mut self, to: SocketAddr, overheard: &[u8]) {
        self.send(to, overheard);
        let mut changed = overheard.to_vec();
        changed[envelope::HEADER_BYTES] ^= 1;
        self.is_refused(to, &changed);
    }
}

/// A client made by hand.
pub struct Insider {
    pub socket: Socket,
    pub agreed: Agreed,
    sending: Sending<SocketAddr>,
    pub assignment: Assignment,
    addresses: BTreeMap<ServerId, SocketAddr>,
    next: u64,
}

impl Insider {
    /// Agrees on a session and opens it.
    pub fn new(cluster: &TestCluster, enrolment: &Path) -> Insider {
        let at: SocketAddr = cluster.address("metadata").parse().unwrap();
        let mut socket = Socket::new();
        let agreed = shake_hands(&mut socket, at, enrolment);
        let mut sending = Sending::default();
        sending.learn(at, agreed.start, agreed.version);
        let assignment = Assignment::even(&[agreed.server], 1, 1).unwrap();
        let addresses = [(agreed.server, at)].into();
        let mut insider = Insider { socket, agreed, sending, assignment, addresses, next: 1 };
        insider.learn_map(Position(0));
        insider.call(insider.home(), Call::OpenSession).unwrap();
        insider
    }

    pub fn session(&self) -> SessionId {
        self.agreed.session
    }

    /// The position of the session.
    pub fn home(&self) -> Position {
        position_of_session(self.session())
    }

    pub fn key(&self) -> Key {
        Key::new(self.agreed.secret)
    }

    /// The metadata server of a position.
    pub fn server_of(&self, position: Position) -> SocketAddr {
        self.addresses[&self.assignment.tablet_at(position).owner]
    }

    // --- packets ---

    /// What the next packet to a server is stamped with, after a greeting if the server is not known yet.
    pub fn next_to(&mut self, to: SocketAddr) -> Next {
        loop {
            if let Some(next) = self.sending.next(to) {
                return next;
            }
            let greeting = self.sending.greet(to);
            let packet = envelope::seal(&self.stamp(greeting), Some(&self.key()), None, &[]);
            self.socket.send(to, &packet);
            self.hear(AGAIN, |_| false);
        }
    }

    /// All that a packet of this session shows.
    pub fn stamp(&self, next: Next) -> Stamp<'_> {
        let sender = Sender::Client(self.session());
        let (version, counter, to) = (next.version, next.counter, next.to.0);
        Stamp { version, sender, counter, from: Start::NONE, to, ticket: &self.agreed.ticket }
    }

    /// A packet as it should be.
    pub fn seal(&mut self, to: SocketAddr, message: &Message) -> Vec<u8> {
        let next = self.next_to(to);
        envelope::seal(&self.stamp(next), Some(&self.key()), Some(message), &[])
    }

    /// What is sought, with its bulk bytes, as soon as it comes. A welcome ends the wait too.
    pub fn hear(
        &mut self,
        patience: Duration,
        mut is_sought: impl FnMut(&Message) -> bool,
    ) -> Option<(Message, Vec<u8>)> {
        let deadline = Clock.mono().after(patience);
        loop {
            let incoming = self.socket.next(deadline.since(Clock.mono()))?;
            let packet =
                envelope::open(&incoming.bytes, Some(&self.key())).expect("a packet of this session");
            assert_ne!(packet.sender, Sender::Nobody, "{:?}", packet.messages);
            if let [Message::Welcome { versions }] = packet.messages[..] {
                let Header { from, to, .. } = packet.header;
                self.sending.welcomed(incoming.peer, to, from, versions);
                return None;
            }
            if let Some(message) = packet.messages.into_iter().find(&mut is_sought) {
                return Some((message, packet.attachment));
            }
        }
    }

    /// Sends a request until it is answered.
    fn exchange(&mut self, to: SocketAddr, request: &Message) -> (Message, Vec<u8>) {
        let deadline = Clock.mono().after(PATIENCE);
        while Clock.mono() < deadline {
            let packet = self.seal(to, request);
            self.socket.send(to, &packet);
            if let Some(answer) = self.hear(AGAIN, |message| answers(request, message)) {
                return answer;
            }
        }
        panic!("no answer to {request:?}");
    }

    // --- metadata ---

    /// A further request of this session.
    pub fn request(&mut self, position: Position, call: Call) -> Message {
        let sequence = Sequence(self.next);
        self.next += 1;
        let epoch = self.assignment.tablet_at(position).epoch;
        Message::Request(Request { sequence, finished_below: Sequence(1), position, epoch, call })
    }

    /// Asks whoever owns a position, again while the answer is "not now".
    pub fn ask(&mut self, position: Position, call: Call) -> Answer {
        let (to, deadline) = (self.server_of(position), Clock.mono().after(PATIENCE));
        while Clock.mono() < deadline {
            let request = self.request(position, call.clone());
            match self.exchange(to, &request).0 {
                Message::Reply(Reply { answer: Answer::Retry { after_us }, .. }) => {
                    self.hear(Duration::from_micros(after_us.into()), |_| false);
                }
                Message::Reply(reply) => return reply.answer,
                other => panic!("{other:?}"),
            }
        }
        panic!("not now for too long: {call:?}");
    }

    /// Learns who serves what, from whom it takes to serve a position.
    fn learn_map(&mut self, position: Position) {
        let Answer::Done { result, .. } = self.ask(position, Call::Map { have: None }) else { return };
        let Ok(Body::Map(Some(map))) = result.map(|body| *body) else { panic!("no map") };
        self.assignment = map.assignment;
        self.addresses = map.servers.iter().map(|entry| (entry.server, entry.address)).collect();
    }

    /// Asks whoever owns a position by now.
    pub fn call(&mut self, position: Position, call: Call) -> Result<Body, Code> {
        let deadline = Clock.mono().after(PATIENCE);
        while Clock.mono() < deadline {
            match self.ask(position, call.clone()) {
                Answer::Done { result, .. } => return result.map(|body| *body),
                Answer::Referral { .. } | Answer::Unknown => self.learn_map(position),
                other => panic!("{other:?} to {call:?}"),
            }
        }
        panic!("nobody serves it: {call:?}");
    }

    /// Looks a name of the root directory up, or makes it there.
    pub fn node(
        &mut self,
        text: &str,
        who: &Credentials,
        new: Option<NewNode>,
    ) -> (Handle, Option<OpenToken>) {
        let root = Call::Root { filesystem: FilesystemId(1) };
        let Body::Directory(view) = self.call(Position(0), root).unwrap() else { panic!("no directory") };
        let (grant, name, who) = (view.grant, Name::new(text.as_bytes()).unwrap(), who.clone());
        let position = grant.body.seat.position_of(NameHash::of(grant.body.name_key, &name));
        let call = match new {
            Some(new) => Call::Create { grant, who, name, new },
            None => Call::Lookup { grant, who, name },
        };
        match self.call(position, call).unwrap() {
            Body::Entry(entry, token) => (entry.node, token),
            other => panic!("{other:?}"),
        }
    }

    /// The one extent of a file, with the right to read it.
    pub fn extent(&mut self, node: Handle, who: &Credentials) -> Result<(Extent, Capability), Code> {
        let by = Admission::User(who.clone());
        match self.call(node.home, Call::Extents { node, by, offset: 0, count_max: 10 })? {
            Body::Extents { extents, reads: Some(reads), .. } => {
                let ([extent], [mac]) = (&extents[..], &reads.macs[..]) else { panic!("{extents:?}") };
                let body = extent.read_right(self.session(), reads.expires);
                Ok((*extent, Capability { body, mac: *mac }))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Who keeps this session from a lock.
    pub fn in_the_way(&mut self, node: Handle, lock: Lock) -> Option<LockView> {
        match self.call(node.home, Call::TestLock { node, lock }).unwrap() {
            Body::Lock(held) => held,
            other => panic!("{other:?}"),
        }
    }

    /// A chunk of this session's own, with the right to append to it.
    pub fn open_chunk(&mut self) -> (ChunkRef, Capability) {
        match self.call(self.home(), Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() }).unwrap() {
            Body::Chunk(ChunkView { chunk, capability: Some(right), .. }) => (chunk, right),
            other => panic!("{other:?}"),
        }
    }

    // --- data ---

    /// The request to read an extent, and where to send it.
    pub fn reading(&mut self, extent: &Extent, capability: Capability) -> (SocketAddr, Message) {
        let Body::Chunk(view) =
            self.call(extent.chunk.position, Call::Chunk { chunk: extent.chunk }).unwrap()
        else {
            panic!("no chunk");
        };
        assert_eq!(view.capability, None, "anybody is told where a chunk lies");
        let Extent { frame, skip, length, .. } = *extent;
        let call = DataCall::Read { capability, frame, skip, length, flow: None };
        self.next += 1;
        let request = DataRequest { id: self.next, chunk: extent.chunk.chunk, call };
        (self.addresses[&view.servers[0]], Message::Data(request))
    }

    /// Reads an extent with whatever right is shown.
    pub fn read(&mut self, extent: &Extent, capability: &Capability) -> Result<String, DataError> {
        let (to, request) = self.reading(extent, capability.clone());
        match self.exchange(to, &request) {
            (Message::DataReply(reply), bytes) => reply.result.map(|_| String::from_utf8(bytes).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

fn shake_hands(socket: &mut Socket, at: SocketAddr, enrolment: &Path) -> Agreed {
    let enrolment = read_enrolment(enrolment).unwrap();
    let deadline = Clock.mono().after(PATIENCE);
    // A server lets no named enrolment in before it has read which are revoked.
    while Clock.mono() < deadline {
        let mut initiator = Initiator::new(&enrolment, Versions::SPOKEN, None);
        socket.send(at, initiator.hello());
        match socket.next(AGAIN).map(|answer| initiator.take(&answer.bytes)) {
            Some(Outcome::Agreed(agreed)) => return *agreed,
            None | Some(Outcome::Nothing) => {}
            Some(other) => panic!("{other:?}"),
        }
    }
    panic!("no session");
}

/// Whether a message is the answer to a request.
pub fn answers(request: &Message, message: &Message) -> bool {
    match (request, message) {
        (Message::Request(request), Message::Reply(Reply { sequence, .. })) => request.sequence == *sequence,
        (Message::Data(request), Message::DataReply(reply)) => request.id == reply.id,
        _ => false,
    }
}
