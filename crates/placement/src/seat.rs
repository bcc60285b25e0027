//! Seats: what a directory needs so that its children can be placed.

use crate::scheme::Seating;
use bearing_types::{Block, ChunkId, Generation, NameHash, NodeId, Position, SessionId};
use serde::{Deserialize, Serialize};

/// The length in bits of a name block at birth, and of the narrowest span: 2^24 positions.
pub const NAME_BLOCK_BITS: u8 = 24;
/// Length in bits of the spans below the root: the first cut takes 8 bits, so that the root's children spread
/// over all tablets.
const TOP_SPAN_BITS: u8 = 56;
/// Every further level takes 4 bits: eight levels lie between 2^56 and the narrowest span.
const CUT_BITS: u8 = 4;
/// What a level takes of a path's key under [`Seating::PathKey`]: five levels within 64 bits, above the
/// narrowest span.
const SLOT_BITS: u8 = 8;
/// Length in bits of the fresh span that a directory gets by hash when its parent's span cannot be cut any
/// more.
const FRESH_SPAN_BITS: u8 = 48;

/// Where a directory's children go.
///
/// ```text
/// span        block from which child directories' spans are cut
/// name_block  block inside the span: positions of the directory's names and of its files' homes
/// home        position of the directory's own node
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// The directory's node.
    pub node: NodeId,
    /// How often it has been re-seated.
    pub generation: Generation,
    /// How its children are placed.
    pub seating: Seating,
    /// Block from which child directories' spans are cut.
    pub span: Block,
    /// Block of its names and of its files' homes.
    pub name_block: Block,
    /// Position of its own node.
    pub home: Position,
}

impl Seat {
    /// The seat of a filesystem's root. Its home is the start of the ring in every scheme, so that a client
    /// which knows nothing yet knows whom to ask.
    pub fn root(node: NodeId, seating: Seating) -> Seat {
        Seat { home: Block::RING.start(), ..Seat::over(node, seating, Block::RING) }
    }

    fn over(node: NodeId, seating: Seating, span: Block) -> Seat {
        let (name_block, home) = match seating {
            Seating::AnglecutHashed | Seating::Chosen => {
                (Block::of_length_bits(span.start(), NAME_BLOCK_BITS), span.start())
            }
            // By rank only [`crate::AngleSeat`] can place: a stored seat does not know its siblings. It
            // spreads names, so that nothing is lost.
            Seating::Hash | Seating::SiblingRank => (Block::RING, position_of_node(node)),
            Seating::PathKey => (span, span.start()),
        };
        Seat { node, generation: Generation::FIRST, seating, span, name_block, home }
    }

    /// The position of a name in this directory; monotone in the hash, so that a listing in hash order walks
    /// the name block from its start to its end.
    pub fn position_of(&self, hash: NameHash) -> Position {
        let length_bits = u32::from(self.name_block.length_bits());
        let offset = if length_bits >= NameHash::BITS {
            hash.to_bits() << (length_bits - NameHash::BITS)
        } else {
            hash.to_bits() >> (NameHash::BITS - length_bits)
        };
        Position(self.name_block.start().0 + offset)
    }

    /// The smallest hash whose position lies at or after `position`, or `None` if no name of this directory
    /// lies there.
    pub fn first_hash_at(&self, position: Position) -> Option<NameHash> {
        if position <= self.name_block.start() {
            return Some(NameHash::FIRST);
        }
        if position > self.name_block.last() {
            return None;
        }
        let offset = position.0 - self.name_block.start().0;
        let length_bits = u32::from(self.name_block.length_bits());
        if length_bits < NameHash::BITS {
            return Some(NameHash::from_bits(offset << (NameHash::BITS - length_bits)));
        }
        let shift = length_bits - NameHash::BITS;
        let rounded_up = (offset >> shift) + u64::from(offset & ((1 << shift) - 1) != 0);
        (rounded_up <= NameHash::LAST.to_bits()).then(|| NameHash::from_bits(rounded_up))
    }

    /// The seat of a child directory born under a name of the given hash.
    pub fn child(&self, node: NodeId, hash: NameHash) -> Seat {
        let span = match self.seating {
            Seating::Hash | Seating::SiblingRank => Block::RING,
            Seating::AnglecutHashed => self.child_span(node, hash),
            Seating::Chosen => self.span,
            Seating::PathKey => self.slot(hash),
        };
        Seat::over(node, self.seating, span)
    }

    /// The seat of a child directory for which a block was chosen: the anchor of a subtree, or the home of a
    /// directory under a Bloom scheme. Its own child directories follow it unless another block is chosen for
    /// them.
    pub fn child_in(&self, node: NodeId, block: Block) -> Seat {
        Seat::over(node, Seating::Chosen, block)
    }

    /// DROP's key: one slot a level, so that positions sort as paths do. Below the narrowest span all share
    /// it.
    fn slot(&self, hash: NameHash) -> Block {
        if self.span.length_bits() < NAME_BLOCK_BITS + SLOT_BITS {
            return self.span;
        }
        self.span.sub_block(SLOT_BITS, hash.to_bits() >> (NameHash::BITS - u32::from(SLOT_BITS)))
    }

