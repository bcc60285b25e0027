//! Names cached, at most so many: one that was not used lately goes first. They are found by directory and
//! name, by directory and the hash of a name, and by directory alone: a recall may mean any of them.

use super::held::Held;
use crate::tables::{NOWHERE, Place, Slots};
use bearing_proto::client::Handle;
use bearing_types::{FileType, IdHasher, IdMap, Mono, Name, NameHash, NameKey, NodeId, Position};
use hashbrown::HashTable;

/// A name and what it stands for.
#[derive(Debug)]
pub(crate) struct CachedName {
    pub name: Name,
    pub node: Handle,
    pub position: Position,
    pub held: Held,
    /// Until when the kernel may go by it: as long as any lease that it was told of, also when that is not
    /// the one held now.
    pub told_until: Mono,
    pub file_type: FileType,
    /// It is leased with all names of its directory: a recall of these ends it too.
    pub prefetched: bool,
    pub siblings: Siblings,
}

/// Names of one directory are chained, in no order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Siblings {
    directory: Place,
    next: Place,
    previous: Place,
}

impl Siblings {
    /// Of a name that is not held yet.
    pub const NONE: Siblings = Siblings { directory: NOWHERE, next: NOWHERE, previous: NOWHERE };
}

/// See the module. A name takes 90 bytes, its own if it is a long one, and some 60 for each directory.
#[derive(Debug)]
pub(crate) struct Names {
    places: HashTable<Place>,
    names: Slots<CachedName>,
    directories: Slots<Directory>,
    directory_places: IdMap<NodeId, Place>,
    count_max: usize,
}

/// A directory of which any name is here.
#[derive(Debug)]
struct Directory {
    node: NodeId,
    name_key: NameKey,
    first: Place,
}

impl Names {
    /// None yet, and at most so many.
    pub fn new(count_max: usize) -> Names {
        assert!(count_max > 0, "a cache for no names at all cannot hold what was just put in");
        assert!(count_max < NOWHERE as usize, "a cache has fewer than 2^32 - 1 names, not {count_max}");
        Names {
            places: HashTable::with_capacity(count_max),
            names: Slots::new(),
            directories: Slots::new(),
            directory_places: IdMap::default(),
            count_max,
        }
    }

    /// A name, which counts as used now.
    pub fn get(&mut self, directory: NodeId, key: NameKey, name: &Name) -> Option<&mut CachedName> {
        let place = self.place(directory, key, name)?;
        self.names.used(place);
        Some(&mut self.names[place])
    }

    /// Whether names of a directory that come with this key may be held. All grants of a filesystem have one
    /// key; were a server to say another, what is here could not be found by that, and what is recalled by
    /// that not be found here.
    pub fn may_hold(&self, directory: NodeId, key: NameKey) -> bool {
        let known = self.directory_places.get(&directory);
        known.is_none_or(|place| self.directories[*place].name_key == key)
    }

    /// Puts in a name that is not here yet, under a key that [`Names::may_hold`] allows; gives back what had
    /// to go for it, if anything.
    pub fn insert(
        &mut self,
        directory: NodeId,
        name_key: NameKey,
        mut cached: CachedName,
    ) -> Option<(NodeId, CachedName)> {
        debug_assert!(self.may_hold(directory, name_key), "names of a directory are held under one key");
        debug_assert!(self.place(directory, name_key, &cached.name).is_none(), "a name is here once");
        let full = self.names.len() == self.count_max;
        let gone = if full { self.names.idle() } else { None };
        let gone = gone.map(|idle| self.take(idle));
        let new = || self.directories.add(Directory { node: directory, name_key, first: NOWHERE });
        let place_of_directory = *self.directory_places.entry(directory).or_insert_with(new);
        let hash = NameHash::of(name_key, &cached.name);
        let first = &mut self.directories[place_of_directory].first;
        cached.siblings = Siblings { directory: place_of_directory, next: *first, previous: NOWHERE };
        let place = self.names.add(cached);
        let next = std::mem::replace(first, place);
        if next != NOWHERE {
            self.names[next].siblings.previous = place;
        }
        let (names, directories) = (&self.names, &self.directories);
        let rehash = |place: &Place| {
            let CachedName { name, siblings, .. } = &names[*place];
            let Directory { node, name_key, .. } = directories[siblings.directory];
            IdHasher::hash_of((node, NameHash::of(name_key, name)))
        };
        self.places.insert_unique(IdHasher::hash_of((directory, hash)), place, rehash);
        gone
    }

