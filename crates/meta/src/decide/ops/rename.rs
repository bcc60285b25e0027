//! Moves a name. The new name's tablet coordinates. Only a directory that changes its parent takes the move
//! token; its new ancestors are read while the token is held, so that no two moves together can make a cycle.

use super::exchange;
use crate::decide::ops::remove_directory::kill;
use crate::decide::participants;
use crate::decide::rules::namespace::{self, Slot};
use crate::decide::rules::{answers, permission};
use crate::record::NameEntry;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey, RenameMode};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::{Part, Promise, Question, Remover, Told};
use bearing_proto::rules;
use bearing_types::{Code, Credentials, FileType, Name, NameHash, NodeId, Permission, Position};

/// The deepest tree in which a directory can change its parent.
const ANCESTORS_MAX: usize = 4096;

/// A directory and a name in it.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub grant: &'a GrantBody,
    pub name: &'a Name,
}

impl End<'_> {
    pub fn hash(&self) -> NameHash {
        NameHash::of(self.grant.name_key, self.name)
    }

    pub fn position(&self) -> Position {
        self.grant.seat.position_of(self.hash())
    }

    pub fn directory(&self) -> Handle {
        Handle { node: self.grant.seat.node, home: self.grant.seat.home }
    }
}

/// What the client believes the names to lead to, and whether it has the target open.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub moved: NodeId,
    pub replaced: Option<NodeId>,
    pub keep_open: bool,
}

pub(super) fn decide(
    view: &mut View,
    (from_grant, from_name): (&Grant, &Name),
    (to_grant, to_name): (&Grant, &Name),
    who: &Credentials,
    mode: RenameMode,
    known: Known,
) -> Decide<Body> {
    let from = End { grant: &from_grant.body, name: from_name };
    let to = End { grant: &to_grant.body, name: to_name };
    view.require(to.position())?;
    permission::admit(view, from_grant, who, Permission::CHANGE_ENTRIES)?;
    permission::admit(view, to_grant, who, Permission::CHANGE_ENTRIES)?;
    change(view, from, to, who, mode, known)?;
    // A kernel keeps under the new name what it knew of the old one.
    let (directory, hash) = (to.directory().node, to.hash());
    view.lease_moved(directory, hash);
    let entry = namespace::find_existing(view, directory, hash, to.name)?.entry;
    Ok(Body::Entry(namespace::entry_view(view, directory, hash, &entry)?, None))
}

/// Moves the name from the one end to the other, or lets both change places. The new name is here, and who
/// asks may change entries at both ends.
pub(super) fn change(
    view: &mut View,
    from: End,
    to: End,
    who: &Credentials,
    mode: RenameMode,
    known: Known,
) -> Decide<Body> {
    if from.grant.filesystem != to.grant.filesystem || from.grant.quota != to.grant.quota {
        return Err(Stop::Refuse(Code::CrossDevice));
    }
    match mode {
        RenameMode::Exchange => exchange::exchange(view, from, to, who, known),
        RenameMode::Replace | RenameMode::NoReplace => rename(view, from, to, who, mode, known),
    }
}

