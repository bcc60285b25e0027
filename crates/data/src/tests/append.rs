//! Appends at the primary.

use super::bench::*;
use crate::{Command, Config, LogCommand, Note};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, FramePart};
use bearing_proto::keys::Key;
use bearing_types::{ChunkId, Epoch, ServerId, SessionId, Wall};
use std::sync::Arc;
use std::time::Duration;

const ALL: [ServerId; 3] = [ME, OTHER, THIRD];

#[test]
fn the_first_append_makes_the_name_stable_before_others_hear_of_the_chunk() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let made = bench.send(CLIENT, 1, append(&ALL, &bytes), &bytes);
    assert_eq!(logs(&made), [LogCommand::Create { chunk: CHUNK, epoch: EPOCH }]);
    assert_eq!(made.len(), 1);

    let (ticket, create) = bench.pending.pop_front().unwrap();
    let event = create.run(ticket, &mut bench.log);
    let named = bench.step(event);
    assert_eq!(logs(&named), [LogCommand::Sync { chunk: CHUNK }]);
    assert_eq!(named.len(), 1);

    let (ticket, sync) = bench.pending.pop_front().unwrap();
    let event = sync.run(ticket, &mut bench.log);
    let open = bench.step(event);
    let shared = Arc::new(bytes.clone());
    assert_eq!(logs(&open), [LogCommand::Append { chunk: CHUNK, offset: 0, bytes: shared }]);
    let call = replicate(0, 0, &bytes);
    assert_eq!(asks(&open), [(OTHER, 1000, call.clone()), (THIRD, 1001, call)]);
    assert_eq!(open.len(), 3);
}

#[test]
fn each_step_of_an_append_and_its_sync_is_told() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    bench.ask(CLIENT, 2, sync(&[ME, OTHER]), &[]);
    bench.reply(OTHER, 1001, Ok(DataBody::Done));
    let append =
        ["append given to the log, not spread", "append is here", "append is everywhere, not answered"];
    let sync = ["sync begins", "synced here", "synced everywhere, not answered"];
    assert_eq!(bench.steps[0], "chunk is named");
    assert_eq!(bench.steps[1..], [append, sync].concat());
}

#[test]
fn an_append_is_acknowledged_only_when_all_servers_have_it() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let said = bench.ask(CLIENT, 1, append(&ALL, &bytes), &bytes);
    assert_eq!(answers(&said), []);
    assert_eq!(bench.reply(THIRD, 1001, Ok(DataBody::Done)), []);
    let said = bench.reply(OTHER, 1000, Ok(DataBody::Done));
    assert_eq!(answers(&said), [(1, Ok(DataBody::Appended { frame: 0 }))]);
    // The next one tells the others that the first is on all servers.
    let said = bench.ask(CLIENT, 2, append(&ALL, &bytes), &bytes);
    let end = bytes.len() as u64;
    assert_eq!(asks(&said)[0].2, replicate(end, end, &bytes));
}

#[test]
fn when_nothing_follows_the_others_are_told_what_all_have() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    let told = bench.advance(Duration::from_millis(2));
    let end = bytes.len() as u64;
    assert_eq!(asks(&told), [(OTHER, 1001, replicate(end, end, &[]))]);
    assert_eq!(told.len(), 1);
    assert_eq!(bench.machine.next_wake(), None, "once is enough");
}

#[test]
fn answers_of_servers_that_were_not_asked_do_not_count() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    assert_eq!(bench.reply(THIRD, 1000, Ok(DataBody::Done)), []);
    assert_eq!(bench.reply(OTHER, 999, Ok(DataBody::Done)), []);
    assert_eq!(
        bench.reply(
            OTHER,
            1000,
            Ok(DataBody::Space {
                used: 0,
                free: 0,
                filesystem: None,
                damaged: Vec::new(),
                life: 1,
                waiting: 0
            })
        ),
        []
    );
    assert_eq!(answers(&bench.reply(OTHER, 1000, Ok(DataBody::Done))).len(), 1);
}

#[test]
fn frames_lie_one_behind_the_other() {
    let mut bench = Bench::new();
    let (first, second) = (frame(1, 100), frame(2, 70_000));
    assert_eq!(bench.append_alone(&first), 0);
    assert_eq!(bench.append_alone(&second), first.len() as u64);
    assert_eq!(bench.append_alone(&first), (first.len() + second.len()) as u64);
    assert_eq!(bench.machine.counters().appends, 3);
}

/// A right to read much.
const READ: DataRight = DataRight::Read(FramePart { frame: 0, skip: 0, length: u32::MAX });

