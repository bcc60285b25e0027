//! The figures that can be drawn.

mod anglecut;
mod calibrated;
mod churn;
mod draw;
mod effort;
mod ghba;
mod mayflower;
mod metaflow;
mod rdht;

use crate::figure::Figure;
use crate::report::Basis;
pub use calibrated::{CALIBRATED, basis as calibrated_basis, calibrated};
use effort::Effort;

/// A figure that can be drawn.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    draw: fn(&str, Effort) -> Figure,
}

impl Known {
    /// Draws it. `is_quick` runs less, for a look.
    pub fn draw(&self, seed: u64, is_quick: bool) -> Figure {
        let (seeds, queries) = if is_quick { (3, 600) } else { (10, 2000) };
        (self.draw)(self.name, Effort { seeds, queries, seed })
    }
}

impl Known {
    /// What of it is measured, what simulated, what assumed.
    pub fn basis(&self) -> Basis {
        let (measured, simulated, assumed) = match self.name.split('-').next() {
            Some("mayflower") => (
                "the decisions of the flow server that clusters run",
                "the network, flow by flow, with exact max-min fair shares",
                "arrivals, sizes and places of readers are drawn as the paper says; hosts and disks take no time \
                 unless a line says so",
            ),
            Some("anglecut") => (
                "where every name lies and which server it is asked of, by the placements that production runs; \
                 what rebalances move",
                "clients' caches, with leases of 3 seconds",
                "traces are generated (docs/design/2026-11-30-generated-traces.md); servers are alike; an \
                 operation costs its server as much as any other",
            ),
            Some("ghba") => (
                "lookups, filters and messages of the machines that production runs; encoded filters",
                "the network: every message takes the same time",
                "popularities of files by workload, times of disks and memories: named with each figure",
            ),
            _ => (
                "lookups and placements by the machines that production runs",
                "hosts are queues, first come first served; links have latencies",
                "what operations, lookups and messages cost are ratios of the paper, not of machines",
            ),
        };
        Basis { measured: measured.into(), simulated: simulated.into(), assumed: assumed.into() }
    }
}

/// A figure that cannot be drawn yet.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its name.
    pub name: &'static str,
    /// What it waits for.
    pub why: &'static str,
}

/// All of these.
pub const WAITING: &[Waiting] = &[
    Waiting { name: "metaflow-2, -3, -4, -5", why: "measured on a testbed: lookups that run live" },
    Waiting { name: "metaflow-14, -16, -18, -19, -20", why: "measured on a testbed: lookups that run live" },
    Waiting { name: "anglecut-9", why: "caches of servers, which do not exist" },
    Waiting { name: "rdht-3", why: "linked lists in a table of fixed size: nothing of ours" },
    Waiting { name: "ghba-14, -15", why: "the prototype's latency and messages: lookups that run live" },
];

