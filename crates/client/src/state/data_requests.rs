//! Requests to data servers: sent once, answered or not. Whoever asks decides what to do then.

use super::routes::Routes;
use crate::event::{Command, Target, Transport};
use crate::run::{Awaited, Io, Promise, Timer, promise};
use bearing_proto::Message;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest};
use bearing_types::{ChunkId, Code, Mono, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Why there is no good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataFailure {
    /// None came in time.
    NoAnswer,
    /// The connection broke, or there was none.
    Disconnected,
    /// The server refused.
    Refused(DataError),
    /// The session is over.
    Over(Code),
}

pub(crate) type DataAnswer = Result<(DataBody, Vec<u8>), DataFailure>;

struct Outstanding {
    server: ServerId,
    due: Mono,
    promise: Promise<DataAnswer>,
}

/// All outstanding requests.
#[derive(Default)]
pub(crate) struct DataRequests {
    outstanding: BTreeMap<u64, Outstanding>,
    next: u64,
}

impl DataRequests {
    /// Asks a data server something about a chunk, which it has to answer within this time.
    pub fn ask(
        &mut self,
        server: ServerId,
        (chunk, call): (ChunkId, DataCall),
        attachment: Vec<u8>,
        timeout: Duration,
        io: &mut Io,
    ) -> Awaited<DataAnswer> {
        let (promise, awaited) = promise();
        self.next += 1;
        let (id, due) = (self.next, io.now.mono.after(timeout));
        self.outstanding.insert(id, Outstanding { server, due, promise });
        io.timers.set(due, Timer::Data(id));
        let message = Message::Data(DataRequest { id, chunk, call });
        let (to, transport) = (Target::Server(server), Transport::Stream);
        io.out.push(Command::Send { to, transport, message, attachment });
        awaited
    }

    /// A reply of a data server.
    pub fn on_reply(&mut self, reply: DataReply, attachment: Vec<u8>, io: &mut Io) {
        let result = reply.result.map(|body| (body, attachment)).map_err(DataFailure::Refused);
        if !self.finish(reply.id, result, io) {
            io.counters.late_replies += 1;
        }
    }

    /// No answer came in time.
    pub fn on_due(&mut self, id: u64, io: &mut Io, routes: &mut Routes) {
        self.finish(id, Err(DataFailure::NoAnswer), io);
        // It may have come back under another address.
        routes.want_map(false);
    }

    /// A hint that a server cannot be reached.
    pub fn on_unreachable(&mut self, server: ServerId, io: &mut Io, routes: &mut Routes) {
        let concerned = self.outstanding.iter().filter(|(_, request)| request.server == server);
        let concerned: Vec<_> = concerned.map(|(id, _)| *id).collect();
        if !concerned.is_empty() {
            routes.want_map(false);
        }
        for id in concerned {
            self.finish(id, Err(DataFailure::Disconnected), io);
        }
    }

    /// The session is over.
    pub fn fail(&mut self, code: Code, io: &mut Io) {
        while let Some(id) = self.outstanding.first_key_value().map(|(id, _)| *id) {
            self.finish(id, Err(DataFailure::Over(code)), io);
        }
    }

    fn finish(&mut self, id: u64, result: DataAnswer, io: &mut Io) -> bool {
        let Some(request) = self.outstanding.remove(&id) else { return false };
        io.timers.cancel(request.due, Timer::Data(id));
        request.promise.keep(result);
        true
    }
}
