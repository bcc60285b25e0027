//! What the kernel on a client's host holds: the inode locks of calls under way, and invalidations that wait for them.
//!
//! Linux holds a directory's lock while a create, unlink, rename or lookup in it is in flight, and needs it to forget an entry. So a
//! recall that waited for such a call would wait for ever if the call waited for the recall.

use bearing_client::Invalidation;
use bearing_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Beside others.
    Shared,
    /// Alone.
    Alone,
}

/// Locks that a call holds.
pub type Locks = Vec<(NodeId, Hold)>;

/// See the module.
#[derive(Debug, Default)]
pub struct Kernel {
    held: BTreeMap<NodeId, (Hold, u32)>,
    waiting: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Kernel {
    /// Takes all locks, or none and gives `false`. Who comes after a waiting invalidation waits too, as the kernel's locks are fair.
    pub fn lock(&mut self, locks: &Locks) -> bool {
        let free = |(node, hold): &(NodeId, Hold)| {
            let beside = match self.held.get(node) {
                None => true,
                Some((held, _)) => *held == Hold::Shared && *hold == Hold::Shared,
            };
            beside && !self.waiting.values().any(|wanted| wanted.contains(node))
        };
        if !locks.iter().all(free) {
            return false;
        }
        for (node, hold) in locks {
            self.held.entry(*node).or_insert((*hold, 0)).1 += 1;
        }
        true
    }

    /// Gives locks back.
    pub fn unlock(&mut self, locks: &Locks) {
        for (node, _) in locks {
            let (_, holders) = self.held.get_mut(node).expect("a lock that is given back is held");
            *holders -= 1;
            if *holders == 0 {
                self.held.remove(node);
            }
        }
    }

    /// An invalidation arrives; it may have to wait.
    pub fn invalidate(&mut self, number: u64, what: &[Invalidation]) {
        let directories = what.iter().filter_map(|what| match what {
            Invalidation::Entry { directory, .. } => Some(*directory),
            // The kernel forgets attributes and pages without the inode's lock.
            Invalidation::Node { .. } => None,
        });
        self.waiting.insert(number, directories.collect());
    }

    /// Invalidations that are done now.
    pub fn invalidated(&mut self) -> Vec<u64> {
        let held = &self.held;
        let done = |wanted: &BTreeSet<NodeId>| wanted.iter().all(|node| !held.contains_key(node));
        let numbers: Vec<u64> =
            self.waiting.iter().filter(|(_, wanted)| done(wanted)).map(|(number, _)| *number).collect();
        for number in &numbers {
            self.waiting.remove(number);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Name;

    #[test]
    fn an_entry_is_forgotten_only_when_nobody_works_in_its_directory() {
        let mut kernel = Kernel::default();
        let locks = vec![(NodeId(5), Hold::Alone)];
        assert!(kernel.lock(&locks));
        let name = Name::new(b"x").unwrap();
        kernel.invalidate(1, &[Invalidation::Entry { directory: NodeId(5), name }]);
        assert_eq!(kernel.invalidated(), []);
        assert!(!kernel.lock(&vec![(NodeId(5), Hold::Shared)]));
        kernel.unlock(&locks);
        assert_eq!(kernel.invalidated(), [1]);
        assert!(
            kernel.lock(&vec![(NodeId(5), Hold::Shared)]) && kernel.lock(&vec![(NodeId(5), Hold::Shared)])
        );
    }
}
