//! Messages between processes, and how they are laid out as bytes.
//!
//! A *packet* is an [`envelope`]: a fixed header, a body of one or more messages in postcard's encoding under
//! a MAC, and at most one attachment of bulk bytes. `docs/formats/protocol.md` describes it byte by byte.
//! Invariants: decoding never panics; a newer version is refused by name. This crate encodes the values of
//! lower rooms and must not know machines or sockets.

mod answer;
mod call;
pub mod client;
pub mod clock;
pub mod coordinator;
pub mod data;
pub mod delegation;
pub mod disk;
pub mod enrolment;
pub mod envelope;
pub mod filters;
pub mod flow;
pub mod frame;
pub mod freshness;
pub mod grant;
mod handles;
pub mod hello;
pub mod holders;
pub mod inspect;
pub mod join;
pub mod keys;
pub mod kinds;
pub mod map;
pub mod notice;
pub mod operation;
pub mod peer;
pub mod prefix;
pub mod questions;
pub mod registrar;
pub mod relay;
pub mod replication;
pub mod ring;
pub mod rules;
pub mod sessions;
pub mod space;
pub mod tablets;
pub mod ticket;
pub mod window;

pub use envelope::{Message, Packet, PacketError, Sender};
