//! The post of one server: opens packets, remembers where answers go, packs and seals what is sent.
//!
//! Machines know servers and sessions; addresses and transports are known only here. Small messages to one
//! receiver share a datagram. An answer to a request goes back the way the request came; an answer to a
//! datagram that does not fit one becomes `TooLarge`, and the client asks again by stream. Every table here
//! is bounded, and only senders that proved a key get into one.
//!
//! Nothing is taken twice, and nothing that does not name this server's present start
//! (`bearing_proto::freshness`); sessions are known by their tickets. This module must not know any machine,
//! and it does no I/O: it takes bytes and leaves bytes.

use crate::cluster::COORDINATOR;
use crate::routes::{Origin, Routes};
use crate::sessions::Sessions;
use bearing_env::handshake::{Heard, Responder};
use bearing_env::{Destination, Incoming, Transport, random_u64};
use bearing_meta::Hop;
use bearing_proto::client::{Answer, Reply, Request};
use bearing_proto::coordinator::Ask;
use bearing_proto::enrolment::EnrolmentName;
use bearing_proto::envelope::{
    self, Bulk, DATAGRAM_PACKED_MAX, Header, PACKET_BYTES_MAX, Packing, Refusal, Stamp, Start, VERSION,
    Versions, length,
};
use bearing_proto::freshness::{BetweenServers, Held, HeldPackets, Next, Sending, Welcomed};
use bearing_proto::hello::{self, HelloRefusal};
use bearing_proto::join;
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::relay::Relay;
use bearing_proto::ticket::{Ticket, TicketMessage};
use bearing_proto::window::Freshness;
use bearing_proto::{Message, Packet, PacketError, Sender};
use bearing_types::{Mono, Now, ServerId, SessionId, Squash, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Messages on one stream are packed into packets of up to so many bytes; a message that is larger alone goes
/// alone.
const STREAM_PACKED_MAX: usize = 256 * 1024;
/// Bulk bytes in an answer to a datagram: what a datagram can carry at all, less room for the rest.
const DATAGRAM_BULK_MAX: usize = 60_000;
/// Refusals sent per second, over all peers: strangers shall not make us send much.
const REFUSALS_PER_SECOND: u32 = 50;
/// Unsigned words sent per second to sessions that are not known here: as many clients may come back after a
/// restart.
const NEED_TICKETS_PER_SECOND: u32 = 5000;
/// A ticket is good for so long.
const TICKET_LIFE: Duration = Duration::from_secs(3600);
/// Peers of which it is remembered that a complaint about them was logged.
const COMPLAINTS_MAX: usize = 1024;

/// What came of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// Messages of a sender who proved its key.
    Messages {
        /// The sender.
        sender: Sender,
        /// What is made of the user ids in them.
        squash: Squash,
        /// Its messages.
        messages: Vec<Message>,
        /// Bulk bytes.
        attachment: Vec<u8>,
    },
    /// A peer did not take a packet of ours. Unsigned: a hint only.
    Refused {
        /// Who said so.
        peer: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// Nothing for anybody else: part of a handshake, a hint, or seen before.
    Nothing,
    /// A client got no session; to be logged.
    NoSession {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: HelloRefusal,
    },
    /// The packet was not taken; to be logged when `first`.
    NotTaken {
        /// Who sent it.
        peer: SocketAddr,
        /// Why.
        error: PacketError,
        /// It is the first from this peer that is logged.
        first: bool,
    },
}

/// Who asks by another server.
pub struct Relayed {
    /// The session.
    pub session: SessionId,
    /// What is made of the user ids in it.
    pub squash: Squash,
}

/// A sealed packet on its way.
#[derive(Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Where to.
    pub to: Destination,
    /// How.
    pub transport: Transport,
    /// The packet, but for its end.
    pub packet: Vec<u8>,
    /// Its end.
    pub bulk: Option<Bulk>,
}

/// What was not sent, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undeliverable {
    /// To a server or session whose address is not known.
    pub no_address: u64,
    /// Larger than any packet.
    pub too_large: u64,
}

