//! Asking for directories, giving them back, losing them.

use super::send::end_of;
use crate::context::{Context, State, Work};
use crate::event::{Invalidation, Note, Target};
use crate::mutant::Mutant;
use crate::state::lease::{Directory, Stamp};
use crate::state::lent::{CALLED_BACK, Lent, LocalDirectory, Ours};
use bearing_proto::client::{Body, Call, Handle, LeaseKey, Recalled};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentNode, names_life};
use bearing_proto::rules;
use bearing_types::{AclHash, Block, Code, Credentials, FileType, Mono, NodeId, Permission};
use std::time::Duration;

/// A directory that was refused is not asked for so long.
const REFUSED: Duration = Duration::from_secs(1);
/// A listing waits so long for what is walked into: it needs nothing of others by itself.
const FOLLOWED_WITHIN: Duration = Duration::from_millis(100);
/// Tablets of which everything is given back at a time.
const GIVEN_BACK_AT_ONCE: usize = 64;
/// A directory in which something happened that its home had to decide is not taken again for so long.
const SUSPENDED: Duration = Duration::from_millis(300);

impl State {
    /// A change of ours in a directory that is not delegated went well. Whether to ask for it now.
    fn is_worth_delegating(&mut self, directory: NodeId) -> bool {
        if !self.io.config.delegates || self.session.is_ending() || !self.delegations.may_ask(directory) {
            return false;
        }
        let cached = self.cache.directory(directory, self.io.now.mono);
        let known = cached.map(|cached| (cached.view.parent.node, entries_of(&cached)));
        let (parent, entries) = known.unwrap_or((directory, 0));
        // What is too large is not shown again.
        let entries = if self.delegations.is_large(directory) { 0 } else { entries };
        let worth_it = self.delegations.changed((directory, parent), entries, self.io.now.mono);
        // Not while another change is on its way: it could be missing in what is lent.
        worth_it && !self.leases.is_changing(LeaseKey::Content(directory))
    }

    /// A program lists a directory. Whether to ask for it, and with it for what is below: `rm -r`, `find` and
    /// `tar` walk on from one of ours.
    fn is_worth_following(&mut self, directory: NodeId, who: &Credentials) -> bool {
        let now = self.io.now.mono;
        let Some(known) = self.cache.directory(directory, now) else { return false };
        let both = (directory, known.view.parent.node);
        let grant = &known.view.grant.body;
        // Others are not lent: their holder knows permission bits only, and nothing of quotas.
        let may_be_lent = grant.acl == AclHash(0) && grant.quota.is_none();
        let may_change = grant.access.allows(who, Permission::CHANGE_ENTRIES, FileType::Directory);
        self.io.config.delegates
            && !self.session.is_ending()
            && may_be_lent
            && may_change
            && !self.leases.is_changing(known.content_key())
            && self.delegations.walked_into(both, entries_of(&known), now)
    }

    fn not_again(&mut self, directory: NodeId, pause: Duration) {
        self.delegations.not_before(directory, self.io.now.mono.after(pause));
    }

