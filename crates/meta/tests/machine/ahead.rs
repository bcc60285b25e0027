//! Names for lookups to come: what is leased with them, and what ends that.

use crate::cluster::{self, ALICE, BOB, Cluster, root_user};
use bearing_placement::Scheme;
use bearing_proto::client::{Body, Call, EntryView, Handle, LeaseKey, LeaseMs};
use bearing_proto::grant::Grant;
use bearing_types::{Code, Cookie, Credentials, Gid, Mode, Name, SessionId, Uid};
use std::collections::BTreeMap;
use std::time::Duration;

type Names = BTreeMap<Name, EntryView>;

fn ahead(
    cluster: &mut Cluster,
    grant: &Grant,
    who: Credentials,
    (after, count_max): (Cookie, u32),
) -> Result<(Names, Option<Cookie>), Code> {
    let at = grant.body.seat.position_of(after.hash());
    let call = Call::Prefetch { grant: grant.clone(), who, after, count_max };
    match cluster.call(grant.body.session, at, call)? {
        Body::Prefetched { entries, next } => Ok((entries.into_iter().collect(), next)),
        other => panic!("{other:?}"),
    }
}

fn all_ahead(cluster: &mut Cluster, grant: &Grant, count_max: u32) -> Names {
    let (mut names, mut after) = (Names::new(), Some(Cookie::START));
    while let Some(from) = after {
        let (page, next) = ahead(cluster, grant, root_user(), (from, count_max)).unwrap();
        assert!(page.len() <= count_max as usize && page.keys().all(|name| !names.contains_key(name)));
        names.extend(page);
        after = next;
    }
    names
}

/// Alice has made a directory with files `f0` to `f19` and a directory `d` in it; Bob's session is open.
fn with_files(scheme: Scheme) -> (Cluster, Handle) {
    let mut cluster = Cluster::new(2, scheme);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "here").unwrap();
    let grant = grant(&mut cluster, ALICE, directory);
    for number in 0..20 {
        cluster.create(ALICE, &grant, &format!("f{number}")).unwrap();
    }
    cluster.mkdir(ALICE, &grant, "d").unwrap();
    cluster.pass(Duration::from_secs(5));
    cluster.recalls.clear();
    (cluster, directory)
}

fn grant(cluster: &mut Cluster, session: SessionId, directory: Handle) -> Grant {
    cluster.directory(session, directory).unwrap().grant
}

fn recalled(cluster: &Cluster, key: LeaseKey) -> bool {
    cluster.recalls.iter().any(|(session, recall)| *session == BOB && recall.keys.contains(&key))
}

#[test]
fn every_name_comes_once_with_leases_and_no_right_to_open() {
    for (scheme, count_max) in
        [(Scheme::AnglecutHashed, 1), (Scheme::AnglecutHashed, 100), (Scheme::Hash, 1), (Scheme::Hash, 7)]
    {
        let (mut cluster, directory) = with_files(scheme);
        let grant = grant(&mut cluster, BOB, directory);
        let names = all_ahead(&mut cluster, &grant, count_max);
        assert_eq!(names.len(), 21);
        for (name, view) in &names {
            assert_eq!(view.node, cluster.lookup(BOB, &grant, &name.to_string()).unwrap());
            assert_eq!((view.lease, &view.directory), (LeaseMs(2000), &None));
            let attributes = view.attributes.as_ref().map(|node| (node.lease, node.may_open));
            let expected = (name.to_string() != "d").then_some((LeaseMs(2000), false));
            assert_eq!(attributes, expected, "a file is made where its name is");
        }
    }
}

