//! Draws what a client does next, from what it knows.
//!
//! Each client has a *private* subtree that only it touches, and all share one subtree with few names, so
//! that they collide. What the generator knows may be out of date; that is wanted. The caller tells it what
//! operations found and what is gone.

mod files;

use crate::action::Action;
use crate::oracle::{List, Who};
use crate::{Seeded, Zipf, tree};
use bearing_proto::client::{
    AttributeChange, Handle, NewNode, RenameMode, TimeChange, XattrChange, XattrMode,
};
use bearing_proto::operation::Operation;
use bearing_types::{Credentials, FileType, Gid, Mode, Name, NodeId, Uid, Wall, XattrName, XattrSpace};

/// Which subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Only this client's.
    Private,
    /// Everybody's.
    Shared,
}

/// How often each kind of operation comes, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Look a name up.
    pub lookup: u32,
    /// Read attributes.
    pub attributes: u32,
    /// Change attributes.
    pub set_attributes: u32,
    /// Make a file or a link to a path.
    pub create: u32,
    /// Make a directory.
    pub make_directory: u32,
    /// Remove a name.
    pub unlink: u32,
    /// Remove a directory.
    pub remove_directory: u32,
    /// Move a name.
    pub rename: u32,
    /// Give a further name.
    pub link: u32,
    /// Read a symbolic link.
    pub read_link: u32,
    /// List a directory.
    pub list: u32,
    /// Open, read, write, close.
    pub file: u32,
    /// Read, list, set or remove extended attributes.
    pub xattr: u32,
    /// Make a tree of files, and remove it.
    pub tree: u32,
}

impl Weights {
    /// Everything often enough to meet everything else within a few hundred operations.
    pub const EVEN: Weights = Weights {
        lookup: 14,
        attributes: 12,
        set_attributes: 8,
        create: 14,
        make_directory: 8,
        unlink: 7,
        remove_directory: 5,
        rename: 10,
        link: 5,
        read_link: 2,
        list: 6,
        file: 14,
        xattr: 7,
        tree: 1,
    };
    /// Mostly what a client may decide by itself in a directory that is delegated to it.
    pub const AT_HOME: Weights = Weights {
        lookup: 10,
        attributes: 6,
        set_attributes: 1,
        create: 24,
        make_directory: 5,
        unlink: 4,
        remove_directory: 2,
        rename: 4,
        link: 1,
        read_link: 1,
        list: 4,
        file: 35,
        xattr: 1,
        tree: 2,
    };
}

/// What to draw from.
#[derive(Clone, Debug)]
pub struct GeneratorOptions {
    /// How often each kind comes.
    pub weights: Weights,
    /// How many of 100 operations go to the shared subtree.
    pub shared_percent: u32,
    /// How many names there are in each directory.
    pub names: u32,
    /// The longest write, in bytes.
    pub write_bytes_max: u32,
    /// Most directories to know in an area; beyond, more are removed than made.
    pub directories_max: usize,
    /// Who asks.
    pub users: Vec<Credentials>,
}

impl Default for GeneratorOptions {
    fn default() -> GeneratorOptions {
        let user = |uid, gid, groups: &[u32]| Credentials {
            uid: Uid(uid),
            gid: Gid(gid),
            groups: groups.iter().copied().map(Gid).collect(),
        };
        GeneratorOptions {
            weights: Weights::EVEN,
            shared_percent: 60,
            names: 8,
            write_bytes_max: 6000,
            directories_max: 10,
            users: vec![
                Credentials::ROOT,
                Credentials::ROOT,
                Credentials::ROOT,
                user(1000, 100, &[]),
                user(1001, 100, &[200]),
            ],
        }
    }
}

/// A node that the client has met, under the name by which it met it.
#[derive(Clone, Debug)]
struct Known {
    node: Handle,
    file_type: FileType,
    /// Directory and name; `None` for the root of an area.
    name: Option<(Handle, Name)>,
}

#[derive(Clone, Debug, Default)]
struct Knowledge {
    known: Vec<Known>,
}

/// Most nodes to remember in an area; the oldest are forgotten first.
const KNOWN_MAX: usize = 60;

/// Draws one client's actions.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Seeded,
    options: GeneratorOptions,
    names: Zipf,
    private: Knowledge,
    shared: Knowledge,
    logs: Vec<Handle>,
}

