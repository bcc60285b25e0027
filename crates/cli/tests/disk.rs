//! Servers serve from the disk that they were registered with, as it is now, and from no other.

mod common;

use common::{TestCluster, shell, wait_for};
use std::fs;
use std::time::Duration;

/// What a server that does not serve says of that, and what `up` says.
fn up_says(cluster: &TestCluster, server: &str) -> String {
    let ran = cluster.run(&["up", "--detach"]);
    let state = fs::read_to_string(cluster.file(server).join("state")).unwrap();
    assert!(!state.contains("state = \"serving\""), "{ran:?}\n{state}");
    cluster.down();
    format!("{}{}{state}", ran.out, ran.err)
}

fn put(cluster: &TestCluster, name: &str) {
    shell(&format!("head -c 100000 /dev/urandom > {0}/{1}", cluster.root().display(), &name[1..])).ok();
    let source = cluster.root().join(&name[1..]);
    cluster.run(&["fs", "put", source.to_str().unwrap(), name]).ok();
}

fn assert_there(cluster: &TestCluster, name: &str) {
    let back = cluster.root().join("back");
    cluster.run(&["fs", "get", name, back.to_str().unwrap()]).ok();
    assert_eq!(fs::read(&back).unwrap(), fs::read(cluster.root().join(&name[1..])).unwrap(), "{name}");
    fs::remove_file(back).unwrap();
}

#[test]
fn a_metadata_server_refuses_an_emptied_and_an_older_disk_and_serves_from_the_right_one() {
    let cluster = TestCluster::new("disk-meta");
    cluster.up(&["--metadata-copies", "1"]).ok();
    put(&cluster, "/one");
    cluster.down().ok();
    let (directory, root) = (cluster.file("metadata-1"), cluster.root().to_owned());
    let (directory, root) = (directory.display(), root.display());
    shell(&format!("cp -a {directory} {root}/old")).ok();
    cluster.run(&["up", "--detach"]).ok();
    put(&cluster, "/two");
    cluster.down().ok();
    shell(&format!("cp -a {directory} {root}/right")).ok();

    for gone in ["store tablet-log", "store", "tablet-log"] {
        shell(&format!("cd {directory} && rm -r {gone}")).ok();
        let said = up_says(&cluster, "metadata-1");
        assert!(
            said.contains("not the disk that was registered") && said.contains("Put the right disk back"),
            "{said}"
        );
        assert!(said.contains("8 of 16 tablets have a copy nowhere but on metadata-1"), "{said}");
        shell(&format!("rm -r {directory} && cp -a {root}/right {directory}")).ok();
    }
    shell(&format!("rm -r {directory} && cp -a {root}/old {directory}")).ok();
    let said = up_says(&cluster, "metadata-1");
    assert!(said.contains("this disk is older than the one that this server ran on"), "{said}");
    let said = cluster.run(&["disk", "replace", "metadata-1", "--yes"]).refused(2);
    assert!(said.contains("only copy of 8 of 16 tablets"), "{said}");

    shell(&format!("rm -r {directory} && mv {root}/right {directory}")).ok();
    cluster.run(&["up", "--detach"]).ok();
    assert_there(&cluster, "/one");
    assert_there(&cluster, "/two");
    cluster.run(&["check"]).ok();
}

/// Takes all that a metadata server has stored away.
fn empty(cluster: &TestCluster, server: &str) {
    let directory = cluster.file(server);
    shell(&format!("cd {} && rm -r store tablet-log", directory.display())).ok();
}

/// Waits until every tablet has so many members.
fn until_copies_are(cluster: &TestCluster, copies: usize) {
    let all_have = || {
        let tablets = cluster.status()["tablets"].as_array().cloned().unwrap_or_default();
        let has = |tablet: &serde_json::Value| {
            tablet["members"].as_array().is_some_and(|members| members.len() == copies)
        };
        !tablets.is_empty() && tablets.iter().all(has)
    };
    wait_for("every tablet has its copies again", Duration::from_secs(60), all_have);
}

