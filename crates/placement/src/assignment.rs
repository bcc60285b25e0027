//! Who owns which tablet under which epoch: an immutable value that can check itself.

use crate::arcs::Arcs;
use bearing_types::{Block, Epoch, LogIndex, Position, ServerId, TabletSerial};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A tablet: an aligned block of the ring, the unit of ownership, epoch, log, replication and migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tablet {
    /// The block.
    pub block: Block,
    /// Its number, which no other tablet ever has.
    pub serial: TabletSerial,
    /// The epoch: every change of owner or members raises it.
    pub epoch: Epoch,
    /// The server that serves it.
    pub owner: ServerId,
    /// All servers that hold its log and count for a commit, the owner included.
    pub members: Vec<ServerId>,
    /// A server that is being given its log.
    pub learner: Option<ServerId>,
    /// It was committed up to this entry when this was registered: a server that has less of it has lost what
    /// it had.
    pub committed: LogIndex,
}

/// An assignment of the whole ring. What is decoded is checked as what is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Assignment {
    tablets: BTreeMap<Position, Tablet>,
}

/// An assignment as it comes from outside.
#[derive(Deserialize)]
struct Unchecked {
    tablets: BTreeMap<Position, Tablet>,
}

/// What an assignment may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentError {
    /// No tablet holds the position.
    Gap(Position),
    /// Two tablets share positions.
    Overlap(Block, Block),
    /// The owner is not among the members.
    OwnerNotMember(Block, ServerId),
    /// A server is named twice among members and learner.
    MemberTwice(Block, ServerId),
    /// Two tablets have the same serial.
    SerialTwice(TabletSerial),
    /// More tablets asked for than the ring is cut into, or none; with the number asked.
    TabletBits(u8),
    /// There is no server to own anything.
    NoServers,
    /// A tablet is listed under another position than its start.
    Misplaced(Position, Block),
}

impl fmt::Display for AssignmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssignmentError::Gap(position) => write!(f, "no tablet holds position {position}"),
            AssignmentError::Overlap(a, b) => write!(f, "tablets {a} and {b} overlap"),
            AssignmentError::OwnerNotMember(block, owner) => {
                write!(f, "tablet {block} is owned by {owner}, which is not among its members")
            }
            AssignmentError::MemberTwice(block, server) => {
                write!(f, "tablet {block} names member {server} twice")
            }
            AssignmentError::SerialTwice(serial) => write!(f, "two tablets have the serial {serial}"),
            AssignmentError::TabletBits(bits) => {
                write!(f, "cannot cut the ring by {bits} bits; give 0 to {}", Assignment::CUT_BITS_MAX)
            }
            AssignmentError::NoServers => write!(f, "there is no server to own a tablet; give at least one"),
            AssignmentError::Misplaced(position, block) => {
                write!(f, "tablet {block} is listed under {position}, which is not its start")
            }
        }
    }
}

impl std::error::Error for AssignmentError {}

impl TryFrom<Unchecked> for Assignment {
    type Error = AssignmentError;

    fn try_from(unchecked: Unchecked) -> Result<Assignment, AssignmentError> {
        let misplaced = |(position, tablet): &(&Position, &Tablet)| **position != tablet.block.start();
        if let Some((position, tablet)) = unchecked.tablets.iter().find(misplaced) {
            return Err(AssignmentError::Misplaced(*position, tablet.block));
        }
        let assignment = Assignment { tablets: unchecked.tablets };
        assignment.check()?;
        Ok(assignment)
    }
}

impl Assignment {
    /// The finest even cut: 2^16 tablets.
    pub const CUT_BITS_MAX: u8 = 16;

    /// An assignment from tablets, checked.
    pub fn new(tablets: impl IntoIterator<Item = Tablet>) -> Result<Assignment, AssignmentError> {
        let mut by_start = BTreeMap::new();
        for tablet in tablets {
            let block = tablet.block;
            if let Some(other) = by_start.insert(block.start(), tablet) {
                return Err(AssignmentError::Overlap(other.block, block));
            }
        }
        let assignment = Assignment { tablets: by_start };
        assignment.check()?;
        Ok(assignment)
    }

