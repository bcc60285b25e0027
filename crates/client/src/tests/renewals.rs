//! Open files keep their leases, so that their servers ask here before they end them.

use super::world::*;
use crate::*;
use bearing_proto::client::{Answer as WireAnswer, AttributeChange, Body, Call, Handle, LeaseKey, Request};
use bearing_types::*;
use std::time::Duration;

/// Opens files 100, 101 ... for reading, each under a lease of so many milliseconds.
fn with_open_files(world: &mut World, count: u64, lease: u32) -> Vec<OpenFile> {
    (0..count).map(|number| open_one(world, handle(number), lease)).collect()
}

fn handle(number: u64) -> Handle {
    Handle { node: NodeId(100 + number), home: Position(number) }
}

fn open_one(world: &mut World, node: Handle, lease: u32) -> OpenFile {
    let ticket = world.start(open_to_read(node));
    world.answer_one(Body::Opened(file_view(node, 1, lease), Some(read_token(node))));
    match world.result(ticket) {
        Ok(Answer::Opened(file, _)) => file,
        other => panic!("an open file was expected, not {other:?}"),
    }
}

/// What was asked for to renew, without session upkeep.
fn renewals(world: &mut World) -> Vec<Request> {
    let requests = std::mem::take(&mut world.sent).into_iter().map(|sent| sent.request().clone());
    requests.filter(|request| matches!(request.call, Call::Attributes { .. })).collect()
}

/// Goes on until something is asked for to renew.
fn next_renewals(world: &mut World) -> Vec<Request> {
    loop {
        let asked = renewals(world);
        if !asked.is_empty() {
            return asked;
        }
        assert!(world.pass_to_next(), "nothing will ever be renewed");
    }
}

fn answer(world: &mut World, request: &Request, lease: u32) {
    let Call::Attributes { node } = request.call else { panic!("{request:?}") };
    world.reply_done(request, Ok(Body::Node(file_view(node, 1, lease))));
}

#[test]
fn the_lease_of_an_open_file_is_renewed_well_before_it_ends_again_and_again() {
    let mut world = World::open();
    with_open_files(&mut world, 1, 1000);
    for _ in 0..20 {
        let given = world.now.mono;
        let asked = next_renewals(&mut world);
        assert_eq!(asked.len(), 1);
        let passed = world.now.mono.since(given);
        assert!(passed >= Duration::from_millis(300) && passed <= Duration::from_millis(650), "{passed:?}");
        answer(&mut world, &asked[0], 1000);
    }
    assert_eq!(world.client.counters().leases_renewed, 20);
}

#[test]
fn a_renewal_that_is_lost_is_sent_again_before_the_lease_ends() {
    let mut world = World::open();
    with_open_files(&mut world, 1, 1000);
    let opened = world.now.mono;
    let first = next_renewals(&mut world);
    let again = next_renewals(&mut world);
    assert_eq!(first, again);
    assert!(world.now.mono.since(opened) < Duration::from_millis(900));
}

#[test]
fn a_file_that_was_opened_without_asking_has_its_lease_renewed() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 1000));
    world.found(ticket);
    let ticket = world.start(open_to_read(file(5, "a")));
    assert!(world.sent.is_empty());
    match world.result(ticket) {
        Ok(Answer::Opened(_, found)) => assert!(found.attributes_remaining > Remaining(Duration::ZERO)),
        other => panic!("{other:?}"),
    }
    // Its token comes with the first renewal.
    while world.sent.is_empty() {
        world.pass_to_next();
    }
    let first = world.take_request();
    assert!(matches!(first.call, Call::Open { read: true, write: false, .. }), "{first:?}");
    let token = Some(read_token(file(5, "a")));
    world.reply_done(&first, Ok(Body::Opened(file_view(file(5, "a"), 1, 1000), token)));
    let asked = next_renewals(&mut world);
    assert_eq!(asked[0].call, Call::Attributes { node: file(5, "a") });
}

#[test]
fn a_lease_that_is_about_to_end_opens_no_file() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 1000));
    world.found(ticket);
    world.pass(Duration::from_millis(950));
    world.start(open_to_read(file(5, "a")));
    assert!(matches!(world.take_request().call, Call::Open { .. }));
}

#[test]
fn after_a_recall_that_was_answered_open_the_lease_is_asked_for_until_it_is_given() {
    let mut world = World::open();
    with_open_files(&mut world, 1, 3000);
    world.recall(1, vec![LeaseKey::File(NodeId(100))]);
    let (number, _) = world.invalidations.remove(0);
    world.step(Event::Invalidated(number));
    world.sent.clear();
    let begun = world.now.mono;
    for lease in [0, 0, 0, 1000] {
        let asked = next_renewals(&mut world);
        answer(&mut world, &asked[0], lease);
    }
    assert!(world.now.mono.since(begun) < Duration::from_millis(1000));
    // What is refreshed is used: the next reader finds the attributes at hand.
    let node = handle(0);
    let ticket = world.start(Operation::Attributes { node, file_type: FileType::Regular });
    assert!(world.found(ticket).attributes_remaining > Remaining(Duration::ZERO));
    let asked = next_renewals(&mut world);
    assert_eq!(asked[0].call, Call::Attributes { node });
}

