//! Tablets that lie on several servers.

use crate::cluster::members::COORDINATOR;
use crate::cluster::{self, ALICE, BOB, Cluster};
use bearing_meta::{Event, Key};
use bearing_proto::client::{Answer, Body, Call, Detail, Handle, Request};
use bearing_proto::replication::{Entries, EntryBytes, ReplicationMessage};
use bearing_seams::{DiskLabel, KeyRange, LoggedRecord, MemTabletLog, Store, TabletLog};
use bearing_types::{LogIndex, Position, Sequence, ServerId, Squash, TabletSerial};
use std::collections::BTreeMap;
use std::time::Duration;

fn cluster(copies: u8) -> Cluster {
    let mut cluster = Cluster::with_copies(5, copies);
    cluster.open_session(ALICE);
    cluster
}

#[test]
fn successors_serve_what_a_killed_server_owned_and_what_it_answered_is_there() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    for number in 0..100 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    let before = cluster.owners();
    let (dead, ..) = cluster.owner(root.body.seat.home);
    cluster.kill(dead);
    cluster.pass(Duration::from_millis(600));
    let after = cluster.owners();
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "all tablets are served");
    for (start, (owner, epoch)) in &after {
        let (owner_before, epoch_before) = before[start];
        assert_eq!(owner_before == dead, *owner != owner_before, "others keep theirs");
        assert!(owner_before != dead || *epoch > epoch_before);
    }
    let heirs: std::collections::BTreeSet<ServerId> =
        after.iter().filter(|(start, _)| before[start].0 == dead).map(|(_, (owner, _))| *owner).collect();
    assert_eq!(heirs.len(), 2, "a death spreads over both successors");
    cluster.pass(Duration::from_secs(4));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 1000).len(), 100);
    cluster.create(ALICE, &root, "another").unwrap();
}

#[test]
fn who_asks_a_member_while_the_owner_is_silent_is_answered_as_soon_as_somebody_serves() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let (dead, _, epoch) = cluster.owner(home);
    let members = cluster.register_of(home).members;
    let asked: Vec<ServerId> = members.into_iter().filter(|member| *member != dead).collect();
    cluster.kill(dead);
    cluster.pass(Duration::from_millis(150));
    let call = Call::Root { filesystem: root.body.filesystem };
    let mut requests = Vec::new();
    for member in &asked {
        let sequence = cluster.new_sequence();
        let request =
            Request { sequence, finished_below: Sequence(0), position: home, epoch, call: call.clone() };
        cluster.send(*member, Event::Request(ALICE, Squash::None, request));
        requests.push(sequence);
    }
    let answers = |cluster: &Cluster| -> Vec<Option<Answer>> {
        requests.iter().map(|sequence| cluster.answer(ALICE, *sequence)).collect()
    };
    assert_eq!(answers(&cluster), [None, None], "nobody serves it yet");
    cluster.pass(Duration::from_millis(200));
    let (heir, ..) = cluster.owner(home);
    for (member, answer) in asked.iter().zip(answers(&cluster)) {
        match answer {
            Some(Answer::Done { result: Ok(_), .. }) => assert_eq!(*member, heir),
            Some(Answer::Referral { owner, .. }) => assert!(owner == heir && *member != heir),
            other => panic!("{member} answers {other:?}"),
        }
    }
}

#[test]
fn with_two_copies_a_lone_survivor_goes_on_and_with_three_it_only_answers() {
    for copies in [2, 3] {
        let mut cluster = cluster(copies);
        let root = cluster.root(ALICE).grant;
        cluster.create(ALICE, &root, "f").unwrap();
        let home = root.body.seat.home;
        // No other server lives that could have a copy.
        let members = cluster.register_of(home).members;
        let others: Vec<ServerId> =
            cluster.hosts.keys().copied().filter(|server| !members.contains(server)).collect();
        others.into_iter().for_each(|server| drop(cluster.kill(server)));
        for _ in 1..copies {
            let (owner, ..) = cluster.owner(home);
            cluster.kill(owner);
            cluster.pass(Duration::from_secs(6));
        }
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 1);
        let (name, at) = (cluster::name("g"), cluster::position(&root, "g"));
        let call =
            Call::Create { grant: root, who: cluster::root_user(), name, new: cluster::regular(0o644) };
        assert_eq!(cluster.is_done_in_time(ALICE, at, call), copies == 2, "{copies} copies");
    }
}

