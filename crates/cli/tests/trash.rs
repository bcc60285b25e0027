//! What is removed through a mount with a trash, on two mounts of one cluster.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{TestCluster, bearing, can_mount, shell};
use std::fs;

/// A cluster with a tree, mounted without a trash, and a second time with one.
fn with_tree(name: &str) -> Option<(TestCluster, std::path::PathBuf)> {
    if !can_mount() {
        return None;
    }
    let cluster = TestCluster::mounted(name);
    let second = cluster.root().join("second");
    fs::create_dir(&second).unwrap();
    bearing(&["mount", &cluster.dir(), second.to_str().unwrap(), "--options", "trash=7"]).ok();
    shell(&format!(
        "cd {}; mkdir -p data/set/deep; for n in 1 2 3; do echo $n > data/set/$n; echo deep$n > data/set/deep/$n; done",
        cluster.mnt().display()
    ))
    .ok();
    Some((cluster, second))
}

fn paths(cluster: &TestCluster) -> Vec<String> {
    let told: serde_json::Value =
        serde_json::from_str(&cluster.run(&["fs", "trash", "list", "--json"]).ok()).unwrap();
    let things = told.as_array().unwrap().iter();
    things.map(|thing| thing["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_tree_that_was_removed_by_mistake_is_put_back() {
    let Some((cluster, second)) = with_tree("trash") else { return };
    shell(&format!("rm -r {}/data/set", second.display())).ok();
    assert!(!cluster.mnt().join("data/set").exists() && !second.join("data/set").exists());
    let all = [
        "/data/set",
        "/data/set/1",
        "/data/set/2",
        "/data/set/3",
        "/data/set/deep",
        "/data/set/deep/1",
        "/data/set/deep/2",
        "/data/set/deep/3",
    ];
    assert_eq!(paths(&cluster), all);
    let nowhere = cluster.run(&["fs", "trash", "restore", "/data/other"]).refused(1);
    assert!(nowhere.contains("/data/other is not in the trash"), "{nowhere}");
    // To where the directory is by now.
    fs::rename(cluster.mnt().join("data"), cluster.mnt().join("moved")).unwrap();
    assert_eq!(cluster.run(&["fs", "trash", "restore", "/moved/set"]).ok(), "restored 8\n");
    for mount in [cluster.mnt(), second.clone()] {
        assert_eq!(fs::read(mount.join("moved/set/deep/3")).unwrap(), b"deep3\n");
    }
    assert_eq!(paths(&cluster), Vec::<String>::new());
    bearing(&["umount", second.to_str().unwrap()]).ok();
}

#[test]
fn what_goes_for_good_is_what_the_mount_or_somebody_says() {
    let Some((cluster, second)) = with_tree("for-good") else { return };
    // No trash here.
    fs::remove_file(cluster.mnt().join("data/set/1")).unwrap();
    assert_eq!(paths(&cluster), Vec::<String>::new());
    fs::remove_file(second.join("data/set/2")).unwrap();
    let full = fs::remove_dir(second.join("data")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOTEMPTY));
    assert_eq!(paths(&cluster), ["/data/set/2"]);
    // Not yet.
    assert_eq!(cluster.run(&["fs", "trash", "expire"]).ok(), "removed 0\n");
    let elsewhere = ["fs", "trash", "restore", "/data/set/2", "--to", "/data"];
    assert_eq!(cluster.run(&elsewhere).ok(), "restored 1\n");
    assert_eq!(fs::read(second.join("data/2")).unwrap(), b"2\n");
    // Removing from the trash is removing.
    fs::remove_file(second.join("data/2")).unwrap();
    shell(&format!("rm -r {}/.bearing-trash/0", second.display())).ok();
    assert_eq!(paths(&cluster), Vec::<String>::new());
    fs::remove_file(second.join("data/set/3")).unwrap();
    assert_eq!(cluster.run(&["fs", "trash", "empty"]).ok(), "removed 1\n");
    assert_eq!(paths(&cluster), Vec::<String>::new());
    let mode = fs::metadata(second.join(".bearing-trash/0")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o700);
    bearing(&["umount", second.to_str().unwrap()]).ok();
}
