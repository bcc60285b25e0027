//! How many chunks there are in which state, for whoever watches a data server.

use crate::server::DataServer;
use crate::state::Phase;

/// What a server holds now. Counts of what it did are in [`crate::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Chunks that may still be appended to, or that nobody has sealed yet.
    pub open: usize,
    /// Sealed chunks.
    pub sealed: usize,
    /// Of all these, those that are known to be damaged.
    pub damaged: usize,
    /// Sealed chunks to which the look for rot has not come in this round.
    pub scrub_left: usize,
}

impl DataServer {
    /// Counts what is here. It walks all chunks.
    pub fn census(&self) -> Census {
        let mut census = Census { damaged: self.core.damaged.len(), ..Census::default() };
        let scrubbed_from = self.core.scrubber.next;
        for (id, chunk) in &self.chunks {
            match chunk.phase {
                // Removed.
                Phase::Sealed(0) => {}
                Phase::Sealed(_) => {
                    census.sealed += 1;
                    census.scrub_left += usize::from(scrubbed_from.is_some_and(|from| *id >= from));
                }
                _ => census.open += 1,
            }
        }
        census
    }
}
