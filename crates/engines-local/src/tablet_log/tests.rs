use super::*;
use crate::device::lying;
use crate::small_disk::SmallDisk;
use bearing_seams::conformance::{self, Stop, Subject};
use bearing_types::{Block, DiskId, Epoch, LogIndex, Position, TabletSerial};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

fn record(number: u64) -> LoggedRecord {
    LoggedRecord {
        serial: TabletSerial(16 + number % 16),
        epoch: Epoch(1),
        index: LogIndex(number),
        commit: LogIndex(number / 2),
        bytes: vec![number as u8; (number * 37 % 200) as usize],
    }
}

fn records(numbers: std::ops::Range<u64>) -> Vec<LoggedRecord> {
    numbers.map(record).collect()
}

fn contents(log: &mut FileTabletLog) -> Vec<LoggedRecord> {
    log.read(None, usize::MAX).unwrap().into_iter().map(|(_, record)| record).collect()
}

fn last_segment(path: &Path) -> PathBuf {
    let mut paths: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    paths.sort();
    paths.pop().expect("a log has a segment")
}

fn spoil(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn a_log_with_an_id_and_without_segments_is_not_taken_for_an_empty_one() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("log");
    let mut log = FileTabletLog::open(&path, &[]).unwrap();
    log.set_disk(DiskId(7)).unwrap();
    drop(log);
    drop(FileTabletLog::open(&path, &[]).unwrap());
    fs::remove_file(last_segment(&path)).unwrap();
    let error = FileTabletLog::open(&path, &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("none of its segments"), "{error}");
}

#[test]
fn the_log_in_files_conforms_with_large_and_with_tiny_segments() {
    for segment_bytes in [300, 1000, 4096, SEGMENT_BYTES] {
        conformance::tablet_log(|| {
            lying::forget_all();
            let temporary = tempfile::tempdir().unwrap();
            let log = FileTabletLog::open_with_segments(temporary.path(), &[], segment_bytes).unwrap();
            Subject::new(log, move |log, stop| {
                drop(log);
                if stop == Stop::PowerCut {
                    lying::cut_power(temporary.path());
                }
                FileTabletLog::open_with_segments(temporary.path(), &[], segment_bytes).unwrap()
            })
            .with_failing_syncs(|_| lying::fail_next_sync())
        });
    }
}

#[test]
fn the_disk_id_of_the_log_conforms() {
    conformance::disk_label(|| {
        let temporary = tempfile::tempdir().unwrap();
        let log = FileTabletLog::open(temporary.path(), &[]).unwrap();
        Subject::new(log, move |log, _| {
            drop(log);
            FileTabletLog::open(temporary.path(), &[]).unwrap()
        })
    });
}

/// A log of 20 synced and 20 unsynced records in one segment, and the marks at which records begin.
fn half_synced(path: &Path) -> (Vec<u64>, u64) {
    let mut log = FileTabletLog::open_with_segments(path, &[], 65_536).unwrap();
    log.append(&records(0..20)).unwrap();
    log.sync().unwrap();
    log.append(&records(20..40)).unwrap();
    let marks = log.read(None, 100).unwrap().into_iter().map(|(mark, _)| mark.0).collect();
    (marks, log.end)
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_to_whole_records() {
    let temporary = tempfile::tempdir().unwrap();
    let (marks, end) = half_synced(temporary.path());
    let segment = last_segment(temporary.path());
    let original = fs::read(&segment).unwrap();
    let header = SEGMENT_HEADER_BYTES as u64;
    for tear in (marks[20]..end).step_by(13) {
        let whole = marks.iter().filter(|mark| **mark < tear).count().saturating_sub(1).max(20);
        // A tear inside the filling zeros of a record leaves it whole.
        for (zeros, kept) in [
            (false, original[..(header + tear) as usize].to_vec()),
            (true, {
                let mut bytes = original.clone();
                bytes[(header + tear) as usize..].fill(0);
                bytes
            }),
        ] {
            fs::write(&segment, kept).unwrap();
            let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 65_536).unwrap();
            let found = contents(&mut log);
            assert!((whole..=whole + 1).contains(&found.len()), "tear {tear} zeros {zeros}: {}", found.len());
            assert_eq!(found, records(0..found.len() as u64));
            drop(log);
        }
    }
}

