//! Which tablets' files may refer to a chunk.
//!
//! Before a tablet takes the first extent in a chunk, it *joins*: the chunk's record lists it, then the
//! tablet keeps a mark of its own beside the extent. So the chunk's owner knows whom to ask before it removes
//! anything, and whoever has not joined cannot refer to a chunk that is closed or gone, however late its
//! writer comes and whatever its clock says: nothing of what it may still get appended somewhere becomes part
//! of a file.

use crate::decide::maintenance::seal::keep;
use crate::record::{Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{ChunkRef, Extent};
use bearing_proto::peer::{Question, Told};
use bearing_types::{Code, Position};
use std::collections::BTreeSet;

/// Makes sure that files of this tablet may take extents in these chunks; `NotFound` if in one they may not:
/// then its bytes have to be appended elsewhere.
pub(crate) fn join(view: &mut View, written: &[Extent]) -> Decide<()> {
    join_all(view, written.iter().map(|extent| extent.chunk).collect())
}

/// The same of these chunks.
pub(super) fn join_all(view: &mut View, chunks: BTreeSet<ChunkRef>) -> Decide<()> {
    let marks = chunks.iter().flat_map(|chunk| [Key::Closed(chunk.chunk), Key::Joined(chunk.chunk)]);
    let marks: Vec<Key> = marks.collect();
    view.prefetch(&marks)?;
    let mut missing = false;
    for chunk in chunks {
        if view.get(Key::Closed(chunk.chunk))?.is_some() {
            return Err(Stop::Refuse(Code::NotFound));
        }
        if view.get(Key::Joined(chunk.chunk))?.is_some() {
            continue;
        }
        let user = view.tablet.start();
        match view.ask(chunk.position, Question::Join { chunk, user }, |view| answer(view, chunk, user)) {
            Ok(Told::Joined { chunk: joined }) if joined == chunk.chunk => {
                let mark = Record::Mark(view.time());
                view.put(Key::Joined(chunk.chunk), mark);
            }
            Ok(_) => return Err(Stop::Later),
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing { Err(Stop::Need) } else { Ok(()) }
}

/// The answer of the chunk's owner.
pub(crate) fn answer(view: &mut View, chunk: ChunkRef, user: Position) -> Decide<Told> {
    let mut record = match view.chunk(chunk) {
        Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
        other => other?,
    };
    // Of a compaction target this answer says that it is made.
    if record.closed || record.deleting || record.is_in_the_making() {
        return Err(Stop::Refuse(Code::NotFound));
    }
    if !record.users.contains(&user) {
        record.users.push(user);
        keep(view, chunk.chunk, record);
    }
    Ok(Told::Joined { chunk: chunk.chunk })
}
