//! Appends: the file's home says where they go, so that nobody's bytes are overwritten.

use super::files::{create_open, read, stage_with};
use super::servers::*;
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Call, CommitMode, Handle};
use bearing_types::*;
use proptest::prelude::*;
use std::time::Duration;

fn append(world: &mut World, servers: &mut Servers, file: OpenFile, bytes: &[u8]) {
    let operation = Operation::Write { file, offset: None, bytes: bytes.to_vec(), set_ids: SetIds::Keep };
    assert_eq!(servers.perform(world, operation), Ok(Answer::Written(bytes.len() as u32)));
}

fn put(world: &mut World, servers: &mut Servers, file: OpenFile, offset: u64, bytes: &[u8]) {
    let operation =
        Operation::Write { file, offset: Some(offset), bytes: bytes.to_vec(), set_ids: SetIds::Keep };
    assert_eq!(servers.perform(world, operation), Ok(Answer::Written(bytes.len() as u32)));
}

fn size(world: &mut World, servers: &mut Servers, node: Handle) -> u64 {
    match servers.perform(world, Operation::Attributes { node, file_type: FileType::Regular }) {
        Ok(Answer::Found(found)) => found.attributes.size,
        other => panic!("{other:?}"),
    }
}

/// Somebody else appends zeros.
fn foreign_append(servers: &mut Servers, node: Handle, bytes: u64) {
    let attributes = &mut servers.files.get_mut(&node.node).unwrap().attributes;
    attributes.size += bytes;
    attributes.version = attributes.version.next();
}

fn commits(servers: &Servers) -> Vec<&str> {
    servers.log.iter().map(String::as_str).filter(|call| call.ends_with("commit")).collect()
}

#[test]
fn appended_bytes_go_behind_what_others_appended_since() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, node) = create_open(&mut world, &mut servers, "log");
    append(&mut world, &mut servers, file, b"one");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    append(&mut world, &mut servers, file, b"two");
    foreign_append(&mut servers, node, 2);
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"one\0\0two");
    assert_eq!(size(&mut world, &mut servers, node), 8);
}

#[test]
fn unflushed_appends_are_counted_and_read_where_they_are() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, node) = create_open(&mut world, &mut servers, "log");
    append(&mut world, &mut servers, file, b"one");
    append(&mut world, &mut servers, file, b"two");
    assert_eq!(size(&mut world, &mut servers, node), 6);
    assert!(commits(&servers).is_empty());
    foreign_append(&mut servers, node, 1);
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"\0onetwo");
    append(&mut world, &mut servers, file, b"six");
    assert_eq!(read(&mut world, &mut servers, file, 0, 4), b"\0one");
    assert_eq!(commits(&servers), ["append commit"], "what is stored is read without writing out");
}

#[test]
fn an_append_and_a_write_to_a_place_wait_for_each_other() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, _) = create_open(&mut world, &mut servers, "log");
    put(&mut world, &mut servers, file, 2, b"xx");
    append(&mut world, &mut servers, file, b"end");
    assert_eq!(commits(&servers), ["commit"]);
    put(&mut world, &mut servers, file, 5, b"N");
    assert_eq!(commits(&servers), ["commit", "append commit"]);
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"\0\0xxeNd");
    assert_eq!(commits(&servers).len(), 2, "the last write is still buffered");
}

#[test]
fn appends_of_one_flush_are_one_commit_that_counts_from_the_end() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, _) = create_open(&mut world, &mut servers, "log");
    append(&mut world, &mut servers, file, b"first");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    append(&mut world, &mut servers, file, b"one");
    append(&mut world, &mut servers, file, b"two");
    let ticket = world.start(Operation::Flush { file });
    let commit = loop {
        let commit = world.sent.iter().find_map(|sent| match &sent.message {
            Message::Request(request) => match &request.call {
                Call::Commit { extents, size_min, mode, .. } => Some((extents.clone(), *size_min, *mode)),
                _ => None,
            },
            _ => None,
        });
        if let Some(commit) = commit {
            break commit;
        }
        servers.answer_all(&mut world);
    };
    assert_eq!((commit.0.len(), commit.0[0].file_offset, commit.0[0].length), (1, 0, 6));
    assert_eq!((commit.1, commit.2), (6, CommitMode::Append));
    assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"firstonetwo");
}

#[test]
fn what_is_too_much_for_one_commit_is_divided_between_writes_never_within_one() {
    let config = ClientConfig {
        commit_extents_max: 1,
        file_buffer_bytes_max: 64 << 20,
        chunk_bytes_max: 64 << 20,
        ..config()
    };
    let (mut world, mut servers) = stage_with(config);
    let (file, node) = create_open(&mut world, &mut servers, "log");
    // Two of these do not fit one frame.
    let length = 3 << 20;
    for byte in 1..=3 {
        append(&mut world, &mut servers, file, &vec![byte; length]);
    }
    let ticket = world.start(Operation::Flush { file });
    while !world.finished.contains_key(&ticket) {
        if !servers.answer_all(&mut world) {
            world.pass_to_next();
        }
        if commits(&servers).len() == 1 && servers.files[&node.node].attributes.size == length as u64 {
            foreign_append(&mut servers, node, 7);
        }
    }
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert_eq!(commits(&servers).len(), 3);
    let expected = [vec![1; length], vec![0; 7], vec![2; length], vec![3; length]].concat();
    assert!(read(&mut world, &mut servers, file, 0, 64 << 20) == expected);
}