/// Alice has opened a file; a while later all die but the owner of its tablet. Then she asks for files that
/// she was never told of, or does not.
fn with_a_lone_survivor(alive_for: Duration, asks: bool) -> (Cluster, Handle, Call) {
    let mut cluster = cluster(3);
    cluster.open_session(BOB);
    let (root, his) = (cluster.root(ALICE).grant, cluster.root(BOB).grant);
    let node = cluster.create(ALICE, &root, "f").unwrap();
    let who = cluster::root_user();
    let open = Call::Open { node, who, read: true, write: false, truncate: false, execute: false };
    assert!(cluster.is_done_in_time(ALICE, node.home, open.clone()));
    let mut newer: Vec<Handle> =
        (0..64).map(|number| cluster.create(BOB, &his, &format!("n{number}")).unwrap()).collect();
    newer.retain(|other| asks && cluster.owner(other.home) == cluster.owner(node.home));
    cluster.pass(alive_for);
    let (owner, ..) = cluster.owner(node.home);
    let others: Vec<ServerId> = cluster.hosts.keys().copied().filter(|server| *server != owner).collect();
    others.into_iter().for_each(|server| drop(cluster.kill(server)));
    for node in newer {
        cluster.send_call(ALICE, node.home, Call::Attributes { node });
    }
    (cluster, node, open)
}

#[test]
fn a_lone_survivor_of_three_opens_files_also_when_leases_have_ended() {
    // They also end, and more are given, before it is clear who is left.
    for alive_for in (0..=3000).step_by(200).map(Duration::from_millis) {
        let (mut cluster, node, open) = with_a_lone_survivor(alive_for, true);
        for seconds in [4, 8, 12] {
            cluster.pass(Duration::from_secs(4));
            let opened = cluster.is_done_in_time(ALICE, node.home, open.clone());
            assert!(opened, "{seconds} s after the others died, {alive_for:?} after the lease");
        }
    }
}

#[test]
fn a_lone_survivor_of_three_leases_what_it_could_lease_before() {
    let (mut cluster, node, _) = with_a_lone_survivor(Duration::ZERO, false);
    cluster.pass(Duration::from_secs(12));
    let looked = cluster.answer_of(ALICE, node.home, Call::Attributes { node });
    let Some(Answer::Done { result: Ok(body), .. }) = looked else { panic!("{looked:?}") };
    let Body::Node(view) = *body else { panic!("{body:?}") };
    assert!(view.lease.0 > 0);
}

#[test]
fn with_one_copy_of_three_left_nothing_is_done_until_there_is_a_second_one() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    cluster.create(ALICE, &root, "f").unwrap();
    let members = cluster.register_of(home).members;
    let mut spare = cluster.hosts.keys().copied().filter(|server| !members.contains(server));
    let (learner, other) = (spare.next().unwrap(), spare.next().unwrap());
    drop(spare);
    // The only server that could learn it does not get on.
    cluster.hung_log = Some(learner);
    let create = |name: &str| {
        let (who, name, new) = (cluster::root_user(), cluster::name(name), cluster::regular(0o644));
        Call::Create { grant: root.clone(), who, name, new }
    };
    let at = cluster::position(&root, "g");
    for server in [members[1], members[2], other] {
        cluster.kill(server);
    }
    // One is on its way when the others die, one comes later.
    let early = cluster.send_call(ALICE, at, create("g"));
    cluster.pass(Duration::from_secs(2));
    let late = cluster.send_call(ALICE, at, create("h"));
    cluster.pass(Duration::from_secs(4));
    let register = cluster.register_of(home);
    assert!(register.members == [members[0]] && register.learner == Some(learner), "{register:?}");
    let done = |answer: Option<Answer>| matches!(answer, Some(Answer::Done { .. }));
    assert!(!done(cluster.answer(ALICE, early)) && !done(cluster.answer(ALICE, late)));
    cluster.release_syncs();
    cluster.pass(Duration::from_secs(4));
    assert!(cluster.register_of(home).members.len() == 2 && done(cluster.answer(ALICE, early)));
    cluster.create(ALICE, &root, "i").unwrap();
}

