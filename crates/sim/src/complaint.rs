//! What is said when a promise is broken, and which promise it is.
//!
//! Promises are named by what holds, never by what could break them: that a planted bug is found through a
//! rule that does not mention it is the proof that the rule is worth something.

use std::fmt;

/// A promise that a run is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// One of the rules by which the history is checked at the end.
    History(bearing_workload::Rule),
    /// A tablet has one owner in each epoch, and epochs only grow.
    OneOwner,
    /// The records of a tablet follow each other without a gap.
    LogOrder,
    /// Every record that was written can be read.
    Readable,
    /// A change becomes stable once.
    CommittedOnce,
    /// No id is given to two nodes: it is given out stably before a node has it.
    IdsOnce,
    /// What has a name exists.
    NamedExists,
    /// A directory has one name, where it says.
    OneName,
    /// A link count is never below the number of names.
    LinkCount,
    /// A fragment counts what is in it.
    FragmentCount,
    /// What was removed holds nothing.
    DeadIsEmpty,
    /// From every directory the parents lead to the root.
    NoLoop,
    /// What is decided was prepared, stably, everywhere.
    Prepared,
    /// When nothing happens any more, nothing is left half done.
    Settled,
    /// A server's store holds what is stable, and nothing else.
    StoreHolds,
    /// A server serves from its own disk as it is now, and from no other.
    RightDisk,
    /// Nobody waits for ever.
    NoEndlessWait,
    /// Who came first to change something runs first, as soon as nobody else has it.
    FirstServed,
    /// When nothing is wrong any more, everything works.
    Works,
    /// What was synced can be read.
    SyncedIsKept,
    /// What a flush said is well is part of the file, what a sync said is stable.
    Flushed,
    /// Space that nobody refers to any more comes back.
    SpaceReturns,
    /// Every sealed chunk has all its copies, and they are the same.
    Copies,
    /// No seal gives up a frame that a server holds that is not lost.
    SealKeeps,
    /// What a client sends is what its programs asked for.
    Wire,
    /// No kernel goes by a name that somebody else has changed.
    KernelForgot,
    /// Whatever servers keep for others stays within its limits.
    Bounded,
    /// What needs only servers that are there, or are back, is done within a stated time.
    InTime,
    /// When nothing is wrong any more, the neighbours of a server on the ring are those that are there, and
    /// so are those with filters.
    Linked,
    /// When nothing is wrong any more, servers have as many tablets one as another, and who leaves has none.
    Even,
    /// What data servers hold is enough to make all metadata anew.
    Recovered,
    /// What a client decides in a delegated directory its servers do.
    DecidedAlike,
    /// No machine stops because it does not know what to do.
    NoPanic,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Which.
    pub promise: Promise,
    /// What was seen, when, where.
    pub what: String,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::History(rule) => write!(f, "{rule:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}
