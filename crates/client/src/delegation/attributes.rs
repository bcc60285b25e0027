//! Attributes of directories of ours, and access control lists that say no more than permission bits: setting such a one is a chmod. That is what
//! `cp -a`, `rsync -A` and `tar` do to each file and directory that they make.

use super::decide::Local;
use crate::context::State;
use crate::operation::Found;
use bearing_proto::client::{AttributeChange, LeaseKey, TimeChange, XattrChange};
use bearing_proto::delegation::Change;
use bearing_proto::rules::touch;
use bearing_types::{
    Access, Acl, Attributes, Code, Credentials, FileType, Mode, NodeId, Uid, Wall, XattrName, XattrSpace,
};

impl State {
    /// Changes attributes of a directory of ours, as its owner or root may. Nobody else reads them, or looks into it, without calling it back.
    pub(crate) fn set_directory_here(
        &mut self,
        directory: NodeId,
        who: &Credentials,
        change: &AttributeChange,
    ) -> Local<Found> {
        let tablet = self.image(directory).tablet;
        let now = self.delegations.now(tablet, self.io.now.mono);
        let image = self.image(directory);
        let before = image.body.access;
        let owns = who.uid == Uid(0) || who.uid == before.uid;
        let Some(access) = changed_access(before, who, change).filter(|_| owns) else {
            return Local::Outside;
        };
        // Entries that come later are counted from when it is set.
        let later = matches!(change.modified, Some(TimeChange::To(to)) if to > now);
        if later || change.size.is_some() {
            return Local::Outside;
        }
        image.body.access = access;
        let attributes = &mut image.attributes;
        (attributes.mode, attributes.uid, attributes.gid) = (access.mode, access.uid, access.gid);
        set_times(attributes, change, now);
        touch(attributes, now);
        let handle = image.handle;
        self.drop_leases(&[LeaseKey::Access(directory), LeaseKey::Content(directory)]);
        let (who, change) = (who.clone(), *change);
        self.queue_step(tablet, Change::SetAttributes { node: handle, who, change });
        match self.local_directory(directory) {
            Some(seen) => {
                let seen = self.directory_seen(&seen);
                Local::Done(Ok(self.found(&seen, None)))
            }
            None => Local::Outside,
        }
    }

    /// The same by an access control list.
    pub(crate) fn set_list_of_directory_here(
        &mut self,
        directory: NodeId,
        who: &Credentials,
        name: &XattrName,
        change: &XattrChange,
    ) -> Local<()> {
        let image = self.image(directory);
        let Some(change) = as_mode(&image.attributes, image.extended, who, name, change) else {
            return Local::Outside;
        };
        match change {
            Ok(change) => self.set_directory_here(directory, who, &change).map(drop),
            Err(code) => Local::Done(Err(code)),
        }
    }

    /// The same of a node that is no directory.
    pub(crate) fn set_list_here(
        &mut self,
        node: NodeId,
        who: &Credentials,
        name: &XattrName,
        change: &XattrChange,
    ) -> Local<()> {
        let ours =
            self.our_node(node).and_then(|seen| as_mode(&seen.attributes, seen.extended, who, name, change));
        match ours {
            Some(Ok(change)) => self.set_attributes_here(node, who, &change).map(drop),
            Some(Err(code)) => Local::Done(Err(code)),
            None => Local::Outside,
        }
    }
}

/// Mode, owner and group after a change, if who asks may make it.
fn changed_access(before: Access, who: &Credentials, change: &AttributeChange) -> Option<Access> {
    let root = who.uid == Uid(0);
    let (uid, gid) = (change.uid.unwrap_or(before.uid), change.gid.unwrap_or(before.gid));
    let may = root || uid == before.uid && (gid == before.gid || who.in_group(gid));
    let foreign_group = !root && !who.in_group(before.gid);
    let mode = match change.mode {
        Some(mode) if foreign_group => mode.without(Mode::SETGID),
        Some(mode) => mode,
        None => before.mode,
    };
    may.then_some(Access { mode, uid, gid })
}

fn set_times(attributes: &mut Attributes, change: &AttributeChange, now: Wall) {
    let now = now.max(attributes.changed);
    let wishes = [(&mut attributes.accessed, change.accessed), (&mut attributes.modified, change.modified)];
    for (time, wish) in wishes {
        match wish {
            None => {}
            Some(TimeChange::Now) => *time = now,
            Some(TimeChange::To(to)) => *time = to,
        }
    }
}

/// What setting or removing an access control list comes to where there is none. `None`: its home has to say.
fn as_mode(
    attributes: &Attributes,
    extended: bool,
    who: &Credentials,
    name: &XattrName,
    change: &XattrChange,
) -> Option<Result<AttributeChange, Code>> {
    if extended || attributes.file_type == FileType::Symlink {
        return None;
    }
    let owns = who.uid == Uid(0) || who.uid == attributes.uid;
    match (name.space(), change) {
        (XattrSpace::AccessList | XattrSpace::DefaultList, XattrChange::Remove) => {
            Some(Err(if owns { Code::NoData } else { Code::NotPermitted }))
        }
        (XattrSpace::AccessList, XattrChange::Set { value, .. }) => {
            let (mode, named) = Acl::decode(value).ok()??.split(attributes.mode);
            let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            named.is_none().then_some(Ok(change))
        }
        _ => None,
    }
}
