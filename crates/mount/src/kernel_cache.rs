//! What a kernel (or another cache above the machine) must be made to forget, on a thread of its own.
//!
//! Invariants: invalidations run outside every lock, one after the other, in the order in which the machine
//! gave them. The machine hears that one is done only when it is: one that fails (the kernel is out of
//! memory) is tried again, until every lease and so every timeout of the kernel that it may concern is over.

use bearing_client::Invalidation;
use bearing_types::{Name, NodeId};
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How invalidations that fail are tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The pause before the next try.
    pub pause: Duration,
    /// No lease is longer than this.
    pub lease_max: Duration,
}

impl Patience {
    /// For a kernel.
    pub const KERNEL: Patience =
        Patience { pause: Duration::from_millis(20), lease_max: Duration::from_secs(60) };
}

/// A cache above the machine. Calls may take as long as a kernel's locks are held.
///
/// The cache sees to it that an answer which was given before an invalidation does not reach it afterwards.
pub trait KernelCache: Send + Sync {
    /// Forgets what names in directories mean. A failure does not keep the rest from being forgotten.
    fn invalidate_entries(&self, entries: &[(NodeId, &Name)]) -> io::Result<()>;

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
        let is_entry = |thing: &Invalidation| matches!(thing, Invalidation::Entry { .. });
        // Names that follow each other go together: each time a thread has to be waited for.
        let groups = what.chunk_by(|one, next| is_entry(one) && is_entry(next));
        let forget = |group: &[Invalidation]| {
            let entries: Vec<(NodeId, &Name)> = group.iter().filter_map(entry_of).collect();
            match group {
                [Invalidation::Node { node }] => cache.invalidate_node(*node),
                _ => cache.invalidate_entries(&entries),
            }
        };
        // A failure does not keep the rest from being forgotten.
        groups.map(forget).fold(Ok(()), io::Result::and)
    }
}

fn entry_of(thing: &Invalidation) -> Option<(NodeId, &Name)> {
    match thing {
        Invalidation::Entry { directory, name } => Some((*directory, name)),
        Invalidation::Node { .. } => None,
    }
}

/// Runs jobs until no more can come; `done` hears of each, and how often it failed before.
pub(crate) fn run(
    jobs: &Receiver<Job>,
    cache: &CacheSlot,
    patience: Patience,
    mut done: impl FnMut(u64, u64),
) {
    while let Ok(Job { number, what }) = jobs.recv() {
        let start = Instant::now();
        let mut failures = 0;
        while cache.forget(&what).is_err() {
            failures += 1;
            if start.elapsed() >= patience.lease_max {
                break;
            }
            std::thread::sleep(patience.pause);
        }
        done(number, failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const QUICK: Patience = Patience { pause: Duration::ZERO, lease_max: Duration::from_secs(60) };

    /// Remembers what it is made to forget; node 13 it forgets at the third try.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl KernelCache for Recorder {
        fn invalidate_entries(&self, entries: &[(NodeId, &Name)]) -> io::Result<()> {
            let entries: Vec<_> =
                entries.iter().map(|(directory, name)| format!("{directory}/{name}")).collect();
            self.0.lock().unwrap().push(entries.join(" "));
            Ok(())
        }

        fn invalidate_node(&self, node: NodeId) -> io::Result<()> {
            let mut seen = self.0.lock().unwrap();
            seen.push(node.to_string());
            let tries = seen.iter().filter(|seen| **seen == "n13").count();
            if node == NodeId(13) && tries < 3 {
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn invalidations_run_in_order_and_are_tried_until_they_succeed() {
        let (slot, recorder) = (CacheSlot::default(), Arc::new(Recorder::default()));
        let (sender, jobs) = channel();
        let node = |node| Invalidation::Node { node: NodeId(node) };
        let entry =
            |name: &[u8]| Invalidation::Entry { directory: NodeId(1), name: Name::new(name).unwrap() };
        sender.send(Job { number: 1, what: vec![entry(b"a"), entry(b"b"), node(2), entry(b"c")] }).unwrap();
        sender.send(Job { number: 2, what: vec![node(13)] }).unwrap();
        sender.send(Job { number: 3, what: vec![node(4)] }).unwrap();
        drop(sender);
        slot.set(Some(recorder.clone()));
        let mut done = Vec::new();
        run(&jobs, &slot, QUICK, |number, failures| done.push((number, failures)));
        assert_eq!(done, [(1, 0), (2, 2), (3, 0)]);
        assert_eq!(*recorder.0.lock().unwrap(), ["n1/a n1/b", "n2", "n1/c", "n13", "n13", "n13", "n4"]);
    }

    #[test]
    fn an_invalidation_is_done_when_no_lease_can_be_left() {
        struct Broken;
        impl KernelCache for Broken {
            fn invalidate_entries(&self, _entries: &[(NodeId, &Name)]) -> io::Result<()> {
                Err(io::Error::other("broken"))
            }
            fn invalidate_node(&self, _node: NodeId) -> io::Result<()> {
                Err(io::Error::other("broken"))
            }
        }
        let (slot, (sender, jobs)) = (CacheSlot::default(), channel());
        slot.set(Some(Arc::new(Broken)));
        sender.send(Job { number: 1, what: vec![Invalidation::Node { node: NodeId(2) }] }).unwrap();
        drop(sender);
        let mut done = Vec::new();
        run(&jobs, &slot, Patience { lease_max: Duration::ZERO, ..QUICK }, |number, _| done.push(number));
        assert_eq!(done, [1]);
    }

    #[test]
    fn without_a_cache_everything_is_forgotten_already() {
        let (sender, jobs) = channel();
        sender.send(Job { number: 1, what: vec![Invalidation::Node { node: NodeId(13) }] }).unwrap();
        drop(sender);
        run(&jobs, &CacheSlot::default(), QUICK, |_, failures| assert_eq!(failures, 0));
    }
}
