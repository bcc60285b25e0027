//! The coordinator in etcd (3.5.14 or newer). Consensus is etcd's; this only lays registers out in its keys,
//! and asks another member when one is silent.
//!
//! Must not know what registers hold.

mod coordinator;
mod layout;
mod members;
mod watch;

pub use coordinator::EtcdCoordinator;
pub use members::{EtcdMembers, EtcdTls};
pub use watch::{Heard, Watch};
