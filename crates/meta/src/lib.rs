//! The metadata server: one operation, one file, told top to bottom; around it a machine that loads what operations need, logs what they decide, and
//! answers when that is stable.
//!
//! Invariants: no I/O, no clock, no randomness; a reply leaves only after every record it depends on is committed; nothing is served under a stale
//! epoch; a request may wait for servers, never for a client. This crate must not know sockets, disks or engines.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("planted bugs must not get into a release build: build without the feature `mutants`");

mod answers;
mod apply;
mod arriving;
mod bounds;
mod cache;
mod collect;
mod config;
mod context;
mod delegations;
mod disk;
mod disk_space;
mod disk_state;
mod event;
mod expire;
mod extents;
mod fetch;
mod file_extents;
mod file_locks;
mod handover;
mod horizon;
mod ids;
mod job;
mod jobs;
mod key;
mod lease;
mod leasing;
mod lock_table;
mod locks;
mod machine;
mod marks;
mod mutant;
mod namespace;
mod older;
mod opens;
mod ops;
mod parts;
mod peers;
mod permission;
mod questions;
mod quota_table;
mod quotas;
mod record;
mod recover;
mod registers;
mod replies;
mod request;
mod run;
mod space;
mod startup;
mod tablet;
mod tend;
mod tending;
mod upkeep;
mod usage;
mod view;
mod words;
mod works;
mod xattrs;

pub use bounds::Bound;
pub use config::Config;
pub use disk_space::{DiskSpace, Headroom, reserve_bytes};
pub use event::{AppendNumber, Command, Event, LoadResult, LoadTicket, Note};
pub use horizon::Reach;
pub use key::Key;
pub use machine::{Counters, MetaServer};
pub use mutant::Mutant;
pub use record::{
    ChunkRecord, DirectoryContent, ExtentRecord, FragmentRecord, InboxRecord, LOG_VERSION, LogEntry,
    LoggedChange, Looked, NameEntry, NameRecord, NodeContent, NodeRecord, OutboxRecord, PrepareRecord,
    RECORD_VERSION, Record, RecordError, ReplyRecord,
};
pub use recover::{RecoverError, Recovered, RecoveredTablet, recover};
pub use tend::ChunkTally;
