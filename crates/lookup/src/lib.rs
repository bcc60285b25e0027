//! Whom to ask first: what a client or a server believes about tablets and their owners.
//!
//! Invariants: lookup only says whom to ask first; the owner by tablet epoch decides. A stale belief costs a referral, never a wrong
//! answer. This crate must not know messages, machines or engines.

mod client_map;

pub use client_map::{ClientMap, Located};
