//! Access control lists over several servers, without faults.

use crate::cluster::{ALICE, Cluster, name, position, regular, root_user};
use bearing_placement::Scheme;
use bearing_proto::client::{AttributeChange, Body, Call, Handle, NewNode, NodeView, XattrChange, XattrMode};
use bearing_proto::grant::Grant;
use bearing_types::{
    Acl, AclHash, Code, Credentials, FileType, Gid, Mode, Named, ServerId, Uid, XattrName, XattrSpace,
};

const LISTED: u32 = 9;

fn both(test: fn(Cluster)) {
    for scheme in Scheme::LIVE {
        let mut cluster = Cluster::new(3, scheme);
        cluster.open_session(ALICE);
        test(cluster);
    }
}

fn user(uid: u32) -> Credentials {
    Credentials { uid: Uid(uid), gid: Gid(uid), groups: vec![] }
}

/// A list that gives one user all rights, and its group and others none.
fn list() -> Acl {
    let named = Named { users: vec![(Uid(LISTED), 7)], group: 0, groups: vec![] };
    Acl { owner: 7, other: 0, named, mask: Some(7) }
}

fn set(
    cluster: &mut Cluster,
    node: Handle,
    who: &Credentials,
    space: XattrSpace,
    list: Option<&Acl>,
) -> Result<(), Code> {
    let change = match list {
        Some(list) => XattrChange::Set { value: list.encode(), mode: XattrMode::Any },
        None => XattrChange::Remove,
    };
    let name = XattrName::of_list(space).unwrap();
    cluster.call(ALICE, node.home, Call::SetXattr { node, who: who.clone(), name, change }).map(|_| ())
}

