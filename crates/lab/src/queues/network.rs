//! How long what is sent takes from one host to another.
//!
//! Invariants: what is sent takes the quickest way; on each of its links it takes the link's latency, and the
//! time that its bytes take at the link's rate. Links are never waited for: requests are small, and who
//! measures says when one is too busy for that.

use bearing_routing::{End, LinkId, Place, Shape, SwitchId, Topology};
use bearing_types::ParameterError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// A network as its operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wires {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// By link: how long a bit takes, with the switch behind it.
    pub latencies: Vec<Duration>,
}

/// A request or an answer on the wire. Assumed.
const BYTES: f64 = 300.0;
/// What hosts of the network have that is taken where none is given. Assumed.
const BITS_A_SECOND: u64 = 10_000_000_000;

impl Wires {
    /// A link where nothing else is said: some metres of cable and a switch.
    pub const LATENCY: Duration = Duration::from_nanos(500);

    /// The fat tree that is taken where none is given: of 32 ports, or the smallest larger one with room.
    pub fn fat_tree(places: u32) -> Result<Wires, ParameterError> {
        let has_room = |ports: &u32| u64::from(*ports).pow(3) / 4 >= u64::from(places);
        let ports = (32u32..).step_by(2).find(has_room).unwrap_or(32);
        let topology = Shape::fat_tree(ports)?.with_rate(BITS_A_SECOND)?.topology();
        let latencies = vec![Wires::LATENCY; topology.links().len()];
        Ok(Wires { topology, latencies })
    }

    /// Hosts between which it takes no time to speak of, because they are one.
    pub fn loopback(places: u32) -> Result<Wires, ParameterError> {
        let topology = Shape::two_tiers(1, places)?.with_rate(u64::MAX)?.topology();
        let latencies = vec![Duration::ZERO; topology.links().len()];
        Ok(Wires { topology, latencies })
    }

    fn takes(&self, link: LinkId) -> Duration {
        let bytes = Duration::from_secs_f64(BYTES / self.topology.capacity(link).bytes());
        self.latencies.get(link.0 as usize).copied().unwrap_or(Wires::LATENCY) + bytes
    }
}

/// Times between the first hosts of a network.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// By host: its switches, and what the link to each takes.
    hosts: Vec<Vec<(SwitchId, Duration)>>,
    /// By switch that has one of these: times to all switches.
    between: BTreeMap<SwitchId, Vec<Duration>>,
}

impl Network {
    /// Of so many hosts: no more than there are. `Err`: two hosts between which no way leads through
    /// switches.
    pub(super) fn new(wires: &Wires, hosts: u32) -> Result<Network, [Place; 2]> {
        let topology = &wires.topology;
        let uplinks = |place| -> Vec<(SwitchId, Duration)> {
            let links = topology.hops_from(End::Host(Place(place)));
            let to_switch = |hop: bearing_routing::Hop| match topology.target(hop) {
                End::Switch(switch) => Some((switch, wires.takes(hop.link()))),
                End::Host(_) => None,
            };
            links.filter_map(to_switch).collect()
        };
        let hosts: Vec<Vec<(SwitchId, Duration)>> = (0..hosts).map(uplinks).collect();
        let mut between = BTreeMap::new();
        for (switch, _) in hosts.iter().flatten() {
            between.entry(*switch).or_insert_with(|| quickest(wires, *switch));
        }
        let network = Network { hosts, between };
        match network.cut_off() {
            Some(ends) => Err(ends),
            None => Ok(network),
        }
    }

    /// Two hosts that have no switches in common, nor any that are joined. Hosts that are at the same
    /// switches are looked at once.
    fn cut_off(&self) -> Option<[Place; 2]> {
        let mut differing: BTreeMap<BTreeSet<SwitchId>, u32> = BTreeMap::new();
        for (host, uplinks) in (0..).zip(&self.hosts) {
            let first_joined = |(switch, _): &(SwitchId, Duration)| {
                let joined = self.between[switch].iter().position(|time| *time < Duration::MAX);
                SwitchId(joined.unwrap_or_default() as u32)
            };
            differing.entry(uplinks.iter().map(first_joined).collect()).or_insert(host);
        }
        let pairs = differing.iter().flat_map(|one| differing.iter().map(move |other| (one, other)));
        let mut apart = pairs.filter(|((one, _), (other, _))| one.is_disjoint(other));
        apart.next().map(|((_, one), (_, other))| [one, other].map(|host| Place(*host)))
    }

