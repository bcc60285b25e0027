//! What is new.

use crate::client::NewNode;
use bearing_types::{Access, Acls, Attributes, Code, Credentials, FileType, Mode, Uid, Version, Wall};

/// The longest target of a symbolic link, in bytes (PATH_MAX without the final NUL).
const TARGET_BYTES_MAX: usize = 4095;

/// Whether a file, symbolic link or special file may be made so, wherever it goes. As mknod(2) has it,
/// devices are root's to make, but for what overlay filesystems put where a name is gone. Codes:
/// `NotPermitted`, `InvalidArgument`; of the target of a link `NotFound` (empty), `NameTooLong`.
pub fn check_new(who: &Credentials, new: &NewNode) -> Result<(), Code> {
    let is_device = match new.file_type {
        FileType::BlockDevice => true,
        FileType::CharDevice => new.device != 0,
        FileType::Regular | FileType::Directory | FileType::Symlink | FileType::Fifo | FileType::Socket => {
            false
        }
    };
    if is_device && who.uid != Uid(0) {
        return Err(Code::NotPermitted);
    }
    match (new.file_type, new.target.len()) {
        (FileType::Directory, _) => Err(Code::InvalidArgument),
        (FileType::Symlink, 0) => Err(Code::NotFound),
        (FileType::Symlink, 1..=TARGET_BYTES_MAX) => Ok(()),
        (FileType::Symlink, _) => Err(Code::NameTooLong),
        (_, 0) => Ok(()),
        (_, _) => Err(Code::InvalidArgument),
    }
}

/// Owner, group, permission bits and lists of something that is made in a directory with this access and
/// these lists. A default list decides, with the bits that were asked for as the most it may give;
/// symbolic links have no lists. In a set-group-id directory what is new gets the directory's group, and
/// directories hand that on.
pub fn access_of_new(
    directory: Access,
    lists: &Acls,
    who: &Credentials,
    mode: Mode,
    file_type: FileType,
) -> (Access, Acls) {
    let default = lists.default.as_ref().filter(|_| file_type != FileType::Symlink);
    let (mode, access) = default.map_or((mode, None), |default| default.inherited(mode));
    let is_directory = file_type == FileType::Directory;
    let lists = Acls { access: access.map(Box::new), default: default.filter(|_| is_directory).cloned() };
    let (gid, handed_on) = match directory.mode.has(Mode::SETGID) {
        true if is_directory => (directory.gid, u32::from(Mode::SETGID)),
        true => (directory.gid, 0),
        false => (who.gid, 0),
    };
    (Access { mode: Mode::new(mode.bits() | handed_on), uid: who.uid, gid }, lists)
}

/// Attributes of a new file, symbolic link or special file.
pub fn attributes_of_new(new: &NewNode, access: Access, now: Wall) -> Attributes {
    let size = new.target.len() as u64;
    Attributes { size, device: new.device, ..attributes(new.file_type, 1, access, now) }
}

/// Attributes of a new directory: its name and its own `.` lead to it.
pub fn attributes_of_new_directory(access: Access, now: Wall) -> Attributes {
    attributes(FileType::Directory, 2, access, now)
}

