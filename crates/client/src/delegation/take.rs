//! Asking for directories, giving them back, losing them.

use super::image::{ENTRY_BYTES, LocalDirectory};
use super::ours::Ours;
use super::send::end_of;
use super::{Lent, WORTH_MAX, Worth};
use crate::event::{Command, Invalidation, Note, Target, Transport};
use crate::hub::{Hub, State, Work};
use crate::lease::Stamp;
use crate::mutant::Mutant;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LeaseKey, Recalled};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentNode, names_life};
use bearing_types::{Block, Code, Credentials, Mono, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// Changes of a directory after which it is asked for.
const WORTH_ASKING: u32 = 2;
/// Entries that are worth one change more.
const ENTRIES_A_CHANGE: u64 = 128;
/// A directory that was refused is not asked for so long.
const REFUSED: Duration = Duration::from_secs(1);
/// One that was called back is not asked for so long; for twice as long each time that it was called back soon.
const CALLED_BACK: Duration = Duration::from_millis(20);
const CALLED_BACK_MAX: Duration = Duration::from_secs(3);
/// Called back within this time, it was hardly worth asking for.
const SOON: Duration = Duration::from_secs(1);
/// Tablets of which everything is given back at a time.
const GIVEN_BACK_AT_ONCE: usize = 64;
/// A directory in which something happened that its home had to decide is not taken again for so long.
const SUSPENDED: Duration = Duration::from_millis(300);

impl State {
    /// A change of ours in a directory that is not delegated went well. Whether to ask for it now.
    /// A large one takes longer to come over, so more has to happen in it.
    pub fn is_worth_delegating(&mut self, directory: NodeId) -> bool {
        let moves = self.delegations.is_moving(directory) || self.delegations.returning.contains(&directory);
        if !self.config.delegates || moves {
            return false;
        }
        let worth = &mut self.delegations.worth;
        if worth.len() >= WORTH_MAX {
            worth.clear();
        }
        let known = worth.entry(directory).or_insert(Worth {
            changes: 0,
            not_before: Mono::ZERO,
            pause: CALLED_BACK,
        });
        known.changes += 1;
        let cached = self.cache.directory(directory, self.now.mono);
        let entries = cached.map_or(0, |cached| cached.view.node.attributes.size / ENTRY_BYTES);
        let wanted = WORTH_ASKING.max(u32::try_from(entries / ENTRIES_A_CHANGE).unwrap_or(u32::MAX));
        // Not while another change is on its way: it could be missing in what is lent.
        let quiet = !self.leases.is_changing(LeaseKey::Content(directory));
        known.changes >= wanted && self.now.mono >= known.not_before && quiet
    }

    fn not_again(&mut self, directory: NodeId, pause: Duration) {
        let not_before = self.now.mono.after(pause);
        let before = self.delegations.worth.get(&directory).map_or(CALLED_BACK, |worth| worth.pause);
        self.delegations.worth.insert(directory, Worth { changes: 0, not_before, pause: before });
    }

    /// A directory that was ours since then is called back.
    fn not_soon_again(&mut self, directory: NodeId, since: Mono) {
        let soon = self.now.mono.since(since) < SOON;
        let worth = self.delegations.worth.get(&directory);
        let pause = worth.filter(|_| soon).map_or(CALLED_BACK, |worth| worth.pause);
        self.not_again(directory, pause);
        if let Some(worth) = self.delegations.worth.get_mut(&directory) {
            worth.pause = (pause * 2).min(CALLED_BACK_MAX);
        }
    }

    fn take_delegation(&mut self, lent: DelegationView, tablet: Block, incarnation: u64, stamp: &Stamp) {
        let Some(until) = self.lease_end(stamp.sent, lent.lease) else { return };
        // What it would have joined was lost meanwhile, or another one came first.
        let present = self.delegations.tablets.get(&tablet).map(|lent| lent.incarnation);
        if present.is_some_and(|present| present != incarnation) {
            return;
        }
        // Only the answer to a renewal says that what has lapsed is lent yet.
        if self.delegations.tablets.contains_key(&tablet) && !self.still_lent(tablet) {
            return;
        }
        let mut directories = lent.directories.into_iter();
        let Some(asked) = directories.next() else { return };
        let handle = asked.view.node.node;
        // Recalled before it came: then it is as if it had never been lent.
        if !self.leases.may_take(LeaseKey::Delegation(handle.node), handle.home, stamp) {
            return;
        }
        let now = self.now.mono;
        let names_life = self.usable(names_life(lent.lease));
        let tablets = &mut self.delegations.tablets;
        let known = tablets.entry(tablet).or_insert_with(|| Lent {
            incarnation,
            position: handle.home,
            until,
            names_life,
            clock: (lent.now, now),
            ids: VecDeque::new(),
            ids_wanted: false,
            ids_not_before: Mono::ZERO,
            queue: VecDeque::new(),
            on_way: 0,
            queued: 0,
            done: 0,
            sending: false,
            returned: Vec::new(),
            waiting: Vec::new(),
            waiting_for_ids: Vec::new(),
        });
        known.until = known.until.max(until);
        known.read_clock(lent.now, now);
        known.ids.push_back((lent.ids, 0));
        self.delegations.suspended.remove(&handle.node);
        self.take_directory_lent(asked, tablet, stamp);
        for below in directories {
            // What is not taken is answered for when it is called back.
            if self.may_take_directory(below.view.node.node, stamp) {
                self.take_directory_lent(below, tablet, stamp);
            }
        }
        self.step("delegation taken");
    }

    /// Whether a directory that was lent with another is as it was when that was asked for. Otherwise its home goes on to decide in it.
    fn may_take_directory(&self, directory: Handle, stamp: &Stamp) -> bool {
        let Handle { node, home } = directory;
        let known = self.delegations.is_lent(node) || self.delegations.is_moving(node);
        let keys = [LeaseKey::Delegation(node), LeaseKey::Content(node)];
        !known && keys.iter().all(|key| self.leases.may_take(*key, home, stamp))
    }

    fn take_directory_lent(&mut self, lent: LentDirectory, tablet: Block, stamp: &Stamp) {
        let (directory, now) = (lent.view.node.node.node, self.now.mono);
        for entry in &lent.entries {
            let Some(node) = entry.lent else { continue };
            self.take_node_lent(entry.node, node, tablet, stamp);
        }
        self.delegations.directories.insert(directory, LocalDirectory::new(lent, tablet, now));
        self.delegations.kept.remove(&directory);
        self.drop_leases(&[LeaseKey::Content(directory)]);
        self.counters.delegations += 1;
    }

    /// A node is ours if nothing happened to it since the directory was asked for and nothing of it is open.
    fn take_node_lent(&mut self, handle: Handle, lent: LentNode, tablet: Block, stamp: &Stamp) {
        let node = handle.node;
        let unchanged = self.leases.may_take(LeaseKey::File(node), handle.home, stamp);
        let elsewhere = !tablet.contains(handle.home);
        if elsewhere || !unchanged || self.files.is_in_use(node) || self.delegations.is_our_node(node) {
            return;
        }
        let LentNode { attributes, extended } = lent;
        self.delegations.ours.insert(node, Ours::new(handle.home, tablet, attributes, extended, false));
        self.drop_leases(&[LeaseKey::File(node)]);
    }

    /// Nothing of a tablet is held any more, or its owner refused steps: what was not done is lost, and
    /// nothing of it is served.
    pub(crate) fn lose_tablet(&mut self, tablet: Block) {
        let Some(lent) = self.delegations.tablets.remove(&tablet) else { return };
        for (_, promise) in lent.waiting {
            promise.keep(Err(Code::Io));
        }
        for promise in lent.waiting_for_ids {
            promise.keep(false);
        }
        let directories: Vec<NodeId> = {
            let all = self.delegations.directories.iter().chain(&self.delegations.suspended);
            all.filter(|(_, directory)| directory.tablet == tablet).map(|(node, _)| *node).collect()
        };
        let mut kernel = Vec::new();
        if lent.on_way > 0 || !lent.queue.is_empty() {
            self.delegations.fenced.entry(tablet).or_default();
            self.give_up_lent(lent.incarnation);
            self.new_fences.push((tablet, lent.position, lent.incarnation));
        }
        for directory in directories {
            kernel.extend(self.drop_image(directory));
            self.delegations.moved(directory);
        }
        let nodes: Vec<NodeId> = self.delegations.ours.of_tablet(tablet).collect();
        for node in nodes {
            let token = self.delegations.ours.token(node);
            self.delegations.ours.remove(node);
            self.files.lose(node, token);
            kernel.push(Invalidation::Node { node });
        }
        if !lent.queue.is_empty() {
            self.delegations.losses += 1;
            self.out.push(Command::Note(Note::StepsLost(lent.queue.len() as u64)));
        }
        if !kernel.is_empty() {
            self.invalidate(kernel);
        }
    }

    /// A directory is ours no more. Gives what the kernel may know of it.
    fn drop_image(&mut self, directory: NodeId) -> Vec<Invalidation> {
        let ours = self.delegations.directories.remove(&directory);
        let image = self.delegations.suspended.remove(&directory).or(ours);
        image.as_ref().map(kernel_of).unwrap_or_default()
    }

    /// What was made in a directory is there for everybody now.
    fn publish_entries(&mut self, directory: NodeId) {
        let Some(image) = self.delegations.directories.get(&directory) else { return };
        let tablet = image.tablet;
        let named = image.entries.values().map(|entry| entry.node.node);
        // Unlinked ones have no directory any more; they are let go by their home like any other.
        let nodes: Vec<NodeId> = named.chain(self.delegations.ours.nameless(tablet)).collect();
        for node in nodes {
            self.publish(node);
        }
    }

    /// A node is like any other from now on.
    pub(super) fn publish(&mut self, node: NodeId) {
        let token = self.delegations.ours.token(node);
        if self.delegations.ours.remove(node).is_none() {
            return;
        }
        self.drop_leases(&[LeaseKey::File(node)]);
        self.files.published(node, token, self.now.mono);
        self.plan_renewal(node);
    }
}

fn kernel_of(image: &LocalDirectory) -> Vec<Invalidation> {
    let directory = image.handle.node;
    let names = image.entries.values().map(|entry| &entry.name);
    let names = names.map(|name| Invalidation::Entry { directory, name: name.clone() });
    nodes_of(image).chain(names).collect()
}

fn nodes_of(image: &LocalDirectory) -> impl Iterator<Item = Invalidation> + '_ {
    let nodes = image.entries.values().map(|entry| entry.node.node);
    std::iter::once(image.handle.node).chain(nodes).map(|node| Invalidation::Node { node })
}

