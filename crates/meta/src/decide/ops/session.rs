//! Sessions, in the tablet of their position. A session that ended stays ended: that mark, not a clock,
//! refuses late duplicates.

use crate::decide::rules::answers;
use crate::record::{Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_placement::position_of_session;
use bearing_proto::client::{Body, Call};
use bearing_proto::peer::{Question, SessionLife, Told};
use bearing_types::{Code, SessionId};

pub(super) fn open(view: &mut View) -> Decide<Body> {
    let session = asker(view)?;
    if view.get(Key::Session(session))?.is_none() {
        let opened = view.time();
        view.put(Key::Session(session), Record::Mark(opened));
    }
    Ok(lives(view))
}

/// Renewing moves no record: the tablet's owner remembers when it last heard of the session, and gives a full
/// life after a restart.
pub(super) fn renew(view: &mut View) -> Decide<Body> {
    let session = asker(view)?;
    match view.get(Key::Session(session))? {
        Some(_) => Ok(lives(view)),
        None => Err(Stop::Refuse(Code::SessionEnded)),
    }
}

/// Its record stays beside the mark until that is collected: tablets that ask, also after a restart, hear
/// that the client itself uses nothing any more, and wait for no lease of it.
pub(super) fn close(view: &mut View) -> Decide<Body> {
    let session = asker(view)?;
    let now = view.time();
    view.put(Key::Ended(session), Record::Mark(now));
    Ok(Body::Done)
}

/// A session that this tablet does not know lives, or it is refused: its home says so. Whatever comes late
/// from a session that is over finds no mark of it some day, but never a home.
pub(crate) fn meet(view: &mut View, session: SessionId, call: &Call) -> Decide<()> {
    let at_home = matches!(call, Call::OpenSession | Call::RenewSession | Call::CloseSession);
    if view.known || at_home {
        return Ok(());
    }
    match view.ask(position_of_session(session), Question::Session { session }, |view| {
        answers::session(view, session)
    })? {
        Told::Session(SessionLife::Lives) => {
            view.known = true;
            Ok(())
        }
        Told::Session(SessionLife::Closed | SessionLife::Over) => Err(Stop::Refuse(Code::SessionEnded)),
        _ => Err(Stop::Later),
    }
}

/// Ends a session that its client did not close: the mark first, everything else after it.
pub(crate) fn end(view: &mut View, session: SessionId) {
    let now = view.time();
    view.put(Key::Ended(session), Record::Mark(now));
    view.delete(Key::Session(session));
}

fn asker(view: &mut View) -> Decide<SessionId> {
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    view.require(position_of_session(session))?;
    if view.get(Key::Ended(session))?.is_some() {
        return Err(Stop::Refuse(Code::SessionEnded));
    }
    Ok(session)
}

fn lives(view: &View) -> Body {
    Body::Session { renew_within_ms: view.config.session_ttl.as_millis() as u32 }
}
