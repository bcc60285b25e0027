//! Figures 11 and 12: what a new server and a new edition cost.

use super::assumed::{FILES, HP, SERVERS, Times, figure, in_bounds, xs};
use super::cluster::{Filters, Setting, world_of};
use super::where_found::{files_each, groups};
use crate::figure::Figure;
use crate::figures::draw::line;
use crate::figures::effort::Effort;
use crate::statistics::{Interval, mean};
use bearing_lookup::bloom::{BloomServer, Counts, Division, published_group_most};
use bearing_lookup::world::World;
use bearing_lookup::{Event, FileKey};
use bearing_placement::LookupKind;
use bearing_types::ServerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A cluster of which nobody asks anything: few files do.
fn quiet(lookup: LookupKind, servers: u32, seed: u64) -> (Setting, World<BloomServer>) {
    let few = Effort { seeds: 1, queries: 40, seed };
    let setting = Setting { lookup, ..groups(servers, HP, Filters::Published, few) };
    let options = setting.options();
    let mut world = world_of(&setting, &options);
    world.run_for(options.beat + options.beat / 2);
    (setting, world)
}

fn counts(world: &World<BloomServer>) -> BTreeMap<ServerId, Counts> {
    let of = |server| world.server(server).map(BloomServer::counts).unwrap_or_default();
    world.servers().map(|server| (server, of(server))).collect()
}

fn sum(counts: &BTreeMap<ServerId, Counts>, of: fn(&Counts) -> u64) -> u64 {
    counts.values().map(of).sum()
}

/// What a server that came in moved.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Joined {
    /// Replicas that were there before and came to another member.
    moved: u64,
    /// M' of the group that it came into; its whole cluster in HBA.
    members: u64,
    has_split: bool,
}

/// A server joins. The first heart-beat after it is waited for: what came later was lost, not moved.
fn join(lookup: LookupKind, servers: u32, seed: u64) -> Joined {
    let (setting, mut world) = quiet(lookup, servers, seed);
    let options = setting.options();
    let groups_in = |world: &World<BloomServer>| {
        let layout = world.server(ServerId(1)).and_then(|machine| machine.layout());
        layout.map(|layout| layout.division().groups()).unwrap_or_default()
    };
    let (before, groups_before) = (counts(&world), groups_in(&world));
    let newcomer = ServerId(servers + 1);
    world.add_server(newcomer, in_bounds(BloomServer::new(newcomer, options)));
    world.tell(newcomer, Event::Join(Some(ServerId(1))));
    world.run_for(options.beat / 4);
    let (after, groups_after) = (counts(&world), groups_in(&world));
    // The newcomer's own filter is new, so its copies are no migration.
    let sent = |counts: &BTreeMap<ServerId, Counts>| {
        let old = counts.iter().filter(|(server, _)| **server != newcomer);
        old.map(|(_, counts)| counts.migrated + counts.refetched).sum::<u64>()
    };
    let group = groups_after.values().find(|members| members.contains(&newcomer));
    let members = group.map_or(0, |members| members.len() as u64 - 1);
    Joined {
        moved: sent(&after) - sent(&before),
        members,
        has_split: groups_after.len() > groups_before.len(),
    }
}

/// A group of `members` places the replicas of all `others` by hash, modulo its size; so many have another
/// place once there is one member more.
fn moved_by_hash(others: u64, members: u64, seed: u64) -> u64 {
    let hash = |of: u64| xxhash_rust::xxh3::xxh3_64_with_seed(&of.to_le_bytes(), seed);
    (0..others).filter(|of| hash(*of) % members != hash(*of) % (members + 1)).count() as u64
}

/// Servers whose groups are not all full, so that a newcomer finds room: the published formula is of those.
const WITH_ROOM: [u32; 10] = [10, 22, 32, 40, 50, 60, 72, 82, 90, 100];

fn intervals(effort: Effort, xs: &[u32], of: impl Fn(u32, u64) -> f64) -> Vec<Interval> {
    let at = |servers: &u32| {
        let seeded = (0..effort.seeds).map(|seed| of(*servers, effort.seed + seed));
        Interval::of(&seeded.collect::<Vec<f64>>())
    };
    xs.iter().map(at).collect()
}

