//! Files and their extents, without faults.

use crate::cluster::{ALICE, BOB, Cluster, filled_by, regular, root_user};
use bearing_placement::{Scheme, position_of_chunk};
use bearing_proto::client::{AttributeChange, Body, Call, ChunkRef, CommitMode, Extent, Handle, TimeChange};
use bearing_proto::grant::{Admission, OpenToken};
use bearing_types::{
    Block, ChunkId, Code, Credentials, Gid, Mode, Position, SessionId, SetIds, Squash, Uid, Wall,
};

/// The first chunk that is opened, in the first of sixteen tablets.
fn chunk() -> ChunkRef {
    let (chunk, tablet) = (ChunkId(2), Block::around(Position(0), 4));
    ChunkRef { chunk, position: position_of_chunk(chunk, tablet) }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster.pass(std::time::Duration::from_secs(2));
    assert_eq!(cluster.open_chunk(ALICE, Position(0)).chunk, chunk());
    cluster
}

fn create(cluster: &mut Cluster, text: &str) -> (Handle, OpenToken) {
    let grant = cluster.root(ALICE).grant;
    cluster.create_open(ALICE, &grant, text, regular(0o600)).unwrap()
}

fn extent(file_offset: u64, length: u32, frame: u64) -> Extent {
    Extent { file_offset, length, chunk: chunk(), frame, skip: 0 }
}

fn commit_call(
    node: Handle,
    token: OpenToken,
    extents: Vec<Extent>,
    size_min: u64,
    mode: CommitMode,
) -> Call {
    let opened = filled_by(token.session, &extents);
    let (modified, set_ids) = (Wall(0), SetIds::Keep);
    Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids }
}

fn commit(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    token: OpenToken,
    extents: Vec<Extent>,
) -> Result<Body, Code> {
    cluster.call(session, node.home, commit_call(node, token, extents, 0, CommitMode::Put))
}

fn page(cluster: &mut Cluster, node: Handle, offset: u64, count_max: u32) -> (Vec<Extent>, bool) {
    let by = Admission::User(root_user());
    match cluster.call(BOB, node.home, Call::Extents { node, by, offset, count_max }).unwrap() {
        Body::Extents { extents, complete, .. } => (extents, complete),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_of_extents_begins_where_it_was_asked_to() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let extents: Vec<Extent> = (0..50).map(|number| extent(number * 10, 10, number)).collect();
    commit(&mut cluster, ALICE, node, token, extents.clone()).unwrap();
    for count_max in [1, 3, 49, 50, 51] {
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let (found, complete) = page(&mut cluster, node, offset, count_max);
            assert!(found.len() <= count_max as usize);
            offset = found.last().map_or(offset, |last| last.file_offset + u64::from(last.length));
            seen.extend(found);
            if complete {
                break;
            }
        }
        assert_eq!(seen, extents, "in pages of {count_max}");
    }
    let (found, _) = page(&mut cluster, node, 487, 1);
    assert_eq!(found, extents[48..49]);
}

#[test]
fn later_extents_cover_earlier_ones_and_the_rest_stays() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    commit(&mut cluster, ALICE, node, token, vec![extent(0, 100, 1)]).unwrap();
    commit(&mut cluster, ALICE, node, token, vec![extent(40, 20, 2), extent(50, 5, 3)]).unwrap();
    let (found, complete) = page(&mut cluster, node, 0, 10);
    let shape: Vec<_> =
        found.iter().map(|extent| (extent.file_offset, extent.length, extent.frame, extent.skip)).collect();
    assert!(complete);
    assert_eq!(shape, [(0, 40, 1, 0), (40, 10, 2, 0), (50, 5, 3, 0), (55, 5, 2, 15), (60, 40, 1, 60)]);
}

fn make_hole(node: Handle, token: OpenToken, start: u64, end: u64, size_min: u64) -> Call {
    Call::MakeHole { node, token, start, end, size_min, set_ids: SetIds::Keep }
}

