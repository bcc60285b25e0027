//! Figure 13: where queries end.

use super::assumed::{ASSUMED, HP, RES, SERVERS, Workload, figure, xs};
use super::cluster::{Cluster, Filters, Level, Setting, Tally};
use super::files::FILES_A_DIRECTORY;
use crate::figure::{Figure, Series};
use crate::figures::draw::line;
use crate::figures::effort::Effort;
use crate::statistics::{Interval, mean};
use bearing_placement::LookupKind;

/// Queries that each server had before: lists of recent files are full by then.
pub(super) fn past(effort: Effort) -> u64 {
    2 * effort.queries as u64
}

pub(super) fn files_each(effort: Effort) -> u64 {
    (effort.queries as u64).max(40)
}

/// G-HBA with so many servers.
pub(super) fn groups(servers: u32, workload: Workload, filters: Filters, effort: Effort) -> Setting {
    let (lookup, files_each) = (LookupKind::BloomGroups, files_each(effort));
    let (tenths_a_directory, seed) = (10 * FILES_A_DIRECTORY, effort.seed);
    Setting { lookup, servers, group_most: None, filters, files_each, tenths_a_directory, workload, seed }
}

/// A run for each seed.
pub(super) fn tallies(setting: &Setting, effort: Effort) -> Vec<Tally> {
    let seeded = |seed| Setting { seed: effort.seed + seed, ..*setting };
    let run = |seed| Cluster::new(&seeded(seed), past(effort)).operations(effort.queries);
    (0..effort.seeds).map(run).collect()
}

fn lines(name: &str, levels: &[(&str, Level)], by_size: &[Vec<Tally>]) -> Vec<Series> {
    let of = |(said, level): &(&str, Level)| {
        let means = |tallies: &Vec<Tally>| {
            Interval::of(&tallies.iter().map(|tally| tally.up_to(*level)).collect::<Vec<_>>())
        };
        line(&format!("{name}, {said}"), &xs(&SERVERS), &by_size.iter().map(means).collect::<Vec<_>>())
    };
    levels.iter().map(of).collect()
}

const CASES: [(&str, Filters); 4] = [
    ("8 bits a file", Filters::Published),
    ("8 bits, active files only", Filters::ActiveOnly),
    ("16 bits a file", Filters::Wide),
    ("ours", Filters::Directories),
];

const LEVELS: [(&str, Level); 3] =
    [("L1", Level::Recent), ("L1 and L2", Level::Segment), ("L1 to L3", Level::Group)];

/// Shares of queries that are over by each level.
pub fn figure_13(name: &str, effort: Effort) -> Figure {
    let (mut series, mut right) = (Vec::new(), Vec::new());
    for (case, filters) in CASES {
        let by_size: Vec<Vec<Tally>> =
            SERVERS.iter().map(|servers| tallies(&groups(*servers, HP, filters, effort), effort)).collect();
        right.extend(by_size.iter().flatten().map(Tally::right));
        series.extend(lines(case, &LEVELS, &by_size));
        if filters == Filters::Directories {
            series.extend(lines(case, &[("L1 to L3 and those named", Level::Named)], &by_size));
        }
    }
    let mut figure = figure(name, effort, ["servers", "share of queries that are over", ""], series);
    let last = SERVERS.len() - 1;
    let at_most = |figure: &Figure, line: &str| figure.y(line, last);
    let local = at_most(&figure, "8 bits, active files only, L1 and L2");
    figure.claim(
        "L1 and L2 answer at 100 servers: more than",
        0.8,
        local,
        0.8..=1.0,
        "the rest is L1's: a member holds a ninth of the filters, so L2 adds a ninth of what L1 missed; \
         how much L1 finds is as the popularity is, which is assumed",
    );
    figure.stands(Some("8 bits, active files only, L1 and L2"), Some(100.0), 0.8);
    let (published, active) = (
        at_most(&figure, "8 bits a file, L1 to L3"),
        at_most(&figure, "8 bits, active files only, L1 to L3"),
    );
    figure.claim(
        "L1 to L3 answer at 100 servers: more than",
        0.9,
        active,
        0.9..=1.0,
        "filters as large as table 5's with only the files in use in them; the next lines are of others",
    );
    figure.stands(Some("8 bits, active files only, L1 to L3"), Some(100.0), 0.9);
    figure.must(
        "the same with all files in them, 8 bits each, as table 5 counts them".to_owned(),
        published,
        0.9..=1.0,
        "it cannot: a group holds 99 filters that err about 0.0214 of the files each, so for 0.88 of them \
         at least one more than the right one answers; figure 13 and table 5 cannot both be of such filters",
    );
    let wide = at_most(&figure, "16 bits a file, L1 to L3");
    figure.must("the same with 16 bits each".to_owned(), wide, 0.9..=1.0, "at twice the memory");
    let ours = at_most(&figure, "ours, L1 to L3 and those named");
    figure.must(
        "ours, 9 bits a directory, with those that were named: over 0.9".to_owned(),
        ours,
        0.9..=1.0,
        "up to eight servers that filters name are asked before all are",
    );
    figure.must("share of queries that ended at the right server".to_owned(), mean(&right), 1.0..=1.0, "");
    let res = tallies(&groups(100, RES, Filters::ActiveOnly, effort), effort);
    let res: Vec<f64> = res.iter().map(|tally| tally.up_to(Level::Segment)).collect();
    figure.see(
        "L1 and L2 at 100 servers, RES".to_owned(),
        mean(&res),
        "more of its requests are of few files",
    );
    let decline = figure.y("8 bits, active files only, L1 to L3", 0) - active;
    figure.see("L1 to L3 at 10 servers less that at 100".to_owned(), decline, ASSUMED);
    figure
}
