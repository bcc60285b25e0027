//! The namespace over several servers, without faults.

use crate::cluster::{self, ALICE, BOB, Cluster, NAME_KEY, both, name, position, root_user};
use bearing_meta::{EntryKind, Event, Key, LogEntry, NameEntry, NameRecord, Record};
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, AttributeChange, Body, Call, Detail, LeaseKey, RenameMode};
use bearing_proto::replication::{Append, EntryBytes, ReplicationMessage, SnapshotPart};
use bearing_seams::TabletLog;
use bearing_types::{Code, Cookie, FileType, LogIndex, Mode, NameHash, ServerId, TabletSerial};
use std::time::Duration;

#[test]
fn what_is_created_is_found_listed_and_removed() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let mut made = Vec::new();
        for number in 0..40 {
            let name = format!("file-{number}");
            let node = cluster.create(ALICE, &root, &name).unwrap();
            assert_eq!(cluster.create(ALICE, &root, &name), Err(Code::Exists));
            let bobs = cluster.root(BOB).grant;
            assert_eq!(cluster.lookup(BOB, &bobs, &name), Ok(node));
            made.push(name);
        }
        made.sort();
        for page in [1, 7, 1000] {
            let mut listed = cluster.list(ALICE, &root, page);
            listed.sort();
            assert_eq!(listed, made);
        }
        for name in &made {
            cluster.unlink(ALICE, &root, name).unwrap();
            assert_eq!(cluster.unlink(ALICE, &root, name), Err(Code::NotFound));
        }
        assert!(cluster.list(ALICE, &root, 10).is_empty());
    });
}

#[test]
fn directories_nest_over_servers_and_go_only_when_empty() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        for number in 0..20 {
            let name = format!("dir-{number}");
            let node = cluster.mkdir(ALICE, &root, &name).unwrap();
            let inner = cluster.directory(ALICE, node).unwrap();
            assert_eq!(inner.parent.node, root.body.seat.node);
            let sub = cluster.mkdir(ALICE, &inner.grant, "sub").unwrap();
            assert_eq!(cluster.links(ALICE, node), Ok(3));
            assert_eq!(cluster.rmdir(ALICE, &root, &name), Err(Code::NotEmpty));
            cluster.rmdir(ALICE, &inner.grant, "sub").unwrap();
            assert_eq!(cluster.directory(ALICE, sub).map(|_| ()), Err(Code::Stale));
            cluster.rmdir(ALICE, &root, &name).unwrap();
            // The old grant is good for a while, but the directory is dead.
            assert_eq!(cluster.create(ALICE, &inner.grant, "late"), Err(Code::NotFound));
        }
        assert_eq!(
            cluster.links(
                ALICE,
                bearing_proto::client::Handle { node: root.body.seat.node, home: root.body.seat.home }
            ),
            Ok(2)
        );
    });
}

#[test]
fn what_a_client_did_not_mean_is_not_removed() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (a, b) = (
            cluster.create(ALICE, &root, "a").unwrap().node,
            cluster.create(ALICE, &root, "b").unwrap().node,
        );
        let d = cluster.mkdir(ALICE, &root, "d").unwrap().node;
        let (grant, who) = (root.clone(), root_user());
        let unlink = |node| Call::Unlink {
            grant: grant.clone(),
            who: who.clone(),
            name: name("a"),
            node,
            keep_open: false,
        };
        let rename = |moved, replaced| Call::Rename {
            source: grant.clone(),
            source_name: name("a"),
            target: grant.clone(),
            target_name: name("b"),
            who: who.clone(),
            mode: RenameMode::Replace,
            moved,
            replaced,
            keep_open: false,
        };
        let rmdir =
            |node| Call::RemoveDirectory { grant: grant.clone(), who: who.clone(), name: name("d"), node };
        for (call, at) in [
            (unlink(b), "a"),
            (rmdir(a), "d"),
            (rename(b, Some(b)), "b"),
            (rename(a, Some(a)), "b"),
            (rename(a, None), "b"),
        ] {
            assert_eq!(cluster.call(ALICE, position(&root, at), call.clone()), Err(Code::Stale), "{call:?}");
        }
        for (call, at) in [(rename(a, Some(b)), "b"), (rmdir(d), "d")] {
            cluster.call(ALICE, position(&root, at), call).unwrap();
        }
    });
}

