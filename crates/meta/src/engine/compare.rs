//! Whether the copies of a tablet are the same. The owner logs an entry without changes; whoever applies it
//! has its store say what it has as of exactly that entry, while everything goes on. An operator asks all of
//! them and compares.

use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::tablet::Phase;
use bearing_proto::coordinator::COMPARED_MAX;
use bearing_proto::tablets::{Compared, Digest};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::{LogIndex, Now, TabletSerial};

impl MetaServer {
    /// Logs what has these tablets compared, where that is not under way. Each digest reads a whole tablet,
    /// so only a few are asked for at a time.
    pub(crate) fn begin_compare(&mut self, serials: &[TabletSerial], out: &mut Vec<Command>) {
        for serial in serials.iter().take(COMPARED_MAX) {
            let Some(tablet) = self.starts.get(serial).and_then(|start| self.tablets.get_mut(start)) else {
                continue;
            };
            if self.compares.is_under_way(*serial) || !matches!(tablet.phase, Phase::Serving) {
                continue;
            }
            let index = tablet.log.append_compare(self.appends.next(), out);
            self.compares.log(*serial, index);
            out.push(Command::Note(Note::Step("copies are compared")));
        }
    }

    /// The store has said what it has of a tablet as of an entry.
    pub(crate) fn on_digest(
        &mut self,
        now: Now,
        serial: TabletSerial,
        index: LogIndex,
        result: EngineResult<Digest>,
        out: &mut Vec<Command>,
    ) {
        self.compares.end(serial, index);
        if !self.starts.contains_key(&serial) && !self.copies.contains_key(&serial) {
            return;
        }
        match &result {
            Ok(_) => {}
            Err(EngineError::Corrupt { what }) => self.on_damaged_tablet(now, serial, what, out),
            Err(error) => {
                out.push(Command::Note(Note::Damaged(format!("tablet {serial}, read as a whole: {error}"))));
            }
        }
        let digest = result.map_err(|error| error.to_string());
        self.compares.keep(serial, Compared { index, digest });
    }
}
