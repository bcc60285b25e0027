//! Files: buffered writes, write-out, reads, and what happens when data servers fail.

use super::servers::*;
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{AttributeChange, Call, Handle, LeaseKey, NewNode};
use bearing_types::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

pub fn create_open(world: &mut World, servers: &mut Servers, text: &str) -> (OpenFile, Handle) {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: vec![] };
    let operation =
        Operation::Create { directory: root(), name: name(text), who: Credentials::ROOT, new, open: true };
    match servers.perform(world, operation) {
        Ok(Answer::Opened(file, found)) => (file, found.node),
        other => panic!("an open file was expected, not {other:?}"),
    }
}

pub fn open(node: Handle, write: bool) -> Operation {
    Operation::Open { node, who: Credentials::ROOT, read: true, write, truncate: false, execute: false }
}

pub fn opened(result: Result<Answer, Code>) -> OpenFile {
    match result {
        Ok(Answer::Opened(file, _)) => file,
        other => panic!("an open file was expected, not {other:?}"),
    }
}

pub fn write(file: OpenFile, offset: u64, bytes: &[u8]) -> Operation {
    Operation::Write { file, offset: Some(offset), bytes: bytes.to_vec(), set_ids: SetIds::Keep }
}

pub fn read(world: &mut World, servers: &mut Servers, file: OpenFile, offset: u64, length: u32) -> Vec<u8> {
    match servers.perform(world, Operation::Read { file, offset, length }) {
        Ok(Answer::Bytes(bytes)) => bytes,
        other => panic!("bytes were expected, not {other:?}"),
    }
}

pub fn done(world: &mut World, servers: &mut Servers, operation: Operation) {
    match servers.perform(world, operation) {
        Ok(_) => {}
        Err(code) => panic!("{code}"),
    }
}

/// A new file with these bytes, which its servers have and which may not be stable yet.
pub fn flushed(world: &mut World, servers: &mut Servers, text: &str, bytes: &[u8]) -> (OpenFile, Handle) {
    let (file, node) = create_open(world, servers, text);
    done(world, servers, write(file, 0, bytes));
    done(world, servers, Operation::Flush { file });
    (file, node)
}

/// A new file with these bytes, stable.
pub fn synced(world: &mut World, servers: &mut Servers, text: &str, bytes: &[u8]) -> (OpenFile, Handle) {
    let (file, node) = create_open(world, servers, text);
    done(world, servers, write(file, 0, bytes));
    done(world, servers, Operation::Sync { file });
    (file, node)
}

pub fn stage() -> (World, Servers) {
    (World::open(), Servers::new(1))
}

pub fn stage_with(config: ClientConfig) -> (World, Servers) {
    (World::open_with(config), Servers::new(1))
}

#[test]
fn own_writes_are_seen_before_they_are_stored_and_after() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 3, b"hello"));
    assert!(servers.chunks.is_empty(), "a write is only buffered");
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"\0\0\0hello");
    let found =
        servers.perform(&mut world, Operation::Attributes { node, file_type: FileType::Regular }).unwrap();
    assert!(matches!(found, Answer::Found(found) if found.attributes.size == 8));
    done(&mut world, &mut servers, Operation::Flush { file });
    assert_eq!(read(&mut world, &mut servers, file, 2, 4), b"\0hel");
    done(&mut world, &mut servers, write(file, 4, b"EL"));
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"\0\0\0hELlo");
}

#[test]
fn a_sync_commits_only_what_the_data_servers_made_stable() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"one"));
    servers.log.clear();
    done(&mut world, &mut servers, Operation::Sync { file });
    assert_eq!(servers.log, ["open chunk avoiding []", "append", "sync", "commit"]);
}

