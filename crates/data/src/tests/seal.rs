//! Fences, seals, removals, pings.

use super::bench::*;
use crate::{Config, LogCommand, Note};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_seams::{ChunkLog, End, MemChunkLog};
use bearing_types::Epoch;
use std::time::Duration;

const FENCE: Epoch = Epoch(5);
const DONE: Result<DataBody, DataError> = Ok(DataBody::Done);

fn fence() -> DataCall {
    DataCall::Fence { epoch: FENCE }
}

fn seal(length: u64) -> DataCall {
    DataCall::Seal { epoch: FENCE, length }
}

fn fenced(length: u64, restarted: bool) -> Result<DataBody, DataError> {
    Ok(DataBody::Fenced { length, restarted, damaged: Vec::new() })
}

/// A server with two frames of one chunk, and the length of one.
fn two_frames() -> (Bench, u64) {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    bench.append_alone(&bytes);
    (bench, bytes.len() as u64)
}

#[test]
fn a_fence_tells_the_length_and_refuses_what_comes_under_older_epochs() {
    let (mut bench, one) = two_frames();
    let said = bench.send(META, 1, fence(), &[]);
    let set = LogCommand::Set {
        chunk: CHUNK,
        epoch: FENCE,
        length: 2 * one,
        end: End::Fenced { restarted: false },
    };
    assert_eq!(logs(&said), [set]);
    assert_eq!(answers(&bench.run()), [(1, fenced(2 * one, false))]);
    let bytes = frame(3, 10);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Sealed));
    assert_eq!(bench.result(CLIENT, sync(&[ME]), &[]), Err(DataError::Sealed));
    let old = DataCall::Fence { epoch: EPOCH };
    assert_eq!(bench.result(META, old, &[]), Err(DataError::Sealed));
    let again = bench.send(META, 2, fence(), &[]);
    assert_eq!((answers(&again), logs(&again).len()), (vec![(2, fenced(2 * one, false))], 0));
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
}

#[test]
fn a_fence_ends_what_waits_and_lets_writes_come_to_rest() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    bench.send(CLIENT, 2, append(&[ME, OTHER], &bytes), &bytes);
    let said = bench.send(META, 3, fence(), &[]);
    let sealed = Err(DataError::Sealed);
    assert_eq!((answers(&said), logs(&said).len()), (vec![(1, sealed.clone()), (2, sealed)], 0));
    assert_eq!(bench.reply(OTHER, 1000, DONE), [], "too late");
    assert_eq!(answers(&bench.run()), [(3, fenced(2 * bytes.len() as u64, false))]);
}

#[test]
fn a_fence_of_a_chunk_in_the_making_comes_before_its_first_frame() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.send(CLIENT, 1, append(&[ME], &bytes), &bytes);
    bench.send(META, 2, fence(), &[]);
    let said = bench.run();
    assert_eq!(answers(&said), [(1, Err(DataError::Sealed)), (2, Err(DataError::NoChunk))]);
}

#[test]
fn a_restarted_server_says_so_and_cuts_what_is_torn() {
    let whole = frame(1, 150_000);
    let mut log = MemChunkLog::new();
    log.create(CHUNK, EPOCH).unwrap();
    log.append(CHUNK, 0, &whole).unwrap();
    log.append(CHUNK, whole.len() as u64, &frame(2, 100)[..150]).unwrap();
    let mut bench = Bench::on(log, Config::standard());
    let said = bench.ask(META, 1, fence(), &[]);
    let (before, after) = (whole.len() as u64 + 150, whole.len() as u64);
    assert_eq!(said[0], crate::Command::Note(Note::Cut { chunk: CHUNK, before, after }));
    assert_eq!(answers(&said), [(1, fenced(after, true))]);
    let entry = bench.log.chunks().unwrap()[0];
    assert_eq!((entry.epoch, entry.length, entry.sealed), (FENCE, after, None));
    assert_eq!(bench.result(META, seal(after), &[]), DONE);
}

#[test]
fn what_is_of_a_newer_version_is_not_cut() {
    let newer = newer_frame();
    let mut log = MemChunkLog::new();
    log.create(CHUNK, EPOCH).unwrap();
    log.append(CHUNK, 0, &newer).unwrap();
    let mut bench = Bench::on(log, Config::standard());
    assert_eq!(bench.result(META, fence(), &[]), Err(DataError::Failed));
    assert_eq!(bench.log.chunks().unwrap()[0].length, newer.len() as u64);
}

