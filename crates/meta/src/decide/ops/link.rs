//! A further name for a node. Two-phase: the name may exist, and the node may refuse.

use crate::decide::participants;
use crate::decide::rules::{namespace, permission, quotas};
use crate::record::NameEntry;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, EntryView, Handle, LeaseKey};
use bearing_proto::grant::Grant;
use bearing_proto::peer::{Part, Promise};
use bearing_types::{Amount, Code, Credentials, Name, NameHash, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    name: &Name,
    node: Handle,
) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    let grant = permission::admit(view, grant, who, Permission::CHANGE_ENTRIES)?.clone();
    let directory = grant.seat.node;
    let vacancy = match namespace::find(view, directory, hash, name)? {
        Ok(_) => return Err(Stop::Refuse(Code::Exists)),
        Err(vacancy) => vacancy,
    };
    let fragment = namespace::fragment_for_insert(view, &grant)?;
    quotas::admit(view, grant.quota, Amount { space: 0, entries: 1 })?;
    let (changed, quota) = (view.time(), grant.quota);
    let Promise::Linked(linked) =
        participants::part(view, node.home, Part::AddLink { node, changed, quota })?
    else {
        return Err(Stop::Refuse(Code::Io));
    };
    let file_type = linked.attributes.file_type;
    namespace::insert(view, vacancy, NameEntry { name: name.clone(), node, file_type });
    namespace::count(view, directory, fragment, 1, 0);
    let lease = view.lease(LeaseKey::Name(directory, hash));
    Ok(Body::Entry(EntryView { node, file_type, lease, attributes: Some(linked), directory: None }, None))
}
