//! Directories that are delegated to this client, and the nodes in them that are its own.

use super::image::{LocalDirectory, LocalEntry};
use super::ours::OurNodes;
use super::tablet::Lent;
use super::worth::Worths;
use crate::event::Invalidation;
use crate::run::{Awaited, Promise, promise};
use bearing_proto::client::DirectoryView;
use bearing_proto::delegation::Step;
use bearing_proto::grant::OpenToken;
use bearing_types::{Block, Code, FileType, Mono, Name, NameHash, NodeId, Position, SessionId, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is delegated.
pub(crate) struct Delegations {
    tablets: BTreeMap<Block, Lent>,
    directories: BTreeMap<NodeId, LocalDirectory>,
    pub ours: OurNodes,
    /// Directories that are delegated to us, but their homes decide for now what happens in them: as they
    /// were here when that began. Their owner lets nobody else in without calling them back, so the kernel
    /// may keep what it knows of them.
    suspended: BTreeMap<NodeId, LocalDirectory>,
    /// Names in directories that were given back and that the kernel may go by yet.
    kept: BTreeMap<NodeId, Kept>,
    /// Directories that are being given back. Until their home has said that they are, its doing so may come
    /// late, and would end what is lent then.
    returning: BTreeSet<NodeId>,
    /// So many times directories are being given back now: the kernel may keep nothing of what is ours, as it
    /// was made to forget what it had.
    pub drains: usize,
    /// Directories that are asked for, suspended or given back, and who waits for that.
    moving: BTreeMap<NodeId, Vec<Promise<()>>>,
    worth: Worths,
    /// Counts incarnations of tablets.
    incarnations: u64,
    /// Tablets whose owner has not said yet that it takes no more of what we gave up, and who waits for that.
    fenced: BTreeMap<Block, Vec<Promise<()>>>,
    /// How often steps were lost, and how often that had been so when somebody was told last.
    losses: u64,
    losses_told: u64,
    /// See [`Delegations::take_senders`].
    new_senders: Vec<(Block, u64)>,
    /// See [`Delegations::take_fences`].
    new_fences: Vec<(Block, Position, u64)>,
    /// Tablets whose leases somebody renews.
    renewed: BTreeSet<Block>,
    /// See [`Thinned::epoch`](super::image::Thinned::epoch).
    epochs: u64,
    /// What is too much is being dropped or given back.
    holds_fewer: bool,
}

/// What came of losing all that a tablet lends.
pub(crate) struct Lost {
    pub incarnation: u64,
    /// What is asked about it is given up.
    pub fenced: bool,
    /// How many steps are lost.
    pub steps: usize,
}

/// See [`Delegations::kept`].
struct Kept {
    tablet: Block,
    names: Vec<Name>,
    until: Mono,
}

/// With so many entries its home may not show a directory again that was left to it: its names are kept.
const FILTERED_MIN: usize = 8192;
/// Where too much is held, a directory that has more than this share of it is not held whole.
const LARGE_SHARE: usize = 16;

/// What a directory takes of so much room for entries: it is something to hold, too. A filter takes as much
/// as the fewest entries of which there is one.
fn size(image: &LocalDirectory, entries_max: usize) -> usize {
    let thinned = image.thinned.as_ref().map_or(0, |thinned| entries_max / LARGE_SHARE + thinned.absent());
    1 + image.entries.len() + thinned
}

/// A directory in which nothing was decided for so long is not being worked on.
const IDLE: Duration = Duration::from_millis(50);

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
            drains: 0,
            moving: BTreeMap::new(),
            worth: Worths::default(),
            incarnations: 0,
            fenced: BTreeMap::new(),
            losses: 0,
            losses_told: 0,
            new_senders: Vec::new(),
            new_fences: Vec::new(),
            renewed: BTreeSet::new(),
            epochs: 0,
            holds_fewer: false,
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
    pub fn tablet_with_steps_of(&self, node: NodeId) -> Option<Block> {
        self.tablets.iter().find(|(_, lent)| lent.has_steps_of(node)).map(|(tablet, _)| *tablet)
    }

    /// The tablet that has yet to hear that a directory of it was removed here.
    pub fn tablet_to_remove(&self, directory: NodeId) -> Option<Block> {
        self.tablets.iter().find(|(_, lent)| lent.is_removing(directory)).map(|(tablet, _)| *tablet)
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

    pub fn image(&self, directory: NodeId) -> Option<&LocalDirectory> {
        self.directories.get(&directory).or(self.suspended.get(&directory))
    }

    pub fn image_mut(&mut self, directory: NodeId) -> Option<&mut LocalDirectory> {
        self.directories.get_mut(&directory).or(self.suspended.get_mut(&directory))
    }

    /// A directory, and all below it that are ours and in which nothing was decided for a moment, parents
    /// first.
    pub fn idle_below(&self, directory: NodeId, tablet: Block, now: Mono) -> Vec<NodeId> {
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

    /// Whether more is held than there is room for, and nothing is done about that yet: it is from now on.
    pub fn begin_holding_fewer(&mut self, entries_max: usize) -> bool {
        let begins = !self.holds_fewer && self.held(entries_max) > entries_max;
        self.holds_fewer |= begins;
        begins
    }

    /// It is done.
    pub fn end_holding_fewer(&mut self) {
        self.holds_fewer = false;
    }

    /// Directories that stay as they are for now.
    fn staying(&self) -> impl Iterator<Item = (&NodeId, &LocalDirectory)> {
        self.directories.iter().filter(|(node, image)| !image.draining && !self.is_moving(**node))
    }

    /// What these take of the room for entries.
    fn held(&self, entries_max: usize) -> usize {
        self.staying().map(|(_, image)| size(image, entries_max)).sum()
    }

    /// If more entries than these are held: large directories, which are not held whole from now on.
    pub fn to_thin(&self, entries_max: usize) -> Vec<NodeId> {
        if self.held(entries_max) <= entries_max {
            return Vec::new();
        }
        let large = (entries_max / LARGE_SHARE).max(1);
        let large = self.staying().filter(|(_, image)| image.entries.len() + image.absent() > large);
        large.map(|(node, _)| *node).collect()
    }

    /// Drops entries of a directory of which everything is done that was decided: at most so many, of
    /// nodes that may go. Gives them.
    pub fn thin(
        &mut self,
        directory: NodeId,
        count_max: usize,
        may_go: impl Fn(&LocalEntry) -> bool,
    ) -> Vec<LocalEntry> {
        self.epochs += 1;
        let Some(image) = self.directories.get_mut(&directory) else { return Vec::new() };
        let Some(lent) = self.tablets.get(&image.tablet) else { return Vec::new() };
        let (names, nodes) = lent.named_by_steps(directory);
        let may_go = |entry: &LocalEntry| !nodes.contains(&entry.node.node) && may_go(entry);
        image.thin((self.epochs, count_max), may_go, |name| !names.contains(name))
    }

    /// A large directory that was left to its home for a while is ours again, if it can be: what is in it was
    /// not shown. Gives what the kernel may know of it.
    pub fn show_again(&mut self, view: DirectoryView, tablet: Block, now: Mono) -> Option<Vec<Invalidation>> {
        let directory = view.node.node.node;
        let is_known = |image: &&mut LocalDirectory| image.tablet == tablet && image.thinned.is_some();
        self.suspended.get_mut(&directory).filter(is_known)?;
        self.epochs += 1;
        let mut image = self.suspended.remove(&directory)?;
        let known = image.shown_again(view, self.epochs, now);
        self.directories.insert(directory, image);
        Some(known)
    }

    /// Whether a directory is suspended that its home would not show whole.
    pub fn is_large(&self, directory: NodeId) -> bool {
        self.suspended.get(&directory).is_some_and(|image| image.thinned.is_some())
    }

    /// The home of a directory of ours is asked to change what a name leads to.
    pub fn note_name(&mut self, directory: NodeId, hash: NameHash) {
        if let Some(image) = self.suspended.get_mut(&directory) {
            image.note_name(hash);
        }
    }

    /// If more entries than these are held: directories to give back so that it is an eighth less, those
    /// first in which nothing was decided for longest.
    pub fn beyond(&self, entries_max: usize) -> BTreeMap<Block, Vec<NodeId>> {
        let held = self.held(entries_max);
        let mut chosen: BTreeMap<Block, Vec<NodeId>> = BTreeMap::new();
        if held <= entries_max {
            return chosen;
        }
        let mut left = held.saturating_sub(entries_max - entries_max / 8);
        let mut by_use: Vec<_> = self.staying().collect();
        by_use.sort_by_key(|(node, image)| (image.used, **node));
        for (node, image) in by_use {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(size(image, entries_max));
            chosen.entry(image.tablet).or_default().push(*node);
        }
        chosen
    }

    /// Whether something of a tablet is lent to us.
    pub fn any_lent(&self, tablet: Block) -> bool {
        let mut all = self.directories.values().chain(self.suspended.values());
        all.any(|directory| directory.tablet == tablet)
    }

    /// The incarnation of a tablet: of what is lent there, or would be; and whether something is.
    pub fn incarnation(&mut self, tablet: Option<Block>) -> (u64, bool) {
        match tablet.and_then(|tablet| self.tablets.get(&tablet)) {
            Some(lent) => (lent.incarnation(), true),
            None => {
                self.incarnations += 1;
                (self.incarnations, false)
            }
        }
    }

    /// Whether nothing of a tablet is lent any more, and nothing is left to be said of what was.
    pub fn is_done_with(&self, tablet: Block) -> bool {
        let any_node = self.ours.of_tablet(tablet).next().is_some();
        !self.any_lent(tablet) && !any_node && self.tablets.get(&tablet).is_some_and(Lent::is_idle)
    }

    pub fn is_moving(&self, directory: NodeId) -> bool {
        self.moving.contains_key(&directory)
    }

    pub fn moved(&mut self, directory: NodeId) {
        for promise in self.moving.remove(&directory).into_iter().flatten() {
            promise.keep(());
        }
    }

    /// Whether a directory is delegated to us, or about to be or not to be, whoever decides in it.
    pub fn concerns(&self, directory: NodeId) -> bool {
        self.is_ours(directory) || self.is_lent(directory)
    }

    /// A directory that is ours.
    pub fn directory(&self, directory: NodeId) -> Option<&LocalDirectory> {
        self.directories.get(&directory)
    }

    /// A directory that is ours, in which something is decided now.
    pub fn use_directory(&mut self, directory: NodeId, now: Mono) -> Option<&mut LocalDirectory> {
        let image = self.directories.get_mut(&directory)?;
        image.used = now;
        Some(image)
    }

    /// A directory is ours from now on.
    pub fn insert_directory(&mut self, directory: NodeId, image: LocalDirectory) {
        self.directories.insert(directory, image);
    }

    /// A directory was lent.
    pub fn take_directory(&mut self, directory: NodeId, image: LocalDirectory) {
        self.insert_directory(directory, image);
        self.kept.remove(&directory);
    }

    /// It is no more.
    pub fn remove_directory(&mut self, directory: NodeId) {
        self.directories.remove(&directory);
    }

    /// What a tablet lends.
    pub fn lent(&self, tablet: Block) -> Option<&Lent> {
        self.tablets.get(&tablet)
    }

    /// Whether what a tablet lends is still that of an incarnation.
    pub fn is_lent_as(&self, tablet: Block, incarnation: u64) -> bool {
        self.lent(tablet).is_some_and(|lent| lent.incarnation() == incarnation)
    }

    pub fn lent_mut(&mut self, tablet: Block) -> Option<&mut Lent> {
        self.tablets.get_mut(&tablet)
    }

    /// The same if it was not lost since.
    pub fn current(&mut self, tablet: Block, incarnation: u64) -> Option<&mut Lent> {
        self.tablets.get_mut(&tablet).filter(|lent| lent.incarnation() == incarnation)
    }

    /// What a tablet lends from now on, or did already.
    pub fn lend(&mut self, tablet: Block, new: impl FnOnce() -> Lent) -> &mut Lent {
        self.tablets.entry(tablet).or_insert_with(new)
    }

    /// Whether a tablet's lease lasts.
    pub fn still_lent(&self, tablet: Block, now: Mono) -> bool {
        self.tablets.get(&tablet).is_some_and(|lent| now < lent.until())
    }

    /// Whether the lease on what a tablet lends has run out, and its owner has not said yet what that means.
    pub fn is_lapsed_at(&self, position: Position, now: Mono) -> bool {
        let mut lapsed = self.tablets.iter().filter(|(_, lent)| now >= lent.until());
        lapsed.any(|(tablet, _)| tablet.contains(position))
    }

    /// The present by the clock of a tablet's owner.
    pub fn now(&self, tablet: Block, now: Mono) -> Wall {
        self.tablets[&tablet].now(now)
    }

    /// Puts a step into the queue of its tablet.
    pub fn queue(&mut self, tablet: Block, step: Step) {
        self.tablets.get_mut(&tablet).expect("steps are of lent tablets").queue(step);
        self.begin_sending(tablet);
    }

    /// What to wait for until all is done that was decided in a tablet so far.
    pub fn await_steps(&mut self, tablet: Block) -> Option<Awaited<Result<(), Code>>> {
        let awaited = self.tablets.get_mut(&tablet)?.await_steps()?;
        self.begin_sending(tablet);
        Some(awaited)
    }

    /// Asks a tablet for ids. Says whether there are some.
    pub fn await_ids(&mut self, tablet: Block) -> Option<Awaited<bool>> {
        let awaited = self.tablets.get_mut(&tablet)?.await_ids();
        self.begin_sending(tablet);
        Some(awaited)
    }

    /// An id for something made in a tablet; `None` if all are used up for now.
    pub fn take_id(&mut self, tablet: Block, now: Mono) -> Option<NodeId> {
        self.tablets.get_mut(&tablet)?.take_id(now)
    }

    fn begin_sending(&mut self, tablet: Block) {
        if let Some(lent) = self.tablets.get_mut(&tablet)
            && lent.begin_sending()
        {
            self.new_senders.push((tablet, lent.incarnation()));
        }
    }

    /// Whether something is to be begun.
    pub fn has_new_tasks(&self) -> bool {
        !self.new_senders.is_empty() || !self.new_fences.is_empty()
    }

    /// Tablets whose steps begin to be sent, by their incarnations.
    pub fn take_senders(&mut self) -> Vec<(Block, u64)> {
        std::mem::take(&mut self.new_senders)
    }

    /// Tablets whose owners have to be told that something was given up.
    pub fn take_fences(&mut self) -> Vec<(Block, Position, u64)> {
        std::mem::take(&mut self.new_fences)
    }

    /// A tablet's owner takes no more of what was given up.
    pub fn fence_over(&mut self, tablet: Block) {
        for promise in self.fenced.remove(&tablet).into_iter().flatten() {
            promise.keep(());
        }
    }

    /// What to wait for while a position's owner may still take what was given up.
    pub fn await_fence(&mut self, position: Position) -> Option<Awaited<()>> {
        let (_, waiting) = self.fenced.iter_mut().find(|(tablet, _)| tablet.contains(position))?;
        let (promise, awaited) = promise();
        waiting.push(promise);
        Some(awaited)
    }

    /// Whether somebody has to begin to renew a tablet's lease.
    pub fn begin_renewing(&mut self, tablet: Block) -> bool {
        self.renewed.insert(tablet)
    }

    /// Whoever renewed it does so no more.
    pub fn end_renewing(&mut self, tablet: Block) {
        self.renewed.remove(&tablet);
    }

    /// A directory is asked for, suspended or given back from now on.
    pub fn begin_moving(&mut self, directory: NodeId) {
        self.moving.insert(directory, Vec::new());
    }

    /// What to wait for while it is.
    pub fn await_moved(&mut self, directory: NodeId) -> Option<Awaited<()>> {
        let waiting = self.moving.get_mut(&directory)?;
        let (promise, awaited) = promise();
        waiting.push(promise);
        Some(awaited)
    }

    /// Whether a directory may be asked for at all.
    pub fn may_ask(&self, directory: NodeId) -> bool {
        !self.is_moving(directory) && !self.is_returning(directory)
    }

    /// Whether a directory is being given back, and its home has not said that it was.
    pub fn is_returning(&self, directory: NodeId) -> bool {
        self.returning.contains(&directory)
    }

    /// A directory of so many entries, which is not ours, was changed. Whether it is worth asking for.
    pub fn changed(&mut self, (directory, parent): (NodeId, NodeId), entries: u64, now: Mono) -> bool {
        let near = self.is_ours(parent);
        self.worth.changed(directory, entries, near, now)
    }

    /// A directory of so many entries is listed. Whether it is worth asking for: if it is not ours, but lies
    /// in one of ours, the same program probably goes on with what is in it.
    pub fn walked_into(&self, (directory, parent): (NodeId, NodeId), entries: u64, now: Mono) -> bool {
        let is_next = self.is_ours(parent) && !self.is_lent(directory) && self.may_ask(directory);
        is_next && self.worth.walked_into(directory, entries, now)
    }

    /// A directory is not asked for before that.
    pub fn not_before(&mut self, directory: NodeId, not_before: Mono) {
        self.worth.not_before(directory, not_before);
    }

    /// What was suspended is ours again, or lent anew.
    pub fn resume(&mut self, directory: NodeId) {
        self.suspended.remove(&directory);
    }

    /// The home of a directory of ours decides in it from now on. Whether it was ours.
    pub fn suspend(&mut self, directory: NodeId) -> bool {
        let Some(mut image) = self.directories.remove(&directory) else { return false };
        if image.entries.len() >= FILTERED_MIN {
            image.filter_names(self.epochs);
        }
        self.suspended.insert(directory, image);
        true
    }

    /// Begins to give back those of a tablet's directories that are suspended, and says which.
    pub fn give_back(
        &mut self,
        tablet: Block,
        directories: &[NodeId],
        is_open: impl Fn(NodeId) -> bool,
        now: Mono,
    ) -> Vec<NodeId> {
        let (mut returned, mut open) = (Vec::new(), Vec::new());
        for directory in directories {
            let Some(image) = self.suspended.get(directory) else { continue };
            self.worth.called_back(*directory, image.since, now);
            returned.push(*directory);
            let nodes = image.entries.values().map(|entry| entry.node);
            open.extend(nodes.filter(|node| tablet.contains(node.home) && is_open(node.node)));
        }
        self.returning.extend(&returned);
        if let Some(lent) = self.tablets.get_mut(&tablet) {
            lent.give_back(&returned, open.into_iter().map(|node| node.node));
        }
        returned
    }

    /// They are given back, and with them the names that the kernel knows until then.
    pub fn given_back(&mut self, directories: &[NodeId], names_until: Mono, now: Mono) {
        for directory in directories {
            self.returning.remove(directory);
            let Some(image) = self.suspended.remove(directory) else { continue };
            self.kept.retain(|_, kept| now < kept.until);
            if now < names_until && !image.entries.is_empty() {
                let names = image.entries.into_values().map(|entry| entry.name).collect();
                self.kept.insert(*directory, Kept { tablet: image.tablet, names, until: names_until });
            }
        }
    }

    /// Until when the kernel may go by names of a tablet that it was told until now.
    pub fn names_kept_until(&self, tablet: Block, now: Mono) -> Mono {
        now.after(self.tablets.get(&tablet).map(Lent::names_life).unwrap_or_default())
    }

    /// The names of a directory are recalled. Its owner may lease them before its word of that is here.
    pub fn recall_names(&mut self, directory: NodeId, now: Mono, kernel: &mut Vec<Invalidation>) {
        let kept = self.kept.remove(&directory);
        let names = kept.filter(|kept| now < kept.until).map(|kept| kept.names);
        let draining = self.image(directory).filter(|image| image.draining);
        let leaving = draining.into_iter().flat_map(|image| image.entries.values());
        let leaving = leaving.map(|entry| entry.name.clone());
        let names = names.into_iter().flatten().chain(leaving);
        kernel.extend(names.map(|name| Invalidation::Entry { directory, name }));
    }

    /// The same of everything in a block.
    pub fn recall_names_in(&mut self, block: Block, now: Mono, kernel: &mut Vec<Invalidation>) {
        let meets = |tablet: Block| block.contains(tablet.start()) || tablet.contains(block.start());
        let kept = self.kept.iter().filter(|(_, kept)| meets(kept.tablet));
        let mut directories: Vec<NodeId> = kept.map(|(directory, _)| *directory).collect();
        let images = self.directories.iter().chain(&self.suspended);
        let leaving = images.filter(|(_, image)| image.draining && meets(image.tablet));
        directories.extend(leaving.map(|(directory, _)| *directory));
        for directory in directories {
            self.recall_names(directory, now, kernel);
        }
    }

    /// All that was made in a directory, and what has no name any more: unlinked ones have no directory, and
    /// are released by their home like any other.
    pub fn to_publish(&self, directory: NodeId) -> Vec<NodeId> {
        let Some(image) = self.directories.get(&directory) else { return Vec::new() };
        let named = image.entries.values().map(|entry| entry.node.node);
        named.chain(self.ours.nameless(image.tablet)).collect()
    }

    /// Nothing is lent any more by a tablet. Whoever waits for its steps is told; its owner is told too if
    /// some may be on their way. [`Delegations::lose_directories`] is still to be called.
    pub fn lose(&mut self, tablet: Block) -> Option<Lost> {
        let mut lent = self.tablets.remove(&tablet)?;
        let fenced = lent.lose();
        if fenced {
            self.fenced.entry(tablet).or_default();
            self.new_fences.push((tablet, lent.position(), lent.incarnation()));
        }
        self.losses += u64::from(lent.steps_left() > 0);
        Some(Lost { incarnation: lent.incarnation(), fenced, steps: lent.steps_left() })
    }

    /// The directories of a tablet are ours no more. Gives what the kernel may know of them.
    pub fn lose_directories(&mut self, tablet: Block) -> Vec<Invalidation> {
        let all = self.directories.iter().chain(&self.suspended);
        let lost = all.filter(|(_, image)| image.tablet == tablet);
        let lost: Vec<NodeId> = lost.map(|(directory, _)| *directory).collect();
        let mut kernel = Vec::new();
        for directory in lost {
            let ours = self.directories.remove(&directory);
            let image = self.suspended.remove(&directory).or(ours);
            kernel.extend(image.iter().flat_map(LocalDirectory::known_to_kernel));
            self.returning.remove(&directory);
            self.moved(directory);
        }
        kernel
    }

    /// Losses so far, and those of them that somebody was told of.
    pub fn losses(&self) -> (u64, u64) {
        (self.losses, self.losses_told)
    }

    /// Somebody was told of so many losses, and of no more.
    pub fn set_losses_told(&mut self, told: u64) {
        self.losses_told = told;
    }
}
