//! What calls on the wire mean to the oracle, and which bytes of files they concern.

use bearing_proto::client::{AttributeChange, Body, Call, CommitMode, XattrChange};
use bearing_types::{NodeId, XattrSpace};
use bearing_workload::{Mutation, Seen, View};
use std::iter;
use std::ops::Range;

/// The file that a change gives another length.
pub(super) fn cuts(mutation: &Mutation) -> Option<NodeId> {
    match mutation {
        Mutation::SetAttributes { node, change, .. } => change.size.map(|_| *node),
        Mutation::Truncate { node, .. } => Some(*node),
        Mutation::MakeHole { node, size_min, .. } => (*size_min > 0).then_some(*node),
        _ => None,
    }
}

/// The parts of a file whose bytes a change puts others in the place of, or none.
pub(super) fn replaces(mutation: &Mutation, node: NodeId) -> Vec<Range<u64>> {
    match mutation {
        Mutation::SetAttributes { node: of, change, .. } if *of == node => {
            change.size.map(|size| size..u64::MAX).into_iter().collect()
        }
        Mutation::Truncate { node: of, .. } if *of == node => iter::once(0..u64::MAX).collect(),
        Mutation::MakeHole { node: of, start, end, .. } if *of == node => iter::once(*start..*end).collect(),
        Mutation::Commit { node: of, pieces, mode: CommitMode::Put, .. } if *of == node => {
            pieces.iter().map(|piece| piece.offset..piece.offset + piece.bytes.len() as u64).collect()
        }
        _ => Vec::new(),
    }
}

/// What is left of a range.
pub(super) fn without(part: Range<u64>, taken: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = part.start..part.end.min(taken.start);
    let after = part.start.max(taken.end)..part.end;
    [before, after].into_iter().filter(|range| !range.is_empty())
}

/// What a commit tells: the client finds out from the size where its appended bytes went.
pub(super) fn seen_of(body: &Body) -> Seen {
    match body {
        Body::Node(view) => Seen::Node(View::of(view.node.node, &view.attributes)),
        _ => Seen::Done,
    }
}

/// What a call changes, as the oracle knows it.
pub(super) fn mutation_of(call: &Call) -> Option<Mutation> {
    let directory = |grant: &bearing_proto::grant::Grant| grant.body.seat.node;
    Some(match call.clone() {
        Call::Create { grant, who, name, new } => {
            Mutation::Create { directory: directory(&grant), name, who, new }
        }
        Call::MakeDirectory { grant, who, name, mode } => {
            Mutation::MakeDirectory { directory: directory(&grant), name, who, mode }
        }
        Call::Unlink { grant, who, name, .. } => Mutation::Unlink { directory: directory(&grant), name, who },
        Call::RemoveDirectory { grant, who, name, .. } => {
            Mutation::RemoveDirectory { directory: directory(&grant), name, who }
        }
        Call::Link { grant, who, name, node } => {
            Mutation::Link { node: node.node, directory: directory(&grant), name, who }
        }
        Call::Rename { source, source_name, target, target_name, who, mode, .. } => Mutation::Rename {
            source: directory(&source),
            source_name,
            target: directory(&target),
            target_name,
            who,
            mode,
        },
        Call::SetAttributes { node, who, change, token } => {
            Mutation::SetAttributes { node: node.node, who, change, through_file: token.is_some() }
        }
        Call::MakeHole { node, start, end, size_min, set_ids, .. } => {
            Mutation::MakeHole { node: node.node, start, end, size_min, set_ids }
        }
        Call::SetXattr { node, who, name, change } => {
            Mutation::SetXattr { node: node.node, who, name, change }
        }
        Call::Open { node, who, read, truncate: true, .. } => {
            Mutation::Truncate { node: node.node, who, read }
        }
        _ => return None,
    })
}

/// Whether two changes ask for the same thing. Through which file an attribute is set is seen only at the
/// wire.
pub(super) fn is_same(a: &Mutation, b: &Mutation) -> bool {
    match (a, b) {
        (
            Mutation::SetAttributes { node, who, change, .. },
            Mutation::SetAttributes { node: node_b, who: who_b, change: change_b, .. },
        ) => (node, who, change) == (node_b, who_b, change_b),
        // A list that says no more than permission bits is decided as these.
        (
            Mutation::SetXattr { node, who, name, change: XattrChange::Set { .. } },
            Mutation::SetAttributes { node: node_b, who: who_b, change, .. },
        ) => {
            let mode_only = AttributeChange { mode: change.mode, ..AttributeChange::default() };
            (node, who) == (node_b, who_b)
                && name.space() == XattrSpace::AccessList
                && change.mode.is_some()
                && *change == mode_only
        }
        _ => a == b,
    }
}
