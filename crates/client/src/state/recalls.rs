//! Recalls that are not answered yet, and what the kernel was told to forget and has not said that it has.

use crate::event::{Command, Invalidation, Target, Transport};
use crate::run::{Awaited, Io, Promise, promise};
use bearing_proto::Message;
use bearing_proto::client::Recalled;
use bearing_types::{Block, Epoch, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
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
    pub nodes: Vec<NodeId>,
}

struct Waiting {
    to: Target,
    answer: Recalled,
    /// All invalidations up to this number have to be done: an earlier one may concern the same thing.
    after: u64,
    /// Files are asked for their tokens.
    holds: bool,
}

fn identity(answer: &Recalled) -> Identity {
    (answer.tablet, answer.epoch, answer.number)
}

impl Recalls {
    /// Takes over what the kernel was told in the session before. Nobody waits for recalls of that one any
    /// more.
    pub fn follow(&mut self, before: &mut Recalls) {
        self.issued = before.issued;
        self.invalidating = std::mem::take(&mut before.invalidating);
    }

    /// Has the kernel forget something.
    pub fn invalidate(&mut self, mut what: Vec<Invalidation>, io: &mut Io) {
        what.sort();
        what.dedup();
        self.issued += 1;
        self.invalidating.insert(self.issued);
        io.out.push(Command::Invalidate { number: self.issued, what });
    }

    /// The same, and says when it has. Earlier invalidations may be under way yet: they may wait for the very
    /// operation that waits for this one.
    pub fn invalidate_and_tell(&mut self, what: Vec<Invalidation>, io: &mut Io) -> Awaited<()> {
        let (promise, awaited) = promise();
        self.invalidate(what, io);
        self.told.insert(self.issued, promise);
        awaited
    }

    /// The kernel has forgotten.
    pub fn on_invalidated(&mut self, number: u64, io: &mut Io) {
        self.invalidating.remove(&number);
        if let Some(promise) = self.told.remove(&number) {
            promise.keep(());
        }
        self.answer(io);
    }

    /// Whether this recall is being dealt with.
    pub fn is_waiting(&self, answer: (Block, Epoch, u64)) -> bool {
        self.waiting.contains_key(&answer)
    }

    /// Answers when the kernel has forgotten all that it was told until now, and those of the files are held
    /// that were opened without a token.
    pub fn wait(&mut self, to: Target, answer: Recalled, holds: Vec<NodeId>, io: &mut Io) {
        let recall = identity(&answer);
        let waiting = Waiting { to, answer, after: self.issued, holds: !holds.is_empty() };
        self.waiting.insert(recall, waiting);
        if !holds.is_empty() {
            self.new_holds.push(Hold { recall, nodes: holds });
        }
        self.answer(io);
    }

    /// The next recall whose files are asked for their tokens.
    pub fn begin_hold(&mut self) -> Option<Hold> {
        self.new_holds.pop()
    }

    /// They were asked.
    pub fn hold_over(&mut self, hold: &Hold, io: &mut Io) {
        if let Some(waiting) = self.waiting.get_mut(&hold.recall) {
            waiting.holds = false;
        }
        self.answer(io);
    }

    /// Somebody else wants a delegated directory. What is being given back already is not begun again.
    pub fn call_back(&mut self, from: Target, answer: Recalled, directory: NodeId) {
        if self.called_back.insert(identity(&answer)) {
            self.new_call_backs.push((from, answer, directory));
        }
    }

    /// The next directory to give back.
    pub fn begin_call_back(&mut self) -> Option<(Target, Recalled, NodeId)> {
        self.new_call_backs.pop()
    }

    /// It is given back.
    pub fn call_back_over(&mut self, to: Target, answer: Recalled, io: &mut Io) {
        self.called_back.remove(&identity(&answer));
        io.send(to, Transport::Datagram, Message::Recalled(answer));
    }

    fn answer(&mut self, io: &mut Io) {
        let first = self.invalidating.first().copied();
        let ready = self
            .waiting
            .iter()
            .filter(|(_, waiting)| !waiting.holds && first.is_none_or(|first| first > waiting.after));
        let ready: Vec<Identity> = ready.map(|(recall, _)| *recall).collect();
        for recall in ready {
            let Waiting { to, answer, .. } = self.waiting.remove(&recall).expect("seen just now");
            io.counters.recalls += 1;
            io.send(to, Transport::Datagram, Message::Recalled(answer));
            io.step("recall answered");
        }
    }
}
