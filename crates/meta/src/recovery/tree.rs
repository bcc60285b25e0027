//! Names, directories and nodes, made a tree again: every directory has one name and hangs below the root,
//! every name leads to something, and counts are what is there.

use super::{Lost, Path, Report, Shape, Why};
use crate::record::{DirectoryContent, FragmentRecord, NameEntry, NameRecord, NodeContent, NodeRecord};
use bearing_placement::Seat;
use bearing_proto::client::Handle;
use bearing_proto::rules;
use bearing_types::{
    Access, Acls, Cookie, FileType, Gid, Mode, Name, NameHash, NodeId, TabletSerial, Uid, Version, Wall,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where a name lies: directory, hash and ordinal.
pub(super) type Place = (NodeId, NameHash, u16);
/// Names by their places.
pub(super) type Names = BTreeMap<Place, NameRecord>;

/// What has no place in the tree is in this directory of the root.
const LOST_AND_FOUND: &[u8] = b"lost+found";
const MADE_MODE: u32 = 0o755;

/// What a tree is made of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub names: Names,
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    pub fragments: BTreeMap<NodeId, BTreeMap<TabletSerial, FragmentRecord>>,
    /// Directories that were about to be made.
    pub made: BTreeMap<NodeId, NodeRecord>,
}

/// See the module.
pub(super) struct Tree<'a> {
    pub shape: &'a Shape,
    parts: Parts,
    /// Where each node is named.
    named: BTreeMap<NodeId, BTreeSet<Place>>,
    lost_and_found: Option<NodeId>,
    next_id: u64,
    lost: Vec<(NodeId, Why)>,
}