fn attributes(body: Body) -> bearing_types::Attributes {
    match body {
        Body::Node(view) => view.attributes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hole_takes_bytes_away_and_grows_a_file_only_when_told_so() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    commit(&mut cluster, ALICE, node, token, vec![extent(0, 100, 1), extent(100, 50, 2)]).unwrap();
    let body = cluster.call(ALICE, node.home, make_hole(node, token, 60, 110, 0)).unwrap();
    assert_eq!((attributes(body.clone()).size, attributes(body).space), (150, 100));
    let shape = |cluster: &mut Cluster| -> Vec<_> {
        let (found, complete) = page(cluster, node, 0, 10);
        assert!(complete);
        found.iter().map(|extent| (extent.file_offset, extent.length, extent.frame, extent.skip)).collect()
    };
    assert_eq!(shape(&mut cluster), [(0, 60, 1, 0), (110, 40, 2, 10)]);
    let body = cluster.call(ALICE, node.home, make_hole(node, token, 140, u64::MAX, 1 << 43)).unwrap();
    assert_eq!((attributes(body.clone()).size, attributes(body).space), (1 << 43, 90));
    assert_eq!(shape(&mut cluster), [(0, 60, 1, 0), (110, 30, 2, 10)]);
}

#[test]
fn a_hole_needs_the_right_to_write_and_a_range_that_makes_sense() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let mut ask = |session, call| cluster.call(session, node.home, call).map(|_| ());
    assert_eq!(ask(BOB, make_hole(node, token, 0, 1, 0)), Err(Code::Unauthenticated));
    assert_eq!(ask(ALICE, make_hole(node, token, 2, 1, 0)), Err(Code::InvalidArgument));
    assert_eq!(ask(ALICE, make_hole(node, token, 0, 0, 1 << 63)), Err(Code::TooLarge));
    assert_eq!(ask(ALICE, make_hole(node, token, 0, 0, 0)), Ok(()));
}

#[test]
fn a_write_token_is_good_for_its_session_and_node_only() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let (other, _) = create(&mut cluster, "g");
    let extents = vec![extent(0, 10, 1)];
    assert_eq!(commit(&mut cluster, BOB, node, token, extents.clone()), Err(Code::Unauthenticated));
    assert_eq!(commit(&mut cluster, ALICE, other, token, extents.clone()), Err(Code::Unauthenticated));
    assert!(commit(&mut cluster, ALICE, node, token, extents).is_ok());
    let absurd = vec![extent(u64::MAX - 3, 10, 1)];
    assert_eq!(commit(&mut cluster, ALICE, node, token, absurd), Err(Code::InvalidArgument));
}

/// Appends extents of so many bytes, and gives where they went.
fn append(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    token: OpenToken,
    length: u32,
    frame: u64,
) -> u64 {
    let call = commit_call(node, token, vec![extent(0, length, frame)], length.into(), CommitMode::Append);
    appended_at(cluster.call(session, node.home, call), length)
}

fn appended_at(answer: Result<Body, Code>, length: u32) -> u64 {
    match answer {
        Ok(Body::Node(view)) => view.attributes.size - u64::from(length),
        other => panic!("{other:?}"),
    }
}

fn open(cluster: &mut Cluster, session: SessionId, node: Handle) -> OpenToken {
    let call =
        Call::Open { node, who: root_user(), read: false, write: true, truncate: false, execute: false };
    match cluster.call(session, node.home, call).unwrap() {
        Body::Opened(_, Some(token)) => token,
        other => panic!("{other:?}"),
    }
}

fn chmod(cluster: &mut Cluster, node: Handle, mode: u32) {
    let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
    let call = Call::SetAttributes { node, who: root_user(), change, token: None };
    assert_eq!(attributes(cluster.call(ALICE, node.home, call).unwrap()).mode, Mode::new(mode));
}