#[test]
fn scans_beyond_the_limit_wait_their_turn() {
    let mut log = MemChunkLog::new();
    let chunks: Vec<_> = (0..5).map(bearing_types::ChunkId).collect();
    for chunk in &chunks {
        log.create(*chunk, EPOCH).unwrap();
        log.append(*chunk, 0, &frame(1, 100)).unwrap();
    }
    let mut bench = Bench::on(log, Config { scans_max: 2, ..Config::standard() });
    for chunk in &chunks {
        bench.send_to(*chunk, META, chunk.0, fence(), &[]);
    }
    assert_eq!(bench.pending.len(), 2);
    assert_eq!(answers(&bench.run()).len(), 5);
}

#[test]
fn a_seal_is_stable_and_the_same_when_repeated() {
    let (mut bench, one) = two_frames();
    bench.ask(META, 1, fence(), &[]);
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    let again = bench.send(META, 3, seal(2 * one), &[]);
    assert_eq!((answers(&again), logs(&again).len()), (vec![(3, DONE)], 0));
    assert_eq!(bench.log.chunks().unwrap()[0].sealed, Some(2 * one));
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
    assert_eq!(bench.result(CLIENT, read(2 * one, 0, 1), &[]), Err(DataError::BeyondEnd));
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));

    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false), "sealed is stable");
    assert_eq!(bench.result(META, seal(3 * one), &[]), Err(DataError::Corrupt));
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
}

#[test]
fn what_a_fence_told_is_not_cut_by_a_seal_that_found_less_elsewhere() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));
    assert_eq!(bench.result(META, seal(one), &[]), DONE);
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false), "another try to seal goes on");
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100));
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, seal(one), &[]), DONE);
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100));
}

#[test]
fn a_seal_whose_fence_was_lost_cuts_nothing_because_it_may_be_late() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, seal(one), &[]), DONE);
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE, "what is recorded");
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100));
}

#[test]
fn what_a_fence_told_is_told_again_after_a_restart_and_not_cut_by_a_late_seal() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false), "it was stable");
    let bytes = frame(3, 10);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Sealed));
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, seal(one), &[]), DONE);
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100));
}

#[test]
fn what_was_found_by_a_restart_is_told_as_such_however_often_it_is_fenced_sealed_and_found() {
    let (bench, one) = two_frames();
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, true));
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, true));
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    // A try that heard no other server may be given up after its seal: the next one hears one that has more.
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, true));
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, true));
}

#[test]
fn a_seal_without_its_fence_fences_too() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    let bytes = frame(3, 10);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Sealed));
}

#[test]
fn a_seal_beyond_what_is_here_is_not_taken() {
    let (mut bench, one) = two_frames();
    bench.ask(META, 1, fence(), &[]);
    assert_eq!(bench.result_of_short_seal(3 * one), Err(DataError::Corrupt));
    assert_eq!(bench.log.chunks().unwrap()[0].sealed, None);
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100), "what is here is still read");
}

impl Bench {
    fn result_of_short_seal(&mut self, length: u64) -> Result<DataBody, DataError> {
        let said = self.ask(META, 2, seal(length), &[]);
        assert!(said.iter().any(|command| matches!(command, crate::Command::Note(Note::Short { .. }))));
        answers(&said)[0].1.clone()
    }
}

#[test]
fn a_newer_seal_may_cut_further() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    let newer = |length| DataCall::Seal { epoch: FENCE.next(), length };
    assert_eq!(bench.result(META, newer(one), &[]), DONE);
    assert_eq!(bench.result(META, seal(2 * one), &[]), Err(DataError::Sealed));
    assert_eq!(bench.result(META, DataCall::Fence { epoch: FENCE.next() }, &[]), fenced(one, false));
}

#[test]
fn a_fence_of_an_unknown_chunk_keeps_it_from_coming_to_life_and_tells_no_length() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    assert_eq!(bench.result(META, seal(0), &[]), Err(DataError::NoChunk));
    for _ in 0..2 {
        assert_eq!(bench.result(META, fence(), &[]), Err(DataError::NoChunk));
        assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Sealed));
        let primary = Sender::Server(OTHER);
        assert_eq!(bench.result(primary, replicate(0, 0, &bytes), &bytes), Err(DataError::Sealed));
        bench = bench.restarted();
    }
    assert_eq!(bench.result(META, seal(0), &[]), DONE);
}

