use super::*;
use crate::small_disk::SmallDisk;
use bearing_seams::conformance::{self, Stop, Subject};
use fjall::AbstractTree;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::SystemTime;

const TABLET: TabletSerial = TabletSerial(1);

fn open(path: &Path) -> FjallStore {
    FjallStore::open(path, &[]).unwrap()
}

fn put(key: &str, value: u64) -> Change {
    Change { key: key.into(), value: Some(value.to_le_bytes().to_vec()) }
}

/// What a killed process leaves behind: a copy made while the store is open, and made again if its worker
/// changed files meanwhile.
fn copy_while_open(store: &FjallStore, target: &Path) {
    loop {
        let before = listing(store.path());
        let copied = copy_tree(store.path(), target);
        if copied.is_ok() && before.is_some() && before == listing(store.path()) {
            return;
        }
        fs::remove_dir_all(target).unwrap();
    }
}

fn copy_tree(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// All files below a directory with their lengths and times, or `None` if some vanished while they were
/// listed.
fn listing(path: &Path) -> Option<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path).ok()? {
        let path = entry.ok()?.path();
        let metadata = fs::metadata(&path).ok()?;
        if metadata.is_dir() {
            files.extend(listing(&path)?);
        } else {
            files.insert(path, (metadata.len(), metadata.modified().ok()?));
        }
    }
    Some(files)
}

#[test]
fn the_disk_id_of_the_store_conforms() {
    conformance::disk_label(|| {
        let temporary = tempfile::tempdir().unwrap();
        Subject::new(open(temporary.path()), move |store, _| {
            drop(store);
            open(temporary.path())
        })
    });
}

fn content(store: &mut FjallStore, tablet: TabletSerial) -> Vec<Pair> {
    store.range(tablet, &KeyRange { start: Vec::new(), end: None }, usize::MAX).unwrap()
}

#[test]
fn the_store_in_fjall_conforms() {
    conformance::store(|| {
        let temporary = tempfile::tempdir().unwrap();
        Subject::new(open(temporary.path()), move |store, stop| {
            match stop {
                Stop::Clean => store.close().unwrap(),
                Stop::Crash | Stop::PowerCut => drop(store),
            }
            open(temporary.path())
        })
    });
}

#[test]
fn after_a_flush_and_further_changes_a_killed_store_holds_exactly_the_flushed_index() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(&temporary.path().join("store"));
    let tablets = [TABLET, TabletSerial(2), TabletSerial(3)];
    for tablet in tablets {
        store.create_tablet(tablet).unwrap();
    }
    let mut expected = Vec::new();
    for index in 1..=100 {
        for tablet in tablets {
            store.apply(tablet, LogIndex(index), &[put(&format!("key {}", index % 10), index)]).unwrap();
        }
        if index == 70 {
            store.flush().unwrap();
            expected = content(&mut store, TABLET);
        }
    }
    let copy = temporary.path().join("copy");
    copy_while_open(&store, &copy);
    let mut store = open(&copy);
    assert_eq!(store.tablets().unwrap(), [tablets[0], tablets[1], tablets[2]]);
    for tablet in tablets {
        assert_eq!(store.applied(tablet).unwrap(), Some(LogIndex(70)), "{tablet}");
        assert_eq!(content(&mut store, tablet), expected, "{tablet}");
    }
}

#[test]
fn a_torn_journal_does_not_hinder_opening() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(&temporary.path().join("store"));
    store.create_tablet(TABLET).unwrap();
    store.apply(TABLET, LogIndex(1), &[put("flushed", 1)]).unwrap();
    store.flush().unwrap();
    store.apply(TABLET, LogIndex(2), &[put("lost", 2)]).unwrap();
    store.database.persist(PersistMode::SyncAll).unwrap();
    let copy = temporary.path().join("copy");
    copy_while_open(&store, &copy);
    for entry in fs::read_dir(copy.join(DATABASE)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let length = fs::metadata(&path).unwrap().len();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 5).unwrap();
        }
    }
    assert_eq!(open(&copy).applied(TABLET).unwrap(), Some(LogIndex(1)));
}

