//! Where a full node is split: MetaFlow section 6.B as published, and by the fewest prefixes.
//!
//! Both forms end in the same window of shares. On one block they even find the same point, for the first
//! half of a half ... of a block that lies in the window is the point with the shortest prefix there. They
//! differ where a node has several blocks (the published walk takes the first boundary between two of them)
//! and beside a hot position (the published walk halves down to that single position).

use crate::arcs::{blocks_between, roundest};
use crate::load::Load;
use bearing_types::{Block, Position};

/// What is measured to find the middle.
#[derive(Clone, Copy, Debug)]
pub(super) enum Measure<'a> {
    /// The number of positions.
    Length,
    /// The accesses.
    Load(&'a Load),
}

impl Measure<'_> {
    /// What to part a run by: its load, or its length if nothing was measured there.
    pub(super) fn of(load: &Load, (first, last): (Position, Position)) -> Measure<'_> {
        if load.between(first, last) > 0.0 { Measure::Load(load) } else { Measure::Length }
    }

    /// What lies between two positions, both included.
    pub(super) fn between(self, first: Position, last: Position) -> f64 {
        match self {
            Measure::Length => (last.0 - first.0) as f64 + 1.0,
            Measure::Load(load) => load.between(first, last),
        }
    }
}

/// A node's blocks, parted. Neither part is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Halves {
    /// What stays.
    pub left: Vec<Block>,
    /// What goes to the activated server.
    pub right: Vec<Block>,
    /// The share of the node's load (or length) that stays. Outside the window where one hot position allows
    /// no better.
    pub share: f64,
}

/// The published walk over a node's ordered blocks (MetaFlow section 6.B, steps 1 to 3): a block at a time
/// joins the left part until that weighs more than `low` of all; if it then weighs `high` or more, the last
/// block is taken back and halved. A single position cannot be halved: the walk then ends before or after it,
/// whichever is nearer to the middle. `None` if there is nothing to part. `weigh` takes a first and a last
/// position, both included.
pub fn split_blocks(
    blocks: &[Block],
    weigh: impl Fn(Position, Position) -> f64,
    low: f64,
    high: f64,
) -> Option<Halves> {
    let weight = |block: Block| weigh(block.start(), block.last());
    let total: f64 = blocks.iter().map(|block| weight(*block)).sum();
    let (mut left, mut held) = (Vec::new(), 0.0);
    // What is still to be walked, the next one at the end.
    let mut ahead: Vec<Block> = blocks.iter().rev().copied().collect();
    while let Some(block) = ahead.pop() {
        let with = held + weight(block);
        let halves = if with > low * total && with >= high * total { Some(block.halves()) } else { None };
        match halves {
            Some(Some((lower, upper))) => ahead.extend([upper, lower]),
            // One hot position.
            Some(None) => {
                let nearer = (with - total / 2.0).abs() < (total / 2.0 - held).abs();
                if (nearer || left.is_empty()) && !ahead.is_empty() {
                    left.push(block);
                    held = with;
                } else {
                    ahead.push(block);
                }
                break;
            }
            None => {
                left.push(block);
                held = with;
                if with > low * total {
                    break;
                }
            }
        }
    }
    ahead.reverse();
    let parted = !left.is_empty() && !ahead.is_empty();
    parted.then(|| Halves { left, right: ahead, share: if total > 0.0 { held / total } else { 0.0 } })
}

/// The point within the window that has the shortest prefix. No other point there parts the run into fewer
/// blocks, and of those that need as many it is the one that costs later splits and the switches above the
/// least. Where one position is too hot for the window, a point beside it.
pub(super) fn split_fewest(
    first: Position,
    last: Position,
    measure: Measure<'_>,
    low: f64,
    high: f64,
) -> Option<Halves> {
    if first == last {
        return None;
    }
    let total = measure.between(first, last);
    let left_of = |at: u64| measure.between(first, Position(at - 1));
    let lowest = least(first.0 + 1, last.0, |at| left_of(at) > low * total);
    let highest = least(first.0 + 1, last.0, |at| left_of(at) >= high * total).map_or(last.0, |at| at - 1);
    let at = match lowest {
        Some(lowest) if lowest <= highest => roundest(lowest, highest).0,
        // The last position is hot, and the whole window lies in it: all points before it leave it at the
        // right.
        None => beside(first, last, last.0, left_of),
        Some(after) => {
            let before = after - 1;
            let off = |at: u64| (left_of(at) - total / 2.0).abs();
            let ahead = before > first.0 && off(before) <= off(after);
            beside(first, last, if ahead { before } else { after }, left_of)
        }
    };
    let share = if total > 0.0 { left_of(at) / total } else { 0.0 };
    let at = Position(at);
    Some(Halves { left: blocks_between(first, Position(at.0 - 1)), right: blocks_between(at, last), share })
}

