//! Who shall own which tablet, and hold copies of it, so that servers have as much to do one as another.
//!
//! It counts tablets; how busy they are is not known here. A pure function of the registers: all servers that
//! know the same registers want the same, so nobody has to decide for others, and each moves its own.
//!
//! With *n* active servers in the order of the ring, the *i*-th is to own as many of *t* tablets as
//! [`Assignment::even`](crate::Assignment::even) gave it: `ceil((i + 1) t / n) - ceil(i t / n)`. So counts
//! differ by one at most, and so do those of any *r* servers that follow each other together: as copies lie
//! on the owner and those behind it, no server has more than one copy more than another. Other counts that
//! are as even for owners would not be so for copies.

use crate::assignment::Tablet;
use bearing_types::{ServerId, TabletSerial};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Servers that tablets are for, in the order of the ring.
    active: Vec<ServerId>,
    /// Tablets that another server is to own.
    moves: BTreeMap<TabletSerial, ServerId>,
}

impl Balance {
    /// Of these tablets among these servers. What an owner has too much goes to those that lack some: to a
    /// member of the tablet where one lacks any, and so with nothing to copy.
    pub fn new<'a>(
        tablets: impl Iterator<Item = &'a Tablet>,
        active: impl IntoIterator<Item = ServerId>,
    ) -> Balance {
        let mut active: Vec<ServerId> = active.into_iter().collect();
        active.sort_unstable();
        active.dedup();
        let mut tablets: Vec<&Tablet> = tablets.collect();
        tablets.sort_by_key(|tablet| tablet.serial);
        let mut balance = Balance { active, moves: BTreeMap::new() };
        if balance.active.is_empty() {
            return balance;
        }
        let mut lacks: BTreeMap<ServerId, i64> = balance.wanted(tablets.len()).collect();
        for tablet in &tablets {
            *lacks.entry(tablet.owner).or_insert(0) -= 1;
        }
        for to_members in [true, false] {
            for tablet in &tablets {
                if lacks[&tablet.owner] >= 0 || balance.moves.contains_key(&tablet.serial) {
                    continue;
                }
                let behind = balance.behind(tablet.owner);
                let mut takers = behind.filter(|server| !to_members || tablet.members.contains(server));
                let taker = takers.find(|server| lacks[server] > 0);
                drop(takers);
                if let Some(taker) = taker {
                    balance.moves.insert(tablet.serial, taker);
                    *lacks.entry(taker).or_insert(0) -= 1;
                    *lacks.entry(tablet.owner).or_insert(0) += 1;
                }
            }
        }
        balance
    }

    /// How many tablets each is to own.
    fn wanted(&self, tablets: usize) -> impl Iterator<Item = (ServerId, i64)> + '_ {
        let count = self.active.len();
        let from = move |place: usize| (place * tablets).div_ceil(count) as i64;
        self.active.iter().enumerate().map(move |(place, server)| (*server, from(place + 1) - from(place)))
    }

    /// Active servers in the order of the ring behind one, that one left out.
    fn behind(&self, server: ServerId) -> impl Iterator<Item = ServerId> + '_ {
        let first = self.active.partition_point(|other| *other <= server);
        let others = self.active.iter().cycle().skip(first).take(self.active.len()).copied();
        others.filter(move |other| *other != server)
    }

    /// Whether a server may be given tablets.
    pub fn is_active(&self, server: ServerId) -> bool {
        self.active.binary_search(&server).is_ok()
    }

    /// How many may.
    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Who is to own a tablet, if another one does.
    pub fn owner_of(&self, tablet: TabletSerial) -> Option<ServerId> {
        self.moves.get(&tablet).copied()
    }

    /// The tablets that are to be another server's.
    pub fn moves(&self) -> impl Iterator<Item = (TabletSerial, ServerId)> + '_ {
        self.moves.iter().map(|(tablet, server)| (*tablet, *server))
    }

    /// Who is to hold what a server owns beside it: those behind it on the ring.
    pub fn copies_of(&self, owner: ServerId, copies: usize) -> Vec<ServerId> {
        self.behind(owner).take(copies.saturating_sub(1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Assignment;
    use proptest::prelude::*;

    fn tablets_of(servers: &[ServerId], bits: u8, copies: usize) -> Vec<Tablet> {
        Assignment::even(servers, bits, copies).unwrap().tablets().cloned().collect()
    }

    fn servers(count: u32) -> Vec<ServerId> {
        (1..=count).map(ServerId).collect()
    }

    /// Carries out all that is wanted. Gives how many owners changed.
    fn settle(tablets: &mut [Tablet], active: &[ServerId], copies: usize) -> usize {
        let balance = Balance::new(tablets.iter(), active.iter().copied());
        for tablet in tablets.iter_mut() {
            tablet.owner = balance.owner_of(tablet.serial).unwrap_or(tablet.owner);
            tablet.members = balance.copies_of(tablet.owner, copies);
            tablet.members.push(tablet.owner);
        }
        balance.moves.len()
    }

    fn spread(tablets: &[Tablet], active: &[ServerId], has: impl Fn(&Tablet, ServerId) -> bool) -> usize {
        let counts = active.iter().map(|server| tablets.iter().filter(|tablet| has(tablet, *server)).count());
        let counts: Vec<usize> = counts.collect();
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }

    #[test]
    fn a_new_cluster_is_even_already() {
        for count in 1..9 {
            for copies in 1..4 {
                let tablets = tablets_of(&servers(count), 4, copies);
                let balance = Balance::new(tablets.iter(), servers(count));
                assert_eq!(balance.moves().count(), 0, "{count} servers");
                for tablet in &tablets {
                    let wanted = balance.copies_of(tablet.owner, copies);
                    assert_eq!(tablet.members[1..], wanted, "{count} servers");
                }
            }
        }
    }

    #[test]
    fn nobody_is_given_anything_when_nobody_is_active() {
        let tablets = tablets_of(&servers(3), 4, 3);
        assert_eq!(Balance::new(tablets.iter(), []), Balance::default());
    }

    proptest! {
        /// From any owners, among any servers, to counts that are even, at once; with as few changes of
        /// owners as these counts allow, and none when they are reached.
        #[test]
        fn tablets_and_copies_are_even_afterwards(
            owners in proptest::collection::vec(1u32..9, 32),
            active in proptest::collection::btree_set(1u32..9, 1..9),
            copies in 1usize..5,
        ) {
            let active: Vec<ServerId> = active.into_iter().map(ServerId).collect();
            let mut tablets = tablets_of(&servers(1), 5, 1);
            for (tablet, owner) in tablets.iter_mut().zip(&owners) {
                (tablet.owner, tablet.members) = (ServerId(*owner), vec![ServerId(*owner)]);
            }
            let owned = |tablets: &[Tablet], server| tablets.iter().filter(|tablet| tablet.owner == server).count();
            let before: BTreeMap<ServerId, usize> =
                servers(9).into_iter().map(|server| (server, owned(&tablets, server))).collect();
            let moved = settle(&mut tablets, &active, copies);
            let gained = before.iter().map(|(server, before)| owned(&tablets, *server).saturating_sub(*before));
            prop_assert_eq!(moved, gained.sum::<usize>());
            prop_assert!(tablets.iter().all(|tablet| active.contains(&tablet.owner)));
            prop_assert!(spread(&tablets, &active, |tablet, server| tablet.owner == server) <= 1);
            prop_assert!(spread(&tablets, &active, |tablet, server| tablet.members.contains(&server)) <= 1);
            prop_assert_eq!(settle(&mut tablets, &active, copies), 0);
        }

        /// Each move that is carried out by itself leaves one less, whichever it is.
        #[test]
        fn whoever_moves_first_there_is_one_move_less(
            owners in proptest::collection::vec(1u32..7, 16), picks in proptest::collection::vec(any::<u16>(), 32),
        ) {
            let mut tablets = tablets_of(&servers(6), 4, 3);
            for (tablet, owner) in tablets.iter_mut().zip(&owners) {
                tablet.owner = ServerId(*owner);
            }
            for pick in picks {
                let balance = Balance::new(tablets.iter(), servers(5));
                let moves: Vec<_> = balance.moves().collect();
                if moves.is_empty() {
                    break;
                }
                let (serial, to) = moves[usize::from(pick) % moves.len()];
                let moved = tablets.iter_mut().find(|tablet| tablet.serial == serial);
                moved.unwrap().owner = to;
                let left = Balance::new(tablets.iter(), servers(5)).moves().count();
                prop_assert_eq!(left, moves.len() - 1);
            }
            prop_assert_eq!(Balance::new(tablets.iter(), servers(5)).moves().count(), 0);
        }
    }
}
