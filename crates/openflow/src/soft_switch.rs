//! A network of soft switches, asked for the fate of packets: where does it come out?
//!
//! Each physical switch holds its own table, so half-done changes can be looked at. As OpenFlow has it, a
//! packet that should go out by the port that it came in by is dropped. Where several ports lead up, one is
//! taken by the position (ECMP); [`SoftNetwork::every_fate`] takes them all.

use crate::differ::{Edit, Step};
use crate::table::{FlowEntry, FlowTable, Output, Tables};
use bearing_routing::{Peer, Place, Port, SwitchId, SwitchTree};
use bearing_types::Position;
use std::collections::BTreeSet;
use std::sync::Arc as Shared;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It left the network to the host at this place.
    Delivered(Place),
    /// No entry matched at this switch, or the only way out was the way in.
    Dropped(SwitchId),
    /// It came to this switch twice.
    Loop(SwitchId),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SoftNetwork {
    topology: Shared<SwitchTree>,
    tables: Vec<Shared<FlowTable>>,
}

impl SoftNetwork {
    /// Every switch with its table.
    pub fn new(tables: &Tables) -> SoftNetwork {
        let topology = tables.topology().clone();
        let shared: Vec<Shared<FlowTable>> = topology
            .nodes()
            .flat_map(|node| {
                let switches = topology.switches_of(node);
                let table = Shared::new(tables.of(SwitchId(switches.start)).clone());
                switches.map(move |_| table.clone())
            })
            .collect();
        SoftNetwork { topology, tables: shared }
    }

    /// Carries out one step of a change at its switch.
    ///
    /// # Panics
    /// If the step adds what is there, or modifies or deletes what is not: a bug of whoever made the steps.
    pub fn apply(&mut self, step: &Step) {
        let table = &mut self.tables[step.switch.0 as usize];
        let (block, output) = match step.edit {
            Edit::Add(FlowEntry { block, output }) => {
                assert_eq!(table.entry(block), None, "{step:?} adds what is there");
                (block, Some(output))
            }
            Edit::Modify(FlowEntry { block, output }) => {
                assert!(table.entry(block).is_some_and(|old| old != output), "{step:?} modifies nothing");
                (block, Some(output))
            }
            Edit::Delete(block) => {
                assert!(table.entry(block).is_some(), "{step:?} deletes what is not there");
                (block, None)
            }
        };
        let others = table.entries().iter().copied().filter(|entry| entry.block != block);
        *table = Shared::new(FlowTable::new(others.chain(output.map(|output| FlowEntry { block, output }))));
    }

    /// A switch's table as it is now.
    pub fn table(&self, switch: SwitchId) -> &FlowTable {
        &self.tables[switch.0 as usize]
    }

