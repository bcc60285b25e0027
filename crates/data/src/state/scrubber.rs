//! How far the look for rot is.

use crate::scan::Scan;
use bearing_types::{ChunkId, Mono};
use std::collections::BTreeSet;

/// How far it is.
#[derive(Debug)]
pub(crate) struct Scrubber {
    /// The chunk that is being read, and how far it is checked.
    pub current: Option<(ChunkId, Scan)>,
    pub reading: bool,
    /// To be checked first.
    pub urgent: BTreeSet<ChunkId>,
    /// The round goes on with the first chunk from here; `None`: it is over.
    pub next: Option<ChunkId>,
    pub round_began: Option<Mono>,
    /// Known once a chunk is sealed.
    pub due: Option<Mono>,
}

impl Scrubber {
    /// One that has not begun.
    pub fn new() -> Scrubber {
        Scrubber {
            current: None,
            reading: false,
            urgent: BTreeSet::new(),
            next: None,
            round_began: None,
            due: None,
        }
    }

    /// When it wants to go on.
    pub fn wake(&self) -> Option<Mono> {
        self.due.filter(|_| !self.reading)
    }
}
