//! Paths of files that a recording names by handles: learnt from what it says about names.
//!
//! Invariant: bounded. When there are too many, all are forgotten, and learnt anew; a handle whose name is
//! not known stands below the root under its number.

use std::collections::HashMap;

/// So many are known at most: some 600 MB.
const HANDLES_MAX: usize = 4_000_000;
/// No tree is as deep: a recording that says otherwise goes round.
const DEPTH_MAX: usize = 512;

pub(super) struct Handles {
    /// Each with the directory that it is in, and its name there.
    named: HashMap<u64, (u64, Box<str>)>,
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
        Handles { named: HashMap::new(), root: None, most }
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
        }
        self.named.insert(handle, (directory, name.into()));
    }

    /// Its path.
    pub fn path(&self, handle: u64) -> String {
        let mut names = Vec::new();
        let mut at = handle;
        while Some(at) != self.root && names.len() < DEPTH_MAX {
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
            _ => self.path(directory) + "/" + name,
        }
    }
}
