use super::*;
use crate::server::Replanning;
use bearing_proto::data::Carried;
use bearing_routing::{Description, SELECTIONS};
use bearing_types::SessionId;

const READER: Sender = Sender::Client(SessionId(7));

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn servers(count: u8) -> BTreeMap<ServerId, IpAddr> {
    (1..=count).map(|number| (ServerId(u32::from(number)), ip(number))).collect()
}

fn options(seed: u64) -> Options {
    let (selection, poll_interval) = (SELECTIONS[0], Duration::from_secs(1));
    Options { selection, poll_interval, replanning: Replanning::Off, seed }
}

/// An adviser of three data servers, one on each of three hosts.
fn adviser(seed: u64) -> Adviser {
    let mut adviser = Adviser::new(Mono::ZERO, None, options(seed)).unwrap();
    adviser.step(Mono::ZERO, Said::Servers(servers(3)), &mut Vec::new());
    adviser
}

fn at(ms: u64) -> Mono {
    Mono::ZERO.after(Duration::from_millis(ms))
}

fn asked(adviser: &mut Adviser, now: Mono, from: IpAddr, call: FlowCall) -> Result<FlowBody, FlowError> {
    let mut out = Vec::new();
    adviser.step(now, Said::Asked(READER, from, FlowRequest { id: 5, call }), &mut out);
    let mut answers = out.into_iter().filter_map(|say| match say {
        Say::Answer(to, reply) => {
            assert_eq!((to, reply.id), (READER, 5));
            Some(reply.result)
        }
        Say::Ask(..) => None,
    });
    answers.next_back().expect("every question is answered at once")
}

fn read(servers: &[u32], bytes: u64) -> Replicated {
    Replicated { servers: servers.iter().map(|server| ServerId(*server)).collect(), bytes }
}

fn plan(adviser: &mut Adviser, now: Mono, from: IpAddr, read: Replicated) -> Vec<PlanPart> {
    match asked(adviser, now, from, FlowCall::Plan { read }) {
        Ok(FlowBody::Plan { parts }) => parts,
        other => panic!("{other:?}"),
    }
}

fn counters(flows: Vec<(Flow, u64)>, read: u64, busy_us: u64) -> DataReply {
    DataReply { id: 1, result: Ok(DataBody::Counters { flows, queued: 3, read, busy_us, carried: None }) }
}

#[test]
fn a_read_goes_where_nothing_else_flows_and_its_parts_have_all_bytes() {
    let mut adviser = adviser(1);
    let first = plan(&mut adviser, at(0), ip(9), read(&[1], 64 << 20));
    assert_eq!(first.iter().map(|part| part.server).collect::<Vec<_>>(), [ServerId(1)]);
    let second = plan(&mut adviser, at(1), ip(9), read(&[1, 2], 64 << 20));
    assert_eq!(second[0].server, ServerId(2), "server 1 sends already");
    assert_eq!(second.iter().map(|part| part.flow.bytes).sum::<u64>(), 64 << 20);
    let numbers: Vec<FlowNumber> = first.iter().chain(&second).map(|part| part.flow.number).collect();
    let ended = asked(&mut adviser, at(2), ip(9), FlowCall::Ended { flows: numbers });
    assert_eq!((ended, adviser.flows()), (Ok(FlowBody::Done), 0));
    assert_eq!(adviser.next_wake(), None, "nobody is asked for counters while nothing flows");
}

#[test]
fn a_server_on_the_readers_host_costs_no_link() {
    let mut adviser = adviser(1);
    let parts = plan(&mut adviser, at(0), ip(3), read(&[1, 2, 3], 1 << 20));
    assert_eq!(parts[0].server, ServerId(3));
}

