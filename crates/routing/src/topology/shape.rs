//! Topologies that are described by a few numbers.
//!
//! Switches are numbered core first, then pod by pod, then edge; hosts in the order of their edge switches.

use super::{Description, NoTree, PLACES_MAX, SwitchTree, Topology};
use crate::rate::Rate;
use bearing_types::{ParameterError, within};

/// How aggregation switches are linked to cores. Where there are two tiers, edge switches are linked to all
/// cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Each to so many cores of its own: the n-th switch of every pod to the n-th group. So in fat trees.
    Groups(u32),
    /// Each to all of so many.
    Mesh(u32),
}

/// Two or three tiers of switches, the same everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What is under the cores, under that, and so on; the last counts hosts. Two or three.
    fan_outs: Vec<u32>,
    /// Switches of a pod above its edge; unused with two tiers.
    aggregations: u32,
    wiring: Wiring,
    /// Of each host.
    rate: Rate,
    /// By tier, from the edge up: what comes in from below, over what goes out above.
    oversubscription: [f64; 2],
}

/// What hosts have if nothing is said.
const RATE: u64 = 1_000_000_000;

impl Shape {
    /// A core switch, edge switches, and hosts under each edge switch. Fan-outs are 1 to 4,096, at most
    /// [`PLACES_MAX`] places.
    pub fn two_tiers(edges: u32, hosts: u32) -> Result<Shape, ParameterError> {
        Shape::leaf_spine(edges, 1, hosts)
    }

