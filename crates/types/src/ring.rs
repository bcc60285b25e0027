//! The ring of 2^64 positions: points, arcs and power-of-two aligned blocks.
//!
//! As an address a position is the low 64 bits of an IPv6 address under the cluster's /64, so a block of the
//! ring *is* an IPv6 prefix.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A point on the ring of 2^64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position(pub u64);

impl Position {
    /// The distance clockwise from this position to another.
    pub fn clockwise_to(self, other: Position) -> u64 {
        other.0.wrapping_sub(self.0)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:016x}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A half-open range of the ring, clockwise from `start` up to, not including, `end`. Equal ends mean the
/// whole ring: an empty arc has no representation, because nobody owns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Arc {
    /// The first position.
    pub start: Position,
    /// The first position after the arc.
    pub end: Position,
}

impl Arc {
    /// Whether the arc holds the position.
    pub fn contains(self, position: Position) -> bool {
        self.start == self.end || self.start.clockwise_to(position) < self.start.clockwise_to(self.end)
    }

    /// The number of positions, 2^64 for the whole ring.
    pub fn length(self) -> u128 {
        if self.start == self.end { 1 << 64 } else { u128::from(self.start.clockwise_to(self.end)) }
    }
}

/// A power-of-two aligned arc: all positions that share the first `prefix_bits` bits with `start`. A CIDR
/// block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Block {
    start: Position,
    prefix_bits: u8,
}

impl Block {
    /// The whole ring.
    pub const RING: Block = Block { start: Position(0), prefix_bits: 0 };

    /// The block of `prefix_bits` (0 to 64) leading bits around a position; lower bits of the position are
    /// cleared.
    ///
    /// # Panics
    /// If `prefix_bits` exceeds 64, which is a bug of the caller.
    pub fn around(position: Position, prefix_bits: u8) -> Block {
        assert!(prefix_bits <= 64, "a block has at most 64 prefix bits, not {prefix_bits}");
        Block { start: Position(position.0 & Block::mask(prefix_bits)), prefix_bits }
    }

    /// The block of length 2^`length_bits` (0 to 64) around a position.
    pub fn of_length_bits(position: Position, length_bits: u8) -> Block {
        Block::around(position, 64 - length_bits)
    }

    fn mask(prefix_bits: u8) -> u64 {
        if prefix_bits == 0 { 0 } else { u64::MAX << (64 - prefix_bits) }
    }

    /// The first position.
    pub fn start(self) -> Position {
        self.start
    }

    /// The last position.
    pub fn last(self) -> Position {
        Position(self.start.0 | !Block::mask(self.prefix_bits))
    }

    /// The number of leading bits that all positions of the block share.
    pub fn prefix_bits(self) -> u8 {
        self.prefix_bits
    }

    /// The block holds 2^`length_bits` positions.
    pub fn length_bits(self) -> u8 {
        64 - self.prefix_bits
    }

    /// Whether the block holds the position.
    pub fn contains(self, position: Position) -> bool {
        position.0 & Block::mask(self.prefix_bits) == self.start.0
    }

    /// Whether the block holds all of another.
    pub fn covers(self, other: Block) -> bool {
        self.prefix_bits <= other.prefix_bits && self.contains(other.start)
    }

    /// Whether the two share a position. Aligned blocks do so only when one covers the other.
    pub fn overlaps(self, other: Block) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The two halves, or `None` for a single position.
    pub fn halves(self) -> Option<(Block, Block)> {
        if self.prefix_bits == 64 {
            return None;
        }
        let prefix_bits = self.prefix_bits + 1;
        let upper = self.start.0 | 1 << (64 - prefix_bits);
        Some((Block { start: self.start, prefix_bits }, Block { start: Position(upper), prefix_bits }))
    }

    /// The sub-block `extra_bits` longer in prefix that has the given index, counted from the start (the
    /// index is taken modulo 2^`extra_bits`).
    ///
    /// # Panics
    /// If the sub-block would be smaller than one position, which is a bug of the caller.
    pub fn sub_block(self, extra_bits: u8, index: u64) -> Block {
        let prefix_bits = self.prefix_bits + extra_bits;
        assert!(prefix_bits <= 64, "{self:?} cannot be cut by {extra_bits} more bits");
        if extra_bits == 0 {
            return self;
        }
        let index = index & (u64::MAX >> (64 - extra_bits));
        Block { start: Position(self.start.0 | index << (64 - prefix_bits)), prefix_bits }
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Block, D::Error> {
        let (start, prefix_bits) = <(Position, u8)>::deserialize(deserializer)?;
        if prefix_bits > 64 || start.0 & !Block::mask(prefix_bits) != 0 {
            return Err(serde::de::Error::custom("not an aligned block"));
        }
        Ok(Block { start, prefix_bits })
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.start.0, self.prefix_bits)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_sub_blocks_nest_exactly() {
        let (low, high) = Block::RING.halves().unwrap();
        assert_eq!((low.last().0, high.start().0), (u64::MAX / 2, 1 << 63));
        assert_eq!(Block::RING.sub_block(1, 1), high);
        let deep = high.sub_block(8, 0x1ff);
        assert_eq!(deep.start().0, 0xff80_0000_0000_0000);
        assert!(high.covers(deep) && !low.overlaps(deep));
        assert_eq!(Block::around(Position(9), 64).halves(), None);
    }

    #[test]
    fn an_arc_may_wrap_and_equal_ends_are_the_whole_ring() {
        let wrapping = Arc { start: Position(u64::MAX - 1), end: Position(2) };
        assert!(wrapping.contains(Position(u64::MAX)) && wrapping.contains(Position(1)));
        assert!(!wrapping.contains(Position(2)));
        assert_eq!(wrapping.length(), 4);
        let whole = Arc { start: Position(5), end: Position(5) };
        assert!(whole.contains(Position(4)) && whole.length() == 1 << 64);
    }
}