#[test]
fn who_was_started_again_knows_the_flows_after_one_round_of_counters() {
    let mut before = adviser(1);
    let parts = plan(&mut before, at(0), ip(9), read(&[1], 64 << 20));
    let mut after = adviser(2);
    assert_eq!(after.flows(), 0);
    after.step(
        at(10),
        Said::Counters(ServerId(1), counters(vec![(parts[0].flow, 1 << 20)], 0, 0)),
        &mut Vec::new(),
    );
    assert_eq!(after.flows(), 1);
    let next = plan(&mut after, at(11), ip(9), read(&[1, 2], 64 << 20));
    assert_eq!(next[0].server, ServerId(2));
    // One that has sent all it was to send is no flow any more.
    let over = Flow { number: FlowNumber(77), ..parts[0].flow };
    after.step(at(12), Said::Counters(ServerId(3), counters(vec![(over, 64 << 20)], 0, 0)), &mut Vec::new());
    assert_eq!(after.flows(), 1 + next.len());
}

#[test]
fn a_slow_disk_is_avoided_until_its_measurement_is_old() {
    let mut adviser = adviser(1);
    let mut hear = |server, ms, read, busy_us| {
        adviser.step(
            at(ms),
            Said::Counters(ServerId(server), counters(Vec::new(), read, busy_us)),
            &mut Vec::new(),
        );
    };
    hear(1, 0, 0, 0);
    // 5 MB in half a second of work.
    hear(1, 1_000, 5_000_000, 500_000);
    let quick = plan(&mut adviser, at(1_001), ip(1), read(&[1, 2], 64 << 20));
    assert_eq!(quick[0].server, ServerId(2), "although server 1 is on the reader's host");
    let flows = quick.iter().map(|part| part.flow.number).collect();
    asked(&mut adviser, at(1_002), ip(1), FlowCall::Ended { flows }).unwrap();
    let later = plan(&mut adviser, at(12_000), ip(1), read(&[1, 2], 64 << 20));
    assert_eq!(later[0].server, ServerId(1));
}

#[test]
fn an_explanation_says_what_a_plan_would_and_notes_nothing() {
    let mut adviser = adviser(1);
    plan(&mut adviser, at(0), ip(9), read(&[1], 64 << 20));
    let flows = adviser.flows();
    let call = FlowCall::Explain { reader: Some(ip(9)), read: read(&[1, 2, 44], 64 << 20) };
    let Ok(FlowBody::Explained(told)) = asked(&mut adviser, at(1), ip(1), call) else { panic!() };
    assert_eq!(adviser.flows(), flows);
    let servers: Vec<ServerId> = told.candidates.iter().map(|candidate| candidate.server).collect();
    assert_eq!((servers, told.unknown), (vec![ServerId(2), ServerId(1)], vec![ServerId(44)]));
    assert_eq!(told.candidates[1].shared_with, 1);
    assert_eq!(told.candidates[0].path, ["10.0.0.2", "network", "elsewhere"]);
    let planned = plan(&mut adviser, at(1), ip(9), read(&[1, 2], 64 << 20));
    let by_server =
        |parts: &[PlanPart]| parts.iter().map(|part| (part.server, part.flow.bytes)).collect::<Vec<_>>();
    assert_eq!(by_server(&told.parts), by_server(&planned));
}

#[test]
fn hosts_are_ranked_by_how_long_they_would_read() {
    let mut adviser = adviser(1);
    plan(&mut adviser, at(0), ip(9), read(&[1], 1 << 30));
    let reads = vec![read(&[1], 64 << 20), read(&[1, 2], 64 << 20)];
    let call = FlowCall::Rank { readers: vec![ip(1), ip(2), ip(3)], reads: reads.clone() };
    let Ok(FlowBody::Ranked(told)) = asked(&mut adviser, at(1), ip(1), call) else { panic!() };
    let told: Vec<u64> = told.into_iter().flatten().collect();
    assert!(told.len() == 3 && told[0] < told[1] && told[1] < told[2], "{told:?}");
    assert_eq!(adviser.flows(), 1);
    for (readers, reads) in [(vec![], reads.clone()), (vec![ip(1); 600], reads)] {
        assert_eq!(
            asked(&mut adviser, at(1), ip(1), FlowCall::Rank { readers, reads }),
            Err(FlowError::TooMuch)
        );
    }
}

