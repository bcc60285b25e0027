//! What a step works with: the server's own state beside its chunks, and the commands it gathers.

use super::fetches::Fetches;
use super::flows::Flows;
use super::listing::Listing;
use super::reading::ReadJob;
use super::scrubber::Scrubber;
use crate::Config;
use crate::counters::Counters;
use crate::event::{Command, LogCommand, Note, Payload, Start, Ticket};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest};
use bearing_proto::keys::Key;
use bearing_seams::EngineError;
use bearing_types::{ChunkId, Epoch, Mono, Now, ServerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whom to answer, and under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub from: Sender,
    pub id: u64,
}

/// What a command to the log was for.
#[derive(Debug)]
pub(crate) enum Job {
    /// A new chunk.
    Create(ChunkId),
    /// The sync that makes a new chunk's name stable.
    Name(ChunkId),
    Write {
        chunk: ChunkId,
        offset: u64,
        end: u64,
    },
    Sync {
        chunk: ChunkId,
        covers: u64,
    },
    /// The front cut of a chunk.
    Set(ChunkId),
    Scan(ChunkId),
    /// The cut to nothing of a chunk that is removed, under this epoch.
    Remove(ChunkId, Epoch),
    /// The same, to make room for a copy under this epoch.
    Anew(ChunkId, Epoch),
    /// The end of a grave.
    Forget(ChunkId),
    Space(Asker),
    Head(ReadJob),
    Blocks(ReadJob),
    /// The last cut of a copy.
    Copied(ChunkId),
    Fetch(Asker),
    /// The same for a chunk that is made of frames of another one here.
    FetchHere {
        /// Which is made.
        chunk: ChunkId,
        /// The question.
        ask: u64,
        from: ChunkId,
    },
    Frames(Listing),
    Scrub(ChunkId),
}

/// What another server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub chunk: ChunkId,
    pub server: ServerId,
    pub what: AskedFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor {
    /// A frame, by its end.
    Frame { end: u64 },
    /// A sync.
    Sync,
    /// Bytes of a chunk that is copied.
    CopyPart,
    /// Bytes for the append of this number.
    Fetch(u64),
}

/// A question on its way to another server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub id: u64,
    pub sent: Mono,
}

/// The server beside its chunks.
#[derive(Debug)]
pub(crate) struct Core {
    pub server: ServerId,
    /// Told with pings.
    pub life: u64,
    pub config: Config,
    pub grants: Key,
    pub jobs: BTreeMap<Ticket, Job>,
    pub asked: BTreeMap<u64, Asked>,
    pub counters: Counters,
    /// A sync or write failed: no appends any more.
    pub failed: bool,
    /// The clock is too far from others': no new chunks.
    pub clock_off: bool,
    /// Bytes of frames held by all chunks.
    pub held_bytes: u64,
    pub reads: usize,
    pub read_bytes: u64,
    /// What the flow server is told of reads.
    pub flows: Flows,
    /// Appends whose bytes are being read.
    pub fetches: Fetches,
    pub pings: usize,
    pub scans: usize,
    pub scans_waiting: VecDeque<ChunkId>,
    /// Copies fetch nothing before this time.
    pub copy_free_at: Mono,
    pub scrubber: Scrubber,
    /// Whether the graves that were here at the start are among `graves`.
    pub graves_known: bool,
    /// Chunks that were removed, and when their graves may be forgotten.
    pub graves: BTreeSet<(Mono, ChunkId)>,
    /// Chunks whose replica here is known to be damaged or cut short.
    pub damaged: BTreeSet<ChunkId>,
    next_ticket: u64,
    next_id: u64,
}

impl Core {
    pub fn new(start: Start, config: Config, grants: Key) -> Core {
        Core {
            server: start.server,
            life: start.first_id,
            config,
            grants,
            jobs: BTreeMap::new(),
            asked: BTreeMap::new(),
            counters: Counters::default(),
            failed: false,
            clock_off: false,
            held_bytes: 0,
            reads: 0,
            read_bytes: 0,
            flows: Flows::default(),
            fetches: Fetches::default(),
            pings: 0,
            scans: 0,
            scans_waiting: VecDeque::new(),
            copy_free_at: Mono::ZERO,
            scrubber: Scrubber::new(),
            graves_known: false,
            graves: BTreeSet::new(),
            damaged: BTreeSet::new(),
            next_ticket: 0,
            next_id: start.first_id,
        }
    }
}

/// One step's view: the time, the core, the commands.
pub(crate) struct Cx<'a> {
    pub now: Now,
    pub core: &'a mut Core,
    pub out: &'a mut Vec<Command>,
}

impl Cx<'_> {
    pub fn mono(&self) -> Mono {
        self.now.mono
    }

    pub fn log(&mut self, job: Job, command: LogCommand) {
        let ticket = Ticket(self.core.next_ticket);
        self.core.next_ticket += 1;
        self.core.jobs.insert(ticket, job);
        self.out.push(Command::Log { ticket, command });
    }

    pub fn reply(&mut self, asker: Asker, result: Result<DataBody, DataError>) {
        self.reply_with(asker, result, Payload::default());
    }

    pub fn reply_with(&mut self, asker: Asker, result: Result<DataBody, DataError>, attachment: Payload) {
        let reply = DataReply { id: asker.id, result };
        self.out.push(Command::Answer { to: asker.from, reply, attachment });
    }

    /// Answers with an error that the request itself deserves.
    pub fn refuse(&mut self, asker: Asker, error: DataError) {
        self.core.counters.refused += 1;
        self.reply(asker, Err(error));
    }

    pub fn drop_request(&mut self) {
        self.core.counters.dropped += 1;
    }

    /// A number for a question to another server.
    pub fn ask_id(&mut self, asked: Asked) -> u64 {
        let id = self.next_id();
        self.core.asked.insert(id, asked);
        id
    }

    /// A number for a message whose answer nobody waits for.
    pub fn next_id(&mut self) -> u64 {
        let id = self.core.next_id;
        self.core.next_id = id.wrapping_add(1);
        id
    }

    /// Answers to these questions are not waited for any more.
    pub fn forget<'a>(&mut self, questions: impl Iterator<Item = &'a Sent>) {
        for question in questions {
            self.core.asked.remove(&question.id);
        }
    }

    pub fn send(&mut self, server: ServerId, request: DataRequest, attachment: Payload) {
        self.out.push(Command::Ask { to: server, request, attachment });
    }

    pub fn ask_sync(&mut self, server: ServerId, id: u64, chunk: ChunkId, call: DataCall) {
        self.send(server, DataRequest { id, chunk, call }, Payload::default());
    }

    pub fn note(&mut self, note: Note) {
        self.out.push(Command::Note(note));
    }

    /// See [`Note::Step`].
    pub fn step(&mut self, name: &'static str) {
        self.note(Note::Step(name));
    }

    /// The disk failed: no more appends.
    pub fn disk_failed(&mut self, error: &EngineError) {
        if !self.core.failed {
            self.core.failed = true;
            self.note(Note::DiskFailed { reason: error.to_string() });
        }
    }

    /// A sealed replica is damaged: metadata servers hear of it.
    pub fn damaged(&mut self, chunk: ChunkId, frame: u64) {
        if self.core.damaged.insert(chunk) {
            self.step("damage found, nobody told");
        }
        self.corrupt(chunk, frame);
    }

    pub fn corrupt(&mut self, chunk: ChunkId, frame: u64) {
        self.core.counters.corrupt += 1;
        self.note(Note::Corrupt { chunk, frame });
    }
}
