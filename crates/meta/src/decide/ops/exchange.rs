//! Lets two names change places, whatever kind of node they lead to. Like a rename, but nothing is replaced
//! and nothing is left empty.

use super::rename::{End, Known, check_move, set_parent};
use crate::decide::participants;
use crate::decide::rules::namespace;
use crate::record::NameEntry;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle};
use bearing_proto::peer::{Part, Promise, Remover};
use bearing_types::{Code, Credentials, FileType};

pub(super) fn exchange(view: &mut View, from: End, to: End, who: &Credentials, known: Known) -> Decide<Body> {
    let (directory, hash) = (to.directory(), to.hash());
    let slot = namespace::find_existing(view, directory.node, hash, to.name)?;
    let other = slot.entry.clone();
    namespace::check_known(&other, known.replaced.ok_or(Code::Stale)?)?;
    let (node, file_type) = swap_source(view, from, &other, who)?;
    if node.node != known.moved {
        return Err(Stop::Refuse(Code::Stale));
    }
    if node == other.node {
        // One name, or two of one node: as with rename, nothing happens.
        view.nothing_to_do();
        return Ok(Body::Done);
    }
    namespace::check_sticky(view, &Remover::of(to.grant.access, who.uid), other.node)?;
    let moves = [(node, file_type, from, to), (other.node, other.file_type, to, from)];
    // Both before either gets its parent: a node that is prepared answers no questions.
    for (node, file_type, from, to) in moves {
        if file_type == FileType::Directory {
            check_move(view, node, from.directory(), to.directory())?;
        }
    }
    for (node, file_type, _, to) in moves {
        if file_type == FileType::Directory {
            set_parent(view, node, to, who)?;
        } else {
            namespace::touch(view, node)?;
        }
    }
    let entry = NameEntry { name: to.name.clone(), node, file_type };
    namespace::swap(view, directory.node, hash, &slot, entry, to.grant.access_version)?;
    Ok(Body::Done)
}

/// Lets the source lead to what the target leads to.
fn swap_source(
    view: &mut View,
    from: End,
    other: &NameEntry,
    who: &Credentials,
) -> Decide<(Handle, FileType)> {
    let part = Part::SwapName {
        directory: from.directory().node,
        hash: from.hash(),
        name: from.name.clone(),
        node: other.node,
        file_type: other.file_type,
        remover: Remover::of(from.grant.access, who.uid),
        access_version: from.grant.access_version,
        changed: view.time(),
    };
    match participants::part(view, from.position(), part)? {
        Promise::Taken { node, file_type } => Ok((node, file_type)),
        _ => Err(Stop::Refuse(Code::Io)),
    }
}
