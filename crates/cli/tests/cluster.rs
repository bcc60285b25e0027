//! Clusters of the real program, without a mount: starting, stopping, dying, and what is said when something
//! is wrong.

mod common;

use bearing_engines_local::RedbCoordinator;
use bearing_seams::{Coordinator, RegisterChange};
use common::{Ran, TestCluster, bearing, kill, wait_for};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_cluster_starts_says_who_runs_and_stops() {
    let cluster = TestCluster::started("starts");
    let status = cluster.status();
    let kinds: Vec<&str> =
        status["daemons"].as_array().unwrap().iter().map(|daemon| daemon["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["coordinator", "metadata", "metadata", "data", "data", "flow"]);
    for daemon in status["daemons"].as_array().unwrap() {
        for key in ["kind", "id", "pid", "address", "state"] {
            assert!(!daemon[key].is_null(), "{daemon}");
        }
        assert_eq!(daemon["state"], "serving");
    }
    assert_eq!(status["tablets"].as_array().unwrap().len(), 16);
    cluster.down().ok();
    let stopped = cluster.run(&["status"]);
    assert!(stopped.refused(3).contains("bearing up --dir"));
    assert!(cluster.down().ok().contains("nothing is running"));
}

#[test]
fn a_second_up_says_that_it_runs_and_refuses_another_shape() {
    let cluster = TestCluster::started("second");
    assert!(cluster.up(&[]).ok().contains("already running"));
    let other = bearing(&["up", "--detach", "--dir", &cluster.dir(), "--metadata", "5"]).refused(2);
    assert!(other.contains("--metadata 2, not 5"), "{other}");
}

#[test]
fn killed_daemons_are_started_again_and_files_are_still_there() {
    let cluster = TestCluster::started("killed");
    let local = cluster.root().join("local");
    fs::write(&local, "what was stored").unwrap();
    let local = local.to_str().unwrap();
    cluster.run(&["fs", "put", local, "/kept"]).ok();
    let killed = cluster.daemons();
    kill(killed.iter().copied());
    wait_for("other processes serve", PATIENCE, || {
        let present = cluster.daemons();
        cluster.serves() && present.len() == killed.len() && present.iter().all(|pid| !killed.contains(pid))
    });
    assert_eq!(cluster.run(&["fs", "cat", "/kept"]).ok(), "what was stored");
}

#[test]
fn a_killed_supervisor_takes_its_daemons_along_and_up_starts_afresh() {
    let cluster = TestCluster::started("supervisor");
    let supervisor = cluster.status()["supervisor"]["pid"].as_u64().unwrap();
    kill([supervisor]);
    wait_for("no daemon is left", PATIENCE, || cluster.daemons().is_empty());
    cluster.up(&[]).ok();
    assert!(cluster.serves());
}

#[test]
fn without_restart_the_dead_stay_dead() {
    let cluster = TestCluster::new("no-restart");
    cluster.up(&["--no-restart"]).ok();
    let killed = cluster.daemons()[1];
    kill([killed]);
    wait_for("it is seen to be dead", PATIENCE, || cluster.status()["daemons"][1]["state"] == "dead");
    assert!(cluster.status()["daemons"][1]["pid"].is_null());
}

#[test]
fn clocks_of_all_daemons_are_measured() {
    let cluster = TestCluster::started("clocks");
    wait_for("every daemon knows how its clock is", PATIENCE, || {
        let status = cluster.status();
        let daemons = status["daemons"].as_array().unwrap();
        // They all read the same one.
        daemons.iter().all(|daemon| daemon["clock_ahead_ms"].as_i64().is_some_and(|ahead| ahead.abs() < 200))
    });
    assert!(cluster.serves());
}

#[test]
fn a_data_server_whose_disk_fails_says_so_and_another_takes_its_place() {
    let cluster = TestCluster::started("disk");
    let local = cluster.root().join("local");
    fs::write(&local, "what was stored").unwrap();
    // Where chunks are made there is no directory any more.
    let (chunks, aside) = (cluster.file("data-1/chunks/chunks"), cluster.file("data-1/chunks/aside"));
    fs::rename(&chunks, &aside).unwrap();
    fs::write(&chunks, "not a directory").unwrap();
    cluster.run(&["fs", "put", local.to_str().unwrap(), "/kept"]).ok();
    let daemon = || cluster.status()["daemons"][3].clone();
    wait_for("it is seen that the disk failed", PATIENCE, || daemon()["state"] == "disk failed");
    assert!(daemon()["reason"].as_str().unwrap().contains("the disk failed"), "{}", daemon());
    let pid = daemon()["pid"].as_u64().expect("it goes on serving what can be read");
    assert_eq!(cluster.run(&["fs", "cat", "/kept"]).ok(), "what was stored");
    fs::remove_file(&chunks).unwrap();
    fs::rename(&aside, &chunks).unwrap();
    kill([pid]);
    wait_for("it serves again", PATIENCE, || daemon()["state"] == "serving");
}

/// Changes a setting of a daemon of a cluster that is down.
fn set(cluster: &TestCluster, daemon: &str, setting: &str, value: u64) {
    let path = cluster.file(&format!("{daemon}/config.toml"));
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.lines().map(|line| match line.split_once(" = ") {
        Some((name, _)) if name == setting => format!("{setting} = {value}\n"),
        _ => format!("{line}\n"),
    });
    let changed: String = changed.collect();
    assert_ne!(changed, text, "{setting} is not in {}", path.display());
    fs::write(&path, changed).unwrap();
}

#[test]
fn a_data_server_lost_for_good_hinders_no_writes_and_its_chunks_are_copied_again() {
    let cluster = TestCluster::new("lost");
    let dir = cluster.dir();
    let up =
        || bearing(&["up", "--detach", "--no-restart", "--metadata", "1", "--data", "3", "--dir", &dir]).ok();
    up();
    cluster.down().ok();
    set(&cluster, "metadata-1", "data_server_lost_after_s", 5);
    up();
    let local = cluster.root().join("local");
    let content: Vec<u8> = (0..9_000_000u32).map(|n| (n / 5) as u8).collect();
    fs::write(&local, &content).unwrap();
    let local = local.to_str().unwrap();
    let mut before = 0;
    // Two of the three servers get each, by its chunk's number: whether the first does is a matter of chance.
    wait_for("the first data server has something to lose", PATIENCE, || {
        before += 1;
        cluster.run(&["fs", "put", local, &format!("/before-{before}")]).ok();
        before >= 3 && !chunk_files(&cluster, "data-1").is_empty()
    });
    let status = cluster.status();
    let data = |number: usize| status["daemons"][1 + number].clone();
    assert_eq!((&data(1)["kind"], &data(1)["id"]), (&"data".into(), &1.into()));
    kill([data(1)["pid"].as_u64().unwrap()]);
    cluster.run(&["fs", "put", local, "/after"]).ok();
    wait_for("copies are made again", PATIENCE, || {
        let chunks = cluster.status()["chunks"].clone();
        // What is lacking is counted every 2 s, what was copied at once.
        let is_all = || !cluster.run(&["check"]).out.contains("copies are lacking");
        chunks["copied_bytes"].as_u64() > Some(1_000_000) && chunks["lacking"] == 0 && is_all()
    });
    let shown = cluster.run(&["status"]).ok();
    assert!(shown.contains("chunks: ") && !shown.contains("lack copies"), "{shown}");
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
    // Without the first of the two that are left everything is still there.
    kill([data(2)["pid"].as_u64().unwrap()]);
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
}

/// The files of chunks on a data server, by name.
fn chunk_files(cluster: &TestCluster, daemon: &str) -> BTreeMap<String, PathBuf> {
    let shelves = fs::read_dir(cluster.file(&format!("{daemon}/chunks/chunks"))).unwrap();
    let files = shelves.flat_map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap());
    files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().to_str().unwrap().to_owned(), file.path()))
        .collect()
}

