//! The log of one tablet, on the server that owns it and on those that hold it for the owner: what is written
//! and not stable, what is committed, and what is on its way from here to the store.
//!
//! Invariants: entries follow each other without gaps; what is not known to be committed never reaches the
//! store; an epoch begins at the first index of which its owner did not know that it was committed. From
//! there on its entries replace those of lower epochs one by one, and the epoch record voids the rest: until
//! then they may be all that is left of what was stable.

use crate::config::Config;
use crate::event::{AppendNumber, Appends, Command, Note};
use crate::mutant::Mutant;
use crate::record::{EntryKind, Key, KeyChange, LogEntry, LoggedChange, RecordError, RecoveredTablet};
use crate::replication::applies::Applies;
use crate::replication::learner::Learner;
use crate::replication::members::Members;
use bearing_seams::LoggedRecord;
use bearing_types::{Epoch, LogIndex, Mono, ServerId, TabletSerial};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// So many bytes of entries are sent again at a time.
const RESENT_BYTES_MAX: usize = 256 << 10;
/// What most keys take in an entry, about.
const KEY_BYTES: u64 = 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    serial: TabletSerial,
    /// The newest epoch that is known of.
    epoch: Epoch,
    /// The first entry of that epoch.
    first: LogIndex,
    /// With this one an epoch of this server's own had begun: all before was there.
    begun: LogIndex,
    next: LogIndex,
    /// Up to this entry all are of the newest epoch, or were committed before it. What lies behind is of
    /// lower ones.
    taken: LogIndex,
    /// This server has synced everything up to this entry.
    synced: LogIndex,
    committed: LogIndex,
    /// What is being synced.
    appended: VecDeque<(AppendNumber, LogIndex)>,
    applies: Applies,
    /// The other servers that hold it for this one, while this one owns it.
    pub members: Members,
    /// The server that is becoming one of them.
    pub learner: Option<Learner>,
    /// Entries that a checkpoint under way is to have.
    pub tail: Option<Tail>,
}

/// Entries that follow each other, kept until they are committed.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The first of them.
    next: LogIndex,
    entries: VecDeque<Vec<u8>>,
}

impl Tail {
    fn keep(&mut self, entry: Vec<u8>) {
        self.entries.push_back(entry);
    }

