//! The oracle's present state, and what changes do to it.

use super::{Mutation, Node, Piece, State, View};
use bearing_proto::client::{AttributeChange, CommitMode, RenameMode, TimeChange, XattrChange};
use bearing_types::{
    Access, Credentials, FileType, Gid, Mode, Name, NodeId, SetIds, Uid, XattrName, XattrSpace,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The filesystem as it is now.
#[derive(Clone, Debug)]
pub struct Oracle {
    nodes: BTreeMap<NodeId, Node>,
    entries: BTreeMap<NodeId, BTreeMap<Name, NodeId>>,
}

/// What a change touched, and the node that its answer tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Names that may name something else now.
    pub names: Vec<(NodeId, Name)>,
    /// Nodes that may have changed.
    pub nodes: Vec<NodeId>,
    /// The node that the answer tells.
    pub answer: Option<NodeId>,
    /// A node that has lost a name, whose count has not been lowered yet.
    pub owes_link: Option<NodeId>,
}

impl State for Oracle {
    fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    fn entry(&self, directory: NodeId, name: &Name) -> Option<NodeId> {
        self.entries.get(&directory)?.get(name).copied()
    }
}

impl Oracle {
    /// A filesystem that holds nothing but its root.
    pub fn new(root: NodeId, access: Access) -> Oracle {
        let mut oracle = Oracle { nodes: BTreeMap::new(), entries: BTreeMap::new() };
        oracle.nodes.insert(root, Oracle::directory_node(access, root));
        oracle.entries.insert(root, BTreeMap::new());
        oracle
    }

    fn directory_node(access: Access, parent: NodeId) -> Node {
        Node { links: 2, parent: Some(parent), ..Oracle::new_node(FileType::Directory, access) }
    }

    fn new_node(file_type: FileType, access: Access) -> Node {
        Node {
            file_type,
            access,
            links: 1,
            parent: None,
            entries: 0,
            content: Arc::new(Vec::new()),
            xattrs: BTreeMap::new(),
            access_list: None,
            default_list: None,
            modified: None,
        }
    }

    /// The entries of a directory.
    pub fn list(&self, directory: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        self.entries.get(&directory).into_iter().flatten().map(|(name, node)| (name, *node))
    }

    /// All nodes, unlinked ones too.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The attributes of a node.
    pub fn view(&self, node: NodeId) -> Option<View> {
        self.nodes.get(&node).map(|known| known.view(node))
    }

    /// Does a change that nothing refuses. `created` is the new node of a create or mkdir. With `owes_link`,
    /// an unlinked or replaced node keeps its count until [`Oracle::drop_link`].
    ///
    /// # Panics
    /// If something refuses the change (see [`super::refusals`]), or `created` is missing or in use: bugs of
    /// the caller.
    pub fn apply(&mut self, mutation: &Mutation, created: Option<NodeId>, owes_link: bool) -> Touched {
        if let Mutation::Create { directory, .. } | Mutation::MakeDirectory { directory, .. } = mutation {
            let parent = self.nodes[directory].access;
            return self.create(mutation, parent, created.expect("create and mkdir tell their node"));
        }
        match mutation {
            Mutation::Create { .. } | Mutation::MakeDirectory { .. } => unreachable!("dealt with above"),
            Mutation::Unlink { directory, name, .. } | Mutation::RemoveDirectory { directory, name, .. } => {
                self.remove(*directory, name, owes_link)
            }
            Mutation::Rename { source, source_name, target, target_name, mode, .. } => match mode {
                RenameMode::Exchange => self.exchange((*source, source_name), (*target, target_name)),
                RenameMode::Replace | RenameMode::NoReplace => {
                    self.rename((*source, source_name), (*target, target_name), owes_link)
                }
            },
            Mutation::Link { node, directory, name, .. } => self.link(*node, *directory, name),
            Mutation::SetAttributes { node, who, change, .. } => self.set_attributes(*node, who, change),
            Mutation::Truncate { node, who, .. } => {
                self.known(*node).clear(SetIds::by(who));
                self.resize(*node, 0)
            }
            Mutation::MakeHole { node, start, end, size_min, set_ids } => {
                self.known(*node).clear(*set_ids);
                self.make_hole(*node, *start..*end, *size_min)
            }
            Mutation::SetXattr { node, who, name, change } => self.set_xattr(*node, who, name, change),
            Mutation::Commit { node, pieces, size_min, mode, set_ids } => {
                self.known(*node).clear(*set_ids);
                self.commit(*node, pieces, *size_min, *mode)
            }
        }
    }

    /// Pays what [`Touched::owes_link`] says: the node loses a link.
    pub fn drop_link(&mut self, node: NodeId) -> Touched {
        let known = self.known(node);
        known.links = known.links.checked_sub(1).expect("a link is owed once");
        Touched { nodes: vec![node], ..Touched::default() }
    }

