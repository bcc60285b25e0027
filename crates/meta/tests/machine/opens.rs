//! Open files outlive their last name: however long their clients are silent, whoever owns the tablet,
//! however many have them open.

use crate::cluster::{self, ALICE, BOB, Cluster, name, position, regular, root_user};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{Body, Call, Handle, NewNode, NodeView};
use bearing_proto::delegation::{Change, Step};
use bearing_types::{Code, FileType, Mode, Sequence, SessionId};
use std::time::Duration;

/// Alice has made files `a` and `b`; both sessions are open.
fn with_file() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let grant = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &grant, "a").unwrap();
    (cluster, file)
}

fn try_open(cluster: &mut Cluster, session: SessionId, node: Handle) -> Result<NodeView, Code> {
    let call =
        Call::Open { node, who: root_user(), read: true, write: false, truncate: false, execute: false };
    match cluster.call(session, node.home, call)? {
        Body::Opened(view, _) => Ok(view),
        other => panic!("{other:?}"),
    }
}

/// The session opens the file, and says so whenever it is asked.
fn open(cluster: &mut Cluster, session: SessionId, node: Handle) -> NodeView {
    let view = try_open(cluster, session, node).unwrap();
    cluster.open.insert((session, node.node));
    view
}

fn unlink(cluster: &mut Cluster, text: &str) {
    let grant = cluster.root(ALICE).grant;
    cluster.unlink(ALICE, &grant, text).unwrap();
}

/// How long something takes.
fn time(cluster: &mut Cluster, act: impl FnOnce(&mut Cluster)) -> Duration {
    let before = cluster.now.mono;
    act(cluster);
    cluster.now.mono.since(before)
}

fn renew(cluster: &mut Cluster, session: SessionId) {
    cluster.call(session, position_of_session(session), Call::RenewSession).unwrap();
}

#[test]
fn an_unlinked_file_lives_on_for_a_client_that_is_cut_off_for_longer_than_any_lease() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.obedient = false;
    let took = time(&mut cluster, |cluster| unlink(cluster, "a"));
    assert!(took <= Duration::from_millis(3100), "{took:?}");
    cluster.pass(Duration::from_secs(15));
    assert_eq!(cluster.links(BOB, file), Ok(0));
    // It is back, and says that it has the file open.
    cluster.obedient = true;
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.links(BOB, file), Ok(0));
    assert!(try_open(&mut cluster, BOB, file).is_ok());
    assert_eq!(try_open(&mut cluster, ALICE, file).map(|_| ()), Err(Code::Stale));
    cluster.open.clear();
    cluster.call(BOB, file.home, Call::Release { node: file }).unwrap();
    assert_eq!(cluster.links(BOB, file), Err(Code::Stale));
}

#[test]
fn a_lease_that_is_over_delays_no_change_and_its_file_is_kept_all_the_same() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.obedient = false;
    cluster.pass(Duration::from_secs(4));
    let took = time(&mut cluster, |cluster| unlink(cluster, "a"));
    assert!(took <= Duration::from_millis(20), "{took:?}");
    assert_eq!(cluster.links(BOB, file), Ok(0));
}

#[test]
fn a_replaced_file_is_kept_like_an_unlinked_one() {
    let (mut cluster, file) = with_file();
    let grant = cluster.root(ALICE).grant;
    cluster.create(ALICE, &grant, "b").unwrap();
    open(&mut cluster, BOB, file);
    cluster.obedient = false;
    cluster.pass(Duration::from_secs(4));
    cluster.rename(ALICE, (&grant, "b"), (&grant, "a")).unwrap();
    assert_eq!(cluster.links(BOB, file), Ok(0));
}

#[test]
fn a_file_that_turns_out_to_be_closed_is_let_go() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.open.clear();
    cluster.obedient = false;
    cluster.pass(Duration::from_secs(4));
    unlink(&mut cluster, "a");
    assert_eq!(cluster.links(BOB, file), Ok(0), "nobody knows yet");
    cluster.obedient = true;
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.links(BOB, file), Err(Code::Stale));
}

#[test]
fn a_closed_file_is_asked_about_before_it_is_unlinked_so_that_nothing_is_kept() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.open.clear();
    cluster.pass(Duration::from_secs(4));
    assert!(
        cluster
            .open_state_queries
            .iter()
            .any(|(session, open_state_query)| *session == BOB && open_state_query.nodes == [file.node])
    );
    let asked = cluster.recalls.len();
    unlink(&mut cluster, "a");
    assert_eq!(cluster.links(BOB, file), Err(Code::Stale));
    assert_eq!(cluster.recalls.len(), asked);
}

#[test]
fn a_new_owner_keeps_unlinked_files_for_sessions_that_it_has_not_heard_of() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.obedient = false;
    let owner = cluster.owner(file.home).0;
    cluster.restart(owner);
    let took = time(&mut cluster, |cluster| unlink(cluster, "a"));
    assert!(took <= Duration::from_millis(3100), "{took:?}");
    cluster.pass(Duration::from_secs(15));
    assert_eq!(cluster.links(BOB, file), Ok(0));
    cluster.restart(owner);
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.links(BOB, file), Ok(0));
    // It comes back, and has closed the file long ago.
    cluster.open.clear();
    cluster.obedient = true;
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.links(BOB, file), Err(Code::Stale));
}

