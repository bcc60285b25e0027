//! The tree of switches as a value: what hangs under what, which physical switches one node of the tree
//! stands for, and which port leads where.
//!
//! MetaFlow section 5.A and 5.C: a tier tree maps to a tree node by node; in a fat tree all core switches are
//! one root and the aggregation switches of a pod are one inner node. Invariants: every switch of one node
//! has the same ports towards the same children, so one flow table serves them all; places, nodes and
//! switches are numbered in the order of the tree, so what lies under a node is a range. This module must not
//! know servers' shares or tables.

use crate::parameters::{ParameterError, within};
use std::fmt;
use std::ops::Range;

/// Where a host can be plugged in, counted from 0 in the order of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// A node of the logical tree above the hosts: 0 is the root, then tier by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeNode(pub u32);

/// A physical switch, numbered node by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// A port of a switch, from 1 on as OpenFlow counts. Ports to children come first, in their order, then those
/// to parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// What a port leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A place for a host.
    Host(Place),
    /// Another switch, and the port by which it is entered.
    Switch(SwitchId, Port),
}

/// A layer of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The root.
    Core,
    /// Between root and edge; a tree of two tiers has none.
    Aggregation,
    /// Where hosts are plugged in.
    Edge,
}

/// The most places that a topology may have.
pub const PLACES_MAX: u64 = 1 << 20;

/// See the module. Its methods are about its own nodes, switches and places: for numbers beyond, nothing is
/// promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Children of each node by tier, from the root; the last counts hosts. Two or three.
    fan_outs: Vec<u32>,
    /// Switches that one aggregation node stands for; 1 in a tier tree.
    aggregations: u32,
    /// Core switches that each of those is linked to.
    cores_each: u32,
}

impl Topology {
    /// A core switch, edge switches, and hosts under each edge switch. Fan-outs are 1 to 4,096, at most
    /// [`PLACES_MAX`] places.
    pub fn two_tiers(edges: u32, hosts: u32) -> Result<Topology, ParameterError> {
        Topology::checked(vec![edges, hosts], 1, 1)
    }

    /// A core switch, aggregation switches, edge switches under each, hosts under each of those. Bounds as
    /// with two tiers.
    pub fn three_tiers(aggregations: u32, edges: u32, hosts: u32) -> Result<Topology, ParameterError> {
        Topology::checked(vec![aggregations, edges, hosts], 1, 1)
    }

    /// The textbook fat tree of switches with `ports` ports each (even, 2 to 128): `ports` pods of `ports`/2
    /// edge and `ports`/2 aggregation switches, (`ports`/2)^2 cores, `ports`^3/4 places.
    pub fn fat_tree(ports: u32) -> Result<Topology, ParameterError> {
        let even = ports.is_multiple_of(2) && (2..=128).contains(&ports);
        within("ports of a fat tree's switches", ports, even, "an even number, 2 to 128")?;
        Topology::checked(vec![ports, ports / 2, ports / 2], ports / 2, ports / 2)
    }

    /// A fat tree cut to fewer pods and cores: `pods` pods of `half` edge and `half` aggregation switches
    /// with `half` hosts under each edge, and `cores_each` cores above each aggregation switch (1 to `half`).
    pub fn pods(pods: u32, half: u32, cores_each: u32) -> Result<Topology, ParameterError> {
        within("cores_each", cores_each, (1..=half).contains(&cores_each), "1 to half of the ports")?;
        Topology::checked(vec![pods, half, half], half, cores_each)
    }

    /// MetaFlow's simulation (section 7.A): switches with 32 ports, pods of 16 edge and 16 aggregation
    /// switches and 256 servers, 32 cores. 8 pods hold its 2,000 servers. A textbook fat tree of 32 ports has
    /// 32 pods and 256 cores: with 32 cores each aggregation switch reaches two, not 16.
    pub fn metaflow_simulation() -> Topology {
        Topology { fan_outs: vec![8, 16, 16], aggregations: 16, cores_each: 2 }
    }

    /// MetaFlow's testbed (figure 12): one core, two aggregation switches, 20 containers under each edge
    /// switch. The text's 5 machines would hold 100; ten edge switches hold the 200 that it measured.
    pub fn metaflow_testbed() -> Topology {
        Topology { fan_outs: vec![2, 5, 20], aggregations: 1, cores_each: 1 }
    }

