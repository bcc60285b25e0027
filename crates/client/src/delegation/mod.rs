//! Directories that are delegated to this client: it decides in them by itself and sends what it decided as steps, in order and in batches.
//!
//! Invariants: a directory is here whole (all its entries) or not at all; a node that is *ours* was made here, or lent with the directory that names it: it is
//! reached through a delegated directory only; all steps of a tablet are one queue, of which a prefix is stable at its owner; nothing is served past the end of the tablet's lease: what
//! was not sent by then waits for the owner's word (`lapse.rs`), and what the owner refuses is lost, and told
//! to whoever asks for stability. A directory is given back only when its steps are done, and while
//! one is being asked for or given back, operations in it wait for servers, never for this client's kernel. The kernel goes by a name for a fraction of the
//! lease only, and for that long the names are leased on when their directory is given back (`kept.rs`).

mod attributes;
mod decide;
mod image;
mod kept;
mod lapse;
mod ours;
mod send;
mod take;

use crate::hub::{Hub, State};
use crate::task::{Promise, promise};
use bearing_proto::client::LeaseKey;
use bearing_proto::delegation::{Change, LentIds, Step};
use bearing_proto::grant::OpenToken;
use bearing_types::{Block, Code, FileType, Mono, Name, NodeId, Sequence, SessionId, Wall};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub(crate) use decide::{End, Local};
pub(crate) use image::{ENTRY_BYTES, LocalDirectory};
use ours::OurNodes;

/// What is delegated.
pub(crate) struct Delegations {
    tablets: BTreeMap<Block, Lent>,
    directories: BTreeMap<NodeId, LocalDirectory>,
    ours: OurNodes,
    /// Directories that are delegated to us, but their homes decide for now what happens in them: as they were here when that began. Their owner lets
    /// nobody else in without calling them back, so the kernel may keep what it knows of them.
    suspended: BTreeMap<NodeId, LocalDirectory>,
    /// Names in directories that were given back and that the kernel may go by yet.
    kept: BTreeMap<NodeId, Kept>,
    /// Directories that are being given back. Until their home has said that they are, its doing so may come late, and would end what is lent then.
    returning: BTreeSet<NodeId>,
    /// Directories that are asked for, suspended or given back, and who waits for that.
    moving: BTreeMap<NodeId, Vec<Promise<()>>>,
    /// Changes seen of directories that are not delegated, and when asking for them is worth it again.
    worth: BTreeMap<NodeId, Worth>,
    /// Counts incarnations of tablets.
    incarnations: u64,
    /// Tablets whose owner has not said yet that it takes no more of what we gave up, and who waits for that.
    fenced: BTreeMap<Block, Vec<Promise<()>>>,
    /// How often steps were lost, and how often that had been so when somebody was told last.
    losses: u64,
    losses_told: u64,
}

/// What one tablet lends.
struct Lent {
    /// Tells what is lent now from what was lost.
    incarnation: u64,
    /// A position in it.
    position: bearing_types::Position,
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
    /// The first so many of the queue are on their way.
    on_way: usize,
    /// Steps queued since the start, and steps done.
    queued: u64,
    done: u64,
    sending: bool,
    /// Directories to give back with the next batch.
    returned: Vec<NodeId>,
    waiting: Vec<(u64, Promise<Result<(), Code>>)>,
    /// Told whether there are some.
    waiting_for_ids: Vec<Promise<bool>>,
}

/// See [`Delegations::kept`].
struct Kept {
    tablet: Block,
    names: Vec<Name>,
    until: Mono,
}

/// Whether to ask for a directory.
#[derive(Clone, Copy, Debug)]
struct Worth {
    changes: u32,
    not_before: Mono,
    /// How long it is let alone when it is called back soon.
    pause: Duration,
}

/// A directory in which nothing was decided for so long is not being worked on.
const IDLE: Duration = Duration::from_millis(50);
/// Directories whose changes are counted.
const WORTH_MAX: usize = 4096;

impl Delegations {
    /// The right to read and write a node that was made here.
    pub fn token(&self, node: NodeId) -> Option<OpenToken> {
        self.ours.token(node)
    }

    /// Nothing yet, to a session.
    pub fn new(session: SessionId) -> Delegations {
        Delegations {
            tablets: BTreeMap::new(),
            directories: BTreeMap::new(),
            ours: OurNodes::new(session),
            suspended: BTreeMap::new(),
            kept: BTreeMap::new(),
            returning: BTreeSet::new(),
            moving: BTreeMap::new(),
            worth: BTreeMap::new(),
            incarnations: 0,
            fenced: BTreeMap::new(),
            losses: 0,
            losses_told: 0,
        }
    }

