//! The move token: at most one directory changes its parent at a time. Released by the transaction's
//! decision, never by time.

use crate::record::Key;
use crate::view::{Decide, View};
use bearing_proto::peer::Promise;
use bearing_types::Position;

pub(super) fn decide(view: &mut View) -> Decide<Promise> {
    view.require(Position(0))?;
    if view.by_client {
        // Coordinated here: held until the decision, while other tablets are asked for ancestors.
        view.hold(Key::MoveToken)?;
    } else {
        view.lock(Key::MoveToken)?;
    }
    Ok(Promise::Done)
}