#[test]
fn what_was_flushed_before_is_made_stable_by_a_later_sync_even_of_another_open_file() {
    let (mut world, mut servers) = stage();
    let (file, node) = flushed(&mut world, &mut servers, "a", b"one");
    done(&mut world, &mut servers, Operation::Close { file });
    let file = opened(servers.perform(&mut world, open(node, true)));
    servers.log.clear();
    done(&mut world, &mut servers, Operation::Sync { file });
    assert_eq!(servers.log, ["sync"]);
    done(&mut world, &mut servers, Operation::Sync { file });
    assert_eq!(servers.log, ["sync"], "all of it is stable");
}

#[test]
fn small_files_share_one_chunk() {
    let (mut world, mut servers) = stage();
    for text in ["a", "b", "c"] {
        let (file, _) = create_open(&mut world, &mut servers, text);
        done(&mut world, &mut servers, write(file, 0, text.as_bytes()));
        done(&mut world, &mut servers, Operation::Flush { file });
        done(&mut world, &mut servers, Operation::Close { file });
    }
    assert_eq!(servers.chunks.len(), 1);
}

#[test]
fn a_full_chunk_is_followed_by_another() {
    let (mut world, mut servers) = stage_with(ClientConfig { chunk_bytes_max: 1000, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    for number in 0..4 {
        done(&mut world, &mut servers, write(file, number * 400, &[number as u8; 400]));
        done(&mut world, &mut servers, Operation::Flush { file });
    }
    assert_eq!(servers.chunks.len(), 2);
    assert_eq!(read(&mut world, &mut servers, file, 0, 4000).len(), 1600);
}

#[test]
fn a_lost_replica_has_the_chunk_sealed_and_writing_goes_on_without_it() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    servers.dead.insert(D2);
    done(&mut world, &mut servers, write(file, 3, b"two"));
    servers.log.clear();
    done(&mut world, &mut servers, Operation::Flush { file });
    assert_eq!(servers.log, ["append", "seal", "open chunk avoiding [], doubting [s12]", "append", "commit"]);
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"onetwo");
}

#[test]
fn a_server_that_failed_once_is_doubted_and_one_that_failed_again_is_avoided() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    servers.dead.insert(D2);
    done(&mut world, &mut servers, write(file, 3, b"two"));
    done(&mut world, &mut servers, Operation::Flush { file });
    servers.dead.insert(D3);
    done(&mut world, &mut servers, write(file, 6, b"six"));
    servers.log.clear();
    let ticket = world.start(Operation::Flush { file });
    let again = "open chunk avoiding [s12], doubting [s13]";
    while !servers.log.iter().any(|call| call == again) {
        servers.answer_all(&mut world);
        world.pass(Duration::from_millis(50));
    }
    let opened: Vec<_> = servers.log.iter().filter(|call| call.starts_with("open")).collect();
    assert_eq!(opened, ["open chunk avoiding [], doubting [s12, s13]", again]);
    servers.dead.clear();
    assert!(servers.run(&mut world, ticket).is_ok());
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"onetwosix");
}

#[test]
fn a_silent_primary_is_replaced_after_its_timeout() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    servers.dead.insert(D1);
    done(&mut world, &mut servers, write(file, 0, b"one"));
    done(&mut world, &mut servers, Operation::Flush { file });
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"one");
    assert!(world.notes.contains(&Note::ChunkLost(D1)));
}

/// A file is being flushed: of its two runs, which are two frames, the first was appended. (The second finds
/// a replica lost then, and sealing cuts off the first, or finds a hole there.)
fn one_of_two_frames_appended() -> (World, Servers, OpenFile, Ticket) {
    let (mut world, mut servers) = stage_with(ClientConfig { appends_max: 1, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"first"));
    done(&mut world, &mut servers, write(file, 100, b"second"));
    let ticket = world.start(Operation::Flush { file });
    while servers.log.iter().filter(|call| *call == "append").count() < 1 {
        servers.answer_all(&mut world);
    }
    (world, servers, file, ticket)
}

