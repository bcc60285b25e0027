//! Who owns which arc of the ring: an immutable value, whatever scheme made it.
//!
//! Invariants: every position has exactly one owner; neighbouring arcs have different owners, except where
//! the ring begins and ends.

use bearing_types::{Arc, Block, Position, ServerId};
use std::collections::BTreeSet;
use std::fmt;

/// The ring, divided. Kept as where each arc begins, from position 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arcs {
    starts: Vec<Position>,
    owners: Vec<ServerId>,
}

/// A part of the ring that changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The first position.
    pub first: Position,
    /// The last position.
    pub last: Position,
    /// Whose it was.
    pub from: ServerId,
    /// Whose it becomes.
    pub to: ServerId,
}

impl Handover {
    /// The number of positions.
    pub fn length(&self) -> u128 {
        u128::from(self.last.0 - self.first.0) + 1
    }
}

/// Nobody owns anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoArcs;

impl fmt::Display for NoArcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring has no owner; give at least one arc")
    }
}

impl std::error::Error for NoArcs {}

impl Arcs {
    /// Arcs that begin at these positions, each as far as the next; the one that begins last goes on over the
    /// end of the ring. Of several that begin at the same position the last counts.
    pub fn new(starts: impl IntoIterator<Item = (Position, ServerId)>) -> Result<Arcs, NoArcs> {
        let mut given: Vec<(Position, ServerId)> = starts.into_iter().collect();
        given.sort_by_key(|(start, _)| *start);
        let (_, last) = *given.last().ok_or(NoArcs)?;
        let mut arcs = Arcs { starts: Vec::with_capacity(given.len() + 1), owners: Vec::new() };
        arcs.push(Position(0), last);
        given.into_iter().for_each(|(start, owner)| arcs.push(start, owner));
        Ok(arcs)
    }

    /// The ring in equal arcs, one for each server in the order given.
    pub fn even(servers: &[ServerId]) -> Result<Arcs, NoArcs> {
        let count = servers.len() as u128;
        let start = |index: usize| Position((((index as u128) << 64) / count.max(1)) as u64);
        Arcs::new(servers.iter().enumerate().map(|(index, server)| (start(index), *server)))
    }

    /// The union of blocks that are disjoint and cover the ring: what is not covered goes to whoever owns
    /// what lies before.
    pub fn of_blocks(blocks: impl IntoIterator<Item = (Block, ServerId)>) -> Result<Arcs, NoArcs> {
        Arcs::new(blocks.into_iter().map(|(block, owner)| (block.start(), owner)))
    }