    /// The fate of a packet for a position that a client under this switch sends. The client is at a port of
    /// its own: not asked is what becomes of a packet that a server's own host sends to one of its positions,
    /// which a switch would not send back by the port it came in by.
    ///
    /// # Panics
    /// If the topology has no such switch, which is a bug of the caller; so do all methods that take one.
    pub fn inject(&self, switch: SwitchId, position: Position) -> Fate {
        let (mut at, mut seen) = (Peer::Switch(switch, Port(0)), BTreeSet::new());
        loop {
            let Peer::Switch(switch, entered) = at else { return self.fate_at(at) };
            if !seen.insert(switch) {
                return Fate::Loop(switch);
            }
            let ways = self.ways(switch, entered, position);
            let hash = (position.0 ^ u64::from(switch.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            match ways[hash as usize % ways.len()] {
                Some(next) => at = next,
                None => return Fate::Dropped(switch),
            }
        }
    }

    /// All fates that such a packet can have, whichever of several ports upwards are taken.
    pub fn every_fate(&self, switch: SwitchId, position: Position) -> BTreeSet<Fate> {
        let mut fates = BTreeSet::new();
        // Where a packet may be, and the switches that it has passed.
        let mut packets = vec![(Peer::Switch(switch, Port(0)), Vec::new())];
        while let Some((at, passed)) = packets.pop() {
            let Peer::Switch(switch, entered) = at else {
                fates.insert(self.fate_at(at));
                continue;
            };
            if passed.contains(&switch) {
                fates.insert(Fate::Loop(switch));
                continue;
            }
            let passed = [passed, vec![switch]].concat();
            for way in self.ways(switch, entered, position) {
                match way {
                    Some(next) => packets.push((next, passed.clone())),
                    None => {
                        fates.insert(Fate::Dropped(switch));
                    }
                }
            }
        }
        fates
    }

    fn fate_at(&self, at: Peer) -> Fate {
        match at {
            Peer::Host(place) => Fate::Delivered(place),
            Peer::Switch(switch, _) => Fate::Dropped(switch),
        }
    }

    /// Where a packet may go from a switch: at least one way, `None` for one on which it is dropped.
    fn ways(&self, switch: SwitchId, entered: Port, position: Position) -> Vec<Option<Peer>> {
        let way = |port: Port| self.topology.peer(switch, port).filter(|_| port != entered);
        match self.tables[switch.0 as usize].output(position) {
            Some(Output::Up) if self.topology.up_ports(switch).len() > 0 => {
                self.topology.up_ports(switch).map(way).collect()
            }
            Some(Output::Port(port)) => vec![way(port)],
            Some(Output::Up) | None => vec![None],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Budget, Form};
    use crate::testing::{arcs, position, topologies};
    use bearing_placement::Hosts;
    use bearing_routing::Shape;
    use bearing_types::{Block, ServerId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_switch_leads_every_position_to_its_owner_by_every_way(which in 0usize..5, arcs in arcs(8), compress: bool, position in position()) {
            let topology = Shared::new(topologies().swap_remove(which));
            let hosts = Hosts::in_order(&topology, &(1..=8).map(ServerId).collect::<Vec<_>>()).unwrap();
            let form = if compress { Form::Compressed } else { Form::Published };
            let tables = Tables::new(&topology, &hosts, &arcs, form, Budget(100_000)).unwrap();
            let network = SoftNetwork::new(&tables);
            let mut positions: Vec<Position> = arcs.iter().flat_map(|(first, last, _)| [first, last]).collect();
            positions.push(position);
            for position in positions {
                let owner = Fate::Delivered(hosts.place(arcs.owner(position)).unwrap());
                for switch in topology.switches() {
                    prop_assert_eq!(network.every_fate(switch, position), BTreeSet::from([owner]));
                    prop_assert_eq!(network.inject(switch, position), owner);
                }
            }
        }
    }

    #[test]
    fn drops_and_loops_are_told_with_the_switch() {
        let topology = Shared::new(Shape::fat_tree(4).unwrap().switch_tree().unwrap());
        let servers: Vec<_> = (1..=16).map(ServerId).collect();
        let hosts = Hosts::in_order(&topology, &servers).unwrap();
        let arcs = bearing_placement::Arcs::even(&servers).unwrap();
        let tables = Tables::new(&topology, &hosts, &arcs, Form::Compressed, Budget::PUBLISHED).unwrap();
        let mut network = SoftNetwork::new(&tables);
        let edge = SwitchId(topology.switches_of(topology.edge_of(Place(0))).start);
        assert_eq!(network.inject(edge, Position(0)), Fate::Delivered(Place(0)));
        // The edge switch sends one of its own positions up, where it would come down again by the same link.
        let single = Block::around(Position(0), 64);
        network
            .apply(&Step { switch: edge, edit: Edit::Add(FlowEntry { block: single, output: Output::Up }) });
        let pod = topology.parent(topology.edge_of(Place(0))).unwrap();
        let [a, b] = [0, 1].map(|index| SwitchId(topology.switches_of(pod).start + index));
        assert_eq!(
            network.every_fate(edge, Position(0)),
            BTreeSet::from([Fate::Dropped(a), Fate::Dropped(b)])
        );
        // From a core it comes down by the first aggregation switch: one way up is the way in, the other one
        // ends at the second.
        assert_eq!(
            network.every_fate(SwitchId(0), Position(0)),
            BTreeSet::from([Fate::Dropped(edge), Fate::Dropped(b)])
        );
        // The two aggregation switches disagree about which edge is meant, and both edges send up.
        let other = SwitchId(topology.switches_of(topology.edge_of(Place(2))).start);
        for (switch, output) in [(a, Output::Port(Port(2))), (b, Output::Port(Port(1))), (other, Output::Up)]
        {
            let entry = FlowEntry { block: Block::RING, output };
            network.tables[switch.0 as usize] = Shared::new(FlowTable::new([entry]));
        }
        let fates = network.every_fate(edge, Position(0));
        assert!(fates.contains(&Fate::Loop(edge)), "{fates:?}");
        network.tables[edge.0 as usize] = Shared::new(FlowTable::new([]));
        assert_eq!(network.inject(edge, Position(0)), Fate::Dropped(edge));
    }
}