#[test]
fn whoever_changes_what_a_file_has_takes_its_set_id_bits_away_but_root() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let nobody = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };
    let size = AttributeChange { size: Some(1), ..AttributeChange::default() };
    // The last says that it is root, which its enrolment is not believed.
    let squashed = Squash::Root { uid: Uid(9), gid: Gid(9) };
    let cases =
        [(nobody, Squash::None, 0o777), (root_user(), Squash::None, 0o6777), (root_user(), squashed, 0o777)];
    for (who, squash, after) in cases {
        let set_ids = SetIds::by(&who);
        let (extents, modified) = (vec![extent(0, 10, 1)], Wall(0));
        let (put, append) = (CommitMode::Put, CommitMode::Append);
        let commit = |mode| {
            let (extents, opened) = (extents.clone(), filled_by(token.session, &extents));
            Call::Commit { node, token, extents, size_min: 0, modified, mode, opened, set_ids }
        };
        let (read, write, execute) = (false, true, false);
        let calls = [
            commit(put),
            commit(append),
            Call::MakeHole { node, token, start: 0, end: 0, size_min: 40, set_ids },
            Call::SetAttributes { node, who: who.clone(), change: size, token: None },
            Call::Open { node, who, read, write, truncate: true, execute },
        ];
        for call in calls {
            cluster.squash = Squash::None;
            chmod(&mut cluster, node, 0o6777);
            cluster.squash = squash;
            let mode = match cluster.call(ALICE, node.home, call.clone()).unwrap() {
                Body::Node(view) | Body::Opened(view, _) => view.attributes.mode,
                other => panic!("{other:?}"),
            };
            assert_eq!(mode, Mode::new(after), "{call:?}");
        }
    }
}

#[test]
fn a_read_is_noted_once_after_each_change_and_changes_nothing_else() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let shown =
        |cluster: &mut Cluster| attributes(cluster.call(BOB, node.home, Call::Attributes { node }).unwrap());
    let read = |cluster: &mut Cluster| {
        cluster.pass(std::time::Duration::from_secs(1));
        let at = Wall(shown(cluster).changed.0 + 1_000_000);
        assert_eq!(cluster.call(BOB, node.home, Call::Accessed { node, at }), Ok(Body::Done));
        at
    };
    let before = shown(&mut cluster);
    let first = read(&mut cluster);
    assert_eq!(shown(&mut cluster), bearing_types::Attributes { accessed: first, ..before });
    let later = Wall(first.0 + 1_000_000);
    cluster.call(BOB, node.home, Call::Accessed { node, at: later }).unwrap();
    assert_eq!(shown(&mut cluster).accessed, first, "one read is enough");
    commit(&mut cluster, ALICE, node, token, vec![extent(0, 10, 1)]).unwrap();
    let second = read(&mut cluster);
    assert_eq!(shown(&mut cluster).accessed, second);
    let never = Wall(i64::MAX);
    cluster.call(BOB, node.home, Call::Accessed { node, at: never }).unwrap();
    assert!(shown(&mut cluster).accessed < never, "nobody reads in the future");
}

#[test]
fn a_read_that_is_heard_of_late_does_not_undo_a_time_of_access_that_was_set() {
    let mut cluster = cluster();
    let (node, _) = create(&mut cluster, "f");
    cluster.pass(std::time::Duration::from_secs(10));
    let read = cluster.now.wall;
    cluster.pass(std::time::Duration::from_secs(1));
    let set = Wall(77);
    let change = AttributeChange { accessed: Some(TimeChange::To(set)), ..AttributeChange::default() };
    let call = Call::SetAttributes { node, who: root_user(), change, token: None };
    cluster.call(ALICE, node.home, call).unwrap();
    let note = |cluster: &mut Cluster, at| cluster.call(BOB, node.home, Call::Accessed { node, at });
    assert_eq!(note(&mut cluster, read), Ok(Body::Done));
    let shown =
        |cluster: &mut Cluster| attributes(cluster.call(BOB, node.home, Call::Attributes { node }).unwrap());
    assert_eq!(shown(&mut cluster).accessed, set, "as ALICE said, after it was read");
    let again = Wall(cluster.now.wall.0 + 1);
    cluster.pass(std::time::Duration::from_secs(1));
    note(&mut cluster, again).unwrap();
    assert_eq!(shown(&mut cluster).accessed, again);
}

