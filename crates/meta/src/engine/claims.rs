//! Claims: this server asks the coordinator for tablets under their next epochs. It does so for what is its
//! own after a start, for what it takes over from a server that is silent or leaves it, and for what it goes
//! on with under other members (`engine/restore.rs`).
//!
//! A claim is intended first, stably, so that this disk is never behind its registers; then all that are
//! intended are asked for in one swap, which takes effect for all of them or for none. Those whose registers
//! are others by then drop out, the rest ask again.

use crate::engine::machine::MetaServer;
use crate::engine::registers::AskKind;
use crate::event::{Command, Failing, Note};
use crate::mutant::Mutant;
use crate::replication::{Copy, turn};
use bearing_lookup::Located;
use bearing_placement::Tablet as Assigned;
use bearing_proto::coordinator::{AskCall, Register, SWAP_MAX, decode_register, encode_register, tablet_key};
use bearing_seams::RegisterChange;
use bearing_types::{Epoch, Now, ServerId, TabletSerial};
use std::time::Duration;

/// A server that cannot read some of a tablet waits so long for the only other member: it may have the only
/// whole copy.
const WHOLE_COPY_AWAITED: Duration = Duration::from_mins(10);

/// A tablet that this server wants under the next epoch.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// What its register shall say.
    wanted: Assigned,
    /// The version of the register that is to be swapped.
    version: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The intent is not stable yet.
    Intending,
    /// To be asked for.
    Ready,
    /// Asked for: the number of the question.
    Asked(u64),
}

impl Claim {
    /// Whether it is asked for, and its register says what was asked for.
    pub fn is_won_by(&self, register: &Assigned) -> bool {
        matches!(self.stage, Stage::Asked(_)) && self.wanted == *register
    }

    /// Whether it is asked for in one of these questions.
    pub fn is_asked_in(&self, questions: &[u64]) -> bool {
        matches!(self.stage, Stage::Asked(question) if questions.contains(&question))
    }
}

impl MetaServer {
    // --- what is claimed ---

    /// Claims what is registered as this server's, and not owned in this life.
    pub(crate) fn claim_own(&mut self, assigned: &Assigned, version: u64, out: &mut Vec<Command>) {
        let wanted = Assigned { epoch: assigned.epoch.next(), learner: None, ..assigned.clone() };
        self.claim(assigned.owner, wanted, version, out);
    }

    /// Claims what silent servers own and this one is next to serve.
    pub(crate) fn take_over(&mut self, now: Now, out: &mut Vec<Command>) {
        if self.copies.is_empty() || self.failed || !self.startup.may_claim() || self.is_stuck(now) {
            return;
        }
        let (me, mut wanted) = (self.id, Vec::new());
        for (version, assigned) in self.startup.registers.values() {
            // An older state of the disk has less than was known to be committed.
            let has_all = |copy: &&Copy| !copy.is_arriving() && copy.log.last() >= assigned.committed;
            let copy = self.copies.get(&assigned.serial).filter(has_all);
            let Some(copy) = copy else { continue };
            let Some(turn) = turn(assigned.serial, &assigned.members, assigned.owner, me) else { continue };
            // The register is old when somebody sends under a newer epoch.
            let (owner, epoch) = copy.sender().unwrap_or((assigned.owner, assigned.epoch));
            if owner == me || epoch > assigned.epoch || self.claims.contains_key(&assigned.serial) {
                continue;
            }
            let pause = self.config.takeover_stagger * turn as u32;
            let first_grace = match self.config.planted(Mutant::NoGraceAfterRestart) {
                true => Duration::ZERO,
                false => self.config.first_grace,
            };
            let (mut grace, mut first) = (self.config.takeover_grace + pause, first_grace + pause);
            let unread =
                self.disk.lacking.contains(&assigned.serial) || self.disk.damaged.contains(&assigned.serial);
            if unread && assigned.members.iter().all(|server| [me, assigned.owner].contains(server)) {
                (grace, first) = (WHOLE_COPY_AWAITED, WHOLE_COPY_AWAITED);
            }
            if self.pairs.grace_left(now.mono, assigned.owner, grace, first).is_zero() {
                let others = assigned.members.iter().filter(|server| ![me, assigned.owner].contains(server));
                let members = [me].into_iter().chain(others.copied()).collect();
                let next = Assigned {
                    epoch: assigned.epoch.next(),
                    owner: me,
                    members,
                    learner: None,
                    ..assigned.clone()
                };
                wanted.push((assigned.owner, next, *version));
            }
        }
        for (owner, assigned, version) in wanted {
            out.push(Command::Note(Note::TakingOver(assigned.block, owner)));
            self.claim(owner, assigned, version, out);
        }
    }

