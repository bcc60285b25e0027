//! A trace as it is replayed: its tree, and how often each node was used in each of twenty parts of it.
//!
//! Invariants: a trace is read once, in its order, and takes eight bytes an operation and some dozens a name;
//! what is here does not depend on any scheme. Of a trace with metadata operations those alone count; one
//! without them is of reads and writes, which then say how often each file was used.

use super::leases::Leases;
use crate::namespace::{Namespace, NodeNumber};
use crate::trace::{Event, Kind};
use std::ops::Range;

/// AngleCut section 7: "after each 5 percent of all query records".
pub const PARTS: usize = 20;
/// The time is noted once for so many operations.
const NOTED_EVERY: usize = 1024;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// On what.
    pub node: NodeNumber,
    /// Who asked: clients are numbered in the order in which they appear; those beyond 65,536 share numbers.
    pub client: u16,
    /// What was asked.
    pub kind: Kind,
    /// How many names of its path the client has to ask for with a cache, from the last one up; at least 1.
    pub asked: u8,
}

/// How often a node was used in a part of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Which one.
    pub node: NodeNumber,
    /// Operations on it.
    pub uses: u32,
    /// Those that named it by a path, so that all above it were asked for.
    pub walks: u32,
    /// With client caches: how often a client asked for it right after its parent.
    pub steps: u32,
}

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// When it begins, in microseconds since the trace began.
    pub begins_us: u64,
    /// How many operations.
    pub operations: u64,
    /// Nodes that were used or passed, in the order of their numbers.
    pub used: Vec<Used>,
}

/// A name that became another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The old one.
    pub from: NodeNumber,
    /// The new one.
    pub to: NodeNumber,
    /// Names with lower numbers were known before it.
    pub known: NodeNumber,
}

/// See the module.
#[derive(Debug)]
pub struct Recorded {
    /// All names.
    pub namespace: Namespace,
    /// All operations that count, in their order.
    pub operations: Vec<Operation>,
    /// Renames whose new name the recording says.
    pub renames: Vec<Rename>,
    /// The trace in [`PARTS`] parts; fewer if it is shorter than that.
    pub parts: Vec<Part>,
    /// Whether there are no metadata operations in it.
    pub is_of_data: bool,
    /// Of everything that counts: the same for the same trace.
    pub digest: u64,
}

/// Reads a trace.
#[derive(Debug, Default)]
pub struct Recorder {
    namespace: Namespace,
    operations: Vec<Operation>,
    renames: Vec<Rename>,
    /// When every [`NOTED_EVERY`]th operation was.
    times_us: Vec<u64>,
    clients: std::collections::HashMap<u64, u16>,
    leases: Leases,
    path: Vec<NodeNumber>,
}

impl Recorder {
    /// The next event.
    pub fn record(&mut self, event: &Event) {
        let from = self.one(event, &event.path);
        if let Some(to) = &event.to {
            let known = self.namespace.count() as NodeNumber;
            let to = self.one(event, to);
            if event.kind == Kind::Rename {
                self.renames.push(Rename { from, to, known });
            }
        }
    }

    fn one(&mut self, event: &Event, path: &str) -> NodeNumber {
        if self.operations.len().is_multiple_of(NOTED_EVERY) {
            self.times_us.push(event.at_us);
        }
        let node = self.namespace.node(path);
        let next = self.clients.len() as u16;
        let client = *self.clients.entry(event.client).or_insert(next);
        self.path.clear();
        self.path.extend(self.namespace.way_up(node));
        // What is open is asked for by its handle.
        let asked = match by_path(event.kind) {
            true => self.leases.asked(client, &self.path, event.at_us),
            false => 1,
        };
        self.operations.push(Operation { node, client, kind: event.kind, asked });
        node
    }

    /// How many operations were read.
    pub fn count(&self) -> usize {
        self.operations.len()
    }

    /// When all have been read.
    pub fn finish(self) -> Recorded {
        let Recorder { namespace, mut operations, renames, times_us, .. } = self;
        let is_of_data = !operations.iter().any(|operation| operation.kind.is_metadata());
        let begins = |first: usize| times_us.get(first / NOTED_EVERY).copied().unwrap_or(0);
        let mut kept_of = Vec::new();
        if !is_of_data {
            // Where each kept one was, for its time: coarse, as the times are.
            let metadata = |(index, operation): (usize, &Operation)| {
                operation.kind.is_metadata().then_some((index / NOTED_EVERY) as u32)
            };
            if operations.iter().any(|operation| !operation.kind.is_metadata()) {
                kept_of = operations.iter().enumerate().filter_map(metadata).collect();
                operations.retain(|operation| operation.kind.is_metadata());
            }
        }
        let at = |index: usize| match kept_of.get(index) {
            Some(noted) => begins(*noted as usize * NOTED_EVERY),
            None => begins(index),
        };
        let count = operations.len();
        let ranges = (0..PARTS).map(|part| count * part / PARTS..count * (part + 1) / PARTS);
        let mut counts = vec![Used::default(); namespace.count()];
        let parts: Vec<Part> = ranges
            .filter(|range| !range.is_empty())
            .map(|range| Part {
                begins_us: at(range.start),
                operations: range.len() as u64,
                used: used(&namespace, &operations, range, &mut counts),
            })
            .collect();
        let digest = digest(&namespace, &operations, &renames, &parts);
        Recorded { namespace, operations, renames, parts, is_of_data, digest }
    }
}

