//! A server that follows a primary.

use super::bench::*;
use crate::{Config, LogCommand};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{Epoch, ServerId};
use std::sync::Arc;
use std::time::Duration;

const PRIMARY: Sender = Sender::Server(OTHER);
const DONE: Result<DataBody, DataError> = Ok(DataBody::Done);

/// A backup with one frame, and that frame.
fn backup() -> (Bench, Vec<u8>) {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    assert_eq!(bench.result(PRIMARY, replicate(0, 0, &bytes), &bytes), DONE);
    (bench, bytes)
}

#[test]
fn a_frame_is_acknowledged_when_it_is_written() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let said = bench.send(PRIMARY, 1, replicate(0, 0, &bytes), &bytes);
    assert_eq!(logs(&said), [LogCommand::Create { chunk: CHUNK, epoch: EPOCH }]);
    assert_eq!(answers(&bench.run()), [(1, DONE)]);
    let at = bytes.len() as u64;
    let said = bench.send(PRIMARY, 2, replicate(at, 0, &bytes), &bytes);
    let shared = Arc::new(bytes.clone());
    assert_eq!(logs(&said), [LogCommand::Append { chunk: CHUNK, offset: at, bytes: shared }]);
    assert_eq!(said.len(), 1);
    assert_eq!(answers(&bench.run()), [(2, DONE)]);
}

#[test]
fn frames_that_come_early_wait_for_the_gap_to_fill() {
    let (mut bench, bytes) = backup();
    let at = bytes.len() as u64;
    assert_eq!(bench.ask(PRIMARY, 3, replicate(3 * at, 0, &bytes), &bytes), []);
    assert_eq!(bench.ask(PRIMARY, 2, replicate(2 * at, 0, &bytes), &bytes), []);
    let said = bench.ask(PRIMARY, 1, replicate(at, 0, &bytes), &bytes);
    assert_eq!(answers(&said), [(1, DONE), (2, DONE), (3, DONE)]);
    assert_eq!(bench.machine.next_wake(), None);
}

#[test]
fn early_frames_wait_even_for_the_chunk_to_be_made() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let at = bytes.len() as u64;
    bench.send(PRIMARY, 2, replicate(at, 0, &bytes), &bytes);
    bench.send(PRIMARY, 1, replicate(0, 0, &bytes), &bytes);
    assert_eq!(answers(&bench.run()), [(1, DONE), (2, DONE)]);
}

#[test]
fn a_gap_that_does_not_fill_is_reported() {
    let (mut bench, bytes) = backup();
    bench.ask(PRIMARY, 3, replicate(3 * bytes.len() as u64, 0, &bytes), &bytes);
    let said = bench.advance(Duration::from_secs(1));
    assert_eq!(answers(&said), [(3, Err(DataError::BeyondEnd))]);
    assert_eq!(bench.machine.next_wake(), None);
}

#[test]
fn repeats_are_acknowledged_and_written_once() {
    let (mut bench, bytes) = backup();
    let said = bench.send(PRIMARY, 9, replicate(0, 0, &bytes), &bytes);
    assert_eq!((answers(&said), logs(&said).len()), (vec![(9, DONE)], 0));
    let at = bytes.len() as u64;
    bench.send(PRIMARY, 10, replicate(at, 0, &bytes), &bytes);
    assert_eq!(bench.send(PRIMARY, 10, replicate(at, 0, &bytes), &bytes), [], "still being written");
    assert_eq!(answers(&bench.run()), [(10, DONE)]);
}

#[test]
fn other_bytes_for_the_same_place_are_refused() {
    let (mut bench, bytes) = backup();
    let other = frame(2, 100);
    assert_eq!(bench.result(PRIMARY, replicate(0, 0, &other), &other), Err(DataError::Sealed));
    let at = bytes.len() as u64;
    assert_eq!(bench.result(PRIMARY, replicate(at, at, &bytes), &bytes), DONE);
    let late = bench.result(PRIMARY, replicate(0, 0, &bytes), &bytes);
    assert_eq!(late, Err(DataError::Sealed), "below what all have, nothing is sent again");
}

