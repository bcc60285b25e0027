//! Kernel requests as operations: the state that all requests share, and the operations on names and
//! attributes.
//!
//! Invariants: no policy, the machine decides; a node is counted as told (see [`crate::inodes`]) before its
//! reply leaves. Operations on open files are in [`crate::files`], on open directories in
//! [`crate::directories`]. Nothing here must know how a reply is encoded.

use crate::attributes::{Kept, kind_of_mode};
use crate::directories::Directories;
use crate::files::Files;
use crate::gate::Trust;
use crate::inodes::{Inode, Inodes};
use crate::locks::Lockers;
use bearing_mount::trash::{Day, Removal, Trash};
use bearing_mount::{AttributeChange, Caller, Found, Handle, NewNode, Operation, RenameMode};
use bearing_types::{Code, Credentials, FileType, Mode, Name, Outcome, XattrName, XattrSpace};
use fuser::{INodeNo, RenameFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A node as the kernel is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Its number.
    pub number: INodeNo,
    /// The node.
    pub found: Found,
}

impl Told {
    /// How long the kernel may keep it.
    pub fn kept(&self, trust: Trust) -> Kept {
        Kept::of(&self.found, trust)
    }
}

/// The state behind one mounted directory.
pub(crate) struct Bridge {
    /// Runs operations.
    pub caller: Arc<dyn Caller>,
    /// What the kernel knows.
    pub inodes: Inodes,
    /// Open files.
    pub files: Files,
    /// Open directories.
    pub directories: Directories,
    /// Who may hold locks.
    pub lockers: Lockers,
    /// What is removed goes there.
    pub trash: Option<Arc<Trash>>,
    /// The kernel keeps no bytes of files.
    pub linearizable: bool,
}

impl Bridge {
    /// A bridge to a filesystem with this root.
    pub fn new(caller: Arc<dyn Caller>, root: Handle) -> Bridge {
        Bridge {
            caller,
            inodes: Inodes::new(root),
            files: Files::default(),
            directories: Directories::default(),
            lockers: Lockers::default(),
            trash: None,
            linearizable: false,
        }
    }

    /// The same where the kernel keeps no bytes of files: another client may be writing them.
    pub fn with_consistency(self, linearizable: bool) -> Bridge {
        Bridge { linearizable, ..self }
    }

    /// The same with a trash.
    pub fn with_trash(self, trash: Option<Arc<Trash>>) -> Bridge {
        Bridge { trash, ..self }
    }

    /// Moves a name to the trash if there is one. Whether it is gone by that.
    fn is_kept(&self, directory: Handle, name: &Name, kind: FileType, who: &Credentials) -> Outcome<bool> {
        let Some(trash) = &self.trash else { return Ok(false) };
        Ok(trash.take(directory, name, kind, who, Day::today())? == Removal::Kept)
    }

    /// What a number stands for; a number that was forgotten is stale.
    pub fn inode(&self, number: INodeNo) -> Outcome<Inode> {
        self.inodes.get(number).ok_or(Code::Stale)
    }

    /// The node behind a number.
    pub fn handle(&self, number: INodeNo) -> Outcome<Handle> {
        self.inode(number).map(|inode| inode.handle)
    }

    /// Counts that the kernel is told of a node.
    pub fn tell(&self, found: Found) -> Told {
        Told { number: self.inodes.tell(&found), found }
    }

    /// A name in a directory.
    pub fn lookup(&self, parent: INodeNo, name: &OsStr, who: Credentials) -> Outcome<Told> {
        let directory = self.handle(parent)?;
        let name = entry_name(name)?;
        let found = self.caller.found(Operation::Lookup { directory, name, who });
        self.named_in(directory, found).map(|found| self.tell(found))
    }

    /// Attributes of a node that the kernel knows.
    pub fn attributes(&self, number: INodeNo) -> Outcome<Found> {
        let Inode { handle: node, file_type } = self.inode(number)?;
        let found = self.caller.found(Operation::Attributes { node, file_type });
        match found {
            Err(Code::Stale) => self.removed(node).ok_or(Code::Stale),
            found => found,
        }
    }

    /// Changes attributes; through an open file if the kernel names one that is open for writing.
    pub fn set_attributes(
        &self,
        number: INodeNo,
        change: AttributeChange,
        file: Option<u64>,
        who: Credentials,
    ) -> Outcome<Found> {
        if change == AttributeChange::default() {
            return self.attributes(number);
        }
        let Inode { handle: node, file_type } = self.inode(number)?;
        let file = file.and_then(|file| self.files.writable(file));
        self.caller.found(Operation::SetAttributes { node, file_type, who, change, file })
    }

