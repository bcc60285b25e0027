//! What a worker of a client does: one operation, a whole listing, or a file from open to close.

use crate::kernel::{Hold, Locks};
use crate::tree::TreeRun;
use bearing_client::{Listed, OpenFile, Operation};
use bearing_proto::client::{AttributeChange, Detail, Handle};
use bearing_types::{
    Cookie, Credentials, FileType, Lock, LockOwner, LockRange, Mono, NodeId, SetIds, XattrSpace,
};
use bearing_workload::{Action, FileSteps, Mutation, OwnWrites, Piece, Query};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub enum Program {
    /// Nothing.
    Idle,
    /// One operation.
    Single(Operation),
    /// A listing, part by part.
    Listing(Listing),
    /// A file.
    File(Box<FileRun>),
    /// A tree of files.
    Tree(TreeRun),
    /// What was decided in delegated directories is made stable, as an fsync of a directory does.
    SyncNames,
}

/// A listing under way.
#[derive(Debug)]
pub struct Listing {
    /// The directory.
    pub directory: Handle,
    /// Who asks.
    pub who: Credentials,
    /// Entries in one part.
    pub count_max: u32,
    /// Where it goes on.
    pub after: Cookie,
    /// When the first part was asked for.
    pub invoked: Option<Mono>,
    /// What has come.
    pub seen: Vec<Listed>,
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To be opened.
    Open,
    /// To be read and written.
    Steps,
    /// To be flushed.
    Flush,
    /// To be unlocked.
    Unlock,
    /// To be closed.
    Close,
}

/// A file under way.
#[derive(Debug)]
pub struct FileRun {
    /// The file.
    pub node: Handle,
    /// Who asks.
    pub who: Credentials,
    /// Whether it is open for reading.
    pub read: bool,
    /// Whether it is open for writing.
    pub write: bool,
    /// Whether it is cut when opened.
    pub truncate: bool,
    /// What is left to do.
    pub steps: VecDeque<FileSteps>,
    /// How far it is.
    pub stage: Stage,
    /// The open file.
    pub file: Option<OpenFile>,
    /// What was written through it.
    pub own: OwnWrites,
    /// What was written since a flush or sync was last told that all is well.
    pub unsettled: Vec<Piece>,
    /// When each of the writes that are not flushed began.
    pub written: Vec<Mono>,
    /// Records that were written and whose flush was not answered: their numbers in the history.
    pub appending: Vec<usize>,
    /// Its number among the files open for writing.
    pub writer: Option<usize>,
    /// The lock that it may have, and its number in the history.
    pub locked: Option<(Lock, usize)>,
    /// Buffered writes were lost, and no answer has said so yet.
    pub lost: bool,
    /// Something went wrong: what it holds is not known any more.
    pub doubtful: bool,
}

/// What is asked of the client machine next, with the locks that the kernel takes for it.
pub struct Ask {
    /// The operation.
    pub operation: Operation,
    /// The kernel's locks.
    pub locks: Locks,
    /// What it changes or asks.
    pub meaning: Meaning,
}

/// What an operation means to the history.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A change.
    Change(Mutation),
    /// A question.
    Question(Query),
    /// Part of something larger, or nothing that is checked.
    Part,
}

impl Meaning {
    /// Its kind, to be counted by.
    pub fn name(&self) -> &'static str {
        match self {
            Meaning::Part => "Part",
            Meaning::Change(change) => match change {
                Mutation::Create { .. } => "Create",
                Mutation::MakeDirectory { .. } => "MakeDirectory",
                Mutation::Unlink { .. } => "Unlink",
                Mutation::RemoveDirectory { .. } => "RemoveDirectory",
                Mutation::Rename { .. } => "Rename",
                Mutation::Link { .. } => "Link",
                Mutation::SetAttributes { .. } => "SetAttributes",
                Mutation::SetXattr { name, .. } => match name.space() {
                    XattrSpace::AccessList => "SetAccessList",
                    XattrSpace::DefaultList => "SetDefaultList",
                    _ => "SetXattr",
                },
                Mutation::Truncate { .. } => "Truncate",
                Mutation::MakeHole { .. } => "MakeHole",
                Mutation::Commit { .. } => "Commit",
            },
            Meaning::Question(question) => match question {
                Query::Lookup { .. } => "Lookup",
                Query::Attributes { .. } => "Attributes",
                Query::List { .. } => "List",
                Query::ReadLink { .. } => "ReadLink",
                Query::Xattr { .. } => "Xattr",
                Query::Xattrs { .. } => "Xattrs",
                Query::Open { .. } => "Open",
                Query::Content { .. } => "Content",
            },
        }
    }
}

