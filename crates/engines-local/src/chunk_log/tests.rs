use super::*;
use crate::device::lying;
use crate::small_disk::SmallDisk;
use bearing_seams::conformance::{self, Stop, Subject};
use header::HEADER_BYTES;
use std::os::unix::fs::FileExt;

const CHUNK: ChunkId = ChunkId(0xabcd);
const SEALED: End = End::Sealed { restarted: false };

fn open(path: &Path) -> FileChunkLog {
    FileChunkLog::open(path, &[]).unwrap()
}

/// A log with one synced chunk of 5,000 bytes under epoch 4, and the path of its file.
fn one_chunk(path: &Path) -> PathBuf {
    let mut log = open(path);
    log.create(CHUNK, Epoch(3)).unwrap();
    log.append(CHUNK, 0, &[7; 5000]).unwrap();
    log.set(CHUNK, Epoch(4), 5000, End::Open).unwrap();
    log.files.path(CHUNK)
}

fn spoil(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn the_chunk_logs_in_files_conform() {
    conformance::chunk_log(|| {
        lying::forget_all();
        let temporary = tempfile::tempdir().unwrap();
        Subject::new(open(temporary.path()), move |log, stop| {
            drop(log);
            if stop == Stop::PowerCut {
                lying::cut_power(temporary.path());
            }
            open(temporary.path())
        })
        .with_failing_syncs(|_| lying::fail_next_sync())
    });
}

#[test]
fn the_disk_id_of_the_chunk_logs_conforms() {
    conformance::disk_label(|| {
        let temporary = tempfile::tempdir().unwrap();
        Subject::new(open(temporary.path()), move |log, _| {
            drop(log);
            open(temporary.path())
        })
    });
}

#[test]
fn a_torn_header_falls_back_to_the_one_before() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    // Generation 2 (epoch 4) lies in slot 0, generation 1 (epoch 3) in slot 1.
    for torn in [1, 30, 63] {
        spoil(&file, 0, &vec![0xee; torn]);
        let entry = open(temporary.path()).chunks().unwrap()[0];
        assert_eq!((entry.epoch, entry.length), (Epoch(3), 5000));
    }
    let mut log = open(temporary.path());
    log.set(CHUNK, Epoch(9), 4000, SEALED).unwrap();
    drop(log);
    let entry = open(temporary.path()).chunks().unwrap()[0];
    assert_eq!(
        entry,
        ChunkEntry {
            chunk: CHUNK,
            epoch: Epoch(9),
            length: 4000,
            sealed: Some(4000),
            fenced: false,
            restarted: false
        }
    );
}

#[test]
fn a_chunk_with_both_headers_damaged_is_never_served_and_can_be_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    spoil(&file, 10, b"\xff\xff");
    spoil(&file, slot_offset(1) + 10, b"\xff\xff");
    let mut log = open(temporary.path());
    let entry = ChunkEntry {
        chunk: CHUNK,
        epoch: ChunkEntry::HEADLESS,
        length: 0,
        sealed: None,
        fenced: false,
        restarted: false,
    };
    assert_eq!(log.chunks().unwrap(), [entry]);
    assert!(matches!(log.read(CHUNK, 0, 10), Err(EngineError::Corrupt { .. })));
    assert!(log.create(CHUNK, Epoch(5)).is_err());
    log.remove(CHUNK).unwrap();
    log.create(CHUNK, Epoch(5)).unwrap();
    assert_eq!(log.chunks().unwrap()[0].epoch, Epoch(5));
}

#[test]
fn a_chunk_whose_creation_was_not_synced_may_vanish_without_a_trace() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    for length in [0, 100, DATA_OFFSET, DATA_OFFSET + 5000] {
        // The name reached the disk, and perhaps the length, but no block.
        fs::write(&file, vec![0; length as usize]).unwrap();
        assert_eq!(open(temporary.path()).chunks().unwrap(), vec![]);
        assert!(!file.exists());
    }
}

