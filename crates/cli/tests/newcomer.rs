//! What somebody meets who uses this for the first time, and makes the mistakes that people make.
//!
//! Those with a mount need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{Ran, TestCluster, bearing, can_mount, shell, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_bearing");

fn text(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// Processes of the program that name a path, by what the kernel says.
fn processes_of(path: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains("bearing ") && line.contains(path)).collect()
}

fn small_up(cluster: &TestCluster) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["up", "--metadata", "1", "--data", "1", "--dir", &cluster.dir()]);
    command
}

fn interrupt(child: &Child) {
    // SAFETY: kill takes plain numbers, and the child has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).unwrap();
    (child.wait().unwrap().code(), told)
}

#[test]
fn daemons_keep_no_pipe_of_their_caller_open() {
    let cluster = TestCluster::new("pipes");
    let dir = cluster.dir();
    let up = format!("{PROGRAM} up --detach --metadata 1 --data 1 --dir {dir}");
    let ran =
        shell(&format!("timeout 60 bash -c 'x=$({up} 3>&1 4>&1); echo \"got: $x\"; {up} 5>&1 | cat'")).ok();
    assert!(ran.starts_with("got: a new cluster is made") && ran.contains("already running"), "{ran}");
}

#[test]
fn a_reader_that_is_gone_ends_up_in_order_and_quietly() {
    let cluster = TestCluster::new("reader");
    let dir = cluster.dir();
    let script = format!(
        "timeout 60 {PROGRAM} up --metadata 1 --data 1 --dir {dir} 2>{dir}.err | true; echo ${{PIPESTATUS[0]}}"
    );
    assert_eq!(shell(&script).ok(), "141\n");
    let told = fs::read_to_string(format!("{dir}.err")).unwrap();
    assert!(!told.contains("panicked") && !told.contains("pipe"), "{told}");
    wait_for("nothing runs", PATIENCE, || processes_of(&dir).is_empty());
}

#[test]
fn ctrl_c_stops_a_cluster_that_starts_or_runs_in_the_foreground() {
    let cluster = TestCluster::new("interrupt");
    let child = small_up(&cluster).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("it serves", PATIENCE, || cluster.file("cluster.toml").exists() && cluster.serves());
    interrupt(&child);
    let (code, told) = ended(child);
    assert!(code == Some(0) && told.contains("stopping the cluster"), "{code:?}: {told}");
    assert_eq!(processes_of(&cluster.dir()), Vec::<String>::new());

    let mut up = small_up(&cluster);
    let child = up.arg("--detach").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the supervisor runs", PATIENCE, || {
        processes_of(&cluster.dir()).iter().any(|line| line.contains("daemon supervise"))
    });
    interrupt(&child);
    let (code, told) = ended(child);
    // It may have come up in the same moment.
    if code != Some(0) {
        assert!(
            code == Some(130) && told.contains("interrupted: the cluster is stopped"),
            "{code:?}: {told}"
        );
        assert_eq!(processes_of(&cluster.dir()), Vec::<String>::new());
    }
}

