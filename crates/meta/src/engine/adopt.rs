//! From a tablet's register that is this server's to a tablet that serves: what is prepared is written again
//! under the new epoch; when that is committed, and so in the store, what has to be in memory is loaded.

use crate::engine::machine::MetaServer;
use crate::event::{Command, LoadTicket};
use crate::mutant::Mutant;
use crate::record::{Key, RESIDENT_TAGS};
use crate::replication::{Log, Members};
use bearing_placement::Tablet as Assigned;
use bearing_seams::KeyRange;
use bearing_types::{Block, Now, Position};

/// A tablet that this server owns and does not serve yet.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub block: Block,
    pub log: Log,
    /// The load of what has to be in memory.
    pub loading: Option<LoadTicket>,
    /// Another member was asked to take it, and may serve it: this server never does under this epoch.
    pub yielded: bool,
}

impl MetaServer {
    /// An epoch of this server's begins: of a tablet that it serves already, or of one that it takes.
    pub(crate) fn begin_epoch(&mut self, now: Now, assigned: &Assigned, out: &mut Vec<Command>) {
        let (start, serial) = (assigned.block.start(), assigned.serial);
        let too_few = assigned.members.len() < self.copies_min();
        // Who serves it has answered nothing that is not committed. Who takes it does not know what was.
        let answered = self.tablets.get(&start).map(|tablet| tablet.log.committed());
        let log = match self.tablets.get_mut(&start).map(|tablet| &mut tablet.log) {
            Some(log) => log,
            None => {
                let begun = self.adoptions.remove(&start).map(|adoption| adoption.log);
                let held = begun.or_else(|| self.copies.remove(&serial).map(|copy| copy.log));
                let log = held.unwrap_or_else(|| Log::empty(serial));
                out.push(Command::CreateTablet(serial));
                let adoption = Adoption { block: assigned.block, log, loading: None, yielded: false };
                &mut self.adoptions.entry(start).insert_entry(adoption).into_mut().log
            }
        };
        let others = assigned.members.iter().copied().filter(|server| *server != self.id);
        let fewer = log.members.servers().count() >= assigned.members.len();
        let wrong = usize::from(fewer && self.config.planted(Mutant::WrongMembersAfterSwapOut));
        log.members = Members::of_epoch(others.skip(wrong), log.committed().next(), now.mono);
        log.members.forget_slowest = self.config.planted(Mutant::CommitWithoutSlowest);
        log.learner_is(assigned.learner, assigned.epoch, now.mono);
        log.begin_epoch(now.mono, assigned.epoch, &self.config, &mut self.appends, out);
        if too_few {
            log.members.are_too_few(answered.unwrap_or(log.last()));
        }
        self.starts.insert(serial, start);
        self.partners = self.find_partners();
    }

    /// How many members a tablet must have for anything new to be committed.
    fn copies_min(&self) -> usize {
        self.copies_wanted().saturating_sub(1).max(1)
    }

    /// More of it may be committed; when all of it is, what has to be in memory is loaded.
    pub(crate) fn advance_adoption(&mut self, start: Position, out: &mut Vec<Command>) {
        let Some(adoption) = self.adoptions.get_mut(&start) else { return };
        adoption.log.commit_as_owner();
        if adoption.log.committed() != adoption.log.last() || adoption.loading.is_some() {
            return;
        }
        adoption.log.apply(out);
        let ticket = LoadTicket(self.next_load);
        self.next_load += 1;
        adoption.loading = Some(ticket);
        let (block, serial) = (adoption.block, adoption.log.serial());
        let ranges = RESIDENT_TAGS
            .iter()
            .map(|tag| (KeyRange { start: vec![*tag], end: Some(vec![*tag + 1]) }, usize::MAX));
        let root = self.root_here(block).map(|(_, seat)| Key::Node(seat.node).encode());
        out.push(Command::Load {
            ticket,
            tablet: serial,
            keys: root.into_iter().collect(),
            ranges: ranges.collect(),
        });
    }
}