#[test]
fn acknowledged_frames_beyond_the_sealed_length_are_appended_again_before_they_are_committed() {
    let (mut world, mut servers, file, ticket) = one_of_two_frames_appended();
    servers.dead.insert(D2);
    servers.cut_at_seal = 1;
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
    servers.dead.clear();
    let mut expected = vec![0; 106];
    expected[..5].copy_from_slice(b"first");
    expected[100..].copy_from_slice(b"second");
    assert_eq!(read(&mut world, &mut servers, file, 0, 1000), expected);
}

#[test]
fn what_lies_in_a_hole_of_a_sealed_chunk_fails_the_sync_of_its_file_and_of_no_other() {
    let (mut world, mut servers) = stage();
    let (lost, _) = create_open(&mut world, &mut servers, "lost");
    let (kept, _) = create_open(&mut world, &mut servers, "kept");
    done(&mut world, &mut servers, write(lost, 0, b"one"));
    done(&mut world, &mut servers, Operation::Flush { file: lost });
    let first = servers.chunks.values().next().unwrap().logs[&D1].len() as u64;
    done(&mut world, &mut servers, write(kept, 0, b"two"));
    done(&mut world, &mut servers, Operation::Flush { file: kept });
    servers.dead.insert(D2);
    servers.holes_at_seal = vec![(0, first)];
    done(&mut world, &mut servers, Operation::Sync { file: kept });
    let ticket = world.start(Operation::Sync { file: lost });
    assert_eq!(servers.run(&mut world, ticket), Err(Code::Io));
}

#[test]
fn acknowledged_frames_in_a_hole_are_appended_again_before_they_are_committed() {
    let (mut world, mut servers, _, ticket) = one_of_two_frames_appended();
    let first = servers.chunks.values().next().unwrap().logs[&D1].len() as u64;
    servers.dead.insert(D2);
    servers.holes_at_seal = vec![(0, first)];
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
    servers.dead.clear();
    let chunks: BTreeSet<_> = servers
        .files
        .values()
        .flat_map(|file| file.extents.parts(0..1000))
        .map(|part| part.extent.chunk.chunk)
        .collect();
    assert!(chunks.iter().all(|chunk| servers.chunks[chunk].holes.is_empty()), "{chunks:?}");
}

#[test]
fn what_was_acknowledged_by_servers_that_are_lost_since_is_appended_again_before_it_is_committed() {
    let (mut world, mut servers, _, ticket) = one_of_two_frames_appended();
    let lost = *servers.chunks.keys().next().unwrap();
    servers.dead.insert(D2);
    servers.cannot_seal = true;
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
    let extents = servers.files.values().flat_map(|file| file.extents.parts(0..1000));
    assert!(extents.map(|part| part.extent.chunk.chunk).all(|chunk| chunk != lost));
}

#[test]
fn flushed_bytes_that_are_lost_before_their_sync_fail_it() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    servers.dead.insert(D2);
    servers.cut_at_seal = 1;
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
}

#[test]
fn full_disks_end_in_no_space_after_bounded_tries_and_are_told_once() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    servers.full.extend([D1, D2, D3]);
    done(&mut world, &mut servers, write(file, 0, b"one"));
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Err(Code::NoSpace));
    // A full server cannot note a fence of a chunk that it never made: who waited for that would wait as long
    // as the disk is full.
    assert!(!servers.log.contains(&"seal".to_owned()), "{:?}", servers.log);
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    assert_eq!(servers.perform(&mut world, Operation::Close { file }), Ok(Answer::Done));
}

/// As when a child process ends that had the file from its parent, which syncs it at that moment.
#[test]
fn a_sync_tells_of_what_was_lost_also_when_a_flush_has_told_of_it_and_once() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    let other = opened(servers.perform(&mut world, open(node, true)));
    servers.full.extend([D1, D2, D3]);
    done(&mut world, &mut servers, write(file, 0, b"one"));
    let flush = world.start(Operation::Flush { file });
    let sync = world.start(Operation::Sync { file });
    assert_eq!(servers.run(&mut world, flush), Err(Code::NoSpace));
    assert_eq!(servers.run(&mut world, sync), Err(Code::NoSpace));
    // Whoever has it open besides hears of it too; whoever opens it now that it was told does not.
    let later = opened(servers.perform(&mut world, open(node, true)));
    assert_eq!(servers.perform(&mut world, Operation::Sync { file: other }), Err(Code::NoSpace));
    for file in [file, other, later] {
        assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
    }
}

