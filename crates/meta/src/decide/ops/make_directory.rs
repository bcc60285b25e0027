//! A new directory. Its node lies at the start of its own span: often in another tablet, then made by the
//! queue while the name counts as prepared.

use crate::decide::rules::namespace::{self, NewDirectory};
use crate::decide::rules::{permission, quotas};
use crate::record::NameEntry;
use crate::view::{Decide, Draft, Stop, View};
use bearing_proto::client::{Body, EntryView, Handle, LeaseMs, NodeView};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::Deferred;
use bearing_proto::rules;
use bearing_types::{Access, Amount, Code, Credentials, FileType, Mode, Name, NameHash, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    name: &Name,
    mode: Mode,
) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    let grant = permission::admit(view, grant, who, Permission::CHANGE_ENTRIES)?.clone();
    let (entry, access) = make(view, &grant, who, name, mode)?;
    if view.tablet.contains(entry.node.home) {
        return Ok(Body::Entry(namespace::entry_view(view, grant.seat.node, hash, &entry)?, None));
    }
    let attributes = rules::attributes_of_new_directory(access, view.time());
    let node = entry.node;
    let shown = EntryView {
        node,
        file_type: FileType::Directory,
        lease: LeaseMs(0),
        // Said here, because its home may have lost it again to somebody else by the time that it is asked.
        // Not leased, so whether it has lists is asked of its home.
        attributes: Some(NodeView { node, attributes, lease: LeaseMs(0), may_open: false, extended: false }),
        directory: None,
    };
    Ok(Body::Entry(shown, None))
}

/// Makes the name, and the node here or by the queue.
pub(super) fn make(
    view: &mut View,
    grant: &GrantBody,
    who: &Credentials,
    name: &Name,
    mode: Mode,
) -> Decide<(NameEntry, Access)> {
    let hash = NameHash::of(grant.name_key, name);
    let parent = Handle { node: grant.seat.node, home: grant.seat.home };
    let vacancy = match namespace::find(view, parent.node, hash, name)? {
        Ok(_) => return Err(Stop::Refuse(Code::Exists)),
        Err(vacancy) => vacancy,
    };
    let fragment = namespace::fragment_for_insert(view, grant)?;

    quotas::admit(view, grant.quota, Amount { space: 0, entries: 1 })?;
    let acls = permission::acls(view, grant)?;
    let id = view.new_id()?;
    let seat = grant.seat.child(id, hash);
    let (access, acls) = rules::access_of_new(grant.access, &acls, who, mode, FileType::Directory);
    let node = Handle { node: id, home: seat.home };
    let entry = NameEntry { name: name.clone(), node, file_type: FileType::Directory };
    let key = namespace::insert(view, vacancy, entry.clone());
    namespace::count(view, parent.node, fragment, 1, 1);
    let born = view.time();
    if view.tablet.contains(seat.home) {
        let new = NewDirectory { seat, parent, name, access, acls: &acls, quota: grant.quota };
        namespace::make_directory_node(view, new, born);
    } else {
        let acls = Box::new(acls);
        let work = Deferred::MakeDirectory {
            seat,
            parent,
            name: name.clone(),
            access,
            acls,
            born,
            quota: grant.quota,
        };
        view.queue(Draft { to: seat.home, work, awaited: true, locks: vec![key] })?;
    }
    Ok((entry, access))
}