#[test]
fn wrong_addresses_are_told_by_what_is_seen_there() {
    let place = TestCluster::new("addresses");
    let key = place.root().join("key");
    fs::write(&key, "ab".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = format!("{closed},{}", mute.local_addr().unwrap());
    let told = bearing(&["fs", "ls", "/", "--cluster", &addresses, "--secret", text(&key)]).refused(3);
    let refused = format!("{closed} (connection refused: nothing listens there)");
    assert!(told.contains(&refused) && told.contains("but no Bearing answers"), "{told}");
    assert!(told.contains("bearing status"), "{told}");
}

#[test]
fn what_a_user_may_not_read_is_not_told_to_be_missing() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can run this as somebody else");
        return;
    }
    let cluster = TestCluster::new("permission");
    let program = cluster.root().join("program");
    fs::copy(PROGRAM, &program).unwrap();
    let dir = cluster.dir();
    bearing(&["up", "--detach", "--metadata", "1", "--data", "1", "--dir", &dir]).ok();
    let as_other = || {
        let mut command = Command::new(&program);
        command.args(["fs", "ls", "/", "--dir", &dir]).uid(65534).gid(65534).current_dir("/");
        let output = command.output().unwrap();
        Ran {
            code: output.status.code(),
            out: String::new(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    };
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(cluster.file("secrets"), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = as_other().refused(1);
    assert!(secret.contains("is not for this user") && secret.contains("enrolment.key"), "{secret}");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    let closed = as_other().refused(1);
    assert!(closed.contains("Permission denied") && !closed.contains("holds no cluster"), "{closed}");
}

#[test]
fn status_shows_every_session_to_who_has_the_clusters_key() {
    let cluster = TestCluster::started("sessions");
    let mut put = Command::new(PROGRAM)
        .args(["fs", "put", "-", "/slow", "--dir", &cluster.dir()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("its session is shown", PATIENCE, || {
        let status = cluster.status();
        let sessions = status["sessions"].as_array().unwrap();
        sessions.iter().any(|session| {
            session["process"] == put.id() && !session["host"].is_null() && session["since"].is_number()
        })
    });
    assert!(cluster.run(&["status"]).ok().contains("not mounted (fs, check)"));
    put.stdin.take().unwrap().write_all(b"done").unwrap();
    assert!(put.wait().unwrap().success());
    wait_for("it is over", PATIENCE, || cluster.status()["sessions"].as_array().unwrap().is_empty());
}

#[test]
fn small_mistakes_are_forgiven_or_told() {
    let cluster = TestCluster::new("mistakes");
    let dir = cluster.dir();
    let nowhere = bearing(&["up", "--detach", "--dir", &dir, "--mount", "/proc/none"]).refused(1);
    assert!(nowhere.contains("/proc/none") && !Path::new(&dir).exists(), "nothing is left behind: {nowhere}");
    bearing(&["up", "--detach", "--metadata", "1", "--data", "1", "--dir", &dir]).ok();
    let missing = cluster.root().join("missing");
    let told = bearing(&["mount", &dir, text(&missing)]).refused(1);
    assert!(told.contains("mkdir -p") && !missing.exists(), "{told}");
    cluster.run(&["fs", "mkdir", "/d"]).ok();
    assert_eq!(cluster.run(&["fs", "find", "/", "--depth", "0"]).ok(), "/\n");
    assert!(cluster.run(&["fs", "du", "/"]).ok().ends_with(" /\n"));
    cluster.run(&["fs", "chmod", "-R", "700", "/d"]).ok();
    let none = bearing(&["fs", "ls", "--dir", text(&missing)]).refused(1);
    assert!(none.contains("holds no cluster") && none.contains("--dir"), "{none}");
}

#[test]
fn shells_and_man_know_every_command() {
    let place = TestCluster::new("man");
    for shell in ["bash", "zsh", "fish"] {
        let script = bearing(&["completions", shell]).ok();
        assert!(script.contains("umount") && script.contains("no-replace"), "{shell}");
    }
    let pages = place.root().join("man1");
    bearing(&["man", text(&pages)]).ok();
    for page in ["bearing.1", "bearing-up.1", "bearing-fs-find.1", "bearing-mount.1"] {
        let found = fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(found.contains(".SH EXAMPLES\n.nf"), "{page}");
    }
}

#[test]
fn a_mount_that_is_gone_is_made_again_by_up_and_none_is_stacked() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("again");
    let (mnt, dir) = (cluster.mnt(), cluster.dir());
    let mounts = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().filter(|line| line.split(' ').nth(4) == mnt.to_str()).count()
    };
    let busy = bearing(&["mount", &dir, text(&mnt)]).refused(2);
    assert!(busy.contains("a Bearing is mounted there already (process "), "{busy}");
    assert_eq!(mounts(), 1);
    bearing(&["umount", text(&mnt)]).ok();
    let left = processes_of(text(&mnt));
    let left: Vec<_> = left.iter().filter(|line| !line.contains("daemon supervise")).collect();
    assert!(left.is_empty(), "umount returns when its processes have ended: {left:?}");
    let told = cluster.up_again().ok();
    assert!(told.contains("already running") && told.contains("mounted at"), "{told}");
    assert_eq!(mounts(), 1);
    fs::write(mnt.join("file"), "through it").unwrap();
    assert!(cluster.file("mounts").is_dir(), "its log and report");

    let other = cluster.root().join("other");
    fs::create_dir(&other).unwrap();
    shell(&format!("mount -t tmpfs bearing-other {}", text(&other))).ok();
    let busy = bearing(&["mount", &dir, text(&other)]).refused(2);
    shell(&format!("umount {}", text(&other))).ok();
    assert!(busy.contains("tmpfs (bearing-other) is mounted there"), "{busy}");

    cluster.down().ok();
    assert_eq!(processes_of(&dir), Vec::<String>::new(), "nothing is left");
    assert_eq!(mounts(), 0);
}

#[test]
fn status_knows_all_mounts_and_df_counts_a_disk_once() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("knows");
    let (first, second) = (cluster.mnt(), cluster.mount_again());
    fs::create_dir(second.join("d")).unwrap();
    (0..100).for_each(|n| fs::write(second.join(format!("d/{n}")), "x").unwrap());
    wait_for("both are shown, one with what is delegated to it", PATIENCE, || {
        let status = cluster.status();
        let sessions = status["sessions"].as_array().unwrap();
        let at = |point: &Path| sessions.iter().find(|session| session["path"] == text(point));
        let delegated = |point| at(point).and_then(|session| session["delegations"].as_u64());
        delegated(&first).is_some() && delegated(&second) > Some(0)
    });
    // All numbers of one moment: the disk is others' too.
    let space = |path: &Path| -> [u64; 3] {
        let out = shell(&format!("df --output=size,avail,itotal -B1 {} | tail -1", text(path))).ok();
        let numbers: Vec<u64> = out.split_whitespace().map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    };
    // Two servers on one disk, two copies of everything.
    wait_for("the servers have told of their space", PATIENCE, || space(&cluster.mnt())[0] > 0);
    let [disk, ..] = space(cluster.root());
    let [total, free, nodes] = space(&cluster.mnt());
    assert!(total <= disk / 2, "{total} of {disk}");
    assert!(free <= total, "{free} of {total}");
    assert_eq!(nodes, 0, "nobody counts nodes");
    cluster.down().ok();
    assert_eq!(processes_of(&cluster.dir()), Vec::<String>::new(), "the second mount too");
}