#[test]
fn names_taken_ahead_are_recalled_together_before_one_is_taken_away_and_files_before_they_change() {
    let (mut cluster, directory) = with_files(Scheme::AnglecutHashed);
    let bobs = grant(&mut cluster, BOB, directory);
    let names = all_ahead(&mut cluster, &bobs, 100);
    let alices = grant(&mut cluster, ALICE, directory);
    cluster.create(ALICE, &alices, "new").unwrap();
    assert!(!recalled(&cluster, LeaseKey::Names(directory.node)), "no kernel is told that a name is free");
    cluster.unlink(ALICE, &alices, "f3").unwrap();
    assert!(recalled(&cluster, LeaseKey::Names(directory.node)));
    let node = names[&cluster::name("f3")].node.node;
    assert!(recalled(&cluster, LeaseKey::File(node)));
    // For a moment nothing is leased again, and so nothing is said.
    assert_eq!(ahead(&mut cluster, &bobs, root_user(), (Cookie::START, 100)), Ok((Names::new(), None)));
    cluster.pass(Duration::from_millis(1100));
    assert_eq!(all_ahead(&mut cluster, &bobs, 100).len(), 21);
    // Nobody asks who has them open.
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.open_state_queries.iter().all(|(session, _)| *session != BOB));
    cluster.recalls.clear();
    cluster.unlink(ALICE, &alices, "f4").unwrap();
    assert!(!recalled(&cluster, LeaseKey::Names(directory.node)), "that lease is over");
}

#[test]
fn only_who_may_list_and_search_a_directory_gets_its_names() {
    let (mut cluster, directory) = with_files(Scheme::AnglecutHashed);
    let other = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    for (mode, expected) in
        [(0o755, Ok(21)), (0o751, Err(Code::Access)), (0o754, Err(Code::Access)), (0o750, Err(Code::Access))]
    {
        let change =
            bearing_proto::client::AttributeChange { mode: Some(Mode::new(mode)), ..Default::default() };
        let call = Call::SetAttributes { node: directory, who: root_user(), change, token: None };
        cluster.call(ALICE, directory.home, call).unwrap();
        let grant = grant(&mut cluster, BOB, directory);
        let page = ahead(&mut cluster, &grant, other.clone(), (Cookie::START, 100));
        assert_eq!(page.map(|(names, _)| names.len()), expected, "{mode:o}");
    }
}

#[test]
fn a_delegated_directory_is_not_called_back_for_names_that_nobody_asked_for() {
    let (mut cluster, directory) = with_files(Scheme::AnglecutHashed);
    let bobs = grant(&mut cluster, BOB, directory);
    cluster
        .call(
            ALICE,
            directory.home,
            Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
        )
        .unwrap();
    cluster.recalls.clear();
    let page = ahead(&mut cluster, &bobs, root_user(), (Cookie::START, 100));
    assert_eq!(page, Err(Code::Unsupported));
    assert!(cluster.recalls.is_empty());
}

#[test]
fn whoever_is_lent_a_directory_has_its_names_and_files_recalled_that_were_taken_ahead() {
    let (mut cluster, directory) = with_files(Scheme::AnglecutHashed);
    let bobs = grant(&mut cluster, BOB, directory);
    let names = all_ahead(&mut cluster, &bobs, 100);
    cluster
        .call(
            ALICE,
            directory.home,
            Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
        )
        .unwrap();
    assert!(recalled(&cluster, LeaseKey::Names(directory.node)));
    let files = names.values().filter(|view| view.attributes.is_some()).map(|view| view.node.node);
    files.for_each(|node| assert!(recalled(&cluster, LeaseKey::File(node))));
}

#[test]
fn what_was_delegated_meanwhile_comes_with_leases_on_files_too() {
    let (mut cluster, directory) = with_files(Scheme::AnglecutHashed);
    let bobs = grant(&mut cluster, BOB, directory);
    all_ahead(&mut cluster, &bobs, 100);
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    let Ok(Body::Delegation(lent)) = cluster.call(ALICE, directory.home, call) else { panic!("lent") };
    cluster.pass(Duration::from_millis(300));
    let call = Call::Delegated {
        steps: Vec::new(),
        ids: vec![lent.ids],
        ids_wanted: 0,
        returned: vec![directory.node],
        open: Vec::new(),
        names_kept: true,
        incarnation: 1,
        over: false,
    };
    cluster.call(ALICE, directory.home, call).unwrap();
    cluster.pass(Duration::from_millis(100));
    let here = cluster.directory(BOB, directory).unwrap();
    assert!(here.access_lease > LeaseMs(0) && here.node.lease > LeaseMs(0), "{here:?}");
    let names = all_ahead(&mut cluster, &here.grant, 100);
    assert_eq!(names.len(), 21);
    for (name, view) in names.iter().filter(|(name, _)| name.to_string() != "d") {
        assert_eq!(view.attributes.as_ref().map(|node| node.lease), Some(LeaseMs(2000)), "{name}");
    }
}
