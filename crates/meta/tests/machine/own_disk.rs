//! A metadata server serves from its own disk only, as that is now: not from an empty one, another one, or an
//! older state of it.

use crate::cluster::{ALICE, Cluster, serial};
use bearing_meta::{EntryKind, Event, LogEntry, Note};
use bearing_placement::Scheme;
use bearing_proto::disk::disk_key;
use bearing_seams::{DiskLabel, LoggedRecord, MemStore, MemTabletLog, Store, TabletLog};
use bearing_types::{Block, DiskId, Epoch, LogIndex, Position, ServerId};
use std::time::Duration;

const FIRST: ServerId = ServerId(1);

fn make(cluster: &mut Cluster, names: &str) {
    let root = cluster.root(ALICE).grant;
    for number in 0..20 {
        cluster.create(ALICE, &root, &format!("{names}{number}")).unwrap();
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    make(&mut cluster, "f");
    cluster.pass(Duration::from_millis(100));
    cluster.may_complain = true;
    cluster
}

/// What the first server says when it is started on a disk; `None`: it serves.
fn refusal(cluster: &mut Cluster, (store, log): (MemStore, MemTabletLog)) -> Option<String> {
    cluster.complaints.clear();
    cluster.replace_disk(FIRST, store, log);
    cluster.pass(Duration::from_millis(300));
    let serves = cluster.hosts[&FIRST].machine.serving().count() > 0;
    let said = cluster.complaints.iter().find_map(|note| match note {
        Note::WrongDisk(what) => Some(what.clone()),
        _ => None,
    });
    assert_ne!(serves, said.is_some(), "{said:?}");
    said
}

fn disk(cluster: &Cluster) -> (MemStore, MemTabletLog) {
    let host = &cluster.hosts[&FIRST];
    (host.store.clone(), host.log.clone())
}

#[test]
fn an_empty_disk_another_one_and_half_of_the_right_one_are_refused_and_the_right_one_serves_again() {
    let mut cluster = cluster();
    let right = disk(&cluster);
    let id = right.0.clone().disk().unwrap().expect("a disk that served has an id");
    let other = |mut disk: (MemStore, MemTabletLog)| {
        disk.0.set_disk(DiskId(77)).unwrap();
        disk.1.set_disk(DiskId(77)).unwrap();
        disk
    };
    let empty = || (MemStore::new(), MemTabletLog::new());
    for wrong in [
        empty(),
        other(empty()),
        other(right.clone()),
        (empty().0, right.1.clone()),
        (right.0.clone(), empty().1),
    ] {
        let said = refusal(&mut cluster, wrong).expect("it is refused");
        assert!(said.contains(&id.to_string()), "{said}");
    }
    assert_eq!(refusal(&mut cluster, right), None);
    let root = cluster.root(ALICE).grant;
    assert!(cluster.lookup(ALICE, &root, "f7").is_ok());
}

#[test]
fn a_disk_from_before_the_last_start_is_refused_whether_its_log_was_cut_or_not() {
    for cut in [false, true] {
        let mut cluster = cluster();
        let mut old = disk(&cluster);
        let mut now = disk(&cluster);
        if cut {
            for (store, log) in [&mut old, &mut now] {
                store.flush().unwrap();
                log.cut(bearing_seams::LogMark(u64::MAX)).unwrap();
            }
        }
        assert_eq!(refusal(&mut cluster, now), None);
        let said = refusal(&mut cluster, old).expect("it is refused");
        assert!(said.contains("this disk is older") && said.contains("under e"), "{said}");
    }
}

#[test]
fn a_store_older_than_its_log_is_refused() {
    let mut cluster = cluster();
    let (mut old, _) = disk(&cluster);
    old.flush().unwrap();
    make(&mut cluster, "g");
    cluster.pass(Duration::from_millis(100));
    let (mut store, mut log) = disk(&cluster);
    store.flush().unwrap();
    log.cut(bearing_seams::LogMark(u64::MAX)).unwrap();
    // Started again, and then the log goes on.
    assert_eq!(refusal(&mut cluster, (store, log)), None);
    make(&mut cluster, "h");
    let (_, log) = disk(&cluster);
    let said = refusal(&mut cluster, (old, log)).expect("it is refused");
    assert!(said.contains("one of them is older than the other"), "{said}");
}

#[test]
fn what_a_cut_log_still_has_of_a_tablet_that_others_have_now_is_removed() {
    let mut cluster = cluster();
    let (store, mut log) = disk(&cluster);
    let (_, tablet, _) = cluster.owner(Position(u64::MAX));
    let record = |index| {
        let (epoch, index, commit) = (Epoch(1), LogIndex(index), LogIndex(index - 1));
        let bytes = LogEntry { kind: EntryKind::Changes, changes: Vec::new() }.encode();
        LoggedRecord { serial: serial(tablet), epoch, index, commit, bytes }
    };
    log.append(&[record(5), record(6), record(7)]).unwrap();
    log.sync().unwrap();
    assert_eq!(refusal(&mut cluster, (store, log)), None);
    // The last of them is not known to be committed: the log could not be cut before it as long as it counts.
    assert!(!cluster.hosts[&FIRST].store.clone().tablets().unwrap().contains(&serial(tablet)));
}

/// A disk as releases without disk ids and intents left it.
fn without_ids(cluster: &Cluster) -> (MemStore, MemTabletLog) {
    let host = &cluster.hosts[&FIRST];
    let (mut store, mut log) = (MemStore::new(), MemTabletLog::new());
    let mut source = host.store.clone();
    for tablet in source.tablets().unwrap() {
        let range = bearing_seams::KeyRange { start: Vec::new(), end: Some(vec![255]) };
        let pairs = source.range(tablet, &range, usize::MAX).unwrap();
        let changes: Vec<_> =
            pairs.into_iter().map(|(key, value)| bearing_seams::Change { key, value: Some(value) }).collect();
        store.create_tablet(tablet).unwrap();
        store.apply(tablet, source.applied(tablet).unwrap().unwrap(), &changes).unwrap();
    }
    let records = host.log.clone().read(None, usize::MAX).unwrap().into_iter().map(|(_, record)| record);
    let records: Vec<_> = records.filter(|record| record.index.0 > 0).collect();
    log.append(&records).unwrap();
    log.sync().unwrap();
    (store, log)
}

#[test]
fn a_directory_from_before_there_were_disk_ids_is_taken_over_from_every_crash_in_between() {
    let mut cluster = cluster();
    let old = without_ids(&cluster);
    let id = DiskId(0x99);
    let labelled = |store: bool, log: bool| {
        let mut disk = old.clone();
        store.then(|| disk.0.set_disk(id).unwrap());
        log.then(|| disk.1.set_disk(id).unwrap());
        disk
    };
    for disk in [labelled(false, false), labelled(true, false), labelled(false, true), labelled(true, true)] {
        cluster.remove_register(&disk_key(FIRST));
        assert_eq!(refusal(&mut cluster, disk), None);
        let now = self::disk(&cluster);
        assert_eq!(now.0.clone().disk(), now.1.clone().disk());
        assert_eq!(refusal(&mut cluster, now), None, "it is registered and starts as any other");
    }
    // All is logged, nothing is registered: the server died before it asked.
    cluster.remove_register(&disk_key(FIRST));
    let now = disk(&cluster);
    assert_eq!(refusal(&mut cluster, now), None);
}

#[test]
fn an_empty_disk_of_a_server_that_has_served_is_refused_also_without_a_register() {
    let mut cluster = cluster();
    cluster.remove_register(&disk_key(FIRST));
    let said = refusal(&mut cluster, (MemStore::new(), MemTabletLog::new())).expect("it is refused");
    assert!(said.contains("its store and its tablet log are empty"), "{said}");
}

#[test]
fn nothing_is_asked_of_the_coordinator_before_the_intent_is_stable() {
    let mut cluster = cluster();
    let now = disk(&cluster);
    cluster.hold_syncs = true;
    cluster.replace_disk(FIRST, now.0, now.1);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.hosts[&FIRST].machine.serving().count(), 0);
    let mut lost = cluster.hosts[&FIRST].log.clone();
    lost.crash(&mut bearing_seams::CrashFault::losing_all());
    let store = cluster.hosts[&FIRST].store.clone();
    cluster.hold_syncs = false;
    assert_eq!(refusal(&mut cluster, (store, lost)), None, "no register went ahead of what was stable");
}

#[test]
fn intents_do_not_go_with_a_tablet_that_is_moved() {
    let mut cluster = cluster();
    let (tablet, _) = cluster.hosts[&FIRST].machine.serving().next().unwrap();
    cluster.send(FIRST, Event::Move(tablet, ServerId(2)));
    cluster.pass(Duration::from_secs(1));
    let (owner, block, epoch) = cluster.owner(tablet.start());
    assert_eq!((owner, block), (ServerId(2), tablet));
    let intent = |cluster: &mut Cluster, server: ServerId, tablet: Block| {
        let store = &mut cluster.hosts.get_mut(&server).unwrap().store;
        let stored = store.get(serial(tablet), &bearing_meta::Key::Intent.encode());
        stored.unwrap().map(|bytes| bearing_meta::Record::decode(&bytes).unwrap())
    };
    assert_eq!(intent(&mut cluster, owner, tablet), Some(bearing_meta::Record::Intent(epoch)));
    // The old owner may come back with what it has: the tablet is not its own.
    let now = disk(&cluster);
    assert_eq!(refusal(&mut cluster, now), None);
}
