//! What came of many crash cases.

use super::{Case, Outcome, Sequence};
use crate::boundary::Cut;
use crate::complaint::Complaint;
use crate::options::Options;
use std::collections::BTreeMap;
use std::fmt;

/// A case that broke a promise.
pub struct BrokenCase {
    /// Which.
    pub case: Case,
    /// What it broke.
    pub complaints: Vec<Complaint>,
}

/// See the module.
#[derive(Default)]
pub struct Tally {
    sequences: u64,
    cases: u64,
    by_kind: BTreeMap<(Cut, bool), u64>,
    boundaries: Vec<u32>,
    decided: u64,
    steps_lost: u64,
    records_lost: u64,
    records_kept: u64,
    files_short: u64,
    hashes: Vec<u64>,
    broken: Vec<BrokenCase>,
}

impl Tally {
    /// Runs a sequence without a cut, and then with one at each of its boundaries.
    pub fn of(sequence: &Sequence, options: &Options) -> Tally {
        let mut tally = Tally { sequences: 1, ..Tally::default() };
        let case = sequence.uncut();
        let outcome = case.run_caught(options);
        let boundaries = outcome.boundaries;
        tally.boundaries.push(boundaries);
        tally.decided += outcome.report.counts.of("client: changes decided in delegated directories");
        tally.take(case, outcome);
        for case in sequence.cut_at_each(boundaries) {
            let outcome = case.run_caught(options);
            tally.take(case, outcome);
        }
        tally
    }

    fn take(&mut self, case: Case, outcome: Outcome) {
        let Outcome { report, .. } = outcome;
        if let Some(cut) = case.cut() {
            self.cases += 1;
            *self.by_kind.entry((cut, case.is_inside())).or_default() += 1;
            self.steps_lost += report.counts.of("client: decided changes lost");
            self.records_lost += report.counts.of("fault: unsynced log records lost");
            self.records_kept += report.counts.of("fault: unsynced log records kept");
            self.files_short += report.counts.of("audit: files with lost bytes");
        }
        self.hashes.push(report.hash);
        if !report.violations.is_empty() {
            self.broken.push(BrokenCase { case, complaints: report.violations });
        }
    }

    /// Both together.
    pub fn absorb(&mut self, other: Tally) {
        self.sequences += other.sequences;
        self.cases += other.cases;
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
        self.boundaries.extend(other.boundaries);
        self.decided += other.decided;
        self.steps_lost += other.steps_lost;
        self.records_lost += other.records_lost;
        self.records_kept += other.records_kept;
        self.files_short += other.files_short;
        self.hashes.extend(other.hashes);
        self.broken.extend(other.broken);
    }

    /// Cases with a cut.
    pub fn cases(&self) -> u64 {
        self.cases
    }

    /// Cases that broke a promise.
    pub fn broken(&self) -> &[BrokenCase] {
        &self.broken
    }

    /// What should have happened in so many cases and did not.
    pub fn missing(&self) -> Vec<String> {
        let kinds = Cut::ALL.into_iter().flat_map(|cut| [(cut, false), (cut, true)]);
        let never = kinds.filter(|kind| !self.by_kind.contains_key(kind));
        let mut missing: Vec<String> = never
            .map(|(cut, inside)| {
                format!("a cut of {cut} {} a delegation", if inside { "inside" } else { "outside" })
            })
            .collect();
        for (count, what) in [
            (self.decided, "a change that a client decided by itself"),
            (self.records_lost, "a log record that was lost because it was not synced"),
            (self.records_kept, "a log record that was kept although nobody was told"),
        ] {
            if count == 0 {
                missing.push(what.to_owned());
            }
        }
        missing
    }

    /// Over everything that happened in all cases.
    pub fn digest(&self) -> u64 {
        let bytes: Vec<u8> = self.hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut boundaries = self.boundaries.clone();
        boundaries.sort_unstable();
        let at = |part: usize| boundaries.get(boundaries.len() * part / 4).copied().unwrap_or_default();
        let (fewest, most) = (boundaries.first(), boundaries.last());
        writeln!(f, "{} crash cases of {} sequences", self.cases, self.sequences)?;
        writeln!(
            f,
            "sync boundaries in a sequence: {} to {}, half of them {} to {}",
            fewest.copied().unwrap_or_default(),
            most.copied().unwrap_or_default(),
            at(1),
            at(3)
        )?;
        for cut in Cut::ALL {
            let [outside, inside] =
                [false, true].map(|inside| self.by_kind.get(&(cut, inside)).copied().unwrap_or_default());
            writeln!(
                f,
                "cut of {:<12} {outside:>5} outside, {inside:>5} inside a delegation",
                cut.to_string()
            )?;
        }
        writeln!(
            f,
            "unsynced log records: {} lost, {} kept; steps that clients decided: {}, told as lost {}; files with lost unsynced bytes: {}",
            self.records_lost, self.records_kept, self.decided, self.steps_lost, self.files_short
        )?;
        write!(f, "{} cases broke a promise", self.broken.len())
    }
}
