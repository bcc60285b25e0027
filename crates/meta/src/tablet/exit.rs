//! What waits to leave a tablet until the log record is committed that it rests on, and all its members leave
//! the tablet to this server (see `engine/exit.rs`).

use bearing_proto::client::Reply;
use bearing_proto::data::DataRequest;
use bearing_proto::peer::{PeerMessage, Told};
use bearing_types::{LogIndex, Sequence, ServerId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many messages to other servers wait. What is not kept is asked for again, or sent again: votes,
/// decisions, and what became of items and questions.
pub(crate) const PEERS_MAX: usize = 8192;

/// Something that leaves when it may.
#[derive(Debug)]
pub(crate) enum Held {
    Reply(SessionId, Reply),
    /// The reply to a mutation whose queued items may have to arrive first.
    Mutation(SessionId, Sequence),
    Peer(PeerMessage),
    /// A request to a data server: it may remove or make what only that record speaks of.
    Data(ServerId, DataRequest, Option<Arc<Vec<u8>>>),
    /// Ids that this server has asked itself for: what it makes with them may lie in any tablet.
    Ids(Told),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    held: BTreeMap<LogIndex, Vec<Held>>,
    /// How many of them are messages to other servers.
    peers: usize,
    /// How many of them are ids.
    ids: usize,
    /// Requests whose replies are held.
    parked: BTreeSet<(SessionId, Sequence)>,
}

impl Exit {
    /// Keeps something that rests on a record.
    pub fn hold(&mut self, index: LogIndex, held: Held) {
        match &held {
            Held::Reply(session, reply) => {
                self.parked.insert((*session, reply.sequence));
            }
            Held::Peer(_) if self.peers == PEERS_MAX => return,
            Held::Peer(_) => self.peers += 1,
            Held::Ids(_) => self.ids += 1,
            Held::Mutation(..) | Held::Data(..) => {}
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
            match held {
                Held::Reply(session, reply) => {
                    self.parked.remove(&(*session, reply.sequence));
                }
                Held::Peer(_) => self.peers -= 1,
                Held::Ids(_) => self.ids -= 1,
                Held::Mutation(..) | Held::Data(..) => {}
            }
        }
        held
    }

    /// Bytes for data servers that waited are wanted no more.
    pub fn drop_bytes(&mut self) {
        self.held.retain(|_, held| {
            held.retain(|held| !matches!(held, Held::Data(_, _, Some(_))));
            !held.is_empty()
        });
    }

    /// Whether ids wait.
    pub fn holds_ids(&self) -> bool {
        self.ids > 0
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

    /// How many messages to other servers wait.
    pub fn peers(&self) -> usize {
        self.peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::Answer;
    use bearing_proto::peer::PeerBody;
    use bearing_types::{Epoch, Position, TransactionId};

    fn message(number: u64) -> Held {
        let transaction = TransactionId { coordinator: Position(1), epoch: Epoch(1), number };
        let body = PeerBody::Settled { transaction };
        Held::Peer(PeerMessage { from: Position(1), to: Position(2), epoch: Epoch(0), body })
    }

    #[test]
    fn messages_to_servers_beyond_their_limit_are_not_kept_and_replies_are() {
        let (mut exit, session, sequence) = (Exit::default(), SessionId(1), Sequence(1));
        let limit = PEERS_MAX as u64;
        (0..limit + 2).for_each(|number| exit.hold(LogIndex(1 + number % 2), message(number)));
        exit.hold(LogIndex(2), Held::Reply(session, Reply { sequence, answer: Answer::Unknown }));
        assert_eq!((exit.peers(), exit.parked()), (PEERS_MAX, 1));
        assert_eq!(exit.take(LogIndex(1)).len(), PEERS_MAX / 2);
        exit.hold(LogIndex(3), message(limit));
        assert_eq!(exit.take(LogIndex(3)).len(), PEERS_MAX / 2 + 2, "there was room again");
        assert_eq!((exit.peers(), exit.parked(), exit.is_empty()), (0, 0, true));
    }
}
