use super::*;
use crate::topology::{Description, Shape, Topology};
use std::collections::BTreeSet;
use std::sync::Arc;

const NOW: Mono = Mono::ZERO;

struct Network {
    paths: Paths,
    estimates: Estimates,
    loads: HostLoads,
}

fn network(topology: Topology) -> Network {
    let (estimates, loads) = (Estimates::new(&topology), HostLoads::new(&topology));
    Network { paths: Paths::new(Arc::new(topology)), estimates, loads }
}

impl Network {
    fn choose(
        &mut self,
        selection: &str,
        reader: u32,
        replicas: &[u32],
        bytes: u64,
        draw: u64,
    ) -> Option<Choice> {
        let read =
            Read { reader: Place(reader), replicas: replicas.iter().copied().map(Place).collect(), bytes };
        let selection: Selection = selection.parse().unwrap();
        selection.choose(NOW, &read, &mut self.paths, &mut self.estimates, &self.loads, draw)
    }

    fn replicas(&mut self, selection: &str, reader: u32, replicas: &[u32]) -> BTreeSet<usize> {
        let draws = (0..40).filter_map(|draw| {
            let choice = self.choose(selection, reader, replicas, 1 << 20, draw)?;
            choice.parts.iter().for_each(|part| assert!(self.estimates.end(NOW, part.flow)));
            Some(choice.parts[0].replica)
        });
        draws.collect()
    }
}

fn mayflower() -> Network {
    network(Shape::mayflower(8.0).unwrap().topology())
}

