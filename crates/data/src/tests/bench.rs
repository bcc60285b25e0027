//! One server, its log in memory, and a hand that feeds it.

use crate::{Command, Config, DataServer, Event, LogCommand, Note, Start, Ticket};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest};
use bearing_proto::frame::{self, FrameOwner};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, FramePart};
use bearing_proto::keys::Key;
use bearing_seams::{ChunkEntry, ChunkLog, MemChunkLog};
use bearing_types::{
    ChunkId, Epoch, Gid, Mode, Mono, NodeId, Now, Position, ServerId, SessionId, Uid, Version, Wall,
};
use std::collections::VecDeque;
use std::time::Duration;

pub(super) const CHUNK: ChunkId = ChunkId(9);
pub(super) const EPOCH: Epoch = Epoch(4);
pub(super) const ME: ServerId = ServerId(1);
pub(super) const OTHER: ServerId = ServerId(2);
pub(super) const THIRD: ServerId = ServerId(3);
pub(super) const SESSION: SessionId = SessionId(77);
pub(super) const CLIENT: Sender = Sender::Client(SESSION);
/// The right to append.
/// To append where only the machine under test has the chunk.
pub(super) fn append_here() -> DataRight {
    DataRight::append(EPOCH, &[ME])
}
pub(super) const META: Sender = Sender::Server(ServerId(50));
/// When capabilities end.
const EXPIRES: Wall = Wall(1_000_000_000_000);

pub(super) type Answer = (u64, Result<DataBody, DataError>);

pub(super) fn key() -> Key {
    Key::new([5; 32])
}

pub(super) fn capability_body(right: DataRight) -> CapabilityBody {
    CapabilityBody { session: SESSION, chunk: CHUNK, right, expires: EXPIRES }
}

pub(super) fn capability(right: DataRight) -> Capability {
    Capability::sign(capability_body(right), &key())
}

/// The owner of frames of a salt.
pub(super) fn owner(salt: u64) -> FrameOwner {
    FrameOwner {
        node: NodeId(salt),
        home: Position(1),
        parent: NodeId(1),
        name: b"name".to_vec(),
        file_offset: 0,
        version: Version(1),
        mode: Mode::new(0o644),
        uid: Uid(0),
        gid: Gid(0),
        written: Wall(0),
        is_guess: false,
    }
}

/// A frame whose payload tells its salt.
pub(super) fn frame(salt: u64, payload_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&owner(salt), &payload(salt, payload_bytes), &mut bytes);
    bytes
}

/// A frame of a version that this program does not know.
pub(super) fn newer_frame() -> Vec<u8> {
    let mut bytes = frame(1, 100);
    bytes[4] = 9;
    let header_bytes = bytes.len() - 104;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..header_bytes]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn payload(salt: u64, payload_bytes: usize) -> Vec<u8> {
    (0..payload_bytes as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ salt) as u8).collect()
}

pub(super) fn append(servers: &[ServerId], bytes: &[u8]) -> DataCall {
    append_under(capability(DataRight::append(EPOCH, servers)), servers, bytes)
}

pub(super) fn append_under(capability: Capability, servers: &[ServerId], bytes: &[u8]) -> DataCall {
    DataCall::Append { capability, servers: servers.to_vec(), known: 0, crc: crc32c::crc32c(bytes) }
}

pub(super) fn replicate(offset: u64, committed: u64, bytes: &[u8]) -> DataCall {
    DataCall::Replicate { epoch: EPOCH, offset, committed, crc: crc32c::crc32c(bytes) }
}

pub(super) fn sync(servers: &[ServerId]) -> DataCall {
    DataCall::Sync { capability: capability(DataRight::append(EPOCH, servers)), servers: servers.to_vec() }
}

pub(super) fn read(frame: u64, skip: u32, length: u32) -> DataCall {
    let right = DataRight::Read(FramePart { frame, skip, length });
    DataCall::Read { capability: capability(right), frame, skip, length, flow: None }
}

