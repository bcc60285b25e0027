//! Names that are taken away or lead elsewhere.

use crate::peer::Remover;
use bearing_types::{Access, Code, FileType, Mode, Uid};

impl Remover {
    /// A user in a directory with this access.
    pub fn of(directory: Access, uid: Uid) -> Remover {
        Remover { uid, directory_mode: directory.mode, directory_uid: directory.uid }
    }

    /// Whether the user may take any name away: in a sticky directory only root and its owner may.
    pub fn removes_all(&self) -> bool {
        !self.directory_mode.has(Mode::STICKY) || [Uid(0), self.directory_uid].contains(&self.uid)
    }

    /// Whether the user may take a name away that leads to something of this owner. Otherwise `NotPermitted`.
    pub fn check(&self, owner: Uid) -> Result<(), Code> {
        if self.removes_all() || self.uid == owner { Ok(()) } else { Err(Code::NotPermitted) }
    }
}

/// A name that leads to the one kind may be removed as the other, or led to the other by a rename:
/// directories are for directories. Otherwise `NotDirectory` or `IsDirectory`.
pub fn check_same_kind(there: FileType, wanted: FileType) -> Result<(), Code> {
    match (wanted == FileType::Directory, there == FileType::Directory) {
        (true, false) => Err(Code::NotDirectory),
        (false, true) => Err(Code::IsDirectory),
        (true, true) | (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Gid;

    #[test]
    fn in_a_sticky_directory_names_are_removed_by_root_its_owner_and_theirs() {
        for (mode, uid, all, own) in [
            (0o777, 5, true, true),
            (0o1777, 0, true, true),
            (0o1777, 7, true, true),
            (0o1777, 9, false, true),
            (0o1777, 5, false, false),
        ] {
            let directory = Access { mode: Mode::new(mode), uid: Uid(7), gid: Gid(8) };
            let remover = Remover::of(directory, Uid(uid));
            let checked = remover.check(Uid(9));
            assert_eq!((remover.removes_all(), checked.is_ok()), (all, own), "{mode:o} {uid}");
            assert!(checked.is_ok() || checked == Err(Code::NotPermitted));
        }
    }

    #[test]
    fn directories_are_for_directories() {
        use FileType::{Directory, Fifo, Regular, Symlink};
        for (there, wanted, checked) in [
            (Directory, Directory, Ok(())),
            (Symlink, Regular, Ok(())),
            (Fifo, Fifo, Ok(())),
            (Regular, Directory, Err(Code::NotDirectory)),
            (Directory, Symlink, Err(Code::IsDirectory)),
        ] {
            assert_eq!(check_same_kind(there, wanted), checked, "{there:?} {wanted:?}");
        }
    }
}
