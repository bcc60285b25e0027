//! Servers of the real program that come and leave while two mounts work: from three to five metadata servers
//! and back, from three to four data servers and back, and those that are there afterwards are others than
//! those that were there before.
//!
//! `cargo xtask soak members` does so five times (`BEARING_ROUNDS`).

mod common;

use common::{TestCluster, can_mount, shell, wait_for};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);
/// No call of a program takes longer, on a machine that does nothing else (the soak's). What a tablet is not
/// served for is less by far (`docs/promises.md`); the rest is what a busy machine adds.
const LONGEST: Duration = Duration::from_secs(2);

/// Beside other tests it is seen only that no call hangs.
const LONGEST_BESIDE: Duration = Duration::from_secs(20);

/// Calls that take longer are told.
const NOTICED: Duration = Duration::from_millis(400);

/// What the mounts work at, until told to stop.
struct Load {
    stop: AtomicBool,
    rounds: AtomicU64,
    wrong: Mutex<Vec<String>>,
    longest: Mutex<(Duration, String)>,
    begun: Instant,
}

impl Load {
    /// Again and again, until told to stop; the first complaint ends it.
    fn repeat(&self, mut work: impl FnMut(u64) -> Result<(), String>) {
        for round in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if let Err(what) = work(round) {
                self.wrong.lock().unwrap().push(what);
                return;
            }
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn timed<T>(&self, what: &str, call: impl FnOnce() -> std::io::Result<T>) -> Result<T, String> {
        let begun = Instant::now();
        let result = call().map_err(|error| format!("{what}: {error}"));
        let took = begun.elapsed();
        if took > NOTICED {
            println!("  at {} ms: {what} took {} ms", self.begun.elapsed().as_millis(), took.as_millis());
        }
        let mut longest = self.longest.lock().unwrap();
        if took > longest.0 {
            *longest = (took, what.to_owned());
        }
        result
    }
}

fn script(text: &str) -> Result<(), String> {
    let ran = shell(text);
    if ran.code == Some(0) { Ok(()) } else { Err(format!("{text}: {ran:?}")) }
}

/// Small files are made, read by the other mount, and removed, in many directories: each call is timed.
fn files(load: &Load, ours: &Path, theirs: &Path, name: &str) {
    let directories = 16;
    for number in 0..directories {
        fs::create_dir(ours.join(format!("{name}-{number}"))).unwrap();
    }
    load.repeat(|round| {
        let place = format!("{name}-{}/{round}", round % directories);
        let content = format!("{place} ").repeat(40 + round as usize % 50);
        let (path, other) = (ours.join(&place), theirs.join(&place));
        load.timed("write", || fs::write(&path, &content))?;
        let read = load.timed("read at the other mount", || fs::read_to_string(&other))?;
        if read != content {
            return Err(format!(
                "{place} has {} bytes at the other mount, not {}",
                read.len(),
                content.len()
            ));
        }
        if !round.is_multiple_of(8) {
            load.timed("unlink", || fs::remove_file(&path))?;
        }
        Ok(())
    });
}

fn members(cluster: &TestCluster, kind: &str) -> Vec<serde_json::Value> {
    let listed = cluster.run(&[kind, "list", "--json"]).ok();
    serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"))
}

fn counts(servers: &[serde_json::Value], what: &str) -> Vec<u64> {
    servers.iter().map(|server| server[what].as_u64().unwrap()).collect()
}

/// So many active metadata servers have as much one as another.
#[track_caller]
fn wait_until_even(cluster: &TestCluster, servers: usize) {
    wait_for("tablets and copies are even", PATIENCE, || {
        let members = members(cluster, "metadata");
        let active: Vec<_> = members.into_iter().filter(|server| server["state"] == "active").collect();
        let is_even = |what| {
            let counts = counts(&active, what);
            counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
        };
        active.len() == servers && is_even("owned") && is_even("copies")
    });
    let members = members(cluster, "metadata");
    println!("  tablets {:?}, copies {:?}", counts(&members, "owned"), counts(&members, "copies"));
}

#[track_caller]
fn leave(cluster: &TestCluster, load: &Load, kind: &str, number: u64) {
    let begun = Instant::now();
    let number = number.to_string();
    let refused = cluster.run(&[kind, "remove", &number]).refused(1);
    assert!(
        refused.contains("is to stay") && refused.contains(&format!("{kind} drain {number}")),
        "{refused}"
    );
    let other = if kind == "data" { "metadata-1" } else { "data-1" };
    let mistaken = cluster.run(&[kind, "drain", other]).refused(2);
    assert!(mistaken.contains(&format!("{other} is no {kind} server")), "{mistaken}");
    let mistyped = cluster.run(&[kind, "drain", "metdata-1"]).refused(2);
    assert!(mistyped.contains("such as 4 or metadata-4"), "{mistyped}");
    // By the name that the list shows.
    cluster.run(&[kind, "drain", &format!("{kind}-{number}")]).ok();
    wait_for("it has nothing any more", PATIENCE, || cluster.run(&[kind, "remove", &number]).code == Some(0));
    let left: Vec<u64> = counts(&members(cluster, kind), "server");
    assert!(!left.contains(&number.parse().unwrap()), "{left:?}");
    let now = load.begun.elapsed();
    println!("  at {} ms: {kind}-{number} left in {} ms", now.as_millis(), begun.elapsed().as_millis());
}

/// One round: others come, and the oldest leave.
fn round(cluster: &TestCluster, load: &Load) {
    let before = counts(&members(cluster, "metadata"), "server");
    cluster.run(&["metadata", "add"]).ok();
    cluster.run(&["metadata", "add"]).ok();
    wait_until_even(cluster, 5);
    let data = counts(&members(cluster, "data"), "server");
    cluster.run(&["data", "add"]).ok();
    let status: serde_json::Value = serde_json::from_str(&cluster.run(&["status", "--json"]).out).unwrap();
    let daemons = status["daemons"].as_array().unwrap();
    assert!(daemons.iter().all(|daemon| daemon["metrics"].is_string()), "all show metrics: {daemons:#?}");
    leave(cluster, load, "data", data[0]);
    before[..2].iter().for_each(|number| leave(cluster, load, "metadata", *number));
    wait_until_even(cluster, 3);
}

#[test]
fn servers_come_and_leave_under_two_mounts_that_work() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("members");
    let mnt = cluster.mnt();
    let flags = ["--metadata", "3", "--data", "3", "--metadata-copies", "3", "--data-copies", "2"];
    let dir = cluster.dir();
    let mut up = vec!["up", "--detach", "--dir", &dir, "--mount", mnt.to_str().unwrap()];
    up.extend(flags);
    common::bearing(&up).ok();
    let second = cluster.mount_again();
    let (m1, m2, root) = (mnt.display(), second.display(), cluster.root().display());
    script(&format!("tar -cf {root}/tree.tar -C {} src tests", env!("CARGO_MANIFEST_DIR"))).unwrap();
    script(&format!("mkdir {root}/tree && tar -xf {root}/tree.tar -C {root}/tree")).unwrap();
    let load = Load {
        stop: AtomicBool::new(false),
        rounds: AtomicU64::new(0),
        wrong: Mutex::new(Vec::new()),
        longest: Mutex::new((Duration::ZERO, String::new())),
        begun: Instant::now(),
    };
    let soak = std::env::var("BEARING_ROUNDS").ok();
    let limit = if soak.is_some() { LONGEST } else { LONGEST_BESIDE };
    let rounds = soak.map_or(1, |rounds| rounds.parse().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| files(&load, &mnt, &second, "first"));
        scope.spawn(|| files(&load, &second, &mnt, "second"));
        scope.spawn(|| {
            load.repeat(|_| {
                script(&format!(
                    "mkdir {m1}/tree; tar -xf {root}/tree.tar -C {m1}/tree; diff -r {root}/tree {m2}/tree; rm -r {m1}/tree"
                ))
            });
        });
        scope.spawn(|| {
            load.repeat(|_| {
                script(&format!(
                    "export GIT_CONFIG_GLOBAL=/dev/null; git init -q {m2}/git; cp -r {root}/tree {m2}/git/tree; cd {m2}/git; git add .; \
                     git -c user.name=a -c user.email=b commit -qm all; git clone -q {m2}/git {m2}/clone; \
                     git -C {m1}/clone fsck --full --no-dangling; diff -r {root}/tree {m1}/clone/tree; cd /; rm -rf {m2}/git {m2}/clone"
                ))
            });
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..rounds {
                println!("round {number}");
                round(&cluster, &load);
                let wrong = load.wrong.lock().unwrap();
                assert!(wrong.is_empty(), "{wrong:?}");
            }
        }));
        load.stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    let (wrong, longest) = (load.wrong.into_inner().unwrap(), load.longest.into_inner().unwrap());
    assert!(wrong.is_empty(), "{wrong:?}");
    println!(
        "{} pieces of work; the longest call: {} ms, {}",
        load.rounds.into_inner(),
        longest.0.as_millis(),
        longest.1
    );
    assert!(longest.0 < limit, "{longest:?}");
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
    script(&format!("umount {m2}")).unwrap();
}
