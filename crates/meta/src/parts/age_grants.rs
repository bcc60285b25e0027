//! chmod and chown of a directory, at each listed fragment: grants from before are good for no change any more. Changes that arrive while this is prepared wait
//! for the decision at the locked fragment.

use crate::key::Key;
use crate::namespace;
use crate::record::Record;
use crate::view::{Decide, View};
use bearing_proto::peer::Promise;
use bearing_types::{NodeId, Version};

pub(super) fn decide(view: &mut View, directory: NodeId, access_version: Version) -> Decide<Promise> {
    // Listed, but without a first name yet: whoever is about to bring that finds the fragment, and in it what to refuse.
    let born = view.time();
    let mut fragment =
        view.fragment(directory)?.unwrap_or_else(|| namespace::empty_fragment(born, access_version));
    fragment.access_version = fragment.access_version.max(access_version);
    view.lock(Key::Fragment(directory))?;
    view.put(Key::Fragment(directory), Record::Fragment(fragment));
    Ok(Promise::Done)
}