/// See the module.
pub struct Post {
    me: ServerId,
    keys: ServerKeys,
    /// The number of this life.
    start: Start,
    responder: Responder,
    /// Which enrolments were revoked; `None`: not known yet.
    revoked: Option<BTreeSet<EnrolmentName>>,
    servers: BTreeMap<ServerId, SocketAddr>,
    /// Questions to the coordinator, if they are kept.
    asks: Option<Vec<Ask>>,
    sessions: Sessions,
    between: BetweenServers,
    sending: Sending<ServerId>,
    held: HeldPackets<ServerId, Origin>,
    routes: Routes,
    pending: BTreeMap<Lane, Packing>,
    sealed: Vec<Sealed>,
    complaints: BTreeSet<SocketAddr>,
    refusals: RateLimit,
    need_tickets: RateLimit,
    undeliverable: Undeliverable,
    replayed: u64,
}

/// One receiver over one way: what may share a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    receiver: Sender,
    origin: Origin,
}

impl Post {
    /// A server's post that knows the addresses of its cluster.
    pub fn new(
        me: ServerId,
        keys: ServerKeys,
        servers: impl IntoIterator<Item = (ServerId, SocketAddr)>,
    ) -> Post {
        Post {
            me,
            start: draw_start(),
            responder: Responder::new(me, Versions::SPOKEN, keys.clone(), TICKET_LIFE),
            keys,
            revoked: None,
            servers: servers.into_iter().collect(),
            asks: None,
            sessions: Sessions::default(),
            between: BetweenServers::default(),
            sending: Sending::default(),
            held: HeldPackets::default(),
            routes: Routes::default(),
            pending: BTreeMap::new(),
            sealed: Vec::new(),
            complaints: BTreeSet::new(),
            refusals: RateLimit::new(REFUSALS_PER_SECOND),
            need_tickets: RateLimit::new(NEED_TICKETS_PER_SECOND),
            undeliverable: Undeliverable::default(),
            replayed: 0,
        }
    }

    /// Takes the present address of a server.
    pub fn learn_server(&mut self, server: ServerId, address: SocketAddr) {
        self.servers.insert(server, address);
    }

    /// Takes the names of the enrolments that were revoked, instead of those known before. Until then no
    /// named one is let in.
    pub fn set_revoked(&mut self, revoked: BTreeSet<EnrolmentName>) {
        self.revoked = Some(revoked);
    }

    /// As if all servers had been greeted and answered.
    #[cfg(test)]
    pub(crate) fn with_known_starts(mut self) -> Post {
        for server in self.servers.keys() {
            self.sending.learn(*server, Start(9), VERSION);
        }
        self
    }

    /// Packets that were signed well, but seen before.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// All servers whose addresses are known, but this one.
    pub fn others(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers.keys().copied().filter(|server| *server != self.me)
    }