impl Generator {
    /// A generator over a client's private directory and the shared one.
    pub fn new(rng: Seeded, options: GeneratorOptions, private: Handle, shared: Handle) -> Generator {
        let root = |node| Known { node, file_type: FileType::Directory, name: None };
        let names = Zipf::new(u64::from(options.names), 0.6);
        Generator {
            rng,
            options,
            names,
            private: Knowledge { known: vec![root(private)] },
            shared: Knowledge { known: vec![root(shared)] },
            logs: Vec::new(),
        }
    }

    /// Also appends records to these files, and reads them. Nobody may do anything else with them.
    pub fn with_logs(self, logs: Vec<Handle>) -> Generator {
        Generator { logs, ..self }
    }

    /// A name in a directory names this node.
    pub fn learn(&mut self, directory: Handle, name: &Name, node: Handle, file_type: FileType) {
        let Some(knowledge) = self.knowledge_of(directory) else { return };
        knowledge.forget(directory.node, name);
        knowledge.known.push(Known { node, file_type, name: Some((directory, name.clone())) });
        if knowledge.known.len() > KNOWN_MAX {
            // Index 0 is the area's root.
            knowledge.known.remove(1);
        }
    }

    /// A name was moved.
    pub fn moved(&mut self, source: NodeId, source_name: &Name, target: Handle, target_name: &Name) {
        let mut moved = self.private.take(source, source_name);
        moved.extend(self.shared.take(source, source_name));
        for known in moved {
            self.learn(target, target_name, known.node, known.file_type);
        }
    }

    /// Two names have changed places.
    pub fn exchanged(&mut self, source: Handle, source_name: &Name, target: Handle, target_name: &Name) {
        let mut moves = Vec::new();
        for knowledge in [&mut self.private, &mut self.shared] {
            let (from, to) =
                (knowledge.take(source.node, source_name), knowledge.take(target.node, target_name));
            moves.extend(from.into_iter().map(|known| (known, target, target_name)));
            moves.extend(to.into_iter().map(|known| (known, source, source_name)));
        }
        for (known, directory, name) in moves {
            self.learn(directory, name, known.node, known.file_type);
        }
    }

    /// A name is gone.
    pub fn forget_name(&mut self, directory: NodeId, name: &Name) {
        self.private.forget(directory, name);
        self.shared.forget(directory, name);
    }

    /// A node is gone.
    pub fn forget_node(&mut self, node: NodeId) {
        for knowledge in [&mut self.private, &mut self.shared] {
            let gone = |known: &Known| known.name.is_some() && known.node.node == node;
            knowledge.known.retain(|known| !gone(known));
        }
    }

