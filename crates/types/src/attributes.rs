//! Attributes of nodes, and the permission check that servers and clients share.

use crate::{Version, Wall};
use serde::{Deserialize, Serialize};

/// A user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uid(pub u32);

/// A group id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gid(pub u32);

/// The twelve permission bits (07777), without the file type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u16")]
pub struct Mode(u16);

impl From<u16> for Mode {
    fn from(bits: u16) -> Mode {
        Mode::new(u32::from(bits))
    }
}

impl Mode {
    /// Set-user-id.
    pub const SETUID: u16 = 0o4000;
    /// Set-group-id.
    pub const SETGID: u16 = 0o2000;
    /// Sticky.
    pub const STICKY: u16 = 0o1000;

    /// The permission bits of a number; all above 07777 is dropped.
    pub fn new(bits: u32) -> Mode {
        Mode((bits & 0o7777) as u16)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// Whether one of the given bits is set.
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }

    /// The same mode without the given bits.
    pub fn without(self, bits: u16) -> Mode {
        Mode(self.0 & !bits)
    }
}

impl std::fmt::Debug for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0{:04o}", self.0)
    }
}

/// What becomes of the set-user-id and set-group-id bits of a file whose content somebody changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SetIds {
    /// They stay: whoever changes it may set them (CAP_FSETID on Linux).
    #[default]
    Keep,
    /// They go: others would run with its owner's rights what they did not write. Whoever changes it is of
    /// this group.
    Clear(Gid),
}

impl SetIds {
    /// What a change by this user does.
    pub fn by(who: &Credentials) -> SetIds {
        if who.uid == Uid(0) { SetIds::Keep } else { SetIds::Clear(who.gid) }
    }

    /// The mode of a file of a group after the change. As on Linux a member of the group leaves set-group-id
    /// where the group may not execute.
    pub fn applied(self, mode: Mode, gid: Gid) -> Mode {
        match self {
            SetIds::Keep => mode,
            SetIds::Clear(of) if of == gid && !mode.has(0o010) => mode.without(Mode::SETUID),
            SetIds::Clear(_) => mode.without(Mode::SETUID | Mode::SETGID),
        }
    }
}

/// What kind of node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// What `stat` tells of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The kind of node.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: Uid,
    /// Group.
    pub gid: Gid,
    /// Number of names; for a directory 2 + its child directories.
    pub links: u32,
    /// Bytes; for a directory the number of its entries times a nominal entry size.
    pub size: u64,
    /// Bytes of space that the content takes.
    pub space: u64,
    /// Device number of a device node, else 0.
    pub device: u32,
    /// Last access.
    pub accessed: Wall,
    /// Last change of content.
    pub modified: Wall,
    /// Last change of attributes.
    pub changed: Wall,
    /// Birth.
    pub born: Wall,
    /// Grows with every change; two equal versions of a node have equal content and attributes.
    pub version: Version,
}

impl Attributes {
    /// A new node's: it has one name and nothing in it.
    pub fn new(file_type: FileType, mode: Mode, (uid, gid): (Uid, Gid), born: Wall) -> Attributes {
        Attributes {
            file_type,
            mode,
            uid,
            gid,
            links: 1,
            size: 0,
            space: 0,
            device: 0,
            accessed: born,
            modified: born,
            changed: born,
            born,
            version: Version(1),
        }
    }
}

/// Who asks: the ids that the client vouches for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User id; 0 may do everything that permission bits forbid, except executing files without any x bit.
    pub uid: Uid,
    /// Primary group.
    pub gid: Gid,
    /// Supplementary groups.
    pub groups: Vec<Gid>,
}

impl Credentials {
    /// The superuser.
    pub const ROOT: Credentials = Credentials { uid: Uid(0), gid: Gid(0), groups: Vec::new() };

    /// Whether the user belongs to a group.
    pub fn in_group(&self, gid: Gid) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A wish to read, write or execute (search), in any combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission(u8);

impl Permission {
    /// Read content, or list a directory.
    pub const READ: Permission = Permission(4);
    /// Change content, or entries of a directory.
    pub const WRITE: Permission = Permission(2);
    /// Execute a file, or search a directory.
    pub const SEARCH: Permission = Permission(1);
    /// See what is in a directory, and what that is: read and search.
    pub const LIST_AND_SEARCH: Permission = Permission(5);
    /// Change the entries of a directory: write and search.
    pub const CHANGE_ENTRIES: Permission = Permission(3);

    /// From the low three bits of an access(2) mask.
    pub fn from_bits(bits: u8) -> Permission {
        Permission(bits & 7)
    }

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// What decides over access to a node: mode, owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: Uid,
    /// Group.
    pub gid: Gid,
}

impl Access {
    /// Whether the permission bits allow the wish (POSIX file access permissions; root passes, except that
    /// executing a non-directory needs at least one x bit).
    pub fn allows(self, who: &Credentials, wish: Permission, file_type: FileType) -> bool {
        let bits = self.mode.bits();
        if who.uid == Uid(0) {
            let executes = wish.0 & Permission::SEARCH.0 != 0 && file_type != FileType::Directory;
            return !executes || bits & 0o111 != 0;
        }
        let shift = if who.uid == self.uid {
            6
        } else if who.in_group(self.gid) {
            3
        } else {
            0
        };
        (bits >> shift) as u8 & wish.0 == wish.0
    }
}

impl Attributes {
    /// The part that decides over access.
    pub fn access(&self) -> Access {
        Access { mode: self.mode, uid: self.uid, gid: self.gid }
    }

    /// Whether a read at this time is to be noted, as with Linux's `relatime`: the first one since the last
    /// change, and one a day.
    pub fn notes_access(&self, at: Wall) -> bool {
        let day = 24 * 60 * 60 * 1_000_000_000;
        at > self.accessed
            && (self.accessed <= self.modified.max(self.changed)
                || at.0.saturating_sub(self.accessed.0) >= day)
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_class_decides_even_when_others_may_more() {
        let access = Access { mode: Mode::new(0o077), uid: Uid(7), gid: Gid(8) };
        let owner = Credentials { uid: Uid(7), gid: Gid(8), groups: vec![] };
        let member = Credentials { uid: Uid(9), gid: Gid(1), groups: vec![Gid(8)] };
        assert!(!access.allows(&owner, Permission::READ, FileType::Regular));
        assert!(access.allows(&member, Permission::CHANGE_ENTRIES, FileType::Directory));
    }

    #[test]
    fn a_change_by_anybody_but_root_takes_set_id_bits_away_and_a_member_leaves_one_that_says_nothing() {
        let other = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
        let cases = [(9, 0o6744, 0o2744), (9, 0o6754, 0o754), (8, 0o6744, 0o744), (9, 0o4744, 0o744)];
        for (gid, mode, after) in cases {
            let cleared = SetIds::by(&other).applied(Mode::new(mode), Gid(gid));
            assert_eq!(cleared, Mode::new(after), "{mode:o} of group {gid}");
            let kept = SetIds::by(&Credentials::ROOT).applied(Mode::new(mode), Gid(gid));
            assert_eq!(kept, Mode::new(mode));
        }
    }

    #[test]
    fn root_executes_only_what_somebody_may_execute() {
        let plain = Access { mode: Mode::new(0o600), uid: Uid(7), gid: Gid(8) };
        assert!(plain.allows(&Credentials::ROOT, Permission::WRITE, FileType::Regular));
        assert!(!plain.allows(&Credentials::ROOT, Permission::SEARCH, FileType::Regular));
        assert!(plain.allows(&Credentials::ROOT, Permission::SEARCH, FileType::Directory));
    }
}