    /// Looks at the names of a directory that share a hash.
    pub fn each_of_hash(&mut self, directory: NodeId, hash: NameHash, mut look: impl FnMut(&mut CachedName)) {
        let Some(place_of_directory) = self.directory_places.get(&directory) else { return };
        let name_key = self.directories[*place_of_directory].name_key;
        for place in self.places.iter_hash(IdHasher::hash_of((directory, hash))) {
            let cached = &mut self.names[*place];
            let inside = cached.siblings.directory == *place_of_directory;
            if inside && NameHash::of(name_key, &cached.name) == hash {
                look(cached);
            }
        }
    }

    /// Looks at all names of a directory, in an order that says nothing but is the same in every run.
    pub fn each_in(&mut self, directory: NodeId, mut look: impl FnMut(&mut CachedName)) {
        let Some(place_of_directory) = self.directory_places.get(&directory) else { return };
        let mut next = self.directories[*place_of_directory].first;
        while next != NOWHERE {
            let cached = &mut self.names[next];
            look(cached);
            next = cached.siblings.next;
        }
    }

    /// Looks at all names, in an order that says nothing but is the same in every run.
    pub fn each(&mut self, mut look: impl FnMut(NodeId, &mut CachedName)) {
        for cached in self.names.iter_mut() {
            look(self.directories[cached.siblings.directory].node, cached);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.places.clear();
        self.names = Slots::new();
        self.directories = Slots::new();
        self.directory_places = IdMap::default();
    }

    fn place(&self, directory: NodeId, key: NameKey, name: &Name) -> Option<Place> {
        let place_of_directory = self.directory_places.get(&directory)?;
        if self.directories[*place_of_directory].name_key != key {
            return None;
        }
        let hash = NameHash::of(key, name);
        let is_it = |place: &Place| {
            let cached = &self.names[*place];
            cached.siblings.directory == *place_of_directory && cached.name == *name
        };
        self.places.find(IdHasher::hash_of((directory, hash)), is_it).copied()
    }

    fn take(&mut self, place: Place) -> (NodeId, CachedName) {
        let cached = self.names.take(place);
        let Siblings { directory, next, previous } = cached.siblings;
        let Directory { node, name_key, .. } = self.directories[directory];
        let hash = IdHasher::hash_of((node, NameHash::of(name_key, &cached.name)));
        self.places.find_entry(hash, |other| *other == place).expect("what has a place is found").remove();
        if next != NOWHERE {
            self.names[next].siblings.previous = previous;
        }
        match (previous, next) {
            (NOWHERE, NOWHERE) => {
                self.directories.take(directory);
                self.directory_places.remove(&node);
            }
            (NOWHERE, next) => self.directories[directory].first = next,
            (previous, next) => self.names[previous].siblings.next = next,
        }
        (node, cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const KEY: NameKey = NameKey(7);

    fn cached(name: Name, node: u64) -> CachedName {
        let node = Handle { node: NodeId(node), home: Position(node) };
        let (position, held, told_until) = (Position(1), Held::NONE, Mono::ZERO);
        let (file_type, siblings) = (FileType::Regular, Siblings::NONE);
        CachedName { name, node, position, held, told_until, file_type, prefetched: false, siblings }
    }

    #[test]
    fn a_name_takes_no_more_room_than_is_said() {
        // A mount's memory a cached entry is in docs/benchmarks/2026-11-22-memory-of-cached-entries.md.
        assert!(size_of::<Option<CachedName>>() <= 80, "{} bytes", size_of::<Option<CachedName>>());
    }

    #[test]
    fn names_under_another_key_are_neither_found_nor_to_be_held() {
        let mut names = Names::new(10);
        let name = Name::new(b"a").unwrap();
        assert!(names.may_hold(NodeId(1), NameKey(8)));
        names.insert(NodeId(1), KEY, cached(name.clone(), 5));
        assert!(names.may_hold(NodeId(1), KEY) && !names.may_hold(NodeId(1), NameKey(8)));
        assert!(names.get(NodeId(1), NameKey(8), &name).is_none());
        assert!(names.get(NodeId(1), KEY, &name).is_some());
        names.clear();
        assert!(names.may_hold(NodeId(1), NameKey(8)) && names.get(NodeId(1), KEY, &name).is_none());
    }

    #[test]
    fn names_that_share_a_hash_are_found_together_and_told_apart() {
        let [first, second] = [&b"908373"[..], b"16297641"].map(|bytes| Name::new(bytes).unwrap());
        let hash = NameHash::of(KEY, &first);
        assert_eq!(hash, NameHash::of(KEY, &second));
        let mut names = Names::new(3);
        names.insert(NodeId(1), KEY, cached(first.clone(), 1));
        names.insert(NodeId(1), KEY, cached(second.clone(), 2));
        names.insert(NodeId(2), KEY, cached(first.clone(), 3));
        names.each_of_hash(NodeId(1), hash, |cached| cached.prefetched = true);
        let mut seen = |directory, name| {
            let cached = names.get(NodeId(directory), KEY, name).unwrap();
            (cached.node.node.0, cached.prefetched)
        };
        assert_eq!((seen(1, &first), seen(1, &second), seen(2, &first)), ((1, true), (2, true), (3, false)));
        let gone = names.insert(NodeId(3), KEY, cached(second.clone(), 4)).map(|(_, gone)| gone.node.node.0);
        assert_eq!(gone, Some(1));
        let mut left = Vec::new();
        names.each_of_hash(NodeId(1), hash, |cached| left.push(cached.node.node.0));
        assert_eq!(left, [2]);
    }

    proptest! {
        // The oracle is a list; what goes is what it says and was there. Three directories, names of one and
        // of fifty bytes.
        #[test]
        fn they_are_found_in_every_way(
            steps in proptest::collection::vec((0u8..4, 1u64..4, 0u8..6, any::<u64>()), 0..200),
        ) {
            let mut names = Names::new(8);
            let mut oracle: Vec<((NodeId, Name), u64)> = Vec::new();
            for (what, directory, letter, value) in steps {
                let directory = NodeId(directory);
                let name = Name::new(&vec![b'a' + letter; if letter % 2 == 0 { 1 } else { 50 }]).unwrap();
                let hash = NameHash::of(KEY, &name);
                let known = oracle.iter().position(|(key, _)| *key == (directory, name.clone()));
                let known = known.map(|at| oracle.remove(at));
                let seen = names.get(directory, KEY, &name).map(|cached| cached.node.node.0);
                prop_assert_eq!(seen, known.as_ref().map(|(_, value)| *value));
                if known.is_none() && what < 2 {
                    let full = oracle.len() == 8;
                    let seen = names.insert(directory, KEY, cached(name.clone(), value));
                    let seen = seen.map(|(node, cached)| ((node, cached.name), cached.node.node.0));
                    prop_assert_eq!(seen.is_some(), full);
                    if let Some(gone) = seen {
                        let at = oracle.iter().position(|known| *known == gone);
                        prop_assert!(at.is_some(), "{:?} went", gone);
                        oracle.remove(at.unwrap());
                    }
                    oracle.push(((directory, name.clone()), value));
                }
                oracle.extend(known);
                let sorted: BTreeMap<_, _> = oracle.iter().cloned().collect();
                let mut all = BTreeMap::new();
                names.each(|node, cached| {
                    all.insert((node, cached.name.clone()), cached.node.node.0);
                });
                prop_assert_eq!(&all, &sorted);
                let directories: BTreeSet<NodeId> = sorted.keys().map(|(directory, _)| *directory).collect();
                prop_assert_eq!((names.directories.len(), names.directory_places.len()), (directories.len(), directories.len()));
                prop_assert!(names.names.slots() <= 8 && names.directories.slots() <= 4, "slots are used again");
                let mut inside = BTreeMap::new();
                names.each_in(directory, |cached| {
                    inside.insert((directory, cached.name.clone()), cached.node.node.0);
                });
                let expected: BTreeMap<_, _> =
                    sorted.iter().filter(|(key, _)| key.0 == directory).map(|(key, value)| (key.clone(), *value)).collect();
                prop_assert_eq!(inside, expected);
                let mut of_hash = Vec::new();
                names.each_of_hash(directory, hash, |cached| of_hash.push((cached.name.clone(), cached.node.node.0)));
                let expected: Vec<_> = sorted.get(&(directory, name.clone())).map(|value| (name, *value)).into_iter().collect();
                prop_assert_eq!(of_hash, expected);
            }
        }
    }
}
