//! The life of chunks after their writers: a tablet goes over its chunks again and again, and gives each what it needs (see `care`).
//!
//! A page of chunk records is looked through at a time; chunks that need something get onto a list, and from there one job after the other is started
//! for each, a bounded number at the same time. What is under way lives in memory only: all that must survive is in the records.

mod care;
mod compact;
mod health;
mod inventory;
mod join;
mod look;

pub(crate) use care::Surroundings;
pub(crate) use care::tend;
pub(crate) use compact::answer as answer_move;
pub(crate) use health::Health;
pub(crate) use join::{answer as answer_join, join};
pub(crate) use look::answer as answer_uses;

use crate::event::{Command, Note};
use crate::job::JobWork;
use crate::key::Key;
use crate::machine::MetaServer;
use crate::record::{ChunkRecord, Record};
use crate::view::{Decide, View};
use bearing_types::{ChunkId, Mono, Now, Position, ServerId};
use inventory::Inventory;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Chunk records looked through in one step.
const PAGE: usize = 128;
/// Chunks on the list of a tablet.
const LISTED_MAX: usize = 1024;
/// A job that came to nothing is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// What waits for somebody is asked after so often.
const ASK_AFTER: Duration = Duration::from_millis(250);

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
pub(crate) enum Tended {
    /// Nothing is needed, or can be done now.
    Nothing,
    /// One step further.
    Did(&'static str),
    /// Others are not ready yet.
    Wait,
    /// A server is copying, and has done so many bytes.
    Copying(u64),
    /// The servers of an heir make it.
    Making,
    /// A copy of so many bytes is recorded.
    Copied(u64),
    /// A chunk gets no heir for now.
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

/// The state of chunks in the tablets of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTally {
    /// All chunks.
    pub chunks: u64,
    /// Of these, sealed.
    pub sealed: u64,
    /// Chunks that have fewer good replicas than they should.
    pub lacking: u64,
    /// Bytes that have to be copied for that.
    pub lacking_bytes: u64,
    /// Chunks with a replica that is damaged.
    pub damaged: u64,
    /// Chunks that nobody refers to and that are being removed.
    pub doomed: u64,
    /// Bytes of sealed chunks that files refer to; of a chunk that was not looked at yet, all.
    pub live_bytes: u64,
    /// Bytes of sealed chunks that no file refers to any more.
    pub dead_bytes: u64,
    /// Chunks that are being compacted.
    pub compacting: u64,
    /// Bytes of them that are in use and are written anew.
    pub compacting_bytes: u64,
}

impl ChunkTally {
    fn add(&mut self, other: &ChunkTally) {
        self.chunks += other.chunks;
        self.sealed += other.sealed;
        self.lacking += other.lacking;
        self.lacking_bytes += other.lacking_bytes;
        self.damaged += other.damaged;
        self.doomed += other.doomed;
        self.live_bytes += other.live_bytes;
        self.dead_bytes += other.dead_bytes;
        self.compacting += other.compacting;
        self.compacting_bytes += other.compacting_bytes;
    }
}

/// One tablet's chunks.
#[derive(Debug)]
pub(crate) struct Tending {
    /// Where the next step begins.
    from: ChunkId,
    due: Mono,
    /// Chunks that need something, and when to see to it.
    listed: BTreeMap<ChunkId, Mono>,
    /// Of the round under way, and of the last whole one.
    counting: ChunkTally,
    counted: ChunkTally,
    /// Copies under way, with the bytes that are done.
    copying: BTreeMap<ChunkId, u64>,
    /// Heirs in the making.
    making: BTreeSet<ChunkId>,
    inventory: Inventory,
}

impl Tending {
    pub fn new(now: Now) -> Tending {
        Tending {
            from: ChunkId(0),
            due: now.mono,
            listed: BTreeMap::new(),
            counting: ChunkTally::default(),
            counted: ChunkTally::default(),
            copying: BTreeMap::new(),
            making: BTreeSet::new(),
            inventory: Inventory::default(),
        }
    }
}

/// What a step over chunk records found.
#[derive(Debug)]
pub(crate) struct Swept {
    next: Option<ChunkId>,
    tally: ChunkTally,
    wanting: Vec<ChunkId>,
    asked: inventory::Asked,
}

/// Looks through a page of records, and asks these servers whether they hold what is theirs of it.
pub(crate) fn sweep(view: &mut View, from: ChunkId, servers: &[ServerId]) -> Decide<Swept> {
    let keys = Key::Chunk(from)..=Key::Chunk(ChunkId(u64::MAX));
    let page = view.range(keys.clone(), PAGE)?;
    let full = view.range_was_full(&keys, PAGE);
    let records = page.iter().filter_map(|pair| match pair {
        (Key::Chunk(id), Record::Chunk(record)) => Some((*id, &**record)),
        _ => None,
    });
    let asked = inventory::ask(view, &records.collect::<Vec<_>>(), servers)?;
    let around = view.surroundings();
    let mut swept = Swept { next: None, tally: ChunkTally::default(), wanting: Vec::new(), asked };
    for (key, record) in &page {
        let (Key::Chunk(id), Record::Chunk(record)) = (key, record) else { continue };
        swept.next = id.0.checked_add(1).map(ChunkId).filter(|_| full);
        let lacks = around.lacks(*id, record) as u64;
        let damaged = record.servers.iter().any(|server| around.health.is_damaged(*server, *id));
        let length = if record.is_in_the_making() { 0 } else { record.sealed.unwrap_or(0) };
        let live = live_bytes(record).min(length);
        swept.tally.add(&ChunkTally {
            chunks: 1,
            sealed: u64::from(record.sealed.is_some()),
            lacking: u64::from(lacks > 0),
            lacking_bytes: lacks * record.sealed.unwrap_or(0),
            damaged: u64::from(damaged),
            doomed: u64::from(record.doomed),
            live_bytes: live,
            dead_bytes: length - live,
            compacting: u64::from(record.gather.is_some()),
            compacting_bytes: record.gather.as_ref().and(record.sealed).unwrap_or(0),
        });
        if around.wanted(*id, record).is_some() {
            swept.wanting.push(*id);
        }
    }
    Ok(swept)
}

/// Payload that files refer to, as far as it is known.
fn live_bytes(record: &ChunkRecord) -> u64 {
    match record.looked {
        _ if record.doomed => 0,
        Some(looked) => looked.live.saturating_sub(record.dead_bytes),
        None => record.sealed.unwrap_or(0).saturating_sub(record.dead_bytes),
    }
}

impl MetaServer {
    /// The state of the chunks in this server's tablets, as it was seen last.
    pub fn chunk_tally(&self) -> ChunkTally {
        let mut tally = ChunkTally::default();
        for tablet in self.tablets.values() {
            tally.add(&tablet.tending.counted);
            let done: u64 = tablet.tending.copying.values().sum();
            tally.lacking_bytes = tally.lacking_bytes.saturating_sub(done);
        }
        tally
    }

