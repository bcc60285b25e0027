//! What tidy found, and how it says so.

use std::collections::BTreeSet;
use std::fmt;

/// One thing that is wrong: where, what was seen, what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What was seen.
    pub seen: String,
    /// What to do instead.
    pub instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    instead: {}", self.path, self.line, self.seen, self.instead)
    }
}

/// All that was found: in order of place, each once.
#[derive(Debug, Default)]
pub struct Findings {
    all: BTreeSet<Finding>,
}

impl Findings {
    /// Adds one.
    pub fn add(&mut self, path: &str, line: usize, seen: impl Into<String>, instead: impl Into<String>) {
        self.all.insert(Finding { path: path.to_owned(), line, seen: seen.into(), instead: instead.into() });
    }

    /// They in order.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}
