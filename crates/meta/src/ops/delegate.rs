//! Lends a directory to its only writer. Everything that others hold of its content is recalled before; while it is lent, whoever else looks into it has it
//! called back first (`delegations.rs`).

use crate::key::Key;
use crate::namespace;
use crate::ops::list;
use crate::record::{Holder, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey, LeaseMs};
use bearing_proto::delegation::DelegationView;
use bearing_types::Code;

pub(super) fn decide(view: &mut View, handle: Handle, incarnation: u64) -> Decide<Body> {
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    let record = view.node_at(handle)?;
    let directory = record.directory()?;
    let elsewhere = directory.fragments.iter().any(|block| !view.tablet.covers(*block));
    let held = view.delegations.get(&handle.node).is_some_and(|holder| holder.session != session);
    // Two who take turns get nothing: it would come and go with every change.
    let resting = !view.leases.may_delegate(handle.node, session, view.now.mono);
    // Who holds it decides alone, and knows permission bits only.
    let listed = !record.acls.is_empty();
    if elsewhere || held || resting || listed || !view.tablet.covers(directory.seat.name_block) {
        return Err(Stop::Refuse(Code::Unsupported));
    }
    let entries = list::all(view, handle.node, view.config.delegated_entries_max)?;
    let entries = entries.ok_or(Stop::Refuse(Code::Unsupported))?;
    let ids = view.lend_ids(session)?;
    view.put(Key::Delegation(handle.node), Record::Delegation(Holder { session, incarnation }));
    view.changes(LeaseKey::Content(handle.node));
    let shown = namespace::directory_view(view, handle.node, &record)?;
    Ok(Body::Delegation(Box::new(DelegationView {
        view: shown,
        entries,
        lease: life(view),
        ids,
        now: view.now.wall,
    })))
}

/// How long delegations may be used from now.
pub(super) fn life(view: &View) -> LeaseMs {
    LeaseMs(view.config.delegation_life.as_millis() as u32)
}
