//! Tablets get as many copies as they should have, and go to other servers. Both in the same three steps,
//! each a swap of the register: a server learns the tablet, it becomes a member, and it may become the owner.
//! Then a member too many is left out.

use crate::config::Config;
use crate::disk_space::Headroom;
use crate::engine::machine::MetaServer;
use crate::event::{Command, LoadResult, LoadTicket, Note};
use crate::mutant::Mutant;
use crate::record::KEYS_END;
use crate::replication::{Copy, Learner, Log, Part};
use crate::tablet::{Leaving, Phase, Tablet};
use bearing_placement::Tablet as Assigned;
use bearing_proto::replication::{PartsHeld, Progress, SnapshotPart};
use bearing_seams::KeyRange;
use bearing_types::{Block, Epoch, LogIndex, Mono, Now, Position, ServerId, TabletSerial};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tablets of this server that others learn at the same time.
const LEARNT_MAX: usize = 8;
/// Of these, such that lack no copy.
const EVENED_MAX: usize = 4;
/// Tablets of this server on their way to other owners, at the same time: each is not served for a moment.
const LEAVING_MAX: usize = 2;
/// So many bytes of snapshots leave in a second: requests need the network and the disk too.
pub(crate) const BYTES_PER_SECOND: u64 = 64 << 20;
/// What was not sent for want of anything to send may be made up for, this long.
const BURST: Duration = Duration::from_millis(50);
/// A learner that lacks no more entries than this counts: from then on commits wait for it.
const NEARLY: u64 = 256;
/// A server that did not keep up learns nothing for so long, doubled with each time in a row.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// What the store cannot read is not taught again for so long.
const UNREADABLE_PAUSE: Duration = Duration::from_mins(1);
/// A learner that answers has so long for a part. A move that is not done after so long is given up: the
/// tablet stays, or is taken back.
const PATIENCE: Duration = Duration::from_secs(5);
/// A tablet is yielded anew each time that this passes: its next owner may lack the register or the epoch
/// when it hears of it first, and meanwhile nobody serves it.
const YIELD_AGAIN: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Restore {
    /// Bytes of snapshots that may leave now.
    budget: u64,
    refilled: Mono,
    /// Servers that did not keep up.
    failed: BTreeMap<ServerId, Failed>,
    moves: BTreeMap<TabletSerial, Move>,
    /// Tablets of which nobody learns anything until then: this server has the only copy, and cannot read it.
    unreadable: BTreeMap<TabletSerial, Mono>,
    /// Whether a tablet of anybody lacks copies, and when one did last: then nothing is evened out.
    restless: (bool, Mono),
    /// Since when tablets lack copies, and what had been sent of snapshots by then.
    lacking: Option<(Mono, u64)>,
    /// Snapshots that arrived, and their bytes.
    arrived: (u64, u64),
}

/// A server that did not keep up.
#[derive(Clone, Copy, Debug)]
struct Failed {
    since: Mono,
    /// For how long it learns nothing.
    pause: Duration,
}

impl Failed {
    fn is_over(&self, now: Mono) -> bool {
        now.since(self.since) >= self.pause
    }
}

#[derive(Clone, Copy, Debug)]
struct Move {
    to: ServerId,
    since: Mono,
}

impl Restore {
    pub fn new() -> Restore {
        Restore {
            budget: 0,
            refilled: Mono::ZERO,
            failed: BTreeMap::new(),
            moves: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            restless: (false, Mono::ZERO),
            lacking: None,
            arrived: (0, 0),
        }
    }

    fn refill(&mut self, now: Mono) {
        let bytes = |time: Duration| BYTES_PER_SECOND * time.as_micros() as u64 / 1_000_000;
        let since = now.since(self.refilled).min(BURST);
        (self.budget, self.refilled) = ((self.budget + bytes(since)).min(bytes(BURST)), now);
    }

    /// Tablets lack copies, or none does; so much was sent of snapshots until now.
    fn note_lacking(&mut self, now: Mono, lacking: bool, sent_bytes: u64) {
        self.lacking = if lacking { self.lacking.or(Some((now, sent_bytes))) } else { None };
    }

