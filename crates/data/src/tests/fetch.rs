//! Appends of bytes that servers hold already.

use super::bench::*;
use crate::{Command, Config, Event};
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, Source};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, FramePart};
use bearing_proto::keys::Key;
use bearing_proto::{Sender, frame};
use bearing_seams::{ChunkLog, End, MemChunkLog};
use bearing_types::{ChunkId, ServerId, SessionId};
use std::time::Duration;

/// A chunk of which this server holds nothing.
const ELSEWHERE: ChunkId = ChunkId(3);

fn source(chunk: ChunkId, skip: u32, length: u32, servers: &[ServerId]) -> Source {
    let right = DataRight::Read(FramePart { frame: 0, skip, length });
    let body = CapabilityBody { chunk, ..capability_body(right) };
    let capability = Capability::sign(body, &key());
    Source { chunk, frame: 0, skip, length, capability, servers: servers.to_vec() }
}

fn append_from(servers: &[ServerId], source: Source) -> DataCall {
    let capability = capability(DataRight::append(EPOCH, servers));
    DataCall::AppendFrom {
        capability,
        servers: servers.to_vec(),
        known: 0,
        owner: owner(6),
        source: Box::new(source),
    }
}

fn frame_of(part: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&owner(6), part, &mut bytes);
    bytes
}

fn gives(bench: &mut Bench, from: ServerId, id: u64, bytes: &[u8], crc: u32) -> Vec<Command> {
    let reply = DataReply { id, result: Ok(DataBody::Bytes { crc }) };
    let said = bench.step(Event::Reply { from: Sender::Server(from), reply, attachment: bytes.to_vec() });
    said.into_iter().chain(bench.run()).filter(|command| !matches!(command, Command::Log { .. })).collect()
}

#[test]
fn bytes_that_are_here_become_a_frame_of_their_own_on_all_servers_of_the_chunk() {
    let (mut bench, first) = (Bench::new(), frame(1, 200_000));
    bench.append_alone(&first);
    let part = payload(1, 200_000)[70_001..150_001].to_vec();
    let call = append_from(&[ME], source(CHUNK, 70_001, 80_000, &[THIRD, ME]));
    let at = first.len() as u64;
    assert_eq!(bench.result(CLIENT, call, &[]), Ok(DataBody::Appended { frame: at }));
    assert_eq!(bench.bytes(at, 0, 80_000), part);
    assert_eq!(bench.log.read(CHUNK, at, frame_of(&part).len() as u32).unwrap(), frame_of(&part));
    let counters = bench.machine.counters();
    assert_eq!((counters.drawn, counters.drawn_bytes, counters.appends), (1, 80_000, 2));

    // Others get the frame as they get one that a client sent.
    let mut bench = Bench::new();
    bench.ask(CLIENT, 1, append(&[ME, OTHER], &first), &first);
    bench.reply(OTHER, 1000, Ok(DataBody::Done));
    let said = bench.ask(CLIENT, 2, append_from(&[ME, OTHER], source(CHUNK, 0, 5, &[ME, OTHER])), &[]);
    let sent = frame_of(&payload(1, 5));
    assert_eq!(asks(&said), [(OTHER, 1001, replicate(at, at, &sent))]);
    assert_eq!(answers(&said), [], "it is acknowledged when all have it");
    let done = bench.reply(OTHER, 1001, Ok(DataBody::Done));
    assert_eq!(answers(&done), [(2, Ok(DataBody::Appended { frame: at }))]);
}