    /// Goes on without members that do not keep up.
    pub(crate) fn swap_out(&mut self, now: Now, out: &mut Vec<Command>) {
        if self.partners.is_empty() || !self.startup.may_claim() || self.is_stuck(now) {
            return;
        }
        let (me, mut wanted) = (self.id, Vec::new());
        let logs = self.tablets.iter_mut().map(|(start, tablet)| (*start, &mut tablet.log));
        let adopted = self.adoptions.iter_mut().map(|(start, adoption)| (*start, &mut adoption.log));
        for (start, log) in logs.chain(adopted) {
            let mut failing = log.members.failing(&self.pairs, now.mono, &self.config);
            let register = self.startup.registers.get(&start);
            let unread = register.filter(|(_, assigned)| self.disk.damaged.contains(&assigned.serial));
            let gets_on =
                |server: &ServerId| *server != me && failing.iter().all(|(other, _)| other != server);
            if unread.is_some_and(|(_, assigned)| !assigned.members.iter().any(gets_on)) {
                failing.retain(|(_, why)| match why {
                    Failing::Lost => true,
                    Failing::Stuck(length) | Failing::Silent(length, _) => *length >= WHOLE_COPY_AWAITED,
                });
            }
            let Some((version, assigned)) = register.filter(|(_, assigned)| assigned.epoch == log.epoch())
            else {
                continue;
            };
            if failing.is_empty() || self.claims.contains_key(&assigned.serial) {
                continue;
            }
            let swapped = failing.iter().map(|(server, why)| Note::SwappedOut(assigned.block, *server, *why));
            out.extend(swapped.map(Command::Note));
            self.counters.swapped_out += failing.len() as u64;
            let gone: Vec<ServerId> = failing.into_iter().map(|(server, _)| server).collect();
            let mut next = Assigned { epoch: assigned.epoch.next(), ..assigned.clone() };
            next.members.retain(|member| !gone.contains(member));
            next.learner = next.learner.filter(|learner| !gone.contains(learner));
            // One that answers and yet does not get on is not asked to learn what it had.
            let lease_ttl = self.config.server_lease_ttl;
            let slow = gone.into_iter().filter(|server| self.pairs.has_lease(now.mono, *server, lease_ttl));
            slow.for_each(|server| self.restore.fail(server, now.mono));
            wanted.push((next, *version));
        }
        for (assigned, version) in wanted {
            self.claim(self.id, assigned, version, out);
        }
    }

    // --- how it is claimed ---

    pub(crate) fn claim(&mut self, owner: ServerId, wanted: Assigned, version: u64, out: &mut Vec<Command>) {
        // What arrives while it is not known whose disk this is waits.
        if !self.startup.may_claim() || !self.disk.is_ours() || self.claims.contains_key(&wanted.serial) {
            return;
        }
        if owner != self.id {
            self.pairs.claim(owner);
            self.takeovers.begin(wanted.serial, owner, self.awake);
        }
        let mut wanted = wanted;
        if let Some(copy) = self.copies.get_mut(&wanted.serial) {
            copy.claim(wanted.epoch);
            self.outgoing.confirm_no_more(wanted.serial);
            wanted.committed = wanted.committed.max(copy.committed());
        }
        let owned = self.owned(wanted.serial).map(|log| log.committed());
        wanted.committed = owned.map_or(wanted.committed, |committed| committed.max(wanted.committed));
        let stage = match self.intend(wanted.serial, wanted.epoch, out) {
            true => Stage::Ready,
            false => Stage::Intending,
        };
        self.claims.insert(wanted.serial, Claim { wanted, version, stage });
    }