    /// Leaves, each linked to every spine, and hosts under each leaf. Bounds as with two tiers; 1 to 4,096
    /// spines.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts: u32) -> Result<Shape, ParameterError> {
        Shape::checked(vec![leaves, hosts], 1, Wiring::Mesh(spines))
    }

    /// A core switch, aggregation switches, edge switches under each, hosts under each of those. Bounds as
    /// with two tiers.
    pub fn three_tiers(aggregations: u32, edges: u32, hosts: u32) -> Result<Shape, ParameterError> {
        Shape::checked(vec![aggregations, edges, hosts], 1, Wiring::Groups(1))
    }

    /// The textbook fat tree of switches with `ports` ports each (even, 2 to 128): `ports` pods of `ports`/2
    /// edge and `ports`/2 aggregation switches, (`ports`/2)^2 cores, `ports`^3/4 places.
    pub fn fat_tree(ports: u32) -> Result<Shape, ParameterError> {
        let even = ports.is_multiple_of(2) && (2..=128).contains(&ports);
        within("ports of a fat tree's switches", ports, even, "an even number, 2 to 128")?;
        Shape::checked(vec![ports, ports / 2, ports / 2], ports / 2, Wiring::Groups(ports / 2))
    }

    /// A fat tree cut to fewer pods and cores: `pods` pods of `half` edge and `half` aggregation switches
    /// with `half` hosts under each edge, and `cores_each` cores above each aggregation switch (1 to `half`).
    pub fn pods(pods: u32, half: u32, cores_each: u32) -> Result<Shape, ParameterError> {
        within("cores_each", cores_each, (1..=half).contains(&cores_each), "1 to half of the ports")?;
        Shape::checked(vec![pods, half, half], half, Wiring::Groups(cores_each))
    }

    /// Pods of racks of hosts, with aggregation switches in each pod that are linked to all its racks.
    pub fn racks(
        pods: u32,
        aggregations: u32,
        racks: u32,
        hosts: u32,
        wiring: Wiring,
    ) -> Result<Shape, ParameterError> {
        Shape::checked(vec![pods, racks, hosts], aggregations, wiring)
    }

    /// MetaFlow's simulation (section 7.A): switches with 32 ports, pods of 16 edge and 16 aggregation
    /// switches and 256 servers, 32 cores. 8 pods hold its 2,000 servers. A textbook fat tree of 32 ports has
    /// 32 pods and 256 cores: with 32 cores each aggregation switch reaches two, not 16.
    pub fn metaflow_simulation() -> Shape {
        Shape::regular(vec![8, 16, 16], 16, Wiring::Groups(2))
    }

    /// MetaFlow's testbed (figure 12): one core, two aggregation switches, 20 containers under each edge
    /// switch. The text's 5 machines would hold 100; ten edge switches hold the 200 that it measured.
    pub fn metaflow_testbed() -> Shape {
        Shape::regular(vec![2, 5, 20], 1, Wiring::Groups(1))
    }

    /// Mayflower's testbed (section VI.A): 4 pods of 4 racks of 4 hosts with 1 Gb/s each, 2 aggregation
    /// switches in each pod, 2 cores. The paper gives the oversubscription from hosts to cores (8 and more),
    /// not by tier. 4 of it lies above the racks here: of the ways to divide it, this one gives the published
    /// ratios and percentiles of figure 3 (docs/benchmarks/2026-11-29-mayflower.md).
    pub fn mayflower(oversubscription: f64) -> Result<Shape, ParameterError> {
        Shape::regular(vec![4, 4, 4], 2, Wiring::Mesh(2)).oversubscribed(&[4.0, oversubscription / 4.0])
    }

    fn regular(fan_outs: Vec<u32>, aggregations: u32, wiring: Wiring) -> Shape {
        Shape { fan_outs, aggregations, wiring, rate: Rate::bits(RATE), oversubscription: [1.0; 2] }
    }

    fn checked(fan_outs: Vec<u32>, aggregations: u32, wiring: Wiring) -> Result<Shape, ParameterError> {
        let (Wiring::Groups(cores) | Wiring::Mesh(cores)) = wiring;
        for fan_out in fan_outs.iter().chain([&aggregations, &cores]) {
            within("fan-out", fan_out, (1..=4096).contains(fan_out), "1 to 4096")?;
        }
        let places: u64 = fan_outs.iter().map(|fan_out| u64::from(*fan_out)).product();
        within("places of a topology", places, places <= PLACES_MAX, "fan-outs for at most 1048576")?;
        Ok(Shape::regular(fan_outs, aggregations, wiring))
    }

    /// With hosts of another rate. More than 0.
    pub fn with_rate(mut self, bits: u64) -> Result<Shape, ParameterError> {
        within("rate of hosts", bits, bits > 0, "more than 0 bits a second")?;
        self.rate = Rate::bits(bits);
        Ok(self)
    }

    /// With less capacity upwards than downwards: by tier from the edge up, 1 if nothing is said. Above 0, at
    /// most 1,000.
    pub fn oversubscribed(mut self, by_tier: &[f64]) -> Result<Shape, ParameterError> {
        for ratio in by_tier {
            let holds = *ratio > 0.0 && *ratio <= 1000.0;
            within("oversubscription", ratio, holds, "more than 0, at most 1000, for each tier")?;
        }
        let tiers = self.fan_outs.len() - 1;
        within("oversubscription", by_tier.len(), by_tier.len() <= tiers, "one number for each tier")?;
        self.oversubscription[..by_tier.len()].copy_from_slice(by_tier);
        Ok(self)
    }

    /// How many hosts can be plugged in.
    pub fn places(&self) -> u32 {
        self.fan_outs.iter().product()
    }

    fn cores(&self) -> u32 {
        match self.wiring {
            Wiring::Mesh(cores) => cores,
            Wiring::Groups(each) => each * self.aggregations,
        }
    }

    /// Hosts, switches and links with their names: `host-0`, `core-0`, `aggregation-1-0` (pod, switch of the
    /// pod), `edge-7`.
    pub fn describe(&self) -> Description {
        let pods = if self.fan_outs.len() == 3 { self.fan_outs[0] } else { 0 };
        let edges: u32 = self.fan_outs[..self.fan_outs.len() - 1].iter().product();
        let hosts_each = self.fan_outs[self.fan_outs.len() - 1];
        let (core, edge, host) =
            (|n: u32| format!("core-{n}"), |n: u32| format!("edge-{n}"), |n: u32| format!("host-{n}"));
        let aggregation = |pod: u32, n: u32| format!("aggregation-{pod}-{n}");
        let mut links = Vec::new();
        for place in 0..self.places() {
            links.push((edge(place / hosts_each), host(place), self.rate));
        }
        let up = |down: Rate, tier: usize, links: u32| {
            Rate::of(down.bytes() / self.oversubscription[tier] / f64::from(links))
        };
        let from_hosts = Rate::of(self.rate.bytes() * f64::from(hosts_each));
        if pods == 0 {
            let capacity = up(from_hosts, 0, self.cores());
            for number in 0..edges {
                links.extend((0..self.cores()).map(|above| (core(above), edge(number), capacity)));
            }
        }
        for pod in 0..pods {
            let capacity = up(from_hosts, 0, self.aggregations);
            let racks = self.fan_outs[1];
            for above in 0..self.aggregations {
                let below = (0..racks).map(|rack| edge(pod * racks + rack));
                links.extend(below.map(|below| (aggregation(pod, above), below, capacity)));
            }
            let from_racks = Rate::of(capacity.bytes() * f64::from(racks));
            for below in 0..self.aggregations {
                let above = match self.wiring {
                    Wiring::Mesh(cores) => 0..cores,
                    Wiring::Groups(each) => below * each..(below + 1) * each,
                };
                let capacity = up(from_racks, 1, above.len() as u32);
                links.extend(above.map(|above| (core(above), aggregation(pod, below), capacity)));
            }
        }
        let pods = (0..pods).flat_map(|pod| (0..self.aggregations).map(move |n| (pod, n)));
        let switches = (0..self.cores())
            .map(core)
            .chain(pods.map(|(pod, n)| aggregation(pod, n)))
            .chain((0..edges).map(edge))
            .collect();
        Description { switches, hosts: (0..self.places()).map(host).collect(), links }
    }

    /// The topology of this shape.
    pub fn topology(&self) -> Topology {
        Topology::new(&self.describe()).expect("what a shape describes is connected and named once")
    }

    /// The tree of its switches: there is none where a node below a core has several links to it.
    pub fn switch_tree(&self) -> Result<SwitchTree, NoTree> {
        SwitchTree::new(self.topology())
    }
}
