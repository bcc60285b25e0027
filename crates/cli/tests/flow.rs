//! Large reads of the real program: planned by the flow server, fetched from several replicas, and without
//! either when it or a replica is gone.

mod common;

use bearing_proto::Message;
use bearing_proto::envelope::{self, Refusal, Stamp, VERSION};
use common::{SetAtEnd, TestCluster, can_mount, kill, wait_for};
use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// A read of some 24 MiB from the disk takes no longer on a busy machine.
const NO_WAIT: Duration = Duration::from_secs(15);
const MIB: usize = 1 << 20;

/// Bytes that are not the same in two places, and soon made.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// Reads a file front to back, as programs do; `at` is called with what was read so far.
fn read_through(path: &Path, expected: &[u8], mut at: impl FnMut(usize)) {
    let mut file = File::open(path).unwrap();
    let (mut part, mut read) = (vec![0; 128 << 10], 0);
    loop {
        let count =
            file.read(&mut part).unwrap_or_else(|error| panic!("{}: {error} at {read}", path.display()));
        if count == 0 {
            break;
        }
        assert!(part[..count] == expected[read..read + count], "other bytes at {read}");
        read += count;
        at(read);
    }
    assert_eq!(read, expected.len());
}

/// What was written is not in the kernel's memory any more.
fn forget_cached() {
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

fn pid_of(cluster: &TestCluster, kind: &str, number: u64) -> u64 {
    let status = cluster.status();
    let daemons = status["daemons"].as_array().unwrap();
    let daemon = daemons.iter().find(|daemon| daemon["kind"] == kind && daemon["id"] == number);
    daemon
        .and_then(|daemon| daemon["pid"].as_u64())
        .unwrap_or_else(|| panic!("{kind}-{number} runs: {status}"))
}

fn signal(pid: u64, signal: libc::c_int) {
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
}

fn traffic(cluster: &TestCluster) -> serde_json::Value {
    serde_json::from_str(&cluster.run(&["flow", "top", "--json"]).ok()).unwrap()
}

#[test]
fn large_reads_are_planned_and_go_on_when_nobody_plans_them() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("flow-planned");
    let (path, bytes) = (cluster.mnt().join("large"), content(24 * MIB));
    fs::write(&path, &bytes).unwrap();
    fs::write(cluster.mnt().join("small"), b"few bytes").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let answered = || traffic(&cluster)["answered"].as_u64().unwrap();
    let before = answered();
    forget_cached();
    assert_eq!(fs::read(cluster.mnt().join("small")).unwrap(), b"few bytes");
    assert_eq!(answered(), before + 1, "small reads ask nobody");
    // It is not waited for, so on a machine that is busy some reads go on without.
    let is_planned = || {
        let before = answered();
        forget_cached();
        read_through(&path, &bytes, |_| {});
        answered() > before + 1
    };
    wait_for("large reads are planned", PATIENCE, is_planned);
    wait_for("reads that are over are told", PATIENCE, || traffic(&cluster)["flows_under_way"] == 0);

    let told = cluster.run(&["explain", "read", "/large"]).ok();
    assert!(told.contains("lie on data-") && told.contains("mayflower-p reads it in"), "{told}");
    assert!(told.contains("data-1") && told.contains("data-2") && told.contains("by 127.0.0.1"), "{told}");
    let told: serde_json::Value =
        serde_json::from_str(&cluster.run(&["explain", "read", "/large", "--json"]).ok()).unwrap();
    assert_eq!(told["candidates"].as_array().unwrap().len(), 2, "{told}");
    assert!(cluster.run(&["explain", "read", "/large", "--offset", "1G"]).ok().contains("end of the file"));
    let none = cluster.run(&["explain", "read", "/nowhere"]).refused(1);
    assert!(none.contains("/nowhere"), "{none}");
    let ranked = cluster.run(&["flow", "rank", "/large", "127.0.0.1", "10.9.9.9"]).ok();
    let hosts: Vec<&str> = ranked.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(hosts, ["127.0.0.1", "10.9.9.9"], "{ranked}");

    // It does not answer, as if the network had lost it.
    let flow = pid_of(&cluster, "flow", 1);
    signal(flow, libc::SIGSTOP);
    forget_cached();
    let begun = Instant::now();
    read_through(&path, &bytes, |_| {});
    assert!(begun.elapsed() < NO_WAIT, "it is not waited for: {:?}", begun.elapsed());
    let told = cluster.run(&["explain", "read", "/large"]).ok();
    assert!(told.contains("the flow server does not answer"), "{told}");
    let top = cluster.run(&["flow", "top"]).refused(1);
    assert!(top.contains("reads go to the nearest replica"), "{top}");
    signal(flow, libc::SIGCONT);

    // It is killed in the middle of a read, and the supervisor starts it again.
    forget_cached();
    let mut killed = false;
    read_through(&path, &bytes, |read| {
        if read > 8 * MIB && !std::mem::replace(&mut killed, true) {
            kill([flow]);
        }
    });
    wait_for("the flow server is back", PATIENCE, || cluster.serves());
    wait_for("it is asked again", PATIENCE, is_planned);
}

