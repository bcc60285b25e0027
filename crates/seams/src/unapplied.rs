//! What is in a tablet log and was not handed to the store yet: how far the log may be cut.
//!
//! Records are written in batches, and the log is cut before a whole batch. A record of a tablet with several
//! copies is synced here before it is committed, so under load there always is something that the store may
//! not have yet, and waiting until there is nothing would keep the log for ever. So each tablet's batches
//! stand in a queue, each with the tablet's last record in it: the log is needed from the oldest batch in any
//! of them on.
//!
//! Invariants: what lies before [`Unapplied::cut`] was handed to the store, or counts no more; a queue rises
//! in batches and in records, so its front is its oldest and the first to go.

use crate::{LogMark, LoggedRecord};
use bearing_types::{LogIndex, TabletSerial};
use std::collections::{BTreeMap, VecDeque};

/// So many batches of a tablet are told apart; what comes then counts to the last of them, and keeps that in
/// the log for longer. Only a tablet gets so far of which nothing is committed for long.
const BATCHES_MAX: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Unapplied {
    tablets: BTreeMap<TabletSerial, VecDeque<Last>>,
    /// Those that are in any queue.
    batches: BTreeMap<BatchNumber, Batch>,
    /// What is being gathered.
    open: BatchNumber,
    /// How far the log could be cut the last time.
    cut: Option<Cut>,
}

/// How far the log may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All that is written is in the store.
    All,
    /// What lies before this.
    Before(LogMark),
}

/// Batches are numbered in the order of the log. What was found when the log was opened is batch 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BatchNumber(u64);

const FOUND: BatchNumber = BatchNumber(0);
/// Nothing lies before it.
const START: LogMark = LogMark(0);

#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Of its first record, once it is written.
    mark: Option<LogMark>,
    /// How many queues it stands in.
    tablets: usize,
}

/// The last record of a tablet in a batch.
#[derive(Clone, Copy, Debug)]
struct Last {
    batch: BatchNumber,
    index: LogIndex,
}

impl Unapplied {
    /// Of a log that was replayed into the store, but for what is not known to be committed: up to these
    /// records. Where in the log these are is not known, so nothing is cut before they are applied.
    pub fn found(records: BTreeMap<TabletSerial, LogIndex>) -> Unapplied {
        let mut unapplied = Unapplied::default();
        for (tablet, index) in records {
            unapplied.push(tablet, Last { batch: FOUND, index });
        }
        unapplied.batches.values_mut().for_each(|batch| batch.mark = Some(START));
        unapplied.open = BatchNumber(1);
        unapplied
    }

    /// A record is gathered for the next batch. `voids` says of the bytes of one that has a lower index than
    /// those before it whether what is behind it counts no more.
    ///
    /// A record without index stands beside the others of its tablet, and goes with the next of them that is
    /// applied: its writer hands it to the store as soon as it is stable, and before the log is cut.
    pub fn append(&mut self, record: &LoggedRecord, voids: impl FnOnce(&[u8]) -> bool) {
        let (tablet, index) = (record.serial, record.index);
        let last = self.last(tablet);
        if index > LogIndex::ZERO && last.is_some_and(|last| last.index > index) && voids(&record.bytes) {
            self.void(tablet, index);
        }
        // What has to wait for one that comes later, or for the same, goes with it.
        if self.last(tablet).is_none_or(|last| last.index < index) {
            self.push(tablet, Last { batch: self.open, index });
        }
    }

    /// What was gathered is being written. If it finds no space, it counts to the batch that is written next.
    pub fn begin(&mut self) {
        self.open = BatchNumber(self.open.0 + 1);
    }

    /// What was being written is in the log, from this mark on.
    pub fn written(&mut self, mark: LogMark) {
        let begun = self.batches.range_mut(..self.open).rev();
        for (_, batch) in begun.take_while(|(_, batch)| batch.mark.is_none()) {
            batch.mark = Some(mark);
        }
    }

    /// The store was handed a tablet's changes up to a record.
    pub fn applied(&mut self, tablet: TabletSerial, up_to: LogIndex) {
        let Some(queue) = self.tablets.get_mut(&tablet) else { return };
        while let Some(first) = queue.pop_front_if(|first| first.index <= up_to) {
            release(&mut self.batches, first.batch);
        }
        if queue.is_empty() {
            self.tablets.remove(&tablet);
        }
    }

