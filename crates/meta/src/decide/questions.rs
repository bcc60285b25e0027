//! Questions between tablets. Asking twice does no harm.

use crate::decide::maintenance;
use crate::decide::rules::{answers, quotas};
use crate::view::{Decide, View};
use bearing_proto::peer::{Question, Told};

/// Decides a question.
pub(crate) fn decide(view: &mut View, question: &Question) -> Decide<Told> {
    match question {
        Question::ListFragment { directory, block } => answers::list_fragment(view, *directory, *block),
        Question::Parent { directory } => answers::parent(view, *directory),
        Question::Fragment { directory } => answers::fragment(view, *directory),
        Question::Acls { directory, hash } => answers::acls(view, *directory, *hash),
        Question::Share { quota, tablet, used, wanted } => {
            quotas::lend(view, *quota, *tablet, *used, *wanted)
        }
        Question::Quota { quota } => quotas::show(view, *quota).map(Told::Quota),
        Question::Ids { count } => answers::ids(view, *count),
        Question::Session { session } => answers::session(view, *session),
        Question::Owner { node } => answers::owner(view, *node),
        Question::Join { chunk, user } => maintenance::answer_join(view, *chunk, *user),
        Question::Uses { chunk, nodes, from } => maintenance::answer_uses(view, *chunk, nodes, *from),
        Question::Move { from, to, moves } => maintenance::answer_move(view, *from, *to, moves),
    }
}
