//! The best that is possible for a few reads that begin at the same time, if flows were divided at will.
//!
//! Every read may come from all its replicas over all its shortest paths at once, at rates that change
//! whenever a read ends. For a given order of ends the least sum of times is a linear program: how long each
//! stretch between two ends is, and what each read carries over each path in it. The least over all orders is
//! the optimum, so only few reads can be looked at. No selection that starts a flow at a time and leaves the
//! rates to max-min shares can be faster.

use super::Job;
use bearing_routing::{Hop, Path, Paths, Route, Topology};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome, Variable};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The least mean time, in seconds, of jobs that all begin at once. With more than six of them there are
/// too many orders.
pub fn fractional_optimum(topology: &Arc<Topology>, jobs: &[Job]) -> f64 {
    let mut paths = Paths::new(topology.clone());
    let ways: Vec<Vec<Path>> = jobs
        .iter()
        .map(|job| {
            let routes = job.replicas.iter().map(|replica| paths.between(*replica, job.reader));
            routes.flat_map(|routes| routes.iter().map(Route::path).collect::<Vec<_>>()).collect()
        })
        .collect();
    let mut best = f64::INFINITY;
    each_order(&mut (0..jobs.len()).collect::<Vec<_>>(), 0, &mut |order| {
        best = best.min(least_sum(topology, jobs, &ways, order));
    });
    best / jobs.len() as f64
}

/// The least sum of times if jobs end in this order.
fn least_sum(topology: &Topology, jobs: &[Job], ways: &[Vec<Path>], order: &[usize]) -> f64 {
    // In units in which the numbers are near 1, for the sake of the solver.
    let unit = jobs.iter().map(|job| job.bytes).max().unwrap_or(1) as f64;
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    // All who have not ended wait through a stretch.
    let stretches: Vec<Variable> = (0..order.len())
        .map(|ended| problem.add_var((order.len() - ended) as f64, (0.0, f64::INFINITY)))
        .collect();
    let mut crossing: BTreeMap<(usize, Hop), Vec<(Variable, f64)>> = BTreeMap::new();
    for (place, job) in order.iter().enumerate() {
        let mut carried = Vec::new();
        for stretch in 0..=place {
            for path in &ways[*job] {
                let bytes = problem.add_var(0.0, (0.0, f64::INFINITY));
                carried.push((bytes, 1.0));
                for hop in &path.0 {
                    crossing.entry((stretch, *hop)).or_default().push((bytes, 1.0));
                }
            }
        }
        problem.add_constraint(&carried[..], ComparisonOp::Eq, jobs[*job].bytes as f64 / unit);
    }
    for ((stretch, hop), mut terms) in crossing {
        terms.push((stretches[stretch], -topology.capacity(hop.link()).bytes() / unit));
        problem.add_constraint(&terms[..], ComparisonOp::Le, 0.0);
    }
    match problem.solve() {
        Ok(SolveOutcome::Solution(solution)) => solution.objective(),
        // One without any path to its reader.
        Ok(SolveOutcome::Interrupted(_)) | Err(_) => f64::INFINITY,
    }
}

/// Every order of what is behind `from`.
fn each_order(order: &mut Vec<usize>, from: usize, see: &mut impl FnMut(&[usize])) {
    if from + 1 >= order.len() {
        return see(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        each_order(order, from + 1, see);
        order.swap(from, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::Kind;
    use bearing_routing::{Place, Shape};

    fn read(replicas: &[u32], reader: u32, megabytes: u64) -> Job {
        let replicas = replicas.iter().copied().map(Place).collect();
        Job { at: 0, reader: Place(reader), replicas, bytes: megabytes * 1_000_000, kind: Kind::Read }
    }

    fn seconds(jobs: &[Job]) -> f64 {
        fractional_optimum(&Arc::new(Shape::mayflower(8.0).unwrap().topology()), jobs)
    }

    #[test]
    fn optima_worked_by_hand() {
        let near = |seconds: f64, expected: f64| assert!((seconds - expected).abs() < 1e-6, "{seconds}");
        // 1 Gb/s in the rack, and all of it from another pod by many paths of 500 Mb/s.
        near(seconds(&[read(&[1], 0, 125)]), 1.0);
        near(seconds(&[read(&[63], 0, 125)]), 1.0);
        // One link for two: the shorter first, 1 and 3 seconds.
        near(seconds(&[read(&[1], 0, 125), read(&[2], 0, 250)]), 2.0);
        // Each from a replica of its own, though both have the first in common.
        near(seconds(&[read(&[1, 2], 0, 125), read(&[1], 3, 125)]), 1.0);
        // 1 and 2 send to 0, and 1 to 3: with host 1 for 3 alone, 0 has all of host 2.
        near(seconds(&[read(&[1, 2], 0, 125), read(&[1], 3, 250)]), 1.5);
    }
}
