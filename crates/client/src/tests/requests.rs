//! How requests are sent, sent again, referred and given up.

use super::world::*;
use crate::*;
use bearing_placement::{Assignment, Tablet, position_of_session};
use bearing_proto::Message;
use bearing_proto::client::{Answer as WireAnswer, Body, Call, Recall, Request, ServerEntry};
use bearing_proto::envelope::Refusal;
use bearing_types::*;
use std::time::Duration;

/// Asks the owner of the first tablet something.
fn ask() -> Operation {
    Operation::Place { directory: first() }
}

fn asked() -> Call {
    Call::Place { directory: first() }
}

fn first() -> bearing_proto::client::Handle {
    bearing_proto::client::Handle { node: NodeId(9), home: Position(0) }
}

fn attributes_of(position: u64) -> Operation {
    let node = bearing_proto::client::Handle { node: NodeId(9), home: Position(position) };
    Operation::Attributes { node, file_type: FileType::Regular }
}

#[test]
fn the_map_is_asked_of_a_seed_then_the_session_is_opened_then_operations_go_on() {
    let mut world = World::new(config());
    assert_eq!(world.client.next_wake(), Some(Mono::ZERO));
    let ticket = world.start(ask());
    let sent = world.take_one();
    assert_eq!((sent.to, &sent.request().call), (Target::AnySeed, &Call::Map { have: None }));
    let request = sent.request().clone();
    world.reply_done(&request, Ok(Body::Map(Some(Box::new(map())))));
    let sent = world.take_one();
    let position = position_of_session(SESSION);
    let owner = map().assignment.tablet_at(position).owner;
    assert_eq!((sent.to, &sent.request().call), (Target::Server(owner), &Call::OpenSession));
    assert_eq!((sent.request().position, sent.request().epoch), (position, Epoch(1)));
    let request = sent.request().clone();
    world.reply_done(&request, Ok(Body::Session { renew_within_ms: 30_000 }));
    assert_eq!(world.take_request().call, asked());
    assert!(!world.finished.contains_key(&ticket));
    assert!(world.notes.contains(&Note::SessionOpen(Duration::from_secs(30))));
}

#[test]
fn a_wrong_secret_fails_operations_as_unauthenticated() {
    let mut world = World::new(config());
    let early = world.start(ask());
    world.step(Event::Refused(Refusal::Unauthenticated));
    let late = world.start(ask());
    assert_eq!(world.result(early), Err(Code::Unauthenticated));
    assert_eq!(world.result(late), Err(Code::Unauthenticated));
}

#[test]
fn an_unsigned_refusal_cannot_end_an_open_session() {
    let mut world = World::open();
    world.step(Event::Refused(Refusal::Unauthenticated));
    world.start(ask());
    assert_eq!(world.take_request().call, asked());
}

#[test]
fn a_session_is_renewed_after_a_third_of_its_time() {
    let mut world = World::open();
    world.pass(Duration::from_millis(9_999));
    assert!(world.sent.is_empty());
    world.pass(Duration::from_millis(1));
    assert_eq!(world.answer_one(Body::Session { renew_within_ms: 3000 }).call, Call::RenewSession);
    world.pass(Duration::from_millis(1000));
    assert_eq!(world.take_request().call, Call::RenewSession);
}

