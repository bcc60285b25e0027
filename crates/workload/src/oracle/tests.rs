//! The order of Linux's checks, and what changes do.

use super::*;
use bearing_proto::client::{AttributeChange, CommitMode, NewNode, RenameMode, XattrChange, XattrMode};
use bearing_types::{
    Access, Acl, Code, Credentials, FileType, Gid, Mode, Name, NodeId, Permission, SetIds, Uid, XattrName,
};

const ROOT: NodeId = NodeId::ROOT;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn access(mode: u32, uid: u32) -> Access {
    Access { mode: Mode::new(mode), uid: Uid(uid), gid: Gid(uid) }
}

fn user(uid: u32) -> Credentials {
    Credentials { uid: Uid(uid), gid: Gid(uid), groups: vec![] }
}

fn oracle() -> Oracle {
    Oracle::new(ROOT, access(0o777, 0))
}

fn create(directory: NodeId, text: &str, who: Credentials, mode: u32) -> Mutation {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(mode), device: 0, target: vec![] };
    Mutation::Create { directory, name: name(text), who, new }
}

fn mkdir(directory: NodeId, text: &str, who: Credentials, mode: u32) -> Mutation {
    Mutation::MakeDirectory { directory, name: name(text), who, mode: Mode::new(mode) }
}

fn unlink(directory: NodeId, text: &str, who: Credentials) -> Mutation {
    Mutation::Unlink { directory, name: name(text), who }
}

fn rmdir(directory: NodeId, text: &str, who: Credentials) -> Mutation {
    Mutation::RemoveDirectory { directory, name: name(text), who }
}

fn rename(source: (NodeId, &str), target: (NodeId, &str), who: Credentials) -> Mutation {
    Mutation::Rename {
        source: source.0,
        source_name: name(source.1),
        target: target.0,
        target_name: name(target.1),
        who,
        mode: RenameMode::Replace,
    }
}

/// Does a change or says why not.
fn try_to(oracle: &mut Oracle, mutation: &Mutation, created: Option<u64>) -> Vec<Code> {
    let codes = refusals(oracle, oracle, mutation);
    if codes.is_empty() {
        oracle.apply(mutation, created.map(NodeId), false);
    }
    codes
}

fn must(oracle: &mut Oracle, mutation: &Mutation, created: Option<u64>) {
    assert_eq!(try_to(oracle, mutation, created), vec![], "{mutation:?}");
}

#[test]
fn an_existing_name_is_reported_before_missing_write_permission_and_after_missing_search() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "d", Credentials::ROOT, 0o755), Some(2));
    must(&mut fs, &create(NodeId(2), "f", Credentials::ROOT, 0o644), Some(3));
    assert_eq!(try_to(&mut fs, &create(NodeId(2), "f", user(9), 0o644), None), [Code::Exists, Code::Access]);
    assert_eq!(try_to(&mut fs, &create(NodeId(2), "g", user(9), 0o644), None), [Code::Access]);
    must(&mut fs, &mkdir(ROOT, "closed", Credentials::ROOT, 0o700), Some(4));
    assert_eq!(
        try_to(&mut fs, &unlink(NodeId(4), "f", user(9)), None),
        [Code::Access, Code::NotFound, Code::Access]
    );
}

#[test]
fn the_sticky_rule_lets_only_the_owners_remove() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "tmp", Credentials::ROOT, 0o1777), Some(2));
    must(&mut fs, &create(NodeId(2), "f", user(5), 0o644), Some(3));
    assert_eq!(try_to(&mut fs, &unlink(NodeId(2), "f", user(6)), None), [Code::NotPermitted]);
    assert_eq!(try_to(&mut fs, &rename((NodeId(2), "f"), (ROOT, "f"), user(6)), None), [Code::NotPermitted]);
    must(&mut fs, &unlink(NodeId(2), "f", user(5)), None);
}

