//! Changes attributes of a node, at its home.

use crate::decide::ops::rights;
use crate::decide::participants;
use crate::decide::rules::{extents, namespace};
use crate::record::{NodeContent, NodeRecord};
use crate::view::{Decide, View};
use bearing_proto::client::{AttributeChange, Body, Handle, LeaseKey, LeaseMs};
use bearing_proto::grant::OpenToken;
use bearing_proto::peer::Part;
use bearing_proto::rules::{self, Changer};
use bearing_types::Credentials;

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    who: &Credentials,
    change: &AttributeChange,
    token: Option<OpenToken>,
) -> Decide<Body> {
    let open = token.is_some_and(|token| rights::writes(view, handle.node, &token).is_ok());
    set(view, handle, who, change, open)
}

/// Changes them; `open`: through a file that is open for writing.
pub(super) fn set(
    view: &mut View,
    handle: Handle,
    who: &Credentials,
    change: &AttributeChange,
    open: bool,
) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    let before = record.attributes;
    let changer = Changer { who, list: record.acls.access.as_deref(), has_open: open };
    record.attributes = rules::changed(&before, changer, change, view.time())?;
    if change.size.is_some() {
        cut(view, handle, &mut record, before.size)?;
    }
    if let (Some(_), NodeContent::Directory(directory)) = (change.modified, &mut record.content) {
        directory.modified_set = view.time();
    }
    let grants = if record.access() == before.access() { Grants::Stay } else { Grants::Age };
    conclude(view, handle, record, grants)
}

/// Drops what lies beyond the size that a file has now, and had not before.
pub(super) fn cut(view: &mut View, handle: Handle, record: &mut NodeRecord, size_before: u64) -> Decide<()> {
    let attributes = &mut record.attributes;
    if attributes.size < size_before {
        let freed = extents::cut(view, handle.node, attributes.size)?;
        attributes.space = attributes.space.saturating_sub(freed);
    }
    Ok(())
}

/// Whether a change of a directory makes the grants from before it too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grants {
    Stay,
    Age,
}

/// Writes a changed node back and shows it.
pub(super) fn conclude(
    view: &mut View,
    handle: Handle,
    mut record: NodeRecord,
    grants: Grants,
) -> Decide<Body> {
    if !record.attributes.is_directory() {
        view.put_node(handle.node, record.clone());
        view.changes(LeaseKey::File(handle.node));
        return Ok(Body::Node(namespace::node_view(view, handle.node, &record)));
    }
    // Before grants are aged: a fragment that is prepared for that answers no question until it is decided.
    let (attributes, all_here) = namespace::directory_attributes(view, handle.node, &record)?;
    view.changes(LeaseKey::Content(handle.node));
    if grants == Grants::Age {
        age_grants(view, handle, &mut record)?;
    }
    view.put_node(handle.node, record.clone());
    let lease = if all_here { view.lease(LeaseKey::Content(handle.node)) } else { LeaseMs(0) };
    Ok(Body::Node(namespace::directory_node_view(handle.node, &record, attributes, lease)))
}

/// Whoever changes entries of a directory shows a grant with its mode, owner and group. With these the
/// grant's version changes, here and in every fragment at once: so no change is decided by what was true
/// before, be its request delayed, copied, or left behind by a client that died.
fn age_grants(view: &mut View, handle: Handle, record: &mut NodeRecord) -> Decide<()> {
    let quota = record.quota;
    let NodeContent::Directory(directory) = &mut record.content else { return Ok(()) };
    directory.access_version = directory.access_version.next();
    let (name_block, access_version) = (directory.seat.name_block, directory.access_version);
    for block in &directory.fragments {
        let part = Part::AgeGrants { node: handle.node, name_block, access_version, quota };
        participants::part(view, block.start(), part)?;
    }
    view.changes(LeaseKey::Access(handle.node));
    Ok(())
}
