//! What becomes of chunks: sealed in time, scanned, removed when nobody refers to them, made whole when a
//! replica is damaged.

use crate::cluster::chunks::*;
use crate::cluster::disks::{Disks, LENGTH};
use crate::cluster::{ALICE, BOB, Cluster, DATA, filled_by, root_user};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, AttributeChange, Body, Call, ChunkView, CommitMode, Extent, Handle};
use bearing_proto::data::{DataBody, DataCall, DataError, FrameAt};
use bearing_proto::grant::{Admission, OpenToken};
use bearing_types::{ChunkId, Code, Position, ServerId, SetIds, Wall};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_chunk_that_nobody_ever_referred_to_goes_from_its_servers_and_then_from_the_records() {
    let (mut cluster, disks) = cluster();
    let (file, _) = create(&mut cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    pass_a_life(&mut cluster);
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    assert!(disks.borrow().held.is_empty());
    let removed =
        disks.borrow().calls.iter().filter(|(_, call)| matches!(call, DataCall::Remove { .. })).count();
    assert_eq!(removed, DATA.len());
}

#[test]
fn what_a_file_refers_to_stays_until_the_file_lets_go_of_it() {
    let (mut cluster, disks) = cluster();
    let (file, chunk) = file_in_a_chunk(&mut cluster, &disks);
    pass_a_life(&mut cluster);
    assert_eq!(show(&mut cluster, &chunk).unwrap().sealed, Some(LENGTH));
    // Whoever was late has to append elsewhere.
    let late = create(&mut cluster, "late");
    assert_eq!(commit(&mut cluster, late, &chunk), Err(Code::NotFound));
    assert_eq!(commit(&mut cluster, file, &chunk), Err(Code::NotFound));
    truncate(&mut cluster, file);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    assert!(disks.borrow().held.is_empty());
    assert_eq!(commit(&mut cluster, file, &chunk), Err(Code::NotFound), "it is gone for good");
}

#[test]
fn a_writer_that_has_not_said_that_it_is_done_may_commit_late() {
    let (mut cluster, disks) = cluster_of(&DATA, Config::standard());
    let (file, _) = create(&mut cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    pass_a_life(&mut cluster);
    assert_eq!(show(&mut cluster, &chunk).unwrap().sealed, Some(LENGTH));
    let late = create(&mut cluster, "late");
    commit(&mut cluster, late, &chunk)
        .expect("its home was away, and its writer could not say anything else");
    finish(&mut cluster, &chunk, 4_000).unwrap();
    cluster.pass_with(&[ALICE], Duration::from_secs(70));
    let later = create(&mut cluster, "later");
    assert_eq!(commit(&mut cluster, later, &chunk), Err(Code::NotFound));
}

#[test]
fn a_finished_chunk_goes_as_soon_as_its_file_lets_go_of_it() {
    let (mut cluster, disks) = cluster();
    let (file, chunk) = file_in_a_chunk(&mut cluster, &disks);
    assert_eq!(finish(&mut cluster, &chunk, 4_000), Ok(Body::Done));
    cluster.pass(Duration::from_secs(10));
    assert_eq!(show(&mut cluster, &chunk).unwrap().sealed, None, "in use, nobody has to know where it ends");
    truncate(&mut cluster, file);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    assert!(disks.borrow().held.is_empty());
    assert_eq!(finish(&mut cluster, &chunk, 4_000), Err(Code::Stale));
    assert_eq!(commit(&mut cluster, file, &chunk), Err(Code::NotFound));
}

#[test]
fn a_finished_chunk_that_is_in_use_is_looked_at_after_a_while_and_stays() {
    let (mut cluster, disks) = cluster();
    let (_, chunk) = file_in_a_chunk(&mut cluster, &disks);
    finish(&mut cluster, &chunk, 4_000).unwrap();
    let looks = |disks: &Rc<RefCell<Disks>>| {
        disks.borrow().calls.iter().filter(|(_, call)| matches!(call, DataCall::Frames { .. })).count()
    };
    cluster.pass(Duration::from_secs(25));
    cluster.call(ALICE, bearing_placement::position_of_session(ALICE), Call::RenewSession).unwrap();
    cluster.pass(Duration::from_secs(25));
    assert_eq!(looks(&disks), 0);
    // Said again, it is not done any later.
    cluster.call(ALICE, bearing_placement::position_of_session(ALICE), Call::RenewSession).unwrap();
    finish(&mut cluster, &chunk, 0).unwrap();
    cluster.pass(Duration::from_secs(20));
    assert_eq!(looks(&disks), 1);
    cluster.call(ALICE, bearing_placement::position_of_session(ALICE), Call::RenewSession).unwrap();
    assert_eq!(show(&mut cluster, &chunk).unwrap().sealed, Some(LENGTH));
    assert_eq!(disks.borrow().held.len(), DATA.len());
}

/// Extents of ten bytes at these offsets, all of one frame.
fn pieces_of(chunk: &ChunkView, (node, token): &(Handle, OpenToken), offsets: &[u64]) -> Call {
    let piece = |at: &u64| Extent { file_offset: *at, length: 10, chunk: chunk.chunk, frame: 0, skip: 0 };
    let (extents, mode) = (offsets.iter().map(piece).collect::<Vec<_>>(), CommitMode::Put);
    let opened = filled_by(ALICE, &extents);
    let (node, token, size_min, modified, set_ids) = (*node, *token, 0, Wall(0), SetIds::Keep);
    Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids }
}

#[test]
fn a_look_comes_to_an_end_although_the_file_changes_all_the_time() {
    let (mut cluster, disks) = cluster();
    let file = create(&mut cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file.0)];
    let (chunk, other) = (cluster.open_chunk(ALICE, file.0.home), cluster.open_chunk(ALICE, file.0.home));
    commit(&mut cluster, file, &chunk).unwrap();
    truncate(&mut cluster, file);
    // More than are scanned in one question.
    let offsets: Vec<u64> = (0..20_000).map(|number| number * 100).collect();
    for some in offsets.chunks(500) {
        cluster.call(ALICE, file.0.home, pieces_of(&other, &file, some)).unwrap();
    }
    finish(&mut cluster, &chunk, 4_000).unwrap();
    cluster.stores_take = Duration::from_millis(100);
    for number in 0..1_000 {
        cluster.send_call(ALICE, file.0.home, pieces_of(&other, &file, &[number * 100 + 50]));
        cluster.pass(Duration::from_millis(5));
    }
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
}

