//! What several clients use by turns: neither delegated nor leased for a while, and the rest as before.

use crate::cluster::delegations::{delegate, delegated, finds, give_back, look, waits};
use crate::cluster::{ALICE, BOB, Cluster, root_user};
use bearing_placement::Scheme;
use bearing_proto::client::{Call, Handle, LeaseMs};
use bearing_types::Code;
use std::time::Duration;

/// Both sessions are open, and there is a directory.
fn with_directory() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let grant = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &grant, "d").unwrap();
    (cluster, directory)
}

/// Alice has the directory delegated, and gives it back when Bob looks into it.
fn take_turns(cluster: &mut Cluster, directory: Handle) {
    cluster.obedient = true;
    let ids = delegate(cluster, ALICE, directory).ids;
    cluster.recalls.clear();
    cluster.obedient = false;
    assert!(waits(look(cluster, directory, "f")));
    cluster.call(ALICE, directory.home, delegated(vec![], ids, vec![directory.node])).unwrap();
    give_back(cluster);
    assert_eq!(finds(look(cluster, directory, "f")), Ok(false));
    cluster.pass(Duration::from_millis(50));
}

#[test]
fn a_directory_of_two_is_delegated_to_nobody_and_its_permissions_are_leased_to_both() {
    let (mut cluster, directory) = with_directory();
    cluster.directory(BOB, directory).unwrap();
    for _ in 0..2 {
        take_turns(&mut cluster, directory);
    }
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    let refused = cluster.call(ALICE, directory.home, call);
    assert_eq!(refused, Err(Code::Unsupported), "it would be called back at once");
    for session in [ALICE, BOB] {
        let lease = cluster.directory(session, directory).unwrap().access_lease;
        assert!(lease > LeaseMs(0), "{session:?} has to ask for each name");
    }
    // It is forgotten again.
    cluster.pass(Duration::from_secs(5));
    take_turns(&mut cluster, directory);
}

#[test]
fn a_directory_in_which_two_make_names_is_not_delegated() {
    let (mut cluster, directory) = with_directory();
    let grants = [ALICE, BOB].map(|session| cluster.directory(session, directory).unwrap().grant);
    for number in 0..4 {
        for (session, grant) in [ALICE, BOB].into_iter().zip(&grants) {
            cluster.create(session, grant, &format!("{session:?}-{number}")).unwrap();
        }
    }
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    assert_eq!(cluster.call(ALICE, directory.home, call.clone()), Err(Code::Unsupported));
    cluster.pass(Duration::from_secs(20));
    assert!(cluster.call(ALICE, directory.home, call).is_ok(), "that was long ago");
}
