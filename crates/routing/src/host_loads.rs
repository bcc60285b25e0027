//! The load of links as it can be estimated from what hosts send: Sinbad's way, for reads.
//!
//! Mayflower VI.B: Sinbad-R looks at what goes up from hosts towards the core, since reads flow that way from
//! the replica; what is written meets others on the way down too. What a host sends to another is spread
//! evenly over all shortest paths between them, as nobody knows which one it takes. Invariant: it is as old
//! as the last measurement, but for what has been chosen since. This module must not know paths of flows.

use crate::paths::{Paths, Routes};
use crate::rate::Rate;
use crate::topology::{End, Hop, Place, Topology};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct HostLoads {
    /// By hop.
    loads: Vec<f64>,
    /// By host: what it adds to which hops.
    parts: Vec<Vec<(Hop, f64)>>,
}

impl HostLoads {
    /// Nothing is sent.
    pub fn new(topology: &Topology) -> HostLoads {
        HostLoads { loads: vec![0.0; topology.hops()], parts: vec![Vec::new(); topology.places() as usize] }
    }

    /// A host has measured what it sends to others: what was known of it is forgotten.
    pub fn measured(
        &mut self,
        paths: &mut Paths,
        source: Place,
        sent: impl IntoIterator<Item = (Place, Rate)>,
    ) {
        for (hop, load) in std::mem::take(&mut self.parts[source.0 as usize]) {
            self.loads[hop.index()] = (self.loads[hop.index()] - load).max(0.0);
        }
        for (target, rate) in sent {
            self.expect(paths, source, target, rate);
        }
    }

    /// A host will send so much more to another; true until it has measured again.
    pub fn expect(&mut self, paths: &mut Paths, source: Place, target: Place, rate: Rate) {
        let routes = paths.between(source, target);
        let each = rate.bytes() / (routes.count() as f64).max(1.0);
        for route in routes.iter() {
            for hop in route.hops() {
                self.loads[hop.index()] += each;
                self.parts[source.0 as usize].push((hop, each));
            }
        }
    }

    /// The capacity left on the way up from a replica to a reader: the least of the tiers, where a tier
    /// counts as the mean of its links. Unbounded within a host.
    pub fn left(&self, paths: &mut Paths, source: Place, target: Place) -> Rate {
        self.least_of_tiers(paths, source, target, is_upwards)
    }

    /// The same for what is written, which can meet what others send on the way down too.
    pub fn left_all_the_way(&self, paths: &mut Paths, source: Place, target: Place) -> Rate {
        self.least_of_tiers(paths, source, target, |_, _| true)
    }

    fn least_of_tiers(
        &self,
        paths: &mut Paths,
        source: Place,
        target: Place,
        counts: impl Fn(&Topology, Hop) -> bool,
    ) -> Rate {
        let routes: Routes = paths.between(source, target);
        let topology = paths.topology();
        let mut tiers: Vec<(f64, f64)> = Vec::new();
        for route in routes.iter() {
            for (tier, hop) in route.hops().filter(|hop| counts(topology, *hop)).enumerate() {
                let load = self.loads.get(hop.index()).copied().unwrap_or(0.0);
                let left = topology.capacity(hop.link()).bytes() - load;
                if tiers.len() <= tier {
                    tiers.push((0.0, 0.0));
                }
                tiers[tier].0 += left;
                tiers[tier].1 += 1.0;
            }
        }
        Rate::of(tiers.iter().map(|(left, count)| left / count).fold(f64::MAX, f64::min))
    }
}

/// Whether a hop leads away from hosts.
fn is_upwards(topology: &Topology, hop: Hop) -> bool {
    match (topology.source(hop), topology.target(hop)) {
        (End::Host(_), _) => true,
        (End::Switch(from), End::Switch(to)) => topology.level(to) > topology.level(from),
        (End::Switch(_), End::Host(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Shape;
    use std::sync::Arc;

    #[test]
    fn what_hosts_send_is_spread_over_the_links_upwards() {
        let mut paths = Paths::new(Arc::new(Shape::mayflower(8.0).unwrap().topology()));
        let mut loads = HostLoads::new(&paths.topology().clone());
        let left = |loads: &HostLoads, paths: &mut Paths, source, target| {
            loads.left(paths, Place(source), Place(target)).bytes() * 8.0 / 1e6
        };
        assert_eq!(left(&loads, &mut paths, 0, 0), f64::MAX * 8.0 / 1e6);
        // Hosts have 1 Gb/s, links above the rack 500 Mb/s.
        assert_eq!(left(&loads, &mut paths, 0, 1), 1000.0);
        assert_eq!(left(&loads, &mut paths, 0, 63), 500.0);
        loads.measured(&mut paths, Place(0), [(Place(63), Rate::bits(800_000_000))]);
        // A half on each link above the rack, a quarter on each of the four to the cores.
        assert_eq!(left(&loads, &mut paths, 1, 63), 100.0);
        assert_eq!(left(&loads, &mut paths, 0, 1), 200.0);
        // Another rack of the same pod goes up by other links to the same aggregation switches.
        assert_eq!(left(&loads, &mut paths, 4, 8), 500.0);
        assert_eq!(left(&loads, &mut paths, 4, 63), 300.0);
        loads.measured(&mut paths, Place(0), []);
        assert_eq!(left(&loads, &mut paths, 4, 63), 500.0);
    }
}
