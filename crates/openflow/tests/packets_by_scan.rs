//! Where packets go before, between and after changes, asked of a network that shares nothing with the crate
//! but its types and the wiring: every entry of a switch is looked at, every way is followed, and the owners
//! are those that the test itself has dealt out.

use bearing_openflow::{Budget, Edit, FlowEntry, Form, Output, Step, TableError, Tables, change};
use bearing_placement::{Arcs, Handover, Hosts};
use bearing_routing::{Peer, Place, Port, Shape, SwitchId, SwitchTree};
use bearing_types::{Block, Position, ServerId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First position, prefix bits, output.
type Entry = (u64, u8, Output);

fn entry_of(entry: FlowEntry) -> Entry {
    (entry.block.start().0, entry.block.prefix_bits(), entry.output)
}

fn matches((start, bits, _): &Entry, position: u64) -> bool {
    (0..u32::from(*bits)).all(|bit| (position ^ start) >> (63 - bit) & 1 == 0)
}

/// Switches as lists of entries.
struct Network {
    topology: Arc<SwitchTree>,
    entries: Vec<Vec<Entry>>,
}

impl Network {
    fn of(tables: &Tables) -> Network {
        let topology = tables.topology().clone();
        let listed = |switch| tables.of(switch).entries().iter().copied().map(entry_of).collect();
        Network { entries: topology.switches().map(listed).collect(), topology }
    }

    fn carry_out(&mut self, step: Step) {
        let entries = &mut self.entries[step.switch.0 as usize];
        let block = match step.edit {
            Edit::Add(entry) | Edit::Modify(entry) => entry.block,
            Edit::Delete(block) => block,
        };
        let same = |entry: &Entry| (entry.0, entry.1) == (block.start().0, block.prefix_bits());
        let there = entries.iter().position(same);
        assert_eq!(there.is_none(), matches!(step.edit, Edit::Add(_)), "{step:?} with {entries:?}");
        there.map(|number| entries.remove(number));
        if let Edit::Add(entry) | Edit::Modify(entry) = step.edit {
            entries.push(entry_of(entry));
        }
    }

    /// The places that a packet can come out at; `None` for one that is lost.
    fn ends(&self, from: SwitchId, position: u64) -> BTreeSet<Option<Place>> {
        let mut ends = BTreeSet::new();
        self.follow(Peer::Switch(from, Port(0)), position, 0, &mut ends);
        ends
    }

    fn follow(&self, at: Peer, position: u64, hops: usize, ends: &mut BTreeSet<Option<Place>>) {
        let (switch, entered) = match at {
            Peer::Host(place) => {
                ends.insert(Some(place));
                return;
            }
            Peer::Switch(switch, entered) => (switch, entered),
        };
        let longest =
            self.entries[switch.0 as usize].iter().filter(|e| matches(e, position)).max_by_key(|e| e.1);
        let ports: Vec<Port> = match longest {
            None => Vec::new(),
            Some((_, _, Output::Port(port))) => vec![*port],
            Some((_, _, Output::Up)) => self.topology.up_ports(switch).collect(),
        };
        // Edge, aggregation, core, aggregation, edge: who has passed more has come back to where it was.
        if ports.is_empty() || hops == 5 {
            ends.insert(None);
        }
        for port in ports.into_iter().filter(|_| hops < 5) {
            match self.topology.peer(switch, port).filter(|_| port != entered) {
                Some(next) => self.follow(next, position, hops + 1, ends),
                None => {
                    ends.insert(None);
                }
            }
        }
    }
}

/// Who owns what, as the test deals it out: where each run begins, the first at 0.
type Owners = BTreeMap<u64, u32>;

fn owner(owners: &Owners, position: u64) -> u32 {
    *owners.iter().rfind(|(start, _)| **start <= position).expect("a run begins at 0").1
}

fn arcs(owners: &Owners) -> Arcs {
    Arcs::new(owners.iter().map(|(start, owner)| (Position(*start), ServerId(*owner)))).expect("a run at 0")
}

/// The positions at the ends of runs and blocks: what holds for them holds for all.
fn witnesses<'a>(owners: impl IntoIterator<Item = &'a Owners>, network: &Network) -> BTreeSet<u64> {
    let runs = owners.into_iter().flat_map(|owners| owners.keys().copied());
    let mut positions: BTreeSet<u64> = runs.flat_map(|start| [start, start.wrapping_sub(1)]).collect();
    for (start, bits, _) in network.entries.iter().flatten() {
        let block = Block::around(Position(*start), *bits);
        positions.extend([*start, block.last().0, block.last().0.wrapping_add(1), start.wrapping_sub(1)]);
    }
    positions
}

