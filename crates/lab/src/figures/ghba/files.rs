//! The files of a run: where each is, by what filters know it, and how popular it is.
//!
//! Invariants: files are numbered by popularity, 0 first; directory and home are drawn by hash, so that
//! neither says anything of popularity; all files of a directory have one home.

use super::assumed::{ACTIVE, FILES, Workload};
use bearing_lookup::bloom::Keying;
use bearing_lookup::{FileKey, Target};
use bearing_types::{NameHash, NodeId, Position, ServerId};
use bearing_workload::{Seeded, Zipf};

/// Files of a directory, on average. Assumed.
pub(super) const FILES_A_DIRECTORY: u64 = 4;

/// All files of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    pub(super) servers: u32,
    /// Files that were there from the start.
    pub(super) count: u64,
    /// Files of a directory, in tenths.
    pub(super) tenths_a_directory: u64,
    pub(super) keying: Keying,
    pub(super) seed: u64,
}

impl Files {
    /// Those that are asked for, the first ones.
    pub(super) fn active(&self) -> u64 {
        ((self.count as f64 * ACTIVE / FILES) as u64).max(1)
    }

    /// Directories that were there from the start.
    pub(super) fn directories(&self) -> u64 {
        (self.count * 10 / self.tenths_a_directory).max(1)
    }

    fn directory(&self, number: u64) -> u64 {
        match number.checked_sub(self.count) {
            // None is empty.
            None if number < self.directories() => number,
            None => hash(self.seed, number) % self.directories(),
            // What is new lies in new directories.
            Some(young) => self.directories() + young / FILES_A_DIRECTORY,
        }
    }

    /// The home of a file.
    pub(super) fn home(&self, number: u64) -> ServerId {
        ServerId(1 + (hash(!self.seed, self.directory(number)) % u64::from(self.servers)) as u32)
    }

    /// What filters know it by.
    pub(super) fn key(&self, number: u64) -> FileKey {
        self.keying.key(NodeId(self.directory(number)), NameHash::from_bits(number))
    }

    /// What a query for it says. The position is its home's number, for the truth: machines with filters do
    /// not look at it.
    pub(super) fn target(&self, number: u64) -> Target {
        Target { position: Position(u64::from(self.home(number).0)), file: self.key(number) }
    }
}

fn hash(seed: u64, number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), seed)
}

/// Draws files.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    zipf: Zipf,
    pub(super) rng: Seeded,
}

impl Popularity {
    pub(super) fn new(workload: Workload, active: u64, rng: Seeded) -> Popularity {
        Popularity { zipf: Zipf::new(active, workload.exponent), rng }
    }

    /// The number of the file that is asked for next.
    pub(super) fn draw(&mut self) -> u64 {
        self.zipf.rank(&mut self.rng)
    }
}

/// The sum of k^-s over the first `count` ranks: the first hundred one by one, the others by the integral.
fn mass(count: f64, exponent: f64) -> f64 {
    let exact = count.min(100.0);
    let sum: f64 = (1..=exact as u32).map(|rank| f64::from(rank).powf(-exponent)).sum();
    let area = |x: f64| {
        let power = 1.0 - exponent;
        if power.abs() < 1e-9 { x.ln() } else { x.powf(power) / power }
    };
    if count > exact { sum + area(count + 0.5) - area(exact + 0.5) } else { sum }
}

/// So many of `scaled` files draw the same share of the requests as the first `listed` of all active ones.
pub(super) fn scaled_list(workload: Workload, listed: f64, scaled: u64) -> u64 {
    let share = mass(listed, workload.exponent) / mass(ACTIVE, workload.exponent);
    let wanted = share * mass(scaled as f64, workload.exponent);
    let (mut low, mut high) = (1, scaled);
    while low < high {
        let middle = (low + high) / 2;
        if mass(middle as f64, workload.exponent) < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::assumed::{HP, RES};
    use super::*;

    const ALL: Files =
        Files { servers: 7, count: 4000, tenths_a_directory: 40, keying: Keying::Directory, seed: 3 };

    #[test]
    fn a_scaled_list_draws_the_share_of_requests_of_the_whole_one() {
        for workload in [HP, RES] {
            let scaled = 20_000;
            let list = scaled_list(workload, 64_000.0, scaled);
            let wanted = mass(64_000.0, workload.exponent) / mass(ACTIVE, workload.exponent);
            let mut popularity = Popularity::new(workload, scaled, Seeded::new(1));
            let hits = (0..40_000).filter(|_| popularity.draw() < list).count() as f64 / 40_000.0;
            assert!((hits - wanted).abs() < 0.02, "{}: {hits}, wanted {wanted}", workload.name);
        }
        assert_eq!(scaled_list(HP, ACTIVE, 500), 500);
    }

    #[test]
    fn files_of_a_directory_have_one_home_and_one_key_and_homes_are_even() {
        let mut homes = [0; 8];
        for number in 0..4000 {
            homes[ALL.home(number).0 as usize] += 1;
            let other = (number + 1..4000).find(|other| ALL.directory(*other) == ALL.directory(number));
            if let Some(other) = other {
                assert_eq!(ALL.target(number), ALL.target(other));
                let by_file = Files { keying: Keying::File, ..ALL };
                assert_ne!(by_file.key(number), by_file.key(other));
            }
        }
        assert!(homes[0] == 0 && homes[1..].iter().all(|count| (400..750).contains(count)), "{homes:?}");
        assert_eq!(ALL.directories(), 1000);
        assert!(ALL.directory(4003) == 1000 && ALL.directory(4004) == 1001, "young ones are apart");
    }
}
