//! The log of one tablet, on the server that owns it and on those that hold it for the owner: what is written
//! and not stable, what is committed, and what is on its way from here to the store.
//!
//! Invariants: entries follow each other without gaps; what is not known to be committed never reaches the
//! store; an epoch begins at the first index of which its owner did not know that it was committed, and what
//! was logged from there on under lower epochs is void.

use crate::event::{AppendNumber, Command};
use crate::record::{Key, KeyChange, LogEntry, LoggedChange, RecordError, RecoveredTablet};
use crate::replication::applies::Applies;
use crate::replication::members::Members;
use bearing_seams::LoggedRecord;
use bearing_types::{Epoch, LogIndex, TabletSerial};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    serial: TabletSerial,
    /// The newest epoch that is known of.
    epoch: Epoch,
    /// The first entry of that epoch.
    first: LogIndex,
    next: LogIndex,
    /// This server has synced everything up to this entry.
    synced: LogIndex,
    committed: LogIndex,
    /// The store has everything up to this entry.
    applied: LogIndex,
    /// What is being synced.
    appended: VecDeque<(AppendNumber, LogIndex)>,
    applies: Applies,
    /// The other servers that hold it for this one, while this one owns it.
    pub members: Members,
}

/// Entries of one epoch, as an owner sends them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub epoch: Epoch,
    /// The first entry of the epoch.
    pub first: LogIndex,
    /// Which one this is.
    pub index: LogIndex,
}

/// What became of an entry that an owner sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It goes into the log.
    Logged,
    /// It is there.
    Known,
    /// What lies behind this one, and before it, is lacking.
    Lacking(LogIndex),
    /// Its epoch is over.
    Refused,
}

impl Log {
    /// Of a tablet of which nothing is here.
    pub fn empty(serial: TabletSerial) -> Log {
        Log::found(serial, RecoveredTablet::nothing())
    }

    /// Of a tablet as it was found on the disk.
    pub fn found(serial: TabletSerial, found: RecoveredTablet) -> Log {
        let mut log = Log {
            serial,
            epoch: found.epoch,
            first: found.last.next(),
            next: found.last.next(),
            synced: found.last,
            committed: found.last,
            applied: found.last,
            appended: VecDeque::new(),
            applies: Applies::from(found.last),
            members: Members::default(),
        };
        for changes in found.prepared {
            log.applies.log(log.next, changes);
            log.synced = log.next;
            log.next = log.next.next();
        }
        log
    }

    // --- how far it is ---

    pub fn serial(&self) -> TabletSerial {
        self.serial
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The first entry of the epoch.
    pub fn first(&self) -> LogIndex {
        self.first
    }

    /// The index of the next entry.
    pub fn next(&self) -> LogIndex {
        self.next
    }

    /// The index of the youngest entry, committed or not.
    pub fn last(&self) -> LogIndex {
        LogIndex(self.next.0 - 1)
    }

    /// This server has synced everything up to this entry.
    pub fn synced(&self) -> LogIndex {
        self.synced
    }

    /// Everything up to this entry is committed.
    pub fn committed(&self) -> LogIndex {
        self.committed
    }

    /// What the store has, or is being given, ends with this entry.
    pub fn stored(&self) -> LogIndex {
        self.applies.taken_up_to()
    }

    /// Whether every entry is synced here.
    pub fn is_synced(&self) -> bool {
        self.appended.is_empty()
    }

    /// Whether every entry is committed and in the store.
    pub fn is_settled(&self) -> bool {
        self.applied == self.last()
    }

    // --- the owner's ---

    /// An epoch of this server's own begins: what is prepared is written again under it, then an entry
    /// without changes. Takes a number for each.
    pub fn begin_epoch(
        &mut self,
        epoch: Epoch,
        number: &mut impl FnMut() -> AppendNumber,
        out: &mut Vec<Command>,
    ) {
        self.begin(epoch, self.committed.next());
        let prepared: Vec<(LogIndex, Vec<u8>)> = self
            .applies
            .prepared()
            .map(|(index, changes)| (index, LogEntry::encode_changes(changes)))
            .collect();
        self.synced = self.committed;
        self.appended.clear();
        for (index, bytes) in prepared {
            self.write(number(), index, bytes, out);
        }
        let index = self.next;
        self.next = index.next();
        self.applies.log(index, Vec::new());
        self.write(number(), index, LogEntry::encode_changes(&[]), out);
    }

    /// Appends an entry of this server's own. Gives its index.
    pub fn append(
        &mut self,
        number: AppendNumber,
        changes: Vec<KeyChange>,
        out: &mut Vec<Command>,
    ) -> LogIndex {
        let index = self.next;
        self.next = index.next();
        self.write(number, index, LogEntry::encode_changes(&changes), out);
        self.applies.log(index, changes);
        index
    }

    /// The bytes of entries that are not committed, from one on.
    pub fn prepared_from(&self, from: LogIndex) -> impl Iterator<Item = (LogIndex, Vec<u8>)> + '_ {
        let later = self.applies.prepared().filter(move |(index, _)| *index >= from);
        later.map(|(index, changes)| (index, LogEntry::encode_changes(changes)))
    }

