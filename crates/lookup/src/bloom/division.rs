//! How all servers are divided into groups (G-HBA sections 3.1 and 3.2).
//!
//! Invariants: every server is in exactly one group; no group has more than M members; after a server went,
//! no two groups remain that would fit into one. A value: the same changes in the same order give the same
//! division everywhere.

use bearing_types::{ParameterError, ServerId, within};
use std::collections::{BTreeMap, BTreeSet};

/// The largest M.
pub const GROUP_MOST_MAX: u32 = 1024;

/// A group. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// Who is in which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    most: u32,
    /// In the order in which they came.
    seats: Vec<(ServerId, GroupId)>,
    next: u32,
}

impl Division {
    /// No servers yet, to be divided into groups of at most `most` (M, 1 to [`GROUP_MOST_MAX`]).
    pub fn new(most: u32) -> Result<Division, ParameterError> {
        within("group_most", most, (1..=GROUP_MOST_MAX).contains(&most), "1 to 1024")?;
        Ok(Division { most, seats: Vec::new(), next: 0 })
    }

    /// A division as it was: M, who is in which group in the order in which they came, and the number of the
    /// next group. `None`: no division is like this.
    pub fn of_parts(most: u32, seats: Vec<(ServerId, GroupId)>, next: u32) -> Option<Division> {
        let servers: BTreeSet<ServerId> = seats.iter().map(|(server, _)| *server).collect();
        let numbered = next < u32::MAX / 2 && seats.iter().all(|(_, group)| group.0 < next);
        let good = (1..=GROUP_MOST_MAX).contains(&most) && servers.len() == seats.len() && numbered;
        let division = Division { most, seats, next };
        let sizes =
            |division: &Division| division.groups().into_values().all(|all| all.len() <= most as usize);
        (good && sizes(&division)).then_some(division)
    }

    /// M, the most members of a group.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Who is in which group, in the order in which they came.
    pub fn seats(&self) -> &[(ServerId, GroupId)] {
        &self.seats
    }