    /// Tablets of which something is lent to us.
    pub fn tablets(&self) -> impl Iterator<Item = Block> + '_ {
        self.tablets.keys().copied()
    }

    /// Takes over what people are yet to be told of the session before.
    pub fn follow(&mut self, before: &Delegations) {
        (self.losses, self.losses_told) = (before.losses, before.losses_told);
        self.incarnations = before.incarnations;
    }

    /// The session to which everything is lent from now on. Nothing is yet.
    pub fn set_session(&mut self, session: SessionId) {
        self.ours = OurNodes::new(session);
    }

    /// Whether a node is decided of here.
    pub fn is_our_node(&self, node: NodeId) -> bool {
        self.ours.contains(node)
    }

    /// A tablet that has not done all steps yet that name a node.
    fn tablet_with_steps_of(&self, node: NodeId) -> Option<Block> {
        let names = |step: &Step| match &step.change {
            Change::Create { node: named, .. }
            | Change::MakeDirectory { node: named, .. }
            | Change::Unlink { node: named, .. }
            | Change::RemoveDirectory { node: named, .. } => *named == node,
            Change::Rename { moved, replaced, .. } => *moved == node || *replaced == Some(node),
            Change::SetAttributes { node: named, .. }
            | Change::Commit { node: named, .. }
            | Change::Accessed { node: named, .. }
            | Change::Release { node: named } => named.node == node,
        };
        let mut tablets = self.tablets.iter();
        tablets.find(|(_, lent)| lent.queue.iter().any(names)).map(|(tablet, _)| *tablet)
    }

    /// Whether a directory is ours.
    pub fn holds(&self, directory: NodeId) -> bool {
        self.directories.contains_key(&directory)
    }

    /// Whether a directory is ours, or about to be or not to be.
    pub fn is_ours(&self, directory: NodeId) -> bool {
        self.holds(directory) || self.is_moving(directory)
    }

    /// Whether its owner holds a directory for us, whoever decides in it.
    pub fn is_lent(&self, directory: NodeId) -> bool {
        self.holds(directory) || self.suspended.contains_key(&directory)
    }

    fn image(&self, directory: NodeId) -> Option<&LocalDirectory> {
        self.directories.get(&directory).or(self.suspended.get(&directory))
    }

    fn image_mut(&mut self, directory: NodeId) -> Option<&mut LocalDirectory> {
        self.directories.get_mut(&directory).or(self.suspended.get_mut(&directory))
    }

    /// A directory, and all below it that are ours and in which nothing was decided for a moment, parents first.
    fn idle_below(&self, directory: NodeId, tablet: Block, now: Mono) -> Vec<NodeId> {
        let mut found = vec![directory];
        let mut seen = 0;
        while let Some(image) = found.get(seen).and_then(|directory| self.image(*directory)) {
            seen += 1;
            let below = image.entries.values().filter(|entry| entry.file_type == FileType::Directory);
            let idle = |node: &NodeId| {
                let image = self.directories.get(node);
                let image = image.filter(|image| image.tablet == tablet && !image.draining);
                !self.is_moving(*node) && image.is_some_and(|image| now.since(image.used) >= IDLE)
            };
            found.extend(below.map(|entry| entry.node.node).filter(idle));
        }
        found
    }

    /// If more entries than these are held: directories to give back so that it is an eighth less, those first in which nothing was decided for longest.
    fn beyond(&self, entries_max: usize) -> BTreeMap<Block, Vec<NodeId>> {
        // A directory is something to hold, too.
        let size = |image: &LocalDirectory| 1 + image.entries.len();
        let staying = |(node, image): &(&NodeId, &LocalDirectory)| !image.draining && !self.is_moving(**node);
        let held: usize = self.directories.iter().filter(staying).map(|(_, image)| size(image)).sum();
        let mut chosen: BTreeMap<Block, Vec<NodeId>> = BTreeMap::new();
        if held <= entries_max {
            return chosen;
        }
        let mut left = held.saturating_sub(entries_max - entries_max / 8);
        let mut by_use: Vec<_> = self.directories.iter().filter(staying).collect();
        by_use.sort_by_key(|(node, image)| (image.used, **node));
        for (node, image) in by_use {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(size(image));
            chosen.entry(image.tablet).or_default().push(*node);
        }
        chosen
    }

    /// Whether something of a tablet is lent to us.
    fn any_lent(&self, tablet: Block) -> bool {
        let mut all = self.directories.values().chain(self.suspended.values());
        all.any(|directory| directory.tablet == tablet)
    }

    /// The incarnation of a tablet: of what is lent there, or would be; and whether something is.
    fn incarnation(&mut self, tablet: Option<Block>) -> (u64, bool) {
        match tablet.and_then(|tablet| self.tablets.get(&tablet)) {
            Some(lent) => (lent.incarnation, true),
            None => {
                self.incarnations += 1;
                (self.incarnations, false)
            }
        }
    }

    /// Whether nothing of a tablet is lent any more, and nothing is left to be said of what was.
    fn is_done_with(&self, tablet: Block) -> bool {
        let idle = |lent: &Lent| lent.queue.is_empty() && !lent.sending && lent.returned.is_empty();
        let any_node = self.ours.of_tablet(tablet).next().is_some();
        !self.any_lent(tablet) && !any_node && self.tablets.get(&tablet).is_some_and(idle)
    }

    /// Whether that is still what is lent.
    fn is_current(&self, tablet: Block, incarnation: u64) -> bool {
        self.tablets.get(&tablet).is_some_and(|lent| lent.incarnation == incarnation)
    }

    fn is_moving(&self, directory: NodeId) -> bool {
        self.moving.contains_key(&directory)
    }

    fn moved(&mut self, directory: NodeId) {
        for promise in self.moving.remove(&directory).into_iter().flatten() {
            promise.keep(());
        }
    }
}

