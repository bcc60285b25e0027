//! The part of `check` that looks below files: where their bytes lie, whether the records know these chunks,
//! and whether the servers that the records name hold them.
//!
//! Chunks are listed after files: what a file was found to refer to is there then, unless the file has
//! dropped of it since, which is looked up again before it is reported. This module must not know how a tree
//! is walked.

use crate::names::shown;
use anyhow::{Result, bail};
use bearing_mount::{
    Answer, Caller, CheckDepth, ChunkFate, ChunkRef, ChunkReport, Extent, Handle, Operation, ReplicaState,
};
use bearing_server::cluster::DaemonName;
use bearing_types::{ChunkId, Credentials, Outcome, Position, ServerId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Between two looks at what servers are reading.
const READING_PAUSE: Duration = Duration::from_millis(500);
/// Looks without anything new before servers are taken to be stuck: they read at least a piece a second.
const STUCK_AFTER: u32 = 1200;

/// What was seen of chunks.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Chunks with a record, and the bytes of those that are sealed, one copy counted.
    pub chunks: u64,
    pub chunk_bytes: u64,
    /// Chunks that are appended to yet: their replicas are looked at once they are sealed.
    pub open: u64,
    /// Replicas that their servers say they hold whole, and, with `--verify`, have read whole.
    pub replicas: u64,
    /// Replicas that are missing, short or damaged. They are made again from others.
    pub replicas_bad: u64,
    /// Replicas on servers that do not answer.
    pub replicas_unasked: u64,
    /// Copies that chunks should have and have not yet.
    pub copies_lacking: u64,
    /// Chunks, and their bytes, of which no name leads to any: what was removed while open, and what is
    /// removed by itself before long.
    pub unreferred: u64,
    pub unreferred_bytes: u64,
    /// Bytes of sealed chunks beyond those that files refer to.
    pub slack_bytes: u64,
}

/// What files refer to of a chunk.
struct Used {
    chunk: ChunkRef,
    bytes: u64,
    /// They reach so far into its log at least.
    end: u64,
    /// One of the files.
    node: Handle,
    path: Vec<u8>,
}

/// Something wrong: where, and what.
pub struct Finding {
    pub place: String,
    pub what: String,
    /// It is mended by itself.
    pub mends: bool,
}

/// See the module.
pub struct Chunks<'a> {
    caller: &'a dyn Caller,
    depth: CheckDepth,
    used: BTreeMap<ChunkId, Used>,
    silent: BTreeSet<ServerId>,
    pub counts: Counts,
    pub findings: Vec<Finding>,
}

