//! What a client with a valid secret can and cannot do: a session that says whatever it likes, to servers
//! that believe only what they signed.

use crate::cluster::{self, ALICE, BOB, Cluster, keys, name, opened_by, position, root_user};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{
    AttributeChange, Body, Call, CheckDepth, ChunkView, CommitMode, Detail, Extent, Handle, ListedEntry,
    NewNode, XattrChange, XattrMode,
};
use bearing_proto::delegation::{Change, DelegationView, Step};
use bearing_proto::grant::{
    Admission, Capability, CapabilityBody, DataRight, FramePart, Grant, OpenRights, OpenToken,
};
use bearing_proto::keys::Key;
use bearing_types::{
    Access, Amount, ChunkId, Code, Cookie, Credentials, FileType, Gid, Mode, NodeId, Permission, Position,
    SessionId, SetIds, Squash, Uid, Wall, XattrName,
};
use proptest::prelude::*;

/// Whose files are read by others in these tests.
const OWNER: u32 = 1000;
/// Who reads them.
const OTHER: u32 = 1001;

const ROOT_SQUASH: Squash = Squash::Root { uid: Uid(Squash::NOBODY), gid: Gid(Squash::NOBODY) };
const ALL_SQUASH: Squash = Squash::All { uid: Uid(Squash::NOBODY), gid: Gid(Squash::NOBODY) };

fn user(id: u32) -> Credentials {
    Credentials { uid: Uid(id), gid: Gid(id), groups: Vec::new() }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    // Data servers are known by then.
    cluster.pass(std::time::Duration::from_secs(2));
    cluster
}

fn new_node(file_type: FileType, mode: u32, device: u32) -> NewNode {
    NewNode { file_type, mode: Mode::new(mode), device, target: Vec::new() }
}

fn make(
    cluster: &mut Cluster,
    grant: &Grant,
    who: Credentials,
    text: &str,
    new: NewNode,
) -> Result<Body, Code> {
    let call = Call::Create { grant: grant.clone(), who, name: name(text), new };
    cluster.call(ALICE, position(grant, text), call)
}

fn attributes(cluster: &mut Cluster, node: Handle) -> bearing_types::Attributes {
    match cluster.call(ALICE, node.home, Call::Attributes { node }).unwrap() {
        Body::Node(view) => view.attributes,
        other => panic!("{other:?}"),
    }
}

/// Opens the root directory to everybody.
fn open_root(cluster: &mut Cluster) -> Grant {
    let root = cluster.root(ALICE).node.node;
    chmod(cluster, root, 0o777, root_user()).unwrap();
    cluster.root(ALICE).grant
}

fn chmod(cluster: &mut Cluster, node: Handle, mode: u32, who: Credentials) -> Result<Body, Code> {
    let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
    cluster.call(ALICE, node.home, Call::SetAttributes { node, who, change, token: None })
}