#[test]
fn an_owner_whose_log_hangs_is_done_without_however_much_is_asked_of_it() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "before").unwrap();
    let home = root.body.seat.home;
    let (hung, _, epoch) = cluster.owner(home);
    cluster.hung_log = Some(hung);
    for number in 0..40 {
        let (name, who) = (cluster::name(&format!("f{number}")), cluster::root_user());
        let call = Call::Create { grant: root.clone(), who, name, new: cluster::regular(0o644) };
        let sequence = cluster.new_sequence();
        let position = cluster::position(&root, &format!("f{number}"));
        let finished_below = Sequence(0);
        let request = Request { sequence, finished_below, position, epoch, call };
        cluster.send(hung, Event::Request(ALICE, Squash::None, request));
        cluster.pass(Duration::from_millis(50));
    }
    assert!(cluster.owners().values().all(|(owner, _)| *owner != hung), "{hung}: {:?}", cluster.owners());
    cluster.create(ALICE, &root, "after").unwrap();
    cluster.release_syncs();
    cluster.pass(Duration::from_secs(5));
    let root = cluster.root(ALICE).grant;
    let found = cluster.list(ALICE, &root, 100);
    assert!(["before", "after"].iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
}

#[test]
fn a_member_that_dies_is_swapped_out_and_one_that_is_back_in_time_is_not() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let (owner, ..) = cluster.owner(home);
    let member = ServerId(owner.0 % 5 + 1);
    let before = cluster.register_of(home);
    assert_eq!(before.members[..2], [owner, member]);
    let log = cluster.kill(member);
    cluster.pass(Duration::from_millis(100));
    cluster.revive(member, log);
    cluster.pass(Duration::from_millis(300));
    assert_eq!(cluster.register_of(home), before);
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.kill(member);
    cluster.pass(Duration::from_secs(3));
    let after = cluster.register_of(home);
    assert_eq!((after.owner, after.members.len(), after.learner), (owner, 3, None), "another has a copy");
    assert!(!after.members.contains(&member) && after.epoch > before.epoch);
    let root = cluster.root(ALICE).grant;
    cluster.create(ALICE, &root, "g").unwrap();
}

#[test]
fn a_tablet_whose_next_owner_dies_is_served_by_the_old_one_as_soon_as_that_is_a_member_no_more() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let (owner, _, epoch) = cluster.owner(home);
    let member = ServerId(owner.0 % 5 + 1);
    let block = cluster.register_of(home).block;
    cluster.kill(member);
    cluster.send(owner, Event::Move(block, member));
    cluster.pass(Duration::from_millis(100));
    assert!(cluster.register_of(home).members.contains(&member));
    let ask = |cluster: &mut Cluster| {
        let sequence = cluster.new_sequence();
        let call = Call::Root { filesystem: root.body.filesystem };
        let request = Request { sequence, finished_below: Sequence(0), position: home, epoch, call };
        cluster.send(owner, Event::Request(ALICE, Squash::None, request));
        cluster.answer(ALICE, sequence)
    };
    assert!(matches!(ask(&mut cluster), Some(Answer::Retry { .. })), "it is left to its next owner");
    cluster.pass(Duration::from_secs(1));
    assert!(!cluster.register_of(home).members.contains(&member));
    let answer = ask(&mut cluster);
    assert!(matches!(answer, Some(Answer::Done { result: Ok(_), .. })), "{answer:?}");
}

