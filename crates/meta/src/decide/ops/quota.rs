//! Quotas of directories: set by root, shown to anybody who asks.

use super::set_attributes::{self, Grants};
use crate::decide::rules::quotas;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle};
use bearing_proto::peer::{Question, Told};
use bearing_proto::rules;
use bearing_types::{Amount, Code, Credentials, Uid};

/// Sets a limit. A directory gets its first one while it is empty: what is in it afterwards knows by whom it
/// is counted.
pub(super) fn set(view: &mut View, handle: Handle, who: &Credentials, limit: Amount) -> Decide<Body> {
    if who.uid != Uid(0) {
        return Err(Stop::Refuse(Code::NotPermitted));
    }
    let mut record = view.node_at(handle)?;
    record.directory()?;
    if record.quota == Some(handle) {
        quotas::limit(view, handle, limit)?;
        return set_attributes::conclude(view, handle, record, Grants::Stay);
    }
    view.end_delegation(handle.node)?;
    if let NodeContent::Directory(_) = record.content {
        let (attributes, _) =
            crate::decide::rules::namespace::directory_attributes(view, handle.node, &record)?;
        if attributes.size > 0 {
            return Err(Stop::Refuse(Code::NotEmpty));
        }
    }
    record.quota = Some(handle);
    rules::touch(&mut record.attributes, view.time());
    quotas::limit(view, handle, limit)?;
    set_attributes::conclude(view, handle, record, Grants::Age)
}

/// The quota that counts a node.
pub(super) fn show(view: &mut View, handle: Handle) -> Decide<Body> {
    let record = view.node_at(handle)?;
    let Some(quota) = record.quota else { return Ok(Body::Quota(None)) };
    match view
        .ask(quota.home, Question::Quota { quota }, |view| quotas::show(view, quota).map(Told::Quota))?
    {
        Told::Quota(shown) => Ok(Body::Quota(Some(shown))),
        _ => Err(Stop::Later),
    }
}