    /// The store has dropped a tablet: of its records none counts any more.
    pub fn forget(&mut self, tablet: TabletSerial) {
        for last in self.tablets.remove(&tablet).into_iter().flatten() {
            release(&mut self.batches, last.batch);
        }
    }

    /// How far the log may be cut once the store has flushed what it was handed. `None` if that is no further
    /// than when this was asked the last time.
    pub fn cut(&mut self) -> Option<Cut> {
        let oldest = self.batches.first_key_value().and_then(|(_, batch)| batch.mark);
        let cut = oldest.map_or(Cut::All, Cut::Before);
        let before = self.cut.replace(cut);
        (cut == Cut::All || before != Some(cut)).then_some(cut)
    }

    fn last(&self, tablet: TabletSerial) -> Option<Last> {
        self.tablets.get(&tablet)?.back().copied()
    }

    fn push(&mut self, tablet: TabletSerial, new: Last) {
        let queue = self.tablets.entry(tablet).or_default();
        let full = queue.len() >= BATCHES_MAX;
        if let Some(last) = queue.back_mut().filter(|last| full || last.batch == new.batch) {
            last.index = new.index;
            return;
        }
        queue.push_back(new);
        self.batches.entry(new.batch).or_insert(Batch { mark: None, tablets: 0 }).tablets += 1;
    }

    /// What is behind a record counts no more once that is stable. Until it is applied the oldest batch with
    /// anything of it stays, and with it those that follow.
    fn void(&mut self, tablet: TabletSerial, index: LogIndex) {
        let Some(queue) = self.tablets.get_mut(&tablet) else { return };
        let behind = queue.partition_point(|last| last.index < index);
        for last in queue.drain(behind + 1..) {
            release(&mut self.batches, last.batch);
        }
        if let Some(last) = queue.back_mut() {
            last.index = last.index.min(index);
        }
    }
}