#[test]
fn tablets_and_contents_stay_right_over_many_removals_and_kills() {
    let temporary = tempfile::tempdir().unwrap();
    let mut path = temporary.path().join("0");
    let mut expected: BTreeMap<TabletSerial, u64> = BTreeMap::new();
    for round in 0..12u64 {
        let mut store = open(&path);
        let found: Vec<TabletSerial> = store.tablets().unwrap();
        assert_eq!(found, expected.keys().copied().collect::<Vec<_>>(), "round {round}");
        for (tablet, index) in &expected {
            assert_eq!(store.applied(*tablet).unwrap(), Some(LogIndex(*index)), "round {round}, {tablet}");
            let pairs = content(&mut store, *tablet);
            assert_eq!(pairs, [(b"round".to_vec(), (*index - 1).to_le_bytes().to_vec())]);
        }
        if round % 3 == 2 {
            let victim = *expected.keys().next().unwrap();
            store.remove_tablet(victim).unwrap();
            expected.remove(&victim);
        }
        let tablet = TabletSerial(16 + round);
        store.create_tablet(tablet).unwrap();
        store.apply(tablet, LogIndex(round + 1), &[put("round", round)]).unwrap();
        store.flush().unwrap();
        expected.insert(tablet, round + 1);
        for n in 0..3000 {
            store.apply(tablet, LogIndex(round + 2 + n), &[put("unflushed", n)]).unwrap();
        }
        // Made, and perhaps removed again, without a flush.
        let passing = TabletSerial(64 + round);
        store.create_tablet(passing).unwrap();
        if round % 4 == 3 {
            store.remove_tablet(passing).unwrap();
        }
        // That is back after a kill.
        store.remove_tablet(tablet).unwrap();
        path = temporary.path().join((round + 1).to_string());
        copy_while_open(&store, &path);
    }
}

/// Rows of whichever generation.
fn rows_in_all(store: &FjallStore) -> usize {
    store.keyspace.range(FIRST_GENERATION.to_be_bytes()..).count()
}

#[test]
fn what_is_left_over_of_removed_tablets_goes_little_by_little_also_after_a_restart() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(temporary.path());
    let (big, small, other) = (TABLET, TabletSerial(2), TabletSerial(3));
    for (tablet, rows) in [(big, 10 * SWEPT_AT_ONCE), (small, 3), (other, 1)] {
        store.create_tablet(tablet).unwrap();
        let rows: Vec<Change> = (0..rows).map(|row| put(&format!("{row:04}"), 7)).collect();
        store.apply(tablet, LogIndex(1), &rows).unwrap();
    }
    store.remove_tablet(big).unwrap();
    store.remove_tablet(small).unwrap();
    store.create_tablet(big).unwrap();
    assert_eq!(content(&mut store, big), [], "empty at once");
    store.apply(big, LogIndex(1), &[put("new", 8)]).unwrap();
    let left = rows_in_all(&store) - 2;
    assert_eq!(left, 9 * SWEPT_AT_ONCE + 3);
    store.close().unwrap();
    let mut store = open(temporary.path());
    assert_eq!((rows_in_all(&store) - 2, store.left_over.len()), (left, 2));
    for index in 2..=12 {
        store.apply(other, LogIndex(index), &[put("0000", 7)]).unwrap();
    }
    assert_eq!((rows_in_all(&store), store.left_over.len()), (2, 0));
    store.close().unwrap();
    let mut store = open(temporary.path());
    assert_eq!((rows_in_all(&store), store.left_over.len()), (2, 0));
    assert_eq!(content(&mut store, big), [(b"new".to_vec(), 8u64.to_le_bytes().to_vec())]);
}

#[test]
fn fjall_never_has_to_ask_its_worker_for_another_memtable() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(&temporary.path().join("store"));
    store.create_tablet(TABLET).unwrap();
    let mut written = 0;
    for (bytes, rows) in [(0, 1), (8, 100), (40_000, 10), (3_000_000, 1)] {
        for index in 1..=20_000_000 / ((bytes + 60) * rows) as u64 {
            written += 1;
            let put = |row| Change { key: format!("{index:010} {row}").into(), value: Some(vec![7; bytes]) };
            store.apply(TABLET, LogIndex(written), &(0..rows).map(put).collect::<Vec<_>>()).unwrap();
            let size = store.keyspace.tree.active_memtable().size();
            assert!(size <= MEMTABLE_BYTES, "{size} after {index} batches of {rows} rows of {bytes}");
        }
    }
    assert!(store.keyspace.sealed_memtable_count() < SEALED_MAX);
}

