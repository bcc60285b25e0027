//! The client machine under the threads of a program: [`Mount`] runs operations, [`session::Session`] gives
//! them paths, and a [`KernelCache`] above is made to forget what servers recall.
//!
//! Invariants: the thread that asks waits for the socket itself (leader and followers); invalidations have a
//! thread of their own, outside every lock. No policy: what is cached, sent again or given up is the
//! machine's to decide. This crate must not know FUSE.

mod caller;
mod config;
mod core;
mod kernel_cache;
mod line;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
mod mount;
mod path;
mod post;
mod probe;
mod quoted;
pub mod session;
pub mod trash;

pub use bearing_client::{
    Answer, ClientConfig, Counters as ClientCounters, Found, Listed, Note, OpenFile, Operation, Remaining,
    SeekTarget,
};
pub use bearing_proto::client::{
    AttributeChange, CheckDepth, ChunkFate, ChunkRef, ChunkReport, Detail, Extent, Handle, NewNode,
    QuotaView, RenameMode, ReplicaState, StatfsView, TimeChange, XattrChange, XattrMode,
};
pub use bearing_proto::enrolment::Enrolment;
pub use bearing_proto::keys::Key;
pub use bearing_proto::sessions::SessionDescription;
pub use caller::{Caller, into_found};
pub use config::{Consistency, MountConfig};
pub use kernel_cache::KernelCache;
pub use mount::{ConnectError, Mount, MountCounters};
pub use probe::Seen;
pub use quoted::quoted;
