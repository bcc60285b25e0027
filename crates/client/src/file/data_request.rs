//! Requests to data servers: sent once, answered or not. Whoever asks decides what to do then.

use crate::event::{Command, Target, Transport};
use crate::hub::{Hub, State};
use crate::session::Phase;
use crate::task::{Promise, promise};
use crate::timer::Timer;
use bearing_proto::Message;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest};
use bearing_types::{ChunkId, Code, Mono, ServerId};
use std::collections::BTreeMap;

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

type Result = std::result::Result<(DataBody, Vec<u8>), DataFailure>;

struct Outstanding {
    server: ServerId,
    due: Mono,
    promise: Promise<Result>,
}

/// All outstanding requests.
#[derive(Default)]
pub(crate) struct DataRequests {
    outstanding: BTreeMap<u64, Outstanding>,
    next: u64,
}

impl Hub {
    /// Asks a data server.
    pub async fn data_call(
        &self,
        server: ServerId,
        chunk: ChunkId,
        call: DataCall,
        attachment: Vec<u8>,
    ) -> Result {
        let (promise, awaited) = promise();
        self.with(|state| {
            if let Phase::Over(code) = state.session.phase() {
                promise.keep(Err(DataFailure::Over(code)));
                return;
            }
            state.data.next += 1;
            let id = state.data.next;
            let due = state.now.mono.after(state.config.data_timeout);
            state.data.outstanding.insert(id, Outstanding { server, due, promise });
            state.timers.set(due, Timer::Data(id));
            let message = Message::Data(DataRequest { id, chunk, call });
            let (to, transport) = (Target::Server(server), Transport::Stream);
            state.out.push(Command::Send { to, transport, message, attachment });
        });
        awaited.await
    }
}

impl State {
    /// A reply of a data server.
    pub fn take_data_reply(&mut self, reply: DataReply, attachment: Vec<u8>) {
        let result = reply.result.map(|body| (body, attachment)).map_err(DataFailure::Refused);
        if !self.finish_data_request(reply.id, result) {
            self.counters.late_replies += 1;
        }
    }

    /// No answer came in time.
    pub fn data_request_due(&mut self, id: u64) {
        self.finish_data_request(id, Err(DataFailure::NoAnswer));
        // It may have come back under another address.
        self.want_map(false);
    }

    /// A hint that a server cannot be reached.
    pub fn data_disconnected(&mut self, server: ServerId) {
        let concerned = self.data.outstanding.iter().filter(|(_, request)| request.server == server);
        let concerned: Vec<_> = concerned.map(|(id, _)| *id).collect();
        if !concerned.is_empty() {
            self.want_map(false);
        }
        for id in concerned {
            self.finish_data_request(id, Err(DataFailure::Disconnected));
        }
    }

    /// The session is over.
    pub fn fail_data_requests(&mut self, code: Code) {
        while let Some(id) = self.data.outstanding.first_key_value().map(|(id, _)| *id) {
            self.finish_data_request(id, Err(DataFailure::Over(code)));
        }
    }

    fn finish_data_request(&mut self, id: u64, result: Result) -> bool {
        let Some(request) = self.data.outstanding.remove(&id) else { return false };
        self.timers.cancel(request.due, Timer::Data(id));
        request.promise.keep(result);
        true
    }
}
