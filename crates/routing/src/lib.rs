//! Networks and what flows over them: topologies, shortest paths, max-min fair shares, which replica and
//! path a read takes, and where copies of a new chunk go.
//!
//! Invariants: pure functions and plain values, no clock and no draws but from seeds that are given.
//! Mayflower (sections IV and VI) is the source of estimates and choices. This crate must not know messages,
//! machines or engines.

mod choose;
mod estimates;
mod host_loads;
mod paths;
mod pieces;
mod placing;
mod rate;
mod shares;
mod topology;

pub use choose::{Choice, Part, Read, SELECTIONS, Selection, UnknownSelection};
pub use estimates::{Carrier, Estimates, FLOWS_MAX, Lifted, Price, Undo};
pub use host_loads::HostLoads;
pub use paths::{PATHS_MAX, Path, Paths, Route, Routes};
pub use pieces::Pieces;
pub use placing::{Placed, Placing, Write};
pub use rate::Rate;
pub use shares::{FlowId, Shares};
pub use topology::{
    Description, End, Hop, Item, LinkId, NoTree, PLACES_MAX, Peer, Place, Port, Shape, SwitchId, SwitchTree,
    Tier, Topology, TopologyError, TreeNode, Wiring,
};
