//! What becomes of the attributes of a node that exists.

use crate::client::{AttributeChange, TimeChange};
use bearing_types::{Attributes, Code, Credentials, FileType, Mode, Named, Permission, SetIds, Uid, Wall};

/// The largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The node was changed. Time stands still rather than going back; the version always grows.
pub fn touch(attributes: &mut Attributes, now: Wall) {
    attributes.changed = attributes.changed.max(now);
    attributes.version = attributes.version.next();
}

/// Whether a user may change what only the owner may.
pub fn owns(who: &Credentials, attributes: &Attributes) -> bool {
    who.uid == Uid(0) || who.uid == attributes.uid
}

/// Who asks for a change of attributes.
#[derive(Clone, Copy, Debug)]
pub struct Changer<'a> {
    /// The user.
    pub who: &'a Credentials,
    /// The node's access control list.
    pub list: Option<&'a Named>,
    /// It is asked through a file that is open for writing.
    pub has_open: bool,
}

impl Changer<'_> {
    fn may_write(self, attributes: &Attributes) -> bool {
        let access = attributes.access();
        access.allows_with(self.list, self.who, Permission::WRITE, attributes.file_type)
    }
}

/// Attributes of a node after a change that somebody asks for. Of a directory these are its own, without
/// what its entries add. What a file that gets shorter frees is not taken off its space. Codes:
/// `NotPermitted`, `Access`; of a change of size `IsDirectory`, `InvalidArgument` (no file), `TooLarge`.
pub fn changed(
    before: &Attributes,
    changer: Changer,
    change: &AttributeChange,
    now: Wall,
) -> Result<Attributes, Code> {
    let Changer { who, .. } = changer;
    check_times(before, changer, change)?;
    let mut attributes = *before;
    if let Some(mode) = change.mode {
        set_mode(&mut attributes, who, mode)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        set_owner(&mut attributes, who, change)?;
    }
    if let Some(size) = change.size {
        check_resized(&attributes, changer, size)?;
        resize(&mut attributes, size, SetIds::by(who), now);
    }
    // As the node tells time: never before its last change, whatever this clock says.
    let present = now.max(before.changed);
    let time = |was: Wall, wish: Option<TimeChange>| match wish {
        None => was,
        Some(TimeChange::Now) => present,
        Some(TimeChange::To(to)) => to,
    };
    attributes.accessed = time(attributes.accessed, change.accessed);
    attributes.modified = time(attributes.modified, change.modified);
    touch(&mut attributes, now);
    Ok(attributes)
}

/// chmod(2): only the owner may, and nobody makes programs run for a group that is not his.
pub fn set_mode(attributes: &mut Attributes, who: &Credentials, mode: Mode) -> Result<(), Code> {
    if !owns(who, attributes) {
        return Err(Code::NotPermitted);
    }
    let foreign_group = who.uid != Uid(0) && !who.in_group(attributes.gid);
    attributes.mode = if foreign_group { mode.without(Mode::SETGID) } else { mode };
    Ok(())
}

/// Cuts or lengthens a file. What it frees is not taken off its space.
pub fn resize(attributes: &mut Attributes, size: u64, set_ids: SetIds, now: Wall) {
    attributes.size = size;
    attributes.modified = attributes.modified.max(now);
    attributes.mode = set_ids.applied(attributes.mode, attributes.gid);
}

/// Notes that a file was read. Neither its version nor its time of change grows. Whether there was
/// anything to note: not every read is (see [`Attributes::notes_access`]), and none of before the last
/// change, which somebody may have made who said what the time of access shall be.
pub fn note_access(attributes: &mut Attributes, at: Wall, now: Wall) -> bool {
    let at = at.min(now);
    let notes = at >= attributes.changed && attributes.notes_access(at);
    if notes {
        attributes.accessed = at;
    }
    notes
}

