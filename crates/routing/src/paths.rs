//! All shortest paths between two hosts, without links and switches that have failed.
//!
//! Invariants: paths come in the order of ports, so that two who compute them agree. What lies between two
//! edge switches is computed once and kept until a failure or repair. This module must not know flows.

use crate::topology::{End, Hop, LinkId, Place, SwitchId, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most paths that are kept between two switches; a fat tree of 64 ports has 1,024. Further ones, of
/// which a drawn topology can have more than there are atoms, are left out.
pub const PATHS_MAX: usize = 1024;

/// A way from one host to another, hop by hop. From a host to itself there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<Hop>);

/// Hops from one switch to another; empty if they are the same.
type Middle = Box<[Hop]>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Paths {
    topology: Arc<Topology>,
    failed_links: BTreeSet<LinkId>,
    failed_switches: BTreeSet<SwitchId>,
    between: BTreeMap<(SwitchId, SwitchId), Arc<[Middle]>>,
}

/// The shortest paths from one host to another.
#[derive(Clone, Debug)]
pub struct Routes {
    parts: Vec<Part>,
    is_local: bool,
}

/// Those by one link of each host.
#[derive(Clone, Debug)]
struct Part {
    first: Hop,
    middles: Arc<[Middle]>,
    last: Hop,
}

/// One of them, not copied.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    ends: Option<(Hop, Hop)>,
    middle: &'a [Hop],
}

impl<'a> Route<'a> {
    /// Its hops from the source to the target.
    pub fn hops(self) -> impl Iterator<Item = Hop> + 'a {
        let first = self.ends.map(|ends| ends.0).into_iter();
        first.chain(self.middle.iter().copied()).chain(self.ends.map(|ends| ends.1))
    }

    /// A copy.
    pub fn path(self) -> Path {
        Path(self.hops().collect())
    }
}

impl Routes {
    /// One by one. Without any, the target cannot be reached.
    pub fn iter(&self) -> impl Iterator<Item = Route<'_>> {
        let local = self.is_local.then_some(Route { ends: None, middle: &[] });
        local.into_iter().chain(self.parts.iter().flat_map(|part| {
            part.middles
                .iter()
                .map(|middle| Route { ends: Some((part.first, part.last)), middle: middle.as_ref() })
        }))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        usize::from(self.is_local) + self.parts.iter().map(|part| part.middles.len()).sum::<usize>()
    }

    /// How many hops each of them has, or `None` if there is no path.
    pub fn length(&self) -> Option<usize> {
        self.iter().next().map(|route| route.hops().count())
    }
}

impl Paths {
    /// Over all links and switches.
    pub fn new(topology: Arc<Topology>) -> Paths {
        Paths {
            topology,
            failed_links: BTreeSet::new(),
            failed_switches: BTreeSet::new(),
            between: BTreeMap::new(),
        }
    }

    /// The network that they are in.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// From now on over all links and switches but these.
    pub fn fail(&mut self, links: BTreeSet<LinkId>, switches: BTreeSet<SwitchId>) {
        if (&links, &switches) != (&self.failed_links, &self.failed_switches) {
            (self.failed_links, self.failed_switches) = (links, switches);
            self.between.clear();
        }
    }

    /// The shortest paths from one host to another. To and from hosts that are not in the network there are
    /// none.
    pub fn between(&mut self, source: Place, target: Place) -> Routes {
        if source.max(target).0 >= self.topology.places() {
            return Routes { parts: Vec::new(), is_local: false };
        }
        if source == target {
            return Routes { parts: Vec::new(), is_local: true };
        }
        let ups = self.links_of(source);
        let downs: Vec<Hop> = self.links_of(target).into_iter().map(Hop::reverse).collect();
        let mut parts: Vec<Part> = Vec::new();
        let mut shortest = usize::MAX;
        for first in ups {
            for last in downs.iter().copied() {
                let (End::Switch(from), End::Switch(to)) =
                    (self.topology.target(first), self.topology.source(last))
                else {
                    continue;
                };
                let middles = self.middles(from, to);
                let Some(length) = middles.first().map(|middle| middle.len()) else { continue };
                if length < shortest {
                    parts.clear();
                    shortest = length;
                }
                if length == shortest {
                    parts.push(Part { first, middles, last });
                }
            }
        }
        Routes { parts, is_local: false }
    }

    /// The hops from a host to its switches, as far as they can be used.
    fn links_of(&self, place: Place) -> Vec<Hop> {
        self.topology.hops_from(End::Host(place)).filter(|hop| self.is_usable(*hop)).collect()
    }

