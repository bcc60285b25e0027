//! Copies of tablets, as people see them: in the status, on the ring, and compared by `check`.

mod common;

use bearing_engines_local::FjallStore;
use bearing_meta::Key;
use bearing_seams::{Change, KeyRange, Store};
use bearing_server::formats::STORE_CONTENTS;
use bearing_types::NodeId;
use common::{Ran, TestCluster, bearing, kill, wait_for};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn up(cluster: &TestCluster, more: &[&str]) -> Ran {
    let dir = cluster.dir();
    let mut arguments = vec!["up", "--detach", "--no-restart", "--dir", &dir];
    arguments.extend(more);
    bearing(&arguments)
}

/// A cluster without a mount and with some files.
fn with_files(name: &str, metadata: &str) -> TestCluster {
    let cluster = TestCluster::new(name);
    up(&cluster, &["--metadata", metadata, "--data", "1"]).ok();
    let local = cluster.root().join("files");
    fs::create_dir(&local).unwrap();
    (0..40).for_each(|number| fs::write(local.join(format!("f{number}")), "content").unwrap());
    cluster.run(&["fs", "put", "-r", local.to_str().unwrap(), "/files"]).ok();
    cluster
}

fn tablets(status: &Value) -> Vec<Value> {
    status["tablets"].as_array().expect("tablets are known").clone()
}

fn ring(cluster: &TestCluster) -> Value {
    serde_json::from_str(&cluster.run(&["ring", "show", "--json"]).ok()).unwrap()
}

/// Whether a tablet has three members, of which both copies hold leases and lack nothing.
fn is_well(tablet: &Value) -> bool {
    let members = tablet["members"].as_array().unwrap();
    let copies = tablet["copies"].as_array().unwrap();
    tablet["phase"] == "serving"
        && (members.len(), copies.len()) == (3, 2)
        && copies.iter().all(|copy| copy["relies"] == true && copy["lag_entries"] == 0)
        && tablet["learner"].is_null()
}

/// A cluster of four in which nobody has taken anything over yet, as may happen on a busy machine.
fn undisturbed() -> (TestCluster, Value) {
    let start = |attempt| {
        let cluster = with_files(&format!("copies-shown-{attempt}"), "4");
        wait_for("all tablets are well", PATIENCE, || {
            let is_said = cluster.run(&["status"]).ok().contains("16 tablets with 3 copies each: all well");
            is_said && tablets(&cluster.status()).iter().all(is_well)
        });
        let status = cluster.status();
        let is_first = tablets(&status).iter().all(|tablet| tablet["taken_over"].is_null());
        is_first.then_some((cluster, status))
    };
    (0..5).find_map(start).expect("one of five clusters starts without a takeover")
}

