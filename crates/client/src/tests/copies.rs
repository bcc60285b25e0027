//! Copies from file to file.

use super::files::{create_open, done, open, opened, read, stage, stage_with, write};
use super::servers::*;
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::Handle;
use bearing_proto::data::DataCall;
use bearing_types::*;

fn copy(source: (OpenFile, u64), target: (OpenFile, u64), length: u64) -> Operation {
    let ((source, source_offset), (target, target_offset)) = (source, target);
    Operation::Copy { source, source_offset, target, target_offset, length, set_ids: SetIds::Keep }
}

/// Carries a copy out. How much was copied, and how many bytes of data went through the client.
fn copied(world: &mut World, servers: &mut Servers, operation: Operation) -> (u32, usize) {
    let ticket = world.start(operation);
    let mut moved = 0;
    while !world.finished.contains_key(&ticket) {
        for sent in &world.sent {
            let read = match &sent.message {
                Message::Data(request) => match &request.call {
                    DataCall::Read { length, .. } => *length as usize,
                    _ => 0,
                },
                _ => 0,
            };
            moved += read + sent.attachment.len();
        }
        assert!(servers.answer_all(world) || world.pass_to_next());
    }
    match world.result(ticket) {
        Ok(Answer::Written(count)) => (count, moved),
        other => panic!("a count was expected, not {other:?}"),
    }
}

/// A file whose servers have these bytes, and an empty one.
fn source_and_target(
    world: &mut World,
    servers: &mut Servers,
    bytes: &[u8],
) -> ((OpenFile, Handle), (OpenFile, Handle)) {
    let (source, target) = (create_open(world, servers, "a"), create_open(world, servers, "b"));
    done(world, servers, write(source.0, 0, bytes));
    done(world, servers, Operation::Flush { file: source.0 });
    (source, target)
}

#[test]
fn stored_bytes_are_copied_without_passing_through_here_and_others_see_them_at_once() {
    let (mut world, mut servers) = stage();
    let ((source, _), (target, node)) = source_and_target(&mut world, &mut servers, &[7; 5000]);
    servers.log.clear();
    assert_eq!(copied(&mut world, &mut servers, copy((source, 1000), (target, 3), u64::MAX)), (4000, 0));
    assert_eq!(servers.log, ["append from", "commit"]);
    assert_eq!(servers.files[&node.node].attributes.size, 4003);
    let other = opened(servers.perform(&mut world, open(node, false)));
    let expected = [vec![0; 3], vec![7; 4000]].concat();
    assert_eq!(read(&mut world, &mut servers, other, 0, 10_000), expected);
    // It is as stable as a flushed write is: a sync makes it more.
    servers.log.clear();
    done(&mut world, &mut servers, Operation::Sync { file: target });
    assert_eq!(servers.log, ["sync"]);
    assert_eq!(world.client.counters().bytes_copied, 4000);
}

#[test]
fn what_is_buffered_of_both_files_is_written_out_first() {
    let (mut world, mut servers) = stage();
    let (source, _) = create_open(&mut world, &mut servers, "a");
    let (target, _) = create_open(&mut world, &mut servers, "b");
    done(&mut world, &mut servers, write(source, 0, b"from"));
    done(&mut world, &mut servers, write(target, 0, b"overwritten"));
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (target, 4), 100)).0, 4);
    done(&mut world, &mut servers, Operation::Flush { file: target });
    assert_eq!(read(&mut world, &mut servers, target, 0, 100), b"overfromten");
    // Also what is for the end of the file, wherever that is.
    done(
        &mut world,
        &mut servers,
        Operation::Write { file: source, offset: None, bytes: b"!".to_vec(), set_ids: SetIds::Keep },
    );
    assert_eq!(copied(&mut world, &mut servers, copy((source, 2), (target, 0), 100)).0, 3);
    assert_eq!(read(&mut world, &mut servers, target, 0, 100), b"om!rfromten");
}

#[test]
fn holes_stay_holes_and_what_was_in_their_place_goes() {
    let (mut world, mut servers) = stage();
    let (source, _) = create_open(&mut world, &mut servers, "a");
    let (target, node) = create_open(&mut world, &mut servers, "b");
    done(&mut world, &mut servers, write(source, 10, b"x"));
    done(
        &mut world,
        &mut servers,
        Operation::MakeHole { file: source, start: 0, end: 0, size_min: 30, set_ids: SetIds::Keep },
    );
    done(&mut world, &mut servers, write(target, 0, &[9; 20]));
    done(&mut world, &mut servers, Operation::Flush { file: target });
    servers.log.clear();
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (target, 0), 100)), (30, 0));
    let holes = servers.log.iter().filter(|call| *call == "make hole").count();
    assert_eq!(holes, 2, "{:?}", servers.log);
    let record = &servers.files[&node.node];
    let places: Vec<_> =
        record.extents.parts(0..100).map(|part| (part.extent.file_offset, part.extent.length)).collect();
    assert_eq!((places, record.attributes.size), (vec![(10, 1)], 30));
    // Where the target has nothing there is nothing to be done.
    let (fresh, _) = create_open(&mut world, &mut servers, "c");
    servers.log.clear();
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (fresh, 0), 11)).0, 11);
    assert_eq!(servers.log, ["append from", "commit"]);
    assert_eq!(read(&mut world, &mut servers, fresh, 0, 100), [&[0; 10][..], b"x"].concat());
    // A hole alone makes the file longer, and nothing behind the end is no hole.
    let (empty, node) = create_open(&mut world, &mut servers, "d");
    assert_eq!(copied(&mut world, &mut servers, copy((source, 12), (empty, 5), 8)), (8, 0));
    assert_eq!(servers.files[&node.node].attributes.size, 13);
    assert_eq!(copied(&mut world, &mut servers, copy((source, 30), (empty, 0), 8)), (0, 0));
}

