//! Requests that a switch carries: four metadata servers and a client in network namespaces, on one bridge of
//! Open vSwitch in user space, whose table `bearing network follow` keeps.

mod common;
#[path = "namespaces/mod.rs"]
mod namespaces;

use common::{Ran, shell, wait_for};
use namespaces::{end, hold, inner};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SERVERS: u8 = 4;
const PREFIX: &str = "fd42:7:7:7::/64";
const BEARING: &str = env!("CARGO_BIN_EXE_bearing");

struct Site {
    place: PathBuf,
    switch: Child,
    hosts: BTreeMap<String, Child>,
}

/// What the site is made with, if this machine has it.
fn can_make_it() -> bool {
    let tools =
        "for tool in ovs-vswitchd ovs-ofctl ethtool nsenter; do command -v $tool > /dev/null || exit 1; done";
    let namespaces = ["--mount", "--net", "sh", "-c", "ip link add p0 type veth peer name p1"];
    let made = common::can_mount()
        && shell(tools).code == Some(0)
        && Command::new("unshare").args(namespaces).output().is_ok_and(|output| output.status.success());
    if !made {
        eprintln!(
            "SKIPPED: no switch can be made here (root, iproute2, ethtool and openvswitch-switch are needed)"
        );
    }
    made
}

impl Site {
    fn new() -> Site {
        let place = std::env::temp_dir().join(format!("bearing-test-{}-network", std::process::id()));
        fs::create_dir(&place).expect("a directory of its own");
        let site = Site { place, switch: hold(&["--net"]), hosts: BTreeMap::new() };
        site.at_switch(
            "ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
             ovsdb-server conf.db --remote=punix:$OVS_RUNDIR/db.sock --pidfile --detach --log-file 2> /dev/null
             ovs-vsctl --no-wait init
             ovs-vswitchd --pidfile --detach --log-file 2> /dev/null
             ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev protocols=OpenFlow10,OpenFlow13 fail_mode=secure
             ovs-ofctl -O OpenFlow13 add-flow br0 priority=0,actions=NORMAL",
        )
        .ok();
        site
    }

    fn at_switch(&self, script: &str) -> Ran {
        let (pid, place) = (inner(&self.switch).unwrap(), self.place.display());
        let ovs = format!("export OVS_RUNDIR={place} OVS_DBDIR={place} OVS_LOGDIR={place}; cd {place}");
        shell(&format!("{ovs}; nsenter -t {pid} -n bash -euc '{script}'"))
    }

    /// A host at a port of the bridge that has its number.
    fn add(&mut self, name: &str, number: u8) {
        let host = hold(&["--net"]);
        let (pid, switch) = (inner(&host).unwrap(), inner(&self.switch).unwrap());
        // Without checksums in software, those of UDP are left to a card that is not there.
        shell(&format!(
            "ip link add eth0 netns {pid} address 02:00:00:00:00:{number:02x} type veth peer name p{number} netns {switch}
             nsenter -t {pid} -n sh -ec \"ethtool -K eth0 tx off > /dev/null; ip link set lo up
                 ip address add 10.78.0.{number}/24 dev eth0; ip -6 address add fd99::{number}/64 dev eth0 nodad
                 ip link set eth0 up\""
        ))
        .ok();
        self.at_switch(&format!(
            "ip link set p{number} up; ethtool -K p{number} tx off > /dev/null
             ovs-vsctl add-port br0 p{number} -- set interface p{number} ofport_request={number}"
        ))
        .ok();
        self.hosts.insert(name.to_owned(), host);
    }

    fn enter(&self, host: &str) -> Command {
        let pid = inner(&self.hosts[host]).expect("the host is there");
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-n"]).current_dir(&self.place);
        command.env("OVS_RUNDIR", &self.place).env("XDG_STATE_HOME", self.place.join("state"));
        command
    }