#[test]
fn only_the_primary_of_this_epoch_is_followed() {
    let (mut bench, bytes) = backup();
    let at = bytes.len() as u64;
    let call = || replicate(at, 0, &bytes);
    assert_eq!(bench.result(CLIENT, call(), &bytes), Err(DataError::Capability));
    assert_eq!(bench.result(Sender::Server(ServerId(8)), call(), &bytes), Err(DataError::Capability));
    for epoch in [Epoch(EPOCH.0 - 1), EPOCH.next()] {
        let call = DataCall::Replicate { epoch, offset: at, committed: 0, crc: crc32c::crc32c(&bytes) };
        assert_eq!(bench.result(PRIMARY, call, &bytes), Err(DataError::Sealed));
    }
    assert_eq!(
        bench.result(CLIENT, append(&[ME], &bytes), &bytes),
        Err(DataError::Capability),
        "it does not lead"
    );
}

#[test]
fn a_server_that_lacks_what_all_are_said_to_have_says_so() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    assert_eq!(bench.result(PRIMARY, replicate(500, 500, &bytes), &bytes), Err(DataError::NoChunk));
    assert_eq!(bench.machine.chunk_count(), 0);
    let (mut bench, bytes) = backup();
    assert_eq!(bench.result(PRIMARY, replicate(500, 500, &bytes), &bytes), Err(DataError::BeyondEnd));
}

#[test]
fn damaged_copies_are_refused() {
    let (mut bench, bytes) = backup();
    let call = replicate(bytes.len() as u64, 0, &bytes);
    assert_eq!(bench.result(PRIMARY, call, &frame(2, 100)), Err(DataError::Damaged));
    let call = replicate(bytes.len() as u64, 0, b"x");
    assert_eq!(bench.result(PRIMARY, call, b"x"), Err(DataError::Damaged));
}

#[test]
fn a_server_that_restarted_follows_no_more() {
    let (bench, bytes) = backup();
    let mut bench = bench.restarted();
    let lost = Err(DataError::ReplicaLost(ME));
    assert_eq!(bench.result(PRIMARY, replicate(bytes.len() as u64, 0, &bytes), &bytes), lost);
    let call = DataCall::SyncReplica { epoch: EPOCH, committed: bytes.len() as u64 };
    assert_eq!(bench.result(PRIMARY, call, &[]), lost, "what it had may be gone");
}

#[test]
fn a_full_disk_takes_frames_again_when_space_returns() {
    let (mut bench, bytes) = backup();
    let at = bytes.len() as u64;
    bench.log.set_full(true);
    bench.send(PRIMARY, 1, replicate(at, 0, &bytes), &bytes);
    bench.send(PRIMARY, 2, replicate(2 * at, 0, &bytes), &bytes);
    bench.send(PRIMARY, 3, replicate(9 * at, 0, &bytes), &bytes);
    let full = Err(DataError::Full);
    let mut said = answers(&bench.run());
    said.sort_by_key(|answer| answer.0);
    assert_eq!(said, [(1, full.clone()), (2, full.clone()), (3, full)]);
    bench.log.set_full(false);
    assert_eq!(bench.ask(PRIMARY, 2, replicate(2 * at, 0, &bytes), &bytes), []);
    let said = bench.ask(PRIMARY, 1, replicate(at, 0, &bytes), &bytes);
    assert_eq!(answers(&said), [(1, DONE), (2, DONE)]);
    assert!(!bench.machine.has_failed());
}

#[test]
fn early_frames_over_the_limit_are_dropped() {
    let bytes = frame(1, 100);
    let mut bench = Bench::with(Config { gap_frames_max: 1, ..Config::standard() });
    let at = bytes.len() as u64;
    assert_eq!(bench.result(PRIMARY, replicate(0, 0, &bytes), &bytes), DONE);
    bench.ask(PRIMARY, 3, replicate(3 * at, 0, &bytes), &bytes);
    bench.ask(PRIMARY, 2, replicate(2 * at, 0, &bytes), &bytes);
    assert_eq!(bench.machine.counters().dropped, 1);
}
