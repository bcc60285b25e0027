//! Servers serve from the disk that they were registered with, as it is now, and from no other.

mod common;

use common::{TestCluster, shell};
use std::fs;

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
    let cluster = TestCluster::started("disk-meta");
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
        shell(&format!("rm -r {directory} && cp -a {root}/right {directory}")).ok();
    }
    shell(&format!("rm -r {directory} && cp -a {root}/old {directory}")).ok();
    let said = up_says(&cluster, "metadata-1");
    assert!(said.contains("this disk is older than the one that this server ran on"), "{said}");
    let said = cluster.run(&["disk", "replace", "metadata-1", "--yes"]).refused(2);
    assert!(said.contains("only copy"), "{said}");

    shell(&format!("rm -r {directory} && mv {root}/right {directory}")).ok();
    cluster.run(&["up", "--detach"]).ok();
    assert_there(&cluster, "/one");
    assert_there(&cluster, "/two");
    cluster.run(&["check"]).ok();
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
