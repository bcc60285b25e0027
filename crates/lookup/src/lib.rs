//! Whom to ask first: what a client or a server believes about tablets and their owners.
//!
//! Invariants: lookup only says whom to ask first; the owner by tablet epoch decides. A stale belief costs a
//! referral, never a wrong answer. This crate must not know messages, machines or engines.

pub mod bloom;
mod build;
mod client_map;
mod computed;
pub mod conformance;
pub mod finger;
#[cfg(test)]
mod laws;
mod machine;
mod map;
mod message;
mod query;
mod table;
mod tablet_index;
pub mod world;

pub use build::{COORDINATOR, Lookup};
pub use client_map::ClientMap;
pub use computed::ComputedClient;
pub use machine::{Command, Event, Machine};
pub use map::Map;
pub use message::Message;
pub use query::{FileKey, LookupError, Query, QueryId, Target, Trail};
pub use table::{AskFirst, NetworkClient, TableClient, TableServer};
pub use tablet_index::Located;

/// The page that says how a scheme is added; its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-scheme.md")]
mod add_a_scheme {}
