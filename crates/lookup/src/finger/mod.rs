//! Finger tables (Chord, DHT-MDSC, RDHT-MDSC).

/// Between the servers of a ring.
#[derive(Clone, Debug, PartialEq)]
pub enum FingerMessage {}