impl Tree<'_> {
    /// Of what was loaded. Every directory that is named, or has names, is there from now on.
    pub fn new(shape: &Shape, mut parts: Parts, next_id: u64) -> Tree<'_> {
        let mut named: BTreeMap<NodeId, BTreeSet<Place>> = BTreeMap::new();
        for (place, name) in &parts.names {
            if let Some(entry) = &name.entry {
                named.entry(entry.node.node).or_default().insert(*place);
            }
        }
        let root = shape.root.node;
        let made = std::mem::take(&mut parts.made);
        let mut tree = Tree { shape, parts, named, lost_and_found: None, next_id, lost: Vec::new() };
        if !tree.parts.nodes.contains_key(&root) {
            let handle = Handle { node: root, home: shape.root.home };
            let node = tree.new_directory(shape.root, handle, b"");
            tree.parts.nodes.insert(root, node);
            tree.lost.push((root, Why::NoDirectory));
        }
        for (node, record) in made {
            if tree.named.contains_key(&node) {
                tree.parts.nodes.entry(node).or_insert(record);
            }
        }
        // Parents before what is in them, as far as they are known.
        let places: Vec<Place> = tree.parts.names.keys().copied().collect();
        for (directory, ..) in &places {
            tree.directory(*directory);
        }
        for place in &places {
            let entry = tree.parts.names.get(place).and_then(|name| name.entry.as_ref());
            if let Some(entry) = entry.filter(|entry| entry.file_type == FileType::Directory) {
                tree.directory(entry.node.node);
            }
        }
        tree
    }

    fn new_directory(&self, seat: Seat, parent: Handle, name: &[u8]) -> NodeRecord {
        let access = Access { mode: Mode::new(MADE_MODE), uid: Uid(0), gid: Gid(0) };
        let content = DirectoryContent {
            seat,
            parent,
            name: name.to_vec(),
            fragments: Vec::new(),
            modified_set: Wall(i64::MIN),
            access_version: Version(0),
        };
        NodeRecord {
            home: seat.home,
            attributes: rules::attributes_of_new_directory(access, self.shape.now),
            content: NodeContent::Directory(Box::new(content)),
            xattrs: false,
            acls: Acls::default(),
            quota: None,
        }
    }

    fn content(&self, directory: NodeId) -> Option<&DirectoryContent> {
        self.parts.nodes.get(&directory)?.directory().ok()
    }

    fn content_mut(&mut self, directory: NodeId) -> Option<&mut DirectoryContent> {
        match &mut self.parts.nodes.get_mut(&directory)?.content {
            NodeContent::Directory(content) => Some(content),
            _ => None,
        }
    }

    fn handle(&self, node: NodeId) -> Option<Handle> {
        Some(self.parts.nodes.get(&node)?.handle(node))
    }

    /// The node.
    pub fn node(&self, node: NodeId) -> Option<&NodeRecord> {
        self.parts.nodes.get(&node)
    }

    /// The same, to be changed.
    pub fn node_mut(&mut self, node: NodeId) -> Option<&mut NodeRecord> {
        self.parts.nodes.get_mut(&node)
    }

    /// All nodes that are no directories.
    pub fn others(&self) -> Vec<NodeId> {
        let others = self.parts.nodes.iter().filter(|(_, node)| node.directory().is_err());
        others.map(|(node, _)| *node).collect()
    }

    /// A node that no checkpoint has.
    pub fn add(&mut self, node: NodeId, record: NodeRecord) {
        self.parts.nodes.insert(node, record);
    }

    /// Names that lead to a node that is not there.
    pub fn dangling(&self) -> Vec<NameEntry> {
        let entries = self.parts.names.values().filter_map(|name| name.entry.as_ref());
        entries.filter(|entry| !self.parts.nodes.contains_key(&entry.node.node)).cloned().collect()
    }

    /// Whether a node has a name.
    pub fn is_named(&self, node: NodeId) -> bool {
        self.named.get(&node).is_some_and(|places| !places.is_empty())
    }

    /// Notes what is not as it was; its path is looked up when all is in place.
    pub fn tell(&mut self, node: NodeId, why: Why) {
        self.lost.push((node, why));
    }

    /// Takes a node away, with all its names.
    pub fn remove(&mut self, node: NodeId) {
        for place in self.named.remove(&node).unwrap_or_default() {
            self.vacate(place);
        }
        self.parts.nodes.remove(&node);
    }

    /// A name goes. Names of the same hash behind it keep their ordinals.
    fn vacate(&mut self, place: Place) {
        let more = self.parts.names.get(&place).is_some_and(|name| name.more);
        match more {
            true => drop(self.parts.names.insert(place, NameRecord { entry: None, more })),
            false => drop(self.parts.names.remove(&place)),
        }
    }

    /// The entry of a name in a directory.
    fn find(&self, directory: NodeId, name: &Name) -> Option<&NameEntry> {
        let hash = NameHash::of(self.shape.name_key, name);
        let chain = self.parts.names.range((directory, hash, 0)..=(directory, hash, u16::MAX));
        chain.filter_map(|(_, record)| record.entry.as_ref()).find(|entry| entry.name == *name)
    }

    /// Gives a node a name in a directory, or a name like it if that is taken. Whether it has the one wanted.
    pub fn attach(&mut self, directory: NodeId, wanted: &[u8], node: NodeId) -> bool {
        let fallback = format!("node-{node}");
        let mut name =
            Name::new(wanted).unwrap_or_else(|_| Name::new(fallback.as_bytes()).expect("a plain name"));
        let (mut taken, stem) = (0u32, name.as_bytes().to_vec());
        while self.find(directory, &name).is_some() {
            taken += 1;
            let suffix =
                if taken == 1 { format!(".recovered-{node}") } else { format!(".recovered-{node}-{taken}") };
            let kept = stem.len().min(255 - suffix.len());
            name = Name::new(&[&stem[..kept], suffix.as_bytes()].concat()).expect("a plain name");
        }
        let hash = NameHash::of(self.shape.name_key, &name);
        let last = self.parts.names.range((directory, hash, 0)..=(directory, hash, u16::MAX)).next_back();
        let ordinal = last.map_or(1, |((_, _, ordinal), _)| ordinal + 1);
        debug_assert!(ordinal <= Cookie::ORDINAL_MAX, "nobody has so many names of one hash");
        if let Some(before) = last.map(|(place, _)| *place).and_then(|place| self.parts.names.get_mut(&place))
        {
            before.more = true;
        }
        let (handle, parent) = (self.handle(node), self.handle(directory));
        let (Some(handle), Some(parent)) = (handle, parent) else { return false };
        if let Some(content) = self.content_mut(node) {
            (content.parent, content.name) = (parent, name.as_bytes().to_vec());
        }
        // What is new here counts for the quota of where it is.
        let quota = self.parts.nodes[&directory].quota;
        let record = self.parts.nodes.get_mut(&node).expect("it has a handle");
        record.quota = record.quota.or(quota);
        let file_type = record.attributes.file_type;
        let place = (directory, hash, ordinal);
        let entry = Some(NameEntry { name, node: handle, file_type });
        self.parts.names.insert(place, NameRecord { entry, more: false });
        self.named.entry(node).or_default().insert(place);
        taken == 0
    }

    /// Gives a node a name where it was last known to be; in `lost+found` if nobody knows.
    pub fn attach_at_last(&mut self, known: Option<(NodeId, &[u8])>, node: NodeId) {
        let known = known.filter(|(parent, name)| parent.0 != 0 && Name::new(name).is_ok());
        let attached = match known {
            Some((parent, name)) => {
                let parent = self.directory(parent);
                self.attach(parent, name, node)
            }
            None => {
                let (place, name) = (self.lost_and_found(), format!("node-{node}"));
                self.tell(node, Why::NoName);
                self.attach(place, name.as_bytes(), node)
            }
        };
        if !attached {
            self.tell(node, Why::NameTaken);
        }
    }

    fn lost_and_found(&mut self) -> NodeId {
        if let Some(there) = self.lost_and_found {
            return there;
        }
        let (root, name) = (self.shape.root.node, Name::new(LOST_AND_FOUND).expect("a plain name"));
        let known = self.find(root, &name).filter(|entry| entry.file_type == FileType::Directory);
        let there = match known.map(|entry| entry.node.node) {
            Some(known) => known,
            None => {
                let id = NodeId(self.next_id);
                self.next_id += 1;
                self.make(id, root, LOST_AND_FOUND);
                id
            }
        };
        self.lost_and_found = Some(there);
        there
    }

    /// Makes a directory in another one.
    fn make(&mut self, id: NodeId, parent: NodeId, name: &[u8]) {
        let Some(seat) = self.content(parent).map(|content| content.seat) else { return };
        let hash = Name::new(name).map_or(NameHash::FIRST, |name| NameHash::of(self.shape.name_key, &name));
        let handle = Handle { node: parent, home: seat.home };
        let node = self.new_directory(seat.child(id, hash), handle, name);
        self.parts.nodes.insert(id, node);
        self.attach(parent, name, id);
    }

    /// The directory, which is made if there is none of this number; another place if it is none.
    pub fn directory(&mut self, id: NodeId) -> NodeId {
        match self.parts.nodes.get(&id) {
            Some(node) if node.directory().is_ok() => return id,
            Some(_) => return self.lost_and_found(),
            None => {}
        }
        self.tell(id, Why::NoDirectory);
        let place = self.named.get(&id).and_then(BTreeSet::first).copied();
        // Its name is known: there it is made, if what it is named in does not lie in itself.
        if let Some(place) = place.filter(|(parent, ..)| self.content(*parent).is_some()) {
            let entry = self.parts.names.get(&place).and_then(|name| name.entry.clone());
            let parent = self.content(place.0).map(|content| content.seat);
            if let (Some(entry), Some(parent)) = (entry, parent) {
                let seat = parent.child(id, place.1);
                let handle = Handle { node: place.0, home: parent.home };
                let node = self.new_directory(seat, handle, entry.name.as_bytes());
                self.parts.nodes.insert(id, node);
                let moved = NameEntry { node: Handle { node: id, home: seat.home }, ..entry };
                let more = self.parts.names[&place].more;
                self.parts.names.insert(place, NameRecord { entry: Some(moved), more });
                return id;
            }
        }
        let lost = self.lost_and_found();
        self.make(id, lost, format!("directory-{id}").as_bytes());
        id
    }

    /// Where something is.
    pub fn path_of(&self, node: NodeId) -> Path {
        let (mut names, mut at): (Vec<&[u8]>, NodeId) = (Vec::new(), node);
        // A path is no longer than there are directories.
        for _ in 0..=self.parts.nodes.len() {
            let Some(place) = self.named.get(&at).and_then(BTreeSet::first) else { break };
            let Some(entry) = self.parts.names.get(place).and_then(|name| name.entry.as_ref()) else { break };
            names.push(entry.name.as_bytes());
            at = place.0;
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        names.iter().rev().flat_map(|name| [b"/", *name].concat()).collect()
    }

    /// All in place: directories, then counts. Gives the next id too.
    pub fn finish(mut self, report: &mut Report) -> (Parts, u64) {
        self.name_directories_once();
        self.hang_directories();
        self.count();
        for (node, why) in std::mem::take(&mut self.lost) {
            report.lost.push(Lost { path: self.path_of(node), node, why });
        }
        report.names += self.named.values().map(|places| places.len() as u64).sum::<u64>();
        for node in self.parts.nodes.values() {
            match node.content {
                NodeContent::Directory(_) => report.directories += 1,
                NodeContent::File => report.files += 1,
                NodeContent::Symlink(_) | NodeContent::Special => report.others += 1,
            }
        }
        (self.parts, self.next_id)
    }

    /// Of several names that lead to a directory the one stays that it knows itself.
    fn name_directories_once(&mut self) {
        let directories = self.parts.nodes.iter().filter(|(_, node)| node.directory().is_ok());
        let directories: Vec<NodeId> = directories.map(|(id, _)| *id).collect();
        for id in directories {
            let places = self.named.get(&id).cloned().unwrap_or_default();
            let Some(content) = self.content(id) else { continue };
            let is_own = |place: &&Place| {
                let entry = self.parts.names.get(*place).and_then(|name| name.entry.as_ref());
                place.0 == content.parent.node
                    && entry.is_some_and(|entry| entry.name.as_bytes() == content.name)
            };
            let Some(kept) = places.iter().find(is_own).or_else(|| places.first()).copied() else { continue };
            let (own, parent) = (self.parts.names[&kept].entry.clone(), self.handle(kept.0));
            for place in places.iter().filter(|place| **place != kept) {
                self.vacate(*place);
                self.tell(id, Why::SecondName);
            }
            self.named.insert(id, BTreeSet::from([kept]));
            if let (Some(own), Some(parent), Some(content)) = (own, parent, self.content_mut(id)) {
                (content.parent, content.name) = (parent, own.name.as_bytes().to_vec());
            }
        }
    }

    /// Directories without a name get the one that they know themselves, and what does not hang below the
    /// root then is in `lost+found`.
    fn hang_directories(&mut self) {
        let root = self.shape.root.node;
        let is_nameless = |(id, node): &(&NodeId, &NodeRecord)| {
            **id != root && node.directory().is_ok() && !self.is_named(**id)
        };
        let nameless: Vec<NodeId> = self.parts.nodes.iter().filter(is_nameless).map(|(id, _)| *id).collect();
        for id in nameless {
            let Some(content) = self.content(id) else { continue };
            let (parent, name) = (content.parent.node, content.name.clone());
            let known = self.content(parent).is_some() && !name.is_empty();
            self.attach_at_last(known.then_some((parent, &name[..])), id);
        }
        let mut below: BTreeSet<NodeId> = BTreeSet::from([root]);
        let ids: Vec<NodeId> = self.parts.nodes.keys().copied().collect();
        for id in ids {
            if self.content(id).is_none() || self.hangs(id, &mut below) {
                continue;
            }
            // It is in itself, by way of others: the circle is cut here.
            for place in self.named.remove(&id).unwrap_or_default() {
                self.vacate(place);
            }
            self.attach_at_last(None, id);
            self.hangs(id, &mut below);
        }
    }

    /// Whether a directory hangs below the root; those above it do then, too.
    fn hangs(&self, id: NodeId, below: &mut BTreeSet<NodeId>) -> bool {
        let (mut above, mut at) = (Vec::new(), id);
        while !below.contains(&at) {
            if above.contains(&at) {
                return false;
            }
            above.push(at);
            let Some(place) = self.named.get(&at).and_then(BTreeSet::first) else { return false };
            at = place.0;
        }
        below.extend(above);
        true
    }

    /// Links of files, and what is in directories.
    fn count(&mut self) {
        let (named, lost) = (&self.named, &mut self.lost);
        for (id, node) in &mut self.parts.nodes {
            if node.directory().is_err() {
                let links = named.get(id).map_or(0, |places| places.len() as u32);
                if links > node.attributes.links {
                    lost.push((*id, Why::MoreNames));
                }
                node.attributes.links = links;
            }
        }
        let mut counts: BTreeMap<(NodeId, TabletSerial), (u64, u32)> = BTreeMap::new();
        for ((directory, hash, _), name) in &self.parts.names {
            let (Some(content), Some(entry)) = (self.content(*directory), &name.entry) else { continue };
            let (serial, _) = self.shape.tablet_at(content.seat.position_of(*hash));
            let (entries, directories) = counts.entry((*directory, serial)).or_default();
            *entries += 1;
            *directories += u32::from(entry.file_type == FileType::Directory);
        }
        let now = self.shape.now;
        let ids: Vec<NodeId> = self.parts.nodes.keys().copied().collect();
        let mut fragments = std::mem::take(&mut self.parts.fragments);
        for id in ids {
            let quota = self.parts.nodes[&id].quota;
            let Some(content) = self.content(id).cloned() else { continue };
            let own = fragments.remove(&id).unwrap_or_default();
            let mut placed = BTreeMap::new();
            let mut blocks = content.fragments.clone();
            for (serial, block) in
                self.shape.tablets.iter().filter(|(_, block)| block.overlaps(content.seat.name_block))
            {
                let (entries, directories) = counts.get(&(id, *serial)).copied().unwrap_or_default();
                let listed = blocks.iter().any(|listed| listed.covers(*block));
                let whole = block.covers(content.seat.name_block);
                if entries == 0 && !own.contains_key(serial) && !whole {
                    continue;
                }
                if !listed {
                    blocks.push(*block);
                }
                let empty = FragmentRecord {
                    entries: 0,
                    directories: 0,
                    modified: now,
                    version: Version(1),
                    access_version: content.access_version,
                    quota,
                    name_block: Some(content.seat.name_block),
                };
                let before = own.get(serial).copied().unwrap_or(empty);
                let name_block = Some(content.seat.name_block);
                placed.insert(*serial, FragmentRecord { entries, directories, name_block, ..before });
            }
            self.parts.fragments.insert(id, placed);
            if let Some(content) = self.content_mut(id) {
                content.fragments = blocks;
            }
        }
    }
}
