//! What every partition promises, whatever its scheme: the suite that the author of a new one starts from.
//!
//! Invariants: uses only the trait; panics with a readable claim and the seed when a promise is broken; one
//! seed gives one run.

use crate::draws::Draws;
use crate::load::Load;
use crate::partition::{Partition, PartitionError};
use bearing_types::{Position, ServerId};
use std::collections::BTreeSet;

/// Rounds of rebalancing within which a steady load must leave a partition at rest.
pub const ROUNDS_MAX: usize = 500;

/// The last so many of them change nothing.
const QUIET_ROUNDS: usize = 100;

/// A load with hot spots.
fn hot_spots(draws: &mut Draws) -> Load {
    let spots: Vec<u64> = (0..8).map(|_| draws.draw()).collect();
    Load::new((0..200).map(|index| {
        let near = spots[index % spots.len()].wrapping_add(draws.draw() >> 12);
        (Position(near), 1.0 + draws.below(50) as f64)
    }))
}

/// Runs the whole suite on partitions that `make` makes of given servers.
pub fn partition(seed: u64, make: impl Fn(&[ServerId]) -> Box<dyn Partition>) {
    a_sequence_keeps_every_position_owned_by_a_member(seed, &make);
    what_is_refused_changes_nothing(seed, &make);
    a_steady_load_leaves_it_at_rest(seed, &make);
}

/// That each position has one owner is held by [`crate::Arcs`] itself; that it is one of the members is the
/// partition's to keep.
fn check(partition: &dyn Partition, expected: &BTreeSet<ServerId>, seed: u64, what: &str) {
    let arcs = partition.arcs();
    assert_eq!(&partition.members(), expected, "seed {seed}: members after {what}");
    let strangers: Vec<_> = arcs.servers().difference(expected).copied().collect();
    assert!(strangers.is_empty(), "seed {seed}: {strangers:?} own something after {what} and are no members");
}

fn a_sequence_keeps_every_position_owned_by_a_member(
    seed: u64,
    make: &impl Fn(&[ServerId]) -> Box<dyn Partition>,
) {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut draws = Draws(seed);
        let mut members: BTreeSet<ServerId> = (1..=1 + draws.below(6) as u32).map(ServerId).collect();
        let mut fresh = 100;
        let mut partition = make(&members.iter().copied().collect::<Vec<_>>());
        check(partition.as_ref(), &members, seed, "its making");
        let mut history = Vec::new();
        for _ in 0..60 {
            let anyone = members.iter().nth(draws.below(members.len() as u64) as usize).copied();
            let server = anyone.expect("there is always a member");
            let before = partition.arcs().clone();
            let (what, done) = match draws.below(4) {
                0 => {
                    fresh += 1;
                    ("a join", partition.join(ServerId(fresh)).map(|()| members.insert(ServerId(fresh))))
                }
                1 => ("a departure", partition.leave(server).map(|()| members.remove(&server))),
                2 => ("a failure", partition.fail(server).map(|()| members.remove(&server))),
                _ => ("a rebalance", Ok(partition.rebalance(&hot_spots(&mut draws)))),
            };
            if let Err(error) = &done {
                assert_eq!(partition.arcs(), &before, "seed {seed}: {what} was refused and changed the arcs");
                let expected = matches!(
                    error,
                    PartitionError::Last(_) | PartitionError::NoPlace(..) | PartitionError::NoIdle(_)
                );
                assert!(expected, "seed {seed}: {what} was refused: {error}");
            }
            check(partition.as_ref(), &members, seed, what);
            history.push(partition.arcs().clone());
        }
        runs.push(history);
    }
    assert_eq!(runs[0], runs[1], "seed {seed}: the same calls gave other arcs the second time");
}