    /// How large a snapshot is on average; `None` before one arrived.
    pub fn bytes_expected(&self) -> Option<u64> {
        let (count, bytes) = self.arrived;
        bytes.checked_div(count)
    }

    /// For how long tablets have lacked copies, and what was sent since, with what was sent until now.
    pub fn since_lacking(&self, now: Mono, sent_bytes: u64) -> Option<(Duration, u64)> {
        self.lacking.map(|(since, before)| (now.since(since), sent_bytes - before))
    }

    /// A tablet does not move, or has.
    pub fn stays(&mut self, serial: TabletSerial) {
        self.moves.remove(&serial);
    }

    /// A server does not keep up. It may do so with several tablets: that counts once.
    pub fn fail(&mut self, server: ServerId, now: Mono) {
        let failed = self.failed.entry(server).or_insert(Failed { since: now, pause: PAUSE_MIN });
        if failed.is_over(now) {
            *failed = Failed { since: now, pause: (failed.pause * 2).min(PAUSE_MAX) };
        }
    }

    /// The registers changed; by them, a tablet lacks copies or none does.
    pub fn note_restless(&mut self, now: Mono, lacking: bool) {
        let (before, since) = self.restless;
        self.restless = (lacking, if lacking || before { now } else { since });
    }

    /// Whether all tablets have had all copies for a while.
    pub fn is_at_rest(&self, now: Mono, config: &Config) -> bool {
        let (lacking, since) = self.restless;
        !lacking && now.since(since) >= config.balance_delay
    }

    pub fn may_learn(&self, server: ServerId, now: Mono) -> bool {
        self.failed.get(&server).is_none_or(|failed| failed.is_over(now))
    }
}

impl MetaServer {
    /// Somebody wants a tablet of this server's served by another one.
    pub(crate) fn begin_move(&mut self, now: Now, block: Block, to: ServerId) {
        let Some(tablet) = self.tablets.get(&block.start()) else { return };
        if tablet.block == block && to != self.id {
            self.restore.moves.entry(tablet.serial).or_insert(Move { to, since: now.mono });
            // It stays there for a while.
            self.restore.restless.1 = now.mono;
        }
    }

    /// What time brings.
    pub(crate) fn restore_copies(&mut self, now: Now, out: &mut Vec<Command>) {
        self.restore.refill(now.mono);
        // One that has kept up for so long begins with the short pause again.
        self.restore.failed.retain(|_, failed| now.mono.since(failed.since) < failed.pause + PAUSE_MAX);
        self.restore.unreadable.retain(|_, until| now.mono < *until);
        let lacking = self.lacking().next().is_some();
        self.restore.note_lacking(now.mono, lacking, self.counters.restored_bytes);
        if self.is_stuck(now) {
            return;
        }
        self.change_members(now, out);
        self.give_up_lacking(now, out);
        self.yield_damaged(now);
        self.tell_of_nothing();
        let starts: Vec<Position> = self.tablets.keys().copied().collect();
        for start in starts {
            self.send_part(now, start, false, out);
            self.go_on_leaving(now, start, out);
        }
    }

    /// Other servers that are to be heard of: those that learn, and while a tablet lacks copies all that
    /// could.
    pub(crate) fn candidates(&self) -> Vec<ServerId> {
        let logs = self.tablets.values().map(|tablet| &tablet.log);
        let learners = logs.filter_map(|log| log.learner.as_ref().map(|learner| learner.server));
        let targets = self.restore.moves.values().map(|wanted| wanted.to);
        let mut out: Vec<ServerId> = learners.chain(targets).collect();
        out.extend(self.takers());
        if self.lacking().next().is_some() || !self.balance.is_active(self.id) {
            out.extend(self.successors());
        }
        out
    }

