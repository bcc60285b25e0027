//! Directories that are delegated, and whoever looks into them.

use super::{BOB, Cluster, name, position, root_user};
use bearing_meta::Event;
use bearing_proto::client::{Answer, Body, Call, Handle, Recalled};
use bearing_proto::delegation::{DelegationView, LentIds, Step};
use bearing_types::{Code, NodeId, Sequence, SessionId};

pub fn delegate(cluster: &mut Cluster, session: SessionId, directory: Handle) -> DelegationView {
    match cluster
        .call(
            session,
            directory.home,
            Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
        )
        .unwrap()
    {
        Body::Delegation(view) => *view,
        other => panic!("{other:?}"),
    }
}

/// Steps of what was lent under incarnation 1.
pub fn delegated(steps: Vec<Step>, ids: LentIds, returned: Vec<NodeId>) -> Call {
    let (ids, ids_wanted, open) = (vec![ids], 0, Vec::new());
    let (names_kept, incarnation, over) = (false, 1, false);
    Call::Delegated { steps, ids, ids_wanted, returned, open, names_kept, incarnation, over }
}

/// Bob looks a name up in the directory, once.
pub fn look(cluster: &mut Cluster, directory: Handle, text: &str) -> Option<Answer> {
    let grant = match cluster.answer_of(BOB, directory.home, Call::Directory { directory }) {
        Some(Answer::Done { result: Ok(body), .. }) => match *body {
            Body::Directory(view) => view.grant,
            other => panic!("{other:?}"),
        },
        other => return other,
    };
    let at = position(&grant, text);
    cluster.answer_of(BOB, at, Call::Lookup { grant, who: root_user(), name: name(text) })
}

pub fn finds(answer: Option<Answer>) -> Result<bool, String> {
    match answer {
        Some(Answer::Done { result: Ok(_), .. }) => Ok(true),
        Some(Answer::Done { result: Err(Code::NotFound), .. }) => Ok(false),
        other => Err(format!("{other:?}")),
    }
}

/// It is not answered yet, or was told to ask again.
pub fn waits(answer: Option<Answer>) -> bool {
    matches!(answer, None | Some(Answer::Retry { .. }))
}

/// Whoever was asked for something back gives it.
pub fn give_back(cluster: &mut Cluster) {
    for (session, recall) in std::mem::take(&mut cluster.recalls) {
        let start = recall.tablet.start();
        let (tablet, epoch, number) = (recall.tablet, recall.epoch, recall.number);
        let answer = Recalled { tablet, epoch, number, finished_below: Sequence(u64::MAX), open: Vec::new() };
        let server = cluster.owner(start).0;
        cluster.send(server, Event::Recalled(session, answer));
    }
}
