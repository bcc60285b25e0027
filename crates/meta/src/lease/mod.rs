//! Who may rely on what: leases, open files, who waits for locks of files, and which of that a later owner
//! has to wait for.

mod delegations;
mod horizon;
mod leases;
mod lock_table;
mod opens;
mod parked;
mod turns;

pub(crate) use delegations::Delegations;
pub(crate) use horizon::{Cover, Horizon};
pub(crate) use leases::{LeaseTable, Offer, RecallWish};
pub(crate) use lock_table::LockTable;
pub(crate) use opens::{OpenStateWish, OpenTable, Word};