    fn on_delegation(&mut self, lent: DelegationView, tablet: Block, incarnation: u64, stamp: &Stamp) {
        let Some(until) = self.io.lease_end(stamp.sent, lent.lease) else { return };
        // What it would have joined was lost meanwhile, or another one came first.
        let present = self.delegations.lent(tablet).map(Lent::incarnation);
        if present.is_some_and(|present| present != incarnation) {
            return;
        }
        // Only the answer to a renewal says that what has lapsed is lent yet.
        if present.is_some() && !self.delegations.still_lent(tablet, self.io.now.mono) {
            return;
        }
        let mut directories = lent.directories.into_iter();
        let Some(asked) = directories.next() else { return };
        let handle = asked.view.node.node;
        // Recalled before it came: then it is as if it had never been lent.
        // Or its return is on its way, which would end this.
        if !self.leases.may_take(LeaseKey::Delegation(handle.node), handle.home, stamp)
            || self.delegations.is_returning(handle.node)
        {
            return;
        }
        let now = self.io.now.mono;
        let names_life = self.io.usable(names_life(lent.lease));
        let clock = (lent.now, now);
        let new = || Lent::new(incarnation, handle.home, (until, names_life), clock);
        self.delegations.lend(tablet, new).extend(until, lent.ids, clock);
        if asked.whole {
            self.delegations.resume(handle.node);
            self.take_directory_lent(asked, tablet, stamp);
        } else if let Some(known) = self.delegations.show_again(asked.view, tablet, now) {
            self.invalidate(known);
            self.drop_leases(&[LeaseKey::Content(handle.node)]);
            self.io.counters.shown_again += 1;
        } else {
            self.not_again(handle.node, REFUSED);
        }
        for below in directories {
            // What is not taken is answered for when it is called back.
            if self.may_take_directory(below.view.node.node, stamp) {
                self.take_directory_lent(below, tablet, stamp);
            }
        }
        self.io.step("delegation taken");
    }

    /// Whether a directory that was lent with another is as it was when that was asked for. Otherwise its
    /// home goes on to decide in it.
    fn may_take_directory(&self, directory: Handle, stamp: &Stamp) -> bool {
        let Handle { node, home } = directory;
        let known = self.delegations.is_lent(node) || self.delegations.is_moving(node);
        let keys = [LeaseKey::Delegation(node), LeaseKey::Content(node)];
        !known && keys.iter().all(|key| self.leases.may_take(*key, home, stamp))
    }

    fn take_directory_lent(&mut self, lent: LentDirectory, tablet: Block, stamp: &Stamp) {
        let (directory, now) = (lent.view.node.node.node, self.io.now.mono);
        for entry in &lent.entries {
            let Some(node) = entry.lent else { continue };
            self.take_node_lent(entry.node, node, tablet, stamp);
        }
        self.delegations.take_directory(directory, LocalDirectory::new(lent, tablet, now));
        self.drop_leases(&[LeaseKey::Content(directory)]);
        self.io.counters.delegations += 1;
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
        let Some(lost) = self.delegations.lose(tablet) else { return };
        if lost.fenced {
            self.requests.give_up_lent(lost.incarnation, &mut self.io);
        }
        let mut kernel = self.delegations.lose_directories(tablet);
        let nodes: Vec<NodeId> = self.delegations.ours.of_tablet(tablet).collect();
        for node in nodes {
            let token = self.delegations.ours.token(node);
            self.delegations.ours.remove(node);
            self.files.lose(node, token);
            kernel.push(Invalidation::Node { node });
        }
        if lost.steps > 0 {
            self.io.note(Note::StepsLost(lost.steps as u64));
        }
        self.invalidate(kernel);
    }

    /// A node is like any other from now on.
    pub(super) fn publish(&mut self, node: NodeId) {
        let token = self.delegations.ours.token(node);
        if self.delegations.ours.remove(node).is_none() {
            return;
        }
        self.drop_leases(&[LeaseKey::File(node)]);
        self.files.published(node, token, self.io.now.mono);
        self.plan_renewal(node);
    }
}

fn entries_of(directory: &Directory) -> u64 {
    rules::entries_of(&directory.view.node.attributes)
}

impl Context {
    /// Asks for a directory if that is worth it.
    pub(crate) fn consider_delegation(&self, directory: Handle, who: &Credentials) {
        let (context, who) = (self.clone(), who.clone());
        self.with(|state| {
            if state.is_worth_delegating(directory.node) {
                state.delegations.begin_moving(directory.node);
                let patience = state.io.config.request_timeout;
                state.spawn(context.ask_delegation(directory, who, patience));
            }
        });
    }