/// What servers have stored of a tablet, but for what is of their disks.
fn stored(cluster: &mut Cluster, server: ServerId, serial: TabletSerial) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = KeyRange { start: Vec::new(), end: Some(Key::Intent.encode()) };
    cluster.hosts.get_mut(&server).unwrap().store.range(serial, &all, usize::MAX).unwrap()
}

#[test]
fn copies_are_made_again_while_the_tablet_is_served_and_all_of_them_are_the_same() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    for number in 0..300 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    let member = cluster.register_of(home).members[1];
    let log = cluster.kill(member);
    for number in 0..200 {
        let root = cluster.root(ALICE).grant;
        cluster.create(ALICE, &root, &format!("g{number}")).unwrap();
        cluster.unlink(ALICE, &root, &format!("f{number}")).unwrap();
        cluster.pass(Duration::from_millis(10));
    }
    cluster.pass(Duration::from_secs(2));
    let healed = cluster.register_of(home);
    assert!(healed.members.len() == 3 && !healed.members.contains(&member), "{healed:?}");
    // Who is back has nothing to do until somebody lacks a copy again.
    cluster.revive(member, log);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.register_of(home).members, healed.members);
    let owner = healed.owner;
    let of_owner = stored(&mut cluster, owner, healed.serial);
    assert!(of_owner.len() > 20, "{}", of_owner.len());
    for server in healed.members {
        assert!(stored(&mut cluster, server, healed.serial) == of_owner, "{server} has the same as {owner}");
    }
    cluster.kill(owner);
    cluster.pass(Duration::from_secs(3));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 1000).len(), 300);
    assert_eq!(cluster.register_of(home).members.len(), 3);
}

#[test]
fn three_servers_of_which_one_comes_back_have_three_copies_again() {
    let mut cluster = Cluster::with_copies(3, 3);
    cluster.open_session(ALICE);
    let home = cluster.root(ALICE).grant.body.seat.home;
    for _ in 0..3 {
        let root = cluster.root(ALICE).grant;
        let (owner, ..) = cluster.owner(home);
        let log = cluster.kill(owner);
        cluster.pass(Duration::from_secs(3));
        assert_eq!(cluster.register_of(home).members.len(), 2);
        cluster.create(ALICE, &root, &format!("without {owner}")).unwrap();
        cluster.revive(owner, log);
        cluster.pass(Duration::from_secs(2));
        assert_eq!(cluster.register_of(home).members.len(), 3);
    }
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 100).len(), 3);
}

/// Spoils the first key of a tablet, in a server's store, that is like this; and starts the server again, so
/// that nothing is cached.
fn spoil(cluster: &mut Cluster, server: ServerId, serial: TabletSerial, is_wanted: impl Fn(&Key) -> bool) {
    let at = stored(cluster, server, serial);
    let wanted = |(key, _): &(Vec<u8>, Vec<u8>)| Key::decode(key).is_some_and(|key| is_wanted(&key));
    let at = at.iter().position(wanted).expect("there is such a key");
    let host = cluster.hosts.get_mut(&server).unwrap();
    let (mut store, log) = (host.store.clone(), host.log.clone());
    assert!(store.spoil(serial, at as u64));
    cluster.replace_disk(server, store, log);
}

