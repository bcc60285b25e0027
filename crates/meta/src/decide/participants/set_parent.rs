//! Rename of a directory: its node knows its parent and name.

use crate::record::{Key, NodeContent};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, LeaseKey};
use bearing_proto::peer::Promise;
use bearing_proto::rules;
use bearing_types::{Code, Credentials, Name, Permission, Wall};

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    parent: Handle,
    name: &Name,
    who: &Credentials,
    changed: Wall,
) -> Decide<Promise> {
    let mut record = view.node_at(handle)?;
    let may_write = record.allows(who, Permission::WRITE);
    let NodeContent::Directory(content) = &mut record.content else {
        return Err(Stop::Refuse(Code::NotDirectory));
    };
    let moves = content.parent != parent;
    if moves && !may_write {
        return Err(Stop::Refuse(Code::Access));
    }
    content.parent = parent;
    content.name = name.as_bytes().to_vec();
    rules::touch(&mut record.attributes, changed);
    view.lock(Key::Node(handle.node))?;
    view.put_node(handle.node, record);
    view.changes(LeaseKey::Access(handle.node));
    view.changes(LeaseKey::Content(handle.node));
    Ok(Promise::Done)
}
