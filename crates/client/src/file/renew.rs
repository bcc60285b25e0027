//! Keeps the leases of open files alive, so that their attributes are at hand and their server knows without asking that they may be open.
//!
//! Invariants: every open file has one renewal planned, waiting or under way, until its node is gone or the session over; at most a
//! bounded number is under way at one server, so that a silent one holds up no other. A lease that could not be renewed in time (a
//! partition, too many holders) is asked for again, ever more slowly; meanwhile the server keeps the node all the same, until it has asked
//! here or the session is over.

use super::Files;
use crate::hub::{Hub, State};
use crate::session::Phase;
use crate::timer::Timer;
use bearing_proto::client::{Handle, LeaseKey};
use bearing_types::{Code, Mono, NodeId, ServerId};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Default)]
pub(super) struct Renewals {
    by_node: BTreeMap<NodeId, Renewal>,
    by_server: BTreeMap<Option<ServerId>, Queue>,
}

#[derive(Clone, Copy)]
struct Renewal {
    stage: Stage,
    /// How often it was asked for in vain since there was a lease last.
    in_vain: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its time has not come. Also: the end of the lease that was known when it was planned.
    Planned(Mono, Option<Mono>),
    Waiting,
    UnderWay,
}

/// The renewals whose time has come, by the server that seems to own their homes.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<NodeId>,
    under_way: usize,
}

/// A renewal to carry out.
pub(crate) struct Renew {
    handle: Handle,
    server: Option<ServerId>,
}

impl State {
    /// Plans when the lease of an open file is renewed: half way to its end, or soon if there is none.
    pub fn plan_renewal(&mut self, node: NodeId) {
        let before = self.files.renewals.by_node.get(&node).copied();
        match before.map(|renewal| renewal.stage) {
            Some(Stage::Waiting | Stage::UnderWay) => return,
            Some(Stage::Planned(due, _)) => self.timers.cancel(due, Timer::Renewal(node)),
            None => {}
        }
        if !self.files.is_opened(node) || self.delegations.is_our_node(node) {
            self.files.renewals.by_node.remove(&node);
            return;
        }
        let until = self.cache.may_open_until(node, self.now.mono);
        let in_vain = before.filter(|_| until.is_none()).map_or(0, |renewal| renewal.in_vain);
        let pause = match until {
            Some(until) => self.random.jittered(until.since(self.now.mono) / 2),
            None => self.random.backed_off(self.config.renew_pause, self.config.renew_pause_max, in_vain),
        };
        let due = self.now.mono.after(pause);
        let renewal = Renewal { stage: Stage::Planned(due, until), in_vain };
        self.files.renewals.by_node.insert(node, renewal);
        self.timers.set(due, Timer::Renewal(node));
    }

    /// The leases of these may have ended.
    pub fn plan_renewals_of(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            if let LeaseKey::File(node) = key {
                self.plan_renewal(*node);
            }
        }
    }

    /// It is time to renew, unless some other answer has done so meanwhile.
    pub fn renewal_due(&mut self, node: NodeId) {
        let until = self.cache.may_open_until(node, self.now.mono);
        let home = self.files.files.get(&node).map(|file| file.handle.home);
        let renewals = &mut self.files.renewals;
        let Some(renewal) = renewals.by_node.get_mut(&node) else { return };
        let Stage::Planned(_, planned_until) = renewal.stage else { return };
        if until.is_some() && until != planned_until {
            return self.plan_renewal(node);
        }
        renewal.stage = Stage::Waiting;
        let server = home.and_then(|home| self.routes.locate(home)).map(|located| located.owner);
        renewals.by_server.entry(server).or_default().waiting.push_back(node);
    }

    /// The next renewal to carry out now.
    pub fn begin_renewal(&mut self) -> Option<Renew> {
        if matches!(self.session.phase(), Phase::Over(_)) {
            return None;
        }
        let Files { renewals, files, .. } = &mut self.files;
        for (server, queue) in &mut renewals.by_server {
            while queue.under_way < self.config.renewals_max
                && let Some(node) = queue.waiting.pop_front()
            {
                let Some(file) = files.get(&node).filter(|file| file.opens > 0) else {
                    // Closed while it waited.
                    renewals.by_node.remove(&node);
                    continue;
                };
                if let Some(renewal) = renewals.by_node.get_mut(&node) {
                    renewal.stage = Stage::UnderWay;
                }
                queue.under_way += 1;
                return Some(Renew { handle: file.handle, server: *server });
            }
        }
        None
    }

    fn end_renewal(&mut self, renew: &Renew, asked: Result<(), Code>) {
        let node = renew.handle.node;
        let renewals = &mut self.files.renewals;
        if let Some(queue) = renewals.by_server.get_mut(&renew.server) {
            queue.under_way -= 1;
            if queue.under_way == 0 && queue.waiting.is_empty() {
                renewals.by_server.remove(&renew.server);
            }
        }
        let Some(renewal) = renewals.by_node.get_mut(&node) else { return };
        if asked == Err(Code::Stale) {
            // The node is gone for ever.
            renewals.by_node.remove(&node);
            return;
        }
        // Nothing is planned for this moment: it only keeps the count of what was asked for in vain.
        *renewal = Renewal {
            stage: Stage::Planned(self.now.mono, None),
            in_vain: renewal.in_vain.saturating_add(1),
        };
        self.plan_renewal(node);
    }
}

impl Hub {
    /// Asks for a file's attributes, which come with a lease; of one that was opened without a token for that too.
    pub(crate) async fn renew_lease(self, renew: Renew) {
        self.with(|state| state.counters.leases_renewed += 1);
        let asked = match self.hold_open(renew.handle.node).await {
            Some(held) => held,
            None => self.ask_attributes(renew.handle).await.map(|_| ()),
        };
        self.with(|state| state.end_renewal(&renew, asked));
    }
}

impl Files {
    /// Whether a file of this node is open, and not only being opened.
    fn is_opened(&self, node: NodeId) -> bool {
        self.files.get(&node).is_some_and(|file| file.opens > 0)
    }
}
