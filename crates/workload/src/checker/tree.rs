//! Compares a tree that was walked when nothing happened any more with what the changes must have made.

use super::violation::{Rule, Violation};
use crate::{Node, Oracle, State, View};
use bearing_types::{FileType, Name, NodeId};
use std::collections::BTreeMap;

/// What a walk found under one path.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The names from the walk's root on; empty for the root itself.
    pub path: Vec<Name>,
    /// Its attributes.
    pub view: View,
    /// A file's bytes or a link's target; `None` when they were not read.
    pub content: Option<Vec<u8>>,
}

/// Compares names, kinds, modes, owners, link counts, sizes and contents below a directory; every difference
/// is a violation.
pub fn compare_tree(oracle: &Oracle, root: NodeId, observed: &[Observed]) -> Vec<Violation> {
    let mut expected = walk(oracle, root);
    let mut violations = Vec::new();
    for found in observed {
        match expected.remove(&found.path) {
            None => violations
                .push(wrong(&found.path, format!("should not be there, but it is {:?}", found.view))),
            Some((id, node)) => violations.extend(compare(id, node, found)),
        }
    }
    for (path, (id, _)) in expected {
        violations.push(wrong(&path, format!("should be {id}, but it is not there")));
    }
    violations
}

type Expected<'a> = BTreeMap<Vec<Name>, (NodeId, &'a Node)>;

fn walk(oracle: &Oracle, root: NodeId) -> Expected<'_> {
    let mut found = BTreeMap::new();
    let mut left = vec![(Vec::new(), root)];
    while let Some((path, id)) = left.pop() {
        let Some(node) = oracle.node(id) else { continue };
        for (name, child) in oracle.list(id) {
            let mut path = path.clone();
            path.push(name.clone());
            left.push((path, child));
        }
        found.insert(path, (id, node));
    }
    found
}

fn compare(id: NodeId, node: &Node, found: &Observed) -> Option<Violation> {
    let mut expected = node.view(id);
    if expected.file_type == FileType::Directory {
        // What a directory's size shows for an entry is the server's choice; its entries are compared one by
        // one.
        expected.size = found.view.size;
    }
    if !expected.is_seen_as(&found.view) {
        return Some(wrong(&found.path, format!("should be {expected:?}, but it is {:?}", found.view)));
    }
    let content = found.content.as_ref()?;
    (*content != *node.content).then(|| {
        let at = content.iter().zip(node.content.iter()).position(|(seen, expected)| seen != expected);
        wrong(
            &found.path,
            format!(
                "{id} holds wrong bytes from {at:?} on ({} bytes): {:?} for {:?}",
                content.len(),
                &content[at.unwrap_or(0)..content.len().min(at.unwrap_or(0) + 24)],
                &node.content[at.unwrap_or(0)..node.content.len().min(at.unwrap_or(0) + 24)]
            ),
        )
    })
}

fn wrong(path: &[Name], message: String) -> Violation {
    let path: Vec<_> = path.iter().map(Name::to_string).collect();
    Violation::general(Rule::WrongTree, format!("/{}: {message}", path.join("/")))
}