#[test]
fn a_sealed_chunk_that_lost_bytes_shows_it() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    open(temporary.path()).set(CHUNK, Epoch(5), 5000, SEALED).unwrap();
    OpenOptions::new().write(true).open(&file).unwrap().set_len(DATA_OFFSET + 100).unwrap();
    let entry = open(temporary.path()).chunks().unwrap()[0];
    assert_eq!(
        (entry.length, entry.sealed),
        (100, Some(5000)),
        "the data machine sees that bytes are missing"
    );
}

#[test]
fn a_fenced_chunk_that_lost_bytes_is_fenced_no_more() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    open(temporary.path()).set(CHUNK, Epoch(5), 4000, End::Fenced { restarted: false }).unwrap();
    assert!(open(temporary.path()).chunks().unwrap()[0].fenced);
    OpenOptions::new().write(true).open(&file).unwrap().set_len(DATA_OFFSET + 100).unwrap();
    assert!(!open(temporary.path()).chunks().unwrap()[0].fenced);
}

#[test]
fn newer_and_foreign_files_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    let mut newer =
        header::encode(Header { chunk: CHUNK, generation: 3, epoch: Epoch(9), end: End::Open, length: 0 });
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..60]);
    newer[60..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    spoil(&file, slot_offset(3), &newer);
    let error = FileChunkLog::open(temporary.path(), &[]).err().unwrap();
    assert!(matches!(error, EngineError::NewerVersion { found: 2, known: 1, .. }), "{error}");
    fs::remove_file(&file).unwrap();
    fs::write(file.with_file_name("notes.txt"), "mine").unwrap();
    let error = FileChunkLog::open(temporary.path(), &[]).err().unwrap();
    assert!(
        matches!(error, EngineError::Corrupt { .. }) && error.to_string().contains("notes.txt"),
        "{error}"
    );
}

#[test]
fn more_chunks_than_open_files_are_served() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = open(temporary.path());
    for id in 0..600 {
        log.create(ChunkId(id), Epoch(1)).unwrap();
        log.append(ChunkId(id), 0, &id.to_le_bytes()).unwrap();
        if id % 2 == 0 {
            log.sync(ChunkId(id)).unwrap();
        }
    }
    for id in 0..600 {
        log.sync(ChunkId(id)).unwrap();
    }
    for id in 0..600 {
        assert_eq!(log.read(ChunkId(id), 0, 100).unwrap(), id.to_le_bytes());
    }
    assert!(log.files.count() <= 600);
    drop(log);
    let mut log = open(temporary.path());
    for id in 0..600 {
        assert_eq!(log.read(ChunkId(id), 0, 100).unwrap(), id.to_le_bytes());
    }
    assert!(log.files.count() <= 256, "{} files are open", log.files.count());
}

#[test]
fn a_second_process_is_told_that_the_chunks_are_in_use() {
    let temporary = tempfile::tempdir().unwrap();
    let _first = open(temporary.path());
    assert!(matches!(FileChunkLog::open(temporary.path(), &[]), Err(EngineError::Busy { .. })));
}

#[test]
fn a_chunk_is_sealed_on_a_full_disk_or_says_that_there_is_no_space_and_stays_as_it_was() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let mut log = FileChunkLog::open(&disk.path().join("chunks"), &[]).unwrap();
    for chunk in [ChunkId(1), ChunkId(2)] {
        log.create(chunk, Epoch(1)).unwrap();
        log.append(chunk, 0, &[7; 5000]).unwrap();
        log.sync(chunk).unwrap();
    }
    // The second is of an older version, which took no room for its other slot.
    let file = OpenOptions::new().write(true).open(log.files.path(ChunkId(2))).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let slot = if slot_offset(1) == 0 { slot_offset(2) } else { 0 };
    // SAFETY: the descriptor is open for writing; the call takes no pointers.
    let punched = unsafe {
        libc::fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), punch, slot as i64, header::SLOT_BYTES as i64)
    };
    assert_eq!(punched, 0);
    disk.fill();
    assert!(matches!(log.append(ChunkId(1), 5000, &[8; 9000]), Err(EngineError::Full { .. })));
    log.set(ChunkId(1), Epoch(2), 5000, SEALED).unwrap();
    assert!(matches!(log.set(ChunkId(2), Epoch(2), 4000, SEALED), Err(EngineError::Full { .. })));
    assert_eq!(log.read(ChunkId(2), 0, 9000).unwrap(), [7; 5000]);
    disk.make_room();
    log.append(ChunkId(2), 5000, &[8; 9000]).unwrap();
    log.set(ChunkId(2), Epoch(2), 14_000, SEALED).unwrap();
    drop(log);
    let mut log = FileChunkLog::open(&disk.path().join("chunks"), &[]).unwrap();
    let sealed: Vec<Option<u64>> = log.chunks().unwrap().into_iter().map(|entry| entry.sealed).collect();
    assert_eq!(sealed, [Some(5000), Some(14_000)]);
}

