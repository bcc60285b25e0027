//! Questions between tablets. Asking twice does no harm.

use crate::view::{Decide, View};
use crate::{answers, quotas, tend};
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
        Question::Join { chunk, user } => tend::answer_join(view, *chunk, *user),
        Question::Uses { chunk, nodes, from } => tend::answer_uses(view, *chunk, nodes, *from),
        Question::Move { from, to, moves } => tend::answer_move(view, *from, *to, moves),
    }
}
