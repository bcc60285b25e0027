//! What is leased to this client, and which answers may lease anything.

pub(crate) mod cache;
pub(crate) mod held;
pub(crate) mod leases;
mod names;
pub(crate) mod trails;
