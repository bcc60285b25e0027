//! Entries on their way between servers: an owner sends what it logs to the tablet's members and hears how
//! far they have it; a member logs what it is sent. One message a step and server, in either direction;
//! without entries it is a beacon, by which leases are kept.

use crate::engine::adopt::Adoption;
use crate::engine::machine::MetaServer;
use crate::event::{AppendNumber, Command, Note};
use crate::mutant::Mutant;
use crate::record::LogEntry;
use crate::replication::{Answer, Copy, Log, Pairs};
use crate::tablet::Tablet;
use bearing_proto::replication::{
    Append, Entries, EntryBytes, Held, PartsHeld, Progress, ReplicationMessage,
};
use bearing_types::{LogIndex, Mono, Now, Position, ServerId, TabletSerial};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a member lacks is sent again after this pause at the earliest: the rest may be on its way.
const LACKING_PAUSE: Duration = Duration::from_millis(5);
/// An owner whose log has not got on for so long leaves its tablets to others.
const STUCK: Duration = Duration::from_secs(1);

/// A message that has so many bytes of entries and parts gets no more of them. A packet takes 8 MiB, and the
/// largest entry has 6.3 MB.
const PIECE_BYTES: usize = 512 << 10;

/// What is to be sent at the end of a step.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    appends: BTreeMap<ServerId, Append>,
    answers: BTreeMap<ServerId, Held>,
}

impl MetaServer {
    // --- sending ---

    /// Sends on what this step has logged, and what others are owed. `from` is where the step's commands
    /// begin.
    pub(crate) fn send_entries(&mut self, now: Now, from: usize, out: &mut Vec<Command>) {
        for command in &out[from..] {
            if let Command::Digest(serial, index) = command {
                self.compares.begin(*serial, *index);
            }
            let Command::Append(_, record) = command else { continue };
            self.appending.insert(record.serial);
            let Some(log) = owned(&mut self.tablets, &mut self.adoptions, &self.starts, record.serial) else {
                continue;
            };
            if record.index == LogIndex::ZERO || record.epoch != log.epoch() || log.members.is_empty() {
                continue;
            }
            log.members.sent(now.mono, record.index, log.committed());
            for server in log.members.servers() {
                let append = self.outgoing.append_to(&self.pairs, now, server);
                add_entry(append, log, server, record.index, record.bytes.clone());
            }
        }
        self.stuck_since = match self.appending.is_empty() {
            true => None,
            false => self.stuck_since.or(Some(now.mono)),
        };
        let appends = std::mem::take(&mut self.outgoing.appends);
        // Entries are heard as beacons are. They are sent again when this server's log goes on.
        let appends = if self.is_stuck(now) { BTreeMap::new() } else { appends };
        for (server, append) in appends {
            let pieces = pieces(append).into_iter().map(ReplicationMessage::Append);
            out.extend(pieces.map(|piece| Command::Replication(server, piece)));
        }
        for (server, held) in std::mem::take(&mut self.outgoing.answers) {
            // How the pair stands now, not when the first word was added.
            let Held { life, stamp, term, .. } = self.pairs.answer(server);
            let held = Held { life, stamp, term, clock_off: self.clock_off, ..held };
            out.push(Command::Replication(server, ReplicationMessage::Held(held)));
        }
    }

    /// Beacons, and what members are owed again.
    pub(crate) fn beacon(&mut self, now: Now) {
        if now.mono < self.next_beacon || self.failed {
            return;
        }
        self.next_beacon = now.mono.after(self.config.beacon_interval);
        self.partners = self.find_partners();
        if self.is_stuck(now) {
            return;
        }
        for server in &self.partners {
            self.outgoing.append_to(&self.pairs, now, *server);
        }
        let serials: Vec<TabletSerial> = self.starts.keys().copied().collect();
        for serial in serials {
            self.tell_progress(now, serial);
        }
    }