    /// All servers, with their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = (ServerId, SocketAddr)> + '_ {
        self.servers.iter().map(|(server, address)| (*server, *address))
    }

    /// The server that listens at an address.
    pub fn server_at(&self, address: SocketAddr) -> Option<ServerId> {
        self.servers.iter().find(|(_, known)| **known == address).map(|(server, _)| *server)
    }

    /// What could not be sent so far.
    pub fn undeliverable(&self) -> Undeliverable {
        self.undeliverable
    }

    /// Opens a packet and remembers the way back.
    pub fn open(&mut self, now: Now, incoming: &mut Incoming) -> Opened {
        let peer = incoming.peer;
        if hello::is_handshake(&incoming.bytes) {
            return self.shake_hands(now, incoming);
        }
        let opened = envelope::header(&incoming.bytes).and_then(|header| match header.sender {
            Sender::Nobody => match envelope::open(&incoming.bytes, None)?.messages[..] {
                [Message::Refused(refusal)] => Ok(Opened::Refused { peer, refusal }),
                _ => Ok(Opened::Nothing),
            },
            Sender::Server(server) => self.on_server_packet(incoming, header, server),
            Sender::Client(session) => self.on_client_packet(now, incoming, header, session),
        });
        opened.unwrap_or_else(|error| {
            self.refuse(now.mono, incoming, error);
            let first = self.complaints.len() < COMPLAINTS_MAX && self.complaints.insert(peer);
            Opened::NotTaken { peer, error, first }
        })
    }

    fn shake_hands(&mut self, now: Now, incoming: &Incoming) -> Opened {
        let revoked = &self.revoked;
        let is_revoked = |hello: &hello::Hello| is_revoked(revoked.as_ref(), &hello.name);
        let heard = self.responder.take(now, incoming.peer, self.start, &incoming.bytes, is_revoked);
        let (answer, reason) = match heard {
            Heard::Nothing => return Opened::Nothing,
            Heard::Answer(answer) => (answer, None),
            Heard::Refusal(_, _) if !self.refusals.take(now.mono) => return Opened::Nothing,
            Heard::Refusal(reason, answer) => (answer, Some(reason)),
        };
        self.push_sealed(Origin::of(incoming), answer);
        reason.map_or(Opened::Nothing, |reason| Opened::NoSession { peer: incoming.peer, reason })
    }

    fn on_server_packet(
        &mut self,
        incoming: &mut Incoming,
        header: Header,
        server: ServerId,
    ) -> Result<Opened, PacketError> {
        let bulk = std::mem::take(&mut incoming.bulk);
        let packet = envelope::open_with(&incoming.bytes, bulk, Some(self.keys.packets()))?;
        if header.counter == 0 {
            return self.on_hint(server, &packet);
        }
        let key = self.keys.packets().clone();
        if Start(header.to) != self.start {
            self.hint(incoming, header, &key, WELCOME);
            return Ok(Opened::Nothing);
        }
        let Some(freshness) = self.between.take(server, header.from, header.counter) else {
            self.start = draw_start();
            self.hint(incoming, header, &key, WELCOME);
            return Ok(Opened::Nothing);
        };
        // Whoever sends from a new life says so himself.
        if freshness == Freshness::Newest && self.sending.start_of(server) != Some(header.from) {
            self.sending.learn(server, header.from, header.version);
            self.release(server);
        }
        self.admitted(incoming, packet, freshness, Squash::None)
    }

    /// What a packet that was signed well says, unless it was seen before.
    fn admitted(
        &mut self,
        incoming: &Incoming,
        packet: Packet,
        freshness: Freshness,
        squash: Squash,
    ) -> Result<Opened, PacketError> {
        if freshness == Freshness::Replayed {
            self.replayed += 1;
            return Ok(Opened::Nothing);
        }
        let Packet { sender, messages, attachment, .. } = packet;
        self.routes.note(sender, Origin::of(incoming), &messages);
        Ok(Opened::Messages { sender, squash, messages, attachment })
    }

    /// A greeting that was meant for one server and is answered by another was overheard and sent to that
    /// one: what is meant for the first must not be stamped with the start of the second, which would take
    /// it.
    fn on_hint(&mut self, server: ServerId, packet: &Packet) -> Result<Opened, PacketError> {
        if self.sending.greeted(packet.header.to).is_some_and(|greeted| greeted != server) {
            return Ok(Opened::Nothing);
        }
        let [Message::Welcome { versions }] = packet.messages[..] else { return Ok(Opened::Nothing) };
        match self.sending.welcomed(server, packet.header.to, packet.header.from, versions) {
            Welcomed::Known(server) | Welcomed::Restarted(server) => self.release(server),
            Welcomed::NoVersion(versions) => return Err(PacketError::Version(versions.highest)),
            Welcomed::Nothing => {}
        }
        Ok(Opened::Nothing)
    }

    fn on_client_packet(
        &mut self,
        now: Now,
        incoming: &mut Incoming,
        header: Header,
        session: SessionId,
    ) -> Result<Opened, PacketError> {
        let bulk = std::mem::take(&mut incoming.bulk);
        let (incoming, bytes) = (&*incoming, &incoming.bytes);
        let known = self.sessions.get(session).map(|known| &known.ticket);
        let mut shown = None;
        let ticket = match known.filter(|ticket| now.wall < ticket.expires) {
            Some(ticket) => ticket,
            None if envelope::ticket(bytes, &header).is_empty() => {
                self.ask_for_ticket(now.mono, incoming);
                return Ok(Opened::Nothing);
            }
            None => {
                let opened = self.responder.open_ticket(envelope::ticket(bytes, &header));
                let ticket = opened.filter(|ticket| ticket.session == session);
                &*shown.insert(ticket.ok_or(PacketError::Unauthenticated)?)
            }
        };
        let packet = envelope::open_with(bytes, bulk, Some(&ticket.secret))?;
        if header.version != ticket.version {
            return Err(PacketError::Malformed);
        }
        let (squash, key) = (ticket.squash, ticket.secret.clone());
        // Who has a token may join, and nothing else; nobody else may.
        let joins = |message: &Message| matches!(message, Message::Join(_));
        let is_allowed = match join::is_token(&ticket.enrolment) {
            true => packet.messages.iter().all(joins),
            false => !packet.messages.iter().any(joins),
        };
        if !is_allowed {
            return Err(PacketError::Unauthenticated);
        }
        match self.verdict(now.wall, header, ticket) {
            Verdict::Take => {}
            Verdict::Wait => return Ok(Opened::Nothing),
            Verdict::Welcome => {
                self.hint(incoming, header, &key, WELCOME);
                return Ok(Opened::Nothing);
            }
            Verdict::Refuse(refusal) => {
                self.hint(incoming, header, &key, Message::Refused(refusal));
                return Ok(Opened::Nothing);
            }
        }
        if shown.is_some_and(|ticket| self.sessions.admit(ticket, envelope::ticket(bytes, &header))) {
            self.start = draw_start();
            self.hint(incoming, header, &key, WELCOME);
            return Ok(Opened::Nothing);
        }
        let freshness = self.sessions.take(session, header.counter, Origin::of(incoming));
        if freshness != Freshness::Replayed && packet.messages.contains(&RENEW) {
            self.renew_ticket(now, session);
        }
        self.admitted(incoming, packet, freshness, squash)
    }

    /// What is to be done with a packet that is signed with the secret of a ticket.
    fn verdict(&self, now: Wall, header: Header, ticket: &Ticket) -> Verdict {
        match is_revoked(self.revoked.as_ref(), &ticket.enrolment) {
            None => Verdict::Wait,
            Some(true) => Verdict::Refuse(Refusal::Revoked),
            Some(false) if now >= ticket.expires => Verdict::Refuse(Refusal::Expired),
            Some(false) if Start(header.to) != self.start => Verdict::Welcome,
            Some(false) => Verdict::Take,
        }
    }

    fn renew_ticket(&mut self, now: Now, session: SessionId) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let (ticket, ticket_seconds) = self.responder.renew(now, &known.ticket);
        known.ticket.expires = now.wall.after(TICKET_LIFE);
        known.sealed = ticket.as_slice().into();
        self.to_session(session, &Message::Ticket(TicketMessage::Renewed { ticket, ticket_seconds }), None);
    }

    /// Tells a client, unsigned, that its session is not known here.
    fn ask_for_ticket(&mut self, now: Mono, incoming: &Incoming) {
        if self.need_tickets.take(now) {
            let refusal = Message::Refused(Refusal::NeedTicket);
            let packet = envelope::seal(&Stamp::NOBODY, None, Some(&refusal), &[]);
            self.push_sealed(Origin::of(incoming), packet);
        }
    }

    /// Answers a packet that was signed with a key, but is not taken. The answer has no content, and is
    /// shorter than the packet with its ticket.
    fn hint(&mut self, incoming: &Incoming, header: Header, key: &Key, message: Message) {
        let stamp = Stamp {
            version: header.version,
            sender: Sender::Server(self.me),
            counter: 0,
            from: self.start,
            to: header.counter,
            ticket: &[],
        };
        self.push_sealed(Origin::of(incoming), envelope::seal(&stamp, Some(key), Some(&message), &[]));
    }

    fn push_sealed(&mut self, origin: Origin, packet: Vec<u8>) {
        let (to, transport) = origin.way();
        self.sealed.push(Sealed { to, transport, packet, bulk: None });
    }

    /// Tells a stranger why, unsigned and not too often. What is not even a packet gets no answer.
    fn refuse(&mut self, now: Mono, incoming: &Incoming, error: PacketError) {
        let refusal = match error {
            PacketError::Malformed => return,
            PacketError::Version(_) => Refusal::Version { speaks: VERSION },
            PacketError::Unauthenticated => Refusal::Unauthenticated,
        };
        if self.refusals.take(now) {
            let packet = envelope::seal(&Stamp::NOBODY, None, Some(&Message::Refused(refusal)), &[]);
            self.push_sealed(Origin::of(incoming), packet);
        }
    }

    /// Whether others can answer a client: it was heard of by datagram.
    pub fn is_relayable(&self, session: SessionId) -> bool {
        let origin = self.sessions.get(session).and_then(|known| known.origin());
        matches!(origin, Some(Origin::Datagram(_)))
    }

    /// Passes a session's request on to another server, if the client can be answered by others.
    pub fn relay(&mut self, hop: Hop, session: SessionId, request: &Request) -> bool {
        let Some(known) = self.sessions.get(session) else { return false };
        let Some(Origin::Datagram(origin)) = known.origin() else { return false };
        let trail = (hop.trail.level, hop.trail.entry);
        let ticket = known.sealed.to_vec();
        let relay = Relay { ticket, origin, request: request.clone(), hops: hop.hops, trail };
        self.to_server(hop.server, &Message::Relay(relay), None);
        true
    }

    /// Takes the word of another server for a session: its ticket was shown there, and a packet signed with
    /// its secret. The answer to the request goes to where that came from.
    pub fn admit_relayed(&mut self, now: Wall, relay: &Relay) -> Option<Relayed> {
        let ticket = self.responder.open_ticket(&relay.ticket)?;
        let (session, squash) = (ticket.session, ticket.squash);
        let is_good = now < ticket.expires && !join::is_token(&ticket.enrolment);
        if !is_good || is_revoked(self.revoked.as_ref(), &ticket.enrolment) != Some(false) {
            return None;
        }
        if self.sessions.get(session).is_none() && self.sessions.admit(ticket, &relay.ticket) {
            self.start = draw_start();
        }
        let origin = Origin::Datagram(relay.origin);
        self.sessions.get_mut(session)?.heard_elsewhere(origin);
        self.routes.note_relayed(Sender::Client(session), origin, relay.request.sequence);
        Some(Relayed { session, squash })
    }

    /// The token by which a session began, if it did by one, and the session's secret.
    pub fn token_of(&self, session: SessionId) -> Option<(&EnrolmentName, &Key)> {
        let ticket = &self.sessions.get(session)?.ticket;
        join::is_token(&ticket.enrolment).then_some((&ticket.enrolment, &ticket.secret))
    }

    /// From now on questions to the coordinator are not sent, but kept for who asks for them.
    pub fn keep_asks(&mut self) {
        self.asks = Some(Vec::new());
    }

    /// The questions that were kept.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.asks.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sends to another server, by datagram if it fits one.
    pub fn to_server(&mut self, server: ServerId, message: &Message, bulk: Option<Bulk>) {
        if let (COORDINATOR, Message::Ask(ask), Some(asks)) = (server, message, &mut self.asks) {
            return asks.push(ask.clone());
        }
        let receiver = Sender::Server(server);
        let origin = match self.routes.take(receiver, message) {
            Some(origin) => origin,
            None => match self.servers.get(&server) {
                Some(address) => Origin::Datagram(*address),
                None => return self.undeliverable.no_address += 1,
            },
        };
        self.queue(Lane { receiver, origin }, message, bulk);
    }

    /// Sends to a client: an answer the way its request came, anything else to where the client was last
    /// heard of.
    pub fn to_session(&mut self, session: SessionId, message: &Message, bulk: Option<Bulk>) {
        let receiver = Sender::Client(session);
        let last = || self.sessions.get(session)?.origin();
        let origin = self.routes.take(receiver, message).or_else(last);
        let Some(origin) = origin else { return self.undeliverable.no_address += 1 };
        self.queue(Lane { receiver, origin }, message, bulk);
    }

    /// Answers whoever asked.
    pub fn answer(&mut self, asker: Sender, message: &Message, bulk: Option<Bulk>) {
        match asker {
            Sender::Client(session) => self.to_session(session, message, bulk),
            Sender::Server(server) => self.to_server(server, message, bulk),
            Sender::Nobody => {}
        }
    }

    fn queue(&mut self, lane: Lane, message: &Message, bulk: Option<Bulk>) {
        if let Some(bulk) = bulk.filter(|bulk| !bulk.is_empty()) {
            return self.queue_bulk(lane, message, bulk);
        }
        let packed_max = match lane.origin {
            Origin::Datagram(_) | Origin::Carried(..) => DATAGRAM_PACKED_MAX,
            Origin::Outgoing(_) | Origin::Connection(_) => STREAM_PACKED_MAX,
        };
        if self.pending.entry(lane).or_default().push(message, packed_max) {
            return;
        }
        self.seal_lane(lane, None);
        if self.pending.entry(lane).or_default().push(message, packed_max) {
            return;
        }
        self.queue_large(lane, message);
    }

    /// A message that is too large to share a packet.
    fn queue_large(&mut self, lane: Lane, message: &Message) {
        match (lane.origin, lane.receiver, message) {
            (Origin::Datagram(_) | Origin::Carried(..), Sender::Client(_), Message::Reply(reply)) => {
                let too_large = Reply { sequence: reply.sequence, answer: Answer::TooLarge };
                self.queue(lane, &Message::Reply(too_large), None);
            }
            // Clients listen for datagrams only.
            (Origin::Datagram(_), Sender::Client(_) | Sender::Nobody, _) | (Origin::Carried(..), _, _) => {
                self.drop_too_large(message);
            }
            (Origin::Datagram(address), Sender::Server(_), _) => {
                self.queue(Lane { origin: Origin::Outgoing(address), ..lane }, message, None);
            }
            (Origin::Outgoing(_) | Origin::Connection(_), _, _) => {
                if self.pending.entry(lane).or_default().push(message, PACKET_BYTES_MAX) {
                    self.seal_lane(lane, None);
                } else {
                    self.drop_too_large(message);
                }
            }
        }
    }

    /// No packet takes a message: it is lost, and would be each time. Whoever makes one is wrong.
    fn drop_too_large(&mut self, message: &Message) {
        self.undeliverable.too_large += 1;
        if self.undeliverable.too_large.is_power_of_two() {
            tracing::error!(
                "a message is too large for any packet to where it goes, and is not sent ({} so far): {:.60}",
                self.undeliverable.too_large,
                format!("{message:?}"),
            );
        }
    }

    /// A message with bulk bytes has a packet of its own.
    fn queue_bulk(&mut self, lane: Lane, message: &Message, bulk: Bulk) {
        let lane = match (lane.origin, lane.receiver) {
            (Origin::Datagram(address), Sender::Server(_)) if bulk.len() > DATAGRAM_PACKED_MAX => {
                Lane { origin: Origin::Outgoing(address), ..lane }
            }
            _ => lane,
        };
        let bulk_max = match lane.origin {
            Origin::Datagram(_) | Origin::Carried(..) => DATAGRAM_BULK_MAX,
            Origin::Outgoing(_) | Origin::Connection(_) => PACKET_BYTES_MAX - DATAGRAM_PACKED_MAX,
        };
        self.seal_lane(lane, None);
        let fits = bulk.len() <= bulk_max
            && self.pending.entry(lane).or_default().push(message, DATAGRAM_PACKED_MAX);
        if fits {
            self.seal_lane(lane, Some(bulk));
        } else {
            self.drop_too_large(message);
        }
    }

    fn seal_lane(&mut self, lane: Lane, bulk: Option<Bulk>) {
        let Some(packing) = self.pending.remove(&lane) else { return };
        if packing.is_empty() {
            return;
        }
        match lane.receiver {
            Sender::Client(session) => self.seal_to_session(session, lane.origin, packing, bulk),
            Sender::Server(server) => self.seal_to_server(server, lane.origin, packing, bulk),
            Sender::Nobody => {}
        }
    }

    fn seal_to_session(&mut self, session: SessionId, origin: Origin, packing: Packing, bulk: Option<Bulk>) {
        let Some(known) = self.sessions.get_mut(session) else { return self.undeliverable.no_address += 1 };
        let stamp = Stamp {
            version: known.ticket.version,
            sender: Sender::Server(self.me),
            counter: known.next_counter(),
            from: self.start,
            to: 0,
            ticket: &[],
        };
        let packet = packing.seal_head(&stamp, Some(&known.ticket.secret), length(bulk.as_ref()));
        let (to, transport) = origin.way();
        self.sealed.push(Sealed { to, transport, packet, bulk });
    }

    /// Seals a packet to a server whose start is known; else the packet waits, and the server is greeted.
    fn seal_to_server(&mut self, server: ServerId, origin: Origin, packing: Packing, bulk: Option<Bulk>) {
        match self.sending.next(server) {
            Some(next) => {
                let stamp = self.stamp(next);
                let packet = packing.seal_head(&stamp, Some(self.keys.packets()), length(bulk.as_ref()));
                let (to, transport) = origin.way();
                self.sealed.push(Sealed { to, transport, packet, bulk });
            }
            None => {
                let held = Held { packing, bulk, way: origin };
                self.held.push(server, held);
                self.greet(server, origin);
            }
        }
    }

    fn stamp(&self, next: Next) -> Stamp<'static> {
        let sender = Sender::Server(self.me);
        Stamp {
            version: next.version,
            sender,
            counter: next.counter,
            from: self.start,
            to: next.to.0,
            ticket: &[],
        }
    }

    fn greet(&mut self, server: ServerId, origin: Origin) {
        let next = self.sending.greet(server);
        let packet = envelope::seal(&self.stamp(next), Some(self.keys.packets()), None, &[]);
        self.push_sealed(origin, packet);
    }

    /// The packet with which a stream to an address begins, if a server is there: until a packet was taken,
    /// its peer reads only short ones.
    pub fn greeting(&mut self, address: SocketAddr) -> Option<Vec<u8>> {
        let server = self.server_at(address)?;
        let next = self.sending.greet(server);
        Some(envelope::seal(&self.stamp(next), Some(self.keys.packets()), None, &[]))
    }

    /// The start of a server is known: what waited for it goes.
    fn release(&mut self, server: ServerId) {
        let mut has_greeted = false;
        for held in self.held.take(server) {
            if matches!(held.way, Origin::Outgoing(_)) && !std::mem::replace(&mut has_greeted, true) {
                self.greet(server, held.way);
            }
            self.seal_to_server(server, held.way, held.packing, held.bulk);
        }
    }

    /// Seals all that waits and gives everything to be sent, in order for each receiver.
    pub fn take_sealed(&mut self) -> Vec<Sealed> {
        while let Some(lane) = self.pending.keys().next().copied() {
            self.seal_lane(lane, None);
        }
        std::mem::take(&mut self.sealed)
    }
}

