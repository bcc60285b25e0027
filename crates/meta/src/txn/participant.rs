//! A tablet as a participant of transactions that others coordinate.

use crate::record::PrepareRecord;
use crate::words::Asking;
use bearing_proto::peer::Promise;
use bearing_types::{Epoch, LogIndex, Mono, Position, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Participant {
    prepared: BTreeMap<(TransactionId, u8), Prepared>,
    over: BTreeMap<(Position, Epoch), Over>,
}

#[derive(Debug)]
struct Prepared {
    record: PrepareRecord,
    index: LogIndex,
    asked: Option<Asking>,
}

/// Numbers of one coordinator epoch that are over.
#[derive(Debug, Default)]
struct Over {
    below: u64,
    numbers: BTreeSet<u64>,
}

impl Participant {
    /// Whether a transaction is over as far as is remembered here.
    pub fn is_over(&self, transaction: TransactionId) -> bool {
        let marks = self.over.get(&(transaction.coordinator, transaction.epoch));
        marks.is_some_and(|marks| {
            transaction.number < marks.below || marks.numbers.contains(&transaction.number)
        })
    }

    /// A transaction is over.
    pub fn set_over(&mut self, transaction: TransactionId) {
        self.marks(transaction).numbers.insert(transaction.number);
    }

    /// All transactions of the same coordinator's epoch below a number are over.
    pub fn set_over_below(&mut self, transaction: TransactionId, below: u64) {
        let marks = self.marks(transaction);
        marks.below = marks.below.max(below);
        marks.numbers.retain(|number| *number >= marks.below);
    }

    fn marks(&mut self, transaction: TransactionId) -> &mut Over {
        self.over.entry((transaction.coordinator, transaction.epoch)).or_default()
    }

    /// What was voted for a part that is prepared, and the log record behind it.
    pub fn vote(&self, transaction: TransactionId, part: u8) -> Option<(LogIndex, Promise)> {
        let prepared = self.prepared.get(&(transaction, part))?;
        Some((prepared.index, prepared.record.promise.clone()))
    }

    /// A part is prepared by a log record. The coordinator is asked for its decision some time after `asked`;
    /// without, at once.
    pub fn prepare(
        &mut self,
        (transaction, part): (TransactionId, u8),
        record: PrepareRecord,
        index: LogIndex,
        asked: Option<Mono>,
    ) {
        let asked = asked.map(Asking::new);
        self.prepared.insert((transaction, part), Prepared { record, index, asked });
    }

    /// A transaction is decided: gives the parts that were prepared, with their numbers.
    pub fn decided(&mut self, transaction: TransactionId) -> Vec<(u8, PrepareRecord)> {
        self.set_over(transaction);
        let parts: Vec<_> =
            self.prepared.range((transaction, 0)..=(transaction, u8::MAX)).map(|(key, _)| *key).collect();
        let take = |key| self.prepared.remove(&key).map(|prepared| (key.1, prepared.record));
        parts.into_iter().filter_map(take).collect()
    }

    /// Transactions whose coordinators are to be asked now whether they are decided.
    pub fn in_doubt(
        &mut self,
        now: Mono,
        (pause, pause_max): (Duration, Duration),
    ) -> BTreeSet<TransactionId> {
        let mut in_doubt = BTreeSet::new();
        for ((transaction, _), prepared) in &mut self.prepared {
            if Asking::due(prepared.asked, now, pause, pause_max) {
                Asking::again(&mut prepared.asked, now);
                in_doubt.insert(*transaction);
            }
        }
        in_doubt
    }
}
