//! With the real program: the space of what no file refers to comes back: of whole chunks at once, of parts
//! of them when what is in use of a chunk that is mostly dead has been written anew.

mod common;

use common::{TestCluster, can_mount, wait_for};
use std::fs;
use std::time::Duration;

// The session that put the files may count as having them open for 30 s.
const PATIENCE: Duration = Duration::from_secs(150);
const FILE_BYTES: usize = 1_000_000;

/// Another one for each file.
fn content(file: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * (file + 3) / 7) as u8).collect()
}

/// Bytes of all chunks on a data server's disk.
fn stored(cluster: &TestCluster, daemon: &str) -> u64 {
    let shelves = fs::read_dir(cluster.file(&format!("{daemon}/chunks/chunks"))).unwrap();
    let files = shelves.flat_map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap());
    // One may go while this looks.
    files.filter_map(|file| fs::metadata(file.unwrap().path()).ok()).map(|file| file.len()).sum()
}

fn set(cluster: &TestCluster, daemon: &str, setting: &str, value: u64) {
    let path = cluster.file(&format!("{daemon}/config.toml"));
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.lines().map(|line| match line.split_once(" = ") {
        Some((name, _)) if name == setting => format!("{setting} = {value}\n"),
        _ => format!("{line}\n"),
    });
    let changed: String = changed.collect();
    assert_ne!(changed, text, "{setting} is not in {}", path.display());
    fs::write(&path, changed).unwrap();
}

#[test]
fn the_space_of_removed_files_comes_back_although_another_one_lies_between_them() {
    let cluster = TestCluster::started("compaction");
    cluster.down().ok();
    for daemon in ["metadata-1", "metadata-2"] {
        set(&cluster, daemon, "chunk_look_after_s", 1);
        set(&cluster, daemon, "checkpoint_interval_s", 1);
    }
    cluster.up(&[]).ok();
    // One client, so one chunk, in which the file that stays is neither the first nor the last.
    let local = cluster.root().join("local");
    fs::create_dir(&local).unwrap();
    for file in 0..8 {
        fs::write(local.join(format!("file-{file}")), content(file)).unwrap();
    }
    cluster.run(&["fs", "put", "-r", local.to_str().unwrap(), "/many"]).ok();
    let before = stored(&cluster, "data-1");
    assert!(before >= 8 * FILE_BYTES as u64, "{before}");
    for file in [0, 1, 2, 3, 5, 6, 7] {
        cluster.run(&["fs", "rm", &format!("/many/file-{file}")]).ok();
    }
    wait_for("one file of eight is left on the disks", PATIENCE, || {
        let left = [stored(&cluster, "data-1"), stored(&cluster, "data-2")];
        left.iter().all(|bytes| *bytes < 2 * FILE_BYTES as u64)
    });
    let back = cluster.root().join("back");
    cluster.run(&["fs", "get", "/many/file-4", back.to_str().unwrap()]).ok();
    assert_eq!(fs::read(back).unwrap(), content(4));
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
    wait_for("status says that nothing is left to do", PATIENCE, || {
        let chunks = cluster.status()["chunks"].clone();
        let live = chunks["live_bytes"].as_u64().unwrap();
        chunks["compacting"] == 0 && chunks["lacking"] == 0 && live < 2 * FILE_BYTES as u64
    });
}

#[test]
fn a_file_that_is_overwritten_again_and_again_takes_room_for_a_few_chunks() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("overwritten");
    // So much goes into one chunk.
    let chunk_bytes = 64 << 20;
    let (size, times) = (16 << 20, 32);
    for time in 0..times {
        fs::write(cluster.mnt().join("file"), vec![time as u8; size as usize]).unwrap();
    }
    // What lies in the chunk that is open yet is known to be dead when that is full.
    wait_for("all but the last chunks have been removed", PATIENCE, || {
        ["data-1", "data-2"].iter().all(|daemon| stored(&cluster, daemon) < 2 * chunk_bytes)
    });
    assert!(times * size >= 8 * chunk_bytes);
    assert_eq!(fs::read(cluster.mnt().join("file")).unwrap(), vec![times as u8 - 1; size as usize]);
}