#[test]
fn bytes_that_are_elsewhere_are_asked_for_with_the_clients_right_to_read_them() {
    let mut bench = Bench::new();
    let wanted = source(ELSEWHERE, 3, 4, &[OTHER, THIRD]);
    let read =
        DataCall::Read { capability: wanted.capability.clone(), frame: 0, skip: 3, length: 4, flow: None };
    let said = bench.ask(CLIENT, 7, append_from(&[ME], wanted), &[]);
    assert_eq!(asks(&said), [(OTHER, 1000, read)]);
    let said = gives(&mut bench, OTHER, 1000, b"abcd", crc32c::crc32c(b"abcd"));
    assert_eq!(answers(&said), [(7, Ok(DataBody::Appended { frame: 0 }))]);
    assert_eq!(bench.bytes(0, 0, 4), b"abcd");
    // The same answer once more is nobody's.
    assert_eq!(gives(&mut bench, OTHER, 1000, b"abcd", crc32c::crc32c(b"abcd")), []);
}

#[test]
fn the_next_server_is_asked_if_one_refuses_is_silent_or_sends_other_bytes_and_then_the_client_is_told() {
    let mut bench = Bench::new();
    let far = [OTHER, THIRD, ServerId(8), ServerId(9)];
    let said = bench.ask(CLIENT, 7, append_from(&[ME], source(ELSEWHERE, 0, 4, &far)), &[]);
    assert_eq!(asks(&said).len(), 1);
    let said = gives(&mut bench, OTHER, 1000, b"abcx", crc32c::crc32c(b"abcd"));
    assert_eq!(asks(&said)[0].0, THIRD);
    assert_eq!(bench.advance(Duration::from_millis(699)), []);
    let said = bench.advance(Duration::from_millis(1));
    assert_eq!(asks(&said)[0].0, ServerId(8));
    assert_eq!(gives(&mut bench, THIRD, 1001, b"abcd", crc32c::crc32c(b"abcd")), [], "it is too late");
    let said = bench.reply(ServerId(8), 1002, Err(DataError::NoChunk));
    assert_eq!(answers(&said), [(7, Err(DataError::Source))], "three were asked");
    assert_eq!(bench.machine.next_wake(), None);
    // Too few bytes are no bytes, and with nobody to ask there are none either.
    bench.ask(CLIENT, 8, append_from(&[ME], source(ELSEWHERE, 0, 4, &[OTHER])), &[]);
    let said = gives(&mut bench, OTHER, 1003, b"abc", crc32c::crc32c(b"abc"));
    assert_eq!(answers(&said), [(8, Err(DataError::Source))]);
    let said = bench.ask(CLIENT, 9, append_from(&[ME], source(ELSEWHERE, 0, 4, &[])), &[]);
    assert_eq!(answers(&said), [(9, Err(DataError::Source))]);
    assert_eq!(bench.machine.chunk_count(), 0);
}

#[test]
fn damaged_bytes_here_are_not_appended_but_taken_from_another_server() {
    let bytes = frame(1, 70_000);
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut log = MemChunkLog::new();
    log.create(ELSEWHERE, EPOCH).unwrap();
    log.append(ELSEWHERE, 0, &damaged).unwrap();
    log.set(ELSEWHERE, EPOCH, bytes.len() as u64, End::Sealed { restarted: false }).unwrap();
    let mut bench = Bench::on(log, Config::standard());
    let said = bench.ask(CLIENT, 7, append_from(&[ME], source(ELSEWHERE, 69_990, 10, &[ME, OTHER])), &[]);
    assert_eq!(asks(&said).len(), 1, "{said:?}");
    assert_eq!(bench.machine.counters().corrupt, 1);
    // A part of a block that is whole needs nobody else.
    let said = bench.ask(CLIENT, 8, append_from(&[ME], source(ELSEWHERE, 0, 10, &[ME, OTHER])), &[]);
    assert_eq!(answers(&said), [(8, Ok(DataBody::Appended { frame: 0 }))]);
}

