//! Figures 3 to 9 of Mayflower.

use super::draw::line;
use super::effort::Effort;
use crate::figure::{Figure, Series};
use crate::reads::{
    Experiment, Others, Outcome, Room, SlowDisks, Writes, fractional_optimum, jobs, lower_bound, run,
};
use crate::statistics::{Interval, mean, percentile};
use bearing_flow::Replanning;
use bearing_routing::{Placing, Rate, Shape, Wiring};
use std::sync::Arc;
use std::time::Duration;

const P: &str = "mayflower-p";
const B: &str = "mayflower-b";
/// Behind a selection: reads under way are moved where that saves enough.
const REPLANNED: &str = ", re-planned";
const N_REPLANNED: &str = "mayflower-n, re-planned";
/// Locality of figures 3, 5, 6, 8 and 9.
const LOCAL: [f64; 3] = [0.5, 0.3, 0.2];

fn room(oversubscription: f64) -> Room {
    let shape = Shape::mayflower(oversubscription).expect("an oversubscription of the figures");
    Room { topology: Arc::new(shape.topology()), rack: 4, pod: 16 }
}

/// An experiment as in figure 3. A case is a selection, perhaps with [`REPLANNED`] behind it.
fn experiment(case: &str, effort: Effort) -> Experiment {
    let (selection, replanning) = match case.strip_suffix(REPLANNED) {
        Some(selection) => (selection, Replanning::On),
        None => (case, Replanning::Off),
    };
    Experiment {
        room: room(8.0),
        selection: selection.parse().expect("a selection of the list"),
        rate: 0.1,
        locality: LOCAL,
        bytes: 128_000_000,
        reads: effort.queries,
        files: 500,
        sets: 1,
        others: None,
        writes: None,
        slow_disks: None,
        piece: 32_000_000,
        least: 1_000_000,
        // Who asks nobody waits for nobody.
        query: Duration::from_millis(if selection.ends_with("-ecmp") { 0 } else { 4 }),
        replanning,
        poll_interval: Duration::from_secs(1),
        seed: effort.seed,
    }
}

/// A run for each seed.
fn runs(experiment: &Experiment, effort: Effort) -> Vec<Outcome> {
    let seeded = |seed| Experiment { seed: effort.seed + seed, ..experiment.clone() };
    (0..effort.seeds).map(|seed| run(&seeded(seed))).collect()
}

fn mean_of(outcomes: &[Outcome], of: impl Fn(&Outcome) -> &Vec<f64>) -> Interval {
    let means: Vec<f64> = outcomes.iter().map(|outcome| mean(of(outcome))).collect();
    Interval::of(&means)
}

/// The lower bound for the same reads.
const BOUND: &str = "lower bound";

/// Mean completion times over something that is varied, and below them the lower bound.
fn varied(
    selections: &[&str],
    effort: Effort,
    xs: &[f64],
    vary: impl Fn(&mut Experiment, f64),
) -> Vec<Series> {
    let series = |selection: &&str| {
        let intervals: Vec<Interval> = xs
            .iter()
            .map(|x| {
                let mut experiment = experiment(selection, effort);
                vary(&mut experiment, *x);
                mean_of(&runs(&experiment, effort), |outcome| &outcome.reads)
            })
            .collect();
        line(selection, xs, &intervals)
    };
    let mut all: Vec<Series> = selections.iter().map(series).collect();
    let bounds: Vec<Interval> = xs.iter().map(|x| bound(effort, |experiment| vary(experiment, *x))).collect();
    all.push(line(BOUND, xs, &bounds));
    all
}

/// What no selection can beat.
fn bound(effort: Effort, vary: impl Fn(&mut Experiment)) -> Interval {
    let seeded = (0..effort.seeds).map(|seed| {
        let mut experiment = Experiment { seed: effort.seed + seed, ..experiment(P, effort) };
        vary(&mut experiment);
        lower_bound(&experiment, &jobs(&experiment))
    });
    Interval::of(&seeded.collect::<Vec<f64>>())
}

fn figure(name: &str, effort: Effort, x: &str, series: Vec<Series>) -> Figure {
    Figure {
        figure: name.to_owned(),
        x: x.to_owned(),
        y: "mean completion time".to_owned(),
        unit: "s".to_owned(),
        series,
        published: Vec::new(),
        ours: Vec::new(),
        seed: effort.seed,
        commit: String::new(),
        costs: None,
    }
}