    /// Whether the link and the switch that it leads to have not failed.
    fn is_usable(&self, hop: Hop) -> bool {
        let switch = |end| match end {
            End::Switch(switch) => self.failed_switches.contains(&switch),
            End::Host(_) => false,
        };
        !self.failed_links.contains(&hop.link())
            && !switch(self.topology.target(hop))
            && !switch(self.topology.source(hop))
    }

    fn middles(&mut self, from: SwitchId, to: SwitchId) -> Arc<[Middle]> {
        if let Some(known) = self.between.get(&(from, to)) {
            return known.clone();
        }
        let found: Arc<[Middle]> = self.search(from, to).into();
        self.between.insert((from, to), found.clone());
        found
    }

    fn search(&self, from: SwitchId, to: SwitchId) -> Vec<Middle> {
        let distances = self.distances_to(to);
        let Some(distance) = distances.get(&from).copied() else { return Vec::new() };
        let mut found = Vec::new();
        // Hops so far, and those to try from where they lead, the last one first.
        let mut path: Vec<Hop> = Vec::new();
        let mut open = vec![self.nearer(from, distance, &distances)];
        while let Some(hops) = open.last_mut() {
            if path.len() == distance as usize {
                found.push(path.clone().into_boxed_slice());
            }
            match hops.pop().filter(|_| found.len() < PATHS_MAX) {
                Some(hop) => {
                    let End::Switch(next) = self.topology.target(hop) else { continue };
                    path.push(hop);
                    open.push(self.nearer(next, distances[&next], &distances));
                }
                None => {
                    open.pop();
                    path.pop();
                }
            }
        }
        found
    }

    /// Hops from a switch to those one nearer, in reverse order.
    fn nearer(&self, from: SwitchId, distance: u32, distances: &BTreeMap<SwitchId, u32>) -> Vec<Hop> {
        let is_nearer = |hop: &Hop| match self.topology.target(*hop) {
            End::Switch(next) => distances.get(&next).is_some_and(|next| next + 1 == distance),
            End::Host(_) => false,
        };
        let hops = self.topology.hops_from(End::Switch(from)).filter(|hop| self.is_usable(*hop));
        let mut nearer: Vec<Hop> = hops.filter(is_nearer).collect();
        nearer.reverse();
        nearer
    }

