//! The operations of crash cases, on a directory that has the files `a` and `b` with synced bytes, and the
//! empty directory `s`.

use crate::program::Program;
use bearing_proto::client::{AttributeChange, Handle, NewNode, RenameMode, XattrChange, XattrMode};
use bearing_proto::operation::Operation;
use bearing_types::{Credentials, FileType, Mode, Name, XattrName};
use bearing_workload::{Action, FileSteps};

/// Bytes that `a` and `b` begin with.
pub const BASE_BYTES: u64 = 1_500;

/// One operation. The text is its name in a case's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Makes the file `n`.
    Create,
    /// Makes `n`, writes and syncs it.
    CreateSync,
    /// Makes the directory `m`.
    MakeDirectory,
    /// Makes a symbolic link.
    Symlink,
    /// Removes `b`.
    Unlink,
    /// Opens `b`, removes it, writes it, syncs it, closes it.
    UnlinkOpen,
    /// Removes `s`.
    RemoveDirectory,
    /// `a` becomes `r`.
    Rename,
    /// `a` takes the place of `b`.
    RenameOver,
    /// `a` goes to `s`.
    RenameAway,
    /// `a` and `b` change places.
    Exchange,
    /// `a` is also `l`.
    Link,
    /// Permission bits of the file.
    Chmod,
    /// The file is cut by its name.
    Truncate,
    /// The file is cut when it is opened, written and closed.
    Overwrite,
    /// The file is written and closed.
    Write,
    /// The file is written, synced, written again and closed.
    WriteSync,
    /// Bytes are appended, and the file is closed.
    Append,
    /// Bytes are appended and synced.
    AppendSync,
    /// The file is cut while it is open, and synced.
    Resize,
    /// A hole in the file.
    Punch,
    /// The file's bytes are copied behind a hole at its end, and synced.
    Copy,
    /// An extended attribute.
    SetXattr,
    /// What fsync of the directory asks for.
    SyncDirectory,
    /// What fsync of the root asks for.
    SyncAll,
    /// Another client lists the directory.
    Look,
}

/// What a step is made of.
pub enum Doing {
    /// A program of the client that works.
    Work(Program),
    /// First makes the file, then writes it.
    MakeAndWrite(Program),
    /// A sync of this client's.
    SyncNames,
    /// A sync of everything of this client's.
    SyncAll,
    /// A program of another client.
    Look(Program),
}

/// What steps are done on.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The directory.
    pub directory: Handle,
    /// The file that is written: `a`, or what was made last.
    pub file: Handle,
    /// `a`.
    pub a: Handle,
    /// `b`.
    pub b: Handle,
    /// `s`.
    pub s: Handle,
}

