//! Where things are: seats of directories, positions of names, tablets and who owns them, and how every
//! scheme divides the ring.
//!
//! Invariants: pure functions and immutable values. A child's position is a function of its directory's seat.
//! This crate must not know messages, machines or engines.

mod angle;
mod arcs;
mod assignment;
mod balance;
pub mod conformance;
mod draws;
#[cfg(test)]
mod laws;
mod load;
mod parameters;
pub mod partition;
mod sample;
mod scheme;
mod seat;

pub use angle::{AngleSeat, KEY_BYTES, Rank, Rings, Tag, coordinate_distance};
pub use arcs::{Arcs, Handover, NoArcs};
pub use assignment::{Assignment, AssignmentError, Tablet};
pub use balance::Balance;
pub use draws::Draws;
pub use load::Load;
pub use parameters::Parameters;
pub use partition::{Activated, Activation, BTree, Growth, SplitPoints, block_of_dotted, dotted};
pub use partition::{Hosts, Partition, PartitionError};
pub use sample::{Tree, random_walk};
pub use scheme::{Combination, LookupKind, PartitionKind, Scheme, Seating, UnknownScheme};
pub use seat::{NAME_BLOCK_BITS, Seat, position_of_chunk, position_of_session};