    /// Tablets of this server's with fewer members than they should have.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = &Assigned> + '_ {
        let copies = self.copies_wanted();
        let registers = self.startup.registers.values().map(|(_, assigned)| assigned);
        registers.filter(move |assigned| assigned.owner == self.id && assigned.members.len() < copies)
    }

    /// How many copies each tablet should have.
    pub(crate) fn copies_wanted(&self) -> usize {
        self.filesystem.as_ref().map_or(1, |filesystem| usize::from(filesystem.metadata_copies))
    }

    // --- who holds a tablet ---

    fn change_members(&mut self, now: Now, out: &mut Vec<Command>) {
        let copies = self.copies_wanted();
        let (mut learnt, mut evened) = (0, 0);
        for tablet in self.tablets.values().filter(|tablet| tablet.log.learner.is_some()) {
            learnt += 1;
            evened += usize::from(tablet.log.members.count_others() >= copies);
        }
        // Known by sorting: only when a tablet's members change.
        let successors = OnceCell::new();
        self.restore.moves.retain(|_, wanted| now.mono.since(wanted.since) < PATIENCE);
        let starts: Vec<Position> = self.tablets.keys().copied().collect();
        let (mut wanted, mut left) = (Vec::new(), Vec::new());
        for start in starts {
            let Some((version, assigned)) = self.startup.registers.get(&start) else { continue };
            if self.claims.contains_key(&assigned.serial) {
                continue;
            }
            let Some(tablet) = self.tablets.get_mut(&start) else { continue };
            let stands = tablet.log.epoch() == assigned.epoch && matches!(tablet.phase, Phase::Serving);
            if !stands {
                continue;
            }
            let (log, block) = (&mut tablet.log, tablet.block);
            let next = match learning(log, &self.pairs, now.mono, &self.config) {
                Learning::Nobody => match self.owner_wanted(now, assigned) {
                    Some(to) if assigned.members.contains(&to) => {
                        left.push((start, to));
                        None
                    }
                    Some(to) => Some(Assigned { learner: Some(to), ..assigned.clone() }),
                    None => self.next_members(now, assigned, &successors),
                },
                Learning::GoesOn => None,
                Learning::Counts(server) => {
                    out.push(Command::Note(Note::Counting(block, assigned.epoch, server)));
                    None
                }
                Learning::Failed(server) => {
                    if !self.restore.unreadable.contains_key(&assigned.serial) {
                        self.restore.fail(server, now.mono);
                    }
                    Some(Assigned { learner: None, ..assigned.clone() })
                }
                Learning::Done(server) => {
                    out.push(Command::Note(Note::Step("a learner has everything")));
                    let members = assigned.members.iter().copied().chain([server]).collect();
                    Some(Assigned { members, learner: None, ..assigned.clone() })
                }
            };
            wanted.extend(next.map(|next| (Assigned { epoch: assigned.epoch.next(), ..next }, *version)));
        }
        left.into_iter().for_each(|(start, to)| self.leave_to_member(now, start, to));
        // Those with the fewest copies first.
        wanted.sort_by_key(|(assigned, _)| (assigned.learner.is_some(), assigned.members.len()));
        for (assigned, version) in wanted {
            if assigned.learner.is_some() {
                learnt += 1;
                evened += usize::from(assigned.members.len() >= copies);
                if learnt > LEARNT_MAX || evened > EVENED_MAX {
                    break;
                }
            }
            self.claim(self.id, assigned, version, out);
        }
    }

    /// A part of a snapshot cannot be read, and nobody else has it: its learner is given up, and the tablet
    /// is tried again later.
    pub(crate) fn pause_teaching(&mut self, now: Now, start: Position) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        self.restore.unreadable.insert(tablet.serial, now.mono.after(UNREADABLE_PAUSE));
        tablet.log.learner.iter_mut().for_each(Learner::give_up);
    }

    /// Who shall own a tablet instead of this server.
    fn owner_wanted(&self, now: Now, assigned: &Assigned) -> Option<ServerId> {
        // One that left, does not answer or could not serve it would only keep others from getting it.
        let wished = self.restore.moves.get(&assigned.serial).map(|wanted| wanted.to);
        let wished = wished.filter(|to| self.may_own(now, *to));
        wished.or_else(|| self.next_owner_wanted(now, assigned))
    }

    /// Begins to leave a tablet to a member. It is yielded when all that it said is committed: with a member
    /// that does not answer it would be refused for as long as that takes.
    fn leave_to_member(&mut self, now: Now, start: Position, to: ServerId) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let leaving = self.tablets.values().filter(|tablet| matches!(tablet.phase, Phase::Leaving(_)));
        if tablet.log.members.keep_up(now.mono) && leaving.count() < LEAVING_MAX {
            self.begin_leaving(now, start, to);
        }
    }

    /// What a tablet's register should say where nobody learns it, but for the epoch; `None` if it is as it
    /// should be.
    fn next_members(
        &self,
        now: Now,
        assigned: &Assigned,
        successors: &OnceCell<Vec<ServerId>>,
    ) -> Option<Assigned> {
        if self.restore.unreadable.contains_key(&assigned.serial) {
            return None;
        }
        let successors = || successors.get_or_init(|| self.successors()).as_slice();
        if assigned.members.len() > self.copies_wanted() {
            let left_out = self.member_left_out(assigned, successors())?;
            let members = assigned.members.iter().copied().filter(|member| *member != left_out).collect();
            return Some(Assigned { members, ..assigned.clone() });
        }
        let learner = self.next_learner_wanted(now, assigned, successors)?;
        Some(Assigned { learner: Some(learner), ..assigned.clone() })
    }

    // --- a snapshot, at the owner ---

    /// Reads the next part for a tablet's learner, or sends again the one that is on its way.
    fn send_part(&mut self, now: Now, start: Position, at_once: bool, out: &mut Vec<Command>) {
        let (ticket, pause) = (LoadTicket(self.next_load), self.config.resend_interval);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let (serial, epoch, log) = (tablet.serial, tablet.epoch(), &mut tablet.log);
        let Some(learner) = &mut log.learner else { return };
        if learner.has_snapshot() {
            return;
        }
        if learner.is_part_due(now.mono, if at_once { Duration::ZERO } else { pause })
            && let Some(part) = learner.part(serial, epoch)
        {
            let server = learner.server;
            return self.outgoing.append_to(&self.pairs, now, server).parts.push(part);
        }
        // Behind the record of this epoch, whatever the learner has of an earlier one is older. Where members
        // are lacking that record waits for the learner; nothing was committed without this server.
        if learner.base().is_none() {
            if log.committed() < log.begun() && !log.members.lack_some() {
                return;
            }
            log.begin_snapshot(out);
            out.push(Command::Note(Note::Step("a snapshot begins")));
        }
        if self.restore.budget == 0 {
            return;
        }
        let Some(from) = log.learner.as_mut().and_then(|learner| learner.next_part(ticket)) else { return };
        self.next_load += 1;
        let range = (KeyRange { start: from, end: Some(KEYS_END.to_vec()) }, self.config.copy_pairs_max);
        out.push(Command::Load { ticket, tablet: serial, keys: Vec::new(), ranges: vec![range] });
    }

    /// Whether a load was one for a learner.
    pub(crate) fn on_part_load(
        &mut self,
        now: Now,
        ticket: LoadTicket,
        loaded: &mut LoadResult,
        out: &mut Vec<Command>,
    ) -> bool {
        let reads = |log: &Log| log.learner.as_ref().is_some_and(|learner| learner.is_reading(ticket));
        let Some(tablet) = self.tablets.values_mut().find(|tablet| reads(&tablet.log)) else { return false };
        let (start, stored) = (tablet.block.start(), tablet.log.stored());
        if let Some(learner) = &mut tablet.log.learner {
            let pairs = loaded.ranges.pop().unwrap_or_default();
            let bytes = learner.read(pairs, self.config.copy_pairs_max, stored, now.mono) as u64;
            self.restore.budget = self.restore.budget.saturating_sub(bytes);
            self.counters.restored_bytes += bytes;
        }
        self.send_part(now, start, true, out);
        true
    }

    pub(crate) fn on_parts_held(
        &mut self,
        now: Now,
        from: ServerId,
        held: PartsHeld,
        out: &mut Vec<Command>,
    ) {
        let Some(start) = self.starts.get(&held.serial).copied() else { return };
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let same = |server, snapshot| server == from && snapshot == held.snapshot;
        let learner = tablet.log.learner.as_mut();
        let Some(learner) = learner.filter(|learner| same(learner.server, learner.snapshot)) else { return };
        if !learner.on_parts(held.parts, now.mono) {
            return self.send_part(now, start, false, out);
        }
        out.push(Command::Note(Note::Step("a snapshot is there")));
        let (count, bytes) = self.restore.arrived;
        self.restore.arrived = (count + 1, bytes + learner.progress().1);
        tablet.log.snapshot_is_there(now.mono);
        self.send_tail(now, start, from);
    }

    // --- a snapshot, at the learner ---

    pub(crate) fn on_snapshot_part(&mut self, from: ServerId, sent: &SnapshotPart, out: &mut Vec<Command>) {
        let part = match Part::decode(sent) {
            Ok(part) => part,
            Err(what) => {
                let what = format!("a part of {} from {from}: {what}", sent.serial);
                return out.push(Command::Note(Note::Damaged(what)));
            }
        };
        let copy = self.copies.get(&sent.serial);
        let begun = copy.and_then(|copy| copy.arrival.as_ref()).map(|arrival| arrival.snapshot());
        // The parts that came before this server was restarted are void. So the snapshot cannot go on, or all
        // of it is here, and that was not answered: the owner begins another one.
        let is_here = copy.is_some_and(|copy| !copy.is_arriving() && copy.committed() >= sent.base);
        if begun.is_none() && (is_here || !part.first) {
            let (serial, snapshot) = (sent.serial, sent.snapshot);
            out.push(Command::Note(Note::Step("parts of a snapshot are lost")));
            return self.outgoing.answer_parts(from, PartsHeld { serial, snapshot, parts: 0 });
        }
        if part.first && begun.is_none_or(|snapshot| snapshot < sent.snapshot) {
            if !self.may_learn(from, sent, begun) {
                return;
            }
            self.remove_stored(sent.serial, out);
            out.push(Command::CreateTablet(sent.serial));
            self.copies.insert(sent.serial, Copy::arriving(sent));
        }
        let Some(copy) = self.copies.get_mut(&sent.serial) else { return };
        if let Some(held) = copy.on_part(from, sent, part, &mut self.appends, out) {
            self.outgoing.answer_parts(from, held);
        }
    }

    /// Whether what is here of a tablet may become void: the register has to say that this server learns it
    /// of that one. A part that the network kept may be of long ago, of a snapshot that this server had
    /// before it was restarted, and counts on: then all that the part has is known here to be committed. If
    /// it was not restarted since an earlier snapshot, it has had no later one.
    fn may_learn(&mut self, from: ServerId, sent: &SnapshotPart, begun: Option<Epoch>) -> bool {
        let mut registers = self.startup.registers.values().map(|(_, assigned)| assigned);
        let stands = registers.find(|assigned| assigned.serial == sent.serial).is_some_and(|assigned| {
            assigned.learner == Some(self.id) && assigned.owner == from && assigned.epoch >= sent.snapshot
        });
        if !stands {
            self.startup.want_map();
            return false;
        }
        let mine = self.starts.contains_key(&sent.serial) || self.claims.contains_key(&sent.serial);
        let older =
            begun.is_some() || self.copies.get(&sent.serial).is_none_or(|copy| copy.committed() < sent.base);
        // Without room for it, somebody else is asked in a while.
        !mine && older && self.headroom() == Headroom::Enough
    }

    // --- another owner ---

    /// Stops serving a tablet: a member will.
    pub(crate) fn begin_leaving(&mut self, now: Now, start: Position, to: ServerId) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        // Those that waited for locks are gone too.
        tablet.keys.forget_waiting();
        tablet.phase = Phase::Leaving(Leaving { to, since: now.mono, yielded: false, said: Mono::ZERO });
    }

    /// Yields a tablet once all that was said of it has left; takes it back from a member that does not come
    /// round to it.
    fn go_on_leaving(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let leaving = |tablet: &Tablet| matches!(tablet.phase, Phase::Leaving(_));
        if !self.tablets.get(&start).is_some_and(leaving) {
            return;
        }
        for id in self.jobs.of_tablet(start) {
            if let Some(job) = self.jobs.remove(id) {
                self.postpone(job, out);
            }
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let (serial, epoch, index) = (tablet.serial, tablet.epoch(), tablet.log.committed());
        let settled = index == tablet.log.last() && tablet.exit.is_empty();
        let Phase::Leaving(leaving) = &mut tablet.phase else { return };
        let to = leaving.to;
        let register = self.startup.registers.get(&start).cloned();
        let register = register.filter(|(_, assigned)| assigned.epoch == epoch);
        // A member that fell silent meanwhile is swapped out, and never takes the tablet.
        let may_come = register.as_ref().is_none_or(|(_, assigned)| assigned.members.contains(&leaving.to));
        if may_come && now.mono.since(leaving.since) < PATIENCE {
            if settled && now.mono.since(leaving.said) >= YIELD_AGAIN {
                if !std::mem::replace(&mut leaving.yielded, true) {
                    let refused = now.mono.since(leaving.since);
                    out.push(Command::Note(Note::Yielded(tablet.block, to, refused)));
                }
                leaving.said = now.mono;
                out.push(Command::Note(Note::Step("a tablet is yielded")));
                let append = self.outgoing.append_to(&self.pairs, now, to);
                append.yields.push(Progress { serial, epoch, index });
            }
            return;
        }
        let Some((version, assigned)) =
            register.filter(|_| self.startup.may_claim() && !self.claims.contains_key(&serial))
        else {
            return;
        };
        out.push(Command::Note(Note::Step("a move is given up")));
        self.restore.fail(to, now.mono);
        self.leave(serial, false, out);
        self.claim_own(&assigned, version, out);
    }

    /// The owner of a tablet serves it no more and leaves it to this server.
    pub(crate) fn on_yield(&mut self, from: ServerId, yielded: Progress, out: &mut Vec<Command>) {
        let Some(copy) = self.copies.get(&yielded.serial).filter(|copy| !copy.is_arriving()) else { return };
        let mut registers = self.startup.registers.values();
        let Some((version, assigned)) = registers.find(|(_, other)| other.serial == yielded.serial) else {
            return self.startup.want_map();
        };
        let stands =
            assigned.owner == from && assigned.epoch == yielded.epoch && assigned.members.contains(&self.id);
        if !stands {
            return self.startup.want_map();
        }
        // Who has claimed nothing since it started serves nothing, so all that is committed its members have.
        let has_all = match yielded.index {
            LogIndex::ZERO => copy.log.epoch() <= yielded.epoch && copy.log.last() >= assigned.committed,
            index => copy.log.epoch() == yielded.epoch && copy.log.synced() >= index,
        };
        if has_all && !self.claims.contains_key(&yielded.serial) {
            let (version, me) = (*version, self.id);
            let others = assigned.members.iter().copied().filter(|member| *member != me);
            let members = [me].into_iter().chain(others).collect();
            let epoch = assigned.epoch.next();
            let next = Assigned { epoch, owner: me, members, learner: None, ..assigned.clone() };
            out.push(Command::Note(Note::Step("a yielded tablet is taken")));
            self.claim(from, next, version, out);
        }
    }
}