    fn distances_to(&self, to: SwitchId) -> BTreeMap<SwitchId, u32> {
        let mut distances = BTreeMap::new();
        if self.failed_switches.contains(&to) {
            return distances;
        }
        distances.insert(to, 0);
        let mut next = VecDeque::from([to]);
        while let Some(switch) = next.pop_front() {
            let further = distances[&switch] + 1;
            let hops = self.topology.hops_from(End::Switch(switch)).filter(|hop| self.is_usable(*hop));
            for hop in hops {
                if let End::Switch(other) = self.topology.target(hop)
                    && !distances.contains_key(&other)
                {
                    distances.insert(other, further);
                    next.push_back(other);
                }
            }
        }
        distances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::topology::{Description, Shape};

    fn paths(shape: &Shape) -> Paths {
        Paths::new(Arc::new(shape.topology()))
    }

    fn shown(paths: &mut Paths, source: u32, target: u32) -> Vec<Vec<String>> {
        let routes = paths.between(Place(source), Place(target));
        let topology = paths.topology().clone();
        let named = |hop: Hop| topology.end_name(topology.target(hop)).to_owned();
        routes.iter().map(|route| route.hops().map(named).collect()).collect()
    }

    #[test]
    fn counts_of_textbook_topologies() {
        let count = |paths: &mut Paths, target| {
            let routes = paths.between(Place(0), Place(target));
            (routes.count(), routes.length())
        };
        let mut mayflower = paths(&Shape::mayflower(8.0).unwrap());
        assert_eq!(count(&mut mayflower, 0), (1, Some(0)));
        assert_eq!(count(&mut mayflower, 1), (1, Some(2)));
        assert_eq!(count(&mut mayflower, 4), (2, Some(4)));
        assert_eq!(count(&mut mayflower, 16), (8, Some(6)));
        let mut fat_tree = paths(&Shape::fat_tree(8).unwrap());
        assert_eq!(count(&mut fat_tree, 4), (4, Some(4)));
        assert_eq!(count(&mut fat_tree, 127), (16, Some(6)));
        let mut leaf_spine = paths(&Shape::leaf_spine(4, 3, 2).unwrap());
        assert_eq!(count(&mut leaf_spine, 7), (3, Some(4)));
    }

    #[test]
    fn every_path_leads_from_host_to_host_without_a_gap_and_none_comes_twice() {
        let mut paths = paths(&Shape::mayflower(8.0).unwrap());
        let topology = paths.topology().clone();
        for (source, target) in (0..64).flat_map(|source| (0..64).map(move |target| (source, target))) {
            let mut seen = BTreeSet::new();
            for route in paths.between(Place(source), Place(target)).iter() {
                let hops: Vec<Hop> = route.hops().collect();
                assert!(
                    hops.windows(2).all(|pair| topology.target(pair[0]) == topology.source(pair[1])),
                    "{source} to {target}: {hops:?}"
                );
                if let (Some(first), Some(last)) = (hops.first(), hops.last()) {
                    assert_eq!(topology.source(*first), End::Host(Place(source)));
                    assert_eq!(topology.target(*last), End::Host(Place(target)));
                }
                assert!(seen.insert(hops));
            }
        }
    }

    #[test]
    fn hosts_that_are_not_there_are_not_reached() {
        let mut paths = paths(&Shape::two_tiers(2, 2).unwrap());
        let count = |paths: &mut Paths, source, target| paths.between(Place(source), Place(target)).count();
        assert_eq!((count(&mut paths, 0, 4), count(&mut paths, 4, 0), count(&mut paths, 9, 9)), (0, 0, 0));
    }

    #[test]
    fn what_has_failed_is_gone_round_and_used_again_when_it_is_repaired() {
        let mut paths = paths(&Shape::leaf_spine(2, 2, 1).unwrap());
        let both = shown(&mut paths, 0, 1);
        assert_eq!(
            both,
            [["edge-0", "core-0", "edge-1", "host-1"], ["edge-0", "core-1", "edge-1", "host-1"]]
        );
        paths.fail(BTreeSet::new(), BTreeSet::from([SwitchId(0)]));
        assert_eq!(shown(&mut paths, 0, 1), both[1..]);
        let topology = paths.topology().clone();
        let first = paths.between(Place(0), Place(1)).iter().next().unwrap().hops().nth(1).unwrap();
        paths.fail(BTreeSet::from([first.link()]), BTreeSet::from([SwitchId(0)]));
        assert_eq!(paths.between(Place(0), Place(1)).length(), None);
        assert_eq!(paths.between(Place(0), Place(0)).length(), Some(0));
        paths.fail(BTreeSet::from([first.link()]), BTreeSet::new());
        assert_eq!(shown(&mut paths, 0, 1), both[..1]);
        paths.fail(BTreeSet::new(), BTreeSet::new());
        assert_eq!(shown(&mut paths, 0, 1), both);
        assert_eq!(topology.capacity(first.link()), Rate::bits(500_000_000));
    }

    #[test]
    fn a_host_with_two_links_uses_both_where_they_are_as_short() {
        let link = |one: &str, other: &str| (one.to_owned(), other.to_owned(), Rate::bits(1));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let described = Description {
            switches: names(&["left", "right"]),
            hosts: names(&["both", "one"]),
            links: vec![
                link("both", "left"),
                link("both", "right"),
                link("left", "right"),
                link("one", "right"),
            ],
        };
        let mut paths = Paths::new(Arc::new(Topology::new(&described).unwrap()));
        assert_eq!(shown(&mut paths, 0, 1), [["right", "one"]]);
        paths.fail(BTreeSet::from([LinkId(1)]), BTreeSet::new());
        assert_eq!(shown(&mut paths, 0, 1), [["left", "right", "one"]]);
    }

    /// Thirty switches in a row, each linked twice to the next: 2^29 shortest paths.
    #[test]
    fn more_paths_than_can_be_listed_are_cut() {
        let switch = |number: u32| format!("s{number}");
        let mut described = Description {
            switches: (0..30).map(switch).collect(),
            hosts: vec!["a".to_owned(), "b".to_owned()],
            links: vec![
                ("a".to_owned(), switch(0), Rate::bits(1)),
                ("b".to_owned(), switch(29), Rate::bits(1)),
            ],
        };
        for number in 0..29 {
            described.links.extend([(); 2].map(|()| (switch(number), switch(number + 1), Rate::bits(1))));
        }
        let mut paths = Paths::new(Arc::new(Topology::new(&described).unwrap()));
        let routes = paths.between(Place(0), Place(1));
        assert_eq!((routes.count(), routes.length()), (PATHS_MAX, Some(31)));
    }
}
