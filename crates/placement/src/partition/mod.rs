//! How the ring is divided among servers, and how that changes: one file per way, one trait, one conformance
//! suite.
//!
//! Invariants: after every call each position has exactly one owner, which is a member; a call that is
//! refused changes nothing. A partition decides only where arcs should be; who may serve them is said by
//! tablets and their epochs.

mod btree;
mod contract;
mod even;
mod histogram;
mod history;
mod homes;
mod hosts;
mod ring;
mod subtrees;

use crate::load::Load;
use crate::parameters::Parameters;
use crate::scheme::PartitionKind;
use bearing_routing::Shape;
use bearing_types::ServerId;
use std::sync::Arc as Shared;

pub use btree::{
    Activated, Activation, BTree, Growth, Halves, SplitPoints, block_of_dotted, dotted, split_blocks,
};
pub use contract::{Partition, PartitionError};
pub use even::Even;
pub use histogram::Histogram;
pub use history::History;
pub use homes::Homes;
pub use hosts::Hosts;
pub use ring::{Ring, point_of};
pub use subtrees::Subtrees;

/// A partition of this kind, as published, for these servers. MetaFlow's tree stands over the smallest fat
/// tree with room for a quarter more servers, with one in eight idle (at least one, if there are two), so
/// that a failed one can be replaced; for other networks use [`BTree::new`].
pub fn build(
    kind: PartitionKind,
    servers: &[ServerId],
    parameters: &Parameters,
) -> Result<Box<dyn Partition>, PartitionError> {
    parameters.check()?;
    Ok(match kind {
        PartitionKind::Even => Box::new(Even::new(servers)?),
        PartitionKind::Ring => Box::new(Ring::new(servers, parameters)?),
        PartitionKind::History => Box::new(History::new(servers, parameters)?),
        PartitionKind::Histogram => Box::new(Histogram::new(servers, parameters)?),
        PartitionKind::BTree => Box::new(over_a_fat_tree(servers, parameters)?),
        PartitionKind::Subtrees => Box::new(Subtrees::fixed(servers)?),
        PartitionKind::HotSubtrees => Box::new(Subtrees::moving(servers, parameters)?),
        PartitionKind::Homes => Box::new(Homes::new(servers)?),
    })
}

fn over_a_fat_tree(servers: &[ServerId], parameters: &Parameters) -> Result<BTree, PartitionError> {
    let room = servers.len() + servers.len().div_ceil(4) + 1;
    let ports = (2u32..).step_by(2).find(|ports| u64::from(*ports).pow(3) / 4 >= room as u64).unwrap_or(2);
    let topology = Shape::fat_tree(ports)?.switch_tree().expect("a fat tree is a tree of switches");
    let idle = servers.len().div_ceil(8).min(servers.len().saturating_sub(1));
    let growth = Growth::published(servers.len() - idle);
    BTree::new(Shared::new(topology), servers, growth, &Load::default(), parameters)
}