/// Replicas that move when a server joins.
pub fn figure_11(name: &str, effort: Effort) -> Figure {
    let hba = intervals(effort, &WITH_ROOM, |n, seed| join(LookupKind::BloomLevels, n, seed).moved as f64);
    let runs = |n: &u32| -> Vec<Joined> {
        (0..effort.seeds).map(|seed| join(LookupKind::BloomGroups, *n, effort.seed + seed)).collect()
    };
    let by_size: Vec<Vec<Joined>> = WITH_ROOM.iter().map(runs).collect();
    let joined: Vec<Joined> = by_size.iter().filter_map(|runs| runs.first().copied()).collect();
    let members = |n: u32| {
        let at = WITH_ROOM.iter().position(|other| *other == n).and_then(|index| joined.get(index));
        at.map_or(1, |joined| joined.members.max(1))
    };
    let hash = intervals(effort, &WITH_ROOM, |n, seed| {
        moved_by_hash(u64::from(n) - members(n), members(n), seed) as f64
    });
    let moved = |runs: &Vec<Joined>| {
        Interval::of(&runs.iter().map(|joined| joined.moved as f64).collect::<Vec<f64>>())
    };
    let grouped: Vec<Interval> = by_size.iter().map(moved).collect();
    let formula: Vec<Interval> = WITH_ROOM
        .iter()
        .map(|n| (f64::from(*n) - members(*n) as f64) / (members(*n) as f64 + 1.0))
        .map(|mean| Interval { mean, half: 0.0 })
        .collect();
    let x = xs(&WITH_ROOM);
    let series = vec![
        line("HBA", &x, &hba),
        line("hash placement", &x, &hash),
        line("G-HBA", &x, &grouped),
        line("G-HBA, (N - M')/(M' + 1)", &x, &formula),
    ];
    let mut figure = figure(name, effort, ["servers", "replicas that move", ""], series);
    let last = WITH_ROOM.len() - 1;
    figure.claim("HBA moves at 100 servers", 100.0, hba[last].mean, 100.0..=100.0, "");
    figure.stands(Some("HBA"), Some(100.0), 100.0);
    let most = 100.0 - members(100) as f64;
    let why = "a bound: of M' + 1 places one is the same by chance";
    figure.claim(
        "hash placement moves at 100 servers, up to N - M'",
        most,
        hash[last].mean,
        0.8 * most..=most,
        why,
    );
    figure.stands(Some("hash placement"), Some(100.0), most);
    let off = grouped.iter().zip(&formula).map(|(ours, formula)| (ours.mean - formula.mean).abs());
    let off = off.fold(0.0, f64::max);
    figure.claim("G-HBA moves (N - M')/(M' + 1): off by at most", 0.0, off, 0.0..=1.0, "whole replicas move");
    let split = joined.iter().filter(|joined| joined.has_split).count();
    figure.must("joins that split a group among these".to_owned(), split as f64, 0.0..=0.0, "");
    for servers in [20, 30, 70] {
        let joined = join(LookupKind::BloomGroups, servers, effort.seed);
        let said = format!("replicas that move when a group splits, {servers} servers");
        figure.see(
            said,
            joined.moved as f64,
            "a losing case: all groups are full, and two halves must each become whole",
        );
    }
    figure
}

/// What one edition costs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Updated {
    /// Messages of the server that publishes.
    published: f64,
    /// Messages in all groups, from who was told to who holds the replica.
    forwarded: f64,
}

/// Files are stored at one server until it published a few times.
fn update(lookup: LookupKind, servers: u32, effort: Effort, seed: u64) -> Updated {
    let (_, mut world) = quiet(lookup, servers, seed);
    let before = counts(&world);
    let publisher = ServerId(1 + (seed % u64::from(servers)) as u32);
    let edition =
        |world: &World<BloomServer>| world.server(publisher).map_or(0, |machine| machine.edition().0);
    let first = edition(&world);
    for number in 0..files_each(effort).min(200) {
        let key = FileKey(xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), !seed));
        world.store(publisher, key);
        world.run_for(Duration::from_micros(500));
    }
    let (after, editions) = (counts(&world), (edition(&world) - first).max(1) as f64);
    let each = |of: fn(&Counts) -> u64| (sum(&after, of) - sum(&before, of)) as f64 / editions;
    Updated { published: each(|counts| counts.published), forwarded: each(|counts| counts.forwarded) }
}

/// Milliseconds until all replicas are new: the publisher sends one after the other over its link of 1 Gb/s,
/// and who must pass one on does so at once.
fn update_latency(servers: u32, updated: Updated) -> f64 {
    let sent = FILES / f64::from(servers) * 8.0 * Times::BIT;
    let hops = if updated.forwarded > 0.0 { 1.0 } else { 0.0 };
    (updated.published + hops) * sent + (1.0 + hops) * (Times::ONE_WAY + Times::MESSAGE)
}

