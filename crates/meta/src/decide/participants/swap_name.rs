//! Exchange of two names: lets a name that exists lead elsewhere, and tells where it led.

use crate::decide::rules::namespace;
use crate::record::{Key, NameEntry};
use crate::view::{Decide, View};
use bearing_proto::peer::{Promise, Remover};
use bearing_types::{NameHash, NodeId, Version};

pub(super) fn decide(
    view: &mut View,
    directory: NodeId,
    hash: NameHash,
    entry: NameEntry,
    remover: &Remover,
    access_version: Version,
) -> Decide<Promise> {
    let slot = namespace::find_existing(view, directory, hash, &entry.name)?;
    namespace::check_sticky(view, remover, slot.entry.node)?;
    view.lock(slot.key)?;
    view.lock(Key::Fragment(directory))?;
    let taken = Promise::Taken { node: slot.entry.node, file_type: slot.entry.file_type };
    namespace::swap(view, directory, hash, &slot, entry, access_version)?;
    view.lease_moved(directory, hash);
    Ok(taken)
}
