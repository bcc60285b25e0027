//! Planted bugs of the kinds people make, chosen at run time, to show that the simulator finds them through
//! invariants that do not mention them. Never part of a release build.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A change does not look for leases of others.
    ForgottenLeaseCheck,
    /// A request that comes later does not let those pass that have waited for the same.
    LatecomerFirst,
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
    /// A member says that it has synced what it has only logged.
    AcknowledgeBeforeSync,
    /// An entry is committed when one member has it, not when all have.
    CommitWithoutSlowest,
    /// The record of an epoch takes nothing from members that have more than the new owner.
    AdoptWithoutCutting,
    /// After its own start a server takes over at once from owners that it has not heard.
    NoGraceAfterRestart,
    /// A lease between servers counts from when an answer arrived.
    LeaseFromReceipt,
    /// A late answer renews the lease like a new one.
    LateStampRenews,
    /// A member applies what it has synced.
    ApplyBeforeCommit,
    /// A learner becomes a member when it has its snapshot.
    LearnerCounted,
    /// A checkpoint has what was read of the store, and nothing that changed meanwhile.
    CheckpointWithoutTail,
    /// An owner that was restarted goes on under the epoch that it had.
    EpochResumed,
    /// A tablet speaks also when its members do not leave it to its owner.
    ReplyAfterLeaseEnd,
    /// The same only towards other servers.
    AnswerToPeerWithoutLease,
    /// A new owner does not ask those who may hold leases of the one before it.
    HorizonForgotten,
    /// When a member is left out, the owner leaves out another one too.
    WrongMembersAfterSwapOut,
    /// An epoch of which nothing has to be written again has no record.
    NoEpochRecord,
    /// What is prepared is not written again under the new epoch.
    SuffixUnderOldEpoch,
    /// A server that starts finds what the record of an epoch voids.
    VoidRuleOff,
    /// An owner that left a tablet to another member serves it on as long as it is a member itself.
    ServeAfterHandover,
    /// A server that does not own what it is asked answers itself, instead of passing it on or referring it.
    RelayAnswersItself,
    /// A server that passes a request on changes the epoch that it was sent under.
    RelayChangesEpoch,
}

impl Mutant {
    /// All of them, with the names used on command lines.
    pub const ALL: [(&'static str, Mutant); 36] = [
        ("forgotten-lease-check", Mutant::ForgottenLeaseCheck),
        ("latecomer-first", Mutant::LatecomerFirst),
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
        ("acknowledge-before-sync", Mutant::AcknowledgeBeforeSync),
        ("commit-without-slowest", Mutant::CommitWithoutSlowest),
        ("adopt-without-cutting", Mutant::AdoptWithoutCutting),
        ("no-grace-after-restart", Mutant::NoGraceAfterRestart),
        ("lease-from-receipt", Mutant::LeaseFromReceipt),
        ("late-stamp-renews", Mutant::LateStampRenews),
        ("apply-before-commit", Mutant::ApplyBeforeCommit),
        ("learner-counted", Mutant::LearnerCounted),
        ("checkpoint-without-tail", Mutant::CheckpointWithoutTail),
        ("epoch-resumed", Mutant::EpochResumed),
        ("reply-after-lease-end", Mutant::ReplyAfterLeaseEnd),
        ("horizon-forgotten", Mutant::HorizonForgotten),
        ("answer-to-peer-without-lease", Mutant::AnswerToPeerWithoutLease),
        ("wrong-members-after-swap-out", Mutant::WrongMembersAfterSwapOut),
        ("no-epoch-record", Mutant::NoEpochRecord),
        ("suffix-under-old-epoch", Mutant::SuffixUnderOldEpoch),
        ("void-rule-off", Mutant::VoidRuleOff),
        ("serve-after-handover", Mutant::ServeAfterHandover),
        ("relay-answers-itself", Mutant::RelayAnswersItself),
        ("relay-changes-epoch", Mutant::RelayChangesEpoch),
    ];

    /// Whether it shows only with several copies of each tablet.
    pub fn is_of_copies(self) -> bool {
        self >= Mutant::AcknowledgeBeforeSync
    }
}
