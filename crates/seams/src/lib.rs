//! The seams: traits between the machines and the engines that keep bytes, and their data types.
//!
//! Invariants: a seam has few methods, one conformance suite ([`conformance`]) that every engine runs, and no
//! policy. Engines may fail at any call; after a failed sync or flush the caller stops accepting writes. This
//! crate must not know any engine.

mod chunk_log;
pub mod conformance;
mod coordinator;
mod disk_label;
mod error;
mod mem;
mod store;
mod tablet_log;
mod unapplied;

pub use chunk_log::{ChunkEntry, ChunkLog, End};
pub use coordinator::{Changes, Coordinator, Entry, Found, REMOVALS_KEPT, RegisterChange, Swap};
pub use disk_label::DiskLabel;
pub use error::{EngineError, EngineResult};
pub use mem::{CrashFault, MemChunkLog, MemCoordinator, MemStore, MemTabletLog};
pub use store::{Change, KeyRange, Pair, Pairs, Store};
pub use tablet_log::{LogMark, LoggedRecord, TabletLog};
pub use unapplied::{Cut, Unapplied};
