//! Locks: nobody is told that he has one while somebody else, who was told the same, has one that conflicts.

use super::violation::{Rule, Violation};
use crate::history::LockHold;
use bearing_types::HeldLock;

/// Checks all locks that clients were told they had.
pub fn check(holds: &[LockHold]) -> Vec<Violation> {
    let mut told: Vec<_> = holds.iter().filter_map(|hold| Some((hold.got?, hold))).collect();
    told.sort_by_key(|(got, _)| *got);
    let mut violations = Vec::new();
    for (at, (got, hold)) in told.iter().enumerate() {
        let earlier = told[..at].iter().filter(|(_, other)| other.node == hold.node);
        for (_, other) in earlier.filter(|(_, other)| other.until.is_none_or(|until| until > *got)) {
            if held(other).conflicts(&held(hold)) {
                let message = format!("{hold:?} was given although {other:?} was held");
                violations.push(Violation::general(Rule::LockedTwice, message));
            }
        }
    }
    violations
}

fn held(hold: &LockHold) -> HeldLock {
    HeldLock { session: hold.session, lock: hold.lock }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientId;
    use bearing_types::{Lock, LockMode, LockOwner, LockRange, LockSpace, Mono, NodeId, SessionId};

    fn hold(session: u64, mode: LockMode, got: Option<u64>, until: Option<u64>) -> LockHold {
        let (owner, space, range) = (LockOwner(1), LockSpace::Whole, LockRange::ALL);
        LockHold {
            client: ClientId(session as u32),
            session: SessionId(session),
            node: NodeId(9),
            lock: Lock { owner, space, range, mode, pid: 0 },
            got: got.map(Mono),
            until: until.map(Mono),
        }
    }

    #[test]
    fn two_holders_at_the_same_time_are_caught() {
        use LockMode::{Exclusive, Shared};
        let found = |holds: &[LockHold]| check(holds).len();
        let first = hold(1, Exclusive, Some(10), Some(20));
        assert_eq!(found(&[hold(2, Exclusive, Some(20), None), first.clone()]), 0);
        assert_eq!(found(&[hold(2, Shared, Some(19), None), first.clone()]), 1);
        assert_eq!(found(&[hold(2, Shared, None, None), first.clone()]), 0, "it was never told");
        assert_eq!(found(&[hold(1, Shared, Some(19), None), first]), 0, "its own");
        assert_eq!(found(&[hold(1, Shared, Some(1), None), hold(2, Shared, Some(2), None)]), 0);
        assert_eq!(found(&[hold(1, Shared, Some(1), None), hold(2, Exclusive, Some(9), Some(10))]), 1);
    }
}