#[test]
fn records_that_cannot_be_read_are_served_by_another_member_and_learnt_anew() {
    let wanted: [fn(&Key) -> bool; 2] = [
        // Read when the tablet is about to be served, and only when somebody asks.
        |key| *key == Key::Node(bearing_types::NodeId::ROOT),
        |key| matches!(key, Key::Name(..)),
    ];
    for is_wanted in wanted {
        let mut cluster = cluster(3);
        let root = cluster.root(ALICE).grant;
        let home = root.body.seat.home;
        (0..50).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
        cluster.pass(Duration::from_millis(300));
        let before = cluster.register_of(home);
        cluster.may_complain = true;
        spoil(&mut cluster, before.owner, before.serial, is_wanted);
        cluster.pass(Duration::from_millis(300));
        let list = Call::List {
            grant: root.clone(),
            who: cluster::root_user(),
            after: bearing_types::Cookie::START,
            count_max: 1000,
            detail: Detail::Names,
        };
        let done = (0..3).any(|_| cluster.is_done_in_time(ALICE, home, list.clone()));
        assert!(done, "{:?}", cluster.complaints);
        let after = cluster.register_of(home);
        assert!(after.owner != before.owner && after.epoch > before.epoch, "another member serves it");
        cluster.pass(Duration::from_secs(3));
        let healed = cluster.register_of(home);
        assert_eq!(healed.members.len(), 3, "{healed:?}");
        let whole = stored(&mut cluster, healed.owner, healed.serial);
        for member in healed.members {
            assert!(stored(&mut cluster, member, healed.serial) == whole, "{member}");
        }
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 1000).len(), 50);
    }
}

#[test]
fn after_a_restart_of_all_a_member_that_has_everything_stays_one_whatever_it_knows_to_be_committed() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    (0..3).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
    let before = cluster.register_of(home);
    let servers: Vec<ServerId> = cluster.hosts.keys().copied().collect();
    let mut logs: BTreeMap<ServerId, _> =
        servers.into_iter().map(|server| (server, cluster.kill(server))).collect();
    cluster.revive(before.owner, logs.remove(&before.owner).unwrap());
    cluster.pass(Duration::from_millis(10));
    logs.into_iter().for_each(|(server, log)| cluster.revive(server, log));
    cluster.pass(Duration::from_secs(3));
    let after = cluster.register_of(home);
    assert_eq!((after.members, after.epoch), (before.members, before.epoch.next()), "nobody is swapped out");
}

#[test]
fn an_owner_that_starts_with_a_tablet_that_it_cannot_read_serves_the_others_and_learns_it_anew() {
    // All lost power, perhaps, and the others' logs, that were cut, name no epoch.
    for all_are_cut in [false, true] {
        let mut cluster = cluster(3);
        let root = cluster.root(ALICE).grant;
        let home = root.body.seat.home;
        (0..9).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
        cluster.pass(Duration::from_secs(1));
        let before = cluster.register_of(home);
        let mut store = cluster.hosts[&before.owner].store.clone();
        // Of what it intended nothing can be read, and the log that said so too is cut.
        let all = KeyRange { start: Vec::new(), end: None };
        let keys = store.range(before.serial, &all, usize::MAX).unwrap();
        let at = keys.iter().position(|(key, _)| *key == Key::Intent.encode()).expect("it is stored");
        assert!(store.spoil(before.serial, at as u64));
        cluster.may_complain = true;
        let mut starts = vec![(before.owner, store)];
        let members = before.members[1..].iter().filter(|_| all_are_cut);
        starts.extend(members.map(|member| (*member, cluster.hosts[member].store.clone())));
        for (server, mut store) in starts {
            let mut log = MemTabletLog::default();
            log.set_disk(store.disk().unwrap().unwrap()).unwrap();
            cluster.replace_disk(server, store, log);
        }
        cluster.pass(Duration::from_secs(6));
        let after = cluster.register(before.block);
        assert!(after.owner != before.owner && after.members.len() == 3, "{after:?}");
        assert!(cluster.owners().values().any(|(owner, _)| *owner == before.owner));
        let whole = stored(&mut cluster, after.owner, after.serial);
        for server in after.members {
            assert!(stored(&mut cluster, server, after.serial) == whole, "{server}");
        }
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 9);
    }
}

