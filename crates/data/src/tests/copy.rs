//! Copies of sealed chunks, and what a sealed chunk holds.

use super::bench::*;
use crate::{Command, Config, Payload};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, FrameAt, Pieces};
use bearing_seams::{ChunkLog, End, MemChunkLog};
use bearing_types::{ChunkId, Epoch, NodeId, Position, ServerId};
use std::time::Duration;

const KEPT: Epoch = Epoch(6);

/// A chunk's log with frames of these sizes.
fn log_of(sizes: &[usize]) -> Vec<u8> {
    sizes.iter().enumerate().flat_map(|(salt, size)| frame(salt as u64, *size)).collect()
}

fn copy(length: usize) -> DataCall {
    DataCall::Copy { epoch: KEPT, sources: vec![OTHER, THIRD], length: length as u64 }
}

/// Answers every question for bytes from what a source holds (nothing: it does not have the chunk), until
/// nothing is asked any more; which servers were asked.
fn serve(bench: &mut Bench, mut said: Vec<Command>, held: impl Fn(ServerId) -> Vec<u8>) -> Vec<ServerId> {
    let mut asked = Vec::new();
    for _ in 0..10_000 {
        let fetches = asks(&said);
        if fetches.is_empty() && bench.pending.is_empty() {
            let Some(wake) = bench.machine.next_wake() else { return asked };
            let by = wake.since(bench.now.mono).max(Duration::from_nanos(1));
            if by > Duration::from_secs(30) {
                return asked;
            }
            said = bench.advance(by);
            continue;
        }
        said = bench.run();
        for (server, id, call) in fetches {
            let DataCall::Fetch { offset, length } = call else { panic!("{call:?}") };
            asked.push(server);
            let held = held(server);
            let bytes = held.get(offset as usize..(offset as usize + length as usize)).map(<[u8]>::to_vec);
            let crc = bytes.as_ref().map(|bytes| DataBody::Bytes { crc: crc32c::crc32c(bytes) });
            let reply = DataReply { id, result: crc.ok_or(DataError::NoChunk) };
            let bytes = bytes.unwrap_or_default();
            let from = Sender::Server(server);
            said.extend(bench.step(crate::Event::Reply { from, reply, attachment: bytes }));
        }
    }
    panic!("the copy does not end");
}

fn held_by(bench: &mut Bench) -> Vec<u8> {
    bench.log.read(CHUNK, 0, 1 << 30).unwrap()
}

#[test]
fn a_copy_is_the_same_bytes_sealed_under_the_new_epoch_also_when_windows_cut_frames() {
    for scan_bytes in [65_536, 131_072, 1 << 20] {
        let log = log_of(&[0, 1, 300, 65_536, 5, 200_000, 64_000, 300_001, 7]);
        let mut bench = Bench::with(Config { scan_bytes, ..Config::standard() });
        let said = bench.ask(META, 1, copy(log.len()), &[]);
        assert_eq!(answers(&said), [(1, Ok(DataBody::Busy { done: 0 }))]);
        serve(&mut bench, said, |_| log.clone());
        assert_eq!(held_by(&mut bench), log);
        assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Done));
        let entry = bench.log.chunks().unwrap()[0];
        assert_eq!((entry.epoch, entry.sealed), (KEPT, Some(log.len() as u64)));
    }
}

#[test]
fn what_is_damaged_at_one_source_is_taken_from_another() {
    let log = log_of(&[3_000, 70_000, 4_000, 5_000]);
    let (mut first, mut second) = (log.clone(), log.clone());
    // Each source is damaged, at different places.
    first[500] ^= 1;
    let at = log.len() - 1_000;
    second[at] ^= 4;
    let mut bench = Bench::new();
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    let asked =
        serve(&mut bench, said, |server| if server == OTHER { first.clone() } else { second.clone() });
    assert!(asked.contains(&OTHER) && asked.contains(&THIRD), "{asked:?}");
    assert_eq!(held_by(&mut bench), log);
    assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Done));
}

#[test]
fn what_is_damaged_everywhere_is_not_copied() {
    let mut log = log_of(&[3_000, 4_000]);
    log[200] ^= 1;
    let mut bench = Bench::new();
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(bench.result(META, copy(log.len()), &[]), Err(DataError::Corrupt));
    assert_eq!(bench.log.chunks().unwrap()[0].length, 0, "what there was of it is gone");
}

#[test]
fn what_no_source_has_is_not_copied_and_one_that_has_it_is_enough() {
    let log = log_of(&[3_000, 4_000]);
    let mut bench = Bench::new();
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    serve(&mut bench, said, |_| Vec::new());
    assert_eq!(bench.result(META, copy(log.len()), &[]), Err(DataError::Corrupt));
    let said = bench.ask(META, 2, copy(log.len()), &[]);
    serve(&mut bench, said, |server| if server == THIRD { log.clone() } else { Vec::new() });
    assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Done));
}

