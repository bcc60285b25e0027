//! Parts of transactions, one file each. A part reads, locks what its promise rests on, and writes what
//! commit shall change. In the coordinator's own tablet it joins the decision directly; elsewhere its writes
//! wait in a prepare record.

mod add_link;
mod age_grants;
mod kill_fragment;
mod kill_node;
mod move_token;
mod set_parent;
mod swap_name;
mod take_name;

use crate::record::NameEntry;
use crate::view::{Decide, View};
use bearing_proto::peer::{Part, Promise};
use bearing_types::Position;

/// Has a part prepared where `position` lies; here it joins the decision.
pub(crate) fn part(view: &mut View, position: Position, part: Part) -> Decide<Promise> {
    if view.tablet.contains(position) { decide(view, &part) } else { view.part_elsewhere(position, part) }
}

/// Decides a part.
pub(crate) fn decide(view: &mut View, part: &Part) -> Decide<Promise> {
    match part {
        Part::TakeName { directory, hash, name, remover, access_version, changed: _ } => {
            take_name::decide(view, *directory, *hash, name, remover, *access_version)
        }
        Part::SetParent { node, parent, name, who, changed } => {
            set_parent::decide(view, *node, *parent, name, who, *changed)
        }
        Part::MoveToken => move_token::decide(view),
        Part::AddLink { node, changed, quota } => add_link::decide(view, *node, *changed, *quota),
        Part::KillNode { node } => kill_node::decide(view, *node),
        Part::KillFragment { node } => kill_fragment::decide(view, *node),
        Part::SwapName { directory, hash, name, node, file_type, remover, access_version, changed: _ } => {
            let entry = NameEntry { name: name.clone(), node: *node, file_type: *file_type };
            swap_name::decide(view, *directory, *hash, entry, remover, *access_version)
        }
        Part::AgeGrants { node, name_block, access_version, quota } => {
            age_grants::decide(view, *node, *name_block, *access_version, *quota)
        }
    }
}
