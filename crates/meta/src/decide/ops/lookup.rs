//! A name in a directory. Only the owner of the name's position may say that there is none.

use crate::decide::rules::{namespace, permission};
use crate::view::{Decide, View};
use bearing_proto::client::Body;
use bearing_proto::grant::Grant;
use bearing_types::{Credentials, Name, NameHash, Permission};

pub(crate) fn decide(view: &mut View, grant: &Grant, who: &Credentials, name: &Name) -> Decide<Body> {
    let hash = NameHash::of(grant.body.name_key, name);
    view.require(grant.body.seat.position_of(hash))?;
    permission::admit(view, grant, who, Permission::SEARCH)?;
    let directory = grant.body.seat.node;
    let slot = namespace::find_existing(view, directory, hash, name)?;
    Ok(Body::Entry(namespace::entry_view(view, directory, hash, &slot.entry)?, None))
}
