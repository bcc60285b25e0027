//! What one tablet lends: until when, ids for what is made, and the steps that its owner has not done yet.

use crate::run::{Awaited, Promise, promise};
use bearing_proto::client::Call;
use bearing_proto::delegation::{Change, LentIds, OPEN_TOLD_MAX, Step, StepsDone};
use bearing_types::{Code, Mono, Name, NodeId, Position, Wall};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Steps in one batch.
const BATCH_MAX: usize = 256;
/// Extents in one batch, but for those of its last step: they become one entry of a log.
const BATCH_EXTENTS_MAX: usize = 8 << 10;
/// Steps waiting to be done at which operations wait too.
const QUEUED_MAX: usize = 16 << 10;
/// A lease that is about to end, or has, is renewed after this time.
const RENEW_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Ids below which more are wanted.
const IDS_LOW: u32 = 256;
/// An owner that had none is asked for more ahead of time only after so long.
const IDS_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Lent {
    /// Tells what is lent now from what was lost.
    incarnation: u64,
    /// A position in it.
    position: Position,
    until: Mono,
    /// How long the kernel may go by a name.
    names_life: Duration,
    /// The owner's clock, and when it was read.
    clock: (Wall, Mono),
    ids: VecDeque<(LentIds, u32)>,
    ids_wanted: bool,
    /// Its owner had none to give: it is not asked ahead of time before this.
    ids_not_before: Mono,
    queue: VecDeque<Step>,
    /// Directories whose removal is in the queue.
    removing: BTreeSet<NodeId>,
    /// The first so many of the queue are on their way.
    on_way: usize,
    /// The first so many are sent one by one: a batch of them was refused.
    alone: usize,
    /// Steps queued since the start, and steps done.
    queued: u64,
    done: u64,
    sending: bool,
    /// Kept when steps must not gather any longer: somebody waits for them, or the batch is full.
    hurried: Option<Promise<()>>,
    /// Directories to give back with the next batch.
    returned: Vec<NodeId>,
    /// Files in them that are open, and of which their home is not told yet.
    open: Vec<NodeId>,
    waiting: Vec<(u64, Promise<Result<(), Code>>)>,
    /// Told whether there are some.
    waiting_for_ids: Vec<Promise<bool>>,
}

/// How many of these steps go together.
fn batch_of(queue: &VecDeque<Step>) -> usize {
    let extents = |step: &Step| match &step.change {
        Change::Commit { extents, .. } => extents.len(),
        _ => 0,
    };
    let mut before = 0;
    let fits = queue.iter().take(BATCH_MAX).take_while(|step| {
        let fits = before < BATCH_EXTENTS_MAX;
        before += extents(step);
        fits
    });
    fits.count()
}

/// Steps that go together.
pub(crate) struct Batch {
    pub incarnation: u64,
    pub position: Position,
    pub call: Call,
    steps: usize,
    returned: usize,
    open: usize,
    wants_ids: bool,
}

impl Lent {
    /// Lent until then, by an owner whose clock was read now.
    pub fn new(
        incarnation: u64,
        position: Position,
        (until, names_life): (Mono, Duration),
        clock: (Wall, Mono),
    ) -> Lent {
        Lent {
            incarnation,
            position,
            until,
            names_life,
            clock,
            ids: VecDeque::new(),
            ids_wanted: false,
            ids_not_before: Mono::ZERO,
            queue: VecDeque::new(),
            removing: BTreeSet::new(),
            on_way: 0,
            alone: 0,
            queued: 0,
            done: 0,
            sending: false,
            hurried: None,
            returned: Vec::new(),
            open: Vec::new(),
            waiting: Vec::new(),
            waiting_for_ids: Vec::new(),
        }
    }

    /// More is lent, with ids.
    pub fn extend(&mut self, until: Mono, ids: LentIds, (read, now): (Wall, Mono)) {
        self.until = self.until.max(until);
        // What came with the reading is not older than it, so the clock is never behind: the first reading
        // may have been long on its way.
        if read > self.now(now) {
            self.clock = (read, now);
        }
        // Every batch shows all of them.
        let left: u32 = self.ids.iter().map(|(lent, used)| lent.count - used).sum();
        if left < IDS_LOW {
            self.ids.push_back((ids, 0));
        }
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A position in the tablet.
    pub fn position(&self) -> Position {
        self.position
    }

    pub fn until(&self) -> Mono {
        self.until
    }

    /// How long the kernel may go by a name.
    pub fn names_life(&self) -> Duration {
        self.names_life
    }

    /// The present by its owner's clock.
    pub fn now(&self, now: Mono) -> Wall {
        self.clock.0.after(now.since(self.clock.1))
    }

    /// How many steps are not done.
    pub fn steps_left(&self) -> usize {
        self.queue.len()
    }

    /// Whether operations wait until more steps are done.
    pub fn is_full(&self) -> bool {
        self.queue.len() >= QUEUED_MAX
    }

    /// Whether nothing is left to be said to its owner.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.sending && self.returned.is_empty()
    }

