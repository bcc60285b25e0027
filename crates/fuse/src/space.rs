//! What statfs(2) tells: of a directory with a quota, and of all below it, what the quota leaves; elsewhere
//! what the cluster has.

use crate::bridge::Bridge;
use bearing_mount::{QuotaView, StatfsView};
use bearing_types::Outcome;
use fuser::INodeNo;

/// Space in bytes, and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// All bytes.
    pub total: u64,
    /// Of these, free.
    pub free: u64,
    /// All nodes that there may be; 0, as Btrfs says it too: they are limited by space only, and nobody
    /// counts them.
    pub nodes: u64,
    /// Of these, not there yet.
    pub nodes_free: u64,
}

impl Bridge {
    /// The space that a node is part of.
    pub fn space(&self, number: INodeNo) -> Outcome<Space> {
        let all = self.caller.statfs()?;
        // Whoever asks about a node that is gone wants to know of the filesystem.
        let quota = self.handle(number).and_then(|node| self.caller.quota(node)).unwrap_or(None);
        Ok(space(all, quota))
    }
}

fn space(all: StatfsView, quota: Option<QuotaView>) -> Space {
    let whole = Space { total: all.bytes_total, free: all.bytes_free, nodes: 0, nodes_free: 0 };
    let Some(QuotaView { limit, used, .. }) = quota else { return whole };
    let left = limit.minus(used);
    // A limit that is none, or that the disks do not reach: the disks decide.
    let (total, free) = match limit.space {
        u64::MAX => (whole.total, whole.free),
        space => (space, left.space.min(whole.free)),
    };
    let (nodes, nodes_free) = match limit.entries {
        u64::MAX => (whole.nodes, whole.nodes_free),
        entries => (entries, left.entries),
    };
    Space { total, free, nodes, nodes_free }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_mount::Handle;
    use bearing_types::{Amount, NodeId, Position};

    const ALL: StatfsView = StatfsView { bytes_total: 1000, bytes_free: 600 };

    fn with(limit: Amount, used: Amount) -> Space {
        let directory = Handle { node: NodeId(7), home: Position(7) };
        space(ALL, Some(QuotaView { directory, limit, used }))
    }

    #[test]
    fn a_quota_shows_what_it_leaves_and_never_more_than_the_disks_have() {
        let amount = |space, entries| Amount { space, entries };
        assert_eq!(
            with(amount(500, 10), amount(100, 12)),
            Space { total: 500, free: 400, nodes: 10, nodes_free: 0 }
        );
        assert_eq!(with(amount(5000, 10), amount(0, 1)).free, 600);
        assert_eq!(with(Amount::UNLIMITED, amount(100, 12)), space(ALL, None));
        assert_eq!(space(ALL, None), Space { total: 1000, free: 600, nodes: 0, nodes_free: 0 });
    }
}
