//! Traces: what programs asked of a filesystem, read from what others recorded, line by line.
//!
//! Invariants: memory does not grow with a trace's length; no line makes a reader fail or panic: one that
//! cannot be understood is counted, and the first few are kept with their numbers; nothing is invented: what
//! a recording does not say (names behind ids, operations behind disk accesses) stays unsaid.

mod berkeley;
mod ellard;
mod event;
mod format;
mod handles;
mod hdfs;
mod juicefs;
mod microsoft;
mod plain;
mod reader;
mod tally;
#[cfg(test)]
mod tests;
mod time;

pub use event::{Event, Kind};
pub use format::Format;
pub use plain::{HEADER, line_of};
pub use reader::{Reader, TraceError};
pub use tally::{Malformed, Tally};