#[test]
fn a_copy_takes_the_place_of_a_grave_only_under_a_newer_epoch() {
    let log = log_of(&[3_000, 4_000]);
    let mut bench = Bench::new();
    // The first one makes the grave.
    bench.ask(META, 8, DataCall::Remove { epoch: KEPT }, &[]);
    assert_eq!(bench.result(META, DataCall::Remove { epoch: KEPT }, &[]), Ok(DataBody::Done));
    assert_eq!(bench.result(META, copy(log.len()), &[]), Err(DataError::NoChunk), "it was called off");
    let again = DataCall::Copy { epoch: KEPT.next(), sources: vec![OTHER], length: log.len() as u64 };
    assert_eq!(bench.result(META, again.clone(), &[]), Ok(DataBody::Busy { done: 0 }));
    let late = frame(9, 100);
    assert_eq!(bench.result(CLIENT, append(&[ME], &late), &late), Err(DataError::Sealed));
    let said = bench.ask(META, 1, again.clone(), &[]);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(bench.result(META, again, &[]), Ok(DataBody::Done));
    assert_eq!(held_by(&mut bench), log);
}

#[test]
fn copies_fetch_no_faster_than_they_may() {
    let log = log_of(&[600_000; 10]);
    let config = Config { copy_bytes_per_second: 1 << 20, ..Config::standard() };
    let mut bench = Bench::with(config);
    let began = bench.now.mono;
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(held_by(&mut bench), log);
    let took = bench.now.mono.since(began);
    assert!(took >= Duration::from_secs(5), "{took:?} for 6 MB at 1 MiB/s");
}

#[test]
fn a_silent_source_is_passed_over() {
    let log = log_of(&[100]);
    let mut bench = Bench::new();
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    assert_eq!(asks(&said)[0].0, OTHER);
    let said = bench.advance(Config::standard().copy_timeout);
    assert_eq!(asks(&said)[0].0, THIRD);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Done));
}

#[test]
fn a_copy_that_a_restart_cut_short_is_begun_anew_and_never_read() {
    let log = log_of(&[3_000, 4_000]);
    let mut bench = Bench::new();
    let said = bench.ask(META, 1, copy(log.len()), &[]);
    assert_eq!(asks(&said).len(), 1);
    let mut bench = bench.restarted();
    assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Busy { done: 0 }));
    assert_eq!(bench.result(CLIENT, read(0, 0, 10), &[]), Err(DataError::NoChunk));
    let said = bench.ask(META, 2, copy(log.len()), &[]);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(bench.result(META, copy(log.len()), &[]), Ok(DataBody::Done));
    assert_eq!(bench.bytes(0, 0, 3_000), payload(0, 3_000));
}

