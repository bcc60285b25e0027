//! Outgoing messages: where servers are, what shares a packet, how it is sealed. And incoming packets,
//! opened.
//!
//! Invariants: datagrams leave from the thread that has something to send, whoever waits for the socket;
//! stream packets wait in a queue for the thread that does. What cannot be sent is dropped and reported as
//! unreachable: the machine sends again. Packets to a server whose start is not known wait until it is
//! (`bearing_proto::freshness`). This module must not know what a message means.

use crate::line::{Greeting, Line, Sealing, Session, Way};
use bearing_client::{Event, Target, Transport};
use bearing_env::handshake::{Initiator, Outcome};
use bearing_env::{Clock, DatagramSender, Destination, Endpoint, SendError, Waker};
use bearing_proto::client::ServerEntry;
use bearing_proto::enrolment::Enrolment;
use bearing_proto::envelope::{self, Bulk, Message, Packet, PacketError, Packing, Refusal, Sender, Versions};
use bearing_proto::freshness::{Held, Welcomed};
use bearing_proto::hello::{self, HelloRefusal};
use bearing_proto::prefix::Prefix;
use bearing_proto::ticket::{Agreed, TICKET_BYTES_MAX, TicketMessage};
use bearing_types::{ServerId, SessionId};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

/// Messages share a datagram up to this size.
const SHARED_BYTES_MAX: usize = 8 << 10;
/// A message that is alone in a datagram may have this size; a larger one goes by stream.
const DATAGRAM_BYTES_MAX: usize = 60 << 10;
/// Handshakes that were begun and not answered; of more the oldest is given up.
const TRIES_MAX: usize = 4;

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// To whom.
    pub to: Target,
    /// How.
    pub transport: Transport,
    /// What.
    pub message: Message,
    /// Its bulk bytes.
    pub attachment: Vec<u8>,
    /// In which session: what is late must not go out in the next one, where its numbers mean something else.
    pub life: Life,
}

/// Counts the sessions that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life(u64);

/// Something to be done once the machine's lock is free.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all are letters")]
pub(crate) enum Errand {
    /// Send a message.
    Send(Letter),
    /// Ask some server for a session.
    Enrol,
}

/// A packet for a stream.
enum Streamed {
    /// The packet that proves who we are on a stream.
    Greeting,
    /// A packet with messages.
    Packet(Held<Way>),
}

/// A packet that is to be sent, and its bulk bytes, which stand at its end.
struct Sealed {
    to: SocketAddr,
    packet: Vec<u8>,
    bulk: Option<Bulk>,
}

/// Where servers are.
#[derive(Default)]
struct Servers {
    addresses: BTreeMap<ServerId, SocketAddr>,
    /// Where the network carries requests to, if it does.
    prefix: Option<Prefix>,
}

/// Where a packet goes: it is sealed for the server at an address, and sent there, or to an address that the
/// network carries.
#[derive(Clone, Copy)]
struct Route {
    server: SocketAddr,
    carried: Option<SocketAddr>,
}

impl Route {
    /// To a server itself.
    fn to(server: SocketAddr) -> Route {
        Route { server, carried: None }
    }
}

/// See the module.
pub(crate) struct Post {
    enrolment: Enrolment,
    clock: Clock,
    line: Mutex<Line>,
    tries: Mutex<VecDeque<Initiator>>,
    datagrams: DatagramSender,
    waker: Waker,
    seeds: Vec<SocketAddr>,
    next_seed: AtomicUsize,
    servers: RwLock<Servers>,
    by_stream: Mutex<Vec<(SocketAddr, Life, Streamed)>>,
    life: AtomicU64,
    packets_refused: AtomicU64,
}

