use super::*;
use bearing_routing::Shape;

const SECOND: u64 = 1_000_000_000;

fn server(selection: &str) -> FlowServer {
    server_with(selection, Replanning::Off)
}

fn server_with(selection: &str, replanning: Replanning) -> FlowServer {
    let topology = Arc::new(Shape::mayflower(8.0).unwrap().topology());
    let selection = selection.parse().unwrap();
    FlowServer::new(
        Mono::ZERO,
        topology,
        Options { selection, poll_interval: Duration::from_secs(1), replanning, seed: 1 },
    )
}

fn stepped(server: &mut FlowServer, now: u64, events: impl IntoIterator<Item = Event>) -> Vec<Command> {
    let mut out = Vec::new();
    server.step(Mono(now), events, &mut out);
    out
}

fn ask(reader: u32, replicas: &[u32]) -> Event {
    let replicas = replicas.iter().copied().map(Place).collect();
    Event::Ask(Request(7), Read { reader: Place(reader), replicas, bytes: 128 << 20 })
}

fn chosen(commands: &[Command]) -> Choice {
    let answers = commands.iter().find_map(|command| match command {
        Command::Answer(Request(7), choice) => choice.clone(),
        _ => None,
    });
    answers.expect("an answer")
}

#[test]
fn every_host_is_polled_once_in_an_interval_and_in_turn() {
    let mut server = server("mayflower-p");
    let mut polled = Vec::new();
    let mut now = 0;
    while now < SECOND {
        now = server.next_wake().0;
        polled.extend(stepped(&mut server, now, []));
    }
    let expected: Vec<Command> = (0..65).map(|number| Command::Poll(Place(number % 64))).collect();
    assert_eq!(polled, expected);
    // After a long sleep it goes on where it was, and asks for each host once.
    let late = stepped(&mut server, 100 * SECOND, []);
    assert_eq!(late, [Command::Poll(Place(1))]);
}

#[test]
fn reads_end_and_leave_nothing() {
    let mut server = server("mayflower-p");
    let choice = chosen(&stepped(&mut server, 1, [ask(0, &[20, 40])]));
    assert_eq!(server.estimates().count(), 2);
    stepped(&mut server, 2, choice.parts.iter().map(|part| Event::Ended(part.flow)));
    assert_eq!(server.estimates().count(), 0);
    assert!(server.flows.is_empty() && server.sent.iter().all(BTreeSet::is_empty));
    // Told twice, or of nothing: nothing happens.
    stepped(&mut server, 3, choice.parts.iter().map(|part| Event::Ended(part.flow)));
}

#[test]
fn counters_of_hosts_and_flows_that_are_unknown_are_counted_and_harmless() {
    let mut server = server("sinbad-r-mf");
    let strange = vec![Counted { flow: FlowId(77), bytes: u64::MAX }];
    let events = [Event::Counters(Place(9), strange.clone()), Event::Counters(Place(9_999), strange)];
    stepped(&mut server, 1, events);
    assert_eq!(server.estimates().unknown_reports(), 2);
    assert_eq!(server.estimates().count(), 0);
}

#[test]
fn a_flow_of_others_is_avoided_once_it_was_noticed() {
    let mut server = server("mayflower-b");
    let topology = server.paths.topology().clone();
    // Host 20 sends to host 21 of its rack, as fast as it can.
    let path = server.paths.between(Place(20), Place(21)).iter().next().unwrap().path();
    let noticed = Background { source: Place(20), target: Place(21), path, bytes: None };
    let commands = stepped(&mut server, 1, [Event::Noticed(Request(1), noticed)]);
    let Some(Command::Numbered(Request(1), Some(flow))) = commands.first() else { panic!("{commands:?}") };
    let choice = chosen(&stepped(&mut server, 2, [ask(0, &[20, 40])]));
    assert_eq!(choice.parts[0].replica, 1);
    assert_eq!(server.estimates().rate(*flow), Some(topology.capacity(LinkId(0))));
}

#[test]
fn sinbad_sees_what_hosts_have_counted_and_what_was_chosen_since() {
    let mut server = server("sinbad-r-mf");
    let first = chosen(&stepped(&mut server, 1, [ask(0, &[4, 8])]));
    let second = chosen(&stepped(&mut server, 2, [ask(1, &[4, 8])]));
    assert_ne!(first.parts[0].replica, second.parts[0].replica);
    // The host of the first has sent nothing for a second, that of the second much.
    let counters = |part: &bearing_routing::Part, bytes| {
        Event::Counters(Place([4, 8][part.replica]), vec![Counted { flow: part.flow, bytes }])
    };
    let events = [counters(&first.parts[0], 1), counters(&second.parts[0], 100_000_000)];
    stepped(&mut server, SECOND + 2, events);
    let third = chosen(&stepped(&mut server, SECOND + 3, [ask(2, &[4, 8])]));
    assert_eq!(third.parts[0].replica, first.parts[0].replica);
}

#[test]
fn what_has_failed_is_not_chosen() {
    let mut server = server("mayflower-p");
    let failed = server.paths.topology().switches().collect();
    let commands = stepped(&mut server, 1, [Event::Failed(BTreeSet::new(), failed), ask(0, &[20])]);
    assert_eq!(commands[0], Command::Answer(Request(7), None));
}

