//! What transactions and queued items between tablets have under way: locked keys, what this tablet takes
//! part in, what it coordinates, what it has queued. Votes that are waited for stay with the job that asked.

mod coordinated;
mod key_locks;
mod participant;
mod queue;

pub(crate) use coordinated::Coordinated;
pub(crate) use key_locks::KeyLocks;
pub(crate) use participant::Participant;
pub(crate) use queue::{Delivery, Queue};
