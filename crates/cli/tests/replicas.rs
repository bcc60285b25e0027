//! Data servers of the real program that lose their chunks, hold damaged ones that nobody had sealed, or do
//! not start.

mod common;

use common::{TestCluster, wait_for};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const FILES: usize = 60;

fn content(number: usize) -> Vec<u8> {
    (0..9_000).map(|at| (at / 7 + number * 31) as u8).collect()
}

/// A cluster that is down, with files whose only chunk nobody has sealed. When it is up again its owner seals
/// it soon.
fn with_an_open_chunk(name: &str) -> TestCluster {
    let cluster = TestCluster::started(name);
    let local = cluster.root().join("files");
    fs::create_dir(&local).unwrap();
    for number in 0..FILES {
        fs::write(local.join(number.to_string()), content(number)).unwrap();
    }
    cluster.run(&["fs", "put", "-r", local.to_str().unwrap(), "/files"]).ok();
    assert_eq!(cluster.status()["chunks"]["sealed"], 0);
    cluster.down().ok();
    for daemon in ["metadata-1", "metadata-2"] {
        let path = cluster.file(&format!("{daemon}/config.toml"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("chunk_life_s = 660"), "{text}");
        fs::write(&path, text.replace("chunk_life_s = 660", "chunk_life_s = 1")).unwrap();
    }
    cluster
}

/// The file of the only chunk on a data server.
fn only_chunk(cluster: &TestCluster, daemon: &str) -> PathBuf {
    let shelves = fs::read_dir(cluster.file(&format!("{daemon}/chunks/chunks"))).unwrap();
    let files = shelves.flat_map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap());
    let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[track_caller]
fn assert_all_is_there(cluster: &TestCluster) {
    let back = cluster.root().join("back");
    let _ = fs::remove_dir_all(&back);
    cluster.run(&["fs", "get", "-r", "/files", back.to_str().unwrap()]).ok();
    for number in 0..FILES {
        let read = fs::read(back.join(number.to_string())).unwrap();
        assert!(read == content(number), "file {number} is another");
    }
}

#[track_caller]
fn assert_it_is_made_whole(cluster: &TestCluster) {
    wait_for("all chunks are sealed and have all their copies", PATIENCE, || {
        let chunks = cluster.status()["chunks"].clone();
        chunks["sealed"].as_u64() > Some(0)
            && chunks["sealed"] == chunks["chunks"]
            && (&chunks["damaged"], &chunks["lacking"]) == (&0.into(), &0.into())
            && cluster.run(&["check", "--verify"]).ok().contains("0 problems")
    });
    assert_all_is_there(cluster);
}

#[test]
fn a_data_server_whose_chunks_are_gone_takes_nothing_along_and_gets_them_again() {
    let cluster = with_an_open_chunk("emptied");
    fs::remove_dir_all(cluster.file("data-1/chunks/chunks")).unwrap();
    cluster.up(&[]).ok();
    assert_all_is_there(&cluster);
    assert_it_is_made_whole(&cluster);
    // Once more, now that they are sealed.
    cluster.down().ok();
    fs::remove_dir_all(cluster.file("data-2/chunks/chunks")).unwrap();
    cluster.up(&[]).ok();
    wait_for("copies are made again", PATIENCE, || {
        fs::read_dir(cluster.file("data-2/chunks/chunks")).is_ok_and(|mut shelves| shelves.next().is_some())
    });
    assert_it_is_made_whole(&cluster);
}

#[test]
fn a_flipped_bit_in_an_unsealed_replica_costs_no_file_and_is_repaired() {
    let cluster = with_an_open_chunk("open-rot");
    for (daemon, part) in [("data-1", 3), ("data-2", 2)] {
        // Each is damaged elsewhere, so that none is whole.
        let path = only_chunk(&cluster, daemon);
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.len() / part;
        bytes[place] ^= 16;
        fs::write(&path, &bytes).unwrap();
    }
    cluster.up(&[]).ok();
    assert_all_is_there(&cluster);
    assert_it_is_made_whole(&cluster);
}

#[test]
fn a_cluster_starts_without_a_data_server_whose_directory_is_damaged_and_says_so() {
    let cluster = with_an_open_chunk("damaged-directory");
    let format = cluster.file("data-2/chunks/FORMAT");
    let kept = fs::read(&format).unwrap();
    fs::write(&format, "something else").unwrap();
    let started = cluster.up(&[]);
    let told = started.err.clone();
    started.ok();
    assert!(told.contains("data-2 does not start") && told.contains("FORMAT"), "{told}");
    assert!(told.contains("runs without it") && told.contains("bearing up"), "{told}");
    assert_all_is_there(&cluster);
    let local = cluster.root().join("more");
    fs::write(&local, "written meanwhile").unwrap();
    cluster.run(&["fs", "put", local.to_str().unwrap(), "/more"]).ok();
    cluster.down().ok();
    fs::write(&format, kept).unwrap();
    assert_eq!(cluster.up(&[]).err, "");
    assert_eq!(cluster.run(&["fs", "cat", "/more"]).ok(), "written meanwhile");
    assert_it_is_made_whole(&cluster);
    // Without any there is no cluster.
    cluster.down().ok();
    for daemon in ["data-1", "data-2"] {
        fs::write(cluster.file(&format!("{daemon}/chunks/FORMAT")), "something else").unwrap();
    }
    let refusal = cluster.up(&[]).refused(1);
    assert!(refusal.contains("does not start"), "{refusal}");
}