#[test]
fn an_exchange_needs_both_names_and_asks_at_both_ends_as_for_a_removal() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "d", Credentials::ROOT, 0o755), Some(2));
    must(&mut fs, &create(NodeId(2), "f", Credentials::ROOT, 0o644), Some(3));
    must(&mut fs, &mkdir(ROOT, "e", user(5), 0o700), Some(4));
    let exchange = |source, target, who| match rename(source, target, who) {
        Mutation::Rename { source, source_name, target, target_name, who, .. } => {
            Mutation::Rename { source, source_name, target, target_name, who, mode: RenameMode::Exchange }
        }
        other => other,
    };
    let none = exchange((ROOT, "e"), (ROOT, "none"), Credentials::ROOT);
    assert_eq!(try_to(&mut fs, &none, None), [Code::NotFound]);
    let around = [((ROOT, "d"), (NodeId(2), "f")), ((NodeId(2), "f"), (ROOT, "d"))];
    for (source, target) in around {
        let within = exchange(source, target, Credentials::ROOT);
        assert_eq!(try_to(&mut fs, &within, None), [Code::InvalidArgument]);
    }
    assert_eq!(try_to(&mut fs, &exchange((NodeId(2), "f"), (ROOT, "e"), user(5)), None), [Code::Access]);
    must(&mut fs, &exchange((NodeId(2), "f"), (ROOT, "e"), Credentials::ROOT), None);
    assert_eq!(
        (fs.entry(NodeId(2), &name("f")), fs.entry(ROOT, &name("e"))),
        (Some(NodeId(4)), Some(NodeId(3)))
    );
    let (root, d, e) = (fs.node(ROOT).unwrap(), fs.node(NodeId(2)).unwrap(), fs.node(NodeId(4)).unwrap());
    assert_eq!((root.links, d.links, e.parent), (3, 3, Some(NodeId(2))));
}

#[test]
fn kinds_are_checked_after_permission_and_emptiness_last() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "d", Credentials::ROOT, 0o755), Some(2));
    must(&mut fs, &create(NodeId(2), "f", Credentials::ROOT, 0o644), Some(3));
    assert_eq!(try_to(&mut fs, &unlink(ROOT, "d", Credentials::ROOT), None), [Code::IsDirectory]);
    assert_eq!(try_to(&mut fs, &rmdir(NodeId(2), "f", Credentials::ROOT), None), [Code::NotDirectory]);
    assert_eq!(try_to(&mut fs, &rmdir(ROOT, "d", Credentials::ROOT), None), [Code::NotEmpty]);
    assert_eq!(try_to(&mut fs, &create(NodeId(3), "x", Credentials::ROOT, 0), None), [Code::NotDirectory]);
    must(&mut fs, &unlink(NodeId(2), "f", Credentials::ROOT), None);
    must(&mut fs, &rmdir(ROOT, "d", Credentials::ROOT), None);
    assert_eq!(try_to(&mut fs, &create(NodeId(2), "x", Credentials::ROOT, 0), None), [Code::NotFound]);
}

#[test]
fn rename_into_own_subtree_and_over_an_ancestor_are_refused() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "a", Credentials::ROOT, 0o755), Some(2));
    must(&mut fs, &mkdir(NodeId(2), "b", Credentials::ROOT, 0o755), Some(3));
    let into_itself = rename((ROOT, "a"), (NodeId(3), "c"), Credentials::ROOT);
    assert_eq!(try_to(&mut fs, &into_itself, None), [Code::InvalidArgument]);
    let over_ancestor = rename((NodeId(2), "b"), (ROOT, "a"), Credentials::ROOT);
    assert_eq!(try_to(&mut fs, &over_ancestor, None)[0], Code::NotEmpty);
    let onto_itself = rename((ROOT, "a"), (ROOT, "a"), Credentials::ROOT);
    must(&mut fs, &onto_itself, None);
}

#[test]
fn rename_replaces_what_it_may_and_moves_counts_with_it() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "a", Credentials::ROOT, 0o755), Some(2));
    must(&mut fs, &mkdir(ROOT, "b", Credentials::ROOT, 0o755), Some(3));
    must(&mut fs, &mkdir(NodeId(2), "d", Credentials::ROOT, 0o755), Some(4));
    must(&mut fs, &create(NodeId(2), "f", Credentials::ROOT, 0o644), Some(5));
    let over_directory = rename((NodeId(2), "f"), (ROOT, "b"), Credentials::ROOT);
    assert_eq!(try_to(&mut fs, &over_directory, None), [Code::IsDirectory]);
    let over_file = rename((NodeId(2), "d"), (NodeId(2), "f"), Credentials::ROOT);
    assert_eq!(try_to(&mut fs, &over_file, None), [Code::NotDirectory]);
    must(&mut fs, &rename((NodeId(2), "d"), (ROOT, "b"), Credentials::ROOT), None);
    assert_eq!(fs.view(NodeId(3)).unwrap().links, 0);
    assert_eq!((fs.view(ROOT).unwrap().links, fs.view(NodeId(2)).unwrap().links), (4, 2));
    assert_eq!(fs.node(NodeId(4)).unwrap().parent, Some(ROOT));
}