    /// The intent is stable.
    pub(crate) fn on_intended(&mut self, serial: TabletSerial, epoch: Epoch) {
        if let Some(claim) = self.claims.get_mut(&serial)
            && claim.stage == Stage::Intending
            && claim.wanted.epoch == epoch
        {
            claim.stage = Stage::Ready;
        }
    }

    /// Nothing is here of a tablet any more. What was asked for already is answered.
    pub(crate) fn forget_claim(&mut self, serial: TabletSerial) {
        self.claims.retain(|claimed, claim| *claimed != serial || matches!(claim.stage, Stage::Asked(_)));
    }

    /// Asks for all that is ready, in one swap.
    pub(crate) fn ask_for_claims(&mut self, now: Now, out: &mut Vec<Command>) {
        let ready = self.claims.values().filter(|claim| claim.stage == Stage::Ready);
        let change = |claim: &Claim| {
            let (key, value) = (tablet_key(claim.wanted.block), encode_register(&claim.wanted));
            RegisterChange::new(key, Some(claim.version), Some(value))
        };
        let changes: Vec<RegisterChange> = ready.map(change).take(SWAP_MAX).collect();
        if changes.is_empty() {
            return;
        }
        let asked = changes.len();
        let question = self.startup.ask(now, AskKind::Claims, AskCall::Swap { changes }, out);
        let ready = self.claims.values_mut().filter(|claim| claim.stage == Stage::Ready);
        ready.take(asked).for_each(|claim| claim.stage = Stage::Asked(question));
    }

    // --- what came of it ---

    /// All of a question took effect.
    pub(crate) fn on_swapped(&mut self, now: Now, question: u64, version: u64, out: &mut Vec<Command>) {
        for serial in self.asked_in(question) {
            self.win(now, serial, version, out);
        }
    }

    /// None of it took effect, because of these registers.
    pub(crate) fn on_conflict(
        &mut self,
        now: Now,
        question: u64,
        others: Vec<Register>,
        out: &mut Vec<Command>,
    ) {
        self.startup.want_map();
        self.startup.met = others.iter().map(|other| other.version).fold(self.startup.met, u64::max);
        for serial in self.asked_in(question) {
            let Some(claim) = self.claims.get_mut(&serial) else { continue };
            let key = tablet_key(claim.wanted.block);
            let Some(other) = others.iter().find(|other| other.key == key) else {
                claim.stage = Stage::Ready;
                continue;
            };
            // An earlier copy of the same question took effect: no earlier life of this server, and nobody
            // else, asks for that epoch with these members after the registers were listed.
            if other.version < claim.version {
                self.claims.remove(&serial);
                self.on_older_registers(out);
            } else if decode_register(&other.value) == Ok(claim.wanted.clone()) {
                self.win(now, serial, other.version, out);
            } else {
                self.claims.remove(&serial);
            }
        }
    }

    fn asked_in(&self, question: u64) -> Vec<TabletSerial> {
        let asked = self.claims.iter().filter(|(_, claim)| claim.is_asked_in(&[question]));
        asked.map(|(serial, _)| *serial).collect()
    }

    pub(crate) fn win(&mut self, now: Now, serial: TabletSerial, version: u64, out: &mut Vec<Command>) {
        let Some(Claim { wanted, .. }) = self.claims.remove(&serial) else { return };
        let start = wanted.block.start();
        // The answer may come very late.
        let known = self.startup.registers.get(&start);
        if known.is_some_and(|(_, assigned)| assigned.epoch > wanted.epoch) {
            return;
        }
        // Nor does an epoch go back: entries of the next owner may come before its register is listed.
        let copy = self.copies.get(&serial).map(|copy| copy.log.epoch());
        if self.owned(serial).map(|log| log.epoch()).max(copy) >= Some(wanted.epoch) {
            return;
        }
        self.startup.registers.insert(start, (version, wanted.clone()));
        self.map.learn(Located { block: wanted.block, epoch: wanted.epoch, owner: self.id });
        out.push(Command::Note(Note::Step("epoch taken")));
        if self.owned(serial).is_none() {
            out.push(Command::Note(Note::Taken(wanted.block, wanted.epoch)));
        }
        self.begin_epoch(now, &wanted, out);
    }
}
