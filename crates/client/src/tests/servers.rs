//! Small servers: one metadata server with the files of one directory, and data servers that keep real
//! frames. They answer what a world sends, lose or repeat some of it if told to, and say "not now" now and
//! then.

use super::world::*;
use crate::run::Random;
use crate::state::files::ExtentMap;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{
    Answer as WireAnswer, Body, Call, ChunkRef, ChunkView, CommitMode, EntryView, Extent, Handle, LeaseMs,
    NodeView, Reply, Request, StatfsView,
};
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest, Source};
use bearing_proto::delegation::{Step, StepDone, StepsDone};
use bearing_proto::frame::{self, FrameHeader, FrameOwner};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, OpenRights, OpenToken, ReadRights};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::collections::{BTreeMap, BTreeSet};

pub const D1: ServerId = ServerId(11);
pub const D2: ServerId = ServerId(12);
pub const D3: ServerId = ServerId(13);
/// On so many of them a chunk lies.
const COPIES: usize = 2;

/// The answer that these steps are done.
pub fn steps_done(steps: &[Step]) -> Body {
    let done = |step: &Step| StepDone { sequence: step.sequence, made: None, token: None };
    Body::Steps(StepsDone { steps: steps.iter().map(done).collect(), lease: LeaseMs(10_000), ids: None })
}

pub struct FileRecord {
    pub attributes: Attributes,
    pub extents: ExtentMap,
}

pub struct ChunkRecord {
    pub epoch: Epoch,
    pub servers: Vec<ServerId>,
    pub sealed: Option<u64>,
    pub holes: Vec<(u64, u64)>,
    pub logs: BTreeMap<ServerId, Vec<u8>>,
}

/// See the module.
pub struct Servers {
    pub names: BTreeMap<Name, Handle>,
    pub files: BTreeMap<NodeId, FileRecord>,
    pub chunks: BTreeMap<ChunkId, ChunkRecord>,
    replies: BTreeMap<Sequence, Result<Body, Code>>,
    /// Every call that was carried out, in order, with the data calls between.
    pub log: Vec<String>,
    pub lease: u32,
    /// Data servers that answer nothing.
    pub dead: BTreeSet<ServerId>,
    /// Data servers whose disks are full.
    pub full: BTreeSet<ServerId>,
    /// Data servers whose next read gives damaged bytes.
    pub damaged: BTreeSet<ServerId>,
    /// Data servers that do not know what all others have, as long as the chunk is not sealed.
    pub unknowing: BTreeSet<ServerId>,
    /// No data server takes bytes from where they are.
    pub sends_only: bool,
    /// Seal at so many bytes less than there are.
    pub cut_at_seal: u64,
    /// Or do not: who has something of it is lost.
    pub cannot_seal: bool,
    /// And without these ranges.
    pub holes_at_seal: Vec<(u64, u64)>,
    /// Chunks whose writers are done with them, and the bytes that they say to have committed.
    pub finished: BTreeMap<ChunkId, u64>,
    pub commits_fail: Option<Code>,
    /// So many extents of a file are dropped at once.
    pub dropped_max: usize,
    /// What there is room for.
    pub bytes_free: u64,
    random: Random,
    /// Of a thousand messages so many are lost, repeated, or put off.
    pub faults: u64,
    next: u64,
}

impl Servers {
    pub fn new(seed: u64) -> Servers {
        Servers {
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            chunks: BTreeMap::new(),
            replies: BTreeMap::new(),
            log: Vec::new(),
            lease: 0,
            dead: BTreeSet::new(),
            full: BTreeSet::new(),
            damaged: BTreeSet::new(),
            unknowing: BTreeSet::new(),
            sends_only: false,
            cut_at_seal: 0,
            cannot_seal: false,
            holes_at_seal: Vec::new(),
            finished: BTreeMap::new(),
            commits_fail: None,
            dropped_max: usize::MAX,
            bytes_free: 1 << 40,
            random: Random::new(seed),
            faults: 0,
            next: 100,
        }
    }

    /// Numbers of requests begin anew.
    pub fn begin_session(&mut self) {
        self.replies.clear();
    }

    fn chance(&mut self) -> bool {
        let faults = self.faults;
        self.random.next() % 1000 < faults
    }

