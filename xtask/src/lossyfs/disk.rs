//! A disk in memory that forgets: what files and directories hold now, what of it is synced, and what
//! happened in between.
//!
//! Invariants: what `sync_file` or `sync_names` was called for survives every cut. Of the rest a cut keeps
//! what its seed says: of a file any of the 512-byte sectors that were written, whichever came first; of
//! names, changes in the order in which each directory saw them, each whole (a rename is both its names or
//! none). Syncing a file does not sync its name. It knows no kernel and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::draw::Draw;

const PAGE: u64 = 4096;
/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;
/// The root directory.
pub const ROOT: u64 = 1;

/// A node's number.
pub type Ino = u64;
/// Names and what they lead to.
pub type Names = BTreeMap<Vec<u8>, Ino>;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Directory,
    /// A path.
    Link,
    /// A place where a program listens.
    Socket,
}

/// Bytes, stored only where something was written.
#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeMap<u64, Arc<[u8; PAGE as usize]>>,
    length: u64,
}

/// What was done to a file since it was synced.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Cut { length: u64 },
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    now: Content,
    synced: Content,
    changes: Vec<Change>,
    names: Names,
    names_synced: Names,
}

/// Names that change together.
type NameChange = Vec<(Ino, Vec<u8>, Option<Ino>)>;

/// See the module.
pub struct Disk {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
    changed_names: Vec<NameChange>,
}

/// What becomes of what was not synced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    Torn,
}

impl Fate {
    fn of(draw: &mut Draw) -> Fate {
        match draw.below(4) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            _ => Fate::Torn,
        }
    }

    fn keeps(self, draw: &mut Draw) -> bool {
        match self {
            Fate::Lost => false,
            Fate::Kept => true,
            Fate::Torn => draw.below(2) == 0,
        }
    }
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (page, from) = (at / PAGE, (at % PAGE) as usize);
            let count = rest.len().min(PAGE as usize - from);
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[from..from + count].copy_from_slice(&rest[..count]);
            at += count as u64;
            rest = &rest[count..];
        }
        self.length = self.length.max(at);
    }

    fn read(&self, offset: u64, count: u64) -> Vec<u8> {
        let end = offset.saturating_add(count).min(self.length);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        let (mut at, mut done) = (offset, 0);
        while at < end {
            let (page, from) = (at / PAGE, (at % PAGE) as usize);
            let count = ((end - at) as usize).min(PAGE as usize - from);
            if let Some(page) = self.pages.get(&page) {
                bytes[done..done + count].copy_from_slice(&page[from..from + count]);
            }
            at += count as u64;
            done += count;
        }
        bytes
    }

    fn cut(&mut self, length: u64) {
        if length < self.length {
            self.pages.retain(|page, _| page * PAGE < length);
            if let Some(page) = self.pages.get_mut(&(length / PAGE)) {
                Arc::make_mut(page)[(length % PAGE) as usize..].fill(0);
            }
        }
        self.length = length;
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Cut { length } => self.cut(*length),
        }
    }

    /// Any of the sectors that were written.
    fn apply_torn(&mut self, change: &Change, draw: &mut Draw) {
        match change {
            Change::Cut { length } => {
                if Fate::Torn.keeps(draw) {
                    self.cut(*length);
                }
            }
            Change::Write { offset, bytes } => {
                let mut from = 0;
                while from < bytes.len() as u64 {
                    let end = ((offset + from) / SECTOR + 1) * SECTOR - offset;
                    let end = end.min(bytes.len() as u64);
                    if Fate::Torn.keeps(draw) {
                        self.write(offset + from, &bytes[from as usize..end as usize]);
                    }
                    from = end;
                }
            }
        }
    }
}

impl Node {
    fn new(kind: Kind, mode: u32, uid: u32, gid: u32) -> Node {
        Node {
            kind,
            mode,
            uid,
            gid,
            now: Content::default(),
            synced: Content::default(),
            changes: Vec::new(),
            names: Names::new(),
            names_synced: Names::new(),
        }
    }

    /// Bytes that it holds now.
    pub fn length(&self) -> u64 {
        self.now.length
    }

    /// Bytes that it takes on the disk.
    pub fn stored(&self) -> u64 {
        self.now.pages.len() as u64 * PAGE
    }

    /// What is in it now, if it is a directory.
    pub fn names(&self) -> &Names {
        &self.names
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.changes.push(change);
    }
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Disk {
        let root = Node::new(Kind::Directory, 0o755, 0, 0);
        Disk { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, changed_names: Vec::new() }
    }

