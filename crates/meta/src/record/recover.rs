//! Recovery: what is known to be committed is replayed from the log into the store, from what the store has
//! flushed; what lies behind is handed back as prepared. What does not fit together is noted by tablet, not
//! judged: it matters only where the register says that the tablet is ours.

use crate::config::Config;
use crate::mutant::Mutant;
use crate::record::entry::{EntryKind, LogEntry, LoggedChange};
use crate::record::key::{KEYS_BEFORE_SERIALS, Key};
use crate::record::records::{Record, RecordError};
use bearing_seams::{Change, DiskLabel, EngineError, KeyRange, LoggedRecord, Store, TabletLog};
use bearing_types::{DiskId, Epoch, LogIndex, TabletSerial};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Records read from the log at a time.
const READ_RECORDS: usize = 1024;
/// Bytes of changes that are gathered before the store gets them. Of a key that changed often it gets the
/// last value only, and a few large batches are much faster than one for each record: clients wait for the
/// replay.
const GATHERED_BYTES_MAX: usize = 16 << 20;

/// Why a server cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// The store or the log.
    Engine(EngineError),
    /// A log record of this tablet and index.
    Record(TabletSerial, LogIndex, RecordError),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Engine(error) => write!(f, "replay the tablet log: {error}"),
            RecoverError::Record(tablet, index, error) => {
                write!(f, "replay record {index} of tablet {tablet}: {error}")
            }
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<EngineError> for RecoverError {
    fn from(error: EngineError) -> RecoverError {
        RecoverError::Engine(error)
    }
}

/// What a server finds on its disk when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The disk id of the store.
    pub store: Option<DiskId>,
    /// The disk id of the log.
    pub log: Option<DiskId>,
    /// An id that no disk has, drawn by the shell.
    pub fresh: DiskId,
    /// What is here of each tablet.
    pub tablets: BTreeMap<TabletSerial, RecoveredTablet>,
}

/// A key with its new value, `None` if it is deleted.
pub type KeyChange = (Key, Option<Vec<u8>>);

/// What is here of a tablet, with the log replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredTablet {
    /// The last record that is known to be committed. The store has all up to it.
    pub last: LogIndex,
    /// What the records behind it change, one after the other: nobody here knows whether they are committed.
    pub prepared: Vec<Vec<KeyChange>>,
    /// Up to this record all are of the newest epoch, or committed. What is prepared behind it is of lower
    /// ones: its owner may have written others in their place.
    pub taken: LogIndex,
    /// The newest epoch of a record in the log; zero if there is none.
    pub epoch: Epoch,
    /// The newest epoch under which this server has intended to serve it.
    pub intent: Option<Epoch>,
    /// Records are missing: after this one the log goes on with that one.
    pub gap: Option<(LogIndex, LogIndex)>,
    /// The store cannot read some of what a start needs.
    pub damaged: bool,
    /// It has lost some of the rest.
    pub lacking: bool,
}

impl RecoveredTablet {
    /// An epoch that its register had, or a newer one: entries are written under registered epochs only, and
    /// what is intended is at most the next one.
    pub fn registered(&self) -> Epoch {
        self.epoch.max(Epoch(self.intent.map_or(0, |intent| intent.0.saturating_sub(1))))
    }

    /// Of a tablet of which nothing is here.
    pub fn nothing() -> RecoveredTablet {
        let (last, epoch) = (LogIndex::ZERO, Epoch(0));
        let (prepared, taken) = (Vec::new(), last);
        RecoveredTablet {
            last,
            prepared,
            taken,
            epoch,
            intent: None,
            gap: None,
            damaged: false,
            lacking: false,
        }
    }
}

impl Recovered {
    /// The last record of each tablet that is in the log and not in the store.
    pub fn unapplied(&self) -> BTreeMap<TabletSerial, LogIndex> {
        let prepared = self.tablets.iter().filter(|(_, found)| !found.prepared.is_empty());
        prepared
            .map(|(serial, found)| (*serial, LogIndex(found.last.0 + found.prepared.len() as u64)))
            .collect()
    }
}

