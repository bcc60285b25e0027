//! Clients' caches of path components, under leases, as AngleCut section 5.1 has them.
//!
//! Invariants: what a client asks for does not depend on where anything lies; a component whose lease has
//! ended is asked for again. Leases have one length ([`LEASE_US`]), and the last component is always asked
//! for, as it is what the operation is about.

use crate::namespace::NodeNumber;
use std::collections::HashMap;

/// AngleCut's L: 3 seconds.
const LEASE_US: u64 = 3_000_000;
/// When there are so many leases, those that have ended are forgotten.
const SWEPT_AT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Leases {
    /// By client and node: when the lease ends.
    ends_us: HashMap<(u16, NodeNumber), u64>,
    swept_at: usize,
}

impl Default for Leases {
    fn default() -> Leases {
        Leases { ends_us: HashMap::new(), swept_at: SWEPT_AT }
    }
}

impl Leases {
    /// How many components of a path, given from the last one up, a client asks for at this time: all from
    /// the first one that it does not know. It has leases on them then.
    pub(super) fn asked(&mut self, client: u16, path: &[NodeNumber], now_us: u64) -> u8 {
        let known = |node: &NodeNumber| self.ends_us.get(&(client, *node)).is_some_and(|end| *end > now_us);
        let above = path.get(1..).unwrap_or_default();
        let last_unknown = above.iter().rposition(|node| !known(node));
        let unknown = last_unknown.map_or(0, |index| index + 1);
        for node in &above[..unknown] {
            self.ends_us.insert((client, *node), now_us + LEASE_US);
        }
        if self.ends_us.len() > self.swept_at {
            self.ends_us.retain(|_, end| *end > now_us);
            self.swept_at = SWEPT_AT.max(2 * self.ends_us.len());
        }
        u8::try_from(unknown + 1).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_asked_for_once_a_lease() {
        let mut leases = Leases::default();
        assert_eq!(leases.asked(1, &[5, 2, 0], 0), 3);
        assert_eq!(leases.asked(1, &[5, 2, 0], 1), 1);
        assert_eq!(leases.asked(1, &[6, 2, 0], 2), 1);
        // Another client knows nothing, another directory is not known yet.
        assert_eq!(leases.asked(2, &[6, 2, 0], 3), 3);
        assert_eq!(leases.asked(1, &[8, 7, 0], 4), 2);
        // Leases are not lengthened by use.
        assert_eq!(leases.asked(1, &[5, 2, 0], LEASE_US), 3);
        assert_eq!(leases.asked(1, &[0], LEASE_US), 1);
    }
}
