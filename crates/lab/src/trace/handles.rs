//! Paths of files that a recording names by handles: learnt from what it says about names.
//!
//! Invariant: bounded. When there are too many, all are forgotten, and learnt anew; a handle whose name is
//! not known, or whose directories go round, stands below the root under its number.

use std::collections::HashMap;

/// So many are known at most: some 600 MB.
const HANDLES_MAX: usize = 3_000_000;
/// No tree is as deep: a recording that says otherwise goes round.
const DEPTH_MAX: usize = 512;

pub(super) struct Handles {
    /// Each with the directory that it is in, and its name there.
    named: HashMap<u64, (u64, Box<str>)>,
    /// The other way round: by the hash of a directory and a name.
    by_name: HashMap<u64, u64>,
    root: Option<u64>,
    most: usize,
}

impl Default for Handles {
    fn default() -> Handles {
        Handles::of_at_most(HANDLES_MAX)
    }
}

impl Handles {
    /// Without a root, and of so many handles.
    pub fn of_at_most(most: usize) -> Handles {
        Handles { named: HashMap::new(), by_name: HashMap::new(), root: None, most }
    }

    /// With a root that is known.
    pub fn below(root: u64) -> Handles {
        Handles { root: Some(root), ..Handles::default() }
    }

    /// A handle is the file of this name.
    pub fn learn(&mut self, handle: u64, directory: u64, name: &str) {
        if handle == directory || matches!(name, "" | "." | "..") || Some(handle) == self.root {
            return;
        }
        if self.named.len() >= self.most && !self.named.contains_key(&handle) {
            self.named.clear();
            self.by_name.clear();
        }
        self.by_name.insert(key(directory, name), handle);
        let old = self.named.insert(handle, (directory, name.into()));
        // What has its old name by now is not forgotten.
        if let Some(old) = old.map(|(directory, name)| key(directory, &name))
            && old != key(directory, name)
            && self.by_name.get(&old) == Some(&handle)
        {
            self.by_name.remove(&old);
        }
    }

    /// A name in a directory became another one.
    pub fn rename(&mut self, (directory, name): (u64, &str), (to, new): (u64, &str)) {
        if let Some(handle) = self.by_name.get(&key(directory, name)) {
            self.learn(*handle, to, new);
        }
    }

    /// Whether it is known what has this name.
    pub fn knows_name(&self, directory: u64, name: &str) -> bool {
        self.by_name.contains_key(&key(directory, name))
    }

    /// Whether it has a name.
    pub fn knows(&self, handle: u64) -> bool {
        Some(handle) == self.root || self.named.contains_key(&handle)
    }

    /// Its path.
    pub fn path(&self, handle: u64) -> String {
        let mut names = Vec::new();
        let mut at = handle;
        while Some(at) != self.root {
            if names.len() == DEPTH_MAX {
                return format!("/#{handle:x}");
            }
            match self.named.get(&at) {
                Some((directory, name)) => {
                    names.push(name.to_string());
                    at = *directory;
                }
                None => {
                    names.push(format!("#{at:x}"));
                    break;
                }
            }
        }
        names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
    }

    /// The path of a name in a directory.
    pub fn child(&self, directory: u64, name: &str) -> String {
        match name {
            "" | "." => self.path(directory),
            ".." => self
                .named
                .get(&directory)
                .map_or_else(|| self.path(directory), |(above, _)| self.path(*above)),
            _ => self.path(directory) + "/" + name,
        }
    }
}

fn key(directory: u64, name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), directory)
}