#[test]
fn a_finished_chunk_in_which_nothing_was_committed_goes_at_once() {
    let (mut cluster, disks) = cluster();
    let (file, _) = create(&mut cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    finish(&mut cluster, &chunk, 0).unwrap();
    cluster.pass(Duration::from_secs(5));
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    assert!(disks.borrow().held.is_empty());
}

#[test]
fn no_server_removes_a_replica_before_it_is_stable_that_the_chunk_is_dead() {
    let (mut cluster, disks) = cluster();
    let (file, _) = file_in_a_chunk(&mut cluster, &disks);
    pass_a_life(&mut cluster);
    truncate(&mut cluster, file);
    disks.borrow_mut().calls.clear();
    cluster.hold_syncs = true;
    cluster.pass(Duration::from_secs(5));
    let looked = disks.borrow().calls.iter().any(|(_, call)| matches!(call, DataCall::Frames { .. }));
    let removed = |(_, call): &(ServerId, DataCall)| matches!(call, DataCall::Remove { .. });
    assert!(looked && !disks.borrow().calls.iter().any(removed), "{:?}", disks.borrow().calls);
    cluster.release_syncs();
    cluster.pass(Duration::from_secs(5));
    assert!(disks.borrow().held.is_empty());
}

#[test]
fn a_server_that_is_away_when_a_chunk_is_removed_is_told_when_it_is_back() {
    let (mut cluster, disks) = cluster();
    let (file, _) = create(&mut cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    pass_a_life(&mut cluster);
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    let other = cluster.open_chunk(ALICE, Position(0));
    let (away, shared) = (Rc::new(RefCell::new(false)), Rc::clone(&disks));
    let down = Rc::clone(&away);
    cluster.data = Box::new(move |server, request| {
        let silent = *down.borrow() && server == DATA[0];
        (!silent).then(|| shared.borrow_mut().answer(server, request.chunk, &request.call))
    });
    cluster.seal_chunk(ALICE, &other);
    *away.borrow_mut() = true;
    pass_a_life(&mut cluster);
    assert_eq!(disks.borrow().held, BTreeSet::from([(DATA[0], other.chunk.chunk)]));
    *away.borrow_mut() = false;
    cluster.pass(Duration::from_secs(10));
    assert!(disks.borrow().held.is_empty());
    for host in cluster.hosts.values() {
        assert_eq!(host.machine.chunk_tally().chunks, 0, "no record is left");
    }
}

#[test]
fn a_replica_that_missed_its_seal_is_sealed_when_it_is_back_also_while_another_is_lost() {
    let (mut cluster, disks) = cluster();
    let chunk = cluster.open_chunk(ALICE, Position(0));
    let away: Rc<RefCell<BTreeSet<ServerId>>> = Rc::default();
    let (down, shared) = (Rc::clone(&away), Rc::clone(&disks));
    cluster.data = Box::new(move |server, request| {
        let silent = down.borrow().contains(&server);
        (!silent).then(|| shared.borrow_mut().answer(server, request.chunk, &request.call))
    });
    // One is away when the chunk is sealed; when it is back, the other one is gone for good.
    away.borrow_mut().insert(DATA[0]);
    cluster.seal_chunk(ALICE, &chunk);
    disks.borrow_mut().held.insert((DATA[0], chunk.chunk.chunk));
    disks.borrow_mut().calls.clear();
    away.borrow_mut().insert(DATA[1]);
    cluster.pass(Duration::from_secs(10));
    away.borrow_mut().remove(&DATA[0]);
    cluster.pass(Duration::from_secs(60));
    let seals = |server: ServerId| {
        let seal =
            |(to, call): &&(ServerId, DataCall)| *to == server && matches!(call, DataCall::Seal { .. });
        disks.borrow().calls.iter().filter(seal).count()
    };
    assert_eq!(seals(DATA[0]), 1, "told once, and not all the time");
    away.borrow_mut().clear();
    cluster.pass(Duration::from_secs(10));
    assert!(seals(DATA[1]) > 0);
    let after = seals(DATA[1]);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(seals(DATA[1]), after, "both have confirmed it");
}

#[test]
fn a_replica_that_missed_its_seal_and_is_too_short_for_it_is_made_anew() {
    for restarts in [false, true] {
        let (mut cluster, disks) = cluster();
        let chunk = cluster.open_chunk(ALICE, Position(0));
        let away: Rc<RefCell<bool>> = Rc::new(RefCell::new(true));
        let (down, shared) = (Rc::clone(&away), Rc::clone(&disks));
        cluster.data = Box::new(move |server, request| {
            let silent = *down.borrow() && server == DATA[0];
            (!silent).then(|| shared.borrow_mut().answer(server, request.chunk, &request.call))
        });
        cluster.seal_chunk(ALICE, &chunk);
        let missed = (DATA[0], chunk.chunk.chunk);
        disks.borrow_mut().held.insert(missed);
        disks.borrow_mut().short.insert(missed);
        cluster.pass_with(&[ALICE], Duration::from_secs(10));
        if restarts {
            let owner = cluster.owner(chunk.chunk.position).0;
            cluster.restart(owner);
        }
        *away.borrow_mut() = false;
        cluster.pass_with(&[ALICE], Duration::from_secs(20));
        assert!(disks.borrow().held.contains(&missed) && disks.borrow().short.is_empty());
        assert!(
            disks
                .borrow()
                .calls
                .iter()
                .any(|(to, call)| *to == DATA[0] && matches!(call, DataCall::Copy { .. }))
        );
        assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
    }
}

#[test]
fn bytes_that_went_with_a_lost_disk_do_not_keep_the_rest_from_being_copied() {
    let (mut cluster, disks) = cluster();
    let (file, chunk) = file_in_a_chunk(&mut cluster, &disks);
    cluster.seal_chunk(ALICE, &chunk);
    // One has the first half only; the other had all of it, and has another disk now.
    let (short, shared) = ((chunk.servers[0], chunk.chunk.chunk), Rc::clone(&disks));
    disks.borrow_mut().short.insert(short);
    disks.borrow_mut().held.remove(&(chunk.servers[1], chunk.chunk.chunk));
    cluster.data = Box::new(move |server, request| {
        let mut disks = shared.borrow_mut();
        let of_chunk = request.chunk == short.1;
        Some(match &request.call {
            DataCall::Frames { from, .. } if of_chunk && server == short.0 => match from {
                0 => Ok(DataBody::Frames { frames: disks.frames.clone(), next: Some(LENGTH / 2) }),
                _ => Err(DataError::BeyondEnd),
            },
            DataCall::Fence { .. } if of_chunk && server == short.0 => {
                Ok(DataBody::Fenced { length: LENGTH / 2, restarted: false, damaged: Vec::new() })
            }
            DataCall::Fence { .. } if of_chunk => Err(DataError::NoChunk),
            DataCall::Copy { .. } if of_chunk => Ok(DataBody::Busy { done: 100 }),
            DataCall::Gather { .. } => {
                disks.held.insert((server, request.chunk));
                Ok(DataBody::Done)
            }
            call => disks.answer(server, request.chunk, call),
        })
    });
    pass_a_life(&mut cluster);
    assert_ne!(chunk_of(&mut cluster, file.0), chunk.chunk.chunk, "it is whole elsewhere");
}

/// The chunk that a file's bytes lie in.
fn chunk_of(cluster: &mut Cluster, node: Handle) -> ChunkId {
    let by = Admission::User(root_user());
    match cluster.call(ALICE, node.home, Call::Extents { node, by, offset: 0, count_max: 10 }).unwrap() {
        Body::Extents { extents, .. } => extents[0].chunk.chunk,
        other => panic!("{other:?}"),
    }
}

/// What is wrong with the only replica that is left of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A frame's payload is damaged.
    Payload,
    /// Its header too.
    Header,
    /// Its payload, and the disk can be read only.
    Disk,
    /// It ends before the chunk does.
    Short,
}

/// A chunk, and the files that lie in it.
struct Torn {
    lost: (Handle, OpenToken),
    whole: (Handle, OpenToken),
    chunk: ChunkView,
}

/// Two files lie in one chunk, each in a half. What one of them has there is damaged at one server; the other
/// is gone.
fn torn(wrong: Wrong) -> (Cluster, Rc<RefCell<Disks>>, Torn) {
    let config = Config { scan_interval: Duration::from_secs(600), ..Config::standard() };
    let (mut cluster, disks) = cluster_of(&[100, 101, 102, 103].map(ServerId), config);
    let files = ["f", "g"].map(|name| create(&mut cluster, name));
    let frames = [0, LENGTH / 2].map(|frame| FrameAt { frame, payload: 2_000, ..frame_of(files[0].0) });
    let frames = [frames[0], FrameAt { node: files[1].0.node, home: files[1].0.home, ..frames[1] }];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    for ((node, token), frame) in files.iter().zip(frames) {
        let extent =
            Extent { file_offset: 0, length: 2_000, chunk: chunk.chunk, frame: frame.frame, skip: 0 };
        let call = Call::Commit {
            node: *node,
            token: *token,
            extents: vec![extent],
            size_min: 0,
            modified: Wall(0),
            mode: CommitMode::Put,
            opened: filled_by(ALICE, &[extent]),
            set_ids: SetIds::Keep,
        };
        cluster.call(ALICE, node.home, call).unwrap();
    }
    cluster.seal_chunk(ALICE, &chunk);
    finish(&mut cluster, &chunk, 4_000).unwrap();
    cluster.pass_with(&[ALICE], Duration::from_secs(5));
    disks.borrow_mut().silent.insert(chunk.servers[1]);
    let (id, left, shared) = (chunk.chunk.chunk, chunk.servers[0], Rc::clone(&disks));
    let (lost, whole) = if wrong == Wrong::Short { (1, 0) } else { (0, 1) };
    let bad = frames[lost].frame;
    cluster.data = Box::new(move |server, request| {
        let mut disks = shared.borrow_mut();
        let here = request.chunk == id && server == left && disks.held.contains(&(server, id));
        // A place of the target is one of the old chunk's other half.
        let target = request.chunk != id && disks.held.contains(&(server, request.chunk));
        disks.calls.push((server, request.call.clone()));
        let answer = match &request.call {
            _ if disks.silent.contains(&server) => return None,
            DataCall::Ping if server == left && wrong == Wrong::Disk => Err(DataError::Failed),
            DataCall::Frames { .. } if target => {
                Ok(DataBody::Frames { frames: vec![FrameAt { frame: 0, ..frames[whole] }], next: None })
            }
            DataCall::Frames { from, .. } if here && *from == bad && wrong == Wrong::Header => {
                Err(DataError::Corrupt)
            }
            DataCall::Frames { from, .. } if here && *from == bad && wrong == Wrong::Short => {
                Err(DataError::BeyondEnd)
            }
            DataCall::Frames { from, end, .. } if here => {
                let cut =
                    if matches!(wrong, Wrong::Short | Wrong::Header) { bad.max(*from + 1) } else { *end };
                let cut = if cut <= *from || bad < *from { *end } else { cut.min(*end) };
                let listed = frames.iter().copied().filter(|frame| (*from..cut).contains(&frame.frame));
                let next = (cut < *end).then_some(cut);
                Ok(DataBody::Frames { frames: listed.collect(), next })
            }
            DataCall::Fence { .. } if here && wrong == Wrong::Short => {
                Ok(DataBody::Fenced { length: LENGTH / 2, restarted: true, damaged: Vec::new() })
            }
            DataCall::Fence { .. } if here => {
                disks.damaged.insert((server, id));
                let damaged = vec![(bad, bad + LENGTH / 2)];
                Ok(DataBody::Fenced { length: LENGTH, restarted: true, damaged })
            }
            DataCall::Seal { .. } if here && wrong == Wrong::Short => Err(DataError::Corrupt),
            DataCall::Copy { .. } if request.chunk == id => Err(DataError::Corrupt),
            DataCall::Gather { pieces, .. } => {
                let is_whole = pieces.new_place(bad).is_none();
                is_whole.then(|| disks.held.insert((server, request.chunk)));
                if is_whole { Ok(DataBody::Done) } else { Err(DataError::Corrupt) }
            }
            call => {
                disks.calls.pop();
                disks.answer(server, request.chunk, call)
            }
        };
        Some(answer)
    });
    (cluster, disks, Torn { lost: files[lost], whole: files[whole], chunk })
}

#[test]
fn a_damaged_frame_in_an_only_replica_stays_and_keeps_no_other_from_being_saved() {
    for wrong in [Wrong::Payload, Wrong::Header, Wrong::Disk, Wrong::Short] {
        let (mut cluster, disks, Torn { lost, whole, chunk }) = torn(wrong);
        let id = chunk.chunk.chunk;
        pass_a_life(&mut cluster);
        assert_ne!(chunk_of(&mut cluster, whole.0), id, "{wrong:?}: it is where there are two replicas");
        assert_eq!(chunk_of(&mut cluster, lost.0), id, "{wrong:?}: whoever has it may be back");
        show(&mut cluster, &chunk).unwrap();
        disks.borrow_mut().calls.clear();
        cluster.pass_with(&[ALICE], Duration::from_secs(500));
        let tried = |(_, call): &&(ServerId, DataCall)| {
            matches!(call, DataCall::Copy { .. } | DataCall::Gather { .. } | DataCall::Fence { .. })
        };
        let tried = disks.borrow().calls.iter().filter(tried).count();
        assert!(tried <= 3, "{wrong:?}: it is tried {tried} times");
    }
}

#[test]
fn a_damaged_chunk_is_open_to_what_its_writer_has_decided_until_he_is_done() {
    let (mut cluster, disks) = cluster_of(&DATA, Config::standard());
    let (_, chunk) = file_in_a_chunk(&mut cluster, &disks);
    cluster.seal_chunk(ALICE, &chunk);
    cluster.pass_with(&[ALICE], Duration::from_secs(5));
    let damaged = DATA.map(|server| (server, chunk.chunk.chunk));
    disks.borrow_mut().damaged.extend(damaged);
    cluster.pass_with(&[ALICE], Duration::from_secs(60));
    let late = create(&mut cluster, "late");
    commit(&mut cluster, late, &chunk).expect("it may lie in a frame that is whole");
    finish(&mut cluster, &chunk, 4_000).unwrap();
    cluster.pass_with(&[ALICE], Duration::from_secs(60));
    let later = create(&mut cluster, "later");
    assert_eq!(commit(&mut cluster, later, &chunk), Err(Code::NotFound));
}

#[test]
fn what_is_damaged_in_an_only_replica_goes_when_nobody_refers_to_it_and_that_is_known() {
    for wrong in [Wrong::Payload, Wrong::Header, Wrong::Disk, Wrong::Short] {
        let (mut cluster, disks, Torn { lost, whole, chunk }) = torn(wrong);
        let held = (chunk.servers[0], chunk.chunk.chunk);
        pass_a_life(&mut cluster);
        truncate(&mut cluster, lost);
        // Another disk lies in the other server by now, which says nothing of what the first one had.
        disks.borrow_mut().silent.clear();
        disks.borrow_mut().held.remove(&(chunk.servers[1], chunk.chunk.chunk));
        pass_a_life(&mut cluster);
        let unnamed = wrong == Wrong::Header;
        assert_eq!(disks.borrow().held.contains(&held), unnamed, "{wrong:?}");
        assert_eq!(show(&mut cluster, &chunk).is_ok(), unnamed, "{wrong:?}");
        assert_ne!(chunk_of(&mut cluster, whole.0), chunk.chunk.chunk);
    }
}

#[test]
fn a_replica_is_kept_although_it_is_too_short_where_there_is_no_room_to_make_it_anew() {
    let (mut cluster, disks) = cluster();
    let chunk = cluster.open_chunk(ALICE, Position(0));
    cluster.seal_chunk(ALICE, &chunk);
    let short = (DATA[0], chunk.chunk.chunk);
    disks.borrow_mut().full.insert(DATA[0]);
    disks.borrow_mut().short.insert(short);
    cluster.pass_with(&[ALICE], Duration::from_secs(30));
    assert!(disks.borrow().held.contains(&short), "what it has of the chunk is better than nothing");
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
    disks.borrow_mut().full.clear();
    cluster.pass_with(&[ALICE], Duration::from_secs(30));
    assert!(disks.borrow().held.contains(&short) && disks.borrow().short.is_empty());
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
}

#[test]
fn a_replica_that_was_looked_at_before_it_knew_of_its_seal_counts_once_it_does() {
    let (mut cluster, disks) = cluster();
    let chunk = cluster.open_chunk(ALICE, Position(0));
    let away: Rc<RefCell<bool>> = Rc::new(RefCell::new(true));
    let (down, shared) = (Rc::clone(&away), Rc::clone(&disks));
    cluster.data = Box::new(move |server, request| {
        let silent = *down.borrow() && server == DATA[1];
        (!silent).then(|| shared.borrow_mut().answer(server, request.chunk, &request.call))
    });
    cluster.seal_chunk(ALICE, &chunk);
    // The one that was there lost what it had, and says so; the other one comes back with all of it, open.
    let (short, open) = ((DATA[0], chunk.chunk.chunk), (DATA[1], chunk.chunk.chunk));
    disks.borrow_mut().short.insert(short);
    disks.borrow_mut().damaged.insert(short);
    disks.borrow_mut().held.insert(open);
    disks.borrow_mut().unsealed.insert(open);
    cluster.pass_with(&[ALICE], Duration::from_secs(10));
    *away.borrow_mut() = false;
    cluster.pass_with(&[ALICE], Duration::from_secs(20));
    assert!(disks.borrow().short.is_empty() && disks.borrow().unsealed.is_empty());
    assert_eq!(disks.borrow().held.len(), 2);
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
    disks.borrow_mut().calls.clear();
    cluster.pass_with(&[ALICE], Duration::from_secs(10));
    assert!(!disks.borrow().calls.iter().any(|(_, call)| matches!(call, DataCall::Seal { .. })), "at rest");
}

#[test]
fn a_damaged_replica_is_made_anew_from_one_that_was_found_whole() {
    let (mut cluster, disks) = cluster();
    let (_, chunk) = file_in_a_chunk(&mut cluster, &disks);
    cluster.seal_chunk(ALICE, &chunk);
    cluster.pass(Duration::from_secs(5));
    let sealed = show(&mut cluster, &chunk).unwrap();
    disks.borrow_mut().calls.clear();
    disks.borrow_mut().damaged.insert((DATA[0], chunk.chunk.chunk));
    cluster.pass(Duration::from_secs(2));
    let tallies: u64 = cluster.hosts.values().map(|host| host.machine.chunk_tally().lacking).sum();
    cluster.pass(Duration::from_secs(10));
    let mended = show(&mut cluster, &chunk).unwrap();
    assert_eq!(mended.servers.iter().collect::<BTreeSet<_>>(), DATA.iter().collect());
    assert!(mended.epoch > sealed.epoch, "{mended:?}");
    let disks = disks.borrow();
    let of = |server: ServerId| disks.calls.iter().filter(move |(to, _)| *to == server).map(|(_, call)| call);
    assert!(of(DATA[1]).any(|call| matches!(call, DataCall::Verify { .. })));
    let removed = of(DATA[0]).position(|call| matches!(call, DataCall::Remove { .. })).unwrap();
    let copied = of(DATA[0]).position(|call| matches!(call, DataCall::Copy { .. })).unwrap();
    assert!(removed < copied);
    assert!(disks.damaged.is_empty() && disks.held.len() == 2);
    assert_eq!(tallies, 1, "while it lasted it was counted");
    let after: u64 = cluster.hosts.values().map(|host| host.machine.chunk_tally().lacking).sum();
    assert_eq!(after, 0);
}

#[test]
fn a_replica_that_was_made_anew_is_not_dropped_for_what_its_server_said_before() {
    let (mut cluster, disks) = cluster();
    let chunk = cluster.open_chunk(ALICE, Position(0));
    cluster.seal_chunk(ALICE, &chunk);
    cluster.pass(Duration::from_secs(5));
    let damaged = (DATA[0], chunk.chunk.chunk);
    disks.borrow_mut().damaged.insert(damaged);
    disks.borrow_mut().late_pings = Some([damaged].into());
    disks.borrow_mut().calls.clear();
    cluster.pass(Duration::from_secs(15));
    disks.borrow_mut().late_pings = None;
    cluster.pass(Duration::from_secs(5));
    let removals = |server: ServerId| {
        let removal =
            |(to, call): &&(ServerId, DataCall)| *to == server && matches!(call, DataCall::Remove { .. });
        disks.borrow().calls.iter().filter(removal).count()
    };
    assert_eq!((removals(DATA[0]), removals(DATA[1])), (1, 0));
    assert_eq!(disks.borrow().held.len(), 2);
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
}

#[test]
fn a_replica_that_vanished_is_found_missing_and_made_again() {
    let (mut cluster, disks) = cluster();
    let (file, chunk) = file_in_a_chunk(&mut cluster, &disks);
    pass_a_life(&mut cluster);
    disks.borrow_mut().held.remove(&(DATA[0], chunk.chunk.chunk));
    let change = AttributeChange { size: Some(2_000), ..AttributeChange::default() };
    let cut = Call::SetAttributes { node: file.0, who: root_user(), change, token: Some(file.1) };
    cluster.call(ALICE, file.0.home, cut).unwrap();
    cluster.pass(Duration::from_secs(20));
    assert_eq!(disks.borrow().held, DATA.map(|server| (server, chunk.chunk.chunk)).into());
    let mended = show(&mut cluster, &chunk).unwrap();
    assert_eq!(mended.servers.iter().collect::<BTreeSet<_>>(), DATA.iter().collect());
}

#[test]
fn a_server_is_asked_after_each_start_for_what_it_holds_and_what_it_lost_is_made_again() {
    let (mut cluster, disks) = cluster();
    let (_, chunk) = file_in_a_chunk(&mut cluster, &disks);
    cluster.seal_chunk(ALICE, &chunk);
    cluster.pass_with(&[ALICE], Duration::from_secs(10));
    disks.borrow_mut().calls.clear();
    cluster.pass_with(&[ALICE], Duration::from_secs(10));
    let asked = |disks: &Rc<RefCell<Disks>>| {
        let calls = &disks.borrow().calls;
        calls.iter().filter(|(_, call)| matches!(call, DataCall::Holds { .. })).count()
    };
    assert_eq!(asked(&disks), 0, "once is enough");
    disks.borrow_mut().held.clear();
    disks.borrow_mut().held.insert((DATA[1], chunk.chunk.chunk));
    disks.borrow_mut().starts.insert(DATA[0], 1);
    cluster.pass_with(&[ALICE], Duration::from_secs(15));
    assert_eq!(asked(&disks), 1);
    assert_eq!(disks.borrow().held, DATA.map(|server| (server, chunk.chunk.chunk)).into());
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
}

#[test]
fn two_replicas_that_are_both_damaged_are_both_kept() {
    let (mut cluster, disks) = cluster();
    cluster.open_session(BOB);
    let (_, chunk) = file_in_a_chunk(&mut cluster, &disks);
    cluster.seal_chunk(ALICE, &chunk);
    disks.borrow_mut().damaged.extend(DATA.map(|server| (server, chunk.chunk.chunk)));
    cluster.pass(Duration::from_secs(10));
    assert_eq!(show(&mut cluster, &chunk).unwrap().servers.len(), 2);
    assert_eq!(disks.borrow().held.len(), 2);
}

#[test]
fn a_chunk_is_not_opened_with_fewer_copies_because_a_server_has_not_said_anything_yet() {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    let late = Rc::new(RefCell::new(false));
    let speaks = Rc::clone(&late);
    cluster.data = Box::new(move |server, _| {
        let space = DataBody::Space {
            used: 0,
            free: 1 << 40,
            filesystem: None,
            damaged: Vec::new(),
            life: 1,
            waiting: 0,
        };
        (server != DATA[0] || *speaks.borrow()).then_some(Ok(space))
    });
    cluster.restart(ServerId(1));
    cluster.open_session(ALICE);
    cluster.pass(Duration::from_secs(1));
    let opened = |cluster: &mut Cluster| match cluster.answer_of(
        ALICE,
        Position(0),
        Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() },
    ) {
        Some(Answer::Done { result, .. }) => match *result.unwrap() {
            Body::Chunk(view) => Some(view.servers.len()),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    assert_eq!(opened(&mut cluster), None, "the other one may speak yet");
    *late.borrow_mut() = true;
    cluster.pass(Duration::from_secs(2));
    assert_eq!(opened(&mut cluster), Some(2));
}

#[test]
fn a_server_that_stays_silent_hinders_no_chunk_for_long() {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    cluster.data = Box::new(move |server, _| {
        let space = DataBody::Space {
            used: 0,
            free: 1 << 40,
            filesystem: None,
            damaged: Vec::new(),
            life: 1,
            waiting: 0,
        };
        (server != DATA[0]).then_some(Ok(space))
    });
    cluster.restart(ServerId(1));
    cluster.open_session(ALICE);
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.open_chunk(ALICE, Position(0)).servers, [DATA[1]]);
}
