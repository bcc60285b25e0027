//! Rot is looked for, noted and told.

use super::bench::*;
use crate::Config;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_seams::{ChunkLog, End, MemChunkLog};
use bearing_types::ChunkId;
use std::time::Duration;

const OTHER_CHUNK: ChunkId = ChunkId(10);

/// Two sealed chunks, the second with a flipped bit.
fn two_chunks() -> MemChunkLog {
    let mut log = MemChunkLog::new();
    for (chunk, flip) in [(CHUNK, false), (OTHER_CHUNK, true)] {
        let mut bytes = [frame(1, 200_000), frame(2, 3_000)].concat();
        if flip {
            bytes[100_000] ^= 2;
        }
        log.create(chunk, EPOCH).unwrap();
        log.append(chunk, 0, &bytes).unwrap();
        log.set(chunk, EPOCH, bytes.len() as u64, End::Sealed { restarted: false }).unwrap();
    }
    log
}

fn told(bench: &mut Bench) -> Vec<ChunkId> {
    match bench.result(META, DataCall::Ping, &[]) {
        Ok(DataBody::Space { damaged, .. }) => damaged,
        other => panic!("{other:?}"),
    }
}

fn pass(bench: &mut Bench, time: Duration) {
    let end = bench.now.mono.after(time);
    while let Some(wake) = bench.machine.next_wake().filter(|wake| *wake <= end) {
        let by = wake.since(bench.now.mono);
        bench.advance(by);
        bench.run();
    }
    bench.now.mono = end;
}

#[test]
fn rot_is_found_by_itself_and_told_with_the_next_ping_until_the_replica_is_removed() {
    let mut bench = Bench::on(two_chunks(), Config::standard());
    assert_eq!(told(&mut bench), [], "nobody looked yet");
    pass(&mut bench, Duration::from_secs(90));
    assert_eq!(told(&mut bench), [OTHER_CHUNK]);
    assert_eq!(bench.machine.counters().scrubbed, 1);
    bench.send_to(OTHER_CHUNK, META, 5, DataCall::Remove { epoch: EPOCH.next() }, &[]);
    bench.run();
    assert_eq!(told(&mut bench), []);
}

#[test]
fn a_round_reads_no_faster_than_it_may_and_the_next_one_comes_later() {
    let config = Config { scrub_bytes_per_second: 50_000, ..Config::standard() };
    let mut bench = Bench::on(two_chunks(), config);
    assert_eq!(told(&mut bench), []);
    pass(&mut bench, Duration::from_secs(62));
    assert!(bench.machine.counters().scrubbed_bytes <= 204_000, "{:?}", bench.machine.counters());
    pass(&mut bench, Duration::from_secs(60));
    let read = bench.machine.counters().scrubbed_bytes;
    assert!(read > 300_000, "{read}");
    pass(&mut bench, Config::standard().scrub_interval / 2);
    assert_eq!(bench.machine.counters().scrubbed_bytes, read);
    pass(&mut bench, Config::standard().scrub_interval);
    assert!(bench.machine.counters().scrubbed_bytes > read);
}

#[test]
fn a_reader_that_meets_damage_has_it_told() {
    let mut bench = Bench::on(two_chunks(), Config::standard());
    let mut body = capability_body(append_here());
    body.chunk = OTHER_CHUNK;
    let capability = bearing_proto::grant::Capability::sign(body, &key());
    let read = DataCall::Read { capability, frame: 0, skip: 0, length: 200_000, flow: None };
    bench.send_to(OTHER_CHUNK, CLIENT, 4, read, &[]);
    bench.run();
    pass(&mut bench, Duration::from_secs(1));
    assert_eq!(told(&mut bench), [OTHER_CHUNK]);
}

#[test]
fn who_reads_at_a_place_where_no_frame_begins_marks_no_replica_as_damaged() {
    let mut bench = Bench::on(two_chunks(), Config::standard());
    let capability = bearing_proto::grant::Capability::sign(capability_body(append_here()), &key());
    let read = DataCall::Read { capability, frame: 8, skip: 0, length: 100, flow: None };
    bench.send_to(CHUNK, CLIENT, 4, read, &[]);
    bench.run();
    pass(&mut bench, Duration::from_secs(90));
    assert_eq!(told(&mut bench), [OTHER_CHUNK], "that one is damaged");
}

#[test]
fn a_sector_that_cannot_be_read_is_damage_like_any_other() {
    let mut log = two_chunks();
    log.make_unreadable(CHUNK, 150_000);
    let mut bench = Bench::on(log, Config::standard());
    assert_eq!(told(&mut bench), [], "nobody looked yet");
    pass(&mut bench, Duration::from_secs(90));
    assert_eq!(told(&mut bench), [CHUNK, OTHER_CHUNK]);
    let result = bench.result(META, DataCall::Verify { length: 200_000 }, &[]);
    assert_eq!(result, Err(DataError::Corrupt), "never Busy for ever");
}

#[test]
fn a_replica_that_is_shorter_than_its_seal_is_not_held_and_told_as_damaged() {
    let mut log = two_chunks();
    let mut chunks = log.chunks().unwrap();
    let length = chunks[0].length;
    chunks[0].sealed = Some(length + 8);
    let mut bench = Bench::listing(log, Config::standard(), chunks);
    assert_eq!(told(&mut bench), [CHUNK]);
    let mut lacks = |length| bench.result(META, DataCall::Holds { chunks: vec![(CHUNK, length)] }, &[]);
    assert_eq!(lacks(length), Ok(DataBody::Lacks { chunks: vec![] }));
    assert_eq!(lacks(length + 8), Ok(DataBody::Lacks { chunks: vec![CHUNK] }));
}

#[test]
fn a_replica_is_checked_at_once_when_a_metadata_server_asks() {
    for (chunk, expected) in [(CHUNK, Ok(DataBody::Done)), (OTHER_CHUNK, Err(DataError::Corrupt))] {
        let mut bench = Bench::on(two_chunks(), Config::standard());
        let said = bench.send_to(chunk, META, 4, DataCall::Verify { length: 200_000 }, &[]);
        assert_eq!(answers(&said), [(4, Ok(DataBody::Busy { done: 0 }))]);
        bench.run();
        pass(&mut bench, Duration::from_secs(2));
        let said = bench.send_to(chunk, META, 4, DataCall::Verify { length: 200_000 }, &[]);
        assert_eq!(answers(&said), [(4, expected)]);
    }
}
