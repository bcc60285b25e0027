//! Chunks: on which servers they are opened, and how they are sealed.

use crate::cluster::{ALICE, BOB, Cluster, DATA};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{Body, Call, ChunkView};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{Code, Epoch, Position, ServerId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const SPACE: Result<DataBody, DataError> = Ok(DataBody::Space {
    used: 0,
    free: 1 << 30,
    filesystem: None,
    damaged: Vec::new(),
    life: 1,
    waiting: 0,
});
const HERE: Position = Position(0);

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster
}

fn chunk(answer: Result<Body, Code>) -> ChunkView {
    match answer {
        Ok(Body::Chunk(view)) => view,
        other => panic!("a chunk was expected, not {other:?}"),
    }
}

/// Data servers that hold so many bytes each, of any chunk. Calls other than pings are kept; what is not to
/// be answered is told by its number among the calls to a server.
fn data_servers(
    cluster: &mut Cluster,
    held: [u64; 2],
    lost: fn(ServerId, usize) -> bool,
) -> Rc<RefCell<BTreeMap<ServerId, Vec<DataCall>>>> {
    let calls: Rc<RefCell<BTreeMap<ServerId, Vec<DataCall>>>> = Rc::default();
    let kept = Rc::clone(&calls);
    cluster.data = Box::new(move |server, request| {
        if matches!(request.call, DataCall::Ping) {
            return Some(SPACE);
        }
        let mut kept = kept.borrow_mut();
        let calls = kept.entry(server).or_default();
        calls.push(request.call.clone());
        let length = held[usize::from(server == DATA[1])];
        let answer = match &request.call {
            DataCall::Fence { .. } => Ok(DataBody::Fenced { length, restarted: false, damaged: Vec::new() }),
            DataCall::Seal { length: at, .. } if *at > length => Err(DataError::Corrupt),
            _ => Ok(DataBody::Done),
        };
        (!lost(server, calls.len())).then_some(answer)
    });
    calls
}

#[test]
fn a_congested_server_gets_no_new_chunk_while_there_are_others() {
    let third = ServerId(DATA[1].0 + 1);
    let data = [DATA[0], DATA[1], third];
    for waiting in [[0, 0, 32 << 20], [1 << 20, 9 << 20, 64 << 20], [32 << 20, 30 << 20, 40 << 20]] {
        let mut cluster = Cluster::with_data(2, Scheme::AnglecutHashed, Config::standard(), &data);
        cluster.open_session(ALICE);
        cluster.data = Box::new(move |server, _| {
            let (damaged, waiting) = (Vec::new(), waiting[(server.0 - DATA[0].0) as usize]);
            let (used, free) = (0, 1 << 30);
            Some(Ok(DataBody::Space { used, free, filesystem: None, damaged, life: 1, waiting }))
        });
        cluster.pass(Duration::from_secs(2));
        let call = Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() };
        let opened: BTreeSet<ServerId> =
            (0..12).flat_map(|_| chunk(cluster.call(ALICE, HERE, call.clone())).servers).collect();
        // Where all have much to do, each has its turn.
        assert_eq!(opened.contains(&third), waiting[0] == 32 << 20, "{waiting:?}: {opened:?}");
        assert!(opened.is_superset(&DATA.into()));
    }
}

#[test]
fn a_full_server_gets_new_chunks_only_when_there_are_not_enough_others() {
    let third = ServerId(DATA[1].0 + 1);
    let data = [DATA[0], DATA[1], third];
    let mut cluster = Cluster::with_data(2, Scheme::AnglecutHashed, Config::standard(), &data);
    cluster.open_session(ALICE);
    let space = |free| {
        Ok(DataBody::Space { used: 0, free, filesystem: None, damaged: Vec::new(), life: 1, waiting: 0 })
    };
    cluster.data = Box::new(move |server, _| Some(space(if server == third { 1 << 20 } else { 1 << 30 })));
    cluster.pass(Duration::from_secs(2));
    let open = |cluster: &mut Cluster, avoid: &[ServerId]| {
        chunk(cluster.call(ALICE, HERE, Call::OpenChunk { avoid: avoid.to_vec(), doubted: Vec::new() }))
            .servers
    };
    for _ in 0..6 {
        let mut servers = open(&mut cluster, &[]);
        servers.sort();
        assert_eq!(servers, DATA);
        assert!(!open(&mut cluster, &[DATA[0]]).contains(&third), "one is enough");
    }
    let first: BTreeSet<ServerId> = (0..12).map(|_| open(&mut cluster, &data)[0]).collect();
    assert_eq!(first, data.into(), "where all are avoided each has its turn");
}

