//! Requests that wait for clients: in the order in which they came, and nobody is leased what they wait for.

use crate::cluster::delegations::{finds, give_back, waits};
use crate::cluster::{ALICE, BOB, Cluster, root_user};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, AttributeChange, Body, Call, Handle, LeaseMs};
use bearing_types::{Mode, Sequence, SessionId};
use std::time::Duration;

const CAROL: SessionId = SessionId(13);
const DAVE: SessionId = SessionId(14);
const EVE: SessionId = SessionId(15);

fn with_file() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    for session in [ALICE, BOB, CAROL, DAVE, EVE] {
        cluster.open_session(session);
    }
    let grant = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    cluster.obedient = false;
    cluster.recalls.clear();
    (cluster, file)
}

fn chmod(file: Handle, mode: u32) -> Call {
    let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
    Call::SetAttributes { node: file, who: root_user(), change, token: None }
}

fn lease_of(answer: Option<Answer>) -> Option<LeaseMs> {
    match answer {
        Some(Answer::Done { result: Ok(body), .. }) => match *body {
            Body::Node(view) => Some(view.lease),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn who_came_first_goes_first_as_soon_as_the_holder_has_answered() {
    let (mut cluster, file) = with_file();
    assert!(
        lease_of(cluster.answer_of(ALICE, file.home, Call::Attributes { node: file })) > Some(LeaseMs(0))
    );
    let sequences: Vec<(SessionId, Sequence)> = [(BOB, 0o601), (CAROL, 0o602), (DAVE, 0o603)]
        .into_iter()
        .map(|(session, mode)| {
            assert!(waits(cluster.answer_of(session, file.home, chmod(file, mode))));
            (session, Sequence(cluster.next_sequence))
        })
        .collect();
    assert!(sequences.iter().all(|(session, sequence)| cluster.answer(*session, *sequence).is_none()));
    // While they wait nobody is leased it.
    let now = cluster.answer_of(EVE, file.home, Call::Attributes { node: file });
    assert_eq!(lease_of(now), Some(LeaseMs(0)));
    give_back(&mut cluster);
    let modes: Vec<u32> = sequences
        .iter()
        .map(|(session, sequence)| match cluster.answer(*session, *sequence) {
            Some(Answer::Done { result: Ok(body), .. }) => match *body {
                Body::Node(view) => view.attributes.mode.bits() & 0o777,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(modes, [0o601, 0o602, 0o603], "each saw its own change");
    let Some(Answer::Done { result: Ok(body), .. }) =
        cluster.answer_of(ALICE, file.home, Call::Attributes { node: file })
    else {
        panic!("it is there")
    };
    let Body::Node(view) = *body else { panic!("a node") };
    assert_eq!(view.attributes.mode.bits() & 0o777, 0o603, "the last one came last");
}

#[test]
fn a_holder_that_says_nothing_is_waited_for_no_longer_than_its_lease() {
    let (mut cluster, file) = with_file();
    cluster.answer_of(ALICE, file.home, Call::Attributes { node: file });
    assert!(waits(cluster.answer_of(BOB, file.home, chmod(file, 0o601))));
    let sequence = Sequence(cluster.next_sequence);
    cluster.pass(Config::standard().lease_ttl_max + Duration::from_millis(100));
    assert_eq!(finds(cluster.answer(BOB, sequence)), Ok(true));
}

#[test]
fn what_several_change_by_turns_is_not_leased_for_a_while() {
    let (mut cluster, file) = with_file();
    cluster.obedient = true;
    let mut leased = 0;
    for turn in 0..40 {
        let (reader, writer) = if turn % 2 == 0 { (ALICE, BOB) } else { (BOB, ALICE) };
        let lease = lease_of(cluster.answer_of(reader, file.home, Call::Attributes { node: file }));
        leased += u32::from(lease > Some(LeaseMs(0)));
        cluster.call(writer, file.home, chmod(file, 0o600 + turn)).unwrap();
        cluster.pass(Duration::from_millis(10));
    }
    assert!(leased <= 5, "{leased} of 40: each would have been recalled at once");
    cluster.pass(Duration::from_secs(12));
    let lease = lease_of(cluster.answer_of(ALICE, file.home, Call::Attributes { node: file }));
    assert!(lease > Some(LeaseMs(0)), "nobody else has changed it for long");
}
