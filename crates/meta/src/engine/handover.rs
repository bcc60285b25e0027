//! Hand-over of a tablet between servers: stop, copy, compare-and-swap, refer. Nobody resumes an epoch: the
//! target serves under the next one, and so does the source if the target does not come round to it.

use crate::disk_space::Headroom;
use crate::engine::machine::MetaServer;
use crate::event::{AppendNumber, Command, LoadResult, LoadTicket, Note};
use crate::record::{KEYS_END, LogEntry, LoggedChange, RecoveredTablet, decode_pairs};
use crate::replication::{Copy, Log};
use crate::tablet::{Arriving, CopiedPart, Leaving, Phase, part_index};
use bearing_placement::Tablet;
use bearing_proto::peer::{PeerBody, PeerMessage};
use bearing_seams::{Change, KeyRange, LoggedRecord};
use bearing_types::{Block, LogIndex, Now, Position, ServerId};
use std::time::Duration;

/// A target that has not taken over after so long is given up.
const PATIENCE: Duration = Duration::from_secs(5);

impl MetaServer {
    // --- the source ---

    pub(crate) fn begin_hand_over(&mut self, now: Now, block: Block, to: ServerId, out: &mut Vec<Command>) {
        let start = block.start();
        let here = self
            .tablets
            .get(&start)
            .is_some_and(|tablet| tablet.block == block && matches!(tablet.phase, Phase::Serving))
            // One that has other members moves by these.
            && self.tablets.get(&start).is_some_and(|tablet| tablet.log.members.is_empty());
        if !here || to == self.id {
            return;
        }
        for id in self.jobs.of_tablet(start) {
            if let Some(job) = self.jobs.remove(id) {
                self.postpone(job, out);
            }
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        // Those that waited for locks are gone too.
        tablet.keys.forget_waiting();
        tablet.phase = Phase::Leaving(Leaving {
            to,
            since: now.mono,
            part: 0,
            after: None,
            pairs: None,
            last: false,
            loading: None,
            sent: now.mono,
        });
        tablet.log.apply(out);
        out.push(Command::Note(Note::Step("hand-over begins")));
        self.go_on_leaving(now, start, out);
    }

    /// Reads the next part once everything logged is in the store.
    pub(crate) fn go_on_leaving(&mut self, _now: Now, start: Position, out: &mut Vec<Command>) {
        let count_max = self.config.copy_pairs_max;
        let ticket = LoadTicket(self.next_load);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let settled = tablet.log.is_settled();
        let serial = tablet.serial;
        let Phase::Leaving(leaving) = &mut tablet.phase else { return };
        if !settled || leaving.pairs.is_some() || leaving.loading.is_some() || leaving.last {
            return;
        }
        let mut from = leaving.after.clone().unwrap_or_default();
        if leaving.after.is_some() {
            from.push(0);
        }
        leaving.loading = Some(ticket);
        self.next_load += 1;
        let range = (KeyRange { start: from, end: Some(KEYS_END.to_vec()) }, count_max);
        out.push(Command::Load { ticket, tablet: serial, keys: Vec::new(), ranges: vec![range] });
    }

    /// Whether the load was one of a leaving tablet.
    pub(crate) fn on_leaving_load(
        &mut self,
        now: Now,
        ticket: LoadTicket,
        loaded: &LoadResult,
        out: &mut Vec<Command>,
    ) -> bool {
        let count_max = self.config.copy_pairs_max;
        let mine =
            |phase: &Phase| matches!(phase, Phase::Leaving(leaving) if leaving.loading == Some(ticket));
        let Some(tablet) = self.tablets.values_mut().find(|tablet| mine(&tablet.phase)) else { return false };
        let start = tablet.block.start();
        if let Phase::Leaving(leaving) = &mut tablet.phase {
            let pairs = loaded.ranges.first().cloned().unwrap_or_default();
            leaving.loading = None;
            leaving.last = pairs.len() < count_max;
            leaving.pairs = Some(pairs);
        }
        self.send_copy(now, start, out);
        true
    }

    pub(crate) fn send_copy(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let (block, epoch, base) = (tablet.block, tablet.epoch(), tablet.log.last());
        let Phase::Leaving(leaving) = &mut tablet.phase else { return };
        let Some(pairs) = leaving.pairs.clone() else { return };
        leaving.sent = now.mono;
        let last = leaving.last;
        let body =
            PeerBody::Copy { tablet: block, epoch, number: leaving.part, pairs, base, last: leaving.last };
        out.push(Command::Peer(leaving.to, PeerMessage { from: start, to: start, epoch, body }));
        out.push(Command::Note(Note::Step(if last { "hand-over all sent" } else { "hand-over part sent" })));
    }

    pub(crate) fn on_copied(&mut self, now: Now, start: Position, number: u32, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Phase::Leaving(leaving) = &mut tablet.phase else { return };
        if number != leaving.part {
            return;
        }
        let Some(pairs) = leaving.pairs.take() else { return };
        leaving.part += 1;
        leaving.after = pairs.last().map(|(key, _)| key.clone()).or(leaving.after.take());
        self.go_on_leaving(now, start, out);
    }

    /// Repeats what was lost, and takes the tablet back from a target that does not answer.
    pub(crate) fn watch_leaving(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let resend = self.config.resend_interval;
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Phase::Leaving(leaving) = &tablet.phase else { return };
        let patient = now.mono.since(leaving.since) < PATIENCE;
        let resend_due = leaving.pairs.is_some() && now.mono.since(leaving.sent) >= resend;
        if patient {
            if resend_due {
                self.send_copy(now, start, out);
            }
            return;
        }
        let register = self.startup.registers.get(&start).cloned();
        let Some((version, assigned)) = register.filter(|(_, assigned)| assigned.owner == self.id) else {
            return;
        };
        if !self.claims.contains_key(&assigned.serial)
            && self.tablets.get(&start).is_some_and(|tablet| tablet.log.is_settled())
        {
            out.push(Command::Note(Note::Step("hand-over given up")));
            self.leave(assigned.serial, false, out);
            self.claim_own(&assigned, version, out);
        }
    }

    // --- the target ---

    pub(crate) fn on_copy(&mut self, from: Position, part: CopiedPart, out: &mut Vec<Command>) {
        let start = part.block.start();
        let registered = self.startup.registers.get(&start).map(|(_, assigned)| assigned.serial);
        let busy =
            registered.is_none_or(|serial| self.owned(serial).is_some() || self.claims.contains_key(&serial));
        if busy {
            return;
        }
        let known = self
            .arriving
            .get(&start)
            .is_some_and(|arriving| arriving.epoch == part.epoch && arriving.block == part.block);
        if !known {
            // What this server holds of the tablet is void from here on, so it has to know that the source's
            // epoch still stands: a part that the network kept until this server had taken over, and was
            // started again since, is of a hand-over that is long over.
            let stands = |assigned: &Tablet| assigned.block == part.block && assigned.epoch == part.epoch;
            let register = self.startup.registers.get(&start);
            if part.number != 0 || !register.is_some_and(|(_, assigned)| stands(assigned)) {
                return;
            }
            // Its source goes on with it.
            if self.headroom() != Headroom::Enough {
                return;
            }
            let block = part.block;
            let serial = registered.expect("looked up just now");
            self.remove_stored(serial, out);
            out.push(Command::CreateTablet(serial));
            let arriving = Arriving {
                block,
                serial,
                epoch: part.epoch,
                from,
                base: part.base,
                parts: 0,
                complete: false,
                unstable: Vec::new(),
            };
            self.arriving.insert(start, arriving);
        }
        if let Err(what) = decode_pairs(part.pairs.clone()) {
            // Its source goes on with it.
            if let Some(arriving) = self.arriving.remove(&start) {
                self.remove_stored(arriving.serial, out);
            }
            let what = format!("tablet {} as it arrives: {what}", part.block);
            return out.push(Command::Note(Note::Damaged(what)));
        }
        let number = self.next_append_number();
        let Some(arriving) = self.arriving.get_mut(&start) else { return };
        if part.number < arriving.parts {
            let stable = !arriving.unstable.iter().any(|(_, unstable, _)| *unstable == part.number);
            if stable {
                self.say_copied(start, part.number, out);
            }
            return;
        }
        if part.number > arriving.parts || arriving.complete {
            return;
        }
        arriving.parts += 1;
        arriving.complete = part.last;
        let changes: Vec<Change> =
            part.pairs.into_iter().map(|(key, value)| Change { key, value: Some(value) }).collect();
        let logged = changes
            .iter()
            .map(|change| LoggedChange { key: change.key.clone(), value: change.value.clone() });
        let entry = LogEntry { reset: part.number == 0, changes: logged.collect() };
        let index = part_index(arriving.base, part.number);
        let (serial, commit) = (arriving.serial, index);
        let record = LoggedRecord { serial, epoch: part.epoch, index, commit, bytes: entry.encode() };
        out.push(Command::Append(number, record));
        arriving.unstable.push((number, part.number, changes));
    }

    fn say_copied(&mut self, start: Position, number: u32, out: &mut Vec<Command>) {
        let Some(arriving) = self.arriving.get(&start) else { return };
        let (tablet, epoch, from) = (arriving.block, arriving.epoch, arriving.from);
        self.send_peer(start, from, PeerBody::Copied { tablet, epoch, number }, out);
    }

    /// Parts whose records are stable go into the store; after the last one the tablet is taken.
    pub(crate) fn parts_stable(&mut self, number: AppendNumber, out: &mut Vec<Command>) {
        let starts: Vec<Position> = self.arriving.keys().copied().collect();
        for start in starts {
            let Some(arriving) = self.arriving.get_mut(&start) else { continue };
            let (serial, base) = (arriving.serial, arriving.base);
            let (stable, unstable) = std::mem::take(&mut arriving.unstable)
                .into_iter()
                .partition(|(appended, ..)| *appended <= number);
            arriving.unstable = unstable;
            let stable: Vec<(AppendNumber, u32, Vec<Change>)> = stable;
            for (_, part, changes) in stable {
                out.push(Command::Apply(serial, part_index(base, part), changes));
                out.push(Command::Note(Note::Step("hand-over part kept, not answered")));
                self.say_copied(start, part, out);
            }
        }
    }

    /// Claims tablets that have arrived whole. The source's epoch must still stand.
    pub(crate) fn take_arrived(&mut self, out: &mut Vec<Command>) {
        let whole = |arriving: &Arriving| arriving.complete && arriving.unstable.is_empty();
        let whole = self.arriving.iter().filter(|(_, arriving)| whole(arriving));
        let arrived: Vec<Position> = whole.map(|(start, _)| *start).collect();
        for start in arrived {
            let register = self.startup.registers.get(&start).cloned();
            let epoch = self.arriving.get(&start).map(|arriving| arriving.epoch);
            let Some((version, assigned)) = register.filter(|(_, assigned)| Some(assigned.epoch) >= epoch)
            else {
                continue;
            };
            let Some(Arriving { serial, epoch, base, parts, .. }) = self.arriving.remove(&start) else {
                continue;
            };
            if assigned.epoch != epoch {
                self.remove_stored(serial, out);
                continue;
            }
            let last = LogIndex(part_index(base, parts).0 - 1);
            let found = RecoveredTablet { last, epoch, ..RecoveredTablet::nothing() };
            self.copies.insert(serial, Copy::new(Log::found(serial, found), None));
            out.push(Command::Note(Note::Step("hand-over taken")));
            self.claim_for_itself(assigned, version, out);
        }
    }
}