/// Positions where blocks are long, where they are single, and where the ring ends.
fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..8).prop_map(|eighth| eighth << 61),
        (0u64..64).prop_map(|part| part << 58),
        0u64..6,
        (0u64..6).prop_map(|back| u64::MAX - back),
        (0u64..6).prop_map(|near| (1 << 63) - 3 + near),
        any::<u64>(),
    ]
}

/// The ring among a few servers of 1 to 6, often one alone.
fn owners() -> impl Strategy<Value = Owners> {
    (
        proptest::collection::vec(1u32..=6, 1..4),
        proptest::collection::vec((start(), any::<prop::sample::Index>()), 0..12),
    )
        .prop_map(|(few, starts)| {
            let mut owners: Owners =
                starts.into_iter().map(|(start, which)| (start, *which.get(&few))).collect();
            owners.entry(0).or_insert(few[0]);
            owners
        })
}

fn topologies() -> [SwitchTree; 6] {
    [
        Shape::two_tiers(1, 6).expect("a tree").switch_tree().expect("a tree"),
        Shape::two_tiers(6, 2).expect("a tree").switch_tree().expect("a tree"),
        Shape::three_tiers(3, 2, 2).expect("a tree").switch_tree().expect("a tree"),
        Shape::three_tiers(1, 1, 6).expect("a tree").switch_tree().expect("a tree"),
        Shape::fat_tree(4).expect("a fat tree").switch_tree().expect("a fat tree"),
        Shape::pods(2, 2, 1).expect("a fat tree").switch_tree().expect("a fat tree"),
    ]
}

/// Servers 1 to 6 at any places, so that switches may have none.
fn hosts(topology: &SwitchTree, order: &[u32]) -> Hosts {
    let mut hosts = Hosts::default();
    let mut places: Vec<u32> = (0..topology.places()).collect();
    for (server, draw) in (1..=6).zip(order) {
        let place = places.remove(*draw as usize % places.len());
        hosts.plug(topology, ServerId(server), Place(place)).expect("a free place");
    }
    hosts
}

/// Plays a change and asks for every packet from every switch: after each step those of its block, in the end
/// all.
fn is_safe(
    before: (&Owners, &Tables),
    after: (&Owners, &Tables),
    hosts: &Hosts,
) -> Result<usize, TestCaseError> {
    let change = change(before.1, after.1).expect("a budget for all");
    let mut network = Network::of(before.1);
    let mut positions = witnesses([before.0, after.0], &network);
    positions.extend(witnesses([], &Network::of(after.1)));
    let place = |owners: &Owners, position| hosts.place(ServerId(owner(owners, position)));
    let ask = |network: &Network, position: u64, allowed: &[Option<Place>]| {
        for switch in network.topology.switches() {
            let ends = network.ends(switch, position);
            let only = ends.iter().all(|end| end.is_some() && allowed.contains(end));
            prop_assert!(only, "{position:x} from {switch:?}: {ends:?}, not {allowed:?}");
        }
        Ok(())
    };
    for step in &change.steps {
        network.carry_out(*step);
        let (Edit::Add(FlowEntry { block, .. })
        | Edit::Modify(FlowEntry { block, .. })
        | Edit::Delete(block)) = step.edit;
        let (first, last) = (block.start().0, block.last().0);
        // A guard may be shorter than any block of the two tables.
        let touched = positions.range(first..=last).copied().chain([first, last]);
        for position in touched.collect::<BTreeSet<u64>>() {
            ask(&network, position, &[place(before.0, position), place(after.0, position)])?;
        }
    }
    for position in positions {
        ask(&network, position, &[place(after.0, position)])?;
    }
    let sorted = |network: Network| network.entries.into_iter().map(BTreeSet::from_iter).collect::<Vec<_>>();
    prop_assert_eq!(sorted(network), sorted(Network::of(after.1)));
    Ok(change.steps.len() - change.guards)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Tables built anew and patched, both forms, one change after the other and back again: whatever comes
    /// before, the next change is safe.
    #[test]
    fn packets_reach_the_old_or_the_new_owner_through_any_sequence_of_changes_and_back(
        which in 0usize..6,
        order in proptest::collection::vec(any::<u32>(), 6),
        divisions in proptest::collection::vec((owners(), any::<bool>(), any::<bool>()), 2..4),
    ) {
        let topology = Arc::new(topologies()[which].clone());
        let hosts = hosts(&topology, &order);
        let form = |compress| if compress { Form::Compressed } else { Form::Published };
        let anew = |owners, compress| Tables::new(&topology, &hosts, &arcs(owners), form(compress), Budget(10_000)).unwrap();
        let mut history = vec![(divisions[0].0.clone(), anew(&divisions[0].0, divisions[0].1))];
        for (owners, compress, patch) in &divisions[1..] {
            let (old, tables) = &history[history.len() - 1];
            let next = if *patch { tables.after(&hosts, &arcs(old).handovers(&arcs(owners))).unwrap() } else { anew(owners, *compress) };
            history.push((owners.clone(), next));
        }
        let mut forth = Vec::new();
        for pair in history.windows(2) {
            forth.push(is_safe((&pair[0].0, &pair[0].1), (&pair[1].0, &pair[1].1), &hosts)?);
        }
        for (pair, forth) in history.windows(2).zip(forth) {
            let back = is_safe((&pair[1].0, &pair[1].1), (&pair[0].0, &pair[0].1), &hosts)?;
            prop_assert_eq!(back, forth, "what differs is the same both ways");
        }
    }

    /// As splits report them: one after the other, not in ring order, a later one within an earlier one.
    #[test]
    fn handovers_count_in_the_order_in_which_they_happened(
        which in 0usize..6,
        order in proptest::collection::vec(any::<u32>(), 6),
        owners in owners(),
        moves in proptest::collection::vec((start(), start(), 1u32..=6), 0..6),
        compress: bool,
    ) {
        let topology = Arc::new(topologies()[which].clone());
        let hosts = hosts(&topology, &order);
        let form = if compress { Form::Compressed } else { Form::Published };
        let built = |owners: &Owners| Tables::new(&topology, &hosts, &arcs(owners), form, Budget(10_000)).unwrap();
        let (mut moved, mut handovers) = (owners.clone(), Vec::new());
        for (a, b, to) in moves {
            let (first, last) = (a.min(b), a.max(b));
            let to_all = arcs(&moved);
            // What lies between may be several servers': each gives its own.
            for (start, end, from) in to_all.iter().filter(|(start, end, _)| start.0 <= last && end.0 >= first) {
                let (first, last) = (start.max(Position(first)), end.min(Position(last)));
                handovers.push(Handover { first, last, from, to: ServerId(to) });
            }
            if let Some(after) = last.checked_add(1) {
                moved.insert(after, owner(&moved, after));
            }
            moved.retain(|start, _| !(first..=last).contains(start));
            moved.insert(first, to);
        }
        let after = built(&owners).after(&hosts, &handovers).unwrap();
        let anew = built(&moved);
        for switch in topology.switches() {
            prop_assert_eq!(after.of(switch), anew.of(switch), "{}", topology.name(switch));
        }
    }
}