#[test]
fn users_count_as_their_enrolment_squashes_them_in_all_that_is_decided() {
    let mut cluster = cluster();
    let root = open_root(&mut cluster);
    let secret = new_node(FileType::Regular, 0o600, 0);
    let Body::Entry(entry, _) = make(&mut cluster, &root, user(OWNER), "secret", secret.clone()).unwrap()
    else {
        panic!("no entry");
    };
    let file = entry.node;
    cluster.squash = ROOT_SQUASH;
    let open = Call::Open {
        node: file,
        who: root_user(),
        read: true,
        write: false,
        truncate: false,
        execute: false,
    };
    assert_eq!(cluster.call(ALICE, file.home, open), Err(Code::Access));
    assert_eq!(chmod(&mut cluster, file, 0o666, root_user()), Err(Code::NotPermitted));
    let change = AttributeChange { uid: Some(Uid(0)), ..AttributeChange::default() };
    let chown = Call::SetAttributes { node: file, who: root_user(), change, token: None };
    assert_eq!(cluster.call(ALICE, file.home, chown), Err(Code::NotPermitted));
    let set = Call::SetXattr {
        node: file,
        who: root_user(),
        name: XattrName::new(b"trusted.t").unwrap(),
        change: XattrChange::Set { value: vec![1], mode: XattrMode::Any },
    };
    assert_eq!(cluster.call(ALICE, file.home, set), Err(Code::NotPermitted));
    let node = root.body.seat.node;
    let directory = Handle { node, home: root.body.seat.home };
    let limit = Amount { space: 1, entries: 1 };
    let quota = Call::SetQuota { directory, who: root_user(), limit };
    assert_eq!(cluster.call(ALICE, directory.home, quota), Err(Code::NotPermitted));
    let chunks = Call::Chunks { who: root_user(), from: ChunkId(0), count_max: 1, depth: CheckDepth::Held };
    assert_eq!(cluster.call(ALICE, directory.home, chunks), Err(Code::NotPermitted));
    let device = new_node(FileType::BlockDevice, 0o600, 5);
    assert_eq!(make(&mut cluster, &root, root_user(), "device", device.clone()), Err(Code::NotPermitted));
    // What root makes there is nobody's.
    let Body::Entry(made, _) = make(&mut cluster, &root, root_user(), "made", secret.clone()).unwrap() else {
        panic!("no entry");
    };
    assert_eq!(attributes(&mut cluster, made.node).uid, Uid(Squash::NOBODY));
    // Others are believed, unless everybody is squashed.
    chmod(&mut cluster, file, 0o640, user(OWNER)).unwrap();
    cluster.squash = ALL_SQUASH;
    assert_eq!(chmod(&mut cluster, file, 0o666, user(OWNER)), Err(Code::NotPermitted));
    let Body::Entry(made, _) = make(&mut cluster, &root, user(OWNER), "all", secret).unwrap() else {
        panic!("no entry");
    };
    assert_eq!(attributes(&mut cluster, made.node).uid, Uid(Squash::NOBODY));
    cluster.squash = Squash::None;
    assert!(make(&mut cluster, &root, root_user(), "device", device).is_ok());
}

#[test]
fn devices_are_made_by_root_alone_but_for_the_one_that_stands_for_no_name() {
    let mut cluster = cluster();
    let root = open_root(&mut cluster);
    for (file_type, device, allowed) in [
        (FileType::BlockDevice, 0, false),
        (FileType::CharDevice, 1, false),
        (FileType::CharDevice, 0, true),
        (FileType::Fifo, 0, true),
    ] {
        let text = format!("{file_type:?}{device}");
        let made = make(&mut cluster, &root, user(OTHER), &text, new_node(file_type, 0o600, device));
        assert_eq!(made.is_ok(), allowed, "{file_type:?} {device}");
    }
}

#[test]
fn a_listing_shows_attributes_only_to_those_who_may_search() {
    let mut cluster = cluster();
    let root = open_root(&mut cluster);
    make(&mut cluster, &root, user(OWNER), "f", new_node(FileType::Regular, 0o600, 0)).unwrap();
    let list = |cluster: &mut Cluster, mode: u32| -> Vec<ListedEntry> {
        let root = cluster.root(ALICE).node.node;
        chmod(cluster, root, mode, root_user()).unwrap();
        let grant = cluster.root(ALICE).grant;
        let (after, who) = (Cookie::START, user(OTHER));
        let home = position(&grant, "f");
        let call = Call::List { grant, who, after, count_max: 9, detail: Detail::Attributes };
        match cluster.call(ALICE, home, call).unwrap() {
            Body::List { entries, .. } => entries,
            other => panic!("{other:?}"),
        }
    };
    assert!(list(&mut cluster, 0o755).iter().any(|entry| entry.attributes.is_some()));
    assert!(list(&mut cluster, 0o754).iter().all(|entry| entry.attributes.is_none()));
}

/// A file of the owner with one extent, written through the session of Alice.
struct Secret {
    node: Handle,
    token: OpenToken,
    extent: Extent,
}