#[test]
fn a_flush_that_waits_for_an_unmount_is_told_what_that_lost() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    let (other, _) = create_open(&mut world, &mut servers, "b");
    servers.full.extend([D1, D2, D3]);
    done(&mut world, &mut servers, write(file, 0, b"one"));
    done(&mut world, &mut servers, write(other, 0, b"two"));
    let all = world.start(Operation::SyncAll);
    let flush = world.start(Operation::Flush { file });
    assert_eq!(servers.run(&mut world, flush), Err(Code::NoSpace));
    assert_eq!(servers.run(&mut world, all), Err(Code::NoSpace));
}

#[test]
fn a_failed_write_out_behind_the_programs_back_is_told_exactly_once() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    servers.commits_fail = Some(Code::NoSpace);
    done(&mut world, &mut servers, write(file, 0, b"one"));
    for _ in 0..100 {
        if !servers.answer_all(&mut world) && servers.log.contains(&"commit".to_owned()) {
            break;
        }
        world.pass_to_next();
    }
    assert!(world.notes.iter().any(|note| matches!(note, Note::WritesLost(_, Code::NoSpace))));
    servers.commits_fail = None;
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::NoSpace));
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
}

#[test]
fn a_damaged_or_dead_replica_is_passed_over() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    for (damaged, dead) in [(D1, D3), (D2, D3), (D3, D1), (D3, D2)] {
        servers.damaged = [damaged].into();
        servers.dead = [dead].into();
        assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"one");
    }
    assert!(world.client.counters().replicas_passed_over > 0);
    servers.damaged = [D1, D2].into();
    servers.dead.clear();
    let result = servers.perform(&mut world, Operation::Read { file, offset: 0, length: 3 });
    assert_eq!(result, Err(Code::Io), "damaged bytes are never given out");
}

#[test]
fn a_silent_replica_is_passed_over_within_a_second_and_tried_last_for_a_while() {
    for dead in [D1, D2] {
        let (mut world, mut servers) = stage();
        let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
        servers.dead = [dead].into();
        let begun = world.now.mono;
        for _ in 0..5 {
            assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"one");
        }
        let took = world.now.mono.since(begun);
        assert!(took <= Duration::from_millis(1_100), "{dead}: {took:?}");
    }
}

#[test]
fn replicas_that_are_silent_for_a_while_are_waited_for() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    servers.dead = [D1, D2].into();
    let ticket = world.start(Operation::Read { file, offset: 0, length: 3 });
    let begun = world.now.mono;
    while world.now.mono.since(begun) < Duration::from_secs(15) {
        servers.answer_all(&mut world);
        world.pass_to_next();
    }
    assert!(!world.finished.contains_key(&ticket));
    servers.dead.clear();
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Bytes(b"one".to_vec())));
}

#[test]
fn a_writer_that_is_faster_than_the_servers_waits_for_room() {
    let (mut world, mut servers) = stage_with(ClientConfig { file_buffer_bytes_max: 100, ..config() });
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, &[1; 100]));
    let ticket = world.start(write(file, 100, &[2; 100]));
    assert!(!world.finished.contains_key(&ticket));
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Written(100)));
    assert_eq!(world.client.counters().writes_held_back, 1);
    let bytes = read(&mut world, &mut servers, file, 0, 1000);
    assert_eq!(bytes, [[1; 100], [2; 100]].concat());
}