impl Figure {
    /// How far mayflower-p is from what nothing can beat.
    fn see_distances(&mut self) {
        let (Some(ours), Some(bound)) = (self.of(P), self.of(BOUND)) else { return };
        let over: Vec<(f64, f64)> = ours
            .points
            .iter()
            .zip(&bound.points)
            .map(|(ours, bound)| (ours[0], ours[1] / bound[1]))
            .collect();
        for (x, over) in over {
            self.see(format!("mean of mayflower-p over the lower bound at {x}"), over, "");
        }
    }
}

const MORE: f64 = f64::INFINITY;

/// Mean and distribution of completion times, lambda 0.1.
pub fn figure_3(name: &str, effort: Effort) -> Figure {
    let selections = [
        P,
        B,
        "mayflower-n",
        "sinbad-r-mf",
        "sinbad-r-ecmp",
        "nearest-mf",
        "nearest-ecmp",
        N_REPLANNED,
        "mayflower-x",
    ];
    let outcomes: Vec<Vec<Outcome>> =
        selections.iter().map(|selection| runs(&experiment(selection, effort), effort)).collect();
    let means: Vec<f64> =
        outcomes.iter().map(|outcomes| mean_of(outcomes, |outcome| &outcome.reads).mean).collect();
    let all = |index: usize| -> Vec<f64> {
        outcomes[index].iter().flat_map(|outcome: &Outcome| outcome.reads.iter().copied()).collect()
    };
    let series = (0..selections.len()).map(|index| {
        let reads = all(index);
        let shares = (1..=20).map(|twentieth| f64::from(twentieth) / 20.0);
        let points = shares.map(|share| [percentile(&reads, share), share]).collect();
        Series { scheme: selections[index].to_owned(), points, half: Vec::new() }
    });
    let mut figure = figure(name, effort, "completion time (s)", series.collect());
    "share of reads".clone_into(&mut figure.y);
    figure.unit.clear();
    let p95 = |index: usize| percentile(&all(index), 0.95);
    let files = "the number of files is not published: 500 here";
    figure.claim(
        "mean of nearest-ecmp over that of mayflower-p: more than",
        2.3,
        means[6] / means[0],
        2.3..=MORE,
        files,
    );
    figure.claim(
        "mean of sinbad-r-ecmp over that of mayflower-p: more than",
        1.3,
        means[4] / means[0],
        1.3..=MORE,
        "",
    );
    figure.claim(
        "mean of sinbad-r-mf over that of mayflower-p: more than",
        1.3,
        means[3] / means[0],
        1.3..=MORE,
        "",
    );
    figure.claim("mayflower-p below mayflower-b by", 0.14, 1.0 - means[0] / means[1], 0.1..=1.0, "");
    for (index, published) in [(0, 2.81), (1, 3.21), (3, 3.82)] {
        let scheme = selections[index];
        let claim = format!("95th percentile of {scheme} (s)");
        figure.claim(&claim, published, p95(index), 0.0..=published, files);
        figure.stands(Some(scheme), Some(published), 0.95);
    }
    let gaps: Vec<f64> = outcomes[0].iter().flat_map(|outcome| outcome.gaps.iter().copied()).collect();
    figure.claim("mean time between the ends of two streams (s): less than", 1.0, mean(&gaps), 0.0..=1.0, "");
    for (index, selection) in selections.iter().enumerate() {
        figure.see(format!("mean of {selection} (s)"), means[index], "");
    }
    figure.see(
        "mayflower-n, re-planned, below mayflower-p by".to_owned(),
        1.0 - means[7] / means[0],
        "beyond the paper",
    );
    let bound = bound(effort, |_| {}).mean;
    figure.see("lower bound of the mean (s)".to_owned(), bound, "no link inside the network is looked at");
    figure.see("mean of mayflower-p over the lower bound".to_owned(), means[0] / bound, "");
    figure
}

const LOCALITIES: [[f64; 3]; 4] = [LOCAL, [0.3, 0.5, 0.2], [0.2, 0.3, 0.5], [1.0 / 3.0; 3]];