#[test]
fn bytes_that_the_disk_does_not_give_are_damaged() {
    let temporary = tempfile::tempdir().unwrap();
    let file = one_chunk(temporary.path());
    let mut log = open(temporary.path());
    OpenOptions::new().write(true).open(&file).unwrap().set_len(DATA_OFFSET + 4000).unwrap();
    assert!(matches!(log.read(CHUNK, 3000, 2000), Err(EngineError::Corrupt { .. })));
    assert_eq!(log.read(CHUNK, 3000, 1000), Ok(vec![7; 1000]), "the others are as they were");
    for errno in [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EBADMSG] {
        let error = io::Error::from_raw_os_error(errno);
        assert!(matches!(files::unreadable(&file, &error), EngineError::Corrupt { .. }), "{error}");
    }
    for errno in [libc::EMFILE, libc::ENOMEM, libc::EACCES] {
        let error = io::Error::from_raw_os_error(errno);
        assert!(matches!(files::unreadable(&file, &error), EngineError::Failed { .. }), "{error}");
    }
    drop(log);
    let mut log = open(temporary.path());
    fs::remove_file(&file).unwrap();
    assert!(matches!(log.read(CHUNK, 0, 10), Err(EngineError::Corrupt { .. })));
}

#[test]
fn a_disk_that_was_made_read_only_is_read() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    one_chunk(disk.path());
    let mut log = open(disk.path());
    disk.make_read_only(&disk.path().join(CHUNKS));
    assert_eq!(log.read(CHUNK, 0, 10), Ok(vec![7; 10]));
    assert!(log.set(CHUNK, Epoch(9), 5000, SEALED).is_err());
}

#[test]
fn a_sector_that_cannot_be_read_keeps_a_chunk_from_nothing_and_a_header_only_its_own() {
    let temporary = tempfile::tempdir().unwrap();
    lying::forget_all();
    let mut log = open(temporary.path());
    for chunk in [CHUNK, ChunkId(CHUNK.0 + 1)] {
        log.create(chunk, Epoch(3)).unwrap();
        log.append(chunk, 0, &[7; 50_000]).unwrap();
        log.sync(chunk).unwrap();
    }
    drop(log);
    lying::make_unreadable(DATA_OFFSET + 10_000..DATA_OFFSET + 10_001);
    let mut log = open(temporary.path());
    log.set(CHUNK, Epoch(4), 50_000, End::Fenced { restarted: true }).unwrap();
    drop(log);
    lying::make_unreadable(0..DATA_OFFSET);
    let mut log = open(temporary.path());
    let listed = log.chunks().unwrap();
    assert!(listed.iter().all(|entry| entry.epoch == ChunkEntry::HEADLESS), "{listed:?}");
    assert_eq!(listed.len(), 2);
    drop(log);
    lying::forget_all();
    assert_eq!(open(temporary.path()).chunks().unwrap().len(), 2, "nothing was removed");
}

