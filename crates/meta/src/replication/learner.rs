//! A server that is becoming a member of a tablet, as the tablet's owner sees it.
//!
//! It gets a snapshot, part by part, read from the owner's store while the tablet is served; then all entries
//! from the snapshot's base on, which the owner keeps for it. When it has nearly all of them it counts, and
//! when it has all that is committed the owner asks the coordinator to make it a member.

use crate::event::LoadTicket;
use crate::record::{EntryKind, LogEntry, LoggedChange};
use bearing_proto::replication::{EntryBytes, SnapshotPart};
use bearing_seams::Pair;
use bearing_types::{Epoch, LogIndex, Mono, ServerId, TabletSerial};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of pairs in a part, about.
const PART_BYTES: usize = 256 << 10;
/// A learner for which more bytes of entries have to be kept does not keep up.
const TAIL_BYTES_MAX: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Learner {
    pub server: ServerId,
    /// The epoch under which it became one: names its snapshot.
    pub snapshot: Epoch,
    stage: Stage,
    /// It has, or the snapshot brings it, all up to this entry; `None` before that is begun.
    base: Option<LogIndex>,
    /// What the store was up to when the newest part was read.
    end: LogIndex,
    /// The part that is being read, or on its way.
    number: u32,
    /// The last key of the part before it.
    after: Option<Vec<u8>>,
    /// The entries behind the base.
    tail: VecDeque<Vec<u8>>,
    tail_bytes: usize,
    /// Bytes of parts that were read.
    bytes_read: u64,
    /// Since when it has not got on.
    moved: Mono,
    /// It was restarted, and what it had of the snapshot is void.
    has_lost: bool,
}

#[derive(Debug)]
enum Stage {
    /// The next part is to be read.
    Waiting,
    Reading(LoadTicket),
    Sent {
        entry: Vec<u8>,
        last_key: Option<Vec<u8>>,
        last: bool,
        at: Mono,
    },
    /// It has all parts.
    There,
}

/// A part of a snapshot.
pub(crate) struct Part {
    /// Its bytes.
    pub entry: Vec<u8>,
    pub last_key: Option<Vec<u8>>,
    /// No further one follows.
    pub last: bool,
}

/// Makes a part of pairs that were read, of which at most so many were asked for. What is too much for a part
/// is left out.
pub(crate) fn part_of(mut pairs: Vec<Pair>, count_max: usize, first: bool) -> Part {
    let mut bytes = 0;
    let whole = pairs.iter().position(|(key, value)| {
        bytes += key.len() + value.len();
        bytes >= PART_BYTES
    });
    let cut = whole.map(|place| place + 1).filter(|count| *count < pairs.len());
    let last = cut.is_none() && pairs.len() < count_max;
    pairs.truncate(cut.unwrap_or(pairs.len()));
    let last_key = pairs.last().map(|(key, _)| key.clone());
    let changes = pairs.into_iter().map(|(key, value)| LoggedChange { key, value: Some(value) });
    let entry = LogEntry { kind: EntryKind::Part { first, last }, changes: changes.collect() }.encode();
    Part { entry, last_key, last }
}

impl Learner {
    /// One that has nothing yet.
    pub fn new(server: ServerId, snapshot: Epoch, now: Mono) -> Learner {
        Learner {
            server,
            snapshot,
            stage: Stage::Waiting,
            base: None,
            end: LogIndex::ZERO,
            number: 0,
            after: None,
            tail: VecDeque::new(),
            tail_bytes: 0,
            bytes_read: 0,
            moved: now,
            has_lost: false,
        }
    }

    /// The entry before those that are kept for it; `None` when its snapshot is not begun.
    pub fn base(&self) -> Option<LogIndex> {
        self.base
    }

    /// No part has anything behind this entry.
    pub fn end(&self) -> LogIndex {
        self.end
    }

    /// Whether it has all parts.
    pub fn has_snapshot(&self) -> bool {
        matches!(self.stage, Stage::There)
    }

    /// Parts that it has, and the bytes that were read of it, with a part that is on its way.
    pub fn progress(&self) -> (u32, u64) {
        (self.number, self.bytes_read)
    }

    /// Entries that are kept for it.
    pub fn tail_len(&self) -> usize {
        self.tail.len()
    }

    /// A part of its snapshot cannot be read.
    pub fn give_up(&mut self) {
        self.has_lost = true;
    }

    /// Whether it has to be given up.
    pub fn is_failing(&self, now: Mono, timeout: Duration) -> bool {
        let silent = matches!(self.stage, Stage::Sent { .. }) && now.since(self.moved) >= timeout;
        silent || self.has_lost || self.tail_bytes > TAIL_BYTES_MAX
    }

    // --- the tail ---

    /// The snapshot begins; behind its base are these entries so far.
    pub fn begin(&mut self, base: LogIndex, entries: Vec<Vec<u8>>) {
        self.base = Some(base);
        self.tail_bytes = entries.iter().map(Vec::len).sum();
        self.tail = entries.into();
    }