#[test]
fn an_append_without_the_right_is_refused() {
    let body = |change: &dyn Fn(&mut CapabilityBody)| {
        let mut body = capability_body(append_here());
        change(&mut body);
        body
    };
    let signed = |change: &dyn Fn(&mut CapabilityBody)| Capability::sign(body(change), &key());
    let cases = [
        ("another chunk", signed(&|body| body.chunk = ChunkId(1)), DataError::Capability),
        ("read only", signed(&|body| body.right = READ), DataError::Capability),
        ("expired", signed(&|body| body.expires = Wall(-1_000_000_000)), DataError::Capability),
        ("forged", Capability::sign(body(&|_| ()), &Key::new([6; 32])), DataError::Capability),
        ("another session", signed(&|body| body.session = SessionId(78)), DataError::Capability),
        (
            "other servers",
            signed(&|body| body.right = DataRight::append(EPOCH, &[OTHER, ME])),
            DataError::Capability,
        ),
        (
            "an older epoch",
            signed(&|body| body.right = DataRight::append(Epoch(3), &[ME])),
            DataError::Sealed,
        ),
        ("a newer epoch", signed(&|body| body.right = DataRight::append(Epoch(5), &[ME])), DataError::Sealed),
    ];
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    for (what, capability, error) in cases {
        let result = bench.result(CLIENT, append_under(capability, &[ME], &bytes), &bytes);
        assert_eq!(result, Err(error), "{what}");
    }
    assert_eq!(bench.machine.counters().refused, 8);
}

#[test]
fn a_capability_is_good_for_the_skew_of_clocks_after_its_end() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.now.wall = capability_body(append_here()).expires.after(Duration::from_millis(250));
    bench.append_alone(&bytes);
    bench.now.wall = bench.now.wall.after(Duration::from_nanos(1));
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Capability));
}

#[test]
fn damaged_and_senseless_attachments_are_refused() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let call = append(&[ME], &bytes);
    let mut flipped = bytes.clone();
    flipped[120] ^= 1;
    assert_eq!(bench.result(CLIENT, call, &flipped), Err(DataError::Damaged), "on the way");
    let call = append(&[ME], &flipped);
    assert_eq!(bench.result(CLIENT, call, &flipped), Err(DataError::Damaged), "before it was framed");
    let two = [bytes.clone(), bytes].concat();
    assert_eq!(bench.result(CLIENT, append(&[ME], &two), &two), Err(DataError::Damaged));
    assert_eq!(bench.result(CLIENT, append(&[ME], b"no frame"), b"no frame"), Err(DataError::Damaged));
    assert_eq!(bench.machine.chunk_count(), 0);
}

#[test]
fn only_the_first_server_leads_and_the_servers_stay_the_same() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    for servers in [&[OTHER, ME][..], &[], &[ME, OTHER, OTHER]] {
        assert_eq!(bench.result(CLIENT, append(servers, &bytes), &bytes), Err(DataError::Capability));
    }
    bench.append_alone(&bytes);
    assert_eq!(bench.result(CLIENT, append(&[ME, OTHER], &bytes), &bytes), Err(DataError::Capability));
}

#[test]
fn a_repeat_of_a_waiting_append_is_not_appended_again() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    assert_eq!(bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes), []);
    assert_eq!(answers(&bench.reply(OTHER, 1000, Ok(DataBody::Done))).len(), 1);
}

#[test]
fn a_silent_server_is_asked_again_and_then_lost() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&ALL, &bytes), &bytes);
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    assert_eq!(bench.machine.next_wake(), Some(bench.now.mono.after(Duration::from_millis(50))));
    let again = bench.advance(Duration::from_millis(50));
    assert_eq!(asks(&again), [(THIRD, 1001, replicate(0, 0, &bytes))]);
    bench.advance(Duration::from_millis(1900));
    let lost = bench.advance(Duration::from_millis(50));
    assert_eq!(answers(&lost), [(1, Err(DataError::ReplicaLost(THIRD)))]);
    assert!(lost.contains(&Command::Note(Note::ReplicaLost { chunk: CHUNK, server: THIRD })));
    let result = bench.result(CLIENT, append(&ALL, &bytes), &bytes);
    assert_eq!(result, Err(DataError::ReplicaLost(THIRD)), "no more appends under this epoch");
    assert_eq!(bench.machine.next_wake(), None);
    assert_eq!(bench.reply(THIRD, 1001, Ok(DataBody::Done)), [], "too late");
}

#[test]
fn a_slow_server_that_goes_on_is_not_lost() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    for id in 0..4 {
        bench.ask(CLIENT, id, append(&[ME, OTHER], &bytes), &bytes);
    }
    for id in 0..4 {
        bench.advance(Duration::from_millis(1500));
        let said = bench.reply(OTHER, 1000 + id, Ok(DataBody::Done));
        assert_eq!(answers(&said).len(), 1);
    }
}

#[test]
fn a_damaged_copy_goes_again() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    assert_eq!(bench.reply(OTHER, 1000, Err(DataError::Damaged)), []);
    assert_eq!(asks(&bench.advance(Duration::from_millis(50))).len(), 1);
}

#[test]
fn a_server_that_refuses_is_lost_at_once() {
    for error in [DataError::Failed, DataError::NoChunk, DataError::BeyondEnd, DataError::ReplicaLost(OTHER)]
    {
        let (mut bench, bytes) = (Bench::new(), frame(1, 100));
        bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
        let said = bench.reply(OTHER, 1000, Err(error));
        assert_eq!(answers(&said), [(1, Err(DataError::ReplicaLost(OTHER)))], "{error:?}");
    }
}

