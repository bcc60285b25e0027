//! rmdir, at each listed fragment: it is empty, and nothing is created in it from now on, whatever grant is
//! shown. Operations that arrive while this is prepared wait for the decision at the locked fragment, and
//! then find the dead mark.

use crate::record::{Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::LeaseKey;
use bearing_proto::peer::Promise;
use bearing_types::{Code, NodeId};

pub(super) fn decide(view: &mut View, directory: NodeId) -> Decide<Promise> {
    let fragment = view.fragment(directory)?;
    if fragment.is_some_and(|fragment| fragment.entries > 0) {
        return Err(Stop::Refuse(Code::NotEmpty));
    }
    view.get(Key::Dead(directory))?;
    view.lock(Key::Fragment(directory))?;
    view.lock(Key::Dead(directory))?;
    view.delete(Key::Fragment(directory));
    let died = view.time();
    view.put(Key::Dead(directory), Record::Mark(died));
    view.changes(LeaseKey::Content(directory));
    Ok(Promise::Done)
}
