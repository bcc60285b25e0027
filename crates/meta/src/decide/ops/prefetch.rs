//! Names of a directory for lookups to come, with leases. Names are leased all together, so that they take
//! one entry in the table, and one recall; attributes of files one by one, because who changes a file does
//! not know its names. Nobody gets a right to open by this: most of it will not be used, and who may have a
//! file open has to be asked later.

use crate::decide::ops::list;
use crate::record::{NameEntry, NodeRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, EntryView, LeaseKey, LeaseMs, NodeView};
use bearing_proto::grant::Grant;
use bearing_types::{Code, Cookie, Credentials, Name, NodeId, Permission};

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    after: Cookie,
    count_max: u32,
) -> Decide<Body> {
    let seat = list::admit(view, grant, who, Permission::LIST_AND_SEARCH, after, count_max)?;
    // A guess takes a directory from nobody; and who has it itself knows it better.
    if view.delegations.holder(seat.node).is_some() {
        return Err(Stop::Refuse(Code::Unsupported));
    }
    let lease = view.prefetch_lease_ttl(LeaseKey::Names(seat.node));
    if lease == LeaseMs(0) {
        return Ok(Body::Prefetched { entries: Vec::new(), next: None });
    }
    let (named, next) = list::page(view, seat, after, count_max)?;
    list::prefetch_nodes(view, &named)?;
    let entries = named.into_iter().map(|(_, entry)| shown(view, entry, lease)).collect();
    Ok(Body::Prefetched { entries, next })
}

fn shown(view: &mut View, entry: NameEntry, lease: LeaseMs) -> (Name, EntryView) {
    // A node under prepare, or lent with another directory, is simply not at hand.
    let here = list::has_attributes_here(view, &entry);
    let record = if here { view.node_at(entry.node).ok() } else { None };
    let NameEntry { name, node, file_type } = entry;
    let attributes = record.map(|record| node_view(view, node.node, &record));
    (name, EntryView { node, file_type, lease, attributes, directory: None })
}

fn node_view(view: &mut View, node: NodeId, record: &NodeRecord) -> NodeView {
    let lease = view.prefetch_lease_ttl(LeaseKey::File(node));
    let (attributes, extended) = (record.attributes, record.is_extended());
    NodeView { node: record.handle(node), attributes, lease, may_open: false, extended }
}