    fn run(&self, host: &str, line: &str) -> Ran {
        let line = line.replace("bearing ", &format!("{BEARING} "));
        let output = self.enter(host).args(["bash", "-euc", &line]).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Runs a line until the site ends.
    fn start(&self, host: &str, arguments: &str) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.place.join(format!("{host}.log")));
        let log = log.unwrap();
        let mut command = self.enter(host);
        command.arg(BEARING).args(arguments.split_whitespace()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn daemon(&self, kind: &str, number: u8) -> Child {
        let name = if kind == "coordinator" { kind.to_owned() } else { format!("{kind}-{number}") };
        self.start(&format!("host-{number}"), &format!("daemon {kind} --config d{number}/{name}/config.toml"))
    }

    fn await_copies(&self) {
        wait_for("every tablet has its copies", PATIENCE, || {
            self.run("host-1", "bearing status --dir d1").out.contains("3 copies each: all well")
        });
    }

    /// The entries as the switch has them, if they are as the registers say.
    fn table(&self) -> Option<String> {
        let shown = self.run("host-1", &format!("bearing network show --dir d1 --bridge br0 {}", ports()));
        (shown.code == Some(0)).then_some(shown.out)
    }

    /// Packets that the entries for requests have carried.
    fn carried(&self) -> u64 {
        let dump = self.at_switch("ovs-ofctl -O OpenFlow13 dump-flows br0 cookie=0xbea2/-1").ok();
        let counts = dump.split([',', ' ']).filter_map(|part| part.strip_prefix("n_packets="));
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    }

    /// Makes directories, each of which must not be there yet: one that is made twice fails. How long the
    /// slowest took.
    fn make(&self, numbers: std::ops::Range<u32>) -> Duration {
        numbers
            .map(|number| {
                let began = Instant::now();
                fs::create_dir(self.place.join(format!("m/d{number}"))).expect("it is not there yet");
                began.elapsed()
            })
            .max()
            .unwrap_or_default()
    }
}

fn ports() -> String {
    (1..=SERVERS).map(|number| format!(" --port {number}={number},02:00:00:00:00:{number:02x}")).collect()
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in self.hosts.keys() {
                let log = fs::read_to_string(self.place.join(format!("{name}.log"))).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(10).collect();
                eprintln!("--- {name}\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        for mount in ["m", "n"] {
            let _ = Command::new("umount").arg("-l").arg(self.place.join(mount)).output();
        }
        self.hosts.values_mut().chain([&mut self.switch]).for_each(end);
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// A cluster on the hosts of a site: who serves is stopped with it.
struct Running {
    site: Site,
    metadata: Vec<Child>,
    others: Vec<Child>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for daemon in self.metadata.iter_mut().chain(&mut self.others) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Four metadata servers and a client by the bridge, which leads nowhere yet.
fn running() -> Running {
    let mut site = Site::new();
    for number in 1..=SERVERS {
        site.add(&format!("host-{number}"), number);
        site.run(&format!("host-{number}"), &format!("ip -6 route add local {PREFIX} dev lo")).ok();
    }
    site.add("client", 9);
    // The client sends the prefix to the switch by a neighbour that nobody is: the table says who takes it.
    site.run("client", "ip -6 neigh add fd99::fe lladdr 02:00:00:00:00:fe dev eth0 nud permanent").ok();
    site.run("client", &format!("ip -6 route add {PREFIX} via fd99::fe dev eth0")).ok();

    let init = "bearing init --dir d1 --address 10.78.0.1 --lookup in-network";
    let refused = site.run("host-1", init).refused(2);
    assert!(refused.contains("--prefix"), "{refused}");
    site.run("host-1", &format!("{init} --prefix {PREFIX}")).ok();
    let mut others = vec![site.daemon("coordinator", 1), site.daemon("data", 1)];
    let mut metadata = vec![site.daemon("metadata", 1)];
    wait_for("the first servers", PATIENCE, || site.run("host-1", "bearing status --dir d1").code == Some(0));
    for number in 2..=SERVERS {
        let token = site.run("host-1", "bearing token --dir d1").ok();
        let join = format!("bearing join '{}' --dir d{number} --address 10.78.0.{number}", token.trim());
        site.run(&format!("host-{number}"), &join).ok();
        metadata.push(site.daemon("metadata", number));
        others.push(site.daemon("data", number));
    }
    site.await_copies();
    fs::create_dir(site.place.join("m")).unwrap();
    Running { site, metadata, others }
}

impl Site {
    fn follow(&self) -> Child {
        let follow = self.start("host-1", &format!("network follow --dir d1 --bridge br0{}", ports()));
        wait_for("the table", PATIENCE, || self.table().is_some());
        follow
    }

    fn mount(&self, client: &str, place: &str) {
        let flags = "--secret d1/secrets/enrolment.key -o nodelegate";
        self.run(client, &format!("bearing mount 10.78.0.1:9101 {place} {flags}")).ok();
    }

    /// What all metadata servers count of this.
    fn counted(&self, metric: &str) -> u64 {
        let counts = (1..=SERVERS).map(|number| {
            let config =
                fs::read_to_string(self.place.join(format!("d{number}/metadata-{number}/config.toml")));
            let config = config.unwrap();
            let address =
                config.lines().find_map(|line| line.strip_prefix("metrics = ")).expect("an address");
            let page = self.run(
                &format!("host-{number}"),
                &format!("curl -sf http://{}/metrics", address.trim_matches('"')),
            );
            let counts =
                page.out.lines().filter_map(|line| line.strip_prefix(metric)?.split(' ').next_back());
            counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>()
        });
        counts.sum()
    }
}

#[test]
fn a_switch_carries_requests_to_owners_before_and_after_a_takeover_and_nothing_is_lost_without_it() {
    if !can_make_it() {
        return;
    }
    let mut running = running();
    let site = &running.site;
    let mut follows = site.follow();
    site.mount("client", "m");
    let before = site.carried();
    // While neighbours are looked for, the first requests may find no answer: then all go by the map for 1 s.
    let mut made = 0;
    wait_for("the switch carries", PATIENCE * 2, || {
        site.make(made..made + 20);
        made += 20;
        site.carried() >= before + 200
    });
    let explained = "bearing explain lookup /d7 --cluster 10.78.0.1:9101 --secret d1/secrets/enrolment.key";
    let explained = site.run("client", explained).ok();
    assert!(explained.contains("the network -> metadata-"), "{explained}");

    // An owner is killed; those who take its tablets over are led to.
    let table = site.table().unwrap();
    assert!(table.contains("metadata-1"), "{table}");
    running.metadata[0].kill().unwrap();
    running.metadata[0].wait().unwrap();
    let longest = site.make(made..made + 200);
    made += 200;
    assert!(longest < Duration::from_secs(15), "a call waited for {longest:?}");
    wait_for("the table after a takeover", PATIENCE, || {
        site.table().is_some_and(|table| !table.contains("metadata-1"))
    });
    let before = site.carried();
    wait_for("the switch carries again", PATIENCE, || {
        site.make(made..made + 20);
        made += 20;
        site.carried() >= before + 60
    });

    // Without entries, clients ask by their maps.
    follows.kill().unwrap();
    follows.wait().unwrap();
    site.at_switch("ovs-ofctl -O OpenFlow13 del-flows br0 cookie=0xbea2/-1").ok();
    assert!(site.table().is_none(), "the table is not as it should be");
    let longest = site.make(made..made + 100);
    assert!(longest < Duration::from_secs(5), "a call waited for {longest:?} without a switch");
    let there = fs::read_dir(site.place.join("m")).unwrap().count();
    assert_eq!(there, made as usize + 100, "all that was made is there");
}

/// `cargo xtask soak network` runs it: four programs make files, while owners are killed and come back.
#[test]
#[ignore = "takes minutes: cargo xtask soak network"]
fn nothing_is_lost_or_done_twice_while_owners_that_the_switch_leads_to_are_killed() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |number| number.parse().unwrap());
    let (files, kills): (u64, usize) =
        (number("BEARING_FILES", 50_000), number("BEARING_KILLS", 20) as usize);
    assert!(can_make_it(), "this machine has no switch");
    let mut running = running();
    running.others.push(running.site.follow());
    running.site.mount("client", "m");
    let stop = AtomicBool::new(false);
    let Running { site, metadata, .. } = &mut running;
    let site = &*site;
    let programs = 4;
    let longest: Duration = std::thread::scope(|scope| {
        let work: Vec<_> = (0..programs)
            .map(|program| {
                let place = site.place.join(format!("m/{program}"));
                fs::create_dir(&place).expect("it is not there yet");
                let stop = &stop;
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    for file in 0..files / programs {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let (path, begun) = (place.join(format!("{}/f{file}", file % 50)), Instant::now());
                        if file < 50 {
                            fs::create_dir(path.parent().unwrap()).expect("it is not there yet");
                        }
                        fs::File::create_new(&path)
                            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                        assert_eq!(fs::metadata(&path).expect("it is there").len(), 0);
                        longest = longest.max(begun.elapsed());
                    }
                    longest
                })
            })
            .collect();
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for kill in 0..kills {
                let victim = kill % metadata.len();
                metadata[victim].kill().unwrap();
                metadata[victim].wait().unwrap();
                wait_for("a takeover in the table", PATIENCE, || {
                    site.table().is_some_and(|table| !table.contains(&format!("metadata-{}", victim + 1)))
                });
                metadata[victim] = site.daemon("metadata", victim as u8 + 1);
                site.await_copies();
                wait_for("the table", PATIENCE, || site.table().is_some());
                let early = work.iter().all(std::thread::ScopedJoinHandle::is_finished);
                assert!(!early, "all was made before kill {kill}: more files are needed");
            }
        }));
        if let Err(panic) = killed {
            stop.store(true, Ordering::Relaxed);
            std::panic::resume_unwind(panic);
        }
        work.into_iter().map(|work| work.join().unwrap()).max().unwrap()
    });
    let count = |place: PathBuf| fs::read_dir(place).unwrap().count() as u64;
    let made: u64 = (0..programs)
        .flat_map(|program| (0..50).map(move |directory| format!("m/{program}/{directory}")))
        .map(|place| count(site.place.join(place)))
        .sum();
    assert_eq!(made, files / programs * programs, "all that was made is there, and nothing else");
    let outcomes = ["taken", "unknown", "astray"]
        .map(|outcome| site.counted(&format!("bearing_carried_total{{outcome=\"{outcome}\"}}")));
    println!(
        "{made} creates and as many stats, {kills} kills; the longest took {} ms; carried since servers were \
         started last: {outcomes:?} (taken, unknown, astray), referred: {}, by the switch in all: {}",
        longest.as_millis(),
        site.counted("bearing_referrals_total"),
        site.carried()
    );
}

