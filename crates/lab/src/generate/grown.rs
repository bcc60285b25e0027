//! Trees as they grow at users: a directory is made where there are directories already, most directories
//! have few files and some very many.

use super::shape::{DirectoryNumber, Shape, ShapeBuilder, ShapeError};
use bearing_workload::Seeded;

/// A directory has at least n files with probability offset / (n + offset): the inverse polynomial of degree
/// 2 and this offset (N. Agrawal et al., FAST 2007 and 2009).
const FILES_OFFSET: f64 = 2.36;
/// The distribution has no mean without an end. This one gives about 13 files a directory: users have 2.3 to
/// 13, the generator of HopsFS 16.
const FILES_BELOW: f64 = 1000.0;
/// One directory has this part of all files: the very large one that large trees have.
const LARGEST_PART: u64 = 50;
/// A directory attracts a further one like its directories and so many more (N. Agrawal et al., FAST 2007).
const ATTRACTION: u64 = 2;

/// A tree of so many files.
pub(super) fn grow(files: u64, rng: &mut Seeded) -> Result<Shape, ShapeError> {
    let mut tree = Growing { builder: ShapeBuilder::default(), parents: Vec::new() };
    let largest = files / LARGEST_PART;
    let mut left = files - largest;
    let mut directory = ShapeBuilder::ROOT;
    loop {
        let here = u64::from(files_drawn(rng)).min(left);
        tree.builder.files(directory, here as u32)?;
        left -= here;
        if left == 0 {
            break;
        }
        directory = tree.add(rng)?;
    }
    if largest > 0 {
        let directory = tree.add(rng)?;
        tree.builder.files(directory, u32::try_from(largest).map_err(|_| ShapeError::TooManyFiles)?)?;
    }
    Ok(tree.builder.finish())
}

/// A data set of images for training: directories of one class each.
pub(super) fn classes(files: u64, rng: &mut Seeded) -> Result<Shape, ShapeError> {
    let mut builder = ShapeBuilder::default();
    let top = builder.directory(ShapeBuilder::ROOT)?;
    let mut left = files;
    while left > 0 {
        // As many as the classes of ImageNet have.
        let here = rng.between(732, 1300).min(left);
        let class = builder.directory(top)?;
        builder.files(class, here as u32)?;
        left -= here;
    }
    Ok(builder.finish())
}

struct Growing {
    builder: ShapeBuilder,
    /// Of all directories but the root.
    parents: Vec<u32>,
}

impl Growing {
    /// Adds a directory to one that is drawn by its attraction: each directory counts so often and, as one
    /// of its directories is drawn, once more for each of them.
    fn add(&mut self, rng: &mut Seeded) -> Result<DirectoryNumber, ShapeError> {
        let directories = self.parents.len() as u64 + 1;
        let drawn = rng.below(ATTRACTION * directories + self.parents.len() as u64);
        let parent = match drawn.checked_sub(ATTRACTION * directories) {
            Some(child) => self.parents[child as usize],
            None => (drawn / ATTRACTION) as u32,
        };
        self.parents.push(parent);
        self.builder.directory(DirectoryNumber(parent))
    }
}

/// Only sums and quotients, which are the same on every machine.
fn files_drawn(rng: &mut Seeded) -> u32 {
    loop {
        let files = FILES_OFFSET / (1.0 - rng.fraction()) - FILES_OFFSET;
        if files < FILES_BELOW {
            return files as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_tree_looks_like_those_of_users() {
        let files = 200_000;
        for seed in 0..4 {
            let shape = grow(files, &mut Seeded::new(seed)).expect("within bounds");
            assert_eq!(shape.files(), files);
            let mean = files as f64 / shape.directories() as f64;
            assert!((11.0..16.0).contains(&mean), "{mean} files a directory");
            let mut counts: Vec<u32> = shape.iter().map(|(_, files)| files).collect();
            counts.sort_unstable();
            let median = counts[counts.len() / 2];
            assert!((1..=3).contains(&median), "{median} in the middle");
            assert_eq!(u64::from(counts[counts.len() - 1]), files / LARGEST_PART);
            let mut depths = vec![0u32];
            let mut directories = vec![0u32; shape.directories()];
            for (parent, _) in shape.iter().skip(1) {
                depths.push(depths[parent.0 as usize] + 1);
                directories[parent.0 as usize] += 1;
            }
            let depth = f64::from(depths.iter().sum::<u32>()) / depths.len() as f64;
            assert!((4.0..9.0).contains(&depth), "mean depth {depth}");
            let leaves = directories.iter().filter(|below| **below == 0).count() * 100 / directories.len();
            assert!((50..75).contains(&leaves), "{leaves} % have no directories");
            assert!(directories.iter().any(|below| *below > 50), "no directory has many");
        }
    }

    #[test]
    fn a_data_set_has_classes_of_about_a_thousand() {
        let shape = classes(100_000, &mut Seeded::new(1)).expect("within bounds");
        assert_eq!(shape.files(), 100_000);
        assert!((90..120).contains(&shape.directories()), "{}", shape.directories());
    }
}
