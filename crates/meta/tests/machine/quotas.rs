//! Quotas: what counts, where it stops, what is used beyond the limit at most.

use crate::cluster::{ALICE, BOB, Cluster, filled_by, regular, root_user};
use bearing_placement::Scheme;
use bearing_proto::client::{Body, Call, ChunkRef, CommitMode, Extent, Handle, QuotaView};
use bearing_proto::grant::{Grant, OpenToken};
use bearing_types::{Amount, Code, Credentials, Gid, Position, SetIds, Uid, Wall};
use std::time::Duration;

/// The tablets of the cluster.
const TABLETS: u64 = 8;
/// What is written at once.
const PIECE: u32 = 1 << 19;

fn limit(space: u64, entries: u64) -> Amount {
    Amount { space, entries }
}

fn set(cluster: &mut Cluster, directory: Handle, amount: Amount) -> Result<(), Code> {
    let call = Call::SetQuota { directory, who: root_user(), limit: amount };
    cluster.call(ALICE, directory.home, call).map(|_| ())
}

fn shown(cluster: &mut Cluster, node: Handle) -> Option<QuotaView> {
    // Tablets tell their use within seconds.
    cluster.pass(Duration::from_secs(5));
    match cluster.call(ALICE, node.home, Call::Quota { node }).unwrap() {
        Body::Quota(quota) => quota,
        other => panic!("{other:?}"),
    }
}

fn used(cluster: &mut Cluster, node: Handle) -> Amount {
    shown(cluster, node).unwrap().used
}

fn grant(cluster: &mut Cluster, directory: Handle) -> Grant {
    cluster.directory(ALICE, directory).unwrap().grant
}

/// A directory with a quota in a cluster of two servers.
fn with_quota(amount: Amount) -> (Cluster, Handle) {
    let mut cluster = Cluster::new(2, Scheme::Hash);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "q").unwrap();
    set(&mut cluster, directory, amount).unwrap();
    (cluster, directory)
}

/// A chunk for what is written.
fn chunk(cluster: &mut Cluster) -> ChunkRef {
    // Until data servers are known.
    cluster.pass(Duration::from_secs(2));
    match cluster
        .call(ALICE, Position(77), Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() })
        .unwrap()
    {
        Body::Chunk(view) => view.chunk,
        other => panic!("{other:?}"),
    }
}

fn write(
    cluster: &mut Cluster,
    (node, token): (Handle, OpenToken),
    chunk: ChunkRef,
    offset: u64,
) -> Result<(), Code> {
    let extents = vec![Extent { file_offset: offset, length: PIECE, chunk, frame: offset, skip: 0 }];
    let (size_min, modified, mode) = (0, Wall(0), CommitMode::Put);
    let opened = filled_by(ALICE, &extents);
    cluster
        .call(
            ALICE,
            node.home,
            Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids: SetIds::Keep },
        )
        .map(|_| ())
}

#[test]
fn names_are_counted_wherever_they_lie_and_refused_beyond_the_limit() {
    let (mut cluster, directory) = with_quota(limit(u64::MAX, 40));
    let grant = grant(&mut cluster, directory);
    let (inner, below) = cluster.make(ALICE, &grant, "inner");
    let mut made = 1;
    for file in 0..100 {
        let into = if file % 2 == 0 { &grant } else { &below };
        match cluster.create(ALICE, into, &format!("f{file}")) {
            Ok(_) => made += 1,
            Err(code) => assert_eq!(code, Code::QuotaExceeded),
        }
    }
    // One share is one entry here.
    assert!((40 - TABLETS..=40 + TABLETS).contains(&made), "{made}");
    assert_eq!(used(&mut cluster, inner).entries, made);
    for file in 0..100 {
        let from = if file % 2 == 0 { &grant } else { &below };
        let _ = cluster.unlink(ALICE, from, &format!("f{file}"));
    }
    cluster.rmdir(ALICE, &grant, "inner").unwrap();
    assert_eq!(used(&mut cluster, directory), Amount::ZERO);
    for file in 0..20 {
        cluster.create(ALICE, &grant, &format!("again{file}")).unwrap();
    }
}