#[test]
fn a_member_whose_log_was_cut_stays_one_though_nothing_changes() {
    let mut cluster = cluster(3);
    // Sessions end and the like, then nothing is logged any more.
    cluster.pass(Duration::from_mins(2));
    let places: Vec<Position> = cluster.owners().into_keys().collect();
    let members = |cluster: &mut Cluster| {
        let registers = places.iter().map(|place| cluster.register_of(*place));
        registers.map(|register| (register.serial, register.members)).collect::<BTreeMap<_, _>>()
    };
    let before = members(&mut cluster);
    for server in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        let (mut store, mut log) = (cluster.hosts[&server].store.clone(), MemTabletLog::default());
        log.set_disk(store.disk().unwrap().unwrap()).unwrap();
        cluster.replace_disk(server, store, log);
        cluster.pass(Duration::from_secs(3));
        assert_eq!(members(&mut cluster), before, "{server} is swapped out");
    }
}

/// The second member of the root's tablet, which lies at this position, cannot read a name of it.
fn with_a_spoilt_member() -> (Cluster, Position) {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
    cluster.pass(Duration::from_millis(500));
    let register = cluster.register_of(home);
    cluster.may_complain = true;
    spoil(&mut cluster, register.members[1], register.serial, |key| matches!(key, Key::Name(..)));
    cluster.pass(Duration::from_secs(1));
    (cluster, home)
}

#[test]
fn the_first_entries_of_a_tablet_that_come_late_are_no_copy_of_what_a_member_dropped() {
    let (mut cluster, home) = with_a_spoilt_member();
    let before = cluster.register_of(home);
    let member = before.members[1];
    let first = cluster.hosts.get_mut(&before.owner).unwrap().log.read(None, usize::MAX).unwrap();
    let is_first = |record: &LoggedRecord| record.serial == before.serial && record.index == LogIndex(1);
    let (_, first) = first.into_iter().find(|(_, record)| is_first(record)).unwrap();
    cluster.kept_replication = Some(Vec::new());
    cluster.send(before.owner, Event::Compare(vec![before.serial]));
    while cluster.complaints.is_empty() {
        cluster.pass(Duration::from_millis(1));
    }
    let mut late = cluster.kept_replication.take().unwrap();
    late.retain(|(to, _)| *to == member);
    let Some((_, Event::Replication(from, ReplicationMessage::Append(append)))) = late.first_mut() else {
        panic!("{late:?}");
    };
    assert_eq!(*from, before.owner);
    let entries = Entries {
        serial: before.serial,
        epoch: before.epoch,
        first: LogIndex(1),
        commit: LogIndex::ZERO,
        index: LogIndex(1),
        entries: vec![EntryBytes(first.bytes)],
    };
    append.entries = vec![entries];
    let (to, event) = late.remove(0);
    cluster.send(to, event);
    cluster.pass(Duration::from_secs(4));
    let after = cluster.register_of(home);
    let whole = stored(&mut cluster, after.owner, after.serial);
    assert_eq!(after.members.len(), 3);
    for server in after.members {
        assert!(stored(&mut cluster, server, after.serial) == whole, "{server}");
    }
}

#[test]
fn a_member_that_dropped_what_it_could_not_read_counts_no_more_though_nothing_changes() {
    let (mut cluster, home) = with_a_spoilt_member();
    let before = cluster.register_of(home);
    cluster.send(before.owner, Event::Compare(vec![before.serial]));
    cluster.pass(Duration::from_secs(4));
    let after = cluster.register_of(home);
    assert!(after.members.len() == 3 && !cluster.complaints.is_empty());
    let whole = stored(&mut cluster, after.owner, after.serial);
    for server in after.members {
        assert!(stored(&mut cluster, server, after.serial) == whole, "{server}");
    }
}

#[test]
fn who_learns_what_its_only_owner_cannot_read_is_given_up() {
    let mut cluster = Cluster::with_copies(3, 2);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    cluster.create(ALICE, &root, "f").unwrap();
    let before = cluster.register_of(home);
    let third = cluster.hosts.keys().copied().find(|server| !before.members.contains(server)).unwrap();
    cluster.may_complain = true;
    let log = cluster.kill(third);
    cluster.kill(before.members[1]);
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.register_of(home).members, [before.owner]);
    spoil(&mut cluster, before.owner, before.serial, |key| matches!(key, Key::Name(..)));
    cluster.revive(third, log);
    let mut learnt = false;
    for _ in 0..100 {
        cluster.pass(Duration::from_millis(20));
        learnt |= cluster.register_of(home).learner == Some(third);
    }
    assert!(learnt, "{:?}", cluster.register_of(home));
    cluster.kill(third);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.register_of(home).learner, None);
}

