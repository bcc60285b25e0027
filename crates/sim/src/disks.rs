//! Other disks for a metadata server than the right one: empty, another server's, half of the right one, an
//! older state of it, or one whose log is damaged. A server must never serve from one of these. Afterwards
//! the right one is put back; or it is lost for good, and the server goes on with the other one and learns
//! what it lacks. Either way nothing is lost.

use crate::counts::Counts;
use bearing_meta::{Config, RecoveredTablet};
use bearing_placement::Tablet;
use bearing_seams::{CrashFault, DiskLabel, MemStore, MemTabletLog};
use bearing_types::{DiskId, LogIndex, ServerId};
use bearing_workload::Seeded;

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongDisk {
    /// The disk is empty: store and log.
    Empty,
    /// The same, but for the id, which is the registered one.
    EmptySame,
    /// The store is gone.
    NoStore,
    /// The tablet log is gone.
    NoLog,
    /// What is there is empty, under an id that is not the registered one.
    Other,
    /// An older state of store and log, from before the server's last start.
    Older,
    /// The same, under another id.
    OlderOther,
    /// The right one, but its tablet log is damaged and does not open: its server does not start.
    Rotten,
}

impl WrongDisk {
    /// All of them.
    pub const ALL: [WrongDisk; 8] = [
        WrongDisk::Empty,
        WrongDisk::EmptySame,
        WrongDisk::NoStore,
        WrongDisk::NoLog,
        WrongDisk::Other,
        WrongDisk::Older,
        WrongDisk::OlderOther,
        WrongDisk::Rotten,
    ];

    fn count(self) -> &'static str {
        match self {
            WrongDisk::Empty => "fault: a metadata disk is emptied",
            WrongDisk::EmptySame => "fault: a metadata disk is emptied and keeps its id",
            WrongDisk::NoStore => "fault: a store is gone",
            WrongDisk::NoLog => "fault: a tablet log is gone",
            WrongDisk::Other => "fault: a metadata disk is another one",
            WrongDisk::Older => "fault: a metadata disk is an older state",
            WrongDisk::OlderOther => "fault: a metadata disk is an older state under another id",
            WrongDisk::Rotten => "fault: a tablet log is damaged",
        }
    }
}

type Disk = (MemStore, MemTabletLog);

/// Whether all tablets of the server were taken anew since the copy was made, and those of others registered
/// anew: a copy from within the same epochs looks like the right disk.
fn is_seen_to_be_old((store, log): &Disk, server: ServerId, registered: &[Tablet]) -> bool {
    let recovered =
        bearing_meta::recover(&mut store.clone(), &mut log.clone(), DiskId(0), &Config::standard());
    let tablets = recovered.map(|recovered| recovered.tablets).unwrap_or_default();
    let found = |tablet: &Tablet| tablets.get(&tablet.serial);
    let last = |found: &RecoveredTablet| LogIndex(found.last.0 + found.prepared.len() as u64);
    let newer = |tablet: &Tablet| match tablet.owner == server {
        true => found(tablet).and_then(|found| found.intent) < Some(tablet.epoch),
        false => found(tablet).is_none_or(|found| last(found) < tablet.committed),
    };
    !registered.is_empty() && registered.iter().all(newer)
}

/// A server's disks but for the one that it runs on.
#[derive(Default)]
pub struct Disks {
    /// A copy of the right one.
    copy: Option<Disk>,
    /// The right one, while a wrong one is in its place.
    right: Option<(Disk, WrongDisk)>,
    /// The one that is there takes the place of one that is lost, and may not be registered yet.
    replacing: bool,
}

impl Disks {
    /// A copy is made while the server runs: it is what a crash right then would leave.
    pub fn copy(&mut self, store: &MemStore, log: &MemTabletLog) {
        if self.right.is_none() {
            self.copy = Some((store.clone(), log.clone()));
        }
    }

    /// Whether a disk under the right id is in the right one's place, with less on it: a server that owns
    /// nothing may be taken for a member with it, and learn anew what it lacks.
    pub fn has_less(&self) -> bool {
        self.right.as_ref().is_some_and(|(_, wrong)| matches!(wrong, WrongDisk::Older | WrongDisk::EmptySame))
    }

    /// The server works with the disk that it has. Whether that is one with less on it.
    pub fn settled_in_has_less(&mut self) -> bool {
        self.replacing = false;
        self.has_less()
    }

    /// Whether the server is told apart from one with the right disk, so that a person has to do something.
    pub fn is_refused(&self) -> bool {
        self.right.is_some() && !self.has_less()
    }

    /// Whether the tablet log is damaged.
    pub fn is_rotten(&self) -> bool {
        self.right.as_ref().is_some_and(|(_, wrong)| *wrong == WrongDisk::Rotten)
    }

    /// The disk that is there takes the place of the right one, which is lost for good.
    pub fn replace(&mut self) {
        (self.right, self.replacing) = (None, true);
    }

    /// The disk that is there is the right one from now on.
    pub fn keep(&mut self) {
        self.right = None;
    }

    /// What is wrong with the disk that the server has.
    pub fn wrong(&self) -> Option<String> {
        self.right.as_ref().map(|(_, wrong)| format!("a wrong disk ({wrong:?})"))
    }

    /// Another disk for the one that is there, which is set aside.
    pub fn take_out(
        &mut self,
        counts: &mut Counts,
        rng: &mut Seeded,
        kind: WrongDisk,
        (store, log): (&MemStore, &MemTabletLog),
        (server, tablets): (ServerId, &[Tablet]),
    ) -> Option<Disk> {
        let registered = store.clone().disk().ok().flatten();
        // Another one would be registered in its place.
        let registered = registered.filter(|_| !self.replacing && self.right.is_none())?;
        let older = || self.copy.clone().filter(|copy| is_seen_to_be_old(copy, server, tablets));
        let mut wrong = match kind {
            WrongDisk::Empty | WrongDisk::EmptySame | WrongDisk::Other => {
                (MemStore::new(), MemTabletLog::new())
            }
            WrongDisk::NoStore => (MemStore::new(), log.clone()),
            WrongDisk::NoLog => (store.clone(), MemTabletLog::new()),
            WrongDisk::Rotten => (store.clone(), log.clone()),
            WrongDisk::Older | WrongDisk::OlderOther => older()?,
        };
        let mut fault = CrashFault::new(rng.next());
        wrong.0.crash(&mut fault);
        wrong.1.crash(&mut fault);
        if kind == WrongDisk::Rotten {
            wrong.1.rot();
        }
        let id = match kind {
            WrongDisk::Other | WrongDisk::OlderOther => Some(DiskId(u128::from(rng.next()))),
            WrongDisk::EmptySame => Some(registered),
            _ => None,
        };
        if let Some(id) = id {
            wrong.0.set_disk(id).and(wrong.1.set_disk(id)).expect("engines in memory keep an id");
        }
        counts.add(kind.count());
        self.right = Some(((store.clone(), log.clone()), kind));
        Some(wrong)
    }

    /// The right disk, if another one is in its place.
    pub fn put_back(&mut self) -> Option<Disk> {
        self.right.take().map(|(disk, _)| disk)
    }
}
