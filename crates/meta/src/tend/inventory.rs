//! Which sealed chunks are where their records say: asked of every data server once after each of its starts,
//! because its disk may have been emptied, or be an older one, since it said that it holds them.
//!
//! The questions go with the round over the chunk records, one for each page and server. A server that does
//! not answer one of them is asked again in the next round.

use super::Health;
use crate::record::ChunkRecord;
use crate::view::{Decide, Stop, View};
use bearing_proto::data::{CHUNKS_ASKED_MAX, DataBody, DataCall};
use bearing_types::{ChunkId, ServerId};
use std::collections::BTreeMap;

/// How far one tablet is with it. Servers are known by the number of their life.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    done: BTreeMap<ServerId, u64>,
    asking: BTreeMap<ServerId, u64>,
}

impl Inventory {
    /// A round over all records begins.
    pub fn begin(&mut self, health: &Health) {
        self.done.retain(|server, _| health.life(*server).is_some());
        let lives = health.lives().filter(|(server, life)| self.done.get(server) != Some(life));
        self.asking = lives.collect();
    }

    /// The servers that are asked in this round.
    pub fn asked(&self) -> Vec<ServerId> {
        self.asking.keys().copied().collect()
    }

    /// A server did not answer.
    pub fn is_silent(&mut self, server: ServerId) {
        self.asking.remove(&server);
    }

    /// The round is over.
    pub fn end(&mut self, health: &Health) {
        let same = |(server, life): &(ServerId, u64)| health.life(*server) == Some(*life);
        self.done.extend(std::mem::take(&mut self.asking).into_iter().filter(same));
    }
}

/// What was asked with one page of records.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// What is not where it should be.
    pub lacks: Vec<(ServerId, ChunkId)>,
    pub silent: Vec<ServerId>,
}

/// Asks these servers for what they should hold of a page.
pub(super) fn ask(view: &mut View, page: &[(ChunkId, &ChunkRecord)], servers: &[ServerId]) -> Decide<Asked> {
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
fn owed(record: &ChunkRecord) -> Option<u64> {
    let counts = record.confirmed && !record.doomed && !record.is_in_the_making();
    record.sealed.filter(|length| counts && *length > 0)
}
