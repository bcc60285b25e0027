//! What has to be so of the ring of metadata servers when nothing is wrong any more.

use crate::clock::SECOND;
use crate::complaint::Promise;
use crate::sim::Sim;
use bearing_meta::RingView;
use bearing_types::ServerId;

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
}
