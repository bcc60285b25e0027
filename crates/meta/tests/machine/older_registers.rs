//! The coordinator's registers are put back from an older copy.

use crate::cluster::{ALICE, Cluster};
use bearing_meta::Note;
use bearing_seams::MemCoordinator;
use bearing_types::ServerId;
use std::time::Duration;

const FIRST: ServerId = ServerId(1);

/// A cluster, and its registers from before a server was started again.
fn cluster() -> (Cluster, MemCoordinator) {
    let mut cluster = Cluster::with_copies(5, 3);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "a").unwrap();
    let older = cluster.registers();
    cluster.restart(FIRST);
    cluster.pass(Duration::from_secs(2));
    cluster.may_complain = true;
    cluster.complaints.clear();
    (cluster, older)
}

#[test]
fn servers_go_on_with_the_newer_ones_and_take_nothing_over_until_those_are_back() {
    let (mut cluster, older) = cluster();
    let before = cluster.owners();
    let newest = cluster.put_back(older);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.owners(), before);
    assert!(cluster.older_registers >= 5, "each server says so, once");
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "b").unwrap();

    let dead = ServerId(3);
    let log = cluster.kill(dead);
    cluster.pass(Duration::from_secs(3));
    let served = cluster.owners();
    let kept = before.iter().filter(|(_, (owner, _))| *owner != dead);
    assert!(kept.clone().all(|(start, served_by)| served.get(start) == Some(served_by)));
    assert_eq!(served.len(), kept.count());

    cluster.put_back(newest);
    cluster.pass(Duration::from_secs(3));
    let after = cluster.owners();
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "all are served");
    assert!(after.values().all(|(owner, _)| *owner != dead));
    cluster.revive(dead, log);
    cluster.pass(Duration::from_secs(3));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 10).len(), 2);
    assert_eq!(cluster.complaints, []);
}

#[test]
fn a_server_that_starts_refuses_them_and_says_by_what_it_knows() {
    let (mut cluster, older) = cluster();
    let newest = cluster.put_back(older);
    let log = cluster.kill(FIRST);
    cluster.revive(FIRST, log);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.hosts[&FIRST].machine.serving().count(), 0);
    let said = cluster.complaints.iter().find_map(|note| match note {
        Note::Unreadable(what) => Some(what.clone()),
        _ => None,
    });
    let said = said.expect("it is refused");
    assert!(said.contains("registers are older than what this server has of tablet"), "{said}");
    assert!(said.contains("registers.redb"), "{said}");

    cluster.put_back(newest);
    let log = cluster.kill(FIRST);
    cluster.revive(FIRST, log);
    cluster.pass(Duration::from_secs(2));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 10).len(), 1);
}
