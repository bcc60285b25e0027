//! A cluster that has its registers in etcd: it is used while members of etcd die, hang or are slow.

mod common;
#[path = "../../engines-etcd/tests/members/mod.rs"]
mod members;
#[path = "../../engines-etcd/tests/members/slow.rs"]
mod slow;

use common::{TestCluster, bearing, can_mount, kill, wait_for};
use members::Members;
use slow::SlowWay;
use std::fs;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

struct InEtcd {
    members: Members,
    ways: Vec<SlowWay>,
    cluster: TestCluster,
    _directory: tempfile::TempDir,
}

/// A cluster whose daemons stay dead, if etcd and mounts are there.
fn in_etcd(name: &str) -> Option<InEtcd> {
    let program = members::program().filter(|_| can_mount())?;
    let directory = tempfile::tempdir().unwrap();
    let members = Members::start(&program, directory.path(), 3);
    let ways: Vec<SlowWay> = members.client_ports().map(SlowWay::to).collect();
    let cluster = TestCluster::new(name);
    let endpoints: Vec<String> = ways.iter().map(SlowWay::url).collect();
    let mnt = cluster.mnt();
    let told =
        cluster.up(&["--no-restart", "--etcd", &endpoints.join(","), "--mount", mnt.to_str().unwrap()]).ok();
    assert!(told.contains("coordinator in etcd"), "{told}");
    Some(InEtcd { members, ways, cluster, _directory: directory })
}

impl InEtcd {
    fn kill(&self, kind: &str, number: u64) {
        let status = self.cluster.status();
        let daemons = status["daemons"].as_array().unwrap();
        let is_it = |daemon: &&serde_json::Value| daemon["kind"] == kind && daemon["id"] == number;
        kill(daemons.iter().find(is_it).and_then(|daemon| daemon["pid"].as_u64()));
    }

    /// Kills a metadata server, and waits until everything is served by others.
    fn is_taken_over(&self, number: u64) {
        self.kill("metadata", number);
        for made in 0..20 {
            fs::create_dir(self.cluster.mnt().join(format!("after-{number}-{made}"))).unwrap();
        }
    }
}

#[test]
fn a_minority_of_etcd_is_not_missed_and_the_majority_only_for_takeovers() {
    let Some(mut all) = in_etcd("in-etcd") else { return };
    let mnt = all.cluster.mnt();
    all.members.kill(0);
    all.is_taken_over(1);
    all.members.kill(1);
    fs::create_dir(mnt.join("without-majority")).unwrap();
    let error = all.cluster.run(&["enrol", "--list"]);
    assert!(error.err.contains("look at etcd's members"), "{error:?}");
    let log = |name: &str| fs::read_to_string(format!("{}/{name}/log", all.cluster.dir())).unwrap();
    wait_for("the log says so", PATIENCE, || log("metadata-2").contains("etcd does not answer"));
    all.members.launch(1);
    wait_for("and that it is back", PATIENCE, || log("metadata-2").contains("etcd answers again"));
    bearing(&[
        "enrol",
        "new",
        "later",
        "--dir",
        &all.cluster.dir(),
        "--out",
        &format!("{}/key", all.cluster.dir()),
    ]);
    assert!(bearing(&["check", &all.cluster.dir()]).code.is_some());
}

#[test]
fn an_etcd_that_takes_two_seconds_for_each_answer_gets_every_tablet_served() {
    let Some(all) = in_etcd("slow-etcd") else { return };
    all.ways.iter().for_each(|way| way.delay(Duration::from_secs(2)));
    // Nobody is asked for this.
    fs::write(all.cluster.mnt().join("file"), b"x").unwrap();
    all.is_taken_over(2);
    assert_eq!(fs::read(all.cluster.mnt().join("file")).unwrap(), b"x");
}

#[test]
fn a_server_of_another_cluster_is_refused_by_its_etcd_within_seconds() {
    let Some(all) = in_etcd("other-etcd") else { return };
    all.kill("data", 1);
    let directory = format!("{}/cluster.toml", all.cluster.dir());
    let text = fs::read_to_string(&directory).unwrap();
    let id = text.lines().find(|line| line.starts_with("id")).unwrap();
    fs::write(&directory, text.replace(id, "id = \"00000000000000ff\"")).unwrap();
    let config = format!("{}/data-1/config.toml", all.cluster.dir());
    let refused = bearing(&["daemon", "data", "--config", &config]).refused(1);
    assert!(refused.contains("/bearing/00000000000000ff in etcd holds no registers"), "{refused}");
    fs::write(&directory, text).unwrap();
}
