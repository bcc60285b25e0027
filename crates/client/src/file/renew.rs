//! Keeps the leases of open files alive, so that their attributes are at hand and their server knows without
//! asking that they may be open.
//!
//! Invariants: every open file has one renewal planned, waiting or under way, until its node is gone or the
//! session over; at most a bounded number is under way at one server, so that a silent one holds up no other.
//! A lease that could not be renewed in time (a partition, too many holders) is asked for again, ever more
//! slowly; meanwhile the server keeps the node all the same, until it has asked here or the session is over.

use crate::context::{Context, State};
use crate::state::files::Renew;
use bearing_proto::client::LeaseKey;
use bearing_types::{Code, NodeId};

impl State {
    /// Plans when the lease of an open file is renewed.
    pub fn plan_renewal(&mut self, node: NodeId) {
        let wanted = self.files.is_opened(node) && !self.delegations.is_our_node(node);
        let until = self.cache.may_open_until(node, self.io.now.mono);
        self.renewals.plan(node, wanted, until, &mut self.io);
    }

    /// The leases of these may have ended.
    pub fn plan_renewals_of(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            if let LeaseKey::File(node) = key {
                self.plan_renewal(*node);
            }
        }
    }

    /// It is time to renew.
    pub fn on_renewal_due(&mut self, node: NodeId) {
        let until = self.cache.may_open_until(node, self.io.now.mono);
        let home = self.files.handle(node).and_then(|handle| self.routes.locate(handle.home));
        if self.renewals.on_due(node, until, home.map(|located| located.owner)) {
            self.plan_renewal(node);
        }
    }

    /// The next renewal to carry out now.
    pub fn begin_renewal(&mut self) -> Option<Renew> {
        if self.session.over().is_some() {
            return None;
        }
        self.renewals.begin(self.io.config.renewals_max, |node| self.files.opened_handle(node))
    }
}

impl Context {
    /// Asks for a file's attributes, which come with a lease; of one that was opened without a token for that
    /// too.
    pub(crate) async fn renew_lease(self, renew: Renew) {
        self.with(|state| state.io.counters.leases_renewed += 1);
        let asked = match self.hold_open(renew.handle.node).await {
            Some(held) => held,
            None => self.ask_attributes(renew.handle).await.map(|_| ()),
        };
        self.with(|state| {
            if state.renewals.end(&renew, asked == Err(Code::Stale), state.io.now.mono) {
                state.plan_renewal(renew.handle.node);
            }
        });
    }
}