#[test]
fn an_append_whose_chunk_failed_is_committed_once() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, _) = create_open(&mut world, &mut servers, "log");
    append(&mut world, &mut servers, file, b"one");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    servers.dead.insert(D2);
    append(&mut world, &mut servers, file, b"two");
    servers.log.clear();
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    assert_eq!(
        servers.log,
        ["append", "seal", "open chunk avoiding [], doubting [s12]", "append", "append commit"]
    );
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"onetwo");
}

#[test]
fn appends_that_could_not_be_stored_are_told_and_those_after_them_go_on() {
    let (mut world, mut servers) = (World::open(), Servers::new(1));
    let (file, node) = create_open(&mut world, &mut servers, "log");
    servers.commits_fail = Some(Code::NoSpace);
    append(&mut world, &mut servers, file, b"lost");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Err(Code::NoSpace));
    servers.commits_fail = None;
    assert_eq!(size(&mut world, &mut servers, node), 0);
    append(&mut world, &mut servers, file, b"kept");
    let sync = Operation::Sync { file };
    assert_eq!(servers.perform(&mut world, sync.clone()), Err(Code::NoSpace), "a sync tells of it too");
    assert_eq!(servers.perform(&mut world, sync), Ok(Answer::Done));
    assert_eq!(read(&mut world, &mut servers, file, 0, 10), b"kept");
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Foreign(u64),
    Read,
    FlushBehind,
    Flush,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1usize..300).prop_map(Step::Append),
        2 => (1u64..200).prop_map(Step::Foreign),
        2 => Just(Step::Read),
        2 => Just(Step::FlushBehind),
        1 => Just(Step::Flush),
        1 => (0u64..8000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_append_is_in_the_file_once_whole_and_in_order_whatever_others_append(
        steps in steps(), seed: u64, faults in 0u64..150, lease in prop_oneof![Just(0u32), Just(3000)],
        buffer in 200usize..2000, extents_max in 1usize..4,
    ) {
        let config = ClientConfig {
            file_buffer_bytes_max: buffer,
            chunk_bytes_max: 3000,
            commit_extents_max: extents_max,
            request_timeout: Duration::from_secs(600),
            ..config()
        };
        let mut world = World::open_with(config);
        let mut servers = Servers::new(seed);
        servers.lease = lease;
        let (file, node) = create_open(&mut world, &mut servers, "log");
        servers.faults = faults;
        // Every byte of the n-th append is n. Zeros are of others.
        let (mut lengths, mut foreign, mut behind) = (Vec::new(), 0, Vec::new());
        for step in steps {
            match step {
                Step::Append(length) => {
                    lengths.push(length);
                    append(&mut world, &mut servers, file, &vec![lengths.len() as u8; length]);
                }
                Step::Foreign(bytes) => {
                    foreign += bytes;
                    foreign_append(&mut servers, node, bytes);
                }
                Step::Read => {
                    let own = lengths.iter().sum::<usize>();
                    let seen = read(&mut world, &mut servers, file, 0, 1 << 20);
                    prop_assert!(seen.len() as u64 <= own as u64 + foreign);
                    prop_assert_eq!(seen.iter().filter(|byte| **byte != 0).count(), own);
                }
                Step::FlushBehind => {
                    behind.push(world.start(Operation::Flush { file }));
                    servers.answer_all(&mut world);
                }
                Step::Flush => {
                    prop_assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
                }
                Step::Wait(millis) => world.pass(Duration::from_millis(millis)),
            }
        }
        servers.faults = 0;
        for ticket in behind {
            prop_assert_eq!(servers.run(&mut world, ticket), Ok(Answer::Done));
        }
        prop_assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Ok(Answer::Done));
        world.pass(Duration::from_secs(5));
        let seen = read(&mut world, &mut servers, file, 0, 1 << 20);
        prop_assert_eq!(seen.len() as u64, lengths.iter().sum::<usize>() as u64 + foreign);
        let mut at = 0;
        for (index, length) in lengths.iter().enumerate() {
            let byte = index as u8 + 1;
            at += seen[at..].iter().take_while(|other| **other == 0).count();
            prop_assert!(seen[at..].len() >= *length);
            prop_assert!(seen[at..at + length].iter().all(|other| *other == byte), "{seen:?}");
            at += length;
        }
        prop_assert!(seen[at..].iter().all(|other| *other == 0));
    }
}
