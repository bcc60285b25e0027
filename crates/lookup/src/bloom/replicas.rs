//! Filters that a server publishes, and those of others that it holds (G-HBA section 2.4).
//!
//! An edition goes to one member of each group; that one passes it on to whom its IDBFA names. Lost editions
//! only cost queries a level: with every heart-beat a holder asks one of the servers whose replicas it holds
//! whether there is a newer one.

use crate::bloom::message::{BloomMessage, Edition, Replica};
use crate::bloom::server::{BloomServer, Standing};
use crate::machine::Command;
use crate::query::FileKey;
use bearing_types::ServerId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Editions are counted from here on with each stay: below it, 2^32 of them; above it, 2^32 layouts.
const EDITIONS_BITS: u32 = 32;

impl Edition {
    /// The edition before the first of a stay that began with this many layouts.
    pub(super) fn before_first(layouts: u64) -> Edition {
        Edition(layouts << EDITIONS_BITS)
    }
}

/// Servers that begin together hold each other's filters from the start, without a message.
pub fn exchange(servers: &mut [BloomServer]) {
    let published: BTreeMap<ServerId, Replica> =
        servers.iter().map(|server| (server.id, server.own_replica())).collect();
    for server in servers {
        let Some(shares) = server.shares.clone() else { continue };
        let held = shares.shared.held_by(server.id).filter_map(|of| published.get(&of));
        held.for_each(|replica| server.install(replica.clone()));
    }
}

impl BloomServer {
    pub(super) fn on_stored(&mut self, file: FileKey, out: &mut Vec<Command>) {
        self.own.insert(file);
        self.changed(out);
    }

    pub(super) fn on_removed(&mut self, file: FileKey, out: &mut Vec<Command>) {
        if self.own.remove(file) {
            self.changed(out);
        }
    }

    /// One key came or went: publishes if the filter is too far from the published one. A key changes at most
    /// `hashes` bits, so not every change has to compare.
    fn changed(&mut self, out: &mut Vec<Command>) {
        let bits = u32::from(self.options.filter.hashes);
        if self.slack >= bits {
            self.slack -= bits;
            return;
        }
        let distance = self.own.bits().distance(&self.published).unwrap_or(u32::MAX);
        if distance > self.options.publish_at {
            self.publish(out);
        } else {
            self.slack = self.options.publish_at - distance;
        }
    }

    /// Sends the filter as it is now to one member of every other group.
    pub(super) fn publish(&mut self, out: &mut Vec<Command>) {
        self.slack = self.options.publish_at;
        let Some(layout) = self.layout.clone().filter(|layout| layout.birth(self.id) == Some(self.birth))
        else {
            return;
        };
        self.edition.0 += 1;
        self.published = Arc::new(self.own.bits().clone());
        let mine = layout.division().group_of(self.id);
        for (group, members) in layout.division().groups() {
            if Some(group) != mine {
                let reached: Vec<_> = members.iter().filter(|member| !self.away.contains(member)).collect();
                let among = if reached.is_empty() { members.iter().collect() } else { reached };
                let contact = among[self.edition.0 as usize % among.len()];
                self.counts.published += 1;
                self.send(*contact, BloomMessage::Publish(self.own_replica()), out);
            }
        }
    }

    fn own_replica(&self) -> Replica {
        Replica { of: self.id, edition: self.edition, filter: Arc::clone(&self.published) }
    }

    pub(super) fn on_publish(&mut self, replica: Replica, out: &mut Vec<Command>) {
        for holder in self.holders.of(replica.of) {
            if holder == self.id {
                self.install_if_held(&replica);
            } else {
                self.counts.forwarded += 1;
                self.send(holder, BloomMessage::Forwarded(replica.clone()), out);
            }
        }
    }

    pub(super) fn on_forwarded(&mut self, replica: Replica) {
        if !self.install_if_held(&replica) {
            self.counts.wasted += 1;
        }
    }

    fn install_if_held(&mut self, replica: &Replica) -> bool {
        let holds = self.shares().and_then(|group| group.holder(replica.of)) == Some(self.id);
        if holds {
            self.install(replica.clone());
        }
        holds
    }

    /// From one who gave it up, or its server. It may come before the layout that lets this server in, or
    /// before the share-out that says so: then it is taken too, and the share-out drops what is not to be
    /// here.
    pub(super) fn on_handed(&mut self, replica: Replica) {
        if matches!(self.standing, Standing::Joining(_)) {
            return self.install(replica);
        }
        let Some(layout) = &self.layout else { return };
        if self.shares.as_ref().is_some_and(|shares| shares.version == layout.version()) {
            self.install_if_held(&replica);
            return;
        }
        let group = |server| layout.division().group_of(server);
        if group(replica.of).is_some() && group(replica.of) != group(self.id) {
            self.install(replica);
        }
    }

    fn install(&mut self, replica: Replica) {
        let newer = self.replicas.get(&replica.of).is_none_or(|known| known.edition < replica.edition);
        if newer && replica.filter.shape() == self.options.filter {
            self.replicas.insert(replica.of, replica);
        }
    }

    pub(super) fn on_want(&mut self, from: ServerId, edition: Edition, out: &mut Vec<Command>) {
        if self.edition > edition {
            self.counts.refetched += 1;
            self.send(from, BloomMessage::Handed(self.own_replica()), out);
        }
    }

    /// Asks for replicas that are to be here and are not, and for a newer edition of one that is.
    pub(super) fn want(&mut self, out: &mut Vec<Command>) {
        let Some(shares) = self.shares.clone() else { return };
        for of in shares.shared.held_by(self.id) {
            if !self.replicas.contains_key(&of) {
                self.send(of, BloomMessage::Want(Edition(0)), out);
            }
        }
        let after = |last: ServerId| self.replicas.range(ServerId(last.0.saturating_add(1))..).next();
        let next = self.refreshed.and_then(after).or_else(|| self.replicas.first_key_value());
        if let Some((of, replica)) = next {
            let (of, edition) = (*of, replica.edition);
            self.refreshed = Some(of);
            self.send(of, BloomMessage::Want(edition), out);
        }
    }
}
