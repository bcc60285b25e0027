//! Appends whose bytes are being read where they are.

use super::core::Asker;
use bearing_proto::data::{DataError, Source};
use bearing_proto::frame::FrameOwner;
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Mono, ServerId};
use std::collections::{BTreeMap, VecDeque};

/// Such an append as it came.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub capability: Capability,
    pub servers: Vec<ServerId>,
    pub known: u64,
    pub owner: FrameOwner,
    pub source: Source,
}

/// One whose bytes are being read.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub asker: Asker,
    pub chunk: ChunkId,
    pub wanted: Wanted,
    /// Servers that were not asked for the bytes yet.
    pub left: VecDeque<ServerId>,
    /// The question to another server, and when it is waited for no longer.
    pub asked: Option<(u64, Mono)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    pub under_way: BTreeMap<u64, Fetch>,
    pub next: u64,
    /// Bytes that they will hold.
    pub bytes: u64,
    pub come: VecDeque<(u64, Result<Vec<u8>, DataError>)>,
}

impl Fetches {
    /// Bytes came, or one server does not give them.
    pub fn came(&mut self, number: u64, result: Result<Vec<u8>, DataError>) {
        self.come.push_back((number, result));
    }

    pub fn next_come(&mut self) -> Option<(u64, Result<Vec<u8>, DataError>)> {
        self.come.pop_front()
    }

    /// When the first question is waited for no longer.
    pub fn wake(&self) -> Option<Mono> {
        self.under_way.values().filter_map(|fetch| fetch.asked.map(|(_, until)| until)).min()
    }

    pub fn begin(&mut self, fetch: Fetch) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += u64::from(fetch.wanted.source.length);
        self.under_way.insert(number, fetch);
        number
    }

    pub fn end(&mut self, number: u64) -> Option<Fetch> {
        let fetch = self.under_way.remove(&number)?;
        self.bytes -= u64::from(fetch.wanted.source.length);
        Some(fetch)
    }
}
