//! IDBFA: which member of a group holds whose replica, as an array of counting filters over server ids (G-HBA
//! section 2.4).
//!
//! Invariants: the member that holds a replica is never missing from the answer; others may be in it, which
//! costs a message to one that has no use for it. At 8 counters an id it takes as many bytes as the exact
//! list does, so it saves nothing here; it is the published way to find the member.

use crate::bloom::counting::Counting;
use crate::bloom::filter::Shape;
use crate::bloom::group::Group;
use crate::query::FileKey;
use bearing_types::ServerId;
use std::collections::{BTreeMap, BTreeSet};

/// Counters for each id that a filter is made for.
const COUNTERS_PER_ID: f64 = 8.0;
const SEED: u64 = 0x69_6462_6661;

/// A counting filter for each member, and how many ids it was made for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holders {
    filters: BTreeMap<ServerId, (u64, Counting)>,
}

fn key(server: ServerId) -> FileKey {
    FileKey(u64::from(server.0))
}

fn empty(made_for: u64) -> Option<Counting> {
    Shape::for_keys(made_for, COUNTERS_PER_ID, SEED).and_then(Counting::new).ok()
}

impl Holders {
    /// Goes from the share-out that it followed last to the next: filters of members that hold about as many
    /// as before lose what went and get what came; others are made anew.
    pub fn follow(&mut self, before: &Group, after: &Group) {
        let mut known = std::mem::take(&mut self.filters);
        for member in after.members() {
            let held: BTreeSet<ServerId> = after.held_by(*member).collect();
            let made_for = (held.len() as u64).next_power_of_two().max(8);
            let filter = match known.remove(member) {
                Some((same, mut filter)) if same == made_for => {
                    let had: BTreeSet<ServerId> = before.held_by(*member).collect();
                    had.difference(&held).for_each(|went| _ = filter.remove(key(*went)));
                    held.difference(&had).for_each(|came| filter.insert(key(*came)));
                    Some(filter)
                }
                _ => empty(made_for).map(|mut filter| {
                    held.iter().for_each(|of| filter.insert(key(*of)));
                    filter
                }),
            };
            self.filters.extend(filter.map(|filter| (*member, (made_for, filter))));
        }
    }

    /// The members that may hold a server's replica.
    pub fn of(&self, server: ServerId) -> Vec<ServerId> {
        let may = self.filters.iter().filter(|(_, (_, filter))| filter.may_hold(key(server)));
        may.map(|(member, _)| *member).collect()
    }

    /// Bytes of the filters, encoded.
    pub fn encoded_bytes(&self) -> usize {
        self.filters.values().map(|(_, filter)| filter.encoded_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_holder_is_always_among_the_answers_and_strangers_are_few(
            steps in proptest::collection::vec((1u32..6, proptest::collection::btree_set(10u32..200, 0..60)), 1..8)
        ) {
            let mut group = Group::default();
            let mut holders = Holders::default();
            for (members, outside) in steps {
                let members: Vec<_> = (0..members).map(ServerId).collect();
                let all: BTreeSet<_> = members.iter().copied().chain(outside.iter().copied().map(ServerId)).collect();
                let before = group.clone();
                group.settle(members.clone(), &all);
                holders.follow(&before, &group);
                let mut wasted = 0;
                for of in &outside {
                    let found = holders.of(ServerId(*of));
                    prop_assert!(found.contains(&group.holder(ServerId(*of)).unwrap()));
                    wasted += found.len() - 1;
                }
                // Two in a hundred each, published; a filter of few ids may be unlucky.
                prop_assert!(wasted <= 5 + outside.len() * members.len() / 10, "{} of {}", wasted, outside.len());
            }
        }
    }
}
