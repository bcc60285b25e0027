//! Extended attributes: read, listed, set. Linux's rules of who may (xattr(7)): `user` needs the permission
//! bits of a file or directory, and in a sticky directory to own it; `trusted` is for root alone; `security`
//! is set by root and read by all. Access control lists come the same way, but live in the node's own record,
//! where every permission check sees them.

use super::set_attributes;
use crate::decide::rules::xattrs;
use crate::record::NodeRecord;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, XattrChange};
use bearing_proto::rules;
use bearing_types::{
    Acl, Code, Credentials, FileType, Mode, Permission, Uid, XattrName, XattrSpace, xattr_list,
};

pub(super) fn get(view: &mut View, handle: Handle, who: &Credentials, name: &XattrName) -> Decide<Body> {
    let record = view.node_at(handle)?;
    let mode = record.attributes.mode;
    let value = match name.space() {
        XattrSpace::AccessList => record.acls.access.as_ref().map(|named| Acl::of(mode, named).encode()),
        XattrSpace::DefaultList => record.acls.default.as_deref().map(Acl::encode),
        XattrSpace::User | XattrSpace::Trusted | XattrSpace::Security => {
            check_read(&record, who, name.space())?;
            Some(xattrs::value(view, handle.node, &record, name)?)
        }
    };
    Ok(Body::Xattr(value.ok_or(Code::NoData)?))
}

pub(super) fn list(view: &mut View, handle: Handle, who: &Credentials) -> Decide<Body> {
    let record = view.node_at(handle)?;
    let names = xattrs::names(view, handle.node, &record)?;
    let known = names.iter().map(|(name, _)| name).filter(|name| shows(who, name.space()));
    let lists = [
        (XattrSpace::AccessList, record.acls.access.is_some()),
        (XattrSpace::DefaultList, record.acls.default.is_some()),
    ];
    let lists = lists.into_iter().filter(|(_, is_there)| *is_there);
    let lists: Vec<XattrName> = lists.filter_map(|(space, _)| XattrName::of_list(space)).collect();
    Ok(Body::Xattr(xattr_list(lists.iter().chain(known))))
}

pub(super) fn set(
    view: &mut View,
    handle: Handle,
    who: &Credentials,
    name: &XattrName,
    change: &XattrChange,
) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    if matches!(name.space(), XattrSpace::AccessList | XattrSpace::DefaultList) {
        return set_list(view, handle, record, who, name.space(), change);
    }
    check_write(&record, who, name, change)?;
    xattrs::change(view, handle.node, &mut record, name, change)?;
    rules::touch(&mut record.attributes, view.time());
    set_attributes::conclude(view, handle, record, set_attributes::Grants::Stay)
}

/// Sets or removes an access control list. With a directory's list its access version grows, as with a chmod:
/// grants from before are good for no change.
fn set_list(
    view: &mut View,
    handle: Handle,
    mut record: NodeRecord,
    who: &Credentials,
    space: XattrSpace,
    change: &XattrChange,
) -> Decide<Body> {
    let attributes = &mut record.attributes;
    let is_directory = attributes.is_directory();
    if attributes.file_type == FileType::Symlink {
        return Err(Stop::Refuse(Code::Unsupported));
    }
    if !rules::owns(who, attributes) {
        return Err(Stop::Refuse(Code::NotPermitted));
    }
    let list = match change {
        XattrChange::Remove => None,
        XattrChange::Set { value, .. } => Acl::decode(value)?,
    };
    match (space, list) {
        (XattrSpace::AccessList, Some(list)) => {
            let (mode, named) = list.split(attributes.mode);
            rules::set_mode(attributes, who, mode)?;
            record.acls.access = named.map(Box::new);
        }
        // What the mask allowed to the group class stays, as on Linux.
        (XattrSpace::AccessList, None) => drop(record.acls.access.take().ok_or(Code::NoData)?),
        (_, Some(_)) if !is_directory => return Err(Stop::Refuse(Code::Access)),
        (_, Some(list)) => record.acls.default = Some(Box::new(list)),
        (_, None) => drop(record.acls.default.take().ok_or(Code::NoData)?),
    }
    if is_directory {
        view.end_delegation(handle.node)?;
    }
    rules::touch(&mut record.attributes, view.time());
    set_attributes::conclude(view, handle, record, set_attributes::Grants::Age)
}

fn shows(who: &Credentials, space: XattrSpace) -> bool {
    space != XattrSpace::Trusted || who.uid == Uid(0)
}

fn bears_user_attributes(record: &NodeRecord) -> bool {
    matches!(record.attributes.file_type, FileType::Regular | FileType::Directory)
}

fn check_read(record: &NodeRecord, who: &Credentials, space: XattrSpace) -> Result<(), Code> {
    match space {
        XattrSpace::Security | XattrSpace::AccessList | XattrSpace::DefaultList => Ok(()),
        XattrSpace::Trusted if shows(who, space) => Ok(()),
        XattrSpace::Trusted => Err(Code::NoData),
        XattrSpace::User if !bears_user_attributes(record) => Err(Code::NoData),
        XattrSpace::User if allows(record, who, Permission::READ) => Ok(()),
        XattrSpace::User => Err(Code::Access),
    }
}

/// What lets a program act as root. The kernel takes it away, in the writer's name, from a file that is
/// written to.
const CAPABILITY: &[u8] = b"security.capability";

fn check_write(
    record: &NodeRecord,
    who: &Credentials,
    name: &XattrName,
    change: &XattrChange,
) -> Result<(), Code> {
    let root = who.uid == Uid(0);
    let drops_privilege = *change == XattrChange::Remove && name.as_bytes() == CAPABILITY;
    if drops_privilege && allows(record, who, Permission::WRITE) {
        return Ok(());
    }
    if name.space() != XattrSpace::User {
        return if root { Ok(()) } else { Err(Code::NotPermitted) };
    }
    let attributes = &record.attributes;
    let sticky = attributes.is_directory() && attributes.mode.has(Mode::STICKY);
    if !bears_user_attributes(record) || sticky && !root && who.uid != attributes.uid {
        return Err(Code::NotPermitted);
    }
    if allows(record, who, Permission::WRITE) { Ok(()) } else { Err(Code::Access) }
}

fn allows(record: &NodeRecord, who: &Credentials, wish: Permission) -> bool {
    record.allows(who, wish)
}
