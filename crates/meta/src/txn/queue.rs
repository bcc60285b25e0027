//! Items that a tablet has queued for others, and what it has executed of theirs.

use crate::record::{InboxRecord, OutboxRecord};
use crate::words::Asking;
use bearing_proto::peer::{Deferred, ItemId};
use bearing_types::{LogIndex, Mono, Position, Sequence, SessionId, TabletSerial};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Items whose senders are asked for them again.
const PUT_OFF_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    outbox: BTreeMap<ItemId, Queued>,
    inbox: BTreeMap<TabletSerial, InboxRecord>,
    /// With where its sender is reached.
    put_off: BTreeSet<(Position, ItemId)>,
}

#[derive(Debug)]
struct Queued {
    record: OutboxRecord,
    asked: Option<Asking>,
    committed: bool,
}

/// An item as it is sent.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub to: Position,
    pub work: Deferred,
    /// All items of its tablet with smaller ids have arrived.
    pub done_below: ItemId,
}

impl Queue {
    // --- what goes out ---

    /// Queues an item. It leaves when its log record is committed.
    pub fn push(&mut self, item: ItemId, record: OutboxRecord) {
        self.outbox.insert(item, Queued { record, asked: None, committed: false });
    }

    /// An item that was queued before this server had the tablet.
    pub fn restore(&mut self, item: ItemId, record: OutboxRecord) {
        self.outbox.insert(item, Queued { record, asked: None, committed: true });
    }

    /// Items whose replies wait for them.
    pub fn awaited(&self) -> impl Iterator<Item = (ItemId, (SessionId, Sequence))> + '_ {
        self.outbox.iter().filter_map(|(item, queued)| Some((*item, queued.record.waiter?)))
    }

    /// Items that are committed since this was asked last.
    pub fn newly_committed(&mut self, committed: LogIndex) -> Vec<ItemId> {
        let mut fresh = Vec::new();
        for (item, queued) in self.outbox.iter_mut().filter(|(item, _)| item.index <= committed) {
            if !std::mem::replace(&mut queued.committed, true) {
                fresh.push(*item);
            }
        }
        fresh
    }

    /// Items to be sent again now, so many at most: first those that were not sent for longest, so that any
    /// number that nobody takes holds up no other.
    pub fn due(&self, now: Mono, (pause, pause_max): (Duration, Duration), count_max: usize) -> Vec<ItemId> {
        let due = |queued: &Queued| queued.committed && Asking::due(queued.asked, now, pause, pause_max);
        let due = self.outbox.iter().filter(|(_, queued)| due(queued));
        let mut due: Vec<_> =
            due.map(|(item, queued)| (queued.asked.map(|asked| asked.last), *item)).collect();
        if due.len() > count_max {
            due.select_nth_unstable(count_max);
            due.truncate(count_max);
        }
        due.sort_unstable();
        due.into_iter().map(|(_, item)| item).collect()
    }

    /// An item is sent, if it is committed and not delivered.
    pub fn send(&mut self, item: ItemId, now: Mono) -> Option<Delivery> {
        let first = ItemId { tablet: item.tablet, index: LogIndex::ZERO, place: 0 };
        let done_below = *self.outbox.range(first..).next()?.0;
        let queued = self.outbox.get_mut(&item).filter(|queued| queued.committed)?;
        Asking::again(&mut queued.asked, now);
        Some(Delivery { to: queued.record.to, work: queued.record.work.clone(), done_below })
    }

    /// An item has arrived. Gives what was queued, the first time.
    pub fn delivered(&mut self, item: ItemId) -> Option<OutboxRecord> {
        self.outbox.remove(&item).map(|queued| queued.record)
    }

    // --- what comes in ---

    /// Whether an item of another tablet was executed here.
    pub fn executed(&self, item: ItemId) -> bool {
        self.inbox.get(&item.tablet).is_some_and(|inbox| inbox.executed(item))
    }

    /// An item is executed. Gives the record that says so.
    pub fn execute(&mut self, item: ItemId, done_below: ItemId) -> InboxRecord {
        let inbox = self.inbox.entry(item.tablet).or_default();
        inbox.note(item, done_below);
        inbox.clone()
    }

    /// What was executed before this server had the tablet.
    pub fn restore_executed(&mut self, sender: TabletSerial, record: InboxRecord) {
        self.inbox.insert(sender, record);
    }

    /// An item came while leases were in its way: its sender is asked for it again when a recall is answered.
    /// A hint, no more.
    pub fn put_off(&mut self, from: Position, item: ItemId) {
        if self.put_off.len() < PUT_OFF_MAX {
            self.put_off.insert((from, item));
        }
    }

    pub fn take_put_off(&mut self) -> BTreeSet<(Position, ItemId)> {
        std::mem::take(&mut self.put_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::Handle;
    use bearing_types::{NodeId, Wall};

    #[test]
    fn items_that_nobody_takes_hold_up_no_other() {
        let mut queue = Queue::default();
        let item = |index| ItemId { tablet: TabletSerial(16), index: LogIndex(index), place: 0 };
        let node = Handle { node: NodeId(2), home: Position(0) };
        let record = OutboxRecord {
            to: Position(0),
            work: Deferred::Touch { node, changed: Wall(0) },
            waiter: None,
            locks: Vec::new(),
            position: None,
        };
        (1..=1000).for_each(|index| queue.restore(item(index), record.clone()));
        let pauses = (Duration::from_millis(50), Duration::from_millis(50));
        let mut sent = BTreeSet::new();
        for turn in 0..4 {
            let now = Mono(turn * 50_000_000);
            for item in queue.due(now, pauses, 256) {
                queue.send(item, now).unwrap();
                sent.insert(item);
            }
        }
        assert_eq!(sent.len(), 1000);
    }
}