impl Lent {
    fn now(&self, now: Mono) -> Wall {
        self.clock.0.after(now.since(self.clock.1))
    }

    /// The owner's clock was read again. What came with the reading is not older than it, so the clock is
    /// never behind: the first reading may have been long on its way.
    fn read_clock(&mut self, read: Wall, now: Mono) {
        if read > self.now(now) {
            self.clock = (read, now);
        }
    }

    fn take_id(&mut self) -> Option<NodeId> {
        let (lent, used) = self.ids.iter_mut().find(|(lent, used)| *used < lent.count)?;
        let id = NodeId(lent.first.0 + u64::from(*used));
        *used += 1;
        Some(id)
    }

    fn ids_left(&self) -> u32 {
        self.ids.iter().map(|(lent, used)| lent.count - used).sum()
    }
}

impl State {
    /// Something changed that may be leased to us: what was leased before, or is leased by answers on their way, is not so any more.
    fn drop_leases(&mut self, keys: &[LeaseKey]) {
        self.cache.forget(keys);
        self.leases.recall_keys(keys);
        self.prune_leases();
    }

    /// Puts a step into the queue of its tablet. Gives what was decided when.
    fn queue_step(&mut self, tablet: Block, change: Change) -> Sequence {
        let sequence = self.requests.take_number();
        let now = self.now.mono;
        let lent = self.delegations.tablets.get_mut(&tablet).expect("steps are of lent tablets");
        let at = lent.now(now);
        let step = Step { sequence, at, change };
        if self.config.tells_steps {
            self.out.push(crate::event::Command::Decided(Box::new(step.clone())));
        }
        lent.queue.push_back(step);
        lent.queued += 1;
        if !lent.sending {
            lent.sending = true;
            self.new_senders.push((tablet, lent.incarnation));
        }
        self.counters.steps += 1;
        sequence
    }

    /// The present by the clock of a tablet's owner.
    fn lent_now(&self, tablet: Block) -> Wall {
        self.delegations.tablets[&tablet].now(self.now.mono)
    }

    /// Whether a tablet's lease lasts.
    fn still_lent(&self, tablet: Block) -> bool {
        self.delegations.tablets.get(&tablet).is_some_and(|lent| self.now.mono < lent.until)
    }
}

impl Hub {
    /// Waits while a directory is asked for or given back.
    pub(crate) async fn settled(&self, directory: NodeId) {
        loop {
            let waiting = self.with(|state| {
                let waiting = state.delegations.moving.get_mut(&directory)?;
                let (promise, awaited) = promise();
                waiting.push(promise);
                Some(awaited)
            });
            match waiting {
                Some(waiting) => waiting.await,
                None => return,
            }
        }
    }
}