/// A name was met that cannot be read, so the next opening leaves it out and knows that.
fn lose_a_name(cluster: &mut Cluster, server: ServerId, serial: TabletSerial) {
    spoil(cluster, server, serial, |key| matches!(key, Key::Name(..)));
    let host = cluster.hosts.get_mut(&server).unwrap();
    let all = KeyRange { start: Vec::new(), end: None };
    host.store.range(serial, &all, usize::MAX).unwrap_err();
    let (store, log) = (host.store.clone(), host.log.clone());
    cluster.replace_disk(server, store, log);
}

#[test]
fn what_a_server_lost_before_its_start_is_learnt_anew_though_nobody_asks_for_it() {
    for place in [0, 1] {
        let mut cluster = cluster(3);
        let root = cluster.root(ALICE).grant;
        let home = root.body.seat.home;
        (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
        cluster.pass(Duration::from_millis(500));
        let before = cluster.register_of(home);
        let server = before.members[place];
        cluster.may_complain = true;
        lose_a_name(&mut cluster, server, before.serial);
        cluster.pass(Duration::from_secs(4));
        let after = cluster.register_of(home);
        assert_eq!(after.members.len(), 3, "{after:?}");
        let whole = stored(&mut cluster, after.owner, after.serial);
        for member in after.members {
            assert!(stored(&mut cluster, member, after.serial) == whole, "{member}, place {place}");
        }
        assert!(!cluster.complaints.is_empty());
    }
}

#[test]
fn who_yields_what_it_lost_some_of_never_serves_it_though_it_has_read_the_rest() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
    cluster.pass(Duration::from_millis(500));
    let before = cluster.register_of(home);
    cluster.may_complain = true;
    (cluster.stores_take, cluster.coordinator_takes) =
        (Duration::from_millis(100), Duration::from_millis(20));
    lose_a_name(&mut cluster, before.owner, before.serial);
    while cluster.register(before.block).owner == before.owner {
        cluster.pass(Duration::from_millis(5));
    }
    // It is yielded, and nothing that it is told of that arrives any more.
    cluster.cut = before.members[1..].iter().map(|heir| (*heir, before.owner)).collect();
    cluster.cut.insert((before.owner, COORDINATOR));
    let serves = |cluster: &Cluster| {
        let mut serving = cluster.hosts[&before.owner].machine.serving();
        serving.any(|(block, _)| block.contains(home))
    };
    for _ in 0..100 {
        assert!(!serves(&cluster), "{} serves what it has yielded", before.owner);
        cluster.pass(Duration::from_millis(5));
    }
    (cluster.stores_take, cluster.coordinator_takes) = (Duration::ZERO, Duration::ZERO);
    cluster.cut.clear();
    cluster.pass(Duration::from_secs(3));
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 100).len(), 20);
    assert_eq!(cluster.register_of(home).members.len(), 3);
}

#[test]
fn an_owner_that_lost_some_of_a_tablet_waits_for_nobody_where_another_member_has_it() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
    cluster.pass(Duration::from_millis(500));
    let before = cluster.register_of(home);
    cluster.may_complain = true;
    cluster.kill(before.members[1]);
    lose_a_name(&mut cluster, before.owner, before.serial);
    cluster.pass(Duration::from_secs(6));
    let after = cluster.register_of(home);
    assert!(after.owner != before.owner && after.members.len() == 3, "{after:?}");
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.list(ALICE, &root, 100).len(), 20);
}