impl<'a> Chunks<'a> {
    pub fn new(caller: &'a dyn Caller, depth: CheckDepth) -> Chunks<'a> {
        Chunks {
            caller,
            depth,
            used: BTreeMap::new(),
            silent: BTreeSet::new(),
            counts: Counts::default(),
            findings: Vec::new(),
        }
    }

    /// Notes where files' bytes lie; gives those files whose extents could not be had.
    pub fn files(&mut self, files: &[(Handle, Vec<u8>)]) -> Result<Vec<usize>> {
        let first = files.iter().map(|(node, _)| Operation::Extents { node: *node, offset: 0 });
        let answers = self.caller.call_all(first.collect());
        let mut failed = Vec::new();
        for (number, ((node, path), mut answer)) in files.iter().zip(answers).enumerate() {
            loop {
                match answer {
                    Ok(Answer::Extents { extents, complete }) => {
                        let end = extents.last().map(|last| last.file_offset + u64::from(last.length));
                        extents.iter().for_each(|extent| self.note(*node, path, extent));
                        match end.filter(|_| !complete) {
                            Some(offset) => {
                                answer = self.caller.call(Operation::Extents { node: *node, offset });
                            }
                            None => break,
                        }
                    }
                    Ok(other) => bail!("the client answered {other:?} to a question for extents"),
                    Err(_) => {
                        failed.push(number);
                        break;
                    }
                }
            }
        }
        Ok(failed)
    }

    fn note(&mut self, node: Handle, path: &[u8], extent: &Extent) {
        let used = self.used.entry(extent.chunk.chunk).or_insert_with(|| Used {
            chunk: extent.chunk,
            bytes: 0,
            end: 0,
            node,
            path: path.to_vec(),
        });
        used.bytes += u64::from(extent.length);
        let end = extent.frame + u64::from(extent.skip) + u64::from(extent.length);
        if end > used.end {
            (used.end, used.node, used.path) = (end, node, path.to_vec());
        }
    }

    /// Looks at all chunks, when all files are noted.
    pub fn look(&mut self) -> Result<()> {
        let mut known = BTreeSet::new();
        let (mut position, mut from) = (Position(0), ChunkId(0));
        loop {
            let (tablet, reports, next) = self.settled_page(position, from)?;
            for report in &reports {
                known.insert(report.chunk.chunk);
                self.chunk(report);
            }
            match next {
                Some(next) => from = next,
                None if tablet.last() == Position(u64::MAX) => break,
                None => (position, from) = (Position(tablet.last().0 + 1), ChunkId(0)),
            }
        }
        let unknown: Vec<ChunkId> =
            self.used.keys().filter(|chunk| !known.contains(chunk)).copied().collect();
        for chunk in unknown {
            self.unknown(chunk);
        }
        for server in std::mem::take(&mut self.silent) {
            self.found(daemon(server), "does not answer: what it holds was not looked at".to_owned(), true);
        }
        Ok(())
    }

    /// A page of which servers are not still reading anything.
    fn settled_page(&self, position: Position, from: ChunkId) -> Result<Page> {
        let (mut last, mut still) = (0, 0);
        loop {
            let page = page(self.caller.call(self.ask(position, from)))?;
            let states = page.1.iter().flat_map(|report| &report.replicas);
            let reading = states.filter(|(_, state)| *state == ReplicaState::Reading).count();
            if reading == 0 {
                return Ok(page);
            }
            still = if reading == last { still + 1 } else { 0 };
            if still > STUCK_AFTER {
                bail!("servers do not get on with reading {reading} replicas; see `bearing status`");
            }
            last = reading;
            std::thread::sleep(READING_PAUSE);
        }
    }

    fn ask(&self, position: Position, from: ChunkId) -> Operation {
        Operation::Chunks { position, who: Credentials::ROOT, from, depth: self.depth }
    }

    fn chunk(&mut self, report: &ChunkReport) {
        let (id, length) = (report.chunk.chunk, length_of(report));
        self.counts.chunks += 1;
        self.counts.open += u64::from(report.fate == ChunkFate::Open);
        self.counts.chunk_bytes += length;
        self.counts.copies_lacking += u64::from(report.lacking);
        match self.used.get(&id).map(|used| (used.end, used.bytes)) {
            None => {
                self.counts.unreferred += 1;
                self.counts.unreferred_bytes += length;
            }
            Some((end, bytes)) => {
                self.counts.slack_bytes += length.saturating_sub(bytes);
                let too_short = matches!(report.fate, ChunkFate::Sealed { length } if end > length);
                if (too_short || report.fate == ChunkFate::Removed) && self.still_refers(id) {
                    self.lost_to(
                        id,
                        &format!("refers to bytes up to {end} of chunk {id}, which ends at {length}"),
                    );
                }
            }
        }
        self.replicas(report);
    }

    fn replicas(&mut self, report: &ChunkReport) {
        let mut report = report.clone();
        let is_bad = |state: ReplicaState| {
            matches!(state, ReplicaState::Missing | ReplicaState::Short | ReplicaState::Damaged)
        };
        if report.replicas.iter().any(|(_, state)| is_bad(*state)) {
            // It may have moved since, or been removed.
            match self.again(&report.chunk) {
                Some(now) => report = now,
                None => return,
            }
        }
        let id = report.chunk.chunk;
        for (server, state) in &report.replicas {
            let what = match state {
                ReplicaState::Whole => {
                    self.counts.replicas += 1;
                    continue;
                }
                ReplicaState::Unasked | ReplicaState::Reading => continue,
                ReplicaState::Silent => {
                    self.counts.replicas_unasked += 1;
                    self.silent.insert(*server);
                    continue;
                }
                ReplicaState::Missing => "is missing",
                ReplicaState::Short => "is cut short",
                ReplicaState::Damaged => "is damaged",
            };
            self.counts.replicas_bad += 1;
            let what = format!("its replica of {} bytes on {} {what}", length_of(&report), daemon(*server));
            self.found(format!("chunk {id}"), what, true);
        }
        if !report.replicas.is_empty() && report.replicas.iter().all(|(_, state)| is_bad(*state)) {
            self.lost_to(id, &format!("has bytes in chunk {id}, of which no server holds a whole replica"));
        }
    }

    /// A file refers to a chunk that no record knows.
    fn unknown(&mut self, id: ChunkId) {
        if self.still_refers(id) {
            self.lost_to(id, &format!("refers to chunk {id}, which no record knows"));
        }
    }

    fn lost_to(&mut self, id: ChunkId, what: &str) {
        let place = self.used.get(&id).map_or(format!("chunk {id}"), |used| shown(&used.path));
        self.found(place, what.to_owned(), false);
    }

    fn found(&mut self, place: String, what: String, mends: bool) {
        self.findings.push(Finding { place, what, mends });
    }

    /// Whether the file of which it is known that it refers to a chunk still does.
    fn still_refers(&self, id: ChunkId) -> bool {
        let Some(used) = self.used.get(&id) else { return false };
        let mut offset = 0;
        while let Ok(Answer::Extents { extents, complete }) =
            self.caller.call(Operation::Extents { node: used.node, offset })
        {
            if extents.iter().any(|extent| extent.chunk == used.chunk) {
                return true;
            }
            match extents.last() {
                Some(last) if !complete => offset = last.file_offset + u64::from(last.length),
                _ => return false,
            }
        }
        false
    }

    fn again(&self, chunk: &ChunkRef) -> Option<ChunkReport> {
        let (_, reports, _) = page(self.caller.call(self.ask(chunk.position, chunk.chunk))).ok()?;
        reports.into_iter().next().filter(|report| report.chunk == *chunk)
    }
}

type Page = (bearing_types::Block, Vec<ChunkReport>, Option<ChunkId>);

fn page(answer: Outcome<Answer>) -> Result<Page> {
    match answer? {
        Answer::Chunks { tablet, chunks, next } => Ok((tablet, chunks, next)),
        other => bail!("the client answered {other:?} to a question for chunks"),
    }
}

fn length_of(report: &ChunkReport) -> u64 {
    match report.fate {
        ChunkFate::Sealed { length } => length,
        ChunkFate::Open | ChunkFate::Removed => 0,
    }
}

fn daemon(server: ServerId) -> String {
    DaemonName::of(server).to_string()
}