    /// Answers everything, letting time pass where nothing else happens, until the operation is over.
    pub fn run(&mut self, world: &mut World, ticket: Ticket) -> Result<Answer, Code> {
        for _ in 0..100_000 {
            if world.finished.contains_key(&ticket) {
                return world.result(ticket);
            }
            if !self.answer_all(world) {
                assert!(world.pass_to_next(), "nothing will ever happen");
            }
        }
        panic!("the operation does not end");
    }

    pub fn perform(&mut self, world: &mut World, operation: Operation) -> Result<Answer, Code> {
        let ticket = world.start(operation);
        self.run(world, ticket)
    }

    /// Answers what was sent. `false` if that is nothing.
    pub fn answer_all(&mut self, world: &mut World) -> bool {
        let sent = std::mem::take(&mut world.sent);
        let any = !sent.is_empty();
        for sent in sent {
            if self.chance() {
                continue;
            }
            let times = if self.chance() { 2 } else { 1 };
            for _ in 0..times {
                self.deliver(world, &sent);
            }
        }
        any
    }

    fn deliver(&mut self, world: &mut World, sent: &Sent) {
        let answer = match &sent.message {
            Message::Request(request) => {
                let answer = self.request(request);
                Some((Message::Reply(Reply { sequence: request.sequence, answer }), Vec::new()))
            }
            Message::Data(request) => {
                let Target::Server(server) = sent.to else { panic!("data servers have ids") };
                self.data(server, request, &sent.attachment)
                    .map(|(reply, attachment)| (Message::DataReply(reply), attachment))
            }
            _ => None,
        };
        if let Some((message, attachment)) = answer
            && !self.chance()
        {
            world.step(Event::Message { from: sent.to, message, attachment });
        }
    }

    fn is_sealed(&self, chunk: ChunkId) -> bool {
        self.chunks.get(&chunk).is_none_or(|record| record.sealed.is_some())
    }

    fn request(&mut self, request: &Request) -> WireAnswer {
        if self.chance() {
            return WireAnswer::Retry { after_us: 100 };
        }
        let result = match self.replies.get(&request.sequence) {
            Some(result) => result.clone(),
            None => {
                let result = self.call(&request.call, request.position);
                if request.call.mutates() {
                    self.replies.insert(request.sequence, result.clone());
                }
                result
            }
        };
        let tablet = map().assignment.tablet_at(request.position).clone();
        WireAnswer::Done {
            tablet: tablet.block,
            epoch: tablet.epoch,
            result: result.map(Box::new),
            changed: Vec::new(),
        }
    }

    fn log(&mut self, call: &str) {
        self.log.push(call.to_owned());
    }