/// By locality.
pub fn figure_4(name: &str, effort: Effort) -> Figure {
    let selections = [P, "sinbad-r-mf", "sinbad-r-ecmp", "nearest-mf", "nearest-ecmp"];
    let xs = [1.0, 2.0, 3.0, 4.0];
    let series = varied(&selections, effort, &xs, |experiment, x| {
        experiment.locality = LOCALITIES[x as usize - 1];
    });
    let x = "share of readers in the rack, the pod, elsewhere: 1 = .5 .3 .2, 2 = .3 .5 .2, 3 = .2 .3 .5, 4 = 1/3 each";
    let mut figure = figure(name, effort, x, series);
    let least = selections[1..].iter().map(|other| figure.y(other, 1) / figure.y(P, 1)).fold(MORE, f64::min);
    figure.claim("at 2, every other over mayflower-p: more than", 1.36, least, 1.36..=MORE, "");
    let growth = figure.y("nearest-ecmp", 2) / figure.y("nearest-ecmp", 1);
    figure.claim(
        "nearest-ecmp at 3 over the same at 2",
        2.27,
        growth,
        1.5..=MORE,
        "links to the cores are not as full here: the division of 8:1 by tier is not published",
    );
    figure.see_distances();
    figure
}

/// By rate.
pub fn figure_5(name: &str, effort: Effort) -> Figure {
    let selections = [P, "sinbad-r-mf", "sinbad-r-ecmp", "nearest-mf", "nearest-ecmp"];
    let xs = [0.06, 0.07, 0.08, 0.09, 0.1];
    let series = varied(&selections, effort, &xs, |experiment, x| experiment.rate = x);
    let mut figure = figure(name, effort, "reads a second for each host", series);
    let growth = |scheme: &str| figure.y(scheme, 4) / figure.y(scheme, 0);
    let least = selections[1..].iter().map(|other| growth(other) / growth(P)).fold(MORE, f64::min);
    figure.claim(
        "growth of any other over that of mayflower-p: more than",
        1.0,
        least,
        1.0..=MORE,
        "sinbad-r-mf grows as mayflower-p does here, the others more",
    );
    figure.see_distances();
    figure
}

/// By oversubscription.
pub fn figure_6(name: &str, effort: Effort) -> Figure {
    let xs = [8.0, 12.0, 16.0, 24.0];
    let series =
        varied(&[P, "sinbad-r-mf", N_REPLANNED], effort, &xs, |experiment, x| experiment.room = room(x));
    let mut figure = figure(name, effort, "oversubscription", series);
    let most = (0..4).map(|index| figure.y("sinbad-r-mf", index) / figure.y(P, index)).fold(0.0, f64::max);
    figure.claim(
        "sinbad-r-mf over mayflower-p, at most",
        2.4,
        most,
        1.3..=MORE,
        "the ratios but 8:1 are not published",
    );
    let gain =
        (0..4).map(|index| 1.0 - figure.y(N_REPLANNED, index) / figure.y(P, index)).fold(0.0, f64::max);
    figure.see("mayflower-n, re-planned, below mayflower-p by at most".to_owned(), gain, "beyond the paper");
    figure.see_distances();
    figure
}

/// Beside others.
pub fn figure_7(name: &str, effort: Effort) -> Figure {
    let xs = [0.04, 0.06, 0.08];
    let cases = [
        ("mayflower-b, unaware", B, false),
        ("mayflower-b, aware", B, true),
        ("mayflower-p, aware", P, true),
    ];
    let (mut reads, mut others) = (Vec::new(), Vec::new());
    for (scheme, selection, is_reported) in cases {
        let outcomes = xs.map(|rate| {
            let base = experiment(selection, effort);
            let others = Some(Others { rate: 0.08, is_reported });
            runs(&Experiment { rate, others, locality: [0.2, 0.3, 0.5], ..base }, effort)
        });
        let of =
            |of: fn(&Outcome) -> &Vec<f64>| outcomes.iter().map(|runs| mean_of(runs, of)).collect::<Vec<_>>();
        reads.push(line(scheme, &xs, &of(|outcome| &outcome.reads)));
        others.push(line(&format!("others beside {scheme}"), &xs, &of(|outcome| &outcome.others)));
    }
    let series = reads.into_iter().chain(others).collect();
    let mut figure = figure(name, effort, "reads a second for each host", series);
    let ratio = |one: &str, other: &str| {
        (0..3).map(|index| figure.y(one, index) / figure.y(other, index)).fold(0.0, f64::max)
    };
    let aware = ratio("mayflower-b, aware", "mayflower-b, unaware");
    let two = ratio("mayflower-p, aware", "mayflower-b, aware");
    let helped = ratio("others beside mayflower-b, aware", "others beside mayflower-b, unaware");
    figure.claim("aware over unaware, at most", 1.0, aware, 0.0..=1.0, "");
    figure.claim("two replicas over one, at most", 1.0, two, 0.0..=1.0, "");
    figure.claim("others beside aware over beside unaware, at most", 1.0, helped, 0.0..=1.0, "");
    figure
}

