//! What goes when a session, or its hold on a directory, is over.

use crate::decide::ops;
use crate::decide::rules::{answers, file_locks};
use crate::record::{Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_placement::position_of_session;
use bearing_proto::peer::{Question, SessionLife, Told};
use bearing_types::{NodeId, SessionId};

/// Replies of one ended session that are removed in one step.
const REPLIES_MAX: usize = 1 << 16;

/// What became of a session that was silent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// Nothing of it is left here, or it lives.
    Over,
    /// It is over, but its client may not know yet: what it has leased here runs out first.
    RunsOut,
}

/// Asks the tablet of a silent session whether it lives; if not, everything of it here goes, and the mark
/// stays. If it did not end itself, its client may not know that it is over, and use what it has leased here:
/// then all of that has to run out first, and it is only refused what it asks for until then.
pub(crate) fn sweep_session(view: &mut View, session: SessionId) -> Decide<SessionEnd> {
    let Told::Session(life) =
        view.ask(position_of_session(session), Question::Session { session }, |view| {
            answers::session(view, session)
        })?
    else {
        return Err(Stop::Later);
    };
    match life {
        SessionLife::Lives => return Ok(SessionEnd::Over),
        SessionLife::Over if view.may_use_leases(session) => return Ok(SessionEnd::RunsOut),
        SessionLife::Over | SessionLife::Closed => {}
    }
    for node in view.opens.orphans_of(session) {
        ops::forget_holder(view, node, session)?;
    }
    let replies = view.range(
        Key::Reply(session, bearing_types::Sequence(0))
            ..=Key::Reply(session, bearing_types::Sequence(u64::MAX)),
        REPLIES_MAX,
    )?;
    for (key, _) in replies {
        view.delete(key);
    }
    file_locks::free_session(view, session)?;
    for directory in view.delegated_to(session) {
        view.delete(Key::Delegation(directory));
    }
    view.delete(Key::Holder(session));
    let ended = view.time();
    view.put(Key::Ended(session), Record::Mark(ended));
    Ok(SessionEnd::Over)
}

/// A delegation is over. If its holder is silent, or gone, so is all that was lent with it: its holder keeps
/// or loses a tablet as a whole, and some steps name no directory. But a holder may also have answered that
/// it does not have this one.
pub(crate) fn end_delegation(view: &mut View, directory: NodeId, session: SessionId) -> Decide<()> {
    let held = view.delegations.holder(directory);
    if let Some(silent) = held.filter(|holder| holder.session == session) {
        if view.delegations.uses_any(silent, view.now.mono) {
            view.delete(Key::Delegation(directory));
            return Ok(());
        }
        let all: Vec<NodeId> = view.delegations.of(silent).collect();
        all.into_iter().for_each(|directory| view.delete(Key::Delegation(directory)));
    }
    Ok(())
}
