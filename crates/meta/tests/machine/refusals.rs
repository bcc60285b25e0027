//! What a server refuses: grants that are not its own, sessions that are over, records that it cannot read.

use crate::cluster::{ALICE, BOB, Cluster, NAME_KEY, name, position, regular, root_user};
use bearing_meta::{Event, Key, Note, Record};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{Answer, AttributeChange, Call, Handle, Request};
use bearing_proto::coordinator::tablet_key;
use bearing_proto::keys::Mac;
use bearing_types::{Code, FilesystemId, Mode, NameHash, NodeId, Sequence, Squash, Wall};
use std::time::Duration;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster
}

#[test]
fn a_grant_is_good_for_its_session_unchanged_and_for_its_time() {
    let mut cluster = cluster();
    let grant = cluster.root(ALICE).grant;
    assert_eq!(cluster.create(BOB, &grant, "stolen"), Err(Code::Unauthenticated));
    let mut wider = grant.clone();
    wider.body.access.mode = Mode::new(0o777);
    assert_eq!(cluster.create(ALICE, &wider, "wider"), Err(Code::Unauthenticated));
    let mut forged = grant.clone();
    forged.mac = Mac([0; 16]);
    assert_eq!(cluster.create(ALICE, &forged, "forged"), Err(Code::Unauthenticated));
    for _ in 0..29 {
        cluster.pass(Duration::from_secs(10));
        cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession).unwrap();
    }
    assert!(cluster.create(ALICE, &grant, "in-time").is_ok());
    cluster.pass(Duration::from_secs(10));
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.create(ALICE, &grant, "late"), Err(Code::Unauthenticated));
}

fn chmod(cluster: &mut Cluster, directory: Handle, mode: u32) {
    let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
    let call = Call::SetAttributes { node: directory, who: root_user(), change, token: None };
    cluster.call(BOB, directory.home, call).unwrap();
}

#[test]
fn no_change_is_made_under_a_grant_from_before_a_chmod_however_late_it_comes() {
    for scheme in Scheme::LIVE {
        let mut cluster = Cluster::new(3, scheme);
        cluster.open_session(ALICE);
        cluster.open_session(BOB);
        let root = cluster.root(ALICE).grant;
        let (directory, old) = cluster.make(ALICE, &root, "d");
        // With `hash` these names, and those below, lie in many tablets: some have a fragment by now, some
        // have not.
        for number in 0..5 {
            cluster.create(ALICE, &old, &format!("before-{number}")).unwrap();
        }
        let sub = cluster.mkdir(ALICE, &old, "sub").unwrap();
        let (_, elsewhere) = cluster.make(ALICE, &root, "other");
        let file = cluster.create(ALICE, &elsewhere, "file").unwrap();
        chmod(&mut cluster, directory, 0o2755);

        let late = Err(Code::Unauthenticated);
        for number in 0..40 {
            assert_eq!(cluster.create(ALICE, &old, &format!("f{number}")), late, "{scheme:?}");
            assert_eq!(cluster.mkdir(ALICE, &old, &format!("d{number}")), late, "{scheme:?}");
            assert_eq!(cluster.link(ALICE, file, &old, &format!("l{number}")), late, "{scheme:?}");
        }
        let late = Err(Code::Unauthenticated);
        assert_eq!(cluster.unlink(ALICE, &old, "before-0"), late);
        assert_eq!(cluster.rmdir(ALICE, &old, "sub"), late);
        assert_eq!(cluster.rename(ALICE, (&old, "before-1"), (&elsewhere, "moved")), late);
        assert_eq!(cluster.rename(ALICE, (&elsewhere, "file"), (&old, "moved")), late);
        assert_eq!(cluster.rename(ALICE, (&elsewhere, "file"), (&old, "before-2")), late);

        // Refused, the late ones still had their tablets listed; another chmod is no change of entries there.
        let before = cluster.directory(ALICE, directory).unwrap().node.attributes.modified;
        cluster.pass(Duration::from_secs(1));
        chmod(&mut cluster, directory, 0o2775);
        let view = cluster.directory(ALICE, directory).unwrap();
        assert_eq!(view.node.attributes.modified, before, "{scheme:?}");
        let new = view.grant;
        let made = cluster.mkdir(ALICE, &new, "inherits").unwrap();
        let made = cluster.directory(ALICE, made).unwrap();
        assert!(made.grant.body.access.mode.has(Mode::SETGID), "{scheme:?}");
        cluster.rename(ALICE, (&new, "before-1"), (&elsewhere, "moved")).unwrap();
        cluster.rmdir(ALICE, &new, "sub").unwrap();
        assert_eq!(cluster.directory(ALICE, sub).map(|_| ()), Err(Code::Stale));
        // What changes no mode and no owner leaves grants as they are.
        chmod(&mut cluster, directory, 0o2775);
        cluster.create(ALICE, &new, "after").unwrap();
    }
}

