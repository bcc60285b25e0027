//! How hosts' messages become packets and back: sealed and opened with real keys, packed as the daemons pack
//! them. Without windows: what the network brings twice the machines take twice here, which is harsher than
//! what the daemons let through.
//!
//! An answer goes back the way its request came; an answer to a datagram that does not fit one becomes
//! `TooLarge`.

use crate::network::{HostId, Way};
use crate::world::World;
use bearing_proto::client::{Answer, Reply};
use bearing_proto::envelope::{self, DATAGRAM_PACKED_MAX, Packing, Stamp, Start, VERSION};
use bearing_proto::keys::Key;
use bearing_proto::{Message, Packet, PacketError, Sender};
use std::collections::{BTreeMap, BTreeSet};

/// Counts what no packet to a client takes.
pub const TOO_LARGE: &str = "message too large for a client";
/// Bulk bytes that a datagram carries at most.
const DATAGRAM_BULK_MAX: usize = 60_000;
const STREAM_BYTES_MAX: usize = envelope::PACKET_BYTES_MAX;

/// What one host sends within one step.
#[derive(Debug)]
pub struct Post {
    host: HostId,
    me: Sender,
    /// Questions that came by stream and are not answered yet.
    by_stream: BTreeSet<(Sender, u8, u64)>,
    pending: BTreeMap<(HostId, Way), (Packing, Receiver)>,
}

/// Whose key seals a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver(pub Sender);

/// What identifies a question among those of one asker, and its answer.
fn number_of(message: &Message) -> Option<(u8, u64)> {
    match message {
        Message::Request(request) => Some((0, request.sequence.0)),
        Message::Reply(reply) => Some((0, reply.sequence.0)),
        Message::Data(request) => Some((1, request.id)),
        Message::DataReply(reply) => Some((1, reply.id)),
        Message::Flow(request) => Some((2, request.id)),
        Message::FlowReply(reply) => Some((2, reply.id)),
        _ => None,
    }
}

impl Post {
    /// A host that signs as this sender.
    pub fn new(host: HostId, me: Sender) -> Post {
        Post { host, me, by_stream: BTreeSet::new(), pending: BTreeMap::new() }
    }

    fn key(&self, world: &mut World, receiver: Sender) -> Key {
        match (self.me, receiver) {
            (Sender::Client(session), _) | (_, Sender::Client(session)) => world.session_key(session),
            _ => world.keys.packets().clone(),
        }
    }

    /// Opens a packet that arrived; `None` when it is not good.
    pub fn open(&mut self, world: &mut World, way: Way, bytes: &[u8]) -> Option<Packet> {
        match self.try_open(world, bytes) {
            Ok(packet) => {
                let asks = |message: &&Message| matches!(message, Message::Request(_) | Message::Data(_));
                for message in packet.messages.iter().filter(asks) {
                    let number = number_of(message).expect("questions have numbers");
                    if way == Way::Stream {
                        self.by_stream.insert((packet.sender, number.0, number.1));
                    } else {
                        self.by_stream.remove(&(packet.sender, number.0, number.1));
                    }
                }
                Some(packet)
            }
            Err(_) => {
                world.counts.add("packet not taken");
                None
            }
        }
    }

    fn try_open(&self, world: &mut World, bytes: &[u8]) -> Result<Packet, PacketError> {
        let key = match (self.me, envelope::header(bytes)?.sender) {
            (Sender::Client(session), _) | (_, Sender::Client(session)) => world.session_key(session),
            (_, Sender::Server(_) | Sender::Nobody) => world.keys.packets().clone(),
        };
        envelope::open(bytes, Some(&key))
    }

    /// Sends the answer to a question of `receiver` back the way it came; `None` of a way: by datagram.
    pub fn answer(
        &mut self,
        world: &mut World,
        to: HostId,
        receiver: Sender,
        message: &Message,
        bulk: &[u8],
    ) {
        let number = number_of(message).expect("answers have numbers");
        let by_stream = self.by_stream.remove(&(receiver, number.0, number.1));
        let way = if by_stream { Way::Stream } else { Way::Datagram };
        self.send(world, to, receiver, way, message, bulk);
    }

    /// Sends a message. `false`: a stream broke.
    pub fn send(
        &mut self,
        world: &mut World,
        to: HostId,
        receiver: Sender,
        way: Way,
        message: &Message,
        bulk: &[u8],
    ) -> bool {
        let is_client = matches!(receiver, Sender::Client(_));
        let large = bulk.len() > if is_client { DATAGRAM_BULK_MAX } else { DATAGRAM_PACKED_MAX };
        let way = if large && !is_client { Way::Stream } else { way };
        if large && way == Way::Datagram {
            world.counts.add("answer too large to send");
            return true;
        }
        if !bulk.is_empty() {
            let sent = self.flush_lane(world, to, way);
            return self.push(world, to, receiver, way, message) && self.seal(world, to, way, bulk) && sent;
        }
        self.push(world, to, receiver, way, message)
    }

    fn push(&mut self, world: &mut World, to: HostId, receiver: Sender, way: Way, message: &Message) -> bool {
        let bytes_max = if way == Way::Datagram { DATAGRAM_PACKED_MAX } else { STREAM_BYTES_MAX };
        let lane = || (Packing::new(), Receiver(receiver));
        // Of an earlier session at the same host: the keys are others.
        let others = self.pending.get(&(to, way)).is_some_and(|(_, mine)| *mine != Receiver(receiver));
        if others && !self.flush_lane(world, to, way) {
            return false;
        }
        if self.pending.entry((to, way)).or_insert_with(lane).0.push(message, bytes_max) {
            return true;
        }
        let sent = self.flush_lane(world, to, way);
        if self.pending.entry((to, way)).or_insert_with(lane).0.push(message, bytes_max) {
            return sent;
        }
        match (message, receiver) {
            (Message::Reply(reply), Sender::Client(_)) => {
                world.counts.add("answer too large for a datagram");
                let short = Message::Reply(Reply { sequence: reply.sequence, answer: Answer::TooLarge });
                self.push(world, to, receiver, way, &short)
            }
            // Clients listen for datagrams only: it is lost, and would be each time.
            (_, Sender::Client(_)) if way == Way::Datagram => {
                world.counts.add(TOO_LARGE);
                true
            }
            _ => self.push(world, to, receiver, Way::Stream, message),
        }
    }

    fn flush_lane(&mut self, world: &mut World, to: HostId, way: Way) -> bool {
        let empty = self.pending.get(&(to, way)).is_none_or(|(packing, _)| packing.is_empty());
        empty || self.seal(world, to, way, &[])
    }

    fn seal(&mut self, world: &mut World, to: HostId, way: Way, bulk: &[u8]) -> bool {
        let Some((packing, receiver)) = self.pending.remove(&(to, way)) else { return true };
        let key = self.key(world, receiver.0);
        let stamp =
            Stamp { version: VERSION, sender: self.me, counter: 0, from: Start::NONE, to: 0, ticket: &[] };
        let packet = packing.seal(&stamp, Some(&key), bulk);
        world.send(self.host, to, way, packet, bulk.len())
    }

    /// Sends all that waits. Gives the hosts to which a stream broke.
    pub fn flush(&mut self, world: &mut World) -> Vec<HostId> {
        let mut broken = Vec::new();
        while let Some((to, way)) = self.pending.keys().next().copied() {
            if !self.flush_lane(world, to, way) {
                broken.push(to);
            }
            self.pending.remove(&(to, way));
        }
        broken
    }
}
