//! What is known of comparisons of copies (see `engine/compare.rs`).

use bearing_proto::tablets::Compared;
use bearing_types::{LogIndex, TabletSerial};
use std::collections::BTreeMap;

/// What was asked for, and what is known. No more than there are tablets.
#[derive(Debug, Default)]
pub(crate) struct Compares {
    /// The newest entry of this kind that this server logged, and whether its own digest is still to come.
    logged: BTreeMap<TabletSerial, (LogIndex, bool)>,
    /// The digest that was computed last.
    digests: BTreeMap<TabletSerial, Compared>,
    /// The entry as of which the next one is being computed.
    computing: BTreeMap<TabletSerial, LogIndex>,
}

impl Compares {
    /// An entry was logged.
    pub fn log(&mut self, serial: TabletSerial, index: LogIndex) {
        self.logged.insert(serial, (index, true));
    }

    /// Whether the digest of this server's own is to come yet for the newest entry that it logged.
    pub fn is_under_way(&self, serial: TabletSerial) -> bool {
        self.logged.get(&serial).is_some_and(|(_, to_come)| *to_come)
    }

    /// The newest entry at which an owner had a tablet compared.
    pub fn logged(&self, serial: TabletSerial) -> Option<LogIndex> {
        self.logged.get(&serial).map(|(index, _)| *index)
    }

    /// The digest of a tablet that was computed last.
    pub fn digest(&self, serial: TabletSerial) -> Option<&Compared> {
        self.digests.get(&serial)
    }

    /// A digest of a tablet as of an entry is asked for.
    pub fn begin(&mut self, serial: TabletSerial, index: LogIndex) {
        self.computing.insert(serial, index);
    }

    /// It is computed, or cannot be.
    pub fn end(&mut self, serial: TabletSerial, index: LogIndex) {
        if let Some((logged, to_come)) = self.logged.get_mut(&serial) {
            *to_come &= *logged != index;
        }
        if self.computing.get(&serial) == Some(&index) {
            self.computing.remove(&serial);
        }
    }

    /// What came of it.
    pub fn keep(&mut self, serial: TabletSerial, compared: Compared) {
        self.digests.insert(serial, compared);
    }

    /// As of which entry a digest is being computed.
    pub fn computing(&self, serial: TabletSerial) -> Option<LogIndex> {
        self.computing.get(&serial).copied()
    }

    /// This server owns a tablet no more.
    pub fn not_owned(&mut self, serial: TabletSerial) {
        self.logged.remove(&serial);
    }

    /// Nothing is here of a tablet any more.
    pub fn forget(&mut self, serial: TabletSerial) {
        self.logged.remove(&serial);
        self.digests.remove(&serial);
        self.computing.remove(&serial);
    }
}