/// See the module.
pub(super) struct Bench {
    pub machine: DataServer,
    pub log: MemChunkLog,
    pub now: Now,
    /// Commands to the log that were not yet run.
    pub pending: VecDeque<(Ticket, LogCommand)>,
    /// Steps that were told; they are not among the commands that the bench gives.
    pub steps: Vec<&'static str>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(Config::standard())
    }

    pub fn with(config: Config) -> Bench {
        Bench::on(MemChunkLog::new(), config)
    }

    pub fn on(mut log: MemChunkLog, config: Config) -> Bench {
        let chunks = log.chunks().unwrap();
        Bench::listing(log, config, chunks)
    }

    /// A log with the chunk, of which the engine can read nothing.
    pub fn headless() -> Bench {
        let mut log = MemChunkLog::new();
        log.create(CHUNK, EPOCH).unwrap();
        let entry = ChunkEntry {
            chunk: CHUNK,
            epoch: ChunkEntry::HEADLESS,
            length: 0,
            sealed: None,
            fenced: false,
            restarted: false,
        };
        Bench::listing(log, Config::standard(), vec![entry])
    }

    pub fn listing(log: MemChunkLog, config: Config, chunks: Vec<ChunkEntry>) -> Bench {
        let machine = DataServer::new(Start { server: ME, first_id: 1000 }, config, key(), chunks);
        let now = Now { mono: Mono(1), wall: Wall(5) };
        Bench { machine, log, now, pending: VecDeque::new(), steps: Vec::new() }
    }

    /// The same log under a new server.
    pub fn restarted(self) -> Bench {
        Bench::on(self.log, Config::standard())
    }

    /// Steps once; everything that came out, in order.
    pub fn step(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine.step(self.now, event, &mut out);
        out.retain(|command| match command {
            Command::Note(Note::Step(name)) => {
                self.steps.push(name);
                false
            }
            _ => true,
        });
        for command in &out {
            if let Command::Log { ticket, command } = command {
                self.pending.push_back((*ticket, command.clone()));
            }
        }
        out
    }

    pub fn send(&mut self, from: Sender, id: u64, call: DataCall, bytes: &[u8]) -> Vec<Command> {
        self.send_to(CHUNK, from, id, call, bytes)
    }

    pub fn send_to(
        &mut self,
        chunk: ChunkId,
        from: Sender,
        id: u64,
        call: DataCall,
        bytes: &[u8],
    ) -> Vec<Command> {
        let request = DataRequest { id, chunk, call };
        self.step(Event::Request { from, request, attachment: bytes.to_vec() })
    }

    /// Runs the log until it has nothing to do; what came out, without commands to the log.
    pub fn run(&mut self) -> Vec<Command> {
        let mut said = Vec::new();
        while !self.pending.is_empty() {
            said.extend(self.run_next());
        }
        said
    }

    /// Runs what the log has to do next; what came out, without commands to the log.
    pub fn run_next(&mut self) -> Vec<Command> {
        let (ticket, command) = self.pending.pop_front().expect("the log has something to do");
        let event = command.run(ticket, &mut self.log);
        let mut said = self.step(event);
        said.retain(|command| !matches!(command, Command::Log { .. }));
        said
    }

    /// Sends, runs the log, and gives all that was said.
    pub fn ask(&mut self, from: Sender, id: u64, call: DataCall, bytes: &[u8]) -> Vec<Command> {
        let mut said = self.send(from, id, call, bytes);
        said.retain(|command| !matches!(command, Command::Log { .. }));
        said.extend(self.run());
        said
    }

    /// As [`Bench::ask`], for a request with exactly one answer.
    pub fn result(&mut self, from: Sender, call: DataCall, bytes: &[u8]) -> Result<DataBody, DataError> {
        let said = self.ask(from, 7, call, bytes);
        match answers(&said)[..] {
            [(7, ref result)] => result.clone(),
            _ => panic!("not one answer: {said:?}"),
        }
    }

    pub fn reply(&mut self, from: ServerId, id: u64, result: Result<DataBody, DataError>) -> Vec<Command> {
        self.step(Event::Reply {
            from: Sender::Server(from),
            reply: DataReply { id, result },
            attachment: Vec::new(),
        })
    }

    pub fn advance(&mut self, by: Duration) -> Vec<Command> {
        self.now.mono = self.now.mono.after(by);
        self.step(Event::Tick)
    }

    /// Appends a frame to a chunk that only this server has.
    pub fn append_alone(&mut self, bytes: &[u8]) -> u64 {
        match self.result(CLIENT, append(&[ME], bytes), bytes) {
            Ok(DataBody::Appended { frame }) => frame,
            other => panic!("not appended: {other:?}"),
        }
    }

    /// The bytes of a read that goes well.
    pub fn bytes(&mut self, frame: u64, skip: u32, length: u32) -> Vec<u8> {
        let said = self.ask(CLIENT, 8, read(frame, skip, length), &[]);
        match &said[..] {
            [Command::Answer { reply, attachment, .. }] => {
                let crc = crc32c::crc32c(attachment);
                assert_eq!(reply.result, Ok(DataBody::Bytes { crc }));
                attachment.to_vec()
            }
            _ => panic!("not one answer: {said:?}"),
        }
    }
}

/// The answers among commands.
pub(super) fn answers(commands: &[Command]) -> Vec<Answer> {
    let answer = |command: &Command| match command {
        Command::Answer { reply, .. } => Some((reply.id, reply.result.clone())),
        Command::Ask { .. } | Command::Log { .. } | Command::Note(_) => None,
    };
    commands.iter().filter_map(answer).collect()
}

/// The requests to other servers among commands: to whom, under which number, what.
pub(super) fn asks(commands: &[Command]) -> Vec<(ServerId, u64, DataCall)> {
    let ask = |command: &Command| match command {
        Command::Ask { to, request, .. } => Some((*to, request.id, request.call.clone())),
        Command::Answer { .. } | Command::Log { .. } | Command::Note(_) => None,
    };
    commands.iter().filter_map(ask).collect()
}

/// The commands to the log among commands.
pub(super) fn logs(commands: &[Command]) -> Vec<LogCommand> {
    let log = |command: &Command| match command {
        Command::Log { command, .. } => Some(command.clone()),
        Command::Ask { .. } | Command::Answer { .. } | Command::Note(_) => None,
    };
    commands.iter().filter_map(log).collect()
}
