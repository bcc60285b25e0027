//! Whole clusters in one thread from one seed: the machines that production runs, in a simulated world with
//! faults.
//!
//! Invariants: the same seed and options give the same happenings, to the last byte, in every process (see
//! [`Report::hash`]); nothing of the machines is replaced or reached into, the simulator only plays their
//! shell. Checks mention no bug: they state promises.

mod audit;
mod boundary;
mod cases;
mod client_host;
mod clock;
mod cluster;
mod compare;
mod complaint;
mod coordinator;
mod counts;
mod crash_point;
mod data_disks;
mod data_host;
mod digest;
mod disks;
mod drill;
mod flow_host;
mod hunt;
mod kernel;
mod ledger;
mod life;
mod limits;
mod line;
mod meta_host;
mod model;
mod names;
mod nemesis;
mod network;
mod options;
mod outage;
mod post;
mod program;
mod recorder;
mod recovery;
mod ring;
mod servers;
mod sim;
mod tree;
mod witness;
mod worker;
mod world;

pub use boundary::Cut;
pub use cases::{BrokenCase, Case, Outcome, Sequence, Tally};
pub use complaint::{Complaint, Promise};
pub use counts::Counts;
pub use hunt::{Hunt, Track};
pub use options::{Options, Planted};
pub use sim::{Report, run, run_caught};