    /// Asks for a directory that is about to be listed if that is worth it. Whether it did.
    pub(crate) async fn follow(&self, directory: Handle, who: &Credentials) -> bool {
        let asks = self.with(|state| {
            let worth_it = state.is_worth_following(directory.node, who);
            if worth_it {
                state.delegations.begin_moving(directory.node);
            }
            worth_it
        });
        if asks {
            self.clone().ask_delegation(directory, who.clone(), FOLLOWED_WITHIN).await;
        }
        asks
    }

    async fn ask_delegation(self, directory: Handle, who: Credentials, patience: Duration) {
        self.past_lapse(directory.home).await;
        self.past_fence(directory.home).await;
        let (incarnation, joins) = self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            // All was given back: what is lent from now on joins nothing.
            if let Some(tablet) = tablet.filter(|tablet| state.delegations.is_done_with(*tablet)) {
                state.lose_tablet(tablet);
            }
            state.delegations.incarnation(tablet)
        });
        let call = Call::Delegate { directory, who, incarnation, joins };
        let answered = self.call_within(directory.home, call, patience).await;
        self.with(|state| {
            let tablet = state.routes.locate(directory.home).map(|located| located.block);
            match (answered, tablet) {
                // At the end everything is given back; what is lent then goes with the session.
                (Ok(answered), Some(tablet)) => {
                    if let (Body::Delegation(lent), false) = (answered.body, state.session.is_ending()) {
                        state.on_delegation(*lent, tablet, incarnation, &answered.stamp);
                    }
                }
                // What it was to join was given back or lost meanwhile.
                (Err(Code::Stale), _) => state.not_again(directory.node, CALLED_BACK),
                _ => state.not_again(directory.node, REFUSED),
            }
            state.delegations.moved(directory.node);
        });
        if let Some(tablet) = self.with(|state| Some(state.delegations.directory(directory.node)?.tablet)) {
            self.keep_renewing(tablet);
        }
    }

    /// Lets a directory's home decide in it for a while: it has done all that was decided here then. It stays
    /// lent to us.
    pub(crate) async fn suspend(&self, directory: NodeId) {
        self.settled(directory).await;
        let begun = self.with(|state| {
            let tablet = state.delegations.directory(directory)?.tablet;
            let incarnation = state.delegations.lent(tablet)?.incarnation();
            state.delegations.begin_moving(directory);
            state.not_again(directory, SUSPENDED);
            Some((tablet, incarnation))
        });
        let Some((tablet, incarnation)) = begun else { return };
        // If the tablet is lost meanwhile, nothing of it moves any more; and what is lent later is not this.
        let goes_on = |state: &State| state.delegations.is_lent_as(tablet, incarnation);
        self.write_out_tablet(tablet).await;
        let _ = self.flush_steps(tablet).await;
        self.with(|state| {
            if !goes_on(state) {
                return;
            }
            for node in state.delegations.to_publish(directory) {
                state.publish(node);
            }
            if state.delegations.suspend(directory) {
                state.drop_leases(&[LeaseKey::Content(directory)]);
            }
            state.io.step("delegation suspended");
        });
        // What was decided of its nodes meanwhile comes before what their home decides.
        let _ = self.flush_steps(tablet).await;
        self.with(|state| {
            if goes_on(state) {
                state.delegations.moved(directory);
            }
        });
    }

    /// A node is reached by others from now on, who ask us for nothing: our kernel keeps nothing of it.
    pub(crate) async fn expose(&self, node: NodeId) {
        let forgotten = self.with(|state| state.invalidate_and_tell(vec![Invalidation::Node { node }]));
        forgotten.await;
    }

    /// Gives directories of one tablet back, as long as they are those that were lent under an incarnation:
    /// what is lent anew meanwhile is not, and the kernel has not forgotten what it is told of it.
    async fn give_back(&self, (tablet, incarnation): (Block, u64), directories: &[NodeId], kept_until: Mono) {
        let goes_on = |state: &State| state.delegations.is_lent_as(tablet, incarnation);
        for directory in directories {
            if !self.with(|state| goes_on(state)) {
                return;
            }
            self.suspend(*directory).await;
        }
        let returned = self.with(|state| match goes_on(state) {
            true => {
                let (files, now) = (&state.files, state.io.now.mono);
                state.delegations.give_back(tablet, directories, |node| files.is_open(node), now)
            }
            false => Vec::new(),
        });
        if returned.is_empty() {
            return;
        }
        let _ = self.flush_steps(tablet).await;
        self.with(|state| {
            if goes_on(state) {
                state.delegations.given_back(&returned, kept_until, state.io.now.mono);
            }
            state.io.step("delegation given back");
        });
    }

    /// Somebody else wants a directory. First the kernel forgets what it is told of its nodes, while
    /// operations in it go on; then nothing more is decided here. It may go by the names for a moment longer.
    /// What lies below it and is not being worked on goes with it: whoever looks here is about to look there.
    pub(crate) async fn called_back(self, from: Target, answer: Recalled, directory: NodeId) {
        self.settled(directory).await;
        let given = self.with(|state| {
            let tablet = state.delegations.image(directory)?.tablet;
            Some((tablet, state.delegations.idle_below(directory, tablet, state.io.now.mono)))
        });
        if let Some((tablet, given)) = given {
            self.let_others_in(tablet, given).await;
        }
        self.with(|state| state.recalls.call_back_over(from, answer, &mut state.io));
    }

    /// The session is about to end: what is lent is given back, for whoever wants it next not to wait for the
    /// end of a lease. Its home tells all other servers of the end, but it may be away. A server that does
    /// not answer is not waited for long.
    pub(crate) async fn give_all_back(&self) {
        let (lent, patience) = self.with(|state| {
            let tablets = state.delegations.tablets();
            let lent = tablets.filter_map(|tablet| Some((tablet, state.delegations.lent(tablet)?)));
            let lent: Vec<_> =
                lent.map(|(tablet, lent)| (tablet, lent.position(), lent.incarnation())).collect();
            lent.iter().for_each(|(tablet, ..)| state.lose_tablet(*tablet));
            (lent, state.io.config.finish_timeout)
        });
        let given = lent.into_iter().map(|(_, position, incarnation)| {
            let context = self.clone();
            let call = end_of(incarnation);
            Box::pin(async move { drop(context.call_within(position, call, patience).await) }) as Work<()>
        });
        self.windowed(GIVEN_BACK_AT_ONCE, given.collect()).await;
    }

    pub(super) async fn let_others_in(&self, tablet: Block, directories: Vec<NodeId>) {
        let begun = self.with(|state| {
            let incarnation = state.delegations.lent(tablet)?.incarnation();
            let mut kernel = Vec::new();
            for directory in &directories {
                if let Some(image) = state.delegations.image_mut(*directory) {
                    image.draining = true;
                    kernel.extend(image.nodes_in_kernel());
                }
            }
            state.delegations.drains += 1;
            let kept_until = state.delegations.names_kept_until(tablet, state.io.now.mono);
            Some((incarnation, kept_until, state.invalidate_and_tell(kernel)))
        });
        let Some((incarnation, kept_until, forgotten)) = begun else { return };
        forgotten.await;
        if !self.with(|state| state.io.config.planted(Mutant::AnswerBeforeSteps)) {
            self.give_back((tablet, incarnation), &directories, kept_until).await;
        }
        self.with(|state| state.delegations.drains -= 1);
    }

    /// Makes what was written to files that were made here part of them, as steps.
    async fn write_out_tablet(&self, tablet: Block) {
        let dirty = self.with(|state| {
            let is_ours =
                |node: &NodeId| state.delegations.ours.get(*node).is_some_and(|ours| ours.tablet() == tablet);
            state.files.dirty().filter(is_ours).collect::<Vec<_>>()
        });
        for node in dirty {
            if self.with(|state| state.io.config.planted(Mutant::DirtyForgotten)) {
                self.with(|state| state.files.forget(node));
            }
            self.clone().write_behind(node).await;
        }
    }
}