#[test]
fn whole_records_behind_a_hole_in_the_unsynced_tail_are_cut_and_never_come_back() {
    let temporary = tempfile::tempdir().unwrap();
    let (marks, _) = half_synced(temporary.path());
    let segment = last_segment(temporary.path());
    // The disk wrote records 26 and on, but not 25.
    spoil(&segment, SEGMENT_HEADER_BYTES as u64 + marks[25], &vec![0; (marks[26] - marks[25]) as usize]);
    let mut log = FileTabletLog::open(temporary.path(), &[]).unwrap();
    assert_eq!(contents(&mut log), records(0..25));
    // A new record of the same size takes the hole; what lay behind it must not join it.
    let other = LoggedRecord { epoch: Epoch(9), ..record(25) };
    log.append(std::slice::from_ref(&other)).unwrap();
    log.sync().unwrap();
    drop(log);
    let found = contents(&mut FileTabletLog::open(temporary.path(), &[]).unwrap());
    assert_eq!(found, [records(0..25), vec![other]].concat());
}

#[test]
fn damage_before_a_record_that_was_written_after_its_sync_is_corrupt() {
    let temporary = tempfile::tempdir().unwrap();
    let (marks, _) = half_synced(temporary.path());
    let segment = last_segment(temporary.path());
    spoil(&segment, SEGMENT_HEADER_BYTES as u64 + marks[7] + 50, b"\xff");
    let error = FileTabletLog::open(temporary.path(), &[]).unwrap_err();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(&marks[7].to_string()), "{error}");
}

#[test]
fn damage_in_an_earlier_segment_is_corrupt_when_read() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 1000).unwrap();
    log.append(&records(0..40)).unwrap();
    log.sync().unwrap();
    assert!(log.segments.len() > 3);
    let second = log.segments[1].path.clone();
    drop(log);
    spoil(&second, SEGMENT_HEADER_BYTES as u64 + 60, b"\xff\xff");
    let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 1000).unwrap();
    assert!(matches!(log.read(None, usize::MAX), Err(EngineError::Corrupt { .. })));
}

#[test]
fn a_missing_or_shortened_segment_is_corrupt_at_opening() {
    for shorten in [false, true] {
        let temporary = tempfile::tempdir().unwrap();
        let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 1000).unwrap();
        log.append(&records(0..40)).unwrap();
        let victim = log.segments[1].path.clone();
        drop(log);
        if shorten {
            OpenOptions::new().write(true).open(&victim).unwrap().set_len(500).unwrap();
        } else {
            fs::remove_file(&victim).unwrap();
        }
        let error = FileTabletLog::open(temporary.path(), &[]).unwrap_err();
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    }
}

#[test]
fn an_interrupted_creation_of_a_segment_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    half_synced(temporary.path());
    let unfinished = temporary.path().join("log-00000000000fffff.new");
    fs::write(&unfinished, "half a hea").unwrap();
    assert_eq!(contents(&mut FileTabletLog::open(temporary.path(), &[]).unwrap()), records(0..40));
    assert!(!unfinished.exists());
}

#[test]
fn newer_segments_and_foreign_bytes_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    half_synced(temporary.path());
    let segment = last_segment(temporary.path());
    let mut header = frame::encode_segment_header(0);
    header[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    spoil(&segment, 0, &header);
    let error = FileTabletLog::open(temporary.path(), &[]).unwrap_err();
    assert!(matches!(error, EngineError::NewerVersion { found: 7, known: 2, .. }), "{error}");
    spoil(&segment, 0, b"garbage!");
    let error = FileTabletLog::open(temporary.path(), &[]).unwrap_err();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
}

#[test]
fn cuts_remove_whole_segments_and_space_shrinks() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 1000).unwrap();
    log.append(&records(0..100)).unwrap();
    log.sync().unwrap();
    let (before, last) = (log.bytes_used(), log.read(None, 100).unwrap()[99].0);
    log.cut(last).unwrap();
    assert!(log.bytes_used() <= 2000 && before > 10_000, "{before} -> {}", log.bytes_used());
    assert_eq!(
        log.segments.len(),
        fs::read_dir(temporary.path()).unwrap().count() - 2,
        "FORMAT and LOCK stay"
    );
}