#[test]
fn a_server_that_failed_its_writer_once_is_taken_where_copies_would_be_missing_as_long_as_it_lives() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let open = |cluster: &mut Cluster, doubted: &[ServerId]| {
        let call = Call::OpenChunk { avoid: Vec::new(), doubted: doubted.to_vec() };
        chunk(cluster.call(ALICE, HERE, call)).servers
    };
    for _ in 0..4 {
        assert_eq!(open(&mut cluster, &[DATA[0]]), [DATA[1], DATA[0]], "it does not lead");
        assert_eq!(open(&mut cluster, &DATA).len(), 2, "both were started again");
    }
    // It is silent, and counts as there for a while yet.
    cluster.data = Box::new(|server, _| (server == DATA[1]).then_some(SPACE));
    cluster.pass(Duration::from_millis(2_000));
    for _ in 0..4 {
        assert_eq!(open(&mut cluster, &[DATA[0]]), [DATA[1]]);
        assert_eq!(open(&mut cluster, &[]).len(), 2);
    }
}

#[test]
fn a_server_that_says_its_disk_failed_gets_no_new_chunks() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.open_chunk(ALICE, HERE).servers.len(), 2);
    cluster.data = Box::new(|server, _| Some(if server == DATA[0] { Err(DataError::Failed) } else { SPACE }));
    cluster.pass(Duration::from_millis(1_100));
    for _ in 0..4 {
        assert_eq!(cluster.open_chunk(ALICE, HERE).servers, [DATA[1]]);
    }
    cluster.data = Box::new(|_, _| Some(SPACE));
    cluster.pass(Duration::from_millis(1_100));
    assert_eq!(cluster.open_chunk(ALICE, HERE).servers.len(), 2, "it was started again");
}

#[test]
fn chunks_lie_all_over_the_tablet_that_opens_them_and_are_found_there() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    for here in [HERE, Position(u64::MAX)] {
        let (_, tablet, _) = cluster.owner(here);
        let (lower, upper) = tablet.halves().unwrap();
        let opened: Vec<ChunkView> = (0..20).map(|_| cluster.open_chunk(ALICE, here)).collect();
        for view in &opened {
            assert!(tablet.contains(view.chunk.position));
            let shown = cluster.call(ALICE, view.chunk.position, Call::Chunk { chunk: view.chunk });
            assert_eq!(chunk(shown).chunk, view.chunk);
        }
        for half in [lower, upper] {
            assert!(opened.iter().any(|view| half.contains(view.chunk.position)), "{half}");
        }
    }
}

#[test]
fn a_chunk_is_sealed_at_the_end_of_the_furthest_frame_though_questions_and_answers_are_lost() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    let calls = data_servers(&mut cluster, [70, 100], |server, number| server == DATA[1] && number < 3);
    let sealed = cluster.seal_chunk(BOB, &opened);
    assert_eq!((sealed.sealed, sealed.epoch), (Some(100), opened.epoch.next()));
    let fence = DataCall::Fence { epoch: opened.epoch.next() };
    assert_eq!(calls.borrow()[&DATA[1]][..3], [fence.clone(), fence.clone(), fence]);
}

#[test]
fn what_one_data_server_was_asked_no_other_answers() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    data_servers(&mut cluster, [70, 100], |server, number| server == DATA[1] && number < 3);
    cluster.overheard_by = Some(DATA[0]);
    assert_eq!(cluster.seal_chunk(BOB, &opened).sealed, Some(100), "70 bytes are what the other one has");
}

#[test]
fn a_server_that_missed_a_seal_is_told_when_it_is_asked_for_again() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    data_servers(&mut cluster, [100, 70], |server, _| server == DATA[1]);
    assert_eq!(cluster.seal_chunk(BOB, &opened).sealed, Some(100));
    let calls = data_servers(&mut cluster, [100, 70], |_, _| false);
    let sealed = cluster.seal_chunk(BOB, &opened);
    assert_eq!((sealed.sealed, sealed.servers.len()), (Some(100), 2));
    let told = DataCall::Seal { epoch: Epoch(opened.epoch.0 + 1), length: 100 };
    for server in DATA {
        assert_eq!(calls.borrow()[&server], std::slice::from_ref(&told));
    }
}

/// What two data servers answer to a fence, first one then the other; `None`: nothing.
type Answers = [Option<Result<DataBody, DataError>>; 2];

