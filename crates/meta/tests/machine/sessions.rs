//! What an operator is told of sessions, and how much room there is.

use crate::cluster::{ALICE, BOB, Cluster};
use bearing_meta::Config;
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{Body, Call};
use bearing_proto::data::{DataBody, DataCall};
use bearing_proto::sessions::{DESCRIPTION_TEXT_BYTES_MAX, SessionDescription};
use bearing_types::{Code, Position, Sequence, SessionId, Wall};
use std::time::Duration;

fn description(host: &str) -> SessionDescription {
    SessionDescription {
        host: host.into(),
        path: Some(b"/mnt".to_vec()),
        process: 7,
        version: "1".into(),
        since: Wall(3),
    }
}

fn describe(cluster: &mut Cluster, session: SessionId, host: &str) -> Result<Body, Code> {
    let call = Call::Describe(description(host));
    cluster.call(session, position_of_session(session), call)
}

/// What all servers tell, in order.
fn told(cluster: &Cluster) -> Vec<(SessionId, Option<SessionDescription>)> {
    let views = cluster.hosts.values().map(|host| host.machine.sessions());
    let mut sessions: Vec<_> = views.flat_map(|view| view.sessions).collect();
    sessions.sort_by_key(|(session, _)| *session);
    sessions
}

#[test]
fn a_session_is_told_with_what_it_said_last_until_it_ends() {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    assert!(describe(&mut cluster, ALICE, "before").is_ok());
    assert!(describe(&mut cluster, ALICE, "after").is_ok());
    let mut expected = vec![(ALICE, Some(description("after"))), (BOB, None)];
    expected.sort_by_key(|(session, _)| *session);
    assert_eq!(told(&cluster), expected);
    let home = cluster.owner(position_of_session(ALICE)).0;
    cluster.restart(home);
    cluster.pass(Duration::from_secs(1));
    assert!(told(&cluster).contains(&(ALICE, None)), "it is there, and has to say again who it is");
    assert!(describe(&mut cluster, ALICE, "again").is_ok());
    assert!(told(&cluster).contains(&(ALICE, Some(description("again")))));
    cluster.call(ALICE, position_of_session(ALICE), Call::CloseSession).unwrap();
    assert_eq!(told(&cluster).len(), 1);
    assert_eq!(describe(&mut cluster, ALICE, "late"), Err(Code::SessionEnded));
    assert_eq!(told(&cluster).len(), 1, "who is not there cannot describe itself");
}

#[test]
fn long_descriptions_are_refused() {
    let mut cluster = Cluster::new(1, Scheme::Hash);
    cluster.open_session(ALICE);
    let long = "x".repeat(DESCRIPTION_TEXT_BYTES_MAX + 1);
    assert_eq!(describe(&mut cluster, ALICE, &long), Err(Code::InvalidArgument));
    assert_eq!(told(&cluster), [(ALICE, None)]);
}

#[test]
fn space_of_one_disk_counts_once_and_is_divided_by_the_copies() {
    for (filesystem, total, free) in
        [(Some(9), (2000 + 600) / 2, 600 / 2), (None, (2000 + 1200) / 2, 1200 / 2)]
    {
        let mut cluster = Cluster::new(1, Scheme::Hash);
        let space =
            DataBody::Space { used: 1000, free: 600, filesystem, damaged: Vec::new(), life: 1, waiting: 0 };
        cluster.data = Box::new(move |_, request| match request.call {
            DataCall::Ping => Some(Ok(space.clone())),
            _ => None,
        });
        cluster.open_session(ALICE);
        cluster.pass(Duration::from_secs(3));
        let Ok(Body::Statfs(view)) = cluster.call(ALICE, Position(0), Call::Statfs) else {
            panic!("no space")
        };
        assert_eq!((view.bytes_total, view.bytes_free), (total, free), "{filesystem:?}");
    }
}

#[test]
fn many_sessions_that_end_at_once_are_asked_about_in_parts() {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    let sessions: Vec<SessionId> = (0..60).map(|number| SessionId(number << 58 | 77)).collect();
    for session in &sessions {
        cluster.open_session(*session);
        // Every tablet has heard of it.
        for block in 0..16 {
            cluster.open_chunk(*session, Position(block << 60));
        }
    }
    cluster.stores_take = Duration::from_millis(100);
    for _ in 0..20_000 {
        cluster.pass(Duration::from_millis(5));
        for host in cluster.hosts.values() {
            let over = host.machine.bounds().into_iter().find(|bound| bound.count > bound.count_max);
            assert!(over.is_none(), "{over:?}");
        }
    }
    let held = |session: &&SessionId| cluster.hosts.values().any(|host| host.machine.holds_for(**session));
    assert_eq!(sessions.iter().filter(held).count(), 0);
}

#[test]
fn sessions_whose_home_is_away_hold_up_the_end_of_no_other() {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    let owner_of = |cluster: &Cluster, session| cluster.owner(position_of_session(session)).0;
    // The first tablet of one server knows many sessions that are at home at the other one.
    let place = Position(0);
    let here = cluster.owner(place).0;
    let numbered = (1..).map(|number: u64| SessionId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let away: Vec<_> =
        numbered.clone().filter(|session| owner_of(&cluster, *session) != here).take(300).collect();
    let other = cluster.owner(position_of_session(away[0])).0;
    for session in &away {
        cluster.open_session(*session);
        cluster.open_chunk(*session, place);
    }
    cluster.cut.extend([(here, other), (other, here)]);
    cluster.pass(Duration::from_secs(120));
    let own = numbered.into_iter().find(|session| owner_of(&cluster, *session) == here).unwrap();
    cluster.open_session(own);
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.hosts[&here].machine.sessions().sessions, []);
}

#[test]
fn an_owner_that_may_not_speak_keeps_as_many_answers_as_others() {
    let mut cluster = Cluster::with_copies(2, 2);
    cluster.open_session(ALICE);
    let home = position_of_session(ALICE);
    let (owner, ..) = cluster.owner(home);
    let other = *cluster.hosts.keys().find(|server| **server != owner).unwrap();
    cluster.cut.extend([(owner, other), (other, owner)]);
    cluster.pass(Config::standard().server_lease_ttl + Duration::from_millis(20));
    let describe = || Call::Describe(description("h"));
    let kept_max = Config::standard().replies_kept_max;
    let asked: Vec<Sequence> =
        (0..kept_max + 100).map(|_| cluster.send_call(ALICE, home, describe())).collect();
    cluster.cut.clear();
    cluster.pass(Duration::from_secs(2));
    let answered = asked.iter().filter(|sequence| cluster.answer(ALICE, **sequence).is_some()).count();
    assert!((1..=kept_max).contains(&answered), "{answered} of {}", asked.len());
    cluster.call(ALICE, home, describe()).unwrap();
}
