//! What the client knows and waits for. Each file owns the data of one thing and says by a few methods what
//! is to be done; none of them knows the others' users, so whatever concerns several stands above, over
//! `context.rs`.

mod data_requests;
pub(crate) mod files;
pub(crate) mod lease;
pub(crate) mod lent;
mod locks;
mod recalls;
mod requests;
mod routes;
mod session;
mod transport;

pub(crate) use data_requests::{DataAnswer, DataFailure, DataRequests};
pub(crate) use locks::{Holder as LockHolder, Locks, Woken};
pub(crate) use recalls::{Hold, Recalls};
pub(crate) use requests::{Answered, Requests};
pub(crate) use routes::Routes;
pub(crate) use session::{Phase, Session};