impl Step {
    /// All of them.
    pub const ALL: [(&'static str, Step); 26] = [
        ("create", Step::Create),
        ("create-sync", Step::CreateSync),
        ("mkdir", Step::MakeDirectory),
        ("symlink", Step::Symlink),
        ("unlink", Step::Unlink),
        ("unlink-open", Step::UnlinkOpen),
        ("rmdir", Step::RemoveDirectory),
        ("rename", Step::Rename),
        ("rename-over", Step::RenameOver),
        ("rename-away", Step::RenameAway),
        ("exchange", Step::Exchange),
        ("link", Step::Link),
        ("chmod", Step::Chmod),
        ("truncate", Step::Truncate),
        ("overwrite", Step::Overwrite),
        ("write", Step::Write),
        ("write-sync", Step::WriteSync),
        ("append", Step::Append),
        ("append-sync", Step::AppendSync),
        ("resize", Step::Resize),
        ("punch", Step::Punch),
        ("copy", Step::Copy),
        ("setxattr", Step::SetXattr),
        ("sync-directory", Step::SyncDirectory),
        ("sync-all", Step::SyncAll),
        ("look", Step::Look),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let (name, _) = Step::ALL.into_iter().find(|(_, step)| *step == self).expect("all are listed");
        name
    }

    /// The step of a name.
    pub fn named(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, step)| step)
    }

    /// What it does. The number tells the bytes of one step from those of another.
    pub fn doing(self, places: &Places, number: u8) -> Doing {
        let Places { directory, file, a, b, s } = *places;
        let rename = |target: Handle, to: &str, mode| Operation::Rename {
            source: directory,
            source_name: name("a"),
            target,
            target_name: name(to),
            who: Credentials::ROOT,
            mode,
        };
        let write = |offset, length| FileSteps::Write { offset, bytes: bytes(length, number) };
        let append = |length| FileSteps::Append { bytes: bytes(length, number), record: None };
        match self {
            Step::Create => work(create(directory, "n")),
            Step::CreateSync => Doing::MakeAndWrite(Program::new(create(directory, "n"))),
            Step::MakeDirectory => work(make_directory(directory, "m")),
            Step::Symlink => {
                let new = NewNode { file_type: FileType::Symlink, target: b"a".to_vec(), ..regular() };
                work(Operation::Create {
                    directory,
                    name: name("y"),
                    who: Credentials::ROOT,
                    new,
                    open: false,
                })
            }
            Step::Unlink => work(Operation::Unlink { directory, name: name("b"), who: Credentials::ROOT }),
            Step::UnlinkOpen => {
                let unlink = FileSteps::Unlink { directory, name: name("b") };
                work(opened(b, false, vec![unlink, write(100, 900), FileSteps::Sync]))
            }
            Step::RemoveDirectory => {
                work(Operation::RemoveDirectory { directory, name: name("s"), who: Credentials::ROOT })
            }
            Step::Rename => work(rename(directory, "r", RenameMode::Replace)),
            Step::RenameOver => work(rename(directory, "b", RenameMode::Replace)),
            Step::RenameAway => work(rename(s, "r", RenameMode::Replace)),
            Step::Exchange => work(rename(directory, "b", RenameMode::Exchange)),
            Step::Link => {
                work(Operation::Link { node: a, directory, name: name("l"), who: Credentials::ROOT })
            }
            Step::Chmod => {
                let change = AttributeChange { mode: Some(Mode::new(0o640)), ..AttributeChange::default() };
                work(set_attributes(file, change))
            }
            Step::Truncate => {
                let change = AttributeChange { size: Some(700), ..AttributeChange::default() };
                work(set_attributes(file, change))
            }
            Step::Overwrite => work(opened(file, true, vec![write(0, 2_000)])),
            Step::Write => work(opened(file, false, vec![write(1_000, 1_000)])),
            Step::WriteSync => {
                work(opened(file, false, vec![write(1_000, 1_000), FileSteps::Sync, write(0, 300)]))
            }
            Step::Append => work(opened(file, false, vec![append(800)])),
            Step::AppendSync => work(opened(file, false, vec![append(800), FileSteps::Sync])),
            Step::Resize => work(opened(file, false, vec![FileSteps::Resize { size: 333 }, FileSteps::Sync])),
            Step::Punch => {
                let punch = FileSteps::MakeHole { start: 200, end: 800, size_min: 0 };
                work(opened(file, false, vec![punch, FileSteps::Sync]))
            }
            Step::Copy => {
                let copy = FileSteps::Copy { from: 0, to: 2_000, length: 1_500 };
                work(opened(file, false, vec![write(0, 300), copy, FileSteps::Sync]))
            }
            Step::SetXattr => work(Operation::SetXattr {
                node: file,
                file_type: FileType::Regular,
                who: Credentials::ROOT,
                name: XattrName::new(b"user.x").expect("a plain name"),
                change: XattrChange::Set { value: bytes(40, number), mode: XattrMode::Any },
            }),
            Step::SyncDirectory => Doing::SyncNames,
            Step::SyncAll => Doing::SyncAll,
            Step::Look => {
                Doing::Look(Program::new(Action::List { directory, who: Credentials::ROOT, count_max: 16 }))
            }
        }
    }
}

fn work(action: impl Into<Action>) -> Doing {
    Doing::Work(Program::new(action))
}

/// Writes a new file and syncs it.
pub fn write_new(file: Handle, length: u64, number: u8) -> Program {
    let write = FileSteps::Write { offset: 0, bytes: bytes(length, number) };
    Program::new(opened(file, false, vec![write, FileSteps::Sync]))
}

/// Makes a file.
pub fn create(directory: Handle, called: &str) -> Operation {
    Operation::Create { directory, name: name(called), who: Credentials::ROOT, new: regular(), open: false }
}

/// Makes a directory.
pub fn make_directory(directory: Handle, called: &str) -> Operation {
    Operation::MakeDirectory { directory, name: name(called), who: Credentials::ROOT, mode: Mode::new(0o755) }
}

fn regular() -> NewNode {
    NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: Vec::new() }
}

fn set_attributes(node: Handle, change: AttributeChange) -> Operation {
    Operation::SetAttributes {
        node,
        file_type: FileType::Regular,
        who: Credentials::ROOT,
        change,
        file: None,
    }
}

fn opened(node: Handle, truncate: bool, steps: Vec<FileSteps>) -> Action {
    Action::File { node, who: Credentials::ROOT, read: true, write: true, truncate, steps }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a plain name")
}

fn bytes(length: u64, number: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(7).wrapping_add(number).wrapping_mul(31)).collect()
}