    pub(crate) fn find_partners(&self) -> Vec<ServerId> {
        let logs = self.tablets.values().map(|tablet| &tablet.log);
        let logs = logs.chain(self.adoptions.values().map(|adoption| &adoption.log));
        let members = logs.flat_map(|log| log.members.servers());
        let mut partners: Vec<ServerId> = members.chain(self.candidates()).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    fn tell_progress(&mut self, now: Now, serial: TabletSerial) {
        let (pause, pairs) = (self.config.resend_interval, &self.pairs);
        let Some(log) = owned(&mut self.tablets, &mut self.adoptions, &self.starts, serial) else { return };
        let told = log.members.untold(now.mono, pairs, log.committed(), pause);
        let progress = Progress { serial, epoch: log.epoch(), index: log.committed() };
        for server in told {
            self.outgoing.append_to(pairs, now, server).commits.push(progress);
        }
        for (server, after) in log.members.lagging(now.mono, pause) {
            resend(self.outgoing.append_to(pairs, now, server), log, server, after);
        }
    }

    /// What follows the snapshot goes to the tablet's learner.
    pub(crate) fn send_tail(&mut self, now: Now, start: Position, to: ServerId) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let Some(base) = tablet.log.learner.as_ref().and_then(|learner| learner.base()) else { return };
        resend(self.outgoing.append_to(&self.pairs, now, to), &tablet.log, to, base);
    }

    /// Whether nothing that this server logged was synced for so long that others do better without it.
    pub(crate) fn is_stuck(&self, now: Now) -> bool {
        self.stuck_since.is_some_and(|since| now.mono.since(since) >= STUCK)
    }

    // --- what comes ---

    pub(crate) fn on_replication(
        &mut self,
        now: Now,
        from: ServerId,
        message: ReplicationMessage,
        out: &mut Vec<Command>,
    ) {
        match message {
            ReplicationMessage::Append(append) => self.on_append(now, from, append, out),
            ReplicationMessage::Held(held) => self.on_held(now, from, held, out),
        }
    }

    fn on_append(&mut self, now: Now, from: ServerId, append: Append, out: &mut Vec<Command>) {
        // Before the registers are known, nobody can be told from who owned something once.
        if self.startup.version == 0 || !self.disk.is_ours() {
            return;
        }
        self.pairs.on_append(now.mono, from, &append);
        self.outgoing.answers.entry(from).or_default();
        for mut entries in append.entries {
            if self.config.planted(Mutant::AdoptWithoutCutting) {
                entries.entries.iter_mut().for_each(|entry| LogEntry::plain_epoch(&mut entry.0));
            }
            let answer = self.on_entries(from, &entries, out);
            self.outgoing.answer(from, answer);
        }
        for progress in append.commits {
            let answer = match self.copies.get_mut(&progress.serial) {
                Some(copy) => copy.on_committed(progress.epoch, progress.index),
                None => self.without_copy(progress),
            };
            self.outgoing.answer(from, answer);
        }
        append.parts.iter().for_each(|part| self.on_snapshot_part(from, part, out));
        append.yields.into_iter().for_each(|yielded| self.on_yield(from, yielded, out));
    }

    fn on_entries(&mut self, from: ServerId, entries: &Entries, out: &mut Vec<Command>) -> Answer {
        let serial = entries.serial;
        // Somebody else owns it by now.
        let serving = self.starts.get(&serial).and_then(|start| self.tablets.get(start));
        let serves_on = serving.is_some_and(|tablet| self.serves_on(tablet));
        if self.owned(serial).is_some_and(|log| log.epoch() < entries.epoch) && !serves_on {
            self.leave(serial, false, out);
            self.startup.want_map();
        }
        let new = entries.first == LogIndex(1) && entries.index == entries.first;
        let mine = self.starts.contains_key(&serial);
        // Of what was here once, the first entries come late: they are no copy of it.
        let was_here = self.disk.dropped.contains(&serial) || self.disk.gaps.contains_key(&serial);
        if new && !mine && !was_here && !self.copies.contains_key(&serial) {
            // Nor of what belongs to others by now, whose owner this server may have told so.
            let mut registers = self.startup.registers.values().map(|(_, assigned)| assigned);
            let over = registers.any(|assigned| assigned.serial == serial && assigned.epoch > entries.epoch);
            if over {
                return Answer::Refused(Progress { serial, epoch: entries.epoch, index: LogIndex::ZERO });
            }
            out.push(Command::CreateTablet(serial));
            self.copies.insert(serial, Copy::new(Log::empty(serial), None));
        }
        let Some(copy) = self.copies.get_mut(&serial) else {
            let progress = Progress { serial, epoch: entries.epoch, index: LogIndex::ZERO };
            return self.without_copy(progress);
        };
        // Clients may be about to ask this server who owns it.
        if copy.is_news(entries.epoch) {
            self.startup.want_map();
        }
        let early = self.config.planted(Mutant::AcknowledgeBeforeSync);
        match copy.on_entries(from, entries, &mut self.appends, out) {
            Ok(Answer::Synced(synced)) if early => {
                Answer::Synced(Progress { index: copy.log.last(), ..synced })
            }
            Ok(answer) => answer,
            Err(error) => {
                out.push(Command::Note(Note::Damaged(format!("an entry of {serial} from {from}: {error}"))));
                Answer::Refused(Progress { serial, epoch: entries.epoch, index: LogIndex::ZERO })
            }
        }
    }

