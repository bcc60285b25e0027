//! How large what the server keeps may get: each queue and table that others can make grow, with its limit.
//! The simulator holds every one of them to it.

use crate::engine::early_state::EARLY_MAX;
use crate::engine::jobs::Party;
use crate::engine::machine::MetaServer;
use crate::tablet::{PEERS_MAX, Tablet};

/// Something that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What.
    pub name: &'static str,
    /// How many there are.
    pub count: usize,
    /// How many there may be.
    pub count_max: usize,
}

impl MetaServer {
    /// What is bounded, as it is now.
    pub fn bounds(&self) -> Vec<Bound> {
        let bound = |name, count, count_max| Bound { name, count, count_max };
        let tablets = self.tablets.values();
        let of_tablets = |count: fn(&Tablet) -> usize| tablets.clone().map(count).max().unwrap_or(0);
        // One for the registers, and one for each tablet.
        let asks_max = 1 + self.startup.registers.len().max(1);
        vec![
            bound(
                "jobs that others asked for",
                self.jobs.asked_for(),
                self.config.jobs_max + self.jobs.parties(),
            ),
            bound("jobs about silent sessions", self.jobs.share(Party::Silence), self.config.sweeps_max),
            bound("jobs waiting for locks", of_tablets(|tablet| tablet.keys.waiting()), self.jobs.len()),
            bound(
                "replies held for the log",
                of_tablets(|tablet| tablet.exit.parked()),
                self.config.replies_kept_max,
            ),
            bound("messages held for the log", of_tablets(|tablet| tablet.exit.peers()), PEERS_MAX),
            bound(
                "replies kept for a session",
                of_tablets(|tablet| tablet.sessions.replies_max()),
                self.config.replies_kept_max,
            ),
            bound(
                "bytes of replies kept",
                of_tablets(|tablet| tablet.sessions.replies_bytes()),
                self.config.replies_bytes_max * 2,
            ),
            bound("questions to the coordinator", self.startup.open(), asks_max),
            bound("questions to data servers", self.data_requests.len(), self.config.jobs_max * 8),
            bound("early requests", self.early.len(), EARLY_MAX),
            bound("jobs ready to run", self.ready.len(), 0),
        ]
    }
}
