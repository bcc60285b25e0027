//! Named enrolments with the real program.

mod common;

use common::{TestCluster, bearing, can_mount, wait_for};
use std::os::unix::process::CommandExt;
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

/// Runs a script as a user of this machine.
fn succeeds_as(uid: u32, script: &str) -> bool {
    let mut shell = std::process::Command::new("bash");
    shell.args(["-euc", script]).uid(uid).gid(uid).output().expect("bash is there").status.success()
}

#[test]
fn root_of_a_squashed_mount_is_nobody_there_and_takes_nothing_of_others_along() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if !can_mount() || unsafe { libc::geteuid() } != 0 {
        return;
    }
    let cluster = TestCluster::mounted("squash");
    let (key, point) = (cluster.file("laptops.key"), cluster.root().join("squashed"));
    let (key, point) = (key.to_str().unwrap(), point.to_str().unwrap());
    cluster.run(&["enrol", "laptops", "--root-squash", "--out", key]).ok();
    std::fs::create_dir(point).unwrap();
    let mount = || bearing(&["mount", &cluster.dir(), point, "--secret", key, "-o", "allow_other"]);
    wait_for("the servers know the enrolment", Duration::from_secs(30), || mount().code == Some(0));
    let all = cluster.mnt().join("user");
    std::fs::create_dir(&all).unwrap();
    std::os::unix::fs::chown(&all, Some(1000), Some(1000)).unwrap();
    // The directory is lent to the mount by then: what is done in it is decided there, and root with it.
    let makes =
        |from, to| format!("cd {point}/user; for i in $(seq {from} {to}); do echo $i > file-$i; done");
    assert!(succeeds_as(1000, &makes(1, 30)));
    assert!(!succeeds_as(0, &format!("touch {point}/user/of-root")), "nobody may not write there");
    assert!(succeeds_as(1000, &makes(31, 60)));
    bearing(&["umount", point]).ok();
    let kept = std::fs::read_dir(&all).unwrap().count();
    assert_eq!(kept, 60, "what the user made is there, and nothing of root's");
}