    /// What an owner is told about a tablet that is not held for it.
    fn without_copy(&mut self, progress: Progress) -> Answer {
        match self.owned(progress.serial) {
            Some(log) => Answer::Refused(Progress { epoch: log.epoch(), ..progress }),
            None => Answer::Lacking(Progress { index: LogIndex::ZERO, ..progress }),
        }
    }

    fn on_held(&mut self, now: Now, from: ServerId, mut held: Held, out: &mut Vec<Command>) {
        if self.config.planted(Mutant::LeaseFromReceipt) {
            held.stamp = now.mono.0;
        }
        let late = self.pairs.answered(from).is_some_and(|answered| held.stamp < answered.0);
        if late && self.config.planted(Mutant::LateStampRenews) {
            held.stamp = now.mono.0;
        }
        let relied = self.pairs.has_lease(now.mono, from, self.config.server_lease_ttl);
        // Of two answers to one message nobody knows which was given first.
        let later = self.pairs.answered(from).is_some_and(|answered| held.stamp > answered.0);
        let Some(newest) = self.pairs.on_held(from, &held) else { return };
        let term = newest.then_some(held.term);
        for progress in held.synced {
            let log = owned(&mut self.tablets, &mut self.adoptions, &self.starts, progress.serial);
            let Some(log) = log.filter(|log| log.epoch() == progress.epoch) else { continue };
            // What it had when the epoch began it may have to write again.
            let (first, synced) = (log.first_for(from), log.members.synced(from));
            if later && synced.is_some_and(|synced| synced >= first && progress.index < synced) {
                log.members.has_lost(from);
                continue;
            }
            let news = log.members.on_synced(now.mono, from, progress.index, (Mono(held.stamp), term));
            log.trim_tail();
            if news && let Some(after) = log.members.on_filled(now.mono, from) {
                resend(self.outgoing.append_to(&self.pairs, now, from), log, from, after);
            }
            if news {
                self.advance(now, progress.serial, out);
            }
        }
        for progress in held.lacking {
            let log = owned(&mut self.tablets, &mut self.adoptions, &self.starts, progress.serial);
            let Some(log) = log.filter(|log| log.epoch() == progress.epoch) else { continue };
            let (first, synced) = (log.first_for(from), log.members.synced(from));
            let had_more = synced.is_some_and(|synced| progress.index < synced);
            let lacks_more = progress.index.next() < first || had_more;
            if later && lacks_more {
                log.members.has_lost(from);
            }
            // One that has taken nothing of this epoch begins with its first entry, whatever it has.
            let begun = synced.is_none_or(|synced| synced >= first);
            let after = if begun { progress.index } else { progress.index.min(LogIndex(first.0 - 1)) };
            if !log.members.on_lacking(now.mono, from, LACKING_PAUSE) {
                continue;
            }
            if newest && !later && lacks_more {
                // It is asked: what it says to that is later than both answers.
                let (serial, epoch, index) = (progress.serial, progress.epoch, log.committed());
                let append = self.outgoing.append_to(&self.pairs, now, from);
                append.commits.push(Progress { serial, epoch, index });
                continue;
            }
            // It has all, and its log, that is cut, does not say under which epoch: only an entry does.
            if after == log.last() && !log.members.is_lost(from) {
                log.append(self.appends.next(), Vec::new(), out);
                out.push(Command::Note(Note::Step("an entry tells a member the epoch")));
            } else {
                resend(self.outgoing.append_to(&self.pairs, now, from), log, from, after);
            }
        }
        held.parts.into_iter().for_each(|parts| self.on_parts_held(now, from, parts, out));
        for progress in held.refused {
            if self.owned(progress.serial).is_some_and(|log| progress.epoch > log.epoch()) {
                self.startup.want_map();
            }
        }
        if !relied {
            let waiting = self.tablets.iter().filter(|(_, tablet)| !tablet.exit.is_empty());
            let waiting: Vec<Position> = waiting.map(|(start, _)| *start).collect();
            waiting.into_iter().for_each(|start| self.let_go(start, out));
        }
    }

