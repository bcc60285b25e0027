//! One tablet: its records in memory, its log, and who waits for what.

use crate::chunks::Tending;
use crate::config::Config;
use crate::event::{AppendNumber, Command};
use crate::lease::Horizon;
use crate::lease::LeaseTable;
use crate::lease::LockTable;
use crate::lease::OpenTable;
use crate::memory::Cache;
use crate::memory::Quotas;
use crate::mutant::Mutant;
use crate::record::Key;
use crate::record::{
    Delegated, Holder, InboxRecord, LogEntry, LoggedChange, OutboxRecord, PrepareRecord, Record,
};
use crate::tablet::apply::Applies;
use crate::tablet::marks::Collector;
use crate::tablet::replies::Replies;
use crate::words::Asking;
use crate::words::JobId;
use crate::words::LockedBy;
use bearing_proto::client::Reply;
use bearing_proto::data::DataRequest;
use bearing_proto::peer::{ItemId, PeerMessage};
use bearing_proto::sessions::SessionDescription;
use bearing_seams::LoggedRecord;
use bearing_types::{
    Block, Epoch, LogIndex, Mono, NodeId, Now, Position, Sequence, ServerId, SessionId, TransactionId,
};
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

/// A session as this tablet knows it.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    /// Those to its mutations, from `finished_below` on.
    pub replies: Replies,
    /// The client has the replies to all smaller numbers.
    pub finished_below: Option<Sequence>,
    /// The newest incarnation of what was lent to it that it has given up. Not logged: what comes from before a new epoch is refused.
    pub given_up: Option<u64>,
    /// When the session was last heard of here.
    pub heard: Option<Mono>,
    /// Its home said that it lives.
    pub met: bool,
}

#[derive(Debug)]
pub(crate) struct OutboxState {
    pub record: OutboxRecord,
    pub asked: Option<Asking>,
    pub committed: bool,
}

#[derive(Debug)]
pub(crate) struct DecisionState {
    /// Participants that have not settled.
    pub waiting: BTreeSet<Position>,
    pub index: LogIndex,
    pub asked: Option<Asking>,
}

#[derive(Debug)]
pub(crate) struct PreparedState {
    pub record: PrepareRecord,
    pub index: LogIndex,
    pub asked: Option<Asking>,
}

/// Numbers of one coordinator epoch that are over, as far as a participant remembers.
#[derive(Debug, Default)]
pub(crate) struct OverMarks {
    pub below: u64,
    pub numbers: BTreeSet<u64>,
}

/// Whether the tablet serves.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It is handed over; requests are told to retry.
    Leaving(Leaving),
}

/// A hand-over at its source.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub to: ServerId,
    pub since: Mono,
    /// The part that is being read or on its way, and the key after which it starts.
    pub part: u32,
    pub after: Option<Vec<u8>>,
    pub pairs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    pub last: bool,
    pub loading: Option<crate::event::LoadTicket>,
    pub sent: Mono,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tablet {
    pub block: Block,
    pub epoch: Epoch,
    pub phase: Phase,
    pub cache: Cache,
    pub locked: BTreeMap<Key, LockedBy>,
    pub waiting: BTreeMap<Key, Vec<JobId>>,
    pub leases: LeaseTable,
    pub opens: OpenTable,
    /// Sessions that may hold leases or files, as the log says.
    pub horizon: Horizon,
    pub ended: BTreeSet<SessionId>,
    /// Those at home here that their clients closed themselves. Not logged: what is forgotten of that costs others
    /// the time of a lease.
    pub closed: BTreeSet<SessionId>,
    /// Sessions that are over, are refused, and may use what they have leased here for a while yet.
    pub running_out: BTreeSet<SessionId>,
    pub sessions: BTreeMap<SessionId, SessionState>,
    /// Sessions whose record lies here, and when they were last renewed.
    pub registered: BTreeMap<SessionId, Mono>,
    /// What they said of themselves, to people.
    pub descriptions: BTreeMap<SessionId, SessionDescription>,
    pub outbox: BTreeMap<ItemId, OutboxState>,
    /// Items that came while leases were in their way, and from where: their senders are asked for them again when a recall is answered. A hint, no more.
    pub put_off: BTreeSet<(Position, ItemId)>,
    pub inbox: BTreeMap<Position, InboxRecord>,
    pub decisions: BTreeMap<TransactionId, DecisionState>,
    pub prepared: BTreeMap<(TransactionId, u8), PreparedState>,
    pub over: BTreeMap<(Position, Epoch), OverMarks>,
    pub next_transaction: u64,
    pub live: BTreeSet<u64>,
    pub reaping: BTreeSet<NodeId>,
    /// Delegated directories, and to whom: the same as the records say.
    pub delegations: BTreeMap<NodeId, Holder>,
    pub locks: LockTable,
    /// Nodes that are lent with a delegated directory, and with which.
    pub lent: BTreeMap<NodeId, NodeId>,
    lent_with: BTreeMap<NodeId, Vec<NodeId>>,
    pub quotas: Quotas,
    pub collector: Collector,
    pub tending: Tending,
    /// Replies that the client has: they go with the next record.
    pub stale_replies: Vec<Key>,
    pub next_index: LogIndex,
    pub committed: LogIndex,
    pub applied: LogIndex,
    /// The planted bug: changes reach the store before the log is synced.
    applies_early: bool,
    appended: VecDeque<(AppendNumber, LogIndex)>,
    applies: Applies,
    apply_gathered_max: usize,
    held: BTreeMap<LogIndex, Vec<Held>>,
    /// Requests whose replies are held.
    parked: BTreeSet<(SessionId, Sequence)>,
}

