//! Bytes that wait for a socket, in the order in which they go out.
//!
//! Invariant: what was handed over is not copied. Small things share a buffer, which never grows once it is
//! in the queue.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// Room of a buffer that small things share.
const SHARED_BYTES: usize = 16 * 1024;
/// Buffers that are given to the system at once.
const SLICES_MAX: usize = 16;

enum Buffer {
    /// Small things are added to it.
    Own(Vec<u8>),
    /// Others may be sending it too.
    Shared(Arc<Vec<u8>>),
}

impl Buffer {
    fn bytes(&self) -> &Vec<u8> {
        match self {
            Buffer::Own(bytes) => bytes,
            Buffer::Shared(bytes) => bytes,
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Queue {
    buffers: VecDeque<Buffer>,
    /// Of the first buffer.
    first_sent: usize,
    /// Since the beginning.
    sent: u64,
    queued: u64,
}

impl Queue {
    /// Bytes that were ever queued.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Of these, how many have gone.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        (self.queued - self.sent) as usize
    }

    /// Memory of all buffers.
    pub fn capacity(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.bytes().capacity()).sum()
    }

    /// Copies of these follow.
    pub fn push(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let has_room = |buffer: &Buffer| match buffer {
            Buffer::Own(buffer) => buffer.capacity() - buffer.len() >= bytes,
            Buffer::Shared(_) => false,
        };
        if !self.buffers.back().is_some_and(has_room) {
            self.buffers.push_back(Buffer::Own(Vec::with_capacity(bytes.max(SHARED_BYTES))));
        }
        if let Some(Buffer::Own(buffer)) = self.buffers.back_mut() {
            parts.iter().for_each(|part| buffer.extend_from_slice(part));
        }
        self.queued += bytes as u64;
    }

    /// This follows.
    pub fn push_shared(&mut self, bytes: Arc<Vec<u8>>) {
        self.queued += bytes.len() as u64;
        self.buffers.push_back(Buffer::Shared(bytes));
    }

    /// What goes next.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let skipped = |index| if index == 0 { self.first_sent } else { 0 };
        let buffers = self.buffers.iter().take(SLICES_MAX).enumerate();
        buffers.map(|(index, buffer)| IoSlice::new(&buffer.bytes()[skipped(index)..])).collect()
    }

    /// So many bytes have gone.
    pub fn was_sent(&mut self, mut count: usize) {
        self.sent += count as u64;
        while let Some(first) = self.buffers.front() {
            let left = first.bytes().len() - self.first_sent;
            if count < left {
                self.first_sent += count;
                return;
            }
            count -= left;
            self.first_sent = 0;
            self.buffers.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_queued_goes_out_once_and_in_order(
            pushed in prop::collection::vec((any::<bool>(), 0usize..40_000), 1..20),
            counts in prop::collection::vec(1usize..50_000, 1..60),
        ) {
            let (mut queue, mut expected, mut gone) = (Queue::default(), Vec::new(), Vec::new());
            let mut counts = counts.into_iter().cycle();
            for (number, (owned, bytes)) in (0u8..).zip(pushed) {
                let bytes = vec![number; bytes];
                expected.extend_from_slice(&bytes);
                if owned { queue.push_shared(bytes.into()) } else { queue.push(&[&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]]) }
                send(&mut queue, counts.next().unwrap(), &mut gone);
            }
            while queue.waiting() > 0 {
                send(&mut queue, counts.next().unwrap(), &mut gone);
            }
            prop_assert!(gone == expected);
            prop_assert_eq!((queue.sent(), queue.queued()), (gone.len() as u64, gone.len() as u64));
        }
    }

    fn send(queue: &mut Queue, count: usize, gone: &mut Vec<u8>) {
        let next: Vec<u8> = queue.slices().iter().flat_map(|slice| slice.to_vec()).take(count).collect();
        queue.was_sent(next.len());
        gone.extend(next);
    }
}