#[test]
fn the_right_to_append_and_the_right_to_read_are_both_asked_for() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    let mut refused = |call: DataCall| bench.result(CLIENT, call, &[]).unwrap_err();
    let forged = Capability::sign(capability_body(append_here()), &Key::new([1; 32]));
    let stolen = Source { capability: forged.clone(), ..source(CHUNK, 0, 5, &[ME]) };
    assert_eq!(refused(append_from(&[ME], stolen)), DataError::Source);
    // Neither is one of another session, or to other bytes of the frame.
    let good = source(CHUNK, 5, 5, &[ME]);
    let of_other = CapabilityBody { session: SessionId(78), ..good.capability.body };
    let theirs = Source { capability: Capability::sign(of_other, &key()), ..good.clone() };
    assert_eq!(refused(append_from(&[ME], theirs)), DataError::Source);
    for (skip, length) in [(4, 5), (5, 6), (0, 1)] {
        let beside = Source { skip, length, ..good.clone() };
        assert_eq!(refused(append_from(&[ME], beside)), DataError::Source);
    }
    // A right to read one chunk is none to read another.
    let other = Source { chunk: CHUNK, ..source(ELSEWHERE, 0, 5, &[ME]) };
    assert_eq!(refused(append_from(&[ME], other)), DataError::Source);
    assert_eq!(refused(append_from(&[OTHER, ME], source(CHUNK, 0, 5, &[ME]))), DataError::Capability);
    let DataCall::AppendFrom { servers, owner, source: good, .. } =
        append_from(&[ME], source(CHUNK, 0, 5, &[ME]))
    else {
        unreachable!("made just now")
    };
    let call = DataCall::AppendFrom { capability: forged, servers, known: 0, owner, source: good };
    assert_eq!(refused(call), DataError::Capability);
    // What no frame can hold would stop the server that makes it.
    for length in [0, frame::PAYLOAD_BYTES_MAX + 1] {
        assert_eq!(refused(append_from(&[ME], source(CHUNK, 0, length, &[ME]))), DataError::Damaged);
    }
    let long = frame::FrameOwner { name: vec![b'x'; 256], ..super::bench::owner(6) };
    let DataCall::AppendFrom { capability, servers, source, .. } =
        append_from(&[ME], source(CHUNK, 0, 5, &[ME]))
    else {
        unreachable!("made just now")
    };
    assert_eq!(
        refused(DataCall::AppendFrom { capability, servers, known: 0, owner: long, source }),
        DataError::Damaged
    );
}

#[test]
fn a_chunk_that_takes_no_appends_refuses_at_once_and_one_that_is_sealed_meanwhile_when_the_bytes_come() {
    let (mut bench, bytes) = (Bench::new(), frame(1, 100));
    bench.append_alone(&bytes);
    let call = append_from(&[ME], source(ELSEWHERE, 0, 4, &[OTHER]));
    bench.ask(CLIENT, 7, call.clone(), &[]);
    bench.ask(META, 2, DataCall::Fence { epoch: EPOCH.next() }, &[]);
    let said = gives(&mut bench, OTHER, 1000, b"abcd", crc32c::crc32c(b"abcd"));
    assert_eq!(answers(&said), [(7, Err(DataError::Sealed))]);
    assert_eq!(bench.result(CLIENT, call, &[]), Err(DataError::Sealed));
}

#[test]
fn a_repeat_changes_nothing_and_what_is_too_much_is_dropped() {
    let mut bench = Bench::with(Config { fetches_max: 1, ..Config::standard() });
    let call = append_from(&[ME], source(ELSEWHERE, 0, 4, &[OTHER]));
    assert_eq!(asks(&bench.ask(CLIENT, 7, call.clone(), &[])).len(), 1);
    assert_eq!(bench.ask(CLIENT, 7, call.clone(), &[]), []);
    assert_eq!(bench.machine.counters().dropped, 0);
    assert_eq!(bench.ask(CLIENT, 8, call.clone(), &[]), []);
    assert_eq!(bench.machine.counters().dropped, 1);
    let mut bench = Bench::with(Config { held_bytes_max: 3, ..Config::standard() });
    assert_eq!(bench.ask(CLIENT, 7, call, &[]), []);
    assert_eq!(bench.machine.counters().dropped, 1);
}
