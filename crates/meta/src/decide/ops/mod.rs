//! Operations of clients: one file each, told top to bottom: validate, load, decide, record, reply.

mod accessed;
mod chunk;
mod chunks;
mod commit;
mod create;
mod delegate;
mod delegated;
mod directory;
mod exchange;
mod extents;
mod link;
mod list;
mod lock;
mod lookup;
mod make_directory;
mod make_hole;
mod open;
mod prefetch;
mod quota;
mod release;
mod remove_directory;
mod rename;
mod rights;
mod session;
mod set_attributes;
mod unlink;
mod xattr;

use crate::decide::maintenance;
use crate::view::{Decide, View};
use bearing_proto::client::{Body, Call};
use bearing_proto::rules::OpenWish;

pub(crate) use release::{forget_closed, forget_holder, reap_page};
pub(crate) use session::{end as end_session, meet};

/// Whether a call changes entries of directories, one at a time.
pub(crate) fn changes_entries(call: &Call) -> bool {
    matches!(
        call,
        Call::Create { .. }
            | Call::MakeDirectory { .. }
            | Call::Unlink { .. }
            | Call::RemoveDirectory { .. }
            | Call::Link { .. }
            | Call::Rename { .. }
    )
}

/// Decides a client's call.
pub(crate) fn decide(view: &mut View, call: &Call) -> Decide<Body> {
    match call {
        Call::OpenSession => session::open(view),
        Call::RenewSession => session::renew(view),
        Call::CloseSession => session::close(view),
        Call::Map { .. } | Call::Statfs | Call::Describe { .. } => {
            unreachable!("answered by the machine without a tablet")
        }
        Call::Root { filesystem } => directory::root(view, *filesystem),
        Call::Directory { directory } => directory::show(view, *directory),
        Call::Lookup { grant, who, name } => lookup::decide(view, grant, who, name),
        Call::List { grant, who, after, count_max, detail } => {
            list::decide(view, grant, who, (*after, *count_max), *detail)
        }
        Call::Prefetch { grant, who, after, count_max } => {
            prefetch::decide(view, grant, who, *after, *count_max)
        }
        Call::Create { grant, who, name, new } => create::decide(view, grant, who, name, new),
        Call::MakeDirectory { grant, who, name, mode } => {
            make_directory::decide(view, grant, who, name, *mode)
        }
        Call::Unlink { grant, who, name, node, keep_open } => {
            unlink::decide(view, grant, who, name, *node, *keep_open)
        }
        Call::RemoveDirectory { grant, who, name, node } => {
            remove_directory::decide(view, grant, who, name, *node)
        }
        Call::Link { grant, who, name, node } => link::decide(view, grant, who, name, *node),
        Call::Rename { source, source_name, target, target_name, who, mode, moved, replaced, keep_open } => {
            let known = rename::Known { moved: *moved, replaced: *replaced, keep_open: *keep_open };
            rename::decide(view, (source, source_name), (target, target_name), who, *mode, known)
        }
        Call::Attributes { node } => directory::attributes(view, *node),
        Call::SetAttributes { node, who, change, token } => {
            set_attributes::decide(view, *node, who, change, *token)
        }
        Call::ReadLink { node } => directory::read_link(view, *node),
        Call::Open { node, who, read, write, truncate, execute } => {
            let wish = OpenWish { read: *read, write: *write, truncate: *truncate, execute: *execute };
            open::decide(view, *node, who, wish)
        }
        Call::Extents { node, by, offset, count_max } => {
            extents::decide(view, *node, by, *offset, *count_max)
        }
        Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids } => {
            let (size_min, mode, set_ids) = (*size_min, *mode, *set_ids);
            let written = commit::Written { extents, opened, size_min, mode, set_ids };
            commit::decide(view, *node, *token, written, *modified)
        }
        Call::Release { node } => release::decide(view, *node),
        Call::OpenChunk { avoid, doubted } => chunk::open(view, avoid, doubted),
        Call::Chunk { chunk } => chunk::show(view, *chunk),
        Call::Chunks { who, from, count_max, depth } => chunks::decide(view, who, *from, *count_max, *depth),
        Call::Xattr { node, who, name } => xattr::get(view, *node, who, name),
        Call::Xattrs { node, who } => xattr::list(view, *node, who),
        Call::SetXattr { node, who, name, change } => xattr::set(view, *node, who, name, change),
        Call::Lock { node, lock, wait } => lock::take(view, *node, *lock, *wait),
        Call::Unlock { node, owner, space, range } => lock::give_back(view, *node, *owner, *space, *range),
        Call::TestLock { node, lock } => lock::test(view, *node, *lock),
        Call::StopWaiting { node, wait } => lock::stop_waiting(view, *node, *wait),
        Call::SetQuota { directory, who, limit } => quota::set(view, *directory, who, *limit),
        Call::Quota { node } => quota::show(view, *node),
        Call::Place { directory } => directory::place(view, *directory),
        Call::SealChunk { chunk, epoch } => maintenance::seal(view, *chunk, *epoch),
        Call::FinishChunk { chunk, payload, opened } => chunk::finish(view, *chunk, *payload, opened),
        Call::Delegate { directory, who, incarnation, joins } => {
            let asked = delegate::Asked { incarnation: *incarnation, joins: *joins };
            delegate::decide(view, *directory, who, asked)
        }
        Call::Delegated { steps, ids, ids_wanted, returned, open, names_kept, incarnation, over } => {
            let (names_kept, over) = (*names_kept, *over);
            let returned = delegated::Returned { directories: returned, open, names_kept, over };
            delegated::decide(view, steps, ids, *ids_wanted, returned, *incarnation)
        }
        Call::Accessed { node, at } => accessed::decide(view, *node, *at),
        Call::MakeHole { node, token, start, end, size_min, set_ids } => {
            make_hole::decide(view, *node, *token, *start..*end, *size_min, *set_ids)
        }
    }
}