/// Three frames and what a crash left of a fourth, found by a restarted server after something happened to
/// the disk.
fn three_frames_and(harm: impl FnOnce(&mut MemChunkLog, [u64; 3])) -> (Bench, [u64; 3]) {
    let mut log = MemChunkLog::new();
    log.create(CHUNK, EPOCH).unwrap();
    let mut ends = [0; 3];
    for (salt, end) in ends.iter_mut().enumerate() {
        let offset = log.chunks().unwrap()[0].length;
        log.append(CHUNK, offset, &frame(salt as u64, 300)).unwrap();
        *end = log.chunks().unwrap()[0].length;
    }
    log.append(CHUNK, ends[2], &frame(3, 300)[..200]).unwrap();
    log.sync(CHUNK).unwrap();
    harm(&mut log, ends);
    (Bench::on(log, Config::standard()), ends)
}

#[test]
fn a_replica_that_is_damaged_in_the_middle_keeps_and_tells_what_follows() {
    // In the header and in the payload of the second frame.
    for place in [20, 200] {
        let (mut bench, [first, second, third]) =
            three_frames_and(|log, [first, ..]| log.flip_bit(CHUNK, first as usize + place));
        let told = Ok(DataBody::Fenced { length: third, restarted: true, damaged: vec![(first, second)] });
        assert_eq!(bench.result(META, fence(), &[]), told);
        assert_eq!(bench.bytes(second, 0, 300), payload(2, 300));
        assert_eq!(bench.result(CLIENT, read(first, 0, 300), &[]), Err(DataError::Corrupt));
        let mut bench = bench.restarted();
        assert_eq!(bench.result(META, fence(), &[]), told, "however often it is asked");
        assert_eq!(bench.result(META, seal(first), &[]), DONE, "what is damaged lies behind that");
        let mut bench = bench.restarted();
        assert_eq!(bench.result(META, seal(third), &[]), Err(DataError::Corrupt));
        assert_eq!(bench.log.chunks().unwrap()[0].length, third, "it is sealed as it is");
        let Ok(DataBody::Space { damaged, .. }) = bench.result(META, DataCall::Ping, &[]) else {
            panic!("no ping")
        };
        assert_eq!(damaged, [CHUNK]);
        assert_eq!(bench.bytes(second, 0, 300), payload(2, 300));
    }
}

#[test]
fn what_rots_after_a_fence_is_told_by_the_next_one_after_a_start() {
    let bytes = frame(1, 100).len();
    for (place, length, damaged) in [(100, 2 * bytes, vec![(0, bytes as u64)]), (bytes + 100, bytes, vec![])]
    {
        let (mut bench, one) = two_frames();
        assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));
        bench.log.flip_bit(CHUNK, place);
        let mut bench = bench.restarted();
        let told = Ok(DataBody::Fenced { length: length as u64, restarted: true, damaged });
        assert_eq!(bench.result(META, fence(), &[]), told);
        assert_eq!(bench.result(META, seal(2 * one), &[]), Err(DataError::Corrupt));
    }
}

#[test]
fn a_fence_of_a_sealed_chunk_reads_it_anew_and_what_is_damaged_is_known_from_then_on() {
    let (mut bench, one) = two_frames();
    assert_eq!(bench.result(META, fence(), &[]), fenced(2 * one, false));
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    bench.log.flip_bit(CHUNK, 100);
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE, "nobody has looked");
    let told = Ok(DataBody::Fenced { length: 2 * one, restarted: true, damaged: vec![(0, one)] });
    assert_eq!(bench.result(META, fence(), &[]), told);
    assert_eq!(bench.result(META, seal(2 * one), &[]), Err(DataError::Corrupt));
    let Ok(DataBody::Space { damaged, .. }) = bench.result(META, DataCall::Ping, &[]) else {
        panic!("no ping")
    };
    assert_eq!(damaged, [CHUNK]);
    assert_eq!(bench.bytes(one, 0, 100), payload(1, 100), "the other frame is read as before");
}

#[test]
fn a_sealed_replica_whose_file_is_cut_short_is_corrupt_under_any_epoch_and_its_disk_good() {
    let mut log = MemChunkLog::new();
    log.create(CHUNK, EPOCH).unwrap();
    log.append(CHUNK, 0, &frame(1, 100)).unwrap();
    log.sync(CHUNK).unwrap();
    let mut chunks = log.chunks().unwrap();
    let length = chunks[0].length;
    chunks[0].sealed = Some(length + 8);
    let mut bench = Bench::listing(log, Config::standard(), chunks);
    let newer = Epoch(9);
    let told = Ok(DataBody::Fenced { length, restarted: false, damaged: vec![(length, length + 8)] });
    assert_eq!(bench.result(META, DataCall::Fence { epoch: newer }, &[]), told);
    let seal = DataCall::Seal { epoch: newer, length: length + 8 };
    assert_eq!(bench.result(META, seal, &[]), Err(DataError::Corrupt));
    assert!(!bench.machine.has_failed());
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
}

