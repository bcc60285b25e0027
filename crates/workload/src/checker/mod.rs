//! Checks what clients were told against the order that the tablets' logs give. It verifies that order; it
//! does not search for one.
//!
//! - A change that went well has exactly one commit, between its call and its return; one that was refused
//!   has none; one that was never answered has at most one.
//! - Done in the order of the witness, every change gives exactly the answer that its client saw.
//! - Every other answer (reads, refusals) is what the oracle says at *some* point between call and return.
//! - An acknowledged record of a log is in it once, whole, and behind every record that was acknowledged
//!   before it was written.
//! - Nobody has a lock while somebody else has one that conflicts.
//! - A listing holds every name that was there throughout, none that never was, none twice.
//!
//! Allowed beside that, as the promises say: a refusal, a lookup and a listing may see permission bits of
//! another point of the call than names; so may the sticky rule see the owner of the entry; counts of a
//! directory may be late; so may the size of a file that another client has open for writing; a file that is
//! read shows at least what was committed before it was opened, and the reader's own writes.

mod appends;
mod listing;
mod locks;
mod reads;
mod replay;
mod timeline;
mod tree;
mod violation;

use crate::{History, Law, Oracle, WitnessEvent};
use bearing_types::{Access, NodeId};
use std::collections::BTreeSet;
use std::time::Duration;

pub use appends::Record;
pub use tree::{Observed, compare_tree};
pub use violation::{Rule, Violation};

/// What to check against.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The root directory.
    pub root: NodeId,
    /// Its mode and owner at the beginning.
    pub root_access: Access,
    /// How late counts of directories may be.
    pub counts_late: Duration,
    /// What a directory's size shows for each entry, if it is to be compared.
    pub entry_bytes: Option<u64>,
    /// How much is asked of refusals.
    pub law: Law,
}

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// What was broken, in the order found. Empty: nothing.
    pub violations: Vec<Violation>,
    /// The filesystem after all changes of the witness.
    pub oracle: Oracle,
    /// How many answers were checked.
    pub answers: u64,
}

impl Check {
    /// Checks a history against its witness.
    pub fn run(&self, history: &History, witness: &[WitnessEvent]) -> Checked {
        let mut replay = replay::Replay::new(self, history);
        replay.run(witness);
        let replay::Replay { oracle, timeline, mut violations, unmade, made, told, .. } = replay;
        let reader = reads::Reader { check: self, history, timeline: &timeline, made: &made };
        for (index, entry) in history.entries.iter().enumerate() {
            let refused = unmade.contains(&index);
            if let Err(violation) = reader.check(index, entry, refused) {
                violations.push(violation);
            }
        }
        for (index, point, view) in told {
            if let Err(violation) = reader.check_told(index, &history.entries[index], point, &view) {
                violations.push(violation);
            }
        }
        for log in history.appends.iter().map(|append| append.log).collect::<BTreeSet<_>>() {
            violations.extend(appends::check(&oracle, log, &history.appends));
        }
        violations.extend(locks::check(&history.locks));
        Checked { violations, oracle, answers: history.entries.len() as u64 }
    }
}

#[cfg(test)]
mod tests;
