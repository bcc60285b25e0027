//! The archive that `tar` unpacks: trees of the shapes that people have, the same bytes every time.

use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// A tar archive consists of blocks.
const BLOCK_BYTES: usize = 512;

/// How the files of the archive lie in directories, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// A hundred files of 512 bytes to 8 KiB in each directory
    Hundred,
    /// Sources: six files a directory, 20 KB on average, half of them below 4 KB
    Source,
    /// What npm installs: eight files a directory, 6 KB on average, half of them below 700 bytes
    NodeModules,
    /// 2.5 MB each, 250 in a directory
    Photos,
    /// ImageNet's training set: 1,300 files of 110 KB in each directory
    Imagenet,
}

/// Twentieths of the directories have so many files, and of the files so many bytes: of 3,638 directories of
/// Rust crates as cargo unpacks them (some of this project's dependencies, 2026).
const SOURCE: ([u32; 20], [u32; 20]) = (
    [0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 50],
    [
        20, 128, 323, 592, 902, 1138, 1523, 2040, 2654, 3269, 3998, 4908, 6160, 7871, 10146, 12614, 17672,
        25805, 44753, 245_000,
    ],
);
/// The same of 5,000 directories that npm makes for webpack and react-scripts.
const NODE_MODULES: ([u32; 20], [u32; 20]) = (
    [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 8, 9, 12, 20, 74],
    [
        56, 84, 97, 120, 168, 226, 309, 399, 498, 625, 779, 977, 1117, 1386, 1806, 2433, 3391, 5172, 9058,
        90_000,
    ],
);
/// Directories in a directory, where they lie in one another.
const FAN_OUT: u32 = 4;

/// What the archive has.
pub struct Archive {
    /// Directories, parents first.
    directories: Vec<String>,
    /// Files with their sizes.
    files: Vec<(String, u64)>,
}

/// The size of a small file by its number: 512 bytes to 8 KiB, about 4 KiB on average.
pub fn size_of(number: u32) -> u64 {
    512 + u64::from(mixed(number)) % 7_680
}

/// Numbers in another order.
fn mixed(number: u32) -> u32 {
    number.wrapping_mul(2_654_435_761) >> 16
}

impl Shape {
    /// How many files there are if nobody says.
    pub fn files(self) -> u32 {
        match self {
            Shape::Hundred | Shape::Source | Shape::NodeModules => 10_000,
            Shape::Imagenet => 2_600,
            Shape::Photos => 250,
        }
    }

    /// How many files a directory has by its number.
    fn files_in(self, directory: u32) -> u32 {
        let drawn = |of: &[u32; 20]| of[mixed(directory) as usize % of.len()];
        match self {
            Shape::Hundred => 100,
            Shape::Source => drawn(&SOURCE.0),
            Shape::NodeModules => drawn(&NODE_MODULES.0),
            Shape::Photos => 250,
            Shape::Imagenet => 1_300,
        }
    }

    /// The size of a file by its number.
    fn size_of(self, number: u32) -> u64 {
        let drawn = |of: &[u32; 20]| u64::from(of[mixed(number) as usize % of.len()]);
        match self {
            Shape::Hundred => size_of(number),
            Shape::Source => drawn(&SOURCE.1),
            Shape::NodeModules => drawn(&NODE_MODULES.1),
            Shape::Photos => 2_500_000,
            Shape::Imagenet => 110_000,
        }
    }

    /// Whether directories lie in one another.
    fn is_deep(self) -> bool {
        matches!(self, Shape::Source | Shape::NodeModules)
    }
}

impl Archive {
    /// Of a shape, with so many files.
    pub fn new(shape: Shape, count: u32) -> Archive {
        let mut archive = Archive { directories: vec!["tree/".to_owned()], files: Vec::new() };
        let mut number = 0;
        for directory in 0u32.. {
            if number >= count {
                break;
            }
            let parent = match shape.is_deep() {
                true => archive.directories[directory.div_ceil(FAN_OUT) as usize].clone(),
                false => "tree/".to_owned(),
            };
            let path = format!("{parent}dir.{directory}/");
            for _ in 0..shape.files_in(directory).min(count - number) {
                archive.files.push((format!("{path}file.{number}"), shape.size_of(number)));
                number += 1;
            }
            archive.directories.push(path);
        }
        archive
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    /// How many files there are.
    pub fn files(&self) -> u32 {
        self.files.len() as u32
    }

    /// How many directories there are.
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut out = BufWriter::new(file);
        let mut put = || -> std::io::Result<()> {
            for directory in &self.directories {
                out.write_all(&header(directory, 0, b'5'))?;
            }
            for (name, size) in &self.files {
                out.write_all(&header(name, *size, b'0'))?;
                let mut content = format!("{name}\n").into_bytes();
                content.resize(*size as usize, b'.');
                content.resize((*size as usize).next_multiple_of(BLOCK_BYTES), 0);
                out.write_all(&content)?;
            }
            out.write_all(&[0; 2 * BLOCK_BYTES])?;
            out.flush()
        };
        put().with_context(|| format!("write {}", path.display()))
    }
}

/// A header of POSIX's ustar format (IEEE Std 1003.1, pax, "ustar Interchange Format").
fn header(name: &str, size: u64, kind: u8) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, if kind == b'5' { b"0000755" } else { b"0000644" });
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{:011o}", 1_700_000_000).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_unpacks_what_was_meant() {
        for (shape, count) in [(Shape::Hundred, 150), (Shape::Source, 300), (Shape::NodeModules, 300)] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("a.tar");
            let archive = Archive::new(shape, count);
            archive.write(&path).expect("written");
            let status = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(directory.path()).status();
            assert!(status.expect("tar is there").success());
            assert_eq!(archive.files.len(), count as usize);
            for (name, size) in &archive.files {
                assert_eq!(directory.path().join(name).metadata().expect("a file").len(), *size, "{name}");
            }
        }
    }

    #[test]
    fn trees_are_as_deep_and_their_files_as_large_as_those_they_were_measured_on() {
        for (shape, files_each, bytes_each) in
            [(Shape::Source, 5.9, 19_601.0), (Shape::NodeModules, 8.3, 5_973.0)]
        {
            let archive = Archive::new(shape, shape.files());
            let each = f64::from(shape.files()) / archive.directories() as f64;
            assert!((each / files_each - 1.0).abs() < 0.2, "{shape:?}: {each} files a directory");
            let bytes = archive.bytes() as f64 / f64::from(shape.files());
            assert!((bytes / bytes_each - 1.0).abs() < 0.2, "{shape:?}: {bytes} bytes a file");
            let depths = archive.directories.iter().map(|path| path.matches('/').count());
            assert!((5..=10).contains(&depths.max().expect("directories")), "{shape:?}");
        }
        assert!(Archive::new(Shape::Photos, 250).files.iter().all(|(name, _)| name.len() < 100));
    }
}