    // --- another owner's ---

    /// Takes an entry of the tablet's owner.
    pub fn accept(
        &mut self,
        sent: Sent,
        bytes: &[u8],
        number: &mut impl FnMut() -> AppendNumber,
        out: &mut Vec<Command>,
    ) -> Result<Accepted, RecordError> {
        if sent.epoch < self.epoch {
            return Ok(Accepted::Refused);
        }
        if sent.epoch > self.epoch {
            // What lies before the epoch's first entry was committed, so all members had it; what lies behind
            // is theirs to lose. In between nobody knows whose it is.
            if sent.first > self.next {
                return Ok(Accepted::Lacking(self.last()));
            }
            self.begin(sent.epoch, sent.first);
            let from = sent.first.max(self.committed.next());
            self.applies.cut(from);
            self.next = from;
            self.synced = self.synced.min(self.last());
            self.appended.retain(|(_, index)| *index < from);
        }
        if sent.index > self.next {
            return Ok(Accepted::Lacking(self.last()));
        }
        if sent.index < self.next {
            return Ok(Accepted::Known);
        }
        let changes = decode(bytes)?;
        self.next = sent.index.next();
        self.write(number(), sent.index, bytes.to_vec(), out);
        self.applies.log(sent.index, changes);
        Ok(Accepted::Logged)
    }

    // --- what becomes of entries ---

    fn begin(&mut self, epoch: Epoch, first: LogIndex) {
        (self.epoch, self.first) = (epoch, first);
    }

    fn write(&mut self, number: AppendNumber, index: LogIndex, bytes: Vec<u8>, out: &mut Vec<Command>) {
        let (serial, epoch, commit) = (self.serial, self.epoch, self.committed);
        out.push(Command::Append(number, LoggedRecord { serial, epoch, index, commit, bytes }));
        self.appended.push_back((number, index));
    }

    /// Appends up to a number are stable here.
    pub fn on_synced(&mut self, number: AppendNumber) {
        while let Some((appended, index)) = self.appended.front().copied() {
            if appended > number {
                break;
            }
            self.appended.pop_front();
            self.synced = index;
        }
    }

    /// Everything that all members have is committed. Whether that is news.
    pub fn commit_as_owner(&mut self) -> bool {
        let before = self.committed;
        self.commit(self.members.committed(self.synced));
        self.committed > before
    }

    /// Everything up to an entry is committed, as far as it is here.
    pub fn commit(&mut self, up_to: LogIndex) {
        self.committed = self.committed.max(up_to.min(self.synced));
        self.applies.commit(self.committed);
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
    pub fn on_applied(&mut self, up_to: LogIndex) -> Vec<(LogIndex, Vec<Key>)> {
        let news = self.applies.applied(up_to);
        if let Some((index, _)) = news.last() {
            self.applied = *index;
        }
        news
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<KeyChange>, RecordError> {
    let entry = LogEntry::decode(bytes)?;
    let changed = |change: LoggedChange| Some((Key::decode(&change.key)?, change.value));
    let changes = entry.changes.into_iter().map(changed).collect::<Option<_>>();
    changes.ok_or(RecordError::Malformed)
}
