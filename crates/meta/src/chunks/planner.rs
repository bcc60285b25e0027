//! What a chunk needs next, by its record and what is known of data servers.

use crate::chunks::health::Health;
use crate::config::Config;
use crate::record::ChunkRecord;
use bearing_types::{ChunkId, ServerId, Wall};
use std::time::Duration;

/// What a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Seal,
    Remove,
    Forget,
    Copy,
    Confirm,
    Scan,
    Make,
    Move,
}

/// What decides over that beside the record.
pub(crate) struct Planner<'a> {
    pub now: Wall,
    pub config: &'a Config,
    pub health: &'a Health,
    pub copies: usize,
}

impl Planner<'_> {
    pub fn is_bad(&self, server: ServerId, chunk: ChunkId) -> bool {
        self.health.is_lost(server) || self.health.is_damaged(server, chunk)
    }

    /// Replicas that count.
    pub fn good(&self, chunk: ChunkId, record: &ChunkRecord) -> Vec<ServerId> {
        let good = record.servers.iter().filter(|server| !self.is_bad(**server, chunk));
        good.copied().collect()
    }

    /// Whether a replica is to go when another one is there: what is lost or damaged before what is left.
    pub fn replaced(&self, record: &ChunkRecord, chunk: ChunkId, but: ServerId) -> Option<usize> {
        let others = || record.servers.iter().enumerate().filter(|(_, server)| **server != but);
        let bad = others().find(|(_, server)| self.is_bad(**server, chunk));
        bad.or_else(|| others().find(|(_, server)| self.health.leaves(**server))).map(|(place, _)| place)
    }

    /// Copies that a sealed chunk lacks. One without a byte needs none, and one on a server that leaves is
    /// to be made elsewhere.
    pub fn lacks(&self, chunk: ChunkId, record: &ChunkRecord) -> usize {
        match record.sealed {
            Some(length) if length > 0 && !record.deleting && !record.is_in_the_making() => {
                let good = self.good(chunk, record).into_iter();
                self.copies.saturating_sub(good.filter(|server| !self.health.leaves(*server)).count())
            }
            Some(_) | None => 0,
        }
    }

    /// Those that answer, the good ones first.
    pub fn sources(&self, chunk: ChunkId, record: &ChunkRecord) -> Vec<ServerId> {
        let answering = record.servers.iter().filter(|server| self.health.answers(**server));
        let mut sources: Vec<ServerId> = answering.copied().collect();
        sources.sort_by_key(|server| self.is_bad(*server, chunk));
        sources
    }

    /// A server for one more replica: the one with the most room.
    pub fn spare(&self, record: &ChunkRecord) -> Option<ServerId> {
        let free = |server: &&ServerId| {
            let known = record.servers.contains(server) || record.former.contains(server);
            !known && self.has_room(**server, record)
        };
        let takers = self.health.takers.iter().filter(free);
        takers.copied().max_by_key(|server| (self.health.room(*server), *server))
    }

    /// Whether a server can take a copy of the chunk. What it holds of it already is not counted.
    pub fn has_room(&self, server: ServerId, record: &ChunkRecord) -> bool {
        let length = record.sealed.unwrap_or(0);
        self.health.takers.contains(&server) && self.health.room(server) > 2 * length + BESIDES
    }

    /// Servers for a chunk of this length that is made of another: those for a new one, turned by its number.
    pub fn makers(&self, chunk: ChunkId, length: u64) -> Vec<ServerId> {
        let has_room = |server: &&ServerId| self.health.room(**server) > 2 * length + BESIDES;
        let takers = self.health.takers.iter().filter(has_room);
        let mut makers: Vec<ServerId> = takers.copied().collect();
        let turn = chunk.0 as usize % makers.len().max(1);
        makers.rotate_left(turn);
        makers.truncate(self.copies);
        makers
    }

    /// Whether a chunk should be compacted, by what is known since its last look.
    pub fn compact_due(&self, chunk: ChunkId, record: &ChunkRecord) -> bool {
        let length = record.sealed.unwrap_or(0);
        let sparse = self.is_settled(record)
            && length >= self.config.compact_bytes_min
            && record.live_frame_bytes.saturating_mul(2) < length;
        let worth = record.scanned.is_some() && record.live_frame_bytes > 0;
        worth
            && (sparse || self.is_torn(chunk, record))
            && record.compaction_target.is_none()
            && record.gather.is_none()
            && !self.health.copies_full
            && !self.health.was_called_off(chunk)
            && self.makers(chunk, record.live_frame_bytes).len() == self.copies
    }

    /// Whether there is nothing that a copy could be made of as a whole, only frames here and there.
    pub fn is_torn(&self, chunk: ChunkId, record: &ChunkRecord) -> bool {
        let nowhere_whole = || {
            self.lacks(chunk, record) > 0
                && (self.good(chunk, record).is_empty() || self.health.was_refused(chunk))
                && !self.can_copy(chunk, record)
        };
        !record.holes.is_empty() || nowhere_whole()
    }

    pub fn can_copy(&self, chunk: ChunkId, record: &ChunkRecord) -> bool {
        if !record.holes.is_empty() {
            return false;
        }
        let sources = self.sources(chunk, record);
        let damaged = |server: &ServerId| self.health.is_damaged(*server, chunk);
        match (sources.is_empty(), record.pending_replica) {
            (true, _) => false,
            (false, Some(_)) => true,
            (false, None) if self.health.copies_full || self.health.was_refused(chunk) => false,
            (false, None) if is_past_saving(record) && sources.iter().all(damaged) => false,
            (false, None) => {
                let droppable = |server: &ServerId| damaged(server) && self.has_room(*server, record);
                self.spare(record).is_some()
                    || (sources.iter().any(droppable) && !sources.iter().all(damaged))
            }
        }
    }

    /// What the chunk needs next, if anything that can be done now.
    pub fn wanted(&self, chunk: ChunkId, record: &ChunkRecord) -> Option<Need> {
        // One whose disk failed answers too, and removes nothing: what else the chunk needs does not wait for
        // it.
        let reachable = |server: &ServerId| {
            self.health.is_unknown(*server) || (self.health.answers(*server) && !self.health.is_lost(*server))
        };
        if record.deleting && self.is_kept(chunk, record) {
            return None;
        }
        if record.deleting {
            let holders = holders(record);
            return (holders.is_empty() || holders.iter().any(reachable)).then_some(Need::Remove);
        }
        let Some(_) = record.sealed else {
            let over = self.now >= record.opened.after(self.config.chunk_ttl);
            let lost = record.servers.iter().any(|server| self.health.is_lost(*server));
            let leaves = record.servers.iter().any(|server| self.health.leaves(*server));
            let mut answering = record.servers.iter().map(|server| self.health.answers(*server));
            // One that is away for a moment may have more than the others. For a finished chunk there is no
            // hurry.
            let due = match over || lost {
                true => answering.any(|answers| answers),
                false => (leaves || self.is_done(record)) && answering.all(|answers| answers),
            };
            return due.then_some(Need::Seal);
        };
        if record.is_in_the_making() {
            return Some(Need::Make);
        }
        let is_done_there = |server: &&ServerId| !(self.health.leaves(**server) && self.has_writer(record));
        if record.former.iter().filter(is_done_there).any(reachable) {
            return Some(Need::Forget);
        }
        self.wanted_besides(chunk, record)
    }

    /// Whether checkpoints of metadata may say yet that something lies in a chunk whose content was moved: it
    /// is kept until there are newer ones of all tablets, where room is not short and it is whole.
    fn is_kept(&self, chunk: ChunkId, record: &ChunkRecord) -> bool {
        let kept = self.config.checkpoint_interval * KEPT_INTERVALS;
        let is_whole = record.holes.is_empty() && self.good(chunk, record).len() == record.servers.len();
        record.moved.is_some_and(|moved| self.now < moved.after(kept))
            && is_whole
            && !self.health.is_room_short()
    }

    /// What a sealed chunk needs besides its removal at former servers.
    pub fn wanted_besides(&self, chunk: ChunkId, record: &ChunkRecord) -> Option<Need> {
        let lacks = self.lacks(chunk, record) > 0;
        if (lacks && self.can_copy(chunk, record)) || (!lacks && record.pending_replica.is_some()) {
            return Some(Need::Copy);
        }
        let answer = |server: &ServerId| self.health.answers(*server);
        let untold = |server: &ServerId| answer(server) && !self.health.was_told(*server, chunk);
        let all = !lacks && record.servers.iter().all(answer);
        if !record.confirmed && (all || record.servers.iter().any(untold)) {
            return Some(Need::Confirm);
        }
        if record.gather.is_some() {
            return Some(Need::Move);
        }
        // A scan closes the chunk: what its writer has decided in delegated directories, and has not sent
        // yet, would be lost.
        let is_decided = record.finished.is_some() || self.is_settled(record);
        let torn = record.scanned.is_none() && is_decided && self.is_torn(chunk, record);
        let due = record.compaction_target.is_none()
            && (torn || self.scan_due(record) || self.compact_due(chunk, record));
        // Nobody is asked what is in one without a byte: its servers may have left.
        let can_look = record.sealed == Some(0) || record.servers.iter().any(answer);
        (due && can_look).then_some(Need::Scan)
    }

    /// Whether it has had its time: to be scanned for the first time, and to be compacted, which is in vain
    /// while its files are about to drop the rest as well. Where room is short, the rest is not waited
    /// for. What its writer has decided in delegated directories may be on its way, and cannot be decided
    /// anew, until it says that it is done.
    pub fn is_settled(&self, record: &ChunkRecord) -> bool {
        let delay = self.config.scan_delay;
        match record.finished {
            Some(finished) => self.health.is_room_short() || self.now >= finished.at.after(delay),
            None => {
                self.now >= record.opened.after(self.config.chunk_ttl + self.config.writer_patience + delay)
            }
        }
    }

    /// Whether its writer may come yet to append to it. It would wait for a server that left; one that is
    /// there says that the chunk is sealed.
    pub fn has_writer(&self, record: &ChunkRecord) -> bool {
        record.finished.is_none() && self.now < record.opened.after(self.config.chunk_ttl)
    }

    /// Whether a chunk that is not sealed can be, for what its writer has said.
    pub fn is_done(&self, record: &ChunkRecord) -> bool {
        record.finished.is_some() && (self.is_settled(record) || is_dying(record))
    }

    pub fn scan_due(&self, record: &ChunkRecord) -> bool {
        let Some(scan) = record.scanned else { return self.is_settled(record) || is_dying(record) };
        let length = record.sealed.unwrap_or(0);
        let dead = match scan.live_bytes <= length / NEARLY_DEAD {
            true => is_nearly(record.dead_bytes, scan.live_bytes),
            false => record.dead_bytes.saturating_mul(4) >= scan.live_bytes,
        };
        let every = if is_past_saving(record) { SAVE_AGAIN } else { self.config.scan_interval };
        (dead && record.dead_bytes > 0) || self.now >= scan.at.after(every.min(self.config.scan_interval))
    }
}