#[test]
fn space_is_counted_when_it_is_written_and_comes_back() {
    let (mut cluster, directory) = with_quota(limit(10 << 20, u64::MAX));
    let grant = grant(&mut cluster, directory);
    let files: Vec<_> = (0..8)
        .map(|file| cluster.create_open(ALICE, &grant, &format!("f{file}"), regular(0o644)).unwrap())
        .collect();
    let chunk = chunk(&mut cluster);
    let mut written = 0;
    for turn in 0..4u64 {
        for file in &files {
            match write(&mut cluster, *file, chunk, turn * u64::from(PIECE)) {
                Ok(()) => written += u64::from(PIECE),
                Err(code) => assert_eq!(code, Code::QuotaExceeded),
            }
        }
    }
    let share = 256 << 10;
    assert!(written <= (10 << 20) + TABLETS * share && written >= (10 << 20) - TABLETS * share, "{written}");
    assert_eq!(used(&mut cluster, files[0].0), limit(written, 8));
    // What is written over what is there takes no more.
    write(&mut cluster, files[0], chunk, 0).unwrap();
    for file in 0..8 {
        cluster.unlink(ALICE, &grant, &format!("f{file}")).unwrap();
    }
    cluster.pass(Duration::from_secs(5));
    assert_eq!(used(&mut cluster, directory), Amount::ZERO);
}

#[test]
fn use_is_known_after_restarts_and_a_move() {
    let (mut cluster, directory) = with_quota(limit(u64::MAX, 30));
    let grant = grant(&mut cluster, directory);
    let mut made = 0;
    for file in 0..20 {
        made += u64::from(cluster.create(ALICE, &grant, &format!("f{file}")).is_ok());
    }
    let servers: Vec<_> = cluster.hosts.keys().copied().collect();
    servers.iter().for_each(|server| cluster.restart(*server));
    let (owner, block, _) = cluster.owner(directory.home);
    let other = *servers.iter().find(|id| **id != owner).unwrap();
    cluster.send(owner, bearing_meta::Event::Move(block, other));
    cluster.pass(Duration::from_secs(2));
    assert_eq!(used(&mut cluster, directory).entries, made);
    for file in 20..80 {
        made += u64::from(cluster.create(ALICE, &grant, &format!("f{file}")).is_ok());
    }
    assert!((30 - TABLETS..=30 + TABLETS).contains(&made), "{made}");
    assert_eq!(used(&mut cluster, directory).entries, made);
}

#[test]
fn nothing_moves_and_no_name_leads_from_one_quota_to_another() {
    let (mut cluster, directory) = with_quota(limit(u64::MAX, 100));
    let (root, inside) = (cluster.root(ALICE).grant, grant(&mut cluster, directory));
    let file = cluster.create(ALICE, &inside, "a").unwrap();
    let foreign = cluster.create(ALICE, &root, "b").unwrap();
    assert_eq!(cluster.rename(ALICE, (&inside, "a"), (&root, "c")), Err(Code::CrossDevice));
    assert_eq!(cluster.rename(ALICE, (&root, "b"), (&inside, "c")), Err(Code::CrossDevice));
    assert_eq!(cluster.link(ALICE, file, &root, "c"), Err(Code::CrossDevice));
    assert_eq!(cluster.link(ALICE, foreign, &inside, "c"), Err(Code::CrossDevice));
    cluster.link(ALICE, file, &inside, "c").unwrap();
    cluster.rename(ALICE, (&inside, "a"), (&inside, "d")).unwrap();
    assert_eq!(used(&mut cluster, directory).entries, 2);
    assert_eq!(shown(&mut cluster, foreign), None);
    // The directory itself is a name outside.
    cluster.rename(ALICE, (&root, "q"), (&root, "moved")).unwrap();
    assert_eq!(used(&mut cluster, directory).entries, 2);
}