#[test]
fn a_session_that_ended_stays_ended() {
    let mut cluster = cluster();
    let grant = cluster.root(ALICE).grant;
    cluster.create(ALICE, &grant, "before").unwrap();
    cluster.call(ALICE, position_of_session(ALICE), Call::CloseSession).unwrap();
    let renewed = cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession);
    assert_eq!(renewed, Err(Code::SessionEnded));
    let reopened = cluster.call(ALICE, position_of_session(ALICE), Call::OpenSession);
    assert_eq!(reopened, Err(Code::SessionEnded));
    // Other tablets ask after a silent while, and then refuse too; a session that lives is not hurt.
    for _ in 0..8 {
        cluster.pass(Duration::from_secs(10));
        cluster.call(BOB, position_of_session(BOB), Call::RenewSession).unwrap();
    }
    assert_eq!(cluster.create(ALICE, &grant, "after"), Err(Code::SessionEnded));
    let bobs = cluster.root(BOB).grant;
    assert!(cluster.create(BOB, &bobs, "bobs").is_ok());
}

#[test]
fn a_session_that_is_not_renewed_ends() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(31));
    assert_eq!(cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession), Err(Code::SessionEnded));
}

#[test]
fn a_damaged_record_is_an_error_never_an_answer() {
    for (what, damage) in [("cut short", cut as fn(&mut Vec<u8>)), ("newer", newer)] {
        let mut cluster = cluster();
        let root = cluster.root(ALICE).grant;
        cluster.create(ALICE, &root, "f").unwrap();
        cluster.create(ALICE, &root, "g").unwrap();
        let (owner, tablet, _) = cluster.owner(root.body.seat.home);
        let key = Key::Name(root.body.seat.node, NameHash::of(NAME_KEY, &name("f")), 1);
        cluster.damage(owner, tablet, &key.encode(), damage);
        cluster.may_complain = true;
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.lookup(ALICE, &root, "f"), Err(Code::Io), "{what}");
        assert_eq!(cluster.create(ALICE, &root, "f"), Err(Code::Io), "{what}");
        assert!(cluster.lookup(ALICE, &root, "g").is_ok(), "{what}");
        assert!(cluster.complaints.iter().any(|note| matches!(note, Note::Damaged(_))), "{what}");
    }
}

fn of_another_kind(value: &mut Vec<u8>) {
    *value = Record::NextId(NodeId(5)).encode();
}

#[test]
fn a_record_of_another_kind_than_its_key_is_damage_wherever_it_is_read_and_never_a_panic() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let made = cluster.mkdir(ALICE, &root, "d").unwrap();
    let (node, name) = (root.body.seat.node, NameHash::of(NAME_KEY, &name("d")));
    let at_root = root.body.seat.home;
    let keys = [
        (Key::Name(node, name, 1), position(&root, "d")),
        (Key::Fragment(node), at_root),
        (Key::Node(made.node), made.home),
    ];
    for (beside, (key, at)) in ["a", "b", "c"].into_iter().zip(keys) {
        let (owner, tablet, _) = cluster.owner(at);
        let mut before = Vec::new();
        cluster.damage(owner, tablet, &key.encode(), |value| {
            before = value.clone();
            of_another_kind(value);
        });
        cluster.may_complain = true;
        let looked = cluster.lookup(ALICE, &root, "d").and_then(|_| cluster.directory(ALICE, made).map(drop));
        let created = cluster.create(ALICE, &root, beside).map(drop);
        assert!(looked == Err(Code::Io) || created == Err(Code::Io), "{key:?}: {looked:?}, {created:?}");
        let told = format!("{:?}", cluster.complaints);
        assert!(told.contains("of another kind than its key"), "{key:?}: {told}");
        cluster.complaints.clear();
        cluster.damage(owner, tablet, &key.encode(), |value| *value = before);
    }
    // What has to be in memory from the start: the tablet is not served.
    let session = Key::Session(ALICE);
    let (owner, tablet, _) = cluster.owner(position_of_session(ALICE));
    cluster.damage(owner, tablet, &session.encode(), of_another_kind);
    assert!(!cluster.hosts[&owner].machine.serving().any(|(served, _)| served == tablet));
    assert!(format!("{:?}", cluster.complaints).contains("of another kind than its key"));
}

