//! The coordinator: a small, strongly consistent register file. Consensus lives behind it, never in our own
//! code.

use crate::EngineResult;

/// A value with the version that a swap must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Grows with every change of any key; 0 is never used.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// The result of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It took effect under this version.
    Done(u64),
    /// The key had another version; here is what it holds (`None`: absent).
    Conflict(Option<Entry>),
}

/// Registers under compare-and-swap. Every successful change is stable when it returns.
pub trait Coordinator {
    /// The entry of a key.
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>>;

    /// All entries whose key starts with a prefix, in key order, and the version of the last change of any
    /// key.
    fn list(&mut self, prefix: &str) -> EngineResult<(u64, Vec<Entry>)>;

    /// Sets a key if its version is `expected` (`None`: if it is absent). A `None` value removes it.
    fn swap(&mut self, key: &str, expected: Option<u64>, value: Option<Vec<u8>>) -> EngineResult<Swap>;
}
