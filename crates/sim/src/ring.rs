//! What has to be so of the ring of metadata servers, and of their filters, when nothing is wrong any more.

use crate::clock::SECOND;
use crate::complaint::Promise;
use crate::sim::Sim;
use bearing_meta::{FilterView, RingView};
use bearing_placement::LookupKind;
use bearing_types::ServerId;
use std::collections::BTreeSet;

/// When nothing is wrong any more, neighbours are right within this time. Packets are up to 9 s late, and may
/// name whoever was there when they were sent.
const LINKED_WITHIN: u64 = 9 * SECOND + 4 * SECOND;

impl Sim {
    /// Neighbours are those of the ring of all servers that are there.
    pub(crate) fn check_ring(&mut self) {
        let end = self.peace.0 + LINKED_WITHIN;
        self.run_until(end, |_| false);
        if !self.ledger.complaints.is_empty() {
            return;
        }
        let there: Vec<(ServerId, Option<RingView>)> =
            self.metadata.iter().filter_map(|host| host.ring()).collect();
        let ring: Vec<ServerId> = there.iter().map(|(server, _)| *server).collect();
        for (place, (server, view)) in there.iter().enumerate() {
            let at = |steps: usize| ring[(place + 2 * ring.len() - 2 + steps) % ring.len()];
            let right = [at(0), at(1), at(3), at(4)];
            let known = view
                .as_ref()
                .map(|view| [view.front_predecessor, view.predecessor, view.successor, view.next_successor]);
            if known != Some(right) {
                let what = format!("{server} takes {known:?} for its neighbours, which are {right:?}");
                self.ledger.blame(&self.world, Promise::Linked, what);
            }
            let linked = view.as_ref().map_or(0, |view| view.reconstructions);
            self.world.counts.add_many("ring: reconstructions of last lives", linked);
        }
    }

    /// Servers with filters agree on who is in: all that are there.
    pub(crate) fn check_filters(&mut self) {
        if self.world.lookup != LookupKind::BloomGroups {
            return;
        }
        let there: Vec<(ServerId, Option<FilterView>)> =
            self.metadata.iter().filter_map(|host| host.filters()).collect();
        let all: BTreeSet<ServerId> = there.iter().map(|(server, _)| *server).collect();
        for (server, view) in there {
            let (members, counts) = match view {
                Some(FilterView { members, is_in: true, counts, .. }) => (members, counts),
                _ => (BTreeSet::new(), Default::default()),
            };
            if members != all && self.ledger.complaints.is_empty() {
                let what = format!("{server} takes {members:?} for those with filters, which are {all:?}");
                self.ledger.blame(&self.world, Promise::Linked, what);
            }
            for (what, count) in [
                ("filters: found among the recent, in last lives", counts.found_recent),
                ("filters: found by a segment, in last lives", counts.found_segment),
                ("filters: found by a group, in last lives", counts.found_group),
                ("filters: found by all, in last lives", counts.found_all),
                ("filters: misled, in last lives", counts.misled),
                ("filters: published, in last lives", counts.published),
                ("filters: migrated or asked for, in last lives", counts.migrated + counts.refetched),
            ] {
                self.world.counts.add_many(what, count);
            }
        }
    }
}