#[test]
fn what_is_enough_is_written_out_while_the_writer_goes_on() {
    let mut world =
        World::open_with(ClientConfig { write_out_bytes: 100, file_buffer_bytes_max: 400, ..config() });
    let mut servers = Servers::new(1);
    let (file, _) = create_open(&mut world, &mut servers, "a");
    world.start(write(file, 0, &[1; 100]));
    servers.log.clear();
    // None of these waits for a server.
    for number in 1..4 {
        let ticket = world.start(write(file, number * 100, &[2; 100]));
        assert_eq!(world.finished.remove(&ticket), Some(Ok(Answer::Written(100))));
    }
    while servers.answer_all(&mut world) {}
    assert!(servers.log.contains(&"commit".to_owned()), "{:?}", servers.log);
    assert_eq!(world.client.counters().writes_held_back, 0);
    assert_eq!(read(&mut world, &mut servers, file, 0, 1000), [&[1; 100][..], &[2; 300]].concat());
}

#[test]
fn all_files_together_are_bounded_too() {
    let (mut world, mut servers) = stage_with(ClientConfig { buffer_bytes_max: 150, ..config() });
    let (a, _) = create_open(&mut world, &mut servers, "a");
    let (b, _) = create_open(&mut world, &mut servers, "b");
    done(&mut world, &mut servers, write(a, 0, &[1; 150]));
    servers.log.clear();
    done(&mut world, &mut servers, write(b, 0, &[2; 10]));
    assert!(servers.log.contains(&"commit".to_owned()), "the fuller file was written out");
    assert_eq!(read(&mut world, &mut servers, a, 149, 10), [1]);
}

#[test]
fn appends_of_one_writer_follow_each_other() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    for (round, bytes) in [b"one", b"two", b"six"].into_iter().enumerate() {
        done(
            &mut world,
            &mut servers,
            Operation::Write { file, offset: None, bytes: bytes.to_vec(), set_ids: SetIds::Keep },
        );
        if round == 1 {
            done(&mut world, &mut servers, Operation::Flush { file });
            world.pass(Duration::from_secs(3));
        }
    }
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"onetwosix");
}

#[test]
fn cutting_a_file_writes_out_first_and_later_reads_see_the_cut() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"onetwo"));
    let change = AttributeChange { size: Some(2), ..AttributeChange::default() };
    let cut = Operation::SetAttributes {
        node,
        file_type: FileType::Regular,
        who: Credentials::ROOT,
        change,
        file: Some(file),
    };
    servers.log.clear();
    done(&mut world, &mut servers, cut);
    assert_eq!(servers.log, ["open chunk avoiding []", "append", "commit", "set attributes"]);
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"on");
    done(&mut world, &mut servers, write(file, 4, b"x"));
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"on\0\0x");
}

#[test]
fn a_file_of_very_many_extents_is_opened_empty_although_its_server_drops_few_at_once() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    for at in 0..40 {
        done(&mut world, &mut servers, write(file, at * 100, b"extent"));
        done(&mut world, &mut servers, Operation::Flush { file });
    }
    servers.dropped_max = 4;
    servers.log.clear();
    let Operation::Open { node, who, read: wants, write, execute, .. } = open(node, true) else { panic!() };
    let emptied = Operation::Open { node, who, read: wants, write, truncate: true, execute };
    let file = opened(servers.perform(&mut world, emptied));
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"");
    assert!((10..40).contains(&servers.log.len()), "{:?}", servers.log);
}

#[test]
fn an_unlinked_open_file_is_kept_and_released_at_the_last_close() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"one"));
    let second = opened(servers.perform(&mut world, open(node, false)));
    servers.log.clear();
    let unlink = Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT };
    done(&mut world, &mut servers, unlink);
    done(&mut world, &mut servers, Operation::Flush { file });
    assert_eq!(read(&mut world, &mut servers, second, 0, 10), b"one");
    done(&mut world, &mut servers, Operation::Close { file });
    assert!(!servers.log.contains(&"release".to_owned()));
    done(&mut world, &mut servers, Operation::Close { file: second });
    assert_eq!(servers.log.first().map(String::as_str), Some("unlink keep_open=true"));
    assert_eq!(servers.log.last().map(String::as_str), Some("release"));
}

