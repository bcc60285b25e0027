//! Where the copies of a new chunk go, by the load of the links that they would cross.
//!
//! The first copy takes the writer's bytes and passes them on to all others, as data servers do. Every copy
//! stands in a rack of its own, as far as there are racks, and never on a host that has one. Sinbad
//! (Chowdhury et al. 2013) takes for each copy the host behind the least loaded links, by what hosts have
//! measured; by cost the host and path are taken that Mayflower's rule for reads would take. Invariant: as
//! many different hosts as asked for, if so many can be reached. This module must not know clocks or
//! messages.

use crate::estimates::{Carrier, Estimates};
use crate::host_loads::HostLoads;
use crate::paths::{Path, Paths};
use crate::rate::Rate;
use crate::shares::FlowId;
use crate::topology::Place;
use bearing_types::Mono;

/// Who chooses the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// They are drawn, and paths too, as HDFS and switches that hash do.
    Random,
    /// The most capacity left on the way, by what hosts have measured; paths by hash.
    HostLoads,
    /// The host and the path that cost least.
    Cost,
}

/// A chunk that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where its bytes come from.
    pub writer: Place,
    /// How many hosts get a copy.
    pub copies: usize,
    /// How many bytes each gets.
    pub bytes: u64,
}

/// A copy's way.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The flow that it is in the estimates.
    pub flow: FlowId,
    /// Who sends.
    pub source: Place,
    /// Who gets the copy.
    pub target: Place,
    /// The way.
    pub path: Path,
    /// The rate that it is believed to have.
    pub rate: Rate,
}

/// What a host costs; the least is taken.
struct Candidate {
    cost: f64,
    target: Place,
    path: Path,
    carriers: Vec<Carrier>,
}

impl Placing {
    /// Chooses, and adds the flows to the estimates and to the loads. `draw` decides among equals.
    pub fn place(
        self,
        now: Mono,
        write: Write,
        paths: &mut Paths,
        estimates: &mut Estimates,
        loads: &mut HostLoads,
        draw: u64,
    ) -> Vec<Placed> {
        let mut search = Search { placing: self, now, write, paths, estimates, loads, placed: Vec::new() };
        while search.placed.len() < write.copies {
            let turned = draw.rotate_left(search.placed.len() as u32 * 17);
            let Some(next) = search.next(turned) else { break };
            search.take(next);
        }
        search.placed
    }
}

/// A placement under way.
struct Search<'a> {
    placing: Placing,
    now: Mono,
    write: Write,
    paths: &'a mut Paths,
    estimates: &'a mut Estimates,
    loads: &'a mut HostLoads,
    placed: Vec<Placed>,
}

