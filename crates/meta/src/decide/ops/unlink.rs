//! Removes a name that is no directory. The node loses a link after the name is gone: its count may be too
//! high, never too low.

use crate::decide::rules::{namespace, permission};
use crate::view::{Decide, View};
use bearing_proto::client::{Body, LeaseKey};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::Remover;
use bearing_proto::rules;
use bearing_types::{Credentials, FileType, Name, NameHash, NodeId, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    name: &Name,
    node: NodeId,
    keep_open: bool,
) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    let grant = permission::admit(view, grant, who, Permission::CHANGE_ENTRIES)?.clone();
    remove(view, &grant, who, name, node, keep_open)?;
    Ok(Body::Done)
}

/// Takes the name away.
pub(super) fn remove(
    view: &mut View,
    grant: &GrantBody,
    who: &Credentials,
    name: &Name,
    node: NodeId,
    keep_open: bool,
) -> Decide<()> {
    let hash = NameHash::of(grant.name_key, name);
    let directory = grant.seat.node;
    let slot = namespace::find_existing(view, directory, hash, name)?;
    namespace::check_known(&slot.entry, node)?;
    namespace::check_sticky(view, &Remover::of(grant.access, who.uid), slot.entry.node)?;
    rules::check_same_kind(slot.entry.file_type, FileType::Regular)?;
    let fragment = namespace::fragment_under(view, grant)?;
    namespace::remove(view, &slot);
    namespace::count(view, directory, fragment, -1, 0);
    view.changes(LeaseKey::Name(directory, hash));
    namespace::drop_link(view, slot.entry.node, keep_open)
}