    fn knowledge_of(&mut self, directory: Handle) -> Option<&mut Knowledge> {
        let holds =
            |knowledge: &Knowledge| knowledge.known.iter().any(|known| known.node.node == directory.node);
        if holds(&self.private) {
            Some(&mut self.private)
        } else if holds(&self.shared) {
            Some(&mut self.shared)
        } else {
            None
        }
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Action {
        let shared = self.rng.chance(u64::from(self.options.shared_percent), 100);
        let area = if shared { Area::Shared } else { Area::Private };
        let w = self.options.weights;
        let crowded = self.area(area).directories().count() > self.options.directories_max;
        let (make, remove) = if crowded {
            (0, w.make_directory + w.remove_directory)
        } else {
            (w.make_directory, w.remove_directory)
        };
        let weights = [
            w.lookup,
            w.attributes,
            w.set_attributes,
            w.create,
            make,
            w.unlink,
            remove,
            w.rename,
            w.link,
            w.read_link,
            w.list,
            w.file,
            w.xattr,
            w.tree,
        ];
        Action::One(match self.rng.weighted(&weights) {
            0 => self.lookup(area),
            1 => self.attributes(area),
            2 => self.set_attributes(area),
            3 => self.create(area),
            4 => self.make_directory(area),
            5 => self.unlink(area),
            6 => self.remove_directory(area),
            7 => self.rename(area),
            8 => self.link(area),
            9 => self.read_link(area),
            10 => return self.list(area),
            12 => self.xattr(area),
            13 => return self.tree(area),
            _ => return self.file(area),
        })
    }

    fn area(&self, area: Area) -> &Knowledge {
        match area {
            Area::Private => &self.private,
            Area::Shared => &self.shared,
        }
    }

    fn who(&mut self) -> Credentials {
        self.rng.pick(&self.options.users).cloned().unwrap_or(Credentials::ROOT)
    }

    fn name(&mut self) -> Name {
        let rank = self.names.rank(&mut self.rng);
        // One name in the set is as long as a name can be, and no UTF-8.
        let bytes = if rank + 1 == u64::from(self.options.names) && rank > 3 {
            vec![0xfe; Name::BYTES_MAX]
        } else {
            format!("n{rank}").into_bytes()
        };
        Name::new(&bytes).expect("a plain name")
    }

    fn directory(&mut self, area: Area) -> Handle {
        let directories: Vec<Handle> = self.area(area).directories().map(|known| known.node).collect();
        *self.rng.pick(&directories).expect("the root of an area is always known")
    }

    /// A known node that passes, with its name.
    fn known(&mut self, area: Area, passes: fn(&Known) -> bool) -> Option<Known> {
        let nodes: Vec<Known> = self.area(area).known.iter().filter(|known| passes(known)).cloned().collect();
        self.rng.pick(&nodes).cloned()
    }

    /// A name to work on: mostly one that is known, sometimes any.
    fn place(&mut self, area: Area, passes: fn(&Known) -> bool) -> (Handle, Name) {
        let known = if self.rng.chance(4, 5) { self.known(area, passes) } else { None };
        match known.and_then(|known| known.name) {
            Some(place) => place,
            None => (self.directory(area), self.name()),
        }
    }

    fn lookup(&mut self, area: Area) -> Operation {
        let (directory, name) = self.place(area, |_| true);
        Operation::Lookup { directory, name, who: self.who() }
    }

    fn attributes(&mut self, area: Area) -> Operation {
        let known = self.known(area, |_| true).expect("the root of an area is always known");
        Operation::Attributes { node: known.node, file_type: known.file_type }
    }

    fn set_attributes(&mut self, area: Area) -> Operation {
        if self.rng.chance(1, 3) {
            return self.regroup_root(area);
        }
        let Some(known) = self.known(area, |known| known.name.is_some()) else { return self.create(area) };
        let mut change = AttributeChange::default();
        match self.rng.below(10) {
            0..5 => change.mode = Some(self.mode(known.file_type)),
            5 => change.uid = Some(Uid(self.rng.between(1000, 1001) as u32)),
            6 => change.gid = Some(Gid(self.rng.between(1, 2) as u32 * 100)),
            7 => change.modified = Some(TimeChange::To(Wall(self.rng.below(1 << 60) as i64))),
            _ => change.modified = Some(TimeChange::Now),
        }
        if known.file_type == FileType::Regular && self.rng.chance(1, 4) {
            let size_max = u64::from(self.options.write_bytes_max);
            change = AttributeChange { size: Some(self.rng.below(size_max)), ..AttributeChange::default() };
        }
        Operation::SetAttributes {
            node: known.node,
            file_type: known.file_type,
            who: self.who(),
            change,
            file: None,
        }
    }

    /// What is made in the root of an area inherits something else from now on. It stays open for everybody,
    /// or most operations would only be refused.
    fn regroup_root(&mut self, area: Area) -> Operation {
        let root = self.area(area).known.first().expect("the root of an area is always known").clone();
        let mut change = AttributeChange::default();
        match self.rng.below(3) {
            0 => change.gid = Some(Gid(self.rng.between(1, 2) as u32 * 100)),
            1 => change.mode = Some(Mode::new(0o777)),
            _ => change.mode = Some(Mode::new(0o2777)),
        }
        Operation::SetAttributes {
            node: root.node,
            file_type: root.file_type,
            who: Credentials::ROOT,
            change,
            file: None,
        }
    }

    /// Mostly open modes, so that the other users get somewhere.
    fn mode(&mut self, file_type: FileType) -> Mode {
        let directory = file_type == FileType::Directory;
        let modes: &[u32] = if directory {
            &[0o777, 0o777, 0o755, 0o1777, 0o700, 0o2775]
        } else {
            &[0o666, 0o644, 0o640, 0o600, 0o755, 0o6755, 0o2644]
        };
        Mode::new(*self.rng.pick(modes).expect("there are modes"))
    }

    fn create(&mut self, area: Area) -> Operation {
        let (file_type, target) = match self.rng.below(12) {
            0 => (FileType::Symlink, format!("n{}/n{}", self.rng.below(4), self.rng.below(4)).into_bytes()),
            1 => (FileType::Fifo, Vec::new()),
            _ => (FileType::Regular, Vec::new()),
        };
        let mode = if file_type == FileType::Symlink { Mode::new(0o777) } else { self.mode(file_type) };
        let new = NewNode { file_type, mode, device: 0, target };
        Operation::Create {
            directory: self.directory(area),
            name: self.name(),
            who: self.who(),
            new,
            open: false,
        }
    }

    fn make_directory(&mut self, area: Area) -> Operation {
        let mode = self.mode(FileType::Directory);
        Operation::MakeDirectory { directory: self.directory(area), name: self.name(), who: self.who(), mode }
    }

    fn unlink(&mut self, area: Area) -> Operation {
        let (directory, name) = self.place(area, |known| known.name.is_some() && !known.is_directory());
        Operation::Unlink { directory, name, who: self.who() }
    }

    fn remove_directory(&mut self, area: Area) -> Operation {
        let (directory, name) = self.place(area, |known| known.name.is_some() && known.is_directory());
        Operation::RemoveDirectory { directory, name, who: self.who() }
    }

    fn rename(&mut self, area: Area) -> Operation {
        let (source, source_name) = self.place(area, |known| known.name.is_some());
        let (target, target_name) = if self.rng.chance(1, 3) {
            self.place(area, |_| true)
        } else {
            (self.directory(area), self.name())
        };
        let mode = match self.rng.below(6) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        // An exchange needs something at both ends.
        let (target, target_name) = match mode {
            RenameMode::Exchange => self.place(area, |known| known.name.is_some()),
            RenameMode::Replace | RenameMode::NoReplace => (target, target_name),
        };
        Operation::Rename { source, source_name, target, target_name, who: self.who(), mode }
    }

    fn link(&mut self, area: Area) -> Operation {
        let Some(known) = self.known(area, |known| !known.is_directory()) else { return self.create(area) };
        Operation::Link {
            node: known.node,
            directory: self.directory(area),
            name: self.name(),
            who: self.who(),
        }
    }

    fn read_link(&mut self, area: Area) -> Operation {
        match self.known(area, |known| known.file_type == FileType::Symlink) {
            Some(known) => Operation::ReadLink { node: known.node },
            None => self.create(area),
        }
    }

    /// Few names on few nodes, so that they meet.
    fn xattr(&mut self, area: Area) -> Operation {
        let known = self.known(area, |_| true).expect("the root of an area is always known");
        let (node, file_type, who) = (known.node, known.file_type, self.who());
        if self.rng.chance(1, 3) {
            return self.access_list(known, who);
        }
        let names: [&[u8]; 5] = [b"user.a", b"user.b", b"user.a", b"trusted.t", b"security.s"];
        let name = *self.rng.pick(&names).expect("there are names");
        let name = XattrName::new(name).expect("a plain name");
        let change = match self.rng.below(10) {
            0..3 => return Operation::Xattr { node, file_type, who, name },
            3 => return Operation::Xattrs { node, file_type, who },
            4 => XattrChange::Remove,
            at => {
                let modes = [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                let mode = if at > 7 { modes[at as usize - 7] } else { XattrMode::Any };
                // Now and then more than a datagram takes.
                let length = if self.rng.chance(1, 10) { 9_000 } else { self.rng.below(30) };
                let mark = self.rng.next().to_le_bytes();
                XattrChange::Set { value: mark.into_iter().cycle().take(length as usize).collect(), mode }
            }
        };
        Operation::SetXattr { node, file_type, who, name, change }
    }

    /// An access control list is read, set or removed. That of the root of an area gives everybody
    /// everything, as its permission bits do.
    fn access_list(&mut self, known: Known, who: Credentials) -> Operation {
        let default = known.is_directory() && self.rng.chance(1, 2);
        let space = if default { XattrSpace::DefaultList } else { XattrSpace::AccessList };
        let name = XattrName::of_list(space).expect("the name of a list");
        let (node, file_type) = (known.node, known.file_type);
        let change = match self.rng.below(10) {
            0 | 1 => return Operation::Xattr { node, file_type, who, name },
            2 | 3 => XattrChange::Remove,
            _ => {
                let open = known.name.is_none() && !default;
                let value = self.list_of(open).encode();
                XattrChange::Set { value, mode: XattrMode::Any }
            }
        };
        Operation::SetXattr { node, file_type, who, name, change }
    }

    /// A list, now and then one that lacks what it must have.
    fn list_of(&mut self, open: bool) -> List {
        let mut list = vec![(Who::Owner, 7)];
        for uid in [1000, 1001] {
            if self.rng.chance(1, 2) {
                list.push((Who::User(uid), self.rights(open)));
            }
        }
        list.push((Who::Group, self.rights(open)));
        for gid in [100, 200] {
            if self.rng.chance(1, 3) {
                list.push((Who::OtherGroup(gid), self.rights(open)));
            }
        }
        let names_somebody = list.len() > 2;
        let lacks = !open && self.rng.chance(1, 20);
        if names_somebody && !lacks || self.rng.chance(1, 3) {
            list.push((Who::Mask, self.rights(open)));
        }
        list.push((Who::Others, self.rights(open)));
        List(list)
    }

    fn rights(&mut self, open: bool) -> u8 {
        if open || self.rng.chance(1, 2) { 7 } else { self.rng.below(8) as u8 }
    }

    fn tree(&mut self, area: Area) -> Action {
        let (directory, who, name) = (self.directory(area), self.who(), self.name());
        Action::Tree { directory, who, steps: tree::draw(&mut self.rng, name) }
    }

    fn list(&mut self, area: Area) -> Action {
        let count_max = *self.rng.pick(&[2, 3, 5, 100]).expect("there are sizes");
        Action::List { directory: self.directory(area), who: self.who(), count_max }
    }
}

impl Known {
    fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

impl Knowledge {
    fn directories(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(|known| known.is_directory())
    }

    /// What is known under a name, which is forgotten.
    fn take(&mut self, directory: NodeId, name: &Name) -> Vec<Known> {
        let is_it =
            |known: &Known| known.name.as_ref().is_some_and(|(at, of)| at.node == directory && of == name);
        let found = self.known.iter().filter(|known| is_it(known)).cloned().collect();
        self.forget(directory, name);
        found
    }

    fn forget(&mut self, directory: NodeId, name: &Name) {
        let is_it =
            |known: &Known| known.name.as_ref().is_some_and(|(at, of)| at.node == directory && of == name);
        self.known.retain(|known| !is_it(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Position;
    use std::collections::BTreeSet;

    fn handle(node: u64) -> Handle {
        Handle { node: NodeId(node), home: Position(node) }
    }

    fn generator(seed: u64) -> Generator {
        Generator::new(Seeded::new(seed), GeneratorOptions::default(), handle(2), handle(3))
    }

    /// Lets everything succeed, as if the generator were alone.
    fn run(seed: u64, count: u64) -> Vec<Action> {
        let mut generator = generator(seed);
        let mut actions = Vec::new();
        for at in 0..count {
            let action = generator.next_action();
            match &action {
                Action::One(Operation::Create { directory, name, new, .. }) => {
                    generator.learn(*directory, name, handle(100 + at), new.file_type);
                }
                Action::One(Operation::MakeDirectory { directory, name, .. }) => {
                    generator.learn(*directory, name, handle(100 + at), FileType::Directory);
                }
                Action::One(Operation::Unlink { directory, name, .. }) => {
                    generator.forget_name(directory.node, name)
                }
                _ => {}
            }
            actions.push(action);
        }
        actions
    }

    #[test]
    fn the_same_seed_draws_the_same_actions() {
        assert_eq!(run(1, 300), run(1, 300));
        assert_ne!(run(1, 300), run(2, 300));
    }

    #[test]
    fn every_kind_of_action_comes_within_a_few_hundred() {
        let kinds: BTreeSet<_> = run(4, 600)
            .iter()
            .map(|action| format!("{action:?}").trim_start_matches("One(")[..6].to_owned())
            .collect();
        assert_eq!(kinds.len(), 16, "{kinds:?}");
    }

    #[test]
    fn a_crowded_area_gets_no_more_directories() {
        let mut generator = generator(6);
        for at in 0..11 {
            for root in [handle(2), handle(3)] {
                let name = Name::new(format!("d{at}").as_bytes()).unwrap();
                generator.learn(root, &name, handle(root.node.0 * 1000 + at), FileType::Directory);
            }
        }
        let made = (0..500)
            .filter(|_| matches!(generator.next_action(), Action::One(Operation::MakeDirectory { .. })))
            .count();
        assert_eq!(made, 0);
    }

    #[test]
    fn what_is_forgotten_is_not_named_again() {
        let mut generator = generator(8);
        let name = Name::new(b"x").unwrap();
        generator.learn(handle(3), &name, handle(50), FileType::Regular);
        generator.forget_node(NodeId(50));
        let named = (0..300).map(|_| generator.next_action()).any(|action| {
            matches!(&action, Action::One(Operation::Attributes { node, .. } | Operation::Link { node, .. }) if node.node == NodeId(50))
        });
        assert!(!named);
    }
}
