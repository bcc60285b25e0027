//! Figures 8 to 10: latency by how much of the filters is in memory.
//!
//! Measured: where each query ends, and how long it is in the network. Assumed: that each server has a disk,
//! that replicas which are not in memory cost one access each whenever all are looked into, and when queries
//! come. What the home then does costs the same in all schemes.

use super::assumed::{FILES, HP, INS, RES, Times, Workload, figure, xs};
use super::cluster::{Cluster, Filters, Found, Level, Setting};
use super::where_found::{groups, past};
use crate::figure::{Figure, Series};
use crate::figures::draw::line;
use crate::figures::effort::Effort;
use crate::statistics::{Interval, mean};
use bearing_placement::LookupKind;
use bearing_types::ServerId;
use bearing_workload::Seeded;
use std::collections::BTreeMap;

/// The paper prints no number of servers beside these figures.
const SERVERS: u32 = 100;
/// Operations a second of each server.
const RATE: f64 = 4.0;
/// MB of a filter of 8 bits a file.
const FILTER: f64 = FILES / SERVERS as f64 / 1e6;
/// MB of memory for filters. The first holds all of HBA's, the last but one all of G-HBA's.
const MEMORY: [f64; 5] = [160.0, 150.0, 120.0, 40.0, 10.0];
const PLENTY: f64 = MEMORY[0];
const LITTLE: f64 = MEMORY[3];
/// Means are of so many stretches of a run.
const STRETCHES: usize = 6;

/// A run, whatever the memory.
#[derive(Clone, Debug)]
struct Run {
    /// When each query came, in milliseconds, and how it ended.
    queries: Vec<(f64, Found)>,
    replicas: BTreeMap<ServerId, usize>,
    peers: BTreeMap<ServerId, Vec<ServerId>>,
}

impl Run {
    fn of(setting: &Setting, effort: Effort) -> Run {
        let mut cluster = Cluster::new(setting, past(effort));
        let mut rng = Seeded::new(setting.seed ^ 0x6c61_7465);
        let mut now = 0.0;
        let queries = (0..4 * effort.queries)
            .map(|_| {
                now -= (1.0 - rng.fraction()).ln() * 1e3 / RATE / f64::from(setting.servers);
                (now, cluster.operation())
            })
            .collect();
        let replicas = cluster.replicas();
        let peers = replicas.keys().map(|server| (*server, cluster.peers(*server))).collect();
        Run { queries, replicas, peers }
    }

    /// Milliseconds of each query if every server has so many MB for its filters.
    fn latencies(&self, memory: f64) -> Vec<f64> {
        let mut disks = Disks { memory, free: BTreeMap::new() };
        self.queries.iter().map(|(came, found)| self.latency(*came, *found, &mut disks)).collect()
    }

    fn latency(&self, came: f64, found: Found, disks: &mut Disks) -> f64 {
        let held = |server: ServerId| self.replicas.get(&server).copied().unwrap_or(0);
        let none = Vec::new();
        let peers = self.peers.get(&found.entry).unwrap_or(&none);
        let mut now = came + self.replicas.len() as f64 * Times::PROBE;
        if found.level >= Level::Segment {
            now = disks.look(found.entry, held(found.entry), now);
        }
        if found.level >= Level::Group {
            let looked = peers.iter().map(|peer| disks.look(*peer, held(*peer), now));
            now = looked.fold(now, f64::max) + peers.len() as f64 * Times::MESSAGE;
        }
        if found.level == Level::All {
            now += self.replicas.len() as f64 * Times::MESSAGE;
        }
        now - came + found.network + Times::SERVE
    }
}

/// A disk for each server, which serves in the order of arrival.
struct Disks {
    memory: f64,
    free: BTreeMap<ServerId, f64>,
}

impl Disks {
    /// A server looks into all filters that it holds. When it has.
    fn look(&mut self, server: ServerId, replicas: usize, now: f64) -> f64 {
        let probed = now + (replicas as f64 + 1.0) * Times::PROBE;
        let cold = self.cold(replicas);
        if cold == 0.0 {
            return probed;
        }
        let free = self.free.entry(server).or_insert(0.0);
        *free = free.max(probed) + cold * Times::DISK;
        *free
    }

    /// Replicas that are not in memory. Its own filter always is.
    fn cold(&self, replicas: usize) -> f64 {
        let held = (self.memory / FILTER - 1.0).floor().max(0.0);
        (replicas as f64 - held).max(0.0)
    }
}

fn stretches(runs: &[Run], memory: f64) -> Vec<Interval> {
    let latencies: Vec<Vec<f64>> = runs.iter().map(|run| run.latencies(memory)).collect();
    let stretch = |index: usize| {
        let of = |all: &Vec<f64>| {
            let bound = |index: usize| all.len() * index / STRETCHES;
            mean(&all[bound(index)..bound(index + 1)])
        };
        Interval::of(&latencies.iter().map(of).collect::<Vec<f64>>())
    };
    (0..STRETCHES).map(stretch).collect()
}

