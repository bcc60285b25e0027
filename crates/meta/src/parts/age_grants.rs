//! chmod and chown of a directory, at each listed fragment: grants from before are good for no change any more. Changes that arrive while this is prepared wait
//! for the decision at the locked fragment.

use crate::key::Key;
use crate::namespace;
use crate::record::Record;
use crate::view::{Decide, View};
use bearing_proto::peer::Promise;
use bearing_types::{NodeId, Version, Wall};

pub(super) fn decide(view: &mut View, directory: NodeId, access_version: Version) -> Decide<Promise> {
    // Listed, but without a first name yet: whoever is about to bring that finds the fragment, and in it what to refuse. No entry ever changed in it.
    let unchanged = namespace::empty_fragment(Wall(i64::MIN), access_version);
    let mut fragment = view.fragment(directory)?.unwrap_or(unchanged);
    fragment.access_version = fragment.access_version.max(access_version);
    view.lock(Key::Fragment(directory))?;
    view.put(Key::Fragment(directory), Record::Fragment(fragment));
    Ok(Promise::Done)
}
