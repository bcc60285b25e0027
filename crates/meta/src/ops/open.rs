//! Checks permission to open a file. For writing it gives a token that lives as long as the session: an open file stays writable whatever its
//! mode becomes.

use crate::key::Key;
use crate::namespace;
use crate::ops::set_attributes::set_size;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey};
use bearing_proto::grant::WriteToken;
use bearing_types::{Code, Credentials, NodeId, Permission};

#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub read: bool,
    pub write: bool,
    pub truncate: bool,
}

pub(super) fn decide(view: &mut View, handle: Handle, who: &Credentials, wish: Wish) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    match record.content {
        NodeContent::File => {}
        NodeContent::Directory(_) => return Err(Stop::Refuse(Code::IsDirectory)),
        NodeContent::Symlink(_) | NodeContent::Special => return Err(Stop::Refuse(Code::InvalidArgument)),
    }
    if record.attributes.links == 0 && !holds(view, handle.node)? {
        // Kept for those who have it open, and for nobody else.
        return Err(Stop::Refuse(Code::Stale));
    }
    let allows = |permission| record.allows(who, permission);
    // A program may be executed without being readable: the kernel asks to read it then.
    let reads = !wish.read || allows(Permission::READ) || allows(Permission::SEARCH);
    let writes = !(wish.write || wish.truncate) || allows(Permission::WRITE);
    if !reads || !writes {
        return Err(Stop::Refuse(Code::Access));
    }
    if wish.truncate && record.attributes.size > 0 {
        set_size(view, handle, &mut record, 0)?;
        record.touch(view.time());
        view.put_node(handle.node, record.clone());
        view.changes(LeaseKey::File(handle.node));
    }
    // Remembered whether or not it comes with a lease: a change may be about to come, perhaps the last unlink.
    view.hand(handle.node);
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    let token = wish.write.then(|| WriteToken::sign(handle.node, session, view.keys.grants()));
    Ok(Body::Opened(namespace::node_view(view, handle.node, &record), token))
}

/// Whether the asking session had the file open when it lost its last name.
fn holds(view: &mut View, node: NodeId) -> Decide<bool> {
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    Ok(view.get(Key::Orphan(node, session))?.is_some())
}
