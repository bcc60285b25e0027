//! A filesystem in memory behind [`Caller`], for tests of what stands above a mount: paths, the kernel
//! bridge. One user at a time may be told apart by permission bits; nothing is leased, shared or stable.

use crate::caller::Caller;
use bearing_client::{Answer, Found, Listed, OpenFile, Operation, Remaining};
use bearing_proto::client::{AttributeChange, Handle, NewNode, RenameMode, StatfsView, TimeChange};
use bearing_types::{
    Attributes, Code, Cookie, Credentials, FileLocks, FileType, Gid, HeldLock, Mode, Name, NameHash, NameKey,
    NodeId, Outcome, Permission, Position, SessionId, Uid, Wall,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const KEY: NameKey = NameKey(1);
const ROOT: NodeId = NodeId::ROOT;
const BYTES_TOTAL: u64 = 1 << 40;
/// Who waits for a lock looks again after this.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// See the module.
pub struct MemoryTree {
    state: Mutex<State>,
    remaining: Duration,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, Node>,
    open: BTreeMap<OpenFile, NodeId>,
    locks: BTreeMap<NodeId, FileLocks>,
    next: u64,
    clock: i64,
}

struct Node {
    attributes: Attributes,
    parent: NodeId,
    content: Vec<u8>,
    children: BTreeMap<Cookie, (Name, NodeId)>,
}

impl MemoryTree {
    /// An empty root directory. Answers may be kept for so long.
    pub fn new(remaining: Duration) -> MemoryTree {
        let mut state = State { next: 2, ..State::default() };
        let new =
            NewNode { file_type: FileType::Directory, mode: Mode::new(0o755), device: 0, target: Vec::new() };
        let root = state.node(ROOT, new, &Credentials::ROOT);
        state.nodes.insert(ROOT, root);
        MemoryTree { state: Mutex::new(state), remaining }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no operation panics")
    }

    fn found(&self, state: &State, node: NodeId) -> Outcome<Found> {
        let attributes = state.get(node)?.attributes;
        let remaining = Remaining(self.remaining);
        Ok(Found {
            node: Handle { node, home: Position(node.0) },
            attributes,
            name_remaining: remaining,
            attributes_remaining: remaining,
        })
    }
}

impl State {
    fn now(&mut self) -> Wall {
        self.clock += 1;
        Wall(self.clock)
    }

    fn node(&mut self, parent: NodeId, new: NewNode, who: &Credentials) -> Node {
        let attributes = Attributes {
            links: if new.file_type == FileType::Directory { 2 } else { 1 },
            size: new.target.len() as u64,
            device: new.device,
            ..Attributes::new(new.file_type, new.mode, (who.uid, who.gid), self.now())
        };
        Node { attributes, parent, content: new.target, children: BTreeMap::new() }
    }

    fn get(&self, node: NodeId) -> Outcome<&Node> {
        self.nodes.get(&node).ok_or(Code::Stale)
    }

    fn get_mut(&mut self, node: NodeId) -> Outcome<&mut Node> {
        self.nodes.get_mut(&node).ok_or(Code::Stale)
    }

    fn open_node(&mut self, file: OpenFile) -> Outcome<&mut Node> {
        let node = *self.open.get(&file).ok_or(Code::Stale)?;
        self.get_mut(node)
    }

    fn directory(&self, node: NodeId, who: &Credentials, wish: Permission) -> Outcome<&Node> {
        let directory = self.get(node)?;
        if !directory.attributes.is_directory() {
            return Err(Code::NotDirectory);
        }
        let is_allowed = directory.attributes.access().allows(who, wish, FileType::Directory);
        if is_allowed { Ok(directory) } else { Err(Code::Access) }
    }

    fn child(&self, directory: NodeId, name: &Name) -> Outcome<Option<(Cookie, NodeId)>> {
        let children = &self.get(directory)?.children;
        Ok(children.iter().find(|(_, (other, _))| other == name).map(|(cookie, (_, node))| (*cookie, *node)))
    }

    fn look_up(&self, directory: NodeId, name: &Name, who: &Credentials) -> Outcome<NodeId> {
        self.directory(directory, who, Permission::SEARCH)?;
        Ok(self.child(directory, name)?.ok_or(Code::NotFound)?.1)
    }

    fn add_name(&mut self, directory: NodeId, name: &Name, node: NodeId) -> Outcome<()> {
        let (now, hash) = (self.now(), NameHash::of(KEY, name));
        let directory = self.get_mut(directory)?;
        let taken = directory.children.range(Cookie::new(hash, 1)..=Cookie::new(hash, Cookie::ORDINAL_MAX));
        let cookie = Cookie::new(hash, taken.count() as u16 + 1);
        directory.children.insert(cookie, (name.clone(), node));
        directory.attributes.modified = now;
        Ok(())
    }

    fn create(&mut self, directory: NodeId, name: &Name, new: NewNode, who: &Credentials) -> Outcome<NodeId> {
        self.directory(directory, who, Permission::CHANGE_ENTRIES)?;
        if self.child(directory, name)?.is_some() {
            return Err(Code::Exists);
        }
        let node = NodeId(self.next);
        self.next += 1;
        let is_directory = new.file_type == FileType::Directory;
        let made = self.node(directory, new, who);
        self.nodes.insert(node, made);
        self.add_name(directory, name, node)?;
        self.get_mut(directory)?.attributes.links += u32::from(is_directory);
        Ok(node)
    }

    fn remove_name(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
        is_rmdir: bool,
    ) -> Outcome<()> {
        self.directory(directory, who, Permission::CHANGE_ENTRIES)?;
        let (cookie, node) = self.child(directory, name)?.ok_or(Code::NotFound)?;
        let is_directory = self.get(node)?.attributes.is_directory();
        match (is_rmdir, is_directory) {
            (true, false) => return Err(Code::NotDirectory),
            (false, true) => return Err(Code::IsDirectory),
            (true, true) if !self.get(node)?.children.is_empty() => return Err(Code::NotEmpty),
            _ => {}
        }
        let now = self.now();
        let parent = self.get_mut(directory)?;
        parent.children.remove(&cookie);
        parent.attributes.modified = now;
        parent.attributes.links -= u32::from(is_directory);
        self.drop_link(node, if is_directory { 2 } else { 1 })
    }

    fn drop_link(&mut self, node: NodeId, count: u32) -> Outcome<()> {
        let links = &mut self.get_mut(node)?.attributes.links;
        *links -= count;
        if *links == 0 && !self.open.values().any(|open| *open == node) {
            self.nodes.remove(&node);
        }
        Ok(())
    }

    fn rename(
        &mut self,
        source: (NodeId, Name),
        target: (NodeId, Name),
        who: &Credentials,
        mode: RenameMode,
    ) -> Outcome<()> {
        let (cookie, node) = self.child(source.0, &source.1)?.ok_or(Code::NotFound)?;
        let is_directory = self.get(node)?.attributes.is_directory();
        if let Some((_, other)) = self.child(target.0, &target.1)? {
            match mode {
                RenameMode::NoReplace => return Err(Code::Exists),
                RenameMode::Exchange => return Err(Code::Unsupported),
                RenameMode::Replace if other == node => return Ok(()),
                RenameMode::Replace => self.remove_name(target.0, &target.1, who, is_directory)?,
            }
        }
        let mut above = target.0;
        while is_directory && above != ROOT {
            if above == node {
                return Err(Code::InvalidArgument);
            }
            above = self.get(above)?.parent;
        }
        self.get_mut(source.0)?.children.remove(&cookie);
        self.add_name(target.0, &target.1, node)?;
        self.get_mut(node)?.parent = target.0;
        self.get_mut(source.0)?.attributes.links -= u32::from(is_directory);
        self.get_mut(target.0)?.attributes.links += u32::from(is_directory);
        Ok(())
    }

    fn open(&mut self, node: NodeId) -> OpenFile {
        let file = OpenFile(self.next);
        self.next += 1;
        self.open.insert(file, node);
        file
    }

    fn close(&mut self, file: OpenFile) -> Outcome<()> {
        let node = self.open.remove(&file).ok_or(Code::Stale)?;
        let is_orphan = self.get(node)?.attributes.links == 0;
        if is_orphan && !self.open.values().any(|open| *open == node) {
            self.nodes.remove(&node);
        }
        Ok(())
    }

    fn change(&mut self, node: NodeId, change: AttributeChange) -> Outcome<()> {
        let now = self.now();
        let time = |wish: Option<TimeChange>, old| match wish {
            None => old,
            Some(TimeChange::Now) => now,
            Some(TimeChange::To(time)) => time,
        };
        let node = self.get_mut(node)?;
        let attributes = &mut node.attributes;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.accessed = time(change.accessed, attributes.accessed);
        attributes.modified = time(change.modified, attributes.modified);
        attributes.changed = now;
        if let Some(size) = change.size {
            node.resize(size as usize);
        }
        node.attributes.version = node.attributes.version.next();
        Ok(())
    }
}

impl Node {
    fn resize(&mut self, bytes: usize) {
        self.content.resize(bytes, 0);
        self.attributes.size = bytes as u64;
    }

    fn write(&mut self, offset: Option<u64>, bytes: &[u8]) -> u32 {
        let start = offset.map_or(self.content.len(), |offset| offset as usize);
        self.resize(self.content.len().max(start + bytes.len()));
        self.content[start..start + bytes.len()].copy_from_slice(bytes);
        self.attributes.version = self.attributes.version.next();
        bytes.len() as u32
    }

    fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        let rest = self.content.get(offset as usize..).unwrap_or(&[]);
        rest[..rest.len().min(length as usize)].to_vec()
    }

    fn list(&self, after: Cookie, count_max: u32) -> Vec<Listed> {
        let rest = self.children.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        let listed = |(cookie, (name, node)): (&Cookie, &(Name, NodeId))| Listed {
            cookie: *cookie,
            name: name.clone(),
            node: Handle { node: *node, home: Position(node.0) },
            file_type: FileType::Regular,
            attributes: None,
        };
        rest.take(count_max as usize).map(listed).collect()
    }
}