/// What a commit does to a file.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// Bytes that are stored now.
    pub added: u64,
    /// Bytes that were covered by these and are let go of, as far as the caller knows.
    pub freed: u64,
    /// The file is at least so long.
    pub size_min: u64,
    /// When it was written. No later than the present.
    pub modified: Wall,
    /// What becomes of set-id bits.
    pub set_ids: SetIds,
}

/// Attributes of a file after a commit of written bytes, or after a hole was made in it.
pub fn committed(before: &Attributes, committed: Committed, now: Wall) -> Attributes {
    let Committed { added, freed, size_min, modified, set_ids } = committed;
    let mut attributes = *before;
    attributes.space = attributes.space.saturating_add(added).saturating_sub(freed);
    resize(&mut attributes, before.size.max(size_min), set_ids, modified.min(now));
    touch(&mut attributes, now);
    attributes
}

// utimensat(2): anybody who may write may set both times to now; other times only the owner.
fn check_times(attributes: &Attributes, changer: Changer, change: &AttributeChange) -> Result<(), Code> {
    let times = [change.accessed, change.modified];
    if owns(changer.who, attributes) || times == [None, None] {
        return Ok(());
    }
    if times.iter().flatten().any(|time| *time != TimeChange::Now) {
        return Err(Code::NotPermitted);
    }
    // A truncate sets the modification time along with the size, which has its own check.
    if changer.may_write(attributes) || change.size.is_some() { Ok(()) } else { Err(Code::Access) }
}

fn set_owner(attributes: &mut Attributes, who: &Credentials, change: &AttributeChange) -> Result<(), Code> {
    let (uid, gid) = (change.uid.unwrap_or(attributes.uid), change.gid.unwrap_or(attributes.gid));
    let keeps_owner = owns(who, attributes) && uid == attributes.uid;
    let allowed = who.uid == Uid(0) || keeps_owner && (gid == attributes.gid || who.in_group(gid));
    if !allowed {
        return Err(Code::NotPermitted);
    }
    (attributes.uid, attributes.gid) = (uid, gid);
    // chown(2): whoever asks, root too, as Linux does it. Set-group-id where the group may not execute is
    // no such right, and stays.
    if !attributes.is_directory() {
        let group_executes = attributes.mode.has(0o010);
        let rights = if group_executes { Mode::SETUID | Mode::SETGID } else { Mode::SETUID };
        attributes.mode = attributes.mode.without(rights);
    }
    Ok(())
}