impl Program {
    /// A program for an action.
    pub fn new(action: impl Into<Action>) -> Program {
        match action.into() {
            Action::List { directory, who, count_max } => Program::Listing(Listing {
                directory,
                who,
                count_max,
                after: Cookie::START,
                invoked: None,
                seen: Vec::new(),
            }),
            Action::File { node, who, read, write, truncate, steps } => Program::File(Box::new(FileRun {
                node,
                who,
                read,
                write,
                truncate,
                steps: steps.into(),
                stage: Stage::Open,
                file: None,
                own: OwnWrites {
                    opened: Mono::ZERO,
                    cut: None,
                    flushed: Mono::ZERO,
                    since_opened: Vec::new(),
                    unflushed: Vec::new(),
                },
                unsettled: Vec::new(),
                written: Vec::new(),
                appending: Vec::new(),
                writer: None,
                locked: None,
                lost: false,
                doubtful: false,
            })),
            Action::Tree { directory, who, steps } => Program::Tree(TreeRun::new(directory, who, steps)),
            Action::One(operation) => Program::Single(operation),
        }
    }

    /// Whoever runs it takes locks for itself.
    pub fn lock_as(&mut self, owner: LockOwner) {
        if let Program::File(run) = self
            && let Some(FileSteps::Lock { lock, .. }) = run.steps.front_mut()
        {
            lock.owner = owner;
        }
    }

    /// The next operation.
    pub fn next(&self) -> Option<Ask> {
        match self {
            Program::Idle => None,
            Program::Single(operation) => Some(Ask::of(operation.clone())),
            Program::Listing(listing) => Some(listing.next()),
            Program::File(run) => Some(run.next()),
            Program::Tree(run) => run.next(),
            Program::SyncNames => Some(Ask::of(Operation::SyncNames)),
        }
    }

    /// Leaves the next operation out. An open file is still flushed and closed.
    pub fn give_up_operation(&mut self) {
        match self {
            Program::File(run) if run.stage == Stage::Steps => run.step_over(),
            Program::Tree(run) => {
                if !run.step_over(None) {
                    *self = Program::Idle;
                }
            }
            _ => *self = Program::Idle,
        }
    }

    /// The node whose attributes or content the program depends on.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Program::File(run) => Some(run.node.node),
            Program::Single(
                Operation::Attributes { node, .. }
                | Operation::SetAttributes { node, .. }
                | Operation::Link { node, .. },
            ) => Some(node.node),
            Program::Single(_)
            | Program::Listing(_)
            | Program::Tree(_)
            | Program::SyncNames
            | Program::Idle => None,
        }
    }

    /// Whether it writes to its node through an open file.
    pub fn writes(&self) -> bool {
        matches!(self, Program::File(run) if run.write)
    }
}

fn alone(directory: Handle) -> Locks {
    vec![(directory.node, Hold::Alone)]
}

impl Ask {
    /// An operation that stands for itself: a whole change or question.
    pub fn of(operation: Operation) -> Ask {
        let (locks, meaning) = match operation.clone() {
            Operation::Lookup { directory, name, who } => {
                let query = Query::Lookup { directory: directory.node, name, who };
                (vec![(directory.node, Hold::Shared)], Meaning::Question(query))
            }
            Operation::Attributes { node, .. } => {
                (Vec::new(), Meaning::Question(Query::Attributes { node: node.node, own_end: 0 }))
            }
            Operation::ReadLink { node } => {
                (Vec::new(), Meaning::Question(Query::ReadLink { node: node.node }))
            }
            Operation::Xattr { node, who, name, .. } => {
                (Vec::new(), Meaning::Question(Query::Xattr { node: node.node, who, name }))
            }
            Operation::Xattrs { node, who, .. } => {
                (Vec::new(), Meaning::Question(Query::Xattrs { node: node.node, who }))
            }
            Operation::Open { node, who, read, write: _, truncate: true, .. } => {
                (Vec::new(), Meaning::Change(Mutation::Truncate { node: node.node, who, read }))
            }
            Operation::Open { node, who, read, write, .. } => {
                (Vec::new(), Meaning::Question(Query::Open { node: node.node, who, read, write }))
            }
            Operation::SetAttributes { node, who, change, file, .. } => {
                let through_file = file.is_some();
                let change = Mutation::SetAttributes { node: node.node, who, change, through_file };
                (alone(node), Meaning::Change(change))
            }
            Operation::SetXattr { node, who, name, change, .. } => {
                let change = Mutation::SetXattr { node: node.node, who, name, change };
                (alone(node), Meaning::Change(change))
            }
            Operation::Create { directory, name, who, new, .. } => {
                let change = Mutation::Create { directory: directory.node, name, who, new };
                (alone(directory), Meaning::Change(change))
            }
            Operation::MakeDirectory { directory, name, who, mode } => {
                let change = Mutation::MakeDirectory { directory: directory.node, name, who, mode };
                (alone(directory), Meaning::Change(change))
            }
            Operation::Unlink { directory, name, who } => {
                let change = Mutation::Unlink { directory: directory.node, name, who };
                (alone(directory), Meaning::Change(change))
            }
            Operation::RemoveDirectory { directory, name, who } => {
                let change = Mutation::RemoveDirectory { directory: directory.node, name, who };
                (alone(directory), Meaning::Change(change))
            }
            Operation::Link { node, directory, name, who } => {
                let change = Mutation::Link { node: node.node, directory: directory.node, name, who };
                (alone(directory), Meaning::Change(change))
            }
            Operation::Rename { source, source_name, target, target_name, who, mode } => {
                let mut locks = alone(source);
                if target.node != source.node {
                    locks.extend(alone(target));
                }
                let (source, target) = (source.node, target.node);
                let change = Mutation::Rename { source, source_name, target, target_name, who, mode };
                (locks, Meaning::Change(change))
            }
            _ => (Vec::new(), Meaning::Part),
        };
        Ask { operation, locks, meaning }
    }
}

