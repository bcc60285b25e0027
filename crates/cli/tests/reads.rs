//! Reads between eight hosts in network namespaces: two racks, links shaped with tbf, one host whose link is
//! full of others' bytes, one whose disk is slow. By the flow server, by the nearest replica, by any.
//!
//! `cargo xtask soak reads` runs it, and gives it a disk that can be made slow (`BEARING_SLOW_DISK`). Times
//! are measured, so nothing is asserted but what has to hold by far.

mod common;
#[path = "namespaces/mod.rs"]
mod namespaces;

use common::{Ran, shell, wait_for};
use namespaces::{end, hold, inner};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const BEARING: &str = env!("CARGO_BIN_EXE_bearing");
/// Hosts with a data server, in the order of their numbers; the first four hosts are one rack.
const DATA: [u8; 6] = [1, 2, 3, 5, 6, 7];
const READERS: [u8; 2] = [4, 8];
const CONGESTED: u8 = 2;
const SLOW: u8 = 6;
const FILES: usize = 12;
/// Streams of others that fill the link of the congested host.
const STRANGERS: usize = 12;
const FILE_BYTES: usize = 64_000_000;
/// In Mb/s: of data servers' hosts, of readers' hosts, and between racks.
const RATES: [u32; 3] = [200, 400, 400];

struct Site {
    place: PathBuf,
    switches: Child,
    hosts: Vec<Child>,
    daemons: Vec<(String, Child)>,
}

fn can_make_it() -> bool {
    let namespaces = [
        "--mount",
        "--net",
        "sh",
        "-c",
        "ip link add br0 type bridge && tc qdisc add dev br0 root tbf rate 1mbit burst 10kb latency 9ms",
    ];
    let made = common::can_mount()
        && shell("command -v python3 > /dev/null && command -v tc > /dev/null").code == Some(0)
        && Command::new("unshare").args(namespaces).output().is_ok_and(|output| output.status.success());
    if !made {
        eprintln!("SKIPPED: no shaped links can be made here (root, iproute2 and python3 are needed)");
    }
    made
}

fn rate_of(host: u8) -> u32 {
    if READERS.contains(&host) { RATES[1] } else { RATES[0] }
}

fn shaped(device: &str, rate: u32) -> String {
    format!("tc qdisc add dev {device} root tbf rate {rate}mbit burst 128kb latency 40ms")
}

impl Site {
    fn new() -> Site {
        let place = std::env::temp_dir().join(format!("bearing-test-{}-reads", std::process::id()));
        fs::create_dir(&place).expect("a directory of its own");
        let switches = hold(&["--net"]);
        let pid = inner(&switches).unwrap();
        let between = RATES[2];
        shell(&format!(
            "nsenter -t {pid} -n sh -ec 'ip link add rack-a type bridge; ip link add rack-b type bridge
                 ip link add up-a type veth peer name up-b; ip link set up-a master rack-a; ip link set up-b master rack-b
                 for device in rack-a rack-b up-a up-b; do ip link set $device up; done
                 {}; {}'",
            shaped("up-a", between),
            shaped("up-b", between)
        ))
        .ok();
        let mut site = Site { place, switches, hosts: Vec::new(), daemons: Vec::new() };
        for number in 1..=8 {
            site.add(number);
        }
        site
    }

    fn add(&mut self, number: u8) {
        let host = hold(&["--net"]);
        let (pid, switches) = (inner(&host).unwrap(), inner(&self.switches).unwrap());
        let (rack, rate) = (if number <= 4 { "rack-a" } else { "rack-b" }, rate_of(number));
        shell(&format!(
            "ip link add eth0 netns {pid} type veth peer name p{number} netns {switches}
             nsenter -t {switches} -n sh -ec 'ip link set p{number} master {rack}; ip link set p{number} up; {}'
             nsenter -t {pid} -n sh -ec 'ip link set lo up; ip address add 10.79.0.{number}/24 dev eth0
                 ip link set eth0 up; {}'",
            shaped(&format!("p{number}"), rate),
            shaped("eth0", rate)
        ))
        .ok();
        self.hosts.push(host);
    }

    fn enter(&self, host: u8) -> Command {
        let pid = inner(&self.hosts[host as usize - 1]).expect("the host is there");
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-n"]).current_dir(&self.place).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.place.join("state"));
        command
    }