    /// A node.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// The same, to change its attributes.
    pub fn node_mut(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino)
    }

    /// What a name leads to.
    pub fn find(&self, directory: Ino, name: &[u8]) -> Option<Ino> {
        self.nodes.get(&directory)?.names.get(name).copied()
    }

    /// How many names lead to a node.
    pub fn links(&self, ino: Ino) -> u32 {
        let all = self.nodes.values().flat_map(|node| node.names.values());
        all.filter(|named| **named == ino).count() as u32
    }

    /// Makes a node and its name. `None`: the name is taken.
    pub fn make(
        &mut self,
        directory: Ino,
        name: &[u8],
        kind: Kind,
        mode: u32,
        owner: (u32, u32),
    ) -> Option<Ino> {
        if self.find(directory, name).is_some() {
            return None;
        }
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, Node::new(kind, mode, owner.0, owner.1));
        self.change_names(vec![(directory, name.to_vec(), Some(ino))]);
        Some(ino)
    }

    /// Names change together; what a name led to before is replaced.
    pub fn change_names(&mut self, change: NameChange) {
        put(&mut self.nodes, &change, |node| &mut node.names);
        self.changed_names.push(change);
    }

    /// Bytes of a file.
    pub fn read(&self, ino: Ino, offset: u64, count: u64) -> Option<Vec<u8>> {
        Some(self.nodes.get(&ino)?.now.read(offset, count))
    }

    /// Writes bytes.
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Option<()> {
        self.nodes.get_mut(&ino)?.change(Change::Write { offset, bytes: bytes.to_vec() });
        Some(())
    }

    /// Sets a file's length.
    pub fn cut_file(&mut self, ino: Ino, length: u64) -> Option<()> {
        self.nodes.get_mut(&ino)?.change(Change::Cut { length });
        Some(())
    }

    /// What was done to a file survives from now on.
    pub fn sync_file(&mut self, ino: Ino) -> Option<()> {
        let node = self.nodes.get_mut(&ino)?;
        for change in std::mem::take(&mut node.changes) {
            node.synced.apply(&change);
        }
        Some(())
    }

    /// What was done to a directory's names survives from now on; and what was done before to directories
    /// that share a rename with it.
    pub fn sync_names(&mut self, directory: Ino) {
        let mut concerned = BTreeSet::from([directory]);
        let mut chosen = vec![false; self.changed_names.len()];
        for (at, change) in self.changed_names.iter().enumerate().rev() {
            if change.iter().any(|(of, ..)| concerned.contains(of)) {
                chosen[at] = true;
                concerned.extend(change.iter().map(|(of, ..)| *of));
            }
        }
        let mut left = Vec::new();
        for (change, is_chosen) in std::mem::take(&mut self.changed_names).into_iter().zip(chosen) {
            if is_chosen {
                put(&mut self.nodes, &change, |node| &mut node.names_synced);
            } else {
                left.push(change);
            }
        }
        self.changed_names = left;
    }

    /// The power is cut: of what was not synced, what the seed says is left.
    pub fn cut_power(&mut self, seed: u64) {
        let mut draw = Draw(seed);
        let fate = Fate::of(&mut draw);
        let mut ended = BTreeSet::new();
        for change in std::mem::take(&mut self.changed_names) {
            let goes_on = !change.iter().any(|(of, ..)| ended.contains(of));
            if goes_on && fate.keeps(&mut draw) {
                put(&mut self.nodes, &change, |node| &mut node.names_synced);
            } else {
                ended.extend(change.iter().map(|(of, ..)| *of));
            }
        }
        for node in self.nodes.values_mut() {
            let fate = Fate::of(&mut draw);
            for change in std::mem::take(&mut node.changes) {
                match fate {
                    Fate::Lost => {}
                    Fate::Kept => node.synced.apply(&change),
                    Fate::Torn => node.synced.apply_torn(&change, &mut draw),
                }
            }
            node.now = node.synced.clone();
            node.names = node.names_synced.clone();
        }
        self.collect();
    }

    /// Nodes that no name leads to are gone.
    fn collect(&mut self) {
        let (mut reached, mut left) = (BTreeSet::from([ROOT]), vec![ROOT]);
        while let Some(node) = left.pop().and_then(|ino| self.nodes.get(&ino)) {
            left.extend(node.names.values().copied().filter(|ino| reached.insert(*ino)));
        }
        self.nodes.retain(|ino, _| reached.contains(ino));
    }
}

