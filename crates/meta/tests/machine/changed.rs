//! What replies to changes say of the directories that they changed.

use crate::cluster::{ALICE, Cluster};
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, Body, Call, ChangedDirectory, Handle, LeaseMs};
use bearing_proto::grant::Grant;
use bearing_types::{Attributes, Version};
use std::collections::BTreeMap;

/// What the last reply said of directories.
fn last_changed(cluster: &Cluster) -> Vec<ChangedDirectory> {
    match &cluster.replies.last_key_value().expect("something was asked").1.answer {
        Answer::Done { changed, .. } => changed.clone(),
        other => panic!("{other:?}"),
    }
}

fn attributes(cluster: &mut Cluster, node: Handle) -> Attributes {
    match cluster.call(ALICE, node.home, Call::Attributes { node }).unwrap() {
        Body::Node(view) => view.attributes,
        other => panic!("{other:?}"),
    }
}

/// A root with two directories, and what was said of each so far.
struct World {
    cluster: Cluster,
    root: Handle,
    directories: [(Handle, Grant); 2],
    versions: BTreeMap<Handle, Version>,
}

impl World {
    fn new(servers: u32) -> World {
        let mut cluster = Cluster::new(servers, Scheme::AnglecutHashed);
        cluster.open_session(ALICE);
        let view = cluster.root(ALICE);
        let directories = ["a", "b"].map(|name| cluster.make(ALICE, &view.grant, name));
        World { cluster, root: view.node.node, directories, versions: BTreeMap::new() }
    }

    /// Which directories a change showed: always as they are since, and newer than before.
    fn shown(&mut self, change: impl FnOnce(&mut Cluster, &Grant, &Grant)) -> Vec<Handle> {
        let [(_, a), (_, b)] = self.directories.clone();
        change(&mut self.cluster, &a, &b);
        let changed = last_changed(&self.cluster);
        for ChangedDirectory { node, version } in &changed {
            assert!(node.lease > LeaseMs(0));
            assert_eq!(node.attributes, attributes(&mut self.cluster, node.node));
            assert!(self.versions.insert(node.node, *version) < Some(*version), "it grows");
        }
        changed.iter().map(|changed| changed.node.node).collect()
    }
}

#[test]
fn a_change_of_entries_says_what_became_of_the_directories() {
    let mut world = World::new(1);
    let [a, b] = [world.directories[0].0, world.directories[1].0];
    assert_eq!(
        world.shown(|cluster, a, _| {
            _ = cluster.create(ALICE, a, "f").unwrap();
        }),
        [a]
    );
    assert_eq!(
        world.shown(|cluster, a, _| {
            _ = cluster.mkdir(ALICE, a, "d").unwrap();
        }),
        [a]
    );
    assert_eq!(world.shown(|cluster, a, _| cluster.rename(ALICE, (a, "f"), (a, "g")).unwrap()), [a]);
    // Where both lie in one tablet that is all; else the other tablet says nothing to the client.
    let together = world.cluster.owner(a.home).1 == world.cluster.owner(b.home).1;
    let both = if together { vec![a, b] } else { vec![b] };
    assert_eq!(world.shown(|cluster, a, b| cluster.rename(ALICE, (a, "g"), (b, "f")).unwrap()), both);
    assert_eq!(world.shown(|cluster, a, b| cluster.exchange(ALICE, (a, "d"), (b, "f")).unwrap()), both);
    assert_eq!(world.shown(|cluster, _, b| cluster.rmdir(ALICE, b, "f").unwrap()), [b]);
    assert_eq!(world.shown(|cluster, a, _| cluster.unlink(ALICE, a, "d").unwrap()), [a]);
}

#[test]
fn nothing_is_said_of_what_lies_elsewhere_or_did_not_change() {
    let mut world = World::new(1);
    let root = world.root;
    assert_eq!(
        world.shown(|cluster, a, _| {
            _ = cluster.lookup(ALICE, a, "f");
        }),
        []
    );
    assert_eq!(
        world.shown(|cluster, _, _| {
            attributes(cluster, root);
        }),
        []
    );
    // On several servers a directory's names may lie in other tablets than its node: what is said is right.
    let mut world = World::new(5);
    for number in 0..20 {
        let name = format!("f{number}");
        world.shown(|cluster, a, _| {
            _ = cluster.create(ALICE, a, &name).unwrap();
        });
        world.shown(|cluster, a, b| cluster.rename(ALICE, (a, &name), (b, &name)).unwrap());
    }
}