fn attributes(file_type: FileType, links: u32, access: Access, now: Wall) -> Attributes {
    let Access { mode, uid, gid } = access;
    Attributes {
        file_type,
        mode,
        uid,
        gid,
        links,
        size: 0,
        space: 0,
        device: 0,
        accessed: now,
        modified: now,
        changed: now,
        born: now,
        version: Version(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Acl, Gid, Named};

    fn directory(mode: u32) -> Access {
        Access { mode: Mode::new(mode), uid: Uid(1), gid: Gid(2) }
    }

    fn new(file_type: FileType, device: u32, target: &[u8]) -> NewNode {
        NewNode { file_type, mode: Mode::new(0o777), device, target: target.to_vec() }
    }

    #[test]
    fn devices_are_roots_to_make_and_links_lead_somewhere() {
        let user = &Credentials { uid: Uid(7), gid: Gid(8), groups: vec![] };
        let root = &Credentials::ROOT;
        let longest = [b'x'; TARGET_BYTES_MAX + 1];
        use FileType::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
        for (who, file_type, device, target, checked) in [
            (user, Regular, 0, &b""[..], Ok(())),
            (user, Fifo, 0, b"", Ok(())),
            (user, Socket, 0, b"", Ok(())),
            (user, Regular, 0, b"x", Err(Code::InvalidArgument)),
            (user, Directory, 0, b"", Err(Code::InvalidArgument)),
            (user, Symlink, 0, b"", Err(Code::NotFound)),
            (user, Symlink, 0, &longest[1..], Ok(())),
            (user, Symlink, 0, &longest, Err(Code::NameTooLong)),
            (user, CharDevice, 0, b"", Ok(())),
            (user, CharDevice, 3, b"", Err(Code::NotPermitted)),
            (user, BlockDevice, 0, b"", Err(Code::NotPermitted)),
            (root, CharDevice, 3, b"", Ok(())),
            (root, BlockDevice, 0, b"", Ok(())),
        ] {
            let made = check_new(who, &new(file_type, device, target));
            assert_eq!(made, checked, "{file_type:?} {device} {} {who:?}", target.len());
        }
    }

    #[test]
    fn a_set_group_id_directory_hands_its_group_on_and_that_bit_to_directories() {
        let who = Credentials { uid: Uid(7), gid: Gid(8), groups: vec![] };
        for (parent, file_type, gid, mode) in [
            (0o755, FileType::Regular, 8, 0o640),
            (0o755, FileType::Directory, 8, 0o640),
            (0o2755, FileType::Regular, 2, 0o640),
            (0o2755, FileType::Symlink, 2, 0o640),
            (0o2755, FileType::Directory, 2, 0o2640),
        ] {
            let (none, asked) = (Acls::default(), Mode::new(0o640));
            let (access, lists) = access_of_new(directory(parent), &none, &who, asked, file_type);
            assert_eq!(access, Access { mode: Mode::new(mode), uid: Uid(7), gid: Gid(gid) }, "{file_type:?}");
            assert!(lists.is_empty());
        }
    }

    #[test]
    fn a_default_list_limits_what_is_new_and_goes_on_to_directories_alone() {
        let named = Named { users: vec![(Uid(9), 7)], group: 5, groups: vec![] };
        let default = Acl { owner: 7, other: 0, named, mask: Some(5) };
        let lists = Acls { access: None, default: Some(Box::new(default)) };
        let who = Credentials::ROOT;
        for (file_type, mode, listed, goes_on) in [
            (FileType::Regular, 0o640, true, false),
            (FileType::Directory, 0o640, true, true),
            (FileType::Symlink, 0o646, false, false),
        ] {
            let (access, new) = access_of_new(directory(0o755), &lists, &who, Mode::new(0o646), file_type);
            assert_eq!((access.mode, new.access.is_some()), (Mode::new(mode), listed), "{file_type:?}");
            assert_eq!(new.default.is_some(), goes_on, "{file_type:?}");
        }
    }

    #[test]
    fn what_is_new_has_one_name_and_a_directory_two() {
        let link = attributes_of_new(&new(FileType::Symlink, 0, b"there"), directory(0o755), Wall(5));
        assert_eq!((link.links, link.size, link.space, link.born), (1, 5, 0, Wall(5)));
        let device = attributes_of_new(&new(FileType::CharDevice, 3, b""), directory(0o755), Wall(5));
        assert_eq!((device.device, device.size), (3, 0));
        let made = attributes_of_new_directory(directory(0o755), Wall(5));
        let times = [made.accessed, made.modified, made.changed, made.born];
        assert_eq!((made.links, times), (2, [Wall(5); 4]));
    }
}