#[test]
fn status_and_the_ring_show_members_leases_takeovers_and_who_is_silent() {
    let (cluster, status) = undisturbed();
    assert!(status["restoring"].is_null() && status["silent"].as_array().unwrap().is_empty());
    let each = cluster.run(&["status", "--tablets"]).ok();
    assert_eq!(each.lines().filter(|line| line.contains("000000000000000/4")).count(), 16, "{each}");
    let shown = ring(&cluster);
    assert_eq!(shown["servers"][3]["successors"], serde_json::json!([1, 2]), "the ring closes");
    let drawn = cluster.run(&["ring", "show"]).ok();
    assert!(drawn.contains("1111111111111111222222222222222233333333333333334444444444444444"), "{drawn}");
    assert!(drawn.contains("copies on   metadata-2: 4, metadata-3: 4"), "{drawn}");

    let pid = |number: u64| {
        let daemons = status["daemons"].as_array().unwrap();
        let found = daemons.iter().find(|daemon| daemon["kind"] == "metadata" && daemon["id"] == number);
        found.unwrap()["pid"].as_u64().unwrap()
    };
    kill([pid(2)]);
    wait_for("its tablets are served and have three copies again", PATIENCE, || {
        let status = cluster.status();
        let well = |tablet: &Value| {
            tablet["phase"] == "serving" && tablet["members"] == serde_json::json!([1, 3, 4])
        };
        status["restoring"].is_null() && tablets(&status).iter().all(well)
    });
    let status = cluster.status();
    let taken: Vec<Value> = tablets(&status)
        .into_iter()
        .map(|tablet| tablet["taken_over"].clone())
        .filter(|taken| taken["from"] == 2)
        .collect();
    assert_eq!(taken.len(), 4, "{status}");
    assert!(taken.iter().all(|taken| taken["after_us"].as_u64().unwrap() > 0));
    assert_eq!(status["silent"][0]["server"], 2);
    let text = cluster.run(&["status"]).ok();
    for part in ["over from metadata-2, served from", "ms after the claim", "metadata-2 is silent"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let shown = ring(&cluster);
    assert!(shown["servers"][1]["silent"].is_string() && shown["servers"][0]["silent"].is_null());
    assert!(shown["servers"][1]["owns"].as_array().unwrap().is_empty());
    let drawn = cluster.run(&["ring", "show"]).ok();
    assert!(drawn.contains("SILENT") && drawn.contains("metadata-2 (silent)"), "{drawn}");
    // Without the coordinator, servers still say who owns what.
    let coordinator = status["daemons"][0]["pid"].as_u64().unwrap();
    kill([coordinator]);
    let shown = cluster.run(&["ring", "show"]);
    assert!(shown.err.contains("without the registers"), "{shown:?}");
    assert!(shown.ok().contains("4 metadata servers, 16 tablets with 3 copies each\n"));
}

/// Restarts a cluster with one more record, to which no name leads, in the store of its second server.
fn plant_a_record(cluster: &TestCluster) {
    cluster.down().ok();
    let mut store = FjallStore::open(&cluster.file("metadata-2/store"), &STORE_CONTENTS).unwrap();
    let all = KeyRange { start: Vec::new(), end: None };
    let tablets = store.tablets().unwrap();
    let node = |store: &mut FjallStore, serial| {
        let pairs = store.range(serial, &all, 10_000).unwrap();
        pairs.into_iter().find(|(key, _)| matches!(Key::decode(key), Some(Key::Node(_))))
    };
    let found = tablets.into_iter().find_map(|serial| Some((serial, node(&mut store, serial)?)));
    let (serial, (_, value)) = found.expect("files have nodes");
    let key = Key::Node(NodeId(u64::MAX)).encode();
    let applied = store.applied(serial).unwrap().unwrap();
    store.apply(serial, applied, &[Change { key, value: Some(value) }]).unwrap();
    store.close().unwrap();
    up(cluster, &[]).ok();
}

#[test]
fn check_finds_a_copy_that_has_another_record_than_the_others() {
    let cluster = with_files("copies-compared", "3");
    wait_for("all copies are the same", PATIENCE, || {
        let said = cluster.run(&["check"]).ok();
        said.contains("48 copies of 16 tablets") && said.contains("are the same")
    });
    // A server that starts seconds after the others, on a busy machine, is taught anew and lacks the record.
    let mut tried = (0..5).map(|_| {
        plant_a_record(&cluster);
        cluster.run(&["check"])
    });
    let ran = tried.find(|ran| ran.code == Some(1)).expect("the copy that differs is found");
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.contains("its copies differ")).collect();
    assert_eq!(lines.len(), 1, "{}", ran.out);
    assert!(
        lines[0].contains("metadata-1, metadata-3 have") && lines[0].contains("metadata-2 has"),
        "{lines:?}"
    );
    assert!(ran.out.contains("the same but for 1 tablet"), "{}", ran.out);
    let json: Value = serde_json::from_str(&cluster.run(&["check", "--json"]).out).unwrap();
    assert_eq!((&json["tablets_differing"], &json["tablets_compared"]), (&1.into(), &16.into()));
}

#[test]
fn check_by_address_says_that_it_compares_no_copies() {
    let cluster = with_files("copies-addressed", "2");
    let (address, key) = (cluster.address("metadata"), cluster.file("secrets/enrolment.key"));
    let said = bearing(&["check", "--cluster", &address, "--secret", key.to_str().unwrap()]).ok();
    assert!(
        said.contains("copies of metadata were not compared: that needs the cluster's directory"),
        "{said}"
    );
}
