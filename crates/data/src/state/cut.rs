//! Fences and seals that wait for a chunk.

use super::core::Asker;
use crate::scan::DeepScan;
use bearing_seams::End;
use bearing_types::Epoch;

/// A fence or seal.
#[derive(Debug)]
pub(crate) struct Cut {
    pub asker: Asker,
    pub epoch: Epoch,
    /// The length to seal at; none for a fence.
    pub seal: Option<u64>,
    pub stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Waiting,
    Scanning(Box<DeepScan>),
    Setting { length: u64, end: End },
}
