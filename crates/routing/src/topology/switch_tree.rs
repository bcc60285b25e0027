//! The tree of switches that requests for a position are carried through: what hangs under what, which
//! physical switches one node of the tree stands for, and which port leads where.
//!
//! MetaFlow section 5.A and 5.C: a tier tree maps to a tree node by node; in a fat tree all core switches are
//! one root and the aggregation switches of a pod are one inner node. Invariants: every switch of one node
//! has the same ports towards the same children, so one flow table serves them all; places, nodes and
//! switches are numbered in the order of the tree, so what lies under a node is a range. This module must not
//! know servers' shares or tables.

use super::{End, Item, Peer, Place, Port, SwitchId, Topology};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, Range};

/// A node of the logical tree above the hosts: 0 is the root, then tier by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeNode(pub u32);

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

/// Why a topology is no tree of switches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTree {
    /// Two or three tiers can be laid out.
    #[error("{0} tiers of switches; flow tables are made for trees of two or three")]
    Tiers(u32),
    /// A host with several links.
    #[error("host {1} has {2} links; in a tree it has one")]
    Links(Item, String, usize),
    /// A link within a tier, or over one.
    #[error("{1} and {2} are linked, but not one tier apart; a tree has links to the next tier only")]
    Skips(Item, String, String),
    /// Several switches at the top that are not one node.
    #[error("the network has {0} roots; link their switches to all the same below")]
    Roots(usize),
    /// Switches of one node that see different children, or see them by different ports.
    #[error(
        "{1} has several links to one part of the network, or sees other parts than {2} beside it; in a tree every core or pod switch has one link to each part below"
    )]
    Uneven(Item, String, String),
    /// Numbers that do not follow the tree.
    #[error(
        "{1} is described between those of another part; describe core switches first, then pod by pod, then edge switches, and hosts in the order of these"
    )]
    Order(Item, String),
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    depth: usize,
    parent: Option<TreeNode>,
    switches: Range<u32>,
    places: Range<Place>,
    children: u16,
}

/// See the module. It is its topology, and more. Its methods are about its own nodes, switches and places:
/// for numbers beyond they panic.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchTree {
    topology: Topology,
    nodes: Vec<Node>,
    node_of: Vec<TreeNode>,
    depth: usize,
}

impl Deref for SwitchTree {
    type Target = Topology;
    fn deref(&self) -> &Topology {
        &self.topology
    }
}

impl SwitchTree {
    /// The tree that a topology is, or why it is none.
    pub fn new(topology: Topology) -> Result<SwitchTree, NoTree> {
        let levels = topology.switches.iter().map(|switch| switch.level).max().map_or(0, |level| level + 1);
        if !(2..=3).contains(&levels) {
            return Err(NoTree::Tiers(levels));
        }
        check_tiers(&topology)?;
        let groups = groups(&topology, levels);
        let roots = groups.iter().filter(|(_, level)| *level + 1 == levels).count();
        if roots != 1 {
            return Err(NoTree::Roots(roots));
        }
        let mut tree = SwitchTree {
            nodes: Vec::new(),
            node_of: vec![TreeNode(0); topology.switches.len()],
            depth: levels as usize - 1,
            topology,
        };
        for (group, level) in groups {
            tree.add(group, (levels - 1 - level) as usize)?;
        }
        tree.hang()?;
        Ok(tree)
    }

    /// The next node, of these switches, whose numbers must be the next ones.
    fn add(&mut self, switches: Vec<SwitchId>, depth: usize) -> Result<(), NoTree> {
        let number = TreeNode(self.nodes.len() as u32);
        let start = self.nodes.last().map_or(0, |node| node.switches.end);
        for (expected, switch) in (start..).zip(&switches) {
            if switch.0 != expected {
                return Err(self.disorder(SwitchId(expected)));
            }
            self.node_of[switch.0 as usize] = number;
        }
        let switches = start..start + switches.len() as u32;
        self.nodes.push(Node { depth, parent: None, switches, places: Place(0)..Place(0), children: 0 });
        Ok(())
    }

    fn disorder(&self, switch: SwitchId) -> NoTree {
        NoTree::Order(Item::Switch(switch.0 as usize), self.topology.name(switch).to_owned())
    }