#[test]
fn a_program_is_executed_by_its_x_bit_and_read_by_its_r_bit() {
    let mut cluster = cluster();
    let (node, _) = create(&mut cluster, "f");
    let who = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };
    let open = |cluster: &mut Cluster, execute| {
        let (who, read, write, truncate) = (who.clone(), true, false, false);
        let call = Call::Open { node, who, read, write, truncate, execute };
        cluster.call(ALICE, node.home, call).map(|_| ())
    };
    for (mode, reads, executes) in
        [(0o711, false, true), (0o744, true, false), (0o755, true, true), (0o700, false, false)]
    {
        chmod(&mut cluster, node, mode);
        let outcome = |allowed| if allowed { Ok(()) } else { Err(Code::Access) };
        assert_eq!(open(&mut cluster, false), outcome(reads), "{mode:o}");
        assert_eq!(open(&mut cluster, true), outcome(executes), "{mode:o}");
    }
}

#[test]
fn appends_of_several_clients_lie_one_behind_the_other_and_say_where() {
    let mut cluster = cluster();
    let (node, alices) = create(&mut cluster, "f");
    let bobs = open(&mut cluster, BOB, node);
    commit(&mut cluster, ALICE, node, alices, vec![extent(0, 10, 1)]).unwrap();
    assert_eq!(append(&mut cluster, ALICE, node, alices, 7, 2), 10);
    assert_eq!(append(&mut cluster, BOB, node, bobs, 5, 3), 17);
    assert_eq!(append(&mut cluster, ALICE, node, alices, 1, 4), 22);
    let two = vec![extent(0, 3, 5), extent(3, 4, 6)];
    let both = cluster.call(BOB, node.home, commit_call(node, bobs, two, 7, CommitMode::Append));
    assert_eq!(appended_at(both, 7), 23);
    let (found, complete) = page(&mut cluster, node, 0, 10);
    let shape: Vec<_> =
        found.iter().map(|extent| (extent.file_offset, extent.length, extent.frame)).collect();
    assert!(complete);
    assert_eq!(shape, [(0, 10, 1), (10, 7, 2), (17, 5, 3), (22, 1, 4), (23, 3, 5), (26, 4, 6)]);
}

#[test]
fn a_repeated_append_is_done_once_also_after_a_restart_and_says_the_same_place() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let sequence = cluster.new_sequence();
    let call = commit_call(node, token, vec![extent(0, 7, 1)], 7, CommitMode::Append);
    let first = cluster.call_as(ALICE, sequence, node.home, call.clone());
    assert_eq!(append(&mut cluster, ALICE, node, token, 5, 2), 7);
    assert_eq!(appended_at(cluster.call_as(ALICE, sequence, node.home, call.clone()), 7), 0);
    let owner = cluster.owner(node.home).0;
    cluster.restart(owner);
    assert_eq!(cluster.call_as(ALICE, sequence, node.home, call), first);
    assert_eq!(append(&mut cluster, ALICE, node, token, 1, 3), 12);
}

#[test]
fn an_append_that_would_make_a_file_too_long_changes_nothing() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let long = commit_call(node, token, Vec::new(), i64::MAX as u64 - 5, CommitMode::Put);
    cluster.call(ALICE, node.home, long).unwrap();
    let call = commit_call(node, token, vec![extent(0, 6, 1)], 6, CommitMode::Append);
    assert_eq!(cluster.call(ALICE, node.home, call), Err(Code::TooLarge));
    assert_eq!(append(&mut cluster, ALICE, node, token, 5, 1), i64::MAX as u64 - 5);
}

