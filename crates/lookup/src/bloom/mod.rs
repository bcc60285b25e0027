//! Bloom filters that say on which server a file is (G-HBA, HBA, plain arrays).
//!
//! A file may be on any server, its home. Every server publishes a filter of its files, and servers are cut
//! into groups of at most M which share out the replicas of the others' filters. All four published lookups
//! are this one with different options ([`BloomOptions::of`]): with M = 1 every server is a group by itself
//! and holds the filters of all others (HBA; without filters of recent files, the plain arrays BFA8 and
//! BFA16).
//!
//! Invariants: a filter only says whom to ask first. A lookup of a file whose home is in
//! ([`BloomServer::is_in`]) and can be reached finds it, unless the file moves between homes while it is
//! looked for. This module must not know how requests travel.

mod client;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod cluster_cut;
#[cfg(test)]
mod cluster_figures;
#[cfg(test)]
mod cluster_laws;
mod counting;
mod division;
mod filter;
mod group;
mod holders;
mod keying;
mod layout;
mod levels;
mod lru;
mod membership;
pub(crate) mod message;
mod options;
mod rates;
mod replicas;
mod round;
mod server;

pub use client::{BloomClient, Choice};
pub use counting::Counting;
pub use division::{Division, GROUP_MOST_MAX, GroupId};
pub use filter::{Bloom, DecodeError, Probe, Shape, ShapesDiffer};
pub use group::{Group, Move, Unsettled};
pub use keying::{DIRECTORY_BITS, Keying};
pub use layout::{Birth, Founding, GONE_MAX, Layout, LayoutVersion, Shares};
pub use lru::{Hit, Recent, RecentShape};
pub use message::{BloomMessage, Edition, Replica};
pub use options::{BloomOptions, HOPS_MAX, QUERIES_MAX, Sizes, published_group_most};
pub use rates::{Measured, best_group_size, false_positive_rate, misleading_rate, replicas_each};
pub use replicas::exchange;
pub use server::{BloomServer, Counts, TableBytes};
