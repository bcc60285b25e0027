//! What a client shows for a file's content: tokens of open files, rights to append to chunks. All are signed
//! by servers and name the session.

use crate::decide::ops::open;
use crate::record::NodeRecord;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Extent, Handle};
use bearing_proto::grant::{Admission, Capability, DataRight, OpenRights, OpenToken};
use bearing_proto::rules::OpenWish;
use bearing_types::{ChunkId, Code, Credentials, NodeId, SessionId};
use std::collections::BTreeSet;

/// What the asking session has a node open for.
pub(super) fn opened(view: &View, node: NodeId, token: &OpenToken) -> Decide<OpenRights> {
    let session = asker(view)?;
    if token.node == node && token.verify(session, view.keys.grants()) {
        Ok(token.rights)
    } else {
        Err(Stop::Refuse(Code::Unauthenticated))
    }
}

/// The asking session must have the file open for writing.
pub(super) fn writes(view: &View, node: NodeId, token: &OpenToken) -> Decide<()> {
    if opened(view, node, token)?.writes() { Ok(()) } else { Err(Stop::Refuse(Code::Unauthenticated)) }
}

/// Rights of the asking session to a node.
pub(super) fn grant(view: &View, node: NodeId, rights: OpenRights) -> Decide<OpenToken> {
    Ok(OpenToken::sign(node, asker(view)?, rights, view.keys.grants()))
}

/// What admits a call to a file's extents, and the token that goes with the answer if the call shows none: a
/// file that was opened without asking is open from its first read on, whatever its mode becomes.
pub(super) fn admit(
    view: &mut View,
    handle: Handle,
    record: &NodeRecord,
    by: &Admission,
) -> Decide<(OpenRights, Option<OpenToken>)> {
    match by {
        Admission::Open(token) => Ok((opened(view, handle.node, token)?, None)),
        Admission::User(who) => {
            // What may be executed is read to be executed.
            let mut may = |execute| {
                let wish = OpenWish { read: true, write: false, truncate: false, execute };
                open::check(view, handle.node, record, who, wish)
            };
            may(false).or_else(|_| may(true))?;
            Ok((OpenRights::Read, Some(grant(view, handle.node, OpenRights::Read)?)))
        }
    }
}

/// Extents refer to chunks that the asking session opened: all frames in these are of bytes that it had, or
/// had the right to read. So nobody gets at bytes of others by making them part of a file of his own.
pub(super) fn filled(view: &View, written: &[Extent], opened: &[Capability]) -> Decide<()> {
    let session = asker(view)?;
    let chunks: BTreeSet<ChunkId> = written.iter().map(|extent| extent.chunk.chunk).collect();
    if opened.len() > written.len() || !chunks.iter().all(|chunk| fills(view, session, *chunk, opened)) {
        return Err(Stop::Refuse(Code::Access));
    }
    Ok(())
}

/// Whether one of the rights is this session's to append to a chunk. It may be old: what was appended in its
/// time is the session's all the same.
pub(super) fn fills(view: &View, session: SessionId, chunk: ChunkId, opened: &[Capability]) -> bool {
    let of_chunk = |right: &&Capability| right.body.chunk == chunk && right.body.session == session;
    let appends = |right: &Capability| matches!(right.body.right, DataRight::Append(..));
    opened.iter().find(of_chunk).is_some_and(|right| appends(right) && right.verify(view.keys.grants()))
}

/// The asking session.
pub(super) fn asker(view: &View) -> Decide<SessionId> {
    view.session.ok_or(Stop::Refuse(Code::SessionEnded))
}

/// Whether a user may see what is in a directory, and what that is.
pub(super) fn may_look(record: &NodeRecord, who: &Credentials) -> bool {
    record.allows(who, bearing_types::Permission::LIST_AND_SEARCH)
}