/// Whether an operation names what it is about by a path: the others have it open.
fn by_path(kind: Kind) -> bool {
    !matches!(kind, Kind::Close | Kind::Read | Kind::Write)
}

fn used(
    namespace: &Namespace,
    operations: &[Operation],
    range: Range<usize>,
    counts: &mut [Used],
) -> Vec<Used> {
    let mut touched = Vec::new();
    let mut note = |counts: &mut [Used], node: NodeNumber| {
        let count = &mut counts[node as usize];
        if *count == Used::default() {
            touched.push(node);
        }
    };
    for operation in &operations[range] {
        note(counts, operation.node);
        let count = &mut counts[operation.node as usize];
        count.uses += 1;
        count.walks += u32::from(by_path(operation.kind));
        let mut at = operation.node;
        for _ in 1..operation.asked {
            note(counts, at);
            counts[at as usize].steps += 1;
            at = namespace.get(at).parent;
        }
    }
    touched.sort_unstable();
    touched.into_iter().map(|node| Used { node, ..std::mem::take(&mut counts[node as usize]) }).collect()
}

fn digest(namespace: &Namespace, operations: &[Operation], renames: &[Rename], parts: &[Part]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for (_, node) in namespace.iter() {
        hasher.update(&node.parent.to_le_bytes());
        hasher.update(&node.hash.to_le_bytes());
    }
    for operation in operations {
        hasher.update(&operation.node.to_le_bytes());
        hasher.update(&[operation.kind as u8, operation.asked]);
        hasher.update(&operation.client.to_le_bytes());
    }
    for Rename { from, to, known } in renames {
        [from, to, known].iter().for_each(|number| hasher.update(&number.to_le_bytes()));
    }
    parts.iter().for_each(|part| hasher.update(&part.begins_us.to_le_bytes()));
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_us: u64, client: u64, kind: Kind, path: &str) -> Event {
        Event { at_us, client, kind, path: path.into(), to: None }
    }

    fn recorded(events: impl IntoIterator<Item = Event>) -> Recorded {
        let mut recorder = Recorder::default();
        events.into_iter().for_each(|event| recorder.record(&event));
        recorder.finish()
    }

    #[test]
    fn operations_count_once_and_what_is_open_walks_no_path() {
        let of = [
            event(0, 7, Kind::Open, "/a/b"),
            event(1, 7, Kind::Close, "/a/b"),
            event(2, 7, Kind::Read, "/a/b"),
            event(3, 9, Kind::Lookup, "/a"),
        ];
        let recorded = recorded(of);
        assert!(!recorded.is_of_data);
        // Reads do not count beside metadata operations.
        assert_eq!(
            recorded.operations.iter().map(|op| op.kind).collect::<Vec<_>>(),
            [Kind::Open, Kind::Close, Kind::Lookup]
        );
        let all: Vec<Used> = recorded.parts.iter().flat_map(|part| part.used.clone()).collect();
        let sum =
            |node, of: fn(&Used) -> u32| all.iter().filter(|used| used.node == node).map(of).sum::<u32>();
        assert_eq!((sum(2, |used| used.uses), sum(2, |used| used.walks)), (2, 1));
        // The first open asked for the root, a and b; the other client for the root and a.
        assert_eq!((sum(2, |used| used.steps), sum(1, |used| used.steps)), (1, 2));
        assert_eq!(recorded.parts.iter().map(|part| part.operations).sum::<u64>(), 3);
    }

    #[test]
    fn reads_and_writes_alone_say_how_often_files_were_used() {
        let recorded = recorded((0..100).map(|at| event(at, 1, Kind::Read, "/a/b")));
        assert!(recorded.is_of_data);
        assert_eq!((recorded.parts.len(), recorded.parts[3].used[0].uses), (PARTS, 5));
    }

    #[test]
    fn parts_begin_when_their_operations_do() {
        let kind = |at: u64| if at.is_multiple_of(2) { Kind::Lookup } else { Kind::Write };
        let recorded = recorded((0..200_000).map(|at| event(at * 10, 1, kind(at), "/a")));
        for (index, part) in recorded.parts.iter().enumerate() {
            let expected = index as u64 * 100_000;
            assert!(
                part.begins_us.abs_diff(expected) <= 10 * NOTED_EVERY as u64,
                "{index}: {}",
                part.begins_us
            );
        }
    }
}
