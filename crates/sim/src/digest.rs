//! One number over everything that happened: equal in every process that runs the same seed.

use xxhash_rust::xxh3::Xxh3;

/// See the module.
pub struct Digest(Xxh3);

impl Default for Digest {
    fn default() -> Digest {
        Digest(Xxh3::new())
    }
}

impl Digest {
    /// Takes bytes in, with their length, so that parts cannot be shifted against each other.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    /// Takes a number in.
    pub fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    /// The number so far.
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}
