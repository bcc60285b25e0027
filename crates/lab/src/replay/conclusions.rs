//! What a replay says, in words and as figures.
//!
//! Invariant: a sentence says what the numbers say and with how many servers; where the spread over seeds is
//! larger than a difference, no sentence is made of it.

use super::recorded::PARTS;
use super::run::{Job, Outcome};
use crate::figure::{Figure, Series};
use crate::statistics::Interval;
use std::collections::{BTreeMap, BTreeSet};

/// A server with so many times the mean load is overloaded.
const OVERLOADED: f64 = 2.0;
/// With fewer operations a server in a part of the trace, loads differ by chance.
const OPERATIONS_EACH: f64 = 50.0;

type Runs<'a> = [(&'a Job, &'a Outcome)];

/// A number that a run has.
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Outcome) -> f64,
}

const CHANGES: Measure = Measure {
    name: "changes of server on the way from the root",
    unit: "an operation",
    of: |outcome| outcome.changes as f64 / outcome.operations.max(1) as f64,
};
const CACHED: Measure = Measure {
    name: "changes of server with client caches",
    unit: "an operation",
    of: |outcome| outcome.changes_cached as f64 / outcome.operations.max(1) as f64,
};
const MOST: Measure = Measure {
    name: "load of the most loaded server in the last part of the trace",
    unit: "times the mean",
    of: |outcome| outcome.parts.last().map_or(0.0, |part| part.most),
};
const BALANCE: Measure = Measure {
    name: "balance in the last part of the trace",
    unit: "(M - 1) / sum of squares",
    of: |outcome| outcome.parts.last().map_or(0.0, |part| part.balance),
};
const MOVED: Measure = Measure {
    name: "entries moved by a rebalance",
    unit: "% of all",
    of: |outcome| {
        let moved: u64 = outcome.parts.iter().map(|part| part.moved).sum();
        100.0 * moved as f64 / outcome.parts.len().max(1) as f64 / outcome.nodes.max(1) as f64
    },
};
const JOINED: Measure = Measure {
    name: "entries moved by one more server",
    unit: "% of all",
    of: |outcome| 100.0 * outcome.moved_by_join as f64 / outcome.nodes.max(1) as f64,
};
const RENAMES: Measure = Measure {
    name: "renames whose two names lie on two servers, each a transaction",
    unit: "% of renames",
    of: |outcome| 100.0 * outcome.renames_across as f64 / outcome.renames.max(1) as f64,
};
const SPEEDUP: Measure = Measure {
    name: "throughput with client caches, the most loaded server decides",
    unit: "times one server's",
    of: |outcome| outcome.speedup,
};
const HOPS: Measure =
    Measure { name: "servers that a request comes to", unit: "hops", of: |outcome| outcome.routes.hops };

/// Figures of a replay: each measure over the number of servers, a line for each scheme.
pub fn figures(runs: &Runs<'_>) -> Vec<Figure> {
    let renames = runs.iter().any(|(_, outcome)| outcome.renames > 0);
    let named = [
        ("changes", CHANGES),
        ("changes-cached", CACHED),
        ("most-loaded", MOST),
        ("balance", BALANCE),
        ("moved", MOVED),
        ("moved-by-join", JOINED),
        ("renames-across", RENAMES),
        ("speedup", SPEEDUP),
        ("hops", HOPS),
    ];
    let there = named.into_iter().filter(|(_, measure)| renames || measure.name != RENAMES.name);
    there.map(|(name, measure)| figure(runs, name, &measure)).collect()
}

fn figure(runs: &Runs<'_>, name: &str, measure: &Measure) -> Figure {
    let sizes: BTreeSet<u32> = runs.iter().map(|(job, _)| job.servers).collect();
    let series = schemes(runs).into_iter().map(|scheme| {
        let (mut points, mut half) = (Vec::new(), Vec::new());
        for servers in &sizes {
            if let Some(interval) = interval(runs, &scheme, *servers, measure) {
                points.push([f64::from(*servers), interval.mean]);
                half.push(interval.half);
            }
        }
        Series { scheme, points, half }
    });
    Figure {
        figure: name.into(),
        x: "servers".into(),
        y: measure.name.into(),
        unit: measure.unit.into(),
        series: series.collect(),
        published: Vec::new(),
        ours: Vec::new(),
        seed: runs.iter().map(|(job, _)| job.seed).min().unwrap_or(0),
        commit: String::new(),
        costs: None,
    }
}

/// In the order in which they were given.
fn schemes(runs: &Runs<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (job, _) in runs {
        if !names.contains(&job.candidate.name) {
            names.push(job.candidate.name.clone());
        }
    }
    names
}

fn interval(runs: &Runs<'_>, scheme: &str, servers: u32, measure: &Measure) -> Option<Interval> {
    let own = runs.iter().filter(|(job, _)| job.candidate.name == scheme && job.servers == servers);
    let samples: Vec<f64> = own.map(|(_, outcome)| (measure.of)(outcome)).collect();
    (!samples.is_empty()).then(|| Interval::of(&samples))
}

