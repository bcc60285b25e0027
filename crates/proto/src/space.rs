//! What space there is, and what is used of it.

use crate::handles::Handle;
use bearing_types::Amount;
use serde::{Deserialize, Serialize};

/// A quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaView {
    /// The directory that has it.
    pub directory: Handle,
    /// The limit.
    pub limit: Amount,
    /// What is used, a few seconds late.
    pub used: Amount,
}

/// Space and entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatfsView {
    /// Bytes of files that fit on all data servers together, with all their copies.
    pub bytes_total: u64,
    /// Of these, free.
    pub bytes_free: u64,
}
