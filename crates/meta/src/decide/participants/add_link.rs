//! Link: one more name for a node.

use crate::decide::rules::namespace;
use crate::record::Key;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, LeaseKey};
use bearing_proto::peer::Promise;
use bearing_proto::rules;
use bearing_types::{Code, Wall};

/// As many names as ext4 would allow a file to have.
const LINKS_MAX: u32 = 65_000;

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    changed: Wall,
    quota: Option<Handle>,
) -> Decide<Promise> {
    let mut record = match view.node_at(handle) {
        Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
        other => other?,
    };
    if record.attributes.is_directory() {
        return Err(Stop::Refuse(Code::NotPermitted));
    }
    if record.quota != quota {
        return Err(Stop::Refuse(Code::CrossDevice));
    }
    // An unlinked file that is still open does not come back.
    if record.attributes.links == 0 {
        return Err(Stop::Refuse(Code::NotFound));
    }
    if record.attributes.links >= LINKS_MAX {
        return Err(Stop::Refuse(Code::TooManyLinks));
    }
    record.attributes.links += 1;
    rules::touch(&mut record.attributes, changed);
    view.lock(Key::Node(handle.node))?;
    view.put_node(handle.node, record.clone());
    view.changes(LeaseKey::File(handle.node));
    Ok(Promise::Linked(namespace::node_view(view, handle.node, &record)))
}
