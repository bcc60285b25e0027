//! A snapshot that arrives, part by part, at the server that learns a tablet.
//!
//! Parts are logged, and go to the store once they are stable; until the last one is there, the store has the
//! tablet up to nothing, and nobody takes it over.

use crate::event::{AppendNumber, Command};
use crate::record::{EntryKind, LogEntry, RecordError, decode_pairs};
use bearing_proto::replication::{PartsHeld, SnapshotPart};
use bearing_seams::Change;
use bearing_types::{Epoch, LogIndex, TabletSerial};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(crate) struct Arrival {
    serial: TabletSerial,
    snapshot: Epoch,
    base: LogIndex,
    /// Parts that were logged.
    parts: u32,
    /// Those of them that are not stable.
    unstable: VecDeque<(AppendNumber, Part)>,
    whole: bool,
}

/// What a part brings.
#[derive(Debug)]
pub(crate) struct Part {
    changes: Vec<Change>,
    pub first: bool,
    last: bool,
}

impl Part {
    /// What is in a part, if it makes sense.
    pub fn decode(part: &SnapshotPart) -> Result<Part, String> {
        let entry = LogEntry::decode(&part.entry.0).map_err(|error| error.to_string())?;
        let EntryKind::Part { first, last } = entry.kind else {
            return Err(RecordError::Malformed.to_string());
        };
        let pairs =
            entry.changes.iter().filter_map(|change| Some((change.key.clone(), change.value.clone()?)));
        decode_pairs(pairs.collect())?;
        let changes = entry.changes.into_iter().map(|change| Change { key: change.key, value: change.value });
        Ok(Part { changes: changes.collect(), first, last })
    }
}

impl Arrival {
    /// Of a snapshot that begins.
    pub fn new(part: &SnapshotPart) -> Arrival {
        let (serial, snapshot, base) = (part.serial, part.snapshot, part.base);
        Arrival { serial, snapshot, base, parts: 0, unstable: VecDeque::new(), whole: false }
    }

    /// Names the snapshot.
    pub fn snapshot(&self) -> Epoch {
        self.snapshot
    }

    /// Whether all of it is stable.
    pub fn is_there(&self) -> bool {
        self.whole && self.unstable.is_empty()
    }

    /// Whether a part is the next one.
    pub fn is_next(&self, part: &SnapshotPart) -> bool {
        part.snapshot == self.snapshot && part.number == self.parts && !self.whole
    }

    /// Takes the next part, which was appended under this number.
    pub fn take(&mut self, part: Part, number: AppendNumber) {
        self.parts += 1;
        self.whole = part.last;
        self.unstable.push_back((number, part));
    }

    /// Appends up to a number are stable: what of the parts goes to the store. Whether this is news.
    pub fn on_synced(&mut self, number: AppendNumber, out: &mut Vec<Command>) -> bool {
        let mut news = false;
        while self.unstable.front().is_some_and(|(appended, _)| *appended <= number) {
            let Some((_, part)) = self.unstable.pop_front() else { break };
            let index = if part.last { self.base } else { LogIndex::ZERO };
            out.push(Command::Apply(self.serial, index, part.changes));
            news = true;
        }
        news
    }

    /// How much of it is stable.
    pub fn held(&self) -> PartsHeld {
        let parts = self.parts - self.unstable.len() as u32;
        PartsHeld { serial: self.serial, snapshot: self.snapshot, parts }
    }
}
