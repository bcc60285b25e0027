//! A cluster of the real program for one test: in a directory of its own, cleared away whatever happens.
//!
//! A test that was killed leaves processes and mounts; the next run finds its directory by name, sees that
//! the test is gone, and clears it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PREFIX: &str = "bearing-test-";
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Its standard output, if it ended well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "out: {}\nerr: {}", self.out, self.err);
        self.out
    }

    /// Its complaint, if it ended with a code.
    #[track_caller]
    pub fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "out: {}\nerr: {}", self.out, self.err);
        self.err
    }
}

/// Runs the program.
pub fn bearing(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bearing"));
    // Where mounts by address have their logs.
    if let Some(root) = arguments.iter().find_map(|argument| test_root(argument)) {
        command.env("XDG_STATE_HOME", root.join("state"));
    }
    Ran::of(command.args(arguments).output().expect("the program starts"))
}

/// The directory of the test that an argument is a path of.
fn test_root(argument: &str) -> Option<PathBuf> {
    let is_root =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    Path::new(argument).ancestors().find(|path| is_root(path)).map(Path::to_owned)
}

/// Runs a shell's script.
pub fn shell(script: &str) -> Ran {
    Ran::of(Command::new("bash").args(["-euc", script]).output().expect("bash is there"))
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_for(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "after {patience:?} still not: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Whether this machine can mount; says so if not.
pub fn can_mount() -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("skipped: /dev/fuse cannot be opened ({error})");
    }
    device.is_ok()
}

/// Sets a flag when it goes, so that threads that look at it end also when the test fails.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory for a cluster and its mount.
pub struct TestCluster {
    root: PathBuf,
}

impl TestCluster {
    /// An empty place.
    pub fn new(name: &str) -> TestCluster {
        static STALE: Once = Once::new();
        STALE.call_once(clear_stale);
        let root = std::env::temp_dir().join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&root).expect("a directory of its own");
        fs::create_dir(root.join("mnt")).expect("a mount point");
        TestCluster { root }
    }

    /// A small cluster, mounted.
    pub fn mounted(name: &str) -> TestCluster {
        let cluster = TestCluster::new(name);
        cluster.up(&["--mount", cluster.mnt().to_str().expect("plain names")]).ok();
        cluster
    }

    /// Mounts it at a further point, which the test unmounts.
    pub fn mount_again(&self) -> PathBuf {
        let point = self.root.join("second");
        fs::create_dir(&point).expect("a mount point");
        bearing(&["mount", &self.dir(), point.to_str().expect("plain names")]).ok();
        point
    }

    /// A small cluster without a mount.
    pub fn started(name: &str) -> TestCluster {
        let cluster = TestCluster::new(name);
        cluster.up(&[]).ok();
        cluster
    }

    /// Starts it in the background: two metadata servers, two data servers.
    pub fn up(&self, more: &[&str]) -> Ran {
        let dir = self.dir();
        let mut arguments = vec!["up", "--detach", "--metadata", "2", "--data", "2", "--dir", &dir];
        arguments.extend(more);
        bearing(&arguments)
    }

    /// Starts it again as it was, mounted.
    pub fn up_again(&self) -> Ran {
        bearing(&[
            "up",
            "--detach",
            "--dir",
            &self.dir(),
            "--mount",
            self.mnt().to_str().expect("plain names"),
        ])
    }

    /// Stops it. Its ports remain its own: tests beside this one make clusters too.
    pub fn down(&self) -> Ran {
        let ran = bearing(&["down", "--dir", &self.dir()]);
        let directories = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        let files = directories.map(|directory| directory.path().join("config.toml"));
        for file in files.chain([self.file("cluster.toml")]) {
            let text = fs::read_to_string(file).unwrap_or_default();
            let addresses = text.split('"').filter_map(|part| part.parse().ok());
            addresses.for_each(|address| drop(bearing_env::reserve(address)));
        }
        ran
    }

    /// Runs a command that takes the cluster's directory.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let dir = self.dir();
        let mut all = arguments.to_vec();
        all.extend(["--dir", &dir]);
        bearing(&all)
    }

    /// Where everything of this test lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The cluster's directory.
    pub fn dir(&self) -> String {
        self.root.join("cluster").to_str().expect("plain names").to_owned()
    }

    /// A file in the cluster's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.dir()).join(name)
    }

    /// The mount point.
    pub fn mnt(&self) -> PathBuf {
        self.root.join("mnt")
    }

    /// The status as JSON.
    pub fn status(&self) -> serde_json::Value {
        let status = self.run(&["status", "--json"]);
        serde_json::from_str(&status.out).unwrap_or_else(|error| panic!("{error}: {status:?}"))
    }

    /// The process numbers of the daemons that run.
    pub fn daemons(&self) -> Vec<u64> {
        let status = self.status();
        let daemons = status["daemons"].as_array().expect("a list of daemons");
        daemons.iter().filter_map(|daemon| daemon["pid"].as_u64()).collect()
    }

    /// Whether all daemons say that they serve.
    pub fn serves(&self) -> bool {
        let status = self.status();
        let daemons = status["daemons"].as_array().expect("a list of daemons");
        daemons.iter().all(|daemon| daemon["state"] == "serving")
    }

    /// The first address at which a kind of daemon listens.
    pub fn address(&self, kind: &str) -> String {
        let status = self.status();
        let daemons = status["daemons"].as_array().expect("a list of daemons");
        let daemon = daemons.iter().find(|daemon| daemon["kind"] == kind).expect("a daemon of this kind");
        daemon["address"].as_str().expect("an address").to_owned()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.run(&["status"]).out);
            show_logs(&self.root);
        }
        clear(&self.root);
    }
}

