//! On which disk a server keeps its data: its register, and what the register and the disk's own ids say
//! together.
//!
//! The id lies inside what it speaks for (the store and the tablet log of a metadata server, the chunks of a
//! data server), so that it goes when they go. It is given at a server's first start, the directories first
//! and then the register: a crash in between leaves a disk with an id, or half of one, and no register, and
//! the next start goes on from there. While there is a register, no id is given.

use bearing_types::{DiskId, ServerId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The key prefix of disks; `disk/<server>` holds a [`DiskRecord`].
pub const DISK_PREFIX: &str = "disk/";

/// The register of a server's disk.
pub fn disk_key(server: ServerId) -> String {
    format!("{DISK_PREFIX}{:08}", server.0)
}

/// The value of a disk's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// The disk.
    pub disk: DiskId,
}

/// A part of a disk, in words, and the id that it has.
pub type DiskPart = (&'static str, Option<DiskId>);

/// What a server is to do with the disk that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is the registered one: serve.
    Registered,
    /// None is registered: give all parts this id, then register it.
    Adopt(DiskId),
    /// It is another one: serve nothing.
    Refuse(WrongDisk),
}

/// A disk that is not the one that a server was registered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongDisk {
    registered: Option<DiskId>,
    found: Vec<DiskPart>,
}

impl fmt::Display for WrongDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found.iter().map(|(part, disk)| match disk {
            Some(disk) => format!("{part} has the disk id {disk}"),
            None => format!("{part} has no disk id"),
        });
        let found: Vec<String> = found.collect();
        match self.registered {
            Some(disk) => {
                write!(
                    f,
                    "this is not the disk that was registered: {}, the coordinator has {disk}",
                    found.join(", ")
                )
            }
            None => write!(f, "the parts of this disk do not belong together: {}", found.join(", ")),
        }
    }
}

/// Compares the parts of a disk with its register. `fresh` is an id that no disk has.
pub fn judge(registered: Option<DiskId>, found: &[DiskPart], fresh: DiskId) -> Judgement {
    let refuse = || Judgement::Refuse(WrongDisk { registered, found: found.to_vec() });
    if let Some(disk) = registered {
        let same = found.iter().all(|(_, part)| *part == Some(disk));
        return if same { Judgement::Registered } else { refuse() };
    }
    let mut ids = found.iter().filter_map(|(_, part)| *part);
    let Some(first) = ids.next() else { return Judgement::Adopt(fresh) };
    if ids.all(|id| id == first) { Judgement::Adopt(first) } else { refuse() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<DiskId> = Some(DiskId(0xa));
    const B: Option<DiskId> = Some(DiskId(0xb));
    const FRESH: DiskId = DiskId(0xf);

    fn judged(registered: Option<DiskId>, store: Option<DiskId>, log: Option<DiskId>) -> Judgement {
        judge(registered, &[("the store", store), ("the tablet log", log)], FRESH)
    }

    #[test]
    fn a_disk_is_the_registered_one_only_if_all_its_parts_say_so() {
        assert_eq!(judged(A, A, A), Judgement::Registered);
        for (store, log) in [(None, None), (A, None), (None, A), (B, B), (A, B), (B, A)] {
            let Judgement::Refuse(wrong) = judged(A, store, log) else { panic!("{store:?} {log:?}") };
            let said = wrong.to_string();
            assert!(said.contains("0000000a") && said.contains("the tablet log has"), "{said}");
        }
    }

    #[test]
    fn whatever_a_crash_leaves_of_a_first_start_is_gone_on_with_under_the_same_id() {
        assert_eq!(judged(None, None, None), Judgement::Adopt(FRESH));
        for (store, log) in [(A, None), (None, A), (A, A)] {
            assert_eq!(judged(None, store, log), Judgement::Adopt(DiskId(0xa)));
        }
        assert!(matches!(judged(None, A, B), Judgement::Refuse(_)));
    }
}
