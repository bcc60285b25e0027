//! Checks permission to open a file. Gives a token that lives as long as the session: an open file stays
//! readable and writable, as it was opened, whatever its mode becomes.

use crate::decide::ops::rights;
use crate::decide::ops::set_attributes::cut;
use crate::decide::rules::namespace;
use crate::record::{Key, NodeContent, NodeRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey};
use bearing_proto::grant::OpenRights;
use bearing_proto::rules::{self, OpenWish};
use bearing_types::{Code, Credentials, NodeId, SetIds};

pub(super) fn decide(view: &mut View, handle: Handle, who: &Credentials, wish: OpenWish) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    check(view, handle.node, &record, who, wish)?;
    let set_ids = SetIds::by(who);
    let mode = set_ids.applied(record.attributes.mode, record.attributes.gid);
    if wish.truncate && (record.attributes.size > 0 || record.attributes.mode != mode) {
        let size_before = record.attributes.size;
        rules::resize(&mut record.attributes, 0, set_ids, view.time());
        rules::touch(&mut record.attributes, view.time());
        cut(view, handle, &mut record, size_before)?;
        view.put_node(handle.node, record.clone());
        view.changes(LeaseKey::File(handle.node));
    }
    // Remembered whether or not it comes with a lease: a change may be about to come, perhaps the last
    // unlink.
    view.hand(handle.node);
    let rights = OpenRights::of(wish.read, wish.write);
    let token = rights.map(|rights| rights::grant(view, handle.node, rights)).transpose()?;
    Ok(Body::Opened(namespace::node_view(view, handle.node, &record), token))
}

/// Whether a user may open a file so, as of now.
pub(super) fn check(
    view: &mut View,
    node: NodeId,
    record: &NodeRecord,
    who: &Credentials,
    wish: OpenWish,
) -> Decide<()> {
    match record.content {
        NodeContent::File => {}
        NodeContent::Directory(_) => return Err(Stop::Refuse(Code::IsDirectory)),
        NodeContent::Symlink(_) | NodeContent::Special => return Err(Stop::Refuse(Code::InvalidArgument)),
    }
    if record.attributes.links == 0 && !holds(view, node)? {
        // Kept for those who have it open, and for nobody else.
        return Err(Stop::Refuse(Code::Stale));
    }
    Ok(rules::check_open(&record.attributes, record.acls.access.as_deref(), who, wish)?)
}

/// Whether the asking session had the file open when it lost its last name.
fn holds(view: &mut View, node: NodeId) -> Decide<bool> {
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    Ok(view.get(Key::Orphan(node, session))?.is_some())
}
