//! Asking for directories, giving them back, losing them.

use super::image::LocalDirectory;
use super::{Delegations, Lent, WORTH_MAX, Worth};
use crate::event::{Command, Invalidation, Note, Target, Transport};
use crate::hub::{Hub, State};
use crate::lease::Stamp;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LeaseKey, Recalled};
use bearing_proto::delegation::DelegationView;
use bearing_types::{Block, Code, Mono, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// Changes of a directory after which it is asked for.
const WORTH_ASKING: u32 = 2;
/// A directory that was refused, or called back, is not asked for so long.
const NOT_AGAIN: Duration = Duration::from_secs(3);
/// A directory in which something happened that its home had to decide is not taken again for so long.
const SUSPENDED: Duration = Duration::from_millis(300);

impl State {
    /// A change of ours in a directory that is not delegated went well. Whether to ask for it now.
    pub fn is_worth_delegating(&mut self, directory: NodeId) -> bool {
        if !self.config.delegates || self.delegations.is_moving(directory) {
            return false;
        }
        let worth = &mut self.delegations.worth;
        if worth.len() >= WORTH_MAX {
            worth.clear();
        }
        let known = worth.entry(directory).or_insert(Worth { changes: 0, not_before: Mono::ZERO });
        known.changes += 1;
        // Not while another change is on its way: it could be missing in what is lent.
        let quiet = !self.leases.is_changing(LeaseKey::Content(directory));
        known.changes >= WORTH_ASKING && self.now.mono >= known.not_before && quiet
    }

    fn not_again(&mut self, directory: NodeId, pause: Duration) {
        let not_before = self.now.mono.after(pause);
        self.delegations.worth.insert(directory, Worth { changes: 0, not_before });
    }

    fn take_delegation(&mut self, lent: DelegationView, tablet: Block, incarnation: u64, stamp: &Stamp) {
        let Some(until) = self.lease_end(stamp.sent, lent.lease) else { return };
        let handle = lent.view.node.node;
        // Recalled before it came: then it is as if it had never been lent.
        if !self.leases.may_take(LeaseKey::Delegation(handle.node), handle.home, stamp) {
            return;
        }
        // What it would have joined was lost meanwhile, or another one came first.
        let present = self.delegations.tablets.get(&tablet).map(|lent| lent.incarnation);
        if present.is_some_and(|present| present != incarnation) {
            return;
        }
        let now = self.now.mono;
        let tablets = &mut self.delegations.tablets;
        let known = tablets.entry(tablet).or_insert_with(|| Lent {
            incarnation,
            position: handle.home,
            until,
            clock: (lent.now, now),
            ids: VecDeque::new(),
            ids_wanted: false,
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
        known.ids.push_back((lent.ids, 0));
        self.delegations.suspended.remove(&handle.node);
        self.delegations
            .directories
            .insert(handle.node, LocalDirectory::new(lent.view, lent.entries, tablet));
        self.cache.forget(&[LeaseKey::Content(handle.node)]);
        self.counters.delegations += 1;
        self.step("delegation taken");
    }

    /// The lease of a tablet is over, or its owner refused steps: what was not done is lost, and nothing of it is served.
    pub(super) fn lose_tablet(&mut self, tablet: Block) {
        let Some(lent) = self.delegations.tablets.remove(&tablet) else { return };
        for (_, promise) in lent.waiting {
            promise.keep(Err(Code::Io));
        }
        for promise in lent.waiting_for_ids {
            promise.keep(());
        }
        let directories: Vec<NodeId> = {
            let all = self.delegations.directories.iter().chain(&self.delegations.suspended);
            all.filter(|(_, directory)| directory.tablet == tablet).map(|(node, _)| *node).collect()
        };
        let mut kernel = Vec::new();
        if lent.on_way > 0 || !lent.queue.is_empty() {
            self.delegations.fenced.entry(tablet).or_default();
            self.new_fences.push((tablet, lent.position, lent.incarnation, directories.clone()));
        }
        for directory in directories {
            kernel.extend(self.drop_image(directory));
            self.delegations.moved(directory);
        }
        let born: Vec<NodeId> = {
            let of = self.delegations.born.iter().filter(|(_, born)| born.tablet == tablet);
            of.map(|(node, _)| *node).collect()
        };
        for node in born {
            self.delegations.born.remove(&node);
            self.files.lose(node);
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
        let unlinked = self.delegations.born.iter();
        let unlinked = unlinked.filter(|(_, born)| born.tablet == tablet && born.attributes.links == 0);
        let nodes: Vec<NodeId> = named.chain(unlinked.map(|(node, _)| *node)).collect();
        for node in nodes {
            self.publish(node);
        }
    }

    /// A node is like any other from now on.
    pub(super) fn publish(&mut self, node: NodeId) {
        let Some(born) = self.delegations.born.remove(&node) else { return };
        self.files.published(node, born.token, self.now.mono);
        self.plan_renewal(node);
    }
}

fn kernel_of(image: &LocalDirectory) -> Vec<Invalidation> {
    let directory = image.handle.node;
    let mut kernel = vec![Invalidation::Node { node: directory }];
    for entry in image.entries.values() {
        kernel.push(Invalidation::Entry { directory, name: entry.name.clone() });
        kernel.push(Invalidation::Node { node: entry.node.node });
    }
    kernel
}

impl Hub {
    /// Asks for a directory if that is worth it.
    pub(crate) fn consider_delegation(&self, directory: Handle) {
        let hub = self.clone();
        self.with(|state| {
            if state.is_worth_delegating(directory.node) {
                state.delegations.moving.insert(directory.node, Vec::new());
                state.spawn(hub.ask_delegation(directory));
            }
        });
    }

    async fn ask_delegation(self, directory: Handle) {
        let incarnation = self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            state.delegations.incarnation(tablet)
        });
        let answered = self.call(directory.home, Call::Delegate { directory, incarnation }).await;
        self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            match (answered, tablet) {
                (Ok(answered), Some(tablet)) => {
                    if let Body::Delegation(lent) = answered.body {
                        state.take_delegation(*lent, tablet, incarnation, &answered.stamp);
                    }
                }
                _ => state.not_again(directory.node, NOT_AGAIN),
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
        self.write_out_born(tablet).await;
        // If that fails it is lost, and not ours any more either.
        let _ = self.flush_steps(tablet).await;
        self.with(|state| {
            state.publish_entries(directory);
            if let Some(image) = state.delegations.directories.remove(&directory) {
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

    /// Gives a directory back.
    async fn give_back(&self, directory: NodeId) {
        self.suspend(directory).await;
        let tablet = self.with(|state| {
            let image = state.delegations.suspended.get(&directory)?;
            let tablet = image.tablet;
            state.delegations.tablets.get_mut(&tablet)?.returned.push(directory);
            state.not_again(directory, NOT_AGAIN);
            Some(tablet)
        });
        if let Some(tablet) = tablet {
            let _ = self.flush_steps(tablet).await;
        }
        self.with(|state| {
            state.delegations.suspended.remove(&directory);
            state.step("delegation given back");
        });
    }

    /// Somebody else wants a directory. First the kernel forgets it, while operations in it go on; then nothing more is decided here.
    pub(crate) async fn called_back(self, from: Target, answer: Recalled, directory: NodeId) {
        self.settled(directory).await;
        let kernel = self.with(|state| {
            let Delegations { directories, suspended, .. } = &mut state.delegations;
            let image = directories.get_mut(&directory).or(suspended.get_mut(&directory))?;
            image.draining = true;
            let kernel = kernel_of(image);
            Some(state.invalidate_and_tell(kernel))
        });
        if let Some(forgotten) = kernel {
            forgotten.await;
            if !self.with(|state| state.config.answers_before_steps()) {
                self.give_back(directory).await;
            }
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

    /// Makes what was written to files that were made here part of them, as steps.
    async fn write_out_born(&self, tablet: Block) {
        let dirty = self.with(|state| {
            let born = state.delegations.born.iter().filter(|(_, born)| born.tablet == tablet);
            let dirty: Vec<NodeId> =
                born.map(|(node, _)| *node).filter(|node| state.files.is_dirty(*node)).collect();
            dirty
        });
        for node in dirty {
            if self.with(|state| state.config.forgets_dirty()) {
                self.with(|state| state.files.forget(node));
            }
            self.clone().write_behind(node).await;
        }
    }
}