#[test]
fn static_selections_choose_by_distance() {
    let mut network = mayflower();
    // Same host, same rack, same pod, elsewhere.
    let all = [0, 1, 5, 40];
    for selection in ["nearest-ecmp", "nearest-mf", "hdfs-ecmp", "hdfs-mf"] {
        assert_eq!(network.replicas(selection, 0, &all), BTreeSet::from([0]), "{selection}");
        assert_eq!(network.replicas(selection, 2, &all), BTreeSet::from([0, 1]), "{selection}");
    }
    // Nearest is one of the same pod; HDFS knows racks only.
    assert_eq!(network.replicas("nearest-ecmp", 9, &all), BTreeSet::from([0, 1, 2]));
    assert_eq!(network.replicas("hdfs-mf", 9, &all), BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn hashes_reach_all_paths_and_costs_the_free_one() {
    let mut network = mayflower();
    let mut seen = BTreeSet::new();
    for draw in 0..100u64 {
        let choice = network.choose("nearest-ecmp", 0, &[63], 1 << 20, draw << 32).unwrap();
        network.estimates.end(NOW, choice.parts[0].flow);
        seen.insert(choice.parts[0].path.clone());
    }
    assert_eq!(seen.len(), 8);
    // Eight readers of one pod from eight hosts of another: no link to a core carries more than its share.
    for number in 0..8 {
        network.choose("mayflower-b", number, &[48 + number], 1 << 30, 0).unwrap();
    }
    let topology = network.paths.topology().clone();
    for link in topology.links() {
        let hops = topology.hops_from(topology.ends(link)[0]).filter(|hop| hop.link() == link);
        let load: Rate =
            hops.flat_map(|hop| [hop, hop.reverse()]).map(|hop| network.estimates.load(hop)).sum();
        assert!(load.bytes() <= topology.capacity(link).bytes() * (1.0 + 1e-6));
    }
    let rates: Vec<f64> = network.estimates.flows().map(|(_, rate, _)| rate.bytes() * 8.0 / 1e6).collect();
    assert!(rates.iter().all(|rate| (rate - 250.0).abs() < 1e-6), "{rates:?}");
}

#[test]
fn sinbad_chooses_the_replica_whose_way_up_is_free() {
    let mut network = mayflower();
    network.loads.expect(&mut network.paths, Place(4), Place(8), Rate::bits(900_000_000));
    assert_eq!(network.replicas("sinbad-r-mf", 0, &[4, 8]), BTreeSet::from([1]));
    assert_eq!(network.replicas("sinbad-r-ecmp", 0, &[8, 12]), BTreeSet::from([0, 1]));
}

#[test]
fn two_replicas_are_read_where_that_is_faster_and_end_together() {
    let mut network = mayflower();
    // Both by way of cores at 500 Mb/s each; the reader has 1 Gb/s.
    let both = network.choose("mayflower-p", 0, &[20, 40], 100_000_001, 0).unwrap();
    assert_eq!(both.parts.len(), 2);
    assert_eq!(both.parts.iter().map(|part| part.bytes).collect::<Vec<_>>(), [50_000_000, 50_000_001]);
    assert!((both.seconds - 0.8).abs() < 1e-6, "{both:?}");
    // One of the same rack fills the reader's link: a second one would only take from it.
    let mut network = mayflower();
    let one = network.choose("mayflower-p", 0, &[1, 40], 100_000_000, 0).unwrap();
    assert_eq!((one.parts.len(), one.parts[0].replica), (1, 0));
    // Where the reader's link is not what limits, three are faster than two.
    let fast = Shape::mayflower(32.0).unwrap();
    let mut network = super::tests::network(fast.topology());
    let parts =
        |network: &mut Network, name| network.choose(name, 0, &[20, 40, 60], 1 << 27, 0).unwrap().parts.len();
    assert_eq!(parts(&mut network, "mayflower-p"), 2);
    let mut network = super::tests::network(fast.topology());
    assert_eq!(parts(&mut network, "mayflower-n"), 3);
}

#[test]
fn a_replica_of_ones_own_is_read_at_once_and_by_no_link() {
    let mut network = mayflower();
    let choice = network.choose("mayflower-p", 0, &[40, 0], 1 << 27, 0).unwrap();
    assert_eq!((choice.parts.len(), choice.parts[0].replica), (1, 1));
    assert_eq!(choice.parts[0].path, Path::default());
}

#[test]
fn nothing_reachable_is_no_choice_and_a_slow_disk_is_avoided() {
    let mut network = mayflower();
    assert_eq!(network.choose("mayflower-p", 0, &[], 1, 0), None);
    network.paths.fail(BTreeSet::new(), network.paths.topology().switches().collect());
    for selection in SELECTIONS {
        assert_eq!(network.choose(selection.name(), 0, &[1, 40], 1, 0), None, "{}", selection.name());
    }
    assert_eq!(network.estimates.count(), 0);
    network.paths.fail(BTreeSet::new(), BTreeSet::new());
    network.estimates.set_disk(Place(1), Some(Rate::bits(100_000_000)));
    let choice = network.choose("mayflower-b", 0, &[1, 40], 1 << 27, 0).unwrap();
    assert_eq!(choice.parts[0].replica, 1);
}

/// As in the paper: `b` first, then what others get beside one who wants `b`; the second path is taken.
#[test]
fn of_two_paths_the_one_that_hurts_others_less_is_taken() {
    let link = |one: &str, other: &str, bits| (one.to_owned(), other.to_owned(), Rate::bits(bits));
    let described = Description {
        switches: ["left", "upper", "lower", "right"].map(str::to_owned).to_vec(),
        hosts: ["source", "reader", "third"].map(str::to_owned).to_vec(),
        links: vec![
            link("source", "left", 1000),
            link("third", "left", 1000),
            link("left", "upper", 80),
            link("left", "lower", 80),
            link("upper", "right", 80),
            link("lower", "right", 80),
            link("right", "reader", 1000),
        ],
    };
    let mut network = network(Topology::new(&described).unwrap());
    let routes = network.paths.between(Place(2), Place(1));
    for (route, bytes) in routes.iter().zip([1000, 10]) {
        let carriers = network.estimates.carriers(Place(2), route);
        network.estimates.attempt(NOW, carriers, Some(bytes), Rate::bits(80));
    }
    let choice = network.choose("mayflower-b", 1, &[0], 10, 0).unwrap();
    let second = network.paths.between(Place(0), Place(1)).iter().nth(1).unwrap().path();
    assert_eq!(choice.parts[0].path, second);
    assert!((choice.impact - 1.0).abs() < 1e-6 && (choice.seconds - 2.0).abs() < 1e-6, "{choice:?}");
}

#[test]
fn names_are_those_of_the_list() {
    assert_eq!("mayflower-p".parse::<Selection>(), Ok(SELECTIONS[0]));
    assert_eq!(
        "random".parse::<Selection>().unwrap_err().to_string(),
        "there is no selection \"random\"; give one of mayflower-p, mayflower-b, mayflower-n, mayflower-x, \
         nearest-ecmp, nearest-mf, sinbad-r-ecmp, sinbad-r-mf, hdfs-ecmp, hdfs-mf"
    );
}
