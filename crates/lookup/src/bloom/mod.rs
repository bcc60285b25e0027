//! Bloom filters that say on which server a file is (G-HBA, HBA, plain arrays).

mod counting;
mod division;
mod filter;
mod group;
mod lru;
mod rates;

pub use counting::Counting;
pub use division::{Division, GROUP_MOST_MAX, GroupId};
pub use filter::{Bloom, DecodeError, Probe, Shape, ShapesDiffer};
pub use group::{Group, Move, Unsettled};
pub use lru::{Hit, Recent, RecentShape};
pub use rates::{Measured, best_group_size, false_positive_rate, misleading_rate, replicas_each};

/// Between the servers of a Bloom lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum BloomMessage {}