/// Data servers that answer fences so, and take seals.
fn fences(cluster: &mut Cluster, answers: Answers) -> Rc<RefCell<Answers>> {
    let answers = Rc::new(RefCell::new(answers));
    let shared = Rc::clone(&answers);
    cluster.data = Box::new(move |server, request| {
        let answer = shared.borrow()[usize::from(server == DATA[1])].clone();
        match request.call {
            DataCall::Fence { .. } => answer,
            DataCall::Ping => answer.map(|_| SPACE.unwrap()).map(Ok),
            _ => answer.map(|_| Ok(DataBody::Done)),
        }
    });
    answers
}

fn restarted(length: u64, damaged: &[(u64, u64)]) -> Option<Result<DataBody, DataError>> {
    Some(Ok(DataBody::Fenced { length, restarted: true, damaged: damaged.to_vec() }))
}

#[test]
fn a_server_that_does_not_know_a_chunk_does_not_make_it_empty() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    fences(&mut cluster, [Some(Err(DataError::NoChunk)), restarted(70, &[])]);
    assert_eq!(cluster.seal_chunk(BOB, &opened).sealed, Some(70));
    let never_used = cluster.open_chunk(ALICE, HERE);
    fences(&mut cluster, [Some(Err(DataError::NoChunk)), Some(Err(DataError::NoChunk))]);
    assert_eq!(cluster.seal_chunk(BOB, &never_used).sealed, Some(0), "all say so");
}

#[test]
fn a_server_that_restarted_decides_with_the_others_or_when_they_are_lost() {
    let mut cluster = cluster();
    cluster.pass_with(&[ALICE, BOB], Duration::from_secs(2));
    let (one, other) = (cluster.open_chunk(ALICE, HERE), cluster.open_chunk(ALICE, HERE));
    let answers = fences(&mut cluster, [None, restarted(70, &[])]);
    let sealed = |cluster: &mut Cluster, chunk: &ChunkView| {
        let shown = cluster.call(ALICE, chunk.chunk.position, Call::Chunk { chunk: chunk.chunk });
        self::chunk(shown).sealed
    };
    let asks = |cluster: &mut Cluster, chunk: &ChunkView| {
        let call = Call::SealChunk { chunk: chunk.chunk, epoch: chunk.epoch };
        cluster.send_call(BOB, chunk.chunk.position, call);
        cluster.pass_with(&[ALICE, BOB], Duration::from_secs(2));
    };
    asks(&mut cluster, &one);
    assert_eq!(sealed(&mut cluster, &one), None, "the other may have more");
    answers.borrow_mut()[0] = restarted(100, &[(40, 80)]);
    cluster.pass_with(&[ALICE, BOB], Duration::from_secs(2));
    asks(&mut cluster, &one);
    assert_eq!(sealed(&mut cluster, &one), Some(100));
    answers.borrow_mut()[0] = None;
    asks(&mut cluster, &other);
    assert_eq!(sealed(&mut cluster, &other), None);
    cluster.pass_with(&[ALICE, BOB], Duration::from_secs(40));
    assert_eq!(sealed(&mut cluster, &other), Some(70), "it is lost");
}

#[test]
fn a_chunk_of_which_only_lost_servers_can_have_something_is_an_error_until_one_is_back() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    let answers = fences(&mut cluster, [None, Some(Err(DataError::NoChunk))]);
    cluster.pass(Duration::from_secs(40));
    let late = bearing_types::SessionId(4_711);
    cluster.open_session(late);
    let call = Call::SealChunk { chunk: opened.chunk, epoch: opened.epoch };
    assert_eq!(cluster.call(late, opened.chunk.position, call), Err(Code::Io));
    answers.borrow_mut()[0] = restarted(70, &[]);
    cluster.pass(Duration::from_secs(2));
    let call = Call::SealChunk { chunk: opened.chunk, epoch: opened.epoch };
    assert_eq!(chunk(cluster.call(late, opened.chunk.position, call)).sealed, Some(70));
}

#[test]
fn what_no_server_has_is_told_with_the_sealed_chunk() {
    let mut cluster = cluster();
    cluster.pass(Duration::from_secs(2));
    let opened = cluster.open_chunk(ALICE, HERE);
    fences(&mut cluster, [restarted(200, &[(40, 80), (104, 160)]), restarted(120, &[(72, 96)])]);
    let sealed = cluster.seal_chunk(BOB, &opened);
    assert_eq!((sealed.sealed, sealed.holes), (Some(200), vec![(72, 80), (120, 160)]));
}