#[test]
fn lanes_write_side_by_side_and_the_reader_sees_what_they_wrote_and_no_more() {
    let temporary = tempfile::tempdir().unwrap();
    let ids: Vec<ChunkId> = (0..40).map(|number| ChunkId(number * 77)).collect();
    let mut log = open(temporary.path());
    log.create(ids[0], Epoch(1)).unwrap();
    log.append(ids[0], 0, b"here before").unwrap();
    let reader = log.reader();
    let mut lanes = log.split(3);
    std::thread::scope(|scope| {
        for (number, lane) in lanes.iter_mut().enumerate() {
            let own: Vec<ChunkId> = ids[1..].iter().copied().filter(|id| lane_of(*id, 3) == number).collect();
            scope.spawn(move || {
                for id in own {
                    lane.create(id, Epoch(1)).unwrap();
                    lane.append(id, 0, &id.0.to_le_bytes()).unwrap();
                    lane.sync(id).unwrap();
                }
            });
        }
    });
    assert_eq!(reader.read(ids[0], 5, 100), Ok(b"before".to_vec()));
    for id in &ids[1..] {
        assert_eq!(reader.read(*id, 0, 100), Ok(id.0.to_le_bytes().to_vec()));
    }
    let bytes: u64 = ids.iter().map(|id| DATA_OFFSET + if *id == ids[0] { 11 } else { 8 }).sum();
    assert_eq!(reader.space().unwrap().0, bytes);

    let (cut, gone) = (ids[1], ids[2]);
    lanes[lane_of(cut, 3)].set(cut, Epoch(2), 3, End::Open).unwrap();
    lanes[lane_of(gone, 3)].remove(gone).unwrap();
    assert_eq!(reader.read(cut, 0, 100).unwrap().len(), 3);
    assert!(matches!(reader.read(gone, 0, 100), Err(EngineError::Failed { .. })));
    assert!(lanes[lane_of(cut, 3)].append(cut, 8, b"x").is_err(), "its own lane knows of the cut");
    drop((lanes, reader));
    assert_eq!(open(temporary.path()).chunks().unwrap().len(), ids.len() - 1);
}

#[test]
fn the_directory_is_locked_as_long_as_one_lane_is_open() {
    let temporary = tempfile::tempdir().unwrap();
    let mut lanes = open(temporary.path()).split(2);
    lanes.pop();
    assert!(matches!(FileChunkLog::open(temporary.path(), &[]), Err(EngineError::Busy { .. })));
    drop(lanes);
    open(temporary.path());
}

#[test]
fn what_is_written_to_stays_open_until_it_is_synced_whatever_others_open_meanwhile() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = open(temporary.path());
    let others: Vec<ChunkId> = (1..=300).map(|number| ChunkId(CHUNK.0 + number)).collect();
    for chunk in [&[CHUNK], &others[..]].concat() {
        log.create(chunk, Epoch(1)).unwrap();
        log.sync(chunk).unwrap();
    }
    let files = log.files.clone();
    let read_others = || others.iter().for_each(|chunk| drop(files.get(*chunk).unwrap()));
    read_others();
    // Others may come between the opening and the write.
    let written_to = files.get_to_write(CHUNK).unwrap();
    read_others();
    assert!(std::sync::Arc::ptr_eq(&written_to, &files.get(CHUNK).unwrap()));
    log.sync(CHUNK).unwrap();
    read_others();
    assert!(!std::sync::Arc::ptr_eq(&written_to, &files.get(CHUNK).unwrap()), "it was closed");
    assert!(files.count() <= 256);
}

#[test]
fn a_file_that_was_opened_before_its_chunk_was_removed_is_not_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = open(temporary.path());
    log.create(CHUNK, Epoch(1)).unwrap();
    log.append(CHUNK, 0, b"old").unwrap();
    let files = log.files.clone();
    let (born, old) = (files.born(CHUNK), File::open(files.path(CHUNK)).unwrap());
    log.remove(CHUNK).unwrap();
    log.create(CHUNK, Epoch(1)).unwrap();
    log.append(CHUNK, 0, b"new").unwrap();
    files.close(CHUNK);
    files.keep(CHUNK, born, old, false);
    assert_eq!(log.read(CHUNK, 0, 3), Ok(b"new".to_vec()));
}
