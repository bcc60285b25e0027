//! Questions to the flow server. It is an adviser: who gets no answer soon does without, and nobody asks it
//! for a while.

use crate::event::{Target, Transport};
use crate::run::{Awaited, Io, Promise, promise};
use bearing_proto::Message;
use bearing_proto::client::{ServerEntry, ServerKind};
use bearing_proto::flow::{FlowBody, FlowCall, FlowError, FlowReply, FlowRequest};
use bearing_types::{Mono, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// After a silence it is not asked for so long.
const PAUSE: Duration = Duration::from_millis(500);

/// An answer, or none in time.
pub type FlowAnswer = Option<Result<FlowBody, FlowError>>;

/// See the module.
#[derive(Default)]
pub(crate) struct FlowRequests {
    server: Option<ServerId>,
    silent_until: Option<Mono>,
    outstanding: BTreeMap<u64, Promise<FlowAnswer>>,
    next: u64,
}

impl FlowRequests {
    /// A newer map names these servers. One that is new is greeted: who has a session there is answered
    /// sooner.
    pub fn on_servers(&mut self, servers: &[ServerEntry], io: &mut Io) {
        let flow = servers.iter().find(|entry| entry.kind == ServerKind::Flow).map(|entry| entry.server);
        if flow.is_some() && flow != self.server {
            self.server = flow;
            self.tell(FlowCall::Ended { flows: Vec::new() }, io);
        }
        self.server = flow;
    }

    /// Asks, if there is anybody to ask. The number is for [`FlowRequests::give_up`].
    pub fn ask(&mut self, call: FlowCall, io: &mut Io) -> Option<(u64, Awaited<FlowAnswer>)> {
        let server = self.server.filter(|_| self.silent_until.is_none_or(|until| until <= io.now.mono))?;
        self.next += 1;
        let (promise, awaited) = promise();
        self.outstanding.insert(self.next, promise);
        io.counters.flow_asked += 1;
        let message = Message::Flow(FlowRequest { id: self.next, call });
        io.send(Target::Server(server), Transport::Datagram, message);
        Some((self.next, awaited))
    }

    /// Tells something that needs no answer.
    pub fn tell(&mut self, call: FlowCall, io: &mut Io) {
        let Some(server) = self.server else { return };
        self.next += 1;
        let message = Message::Flow(FlowRequest { id: self.next, call });
        io.send(Target::Server(server), Transport::Datagram, message);
    }

    /// A reply.
    pub fn on_reply(&mut self, reply: FlowReply, io: &mut Io) {
        if let Some(promise) = self.outstanding.remove(&reply.id) {
            io.counters.flow_answered += 1;
            self.silent_until = None;
            promise.keep(Some(reply.result));
        }
    }

    /// No answer came in time.
    pub fn give_up(&mut self, number: u64, io: &mut Io) {
        if let Some(promise) = self.outstanding.remove(&number) {
            io.counters.flow_silent += 1;
            self.silent_until = Some(io.now.mono.after(PAUSE));
            promise.keep(None);
        }
    }

    /// Nothing can be sent to a server.
    pub fn on_unreachable(&mut self, server: ServerId, io: &mut Io) {
        if self.server == Some(server) {
            for number in self.outstanding.keys().copied().collect::<Vec<_>>() {
                self.give_up(number, io);
            }
        }
    }
}
