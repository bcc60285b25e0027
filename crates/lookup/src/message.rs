//! Messages between the machines of a lookup. They are values here; `proto` encodes them (`ring.rs`,
//! `filters.rs`).

use crate::bloom::message::BloomMessage;
use crate::finger::message::FingerMessage;

/// A message of one of the lookups that keep tables among servers.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Of finger tables.
    Finger(FingerMessage),
    /// Of Bloom filters.
    Bloom(BloomMessage),
}
