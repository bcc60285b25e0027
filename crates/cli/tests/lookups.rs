//! A cluster whose servers pass requests on to each other: a real mount, killed servers, and what `explain`
//! says of the way.

mod common;

use common::{TestCluster, bearing, can_mount, shell, wait_for};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// How long filters may take to be everywhere again.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn any_server_passes_requests_on_to_owners_and_each_is_done_once_though_servers_are_killed() {
    if can_mount() {
        requests_are_passed_on("relays", "all-know-all");
    }
}

#[test]
fn servers_with_filters_find_owners_and_each_request_is_done_once_though_servers_are_killed() {
    if can_mount() {
        requests_are_passed_on("filters", "bloom-groups");
    }
}

fn requests_are_passed_on(name: &str, lookup: &str) {
    let cluster = TestCluster::new(name);
    cluster.up(&["--lookup", lookup]).ok();
    let dir = cluster.dir();
    bearing(&["mount", &dir, cluster.mnt().to_str().unwrap(), "-o", "nodelegate"]).ok();
    let mnt = cluster.mnt();
    shell(&format!(
        "cp -r /usr/share/doc/libc6 {m}/doc && diff -r /usr/share/doc/libc6 {m}/doc",
        m = mnt.display()
    ))
    .ok();

    // Directories are made, and names exchanged and removed, once each: done twice it would fail.
    let work = |from: u32, to: u32| {
        for number in from..to {
            let (one, other) = (mnt.join(format!("d{number}")), mnt.join(format!("e{number}")));
            fs::create_dir(&one).expect("it is not there yet");
            fs::write(one.join("f"), number.to_string()).unwrap();
            fs::hard_link(one.join("f"), one.join("g")).unwrap();
            fs::rename(&one, &other).unwrap();
            fs::remove_file(other.join("f")).unwrap();
            assert_eq!(fs::metadata(other.join("g")).unwrap().nlink(), 1);
            assert_eq!(fs::read_to_string(other.join("g")).unwrap(), number.to_string());
        }
    };
    work(0, 20);
    for (round, server) in (0u32..).zip(["metadata-1", "metadata-2", "metadata-1"]) {
        let killed = format!("pkill -9 -f 'daemon metadata --config {dir}/{server}/'");
        shell(&killed).ok();
        work(20 + 20 * round, 40 + 20 * round);
    }
    let there = fs::read_dir(&mnt).unwrap().count();
    assert_eq!(there, 81, "80 directories and the tree");

    // With two owners about half of the requests come to the wrong one first.
    let explained = |path: &str| cluster.run(&["explain", "lookup", path, "--json"]).ok();
    let ways = || {
        let lines = (0..20).flat_map(|number| {
            let lines: Vec<serde_json::Value> =
                serde_json::from_str(&explained(&format!("/e{number}/g"))).unwrap();
            lines
        });
        lines.map(|line| (line["hops"].as_u64().unwrap(), line["sent"] == 1)).collect::<Vec<_>>()
    };
    let seen = ways();
    let relayed = seen.iter().filter(|(hops, _)| *hops == 2).count();
    assert!(relayed > 0 && relayed < seen.len(), "{relayed} of {} requests were passed on", seen.len());
    // What the lookup brings to nobody is sent again, to its owner: so it is until a server that was killed
    // has the filters of the others again.
    wait_for("most requests are answered at once", PATIENCE * 6, || {
        let seen = ways();
        2 * seen.iter().filter(|(_, sent_once)| *sent_once).count() > seen.len()
    });
    let missing = cluster.run(&["explain", "lookup", "/nowhere"]).refused(1);
    assert!(missing.contains("/nowhere"), "{missing}");
    bearing(&["umount", mnt.to_str().unwrap()]).ok();
}

/// How precise it is depends on the machine and is said in the file; that it is of live servers is seen here.
#[test]
fn what_work_costs_live_servers_is_measured_and_used_by_queues() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let file = path("calibration.json");
    let queues = |more: &[&str]| {
        let base = ["lab", "queues", "--schemes", "hash,one-hop", "--servers", "5", "--clients", "20"];
        bearing(&[&base, more].concat())
    };
    // Each load is measured for a quarter of a second: another test beside it may slow one of them alone.
    let is_plausible = |attempt| {
        let shown = bearing(&["lab", "calibrate", "--rounds", "1", "--out", &file]).ok();
        assert!(shown.contains("to pass a request on") && shown.contains("judged by"), "{shown}");
        let found: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let [storage, turn] = ["storage", "turn"].map(|part| found["coefficients"][part].as_f64().unwrap());
        let said: serde_json::Value =
            serde_json::from_str(&queues(&["--calibration", &file, "--json"]).ok()).unwrap();
        assert_eq!(said["mode"], "calibrated");
        assert!(said["precision"].as_str().unwrap().contains("throughput is off by"), "{said}");
        let rate = |run: usize| said["runs"][run]["per_second"].as_f64().unwrap();
        let ideal = 5e6 / storage;
        eprintln!("attempt {attempt}: {storage} us of storage, {} and {} operations/s", rate(1), rate(3));
        // Hash on equal arcs, and one-hop on the same: four of five requests are passed on.
        // On a machine that others use too, nearly all may pass for the time in which a server is waited for.
        let is_time = (0.5..10_000.0).contains(&(storage + turn));
        is_time && rate(1) < ideal && rate(3) < rate(1) && rate(3) > 0.1 * rate(1)
    };
    assert!((1..=5).any(is_plausible), "five calibrations in a row make no sense");

    let network = path("network.toml");
    let with_hosts = |each: u32| {
        let shape = format!("[shape]\nkind = \"two-tier\"\nedges = 2\nhosts = {each}\n");
        fs::write(&network, format!("version = 3\nlatency = \"1 ms\"\n{shape}")).unwrap();
        queues(&["--topology", &network])
    };
    let small = with_hosts(2).refused(1);
    assert!(small.contains("the topology has 4 hosts, servers and a client need 6"), "{small}");
    assert!(with_hosts(3).ok().contains("one-hop"));
    let wrong = queues(&["--ratio=0"]).refused(2);
    assert!(wrong.contains("--ratio may not be 0"), "{wrong}");
}
