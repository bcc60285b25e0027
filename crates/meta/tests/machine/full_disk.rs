//! A metadata server whose disk has little space: what grows is refused, what is there is read, and nothing
//! that was decided is lost.

use crate::cluster::{self, ALICE, BOB, Cluster, name, position, regular, root_user};
use bearing_meta::{DiskSpace, Event, Headroom};
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, AttributeChange, Body, Call, Handle, LeaseKey, XattrChange, XattrMode};
use bearing_proto::delegation::{Change, LentIds, Step};
use bearing_proto::grant::{Admission, Grant};
use bearing_types::{Code, NodeId, Sequence, XattrName};
use std::time::Duration;

const TOTAL: u64 = 1 << 40;
const RESERVE: u64 = 256 << 20;

fn set_free(cluster: &mut Cluster, free: u64) {
    for server in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        cluster.send(server, Event::Space(DiskSpace { free, total: TOTAL }));
    }
}

fn set_stuck(cluster: &mut Cluster, stuck: bool) {
    for server in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        cluster.send(server, Event::LogStuck(stuck));
    }
}

/// A file and a directory in the root, and sessions that have been there.
fn with_file() -> (Cluster, Grant, Handle) {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let grant = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    cluster.mkdir(ALICE, &grant, "d").unwrap();
    (cluster, grant, file)
}

fn cut(cluster: &mut Cluster, file: Handle) -> Result<Body, Code> {
    let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
    let call = Call::SetAttributes { node: file, who: root_user(), change, token: None };
    cluster.call(ALICE, file.home, call)
}

fn set_xattr(cluster: &mut Cluster, node: Handle) -> Result<Body, Code> {
    let change = XattrChange::Set { value: vec![1], mode: XattrMode::Any };
    let name = XattrName::new(b"user.a").unwrap();
    cluster.call(ALICE, node.home, Call::SetXattr { node, who: root_user(), name, change })
}

/// What must go on as long as the server can write anything at all, and what needs nothing.
fn reads(cluster: &mut Cluster, grant: &Grant, file: Handle) {
    assert_eq!(cluster.lookup(ALICE, grant, "f"), Ok(file));
    assert_eq!(cluster.lookup(ALICE, grant, "nothing"), Err(Code::NotFound));
    assert_eq!(cluster.links(BOB, file), Ok(1));
    assert!(cluster.list(ALICE, grant, 100).contains(&"d".to_owned()));
    let extents = Call::Extents { node: file, by: Admission::User(root_user()), offset: 0, count_max: 10 };
    assert!(matches!(cluster.call(ALICE, file.home, extents), Ok(Body::Extents { .. })));
}

#[test]
fn what_grows_is_refused_while_space_is_low_and_what_is_there_is_read_and_removed() {
    let (mut cluster, grant, file) = with_file();
    set_free(&mut cluster, RESERVE - 1);
    assert_eq!(cluster.create(ALICE, &grant, "g"), Err(Code::NoSpace));
    assert_eq!(
        cluster.create(ALICE, &grant, "f"),
        Err(Code::Exists),
        "what is wrong with it anyway is said first"
    );
    assert_eq!(cluster.mkdir(ALICE, &grant, "e"), Err(Code::NoSpace));
    assert_eq!(cluster.link(ALICE, file, &grant, "l"), Err(Code::NoSpace));
    assert_eq!(set_xattr(&mut cluster, file).map(|_| ()), Err(Code::NoSpace));
    let chunk = cluster.call(ALICE, file.home, Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() });
    assert_eq!(chunk.map(|_| ()), Err(Code::NoSpace));
    reads(&mut cluster, &grant, file);
    cut(&mut cluster, file).unwrap();
    cluster.rename(ALICE, (&grant, "f"), (&grant, "h")).unwrap();
    cluster.unlink(ALICE, &grant, "h").unwrap();
    cluster.rmdir(ALICE, &grant, "d").unwrap();
    // Whoever comes now gets a session, and may read.
    let eve = bearing_types::SessionId(99);
    cluster.open_session(eve);
    assert_eq!(cluster.root(eve).grant.body.seat.node, NodeId::ROOT);

    set_free(&mut cluster, RESERVE + RESERVE / 16);
    cluster.create(ALICE, &grant, "g").unwrap();
    assert_eq!(cluster.list(ALICE, &grant, 100), ["g"]);
}

#[test]
fn a_change_that_was_refused_for_space_stays_refused() {
    let (mut cluster, grant, _) = with_file();
    set_free(&mut cluster, RESERVE - 1);
    let sequence = cluster.new_sequence();
    let new = regular(0o644);
    let call = Call::Create { grant: grant.clone(), who: root_user(), name: name("g"), new };
    let at = position(&grant, "g");
    assert_eq!(cluster.call_as(ALICE, sequence, at, call.clone()).map(|_| ()), Err(Code::NoSpace));
    set_free(&mut cluster, TOTAL);
    assert_eq!(cluster.call_as(ALICE, sequence, at, call).map(|_| ()), Err(Code::NoSpace));
    assert_eq!(cluster.lookup(ALICE, &grant, "g"), Err(Code::NotFound));
    cluster.create(ALICE, &grant, "g").unwrap();
}

