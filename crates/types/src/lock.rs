//! Locks on files, as flock(2) and fcntl(2) know them: who holds what, what stands in whose way.
//!
//! Invariants: no two holders of one [`FileLocks`] conflict; what one holder has in one space does not
//! overlap and is not divided without need. Only values: who waits, and for how long, is not known here.

use crate::id::SessionId;
use serde::{Deserialize, Serialize};

/// Locks of one file that are kept; more are refused.
pub const LOCKS_PER_FILE_MAX: usize = 4096;

/// Who takes a lock, within a session: an open file (flock, open file description locks) or a process
/// (fcntl). Chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner(pub u64);

/// Which locks see each other: those of flock(2) and those of fcntl(2) do not, as on Linux's own filesystems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    /// flock(2): on the whole file.
    Whole,
    /// fcntl(2): on ranges of bytes.
    Ranges,
}

/// What a lock leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Shared locks.
    Shared,
    /// Nothing.
    Exclusive,
}

/// Bytes of a file, the last one included: a range may go on for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub last: u64,
}

/// A lock, held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Whose.
    pub owner: LockOwner,
    /// Which kind.
    pub space: LockSpace,
    /// On what.
    pub range: LockRange,
    /// Beside whom.
    pub mode: LockMode,
    /// The process that took it, for F_GETLK; it means something on its own machine only.
    pub pid: u32,
}

/// A lock and the session that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeldLock {
    /// The session.
    pub session: SessionId,
    /// The lock.
    pub lock: Lock,
}

/// All locks that are held on one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLocks(Vec<HeldLock>);

impl LockRange {
    /// The whole file, whatever its length.
    pub const ALL: LockRange = LockRange { start: 0, last: u64::MAX };

    /// Whether two ranges share a byte.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.start <= other.last && other.start <= self.last
    }
}

impl HeldLock {
    /// Whether both have one holder, in one space.
    fn is_by(&self, other: &HeldLock) -> bool {
        self.is_of(other.session, other.lock.owner, other.lock.space)
    }

    fn is_of(&self, session: SessionId, owner: LockOwner, space: LockSpace) -> bool {
        self.session == session && self.lock.owner == owner && self.lock.space == space
    }

    /// Whether two locks cannot be held at the same time.
    pub fn conflicts(&self, other: &HeldLock) -> bool {
        let both_shared = self.lock.mode == LockMode::Shared && other.lock.mode == LockMode::Shared;
        self.lock.space == other.lock.space
            && !self.is_by(other)
            && !both_shared
            && self.lock.range.overlaps(other.lock.range)
    }
}

impl FileLocks {
    /// The locks, in the order of their ranges.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.0.iter()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no more may be added.
    pub fn is_full(&self) -> bool {
        self.0.len() >= LOCKS_PER_FILE_MAX
    }

    /// The held locks that stand in the way of a wish.
    pub fn conflicts<'a>(&'a self, wish: &'a HeldLock) -> impl Iterator<Item = &'a HeldLock> {
        self.0.iter().filter(move |held| held.conflicts(wish))
    }

    /// Gives a lock in place of whatever its holder had of the range. The caller has seen to it that nothing
    /// conflicts.
    pub fn set(&mut self, wish: HeldLock) {
        let HeldLock { session, lock } = wish;
        self.clear(session, lock.owner, lock.space, lock.range);
        let mut range = lock.range;
        // Neighbours of the same mode become one.
        self.0.retain(|held| {
            let touches = held.lock.range.start <= range.last.saturating_add(1)
                && range.start <= held.lock.range.last.saturating_add(1);
            let joins = held.is_by(&wish) && held.lock.mode == lock.mode && touches;
            if joins {
                range.start = range.start.min(held.lock.range.start);
                range.last = range.last.max(held.lock.range.last);
            }
            !joins
        });
        self.0.push(HeldLock { session, lock: Lock { range, ..lock } });
        self.0.sort_by_key(|held| (held.lock.range, *held));
    }

    /// Takes a range from a holder. Gives whether it had any of it.
    pub fn clear(
        &mut self,
        session: SessionId,
        owner: LockOwner,
        space: LockSpace,
        range: LockRange,
    ) -> bool {
        let concerned =
            |held: &HeldLock| held.is_of(session, owner, space) && held.lock.range.overlaps(range);
        let cut: Vec<HeldLock> = self.0.iter().filter(|held| concerned(held)).copied().collect();
        self.0.retain(|held| !concerned(held));
        for held in &cut {
            let whole = held.lock.range;
            let before = range.start.checked_sub(1).map(|last| LockRange { start: whole.start, last });
            let after = range.last.checked_add(1).map(|start| LockRange { start, last: whole.last });
            let rests = before.into_iter().chain(after);
            for rest in rests.filter(|rest| rest.start <= rest.last) {
                self.0.push(HeldLock { session, lock: Lock { range: rest, ..held.lock } });
            }
        }
        self.0.sort_by_key(|held| (held.lock.range, *held));
        !cut.is_empty()
    }

