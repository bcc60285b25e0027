//! What filters hold: files, as published; or directories, at less than half the memory.
//!
//! In Bearing a home is chosen for a directory, and all of its files are there: a filter that holds the
//! directory once says as much as one that holds each of its files. With F files in a directory, B bits a
//! directory are B/F bits a file: 9 bits a directory are 3.9 bits a file at F = 2.3, less than half of the 8
//! published, and mislead less often (0.013 instead of 0.021 of the time).
//!
//! What it assumes:
//!
//! - All files of a directory have one home, and at least 2.25 files share a directory on average (with 9
//!   bits; below that, it takes more than half).
//! - A directory's key is stored at its home when the directory is made there, and removed when it goes:
//!   once, not once for each file.
//! - The home of a directory decides about its files: `Serve` means "the directory is here", and only its
//!   home says whether the file exists; `Absent` means that no server has the directory.
//! - A directory that is spread over several homes is stored at each. Filters then name several, so its
//!   queries go to all servers and end at any of its homes, which refers to the right one: right, but slow.
//! - Errors come together: a filter that misleads about a directory does so for all of its files. Their mean
//!   is what the formula says, their spread wider.
//!
//! Rejected: static structures for the published snapshots. A ribbon or fuse filter takes 1.05 to 1.13 *
//! log2(1/f0) bits instead of 1.44: 0.73 to 0.79 of the bytes, not half, and needs all keys to be made again
//! with every edition and cannot be compared by XOR; one retrieval structure for all replicas of a member
//! (Othello, Bloomier) needs log2(replicas) bits to name the home, which is what it saves in fingerprints: no
//! fewer bits at the same rate, and it is made anew whenever one of the servers in it publishes. A Bloom
//! filter with half of its bits set cannot be compressed.

use crate::query::FileKey;
use bearing_types::{NameHash, NodeId};

/// What a key of the filters stands for. One for all machines of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keying {
    /// A file, as published.
    File,
    /// A directory with all files in it. See the module for what it assumes.
    Directory,
}

/// Bits a key for [`Keying::Directory`]: one more than published, so that directories of 2.25 files take half
/// and still mislead less often.
pub const DIRECTORY_BITS: f64 = 9.0;

impl Keying {
    /// The key of a name in a directory.
    pub fn key(self, directory: NodeId, name: NameHash) -> FileKey {
        match self {
            Keying::File => FileKey::of(directory, name),
            Keying::Directory => {
                let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&directory.0.to_le_bytes(), 0x6469_7265);
                FileKey(hash)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::filter::{Bloom, Probe, Shape};
    use bearing_placement::Draws;
    use std::collections::BTreeSet;

    const SEED: u64 = 4;
    const FILES_EACH: usize = 20_000;
    /// Replicas of a member with 100 servers in groups of 9.
    const REPLICAS: u64 = 10;

    /// The files of one home, in directories of so many on average, between 1 and about twice that.
    fn files(home: u64, each: f64) -> Vec<(NodeId, NameHash)> {
        let mut draws = Draws(home);
        let mut files = Vec::new();
        for directory in 0.. {
            let spread = 2.0 * (each - 1.0) * (draws.below(10_001) as f64 / 10_000.0);
            let count = 1
                + spread.floor() as usize
                + usize::from(draws.below(1000) < (1000.0 * spread.fract()) as u64);
            let node = NodeId(home << 32 | directory);
            files.extend((0..count).map(|_| (node, NameHash::from_bits(draws.draw() >> 16))));
            if files.len() >= FILES_EACH {
                return files;
            }
        }
        files
    }

    fn filter(files: &[(NodeId, NameHash)], keying: Keying, bits: f64) -> Bloom {
        let keys: BTreeSet<FileKey> = files.iter().map(|(node, name)| keying.key(*node, *name)).collect();
        let mut filter = Bloom::new(Shape::for_keys(keys.len() as u64, bits, SEED).unwrap()).unwrap();
        keys.into_iter().for_each(|key| filter.insert(key));
        filter
    }

    /// Bytes a file of an array of replicas, and how often it misleads about files that are elsewhere
    /// (exactly one filter answers).
    fn measured(each: f64, keying: Keying, bits: f64) -> (f64, f64) {
        let homes: Vec<_> = (0..REPLICAS).map(|home| files(home, each)).collect();
        let filters: Vec<Bloom> = homes.iter().map(|files| filter(files, keying, bits)).collect();
        for (files, filter) in homes.iter().zip(&filters) {
            assert!(files.iter().all(|(node, name)| filter.may_hold(keying.key(*node, *name))));
        }
        let elsewhere: Vec<_> = (100..110).flat_map(|home| files(home, each)).collect();
        let misleads = |(node, name): &&(NodeId, NameHash)| {
            let probe = Probe::of(keying.key(*node, *name), SEED);
            filters.iter().filter(|filter| filter.may_hold_probe(probe)).count() == 1
        };
        let misled = elsewhere.iter().filter(misleads).count();
        let bytes: usize = filters.iter().map(|filter| filter.encode().len()).sum();
        let count: usize = homes.iter().map(Vec::len).sum();
        (bytes as f64 / count as f64, misled as f64 / elsewhere.len() as f64)
    }

    #[test]
    fn directories_take_half_the_bytes_of_files_and_mislead_less() {
        for each in [2.3, 4.0, 16.0] {
            let (published_bytes, published_rate) = measured(each, Keying::File, 8.0);
            let (bytes, rate) = measured(each, Keying::Directory, DIRECTORY_BITS);
            println!(
                "{each} files a directory: {published_bytes:.3} -> {bytes:.3} bytes a file ({:.3}), misled {published_rate:.4} -> {rate:.4}",
                bytes / published_bytes
            );
            assert!(bytes <= published_bytes / 2.0, "{each}: {bytes} of {published_bytes}");
            assert!(rate <= published_rate, "{each}: {rate}, published {published_rate}");
        }
    }

    #[test]
    fn names_in_one_directory_have_one_key_only_by_directory() {
        let [a, b] = [1, 2].map(NameHash::from_bits);
        let node = NodeId(7);
        assert_eq!(Keying::Directory.key(node, a), Keying::Directory.key(node, b));
        assert_ne!(Keying::File.key(node, a), Keying::File.key(node, b));
        assert_ne!(Keying::Directory.key(node, a), Keying::Directory.key(NodeId(8), a));
    }
}