    fn checked(fan_outs: Vec<u32>, aggregations: u32, cores_each: u32) -> Result<Topology, ParameterError> {
        for fan_out in &fan_outs {
            within("fan-out", fan_out, (1..=4096).contains(fan_out), "1 to 4096")?;
        }
        let places: u64 = fan_outs.iter().map(|fan_out| u64::from(*fan_out)).product();
        within("places of a topology", places, places <= PLACES_MAX, "fan-outs for at most 1048576")?;
        Ok(Topology { fan_outs, aggregations, cores_each })
    }

    /// How many hosts can be plugged in.
    pub fn places(&self) -> u32 {
        self.fan_outs.iter().product()
    }

    /// All nodes, the root first, then tier by tier.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = TreeNode> + use<> {
        (0..self.tier_starts().last().copied().unwrap_or(0)).map(TreeNode)
    }

    /// All switches.
    pub fn switches(&self) -> impl ExactSizeIterator<Item = SwitchId> + use<> {
        let last = TreeNode(self.nodes().len() as u32 - 1);
        (0..self.switches_of(last).end).map(SwitchId)
    }

    /// Node numbers at which tiers begin, and the count of all nodes. At most four.
    fn tier_starts(&self) -> Vec<u32> {
        let (mut starts, mut width) = (vec![0, 1], 1);
        for fan_out in &self.fan_outs[..self.fan_outs.len() - 1] {
            width *= fan_out;
            starts.push(starts[starts.len() - 1] + width);
        }
        starts
    }

    /// The depth of a node (0 is the root) and its number within its tier.
    fn rank(&self, node: TreeNode) -> (usize, u32) {
        let aggregations = self.fan_outs[0];
        match (node.0, self.fan_outs.len()) {
            (0, _) => (0, 0),
            (number, 3) if number > aggregations => (2, number - 1 - aggregations),
            (number, _) => (1, number - 1),
        }
    }

    fn at(&self, depth: usize, number: u32) -> TreeNode {
        TreeNode([0, 1, 1 + self.fan_outs[0]][depth] + number)
    }

    /// Which layer a node is in.
    pub fn tier(&self, node: TreeNode) -> Tier {
        match self.rank(node).0 {
            0 => Tier::Core,
            depth if depth + 1 == self.fan_outs.len() => Tier::Edge,
            _ => Tier::Aggregation,
        }
    }

    /// The steps from the root to a node: 0 to 2.
    pub fn depth(&self, node: TreeNode) -> usize {
        self.rank(node).0
    }

    /// The node above; the root has none.
    pub fn parent(&self, node: TreeNode) -> Option<TreeNode> {
        let (depth, number) = self.rank(node);
        (depth > 0).then(|| self.at(depth - 1, number / self.fan_outs[depth - 1]))
    }

    /// The edge node that a place hangs under.
    pub fn edge_of(&self, place: Place) -> TreeNode {
        let depth = self.fan_outs.len() - 1;
        self.at(depth, place.0 / self.fan_outs[depth])
    }

    /// A place's nodes from its edge up to the root.
    pub fn above(&self, place: Place) -> impl Iterator<Item = TreeNode> + '_ {
        std::iter::successors(Some(self.edge_of(place)), |node| self.parent(*node))
    }

    /// The places under a node.
    pub fn places_under(&self, node: TreeNode) -> Range<Place> {
        let (depth, number) = self.rank(node);
        let each: u32 = self.fan_outs[depth..].iter().product();
        Place(number * each)..Place((number + 1) * each)
    }

    /// The port of a node's switches that leads down to a place, or `None` if the place is not under the
    /// node.
    pub fn port_down(&self, node: TreeNode, place: Place) -> Option<Port> {
        let under = self.places_under(node);
        let each: u32 = self.fan_outs[self.rank(node).0 + 1..].iter().product();
        under.contains(&place).then(|| Port(((place.0 - under.start.0) / each + 1) as u16))
    }

    /// The switches that a node stands for: any one of them may see a packet.
    pub fn switches_of(&self, node: TreeNode) -> Range<u32> {
        let (depth, number) = self.rank(node);
        let cores = self.aggregations * self.cores_each;
        match (depth, self.tier(node)) {
            (0, _) => 0..cores,
            (_, Tier::Edge) => {
                let above = if depth == 2 { self.fan_outs[0] * self.aggregations } else { 0 };
                cores + above + number..cores + above + number + 1
            }
            _ => cores + number * self.aggregations..cores + (number + 1) * self.aggregations,
        }
    }

    /// The node that a switch belongs to.
    pub fn node_of(&self, switch: SwitchId) -> TreeNode {
        let cores = self.aggregations * self.cores_each;
        let Some(number) = switch.0.checked_sub(cores) else { return TreeNode(0) };
        let aggregations = if self.fan_outs.len() == 3 { self.fan_outs[0] * self.aggregations } else { 0 };
        match number.checked_sub(aggregations) {
            Some(edge) => self.at(self.fan_outs.len() - 1, edge),
            None => self.at(1, number / self.aggregations),
        }
    }

    /// The switch's ports to children.
    pub fn down_ports(&self, switch: SwitchId) -> impl ExactSizeIterator<Item = Port> + use<> {
        let count = self.fan_outs[self.rank(self.node_of(switch)).0] as u16;
        (1..count + 1).map(Port)
    }

    /// The switch's ports to switches of the parent: each of them will do. None at the root.
    pub fn up_ports(&self, switch: SwitchId) -> impl ExactSizeIterator<Item = Port> + use<> {
        let depth = self.rank(self.node_of(switch)).0;
        let down = self.fan_outs[depth] as u16;
        let count = match (depth, self.fan_outs.len()) {
            (0, _) => 0,
            (1, 3) => self.cores_each as u16,
            _ => self.aggregations as u16,
        };
        (down + 1..down + 1 + count).map(Port)
    }

    /// What a port leads to, or `None` if the switch has no such port.
    pub fn peer(&self, switch: SwitchId, port: Port) -> Option<Peer> {
        let node = self.node_of(switch);
        let (depth, number) = self.rank(node);
        let child = u32::from(port.0.checked_sub(1)?);
        let index = switch.0 - self.switches_of(node).start;
        if child < self.fan_outs[depth] {
            return Some(self.peer_below(depth, number * self.fan_outs[depth] + child, index));
        }
        let up = child - self.fan_outs[depth];
        if up as usize >= self.up_ports(switch).len() {
            return None;
        }
        let parent = self.parent(node)?;
        let entered = Port((number % self.fan_outs[depth - 1] + 1) as u16);
        // The n-th switch of a pod is linked to the n-th group of cores; an edge switch to every switch of
        // its pod.
        let above = if self.tier(node) == Tier::Aggregation { index * self.cores_each + up } else { up };
        Some(Peer::Switch(SwitchId(self.switches_of(parent).start + above), entered))
    }

    /// What the switch with this index within its node finds below, at this number of the next tier.
    fn peer_below(&self, depth: usize, number: u32, index: u32) -> Peer {
        if depth + 1 == self.fan_outs.len() {
            return Peer::Host(Place(number));
        }
        let child = self.at(depth + 1, number);
        let (group, entered) = match self.tier(child) {
            Tier::Edge => (0, index),
            _ => (index / self.cores_each, index % self.cores_each),
        };
        let entered = Port((self.fan_outs[depth + 1] + entered + 1) as u16);
        Peer::Switch(SwitchId(self.switches_of(child).start + group), entered)
    }

    /// A switch's name: `core-0`, `aggregation-1-0` (node, switch within it), `edge-7`.
    pub fn name(&self, switch: SwitchId) -> String {
        let node = self.node_of(switch);
        let (_, number) = self.rank(node);
        let index = switch.0 - self.switches_of(node).start;
        match self.tier(node) {
            Tier::Core => format!("core-{index}"),
            Tier::Aggregation => format!("aggregation-{number}-{index}"),
            Tier::Edge => format!("edge-{number}"),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Core => "core",
            Tier::Aggregation => "aggregation",
            Tier::Edge => "edge",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Topology> {
        vec![
            Topology::two_tiers(3, 4).unwrap(),
            Topology::three_tiers(2, 3, 4).unwrap(),
            Topology::fat_tree(4).unwrap(),
            Topology::fat_tree(6).unwrap(),
            Topology::pods(3, 4, 2).unwrap(),
            Topology::metaflow_simulation(),
            Topology::metaflow_testbed(),
        ]
    }

    #[test]
    fn links_lead_back_by_the_port_they_name() {
        for topology in samples() {
            let mut hosts = 0;
            for switch in topology.switches() {
                for port in topology.down_ports(switch).chain(topology.up_ports(switch)) {
                    match topology.peer(switch, port).expect("every port is linked") {
                        Peer::Host(place) => {
                            hosts += 1;
                            assert_eq!(topology.edge_of(place), topology.node_of(switch));
                            assert_eq!(topology.port_down(topology.node_of(switch), place), Some(port));
                        }
                        Peer::Switch(other, entered) => {
                            assert_eq!(topology.peer(other, entered), Some(Peer::Switch(switch, port)));
                        }
                    }
                }
                let ports = topology.down_ports(switch).len() + topology.up_ports(switch).len();
                assert_eq!(topology.peer(switch, Port(ports as u16 + 1)), None);
                assert_eq!(topology.peer(switch, Port(0)), None);
            }
            assert_eq!(hosts, topology.places());
        }
    }

    #[test]
    fn nodes_and_their_switches_and_places_are_ranges_that_cover_all() {
        for topology in samples() {
            let mut next = 0;
            for node in topology.nodes() {
                let switches = topology.switches_of(node);
                assert_eq!(switches.start, next);
                next = switches.end;
                assert!(switches.clone().all(|switch| topology.node_of(SwitchId(switch)) == node));
                let under = topology.places_under(node);
                for place in (0..topology.places()).map(Place) {
                    assert_eq!(topology.above(place).any(|above| above == node), under.contains(&place));
                    assert_eq!(topology.port_down(node, place).is_some(), under.contains(&place));
                }
            }
            assert_eq!(topology.switches().len(), next as usize);
        }
    }

    #[test]
    fn going_down_by_ports_reaches_the_place_from_every_core() {
        for topology in samples() {
            let places = topology.places();
            for place in [0, places / 3, places - 1].map(Place) {
                for core in topology.switches_of(TreeNode(0)).map(SwitchId) {
                    let mut at = Peer::Switch(core, Port(0));
                    while let Peer::Switch(switch, _) = at {
                        let port = topology.port_down(topology.node_of(switch), place).expect("below");
                        at = topology.peer(switch, port).expect("linked");
                    }
                    assert_eq!(at, Peer::Host(place));
                }
            }
        }
    }

    #[test]
    fn published_sizes() {
        let textbook = Topology::fat_tree(32).unwrap();
        assert_eq!((textbook.places(), textbook.switches().len()), (8192, 256 + 32 * 32));
        let simulation = Topology::metaflow_simulation();
        assert_eq!((simulation.places(), simulation.switches_of(TreeNode(0)).len()), (2048, 32));
        assert_eq!(Topology::metaflow_testbed().places(), 200);
        let figure_9 = Topology::fat_tree(4).unwrap();
        assert_eq!((figure_9.places(), figure_9.switches_of(TreeNode(0)).len()), (16, 4));
        let pod = figure_9.parent(figure_9.edge_of(Place(5))).unwrap();
        let names: Vec<_> = figure_9.switches_of(pod).map(|switch| figure_9.name(SwitchId(switch))).collect();
        assert_eq!(names, ["aggregation-1-0", "aggregation-1-1"]);
    }

    #[test]
    fn impossible_topologies_are_refused_with_the_bound() {
        let message = |refused: Result<Topology, ParameterError>| refused.unwrap_err().to_string();
        assert_eq!(
            message(Topology::fat_tree(5)),
            "ports of a fat tree's switches may not be 5; give an even number, 2 to 128"
        );
        assert_eq!(message(Topology::two_tiers(0, 4)), "fan-out may not be 0; give 1 to 4096");
        assert_eq!(
            message(Topology::three_tiers(4096, 4096, 4096)),
            "places of a topology may not be 68719476736; give fan-outs for at most 1048576"
        );
        assert_eq!(message(Topology::pods(2, 4, 5)), "cores_each may not be 5; give 1 to half of the ports");
    }
}
