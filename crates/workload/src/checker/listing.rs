//! What a listing may and must hold.

use super::timeline::{Point, Timeline};
use super::violation::Rule;
use crate::State;
use bearing_types::{FileType, Name, NodeId};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Checks a whole listing against what the directory held between the first and the last part.
pub fn check(
    timeline: &Timeline,
    window: &RangeInclusive<Point>,
    directory: NodeId,
    seen: &[(Name, NodeId, FileType)],
) -> Result<(), (Rule, String)> {
    let held = timeline.names(directory, window);
    let mut listed = BTreeSet::new();
    for (name, node, file_type) in seen {
        if !listed.insert(name) {
            return Err((Rule::ListingRepeats, format!("{name} is listed twice")));
        }
        let named = held.get(name).map_or(&[][..], Vec::as_slice);
        if !named.contains(&Some(*node)) {
            return Err((
                Rule::ListingInvents,
                format!("{name} is listed as {node}, it should be one of {named:?}"),
            ));
        }
        let kind = timeline.at(*window.end()).node(*node).map(|node| node.file_type);
        if kind != Some(*file_type) {
            return Err((
                Rule::ListingInvents,
                format!("{name} is listed as a {file_type:?}, it is {kind:?}"),
            ));
        }
    }
    let lacking = held.iter().find(|(name, named)| !listed.contains(*name) && !named.contains(&None));
    match lacking {
        Some((name, named)) => {
            Err((Rule::ListingLacks, format!("{name} was there throughout ({named:?}) but is not listed")))
        }
        None => Ok(()),
    }
}
