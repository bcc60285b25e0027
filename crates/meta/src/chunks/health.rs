//! What this server knows of the data servers: who answers, who is lost, who said that a replica is damaged.

use crate::config::Config;
use bearing_proto::data::{DataBody, DataError};
use bearing_types::{ChunkId, Mono, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often data servers are asked for their space.
const PING_EVERY: Duration = Duration::from_secs(1);
/// A data server that was silent for so long gets no new chunks.
const PING_LOST: Duration = Duration::from_secs(3);

/// A copy for which no source had what was needed is tried again after so long.
const COPY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Room is short where this part of what chunks use is more than what is free.
const SHORT_PART: u64 = 8;

/// A server at which more waits than this, and so many times what waits at the middle one, is congested.
const CONGESTED_MIN: u64 = 16 << 20;
const CONGESTED_TIMES: u64 = 4;

/// Chunks of one server that are remembered as told of their seals.
const TOLD_MAX: usize = 64 << 10;

/// One data server.
#[derive(Debug)]
pub(crate) struct DataServer {
    /// It leaves: it gets no chunk more, and what it holds shall be held by others.
    leaves: bool,
    pinged: Option<Mono>,
    /// When it last said anything; before that, when it became known.
    heard: Mono,
    /// It answered a ping, whatever it said.
    answered: bool,
    /// Since when it says that its disk failed.
    failing: Option<Mono>,
    /// When it last said that it takes appends.
    takes: Option<Mono>,
    used: u64,
    free: u64,
    /// What it lies on, if that is known.
    filesystem: Option<u64>,
    /// What it drew at its last start.
    life: Option<u64>,
    /// Bytes that wait there for its disk or for others, as of its last answer.
    waiting: u64,
    /// Chunks of which it says that its replica is damaged.
    damaged: BTreeSet<ChunkId>,
    /// Chunks that it was asked for and does not hold, or not all of.
    missing: BTreeSet<ChunkId>,
    /// Chunks of which it heard that they are sealed while another of their servers was away.
    told: BTreeSet<ChunkId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Health {
    servers: BTreeMap<ServerId, DataServer>,
    /// Those that take appends.
    pub takers: Vec<ServerId>,
    answering: BTreeSet<ServerId>,
    lost: BTreeSet<ServerId>,
    /// No further copy may be begun for now.
    pub copies_full: bool,
    room_short: bool,
    /// Chunks whose last copy failed for want of a good source, and when.
    refused: BTreeMap<ChunkId, Mono>,
    /// Chunks whose compaction was called off, and when.
    called_off: BTreeMap<ChunkId, Mono>,
}

impl Health {
    /// These are the cluster's data servers, and whether each leaves.
    pub fn servers_are(&mut self, now: Mono, servers: BTreeMap<ServerId, bool>) {
        self.servers.retain(|server, _| servers.contains_key(server));
        for (server, leaves) in servers {
            let state = self.servers.entry(server).or_insert_with(|| DataServer {
                leaves,
                pinged: None,
                heard: now,
                answered: false,
                failing: None,
                takes: None,
                used: 0,
                free: 0,
                filesystem: None,
                life: None,
                waiting: 0,
                damaged: BTreeSet::new(),
                missing: BTreeSet::new(),
                told: BTreeSet::new(),
            });
            state.leaves = leaves;
            self.takers.retain(|taker| *taker != server || !leaves);
        }
    }

    /// Bytes used and free on all servers. What is free on a filesystem is free once, however many servers
    /// lie on it; and where a server leaves, nothing is.
    pub fn space(&self) -> (u64, u64) {
        let mut used: u64 = 0;
        let mut alone: u64 = 0;
        let mut shared: BTreeMap<u64, u64> = BTreeMap::new();
        for state in self.servers.values() {
            used = used.saturating_add(state.used);
            match state.filesystem {
                _ if state.leaves => {}
                // They looked one after the other; the later ones saw what the earlier ones did.
                Some(filesystem) => {
                    let free = shared.entry(filesystem).or_insert(state.free);
                    *free = state.free.min(*free);
                }
                None => alone = alone.saturating_add(state.free),
            }
        }
        (used, shared.into_values().fold(alone, u64::saturating_add))
    }

    /// Judges who lives. Gives those that are to be pinged.
    pub fn look(&mut self, now: Mono, config: &Config) -> Vec<ServerId> {
        let mut due = Vec::new();
        let Health { servers, takers, answering, lost, refused, called_off, room_short, .. } = self;
        refused.retain(|_, at| now.since(*at) < COPY_AGAIN_AFTER);
        called_off.retain(|_, at| now.since(*at) < COPY_AGAIN_AFTER);
        takers.clear();
        answering.clear();
        lost.clear();
        *room_short = false;
        for (server, state) in servers {
            if state.pinged.is_none_or(|pinged| now.since(pinged) >= PING_EVERY) {
                state.pinged = Some(now);
                due.push(*server);
            }
            if !state.leaves && state.takes.is_some_and(|answered| now.since(answered) < PING_LOST) {
                takers.push(*server);
                *room_short |= state.free < state.used / SHORT_PART;
            }
            let silent = now.since(state.heard);
            if silent >= config.lost_timeout
                || state.failing.is_some_and(|since| now.since(since) >= config.lost_timeout)
            {
                lost.insert(*server);
            }
            if silent < PING_LOST {
                answering.insert(*server);
            }
        }
        due
    }

    /// This server was stopped: it could hear nobody.
    pub fn stopped(&mut self, now: Mono) {
        self.servers.values_mut().for_each(|state| state.heard = now);
    }

    /// A server said something.
    pub fn heard(&mut self, now: Mono, server: ServerId) {
        if let Some(state) = self.servers.get_mut(&server) {
            state.heard = now;
            self.answering.insert(server);
            if state.failing.is_none() {
                self.lost.remove(&server);
            }
        }
    }

    /// A server answered a ping.
    pub fn pong(&mut self, now: Mono, server: ServerId, result: &Result<DataBody, DataError>) {
        self.heard(now, server);
        let Some(state) = self.servers.get_mut(&server) else { return };
        state.answered = true;
        state.failing = match result {
            Err(DataError::Failed) => state.failing.or(Some(now)),
            Ok(_) | Err(_) => None,
        };
        match result {
            Ok(DataBody::Space { used, free, filesystem, damaged, life, waiting }) => {
                (state.takes, state.used, state.free) = (Some(now), *used, *free);
                state.filesystem = *filesystem;
                state.life = Some(*life);
                state.waiting = *waiting;
                state.damaged = damaged.iter().copied().collect();
                if !state.leaves && !self.takers.contains(&server) {
                    self.takers.push(server);
                    self.takers.sort();
                }
            }
            Ok(_) => {}
            // It answers, but takes no appends.
            Err(_) => {
                state.takes = None;
                self.takers.retain(|known| *known != server);
            }
        }
    }

    /// Whether a server has said a short while ago that it takes appends: the last ping, or the one before.
    pub fn took_lately(&self, now: Mono, server: ServerId) -> bool {
        let takes = self.servers.get(&server).and_then(|state| state.takes);
        takes.is_some_and(|takes| now.since(takes) < PING_EVERY * 3 / 2)
    }

    /// All servers that have answered a ping, and what they drew at their last start.
    pub fn lives(&self) -> impl Iterator<Item = (ServerId, u64)> {
        self.servers.iter().filter_map(|(server, state)| Some((*server, state.life?)))
    }

    /// See [`Health::lives`].
    pub fn life(&self, server: ServerId) -> Option<u64> {
        self.servers.get(&server).and_then(|state| state.life)
    }

    /// A server does not hold what it should of a chunk.
    pub fn set_missing(&mut self, server: ServerId, chunk: ChunkId) {
        if let Some(state) = self.servers.get_mut(&server) {
            state.missing.insert(chunk);
        }
    }

    /// It does after all.
    pub fn set_there(&mut self, server: ServerId, chunk: ChunkId) {
        if let Some(state) = self.servers.get_mut(&server) {
            state.missing.remove(&chunk);
        }
    }

    /// What was known of a server's replica does not hold any more: it is gone, or whole.
    pub fn set_fresh(&mut self, server: ServerId, chunk: ChunkId) {
        if let Some(state) = self.servers.get_mut(&server) {
            state.missing.remove(&chunk);
            state.damaged.remove(&chunk);
        }
    }

    /// A server was told that a chunk is sealed, and has said what it holds of it.
    pub fn set_told(&mut self, server: ServerId, chunk: ChunkId) {
        let Some(state) = self.servers.get_mut(&server) else { return };
        if state.told.len() >= TOLD_MAX {
            state.told.pop_first();
        }
        state.told.insert(chunk);
    }

    /// Whether it was so. When too many are away for too long, some are told more than once.
    pub fn was_told(&self, server: ServerId, chunk: ChunkId) -> bool {
        self.servers.get(&server).is_some_and(|state| state.told.contains(&chunk))
    }

    /// A copy failed for want of a good source.
    pub fn set_refused(&mut self, now: Mono, chunk: ChunkId) {
        self.refused.insert(chunk, now);
    }

    /// Whether that was so a moment ago.
    pub fn was_refused(&self, chunk: ChunkId) -> bool {
        self.refused.contains_key(&chunk)
    }

    /// A compaction was called off.
    pub fn set_called_off(&mut self, now: Mono, chunk: ChunkId) {
        self.called_off.insert(chunk, now);
    }

    /// Whether that was so a moment ago.
    pub fn was_called_off(&self, chunk: ChunkId) -> bool {
        self.called_off.contains_key(&chunk)
    }

    /// Somebody became known a moment ago and may answer its first ping yet.
    pub fn awaits_any(&self, now: Mono) -> bool {
        self.servers.values().any(|state| !state.answered && now.since(state.heard) < PING_LOST)
    }

    pub fn answers(&self, server: ServerId) -> bool {
        self.answering.contains(&server)
    }

    /// Silent, or with a failed disk, for so long that what it holds does not count any more, or no server of
    /// this cluster at all.
    pub fn is_lost(&self, server: ServerId) -> bool {
        self.lost.contains(&server) || self.is_unknown(server)
    }

    /// It was taken out of the cluster. Nobody is, as long as the servers are not known.
    pub fn is_unknown(&self, server: ServerId) -> bool {
        !self.servers.is_empty() && !self.servers.contains_key(&server)
    }

    /// What it holds is to be held by others.
    pub fn leaves(&self, server: ServerId) -> bool {
        self.servers.get(&server).is_some_and(|state| state.leaves)
    }

    /// Bytes used and free on a server, as it said last.
    pub fn space_of(&self, server: ServerId) -> (u64, u64) {
        self.servers.get(&server).map_or((0, 0), |state| (state.used, state.free))
    }

    pub fn is_damaged(&self, server: ServerId, chunk: ChunkId) -> bool {
        let state = self.servers.get(&server);
        state.is_some_and(|state| state.damaged.contains(&chunk) || state.missing.contains(&chunk))
    }

    /// Whether some server that takes appends has little room left.
    pub fn is_room_short(&self) -> bool {
        self.room_short
    }

    /// Whether much more waits at a server than at most others that take appends: its disk is slow, or the
    /// way to it full. Those that write elsewhere finish earlier (Sinbad).
    pub fn is_congested(&self, server: ServerId) -> bool {
        let waiting = |server: &ServerId| self.servers.get(server).map_or(0, |state| state.waiting);
        let mut all: Vec<u64> = self.takers.iter().map(waiting).collect();
        all.sort_unstable();
        let median = all.get(all.len() / 2).copied().unwrap_or(0);
        waiting(&server) > CONGESTED_MIN.max(median.saturating_mul(CONGESTED_TIMES))
    }

    /// Room on a server that takes appends.
    pub fn room(&self, server: ServerId) -> u64 {
        self.servers.get(&server).map_or(0, |state| state.free)
    }
}
