//! A network as a value: hosts, switches and the links between them.
//!
//! Invariants: everything is connected, names are unique, no link has capacity 0, a host is linked to
//! switches only. Hosts and switches keep the numbers that the description gave them; a switch's ports lead
//! first to hosts, then to switches nearer to hosts, then to the others, each in the order of their numbers.
//! This module must not know flows, servers or tables.

mod shape;
mod switch_tree;

pub use shape::{Shape, Wiring};
pub use switch_tree::{NoTree, SwitchTree, Tier, TreeNode};

use crate::rate::Rate;
use std::collections::{BTreeMap, VecDeque};

/// A host, or where one can be plugged in, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// A physical switch, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// A port of a switch, from 1 on as OpenFlow counts.
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

/// A link, counted from 0. It has the same capacity in both directions, which do not disturb each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// One direction of a link. A path is a sequence of hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop(u32);

impl Hop {
    /// Its link.
    pub fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    /// The other direction of the same link.
    pub fn reverse(self) -> Hop {
        Hop(self.0 ^ 1)
    }

    /// The hop with an index.
    pub fn numbered(index: u32) -> Hop {
        Hop(index)
    }

    /// Below [`Topology::hops`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A host.
    Host(Place),
    /// A switch.
    Switch(SwitchId),
}

/// The most places that a topology may have.
pub const PLACES_MAX: u64 = 1 << 20;

/// The most ports of a switch.
const PORTS_MAX: usize = u16::MAX as usize - 1;

/// What a topology is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Names of the switches.
    pub switches: Vec<String>,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// The names at both ends, and the capacity of each direction.
    pub links: Vec<(String, String, Rate)>,
}

/// A part of a [`Description`], so that whoever read it from a file finds its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The switch with this index.
    Switch(usize),
    /// The host with this index.
    Host(usize),
    /// The link with this index.
    Link(usize),
}

/// Why a description is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There is nobody to read or serve.
    #[error("there is no host; describe at least one")]
    NoHosts,
    /// More hosts than [`PLACES_MAX`].
    #[error("{0} hosts are described, at most {PLACES_MAX} may be")]
    TooManyHosts(usize),
    /// A name is used for two things.
    #[error("{1} is described twice; every host and switch needs a name of its own")]
    Duplicate(Item, String),
    /// A link ends at nothing.
    #[error("a link ends at {1}, which is neither a host nor a switch; describe it or correct the name")]
    Unknown(Item, String),
    /// A link from a thing to itself.
    #[error("a link leads from {1} to itself; name two ends")]
    Loop(Item, String),
    /// Two hosts are linked directly.
    #[error("a link leads from host {1} to host {2}; hosts are linked to switches")]
    HostToHost(Item, String, String),
    /// No capacity.
    #[error("the link between {1} and {2} has capacity 0; give what it carries, such as \"1 Gb/s\"")]
    NoCapacity(Item, String, String),
    /// More links than a switch can have.
    #[error("{1} has more than {PORTS_MAX} links")]
    TooManyPorts(Item, String),
    /// Not in one piece.
    #[error("{1} cannot be reached from {2}; link them, or leave one out")]
    NotConnected(Item, String, String),
}

