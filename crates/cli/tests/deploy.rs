//! `docs/deploy.md`, word for word: three hosts and a client in network and mount namespaces of their own, on
//! one bridge. Then what happens to such a cluster: a link that is cut, a host that is lost and replaced,
//! restarts while it is used from two mounts, strangers.
//!
//! systemd does not run there: `systemctl` is acted out here, by the units as `bearing units` wrote them.

mod common;
#[path = "namespaces/mod.rs"]
mod namespaces;

use common::{Ran, SetAtEnd, shell, wait_for};
use namespaces::{end, hold, inner};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
/// A round of 31 calls takes no longer, whatever happens to a server or to its link meanwhile.
const LONGEST: Duration = Duration::from_secs(30);
const PAGE: &str = include_str!("../../../docs/deploy.md");

/// A host: a process that holds its namespaces, and its servers.
struct Host {
    holder: Child,
    units: Mutex<BTreeMap<String, Child>>,
}

struct Site {
    /// A directory of its own below the temporary one, which all hosts see.
    place: PathBuf,
    hosts: BTreeMap<String, Host>,
    /// What holds the namespace of the bridge.
    bridge: Child,
    /// The token that was printed last.
    token: Mutex<String>,
}

/// What the site is made with, if this machine has it.
fn can_make_hosts() -> bool {
    let made = common::can_mount()
        && Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", "ip link add br0 type bridge"])
            .output()
            .is_ok_and(|output| output.status.success());
    if !made {
        eprintln!(
            "SKIPPED: no namespaces with a bridge can be made here (root, iproute2 and util-linux are needed)"
        );
    }
    made
}

impl Site {
    fn new() -> Site {
        let place = std::env::temp_dir().join(format!("bearing-test-{}-deploy", std::process::id()));
        fs::create_dir(&place).expect("a directory of its own");
        // What people have downloaded.
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bearing"), place.join("bearing")).unwrap();
        let bridge = hold(&["--mount", "--net"]);
        let pid = inner(&bridge).unwrap();
        shell(&format!("nsenter -t {pid} -n sh -c 'ip link add br0 type bridge; ip link set br0 up'")).ok();
        Site { place, hosts: BTreeMap::new(), bridge, token: Mutex::default() }
    }

    fn add(&mut self, name: &str, address: &str) {
        let holder = hold(&["--mount", "--net"]);
        let (pid, bridge) = (inner(&holder).unwrap(), inner(&self.bridge).unwrap());
        let place = self.place.display();
        shell(&format!(
            "ip link add eth0 netns {pid} type veth peer name {name} netns {bridge}
             nsenter -t {bridge} -n sh -c 'ip link set {name} master br0; ip link set {name} up'
             nsenter -t {pid} -n sh -c 'ip link set lo up; ip address add {address}/24 dev eth0; ip link set eth0 up'
             nsenter -t {pid} -m sh -c 'mount --make-rprivate /
                 cp -a /etc {place}/etc-{name}; mount --bind {place}/etc-{name} /etc
                 for directory in /var/lib /usr/local/bin /mnt; do mount -t tmpfs tmpfs $directory; done'"
        ))
        .ok();
        self.hosts.insert(name.to_owned(), Host { holder, units: Mutex::default() });
    }

    fn link(&self, name: &str, state: &str) {
        let bridge = inner(&self.bridge).unwrap();
        shell(&format!("nsenter -t {bridge} -n ip link set {name} {state}")).ok();
    }

    fn enter(&self, host: &str) -> Command {
        let pid = inner(&self.hosts[host].holder).expect("the host is there");
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-m", "-n", &format!("--wdns={}", self.place.display())]);
        command.env("XDG_STATE_HOME", "/var/lib/state");
        command
    }

    /// Runs a line on a host.
    fn run(&self, host: &str, line: &str) -> Ran {
        let output = self.enter(host).args(["bash", "-euc", line]).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// A line of the page.
    fn follow(&self, host: &str, line: &str) -> String {
        let line = line.replace("TOKEN", &self.token.lock().unwrap());
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["systemctl", "daemon-reload"] => String::new(),
            ["systemctl", "enable", "--now", units @ ..] | ["systemctl", "start", units @ ..] => {
                units.iter().for_each(|unit| self.start(host, unit));
                String::new()
            }
            ["systemctl", "restart", units @ ..] => {
                units.iter().for_each(|unit| {
                    self.stop(host, unit);
                    self.start(host, unit);
                });
                String::new()
            }
            ["scp", from, to] => {
                let (other, path) = from.split_once(':').unwrap();
                let copied = self.place.join("copied");
                self.run(other, &format!("cat {path} > {}", copied.display())).ok();
                self.run(host, &format!("install -m 600 {} {to}", copied.display())).ok()
            }
            _ => {
                let told = self.run(host, &line).ok();
                if line.starts_with("bearing token") {
                    *self.token.lock().unwrap() = told.trim().to_owned();
                }
                told
            }
        }
    }

