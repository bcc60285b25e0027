//! Chunks: what is synced when several take a file's frames, and how what failed servers leave is read.

use super::files::{create_open, done, stage_with, write};
use super::servers::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{ChunkRef, Extent};
use bearing_types::*;
use std::time::Duration;

/// A file with two flushed pieces of 100 bytes, each in a frame of its own.
fn two_pieces(config: ClientConfig) -> (World, Servers, OpenFile) {
    let (mut world, mut servers) = stage_with(config);
    let (file, _) = create_open(&mut world, &mut servers, "a");
    for piece in 0..2 {
        done(&mut world, &mut servers, write(file, piece * 100, &[b'a' + piece as u8; 100]));
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
    }
    servers.log.clear();
    (world, servers, file)
}

fn read(
    world: &mut World,
    servers: &mut Servers,
    file: OpenFile,
    offset: u64,
) -> (Result<Answer, Code>, Duration) {
    let begun = world.now.mono;
    let result = servers.perform(world, Operation::Read { file, offset, length: 100 });
    (result, world.now.mono.since(begun))
}

#[test]
fn a_chunk_that_was_full_while_an_append_to_it_was_under_way_is_synced() {
    let (mut world, mut servers) = stage_with(ClientConfig { chunk_bytes_max: 1000, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, &[1; 600]));
    done(&mut world, &mut servers, write(file, 2000, &[2; 600]));
    let ticket = world.start(Operation::Sync { file });
    while !world.finished.contains_key(&ticket) {
        // The next chunk is opened before the append to the first is answered.
        world.sent.reverse();
        servers.answer_all(&mut world);
    }
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert_eq!(servers.chunks.len(), 2);
    assert_eq!(servers.log.iter().filter(|call| *call == "sync").count(), 2, "{:?}", servers.log);
}

#[test]
fn a_full_chunk_is_finished_when_all_of_it_is_committed() {
    let (mut world, mut servers) = stage_with(ClientConfig { chunk_bytes_max: 1000, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, &[1; 400]));
    servers.perform(&mut world, Operation::Flush { file }).unwrap();
    assert!(servers.finished.is_empty(), "there is room in it");
    done(&mut world, &mut servers, write(file, 0, &[2; 600]));
    servers.log.clear();
    let ticket = world.start(Operation::Flush { file });
    while !servers.log.iter().any(|call| call == "commit") {
        assert!(servers.finished.is_empty());
        servers.answer_all(&mut world);
    }
    servers.run(&mut world, ticket).unwrap();
    servers.answer_all(&mut world);
    let first = *servers.chunks.keys().next().unwrap();
    assert_eq!(servers.finished, [(first, 400)].into());
    // Nothing is stable yet.
    servers.log.clear();
    servers.perform(&mut world, Operation::Sync { file }).unwrap();
    assert_eq!(servers.log, ["sync", "sync"]);
}

#[test]
fn a_finished_chunk_that_was_sealed_meanwhile_is_no_lost_one() {
    let (mut world, mut servers, file) = two_pieces(ClientConfig { chunk_bytes_max: 1, ..config() });
    servers.answer_all(&mut world);
    let first = *servers.chunks.keys().next().unwrap();
    assert_eq!(servers.finished, [(first, 100)].into());
    let record = servers.chunks.get_mut(&first).unwrap();
    record.sealed = Some(record.logs[&D1].len() as u64);
    servers.log.clear();
    servers.perform(&mut world, Operation::Sync { file }).unwrap();
    assert_eq!(servers.log, ["sync", "seal", "sync"]);
    assert!(!world.notes.iter().any(|note| matches!(note, Note::ChunkLost(_))));
}

#[test]
fn a_finished_chunk_that_was_removed_has_lost_nothing_of_a_file_that_does_not_refer_to_it() {
    let (mut world, mut servers, file) = two_pieces(ClientConfig { chunk_bytes_max: 1, ..config() });
    done(&mut world, &mut servers, write(file, 0, &[b'c'; 200]));
    servers.perform(&mut world, Operation::Flush { file }).unwrap();
    servers.answer_all(&mut world);
    assert_eq!(servers.finished.len(), 2);
    for gone in servers.finished.keys() {
        servers.chunks.remove(gone);
    }
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
    assert_eq!(read(&mut world, &mut servers, file, 100).0, Ok(Answer::Bytes(vec![b'c'; 100])));
}

