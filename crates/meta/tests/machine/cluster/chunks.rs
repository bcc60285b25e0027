//! Chunks of a cluster, and files whose bytes lie in them.

use super::disks::Disks;
use super::members::still;
use super::{ALICE, Cluster, DATA, filled_by, opened_by, regular, root_user};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{AttributeChange, Body, Call, ChunkView, CommitMode, Extent, Handle};
use bearing_proto::data::FrameAt;
use bearing_proto::grant::OpenToken;
use bearing_types::{Code, Position, ServerId, SetIds, Wall};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub fn cluster() -> (Cluster, Rc<RefCell<Disks>>) {
    cluster_with(&DATA)
}

pub fn cluster_with(data: &[ServerId]) -> (Cluster, Rc<RefCell<Disks>>) {
    // Checkpoints are chunks too, and not of these tests.
    let checkpoint_interval = Duration::from_secs(86_400);
    cluster_of(data, Config { writer_patience: Duration::ZERO, checkpoint_interval, ..still() })
}

pub fn cluster_of(data: &[ServerId], config: Config) -> (Cluster, Rc<RefCell<Disks>>) {
    let mut cluster = Cluster::with_data(2, Scheme::AnglecutHashed, config, data);
    let disks = Disks::of(&mut cluster);
    cluster.open_session(ALICE);
    cluster.pass(Duration::from_secs(2));
    (cluster, disks)
}

pub fn show(cluster: &mut Cluster, chunk: &ChunkView) -> Result<ChunkView, Code> {
    match cluster.call(ALICE, chunk.chunk.position, Call::Chunk { chunk: chunk.chunk }) {
        Ok(Body::Chunk(view)) => Ok(view),
        Err(code) => Err(code),
        other => panic!("{other:?}"),
    }
}

pub fn create(cluster: &mut Cluster, text: &str) -> (Handle, OpenToken) {
    let grant = cluster.root(ALICE).grant;
    cluster.create_open(ALICE, &grant, text, regular(0o600)).unwrap()
}

pub fn commit(
    cluster: &mut Cluster,
    (node, token): (Handle, OpenToken),
    chunk: &ChunkView,
) -> Result<Body, Code> {
    let extent = Extent { file_offset: 0, length: 4_000, chunk: chunk.chunk, frame: 0, skip: 0 };
    let (extents, mode) = (vec![extent], CommitMode::Put);
    let opened = filled_by(ALICE, &extents);
    let (size_min, modified, set_ids) = (0, Wall(0), SetIds::Keep);
    let call = Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids };
    cluster.call(ALICE, node.home, call)
}

pub fn frame_of(node: Handle) -> FrameAt {
    FrameAt { frame: 0, payload: 4_000, node: node.node, home: node.home }
}

/// A file whose bytes lie in a chunk.
pub fn file_in_a_chunk(cluster: &mut Cluster, disks: &RefCell<Disks>) -> ((Handle, OpenToken), ChunkView) {
    let file = create(cluster, "f");
    disks.borrow_mut().frames = vec![frame_of(file.0)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    commit(cluster, file, &chunk).unwrap();
    (file, chunk)
}

/// Until the cluster has scanned a chunk that was opened before. The session is kept alive.
pub fn pass_a_life(cluster: &mut Cluster) {
    for _ in 0..150 {
        cluster.pass(Duration::from_secs(5));
        let renewed = cluster.call(ALICE, bearing_placement::position_of_session(ALICE), Call::RenewSession);
        assert!(renewed.is_ok());
    }
}

pub fn finish(cluster: &mut Cluster, chunk: &ChunkView, payload: u64) -> Result<Body, Code> {
    let opened = opened_by(ALICE, chunk.chunk.chunk);
    cluster.call(ALICE, chunk.chunk.position, Call::FinishChunk { chunk: chunk.chunk, payload, opened })
}

pub fn truncate(cluster: &mut Cluster, (node, token): (Handle, OpenToken)) {
    let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
    let cut = Call::SetAttributes { node, who: root_user(), change, token: Some(token) };
    cluster.call(ALICE, node.home, cut).unwrap();
}
