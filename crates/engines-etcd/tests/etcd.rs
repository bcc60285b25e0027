//! The coordinator in a real etcd.

mod members;

use bearing_engines_etcd::{EtcdCoordinator, EtcdMembers, Heard, Watch};
use bearing_seams::conformance::{self, Subject};
use bearing_seams::{Coordinator, EngineError, Entry, RegisterChange, Swap};
use members::Members;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn at(members: &Members) -> EtcdMembers {
    EtcdMembers { endpoints: members.endpoints(), tls: None }
}

fn put(key: &str, expected: Option<u64>, value: u64) -> [RegisterChange; 1] {
    [RegisterChange::new(key, expected, Some(value.to_be_bytes().to_vec()))]
}

#[test]
fn the_coordinator_in_etcd_conforms() {
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let members = Rc::new(RefCell::new(Members::start(&program, directory.path(), 1)));
    let mut clusters = 0;
    conformance::coordinator(2, || {
        clusters += 1;
        let members = members.clone();
        let (at, root) = (at(&members.borrow()), format!("/bearing/{clusters}"));
        let open = move || EtcdCoordinator::new(&at, &root).unwrap().with_removals_kept(2);
        open().create().unwrap();
        let mut stops = 0;
        Subject::new(open(), move |coordinator, _| {
            drop(coordinator);
            stops += 1;
            // Once for each: that takes a second.
            if stops == 1 {
                members.borrow_mut().kill(0);
                members.borrow_mut().launch(0);
            }
            open()
        })
    });
}

/// What one client did to a counter.
#[derive(Debug, Default)]
struct Counted {
    done: u64,
    unknown: u64,
}

/// Counts up in a register until told to stop.
fn count(members: &EtcdMembers, stopped: &std::sync::atomic::AtomicBool) -> Counted {
    let mut registers = EtcdCoordinator::new(members, "/bearing/counted").unwrap();
    let mut counted = Counted::default();
    let mut known: Option<Entry> = None;
    while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
        let value = known.as_ref().map_or(0, |entry| u64::from_be_bytes(entry.value[..].try_into().unwrap()));
        match registers.swap(&put("counter", known.as_ref().map(|entry| entry.version), value + 1)) {
            Ok(Swap::Done(_)) => counted.done += 1,
            Ok(Swap::Conflict(_)) => {}
            Err(_) => counted.unknown += 1,
        }
        if let Ok(found) = registers.read("counter") {
            known = found;
        }
    }
    counted
}

#[test]
fn what_was_swapped_is_there_once_whatever_members_are_killed() {
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut members = Members::start(&program, directory.path(), 3);
    let at = at(&members);
    let mut registers = EtcdCoordinator::new(&at, "/bearing/counted").unwrap();
    registers.create().unwrap();
    let stopped = std::sync::atomic::AtomicBool::new(false);
    let kills: usize = std::env::var("BEARING_ETCD_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let counted = std::thread::scope(|scope| {
        let counters: Vec<_> = (0..2).map(|_| scope.spawn(|| count(&at, &stopped))).collect();
        let mut last = 0;
        for kill in 0..kills {
            // One, and every third time two at once: then nothing is done until one is back.
            let killed: Vec<usize> =
                (0..if kill % 3 == 2 { 2 } else { 1 }).map(|more| (kill + more) % 3).collect();
            killed.iter().for_each(|member| members.kill(*member));
            killed.iter().for_each(|member| members.launch(*member));
            let begun = Instant::now();
            let version = loop {
                assert!(begun.elapsed() < PATIENCE, "nothing is done any more after kill {kill}");
                let version = registers.changes("", 0).map_or(0, |changes| changes.version);
                if version > last + 10 {
                    break version;
                }
            };
            last = version;
        }
        stopped.store(true, std::sync::atomic::Ordering::Relaxed);
        counters.into_iter().map(|counter| counter.join().unwrap()).collect::<Vec<_>>()
    });
    let (done, unknown) =
        counted.iter().fold((0, 0), |(done, unknown), one| (done + one.done, unknown + one.unknown));
    let value = registers.read("counter").unwrap().unwrap().value;
    let value = u64::from_be_bytes(value[..].try_into().unwrap());
    println!("{kills} kills: {done} swaps, {unknown} of unknown outcome, the counter says {value}");
    assert!((done..=done + unknown).contains(&value), "{done} done and {unknown} unknown make no {value}");
    assert!(counted.iter().all(|one| one.done > 0), "{counted:?}");
}

