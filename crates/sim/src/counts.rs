//! What happened how often: faults, crash points, protocol steps. A kind that never happens in a whole run fails the run.

use std::collections::BTreeMap;
use std::fmt;

/// Sums by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// One more.
    pub fn add(&mut self, name: &str) {
        self.add_many(name, 1);
    }

    /// So many more.
    pub fn add_many(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += count,
            None => {
                self.0.insert(name.to_owned(), count);
            }
        }
    }

    /// How often.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All names with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Adds the sums of another run.
    pub fn absorb(&mut self, other: &Counts) {
        for (name, count) in other.iter() {
            self.add_many(name, count);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.iter() {
            writeln!(f, "  {count:>9}  {name}")?;
        }
        Ok(())
    }
}