#[test]
fn renames_move_names_never_nodes() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (a, a_grant) = cluster.make(ALICE, &root, "a");
        let (b, b_grant) = cluster.make(ALICE, &root, "b");
        for number in 0..20 {
            let (old, new) = (format!("f{number}"), format!("g{number}"));
            let node = cluster.create(ALICE, &a_grant, &old).unwrap();
            cluster.rename(ALICE, (&a_grant, &old), (&b_grant, &new)).unwrap();
            assert_eq!(cluster.lookup(ALICE, &a_grant, &old), Err(Code::NotFound));
            assert_eq!(cluster.lookup(ALICE, &b_grant, &new), Ok(node));
            let other = cluster.create(ALICE, &a_grant, &old).unwrap();
            cluster.rename(ALICE, (&a_grant, &old), (&b_grant, &new)).unwrap();
            assert_eq!(cluster.lookup(ALICE, &b_grant, &new), Ok(other));
            assert_eq!(cluster.links(ALICE, node), Err(Code::Stale));
        }
        let (deep, deep_grant) = cluster.make(ALICE, &b_grant, "deep");
        assert_eq!(cluster.rename(ALICE, (&root, "b"), (&deep_grant, "loop")), Err(Code::InvalidArgument));
        cluster.rename(ALICE, (&root, "a"), (&deep_grant, "a")).unwrap();
        assert_eq!(cluster.directory(ALICE, a).unwrap().parent, deep);
        assert_eq!(cluster.links(ALICE, deep), Ok(3));
        assert_eq!(cluster.rename(ALICE, (&root, "missing"), (&root, "x")), Err(Code::NotFound));
        cluster.rename(ALICE, (&root, "b"), (&root, "b")).unwrap();
        assert_eq!(cluster.lookup(ALICE, &root, "b"), Ok(b));
    });
}

#[test]
fn names_that_changed_places_are_leased_to_who_asked_for_as_long_as_its_kernel_may_go_by_them() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (a, a_grant) = cluster.make(ALICE, &root, "a");
        let (b, b_grant) = cluster.make(ALICE, &root, "b");
        let mut bobs = |directory| cluster.directory(BOB, directory).unwrap().grant;
        let (bobs_a, bobs_b) = (bobs(a), bobs(b));
        for number in 0..10 {
            let text = format!("f{number}");
            cluster.create(ALICE, &a_grant, &text).unwrap();
            cluster.create(ALICE, &b_grant, &text).unwrap();
            cluster.pass_with(&[ALICE, BOB], Duration::from_secs(4));
            cluster.exchange(ALICE, (&a_grant, &text), (&b_grant, &text)).unwrap();
            cluster.pass_with(&[ALICE, BOB], Duration::from_millis(2800));
            for (directory, grant) in [(a, &bobs_a), (b, &bobs_b)] {
                cluster.recalls.clear();
                cluster.unlink(BOB, grant, &text).unwrap();
                let key = LeaseKey::Name(directory.node, NameHash::of(NAME_KEY, &name(&text)));
                assert!(recalled(&cluster, key), "{text} of {directory:?}: {:?}", cluster.recalls);
            }
        }
    });
}

fn recalled(cluster: &Cluster, key: LeaseKey) -> bool {
    cluster.recalls.iter().any(|(of, recall)| *of == ALICE && recall.keys.contains(&key))
}

#[test]
fn who_changes_a_node_keeps_the_lease_that_its_kernel_was_told_of() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let node = cluster.create(ALICE, &root, "f").unwrap();
        cluster.link(ALICE, node, &root, "g").unwrap();
        (0..10).for_each(|_| assert_eq!(cluster.links(ALICE, node), Ok(2)));
        cluster.unlink(ALICE, &root, "f").unwrap();
        cluster.pass(Duration::from_millis(500));
        cluster.recalls.clear();
        let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
        let call = Call::SetAttributes { node, who: root_user(), change, token: None };
        cluster.call(BOB, node.home, call).unwrap();
        assert!(recalled(&cluster, LeaseKey::File(node.node)), "{:?}", cluster.recalls);
    });
}

#[test]
fn the_first_name_in_another_tablet_changes_what_is_leased_of_its_directory() {
    let mut cluster = Cluster::new(3, Scheme::Hash);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let view = cluster.root(ALICE);
    assert!(view.node.lease.0 > 0);
    cluster.recalls.clear();
    let root = cluster.root(BOB).grant;
    let home = cluster.owner(root.body.seat.home).1;
    let elsewhere = |text: &String| !home.contains(position(&root, text));
    let text = (0..100).map(|number| format!("f{number}")).find(elsewhere).unwrap();
    cluster.create(BOB, &root, &text).unwrap();
    let key = LeaseKey::Content(root.body.seat.node);
    assert!(recalled(&cluster, key), "{:?}", cluster.recalls);
}