    /// The first assignment of a cluster: 2^`cut_bits` equal tablets under epoch 1, dealt out in contiguous
    /// runs, so that neighbours on the ring (and so parents and children) tend to share a server. Each has
    /// so many copies, on its owner and the owners that follow on the ring, or as many as there are servers.
    pub fn even(servers: &[ServerId], cut_bits: u8, copies: usize) -> Result<Assignment, AssignmentError> {
        if servers.is_empty() {
            return Err(AssignmentError::NoServers);
        }
        if cut_bits > Assignment::CUT_BITS_MAX {
            return Err(AssignmentError::TabletBits(cut_bits));
        }
        let count = 1usize << cut_bits;
        Assignment::new((0..count).map(|index| {
            let block = Block::RING.sub_block(cut_bits, index as u64);
            let first = index * servers.len() / count;
            let members = servers.iter().cycle().skip(first).take(copies.clamp(1, servers.len()));
            let serial = TabletSerial::of_first(block).expect("few bits");
            Tablet {
                block,
                serial,
                epoch: Epoch(1),
                owner: servers[first],
                members: members.copied().collect(),
                learner: None,
                committed: LogIndex::ZERO,
            }
        }))
    }

    /// The first assignment under a scheme's arcs: the fewest tablets that make them up, under epoch 1, each
    /// on `copies` servers, the owner and its successors on the ring.
    pub fn of(arcs: &Arcs, copies: usize) -> Result<Assignment, AssignmentError> {
        let serials = TabletSerial::FIRST_OF_SPLITS.0..;
        Assignment::new(arcs.blocks().into_iter().zip(serials).map(|((block, owner), serial)| Tablet {
            block,
            serial: TabletSerial(serial),
            epoch: Epoch(1),
            owner,
            members: arcs.successors(block.start(), copies),
            learner: None,
            committed: LogIndex::ZERO,
        }))
    }

    /// The assignment that follows when servers own these arcs: tablets that a boundary goes through are
    /// split, and whatever is split or gets other servers gets a new epoch. All else stays as it is.
    pub fn toward(&self, arcs: &Arcs, copies: usize) -> Result<Assignment, AssignmentError> {
        let mut tablets = Vec::with_capacity(self.tablets.len());
        let mut open: Vec<(Block, &Tablet)> =
            self.tablets.values().rev().map(|tablet| (tablet.block, tablet)).collect();
        let newest = self.tablets.values().map(|tablet| tablet.serial.0 + 1).max().unwrap_or(0);
        let mut serials = (newest.max(TabletSerial::FIRST_OF_SPLITS.0)..).map(TabletSerial);
        while let Some((block, before)) = open.pop() {
            let (_, last) = arcs.around(block.start());
            if let Some((low, high)) = block.halves().filter(|_| last < block.last()) {
                open.extend([(high, before), (low, before)]);
                continue;
            }
            let (owner, members) = (arcs.owner(block.start()), arcs.successors(block.start(), copies));
            let same = block == before.block && owner == before.owner && members == before.members;
            let epoch = if same { before.epoch } else { before.epoch.next() };
            let serial = match block == before.block {
                true => before.serial,
                false => serials.next().expect("there is always another number"),
            };
            let committed = if block == before.block { before.committed } else { LogIndex::ZERO };
            tablets.push(Tablet { block, serial, epoch, owner, members, learner: None, committed });
        }
        Assignment::new(tablets)
    }

    /// Who owns what, whatever the tablets.
    pub fn arcs(&self) -> Arcs {
        let owners = self.tablets.values().map(|tablet| (tablet.block, tablet.owner));
        Arcs::of_blocks(owners).expect("a checked assignment covers the ring")
    }

    /// Checks that every position has exactly one tablet and that every owner holds the log it serves.
    pub fn check(&self) -> Result<(), AssignmentError> {
        let mut next = Some(Position(0));
        let mut previous: Option<Block> = None;
        let mut serials = BTreeSet::new();
        for tablet in self.tablets.values() {
            let block = tablet.block;
            match (next, previous) {
                (Some(expected), _) if block.start() > expected => {
                    return Err(AssignmentError::Gap(expected));
                }
                (Some(expected), _) if block.start() == expected => {}
                (_, Some(before)) => return Err(AssignmentError::Overlap(before, block)),
                (_, None) => return Err(AssignmentError::Gap(Position(0))),
            }
            Assignment::check_members(tablet)?;
            if !serials.insert(tablet.serial) {
                return Err(AssignmentError::SerialTwice(tablet.serial));
            }
            next = block.last().0.checked_add(1).map(Position);
            previous = Some(block);
        }
        next.map_or(Ok(()), |position| Err(AssignmentError::Gap(position)))
    }

    fn check_members(tablet: &Tablet) -> Result<(), AssignmentError> {
        let mut seen = BTreeSet::new();
        if let Some(twice) =
            tablet.members.iter().chain(&tablet.learner).find(|member| !seen.insert(**member))
        {
            return Err(AssignmentError::MemberTwice(tablet.block, *twice));
        }
        if !tablet.members.contains(&tablet.owner) {
            return Err(AssignmentError::OwnerNotMember(tablet.block, tablet.owner));
        }
        Ok(())
    }

