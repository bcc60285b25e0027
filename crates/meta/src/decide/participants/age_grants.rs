//! chmod and chown of a directory, at each listed fragment: grants from before are good for no change any
//! more. Changes that arrive while this is prepared wait for the decision at the locked fragment.

use crate::decide::rules::namespace;
use crate::record::{Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::Handle;
use bearing_proto::peer::Promise;
use bearing_types::{Block, Code, NodeId, Version, Wall};

pub(super) fn decide(
    view: &mut View,
    directory: NodeId,
    name_block: Block,
    access_version: Version,
    quota: Option<Handle>,
) -> Decide<Promise> {
    // Listed, but without a first name yet: whoever is about to bring that finds the fragment, and in it what
    // to refuse. No entry ever changed in it.
    let unchanged = namespace::empty_fragment(name_block, Wall(i64::MIN), access_version, quota);
    let mut fragment = view.fragment(directory)?.unwrap_or(unchanged);
    fragment.access_version = fragment.access_version.max(access_version);
    // A new quota counts what is made from now on.
    if fragment.quota != quota && fragment.entries > 0 {
        return Err(Stop::Refuse(Code::NotEmpty));
    }
    fragment.quota = quota;
    fragment.name_block = Some(name_block);
    view.lock(Key::Fragment(directory))?;
    view.put(Key::Fragment(directory), Record::Fragment(Box::new(fragment)));
    Ok(Promise::Done)
}