#[test]
fn a_tablet_that_is_removed_and_made_again_is_so_with_the_next_change_of_it_or_not_at_all() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(&temporary.path().join("store"));
    store.create_tablet(TABLET).unwrap();
    store.apply(TABLET, LogIndex(9), &[put("old", 1)]).unwrap();
    store.flush().unwrap();
    store.remove_tablet(TABLET).unwrap();
    store.create_tablet(TABLET).unwrap();
    // Whatever has fjall write its memtable now.
    flush(&store.database, &store.keyspace).unwrap();
    let copy = temporary.path().join("copy");
    copy_while_open(&store, &copy);
    assert_eq!(content(&mut open(&copy), TABLET), [(b"old".to_vec(), 1u64.to_le_bytes().to_vec())]);
    store.apply(TABLET, LogIndex(1), &[put("new", 2)]).unwrap();
    flush(&store.database, &store.keyspace).unwrap();
    let copy = temporary.path().join("another");
    copy_while_open(&store, &copy);
    assert_eq!(content(&mut open(&copy), TABLET), [(b"new".to_vec(), 2u64.to_le_bytes().to_vec())]);
}

#[test]
fn rows_of_tablets_that_make_no_sense_are_damage() {
    let tablet = tablet_row(TABLET);
    let rows = [
        (tablet.clone(), vec![0; 16]),
        (tablet.clone(), vec![1; 15]),
        (tablet.clone(), vec![1; 18]),
        (tablet[..9].to_vec(), vec![1; 16]),
        (left_over_row(1), Vec::new()),
        (left_over_row(7)[..12].to_vec(), Vec::new()),
    ];
    for (key, value) in rows {
        let temporary = tempfile::tempdir().unwrap();
        let mut store = open(temporary.path());
        store.unwritten.insert(key.clone(), Some(value.clone()));
        store.close().unwrap();
        let error = FjallStore::open(temporary.path(), &[]).err().expect("it is refused");
        assert!(matches!(error, EngineError::Corrupt { .. }), "{key:?}, {value:?}: {error}");
    }
}

#[test]
fn a_second_process_is_told_that_the_store_is_in_use() {
    let temporary = tempfile::tempdir().unwrap();
    let _first = open(temporary.path());
    assert!(matches!(FjallStore::open(temporary.path(), &[]), Err(EngineError::Busy { .. })));
}

#[test]
fn newer_and_garbage_formats_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    open(temporary.path()).close().unwrap();
    fs::write(temporary.path().join("FORMAT"), "bearing-store 5\n").unwrap();
    let error = FjallStore::open(temporary.path(), &[]).err().unwrap();
    assert!(matches!(error, EngineError::NewerVersion { found: 5, known: 4, .. }), "{error}");
    fs::write(temporary.path().join("FORMAT"), "who knows").unwrap();
    let error = FjallStore::open(temporary.path(), &[]).err().unwrap();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
}

#[test]
fn an_interrupted_first_opening_leaves_nothing_that_hinders_the_next() {
    let temporary = tempfile::tempdir().unwrap();
    drop(open(temporary.path()));
    fs::remove_dir_all(temporary.path().join(DATABASE)).unwrap();
    fs::create_dir(temporary.path().join("rows.new")).unwrap();
    fs::write(temporary.path().join("rows.new/0.jnl"), "half").unwrap();
    assert_eq!(open(temporary.path()).tablets().unwrap(), vec![]);
}

#[test]
fn keys_beyond_the_limit_are_refused_and_break_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let mut store = open(temporary.path());
    store.create_tablet(TABLET).unwrap();
    let long = vec![7; rows::KEY_BYTES_MAX];
    let too_long = vec![7; rows::KEY_BYTES_MAX + 1];
    let change = |key: &Vec<u8>| [Change { key: key.clone(), value: Some(vec![1]) }];
    assert!(store.apply(TABLET, LogIndex(1), &change(&too_long)).is_err());
    assert_eq!(store.applied(TABLET).unwrap(), Some(LogIndex::ZERO));
    store.apply(TABLET, LogIndex(1), &change(&long)).unwrap();
    assert_eq!(store.get(TABLET, &long).unwrap(), Some(vec![1]));
}

/// The directory for the child process of the next test.
const CHILD: &str = "BEARING_STORE_CHILD";

