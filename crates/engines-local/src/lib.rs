//! The engines of one machine: entries in fjall, logs and chunks in files, the coordinator in a redb file.
//!
//! Invariants: every directory and file carries its format's version, and a newer one is refused before
//! anything is changed; a directory is held by one process at a time; what a trait calls stable has been
//! synced, with its name, when the call returns. The formats are described in docs/formats. This crate must
//! not know what the stored bytes mean.

mod chunk_log;
mod coordinator;
mod device;
mod directory;
#[cfg(test)]
mod small_disk;
mod store;
mod tablet_log;

pub use chunk_log::{ChunkReader, FileChunkLog, lane_of};
pub use coordinator::RedbCoordinator;
pub use directory::Format;
pub use store::FjallStore;
pub use tablet_log::FileTabletLog;