/// By size.
pub fn figure_8(name: &str, effort: Effort) -> Figure {
    let selections = [P, "sinbad-r-mf", "nearest-ecmp"];
    let xs = [32.0, 64.0, 128.0, 256.0];
    let series = varied(&selections, effort, &xs, |experiment, x| {
        experiment.bytes = (x * 1e6) as u64;
        // The same bytes a second.
        experiment.rate = 0.1 * 128.0 / x;
        experiment.piece = (experiment.bytes / 4).max(1_000_000);
    });
    let mut figure = figure(name, effort, "MB of a read; bytes a second are the same", series);
    let gap = |index: usize| figure.y("sinbad-r-mf", index) / figure.y(P, index);
    let (small, large) = (gap(0), gap(3));
    figure.claim("sinbad-r-mf over mayflower-p at 32 MB: more than", 1.0, small, 1.0..=MORE, "");
    figure.claim(
        "the same ratio at 256 MB over that at 32 MB: more than",
        1.0,
        large / small,
        1.0..=MORE,
        "the flow server hears of every end at once here: short reads are estimated as well as long ones",
    );
    figure.see_distances();
    figure
}

/// Beside HDFS.
pub fn figure_9(name: &str, effort: Effort) -> Figure {
    let xs = [0.06, 0.07, 0.08];
    let series = varied(&[P, "hdfs-mf", "hdfs-ecmp"], effort, &xs, |experiment, x| {
        experiment.bytes = 256_000_000;
        experiment.rate = x;
        experiment.piece = 64_000_000;
    });
    let mut figure = figure(name, effort, "reads a second for each host", series);
    let below = |other: &str| 1.0 - figure.y(P, 2) / figure.y(other, 2);
    let (ecmp, flows) = (below("hdfs-ecmp"), below("hdfs-mf"));
    figure.claim("below hdfs-ecmp by more than", 0.75, ecmp, 0.75..=1.0, "");
    figure.claim("below hdfs-mf by more than", 0.25, flows, 0.25..=1.0, "");
    figure.see_distances();
    figure
}

/// Hosts of the networks that grow; the published one is the first.
const HOSTS: [f64; 3] = [64.0, 256.0, 1024.0];

/// By hosts: as many reads of each, more pods under the same cores.
pub fn hosts(name: &str, effort: Effort) -> Figure {
    let selections = [P, N_REPLANNED, "sinbad-r-mf", "nearest-ecmp"];
    let grown = |experiment: &mut Experiment, hosts: f64| {
        let pods = (hosts / 16.0) as u32;
        let shape =
            Shape::racks(pods, 2, 4, 4, Wiring::Mesh(2)).and_then(|shape| shape.oversubscribed(&[4.0, 2.0]));
        let topology = Arc::new(shape.expect("a shape of the figure").topology());
        experiment.room = Room { topology, rack: 4, pod: 16 };
        experiment.sets = u64::from(pods) / 4;
        experiment.reads = effort.queries * pods as usize / 8;
    };
    let series = varied(&selections, effort, &HOSTS, grown);
    let mut figure = figure(name, effort, "hosts", series);
    figure.see_distances();
    figure
}

