//! Changes attributes of a node, at its home.

use crate::decide::ops::rights;
use crate::decide::participants;
use crate::decide::rules::extents;
use crate::decide::rules::namespace;
use crate::record::{NodeContent, NodeRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{AttributeChange, Body, Handle, LeaseKey, LeaseMs, TimeChange};
use bearing_proto::grant::OpenToken;
use bearing_proto::peer::Part;
use bearing_proto::rules;
use bearing_types::{Code, Credentials, FileType, Gid, Mode, Permission, SetIds, Uid, Wall};

/// The largest file, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

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
    let access_before = record.access();
    let owns = who.uid == Uid(0) || who.uid == record.attributes.uid;
    check_times(&record, who, owns, change)?;
    if let Some(mode) = change.mode {
        set_mode(&mut record, who, owns, mode)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        set_owner(&mut record, who, owns, change.uid, change.gid)?;
    }
    if let Some(size) = change.size {
        check_writable(&record, who, open)?;
        set_size(view, handle, &mut record, size)?;
        let attributes = &mut record.attributes;
        attributes.mode = SetIds::by(who).applied(attributes.mode, attributes.gid);
    }
    let now = view.time();
    let changed = record.attributes.changed;
    set_time(&mut record.attributes.accessed, change.accessed, now, changed);
    set_time(&mut record.attributes.modified, change.modified, now, changed);
    if let (Some(_), NodeContent::Directory(directory)) = (change.modified, &mut record.content) {
        directory.modified_set = now;
    }
    rules::touch(&mut record.attributes, now);
    let grants = if record.access() == access_before { Grants::Stay } else { Grants::Age };
    conclude(view, handle, record, grants)
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

/// Whoever changes entries of a directory shows a grant with its mode, owner and group. With these the grant's version changes, here and in every
/// fragment at once: so no change is decided by what was true before, be its request delayed, copied, or left behind by a client that died.
fn age_grants(view: &mut View, handle: Handle, record: &mut NodeRecord) -> Decide<()> {
    let quota = record.quota;
    let NodeContent::Directory(directory) = &mut record.content else { return Ok(()) };
    directory.access_version = directory.access_version.next();
    for block in &directory.fragments {
        let part = Part::AgeGrants { node: handle.node, access_version: directory.access_version, quota };
        participants::part(view, block.start(), part)?;
    }
    view.changes(LeaseKey::Access(handle.node));
    Ok(())
}

// utimensat(2): anybody who may write may set both times to now; other times only the owner.
fn check_times(
    record: &NodeRecord,
    who: &Credentials,
    owns: bool,
    change: &AttributeChange,
) -> Result<(), Code> {
    let times = [change.accessed, change.modified];
    if owns || times == [None, None] {
        return Ok(());
    }
    if times.iter().flatten().any(|time| *time != TimeChange::Now) {
        return Err(Code::NotPermitted);
    }
    // A truncate sets the modification time along with the size, which has its own check.
    let writes = record.allows(who, Permission::WRITE);
    if writes || change.size.is_some() { Ok(()) } else { Err(Code::Access) }
}

fn set_mode(record: &mut NodeRecord, who: &Credentials, owns: bool, mode: Mode) -> Result<(), Code> {
    if !owns {
        return Err(Code::NotPermitted);
    }
    let foreign_group = who.uid != Uid(0) && !who.in_group(record.attributes.gid);
    record.attributes.mode = if foreign_group { mode.without(Mode::SETGID) } else { mode };
    Ok(())
}

fn set_owner(
    record: &mut NodeRecord,
    who: &Credentials,
    owns: bool,
    uid: Option<Uid>,
    gid: Option<Gid>,
) -> Result<(), Code> {
    let attributes = &mut record.attributes;
    let (uid, gid) = (uid.unwrap_or(attributes.uid), gid.unwrap_or(attributes.gid));
    let root = who.uid == Uid(0);
    let allowed = root || (owns && uid == attributes.uid && (gid == attributes.gid || who.in_group(gid)));
    if !allowed {
        return Err(Code::NotPermitted);
    }
    (attributes.uid, attributes.gid) = (uid, gid);
    // chown(2): whoever asks, root too, as Linux does it. Set-group-id where the group may not execute is no such right, and stays.
    if attributes.file_type != FileType::Directory {
        let group_executes = attributes.mode.has(0o010);
        let rights = if group_executes { Mode::SETUID | Mode::SETGID } else { Mode::SETUID };
        attributes.mode = attributes.mode.without(rights);
    }
    Ok(())
}

fn check_writable(record: &NodeRecord, who: &Credentials, open: bool) -> Decide<()> {
    match record.content {
        NodeContent::File => {}
        NodeContent::Directory(_) => return Err(Stop::Refuse(Code::IsDirectory)),
        NodeContent::Symlink(_) | NodeContent::Special => return Err(Stop::Refuse(Code::InvalidArgument)),
    }
    if open || record.allows(who, Permission::WRITE) {
        return Ok(());
    }
    Err(Stop::Refuse(Code::Access))
}

/// Cuts or lengthens a file. What is cut off is let go; what is added is a hole.
pub(super) fn set_size(view: &mut View, handle: Handle, record: &mut NodeRecord, size: u64) -> Decide<()> {
    if size > FILE_BYTES_MAX {
        return Err(Stop::Refuse(Code::TooLarge));
    }
    if size < record.attributes.size {
        let freed = extents::cut(view, handle.node, size)?;
        record.attributes.space = record.attributes.space.saturating_sub(freed);
    }
    record.attributes.size = size;
    record.attributes.modified = record.attributes.modified.max(view.time());
    Ok(())
}

fn set_time(time: &mut Wall, change: Option<TimeChange>, now: Wall, changed: Wall) {
    match change {
        None => {}
        // As the node tells time: never before its last change, whatever this server's clock says.
        Some(TimeChange::Now) => *time = now.max(changed),
        Some(TimeChange::To(to)) => *time = to,
    }
}
