//! Syncs.

use super::bench::*;
use crate::{Command, Event, LogCommand};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError};
use std::time::Duration;

const DONE: Result<DataBody, DataError> = Ok(DataBody::Done);

fn pair() -> (Bench, Vec<u8>) {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    bench.reply(OTHER, 1000, DONE);
    (bench, bytes)
}

#[test]
fn a_sync_is_answered_when_all_servers_synced() {
    let (mut bench, bytes) = pair();
    let said = bench.send(CLIENT, 2, sync(&[ME, OTHER]), &[]);
    assert_eq!(logs(&said), [LogCommand::Sync { chunk: CHUNK }]);
    let call = DataCall::SyncReplica { epoch: EPOCH, committed: bytes.len() as u64 };
    assert_eq!(asks(&said), [(OTHER, 1001, call)]);
    assert_eq!(bench.reply(OTHER, 1001, DONE), []);
    assert_eq!(answers(&bench.run()), [(2, DONE)]);
    let again = bench.send(CLIENT, 3, sync(&[ME, OTHER]), &[]);
    assert_eq!(answers(&again), [(3, DONE)], "nothing was acknowledged since");
}

#[test]
fn syncs_that_wait_share_the_next_round() {
    let (mut bench, bytes) = pair();
    bench.ask(CLIENT, 2, sync(&[ME, OTHER]), &[]);
    bench.ask(CLIENT, 3, append(&[ME, OTHER], &bytes), &bytes);
    bench.reply(OTHER, 1002, DONE);
    for id in [4, 5, 6, 6] {
        assert_eq!(bench.ask(CLIENT, id, sync(&[ME, OTHER]), &[]), []);
    }
    let said = bench.reply(OTHER, 1001, DONE);
    assert_eq!(answers(&said), [(2, DONE)], "the others were not all acknowledged when it began");
    let call = DataCall::SyncReplica { epoch: EPOCH, committed: 2 * bytes.len() as u64 };
    assert_eq!(asks(&said), [(OTHER, 1003, call)]);
    bench.run();
    let said = bench.reply(OTHER, 1003, DONE);
    assert_eq!(answers(&said), [(4, DONE), (5, DONE), (6, DONE)]);
    assert_eq!(bench.machine.counters().log_syncs, 2);
}

#[test]
fn a_silent_server_is_asked_again_and_then_lost() {
    let (mut bench, _) = pair();
    bench.ask(CLIENT, 2, sync(&[ME, OTHER]), &[]);
    assert_eq!(asks(&bench.advance(Duration::from_millis(50))).len(), 1);
    let said = bench.advance(Duration::from_secs(10));
    assert_eq!(answers(&said), [(2, Err(DataError::ReplicaLost(OTHER)))]);
    assert_eq!(bench.machine.next_wake(), None);
}

#[test]
fn a_server_that_cannot_sync_is_lost() {
    let (mut bench, _) = pair();
    bench.ask(CLIENT, 2, sync(&[ME, OTHER]), &[]);
    let said = bench.reply(OTHER, 1001, Err(DataError::Failed));
    assert_eq!(answers(&said), [(2, Err(DataError::ReplicaLost(OTHER)))]);
}

#[test]
fn after_a_failed_sync_no_appends_are_taken_and_reads_go_on() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    bench.log.fail_next_sync();
    let said = bench.ask(CLIENT, 2, sync(&[ME]), &[]);
    assert_eq!(answers(&said), [(2, Err(DataError::Failed))]);
    assert!(said.iter().any(|command| matches!(command, Command::Note(crate::Note::DiskFailed { .. }))));
    assert!(bench.machine.has_failed());
    let failed = Err(DataError::Failed);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), failed);
    assert_eq!(bench.result(CLIENT, sync(&[ME]), &[]), failed);
    assert_eq!(bench.result(Sender::Server(OTHER), replicate(0, 0, &bytes), &bytes), failed);
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
}

#[test]
fn a_server_whose_disk_failed_offers_no_space() {
    let mut bench = Bench::new();
    assert!(matches!(bench.result(META, DataCall::Ping, &[]), Ok(DataBody::Space { .. })));
    let bytes = frame(1, 100);
    bench.append_alone(&bytes);
    bench.log.fail_next_sync();
    bench.ask(CLIENT, 2, sync(&[ME]), &[]);
    assert_eq!(bench.result(META, DataCall::Ping, &[]), Err(DataError::Failed));
}

#[test]
fn a_server_whose_clock_is_off_offers_no_space_until_it_is_right_again() {
    let mut bench = Bench::new();
    bench.step(Event::ClockOff(true));
    assert_eq!(bench.result(META, DataCall::Ping, &[]), Err(DataError::Clock));
    bench.step(Event::ClockOff(false));
    assert!(matches!(bench.result(META, DataCall::Ping, &[]), Ok(DataBody::Space { .. })));
}

#[test]
fn a_name_that_cannot_be_made_stable_is_a_failed_sync() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.log.fail_next_sync();
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Failed));
    assert!(bench.machine.has_failed());
}

#[test]
fn a_follower_syncs_once_for_what_is_stable_already() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let primary = Sender::Server(OTHER);
    bench.result(primary, replicate(0, 0, &bytes), &bytes).unwrap();
    let call = || DataCall::SyncReplica { epoch: EPOCH, committed: bytes.len() as u64 };
    let said = bench.send(primary, 2, call(), &[]);
    assert_eq!(logs(&said), [LogCommand::Sync { chunk: CHUNK }]);
    assert_eq!(bench.send(primary, 2, call(), &[]), [], "a repeat waits with the first");
    assert_eq!(answers(&bench.run()), [(2, DONE)]);
    let said = bench.send(primary, 3, call(), &[]);
    assert_eq!((answers(&said), logs(&said).len()), (vec![(3, DONE)], 0));
}

#[test]
fn a_sync_of_an_unknown_chunk_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.result(CLIENT, sync(&[ME]), &[]), Err(DataError::NoChunk));
    let call = DataCall::SyncReplica { epoch: EPOCH, committed: 1 };
    assert_eq!(bench.result(Sender::Server(OTHER), call, &[]), Err(DataError::NoChunk));
}
