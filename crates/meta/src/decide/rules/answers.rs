//! What a tablet answers to others' questions about nodes, names, sessions and ids. Asking twice does no
//! harm.

use crate::decide::rules::namespace;
use crate::record::{Key, NodeContent, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, LeaseKey};
use bearing_proto::peer::{FragmentStat, SessionLife, Told};
use bearing_types::{AclHash, Block, Code, NodeId, SessionId, Wall};

/// The first id that the common counter gives out: 1 is the root.
const FIRST_ID: NodeId = NodeId(2);

/// A directory's parent.
pub(crate) fn parent(view: &mut View, directory: Handle) -> Decide<Told> {
    let parent = view.node_at(directory)?.directory()?.parent;
    Ok(Told::Parent(parent))
}

/// What a directory's fragment here counts.
pub(crate) fn fragment(view: &mut View, directory: NodeId) -> Decide<Told> {
    let fragment = view.fragment(directory)?.map(namespace::stat_of);
    let none = FragmentStat { entries: 0, directories: 0, modified: Wall(i64::MIN) };
    Ok(Told::Fragment(fragment.unwrap_or(none)))
}

/// The access control lists of a directory, if they are those that are meant.
pub(crate) fn acls(view: &mut View, directory: Handle, hash: AclHash) -> Decide<Told> {
    let record = match view.node_at(directory) {
        Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
        other => other?,
    };
    // Of a grant from before or, with a tablet that moved, from after: a new one says what counts now.
    let same = record.acls.hash() == hash;
    if same { Ok(Told::Acls(Box::new(record.acls))) } else { Err(Stop::Refuse(Code::Unauthenticated)) }
}

/// Who owns a node.
pub(crate) fn owner(view: &mut View, node: Handle) -> Decide<Told> {
    let record = view.node_at(node)?;
    Ok(Told::Owner { uid: record.attributes.uid, gid: record.attributes.gid })
}

/// A tablet is about to take the first name of a directory: from now on the directory's removal must ask that
/// tablet too.
pub(crate) fn list_fragment(view: &mut View, directory: Handle, block: Block) -> Decide<Told> {
    let mut record = match view.node_at(directory) {
        // The directory was removed: for whoever wants to create in it, it does not exist.
        Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
        other => other?,
    };
    let NodeContent::Directory(content) = &mut record.content else {
        return Err(Stop::Refuse(Code::NotDirectory));
    };
    let access_version = content.access_version;
    if !content.fragments.iter().any(|listed| listed.covers(block)) {
        content.fragments.push(block);
        view.changes(LeaseKey::Content(directory.node));
        view.put_node(directory.node, record);
    }
    Ok(Told::Listed { access_version })
}

/// So many ids of the common counter.
pub(crate) fn ids(view: &mut View, count: u32) -> Decide<Told> {
    let first = view.get_as(Key::NextId, Record::into_next_id)?.unwrap_or(FIRST_ID);
    view.put(Key::NextId, Record::NextId(NodeId(first.0 + u64::from(count))));
    Ok(Told::Ids { first, count })
}

/// Whether a session at home here lives.
pub(crate) fn session(view: &mut View, session: SessionId) -> Decide<Told> {
    let (opened, ended) = (view.get(Key::Session(session))?, view.get(Key::Ended(session))?);
    let life = match (opened, ended) {
        (Some(_), None) => SessionLife::Lives,
        (Some(_), Some(_)) => SessionLife::Closed,
        (None, _) => SessionLife::Over,
    };
    Ok(Told::Session(life))
}