    /// Keeps an entry that is new.
    pub fn keep(&mut self, index: LogIndex, bytes: Vec<u8>) {
        let Some(base) = self.base else { return };
        debug_assert_eq!(index.0, base.0 + 1 + self.tail.len() as u64, "entries follow each other");
        self.tail_bytes += bytes.len();
        self.tail.push_back(bytes);
    }

    /// It has synced everything up to an entry, and that is committed: nothing replaces it any more.
    pub fn trim(&mut self, up_to: LogIndex) {
        let Some(base) = &mut self.base else { return };
        while *base < up_to {
            let Some(bytes) = self.tail.pop_front() else { return };
            self.tail_bytes -= bytes.len();
            *base = base.next();
        }
    }

    /// What is kept behind an entry.
    pub fn tail_after(&self, after: LogIndex) -> impl Iterator<Item = (LogIndex, &[u8])> + '_ {
        let base = self.base.unwrap_or(after);
        let skipped = after.0.saturating_sub(base.0);
        let first = base.0 + 1 + skipped;
        let later = self.tail.iter().skip(skipped as usize).enumerate();
        later.map(move |(place, bytes)| (LogIndex(first + place as u64), &bytes[..]))
    }

    // --- the parts ---

    /// Where the next part begins, if it may be read now.
    pub fn next_part(&mut self, ticket: LoadTicket) -> Option<Vec<u8>> {
        if !matches!(self.stage, Stage::Waiting) {
            return None;
        }
        self.stage = Stage::Reading(ticket);
        let mut from = self.after.clone().unwrap_or_default();
        if self.after.is_some() {
            from.push(0);
        }
        Some(from)
    }

    /// Whether the store is being read for it.
    pub fn is_reading(&self, ticket: LoadTicket) -> bool {
        matches!(self.stage, Stage::Reading(reading) if reading == ticket)
    }

    /// What was read: up to `count_max` pairs, of a store that was up to an entry. Gives the bytes of the
    /// part.
    pub fn read(&mut self, pairs: Vec<Pair>, count_max: usize, stored: LogIndex, now: Mono) -> usize {
        let Part { entry, last_key, last } = part_of(pairs, count_max, self.number == 0);
        let bytes = entry.len();
        self.bytes_read += bytes as u64;
        (self.end, self.moved) = (self.end.max(stored), now);
        self.stage = Stage::Sent { entry, last_key, last, at: now };
        bytes
    }

    /// The part that is on its way, to be sent under an epoch.
    pub fn part(&self, serial: TabletSerial, epoch: Epoch) -> Option<SnapshotPart> {
        let (Stage::Sent { entry, .. }, Some(base)) = (&self.stage, self.base) else { return None };
        let (snapshot, end, number) = (self.snapshot, self.end, self.number);
        Some(SnapshotPart { serial, epoch, snapshot, base, end, number, entry: EntryBytes(entry.clone()) })
    }

    /// Whether the part is to be sent again.
    pub fn is_part_due(&mut self, now: Mono, pause: Duration) -> bool {
        match &mut self.stage {
            Stage::Sent { at, .. } if now.since(*at) >= pause => {
                *at = now;
                true
            }
            _ => false,
        }
    }

    /// It has synced so many parts. Whether these are all.
    pub fn on_parts(&mut self, parts: u32, now: Mono) -> bool {
        let Stage::Sent { last_key, last, .. } = &mut self.stage else { return false };
        self.has_lost |= parts == 0;
        if parts != self.number + 1 {
            return false;
        }
        (self.number, self.moved) = (parts, now);
        self.after = last_key.take().or(self.after.take());
        let last = *last;
        self.stage = Stage::Waiting;
        last
    }

    /// It has all parts.
    pub fn is_there(&mut self, now: Mono) {
        (self.stage, self.moved) = (Stage::There, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    #[test]
    fn one_that_has_lost_the_parts_that_it_had_is_given_up_at_once() {
        let now = Mono(1_000_000_000);
        let mut learner = Learner::new(ServerId(2), Epoch(7), now);
        learner.begin(LogIndex(5), Vec::new());
        let pair = |key: u8| (vec![key], vec![key]);
        for part in 0..2 {
            let ticket = LoadTicket(u64::from(part));
            assert!(learner.next_part(ticket).is_some() && learner.is_reading(ticket));
            learner.read(vec![pair(2 * part), pair(2 * part + 1)], 2, LogIndex(5), now);
            if part == 0 {
                assert!(!learner.on_parts(1, now), "more follow");
            }
        }
        assert!(!learner.on_parts(1, now) && !learner.is_failing(now, TIMEOUT), "that was said before");
        assert!(!learner.on_parts(0, now) && learner.is_failing(now, TIMEOUT));
    }
}
