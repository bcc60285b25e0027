//! A tablet that is held for another server.
//!
//! Invariants: what is confirmed to its owner is synced here under the owner's epoch; while this server
//! claims the tablet, nothing is confirmed to anybody under a lower epoch.

use crate::event::{AppendNumber, Appends, Command};
use crate::record::{RecordError, RecoveredTablet};
use crate::replication::arrival::{Arrival, Part};
use crate::replication::log::{Accepted, Log, Sent};
use bearing_proto::replication::{Entries, PartsHeld, Progress, SnapshotPart};
use bearing_types::{Epoch, LogIndex, ServerId, TabletSerial};

/// See the module.
#[derive(Debug)]
pub(crate) struct Copy {
    pub log: Log,
    /// Who sent what is here of the newest epoch; nobody since this server started.
    sender: Option<ServerId>,
    /// Committed, as the owner says, whether it is here or not.
    told: LogIndex,
    /// The newest epoch of its register, as far as this server knows: what is sent under a lower one is of
    /// somebody who does not own it any more.
    registered: Epoch,
    /// The epoch under which this server wants to own it, until it is known what came of that.
    claimed: Option<Epoch>,
    /// The snapshot that it came with, or is coming, in this life.
    pub arrival: Option<Arrival>,
}

/// What an owner is answered about a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is held, and synced up to an entry.
    Synced(Progress),
    /// The last entry that is here: more are lacking.
    Lacking(Progress),
    /// It is not held under that epoch.
    Refused(Progress),
}

impl Copy {
    /// Of a tablet with this log. This server may have asked for it under an epoch that it intended, and does
    /// not know what came of that.
    pub fn new(log: Log, intent: Option<Epoch>) -> Copy {
        let claimed = intent.filter(|intent| *intent > log.epoch());
        Copy { log, sender: None, told: LogIndex::ZERO, registered: Epoch(0), claimed, arrival: None }
    }

    /// Who owns it by the newest epoch that has been heard of, and that epoch.
    pub fn sender(&self) -> Option<(ServerId, Epoch)> {
        Some((self.sender?, self.log.epoch()))
    }

    /// Of a tablet that was found on the disk when this server started.
    pub fn recovered(serial: TabletSerial, found: RecoveredTablet) -> Copy {
        let intent = found.intent;
        let mut log = Log::found(serial, found);
        log.store_may_know_all();
        Copy::new(log, intent)
    }

    /// A snapshot begins: whatever was here is void.
    pub fn arriving(part: &SnapshotPart) -> Copy {
        let log = Log::after_snapshot(part.serial, part.epoch, part.base);
        Copy { arrival: Some(Arrival::new(part)), ..Copy::new(log, None) }
    }

    /// Whether its register is newer than this server knows.
    pub fn is_news(&self, epoch: Epoch) -> bool {
        epoch > self.registered
    }

    /// Whether parts of it are lacking.
    pub fn is_arriving(&self) -> bool {
        self.arrival.as_ref().is_some_and(|arrival| !arrival.is_there())
    }

    /// Everything up to this entry is known to be committed, and here.
    pub fn committed(&self) -> LogIndex {
        if self.is_arriving() { LogIndex::ZERO } else { self.log.committed() }
    }

    /// A part of its snapshot. `None` if it is not to be answered.
    pub fn on_part(
        &mut self,
        from: ServerId,
        sent: &SnapshotPart,
        part: Part,
        appends: &mut Appends,
        out: &mut Vec<Command>,
    ) -> Option<PartsHeld> {
        let arrival = self.arrival.as_mut().filter(|arrival| arrival.snapshot() == sent.snapshot)?;
        if !arrival.is_next(sent) {
            return Some(arrival.held()).filter(|held| held.parts > 0);
        }
        let number = appends.next();
        self.sender = Some(from);
        self.log.write_part(number, sent.epoch, sent.entry.0.clone(), out);
        self.log.store_may_know(sent.end);
        arrival.take(part, number);
        None
    }

    fn progress(&self, index: LogIndex) -> Progress {
        Progress { serial: self.log.serial(), epoch: self.log.epoch(), index }
    }

