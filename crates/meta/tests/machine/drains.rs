//! Metadata servers that leave, and stay after all.

use crate::cluster::{ALICE, Cluster};
use bearing_meta::Event;
use bearing_proto::tablets::{OwnerPhase, TabletRole, TabletView};
use bearing_types::ServerId;
use std::time::Duration;

/// Longer than a hand-over may take, and than a move that is stuck is given up after.
const LONG: Duration = Duration::from_secs(8);

#[test]
fn who_leaves_is_emptied_while_all_is_served_and_gets_its_share_when_it_stays() {
    let mut cluster = Cluster::evened(5, 3);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    for number in 0..40 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    let leaving = cluster.owner(root.body.seat.home).0;
    let before = cluster.has(leaving);
    cluster.drain(leaving, true);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.has(leaving), (0, 0));
    let left: Vec<ServerId> = (1..=5).map(ServerId).filter(|server| *server != leaving).collect();
    for server in left {
        assert_eq!(cluster.has(server), (4, 12), "{server}");
    }
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "g").unwrap();
    assert!(cluster.lookup(ALICE, &root, "f7").is_ok());
    cluster.drain(leaving, false);
    cluster.pass(LONG);
    assert_eq!(cluster.has(leaving), before);
}

/// What its owner wanted of a tablet before it changed hands its new owner does not want of itself.
#[test]
fn who_hears_late_of_its_own_tablet_does_not_leave_it_to_itself() {
    let mut cluster = Cluster::evened(5, 3);
    cluster.open_session(ALICE);
    // Listings come long after the swaps that they are of.
    cluster.coordinator_takes = Duration::from_millis(60);
    cluster.drain(ServerId(2), true);
    cluster.pass(LONG);
    assert_eq!(cluster.has(ServerId(2)), (0, 0));
    let now = cluster.now.mono;
    let told = cluster.hosts.values().flat_map(|host| host.machine.tablets(now).tablets);
    let leaving = |tablet: &TabletView| match &tablet.role {
        TabletRole::Owner(owner) => owner.phase != OwnerPhase::Serving,
        TabletRole::Copy { .. } => false,
    };
    let stuck: Vec<TabletView> = told.filter(leaving).collect();
    assert!(stuck.is_empty(), "{stuck:?}");
}

/// A move takes as long as the coordinator does, and nobody serves the tablet meanwhile.
#[test]
fn counts_are_not_evened_out_while_the_coordinator_is_slow() {
    let mut cluster = Cluster::evened(5, 3);
    let back = ServerId(2);
    let before = cluster.has(back);
    cluster.coordinator_takes = Duration::from_millis(600);
    let log = cluster.kill(back);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.has(back).0, 0, "others have taken over");
    cluster.revive(back, log);
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.has(back).0, 0);
    cluster.coordinator_takes = Duration::ZERO;
    cluster.pass(LONG);
    assert_eq!(cluster.has(back), before);
}

#[test]
fn a_server_whose_clock_is_off_owns_nothing_until_it_is_right_while_others_can_serve() {
    let mut cluster = Cluster::evened(5, 3);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let owner = cluster.owner(root.body.seat.home).0;
    let (before, others) = (cluster.has(owner), (1..=5).map(ServerId).filter(|server| *server != owner));
    cluster.send(owner, Event::ClockOff(true));
    cluster.pass(LONG);
    assert_eq!(cluster.has(owner).0, 0);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.send(owner, Event::ClockOff(false));
    cluster.pass(LONG);
    assert_eq!(cluster.has(owner), before);
    // Where no clock is right nobody serves any better.
    (1..=5).map(ServerId).for_each(|server| cluster.send(server, Event::ClockOff(true)));
    let all: Vec<_> = others.map(|server| cluster.has(server)).collect();
    cluster.pass(LONG);
    let left = (1..=5).map(ServerId).filter(|server| *server != owner);
    assert_eq!(left.map(|server| cluster.has(server)).collect::<Vec<_>>(), all);
}