#[test]
fn the_last_of_the_reserve_is_kept_for_serving() {
    let (mut cluster, grant, file) = with_file();
    set_free(&mut cluster, RESERVE / 8 - 1);
    assert_eq!(cluster.create(ALICE, &grant, "g"), Err(Code::NoSpace));
    assert_eq!(cluster.unlink(ALICE, &grant, "f"), Err(Code::NoSpace));
    assert_eq!(cluster.rmdir(ALICE, &grant, "d"), Err(Code::NoSpace));
    reads(&mut cluster, &grant, file);
    cluster.open_session(bearing_types::SessionId(98));
    set_free(&mut cluster, RESERVE / 8);
    cluster.unlink(ALICE, &grant, "f").unwrap();
}

#[test]
fn while_the_log_waits_for_space_nothing_is_lost_and_what_does_not_depend_on_it_is_read() {
    let (mut cluster, grant, file) = with_file();
    // What was decided before anybody knew.
    cluster.hold_syncs = true;
    let new = regular(0o644);
    let call = Call::Create { grant: grant.clone(), who: root_user(), name: name("early"), new };
    let early = cluster.send_call(ALICE, position(&grant, "early"), call);
    set_stuck(&mut cluster, true);
    assert!(cluster.hosts.values().all(|host| host.machine.headroom() == Headroom::None));
    assert_eq!(cluster.answer(ALICE, early), None, "it is not stable");
    assert_eq!(cluster.lookup(ALICE, &grant, "f"), Ok(file));
    assert_eq!(cluster.links(ALICE, file), Ok(1));
    // A session that has no lease in that tablet yet cannot get one, but it sees what is there.
    let view = cluster.answer_of(BOB, file.home, Call::Attributes { node: file });
    assert!(matches!(view, Some(Answer::Done { result: Ok(_), .. })), "{view:?}");
    for (text, refused) in [("g", Code::NoSpace), ("h", Code::NoSpace)] {
        assert_eq!(cluster.create(ALICE, &grant, text), Err(refused));
    }
    let records =
        |cluster: &Cluster| cluster.hosts.values().map(|host| host.machine.counters().records).sum::<u64>();
    let before = records(&cluster);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(records(&cluster), before, "what waits does not grow");

    set_stuck(&mut cluster, false);
    cluster.release_syncs();
    assert!(matches!(cluster.answer(ALICE, early), Some(Answer::Done { result: Ok(_), .. })));
    cluster.create(ALICE, &grant, "g").unwrap();
    assert!(cluster.lookup(ALICE, &grant, "early").is_ok());
}

fn steps(cluster: &Cluster, directory: Handle, text: &str, ids: LentIds, returned: Vec<NodeId>) -> Call {
    let new = regular(0o644);
    let change = Change::Create { directory, who: root_user(), name: name(text), new, node: ids.first };
    let steps = vec![Step { sequence: Sequence(1_000_000), at: cluster.now.wall, change }];
    cluster::delegations::delegated(steps, ids, returned)
}

#[test]
fn delegated_directories_are_called_back_and_what_was_decided_in_them_is_taken_from_the_reserve() {
    let (mut cluster, grant, _) = with_file();
    let directory = cluster.lookup(ALICE, &grant, "d").unwrap();
    let ask = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    let Body::Delegation(lent) = cluster.call(ALICE, directory.home, ask.clone()).unwrap() else {
        panic!("a delegation")
    };
    cluster.obedient = false;
    cluster.recalls.clear();
    set_free(&mut cluster, RESERVE / 8 - 1);
    cluster.pass(Duration::from_millis(100));
    let key = LeaseKey::Delegation(directory.node);
    assert!(cluster.recalls.iter().any(|(session, recall)| *session == ALICE && recall.keys.contains(&key)));
    // With hardly anything left they wait; they are not refused.
    let batch = steps(&cluster, directory, "local", lent.ids, vec![directory.node]);
    let answer = cluster.answer_of(ALICE, directory.home, batch.clone());
    assert!(matches!(answer, Some(Answer::Retry { .. })), "{answer:?}");
    set_free(&mut cluster, RESERVE - 1);
    cluster.call(ALICE, directory.home, batch).unwrap();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    assert!(cluster.lookup(ALICE, &grant, "local").is_ok());
    assert_eq!(cluster.call(ALICE, directory.home, ask).map(|_| ()), Err(Code::Unsupported));
}
