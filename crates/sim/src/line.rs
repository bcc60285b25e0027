//! The log of one tablet, as all its members together have it: what of it is stable.
//!
//! Who is a member under which epoch is taken from the coordinator's registers as they change, not from what
//! servers say. An entry is stable when every member of its epoch has synced it; also those of the next
//! epoch, if there is one already, and one that the owner says is about to become a member: he may own the
//! tablet after it.

use crate::network::HostId;
use bearing_seams::LoggedRecord;
use bearing_types::{Epoch, LogIndex};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct Line {
    /// Who served it under which epoch, and said so.
    pub owners: BTreeMap<Epoch, HostId>,
    /// The newest epoch by its register, and whose that is.
    registered: Option<(Epoch, Option<HostId>)>,
    /// Who was a member under which epoch.
    members: BTreeMap<Epoch, BTreeSet<HostId>>,
    /// Who is about to become one under the next epoch.
    counting: BTreeMap<Epoch, HostId>,
    /// Entries that not every member has synced yet.
    open: BTreeMap<(Epoch, LogIndex), Open>,
    /// What lower epochs had behind a stable epoch record, of this epoch, and who: nobody of these has it
    /// again from then on.
    void: BTreeMap<LogIndex, BTreeMap<Vec<u8>, Void>>,
    /// Who has synced the record of which epoch.
    begun: BTreeMap<Epoch, BTreeSet<HostId>>,
    /// The last stable entry.
    last: Option<(Epoch, LogIndex)>,
    /// What stable entries hold, and under which epoch they became stable.
    stable: BTreeMap<LogIndex, (Epoch, Vec<u8>)>,
}

/// An entry that not every member has synced yet.
#[derive(Debug)]
struct Open {
    by: BTreeSet<HostId>,
    bytes: Vec<u8>,
    told: Told,
}

/// An entry that the record of an epoch voids.
#[derive(Debug)]
struct Void {
    by_record_of: Epoch,
    had: BTreeSet<HostId>,
}

/// What is known of an entry without its tablet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// It is the record of its epoch.
    pub is_epoch_record: bool,
    /// It says when it was made: nobody makes the same again.
    pub is_unique: bool,
}

/// What became of an entry that a host has synced.
#[derive(Debug, PartialEq, Eq)]
pub enum Synced {
    /// The host is no member under that epoch: it learns the tablet, or was left out meanwhile.
    OfAnother,
    /// Other members have not synced it.
    Open,
    /// It is stable now.
    Stable,
    /// It was stable before.
    Known,
    /// A later epoch has begun without it, and its owner did not know.
    Void,
    /// It cannot be; why.
    Wrong(String),
}

impl Line {
    /// The tablet's register says this from now on.
    pub fn registered(&mut self, epoch: Epoch, owner: Option<HostId>, members: BTreeSet<HostId>) {
        self.members.insert(epoch, members);
        self.registered = Some((epoch, owner));
    }

    /// Who owns it, and under which epoch, if that is another host.
    pub fn owner_but(&self, host: HostId) -> Option<(Epoch, HostId)> {
        let (epoch, owner) = self.registered?;
        Some((epoch, owner?)).filter(|(_, owner)| *owner != host)
    }

    /// A host that starts finds an entry on its disk that the record of an epoch voids, which it has synced,
    /// and that nobody has made again since.
    pub fn found(&self, host: HostId, index: LogIndex, bytes: &[u8]) -> Option<Epoch> {
        let voided = self.void.get(&index)?.get(bytes)?.by_record_of;
        let again = self.open.iter().any(|((epoch, at), open)| {
            *epoch >= voided && *at == index && open.bytes == bytes && open.by.contains(&host)
        });
        self.begun.get(&voided).is_some_and(|hosts| hosts.contains(&host) && !again).then_some(voided)
    }

    /// A host has another disk, which may be from before the records of some epochs.
    pub fn disk_replaced(&mut self, host: HostId) {
        self.begun.values_mut().for_each(|hosts| _ = hosts.remove(&host));
    }

    /// The owner commits nothing more under an epoch without a host.
    pub fn counts(&mut self, epoch: Epoch, host: HostId) {
        self.counting.insert(epoch, host);
    }