impl Caller for MemoryTree {
    fn call(&self, operation: Operation) -> Outcome<Answer> {
        let mut state = self.lock();
        let state = &mut *state;
        let node = match operation {
            Operation::Root => ROOT,
            Operation::Lookup { directory, name, who } => state.look_up(directory.node, &name, &who)?,
            Operation::Parent { directory } => state.get(directory.node)?.parent,
            Operation::Attributes { node, .. } => node.node,
            Operation::SetAttributes { node, who, change, .. } => {
                let owner = state.get(node.node)?.attributes.uid;
                if who.uid != Uid(0) && who.uid != owner {
                    return Err(Code::NotPermitted);
                }
                state.change(node.node, change)?;
                node.node
            }
            Operation::Create { directory, name, who, new, open } => {
                let node = state.create(directory.node, &name, new, &who)?;
                if open {
                    let file = state.open(node);
                    return Ok(Answer::Opened(file, self.found(state, node)?));
                }
                node
            }
            Operation::MakeDirectory { directory, name, who, mode } => {
                let new = NewNode { file_type: FileType::Directory, mode, device: 0, target: Vec::new() };
                state.create(directory.node, &name, new, &who)?
            }
            Operation::Link { node, directory, name, who } => {
                state.directory(directory.node, &who, Permission::CHANGE_ENTRIES)?;
                if state.child(directory.node, &name)?.is_some() {
                    return Err(Code::Exists);
                }
                state.add_name(directory.node, &name, node.node)?;
                state.get_mut(node.node)?.attributes.links += 1;
                node.node
            }
            other => return state.without_node(self, other),
        };
        self.found(state, node).map(Answer::Found)
    }

