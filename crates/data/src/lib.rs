//! The data server: chunks as append-only logs of frames, replicated by a primary, fenced and sealed by
//! metadata servers.
//!
//! Invariants:
//!
//! - A chunk's log is the same bytes on all of its servers, as far as it reaches: only the first server of
//!   the chunk orders appends, and a server that restarted orders and takes none any more.
//! - A chunk's name is stable on a server before that server acknowledges anything of it, and on the primary
//!   before any other server hears of it.
//! - That a server does not know a chunk says nothing of the chunk: its disk may have been emptied, or be an
//!   older one.
//! - No byte is given out that does not fit its frame's checksum.
//! - Nothing is answered "done" that a restart in between may have undone.
//!
//! The machine is I/O-free: events in, commands out, see [`DataServer`]. It must not know files, sockets,
//! clocks, or what a file or directory is.

mod append;
mod backup;
mod census;
mod check;
mod chunk;
mod claim;
mod config;
mod copy;
mod counters;
mod event;
mod fetch;
mod frames;
mod primary;
mod read;
mod scan;
mod scrub;
mod seal;
mod server;
mod state;
mod sync;

#[cfg(test)]
mod tests;

pub use census::Census;
pub use claim::{Claim, Claimed};
pub use config::Config;
pub use counters::Counters;
pub use event::{Command, Event, LogCommand, Note, Payload, Start, Ticket};
pub use server::DataServer;
