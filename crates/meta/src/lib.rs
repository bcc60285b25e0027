//! The metadata server: one operation, one file, told top to bottom; around it a machine that loads what
//! operations need, logs what they decide, and answers when that is stable.
//!
//! Invariants: no I/O, no clock, no randomness; a reply leaves only after every record it depends on is
//! committed; nothing is served under a stale epoch; a request may wait for servers, never for a client. This
//! crate must not know sockets, disks or engines.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("planted bugs must not get into a release build: build without the feature `mutants`");

mod chunks;
mod config;
mod decide;
mod disk_space;
mod engine;
mod event;
mod lease;
mod memory;
mod mutant;
mod record;
pub mod recovery;
mod relays;
mod replication;
mod tablet;
mod txn;
mod view;
mod words;

pub use config::Config;
pub use disk_space::{DiskSpace, Headroom, reserve_bytes};
pub use engine::{Bound, Census, Counters, MemberCensus, MetaServer, RingView, TabletCensus};
pub use event::{AppendNumber, Command, Event, Failing, LoadResult, LoadTicket, Note, compared_pairs};
pub use mutant::Mutant;
pub use record::{
    CHECKPOINT_NODE, CheckpointHeader, CheckpointRecord, ChunkRecord, DirectoryContent, EntryKind,
    ExtentRecord, FragmentRecord, InboxRecord, ItemPlace, Key, LOG_VERSION, LogEntry, LoggedChange,
    NameEntry, NameRecord, NodeContent, NodeRecord, OutboxRecord, PrepareRecord, RECORD_VERSION, Reach,
    ReadCheckpoint, Record, RecordError, RecoverError, Recovered, RecoveredTablet, ReplyRecord, StreamError,
    UsageScan, read_checkpoint, recover,
};
pub use relays::{Asked, FilterView, HELD_MAX, Hop, Relays, Said};
