//! Tablets that lie on several servers.

#[allow(dead_code)]
mod cluster;

use bearing_proto::client::Call;
use bearing_types::{Epoch, Position, ServerId};
use cluster::{ALICE, Cluster};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who serves the tablets, and under which epochs.
fn owners(cluster: &Cluster) -> BTreeMap<Position, (ServerId, Epoch)> {
    let serving = |(id, host): (&ServerId, &cluster::Host)| {
        let tablets = host.machine.serving().map(|(block, epoch)| (block.start(), (*id, epoch)));
        tablets.collect::<Vec<_>>()
    };
    cluster.hosts.iter().flat_map(serving).collect()
}

fn cluster(copies: u8) -> Cluster {
    let mut cluster = Cluster::with_copies(5, copies);
    cluster.open_session(ALICE);
    cluster
}

#[test]
fn successors_serve_what_a_killed_server_owned_and_what_it_answered_is_there() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    for number in 0..100 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    let before = owners(&cluster);
    let (dead, ..) = cluster.owner(root.body.seat.home);
    cluster.kill(dead);
    cluster.pass(Duration::from_millis(600));
    let after = owners(&cluster);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "all tablets are served");
    for (start, (owner, epoch)) in &after {
        let (owner_before, epoch_before) = before[start];
        assert_eq!(owner_before == dead, *owner != owner_before, "others keep theirs");
        assert!(owner_before != dead || *epoch > epoch_before);
    }
    let heirs: std::collections::BTreeSet<ServerId> =
        after.iter().filter(|(start, _)| before[start].0 == dead).map(|(_, (owner, _))| *owner).collect();
    assert_eq!(heirs.len(), 2, "a death spreads over both successors");
    cluster.pass(Duration::from_secs(4));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 1000).len(), 100);
    cluster.create(ALICE, &root, "another").unwrap();
}

#[test]
fn with_two_copies_a_lone_survivor_goes_on_and_with_three_it_only_answers() {
    for copies in [2, 3] {
        let mut cluster = cluster(copies);
        let root = cluster.root(ALICE).grant;
        cluster.create(ALICE, &root, "f").unwrap();
        let home = root.body.seat.home;
        for _ in 1..copies {
            let (owner, ..) = cluster.owner(home);
            cluster.kill(owner);
            cluster.pass(Duration::from_secs(6));
        }
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 1);
        let (name, at) = (cluster::name("g"), cluster::position(&root, "g"));
        let call =
            Call::Create { grant: root, who: cluster::root_user(), name, new: cluster::regular(0o644) };
        assert_eq!(cluster.is_done_in_time(ALICE, at, call), copies == 2, "{copies} copies");
    }
}

#[test]
fn a_member_that_dies_is_swapped_out_and_one_that_is_back_in_time_is_not() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let (owner, ..) = cluster.owner(home);
    let member = ServerId(owner.0 % 5 + 1);
    let before = cluster.register_of(home);
    assert_eq!(before.members[..2], [owner, member]);
    let log = cluster.kill(member);
    cluster.pass(Duration::from_millis(100));
    cluster.revive(member, log);
    cluster.pass(Duration::from_millis(300));
    assert_eq!(cluster.register_of(home), before);
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.kill(member);
    cluster.pass(Duration::from_secs(3));
    let after = cluster.register_of(home);
    assert_eq!((after.owner, after.members.len()), (owner, 2));
    assert!(!after.members.contains(&member) && after.epoch > before.epoch);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "g").unwrap();
}
