//! Recalls: drop, have the kernel drop, answer. Queries for what is open: answer.
//!
//! Invariants: a recall is answered only when neither this machine nor its kernel serves from what was
//! recalled; a repeated recall is answered again; the answer names the recalled files that are open here, and
//! the requests that were finished when they were gathered: a server does not conclude from it that a file is
//! closed which a later reply gave. A query drops nothing and is answered at once. For every file that was
//! named as open a release is sent when it is closed.

use crate::context::{Context, State, Work};
use crate::event::{Invalidation, Target, Transport};
use crate::mutant::Mutant;
use crate::state::Hold;
use bearing_lookup::Located;
use bearing_proto::Message;
use bearing_proto::client::{LeaseKey, OpenState, OpenStateQuery, Recall, Recalled};
use bearing_types::{Block, Epoch, NodeId};

impl State {
    /// Who asks about leases and open files of a tablet owns it. A new owner asks all that may hold something
    /// before anything else: so they hear of a takeover without asking for it.
    fn hear_of_owner(&mut self, from: Target, block: Block, epoch: Epoch) {
        if let Target::Server(owner) = from {
            self.requests.learn(Located { block, epoch, owner }, &mut self.routes);
        }
    }

    /// A server recalls leases.
    pub fn on_recall(&mut self, from: Target, recall: Recall) {
        let Recall { tablet, epoch, number, .. } = recall;
        self.hear_of_owner(from, tablet, epoch);
        if self.recalls.is_waiting((tablet, epoch, number)) {
            return;
        }
        let finished_below = self.requests.finished_below();
        let mut answer = Recalled { tablet, epoch, number, finished_below, open: Vec::new() };
        // Somebody else wants a delegated directory. Such recalls come alone, one for each directory.
        if let Some(directory) = delegation_in(&recall) {
            self.leases.recall_keys(&recall.keys);
            return self.recalls.call_back(from, answer, directory);
        }
        let holds = self.files.unasked(&self.open_among(&recall));
        answer.open = self.drop_recalled(&recall);
        self.io.step("recalled, not answered");
        self.recalls.wait(from, answer, holds, &mut self.io);
    }

    /// A server asks which files are open.
    pub fn on_open_query(&mut self, from: Target, open_state_query: OpenStateQuery) {
        let OpenStateQuery { tablet, epoch, number, nodes } = open_state_query;
        self.hear_of_owner(from, tablet, epoch);
        let finished_below = self.requests.finished_below();
        let open = match nodes.is_empty() {
            true => self.files.open_in(tablet),
            false => nodes.into_iter().filter(|node| self.files.is_open(*node)).collect(),
        };
        for node in &open {
            self.files.told_open(*node);
        }
        self.io.counters.open_state_queries += 1;
        let answer = OpenState { tablet, epoch, number, finished_below, open };
        self.io.send(from, Transport::Datagram, Message::OpenState(answer));
    }

    fn drop_recalled(&mut self, recall: &Recall) -> Vec<NodeId> {
        let open = self.open_among(recall);
        for node in &open {
            self.files.recalled(*node);
        }
        if self.io.config.planted(Mutant::DirtyForgotten) {
            open.iter().for_each(|node| self.files.forget(*node));
        }
        if self.io.config.planted(Mutant::ServeAfterRecall) {
            return open;
        }
        if recall.keys.is_empty() {
            let kernel = self.drop_block(recall.tablet, &open);
            self.invalidate(kernel);
        } else {
            self.drop_keys(&recall.keys);
        }
        for node in &open {
            self.plan_renewal(*node);
        }
        open
    }

    fn drop_keys(&mut self, keys: &[LeaseKey]) {
        let mut kernel = Vec::new();
        self.leases.recall_keys(keys);
        for key in keys {
            self.cache.recall(*key, self.io.now.mono, &mut kernel);
            if let LeaseKey::Names(directory) = key {
                self.delegations.recall_names(*directory, self.io.now.mono, &mut kernel);
            }
        }
        kernel.extend(self.renamed_among(|key| keys.contains(&key)));
        self.prune_leases();
        self.invalidate(kernel);
    }

    /// Names of renames under way that are recalled. The kernel drops them when the rename has ended, as it
    /// drops any name of a directory that it works in; the recall waits for that.
    fn renamed_among(&self, is_recalled: impl Fn(LeaseKey) -> bool) -> Vec<Invalidation> {
        let among = self.renamed.iter().filter(|(key, ..)| is_recalled(*key));
        among
            .map(|(_, directory, name)| Invalidation::Entry { directory: *directory, name: name.clone() })
            .collect()
    }

    /// Gives what the kernel has to forget.
    fn drop_block(&mut self, block: Block, open: &[NodeId]) -> Vec<Invalidation> {
        let mut kernel = Vec::new();
        self.leases.recall_block(block);
        self.cache.recall_block(block, self.io.now.mono, &mut kernel);
        self.delegations.recall_names_in(block, self.io.now.mono, &mut kernel);
        // Data of open files may be in the kernel without any lease of ours.
        kernel.extend(open.iter().map(|node| Invalidation::Node { node: *node }));
        kernel.extend(self.renamed_among(|_| true));
        self.prune_leases();
        kernel
    }

    /// A change was given up, and may happen yet: nothing that is leased is served any more, here or by the
    /// kernel.
    pub fn drop_all_leased(&mut self) {
        let open = self.files.open_in(Block::RING);
        for node in &open {
            self.files.doubt(*node);
        }
        let kernel = self.drop_block(Block::RING, &open);
        self.invalidate(kernel);
        for node in open {
            self.plan_renewal(node);
        }
    }

    /// Nothing that is leased is served any more, and nothing is leased from now on. Gives what the kernel
    /// has to forget.
    pub fn stop_leasing(&mut self) -> Vec<Invalidation> {
        self.leases.stop();
        let open = self.files.open_in(Block::RING);
        self.drop_block(Block::RING, &open)
    }

    fn open_among(&self, recall: &Recall) -> Vec<NodeId> {
        if recall.keys.is_empty() {
            return self.files.open_in(recall.tablet);
        }
        let files = recall.keys.iter().filter_map(|key| match key {
            LeaseKey::File(node) => Some(*node),
            LeaseKey::Access(_) | LeaseKey::Name(..) | LeaseKey::Names(_) => None,
            LeaseKey::Content(_) | LeaseKey::Delegation(_) => None,
        });
        files.filter(|node| self.files.is_open(*node)).collect()
    }
}

impl Context {
    /// Asks for the tokens of files that were opened without, while what decided that they may be opened
    /// still holds.
    pub(crate) async fn hold_recalled(self, hold: Hold) {
        let mut work: Vec<Work<_>> = Vec::new();
        for node in hold.nodes.iter().copied() {
            let context = self.clone();
            work.push(Box::pin(async move { context.hold_open(node).await }));
        }
        let holds_max = self.with(|state| state.io.config.renewals_max);
        // Whose token is refused, or does not come before the lease is over, is refused with its next read.
        self.windowed(holds_max, work).await;
        self.with(|state| state.recalls.hold_over(&hold, &mut state.io));
    }
}

/// The delegated directory that a recall names.
fn delegation_in(recall: &Recall) -> Option<NodeId> {
    recall.keys.iter().find_map(|key| if let LeaseKey::Delegation(node) = key { Some(*node) } else { None })
}