fn get(cluster: &mut Cluster, node: Handle, space: XattrSpace) -> Result<Acl, Code> {
    let name = XattrName::of_list(space).unwrap();
    match cluster.call(ALICE, node.home, Call::Xattr { node, who: user(77), name })? {
        Body::Xattr(value) => Ok(Acl::decode(&value).unwrap().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn view(cluster: &mut Cluster, node: Handle) -> NodeView {
    match cluster.call(ALICE, node.home, Call::Attributes { node }).unwrap() {
        Body::Node(view) => view,
        other => panic!("{other:?}"),
    }
}

fn mode(cluster: &mut Cluster, node: Handle) -> u32 {
    view(cluster, node).attributes.mode.bits()
}

fn chmod(cluster: &mut Cluster, node: Handle, mode: u32) {
    let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
    cluster
        .call(ALICE, node.home, Call::SetAttributes { node, who: root_user(), change, token: None })
        .unwrap();
}

fn open(cluster: &mut Cluster, node: Handle, who: &Credentials) -> Result<(), Code> {
    let call =
        Call::Open { node, who: who.clone(), read: true, write: true, truncate: false, execute: false };
    cluster.call(ALICE, node.home, call).map(|_| ())
}

fn create(cluster: &mut Cluster, grant: &Grant, who: &Credentials, text: &str) -> Result<Handle, Code> {
    let new = regular(0o666);
    let call = Call::Create { grant: grant.clone(), who: who.clone(), name: name(text), new };
    match cluster.call(ALICE, position(grant, text), call)? {
        Body::Entry(entry, _) => Ok(entry.node),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_decides_who_may_open_a_file_and_chmod_changes_its_mask() {
    both(|mut cluster| {
        let grant = cluster.root(ALICE).grant;
        let file = cluster.create(ALICE, &grant, "f").unwrap();
        let (listed, other) = (user(LISTED), user(10));
        assert!(!view(&mut cluster, file).extended);
        assert_eq!(
            set(&mut cluster, file, &listed, XattrSpace::AccessList, Some(&list())),
            Err(Code::NotPermitted)
        );
        set(&mut cluster, file, &root_user(), XattrSpace::AccessList, Some(&list())).unwrap();
        assert!(view(&mut cluster, file).extended);
        (1..=3).for_each(|id| cluster.restart(ServerId(id)));
        assert_eq!(
            (mode(&mut cluster, file), get(&mut cluster, file, XattrSpace::AccessList)),
            (0o770, Ok(list()))
        );
        assert_eq!(
            (open(&mut cluster, file, &listed), open(&mut cluster, file, &other)),
            (Ok(()), Err(Code::Access))
        );
        chmod(&mut cluster, file, 0o744);
        assert_eq!(get(&mut cluster, file, XattrSpace::AccessList).unwrap().mask, Some(4));
        assert_eq!(open(&mut cluster, file, &listed), Err(Code::Access));
        // Permission bits can say all of a list that names nobody.
        let plain = Acl { owner: 6, other: 4, named: Named { group: 6, ..Named::default() }, mask: None };
        set(&mut cluster, file, &root_user(), XattrSpace::AccessList, Some(&plain)).unwrap();
        assert_eq!((mode(&mut cluster, file), view(&mut cluster, file).extended), (0o664, false));
        assert_eq!(get(&mut cluster, file, XattrSpace::AccessList), Err(Code::NoData));
        assert_eq!(
            set(&mut cluster, file, &root_user(), XattrSpace::DefaultList, Some(&list())),
            Err(Code::Access)
        );
    });
}

#[test]
fn a_directorys_list_decides_who_may_change_its_entries_and_grants_from_before_are_refused() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
        let (listed, other) = (user(LISTED), user(10));
        let before = cluster.directory(ALICE, directory).unwrap().grant;
        assert_eq!(before.body.acl, AclHash(0));
        // Every tablet that has names of it knows it.
        for n in 0..20 {
            create(&mut cluster, &before, &root_user(), &format!("f{n}")).unwrap();
        }
        set(&mut cluster, directory, &root_user(), XattrSpace::AccessList, Some(&list())).unwrap();
        let grant = cluster.directory(ALICE, directory).unwrap().grant;
        for n in 20..40 {
            let text = format!("f{n}");
            assert_eq!(
                create(&mut cluster, &before, &root_user(), &text),
                Err(Code::Unauthenticated),
                "{text}"
            );
            assert_eq!(create(&mut cluster, &grant, &other, &text), Err(Code::Access));
            create(&mut cluster, &grant, &listed, &text).unwrap();
            let lookup = |who: &Credentials| Call::Lookup {
                grant: grant.clone(),
                who: who.clone(),
                name: name(&text),
            };
            assert!(cluster.call(ALICE, position(&grant, &text), lookup(&listed)).is_ok());
            assert_eq!(cluster.call(ALICE, position(&grant, &text), lookup(&other)), Err(Code::Access));
        }
        set(&mut cluster, directory, &root_user(), XattrSpace::AccessList, None).unwrap();
        assert_eq!(create(&mut cluster, &grant, &listed, "late"), Err(Code::Unauthenticated));
        let grant = cluster.directory(ALICE, directory).unwrap().grant;
        // What the mask allowed stays with the group's bits.
        assert_eq!((grant.body.acl, grant.body.access.mode.bits()), (AclHash(0), 0o770));
        assert_eq!(create(&mut cluster, &grant, &listed, "late"), Err(Code::Access));
    });
}

#[test]
fn what_is_made_in_a_directory_begins_with_its_default_list() {
    both(|mut cluster| {
        let root = cluster.root(ALICE).grant;
        let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
        set(&mut cluster, directory, &root_user(), XattrSpace::DefaultList, Some(&list())).unwrap();
        let grant = cluster.directory(ALICE, directory).unwrap().grant;
        for n in 0..10 {
            let file = create(&mut cluster, &grant, &root_user(), &format!("f{n}")).unwrap();
            // 0666 was asked for.
            assert_eq!(mode(&mut cluster, file), 0o660);
            let expected = Acl { owner: 6, mask: Some(6), ..list() };
            assert_eq!(get(&mut cluster, file, XattrSpace::AccessList), Ok(expected));
            open(&mut cluster, file, &user(LISTED)).unwrap();
            let inner = cluster.mkdir(ALICE, &grant, &format!("d{n}")).unwrap();
            // 0755 was asked for.
            assert_eq!(mode(&mut cluster, inner), 0o750);
            assert_eq!(get(&mut cluster, inner, XattrSpace::DefaultList), Ok(list()));
            assert_eq!(get(&mut cluster, inner, XattrSpace::AccessList), Ok(Acl { mask: Some(5), ..list() }));
        }
        let new = NewNode {
            file_type: FileType::Symlink,
            mode: Mode::new(0o777),
            device: 0,
            target: b"x".to_vec(),
        };
        let call = Call::Create { grant: grant.clone(), who: root_user(), name: name("link"), new };
        let Body::Entry(link, _) = cluster.call(ALICE, position(&grant, "link"), call).unwrap() else {
            panic!()
        };
        assert_eq!(mode(&mut cluster, link.node), 0o777);
        assert_eq!(get(&mut cluster, link.node, XattrSpace::AccessList), Err(Code::NoData));
        let refused = set(&mut cluster, link.node, &root_user(), XattrSpace::AccessList, Some(&list()));
        assert_eq!(refused, Err(Code::Unsupported));
    });
}