    /// The mode that something new is asked for with. The umask counts unless the directory has a default
    /// access control list.
    pub fn masked(&self, parent: INodeNo, mode: u32, umask: u32, who: &Credentials) -> Outcome<u32> {
        let umask = umask & 0o777;
        let list = XattrName::of_list(XattrSpace::DefaultList).filter(|_| mode & umask != 0);
        let Some(name) = list else { return Ok(mode) };
        let (node, who) = (self.handle(parent)?, who.clone());
        // Mostly answered from what is known of the directory.
        let asked = Operation::Xattr { node, file_type: FileType::Directory, who, name };
        match self.named_in(node, self.caller.bytes(asked)) {
            Ok(_) => Ok(mode),
            Err(Code::NoData) => Ok(mode & !umask),
            Err(code) => Err(code),
        }
    }

    /// Makes a file or special file without opening it.
    pub fn make_node(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        device: u32,
        who: Credentials,
    ) -> Outcome<Told> {
        let file_type = kind_of_mode(mode).ok_or(Code::InvalidArgument)?;
        let device =
            if matches!(file_type, FileType::CharDevice | FileType::BlockDevice) { device } else { 0 };
        let new = NewNode { file_type, mode: Mode::new(mode), device, target: Vec::new() };
        self.create(parent, name, new, who)
    }

    /// Makes a symbolic link.
    pub fn make_link(
        &self,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        who: Credentials,
    ) -> Outcome<Told> {
        let new = NewNode {
            file_type: FileType::Symlink,
            mode: Mode::new(0o777),
            device: 0,
            target: target.as_bytes().to_vec(),
        };
        self.create(parent, name, new, who)
    }

    fn create(&self, parent: INodeNo, name: &OsStr, new: NewNode, who: Credentials) -> Outcome<Told> {
        let directory = self.handle(parent)?;
        let name = entry_name(name)?;
        let create = Operation::Create { directory, name, who, new, open: false };
        let found = self.caller.found(create);
        self.named_in(directory, found).map(|found| self.tell(found))
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: Mode,
        who: Credentials,
    ) -> Outcome<Told> {
        let directory = self.handle(parent)?;
        let name = entry_name(name)?;
        let make = Operation::MakeDirectory { directory, name, who, mode };
        let found = self.caller.found(make);
        self.named_in(directory, found).map(|found| self.tell(found))
    }

    /// Removes a name that is no directory.
    pub fn unlink(&self, parent: INodeNo, name: &OsStr, who: Credentials) -> Outcome<()> {
        let (directory, name) = (self.handle(parent)?, entry_name(name)?);
        if self.is_kept(directory, &name, FileType::Regular, &who)? {
            return Ok(());
        }
        let removed = self.caller.done(Operation::Unlink { directory, name, who });
        self.named_in(directory, removed)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: INodeNo, name: &OsStr, who: Credentials) -> Outcome<()> {
        let (directory, name) = (self.handle(parent)?, entry_name(name)?);
        if self.is_kept(directory, &name, FileType::Directory, &who)? {
            return Ok(());
        }
        let removed = self.caller.done(Operation::RemoveDirectory { directory, name, who });
        self.named_in(directory, removed)
    }

    /// Moves a name.
    pub fn rename(
        &self,
        source: (INodeNo, &OsStr),
        target: (INodeNo, &OsStr),
        flags: RenameFlags,
        who: Credentials,
    ) -> Outcome<()> {
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            // RENAME_WHITEOUT is for the upper layer of overlayfs, which has other needs that FUSE does not
            // meet either.
            _ => return Err(Code::InvalidArgument),
        };
        let (source_name, target_name) = (entry_name(source.1)?, entry_name(target.1)?);
        let (source, target) = (self.handle(source.0)?, self.handle(target.0)?);
        let moved =
            self.caller.done(Operation::Rename { source, source_name, target, target_name, who, mode });
        self.named_in(source, self.named_in(target, moved))
    }

    /// Gives a node a further name.
    pub fn link(&self, number: INodeNo, parent: INodeNo, name: &OsStr, who: Credentials) -> Outcome<Told> {
        let (node, directory) = (self.handle(number)?, self.handle(parent)?);
        let name = entry_name(name)?;
        let linked = self.caller.found(Operation::Link { node, directory, name, who });
        self.named_in(directory, linked).map(|found| self.tell(found))
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        self.caller.bytes(Operation::ReadLink { node: self.handle(number)? })
    }
}

