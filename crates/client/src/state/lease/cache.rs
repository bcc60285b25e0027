//! What is held under leases: directories (grant, attributes), names, attributes of files.
//!
//! Invariants: nothing is served past the end of its lease, after its recall, or while a change of our own
//! may have ended it. What the kernel was told it may keep stays *known* here until that time is over, also
//! when it may not be served any more, so that a recall can name it to the kernel; what has to make room
//! before is taken from the kernel first.

use super::held::Held;
use super::leases::Mark;
use super::names::{CachedName, Names, Siblings};
use crate::config::ClientConfig;
use crate::event::Invalidation;
use crate::tables::Bounded;
use bearing_proto::client::{ChangedDirectory, DirectoryView, EntryView, Handle, LeaseKey, NodeView};
use bearing_proto::grant::GrantBody;
use bearing_types::{Attributes, Block, FileType, Mono, Name, NameHash, NodeId, Position, Version, Wall};
use std::time::Duration;

#[derive(Debug)]
struct CachedDirectory {
    view: DirectoryView,
    access: Held,
    content: Held,
    /// When the view was asked for.
    asked: Mono,
    own: Option<OwnChange>,
}

/// The last change of our own in a directory, whose reply said what became of it: that is shown for a moment
/// also where it is not leased, because several clients change it.
#[derive(Clone, Copy, Debug)]
struct OwnChange {
    shown_until: Mono,
    version: Version,
    /// When it was over.
    mark: Mark,
}

impl CachedName {
    fn kernel_may_go_by_it(&self, now: Mono) -> bool {
        now < self.told_until
    }

    /// It was asked back: it is served no more, and the kernel goes by it no more once it has heard what is
    /// added here.
    fn recall(&mut self, directory: NodeId, now: Mono, kernel: &mut Vec<Invalidation>) {
        if self.kernel_may_go_by_it(now) {
            kernel.push(Invalidation::Entry { directory, name: self.name.clone() });
        }
        (self.held, self.told_until) = (Held::NONE, Mono::ZERO);
    }
}

#[derive(Debug)]
struct CachedNode {
    home: Position,
    attributes: Attributes,
    held: Held,
    /// By how much, in milliseconds, the kernel may have been told to go by it for longer: under an earlier
    /// lease.
    told_longer: u16,
    /// Whether the lease is the right to open the file.
    may_open: bool,
    extended: bool,
}

impl CachedNode {
    fn told_until(&self) -> Mono {
        self.held.end().after(Duration::from_millis(self.told_longer.into()))
    }

    /// The kernel is told for how long, and counts from when it hears of it.
    fn kernel_may_go_by_it(&self, now: Mono) -> bool {
        const LATE: Duration = Duration::from_secs(1);
        now < self.told_until().after(LATE)
    }
}

/// A directory that may be used now.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub view: DirectoryView,
    pub access_until: Option<Mono>,
    pub content_until: Option<Mono>,
    /// Times and counts are as our own last change left them, and may be shown until then without a lease.
    pub shown_until: Option<Mono>,
}

impl Directory {
    pub fn node(&self) -> NodeId {
        self.view.node.node.node
    }

    fn hash(&self, name: &Name) -> NameHash {
        NameHash::of(self.view.grant.body.name_key, name)
    }

    /// Where a name of it lies.
    pub fn position(&self, name: &Name) -> Position {
        self.view.grant.body.seat.position_of(self.hash(name))
    }

    pub fn name_key(&self, name: &Name) -> LeaseKey {
        LeaseKey::Name(self.node(), self.hash(name))
    }

    pub fn content_key(&self) -> LeaseKey {
        LeaseKey::Content(self.node())
    }
}

/// What a change of a node's attributes ends.
pub(crate) fn node_keys(node: NodeId, is_directory: bool) -> Vec<LeaseKey> {
    if is_directory {
        vec![LeaseKey::Access(node), LeaseKey::Content(node)]
    } else {
        vec![LeaseKey::File(node)]
    }
}

/// A name that may be used now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub node: Handle,
    pub file_type: FileType,
    pub until: Option<Mono>,
}

