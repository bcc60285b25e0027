//! Removes an empty directory. Its node is prepared first, so that no new fragment is listed, then every
//! listed fragment: each finds itself empty and refuses every child operation from then on, whatever grant is
//! shown.

use crate::decide::participants;
use crate::decide::rules::{namespace, permission};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::{Part, Promise, Remover};
use bearing_proto::rules;
use bearing_types::{Code, Credentials, FileType, Name, NameHash, NodeId, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    name: &Name,
    node: NodeId,
) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    let grant = permission::admit(view, grant, who, Permission::CHANGE_ENTRIES)?.clone();
    remove(view, &grant, who, name, node)?;
    Ok(Body::Done)
}

/// Takes the name away, and the directory with it.
pub(super) fn remove(
    view: &mut View,
    grant: &GrantBody,
    who: &Credentials,
    name: &Name,
    node: NodeId,
) -> Decide<()> {
    let hash = NameHash::of(grant.name_key, name);
    let parent = grant.seat.node;
    let slot = namespace::find_existing(view, parent, hash, name)?;
    namespace::check_known(&slot.entry, node)?;
    namespace::check_sticky(view, &Remover::of(grant.access, who.uid), slot.entry.node)?;
    rules::check_same_kind(slot.entry.file_type, FileType::Directory)?;
    // An old grant is refused before others are asked for anything.
    namespace::fragment_with_entries(view, parent, grant.access_version)?;
    kill(view, slot.entry.node)?;
    let fragment = namespace::fragment_under(view, grant)?;
    namespace::remove(view, &slot);
    namespace::count(view, parent, fragment, -1, -1);
    view.changes(LeaseKey::Name(parent, hash));
    Ok(())
}

/// Prepares the end of a directory: its node, then every fragment that it lists.
pub(super) fn kill(view: &mut View, node: Handle) -> Decide<()> {
    let Promise::Fragments(fragments) = participants::part(view, node.home, Part::KillNode { node })? else {
        return Err(Stop::Refuse(Code::Io));
    };
    for block in fragments {
        participants::part(view, block.start(), Part::KillFragment { node: node.node })?;
    }
    Ok(())
}