#[test]
fn a_full_disk_refuses_appends_and_goes_on_when_space_returns() {
    let (mut bench, bytes, later) = (Bench::new(), frame(1, 100), frame(2, 50));
    bench.append_alone(&bytes);
    bench.log.set_full(true);
    assert_eq!(bench.result(CLIENT, append(&[ME], &later), &later), Err(DataError::Full));
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Full));
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100), "reads go on");
    bench.log.set_full(false);
    bench.advance(Duration::from_millis(500));
    bench.run();
    // What was refused lies there now; nobody refers to it.
    assert_eq!(bench.append_alone(&bytes), (bytes.len() + later.len()) as u64);
    assert!(!bench.machine.has_failed());
}

#[test]
fn a_full_disk_refuses_new_chunks_and_forgets_them() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.log.set_full(true);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Full));
    assert_eq!(bench.machine.chunk_count(), 0);
    bench.log.set_full(false);
    assert_eq!(bench.append_alone(&bytes), 0);
}

#[test]
fn a_full_disk_says_so_and_answers_no_fence_or_removal_of_what_it_has_no_grave_for() {
    let mut bench = Bench::new();
    bench.log.set_full(true);
    let copy = DataCall::Copy { epoch: EPOCH, sources: vec![OTHER], length: 100 };
    assert_eq!(bench.result(META, copy, &[]), Err(DataError::Full), "not busy: another has room");
    let epoch = EPOCH.next();
    for call in [DataCall::Remove { epoch }, DataCall::Fence { epoch }] {
        // "Gone" would have to hold for ever, and a first append or a copy may be on its way.
        assert_eq!(bench.result(META, call, &[]), Err(DataError::Full));
    }
    assert_eq!((bench.machine.chunk_count(), bench.machine.has_failed()), (0, false));
}

#[test]
fn several_writes_on_the_way_to_a_full_disk_come_again_in_order() {
    let mut bench = Bench::new();
    let frames = [frame(1, 100), frame(2, 50), frame(3, 80)];
    bench.append_alone(&frames[0]);
    bench.log.set_full(true);
    bench.send(CLIENT, 1, append(&[ME], &frames[1]), &frames[1]);
    bench.send(CLIENT, 2, append(&[ME], &frames[2]), &frames[2]);
    let said = bench.run();
    assert_eq!(answers(&said), [(1, Err(DataError::Full)), (2, Err(DataError::Full))]);
    bench.log.set_full(false);
    bench.advance(Duration::from_millis(500));
    bench.run();
    let next = bench.append_alone(&frames[0]);
    assert_eq!(next, frames.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert_eq!(bench.bytes((frames[0].len() + frames[1].len()) as u64, 0, 80), payload(3, 80));
}

#[test]
fn a_full_disk_elsewhere_is_full_for_the_client_too() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    let said = bench.reply(OTHER, 1000, Err(DataError::Full));
    assert_eq!(answers(&said), [(1, Err(DataError::Full))]);
    assert_eq!(bench.result(CLIENT, append(&[ME, OTHER], &bytes), &bytes), Err(DataError::Full));
    assert_eq!(asks(&bench.advance(Duration::from_millis(50))).len(), 1, "the frame stays and goes again");
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    assert_eq!(asks(&bench.ask(CLIENT, 2, append(&[ME, OTHER], &bytes), &bytes)).len(), 1);
}

#[test]
fn appends_over_the_limits_are_dropped() {
    let config = Config { pipeline_frames_max: 2, ..Config::standard() };
    let (mut bench, bytes) = (Bench::with(config), frame(1, 100));
    for id in 0..3 {
        bench.ask(CLIENT, id, append(&[ME, OTHER], &bytes), &bytes);
    }
    assert_eq!(bench.machine.counters().dropped, 1);
    let config = Config { held_bytes_max: bytes.len() as u64, ..Config::standard() };
    let mut bench = Bench::with(config);
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    bench.ask(CLIENT, 2, append(&[ME, OTHER], &bytes), &bytes);
    assert_eq!(bench.machine.counters().dropped, 1);
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    assert_eq!(asks(&bench.ask(CLIENT, 2, append(&[ME, OTHER], &bytes), &bytes)).len(), 1);
}

#[test]
fn a_chunk_has_a_largest_length() {
    let bytes = frame(1, 100);
    let mut bench = Bench::with(Config { chunk_bytes_max: bytes.len() as u64, ..Config::standard() });
    bench.append_alone(&bytes);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Sealed));
}

#[test]
fn a_server_that_restarted_leads_no_chunk_it_had() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    let mut bench = bench.restarted();
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::ReplicaLost(ME)));
    assert_eq!(bench.result(CLIENT, sync(&[ME]), &[]), Err(DataError::ReplicaLost(ME)));
}