#[test]
fn who_has_nothing_of_a_chunk_says_nothing_of_its_end() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let frames = DataCall::Frames { from: 0, end: bytes.len() as u64, count_max: 10 };
    assert_eq!(bench.result(META, frames.clone(), &[]), Err(DataError::NoChunk));
    assert_eq!(bench.result(META, fence(), &[]), Err(DataError::NoChunk));
    assert_eq!(bench.result(META, frames.clone(), &[]), Err(DataError::NoChunk), "the fence made it known");
    assert_eq!(Bench::headless().result(META, frames, &[]), Err(DataError::Corrupt));
}

#[test]
fn what_is_damaged_before_a_torn_end_is_torn_off_with_it() {
    let (mut bench, [_, second, _]) =
        three_frames_and(|log, [_, second, _]| log.flip_bit(CHUNK, second as usize + 200));
    assert_eq!(bench.result(META, fence(), &[]), fenced(second, true));
    assert_eq!(bench.log.chunks().unwrap()[0].length, second);
}

#[test]
fn what_cannot_be_read_is_not_cut() {
    let (mut bench, [first, _, third]) = three_frames_and(|_, _| {});
    bench.send(META, 1, fence(), &[]);
    let (ticket, _) = bench.pending.pop_front().unwrap();
    let error = bearing_seams::EngineError::Corrupt { what: "a sector".into() };
    let said = bench.step(crate::Event::ReadDone { ticket, result: Err(error) });
    let length = third + 200;
    let told = Ok(DataBody::Fenced { length, restarted: true, damaged: vec![(0, length)] });
    assert_eq!(logs(&said).len(), 1, "nothing is left to read: {said:?}");
    assert_eq!(answers(&bench.run()), [(1, told)]);
    assert_eq!(bench.bytes(first, 0, 300), payload(1, 300), "another time");
}

#[test]
fn a_read_that_fails_for_another_reason_than_the_disk_is_no_damage() {
    let (mut bench, _) = three_frames_and(|_, _| {});
    bench.send(META, 1, fence(), &[]);
    let (ticket, _) = bench.pending.pop_front().unwrap();
    let error = bearing_seams::EngineError::Failed { doing: "open: too many files".into() };
    let said = bench.step(crate::Event::ReadDone { ticket, result: Err(error) });
    assert_eq!(answers(&said), [(1, Err(DataError::Failed))]);
    let told = bench.result(META, fence(), &[]);
    assert!(matches!(&told, Ok(DataBody::Fenced { damaged, .. }) if damaged.is_empty()), "{told:?}");
}

#[test]
fn nothing_that_is_whole_is_no_length_either() {
    let (mut bench, _) = three_frames_and(|log, _| {
        for place in (0..2000).step_by(100) {
            log.flip_bit(CHUNK, place);
        }
    });
    assert_eq!(bench.result(META, fence(), &[]), Err(DataError::NoChunk));
}

