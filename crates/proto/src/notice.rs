//! What servers say to clients unasked, and the clients' answers: recalls of leases, open-state queries of
//! open files, locks that are free.

use bearing_types::{Block, Epoch, NameHash, NodeId, Sequence};
use serde::{Deserialize, Serialize};

/// What is leased to a client, and recalled when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LeaseKey {
    /// A directory's access attributes and seat.
    Access(NodeId),
    /// What a name names.
    Name(NodeId, NameHash),
    /// A file's attributes and cached data.
    File(NodeId),
    /// A directory's content: its times and counts.
    Content(NodeId),
    /// A delegated directory: its entries, and what was made in it since.
    Delegation(NodeId),
    /// What all names of a directory name that was delegated and given back: the kernel of who had it goes by
    /// them for a moment longer.
    Names(NodeId),
}

/// From a server to a client: stop using these, then say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    /// The tablet that recalls.
    pub tablet: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// Identifies the recall within the epoch.
    pub number: u64,
    /// What is recalled; empty: everything of the tablet.
    pub keys: Vec<LeaseKey>,
}

/// From a client to a server: neither the client nor its kernel serves from what was recalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalled {
    /// The tablet that recalled.
    pub tablet: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// The recall.
    pub number: u64,
    /// When `open` was gathered, the client had taken, or given up, the replies to all requests below this
    /// one: a file that it got by a later one may be open although it is not named.
    pub finished_below: Sequence,
    /// Of the recalled files, those that the client has open: their nodes must outlive their last link.
    pub open: Vec<NodeId>,
}

/// From a server to a client: which of these files are open? Nothing is dropped, and asking twice does no
/// harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStateQuery {
    /// The tablet that asks.
    pub tablet: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// Identifies the open-state query within the epoch.
    pub number: u64,
    /// The files; empty: all files of the tablet.
    pub nodes: Vec<NodeId>,
}

/// From a client to a server: these are open, and their release will be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenState {
    /// The tablet that asked.
    pub tablet: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// The open-state query.
    pub number: u64,
    /// As in [`Recalled`].
    pub finished_below: Sequence,
    /// Of the files asked for, those that the client has open.
    pub open: Vec<NodeId>,
}

/// Identifies the wait of a client for a lock within its session. Chosen by the client, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WaitId(pub u64);

/// From a server to a client: a lock that it waits for is free, and kept for it for a short time. A hint: who
/// hears nothing asks again all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFree {
    /// The file.
    pub node: NodeId,
    /// The wait.
    pub wait: WaitId,
}
