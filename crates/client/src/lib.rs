//! The client machine: sessions, grants, leases, retries, and how files are written and read.
//!
//! Invariants: `step(now, event, &mut commands)` is all there is; the same events give the same commands.
//! What is served without asking is under a live lease (or, for data, no older than close-to-open allows). A
//! mutation keeps its sequence number however often it is sent. This crate must not know sockets, threads,
//! clocks or the kernel.
//!
//! Inside, each operation is one `async` function told from top to bottom, polled by the machine itself: it
//! waits for replies and timers of this machine, never for anything else.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("planted bugs must not reach a release build; build without the feature `mutants`");

mod again;
mod calls;
mod config;
mod context;
mod counters;
mod delegation;
mod event;
mod file;
mod machine;
mod mutant;
mod namespace;
mod operation;
mod run;
mod state;
mod tables;
#[cfg(test)]
mod tests;

pub use config::{AheadConfig, ClientConfig};
pub use counters::Counters;
pub use event::{Command, Event, Invalidation, Note, Target, Transport};
pub use machine::Client;
pub use mutant::Mutant;
pub use operation::{Advice, Answer, Found, Listed, OpenFile, Operation, Remaining, SeekTarget, Ticket};