#[test]
fn a_metadata_disk_that_is_lost_takes_nothing_with_it_and_another_one_takes_its_place() {
    let cluster = TestCluster::new("disk-meta-lost");
    cluster.run(&["up", "--detach", "--metadata", "3", "--data", "2"]).ok();
    (0..20).for_each(|number| put(&cluster, &format!("/f{number}")));
    cluster.down().ok();
    empty(&cluster, "metadata-2");
    let up = cluster.run(&["up", "--detach"]);
    assert!(up.err.contains("metadata-2 does not start") && up.err.contains("runs without it"), "{up:?}");
    assert!(up.err.contains("bearing disk replace metadata-2"), "{up:?}");
    up.ok();
    (0..20).for_each(|number| assert_there(&cluster, &format!("/f{number}")));
    put(&cluster, "/while-it-is-lost");
    until_copies_are(&cluster, 2);
    let said = cluster.run(&["disk", "replace", "metadata-2"]).refused(1);
    assert!(said.contains("others have all that was on it") && said.contains("--yes"), "{said}");
    cluster.run(&["disk", "replace", "metadata-2", "--yes"]).ok();
    cluster.down().ok();
    cluster.run(&["up", "--detach"]).ok();
    until_copies_are(&cluster, 3);
    // Whoever has learnt it has all of it.
    cluster.down().ok();
    empty(&cluster, "metadata-1");
    cluster.run(&["up", "--detach"]).ok();
    (0..20).for_each(|number| assert_there(&cluster, &format!("/f{number}")));
    assert_there(&cluster, "/while-it-is-lost");
    cluster.run(&["check"]).ok();
}

#[test]
fn with_two_copies_and_two_disks_lost_it_is_said_what_is_gone_and_the_rest_is_served() {
    let cluster = TestCluster::new("disk-meta-two");
    cluster.run(&["up", "--detach", "--metadata", "4", "--metadata-copies", "2", "--data", "2"]).ok();
    put(&cluster, "/one");
    let status = cluster.status();
    let pair = [serde_json::json!([3, 4]), serde_json::json!([4, 3])];
    let tablets = status["tablets"].as_array().unwrap();
    let of_pair = tablets.iter().filter(|tablet| pair.contains(&tablet["members"]));
    let gone: Vec<&str> = of_pair.map(|tablet| tablet["block"].as_str().unwrap()).collect();
    assert!(!gone.is_empty() && gone.len() < tablets.len());
    cluster.down().ok();
    empty(&cluster, "metadata-3");
    empty(&cluster, "metadata-4");
    let up = cluster.run(&["up", "--detach"]).refused(1);
    let count = format!(
        "{} of {} tablets have a copy nowhere but on metadata-3 and metadata-4",
        gone.len(),
        tablets.len()
    );
    assert!(up.contains(&count) && gone.iter().all(|block| up.contains(block)), "{up}");
    let up = cluster.run(&["up", "--detach", "--partial"]);
    assert!(
        up.code == Some(0)
            && up.err.contains("metadata-3 does not start")
            && up.err.contains("metadata-4 does not start"),
        "{up:?}"
    );
    // A session may have its own record in a tablet that is out of reach: another one is tried then.
    let list = || cluster.run(&["fs", "ls", "/"]);
    wait_for("the rest is served", Duration::from_secs(300), || list().out.contains("one"));
    let said = cluster.run(&["disk", "replace", "metadata-3", "--yes"]);
    assert!(said.code != Some(0), "what only that disk has is not given up: {said:?}");
}

#[test]
fn a_data_server_refuses_an_emptied_disk_until_it_is_said_that_the_other_is_lost() {
    let cluster = TestCluster::started("disk-data");
    put(&cluster, "/one");
    cluster.down().ok();
    fs::remove_dir_all(cluster.file("data-1").join("chunks")).unwrap();
    let said = up_says(&cluster, "data-1");
    assert!(
        said.contains("not the disk that was registered") && said.contains("bearing disk replace data-1"),
        "{said}"
    );
    let said = cluster.run(&["disk", "replace", "data-9"]).refused(2);
    assert!(said.contains("data-1, data-2"), "{said}");
    let said = cluster.run(&["disk", "replace", "data-1"]).refused(1);
    assert!(said.contains("lost for good") && said.contains("--yes"), "{said}");
    cluster.run(&["disk", "replace", "data-1", "--yes"]).ok();
    cluster.run(&["up", "--detach"]).ok();
    assert_there(&cluster, "/one");
}

#[test]
fn an_older_copy_of_the_registers_is_noticed() {
    let cluster = TestCluster::new("older-registers");
    cluster.up(&[]).ok();
    cluster.down().ok();
    let (directory, root) = (cluster.file("coordinator"), cluster.root().to_owned());
    let (directory, root) = (directory.display(), root.display());
    shell(&format!("cp -a {directory} {root}/older")).ok();
    // Every start gives new epochs.
    cluster.run(&["up", "--detach"]).ok();
    put(&cluster, "/one");
    cluster.down().ok();
    shell(&format!("mv {directory} {root}/newest && mv {root}/older {directory}")).ok();
    let said = up_says(&cluster, "metadata-1");
    assert!(said.contains("registers are older than what this server has of tablet"), "{said}");

    shell(&format!("rm -r {directory} && mv {root}/newest {directory}")).ok();
    cluster.run(&["up", "--detach"]).ok();
    assert_there(&cluster, "/one");
    cluster.run(&["check"]).ok();
}
