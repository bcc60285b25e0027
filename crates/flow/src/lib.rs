//! The flow server: it is told who wants to read what, answers from which replicas and by which paths, and
//! keeps what it believes of flows in line with what switches or hosts have counted.
//!
//! Mayflower sections III and IV. Invariants: it is an adviser, so nothing that it forgets or gets wrong can
//! make a read fail; it never waits, and reads no clock. This crate must not know sockets, files or what a
//! chunk is.

mod adviser;
mod replan;
mod server;
mod sites;
mod strangers;

pub use adviser::{Adviser, Said, Say};
pub use server::{Background, Command, Counted, Event, FlowServer, Offer, Options, Replanning, Request};
pub use sites::Network;
