//! Servers, peers and the coordinator that are away, slow or stopped: they cost those who need them, and
//! nobody else.

use crate::cluster::{self, ALICE, BOB, Cluster, name, position, root_user};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{Answer, AttributeChange, Body, Call, Handle};
use bearing_proto::grant::Grant;
use bearing_types::{Code, Epoch, Mode, Position, ServerId, SessionId, Squash};
use std::collections::BTreeMap;
use std::time::Duration;

const RESTARTED: ServerId = ServerId(1);

fn cluster(scheme: Scheme) -> Cluster {
    let mut cluster = Cluster::new(2, scheme);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster
}

/// A directory all of whose names lie with this server, and that both sessions have used.
fn directory_at(cluster: &mut Cluster, server: ServerId) -> Handle {
    let root = cluster.root(ALICE).grant;
    for number in 0.. {
        let directory = cluster.mkdir(ALICE, &root, &format!("d{number}")).unwrap();
        let grant = cluster.directory(ALICE, directory).unwrap().grant;
        let names = (0..50).map(|number| position(&grant, &format!("f{number}")));
        let owners = names.chain([directory.home]).map(|at| cluster.owner(at).0);
        if owners.collect::<Vec<_>>().iter().all(|owner| *owner == server) {
            cluster.create(ALICE, &grant, "first").unwrap();
            let grant = cluster.directory(BOB, directory).unwrap().grant;
            cluster.lookup(BOB, &grant, "first").unwrap();
            return directory;
        }
    }
    unreachable!("one of many lies there")
}

fn grant_of(cluster: &mut Cluster, session: SessionId, directory: Handle) -> Grant {
    cluster.directory(session, directory).unwrap().grant
}

fn epochs(cluster: &Cluster) -> BTreeMap<Position, Epoch> {
    let serving = cluster.hosts.values().flat_map(|host| host.machine.serving());
    serving.map(|(block, epoch)| (block.start(), epoch)).collect()
}

fn is_done(answer: Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Done { result: Ok(_), .. }))
}

// --- ids ---

#[test]
fn files_are_made_while_the_server_that_gives_out_ids_is_down() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let giver = cluster.owner(Position(0)).0;
    let other = ServerId(3 - giver.0);
    let directory = directory_at(&mut cluster, other);
    let grant = grant_of(&mut cluster, ALICE, directory);
    cluster.kill(giver);
    for number in 0..10_000 {
        cluster.create(ALICE, &grant, &format!("f{number}")).unwrap();
    }
}

/// A server that was restarted while the one that gives out ids is down, and so has none; a directory there.
fn without_ids(prepare: impl FnOnce(&mut Cluster, Handle)) -> (Cluster, Handle) {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let giver = cluster.owner(Position(0)).0;
    let other = ServerId(3 - giver.0);
    let directory = directory_at(&mut cluster, other);
    prepare(&mut cluster, directory);
    cluster.kill(giver);
    restart(&mut cluster, other);
    (cluster, directory)
}

fn delegate(cluster: &mut Cluster, directory: Handle) -> Option<Answer> {
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    cluster.answer_of(ALICE, directory.home, call)
}

#[test]
fn a_server_without_ids_lends_no_directory_and_lets_nobody_wait_for_that() {
    let (mut cluster, directory) = without_ids(|_, _| ());
    let answer = delegate(&mut cluster, directory);
    assert!(matches!(answer, Some(Answer::Done { result: Err(Code::Unsupported), .. })), "{answer:?}");
}

#[test]
fn a_server_without_ids_renews_and_does_steps() {
    let mut lent = None;
    let (mut cluster, directory) = without_ids(|cluster, directory| {
        cluster.pass(Duration::from_secs(4));
        lent = delegate(cluster, directory);
    });
    let Some(Answer::Done { result: Ok(body), .. }) = lent else { panic!("{lent:?}") };
    let Body::Delegation(lent) = *body else { panic!("{body:?}") };
    let mut call = cluster::delegations::delegated(Vec::new(), lent.ids, Vec::new());
    if let Call::Delegated { ids_wanted, .. } = &mut call {
        *ids_wanted = 256;
    }
    match cluster.call(ALICE, directory.home, call) {
        Ok(Body::Steps(done)) => assert_eq!(done.ids, None),
        other => panic!("{other:?}"),
    }
}

