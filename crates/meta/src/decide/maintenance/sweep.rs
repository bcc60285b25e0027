//! A step over chunk records: which of them need something, and how the chunks are.

use crate::chunks::Planner;
use crate::record::{ChunkRecord, Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::data::{CHUNKS_ASKED_MAX, DataBody, DataCall};
use bearing_proto::holders::Held;
use bearing_proto::tablets::ChunkTally;
use bearing_types::{ChunkId, ServerId};
use std::collections::BTreeMap;

/// Chunk records scan through in one step.
pub(crate) const PAGE: usize = 128;

/// What a step over chunk records found.
#[derive(Debug)]
pub(crate) struct Swept {
    pub next: Option<ChunkId>,
    pub tally: ChunkTally,
    /// What data servers have of it.
    pub held: BTreeMap<ServerId, Held>,
    pub wanting: Vec<ChunkId>,
    pub asked: Asked,
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
    let asked = ask(view, &records.collect::<Vec<_>>(), servers)?;
    let planner = view.planner();
    let (tally, held) = (ChunkTally::default(), BTreeMap::new());
    let mut swept = Swept { next: None, tally, held, wanting: Vec::new(), asked };
    for (key, record) in &page {
        let (Key::Chunk(id), Record::Chunk(record)) = (key, record) else { continue };
        swept.next = id.0.checked_add(1).map(ChunkId).filter(|_| full);
        let lacks = planner.lacks(*id, record) as u64;
        let damaged = record.servers.iter().any(|server| planner.health.is_damaged(*server, *id));
        let length = if record.is_in_the_making() { 0 } else { record.sealed.unwrap_or(0) };
        let live = live_bytes(record).min(length);
        swept.tally.add(&ChunkTally {
            chunks: 1,
            sealed: u64::from(record.sealed.is_some()),
            lacking: u64::from(lacks > 0),
            lacking_bytes: lacks * record.sealed.unwrap_or(0),
            copied_bytes: 0,
            damaged: u64::from(damaged),
            dead: u64::from(record.deleting),
            live_bytes: live,
            dead_bytes: length - live,
            compacting: u64::from(record.gather.is_some()),
            compacting_bytes: record.gather.as_ref().and(record.sealed).unwrap_or(0),
        });
        for (server, held) in held_of(&planner, *id, record) {
            swept.held.entry(server).or_default().add(held);
        }
        if planner.wanted(*id, record).is_some() {
            swept.wanting.push(*id);
        }
    }
    Ok(swept)
}

/// What data servers have of a chunk: a copy that counts, or a writer that may come yet.
fn held_of(planner: &Planner<'_>, id: ChunkId, record: &ChunkRecord) -> Vec<(ServerId, Held)> {
    let (counts, awaits) = (!record.deleting && record.sealed != Some(0), planner.has_writer(record));
    let good = planner.good(id, record);
    let copies = record.servers.iter().chain(&record.pending_replica).filter(|_| counts || awaits);
    let copies = copies.map(|server| {
        let alone = u64::from(counts && good == [*server]);
        (*server, Held { chunks: 1, bytes: record.sealed.unwrap_or(0), alone })
    });
    let writer = Held { chunks: 1, ..Held::default() };
    let former = record.former.iter().filter(|_| awaits).map(|server| (*server, writer));
    copies.chain(former).collect()
}

/// Payload that files refer to, as far as it is known.
pub(crate) fn live_bytes(record: &ChunkRecord) -> u64 {
    match record.scanned {
        _ if record.deleting => 0,
        Some(scan) => scan.live_bytes.saturating_sub(record.dead_bytes),
        None => record.sealed.unwrap_or(0).saturating_sub(record.dead_bytes),
    }
}

/// What was asked with one page of records.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// What is not where it should be.
    pub lacks: Vec<(ServerId, ChunkId)>,
    pub silent: Vec<ServerId>,
}

/// Asks these servers for what they should hold of a page.
pub(crate) fn ask(view: &mut View, page: &[(ChunkId, &ChunkRecord)], servers: &[ServerId]) -> Decide<Asked> {
    let (mut asked, mut missing) = (Asked::default(), false);
    for server in servers {
        let chunks: Vec<(ChunkId, u64)> = page
            .iter()
            .filter(|(_, record)| record.servers.contains(server))
            .filter_map(|(chunk, record)| Some((*chunk, owed(record)?)))
            .take(CHUNKS_ASKED_MAX)
            .collect();
        if chunks.is_empty() {
            continue;
        }
        match view.data(ChunkId(0), &[*server], &DataCall::Holds { chunks }) {
            Ok(results) => match results.into_iter().next().flatten() {
                Some(Ok(DataBody::Lacks { chunks })) => {
                    asked.lacks.extend(chunks.into_iter().map(|chunk| (*server, chunk)));
                }
                Some(_) | None => asked.silent.push(*server),
            },
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing { Err(Stop::Need) } else { Ok(asked) }
}

/// How much each server of a chunk has said to hold, sealed.
pub(crate) fn owed(record: &ChunkRecord) -> Option<u64> {
    let counts = record.confirmed && !record.deleting && !record.is_in_the_making();
    record.sealed.filter(|length| counts && *length > 0)
}