#[test]
fn a_directory_that_changes_parent_needs_write_permission_on_itself() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "a", user(5), 0o777), Some(2));
    must(&mut fs, &mkdir(ROOT, "b", user(5), 0o555), Some(3));
    assert_eq!(try_to(&mut fs, &rename((ROOT, "b"), (NodeId(2), "b"), user(5)), None), [Code::Access]);
    must(&mut fs, &rename((ROOT, "b"), (ROOT, "c"), user(5)), None);
}

#[test]
fn links_are_counted_and_a_debt_is_paid_later() {
    let mut fs = oracle();
    must(&mut fs, &create(ROOT, "f", Credentials::ROOT, 0o644), Some(2));
    let link = Mutation::Link { node: NodeId(2), directory: ROOT, name: name("g"), who: Credentials::ROOT };
    must(&mut fs, &link, None);
    assert_eq!(fs.view(NodeId(2)).unwrap().links, 2);
    let touched = fs.apply(&unlink(ROOT, "f", Credentials::ROOT), None, true);
    assert_eq!((touched.owes_link, fs.view(NodeId(2)).unwrap().links), (Some(NodeId(2)), 2));
    fs.drop_link(NodeId(2));
    assert_eq!(fs.view(NodeId(2)).unwrap().links, 1);
}

#[test]
fn attributes_are_changed_by_owner_or_root_only() {
    let mut fs = oracle();
    must(&mut fs, &create(ROOT, "f", user(5), 0o4640), Some(2));
    let set = |who, change| Mutation::SetAttributes { node: NodeId(2), who, change, through_file: false };
    let mode = AttributeChange { mode: Some(Mode::new(0o600)), ..Default::default() };
    assert_eq!(try_to(&mut fs, &set(user(6), mode), None), [Code::NotPermitted]);
    let uid = AttributeChange { uid: Some(Uid(6)), ..Default::default() };
    assert_eq!(try_to(&mut fs, &set(user(5), uid), None), [Code::NotPermitted]);
    let size = AttributeChange { size: Some(3), ..Default::default() };
    assert_eq!(try_to(&mut fs, &set(user(6), size), None), [Code::Access]);
    must(&mut fs, &set(Credentials::ROOT, uid), None);
    assert_eq!(fs.view(NodeId(2)).unwrap().mode, Mode::new(0o640));
}

#[test]
fn a_set_group_id_directory_hands_its_group_down() {
    let mut fs = oracle();
    must(&mut fs, &mkdir(ROOT, "d", user(5), 0o2777), Some(2));
    must(&mut fs, &mkdir(NodeId(2), "e", user(6), 0o755), Some(3));
    let view = fs.view(NodeId(3)).unwrap();
    assert_eq!((view.gid, view.mode), (Gid(5), Mode::new(0o2755)));
}

#[test]
fn commits_lay_bytes_over_and_cutting_forgets_them() {
    let mut fs = oracle();
    must(&mut fs, &create(ROOT, "f", Credentials::ROOT, 0o644), Some(2));
    let pieces = vec![Piece { offset: 2, bytes: b"abc".to_vec() }, Piece { offset: 4, bytes: b"Z".to_vec() }];
    let commit = |pieces: &[Piece], size_min, mode| Mutation::Commit {
        node: NodeId(2),
        pieces: pieces.to_vec(),
        size_min,
        mode,
        set_ids: SetIds::Keep,
    };
    must(&mut fs, &commit(&pieces, 7, CommitMode::Put), None);
    assert_eq!(*fs.node(NodeId(2)).unwrap().content, b"\0\0abZ\0\0"[..7]);
    must(&mut fs, &commit(&pieces[..1], 6, CommitMode::Append), None);
    assert_eq!(*fs.node(NodeId(2)).unwrap().content, b"\0\0abZ\0\0\0\0abc\0"[..]);
    must(&mut fs, &Mutation::Truncate { node: NodeId(2), who: Credentials::ROOT, read: true }, None);
    assert_eq!(fs.view(NodeId(2)).unwrap().size, 0);
}

fn set_list(node: u64, who: Credentials, name: &[u8], list: &[(Who, u8)]) -> Mutation {
    let name = XattrName::new(name).unwrap();
    let change = XattrChange::Set { value: List(list.to_vec()).encode(), mode: XattrMode::Any };
    Mutation::SetXattr { node: NodeId(node), who, name, change }
}

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