    fn call(&mut self, call: &Call, position: Position) -> Result<Body, Code> {
        match call {
            Call::Map { .. } => Ok(Body::Map(None)),
            Call::RenewSession => Ok(Body::Session { renew_within_ms: 30_000 }),
            Call::CloseSession => Ok(Body::Done),
            Call::Directory { .. } | Call::Root { .. } => {
                Ok(Body::Directory(Box::new(root_view(self.lease))))
            }
            Call::Lookup { name, .. } => {
                let node = *self.names.get(name).ok_or(Code::NotFound)?;
                Ok(Body::Entry(self.entry(node), None))
            }
            Call::Prefetch { after, count_max, .. } => {
                self.log("ahead");
                Ok(self.ahead(*after, *count_max))
            }
            Call::Create { name, .. } => self.create(name, position),
            Call::Unlink { name, keep_open, .. } => {
                self.log(&format!("unlink keep_open={keep_open}"));
                let node = self.names.remove(name).ok_or(Code::NotFound)?;
                if !keep_open {
                    self.files.remove(&node.node);
                }
                Ok(Body::Done)
            }
            Call::Statfs => {
                let (bytes_total, bytes_free) = (1 << 41, self.bytes_free);
                Ok(Body::Statfs(StatfsView { bytes_total, bytes_free }))
            }
            Call::Quota { .. } => Ok(Body::Quota(None)),
            Call::Release { node } => {
                self.log("release");
                if !self.names.values().any(|named| named == node) {
                    self.files.remove(&node.node);
                }
                Ok(Body::Done)
            }
            Call::Attributes { node } => Ok(Body::Node(self.view(node)?)),
            Call::SetAttributes { node, change, .. } => {
                self.log("set attributes");
                if let Some(size) = change.size {
                    self.cut(node, size)?;
                }
                Ok(Body::Node(self.view(node)?))
            }
            Call::Open { node, read, write, truncate, .. } => {
                self.log("open");
                if *truncate {
                    self.cut(node, 0)?;
                }
                let rights = OpenRights::of(*read, *write);
                let token = rights.map(|rights| OpenToken::sign(node.node, SESSION, rights, &key()));
                Ok(Body::Opened(self.view(node)?, token))
            }
            Call::Extents { node, offset, .. } => {
                let record = self.files.get(&node.node).ok_or(Code::Stale)?;
                // Two at a time, so that paging is needed.
                let parts = record.extents.parts(*offset..u64::MAX).map(|stored| stored.extent);
                let mut extents: Vec<_> = parts.take(3).collect();
                let complete = extents.len() < 3;
                extents.truncate(2);
                let (version, size) = (record.attributes.version, record.attributes.size);
                let expires = Wall(i64::MAX);
                let right =
                    |extent: &Extent| Capability::sign(extent.read_right(SESSION, expires), &key()).mac;
                let reads = Some(ReadRights { expires, macs: extents.iter().map(right).collect() });
                Ok(Body::Extents { version, size, extents, complete, reads, token: None })
            }
            Call::Commit { node, extents, size_min, modified, mode, .. } => {
                self.log(match mode {
                    CommitMode::Put => "commit",
                    CommitMode::Append => "append commit",
                });
                if let Some(code) = self.commits_fail {
                    return Err(code);
                }
                let record = self.files.get_mut(&node.node).ok_or(Code::Stale)?;
                let base = match mode {
                    CommitMode::Put => 0,
                    CommitMode::Append => record.attributes.size,
                };
                let covered = |extent: &Extent| {
                    let start = base + extent.file_offset;
                    record.extents.parts(start..start + u64::from(extent.length)).count()
                };
                if extents.iter().map(covered).sum::<usize>() > self.dropped_max {
                    return Err(Code::TooLarge);
                }
                for extent in extents {
                    record.extents.cover(Extent { file_offset: base + extent.file_offset, ..*extent });
                }
                let attributes = &mut record.attributes;
                attributes.size = attributes.size.max(base + *size_min);
                attributes.modified = *modified;
                attributes.version = attributes.version.next();
                Ok(Body::Node(self.view(node)?))
            }
            Call::MakeHole { node, start, end, size_min, .. } => {
                self.log("make hole");
                let record = self.files.get_mut(&node.node).ok_or(Code::Stale)?;
                if record.extents.parts(*start..*end).count() > self.dropped_max {
                    return Err(Code::TooLarge);
                }
                let kept: Vec<_> =
                    record.extents.parts(0..*start).chain(record.extents.parts(*end..u64::MAX)).collect();
                let attributes = &mut record.attributes;
                attributes.size = attributes.size.max(*size_min);
                attributes.version = attributes.version.next();
                record.extents = ExtentMap::empty(attributes.version);
                kept.into_iter().for_each(|stored| record.extents.cover(stored.extent));
                Ok(Body::Node(self.view(node)?))
            }
            Call::OpenChunk { avoid, doubted } => self.open_chunk(avoid, doubted),
            Call::Chunk { chunk } if !self.chunks.contains_key(&chunk.chunk) => Err(Code::Stale),
            Call::Chunk { chunk } => Ok(Body::Chunk(self.chunk_view(*chunk))),
            Call::SealChunk { .. } if self.cannot_seal => Err(Code::Io),
            Call::SealChunk { chunk, .. } => {
                self.log("seal");
                let cut = self.cut_at_seal;
                let dead = self.dead.clone();
                let record = self.chunks.get_mut(&chunk.chunk).ok_or(Code::Stale)?;
                let alive = record.servers.iter().filter(|server| !dead.contains(server));
                let length = alive.map(|server| record.logs[server].len() as u64).min().unwrap_or(0);
                record.sealed.get_or_insert(length.saturating_sub(cut));
                record.holes.append(&mut self.holes_at_seal);
                record.epoch = record.epoch.next();
                Ok(Body::Chunk(self.chunk_view(*chunk)))
            }
            Call::Delegated { steps, .. } => {
                self.log("steps");
                Ok(steps_done(steps))
            }
            Call::FinishChunk { chunk, payload, .. } => {
                self.log("finish");
                self.finished.insert(chunk.chunk, *payload);
                Ok(Body::Done)
            }
            other => panic!("these servers cannot do {other:?}"),
        }
    }

