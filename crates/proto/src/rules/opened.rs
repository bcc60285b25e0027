//! Who may open a file.

use bearing_types::{Attributes, Code, Credentials, Named, Permission};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenWish {
    /// To read it.
    pub read: bool,
    /// To write to it.
    pub write: bool,
    /// It is cut to nothing.
    pub truncate: bool,
    /// To execute it.
    pub execute: bool,
}

/// Whether somebody may open a file so, which has this access control list. Otherwise `Access`.
pub fn check_open(
    file: &Attributes,
    list: Option<&Named>,
    who: &Credentials,
    wish: OpenWish,
) -> Result<(), Code> {
    let may = |permission| file.access().allows_with(list, who, permission, file.file_type);
    // A program may be executed without being readable.
    let reads = match wish.execute {
        true => may(Permission::SEARCH),
        false => !wish.read || may(Permission::READ),
    };
    let writes = !(wish.write || wish.truncate) || may(Permission::WRITE);
    if reads && writes { Ok(()) } else { Err(Code::Access) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Access, FileType, Gid, Mode, Uid, Wall};

    #[test]
    fn a_program_is_executed_without_being_readable_and_what_is_cut_is_written_to() {
        let who = Credentials { uid: Uid(7), gid: Gid(8), groups: vec![] };
        let list = Named { users: vec![(who.uid, 4)], ..Named::default() };
        let plain = OpenWish { read: false, write: false, truncate: false, execute: false };
        let executes = OpenWish { read: true, execute: true, ..plain };
        for (mode, list, wish, may) in [
            (0o000, None, plain, true),
            (0o004, None, OpenWish { read: true, ..plain }, true),
            (0o002, None, OpenWish { read: true, ..plain }, false),
            (0o001, None, executes, true),
            (0o006, None, executes, false),
            (0o004, None, OpenWish { truncate: true, ..plain }, false),
            (0o004, None, OpenWish { read: true, write: true, ..plain }, false),
            (0o006, None, OpenWish { read: true, write: true, truncate: true, ..plain }, true),
            (0o040, Some(&list), OpenWish { read: true, ..plain }, true),
        ] {
            let access = Access { mode: Mode::new(mode), uid: Uid(1), gid: Gid(1) };
            let directory = crate::rules::attributes_of_new_directory(access, Wall(1));
            let file = Attributes { file_type: FileType::Regular, ..directory };
            let checked = check_open(&file, list, &who, wish);
            assert_eq!(checked, if may { Ok(()) } else { Err(Code::Access) }, "{mode:o} {wish:?}");
        }
    }
}
