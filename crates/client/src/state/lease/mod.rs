//! What is leased to this client, and which answers may lease anything.

mod cache;
mod held;
mod leases;
mod names;
mod trails;

pub(crate) use cache::{Cache, Directory, Named, Seen, node_keys};
pub(crate) use held::Held;
pub(crate) use leases::{Leases, Mark, Stamp};
pub(crate) use trails::Trails;