impl Post {
    /// A post over an endpoint, without a session yet.
    pub fn new(enrolment: Enrolment, endpoint: &Endpoint, seeds: Vec<SocketAddr>) -> Post {
        Post {
            enrolment,
            clock: Clock,
            line: Mutex::default(),
            tries: Mutex::default(),
            datagrams: endpoint.datagram_sender(),
            waker: endpoint.waker(),
            seeds,
            next_seed: AtomicUsize::new(0),
            servers: RwLock::default(),
            by_stream: Mutex::new(Vec::new()),
            life: AtomicU64::new(0),
            packets_refused: AtomicU64::new(0),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no thread panics while it holds the line")
    }

    /// The session of the moment.
    pub fn life(&self) -> Life {
        Life(self.life.load(Ordering::SeqCst))
    }

    /// Another session is going to be asked for: nothing of the last one is sent any more.
    pub fn begin_life(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<SessionId> {
        self.line().session().map(|session| session.id)
    }

    /// Ends the wait of whoever waits for the socket.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Incoming packets that were not taken: cut short, or their signature did not fit.
    pub fn packets_refused(&self) -> u64 {
        self.packets_refused.load(Ordering::Relaxed)
    }

    /// Takes the addresses of all servers, and of positions, instead of those known before.
    pub fn set_servers(&self, servers: Vec<ServerEntry>, prefix: Option<Prefix>) {
        let addresses = servers.into_iter().map(|entry| (entry.server, entry.address)).collect();
        *self.servers.write().expect("no thread panics while it holds the addresses") =
            Servers { addresses, prefix };
    }

    fn servers(&self) -> RwLockReadGuard<'_, Servers> {
        self.servers.read().expect("no thread panics while it holds the addresses")
    }

    fn route(&self, to: Target) -> Option<Route> {
        match to {
            Target::Server(server) => self.servers().addresses.get(&server).copied().map(Route::to),
            Target::Carried(position, server) => {
                let servers = self.servers();
                let carried = servers.prefix.map(|prefix| prefix.socket_address(position));
                servers.addresses.get(&server).map(|server| Route { server: *server, carried })
            }
            Target::AnySeed => {
                let turn = self.next_seed.fetch_add(1, Ordering::Relaxed);
                self.seeds.get(turn % self.seeds.len().max(1)).copied().map(Route::to)
            }
        }
    }

    /// Does errands. Messages for one target share datagrams, in their order. Returns the servers that cannot
    /// be reached.
    pub fn send(&self, errands: Vec<Errand>) -> Vec<ServerId> {
        let mut by_target: BTreeMap<Target, Vec<Letter>> = BTreeMap::new();
        let life = self.life();
        for errand in errands {
            match errand {
                Errand::Send(letter) if letter.life != life => {}
                Errand::Send(letter) => by_target.entry(letter.to).or_default().push(letter),
                Errand::Enrol => self.enrol(),
            }
        }
        let mut unreachable = Vec::new();
        for (target, letters) in by_target {
            let sent = self.route(target).is_some_and(|route| self.send_to(route, life, letters));
            if let (false, Target::Server(server)) = (sent, target) {
                unreachable.push(server);
            }
        }
        unreachable
    }

    fn send_to(&self, to: Route, life: Life, letters: Vec<Letter>) -> bool {
        let mut shared = Packing::new();
        let (mut is_sent, way) = (true, Way::Datagram);
        if self.line().is_ticket_old(self.clock.mono()) {
            shared.push(&Message::Ticket(TicketMessage::Renew), SHARED_BYTES_MAX);
        }
        for letter in letters {
            let may_share = letter.attachment.is_empty() && letter.transport == Transport::Datagram;
            if may_share && shared.push(&letter.message, SHARED_BYTES_MAX) {
                continue;
            }
            let full = std::mem::take(&mut shared);
            is_sent &= full.is_empty() || self.dispatch(to, life, Held { packing: full, bulk: None, way });
            if !may_share || !shared.push(&letter.message, SHARED_BYTES_MAX) {
                is_sent &= self.send_alone(to, letter);
            }
        }
        let rest = Held { packing: shared, bulk: None, way };
        is_sent & (rest.packing.is_empty() || self.dispatch(to, life, rest))
    }

    fn send_alone(&self, to: Route, letter: Letter) -> bool {
        let mut packing = Packing::new();
        let fits = packing.push(&letter.message, envelope::PACKET_BYTES_MAX);
        debug_assert!(fits, "a message of the machine fits a packet");
        let bytes = packing.bytes() + letter.attachment.len() + TICKET_BYTES_MAX;
        let way = match letter.transport {
            Transport::Datagram if bytes <= DATAGRAM_BYTES_MAX => Way::Datagram,
            Transport::Datagram | Transport::Stream => Way::Stream,
        };
        let bulk = (!letter.attachment.is_empty()).then(|| letter.attachment.into());
        self.dispatch(to, letter.life, Held { packing, bulk, way })
    }

    /// A datagram is sealed and sent at once. A packet for a stream is sealed when it is handed over, so that
    /// its counter is not overtaken for long.
    fn dispatch(&self, to: Route, life: Life, held: Held<Way>) -> bool {
        match held.way {
            Way::Stream => {
                self.queue_streamed(to.server, life, Streamed::Packet(held));
                true
            }
            Way::Datagram => match self.seal_or_hold(to, life, held) {
                Some(Sealed { to, mut packet, bulk }) => {
                    packet.extend_from_slice(bulk.as_deref().map_or(&[], Vec::as_slice));
                    self.send_datagram(to, &packet)
                }
                // Without a session nothing can be said; the machine does not try.
                None => true,
            },
        }
    }

    /// What to send now, and to where: the packet, or a greeting while it waits for the server's start.
    fn seal_or_hold(&self, to: Route, life: Life, held: Held<Way>) -> Option<Sealed> {
        let mut line = self.line();
        // The next line begins only after the next life has: as long as this is the life, this is its line.
        if life != self.life() {
            return None;
        }
        match line.next(to.server)? {
            Sealing::Packet(seal) => {
                drop(line);
                let bulk = held.bulk;
                let packet = seal.packet(held.packing, envelope::length(bulk.as_ref()));
                Some(Sealed { to: to.carried.unwrap_or(to.server), packet, bulk })
            }
            Sealing::Greeting(greeting) => {
                line.hold(to.server, held);
                drop(line);
                Some(Sealed { to: to.server, packet: greeting.packet(), bulk: None })
            }
        }
    }

    fn queue_streamed(&self, address: SocketAddr, life: Life, streamed: Streamed) {
        let mut queue = self.by_stream.lock().expect("no thread panics while it queues packets");
        queue.push((address, life, streamed));
        drop(queue);
        self.waker.wake();
    }

    fn send_datagram(&self, address: SocketAddr, packet: &[u8]) -> bool {
        match self.datagrams.send(address, packet) {
            // A full buffer loses a datagram like a full network does.
            Ok(()) | Err(SendError::QueueFull) => true,
            Err(SendError::TooLarge { .. } | SendError::Gone | SendError::Unreachable) => false,
        }
    }

    /// Hands queued stream packets to the endpoint. Returns the servers that cannot be reached.
    pub fn hand_over(&self, endpoint: &mut Endpoint) -> Vec<ServerId> {
        let queued =
            std::mem::take(&mut *self.by_stream.lock().expect("no thread panics while it queues packets"));
        let mut failed = Vec::new();
        for (address, life, streamed) in queued {
            if self.stream(endpoint, address, life, streamed).is_err() {
                failed.push(address);
            }
        }
        endpoint.take_failures(&mut failed);
        self.take_failures(&failed)
    }

    fn stream(
        &self,
        endpoint: &mut Endpoint,
        address: SocketAddr,
        life: Life,
        streamed: Streamed,
    ) -> Result<(), SendError> {
        let packet = match streamed {
            Streamed::Greeting => self.greeting(address).map(|packet| (packet, None)),
            Streamed::Packet(held) => {
                let sealed = self.seal_or_hold(Route::to(address), life, held);
                sealed.map(|sealed| (sealed.packet, sealed.bulk))
            }
        };
        // A server reads only short packets from a stream on which nobody has proved himself, and only a
        // greeting with its start proves anything. So the greeting is made after the packet: its start may
        // have become known just now.
        let first = if endpoint.has_stream(address) { None } else { self.greeting(address) };
        let mut packets = first.map(|packet| (packet, None)).into_iter().chain(packet);
        let (to, way) = (Destination::Address(address), bearing_env::Transport::Stream);
        packets.try_for_each(|(packet, bulk)| endpoint.send_with_bulk(to, way, &packet, bulk))
    }

    fn greeting(&self, address: SocketAddr) -> Option<Vec<u8>> {
        let greeting = self.line().greet(address);
        greeting.map(Greeting::packet)
    }

    /// Streams to addresses broke: what waited for them is lost. Gives the servers there.
    pub fn take_failures(&self, addresses: &[SocketAddr]) -> Vec<ServerId> {
        if addresses.is_empty() {
            return Vec::new();
        }
        addresses.iter().for_each(|address| self.line().drop_held(*address));
        self.servers_at(addresses)
    }

    /// The start of a server is known: what waited for it goes.
    fn release(&self, address: SocketAddr) {
        let life = self.life();
        let held = self.line().take_held(address);
        let mut has_greeted = false;
        for held in held {
            if held.way == Way::Stream && !std::mem::replace(&mut has_greeted, true) {
                self.queue_streamed(address, life, Streamed::Greeting);
            }
            self.dispatch(Route::to(address), life, held);
        }
    }

    /// The servers at addresses.
    pub fn servers_at(&self, addresses: &[SocketAddr]) -> Vec<ServerId> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let servers = self.servers();
        let is_meant = |(_, address): &(_, &SocketAddr)| addresses.contains(address);
        servers.addresses.iter().filter(is_meant).map(|(server, _)| *server).collect()
    }

