//! What a tablet knows of quotas, and what a log entry changes of what is used.

use crate::config::Config;
use crate::memory::cache::Cache;
use crate::record::{Key, Record, UsageRecord};
use bearing_proto::client::Handle;
use bearing_types::{Amount, Mono, NodeId};
use std::collections::BTreeMap;

/// By how much a log entry changes what is used of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    space: i64,
    entries: i64,
}

/// What one quota is to a tablet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    used: UsageRecord,
    /// What may be used, and until when.
    allowed: Option<(Amount, Mono)>,
    /// What its home was last told, and when.
    told: Option<(Amount, Mono)>,
}

/// What a tablet knows of quotas.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    by_directory: BTreeMap<NodeId, Local>,
}

impl Quotas {
    /// So much is used, as a record says.
    pub fn note(&mut self, directory: NodeId, used: Option<UsageRecord>) {
        match used {
            Some(used) => {
                let new = Local { used, allowed: None, told: None };
                self.by_directory.entry(directory).or_insert(new).used = used;
            }
            None => drop(self.by_directory.remove(&directory)),
        }
    }

    pub fn used(&self, directory: NodeId) -> Amount {
        self.by_directory.get(&directory).map_or(Amount::ZERO, |local| local.used.used)
    }

    pub fn allowed(&self, directory: NodeId, now: Mono) -> Option<Amount> {
        let (amount, until) = self.by_directory.get(&directory)?.allowed?;
        (now < until).then_some(amount)
    }

    /// The home has said what may be used.
    pub fn allow(&mut self, quota: Handle, amount: Amount, until: Mono) {
        let none = UsageRecord { quota, used: Amount::ZERO };
        let new = Local { used: none, allowed: None, told: None };
        self.by_directory.entry(quota.node).or_insert(new).allowed = Some((amount, until));
    }

    /// Quotas whose homes do not know what is used, or lend more than is wanted.
    pub fn due_reports(&mut self, now: Mono, config: &Config) -> Vec<Handle> {
        let mut due = Vec::new();
        for local in self.by_directory.values_mut() {
            let lent = local.allowed.filter(|(_, until)| now < *until).is_some();
            let news = local.allowed.is_some() || local.told.is_none_or(|(told, _)| told != local.used.used);
            let rested = local.told.is_none_or(|(_, at)| now.since(at) >= config.quota_report_interval);
            if !lent && news && rested {
                local.allowed = None;
                local.told = Some((local.used.used, now));
                due.push(local.used.quota);
            }
        }
        due
    }

    /// Telling did not come to an end.
    pub fn forget_told(&mut self, directory: NodeId) {
        if let Some(local) = self.by_directory.get_mut(&directory) {
            local.told = local.told.map(|(_, at)| (Amount::UNLIMITED, at));
        }
    }
}

/// What a batch changes of what is used, as records to go with it.
pub(crate) fn usage_records(
    quotas: &Quotas,
    cache: &mut Cache,
    batch: &BTreeMap<Key, Option<Record>>,
) -> Vec<(Key, Option<Record>)> {
    records_of(quotas, deltas(cache, batch))
}

/// The same of changes that were prepared: what they change was noted then.
pub(crate) fn prepared_records(quotas: &Quotas, noted: &[(Handle, i64, i64)]) -> Vec<(Key, Option<Record>)> {
    let mut deltas = Deltas::new();
    for (quota, space, entries) in noted {
        let (_, delta) = deltas.entry(quota.node).or_insert((*quota, Delta::default()));
        delta.space += space;
        delta.entries += entries;
    }
    records_of(quotas, deltas)
}

/// What is to be noted of changes that wait for a decision.
pub(crate) fn noted(cache: &mut Cache, batch: &BTreeMap<Key, Option<Record>>) -> Vec<(Handle, i64, i64)> {
    let deltas = deltas(cache, batch).into_values();
    deltas.map(|(quota, delta)| (quota, delta.space, delta.entries)).collect()
}

pub(crate) type Deltas = BTreeMap<NodeId, (Handle, Delta)>;

pub(crate) fn records_of(quotas: &Quotas, deltas: Deltas) -> Vec<(Key, Option<Record>)> {
    let changed = deltas.into_values().filter(|(_, delta)| *delta != Delta::default());
    let record = |(quota, delta): (Handle, Delta)| {
        let before = quotas.used(quota.node);
        let used = Amount {
            space: before.space.saturating_add_signed(delta.space),
            entries: before.entries.saturating_add_signed(delta.entries),
        };
        (Key::Usage(quota.node), Some(Record::Usage(UsageRecord { quota, used })))
    };
    changed.map(record).collect()
}

pub(crate) fn deltas(cache: &mut Cache, batch: &BTreeMap<Key, Option<Record>>) -> Deltas {
    let mut deltas = Deltas::new();
    for (key, after) in batch.iter().filter(|(key, _)| matches!(key, Key::Node(_) | Key::Fragment(_))) {
        if let Some(after) = after {
            // What is counted once stays counted: most records are not.
            let Some((quota, amount)) = counted(after) else { continue };
            add(&mut deltas, quota, amount, 1);
        }
        // Whoever changes a record has read it: it is at hand.
        let before = cache.get(key).and_then(|slot| slot.record);
        if let Some((quota, amount)) = before.as_ref().and_then(counted) {
            add(&mut deltas, quota, amount, -1);
        }
    }
    deltas
}

pub(crate) fn add(deltas: &mut Deltas, quota: Handle, amount: Amount, sign: i64) {
    let (_, delta) = deltas.entry(quota.node).or_insert((quota, Delta::default()));
    delta.space += sign * amount.space as i64;
    delta.entries += sign * amount.entries as i64;
}

/// What a record counts, and for which quota.
pub(crate) fn counted(record: &Record) -> Option<(Handle, Amount)> {
    match record {
        Record::Node(node) => {
            let space = if node.attributes.is_directory() { 0 } else { node.attributes.space };
            Some((node.quota?, Amount { space, entries: 0 }))
        }
        Record::Fragment(fragment) => Some((fragment.quota?, Amount { space: 0, entries: fragment.entries })),
        _ => None,
    }
}