    fn run(&self, host: u8, line: &str) -> Ran {
        let line = line.replace("bearing ", &format!("{BEARING} "));
        let output = self.enter(host).args(["bash", "-euc", &line]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    fn start(&mut self, host: u8, name: &str) {
        let kind = name.split('-').next().unwrap();
        let log = fs::File::options().create(true).append(true).open(self.place.join(format!("{name}.log")));
        let log = log.unwrap();
        let mut command = self.enter(host);
        command.args([BEARING, "daemon", kind, "--config", &format!("d{host}/{name}/config.toml")]);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.daemons.push((name.to_owned(), child));
    }

    fn stop(&mut self, name: &str) {
        while let Some(at) = self.daemons.iter().position(|(other, _)| other == name) {
            let (_, mut child) = self.daemons.swap_remove(at);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Six data servers on six hosts, one of them on another disk.
    fn make_cluster(&mut self) {
        self.run(1, "bearing init --dir d1 --address 10.79.0.1 --metadata-copies 1 --data-copies 2").ok();
        fs::write(self.place.join("d1/flow/net.toml"), topology()).unwrap();
        for name in ["coordinator", "metadata-1", "data-1"] {
            self.start(1, name);
        }
        if let Ok(disk) = std::env::var("BEARING_SLOW_DISK") {
            let place = PathBuf::from(disk).join("cluster");
            fs::create_dir(&place).expect("an empty disk");
            std::os::unix::fs::symlink(place, self.place.join(format!("d{SLOW}"))).unwrap();
        }
        for (number, host) in (1..).zip(DATA).skip(1) {
            let token = self.run(1, "bearing token --dir d1").ok();
            let token = token
                .lines()
                .find_map(|line| line.split_whitespace().find(|word| word.starts_with("bearing-join-1:")));
            let token = token.expect("a token").trim_matches('\'').to_owned();
            self.run(
                host,
                &format!(
                    "bearing join '{token}' --dir d{host} --address 10.79.0.{host} --metadata 0 --data 1"
                ),
            )
            .ok();
            self.start(host, &format!("data-{number}"));
        }
        wait_for("six data servers", PATIENCE, || {
            let list = self.run(1, "bearing data list --dir d1 --json");
            list.out.matches("10.79.0.").count() == DATA.len()
        });
    }

    fn make_files(&self) {
        let local = self.place.join("file");
        let words = (0..FILE_BYTES as u64 / 8).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        fs::write(&local, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        for file in 0..FILES {
            self.run(READERS[0], &format!("bearing fs put file /f{file} --cluster d1")).ok();
        }
    }

    /// Who decides from now on.
    fn decide_by(&mut self, mode: Mode) {
        self.stop("flow");
        let Some(selection) = mode.selection() else { return };
        let path = self.place.join("d1/flow/config.toml");
        let text = fs::read_to_string(&path).unwrap();
        let kept =
            text.lines().filter(|line| !line.starts_with("selection") && !line.starts_with("topology"));
        let mut text: String = kept.flat_map(|line| [line, "\n"]).collect();
        text += &format!("selection = \"{selection}\"\ntopology = \"net.toml\"\n");
        fs::write(&path, text).unwrap();
        self.start(1, "flow");
        wait_for("the flow server answers", PATIENCE, || {
            self.run(1, "bearing flow top --cluster d1").code == Some(0)
        });
    }

    /// How long a reader takes for a file.
    fn read(&self, reader: u8, file: usize) -> Duration {
        let begun = Instant::now();
        self.run(reader, &format!("bearing fs cat /f{file} --cluster d1 > /dev/null")).ok();
        begun.elapsed()
    }

    /// Others' bytes fill the way out of a host, to another one that nobody reads from.
    fn congest(&self) -> Vec<Child> {
        let python =
            |host: u8, program: &str| self.enter(host).args(["python3", "-c", program]).spawn().unwrap();
        let sink = python(
            1,
            "import socket,threading\ns=socket.create_server(('10.79.0.1',7777))\ndef take(c):\n  while c.recv(1<<16): pass\n\
             while True: threading.Thread(target=take,args=(s.accept()[0],),daemon=True).start()",
        );
        wait_for("the sink", PATIENCE, || self.run(1, "ss -ltn").out.contains(":7777"));
        let sources = (0..STRANGERS).map(|_| {
            python(CONGESTED, "import socket\nc=socket.create_connection(('10.79.0.1',7777))\nwhile True: c.sendall(bytes(1<<16))")
        });
        let mut all: Vec<Child> = sources.collect();
        all.push(sink);
        all
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.daemons.iter_mut().for_each(|(_, child)| _ = (child.kill(), child.wait()));
        self.hosts.iter_mut().for_each(end);
        end(&mut self.switches);
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.place);
        }
    }
}

/// As the links are shaped.
fn topology() -> String {
    let mut text = "version = 2\n[[switch]]\nname = \"rack-a\"\n[[switch]]\nname = \"rack-b\"\n".to_owned();
    let link = |one: &str, other: &str, rate| {
        format!("[[link]]\nbetween = [\"{one}\", \"{other}\"]\ncapacity = \"{rate} Mb/s\"\n")
    };
    let mut links = link("rack-a", "rack-b", RATES[2]);
    for host in 1..=8 {
        let name = format!("host-{host}");
        text += &format!("[[host]]\nname = \"{name}\"\n");
        links += &link(&name, if host <= 4 { "rack-a" } else { "rack-b" }, rate_of(host));
        links += &format!("[[addresses]]\nhost = \"{name}\"\nip = [\"10.79.0.{host}\"]\n");
    }
    text + &links
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Nearest,
    Random,
    Flow,
}

impl Mode {
    fn selection(self) -> Option<&'static str> {
        match self {
            Mode::Nearest => Some("nearest-ecmp"),
            Mode::Random => None,
            Mode::Flow => Some("mayflower-p"),
        }
    }
}

/// The next of a fixed sequence.
fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

fn quantile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * share).round() as usize]
}

