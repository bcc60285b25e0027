//! Rename: takes a name away from a directory.

use crate::decide::rules::namespace;
use crate::record::Key;
use crate::view::{Decide, View};
use bearing_proto::client::LeaseKey;
use bearing_proto::peer::{Promise, Remover};
use bearing_types::{FileType, Name, NameHash, NodeId, Version};

pub(super) fn decide(
    view: &mut View,
    directory: NodeId,
    hash: NameHash,
    name: &Name,
    remover: &Remover,
    access_version: Version,
) -> Decide<Promise> {
    let slot = namespace::find_existing(view, directory, hash, name)?;
    namespace::check_sticky(view, remover, slot.entry.node)?;
    let fragment = namespace::fragment_with_entries(view, directory, access_version)?;
    view.lock(slot.key)?;
    view.lock(Key::Fragment(directory))?;
    namespace::remove(view, &slot);
    let is_directory = i32::from(slot.entry.file_type == FileType::Directory);
    namespace::count(view, directory, fragment, -1, -is_directory);
    view.changes(LeaseKey::Name(directory, hash));
    Ok(Promise::Taken { node: slot.entry.node, file_type: slot.entry.file_type })
}
