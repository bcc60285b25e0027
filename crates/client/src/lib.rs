//! The client machine: sessions, grants, leases, retries, and how files are written and read.
//!
//! Invariants: `step(now, event, &mut commands)` is all there is; the same events give the same commands. What is served without asking is
//! under a live lease (or, for data, no older than close-to-open allows). A mutation keeps its sequence number however often it is
//! sent. This crate must not know sockets, threads, clocks or the kernel.
//!
//! Inside, each operation is one `async` function told from top to bottom, polled by the machine itself: it waits for replies
//! and timers of this machine, never for anything else.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("planted bugs must not reach a release build; build without the feature `mutants`");

mod again;
mod bounded;
mod cache;
mod config;
mod counters;
mod delegation;
mod event;
mod file;
mod held;
mod hub;
mod lease;
mod locks;
mod machine;
mod mutant;
mod names;
mod namespace;
mod operation;
mod random;
mod recall;
mod request;
mod routes;
mod session;
mod slots;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod timer;

pub use config::ClientConfig;
pub use counters::Counters;
pub use event::{Command, Event, Invalidation, Note, Target, Transport};
pub use machine::Client;
pub use mutant::Mutant;
pub use operation::{Answer, Found, Listed, OpenFile, Operation, Remaining, SeekTarget, Ticket};
