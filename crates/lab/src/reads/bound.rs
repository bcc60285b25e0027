//! What no selection can beat: a lower bound for the mean completion time of reads.
//!
//! Two things hold whatever is chosen. A read alone in the network takes its bytes over the largest flow that
//! all its replicas together can send to its reader. And all reads of one reader share its link: the least
//! sum of their times is that of the shortest remaining one first (Schrage 1968). For each reader the larger
//! sum counts. Links inside the network are not looked at, so the best possible lies above this.

use super::{Experiment, Job, Kind};
use bearing_routing::{End, Hop, Place, Topology};
use std::collections::BTreeMap;

/// The bound for the mean, in seconds, of the reads among these jobs.
pub fn lower_bound(experiment: &Experiment, jobs: &[Job]) -> f64 {
    let topology = &experiment.room.topology;
    let query = experiment.query.as_secs_f64();
    let mut flows: BTreeMap<(Vec<Place>, Place), f64> = BTreeMap::new();
    let mut by_reader: BTreeMap<Place, (Vec<(f64, f64)>, f64)> = BTreeMap::new();
    let mut count = 0.0;
    for job in jobs.iter().filter(|job| job.kind == Kind::Read) {
        let key = (job.replicas.clone(), job.reader);
        let flow = *flows.entry(key).or_insert_with(|| largest_flow(topology, &job.replicas, job.reader));
        let link: f64 =
            topology.hops_from(End::Host(job.reader)).map(|hop| topology.capacity(hop.link()).bytes()).sum();
        let (released, alone) = by_reader.entry(job.reader).or_default();
        released.push((job.at as f64 / 1e9, job.bytes as f64 / link));
        *alone += job.bytes as f64 / flow;
        count += 1.0;
    }
    let sums = by_reader.values().map(|(released, alone)| shortest_first(released).max(*alone));
    if count == 0.0 { 0.0 } else { query + sums.sum::<f64>() / count }
}

/// The sum of times from release to end on one machine, the shortest remaining work first. Jobs are (release,
/// work), by release.
fn shortest_first(jobs: &[(f64, f64)]) -> f64 {
    let (mut now, mut next, mut sum) = (0.0f64, 0, 0.0);
    // (remaining, release).
    let mut open: Vec<(f64, f64)> = Vec::new();
    while next < jobs.len() || !open.is_empty() {
        if open.is_empty() {
            now = now.max(jobs[next].0);
        }
        while next < jobs.len() && jobs[next].0 <= now {
            open.push((jobs[next].1, jobs[next].0));
            next += 1;
        }
        let shortest = (0..open.len()).min_by(|a, b| open[*a].0.total_cmp(&open[*b].0)).expect("one is open");
        let until = jobs.get(next).map_or(f64::INFINITY, |job| job.0);
        let step = open[shortest].0.min(until - now);
        now += step;
        open[shortest].0 -= step;
        if open[shortest].0 <= 1e-12 {
            sum += now - open.swap_remove(shortest).1;
        }
    }
    sum
}

/// The largest flow in bytes a second from several hosts to one (Edmonds and Karp 1972).
fn largest_flow(topology: &Topology, sources: &[Place], target: Place) -> f64 {
    let mut left: Vec<f64> =
        (0..topology.hops()).map(|hop| topology.capacity(Hop::numbered(hop as u32).link()).bytes()).collect();
    let mut flow = 0.0;
    loop {
        let mut came_by: BTreeMap<End, Option<Hop>> =
            sources.iter().map(|source| (End::Host(*source), None)).collect();
        let mut queue: std::collections::VecDeque<End> = came_by.keys().copied().collect();
        while let Some(end) = queue.pop_front() {
            // Other hosts do not forward.
            if matches!(end, End::Host(place) if !sources.contains(&place)) {
                continue;
            }
            for hop in topology.hops_from(end).filter(|hop| left[hop.index()] > 1.0) {
                let next = topology.target(hop);
                if let std::collections::btree_map::Entry::Vacant(vacant) = came_by.entry(next) {
                    vacant.insert(Some(hop));
                    queue.push_back(next);
                }
            }
        }
        let mut path = Vec::new();
        let mut at = End::Host(target);
        while let Some(Some(hop)) = came_by.get(&at) {
            path.push(*hop);
            at = topology.source(*hop);
        }
        if path.is_empty() {
            return flow;
        }
        let step = path.iter().map(|hop| left[hop.index()]).fold(f64::INFINITY, f64::min);
        for hop in path {
            left[hop.index()] -= step;
            left[hop.reverse().index()] += step;
        }
        flow += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_routing::Shape;

    #[test]
    fn the_shortest_remaining_one_goes_first() {
        // Three at once: 1, then 2, then 3.
        assert_eq!(shortest_first(&[(0.0, 3.0), (0.0, 1.0), (0.0, 2.0)]), 1.0 + 3.0 + 6.0);
        // A short one that comes later goes before the rest of a long one.
        assert_eq!(shortest_first(&[(0.0, 4.0), (1.0, 1.0)]), 5.0 + 1.0);
        assert_eq!(shortest_first(&[(0.0, 1.0), (5.0, 1.0)]), 2.0);
    }

    #[test]
    fn flows_worked_by_hand() {
        let topology = Shape::mayflower(8.0).unwrap().topology();
        let gbits = |sources: &[u32], target| {
            let sources: Vec<Place> = sources.iter().copied().map(Place).collect();
            largest_flow(&topology, &sources, Place(target)) * 8.0 / 1e9
        };
        // The rack: the link. Another pod: one host has 1 Gb/s, which many paths of 500 Mb/s carry.
        assert!((gbits(&[1], 0) - 1.0).abs() < 1e-6);
        assert!((gbits(&[63], 0) - 1.0).abs() < 1e-6);
        let narrow = Shape::mayflower(64.0).unwrap().topology();
        let far = largest_flow(&narrow, &[Place(63)], Place(0)) * 8.0 / 1e9;
        // Four links to the cores of 1/16 Gb/s each.
        assert!((far - 0.25).abs() < 1e-6, "{far}");
    }
}