    // --- the handshake ---

    /// One try to get a session: from the seeds in turn, and every other time from another server, in case
    /// all seeds are gone.
    fn enrol(&self) {
        let turn = self.next_seed.fetch_add(1, Ordering::Relaxed);
        let servers = self.servers();
        let known = servers.addresses.values();
        let known = known.clone().nth(turn / 2 % known.len().max(1)).filter(|_| turn % 2 == 1);
        let seed = self.seeds.get(turn % self.seeds.len().max(1));
        if let Some(address) = known.or(seed).copied() {
            drop(servers);
            self.begin_try(address, None);
        }
    }

    fn begin_try(&self, address: SocketAddr, cookie: Option<[u8; hello::COOKIE_BYTES]>) {
        let initiator = Initiator::new(&self.enrolment, Versions::SPOKEN, cookie);
        let hello = initiator.hello().to_vec();
        let mut tries = self.tries.lock().expect("no thread panics while it holds the tries");
        tries.push_back(initiator);
        if tries.len() > TRIES_MAX {
            tries.pop_front();
        }
        drop(tries);
        self.send_datagram(address, &hello);
    }

    fn on_answer(&self, peer: SocketAddr, bytes: &[u8]) -> Vec<Event> {
        let mut tries = self.tries.lock().expect("no thread panics while it holds the tries");
        let outcomes = tries.iter_mut().map(|initiator| initiator.take(bytes));
        let outcome = outcomes.into_iter().find(|outcome| !matches!(outcome, Outcome::Nothing));
        match outcome.unwrap_or(Outcome::Nothing) {
            Outcome::Nothing => Vec::new(),
            Outcome::Cookie(cookie) => {
                drop(tries);
                self.begin_try(peer, Some(cookie));
                Vec::new()
            }
            Outcome::Agreed(agreed) => {
                tries.clear();
                drop(tries);
                self.begin_session(peer, *agreed)
            }
            Outcome::Refused(reason, versions) => {
                let refusal = match reason {
                    HelloRefusal::Version => Refusal::Version { speaks: versions.highest },
                    // Whoever overheard the hello may say so: it is no more than an unsigned word.
                    HelloRefusal::Secret | HelloRefusal::Revoked => Refusal::Unauthenticated,
                };
                vec![Event::Refused(refusal)]
            }
        }
    }

