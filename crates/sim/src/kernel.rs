//! What the kernel on a client's host holds: names that it was told and may go by for a while, the inode
//! locks of calls under way, and invalidations that wait for them.
//!
//! Linux holds a directory's lock while a create, unlink, rename or lookup in it is in flight, and needs it
//! to forget an entry. So a recall that waited for such a call would wait for ever if the call waited for the
//! recall.

use bearing_client::{Found, Invalidation, Operation};
use bearing_proto::client::RenameMode;
use bearing_types::{Code, Mono, Name, NodeId};
use std::collections::BTreeMap;

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
    waiting: BTreeMap<u64, Vec<Invalidation>>,
    /// What each name leads to, and until when that may be gone by, on the host's clock.
    names: BTreeMap<(NodeId, Name), (NodeId, Mono)>,
}

impl Kernel {
    /// Takes all locks, or none and gives `false`. Who comes after a waiting invalidation waits too, as the
    /// kernel's locks are fair.
    pub fn lock(&mut self, locks: &Locks) -> bool {
        let free = |(node, hold): &(NodeId, Hold)| {
            let beside = match self.held.get(node) {
                None => true,
                Some((held, _)) => *held == Hold::Shared && *hold == Hold::Shared,
            };
            beside && !self.waiting.values().any(|wanted| wants(wanted).any(|wanted| wanted == *node))
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
    pub fn invalidate(&mut self, number: u64, what: Vec<Invalidation>) {
        self.waiting.insert(number, what);
    }

    /// Invalidations that are done now.
    pub fn invalidated(&mut self) -> Vec<u64> {
        let held = &self.held;
        let done = |wanted: &[Invalidation]| wants(wanted).all(|node| !held.contains_key(&node));
        let numbers: Vec<u64> =
            self.waiting.iter().filter(|(_, wanted)| done(wanted)).map(|(number, _)| *number).collect();
        for number in &numbers {
            for what in self.waiting.remove(number).into_iter().flatten() {
                if let Invalidation::Entry { directory, name } = what {
                    self.names.remove(&(directory, name));
                }
            }
        }
        numbers
    }

    // --- names ---

    /// An operation is over, and the kernel learns what its answer says of names.
    pub fn told(&mut self, now: Mono, what: &Operation, result: Result<Option<&Found>, Code>) {
        let tell = |found: &Found| (found.node.node, now.after(found.name_remaining.0));
        match (what, result) {
            (
                Operation::Lookup { directory, name, .. }
                | Operation::Create { directory, name, .. }
                | Operation::MakeDirectory { directory, name, .. }
                | Operation::Link { directory, name, .. },
                Ok(Some(found)),
            ) => {
                self.names.insert((directory.node, name.clone()), tell(found));
            }
            (
                Operation::Lookup { directory, name, .. }
                | Operation::Unlink { directory, name, .. }
                | Operation::RemoveDirectory { directory, name, .. },
                Ok(None) | Err(Code::NotFound),
            ) => {
                self.names.remove(&(directory.node, name.clone()));
            }
            (Operation::Rename { source, source_name, target, target_name, mode, .. }, Ok(_)) => {
                // An entry that moves keeps its time.
                let (from, to) = ((source.node, source_name.clone()), (target.node, target_name.clone()));
                let (moved, other) = (self.names.remove(&from), self.names.remove(&to));
                self.names.extend(other.filter(|_| *mode == RenameMode::Exchange).map(|other| (from, other)));
                self.names.extend(moved.map(|moved| (to, moved)));
            }
            _ => {}
        }
    }

    /// What a name leads to for the programs of this host, if the kernel asks nobody.
    pub fn name(&self, now: Mono, directory: NodeId, name: &Name) -> Option<NodeId> {
        let known = self.names.get(&(directory, name.clone()));
        known.filter(|(_, until)| now < *until).map(|(node, _)| *node)
    }
}

/// The directories whose locks an invalidation needs. The kernel forgets attributes and pages without the
/// inode's lock.
fn wants(what: &[Invalidation]) -> impl Iterator<Item = NodeId> + '_ {
    what.iter().filter_map(|what| match what {
        Invalidation::Entry { directory, .. } => Some(*directory),
        Invalidation::Node { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_client::Remaining;
    use bearing_proto::client::Handle;
    use bearing_types::{Attributes, Credentials, FileType, Gid, Mode, Position, Uid, Wall};
    use std::time::Duration;

    #[test]
    fn an_entry_is_forgotten_only_when_nobody_works_in_its_directory() {
        let mut kernel = Kernel::default();
        let locks = vec![(NodeId(5), Hold::Alone)];
        assert!(kernel.lock(&locks));
        let name = Name::new(b"x").unwrap();
        kernel.invalidate(1, vec![Invalidation::Entry { directory: NodeId(5), name }]);
        assert_eq!(kernel.invalidated(), []);
        assert!(!kernel.lock(&vec![(NodeId(5), Hold::Shared)]));
        kernel.unlock(&locks);
        assert_eq!(kernel.invalidated(), [1]);
        assert!(
            kernel.lock(&vec![(NodeId(5), Hold::Shared)]) && kernel.lock(&vec![(NodeId(5), Hold::Shared)])
        );
    }

    #[test]
    fn a_moved_entry_keeps_its_time_and_what_is_forgotten_is_asked_for_again() {
        let handle = |node| Handle { node: NodeId(node), home: Position(0) };
        let name = |text: &[u8]| Name::new(text).unwrap();
        let mut kernel = Kernel::default();
        let lookup =
            |text| Operation::Lookup { directory: handle(5), name: name(text), who: Credentials::ROOT };
        let found = found(handle(7), Duration::from_millis(10));
        kernel.told(Mono(0), &lookup(b"x"), Ok(Some(&found)));
        let rename = Operation::Rename {
            source: handle(5),
            source_name: name(b"x"),
            target: handle(6),
            target_name: name(b"y"),
            who: Credentials::ROOT,
            mode: RenameMode::Replace,
        };
        kernel.told(Mono(9_000_000), &rename, Ok(None));
        assert_eq!(kernel.name(Mono(9_000_000), NodeId(5), &name(b"x")), None);
        assert_eq!(kernel.name(Mono(9_999_999), NodeId(6), &name(b"y")), Some(NodeId(7)));
        assert_eq!(kernel.name(Mono(10_000_000), NodeId(6), &name(b"y")), None);
        kernel.told(Mono(0), &lookup(b"x"), Ok(Some(&found)));
        kernel.invalidate(1, vec![Invalidation::Entry { directory: NodeId(5), name: name(b"x") }]);
        assert_eq!(kernel.invalidated(), [1]);
        assert_eq!(kernel.name(Mono(1), NodeId(5), &name(b"x")), None);
    }

    fn found(node: Handle, remaining: Duration) -> Found {
        let attributes = Attributes::new(FileType::Regular, Mode::new(0), (Uid(0), Gid(0)), Wall(0));
        let remaining = Remaining(remaining);
        Found { node, attributes, name_remaining: remaining, attributes_remaining: remaining }
    }
}
