//! Bloom filters that say on which server a file is (G-HBA, HBA, plain arrays).

/// Between the servers of a Bloom lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum BloomMessage {}