impl Tablet {
    /// A directory is delegated so from now on, with nodes that it names.
    pub fn delegate(&mut self, directory: NodeId, delegated: Delegated) {
        self.undelegate(directory);
        self.delegations.insert(directory, delegated.holder);
        self.lent.extend(delegated.nodes.iter().map(|node| (*node, directory)));
        if !delegated.nodes.is_empty() {
            self.lent_with.insert(directory, delegated.nodes);
        }
    }

    /// A directory is delegated no more.
    pub fn undelegate(&mut self, directory: NodeId) {
        self.delegations.remove(&directory);
        for node in self.lent_with.remove(&directory).into_iter().flatten() {
            if self.lent.get(&node) == Some(&directory) {
                self.lent.remove(&node);
            }
        }
    }

    /// A session's record is gone from here.
    pub fn forget_session(&mut self, session: SessionId) {
        self.registered.remove(&session);
        self.descriptions.remove(&session);
    }

    pub fn new(now: Now, block: Block, epoch: Epoch, next_index: LogIndex, config: &Config) -> Tablet {
        let before = LogIndex(next_index.0 - 1);
        Tablet {
            block,
            epoch,
            phase: Phase::Serving,
            cache: Cache::new(config.cache_entries_max),
            locked: BTreeMap::new(),
            waiting: BTreeMap::new(),
            leases: LeaseTable::default(),
            opens: OpenTable::default(),
            horizon: Horizon::new(now.mono, config),
            ended: BTreeSet::new(),
            closed: BTreeSet::new(),
            running_out: BTreeSet::new(),
            sessions: BTreeMap::new(),
            registered: BTreeMap::new(),
            descriptions: BTreeMap::new(),
            outbox: BTreeMap::new(),
            put_off: BTreeSet::new(),
            inbox: BTreeMap::new(),
            decisions: BTreeMap::new(),
            prepared: BTreeMap::new(),
            over: BTreeMap::new(),
            next_transaction: 1,
            live: BTreeSet::new(),
            reaping: BTreeSet::new(),
            delegations: BTreeMap::new(),
            locks: LockTable::default(),
            lent: BTreeMap::new(),
            lent_with: BTreeMap::new(),
            quotas: Quotas::default(),
            collector: Collector::new(now),
            tending: Tending::new(now),
            stale_replies: Vec::new(),
            next_index,
            committed: before,
            applied: before,
            applies_early: config.planted(Mutant::WrongSyncOrder),
            appended: VecDeque::new(),
            applies: Applies::new(),
            apply_gathered_max: config.apply_gathered_max,
            held: BTreeMap::new(),
            parked: BTreeSet::new(),
        }
    }

    /// Whether a session lives, or did when it was last asked for. The mark of a holder is a record that goes with the session's end here.
    pub fn knows(&self, session: SessionId) -> bool {
        self.registered.contains_key(&session)
            || self.horizon.knows(session)
            || self.sessions.get(&session).is_some_and(|state| state.met)
    }

    /// Whether a session has to say which replies it has before more are kept for it. Those with few are served also
    /// when all together have too many.
    pub fn keeps_too_much_for(&self, session: SessionId, (kept_max, bytes_max): (usize, usize)) -> bool {
        let Some(replies) = self.sessions.get(&session).map(|state| &state.replies) else { return false };
        replies.len() >= kept_max
            || replies.bytes() >= bytes_max / 16
            || replies.bytes() >= bytes_max / 256 && self.replies_bytes() >= bytes_max
    }

    /// What the replies take that are kept for all sessions.
    pub fn replies_bytes(&self) -> usize {
        self.sessions.values().map(|state| state.replies.bytes()).sum()
    }

    /// Whether anything is held here for a session.
    pub fn holds_for(&self, session: SessionId) -> bool {
        let delegated = || self.delegations.values().any(|holder| holder.session == session);
        self.horizon.knows(session) || self.sessions.contains_key(&session) || delegated()
    }

    /// The index of the youngest record, committed or not.
    pub fn last_index(&self) -> LogIndex {
        LogIndex(self.next_index.0 - 1)
    }

