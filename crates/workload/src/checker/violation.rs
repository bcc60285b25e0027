//! What is said about a broken promise.

use crate::Entry;
use std::fmt;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A change went well, but no log holds it.
    NeverCommitted,
    /// A change was made twice.
    CommittedTwice,
    /// A change became stable before its call or after its return.
    CommittedOutsideCall,
    /// A change was refused, but it was made.
    RefusedButCommitted,
    /// A change was made that nobody asked for.
    NobodyAsked,
    /// A change was made that the state at its place in the order refuses.
    ImpossibleChange,
    /// A node id was given out twice.
    NodeIdReused,
    /// A change was answered with something else than what it did.
    WrongAnswer,
    /// A link count was lowered after the reply, or twice.
    LinkDrop,
    /// An answer fits no point between call and return.
    WrongRead,
    /// A refusal fits no point between call and return.
    WrongRefusal,
    /// A listing lacks a name that was there throughout.
    ListingLacks,
    /// A listing holds a name that never was there, or names the wrong node.
    ListingInvents,
    /// A listing holds a name twice.
    ListingRepeats,
    /// A log holds something that is no whole record, or one that nobody wrote.
    AppendTorn,
    /// A log holds a record twice.
    AppendRepeats,
    /// A log lacks a record whose flush was answered.
    AppendLost,
    /// A log holds a record before one that was acknowledged earlier.
    AppendOrder,
    /// Two had locks that conflict at the same time.
    LockedTwice,
    /// The tree at the end is not what the changes made it.
    WrongTree,
}

/// A broken promise, told so that a person can find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// The place in the history of what was answered wrongly, if one answer is to blame.
    pub entry: Option<usize>,
    /// What was expected, what was seen, where.
    pub message: String,
}

impl Violation {
    /// A violation by one entry of the history.
    pub fn of(rule: Rule, index: usize, entry: &Entry, message: impl fmt::Display) -> Violation {
        let message = format!("{}: {message}", Told(index, entry));
        Violation { rule, entry: Some(index), message }
    }

    /// A violation that no single entry is to blame for.
    pub fn general(rule: Rule, message: impl fmt::Display) -> Violation {
        Violation { rule, entry: None, message: message.to_string() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.message)
    }
}

/// An entry in one line.
struct Told<'a>(usize, &'a Entry);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told(index, entry) = self;
        let from = entry.invoked.0 / 1000;
        write!(f, "[{index}] client {} at {from} us", entry.client.0)?;
        match entry.returned {
            Some(returned) => write!(f, " to {} us, {:?}", returned.0 / 1000, entry.event),
            None => write!(f, ", never answered, {:?}", entry.event),
        }
    }
}