    /// Gives nodes their children, parents and places, from the edge up.
    fn hang(&mut self) -> Result<(), NoTree> {
        for index in (0..self.nodes.len()).rev() {
            let node = TreeNode(index as u32);
            let range = self.nodes[index].switches.clone();
            let first = SwitchId(range.start);
            let children = self.children(first);
            for switch in range.map(SwitchId) {
                if self.children(switch) != children || !strictly_rising(&children) {
                    let [name, first] = [switch, first].map(|switch| self.topology.name(switch).to_owned());
                    return Err(NoTree::Uneven(Item::Switch(switch.0 as usize), name, first));
                }
            }
            let ranges: Vec<Range<Place>> = children
                .iter()
                .map(|child| match child {
                    Child::Place(place) => *place..Place(place.0 + 1),
                    Child::Node(node) => self.nodes[node.0 as usize].places.clone(),
                })
                .collect();
            for pair in ranges.windows(2) {
                if pair[0].end != pair[1].start {
                    return Err(self.misplaced(pair[1].start));
                }
            }
            for child in &children {
                if let Child::Node(child) = child {
                    self.nodes[child.0 as usize].parent = Some(node);
                }
            }
            self.nodes[index].children = children.len() as u16;
            self.nodes[index].places = ranges[0].start..ranges[ranges.len() - 1].end;
        }
        match self.nodes.iter().position(|node| node.depth > 0 && node.parent.is_none()) {
            Some(index) => Err(self.disorder(SwitchId(self.nodes[index].switches.start))),
            None => Ok(()),
        }
    }

    fn misplaced(&self, place: Place) -> NoTree {
        NoTree::Order(Item::Host(place.0 as usize), self.topology.host_name(place).to_owned())
    }

    /// What a switch's ports downwards lead to, in their order.
    fn children(&self, switch: SwitchId) -> Vec<Child> {
        let level = self.topology.level(switch);
        let ports = &self.topology.switches[switch.0 as usize].ports;
        let below = ports.iter().filter_map(|(peer, _)| match peer {
            Peer::Host(place) => Some(Child::Place(*place)),
            Peer::Switch(other, _) if self.topology.level(*other) < level => {
                Some(Child::Node(self.node_of(*other)))
            }
            Peer::Switch(..) => None,
        });
        below.collect()
    }

    /// The network that it is of.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// All nodes, the root first, then tier by tier.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = TreeNode> + use<> {
        (0..self.nodes.len() as u32).map(TreeNode)
    }

    fn at(&self, node: TreeNode) -> &Node {
        &self.nodes[node.0 as usize]
    }

    /// Which layer a node is in.
    pub fn tier(&self, node: TreeNode) -> Tier {
        match self.depth(node) {
            0 => Tier::Core,
            depth if depth == self.depth => Tier::Edge,
            _ => Tier::Aggregation,
        }
    }

    /// The steps from the root to a node: 0 to 2.
    pub fn depth(&self, node: TreeNode) -> usize {
        self.at(node).depth
    }

    /// The node above; the root has none.
    pub fn parent(&self, node: TreeNode) -> Option<TreeNode> {
        self.at(node).parent
    }

    /// The edge node that a place hangs under.
    pub fn edge_of(&self, place: Place) -> TreeNode {
        let link = self.topology.hosts[place.0 as usize].links[0];
        let [one, other] = self.topology.ends(link);
        match (one, other) {
            (End::Switch(switch), _) | (_, End::Switch(switch)) => self.node_of(switch),
            _ => unreachable!("hosts are linked to switches"),
        }
    }

    /// A place's nodes from its edge up to the root.
    pub fn above(&self, place: Place) -> impl Iterator<Item = TreeNode> + '_ {
        std::iter::successors(Some(self.edge_of(place)), |node| self.parent(*node))
    }

    /// The places under a node.
    pub fn places_under(&self, node: TreeNode) -> Range<Place> {
        self.at(node).places.clone()
    }

    /// The port of a node's switches that leads down to a place, or `None` if the place is not under the
    /// node.
    pub fn port_down(&self, node: TreeNode, place: Place) -> Option<Port> {
        if !self.at(node).places.contains(&place) {
            return None;
        }
        let first = SwitchId(self.at(node).switches.start);
        self.down_ports(first).find(|port| match self.peer(first, *port) {
            Some(Peer::Host(host)) => host == place,
            Some(Peer::Switch(switch, _)) => self.at(self.node_of(switch)).places.contains(&place),
            None => false,
        })
    }

    /// The switches that a node stands for: any one of them may see a packet.
    pub fn switches_of(&self, node: TreeNode) -> Range<u32> {
        self.at(node).switches.clone()
    }

    /// The node that a switch belongs to.
    pub fn node_of(&self, switch: SwitchId) -> TreeNode {
        self.node_of[switch.0 as usize]
    }

    /// The switch's ports to children.
    pub fn down_ports(&self, switch: SwitchId) -> impl ExactSizeIterator<Item = Port> + use<> {
        (1..self.at(self.node_of(switch)).children + 1).map(Port)
    }

    /// The switch's ports to switches of the parent: each of them will do. None at the root.
    pub fn up_ports(&self, switch: SwitchId) -> impl ExactSizeIterator<Item = Port> + use<> {
        let all = self.topology.ports(switch).len() as u16;
        (self.at(self.node_of(switch)).children + 1..all + 1).map(Port)
    }
}