#[test]
fn two_names_change_places_whatever_they_lead_to() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (a, a_grant) = cluster.make(ALICE, &root, "a");
        let (b, b_grant) = cluster.make(ALICE, &root, "b");
        for number in 0..10 {
            let (left, right) = (format!("f{number}"), format!("d{number}"));
            let file = cluster.create(ALICE, &a_grant, &left).unwrap();
            let directory = cluster.mkdir(ALICE, &b_grant, &right).unwrap();
            assert_eq!((cluster.links(ALICE, a), cluster.links(ALICE, b)), (Ok(2), Ok(3)));
            cluster.exchange(ALICE, (&a_grant, &left), (&b_grant, &right)).unwrap();
            assert_eq!(cluster.lookup(ALICE, &a_grant, &left), Ok(directory));
            assert_eq!(cluster.lookup(ALICE, &b_grant, &right), Ok(file));
            assert_eq!(cluster.directory(ALICE, directory).unwrap().parent, a);
            assert_eq!((cluster.links(ALICE, a), cluster.links(ALICE, b)), (Ok(3), Ok(2)));
            cluster.rmdir(ALICE, &a_grant, &left).unwrap();
            assert_eq!(cluster.links(ALICE, file), Ok(1));
        }
        let inner = cluster.mkdir(ALICE, &a_grant, "inner").unwrap();
        cluster.exchange(ALICE, (&a_grant, "inner"), (&root, "b")).unwrap();
        assert_eq!(cluster.lookup(ALICE, &root, "b"), Ok(inner));
        assert_eq!(cluster.directory(ALICE, b).unwrap().parent, a);
        assert_eq!(cluster.directory(ALICE, inner).unwrap().parent.node, root.body.seat.node);
        // Nothing is made where nothing was, and no directory gets below itself, from whichever side it is
        // asked.
        let exchange = |cluster: &mut Cluster, from, to| cluster.exchange(ALICE, from, to);
        assert_eq!(exchange(&mut cluster, (&root, "a"), (&root, "none")), Err(Code::NotFound));
        assert_eq!(exchange(&mut cluster, (&root, "none"), (&root, "a")), Err(Code::NotFound));
        assert_eq!(exchange(&mut cluster, (&root, "a"), (&b_grant, "d0")), Err(Code::InvalidArgument));
        assert_eq!(exchange(&mut cluster, (&b_grant, "d0"), (&root, "a")), Err(Code::InvalidArgument));
        exchange(&mut cluster, (&root, "a"), (&root, "a")).unwrap();
        assert_eq!(cluster.lookup(ALICE, &root, "a"), Ok(a));
        assert_eq!(cluster.links(ALICE, a), Ok(3));
        // Who saw a name and, after somebody renamed it, the other one saw one node twice.
        let call = Call::Rename {
            source: root.clone(),
            source_name: name("none"),
            target: root.clone(),
            target_name: name("a"),
            who: root_user(),
            mode: RenameMode::Exchange,
            moved: a.node,
            replaced: Some(a.node),
            keep_open: false,
        };
        assert_eq!(cluster.call(ALICE, position(&root, "a"), call), Err(Code::NotFound));
    });
}

#[test]
fn links_count_their_names() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (directory, grant) = cluster.make(ALICE, &root, "d");
        let node = cluster.create(ALICE, &grant, "one").unwrap();
        for number in 0..10 {
            cluster.link(ALICE, node, &root, &format!("l{number}")).unwrap();
        }
        assert_eq!(cluster.link(ALICE, node, &root, "l3"), Err(Code::Exists));
        assert_eq!(cluster.link(ALICE, directory, &root, "dir"), Err(Code::NotPermitted));
        assert_eq!(cluster.links(ALICE, node), Ok(11));
        cluster.rename(ALICE, (&root, "l0"), (&root, "l1")).unwrap();
        assert_eq!(cluster.links(ALICE, node), Ok(11));
        for number in 0..10 {
            cluster.unlink(ALICE, &root, &format!("l{number}")).unwrap();
        }
        assert_eq!(cluster.links(ALICE, node), Ok(1));
        cluster.unlink(ALICE, &grant, "one").unwrap();
        assert_eq!(cluster.links(ALICE, node), Err(Code::Stale));
    });
}