/// Replays the log.
pub fn recover<S: Store + DiskLabel, L: TabletLog + DiskLabel>(
    store: &mut S,
    log: &mut L,
    fresh: DiskId,
    config: &Config,
) -> Result<Recovered, RecoverError> {
    let mut replay = Replay::begin(store, config)?;
    let mut from = None;
    loop {
        let records = log.read(from, READ_RECORDS)?;
        // A read from a mark gives that record again.
        let skip = usize::from(from.is_some());
        let Some((last, _)) = records.last() else { break };
        let (last, count) = (*last, records.len());
        for (_, record) in records.into_iter().skip(skip) {
            replay.take(record)?;
        }
        if replay.gathered_bytes > GATHERED_BYTES_MAX {
            replay.apply()?;
        }
        if count < READ_RECORDS {
            break;
        }
        from = Some(last);
    }
    replay.apply()?;
    let tablets = replay.finish()?;
    Ok(Recovered { store: store.disk()?, log: log.disk()?, fresh, tablets })
}

struct Replay<'a, S> {
    store: &'a mut S,
    tablets: BTreeMap<TabletSerial, RecoveredTablet>,
    /// Records that are not known to be committed, each with its epoch.
    prepared: BTreeMap<TabletSerial, BTreeMap<LogIndex, (Epoch, Vec<LoggedChange>)>>,
    /// What the store does not have yet of each tablet, up to its last record.
    gathered: BTreeMap<TabletSerial, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    gathered_bytes: usize,
    /// Tablets of which the log has the first part of a snapshot.
    begun: BTreeSet<TabletSerial>,
    config: &'a Config,
}