#[test]
fn nonsense_is_answered_and_changes_nothing() {
    let mut adviser = adviser(1);
    let none = asked(&mut adviser, at(0), ip(1), FlowCall::Plan { read: read(&[44], 1) });
    assert_eq!(none, Err(FlowError::NoReplica));
    assert_eq!(
        asked(&mut adviser, at(0), ip(1), FlowCall::Ended { flows: vec![FlowNumber(3)] }),
        Ok(FlowBody::Done)
    );
    let parts = plan(&mut adviser, at(0), ip(9), read(&[1; 4_000], u64::MAX));
    assert!(parts.iter().all(|part| part.flow.bytes <= 1 << 50 && part.rate > 0));
    for (read, busy) in [(u64::MAX, u64::MAX), (0, 0), (u64::MAX, 1)] {
        let flows = vec![(Flow { number: FlowNumber(0), bytes: u64::MAX, reader: ip(200) }, u64::MAX)];
        adviser.step(at(1), Said::Counters(ServerId(1), counters(flows, read, busy)), &mut Vec::new());
        adviser.step(at(2), Said::Counters(ServerId(88), counters(Vec::new(), read, busy)), &mut Vec::new());
    }
    let Ok(FlowBody::Traffic(traffic)) = asked(&mut adviser, at(3), ip(1), FlowCall::Traffic) else {
        panic!()
    };
    assert_eq!((traffic.count, traffic.sources.len(), traffic.has_topology), (parts.len() as u64, 3, false));
    assert!(!plan(&mut adviser, at(4), ip(9), read(&[1, 2, 3], 1)).is_empty());
}

#[test]
fn traffic_names_hosts_and_links_between_them_by_load() {
    let mut adviser = adviser(1);
    plan(&mut adviser, at(0), ip(2), read(&[1], 64 << 20));
    plan(&mut adviser, at(0), ip(2), read(&[3], 32 << 20));
    let Ok(FlowBody::Traffic(traffic)) = asked(&mut adviser, at(1), ip(1), FlowCall::Traffic) else {
        panic!()
    };
    assert_eq!(traffic.flows.len(), 2);
    assert!(traffic.flows[0].target.starts_with("10.0.0.2"));
    let busiest = &traffic.links[0];
    assert_eq!((&*busiest.source, &*busiest.target, busiest.flows), ("network", "10.0.0.2", 2));
    assert!(traffic.links.iter().all(|link| link.load <= link.capacity + 1));
}

#[test]
fn data_servers_are_asked_for_counters_within_a_second_while_something_flows() {
    let mut adviser = adviser(1);
    plan(&mut adviser, at(0), ip(9), read(&[1, 2, 3], 1 << 40));
    let mut out = Vec::new();
    let mut now = Mono::ZERO;
    while let Some(wake) = adviser.next_wake().filter(|wake| *wake <= at(1_000)) {
        now = now.max(wake);
        adviser.step(now, Said::Tick, &mut out);
    }
    let mut asked: Vec<ServerId> = out
        .iter()
        .filter_map(|say| match say {
            Say::Ask(server, DataRequest { call: DataCall::Counters, .. }) => Some(*server),
            _ => None,
        })
        .collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked, [ServerId(1), ServerId(2), ServerId(3)]);
}

#[test]
fn when_servers_come_flows_are_known_again_by_their_counters() {
    let mut adviser = adviser(1);
    let parts = plan(&mut adviser, at(0), ip(9), read(&[1], 64 << 20));
    adviser.step(at(1), Said::Servers(servers(4)), &mut Vec::new());
    assert_eq!(adviser.flows(), 0);
    adviser.step(
        at(2),
        Said::Counters(ServerId(1), counters(vec![(parts[0].flow, 5)], 0, 0)),
        &mut Vec::new(),
    );
    assert_eq!(adviser.flows(), 1);
    let flows = vec![parts[0].flow.number];
    asked(&mut adviser, at(3), ip(9), FlowCall::Ended { flows }).unwrap();
    assert_eq!(adviser.flows(), 0);
}