#[test]
fn a_new_owner_learns_from_the_answers_who_has_what_open() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    let owner = cluster.owner(file.home).0;
    cluster.restart(owner);
    cluster.obedient = false;
    unlink(&mut cluster, "a");
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.links(BOB, file), Ok(0));
}

#[test]
fn no_lease_leaves_before_it_is_stable_that_its_session_is_to_be_asked() {
    let (mut cluster, file) = with_file();
    // The tablet knows the session, but has leased nothing to it.
    cluster.call(BOB, file.home, Call::Quota { node: file }).unwrap();
    cluster.hold_syncs = true;
    let asked = [0, 1].map(|_| cluster.send_call(BOB, file.home, Call::Attributes { node: file }));
    cluster.pass(Duration::from_millis(100));
    assert_eq!(asked.map(|sequence| cluster.answer(BOB, sequence)), [None, None]);
    cluster.release_syncs();
    assert!(asked.iter().all(|sequence| cluster.answer(BOB, *sequence).is_some()));
}

#[test]
fn a_session_that_is_never_heard_of_again_after_a_restart_keeps_nothing_for_ever() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    cluster.obedient = false;
    unlink(&mut cluster, "a");
    let owners: Vec<_> = cluster.hosts.keys().copied().collect();
    owners.into_iter().for_each(|owner| cluster.restart(owner));
    for _ in 0..14 {
        cluster.pass(Duration::from_secs(10));
        renew(&mut cluster, ALICE);
    }
    assert_eq!(cluster.links(ALICE, file), Err(Code::Stale));
}

#[test]
fn the_thousandth_client_opens_a_file_too_and_it_lives_on_for_all_of_them() {
    let (mut cluster, file) = with_file();
    let sessions: Vec<SessionId> = (0..1000).map(|number| SessionId(1000 + number)).collect();
    let mut may_open = 0;
    for session in &sessions {
        cluster.open_session(*session);
        let view = open(&mut cluster, *session, file);
        may_open += u32::from(view.may_open);
        assert_eq!(view.may_open, view.lease.0 >= 300, "{:?}", view.lease);
        assert!(view.may_open || view.lease.0 == 200, "{:?}", view.lease);
    }
    assert!(may_open >= 63, "{may_open}");
    let took = time(&mut cluster, |cluster| unlink(cluster, "a"));
    assert!(took <= Duration::from_millis(250), "{took:?}");
    // All close it but one.
    cluster.open = std::collections::BTreeSet::from([(sessions[999], file.node)]);
    for _ in 0..4 {
        sessions.iter().chain([&ALICE]).for_each(|session| renew(&mut cluster, *session));
        cluster.pass(Duration::from_secs(10));
    }
    assert_eq!(cluster.links(ALICE, file), Ok(0));
    cluster.open.clear();
    cluster.call(sessions[999], file.home, Call::Release { node: file }).unwrap();
    assert_eq!(cluster.links(ALICE, file), Err(Code::Stale));
}

#[test]
fn a_file_that_was_opened_while_its_clients_own_unlink_was_on_its_way_is_kept() {
    let (mut cluster, file) = with_file();
    let grant = cluster.root(ALICE).grant;
    let unlink = cluster.new_sequence();
    open(&mut cluster, ALICE, file);
    let (name, node) = (name("a"), file.node);
    let call = Call::Unlink { grant: grant.clone(), who: root_user(), name, node, keep_open: false };
    cluster.call_as(ALICE, unlink, position(&grant, "a"), call).unwrap();
    assert_eq!(cluster.links(ALICE, file), Ok(0));
}

#[test]
fn a_release_that_is_late_does_not_let_go_of_what_was_opened_after_it() {
    let (mut cluster, file) = with_file();
    open(&mut cluster, BOB, file);
    // Alice, who made it, has said that she has it open no more.
    cluster.pass(Duration::from_secs(4));
    // Bob closes the file, the network keeps that he says so, and he opens it again.
    let release = cluster.new_sequence();
    open(&mut cluster, BOB, file);
    unlink(&mut cluster, "a");
    cluster.call_as(BOB, release, file.home, Call::Release { node: file }).unwrap();
    assert_eq!(cluster.links(BOB, file), Ok(0));
    cluster.repeated_from = None;
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.links(BOB, file), Ok(0));
    cluster.open.clear();
    cluster.call(BOB, file.home, Call::Release { node: file }).unwrap();
    assert_eq!(cluster.links(BOB, file), Err(Code::Stale));
}