    fn begin_session(&self, peer: SocketAddr, agreed: Agreed) -> Vec<Event> {
        let session = Session::new(&agreed, self.clock.mono());
        *self.line() = Line::begin(session, peer, &agreed);
        vec![Event::Enrolled(agreed.session)]
    }

    // --- what comes in ---

    /// What a packet that came in says. One that is not ours, not signed as it should be, or that came
    /// before, says nothing.
    pub fn open(&self, peer: SocketAddr, bytes: &[u8], bulk: Vec<u8>) -> Vec<Event> {
        if hello::is_handshake(bytes) {
            return self.on_answer(peer, bytes);
        }
        let key = self.line().session().map(|session| session.key.clone());
        let opened = envelope::open_with(bytes, bulk, key.as_ref());
        match opened {
            Ok(packet) => self.take(peer, packet),
            // A server of another release does not know our version either.
            Err(PacketError::Version(speaks)) => vec![Event::Refused(Refusal::Version { speaks })],
            Err(PacketError::Malformed | PacketError::Unauthenticated) => self.refuse(),
        }
    }

    fn refuse(&self) -> Vec<Event> {
        self.packets_refused.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    }

    fn take(&self, peer: SocketAddr, packet: Packet) -> Vec<Event> {
        match packet.sender {
            Sender::Nobody => self.on_unsigned(peer, &packet),
            // Our own kind signs with another secret, so what looks like it is an echo.
            Sender::Client(_) => self.refuse(),
            Sender::Server(server) if packet.header.counter == 0 => {
                self.on_hint(self.listens_at(peer, server), server, &packet)
            }
            Sender::Server(server) => {
                let peer = self.listens_at(peer, server);
                if !self.line().take(peer, server, &packet.header) {
                    return self.refuse();
                }
                self.events(server, packet)
            }
        }
    }