fn release(batches: &mut BTreeMap<BatchNumber, Batch>, number: BatchNumber) {
    if let Some(batch) = batches.get_mut(&number) {
        batch.tablets -= 1;
        if batch.tablets == 0 {
            batches.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Epoch;
    use proptest::prelude::*;

    const RING: TabletSerial = TabletSerial(1);
    const OTHER: TabletSerial = TabletSerial(2);

    fn record(tablet: TabletSerial, index: u64) -> LoggedRecord {
        let (index, commit) = (LogIndex(index), LogIndex::ZERO);
        LoggedRecord { serial: tablet, epoch: Epoch(1), index, commit, bytes: Vec::new() }
    }

    impl Unapplied {
        /// Gathers records, which void nothing.
        fn append_all(&mut self, tablet: TabletSerial, indices: impl IntoIterator<Item = u64>) {
            indices.into_iter().for_each(|index| self.append(&record(tablet, index), |_| false));
        }

        fn write(&mut self, mark: u64) {
            self.begin();
            self.written(LogMark(mark));
        }

        /// One batch of records.
        fn write_all(&mut self, mark: u64, tablet: TabletSerial, indices: impl IntoIterator<Item = u64>) {
            self.append_all(tablet, indices);
            self.write(mark);
        }
    }

    fn before(mark: u64) -> Option<Cut> {
        Some(Cut::Before(LogMark(mark)))
    }

    #[test]
    fn a_record_that_is_never_applied_keeps_its_batch_and_what_follows_and_nothing_else() {
        let mut unapplied = Unapplied::default();
        unapplied.write_all(10, RING, [1]);
        unapplied.append_all(OTHER, [1]);
        unapplied.write_all(20, RING, [2]);
        unapplied.write_all(30, RING, [3]);
        unapplied.applied(RING, LogIndex(3));
        assert_eq!(unapplied.cut(), before(20));
        unapplied.write_all(40, RING, [4]);
        unapplied.applied(RING, LogIndex(4));
        assert_eq!(unapplied.cut(), None, "no further than before");
        unapplied.forget(OTHER);
        assert_eq!(unapplied.cut(), Some(Cut::All));
    }

    #[test]
    fn what_was_found_in_the_log_has_to_be_applied_before_anything_is_cut() {
        let mut unapplied = Unapplied::found(BTreeMap::from([(RING, LogIndex(7)), (OTHER, LogIndex(3))]));
        unapplied.write_all(50, RING, [8]);
        unapplied.applied(RING, LogIndex(7));
        assert_eq!(unapplied.cut(), before(0));
        unapplied.applied(OTHER, LogIndex(3));
        assert_eq!(unapplied.cut(), before(50));
    }

    #[test]
    fn a_record_that_voids_what_is_behind_it_leaves_nothing_to_wait_for_but_itself() {
        for (voids, cut) in [(true, Cut::All), (false, Cut::Before(LogMark(10)))] {
            let mut unapplied = Unapplied::default();
            unapplied.write_all(10, RING, 1..=3);
            unapplied.write_all(20, RING, 4..=5);
            unapplied.write_all(30, RING, 6..=9);
            unapplied.applied(RING, LogIndex(2));
            // Of a newer epoch.
            unapplied.write_all(40, RING, [3]);
            unapplied.append(&record(RING, 4), |_| voids);
            assert_eq!(unapplied.cut(), before(10), "it is not stable yet");
            unapplied.write(50);
            unapplied.applied(RING, LogIndex(3));
            assert_eq!(unapplied.cut(), before(20));
            unapplied.applied(RING, LogIndex(4));
            assert_eq!(unapplied.cut(), if voids { Some(cut) } else { None });
        }
    }

    #[test]
    fn a_record_without_index_goes_with_the_next_of_its_tablet_that_is_applied() {
        let mut unapplied = Unapplied::default();
        unapplied.write_all(10, RING, [5]);
        unapplied.write_all(20, RING, [0]);
        unapplied.applied(RING, LogIndex(4));
        assert_eq!(unapplied.cut(), before(10));
        unapplied.applied(RING, LogIndex(5));
        assert_eq!(unapplied.cut(), Some(Cut::All));
        unapplied.write_all(30, RING, [0]);
        assert_eq!(unapplied.cut(), before(30));
        unapplied.applied(RING, LogIndex(5));
        assert_eq!(unapplied.cut(), Some(Cut::All));
    }

    #[test]
    fn what_found_no_space_is_written_with_what_came_meanwhile() {
        let mut unapplied = Unapplied::default();
        unapplied.append_all(RING, [1]);
        unapplied.begin();
        unapplied.append_all(OTHER, [1]);
        unapplied.begin();
        assert_eq!(unapplied.cut(), Some(Cut::All), "neither is in the log");
        unapplied.written(LogMark(10));
        assert_eq!(unapplied.cut(), before(10));
        unapplied.applied(OTHER, LogIndex(1));
        assert_eq!(unapplied.cut(), None);
    }

    #[test]
    fn a_tablet_of_which_nothing_is_applied_for_long_takes_no_more_room_than_its_limit() {
        let mut unapplied = Unapplied::default();
        let last = 2 * BATCHES_MAX as u64;
        for index in 1..=last {
            unapplied.write_all(10 * index, RING, [index]);
        }
        assert_eq!((unapplied.tablets[&RING].len(), unapplied.batches.len()), (BATCHES_MAX, BATCHES_MAX));
        unapplied.applied(RING, LogIndex(BATCHES_MAX as u64));
        assert_eq!(unapplied.cut(), before(10 * BATCHES_MAX as u64), "the last one stands for the rest");
        unapplied.applied(RING, LogIndex(last));
        assert_eq!(unapplied.cut(), Some(Cut::All));
        assert!(unapplied.batches.is_empty());
    }

    // --- the law: whatever is cut was applied, or counts no more ---

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The next record of a tablet.
        Append(u64),
        /// A record of a newer epoch, so far before the end; whether it voids what is behind it.
        AppendAnew(u64, u64, bool),
        AppendIntent(u64),
        Write,
        FindNoSpace,
        /// So many more of a tablet.
        Apply(u64, u64),
        Forget(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let tablet = || 1_u64..4;
        prop_oneof![
            6 => tablet().prop_map(Step::Append),
            2 => (tablet(), 0_u64..5, any::<bool>())
                .prop_map(|(tablet, back, voids)| Step::AppendAnew(tablet, back, voids)),
            1 => tablet().prop_map(Step::AppendIntent),
            4 => Just(Step::Write),
            1 => Just(Step::FindNoSpace),
            5 => (tablet(), 0_u64..6).prop_map(|(tablet, count)| Step::Apply(tablet, count)),
            1 => tablet().prop_map(Step::Forget),
        ]
    }

    /// A record as the oracle knows it.
    #[derive(Clone, Copy, Debug)]
    struct Kept {
        tablet: u64,
        index: u64,
        /// Of its batch; `None` while it is not written.
        mark: Option<u64>,
        /// It counts no more once this one is stable.
        voided_by: Option<u64>,
    }

    /// All records that still have to be in the log or in memory, one by one.
    #[derive(Default)]
    struct Oracle {
        kept: Vec<Kept>,
        applied: BTreeMap<u64, u64>,
        batches: u64,
    }

    impl Oracle {
        fn live(&self, tablet: u64) -> impl Iterator<Item = &Kept> {
            self.kept.iter().filter(move |kept| kept.tablet == tablet && kept.voided_by.is_none())
        }

        fn applied(&self, tablet: u64) -> u64 {
            self.applied.get(&tablet).copied().unwrap_or(0)
        }

        fn next(&self, tablet: u64) -> u64 {
            1 + self.live(tablet).map(|kept| kept.index).max().unwrap_or(0).max(self.applied(tablet))
        }

        fn append(&mut self, tablet: u64, index: u64, voids: bool) {
            for kept in self.kept.iter_mut().filter(|kept| voids && kept.tablet == tablet) {
                if kept.index > index {
                    kept.voided_by = Some(kept.voided_by.unwrap_or(index).min(index));
                }
            }
            self.kept.push(Kept { tablet, index, mark: None, voided_by: None });
        }

        fn write(&mut self) -> u64 {
            self.batches += 1;
            let mark = 10 * self.batches;
            self.kept.iter_mut().for_each(|kept| kept.mark = kept.mark.or(Some(mark)));
            mark
        }

        /// As far as everything is stable.
        fn apply(&mut self, tablet: u64, count: u64) -> u64 {
            let unstable = self.live(tablet).filter(|kept| kept.mark.is_none() && kept.index > 0);
            let stable = unstable.map(|kept| kept.index).min().unwrap_or(u64::MAX) - 1;
            let up_to = (self.applied(tablet) + count).min(stable).min(self.next(tablet) - 1);
            let up_to = up_to.max(self.applied(tablet));
            self.applied.insert(tablet, up_to);
            self.kept.retain(|kept| {
                kept.tablet != tablet
                    || kept.index > up_to && kept.voided_by.is_none_or(|voiding| voiding > up_to)
            });
            up_to
        }

        fn first(&self) -> Option<u64> {
            self.kept.iter().filter_map(|kept| kept.mark).min()
        }
    }

    proptest! {
        #[test]
        fn whatever_is_cut_was_applied_and_nothing_stays_for_good(
            steps in proptest::collection::vec(step(), 0..80),
        ) {
            let (mut unapplied, mut oracle) = (Unapplied::default(), Oracle::default());
            unapplied.begin();
            for step in steps {
                match step {
                    Step::Append(tablet) => {
                        let index = oracle.next(tablet);
                        oracle.append(tablet, index, false);
                        unapplied.append(&record(TabletSerial(tablet), index), |_| true);
                    }
                    Step::AppendAnew(tablet, back, voids) => {
                        let index = oracle.next(tablet).saturating_sub(back).max(oracle.applied(tablet) + 1);
                        oracle.append(tablet, index, voids);
                        unapplied.append(&record(TabletSerial(tablet), index), |_| voids);
                    }
                    Step::AppendIntent(tablet) => {
                        oracle.append(tablet, 0, false);
                        unapplied.append(&record(TabletSerial(tablet), 0), |_| true);
                    }
                    Step::Write => {
                        unapplied.begin();
                        unapplied.written(LogMark(oracle.write()));
                    }
                    Step::FindNoSpace => unapplied.begin(),
                    Step::Apply(tablet, count) => {
                        let index = LogIndex(oracle.apply(tablet, count));
                        unapplied.applied(TabletSerial(tablet), index);
                    }
                    Step::Forget(tablet) => {
                        oracle.kept.retain(|kept| kept.tablet != tablet);
                        unapplied.forget(TabletSerial(tablet));
                    }
                }
                unapplied.cut = None;
                match unapplied.cut() {
                    Some(Cut::Before(mark)) => {
                        prop_assert!(oracle.first().is_none_or(|first| LogMark(first) >= mark));
                    }
                    cut => prop_assert_eq!((cut, oracle.first()), (Some(Cut::All), None)),
                }
            }
            oracle.write();
            unapplied.begin();
            unapplied.written(LogMark(u64::MAX));
            for tablet in 1..4 {
                let index = LogIndex(oracle.apply(tablet, u64::MAX / 2));
                unapplied.applied(TabletSerial(tablet), index);
            }
            prop_assert_eq!(unapplied.cut(), Some(Cut::All));
        }
    }
}
