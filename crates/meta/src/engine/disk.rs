//! Whether this server's disk is the one that it was registered with, and not an older state of it.
//!
//! At the first start the disk gets an id (`bearing_proto::disk`). An intent is logged, and stable, before
//! every swap that makes this server a tablet's owner. So the register of a tablet that is ours is never
//! ahead of the intent on our disk:
//!
//! | register's epoch | what happened |
//! |---|---|
//! | the intent's | the swap took effect |
//! | less | the swap was lost, refused, or is still on its way |
//! | more | the intent is not on this disk: it is older than the one that the swap was made from |
//!
//! Intents are of the disk, not of the tablet: they have no index in its log, are not copied in a hand-over,
//! and void nothing.

use crate::engine::disk_state::Stage;
use crate::engine::machine::MetaServer;
use crate::event::{AppendNumber, Command, Note};
use crate::mutant::Mutant;
use crate::record::{LogEntry, intent_change};
use bearing_placement::Tablet as Assigned;
use bearing_proto::disk::{Judgement, judge};
use bearing_seams::LoggedRecord;
use bearing_types::{DiskId, Epoch, LogIndex, Now, TabletSerial};

/// The epoch of all tablets in a new cluster: nobody has served them yet.
const FIRST_EPOCH: Epoch = Epoch(1);
impl MetaServer {
    /// Looks at what is registered; whether tablets may be taken now.
    pub(crate) fn check_disk(
        &mut self,
        now: Now,
        registered: Option<DiskId>,
        out: &mut Vec<Command>,
    ) -> bool {
        match self.disk.stage {
            Stage::Ours => return true,
            Stage::Adopting(_) => return false,
            Stage::Unknown | Stage::Registering(_) => {}
        }
        match judge(registered, &self.disk.found, self.disk.fresh) {
            Judgement::Registered => {
                self.disk.stage = Stage::Ours;
                true
            }
            Judgement::Refuse(_) if self.config.planted(Mutant::AnyDisk) => {
                self.disk.stage = Stage::Ours;
                true
            }
            Judgement::Adopt(disk) => {
                if self.disk.stage == Stage::Unknown {
                    self.adopt_disk(disk, out);
                }
                self.register_disk(now, out);
                false
            }
            Judgement::Refuse(wrong) => {
                self.refuse_disk(&wrong.to_string(), out);
                false
            }
        }
    }

    /// Whether what is registered as ours can be served from this disk; says so if not.
    pub(crate) fn disk_has(&mut self, assigned: &Assigned, out: &mut Vec<Command>) -> bool {
        if self.config.planted(Mutant::AnyDisk) {
            return true;
        }
        let Some(lack) = self.disk.lacks(assigned) else { return true };
        self.refuse_disk(&lack, out);
        false
    }

    fn refuse_disk(&mut self, what: &str, out: &mut Vec<Command>) {
        out.push(Command::Note(Note::WrongDisk(what.to_owned())));
        self.stop_serving();
    }

    /// Gives a disk its id, and what is registered as ours by now counts as intended.
    fn adopt_disk(&mut self, disk: DiskId, out: &mut Vec<Command>) {
        let mine: Vec<Assigned> = self.startup.registered_to(self.id).collect();
        let served = mine.iter().find(|assigned| assigned.epoch > FIRST_EPOCH);
        if let Some(assigned) = served.filter(|_| self.copies.is_empty() && self.disk.gaps.is_empty()) {
            let what = format!(
                "the coordinator has tablet {} of this server under {}, so it has served, but its store and its tablet log are empty",
                assigned.block, assigned.epoch
            );
            return self.refuse_disk(&what, out);
        }
        out.push(Command::SetDisk(disk));
        self.disk.found.iter_mut().for_each(|(_, id)| *id = Some(disk));
        self.disk.stage = Stage::Adopting(disk);
        for assigned in mine {
            self.log_intent(assigned.serial, assigned.epoch, out);
        }
        self.end_adoption();
    }

    fn end_adoption(&mut self) {
        if let Stage::Adopting(disk) = self.disk.stage
            && self.disk.logged.is_empty()
        {
            self.disk.stage = Stage::Registering(disk);
        }
    }

    /// Intends to own a tablet under an epoch. Whether that is stable already.
    pub(crate) fn intend(&mut self, serial: TabletSerial, epoch: Epoch, out: &mut Vec<Command>) -> bool {
        let stable = self.disk.intended.get(&serial) >= Some(&epoch);
        if !stable {
            self.log_intent(serial, epoch, out);
        }
        stable
    }

    fn log_intent(&mut self, serial: TabletSerial, epoch: Epoch, out: &mut Vec<Command>) {
        let number = self.next_append_number();
        let bytes = LogEntry::of_intent(epoch).encode();
        let (index, commit) = (LogIndex::ZERO, LogIndex::ZERO);
        out.push(Command::CreateTablet(serial));
        out.push(Command::Append(number, LoggedRecord { serial, epoch, index, commit, bytes }));
        self.disk.logged.insert(number, (serial, epoch));
    }

    /// Removes what the store holds of a tablet, and with it the intent to serve it, and whatever was
    /// lacking.
    pub(crate) fn remove_stored(&mut self, serial: TabletSerial, out: &mut Vec<Command>) {
        self.disk.intended.remove(&serial);
        // One that becomes stable from now on has no store to go to, and the claim that waits for it is of
        // an epoch that is over.
        self.disk.logged.retain(|_, (intended, _)| *intended != serial);
        self.forget_claim(serial);
        self.disk.gaps.remove(&serial);
        self.disk.damaged.remove(&serial);
        self.copies.remove(&serial);
        self.compares.forget(serial);
        out.push(Command::RemoveTablet(serial));
    }

    /// Intents up to a number are stable: they go to the store, and what waited for them goes on.
    pub(crate) fn intents_stable(&mut self, now: Now, number: AppendNumber, out: &mut Vec<Command>) {
        let later = self.disk.logged.split_off(&AppendNumber(number.0 + 1));
        let stable = std::mem::replace(&mut self.disk.logged, later);
        if stable.is_empty() {
            return;
        }
        for (serial, epoch) in stable.into_values() {
            self.disk.intended.insert(serial, epoch);
            out.push(Command::Apply(serial, self.stored(serial), vec![intent_change(epoch)]));
            out.push(Command::Note(Note::Step("intent stable")));
            self.on_intended(serial, epoch);
        }
        self.end_adoption();
        self.register_disk(now, out);
    }
}