    /// Starts what is due in a tablet.
    pub(crate) fn tend_chunks(&mut self, now: Now, start: Position) {
        let writing = |state: &Tending| state.copying.len() + state.making.len();
        let copying: usize = self.tablets.values().map(|tablet| writing(&tablet.tending)).sum();
        self.health.copies_full = copying >= self.config.copies_max;
        let mut busy: Vec<ChunkId> = Vec::new();
        let (mut tending, mut sweeping) = (0, false);
        for job in self.jobs.values() {
            match job.work {
                JobWork::Tend(chunk) => {
                    tending += 1;
                    busy.extend((job.tablet == start).then_some(chunk));
                }
                JobWork::SweepChunks(..) => sweeping |= job.tablet == start,
                _ => {}
            }
        }
        let (jobs_max, every) = (self.config.tends_max, self.config.sweep_every);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.tending;
        let due = state.listed.iter_mut().filter(|(chunk, at)| **at <= now.mono && !busy.contains(chunk));
        let mut started = Vec::new();
        for (chunk, at) in due.take(jobs_max.saturating_sub(tending)) {
            *at = now.mono.after(AGAIN_AFTER);
            started.push(*chunk);
        }
        let sweep =
            (now.mono >= state.due && !sweeping && state.listed.len() < LISTED_MAX / 2).then_some(state.from);
        if sweep.is_some() {
            state.due = now.mono.after(every);
        }
        if sweep == Some(ChunkId(0)) {
            state.inventory.begin(&self.health);
        }
        let servers = state.inventory.asked();
        for chunk in started {
            self.new_job(start, JobWork::Tend(chunk), now);
        }
        if let Some(from) = sweep {
            self.new_job(start, JobWork::SweepChunks(from, servers), now);
        }
    }