/// The point with the shortest prefix among those that leave the same on the left as `at`.
fn beside(first: Position, last: Position, at: u64, left_of: impl Fn(u64) -> f64) -> u64 {
    let left = left_of(at);
    let lowest = least(first.0 + 1, at, |other| left_of(other) >= left).unwrap_or(at);
    let beyond = least(at, last.0, |other| left_of(other) > left);
    roundest(lowest, beyond.map_or(last.0, |other| other - 1)).0
}

/// The least number between two, both included, from which on a condition holds.
fn least(mut low: u64, mut high: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if low > high || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::super::dotted::{block_of_dotted, dotted};
    use super::*;
    use proptest::prelude::*;

    fn blocks(texts: &[&str]) -> Vec<Block> {
        texts.iter().map(|text| block_of_dotted(text).expect("a block")).collect()
    }

    fn texts(blocks: &[Block]) -> Vec<String> {
        blocks.iter().map(|block| dotted(*block).expect("at most 32 bits")).collect()
    }

    fn at(text: &str) -> Position {
        block_of_dotted(&format!("{text}/32")).expect("an address").start()
    }

    /// MetaFlow figure 11: ServerA has 0.0.0.0/2 and 64.0.0.0/3; the partition value 80.0.0.0 lies in the
    /// middle of its objects.
    #[test]
    fn figure_11_splits_at_80_0_0_0() {
        let server_a = blocks(&["0.0.0.0/2", "64.0.0.0/3"]);
        let objects = Load::new([(at("1.2.3.4"), 30.0), (at("70.0.0.0"), 20.0), (at("81.0.0.0"), 50.0)]);
        let halves = split_blocks(&server_a, |first, last| objects.between(first, last), 0.4, 0.6).unwrap();
        assert_eq!(texts(&halves.left), ["0.0.0.0/2", "64.0.0.0/4"]);
        assert_eq!(texts(&halves.right), ["80.0.0.0/4"]);
        assert_eq!(halves.share, 0.5);
    }

    /// MetaFlow section 6.B: three ordered blocks. The text says 192.168.100.128/25, which holds the third;
    /// /26 is meant.
    #[test]
    fn three_ordered_blocks_are_parted_after_the_first_if_it_is_within_the_window() {
        let three = blocks(&["192.168.100.0/25", "192.168.100.128/26", "192.168.100.192/26"]);
        let weighed = |first: f64| {
            let rest = (100.0 - first) / 2.0;
            let load = [("192.168.100.1", first), ("192.168.100.129", rest), ("192.168.100.200", rest)];
            Load::new(load.map(|(text, weight)| (at(text), weight)))
        };
        for share in [41.0, 50.0, 59.0] {
            let load = weighed(share);
            let halves = split_blocks(&three, |first, last| load.between(first, last), 0.4, 0.6).unwrap();
            assert_eq!(texts(&halves.left), ["192.168.100.0/25"]);
            assert_eq!(texts(&halves.right), ["192.168.100.128/26", "192.168.100.192/26"]);
        }
        // Not more than 40 %: the next block is added.
        let load = weighed(40.0);
        let halves = split_blocks(&three, |first, last| load.between(first, last), 0.3999, 0.6).unwrap();
        assert_eq!(halves.left.len(), 1);
        let load = weighed(10.0);
        let halves = split_blocks(&three, |first, last| load.between(first, last), 0.4, 0.6).unwrap();
        assert_eq!(texts(&halves.left), ["192.168.100.0/25", "192.168.100.128/26"]);
    }

    /// MetaFlow section 6.B: 192.168.100.0/24 with more than 60 % is replaced by its two halves, and the walk
    /// goes on with the first.
    #[test]
    fn a_block_that_is_too_much_is_halved() {
        let load = Load::new([(at("192.168.100.9"), 50.0), (at("192.168.100.200"), 50.0)]);
        let one = blocks(&["192.168.100.0/24"]);
        let halves = split_blocks(&one, |first, last| load.between(first, last), 0.4, 0.6).unwrap();
        assert_eq!(texts(&halves.left), ["192.168.100.0/25"]);
        assert_eq!(texts(&halves.right), ["192.168.100.128/25"]);
    }

    #[test]
    fn one_hot_position_ends_the_halving_and_its_neighbours_are_parted_as_well_as_can_be() {
        let load = Load::new([(Position(7), 5.0), (Position(1000), 90.0), (Position(u64::MAX), 5.0)]);
        let published =
            split_blocks(&[Block::RING], |first, last| load.between(first, last), 0.4, 0.6).unwrap();
        assert!((published.share - 0.05).abs() < 1e-9 || (published.share - 0.95).abs() < 1e-9);
        let fewest = split_fewest(Position(0), Position(u64::MAX), Measure::Load(&load), 0.4, 0.6).unwrap();
        assert!((fewest.share - 0.05).abs() < 1e-9 || (fewest.share - 0.95).abs() < 1e-9);
        let blocks = |halves: &Halves| halves.left.len() + halves.right.len();
        assert!(blocks(&fewest) < blocks(&published), "{} {}", blocks(&fewest), blocks(&published));
        let single = Block::around(Position(1000), 64);
        assert_eq!(split_blocks(&[single], |first, last| load.between(first, last), 0.4, 0.6), None);
        assert_eq!(split_fewest(Position(9), Position(9), Measure::Length, 0.4, 0.6), None);
    }

    fn loads() -> impl Strategy<Value = Load> {
        let position =
            prop_oneof![3 => 0u64..64, 1 => any::<u64>(), 1 => (0u32..64).prop_map(|bit| 1 << bit)];
        proptest::collection::vec((position, 1u32..50), 1..30).prop_map(|samples| {
            Load::new(samples.into_iter().map(|(at, weight)| (Position(at), f64::from(weight))))
        })
    }

    proptest! {
        #[test]
        fn both_forms_part_all_blocks_in_order_and_say_the_share_truly(load in loads(), a in 0u64..64, length in 1u64..64) {
            let (first, last) = (Position(a), Position(a + length));
            prop_assume!(load.between(first, last) > 0.0);
            let whole = blocks_between(first, last);
            let published = split_blocks(&whole, |first, last| load.between(first, last), 0.4, 0.6);
            let fewest = split_fewest(first, last, Measure::Load(&load), 0.4, 0.6);
            for halves in [published.unwrap(), fewest.unwrap()] {
                let middle = halves.right[0].start();
                let mut next = first.0;
                for block in halves.left.iter().chain(&halves.right) {
                    prop_assert_eq!(block.start().0, next);
                    next = block.last().0 + 1;
                }
                prop_assert_eq!(next, last.0 + 1);
                let left = load.between(first, Position(middle.0 - 1)) / load.between(first, last);
                prop_assert!((halves.share - left).abs() < 1e-9);
            }
        }

        /// The slow oracle tries every point.
        #[test]
        fn the_fewest_prefixes_have_no_rival_within_the_window(load in loads(), a in 0u64..64, length in 1u64..64) {
            let (first, last) = (Position(a), Position(a + length));
            let total = load.between(first, last);
            prop_assume!(total > 0.0);
            let share = |at: u64| load.between(first, Position(at - 1)) / total;
            let cost = |at: u64| blocks_between(first, Position(at - 1)).len() + blocks_between(Position(at), last).len();
            let inside: Vec<u64> = (a + 1..=a + length).filter(|at| share(*at) > 0.4 && share(*at) < 0.6).collect();
            let found = split_fewest(first, last, Measure::Load(&load), 0.4, 0.6).unwrap();
            let published = split_blocks(&blocks_between(first, last), |first, last| load.between(first, last), 0.4, 0.6).unwrap();
            match inside.iter().map(|at| cost(*at)).min() {
                Some(least) => {
                    prop_assert_eq!(found.left.len() + found.right.len(), least);
                    prop_assert!(found.share > 0.4 && found.share < 0.6);
                    prop_assert!(published.share > 0.4 && published.share < 0.6);
                    prop_assert!(published.left.len() + published.right.len() >= least);
                }
                // No point in the window: as near to the middle as any.
                None => {
                    let nearest = (a + 1..=a + length).map(|at| (share(at) - 0.5).abs()).fold(1.0, f64::min);
                    prop_assert!((found.share - 0.5).abs() <= nearest + 1e-9);
                }
            }
        }
    }
}