    /// The number of the next group.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// All servers, in the order in which they came.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = ServerId> + '_ {
        self.seats.iter().map(|(server, _)| *server)
    }

    /// The same as a set.
    pub fn all(&self) -> BTreeSet<ServerId> {
        self.servers().collect()
    }

    /// The group of a server.
    pub fn group_of(&self, server: ServerId) -> Option<GroupId> {
        self.seats.iter().find(|(seated, _)| *seated == server).map(|(_, group)| *group)
    }

    /// The members of each group, in the order in which they came.
    pub fn groups(&self) -> BTreeMap<GroupId, Vec<ServerId>> {
        let mut groups: BTreeMap<GroupId, Vec<ServerId>> = BTreeMap::new();
        for (server, group) in &self.seats {
            groups.entry(*group).or_default().push(*server);
        }
        groups
    }

    /// The members of one group, in the order in which they came.
    pub fn members(&self, group: GroupId) -> Vec<ServerId> {
        self.seats.iter().filter(|(_, other)| *other == group).map(|(server, _)| *server).collect()
    }

    /// A server comes in: into the smallest group if that has room; else the oldest group splits, its last
    /// floor(M/2) members and the newcomer make a new one. `false`: it is in.
    pub fn join(&mut self, server: ServerId) -> bool {
        if self.group_of(server).is_some() {
            return false;
        }
        let groups = self.groups();
        let smallest = groups.iter().min_by_key(|(_, members)| members.len());
        let group = match smallest {
            Some((group, members)) if (members.len() as u32) < self.most => *group,
            Some(_) | None => {
                let new = GroupId(self.next);
                self.next += 1;
                if let Some((_, full)) = groups.first_key_value() {
                    self.reseat(&full[full.len() - self.most as usize / 2..], new);
                }
                new
            }
        };
        self.seats.push((server, group));
        true
    }

    /// A server left or failed; groups that now fit into one merge, the two smallest first. `false`: it is
    /// not in.
    pub fn remove(&mut self, server: ServerId) -> bool {
        let count = self.seats.len();
        self.seats.retain(|(seated, _)| *seated != server);
        while let Some((kept, merged)) = self.mergeable() {
            self.reseat(&self.members(merged), kept);
        }
        self.seats.len() < count
    }

    fn mergeable(&self) -> Option<(GroupId, GroupId)> {
        let mut sizes: Vec<(usize, GroupId)> =
            self.groups().into_iter().map(|(group, members)| (members.len(), group)).collect();
        sizes.sort();
        match sizes[..] {
            [(a, one), (b, other), ..] if a + b <= self.most as usize => {
                Some((one.min(other), one.max(other)))
            }
            _ => None,
        }
    }

    fn reseat(&mut self, servers: &[ServerId], group: GroupId) {
        for (server, seat) in &mut self.seats {
            if servers.contains(server) {
                *seat = group;
            }
        }
    }

    /// Bytes to keep or send it: a server and a group for each seat, M, the next group.
    pub fn encoded_bytes(&self) -> usize {
        2 * size_of::<u32>() * (self.seats.len() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::group::{Group, Move};
    use proptest::prelude::*;

    fn divided(most: u32, servers: u32) -> Division {
        let mut division = Division::new(most).unwrap();
        (0..servers).for_each(|server| assert!(division.join(ServerId(server))));
        division
    }

    fn sizes(division: &Division) -> Vec<usize> {
        division.groups().values().map(Vec::len).collect()
    }

    #[test]
    fn a_full_group_splits_into_the_published_sizes() {
        for most in 1..40 {
            let mut division = divided(most, most);
            assert_eq!(sizes(&division), [most as usize]);
            division.join(ServerId(999));
            let half = most as usize / 2;
            assert_eq!(sizes(&division), [most as usize - half, half + 1], "M = {most}");
        }
    }

    #[test]
    fn two_small_groups_merge_when_they_fit() {
        let mut division = divided(4, 5);
        assert_eq!(sizes(&division), [2, 3]);
        assert!(division.remove(ServerId(0)));
        assert_eq!(sizes(&division), [4]);
        assert!(!division.remove(ServerId(0)));
    }

    #[test]
    fn groups_of_nobody_are_refused() {
        assert_eq!(Division::new(0).unwrap_err().to_string(), "group_most may not be 0; give 1 to 1024");
        assert!(Division::new(1025).is_err());
    }

    proptest! {
        /// Whatever comes and goes: every server in one group, none too large, none that fit together after a
        /// removal; and in every group, settled again, each other server's filter is held at exactly one
        /// member.
        #[test]
        fn division_and_shares_stay_whole(most in 1u32..7, steps in proptest::collection::vec((any::<bool>(), 0u32..25), 1..60)) {
            let mut division = Division::new(most).unwrap();
            let mut oracle = BTreeSet::new();
            let mut groups: BTreeMap<GroupId, Group> = BTreeMap::new();
            for (join, server) in steps {
                let server = ServerId(server);
                let changed = if join { division.join(server) } else { division.remove(server) };
                prop_assert_eq!(changed, if join { oracle.insert(server) } else { oracle.remove(&server) });
                prop_assert_eq!(division.all(), oracle.clone());
                let now = division.groups();
                prop_assert!(now.values().all(|members| members.len() <= most as usize));
                if !join {
                    let mut sizes = sizes(&division);
                    sizes.sort();
                    prop_assert!(sizes.len() < 2 || sizes[0] + sizes[1] > most as usize);
                }
                groups.retain(|group, _| now.contains_key(group));
                for (group, members) in now {
                    let moves: Vec<Move> = groups.entry(group).or_default().settle(members, &oracle);
                    prop_assert!(moves.len() <= oracle.len());
                    prop_assert_eq!(groups[&group].check(&oracle), Ok(()));
                }
            }
        }
    }
}