    /// A step over chunk records is through.
    pub(crate) fn take_swept(&mut self, now: Now, start: Position, swept: Swept) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.tending;
        state.counting.add(&swept.tally);
        for (server, chunk) in &swept.asked.lacks {
            self.health.set_missing(*server, *chunk);
        }
        let lacking = swept.asked.lacks.into_iter().map(|(_, chunk)| chunk);
        for chunk in swept.wanting.into_iter().chain(lacking) {
            state.listed.entry(chunk).or_insert(now.mono);
        }
        swept.asked.silent.into_iter().for_each(|server| state.inventory.is_silent(server));
        match swept.next {
            Some(next) => (state.from, state.due) = (next, now.mono),
            None => {
                state.from = ChunkId(0);
                state.counted = std::mem::take(&mut state.counting);
                state.inventory.end(&self.health);
            }
        }
    }

    /// A job is through.
    pub(crate) fn take_tended(
        &mut self,
        now: Now,
        (start, chunk): (Position, ChunkId),
        tended: Tended,
        out: &mut Vec<Command>,
    ) {
        let step = |name| Some(Command::Note(Note::Step(name)));
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.tending;
        if !matches!(tended, Tended::Copying(_) | Tended::Making | Tended::Wait) {
            state.copying.remove(&chunk);
            state.making.remove(&chunk);
        }
        let again = match tended {
            Tended::Nothing => None,
            Tended::Did(name) => {
                out.extend(step(name));
                Some(now.mono)
            }
            Tended::Wait => Some(now.mono.after(ASK_AFTER)),
            Tended::Copying(done) => {
                if state.copying.insert(chunk, done).is_none() {
                    out.extend(step("copy asked for"));
                }
                Some(now.mono.after(ASK_AFTER))
            }
            Tended::Making => {
                state.making.insert(chunk);
                Some(now.mono.after(ASK_AFTER))
            }
            Tended::Copied(bytes) => {
                out.extend(step("copy recorded"));
                self.counters.copied_bytes += bytes;
                Some(now.mono)
            }
            Tended::CalledOff(old) => {
                self.health.set_called_off(now.mono, old);
                out.extend(step("compaction called off"));
                Some(now.mono)
            }
            Tended::Hopeless => {
                self.health.set_refused(now.mono, chunk);
                out.extend(step("copy refused"));
                Some(now.mono)
            }
            Tended::Torn(name, servers) => {
                servers.iter().for_each(|server| self.health.set_missing(*server, chunk));
                out.extend(step(name));
                Some(now.mono)
            }
            Tended::Missing(servers) => {
                servers.iter().for_each(|server| self.health.set_missing(*server, chunk));
                out.extend(step("replica found missing"));
                Some(now.mono)
            }
            Tended::Whole(server) => {
                self.health.set_fresh(server, chunk);
                Some(now.mono.after(ASK_AFTER))
            }
            Tended::Sealed(Seals { whole, missing, told }) => {
                // Who holds all of it may have been found without it before it knew of the seal.
                whole.iter().for_each(|server| self.health.set_there(*server, chunk));
                // Who lacks something of it need not be asked again before it is made anew.
                let asked = whole.iter().chain(&missing);
                asked.for_each(|server| self.health.set_told(*server, chunk));
                if told {
                    out.extend(step("seal told again"));
                } else {
                    missing.iter().for_each(|server| self.health.set_missing(*server, chunk));
                    out.extend(step("replica found missing"));
                }
                Some(now.mono)
            }
            Tended::Forgotten(servers) => {
                servers.iter().for_each(|server| self.health.set_fresh(*server, chunk));
                out.extend(step("replica removed"));
                Some(now.mono)
            }
            Tended::Removed => {
                self.counters.chunks_removed += 1;
                out.extend(step("chunk removed"));
                None
            }
        };
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        match again {
            Some(at) => drop(tablet.tending.listed.insert(chunk, at)),
            None => drop(tablet.tending.listed.remove(&chunk)),
        }
    }
}
