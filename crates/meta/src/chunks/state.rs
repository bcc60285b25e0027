//! What is known of one tablet's chunks, and what a job came to.

use super::Health;
use super::inventory::Inventory;
use bearing_proto::holders::Held;
use bearing_proto::tablets::ChunkTally;
use bearing_types::{ChunkId, Mono, Now, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Chunks on the list of a tablet.
pub(crate) const LISTED_MAX: usize = 1024;

/// A job that came to nothing is tried again after so long.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What waits for somebody is asked after so often.
pub(crate) const ASK_AFTER: Duration = Duration::from_millis(250);

/// Which servers of a chunk hold all of it, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seals {
    pub whole: Vec<ServerId>,
    pub missing: Vec<ServerId>,
    /// Others are away, and nobody can be helped until they are back: those asked need not be asked again.
    pub told: bool,
}

/// What a job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// Nothing is needed, or can be done now.
    Nothing,
    /// One step further.
    Did(&'static str),
    /// Others are not ready yet.
    Wait,
    /// A server is copying, and has done so many bytes.
    Copying(u64),
    /// The servers of a compaction target make it.
    Making,
    /// A server has no room for a copy.
    Refused,
    /// A copy of so many bytes is recorded.
    Copied(u64),
    /// A chunk gets no target for now.
    CalledOff(ChunkId),
    /// No copy can be made for now: what is needed is damaged at all sources.
    Hopeless,
    /// These servers do not hold what they should.
    Missing(Vec<ServerId>),
    /// One step further with a chunk that nobody has whole: these servers have said that they lack something.
    Torn(&'static str, Vec<ServerId>),
    /// These servers were asked whether they hold all of it, sealed.
    Sealed(Seals),
    /// This server has all of it, whatever it said before.
    Whole(ServerId),
    /// These servers hold nothing of it any more.
    Forgotten(Vec<ServerId>),
    /// The chunk is gone.
    Removed,
}

/// One tablet's chunks.
#[derive(Debug)]
pub(crate) struct Maintenance {
    /// Where the next step begins.
    pub from: ChunkId,
    pub due: Mono,
    /// Chunks that need something, and when to see to it.
    pub listed: BTreeMap<ChunkId, Mono>,
    /// Of the round under way, and of the last whole one.
    pub counting: ChunkTally,
    pub counted: ChunkTally,
    /// What data servers have, of the round under way, and whether that began since servers that leave were
    /// last others; and of the last such whole round.
    pub holding: BTreeMap<ServerId, Held>,
    pub is_fresh: bool,
    pub held: Option<BTreeMap<ServerId, Held>>,
    /// Copies under way, with the bytes that are done.
    pub copying: BTreeMap<ChunkId, u64>,
    /// Heirs in the making.
    pub making: BTreeSet<ChunkId>,
    pub inventory: Inventory,
}

impl Maintenance {
    pub fn new(now: Now) -> Maintenance {
        Maintenance {
            from: ChunkId(0),
            due: now.mono,
            listed: BTreeMap::new(),
            counting: ChunkTally::default(),
            counted: ChunkTally::default(),
            holding: BTreeMap::new(),
            is_fresh: false,
            held: None,
            copying: BTreeMap::new(),
            making: BTreeSet::new(),
            inventory: Inventory::default(),
        }
    }

    /// A round begins.
    pub fn begin_round(&mut self, health: &Health) {
        (self.holding, self.is_fresh) = (BTreeMap::new(), true);
        self.inventory.begin(health);
    }

    /// It is over.
    pub fn end_round(&mut self, health: &Health) {
        self.from = ChunkId(0);
        self.counted = std::mem::take(&mut self.counting);
        self.held = Some(std::mem::take(&mut self.holding)).filter(|_| self.is_fresh);
        self.inventory.end(health);
    }

    /// Other servers leave: what was counted before says nothing of them.
    pub fn count_anew(&mut self) {
        (self.held, self.is_fresh) = (None, false);
    }

    /// Whether so many chunks are listed that no further ones are looked for.
    pub fn is_crowded(&self) -> bool {
        self.listed.len() >= LISTED_MAX / 2
    }

    /// Whether a copy of the chunk, or the chunk itself as a target, is being written.
    pub fn is_writing(&self, chunk: ChunkId) -> bool {
        self.copying.contains_key(&chunk) || self.making.contains(&chunk)
    }

    /// A chunk waits for others, as for a disk that is full. Where many do, it leaves the list, to be found
    /// again: else those that wait would keep the ones that make room from being found.
    pub fn wait(&mut self, chunk: ChunkId, again: Mono) {
        match self.is_crowded() && !self.is_writing(chunk) {
            true => self.listed.remove(&chunk),
            false => self.listed.insert(chunk, again),
        };
    }
}
