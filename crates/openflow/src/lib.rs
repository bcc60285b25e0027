//! Flow tables as data: blocks of the ring as prefixes that switches match, the steps from one table to the
//! next, and a soft switch that says where a packet goes.
//!
//! Invariants: a table is an immutable value; no step of a change leads a packet to a server that neither the
//! old nor the new table means. This crate must not know messages, machines or engines; the codec of OpenFlow
//! 1.3 is not here yet.

mod compress;
mod differ;
pub mod ovs;
mod ranges;
mod soft_switch;
mod table;
#[cfg(test)]
mod testing;

pub use compress::compressed;
pub use differ::{Change, Edit, Step, change};
pub use soft_switch::{Fate, SoftNetwork};
pub use table::{Budget, FlowEntry, FlowTable, Form, Output, Pieces, TableError, Tables, disjoint, tables};
