//! Directories that are too large to be held whole. Entries are dropped when all is done that was decided of
//! them; a filter of all names says which may be among those. A new name is not in it: it is made without
//! asking, however many there are. A name that may be is asked for at the directory's home, which is certain
//! of it as long as nobody else is let near and nothing of it is on its way; its node is as any other.

use super::decide::{Local, Unknown};
use crate::context::{Context, State};
use crate::event::Invalidation;
use crate::operation::Listed;
use crate::state::Answered;
use crate::state::lease::Stamp;
use crate::state::lent::Place;
use bearing_proto::client::{Body, Call, EntryView, Handle, LeaseKey};
use bearing_proto::grant::Grant;
use bearing_types::{Code, Credentials, FileType, Name, NameHash, NodeId};
use std::collections::BTreeSet;

/// Entries that are dropped at once.
const DROPPED_AT_ONCE: usize = 4096;
/// How often a refused grant is fetched again for one name.
const GRANT_TRIES: u32 = 16;

impl State {
    /// Drops some of what is settled in large directories, if too much is held. Gives what the kernel
    /// may know of it; `None`: nothing more goes.
    fn thin_some(&mut self) -> Option<Vec<Invalidation>> {
        let most = self.io.config.delegated_entries_max;
        for directory in self.delegations.to_thin(most - most / 8) {
            let Some(image) = self.delegations.directory(directory) else { continue };
            let stays = |node: &NodeId, file_type| match file_type {
                FileType::Directory => self.delegations.concerns(*node),
                _ => self.files.is_in_use(*node) || self.leases.is_changing(LeaseKey::File(*node)),
            };
            let entries = image.entries.values();
            let staying = entries.map(|entry| (entry.node.node, entry.file_type));
            let staying: BTreeSet<NodeId> =
                staying.filter(|(node, file_type)| stays(node, *file_type)).map(|(node, _)| node).collect();
            let gone = self
                .delegations
                .thin(directory, DROPPED_AT_ONCE, |entry| !staying.contains(&entry.node.node));
            if gone.is_empty() {
                continue;
            }
            self.io.counters.thinned += 1;
            self.io.counters.entries_dropped += gone.len() as u64;
            let mut kernel = Vec::with_capacity(2 * gone.len());
            for entry in gone {
                let node = entry.node.node;
                self.publish(node);
                kernel.push(Invalidation::Node { node });
                kernel.push(Invalidation::Entry { directory, name: entry.name });
            }
            self.io.step("delegated directory thinned");
            return Some(kernel);
        }
        None
    }

    pub(super) fn unknown<T>(&self, directory: NodeId, name: &Name, who: &Credentials) -> Local<T> {
        match self.delegations.directory(directory) {
            Some(image) => {
                let (name, who) = (name.clone(), who.clone());
                Local::Unknown(Box::new(Unknown { directory: image.handle, name, who }))
            }
            None => Local::Outside,
        }
    }

    /// What admits to a large directory of ours at its home, and the epoch of what is known of it.
    fn thinned(&self, directory: NodeId) -> Option<(Option<Grant>, u64)> {
        let image = self.delegations.directory(directory)?;
        let thinned = image.thinned.as_ref()?;
        // One from before a chmod that was decided here would have its home go by that.
        let lives = |grant: &Grant| {
            self.io.signature_lives(grant.body.expires) && grant.body.access == image.body.access
        };
        Some((thinned.grant.clone().filter(lives), thinned.epoch))
    }

    /// A directory's home has said what a name leads to.
    fn learn(&mut self, directory: NodeId, name: &Name, answered: Option<(EntryView, Stamp)>, epoch: u64) {
        let found = answered.as_ref().map(|(view, _)| (view.node, view.file_type));
        let Some(image) = self.delegations.image_mut(directory) else { return };
        if !image.learn(name, found, epoch) {
            return;
        }
        self.io.counters.names_learnt += 1;
        let Some((view, stamp)) = answered else { return };
        match (view.attributes, view.directory) {
            (Some(node), _) => drop(self.take_node(&node, &stamp)),
            (None, Some(below)) => drop(self.take_directory(*below, &stamp)),
            (None, None) => {}
        }
        if view.file_type != FileType::Directory {
            self.cache.note_name(view.node.node, directory, name);
        }
    }