fn check_resized(attributes: &Attributes, changer: Changer, size: u64) -> Result<(), Code> {
    match attributes.file_type {
        FileType::Regular if !changer.has_open && !changer.may_write(attributes) => Err(Code::Access),
        FileType::Regular if size > FILE_BYTES_MAX => Err(Code::TooLarge),
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Code::IsDirectory),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharDevice
        | FileType::BlockDevice => Err(Code::InvalidArgument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Access, Gid, Version};

    const OWNER: Credentials = Credentials { uid: Uid(7), gid: Gid(8), groups: Vec::new() };
    const MEMBER: Credentials = Credentials { uid: Uid(6), gid: Gid(9), groups: Vec::new() };
    const OTHER: Credentials = Credentials { uid: Uid(5), gid: Gid(5), groups: Vec::new() };
    const ROOT: Credentials = Credentials::ROOT;

    /// Of the owner, in a group that is not the owner's.
    fn node(file_type: FileType, mode: u32) -> Attributes {
        let access = Access { mode: Mode::new(mode), uid: OWNER.uid, gid: MEMBER.gid };
        let directory = crate::rules::attributes_of_new_directory(access, Wall(10));
        Attributes { file_type, ..directory }
    }

    fn ask(before: &Attributes, who: &Credentials, change: AttributeChange) -> Result<Attributes, Code> {
        let changer = Changer { who, list: None, has_open: false };
        changed(before, changer, &change, Wall(20))
    }

    #[test]
    fn the_mode_is_the_owners_to_change_and_set_group_id_is_for_members() {
        let before = node(FileType::Regular, 0o644);
        let wish = AttributeChange { mode: Some(Mode::new(0o6755)), ..AttributeChange::default() };
        for (who, after) in [
            (&OWNER, Ok(0o4755)),
            (&ROOT, Ok(0o6755)),
            (&MEMBER, Err(Code::NotPermitted)),
            (&OTHER, Err(Code::NotPermitted)),
        ] {
            assert_eq!(ask(&before, who, wish).map(|after| after.mode.bits()), after, "{who:?}");
        }
    }

    #[test]
    fn a_new_owner_takes_set_id_bits_away_but_not_from_directories() {
        let both = Credentials { groups: vec![MEMBER.gid], ..OWNER };
        let (file, directory) = (FileType::Regular, FileType::Directory);
        let refused = Err(Code::NotPermitted);
        for (who, file_type, mode, (uid, gid), after) in [
            (&ROOT, file, 0o6755, (Some(1), None), Ok(0o755)),
            (&ROOT, file, 0o6745, (None, Some(1)), Ok(0o2745)),
            (&ROOT, directory, 0o6755, (Some(1), Some(1)), Ok(0o6755)),
            (&OWNER, file, 0o4755, (Some(7), Some(8)), Ok(0o755)),
            (&OWNER, file, 0o755, (None, Some(1)), refused),
            (&OWNER, file, 0o755, (Some(1), None), refused),
            (&both, directory, 0o2755, (None, Some(9)), Ok(0o2755)),
            (&MEMBER, file, 0o777, (None, Some(9)), refused),
        ] {
            let wish = AttributeChange { uid: uid.map(Uid), gid: gid.map(Gid), ..AttributeChange::default() };
            let made = ask(&node(file_type, mode), who, wish);
            assert_eq!(made.map(|after| after.mode.bits()), after, "{who:?} {mode:o} {uid:?} {gid:?}");
            let ids = made.map(|after| (after.uid.0, after.gid.0));
            assert!(ids.is_err() || ids == Ok((uid.unwrap_or(7), gid.unwrap_or(9))), "{ids:?}");
        }
    }

    #[test]
    fn who_may_write_sets_times_to_now_and_the_owner_to_anything() {
        let (now, then) = (Some(TimeChange::Now), Some(TimeChange::To(Wall(3))));
        for (who, mode, accessed, modified, after) in [
            (&OWNER, 0o000, then, None, Ok((3, 10))),
            (&OWNER, 0o000, now, then, Ok((20, 3))),
            (&MEMBER, 0o620, now, now, Ok((20, 20))),
            (&MEMBER, 0o620, now, then, Err(Code::NotPermitted)),
            (&MEMBER, 0o640, now, now, Err(Code::Access)),
            (&ROOT, 0o000, then, then, Ok((3, 3))),
        ] {
            let wish = AttributeChange { accessed, modified, ..AttributeChange::default() };
            let made = ask(&node(FileType::Fifo, mode), who, wish);
            assert_eq!(made.map(|after| (after.accessed.0, after.modified.0)), after, "{who:?} {mode:o}");
        }
    }

    #[test]
    fn a_size_is_for_files_and_for_those_who_may_write_them_after_the_rest_of_the_change() {
        let (file, size) =
            (FileType::Regular, AttributeChange { size: Some(5), ..AttributeChange::default() });
        let too_large = AttributeChange { size: Some(FILE_BYTES_MAX + 1), ..AttributeChange::default() };
        for (who, file_type, mode, wish, after) in [
            (&OWNER, file, 0o6755, size, Ok((5, 0o755))),
            (&OWNER, file, 0o400, size, Err(Code::Access)),
            (&OWNER, file, 0o400, AttributeChange { mode: Some(Mode::new(0o600)), ..size }, Ok((5, 0o600))),
            (&MEMBER, file, 0o2664, size, Ok((5, 0o2664))),
            (&MEMBER, file, 0o2674, size, Ok((5, 0o674))),
            (&ROOT, file, 0o6755, size, Ok((5, 0o6755))),
            (&ROOT, file, 0o600, too_large, Err(Code::TooLarge)),
            (&ROOT, FileType::Directory, 0o700, size, Err(Code::IsDirectory)),
            (&ROOT, FileType::Symlink, 0o777, size, Err(Code::InvalidArgument)),
        ] {
            let made = ask(&node(file_type, mode), who, wish);
            assert_eq!(made.map(|after| (after.size, after.mode.bits())), after, "{who:?} {mode:o}");
        }
        let changer = Changer { who: &OTHER, list: None, has_open: true };
        assert!(changed(&node(file, 0o600), changer, &size, Wall(20)).is_ok(), "it has the file open");
    }

    #[test]
    fn a_read_is_noted_once_after_a_change_and_is_of_no_time_to_come() {
        let day = 24 * 60 * 60 * 1_000_000_000;
        for (accessed, at, now, after) in [
            (10, 12, 20, Some(12)),
            (10, 99, 20, Some(20)),
            (10, 9, 20, None),
            (11, 12, 20, None),
            (11, 11 + day, 12 + day, Some(11 + day)),
        ] {
            let mut file = Attributes { accessed: Wall(accessed), ..node(FileType::Regular, 0o644) };
            let noted = note_access(&mut file, Wall(at), Wall(now));
            assert_eq!((noted, file.accessed), (after.is_some(), Wall(after.unwrap_or(accessed))), "{at}");
            assert_eq!((file.changed, file.version), (Wall(10), Version(1)));
        }
        let mut file = Attributes { changed: Wall(15), ..node(FileType::Regular, 0o644) };
        assert!(!note_access(&mut file, Wall(14), Wall(20)), "it was changed since");
    }

    #[test]
    fn a_commit_makes_no_file_shorter_and_is_of_no_time_to_come() {
        let before = Attributes { size: 100, space: 60, ..node(FileType::Regular, 0o6755) };
        let plain =
            Committed { added: 50, freed: 20, size_min: 30, modified: Wall(15), set_ids: SetIds::Keep };
        for (commit, size, space, modified, mode) in [
            (plain, 100, 90, 15, 0o6755),
            (Committed { size_min: 130, ..plain }, 130, 90, 15, 0o6755),
            (Committed { freed: 200, ..plain }, 100, 0, 15, 0o6755),
            (Committed { modified: Wall(99), ..plain }, 100, 90, 20, 0o6755),
            (Committed { modified: Wall(5), ..plain }, 100, 90, 10, 0o6755),
            (Committed { set_ids: SetIds::Clear(Gid(1)), ..plain }, 100, 90, 15, 0o755),
        ] {
            let after = committed(&before, commit, Wall(20));
            let told = (after.size, after.space, after.modified.0, after.mode.bits());
            assert_eq!(told, (size, space, modified, mode), "{commit:?}");
            assert_eq!((after.changed, after.version), (Wall(20), before.version.next()));
        }
    }

    #[test]
    fn a_list_lets_its_users_write() {
        let list = Named { users: vec![(OTHER.uid, 6)], ..Named::default() };
        let before = node(FileType::Regular, 0o660);
        let now = Some(TimeChange::Now);
        for wish in [
            AttributeChange { size: Some(0), ..AttributeChange::default() },
            AttributeChange { accessed: now, modified: now, ..AttributeChange::default() },
        ] {
            let changer = Changer { who: &OTHER, list: Some(&list), has_open: false };
            assert!(changed(&before, changer, &wish, Wall(20)).is_ok());
            assert_eq!(ask(&before, &OTHER, wish), Err(Code::Access));
        }
    }

    #[test]
    fn the_present_is_never_before_the_last_change() {
        let before = Attributes { changed: Wall(30), ..node(FileType::Regular, 0o644) };
        let now = Some(TimeChange::Now);
        let wish = AttributeChange { accessed: now, modified: now, ..AttributeChange::default() };
        let after = ask(&before, &OWNER, wish).unwrap();
        assert_eq!((after.accessed, after.modified, after.changed), (Wall(30), Wall(30), Wall(30)));
        assert_eq!((before.version, after.version), (Version(1), Version(2)));
    }
}