#[test]
fn everything_is_there_after_all_servers_restarted() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let (directory, grant) = cluster.make(ALICE, &root, "d");
        let node = cluster.create(ALICE, &grant, "f").unwrap();
        let epoch = cluster.owner(directory.home).2;
        for id in 1..=3 {
            cluster.restart(ServerId(id));
        }
        assert!(cluster.owner(directory.home).2 > epoch);
        assert_eq!(cluster.lookup(ALICE, &root, "d"), Ok(directory));
        assert_eq!(cluster.lookup(ALICE, &grant, "f"), Ok(node));
        cluster.create(ALICE, &grant, "g").unwrap();
        cluster.rename(ALICE, (&root, "d"), (&root, "e")).unwrap();
    });
}

#[test]
fn a_repeated_mutation_is_executed_once_also_after_a_restart() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let sequence = cluster.new_sequence();
        let call = bearing_proto::client::Call::MakeDirectory {
            grant: root.clone(),
            who: cluster::root_user(),
            name: cluster::name("once"),
            mode: bearing_types::Mode::new(0o700),
        };
        let position = cluster::position(&root, "once");
        let first = cluster.call_as(ALICE, sequence, position, call.clone()).unwrap();
        assert_eq!(cluster.call_as(ALICE, sequence, position, call.clone()), Ok(first.clone()));
        let owner = cluster.owner(position).0;
        cluster.restart(owner);
        assert_eq!(cluster.call_as(ALICE, sequence, position, call), Ok(first));
    });
}

#[test]
fn a_change_recalls_what_others_hold_and_then_goes_through() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let node = cluster.create(ALICE, &root, "f").unwrap();
        let bobs = cluster.root(BOB).grant;
        cluster.lookup(BOB, &bobs, "f").unwrap();
        cluster.recalls.clear();
        cluster.unlink(ALICE, &root, "f").unwrap();
        assert!(cluster.recalls.iter().any(|(session, _)| *session == BOB));
        assert_eq!(cluster.links(ALICE, node), Err(Code::Stale));
        // A holder that never answers delays the change by its lease, not for ever.
        cluster.create(ALICE, &root, "g").unwrap();
        cluster.lookup(BOB, &bobs, "g").unwrap();
        cluster.obedient = false;
        cluster.unlink(ALICE, &root, "g").unwrap();
    });
}

#[test]
fn a_tablet_that_was_moved_serves_at_its_new_owner() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        for number in 0..300 {
            cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
        }
        let (owner, block, epoch) = cluster.owner(root.body.seat.home);
        let to = ServerId(owner.0 % 3 + 1);
        cluster.send(owner, bearing_meta::Event::Move(block, to));
        cluster.pass(Duration::from_secs(1));
        let (now_owner, _, now_epoch) = cluster.owner(root.body.seat.home);
        assert_eq!(now_owner, to);
        assert!(now_epoch > epoch);
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 300);
        cluster.unlink(ALICE, &root, "f7").unwrap();
        cluster.restart(to);
        cluster.restart(owner);
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 299);
    });
}

#[test]
fn a_late_part_of_a_snapshot_is_not_taken() {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "f").unwrap();
    let (owner, block, epoch) = cluster.owner(root.body.seat.home);
    let to = ServerId(owner.0 % 3 + 1);
    for (from, to) in [(owner, to), (to, owner)] {
        cluster.send(from, Event::Move(block, to));
        cluster.pass(Duration::from_secs(1));
    }
    // The network kept the first part of the first snapshot until now. Taking it would make void whatever the
    // server holds of the tablet.
    let logged =
        |cluster: &mut Cluster| cluster.hosts.get_mut(&to).unwrap().log.read(None, 1 << 20).unwrap().len();
    let before = logged(&mut cluster);
    for snapshot in [epoch.next(), cluster.owner(root.body.seat.home).2] {
        let kind = EntryKind::Part { first: true, last: false };
        let entry = EntryBytes(LogEntry { kind, changes: Vec::new() }.encode());
        let serial = TabletSerial::of_first(block).unwrap();
        let (base, end) = (LogIndex(1 << 20), LogIndex(1 << 20));
        let part = SnapshotPart { serial, epoch: snapshot, snapshot, base, end, number: 0, entry };
        let append = Append { parts: vec![part], ..Append::default() };
        cluster.send(to, Event::Replication(owner, ReplicationMessage::Append(append)));
    }
    assert_eq!(logged(&mut cluster), before);
}

