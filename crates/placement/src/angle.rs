//! Angles by sibling rank: AngleCut as published (section 4.2), for the lab. Adding a sibling changes the
//! angles of others, so nothing live is placed so.
//!
//! ```text
//! layer 1     angle = rank * theta                     theta = circle / children of the root
//! layer j>=2  angle = parent + rank * (theta / 2^(j-1)) / (siblings - 1)
//! ```
//!
//! The divisor does not apply to layer 1 and an only child adds nothing: the paper's formula, read literally,
//! divides by zero there. A circle is the ring of 2^64 positions. Any descendant of a node on layer k lies
//! within theta/2^(k-1) after it.

use bearing_types::Position;
use std::collections::BTreeMap;

/// The seat of a directory under sibling ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AngleSeat {
    angle: Position,
    layer: u32,
    /// What lies between neighbours on layer 1; none before the root's children are counted.
    theta: Option<u64>,
}

/// Where a child stands among its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Siblings to its left.
    pub left: u32,
    /// All children of its directory, itself included.
    pub siblings: u32,
}

impl AngleSeat {
    /// The root, which has no angle of its own: it stands at 0.
    pub fn root() -> AngleSeat {
        AngleSeat { angle: Position(0), layer: 0, theta: None }
    }

    /// A root whose children are this far apart, whatever their number. The paper's figure has 80 degrees,
    /// which is no 360/n.
    pub fn root_with_theta(theta: u64) -> AngleSeat {
        AngleSeat { theta: Some(theta), ..AngleSeat::root() }
    }

    /// The directory's own angle.
    pub fn angle(&self) -> Position {
        self.angle
    }

    /// The angle of a child.
    pub fn position_of(&self, child: Rank) -> Position {
        self.child(child).angle
    }

    /// The seat of a child directory.
    ///
    /// # Panics
    /// If the rank is not below the number of siblings, which is a bug of the caller.
    pub fn child(&self, child: Rank) -> AngleSeat {
        assert!(child.left < child.siblings, "rank {} of {} siblings", child.left, child.siblings);
        let theta = self.theta.unwrap_or_else(|| even_share(child.siblings));
        let (left, siblings) = (u128::from(child.left), u128::from(child.siblings));
        let added = match self.layer {
            0 => left * u128::from(theta),
            layer => (left * (u128::from(theta) >> layer.min(127))).checked_div(siblings - 1).unwrap_or(0),
        };
        let angle = Position(self.angle.0.wrapping_add(added as u64));
        AngleSeat { angle, layer: self.layer + 1, theta: Some(theta) }
    }

    /// How far after its own angle descendants may lie: theta/2^(k-1) on layer k, the whole circle for the
    /// root.
    pub fn reach(&self) -> u64 {
        match (self.layer, self.theta) {
            (0, _) | (_, None) => u64::MAX,
            (layer, Some(theta)) => theta.checked_shr(layer - 1).unwrap_or(0),
        }
    }
}

/// Layer 1 shares the circle evenly.
fn even_share(siblings: u32) -> u64 {
    ((1u128 << 64) / u128::from(siblings)).min(u128::from(u64::MAX)) as u64
}

/// The distance of two nodes by their coordinates, the ranks on each layer from the first on: the sum of |x -
/// y| / 2^k (section 6.1, definition 5).
pub fn coordinate_distance(a: &[u32], b: &[u32]) -> f64 {
    let layers = a.iter().zip(b).zip(1..);
    layers.map(|((x, y), layer)| f64::from(x.abs_diff(*y)) / 2f64.powi(layer)).sum()
}

/// What tells nodes of one angle apart: one byte, a bit that says whether the node is there and the number of
/// its ring (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u8);

impl Tag {
    const VALID: u8 = 0x80;
    /// The last ring that fits into a tag.
    pub const RING_LAST: u8 = 0x7f;

    /// The number of the ring.
    pub fn ring(self) -> u8 {
        self.0 & !Tag::VALID
    }

    /// Whether the node is there: a removed one keeps its place until another takes it.
    pub fn is_valid(self) -> bool {
        self.0 & Tag::VALID != 0
    }

    /// The byte.
    pub fn to_byte(self) -> u8 {
        self.0
    }
}

/// The rings: nodes of equal angle lie on different ones (section 4.3). Looking up looks at the angle only.
#[derive(Clone, Debug, Default)]
pub struct Rings {
    /// Which rings are taken at an angle, one bit each.
    taken: BTreeMap<Position, u128>,
}

impl Rings {
    /// Takes a place at an angle: on the first ring that is free there, a new one if none is. `None` if all
    /// 128 are taken.
    pub fn insert(&mut self, angle: Position) -> Option<Tag> {
        let taken = self.taken.entry(angle).or_default();
        let ring = (!*taken).trailing_zeros();
        (ring <= u32::from(Tag::RING_LAST)).then(|| {
            *taken |= 1 << ring;
            Tag(Tag::VALID | ring as u8)
        })
    }