#[test]
fn only_servers_fetch_and_only_what_is_sealed() {
    let mut bench = Bench::new();
    let bytes = frame(1, 100);
    bench.append_alone(&bytes);
    let fetch = DataCall::Fetch { offset: 0, length: 50 };
    assert_eq!(bench.result(META, fetch.clone(), &[]), Err(DataError::BeyondEnd));
    let seal = DataCall::Seal { epoch: KEPT, length: bytes.len() as u64 };
    assert_eq!(bench.result(META, seal, &[]), Ok(DataBody::Done));
    assert_eq!(bench.result(CLIENT, fetch.clone(), &[]), Err(DataError::Capability));
    let said = bench.ask(META, 3, fetch, &[]);
    let attached: Vec<Payload> = said
        .iter()
        .filter_map(|command| match command {
            Command::Answer { attachment, .. } => Some(attachment.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(attached[0].as_slice(), &bytes[..50]);
    let beyond = |offset| DataCall::Fetch { offset, length: 2 };
    let last = bytes.len() as u64 - 1;
    assert!(bench.result(META, beyond(last), &[]).is_ok(), "as far as it is here");
    assert_eq!(bench.result(META, beyond(last + 1), &[]), Err(DataError::BeyondEnd));
}

#[test]
fn a_sealed_chunk_tells_whose_frames_it_holds_page_by_page() {
    let sizes = [0, 100, 70_000, 5, 65_000, 3];
    let mut log = MemChunkLog::new();
    let bytes = log_of(&sizes);
    log.create(CHUNK, EPOCH).unwrap();
    log.append(CHUNK, 0, &bytes).unwrap();
    log.set(CHUNK, KEPT, bytes.len() as u64, End::Sealed { restarted: false }).unwrap();
    let mut bench = Bench::on(log, Config::standard());
    let (mut from, mut found) = (Some(0), Vec::new());
    while let Some(at) = from {
        let listed =
            bench.result(META, DataCall::Frames { from: at, end: bytes.len() as u64, count_max: 4 }, &[]);
        let Ok(DataBody::Frames { frames, next }) = listed else { panic!("{listed:?}") };
        found.extend(frames);
        from = next;
    }
    let mut at = 0;
    for (salt, (size, told)) in sizes.iter().zip(&found).enumerate() {
        let node = NodeId(salt as u64);
        assert_eq!(*told, FrameAt { frame: at, payload: *size as u32, node, home: Position(1) });
        at += frame(salt as u64, *size).len() as u64;
    }
    assert_eq!(found.len(), sizes.len());
    let end = bytes.len() as u64;
    let beyond = DataCall::Frames { from: end, end: end + 8, count_max: 4 };
    assert_eq!(bench.result(META, beyond, &[]), Err(DataError::BeyondEnd), "this replica does not know all");
}

/// A chunk's log with frames of these sizes, and where each begins; the last place is its end.
fn placed(sizes: &[usize]) -> (Vec<u8>, Vec<u64>) {
    let (mut log, mut places) = (Vec::new(), vec![0]);
    for (salt, size) in sizes.iter().enumerate() {
        log.extend(frame(salt as u64, *size));
        places.push(log.len() as u64);
    }
    (log, places)
}

fn gather(sources: Vec<ServerId>, pieces: &Pieces) -> DataCall {
    DataCall::Gather { epoch: KEPT, from: OLD, sources, pieces: pieces.clone(), length: pieces.bytes() }
}

const OLD: ChunkId = ChunkId(77);

#[test]
fn a_chunk_is_made_of_some_frames_of_another_also_when_windows_cut_frames() {
    let (log, at) = placed(&[3_000, 1, 300, 65_536, 5, 200_000, 64_000, 300_001, 7]);
    // Single frames, neighbours, those larger than a window, and the last.
    let ranges = [at[1]..at[2], at[3]..at[4], at[5]..at[6], at[7]..at[9]];
    let expected: Vec<u8> =
        ranges.iter().flat_map(|range| log[range.start as usize..range.end as usize].to_vec()).collect();
    let pieces = Pieces::of(&ranges);
    for scan_bytes in [65_536, 131_072, 1 << 20] {
        let mut bench = Bench::with(Config { scan_bytes, ..Config::standard() });
        let call = gather(vec![OTHER, THIRD], &pieces);
        let said = bench.ask(META, 1, call.clone(), &[]);
        assert_eq!(answers(&said), [(1, Ok(DataBody::Busy { done: 0 }))]);
        serve(&mut bench, said, |_| log.clone());
        assert_eq!(bench.result(META, call, &[]), Ok(DataBody::Done));
        assert_eq!(held_by(&mut bench), expected);
        let entry = bench.log.chunks().unwrap()[0];
        assert_eq!((entry.epoch, entry.sealed), (KEPT, Some(expected.len() as u64)));
        assert_eq!(bench.bytes(0, 0, 1), payload(1, 1), "it is read as any other");
    }
}

#[test]
fn a_server_that_has_the_old_chunk_itself_makes_the_new_one_of_that() {
    let (log, at) = placed(&[3_000, 100_000, 4_000]);
    let mut disk = MemChunkLog::new();
    disk.create(OLD, EPOCH).unwrap();
    disk.append(OLD, 0, &log).unwrap();
    disk.set(OLD, KEPT, log.len() as u64, End::Sealed { restarted: false }).unwrap();
    let mut bench = Bench::on(disk, Config::standard());
    let pieces = Pieces::of(std::slice::from_ref(&(at[1]..at[2])));
    let said = bench.ask(META, 1, gather(vec![ME], &pieces), &[]);
    assert_eq!(serve(&mut bench, said, |_| panic!("nobody else is asked")), []);
    assert_eq!(bench.result(META, gather(vec![ME], &pieces), &[]), Ok(DataBody::Done));
    assert_eq!(held_by(&mut bench), log[at[1] as usize..at[2] as usize]);
}

#[test]
fn frames_that_are_damaged_everywhere_make_no_chunk_and_what_was_given_up_is_not_made_later() {
    let (mut log, at) = placed(&[3_000, 4_000]);
    log[at[1] as usize + 500] ^= 1;
    let mut bench = Bench::new();
    let pieces = Pieces::of(std::slice::from_ref(&(at[1]..at[2])));
    let call = gather(vec![OTHER, THIRD], &pieces);
    let said = bench.ask(META, 1, call.clone(), &[]);
    serve(&mut bench, said, |_| log.clone());
    assert_eq!(bench.result(META, call.clone(), &[]), Err(DataError::Corrupt));
    assert_eq!(bench.result(META, DataCall::Remove { epoch: KEPT }, &[]), Ok(DataBody::Done));
    assert_eq!(bench.result(META, call.clone(), &[]), Err(DataError::NoChunk));
    assert_eq!(bench.result(CLIENT, call, &[]), Err(DataError::Capability), "only servers ask for it");
}

#[test]
fn a_removal_before_the_copy_could_be_made_fails_no_disk() {
    let mut bench = Bench::new();
    bench.log.set_full(true);
    let (copy, remove) = (copy(100), DataCall::Remove { epoch: KEPT.next() });
    bench.send(META, 1, copy, &[]);
    bench.send(META, 2, remove.clone(), &[]);
    assert_eq!(answers(&bench.run_next()), [(1, Err(DataError::Full))]);
    // There is room again before the log has done all that it was asked for.
    bench.log.set_full(false);
    bench.ask(META, 3, remove.clone(), &[]);
    assert_eq!(bench.result(META, remove, &[]), Ok(DataBody::Done));
    assert!(!bench.machine.has_failed());
}
