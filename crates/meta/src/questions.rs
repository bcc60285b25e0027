//! Questions between tablets. Asking twice does no harm.

use crate::key::Key;
use crate::namespace;
use crate::quotas;
use crate::record::{NodeContent, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::Handle;
use bearing_proto::peer::{FragmentStat, Question, SessionLife, Told};
use bearing_types::{Block, Code, NodeId, SessionId, Wall};

/// The first id that the common counter gives out: 1 is the root.
const FIRST_ID: NodeId = NodeId(2);

/// Decides a question.
pub(crate) fn decide(view: &mut View, question: &Question) -> Decide<Told> {
    match question {
        Question::ListFragment { directory, block } => list_fragment(view, *directory, *block),
        Question::Parent { directory } => {
            let parent = view.node_at(*directory)?.directory()?.parent;
            Ok(Told::Parent(parent))
        }
        Question::Fragment { directory } => {
            let fragment = view.fragment(*directory)?.map(namespace::stat_of);
            Ok(Told::Fragment(fragment.unwrap_or(FragmentStat {
                entries: 0,
                directories: 0,
                modified: Wall(i64::MIN),
            })))
        }
        Question::Acls { directory, hash } => {
            let record = match view.node_at(*directory) {
                Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
                other => other?,
            };
            // Of a grant from before or, with a tablet that moved, from after: a new one says what counts now.
            let same = record.acls.hash() == *hash;
            if same {
                Ok(Told::Acls(Box::new(record.acls)))
            } else {
                Err(Stop::Refuse(Code::Unauthenticated))
            }
        }
        Question::Share { quota, tablet, used, wanted } => {
            quotas::lend(view, *quota, *tablet, *used, *wanted)
        }
        Question::Quota { quota } => quotas::show(view, *quota).map(Told::Quota),
        Question::Ids { count } => take_ids(view, *count),
        Question::Session { session } => session_alive(view, *session),
        Question::Owner { node } => {
            let record = view.node_at(*node)?;
            Ok(Told::Owner { uid: record.attributes.uid, gid: record.attributes.gid })
        }
        Question::Join { chunk, user } => crate::tend::answer_join(view, *chunk, *user),
        Question::Uses { chunk, nodes, from } => crate::tend::answer_uses(view, *chunk, nodes, *from),
        Question::Move { from, to, moves } => crate::tend::answer_move(view, *from, *to, moves),
    }
}

/// A tablet is about to take the first name of a directory: from now on the directory's removal must ask that tablet too.
fn list_fragment(view: &mut View, directory: Handle, block: Block) -> Decide<Told> {
    let mut record = match view.node_at(directory) {
        // The directory was removed: for whoever wants to create in it, it does not exist.
        Err(Stop::Refuse(Code::Stale)) => return Err(Stop::Refuse(Code::NotFound)),
        other => other?,
    };
    let NodeContent::Directory(content) = &mut record.content else {
        return Err(Stop::Refuse(Code::NotDirectory));
    };
    let access_version = content.access_version;
    if !content.fragments.iter().any(|listed| listed.covers(block)) {
        content.fragments.push(block);
        view.put_node(directory.node, record);
    }
    Ok(Told::Listed { access_version })
}

fn take_ids(view: &mut View, count: u32) -> Decide<Told> {
    let first = view.get_as(Key::NextId, Record::into_next_id)?.unwrap_or(FIRST_ID);
    view.put(Key::NextId, Record::NextId(NodeId(first.0 + u64::from(count))));
    Ok(Told::Ids { first, count })
}

fn session_alive(view: &mut View, session: SessionId) -> Decide<Told> {
    let alive = view.get(Key::Session(session))?.is_some() && view.get(Key::Ended(session))?.is_none();
    let life = match alive {
        true => SessionLife::Lives,
        false if view.closed.contains(&session) => SessionLife::Closed,
        false => SessionLife::Over,
    };
    Ok(Told::Session(life))
}
