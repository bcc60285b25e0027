//! AngleCut's three measures of a placement (section 6.1, definitions 2 to 4), for a tree whose nodes were
//! used so and so often.
//!
//! ```text
//! Loc = 1 / sum(J_i f_i)                 J_i: changes of the server on the way from the root to node i
//! Bal = (M - 1) / sum((L_i/C_i - mu)^2)  L_i: what server i is asked; C_i: its share of what all can do;
//!                                        mu = sum L / sum C
//! Mig = 1 / sum((In_i + Out_i) P_i)      nodes that come to server i and leave it; P_i: the cost of one
//! ```
//!
//! Invariant: a perfect placement (no changes, equal loads, nothing moved) has infinite scores; ratios of two
//! infinite ones are 1.

use crate::namespace::Namespace;
use bearing_types::ServerId;
use std::collections::BTreeMap;

/// Writes into `changes` how often the server changes on the way from the root to each node: J.
pub fn changes(namespace: &Namespace, owners: &[ServerId], changes: &mut Vec<u32>) {
    changes.clear();
    changes.resize(namespace.count(), 0);
    for (number, node) in namespace.iter().skip(1) {
        let (at, above) = (number as usize, node.parent as usize);
        changes[at] = changes[above] + u32::from(owners[at] != owners[above]);
    }
}

/// Bal, of servers that can do the same.
pub fn balance(loads: &BTreeMap<ServerId, f64>) -> f64 {
    let mean = loads.values().sum::<f64>() / loads.len() as f64;
    let squares: f64 = loads.values().map(|load| (load - mean).powi(2)).sum();
    (loads.len() as f64 - 1.0) / squares
}

/// How many nodes have another owner now: each leaves one server and comes to one, so Mig is 1 / (2 * moved)
/// at a cost of 1 each.
pub fn moved(before: &[ServerId], after: &[ServerId]) -> u64 {
    before.iter().zip(after).filter(|(before, after)| before != after).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with `a` and `b`; `a` has two files.
    fn tree() -> Namespace {
        let mut namespace = Namespace::default();
        ["/a", "/a/x", "/a/y", "/b"].iter().for_each(|path| {
            namespace.node(path);
        });
        namespace
    }

    #[test]
    fn a_worked_tree_has_the_scores_that_the_formulas_say() {
        let owners = [1, 2, 2, 1, 1].map(ServerId);
        let mut seen = Vec::new();
        changes(&tree(), &owners, &mut seen);
        // To a: one. To x: one, as it lies with a. To y: two, back again. To b: none.
        assert_eq!(seen, [0, 1, 1, 2, 0]);
        let loads = BTreeMap::from([(ServerId(1), 13.0), (ServerId(2), 7.0), (ServerId(3), 0.0)]);
        let mean: f64 = 20.0 / 3.0;
        let squares = (13.0 - mean).powi(2) + (7.0 - mean).powi(2) + mean.powi(2);
        assert!((balance(&loads) - 2.0 / squares).abs() < 1e-12);
        assert_eq!(moved(&owners, &[1, 2, 1, 1, 3].map(ServerId)), 2);
    }
}