#[test]
fn lists_and_permission_bits_follow_each_other_and_are_inherited() {
    let mut oracle = oracle();
    let list = [(Who::Owner, 7), (Who::User(5), 6), (Who::Group, 4), (Who::Mask, 5), (Who::Others, 0)];
    assert_eq!(try_to(&mut oracle, &mkdir(ROOT, "d", user(1), 0o700), Some(2)), []);
    assert_eq!(try_to(&mut oracle, &set_list(2, user(2), DEFAULT_LIST, &list), None), [Code::NotPermitted]);
    assert_eq!(
        try_to(&mut oracle, &set_list(2, user(1), DEFAULT_LIST, &list[1..]), None),
        [Code::InvalidArgument]
    );
    assert_eq!(try_to(&mut oracle, &set_list(2, user(1), DEFAULT_LIST, &list), None), []);
    assert_eq!(try_to(&mut oracle, &set_list(2, user(1), ACCESS_LIST, &list), None), []);
    assert_eq!(oracle.view(NodeId(2)).unwrap().mode, Mode::new(0o750));
    assert_eq!(try_to(&mut oracle, &create(NodeId(2), "f", user(1), 0o666), Some(3)), []);
    let file = oracle.node(NodeId(3)).unwrap();
    assert_eq!(file.access.mode, Mode::new(0o640), "the mask stands where the group does");
    assert!(file.allows(&user(5), Permission::READ) && !file.allows(&user(5), Permission::WRITE));
    let mode = AttributeChange { mode: Some(Mode::new(0o660)), ..AttributeChange::default() };
    let chmod = Mutation::SetAttributes { node: NodeId(3), who: user(1), change: mode, through_file: false };
    assert_eq!(try_to(&mut oracle, &chmod, None), []);
    assert!(oracle.node(NodeId(3)).unwrap().allows(&user(5), Permission::WRITE), "chmod widens the mask");
    assert_eq!(try_to(&mut oracle, &mkdir(NodeId(2), "e", user(1), 0o777), Some(4)), []);
    assert!(oracle.node(NodeId(4)).unwrap().default_list.is_some());
}

proptest::proptest! {
    /// Written from Linux's code; production was not.
    #[test]
    fn production_judges_lists_as_the_oracle_does(
        rights in proptest::array::uniform7(0u8..8),
        there in proptest::array::uniform4(proptest::bool::ANY),
        (uid, gid, groups) in (0u32..4, 0u32..4, proptest::collection::vec(0u32..4, 0..3)),
        (owner, group) in (0u32..4, 0u32..4),
        wish in 1u8..8,
        born in 0u32..0o1000,
    ) {
        let named = [Who::User(1), Who::User(2), Who::Group, Who::OtherGroup(1), Who::OtherGroup(2)];
        let mut list = vec![(Who::Owner, rights[0])];
        for (place, (who, is_there)) in named.into_iter().zip([there[0], there[1], true, there[2], there[3]]).enumerate() {
            list.extend(is_there.then_some((who, rights[place + 1])));
        }
        list.push((Who::Mask, rights[6]));
        list.push((Who::Others, wish ^ rights[0]));
        let list = List(list);
        let who = Credentials { uid: Uid(uid), gid: Gid(gid), groups: groups.into_iter().map(Gid).collect() };
        let access = Access { mode: Mode::new(born), uid: Uid(owner), gid: Gid(group) };
        let mut oracle = Oracle::new(ROOT, access);
        let name = XattrName::new(ACCESS_LIST).unwrap();
        let change = XattrChange::Set { value: list.encode(), mode: XattrMode::Any };
        oracle.apply(&Mutation::SetXattr { node: ROOT, who: Credentials::ROOT, name, change }, None, false);
        let node = oracle.node(ROOT).unwrap();
        let produced = Acl::decode(&list.encode()).unwrap().unwrap();
        proptest::prop_assert_eq!(produced.encode(), list.encode());
        let (mode, listed) = produced.split(access.mode);
        proptest::prop_assert_eq!(mode, node.access.mode);
        let wish = Permission::from_bits(wish);
        let may = Access { mode, ..access }.allows_with(listed.as_ref(), &who, wish, FileType::Directory);
        proptest::prop_assert_eq!(may, node.allows(&who, wish));
        let (mode, listed) = produced.inherited(access.mode);
        let inherited = listed.map(|listed| Acl::of(mode, &listed).encode());
        let mut oracle = Oracle::new(ROOT, access);
        let change = XattrChange::Set { value: list.encode(), mode: XattrMode::Any };
        let name = XattrName::new(DEFAULT_LIST).unwrap();
        oracle.apply(&Mutation::SetXattr { node: ROOT, who: Credentials::ROOT, name, change }, None, false);
        oracle.apply(&create(ROOT, "f", user(1), born), Some(NodeId(2)), false);
        let made = oracle.node(NodeId(2)).unwrap();
        proptest::prop_assert_eq!(inherited, made.access_list.as_ref().map(List::encode));
        proptest::prop_assert_eq!(mode.bits() & 0o777, made.access.mode.bits() & 0o777);
    }
}
