//! The end of a run: every member of a tablet holds every stable record, and nothing else.

use crate::clock::MILLISECOND;
use crate::complaint::Promise;
use crate::network::HostId;
use crate::sim::{Sim, index_of};
use bearing_types::{Block, TabletSerial};
use std::collections::BTreeMap;

impl Sim {
    /// Compares what servers hold with what is stable: every stable record, and nothing else. What is
    /// committed goes to the store a little later, and marks are collected also when nothing else happens: so
    /// this waits, not for long, for a moment at which they are the same.
    pub fn compare_stores(&mut self) {
        let mut different = self.differences();
        for _ in 0..100 {
            if different.is_empty() {
                return;
            }
            self.run_for(50 * MILLISECOND);
            different = self.differences();
        }
        for what in different {
            self.ledger.blame(&self.world, Promise::StoreHolds, what);
        }
    }

    fn differences(&mut self) -> Vec<String> {
        let mut different = Vec::new();
        let tablets: Vec<Block> = self.ledger.tablets().collect();
        for tablet in tablets {
            let expected = self.ledger.model.stored(tablet).clone();
            for member in self.ledger.members_of(tablet) {
                different.extend(self.difference(tablet, member, &expected));
            }
        }
        different
    }

    fn difference(
        &mut self,
        tablet: Block,
        member: HostId,
        expected: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Option<String> {
        let store = self.metadata[index_of(member, 1)].store();
        // What is of the server's disk and not of the tablet comes last.
        let end = Some(bearing_meta::Key::Intent.encode());
        let all = bearing_seams::KeyRange { start: Vec::new(), end };
        let serial = TabletSerial::of_first(tablet).expect("tablets of the simulator are few");
        let held = bearing_seams::Store::range(store, serial, &all, usize::MAX).unwrap_or_default();
        if held.iter().map(|(key, value)| (key, value)).eq(expected.iter()) {
            return None;
        }
        let lost = expected.keys().find(|key| held.binary_search_by(|(held, _)| held.cmp(key)).is_err());
        let extra = held.iter().map(|(key, _)| key).find(|key| !expected.contains_key(*key));
        let other = held.iter().find(|(key, value)| expected.get(key).is_some_and(|stable| stable != value));
        let decoded = |key: Option<&Vec<u8>>| key.and_then(|key| bearing_meta::Key::decode(key));
        let value =
            |value: Option<&Vec<u8>>| value.and_then(|value| bearing_meta::Record::decode(value).ok());
        Some(format!(
            "{member:?} holds other records of {tablet} than are stable: lost {:?}, not stable {:?}, other {:?}: {:?} instead of {:?}",
            decoded(lost),
            decoded(extra),
            decoded(other.map(|(key, _)| key)),
            value(other.map(|(_, value)| value)),
            value(other.and_then(|(key, _)| expected.get(key)))
        ))
    }
}
