//! AngleCut's sampling of access frequencies by a random walk over the namespace tree (section 4.4): no need
//! to look at every node.
//!
//! A walk goes down from the root, to each child as often as it was asked for: whoever asks for a name asks
//! for all above it, so a directory was asked for as often as all below it together, and a bit more. It ends
//! where requests ended. The paper does not say how a walk steps; one that visits all nodes alike and counts
//! their accesses (Metropolis and Hastings) was tried, and is of no use: most accesses are to few names,
//! which it meets or not, and it does not come out of a directory with thousands of names for thousands of
//! steps.

use crate::draws::Draws;
use crate::load::Load;
use bearing_types::Position;

/// A namespace tree, as the walk sees it.
pub trait Tree {
    /// How many nodes there are. They are numbered from 0, the root.
    fn count(&self) -> usize;
    /// The nodes below, by number.
    fn children(&self, node: usize) -> &[usize];
    /// Where the node lies.
    fn position(&self, node: usize) -> Position;
    /// How often it was asked for by itself.
    fn frequency(&self, node: usize) -> f64;
}

/// The load as so many walks see it. The same seed draws the same walks.
pub fn random_walk(tree: &impl Tree, walks: usize, seed: u64) -> Load {
    if tree.count() == 0 {
        return Load::default();
    }
    let sums = Sums::of(tree);
    let mut draws = Draws(seed);
    let mut ends = Vec::with_capacity(walks);
    for _ in 0..walks {
        let mut node = 0;
        while let Some(child) = sums.step(tree, node, &mut draws) {
            node = child;
        }
        ends.push((tree.position(node), 1.0));
    }
    Load::new(ends)
}

/// For each directory how often its children and what is below them were asked for, summed up.
struct Sums {
    /// By node: where its children begin below.
    starts: Vec<usize>,
    /// Children by children: the sum up to and including each one.
    sums: Vec<f64>,
    /// By node: how often it was asked for, with all below it.
    totals: Vec<f64>,
}

impl Sums {
    fn of(tree: &impl Tree) -> Sums {
        let mut order = vec![0];
        let mut next = 0;
        while next < order.len() {
            order.extend_from_slice(tree.children(order[next]));
            next += 1;
        }
        let mut totals: Vec<f64> = (0..tree.count()).map(|node| tree.frequency(node)).collect();
        for node in order.iter().rev() {
            totals[*node] += tree.children(*node).iter().map(|child| totals[*child]).sum::<f64>();
        }
        let (mut starts, mut sums) = (vec![0; tree.count()], Vec::with_capacity(tree.count()));
        for node in order {
            starts[node] = sums.len();
            let mut sum = 0.0;
            sums.extend(tree.children(node).iter().map(|child| {
                sum += totals[*child];
                sum
            }));
        }
        Sums { starts, sums, totals }
    }

    /// A child, or none if the walk ends here.
    fn step(&self, tree: &impl Tree, node: usize, draws: &mut Draws) -> Option<usize> {
        let children = tree.children(node);
        let sums = &self.sums[self.starts[node]..self.starts[node] + children.len()];
        let drawn = draws.fraction() * self.totals[node];
        children.get(sums.partition_point(|sum| *sum <= drawn)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with `width` directories of `width` files; frequencies grow along the ring.
    struct Wide {
        children: Vec<Vec<usize>>,
    }

    impl Wide {
        fn new(width: usize) -> Wide {
            let mut children = vec![(1..=width).collect::<Vec<_>>()];
            children.extend(
                (0..width).map(|dir| (0..width).map(|file| 1 + width + dir * width + file).collect()),
            );
            children.resize(1 + width + width * width, Vec::new());
            Wide { children }
        }
    }

    impl Tree for Wide {
        fn count(&self) -> usize {
            self.children.len()
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
        assert!(apart.fold(0.0, f64::max) < 0.01);
        assert_eq!(walked, random_walk(&tree, 60_000, 7));
    }

    #[test]
    fn a_tree_of_one_node_is_walked() {
        struct Lone;
        impl Tree for Lone {
            fn count(&self) -> usize {
                1
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
        assert_eq!(random_walk(&Lone, 3, 1).total(), 3.0);
    }
}