fn cut(value: &mut Vec<u8>) {
    value.truncate(3);
}

fn newer(value: &mut Vec<u8>) {
    let body = value.split_off(1);
    *value = [200].into_iter().chain(body).collect();
}

#[test]
fn a_newer_register_stops_the_server_naming_both_versions() {
    let mut cluster = cluster();
    cluster.may_complain = true;
    let (owner, block, _) = cluster.owner(bearing_types::Position(0));
    cluster.change_register(&tablet_key(block), |value| value[0] = 5);
    cluster.pass(Duration::from_secs(1));
    let complaint = format!("{:?}", cluster.complaints);
    assert!(complaint.contains("version 5") && complaint.contains("version 2"), "{complaint}");
    assert!(complaint.contains(&tablet_key(block)), "{complaint}");
    assert_eq!(cluster.hosts[&owner].machine.serving().count(), 0, "a tablet may be another server's by now");
}

#[test]
fn a_server_whose_clock_is_off_gives_and_takes_no_grants_but_keeps_sessions_alive() {
    let mut cluster = cluster();
    let grant = cluster.root(ALICE).grant;
    let at = position(&grant, "f");
    let new = regular(0o644);
    let create = Call::Create { grant: grant.clone(), who: root_user(), name: name("f"), new };
    let (owner, _, epoch) = cluster.owner(at);
    cluster.send(owner, Event::ClockOff(true));
    for call in [
        create,
        Call::Root { filesystem: FilesystemId(1) },
        Call::OpenChunk { avoid: vec![], doubted: vec![] },
    ] {
        let sequence = cluster.new_sequence();
        let finished_below = Sequence(0);
        let request = Request { sequence, finished_below, position: at, epoch, call };
        cluster.send(owner, Event::Request(ALICE, Squash::None, request));
        assert!(matches!(cluster.answer(ALICE, sequence), Some(Answer::Retry { .. })));
    }
    for id in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        cluster.send(id, Event::ClockOff(true));
    }
    for _ in 0..6 {
        cluster.pass(Duration::from_secs(10));
        cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession).unwrap();
    }
    for id in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        cluster.send(id, Event::ClockOff(false));
    }
    cluster.create(ALICE, &grant, "f").unwrap();
}

#[test]
fn what_the_store_says_is_damaged_is_an_error_for_whoever_asks_and_for_nobody_else() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let hit = Key::Name(root.body.seat.node, NameHash::of(NAME_KEY, &name("f")), 1).encode();
    cluster.create(ALICE, &root, "f").unwrap();
    cluster.create(ALICE, &root, "g").unwrap();
    let (owner, ..) = cluster.owner(position(&root, "f"));
    // From its log: nothing is cached.
    cluster.restart(owner);
    cluster.unreadable = Some(hit);
    cluster.may_complain = true;
    let root = cluster.root(ALICE).grant;
    assert_eq!(cluster.lookup(ALICE, &root, "f"), Err(Code::Io));
    assert_eq!(cluster.unlink(ALICE, &root, "f"), Err(Code::Io));
    assert!(cluster.lookup(ALICE, &root, "g").is_ok());
    cluster.create(ALICE, &root, "h").unwrap();
    assert!(
        cluster.complaints.iter().all(|note| matches!(note, Note::DamagedStore(_))),
        "{:?}",
        cluster.complaints
    );
    // Nothing was made of it meanwhile.
    cluster.unreadable = None;
    assert!(cluster.lookup(ALICE, &root, "f").is_ok());
}

#[test]
fn a_grant_is_taken_for_the_skew_of_clocks_after_its_end_and_no_longer() {
    for (late, taken) in [(-1, true), (249, true), (251, false)] {
        let mut cluster = cluster();
        let grant = cluster.root(ALICE).grant;
        cluster.now.wall = Wall(grant.body.expires.0 + late * 1_000_000);
        let created = cluster.create(ALICE, &grant, "f");
        assert_eq!(created.is_ok(), taken, "{late} ms: {created:?}");
        if !taken {
            assert_eq!(created, Err(Code::Unauthenticated));
        }
    }
}