    /// From one host to another. To itself it takes no time.
    pub(super) fn way(&self, from: u32, to: u32) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        let [from, to] = [from, to].map(|host| &self.hosts[host as usize]);
        let ways = from.iter().flat_map(|(first, up)| {
            let times = &self.between[first];
            to.iter().map(move |(last, down)| times[last.0 as usize].saturating_add(*up + *down))
        });
        ways.min().unwrap_or(Duration::MAX)
    }
}

/// Times from a switch to all switches (Dijkstra).
fn quickest(wires: &Wires, from: SwitchId) -> Vec<Duration> {
    let topology = &wires.topology;
    let mut times = vec![Duration::MAX; topology.switches().len()];
    let mut queue = BinaryHeap::from([Reverse((Duration::ZERO, from.0))]);
    while let Some(Reverse((time, switch))) = queue.pop() {
        if time >= times[switch as usize] {
            continue;
        }
        times[switch as usize] = time;
        for hop in topology.hops_from(End::Switch(SwitchId(switch))) {
            if let End::Switch(next) = topology.target(hop) {
                queue.push(Reverse((time + wires.takes(hop.link()), next.0)));
            }
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_routing::{Description, Rate};

    #[test]
    fn ways_are_sums_of_their_links() {
        let wires = Wires::fat_tree(100).unwrap();
        let network = Network::new(&wires, 300).unwrap();
        // 300 bytes at 10 Gb/s.
        let link = Wires::LATENCY + Duration::from_nanos(240);
        // 16 hosts an edge switch, 256 a pod.
        assert_eq!(network.way(0, 15), 2 * link);
        assert_eq!(network.way(0, 16), 4 * link);
        assert_eq!(network.way(0, 256), 6 * link);
        assert_eq!(network.way(7, 7), Duration::ZERO);
    }

    #[test]
    fn a_slow_link_is_avoided_if_there_is_another_way() {
        let topology = Shape::leaf_spine(2, 2, 1).unwrap().topology();
        let mut latencies = vec![Duration::from_micros(10); topology.links().len()];
        let wires =
            |latencies: &Vec<Duration>| Wires { topology: topology.clone(), latencies: latencies.clone() };
        let way = |latencies: &Vec<Duration>| Network::new(&wires(latencies), 2).unwrap().way(0, 1);
        let before = way(&latencies);
        let is_of_first_spine =
            |link: &LinkId| topology.ends(*link).iter().any(|end| topology.end_name(*end) == "core-0");
        let links: Vec<LinkId> = topology.links().filter(is_of_first_spine).collect();
        for link in links {
            latencies[link.0 as usize] = Duration::from_millis(5);
        }
        assert_eq!(way(&latencies), before);
        latencies.fill(Duration::from_millis(1));
        assert_eq!(way(&latencies) - before, 4 * Duration::from_micros(990));
    }

    /// A host h with links to both switches, which are not joined or only slowly.
    fn with_two_links(hosts: [&str; 3], joined: Option<u64>) -> Wires {
        let name = |name: &str| name.to_owned();
        let rate = Rate::bits(10_000_000_000);
        let mut links = vec![("h0", "x", 1), ("h", "x", 1), ("h", "y", 2), ("h1", "y", 1)];
        links.extend(joined.map(|micros| ("x", "y", micros)));
        let described = Description {
            switches: vec![name("x"), name("y")],
            hosts: hosts.map(name).into(),
            links: links.iter().map(|(one, other, _)| (name(one), name(other), rate)).collect(),
        };
        let latencies = links.iter().map(|(.., micros)| Duration::from_micros(*micros)).collect();
        Wires { topology: Topology::new(&described).unwrap(), latencies }
    }

    #[test]
    fn a_host_with_two_links_takes_the_better_one_for_each_way() {
        let network = Network::new(&with_two_links(["h0", "h", "h1"], Some(50_000)), 3).unwrap();
        let micros = |from, to| network.way(from, to).as_micros();
        assert_eq!([micros(0, 1), micros(1, 2), micros(2, 1)], [2, 3, 3]);
        assert_eq!(micros(0, 2), 50_002);
    }

    #[test]
    fn hosts_pass_nothing_on() {
        for (hosts, apart) in [(["h0", "h", "h1"], [0, 2]), (["h", "h0", "h1"], [1, 2])] {
            let cut_off = Network::new(&with_two_links(hosts, None), 3).unwrap_err();
            assert_eq!(cut_off, apart.map(Place));
        }
    }
}