    fn known(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("the rules have seen this node")
    }

    fn add_entry(&mut self, directory: NodeId, name: &Name, node: NodeId) {
        let before = self.entries.entry(directory).or_default().insert(name.clone(), node);
        assert_eq!(before, None, "a new name takes a free place");
        let child_directories = u32::from(self.nodes[&node].is_directory());
        let parent = self.known(directory);
        parent.entries += 1;
        parent.links += child_directories;
    }

    fn take_entry(&mut self, directory: NodeId, name: &Name) -> NodeId {
        let entries = self.entries.get_mut(&directory).expect("a directory has a list of entries");
        let node = entries.remove(name).expect("the rules have seen this name");
        let child_directories = u32::from(self.nodes[&node].is_directory());
        let parent = self.known(directory);
        parent.entries -= 1;
        parent.links -= child_directories;
        node
    }

    fn create(&mut self, mutation: &Mutation, parent: Access, id: NodeId) -> Touched {
        match mutation {
            Mutation::Create { directory, name, who, new } => {
                let access = access_of_new(parent, who, new.mode, new.file_type);
                let content = Arc::new(new.target.clone());
                let node = Node { content, ..Oracle::new_node(new.file_type, access) };
                self.insert(*directory, name, id, node)
            }
            Mutation::MakeDirectory { directory, name, who, mode } => {
                let access = access_of_new(parent, who, *mode, FileType::Directory);
                self.entries.insert(id, BTreeMap::new());
                self.insert(*directory, name, id, Oracle::directory_node(access, *directory))
            }
            other => unreachable!("{other:?} makes no node"),
        }
    }

    fn insert(&mut self, directory: NodeId, name: &Name, id: NodeId, mut node: Node) -> Touched {
        node.inherit(&self.nodes[&directory]);
        assert!(self.nodes.insert(id, node).is_none(), "node ids are never used twice");
        self.add_entry(directory, name, id);
        let names = vec![(directory, name.clone())];
        Touched { names, nodes: vec![directory, id], answer: Some(id), owes_link: None }
    }

    /// A node has lost a name. Returns it if it owes the link.
    fn lose_name(&mut self, node: NodeId, owes_link: bool) -> Option<NodeId> {
        let known = self.known(node);
        if known.is_directory() {
            known.links = 0;
            return None;
        }
        if owes_link {
            return Some(node);
        }
        known.links -= 1;
        None
    }

    fn remove(&mut self, directory: NodeId, name: &Name, owes_link: bool) -> Touched {
        let node = self.take_entry(directory, name);
        let owes_link = self.lose_name(node, owes_link);
        let names = vec![(directory, name.clone())];
        Touched { names, nodes: vec![directory, node], answer: None, owes_link }
    }

    fn rename(
        &mut self,
        (source, source_name): (NodeId, &Name),
        (target, target_name): (NodeId, &Name),
        owes_link: bool,
    ) -> Touched {
        if self.entry(source, source_name) == self.entry(target, target_name) {
            return Touched::default();
        }
        let mut touched = Touched {
            names: vec![(source, source_name.clone()), (target, target_name.clone())],
            nodes: vec![source, target],
            ..Touched::default()
        };
        if self.entry(target, target_name).is_some() {
            let replaced = self.take_entry(target, target_name);
            touched.owes_link = self.lose_name(replaced, owes_link);
            touched.nodes.push(replaced);
        }
        let node = self.take_entry(source, source_name);
        self.add_entry(target, target_name, node);
        if self.nodes[&node].is_directory() {
            self.known(node).parent = Some(target);
        }
        touched.nodes.push(node);
        touched
    }

    fn exchange(
        &mut self,
        (source, source_name): (NodeId, &Name),
        (target, target_name): (NodeId, &Name),
    ) -> Touched {
        if self.entry(source, source_name) == self.entry(target, target_name) {
            return Touched::default();
        }
        let node = self.take_entry(source, source_name);
        let other = self.take_entry(target, target_name);
        self.add_entry(target, target_name, node);
        self.add_entry(source, source_name, other);
        for (moved, parent) in [(node, target), (other, source)] {
            if self.nodes[&moved].is_directory() {
                self.known(moved).parent = Some(parent);
            }
        }
        Touched {
            names: vec![(source, source_name.clone()), (target, target_name.clone())],
            nodes: vec![source, target, node, other],
            ..Touched::default()
        }
    }

    fn link(&mut self, node: NodeId, directory: NodeId, name: &Name) -> Touched {
        self.add_entry(directory, name, node);
        self.known(node).links += 1;
        let names = vec![(directory, name.clone())];
        Touched { names, nodes: vec![directory, node], answer: Some(node), owes_link: None }
    }