#[test]
fn a_recalled_file_that_is_open_or_being_opened_is_reported_as_open() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    let answer = |world: &mut World, number| {
        world.recall(number, vec![LeaseKey::File(node.node)]);
        let (number, _) = world.invalidations.pop().unwrap();
        world.step(Event::Invalidated(number));
        match world.sent.pop().unwrap().message {
            Message::Recalled(recalled) => recalled.open,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(&mut world, 1), [node.node]);
    done(&mut world, &mut servers, Operation::Close { file });
    assert_eq!(answer(&mut world, 2), []);
    let ticket = world.start(open(node, true));
    assert_eq!(answer(&mut world, 3), [node.node], "the server may have opened it already");
    opened(servers.run(&mut world, ticket));
}

#[test]
fn space_that_is_not_there_is_not_allocated() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, &[7; 100]));
    servers.bytes_free = 1000;
    let mut allocate = |end, grows| {
        let allocate = Operation::Allocate { file, start: 100, end, grows, set_ids: SetIds::Keep };
        servers.perform(&mut world, allocate)
    };
    assert_eq!(allocate(1101, true), Err(Code::NoSpace));
    assert_eq!(allocate(1101, false), Err(Code::NoSpace));
    assert_eq!(allocate(1100, true), Ok(Answer::Done), "what is stored needs no more room");
    assert_eq!(servers.files[&node.node].attributes.size, 1100);
}

#[test]
fn a_leased_file_is_opened_for_reading_without_asking() {
    let (mut world, mut servers) = stage();
    servers.lease = 10_000;
    let (file, node) = create_open(&mut world, &mut servers, "a");
    servers.log.clear();
    let reader = opened(servers.perform(&mut world, open(node, false)));
    assert!(servers.log.is_empty());
    assert_ne!(reader, file);
    let nobody = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    let asking =
        Operation::Open { node, who: nobody, read: true, write: true, truncate: false, execute: false };
    servers.perform(&mut world, asking).unwrap();
    assert_eq!(servers.log, ["open"], "writing is asked for");
}

#[test]
fn ending_makes_everything_stable_and_closes_the_session() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"one"));
    servers.log.clear();
    done(&mut world, &mut servers, Operation::End);
    assert_eq!(servers.log, ["open chunk avoiding []", "append", "sync", "commit", "finish"]);
    let late = world.start(Operation::Statfs);
    assert_eq!(world.result(late), Err(Code::SessionEnded));
}

#[test]
fn an_end_that_no_server_hears_of_is_not_waited_for_long() {
    let mut world = World::open();
    let ending = world.start(Operation::End);
    world.kernel_forgets();
    world.pass(Duration::from_millis(1_900));
    assert!(world.sent.iter().any(|sent| matches!(sent.request().call, Call::CloseSession)));
    assert!(!world.finished.contains_key(&ending));
    world.pass(Duration::from_millis(200));
    assert_eq!(world.result(ending), Ok(Answer::Done));
}

