//! One group of servers, and which member holds the replica of which other server's filter (G-HBA sections
//! 2.1, 3.1 and 3.2).
//!
//! Invariants ([`Group::check`]): the replica of every server outside the group is held at exactly one
//! member, of none inside; members hold equally many, give or take one. Joining, leaving, failing, splitting
//! and merging are all one operation, [`Group::settle`]: keep what can stay, give what nobody holds to the
//! lightest, then level.

use bearing_types::ServerId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A group and its share-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// In the order in which they came.
    members: Vec<ServerId>,
    holders: BTreeMap<ServerId, ServerId>,
}

/// A replica that must go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Whose filter.
    pub of: ServerId,
    /// The member that gives it up; none: nobody in the group has it, its server must send it.
    pub from: Option<ServerId>,
    /// The member that holds it from now on.
    pub to: ServerId,
}

/// What is wrong with a share-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// No member holds this server's replica.
    Missing(ServerId),
    /// The replica of a member, or of nobody, is held.
    NotOutside(ServerId),
    /// Held by one that is no member.
    Stranger(ServerId),
    /// The heaviest member holds at least two more than the lightest.
    Uneven,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsettled::Missing(server) => write!(f, "no member holds the filter of {server}"),
            Unsettled::NotOutside(server) => {
                write!(f, "the filter of {server} is held, which is not outside")
            }
            Unsettled::Stranger(server) => write!(f, "{server} holds filters and is no member"),
            Unsettled::Uneven => f.write_str("members hold unequally many filters"),
        }
    }
}

impl std::error::Error for Unsettled {}

impl Group {
    /// A share-out as somebody made it: its members, and for each server outside who holds its replica.
    /// `None`: nobody makes one like this.
    pub fn of_parts(members: Vec<ServerId>, holders: Vec<(ServerId, ServerId)>) -> Option<Group> {
        let count = holders.len();
        let holders: BTreeMap<ServerId, ServerId> = holders.into_iter().collect();
        let all: BTreeSet<ServerId> = members.iter().copied().chain(holders.keys().copied()).collect();
        let is_whole = all.len() == members.len() + count;
        let group = Group { members, holders };
        (is_whole && !group.members.is_empty() && group.check(&all).is_ok()).then_some(group)
    }

