//! A delegated directory as it is here.

use crate::event::Invalidation;
use bearing_lookup::FileKey;
use bearing_lookup::bloom::{Bloom, Shape};
use bearing_proto::client::{DirectoryView, Handle};
use bearing_proto::delegation::{LentDirectory, LentEntry};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::rules;
use bearing_types::{Attributes, Block, Cookie, FileType, Mono, Name, NameHash, Wall};
use std::collections::{BTreeMap, BTreeSet};

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
    /// It is too large to be held whole.
    pub thinned: Option<Thinned>,
}

/// What is known of entries that were dropped, for want of room.
#[derive(Debug)]
pub(crate) struct Thinned {
    /// All names that were ever in the directory, and perhaps some that were not.
    names: Bloom,
    /// Of these, names that are not in it now.
    absent: BTreeSet<Name>,
    /// Admits to it at its home.
    pub grant: Option<Grant>,
    /// Another each time that entries are dropped, or others may have decided in it: what was asked for
    /// before is not news then.
    pub epoch: u64,
}

impl Thinned {
    /// How many names are known not to be in it.
    pub fn absent(&self) -> usize {
        self.absent.len()
    }
}

/// The filter of a large directory: 2 MiB, whatever is in it. One of 1,000,000 new names is asked for in vain
/// in 400, with 4,000,000 one in six.
const NAMES: Shape = Shape { bits: 1 << 24, hashes: 4, seed: 0x7468_696e };

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
    /// The entry may have been dropped: its owner knows.
    Unknown,
}

impl LocalDirectory {
    pub fn new(lent: LentDirectory, tablet: Block, now: Mono) -> LocalDirectory {
        let LentDirectory { view, entries, .. } = lent;
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
            thinned: None,
        }
    }

    /// Whether nothing is in it, at hand or not.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && (self.thinned.is_none() || rules::entries_of(&self.attributes) == 0)
    }

    /// Drops entries, at most so many. Gives them.
    pub fn thin(
        &mut self,
        (epoch, count_max): (u64, usize),
        may_go: impl Fn(&LocalEntry) -> bool,
        is_settled: impl Fn(&Name) -> bool,
    ) -> Vec<LocalEntry> {
        let goes = |(_, entry): &(&Cookie, &LocalEntry)| is_settled(&entry.name) && may_go(entry);
        let going = self.entries.iter().filter(goes).map(|(cookie, _)| *cookie);
        let going: Vec<Cookie> = going.take(count_max).collect();
        if let Some(thinned) = &mut self.thinned {
            thinned.epoch = epoch;
            thinned.absent.retain(|name| !is_settled(name));
        }
        if going.is_empty() {
            return Vec::new();
        }
        self.filter_names(epoch);
        going.iter().filter_map(|cookie| self.entries.remove(cookie)).collect()
    }

    /// From now on a filter knows its names.
    pub fn filter_names(&mut self, epoch: u64) {
        let (directory, entries) = (self.handle.node, &self.entries);
        self.thinned.get_or_insert_with(|| {
            let mut names = Bloom::new(NAMES).expect("a shape within its bounds");
            entries.keys().for_each(|cookie| names.insert(FileKey::of(directory, cookie.hash())));
            Thinned { names, absent: BTreeSet::new(), grant: None, epoch }
        });
    }

    /// How many names are known not to be in it.
    pub fn absent(&self) -> usize {
        self.thinned.as_ref().map_or(0, Thinned::absent)
    }

    /// A name may be in it from now on, as its home says.
    pub fn note_name(&mut self, hash: NameHash) {
        let directory = self.handle.node;
        if let Some(thinned) = &mut self.thinned {
            thinned.names.insert(FileKey::of(directory, hash));
        }
    }

    /// Its home says what a name leads to, or that it is not there. Whether that is news.
    pub fn learn(&mut self, name: &Name, found: Option<(Handle, FileType)>, epoch: u64) -> bool {
        let is_unknown = matches!(self.place(name), Place::Unknown);
        let hash = NameHash::of(self.body.name_key, name);
        let Some(thinned) = self.thinned.as_mut().filter(|thinned| is_unknown && thinned.epoch == epoch)
        else {
            return false;
        };
        match found {
            Some((node, file_type)) => {
                let entry = LocalEntry { name: name.clone(), node, file_type, lent: false };
                self.entries.insert(Cookie::new(hash, 1), entry);
            }
            None => drop(thinned.absent.insert(name.clone())),
        }
        true
    }

    /// Its home decided in it for a while, and we do again: what it is now, and of all that is in it no more
    /// than that it may be there. Gives what the kernel may know of that.
    pub fn shown_again(&mut self, view: DirectoryView, epoch: u64, now: Mono) -> Vec<Invalidation> {
        let known = self.known_to_kernel().collect();
        self.parent = view.parent;
        self.body = view.grant.body.clone();
        self.attributes = view.node.attributes;
        self.extended = view.node.extended;
        self.used = now;
        self.entries.clear();
        if let Some(thinned) = &mut self.thinned {
            thinned.absent.clear();
            (thinned.grant, thinned.epoch) = (Some(view.grant), epoch);
        }
        known
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
            (None, _) if self.may_have_gone(name, hash) => Place::Unknown,
            (None, _) => Place::Free(first),
            (Some((cookie, entry)), None) if entry.name == *name && *cookie == first => {
                Place::Taken(*cookie, entry.clone())
            }
            _ => Place::Crowded,
        }
    }

    fn may_have_gone(&self, name: &Name, hash: NameHash) -> bool {
        let key = FileKey::of(self.handle.node, hash);
        self.thinned.as_ref().is_some_and(|known| known.names.may_hold(key) && !known.absent.contains(name))
    }

    pub fn insert(&mut self, cookie: Cookie, entry: LocalEntry, now: Wall) {
        rules::entry_added(&mut self.attributes, entry.file_type, now);
        self.note_name(cookie.hash());
        if let Some(thinned) = &mut self.thinned {
            thinned.absent.remove(&entry.name);
        }
        self.entries.insert(cookie, entry);
    }

    pub fn remove(&mut self, cookie: Cookie, now: Wall) {
        if let Some(entry) = self.entries.remove(&cookie) {
            rules::entry_removed(&mut self.attributes, entry.file_type, now);
            if let Some(thinned) = &mut self.thinned {
                thinned.absent.insert(entry.name);
            }
        }
    }
}