#[test]
fn other_servers_fetch_from_a_replica_that_is_too_short_to_be_sealed() {
    let (mut bench, one) = two_frames();
    bench.ask(META, 1, fence(), &[]);
    assert_eq!(bench.result(META, seal(3 * one), &[]), Err(DataError::Corrupt));
    let other = Sender::Server(OTHER);
    let fetch = |offset| DataCall::Fetch { offset, length: 3 * one as u32 };
    let said = bench.ask(other, 3, fetch(0), &[]);
    let [crate::Command::Answer { attachment, .. }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(attachment.len() as u64, 2 * one, "what is here of it");
    assert_eq!(bench.result(other, fetch(2 * one), &[]), Err(DataError::BeyondEnd));
    let frames = |from| DataCall::Frames { from, end: 3 * one, count_max: 10 };
    let Ok(DataBody::Frames { frames: listed, next }) = bench.result(META, frames(0), &[]) else {
        panic!("not listed")
    };
    assert_eq!((listed.len(), next), (2, Some(2 * one)), "the rest is to be had elsewhere");
    assert_eq!(bench.result(META, frames(2 * one), &[]), Err(DataError::BeyondEnd));
}

#[test]
fn clients_may_not_ask_for_what_servers_ask_each_other() {
    let (mut bench, one) = two_frames();
    let epoch = Epoch(9);
    let calls = [
        fence(),
        seal(one),
        DataCall::Remove { epoch },
        DataCall::Ping,
        DataCall::Replicate { epoch: Epoch(1), offset: 2 * one, committed: 2 * one, crc: 0 },
        DataCall::SyncReplica { epoch: Epoch(1), committed: 2 * one },
        DataCall::Frames { from: 0, end: one, count_max: 10 },
        DataCall::Copy { epoch, sources: vec![bearing_types::ServerId(1002)], length: one },
        DataCall::Gather {
            epoch,
            from: CHUNK,
            sources: vec![bearing_types::ServerId(1002)],
            pieces: Default::default(),
            length: one,
        },
        DataCall::Fetch { offset: 0, length: 8 },
        DataCall::Verify { length: one },
        DataCall::Holds { chunks: vec![(CHUNK, one)] },
    ];
    for call in calls {
        let told = format!("{call:?}");
        assert_eq!(bench.result(CLIENT, call, &[]), Err(DataError::Capability), "{told}");
        assert_eq!(bench.machine.chunk_count(), 1);
    }
}

#[test]
fn a_fence_that_cannot_be_made_stable_is_refused() {
    let (mut bench, _) = two_frames();
    bench.log.fail_next_sync();
    let said = bench.ask(META, 1, fence(), &[]);
    assert_eq!(answers(&said), [(1, Err(DataError::Failed))]);
    assert!(bench.machine.has_failed());
}

#[test]
fn after_a_failed_sync_a_fence_does_not_count_on_the_bytes() {
    let (mut bench, one) = two_frames();
    bench.log.fail_next_sync();
    bench.ask(CLIENT, 1, sync(&[ME]), &[]);
    let said = bench.send(META, 2, fence(), &[]);
    let length = (2 * one) as u32;
    assert_eq!(logs(&said), [LogCommand::Read { chunk: CHUNK, offset: 0, length }]);
    assert!(matches!(answers(&bench.run())[..], [(2, Err(DataError::Failed))]));
}

#[test]
fn removing_is_the_same_when_repeated() {
    let (mut bench, _) = two_frames();
    bench.send(META, 1, DataCall::Remove { epoch: Epoch(9) }, &[]);
    bench.send(META, 2, DataCall::Remove { epoch: Epoch(9) }, &[]);
    assert_eq!(answers(&bench.send(CLIENT, 3, read(0, 0, 1), &[])), [(3, Err(DataError::NoChunk))]);
    assert_eq!(answers(&bench.run()), [(1, DONE), (2, DONE)]);
    assert_eq!(bench.result(META, DataCall::Remove { epoch: Epoch(9) }, &[]), DONE);
    let entry = bench.log.chunks().unwrap()[0];
    assert_eq!((entry.length, entry.sealed, entry.epoch), (0, Some(0), Epoch(9)));
    assert_eq!(bench.machine.chunk_count(), 0);
}

#[test]
fn a_removed_chunk_is_not_brought_back_to_life_by_what_comes_late() {
    // Removed with its bytes, and removed where no append had come to yet.
    for removed in [two_frames().0, Bench::new()] {
        let (mut bench, late) = (removed, frame(7, 50));
        bench.ask(META, 1, DataCall::Remove { epoch: Epoch(9) }, &[]);
        bench.ask(META, 2, DataCall::Remove { epoch: Epoch(9) }, &[]);
        for restarts in 0..2 {
            assert_eq!(
                bench.result(CLIENT, append(&[ME], &late), &late),
                Err(DataError::Sealed),
                "{restarts}"
            );
            let primary = Sender::Server(OTHER);
            assert_eq!(bench.result(primary, replicate(0, 0, &late), &late), Err(DataError::Sealed));
            assert_eq!(bench.result(CLIENT, read(0, 0, 1), &[]), Err(DataError::NoChunk));
            assert_eq!(bench.result(META, DataCall::Remove { epoch: Epoch(9) }, &[]), DONE);
            bench = bench.restarted();
        }
    }
}

#[test]
fn a_chunk_without_a_header_is_told_as_damaged_and_can_be_removed_and_copied_again() {
    let (mut bench, bytes) = (Bench::headless(), frame(1, 100));
    let Ok(DataBody::Space { damaged, .. }) = bench.result(META, DataCall::Ping, &[]) else {
        panic!("no ping")
    };
    assert_eq!(damaged, [CHUNK]);
    assert_eq!(bench.result(CLIENT, append(&[ME], &bytes), &bytes), Err(DataError::Corrupt));
    assert_eq!(bench.result(CLIENT, read(0, 0, 1), &[]), Err(DataError::NoChunk));
    assert_eq!(bench.result(META, fence(), &[]), Err(DataError::Corrupt));
    // Its file goes, then a grave is made, then there is one.
    for id in 1..3 {
        bench.ask(META, id, DataCall::Remove { epoch: Epoch(9) }, &[]);
    }
    assert_eq!(bench.result(META, DataCall::Remove { epoch: Epoch(9) }, &[]), DONE);
    assert!(!bench.machine.has_failed());
}

#[test]
fn graves_are_forgotten_after_their_time() {
    let (mut bench, _) = two_frames();
    bench.ask(META, 1, DataCall::Remove { epoch: Epoch(9) }, &[]);
    let mut bench = bench.restarted();
    bench.advance(Duration::ZERO);
    bench.advance(Config::standard().grave_ttl / 2);
    assert_eq!(bench.log.chunks().unwrap().len(), 1);
    bench.advance(Config::standard().grave_ttl);
    bench.run();
    assert_eq!(bench.log.chunks().unwrap().len(), 0);
    assert_eq!(bench.machine.next_wake(), None);
}

#[test]
fn a_removal_ends_what_waits() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    let said = bench.ask(META, 2, DataCall::Remove { epoch: Epoch(9) }, &[]);
    assert_eq!(answers(&said), [(1, Err(DataError::NoChunk)), (2, DONE)]);
    let forgotten = bench.now.mono.after(Config::standard().grave_ttl);
    assert_eq!(bench.machine.next_wake(), Some(forgotten));
}