impl Search<'_> {
    fn source(&self) -> Place {
        self.placed.first().map_or(self.write.writer, |first| first.target)
    }

    fn take(&mut self, next: Candidate) {
        let (source, Candidate { target, path, carriers, .. }) = (self.source(), next);
        let rate = self.estimates.price(self.now, &carriers, &[]).rate;
        let (flow, _) = self.estimates.attempt(self.now, carriers, Some(self.write.bytes), rate);
        self.estimates.freeze(self.now, flow);
        self.loads.expect(self.paths, source, target, rate);
        self.placed.push(Placed { flow, source, target, path, rate });
    }

    fn next(&mut self, draw: u64) -> Option<Candidate> {
        let mut allowed = self.allowed();
        // Among equals the first in turn is taken.
        let turn = draw.checked_rem(allowed.len() as u64)?;
        allowed.rotate_left(turn as usize);
        if self.placing == Placing::Random {
            allowed.truncate(1);
        }
        let source = self.source();
        let mut best: Option<Candidate> = None;
        for target in allowed {
            let routes = self.paths.between(source, target);
            let hashed = (draw >> 32) % (routes.count() as u64).max(1);
            for (index, route) in (0..).zip(routes.iter()) {
                if self.placing != Placing::Cost && index != hashed {
                    continue;
                }
                let path = route.path();
                let carriers = self.estimates.carriers_of(&path);
                let cost = self.cost(source, target, &carriers);
                if best.as_ref().is_none_or(|best| cost < best.cost) {
                    best = Some(Candidate { cost, target, path, carriers });
                }
            }
        }
        best
    }

    fn cost(&mut self, source: Place, target: Place, carriers: &[Carrier]) -> f64 {
        match self.placing {
            Placing::Random => 0.0,
            Placing::HostLoads => -self.loads.left_all_the_way(self.paths, source, target).bytes(),
            Placing::Cost => {
                let price = self.estimates.price(self.now, carriers, &[]);
                price.rate.seconds_for(self.write.bytes as f64) + price.impact
            }
        }
    }

    /// Hosts in racks without a copy, or any if there are none, that can be reached.
    fn allowed(&mut self) -> Vec<Place> {
        let (source, writer) = (self.source(), self.write.writer);
        let (paths, placed) = (&mut *self.paths, &self.placed);
        let mut free: Vec<Place> = (0..paths.topology().places()).map(Place).collect();
        free.retain(|place| *place != writer && placed.iter().all(|placed| placed.target != *place));
        free.retain(|place| paths.between(source, *place).length().is_some());
        // Two hops: up to the rack's switch and down again.
        let mut is_near = |one: Place, other| paths.between(one, other).length() == Some(2);
        let far = |place: &Place| !placed.iter().any(|placed| is_near(placed.target, *place));
        let far: Vec<Place> = free.iter().copied().filter(far).collect();
        if far.is_empty() { free } else { far }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{End, Shape};
    use std::sync::Arc;

    const ALL: [Placing; 3] = [Placing::Random, Placing::HostLoads, Placing::Cost];

    struct World {
        paths: Paths,
        estimates: Estimates,
        loads: HostLoads,
    }

    impl World {
        fn new(shape: Shape) -> World {
            let topology = Arc::new(shape.topology());
            World {
                estimates: Estimates::new(&topology),
                loads: HostLoads::new(&topology),
                paths: Paths::new(topology),
            }
        }

        fn place(&mut self, placing: Placing, writer: u32, copies: usize, draw: u64) -> Vec<u32> {
            let write = Write { writer: Place(writer), copies, bytes: 64_000_000 };
            let World { paths, estimates, loads } = self;
            let placed = placing.place(Mono::ZERO, write, paths, estimates, loads, draw);
            for (index, copy) in placed.iter().enumerate() {
                let source = if index == 0 { Place(writer) } else { placed[0].target };
                assert_eq!(copy.source, source);
                assert_eq!(
                    copy.path.0.first().map(|hop| paths.topology().source(*hop)),
                    Some(End::Host(source))
                );
            }
            placed.iter().map(|copy| copy.target.0).collect()
        }
    }

    #[test]
    fn every_copy_stands_in_a_rack_of_its_own_and_none_on_the_writers_host() {
        for placing in ALL {
            for draw in 0..200u64 {
                let mut world = World::new(Shape::mayflower(8.0).unwrap());
                let hosts = world.place(placing, 5, 3, draw.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                assert_eq!(hosts.len(), 3);
                assert!(!hosts.contains(&5));
                let mut racks: Vec<u32> = hosts.iter().map(|host| host / 4).collect();
                racks.sort_unstable();
                racks.dedup();
                assert_eq!(racks.len(), 3, "{placing:?}: {hosts:?}");
            }
        }
    }

    #[test]
    fn with_fewer_racks_than_copies_they_share_one_and_with_fewer_hosts_there_are_fewer_copies() {
        for placing in ALL {
            let mut world = World::new(Shape::leaf_spine(1, 1, 4).unwrap());
            let mut hosts = world.place(placing, 0, 5, 7);
            hosts.sort_unstable();
            assert_eq!(hosts, [1, 2, 3]);
        }
    }

    #[test]
    fn links_that_are_busy_are_avoided_on_the_way_down_too() {
        for placing in [Placing::HostLoads, Placing::Cost] {
            let mut world = World::new(Shape::leaf_spine(2, 2, 4).unwrap());
            // All hosts of the other rack get something from their neighbours, but for 6.
            for target in [4u32, 5, 7] {
                let source = if target == 4 { 5 } else { 4 };
                let rate = Rate::bits(900_000_000);
                world.loads.expect(&mut world.paths, Place(source), Place(target), rate);
                let routes = world.paths.between(Place(source), Place(target));
                let carriers = world.estimates.carriers_of(&routes.iter().next().unwrap().path());
                world.estimates.attempt(Mono::ZERO, carriers, Some(1 << 30), rate);
            }
            for draw in 0..50 {
                let mut world = World {
                    paths: world.paths.clone(),
                    estimates: world.estimates.clone(),
                    loads: world.loads.clone(),
                };
                let hosts = world.place(placing, 0, 2, draw);
                assert!(hosts.iter().all(|host| *host < 4 || *host == 6), "{placing:?}: {hosts:?}");
            }
        }
    }
}