#[test]
fn who_lost_some_of_a_tablet_waits_for_the_only_other_server_that_may_have_it() {
    // The owner, and the member that would take over.
    for place in [0, 1] {
        let mut cluster = Cluster::with_copies(3, 2);
        cluster.open_session(ALICE);
        let root = cluster.root(ALICE).grant;
        let home = root.body.seat.home;
        (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
        cluster.pass(Duration::from_millis(500));
        let before = cluster.register_of(home);
        let whole_one = before.members[1 - place];
        cluster.may_complain = true;
        let log = cluster.kill(whole_one);
        lose_a_name(&mut cluster, before.members[place], before.serial);
        cluster.pass(Duration::from_mins(1));
        let waits = cluster.register(before.block);
        assert_eq!((waits.owner, waits.members), (before.owner, before.members), "it goes on alone");
        cluster.revive(whole_one, log);
        cluster.pass(Duration::from_secs(5));
        let after = cluster.register_of(home);
        assert_eq!((after.owner, after.members.len()), (whole_one, 2), "{after:?}");
        let whole = stored(&mut cluster, after.owner, after.serial);
        assert!(after.members.iter().all(|server| stored(&mut cluster, *server, after.serial) == whole));
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 100).len(), 20);
    }
}

/// The owner of a tablet does not hear the others and goes on alone; a member hears of that when it is to
/// learn the tablet anew.
fn swap_out_unnoticed(cluster: &mut Cluster, home: Position, member: ServerId) {
    let before = cluster.register_of(home);
    let owner = before.owner;
    // The owner does not hear the others, and soon they do not hear it, until it goes on alone.
    let others = cluster.hosts.keys().copied().filter(|server| *server != owner);
    let back: Vec<(ServerId, ServerId)> = others.map(|server| (server, owner)).collect();
    cluster.cut.extend(&back);
    cluster.pass(Duration::from_millis(100));
    cluster.cut.extend(back.iter().map(|(server, owner)| (*owner, *server)));
    while cluster.register_of(home) == before {
        cluster.pass(Duration::from_millis(5));
    }
    assert_eq!(cluster.register_of(home).members, [owner]);
    // It does not hear of that before it is to learn the tablet anew.
    cluster.cut.remove(&(member, owner));
    cluster.cut.remove(&(owner, member));
    for _ in 0..200 {
        if cluster.register_of(home).learner.is_none() {
            cluster.pass(Duration::from_millis(5));
        }
    }
    assert_eq!(cluster.register_of(home).learner, Some(member));
    cluster.cut.clear();
}

#[test]
fn a_member_that_came_by_a_snapshot_and_is_swapped_out_unnoticed_takes_another_snapshot() {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let first = cluster.register_of(home);
    let (owner, member) = (first.owner, first.members[1]);
    // It comes back when another has its place, and gets that one's.
    let log = cluster.kill(member);
    cluster.pass(Duration::from_secs(3));
    cluster.revive(member, log);
    cluster.pass(Duration::from_secs(3));
    let other = cluster.register_of(home).members.into_iter().find(|server| !first.members.contains(server));
    cluster.kill(other.unwrap());
    cluster.pass(Duration::from_secs(3));
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.pass(Duration::from_secs(1));
    let before = cluster.register_of(home);
    assert!(before.owner == owner && before.members.len() == 3 && before.members.contains(&member));
    swap_out_unnoticed(&mut cluster, home, member);
    cluster.pass(Duration::from_secs(3));
    let after = cluster.register_of(home);
    assert_eq!((after.owner, after.members.len()), (owner, 3), "{after:?}");
}

#[test]
fn members_of_a_cluster_of_three_that_are_swapped_out_unnoticed_learn_the_tablet_anew() {
    let mut cluster = Cluster::with_copies(3, 3);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.pass(Duration::from_secs(1));
    let before = cluster.register_of(home);
    swap_out_unnoticed(&mut cluster, home, before.members[1]);
    cluster.pass(Duration::from_secs(5));
    let after = cluster.register_of(home);
    assert_eq!((after.owner, after.members.len()), (before.owner, 3), "{after:?}");
}