    /// Takes those up to one.
    fn take_up_to(&mut self, index: LogIndex) -> Vec<Vec<u8>> {
        let count = (index.0 + 1).saturating_sub(self.next.0).min(self.entries.len() as u64);
        self.next = LogIndex(self.next.0 + count);
        self.entries.drain(..count as usize).collect()
    }
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
            begun: LogIndex::ZERO,
            next: found.last.next(),
            taken: found.last,
            synced: found.last,
            committed: found.last,
            appended: VecDeque::new(),
            applies: Applies::from(found.last),
            members: Members::default(),
            learner: None,
            tail: None,
        };
        for changes in found.prepared {
            log.applies.log(log.next, changes);
            log.next = log.next.next();
        }
        (log.taken, log.synced) = (found.taken, found.taken);
        log.applies.is_known_up_to(log.last());
        log
    }

    /// Of a tablet that arrives by a snapshot: everything up to `base` is there, or about to be.
    pub fn after_snapshot(serial: TabletSerial, epoch: Epoch, base: LogIndex) -> Log {
        Log::found(serial, RecoveredTablet { last: base, taken: base, epoch, ..RecoveredTablet::nothing() })
    }

    // --- how far it is ---

    pub fn serial(&self) -> TabletSerial {
        self.serial
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
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

    /// The store may have anything of what entries up to this one write.
    pub fn store_may_know(&mut self, index: LogIndex) {
        self.applies.is_known_up_to(index);
    }

    /// The store may have anything of what comes, too: how far the snapshot was read with which it came
    /// nobody remembers.
    pub fn store_may_know_all(&mut self) {
        self.applies.is_known_without_end();
    }

    /// This server is a member, so all that a snapshot may have brought is in the log.
    pub fn store_knows_the_log(&mut self) {
        self.applies.known_ends_with(self.last());
    }

    /// Entries behind one that are not known to be committed, with about the bytes that they take.
    pub fn behind(&self, index: LogIndex) -> (u64, u64) {
        let bytes = |changes: &[KeyChange]| -> u64 {
            let values = changes.iter().map(|(_, value)| value.as_ref().map_or(0, Vec::len) as u64);
            values.sum::<u64>() + changes.len() as u64 * KEY_BYTES
        };
        let later = self.applies.prepared().filter(|(other, _)| *other > index);
        (self.last().0.saturating_sub(index.0), later.map(|(_, changes)| bytes(changes)).sum())
    }

    // --- the owner's ---

    /// An epoch of this server's own begins: what is prepared is written again under it, then an entry
    /// without changes.
    pub fn begin_epoch(
        &mut self,
        now: Mono,
        epoch: Epoch,
        config: &Config,
        appends: &mut Appends,
        out: &mut Vec<Command>,
    ) {
        self.begin(epoch, self.committed.next());
        let prepared: Vec<(LogIndex, Vec<u8>)> =
            self.applies.prepared().map(|(index, changes)| (index, self.encode(index, changes))).collect();
        self.synced = self.committed;
        self.appended.clear();
        if config.planted(Mutant::NoEpochRecord) && prepared.is_empty() {
            return;
        }
        for (index, bytes) in prepared {
            if !config.planted(Mutant::SuffixUnderOldEpoch) {
                self.write(appends.next(), index, bytes, out);
            }
        }
        self.begun = self.next;
        self.add(appends.next(), LogEntry::encode_epoch(), Vec::new(), out);
        if self.learner.as_ref().is_some_and(Learner::has_snapshot) {
            self.snapshot_is_there(now);
        }
    }

    /// With this entry the epoch had begun.
    pub fn begun(&self) -> LogIndex {
        self.begun
    }

    /// An epoch begins under which this server learns the tablet, or nobody.
    pub fn learner_is(&mut self, server: Option<ServerId>, epoch: Epoch, now: Mono) {
        let before = self.learner.take();
        self.learner = server.map(|server| {
            let same = before.filter(|learner| learner.server == server);
            same.unwrap_or_else(|| Learner::new(server, epoch, now))
        });
    }

    /// Appends an entry of this server's own. Gives its index.
    pub fn append(
        &mut self,
        number: AppendNumber,
        changes: Vec<KeyChange>,
        out: &mut Vec<Command>,
    ) -> LogIndex {
        let bytes = LogEntry::encode_changes(&changes);
        self.add(number, bytes, changes, out)
    }

    /// Appends an entry at which the tablet's members compute digests of what they have. Gives its index.
    pub fn append_compare(&mut self, number: AppendNumber, out: &mut Vec<Command>) -> LogIndex {
        let index = self.add(number, LogEntry::encode_compare(), Vec::new(), out);
        self.applies.mark(index);
        index
    }

    fn add(
        &mut self,
        number: AppendNumber,
        bytes: Vec<u8>,
        changes: Vec<KeyChange>,
        out: &mut Vec<Command>,
    ) -> LogIndex {
        let index = self.next;
        (self.next, self.taken) = (index.next(), index);
        if let Some(learner) = &mut self.learner {
            learner.keep(index, LogEntry::encode_changes(&changes));
        }
        if let Some(tail) = &mut self.tail {
            tail.keep(bytes.clone());
        }
        self.write(number, index, bytes, out);
        self.applies.log(index, changes);
        index
    }

    /// The entries for a server that follow one, as far as they are kept: what is committed all members have,
    /// and a learner gets it all from its snapshot on.
    pub fn entries_for(&self, server: ServerId, after: LogIndex) -> Vec<(LogIndex, Vec<u8>)> {
        let mut bytes_sent = 0;
        let mut fits = |bytes: &[u8]| {
            bytes_sent += bytes.len();
            bytes_sent - bytes.len() < RESENT_BYTES_MAX
        };
        // The records of earlier epochs are entries like others.
        if let Some(learner) = self.learner.as_ref().filter(|learner| learner.server == server) {
            let later = learner.tail_after(after).take_while(|(_, bytes)| fits(bytes));
            let encode = |index, bytes: &[u8]| match index == self.begun {
                true => LogEntry::encode_epoch(),
                false => bytes.to_vec(),
            };
            return later.map(|(index, bytes)| (index, encode(index, bytes))).collect();
        }
        let from = after.next().max(self.first);
        let later = self.applies.prepared().filter(move |(index, _)| *index >= from);
        let encode = |index, changes| match index == self.begun {
            true => LogEntry::encode_epoch(),
            false => self.encode(index, changes),
        };
        let later = later.map(|(index, changes)| (index, encode(index, changes)));
        later.take_while(|(_, bytes)| fits(bytes)).collect()
    }

    /// An entry that is not committed, as it is written again.
    fn encode(&self, index: LogIndex, changes: &[KeyChange]) -> Vec<u8> {
        match self.applies.is_marked(index) {
            true => LogEntry::encode_compare(),
            false => LogEntry::encode_changes(changes),
        }
    }

    /// Where the epoch begins for a server: a learner takes all that follows its snapshot anew.
    pub fn first_for(&self, server: ServerId) -> LogIndex {
        let learner = self.learner.as_ref().filter(|learner| learner.server == server);
        learner.and_then(Learner::base).map_or(self.first, LogIndex::next)
    }

    /// A snapshot for the learner begins with what is committed, which is given to the store. Gives its base.
    pub fn begin_snapshot(&mut self, out: &mut Vec<Command>) -> LogIndex {
        self.apply(out);
        let base = self.applies.taken_up_to();
        let prepared = self.applies.prepared();
        let prepared: Vec<Vec<u8>> = prepared.map(|(_, changes)| LogEntry::encode_changes(changes)).collect();
        if let Some(learner) = &mut self.learner {
            learner.begin(base, prepared);
        }
        base
    }

    /// A checkpoint begins with what is committed, which is given to the store; from here on entries are kept
    /// for it.
    pub fn begin_tail(&mut self, out: &mut Vec<Command>) {
        self.apply(out);
        let prepared = self.applies.prepared();
        let entries = prepared.map(|(_, changes)| LogEntry::encode_changes(changes)).collect();
        self.tail = Some(Tail { next: self.applies.taken_up_to().next(), entries });
    }

    /// Gives the store what is committed; says up to which entry that is, and takes from the tail what is not
    /// behind it.
    pub fn applied_tail(&mut self, out: &mut Vec<Command>) -> (LogIndex, Vec<Vec<u8>>) {
        self.apply(out);
        let as_of = self.applies.taken_up_to();
        let entries = self.tail.as_mut().map(|tail| tail.take_up_to(as_of));
        (as_of, entries.unwrap_or_default())
    }

    /// A server may have more than before: a learner is kept less for.
    pub fn trim_tail(&mut self) {
        let (committed, members) = (self.committed, &self.members);
        if let Some(learner) = &mut self.learner
            && let Some(synced) = members.learnt(learner.server)
        {
            learner.trim(synced.min(committed));
        }
    }

    /// The learner has its snapshot and is sent what follows.
    pub fn snapshot_is_there(&mut self, now: Mono) {
        let (last, members) = (self.last(), &mut self.members);
        if let Some(learner) = &mut self.learner
            && let Some(base) = learner.base()
        {
            learner.is_there(now);
            members.learn(learner.server, base, last, now);
        }
    }

    // --- another owner's ---

    /// Takes an entry of the tablet's owner.
    pub fn accept(
        &mut self,
        sent: Sent,
        bytes: &[u8],
        appends: &mut Appends,
        out: &mut Vec<Command>,
    ) -> Result<Accepted, RecordError> {
        if sent.epoch < self.epoch {
            return Ok(Accepted::Refused);
        }
        if sent.epoch > self.epoch {
            // What lies before the epoch's first entry was committed, so all members had it. In between
            // nobody knows whose it is.
            if sent.first > self.next {
                return Ok(Accepted::Lacking(self.last()));
            }
            let from = sent.first.max(self.committed.next());
            let before = LogIndex(from.0 - 1);
            match sent.index.cmp(&from) {
                Ordering::Less => return Ok(Accepted::Known),
                Ordering::Greater => return Ok(Accepted::Lacking(before)),
                Ordering::Equal => self.begin(sent.epoch, sent.first),
            }
            self.taken = before;
            self.synced = self.synced.min(before);
            self.appended.retain(|(_, index)| *index < from);
        }
        if sent.index > self.taken.next() {
            return Ok(Accepted::Lacking(self.taken));
        }
        if sent.index <= self.taken {
            return Ok(Accepted::Known);
        }
        let (kind, changes) = decode(bytes)?;
        self.taken = sent.index;
        self.next = self.next.max(sent.index.next());
        self.write(appends.next(), sent.index, bytes.to_vec(), out);
        self.applies.log(sent.index, changes);
        if kind == EntryKind::Compare {
            self.applies.mark(sent.index);
        }
        if kind == EntryKind::Epoch {
            if self.next > sent.index.next() {
                out.push(Command::Note(Note::Step("entries are void")));
            }
            self.next = sent.index.next();
            self.applies.cut(self.next);
        }
        Ok(Accepted::Logged)
    }

    /// Takes a part of the snapshot that this log begins with.
    pub fn write_part(&mut self, number: AppendNumber, epoch: Epoch, bytes: Vec<u8>, out: &mut Vec<Command>) {
        let (serial, index) = (self.serial, self.committed);
        self.epoch = self.epoch.max(epoch);
        out.push(Command::Append(number, LoggedRecord { serial, epoch, index, commit: index, bytes }));
        self.appended.push_back((number, index));
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

    /// Sends what is gathered to the store, which says what it has where servers compare that.
    pub fn apply(&mut self, out: &mut Vec<Command>) {
        while let Some((index, changes)) = self.applies.take_up_to_mark() {
            out.push(Command::Apply(self.serial, index, changes));
            out.push(Command::Digest(self.serial, index));
        }
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
        self.applies.applied(up_to)
    }
}

fn decode(bytes: &[u8]) -> Result<(EntryKind, Vec<KeyChange>), RecordError> {
    let entry = LogEntry::decode(bytes)?;
    if !matches!(entry.kind, EntryKind::Changes | EntryKind::Epoch | EntryKind::Compare) {
        return Err(RecordError::Malformed);
    }
    let changed = |change: LoggedChange| Some((Key::decode(&change.key)?, change.value));
    let changes = entry.changes.into_iter().map(changed).collect::<Option<_>>();
    Ok((entry.kind, changes.ok_or(RecordError::Malformed)?))
}
