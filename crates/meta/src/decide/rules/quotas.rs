//! Quotas: what counts, where it is counted, who may use how much.
//!
//! A directory with a quota counts all below it that has no quota of its own. Its *quota* (the directory's
//! handle) is inherited at birth by directories, fragments and files; nothing is moved or linked from one
//! quota to another. Each tablet counts what lies in it, in a record that is written with every log entry
//! that changes it. The home of the quota knows what each tablet may use: a tablet whose use would grow
//! beyond that asks for a *share* more, and gives back what it does not use within a short time.
//!
//! Invariants: what all tablets may use together is no more than the limit, unless more was used when the
//! limit was set; a tablet uses no more than it was told it may, but it may have been told that in an answer
//! which the home does not know to have arrived when it lends the same to somebody else: so at most one share
//! for each tablet is used beyond the limit. What shrinks is never refused.

use crate::record::{Key, QuotaRecord, Record, Share};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Handle, QuotaView};
use bearing_proto::peer::{Question, Told};
use bearing_types::{Amount, Code, Position};

/// A share is this part of the limit, so that what many tablets hold unused is little.
const SHARES: u64 = 64;
/// Nobody is lent less than this if there is as much: small limits are shared out one by one otherwise.
const SHARE_MIN: Amount = Amount { space: 256 << 10, entries: 1 };
/// Nobody is lent more than this beyond his wish.
const SHARE_MAX: Amount = Amount { space: 16 << 30, entries: 1 << 16 };

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
        let until = now.after(view.config.quota_share_ttl);
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
    match view.ask_as(quota.home, question, same, |view| lend(view, quota, tablet, used, wanted))? {
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
