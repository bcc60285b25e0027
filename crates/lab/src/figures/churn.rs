//! Beyond the papers: what it costs that a server joins or fails.
//!
//! Measured: messages between servers until all know, beyond those that they send each other at rest, by the
//! machines; flow entries that switches change, by the tables. Where a map is told to everybody, that is one
//! message for each server and client.

use super::draw::line;
use super::effort::Effort;
use crate::figure::Figure;
use crate::parallel::each;
use crate::statistics::{Interval, mean};
use bearing_lookup::bloom::Sizes;
use bearing_lookup::world::World;
use bearing_lookup::{Event, FileKey, Lookup, Machine};
use bearing_openflow::{Budget, Form, Tables};
use bearing_placement::partition::build;
use bearing_placement::{Hosts, LookupKind, Parameters, PartitionKind, Scheme};
use bearing_routing::Shape;
use bearing_types::ServerId;
use std::sync::Arc;
use std::time::Duration;

const SIZES: [u32; 5] = [10, 20, 50, 100, 200];
/// Clients that a map is told to.
const CLIENTS: u32 = 500;
/// Files of each server, where filters say who has what.
const FILES_EACH: u64 = 200;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Join,
    Failure,
}

/// Schemes by how the change becomes known.
const LINES: [(&str, Scheme); 5] = [
    ("chord", Scheme::Chord),
    ("rdht-mdsc", Scheme::RdhtMdsc),
    ("hba", Scheme::Hba),
    ("g-hba", Scheme::GHba),
    ("a map told to all", Scheme::AnglecutHashed),
];

pub(super) fn join(name: &str, effort: Effort) -> Figure {
    figure(name, effort, Change::Join)
}

pub(super) fn failure(name: &str, effort: Effort) -> Figure {
    figure(name, effort, Change::Failure)
}

fn figure(name: &str, effort: Effort, change: Change) -> Figure {
    let sizes = if effort.seeds < 3 { &SIZES[..2] } else { &SIZES[..] };
    let xs: Vec<f64> = sizes.iter().map(|servers| f64::from(*servers)).collect();
    let jobs: Vec<(usize, u32, u64)> = (0..=LINES.len())
        .flat_map(|line| sizes.iter().map(move |servers| (line, *servers)))
        .flat_map(|(line, servers)| (0..effort.seeds).map(move |seed| (line, servers, effort.seed + seed)))
        .collect();
    let costs = each(&jobs, |(line, servers, seed)| match LINES.get(*line) {
        Some((_, Scheme::AnglecutHashed)) => f64::from(servers + CLIENTS),
        Some((_, scheme)) => messages(*scheme, *servers, *seed, change),
        None => entries(*servers, *seed, change),
    });
    let names = LINES.iter().map(|(name, _)| *name).chain(["in-network, flow entries"]);
    let series = names.enumerate().map(|(index, name)| {
        let of = |servers: &u32| {
            let own =
                jobs.iter().zip(&costs).filter(|((line, size, _), _)| (line, size) == (&index, servers));
            Interval::of(&own.map(|(_, cost)| *cost).collect::<Vec<_>>())
        };
        line(name, &xs, &sizes.iter().map(of).collect::<Vec<_>>())
    });
    let mut figure = Figure {
        figure: name.into(),
        x: "servers".into(),
        y: "messages until all know".into(),
        unit: String::new(),
        series: series.collect(),
        published: Vec::new(),
        ours: Vec::new(),
        seed: effort.seed,
        commit: String::new(),
        costs: None,
    };
    let last = sizes.len() - 1;
    let largest = sizes[last];
    for (name, _) in LINES {
        let value = figure.y(name, last);
        let why = match (name, change) {
            ("chord", Change::Failure) => {
                "neighbours only: others find out when a query meets the failed server"
            }
            _ => "beyond what they send at rest",
        };
        figure.see(format!("{name} with {largest} servers"), value, why);
    }
    let entries = figure.y("in-network, flow entries", last);
    figure.see(
        format!("flow entries that change with {largest} servers"),
        entries,
        "on all switches together",
    );
    figure
}

/// Messages in so much time; the world goes on.
fn sent(world: &mut World<Box<dyn Machine>>, time: Duration) -> f64 {
    let before = world.messages();
    world.run_for(time);
    (world.messages() - before) as f64
}