#[test]
fn a_ping_tells_the_space() {
    let (mut bench, one) = two_frames();
    let result = bench.result(META, DataCall::Ping, &[]);
    assert!(matches!(result, Ok(DataBody::Space { used, free, .. }) if used == 2 * one && free > 0));
}

#[test]
fn a_chunk_of_which_the_client_knows_more_than_is_here_is_not_made_anew() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    let DataCall::Append { capability, servers, crc, .. } = append(&[ME], &bytes) else { unreachable!() };
    let lost = DataCall::Append { capability, servers, known: 1, crc };
    assert_eq!(bench.result(CLIENT, lost.clone(), &bytes), Err(DataError::NoChunk));
    assert_eq!(bench.append_alone(&bytes), 0);
    assert!(bench.result(CLIENT, lost, &bytes).is_ok());
}

#[test]
fn a_server_tells_which_sealed_chunks_it_does_not_hold() {
    let (mut bench, one) = two_frames();
    let other = bearing_types::ChunkId(70);
    let lacks = |bench: &mut Bench, length| {
        let asked = DataCall::Holds { chunks: vec![(CHUNK, length), (other, 8)] };
        match bench.result(META, asked, &[]) {
            Ok(DataBody::Lacks { chunks }) => chunks,
            result => panic!("{result:?}"),
        }
    };
    assert_eq!(lacks(&mut bench, one), [CHUNK, other], "it is not sealed");
    assert_eq!(bench.result(META, seal(2 * one), &[]), DONE);
    assert_eq!(lacks(&mut bench, 2 * one), [other]);
    assert_eq!(lacks(&mut bench, 3 * one), [CHUNK, other]);
    assert_eq!(bench.result(CLIENT, DataCall::Holds { chunks: Vec::new() }, &[]), Err(DataError::Capability));
}

#[test]
fn a_removal_under_a_newer_epoch_is_not_answered_for_an_older_grave() {
    let mut bench = Bench::new();
    bench.append_alone(&frame(1, 100));
    let (older, newer) = (EPOCH.next(), EPOCH.next().next());
    let remove = |epoch| DataCall::Remove { epoch };
    bench.send(META, 1, remove(older), &[]);
    bench.send(META, 2, remove(newer), &[]);
    assert_eq!(answers(&bench.run()), [(1, Ok(DataBody::Done))]);
    assert_eq!(bench.result(META, remove(newer), &[]), Ok(DataBody::Done));
    let late = DataCall::Copy { epoch: newer, sources: vec![OTHER], length: 100 };
    assert_eq!(bench.result(META, late, &[]), Err(DataError::NoChunk));
}
