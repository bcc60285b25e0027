//! What a client with a valid secret can and cannot do: a session that says whatever it likes, to servers that believe only what they signed.

#[allow(dead_code)]
mod cluster;

use bearing_placement::Scheme;
use bearing_proto::client::{
    AttributeChange, Body, Call, CheckDepth, Handle, ListedEntry, NewNode, XattrChange, XattrMode,
};
use bearing_proto::grant::Grant;
use bearing_types::{
    Amount, ChunkId, Code, Cookie, Credentials, FileType, Gid, Mode, Squash, Uid, XattrName,
};
use cluster::{ALICE, BOB, Cluster, name, position, root_user};

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
    let open = Call::Open { node: file, who: root_user(), read: true, write: false, truncate: false };
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
        let call = Call::List { grant, who, after, count_max: 9, with_attributes: true };
        match cluster.call(ALICE, home, call).unwrap() {
            Body::List { entries, .. } => entries,
            other => panic!("{other:?}"),
        }
    };
    assert!(list(&mut cluster, 0o755).iter().any(|entry| entry.attributes.is_some()));
    assert!(list(&mut cluster, 0o754).iter().all(|entry| entry.attributes.is_none()));
}