// --- jobs ---

/// Names of the root lie with both servers. The home of the root, and who keeps the rest of it.
fn spread_root(cluster: &mut Cluster) -> (Handle, ServerId) {
    let view = cluster.root(ALICE);
    for number in 0..40 {
        cluster.create(ALICE, &view.grant, &format!("f{number}")).unwrap();
    }
    let home = cluster.owner(view.node.node.home).0;
    (view.node.node, ServerId(3 - home.0))
}

#[test]
fn who_needs_a_dead_server_takes_no_more_than_a_share_and_is_told_to_ask_again() {
    let mut cluster = cluster(Scheme::Hash);
    let (root, dead) = spread_root(&mut cluster);
    let grant = cluster.root(BOB).grant;
    let near = (0..40).map(|number| format!("f{number}"));
    let near = near.into_iter().find(|text| cluster.owner(position(&grant, text)).0 != dead).unwrap();
    cluster.lookup(BOB, &grant, &near).unwrap();
    cluster.kill(dead);
    let asks: Vec<_> = (0..10_000)
        .map(|_| cluster.send_call(ALICE, root.home, Call::Directory { directory: root }))
        .collect();
    let look = Call::Lookup { grant: grant.clone(), who: root_user(), name: name(&near) };
    assert!(is_done(cluster.answer_of(BOB, position(&grant, &near), look)), "others are served at once");
    cluster.pass(Duration::from_secs(31));
    for sequence in asks {
        assert!(matches!(cluster.answer(ALICE, sequence), Some(Answer::Retry { .. })), "{sequence:?}");
    }
}

#[test]
fn a_question_that_comes_again_joins_the_one_that_is_under_way() {
    let mut cluster = cluster(Scheme::Hash);
    let (root, _) = spread_root(&mut cluster);
    cluster.hold_peers = true;
    let sequence = cluster.new_sequence();
    let (server, _, epoch) = cluster.owner(root.home);
    for _ in 0..10 {
        let call = Call::Directory { directory: root };
        let request = bearing_proto::client::Request {
            sequence,
            finished_below: sequence,
            position: root.home,
            epoch,
            call,
        };
        cluster.send(server, bearing_meta::Event::Request(ALICE, Squash::None, request));
    }
    let asked = cluster.peers_held();
    assert!((1..=4).contains(&asked), "once for each tablet of the other server, not ten times: {asked}");
    cluster.release_peers();
    assert!(is_done(cluster.answer(ALICE, sequence)));
}

#[test]
fn a_server_that_does_not_answer_is_asked_less_and_less_and_once_for_all_who_want_to_know() {
    let mut cluster = cluster(Scheme::Hash);
    let (root, _) = spread_root(&mut cluster);
    cluster.hold_peers = true;
    let asks: Vec<_> =
        (0..100).map(|_| cluster.send_call(ALICE, root.home, Call::Directory { directory: root })).collect();
    let first = cluster.peers_held();
    cluster.pass(Duration::from_secs(4));
    let again = cluster.peers_held() - first;
    // Some tens in 4 s for each tablet that is asked, and a few reports of the server's own.
    assert!(again < 200, "{again} messages to a server that does not answer");
    cluster.release_peers();
    for sequence in asks {
        assert!(is_done(cluster.answer(ALICE, sequence)), "{sequence:?}");
    }
}

// --- the coordinator ---