    fn set_attributes(&mut self, node: NodeId, who: &Credentials, change: &AttributeChange) -> Touched {
        let known = self.known(node);
        let chowned = change.uid.is_some() || change.gid.is_some();
        let access = &mut known.access;
        access.uid = change.uid.unwrap_or(access.uid);
        access.gid = change.gid.unwrap_or(access.gid);
        if chowned && known.file_type != FileType::Directory {
            access.mode = without_set_id(access.mode);
        }
        if let Some(mode) = change.mode {
            let mode = mode_for(who, access.gid, mode);
            known.set_mode(mode);
        }
        if let Some(size) = change.size {
            known.clear(SetIds::by(who));
            self.resize(node, size);
        }
        if let Some(modified) = change.modified {
            let known = self.known(node);
            known.modified = match modified {
                TimeChange::To(time) if !known.is_directory() => Some(time),
                TimeChange::To(_) | TimeChange::Now => None,
            };
        }
        Touched { nodes: vec![node], answer: Some(node), ..Touched::default() }
    }

    fn set_xattr(
        &mut self,
        node: NodeId,
        who: &Credentials,
        name: &XattrName,
        change: &XattrChange,
    ) -> Touched {
        let known = self.known(node);
        let gid = known.access.gid;
        match (name.space(), change) {
            (space @ (XattrSpace::AccessList | XattrSpace::DefaultList), change) => {
                let value = if let XattrChange::Set { value, .. } = change { Some(&value[..]) } else { None };
                known.set_list(space, value, |mode| mode_for(who, gid, mode));
            }
            (_, XattrChange::Remove) => drop(known.xattrs.remove(name)),
            (_, XattrChange::Set { value, .. }) => drop(known.xattrs.insert(name.clone(), value.clone())),
        };
        Touched { nodes: vec![node], answer: Some(node), ..Touched::default() }
    }

    fn resize(&mut self, node: NodeId, size: u64) -> Touched {
        let known = self.known(node);
        known.modified = None;
        Arc::make_mut(&mut known.content).resize(size as usize, 0);
        Touched { nodes: vec![node], answer: Some(node), ..Touched::default() }
    }

    fn make_hole(&mut self, node: NodeId, range: Range<u64>, size_min: u64) -> Touched {
        let known = self.known(node);
        known.modified = None;
        let content = Arc::make_mut(&mut known.content);
        let bounded = |at: u64| at.min(content.len() as u64) as usize;
        let (start, end) = (bounded(range.start), bounded(range.end));
        content[start..end].fill(0);
        content.resize(content.len().max(size_min as usize), 0);
        Touched { nodes: vec![node], answer: Some(node), ..Touched::default() }
    }

    fn commit(&mut self, node: NodeId, pieces: &[Piece], size_min: u64, mode: CommitMode) -> Touched {
        let known = self.known(node);
        known.modified = None;
        let content = Arc::make_mut(&mut known.content);
        let base = match mode {
            CommitMode::Put => 0,
            CommitMode::Append => content.len() as u64,
        };
        for piece in pieces {
            Piece { offset: base + piece.offset, bytes: piece.bytes.clone() }.lay_over(content);
        }
        let size_min = (base + size_min) as usize;
        if content.len() < size_min {
            content.resize(size_min, 0);
        }
        Touched { nodes: vec![node], answer: Some(node), ..Touched::default() }
    }
}

impl Piece {
    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Writes it into content, which grows as needed; a hole reads as zeros.
    pub fn lay_over(&self, content: &mut Vec<u8>) {
        let (start, end) = (self.offset as usize, self.end() as usize);
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(&self.bytes);
    }
}

impl Node {
    fn clear(&mut self, set_ids: SetIds) {
        self.access.mode = set_ids.applied(self.access.mode, self.access.gid);
    }
}

/// What a new node is born with: a set-group-id directory hands its group down, and to directories the bit
/// too.
fn access_of_new(parent: Access, who: &Credentials, mode: Mode, file_type: FileType) -> Access {
    if !parent.mode.has(Mode::SETGID) {
        return Access { mode, uid: who.uid, gid: who.gid };
    }
    let handed = if file_type == FileType::Directory { u32::from(Mode::SETGID) } else { 0 };
    Access { mode: Mode::new(mode.bits() | handed), uid: who.uid, gid: parent.gid }
}

/// chown takes set-user-id away, and set-group-id where the group may execute (elsewhere it meant mandatory
/// locking).
fn without_set_id(mode: Mode) -> Mode {
    let group_executes = mode.has(0o010);
    mode.without(if group_executes { Mode::SETUID | Mode::SETGID } else { Mode::SETUID })
}

/// chmod by somebody outside the group takes set-group-id away.
fn mode_for(who: &Credentials, gid: Gid, mode: Mode) -> Mode {
    if who.uid == Uid(0) || who.in_group(gid) { mode } else { mode.without(Mode::SETGID) }
}