    // --- what is synced ---

    /// What this server has appended up to a number is stable here.
    pub(crate) fn on_appended(&mut self, now: Now, number: AppendNumber, out: &mut Vec<Command>) {
        self.stuck_since = None;
        for serial in std::mem::take(&mut self.appending) {
            let synced = match self.copies.get_mut(&serial) {
                Some(copy) => {
                    if let (Some(answer), Some((sender, _))) = (copy.on_synced(number), copy.sender()) {
                        self.outgoing.answer(sender, answer);
                    }
                    if let Some(arrival) = &mut copy.arrival
                        && arrival.on_synced(number, out)
                        && let Some((sender, _)) = copy.sender()
                    {
                        out.push(Command::Note(Note::Step("a part is kept, not answered")));
                        let held = copy.arrival.as_ref().map(|arrival| arrival.held());
                        held.into_iter().for_each(|held| self.outgoing.answer_parts(sender, held));
                    }
                    if self.config.planted(Mutant::ApplyBeforeCommit) {
                        copy.log.commit(copy.log.synced());
                    }
                    if copy.log.gathered() >= self.config.apply_gathered_max {
                        copy.log.apply(out);
                    }
                    copy.log.is_synced()
                }
                None => {
                    let synced = self.owned(serial).is_none_or(|log| {
                        log.on_synced(number);
                        log.is_synced()
                    });
                    self.advance(now, serial, out);
                    synced
                }
            };
            if !synced {
                self.appending.insert(serial);
            }
        }
    }

    /// More of a tablet of this server's may be committed.
    fn advance(&mut self, now: Now, serial: TabletSerial, out: &mut Vec<Command>) {
        let Some(start) = self.starts.get(&serial).copied() else { return };
        if self.adoptions.contains_key(&start) {
            return self.advance_adoption(start, out);
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        tablet.commit(out);
        self.mark_outbox_committed(now, start, out);
        self.let_go(start, out);
    }
}

impl Outgoing {
    pub fn append_to(&mut self, pairs: &Pairs, now: Now, server: ServerId) -> &mut Append {
        self.appends.entry(server).or_insert_with(|| pairs.beacon(now.mono, server))
    }

    /// A part of a snapshot is there.
    pub fn answer_parts(&mut self, to: ServerId, held: PartsHeld) {
        self.answers.entry(to).or_default().parts.push(held);
    }

    /// A tablet is claimed: an answer that leaves from now on says so in its term, and would confirm it.
    pub fn confirm_no_more(&mut self, serial: TabletSerial) {
        self.answers.values_mut().for_each(|held| held.synced.retain(|synced| synced.serial != serial));
    }

    pub fn answer(&mut self, to: ServerId, answer: Answer) {
        let held = self.answers.entry(to).or_default();
        match answer {
            Answer::Synced(progress) => held.synced.push(progress),
            Answer::Lacking(progress) => held.lacking.push(progress),
            Answer::Refused(progress) => held.refused.push(progress),
        }
    }
}

/// The log of a tablet that this server owns, or is about to serve.
pub(crate) fn owned<'a>(
    tablets: &'a mut BTreeMap<Position, Tablet>,
    adoptions: &'a mut BTreeMap<Position, Adoption>,
    starts: &BTreeMap<TabletSerial, Position>,
    serial: TabletSerial,
) -> Option<&'a mut Log> {
    let start = starts.get(&serial)?;
    let served = tablets.get_mut(start).map(|tablet| &mut tablet.log);
    served.or_else(|| adoptions.get_mut(start).map(|adoption| &mut adoption.log))
}

