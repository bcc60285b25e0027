//! The machine: takes events, runs jobs, fetches what they lack, writes what they decide, and gives commands.
//! The only folder that sees all others.

mod adopt;
mod balance;
mod bounds;
mod census;
mod checkpoint;
mod claims;
mod collect;
mod compare;
mod compares;
mod damage;
mod delegations;
mod disk;
mod disk_state;
mod early;
mod early_state;
mod exit;
mod expire;
mod fetch;
mod job;
mod jobs;
mod leasing;
mod locks;
mod machine;
mod maintenance;
mod peers;
mod registers;
mod replicate;
mod request;
mod restore;
mod ring;
mod ring_state;
mod run;
mod space;
mod startup;
mod tablets_told;
mod takeovers;
mod upkeep;
mod usage;

pub use bounds::Bound;
pub use census::{Census, MemberCensus, TabletCensus};
pub use machine::{Counters, MetaServer};
pub use ring_state::RingView;
