//! What waits to leave a tablet until the log record is committed that it rests on, and all its members leave
//! the tablet to this server (see `engine/exit.rs`).

use bearing_proto::client::Reply;
use bearing_proto::data::DataRequest;
use bearing_proto::peer::PeerMessage;
use bearing_types::{LogIndex, Sequence, ServerId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Something that leaves when it may.
#[derive(Debug)]
pub(crate) enum Held {
    Reply(SessionId, Reply),
    /// The reply to a mutation whose queued items may have to arrive first.
    Mutation(SessionId, Sequence),
    Peer(PeerMessage),
    /// A request to a data server: it may remove or make what only that record speaks of.
    Data(ServerId, DataRequest),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    held: BTreeMap<LogIndex, Vec<Held>>,
    /// Requests whose replies are held.
    parked: BTreeSet<(SessionId, Sequence)>,
}

impl Exit {
    /// Keeps something that rests on a record.
    pub fn hold(&mut self, index: LogIndex, held: Held) {
        if let Held::Reply(session, reply) = &held {
            self.parked.insert((*session, reply.sequence));
        }
        self.held.entry(index).or_default().push(held);
    }

    /// What rests on nothing behind a record.
    pub fn take(&mut self, up_to: LogIndex) -> Vec<Held> {
        if self.held.first_key_value().is_none_or(|(index, _)| *index > up_to) {
            return Vec::new();
        }
        let later = self.held.split_off(&up_to.next());
        let held: Vec<Held> = std::mem::replace(&mut self.held, later).into_values().flatten().collect();
        for held in &held {
            if let Held::Reply(session, reply) = held {
                self.parked.remove(&(*session, reply.sequence));
            }
        }
        held
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the reply to a request leaves as soon as it may.
    pub fn is_parked(&self, session: SessionId, sequence: Sequence) -> bool {
        self.parked.contains(&(session, sequence))
    }

    /// How many replies wait.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }
}