#[test]
fn a_coordinator_that_answers_late_has_its_tablets_served_under_one_new_epoch() {
    for late in [Duration::from_secs(1), Duration::from_secs(5)] {
        let mut cluster = cluster(Scheme::AnglecutHashed);
        let before = epochs(&cluster);
        cluster.coordinator_takes = late;
        let log = cluster.kill(RESTARTED);
        cluster.revive(RESTARTED, log);
        cluster.pass(late * 2 + Duration::from_millis(200));
        let after = epochs(&cluster);
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "late by {late:?}");
        for (start, epoch) in after {
            let climbed = epoch.0 - before[&start].0;
            assert!(climbed <= 1, "{start}: {climbed} epochs with answers {late:?} late");
        }
    }
}

#[test]
fn a_swap_whose_answer_was_lost_counts() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let before = epochs(&cluster);
    cluster.swaps_unanswered = 3;
    let log = cluster.kill(RESTARTED);
    cluster.revive(RESTARTED, log);
    cluster.pass(Duration::from_secs(3));
    let after = epochs(&cluster);
    assert_eq!(after.len(), before.len());
    for (start, epoch) in after {
        let climbed = epoch.0 - before[&start].0;
        assert!(climbed <= 1, "{start}: {climbed} epochs");
    }
}

#[test]
fn an_owner_whose_swap_is_not_answered_sees_in_the_registers_that_it_took_effect() {
    let mut cluster = Cluster::with_copies(5, 3);
    cluster.open_session(ALICE);
    let home = cluster.root(ALICE).grant.body.seat.home;
    let register = cluster.register_of(home);
    let member = register.members[1];
    cluster.swaps_unanswered = u32::MAX;
    cluster.kill(member);
    let mut swapped = None;
    for step in 0..400 {
        cluster.pass(Duration::from_millis(5));
        let owner = &cluster.hosts[&register.owner].machine;
        let served = owner.serving().find(|(block, _)| *block == register.block);
        let (_, epoch) = served.expect("it is served all the time");
        if epoch > register.epoch {
            swapped.get_or_insert(step);
        }
    }
    assert!(swapped.is_some(), "it goes on without the member");
}

// --- leases after a restart ---

fn chmod(cluster: &mut Cluster, session: SessionId, node: Handle) -> Option<Answer> {
    let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
    let call = Call::SetAttributes { node, who: root_user(), change, token: None };
    cluster.answer_of(session, node.home, call)
}

fn look_at(cluster: &mut Cluster, session: SessionId, node: Handle) {
    match cluster.call(session, node.home, Call::Attributes { node }).unwrap() {
        Body::Node(view) => assert!(view.lease.0 > 0, "it is leased"),
        other => panic!("{other:?}"),
    }
}

/// Files whose names and nodes lie with one server.
fn files(cluster: &mut Cluster, count: usize) -> (ServerId, Vec<Handle>) {
    let directory = directory_at(cluster, RESTARTED);
    let grant = grant_of(cluster, ALICE, directory);
    let made = (0..count).map(|number| cluster.create(ALICE, &grant, &format!("file{number}")).unwrap());
    (RESTARTED, made.collect())
}

fn restart(cluster: &mut Cluster, server: ServerId) {
    let log = cluster.kill(server);
    cluster.revive(server, log);
    cluster.pass(Duration::from_millis(20));
}

#[test]
fn after_a_restart_nobody_waits_for_a_session_whose_leases_were_over_before() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let (server, files) = files(&mut cluster, 3);
    look_at(&mut cluster, BOB, files[0]);
    cluster.pass(Duration::from_secs(10));
    cluster.obedient = false;
    restart(&mut cluster, server);
    assert!(is_done(chmod(&mut cluster, ALICE, files[0])), "Bob is silent, and has nothing");
}

