//! How many there are of what a server holds, for whoever watches it.

use crate::engine::machine::MetaServer;
use crate::tablet::Phase;
use bearing_types::{Block, Epoch, Mono, ServerId};
use std::collections::BTreeMap;

/// What a server holds now. Counts of what it did are in [`crate::Counters`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The tablets that it serves, along the ring.
    pub served: Vec<TabletCensus>,
    /// Tablets that are its own and not served yet.
    pub adopted: usize,
    /// Of those that it serves, those that are about to be another server's.
    pub leaving: usize,
    /// Tablets that it holds for others.
    pub copies: usize,
    /// Tablets of its own that have fewer members than they should.
    pub lacking: usize,
    /// Tablets of its own that another server is learning.
    pub learning: usize,
    /// What other members lack of the tablets that it serves.
    pub members: BTreeMap<ServerId, MemberCensus>,
    /// Sessions whose home is here.
    pub sessions: usize,
    /// What clients have leased: names, nodes, listings.
    pub leases: usize,
    /// Recalls that were not answered yet.
    pub recalls: usize,
    /// Directories that are delegated to clients.
    pub delegations: usize,
    /// Operations under way.
    pub jobs: usize,
    /// Replies that wait for a record to be committed.
    pub parked: usize,
}

/// A tablet that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabletCensus {
    /// Where it lies.
    pub block: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// Requests of clients that it took since it is served here.
    pub requests: u64,
}

/// What one other server lacks of the tablets that this one serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCensus {
    /// Tablets of which it is a member.
    pub tablets: usize,
    /// Of these, those that it leaves to this server now.
    pub relies: usize,
    /// Entries that it has not said to have synced.
    pub lag: u64,
    /// About as many bytes.
    pub lag_bytes: u64,
}

impl MetaServer {
    /// Counts what is here. It walks all tablets, but nothing inside them.
    pub fn census(&self, now: Mono) -> Census {
        let mut census = Census {
            adopted: self.adoptions.len(),
            copies: self.copies.len(),
            lacking: self.lacking().count(),
            jobs: self.jobs.len(),
            ..Census::default()
        };
        for tablet in self.tablets.values() {
            let (block, epoch, requests) = (tablet.block, tablet.epoch(), tablet.requests);
            census.served.push(TabletCensus { block, epoch, requests });
            census.leaving += usize::from(matches!(tablet.phase, Phase::Leaving(_)));
            census.learning += usize::from(tablet.log.learner.is_some());
            census.sessions += tablet.sessions.registered().count();
            census.leases += tablet.leases.len();
            census.recalls += tablet.leases.recalls();
            census.delegations += tablet.delegations.counts().map(|(_, count)| count).sum::<usize>();
            census.parked += tablet.exit.parked();
            for (server, synced, relies) in tablet.log.members.told_of(&self.pairs, now, &self.config) {
                let member = census.members.entry(server).or_default();
                let (lag, lag_bytes) = tablet.log.behind(synced);
                member.tablets += 1;
                member.relies += usize::from(relies);
                member.lag += lag;
                member.lag_bytes += lag_bytes;
            }
        }
        census
    }
}