/// Server 1 splits, then what it gave away is split again: two handovers, the second within the first.
#[test]
fn a_split_of_what_was_just_split_off_in_one_go() {
    let topology = Arc::new(Shape::two_tiers(2, 2).unwrap().switch_tree().unwrap());
    let [a, b, c] = [1, 2, 3].map(ServerId);
    let hosts = Hosts::in_order(&topology, &[a, b, c]).unwrap();
    let tables = bearing_openflow::tables(&topology, &hosts, &Arcs::even(&[a]).unwrap()).unwrap();
    let (half, three_quarters, end) = (Position(1 << 63), Position(3 << 62), Position(u64::MAX));
    let first = Handover { first: half, last: end, from: a, to: b };
    let second = Handover { first: three_quarters, last: end, from: b, to: c };
    let after = tables.after(&hosts, &[first, second]).unwrap();
    let places = [Position(0), half, three_quarters, end].map(|position| after.destination(position));
    assert_eq!(places, [0, 1, 2, 2].map(|place| Some(Place(place))));
    // What ends before it begins holds no position.
    let nothing = Handover { first: end, last: half, from: a, to: c };
    let same = after.after(&hosts, &[nothing]).unwrap();
    assert!(topology.switches().all(|switch| same.of(switch) == after.of(switch)));
}

#[test]
fn a_place_that_the_topology_has_not_is_no_place() {
    let servers: Vec<_> = (1..=16).map(ServerId).collect();
    let hosts = Hosts::in_order(&Shape::two_tiers(4, 4).unwrap().switch_tree().unwrap(), &servers).unwrap();
    let small = Arc::new(Shape::two_tiers(2, 2).unwrap().switch_tree().unwrap());
    let (four, all) = (Arcs::even(&servers[..4]).unwrap(), Arcs::even(&servers).unwrap());
    let refused = bearing_openflow::tables(&small, &hosts, &all).unwrap_err();
    assert_eq!(refused, TableError::NoHost(ServerId(5)));
    let tables = bearing_openflow::tables(&small, &hosts, &four).unwrap();
    let refused = tables.after(&hosts, &four.handovers(&all)).unwrap_err();
    assert!(matches!(refused, TableError::NoHost(ServerId(server)) if server > 4), "{refused}");
}