impl TopologyError {
    /// The part that is wrong, if it is one.
    pub fn item(&self) -> Option<Item> {
        match self {
            TopologyError::NoHosts | TopologyError::TooManyHosts(_) => None,
            TopologyError::Duplicate(item, _)
            | TopologyError::Unknown(item, _)
            | TopologyError::Loop(item, _)
            | TopologyError::HostToHost(item, ..)
            | TopologyError::NoCapacity(item, ..)
            | TopologyError::TooManyPorts(item, _)
            | TopologyError::NotConnected(item, ..) => Some(*item),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Link {
    ends: [End; 2],
    capacity: Rate,
}

#[derive(Clone, Debug, PartialEq)]
struct Switch {
    name: String,
    /// Links to the nearest host, less one.
    level: u32,
    ports: Vec<(Peer, LinkId)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Host {
    name: String,
    links: Vec<LinkId>,
}

/// See the module. Its methods are about its own hosts, switches and links: for numbers beyond they panic.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    links: Vec<Link>,
}

impl Topology {
    /// The topology that a description gives, or what is wrong with it.
    pub fn new(described: &Description) -> Result<Topology, TopologyError> {
        let ends = ends_by_name(described)?;
        let links: Vec<Link> = described
            .links
            .iter()
            .enumerate()
            .map(|(index, link)| checked_link(&ends, Item::Link(index), link))
            .collect::<Result<_, _>>()?;
        let mut hosts: Vec<Host> =
            described.hosts.iter().map(|name| Host { name: name.clone(), links: Vec::new() }).collect();
        let mut at: Vec<Vec<(End, LinkId)>> = vec![Vec::new(); described.switches.len()];
        for (number, link) in (0..).map(LinkId).zip(&links) {
            for (end, other) in [(0, 1), (1, 0)].map(|(end, other)| (link.ends[end], link.ends[other])) {
                match end {
                    End::Host(place) => hosts[place.0 as usize].links.push(number),
                    End::Switch(switch) => at[switch.0 as usize].push((other, number)),
                }
            }
        }
        let levels = levels(&at);
        check_connected(described, &hosts, &levels, &links, &at)?;
        let switches = ports(described, at, &levels, &links)?;
        Ok(Topology { hosts, switches, links })
    }

    /// How many hosts there are.
    pub fn places(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// All switches.
    pub fn switches(&self) -> impl ExactSizeIterator<Item = SwitchId> + use<> {
        (0..self.switches.len() as u32).map(SwitchId)
    }

    /// All links.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// How many hops there are: two for every link.
    pub fn hops(&self) -> usize {
        2 * self.links.len()
    }

    /// What a link carries in each direction.
    pub fn capacity(&self, link: LinkId) -> Rate {
        self.links[link.0 as usize].capacity
    }

    /// Both ends of a link.
    pub fn ends(&self, link: LinkId) -> [End; 2] {
        self.links[link.0 as usize].ends
    }

    /// Where a hop begins.
    pub fn source(&self, hop: Hop) -> End {
        self.links[hop.index() / 2].ends[hop.index() % 2]
    }

    /// Where a hop ends.
    pub fn target(&self, hop: Hop) -> End {
        self.source(hop.reverse())
    }

    /// The direction of a link that begins at this end of it.
    fn hop_from(&self, link: LinkId, end: End) -> Hop {
        Hop(2 * link.0 + u32::from(self.ends(link)[0] != end))
    }

    /// The hops that begin at an end, in the order of its ports.
    pub fn hops_from(&self, end: End) -> impl Iterator<Item = Hop> + '_ {
        let links: Box<dyn Iterator<Item = LinkId> + '_> = match end {
            End::Host(place) => Box::new(self.hosts[place.0 as usize].links.iter().copied()),
            End::Switch(switch) => Box::new(self.switches[switch.0 as usize].ports.iter().map(|port| port.1)),
        };
        links.map(move |link| self.hop_from(link, end))
    }

    /// The links from a switch to the nearest host, less one: 0 for a switch that hosts are linked to.
    pub fn level(&self, switch: SwitchId) -> u32 {
        self.switches[switch.0 as usize].level
    }

    /// The ports of a switch.
    pub fn ports(&self, switch: SwitchId) -> impl ExactSizeIterator<Item = Port> + use<> {
        (1..self.switches[switch.0 as usize].ports.len() as u16 + 1).map(Port)
    }

    /// What a port leads to, or `None` if the switch has no such port.
    pub fn peer(&self, switch: SwitchId, port: Port) -> Option<Peer> {
        let ports = &self.switches[switch.0 as usize].ports;
        ports.get(usize::from(port.0).checked_sub(1)?).map(|port| port.0)
    }

    /// The name of a switch, such as `core-0`.
    pub fn name(&self, switch: SwitchId) -> &str {
        &self.switches[switch.0 as usize].name
    }

    /// The name of a host.
    pub fn host_name(&self, place: Place) -> &str {
        &self.hosts[place.0 as usize].name
    }

    /// The name of what is at the end of a link.
    pub fn end_name(&self, end: End) -> &str {
        match end {
            End::Host(place) => self.host_name(place),
            End::Switch(switch) => self.name(switch),
        }
    }

    /// The host with a name.
    pub fn host(&self, name: &str) -> Option<Place> {
        self.hosts.iter().position(|host| host.name == name).map(|index| Place(index as u32))
    }
}

fn ends_by_name(described: &Description) -> Result<BTreeMap<&str, End>, TopologyError> {
    if described.hosts.is_empty() {
        return Err(TopologyError::NoHosts);
    }
    if described.hosts.len() as u64 > PLACES_MAX {
        return Err(TopologyError::TooManyHosts(described.hosts.len()));
    }
    let switches = described
        .switches
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), End::Switch(SwitchId(index as u32)), Item::Switch(index)));
    let hosts = described
        .hosts
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), End::Host(Place(index as u32)), Item::Host(index)));
    let mut ends = BTreeMap::new();
    for (name, end, item) in switches.chain(hosts) {
        if ends.insert(name, end).is_some() {
            return Err(TopologyError::Duplicate(item, name.to_owned()));
        }
    }
    Ok(ends)
}

