//! What is held under leases: directories (grant, attributes), names, attributes of files.
//!
//! Invariants: nothing is served past the end of its lease, after its recall, or while a change of our own may have ended it. What the
//! kernel was told it may keep stays *known* here until that time is over, also when it may not be served any more, so that a recall
//! can name it to the kernel; what has to make room before is taken from the kernel first.

use crate::bounded::Bounded;
use crate::config::ClientConfig;
use crate::event::Invalidation;
use crate::held::Held;
use crate::hub::State;
use crate::lease::Stamp;
use crate::names::{CachedName, Names, Siblings};
use bearing_proto::client::{DirectoryView, EntryView, Handle, LeaseKey, LeaseMs, NodeView};
use bearing_proto::grant::GrantBody;
use bearing_types::{Attributes, Block, FileType, Mono, Name, NameHash, NodeId, Position, Wall};

#[derive(Debug)]
struct CachedDirectory {
    view: DirectoryView,
    access: Held,
    content: Held,
}

impl CachedName {
    fn kernel_may_go_by_it(&self, now: Mono) -> bool {
        now < self.told_until
    }

    /// It was asked back: it is served no more, and the kernel goes by it no more once it has heard what is added here.
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
    /// Whether the lease is the right to open the file.
    may_open: bool,
    extended: bool,
}

