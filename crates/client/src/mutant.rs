//! Planted bugs, chosen at run time, with which the simulator shows that its checkers notice.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// Answers a recall without dropping anything: goes on serving from what was recalled.
    ServeAfterRecall,
}