impl Hub {
    /// Asks for a directory if that is worth it.
    pub(crate) fn consider_delegation(&self, directory: Handle, who: &Credentials) {
        let (hub, who) = (self.clone(), who.clone());
        self.with(|state| {
            if state.is_worth_delegating(directory.node) {
                state.delegations.moving.insert(directory.node, Vec::new());
                state.spawn(hub.ask_delegation(directory, who));
            }
        });
    }

    async fn ask_delegation(self, directory: Handle, who: Credentials) {
        let (incarnation, joins) = self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            // All was given back: what is lent from now on joins nothing.
            if let Some(tablet) = tablet.filter(|tablet| state.delegations.is_done_with(*tablet)) {
                state.lose_tablet(tablet);
            }
            state.delegations.incarnation(tablet)
        });
        let call = Call::Delegate { directory, who, incarnation, joins };
        let answered = self.call(directory.home, call).await;
        self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            match (answered, tablet) {
                (Ok(answered), Some(tablet)) => {
                    if let Body::Delegation(lent) = answered.body {
                        state.take_delegation(*lent, tablet, incarnation, &answered.stamp);
                    }
                }
                // What it was to join was given back or lost meanwhile.
                (Err(Code::Stale), _) => state.not_again(directory.node, CALLED_BACK),
                _ => state.not_again(directory.node, REFUSED),
            }
            state.delegations.moved(directory.node);
        });
        if let Some(tablet) = self.with(|state| {
            state.delegations.directories.get(&directory.node).map(|directory| directory.tablet)
        }) {
            self.keep_renewing(tablet);
        }
    }

    /// Lets a directory's home decide in it for a while: it has done all that was decided here then. It stays lent to us.
    pub(crate) async fn suspend(&self, directory: NodeId) {
        self.settled(directory).await;
        let tablet = self.with(|state| {
            let tablet = state.delegations.directories.get(&directory)?.tablet;
            state.delegations.moving.insert(directory, Vec::new());
            state.not_again(directory, SUSPENDED);
            Some(tablet)
        });
        let Some(tablet) = tablet else { return };
        self.write_out_tablet(tablet).await;
        // If that fails it is lost, and not ours any more either.
        let _ = self.flush_steps(tablet).await;
        self.with(|state| {
            state.publish_entries(directory);
            if let Some(image) = state.delegations.directories.remove(&directory) {
                state.drop_leases(&[LeaseKey::Content(directory)]);
                state.delegations.suspended.insert(directory, image);
            }
            state.step("delegation suspended");
            state.delegations.moved(directory);
        });
    }

    /// A node is reached by others from now on, who ask us for nothing: our kernel keeps nothing of it.
    pub(crate) async fn expose(&self, node: NodeId) {
        let forgotten = self.with(|state| state.invalidate_and_tell(vec![Invalidation::Node { node }]));
        forgotten.await;
    }

    /// Gives directories of one tablet back.
    async fn give_back(&self, tablet: Block, directories: &[NodeId], kept_until: Mono) {
        for directory in directories {
            self.suspend(*directory).await;
        }
        let returned = self.with(|state| {
            let suspended = |directory: &&NodeId| state.delegations.suspended.contains_key(directory);
            let returned: Vec<NodeId> = directories.iter().filter(suspended).copied().collect();
            for directory in &returned {
                let since = state.delegations.image(*directory).map_or(Mono::ZERO, |image| image.since);
                state.not_soon_again(*directory, since);
            }
            state.delegations.returning.extend(&returned);
            if let Some(lent) = state.delegations.tablets.get_mut(&tablet) {
                lent.returned.extend(&returned);
            }
            returned
        });
        if !returned.is_empty() {
            let _ = self.flush_steps(tablet).await;
        }
        self.with(|state| {
            for directory in &returned {
                state.delegations.returning.remove(directory);
                if let Some(image) = state.delegations.suspended.remove(directory) {
                    state.keep_names(image, kept_until);
                }
            }
            state.step("delegation given back");
        });
    }

    /// Somebody else wants a directory. First the kernel forgets what it is told of its nodes, while operations in it go on; then nothing more is decided here. It may
    /// go by the names for a moment longer. What lies below it and is not being worked on goes with it: whoever looks here is about to look there.
    pub(crate) async fn called_back(self, from: Target, answer: Recalled, directory: NodeId) {
        self.settled(directory).await;
        let given = self.with(|state| {
            let tablet = state.delegations.image(directory)?.tablet;
            Some((tablet, state.delegations.idle_below(directory, tablet, state.now.mono)))
        });
        if let Some((tablet, given)) = given {
            self.let_others_in(tablet, given).await;
        }
        self.with(|state| {
            state.call_back_over(&answer);
            state.out.push(Command::Send {
                to: from,
                transport: Transport::Datagram,
                message: Message::Recalled(answer),
                attachment: Vec::new(),
            });
        });
    }

    /// The session is about to end: what is lent is given back, for whoever wants it next not to wait for the
    /// end of a lease. Its home tells all other servers of the end, but it may be away. A server that does
    /// not answer is not waited for long.
    pub(crate) async fn give_all_back(&self) {
        let (lent, patience) = self.with(|state| {
            let tablets = state.delegations.tablets.iter();
            let lent: Vec<_> =
                tablets.map(|(tablet, lent)| (*tablet, lent.position, lent.incarnation)).collect();
            lent.iter().for_each(|(tablet, ..)| state.lose_tablet(*tablet));
            (lent, state.config.finish_patience)
        });
        let given = lent.into_iter().map(|(_, position, incarnation)| {
            let hub = self.clone();
            let call = end_of(incarnation);
            Box::pin(async move { drop(hub.call_within(position, call, patience).await) }) as Work<()>
        });
        self.windowed(GIVEN_BACK_AT_ONCE, given.collect()).await;
    }

    async fn let_others_in(&self, tablet: Block, directories: Vec<NodeId>) {
        let (kept_until, forgotten) = self.with(|state| {
            let mut kernel = Vec::new();
            for directory in &directories {
                if let Some(image) = state.delegations.image_mut(*directory) {
                    image.draining = true;
                    kernel.extend(nodes_of(image));
                }
            }
            (state.names_kept_until(tablet), state.invalidate_and_tell(kernel))
        });
        forgotten.await;
        if !self.with(|state| state.config.planted(Mutant::AnswerBeforeSteps)) {
            self.give_back(tablet, &directories, kept_until).await;
        }
    }

    /// Gives back what was not used for longest, if too much is held.
    pub(super) fn hold_fewer(&self) {
        for (tablet, directories) in
            self.with(|state| state.delegations.beyond(state.config.delegated_entries_max))
        {
            let hub = self.clone();
            self.with(|state| state.spawn(async move { hub.let_others_in(tablet, directories).await }));
        }
    }

    /// Makes what was written to files that were made here part of them, as steps.
    async fn write_out_tablet(&self, tablet: Block) {
        let dirty = self.with(|state| {
            let is_ours =
                |node: &NodeId| state.delegations.ours.get(*node).is_some_and(|ours| ours.tablet() == tablet);
            state.files.dirty().filter(is_ours).collect::<Vec<_>>()
        });
        for node in dirty {
            if self.with(|state| state.config.planted(Mutant::DirtyForgotten)) {
                self.with(|state| state.files.forget(node));
            }
            self.clone().write_behind(node).await;
        }
    }
}
