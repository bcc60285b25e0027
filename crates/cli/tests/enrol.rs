//! Named enrolments with the real program.

mod common;

use common::{TestCluster, bearing, wait_for};
use std::time::{Duration, Instant};

#[test]
fn a_named_enrolment_mounts_until_it_is_revoked() {
    let cluster = TestCluster::started("enrol");
    let dir = cluster.dir();
    let file = cluster.file("laptops.key");
    let file = file.to_str().unwrap();
    cluster.run(&["enrol", "laptops", "--root-squash", "--out", file]).ok();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("name laptops") && text.contains("squash root 65534 65534"), "{text}");
    assert!(cluster.run(&["enrol", "--list"]).ok().contains("laptops"));
    let list = || bearing(&["fs", "--cluster", &dir, "--secret", file, "ls", "/"]);
    wait_for("the servers know the enrolments", Duration::from_secs(30), || list().code == Some(0));
    // Its rule is part of the secret: a client that drops it has another one.
    let freed = cluster.file("freed.key");
    bearing_env::write_private(&freed, &text.replace("root 65534 65534", "none")).unwrap();
    let refused = bearing(&["fs", "--cluster", &dir, "--secret", freed.to_str().unwrap(), "ls", "/"]);
    assert!(refused.refused(1).contains("refuses this client"));
    cluster.run(&["enrol", "--revoke", "laptops"]).ok();
    let revoked = Instant::now();
    wait_for("it is refused", Duration::from_secs(30), || list().code == Some(1));
    eprintln!("refused after {:?}", revoked.elapsed());
    cluster.run(&["fs", "ls", "/"]).ok();
    let again = cluster.run(&["enrol", "laptops"]).refused(1);
    assert!(again.contains("revoked") && again.contains("another name"), "{again}");
}
