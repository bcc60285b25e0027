//! How far it is known whose disk this is (see `engine/disk.rs`).

use crate::event::AppendNumber;
use crate::record::Recovered;
use bearing_placement::Tablet as Assigned;
use bearing_proto::disk::DiskPart;
use bearing_types::{DiskId, Epoch, LogIndex, TabletSerial};
use std::collections::{BTreeMap, BTreeSet};

/// How far it is known whose disk this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The register was not seen yet.
    Unknown,
    /// It has its id, and intents for what is ours already are being logged.
    Adopting(DiskId),
    /// All that is stable, and the register is being written.
    Registering(DiskId),
    /// It is the registered one.
    Ours,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DiskState {
    pub found: [DiskPart; 2],
    pub fresh: DiskId,
    pub stage: Stage,
    pub intended: BTreeMap<TabletSerial, Epoch>,
    /// The epochs that registers had, by what was found.
    pub registered: BTreeMap<TabletSerial, Epoch>,
    /// Intents that are logged but not stable.
    pub logged: BTreeMap<AppendNumber, (TabletSerial, Epoch)>,
    pub gaps: BTreeMap<TabletSerial, (LogIndex, LogIndex)>,
    /// Tablets of which the store cannot read records.
    pub damaged: BTreeSet<TabletSerial>,
    /// Tablets of which it was found at the start that the store has lost some records.
    pub lacking: BTreeSet<TabletSerial>,
    /// Tablets that were removed for that, of which this server may count as a member yet.
    pub dropped: BTreeSet<TabletSerial>,
}

impl DiskState {
    /// Of a server that has not looked at its disk.
    pub fn unknown() -> DiskState {
        DiskState {
            found: [("the store", None), ("the tablet log", None)],
            fresh: DiskId(0),
            stage: Stage::Unknown,
            intended: BTreeMap::new(),
            registered: BTreeMap::new(),
            logged: BTreeMap::new(),
            gaps: BTreeMap::new(),
            damaged: BTreeSet::new(),
            lacking: BTreeSet::new(),
            dropped: BTreeSet::new(),
        }
    }

    /// Of a server that found this.
    pub fn new(recovered: &Recovered) -> DiskState {
        let tablets = || recovered.tablets.iter();
        DiskState {
            found: [("the store", recovered.store), ("the tablet log", recovered.log)],
            fresh: recovered.fresh,
            intended: tablets().filter_map(|(serial, found)| Some((*serial, found.intent?))).collect(),
            registered: tablets().map(|(serial, found)| (*serial, found.registered())).collect(),
            gaps: tablets().filter_map(|(serial, found)| Some((*serial, found.gap?))).collect(),
            damaged: tablets().filter(|(_, found)| found.damaged).map(|(serial, _)| *serial).collect(),
            lacking: tablets().filter(|(_, found)| found.lacking).map(|(serial, _)| *serial).collect(),
            ..DiskState::unknown()
        }
    }

    /// Whether tablets may be taken.
    pub fn is_ours(&self) -> bool {
        self.stage == Stage::Ours
    }

    /// The disk whose register is to be written.
    pub fn registering(&self) -> Option<DiskId> {
        match self.stage {
            Stage::Registering(disk) => Some(disk),
            Stage::Unknown | Stage::Adopting(_) | Stage::Ours => None,
        }
    }

    /// Why a tablet that is registered as ours cannot be served from this disk.
    pub fn lacks(&self, assigned: &Assigned) -> Option<String> {
        let (block, serial) = (assigned.block, assigned.serial);
        if let Some((last, next)) = self.gaps.get(&serial) {
            return Some(format!(
                "the store has tablet {block} up to record {last}, the tablet log goes on with {next}: one of them is older than the other"
            ));
        }
        if self.damaged.contains(&serial) {
            return Some(format!("the store cannot read what it has of tablet {block}"));
        }
        let intended = self.intended.get(&serial).copied();
        (intended < Some(assigned.epoch)).then(|| {
            let intended = intended.map_or("none at all".to_owned(), |epoch| format!("{epoch} at most"));
            format!(
                "this disk is older than the one that this server ran on: the coordinator has tablet {block} of this server under {}, \
                 the disk intended {intended}",
                assigned.epoch
            )
        })
    }
}
