//! Steps that a client decided in directories delegated to it. They are decided again here, with what every
//! operation checks, in their order and in one record: all or none.

use super::{
    accessed, commit, create, delegate, make_directory, release, remove_directory, rename, rights,
    set_attributes, unlink,
};
use crate::decide::rules::{namespace, permission};
use crate::record::{Delegated, Holder, Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle};
use bearing_proto::delegation::{Change, LentIds, OPEN_TOLD_MAX, Step, StepDone, StepsDone, names_life};
use bearing_proto::grant::{GrantBody, OpenRights, OpenToken};
use bearing_types::{Code, Credentials, FileType, Name, NameHash, NodeId, Permission};

/// Steps in one batch. What they read has to fit into the smallest cache of a tablet at the same time.
const STEPS_MAX: usize = 512;

/// What is given back.
pub(super) struct Returned<'a> {
    pub directories: &'a [NodeId],
    /// Files in them that are open.
    pub open: &'a [NodeId],
    /// The kernel goes on to go by the names in them.
    pub names_kept: bool,
    /// It is all that there was.
    pub over: bool,
}

pub(super) fn decide(
    view: &mut View,
    steps: &[Step],
    ids: &[LentIds],
    ids_wanted: u32,
    returned: Returned,
    incarnation: u64,
) -> Decide<Body> {
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    let too_many = steps.len() > STEPS_MAX || returned.open.len() > OPEN_TOLD_MAX;
    if too_many || !ids.iter().all(|lent| lent.verify(session, view.keys.grants())) {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    let mine = Holder { session, incarnation };
    if view.is_over(incarnation) && !returned.over {
        return Err(Stop::Refuse(Code::Stale));
    }
    if !returned.over && view.is_overdue(mine) {
        return Err(Stop::Refuse(Code::Stale));
    }
    // Some steps name no directory. Without this, those of a batch that its client has given up would still
    // be done when it comes late. Names that others may have changed meanwhile are not leased. And who was
    // out of reach for so long that all was taken away from it must not take an answer for a renewal.
    if !returned.over && !view.holds_any(mine) {
        return Err(Stop::Refuse(Code::Stale));
    }
    let read = steps.iter().flat_map(|step| read_by(view, &step.change));
    let read: Vec<Key> = read.chain(returned.open.iter().map(|node| Key::Node(*node))).collect();
    // One load for all: a run that stopped at each would do all steps before it again.
    view.prefetch(&read)?;
    let mut done = Vec::with_capacity(steps.len());
    for step in steps {
        view.decided_at(step.at);
        let made = take(view, mine, ids, &step.change)?;
        let is_file =
            matches!(&step.change, Change::Create { new, .. } if new.file_type == FileType::Regular);
        let file = made.filter(|_| is_file);
        if let Some(node) = file {
            view.hand(node);
        }
        let token = file.map(|node| rights::grant(view, node, OpenRights::ReadWrite)).transpose()?;
        done.push(StepDone { sequence: step.sequence, made, token });
    }
    for node in returned.open {
        if view.node(*node)?.is_some() {
            view.hand(*node);
        }
    }
    for directory in returned.directories {
        if view.is_delegated(*directory, mine) {
            view.delete(Key::Delegation(*directory));
            if returned.names_kept {
                view.lease_names(*directory, names_life(delegate::life(view)));
            }
        }
    }
    if returned.over {
        let all = view.delegations.of_session(session);
        let all = all.filter(|(holder, _)| holder.incarnation <= incarnation);
        let all: Vec<NodeId> = all.map(|(_, directory)| directory).collect();
        all.into_iter().for_each(|directory| view.delete(Key::Delegation(directory)));
    }
    // Steps and leases do not wait for whoever gives out ids.
    let ids = if ids_wanted > 0 { view.lend_ids(session) } else { None };
    Ok(Body::Steps(StepsDone { steps: done, lease: delegate::life(view), ids }))
}

/// The records that a step reads, if nothing is unusual.
fn read_by(view: &View, change: &Change) -> Vec<Key> {
    let entry = |directory: &Handle, name: &Name, node: &NodeId| {
        let directory = directory.node;
        let name = Key::Name(directory, NameHash::of(view.filesystem.name_key, name), 1);
        [Key::Node(directory), Key::Fragment(directory), name, Key::Node(*node)]
    };
    match change {
        Change::Create { directory, name, node, .. }
        | Change::MakeDirectory { directory, name, node, .. }
        | Change::Unlink { directory, name, node, .. } => entry(directory, name, node).to_vec(),
        Change::RemoveDirectory { directory, name, node, .. } => {
            [&entry(directory, name, node)[..], &[Key::Fragment(*node), Key::Dead(*node)]].concat()
        }
        Change::Rename { source, source_name, target, target_name, moved, replaced, .. } => {
            let replaced = replaced.as_ref().unwrap_or(moved);
            [entry(source, source_name, moved), entry(target, target_name, replaced)].concat()
        }
        Change::SetAttributes { node, .. } | Change::Commit { node, .. } | Change::Accessed { node, .. } => {
            vec![Key::Node(node.node)]
        }
        Change::Release { node } => {
            let orphan = view.session.map(|session| Key::Orphan(node.node, session));
            std::iter::once(Key::Node(node.node)).chain(orphan).collect()
        }
    }
}

/// Does one step. Gives the node that it made.
fn take(view: &mut View, mine: Holder, ids: &[LentIds], change: &Change) -> Decide<Option<NodeId>> {
    match change {
        Change::Create { directory, who, name, new, node } => {
            let grant = admit(view, mine, *directory, who)?;
            expect(view, ids, *node)?;
            create::make(view, &grant, who, name, new)?;
            Ok(Some(*node))
        }
        Change::MakeDirectory { directory, who, name, mode, node } => {
            let grant = admit(view, mine, *directory, who)?;
            expect(view, ids, *node)?;
            let (entry, _) = make_directory::make(view, &grant, who, name, *mode)?;
            view.require(entry.node.home)?;
            let delegated = Delegated { holder: mine, nodes: Vec::new() };
            view.put(Key::Delegation(*node), Record::Delegation(Box::new(delegated)));
            Ok(Some(*node))
        }
        Change::Unlink { directory, who, name, node, keep_open } => {
            let grant = admit(view, mine, *directory, who)?;
            unlink::remove(view, &grant, who, name, *node, *keep_open)?;
            Ok(None)
        }
        Change::RemoveDirectory { directory, who, name, node } => {
            let grant = admit(view, mine, *directory, who)?;
            remove_directory::remove(view, &grant, who, name, *node)?;
            if view.is_delegated(*node, mine) {
                view.delete(Key::Delegation(*node));
            }
            Ok(None)
        }
        Change::Rename {
            source,
            source_name,
            target,
            target_name,
            who,
            mode,
            moved,
            replaced,
            keep_open,
        } => {
            let (from, to) = (admit(view, mine, *source, who)?, admit(view, mine, *target, who)?);
            let from = rename::End { grant: &from, name: source_name };
            let to = rename::End { grant: &to, name: target_name };
            let known = rename::Known { moved: *moved, replaced: *replaced, keep_open: *keep_open };
            rename::change(view, from, to, who, *mode, known)?;
            Ok(None)
        }
        Change::SetAttributes { node, who, change } => {
            set_attributes::set(view, *node, who, change, false)?;
            Ok(None)
        }
        Change::Commit { node, extents, size_min, mode, token, opened, set_ids } => {
            let record = view.node_at(*node)?;
            check_writes(view, ids, node.node, token.as_ref())?;
            let now = view.time();
            let (size_min, mode, set_ids) = (*size_min, *mode, *set_ids);
            let written = commit::Written { extents, opened, size_min, mode, set_ids };
            commit::put(view, *node, record, written, now)?;
            Ok(None)
        }
        Change::Accessed { node, at } => {
            view.require(node.home)?;
            accessed::note(view, *node, *at)?;
            Ok(None)
        }
        Change::Release { node } => {
            release::decide(view, *node)?;
            Ok(None)
        }
    }
}

/// A directory as it is now, if it is the session's to change and the user may.
fn admit(view: &mut View, mine: Holder, directory: Handle, who: &Credentials) -> Decide<GrantBody> {
    if !view.is_delegated(directory.node, mine) {
        return Err(Stop::Refuse(Code::Stale));
    }
    let record = view.node_at(directory)?;
    let grant = namespace::grant_body(view, &record)?;
    permission::permit(view, &grant, who, Permission::CHANGE_ENTRIES)?;
    Ok(grant)
}

/// Who made a file has it open, as far as anybody can know here: its first token may be on its way yet. Of
/// all others the session shows one.
fn check_writes(view: &View, ids: &[LentIds], node: NodeId, token: Option<&OpenToken>) -> Decide<()> {
    match token {
        Some(token) => rights::writes(view, node, token),
        None if ids.iter().any(|lent| lent.contains(node)) => Ok(()),
        None => Err(Stop::Refuse(Code::Unauthenticated)),
    }
}

/// The next node has this id, if it was lent to the session.
fn expect(view: &mut View, ids: &[LentIds], node: NodeId) -> Decide<()> {
    if !ids.iter().any(|lent| lent.contains(node)) || view.node(node)?.is_some() {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    view.expect_id(node);
    Ok(())
}