#[test]
fn a_process_killed_at_work_leaves_a_prefix_not_shorter_than_flushed() {
    if let Ok(path) = std::env::var(CHILD) {
        return work_until_killed(Path::new(&path));
    }
    let temporary = tempfile::tempdir().unwrap();
    for kill_after in [1, 3, 5] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::a_process_killed_at_work_leaves_a_prefix_not_shorter_than_flushed",
                "--nocapture",
            ])
            .env(CHILD, temporary.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let flushed = lines.filter_map(|line| line.strip_prefix("flushed ")?.parse::<u64>().ok());
        let flushed = flushed.take(kill_after).last().expect("the child flushes");
        child.kill().unwrap();
        child.wait().unwrap();
        let mut store = open(temporary.path());
        let applied = store.applied(TABLET).unwrap().unwrap().0;
        assert!(applied >= flushed, "flushed {flushed}, found {applied}");
        let expected: Vec<Pair> = (applied.saturating_sub(99).max(1)..=applied)
            .map(|index| (format!("{:02}", index % 100).into_bytes(), index.to_le_bytes().to_vec()))
            .collect();
        let mut expected = expected;
        expected.sort();
        assert_eq!(content(&mut store, TABLET), expected, "the content is that of index {applied}");
    }
}

fn work_until_killed(path: &Path) {
    let mut store = open(path);
    store.create_tablet(TABLET).unwrap();
    let from = store.applied(TABLET).unwrap().unwrap().0 + 1;
    for index in from.. {
        store.apply(TABLET, LogIndex(index), &[put(&format!("{:02}", index % 100), index)]).unwrap();
        if index % 250 == 0 {
            store.flush().unwrap();
            println!("flushed {index}");
        }
    }
}

/// The files with rows that are not empty.
fn tables(database: &Path) -> Vec<PathBuf> {
    let all = listing(database).unwrap().into_keys();
    all.filter(|path| path.parent().and_then(Path::file_name).is_some_and(|name| name == "tables")).collect()
}