fn put(nodes: &mut BTreeMap<Ino, Node>, change: &NameChange, names: fn(&mut Node) -> &mut Names) {
    for (directory, name, leads_to) in change {
        let Some(node) = nodes.get_mut(directory) else { continue };
        match leads_to {
            Some(ino) => names(node).insert(name.clone(), *ino),
            None => names(node).remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: (u32, u32) = (0, 0);

    fn with_file(name: &[u8]) -> (Disk, Ino) {
        let mut disk = Disk::new();
        let file = disk.make(ROOT, name, Kind::File, 0o644, OWNER).unwrap();
        disk.sync_names(ROOT);
        (disk, file)
    }

    #[test]
    fn what_was_synced_survives_every_cut() {
        for seed in 0..200 {
            let (mut disk, file) = with_file(b"f");
            disk.write(file, 100, &[7; 9000]).unwrap();
            disk.sync_file(file).unwrap();
            disk.write(file, 9100, &[8; 5000]).unwrap();
            disk.make(ROOT, b"g", Kind::File, 0o644, OWNER).unwrap();
            disk.cut_power(seed);
            assert_eq!(disk.find(ROOT, b"f"), Some(file));
            let bytes = disk.read(file, 0, 9100).unwrap();
            assert!(bytes[..100].iter().all(|byte| *byte == 0) && bytes[100..].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn what_was_not_synced_is_lost_kept_and_torn_at_sectors() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let (mut disk, file) = with_file(b"f");
            disk.write(file, 0, &[1; 4 * SECTOR as usize]).unwrap();
            disk.sync_file(file).unwrap();
            disk.write(file, 0, &[2; 4 * SECTOR as usize]).unwrap();
            disk.cut_power(seed);
            let bytes = disk.read(file, 0, u64::MAX).unwrap();
            let sectors: Vec<u8> = bytes.chunks(SECTOR as usize).map(|sector| sector[0]).collect();
            assert!(bytes.chunks(SECTOR as usize).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            match sectors.iter().filter(|byte| **byte == 2).count() {
                0 => lost += 1,
                4 => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
    }

    #[test]
    fn names_go_in_order_and_a_rename_is_whole() {
        let (mut both, mut neither) = (0, 0);
        for seed in 0..200 {
            let (mut disk, file) = with_file(b"f");
            let other = disk.make(ROOT, b"d", Kind::Directory, 0o755, OWNER).unwrap();
            disk.sync_names(ROOT);
            disk.change_names(vec![(ROOT, b"f".to_vec(), None), (other, b"g".to_vec(), Some(file))]);
            disk.make(ROOT, b"later", Kind::File, 0o644, OWNER).unwrap();
            disk.cut_power(seed);
            let found = (disk.find(ROOT, b"f"), disk.find(other, b"g"), disk.find(ROOT, b"later"));
            match found {
                (Some(_), None, None) => neither += 1,
                (None, Some(_), _) => both += 1,
                torn => panic!("{torn:?} after seed {seed}"),
            }
        }
        assert!(both > 20 && neither > 20, "{both} {neither}");
    }

    #[test]
    fn the_sync_of_a_file_is_not_that_of_its_name() {
        let mut disk = Disk::new();
        let file = disk.make(ROOT, b"f", Kind::File, 0o644, OWNER).unwrap();
        disk.write(file, 0, b"x").unwrap();
        disk.sync_file(file).unwrap();
        let lost = (0..50).any(|seed| {
            let mut disk = Disk::new();
            let file = disk.make(ROOT, b"f", Kind::File, 0o644, OWNER).unwrap();
            disk.sync_file(file).unwrap();
            disk.cut_power(seed);
            disk.find(ROOT, b"f").is_none()
        });
        assert!(lost);
        disk.sync_names(ROOT);
        disk.cut_power(3);
        assert_eq!(disk.read(file, 0, 10).unwrap(), b"x");
    }

    #[test]
    fn a_file_that_is_cut_and_grows_again_holds_zeros() {
        let (mut disk, file) = with_file(b"f");
        disk.write(file, 0, &[5; 6000]).unwrap();
        disk.cut_file(file, 10).unwrap();
        disk.cut_file(file, 5000).unwrap();
        let bytes = disk.read(file, 0, 9000).unwrap();
        assert_eq!(bytes.len(), 5000);
        assert!(bytes[..10].iter().all(|byte| *byte == 5) && bytes[10..].iter().all(|byte| *byte == 0));
    }
}