fn rename(
    view: &mut View,
    from: End,
    to: End,
    who: &Credentials,
    mode: RenameMode,
    known: Known,
) -> Decide<Body> {
    let (node, file_type) = take(view, from, who)?;
    if node.node != known.moved {
        return Err(Stop::Refuse(Code::Stale));
    }
    let (directory, hash) = (to.directory(), to.hash());
    // After the source is taken: with source and target in one directory the target is seen as it will be.
    let target = if from.directory() == directory && from.name == to.name {
        None
    } else {
        Some(namespace::find(view, directory.node, hash, to.name)?)
    };
    let Some(target) = target else {
        view.nothing_to_do();
        return if mode == RenameMode::NoReplace { Err(Stop::Refuse(Code::Exists)) } else { Ok(Body::Done) };
    };
    if let Ok(slot) = &target {
        if mode == RenameMode::NoReplace {
            return Err(Stop::Refuse(Code::Exists));
        }
        if slot.entry.node == node {
            // Two names of one node: POSIX has rename do nothing.
            view.nothing_to_do();
            return Ok(Body::Done);
        }
    }
    if let Ok(slot) = &target {
        namespace::check_known(&slot.entry, known.replaced.ok_or(Code::Stale)?)?;
        check_replaced(view, from.directory(), to, who, &slot.entry, file_type)?;
    }
    if file_type == FileType::Directory {
        check_move(view, node, from.directory(), to.directory())?;
        set_parent(view, node, to, who)?;
    } else {
        namespace::touch(view, node)?;
    }
    let entry = NameEntry { name: to.name.clone(), node, file_type };
    let is_directory = i32::from(file_type == FileType::Directory);
    match target {
        Ok(slot) => replace(view, to, &slot, entry, known.keep_open)?,
        Err(vacancy) => {
            let fragment = namespace::fragment_for_insert(view, to.grant)?;
            namespace::insert(view, vacancy, entry);
            namespace::count(view, directory.node, fragment, 1, is_directory);
        }
    }
    view.changes(LeaseKey::Name(directory.node, hash));
    Ok(Body::Done)
}

fn take(view: &mut View, from: End, who: &Credentials) -> Decide<(Handle, FileType)> {
    let part = Part::TakeName {
        directory: from.directory().node,
        hash: from.hash(),
        name: from.name.clone(),
        remover: Remover::of(from.grant.access, who.uid),
        access_version: from.grant.access_version,
        changed: view.time(),
    };
    match participants::part(view, from.position(), part)? {
        Promise::Taken { node, file_type } => Ok((node, file_type)),
        _ => Err(Stop::Refuse(Code::Io)),
    }
}

/// A directory that changes its parent must not end up below itself.
pub(super) fn check_move(view: &mut View, node: Handle, from: Handle, to: Handle) -> Decide<()> {
    if from == to {
        return Ok(());
    }
    participants::part(view, Position(0), Part::MoveToken)?;
    check_not_below(view, node, to)
}

/// A directory gets a new parent or name: its node must know.
pub(super) fn set_parent(view: &mut View, node: Handle, to: End, who: &Credentials) -> Decide<()> {
    let (parent, changed) = (to.directory(), view.time());
    participants::part(
        view,
        node.home,
        Part::SetParent { node, parent, name: to.name.clone(), who: who.clone(), changed },
    )?;
    Ok(())
}

fn check_not_below(view: &mut View, node: Handle, mut ancestor: Handle) -> Decide<()> {
    for _ in 0..ANCESTORS_MAX {
        if ancestor.node == node.node {
            return Err(Stop::Refuse(Code::InvalidArgument));
        }
        let Told::Parent(parent) =
            view.ask(ancestor.home, Question::Parent { directory: ancestor }, |view| {
                answers::parent(view, ancestor)
            })?
        else {
            return Err(Stop::Later);
        };
        if parent == ancestor {
            return Ok(());
        }
        ancestor = parent;
    }
    Err(Stop::Refuse(Code::InvalidArgument))
}

/// What Linux asks of a name that is replaced, in its order: may it be removed, is it of the same kind.
fn check_replaced(
    view: &mut View,
    source: Handle,
    to: End,
    who: &Credentials,
    old: &NameEntry,
    file_type: FileType,
) -> Decide<()> {
    if old.node == source {
        // The name that moves is in it, so it is not empty; by now it is taken out and could look so.
        return Err(Stop::Refuse(Code::NotEmpty));
    }
    namespace::check_sticky(view, &Remover::of(to.grant.access, who.uid), old.node)?;
    Ok(rules::check_same_kind(old.file_type, file_type)?)
}

fn replace(view: &mut View, to: End, slot: &Slot, entry: NameEntry, keep_open: bool) -> Decide<()> {
    let old = slot.entry.clone();
    let directory = to.directory().node;
    let fragment = namespace::fragment_under(view, to.grant)?;
    namespace::replace(view, slot, entry);
    namespace::count(view, directory, fragment, 0, 0);
    if old.file_type == FileType::Directory {
        kill(view, old.node)
    } else {
        namespace::drop_link(view, old.node, keep_open)
    }
}
