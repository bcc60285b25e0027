//! Which codes a change deserves, in the order in which Linux finds them.
//!
//! POSIX leaves open which error is reported when several apply; we promise Linux's order (fs/namei.c,
//! fs/attr.c):
//!
//! ```text
//! create, mkdir  directory gone ENOENT, no directory ENOTDIR, search EACCES, name exists EEXIST, write
//!                EACCES
//! unlink, rmdir  directory as above, no name ENOENT, write EACCES, sticky EPERM, kind EISDIR / ENOTDIR,
//!                ENOTEMPTY
//! rename         directories as above (source, target), no source ENOENT, NOREPLACE EEXIST, into itself
//!                EINVAL, over an ancestor ENOTEMPTY, same node: done, then the source as for removal, the
//!                target as for creation or removal (a directory over a file ENOTDIR, a file over a directory
//!                EISDIR), write on a directory that changes parent EACCES, ENOTEMPTY
//! exchange       as rename, but: no target ENOENT, either within the other EINVAL, both as for removal,
//!                neither is replaced
//! link           directory as above, EEXIST, write EACCES, a directory EPERM, unlinked ENOENT
//! setattr        gone ESTALE, size: EISDIR, EINVAL, write EACCES; touch EACCES; owner, group, mode, times
//!                EPERM
//! setxattr       gone ESTALE, as `user`: kind, sticky EPERM, write EACCES, else not root EPERM; then EEXIST,
//!                ENODATA; a list: of a symbolic link EOPNOTSUPP, not the owner EPERM, no list EINVAL, a
//!                default one of no directory EACCES, ENODATA
//! open O_TRUNC   gone ESTALE, EISDIR, EINVAL, write EACCES
//! ```
//!
//! Two states come in: `structure` decides what exists, `access` who may. They are the same state, unless the
//! checker asks whether a permission that a grant carried could still hold.

use super::{Mutation, Node, State};
use bearing_proto::client::{AttributeChange, RenameMode, TimeChange, XattrChange, XattrMode};
use bearing_types::{
    Code, Credentials, FileType, Mode, Name, NodeId, Permission, Uid, XattrName, XattrSpace,
};

/// Which code is asked for when several apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// The one that Linux finds first.
    Linux,
    /// Any of them: POSIX leaves it open.
    Posix,
}

/// All codes that apply, the one that Linux reports first. Empty: the change is done.
pub fn refusals(structure: &dyn State, access: &dyn State, mutation: &Mutation) -> Vec<Code> {
    let rules = Rules { structure, access };
    let found = match mutation {
        Mutation::Create { directory, name, who, .. }
        | Mutation::MakeDirectory { directory, name, who, .. } => rules.create(*directory, name, who),
        Mutation::Unlink { directory, name, who } => rules.remove(*directory, name, who, false),
        Mutation::RemoveDirectory { directory, name, who } => rules.remove(*directory, name, who, true),
        Mutation::Rename { source, source_name, target, target_name, who, mode } => {
            rules.rename((*source, source_name), (*target, target_name), who, *mode)
        }
        Mutation::Link { node, directory, name, who } => rules.link(*node, *directory, name, who),
        Mutation::SetAttributes { node, who, change, through_file } => {
            rules.set_attributes(*node, who, change, *through_file)
        }
        Mutation::SetXattr { node, who, name, change } => rules.set_xattr(*node, who, name, change),
        Mutation::Truncate { node, who, read } => rules.truncate(*node, who, *read),
        Mutation::MakeHole { node, .. } | Mutation::Commit { node, .. } => rules.commit(*node),
    };
    match found {
        Ok(codes) | Err(codes) => codes,
    }
}

/// Codes found so far; `Err` when nothing further can be asked because something is not there.
type Found = Result<Vec<Code>, Vec<Code>>;

struct Rules<'a> {
    structure: &'a dyn State,
    access: &'a dyn State,
}

fn stop<T>(mut codes: Vec<Code>, code: Code) -> Result<T, Vec<Code>> {
    codes.push(code);
    Err(codes)
}

fn push_if(codes: &mut Vec<Code>, applies: bool, code: Code) {
    if applies {
        codes.push(code);
    }
}