    fn push(&mut self, start: Position, owner: ServerId) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.owners.pop();
        }
        if self.owners.last() != Some(&owner) {
            self.starts.push(start);
            self.owners.push(owner);
        }
    }

    fn index(&self, position: Position) -> usize {
        self.starts.partition_point(|start| *start <= position) - 1
    }

    /// Who owns a position.
    pub fn owner(&self, position: Position) -> ServerId {
        self.owners[self.index(position)]
    }

    /// The arc around a position, without what may go on beyond the end of the ring: its first and last
    /// position.
    pub fn around(&self, position: Position) -> (Position, Position) {
        let index = self.index(position);
        (self.starts[index], self.last_of(index))
    }

    fn last_of(&self, index: usize) -> Position {
        self.starts.get(index + 1).map_or(Position(u64::MAX), |next| Position(next.0 - 1))
    }

    /// All arcs from position 0 on: first and last position, owner.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Position, Position, ServerId)> + '_ {
        (0..self.starts.len()).map(|index| (self.starts[index], self.last_of(index), self.owners[index]))
    }

    /// The number of arcs, counted from position 0.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// All that own anything.
    pub fn servers(&self) -> BTreeSet<ServerId> {
        self.owners.iter().copied().collect()
    }

    /// How many positions a server owns.
    pub fn length_of(&self, server: ServerId) -> u128 {
        let own = self.iter().filter(|(_, _, owner)| *owner == server);
        own.map(|(first, last, _)| u128::from(last.0 - first.0) + 1).sum()
    }

    /// The arcs as half-open ranges; one may wrap around the end of the ring.
    pub fn arcs(&self) -> Vec<(Arc, ServerId)> {
        let end = |last: Position| Position(last.0.wrapping_add(1));
        let mut arcs: Vec<_> =
            self.iter().map(|(first, last, owner)| (Arc { start: first, end: end(last) }, owner)).collect();
        if arcs.len() > 1 && arcs[0].1 == arcs[arcs.len() - 1].1 {
            let (first, _) = arcs.remove(0);
            if let Some((last, _)) = arcs.last_mut() {
                last.end = first.end;
            }
        }
        arcs
    }

    /// The fewest aligned blocks that make up the same arcs, in ring order.
    pub fn blocks(&self) -> Vec<(Block, ServerId)> {
        let mut blocks = Vec::new();
        for (first, last, owner) in self.iter() {
            blocks.extend(blocks_between(first, last).into_iter().map(|block| (block, owner)));
        }
        blocks
    }

    /// The same arcs with each boundary moved to the shortest prefix within `tolerance` (a share, 0 to 0.5)
    /// of the shorter arc beside it, so that few blocks make them up. An arc never vanishes.
    pub fn rounded(&self, tolerance: f64) -> Arcs {
        let mut starts = vec![Position(0)];
        for index in 1..self.starts.len() {
            let start = self.starts[index];
            let before = start.0 - starts[index - 1].0;
            let after = self.last_of(index).0 - start.0;
            let slack = (before.min(after) as f64 * tolerance.clamp(0.0, 0.5)) as u64;
            let slack = slack.min(before.saturating_sub(1)).min(after);
            starts.push(roundest(start.0 - slack, start.0 + slack));
        }
        Arcs { starts, owners: self.owners.clone() }
    }

    /// What changes hands on the way to other arcs, in ring order.
    pub fn handovers(&self, target: &Arcs) -> Vec<Handover> {
        let mut handovers = Vec::new();
        let (mut here, mut there) = (0, 0);
        let mut first = Position(0);
        loop {
            let last = self.last_of(here).min(target.last_of(there));
            let (from, to) = (self.owners[here], target.owners[there]);
            if from != to {
                handovers.push(Handover { first, last, from, to });
            }
            if last == Position(u64::MAX) {
                return handovers;
            }
            here += usize::from(last == self.last_of(here));
            there += usize::from(last == target.last_of(there));
            first = Position(last.0 + 1);
        }
    }

    /// The share of the ring that changes hands on the way to other arcs.
    pub fn moved(&self, target: &Arcs) -> f64 {
        let moved: u128 = self.handovers(target).iter().map(Handover::length).sum();
        moved as f64 / (1u128 << 64) as f64
    }

    /// The owner of a position and the next `copies - 1` other servers clockwise: where its copies lie under
    /// RDHT's rule.
    pub fn successors(&self, position: Position, copies: usize) -> Vec<ServerId> {
        let mut found: Vec<ServerId> = Vec::with_capacity(copies);
        let start = self.index(position);
        for step in 0..self.owners.len() {
            let owner = self.owners[(start + step) % self.owners.len()];
            if found.len() == copies {
                break;
            }
            if !found.contains(&owner) {
                found.push(owner);
            }
        }
        found
    }

    /// Bytes to keep or send it: a start and an owner for each arc.
    pub fn encoded_bytes(&self) -> usize {
        self.starts.len() * (size_of::<u64>() + size_of::<u32>())
    }
}

/// The fewest aligned blocks between two positions, both included.
pub(crate) fn blocks_between(first: Position, last: Position) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut start = first.0;
    loop {
        let aligned = if start == 0 { 64 } else { start.trailing_zeros() as u8 };
        let left = u128::from(last.0 - start) + 1;
        let fitting = (127 - left.leading_zeros()) as u8;
        let block = Block::of_length_bits(Position(start), aligned.min(fitting));
        blocks.push(block);
        match block.last().0.checked_add(1).filter(|_| block.last() < last) {
            Some(next) => start = next,
            None => return blocks,
        }
    }
}