/// Sentences, for the largest number of servers.
pub fn conclusions(runs: &Runs<'_>) -> Vec<String> {
    let Some(servers) = runs.iter().map(|(job, _)| job.servers).max() else { return Vec::new() };
    let of = |measure: &Measure| -> BTreeMap<String, Interval> {
        let seen = schemes(runs).into_iter();
        seen.filter_map(|name| Some((name.clone(), interval(runs, &name, servers, measure)?))).collect()
    };
    let mut sentences = Vec::new();
    let operations = runs.iter().map(|(_, outcome)| outcome.operations).max().unwrap_or(0);
    if (operations as f64) < OPERATIONS_EACH * PARTS as f64 * f64::from(servers) {
        sentences.push(format!(
            "The trace has {operations} operations only: with {servers} servers loads differ by chance, so little \
             can be concluded of balance."
        ));
    }
    let (changes, most) = (of(&CHANGES), of(&MOST));
    sentences.extend(least(&changes, |least, value, other, factor| {
        format!(
            "With {servers} servers {least} keeps names together best: on the way from the root the server \
             changes {value:.2} times an operation, with {other} {factor}."
        )
    }));
    sentences.extend(least(&most, |least, value, other, factor| {
        format!(
            "With {servers} servers {least} loads them most evenly: its most loaded one had {value:.2} times \
             the mean in the last part of the trace, with {other} {factor}."
        )
    }));
    sentences.extend(both(servers, &changes, &most));
    sentences.extend(moves(servers, &of(&MOVED)));
    sentences.extend(overloads(runs, servers));
    sentences.extend(least(&of(&HOPS), |least, value, other, factor| {
        format!(
            "With {servers} servers a request of {least} comes to {value:.2} servers, with {other} {factor}."
        )
    }));
    sentences
}

/// The least beside the largest, if they differ by more than seeds do.
fn least(
    of: &BTreeMap<String, Interval>,
    say: impl FnOnce(&str, f64, &str, String) -> String,
) -> Option<String> {
    let by_mean = |a: &(&String, &Interval), b: &(&String, &Interval)| a.1.mean.total_cmp(&b.1.mean);
    let (least, low) = of.iter().min_by(by_mean)?;
    let (largest, high) = of.iter().max_by(by_mean)?;
    differ(low, high).then(|| say(least, low.mean, largest, times(high.mean, low.mean)))
}

fn differ(low: &Interval, high: &Interval) -> bool {
    let finite = |half: f64| if half.is_finite() { half } else { 0.0 };
    low.mean + finite(low.half) < high.mean - finite(high.half)
}

fn times(high: f64, low: f64) -> String {
    match low > 0.0 && high / low < 100.0 {
        true => format!("{:.1} times as many", high / low),
        false => format!("{high:.2}"),
    }
}

/// Those that no other beats in both locality and balance.
fn both(
    servers: u32,
    changes: &BTreeMap<String, Interval>,
    most: &BTreeMap<String, Interval>,
) -> Option<String> {
    let point = |name: &String| Some((changes.get(name)?, most.get(name)?));
    let beaten = |name: &&String| {
        let own = point(name);
        changes.keys().any(|other| match (own, point(other)) {
            (Some((a, b)), Some((c, d))) => {
                c.mean <= a.mean && d.mean <= b.mean && (differ(c, a) || differ(d, b))
            }
            _ => false,
        })
    };
    let best: Vec<&str> = changes.keys().filter(|name| !beaten(name)).map(String::as_str).collect();
    let others = changes.len() - best.len();
    (others > 0 && !best.is_empty()).then(|| {
        format!(
            "With {servers} servers none beats {} in locality and balance at once; {} in both by one of these.",
            best.join(", "),
            if others == 1 { "the other one is beaten".to_owned() } else { format!("the other {others} are beaten") }
        )
    })
}

/// Among those that move anything at all.
fn moves(servers: u32, moved: &BTreeMap<String, Interval>) -> Option<String> {
    let moving: BTreeMap<String, Interval> = moved
        .iter()
        .filter(|(_, share)| share.mean > 0.0)
        .map(|(name, share)| (name.clone(), *share))
        .collect();
    let by_mean = |a: &(&String, &Interval), b: &(&String, &Interval)| a.1.mean.total_cmp(&b.1.mean);
    let (least, low) = moving.iter().min_by(by_mean)?;
    let (largest, high) = moving.iter().max_by(by_mean)?;
    differ(low, high).then(|| {
        format!(
            "With {servers} servers {least} moves {:.0} % fewer entries than {largest} when load has changed: \
             {:.2} % of all at a time.",
            100.0 * (1.0 - low.mean / high.mean),
            low.mean
        )
    })
}

