//! The shape of a tree: which directory lies in which, and how many files each has. Names and sizes are not
//! part of it.
//!
//! Invariants: directory 0 is the root; a directory comes after the one that it lies in; what a shape holds
//! is within the bounds below, however it was made.

use std::fmt;

/// A directory's number. 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryNumber(pub u32);

/// Most directories of a shape.
pub const DIRECTORIES_MAX: usize = 1 << 26;
/// Most files of a shape.
pub const FILES_MAX: u64 = 1 << 30;
/// The root lies at depth 0, no directory below this one: whole paths are kept of all directories.
pub const DEPTH_MAX: u16 = 256;

/// What a shape cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// A directory lies in one that has not been added.
    UnknownParent,
    /// A directory lies deeper than [`DEPTH_MAX`].
    TooDeep,
    /// There are more than [`DIRECTORIES_MAX`] directories.
    TooManyDirectories,
    /// There are more than [`FILES_MAX`] files.
    TooManyFiles,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::UnknownParent => f.write_str("the directory that it lies in is not known yet"),
            ShapeError::TooDeep => write!(f, "it lies deeper than {DEPTH_MAX} directories"),
            ShapeError::TooManyDirectories => write!(f, "there are more than {DIRECTORIES_MAX} directories"),
            ShapeError::TooManyFiles => write!(f, "there are more than {FILES_MAX} files"),
        }
    }
}

impl std::error::Error for ShapeError {}

/// See the module. It is made with a [`ShapeBuilder`] or read from a tree file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    parents: Vec<u32>,
    files: Vec<u32>,
    files_total: u64,
}

impl Shape {
    /// How many directories there are, the root too.
    pub fn directories(&self) -> usize {
        self.parents.len()
    }

    /// How many files there are.
    pub fn files(&self) -> u64 {
        self.files_total
    }

    /// By directory, in the order of their numbers: where it lies (the root in itself), and its files.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (DirectoryNumber, u32)> + ExactSizeIterator + '_ {
        self.parents.iter().zip(&self.files).map(|(parent, files)| (DirectoryNumber(*parent), *files))
    }
}

/// Takes directories and files as a walk meets them. The root is there from the beginning.
#[derive(Debug)]
pub struct ShapeBuilder {
    shape: Shape,
    depths: Vec<u16>,
}

impl Default for ShapeBuilder {
    fn default() -> ShapeBuilder {
        let shape = Shape { parents: vec![0], files: vec![0], files_total: 0 };
        ShapeBuilder { shape, depths: vec![0] }
    }
}

impl ShapeBuilder {
    /// The root's number.
    pub const ROOT: DirectoryNumber = DirectoryNumber(0);

    /// Adds a directory to a known one.
    pub fn directory(&mut self, parent: DirectoryNumber) -> Result<DirectoryNumber, ShapeError> {
        let depth = *self.depths.get(parent.0 as usize).ok_or(ShapeError::UnknownParent)?;
        if depth >= DEPTH_MAX {
            return Err(ShapeError::TooDeep);
        }
        if self.depths.len() >= DIRECTORIES_MAX {
            return Err(ShapeError::TooManyDirectories);
        }
        let number = self.depths.len() as u32;
        self.depths.push(depth + 1);
        self.shape.parents.push(parent.0);
        self.shape.files.push(0);
        Ok(DirectoryNumber(number))
    }

    /// Adds so many files to a known directory; whatever is no directory counts as a file.
    pub fn files(&mut self, parent: DirectoryNumber, count: u32) -> Result<(), ShapeError> {
        let files = self.shape.files.get_mut(parent.0 as usize).ok_or(ShapeError::UnknownParent)?;
        let total = self.shape.files_total + u64::from(count);
        if total > FILES_MAX {
            return Err(ShapeError::TooManyFiles);
        }
        self.shape.files_total = total;
        *files += count;
        Ok(())
    }

    /// What was added.
    pub fn finish(self) -> Shape {
        self.shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shape_cannot_hold_is_refused_and_leaves_it_as_it_was() {
        let mut builder = ShapeBuilder::default();
        let mut at = ShapeBuilder::ROOT;
        for _ in 0..DEPTH_MAX {
            at = builder.directory(at).expect("deep enough");
        }
        assert_eq!(builder.directory(at), Err(ShapeError::TooDeep));
        assert_eq!(builder.directory(DirectoryNumber(999)), Err(ShapeError::UnknownParent));
        assert_eq!(builder.files(DirectoryNumber(999), 1), Err(ShapeError::UnknownParent));
        builder.files(at, FILES_MAX as u32).expect("as many as there may be");
        assert_eq!(builder.files(ShapeBuilder::ROOT, 1), Err(ShapeError::TooManyFiles));
        let shape = builder.finish();
        assert_eq!((shape.directories(), shape.files()), (usize::from(DEPTH_MAX) + 1, FILES_MAX));
    }
}
