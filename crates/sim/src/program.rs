//! What a worker of a client does: one operation, a whole listing, or a file from open to close.

use crate::kernel::{Hold, Locks};
use bearing_client::{Listed, OpenFile, Operation};
use bearing_proto::client::{AttributeChange, Handle};
use bearing_types::{Cookie, Credentials, FileType, Lock, LockOwner, LockRange, Mono, Name, NodeId, SetIds};
use bearing_workload::{Action, FileSteps, Mutation, OwnWrites, Piece, Query};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub enum Program {
    /// Nothing.
    Idle,
    /// One operation.
    Single(Action),
    /// A listing, part by part.
    Listing(Listing),
    /// A file.
    File(Box<FileRun>),
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
                Mutation::SetXattr { .. } => "SetXattr",
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
    pub fn new(action: Action) -> Program {
        match action {
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
            single => Program::Single(single),
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
            Program::Single(action) => Some(single(action)),
            Program::Listing(listing) => Some(listing.next()),
            Program::File(run) => Some(run.next()),
            Program::SyncNames => {
                Some(Ask { operation: Operation::SyncNames, locks: Vec::new(), meaning: Meaning::Part })
            }
        }
    }

    /// Leaves the next operation out. An open file is still flushed and closed.
    pub fn give_up_operation(&mut self) {
        match self {
            Program::File(run) if run.stage == Stage::Steps => run.step_over(),
            _ => *self = Program::Idle,
        }
    }

    /// The node whose attributes or content the program depends on.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Program::File(run) => Some(run.node.node),
            Program::Single(
                Action::Attributes { node, .. }
                | Action::SetAttributes { node, .. }
                | Action::Link { node, .. },
            ) => Some(node.node),
            Program::Single(_) | Program::Listing(_) | Program::SyncNames | Program::Idle => None,
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

fn single(action: &Action) -> Ask {
    match action.clone() {
        Action::Lookup { directory, name, who } => Ask {
            locks: vec![(directory.node, Hold::Shared)],
            meaning: Meaning::Question(Query::Lookup {
                directory: directory.node,
                name: name.clone(),
                who: who.clone(),
            }),
            operation: Operation::Lookup { directory, name, who },
        },
        Action::Attributes { node, file_type } => Ask {
            locks: Vec::new(),
            meaning: Meaning::Question(Query::Attributes { node: node.node, own_end: 0 }),
            operation: Operation::Attributes { node, file_type },
        },
        Action::ReadLink { node } => Ask {
            locks: Vec::new(),
            meaning: Meaning::Question(Query::ReadLink { node: node.node }),
            operation: Operation::ReadLink { node },
        },
        Action::SetAttributes { node, file_type, who, change } => {
            set_attributes(node, file_type, who, change, None)
        }
        Action::Create { directory, name, who, new } => Ask {
            locks: alone(directory),
            meaning: Meaning::Change(Mutation::Create {
                directory: directory.node,
                name: name.clone(),
                who: who.clone(),
                new: new.clone(),
            }),
            operation: Operation::Create { directory, name, who, new, open: false },
        },
        Action::MakeDirectory { directory, name, who, mode } => Ask {
            locks: alone(directory),
            meaning: Meaning::Change(Mutation::MakeDirectory {
                directory: directory.node,
                name: name.clone(),
                who: who.clone(),
                mode,
            }),
            operation: Operation::MakeDirectory { directory, name, who, mode },
        },
        Action::Unlink { directory, name, who } => unlink(directory, name, who),
        Action::RemoveDirectory { directory, name, who } => Ask {
            locks: alone(directory),
            meaning: Meaning::Change(Mutation::RemoveDirectory {
                directory: directory.node,
                name: name.clone(),
                who: who.clone(),
            }),
            operation: Operation::RemoveDirectory { directory, name, who },
        },
        Action::Rename { source, source_name, target, target_name, who, mode } => {
            let mut locks = alone(source);
            if target.node != source.node {
                locks.extend(alone(target));
            }
            Ask {
                locks,
                meaning: Meaning::Change(Mutation::Rename {
                    source: source.node,
                    source_name: source_name.clone(),
                    target: target.node,
                    target_name: target_name.clone(),
                    who: who.clone(),
                    mode,
                }),
                operation: Operation::Rename { source, source_name, target, target_name, who, mode },
            }
        }
        Action::Link { node, directory, name, who } => Ask {
            locks: alone(directory),
            meaning: Meaning::Change(Mutation::Link {
                node: node.node,
                directory: directory.node,
                name: name.clone(),
                who: who.clone(),
            }),
            operation: Operation::Link { node, directory, name, who },
        },
        Action::Xattr { node, file_type, who, name } => Ask {
            locks: Vec::new(),
            meaning: Meaning::Question(Query::Xattr {
                node: node.node,
                who: who.clone(),
                name: name.clone(),
            }),
            operation: Operation::Xattr { node, file_type, who, name },
        },
        Action::Xattrs { node, file_type, who } => Ask {
            locks: Vec::new(),
            meaning: Meaning::Question(Query::Xattrs { node: node.node, who: who.clone() }),
            operation: Operation::Xattrs { node, file_type, who },
        },
        Action::SetXattr { node, file_type, who, name, change } => Ask {
            locks: alone(node),
            meaning: Meaning::Change(Mutation::SetXattr {
                node: node.node,
                who: who.clone(),
                name: name.clone(),
                change: change.clone(),
            }),
            operation: Operation::SetXattr { node, file_type, who, name, change },
        },
        Action::List { .. } | Action::File { .. } => unreachable!("they have programs of their own"),
    }
}

fn unlink(directory: Handle, name: Name, who: Credentials) -> Ask {
    Ask {
        locks: alone(directory),
        meaning: Meaning::Change(Mutation::Unlink {
            directory: directory.node,
            name: name.clone(),
            who: who.clone(),
        }),
        operation: Operation::Unlink { directory, name, who },
    }
}

fn set_attributes(
    node: Handle,
    file_type: FileType,
    who: Credentials,
    change: AttributeChange,
    file: Option<OpenFile>,
) -> Ask {
    Ask {
        locks: alone(node),
        meaning: Meaning::Change(Mutation::SetAttributes {
            node: node.node,
            who: who.clone(),
            change,
            through_file: file.is_some(),
        }),
        operation: Operation::SetAttributes { node, file_type, who, change, file },
    }
}

impl Listing {
    fn next(&self) -> Ask {
        Ask {
            locks: vec![(self.directory.node, Hold::Shared)],
            meaning: Meaning::Part,
            operation: Operation::List {
                directory: self.directory,
                who: self.who.clone(),
                after: self.after,
                count_max: self.count_max,
                with_attributes: self.count_max.is_multiple_of(2),
            },
        }
    }
}

impl FileRun {
    /// The client has written out by itself what was written until `begun`, and it became part of the file before `answered`.
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
        let part = |operation| Ask { operation, locks: Vec::new(), meaning: Meaning::Part };
        match self.stage {
            Stage::Open => self.open(),
            Stage::Flush => part(Operation::Flush { file: self.open_file() }),
            Stage::Unlock => {
                let (Lock { owner, space, .. }, _) = self.locked.expect("it was locked");
                part(Operation::Unlock { node: self.node, owner, space, range: LockRange::ALL })
            }
            Stage::Close => part(Operation::Close { file: self.open_file() }),
            Stage::Steps => self.step(self.steps.front().expect("there is a step left")),
        }
    }

    fn open_file(&self) -> OpenFile {
        self.file.expect("it was opened")
    }

    fn open(&self) -> Ask {
        let (node, who, read, write) = (self.node.node, self.who.clone(), self.read, self.write);
        let meaning = if self.truncate {
            Meaning::Change(Mutation::Truncate { node, who: who.clone(), read })
        } else {
            Meaning::Question(Query::Open { node, who: who.clone(), read, write })
        };
        let (node, truncate) = (self.node, self.truncate);
        let operation = Operation::Open { node, who, read, write, truncate, execute: false };
        Ask { operation, locks: Vec::new(), meaning }
    }

    fn step(&self, step: &FileSteps) -> Ask {
        let file = self.open_file();
        let set_ids = SetIds::by(&self.who);
        let part = |operation| Ask { operation, locks: Vec::new(), meaning: Meaning::Part };
        match step.clone() {
            FileSteps::Read { offset, length } => {
                let query = Query::Content { node: self.node.node, offset, length, own: self.own.clone() };
                let operation = Operation::Read { file, offset, length };
                Ask { operation, locks: Vec::new(), meaning: Meaning::Question(query) }
            }
            FileSteps::Write { offset, bytes } => {
                part(Operation::Write { file, offset: Some(offset), bytes, set_ids })
            }
            FileSteps::Append { bytes, .. } => part(Operation::Write { file, offset: None, bytes, set_ids }),
            FileSteps::Lock { lock, waits } => part(Operation::Lock { node: self.node, lock, waits }),
            FileSteps::Flush => part(Operation::Flush { file }),
            FileSteps::Sync => part(Operation::Sync { file }),
            FileSteps::Resize { size } => {
                let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
                set_attributes(self.node, FileType::Regular, self.who.clone(), change, Some(file))
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
            FileSteps::Unlink { directory, name } => unlink(directory, name, self.who.clone()),
        }
    }
}