fn checked_link(
    ends: &BTreeMap<&str, End>,
    item: Item,
    (one, other, capacity): &(String, String, Rate),
) -> Result<Link, TopologyError> {
    let end = |name: &String| {
        ends.get(name.as_str()).copied().ok_or_else(|| TopologyError::Unknown(item, name.clone()))
    };
    let ends = [end(one)?, end(other)?];
    if ends[0] == ends[1] {
        return Err(TopologyError::Loop(item, one.clone()));
    }
    if let [End::Host(_), End::Host(_)] = ends {
        return Err(TopologyError::HostToHost(item, one.clone(), other.clone()));
    }
    if *capacity <= Rate::ZERO {
        return Err(TopologyError::NoCapacity(item, one.clone(), other.clone()));
    }
    Ok(Link { ends, capacity: *capacity })
}

/// The levels of switches; `None` for those that no host is connected to.
fn levels(at: &[Vec<(End, LinkId)>]) -> Vec<Option<u32>> {
    let has_host = |ends: &[(End, LinkId)]| ends.iter().any(|(end, _)| matches!(end, End::Host(_)));
    let mut levels: Vec<Option<u32>> = at.iter().map(|ends| has_host(ends).then_some(0)).collect();
    let mut next: VecDeque<usize> = (0..at.len()).filter(|switch| levels[*switch].is_some()).collect();
    while let Some(switch) = next.pop_front() {
        for (end, _) in &at[switch] {
            if let End::Switch(SwitchId(other)) = end
                && levels[*other as usize].is_none()
            {
                levels[*other as usize] = levels[switch].map(|level| level + 1);
                next.push_back(*other as usize);
            }
        }
    }
    levels
}

fn check_connected(
    described: &Description,
    hosts: &[Host],
    levels: &[Option<u32>],
    links: &[Link],
    at: &[Vec<(End, LinkId)>],
) -> Result<(), TopologyError> {
    let first = described.hosts[0].clone();
    let mut reached_hosts = vec![false; hosts.len()];
    let mut reached_switches = vec![false; at.len()];
    reached_hosts[0] = true;
    let mut next = vec![End::Host(Place(0))];
    while let Some(end) = next.pop() {
        let others: Vec<End> = match end {
            End::Host(place) => hosts[place.0 as usize]
                .links
                .iter()
                .flat_map(|link| links[link.0 as usize].ends)
                .filter(|other| *other != end)
                .collect(),
            End::Switch(switch) => at[switch.0 as usize].iter().map(|(other, _)| *other).collect(),
        };
        for other in others {
            let reached = match other {
                End::Host(place) => &mut reached_hosts[place.0 as usize],
                End::Switch(switch) => &mut reached_switches[switch.0 as usize],
            };
            if !std::mem::replace(reached, true) {
                next.push(other);
            }
        }
    }
    if let Some(index) = reached_hosts.iter().position(|reached| !reached) {
        return Err(TopologyError::NotConnected(Item::Host(index), described.hosts[index].clone(), first));
    }
    let lost = |index: &usize| !reached_switches[*index] || levels[*index].is_none();
    match (0..at.len()).find(lost) {
        Some(index) => {
            let name = described.switches[index].clone();
            Err(TopologyError::NotConnected(Item::Switch(index), name, first))
        }
        None => Ok(()),
    }
}

/// The switches with their ports in order.
fn ports(
    described: &Description,
    at: Vec<Vec<(End, LinkId)>>,
    levels: &[Option<u32>],
    links: &[Link],
) -> Result<Vec<Switch>, TopologyError> {
    let level = |switch: SwitchId| levels[switch.0 as usize].unwrap_or(u32::MAX);
    let mut sorted = at;
    for (index, ends) in sorted.iter_mut().enumerate() {
        if ends.len() > PORTS_MAX {
            return Err(TopologyError::TooManyPorts(Item::Switch(index), described.switches[index].clone()));
        }
        ends.sort_by_key(|(end, link)| match end {
            End::Host(place) => (0, place.0, *link),
            End::Switch(switch) => (1 + level(*switch), switch.0, *link),
        });
    }
    // By link: the port at each end; a host has none.
    let mut entered = vec![[Port(0); 2]; links.len()];
    for (index, ends) in sorted.iter().enumerate() {
        let here = End::Switch(SwitchId(index as u32));
        for (port, (_, link)) in (1..).map(Port).zip(ends) {
            let side = usize::from(links[link.0 as usize].ends[0] != here);
            entered[link.0 as usize][side] = port;
        }
    }
    let peer = |here: End, (other, link): (End, LinkId)| match other {
        End::Host(place) => (Peer::Host(place), link),
        End::Switch(switch) => {
            let side = usize::from(links[link.0 as usize].ends[0] == here);
            (Peer::Switch(switch, entered[link.0 as usize][side]), link)
        }
    };
    Ok(sorted
        .into_iter()
        .enumerate()
        .map(|(index, ends)| {
            let id = SwitchId(index as u32);
            Switch {
                name: described.switches[index].clone(),
                level: level(id),
                ports: ends.into_iter().map(|end| peer(End::Switch(id), end)).collect(),
            }
        })
        .collect())
}

#[cfg(test)]
mod tests;
