//! Every state that the filesystem went through, kept as versions of each node and name.
//!
//! A *point* is the number of witness events that have been applied: point 0 is the state before all of them.

use crate::{Node, Oracle, State, Touched};
use bearing_types::{Mono, Name, NodeId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How many witness events have been applied.
pub type Point = usize;

/// What a thing was, from which point on.
type Versions<T> = Vec<(Point, T)>;

/// Versions of nodes and names.
#[derive(Debug, Default)]
pub struct Timeline {
    nodes: BTreeMap<NodeId, Versions<Node>>,
    names: BTreeMap<NodeId, BTreeMap<Name, Versions<Option<NodeId>>>>,
    times: Vec<Mono>,
}

/// The state at a point.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    timeline: &'a Timeline,
    point: Point,
}

fn version_at<T>(versions: &[(Point, T)], point: Point) -> Option<&T> {
    let count = versions.partition_point(|(from, _)| *from <= point);
    versions[..count].last().map(|(_, value)| value)
}

impl State for Past<'_> {
    fn node(&self, node: NodeId) -> Option<&Node> {
        version_at(self.timeline.nodes.get(&node)?, self.point)
    }

    fn entry(&self, directory: NodeId, name: &Name) -> Option<NodeId> {
        *version_at(self.timeline.names.get(&directory)?.get(name)?, self.point)?
    }
}

impl Timeline {
    /// Begins with all nodes of a state without names.
    pub fn new(oracle: &Oracle) -> Timeline {
        let mut timeline = Timeline::default();
        for (id, node) in oracle.nodes() {
            timeline.nodes.insert(id, vec![(0, node.clone())]);
        }
        timeline
    }

    /// A witness event has been applied at a time, and touched this.
    pub fn record(&mut self, at: Mono, oracle: &Oracle, touched: &Touched) {
        self.times.push(at);
        let point = self.times.len();
        for id in &touched.nodes {
            let node = oracle.node(*id).expect("what was touched is there").clone();
            self.nodes.entry(*id).or_default().push((point, node));
        }
        for (directory, name) in &touched.names {
            let names = self.names.entry(*directory).or_default();
            names.entry(name.clone()).or_default().push((point, oracle.entry(*directory, name)));
        }
    }

    /// The last point so far.
    pub fn last(&self) -> Point {
        self.times.len()
    }

    /// The state at a point.
    pub fn at(&self, point: Point) -> Past<'_> {
        Past { timeline: self, point }
    }

    /// All points that could be between two times. Where times are equal, either order could be.
    pub fn window(&self, from: Mono, to: Mono) -> RangeInclusive<Point> {
        let first = self.times.partition_point(|at| *at < from);
        let last = self.times.partition_point(|at| *at <= to);
        first..=last.max(first)
    }

    /// What a node was within a window, without repeats: as it was at the first point, and every version
    /// after.
    pub fn versions<'a>(
        &'a self,
        node: NodeId,
        window: &RangeInclusive<Point>,
    ) -> impl Iterator<Item = &'a Node> + use<'a> {
        let versions: &[(Point, Node)] = self.nodes.get(&node).map_or(&[], Vec::as_slice);
        let start = versions.partition_point(|(from, _)| from <= window.start());
        let end = versions.partition_point(|(from, _)| from <= window.end());
        versions[start.saturating_sub(1)..end].iter().map(|(_, node)| node)
    }

    /// The names that a directory ever had, each with what it named within a window.
    pub fn names<'a>(
        &'a self,
        directory: NodeId,
        window: &RangeInclusive<Point>,
    ) -> BTreeMap<&'a Name, Vec<Option<NodeId>>> {
        let mut found = BTreeMap::new();
        for (name, versions) in self.names.get(&directory).into_iter().flatten() {
            let start = versions.partition_point(|(from, _)| from <= window.start());
            let end = versions.partition_point(|(from, _)| from <= window.end());
            let mut values: Vec<_> = if start == 0 { vec![None] } else { Vec::new() };
            values.extend(versions[start.saturating_sub(1)..end].iter().map(|(_, node)| *node));
            found.insert(name, values);
        }
        found
    }
}
