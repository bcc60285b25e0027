//! Attributes of directories of ours, and access control lists that say no more than permission bits: setting
//! such a one is a chmod. That is what `cp -a`, `rsync -A` and `tar` do to each file and directory that they
//! make.

use super::decide::Local;
use crate::context::State;
use crate::operation::Found;
use bearing_proto::client::{AttributeChange, LeaseKey, TimeChange, XattrChange};
use bearing_proto::delegation::Change;
use bearing_proto::rules::{self, Changer};
use bearing_types::{Acl, Attributes, Code, Credentials, FileType, NodeId, XattrName, XattrSpace};

impl State {
    /// Changes attributes of a directory of ours, as its owner or root may. Nobody else reads them, or looks
    /// into it, without calling it back.
    pub(crate) fn set_directory_here(
        &mut self,
        directory: NodeId,
        who: &Credentials,
        change: &AttributeChange,
    ) -> Local<Found> {
        let tablet = self.image(directory).tablet;
        let now = self.delegations.now(tablet, self.io.now.mono);
        let image = self.image(directory);
        // Entries that come later are counted from when it is set.
        let later = matches!(change.modified, Some(TimeChange::To(to)) if to > now);
        if !rules::owns(who, &image.attributes) || later || change.size.is_some() {
            return Local::Outside;
        }
        let changer = Changer { who, list: None, has_open: false };
        let Ok(attributes) = rules::changed(&image.attributes, changer, change, now) else {
            return Local::Outside;
        };
        (image.attributes, image.body.access) = (attributes, attributes.access());
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
    match (name.space(), change) {
        (XattrSpace::AccessList | XattrSpace::DefaultList, XattrChange::Remove) => {
            Some(Err(if rules::owns(who, attributes) { Code::NoData } else { Code::NotPermitted }))
        }
        (XattrSpace::AccessList, XattrChange::Set { value, .. }) => {
            let (mode, named) = Acl::decode(value).ok()??.split(attributes.mode);
            let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            named.is_none().then_some(Ok(change))
        }
        _ => None,
    }
}