#[test]
fn a_record_larger_than_a_segment_gets_one_of_its_own_and_one_beyond_the_limit_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 4096).unwrap();
    let large = LoggedRecord { bytes: vec![7; 300_000], ..record(1) };
    let batch = [record(0), large.clone(), record(2)];
    log.append(&batch).unwrap();
    assert_eq!(contents(&mut log), batch);
    assert!(log.append(&[LoggedRecord { bytes: vec![0; PAYLOAD_BYTES_MAX + 1], ..large }]).is_err());
    log.append(&[record(3)]).expect("a refused record breaks nothing");
    drop(log);
    let mut log = FileTabletLog::open_with_segments(temporary.path(), &[], 4096).unwrap();
    assert_eq!(contents(&mut log), [&batch[..], &[record(3)]].concat());
}

#[test]
fn a_second_process_is_told_that_the_log_is_in_use() {
    let temporary = tempfile::tempdir().unwrap();
    let _first = FileTabletLog::open(temporary.path(), &[]).unwrap();
    assert!(matches!(FileTabletLog::open(temporary.path(), &[]), Err(EngineError::Busy { .. })));
}

#[test]
fn an_append_to_a_full_disk_leaves_nothing_and_goes_on_when_there_is_space_again() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let path = disk.path().join("log");
    let mut log = FileTabletLog::open_with_segments(&path, &[], 16_384).unwrap();
    log.append(&records(0..20)).unwrap();
    log.sync().unwrap();
    disk.fill();
    // Over the end of a segment and of further ones: what is written of it before there is no room for the
    // next is taken back.
    for _ in 0..3 {
        let error = log.append(&records(20..400)).unwrap_err();
        assert!(matches!(error, EngineError::Full { .. }), "{error}");
        assert_eq!(contents(&mut log), records(0..20));
    }
    // What fits the room that the log has goes on.
    log.append(&records(20..40)).unwrap();
    log.sync().unwrap();
    drop(log);
    let mut log = FileTabletLog::open_with_segments(&path, &[], 16_384).unwrap();
    assert_eq!(contents(&mut log), records(0..40));
    disk.make_room();
    log.append(&records(40..400)).unwrap();
    log.sync().unwrap();
    drop(log);
    let found = contents(&mut FileTabletLog::open_with_segments(&path, &[], 16_384).unwrap());
    assert_eq!(found, records(0..400));
}

#[test]
fn what_a_failed_append_wrote_over_several_segments_is_taken_back() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let path = disk.path().join("log");
    let mut log = FileTabletLog::open_with_segments(&path, &[], 16_384).unwrap();
    log.append(&records(0..20)).unwrap();
    // More than the disk holds: some segments are made before there is no room.
    let many: Vec<LoggedRecord> =
        (0..400).map(|number| LoggedRecord { bytes: vec![5; 4000], ..record(number % 9) }).collect();
    let error = log.append(&many).unwrap_err();
    assert!(matches!(error, EngineError::Full { .. }), "{error}");
    assert_eq!(contents(&mut log), records(0..20));
    log.append(&records(20..30)).unwrap();
    log.sync().unwrap();
    drop(log);
    let found = contents(&mut FileTabletLog::open_with_segments(&path, &[], 16_384).unwrap());
    assert_eq!(found, records(0..30));
}

/// A frame as version 1 of the format had it.
fn frame_of_version_1(mark: u64, synced: u64, record: &LoggedRecord) -> Vec<u8> {
    let block = record.serial.first_block().unwrap();
    let mut frame = b"tfrm".to_vec();
    frame.extend((record.bytes.len() as u32).to_le_bytes());
    for field in [block.start().0, record.epoch.0, record.index.0, synced] {
        frame.extend(field.to_le_bytes());
    }
    frame.extend([block.prefix_bits(), 0, 0, 0]);
    let summed = [&mark.to_le_bytes(), &frame[..], &record.bytes].concat();
    frame.extend(crc32c::crc32c(&summed).to_le_bytes());
    frame.extend(&record.bytes);
    frame.resize(frame.len().next_multiple_of(8), 0);
    frame
}

/// What version 1 had no field for: every record counted as committed.
fn records_of_version_1(numbers: std::ops::Range<u64>) -> Vec<LoggedRecord> {
    let all = records(numbers).into_iter();
    all.map(|record| LoggedRecord { commit: record.index, ..record }).collect()
}