/// The chunk of the file that a test wrote: beside it may be one with a checkpoint of metadata.
fn largest_chunk(cluster: &TestCluster, daemon: &str) -> (String, PathBuf) {
    let files = chunk_files(cluster, daemon).into_iter();
    files.max_by_key(|(_, path)| fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn a_flipped_byte_of_a_chunk_is_found_and_repaired() {
    let cluster = TestCluster::started("rot");
    cluster.down().ok();
    for daemon in ["metadata-1", "metadata-2"] {
        set(&cluster, daemon, "chunk_life_s", 2);
    }
    cluster.up(&[]).ok();
    let local = cluster.root().join("local");
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
    fs::write(&local, &content).unwrap();
    cluster.run(&["fs", "put", local.to_str().unwrap(), "/file"]).ok();
    wait_for("the chunk is sealed and looked at by its tablet", PATIENCE, || {
        cluster.status()["chunks"]["sealed"].as_u64() == Some(1)
    });
    cluster.down().ok();
    let (name, path) = largest_chunk(&cluster, "data-1");
    let other = chunk_files(&cluster, "data-2")[&name].clone();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 8;
    fs::write(&path, &bytes).unwrap();
    cluster.up(&[]).ok();
    let good = fs::read(&other).unwrap()[middle];
    wait_for("somebody read it and it was repaired", PATIENCE * 2, || {
        // Each reader begins with another replica, and none is ever given damaged bytes.
        assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
        fs::read(&path).is_ok_and(|bytes| bytes.get(middle) == Some(&good))
    });
    wait_for("status says that all is well", PATIENCE, || {
        let chunks = cluster.status()["chunks"].clone();
        chunks["damaged"] == 0 && chunks["lacking"] == 0
    });
}

#[test]
fn check_finds_replicas_that_are_damaged_or_missing_and_files_whose_bytes_are_lost() {
    let cluster = TestCluster::started("check-chunks");
    cluster.down().ok();
    for daemon in ["metadata-1", "metadata-2"] {
        set(&cluster, daemon, "chunk_life_s", 2);
    }
    cluster.up(&[]).ok();
    let local = cluster.root().join("local");
    fs::write(&local, vec![7; 3_000_000]).unwrap();
    cluster.run(&["fs", "put", local.to_str().unwrap(), "/file"]).ok();
    wait_for("the chunk is sealed", PATIENCE, || cluster.status()["chunks"]["sealed"].as_u64() == Some(1));
    let check =
        || -> serde_json::Value { serde_json::from_str(&cluster.run(&["check", "--json"]).ok()).unwrap() };
    let whole = check();
    let count = |seen: &serde_json::Value, what: &str| seen[what].as_u64().unwrap();
    assert_eq!((count(&whole, "chunks"), count(&whole, "replicas"), count(&whole, "unreferred")), (1, 2, 0));
    assert!(count(&whole, "chunk_bytes") > 3_000_000);
    let read = cluster.run(&["check", "--verify"]).ok();
    assert!(read.contains("2 replicas were read by their servers"), "{read}");
    // Of one replica a byte changes: the server that reads it notices.
    cluster.down().ok();
    let (name, path) = largest_chunk(&cluster, "data-1");
    let other = chunk_files(&cluster, "data-2")[&name].clone();
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 8;
    fs::write(&path, &bad).unwrap();
    cluster.up(&[]).ok();
    let read = cluster.run(&["check", "--verify"]).ok();
    assert!(read.contains(" 0 problems"), "{read}");
    // It may have been repaired before.
    let is_repaired = || fs::read(&path).is_ok_and(|bytes| bytes == good);
    assert!(read.contains("on data-1 is damaged") || is_repaired(), "{read}");
    // It vanishes.
    cluster.down().ok();
    fs::write(&other, &good).unwrap();
    fs::remove_file(&path).ok();
    cluster.up(&[]).ok();
    wait_for("its server is asked what it holds, and it is made again", PATIENCE, || {
        let seen = check();
        let missing = count(&seen, "replicas_bad") == 1;
        assert!(!missing || seen["shown"][0].as_str().unwrap().contains("on data-1 is missing"), "{seen}");
        assert_eq!(count(&seen, "problems"), 0);
        (count(&seen, "replicas"), count(&seen, "replicas_bad")) == (2, 0)
    });
    // Both go, and with them the file.
    cluster.down().ok();
    fs::remove_file(&path).unwrap();
    fs::remove_file(&other).unwrap();
    cluster.up(&[]).ok();
    // A server that does not answer in time may hold it.
    let mut lost = String::new();
    wait_for("both servers say that they lack it", PATIENCE, || {
        let ran = cluster.run(&["check"]);
        let is_seen = !ran.out.contains("does not answer");
        if is_seen {
            lost = ran.refused(1);
        }
        is_seen
    });
    assert!(lost.contains("1 problem found"), "{lost}");
}

#[test]
fn files_can_be_used_without_a_mount() {
    let cluster = TestCluster::started("files");
    let (local, back) = (cluster.root().join("local"), cluster.root().join("back"));
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    fs::write(&local, &content).unwrap();
    let (local, back) = (local.to_str().unwrap(), back.to_str().unwrap());
    cluster.run(&["fs", "mkdir", "-p", "/a/b"]).ok();
    cluster.run(&["fs", "put", local, "/a/b/file"]).ok();
    cluster.run(&["fs", "get", "/a/b/file", back]).ok();
    assert_eq!(fs::read(back).unwrap(), content);
    assert_eq!(cluster.run(&["fs", "ls", "/a"]).ok(), "b\n");
    let stat: serde_json::Value =
        serde_json::from_str(&cluster.run(&["fs", "stat", "/a/b/file", "--json"]).ok()).unwrap();
    assert_eq!((&stat["type"], &stat["size"]), (&"file".into(), &content.len().into()));
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
    assert!(cluster.run(&["fs", "cat", "/a/none"]).refused(1).contains("no such file"));
    assert!(cluster.run(&["fs", "mkdir", "/a"]).refused(1).contains("exists"));
    cluster.run(&["fs", "ls", "a"]).refused(2);
    bearing(&["fs", "sing", "/a"]).refused(2);
}

#[test]
fn a_client_with_addresses_needs_the_right_secret() {
    let cluster = TestCluster::started("secret");
    let address = cluster.address("metadata");
    let list = |secret: &str| bearing(&["fs", "ls", "/", "--cluster", &address, "--secret", secret]);
    let right = cluster.file("secrets/enrolment.key");
    assert_eq!(list(right.to_str().unwrap()).ok(), "");
    let wrong = cluster.root().join("wrong.key");
    fs::write(&wrong, "ab".repeat(32)).unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let refusal = list(wrong.to_str().unwrap()).refused(1);
    assert!(refusal.contains("secret"), "{refusal}");
    let none = bearing(&["fs", "ls", "/", "--cluster", &address]).refused(2);
    assert!(none.contains("--secret"), "{none}");
}

#[test]
fn servers_that_cannot_be_reached_are_named() {
    let cluster = TestCluster::started("unreachable");
    cluster.down().ok();
    let address = cluster.address("metadata");
    let refusal = cluster.run(&["fs", "ls", "/"]).refused(3);
    assert!(refusal.contains(&address), "{refusal}");
}

#[test]
fn a_port_in_use_is_named() {
    let cluster = TestCluster::started("port");
    cluster.down().ok();
    let address = cluster.address("coordinator");
    let _taken = TcpListener::bind(&address).unwrap();
    let refusal = cluster.up(&[]).refused(1);
    let port = address.rsplit_once(':').unwrap().1;
    assert!(refusal.contains("coordinator does not start") && refusal.contains(port), "{refusal}");
    assert!(cluster.daemons().is_empty(), "a start that fails leaves nothing running");
}

#[test]
fn a_wrong_cluster_key_ends_a_server_with_the_reason() {
    let cluster = TestCluster::started("key");
    cluster.down().ok();
    // A server of another cluster's directory, with this cluster's coordinator.
    let stranger = cluster.root().join("stranger");
    fs::create_dir_all(stranger.join("secrets")).unwrap();
    fs::create_dir_all(stranger.join("data-1")).unwrap();
    for (from, to) in [("cluster.toml", "cluster.toml"), ("data-1/config.toml", "data-1/config.toml")] {
        fs::copy(cluster.file(from), stranger.join(to)).unwrap();
    }
    for key in ["cluster.key", "enrolment.key"] {
        let path = stranger.join("secrets").join(key);
        fs::write(&path, "cd".repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    cluster.up(&["--no-restart"]).ok();
    kill([cluster.status()["daemons"][3]["pid"].as_u64().unwrap()]);
    wait_for("the place of data-1 is free", PATIENCE, || cluster.status()["daemons"][3]["state"] == "dead");
    let config = stranger.join("data-1/config.toml");
    let refusal = bearing(&["daemon", "data", "--config", config.to_str().unwrap()]);
    assert!(refusal.err.contains("is not the cluster key of that cluster"), "{refusal:?}");
}

/// Starts a cluster whose files were changed while it was down.
fn up_after(name: &str, change: impl FnOnce(&TestCluster)) -> (TestCluster, Ran) {
    let cluster = TestCluster::started(name);
    cluster.down().ok();
    change(&cluster);
    let ran = cluster.up(&[]);
    (cluster, ran)
}

#[test]
fn a_newer_description_of_the_cluster_is_refused() {
    let (_cluster, ran) = up_after("newer-cluster", |cluster| {
        let path = cluster.file("cluster.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("format = 5", "format = 9")).unwrap();
    });
    assert!(ran.refused(1).contains("format version 9"));
}

/// There is a cluster without one of two servers of a kind: what is said of it.
#[track_caller]
fn without_one(ran: common::Ran) -> String {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("The cluster runs without it"), "{}", ran.err);
    ran.err
}

#[test]
fn an_unknown_setting_is_refused_with_file_and_line() {
    let (_cluster, ran) = up_after("setting", |cluster| {
        let path = cluster.file("metadata-1/config.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}fast = true\n")).unwrap();
    });
    let refusal = without_one(ran);
    assert!(refusal.contains("metadata-1/config.toml:") && refusal.contains("fast"), "{refusal}");
}

#[test]
fn a_newer_store_is_refused_by_its_version() {
    // The engine's own format, and those of what lies in it.
    for (number, (file, line)) in [
        ("metadata-1/store/FORMAT", "bearing-store"),
        ("metadata-1/store/FORMAT", "bearing-records"),
        ("metadata-1/tablet-log/FORMAT", "bearing-tablet-log"),
        ("metadata-1/tablet-log/FORMAT", "bearing-log-entries"),
        ("metadata-1/tablet-log/FORMAT", "bearing-records"),
        ("data-1/chunks/FORMAT", "bearing-chunk-log"),
        ("data-1/chunks/FORMAT", "bearing-frames"),
    ]
    .iter()
    .enumerate()
    {
        let mut known = String::new();
        let (cluster, ran) = up_after(&format!("newer-store-{number}"), |cluster| {
            let path = cluster.file(file);
            let text = fs::read_to_string(&path).unwrap();
            let is_it = |found: &&str| found.rsplit_once(' ').is_some_and(|(format, _)| format == *line);
            let found = text.lines().find(is_it).unwrap_or_else(|| panic!("{file}: {text}"));
            // What a new cluster is written in is what the program knows.
            known = found.replace(line, "version");
            fs::write(&path, text.replace(found, &format!("{line} 77"))).unwrap();
        });
        let refusal = without_one(ran);
        let path = cluster.file(file);
        for part in [path.to_str().unwrap(), line, "version 77", &known, "use a newer `bearing`"] {
            assert!(refusal.contains(part), "{file}: {refusal}");
        }
    }
}

#[test]
fn a_newer_register_of_the_coordinator_is_refused_by_its_version() {
    for (number, key) in ["server/00000001", "filesystem/1"].iter().enumerate() {
        let (_cluster, ran) = up_after(&format!("newer-register-{number}"), |cluster| {
            let path = cluster.file("coordinator/registers.redb");
            let mut registers = RedbCoordinator::open(&path).unwrap();
            let entry = registers.read(key).unwrap().expect("the register is there");
            let newer = [&[9], &entry.value[1..]].concat();
            let change = RegisterChange::new(*key, Some(entry.version), Some(newer));
            registers.swap(&[change]).unwrap();
        });
        let refusal = ran.refused(1);
        for part in [*key, "version 9", "version 2", "use a newer `bearing`"] {
            assert!(refusal.contains(part), "{key}: {refusal}");
        }
    }
}

#[test]
fn a_coordinator_whose_registers_are_gone_does_not_begin_with_none() {
    let (cluster, ran) = up_after("no-registers", |cluster| {
        fs::remove_file(cluster.file("coordinator/registers.redb")).unwrap();
    });
    let refusal = ran.refused(1);
    for part in ["coordinator/registers.redb is gone", "put it back"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert!(!cluster.file("coordinator/registers.redb").exists());
}

#[test]
fn a_damaged_tablet_log_is_refused() {
    let cluster = TestCluster::started("damaged");
    // What was damaged must have been synced before something else was: else it might be the tail that a
    // crash tore.
    for name in ["/a", "/b", "/c"] {
        cluster.run(&["fs", "mkdir", name]).ok();
    }
    cluster.down().ok();
    let directory = cluster.file("metadata-1/tablet-log");
    let segment = fs::read_dir(directory)
        .unwrap()
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "seg"));
    let path = segment.unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    // Inside the first record, behind the segment's header.
    bytes[64] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let refusal = without_one(cluster.up(&[]));
    assert!(refusal.contains("metadata-1 does not start") && refusal.contains("damaged"), "{refusal}");
    let names = cluster.run(&["fs", "ls", "/"]).ok();
    assert!(["a", "b", "c"].iter().all(|name| names.contains(name)), "the other server has it all: {names}");
}

/// What `bench tree` needs at least.
const SMALL: [&str; 8] = ["--files", "8", "--small-files", "10", "--clone-files", "10", "--repetitions", "2"];

#[test]
fn bench_tree_measures_any_directory_keeps_raw_results_and_leaves_nothing() {
    // No cluster: any filesystem will do.
    let place = TestCluster::new("bench-tree");
    let (path, csv) = (place.mnt(), place.root().join("raw.csv"));
    let (path, csv) = (path.to_str().unwrap(), csv.to_str().unwrap());
    let flags = ["bench", "tree", path, "--bytes", "100K", "--processes", "1,2", "--csv", csv, "--json"];
    let json: serde_json::Value =
        serde_json::from_str(&bearing(&[&flags[..], &SMALL].concat()).ok()).unwrap();
    // 14 phases by one process, and 12 by two, which do not unpack; one clones, where git is installed.
    let clones = std::process::Command::new("git").arg("--version").output().is_ok();
    let lines = 14 + 12 + usize::from(clones);
    assert_eq!(json["lines"].as_array().unwrap().len(), lines, "{json}");
    assert_eq!(json["lines"][0]["phase"], "create");
    let raw = fs::read_to_string(csv).unwrap();
    assert_eq!(raw.lines().filter(|line| !line.starts_with('#')).count(), 1 + 2 * lines, "{raw}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn bench_tree_without_git_says_so_and_does_the_rest() {
    let place = TestCluster::new("bench-no-git");
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_bearing"));
    bench.args(["bench", "tree"]).arg(place.mnt()).args(SMALL).args(["--only", "directories,git", "--json"]);
    let output = bench.env("PATH", place.root()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("git is not installed"), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["lines"].as_array().unwrap().iter().all(|line| line["phase"] != "git-clone"), "{json}");
    assert_eq!(json["lines"][0]["phase"], "mkdir");
}

#[test]
fn bench_tree_refuses_what_is_not_empty_or_not_there_and_a_second_mount_of_something_else() {
    let place = TestCluster::new("bench-refused");
    let (path, other) = (place.mnt(), place.root().join("other"));
    fs::create_dir(&other).unwrap();
    let path = path.to_str().unwrap();
    let absent = format!("{path}/absent");
    let said = bearing(&["bench", "tree", &absent]).refused(2);
    assert!(said.contains("does not exist"), "{said}");
    let said = bearing(&["bench", "tree", path, "--also", other.to_str().unwrap()]).refused(2);
    assert!(said.contains("--also takes the same directory"), "{said}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    fs::write(format!("{path}/mine"), "").unwrap();
    let said = bearing(&["bench", "tree", path]).refused(2);
    assert!(said.contains("is not empty: there is mine"), "{said}");
}

#[test]
fn bench_tree_clears_away_when_it_is_interrupted() {
    let place = TestCluster::new("bench-interrupted");
    let path = place.mnt();
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_bearing"))
        .args(["bench", "tree", path.to_str().unwrap(), "--only", "files", "--files", "10000000"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("it is at work", PATIENCE, || {
        fs::read_dir(&path)
            .unwrap()
            .next()
            .is_some_and(|own| own.unwrap().path().join("1-1-files/process.0/file.10").exists())
    });
    // SAFETY: kill takes plain numbers, and the child has not been waited for.
    unsafe { libc::kill(bench.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(bench.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn fs_does_with_trees_what_people_expect() {
    let cluster = TestCluster::started("trees");
    let (local, back) = (cluster.root().join("local"), cluster.root().join("back"));
    let run = |line: &str| cluster.run(&[&["fs"][..], &line.split(' ').collect::<Vec<_>>()].concat());
    fs::create_dir_all(local.join("a/b")).unwrap();
    fs::write(local.join("a/one.txt"), "one").unwrap();
    fs::write(local.join("a/b/two.txt"), "twotwo").unwrap();
    std::os::unix::fs::symlink("one.txt", local.join("a/link")).unwrap();
    let (local, back) = (local.to_str().unwrap(), back.to_str().unwrap());

    assert!(run(&format!("put {local} /tree")).refused(2).contains("add -r"));
    run(&format!("put -r {local} /tree")).ok();
    let tree = "/tree\n└── a/\n    ├── b/\n    │   └── two.txt\n    ├── link\n    └── one.txt\n\n2 directories, 3 files and others\n";
    assert_eq!(run("tree /tree").ok(), tree);
    let json: serde_json::Value = serde_json::from_str(&run("tree /tree --json").ok()).unwrap();
    assert_eq!(json["entries"][0]["entries"][0]["entries"][0]["name"], "two.txt");
    assert_eq!(run("tree /tree --depth 1").ok(), "/tree\n└── a/\n\n1 directory, 0 files and others\n");
    assert_eq!(run("find /tree --name *.txt --larger 4").ok(), "/tree/a/b/two.txt\n");
    assert_eq!(run("find /tree --kind symlink").ok(), "/tree/a/link\n");
    let usage: serde_json::Value = serde_json::from_str(&run("du /tree --json").ok()).unwrap();
    assert_eq!((&usage[0]["bytes"], &usage[0]["files"]), (&(9 + 7).into(), &3.into()), "{usage}");

    assert!(run("cp /tree /copy").refused(2).contains("add -r"));
    assert!(run("cp -r /tree /tree/in-itself").refused(2).contains("into itself"));
    run("cp -r -p /tree /copy").ok();
    run(&format!("get -r /copy {back}")).ok();
    assert_eq!(fs::read_to_string(format!("{back}/a/b/two.txt")).unwrap(), "twotwo");
    assert_eq!(fs::read_link(format!("{back}/a/link")).unwrap().to_str(), Some("one.txt"));

    run("mkdir /x /y").ok();
    run("mv /copy /tree/a/one.txt /x").ok();
    assert_eq!(run("cat /x/one.txt").ok(), "one");
    assert!(run("mv -n /x/one.txt /x/copy/a/one.txt").refused(1).contains("exists"));
    assert!(run("mv /x /y /none").refused(2).contains("is no directory"));
    run("ln /x/one.txt /y").ok();
    run("ln -s one.txt /y/soft").ok();
    assert_eq!(run("cat /y/soft").ok(), "one");

    run("chmod -r u=rwX,go= /x").ok();
    let mode = |path: &str| {
        let stat: serde_json::Value =
            serde_json::from_str(&run(&format!("stat {path} --json")).ok()).unwrap();
        (stat["mode"].as_str().unwrap().to_owned(), stat["uid"].as_u64(), stat["gid"].as_u64())
    };
    assert_eq!(mode("/x/copy/a").0, "0700");
    assert_eq!(mode("/x/one.txt").0, "0600");
    run("chown -r 7:8 /x").ok();
    assert_eq!(mode("/x/copy/a/link"), ("0777".to_owned(), Some(7), Some(8)));

    run("xattr /x/one.txt user.origin scanner").ok();
    assert_eq!(run("xattr /x/one.txt").ok(), "user.origin=scanner\n");
    assert_eq!(run("xattr /x/one.txt user.origin").ok(), "scanner");
    run("xattr --remove /x/one.txt user.origin").ok();
    assert_eq!(run("xattr /x/one.txt").ok(), "");
    assert!(run("xattr --remove /x/one.txt").refused(2).contains("name of the attribute"));

    assert!(run("rm /x").refused(2).contains("add -r"));
    assert!(run("rm -r /").refused(2).contains("cannot be removed"));
    // The first error is the answer, the others are told too, and what can be done is done.
    let told = run("rm /none /y/soft /nothing").refused(1);
    assert!(told.contains("/none") && told.contains("/nothing"), "{told}");
    run("rm -r -f /none /x /y /tree").ok();
    assert_eq!(run("ls /").ok(), "");
    assert!(cluster.run(&["check"]).ok().contains("0 problems"));
}

#[test]
fn names_of_any_bytes_are_listed_in_order_told_apart_on_a_terminal_and_removed() {
    let cluster = TestCluster::started("names");
    let dir = cluster.dir();
    let fs = |line: &[&[u8]]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bearing"));
        let line = line.iter().map(|argument| OsStr::from_bytes(argument));
        let output = command.arg("fs").args(line).args(["--dir", &dir]).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).expect("complaints are text"))
    };
    let names: [&[u8]; 4] = [b"/\x1b[31mred", b"/a b", b"/line\nfeed", b"/\xff\xfe"];
    for name in names.iter().rev() {
        assert_eq!(fs(&[b"mkdir", name]).0, Some(0));
    }
    let raw = names.map(|name| [&name[1..], b"\n"].concat()).concat();
    assert_eq!(fs(&[b"ls"]).1, raw, "to a program, byte by byte, in order");
    let again = fs(&[b"mkdir", names[0]]).2;
    assert!(again.contains(r"$'/\033'") || again.contains(r"'/'$'\033''[31mred'"), "{again:?}");
    let on_terminal = std::process::Command::new("script")
        .args(["-qec", &format!("{} fs ls --dir {dir}", env!("CARGO_BIN_EXE_bearing")), "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output();
    match on_terminal {
        Ok(output) => {
            let shown = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
            assert_eq!(shown, "$'\\033''[31mred'\n'a b'\n'line'$'\\n''feed'\n$'\\377\\376'\n");
        }
        Err(_) => eprintln!("left out: script(1) is not installed"),
    }
    assert_eq!(fs(&[b"ls", names[1]]).0, Some(0));
    assert_eq!(fs(&[&b"rm"[..], b"-r", names[0], names[1], names[2], names[3]]).0, Some(0));
    assert_eq!(fs(&[b"ls"]).1, b"");
}