    /// Gives a place back. The tag that a removed node is left with.
    pub fn remove(&mut self, angle: Position, tag: Tag) -> Tag {
        if let Some(taken) = self.taken.get_mut(&angle) {
            *taken &= !(1 << tag.ring());
            if *taken == 0 {
                self.taken.remove(&angle);
            }
        }
        Tag(tag.ring())
    }

    /// How many rings there are: one more than the highest that is taken.
    pub fn count(&self) -> u32 {
        self.taken.values().map(|taken| 128 - taken.leading_zeros()).max().unwrap_or(0)
    }
}

/// Bytes that a node's key takes on average: a tag, its angle, and its angle again at its parent (section
/// 6.2).
pub const KEY_BYTES: usize = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A path as (left siblings, siblings) on every layer.
    fn paths() -> impl Strategy<Value = Vec<Rank>> {
        let rank =
            (1u32..9).prop_flat_map(|siblings| (0..siblings).prop_map(move |left| Rank { left, siblings }));
        proptest::collection::vec(rank, 1..12)
    }

    fn at(root: AngleSeat, path: &[Rank]) -> AngleSeat {
        path.iter().fold(root, |seat, rank| seat.child(*rank))
    }

    /// The slow oracle: the formula in floating point, term by term, as a share of the circle.
    fn by_formula(path: &[Rank]) -> f64 {
        let theta = 1.0 / f64::from(path[0].siblings);
        let deeper = path.iter().zip(1..).skip(1).filter(|(rank, _)| rank.siblings > 1);
        let terms = deeper.map(|(rank, layer)| {
            f64::from(rank.left) * theta / 2f64.powi(layer - 1) / f64::from(rank.siblings - 1)
        });
        f64::from(path[0].left) * theta + terms.sum::<f64>()
    }

    proptest! {
        #[test]
        fn an_angle_is_what_the_formula_says(path in paths()) {
            let share = at(AngleSeat::root(), &path).angle().0 as f64 / 2f64.powi(64);
            let expected = by_formula(&path).fract();
            let apart = (share - expected).abs();
            prop_assert!(!(1e-12..=1.0 - 1e-12).contains(&apart), "{share} {expected}");
        }

        #[test]
        fn descendants_lie_within_reach_of_every_ancestor(path in paths()) {
            let leaf = at(AngleSeat::root(), &path).angle();
            for depth in 1..path.len() {
                let ancestor = at(AngleSeat::root(), &path[..depth]);
                prop_assert!(ancestor.angle().clockwise_to(leaf) <= ancestor.reach());
            }
        }

        #[test]
        fn equal_angles_lie_on_different_rings_and_places_are_used_again(angles in proptest::collection::vec(0u64..4, 1..60)) {
            let mut rings = Rings::default();
            let mut seen = std::collections::BTreeSet::new();
            for angle in &angles {
                let tag = rings.insert(Position(*angle)).unwrap();
                prop_assert!(tag.is_valid() && seen.insert((*angle, tag.ring())));
            }
            let most = (0..4).map(|angle| angles.iter().filter(|other| **other == angle).count()).max().unwrap();
            prop_assert_eq!(rings.count() as usize, most);
            let (angle, ring) = *seen.first().unwrap();
            let left = rings.remove(Position(angle), Tag(Tag::VALID | ring));
            prop_assert!(!left.is_valid());
            prop_assert_eq!(rings.insert(Position(angle)).unwrap().ring(), ring);
        }
    }

    fn degrees(position: Position) -> f64 {
        position.0 as f64 / 2f64.powi(64) * 360.0
    }

    #[test]
    fn the_papers_figure_with_theta_of_80_degrees() {
        let rank = |left, siblings| Rank { left, siblings };
        let root = AngleSeat::root_with_theta((80.0 / 360.0 * 2f64.powi(64)) as u64);
        let a = at(root, &[rank(0, 3), rank(0, 3), rank(0, 2)]);
        let b = at(root, &[rank(0, 3), rank(2, 3), rank(1, 2)]);
        let c = at(root, &[rank(1, 3), rank(1, 2)]);
        let d = c.child(rank(0, 1));
        let angles = [a, b, c, d].map(|seat| degrees(seat.angle()).round());
        assert_eq!(angles, [0.0, 60.0, 120.0, 120.0]);
        assert_eq!(coordinate_distance(&[0, 2, 1], &[1, 1, 0]), 7.0 / 8.0);
        assert_eq!(coordinate_distance(&[1, 1], &[1, 1, 0]), 0.0);
    }

    #[test]
    fn no_more_rings_than_a_tag_can_name() {
        let mut rings = Rings::default();
        for ring in 0..128 {
            assert_eq!(rings.insert(Position(5)).map(Tag::ring), Some(ring));
        }
        assert_eq!(rings.insert(Position(5)), None);
        assert_eq!(size_of::<Tag>() + 2 * size_of::<Position>(), KEY_BYTES);
    }
}
