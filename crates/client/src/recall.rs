//! Recalls: drop, have the kernel drop, answer. Surveys: answer.
//!
//! Invariants: a recall is answered only when neither this machine nor its kernel serves from what was recalled; a repeated recall is
//! answered again; the answer names the recalled files that are open here, and the requests that were finished when they were gathered: a
//! server does not conclude from it that a file is closed which a later reply gave. A survey drops nothing and is answered at once. For every
//! file that was named as open a release is sent when it is closed.

use crate::event::{Command, Invalidation, Target, Transport};
use crate::hub::{Hub, State, Work};
use crate::mutant::Mutant;
use crate::task::{Awaited, Promise, promise};
use bearing_proto::Message;
use bearing_proto::client::{LeaseKey, Recall, Recalled, Survey, Surveyed};
use bearing_types::{Block, Epoch, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Recalls that wait for the kernel.
#[derive(Default)]
pub(crate) struct Recalls {
    waiting: BTreeMap<Identity, Waiting>,
    invalidating: BTreeSet<u64>,
    issued: u64,
    /// Who waits for one of them.
    told: BTreeMap<u64, Promise<()>>,
    /// Directories that are being given back because they were called back.
    called_back: BTreeSet<Identity>,
    new_call_backs: Vec<(Target, Recalled, NodeId)>,
    /// Recalls of files that were opened without a token, which is asked for before they are answered.
    new_holds: Vec<Hold>,
}

/// A recall, by its tablet, epoch and number.
type Identity = (Block, Epoch, u64);

/// Files that were opened without a token, and the recall that waits for it.
pub(crate) struct Hold {
    recall: Identity,
    nodes: Vec<NodeId>,
}

struct Waiting {
    to: Target,
    answer: Recalled,
    /// All invalidations up to this number have to be done: an earlier one may concern the same thing.
    after: u64,
    /// Files are asked for their tokens.
    holds: bool,
}

impl Recalls {
    /// Takes over what the kernel was told in the session before. Nobody waits for recalls of that one any more.
    pub fn follow(&mut self, before: &mut Recalls) {
        self.issued = before.issued;
        self.invalidating = std::mem::take(&mut before.invalidating);
    }
}

impl State {
    /// Has the kernel forget something.
    pub fn invalidate(&mut self, mut what: Vec<Invalidation>) {
        what.sort();
        what.dedup();
        self.recalls.issued += 1;
        let number = self.recalls.issued;
        self.recalls.invalidating.insert(number);
        self.out.push(Command::Invalidate { number, what });
    }

    /// A server recalls leases.
    pub fn take_recall(&mut self, from: Target, recall: Recall) {
        let identity = (recall.tablet, recall.epoch, recall.number);
        if self.recalls.waiting.contains_key(&identity) {
            return;
        }
        let Recall { tablet, epoch, number, .. } = recall;
        if let Some(directory) = delegation_in(&recall) {
            return self.take_call_back(from, recall, directory);
        }
        let finished_below = self.requests.finished_below();
        let nodes = self.files.unasked(&self.open_among(&recall));
        let holds = !nodes.is_empty();
        if holds {
            self.recalls.new_holds.push(Hold { recall: identity, nodes });
        }
        let open = self.drop_recalled(&recall);
        self.step("recalled, not answered");
        let answer = Recalled { tablet, epoch, number, finished_below, open };
        let waiting = Waiting { to: from, answer, after: self.recalls.issued, holds };
        self.recalls.waiting.insert(identity, waiting);
        self.answer_recalls();
    }

    /// Somebody else wants a directory that is delegated to us. Such recalls come alone, one for each directory.
    fn take_call_back(&mut self, from: Target, recall: Recall, directory: NodeId) {
        let Recall { tablet, epoch, number, keys } = recall;
        let identity = (tablet, epoch, number);
        self.leases.recall_keys(&keys);
        if self.recalls.called_back.insert(identity) {
            let finished_below = self.requests.finished_below();
            let answer = Recalled { tablet, epoch, number, finished_below, open: Vec::new() };
            self.recalls.new_call_backs.push((from, answer, directory));
        }
    }

    /// The next directory to give back.
    pub fn begin_call_back(&mut self) -> Option<(Target, Recalled, NodeId)> {
        self.recalls.new_call_backs.pop()
    }

    /// The next recall whose files are asked for their tokens.
    pub fn begin_hold(&mut self) -> Option<Hold> {
        self.recalls.new_holds.pop()
    }

    fn hold_over(&mut self, recall: Identity) {
        if let Some(waiting) = self.recalls.waiting.get_mut(&recall) {
            waiting.holds = false;
        }
        self.answer_recalls();
    }

    /// A directory that was called back is given back.
    pub fn call_back_over(&mut self, answer: &Recalled) {
        self.recalls.called_back.remove(&(answer.tablet, answer.epoch, answer.number));
    }

    /// Has the kernel forget something, and says when it has. Earlier invalidations may be under way yet: they may wait for the very operation that waits
    /// for this one.
    pub fn invalidate_and_tell(&mut self, what: Vec<Invalidation>) -> Awaited<()> {
        let (promise, awaited) = promise();
        self.invalidate(what);
        self.recalls.told.insert(self.recalls.issued, promise);
        awaited
    }

    /// A server asks which files are open.
    pub fn take_survey(&mut self, from: Target, survey: Survey) {
        let Survey { tablet, epoch, number, nodes } = survey;
        let finished_below = self.requests.finished_below();
        let open = match nodes.is_empty() {
            true => self.files.open_in(tablet),
            false => nodes.into_iter().filter(|node| self.files.is_open(*node)).collect(),
        };
        for node in &open {
            self.files.told_open(*node);
        }
        self.counters.surveys += 1;
        self.out.push(Command::Send {
            to: from,
            transport: Transport::Datagram,
            message: Message::Surveyed(Surveyed { tablet, epoch, number, finished_below, open }),
            attachment: Vec::new(),
        });
    }

    fn drop_recalled(&mut self, recall: &Recall) -> Vec<NodeId> {
        let open = self.open_among(recall);
        for node in &open {
            self.files.recalled(*node);
        }
        if self.config.planted(Mutant::DirtyForgotten) {
            open.iter().for_each(|node| self.files.forget(*node));
        }
        if self.config.planted(Mutant::ServeAfterRecall) {
            return open;
        }
        if recall.keys.is_empty() {
            self.drop_block(recall.tablet, &open);
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
            self.cache.recall(*key, self.now.mono, &mut kernel);
            if let LeaseKey::Names(directory) = key {
                self.recall_names(*directory, &mut kernel);
            }
        }
        self.prune_leases();
        if !kernel.is_empty() {
            self.invalidate(kernel);
        }
    }

    fn drop_block(&mut self, block: Block, open: &[NodeId]) {
        let mut kernel = Vec::new();
        self.leases.recall_block(block);
        self.cache.recall_block(block, self.now.mono, &mut kernel);
        self.recall_names_in(block, &mut kernel);
        // Data of open files may be in the kernel without any lease of ours.
        kernel.extend(open.iter().map(|node| Invalidation::Node { node: *node }));
        self.prune_leases();
        if !kernel.is_empty() {
            self.invalidate(kernel);
        }
    }

    /// A change was given up, and may happen yet: nothing that is leased is served any more, here or by the kernel.
    pub fn drop_all_leased(&mut self) {
        let open = self.files.open_in(Block::RING);
        for node in &open {
            self.files.doubt(*node);
        }
        self.drop_block(Block::RING, &open);
        for node in open {
            self.plan_renewal(node);
        }
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

    /// The kernel has forgotten.
    pub fn invalidated(&mut self, number: u64) {
        self.recalls.invalidating.remove(&number);
        if let Some(promise) = self.recalls.told.remove(&number) {
            promise.keep(());
        }
        self.answer_recalls();
    }

    fn answer_recalls(&mut self) {
        let first = self.recalls.invalidating.first().copied();
        let ready: Vec<_> = self
            .recalls
            .waiting
            .iter()
            .filter(|(_, waiting)| !waiting.holds)
            .filter(|(_, waiting)| first.is_none_or(|first| first > waiting.after))
            .map(|(identity, _)| *identity)
            .collect();
        for identity in ready {
            let waiting = self.recalls.waiting.remove(&identity).expect("seen just now");
            self.counters.recalls += 1;
            self.out.push(Command::Send {
                to: waiting.to,
                transport: Transport::Datagram,
                message: Message::Recalled(waiting.answer),
                attachment: Vec::new(),
            });
            self.step("recall answered");
        }
    }
}

impl Hub {
    /// Asks for the tokens of files that were opened without, while what decided that they may be opened still holds.
    pub(crate) async fn hold_recalled(self, hold: Hold) {
        let mut work: Vec<Work<_>> = Vec::new();
        for node in hold.nodes {
            let hub = self.clone();
            work.push(Box::pin(async move { hub.hold_open(node).await }));
        }
        let holds_max = self.with(|state| state.config.renewals_max);
        // Whose token is refused, or does not come before the lease is over, is refused with its next read.
        self.windowed(holds_max, work).await;
        self.with(|state| state.hold_over(hold.recall));
    }
}

/// The delegated directory that a recall names.
fn delegation_in(recall: &Recall) -> Option<NodeId> {
    recall.keys.iter().find_map(|key| if let LeaseKey::Delegation(node) = key { Some(*node) } else { None })
}
