//! Crash points: the named steps that machines tell, each of which may be the last thing that its process
//! does.

use crate::counts::{Counts, MORTAL};
use bearing_workload::Seeded;
use std::collections::BTreeMap;

/// Steps that most runs do not get to.
const RARE: [&str; 12] = [
    "presumed abort",
    "tablet left",
    "entries are void",
    "void entries are stable",
    "a move is given up",
    "a yielded tablet is taken",
    "silent session ended",
    "session open",
    "all flushed, session not closed",
    "copy refused",
    "bytes that nobody has noted",
    "compaction called off",
];

/// Draws at which step a process dies. Steps that are rare in a run are met by a crash more often, so that
/// all are met in a few hundred runs.
#[derive(Debug, Default)]
pub struct CrashPoints {
    /// How often of a million, roughly, a step is the last.
    pub per_million: u64,
    seen: BTreeMap<&'static str, u64>,
}

impl CrashPoints {
    /// A step was told. Gives whether the process dies here.
    pub fn meet(&mut self, counts: &mut Counts, rng: &mut Seeded, whose: &str, name: &'static str) -> bool {
        counts.add(&format!("step: {whose}{name}"));
        if self.per_million > 0 {
            counts.add(&format!("{MORTAL}{whose}{name}"));
        }
        let seen = self.seen.entry(name).or_default();
        *seen += 1;
        let often = if RARE.contains(&name) { 32 } else { 1 };
        let chance = often * (self.per_million / 8 + self.per_million * 16 / (1 + *seen));
        // What follows a rare step is rare too, and is to be met as well.
        let dies = self.per_million > 0 && rng.chance(chance.min(500_000), 1_000_000);
        if dies {
            counts.add(&format!("crash at: {whose}{name}"));
        }
        dies
    }
}
