//! Which tablets came from other servers, and how long nobody served them: for people.

use bearing_proto::tablets::TakenOver;
use bearing_types::{Mono, Now, ServerId, TabletSerial};
use std::collections::BTreeMap;

/// See the module. No more than there are tablets.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    /// Claimed, of whom and when.
    begun: BTreeMap<TabletSerial, (ServerId, Mono)>,
    /// Those that this server serves.
    last: BTreeMap<TabletSerial, TakenOver>,
}

impl Takeovers {
    /// A tablet of another server's is claimed.
    pub fn begin(&mut self, serial: TabletSerial, from: ServerId, now: Mono) {
        self.begun.insert(serial, (from, now));
    }

    /// A tablet is served. How long it was not, if it was another server's.
    pub fn served(&mut self, serial: TabletSerial, now: Now) -> Option<u64> {
        let (from, since) = self.begun.remove(&serial)?;
        let after_us = now.mono.since(since).as_micros() as u64;
        self.last.insert(serial, TakenOver { from, at: now.wall, after_us });
        Some(after_us)
    }

    /// A tablet is another's.
    pub fn left(&mut self, serial: TabletSerial) {
        self.begun.remove(&serial);
        self.last.remove(&serial);
    }

    /// How a tablet that is served came here.
    pub fn of(&self, serial: TabletSerial) -> Option<TakenOver> {
        self.last.get(&serial).copied()
    }
}
