//! What goes into the machine and what comes out.

use bearing_proto::Sender;
use bearing_proto::data::{Carried, DataReply, DataRequest};
use bearing_seams::{ChunkLog, End, EngineResult};
use bearing_types::{ChunkId, Epoch, ServerId};
use std::fmt;
use std::sync::Arc;

/// Bulk bytes, shared between the log and the messages that carry them.
pub type Payload = Arc<Vec<u8>>;

/// Names one command to the chunk log; its result comes back under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What is different at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// This server.
    pub server: ServerId,
    /// The number of its first question to another server; they count on from there. No earlier start may
    /// have come near it, because a late answer to an old question would be taken for one to a new question:
    /// a random number, or the wall clock's nanoseconds.
    pub first_id: u64,
}

/// What happens to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived. The shell has opened the packet, so the sender is who it says.
    Request {
        /// Who asks.
        from: Sender,
        /// What.
        request: DataRequest,
        /// Bulk bytes.
        attachment: Vec<u8>,
    },
    /// An answer to one of this machine's own requests arrived.
    Reply {
        /// Who answers.
        from: Sender,
        /// What.
        reply: DataReply,
        /// Bulk bytes.
        attachment: Vec<u8>,
    },
    /// A create, append, sync, set or remove was carried out. Results of one chunk come in the order of its
    /// commands.
    Done {
        /// The command.
        ticket: Ticket,
        /// Its result.
        result: EngineResult<()>,
    },
    /// A read was carried out; in any order.
    ReadDone {
        /// The command.
        ticket: Ticket,
        /// The bytes.
        result: EngineResult<Vec<u8>>,
    },
    /// The space was looked up.
    SpaceDone {
        /// The command.
        ticket: Ticket,
        /// Bytes used and bytes free.
        result: EngineResult<(u64, u64)>,
    },
    /// This server's clock is too far from those of others, or is so no more.
    ClockOff(bool),
    /// What the host's network interface has carried.
    Carried(Carried),
    /// The time that `next_wake` asked for has come.
    Tick,
}

/// What the shell is to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send a request to another server.
    Ask {
        /// The server.
        to: ServerId,
        /// What.
        request: DataRequest,
        /// Bulk bytes.
        attachment: Payload,
    },
    /// Send the answer to a request.
    Answer {
        /// Who asked.
        to: Sender,
        /// What.
        reply: DataReply,
        /// Bulk bytes.
        attachment: Payload,
    },
    /// Work on the chunk logs.
    Log {
        /// The result comes back under it.
        ticket: Ticket,
        /// What to do.
        command: LogCommand,
    },
    /// Something that people may want to read.
    Note(Note),
}

/// One call of [`ChunkLog`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogCommand {
    /// [`ChunkLog::create`].
    Create {
        /// The chunk.
        chunk: ChunkId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// [`ChunkLog::append`].
    Append {
        /// The chunk.
        chunk: ChunkId,
        /// Where.
        offset: u64,
        /// What.
        bytes: Payload,
    },
    /// [`ChunkLog::sync`].
    Sync {
        /// The chunk.
        chunk: ChunkId,
    },
    /// [`ChunkLog::read`].
    Read {
        /// The chunk.
        chunk: ChunkId,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u32,
    },
    /// [`ChunkLog::set`].
    Set {
        /// The chunk.
        chunk: ChunkId,
        /// The epoch to keep.
        epoch: Epoch,
        /// Where to cut.
        length: u64,
        /// What its end is there.
        end: End,
    },
    /// [`ChunkLog::remove`].
    Remove {
        /// The chunk.
        chunk: ChunkId,
    },
    /// [`ChunkLog::space`].
    Space,
}

impl LogCommand {
    /// The chunk that it writes to. What writes to one chunk is done in the order given; all else in any
    /// order, side by side.
    pub fn writes(&self) -> Option<ChunkId> {
        match self {
            LogCommand::Create { chunk, .. }
            | LogCommand::Append { chunk, .. }
            | LogCommand::Sync { chunk }
            | LogCommand::Set { chunk, .. }
            | LogCommand::Remove { chunk } => Some(*chunk),
            LogCommand::Read { .. } | LogCommand::Space => None,
        }
    }

    /// Carries the command out and gives the event that reports it.
    pub fn run(&self, ticket: Ticket, log: &mut dyn ChunkLog) -> Event {
        let result = match self {
            LogCommand::Read { chunk, offset, length } => {
                return Event::ReadDone { ticket, result: log.read(*chunk, *offset, *length) };
            }
            LogCommand::Space => return Event::SpaceDone { ticket, result: log.space() },
            LogCommand::Create { chunk, epoch } => log.create(*chunk, *epoch),
            LogCommand::Append { chunk, offset, bytes } => log.append(*chunk, *offset, bytes),
            LogCommand::Sync { chunk } => log.sync(*chunk),
            LogCommand::Set { chunk, epoch, length, end } => log.set(*chunk, *epoch, *length, *end),
            LogCommand::Remove { chunk } => log.remove(*chunk),
        };
        Event::Done { ticket, result }
    }
}

/// News for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The disk failed; this server takes no more appends until it is restarted.
    DiskFailed {
        /// The engine's reason.
        reason: String,
    },
    /// The disk is full; appends are refused until space is freed.
    DiskFull {
        /// The chunk that was to be appended to.
        chunk: ChunkId,
    },
    /// Another server of a chunk did not answer or refused; the chunk takes no more appends.
    ReplicaLost {
        /// The chunk.
        chunk: ChunkId,
        /// The server.
        server: ServerId,
    },
    /// Stored bytes do not fit their checksum; they were not given out.
    Corrupt {
        /// The chunk.
        chunk: ChunkId,
        /// Where the frame starts.
        frame: u64,
    },
    /// What followed the whole frames of a chunk was cut off.
    Cut {
        /// The chunk.
        chunk: ChunkId,
        /// Its length before.
        before: u64,
        /// Its length now.
        after: u64,
    },
    /// A chunk was sealed beyond what this server holds of it.
    Short {
        /// The chunk.
        chunk: ChunkId,
        /// Bytes held here.
        held: u64,
        /// The length at which it was sealed.
        sealed: u64,
    },
    /// A step of a protocol, for those who count them, or crash at one. The commands before it are all that
    /// was done.
    Step(&'static str),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::DiskFailed { reason } => {
                write!(f, "the disk failed ({reason}); no appends are taken until the server is restarted")
            }
            Note::DiskFull { chunk } => {
                write!(f, "the disk is full (append to chunk {chunk}); appends go on when space is freed")
            }
            Note::ReplicaLost { chunk, server } => {
                write!(
                    f,
                    "server {server} does not take part in chunk {chunk} any more; the chunk is to be sealed"
                )
            }
            Note::Corrupt { chunk, frame } => {
                write!(
                    f,
                    "chunk {chunk} is damaged in the frame at {frame}; readers are sent to other replicas"
                )
            }
            Note::Cut { chunk, before, after } => {
                write!(f, "chunk {chunk} was cut from {before} to {after} bytes, where its whole frames end")
            }
            Note::Short { chunk, held, sealed } => write!(
                f,
                "chunk {chunk} was sealed at {sealed} bytes, only {held} are here; readers of the rest are sent to other replicas"
            ),
            Note::Step(name) => f.write_str(name),
        }
    }
}