fn open_chunk(cluster: &mut Cluster, session: SessionId) -> ChunkView {
    match cluster
        .call(session, Position(0), Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() })
        .unwrap()
    {
        Body::Chunk(view) => view,
        other => panic!("{other:?}"),
    }
}

fn create_file(
    cluster: &mut Cluster,
    (session, who): (SessionId, Credentials),
    text: &str,
    mode: u32,
) -> (Handle, OpenToken) {
    let grant = cluster.root(session).grant;
    let new = new_node(FileType::Regular, mode, 0);
    let call = Call::Create { grant: grant.clone(), who, name: name(text), new };
    match cluster.call(session, position(&grant, text), call).unwrap() {
        Body::Entry(entry, Some(token)) => (entry.node, token),
        other => panic!("{other:?}"),
    }
}

fn commit(
    cluster: &mut Cluster,
    session: SessionId,
    (node, token): (Handle, OpenToken),
    extent: Extent,
    opened: Vec<Capability>,
) -> Result<Body, Code> {
    let (extents, mode, modified) = (vec![extent], CommitMode::Put, Wall(0));
    let call =
        Call::Commit { node, token, extents, size_min: 0, modified, mode, opened, set_ids: SetIds::Keep };
    cluster.call(session, node.home, call)
}

fn secret(cluster: &mut Cluster, mode: u32) -> Secret {
    open_root(cluster);
    let (node, token) = create_file(cluster, (ALICE, user(OWNER)), "secret", mode);
    let chunk = open_chunk(cluster, ALICE);
    let extent = Extent { file_offset: 0, length: 500, chunk: chunk.chunk, frame: 0, skip: 0 };
    commit(cluster, ALICE, (node, token), extent, chunk.capability.into_iter().collect()).unwrap();
    Secret { node, token, extent }
}

fn extents(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    by: Admission,
) -> Result<(Vec<Capability>, Option<OpenToken>), Code> {
    match cluster.call(session, node.home, Call::Extents { node, by, offset: 0, count_max: 100 })? {
        Body::Extents { extents, reads, token, .. } => {
            let reads = reads.map(|reads| (reads.expires, reads.macs));
            let rights = reads.into_iter().flat_map(|(expires, macs)| {
                assert_eq!(macs.len(), extents.len());
                let body = move |extent: &Extent| extent.read_right(session, expires);
                let signed = |(extent, mac)| Capability { body: body(extent), mac };
                extents.iter().zip(macs).map(signed).collect::<Vec<_>>()
            });
            Ok((rights.collect(), token))
        }
        other => panic!("{other:?}"),
    }
}