/// What it takes to replace stale replicas.
pub fn figure_12(name: &str, effort: Effort) -> Figure {
    let x = xs(&SERVERS);
    let (mut latency, mut messages, mut grouped) = (Vec::new(), Vec::new(), Vec::new());
    for (scheme, lookup) in [("HBA", LookupKind::BloomLevels), ("G-HBA", LookupKind::BloomGroups)] {
        let run = |n: &u32| -> Vec<Updated> {
            (0..effort.seeds).map(|seed| update(lookup, *n, effort, effort.seed + seed)).collect()
        };
        let runs: Vec<Vec<Updated>> = SERVERS.iter().map(run).collect();
        let of = |of: &dyn Fn(u32, Updated) -> f64| -> Vec<Interval> {
            let at = |(n, runs): (&u32, &Vec<Updated>)| {
                Interval::of(&runs.iter().map(|updated| of(*n, *updated)).collect::<Vec<f64>>())
            };
            SERVERS.iter().zip(&runs).map(at).collect()
        };
        latency.push(line(scheme, &x, &of(&update_latency)));
        let sent = of(&|_, updated| updated.published);
        messages.push(line(&format!("messages an edition, {scheme}"), &x, &sent));
        grouped = runs.into_iter().last().unwrap_or_default();
    }
    let series = latency.into_iter().chain(messages).collect();
    let axes = ["servers", "latency until all replicas are new; messages of the server", "ms; messages"];
    let mut figure = figure(name, effort, axes, series);
    let last = SERVERS.len() - 1;
    let ratio = figure.y("G-HBA", last) / figure.y("HBA", last);
    figure.claim(
        "latency of G-HBA over that of HBA at 100 servers: below",
        1.0,
        ratio,
        0.0..=1.0,
        "messages are the machines'; times assumed: whole filters of 8 bits a file of 160 million files, one \
         after the other at 1 Gb/s",
    );
    let sent = figure.y("messages an edition, HBA", last);
    figure.must("HBA: messages an edition at 100 servers, one a server".to_owned(), sent, 99.0..=99.0, "");
    let off = SERVERS.iter().enumerate().map(|(index, servers)| {
        (figure.y("messages an edition, G-HBA", index) - (groups_of(*servers) - 1.0)).abs()
    });
    let off = off.fold(0.0, f64::max);
    figure.must(
        "G-HBA: messages an edition, off from one for each other group by at most".to_owned(),
        off,
        0.0..=0.0,
        "",
    );
    let forwarded = grouped.iter().map(|updated| updated.forwarded / updated.published.max(1.0));
    let forwarded = mean(&forwarded.collect::<Vec<f64>>());
    figure.see(
        "messages that a group passes on, for each that it gets, at 100 servers".to_owned(),
        forwarded,
        "the one that is told holds the replica once in M'; also IDBFA errs",
    );
    figure
}

/// Groups of that many servers.
fn groups_of(servers: u32) -> f64 {
    let mut division = in_bounds(Division::new(published_group_most(servers)));
    (1..=servers).map(ServerId).for_each(|server| _ = division.join(server));
    division.groups().len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_into_a_group_with_room_moves_what_the_formula_says() {
        assert_eq!(join(LookupKind::BloomLevels, 12, 1).moved, 12);
        let joined = join(LookupKind::BloomGroups, 22, 1);
        assert!(!joined.has_split && joined.members >= 2, "{joined:?}");
        assert_eq!(joined.moved, (22 - joined.members) / (joined.members + 1));
        assert!([20, 30].into_iter().all(|servers| join(LookupKind::BloomGroups, servers, 1).has_split));
        assert!(
            !WITH_ROOM.into_iter().take(4).any(|servers| join(LookupKind::BloomGroups, servers, 1).has_split)
        );
    }

    #[test]
    fn placement_by_hash_moves_all_but_those_that_stay_by_chance() {
        let moved = moved_by_hash(100_000, 4, 7) as f64 / 100_000.0;
        assert!((moved - 0.8).abs() < 0.01, "of x mod 4 and x mod 5 four in twenty are the same: {moved}");
    }

    #[test]
    fn an_update_takes_as_long_as_its_messages_one_after_the_other() {
        let direct = Updated { published: 99.0, forwarded: 0.0 };
        assert!((update_latency(100, direct) - (99.0 * 12.8 + 0.11)).abs() < 1e-9);
        let passed = Updated { published: 10.0, forwarded: 9.0 };
        assert!((update_latency(100, passed) - (11.0 * 12.8 + 0.22)).abs() < 1e-9);
    }
}
