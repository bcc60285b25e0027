//! Records that the store cannot read: they are never served. A tablet that has other members goes to one of
//! them; then what is here of it is removed, and this server learns it anew.
//!
//! Invariant: nothing is removed while this server owns the tablet by its register.

use crate::engine::machine::MetaServer;
use crate::event::{Command, LoadTicket, Note};
use crate::replication::Answer;
use crate::tablet::{Phase, Tablet};
use bearing_placement::Tablet as Assigned;
use bearing_proto::replication::Progress;
use bearing_types::{LogIndex, Now, Position, ServerId, TabletSerial};
use std::time::Duration;

impl MetaServer {
    /// Records of a tablet of this server's cannot be read. Whether other servers have copies of them.
    pub(crate) fn is_damaged(&mut self, now: Now, start: Position) -> bool {
        let Some((_, assigned)) = self.startup.registers.get(&start) else { return false };
        let serial = assigned.serial;
        if self.is_alone(start) {
            return false;
        }
        self.disk.damaged.insert(serial);
        self.leave_damaged(now, start);
        true
    }

    /// The whole of a tablet was read, and some of it cannot be. What is held for another owner is removed at
    /// once, if that owner lives.
    pub(crate) fn on_damaged_tablet(
        &mut self,
        now: Now,
        serial: TabletSerial,
        what: &str,
        out: &mut Vec<Command>,
    ) {
        out.push(Command::Note(Note::DamagedStore(format!("tablet {serial}, read as a whole: {what}"))));
        if let Some(start) = self.starts.get(&serial).copied() {
            self.is_damaged(now, start);
            return;
        }
        let registers = self.startup.registers.values();
        let mut assigned = registers.map(|(_, assigned)| assigned).filter(|other| other.serial == serial);
        let grace = self.config.takeover_grace;
        let lives = |owner| !self.pairs.grace_left(now.mono, owner, grace, Duration::ZERO).is_zero();
        if let Some(assigned) = assigned.find(|assigned| lives(assigned.owner)).cloned() {
            self.disk.damaged.insert(serial);
            self.drop_damaged(&assigned, out);
        }
    }

    /// What the store has lost some of shall come from another server: before that one is gone, and not only
    /// when somebody asks for what is lost.
    pub(crate) fn give_up_lacking(&mut self, now: Now, out: &mut Vec<Command>) {
        if !self.disk.is_ours() {
            return;
        }
        for serial in self.disk.lacking.clone() {
            let mut registers = self.startup.registers.values().map(|(_, assigned)| assigned);
            let assigned = registers.find(|assigned| assigned.serial == serial);
            let Some(assigned) = assigned.filter(|assigned| assigned.members.contains(&self.id)) else {
                self.disk.lacking.remove(&serial);
                continue;
            };
            // The owner has read what it needs to serve it.
            let serves = Some((assigned.owner, assigned.epoch));
            let has_owner = self.copies.get(&serial).is_some_and(|copy| copy.sender() == serves);
            if self.starts.contains_key(&serial) || assigned.owner != self.id && has_owner {
                self.disk.lacking.remove(&serial);
                self.on_damaged_tablet(now, serial, "records were lost with damage before the start", out);
            }
        }
    }

    fn is_alone(&self, start: Position) -> bool {
        let register = self.startup.registers.get(&start);
        register.is_some_and(|(_, assigned)| assigned.members.iter().all(|member| *member == self.id))
    }

    /// What has to be in memory could not be read, and nobody else has it: it is tried again.
    fn forget_unreadable(&mut self, start: Position) {
        if self.adoptions.get(&start).is_some_and(|adoption| adoption.loading.is_some()) {
            self.forget_startup_load(start);
            self.startup.want_map();
        }
    }