    /// Starts a unit as systemd does, until it says that it is ready.
    fn start(&self, host: &str, unit: &str) {
        let (template, instance) = match unit.split_once('@') {
            Some((name, instance)) => (format!("{name}@.service"), instance),
            None => (format!("{unit}.service"), ""),
        };
        let text = self.run(host, &format!("cat /etc/systemd/system/{template}")).ok();
        assert!(text.contains("Type=notify"), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("what it runs");
        let line = line.replace("%i", instance);
        let socket = self.place.join("notify");
        let _ = fs::remove_file(&socket);
        let notified = UnixDatagram::bind(&socket).unwrap();
        notified.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = fs::File::options().create(true).append(true).open(self.place.join(format!("{host}.log")));
        let mut command = self.enter(host);
        command.args(line.split_whitespace()).env("NOTIFY_SOCKET", &socket);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap()).spawn().unwrap();
        let (mut told, mut ready) = ([0; 256], false);
        while !ready {
            let length =
                notified.recv(&mut told).unwrap_or_else(|error| panic!("{unit} is not ready: {error}"));
            ready = String::from_utf8_lossy(&told[..length]).lines().any(|line| line == "READY=1");
        }
        self.hosts[host].units.lock().unwrap().insert(unit.to_owned(), child);
    }

    fn stop(&self, host: &str, unit: &str) {
        let mut child = self.hosts[host].units.lock().unwrap().remove(unit).expect("it runs");
        // SAFETY: kill takes plain numbers; the child was not waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        assert!(child.wait().unwrap().success(), "{unit} ends in order");
    }

    /// The blocks of a part of the page: on which hosts, and their lines.
    fn follow_page(&self, part: &str) {
        let from = PAGE.find(&format!("\n## {part}\n")).unwrap_or_else(|| panic!("the page has no {part}"));
        let text = &PAGE[from + 1..];
        let text = &text[..text[3..].find("\n## ").map_or(text.len(), |end| end + 3)];
        let mut followed = 0;
        for block in text.split("```sh ").skip(1) {
            let (hosts, rest) = block.split_once('\n').unwrap();
            for line in rest.split("```").next().unwrap().lines() {
                for host in hosts.split_whitespace() {
                    self.follow(host, line);
                    followed += 1;
                }
            }
        }
        assert!(followed > 0, "{part} has nothing to do");
    }

