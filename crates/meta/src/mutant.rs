//! Planted bugs of the kinds people make, chosen at run time, to show that the simulator finds them through
//! invariants that do not mention them. Never part of a release build.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A change does not look for leases of others.
    ForgottenLeaseCheck,
    /// A repeated request is executed again.
    DoubleExecution,
    /// Changes reach the store before the log is synced.
    WrongSyncOrder,
    /// A create is accepted in a directory that was removed.
    GrantAfterRmdir,
    /// A change in a directory is accepted under a grant from before its last chmod or chown.
    GrantAfterChmod,
    /// A reply leaves before its record is committed.
    ReplyBeforeCommit,
    /// A change keeps its keys locked while it waits for a recall, instead of dropping everything and
    /// answering "retry". With a client whose kernel cannot drop a name of a directory while an operation of
    /// its own in that directory is under way (as real kernels do: both need the directory's inode lock), two
    /// clients wait for each other for ever.
    RecallWhileHolding,
    /// A lease that ended unrenewed is taken for a file that was closed: the last unlink frees it under a
    /// client that was cut off for a while.
    ForgottenOpener,
    /// A lock is given although somebody else holds one that conflicts.
    LockTwice,
    /// A server takes any disk for its own, also an empty one, another server's or one from long ago.
    AnyDisk,
    /// A request that comes again is one more job, jobs end only when they are run, and whoever comes first
    /// takes all of them.
    EveryCopyAJob,
    /// An answer of the coordinator that is late is forgotten, and the question asked anew.
    LateAnswerForgotten,
    /// After a take-over a change waits for every session that ever held a lease.
    WaitForEverybody,
    /// A chunk is sealed where the first damage of the shortest replica is that answers.
    SealAtShortest,
    /// A data server that does not know a chunk counts as one that knows that it is empty.
    UnknownIsEmpty,
}

impl Mutant {
    /// All of them, with the names used on command lines.
    pub const ALL: [(&'static str, Mutant); 15] = [
        ("forgotten-lease-check", Mutant::ForgottenLeaseCheck),
        ("double-execution", Mutant::DoubleExecution),
        ("wrong-sync-order", Mutant::WrongSyncOrder),
        ("grant-after-rmdir", Mutant::GrantAfterRmdir),
        ("grant-after-chmod", Mutant::GrantAfterChmod),
        ("reply-before-commit", Mutant::ReplyBeforeCommit),
        ("recall-while-holding", Mutant::RecallWhileHolding),
        ("forgotten-opener", Mutant::ForgottenOpener),
        ("lock-twice", Mutant::LockTwice),
        ("any-disk", Mutant::AnyDisk),
        ("every-copy-a-job", Mutant::EveryCopyAJob),
        ("late-answer-forgotten", Mutant::LateAnswerForgotten),
        ("wait-for-everybody", Mutant::WaitForEverybody),
        ("seal-at-shortest", Mutant::SealAtShortest),
        ("unknown-is-empty", Mutant::UnknownIsEmpty),
    ];
}