/// Requests by the network beside the same ones of a client whose packets the switch does not carry, which
/// asks owners by its map, in turns.
#[test]
#[ignore = "a measurement: cargo xtask soak network"]
fn requests_by_the_network_beside_those_by_the_map() {
    assert!(can_make_it(), "this machine has no switch");
    let mut running = running();
    running.site.add("other", 10);
    running.others.push(running.site.follow());
    let site = &running.site;
    fs::create_dir(site.place.join("n")).unwrap();
    site.mount("client", "m");
    site.mount("other", "n");
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..40 {
        for (mount, took) in ["m", "n"].into_iter().zip(&mut took) {
            let place = site.place.join(mount).join(format!("{mount}{round}"));
            fs::create_dir(&place).unwrap();
            for file in 0..50 {
                let begun = Instant::now();
                fs::create_dir(place.join(file.to_string())).unwrap();
                took.push(begun.elapsed());
            }
        }
    }
    took.iter_mut().for_each(|took| took.sort_unstable());
    let at = |took: &[Duration], part: usize| took[took.len() * part / 100].as_micros();
    let [network, map] = &took;
    for part in [50, 90, 99] {
        let (network, map) = (at(network, part), at(map, part));
        println!(
            "p{part}: {network} us by the network, {map} us by the map, {:.2} of it",
            network as f64 / map as f64
        );
    }
    let carried = site.carried();
    assert!(carried >= 2000, "of 2000 requests at least the switch carried {carried}");
}