    /// The address of a server that sent something. What the network carried it answers from a position's.
    fn listens_at(&self, peer: SocketAddr, server: ServerId) -> SocketAddr {
        let servers = self.servers();
        match (servers.prefix, peer) {
            (Some(prefix), SocketAddr::V6(v6)) if prefix.position(*v6.ip()).is_some() => {
                servers.addresses.get(&server).copied().unwrap_or(peer)
            }
            _ => peer,
        }
    }

    fn on_unsigned(&self, peer: SocketAddr, packet: &Packet) -> Vec<Event> {
        match packet.messages[..] {
            // Who was not sent to asks for a ticket to have our signature.
            [Message::Refused(Refusal::NeedTicket)] if !self.line().has_sent_to(peer) => self.refuse(),
            [Message::Refused(Refusal::NeedTicket)] => {
                // Perhaps forged: it costs one packet, and only a signed answer to that means anything.
                self.greeting(peer).iter().for_each(|greeting| {
                    self.send_datagram(peer, greeting);
                });
                Vec::new()
            }
            [Message::Refused(refusal @ (Refusal::Unauthenticated | Refusal::Version { .. }))] => {
                vec![Event::Refused(refusal)]
            }
            _ => self.refuse(),
        }
    }

    fn on_hint(&self, peer: SocketAddr, server: ServerId, packet: &Packet) -> Vec<Event> {
        match packet.messages[..] {
            [Message::Welcome { .. }] if !self.is_of_whom_was_greeted(peer, server, packet) => self.refuse(),
            [Message::Welcome { versions }] => {
                let welcomed = self.line().welcomed(peer, server, &packet.header, versions);
                match welcomed {
                    Welcomed::Nothing => Vec::new(),
                    Welcomed::Known(address) => {
                        self.release(address);
                        Vec::new()
                    }
                    Welcomed::Restarted(address) => {
                        self.release(address);
                        self.servers_at(&[address]).into_iter().map(Event::Unreachable).collect()
                    }
                    Welcomed::NoVersion(versions) => {
                        vec![Event::Refused(Refusal::Version { speaks: versions.highest })]
                    }
                }
            }
            [Message::Refused(refusal)] if self.is_final(peer, packet.header.to, refusal) => {
                vec![Event::Refused(refusal)]
            }
            _ => self.refuse(),
        }
    }

    /// Whether a server that answers a greeting is the one at the address that was greeted, as far as it is
    /// known which one that is. Another one was sent the greeting by somebody who overheard it, and would
    /// take what is meant for the first.
    fn is_of_whom_was_greeted(&self, peer: SocketAddr, server: ServerId, packet: &Packet) -> bool {
        let greeted = self.line().greeted(packet.header.to).unwrap_or(peer);
        let known = self.servers_at(&[greeted]);
        known.is_empty() || known.contains(&server)
    }

    /// Whether a signed refusal ends the session. Old packets with an earlier ticket, sent again by a
    /// stranger, are refused as expired too, and so is all that a server with a wrong clock gets: only a
    /// ticket that has had its time here can be over.
    fn is_final(&self, peer: SocketAddr, answers: u64, refusal: Refusal) -> bool {
        let line = self.line();
        let is_true = match refusal {
            Refusal::Expired => line.is_ticket_over(self.clock.mono()),
            Refusal::Revoked => true,
            Refusal::Unauthenticated | Refusal::Version { .. } | Refusal::NeedTicket => false,
        };
        is_true && line.is_new_hint(peer, answers)
    }

    fn events(&self, server: ServerId, packet: Packet) -> Vec<Event> {
        let mut attachment = packet.attachment;
        let mut events = Vec::with_capacity(packet.messages.len());
        for message in packet.messages {
            match message {
                Message::Ticket(TicketMessage::Renewed { ticket, ticket_seconds }) => {
                    self.line().renewed(ticket, ticket_seconds, self.clock.mono());
                }
                message => events.push(Event::Message {
                    from: Target::Server(server),
                    message,
                    attachment: std::mem::take(&mut attachment),
                }),
            }
        }
        events
    }
}

#[cfg(test)]
#[path = "post_tests.rs"]
mod tests;
