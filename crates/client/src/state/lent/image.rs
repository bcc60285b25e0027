//! A delegated directory as it is here.

use crate::event::Invalidation;
use bearing_proto::client::Handle;
use bearing_proto::delegation::{LentDirectory, LentEntry};
use bearing_proto::grant::GrantBody;
use bearing_proto::rules;
use bearing_types::{Attributes, Block, Cookie, FileType, Mono, Name, NameHash, Wall};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct LocalDirectory {
    pub handle: Handle,
    pub parent: Handle,
    pub body: GrantBody,
    pub attributes: Attributes,
    pub extended: bool,
    pub entries: BTreeMap<Cookie, LocalEntry>,
    pub tablet: Block,
    /// Since when it is ours.
    pub since: Mono,
    /// When something was decided in it last.
    pub used: Mono,
    /// It is about to be given back: the kernel may keep nothing of it.
    pub draining: bool,
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct LocalEntry {
    pub name: Name,
    pub node: Handle,
    pub file_type: FileType,
    /// Its owner lent the node with the directory: nobody else is let near it. It is *ours* too, unless it
    /// was in use here then or was opened since.
    pub lent: bool,
}

/// What a name stands for.
pub(crate) enum Place {
    /// An entry, with its cookie.
    Taken(Cookie, LocalEntry),
    /// Nothing: it would go here.
    Free(Cookie),
    /// Other names have the same hash: its owner shall say.
    Crowded,
}

impl LocalDirectory {
    pub fn new(lent: LentDirectory, tablet: Block, now: Mono) -> LocalDirectory {
        let LentDirectory { view, entries } = lent;
        let kept = |entry: LentEntry| {
            let LentEntry { cookie, name, node, file_type, lent } = entry;
            (cookie, LocalEntry { name, node, file_type, lent: lent.is_some() })
        };
        LocalDirectory {
            handle: view.node.node,
            parent: view.parent,
            body: view.grant.body,
            attributes: view.node.attributes,
            extended: view.node.extended,
            entries: entries.into_iter().map(kept).collect(),
            tablet,
            since: now,
            used: now,
            draining: false,
        }
    }

    /// The directory and the nodes in it, as the kernel may know them.
    pub fn nodes_in_kernel(&self) -> impl Iterator<Item = Invalidation> + '_ {
        let nodes = self.entries.values().map(|entry| entry.node.node);
        std::iter::once(self.handle.node).chain(nodes).map(|node| Invalidation::Node { node })
    }

    /// The same and its names.
    pub fn known_to_kernel(&self) -> impl Iterator<Item = Invalidation> + '_ {
        let directory = self.handle.node;
        let names = self.entries.values().map(|entry| entry.name.clone());
        self.nodes_in_kernel().chain(names.map(move |name| Invalidation::Entry { directory, name }))
    }

    pub fn place(&self, name: &Name) -> Place {
        let hash = NameHash::of(self.body.name_key, name);
        let first = Cookie::new(hash, 1);
        let mut same = self.entries.range(first..=Cookie::new(hash, Cookie::ORDINAL_MAX));
        match (same.next(), same.next()) {
            (None, _) => Place::Free(first),
            (Some((cookie, entry)), None) if entry.name == *name && *cookie == first => {
                Place::Taken(*cookie, entry.clone())
            }
            _ => Place::Crowded,
        }
    }

    pub fn insert(&mut self, cookie: Cookie, entry: LocalEntry, now: Wall) {
        rules::entry_added(&mut self.attributes, entry.file_type, now);
        self.entries.insert(cookie, entry);
    }

    pub fn remove(&mut self, cookie: Cookie, now: Wall) {
        if let Some(entry) = self.entries.remove(&cookie) {
            rules::entry_removed(&mut self.attributes, entry.file_type, now);
        }
    }
}