/// All of them.
pub const FIGURES: &[Known] = &[
    Known { name: "mayflower-3", about: "completion times of reads by selection", draw: mayflower::figure_3 },
    Known { name: "mayflower-4", about: "the same by where readers are", draw: mayflower::figure_4 },
    Known { name: "mayflower-5", about: "the same by the rate of reads", draw: mayflower::figure_5 },
    Known { name: "mayflower-6", about: "the same by oversubscription", draw: mayflower::figure_6 },
    Known { name: "mayflower-7", about: "reads beside flows of others", draw: mayflower::figure_7 },
    Known { name: "mayflower-8", about: "completion times by the size of a read", draw: mayflower::figure_8 },
    Known { name: "mayflower-9", about: "Mayflower beside HDFS", draw: mayflower::figure_9 },
    Known {
        name: "mayflower-disks",
        about: "beyond the paper: hosts with slow disks",
        draw: mayflower::slow_disks,
    },
    Known {
        name: "mayflower-optimum",
        about: "beyond the paper: few reads beside the best possible",
        draw: mayflower::optimum,
    },
    Known {
        name: "mayflower-writes",
        about: "beyond the paper: where new chunks are written",
        draw: mayflower::writes,
    },
    Known { name: "mayflower-hosts", about: "beyond the paper: 64 to 1,024 hosts", draw: mayflower::hosts },
    Known { name: "anglecut-6", about: "throughput by servers", draw: anglecut::figure_6 },
    Known { name: "anglecut-7", about: "locality beside static subtree's", draw: anglecut::figure_7 },
    Known { name: "anglecut-8", about: "balance beside hash's", draw: anglecut::figure_8 },
    Known { name: "anglecut-10", about: "entries moved by a rebalance", draw: anglecut::figure_10 },
    Known { name: "anglecut-11", about: "the upper bound of alpha", draw: anglecut::figure_11 },
    Known { name: "anglecut-table4", about: "operations of the traces", draw: anglecut::table_4 },
    Known {
        name: "anglecut-skew",
        about: "beyond the paper: by the popularity's skew",
        draw: anglecut::skew,
    },
    Known { name: "ghba-6", about: "throughput by latency and space, by group size", draw: ghba::figure_6 },
    Known { name: "ghba-7", about: "the best size of groups by servers", draw: ghba::figure_7 },
    Known { name: "ghba-8", about: "latency by memory, HP", draw: ghba::figure_8 },
    Known { name: "ghba-9", about: "latency by memory, RES", draw: ghba::figure_9 },
    Known { name: "ghba-10", about: "latency by memory, INS", draw: ghba::figure_10 },
    Known { name: "ghba-11", about: "replicas that move when a server joins", draw: ghba::figure_11 },
    Known { name: "ghba-12", about: "what replacing stale replicas costs", draw: ghba::figure_12 },
    Known { name: "ghba-13", about: "the levels that answer queries", draw: ghba::figure_13 },
    Known { name: "ghba-table5", about: "memory beside plain arrays of filters", draw: ghba::table_5 },
    Known { name: "metaflow-13", about: "throughput by servers and ratios", draw: metaflow::figure_13 },
    Known { name: "metaflow-15", about: "latency beside hash-based mapping", draw: metaflow::figure_15 },
    Known { name: "metaflow-17", about: "flow entries of switches", draw: metaflow::figure_17 },
    Known {
        name: "churn-join",
        about: "beyond the papers: what a server that joins costs",
        draw: churn::join,
    },
    Known { name: "churn-failure", about: "the same of one that fails", draw: churn::failure },
    Known { name: "rdht-4", about: "latency by clients and servers, without LC-RIC", draw: rdht::figure_4 },
    Known { name: "rdht-5", about: "the same with LC-RIC", draw: rdht::figure_5 },
    Known { name: "rdht-6", about: "writes with a copy on the successor", draw: rdht::figure_6 },
    Known { name: "rdht-7", about: "reconstruction after a failure", draw: rdht::figure_7 },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Too few reads to say anything, but every figure is whole.
    #[test]
    fn every_figure_has_its_lines_and_what_was_seen_of_each_claim() {
        for known in FIGURES {
            let figure = (known.draw)(known.name, Effort { seeds: 2, queries: 24, seed: 5 });
            let points = figure.series.iter().flat_map(|series| &series.points);
            assert!(
                points.clone().count() > 5 && points.flatten().all(|value| value.is_finite()),
                "{}",
                known.name
            );
            for (published, ours) in figure.published.iter().zip(&figure.ours) {
                assert_eq!(published.claim, ours.claim, "{}", known.name);
            }
            for mark in figure.marks() {
                let is_line = |scheme: &String| figure.series.iter().any(|series| series.scheme == *scheme);
                assert!(mark.scheme.as_ref().is_none_or(is_line), "{}: {mark:?}", known.name);
            }
            assert!(figure.published.len() <= figure.ours.len() && !figure.ours.is_empty(), "{}", known.name);
            assert!(
                figure.ours.iter().all(|seen| seen.value.is_finite()),
                "{}: {:?}",
                known.name,
                figure.ours
            );
            let json = serde_json::to_value(&figure).unwrap();
            let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let expected = ["commit", "figure", "ours", "published", "seed", "series", "unit", "x", "y"];
            assert_eq!(keys, expected);
        }
    }
}
