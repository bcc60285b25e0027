//! The post of one server: opens packets, remembers where answers go, packs and seals what is sent.
//!
//! Machines know servers and sessions; addresses and transports are known only here. Small messages to one receiver share a
//! datagram. An answer to a request goes back the way the request came; an answer to a datagram that does not fit one becomes
//! `TooLarge`, and the client asks again by stream. Every table here is bounded, and only senders that proved a key get into one.
//!
//! This module must not know any machine, and it does no I/O: it takes bytes and leaves bytes.

use crate::routes::{Origin, Routes};
use bearing_env::{Destination, Incoming, Transport};
use bearing_proto::client::{Answer, Reply};
use bearing_proto::envelope::{self, PACKET_BYTES_MAX, Packing, Refusal, VERSION};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::{Message, PacketError, Sender};
use bearing_types::{Mono, ServerId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Messages to one receiver are packed into datagrams of up to so many bytes; a message that is larger alone goes by stream.
pub const DATAGRAM_PACKED_MAX: usize = 8 * 1024;
/// Messages on one stream are packed into packets of up to so many bytes; a message that is larger alone goes alone.
const STREAM_PACKED_MAX: usize = 256 * 1024;
/// Bulk bytes in an answer to a datagram: what a datagram can carry at all, less room for the rest.
const DATAGRAM_BULK_MAX: usize = 60_000;
/// Refusals sent per second, over all peers: strangers shall not make us send much.
const REFUSALS_PER_SECOND: u32 = 50;
/// Peers of which it is remembered that a complaint about them was logged.
const COMPLAINTS_MAX: usize = 1024;

/// What came of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// Messages of a sender who proved its key.
    Messages {
        /// The sender.
        sender: Sender,
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

/// A sealed packet on its way.
#[derive(Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Where to.
    pub to: Destination,
    /// How.
    pub transport: Transport,
    /// The packet.
    pub packet: Vec<u8>,
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
    servers: BTreeMap<ServerId, SocketAddr>,
    routes: Routes,
    pending: BTreeMap<Lane, Packing>,
    sealed: Vec<Sealed>,
    complaints: BTreeSet<SocketAddr>,
    refusals: RateLimit,
    undeliverable: Undeliverable,
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
            keys,
            servers: servers.into_iter().collect(),
            routes: Routes::default(),
            pending: BTreeMap::new(),
            sealed: Vec::new(),
            complaints: BTreeSet::new(),
            refusals: RateLimit::new(REFUSALS_PER_SECOND),
            undeliverable: Undeliverable::default(),
        }
    }

    /// Takes the present address of a server.
    pub fn learn_server(&mut self, server: ServerId, address: SocketAddr) {
        self.servers.insert(server, address);
    }

    /// All servers whose addresses are known, but this one.
    pub fn others(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers.keys().copied().filter(|server| *server != self.me)
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
    pub fn open(&mut self, now: Mono, incoming: &Incoming) -> Opened {
        let (peer, origin) = (incoming.peer, Origin::of(incoming));
        match self.open_packet(&incoming.bytes) {
            Ok(packet) => {
                if let [Message::Refused(refusal)] = packet.messages[..] {
                    return Opened::Refused { peer, refusal };
                }
                self.routes.note(packet.sender, origin, &packet.messages, || match packet.sender {
                    Sender::Client(session) => self.keys.session(session),
                    Sender::Server(_) | Sender::Nobody => self.keys.packets().clone(),
                });
                Opened::Messages {
                    sender: packet.sender,
                    messages: packet.messages,
                    attachment: packet.attachment,
                }
            }
            Err(error) => {
                self.refuse(now, incoming, error);
                let first = self.complaints.len() < COMPLAINTS_MAX && self.complaints.insert(peer);
                Opened::NotTaken { peer, error, first }
            }
        }
    }

    fn open_packet(&self, bytes: &[u8]) -> Result<envelope::Packet, PacketError> {
        match envelope::sender(bytes)? {
            Sender::Client(session) => match self.routes.session_key(session) {
                Some(key) => envelope::open(bytes, Some(key)),
                None => envelope::open(bytes, Some(&self.keys.session(session))),
            },
            Sender::Server(_) => envelope::open(bytes, Some(self.keys.packets())),
            Sender::Nobody => envelope::open(bytes, None),
        }
    }

    /// Tells a stranger why, unsigned and not too often. What is not even a packet gets no answer.
    fn refuse(&mut self, now: Mono, incoming: &Incoming, error: PacketError) {
        let refusal = match error {
            PacketError::Malformed => return,
            PacketError::Version(_) => Refusal::Version { speaks: VERSION },
            PacketError::Unauthenticated => Refusal::Unauthenticated,
        };
        if !self.refusals.take(now) {
            return;
        }
        let mut packing = Packing::new();
        packing.push(&Message::Refused(refusal), DATAGRAM_PACKED_MAX);
        let packet = packing.seal(Sender::Nobody, None, &[]);
        self.sealed.push(Sealed { to: incoming.from, transport: incoming.transport, packet });
    }

    /// Sends to another server, by datagram if it fits one.
    pub fn to_server(&mut self, server: ServerId, message: &Message, attachment: &[u8]) {
        let receiver = Sender::Server(server);
        let origin = match self.routes.take(receiver, message) {
            Some(origin) => origin,
            None => match self.servers.get(&server) {
                Some(address) => Origin::Datagram(*address),
                None => return self.undeliverable.no_address += 1,
            },
        };
        self.queue(Lane { receiver, origin }, message, attachment);
    }

    /// Sends to a client: an answer the way its request came, anything else to where the client was last heard of.
    pub fn to_session(&mut self, session: SessionId, message: &Message, attachment: &[u8]) {
        let receiver = Sender::Client(session);
        let origin = self.routes.take(receiver, message).or_else(|| self.routes.session_origin(session));
        let Some(origin) = origin else { return self.undeliverable.no_address += 1 };
        self.queue(Lane { receiver, origin }, message, attachment);
    }

    /// Answers whoever asked.
    pub fn answer(&mut self, asker: Sender, message: &Message, attachment: &[u8]) {
        match asker {
            Sender::Client(session) => self.to_session(session, message, attachment),
            Sender::Server(server) => self.to_server(server, message, attachment),
            Sender::Nobody => {}
        }
    }

    fn queue(&mut self, lane: Lane, message: &Message, attachment: &[u8]) {
        if !attachment.is_empty() {
            return self.queue_bulk(lane, message, attachment);
        }
        let packed_max = match lane.origin {
            Origin::Datagram(_) => DATAGRAM_PACKED_MAX,
            Origin::Outgoing(_) | Origin::Connection(_) => STREAM_PACKED_MAX,
        };
        if self.pending.entry(lane).or_default().push(message, packed_max) {
            return;
        }
        self.seal_lane(lane, &[]);
        if self.pending.entry(lane).or_default().push(message, packed_max) {
            return;
        }
        self.queue_large(lane, message);
    }

    /// A message that is too large to share a packet.
    fn queue_large(&mut self, lane: Lane, message: &Message) {
        match (lane.origin, lane.receiver, message) {
            (Origin::Datagram(_), Sender::Client(_), Message::Reply(reply)) => {
                let too_large = Reply { sequence: reply.sequence, answer: Answer::TooLarge };
                self.queue(lane, &Message::Reply(too_large), &[]);
            }
            // Clients listen for datagrams only.
            (Origin::Datagram(_), Sender::Client(_) | Sender::Nobody, _) => self.undeliverable.too_large += 1,
            (Origin::Datagram(address), Sender::Server(_), _) => {
                self.queue(Lane { origin: Origin::Outgoing(address), ..lane }, message, &[]);
            }
            (Origin::Outgoing(_) | Origin::Connection(_), _, _) => {
                if self.pending.entry(lane).or_default().push(message, PACKET_BYTES_MAX) {
                    self.seal_lane(lane, &[]);
                } else {
                    self.undeliverable.too_large += 1;
                }
            }
        }
    }

    /// A message with bulk bytes has a packet of its own.
    fn queue_bulk(&mut self, lane: Lane, message: &Message, attachment: &[u8]) {
        let lane = match (lane.origin, lane.receiver) {
            (Origin::Datagram(address), Sender::Server(_)) if attachment.len() > DATAGRAM_PACKED_MAX => {
                Lane { origin: Origin::Outgoing(address), ..lane }
            }
            _ => lane,
        };
        let bulk_max = match lane.origin {
            Origin::Datagram(_) => DATAGRAM_BULK_MAX,
            Origin::Outgoing(_) | Origin::Connection(_) => PACKET_BYTES_MAX - DATAGRAM_PACKED_MAX,
        };
        self.seal_lane(lane, &[]);
        let fits = attachment.len() <= bulk_max
            && self.pending.entry(lane).or_default().push(message, DATAGRAM_PACKED_MAX);
        if fits {
            self.seal_lane(lane, attachment);
        } else {
            self.undeliverable.too_large += 1;
        }
    }

    fn seal_lane(&mut self, lane: Lane, attachment: &[u8]) {
        let Some(packing) = self.pending.remove(&lane) else { return };
        if packing.is_empty() {
            return;
        }
        let me = Sender::Server(self.me);
        let packet = match lane.receiver {
            Sender::Client(session) => match self.routes.session_key(session) {
                Some(key) => packing.seal(me, Some(key), attachment),
                None => packing.seal(me, Some(&self.keys.session(session)), attachment),
            },
            Sender::Server(_) | Sender::Nobody => packing.seal(me, Some(self.packet_key()), attachment),
        };
        let (to, transport) = lane.origin.way();
        self.sealed.push(Sealed { to, transport, packet });
    }

    fn packet_key(&self) -> &Key {
        self.keys.packets()
    }

    /// Seals all that waits and gives everything to be sent, in order for each receiver.
    pub fn take_sealed(&mut self) -> Vec<Sealed> {
        while let Some(lane) = self.pending.keys().next().copied() {
            self.seal_lane(lane, &[]);
        }
        std::mem::take(&mut self.sealed)
    }
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