    /// Waits until every tablet and every chunk has its copies.
    fn await_copies(&self, host: &str) {
        wait_for("every tablet has its copies", PATIENCE, || {
            let status = self.run(host, "bearing status --dir /var/lib/bearing");
            status.out.contains("16 tablets with 3 copies each: all well")
        });
        wait_for("every chunk has its copies", PATIENCE, || {
            let checked = self.run(host, "bearing check --dir /var/lib/bearing");
            assert!(checked.out.contains("problem"), "{checked:?}");
            !checked.out.contains("copies are lacking")
        });
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in self.hosts.keys() {
                let log = fs::read_to_string(self.place.join(format!("{name}.log"))).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("--- {name}\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        for holder in self.hosts.values_mut().map(|host| &mut host.holder).chain([&mut self.bridge]) {
            end(holder);
        }
        for child in self.hosts.values().flat_map(|host| std::mem::take(&mut *host.units.lock().unwrap())) {
            let mut child = child.1;
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// Makes files on a mount of the client, and removes 15 of 16 of them, until told to stop.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// Rounds that are done, on all mounts.
    rounds: AtomicU64,
}

/// How long a round took at most. Those that stay are there in the end.
fn work(site: &Site, place: &str, load: &Load) -> Duration {
    let (host, mut made, mut longest) = ("client", 0, Duration::ZERO);
    site.run(host, &format!("mkdir -p {place}")).ok();
    while !load.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let (first, last) = (made * 16, made * 16 + 15);
        site.run(host, &format!(
            "for n in $(seq {first} {last}); do echo $n > {place}/f$n; [ $((n % 16)) = 0 ] || rm {place}/f$n; done"
        ))
        .ok();
        longest = longest.max(begun.elapsed());
        made += 1;
        load.rounds.fetch_add(1, Ordering::Relaxed);
    }
    let kept = site.run(host, &format!("ls {place} | wc -l")).ok();
    assert_eq!(kept.trim(), made.to_string(), "of every round one file is there");
    longest
}

/// Waits until the mounts get on.
fn await_rounds(load: &Load) {
    let enough = load.rounds.load(Ordering::Relaxed) + 4;
    wait_for("both mounts get on", PATIENCE, || load.rounds.load(Ordering::Relaxed) >= enough);
}

#[test]
fn the_page_is_followed_and_the_cluster_outlives_links_hosts_and_restarts() {
    if !can_make_hosts() {
        return;
    }
    let mut site = Site::new();
    for (name, number) in [("host-1", 1), ("host-2", 2), ("host-3", 3), ("client", 9)] {
        site.add(name, &format!("10.77.0.{number}"));
    }
    for part in ["Every host", "The first host", "The other hosts", "A client"] {
        site.follow_page(part);
    }
    site.await_copies("host-3");
    let used = site.token.lock().unwrap().clone();
    let again =
        site.run("client", &format!("bearing join '{used}' --dir /var/lib/bearing --address 10.77.0.9"));
    assert!(again.err.contains("the token was used before"), "{again:?}");
    let stranger = "head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /etc/bearing/wrong.key; chmod 600 /etc/bearing/wrong.key";
    site.run("client", stranger).ok();
    let hosts = |port: u16| (1..=3).map(move |number| format!("10.77.0.{number}:{port}"));
    for port in hosts(9101).chain(hosts(9102)).chain(["10.77.0.1:9100".to_owned()]) {
        for secret in ["--secret /etc/bearing/wrong.key", ""] {
            let begun = Instant::now();
            let refused = site.run("client", &format!("bearing fs --cluster {port} {secret} ls /"));
            assert!(refused.code.is_some_and(|code| code != 0), "{port}: {refused:?}");
            assert!(begun.elapsed() < Duration::from_secs(3), "{port}: {refused:?}");
        }
        // Who sends anything is not answered, and nothing comes of it.
        let device = port.replace(':', "/");
        let noise = format!(
            "exec 3<>/dev/udp/{device}; for n in $(seq 50); do head -c $((n * 25)) /dev/urandom >&3; done
             ! timeout 0.2 head -c 1 <&3 | grep -q ."
        );
        site.run("client", &noise).ok();
    }
    site.run(
        "client",
        "cp -r /usr/share/doc/libc6 /mnt/bearing/ && diff -r /usr/share/doc/libc6 /mnt/bearing/libc6",
    )
    .ok();

    // A second mount, and work on both.
    site.run(
        "client",
        "mkdir /mnt/other; bearing mount 10.77.0.2:9101 /mnt/other --secret /etc/bearing/clients.key",
    )
    .ok();
    // A host's link is cut.
    let load = Load::default();
    let longest = std::thread::scope(|scope| {
        let (site, load) = (&site, &load);
        let stops = SetAtEnd(&load.stop);
        let workers =
            ["/mnt/bearing/a", "/mnt/other/b"].map(|place| scope.spawn(move || work(site, place, load)));
        await_rounds(load);
        site.link("host-2", "down");
        await_rounds(load);
        std::thread::sleep(Duration::from_secs(3));
        await_rounds(load);
        site.link("host-2", "up");
        site.await_copies("host-1");
        drop(stops);
        workers.map(|worker| worker.join().unwrap())
    });
    eprintln!("a link was cut: rounds of 31 calls took at most {longest:?}");
    assert!(longest.iter().all(|longest| *longest < LONGEST), "{longest:?}");

    // Restarts while both mounts are used.
    let load = Load::default();
    let longest = std::thread::scope(|scope| {
        let (site, load) = (&site, &load);
        let stops = SetAtEnd(&load.stop);
        let workers =
            ["/mnt/bearing/c", "/mnt/other/d"].map(|place| scope.spawn(move || work(site, place, load)));
        await_rounds(load);
        site.follow_page("A restart, or another release");
        for number in [2, 3] {
            for kind in ["metadata", "data"] {
                await_rounds(load);
                site.follow(&format!("host-{number}"), &format!("systemctl restart bearing-{kind}@{number}"));
            }
        }
        await_rounds(load);
        drop(stops);
        workers.map(|worker| worker.join().unwrap())
    });
    eprintln!("restarts: rounds of 31 calls took at most {longest:?}");
    assert!(longest.iter().all(|longest| *longest < LONGEST), "{longest:?}");
    site.await_copies("host-3");

    // A host is gone for good, and another one takes its place.
    for (_, mut child) in std::mem::take(&mut *site.hosts["host-3"].units.lock().unwrap()) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    site.link("host-3", "down");
    site.add("host-4", "10.77.0.4");
    for line in ["install -m 755 bearing /usr/local/bin/bearing", "bearing units /etc/systemd/system"] {
        site.follow("host-4", line);
    }
    site.follow("host-1", "bearing token --dir /var/lib/bearing");
    site.follow("host-4", "bearing join 'TOKEN' --dir /var/lib/bearing --address 10.77.0.4");
    site.follow("host-4", "systemctl enable --now bearing-metadata@4 bearing-data@4");
    site.await_copies("host-4");
    site.run("client", "diff -r /usr/share/doc/libc6 /mnt/other/libc6").ok();
    // What the workers wrote, until just before the host was lost, is read by the other mount.
    let read = "cd /mnt/other; for f in [abcd]/f*; do got=$(timeout 20 cat $f) || { echo $f; break; }; [ f$got = ${f#?/} ] || echo $f is $got; done";
    let unread = site.run("client", read).ok();
    assert_eq!(unread, "", "files that are not read");
    site.run("client", "bearing umount /mnt/other; bearing umount /mnt/bearing").ok();
}