fn by_memory(name: &str, effort: Effort, workload: Workload) -> Figure {
    let runs = |lookup| -> Vec<Run> {
        let setting = Setting { lookup, ..groups(SERVERS, workload, Filters::ActiveOnly, effort) };
        let seeded = |seed| Setting { seed: effort.seed + seed, ..setting };
        (0..effort.seeds).map(|seed| Run::of(&seeded(seed), effort)).collect()
    };
    let ends: Vec<u32> =
        (1..=STRETCHES).map(|index| (4 * effort.queries * index / STRETCHES) as u32).collect();
    let mut series: Vec<Series> = Vec::new();
    for (scheme, lookup) in [("HBA", LookupKind::BloomLevels), ("G-HBA", LookupKind::BloomGroups)] {
        let runs = runs(lookup);
        let of =
            |memory: &f64| line(&format!("{scheme}, {memory} MB"), &xs(&ends), &stretches(&runs, *memory));
        series.extend(MEMORY.iter().map(of));
    }
    let mut figure = figure(name, effort, ["operations", "mean latency", "ms"], series);
    let over = |figure: &Figure, scheme: &str, memory: f64| {
        let all = |scheme: &str| -> f64 {
            let scheme = format!("{scheme}, {memory} MB");
            (0..STRETCHES).map(|index| figure.y(&scheme, index)).sum()
        };
        all(scheme) / all("HBA")
    };
    let (little, plenty) = (over(&figure, "G-HBA", LITTLE), over(&figure, "G-HBA", PLENTY));
    figure.claim(
        "with little memory G-HBA is below HBA, by up to",
        0.312,
        1.0 - little,
        0.312..=1.0,
        "the number is the prototype's, of which neither memory nor disk is known; here a replica that is \
         not in memory costs 5 ms whenever it is looked into, and disks have queues, so HBA loses far more",
    );
    figure.must(
        "with 40 MB, G-HBA over HBA: below 1".to_owned(),
        little,
        0.0..=1.0,
        "G-HBA's are all in memory",
    );
    let lookup = {
        let all = |scheme: &str| -> f64 {
            (0..STRETCHES).map(|index| figure.y(scheme, index) - Times::SERVE).sum()
        };
        all("G-HBA, 160 MB") / all("HBA, 160 MB")
    };
    figure.must(
        "with 160 MB, all of HBA's, a lookup of G-HBA over one of HBA: at most 1.3".to_owned(),
        lookup,
        0.0..=1.3,
        "what G-HBA asks its group for HBA finds at once: one more round trip for what L1 and L2 miss, and HP's \
         popularity, which is assumed, lets them miss most",
    );
    figure.see(
        "the same of operations, which take the home 0.2 ms more".to_owned(),
        plenty,
        "the 0.2 ms are assumed",
    );
    let least = over(&figure, "G-HBA", MEMORY[4]);
    figure.see("with 10 MB, G-HBA over HBA".to_owned(), least, "G-HBA's are not all in memory either");
    let turn = MEMORY.iter().rev().find(|memory| over(&figure, "G-HBA", **memory) > 1.0);
    figure.see(
        "the least of these memories, in MB, with which HBA is the faster; 0: none".to_owned(),
        turn.copied().unwrap_or(0.0),
        "",
    );
    figure
}

/// HP.
pub fn figure_8(name: &str, effort: Effort) -> Figure {
    by_memory(name, effort, HP)
}

/// RES.
pub fn figure_9(name: &str, effort: Effort) -> Figure {
    by_memory(name, effort, RES)
}

/// INS.
pub fn figure_10(name: &str, effort: Effort) -> Figure {
    by_memory(name, effort, INS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(level: Level, times: &[f64]) -> Run {
        let entry = ServerId(1);
        let found = Found { level, entry, is_right: true, network: 0.5 };
        Run {
            queries: times.iter().map(|time| (*time, found)).collect(),
            replicas: (1..=100).map(|server| (ServerId(server), 99)).collect(),
            peers: BTreeMap::from([(entry, vec![ServerId(2), ServerId(3)])]),
        }
    }

    #[test]
    fn replicas_that_are_not_in_memory_cost_an_access_each_and_queries_wait_for_each_other() {
        let probes = 0.05 + 0.05;
        let near = |found: &[f64], wanted: &[f64]| {
            let off = found.iter().zip(wanted).map(|(found, wanted)| (found - Times::SERVE - wanted).abs());
            assert!(
                found.len() == wanted.len() && off.fold(0.0, f64::max) < 1e-9,
                "{found:?}, not {wanted:?}"
            );
        };
        near(&run(Level::Segment, &[0.0]).latencies(PLENTY), &[0.5 + probes]);
        near(&run(Level::Recent, &[0.0]).latencies(LITTLE), &[0.5 + 0.05]);
        // 40 MB hold 25 filters, one of them its own.
        let once = 75.0 * Times::DISK;
        near(
            &run(Level::Segment, &[0.0, 0.0]).latencies(LITTLE),
            &[0.5 + probes + once, 0.5 + probes + 2.0 * once],
        );
        near(&run(Level::Group, &[0.0]).latencies(PLENTY), &[0.5 + probes + 0.05 + 0.02]);
        near(&run(Level::Group, &[0.0]).latencies(LITTLE), &[0.5 + probes + 2.0 * once + 0.05 + 0.02]);
        near(&run(Level::All, &[0.0]).latencies(PLENTY), &[0.5 + probes + 0.05 + 0.02 + 1.0]);
    }
}