/// The chunks of which this client has to make something stable, or to tell that it is lost.
fn remembered(world: &World) -> usize {
    world.client.chunks_remembered()
}

#[test]
fn of_full_chunks_that_nobody_syncs_the_oldest_are_synced_unasked() {
    let few = ClientConfig { chunk_bytes_max: 1, unsynced_chunks_max: 3, ..config() };
    let (mut world, mut servers, file) = two_pieces(few);
    for piece in 2..20 {
        done(&mut world, &mut servers, write(file, piece * 100, &[b'c'; 100]));
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
    }
    while servers.answer_all(&mut world) {}
    assert_eq!(servers.chunks.len(), 20);
    assert_eq!(servers.log.iter().filter(|call| *call == "sync").count(), 20 - 1 - 3, "{:?}", servers.log);
    assert!(remembered(&world) <= 5);
    servers.log.clear();
    servers.perform(&mut world, Operation::Sync { file }).unwrap();
    assert_eq!(servers.log, ["sync"; 4]);
}

#[test]
fn of_chunks_that_are_gone_nothing_is_remembered_once_no_file_refers_to_them() {
    let few = ClientConfig { chunk_bytes_max: 1, unsynced_chunks_max: 3, ..config() };
    let (mut world, mut servers, file) = two_pieces(few);
    for _ in 0..20 {
        done(&mut world, &mut servers, write(file, 0, &[b'd'; 200]));
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
        while servers.answer_all(&mut world) {}
        for gone in std::mem::take(&mut servers.finished).into_keys() {
            servers.chunks.remove(&gone);
        }
    }
    assert!(remembered(&world) <= 5);
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
}

#[test]
fn what_a_chunk_that_was_synced_unasked_had_lost_is_told_to_the_next_sync() {
    let few = ClientConfig { chunk_bytes_max: 1, unsynced_chunks_max: 1, ..config() };
    let (mut world, mut servers, file) = two_pieces(few);
    let first = *servers.chunks.keys().next().unwrap();
    let record = servers.chunks.get_mut(&first).unwrap();
    record.sealed = Some(10);
    for piece in 2..6 {
        done(&mut world, &mut servers, write(file, piece * 100, &[b'c'; 100]));
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
    }
    while servers.answer_all(&mut world) {}
    assert_eq!(servers.log.iter().filter(|call| *call == "seal").count(), 1);
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
}

#[test]
fn an_end_does_not_wait_long_for_the_owner_of_a_chunk() {
    let (mut world, mut servers, file) = two_pieces(config());
    servers.perform(&mut world, Operation::Sync { file }).unwrap();
    let begun = world.now.mono;
    let ticket = world.start(Operation::End);
    while !world.finished.contains_key(&ticket) {
        world.sent.clear();
        world.kernel_forgets();
        assert!(world.pass_to_next());
    }
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert!(world.now.mono.since(begun) < Duration::from_secs(3));
}

#[test]
fn servers_that_do_not_know_what_all_have_are_told_by_a_seal() {
    let (mut world, mut servers, file) = two_pieces(config());
    servers.unknowing = [D1, D2].into();
    let (result, _) = read(&mut world, &mut servers, file, 100);
    assert_eq!(result, Ok(Answer::Bytes(vec![b'b'; 100])));
    assert_eq!(servers.log, ["seal"]);
    done(&mut world, &mut servers, write(file, 0, b"more"));
    servers.perform(&mut world, Operation::Flush { file }).unwrap();
    assert_eq!(servers.log, ["seal", "open chunk avoiding []", "append", "commit"]);
}

