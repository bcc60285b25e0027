//! Everything that is decided: operations of clients, parts of transactions, deferred operations, questions
//! of other tablets, chores. Who decides reads and writes through a [`View`](crate::view::View), and knows no
//! machine: it may run many times, and leaves nothing behind until it comes to an end.

mod checkpoint;
pub(crate) mod collect;
mod deferred;
pub(crate) mod maintenance;
pub(crate) mod ops;
mod participants;
mod questions;
pub(crate) mod rules;
mod session_end;
mod work;

pub(crate) use checkpoint::{CheckpointOutcome, CheckpointStep};
pub(crate) use session_end::SessionEnd;
pub(crate) use work::{Decided, JobWork, decide};
