//! What the client knows and waits for. Each file owns the data of one thing and says by a few methods what
//! is to be done; none of them knows the others' users, so whatever concerns several stands above, over
//! `context.rs`.

mod ahead;
mod data_requests;
pub(crate) mod files;
mod flow;
pub(crate) mod lease;
pub(crate) mod lent;
mod locks;
mod nearness;
mod recalls;
mod requests;
mod routes;
mod session;
mod transport;

pub(crate) use ahead::{Ahead, Fetch, Found, LoopId, Plan, Source, StreamId};
pub(crate) use data_requests::{DataAnswer, DataFailure, DataRequests};
pub(crate) use flow::{FlowAnswer, FlowRequests};
pub(crate) use locks::{Holder as LockHolder, Locks, Woken};
pub(crate) use nearness::{Nearness, nearness};
pub(crate) use recalls::{Hold, Recalls};
pub(crate) use requests::{Answered, Requests};
pub(crate) use routes::Routes;
pub(crate) use session::{Phase, Session};