#[test]
fn a_listing_goes_on_behind_any_number_of_places_kept_for_removed_names() {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &root, "first").unwrap();
    let (directory, hash) = (root.body.seat.node, NameHash::from_bits(1 << 20));
    let (owner, tablet, _) = cluster.owner(root.body.seat.position_of(hash));
    let kept = (1..=100).map(|ordinal| {
        (Key::Name(directory, hash, ordinal), Record::Name(NameRecord { entry: None, more: true }))
    });
    let entry = NameEntry { name: name("behind"), node: file, file_type: FileType::Regular };
    let last = Record::Name(NameRecord { entry: Some(entry), more: false });
    let records: Vec<_> = kept.chain([(Key::Name(directory, hash, 101), last)]).collect();
    cluster.plant(owner, tablet, &records);
    let root = cluster.root(ALICE).grant;
    for count_max in [1, 15, 16, 17, 99, 100, 101, 1000] {
        let mut names = cluster.list(ALICE, &root, count_max);
        names.sort();
        assert_eq!(names, ["behind", "first"], "in pages of {count_max}");
    }
}

#[test]
fn a_listing_has_attributes_only_if_they_are_wanted() {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &root, "file").unwrap();
    for detail in [Detail::Attributes, Detail::Names, Detail::Lookups] {
        let (grant, who, after) = (root.clone(), root_user(), Cookie::START);
        let call = Call::List { grant, who, after, count_max: 10, detail };
        let Ok(Body::List { entries, .. }) = cluster.call(ALICE, position(&root, "file"), call) else {
            panic!("a listing")
        };
        assert_eq!((entries.len(), entries[0].node), (1, file));
        assert_eq!(entries[0].attributes.is_some(), detail == Detail::Attributes);
        let found = entries[0].found.as_ref().map(|found| (found.node, found.lease.0 > 0));
        assert_eq!(found, (detail == Detail::Lookups).then_some((file, true)), "as a lookup says it");
    }
}

#[test]
fn a_listing_that_waited_for_a_name_shows_it_whatever_went_to_the_store_meanwhile() {
    let mut cluster = Cluster::new(3, Scheme::Hash);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    // Every tablet has a fragment, and asks nobody before it takes a name.
    for number in 0..200 {
        cluster.create(ALICE, &root, &format!("file-{number}")).unwrap();
    }
    let mut waited = 0;
    for number in 0..8 {
        let text = format!("directory-{number}");
        let at = position(&root, &text);
        let mode = Mode::new(0o755);
        let make = Call::MakeDirectory { grant: root.clone(), who: root_user(), name: name(&text), mode };
        let after = Cookie::new(NameHash::of(NAME_KEY, &name(&text)), 0);
        let list = Call::List {
            grant: root.clone(),
            who: root_user(),
            after,
            count_max: 1,
            detail: Detail::Attributes,
        };
        cluster.hold_peers = true;
        let (make, list) = (cluster.send_call(ALICE, at, make), cluster.send_call(ALICE, at, list));
        let waits = cluster.answer(ALICE, list).is_none();
        // What is committed goes to the store.
        cluster.pass(Duration::from_millis(100));
        cluster.release_peers();
        cluster.pass(Duration::from_millis(100));
        assert!(matches!(cluster.answer(ALICE, make), Some(Answer::Done { result: Ok(_), .. })));
        let Some(Answer::Done { result: Ok(body), .. }) = cluster.answer(ALICE, list) else {
            panic!("a listing")
        };
        let Body::List { entries, .. } = *body else { panic!("a listing") };
        assert_eq!(entries[0].name.to_string(), text);
        waited += u32::from(waits);
    }
    assert!(waited > 2, "most directories live in other tablets than their names");
}

#[test]
fn what_a_lease_put_off_in_another_tablet_is_done_as_soon_as_that_is_given_up() {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    let grant = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &grant, "file").unwrap();
    // The node lives with its first name; of some directories the names lie in other tablets.
    let elsewhere = (0..20).find_map(|number| {
        let directory = cluster.mkdir(ALICE, &grant, &format!("d{number}")).unwrap();
        let grant = cluster.directory(ALICE, directory).unwrap().grant;
        (cluster.owner(position(&grant, "h")).1 != cluster.owner(file.home).1).then_some(grant)
    });
    let elsewhere = elsewhere.expect("one of twenty");
    cluster.link(ALICE, file, &elsewhere, "h").unwrap();
    cluster.pass(Duration::from_secs(2));
    let attributes = cluster.call(ALICE, file.home, Call::Attributes { node: file }).unwrap();
    assert!(matches!(attributes, Body::Node(view) if view.lease.0 > 0));
    let before = cluster.now.mono;
    cluster.unlink(ALICE, &elsewhere, "h").unwrap();
    let waited = cluster.now.mono.since(before);
    assert!(waited < Duration::from_millis(20), "{waited:?}: not by the next resend");
    assert_eq!(cluster.links(ALICE, file), Ok(1));
}