    /// What a large directory's home has listed: what was decided here of these nodes it may not know.
    pub(crate) fn overlay(&mut self, directory: NodeId, listed: &mut [Listed], epoch: u64) {
        for entry in listed {
            let image = self.delegations.directory(directory);
            let image =
                image.filter(|image| image.thinned.as_ref().is_some_and(|known| known.epoch == epoch));
            match image.map(|image| image.place(&entry.name)) {
                Some(Place::Unknown) => {}
                Some(Place::Taken(_, local)) if local.node == entry.node && entry.attributes.is_some() => {
                    entry.attributes = self.entry_found(directory, &local).map(|found| found.attributes);
                }
                _ => entry.attributes = None,
            }
        }
    }

    /// Homes are asked to change these: names of large directories that are left to them for a while.
    pub(crate) fn note_names(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            if let LeaseKey::Name(directory, hash) = key {
                self.delegations.note_name(*directory, *hash);
            }
        }
    }

    fn keep_grant(&mut self, directory: NodeId, grant: Option<Grant>) {
        let image = self.delegations.image_mut(directory);
        if let Some(thinned) = image.and_then(|image| image.thinned.as_mut()) {
            thinned.grant = grant;
        }
    }
}

impl Context {
    /// If too much is held, large directories are not held whole any more; if that is not enough, what was
    /// not used for longest is given back.
    pub(super) fn hold_fewer(&self) {
        let context = self.clone();
        self.with(|state| {
            let most = state.io.config.delegated_entries_max;
            if state.delegations.begin_holding_fewer(most) {
                state.spawn(context.drop_entries());
            }
        });
    }

    async fn drop_entries(self) {
        let thin = |state: &mut State| {
            let kernel = state.thin_some()?;
            Some(state.invalidate_and_tell(kernel))
        };
        // Recalls wait until the kernel has forgotten, so not all goes at once.
        while let Some(forgotten) = self.with(thin) {
            forgotten.await;
        }
        let beyond = |state: &mut State| state.delegations.beyond(state.io.config.delegated_entries_max);
        for (tablet, directories) in self.with(beyond) {
            self.let_others_in(tablet, directories).await;
        }
        self.with(|state| state.delegations.end_holding_fewer());
    }

    /// Asks what a name leads to that is not at hand. Then it is, if nothing came between.
    pub(super) async fn learn(&self, unknown: &Unknown) -> Result<(), Code> {
        let Unknown { directory, name, who } = unknown;
        let mut tries = GRANT_TRIES;
        // Its home goes by the directory's mode.
        self.catch_up(directory.node).await;
        loop {
            let Some((grant, epoch)) = self.thinned_grant(*directory).await? else { return Ok(()) };
            let position = grant.body.seat.position_of(NameHash::of(grant.body.name_key, name));
            let call = Call::Lookup { grant, who: who.clone(), name: name.clone() };
            let answered = match self.call(position, call).await {
                Ok(Answered { body: Body::Entry(view, _), stamp, .. }) => Some((view, stamp)),
                Ok(_) => return Err(self.with(|state| state.io.unexpected())),
                Err(Code::NotFound) => None,
                Err(Code::Unauthenticated | Code::Stale) if tries > 0 => {
                    tries -= 1;
                    self.with(|state| state.keep_grant(directory.node, None));
                    continue;
                }
                Err(code) => return Err(code),
            };
            self.with(|state| state.learn(directory.node, name, answered, epoch));
            return Ok(());
        }
    }

    /// What admits to a large directory of ours at its home, which knows all that was decided in it so far;
    /// and the epoch of what is known of it. `None`: it is not one.
    async fn thinned_grant(&self, directory: Handle) -> Result<Option<(Grant, u64)>, Code> {
        match self.with(|state| state.thinned(directory.node)) {
            None => Ok(None),
            Some((Some(grant), epoch)) => Ok(Some((grant, epoch))),
            Some((None, epoch)) => {
                let answered = self.call(directory.home, Call::Directory { directory }).await?;
                self.with(|state| match answered.body {
                    Body::Directory(view) => {
                        state.keep_grant(directory.node, Some(view.grant.clone()));
                        Ok(Some((view.grant, epoch)))
                    }
                    _ => Err(state.io.unexpected()),
                })
            }
        }
    }

    /// The same for a listing, which shows what was decided until now; with `anew` as its home says now.
    pub(crate) async fn listable(&self, directory: Handle, anew: bool) -> Result<Option<(Grant, u64)>, Code> {
        let tablet = self.with(|state| {
            let image = state.delegations.directory(directory.node)?;
            image.thinned.as_ref().map(|_| image.tablet)
        });
        let Some(tablet) = tablet else { return Ok(None) };
        if anew {
            self.with(|state| state.keep_grant(directory.node, None));
        }
        // If steps are lost, so is the directory, and its home lists what there is.
        let _ = self.flush_steps(tablet).await;
        self.thinned_grant(directory).await
    }
}
