//! Files and their extents, without faults.

#[allow(dead_code)]
mod cluster;

use bearing_placement::Scheme;
use bearing_proto::client::{Body, Call, ChunkRef, Extent, Handle, NewNode};
use bearing_proto::grant::WriteToken;
use bearing_types::{ChunkId, Code, FileType, Mode, Position, SessionId, Wall};
use cluster::{ALICE, BOB, Cluster, name, position, root_user};

const CHUNK: ChunkRef = ChunkRef { chunk: ChunkId(9), position: Position(0) };

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster
}

fn create(cluster: &mut Cluster, text: &str) -> (Handle, WriteToken) {
    let grant = cluster.root(ALICE).grant;
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o600), device: 0, target: Vec::new() };
    let call = Call::Create { grant: grant.clone(), who: root_user(), name: name(text), new };
    match cluster.call(ALICE, position(&grant, text), call).unwrap() {
        Body::Entry(entry, Some(token)) => (entry.node, token),
        other => panic!("{other:?}"),
    }
}

fn extent(file_offset: u64, length: u32, frame: u64) -> Extent {
    Extent { file_offset, length, chunk: CHUNK, frame, skip: 0 }
}

fn commit(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    token: WriteToken,
    extents: Vec<Extent>,
) -> Result<Body, Code> {
    let call = Call::Commit { node, token, extents, size_min: 0, modified: Wall(0) };
    cluster.call(session, node.home, call)
}

fn page(cluster: &mut Cluster, node: Handle, offset: u64, count_max: u32) -> (Vec<Extent>, bool) {
    match cluster.call(BOB, node.home, Call::Extents { node, offset, count_max }).unwrap() {
        Body::Extents { extents, complete, .. } => (extents, complete),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_of_extents_begins_where_it_was_asked_to() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let extents: Vec<Extent> = (0..50).map(|number| extent(number * 10, 10, number)).collect();
    commit(&mut cluster, ALICE, node, token, extents.clone()).unwrap();
    for count_max in [1, 3, 49, 50, 51] {
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let (found, complete) = page(&mut cluster, node, offset, count_max);
            assert!(found.len() <= count_max as usize);
            offset = found.last().map_or(offset, |last| last.file_offset + u64::from(last.length));
            seen.extend(found);
            if complete {
                break;
            }
        }
        assert_eq!(seen, extents, "in pages of {count_max}");
    }
    let (found, _) = page(&mut cluster, node, 487, 1);
    assert_eq!(found, extents[48..49]);
}

#[test]
fn later_extents_cover_earlier_ones_and_the_rest_stays() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    commit(&mut cluster, ALICE, node, token, vec![extent(0, 100, 1)]).unwrap();
    commit(&mut cluster, ALICE, node, token, vec![extent(40, 20, 2), extent(50, 5, 3)]).unwrap();
    let (found, complete) = page(&mut cluster, node, 0, 10);
    let shape: Vec<_> =
        found.iter().map(|extent| (extent.file_offset, extent.length, extent.frame, extent.skip)).collect();
    assert!(complete);
    assert_eq!(shape, [(0, 40, 1, 0), (40, 10, 2, 0), (50, 5, 3, 0), (55, 5, 2, 15), (60, 40, 1, 60)]);
}

#[test]
fn a_write_token_is_good_for_its_session_and_node_only() {
    let mut cluster = cluster();
    let (node, token) = create(&mut cluster, "f");
    let (other, _) = create(&mut cluster, "g");
    let extents = vec![extent(0, 10, 1)];
    assert_eq!(commit(&mut cluster, BOB, node, token, extents.clone()), Err(Code::Unauthenticated));
    assert_eq!(commit(&mut cluster, ALICE, other, token, extents.clone()), Err(Code::Unauthenticated));
    assert!(commit(&mut cluster, ALICE, node, token, extents).is_ok());
    let absurd = vec![extent(u64::MAX - 3, 10, 1)];
    assert_eq!(commit(&mut cluster, ALICE, node, token, absurd), Err(Code::InvalidArgument));
}
