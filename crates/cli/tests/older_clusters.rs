//! Directories that earlier releases left open with this one and hold what they held; those of later ones are
//! refused.
//!
//! The tests that mount need root and /dev/fuse; without them they say so and pass.

mod common;

use bearing_server::init::{LOOPBACK, choose_addresses};
use common::{TestCluster, bearing, can_mount, shell};
use std::fs;
use std::path::{Path, PathBuf};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/88dc9d5")
}

/// Unpacks a directory of an earlier release as this test's cluster, with ports that are free here.
fn unpack(cluster: &TestCluster, kind: &str) {
    let archive = fixture().join(format!("{kind}.tar.xz"));
    let (root, archive) = (cluster.root().display(), archive.display());
    shell(&format!("cd {root} && tar xJf {archive} && mv {kind} cluster")).ok();
    let path = cluster.file("cluster.toml");
    let text = fs::read_to_string(&path).unwrap();
    let count = text.matches("127.0.0.1:").count();
    let mut free = choose_addresses(LOOPBACK, count, None).unwrap().into_iter();
    let lines = text.lines().map(|line| match line.split_once("127.0.0.1:") {
        Some((before, _)) => format!("{before}{}\"\n", free.next().unwrap()),
        None => format!("{line}\n"),
    });
    fs::write(&path, lines.collect::<String>()).unwrap();
}

fn listed(cluster: &TestCluster) -> String {
    let script = fixture().join("list.sh");
    shell(&format!("cd {} && bash {}", cluster.mnt().display(), script.display())).ok()
}

fn assert_same(found: &str, expected: &str) {
    let lost: Vec<&str> = expected.lines().filter(|line| !found.contains(line)).collect();
    let extra: Vec<&str> = found.lines().filter(|line| !expected.contains(line)).collect();
    assert!(lost.is_empty() && extra.is_empty(), "lost: {lost:#?}\nextra: {extra:#?}");
    assert_eq!(found, expected);
}

fn opens_as_it_was(kind: &str) {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new(&format!("older-{kind}"));
    unpack(&cluster, kind);
    let expected = fs::read_to_string(fixture().join("manifest.txt")).unwrap();
    cluster.up_again().ok();
    assert_same(&listed(&cluster), &expected);
    let quota = cluster.run(&["fs", "quota", "get", "/quota", "--json"]).ok();
    let quota: serde_json::Value = serde_json::from_str(&quota).unwrap();
    let limits = (&quota["quota"]["space"]["limit"], &quota["quota"]["entries"]["limit"]);
    assert_eq!(limits, (&(10 << 20).into(), &100.into()));

    let made = cluster.mnt().join("made/since");
    fs::create_dir_all(&made).unwrap();
    fs::write(made.join("file"), vec![7; 100_000]).unwrap();
    fs::write(cluster.mnt().join("many/f1"), b"written over\n").unwrap();
    fs::remove_file(cluster.mnt().join("many/f2")).unwrap();
    let changed = listed(&cluster);
    cluster.down().ok();
    cluster.up_again().ok();
    assert_same(&listed(&cluster), &changed);
    let problems = cluster.run(&["check"]).ok();
    assert!(problems.contains("no problems") || problems.contains("0 problems"), "{problems}");
}

#[test]
fn a_cluster_of_88dc9d5_that_was_stopped_opens_as_it_was_and_goes_on() {
    opens_as_it_was("clean");
}

#[test]
fn a_cluster_of_88dc9d5_that_was_killed_opens_as_it_was_and_goes_on() {
    opens_as_it_was("unclean");
}

/// Raises the version in a line of a file that names its formats. Returns the version that was there.
fn raise(path: &Path, format: &str, raised: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let line =
        text.lines().find(|line| line.starts_with(format)).unwrap_or_else(|| panic!("{format}: {text}"));
    let known = line[format.len()..].trim().trim_start_matches("= ").to_owned();
    fs::write(path, text.replacen(line, &format!("{format}{raised}"), 1)).unwrap();
    known
}

#[test]
fn what_a_newer_program_wrote_is_refused_by_every_format_naming_both_versions() {
    let cluster = TestCluster::started("newer");
    cluster.down().ok();
    let formats = [
        ("metadata-1", "metadata-1/store/FORMAT", "bearing-store"),
        ("metadata-1", "metadata-1/store/FORMAT", "bearing-records"),
        ("metadata-1", "metadata-1/tablet-log/FORMAT", "bearing-tablet-log"),
        ("metadata-1", "metadata-1/tablet-log/FORMAT", "bearing-log-entries"),
        ("metadata-1", "metadata-1/tablet-log/FORMAT", "bearing-records"),
        ("data-1", "data-1/chunks/FORMAT", "bearing-chunk-log"),
        ("data-1", "data-1/chunks/FORMAT", "bearing-frames"),
        ("coordinator", "cluster.toml", "format"),
    ];
    for (server, file, format) in formats {
        let path = cluster.file(file);
        let before = fs::read(&path).unwrap();
        let raised = if format == "format" { " = 99" } else { " 99" };
        let known = raise(&path, format, raised);
        let newer = fs::read(&path).unwrap();
        let config = cluster.file(server).join("config.toml");
        let kind = server.split('-').next().unwrap();
        let ran = bearing(&["daemon", kind, "--config", config.to_str().unwrap()]);
        assert_ne!(ran.code, Some(0), "{format}");
        let said = ran.err;
        assert!(
            said.contains("version 99") && said.contains(&format!("version {known}")),
            "{format}: {said}"
        );
        assert_eq!(fs::read(&path).unwrap(), newer, "{format}: nothing is changed");
        fs::write(&path, before).unwrap();
    }
    cluster.up(&[]).ok();
}
