//! Which sealed chunks are where their records say: asked of every data server once after each of its starts,
//! because its disk may have been emptied, or be an older one, since it said that it holds them.
//!
//! The questions go with the round over the chunk records, one for each page and server. A server that does
//! not answer one of them is asked again in the next round.

use super::Health;
use bearing_types::ServerId;
use std::collections::BTreeMap;

/// How far one tablet is with it. Servers are known by the number of their life.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    done: BTreeMap<ServerId, u64>,
    asking: BTreeMap<ServerId, u64>,
}

impl Inventory {
    /// A round over all records begins.
    pub fn begin(&mut self, health: &Health) {
        self.done.retain(|server, _| health.life(*server).is_some());
        let lives = health.lives().filter(|(server, life)| self.done.get(server) != Some(life));
        self.asking = lives.collect();
    }

    /// The servers that are asked in this round.
    pub fn asked(&self) -> Vec<ServerId> {
        self.asking.keys().copied().collect()
    }

    /// A server did not answer.
    pub fn is_silent(&mut self, server: ServerId) {
        self.asking.remove(&server);
    }

    /// The round is over.
    pub fn end(&mut self, health: &Health) {
        let same = |(server, life): &(ServerId, u64)| health.life(*server) == Some(*life);
        self.done.extend(std::mem::take(&mut self.asking).into_iter().filter(same));
    }
}
