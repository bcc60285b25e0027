//! Extended attributes: read, listed, set. Linux's rules of who may (xattr(7)): `user` needs the permission bits of a file or directory, and in a
//! sticky directory to own it; `trusted` is for root alone; `security` is set by root and read by all.

use super::set_attributes;
use crate::record::NodeRecord;
use crate::view::{Decide, View};
use crate::xattrs;
use bearing_proto::client::{Body, Handle, XattrChange};
use bearing_types::{Code, Credentials, FileType, Mode, Permission, Uid, XattrName, XattrSpace, xattr_list};

pub(super) fn get(view: &mut View, handle: Handle, who: &Credentials, name: &XattrName) -> Decide<Body> {
    let record = view.node_at(handle)?;
    check_read(&record, who, name.space())?;
    Ok(Body::Xattr(xattrs::value(view, handle.node, &record, name)?))
}

pub(super) fn list(view: &mut View, handle: Handle, who: &Credentials) -> Decide<Body> {
    let record = view.node_at(handle)?;
    let names = xattrs::names(view, handle.node, &record)?;
    let known = names.iter().map(|(name, _)| name).filter(|name| shows(who, name.space()));
    Ok(Body::Xattr(xattr_list(known)))
}

pub(super) fn set(
    view: &mut View,
    handle: Handle,
    who: &Credentials,
    name: &XattrName,
    change: &XattrChange,
) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    check_write(&record, who, name, change)?;
    xattrs::change(view, handle.node, &mut record, name, change)?;
    record.touch(view.time());
    set_attributes::conclude(view, handle, record, set_attributes::Grants::Stay)
}

fn shows(who: &Credentials, space: XattrSpace) -> bool {
    space != XattrSpace::Trusted || who.uid == Uid(0)
}

fn bears_user_attributes(record: &NodeRecord) -> bool {
    matches!(record.attributes.file_type, FileType::Regular | FileType::Directory)
}

fn check_read(record: &NodeRecord, who: &Credentials, space: XattrSpace) -> Result<(), Code> {
    match space {
        XattrSpace::Security => Ok(()),
        XattrSpace::Trusted if shows(who, space) => Ok(()),
        XattrSpace::Trusted => Err(Code::NoData),
        XattrSpace::User if !bears_user_attributes(record) => Err(Code::NoData),
        XattrSpace::User if allows(record, who, Permission::READ) => Ok(()),
        XattrSpace::User => Err(Code::Access),
    }
}

/// What lets a program act as root. The kernel takes it away, in the writer's name, from a file that is written to.
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
    record.access().allows(who, wish, record.attributes.file_type)
}
