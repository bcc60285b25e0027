//! Ids for new nodes and chunks, drawn ahead in ranges from the tablet at position 0.
//!
//! A range is logged there before it is given out, so no id is ever given twice; what a server has left of
//! its ranges when it stops is lost. The next range is drawn when half of one is used, so that the server
//! that gives them out may be down for as long as the other half lasts.

use bearing_types::{NodeId, NodeIdRange};

/// See the module.
#[derive(Debug)]
pub(crate) struct Ids {
    current: NodeIdRange,
    next: NodeIdRange,
}

impl Ids {
    /// None yet.
    pub const EMPTY: Ids = Ids { current: NodeIdRange::EMPTY, next: NodeIdRange::EMPTY };

    /// Takes an id, or `None` when all are used.
    pub fn take(&mut self) -> Option<NodeId> {
        if self.current.left() == 0 {
            self.turn_over();
        }
        self.current.take()
    }

    /// Takes ids in a row, as many as are wanted or half of what is left of a range; `None` when there are
    /// too few to share.
    pub fn take_some(&mut self, wanted: u32) -> Option<(NodeId, u32)> {
        if self.current.left() < u64::from(wanted) * 2 && self.next.left() > 0 {
            self.turn_over();
        }
        self.current.take_some(wanted)
    }

    fn turn_over(&mut self) {
        self.current = std::mem::replace(&mut self.next, NodeIdRange::EMPTY);
    }

    /// A further range.
    pub fn add(&mut self, range: NodeIdRange) {
        if self.current.left() == 0 {
            self.current = range;
        } else {
            self.next = range;
        }
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.current.left() + self.next.left()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, end: u64) -> NodeIdRange {
        NodeIdRange { next: NodeId(first), end: NodeId(end) }
    }

    #[test]
    fn a_range_that_comes_early_wastes_nothing_of_the_one_before() {
        let mut ids = Ids::EMPTY;
        assert_eq!(ids.take(), None);
        ids.add(range(10, 14));
        assert_eq!((ids.take(), ids.left()), (Some(NodeId(10)), 3));
        ids.add(range(20, 22));
        let rest: Vec<u64> = std::iter::from_fn(|| ids.take()).map(|id| id.0).collect();
        assert_eq!(rest, [11, 12, 13, 20, 21]);
    }

    #[test]
    fn ids_in_a_row_come_from_one_range() {
        let mut ids = Ids::EMPTY;
        ids.add(range(10, 20));
        ids.add(range(100, 200));
        assert_eq!(ids.take_some(8), Some((NodeId(100), 8)));
        assert_eq!(ids.take_some(1000), Some((NodeId(108), 46)));
    }
}