#[test]
fn a_closed_file_is_not_renewed() {
    let mut world = World::open();
    let files = with_open_files(&mut world, 2, 1000);
    world.start(Operation::Close { file: files[0] });
    let until = world.now.mono.after(Duration::from_millis(900));
    while world.client.next_wake().is_some_and(|due| due < until) {
        world.pass_to_next();
        for request in renewals(&mut world) {
            assert_eq!(request.call, Call::Attributes { node: handle(1) });
        }
    }
    assert_eq!(world.client.counters().leases_renewed, 1);
}

#[test]
fn a_file_of_which_another_handle_is_open_is_renewed_and_one_whose_node_is_gone_is_not() {
    let mut world = World::open();
    let file = open_one(&mut world, handle(0), 1000);
    let ticket = world.start(open_to_read(handle(0)));
    assert!(world.finished.contains_key(&ticket), "opened under the lease");
    world.start(Operation::Close { file });
    let asked = next_renewals(&mut world);
    world.reply_done(&asked[0], Err(Code::Stale));
    world.pass(Duration::from_secs(20));
    assert!(renewals(&mut world).is_empty());
}

#[test]
fn few_renewals_are_under_way_at_a_server_and_a_silent_one_holds_up_no_other() {
    let mut world = World::open_with(ClientConfig { renewals_max: 4, ..config() });
    with_open_files(&mut world, 40, 1000);
    let other = Handle { node: NodeId(7), home: Position(1 << 63) };
    open_one(&mut world, other, 1000);
    // The lower half of the ring says nothing.
    let mut others = 0;
    for _ in 0..300 {
        world.pass_to_next();
        let asked = renewals(&mut world);
        let low = asked.iter().filter(|request| request.position != other.home);
        assert!(low.count() <= 4);
        for request in asked.iter().filter(|request| request.position == other.home) {
            others += 1;
            answer(&mut world, request, 1000);
        }
    }
    assert!(others >= 10, "{others}");
}

#[test]
fn all_open_files_of_a_recalled_tablet_are_renewed_spread_over_time() {
    let mut world = World::open();
    with_open_files(&mut world, 20, 3000);
    world.recall(1, vec![]);
    let (number, _) = world.invalidations.remove(0);
    world.step(Event::Invalidated(number));
    world.sent.clear();
    let (mut asked, mut times) = (0, std::collections::BTreeSet::new());
    while asked < 20 {
        for request in next_renewals(&mut world) {
            asked += 1;
            times.insert(world.now.mono);
            answer(&mut world, &request, 3000);
        }
    }
    assert!(times.len() > 10);
}

#[test]
fn a_server_that_gives_no_lease_is_asked_ever_more_slowly() {
    let mut world = World::open();
    with_open_files(&mut world, 1, 0);
    let mut times = vec![world.now.mono];
    for _ in 0..12 {
        let asked = next_renewals(&mut world);
        times.push(world.now.mono);
        answer(&mut world, &asked[0], 0);
    }
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(pauses[0] < Duration::from_millis(70) && pauses[11] > Duration::from_secs(7), "{pauses:?}");
}

#[test]
fn an_own_change_that_ended_the_lease_has_it_asked_for_again() {
    let mut world = World::open();
    with_open_files(&mut world, 1, 3000);
    let ticket = world.start(Operation::SetAttributes {
        node: handle(0),
        file_type: FileType::Regular,
        who: Credentials::ROOT,
        change: Default::default(),
        file: None,
    });
    let request = world.take_request();
    world.reply(request.sequence, WireAnswer::Retry { after_us: 0 });
    world.pass(Duration::from_millis(10));
    world.sent.clear();
    world.reply_done(&request, Ok(Body::Node(file_view(handle(0), 2, 0))));
    world.found(ticket);
    let begun = world.now.mono;
    next_renewals(&mut world);
    assert!(world.now.mono.since(begun) < Duration::from_millis(100));
}

/// An open of a file is on its way while it is cut to 5,259 bytes by its path; the answer to the cut, with
/// such a lease, comes first.
fn opened_behind_a_cut(lease: u32) -> (World, OpenFile) {
    let mut world = World::open_with(config());
    let node = file(4, "a");
    let opening = world.start(open_to_read(node));
    let asked = world.take_request();
    let change = AttributeChange { size: Some(5259), ..AttributeChange::default() };
    let (file_type, who) = (FileType::Regular, Credentials::ROOT);
    world.start(Operation::SetAttributes { node, file_type, who, change, file: None });
    let mut cut = file_view(node, 2, lease);
    cut.attributes.size = 5259;
    world.answer_one(Body::Node(cut));
    let mut before = file_view(node, 1, 1000);
    before.attributes.size = 0;
    world.reply_done(&asked, Ok(Body::Opened(before, Some(read_token(node)))));
    let Ok(Answer::Opened(file, _)) = world.result(opening) else { panic!("it was opened") };
    (world, file)
}

#[test]
fn a_file_that_was_cut_while_it_was_being_opened_has_the_new_length() {
    let (mut world, file) = opened_behind_a_cut(1000);
    world.start(Operation::Read { file, offset: 0, length: 8192 });
    assert!(matches!(world.take_request().call, Call::Extents { .. }), "there is something to read");
    let (mut world, file) = opened_behind_a_cut(0);
    world.start(Operation::Read { file, offset: 0, length: 8192 });
    assert!(matches!(world.take_request().call, Call::Attributes { .. }), "what it was told is old");
}