/// A name as the kernel gives it.
pub(crate) fn entry_name(name: &OsStr) -> Outcome<Name> {
    Name::new(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, found, handle};
    use bearing_mount::Answer;

    fn bridge(answers: Vec<Outcome<Answer>>) -> (Arc<FakeCaller>, Bridge) {
        let caller = Arc::new(FakeCaller::answering(answers));
        (caller.clone(), Bridge::new(caller, handle(1)))
    }

    #[test]
    fn what_lookup_finds_can_be_asked_about_until_it_is_forgotten() {
        let (_, bridge) = bridge(vec![
            Ok(Answer::Found(found(5, FileType::Regular))),
            Ok(Answer::Found(found(5, FileType::Regular))),
        ]);
        let told = bridge.lookup(INodeNo::ROOT, OsStr::new("a"), Credentials::ROOT).unwrap();
        assert_eq!(told.number, INodeNo(5));
        assert!(bridge.attributes(INodeNo(5)).is_ok());
        bridge.inodes.forget(INodeNo(5), 1);
        assert_eq!(bridge.attributes(INodeNo(5)).unwrap_err(), Code::Stale);
    }

    #[test]
    fn a_name_that_is_too_long_never_reaches_a_server() {
        let (caller, bridge) = bridge(vec![]);
        let long = "x".repeat(256);
        let refused = bridge.lookup(INodeNo::ROOT, OsStr::new(&long), Credentials::ROOT);
        assert_eq!(refused.unwrap_err(), Code::NameTooLong);
        assert!(caller.asked().is_empty());
    }

    #[test]
    fn noreplace_and_exchange_are_passed_on_and_whiteout_is_refused() {
        let (caller, bridge) = bridge(vec![Ok(Answer::Done), Ok(Answer::Done)]);
        let (a, b) = ((INodeNo::ROOT, OsStr::new("a")), (INodeNo::ROOT, OsStr::new("b")));
        let whiteout = bridge.rename(a, b, RenameFlags::RENAME_WHITEOUT, Credentials::ROOT);
        assert_eq!(whiteout, Err(Code::InvalidArgument));
        bridge.rename(a, b, RenameFlags::RENAME_NOREPLACE, Credentials::ROOT).unwrap();
        bridge.rename(a, b, RenameFlags::RENAME_EXCHANGE, Credentials::ROOT).unwrap();
        let asked = caller.asked();
        let mode = |asked: &Operation| match asked {
            Operation::Rename { mode, .. } => *mode,
            other => panic!("{other:?}"),
        };
        let modes: Vec<RenameMode> = asked.iter().map(mode).collect();
        assert_eq!(modes, [RenameMode::NoReplace, RenameMode::Exchange]);
    }

    #[test]
    fn a_change_of_nothing_is_answered_with_the_attributes() {
        let (caller, bridge) = bridge(vec![Ok(Answer::Found(found(1, FileType::Directory)))]);
        bridge.set_attributes(INodeNo::ROOT, AttributeChange::default(), None, Credentials::ROOT).unwrap();
        assert!(matches!(caller.asked()[..], [Operation::Attributes { .. }]));
    }

    #[test]
    fn the_umask_counts_unless_a_default_list_stands_for_it_and_is_not_asked_about_in_vain() {
        let (caller, bridge) = bridge(vec![Err(Code::NoData), Ok(Answer::Xattr(vec![1])), Err(Code::Stale)]);
        let masked = |mode| bridge.masked(INodeNo::ROOT, mode, 0o022, &Credentials::ROOT);
        assert_eq!(masked(0o644), Ok(0o644));
        assert!(caller.asked().is_empty());
        assert_eq!((masked(0o666), masked(0o666), masked(0o666)), (Ok(0o644), Ok(0o666), Err(Code::Stale)));
    }

    #[test]
    fn mknod_makes_no_directories_and_gives_plain_files_no_device() {
        let (caller, bridge) = bridge(vec![Ok(Answer::Found(found(5, FileType::Regular)))]);
        let name = OsStr::new("a");
        let refused = bridge.make_node(INodeNo::ROOT, name, libc::S_IFDIR | 0o755, 0, Credentials::ROOT);
        assert_eq!(refused.unwrap_err(), Code::InvalidArgument);
        bridge.make_node(INodeNo::ROOT, name, libc::S_IFREG | 0o644, 99, Credentials::ROOT).unwrap();
        let asked = caller.asked();
        let [Operation::Create { new, open: false, .. }] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((new.device, new.mode.bits()), (0, 0o644));
    }
}