/// The first seed's longest overload of each scheme, to the trace's end or not. One that the first rebalance
/// ends is none: nothing was known before.
fn overloads(runs: &Runs<'_>, servers: u32) -> Vec<String> {
    let mut sentences = Vec::new();
    for scheme in schemes(runs) {
        let first = runs.iter().find(|(job, _)| job.candidate.name == scheme && job.servers == servers);
        let Some((_, outcome)) = first else { continue };
        let each = outcome.operations as f64 / outcome.parts.len().max(1) as f64 / f64::from(servers);
        if each < OPERATIONS_EACH {
            continue;
        }
        let (mut longest, mut current) = (0..0, 0..0);
        for (index, part) in outcome.parts.iter().enumerate() {
            let goes_on = !current.is_empty() && outcome.parts[current.start].most_loaded == part.most_loaded;
            current = match (part.most >= OVERLOADED, goes_on) {
                (false, _) => 0..0,
                (true, true) => current.start..index + 1,
                (true, false) => index..index + 1,
            };
            if current.len() > longest.len() {
                longest = current.clone();
            }
        }
        let parts = &outcome.parts[longest.clone()];
        if longest == (0..1) && parts.iter().any(|part| part.moved > 0) {
            continue;
        }
        let Some(begin) = parts.first() else { continue };
        let most = parts.iter().map(|part| part.most).fold(0.0, f64::max);
        let until = match outcome.parts.get(longest.end) {
            Some(next) => format!("to {}", clock(next.begins_us)),
            None => "to the end".to_owned(),
        };
        sentences.push(format!(
            "{scheme} overloads server {} of {servers} from {} {until} of the trace, by up to {most:.1} times the mean.",
            begin.most_loaded,
            clock(begin.begins_us)
        ));
    }
    sentences
}

/// Hours and minutes since the trace began; seconds of short ones.
fn clock(us: u64) -> String {
    let seconds = us / 1_000_000;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{PartOutcome, Routes};

    fn run(name: &str, seed: u64, changes_100: u64, most: &[f64], moved: u64) -> (Job, Outcome) {
        let parts = most.iter().enumerate().map(|(index, most)| PartOutcome {
            begins_us: index as u64 * 600_000_000,
            balance: 1.0,
            most: *most,
            most_loaded: 7,
            idle: 0,
            moved,
        });
        let outcome = Outcome {
            operations: 100_000,
            changes: 1000 * changes_100,
            changes_cached: 1000 * changes_100,
            speedup: 1.0,
            parts: parts.collect(),
            nodes: 1000,
            moved_by_join: 0,
            renames: 0,
            renames_across: 0,
            moved_by_renames: 0,
            routes: Routes::default(),
        };
        (Job { candidate: name.parse().unwrap(), servers: 20, seed }, outcome)
    }

    #[test]
    fn sentences_say_who_is_best_and_when_a_server_is_overloaded() {
        let runs = [
            run("anglecut", 1, 100, &[1.0, 1.1, 1.2], 6),
            run("drop", 1, 200, &[1.0, 2.5, 2.6], 10),
            run("hash", 1, 400, &[1.0, 1.0, 1.1], 0),
        ];
        let runs: Vec<_> = runs.iter().map(|(job, outcome)| (job, outcome)).collect();
        let text = conclusions(&runs).join("\n");
        assert!(text.contains("anglecut keeps names together best") && text.contains("4.0 times"), "{text}");
        assert!(text.contains("anglecut moves 40 % fewer entries than drop"), "{text}");
        assert!(text.contains("drop overloads server 7 of 20 from 0:10:00 to the end"), "{text}");
        assert!(text.contains("none beats anglecut, hash in locality and balance"), "{text}");
        assert!(!text.contains("hash overloads"), "{text}");
    }

    #[test]
    fn what_seeds_do_not_agree_on_is_not_said() {
        let runs = [run("anglecut", 1, 100, &[1.0], 0), run("anglecut", 2, 300, &[1.0], 0)];
        let more = [run("hash", 1, 150, &[1.0], 0), run("hash", 2, 350, &[1.0], 0)];
        let runs: Vec<_> = runs.iter().chain(&more).map(|(job, outcome)| (job, outcome)).collect();
        assert_eq!(conclusions(&runs), Vec::<String>::new());
    }

    #[test]
    fn a_figure_has_a_point_for_each_size_with_its_spread() {
        let runs = [run("hash", 1, 100, &[1.0], 0), run("hash", 2, 200, &[1.0], 0)];
        let runs: Vec<_> = runs.iter().map(|(job, outcome)| (job, outcome)).collect();
        let changes = &figures(&runs)[0];
        assert_eq!(changes.series[0].points, [[20.0, 1.5]]);
        assert!((changes.series[0].half[0] - 12.706 * 0.5).abs() < 1e-9);
    }
}