#[test]
fn chown_takes_set_id_bits_away_also_from_root_but_not_where_the_group_may_not_execute() {
    let mut cluster = cluster();
    let (node, _) = create(&mut cluster, "f");
    let mut set = |change: AttributeChange| {
        let call = Call::SetAttributes { node, who: root_user(), change, token: None };
        match cluster.call(ALICE, node.home, call).unwrap() {
            Body::Node(view) => view.attributes.mode,
            other => panic!("{other:?}"),
        }
    };
    for (before, after) in [(0o6755, 0o755), (0o2755, 0o755), (0o2644, 0o2644), (0o6644, 0o2644)] {
        let mode = Some(Mode::new(before));
        assert_eq!(set(AttributeChange { mode, ..Default::default() }), Mode::new(before));
        let uid = Some(Uid(before));
        assert_eq!(set(AttributeChange { uid, ..Default::default() }), Mode::new(after), "{before:o}");
    }
}

/// Many extents of 4 bytes each, one after the other, with a hole of 4 bytes before each.
fn scatter(cluster: &mut Cluster, node: Handle, token: OpenToken, count: u64) {
    let extents: Vec<Extent> = (0..count).map(|at| extent(at * 8 + 4, 4, at * 64)).collect();
    for part in extents.chunks(1024) {
        commit(cluster, ALICE, node, token, part.to_vec()).unwrap();
    }
}

#[test]
fn a_file_of_very_many_extents_is_written_at_both_ends_at_once_and_cut_to_nothing() {
    let count = 70_000;
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "database");
    scatter(&mut cluster, node, token, count);
    // From the first to the last it has more than 65,536.
    let last = (count - 1) * 8;
    let ends = vec![extent(0, 6, 1_000_000), extent(last, 6, 2_000_000)];
    commit(&mut cluster, ALICE, node, token, ends).unwrap();
    let (first, _) = page(&mut cluster, node, 0, 3);
    let skipped = |offset, length, frame, skip| Extent { skip, ..extent(offset, length, frame) };
    assert_eq!(first, [extent(0, 6, 1_000_000), skipped(6, 2, 0, 2), extent(12, 4, 64)]);
    let (behind, complete) = page(&mut cluster, node, last - 4, 10);
    let expected = [
        extent(last - 4, 4, (count - 2) * 64),
        extent(last, 6, 2_000_000),
        skipped(last + 6, 2, (count - 1) * 64, 2),
    ];
    assert_eq!((behind.as_slice(), complete), (&expected[..], true));
    // The same of what the store says, not only of what is held.
    cluster.pass(std::time::Duration::from_secs(1));
    assert_eq!(page(&mut cluster, node, last - 4, 10).0, expected);

    let shorter = |size| {
        let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
        Call::SetAttributes { node, who: root_user(), change, token: Some(token) }
    };
    let hole = |start, end| {
        let (size_min, set_ids) = (0, SetIds::Keep);
        Call::MakeHole { node, token, start, end, size_min, set_ids }
    };
    // Not all at once: nobody would be answered meanwhile.
    for much in [shorter(5), hole(5, last)] {
        assert_eq!(cluster.call(ALICE, node.home, much).unwrap_err(), Code::TooLarge);
    }
    let third = last / 3;
    let cut = attributes(cluster.call(ALICE, node.home, shorter(2 * third)).unwrap());
    assert_eq!(cut.size, 2 * third);
    let cut = attributes(cluster.call(ALICE, node.home, hole(5, third)).unwrap());
    assert_eq!(cut.size, 2 * third);
    let cut = attributes(cluster.call(ALICE, node.home, shorter(5)).unwrap());
    assert_eq!((cut.size, cut.space), (5, 5));
    assert_eq!(page(&mut cluster, node, 0, 10), (vec![extent(0, 5, 1_000_000)], true));
}
