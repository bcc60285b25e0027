//! Quotas: what counts, where it is counted, who may use how much.
//!
//! A directory with a quota counts all below it that has no quota of its own. Its *quota* (the directory's handle) is inherited at birth by directories,
//! fragments and files; nothing is moved or linked from one quota to another. Each tablet counts what lies in it, in a record that is written with every log
//! entry that changes it. The home of the quota knows what each tablet may use: a tablet whose use would grow beyond that asks for a *share* more, and gives
//! back what it does not use within a short time.
//!
//! Invariants: what all tablets may use together is no more than the limit, unless more was used when the limit was set; a tablet uses no more than it
//! was told it may, but it may have been told that in an answer which the home does not know to have arrived when it lends the same to somebody else: so
//! at most one share for each tablet is used beyond the limit. What shrinks is never refused.

use crate::cache::Cache;
use crate::config::Config;
use crate::job::JobWork;
use crate::key::Key;
use crate::machine::MetaServer;
use crate::record::{QuotaRecord, Record, Share, UsageRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, QuotaView};
use bearing_proto::peer::{Question, Told};
use bearing_types::{Amount, Code, Mono, NodeId, Now, Position};
use std::collections::BTreeMap;

/// A share is this part of the limit, so that what many tablets hold unused is little.
const SHARES: u64 = 64;
/// Nobody is lent less than this if there is as much: small limits are shared out one by one otherwise.
const SHARE_MIN: Amount = Amount { space: 256 << 10, entries: 1 };
/// Nobody is lent more than this beyond his wish.
const SHARE_MAX: Amount = Amount { space: 16 << 30, entries: 1 << 16 };

/// By how much a log entry changes what is used of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Delta {
    space: i64,
    entries: i64,
}

/// What one quota is to a tablet.
#[derive(Clone, Copy, Debug)]
struct Local {
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

    fn used(&self, directory: NodeId) -> Amount {
        self.by_directory.get(&directory).map_or(Amount::ZERO, |local| local.used.used)
    }

    fn allowed(&self, directory: NodeId, now: Mono) -> Option<Amount> {
        let (amount, until) = self.by_directory.get(&directory)?.allowed?;
        (now < until).then_some(amount)
    }

    /// The home has said what may be used.
    fn allow(&mut self, quota: Handle, amount: Amount, until: Mono) {
        let none = UsageRecord { quota, used: Amount::ZERO };
        let new = Local { used: none, allowed: None, told: None };
        self.by_directory.entry(quota.node).or_insert(new).allowed = Some((amount, until));
    }

    /// Quotas whose homes do not know what is used, or lend more than is wanted.
    fn due_reports(&mut self, now: Mono, config: &Config) -> Vec<Handle> {
        let mut due = Vec::new();
        for local in self.by_directory.values_mut() {
            let lent = local.allowed.filter(|(_, until)| now < *until).is_some();
            let news = local.allowed.is_some() || local.told.is_none_or(|(told, _)| told != local.used.used);
            let rested = local.told.is_none_or(|(_, at)| now.since(at) >= config.quota_report);
            if !lent && news && rested {
                local.allowed = None;
                local.told = Some((local.used.used, now));
                due.push(local.used.quota);
            }
        }
        due
    }

