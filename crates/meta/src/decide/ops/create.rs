//! A new file, symbolic link or special file: name, node and count in one batch on one tablet.

use crate::decide::ops::rights;
use crate::decide::rules::{namespace, permission, quotas};
use crate::record::{NameEntry, NodeContent, NodeRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, NewNode};
use bearing_proto::grant::{Grant, GrantBody, OpenRights};
use bearing_proto::rules;
use bearing_types::{Amount, Code, Credentials, FileType, Name, NameHash, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    name: &Name,
    new: &NewNode,
) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    let grant = permission::admit(view, grant, who, Permission::CHANGE_ENTRIES)?.clone();
    let entry = make(view, &grant, who, name, new)?;
    let is_file = new.file_type == FileType::Regular;
    let file = Some(entry.node.node).filter(|_| is_file);
    view.handed.extend(file);
    let token = file.map(|node| rights::grant(view, node, OpenRights::ReadWrite)).transpose()?;
    Ok(Body::Entry(namespace::entry_view(view, grant.seat.node, hash, &entry)?, token))
}

/// Makes name and node.
pub(super) fn make(
    view: &mut View,
    grant: &GrantBody,
    who: &Credentials,
    name: &Name,
    new: &NewNode,
) -> Decide<NameEntry> {
    rules::check_new(who, new)?;
    let content = content(new);
    let hash = NameHash::of(grant.name_key, name);
    let position = grant.seat.position_of(hash);
    let directory = grant.seat.node;
    let vacancy = match namespace::find(view, directory, hash, name)? {
        Ok(_) => return Err(Stop::Refuse(Code::Exists)),
        Err(vacancy) => vacancy,
    };
    let fragment = namespace::fragment_for_insert(view, grant)?;

    quotas::admit(view, grant.quota, Amount { space: 0, entries: 1 })?;
    let acls = permission::acls(view, grant)?;
    let id = view.new_id()?;
    let (access, acls) = rules::access_of_new(grant.access, &acls, who, new.mode, new.file_type);
    let attributes = rules::attributes_of_new(new, access, view.time());
    let node = NodeRecord { home: position, attributes, content, xattrs: false, acls, quota: grant.quota };
    let entry = NameEntry { name: name.clone(), node: node.handle(id), file_type: new.file_type };
    view.put_node(id, node);
    namespace::insert(view, vacancy, entry.clone());
    namespace::count(view, directory, fragment, 1, 0);
    Ok(entry)
}

fn content(new: &NewNode) -> NodeContent {
    match new.file_type {
        FileType::Symlink => NodeContent::Symlink(new.target.clone()),
        FileType::Regular => NodeContent::File,
        FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
            NodeContent::Special
        }
        FileType::Directory => unreachable!("of a directory something else is asked"),
    }
}
