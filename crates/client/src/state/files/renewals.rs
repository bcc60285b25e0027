//! When the leases of open files are renewed.

use crate::run::{Io, Timer};
use bearing_proto::client::Handle;
use bearing_types::{Mono, NodeId, ServerId};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Default)]
pub(crate) struct Renewals {
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
    pub handle: Handle,
    server: Option<ServerId>,
}

impl Renewals {
    /// Plans when a lease is renewed: half way to its end, or soon if there is none. `wanted`: the file is
    /// open, and its home decides of it.
    pub fn plan(&mut self, node: NodeId, wanted: bool, until: Option<Mono>, io: &mut Io) {
        let before = self.by_node.get(&node).copied();
        match before.map(|renewal| renewal.stage) {
            Some(Stage::Waiting | Stage::UnderWay) => return,
            Some(Stage::Planned(due, _)) => io.timers.cancel(due, Timer::Renewal(node)),
            None => {}
        }
        if !wanted {
            self.by_node.remove(&node);
            return;
        }
        let in_vain = before.filter(|_| until.is_none()).map_or(0, |renewal| renewal.in_vain);
        let pause = match until {
            Some(until) => io.random.jittered(until.since(io.now.mono) / 2),
            None => io.random.backed_off(io.config.renew_delay, io.config.renew_delay_max, in_vain),
        };
        let due = io.now.mono.after(pause);
        self.by_node.insert(node, Renewal { stage: Stage::Planned(due, until), in_vain });
        io.timers.set(due, Timer::Renewal(node));
    }

    /// It is time to renew, by asking this server. Whether to plan anew instead: some other answer has
    /// renewed it meanwhile.
    pub fn on_due(&mut self, node: NodeId, until: Option<Mono>, server: Option<ServerId>) -> bool {
        let Some(renewal) = self.by_node.get_mut(&node) else { return false };
        let Stage::Planned(_, planned_until) = renewal.stage else { return false };
        if until.is_some() && until != planned_until {
            return true;
        }
        renewal.stage = Stage::Waiting;
        self.by_server.entry(server).or_default().waiting.push_back(node);
        false
    }

    /// The next renewal to carry out now, of a file that is open.
    pub fn begin(&mut self, count_max: usize, open: impl Fn(NodeId) -> Option<Handle>) -> Option<Renew> {
        for (server, queue) in &mut self.by_server {
            while queue.under_way < count_max
                && let Some(node) = queue.waiting.pop_front()
            {
                let Some(handle) = open(node) else {
                    // Closed while it waited.
                    self.by_node.remove(&node);
                    continue;
                };
                if let Some(renewal) = self.by_node.get_mut(&node) {
                    renewal.stage = Stage::UnderWay;
                }
                queue.under_way += 1;
                return Some(Renew { handle, server: *server });
            }
        }
        None
    }

    /// A renewal was answered. `gone`: the node is, for ever. Whether to plan the next one.
    pub fn end(&mut self, renew: &Renew, gone: bool, now: Mono) -> bool {
        let node = renew.handle.node;
        if let Some(queue) = self.by_server.get_mut(&renew.server) {
            queue.under_way -= 1;
            if queue.under_way == 0 && queue.waiting.is_empty() {
                self.by_server.remove(&renew.server);
            }
        }
        let Some(renewal) = self.by_node.get_mut(&node) else { return false };
        if gone {
            self.by_node.remove(&node);
            return false;
        }
        // Nothing is planned for this moment: it only keeps the count of what was asked for in vain.
        let in_vain = renewal.in_vain.saturating_add(1);
        *renewal = Renewal { stage: Stage::Planned(now, None), in_vain };
        true
    }
}
