//! Whether a grant is good, and what the directory's bits and access control list allow.

use crate::decide::rules::answers;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::Handle;
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::{Question, Told};
use bearing_types::{AclHash, Acls, Code, Credentials, FileType, Permission};

/// Whether a grant is ours, is the asker's, has not expired, and allows the wish.
pub(crate) fn admit<'g>(
    view: &mut View,
    grant: &'g Grant,
    who: &Credentials,
    wish: Permission,
) -> Decide<&'g GrantBody> {
    let body = &grant.body;
    // A grant of another session, or an expired one, is treated alike: the client has to ask the directory's
    // home again.
    let mine = view.session == Some(body.session);
    let late = view.now.wall > body.expires.after(view.config.skew_max);
    if !mine || late || !grant.verify(view.keys.grants()) {
        return Err(Stop::Refuse(Code::Unauthenticated));
    }
    permit(view, body, who, wish)?;
    Ok(body)
}

/// Whether a directory allows the wish.
pub(crate) fn permit(
    view: &mut View,
    directory: &GrantBody,
    who: &Credentials,
    wish: Permission,
) -> Decide<()> {
    let acls = acls(view, directory)?;
    let allowed = directory.access.allows_with(acls.access.as_deref(), who, wish, FileType::Directory);
    if allowed { Ok(()) } else { Err(Stop::Refuse(Code::Access)) }
}

/// The access control lists of a directory. A grant only says whether there are some, and which: its home has
/// them.
pub(crate) fn acls(view: &mut View, directory: &GrantBody) -> Decide<Acls> {
    if directory.acl == AclHash(0) {
        return Ok(Acls::default());
    }
    let home = directory.seat.home;
    let handle = Handle { node: directory.seat.node, home };
    let (question, hash) = (Question::Acls { directory: handle, hash: directory.acl }, directory.acl);
    match view.ask(home, question, |view| answers::acls(view, handle, hash))? {
        Told::Acls(acls) => Ok(*acls),
        _ => Err(Stop::Later),
    }
}