#[test]
fn a_read_that_nobody_ends_is_forgotten() {
    let mut server = server("mayflower-p");
    chosen(&stepped(&mut server, 1, [ask(0, &[20, 40])]));
    for second in 1..200 {
        stepped(&mut server, second * SECOND, []);
    }
    for step in 0..64 {
        stepped(&mut server, 200 * SECOND + step * SECOND, []);
    }
    assert_eq!((server.estimates().count(), server.flows.len()), (0, 0));
}

/// Host 1 sends to host 2 of its rack until it has ended; a read from host 1 or far away begins meanwhile.
fn read_beside_another(replanning: Replanning) -> (FlowServer, FlowId, Choice) {
    let mut server = server_with("mayflower-b", replanning);
    let path = server.paths.between(Place(1), Place(2)).iter().next().unwrap().path();
    let noticed = Background { source: Place(1), target: Place(2), path, bytes: Some(1 << 30) };
    let commands = stepped(&mut server, 1, [Event::Noticed(Request(1), noticed)]);
    let Some(Command::Numbered(_, Some(other))) = commands.first() else { panic!("{commands:?}") };
    let other = *other;
    let choice = chosen(&stepped(&mut server, 2, [ask(0, &[1, 40])]));
    assert_eq!(choice.parts[0].replica, 1, "it begins far away");
    (server, other, choice)
}

#[test]
fn a_read_under_way_gets_another_replica_when_that_has_become_free() {
    let (mut server, other, choice) = read_beside_another(Replanning::On);
    // Within a second estimates are frozen, and a part stays; but one may be added.
    let commands = stepped(&mut server, SECOND / 10, [Event::Ended(other)]);
    let redirected = commands.iter().find_map(|command| match command {
        Command::Redirect(Request(7), ended, part) => Some((*ended, part.clone())),
        _ => None,
    });
    let (ended, part) = redirected.expect("half of the time is saved");
    assert_eq!((ended, part.replica), (None, 0));
    // Both ends are told in the end, and nothing is left.
    let ends = [choice.parts[0].flow, part.flow].map(Event::Ended);
    stepped(&mut server, SECOND, ends);
    assert_eq!((server.estimates().count(), server.readings.len(), server.flows.len()), (0, 0, 0));
}

#[test]
fn a_read_under_way_stays_where_it_is_unless_re_planning_is_on() {
    let (mut server, other, _) = read_beside_another(Replanning::Off);
    let commands = stepped(&mut server, 2 * SECOND, [Event::Ended(other)]);
    assert!(!commands.iter().any(|command| matches!(command, Command::Redirect(..))));
}

#[test]
fn a_host_with_a_slow_disk_is_avoided_until_it_is_fast_again() {
    let mut server = server("mayflower-b");
    let slow = Event::Disk(Place(1), Some(Rate::bits(100_000_000)));
    let choice = chosen(&stepped(&mut server, 1, [slow, ask(0, &[1, 40])]));
    assert_eq!(choice.parts[0].replica, 1);
    stepped(&mut server, 2, [Event::Ended(choice.parts[0].flow)]);
    let events = [Event::Disk(Place(1), None), Event::Disk(Place(u32::MAX), None), ask(0, &[1, 40])];
    assert_eq!(chosen(&stepped(&mut server, 3, events)).parts[0].replica, 0);
}

#[test]
fn numbers_that_make_no_sense_are_answered_and_harm_nobody() {
    let mut server = server_with("mayflower-p", Replanning::On);
    let nowhere =
        chosen_or_none(&stepped(&mut server, 1, [ask(64, &[1]), ask(0, &[64, u32::MAX]), ask(99, &[99])]));
    assert_eq!(nowhere, [None, None, None]);
    let noticed = Background { source: Place(64), target: Place(0), path: Path::default(), bytes: None };
    let commands = stepped(&mut server, 2, [Event::Noticed(Request(3), noticed)]);
    assert!(commands.contains(&Command::Numbered(Request(3), None)));
    // A read of all bytes there can be does not keep others from their nearest replica.
    let replicas = vec![Place(1)];
    let absurd = Read { reader: Place(2), replicas, bytes: u64::MAX };
    let commands = stepped(&mut server, 3, [Event::Ask(Request(4), absurd), ask(0, &[5])]);
    assert_eq!(chosen(&commands).parts.len(), 1);
    assert!(server.estimates().flows().all(|(_, rate, _)| rate.bytes().is_finite()));
    assert!(server.estimates().remaining(Mono(3), FlowId(0)).unwrap() <= BYTES_MAX as f64);
}

fn chosen_or_none(commands: &[Command]) -> Vec<Option<Choice>> {
    let answer = |command: &Command| match command {
        Command::Answer(_, choice) => Some(choice.clone()),
        _ => None,
    };
    commands.iter().filter_map(answer).collect()
}

#[test]
fn who_ends_nothing_gets_a_bounded_memory() {
    let mut server = server("mayflower-b");
    for number in 0..FLOWS_MAX as u64 + 10 {
        stepped(&mut server, 1 + number, [ask((number % 60) as u32, &[(number % 60) as u32])]);
    }
    assert_eq!((server.flows.len(), server.readings.len()), (FLOWS_MAX, 1));
    assert!(server.estimates().count() <= FLOWS_MAX);
}