#[test]
fn a_first_limit_wants_an_empty_directory_and_every_limit_wants_root() {
    let (mut cluster, directory) = with_quota(limit(u64::MAX, 2));
    let (root, inside) = (cluster.root(ALICE).grant, grant(&mut cluster, directory));
    let (full, of_full) = cluster.make(ALICE, &root, "full");
    cluster.create(ALICE, &of_full, "x").unwrap();
    assert_eq!(set(&mut cluster, full, limit(1, 1)), Err(Code::NotEmpty));
    let who = Credentials { uid: Uid(1000), gid: Gid(1000), groups: Vec::new() };
    let call = Call::SetQuota { directory: full, who, limit: limit(1, 1) };
    assert_eq!(cluster.call(ALICE, full.home, call).map(|_| ()), Err(Code::NotPermitted));
    let refused: Vec<_> =
        (0..8).map(|at| cluster.create(ALICE, &inside, &format!("{at}")).is_err()).collect();
    assert!(refused.contains(&true));
    // Another limit counts at once for whoever was refused.
    set(&mut cluster, directory, Amount::UNLIMITED).unwrap();
    for at in 0..8 {
        let _ = cluster.create(ALICE, &inside, &format!("{at}"));
    }
    assert_eq!(used(&mut cluster, directory).entries, 8);
    // A quota within a quota counts for itself.
    let inner = cluster.mkdir(ALICE, &inside, "inner").unwrap();
    set(&mut cluster, inner, limit(1 << 30, 1 << 20)).unwrap();
    let of_inner = cluster.directory(ALICE, inner).unwrap().grant;
    cluster.create(ALICE, &of_inner, "x").unwrap();
    assert_eq!((used(&mut cluster, inner).entries, used(&mut cluster, directory).entries), (1, 9));
}

#[test]
fn a_lowered_limit_counts_within_three_seconds_wherever_names_lie() {
    let (mut cluster, directory) = with_quota(limit(u64::MAX, 10_000));
    let inside = grant(&mut cluster, directory);
    let create = |cluster: &mut Cluster, file: u32| cluster.create(ALICE, &inside, &format!("f{file}"));
    for file in 0..64 {
        create(&mut cluster, file).unwrap();
    }
    set(&mut cluster, directory, limit(u64::MAX, 64)).unwrap();
    cluster.pass_with(&[ALICE], Duration::from_secs(3));
    for file in 64..128 {
        assert_eq!(create(&mut cluster, file).map(|_| ()), Err(Code::QuotaExceeded), "f{file}");
    }
}

#[test]
fn a_grant_from_before_a_quota_makes_nothing_that_is_not_counted() {
    let mut cluster = Cluster::new(2, Scheme::Hash);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "q").unwrap();
    let old = grant(&mut cluster, directory);
    cluster.create(ALICE, &old, "a").unwrap();
    cluster.unlink(ALICE, &old, "a").unwrap();
    set(&mut cluster, directory, limit(1 << 30, 1 << 20)).unwrap();
    assert_eq!(cluster.create(ALICE, &old, "b"), Err(Code::Unauthenticated));
    let new = grant(&mut cluster, directory);
    cluster.create(ALICE, &new, "b").unwrap();
    assert_eq!(used(&mut cluster, directory).entries, 1);
    cluster.unlink(ALICE, &new, "b").unwrap();
    cluster.rmdir(ALICE, &root, "q").unwrap();
}

#[test]
fn a_directory_with_a_quota_is_not_delegated() {
    let (mut cluster, directory) = with_quota(limit(1 << 30, 100));
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    assert_eq!(cluster.call(ALICE, directory.home, call).map(|_| ()), Err(Code::Unsupported));
}
