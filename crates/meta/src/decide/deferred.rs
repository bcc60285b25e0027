//! Queued items, executed where they arrive. They cannot be refused.

use crate::decide::rules::extents;
use crate::decide::rules::namespace::{self, NewDirectory};
use crate::view::{Decide, Stop, View};
use bearing_proto::peer::Deferred;
use bearing_types::Code;

/// Decides an item.
pub(crate) fn decide(view: &mut View, work: &Deferred) -> Decide<()> {
    match work {
        Deferred::MakeDirectory { seat, parent, name, access, acls, born, quota } => {
            view.require(seat.home)?;
            let made =
                NewDirectory { seat: *seat, parent: *parent, name, access: *access, acls, quota: *quota };
            namespace::make_directory_node(view, made, *born);
            Ok(())
        }
        Deferred::DropLink { node, open, changed } => {
            match namespace::drop_link_here(view, *node, open, *changed) {
                // Repeated after the node is gone: nothing is left to do.
                Err(Stop::Refuse(Code::Stale)) => Ok(()),
                other => other,
            }
        }
        Deferred::Touch { node, changed } => match namespace::touch_here(view, *node, *changed) {
            // Unlinked meanwhile.
            Err(Stop::Refuse(Code::Stale)) => Ok(()),
            other => other,
        },
        Deferred::ReleaseSpace { chunk, bytes } => extents::release_space(view, *chunk, *bytes),
    }
}