/// The last look found that what is in use of it is damaged wherever it is.
pub(crate) fn is_past_saving(record: &ChunkRecord) -> bool {
    record.scanned.is_some() && record.live_frame_bytes == 0 && !record.deleting
}

/// Within so many intervals every tablet has stored another checkpoint.
const KEPT_INTERVALS: u32 = 2;

/// What was past saving is scanned again after so long: somebody who has it may be back.
pub(crate) const SAVE_AGAIN: Duration = Duration::from_secs(600);

/// What a chunk takes on a disk besides its bytes, with some to spare.
const BESIDES: u64 = 64 << 10;

/// Of what is nearly dead less than this part is in use.
pub(crate) const NEARLY_DEAD: u64 = 8;

pub(crate) fn is_nearly(dead: u64, all: u64) -> bool {
    dead >= all - all / NEARLY_DEAD
}

/// Whether files have dropped nearly all that its writer committed in it, by what is known without a usage
/// scan.
pub(crate) fn is_dying(record: &ChunkRecord) -> bool {
    let Some(finished) = record.finished.filter(|_| record.scanned.is_none()) else { return false };
    is_nearly(record.dead_bytes, finished.payload)
}

/// All servers that may hold something of it.
pub(crate) fn holders(record: &ChunkRecord) -> Vec<ServerId> {
    let all = record.servers.iter().chain(&record.former).chain(&record.pending_replica);
    let mut holders: Vec<ServerId> = all.copied().collect();
    holders.sort();
    holders.dedup();
    holders
}