#[test]
fn after_a_restart_a_silent_session_delays_changes_of_what_it_may_have_leased_and_of_little_else() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let (server, files) = files(&mut cluster, 40);
    cluster.pass(Duration::from_secs(10));
    look_at(&mut cluster, BOB, files[0]);
    cluster.obedient = false;
    restart(&mut cluster, server);
    assert!(!is_done(chmod(&mut cluster, ALICE, files[0])), "Bob may have it leased");
    let free = files[1..].iter().filter(|file| is_done(chmod(&mut cluster, ALICE, **file))).count();
    assert!(free >= 35, "only {free} of 39 files that Bob never saw");
    // It was a first look, so the lease was a short one.
    cluster.pass(Duration::from_millis(400));
    assert!(is_done(chmod(&mut cluster, ALICE, files[0])));
}

#[test]
fn a_lease_is_waited_for_also_after_a_second_restart() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    let (server, files) = files(&mut cluster, 1);
    cluster.pass(Duration::from_secs(10));
    for _ in 0..12 {
        look_at(&mut cluster, BOB, files[0]);
    }
    cluster.obedient = false;
    for _ in 0..3 {
        restart(&mut cluster, server);
        assert!(!is_done(chmod(&mut cluster, ALICE, files[0])), "Bob may have it leased");
    }
    cluster.pass(Duration::from_millis(3100));
    assert!(is_done(chmod(&mut cluster, ALICE, files[0])));
}

// --- a server that was stopped ---

#[test]
fn a_session_does_not_end_because_its_server_heard_nobody_while_it_was_stopped() {
    let mut cluster = cluster(Scheme::AnglecutHashed);
    cluster.stop_for(Duration::from_secs(180));
    cluster.pass(Duration::from_secs(5));
    for session in [ALICE, BOB] {
        let renewed = cluster.call(session, position_of_session(session), Call::RenewSession);
        assert!(renewed.is_ok(), "{renewed:?}");
    }
    cluster.pass(Duration::from_secs(31));
    let renewed = cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession);
    assert_eq!(renewed, Err(Code::SessionEnded), "who is silent while its server runs is over");
}

#[test]
fn an_owner_whose_swaps_are_never_answered_has_no_more_questions_open_than_tablets() {
    let mut cluster = Cluster::with_copies(3, 3);
    cluster.swaps_unanswered = u32::MAX;
    let server = *cluster.hosts.keys().last().unwrap();
    for _ in 0..8 {
        let log = cluster.kill(server);
        cluster.pass(Duration::from_secs(3));
        cluster.revive(server, log);
        cluster.pass(Duration::from_secs(5));
    }
    for (id, host) in &cluster.hosts {
        for bound in host.machine.bounds() {
            assert!(bound.count <= bound.count_max, "{id}: {bound:?}");
        }
    }
}

// --- what was given up ---

#[test]
fn a_change_that_its_client_gave_up_while_it_waited_is_not_carried_out_later() {
    let mut cluster = Cluster::new(3, Scheme::Hash);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let mut waited = 0;
    for number in 0..16 {
        let text = format!("d{number}");
        let (grant, who, at) = (root.clone(), root_user(), position(&root, &text));
        let make = Call::MakeDirectory { grant, who, name: name(&text), mode: Mode::new(0o755) };
        // Most directories live in other tablets than their names, which are asked first.
        cluster.hold_peers = true;
        let logged = |cluster: &Cluster| cluster.hosts[&cluster.owner(at).0].machine.counters().records;
        let before = logged(&cluster);
        let given_up = cluster.send_call(ALICE, at, make);
        if cluster.answer(ALICE, given_up).is_some() || logged(&cluster) > before {
            cluster.release_peers();
            cluster.pass(Duration::from_millis(100));
            continue;
        }
        // All before this one is finished.
        let look = Call::Lookup { grant: root.clone(), who: root_user(), name: name(&text) };
        cluster.answer_of(ALICE, at, look);
        cluster.release_peers();
        cluster.pass(Duration::from_millis(100));
        waited += 1;
        assert_eq!(cluster.lookup(ALICE, &root, &text), Err(Code::NotFound), "{text}");
    }
    assert!(waited > 2);
}