/// How far a tablet's learner is.
enum Learning {
    Nobody,
    GoesOn,
    /// From now on what is committed it has too.
    Counts(ServerId),
    /// It does not keep up.
    Failed(ServerId),
    /// It has all that is committed, and whatever is committed from now on.
    Done(ServerId),
}

fn learning(log: &mut Log, pairs: &crate::replication::Pairs, now: Mono, config: &Config) -> Learning {
    let (committed, last) = (log.committed(), log.last());
    let Some(learner) = &mut log.learner else { return Learning::Nobody };
    let server = learner.server;
    if config.planted(Mutant::LearnerCounted) && learner.has_snapshot() {
        return Learning::Done(server);
    }
    // Nothing waits for one that answers and is slow: its disk may have much to do.
    let answers = pairs.has_lease(now, server, config.server_lease_ttl);
    if learner.is_failing(now, if answers { PATIENCE } else { config.member_timeout }) {
        return Learning::Failed(server);
    }
    if let Some(synced) = log.members.learnt(server)
        && synced >= learner.end()
        && synced.0 + NEARLY >= last.0
    {
        log.members.count(server, last);
        return Learning::Counts(server);
    }
    match log.members.is_one(server, committed, pairs, now, config) {
        true => Learning::Done(server),
        false => Learning::GoesOn,
    }
}
