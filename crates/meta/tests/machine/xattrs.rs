//! Extended attributes over several servers, without faults.

use crate::cluster::{ALICE, BOB, Cluster, both, root_user};
use bearing_placement::Scheme;
use bearing_proto::client::{AttributeChange, Body, Call, Handle, XattrChange, XattrMode};
use bearing_types::{Code, Credentials, Gid, Mode, ServerId, Uid, XattrName};

fn name(text: &str) -> XattrName {
    XattrName::new(text.as_bytes()).unwrap()
}

fn set(value: &[u8], mode: XattrMode) -> XattrChange {
    XattrChange::Set { value: value.to_vec(), mode }
}

fn change(
    cluster: &mut Cluster,
    node: Handle,
    who: &Credentials,
    attribute: &str,
    change: XattrChange,
) -> Result<(), Code> {
    let call = Call::SetXattr { node, who: who.clone(), name: name(attribute), change };
    cluster.call(ALICE, node.home, call).map(|_| ())
}

fn get(cluster: &mut Cluster, node: Handle, who: &Credentials, attribute: &str) -> Result<Vec<u8>, Code> {
    // Bob asks, so that nothing rests on what Alice knows.
    match cluster.call(BOB, node.home, Call::Xattr { node, who: who.clone(), name: name(attribute) })? {
        Body::Xattr(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

fn list(cluster: &mut Cluster, node: Handle, who: &Credentials) -> String {
    match cluster.call(BOB, node.home, Call::Xattrs { node, who: who.clone() }).unwrap() {
        Body::Xattr(list) => String::from_utf8(list).unwrap().replace('\0', " "),
        other => panic!("{other:?}"),
    }
}

#[test]
fn attributes_are_set_read_listed_and_removed_and_survive_a_restart() {
    both(|mut cluster| {
        let (grant, root) = (cluster.root(ALICE).grant, root_user());
        let file = cluster.create(ALICE, &grant, "f").unwrap();
        let directory = cluster.mkdir(ALICE, &grant, "d").unwrap();
        for node in [file, directory] {
            assert_eq!(get(&mut cluster, node, &root, "user.a"), Err(Code::NoData));
            let refused = change(&mut cluster, node, &root, "user.a", set(b"1", XattrMode::Replace));
            assert_eq!(refused, Err(Code::NoData));
            assert_eq!(change(&mut cluster, node, &root, "user.a", XattrChange::Remove), Err(Code::NoData));
            let long = vec![7; XattrName::VALUE_BYTES_MAX];
            change(&mut cluster, node, &root, "user.a", set(b"1", XattrMode::Create)).unwrap();
            change(&mut cluster, node, &root, "trusted.b", set(&long, XattrMode::Any)).unwrap();
            change(&mut cluster, node, &root, "user.c", set(b"", XattrMode::Any)).unwrap();
            let refused = change(&mut cluster, node, &root, "user.a", set(b"2", XattrMode::Create));
            assert_eq!(refused, Err(Code::Exists));
            change(&mut cluster, node, &root, "user.a", set(b"2", XattrMode::Replace)).unwrap();
            (1..=3).for_each(|id| cluster.restart(ServerId(id)));
            assert_eq!(list(&mut cluster, node, &root), "user.a trusted.b user.c ");
            assert_eq!(get(&mut cluster, node, &root, "user.a"), Ok(b"2".to_vec()));
            assert_eq!(get(&mut cluster, node, &root, "trusted.b"), Ok(long.clone()));
            change(&mut cluster, node, &root, "user.a", XattrChange::Remove).unwrap();
            change(&mut cluster, node, &root, "user.d", set(b"4", XattrMode::Any)).unwrap();
            assert_eq!(list(&mut cluster, node, &root), "trusted.b user.c user.d ");
            assert_eq!(get(&mut cluster, node, &root, "user.c"), Ok(vec![]));
            let refused =
                change(&mut cluster, node, &root, "user.e", set(&[&long[..], b"x"].concat(), XattrMode::Any));
            assert_eq!(refused, Err(Code::TooLarge));
        }
        cluster.rmdir(ALICE, &grant, "d").unwrap();
        cluster.unlink(ALICE, &grant, "f").unwrap();
    });
}

#[test]
fn names_of_a_node_take_as_much_as_one_list_may_hold() {
    let mut cluster = Cluster::new(1, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let (grant, root) = (cluster.root(ALICE).grant, root_user());
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    let long = |number: u32| format!("user.{number:0250}");
    let fits = (XattrName::LIST_BYTES_MAX / (XattrName::BYTES_MAX + 1)) as u32;
    for number in 0..fits {
        change(&mut cluster, file, &root, &long(number), set(b"", XattrMode::Any)).unwrap();
    }
    let refused = change(&mut cluster, file, &root, &long(fits), set(b"", XattrMode::Any));
    assert_eq!(refused, Err(Code::NoSpace));
    assert_eq!(list(&mut cluster, file, &root).len(), XattrName::LIST_BYTES_MAX);
    change(&mut cluster, file, &root, &long(3), XattrChange::Remove).unwrap();
    change(&mut cluster, file, &root, &long(fits), set(b"", XattrMode::Any)).unwrap();
}

#[test]
fn who_may_see_and_set_an_attribute_is_said_by_its_namespace() {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let (grant, root) = (cluster.root(ALICE).grant, root_user());
    let other = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    let any = |value: &[u8]| set(value, XattrMode::Any);
    for attribute in ["user.a", "trusted.a", "security.capability"] {
        change(&mut cluster, file, &root, attribute, any(b"1")).unwrap();
    }
    // 0644: others read and do not write.
    assert_eq!(get(&mut cluster, file, &other, "user.a"), Ok(b"1".to_vec()));
    assert_eq!(change(&mut cluster, file, &other, "user.a", any(b"2")), Err(Code::Access));
    assert_eq!(get(&mut cluster, file, &other, "trusted.a"), Err(Code::NoData));
    assert_eq!(get(&mut cluster, file, &other, "security.capability"), Ok(b"1".to_vec()));
    assert_eq!(list(&mut cluster, file, &other), "user.a security.capability ");
    for attribute in ["trusted.a", "security.capability"] {
        assert_eq!(change(&mut cluster, file, &other, attribute, any(b"2")), Err(Code::NotPermitted));
    }
    let mut chmod = |node: Handle, mode| {
        let change = AttributeChange { mode: Some(Mode::new(mode)), ..AttributeChange::default() };
        let call = Call::SetAttributes { node, who: root_user(), change, token: None };
        cluster.call(ALICE, node.home, call).unwrap();
    };
    chmod(file, 0o622);
    let directory = Handle { node: grant.body.seat.node, home: grant.body.seat.home };
    chmod(directory, 0o1777);
    assert_eq!(get(&mut cluster, file, &other, "user.a"), Err(Code::Access));
    change(&mut cluster, file, &other, "user.a", any(b"2")).unwrap();
    // Whoever may write may take a privilege away: the kernel does so when the file is written to.
    change(&mut cluster, file, &other, "security.capability", XattrChange::Remove).unwrap();
    // A sticky directory is everybody's to write in, but not to mark.
    assert_eq!(change(&mut cluster, directory, &other, "user.a", any(b"2")), Err(Code::NotPermitted));
}
