//! The filesystem under a directory of this machine: kernel requests become operations of a
//! [`bearing_mount::Mount`], answers become replies.
//!
//! Invariants: no policy, the client machine decides what is cached, sent and retried. Permission is checked
//! by the kernel with our attributes (`default_permissions`) and again by the servers. Names that do not
//! exist are never remembered by the kernel, because nothing would recall that. Locks are shared between
//! clients unless the mount says otherwise (see [`Locks`]). This crate must not know messages, servers or the
//! network.

mod attributes;
mod bridge;
mod directories;
mod errno;
#[cfg(test)]
mod fake;
mod files;
mod filesystem;
mod gate;
mod groups;
mod inodes;
mod kernel;
mod listing;
#[cfg(test)]
mod live;
mod locks;
mod mounted;
mod options;
mod point;
mod space;
mod xattrs;

pub use errno::number as error_number;
pub use mounted::{MountError, Mounted, Unmounter, mount_blocking, spawn};
pub use options::{
    Locks, Occupied, OptionError, Options, THREADS_MAX, TRASH_DAYS_MAX, Trusted, Users, Writing,
};
pub use point::{PointError, check_device};
