//! Hosts that join a cluster, each in a directory and at a loopback address of its own.

mod common;

use bearing_proto::join::Token;
use common::{Ran, TestCluster, bearing, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing that another server hinders takes as long, on a busy machine too.
const HINDERED: Duration = Duration::from_secs(8);

// Where the ports of hosts begin, for tests that run at the same time. Each has 20, and as many 100 behind
// these, on 127.0.0.1 whatever its address is: there it shows metrics.
const JOINING: u16 = 19_300;
const CARELESS: u16 = 19_320;
const CARELESS_OTHER: u16 = 19_340;
const CARELESS_LATER: u16 = 19_360;
const TOO_FEW: u16 = 19_380;
const TWINS: u16 = 19_500;
const AHEAD: u16 = 19_520;

/// How long after it listened a server wrote this to its log, by the times there: the test's own looks come
/// late on a busy machine.
fn said_after(log: &Path, what: &str) -> Duration {
    let seconds = |line: &str| {
        let time = line.split(['T', 'Z']).nth(1).unwrap();
        time.split(':').fold(0.0, |sum, part| 60.0 * sum + part.parse::<f64>().unwrap())
    };
    let (mut begun, mut said) = (None, None);
    wait_for(what, PATIENCE, || {
        let text = fs::read_to_string(log).unwrap_or_default();
        let time = |what| text.lines().find(|line| line.contains(what)).map(seconds);
        (begun, said) = (time(" listens on "), time(what));
        said.is_some()
    });
    Duration::from_secs_f64((said.unwrap() - begun.unwrap()).rem_euclid(86_400.0))
}

/// Servers of several hosts, which end with the test.
struct Hosts {
    /// Only its place: nothing runs there.
    place: TestCluster,
    running: Vec<(PathBuf, Child)>,
    port: u16,
}

impl Hosts {
    /// A cluster with a host at 127.0.0.1 or at ::1.
    fn new(name: &str, port: u16, address: &str) -> Hosts {
        let mut hosts = Hosts { place: TestCluster::new(name), running: Vec::new(), port };
        let (dir, port) = (hosts.dir("h1"), port.to_string());
        bearing(&["init", "--dir", &dir, "--address", address, "--port-base", &port]).ok();
        ["coordinator", "metadata-1", "data-1"].iter().for_each(|name| hosts.start("h1", name));
        hosts.await_serving("h1", &["coordinator", "metadata-1", "data-1"]);
        hosts
    }

    fn dir(&self, host: &str) -> String {
        self.place.root().join(host).to_str().unwrap().to_owned()
    }

    fn start(&mut self, host: &str, server: &str) {
        self.start_by(Command::new(env!("CARGO_BIN_EXE_bearing")), host, server);
    }

    /// Starts a server on a host whose time of day is a minute ahead.
    fn start_ahead(&mut self, host: &str, server: &str) {
        let mut command = Command::new("faketime");
        command.args(["-f", "+60s", env!("CARGO_BIN_EXE_bearing")]);
        // The monotonic clock stays as it is.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        self.start_by(command, host, server);
    }

    fn start_by(&mut self, mut command: Command, host: &str, server: &str) {
        let directory = self.place.root().join(host).join(server);
        let kind = server.split('-').next().unwrap();
        let log = fs::File::options().create(true).append(true).open(directory.join("log")).unwrap();
        command.args(["daemon", kind, "--config"]).arg(directory.join("config.toml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.running.push((directory, child));
    }

    fn await_serving(&self, host: &str, servers: &[&str]) {
        for server in servers {
            let state = self.place.root().join(host).join(server).join("state");
            wait_for(&format!("{server} serves"), PATIENCE, || {
                fs::read_to_string(&state).is_ok_and(|state| state.contains("serving"))
            });
        }
    }

    fn token(&self) -> String {
        bearing(&["token", "--dir", &self.dir("h1")]).ok().trim().to_owned()
    }

    fn join(&self, token: &str, host: &str, address: &str) -> Ran {
        let port = self.port.to_string();
        bearing(&["join", token, "--dir", &self.dir(host), "--address", address, "--port-base", &port])
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn hosts_join_by_tokens_that_are_good_once_and_get_copies_of_everything() {
    let mut hosts = Hosts::new("hosts", JOINING, "127.0.0.1");
    let token = hosts.token();
    let told = hosts.join(&token, "h2", "127.0.0.2").ok();
    assert!(told.contains("metadata-2, data-2"), "{told}");
    let again = hosts.join(&token, "h3", "127.0.0.3").refused(1);
    assert!(again.contains("the token was used before"), "{again}");
    assert!(!PathBuf::from(hosts.dir("h3")).join("secrets").exists(), "nothing of the cluster is there");
    hosts.join(&hosts.token(), "h3", "127.0.0.3").ok();
    for number in [2, 3] {
        let (host, names) = (format!("h{number}"), [format!("metadata-{number}"), format!("data-{number}")]);
        names.iter().for_each(|name| hosts.start(&host, name));
        hosts.await_serving(&host, &names.each_ref().map(String::as_str));
    }
    let status = || bearing(&["status", "--dir", &hosts.dir("h3")]).out;
    wait_for("copies on all hosts", PATIENCE, || {
        status().contains("16 tablets with 3 copies each: all well")
    });
    let dir = hosts.dir("h2");
    let local = hosts.place.root().join("some");
    fs::write(&local, b"bytes").unwrap();
    bearing(&["fs", "--cluster", &dir, "put", local.to_str().unwrap(), "/some"]).ok();
    assert_eq!(bearing(&["fs", "--cluster", &hosts.dir("h1"), "cat", "/some"]).ok(), "bytes");
    let listed = bearing(&["enrol", "--list", "--dir", &dir]).ok();
    assert_eq!(listed.matches("a token that was used").count(), 2, "{listed}");
    let reserved = bearing(&["enrol", "join.mine", "--dir", &dir]).refused(2);
    assert!(reserved.contains("name of a token"), "{reserved}");
    // An address that another server has is refused, and the token stays good.
    let token = hosts.token();
    let taken = hosts.join(&token, "h4", "127.0.0.2").refused(1);
    assert!(taken.contains(&format!("127.0.0.2:{}", JOINING + 1)), "{taken}");
    hosts.join(&token, "h4", "127.0.0.4").ok();
}

#[test]
fn who_waits_for_a_cluster_with_too_few_hosts_is_told_that_and_why() {
    let hosts = Hosts::new("too-few", TOO_FEW, "127.0.0.1");
    let began = Instant::now();
    let error = bearing(&["fs", "--cluster", &hosts.dir("h1"), "ls", "/"]).refused(3);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let (waits, gives_up) = error.split_once('\n').unwrap();
    assert!(waits.contains("waiting up to 20 s for the cluster to give its root"), "{error}");
    assert!(gives_up.contains("too few of its metadata servers are up"), "{error}");
    assert!(gives_up.contains("`bearing init --metadata-copies 1`"), "{error}");
}

#[test]
fn a_second_server_by_the_same_name_ends_and_keeps_the_first_from_nothing() {
    let mut hosts = Hosts::new("twins", TWINS, "127.0.0.1");
    hosts.join(&hosts.token(), "h2", "127.0.0.2").ok();
    ["metadata-2", "data-2"].iter().for_each(|name| hosts.start("h2", name));
    hosts.await_serving("h2", &["metadata-2", "data-2"]);
    let (dir, local) = (hosts.dir("h1"), hosts.place.root().join("some"));
    fs::write(&local, vec![7; 100_000]).unwrap();
    let put = |name: &str| {
        let begun = Instant::now();
        bearing(&["fs", "--cluster", &dir, "put", local.to_str().unwrap(), name]).ok();
        begun.elapsed()
    };
    // Two servers that have just come are given copies before anything is stored.
    put("/before");
    for (name, port) in [("metadata-1", TWINS + 1), ("data-1", TWINS + 2)] {
        // Somebody copies configurations and keys, but no stores.
        let (from, to) = (hosts.place.root().join("h1"), hosts.place.root().join("copied"));
        fs::create_dir_all(to.join(name)).unwrap();
        fs::create_dir_all(to.join("secrets")).unwrap();
        for file in ["cluster.toml", "secrets/cluster.key", "secrets/enrolment.key"] {
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
        let config = fs::read_to_string(from.join(name).join("config.toml")).unwrap();
        let config = config.replace("metrics = \"127.0.0.1:", "metrics = \"127.0.0.3:");
        let config = format!("address = \"127.0.0.3:{port}\"\n{config}");
        fs::write(to.join(name).join("config.toml"), config).unwrap();
        let begun = Instant::now();
        hosts.start("copied", name);
        let (_, twin) = hosts.running.last_mut().unwrap();
        let mut ended = None;
        wait_for("the second one ends", PATIENCE, || {
            ended = twin.try_wait().unwrap();
            ended.is_some()
        });
        assert!(!ended.unwrap().success());
        assert!(begun.elapsed() < HINDERED, "{:?}", begun.elapsed());
        let log = fs::read_to_string(to.join(name).join("log")).unwrap();
        assert!(log.contains("is not the disk that was registered"), "{log}");
        // More than once: which server is asked changes.
        let took: Vec<Duration> = (0..8).map(|number| put(&format!("/{name}-{number}"))).collect();
        assert!(took.iter().all(|took| *took < HINDERED), "{took:?}");
    }
    for host in ["h1", "h2"] {
        let status = bearing(&["status", "--dir", &hosts.dir(host)]).ok();
        assert!(
            status.contains(&format!("127.0.0.1:{}", TWINS + 1)) && !status.contains("127.0.0.3"),
            "{status}"
        );
    }
    let read = bearing(&["fs", "--cluster", &hosts.dir("h2"), "cat", "/data-1-7"]).ok();
    assert_eq!(read.len(), 100_000);
}

#[test]
fn a_host_whose_clock_is_a_minute_ahead_says_so_within_three_seconds() {
    if Command::new("faketime").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no server can be given another time of day here (faketime is needed)");
        return;
    }
    let mut hosts = Hosts::new("ahead", AHEAD, "127.0.0.1");
    for number in [2, 3] {
        hosts.join(&hosts.token(), &format!("h{number}"), &format!("127.0.0.{number}")).ok();
    }
    ["metadata-2", "data-2"].iter().for_each(|name| hosts.start("h2", name));
    hosts.await_serving("h2", &["metadata-2", "data-2"]);
    ["metadata-3", "data-3"].iter().for_each(|name| hosts.start_ahead("h3", name));
    for name in ["metadata-3", "data-3"] {
        let log = hosts.place.root().join("h3").join(name).join("log");
        let took = said_after(&log, "ms ahead of others");
        assert!(took < Duration::from_secs(3), "{name}: {took:?}");
        wait_for("its state says so too", PATIENCE, || {
            let state = fs::read_to_string(log.with_file_name("state"));
            state.is_ok_and(|state| state.contains("ms ahead of others"))
        });
    }
    let status = bearing(&["status", "--dir", &hosts.dir("h3")]).ok();
    assert_eq!(status.matches("(clock off): the clock is ").count(), 2, "{status}");
    // The others go on.
    bearing(&["fs", "--cluster", &hosts.dir("h1"), "mkdir", "/still"]).ok();
    let status = bearing(&["status", "--dir", &hosts.dir("h2")]).ok();
    assert!(!status.contains("clock off"), "{status}");
}

#[test]
fn what_a_careless_operator_gets_wrong_is_told_within_seconds() {
    let mut hosts = Hosts::new("careless", CARELESS, "::1");
    let last = std::cell::Cell::new(Instant::now());
    let timed = |what: &str, ran: Ran, code: i32| {
        let took = last.replace(Instant::now()).elapsed();
        assert!(took < Duration::from_secs(5), "{what}: {took:?}");
        ran.refused(code)
    };
    // A token of another cluster.
    let other = Hosts::new("careless-other", CARELESS_OTHER, "127.0.0.1");
    let mut token = Token::parse(&other.token()).unwrap();
    token.servers = vec![format!("[::1]:{}", CARELESS + 1).parse().unwrap()];
    last.set(Instant::now());
    let error = timed("another's token", hosts.join(&token.to_text(), "h2", "127.0.0.2"), 1);
    assert!(error.contains("the token is one of another cluster"), "{error}");
    // Half of one.
    let error = timed("half a token", hosts.join("bearing-join-1:join.1", "h2", "127.0.0.2"), 2);
    assert!(error.contains("this is no token"), "{error}");
    // A directory that holds a cluster.
    let error = timed("here already", hosts.join(&hosts.token(), "h1", "127.0.0.2"), 1);
    assert!(error.contains("holds a cluster already"), "{error}");
    // An address that is not this host's.
    let error = timed("not ours", hosts.join(&hosts.token(), "h2", "192.0.2.1"), 1);
    assert!(error.contains("is it an address of this host"), "{error}");
    // A typo in a configuration.
    let config = PathBuf::from(hosts.dir("h1")).join("data-1/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("number = 1", "nubmer = 1")).unwrap();
    let daemon = bearing(&["daemon", "data", "--config", config.to_str().unwrap()]);
    let error = timed("a typo", daemon, 4);
    assert!(error.contains("data-1/config.toml:3: ") && error.contains("nubmer"), "{error}");
    // The key of another cluster.
    fs::write(&config, &text).unwrap();
    let (key, others) = ("secrets/cluster.key", PathBuf::from(other.dir("h1")).join("secrets/cluster.key"));
    let error = timed("another family", hosts.join(&hosts.token(), "h2", "127.0.0.2"), 1);
    assert!(error.contains("give an address of IPv6"), "{error}");
    hosts.port = CARELESS_LATER;
    hosts.join(&hosts.token(), "h2", "::1").ok();
    let own = PathBuf::from(hosts.dir("h2")).join(key);
    fs::remove_file(&own).unwrap();
    bearing_env::write_private(&own, &fs::read_to_string(others).unwrap()).unwrap();
    hosts.start("h2", "data-2");
    let log = PathBuf::from(hosts.dir("h2")).join("data-2/log");
    let took = said_after(&log, "is not the cluster key of that cluster");
    assert!(took < Duration::from_secs(5), "refusals are doubted for 2 s, not for {took:?}");
}