    /// How far it is synced, for its owner.
    pub fn synced(&self) -> Progress {
        self.progress(self.log.synced())
    }

    /// Entries of an owner.
    pub fn on_entries(
        &mut self,
        from: ServerId,
        entries: &Entries,
        appends: &mut Appends,
        out: &mut Vec<Command>,
    ) -> Result<Answer, RecordError> {
        if self.is_over(entries.epoch) {
            return Ok(self.refused());
        }
        if self.is_arriving() {
            return Ok(self.lacking_all(entries.epoch));
        }
        let mut index = entries.index;
        for entry in &entries.entries {
            let sent = Sent { epoch: entries.epoch, first: entries.first, index };
            match self.log.accept(sent, &entry.0, appends, out)? {
                Accepted::Logged | Accepted::Known => self.sender = Some(from),
                Accepted::Lacking(last) => {
                    return Ok(Answer::Lacking(Progress { epoch: entries.epoch, ..self.progress(last) }));
                }
                Accepted::Refused => return Ok(self.refused()),
            }
            index = index.next();
        }
        Ok(self.on_committed(entries.epoch, entries.commit))
    }

    /// The tablet is committed up to an entry under an epoch, says its owner.
    pub fn on_committed(&mut self, epoch: Epoch, index: LogIndex) -> Answer {
        if self.is_over(epoch) {
            return self.refused();
        }
        if self.is_arriving() {
            return self.lacking_all(epoch);
        }
        if epoch > self.log.epoch() {
            // All that is here counts: what was committed before the epoch began may not be known as such.
            return Answer::Lacking(Progress { epoch, ..self.progress(self.log.last()) });
        }
        self.told = self.told.max(index);
        self.log.commit(self.told);
        Answer::Synced(self.synced())
    }

    fn lacking_all(&self, epoch: Epoch) -> Answer {
        Answer::Lacking(Progress { epoch, ..self.progress(LogIndex::ZERO) })
    }

    /// Appends up to a number are stable. What its owner is told of it, if entries are among them.
    pub fn on_synced(&mut self, number: AppendNumber) -> Option<Answer> {
        let before = self.log.synced();
        self.log.on_synced(number);
        self.log.commit(self.told);
        // What a full disk took late may be claimed by now: told as synced, it would confirm the owner.
        let answer =
            if self.is_over(self.log.epoch()) { self.refused() } else { Answer::Synced(self.synced()) };
        (self.log.synced() > before).then_some(answer)
    }

    /// Whether nobody owns it under an epoch any more, or this server may under a higher one.
    fn is_over(&self, epoch: Epoch) -> bool {
        epoch < self.newest()
    }

    fn newest(&self) -> Epoch {
        self.log.epoch().max(self.registered).max(self.claimed.unwrap_or(Epoch(0)))
    }

    fn refused(&self) -> Answer {
        let epoch = self.newest();
        Answer::Refused(Progress { epoch, ..self.progress(self.log.last()) })
    }

    // --- claims ---

    /// This server is about to ask for it under an epoch.
    pub fn claim(&mut self, epoch: Epoch) {
        self.claimed = Some(epoch);
    }

    /// The register has this epoch. A claim of a lower one, or of this, has come to its end.
    pub fn on_registered(&mut self, epoch: Epoch, is_member: bool) {
        if is_member {
            self.log.store_knows_the_log();
        }
        self.registered = self.registered.max(epoch);
        self.claimed = self.claimed.filter(|claimed| *claimed > epoch);
    }
}

/// Which of a tablet's members takes over first, second ...: from 0. It rotates by serial, so that the
/// tablets of a server that dies do not all go to one.
pub(crate) fn turn(
    serial: TabletSerial,
    members: &[ServerId],
    owner: ServerId,
    me: ServerId,
) -> Option<usize> {
    let others: Vec<ServerId> = members.iter().copied().filter(|member| *member != owner).collect();
    let place = others.iter().position(|member| *member == me)?;
    let first = (serial.0 % others.len() as u64) as usize;
    Some((place + others.len() - first) % others.len())
}
