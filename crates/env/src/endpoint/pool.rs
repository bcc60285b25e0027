//! Buffers that go round: handed out with incoming packets, given back by whoever is done with them.

/// Buffers kept at most.
const COUNT_MAX: usize = 512;
/// A buffer that has grown beyond this is freed, so that a few large packets do not hold memory for ever.
const BYTES_MAX: usize = 256 * 1024;

/// Empty buffers for reuse.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < COUNT_MAX && (1..=BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}
