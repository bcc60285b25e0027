//! What questions deserve as answers. Listings and content have rules of their own (see the checker).

use super::{List, Node, Query, Seen, State};
use bearing_types::{Code, Credentials, FileType, NodeId, Outcome, Permission, Uid, XattrName, XattrSpace};

/// What a question deserves: of `structure` what exists, of `access` who may. Unlinked nodes answer as if
/// they were there: whether they must is the checker's business. A listing's answer is empty here.
pub fn answer(structure: &dyn State, access: &dyn State, query: &Query) -> Outcome<Seen> {
    match query {
        Query::Lookup { directory, name, who } => {
            check_directory(structure, access, *directory, who, Permission::SEARCH)?;
            let found = structure.entry(*directory, name).ok_or(Code::NotFound)?;
            let node = structure.node(found).ok_or(Code::NotFound)?;
            Ok(Seen::Node(node.view(found)))
        }
        Query::Attributes { node, own_end } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            let mut view = known.view(*node);
            if known.file_type == FileType::Regular {
                view.size = view.size.max(*own_end);
            }
            Ok(Seen::Node(view))
        }
        Query::List { directory, who } => {
            check_directory(structure, access, *directory, who, Permission::READ)?;
            Ok(Seen::Listing(Vec::new()))
        }
        Query::ReadLink { node } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            if known.file_type != FileType::Symlink {
                return Err(Code::InvalidArgument);
            }
            Ok(Seen::Target(known.content.to_vec()))
        }
        Query::Xattr { node, who, name } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            let who_may = access.node(*node).unwrap_or(known);
            let root = who.uid == Uid(0);
            match name.space() {
                XattrSpace::User if !bears_user_attributes(known) => return Err(Code::NoData),
                XattrSpace::User if !who_may.allows(who, Permission::READ) => {
                    return Err(Code::Access);
                }
                XattrSpace::Trusted if !root => return Err(Code::NoData),
                XattrSpace::User
                | XattrSpace::Trusted
                | XattrSpace::Security
                | XattrSpace::AccessList
                | XattrSpace::DefaultList => {}
            }
            let list = known.list(name.space()).map(List::encode);
            list.or(known.xattrs.get(name).cloned()).map(Seen::Value).ok_or(Code::NoData)
        }
        Query::Xattrs { node, who } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            let shows = |name: &&XattrName| name.space() != XattrSpace::Trusted || who.uid == Uid(0);
            let names = known.xattrs.keys().filter(shows).cloned().chain(known.lists());
            Ok(Seen::Names(names.map(|name| name.as_bytes().to_vec()).collect()))
        }
        Query::Open { node, who, read, write } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            if known.is_directory() && *write {
                return Err(Code::IsDirectory);
            }
            let who_may = access.node(*node).unwrap_or(known);
            let may = |wish| who_may.allows(who, wish);
            let allowed = (!read || may(Permission::READ)) && (!write || may(Permission::WRITE));
            if allowed { Ok(Seen::Node(known.view(*node))) } else { Err(Code::Access) }
        }
        Query::Content { node, .. } => {
            let known = structure.node(*node).ok_or(Code::Stale)?;
            Ok(Seen::Bytes(known.content.to_vec()))
        }
    }
}

fn bears_user_attributes(node: &Node) -> bool {
    matches!(node.file_type, FileType::Regular | FileType::Directory)
}

fn check_directory(
    structure: &dyn State,
    access: &dyn State,
    directory: NodeId,
    who: &Credentials,
    wish: Permission,
) -> Outcome<()> {
    let node = structure.node(directory).filter(|node| node.links > 0).ok_or(Code::NotFound)?;
    if !node.is_directory() {
        return Err(Code::NotDirectory);
    }
    let who_may = access.node(directory).unwrap_or(node);
    if who_may.allows(who, wish) { Ok(()) } else { Err(Code::Access) }
}
