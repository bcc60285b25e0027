//! What clients did with names and were told of them, as text: for another checker than ours to judge
//! (`bench/porcupine`). One line for each name that an operation touches, since that checker looks at one
//! name at a time: client, when it asked, when it was answered (`-`: never), the name, what, the node (`0`:
//! not known).

use bearing_proto::client::RenameMode;
use bearing_types::{Code, Name, NodeId, Outcome};
use bearing_workload::{Entry, Event, History, Mutation, MutationOutcome, Query, Seen};
use std::fmt::Write;

/// The lines of a history.
pub fn lines(history: &History) -> String {
    let mut text = String::new();
    for entry in &history.entries {
        let returned = entry.returned.map_or("-".to_owned(), |returned| returned.0.to_string());
        for (directory, name, what, node) in touched(entry) {
            let name: String = name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let (client, invoked) = (entry.client.0, entry.invoked.0);
            writeln!(text, "{client} {invoked} {returned} {}/{name} {what} {}", directory.0, node.0)
                .expect("a string takes all");
        }
    }
    text
}

type Touched<'a> = (NodeId, &'a Name, &'static str, NodeId);

const UNKNOWN: NodeId = NodeId(0);

fn touched(entry: &Entry) -> Vec<Touched<'_>> {
    match &entry.event {
        Event::Mutation { mutation, outcome: MutationOutcome::Told(told), .. } => {
            changed(mutation, Some(told))
        }
        Event::Mutation { mutation, outcome: MutationOutcome::Unknown, .. } => changed(mutation, None),
        Event::Read { query: Query::Lookup { directory, name, .. }, result } => {
            let seen = match result {
                Ok(Seen::Node(view)) => Some(("sees", view.node)),
                Err(Code::NotFound) => Some(("misses", UNKNOWN)),
                _ => None,
            };
            seen.map(|(what, node)| (*directory, name, what, node)).into_iter().collect()
        }
        Event::Read { .. } => Vec::new(),
    }
}

fn changed<'a>(mutation: &'a Mutation, told: Option<&Outcome<Seen>>) -> Vec<Touched<'a>> {
    match mutation {
        Mutation::Create { directory, name, .. } | Mutation::MakeDirectory { directory, name, .. } => {
            one((*directory, name), told, "puts", UNKNOWN)
        }
        Mutation::Link { node, directory, name, .. } => one((*directory, name), told, "puts", *node),
        Mutation::Unlink { directory, name, .. } | Mutation::RemoveDirectory { directory, name, .. } => {
            one((*directory, name), told, "takes", UNKNOWN)
        }
        Mutation::Rename { source, source_name, target, target_name, mode, .. } => {
            let (from, to) = match mode {
                RenameMode::Replace => ("leaves", "replaces"),
                RenameMode::NoReplace => ("leaves", "puts"),
                RenameMode::Exchange => ("swaps", "swaps"),
            };
            match told {
                None | Some(Ok(_)) => {
                    let mut both = one((*source, source_name), told, from, UNKNOWN);
                    both.extend(one((*target, target_name), told, to, UNKNOWN));
                    both
                }
                Some(Err(Code::Exists)) => vec![(*target, target_name, "meets", UNKNOWN)],
                Some(Err(_)) => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// What an operation on one name says of it.
fn one<'a>(
    (directory, name): (NodeId, &'a Name),
    told: Option<&Outcome<Seen>>,
    done: &'static str,
    node: NodeId,
) -> Vec<Touched<'a>> {
    let said = match told {
        None => Some((done, node)),
        Some(Ok(Seen::Node(view))) => Some((done, view.node)),
        Some(Ok(_)) => Some((done, node)),
        Some(Err(Code::Exists)) => Some(("meets", UNKNOWN)),
        Some(Err(Code::NotFound)) => Some(("misses", UNKNOWN)),
        Some(Err(_)) => None,
    };
    said.map(|(what, node)| (directory, name, what, node)).into_iter().collect()
}
