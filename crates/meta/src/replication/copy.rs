//! A tablet that is held for another server.
//!
//! Invariants: what is confirmed to its owner is synced here under the owner's epoch; while this server
//! claims the tablet, nothing is confirmed to anybody under a lower epoch.

use crate::event::{AppendNumber, Command};
use crate::record::RecordError;
use crate::replication::log::{Accepted, Log, Sent};
use bearing_proto::replication::{Entries, Progress};
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
    /// Of a tablet whose log was found, or is empty. This server may have asked for it under an epoch that it
    /// intended, and does not know what came of that.
    pub fn new(log: Log, intent: Option<Epoch>) -> Copy {
        let claimed = intent.filter(|intent| *intent > log.epoch());
        Copy { log, sender: None, told: LogIndex::ZERO, registered: Epoch(0), claimed }
    }

    /// Who owns it by the newest epoch that has been heard of, and that epoch.
    pub fn sender(&self) -> Option<(ServerId, Epoch)> {
        Some((self.sender?, self.log.epoch()))
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
        number: &mut impl FnMut() -> AppendNumber,
        out: &mut Vec<Command>,
    ) -> Result<Answer, RecordError> {
        if self.is_over(entries.epoch) {
            return Ok(self.refused());
        }
        let mut index = entries.index;
        for entry in &entries.entries {
            let sent = Sent { epoch: entries.epoch, first: entries.first, index };
            match self.log.accept(sent, &entry.0, number, out)? {
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
        if epoch > self.log.epoch() {
            return Answer::Lacking(Progress { epoch, ..self.progress(self.log.last()) });
        }
        self.told = self.told.max(index);
        self.log.commit(self.told);
        Answer::Synced(self.synced())
    }

    /// Appends up to a number are stable. Whether its owner is to be told.
    pub fn on_synced(&mut self, number: AppendNumber) -> bool {
        let before = self.log.synced();
        self.log.on_synced(number);
        self.log.commit(self.told);
        self.log.synced() > before
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
    pub fn on_registered(&mut self, epoch: Epoch) {
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
