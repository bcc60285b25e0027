//! How requests find servers once a trace is over: hops, and what clients, servers and switches keep.
//!
//! The machines are those of production, at rest: everybody knows the present map, and no server comes or
//! goes. Operations of the trace are asked one after the other, so that what one taught a client, its next
//! may use.

use super::recorded::Recorded;
use crate::candidate::Candidate;
use crate::placed::Placed;
use bearing_lookup::bloom::Sizes;
use bearing_lookup::conformance::Decides;
use bearing_lookup::finger::Points;
use bearing_lookup::world::World;
use bearing_lookup::{Event, FileKey, Lookup, Machine, Map, QueryId, Target};
use bearing_openflow::{Budget, Form, Tables};
use bearing_placement::{Assignment, Hosts, LookupKind, Partition, PartitionKind};
use bearing_routing::Shape;
use bearing_types::{MapVersion, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Operations that are asked, evenly from the whole trace.
const QUERIES_MAX: usize = 50_000;
/// Where a request may ask every server, so many are asked in all.
const ASKED_MAX: usize = 5_000_000;
/// Clients that ask; others of the trace share theirs.
const CLIENTS_MAX: usize = 500;
/// Boundaries of tables are rounded to short prefixes within this share of an arc, as a cluster's are.
const TOLERANCE: f64 = 0.1;
/// What a query takes on its way, once. Nothing depends on it.
const LATENCY: Duration = Duration::from_micros(100);
/// Longer no query takes; one that does is an error of ours.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// Servers that a request comes to, in the mean: 1 is the least.
    pub hops: f64,
    /// Requests that were asked.
    pub queries: u64,
    /// What a client's tables take, in the mean.
    pub client_bytes: f64,
    /// What the largest of the servers' tables takes.
    pub server_bytes: u64,
    /// Entries of the fullest switch, where switches carry requests.
    pub switch_entries: Option<u64>,
}

/// Asks for the nodes of a trace by the lookup of a candidate.
pub(super) fn routes(
    recorded: &Recorded,
    placed: &Placed,
    candidate: &Candidate,
    servers: &[ServerId],
    partition: &dyn Partition,
    seed: u64,
) -> Result<Routes, String> {
    let kind = candidate.parts.lookup;
    let queries = match kind {
        LookupKind::BloomLevels
        | LookupKind::BloomGroups
        | LookupKind::BloomArray8
        | LookupKind::BloomArray16 => QUERIES_MAX.min(ASKED_MAX / servers.len().max(1)),
        _ => QUERIES_MAX,
    };
    let every = recorded.operations.len().div_ceil(queries).max(1);
    let asked: Vec<_> = recorded.operations.iter().step_by(every).copied().collect();
    let nodes: std::collections::BTreeSet<_> = asked.iter().map(|operation| operation.node).collect();
    let sizes = Sizes {
        servers: servers.len() as u32,
        keys_each: (nodes.len() as u64).div_ceil(servers.len() as u64).max(64),
    };
    let lookup = Lookup::new(kind, sizes).map_err(|error| error.to_string())?;
    let of_ring = candidate.parts.partition == PartitionKind::Ring;
    let lookup = match (kind.is_ring(), of_ring) {
        (true, false) => lookup.at_rest().with_points(Points::of(partition.arcs())),
        (true, true) | (false, _) => lookup.at_rest(),
    };
    // Who owns by points of a ring has no tablets: fingers and the ring itself decide. Clients that compute
    // know exact arcs.
    let arcs = match kind.is_ring() || kind == LookupKind::Computed {
        true => partition.arcs().clone(),
        false => partition.arcs().rounded(TOLERANCE),
    };
    let owners = arcs.clone();
    let holders: BTreeMap<FileKey, ServerId> =
        nodes.iter().map(|node| (FileKey(u64::from(*node)), arcs.owner(placed.position(*node)))).collect();
    let decides = lookup.decides();
    let mut world: World = World::new(
        LATENCY,
        match decides {
            Decides::Owner => Box::new(move |target: &Target| Some(owners.owner(target.position))),
            Decides::Holder => {
                let holders = holders.clone();
                Box::new(move |target: &Target| holders.get(&target.file).copied())
            }
        },
    );
    let carried = arcs.clone();
    world.set_network(Box::new(move |position| Some(carried.owner(position))));
    let mut files: BTreeMap<ServerId, Vec<FileKey>> = BTreeMap::new();
    if decides == Decides::Holder {
        holders.iter().for_each(|(file, server)| files.entry(*server).or_default().push(*file));
        holders.iter().for_each(|(file, server)| world.keep(*server, *file));
    }
    for (server, machine) in lookup.servers_holding(servers, &files) {
        world.add_server(server, machine);
    }
    if !kind.is_ring() {
        let assignment = Assignment::of(&arcs, 1).map_err(|error| error.to_string())?;
        let map = Event::Map(Map::new(MapVersion(1), assignment));
        let all: Vec<ServerId> = world.servers().collect();
        all.into_iter().for_each(|server| world.tell(server, map.clone()));
        add_clients(&mut world, &lookup, servers, &asked, seed);
        world.tell_clients(&map);
    } else {
        add_clients(&mut world, &lookup, servers, &asked, seed);
    }
    let clients = world.clients().count();
    for (id, operation) in (0..).zip(&asked) {
        let target =
            Target { position: placed.position(operation.node), file: FileKey(u64::from(operation.node)) };
        world.ask(usize::from(operation.client) % clients, QueryId(id), target);
        if !world.run_until_answered(PATIENCE) {
            return Err(format!("a request of {} had no answer", candidate.name));
        }
        world.run_for(LATENCY);
    }
    let hops: u64 = (0..asked.len() as u64)
        .filter_map(|id| world.ending(QueryId(id)))
        .map(|ending| u64::from(ending.hops))
        .sum();
    let bytes: Vec<usize> = world.clients().map(|client| client.table_bytes()).collect();
    let largest =
        world.servers().filter_map(|server| world.server(server)).map(|server| server.table_bytes());
    let switch_entries =
        (kind == LookupKind::InNetwork).then(|| fullest_switch(&arcs, servers)).transpose()?;
    Ok(Routes {
        hops: hops as f64 / asked.len().max(1) as f64,
        queries: asked.len() as u64,
        client_bytes: bytes.iter().sum::<usize>() as f64 / bytes.len().max(1) as f64,
        server_bytes: largest.max().unwrap_or(0) as u64,
        switch_entries,
    })
}