fn what_is_refused_changes_nothing(seed: u64, make: &impl Fn(&[ServerId]) -> Box<dyn Partition>) {
    let mut partition = make(&[ServerId(1), ServerId(2)]);
    let before = partition.arcs().clone();
    let stranger = ServerId(99);
    let known = partition.join(ServerId(1));
    assert_eq!(known, Err(PartitionError::Known(ServerId(1))), "seed {seed}: a member joins again");
    assert_eq!(
        partition.leave(stranger),
        Err(PartitionError::Unknown(stranger)),
        "seed {seed}: a stranger leaves"
    );
    assert_eq!(
        partition.fail(stranger),
        Err(PartitionError::Unknown(stranger)),
        "seed {seed}: a stranger fails"
    );
    assert_eq!(partition.arcs(), &before, "seed {seed}: a refused call changed the arcs");
    let mut alone = make(&[ServerId(1)]);
    assert_eq!(
        alone.fail(ServerId(1)),
        Err(PartitionError::Last(ServerId(1))),
        "seed {seed}: the last one fails"
    );
    assert_eq!(
        alone.leave(ServerId(1)),
        Err(PartitionError::Last(ServerId(1))),
        "seed {seed}: the last one leaves"
    );
    assert_eq!(alone.arcs().owner(Position(seed)), ServerId(1), "seed {seed}: nobody is left");
}

fn a_steady_load_leaves_it_at_rest(seed: u64, make: &impl Fn(&[ServerId]) -> Box<dyn Partition>) {
    let mut draws = Draws(seed);
    let servers: Vec<ServerId> = (1..=2 + draws.below(8) as u32).map(ServerId).collect();
    let mut partition = make(&servers);
    let load = hot_spots(&mut draws);
    // One round without a change may only mean that the next boundary has not met a sample yet.
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        let before = partition.arcs().clone();
        let changed = partition.rebalance(&load);
        assert_eq!(
            changed,
            partition.arcs() != &before,
            "seed {seed}: a rebalance says {changed}, which is not so"
        );
        quiet = if changed { 0 } else { quiet + 1 };
    }
    assert!(quiet >= QUIET_ROUNDS, "seed {seed}: still moving after {ROUNDS_MAX} rounds of a steady load");
    assert!(!partition.rebalance(&Load::default()), "seed {seed}: no load at all moved something");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Parameters;
    use crate::partition::{Even, build};
    use crate::scheme::Scheme;

    const SEEDS: u64 = 40;

    #[test]
    fn the_partition_of_every_scheme_conforms() {
        let published = Parameters::default();
        let many = Parameters { virtual_nodes: 8, tolerance: 0.1, ..Parameters::default() };
        let calm = Parameters { hysteresis: 0.2, migration_budget: 0.1, ..Parameters::default() };
        let kinds: BTreeSet<_> = Scheme::ALL.iter().map(|scheme| scheme.parts().partition).collect();
        for (kind, parameters) in kinds.iter().flat_map(|kind| [&published, &many, &calm].map(|p| (*kind, p)))
        {
            for seed in 0..SEEDS {
                partition(seed, |servers| build(kind, servers, parameters).expect("within bounds"));
            }
        }
    }

    #[test]
    fn no_partition_is_made_of_no_servers_or_of_one_twice_or_with_a_wrong_parameter() {
        for scheme in Scheme::ALL {
            let kind = scheme.parts().partition;
            let make = |servers: &[u32], parameters: &Parameters| {
                let servers: Vec<ServerId> = servers.iter().copied().map(ServerId).collect();
                build(kind, &servers, parameters).map(|_| ()).unwrap_err()
            };
            let published = Parameters::default();
            assert_eq!(make(&[], &published), PartitionError::NoServers, "{scheme}");
            assert_eq!(make(&[1, 2, 1], &published), PartitionError::Known(ServerId(1)), "{scheme}");
            let wrong = make(&[1], &Parameters { alpha_max: -0.1, ..Parameters::default() });
            assert_eq!(wrong.to_string(), "alpha_max may not be -0.1; give 0 to 1", "{scheme}");
        }
    }

    /// It cannot decide between two divisions.
    #[derive(Debug)]
    struct Broken(Even, Even);

    impl Partition for Broken {
        fn arcs(&self) -> &crate::Arcs {
            self.0.arcs()
        }
        fn members(&self) -> BTreeSet<ServerId> {
            self.0.members()
        }
        fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
            self.0.join(server)
        }
        fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
            self.0.leave(server)
        }
        fn rebalance(&mut self, _: &Load) -> bool {
            std::mem::swap(&mut self.0, &mut self.1);
            true
        }
    }

    #[test]
    #[should_panic(expected = "still moving")]
    fn one_that_never_rests_is_found() {
        a_steady_load_leaves_it_at_rest(1, &|servers| {
            Box::new(Broken(Even::new(servers).unwrap(), Even::new(&servers[1..]).unwrap()))
        });
    }
}