#[test]
#[ignore = "a measurement: cargo xtask soak reads"]
fn reads_go_round_a_full_link_and_a_slow_disk() {
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |number| number.parse::<usize>().unwrap());
    let (rounds, pairs) = (number("BEARING_READS", 12), number("BEARING_PAIRS", 30));
    assert!(can_make_it(), "this machine has no shaped links");
    let mut site = Site::new();
    site.make_cluster();
    site.make_files();
    println!("phase,mode,round,reader,file,seconds");

    // Nothing in the way: one reader, in pairs, in turns.
    let (mut seed, mut ratios) = (7, Vec::new());
    let mut plain: Vec<(usize, f64, f64)> = (0..pairs).map(|_| (draw(&mut seed) % FILES, 0.0, 0.0)).collect();
    for part in 0..pairs.div_ceil(5) {
        let modes = if part % 2 == 0 { [Mode::Nearest, Mode::Flow] } else { [Mode::Flow, Mode::Nearest] };
        for mode in modes {
            site.decide_by(mode);
            for round in (part * 5..part * 5 + 5).filter(|round| *round < pairs) {
                let took = site.read(READERS[0], plain[round].0).as_secs_f64();
                println!("plain,{mode:?},{round},{},{},{took:.4}", READERS[0], plain[round].0);
                *(if mode == Mode::Flow { &mut plain[round].2 } else { &mut plain[round].1 }) = took;
            }
        }
    }
    ratios.extend(plain.iter().map(|(_, nearest, flow)| flow / nearest));
    let median = |column: fn(&(usize, f64, f64)) -> f64| {
        quantile(&mut plain.iter().map(column).collect::<Vec<_>>(), 0.5)
    };
    let (nearest, flow) = (median(|row| row.1), median(|row| row.2));
    let middle = quantile(&mut ratios, 0.5);
    // 95 % of the median of n values lies between these (order statistics, normal approximation).
    let width = 0.98 / (ratios.len() as f64).sqrt();
    let between = [quantile(&mut ratios, 0.5 - width), quantile(&mut ratios, 0.5 + width)];
    println!(
        "# nothing in the way: median {nearest:.2} s nearest, {flow:.2} s by the flow server; of the pairs {middle:.3} ({:.3} to {:.3})",
        between[0], between[1]
    );

    // One link full, one disk slow: two readers at the same time.
    let strangers = site.congest();
    if let Ok(disk) = std::env::var("BEARING_SLOW_DISK") {
        fs::write(PathBuf::from(disk).join(".power"), "slow 20\n").unwrap();
    }
    let mut times: std::collections::BTreeMap<Mode, Vec<f64>> = std::collections::BTreeMap::new();
    let orders = [[Mode::Nearest, Mode::Random, Mode::Flow], [Mode::Flow, Mode::Random, Mode::Nearest]];
    for (turn, modes) in orders.into_iter().enumerate() {
        for mode in modes {
            site.decide_by(mode);
            let mut seed = 11 + turn as u64;
            for round in 0..rounds {
                let files: Vec<usize> = READERS.iter().map(|_| draw(&mut seed) % FILES).collect();
                // So that disks are read, not what the kernel kept of them.
                fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
                let site = &site;
                let took: Vec<f64> = std::thread::scope(|scope| {
                    let reads: Vec<_> = READERS
                        .into_iter()
                        .zip(&files)
                        .map(|(reader, file)| scope.spawn(move || site.read(reader, *file)))
                        .collect();
                    reads.into_iter().map(|read| read.join().unwrap().as_secs_f64()).collect()
                });
                for ((reader, file), took) in READERS.into_iter().zip(&files).zip(&took) {
                    println!("busy,{mode:?},{round},{reader},{file},{took:.4}");
                }
                times.entry(mode).or_default().extend(took);
            }
        }
    }
    for mut child in strangers {
        let _ = (child.kill(), child.wait());
    }
    assert!(!times.is_empty(), "nothing was read");
    let mut means = std::collections::BTreeMap::new();
    for (mode, times) in &mut times {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        println!(
            "# one link full, one disk slow, {mode:?}: mean {mean:.2} s, 95 % within {:.2} s",
            quantile(times, 0.95)
        );
        means.insert(*mode, mean);
    }
    println!(
        "# nearest takes {:.2} times as long as by the flow server",
        means[&Mode::Nearest] / means[&Mode::Flow]
    );
    assert!(means[&Mode::Flow] < means[&Mode::Nearest], "the flow server makes it worse");
}