fn add_clients(
    world: &mut World,
    lookup: &Lookup,
    servers: &[ServerId],
    asked: &[super::recorded::Operation],
    seed: u64,
) {
    let most = asked.iter().map(|operation| usize::from(operation.client) + 1).max().unwrap_or(1);
    for client in 0..most.min(CLIENTS_MAX) as u64 {
        world.add_client(lookup.client(servers, seed.wrapping_mul(0x1_0000) + client));
    }
}

/// Over the smallest fat tree that has room for the servers, as they are numbered.
fn fullest_switch(arcs: &bearing_placement::Arcs, servers: &[ServerId]) -> Result<u64, String> {
    let ports = (2u32..).step_by(2).find(|ports| u64::from(*ports).pow(3) / 4 >= servers.len() as u64);
    let shape = Shape::fat_tree(ports.unwrap_or(2)).map_err(|error| error.to_string())?;
    let topology = Arc::new(shape.switch_tree().map_err(|error| error.to_string())?);
    let hosts = Hosts::in_order(&topology, servers).map_err(|error| error.to_string())?;
    // What a switch could hold is not asked here: the number is what is to be seen.
    let tables = Tables::new(&topology, &hosts, arcs, Form::Compressed, Budget(usize::MAX));
    let tables = tables.map_err(|error| error.to_string())?;
    let entries = topology.switches().map(|switch| tables.of(switch).entries().len() as u64);
    Ok(entries.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_placement::partition::build;
    use bearing_placement::{Arcs, Parameters};
    use bearing_types::Position;

    /// Tables are asked with rounded boundaries, scores are made of exact ones.
    #[test]
    fn tables_and_scores_differ_on_a_fortieth_of_the_ring_at_most() {
        let servers: Vec<ServerId> = (1..=30).map(ServerId).collect();
        let parameters = Parameters { virtual_nodes: 16, ..Parameters::default() };
        let ring = build(PartitionKind::Ring, &servers, &parameters).unwrap();
        let moved = ring.arcs().moved(&ring.arcs().rounded(TOLERANCE));
        assert!(moved < 0.025, "{moved}");
    }

    /// Two servers at one switch share half of the ring by turns, 16 arcs each: no other switch has to tell
    /// them apart.
    #[test]
    fn the_fullest_switch_is_the_one_that_tells_most_arcs_apart() {
        let servers: Vec<ServerId> = (1..=16).map(ServerId).collect();
        let turns = (0..32u64).map(|turn| (Position(turn << 58), servers[turn as usize % 2]));
        let others =
            (2..16u64).map(|server| (Position((1 << 63) + (server << 59)), servers[server as usize]));
        let arcs = Arcs::new(turns.chain(others)).unwrap();
        let entries = fullest_switch(&arcs, &servers).unwrap();
        assert!((16..32).contains(&entries), "{entries}");
    }
}
