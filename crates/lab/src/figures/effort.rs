//! How much is run for a figure.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Seeds, each a run of its own: at least 10, unless it is to be quick.
    pub seeds: u64,
    /// Queries of each run: reads of chunks, or what says how long servers are watched.
    pub queries: usize,
    /// The first seed.
    pub seed: u64,
}