fn messages(scheme: Scheme, count: u32, seed: u64, change: Change) -> f64 {
    let kind = scheme.parts().lookup;
    let lookup = Lookup::new(kind, Sizes { servers: count, keys_each: FILES_EACH }).expect("within bounds");
    let first = 1 + 1000 * (seed % 1_000_000) as u32;
    let servers: Vec<ServerId> = (first..first + count).map(ServerId).collect();
    let mut world = World::new(Duration::from_micros(100), Box::new(|_| None));
    for (server, machine) in lookup.servers(&servers) {
        world.add_server(server, machine);
    }
    if matches!(kind, LookupKind::BloomLevels | LookupKind::BloomGroups) {
        for (number, server) in servers.iter().enumerate() {
            let files = (0..FILES_EACH).map(|file| FileKey(seed << 40 | (number as u64) << 20 | file));
            files.for_each(|file| world.store(*server, file));
        }
    }
    let settles = lookup.settles();
    world.run_for(settles);
    match change {
        Change::Join => {
            let new = ServerId(first + count);
            world.add_server(new, lookup.newcomer(new));
            world.tell(new, Event::Join(servers.first().copied()));
        }
        Change::Failure => {
            world.vanish(servers[servers.len() / 2]);
        }
    }
    let changing = sent(&mut world, settles);
    // What as many say to each other anyway; it differs a bit from one time to the next.
    let at_rest = mean(&[0; 3].map(|_| sent(&mut world, settles)));
    (changing - at_rest).max(0.0)
}

/// Flow entries that come or go on the switches of the smallest fat tree with room.
fn entries(count: u32, seed: u64, change: Change) -> f64 {
    let first = 1 + 1000 * (seed % 1_000_000) as u32;
    let servers: Vec<ServerId> = (first..=first + count).map(ServerId).collect();
    let (members, new) = servers.split_at(count as usize);
    let ports =
        (2u32..).step_by(2).find(|ports| ports.pow(3) / 4 > count).expect("some tree is large enough");
    let shape = Shape::fat_tree(ports).expect("a number of ports that is even");
    let topology = Arc::new(shape.switch_tree().expect("a fat tree is a tree of switches"));
    let hosts = Hosts::in_order(&topology, &servers).expect("there is room");
    let mut partition =
        build(PartitionKind::History, members, &Parameters::default()).expect("there are servers");
    let tables = |arcs: &bearing_placement::Arcs| {
        Tables::new(&topology, &hosts, &arcs.rounded(0.1), Form::Compressed, Budget(usize::MAX))
            .expect("every owner has a place")
    };
    let before = tables(partition.arcs());
    let changed = match change {
        Change::Join => partition.join(new[0]),
        Change::Failure => partition.fail(members[members.len() / 2]),
    };
    changed.expect("it was no member, or was one of many");
    let after = tables(partition.arcs());
    let differing = topology.switches().map(|switch| {
        let of = |tables: &Tables| tables.of(switch).entries().to_vec();
        let (one, other) = (of(&before), of(&after));
        let gone = one.iter().filter(|entry| !other.contains(entry)).count();
        gone + other.iter().filter(|entry| !one.contains(entry)).count()
    });
    differing.sum::<usize>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_and_a_failure_cost_what_their_schemes_say() {
        // HBA's newcomer takes part in what all hold: it hears of everybody, and everybody of it.
        let hba = messages(Scheme::Hba, 20, 1, Change::Join);
        assert!(hba >= 2.0 * 20.0, "{hba}");
        let grouped = messages(Scheme::GHba, 20, 1, Change::Join);
        assert!(grouped > 0.0 && grouped < hba, "{grouped} of {hba}");
        // The layout to each, two share-outs to each, and a few who report: not what crossed on its way.
        let failed = messages(Scheme::GHba, 100, 1, Change::Failure);
        assert!((100.0..500.0).contains(&failed), "{failed}");
        let ring = messages(Scheme::RdhtMdsc, 20, 1, Change::Failure);
        assert!(ring > 0.0, "nobody is told of a failure");
        assert!(entries(20, 1, Change::Join) > 0.0 && entries(20, 1, Change::Failure) > 0.0);
    }
}