/// Ends processes, and returns when they have ended: until then they hold their locks.
pub fn kill(pids: impl IntoIterator<Item = u64>) {
    let dying: Vec<OwnedFd> = pids.into_iter().filter_map(|pid| killed(pid as libc::pid_t)).collect();
    for process in dying {
        let mut ended = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives as long as the call.
        let ends = unsafe { libc::poll(&mut ended, 1, PATIENCE.as_millis() as libc::c_int) };
        assert_eq!(ends, 1, "a killed process does not end within {PATIENCE:?}");
    }
}

/// A descriptor that tells when all threads of a process are gone, after it was sent the signal.
fn killed(pid: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: both calls take plain numbers; a process that ended meanwhile is no failure. Nobody else has
    // the descriptor.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        libc::kill(pid, libc::SIGKILL);
        (process >= 0).then(|| OwnedFd::from_raw_fd(process as RawFd))
    }
}

/// What a failed test's reader wants to see.
fn show_logs(root: &Path) {
    let logs =
        shell(&format!("cd {}/cluster && tail -n 20 log */log *.log 2>/dev/null || true", root.display()));
    eprintln!("{}", logs.out);
}

fn clear(root: &Path) {
    let dir = root.join("cluster");
    if dir.join("cluster.toml").exists() {
        bearing(&["down", "--dir", dir.to_str().expect("plain names")]);
    }
    // Whatever `down` could not find, for instance because its files were damaged by the test.
    for pid in processes_with(&root.display().to_string()) {
        kill([pid]);
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    for point in points.filter(|point| Path::new(point).starts_with(root)) {
        let _ = Command::new("umount").arg("-l").arg(point).output();
    }
    let _ = fs::remove_dir_all(root);
}

/// Processes of the program whose command line names a directory.
fn processes_with(directory: &str) -> Vec<u64> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &u64| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        // Not one that only begins like it.
        let named = line
            .match_indices(directory)
            .any(|(at, _)| line[at + directory.len()..].starts_with(['/', '\0']));
        line.contains("bearing") && named
    };
    let own = u64::from(std::process::id());
    pids.filter(|pid| *pid != own).filter(is_ours).collect()
}

/// Clears what killed runs left.
fn clear_stale() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            clear(&entry.path());
        }
    }
}
