//! What the client knows and waits for. Each file owns the data of one thing and says by a few methods what is to be
//! done; none of them knows the others' users, so whatever concerns several stands above, over `context.rs`.

pub(crate) mod data_requests;
pub(crate) mod files;
pub(crate) mod lease;
pub(crate) mod lent;
pub(crate) mod locks;
pub(crate) mod recalls;
pub(crate) mod requests;
pub(crate) mod routes;
pub(crate) mod session;
mod transport;
