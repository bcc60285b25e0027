//! Requests on their way over servers that do not own what they ask for, and what the servers' lookups say to
//! each other meanwhile.

use crate::post::{Post, Relayed};
use bearing_lookup::Trail;
use bearing_lookup::bloom::Counts;
use bearing_meta::{Asked, Hop, MetaServer, Relays, Said};
use bearing_placement::LookupKind;
use bearing_proto::client::Request;
use bearing_proto::relay::Relay;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, ServerId, SessionId, Squash};
use std::net::SocketAddr;

/// Where a request came from.
enum Source {
    /// From its client.
    Client(SessionId, Squash),
    /// From another server, with the client's ticket and address.
    Server(Vec<u8>, SocketAddr),
}

/// A message for the metadata machine, as if it had come from this sender.
type Taken = (Sender, Squash, Message);

/// The lookup of a metadata server in its shell.
pub struct Relaying {
    relays: Relays<Source>,
    said: Vec<Said<Source>>,
}

impl Relaying {
    /// Of a server in a cluster with this lookup; `None` if clients ask owners themselves.
    pub fn new(me: ServerId, lookup: LookupKind) -> Option<Relaying> {
        Some(Relaying { relays: Relays::new(me, lookup)?, said: Vec::new() })
    }

    /// What filters led to, if servers have such.
    pub fn filters(&self) -> Option<Counts> {
        self.relays.filters().map(|view| view.counts)
    }

    /// When the next turn is due even if nothing comes in.
    pub fn next_wake(&self) -> Option<Mono> {
        self.relays.next_wake()
    }

    /// Learns what the machine knows, and does what time brings; tickets end by the time of day that it is
    /// given. Gives what was held and is decided here.
    pub fn turn(&mut self, now: Now, machine: Option<&MetaServer>, post: &mut Post) -> Vec<Taken> {
        machine.into_iter().for_each(|machine| self.relays.learn(now.mono, machine, &mut self.said));
        self.relays.wake(now.mono, &mut self.said);
        self.carry_out(now, post)
    }

    /// Takes what concerns lookups out of the messages of one packet. What a client asks and is decided here
    /// stays in its place; gives what others ask and is decided here, as their clients would have sent it.
    pub fn take(
        &mut self,
        now: Now,
        (sender, squash): (Sender, Squash),
        messages: &mut Vec<Message>,
        post: &mut Post,
    ) -> Vec<Taken> {
        let is_relayable = match sender {
            Sender::Client(session) => post.is_relayable(session),
            Sender::Server(_) | Sender::Nobody => false,
        };
        let mut taken = Vec::new();
        for message in std::mem::take(messages) {
            match (sender, message) {
                (Sender::Client(session), Message::Request(request)) if is_relayable => {
                    let trail = Trail::default();
                    let asked = Asked { from: Source::Client(session, squash), request, hops: 0, trail };
                    self.relays.on_request(now.mono, asked, &mut self.said);
                }
                (Sender::Server(_), Message::Relay(relay)) => {
                    let Relay { ticket, origin, request, hops, trail: (level, entry) } = relay;
                    let from = Source::Server(ticket, origin);
                    let asked = Asked { from, request, hops, trail: Trail { level, entry } };
                    self.relays.on_request(now.mono, asked, &mut self.said);
                }
                (Sender::Server(server), Message::Filters(message)) => {
                    self.relays.on_message(now.mono, server, &message, &mut self.said);
                }
                (_, other) => messages.push(other),
            }
            for (asker, its_squash, message) in self.carry_out(now, post) {
                match asker == sender {
                    true => messages.push(message),
                    false => taken.push((asker, its_squash, message)),
                }
            }
        }
        taken
    }

    fn carry_out(&mut self, now: Now, post: &mut Post) -> Vec<Taken> {
        let mut said = std::mem::take(&mut self.said);
        let decided = said.drain(..).filter_map(|said| match said {
            Said::Decide(from, request) => decide(now, from, request, post),
            Said::Pass(hop, from, request) => pass(hop, from, request, post),
            Said::Send(server, message) => {
                post.to_server(server, &Message::Filters(message), None);
                None
            }
        });
        let decided = decided.collect();
        self.said = said;
        decided
    }
}

fn decide(now: Now, from: Source, request: Request, post: &mut Post) -> Option<Taken> {
    match from {
        Source::Client(session, squash) => Some((Sender::Client(session), squash, Message::Request(request))),
        Source::Server(ticket, origin) => {
            let relay = Relay { ticket, origin, request, hops: 0, trail: (0, None) };
            let Relayed { session, squash } = post.admit_relayed(now.wall, &relay)?;
            Some((Sender::Client(session), squash, Message::Request(relay.request)))
        }
    }
}

/// Sends a request on. It is decided here if its client can be answered by this server alone.
fn pass(hop: Hop, from: Source, request: Request, post: &mut Post) -> Option<Taken> {
    match from {
        Source::Client(session, squash) => (!post.relay(hop, session, &request)).then_some((
            Sender::Client(session),
            squash,
            Message::Request(request),
        )),
        Source::Server(ticket, origin) => {
            let Hop { server, hops, trail: Trail { level, entry } } = hop;
            let relay = Relay { ticket, origin, request, hops, trail: (level, entry) };
            post.to_server(server, &Message::Relay(relay), None);
            None
        }
    }
}