/// What is to be done with a packet that is signed.
enum Verdict {
    Take,
    /// Nothing: it is not known yet whether its enrolment was revoked.
    Wait,
    /// The start is to be told.
    Welcome,
    /// To be refused.
    Refuse(Refusal),
}

const WELCOME: Message = Message::Welcome { versions: Versions::SPOKEN };
const RENEW: Message = Message::Ticket(TicketMessage::Renew);

/// Whether an enrolment was revoked. The default one cannot be: its secret is exchanged instead.
fn is_revoked(revoked: Option<&BTreeSet<EnrolmentName>>, name: &EnrolmentName) -> Option<bool> {
    if name.is_default() { Some(false) } else { revoked.map(|revoked| revoked.contains(name)) }
}

/// Never zero, which stands for an unknown one.
fn draw_start() -> Start {
    Start(random_u64() | 1)
}

/// At most so many per second.
struct RateLimit {
    per_second: u32,
    second_began: Mono,
    taken: u32,
}

impl RateLimit {
    fn new(per_second: u32) -> RateLimit {
        RateLimit { per_second, second_began: Mono::ZERO, taken: 0 }
    }

    fn take(&mut self, now: Mono) -> bool {
        if now.since(self.second_began) >= Duration::from_secs(1) {
            self.second_began = now;
            self.taken = 0;
        }
        self.taken += 1;
        self.taken <= self.per_second
    }
}

#[cfg(test)]
#[path = "post_tests.rs"]
mod tests;