/// The position between two, both included, with the most zero bits at its end.
pub(crate) fn roundest(low: u64, high: u64) -> Position {
    if low == 0 {
        return Position(0);
    }
    // The bits above the highest one in which low - 1 and high differ are common; the first number after
    // low - 1 with that bit set has no bit below.
    let differing = 63 - ((low - 1) ^ high).leading_zeros();
    Position(high >> differing << differing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arcs() -> impl Strategy<Value = Arcs> {
        let start = prop_oneof![any::<u64>(), 0u64..9, Just(u64::MAX), (0u32..64).prop_map(|bit| 1 << bit)];
        proptest::collection::vec((start.prop_map(Position), (1u32..9).prop_map(ServerId)), 1..40)
            .prop_map(|starts| Arcs::new(starts).unwrap())
    }

    /// The slow oracle: the last start at or before the position, by looking at all.
    fn owner_by_scan(arcs: &Arcs, position: Position) -> ServerId {
        let (_, _, owner) =
            arcs.iter().find(|(first, last, _)| (*first..=*last).contains(&position)).expect("covered");
        owner
    }

    proptest! {
        #[test]
        fn every_position_has_one_owner_and_blocks_say_the_same(arcs in arcs(), position: u64) {
            let position = Position(position);
            prop_assert_eq!(arcs.iter().filter(|(first, last, _)| (*first..=*last).contains(&position)).count(), 1);
            prop_assert_eq!(arcs.owner(position), owner_by_scan(&arcs, position));
            let blocks: Vec<_> = arcs.blocks().into_iter().filter(|(block, _)| block.contains(position)).collect();
            prop_assert_eq!(blocks.len(), 1);
            prop_assert_eq!(blocks[0].1, arcs.owner(position));
            prop_assert_eq!(&Arcs::of_blocks(arcs.blocks()).unwrap(), &arcs);
            let wrapped = arcs.arcs().into_iter().filter(|(arc, _)| arc.contains(position)).collect::<Vec<_>>();
            prop_assert_eq!(wrapped.len(), 1);
        }

        #[test]
        fn handovers_are_exactly_where_the_owner_differs(a in arcs(), b in arcs(), position: u64) {
            let position = Position(position);
            let found: Vec<_> =
                a.handovers(&b).into_iter().filter(|h| (h.first..=h.last).contains(&position)).collect();
            if a.owner(position) == b.owner(position) {
                prop_assert!(found.is_empty());
            } else {
                prop_assert_eq!(found.len(), 1);
                prop_assert_eq!((found[0].from, found[0].to), (a.owner(position), b.owner(position)));
            }
        }

        #[test]
        fn rounding_keeps_every_arc_and_moves_no_boundary_beyond_the_tolerance(arcs in arcs(), tolerance in 0.0..0.5) {
            let rounded = arcs.rounded(tolerance);
            prop_assert_eq!(rounded.count(), arcs.count());
            prop_assert!(rounded.starts.is_sorted_by(|a, b| a < b));
            for index in 1..arcs.count() {
                let moved = rounded.starts[index].0.abs_diff(arcs.starts[index].0) as f64;
                let after = (arcs.last_of(index).0 - arcs.starts[index].0) as f64;
                prop_assert!(moved <= after * tolerance + 1.0);
            }
        }

        #[test]
        fn the_roundest_has_no_rival(low: u64, more in 0u64..4096) {
            let high = low.saturating_add(more);
            let best = roundest(low, high).0;
            prop_assert!((low..=high).contains(&best));
            let zeros = |number: u64| number.trailing_zeros();
            prop_assert!((low..=high).all(|number| zeros(number) <= zeros(best)));
        }
    }

    #[test]
    fn rounding_thirty_even_arcs_within_a_tenth_needs_few_blocks() {
        let servers: Vec<_> = (1..=30).map(ServerId).collect();
        let exact = Arcs::even(&servers).unwrap();
        assert!(exact.blocks().len() > 1000, "{}", exact.blocks().len());
        assert!(exact.rounded(0.1).blocks().len() < 100, "{}", exact.rounded(0.1).blocks().len());
    }

    #[test]
    fn copies_lie_on_different_servers() {
        let [a, b] = [ServerId(1), ServerId(2)];
        let arcs = Arcs::new([(Position(0), a), (Position(10), b), (Position(20), a)]).unwrap();
        assert_eq!(arcs.successors(Position(25), 3), [a, b]);
        assert_eq!(arcs.successors(Position(12), 1), [b]);
    }
}