impl Rules<'_> {
    /// A node that the access state does not know refuses nothing: the structure decides about it.
    fn may(&self, node: NodeId, who: &Credentials, wish: Permission) -> bool {
        self.access.node(node).is_none_or(|known| known.allows(who, wish))
    }

    /// A directory that is searched: gone, no directory, search permission.
    fn directory(&self, directory: NodeId, who: &Credentials, mut codes: Vec<Code>) -> Found {
        match self.structure.node(directory) {
            None => return stop(codes, Code::NotFound),
            Some(node) if node.links == 0 => return stop(codes, Code::NotFound),
            Some(node) if !node.is_directory() => return stop(codes, Code::NotDirectory),
            Some(_) => {}
        }
        push_if(&mut codes, !self.may(directory, who, Permission::SEARCH), Code::Access);
        Ok(codes)
    }

    fn create(&self, directory: NodeId, name: &Name, who: &Credentials) -> Found {
        let mut codes = self.directory(directory, who, Vec::new())?;
        push_if(&mut codes, self.structure.entry(directory, name).is_some(), Code::Exists);
        push_if(&mut codes, !self.may(directory, who, Permission::CHANGE_ENTRIES), Code::Access);
        Ok(codes)
    }

    /// Write permission on the directory and the sticky rule.
    fn removal(&self, directory: NodeId, node: NodeId, who: &Credentials, codes: &mut Vec<Code>) {
        push_if(codes, !self.may(directory, who, Permission::CHANGE_ENTRIES), Code::Access);
        let (Some(parent), Some(child)) = (self.access.node(directory), self.access.node(node)) else {
            return;
        };
        let owns = who.uid == Uid(0) || who.uid == child.access.uid || who.uid == parent.access.uid;
        push_if(codes, parent.access.mode.has(Mode::STICKY) && !owns, Code::NotPermitted);
    }

    fn remove(&self, directory: NodeId, name: &Name, who: &Credentials, wants_directory: bool) -> Found {
        let mut codes = self.directory(directory, who, Vec::new())?;
        let Some((id, node)) = self.named(directory, name) else {
            codes.push(Code::NotFound);
            push_if(&mut codes, !self.may(directory, who, Permission::CHANGE_ENTRIES), Code::Access);
            return Err(codes);
        };
        self.removal(directory, id, who, &mut codes);
        push_if(&mut codes, wants_directory && !node.is_directory(), Code::NotDirectory);
        push_if(&mut codes, !wants_directory && node.is_directory(), Code::IsDirectory);
        push_if(&mut codes, wants_directory && node.entries > 0, Code::NotEmpty);
        Ok(codes)
    }

    fn named(&self, directory: NodeId, name: &Name) -> Option<(NodeId, &Node)> {
        let id = self.structure.entry(directory, name)?;
        Some((id, self.structure.node(id)?))
    }

    fn rename(
        &self,
        (source, source_name): (NodeId, &Name),
        (target, target_name): (NodeId, &Name),
        who: &Credentials,
        mode: RenameMode,
    ) -> Found {
        let codes = self.directory(source, who, Vec::new())?;
        let mut codes = self.directory(target, who, codes)?;
        let Some((id, node)) = self.named(source, source_name) else {
            codes.push(Code::NotFound);
            let may = |directory| self.may(directory, who, Permission::CHANGE_ENTRIES);
            push_if(&mut codes, !may(source) || !may(target), Code::Access);
            return Err(codes);
        };
        let replaced = self.named(target, target_name);
        let exchange = mode == RenameMode::Exchange;
        if exchange && replaced.is_none() {
            codes.push(Code::NotFound);
            let may = |directory| self.may(directory, who, Permission::CHANGE_ENTRIES);
            push_if(&mut codes, !may(source) || !may(target), Code::Access);
            return Err(codes);
        }
        push_if(&mut codes, mode == RenameMode::NoReplace && replaced.is_some(), Code::Exists);
        push_if(&mut codes, self.is_within(target, id), Code::InvalidArgument);
        let over_ancestor = replaced.is_some_and(|(over, _)| self.is_within(source, over));
        push_if(&mut codes, over_ancestor, if exchange { Code::InvalidArgument } else { Code::NotEmpty });
        if replaced.is_some_and(|(over, _)| over == id) {
            return Ok(codes);
        }
        self.removal(source, id, who, &mut codes);
        match replaced {
            None => push_if(&mut codes, !self.may(target, who, Permission::CHANGE_ENTRIES), Code::Access),
            Some((over, over_node)) => {
                self.removal(target, over, who, &mut codes);
                if exchange {
                    let moves = |node: &Node| node.is_directory() && source != target;
                    for (id, node) in [(id, node), (over, over_node)] {
                        let may = !moves(node) || self.may(id, who, Permission::WRITE);
                        push_if(&mut codes, !may, Code::Access);
                    }
                    return Ok(codes);
                }
                push_if(&mut codes, node.is_directory() && !over_node.is_directory(), Code::NotDirectory);
                push_if(&mut codes, !node.is_directory() && over_node.is_directory(), Code::IsDirectory);
            }
        }
        let moves = node.is_directory() && source != target;
        push_if(&mut codes, moves && !self.may(id, who, Permission::WRITE), Code::Access);
        push_if(&mut codes, replaced.is_some_and(|(_, over)| over.entries > 0), Code::NotEmpty);
        Ok(codes)
    }

    /// Whether a directory is another one or lies below it.
    fn is_within(&self, directory: NodeId, above: NodeId) -> bool {
        let mut at = directory;
        loop {
            if at == above {
                return true;
            }
            match self.structure.node(at).and_then(|node| node.parent) {
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    fn link(&self, id: NodeId, directory: NodeId, name: &Name, who: &Credentials) -> Found {
        let mut codes = self.create(directory, name, who)?;
        let Some(node) = self.structure.node(id) else { return stop(codes, Code::NotFound) };
        push_if(&mut codes, node.is_directory(), Code::NotPermitted);
        push_if(&mut codes, node.links == 0, Code::NotFound);
        Ok(codes)
    }

    fn set_attributes(
        &self,
        id: NodeId,
        who: &Credentials,
        change: &AttributeChange,
        through_file: bool,
    ) -> Found {
        let mut codes = Vec::new();
        let Some(node) = self.structure.node(id) else { return stop(codes, Code::Stale) };
        if change.size.is_some() {
            self.cut(id, node, who, through_file, &mut codes);
        }
        let access = self.access.node(id).map_or(node.access, |known| known.access);
        let root = who.uid == Uid(0);
        let owner = root || who.uid == access.uid;
        let times = [change.accessed, change.modified];
        let sets_time = times.iter().any(|time| matches!(time, Some(TimeChange::To(_))));
        let touches = times.contains(&Some(TimeChange::Now)) && !sets_time;
        push_if(&mut codes, touches && !owner && !self.may(id, who, Permission::WRITE), Code::Access);
        let keeps_uid = change.uid.is_none_or(|uid| owner && uid == access.uid);
        push_if(&mut codes, !root && !keeps_uid, Code::NotPermitted);
        let may_gid = change.gid.is_none_or(|gid| owner && (gid == access.gid || who.in_group(gid)));
        push_if(&mut codes, !root && !may_gid, Code::NotPermitted);
        push_if(&mut codes, !owner && (change.mode.is_some() || sets_time), Code::NotPermitted);
        Ok(codes)
    }

    fn cut(&self, id: NodeId, node: &Node, who: &Credentials, through_file: bool, codes: &mut Vec<Code>) {
        push_if(codes, node.is_directory(), Code::IsDirectory);
        let odd = !matches!(node.file_type, FileType::Directory | FileType::Regular);
        push_if(codes, odd, Code::InvalidArgument);
        push_if(codes, !through_file && !self.may(id, who, Permission::WRITE), Code::Access);
    }

    fn set_xattr(&self, id: NodeId, who: &Credentials, name: &XattrName, change: &XattrChange) -> Found {
        let mut codes = Vec::new();
        let Some(node) = self.structure.node(id) else { return stop(codes, Code::Stale) };
        let access = self.access.node(id).map_or(node.access, |known| known.access);
        let root = who.uid == Uid(0);
        if matches!(name.space(), XattrSpace::AccessList | XattrSpace::DefaultList) {
            push_if(&mut codes, !root && who.uid != access.uid, Code::NotPermitted);
            let value = if let XattrChange::Set { value, .. } = change { Some(&value[..]) } else { None };
            codes.extend(node.refuses_list(name.space(), value));
            return Ok(codes);
        }
        if name.space() == XattrSpace::User {
            let bears = matches!(node.file_type, FileType::Regular | FileType::Directory);
            let sticky = node.is_directory() && access.mode.has(Mode::STICKY);
            push_if(&mut codes, !bears, Code::NotPermitted);
            push_if(&mut codes, sticky && !root && who.uid != access.uid, Code::NotPermitted);
            push_if(&mut codes, !self.may(id, who, Permission::WRITE), Code::Access);
        } else {
            push_if(&mut codes, !root, Code::NotPermitted);
        }
        let exists = node.xattrs.contains_key(name);
        let (must, must_not) = match change {
            XattrChange::Remove | XattrChange::Set { mode: XattrMode::Replace, .. } => (true, false),
            XattrChange::Set { mode: XattrMode::Create, .. } => (false, true),
            XattrChange::Set { mode: XattrMode::Any, .. } => (false, false),
        };
        push_if(&mut codes, must_not && exists, Code::Exists);
        push_if(&mut codes, must && !exists, Code::NoData);
        Ok(codes)
    }

    fn truncate(&self, id: NodeId, who: &Credentials, read: bool) -> Found {
        let mut codes = Vec::new();
        let Some(node) = self.structure.node(id) else { return stop(codes, Code::Stale) };
        self.cut(id, node, who, false, &mut codes);
        push_if(&mut codes, read && !self.may(id, who, Permission::READ), Code::Access);
        Ok(codes)
    }

    fn commit(&self, id: NodeId) -> Found {
        match self.structure.node(id) {
            None => stop(Vec::new(), Code::Stale),
            Some(node) if node.file_type != FileType::Regular => stop(Vec::new(), Code::InvalidArgument),
            Some(_) => Ok(Vec::new()),
        }
    }
}