/// A segment of version 1 with room behind its records. Gives the mark behind each of them.
fn write_version_1(path: &Path, first: u64, synced: u64, records: &[LoggedRecord], room: usize) -> Vec<u64> {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("FORMAT"), "bearing-tablet-log 1\n").unwrap();
    let mut bytes =
        [b"BRG-TLOG".as_slice(), &1_u32.to_le_bytes(), &[0; 4], &first.to_le_bytes(), &[0; 36]].concat();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let mut ends = Vec::new();
    for record in records {
        let mark = first + bytes.len() as u64 - 64;
        bytes.extend(frame_of_version_1(mark, synced.min(mark), record));
        ends.push(first + bytes.len() as u64 - 64);
    }
    bytes.resize(bytes.len() + room, 0);
    fs::write(path.join(format!("log-{first:016x}.seg")), bytes).unwrap();
    ends
}

fn reopened(path: &Path) -> FileTabletLog {
    FileTabletLog::open_with_segments(path, &[], 4096).unwrap()
}

#[test]
fn a_log_of_version_1_is_read_cut_and_goes_on_in_a_segment_of_version_2() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path();
    let old = records_of_version_1(0..40);
    let first = *write_version_1(path, 0, 0, &old[..20], 0).last().unwrap();
    let ends = write_version_1(path, first, first, &old[20..], 500);
    // The last record is torn.
    let segment = last_segment(path);
    spoil(&segment, ends[19] - first + 64 - 9, b"\xff");
    let mut log = reopened(path);
    assert_eq!(fs::read_to_string(path.join("FORMAT")).unwrap(), "bearing-tablet-log 2\n");
    assert_eq!(contents(&mut log), old[..39]);
    assert_eq!(fs::metadata(&segment).unwrap().len(), 64 + ends[18] - first, "cut to its last record");
    assert_eq!((log.segments.len(), log.last().first), (3, ends[18]));
    let all = [&old[..39], &records(50..90)].concat();
    assert_eq!(log.append(&all[39..]).unwrap(), LogMark(ends[18]));
    log.sync().unwrap();
    assert_eq!(contents(&mut log), all);
    assert_eq!(log.read(Some(LogMark(ends[3])), 3).unwrap()[0].1, old[24], "from a mark in the old part");
    drop(log);
    let mut log = reopened(path);
    assert_eq!(contents(&mut log), all);
    assert_eq!(log.last().layout, Layout::Serials);
    log.cut(LogMark(ends[18])).unwrap();
    assert_eq!(contents(&mut log), all[39..]);
}

#[test]
fn a_log_of_version_1_without_records_becomes_one_of_version_2() {
    let temporary = tempfile::tempdir().unwrap();
    write_version_1(temporary.path(), 4096, 4096, &[], 1000);
    let mut log = reopened(temporary.path());
    assert_eq!(log.append(&records(0..2)).unwrap(), LogMark(4096));
    log.sync().unwrap();
    drop(log);
    let mut log = reopened(temporary.path());
    assert_eq!((log.segments.len(), contents(&mut log)), (1, records(0..2)));
}

#[test]
fn damage_in_a_log_of_version_1_is_corrupt_if_it_was_synced() {
    let temporary = tempfile::tempdir().unwrap();
    let ends = write_version_1(temporary.path(), 0, u64::MAX, &records_of_version_1(0..20), 0);
    let segment = last_segment(temporary.path());
    spoil(&segment, 64 + ends[6] + 50, b"\xff");
    let error = FileTabletLog::open(temporary.path(), &[]).unwrap_err();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    assert_eq!(last_segment(temporary.path()), segment, "nothing was begun");
}

#[test]
fn the_block_of_a_frame_of_version_1_gives_its_serial() {
    let block = Block::around(Position(5 << 60), 4);
    let record = LoggedRecord {
        serial: TabletSerial::of_first(block).unwrap(),
        ..records_of_version_1(3..4).remove(0)
    };
    let mut frame = frame_of_version_1(80, 72, &record);
    assert_eq!(Layout::Blocks.decode_frame(&frame, 80), Some((record, 72)));
    assert_eq!(Layout::Blocks.decode_frame(&frame, 88), None);
    assert_eq!(Layout::Serials.decode_frame(&frame, 80), None);
    frame[40] = 3;
    assert_eq!(Layout::Blocks.decode_frame(&frame, 80), None);
}