fn open_as(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    who: Credentials,
    (read, write): (bool, bool),
) -> Result<Option<OpenToken>, Code> {
    match cluster.call(
        session,
        node.home,
        Call::Open { node, who, read, write, truncate: false, execute: false },
    )? {
        Body::Opened(_, token) => Ok(token),
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_a_files_bytes_lie_is_told_to_those_who_may_read_it_with_the_right_to_read_just_these() {
    let mut cluster = cluster();
    let Secret { node, token, extent } = secret(&mut cluster, 0o600);
    let by = |id| Admission::User(user(id));
    assert_eq!(extents(&mut cluster, BOB, node, by(OTHER)), Err(Code::Access));
    let (rights, given) = extents(&mut cluster, BOB, node, by(OWNER)).unwrap();
    let [right] = &rights[..] else { panic!("{rights:?}") };
    assert!(right.verify(keys().grants()));
    let part = FramePart { frame: extent.frame, skip: extent.skip, length: extent.length };
    assert_eq!((right.body.session, right.body.chunk), (BOB, extent.chunk.chunk));
    assert_eq!(right.body.right, DataRight::Read(part));
    assert_eq!(given.map(|token| (token.session, token.rights)), Some((BOB, OpenRights::Read)));
    // Tokens are good for their session, their file and what they were given for.
    assert!(extents(&mut cluster, ALICE, node, Admission::Open(token)).is_ok());
    assert_eq!(extents(&mut cluster, BOB, node, Admission::Open(token)), Err(Code::Unauthenticated));
    let forged = OpenToken { session: BOB, ..token };
    assert_eq!(extents(&mut cluster, BOB, node, Admission::Open(forged)), Err(Code::Unauthenticated));
    let (_, own) = create_file(&mut cluster, (BOB, user(OTHER)), "own", 0o600);
    let stretched = OpenToken { node: node.node, ..own };
    for shown in [own, stretched] {
        assert_eq!(extents(&mut cluster, BOB, node, Admission::Open(shown)), Err(Code::Unauthenticated));
    }
    // Who may only write sees where the holes are, and reads nothing.
    chmod(&mut cluster, node, 0o602, user(OWNER)).unwrap();
    let write = open_as(&mut cluster, BOB, node, user(OTHER), (false, true)).unwrap().unwrap();
    let (rights, _) = extents(&mut cluster, BOB, node, Admission::Open(write)).unwrap();
    assert_eq!(rights, []);
    assert_eq!(extents(&mut cluster, BOB, node, by(OTHER)), Err(Code::Access));
}

#[test]
fn an_open_file_stays_open_for_what_it_was_opened_whatever_its_mode_becomes() {
    let mut cluster = cluster();
    let Secret { node, .. } = secret(&mut cluster, 0o644);
    let read = open_as(&mut cluster, BOB, node, user(OTHER), (true, false)).unwrap().unwrap();
    let (_, unasked) = extents(&mut cluster, BOB, node, Admission::User(user(OTHER))).unwrap();
    chmod(&mut cluster, node, 0o600, user(OWNER)).unwrap();
    assert_eq!(open_as(&mut cluster, BOB, node, user(OTHER), (true, false)), Err(Code::Access));
    assert_eq!(extents(&mut cluster, BOB, node, Admission::User(user(OTHER))), Err(Code::Access));
    for token in [read, unasked.unwrap()] {
        let (rights, _) = extents(&mut cluster, BOB, node, Admission::Open(token)).unwrap();
        assert_eq!(rights.len(), 1);
        // What was opened to be read is not written.
        let chunk = open_chunk(&mut cluster, BOB);
        let extent = Extent { file_offset: 0, length: 1, chunk: chunk.chunk, frame: 0, skip: 0 };
        let refused =
            commit(&mut cluster, BOB, (node, token), extent, chunk.capability.into_iter().collect());
        assert_eq!(refused, Err(Code::Unauthenticated));
        let (start, end, size_min) = (0, 1, 0);
        let hole = Call::MakeHole { node, token, start, end, size_min, set_ids: SetIds::Keep };
        assert_eq!(cluster.call(BOB, node.home, hole), Err(Code::Unauthenticated));
        let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
        let cut = Call::SetAttributes { node, who: user(OTHER), change, token: Some(token) };
        assert_eq!(cluster.call(BOB, node.home, cut), Err(Code::Access));
    }
}

#[test]
fn nobody_makes_bytes_of_others_part_of_a_file_of_his_own() {
    let mut cluster = cluster();
    let Secret { node, token, extent } = secret(&mut cluster, 0o600);
    let own = create_file(&mut cluster, (BOB, user(OTHER)), "own", 0o600);
    let chunk = open_chunk(&mut cluster, BOB);
    let mine = chunk.capability.clone().unwrap();
    // No right, the right to another chunk, another session's right, one to read, one that nobody signed.
    let by_alice = opened_by(ALICE, extent.chunk.chunk);
    let forged = Capability { body: CapabilityBody { session: BOB, ..by_alice.body }, mac: by_alice.mac };
    let own_key = Capability::sign(forged.body, &Key::new([9; 32]));
    let read = Capability::sign(extent.read_right(BOB, Wall(i64::MAX)), keys().grants());
    for opened in [vec![], vec![mine.clone()], vec![by_alice], vec![forged], vec![own_key], vec![read]] {
        assert_eq!(commit(&mut cluster, BOB, own, extent, opened), Err(Code::Access));
    }
    let opened = vec![mine.clone(); 2];
    let two = Extent { chunk: chunk.chunk, ..extent };
    assert_eq!(commit(&mut cluster, BOB, own, two, opened), Err(Code::Access), "more rights than extents");
    assert!(commit(&mut cluster, BOB, own, two, vec![mine.clone()]).is_ok());
    // Nor does he write into a file of others, or say that a chunk of others is finished.
    assert_eq!(commit(&mut cluster, BOB, (node, token), two, vec![mine.clone()]), Err(Code::Unauthenticated));
    let stolen = OpenToken { node: node.node, ..own.1 };
    assert_eq!(
        commit(&mut cluster, BOB, (node, stolen), two, vec![mine.clone()]),
        Err(Code::Unauthenticated)
    );
    let finish = Call::FinishChunk { chunk: extent.chunk, payload: 0, opened: mine };
    assert_eq!(cluster.call(BOB, extent.chunk.position, finish), Err(Code::Access));
}

#[test]
fn what_anybody_is_told_of_a_chunk_is_no_right_to_it() {
    let mut cluster = cluster();
    let Secret { extent, .. } = secret(&mut cluster, 0o600);
    let asked = cluster.call(BOB, extent.chunk.position, Call::Chunk { chunk: extent.chunk }).unwrap();
    assert!(matches!(asked, Body::Chunk(ChunkView { capability: None, .. })), "{asked:?}");
    let opened = open_chunk(&mut cluster, BOB).capability.unwrap();
    assert_eq!(opened.body.session, BOB);
}

fn delegate(
    cluster: &mut Cluster,
    session: SessionId,
    directory: Handle,
    who: Credentials,
) -> Result<Box<DelegationView>, Code> {
    match cluster.call(
        session,
        directory.home,
        Call::Delegate { directory, who, incarnation: 1, joins: false },
    )? {
        Body::Delegation(lent) => Ok(lent),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_is_lent_to_those_who_may_see_and_change_it_with_what_they_may_see_below() {
    let mut cluster = cluster();
    let root = open_root(&mut cluster);
    let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
    chmod(&mut cluster, directory, 0o777, root_user()).unwrap();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let closed = cluster.mkdir(ALICE, &grant, "closed").unwrap();
    let open = cluster.mkdir(ALICE, &grant, "open").unwrap();
    chmod(&mut cluster, closed, 0o711, root_user()).unwrap();
    chmod(&mut cluster, open, 0o755, root_user()).unwrap();
    for mode in [0o770, 0o773, 0o775, 0o776] {
        chmod(&mut cluster, directory, mode, root_user()).unwrap();
        let refused = delegate(&mut cluster, BOB, directory, user(OTHER)).map(|_| ());
        assert_eq!(refused, Err(Code::Access), "{mode:o}");
    }
    chmod(&mut cluster, directory, 0o777, root_user()).unwrap();
    let lent = delegate(&mut cluster, BOB, directory, user(OTHER)).unwrap();
    let lent: Vec<NodeId> = lent.directories.iter().map(|lent| lent.view.node.node.node).collect();
    assert!(lent.contains(&open.node) && !lent.contains(&closed.node), "{lent:?}");
}

#[test]
fn a_lent_directory_is_no_way_into_files_that_are_not_its_sessions() {
    let mut cluster = cluster();
    let Secret { extent, .. } = secret(&mut cluster, 0o600);
    let root = cluster.root(BOB).grant;
    let directory = cluster.mkdir(BOB, &root, "d").unwrap();
    // At home in the same tablet, so that its steps reach it.
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let node = cluster.create(ALICE, &grant, "of-alice").unwrap();
    let lent = delegate(&mut cluster, BOB, directory, root_user()).unwrap();
    let chunk = open_chunk(&mut cluster, BOB);
    let own = Extent { chunk: chunk.chunk, ..extent };
    let mut step = |node: Handle, extent: Extent, token: Option<OpenToken>| {
        let (opened, mode) = (chunk.capability.clone().into_iter().collect(), CommitMode::Put);
        let (extents, set_ids) = (vec![extent], SetIds::Keep);
        let change = Change::Commit { node, extents, size_min: 0, mode, token, opened, set_ids };
        let step = Step { sequence: cluster.new_sequence(), at: Wall(0), change };
        cluster
            .call(BOB, directory.home, cluster::delegations::delegated(vec![step], lent.ids, vec![]))
            .map(|_| ())
    };
    // Without a token of this session for this file nothing is written.
    let sign = |node, session| Some(OpenToken::sign(node, session, OpenRights::ReadWrite, keys().grants()));
    for token in [None, sign(node.node, ALICE), sign(NodeId(77), BOB)] {
        assert_eq!(step(node, own, token), Err(Code::Unauthenticated));
    }
    let read = OpenToken::sign(node.node, BOB, OpenRights::Read, keys().grants());
    assert_eq!(step(node, own, Some(read)), Err(Code::Unauthenticated));
    assert_eq!(step(node, extent, sign(node.node, BOB)), Err(Code::Access), "nor are bytes of others");
    assert_eq!(step(node, own, sign(node.node, BOB)), Ok(()));
}

#[test]
fn a_session_ends_locks_and_speaks_for_itself_only() {
    let mut cluster = cluster();
    // The sender is whom the packet's key is of: no call names a session, so each of these is about Bob's
    // own.
    cluster.call(BOB, position_of_session(BOB), Call::CloseSession).unwrap();
    let asked = cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession);
    assert!(matches!(asked, Ok(Body::Session { .. })));
    let at_alices = cluster.answer_of(BOB, position_of_session(ALICE), Call::CloseSession);
    assert!(
        matches!(
            at_alices,
            Some(
                bearing_proto::client::Answer::Referral { .. }
                    | bearing_proto::client::Answer::Done { result: Err(_), .. }
            )
        ),
        "{at_alices:?}"
    );
    assert!(cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession).is_ok());
}

#[test]
fn a_directory_that_was_called_back_is_renewed_for_a_while_and_not_for_ever() {
    let mut cluster = cluster();
    let root = open_root(&mut cluster);
    let (directory, grant) = cluster.make(ALICE, &root, "d");
    let lent = delegate(&mut cluster, BOB, directory, root_user()).unwrap();
    cluster.obedient = false;
    let look = |cluster: &mut Cluster| {
        let call = Call::Lookup { grant: grant.clone(), who: root_user(), name: name("f") };
        cluster.answer_of(ALICE, position(&grant, "f"), call)
    };
    let decided = |answer| matches!(answer, Some(bearing_proto::client::Answer::Done { .. }));
    let mut seconds = 0;
    while !decided(look(&mut cluster)) {
        // Bob says that he goes on, and never gives it back.
        let renewal = cluster::delegations::delegated(Vec::new(), lent.ids, Vec::new());
        let renewed = cluster.call(BOB, directory.home, renewal);
        assert_eq!(renewed.is_ok(), seconds <= 40, "after {seconds} s: {renewed:?}");
        for session in [ALICE, BOB] {
            cluster.call(session, position_of_session(session), Call::RenewSession).unwrap();
        }
        cluster.pass(std::time::Duration::from_secs(2));
        seconds += 2;
        assert!(seconds < 60);
    }
    assert!(seconds > 40, "{seconds}");
}

/// Permission as POSIX tells it, the slow obvious way.
fn may(mode: u32, owner: u32, group: u32, who: &Credentials, wish: u32) -> bool {
    let class = if who.uid.0 == owner {
        (mode >> 6) & 7
    } else if who.gid.0 == group || who.groups.iter().any(|gid| gid.0 == group) {
        (mode >> 3) & 7
    } else {
        mode & 7
    };
    class & wish == wish
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_calls_show_is_what_permissions_allow(
        file_mode in 0u32..0o1000, directory_mode in 0u32..0o1000,
        (owner, group) in (1u32..4, 1u32..4),
        (uid, gid, other) in (1u32..4, 1u32..4, 1u32..4),
    ) {
        let mut cluster = cluster();
        let root = open_root(&mut cluster);
        let who = Credentials { uid: Uid(uid), gid: Gid(gid), groups: vec![Gid(other)] };
        let (directory, grant) = cluster.make(ALICE, &root, "d");
        let file = cluster.create(ALICE, &grant, "f").unwrap();
        let change = |mode| AttributeChange {
            mode: Some(Mode::new(mode)), uid: Some(Uid(owner)), gid: Some(Gid(group)), ..AttributeChange::default()
        };
        for (node, mode) in [(file, file_mode), (directory, directory_mode)] {
            let call = Call::SetAttributes { node, who: root_user(), change: change(mode), token: None };
            cluster.call(ALICE, node.home, call).unwrap();
        }
        let of_file = |wish| may(file_mode, owner, group, &who, wish);
        let of_directory = |wish| may(directory_mode, owner, group, &who, wish);
        let oracle = Access { mode: Mode::new(file_mode), uid: Uid(owner), gid: Gid(group) };
        prop_assert_eq!(of_file(4), oracle.allows(&who, Permission::READ, FileType::Regular));

        let shown = extents(&mut cluster, BOB, file, Admission::User(who.clone()));
        // A program may be executed without being readable: its bytes are given to whom they are given to run
        // them.
        let readable = of_file(4) || of_file(1);
        prop_assert_eq!(shown.map(|_| ()), if readable { Ok(()) } else { Err(Code::Access) });
        for (read, write) in [(true, false), (false, true), (true, true)] {
            let opened = open_as(&mut cluster, BOB, file, who.clone(), (read, write));
            let expected = (!read || of_file(4)) && (!write || of_file(2));
            let rights = OpenRights::of(read, write);
            prop_assert_eq!(opened.map(|token| token.map(|token| token.rights)), if expected { Ok(rights) } else { Err(Code::Access) });
        }
        let xattr = Call::Xattr { node: file, who: who.clone(), name: XattrName::new(b"user.a").unwrap() };
        let expected = if of_file(4) { Code::NoData } else { Code::Access };
        prop_assert_eq!(cluster.call(BOB, file.home, xattr), Err(expected));

        let grant = cluster.directory(BOB, directory).unwrap().grant;
        let home = position(&grant, "f");
        let lookup = Call::Lookup { grant: grant.clone(), who: who.clone(), name: name("f") };
        prop_assert_eq!(cluster.call(BOB, home, lookup).is_ok(), of_directory(1));
        let missing = Call::Lookup { grant: grant.clone(), who: who.clone(), name: name("g") };
        let expected = if of_directory(1) { Code::NotFound } else { Code::Access };
        prop_assert_eq!(cluster.call(BOB, position(&grant, "g"), missing), Err(expected));
        let after = Cookie::START;
        let ahead = Call::Prefetch { grant: grant.clone(), who: who.clone(), after, count_max: 9 };
        prop_assert_eq!(cluster.call(BOB, home, ahead).is_ok(), of_directory(5));
        let list = Call::List { grant, who: who.clone(), after, count_max: 9, detail: Detail::Attributes };
        match cluster.call(BOB, home, list) {
            Ok(Body::List { entries, .. }) => {
                prop_assert!(of_directory(4));
                prop_assert!(entries.iter().all(|entry| entry.attributes.is_some() == of_directory(1)));
            }
            other => prop_assert!(!of_directory(4) && other == Err(Code::Access), "{:?}", other),
        }
        let lent = delegate(&mut cluster, BOB, directory, who.clone());
        prop_assert_eq!(lent.is_ok(), of_directory(7), "{:?}", lent.map(|_| ()));
    }
}