    /// The tablet that holds a position.
    pub fn tablet_at(&self, position: Position) -> &Tablet {
        let (_, tablet) =
            self.tablets.range(..=position).next_back().expect("a checked assignment covers the ring");
        tablet
    }

    /// All tablets in ring order.
    pub fn tablets(&self) -> impl Iterator<Item = &Tablet> {
        self.tablets.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_position_has_exactly_one_owner(servers in 1u32..9, cut_bits in 0u8..8, position: u64) {
            let servers: Vec<_> = (1..=servers).map(ServerId).collect();
            let assignment = Assignment::even(&servers, cut_bits, 1).unwrap();
            let owners = assignment.tablets().filter(|tablet| tablet.block.contains(Position(position))).count();
            prop_assert_eq!(owners, 1);
            prop_assert!(assignment.tablet_at(Position(position)).block.contains(Position(position)));
        }
    }

    fn arcs() -> impl Strategy<Value = Arcs> {
        proptest::collection::vec((any::<u64>().prop_map(Position), (1u32..6).prop_map(ServerId)), 1..12)
            .prop_map(|starts| Arcs::new(starts).unwrap())
    }

    proptest! {
        #[test]
        fn an_assignment_follows_arcs_and_only_what_changes_gets_an_epoch(before in arcs(), after in arcs(), position: u64) {
            let position = Position(position);
            let first = Assignment::of(&before, 2).unwrap();
            prop_assert_eq!(&first.arcs(), &before);
            let next = first.toward(&after, 2).unwrap();
            prop_assert_eq!(&next.arcs(), &after);
            let (old, new) = (first.tablet_at(position), next.tablet_at(position));
            prop_assert_eq!(new.owner, after.owner(position));
            prop_assert_eq!(&new.members, &after.successors(position, 2));
            if new.epoch == old.epoch { prop_assert_eq!(old, new) } else { prop_assert_eq!(new.epoch, old.epoch.next()) }
            prop_assert_eq!(&next.toward(&after, 2).unwrap(), &next);
        }
    }

    fn tablet(block: Block, members: &[u32]) -> Tablet {
        let members: Vec<_> = members.iter().copied().map(ServerId).collect();
        let serial = TabletSerial::of_first(block).unwrap();
        let committed = LogIndex::ZERO;
        Tablet { block, serial, epoch: Epoch(1), owner: ServerId(1), members, learner: None, committed }
    }

    #[test]
    fn copies_lie_on_the_owners_that_follow_on_the_ring_and_one_owner_has_the_same_for_all_its_tablets() {
        let servers: Vec<_> = (1..=5).map(ServerId).collect();
        let assignment = Assignment::even(&servers, 6, 3).unwrap();
        for tablet in assignment.tablets() {
            let next = |step: u32| ServerId((tablet.owner.0 - 1 + step) % 5 + 1);
            assert_eq!(tablet.members, [next(0), next(1), next(2)]);
        }
        let few = Assignment::even(&servers[..2], 1, 3).unwrap();
        assert!(few.tablets().all(|tablet| tablet.members.len() == 2));
    }

    #[test]
    fn gaps_overlaps_and_foreign_owners_are_refused() {
        let (low, high) = Block::RING.halves().unwrap();
        let gap = Assignment::new([tablet(low, &[1])]);
        assert_eq!(gap, Err(AssignmentError::Gap(high.start())));
        let late = Assignment::new([tablet(high, &[1])]);
        assert_eq!(late, Err(AssignmentError::Gap(Position(0))));
        let overlap = Assignment::new([tablet(Block::RING, &[1]), tablet(high, &[1])]);
        assert_eq!(overlap, Err(AssignmentError::Overlap(Block::RING, high)));
        let foreign = Assignment::new([tablet(Block::RING, &[2])]);
        assert_eq!(foreign, Err(AssignmentError::OwnerNotMember(Block::RING, ServerId(1))));
        let twice = Assignment::new([tablet(Block::RING, &[1, 1])]);
        assert_eq!(twice, Err(AssignmentError::MemberTwice(Block::RING, ServerId(1))));
        let learner = Some(ServerId(1));
        let learns = Assignment::new([Tablet { learner, ..tablet(Block::RING, &[1]) }]);
        assert_eq!(learns, Err(AssignmentError::MemberTwice(Block::RING, ServerId(1))));
        let serial = tablet(low, &[1]).serial;
        let alike = Assignment::new([tablet(low, &[1]), Tablet { serial, ..tablet(high, &[1]) }]);
        assert_eq!(alike, Err(AssignmentError::SerialTwice(serial)));
    }
}
