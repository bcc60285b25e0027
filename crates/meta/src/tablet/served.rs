//! One tablet: its log, its records in memory, and who waits for what. Each part owns its state; what a
//! change means to several of them is told here.

use crate::chunks::Maintenance;
use crate::config::Config;
use crate::event::{AppendNumber, Command};
use crate::lease::{Delegations, Horizon, LeaseTable, LockTable, OpenTable};
use crate::memory::{Cache, Quotas};
use crate::mutant::Mutant;
use crate::record::{Key, Record};
use crate::replication::Log;
use crate::tablet::checkpoint::Checkpointing;
use crate::tablet::exit::Exit;
use crate::tablet::marks::Collector;
use crate::tablet::sessions::Sessions;
use crate::txn::{Coordinated, KeyLocks, Participant, Queue};
use bearing_types::{Block, Epoch, LogIndex, Mono, NodeId, Now, ServerId, SessionId, TabletSerial};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the tablet serves.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// Another server will; requests are told to retry.
    Leaving(Leaving),
}

/// A tablet that a member is to serve.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub to: ServerId,
    pub since: Mono,
    /// The member was told so: nothing leaves from here any more.
    pub yielded: bool,
    /// When it was told last.
    pub said: Mono,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tablet {
    pub block: Block,
    pub serial: TabletSerial,
    /// The epoch under which this server began to serve it: transactions are numbered from there.
    pub born: Epoch,
    pub phase: Phase,
    pub log: Log,
    pub exit: Exit,
    /// Records that need not be kept any more: they go with the next entry.
    stale: Vec<Key>,
    pub cache: Cache,
    pub quotas: Quotas,
    pub keys: KeyLocks,
    pub participant: Participant,
    pub coordinated: Coordinated,
    pub queue: Queue,
    pub sessions: Sessions,
    pub leases: LeaseTable,
    pub opens: OpenTable,
    /// Sessions that may hold leases or files, as the log says.
    pub horizon: Horizon,
    pub delegations: Delegations,
    /// Locks of files.
    pub locks: LockTable,
    /// Unreachable nodes whose content is being removed.
    pub reaping: BTreeSet<NodeId>,
    pub collector: Collector,
    pub maintenance: Maintenance,
    pub checkpoint: Checkpointing,
    /// Requests of clients that it took.
    pub requests: u64,
    apply_gathered_max: usize,
    /// The planted bug: changes reach the store before the log is synced.
    applies_early: bool,
}

impl Tablet {
    /// Of a tablet whose log says that it is this server's.
    pub fn new(now: Now, block: Block, log: Log, config: &Config) -> Tablet {
        let serial = log.serial();
        Tablet {
            block,
            serial,
            born: log.epoch(),
            phase: Phase::Serving,
            log,
            exit: Exit::default(),
            stale: Vec::new(),
            cache: Cache::new(config.cache_entries_max),
            quotas: Quotas::default(),
            keys: KeyLocks::default(),
            participant: Participant::default(),
            coordinated: Coordinated::new(),
            queue: Queue::default(),
            sessions: Sessions::default(),
            leases: LeaseTable::default(),
            opens: OpenTable::default(),
            horizon: Horizon::new(now.mono, config),
            delegations: Delegations::default(),
            locks: LockTable::default(),
            reaping: BTreeSet::new(),
            collector: Collector::new(now),
            maintenance: Maintenance::new(now),
            checkpoint: Checkpointing::new(now, serial, config),
            requests: 0,
            apply_gathered_max: config.apply_gathered_max,
            applies_early: config.planted(Mutant::WrongSyncOrder),
        }
    }

    /// Whether a session lives, or did when it was last asked for. The mark of a holder is a record that goes
    /// with the session's end here.
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.is_registered(session) || self.horizon.knows(session) || self.sessions.is_met(session)
    }

    /// Whether anything is held here for a session.
    pub fn holds_for(&self, session: SessionId) -> bool {
        self.horizon.knows(session)
            || self.sessions.has(session)
            || self.delegations.of_session(session).next().is_some()
    }

    /// The epoch under which it is served.
    pub fn epoch(&self) -> Epoch {
        self.log.epoch()
    }

    /// Whether this server, as it is now, has served it under an epoch: other members may have changed since.
    pub fn has_served_under(&self, epoch: Epoch) -> bool {
        (self.born..=self.epoch()).contains(&epoch)
    }

    /// Records go with the next entry, unless that says otherwise.
    pub fn drop_with_next(&mut self, keys: Vec<Key>) {
        self.stale.extend(keys);
    }

    /// Logs changes and puts them into the overlay. Returns the entry's index.
    pub fn write(
        &mut self,
        mut batch: BTreeMap<Key, Option<Record>>,
        number: AppendNumber,
        out: &mut Vec<Command>,
    ) -> LogIndex {
        for key in self.stale.drain(..) {
            batch.entry(key).or_insert(None);
        }
        let changes = batch.iter().map(|(key, record)| (*key, record.as_ref().map(Record::encode)));
        let index = self.log.append(number, changes.collect(), out);
        for (key, record) in batch {
            self.cache.change(key, record, index);
        }
        if self.applies_early {
            self.log.apply_early(index, out);
        }
        index
    }

    /// More of the log may be committed.
    pub fn commit(&mut self, out: &mut Vec<Command>) {
        self.log.commit_as_owner();
        if self.log.gathered() >= self.apply_gathered_max {
            self.log.apply(out);
        }
    }

    /// The store holds everything up to an entry.
    pub fn on_applied(&mut self, up_to: LogIndex) {
        for (index, keys) in self.log.on_applied(up_to) {
            self.cache.applied(keys, index);
        }
    }
}
