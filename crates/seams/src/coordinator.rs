//! The coordinator: a small, strongly consistent register file. Consensus lives behind it, never in our own
//! code.

use crate::EngineResult;
use serde::{Deserialize, Serialize};

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

/// One register's part of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterChange {
    /// The key.
    pub key: String,
    /// The version that it must have; `None`: it must be absent.
    pub expected: Option<u64>,
    /// The new value; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl RegisterChange {
    /// A register that has this version (`None`: is absent) gets this value (`None`: is removed).
    pub fn new(key: impl Into<String>, expected: Option<u64>, value: Option<Vec<u8>>) -> RegisterChange {
        RegisterChange { key: key.into(), expected, value }
    }
}

/// What some keys hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Those that hold something.
    pub present: Vec<Entry>,
    /// Those that hold nothing.
    pub absent: Vec<String>,
}

/// The result of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// All of it took effect, under this version.
    Done(u64),
    /// These keys had other versions, so nothing changed.
    Conflict(Found),
}

/// What changed under a prefix after some version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The version of the last change of any key.
    pub version: u64,
    /// The removals since that version are not remembered any more, or it was 0: this is everything under the
    /// prefix, and what is not here is absent.
    pub whole: bool,
    /// The keys that changed, each list in key order.
    pub found: Found,
}

/// Registers under compare-and-swap. Every successful change is stable when it returns.
pub trait Coordinator {
    /// The entry of a key.
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>>;

    /// Every key under a prefix that changed after a version, removed ones too, as it is now. The removals
    /// among the last [`REMOVALS_KEPT`] are remembered; who comes with an older version, with 0, or with one
    /// that never was, gets everything under the prefix.
    fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes>;

    /// Changes registers, each of another key: all of them under one new version, or none. A change that
    /// removes what is absent changes nothing; if all are such, there is no new version.
    fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap>;
}

/// So many removals a coordinator remembers at least.
pub const REMOVALS_KEPT: usize = 65_536;
