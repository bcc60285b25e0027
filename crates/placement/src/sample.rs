//! AngleCut's sampling of access frequencies by a random walk over the namespace tree (section 4.4): no need
//! to look at every node.
//!
//! A plain walk visits a node as often as it has neighbours. So a step to a neighbour is taken with
//! probability min(1, own degree / its degree) (Metropolis and Hastings): every node is visited alike in the
//! long run, and a visit counts with the node's frequency.

use crate::draws::Draws;
use crate::load::Load;
use bearing_types::Position;

/// A namespace tree, as the walk sees it.
pub trait Tree {
    /// How many nodes there are. They are numbered from 0, the root.
    fn count(&self) -> usize;
    /// The node above; none above the root.
    fn parent(&self, node: usize) -> Option<usize>;
    /// The nodes below, by number.
    fn children(&self, node: usize) -> &[usize];
    /// Where the node lies.
    fn position(&self, node: usize) -> Position;
    /// How often it was asked for.
    fn frequency(&self, node: usize) -> f64;
}

/// The load as a walk of so many steps sees it, from the root on. The same seed draws the same walk.
pub fn random_walk(tree: &impl Tree, steps: usize, seed: u64) -> Load {
    if tree.count() == 0 {
        return Load::default();
    }
    let degree = |node: usize| tree.children(node).len() + usize::from(tree.parent(node).is_some());
    let mut draws = Draws(seed);
    let mut node = 0;
    let mut visits = Vec::with_capacity(steps);
    for _ in 0..steps {
        visits.push((tree.position(node), tree.frequency(node)));
        let neighbours = degree(node);
        if neighbours == 0 {
            continue;
        }
        let drawn = draws.below(neighbours as u64) as usize;
        let next = match (tree.parent(node), drawn) {
            (Some(parent), 0) => parent,
            (Some(_), drawn) => tree.children(node)[drawn - 1],
            (None, drawn) => tree.children(node)[drawn],
        };
        if draws.below(degree(next) as u64) < neighbours as u64 {
            node = next;
        }
    }
    Load::new(visits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with `width` directories of `width` files; frequencies grow along the ring.
    struct Wide {
        width: usize,
        children: Vec<Vec<usize>>,
    }

    impl Wide {
        fn new(width: usize) -> Wide {
            let mut children = vec![(1..=width).collect::<Vec<_>>()];
            children.extend(
                (0..width).map(|dir| (0..width).map(|file| 1 + width + dir * width + file).collect()),
            );
            children.resize(1 + width + width * width, Vec::new());
            Wide { width, children }
        }
    }

    impl Tree for Wide {
        fn count(&self) -> usize {
            self.children.len()
        }
        fn parent(&self, node: usize) -> Option<usize> {
            match node {
                0 => None,
                node if node <= self.width => Some(0),
                node => Some(1 + (node - 1 - self.width) / self.width),
            }
        }
        fn children(&self, node: usize) -> &[usize] {
            &self.children[node]
        }
        fn position(&self, node: usize) -> Position {
            Position((node as u64) << 48)
        }
        fn frequency(&self, node: usize) -> f64 {
            1.0 + node as f64
        }
    }

    #[test]
    fn the_walk_comes_close_to_the_true_distribution() {
        let tree = Wide::new(12);
        let truth = Load::new((0..tree.count()).map(|node| (tree.position(node), tree.frequency(node))));
        let walked = random_walk(&tree, 60_000, 7);
        // The largest distance of the two distribution functions (Kolmogorov and Smirnov).
        let share = |load: &Load, node: usize| load.before(tree.position(node)) / load.total();
        let apart = (0..tree.count()).map(|node| (share(&truth, node) - share(&walked, node)).abs());
        assert!(apart.fold(0.0, f64::max) < 0.05);
        assert_eq!(walked, random_walk(&tree, 60_000, 7));
    }

    #[test]
    fn a_tree_of_one_node_is_walked_without_end_of_neighbours() {
        struct Lone;
        impl Tree for Lone {
            fn count(&self) -> usize {
                1
            }
            fn parent(&self, _: usize) -> Option<usize> {
                None
            }
            fn children(&self, _: usize) -> &[usize] {
                &[]
            }
            fn position(&self, _: usize) -> Position {
                Position(9)
            }
            fn frequency(&self, _: usize) -> f64 {
                2.0
            }
        }
        assert_eq!(random_walk(&Lone, 3, 1).total(), 6.0);
    }
}