    /// Takes everything from a session. Gives whether it had anything.
    pub fn clear_session(&mut self, session: SessionId) -> bool {
        let before = self.0.len();
        self.0.retain(|held| held.session != session);
        self.0.len() < before
    }

    /// Whether a holder has every byte of a wish, at least as it wishes.
    pub fn has(&self, wish: &HeldLock) -> bool {
        let enough = |held: &&HeldLock| held.is_by(wish) && held.lock.mode >= wish.lock.mode;
        let mut next = Some(wish.lock.range.start);
        for held in self.0.iter().filter(enough) {
            match next {
                Some(from) if held.lock.range.start <= from && from <= held.lock.range.last => {
                    next = held.lock.range.last.checked_add(1);
                }
                _ => {}
            }
        }
        next.is_none_or(|next| next > wish.lock.range.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BYTES: u64 = 12;

    fn held(session: u64, owner: u64, start: u64, last: u64, mode: LockMode) -> HeldLock {
        let (owner, range) = (LockOwner(owner), LockRange { start, last });
        let lock = Lock { owner, space: LockSpace::Ranges, range, mode, pid: 0 };
        HeldLock { session: SessionId(session), lock }
    }

    /// The slow obvious way: for every byte, who has it how.
    type Bytes = BTreeMap<(u64, u64, u64), LockMode>;

    fn free(bytes: &Bytes, wish: &HeldLock) -> bool {
        let me = (wish.session.0, wish.lock.owner.0);
        bytes.iter().all(|((byte, session, owner), mode)| {
            let inside = (wish.lock.range.start..=wish.lock.range.last).contains(byte);
            let both = *mode == LockMode::Shared && wish.lock.mode == LockMode::Shared;
            !inside || (*session, *owner) == me || both
        })
    }

    proptest! {
        #[test]
        fn ranges_are_locked_byte_by_byte_and_never_by_two_that_conflict(
            steps in proptest::collection::vec(
                (0u64..2, 0u64..2, 0..BYTES, 0..BYTES, prop::bool::ANY, 0u8..3), 1..60)
        ) {
            let (mut locks, mut bytes) = (FileLocks::default(), Bytes::new());
            for (session, owner, a, b, exclusive, what) in steps {
                let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
                let wish = held(session, owner, a.min(b), a.max(b), mode);
                let range = a.min(b)..=a.max(b);
                if what == 0 {
                    locks.clear(wish.session, wish.lock.owner, wish.lock.space, wish.lock.range);
                    bytes.retain(|(byte, a, b), _| !range.contains(byte) || (*a, *b) != (session, owner));
                } else {
                    prop_assert_eq!(locks.conflicts(&wish).next().is_none(), free(&bytes, &wish));
                    if free(&bytes, &wish) {
                        let has = range.clone().all(|byte| bytes.get(&(byte, session, owner)) >= Some(&mode));
                        prop_assert_eq!(locks.has(&wish), has);
                        locks.set(wish);
                        bytes.extend(range.map(|byte| ((byte, session, owner), mode)));
                        prop_assert!(locks.has(&wish));
                    }
                }
                let mut seen = Bytes::new();
                for held in locks.iter() {
                    for byte in held.lock.range.start..=held.lock.range.last {
                        let before = seen.insert((byte, held.session.0, held.lock.owner.0), held.lock.mode);
                        prop_assert_eq!(before, None);
                    }
                    prop_assert!(locks.conflicts(held).next().is_none());
                }
                prop_assert_eq!(&seen, &bytes);
            }
        }
    }

    #[test]
    fn a_range_may_go_on_for_ever_and_is_cut_in_the_middle() {
        let mut locks = FileLocks::default();
        locks.set(held(1, 1, 0, u64::MAX, LockMode::Exclusive));
        locks.clear(SessionId(1), LockOwner(1), LockSpace::Ranges, LockRange { start: 10, last: 19 });
        let ranges: Vec<_> = locks.iter().map(|held| (held.lock.range.start, held.lock.range.last)).collect();
        assert_eq!(ranges, [(0, 9), (20, u64::MAX)]);
        locks.set(held(1, 1, 10, 19, LockMode::Exclusive));
        assert_eq!(locks.iter().count(), 1, "neighbours of one mode are one lock");
    }

    #[test]
    fn the_two_spaces_do_not_see_each_other() {
        let mut locks = FileLocks::default();
        locks.set(held(1, 1, 0, u64::MAX, LockMode::Exclusive));
        let mut other = held(2, 1, 0, u64::MAX, LockMode::Exclusive);
        assert_eq!(locks.conflicts(&other).count(), 1);
        other.lock.space = LockSpace::Whole;
        assert_eq!(locks.conflicts(&other).count(), 0);
        locks.set(other);
        assert!(locks.clear_session(SessionId(1)) && locks.iter().count() == 1);
    }
}
