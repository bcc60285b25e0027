//! Ways back: which way the requests under way came.

use bearing_env::{ConnectionId, Destination, Incoming, Transport};
use bearing_proto::{Message, Sender};
use bearing_types::Sequence;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};

/// Requests under way whose way back is kept; of more, the oldest are forgotten, and their clients ask again.
const ROUTES_MAX: usize = 1 << 16;

/// A way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// By datagram.
    Datagram(SocketAddr),
    /// By datagram to this address, which the network carried here: answers leave from it.
    Carried(SocketAddr, Ipv6Addr),
    /// By a stream that we make.
    Outgoing(SocketAddr),
    /// By a stream that the peer made.
    Connection(ConnectionId),
}

impl Origin {
    /// The way by which a packet came.
    pub fn of(incoming: &Incoming) -> Origin {
        match (incoming.from, incoming.transport) {
            (Destination::Connection(connection), _) => Origin::Connection(connection),
            (Destination::Carried(peer, at), _) => Origin::Carried(peer, at),
            (Destination::Address(address), Transport::Datagram) => Origin::Datagram(address),
            (Destination::Address(address), Transport::Stream) => Origin::Outgoing(address),
        }
    }

    /// Whether answers go by datagram.
    pub fn is_datagram(self) -> bool {
        matches!(self, Origin::Datagram(_) | Origin::Carried(..))
    }

    /// In the endpoint's terms.
    pub fn way(self) -> (Destination, Transport) {
        match self {
            Origin::Datagram(address) => (Destination::Address(address), Transport::Datagram),
            Origin::Carried(peer, at) => (Destination::Carried(peer, at), Transport::Datagram),
            Origin::Outgoing(address) => (Destination::Address(address), Transport::Stream),
            Origin::Connection(connection) => (Destination::Connection(connection), Transport::Stream),
        }
    }
}

/// What is asked, as far as its answer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Request(u64),
    Data(u64),
    Ask(u64),
    Flow(u64),
}

/// See the module.
#[derive(Default)]
pub struct Routes {
    ways: BTreeMap<(Sender, Question), (Origin, u64)>,
    order: VecDeque<(u64, (Sender, Question))>,
    noted: u64,
}

impl Routes {
    /// Remembers the way back to the sender of messages that were authenticated.
    pub fn note(&mut self, sender: Sender, origin: Origin, messages: &[Message]) {
        for message in messages {
            // Answers to a client's datagram go to where it was last heard of: nothing to remember on the hot
            // path.
            let question = match message {
                Message::Request(_) if matches!(origin, Origin::Datagram(_)) => continue,
                Message::Request(request) => Question::Request(request.sequence.0),
                Message::Data(request) => Question::Data(request.id),
                Message::Ask(ask) => Question::Ask(ask.id),
                Message::Flow(request) => Question::Flow(request.id),
                _ => continue,
            };
            self.note_way((sender, question), origin);
        }
    }

    /// Remembers where a client is that asked this by another server.
    pub fn note_relayed(&mut self, sender: Sender, origin: Origin, sequence: Sequence) {
        self.note_way((sender, Question::Request(sequence.0)), origin);
    }

    fn note_way(&mut self, way: (Sender, Question), origin: Origin) {
        self.noted += 1;
        self.ways.insert(way, (origin, self.noted));
        self.order.push_back((self.noted, way));
        while self.order.len() > ROUTES_MAX {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if self.ways.get(&oldest).is_some_and(|(_, noted)| *noted == number) {
                self.ways.remove(&oldest);
            }
        }
    }

    /// The way back for an answer, which is then forgotten.
    pub fn take(&mut self, receiver: Sender, answer: &Message) -> Option<Origin> {
        let question = match answer {
            Message::Reply(reply) => Question::Request(reply.sequence.0),
            Message::DataReply(reply) => Question::Data(reply.id),
            Message::Told(told) => Question::Ask(told.id),
            Message::FlowReply(reply) => Question::Flow(reply.id),
            _ => return None,
        };
        self.ways.remove(&(receiver, question)).map(|(origin, _)| origin)
    }
}