    /// Whether it has more members than one under an epoch.
    pub fn has_others(&self, epoch: Epoch) -> bool {
        self.members.get(&epoch).is_some_and(|members| members.len() > 1)
    }

    /// What stable entries up to one hold, in their order; none if it is not stable.
    pub fn entries_up_to(&self, index: LogIndex) -> Option<impl Iterator<Item = &[u8]> + '_> {
        let is_stable = self.stable.last_key_value().is_some_and(|(last, _)| *last >= index);
        is_stable.then(|| self.stable.range(..=index).map(|(_, (_, bytes))| &bytes[..]))
    }

    /// Who holds its log under the newest epoch.
    pub fn members(&self) -> impl Iterator<Item = HostId> + '_ {
        self.members.last_key_value().into_iter().flat_map(|(_, members)| members.iter().copied())
    }

    /// A host has synced an entry.
    pub fn synced(&mut self, host: HostId, record: &LoggedRecord, told: Told) -> Synced {
        let (epoch, index) = (record.epoch, record.index);
        let Some(members) = self.members.get(&epoch) else { return Synced::OfAnother };
        if let Some((stable, bytes)) = self.stable.get(&index) {
            return match *bytes == record.bytes {
                true => Synced::Known,
                false if epoch < *stable => Synced::Void,
                false => Synced::Wrong(format!("{host:?} has another {index} under {epoch} than was stable")),
            };
        }
        let first = || Open { by: BTreeSet::new(), bytes: record.bytes.clone(), told };
        let open = self.open.entry((epoch, index)).or_insert_with(first);
        if open.bytes != record.bytes || open.told != told {
            return Synced::Wrong(format!("{host:?} has another {index} under {epoch} than others"));
        }
        open.by.insert(host);
        let by = &open.by;
        if told.is_epoch_record {
            self.begun.entry(epoch).or_default().insert(host);
        }
        // An owner that never had it may do the same again, for instance when a decision is delivered again.
        let owns = self.registered.is_some_and(|(_, owner)| owner == Some(host));
        let void = self.void.get_mut(&index).and_then(|void| void.get_mut(&record.bytes));
        if let Some(void) = void.filter(|void| told.is_unique && epoch >= void.by_record_of) {
            let voided = void.by_record_of;
            match (owns, void.had.contains(&host)) {
                (true, true) => {
                    return Synced::Wrong(format!(
                        "{host:?} has {index} under {epoch}, which the record of {voided} voids"
                    ));
                }
                // Such an owner sent it: now this member has it from there.
                (false, true) => _ = void.had.remove(&host),
                (_, false) => {}
            }
        }
        let late = self.last.is_some_and(|(last, _)| epoch < last);
        if late && owns {
            return Synced::Wrong(format!("{host:?} logs under {epoch} what it owns under a newer epoch"));
        }
        let joined = self.members.get(&epoch.next()).into_iter().flatten();
        if !members.iter().chain(joined).chain(self.counting.get(&epoch)).all(|member| by.contains(member)) {
            return if members.contains(&host) { Synced::Open } else { Synced::OfAnother };
        }
        if late {
            // The owner had a newer epoch when the last member synced it: nobody commits it under this one.
            return Synced::Void;
        }
        self.stabilize(host, record, told)
    }

    fn stabilize(&mut self, host: HostId, record: &LoggedRecord, told: Told) -> Synced {
        let (epoch, index) = (record.epoch, record.index);
        if told.is_epoch_record {
            let behind = self.open.iter().filter(|((other, at), _)| *other < epoch && *at > index);
            for ((_, at), open) in behind {
                self.void
                    .entry(*at)
                    .or_default()
                    .insert(open.bytes.clone(), Void { by_record_of: epoch, had: open.by.clone() });
            }
        }
        self.void.retain(|at, _| *at > index);
        self.open.retain(|(_, other), _| *other > index);
        let before = self.last.replace((epoch, index));
        self.stable.insert(index, (epoch, record.bytes.clone()));
        let Some((_, last)) = before else { return Synced::Stable };
        match index == last.next() {
            true => Synced::Stable,
            false => Synced::Wrong(format!("{host:?} logged {index} after {last}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::TabletSerial;

    const A: HostId = HostId(1);
    const B: HostId = HostId(2);
    const C: HostId = HostId(3);

    fn entry(epoch: u64, index: u64, value: u8) -> LoggedRecord {
        let (epoch, index, commit) = (Epoch(epoch), LogIndex(index), LogIndex::ZERO);
        LoggedRecord { serial: TabletSerial(1), epoch, index, commit, bytes: vec![value] }
    }

    fn line() -> Line {
        let mut line = Line::default();
        line.registered(Epoch(2), Some(A), BTreeSet::from([A, B, C]));
        line
    }

    #[test]
    fn an_entry_is_stable_when_the_last_member_of_its_epoch_has_it() {
        let mut line = line();
        assert_eq!(line.synced(A, &entry(2, 1, 1), Told::default()), Synced::Open);
        assert_eq!(line.synced(C, &entry(2, 1, 1), Told::default()), Synced::Open);
        assert_eq!(line.synced(B, &entry(2, 1, 1), Told::default()), Synced::Stable);
        assert_eq!(line.synced(B, &entry(2, 1, 1), Told::default()), Synced::Known);
        assert_eq!(line.synced(HostId(4), &entry(2, 2, 1), Told::default()), Synced::OfAnother);
    }

    const UNIQUE: Told = Told { is_epoch_record: false, is_unique: true };

    #[test]
    fn what_a_member_syncs_when_the_owner_has_a_newer_epoch_is_not_stable() {
        let mut line = line();
        line.registered(Epoch(2), Some(A), BTreeSet::from([A, B]));
        for index in [1, 2] {
            assert_eq!(line.synced(A, &entry(2, index, 1), Told::default()), Synced::Open);
        }
        line.registered(Epoch(3), Some(A), BTreeSet::from([A]));
        assert_eq!(line.synced(A, &entry(3, 1, 1), Told::default()), Synced::Stable);
        assert_eq!(line.synced(B, &entry(2, 1, 1), Told::default()), Synced::Known);
        assert_eq!(line.synced(B, &entry(2, 2, 1), Told::default()), Synced::Void);
        assert!(matches!(line.synced(A, &entry(2, 2, 1), Told::default()), Synced::Wrong(_)));
    }

    #[test]
    fn an_owner_has_nothing_again_that_its_record_voids_but_what_another_owner_made_again() {
        let record = Told { is_epoch_record: true, ..Told::default() };
        let voided = |made_again: bool| {
            let mut line = line();
            line.registered(Epoch(2), Some(A), BTreeSet::from([A, B]));
            for host in [A, B] {
                line.synced(host, &entry(2, 1, 1), Told::default());
            }
            line.synced(B, &entry(2, 3, 7), UNIQUE);
            line.registered(Epoch(3), Some(A), BTreeSet::from([A, B]));
            for host in [A, B] {
                line.synced(host, &entry(3, 2, 3), record);
            }
            if made_again {
                assert_eq!(line.synced(B, &entry(3, 3, 7), UNIQUE), Synced::Open);
            }
            line.registered(Epoch(4), Some(B), BTreeSet::from([B]));
            line.synced(B, &entry(4, 3, 7), UNIQUE)
        };
        assert_eq!(voided(true), Synced::Stable);
        assert!(matches!(voided(false), Synced::Wrong(_)));
    }

    #[test]
    fn what_was_stable_is_the_same_for_ever_and_what_was_not_may_be_another_under_a_later_epoch() {
        let mut line = line();
        for host in [A, B, C] {
            line.synced(host, &entry(2, 1, 1), Told::default());
        }
        assert_eq!(line.synced(A, &entry(2, 2, 2), Told::default()), Synced::Open);
        line.registered(Epoch(3), Some(B), BTreeSet::from([B, C]));
        assert_eq!(line.synced(B, &entry(3, 1, 1), Told::default()), Synced::Known);
        assert_eq!(line.synced(B, &entry(3, 2, 9), Told::default()), Synced::Open);
        assert_eq!(line.synced(C, &entry(3, 2, 9), Told::default()), Synced::Stable);
        assert!(matches!(line.synced(C, &entry(3, 1, 7), Told::default()), Synced::Wrong(_)));
        assert_eq!(line.synced(A, &entry(2, 2, 2), Told::default()), Synced::Void);
        assert!(matches!(line.synced(B, &entry(3, 2, 8), Told::default()), Synced::Wrong(_)));
    }
}