/// Adds an entry, to those before it if it follows them.
fn add_entry(append: &mut Append, log: &Log, to: ServerId, index: LogIndex, bytes: Vec<u8>) {
    let serial = log.serial();
    let follows = |entries: &&mut Entries| {
        entries.serial == serial
            && entries.epoch == log.epoch()
            && entries.index.0 + entries.entries.len() as u64 == index.0
    };
    match append.entries.last_mut().filter(follows) {
        Some(entries) => entries.entries.push(EntryBytes(bytes)),
        None => append.entries.push(Entries {
            serial,
            epoch: log.epoch(),
            first: log.first_for(to),
            commit: log.committed(),
            index,
            entries: vec![EntryBytes(bytes)],
        }),
    }
}

/// A message as several that are not too large. What it says of progress comes last.
fn pieces(append: Append) -> Vec<Append> {
    let Append { life, stamp, answered, entries, commits, parts, yields } = append;
    let empty = || Append { life, stamp, answered, ..Append::default() };
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), empty(), 0);
    for Entries { serial, epoch, first, commit, index, entries } in entries {
        let mut group = Entries { serial, epoch, first, commit, index, entries: Vec::new() };
        for entry in entries {
            if bytes >= PIECE_BYTES {
                let next = LogIndex(group.index.0 + group.entries.len() as u64);
                let rest = Entries { serial, epoch, first, commit, index: next, entries: Vec::new() };
                let sent = std::mem::replace(&mut group, rest);
                piece.entries.extend(Some(sent).filter(|sent| !sent.entries.is_empty()));
                pieces.push(std::mem::replace(&mut piece, empty()));
                bytes = 0;
            }
            bytes += entry.0.len();
            group.entries.push(entry);
        }
        piece.entries.push(group);
    }
    for part in parts {
        if bytes >= PIECE_BYTES {
            pieces.push(std::mem::replace(&mut piece, empty()));
            bytes = 0;
        }
        bytes += part.entry.0.len();
        piece.parts.push(part);
    }
    (piece.commits, piece.yields) = (commits, yields);
    pieces.push(piece);
    pieces
}

/// Sends what follows an entry.
fn resend(append: &mut Append, log: &Log, to: ServerId, after: LogIndex) {
    for (index, bytes) in log.entries_for(to, after) {
        add_entry(append, log, to, index, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Epoch;

    #[test]
    fn a_message_that_is_too_large_goes_in_pieces_with_each_tablets_entries_in_order() {
        let entry = |number: u64, bytes: usize| (number, EntryBytes(vec![number as u8; bytes]));
        let group = |serial, index, entries: &[(u64, EntryBytes)]| Entries {
            serial: TabletSerial(serial),
            epoch: Epoch(2),
            first: LogIndex(3),
            commit: LogIndex(4),
            index: LogIndex(index),
            entries: entries.iter().map(|(_, bytes)| bytes.clone()).collect(),
        };
        let entries: Vec<Entries> = vec![
            group(1, 5, &[entry(5, 10), entry(6, 7 << 20), entry(7, 10)]),
            group(2, 8, &[entry(8, PIECE_BYTES / 2), entry(9, PIECE_BYTES / 2)]),
            group(3, 1, &[entry(1, 10)]),
        ];
        let progress = Progress { serial: TabletSerial(4), epoch: Epoch(1), index: LogIndex(1) };
        let append = Append { life: 1, stamp: 2, entries, commits: vec![progress], ..Append::default() };
        let pieces = pieces(append);
        let mut sent = Vec::new();
        for piece in &pieces {
            assert_eq!((piece.life, piece.stamp), (1, 2));
            for entries in &piece.entries {
                assert!(!entries.entries.is_empty() && entries.first == LogIndex(3));
                for (number, entry) in (entries.index.0..).zip(&entries.entries) {
                    assert_eq!(entry.0[0], number as u8);
                    sent.push((entries.serial.0, number));
                }
            }
        }
        assert_eq!(sent, [(1, 5), (1, 6), (1, 7), (2, 8), (2, 9), (3, 1)]);
        let commits: Vec<usize> = pieces.iter().map(|piece| piece.commits.len()).collect();
        assert_eq!(commits, [0, 0, 1], "with the last of three");
    }
}
