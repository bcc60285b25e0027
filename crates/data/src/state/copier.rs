//! How far a copy of a sealed chunk has come.

use super::Asker;
use super::core::Cx;
use crate::Config;
use crate::scan::Scan;
use bearing_proto::data::Pieces;
use bearing_types::{ChunkId, Epoch, Mono, ServerId};

/// A copy as it was asked for.
pub(crate) struct Wanted {
    pub epoch: Epoch,
    pub sources: Vec<ServerId>,
    pub length: u64,
    /// Of which other chunk, if it is no copy, and of which of its frames.
    pub origin: Option<(ChunkId, Pieces)>,
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Copier {
    pub epoch: Epoch,
    pub length: u64,
    pub origin: Option<(ChunkId, Pieces)>,
    pub sources: Vec<ServerId>,
    /// Counts on through the sources.
    pub source: usize,
    /// Who hears, when the chunk is made, that this goes on.
    pub first: Option<Asker>,
    /// How far the frames are checked.
    pub scan: Scan,
    /// The question under way: its number, when it was sent, and from where it asks.
    pub asked: Option<(u64, Mono, u64)>,
    /// No question before this time.
    pub next_at: Mono,
    /// How often sources had nothing good for this very place.
    pub damaged: usize,
    /// All bytes are here and are being sealed.
    pub sealing: bool,
}

impl Copier {
    pub fn new(cx: &Cx<'_>, wanted: Wanted) -> Copier {
        Copier {
            epoch: wanted.epoch,
            length: wanted.length,
            origin: wanted.origin,
            sources: wanted.sources,
            source: 0,
            first: None,
            scan: Scan::new(wanted.length, cx.core.config.scan_bytes),
            asked: None,
            next_at: cx.mono(),
            damaged: 0,
            sealing: false,
        }
    }

    pub fn wake(&self, in_flight: usize, config: &Config) -> Option<Mono> {
        match self.asked {
            _ if self.sealing || in_flight > 0 => None,
            Some((_, sent, _)) => Some(sent.after(config.copy_timeout)),
            None => Some(self.next_at),
        }
    }

    pub fn close(&self, cx: &mut Cx<'_>) {
        if let Some((id, _, _)) = self.asked {
            cx.core.asked.remove(&id);
        }
    }

    /// What to read next: where that lies in this chunk, then of which chunk, where, and how much.
    pub fn want(&self, myself: ChunkId) -> (u64, ChunkId, u64, u32) {
        let (offset, length) = self.scan.want();
        let Some((from, pieces)) = &self.origin else { return (offset, myself, offset, length) };
        // Behind the last piece there is nothing to want.
        let (at, end) = pieces.old_place(offset).unwrap_or((u64::MAX, offset));
        (offset, *from, at, u64::from(length).min(end - offset) as u32)
    }

    pub fn turn_to_next_source(&mut self, now: Mono, config: &Config) {
        self.source += 1;
        self.next_at = now.after(config.copy_delay);
    }
}