    /// Names in a directory, and nodes, of which steps tell that are not done.
    pub fn named_by_steps(&self, of: NodeId) -> (BTreeSet<&Name>, BTreeSet<NodeId>) {
        let (mut names, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        for step in &self.queue {
            match &step.change {
                Change::Create { directory, name, node, .. }
                | Change::MakeDirectory { directory, name, node, .. }
                | Change::Unlink { directory, name, node, .. }
                | Change::RemoveDirectory { directory, name, node, .. } => {
                    names.extend((directory.node == of).then_some(name));
                    nodes.insert(*node);
                }
                Change::Rename { source, source_name, target, target_name, moved, replaced, .. } => {
                    names.extend((source.node == of).then_some(source_name));
                    names.extend((target.node == of).then_some(target_name));
                    nodes.extend([Some(*moved), *replaced].into_iter().flatten());
                }
                Change::SetAttributes { node, .. }
                | Change::Commit { node, .. }
                | Change::Accessed { node, .. }
                | Change::Release { node } => drop(nodes.insert(node.node)),
            }
        }
        (names, nodes)
    }

    /// Whether a step names a node that is not done.
    pub fn has_steps_of(&self, node: NodeId) -> bool {
        self.queue.iter().any(|step| match &step.change {
            Change::Create { node: named, .. }
            | Change::MakeDirectory { node: named, .. }
            | Change::Unlink { node: named, .. }
            | Change::RemoveDirectory { node: named, .. } => *named == node,
            Change::Rename { moved, replaced, .. } => *moved == node || *replaced == Some(node),
            Change::SetAttributes { node: named, .. }
            | Change::Commit { node: named, .. }
            | Change::Accessed { node: named, .. }
            | Change::Release { node: named } => named.node == node,
        })
    }

    /// Whether a directory was removed here, and its home has not heard of it.
    pub fn is_removing(&self, directory: NodeId) -> bool {
        self.removing.contains(&directory)
    }

    pub(super) fn queue(&mut self, step: Step) {
        if let Change::RemoveDirectory { node, .. } = step.change {
            self.removing.insert(node);
        }
        self.queue.push_back(step);
        self.queued += 1;
        if self.queue.len() >= BATCH_MAX {
            self.hurry();
        }
    }

    /// What ends the gathering of steps for the next batch early; `None`: it goes at once, or there is none.
    pub fn gather(&mut self) -> Option<Awaited<()>> {
        let somebody_waits =
            !self.waiting.is_empty() || !self.waiting_for_ids.is_empty() || !self.returned.is_empty();
        let full = self.queue.len() >= BATCH_MAX || self.alone > 0;
        if somebody_waits || full || self.queue.is_empty() {
            return None;
        }
        let (promise, awaited) = promise();
        self.hurried = Some(promise);
        Some(awaited)
    }

    fn hurry(&mut self) {
        if let Some(promise) = self.hurried.take() {
            promise.keep(());
        }
    }

    /// Somebody sends from now on. Whether nobody did.
    pub fn begin_sending(&mut self) -> bool {
        !std::mem::replace(&mut self.sending, true)
    }

    /// All is sent.
    pub fn end_sending(&mut self) {
        self.sending = false;
    }

    /// Directories go back with the last step that was decided before, and not before it is told which files
    /// in them are open.
    pub fn give_back(&mut self, directories: &[NodeId], open: impl IntoIterator<Item = NodeId>) {
        self.returned.extend(directories);
        self.open.extend(open);
        self.hurry();
    }

    /// What to wait for until all is done that was decided so far; `None`: it is.
    pub(super) fn await_steps(&mut self) -> Option<Awaited<Result<(), Code>>> {
        if self.done == self.queued && self.returned.is_empty() {
            return None;
        }
        let (promise, awaited) = promise();
        self.waiting.push((self.queued, promise));
        self.hurry();
        Some(awaited)
    }

    /// Asks for ids. Says whether there are some.
    pub(super) fn await_ids(&mut self) -> Awaited<bool> {
        self.ids_wanted = true;
        let (promise, awaited) = promise();
        self.waiting_for_ids.push(promise);
        self.hurry();
        awaited
    }

    /// An id for something made in the tablet; `None` if all are used up for now.
    pub fn take_id(&mut self, now: Mono) -> Option<NodeId> {
        let id = self.ids.iter_mut().find(|(lent, used)| *used < lent.count).map(|(lent, used)| {
            *used += 1;
            NodeId(lent.first.0 + u64::from(*used - 1))
        });
        // More are asked for before the last range is used up.
        let low = self.ids.back().map_or(0, |(last, _)| last.count / 2).min(IDS_LOW);
        let left: u32 = self.ids.iter().map(|(lent, used)| lent.count - used).sum();
        self.ids_wanted |= left < low && now >= self.ids_not_before;
        id
    }

    /// The next batch; `None` when there is nothing to say.
    pub fn next_batch(&mut self, renew: bool) -> Option<Batch> {
        let count = if self.alone > 0 { 1 } else { batch_of(&self.queue) };
        let count = count.min(self.queue.len());
        // What is given back goes with the last step that was decided before.
        let open: Vec<NodeId> = self.open.iter().copied().take(OPEN_TOLD_MAX).collect();
        let last = count == self.queue.len() && open.len() == self.open.len();
        let returned = if last { self.returned.clone() } else { Vec::new() };
        let ids_wanted = if self.ids_wanted { IDS_LOW } else { 0 };
        if count == 0 && open.is_empty() && returned.is_empty() && ids_wanted == 0 && !renew {
            return None;
        }
        self.on_way = count;
        let ids: Vec<LentIds> = self.ids.iter().map(|(lent, _)| *lent).collect();
        let steps = self.queue.iter().take(count).cloned().collect();
        let (returned_count, open_count) = (returned.len(), open.len());
        let incarnation = self.incarnation;
        let names_kept = returned_count > 0;
        let over = false;
        let call = Call::Delegated { steps, ids, ids_wanted, returned, open, names_kept, incarnation, over };
        let (position, wants_ids) = (self.position, ids_wanted > 0);
        let (steps, returned, open) = (count, returned_count, open_count);
        Some(Batch { incarnation, position, call, steps, returned, open, wants_ids })
    }

    /// A batch is done, and the lease renewed if it says until when.
    pub fn on_done(&mut self, batch: &Batch, done: &StepsDone, until: Option<Mono>, now: Mono) {
        self.until = self.until.max(until.unwrap_or(self.until));
        for step in self.queue.drain(..batch.steps) {
            if let Change::RemoveDirectory { node, .. } = step.change {
                self.removing.remove(&node);
            }
        }
        self.returned.drain(..batch.returned);
        self.open.drain(..batch.open);
        self.on_way = 0;
        self.alone = self.alone.saturating_sub(batch.steps);
        self.done += batch.steps as u64;
        if batch.wants_ids {
            if done.ids.is_none() {
                self.ids_not_before = now.after(IDS_PAUSE);
            }
            self.ids.extend(done.ids.map(|ids| (ids, 0)));
            self.ids_wanted = false;
            for promise in self.waiting_for_ids.drain(..) {
                promise.keep(done.ids.is_some());
            }
        }
        // Used up, and no step that shows them is left.
        let done_all = self.queue.is_empty();
        while done_all && self.ids.len() > 1 && self.ids[0].1 == self.ids[0].0.count {
            self.ids.pop_front();
        }
        let waiting = std::mem::take(&mut self.waiting);
        for (number, promise) in waiting {
            if number <= self.done && self.returned.is_empty() {
                promise.keep(Ok(()));
            } else {
                self.waiting.push((number, promise));
            }
        }
    }

    /// A batch is refused for one of its steps. Whether they are sent again one by one, so that those before
    /// it are done.
    pub fn goes_alone(&mut self, batch: &Batch) -> bool {
        if batch.steps > 1 {
            self.alone = batch.steps;
        }
        batch.steps > 1
    }

    /// The file of which a batch says where its bytes lie, and nothing else.
    pub fn file_of(&self, batch: &Batch) -> Option<NodeId> {
        match &self.queue.front().filter(|_| batch.steps == 1)?.change {
            Change::Commit { node, extents, .. } if !extents.is_empty() => Some(node.node),
            _ => None,
        }
    }

    /// When the lease is to be renewed.
    pub fn renew_delay(&self, now: Mono) -> Duration {
        (self.until.since(now) / 3).max(RENEW_PAUSE_MIN)
    }

    /// It is lost: says so to all who wait. Whether steps are lost with it, or may be on their way.
    pub(super) fn lose(&mut self) -> bool {
        for (_, promise) in self.waiting.drain(..) {
            promise.keep(Err(Code::Io));
        }
        for promise in self.waiting_for_ids.drain(..) {
            promise.keep(false);
        }
        self.on_way > 0 || !self.queue.is_empty()
    }
}
