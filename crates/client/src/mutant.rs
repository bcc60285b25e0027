//! Planted bugs, chosen at run time, with which the simulator shows that its checkers notice.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// Answers a recall without dropping anything: goes on serving from what was recalled.
    ServeAfterRecall,
    /// Answers that a directory was given back while what was decided in it is still on its way, and goes on
    /// deciding there.
    AnswerBeforeSteps,
    /// Says that a sync is done while what was decided in delegated directories is still on its way.
    SyncBeforeSteps,
    /// Forgets what was written to a file, and not sent, when the file is recalled or its delegated directory
    /// is called back.
    DirtyForgotten,
    /// Commits at a sync what data servers were not asked to keep.
    SyncWithoutData,
    /// Gives what was fetched ahead by its offset in the file, whatever lies there by now.
    AheadByOffset,
}

impl Mutant {
    /// All of them, with the names used on command lines.
    pub const ALL: [(&'static str, Mutant); 6] = [
        ("serve-after-recall", Mutant::ServeAfterRecall),
        ("answer-before-steps", Mutant::AnswerBeforeSteps),
        ("sync-before-steps", Mutant::SyncBeforeSteps),
        ("dirty-forgotten", Mutant::DirtyForgotten),
        ("sync-without-data", Mutant::SyncWithoutData),
        ("ahead-by-offset", Mutant::AheadByOffset),
    ];

    /// Whether it shows only in delegated directories.
    pub fn is_of_delegation(self) -> bool {
        matches!(self, Mutant::AnswerBeforeSteps | Mutant::SyncBeforeSteps | Mutant::DirtyForgotten)
    }
}