/// A directory that may be used now.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub view: DirectoryView,
    pub access_until: Option<Mono>,
    pub content_until: Option<Mono>,
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
        Some(Directory { view: cached.view.clone(), access_until: Some(access_until), content_until })
    }

    /// A leased name, of which the kernel is told now, and whether this is its first use: then it had been looked up ahead.
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

    /// A change of our own: nothing of this is served any more.
    pub fn forget(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            self.each_held(*key, Held::serve_no_more);
        }
    }

    /// A recall: drops it, and says what the kernel has to drop. A node is always named: the kernel may know more of it than we.
    pub fn recall(&mut self, key: LeaseKey, now: Mono, kernel: &mut Vec<Invalidation>) {
        match key {
            LeaseKey::Delegation(_) => {}
            LeaseKey::Access(node) | LeaseKey::File(node) | LeaseKey::Content(node) => {
                kernel.push(Invalidation::Node { node });
                self.each_held(key, |held| *held = Held::NONE);
            }
            LeaseKey::Name(directory, hash) => {
                self.names.each_of_hash(directory, hash, |cached| cached.recall(directory, now, kernel));
            }
            LeaseKey::Names(directory) => {
                self.each_ahead(directory, |cached| cached.recall(directory, now, kernel));
            }
        }
    }

    /// A recall of everything that lies in a block.
    pub fn recall_block(&mut self, block: Block, now: Mono, kernel: &mut Vec<Invalidation>) {
        let mut keys = Vec::new();
        for (node, cached) in self.directories.iter() {
            if block.contains(cached.view.node.node.home) {
                keys.extend([LeaseKey::Access(*node), LeaseKey::Content(*node)]);
            }
        }
        for (node, cached) in self.nodes.iter() {
            if block.contains(cached.home) {
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

    /// Lets go of everything.
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
                self.each_ahead(directory, |cached| change(&mut cached.held));
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
}

impl Cache {
    /// Looks at the names of a directory that are leased together.
    fn each_ahead(&mut self, directory: NodeId, mut look: impl FnMut(&mut CachedName)) {
        self.names.each_in(directory, |cached| {
            if cached.ahead {
                look(cached);
            }
        });
    }

    /// Whether a file may be opened without asking: then more is known of it than a look ahead says.
    fn may_open(&self, node: NodeId, now: Mono) -> bool {
        self.may_open_until(node, now).is_some()
    }
}

impl State {
    /// Takes what a reply says of a node that is no directory.
    pub fn take_node(&mut self, view: &NodeView, stamp: &Stamp) -> Seen {
        let node = view.node;
        self.files.observe(node.node, &view.attributes, stamp.sent);
        let NodeView { attributes, may_open, extended, .. } = *view;
        let until = self.lease(LeaseKey::File(node.node), node.home, view.lease, stamp);
        if let Some(until) = until {
            let held = Held::until(until);
            let cached = CachedNode { home: node.home, attributes, held, may_open, extended };
            let evicted = self.cache.nodes.insert(node.node, cached);
            if let Some((node, cached)) = evicted
                && cached.held.kernel_may_have(self.now.mono)
            {
                self.invalidate(vec![Invalidation::Node { node }]);
            }
        }
        Seen { node, attributes, until, may_open, extended }
    }

    /// Takes what a reply says of a directory.
    pub fn take_directory(&mut self, view: DirectoryView, stamp: &Stamp) -> Directory {
        let handle = view.node.node;
        // What is delegated to us its home knows less of than we.
        if let Some(ours) = self.local_directory(handle.node) {
            return ours;
        }
        let signed = self.signature_lives(view.grant.body.expires);
        let access_lease = if signed { view.access_lease } else { LeaseMs(0) };
        let access = self.lease(LeaseKey::Access(handle.node), handle.home, access_lease, stamp);
        let content = self.lease(LeaseKey::Content(handle.node), handle.home, view.node.lease, stamp);
        let access = self.within_grant(access, &view);
        if access.is_some() || content.is_some() {
            let held = |until: Option<Mono>| until.map_or(Held::NONE, Held::until);
            let cached = CachedDirectory { view: view.clone(), access: held(access), content: held(content) };
            let evicted = self.cache.directories.insert(handle.node, cached);
            if let Some((node, cached)) = evicted
                && (cached.access.kernel_may_have(self.now.mono)
                    || cached.content.kernel_may_have(self.now.mono))
            {
                self.invalidate(vec![Invalidation::Node { node }]);
            }
        }
        Directory { view, access_until: access, content_until: content }
    }

    /// Takes what a reply says of a name.
    pub fn take_name(
        &mut self,
        directory: &Directory,
        name: &Name,
        view: &EntryView,
        stamp: &Stamp,
    ) -> Named {
        let grant = &directory.view.grant.body;
        let hash = NameHash::of(grant.name_key, name);
        let position = grant.seat.position_of(hash);
        let parent = grant.seat.node;
        if view.file_type != FileType::Directory {
            self.cache.note_name(view.node.node, parent, name);
        }
        let until = self.lease(LeaseKey::Name(parent, hash), position, view.lease, stamp);
        let until = until.filter(|_| self.cache.names.may_hold(parent, grant.name_key));
        let EntryView { node, file_type, .. } = *view;
        if let Some(until) = until {
            let (name, held, siblings) = (name.clone(), Held::until(until), Siblings::NONE);
            let told_until = until;
            let cached =
                CachedName { name, node, position, held, told_until, file_type, ahead: false, siblings };
            self.keep_name(grant, cached);
        }
        Named { node, file_type, until }
    }

    /// Takes what a reply says of a name that nobody has asked for, and of what it leads to. Whether that may be used.
    pub fn take_name_ahead(
        &mut self,
        directory: &Directory,
        name: Name,
        view: &EntryView,
        stamp: &Stamp,
    ) -> bool {
        let grant = &directory.view.grant.body;
        let hash = NameHash::of(grant.name_key, &name);
        let position = grant.seat.position_of(hash);
        let parent = grant.seat.node;
        if let Some(node) = &view.attributes
            && !self.cache.may_open(node.node.node, self.now.mono)
        {
            self.take_node(node, stamp);
        }
        // It is leased with all others, but a change of our own was one of this name.
        let name_key = grant.name_key;
        if !self.leases.may_take(LeaseKey::Name(parent, hash), position, stamp)
            || !self.cache.names.may_hold(parent, name_key)
        {
            return false;
        }
        let until = self.lease(LeaseKey::Names(parent), position, view.lease, stamp);
        if let Some(until) = until {
            let EntryView { node, file_type, .. } = *view;
            let (held, told_until, siblings) = (Held::until(until), Mono::ZERO, Siblings::NONE);
            let cached =
                CachedName { name, node, position, held, told_until, file_type, ahead: true, siblings };
            self.keep_name(grant, cached);
        }
        until.is_some()
    }

    fn keep_name(&mut self, grant: &GrantBody, cached: CachedName) {
        let (now, parent) = (self.now.mono, grant.seat.node);
        if let Some(before) = self.cache.names.get(parent, grant.name_key, &cached.name) {
            let siblings = before.siblings;
            // A shorter lease does not end a longer one that lives: the kernel may have been told of that.
            let held = cached.held.longer(before.held, now);
            let told_until = cached.told_until.max(before.told_until);
            // Too much rather than too little: what ended the lease before ends this one.
            let ahead = cached.ahead || before.ahead;
            *before = CachedName { held, told_until, ahead, siblings, ..cached };
            return;
        }
        if let Some((directory, gone)) = self.cache.names.insert(parent, grant.name_key, cached)
            && gone.kernel_may_go_by_it(now)
        {
            self.invalidate(vec![Invalidation::Entry { directory, name: gone.name }]);
        }
    }

    fn lease(&mut self, key: LeaseKey, position: Position, lease: LeaseMs, stamp: &Stamp) -> Option<Mono> {
        let until = self.lease_end(stamp.sent, lease)?;
        if !self.leases.may_take(key, position, stamp) {
            self.counters.leases_passed_over += 1;
            return None;
        }
        Some(Held::until(until).end())
    }

    /// A grant is good while both its lease and its signature last.
    fn within_grant(&self, until: Option<Mono>, view: &DirectoryView) -> Option<Mono> {
        let left = view.grant.body.expires.since(self.now.wall.after(self.config.skew_max));
        until.map(|until| until.min(self.now.mono.after(left)))
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
