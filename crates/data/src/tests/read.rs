//! Reads.

use super::bench::*;
use crate::{Config, LogCommand};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, FramePart};
use bearing_seams::{ChunkLog, End, MemChunkLog};
use bearing_types::{ChunkId, SessionId};

#[test]
fn any_part_of_a_payload_is_read_exactly() {
    let mut bench = Bench::new();
    bench.append_alone(&frame(1, 10));
    let (long, at) = (frame(2, 200_000), frame(1, 10).len() as u64);
    bench.append_alone(&long);
    let whole = payload(2, 200_000);
    for (skip, length) in
        [(0, 200_000), (0, 0), (65_535, 2), (65_536, 65_536), (199_999, 1), (200_000, 0), (3, 70_000)]
    {
        let expected = &whole[skip as usize..(skip + length) as usize];
        assert_eq!(bench.bytes(at, skip, length), expected, "{skip} {length}");
    }
    assert_eq!(bench.result(CLIENT, read(at, 199_999, 2), &[]), Err(DataError::BeyondEnd));
    assert_eq!(bench.result(CLIENT, read(at, u32::MAX, u32::MAX), &[]), Err(DataError::BeyondEnd));
}

#[test]
fn a_short_frame_takes_one_read_and_a_part_of_a_long_one_two() {
    let mut bench = Bench::new();
    bench.append_alone(&frame(1, 1000));
    let said = bench.send(CLIENT, 1, read(0, 0, 1000), &[]);
    let length = frame(1, 1000).len() as u32;
    assert_eq!(logs(&said), [LogCommand::Read { chunk: CHUNK, offset: 0, length }]);
    assert_eq!(answers(&bench.run()).len(), 1);
    assert!(bench.pending.is_empty());

    bench.append_alone(&frame(2, 200_000));
    bench.send(CLIENT, 1, read(u64::from(length), 100_000, 5), &[]);
    let (ticket, head) = bench.pending.pop_front().unwrap();
    let event = head.run(ticket, &mut bench.log);
    let header_bytes = frame(2, 200_000).len() as u64 - 200_000;
    let offset = u64::from(length) + header_bytes + 65_536;
    let said = bench.step(event);
    assert_eq!(logs(&said), [LogCommand::Read { chunk: CHUNK, offset, length: 65_536 }]);
}

#[test]
fn only_what_all_servers_are_known_to_have_is_read() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &bytes), &bytes);
    assert_eq!(bench.result(CLIENT, read(0, 0, 100), &[]), Err(DataError::BeyondEnd));
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));

    let (mut bench, at) = (Bench::new(), bytes.len() as u64);
    let primary = Sender::Server(OTHER);
    bench.result(primary, replicate(0, 0, &bytes), &bytes).unwrap();
    assert_eq!(bench.result(CLIENT, read(0, 0, 100), &[]), Err(DataError::BeyondEnd));
    bench.result(primary, replicate(at, at, &[]), &[]).unwrap();
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
    bench.result(primary, replicate(at, at, &bytes), &bytes).unwrap();
    assert_eq!(bench.result(CLIENT, read(at, 0, 100), &[]), Err(DataError::BeyondEnd));
}

#[test]
fn reads_show_a_right_of_their_session_to_these_bytes() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    bench.append_alone(&bytes);
    let at = bytes.len() as u64;
    let good =
        CapabilityBody { ..capability_body(DataRight::Read(FramePart { frame: at, skip: 10, length: 20 })) };
    let mut ask = |from: Sender, capability: Capability, (frame, skip, length): (u64, u32, u32)| {
        let said = bench.ask(from, 1, DataCall::Read { capability, frame, skip, length, flow: None }, &[]);
        answers(&said)[0].1.is_ok()
    };
    let signed = |body: CapabilityBody| Capability::sign(body, &key());
    for (part, allowed) in [
        ((at, 10, 20), true),
        ((at, 15, 5), true),
        ((at, 9, 20), false),
        ((at, 10, 21), false),
        ((at, 0, 1), false),
        ((0, 10, 20), false),
        ((at, 30, 1), false),
    ] {
        assert_eq!(ask(CLIENT, signed(good), part), allowed, "{part:?}");
    }
    // Another session that has seen the right, or one that nobody signed.
    assert!(!ask(Sender::Client(SessionId(78)), signed(good), (at, 10, 20)));
    assert!(!ask(Sender::Nobody, signed(good), (at, 10, 20)));
    assert!(!ask(CLIENT, Capability::sign(good, &bearing_proto::keys::Key::new([1; 32])), (at, 10, 20)));
    assert!(!ask(CLIENT, signed(CapabilityBody { chunk: ChunkId(1), ..good }), (at, 10, 20)));
    let forged = CapabilityBody { session: SessionId(78), ..good };
    assert!(!ask(
        Sender::Client(SessionId(78)),
        Capability { body: forged, mac: signed(good).mac },
        (at, 10, 20)
    ));
    // A server asks for its client, whose right it has looked at.
    assert!(ask(Sender::Server(OTHER), signed(good), (at, 10, 20)));
    assert!(!ask(Sender::Server(OTHER), signed(good), (at, 10, 21)));
    // Who opened the chunk filled it, and reads all of it.
    assert!(ask(CLIENT, signed(capability_body(append_here())), (at, 0, 100)));
    assert!(!ask(Sender::Client(SessionId(78)), signed(capability_body(append_here())), (at, 0, 100)));
}

#[test]
fn damaged_bytes_are_never_given() {
    let bytes = frame(1, 70_000);
    for at in [0, 9, 75, 90, bytes.len() - 70_000 + 69_999] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let mut log = MemChunkLog::new();
        log.create(CHUNK, EPOCH).unwrap();
        log.append(CHUNK, 0, &damaged).unwrap();
        log.set(CHUNK, EPOCH, bytes.len() as u64, End::Sealed { restarted: false }).unwrap();
        let mut bench = Bench::on(log, Config::standard());
        let said = bench.ask(CLIENT, 1, read(0, 0, 70_000), &[]);
        assert_eq!(answers(&said), [(1, Err(DataError::Corrupt))], "{at}");
        assert_eq!(bench.machine.counters().corrupt, 1);
    }
}

#[test]
fn after_a_restart_whole_frames_are_read_and_what_is_missing_may_be_elsewhere() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    let mut bench = bench.restarted();
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
    let beyond = bench.result(CLIENT, read(bytes.len() as u64, 0, 1), &[]);
    assert_eq!(beyond, Err(DataError::NoChunk));
}

#[test]
fn a_read_that_a_removal_overtakes_finds_no_chunk() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    bench.send(CLIENT, 1, read(0, 0, 100), &[]);
    let late = bench.pending.pop_front().unwrap();
    bench.ask(META, 2, DataCall::Remove { epoch: EPOCH.next() }, &[]);
    bench.pending.push_back(late);
    assert_eq!(answers(&bench.run()), [(1, Err(DataError::NoChunk))]);
}

#[test]
fn reads_of_unknown_chunks_and_over_the_limit() {
    let bytes = frame(1, 100);
    let mut bench = Bench::with(Config { reads_max: 1, ..Config::standard() });
    assert_eq!(bench.result(CLIENT, read(0, 0, 1), &[]), Err(DataError::NoChunk));
    bench.append_alone(&bytes);
    bench.send(CLIENT, 1, read(0, 0, 1), &[]);
    assert_eq!(bench.send(CLIENT, 2, read(0, 0, 1), &[]), []);
    assert_eq!(bench.machine.counters().dropped, 1);
    bench.run();
    assert_eq!(bench.bytes(0, 0, 100), payload(1, 100));
}
