//! A tree of files that a program makes as tar(1) unpacks one, and removes as `rm -r` does: each step as soon
//! as the one before it is answered.

use crate::Seeded;
use bearing_types::{Mode, Name};

/// One step. Directories are numbered: 0 is the one in which the tree is made, the others follow in the order
/// in which they are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStep {
    /// Make a directory, which gets the next number.
    MakeDirectory {
        /// Where.
        parent: usize,
        /// Its name.
        name: Name,
        /// Its permission bits.
        mode: Mode,
    },
    /// Make a file.
    Create {
        /// Where.
        parent: usize,
        /// Its name.
        name: Name,
        /// Its permission bits.
        mode: Mode,
    },
    /// Remove a file.
    Unlink {
        /// Where.
        parent: usize,
        /// Its name.
        name: Name,
    },
    /// Remove a directory.
    RemoveDirectory {
        /// Where.
        parent: usize,
        /// Its name.
        name: Name,
        /// Its number, which nothing uses after that.
        directory: usize,
    },
}

impl TreeStep {
    /// Where it is done.
    pub fn parent(&self) -> usize {
        match self {
            TreeStep::MakeDirectory { parent, .. }
            | TreeStep::Create { parent, .. }
            | TreeStep::Unlink { parent, .. }
            | TreeStep::RemoveDirectory { parent, .. } => *parent,
        }
    }
}

/// Most directories below the first one of a tree.
const BELOW_MAX: u64 = 3;
/// Most files in a directory of a tree. A directory is worth being lent before it has so many.
const FILES_MAX: u64 = 8;

/// Draws a tree of this name, of its making and its removal. Some are only made.
pub(crate) fn draw(rng: &mut Seeded, name: Name) -> Vec<TreeStep> {
    let mut steps = vec![TreeStep::MakeDirectory { parent: 0, name: name.clone(), mode: Mode::new(0o755) }];
    // By directory: where it stands, its name, its files. Parents come before what is in them.
    let mut directories = vec![(0, name, Vec::new())];
    for number in 0..rng.below(BELOW_MAX + 1) {
        let parent = rng.between(1, directories.len() as u64) as usize;
        let name = plain('d', number);
        steps.push(TreeStep::MakeDirectory { parent, name: name.clone(), mode: Mode::new(0o755) });
        directories.push((parent, name, Vec::new()));
    }
    for (number, (_, _, files)) in directories.iter_mut().enumerate() {
        for file in 0..rng.below(FILES_MAX + 1) {
            let name = plain('f', file);
            files.push(name.clone());
            steps.push(TreeStep::Create { parent: number + 1, name, mode: Mode::new(0o644) });
        }
    }
    if rng.chance(1, 6) {
        return steps;
    }
    for (number, (parent, name, files)) in directories.into_iter().enumerate().rev() {
        let unlink = |name| TreeStep::Unlink { parent: number + 1, name };
        steps.extend(files.into_iter().map(unlink));
        steps.push(TreeStep::RemoveDirectory { parent, name, directory: number + 1 });
    }
    steps
}

fn plain(letter: char, number: u64) -> Name {
    Name::new(format!("{letter}{number}").as_bytes()).expect("a plain name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_removed_children_first() {
        let mut removed = 0;
        for seed in 0..100 {
            let steps = draw(&mut Seeded::new(seed), plain('t', 0));
            let mut entries = vec![0u32];
            for step in &steps {
                let parent = step.parent();
                assert!(parent < entries.len(), "{steps:?}");
                match step {
                    TreeStep::MakeDirectory { .. } => {
                        entries[parent] += 1;
                        entries.push(0);
                    }
                    TreeStep::Create { .. } => entries[parent] += 1,
                    TreeStep::Unlink { .. } => entries[parent] -= 1,
                    TreeStep::RemoveDirectory { directory, .. } => {
                        assert_eq!(entries[*directory], 0, "{steps:?}");
                        entries[parent] -= 1;
                    }
                }
            }
            removed += u32::from(entries.iter().all(|entries| *entries == 0));
        }
        assert!((70..100).contains(&removed), "{removed}");
    }
}
