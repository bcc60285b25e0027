//! Times of nodes under clocks that run apart and backwards.

use crate::cluster::{ALICE, Cluster, root_user};
use bearing_meta::Event;
use bearing_placement::Scheme;
use bearing_proto::client::{AttributeChange, Body, Call, Handle, TimeChange};
use bearing_types::{Attributes, Mode, Position, ServerId, Wall};
use std::time::Duration;

const HOUR: i64 = 3_600_000_000_000;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster
}

fn attributes(cluster: &mut Cluster, node: Handle) -> Attributes {
    match cluster.call(ALICE, node.home, Call::Attributes { node }).unwrap() {
        Body::Node(view) => view.attributes,
        other => panic!("{other:?}"),
    }
}

fn change(cluster: &mut Cluster, node: Handle, change: AttributeChange) -> Attributes {
    let call = Call::SetAttributes { node, who: root_user(), change, token: None };
    match cluster.call(ALICE, node.home, call).unwrap() {
        Body::Node(view) => view.attributes,
        other => panic!("{other:?}"),
    }
}

fn chmod() -> AttributeChange {
    AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() }
}

fn touch() -> AttributeChange {
    AttributeChange { modified: Some(TimeChange::Now), ..AttributeChange::default() }
}

/// Everything that changes a file and its directory; the file's time of change after each.
fn change_in_all_ways(cluster: &mut Cluster, file: Handle, names: [&str; 2]) -> Vec<Wall> {
    let root = cluster.root(ALICE).grant;
    let mut times = vec![change(cluster, file, chmod()).changed];
    times.push(change(cluster, file, touch()).changed);
    cluster.link(ALICE, file, &root, names[1]).unwrap();
    times.push(attributes(cluster, file).changed);
    cluster.unlink(ALICE, &root, names[1]).unwrap();
    times.push(attributes(cluster, file).changed);
    cluster.rename(ALICE, (&root, names[0]), (&root, names[1])).unwrap();
    times.push(attributes(cluster, file).changed);
    cluster.rename(ALICE, (&root, names[1]), (&root, names[0])).unwrap();
    times
}

fn root_times(cluster: &mut Cluster) -> (Wall, Wall) {
    let attributes = cluster.root(ALICE).node.attributes;
    (attributes.modified, attributes.changed)
}

#[test]
fn change_times_never_run_backwards_when_the_owners_clock_does() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &root, "f").unwrap();
    let before = change(&mut cluster, file, chmod());
    let directory_before = root_times(&mut cluster);
    cluster.now.wall = Wall(cluster.now.wall.0 - HOUR);
    let times = change_in_all_ways(&mut cluster, file, ["f", "g"]);
    assert!(times.iter().all(|time| *time >= before.changed) && times.is_sorted(), "{times:?}");
    let after = attributes(&mut cluster, file);
    assert!(after.modified >= before.modified, "now is not before the last change");
    let directory = root_times(&mut cluster);
    assert!(directory.0 >= directory_before.0 && directory.1 >= directory_before.1);
    assert!(after.version > before.version, "the changes show all the same");
}

#[test]
fn change_times_never_run_backwards_when_a_tablet_moves_to_a_server_with_a_slower_clock() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &root, "f").unwrap();
    let (owner, ..) = cluster.owner(file.home);
    let slower = cluster.hosts.keys().copied().find(|id| *id != owner).unwrap();
    cluster.ahead = [(owner, 100_000_000), (slower, -100_000_000)].into();
    let before = change(&mut cluster, file, chmod());
    move_everything(&mut cluster, owner, slower);
    let times = change_in_all_ways(&mut cluster, file, ["f", "g"]);
    assert!(times.iter().all(|time| *time >= before.changed) && times.is_sorted(), "{times:?}");
    // As soon as the slower clock has come so far, it counts.
    cluster.pass(Duration::from_secs(10));
    assert!(change(&mut cluster, file, chmod()).changed > before.changed);
}

fn move_everything(cluster: &mut Cluster, from: ServerId, to: ServerId) {
    let blocks: Vec<_> = cluster.hosts[&from].machine.serving().map(|(block, _)| block).collect();
    for block in blocks {
        cluster.send(from, Event::Move(block, to));
        cluster.pass(Duration::from_secs(1));
    }
    assert_eq!(cluster.owner(Position(0)).0, to);
    assert_eq!(cluster.hosts[&from].machine.serving().count(), 0);
}

#[test]
fn a_rename_is_a_change_of_what_is_moved_wherever_that_lives() {
    for scheme in Scheme::LIVE {
        let mut cluster = Cluster::new(2, scheme);
        cluster.open_session(ALICE);
        let root = cluster.root(ALICE).grant;
        let [mut here, mut there] = ["here", "there"].map(|name| cluster.create(ALICE, &root, name).unwrap());
        for _ in 0..4 {
            let before = [here, there].map(|node| attributes(&mut cluster, node));
            cluster.pass(Duration::from_millis(50));
            cluster.exchange(ALICE, (&root, "here"), (&root, "there")).unwrap();
            cluster.rename(ALICE, (&root, "here"), (&root, "away")).unwrap();
            cluster.rename(ALICE, (&root, "away"), (&root, "here")).unwrap();
            let after = [here, there].map(|node| attributes(&mut cluster, node));
            for (before, after) in before.iter().zip(&after) {
                assert!(after.changed > before.changed && after.version > before.version);
                assert_eq!(after.modified, before.modified);
            }
            std::mem::swap(&mut here, &mut there);
        }
    }
}
