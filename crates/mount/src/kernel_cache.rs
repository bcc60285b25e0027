//! What a kernel (or another cache above the machine) must be made to forget, on a thread of its own.
//!
//! Invariants: invalidations run outside every lock, one after the other, in the order in which the machine gave them. The machine hears that
//! one is done only when it is; one that failed is never reported, so the server waits until the lease is over, by when the kernel's
//! timeouts are over too.

use bearing_client::Invalidation;
use bearing_types::{Name, NodeId};
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

/// A cache above the machine. Calls may take as long as a kernel's locks are held.
///
/// The cache sees to it that an answer which was given before an invalidation does not reach it afterwards.
pub trait KernelCache: Send + Sync {
    /// Forgets what a name in a directory means.
    fn invalidate_entry(&self, directory: NodeId, name: &Name) -> io::Result<()>;

    /// Forgets a node's attributes and content.
    fn invalidate_node(&self, node: NodeId) -> io::Result<()>;
}

/// Things to forget, under the machine's number.
pub(crate) struct Job {
    /// Goes back to the machine.
    pub number: u64,
    /// What to forget.
    pub what: Vec<Invalidation>,
}

/// The cache, once there is one.
#[derive(Default)]
pub(crate) struct CacheSlot(Mutex<Option<Arc<dyn KernelCache>>>);

impl CacheSlot {
    /// Puts a cache in, or takes it out.
    pub fn set(&self, cache: Option<Arc<dyn KernelCache>>) {
        *self.0.lock().expect("no thread panics while it holds the slot") = cache;
    }

    fn get(&self) -> Option<Arc<dyn KernelCache>> {
        self.0.lock().expect("no thread panics while it holds the slot").clone()
    }

    /// Forgets; without a cache nothing is remembered above the machine.
    fn forget(&self, what: &[Invalidation]) -> io::Result<()> {
        let Some(cache) = self.get() else { return Ok(()) };
        let forget = |thing: &Invalidation| match thing {
            Invalidation::Entry { directory, name } => cache.invalidate_entry(*directory, name),
            Invalidation::Node { node } => cache.invalidate_node(*node),
        };
        // A failure does not keep the rest from being forgotten.
        what.iter().map(forget).fold(Ok(()), io::Result::and)
    }
}

/// Runs jobs until no more can come; `done` hears of each whether all was forgotten.
pub(crate) fn run(jobs: &Receiver<Job>, cache: &CacheSlot, mut done: impl FnMut(u64, io::Result<()>)) {
    while let Ok(Job { number, what }) = jobs.recv() {
        done(number, cache.forget(&what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl KernelCache for Recorder {
        fn invalidate_entry(&self, directory: NodeId, name: &Name) -> io::Result<()> {
            self.0.lock().unwrap().push(format!("{directory}/{name}"));
            Ok(())
        }

        fn invalidate_node(&self, node: NodeId) -> io::Result<()> {
            if node == NodeId(13) {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            self.0.lock().unwrap().push(node.to_string());
            Ok(())
        }
    }

    #[test]
    fn invalidations_run_in_order_and_failures_are_told() {
        let (slot, recorder) = (CacheSlot::default(), Arc::new(Recorder::default()));
        let (sender, jobs) = channel();
        let node = |node| Invalidation::Node { node: NodeId(node) };
        let entry = Invalidation::Entry { directory: NodeId(1), name: Name::new(b"a").unwrap() };
        sender.send(Job { number: 1, what: vec![entry, node(2)] }).unwrap();
        sender.send(Job { number: 2, what: vec![node(13)] }).unwrap();
        sender.send(Job { number: 3, what: vec![node(4)] }).unwrap();
        drop(sender);
        slot.set(Some(recorder.clone()));
        let mut done = Vec::new();
        run(&jobs, &slot, |number, result| done.push((number, result.is_ok())));
        assert_eq!(done, [(1, true), (2, false), (3, true)]);
        assert_eq!(*recorder.0.lock().unwrap(), ["n1/a", "n2", "n4"]);
    }

    #[test]
    fn without_a_cache_everything_is_forgotten_already() {
        let (sender, jobs) = channel();
        sender.send(Job { number: 1, what: vec![Invalidation::Node { node: NodeId(13) }] }).unwrap();
        drop(sender);
        run(&jobs, &CacheSlot::default(), |_, result| assert!(result.is_ok()));
    }
}