    /// A name and the file that it leads to.
    pub fn put(&mut self, node: Handle, text: &str) {
        self.names.insert(name(text), node);
        let attributes = attributes(FileType::Regular, 1);
        self.files.insert(node.node, FileRecord { attributes, extents: ExtentMap::empty(Version(1)) });
    }

    /// Pages of ten at most.
    fn ahead(&self, after: Cookie, count_max: u32) -> Body {
        let cookie = |name: &Name| Cookie::new(NameHash::of(NAME_KEY, name), 1);
        let mut listed: Vec<_> = self.names.iter().map(|(name, node)| (cookie(name), name, *node)).collect();
        listed.retain(|(cookie, ..)| *cookie > after);
        listed.sort();
        let count = 10.min(count_max as usize);
        let next = listed.get(count - 1).filter(|_| listed.len() > count).map(|(cookie, ..)| *cookie);
        listed.truncate(count);
        let entries = listed.into_iter().map(|(_, name, node)| (name.clone(), self.entry(node))).collect();
        Body::Prefetched { entries, next }
    }

    fn create(&mut self, name: &Name, home: Position) -> Result<Body, Code> {
        if self.names.contains_key(name) {
            return Err(Code::Exists);
        }
        self.next += 1;
        let node = Handle { node: NodeId(self.next), home };
        self.names.insert(name.clone(), node);
        let attributes = attributes(FileType::Regular, 1);
        let record = FileRecord { attributes, extents: ExtentMap::empty(Version(1)) };
        self.files.insert(node.node, record);
        let token = OpenToken::sign(node.node, SESSION, OpenRights::ReadWrite, &key());
        Ok(Body::Entry(self.entry(node), Some(token)))
    }

    fn cut(&mut self, node: &Handle, size: u64) -> Result<(), Code> {
        let record = self.files.get_mut(&node.node).ok_or(Code::Stale)?;
        if record.extents.parts(size..u64::MAX).count() > self.dropped_max {
            return Err(Code::TooLarge);
        }
        let kept: Vec<_> = record.extents.parts(0..size).collect();
        record.extents = ExtentMap::empty(Version(1));
        for stored in kept {
            record.extents.cover(stored.extent);
        }
        record.attributes.size = size;
        record.attributes.version = record.attributes.version.next();
        Ok(())
    }

    fn view(&self, node: &Handle) -> Result<NodeView, Code> {
        let record = self.files.get(&node.node).ok_or(Code::Stale)?;
        Ok(NodeView {
            node: *node,
            attributes: record.attributes,
            lease: LeaseMs(self.lease),
            may_open: true,
            extended: false,
        })
    }

    fn entry(&self, node: Handle) -> EntryView {
        EntryView {
            node,
            file_type: FileType::Regular,
            lease: LeaseMs(self.lease),
            attributes: self.view(&node).ok(),
            directory: None,
        }
    }

    fn open_chunk(&mut self, avoid: &[ServerId], doubted: &[ServerId]) -> Result<Body, Code> {
        let doubting = if doubted.is_empty() { String::new() } else { format!(", doubting {doubted:?}") };
        self.log(&format!("open chunk avoiding {avoid:?}{doubting}"));
        let mut servers: Vec<_> = [D1, D2, D3].into_iter().filter(|server| !avoid.contains(server)).collect();
        servers.sort_by_key(|server| doubted.contains(server));
        if servers.len() < COPIES {
            return Err(Code::NoSpace);
        }
        let servers = servers[..COPIES].to_vec();
        self.next += 1;
        let chunk = ChunkRef { chunk: ChunkId(self.next), position: Position(self.next) };
        let logs = servers.iter().map(|server| (*server, Vec::new())).collect();
        self.chunks.insert(
            chunk.chunk,
            ChunkRecord { epoch: Epoch(1), servers, sealed: None, holes: Vec::new(), logs },
        );
        Ok(Body::Chunk(self.chunk_view(chunk)))
    }

    fn chunk_view(&self, chunk: ChunkRef) -> ChunkView {
        let record = &self.chunks[&chunk.chunk];
        let body = CapabilityBody {
            session: SESSION,
            chunk: chunk.chunk,
            right: DataRight::append(record.epoch, &record.servers),
            expires: Wall(i64::MAX),
        };
        ChunkView {
            chunk,
            epoch: record.epoch,
            servers: record.servers.clone(),
            sealed: record.sealed,
            capability: Some(Capability::sign(body, &key())),
            holes: record.holes.clone(),
        }
    }