#[test]
fn a_flipped_byte_of_a_table_is_an_error_or_does_not_matter_and_never_another_value() {
    let temporary = tempfile::tempdir().unwrap();
    let (whole, spoilt) = (temporary.path().join("whole"), temporary.path().join("spoilt"));
    let mut store = open(&whole);
    let tablet = TABLET;
    store.create_tablet(tablet).unwrap();
    let rows: Vec<Change> = (0..300).map(|row| put(&format!("key {row:03}"), row * 7919)).collect();
    store.apply(tablet, LogIndex(1), &rows).unwrap();
    store.close().unwrap();
    let (mut harmless, mut noticed) = (0, 0);
    for table in tables(&whole.join(DATABASE)) {
        let bytes = fs::read(&table).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let _ = fs::remove_dir_all(&spoilt);
            copy_tree(&whole, &spoilt).unwrap();
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            fs::write(spoilt.join(table.strip_prefix(&whole).unwrap()), damaged).unwrap();
            match read_all(&spoilt, tablet, &rows) {
                Ok(()) => harmless += 1,
                Err(EngineError::Corrupt { .. }) => noticed += 1,
                Err(error) => panic!("byte {at} of {}: {error}", table.display()),
            }
        }
    }
    assert!(noticed > 20, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn damage_that_is_met_when_tables_are_compacted_costs_its_tablet_and_not_the_store() {
    for is_removed in [true, false] {
        let temporary = tempfile::tempdir().unwrap();
        let mut store = open(temporary.path());
        let (damaged, whole) = (TABLET, TabletSerial(2));
        let rows: Vec<Change> = (0..9_000).map(|row| put(&format!("key {row:04}"), row * 7919)).collect();
        for tablet in [damaged, whole] {
            store.create_tablet(tablet).unwrap();
            store.apply(tablet, LogIndex(1), &rows).unwrap();
            store.flush().unwrap();
        }
        store.close().unwrap();
        // In the rows of the first tablet, which are in the oldest table that has any.
        let with_rows =
            tables(temporary.path()).into_iter().filter(|table| fs::metadata(table).unwrap().len() > 4_000);
        let table = with_rows
            .min_by_key(|table| table.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap());
        let table = table.unwrap();
        let mut bytes = fs::read(&table).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x41;
        fs::write(&table, bytes).unwrap();
        let mut store = open(temporary.path());
        if is_removed {
            store.remove_tablet(damaged).unwrap();
            store.create_tablet(damaged).unwrap();
        }
        let mut index = 2;
        let mut write = |store: &mut FjallStore| {
            index += 1;
            store.apply(whole, LogIndex(index), &[put("new", index)])?;
            store.flush()
        };
        let ended = (0..40).any(|_| write(&mut store).is_err());
        assert!(ended, "the worker met the damage");
        drop(store);
        let mut store = open(temporary.path());
        for _ in 0..40 {
            write(&mut store).unwrap();
        }
        assert_eq!(content(&mut store, whole).len(), rows.len() + 1);
        match is_removed {
            true => assert_eq!(content(&mut store, damaged), []),
            false => {
                for _ in 0..2 {
                    let lost: Vec<&Change> = rows.iter().filter(|row| is_lost(&mut store, row)).collect();
                    assert!((1..1_000).contains(&lost.len()), "of one block: {}", lost.len());
                    let all = |count_max| (KeyRange { start: Vec::new(), end: None }, count_max);
                    let mut read = |(range, count_max)| store.range(damaged, &range, count_max);
                    assert_eq!(read(all(1)).map(|found| found.len()), Ok(1));
                    assert!(matches!(read(all(usize::MAX)), Err(EngineError::Corrupt { .. })));
                    let behind = rows.iter().skip_while(|row| row.key <= lost[lost.len() - 1].key);
                    let behind = KeyRange { start: { behind }.next().unwrap().key.clone(), end: None };
                    assert!(read((behind, usize::MAX)).is_ok_and(|found| !found.is_empty()));
                    let again = [(*lost[0]).clone()];
                    store.apply(damaged, LogIndex(2), &again).unwrap();
                    assert!(!is_lost(&mut store, &again[0]), "it is written anew");
                    store.close().unwrap();
                    store = open(temporary.path());
                }
                store.remove_tablet(damaged).unwrap();
                store.create_tablet(damaged).unwrap();
                store.apply(damaged, LogIndex(1), &rows).unwrap();
                store.close().unwrap();
                assert_eq!(content(&mut open(temporary.path()), damaged).len(), rows.len());
            }
        }
    }
}

/// Whether a row cannot be read; a row that can is what was written.
fn is_lost(store: &mut FjallStore, row: &Change) -> bool {
    match store.get(TABLET, &row.key) {
        Ok(found) => {
            assert_eq!(found, row.value, "never left out");
            false
        }
        Err(EngineError::Corrupt { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_database_that_was_about_to_be_written_anew_or_set_aside_for_that_is_taken_up_again() {
    let temporary = tempfile::tempdir().unwrap();
    let (database, aside) = (temporary.path().join(DATABASE), temporary.path().join("rows.damaged"));
    let mut store = open(temporary.path());
    store.create_tablet(TABLET).unwrap();
    store.apply(TABLET, LogIndex(1), &[put("key", 1)]).unwrap();
    store.close().unwrap();
    for is_set_aside in [true, false] {
        File::create(temporary.path().join("DAMAGED")).unwrap();
        copy_tree(&database, &database.with_extension("new")).unwrap();
        if is_set_aside {
            fs::rename(&database, &aside).unwrap();
        } else {
            copy_tree(&database, &aside).unwrap();
        }
        let mut store = open(temporary.path());
        assert_eq!(store.applied(TABLET).unwrap(), Some(LogIndex(1)));
        assert_eq!(content(&mut store, TABLET).len(), 1);
        drop(store);
        assert!(!aside.exists() && !temporary.path().join("DAMAGED").exists());
    }
}

/// Every row is right, or there is an error.
fn read_all(path: &Path, tablet: TabletSerial, rows: &[Change]) -> EngineResult<()> {
    let mut store = FjallStore::open(path, &[])?;
    let mut worst = Ok(());
    for row in rows {
        match store.get(tablet, &row.key) {
            Ok(value) => assert_eq!(value, row.value),
            Err(error) => worst = Err(error),
        }
    }
    match store.range(tablet, &KeyRange { start: Vec::new(), end: None }, usize::MAX) {
        Ok(pairs) => assert!(
            pairs
                .into_iter()
                .map(|(key, value)| (key, Some(value)))
                .eq(rows.iter().map(|row| (row.key.clone(), row.value.clone())))
        ),
        Err(error) => worst = Err(error),
    }
    worst
}

#[test]
fn with_room_taken_ahead_a_disk_that_others_fill_ends_nothing() {
    let Some(disk) = SmallDisk::mount(32 << 20) else { return };
    let path = disk.path().join("store");
    let mut store = open(&path);
    store.create_tablet(TABLET).unwrap();
    store.take_room(4 << 20);
    disk.fill();
    let keys: Vec<String> =
        (0..20_000).map(|number| format!("key {number:08} with some length to it")).collect();
    for (number, key) in keys.iter().enumerate() {
        store.apply(TABLET, LogIndex(number as u64 + 1), &[put(key, 7)]).unwrap();
    }
    assert_eq!(content(&mut store, TABLET).len(), keys.len());
    disk.make_room();
    store.flush().unwrap();
    drop(store);
    assert_eq!(content(&mut open(&path), TABLET).len(), keys.len());
}

/// A store as it was made before version 4.
fn older_store(path: &Path, version: u32, tablets: &[(&str, u64)]) {
    Directory::open(path, Format { version, ..FORMAT }, &[]).unwrap();
    let database = open_any_database(&path.join("fjall")).unwrap();
    for (name, applied) in tablets {
        let keyspace = database.keyspace(name, options).unwrap();
        let mut batch = database.batch();
        batch.insert(&keyspace, [0], applied.to_le_bytes());
        for row in 0..2_500_u64 {
            batch.insert(&keyspace, [&[1], format!("{row:04}").as_bytes()].concat(), row.to_le_bytes());
        }
        batch.commit().unwrap();
        keyspace.rotate_memtable_and_wait().unwrap();
    }
    database.keyspace("sequence", options).unwrap().insert("at", "7").unwrap();
}

#[test]
fn older_stores_are_taken_over_whole_however_often_that_is_interrupted() {
    let tablets = [("t1", 5), ("0000000000000000-1", 6), ("8000000000000000-1", 7)];
    for version in [1, 2, 3] {
        let temporary = tempfile::tempdir().unwrap();
        older_store(temporary.path(), version, &tablets);
        // Once it was interrupted when all was written, and not yet named.
        drop(open(temporary.path()));
        older_store(&temporary.path().join("again"), version, &tablets);
        fs::rename(temporary.path().join("again/fjall"), temporary.path().join("fjall")).unwrap();
        fs::rename(temporary.path().join("rows"), temporary.path().join("rows.new")).unwrap();
        let mut store = open(temporary.path());
        assert_eq!(store.tablets().unwrap(), [TabletSerial(1), TabletSerial(2), TabletSerial(3)]);
        let expected: Vec<Pair> = (0..2_500_u64)
            .map(|row| (format!("{row:04}").into_bytes(), row.to_le_bytes().to_vec()))
            .collect();
        for (tablet, (_, applied)) in (1..).map(TabletSerial).zip(tablets) {
            assert_eq!(store.applied(tablet).unwrap(), Some(LogIndex(applied)));
            assert_eq!(content(&mut store, tablet), expected);
        }
        assert!(!temporary.path().join("fjall").exists());
        store.remove_tablet(TabletSerial(2)).unwrap();
        store.close().unwrap();
        assert_eq!(open(temporary.path()).tablets().unwrap(), [TabletSerial(1), TabletSerial(3)]);
    }
}

#[test]
fn a_tablet_of_an_older_store_that_cannot_be_read_is_damaged_and_the_others_are_taken_over() {
    let temporary = tempfile::tempdir().unwrap();
    older_store(temporary.path(), 3, &[("t1", 5), ("t2", 6)]);
    let tables = tables(&temporary.path().join("fjall")).into_iter();
    let table = tables.max_by_key(|table| fs::metadata(table).unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&table, bytes).unwrap();
    let mut store = open(temporary.path());
    assert_eq!(store.tablets().unwrap(), [TabletSerial(1), TabletSerial(2)]);
    let all = KeyRange { start: Vec::new(), end: None };
    let read = [1, 2].map(|tablet| store.range(TabletSerial(tablet), &all, usize::MAX));
    let damaged = read.iter().filter(|read| matches!(read, Err(EngineError::Corrupt { .. }))).count();
    let whole = read.iter().filter(|read| read.as_ref().is_ok_and(|rows| rows.len() == 2_500)).count();
    assert_eq!((damaged, whole), (1, 1));
}

#[test]
fn older_keyspaces_that_nobody_made_are_damage() {
    for names in [vec!["t"], vec!["t01"], vec!["0000000000000000-40"], vec!["t1", "0000000000000000-0"]] {
        let temporary = tempfile::tempdir().unwrap();
        older_store(temporary.path(), 3, &names.iter().map(|name| (*name, 1)).collect::<Vec<_>>());
        let error = FjallStore::open(temporary.path(), &[]).err().expect("it is refused");
        assert!(matches!(error, EngineError::Corrupt { .. }), "{names:?}: {error}");
        assert!(temporary.path().join("fjall").exists(), "and kept");
    }
}