#[test]
fn a_request_without_an_answer_is_sent_again_under_its_number_soon_and_then_with_growing_pauses() {
    let mut world = World::open();
    world.start(ask());
    let first = world.take_one();
    let (mut times, mut to_successors) = (vec![world.now.mono], 0);
    while times.len() < 16 {
        assert!(world.pass_to_next());
        for sent in std::mem::take(&mut world.sent) {
            if sent.request().call == asked() {
                assert_eq!(sent.request().sequence, first.request().sequence);
                match sent.to == first.to {
                    true => times.push(world.now.mono),
                    false => to_successors += 1,
                }
            } else {
                // Also asks who the owner is by now.
                assert!(matches!(sent.request().call, Call::Map { .. }));
            }
        }
    }
    assert_eq!(to_successors, 16 - 2, "each but the first two times it goes to another server too");
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let (soon, later) = pauses.split_at(10);
    assert!(soon.iter().all(|pause| (75..=125).contains(&pause.as_millis())), "for a second: {pauses:?}");
    assert!(later[..4].windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    assert!(later.iter().all(|pause| *pause <= Duration::from_millis(2500)), "{pauses:?}");
}

#[test]
fn all_who_may_take_over_from_a_silent_owner_of_three_copies_have_what_it_was_asked_at_once() {
    let mut world = World::new(config());
    world.step(Event::Tick);
    let mut five = map();
    let added = [3, 4, 5].map(|number| ServerEntry { server: ServerId(number), ..five.servers[0].clone() });
    five.servers.extend(added);
    let members = vec![S1, ServerId(4), ServerId(5)];
    let tablets = five.assignment.tablets().cloned();
    let tablets = tablets.map(|tablet| match tablet.owner == S1 {
        true => Tablet { members: members.clone(), ..tablet },
        false => tablet,
    });
    five.assignment = Assignment::new(tablets.collect::<Vec<_>>()).unwrap();
    world.answer_one(Body::Map(Some(Box::new(five))));
    world.answer_one(Body::Session { renew_within_ms: 30_000 });
    world.start(ask());
    let Target::Server(owner) = world.take_one().to else { panic!("a server is asked") };
    let mut sendings: Vec<Vec<u32>> = Vec::new();
    while sendings.len() < 5 {
        assert!(world.pass_to_next());
        let again = std::mem::take(&mut world.sent).into_iter().filter(|sent| sent.request().call == asked());
        let servers = again.filter_map(|sent| match sent.to {
            Target::Server(server) => Some((server.0 + 5 - owner.0) % 5),
            _ => None,
        });
        let servers: Vec<u32> = servers.collect();
        sendings.extend((!servers.is_empty()).then_some(servers));
    }
    assert_eq!(sendings, [vec![0], vec![1, 2, 3, 4, 0], vec![3, 4, 0], vec![1, 2, 3, 4, 0], vec![3, 4, 0]]);
}

#[test]
fn all_metadata_servers_hear_of_the_session_with_each_renewal_and_once_more_when_they_took_nothing() {
    let mut world = World::open();
    let all = [Target::Server(S1), Target::Server(S2)];
    assert_eq!(std::mem::take(&mut world.greeted), all);
    world.step(Event::Unreachable(S2));
    world.step(Event::Unreachable(S2));
    world.step(Event::Unreachable(ServerId(11)));
    assert_eq!(std::mem::take(&mut world.greeted), all[1..], "not again and again, and no data server");
    world.pass(Duration::from_secs(10));
    let renewal = world.take_request();
    assert_eq!(renewal.call, Call::RenewSession);
    world.reply_done(&renewal, Ok(Body::Session { renew_within_ms: 30_000 }));
    assert_eq!(world.greeted, all);
    world.step(Event::Unreachable(S2));
    assert_eq!(world.greeted[2..], all[1..]);
}

#[test]
fn only_whom_a_request_was_sent_to_as_the_owner_has_it_wait_and_whoever_names_another_owner_is_heard() {
    for word in [WireAnswer::Retry { after_us: 500_000 }, WireAnswer::Unknown] {
        let mut world = World::open();
        world.start(ask());
        let first = world.take_one();
        let Target::Server(owner) = first.to else { panic!("{:?}", first.to) };
        let other = Target::Server(if owner == S1 { S2 } else { S1 });
        let sequence = first.request().sequence;
        world.reply_from(other, sequence, word.clone());
        world.pass(Duration::from_millis(130));
        let again = world.take_request();
        assert_eq!(again.sequence, sequence, "{word:?}: an answer of the owner was waited for");
        world.reply_from(first.to, sequence, word);
        world.sent.clear();
        // It waits now; somebody says who has taken over.
        let tablet = map().assignment.tablet_at(Position(0)).clone();
        let (tablet, epoch) = (tablet.block, tablet.epoch.next());
        let owner = if owner == S1 { S2 } else { S1 };
        world.reply_from(other, sequence, WireAnswer::Referral { tablet, epoch, owner });
        let sent: Vec<_> = world.sent.iter().map(|sent| (sent.to, sent.request().sequence)).collect();
        assert_eq!(sent, [(other, sequence)]);
    }
}

#[test]
fn an_owner_that_says_not_now_is_not_taken_for_silent() {
    let mut world = World::open();
    world.start(ask());
    for _ in 0..20 {
        let sent = world.take_one();
        world.reply_from(sent.to, sent.request().sequence, WireAnswer::Retry { after_us: 0 });
        while world.sent.is_empty() {
            assert!(world.pass_to_next());
        }
    }
    // Its next answer is lost.
    let sent = world.take_one();
    let (before, mut asked) = (world.now.mono, Vec::new());
    while asked.is_empty() {
        assert!(world.pass_to_next());
        let again = std::mem::take(&mut world.sent).into_iter();
        asked = again.filter(|again| again.request().sequence == sent.request().sequence).collect();
    }
    assert!(world.now.mono.since(before) <= Duration::from_millis(125), "{:?}", world.now.mono.since(before));
    assert_eq!(asked.len(), 1, "nobody else is asked yet");
}

#[test]
fn a_successor_that_knows_of_no_other_owner_is_not_listened_to_and_one_that_has_taken_over_is() {
    let mut world = World::open();
    world.start(ask());
    let first = world.take_one();
    let Target::Server(owner) = first.to else { panic!("{:?}", first.to) };
    let to_successor = loop {
        assert!(world.pass_to_next());
        let other = |sent: &Sent| sent.request().call == asked() && sent.to != first.to;
        if let Some(sent) = std::mem::take(&mut world.sent).into_iter().find(other) {
            break sent;
        }
    };
    let Target::Server(successor) = to_successor.to else { panic!("{:?}", to_successor.to) };
    let tablet = map().assignment.tablets().find(|tablet| tablet.owner == owner).unwrap().clone();
    let (tablet, epoch) = (tablet.block, tablet.epoch);
    let sequence = first.request().sequence;
    world.reply_from(to_successor.to, sequence, WireAnswer::Referral { tablet, epoch, owner });
    assert!(world.sent.is_empty(), "the owner is waited for");
    let taken = WireAnswer::Referral { tablet, epoch: epoch.next(), owner: successor };
    world.reply_from(to_successor.to, sequence, taken);
    let there = |sent: &Sent| sent.to == Target::Server(successor) && sent.request().epoch == epoch.next();
    assert!(world.sent.iter().any(there));
}

#[test]
fn what_a_silent_owner_was_asked_goes_to_the_new_one_with_its_first_recall() {
    let mut world = World::open();
    world.start(ask());
    let first = world.take_one();
    let tablet = map().assignment.tablet_at(Position(0)).clone();
    let epoch = tablet.epoch.next();
    let from = Target::Server(if tablet.owner == S1 { S2 } else { S1 });
    assert_ne!(first.to, from);
    let message = Message::Recall(Recall { tablet: tablet.block, epoch, number: 1, keys: Vec::new() });
    world.step(Event::Message { from, message, attachment: Vec::new() });
    let again = world.sent.iter().filter(|sent| matches!(sent.message, Message::Request(_)));
    let again: Vec<_> = again.map(|sent| (sent.to, sent.request().sequence, sent.request().epoch)).collect();
    assert_eq!(again, [(from, first.request().sequence, epoch)]);
}

#[test]
fn what_a_silent_owner_was_asked_goes_to_another_one_as_soon_as_any_answer_names_it() {
    let mut world = World::open();
    world.start(ask());
    world.start(ask());
    let asked: Vec<Sent> = std::mem::take(&mut world.sent);
    let [first, second] = &asked[..] else { panic!("{asked:?}") };
    let Target::Server(owner) = first.to else { panic!("{:?}", first.to) };
    let tablet = map().assignment.tablets().find(|tablet| tablet.owner == owner).unwrap().clone();
    let (tablet, epoch) = (tablet.block, tablet.epoch.next());
    world.reply_from(first.to, first.request().sequence, WireAnswer::Referral { tablet, epoch, owner: S2 });
    let gone = |sent: &&Sent| sent.to == Target::Server(S2) && sent.request().epoch == epoch;
    let mut to_new: Vec<_> = world.sent.iter().filter(gone).map(|sent| sent.request().sequence).collect();
    to_new.sort();
    assert_eq!(to_new, [first.request().sequence, second.request().sequence]);
}

#[test]
fn space_is_asked_of_whoever_answers() {
    let mut world = World::open();
    let ticket = world.start(Operation::Statfs);
    // The owner of the first tablet is down, and so is the server that the shell would choose.
    let sent = loop {
        let others = |sent: &Sent| sent.to == Target::Server(S2) && sent.request().call == Call::Statfs;
        if let Some(sent) = std::mem::take(&mut world.sent).into_iter().find(others) {
            break sent;
        }
        assert!(world.pass_to_next());
        assert!(!world.finished.contains_key(&ticket), "nobody else is asked");
    };
    let view = bearing_proto::client::StatfsView { bytes_total: 2, bytes_free: 1 };
    world.reply_done(sent.request(), Ok(Body::Statfs(view)));
    assert_eq!(world.result(ticket), Ok(Answer::Statfs(view)));
}

#[test]
fn a_request_is_given_up_at_its_deadline() {
    let mut world = World::open();
    let ticket = world.start(ask());
    let begun = world.now.mono;
    while !world.finished.contains_key(&ticket) {
        assert!(world.pass_to_next());
        world.sent.clear();
    }
    assert_eq!(world.result(ticket), Err(Code::Unreachable));
    assert_eq!(world.now.mono.since(begun), config().request_timeout);
}

#[test]
fn not_now_is_asked_again_under_the_same_number_after_the_pause() {
    let mut world = World::open();
    world.start(ask());
    let request = world.take_request();
    world.reply(request.sequence, WireAnswer::Retry { after_us: 50_000 });
    // A copy of the same answer changes nothing.
    world.reply(request.sequence, WireAnswer::Retry { after_us: 1 });
    world.pass(Duration::from_millis(49));
    assert!(world.sent.is_empty());
    world.pass(Duration::from_millis(1));
    assert_eq!(world.take_request().sequence, request.sequence);
    assert_eq!(world.client.counters().retries, 1);
}

#[test]
fn a_referral_is_learnt_and_followed_under_the_new_epoch() {
    let mut world = World::open();
    world.start(ask());
    let request = world.take_request();
    let (low, _) = Block::RING.halves().unwrap();
    world.reply(request.sequence, WireAnswer::Referral { tablet: low, epoch: Epoch(7), owner: S2 });
    let sent = world.take_one();
    assert_eq!(sent.to, Target::Server(S2));
    let expected = Request { epoch: Epoch(7), ..request };
    assert_eq!(sent.request(), &expected);
    world.start(attributes_of(5));
    assert_eq!(world.take_one().to, Target::Server(S2), "later requests go there at once");
}

/// An unlink sent to S1, then referred to S2: the request as S1 has it, its ticket, and its tablet under the
/// new owner.
fn unlink_referred(world: &mut World) -> (Request, Ticket, Tablet) {
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.answer_one(entry(file(5, "a"), 10_000));
    let request = world.take_request();
    let tablet = map().assignment.tablet_at(request.position).clone();
    let referred = Tablet { epoch: Epoch(tablet.epoch.0 + 1), ..tablet };
    world.reply(
        request.sequence,
        WireAnswer::Referral { tablet: referred.block, epoch: referred.epoch, owner: S2 },
    );
    assert_eq!(world.take_request().epoch, referred.epoch);
    (request, ticket, referred)
}

#[test]
fn a_refusal_of_an_older_epoch_than_a_change_was_sent_under_is_no_answer() {
    let mut world = with_root_cached();
    let (request, ticket, tablet) = unlink_referred(&mut world);
    // The former owner refused it, and that comes only now. The new one remembers no refusals, and may have
    // done it.
    world.reply_done(&request, Err(Code::NoSpace));
    assert!(!world.finished.contains_key(&ticket));
    let result = Ok(Box::new(Body::Done));
    world.reply(
        request.sequence,
        WireAnswer::Done { tablet: tablet.block, epoch: tablet.epoch, result, changed: Vec::new() },
    );
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

#[test]
fn a_change_that_an_older_epoch_has_made_is_made() {
    let mut world = with_root_cached();
    let (request, ticket, _) = unlink_referred(&mut world);
    world.reply_done(&request, Ok(Body::Done));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

#[test]
fn two_servers_that_point_at_each_other_are_not_asked_without_pauses() {
    let mut world = World::open();
    world.start(ask());
    let request = world.take_request();
    let (low, _) = Block::RING.halves().unwrap();
    world.reply(request.sequence, WireAnswer::Referral { tablet: low, epoch: Epoch(1), owner: S1 });
    assert!(world.sent.iter().all(|sent| matches!(sent.request().call, Call::Map { .. })));
    world.sent.clear();
    world.pass(Duration::from_millis(10));
    assert_eq!(world.take_request().sequence, request.sequence);
}

#[test]
fn who_does_not_know_makes_the_client_fetch_the_whole_map_and_ask_again() {
    let mut world = World::open();
    world.pass(Duration::from_secs(1));
    world.start(ask());
    let request = world.take_request();
    world.reply(request.sequence, WireAnswer::Unknown);
    let asked = world.take_one();
    assert_eq!(asked.request().call, Call::Map { have: None });
    let asked = asked.request().clone();
    world.reply_done(&asked, Ok(Body::Map(Some(Box::new(map())))));
    assert_eq!(world.take_request().sequence, request.sequence);
}

#[test]
fn an_answer_too_large_for_a_datagram_is_fetched_over_a_stream() {
    let mut world = World::open();
    world.start(ask());
    let sent = world.take_one();
    assert_eq!(sent.transport, Transport::Datagram);
    world.reply(sent.request().sequence, WireAnswer::TooLarge);
    let again = world.take_one();
    assert_eq!((again.transport, again.request()), (Transport::Stream, sent.request()));
}

#[test]
fn requests_for_one_tablet_are_sent_next_to_each_other() {
    let mut world = World::new(config());
    let high = 1 << 63;
    for position in [1, high, 2, high + 1, 3] {
        world.start(attributes_of(position));
    }
    let request = world.take_request();
    world.reply_done(&request, Ok(Body::Map(Some(Box::new(map())))));
    let request = world.take_request();
    world.reply_done(&request, Ok(Body::Session { renew_within_ms: 30_000 }));
    let positions: Vec<_> = world.sent.iter().map(|sent| sent.request().position.0).collect();
    assert_eq!(positions, [1, 2, 3, high, high + 1]);
}

#[test]
fn finished_below_stops_at_the_oldest_outstanding_request() {
    let mut world = World::open();
    world.start(ask());
    let old = world.take_request();
    assert_eq!(old.finished_below, old.sequence);
    world.start(ask());
    let second = world.take_request();
    assert_eq!(second.finished_below, old.sequence);
    world.reply_done(&old, Err(Code::Io));
    world.start(ask());
    let third = world.take_request();
    assert_eq!(third.finished_below, second.sequence);
}

#[test]
fn the_same_events_give_the_same_commands() {
    let run = || {
        let mut world = World::open();
        world.start(ask());
        world.start(attributes_of(1 << 63));
        let mut log = Vec::new();
        for _ in 0..50 {
            world.pass_to_next();
            log.push(format!("{:?} {:?}", world.now, world.sent));
        }
        log
    };
    assert_eq!(run(), run());
}