/// Attributes, and until when they may be used without asking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub node: Handle,
    pub attributes: Attributes,
    pub until: Option<Mono>,
    /// Whether the file may be opened without asking until then.
    pub may_open: bool,
    /// Whether it has extended attributes.
    pub extended: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cache {
    directories: Bounded<NodeId, CachedDirectory>,
    names: Names,
    nodes: Bounded<NodeId, CachedNode>,
    /// The name under which a file was last seen, for the headers of its frames. Never served.
    last_names: Bounded<NodeId, (NodeId, Name)>,
}

impl Cache {
    pub fn new(config: &ClientConfig) -> Cache {
        Cache {
            directories: Bounded::new(config.directories_max),
            names: Names::new(config.names_max),
            nodes: Bounded::with_places(config.nodes_max),
            last_names: Bounded::new(config.last_names_max),
        }
    }

    /// A directory whose access attributes are leased.
    pub fn directory(&mut self, node: NodeId, now: Mono) -> Option<Directory> {
        let cached = self.directories.get(&node)?;
        let access_until = cached.access.live(now)?;
        let content_until = cached.content.live(now);
        let shown_until = cached.own.map(|own| own.shown_until).filter(|until| now < *until);
        Some(Directory {
            view: cached.view.clone(),
            access_until: Some(access_until),
            content_until,
            shown_until,
        })
    }

    /// A leased name, of which the kernel is told now, and whether this is its first use: then it had been
    /// prefetched.
    pub fn name(&mut self, grant: &GrantBody, name: &Name, now: Mono) -> Option<(Named, bool)> {
        let directory = grant.seat.node;
        let cached = self.names.get(directory, grant.name_key, name)?;
        let until = cached.held.live(now)?;
        let first = !cached.kernel_may_go_by_it(now);
        cached.told_until = cached.told_until.max(until);
        let named = Named { node: cached.node, file_type: cached.file_type, until: Some(until) };
        if first && named.file_type != FileType::Directory {
            self.note_name(named.node.node, directory, name);
        }
        Some((named, first))
    }

    /// Whether the kernel was told of a name that was leased by itself, and may go by it yet.
    pub fn kernel_may_go_by(&mut self, grant: &GrantBody, name: &Name, now: Mono) -> bool {
        let cached = self.names.get(grant.seat.node, grant.name_key, name);
        cached.is_some_and(|cached| cached.kernel_may_go_by_it(now))
    }

    /// A file was read, and its home hears of that.
    pub fn note_access(&mut self, node: NodeId, at: Wall) {
        if let Some(cached) = self.nodes.get(&node) {
            cached.attributes.accessed = cached.attributes.accessed.max(at);
        }
    }

    /// Leased attributes of a node that is no directory.
    pub fn node(&mut self, node: NodeId, now: Mono) -> Option<Seen> {
        let cached = self.nodes.get(&node)?;
        let until = cached.held.live(now)?;
        let CachedNode { home, attributes, may_open, extended, .. } = *cached;
        Some(Seen { node: Handle { node, home }, attributes, until: Some(until), may_open, extended })
    }

    /// Until when a file may be opened without asking. Does not count as a use.
    pub fn may_open_until(&self, node: NodeId, now: Mono) -> Option<Mono> {
        let cached = self.nodes.peek(&node)?;
        cached.held.live(now).filter(|_| cached.may_open)
    }

    /// The directory and name under which a file was last seen.
    pub fn last_name(&self, node: NodeId) -> Option<&(NodeId, Name)> {
        self.last_names.peek(&node)
    }

    /// Remembers a name for [`Cache::last_name`].
    pub fn note_name(&mut self, node: NodeId, directory: NodeId, name: &Name) {
        self.last_names.insert(node, (directory, name.clone()));
    }