#[test]
fn a_file_whose_create_was_never_answered_is_not_freed_by_its_makers_silence_about_it() {
    let (mut cluster, _) = with_file();
    let grant = cluster.root(ALICE).grant;
    // Bob's client has not got the reply: it does not know the file, and says so.
    let create = cluster.new_sequence();
    let new = regular(0o644);
    let bobs = cluster.root(BOB).grant;
    let call = Call::Create { grant: bobs, who: root_user(), name: name("c"), new };
    let Ok(Body::Entry(made, _)) = cluster.call_as(BOB, create, position(&grant, "c"), call.clone()) else {
        panic!("it is made")
    };
    unlink(&mut cluster, "c");
    assert!(cluster.recalls.iter().any(|(session, _)| *session == BOB));
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.links(BOB, made.node), Ok(0));
    // So it is after a restart: the reply may still be on its way.
    let owner = cluster.owner(made.node.home).0;
    cluster.restart(owner);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.links(BOB, made.node), Ok(0));
}

#[test]
fn an_opener_that_removes_one_of_two_names_is_still_known_when_the_other_goes() {
    let (mut cluster, file) = with_file();
    let grant = cluster.root(ALICE).grant;
    cluster.link(ALICE, file, &grant, "b").unwrap();
    open(&mut cluster, BOB, file);
    let bobs = cluster.root(BOB).grant;
    let (name, node) = (name("b"), file.node);
    let call = Call::Unlink { grant: bobs, who: root_user(), name, node, keep_open: true };
    cluster.call(BOB, position(&grant, "b"), call).unwrap();
    // Its change has ended its own lease.
    cluster.obedient = false;
    unlink(&mut cluster, "a");
    assert_eq!(cluster.links(BOB, file), Ok(0));
}

#[test]
fn what_can_not_be_open_is_kept_for_nobody() {
    let (mut cluster, _) = with_file();
    let grant = cluster.root(ALICE).grant;
    let new = NewNode {
        file_type: FileType::Symlink,
        mode: Mode::new(0o777),
        device: 0,
        target: b"elsewhere".to_vec(),
    };
    let call = Call::Create { grant: grant.clone(), who: root_user(), name: name("s"), new };
    let Ok(Body::Entry(made, _)) = cluster.call(ALICE, position(&grant, "s"), call) else { panic!("made") };
    cluster.links(BOB, made.node).unwrap();
    cluster.obedient = false;
    let owner = cluster.owner(made.node.home).0;
    cluster.restart(owner);
    cluster.pass(Duration::from_secs(4));
    unlink(&mut cluster, "s");
    assert_eq!(cluster.links(ALICE, made.node), Err(Code::Stale));
}

/// Alice makes a file in a directory lent to her, closes it, and opens it again without telling anybody. Bob
/// removes it when she has given the directory back and, or not, said that it is open. How many names it has
/// then.
fn links_of_file_removed_after_return(is_told: bool) -> Result<u32, Code> {
    let (mut cluster, _) = with_file();
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    let Ok(Body::Delegation(lent)) = cluster.call(ALICE, directory.home, call) else { panic!("it is lent") };
    let (node, who) = (lent.ids.first, root_user());
    let change = Change::Create { directory, who, name: name("f"), new: regular(0o644), node };
    let step = Step { sequence: Sequence(1_000_000), at: cluster.now.wall, change };
    let made = cluster.call(
        ALICE,
        directory.home,
        cluster::delegations::delegated(vec![step], lent.ids, Vec::new()),
    );
    let Ok(Body::Steps(_)) = made else { panic!("{made:?}") };
    // She is asked, and says that it is closed.
    cluster.pass(Duration::from_secs(1));
    cluster.open.insert((ALICE, node));
    let mut returning = cluster::delegations::delegated(Vec::new(), lent.ids, vec![directory.node]);
    if let (Call::Delegated { open, .. }, true) = (&mut returning, is_told) {
        *open = vec![node, bearing_types::NodeId(node.0 + 1)];
    }
    cluster.call(ALICE, directory.home, returning).unwrap();
    let grant = cluster.directory(BOB, directory).unwrap().grant;
    let found = cluster.lookup(BOB, &grant, "f").unwrap();
    cluster.unlink(BOB, &grant, "f").unwrap();
    cluster.links(ALICE, found)
}

#[test]
fn a_file_that_was_opened_in_a_lent_directory_lives_on_when_that_is_given_back_and_it_is_removed() {
    assert_eq!(links_of_file_removed_after_return(true), Ok(0));
    assert_eq!(links_of_file_removed_after_return(false), Err(Code::Stale), "nobody knew");
}

#[test]
fn more_open_files_than_fit_into_a_batch_are_refused() {
    let (mut cluster, file) = with_file();
    let ids = bearing_proto::delegation::LentIds::sign(file.node, 1, ALICE, cluster::keys().grants());
    let mut call = cluster::delegations::delegated(Vec::new(), ids, Vec::new());
    if let Call::Delegated { open, .. } = &mut call {
        *open = vec![file.node; bearing_proto::delegation::OPEN_TOLD_MAX + 1];
    }
    assert!(matches!(cluster.call(ALICE, file.home, call), Err(Code::InvalidArgument)));
}