/// Slow disks, which the flow server is told of or not.
pub fn slow_disks(name: &str, effort: Effort) -> Figure {
    let xs = [0.0, 4.0, 8.0, 16.0];
    let cases = [
        ("mayflower-p, told", P, true),
        ("mayflower-p, not told", P, false),
        ("nearest-ecmp", "nearest-ecmp", false),
    ];
    let series = cases.map(|(scheme, selection, is_reported)| {
        let intervals = xs.map(|count| {
            let every = if count > 0.0 { (64.0 / count) as u32 } else { u32::MAX };
            let slow_disks =
                (count > 0.0).then_some(SlowDisks { every, rate: Rate::bits(200_000_000), is_reported });
            let experiment = Experiment { slow_disks, ..experiment(selection, effort) };
            mean_of(&runs(&experiment, effort), |outcome| &outcome.reads)
        });
        line(scheme, &xs, &intervals)
    });
    let mut figure = figure(name, effort, "hosts of 64 whose disks give 200 Mb/s", series.into());
    for (index, count) in xs.iter().enumerate().skip(1) {
        let ratio = figure.y("mayflower-p, told", index) / figure.y("mayflower-p, not told", index);
        figure.see(format!("told over not told, {count} slow disks"), ratio, "");
    }
    figure
}

/// Few reads at once, beside the best that is possible for them.
pub fn optimum(name: &str, effort: Effort) -> Figure {
    let selections = [P, B, "mayflower-n", "sinbad-r-mf", "nearest-ecmp"];
    let xs = [2.0, 3.0, 4.0];
    // So small a case says little: as many as the figure's reads make.
    let cases = (effort.queries as u64 / 20).max(2);
    // All begin at once, and have files in common, or they would rarely meet.
    let few = |selection: &str, reads: f64, case: u64| Experiment {
        reads: reads as usize,
        rate: 1e12,
        files: 2,
        locality: [0.2, 0.3, 0.5],
        seed: effort.seed + case,
        ..experiment(selection, effort)
    };
    let over = |of: &dyn Fn(f64, u64) -> f64| {
        xs.map(|x| Interval::of(&(0..cases).map(|case| of(x, case)).collect::<Vec<f64>>()))
    };
    let mut series: Vec<Series> = selections
        .iter()
        .map(|selection| line(selection, &xs, &over(&|x, case| mean(&run(&few(selection, x, case)).reads))))
        .collect();
    let best = over(&|x, case| {
        let experiment = few(P, x, case);
        experiment.query.as_secs_f64() + fractional_optimum(&experiment.room.topology, &jobs(&experiment))
    });
    let bounds = over(&|x, case| {
        let experiment = few(P, x, case);
        lower_bound(&experiment, &jobs(&experiment))
    });
    series.extend([line("fractional optimum", &xs, &best), line(BOUND, &xs, &bounds)]);
    let mut figure = figure(name, effort, "reads that begin at once, of two files", series);
    for selection in selections {
        let over = figure.y(selection, 2) / figure.y("fractional optimum", 2);
        figure.see(format!("mean of {selection} over the fractional optimum at 4"), over, "");
    }
    let slack = figure.y("fractional optimum", 2) / figure.y(BOUND, 2);
    figure.see(
        "fractional optimum over the lower bound at 4".to_owned(),
        slack,
        "what the bound of the other figures leaves out",
    );
    figure
}

/// Chunks that are written beside the reads, by who chooses their hosts.
pub fn writes(name: &str, effort: Effort) -> Figure {
    let xs = [0.01, 0.02, 0.03];
    let cases = [("random", Placing::Random), ("sinbad", Placing::HostLoads), ("by cost", Placing::Cost)];
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for (scheme, placing) in cases {
        let outcomes = xs.map(|rate| {
            let writes = Some(Writes { rate, copies: 3, placing });
            runs(&Experiment { rate: 0.05, writes, ..experiment(P, effort) }, effort)
        });
        let of =
            |of: fn(&Outcome) -> &Vec<f64>| outcomes.iter().map(|runs| mean_of(runs, of)).collect::<Vec<_>>();
        writes.push(line(scheme, &xs, &of(|outcome| &outcome.writes)));
        reads.push(line(&format!("reads beside {scheme}"), &xs, &of(|outcome| &outcome.reads)));
    }
    let series = writes.into_iter().chain(reads).collect();
    let mut figure = figure(name, effort, "writes of three copies a second for each host", series);
    for (index, x) in xs.iter().enumerate() {
        for scheme in ["sinbad", "by cost"] {
            let ratio = figure.y("random", index) / figure.y(scheme, index);
            figure.see(format!("random over {scheme} at {x}"), ratio, "");
        }
    }
    figure
}
