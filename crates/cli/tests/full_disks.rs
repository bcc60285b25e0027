//! Servers whose disks are full: what they refuse, what goes on, and that they go on by themselves when there
//! is space again.
//!
//! A server's directory lies on a small tmpfs, which another file fills. These tests need root and /dev/fuse;
//! without them they say so and pass.

mod common;

use common::{TestCluster, bearing, can_mount, kill, shell, wait_for};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster of one metadata server and two data servers, of which one server's directory is a disk of its
/// own. `None` if that cannot be.
fn cluster_with_small_disk(name: &str, server: &str, size: &str) -> Option<TestCluster> {
    if !can_mount() {
        return None;
    }
    let cluster = TestCluster::new(name);
    let place = cluster.file(server);
    bearing(&["up", "--detach", "--metadata", "1", "--data", "2", "--dir", &cluster.dir()]).ok();
    cluster.down().ok();
    let aside = cluster.root().join("aside");
    fs::rename(&place, &aside).unwrap();
    fs::create_dir(&place).unwrap();
    // What a killed test leaves is unmounted with everything else below its directory.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "bearing-test", place.to_str().unwrap()])
        .output()
        .expect("mount is there");
    if !mounted.status.success() {
        eprintln!("skipped: a tmpfs cannot be mounted ({})", String::from_utf8_lossy(&mounted.stderr).trim());
        return None;
    }
    shell(&format!("cp -a {}/. {}", aside.display(), place.display())).ok();
    cluster.up_again().ok();
    Some(cluster)
}

/// Fills a disk to its end, at once: what a server gives up of its reserve while a file grows would be taken
/// too.
fn fill(directory: &Path) -> PathBuf {
    let ballast = directory.join("ballast");
    let file = File::create(&ballast).unwrap();
    wait_for("the disk is filled", PATIENCE, || {
        // SAFETY: zeroes are a valid structure of numbers, and the descriptor is open.
        unsafe {
            let mut disk: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::fstatvfs(file.as_raw_fd(), &mut disk), 0);
            libc::posix_fallocate(file.as_raw_fd(), 0, (disk.f_bavail * disk.f_frsize) as libc::off_t) == 0
        }
    });
    ballast
}

fn state(cluster: &TestCluster, server: &str) -> String {
    let status = cluster.status();
    let daemons = status["daemons"].as_array().unwrap();
    let name = |daemon: &serde_json::Value| {
        format!("{}-{}", daemon["kind"].as_str().unwrap(), daemon["id"].as_u64().unwrap())
    };
    let daemon = daemons.iter().find(|daemon| name(daemon) == server).unwrap();
    daemon["state"].as_str().unwrap().to_owned()
}

/// The first process of a kind, unless it is dead just now.
fn pid(cluster: &TestCluster, kind: &str) -> Option<u64> {
    let status = cluster.status();
    let daemons = status["daemons"].as_array().unwrap();
    daemons.iter().find(|daemon| daemon["kind"] == kind).unwrap()["pid"].as_u64()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[track_caller]
fn is_full(result: io::Result<()>) {
    let error = result.expect_err("there is no space");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_full_metadata_disk_refuses_what_is_new_serves_what_is_there_and_goes_on_when_there_is_space() {
    let Some(cluster) = cluster_with_small_disk("full-metadata", "metadata-1", "256m") else { return };
    let mnt = cluster.mnt();
    fs::create_dir(mnt.join("d")).unwrap();
    for number in 0..200 {
        write(&mnt.join(format!("d/{number}")), format!("content {number}").as_bytes()).unwrap();
    }
    let daemon = pid(&cluster, "metadata");

    let ballast = fill(&cluster.file("metadata-1"));
    wait_for("it says that its disk is full", PATIENCE, || state(&cluster, "metadata-1") == "disk full");
    let words = cluster.run(&["status"]).ok();
    assert!(words.contains("the disk is full") && words.contains("Free some space"), "{words}");
    is_full(fs::create_dir(mnt.join("e")));
    is_full(write(&mnt.join("new"), b"x"));
    is_full(write(&mnt.join("d/0"), b"another content"));
    is_full(fs::hard_link(mnt.join("d/1"), mnt.join("d/link")));
    assert_eq!(names(&mnt.join("d")).len(), 200);
    assert_eq!(fs::read(mnt.join("d/7")).unwrap(), b"content 7");
    fs::rename(mnt.join("d/8"), mnt.join("d/eight")).unwrap();
    fs::remove_file(mnt.join("d/9")).unwrap();
    assert_eq!(pid(&cluster, "metadata"), daemon, "it did not have to be started again");

    // Killed, it comes up again on the full disk, with all that it had acknowledged.
    kill(daemon);
    wait_for("another process serves", PATIENCE, || {
        let present = pid(&cluster, "metadata");
        state(&cluster, "metadata-1") == "disk full" && present.is_some() && present != daemon
    });
    let daemon = pid(&cluster, "metadata");
    assert_eq!(fs::read(mnt.join("d/eight")).unwrap(), b"content 8");
    assert!(!mnt.join("d/9").exists());
    assert_eq!(names(&mnt.join("d")).len(), 199);
    is_full(write(&mnt.join("new"), b"x"));
    fs::remove_file(mnt.join("d/10")).unwrap();

    fs::remove_file(ballast).unwrap();
    wait_for("it has space again", PATIENCE, || state(&cluster, "metadata-1") == "serving");
    write(&mnt.join("new"), b"x").unwrap();
    fs::create_dir(mnt.join("e")).unwrap();
    assert_eq!(pid(&cluster, "metadata"), daemon, "it goes on by itself");
    cluster.run(&["check"]).ok();
}

#[test]
fn a_full_data_disk_refuses_bytes_serves_what_is_there_and_goes_on_when_there_is_space() {
    let Some(cluster) = cluster_with_small_disk("full-data", "data-1", "128m") else { return };
    let mnt = cluster.mnt();
    fs::write(mnt.join("before"), vec![7; 1 << 20]).unwrap();
    let daemon = pid(&cluster, "data");

    let ballast = fill(&cluster.file("data-1"));
    // The other server takes what it can, with a copy less, or nobody does: both are allowed. But nothing is
    // lost, and nobody hangs.
    let mut refused = 0;
    for number in 0..8 {
        match write(&mnt.join(format!("during-{number}")), &vec![number; 1 << 20]) {
            Ok(()) => {
                assert_eq!(fs::read(mnt.join(format!("during-{number}"))).unwrap(), vec![number; 1 << 20])
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
                refused += 1;
            }
        }
    }
    eprintln!("{refused} of 8 files were refused");
    assert_eq!(fs::read(mnt.join("before")).unwrap(), vec![7; 1 << 20]);
    wait_for("it says that its disk is full", PATIENCE, || state(&cluster, "data-1") == "disk full");
    assert!(names(&mnt).contains(&"before".to_owned()));
    fs::remove_file(mnt.join("before")).unwrap();
    fs::create_dir(mnt.join("names need no data server")).unwrap();

    fs::remove_file(ballast).unwrap();
    wait_for("it takes bytes again", PATIENCE, || write(&mnt.join("after"), &vec![9; 1 << 20]).is_ok());
    assert_eq!(fs::read(mnt.join("after")).unwrap(), vec![9; 1 << 20]);
    wait_for("it says that it is not", PATIENCE, || state(&cluster, "data-1") == "serving");
    assert_eq!(pid(&cluster, "data"), daemon);
    cluster.run(&["check"]).ok();
}
