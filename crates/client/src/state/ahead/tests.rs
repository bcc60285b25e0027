use super::*;
use bearing_proto::client::{ChunkRef, Extent};
use bearing_types::{ChunkId, Position};

const FILE: OpenFile = OpenFile(5);
const NODE: NodeId = NodeId(9);
const SIZE: u64 = 2_000;
const ONE: Source = Source { server: ServerId(1), flow: None };
const OTHER: Source = Source { server: ServerId(2), flow: None };

fn config() -> AheadConfig {
    AheadConfig {
        after: 100,
        window_min: 400,
        window_max: 800,
        bytes_max: 1_000,
        run_max: 2_000,
        piece: 100,
        pieces_max: 2,
        ask_min: 1,
        flow_timeout: Duration::from_millis(5),
    }
}

fn at(ms: u64) -> Mono {
    Mono::ZERO.after(Duration::from_millis(ms))
}

/// Bytes of a file in a frame that begins where they do.
fn stored(range: Range<u64>, chunk: u64) -> Stored {
    let chunk = ChunkRef { chunk: ChunkId(chunk), position: Position(0) };
    let length = (range.end - range.start) as u32;
    Stored {
        extent: Extent { file_offset: range.start, length, chunk, frame: range.start, skip: 0 },
        right: None,
    }
}

fn read(ahead: &mut Ahead, range: Range<u64>) -> Option<StreamId> {
    ahead.on_read(at(1), (FILE, NODE), range, SIZE).0
}

/// A file of which 100 bytes were read, and the loops that fetch the rest, which lies in one frame.
fn stream(sources: &[Source], reserve: Vec<Source>) -> (Ahead, Vec<LoopId>) {
    let mut ahead = Ahead::new(config());
    let id = read(&mut ahead, 0..100).expect("it is read in order");
    let Plan::From(NODE, range) = ahead.plan(id, |_| SIZE) else { panic!("there is more to plan") };
    assert_eq!(range, 100..SIZE);
    let loops = ahead.begin_run(id, vec![stored(range, 7)], sources, reserve);
    (ahead, loops)
}

fn piece(fetch: Fetch) -> (ServerId, Range<u64>) {
    let Fetch::Piece(source, parts) = fetch else { panic!("a piece is given") };
    let [part] = parts[..] else { panic!("it lies in one extent") };
    (source.server, part.extent.file_offset..end_of(&part.extent))
}

fn part_of(range: Range<u64>) -> Stored {
    stored(100..SIZE, 7).clipped(range).unwrap()
}

/// A loop has fetched these bytes.
fn comes(ahead: &mut Ahead, id: LoopId, range: Range<u64>, now: Mono) {
    let bytes = range.clone().map(|at| at as u8).collect();
    assert!(ahead.came(id, &part_of(range), bytes));
    ahead.fetched(id, now);
}

#[test]
fn loops_take_pieces_in_the_order_of_the_file_as_far_as_the_window_goes() {
    let (mut ahead, loops) = stream(&[ONE, OTHER], Vec::new());
    let [first, second] = loops[..] else { panic!("one for each piece under way") };
    assert_eq!(piece(ahead.fetch(first, at(1))), (ServerId(1), 100..200));
    assert_eq!(piece(ahead.fetch(second, at(1))), (ServerId(2), 200..300));
    comes(&mut ahead, second, 200..300, at(2));
    assert_eq!(piece(ahead.fetch(second, at(2))), (ServerId(2), 300..400), "the faster carries more");
    comes(&mut ahead, second, 300..400, at(3));
    assert_eq!(piece(ahead.fetch(second, at(3))), (ServerId(2), 400..500));
    comes(&mut ahead, second, 400..500, at(4));
    assert!(matches!(ahead.fetch(second, at(4)), Fetch::Wait(_, Some(_))), "the window is full");
    comes(&mut ahead, first, 100..200, at(5));
    read(&mut ahead, 100..200);
    assert_eq!(piece(ahead.fetch(first, at(5))), (ServerId(1), 500..600));
}

#[test]
fn bytes_are_given_only_for_the_place_that_they_were_read_from() {
    let (mut ahead, loops) = stream(&[ONE], Vec::new());
    assert_eq!(loops.len(), 2);
    for (id, range) in [(loops[0], 100..200), (loops[1], 200..300)] {
        assert_eq!(piece(ahead.fetch(id, at(1))).1, range);
    }
    let across = part_of(150..250);
    assert!(matches!(ahead.find(FILE, &across, false), Found::Wait(_)));
    comes(&mut ahead, loops[0], 100..200, at(2));
    comes(&mut ahead, loops[1], 200..300, at(2));
    let Found::Bytes(bytes) = ahead.find(FILE, &across, false) else { panic!("all of it is here") };
    assert_eq!(bytes, (150..250).map(|at| at as u8).collect::<Vec<u8>>());
    assert!(matches!(ahead.find(FILE, &part_of(250..350), false), Found::Nothing), "some is not begun");
    // The same bytes of the file lie elsewhere by now: in another chunk, or later in the same frame.
    assert!(matches!(ahead.find(FILE, &stored(150..250, 8), false), Found::Nothing));
    let mut moved = across;
    moved.extent.skip += 1;
    assert!(matches!(ahead.find(FILE, &moved, false), Found::Nothing));
    assert!(matches!(ahead.find(OpenFile(6), &across, false), Found::Nothing));
}