    fn call_while(&self, operation: Operation, is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer> {
        loop {
            match self.call(operation.clone()) {
                Err(Code::Locked) if is_wanted() => std::thread::sleep(LOCK_PAUSE),
                Err(Code::Locked) => return Err(Code::Interrupted),
                answer => return answer,
            }
        }
    }

    fn call_all(&self, operations: Vec<Operation>) -> Vec<Outcome<Answer>> {
        operations.into_iter().map(|operation| self.call(operation)).collect()
    }
}

impl State {
    /// Operations that do not answer with a node alone.
    fn without_node(&mut self, tree: &MemoryTree, operation: Operation) -> Outcome<Answer> {
        match operation {
            Operation::Unlink { directory, name, who } => {
                self.remove_name(directory.node, &name, &who, false)?;
            }
            Operation::RemoveDirectory { directory, name, who } => {
                self.remove_name(directory.node, &name, &who, true)?;
            }
            Operation::Rename { source, source_name, target, target_name, who, mode } => {
                self.rename((source.node, source_name), (target.node, target_name), &who, mode)?;
            }
            Operation::ReadLink { node } => return Ok(Answer::Target(self.get(node.node)?.content.clone())),
            Operation::List { directory, who, after, count_max, .. } => {
                let node = self.directory(directory.node, &who, Permission::READ)?;
                let mut listed = node.list(after, count_max);
                for entry in &mut listed {
                    entry.file_type = self.get(entry.node.node)?.attributes.file_type;
                }
                return Ok(Answer::Listed(listed));
            }
            Operation::Open { node, truncate, .. } => {
                if truncate {
                    self.get_mut(node.node)?.resize(0);
                }
                let file = self.open(node.node);
                return Ok(Answer::Opened(file, tree.found(self, node.node)?));
            }
            Operation::Close { file } => self.close(file)?,
            Operation::Read { file, offset, length } => {
                return Ok(Answer::Bytes(self.open_node(file)?.read(offset, length)));
            }
            Operation::Write { file, offset, bytes, .. } => {
                return Ok(Answer::Written(self.open_node(file)?.write(offset, &bytes)));
            }
            Operation::Statfs => {
                return Ok(Answer::Statfs(StatfsView {
                    bytes_total: BYTES_TOTAL,
                    bytes_free: BYTES_TOTAL / 2,
                }));
            }
            Operation::Lock { node, lock, .. } => {
                let wish = HeldLock { session: SessionId(0), lock };
                let locks = self.locks.entry(node.node).or_default();
                if locks.conflicts(&wish).next().is_some() {
                    return Err(Code::Locked);
                }
                locks.set(wish);
            }
            Operation::Unlock { node, owner, space, range } => {
                self.locks.entry(node.node).or_default().clear(SessionId(0), owner, space, range);
            }
            Operation::TestLock { node, lock } => {
                let wish = HeldLock { session: SessionId(0), lock };
                let locks = self.locks.entry(node.node).or_default();
                return Ok(Answer::Lock(locks.conflicts(&wish).next().map(|held| held.lock)));
            }
            Operation::Place { directory } => {
                let parent = self.get(directory.node)?.parent;
                let mut children = self.get(parent)?.children.values();
                let name =
                    children.find(|(_, node)| *node == directory.node).map(|(name, _)| name.as_bytes());
                let parent = Handle { node: parent, home: Position(parent.0) };
                return Ok(Answer::Named(parent, name.unwrap_or_default().to_vec()));
            }
            Operation::Extents { .. } | Operation::Chunks { .. } | Operation::Advise(_) => {
                return Err(Code::Unsupported);
            }
            Operation::Quota { .. } => return Ok(Answer::Quota(None)),
            Operation::SetQuota { .. } => return Err(Code::Unsupported),
            Operation::Xattr { .. } => return Err(Code::NoData),
            Operation::Xattrs { .. } => return Ok(Answer::Xattr(Vec::new())),
            Operation::SetXattr { .. } => return Err(Code::Unsupported),
            // All is visible and as stable as it gets.
            _ => {}
        }
        Ok(Answer::Done)
    }
}

/// Somebody who is not root.
pub const SOMEBODY: Credentials = Credentials { uid: Uid(1000), gid: Gid(1000), groups: Vec::new() };