    /// Logs changes and puts them into the overlay. Returns the record's index.
    pub fn write(
        &mut self,
        mut batch: BTreeMap<Key, Option<Record>>,
        number: AppendNumber,
        out: &mut Vec<Command>,
    ) -> LogIndex {
        for key in self.stale_replies.drain(..) {
            batch.entry(key).or_insert(None);
        }
        let index = self.next_index;
        self.next_index = index.next();
        let changes: Vec<LoggedChange> =
            batch.iter().map(|(key, record)| LoggedChange::new(key, record.as_ref())).collect();
        let entry = LogEntry { reset: false, changes };
        let logged = LoggedRecord { tablet: self.block, epoch: self.epoch, index, bytes: entry.encode() };
        out.push(Command::Append(number, logged));
        self.appended.push_back((number, index));
        let values = entry.changes.into_iter().map(|change| change.value);
        self.applies.log(index, batch.keys().copied().zip(values).collect());
        for (key, record) in batch {
            self.cache.change(key, record, index);
        }
        if self.applies_early {
            self.applies.commit(index);
            self.apply_gathered(out);
        }
        index
    }

    /// Notes that appends up to `number` are stable. Returns what may leave now.
    pub fn synced(&mut self, number: AppendNumber, out: &mut Vec<Command>) -> Vec<Held> {
        while let Some((appended, index)) = self.appended.front().copied() {
            if appended > number {
                break;
            }
            self.appended.pop_front();
            self.committed = index;
        }
        self.applies.commit(self.committed);
        // A tablet that leaves is copied from the store.
        if self.applies.len() >= self.apply_gathered_max || matches!(self.phase, Phase::Leaving(_)) {
            self.apply_gathered(out);
        }
        let later = self.held.split_off(&self.committed.next());
        let held: Vec<Held> = std::mem::replace(&mut self.held, later).into_values().flatten().collect();
        for held in &held {
            if let Held::Reply(session, reply) = held {
                self.parked.remove(&(*session, reply.sequence));
            }
        }
        held
    }

    /// Sends what is committed on to the store.
    pub fn apply_gathered(&mut self, out: &mut Vec<Command>) {
        if let Some((index, changes)) = self.applies.take() {
            out.push(Command::Apply(self.block, index, changes));
        }
    }

    /// The store holds everything up to a record.
    pub fn applied(&mut self, up_to: LogIndex) {
        for (index, keys) in self.applies.applied(up_to) {
            self.cache.applied(keys, index);
            self.applied = index;
        }
    }

    /// Keeps something until a record is committed; gives it back if it is already.
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

    /// Whether the reply to a request leaves as soon as a record is committed.
    pub fn is_parked(&self, session: SessionId, sequence: Sequence) -> bool {
        self.parked.contains(&(session, sequence))
    }

    /// How many replies wait for records.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// How many jobs wait for locks.
    pub fn waiters(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// A job does not wait for a lock any more.
    pub fn waits_no_more(&mut self, job: JobId) {
        self.waiting.retain(|_, jobs| {
            jobs.retain(|waiting| *waiting != job);
            !jobs.is_empty()
        });
    }

    /// Whether everything logged is committed and in the store.
    pub fn is_settled(&self) -> bool {
        self.applied == self.last_index()
    }

    /// Unlocks what a holder has locked. Returns the jobs that waited for it.
    pub fn unlock(&mut self, by: LockedBy) -> Vec<JobId> {
        let keys: Vec<Key> =
            self.locked.iter().filter(|(_, holder)| **holder == by).map(|(key, _)| *key).collect();
        let mut jobs = Vec::new();
        for key in keys {
            self.locked.remove(&key);
            jobs.extend(self.waiting.remove(&key).unwrap_or_default());
        }
        jobs
    }

    /// The smallest number of a transaction of this epoch that is not over.
    pub fn over_below(&self) -> u64 {
        let decided = self
            .decisions
            .keys()
            .filter(|transaction| transaction.epoch == self.epoch)
            .map(|transaction| transaction.number);
        decided.chain(self.live.iter().copied()).min().unwrap_or(self.next_transaction)
    }

    /// Whether a transaction is over as far as this participant remembers.
    pub fn is_over(&self, transaction: TransactionId) -> bool {
        let marks = self.over.get(&(transaction.coordinator, transaction.epoch));
        marks.is_some_and(|marks| {
            transaction.number < marks.below || marks.numbers.contains(&transaction.number)
        })
    }

    /// Notes that a transaction is over, or that all below a number are.
    pub fn mark_over(&mut self, transaction: TransactionId, below: Option<u64>) {
        let marks = self.over.entry((transaction.coordinator, transaction.epoch)).or_default();
        match below {
            Some(below) => {
                marks.below = marks.below.max(below);
                marks.numbers.retain(|number| *number >= marks.below);
            }
            None => {
                marks.numbers.insert(transaction.number);
            }
        }
    }
}