#[test]
fn a_late_piece_is_fetched_from_another_replica_once() {
    let (mut ahead, loops) = stream(&[ONE, OTHER], Vec::new());
    let [slow, quick] = loops[..] else { panic!() };
    ahead.fetch(slow, at(1));
    for start in [200, 300, 400] {
        assert_eq!(piece(ahead.fetch(quick, at(1))).1, start..start + 100);
        comes(&mut ahead, quick, start..start + 100, at(2));
    }
    let Fetch::Wait(_, Some(due)) = ahead.fetch(quick, at(2)) else { panic!("somebody will be late") };
    assert_eq!(due, at(21));
    assert_eq!(piece(ahead.fetch(quick, at(21))), (ServerId(2), 100..200));
    assert!(matches!(ahead.fetch(quick, at(22)), Fetch::Wait(_, None)), "once is enough");
    comes(&mut ahead, quick, 100..200, at(23));
    assert!(matches!(ahead.find(FILE, &part_of(100..500), false), Found::Bytes(_)));
    assert!(!ahead.came(slow, &part_of(100..200), vec![0; 100]), "the first answer counts");
}

#[test]
fn a_replica_that_fails_is_replaced_and_without_one_who_waits_is_told() {
    let (mut ahead, loops) = stream(&[ONE], vec![OTHER]);
    for id in &loops {
        ahead.fetch(*id, at(1));
    }
    ahead.failed(loops[0]);
    assert!(
        matches!(ahead.find(FILE, &part_of(100..200), false), Found::Nothing),
        "there may be no room soon"
    );
    assert_eq!(ahead.held, 100);
    assert_eq!(piece(ahead.fetch(loops[0], at(2))), (ServerId(2), 100..200));
    ahead.failed(loops[1]);
    ahead.failed(loops[0]);
    assert!(matches!(ahead.find(FILE, &part_of(100..200), false), Found::Nothing), "nobody fetches it");
    assert!(loops.iter().all(|id| matches!(ahead.fetch(*id, at(3)), Fetch::Over(_))));
    assert_eq!(ahead.held, 0);
}

#[test]
fn what_is_read_elsewhere_or_closed_ends_the_stream_and_its_flows() {
    let flow = Flow { number: FlowNumber(3), bytes: 1_900, reader: [10, 0, 0, 1].into() };
    let (mut ahead, loops) = stream(&[Source { flow: Some(flow), ..ONE }], Vec::new());
    ahead.fetch(loops[0], at(1));
    assert_eq!(ahead.held, 100);
    let (begun, ended) = ahead.on_read(at(2), (FILE, NODE), 1_900..1_950, SIZE);
    assert!(begun.is_none() && ended == [FlowNumber(3)], "{ended:?}");
    assert!(matches!(ahead.fetch(loops[0], at(2)), Fetch::Over(flows) if flows.is_empty()));
    assert!(!ahead.came(loops[0], &part_of(100..200), vec![0; 100]));
    assert_eq!(ahead.held, 0);
}

#[test]
fn what_is_held_is_bounded_and_who_does_not_read_on_gives_way() {
    let (mut ahead, loops) = stream(&[ONE], Vec::new());
    for start in [100, 200, 300, 400] {
        assert_eq!(piece(ahead.fetch(loops[0], at(1))).1, start..start + 100);
        comes(&mut ahead, loops[0], start..start + 100, at(1));
    }
    let other = OpenFile(6);
    let begun = |ahead: &mut Ahead, now| ahead.on_read(now, (other, NodeId(10)), 0..300, SIZE).0.unwrap();
    let id = begun(&mut ahead, at(2));
    let more = ahead.begin_run(id, vec![stored(300..SIZE, 8)], &[ONE], Vec::new());
    for start in [300, 400, 500, 600, 700, 800] {
        assert_eq!(piece(ahead.fetch(more[0], at(2))).1, start..start + 100);
        ahead.fetched(more[0], at(2));
    }
    assert_eq!(ahead.held, 1_000);
    assert!(matches!(ahead.fetch(more[0], at(2)), Fetch::Wait(..)), "there is no room");
    ahead.on_read(at(2_500), (other, NodeId(10)), 300..310, SIZE);
    assert_eq!(ahead.held, 600, "the first file was not read for two seconds");
    assert_eq!(piece(ahead.fetch(more[0], at(2_500))).1, 900..1_000);
}
