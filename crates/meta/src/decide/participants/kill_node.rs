//! rmdir, at the directory's home: while this is prepared no new fragment can be listed, so the list is
//! complete.

use crate::decide::rules::xattrs;
use crate::record::Key;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, LeaseKey};
use bearing_proto::peer::Promise;
use bearing_types::Code;

pub(super) fn decide(view: &mut View, handle: Handle) -> Decide<Promise> {
    let mut record = view.node_at(handle)?;
    let content = record.directory()?;
    if content.parent == handle {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    let fragments = content.fragments.clone();
    view.lock(Key::Node(handle.node))?;
    xattrs::remove_all(view, handle.node, &mut record)?;
    view.delete(Key::Node(handle.node));
    if record.quota == Some(handle) {
        view.delete(Key::Quota(handle.node));
    }
    view.changes(LeaseKey::Access(handle.node));
    view.changes(LeaseKey::Content(handle.node));
    Ok(Promise::Fragments(fragments))
}
