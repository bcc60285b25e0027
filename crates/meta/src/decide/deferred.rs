//! Queued items, executed where they arrive. They cannot be refused.

use crate::decide::rules::namespace::{self, NewDirectory};
use crate::record::Key;
use crate::record::Record;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::ChunkRef;
use bearing_proto::peer::Work;
use bearing_types::Code;

/// Decides an item.
pub(crate) fn decide(view: &mut View, work: &Work) -> Decide<()> {
    match work {
        Work::MakeDirectory { seat, parent, name, access, acls, born, quota } => {
            view.require(seat.home)?;
            let made =
                NewDirectory { seat: *seat, parent: *parent, name, access: *access, acls, quota: *quota };
            namespace::make_directory_node(view, made, *born);
            Ok(())
        }
        Work::DropLink { node, open, changed } => {
            match namespace::drop_link_here(view, *node, open, *changed) {
                // Repeated after the node is gone: nothing is left to do.
                Err(Stop::Refuse(Code::Stale)) => Ok(()),
                other => other,
            }
        }
        Work::Touch { node, changed } => match namespace::touch_here(view, *node, *changed) {
            // Unlinked meanwhile.
            Err(Stop::Refuse(Code::Stale)) => Ok(()),
            other => other,
        },
        Work::ReleaseSpace { chunk, bytes } => release_space(view, *chunk, *bytes),
    }
}

/// So many bytes of a chunk are referred to by nobody.
pub(crate) fn release_space(view: &mut View, chunk: ChunkRef, bytes: u64) -> Decide<()> {
    let mut record = match view.chunk(chunk) {
        Ok(record) => record,
        Err(Stop::Refuse(Code::Stale)) => return Ok(()),
        Err(stop) => return Err(stop),
    };
    if record.doomed {
        return Ok(());
    }
    record.dead_bytes = record.dead_bytes.saturating_add(bytes);
    view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record)));
    Ok(())
}
