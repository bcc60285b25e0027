//! A ring of servers with finger tables: Chord as RDHT-MDSC describes it (sections 3.1 to 3.3).
//!
//! ```text
//! F-PD  PD  server  SC  N-SC      front predecessor, predecessor, successor, next successor
//! finger i: the successor of server + 2^i (SC-F), and its successor
//! ```
//!
//! A server owns what lies after its predecessor, up to itself. A query goes to the finger of the range it
//! lies in; that is its owner, or is at most half as far from it. So on a ring at rest it ends within as many
//! hops as the ring has bits; while tables are wrong it may go astray, and ends by its bound.
//!
//! What RDHT adds: the successor of each finger, so that a query goes around one that is gone; and
//! reconstruction, begun by the successor of the server that failed. The paper lets that server take over on
//! a missed ping alone, which is not safe when the network splits: here the ring only says whom to ask; who
//! may serve is said by tablets and their epochs.

mod client;
#[cfg(test)]
mod healing_tests;
mod membership;
pub(crate) mod message;
mod neighbours;
mod points;
mod server;
#[cfg(test)]
mod tests;

pub use client::{FingerClient, RoutingCache};
pub use message::{Find, FingerMessage, Neighbours};
pub use points::{Peer, Points};
pub use server::{FingerConfig, FingerServer, Reconstruction, Reliability};