#[test]
fn a_replica_that_dies_in_the_middle_of_a_read_costs_no_error() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("flow-dies");
    let (path, bytes) = (cluster.mnt().join("large"), content(48 * MIB));
    fs::write(&path, &bytes).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    for (number, how) in [(1, libc::SIGKILL), (2, libc::SIGKILL), (1, libc::SIGSTOP), (2, libc::SIGSTOP)] {
        wait_for("both data servers serve", PATIENCE, || cluster.serves());
        let victim = pid_of(&cluster, "data", number);
        forget_cached();
        let mut sent = false;
        read_through(&path, &bytes, |read| {
            if read > 10 * MIB && !std::mem::replace(&mut sent, true) {
                match how {
                    libc::SIGKILL => kill([victim]),
                    _ => signal(victim, how),
                }
            }
        });
        if how == libc::SIGSTOP {
            signal(victim, libc::SIGCONT);
        }
    }
}

#[test]
fn a_topology_file_is_refused_with_its_line_and_used_when_it_is_right() {
    let cluster = TestCluster::new("flow-topology");
    cluster.up(&[]).ok();
    cluster.down().ok();
    let (config, file) = (cluster.file("flow/config.toml"), cluster.file("flow/net.toml"));
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[flow]\n", "[flow]\ntopology = \"net.toml\"\n")).unwrap();
    let network = "version = 2\n[shape]\nkind = \"two-tier\"\nedges = 2\nhosts = 2\n[[addresses]]\nhost = \"host-1\"\nip = [\"127.0.0.1\"]\n";
    fs::write(&file, network.replace("host-1", "host-9")).unwrap();
    // The cluster serves without it.
    cluster.up(&[]).ok();
    let log = || fs::read_to_string(cluster.file("flow/log")).unwrap();
    wait_for("the flow server says what is wrong", PATIENCE, || {
        log().contains("net.toml:6: there is no host host-9")
    });
    cluster.down().ok();
    fs::write(&file, network).unwrap();
    cluster.up(&[]).ok();
    wait_for("it serves", PATIENCE, || cluster.serves());
    let traffic = traffic(&cluster);
    assert_eq!(
        (&traffic["has_topology"], traffic["data_servers"].as_array().unwrap().len()),
        (&true.into(), 2)
    );
    let local = cluster.root().join("file");
    fs::write(&local, content(MIB)).unwrap();
    cluster.run(&["fs", "put", local.to_str().unwrap(), "/file"]).ok();
    let told = cluster.run(&["explain", "read", "/file"]).ok();
    assert!(told.contains("host-1") && told.contains("mayflower-p"), "{told}");
    let elsewhere = cluster.run(&["explain", "read", "/file", "--reader", "10.1.1.1"]).ok();
    assert!(elsewhere.contains("add its address to the topology file"), "{elsewhere}");
}

/// Answers everything, and says hello itself, as a program of the next version of the protocol does.
fn next_version(socket: &UdpSocket, data: SocketAddr, is_over: &AtomicBool) -> (u64, Option<Refusal>) {
    let mut said = envelope::seal(&Stamp::NOBODY, None, Some(&Message::Refused(Refusal::Expired)), &[]);
    said[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let (mut heard, mut refusal) = (0, None);
    socket.send_to(&said, data).unwrap();
    let mut packet = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((bytes, from)) = socket.recv_from(&mut packet) else { continue };
        heard += u64::from(from != data);
        match envelope::open(&packet[..bytes], None).map(|packet| packet.messages) {
            Ok(messages) => {
                refusal = refusal.or(messages.into_iter().find_map(|message| match message {
                    Message::Refused(refusal) => Some(refusal),
                    _ => None,
                }));
            }
            Err(_) => drop(socket.send_to(&said, from)),
        }
    }
    (heard, refusal)
}

#[test]
fn a_flow_server_of_another_version_is_told_so_and_passed_over() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("flow-version");
    let (path, bytes) = (cluster.mnt().join("large"), content(24 * MIB));
    fs::write(&path, &bytes).unwrap();
    let [flow, data] = ["flow", "data"].map(|kind| cluster.address(kind).parse::<SocketAddr>().unwrap());
    cluster.down().ok();
    let socket = UdpSocket::bind(flow).unwrap();
    let (mut reads, is_over) = (Vec::new(), AtomicBool::new(false));
    let (heard, refusal) = std::thread::scope(|scope| {
        let ends = SetAtEnd(&is_over);
        // The real one finds its port in use, and nobody waits for it.
        cluster.up_again().ok();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let other = scope.spawn(|| next_version(&socket, data, &is_over));
        for _ in 0..3 {
            forget_cached();
            let begun = Instant::now();
            read_through(&path, &bytes, |_| {});
            reads.push(begun.elapsed());
        }
        drop(ends);
        other.join().unwrap()
    });
    assert!(heard > 3, "it was asked {heard} times");
    assert_eq!(refusal, Some(Refusal::Version { speaks: VERSION }));
    assert!(reads.iter().all(|took| *took < NO_WAIT), "it is not waited for: {reads:?}");
}