#[test]
fn ranges_that_overlap_and_what_goes_beyond_the_longest_file_are_refused() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, &[1; 100]));
    let again = opened(servers.perform(&mut world, open(node, true)));
    for target in [file, again] {
        let refused = servers.perform(&mut world, copy((file, 10), (target, 50), 41));
        assert_eq!(refused, Err(Code::InvalidArgument));
        let refused = servers.perform(&mut world, copy((file, 50), (target, 10), 41));
        assert_eq!(refused, Err(Code::InvalidArgument));
    }
    // Up to the end of the file it does not reach.
    assert_eq!(copied(&mut world, &mut servers, copy((file, 50), (file, 0), 1000)).0, 50);
    let far = i64::MAX as u64 - 5;
    assert_eq!(servers.perform(&mut world, copy((file, 0), (again, far), 6)), Err(Code::TooLarge));
    let reader = opened(servers.perform(&mut world, open(node, false)));
    assert_eq!(servers.perform(&mut world, copy((file, 0), (reader, 500), 6)), Err(Code::InvalidArgument));
}

#[test]
fn a_long_copy_is_cut_short() {
    let (mut world, mut servers) = stage_with(ClientConfig { copy_bytes_max: 1000, ..config() });
    let (source, _) = create_open(&mut world, &mut servers, "a");
    let (target, _) = create_open(&mut world, &mut servers, "b");
    done(&mut world, &mut servers, write(source, 0, &[1; 1500]));
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (target, 0), 1 << 40)).0, 1000);
    assert_eq!(copied(&mut world, &mut servers, copy((source, 1000), (target, 1000), 1 << 40)).0, 500);
    assert_eq!(read(&mut world, &mut servers, target, 0, 2000), [1; 1500]);
}

#[test]
fn bytes_that_no_server_can_take_from_where_they_are_are_read_and_sent() {
    let (mut world, mut servers) = stage();
    servers.sends_only = true;
    let ((source, _), (target, _)) = source_and_target(&mut world, &mut servers, b"hello");
    servers.log.clear();
    assert_eq!(copied(&mut world, &mut servers, copy((source, 1), (target, 0), 3)).0, 3);
    assert_eq!(servers.log, ["append from", "append", "commit"]);
    assert_eq!(read(&mut world, &mut servers, target, 0, 9), b"ell");
}

#[test]
fn a_copy_goes_on_in_another_chunk_when_a_server_dies_and_says_so_when_disks_are_full() {
    let (mut world, mut servers) = stage();
    let ((source, _), (target, node)) = source_and_target(&mut world, &mut servers, b"hello");
    servers.dead = [D1].into();
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (target, 0), 5)).0, 5);
    assert_eq!(read(&mut world, &mut servers, target, 0, 9), b"hello");
    assert_eq!(servers.chunks.len(), 2);
    servers.full = [D2, D3].into();
    assert_eq!(servers.perform(&mut world, copy((source, 0), (target, 5), 5)), Err(Code::NoSpace));
    assert_eq!(servers.files[&node.node].attributes.size, 5);
    // Nobody else hears of it: it was told.
    servers.full.clear();
    done(&mut world, &mut servers, Operation::Sync { file: target });
    servers.commits_fail = Some(Code::QuotaExceeded);
    assert_eq!(servers.perform(&mut world, copy((source, 0), (target, 5), 5)), Err(Code::QuotaExceeded));
}

#[test]
fn a_source_whose_chunk_was_removed_is_looked_up_again() {
    let (mut world, mut servers) = stage();
    let ((source, node), (target, _)) = source_and_target(&mut world, &mut servers, b"hello");
    let before = *servers.chunks.keys().next().unwrap();
    // Its home moved the bytes to another chunk.
    let moved = ChunkId(5000);
    let record = servers.chunks.remove(&before).unwrap();
    servers.chunks.insert(moved, ChunkRecord { sealed: Some(1 << 20), ..record });
    let file = servers.files.get_mut(&node.node).unwrap();
    let mut extent = file.extents.parts(0..5).next().unwrap().extent;
    extent.chunk.chunk = moved;
    file.extents.cover(extent);
    let ticket = world.start(copy((source, 0), (target, 0), 5));
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Written(5)));
    assert_eq!(read(&mut world, &mut servers, target, 0, 9), b"hello");
}

#[test]
fn a_source_that_is_shorter_than_was_believed_is_copied_up_to_its_end() {
    let (mut world, mut servers) = stage();
    let ((source, node), (target, end)) = source_and_target(&mut world, &mut servers, b"hello");
    done(&mut world, &mut servers, Operation::Close { file: source });
    // Another client appends and cuts it again while it is open here.
    let before = servers.files[&node.node].attributes;
    let longer = Attributes { size: 9, version: before.version.next(), ..before };
    servers.files.get_mut(&node.node).unwrap().attributes = longer;
    let source = opened(servers.perform(&mut world, open(node, false)));
    let shorter = Attributes { version: longer.version.next(), ..before };
    servers.files.get_mut(&node.node).unwrap().attributes = shorter;
    assert_eq!(copied(&mut world, &mut servers, copy((source, 0), (target, 0), 9)).0, 5);
    assert_eq!(servers.files[&end.node].attributes.size, 5);
}