    /// A change of our own begins: nothing of this is served any more.
    pub fn begin_change(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            self.each_held(*key, Held::serve_no_more);
        }
    }

    /// Something changed: nothing of this is served any more.
    pub fn forget(&mut self, keys: &[LeaseKey]) {
        self.begin_change(keys);
        for key in keys {
            self.forget_own_change(*key);
        }
    }

    fn forget_own_change(&mut self, key: LeaseKey) {
        if let LeaseKey::Content(node) | LeaseKey::Access(node) = key
            && let Some(cached) = self.directories.get(&node)
        {
            cached.own = None;
        }
    }

    /// When what is known of a directory was asked for.
    pub fn directory_asked(&self, node: NodeId) -> Option<Mono> {
        self.directories.peek(&node).map(|cached| cached.asked)
    }

    /// Up to which of our own changes a directory is known, and its version then.
    pub fn own_change(&self, node: NodeId) -> Option<(Mark, Version)> {
        self.directories.peek(&node)?.own.map(|own| (own.mark, own.version))
    }

    /// A change of our own in a directory is over, and this is what became of it.
    pub fn keep_changed(
        &mut self,
        changed: &ChangedDirectory,
        leased: Option<Mono>,
        shown: Mono,
        mark: Mark,
    ) {
        let Some(cached) = self.directories.get(&changed.node.node.node) else { return };
        let NodeView { attributes, lease, extended, .. } = changed.node;
        let known = &mut cached.view.node;
        (known.attributes, known.lease, known.extended) = (attributes, lease, extended);
        cached.content = leased.map_or(cached.content, Held::until);
        cached.own = Some(OwnChange { shown_until: shown, version: changed.version, mark });
    }

    /// A recall: drops it, and says what the kernel has to drop. A node is always named: the kernel may know
    /// more of it than we.
    pub fn recall(&mut self, key: LeaseKey, now: Mono, kernel: &mut Vec<Invalidation>) {
        match key {
            LeaseKey::Delegation(_) => {}
            LeaseKey::Access(node) | LeaseKey::File(node) | LeaseKey::Content(node) => {
                kernel.push(Invalidation::Node { node });
                self.each_held(key, |held| *held = Held::NONE);
                self.forget_own_change(key);
            }
            LeaseKey::Name(directory, hash) => {
                self.names.each_of_hash(directory, hash, |cached| cached.recall(directory, now, kernel));
            }
            LeaseKey::Names(directory) => {
                self.each_prefetched(directory, |cached| cached.recall(directory, now, kernel));
            }
        }
    }

    /// A recall of everything that lies in a block. Of files only those are named that the kernel may still
    /// go by.
    pub fn recall_block(&mut self, block: Block, now: Mono, kernel: &mut Vec<Invalidation>) {
        let mut keys = Vec::new();
        for (node, cached) in self.directories.iter() {
            if block.contains(cached.view.node.node.home) {
                keys.extend([LeaseKey::Access(*node), LeaseKey::Content(*node)]);
            }
        }
        for (node, cached) in self.nodes.iter() {
            // Mostly there are many more whose leases are over, and the kernel drops those one by one.
            if block.contains(cached.home) && cached.kernel_may_go_by_it(now) {
                keys.push(LeaseKey::File(*node));
            }
        }
        self.names.each(|directory, cached| {
            if block.contains(cached.position) {
                cached.recall(directory, now, kernel);
            }
        });
        for key in keys {
            self.recall(key, now, kernel);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.directories.clear();
        self.names.clear();
        self.nodes.clear();
    }

    fn each_held(&mut self, key: LeaseKey, mut change: impl FnMut(&mut Held)) {
        match key {
            // Delegations are no leases of single things.
            LeaseKey::Delegation(_) => {}
            LeaseKey::Names(directory) => {
                self.each_prefetched(directory, |cached| change(&mut cached.held));
            }
            LeaseKey::Access(node) => {
                if let Some(cached) = self.directories.get(&node) {
                    change(&mut cached.access);
                }
            }
            LeaseKey::Content(node) => {
                if let Some(cached) = self.directories.get(&node) {
                    change(&mut cached.content);
                }
            }
            LeaseKey::File(node) => {
                if let Some(cached) = self.nodes.get(&node) {
                    change(&mut cached.held);
                }
            }
            LeaseKey::Name(directory, hash) => {
                self.names.each_of_hash(directory, hash, |cached| change(&mut cached.held));
            }
        }
    }

    /// Looks at the names of a directory that are leased together.
    fn each_prefetched(&mut self, directory: NodeId, mut look: impl FnMut(&mut CachedName)) {
        self.names.each_in(directory, |cached| {
            if cached.prefetched {
                look(cached);
            }
        });
    }

    /// Holds what is known of a node that is no directory. Gives what the kernel has to forget for it.
    pub fn keep_node(&mut self, view: &NodeView, until: Mono, now: Mono) -> Option<Invalidation> {
        let NodeView { attributes, may_open, extended, .. } = *view;
        let Handle { node, home } = view.node;
        let before = self.nodes.peek(&node).map_or(Mono::ZERO, CachedNode::told_until);
        let held = Held::until(until);
        let told_longer = before.since(held.end()).as_nanos().div_ceil(1_000_000);
        let told_longer = u16::try_from(told_longer).unwrap_or(u16::MAX);
        let cached = CachedNode { home, attributes, held, told_longer, may_open, extended };
        let (node, _) = self.nodes.insert(node, cached).filter(|(_, gone)| gone.kernel_may_go_by_it(now))?;
        Some(Invalidation::Node { node })
    }

    /// The same of a directory.
    pub fn keep_directory(
        &mut self,
        view: &DirectoryView,
        access: Option<Mono>,
        content: Option<Mono>,
        (asked, now): (Mono, Mono),
    ) -> Option<Invalidation> {
        let held = |until: Option<Mono>| until.map_or(Held::NONE, Held::until);
        let cached = CachedDirectory {
            view: view.clone(),
            access: held(access),
            content: held(content),
            asked,
            own: None,
        };
        let (node, gone) = self.directories.insert(view.node.node.node, cached)?;
        let known = gone.access.kernel_may_have(now) || gone.content.kernel_may_have(now);
        known.then_some(Invalidation::Node { node })
    }

    /// Whether names of a directory may be held that come with this grant.
    pub fn may_hold_names(&self, grant: &GrantBody) -> bool {
        self.names.may_hold(grant.seat.node, grant.name_key)
    }

    /// Holds a name, under a grant that [`Cache::may_hold_names`] allows. `prefetched`: nobody has asked for
    /// it, and it is leased with all others of its directory. Gives what the kernel has to forget for it.
    pub fn keep_name(
        &mut self,
        grant: &GrantBody,
        name: &Name,
        view: &EntryView,
        (until, prefetched): (Mono, bool),
        now: Mono,
    ) -> Option<Invalidation> {
        let (parent, position) =
            (grant.seat.node, grant.seat.position_of(NameHash::of(grant.name_key, name)));
        let (held, told_until) = (Held::until(until), if prefetched { Mono::ZERO } else { until });
        if let Some(before) = self.names.get(parent, grant.name_key, name) {
            // A shorter lease does not end a longer one that lives: the kernel may have been told of that.
            before.held = held.longer(before.held, now);
            before.told_until = told_until.max(before.told_until);
            // Too much rather than too little: what ended the lease before ends this one.
            before.prefetched |= prefetched;
            (before.node, before.position, before.file_type) = (view.node, position, view.file_type);
            return None;
        }
        let (name, siblings) = (name.clone(), Siblings::NONE);
        let EntryView { node, file_type, .. } = *view;
        let cached = CachedName { name, node, position, held, told_until, file_type, prefetched, siblings };
        let (directory, gone) = self.names.insert(parent, grant.name_key, cached)?;
        let known = gone.kernel_may_go_by_it(now);
        known.then_some(Invalidation::Entry { directory, name: gone.name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_node_takes_no_more_room_than_is_said() {
        // A mount's memory a cached entry is in docs/benchmarks/2026-11-22-memory-of-cached-entries.md.
        let bytes = size_of::<Option<(NodeId, CachedNode)>>();
        assert!(bytes <= 112, "{bytes} bytes");
    }
}
