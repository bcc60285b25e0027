//! The tree of a trace: every name that it ever spoke of, with numbers for nodes.
//!
//! Invariants: a node keeps its number and its parent comes before it, so a walk over numbers meets parents
//! first; a name that is removed keeps its node, as a recording may speak of it again.

use std::collections::HashMap;

/// A node's number. 0 is the root.
pub type NodeNumber = u32;

/// See the module.
#[derive(Debug)]
pub struct Namespace {
    nodes: Vec<Node>,
    /// By parent and the hash of the name.
    children: HashMap<(NodeNumber, u64), NodeNumber>,
}

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it is. The root is in itself.
    pub parent: NodeNumber,
    /// The hash of its name.
    pub hash: u64,
    /// How deep it lies: 0 is the root.
    pub depth: u16,
    /// Names that were seen in it so far.
    pub children: u32,
    /// How many siblings had been seen when it was.
    pub rank: u32,
}

impl Default for Namespace {
    fn default() -> Namespace {
        let root = Node { parent: 0, hash: 0, depth: 0, children: 0, rank: 0 };
        Namespace { nodes: vec![root], children: HashMap::new() }
    }
}

/// No path is deeper: what is below lies in the last directory.
const DEPTH_MAX: u16 = 4096;

impl Namespace {
    /// The root's number.
    pub const ROOT: NodeNumber = 0;

    /// The node of a path, made if it is new. A number is left alone if there are 2^32 nodes already.
    pub fn node(&mut self, path: &str) -> NodeNumber {
        let mut at = Namespace::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.child(at, xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
        }
        at
    }

    /// The node of a name in a directory, made if it is new.
    pub fn child(&mut self, parent: NodeNumber, hash: u64) -> NodeNumber {
        let Node { depth, children: rank, .. } = self.nodes[parent as usize];
        if depth >= DEPTH_MAX {
            return parent;
        }
        let Ok(number) = NodeNumber::try_from(self.nodes.len()) else { return parent };
        let known = *self.children.entry((parent, hash)).or_insert(number);
        if known == number {
            self.nodes.push(Node { parent, hash, depth: depth + 1, children: 0, rank });
            self.nodes[parent as usize].children += 1;
        }
        known
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// One of them.
    pub fn get(&self, number: NodeNumber) -> Node {
        self.nodes[number as usize]
    }

    /// All of them, parents before what is in them.
    pub fn iter(&self) -> impl Iterator<Item = (NodeNumber, Node)> + '_ {
        (0..).zip(self.nodes.iter().copied())
    }

    /// From a node up to the root, both included.
    pub fn way_up(&self, from: NodeNumber) -> impl Iterator<Item = NodeNumber> + '_ {
        let above = move |number: &NodeNumber| {
            (*number != Namespace::ROOT).then(|| self.nodes[*number as usize].parent)
        };
        std::iter::successors(Some(from), above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_node_and_parents_come_first() {
        let mut namespace = Namespace::default();
        let paths = ["/a/b", "/a", "/a/c/d", "/e", "/", "/a//b/"];
        let numbers: Vec<NodeNumber> = paths.iter().map(|path| namespace.node(path)).collect();
        assert_eq!(numbers, [2, 1, 4, 5, 0, 2]);
        assert!(namespace.iter().skip(1).all(|(number, node)| node.parent < number));
        assert_eq!(namespace.way_up(4).collect::<Vec<_>>(), [4, 3, 1, 0]);
        let a = namespace.get(1);
        assert_eq!((a.children, a.depth, namespace.get(3).rank), (2, 1, 1));
    }
}