    fn data(
        &mut self,
        server: ServerId,
        request: &DataRequest,
        bytes: &[u8],
    ) -> Option<(DataReply, Vec<u8>)> {
        if self.dead.contains(&server) {
            return None;
        }
        let mut attachment = Vec::new();
        let result = match &request.call {
            DataCall::Append { servers, crc, .. } => self.append(server, request.chunk, servers, *crc, bytes),
            DataCall::AppendFrom { servers, owner, source, .. } => {
                self.append_from(server, request.chunk, servers, owner, source)
            }
            DataCall::Sync { servers, .. } => {
                self.log("sync");
                match servers.iter().find(|server| self.dead.contains(server)) {
                    Some(lost) => Err(DataError::ReplicaLost(*lost)),
                    None if self.is_sealed(request.chunk) => Err(DataError::Sealed),
                    None => Ok(DataBody::Done),
                }
            }
            DataCall::Read { frame, skip, length, .. } => {
                self.read(server, request.chunk, *frame, *skip, *length).map(|read| {
                    let crc = crc32c::crc32c(&read);
                    attachment = read;
                    if self.damaged.contains(&server) {
                        attachment[0] ^= 1;
                    }
                    DataBody::Bytes { crc }
                })
            }
            other => panic!("clients do not send {other:?}"),
        };
        Some((DataReply { id: request.id, result }, attachment))
    }

    fn append_from(
        &mut self,
        server: ServerId,
        chunk: ChunkId,
        servers: &[ServerId],
        owner: &FrameOwner,
        source: &Source,
    ) -> Result<DataBody, DataError> {
        self.log("append from");
        let alive = source.servers.iter().filter(|server| !self.dead.contains(server) && !self.sends_only);
        let mut reads =
            alive.map(|server| self.read(*server, source.chunk, source.frame, source.skip, source.length));
        let bytes = reads.find_map(Result::ok).ok_or(DataError::Source)?;
        let mut taken = Vec::new();
        frame::encode(owner, &bytes, &mut taken);
        self.keep(server, chunk, servers, &taken)
    }

    fn append(
        &mut self,
        server: ServerId,
        chunk: ChunkId,
        servers: &[ServerId],
        crc: u32,
        bytes: &[u8],
    ) -> Result<DataBody, DataError> {
        self.log("append");
        assert_eq!(crc32c::crc32c(bytes), crc);
        self.keep(server, chunk, servers, bytes)
    }

    fn keep(
        &mut self,
        server: ServerId,
        chunk: ChunkId,
        servers: &[ServerId],
        bytes: &[u8],
    ) -> Result<DataBody, DataError> {
        assert_eq!(servers[0], server);
        let record = self.chunks.get_mut(&chunk).ok_or(DataError::NoChunk)?;
        if record.sealed.is_some() {
            return Err(DataError::Sealed);
        }
        if self.full.contains(&server) {
            return Err(DataError::Full);
        }
        let frame = record.logs[&server].len() as u64;
        record.logs.get_mut(&server).unwrap().extend_from_slice(bytes);
        if let Some(lost) = servers.iter().find(|server| self.dead.contains(server)) {
            return Err(DataError::ReplicaLost(*lost));
        }
        for server in &servers[1..] {
            record.logs.get_mut(server).unwrap().extend_from_slice(bytes);
        }
        Ok(DataBody::Appended { frame })
    }

    fn read(
        &self,
        server: ServerId,
        chunk: ChunkId,
        frame: u64,
        skip: u32,
        length: u32,
    ) -> Result<Vec<u8>, DataError> {
        let record = self.chunks.get(&chunk).ok_or(DataError::NoChunk)?;
        let log = record.logs.get(&server).ok_or(DataError::NoChunk)?;
        if self.unknowing.contains(&server) && record.sealed.is_none() {
            return Err(DataError::BeyondEnd);
        }
        if record.sealed.is_some_and(|length| length <= frame) {
            return Err(DataError::BeyondEnd);
        }
        let end = record.sealed.unwrap_or(u64::MAX).min(log.len() as u64) as usize;
        let log = log[..end].get(frame as usize..).ok_or(DataError::BeyondEnd)?;
        let header = FrameHeader::decode(log).map_err(|_| DataError::Corrupt)?;
        let from = header.header_bytes as usize + skip as usize;
        log.get(from..from + length as usize).map(<[u8]>::to_vec).ok_or(DataError::BeyondEnd)
    }
}

fn key() -> Key {
    Key::new([9; 32])
}