    /// Tablets that this server serves, or is about to, and cannot read: others shall have them.
    pub(crate) fn yield_damaged(&mut self, now: Now) {
        for serial in self.disk.damaged.clone() {
            let Some(start) = self.starts.get(&serial).copied() else {
                self.yield_unreadable(now, serial);
                continue;
            };
            if self.is_alone(start) {
                self.disk.damaged.remove(&serial);
                self.forget_unreadable(start);
                continue;
            }
            self.leave_damaged(now, start);
            let Some(to) = self.next_owner(now, start) else { continue };
            let Some(adoption) = self.adoptions.get_mut(&start) else { continue };
            let (epoch, index) = (adoption.log.epoch(), adoption.log.committed());
            if index == adoption.log.last() {
                adoption.yielded = true;
                let append = self.outgoing.append_to(&self.pairs, now, to);
                append.yields.push(Progress { serial, epoch, index });
            }
        }
    }

    /// Whether a tablet is this server's by its register, and was found so damaged at the start that it is
    /// not even claimed: another member shall have it.
    pub(crate) fn is_yielded_at_once(&self, assigned: &Assigned) -> bool {
        let damaged = self.disk.damaged.contains(&assigned.serial);
        damaged && !self.disk.gaps.contains_key(&assigned.serial) && assigned.members.len() > 1
    }

    fn yield_unreadable(&mut self, now: Now, serial: TabletSerial) {
        let mut registers = self.startup.registers.values().map(|(_, assigned)| assigned);
        let mine = registers.find(|assigned| assigned.serial == serial && assigned.owner == self.id);
        let Some(assigned) = mine.filter(|assigned| self.is_yielded_at_once(assigned)) else { return };
        // All that is committed its other members have.
        let progress = Progress { serial, epoch: assigned.epoch, index: LogIndex::ZERO };
        for member in assigned.members.iter().filter(|member| **member != self.id) {
            let append = self.outgoing.append_to(&self.pairs, now, *member);
            append.yields.push(progress);
        }
    }

    /// The tablet of which a load reads a part of a snapshot.
    pub(crate) fn start_of_part(&self, ticket: LoadTicket) -> Option<Position> {
        let reads =
            |tablet: &Tablet| tablet.log.learner.as_ref().is_some_and(|learner| learner.is_reading(ticket));
        self.tablets.iter().find(|(_, tablet)| reads(tablet)).map(|(start, _)| *start)
    }

    fn leave_damaged(&mut self, now: Now, start: Position) {
        let serves = |tablet: &Tablet| matches!(tablet.phase, Phase::Serving);
        if self.tablets.get(&start).is_some_and(serves)
            && let Some(to) = self.next_owner(now, start)
        {
            self.begin_leaving(now, start, to);
        }
    }

    /// Tells the owners of what was removed here that it is: they would count on it until they have something
    /// new to send.
    pub(crate) fn tell_of_nothing(&mut self) {
        for serial in self.disk.dropped.clone() {
            let mut registers = self.startup.registers.values().map(|(_, assigned)| assigned);
            let counts = registers.find(|assigned| assigned.serial == serial).filter(|assigned| {
                let others = assigned.owner != self.id && assigned.members.contains(&self.id);
                others && !self.copies.contains_key(&serial)
            });
            let Some(&Assigned { owner, epoch, .. }) = counts else {
                self.disk.dropped.remove(&serial);
                continue;
            };
            let index = LogIndex::ZERO;
            self.outgoing.answer(owner, Answer::Lacking(Progress { serial, epoch, index }));
        }
    }

    /// A member of a tablet of this server's that lives.
    fn next_owner(&self, now: Now, start: Position) -> Option<ServerId> {
        let (_, assigned) = self.startup.registers.get(&start)?;
        let lives = |server: &ServerId| self.pairs.has_lease(now.mono, *server, self.config.server_lease_ttl);
        assigned.members.iter().copied().find(|member| *member != self.id && lives(member))
    }

    /// Removes what cannot be read of a tablet that another server owns by now.
    pub(crate) fn drop_damaged(&mut self, assigned: &Assigned, out: &mut Vec<Command>) {
        let serial: TabletSerial = assigned.serial;
        let others = assigned.owner != self.id && self.owned(serial).is_none();
        if self.disk.damaged.contains(&serial) && others && !self.claims.contains_key(&serial) {
            self.remove_stored(serial, out);
            self.disk.dropped.insert(serial);
        }
    }
}