/// What is below a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Child {
    Place(Place),
    Node(TreeNode),
}

fn strictly_rising(children: &[Child]) -> bool {
    children.windows(2).all(|pair| pair[0] < pair[1])
}

/// Hosts hang at one switch of the edge; links lead to the next tier.
fn check_tiers(topology: &Topology) -> Result<(), NoTree> {
    for (index, host) in topology.hosts.iter().enumerate() {
        if host.links.len() != 1 {
            return Err(NoTree::Links(Item::Host(index), host.name.clone(), host.links.len()));
        }
    }
    for (index, link) in topology.links.iter().enumerate() {
        if let [End::Switch(one), End::Switch(other)] = link.ends
            && topology.level(one).abs_diff(topology.level(other)) != 1
        {
            let [one, other] = [one, other].map(|switch| topology.name(switch).to_owned());
            return Err(NoTree::Skips(Item::Link(index), one, other));
        }
    }
    Ok(())
}

/// The switches of each node with their level, from the root down: those of one level that are connected by
/// way of lower ones.
fn groups(topology: &Topology, levels: u32) -> Vec<(Vec<SwitchId>, u32)> {
    let mut parts: Vec<usize> = (0..topology.switches.len()).collect();
    fn root(parts: &mut [usize], mut of: usize) -> usize {
        while parts[of] != of {
            parts[of] = parts[parts[of]];
            of = parts[of];
        }
        of
    }
    let mut by_level = Vec::new();
    for level in 0..levels {
        for link in &topology.links {
            if let [End::Switch(one), End::Switch(other)] = link.ends
                && topology.level(one).max(topology.level(other)) == level
            {
                let [one, other] = [one, other].map(|switch| root(&mut parts, switch.0 as usize));
                parts[one.max(other)] = one.min(other);
            }
        }
        let mut groups: BTreeMap<usize, Vec<SwitchId>> = BTreeMap::new();
        for switch in topology.switches().filter(|switch| topology.level(*switch) == level) {
            groups.entry(root(&mut parts, switch.0 as usize)).or_default().push(switch);
        }
        let mut groups: Vec<Vec<SwitchId>> = groups.into_values().collect();
        groups.sort();
        by_level.push((groups, level));
    }
    let downwards = by_level.into_iter().rev();
    downwards.flat_map(|(groups, level)| groups.into_iter().map(move |group| (group, level))).collect()
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
    use super::super::{Shape, Wiring};
    use super::*;

    fn samples() -> Vec<SwitchTree> {
        let shapes = [
            Shape::two_tiers(3, 4).unwrap(),
            Shape::three_tiers(2, 3, 4).unwrap(),
            Shape::fat_tree(4).unwrap(),
            Shape::fat_tree(6).unwrap(),
            Shape::pods(3, 4, 2).unwrap(),
            Shape::leaf_spine(4, 3, 5).unwrap(),
            Shape::metaflow_simulation(),
            Shape::metaflow_testbed(),
        ];
        shapes.iter().map(|shape| SwitchTree::new(shape.topology()).unwrap()).collect()
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
        let tree = |shape: Shape| SwitchTree::new(shape.topology()).unwrap();
        let textbook = Shape::fat_tree(32).unwrap().topology();
        assert_eq!((textbook.places(), textbook.switches().len()), (8192, 256 + 32 * 32));
        let simulation = tree(Shape::metaflow_simulation());
        assert_eq!((simulation.places(), simulation.switches_of(TreeNode(0)).len()), (2048, 32));
        assert_eq!(tree(Shape::metaflow_testbed()).places(), 200);
        let figure_9 = tree(Shape::fat_tree(4).unwrap());
        assert_eq!((figure_9.places(), figure_9.switches_of(TreeNode(0)).len()), (16, 4));
        let pod = figure_9.parent(figure_9.edge_of(Place(5))).unwrap();
        let names: Vec<_> = figure_9.switches_of(pod).map(|switch| figure_9.name(SwitchId(switch))).collect();
        assert_eq!(names, ["aggregation-1-0", "aggregation-1-1"]);
    }

    #[test]
    fn what_is_no_tree_is_refused_with_the_place() {
        let refused = |shape: Shape| SwitchTree::new(shape.topology()).unwrap_err().to_string();
        let mesh = Shape::racks(2, 2, 2, 2, Wiring::Mesh(2)).unwrap();
        assert_eq!(
            refused(mesh),
            "core-0 has several links to one part of the network, or sees other parts than core-0 beside it; \
             in a tree every core or pod switch has one link to each part below"
        );
    }
}