    /// Who holds the replica of which server's filter.
    pub fn holders(&self) -> impl ExactSizeIterator<Item = (ServerId, ServerId)> + '_ {
        self.holders.iter().map(|(of, holder)| (*of, *holder))
    }

    /// Who is in it, in the order in which they came.
    pub fn members(&self) -> &[ServerId] {
        &self.members
    }

    /// The member that holds the replica of a server's filter.
    pub fn holder(&self, of: ServerId) -> Option<ServerId> {
        self.holders.get(&of).copied()
    }

    /// Whose replicas a member holds.
    pub fn held_by(&self, member: ServerId) -> impl Iterator<Item = ServerId> + '_ {
        self.holders.iter().filter(move |(_, holder)| **holder == member).map(|(of, _)| *of)
    }

    /// The group with these members when there are these servers in all; says what must move. What a member
    /// holds stays with it as far as it can: a newcomer gets (N - M')/(M' + 1), rounded down, the others give
    /// up their surplus; nothing else moves.
    pub fn settle(&mut self, members: Vec<ServerId>, all: &BTreeSet<ServerId>) -> Vec<Move> {
        let before = std::mem::take(&mut self.holders);
        self.members = members;
        if self.members.is_empty() {
            return Vec::new();
        }
        let mut shares: BTreeMap<ServerId, Vec<ServerId>> =
            self.members.iter().map(|member| (*member, Vec::new())).collect();
        let outside = all.iter().filter(|server| !self.members.contains(server));
        let mut unheld = Vec::new();
        for of in outside {
            match before.get(of).and_then(|holder| shares.get_mut(holder)) {
                Some(share) => share.push(*of),
                None => unheld.push(*of),
            }
        }
        for of in unheld {
            let (lightest, _) = self.extremes(&shares);
            shares.entry(lightest).or_default().push(of);
        }
        self.level(&mut shares);
        self.holders = shares
            .into_iter()
            .flat_map(|(member, share)| share.into_iter().map(move |of| (of, member)))
            .collect();
        self.moves_from(&before)
    }

    fn level(&self, shares: &mut BTreeMap<ServerId, Vec<ServerId>>) {
        loop {
            let (lightest, heaviest) = self.extremes(shares);
            if shares[&heaviest].len() <= shares[&lightest].len() + 1 {
                return;
            }
            let given = shares.get_mut(&heaviest).and_then(Vec::pop);
            shares.entry(lightest).or_default().extend(given);
        }
    }

    /// The members that hold fewest and most; of equals the one that came first.
    fn extremes(&self, shares: &BTreeMap<ServerId, Vec<ServerId>>) -> (ServerId, ServerId) {
        let (mut lightest, mut heaviest) = (self.members[0], self.members[0]);
        for member in &self.members {
            if shares[member].len() < shares[&lightest].len() {
                lightest = *member;
            }
            if shares[member].len() > shares[&heaviest].len() {
                heaviest = *member;
            }
        }
        (lightest, heaviest)
    }

    fn moves_from(&self, before: &BTreeMap<ServerId, ServerId>) -> Vec<Move> {
        let moved = self.holders.iter().filter(|(of, to)| before.get(*of) != Some(*to));
        let still = |from: &ServerId| self.members.contains(from);
        moved.map(|(of, to)| Move { of: *of, from: before.get(of).copied().filter(still), to: *to }).collect()
    }

    /// Whether the replica of each server outside is held at exactly one member, and equally many at each.
    pub fn check(&self, all: &BTreeSet<ServerId>) -> Result<(), Unsettled> {
        let inside = |server: &ServerId| self.members.contains(server);
        if let Some(of) = all.iter().find(|of| !inside(of) && !self.holders.contains_key(of)) {
            return Err(Unsettled::Missing(*of));
        }
        if let Some(of) = self.holders.keys().find(|of| inside(of) || !all.contains(of)) {
            return Err(Unsettled::NotOutside(*of));
        }
        if let Some(holder) = self.holders.values().find(|holder| !inside(holder)) {
            return Err(Unsettled::Stranger(*holder));
        }
        let loads = self.members.iter().map(|member| self.held_by(*member).count());
        let (least, most) =
            loads.fold((usize::MAX, 0), |(least, most), load| (least.min(load), most.max(load)));
        if most > least.saturating_add(1) { Err(Unsettled::Uneven) } else { Ok(()) }
    }

    /// Bytes to keep or send it: the members, and for each server outside its id and the member's number.
    pub fn encoded_bytes(&self) -> usize {
        size_of::<u32>() * self.members.len() + (size_of::<u32>() + size_of::<u16>()) * self.holders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn servers(ids: std::ops::Range<u32>) -> Vec<ServerId> {
        ids.map(ServerId).collect()
    }

    fn settled(members: u32, servers_all: u32) -> (Group, BTreeSet<ServerId>) {
        let all: BTreeSet<_> = servers(0..servers_all).into_iter().collect();
        let mut group = Group::default();
        group.settle(servers(0..members), &all);
        group.check(&all).unwrap();
        (group, all)
    }

    #[test]
    fn a_join_moves_what_is_published() {
        // (N - M')/(M' + 1) rounded down, all of it to the newcomer; HBA (a group of its own): N.
        for (n, m) in [(20, 4), (30, 5), (60, 6), (100, 8), (100, 1), (9, 3)] {
            let (mut group, mut all) = settled(m, n);
            let newcomer = ServerId(n);
            all.insert(newcomer);
            let mut members = group.members().to_vec();
            members.push(newcomer);
            let moves = group.settle(members, &all);
            group.check(&all).unwrap();
            assert_eq!(moves.len() as u32, (n - m) / (m + 1), "{n} servers, {m} members");
            assert!(moves.iter().all(|moved| moved.to == newcomer && moved.from.is_some()));

            let mut alone = Group::default();
            assert_eq!(alone.settle(vec![newcomer], &all).len() as u32, n);
        }
    }

    #[test]
    fn the_published_surplus_over_the_rounded_up_share_is_never_more_than_what_moves() {
        for (n, m) in [(20, 4), (31, 5), (60, 6), (100, 8)] {
            let (group, _) = settled(m, n);
            let quota = (n - m).div_ceil(m + 1) as usize;
            let given: usize = (0..m).map(|i| group.held_by(ServerId(i)).count().saturating_sub(quota)).sum();
            let moved = ((n - m) / (m + 1)) as usize;
            assert!(given <= moved && moved - given <= m as usize, "{n} {m}: {given} of {moved}");
        }
    }

    proptest! {
        /// Whatever members and servers come and go: settled again, what could stay stayed, and moves lead
        /// from one share-out to the next.
        #[test]
        fn settling_keeps_the_invariant_and_what_can_stay(
            steps in proptest::collection::vec((proptest::collection::btree_set(0u32..6, 1..5), proptest::collection::btree_set(6u32..40, 0..20)), 1..10)
        ) {
            let mut group = Group::default();
            for (inside, outside) in steps {
                let members: Vec<_> = inside.iter().copied().map(ServerId).collect();
                let all: BTreeSet<_> = inside.iter().chain(&outside).copied().map(ServerId).collect();
                let before = group.clone();
                let moves = group.settle(members.clone(), &all);
                prop_assert_eq!(group.check(&all), Ok(()));
                let mut replayed = before.holders.clone();
                replayed.retain(|of, holder| all.contains(of) && !members.contains(of) && members.contains(holder));
                let kept = replayed.len();
                for moved in &moves {
                    prop_assert_eq!(replayed.insert(moved.of, moved.to), moved.from);
                }
                prop_assert_eq!(&replayed, &group.holders);
                // No more moves than are needed to level: each is of what nobody holds, or from one above the
                // rounded-down share.
                let unheld = outside.len() - kept;
                let floor = outside.len() / inside.len();
                let above: usize = members.iter().map(|member| {
                    let held = before.held_by(*member).filter(|of| all.contains(of) && !members.contains(of)).count();
                    held.saturating_sub(floor)
                }).sum();
                prop_assert!(moves.len() <= unheld + above);
                prop_assert_eq!(group.settle(members, &all), vec![]);
            }
        }
    }

    #[test]
    fn each_violation_is_seen() {
        let (good, all) = settled(3, 10);
        let mut group = good.clone();
        group.holders.remove(&ServerId(5));
        assert_eq!(group.check(&all), Err(Unsettled::Missing(ServerId(5))));
        let mut group = good.clone();
        group.holders.insert(ServerId(1), ServerId(0));
        assert_eq!(group.check(&all), Err(Unsettled::NotOutside(ServerId(1))));
        let mut group = good.clone();
        group.holders.insert(ServerId(5), ServerId(9));
        assert_eq!(group.check(&all), Err(Unsettled::Stranger(ServerId(9))));
        let mut group = good;
        group.holders.values_mut().for_each(|holder| *holder = ServerId(0));
        assert_eq!(group.check(&all), Err(Unsettled::Uneven));
    }
}