#[test]
fn another_clients_write_is_seen_by_the_next_open() {
    let (mut world, mut servers) = stage();
    let (_, node) = flushed(&mut world, &mut servers, "a", b"one");
    // Somebody else copies a part of it over another.
    let record = servers.files.get_mut(&node.node).unwrap();
    let mut extent = record.extents.parts(0..1).next().unwrap().extent;
    extent.file_offset = 2;
    record.extents.cover(extent);
    record.attributes.version = record.attributes.version.next();
    let file = opened(servers.perform(&mut world, open(node, false)));
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"ono");
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, (u8, usize)),
    Append((u8, usize)),
    Read(u64, u32),
    Cut(u64),
    /// From here, so many bytes; the file grows by it or not.
    Hole(u64, u64, bool),
    /// Where stored bytes begin, and where a hole does.
    Copy(u64, u64, u64),
    Seek(u64),
    Flush,
    /// Flush (or sync) without waiting for it.
    FlushBehind(bool),
    Sync,
    Reopen,
    Kill(ServerId),
    Revive,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || (any::<u8>(), 1usize..300);
    // Mostly near the start, where places meet, and sometimes some blocks further.
    let place = |end| {
        (prop_oneof![4 => Just(0), 1 => Just(4096), 1 => Just(8192)], 0u64..end)
            .prop_map(|(block, at)| block + at)
    };
    let step = prop_oneof![
        4 => (place(2000), bytes()).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        2 => bytes().prop_map(Step::Append),
        3 => (0u64..2500, 0u32..1000).prop_map(|(at, length)| Step::Read(at, length)),
        1 => place(2500).prop_map(Step::Cut),
        1 => (place(2500), 0u64..6000, any::<bool>()).prop_map(|(at, length, grow)| Step::Hole(at, length, grow)),
        2 => (0u64..2500, 0u64..2500, 0u64..1500).prop_map(|(from, to, length)| Step::Copy(from, to, length)),
        2 => place(2500).prop_map(Step::Seek),
        1 => Just(Step::Flush),
        2 => any::<bool>().prop_map(Step::FlushBehind),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => prop_oneof![Just(D1), Just(D2), Just(D3)].prop_map(Step::Kill),
        1 => Just(Step::Revive),
        1 => (0u64..8000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_file_is_a_plain_array_of_bytes_whatever_is_lost_repeated_or_put_off(
        steps in steps(), seed: u64, faults in 0u64..150, lease in prop_oneof![Just(0u32), Just(3000)],
        buffer in 200usize..2000, dropped_max in prop_oneof![2 => Just(usize::MAX), 1 => 1usize..4],
    ) {
        let config = ClientConfig {
            file_buffer_bytes_max: buffer,
            chunk_bytes_max: 3000,
            extents_per_file_max: 8,
            request_timeout: Duration::from_secs(600),
            ..config()
        };
        let mut world = World::open_with(config);
        let mut servers = Servers::new(seed);
        (servers.lease, servers.dropped_max) = (lease, dropped_max);
        let (mut file, node) = create_open(&mut world, &mut servers, "a");
        servers.faults = faults;
        let mut oracle: Vec<u8> = Vec::new();
        let mut stored: Vec<bool> = Vec::new();
        let mut behind = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, (byte, length)) => {
                    let bytes = vec![byte; length];
                    let end = at as usize + bytes.len();
                    oracle.resize(oracle.len().max(end), 0);
                    oracle[at as usize..end].copy_from_slice(&bytes);
                    stored.resize(oracle.len(), false);
                    stored[at as usize..end].fill(true);
                    done(&mut world, &mut servers, write(file, at, &bytes));
                }
                Step::Append((byte, length)) => {
                    let bytes = vec![byte; length];
                    oracle.extend_from_slice(&bytes);
                    stored.resize(oracle.len(), true);
                    done(&mut world, &mut servers, Operation::Write { file, offset: None, bytes, set_ids: SetIds::Keep });
                }
                Step::Read(at, length) => {
                    let from = (at as usize).min(oracle.len());
                    let to = (at as usize + length as usize).min(oracle.len());
                    prop_assert_eq!(read(&mut world, &mut servers, file, at, length), &oracle[from..to]);
                }
                Step::Cut(size) => {
                    oracle.resize(size as usize, 0);
                    stored.resize(size as usize, false);
                    let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
                    let who = Credentials::ROOT;
                    let file_type = FileType::Regular;
                    done(&mut world, &mut servers, Operation::SetAttributes { node, file_type, who, change, file: Some(file) });
                }
                Step::Hole(start, length, grow) => {
                    let end = start + length;
                    let size_min = if grow { end } else { 0 };
                    oracle.resize(oracle.len().max(size_min as usize), 0);
                    stored.resize(oracle.len(), false);
                    let (from, to) = ((start as usize).min(oracle.len()), (end as usize).min(oracle.len()));
                    oracle[from..to].fill(0);
                    stored[from..to].fill(false);
                    done(&mut world, &mut servers, Operation::MakeHole { file, start, end, size_min, set_ids: SetIds::Keep });
                }
                Step::Copy(from, to, length) => {
                    let (size, from_at, to_at) = (oracle.len(), from as usize, to as usize);
                    let count = (length as usize).min(size.saturating_sub(from_at));
                    let operation =
                        Operation::Copy { source: file, source_offset: from, target: file, target_offset: to, length, set_ids: SetIds::Keep };
                    let copied = servers.perform(&mut world, operation);
                    if from_at < to_at + count && to_at < from_at + count {
                        prop_assert_eq!(copied, Err(Code::InvalidArgument));
                        continue;
                    }
                    prop_assert_eq!(copied, Ok(Answer::Written(count as u32)));
                    if count > 0 {
                        oracle.resize(size.max(to_at + count), 0);
                        oracle.copy_within(from_at..from_at + count, to_at);
                        stored.resize(oracle.len(), false);
                        stored.copy_within(from_at..from_at + count, to_at);
                    }
                }
                Step::Seek(offset) => {
                    let from = offset as usize;
                    let blocks: Vec<bool> = stored.chunks(4096).map(|block| block.contains(&true)).collect();
                    let first = |wanted| {
                        (from..stored.len()).find(|at| blocks[at / 4096] == wanted).map(|at| at as u64)
                    };
                    let end = (from < stored.len()).then_some(stored.len() as u64);
                    for (target, place) in [(SeekTarget::Data, first(true)), (SeekTarget::Hole, first(false).or(end))] {
                        let sought = servers.perform(&mut world, Operation::Seek { file, offset, target });
                        prop_assert_eq!(sought, Ok(Answer::Place(place)), "{:?}", target);
                    }
                }
                Step::FlushBehind(stable) => {
                    let operation = if stable { Operation::Sync { file } } else { Operation::Flush { file } };
                    behind.push(world.start(operation));
                    servers.answer_all(&mut world);
                }
                Step::Flush => done(&mut world, &mut servers, Operation::Flush { file }),
                Step::Sync => done(&mut world, &mut servers, Operation::Sync { file }),
                Step::Reopen => {
                    done(&mut world, &mut servers, Operation::Flush { file });
                    done(&mut world, &mut servers, Operation::Close { file });
                    file = opened(servers.perform(&mut world, open(node, true)));
                }
                // One at a time, so that a copy of everything lives.
                Step::Kill(server) => servers.dead = [server].into(),
                Step::Revive => servers.dead.clear(),
                Step::Wait(millis) => world.pass(Duration::from_millis(millis)),
            }
        }
        servers.dead.clear();
        servers.faults = 0;
        for ticket in behind {
            prop_assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
        }
        done(&mut world, &mut servers, Operation::Sync { file });
        prop_assert_eq!(read(&mut world, &mut servers, file, 0, 20_000), &oracle[..]);
        let record = &servers.files[&node.node];
        prop_assert_eq!(record.attributes.size, oracle.len() as u64);
        let again = opened(servers.perform(&mut world, open(node, false)));
        prop_assert_eq!(read(&mut world, &mut servers, again, 0, 20_000), &oracle[..]);
    }
}

#[test]
fn a_commit_names_every_frame_once_in_the_order_of_the_file() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    for at in [900, 0, 500] {
        done(&mut world, &mut servers, write(file, at, b"x"));
    }
    let ticket = world.start(Operation::Flush { file });
    let commit = loop {
        let commit = world.sent.iter().find_map(|sent| match &sent.message {
            Message::Request(request) => match &request.call {
                Call::Commit { extents, size_min, .. } => Some((extents.clone(), *size_min)),
                _ => None,
            },
            _ => None,
        });
        if let Some(commit) = commit {
            break commit;
        }
        servers.answer_all(&mut world);
    };
    let offsets: Vec<_> = commit.0.iter().map(|extent| extent.file_offset).collect();
    assert_eq!((offsets, commit.1), (vec![0, 500, 900], 901));
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
}
