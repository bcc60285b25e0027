//! Transactions that a tablet coordinates. Those without a decision live in memory only: if this server
//! fails, they are aborted.

use crate::words::Asking;
use bearing_types::{Epoch, LogIndex, Mono, Position, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Coordinated {
    next: u64,
    undecided: BTreeSet<u64>,
    decisions: BTreeMap<TransactionId, Decision>,
}

/// That a transaction is committed, until all participants know.
#[derive(Debug)]
struct Decision {
    waiting: BTreeSet<Position>,
    index: LogIndex,
    asked: Option<Asking>,
}

impl Coordinated {
    /// Of a tablet under an epoch that has had none.
    pub fn new() -> Coordinated {
        Coordinated { next: 1, undecided: BTreeSet::new(), decisions: BTreeMap::new() }
    }

    /// Begins one. Gives its number.
    pub fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.undecided.insert(number);
        number
    }

    pub fn is_undecided(&self, number: u64) -> bool {
        self.undecided.contains(&number)
    }

    /// One is decided or given up.
    pub fn close(&mut self, number: u64) {
        self.undecided.remove(&number);
    }

    /// One is committed by a log record, and participants have to be told.
    pub fn decide(
        &mut self,
        transaction: TransactionId,
        waiting: BTreeSet<Position>,
        index: LogIndex,
        asked: Option<Mono>,
    ) {
        self.decisions.insert(transaction, Decision { waiting, index, asked: asked.map(Asking::new) });
    }

    /// The log record that committed one, while somebody has to be told.
    pub fn decision(&self, transaction: TransactionId) -> Option<LogIndex> {
        self.decisions.get(&transaction).map(|decision| decision.index)
    }

    /// A participant knows. Returns whether that was the last.
    pub fn settled(&mut self, transaction: TransactionId, by: Position) -> bool {
        let Some(decision) = self.decisions.get_mut(&transaction) else { return false };
        decision.waiting.remove(&by);
        decision.waiting.is_empty() && self.decisions.remove(&transaction).is_some()
    }

    /// Who is to be told again now of what was committed by records up to `committed`.
    pub fn due(
        &mut self,
        now: Mono,
        (pause, pause_max): (Duration, Duration),
        committed: LogIndex,
    ) -> Vec<(TransactionId, Position)> {
        let mut due = Vec::new();
        for (transaction, decision) in self.decisions.iter_mut().filter(|(_, it)| it.index <= committed) {
            if Asking::due(decision.asked, now, pause, pause_max) {
                Asking::again(&mut decision.asked, now);
                due.extend(decision.waiting.iter().map(|position| (*transaction, *position)));
            }
        }
        due
    }

    /// The smallest number of an epoch's transactions that is not over.
    pub fn over_below(&self, epoch: Epoch) -> u64 {
        let of_epoch = self.decisions.keys().filter(|transaction| transaction.epoch == epoch);
        let decided = of_epoch.map(|transaction| transaction.number);
        decided.chain(self.undecided.iter().copied()).min().unwrap_or(self.next)
    }
}
