//! Whether the copies of a tablet are the same. The owner logs an entry without changes; whoever applies it
//! has its store say what it has as of exactly that entry, while everything goes on. An operator asks all of
//! them and compares.

use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::tablet::Phase;
use bearing_proto::coordinator::COMPARED_MAX;
use bearing_proto::tablets::{Compared, Digest};
use bearing_seams::EngineResult;
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

impl MetaServer {
    /// Logs what has these tablets compared, where that is not under way. Each digest reads a whole tablet, so
    /// only a few are asked for at a time.
    pub(crate) fn begin_compare(&mut self, serials: &[TabletSerial], out: &mut Vec<Command>) {
        for serial in serials.iter().take(COMPARED_MAX) {
            let Some(tablet) = self.starts.get(serial).and_then(|start| self.tablets.get_mut(start)) else {
                continue;
            };
            let under_way = self.compares.logged.get(serial).is_some_and(|(_, to_come)| *to_come);
            if under_way || !matches!(tablet.phase, Phase::Serving) {
                continue;
            }
            let index = tablet.log.append_compare(self.appends.next(), out);
            self.compares.logged.insert(*serial, (index, true));
            out.push(Command::Note(Note::Step("copies are compared")));
        }
    }

    /// The store has said what it has of a tablet as of an entry.
    pub(crate) fn on_digest(
        &mut self,
        serial: TabletSerial,
        index: LogIndex,
        result: EngineResult<Digest>,
        out: &mut Vec<Command>,
    ) {
        if let Some((logged, to_come)) = self.compares.logged.get_mut(&serial) {
            *to_come &= *logged != index;
        }
        if self.compares.computing.get(&serial) == Some(&index) {
            self.compares.computing.remove(&serial);
        }
        if !self.starts.contains_key(&serial) && !self.copies.contains_key(&serial) {
            return;
        }
        if let Err(error) = &result {
            out.push(Command::Note(Note::Damaged(format!("tablet {serial}, read as a whole: {error}"))));
        }
        let digest = result.map_err(|error| error.to_string());
        self.compares.digests.insert(serial, Compared { index, digest });
    }
}