#[test]
fn a_watch_hears_of_others_swaps_also_when_its_member_is_killed_or_stopped() {
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut members = Members::start(&program, directory.path(), 3);
    let at = at(&members);
    let mut registers = EtcdCoordinator::new(&at, "/bearing/watched").unwrap();
    registers.create().unwrap();
    let (changed, changes) = channel();
    let watch = Watch::start(&at, "/bearing/watched", move |heard| _ = changed.send(heard)).unwrap();
    // That it listens.
    assert_eq!(changes.recv_timeout(PATIENCE), Ok(Heard::Changed));
    let mut version = None;
    for round in 0..3 {
        if round == 1 {
            members.kill(0);
        }
        let pid = members.pid(1).unwrap() as libc::pid_t;
        if round == 2 {
            members.launch(0);
            // SAFETY: kill takes plain numbers; the child was not waited for.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
        }
        let Swap::Done(now) = registers.swap(&put("k", version, round)).unwrap() else { panic!("alone") };
        version = Some(now);
        changes.recv_timeout(PATIENCE).unwrap();
        while changes.recv_timeout(Duration::from_millis(300)) != Err(RecvTimeoutError::Timeout) {}
        // SAFETY: as before.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
    (0..3).for_each(|member| members.kill(member));
    while changes.recv_timeout(PATIENCE).unwrap() == Heard::Changed {}
    (0..3).for_each(|member| members.launch(member));
    while changes.recv_timeout(PATIENCE).unwrap() != Heard::Changed {}
    drop(watch);
}

#[test]
fn a_member_that_hangs_holds_nobody_up_for_long() {
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let members = Members::start(&program, directory.path(), 3);
    let mut registers = EtcdCoordinator::new(&at(&members), "/bearing/hangs").unwrap();
    registers.create().unwrap();
    // The first one is asked first.
    let pid = members.pid(0).unwrap() as libc::pid_t;
    // SAFETY: kill takes plain numbers; the child was not waited for.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    let begun = Instant::now();
    let swapped = registers.swap(&put("k", None, 1));
    let took = begun.elapsed();
    // SAFETY: as before.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    assert!(matches!(swapped, Ok(Swap::Done(_))), "{swapped:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn registers_that_are_older_than_somebody_knows_are_changed_by_nobody() {
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let members = Members::start(&program, directory.path(), 1);
    let open = || EtcdCoordinator::new(&at(&members), "/bearing/older").unwrap();
    open().create().unwrap();
    assert!(matches!(open().swap(&put("k", None, 1)), Ok(Swap::Done(_))));
    open().mark_older().unwrap();
    let error = open().swap(&put("m", None, 1)).unwrap_err();
    assert!(error.to_string().contains("older than servers know"), "{error}");
}

#[test]
fn what_is_not_there_or_anothers_is_told_with_its_address() {
    let nobody = EtcdMembers { endpoints: vec!["http://127.0.0.1:1".to_owned()], tls: None };
    let mut registers = EtcdCoordinator::new(&nobody, "/bearing/x").unwrap();
    let error = registers.read("k").unwrap_err();
    assert!(matches!(&error, EngineError::Unavailable { what } if what.contains("127.0.0.1:1")), "{error}");
    for (endpoints, said) in [
        (vec![], "give endpoints"),
        (vec!["10.0.0.1:2379"], "like https://HOST:2379"),
        (vec!["https://10.0.0.1:2379"], "needs certificates"),
    ] {
        let endpoints = endpoints.into_iter().map(str::to_owned).collect();
        let error = EtcdCoordinator::new(&EtcdMembers { endpoints, tls: None }, "/x").err().unwrap();
        assert!(error.to_string().contains(said), "{error}");
    }
    let Some(program) = members::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let members = Members::start(&program, directory.path(), 1);
    let mut registers = EtcdCoordinator::new(&at(&members), "/bearing/y").unwrap();
    let error = registers.read("k").unwrap_err();
    assert!(matches!(&error, EngineError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("/bearing/y in etcd holds no registers"), "{error}");
    registers.create().unwrap();
    assert!(matches!(registers.create(), Err(EngineError::Busy { .. })));
}