    fn child_span(&self, node: NodeId, hash: NameHash) -> Block {
        let length_bits = self.span.length_bits();
        let cut = if length_bits > TOP_SPAN_BITS { length_bits - TOP_SPAN_BITS } else { CUT_BITS };
        if length_bits < NAME_BLOCK_BITS + cut {
            return Block::of_length_bits(position_of_node(node), FRESH_SPAN_BITS);
        }
        // The low bits: the high ones already say where in the name block the name lies.
        self.span.sub_block(cut, hash.to_bits())
    }
}

/// Where a node's id alone puts it.
fn position_of_node(node: NodeId) -> Position {
    Position(xxhash_rust::xxh3::xxh3_64_with_seed(&node.0.to_le_bytes(), 0x6e6f_6465))
}

/// Where a session's record lies: the tablet of this position is asked before anything of the session is
/// ended.
pub fn position_of_session(session: SessionId) -> Position {
    Position(xxhash_rust::xxh3::xxh3_64_with_seed(&session.0.to_le_bytes(), 0x7365_7373))
}

/// Where the record of a chunk lies that a tablet opens: anywhere in it, so that chunks part when the tablet
/// is cut. Nobody else can compute it, because the tablet may be cut by then: references name it.
pub fn position_of_chunk(chunk: ChunkId, tablet: Block) -> Position {
    let drawn = xxhash_rust::xxh3::xxh3_64_with_seed(&chunk.0.to_le_bytes(), 0x6368_6e6b);
    tablet.sub_block(tablet.length_bits(), drawn).start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seats() -> impl Strategy<Value = Seat> {
        let seating = prop_oneof![
            Just(Seating::AnglecutHashed),
            Just(Seating::Hash),
            Just(Seating::Chosen),
            Just(Seating::PathKey)
        ];
        (seating, proptest::collection::vec(any::<u64>(), 0..14)).prop_map(|(seating, path)| {
            path.iter().enumerate().fold(Seat::root(NodeId::ROOT, seating), |seat, (depth, hash)| {
                seat.child(NodeId(depth as u64 + 2), NameHash::from_bits(*hash))
            })
        })
    }

    proptest! {
        #[test]
        fn positions_are_monotone_in_the_hash_and_inside_the_name_block(seat in seats(), a: u64, b: u64) {
            let (a, b) = (NameHash::from_bits(a.min(b)), NameHash::from_bits(a.max(b)));
            let (at_a, at_b) = (seat.position_of(a), seat.position_of(b));
            prop_assert!((a <= b) == (at_a <= at_b) || at_a == at_b);
            prop_assert!(seat.name_block.contains(at_a) && seat.name_block.contains(at_b));
        }

        #[test]
        fn the_first_hash_at_a_position_is_the_smallest_there_or_after(seat in seats(), hash: u64) {
            let position = seat.position_of(NameHash::from_bits(hash));
            let first = seat.first_hash_at(position).unwrap();
            prop_assert!(seat.position_of(first) >= position);
            if first > NameHash::FIRST {
                let before = NameHash::from_bits(first.to_bits() - 1);
                prop_assert!(seat.position_of(before) < position);
            }
        }

        #[test]
        fn spans_nest_exactly_or_are_fresh_and_never_too_narrow(seat in seats(), hash: u64, node in 2u64..) {
            let child = seat.child(NodeId(node), NameHash::from_bits(hash));
            prop_assert!(child.span.length_bits() >= NAME_BLOCK_BITS);
            prop_assert!(child.span.covers(child.name_block));
            if seat.seating == Seating::AnglecutHashed {
                let fresh = child.span.length_bits() == FRESH_SPAN_BITS && seat.span.length_bits() < NAME_BLOCK_BITS + CUT_BITS;
                prop_assert!(fresh || seat.span.covers(child.span));
                prop_assert_eq!(child.home, child.span.start());
            }
        }
    }

    #[test]
    fn chunks_that_a_tablet_opens_lie_in_it_and_as_many_in_either_half() {
        for prefix_bits in [0, 1, 7, 40, 63] {
            let tablet = Block::around(Position(0x5a5a_5a5a_5a5a_5a5a), prefix_bits);
            let (lower, upper) = tablet.halves().unwrap();
            let drawn: Vec<Position> =
                (0..1000).map(|chunk| position_of_chunk(ChunkId(chunk), tablet)).collect();
            let within = |half: Block| drawn.iter().filter(|position| half.contains(**position)).count();
            assert_eq!(within(lower) + within(upper), 1000);
            assert!((400..600).contains(&within(lower)), "{} of 1000 in {lower}", within(lower));
        }
        let single = Block::around(Position(9), 64);
        assert_eq!(position_of_chunk(ChunkId(1), single), Position(9));
    }

    #[test]
    fn a_directory_begins_as_one_fragment_at_its_home() {
        let root = Seat::root(NodeId::ROOT, Seating::AnglecutHashed);
        assert_eq!(root.name_block, Block::of_length_bits(Position(0), 24));
        let child = root.child(NodeId(2), NameHash::from_bits(0xab));
        assert_eq!(child.home, Position(0xab << 56));
        assert!(child.name_block.contains(child.home));
    }
}
