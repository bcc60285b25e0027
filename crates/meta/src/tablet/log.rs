//! The log of one tablet: what is written and not stable yet, what waits for that, and what is on its way
//! from the log to the store.

use crate::event::{AppendNumber, Command};
use crate::record::{Key, LogEntry, LoggedChange, Record};
use crate::tablet::apply::Applies;
use bearing_proto::client::Reply;
use bearing_proto::data::DataRequest;
use bearing_proto::peer::PeerMessage;
use bearing_seams::LoggedRecord;
use bearing_types::{Epoch, LogIndex, Sequence, ServerId, SessionId, TabletSerial};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that leaves when a log record is committed.
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
#[derive(Debug)]
pub(crate) struct Log {
    serial: TabletSerial,
    epoch: Epoch,
    next: LogIndex,
    committed: LogIndex,
    applied: LogIndex,
    appended: VecDeque<(AppendNumber, LogIndex)>,
    applies: Applies,
    held: BTreeMap<LogIndex, Vec<Held>>,
    /// Requests whose replies are held.
    parked: BTreeSet<(SessionId, Sequence)>,
    /// Records that need not be kept any more: they go with the next entry.
    stale: Vec<Key>,
}

impl Log {
    /// Of a tablet whose log before `next` is in the store.
    pub fn new(serial: TabletSerial, epoch: Epoch, next: LogIndex) -> Log {
        let before = LogIndex(next.0 - 1);
        Log {
            serial,
            epoch,
            next,
            committed: before,
            applied: before,
            appended: VecDeque::new(),
            applies: Applies::new(),
            held: BTreeMap::new(),
            parked: BTreeSet::new(),
            stale: Vec::new(),
        }
    }

    /// The index of the next entry.
    pub fn next(&self) -> LogIndex {
        self.next
    }

    /// The index of the youngest entry, committed or not.
    pub fn last(&self) -> LogIndex {
        LogIndex(self.next.0 - 1)
    }

    /// Everything up to this entry is committed.
    pub fn committed(&self) -> LogIndex {
        self.committed
    }

    /// Whether every entry is committed and in the store.
    pub fn is_settled(&self) -> bool {
        self.applied == self.last()
    }

    /// Records go with the next entry, unless that says otherwise.
    pub fn drop_with_next(&mut self, keys: Vec<Key>) {
        self.stale.extend(keys);
    }

    /// Appends an entry. Gives its index, and all changes of it.
    pub fn append(
        &mut self,
        mut batch: BTreeMap<Key, Option<Record>>,
        number: AppendNumber,
        out: &mut Vec<Command>,
    ) -> (LogIndex, BTreeMap<Key, Option<Record>>) {
        for key in self.stale.drain(..) {
            batch.entry(key).or_insert(None);
        }
        let index = self.next;
        self.next = index.next();
        let changes: Vec<LoggedChange> =
            batch.iter().map(|(key, record)| LoggedChange::new(key, record.as_ref())).collect();
        let entry = LogEntry { reset: false, changes };
        let (serial, epoch, commit) = (self.serial, self.epoch, self.committed);
        let logged = LoggedRecord { serial, epoch, index, commit, bytes: entry.encode() };
        out.push(Command::Append(number, logged));
        self.appended.push_back((number, index));
        let values = entry.changes.into_iter().map(|change| change.value);
        self.applies.log(index, batch.keys().copied().zip(values).collect());
        (index, batch)
    }

    /// Appends up to `number` are stable. Gives what may leave now.
    pub fn synced(&mut self, number: AppendNumber) -> Vec<Held> {
        while let Some((appended, index)) = self.appended.front().copied() {
            if appended > number {
                break;
            }
            self.appended.pop_front();
            self.committed = index;
        }
        self.applies.commit(self.committed);
        let later = self.held.split_off(&self.committed.next());
        let held: Vec<Held> = std::mem::replace(&mut self.held, later).into_values().flatten().collect();
        for held in &held {
            if let Held::Reply(session, reply) = held {
                self.parked.remove(&(*session, reply.sequence));
            }
        }
        held
    }

    // --- the store ---

    /// How many committed keys are gathered for the store.
    pub fn gathered(&self) -> usize {
        self.applies.len()
    }

    /// Sends what is gathered to the store.
    pub fn apply(&mut self, out: &mut Vec<Command>) {
        if let Some((index, changes)) = self.applies.take() {
            out.push(Command::Apply(self.serial, index, changes));
        }
    }

    /// The planted bug: an entry that is not stable goes to the store.
    pub fn apply_early(&mut self, index: LogIndex, out: &mut Vec<Command>) {
        self.applies.commit(index);
        self.apply(out);
    }

    /// The store holds everything up to an entry. Gives the entries and keys that this is news of, oldest
    /// first.
    pub fn applied(&mut self, up_to: LogIndex) -> Vec<(LogIndex, Vec<Key>)> {
        let news = self.applies.applied(up_to);
        if let Some((index, _)) = news.last() {
            self.applied = *index;
        }
        news
    }

    // --- what waits ---

    /// Keeps something until an entry is committed; gives it back if it is already.
    pub fn hold(&mut self, index: LogIndex, held: Held) -> Option<Held> {
        if index <= self.committed {
            return Some(held);
        }
        if let Held::Reply(session, reply) = &held {
            self.parked.insert((*session, reply.sequence));
        }
        self.held.entry(index).or_default().push(held);
        None
    }

    /// Whether the reply to a request leaves as soon as an entry is committed.
    pub fn is_parked(&self, session: SessionId, sequence: Sequence) -> bool {
        self.parked.contains(&(session, sequence))
    }

    /// How many replies wait for entries.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }
}