impl<S: Store> Replay<'_, S> {
    fn begin<'a>(store: &'a mut S, config: &'a Config) -> Result<Replay<'a, S>, RecoverError> {
        let mut tablets = BTreeMap::new();
        for tablet in store.tablets()? {
            let last = store.applied(tablet)?.unwrap_or(LogIndex::ZERO);
            let found = RecoveredTablet { last, ..RecoveredTablet::nothing() };
            let found = match Self::begin_tablet(store, tablet, last) {
                Ok(intent) => RecoveredTablet { intent, ..found },
                // Another server may have the tablet; the others are as good as before.
                Err(RecoverError::Engine(EngineError::Corrupt { .. })) => {
                    RecoveredTablet { damaged: true, ..found }
                }
                Err(error) => return Err(error),
            };
            tablets.insert(tablet, found);
        }
        let (prepared, gathered, begun) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Ok(Replay { store, tablets, prepared, gathered, gathered_bytes: 0, begun, config })
    }

    /// Gives the intent to serve a tablet.
    fn begin_tablet(
        store: &mut S,
        tablet: TabletSerial,
        last: LogIndex,
    ) -> Result<Option<Epoch>, RecoverError> {
        let stored = store.get(tablet, &Key::Intent.encode())?;
        let intent = stored.map(|bytes| Record::decode_at(&Key::Intent, &bytes)).transpose();
        let intent = intent.map_err(|error| RecoverError::Record(tablet, LogIndex::ZERO, error))?;
        renew_keys(store, tablet, last)?;
        Ok(intent.and_then(Record::into_intent))
    }

    fn take(&mut self, record: LoggedRecord) -> Result<(), RecoverError> {
        let (tablet, index) = (record.serial, record.index);
        let entry =
            LogEntry::decode(&record.bytes).map_err(|error| RecoverError::Record(tablet, index, error))?;
        if index == LogIndex::ZERO {
            return self.take_intent(tablet, &entry);
        }
        if !self.tablets.contains_key(&tablet) {
            self.store.create_tablet(tablet)?;
            self.tablets.insert(tablet, RecoveredTablet::nothing());
        }
        match entry.kind {
            EntryKind::Part { first, last } => {
                return self.take_part(tablet, &record, entry.changes, (first, last));
            }
            EntryKind::Replacement => self.reset(tablet, LogIndex(index.0 - 1))?,
            EntryKind::Changes | EntryKind::Epoch | EntryKind::Compare => {}
        }
        let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
        held.epoch = held.epoch.max(record.epoch);
        let prepared = self.prepared.entry(tablet).or_default();
        if entry.kind == EntryKind::Epoch && !self.config.planted(Mutant::VoidRuleOff) {
            prepared.retain(|other, (epoch, _)| *other <= index || *epoch >= record.epoch);
        }
        // The order of the log counts, not the indices: a replacement that was begun anew repeats indices of
        // the one that was not finished. Whatever follows such a record is in the log too, since only what is
        // oldest is cut.
        let newest = prepared.get(&index).is_none_or(|(epoch, _)| *epoch <= record.epoch);
        if index > held.last && newest {
            prepared.insert(index, (record.epoch, entry.changes));
        }
        self.commit(tablet, record.commit)
    }

    /// A part of a snapshot. Until the last one is there, the store has the tablet up to nothing.
    fn take_part(
        &mut self,
        tablet: TabletSerial,
        record: &LoggedRecord,
        changes: Vec<LoggedChange>,
        (first, last): (bool, bool),
    ) -> Result<(), RecoverError> {
        if first {
            self.reset(tablet, LogIndex::ZERO)?;
            self.begun.insert(tablet);
        }
        let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
        held.epoch = held.epoch.max(record.epoch);
        // The parts before it were cut from the log when the store had all of them, and more.
        if held.last >= record.index {
            return Ok(());
        }
        self.prepared.remove(&tablet);
        // Or what the store had was removed since.
        if !self.begun.contains(&tablet) {
            held.gap = held.gap.or(Some((held.last, record.index)));
            held.last = record.index;
            return Ok(());
        }
        if last {
            held.last = record.index;
        }
        self.gather(
            tablet,
            changes.into_iter().map(|change| Change { key: change.key, value: change.value }),
        );
        Ok(())
    }

    /// Nothing counts that was here of a tablet: what follows replaces it.
    fn reset(&mut self, tablet: TabletSerial, last: LogIndex) -> Result<(), RecoverError> {
        self.gathered.remove(&tablet);
        self.prepared.remove(&tablet);
        self.store.remove_tablet(tablet)?;
        self.store.create_tablet(tablet)?;
        let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
        (held.last, held.gap, held.damaged) = (last, None, false);
        // The intent is the disk's, not the tablet's: it outlives what is replaced. Until it is
        // applied the intent, which the log may not have any more, is nowhere.
        if let Some(intent) = held.intent {
            self.gather(tablet, [intent_change(intent)]);
            self.apply()?;
        }
        Ok(())
    }

    /// What is prepared up to a record is committed.
    fn commit(&mut self, tablet: TabletSerial, up_to: LogIndex) -> Result<(), RecoverError> {
        let Some(prepared) = self.prepared.get_mut(&tablet) else { return Ok(()) };
        let later = prepared.split_off(&up_to.next());
        for (index, (_, changes)) in std::mem::replace(prepared, later) {
            let renewed = changes
                .into_iter()
                .map(|change| Ok(Change { key: renewed(change.key, tablet, index)?, value: change.value }));
            let changes = renewed.collect::<Result<Vec<_>, RecoverError>>()?;
            let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
            if index != held.last.next() {
                held.gap = held.gap.or(Some((held.last, index)));
            }
            held.last = index;
            // Nothing from behind a gap goes to the store: a recovery after this one would not see the gap.
            if held.gap.is_none() {
                self.gather(tablet, changes);
            }
        }
        Ok(())
    }

    /// What is left is prepared.
    fn finish(mut self) -> Result<BTreeMap<TabletSerial, RecoveredTablet>, RecoverError> {
        for (tablet, held) in &mut self.tablets {
            (held.taken, held.lacking) = (held.last, self.store.lacks_some(*tablet)?);
        }
        for (tablet, prepared) in self.prepared {
            let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
            let mut last = held.last;
            for (index, (epoch, changes)) in prepared {
                if epoch == held.epoch {
                    held.taken = index;
                }
                if index != last.next() {
                    held.gap = held.gap.or(Some((last, index)));
                }
                last = index;
                let malformed = RecoverError::Record(tablet, index, RecordError::Malformed);
                let known = changes.into_iter().map(|change| {
                    let key = renewed(change.key, tablet, index)?;
                    Ok((Key::decode(&key).ok_or(malformed.clone())?, change.value))
                });
                held.prepared.push(known.collect::<Result<_, RecoverError>>()?);
            }
        }
        Ok(self.tablets)
    }

    /// Intents are beside the tablet's own records: they have no index, and the newest counts.
    fn take_intent(&mut self, tablet: TabletSerial, entry: &LogEntry) -> Result<(), RecoverError> {
        let intent = entry.intent().map_err(|error| RecoverError::Record(tablet, LogIndex::ZERO, error))?;
        if !self.tablets.contains_key(&tablet) {
            self.store.create_tablet(tablet)?;
        }
        let held = self.tablets.entry(tablet).or_insert_with(RecoveredTablet::nothing);
        if held.intent < Some(intent) {
            held.intent = Some(intent);
            self.gather(tablet, [intent_change(intent)]);
        }
        Ok(())
    }

    fn gather(&mut self, tablet: TabletSerial, changes: impl IntoIterator<Item = Change>) {
        let gathered = self.gathered.entry(tablet).or_default();
        for change in changes {
            self.gathered_bytes += change.key.len() + change.value.as_ref().map_or(0, Vec::len);
            gathered.insert(change.key, change.value);
        }
    }

    fn apply(&mut self) -> Result<(), RecoverError> {
        self.gathered_bytes = 0;
        for (tablet, gathered) in std::mem::take(&mut self.gathered) {
            let held = self.tablets.get(&tablet);
            let last = held.map_or(LogIndex::ZERO, |held| held.gap.map_or(held.last, |(before, _)| before));
            let changes = gathered.into_iter().map(|(key, value)| Change { key, value });
            self.store.apply(tablet, last, &changes.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Gives the items and inboxes of a tablet that the store has from before version 4 of records their keys of
/// now. What was not flushed of this when the server stops is done again at its next start.
fn renew_keys<S: Store>(store: &mut S, tablet: TabletSerial, applied: LogIndex) -> Result<(), RecoverError> {
    let (start, end) = KEYS_BEFORE_SERIALS;
    let range = KeyRange { start: start.to_vec(), end: Some(end.to_vec()) };
    loop {
        let pairs = store.range(tablet, &range, READ_RECORDS)?;
        if pairs.is_empty() {
            return Ok(());
        }
        let mut changes = Vec::with_capacity(2 * pairs.len());
        for (old, value) in pairs {
            changes.push(Change { key: renewed(old.clone(), tablet, applied)?, value: Some(value) });
            changes.push(Change { key: old, value: None });
        }
        store.apply(tablet, applied, &changes)?;
    }
}

/// A key as it is now.
fn renewed(key: Vec<u8>, tablet: TabletSerial, index: LogIndex) -> Result<Vec<u8>, RecoverError> {
    if !Key::is_before_serials(&key) {
        return Ok(key);
    }
    let renewed = Key::from_before_serials(&key, tablet).map(|key| key.encode());
    renewed.ok_or(RecoverError::Record(tablet, index, RecordError::Malformed))
}

/// What keeps an intent in the store.
pub(crate) fn intent_change(epoch: Epoch) -> Change {
    Change { key: Key::Intent.encode(), value: Some(Record::Intent(epoch).encode()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::peer::ItemId;
    use bearing_seams::{CrashFault, LoggedRecord, MemStore, MemTabletLog};
    use bearing_types::NodeId;

    const FRESH: DiskId = DiskId(1);
    const RING: TabletSerial = TabletSerial(1);

    fn part(index: u64, reset: bool, key: u8, value: u8) -> LoggedRecord {
        let change = LoggedChange { key: vec![key], value: Some(vec![value]) };
        let kind = if reset { EntryKind::Replacement } else { EntryKind::Changes };
        let bytes = LogEntry { kind, changes: vec![change] }.encode();
        LoggedRecord { serial: RING, epoch: Epoch(1), index: LogIndex(index), commit: LogIndex(index), bytes }
    }

    fn intent(epoch: u64) -> LoggedRecord {
        let bytes = LogEntry::of_intent(Epoch(epoch)).encode();
        LoggedRecord {
            serial: RING,
            epoch: Epoch(epoch),
            index: LogIndex::ZERO,
            commit: LogIndex::ZERO,
            bytes,
        }
    }

    fn log_of(records: &[LoggedRecord]) -> MemTabletLog {
        let mut log = MemTabletLog::default();
        log.append(records).unwrap();
        log.sync().unwrap();
        log
    }

    fn ring(store: &mut MemStore, log: &mut MemTabletLog) -> RecoveredTablet {
        recover(store, log, FRESH, &Config::standard()).unwrap().tablets[&RING].clone()
    }

    fn found_up_to(last: u64, intent: Option<u64>, epoch: u64) -> RecoveredTablet {
        let (last, intent, epoch) = (LogIndex(last), intent.map(Epoch), Epoch(epoch));
        RecoveredTablet { last, taken: last, intent, epoch, ..RecoveredTablet::nothing() }
    }

    /// A record that says how far the tablet was committed.
    fn entry(epoch: u64, index: u64, commit: u64, value: u8) -> LoggedRecord {
        let changes = vec![LoggedChange { key: Key::Node(NodeId(1)).encode(), value: Some(vec![value]) }];
        let bytes = LogEntry { kind: EntryKind::Changes, changes }.encode();
        let (epoch, index, commit) = (Epoch(epoch), LogIndex(index), LogIndex(commit));
        LoggedRecord { serial: RING, epoch, index, commit, bytes }
    }

    fn node(store: &mut MemStore) -> Option<u8> {
        store.get(RING, &Key::Node(NodeId(1)).encode()).unwrap().map(|value| value[0])
    }

    fn prepared(found: &RecoveredTablet) -> Vec<u8> {
        found.prepared.iter().map(|changes| changes[0].1.as_ref().unwrap()[0]).collect()
    }

    #[test]
    fn only_what_is_known_to_be_committed_is_applied_and_the_rest_is_handed_back() {
        let mut store = MemStore::default();
        let records = [entry(1, 1, 0, 1), entry(1, 2, 1, 2), entry(1, 3, 1, 3), entry(1, 4, 2, 4)];
        for _ in 0..2 {
            let found = ring(&mut store, &mut log_of(&records));
            assert_eq!((found.last, prepared(&found), found.gap), (LogIndex(2), vec![3, 4], None));
            assert_eq!(node(&mut store), Some(2));
        }
        let recovered = recover(&mut store, &mut log_of(&records), FRESH, &Config::standard()).unwrap();
        assert_eq!(recovered.unapplied(), BTreeMap::from([(RING, LogIndex(4))]));
    }

    #[test]
    fn a_record_replaces_one_of_a_lower_epoch_and_that_of_the_epoch_voids_those_behind_it() {
        let old =
            [entry(1, 1, 0, 1), entry(1, 2, 1, 2), entry(1, 3, 1, 3), entry(1, 4, 1, 4), entry(1, 5, 1, 5)];
        let begun = LoggedRecord { bytes: LogEntry::encode_epoch(), ..entry(3, 4, 2, 0) };
        // One of a lower epoch that comes late changes nothing.
        let new = [entry(3, 3, 2, 13), entry(2, 3, 0, 23), begun];
        for (count, left) in [(1, &[13, 4, 5][..]), (2, &[13, 4, 5]), (3, &[13])] {
            let mut log = log_of(&[&old[..], &new[..count]].concat());
            let found = ring(&mut MemStore::default(), &mut log);
            let values = found.prepared.iter().flatten().map(|(_, value)| value.as_ref().unwrap()[0]);
            let taken = LogIndex(if count < 3 { 3 } else { 4 });
            assert_eq!((found.last, found.epoch, found.taken), (LogIndex(2), Epoch(3), taken));
            assert_eq!(values.collect::<Vec<_>>(), left, "{count}");
        }
    }

    #[test]
    fn a_hand_over_that_was_begun_anew_counts_whatever_the_one_before_it_left() {
        let unfinished = [part(10, true, 1, 1), part(11, false, 2, 1), part(12, false, 3, 1)];
        let whole = [part(11, true, 1, 2), part(12, false, 2, 2), part(13, false, 4, 2)];
        let mut log = log_of(&[unfinished, whole].concat());
        let mut store = MemStore::default();
        // Once from nothing, and once more when the store has it all.
        for _ in 0..2 {
            let found = ring(&mut store, &mut log);
            assert_eq!(found, found_up_to(13, None, 1));
            let range = bearing_seams::KeyRange { start: Vec::new(), end: None };
            let pairs = store.range(RING, &range, 9).unwrap();
            assert_eq!(pairs, [(vec![1], vec![2]), (vec![2], vec![2]), (vec![4], vec![2])]);
        }
    }

    fn snapshot_part(index: u64, first: bool, last: bool, key: u8, value: u8) -> LoggedRecord {
        let changes = vec![LoggedChange { key: vec![key], value: Some(vec![value]) }];
        let bytes = LogEntry { kind: EntryKind::Part { first, last }, changes }.encode();
        LoggedRecord { bytes, ..entry(2, index, 0, 0) }
    }

    #[test]
    fn a_snapshot_counts_from_its_last_part_on_and_voids_what_was_there() {
        let old = [part(1, false, 1, 1), part(2, false, 9, 1)];
        let parts = [
            snapshot_part(7, true, false, 1, 2),
            snapshot_part(7, false, false, 2, 2),
            snapshot_part(7, false, true, 3, 2),
        ];
        let pairs = |store: &mut MemStore| {
            let range = bearing_seams::KeyRange { start: Vec::new(), end: None };
            let pairs = store.range(RING, &range, 9).unwrap();
            pairs.into_iter().map(|(key, value)| (key[0], value[0])).collect::<Vec<_>>()
        };
        for count in 1..=3 {
            let mut store = MemStore::default();
            ring(&mut store, &mut log_of(&old));
            let mut log = log_of(&[&old[..], &parts[..count]].concat());
            let last = if count == 3 { 7 } else { 0 };
            for _ in 0..2 {
                assert_eq!(ring(&mut store, &mut log), found_up_to(last, None, 2));
            }
            // The log was cut between two parts: nobody knows whether the store has kept the first ones.
            if count < 3 {
                let cut = ring(&mut store, &mut log_of(&parts[count..]));
                assert_eq!(cut.gap, Some((LogIndex::ZERO, LogIndex(7))));
            }
        }
        let mut store = MemStore::default();
        let later = [LoggedRecord { bytes: part(8, false, 1, 8).bytes, ..entry(2, 8, 8, 0) }];
        for _ in 0..2 {
            let found = ring(&mut store, &mut log_of(&[&parts[..], &later].concat()));
            assert_eq!(found, found_up_to(8, None, 2));
        }
        // The first part is cut, the store has everything.
        assert_eq!(ring(&mut store, &mut log_of(&[&parts[1..], &later].concat())), found_up_to(8, None, 2));
        assert_eq!(pairs(&mut store), [(1, 8), (2, 2), (3, 2)]);
    }

    #[test]
    fn the_newest_intent_counts_also_when_the_log_that_had_it_is_cut() {
        let records = [intent(2), part(1, false, 1, 1), intent(4), part(2, false, 1, 2), intent(3)];
        let (mut store, mut log) = (MemStore::default(), log_of(&records));
        assert_eq!(ring(&mut store, &mut log), found_up_to(2, Some(4), 1));
        assert_eq!(ring(&mut store, &mut MemTabletLog::default()), found_up_to(2, Some(4), 0));
    }

    #[test]
    fn an_intent_outlives_the_hand_over_that_replaces_the_tablet_before_it() {
        let records = [part(1, true, 1, 1), intent(4)];
        let (mut store, mut log) = (MemStore::default(), log_of(&records));
        // The second time the hand-over is replayed into a store that has the intent already.
        for _ in 0..2 {
            assert_eq!(ring(&mut store, &mut log), found_up_to(1, Some(4), 1));
        }
        assert_eq!(ring(&mut store, &mut MemTabletLog::default()), found_up_to(1, Some(4), 0));
    }

    /// A store and a log as programs left them that knew items and inboxes by where tablets start.
    #[test]
    fn items_and_inboxes_from_before_serials_get_their_keys_of_now_however_often_it_is_cut_short() {
        let tablet = TabletSerial(0b11);
        let old_item = |index: u8| [14, 0, 0, 0, 0, 0, 0, 0, index, 0].to_vec();
        let old_inbox = vec![15, 0x80, 0, 0, 0, 0, 0, 0, 0];
        let item = |index| {
            Key::Outbox(ItemId { tablet: TabletSerial(0b11), index: LogIndex(index), place: 0 }).encode()
        };
        let inbox = Key::Inbox(TabletSerial(0b11)).encode();
        let put = |key: Vec<u8>, value: u8| Change { key, value: Some(vec![value]) };
        let logged = |index: u64, key: Vec<u8>, value: Option<u8>| {
            let change = LoggedChange { key, value: value.map(|value| vec![value]) };
            let bytes = LogEntry { kind: EntryKind::Changes, changes: vec![change] }.encode();
            let index = LogIndex(index);
            LoggedRecord { serial: tablet, epoch: Epoch(1), index, commit: index, bytes }
        };
        let all = KeyRange { start: Vec::new(), end: None };
        for seed in 0..20 {
            let mut store = MemStore::default();
            store.create_tablet(tablet).unwrap();
            let many = (1..=3).map(|index| put(old_item(index), index)).chain([put(old_inbox.clone(), 9)]);
            store.apply(tablet, LogIndex(3), &many.collect::<Vec<_>>()).unwrap();
            store.flush().unwrap();
            let mut log = log_of(&[
                logged(3, old_item(3), Some(3)),
                logged(4, old_item(4), Some(4)),
                logged(5, old_item(1), None),
                logged(6, old_inbox.clone(), Some(10)),
            ]);
            let before =
                [(item(2), vec![2]), (item(3), vec![3]), (item(4), vec![4]), (inbox.clone(), vec![10])];
            recover(&mut store, &mut log, FRESH, &Config::standard()).unwrap();
            assert_eq!(store.range(tablet, &all, 9).unwrap(), before);
            // What comes next has the keys of now.
            log.append(&[logged(7, item(2), None)]).unwrap();
            log.sync().unwrap();
            store.crash(&mut CrashFault::new(seed));
            for _ in 0..2 {
                recover(&mut store, &mut log, FRESH, &Config::standard()).unwrap();
                assert_eq!(store.range(tablet, &all, 9).unwrap(), before[1..]);
            }
        }
    }

    #[test]
    fn a_key_from_before_serials_that_makes_no_sense_is_named() {
        let bytes = LogEntry {
            kind: EntryKind::Changes,
            changes: vec![LoggedChange { key: vec![14, 1], value: None }],
        };
        let record = LoggedRecord { bytes: bytes.encode(), ..part(4, false, 1, 1) };
        let found = recover(&mut MemStore::default(), &mut log_of(&[record]), FRESH, &Config::standard());
        assert_eq!(found, Err(RecoverError::Record(RING, LogIndex(4), RecordError::Malformed)));
    }

    #[test]
    fn a_store_that_is_older_than_what_the_log_still_holds_is_noticed_and_a_hand_over_mends_it() {
        let mut store = MemStore::default();
        ring(&mut store, &mut log_of(&[part(1, false, 1, 1), part(2, false, 1, 2)]));
        let later = [part(7, false, 1, 7), part(8, false, 1, 8)];
        let gap = |store: &mut MemStore, records: &[LoggedRecord]| ring(store, &mut log_of(records)).gap;
        assert_eq!(gap(&mut MemStore::default(), &later), Some((LogIndex::ZERO, LogIndex(7))));
        let mut again = store.clone();
        for recovery in 1..=3 {
            assert_eq!(gap(&mut again, &later), Some((LogIndex(2), LogIndex(7))), "recovery {recovery}");
        }
        let mended = [later.to_vec(), vec![part(8, true, 1, 9), part(9, false, 1, 9)]].concat();
        assert_eq!(gap(&mut store, &mended), None);
    }
}