#[test]
fn a_seal_is_asked_for_while_another_server_is_silent() {
    let (mut world, mut servers, file) = two_pieces(config());
    servers.dead = [D1].into();
    servers.unknowing = [D2].into();
    let (result, took) = read(&mut world, &mut servers, file, 100);
    assert_eq!(result, Ok(Answer::Bytes(vec![b'b'; 100])));
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_chunk_is_not_sealed_because_one_replica_is_bad() {
    let (mut world, mut servers, file) = two_pieces(config());
    for bad in [D1, D2] {
        servers.unknowing = [bad].into();
        assert_eq!(read(&mut world, &mut servers, file, 0).0, Ok(Answer::Bytes(vec![b'a'; 100])));
    }
    assert!(servers.log.is_empty());
}

#[test]
fn what_lies_beyond_a_sealed_length_is_an_error_at_once() {
    let (mut world, mut servers, file) = two_pieces(config());
    servers.unknowing = [D1, D2].into();
    let held = servers.chunks.values().next().unwrap().logs[&D1].len() as u64;
    servers.cut_at_seal = held / 2;
    let (result, took) = read(&mut world, &mut servers, file, 100);
    assert_eq!(result, Err(Code::Io), "never zeros");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(read(&mut world, &mut servers, file, 0).0, Ok(Answer::Bytes(vec![b'a'; 100])));
}

#[test]
fn a_read_of_silent_replicas_ends_at_its_deadline_although_others_have_moved_meanwhile() {
    let (mut world, mut servers, file) = two_pieces(ClientConfig { chunk_bytes_max: 1, ..config() });
    assert_eq!(servers.chunks.len(), 2, "each piece lies in a chunk of its own");
    servers.dead = [D1, D2].into();
    let begun = world.now.mono;
    let ticket = world.start(Operation::Read { file, offset: 0, length: 200 });
    while world.now.mono.since(begun) < Duration::from_secs(30) {
        if !servers.answer_all(&mut world) {
            assert!(world.pass_to_next());
        }
    }
    // The first piece lies in another chunk by now, which is read from when the file is asked again.
    let (gone, _) = servers.chunks.pop_first().unwrap();
    let kept = *servers.chunks.keys().next().unwrap();
    let extents = &mut servers.files.values_mut().next().unwrap().extents;
    let moved = extents.parts(0..100).next().unwrap().extent;
    assert_eq!(moved.chunk.chunk, gone);
    extents.cover(Extent { chunk: ChunkRef { chunk: kept, ..moved.chunk }, ..moved });
    assert_eq!(servers.run(&mut world, ticket), Err(Code::Unreachable));
    let took = world.now.mono.since(begun);
    assert!(took < Duration::from_secs(80), "{took:?}");
}

#[test]
fn large_frames_of_files_that_are_written_together_go_to_chunks_of_their_own() {
    let (mut world, mut servers) = stage_with(ClientConfig { large_frame_bytes: 500, ..config() });
    let files: Vec<OpenFile> =
        (0..6).map(|number| create_open(&mut world, &mut servers, &format!("f{number}")).0).collect();
    let mut flush_all = |world: &mut World, round: u64, bytes: usize| {
        let flushes: Vec<Ticket> = files
            .iter()
            .map(|file| {
                done(world, &mut servers, write(*file, round * 1000, &vec![round as u8; bytes]));
                world.start(Operation::Flush { file: *file })
            })
            .collect();
        flushes.into_iter().for_each(|flush| drop(servers.run(world, flush).unwrap()));
        servers.chunks.len()
    };
    assert_eq!(flush_all(&mut world, 1, 900), 4, "no more than four at a time");
    assert_eq!(flush_all(&mut world, 2, 900), 4, "the same go on");
    assert_eq!(flush_all(&mut world, 3, 100), 4, "small ones are packed into the first");
    // One alone needs no chunk of its own.
    let (mut world, mut servers) = stage_with(ClientConfig { large_frame_bytes: 500, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    for round in 0..5 {
        done(&mut world, &mut servers, write(file, round * 1000, &[7; 900]));
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
    }
    assert_eq!(servers.chunks.len(), 1);
}