    /// Telling did not come to an end.
    fn forget_told(&mut self, directory: NodeId) {
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

type Deltas = BTreeMap<NodeId, (Handle, Delta)>;

fn records_of(quotas: &Quotas, deltas: Deltas) -> Vec<(Key, Option<Record>)> {
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

fn deltas(cache: &mut Cache, batch: &BTreeMap<Key, Option<Record>>) -> Deltas {
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

fn add(deltas: &mut Deltas, quota: Handle, amount: Amount, sign: i64) {
    let (_, delta) = deltas.entry(quota.node).or_insert((quota, Delta::default()));
    delta.space += sign * amount.space as i64;
    delta.entries += sign * amount.entries as i64;
}

/// What a record counts, and for which quota.
fn counted(record: &Record) -> Option<(Handle, Amount)> {
    match record {
        Record::Node(node) => {
            let space = if node.attributes.is_directory() { 0 } else { node.attributes.space };
            Some((node.quota?, Amount { space, entries: 0 }))
        }
        Record::Fragment(fragment) => Some((fragment.quota?, Amount { space: 0, entries: fragment.entries })),
        _ => None,
    }
}

/// Something shall grow. Refused if that would be more than the quota leaves.
pub(crate) fn admit(view: &mut View, quota: Option<Handle>, growth: Amount) -> Decide<()> {
    let Some(quota) = quota.filter(|_| growth != Amount::ZERO) else { return Ok(()) };
    let used = view.quotas.used(quota.node);
    let wanted = used.plus(growth);
    let now = view.now.mono;
    if view.quotas.allowed(quota.node, now).is_some_and(|allowed| fits(allowed, used, wanted)) {
        return Ok(());
    }
    let allowed = share(view, quota, used, wanted)?;
    // At its home a share counts with the record that goes with this decision, if it is made.
    if !view.tablet.contains(quota.home) {
        let until = now.after(view.config.quota_share_life);
        view.quotas.allow(quota, allowed, until);
    }
    if fits(allowed, used, wanted) { Ok(()) } else { Err(Stop::Refuse(Code::QuotaExceeded)) }
}

/// What does not grow is not asked about.
fn fits(allowed: Amount, used: Amount, wanted: Amount) -> bool {
    (wanted.space == used.space || wanted.space <= allowed.space)
        && (wanted.entries == used.entries || wanted.entries <= allowed.entries)
}

fn share(view: &mut View, quota: Handle, used: Amount, wanted: Amount) -> Decide<Amount> {
    let tablet = view.tablet.start();
    let question = Question::Share { quota, tablet, used, wanted };
    // Meanwhile others may have used more: the answer to what was asked first is as good.
    let same = |asked: &Question| matches!(asked, Question::Share { quota: other, .. } if *other == quota);
    match view.ask_as(quota.home, question, same)? {
        Told::Share(allowed) => Ok(allowed),
        _ => Err(Stop::Later),
    }
}

/// Tells a quota's home what is used here, and gives back what was lent and is not.
pub(crate) fn report(view: &mut View, quota: Handle) -> Decide<()> {
    let used = view.quotas.used(quota.node);
    match share(view, quota, used, used) {
        // The directory is gone, and all that was in it.
        Err(Stop::Refuse(Code::Stale)) if used == Amount::ZERO => {
            view.delete(Key::Usage(quota.node));
            Ok(())
        }
        Err(Stop::Refuse(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// At the home: a tablet uses so much and wants to use so much. What it may use.
pub(crate) fn lend(
    view: &mut View,
    quota: Handle,
    tablet: Position,
    used: Amount,
    wanted: Amount,
) -> Decide<Told> {
    let mut record = load(view, quota)?;
    let others = record.shares.iter().filter(|share| share.tablet != tablet);
    let taken = others.fold(Amount::ZERO, |sum, share| sum.plus(share.used.most(share.allowed)));
    let free = record.limit.minus(taken);
    let margin = match wanted == used {
        true => Amount::ZERO,
        false => share_of(record.limit),
    };
    // What is used stays used, whatever the limit is by now.
    let allowed = wanted.plus(margin).least(free).most(used);
    let share = Share { tablet, used, allowed };
    match record.shares.iter_mut().find(|share| share.tablet == tablet) {
        Some(known) if *known == share => return Ok(Told::Share(allowed)),
        Some(known) => *known = share,
        None => record.shares.push(share),
    }
    view.put(Key::Quota(quota.node), Record::Quota(Box::new(record)));
    Ok(Told::Share(allowed))
}

fn share_of(limit: Amount) -> Amount {
    let part = Amount { space: limit.space / SHARES, entries: limit.entries / SHARES };
    part.most(SHARE_MIN).least(SHARE_MAX)
}

fn load(view: &mut View, quota: Handle) -> Decide<QuotaRecord> {
    view.require(quota.home)?;
    view.get_as(Key::Quota(quota.node), Record::into_quota)?.ok_or(Stop::Refuse(Code::Stale))
}

/// At the home: the limit, and what is used as far as tablets have told.
pub(crate) fn show(view: &mut View, quota: Handle) -> Decide<QuotaView> {
    let record = load(view, quota)?;
    let used = record.shares.iter().fold(Amount::ZERO, |sum, share| sum.plus(share.used));
    Ok(QuotaView { directory: quota, limit: record.limit, used })
}

/// At the home: a limit is set. What tablets may use by now stays for a short time.
pub(crate) fn limit(view: &mut View, quota: Handle, limit: Amount) -> Decide<()> {
    let before = match view.get(Key::Quota(quota.node))? {
        Some(Record::Quota(record)) => record.shares,
        _ => Vec::new(),
    };
    let record = QuotaRecord { limit, shares: before };
    view.put(Key::Quota(quota.node), Record::Quota(Box::new(record)));
    Ok(())
}

impl MetaServer {
    /// Notes what a log entry says of quotas.
    pub(crate) fn note_usage<'a>(
        &mut self,
        start: Position,
        records: impl Iterator<Item = (&'a Key, &'a Option<Record>)>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for (key, record) in records {
            match (key, record) {
                (Key::Usage(directory), Some(Record::Usage(used))) => {
                    tablet.quotas.note(*directory, Some(*used))
                }
                (Key::Usage(directory), None) => tablet.quotas.note(*directory, None),
                _ => {}
            }
        }
    }

    /// Tells the homes of quotas what is used here.
    pub(crate) fn watch_quotas(&mut self, now: Now, start: Position) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for quota in tablet.quotas.due_reports(now.mono, &self.config) {
            self.new_job(start, JobWork::ReportUsage(quota), now);
        }
    }

    /// A report was put off: it is made again.
    pub(crate) fn report_again(&mut self, start: Position, quota: Handle) {
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.quotas.forget_told(quota.node);
        }
    }
}