impl Listing {
    fn next(&self) -> Ask {
        let detail = [Detail::Names, Detail::Attributes, Detail::Lookups][self.count_max as usize % 3];
        Ask {
            locks: vec![(self.directory.node, Hold::Shared)],
            meaning: Meaning::Part,
            operation: Operation::List {
                directory: self.directory,
                who: self.who.clone(),
                after: self.after,
                count_max: self.count_max,
                detail,
            },
        }
    }
}

impl FileRun {
    /// The client has written out by itself what was written until `begun`, and it became part of the file
    /// before `answered`.
    pub fn written_out(&mut self, begun: Mono, answered: Mono) {
        if answered <= self.own.flushed {
            return;
        }
        self.own.flushed = answered;
        let kept = self.written.iter().filter(|at| **at > begun).count();
        self.own.unflushed.drain(..self.own.unflushed.len() - kept);
        self.written.drain(..self.written.len() - kept);
    }

    /// Goes on after the first step.
    pub fn step_over(&mut self) {
        self.steps.pop_front();
        if self.steps.is_empty() || self.doubtful {
            self.stage = if self.write { Stage::Flush } else { self.after_flush() };
        }
    }

    /// What comes when all is flushed.
    pub fn after_flush(&self) -> Stage {
        if self.locked.is_some() { Stage::Unlock } else { Stage::Close }
    }

    /// Everything is flushed.
    pub fn flushed(&mut self, now: Mono) {
        self.own.flushed = now;
        self.own.unflushed.clear();
        self.written.clear();
    }

    fn next(&self) -> Ask {
        match self.stage {
            Stage::Open => self.open(),
            Stage::Flush => Ask::of(Operation::Flush { file: self.open_file() }),
            Stage::Unlock => {
                let (Lock { owner, space, .. }, _) = self.locked.expect("it was locked");
                Ask::of(Operation::Unlock { node: self.node, owner, space, range: LockRange::ALL })
            }
            Stage::Close => Ask::of(Operation::Close { file: self.open_file() }),
            Stage::Steps => self.step(self.steps.front().expect("there is a step left")),
        }
    }

    fn open_file(&self) -> OpenFile {
        self.file.expect("it was opened")
    }

    fn open(&self) -> Ask {
        let FileRun { node, read, write, truncate, .. } = *self;
        Ask::of(Operation::Open { node, who: self.who.clone(), read, write, truncate, execute: false })
    }

    fn step(&self, step: &FileSteps) -> Ask {
        let file = self.open_file();
        let set_ids = SetIds::by(&self.who);
        match step.clone() {
            FileSteps::Read { offset, length } => {
                let query = Query::Content { node: self.node.node, offset, length, own: self.own.clone() };
                let operation = Operation::Read { file, offset, length };
                Ask { operation, locks: Vec::new(), meaning: Meaning::Question(query) }
            }
            FileSteps::Write { offset, bytes } => {
                Ask::of(Operation::Write { file, offset: Some(offset), bytes, set_ids })
            }
            FileSteps::Append { bytes, .. } => {
                Ask::of(Operation::Write { file, offset: None, bytes, set_ids })
            }
            FileSteps::Lock { lock, waits } => Ask::of(Operation::Lock { node: self.node, lock, waits }),
            FileSteps::Flush => Ask::of(Operation::Flush { file }),
            FileSteps::Sync => Ask::of(Operation::Sync { file }),
            FileSteps::Resize { size } => {
                let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
                let (node, who) = (self.node, self.who.clone());
                let file_type = FileType::Regular;
                Ask::of(Operation::SetAttributes { node, file_type, who, change, file: Some(file) })
            }
            FileSteps::MakeHole { start, end, size_min } => {
                let node = self.node.node;
                let hole = Mutation::MakeHole { node, start, end, size_min, set_ids };
                Ask {
                    locks: alone(self.node),
                    meaning: Meaning::Change(hole),
                    operation: Operation::MakeHole { file, start, end, size_min, set_ids },
                }
            }
            FileSteps::Copy { from, to, length } => Ask {
                locks: alone(self.node),
                meaning: Meaning::Part,
                operation: Operation::Copy {
                    source: file,
                    source_offset: from,
                    target: file,
                    target_offset: to,
                    length,
                    set_ids,
                },
            },
            FileSteps::Unlink { directory, name } => {
                Ask::of(Operation::Unlink { directory, name, who: self.who.clone() })
            }
        }
    }
}