#[test]
fn readers_that_a_described_network_does_not_have_are_told_so() {
    let described = Description {
        switches: vec!["core".into()],
        hosts: vec!["a".into(), "b".into()],
        links: ["a", "b"].map(|host| (host.into(), "core".into(), Rate::bits(1_000_000))).into(),
    };
    let addresses = BTreeMap::from([(ip(1), "a".into()), (ip(2), "b".into())]);
    let network = Some(Network { described, addresses });
    let mut adviser = Adviser::new(Mono::ZERO, network, options(1)).unwrap();
    adviser.step(Mono::ZERO, Said::Servers(servers(2)), &mut Vec::new());
    let call = FlowCall::Plan { read: read(&[1], 1) };
    assert_eq!(asked(&mut adviser, at(0), ip(9), call.clone()), Err(FlowError::UnknownReader));
    assert!(asked(&mut adviser, at(0), ip(2), call).is_ok());
}

#[test]
fn what_others_send_over_a_hosts_link_is_shared_with() {
    let mut adviser = adviser(1);
    let mut hear = |server, ms, sent, received| {
        let carried = Some(Carried { sent, received });
        let body = DataBody::Counters { flows: Vec::new(), queued: 0, read: 0, busy_us: 0, carried };
        let reply = DataReply { id: 1, result: Ok(body) };
        adviser.step(at(ms), Said::Counters(ServerId(server), reply), &mut Vec::new());
        adviser.flows()
    };
    assert_eq!([hear(1, 0, 0, 0), hear(2, 0, 0, 0)], [0, 0]);
    // 9 Gb/s of the 10 that a link is taken to carry.
    assert_eq!([hear(1, 1_000, 1_125_000_000, 0), hear(2, 1_000, 1_000_000, 0)], [4, 4]);
    let around = plan(&mut adviser, at(1_100), ip(9), read(&[1, 2], 64 << 20));
    // A fifth of the busy link is what a new flow may expect there.
    assert!(around[0].server == ServerId(2) && around[0].flow.bytes > 52 << 20, "{around:?}");
    let flows = around.iter().map(|part| part.flow.number).collect();
    asked(&mut adviser, at(1_200), ip(9), FlowCall::Ended { flows }).unwrap();
    let Ok(FlowBody::Traffic(told)) = asked(&mut adviser, at(1_200), ip(9), FlowCall::Traffic) else {
        panic!()
    };
    assert!(told.links[0].source == "10.0.0.1" && told.links[0].load >= 1_125_000_000, "{told:?}");
    // They have stopped, and the interface was made again.
    let mut hear = |ms, sent| {
        let carried = Some(Carried { sent, received: 0 });
        let body = DataBody::Counters { flows: Vec::new(), queued: 0, read: 0, busy_us: 0, carried };
        let reply = DataReply { id: 1, result: Ok(body) };
        adviser.step(at(ms), Said::Counters(ServerId(1), reply), &mut Vec::new());
        adviser.flows()
    };
    assert_eq!(
        [hear(2_000, 1_126_000_000), hear(3_000, 0), hear(3_050, u64::MAX), hear(4_000, 5)],
        [0, 0, 0, 0]
    );
}

#[test]
fn what_we_send_ourselves_is_no_stranger() {
    let mut adviser = adviser(1);
    let parts = plan(&mut adviser, at(0), ip(9), read(&[1], 8 << 30));
    let mut hear = |ms, bytes| {
        let carried = Some(Carried { sent: bytes + bytes / 30, received: 0 });
        let flows = vec![(parts[0].flow, bytes)];
        let body = DataBody::Counters { flows, queued: 0, read: 0, busy_us: 0, carried };
        let reply = DataReply { id: 1, result: Ok(body) };
        adviser.step(at(ms), Said::Counters(ServerId(1), reply), &mut Vec::new());
        adviser.flows()
    };
    assert_eq!([hear(1_000, 900_000_000), hear(2_000, 1_800_000_000), hear(3_000, 2_700_000_000)], [1, 1, 1]);
}
