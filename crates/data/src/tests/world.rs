//! Three servers, a network that loses, repeats and reorders, disks that forget what was not synced, servers
//! that stop at any moment. One seed tells everything that happens.

use super::bench::{CLIENT, META, SESSION, frame, key, owner, payload};
use crate::{Command, Config, DataServer, Event, LogCommand, Payload, Start, Ticket};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest, Source};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight, FramePart};
use bearing_seams::{ChunkLog, CrashFault, MemChunkLog};
use bearing_types::{ChunkId, Epoch, Mono, Now, ServerId, Wall};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const EPOCH: Epoch = Epoch(1);
const SERVERS: usize = 3;
const SEEDS: u64 = 60;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone)]
enum What {
    Request(DataRequest),
    Reply(DataReply),
}

#[derive(Clone)]
struct Packet {
    from: Sender,
    to: Sender,
    what: What,
    attachment: Payload,
}

struct Host {
    machine: Option<DataServer>,
    log: MemChunkLog,
    queue: VecDeque<(Ticket, LogCommand)>,
    /// Reads that were carried out and not yet told.
    reads: Vec<Event>,
}

/// What the clients and the metadata server know of a chunk.
struct Known {
    servers: Vec<ServerId>,
    /// Salt and payload length of each acknowledged frame, by its place.
    acknowledged: BTreeMap<u64, (u64, usize)>,
    synced: BTreeSet<u64>,
    sealing: Option<Sealing>,
    sealed: Option<u64>,
    /// Below that: what was whole nowhere.
    holes: Vec<(u64, u64)>,
    /// A server that had not restarted told its length for the seal.
    whole: bool,
}

impl Known {
    /// Whether a frame that begins here is below the seal, and whole somewhere.
    fn keeps(&self, frame: u64) -> bool {
        let length = self.sealed.unwrap();
        frame < length && !self.holes.iter().any(|(start, end)| (*start..*end).contains(&frame))
    }
}

/// What a server holds of a fenced chunk: how far it reaches, whether it restarted, and what is damaged.
type Held = (u64, bool, Vec<(u64, u64)>);

/// The metadata server's work on one chunk.
struct Sealing {
    epoch: Epoch,
    tries: usize,
    /// What was answered; nothing: that nothing is there.
    fenced: BTreeMap<ServerId, Option<Held>>,
}

enum Wish {
    Append { salt: u64, length: usize },
    Sync { covers: BTreeSet<u64> },
    Read { salt: u64, length: usize, skip: u32, part: u32 },
    Fence { server: ServerId, epoch: Epoch },
    Seal { server: ServerId },
}

struct World {
    rng: Rng,
    now: Now,
    hosts: Vec<Host>,
    wire: Vec<Packet>,
    chunks: BTreeMap<ChunkId, Known>,
    wishes: BTreeMap<u64, (ChunkId, Wish, Packet)>,
    next_id: u64,
    bad: bool,
    /// Bits of what is read from the logs flip.
    spoils: bool,
    digest: u32,
    seals: BTreeMap<(ChunkId, ServerId), Result<DataBody, DataError>>,
    reads_good: u64,
    reads_corrupt: u64,
}

fn config() -> Config {
    Config { pipeline_frames_max: 8, recent_frames_max: 16, gap_frames_max: 4, ..Config::standard() }
}

fn index(server: ServerId) -> usize {
    server.0 as usize - 1
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng(seed);
        let hosts = (0..SERVERS).map(|_| Host {
            machine: None,
            log: MemChunkLog::new(),
            queue: VecDeque::new(),
            reads: Vec::new(),
        });
        let hosts = hosts.collect();
        let next_id = rng.next() >> 8;
        let now = Now { mono: Mono(1), wall: Wall(1) };
        let mut world = World {
            rng,
            now,
            hosts,
            wire: Vec::new(),
            chunks: BTreeMap::new(),
            wishes: BTreeMap::new(),
            next_id,
            bad: true,
            spoils: false,
            digest: 0,
            seals: BTreeMap::new(),
            reads_good: 0,
            reads_corrupt: 0,
        };
        (0..SERVERS).for_each(|at| world.start(at));
        world
    }

    fn start(&mut self, at: usize) {
        let start = Start { server: ServerId(at as u32 + 1), first_id: self.rng.next() };
        let chunks = self.hosts[at].log.chunks().unwrap();
        self.hosts[at].machine = Some(DataServer::new(start, config(), key(), chunks));
    }

    fn crash(&mut self, at: usize, mut fault: CrashFault) {
        let host = &mut self.hosts[at];
        host.machine = None;
        host.queue.clear();
        host.reads.clear();
        host.log.crash(&mut fault);
    }

    fn feed(&mut self, at: usize, event: Event) {
        let Some(machine) = &mut self.hosts[at].machine else { return };
        let mut out = Vec::new();
        let ticked = event == Event::Tick;
        machine.step(self.now, event, &mut out);
        let wake = machine.next_wake();
        assert!(!ticked || wake.is_none_or(|wake| wake > self.now.mono), "a timer that does not move on");
        let from = Sender::Server(ServerId(at as u32 + 1));
        for command in out {
            self.digest = crc32c::crc32c_append(self.digest, format!("{at}{command:?}").as_bytes());
            match command {
                Command::Log { ticket, command } => self.hosts[at].queue.push_back((ticket, command)),
                Command::Ask { to, request, attachment } => {
                    let to = Sender::Server(to);
                    self.wire.push(Packet { from, to, what: What::Request(request), attachment });
                }
                Command::Answer { to, reply, attachment } => {
                    self.wire.push(Packet { from, to, what: What::Reply(reply), attachment });
                }
                Command::Note(_) => {}
            }
        }
    }

    fn run_log(&mut self, at: usize) {
        let spoil = self.spoils;
        let host = &mut self.hosts[at];
        let Some((ticket, command)) = host.queue.pop_front() else { return };
        let mut event = command.run(ticket, &mut host.log);
        if let Event::ReadDone { result: Ok(bytes), .. } = &mut event {
            if spoil && !bytes.is_empty() {
                let bit = self.rng.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            return host.reads.push(event);
        }
        self.feed(at, event);
    }

    fn late_read(&mut self, at: usize) {
        if !self.hosts[at].reads.is_empty() {
            let which = self.rng.below(self.hosts[at].reads.len());
            let event = self.hosts[at].reads.swap_remove(which);
            self.feed(at, event);
        }
    }

    fn deliver(&mut self) {
        if self.wire.is_empty() {
            return;
        }
        let which = self.rng.below(self.wire.len());
        if self.bad && self.rng.one_in(15) {
            self.wire.push(self.wire[which].clone());
        }
        let packet = self.wire.swap_remove(which);
        if self.bad && self.rng.one_in(15) {
            return;
        }
        let attachment = packet.attachment.to_vec();
        match (packet.to, packet.what) {
            (Sender::Server(server), what) if index(server) < SERVERS => {
                let event = match what {
                    What::Request(request) => Event::Request { from: packet.from, request, attachment },
                    What::Reply(reply) => Event::Reply { from: packet.from, reply, attachment },
                };
                self.feed(index(server), event);
            }
            (_, What::Reply(reply)) => self.hear(reply, &attachment),
            (_, What::Request(_)) => panic!("a request to nobody"),
        }
    }

    fn wish(
        &mut self,
        from: Sender,
        to: ServerId,
        chunk: ChunkId,
        (call, bytes): (DataCall, Vec<u8>),
        wish: Wish,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let what = What::Request(DataRequest { id, chunk, call });
        let packet = Packet { from, to: Sender::Server(to), what, attachment: bytes.into() };
        self.wire.push(packet.clone());
        self.wishes.insert(id, (chunk, wish, packet));
    }

    fn capability(&self, chunk: ChunkId, right: DataRight) -> Capability {
        let expires = Wall(i64::MAX);
        Capability::sign(CapabilityBody { session: SESSION, chunk, right, expires }, &key())
    }

    /// The chunk that is written to; a new one if none is.
    fn open_chunk(&mut self) -> ChunkId {
        let open = self.chunks.iter().find(|(_, known)| known.sealing.is_none() && known.sealed.is_none());
        if let Some((id, _)) = open {
            return *id;
        }
        let id = ChunkId(self.chunks.len() as u64 + 1);
        let mut servers: Vec<_> = (1..=SERVERS as u32).map(ServerId).collect();
        servers.rotate_left(self.rng.below(SERVERS));
        servers.truncate(2 + self.rng.below(2));
        let known = Known {
            servers,
            acknowledged: BTreeMap::new(),
            synced: BTreeSet::new(),
            sealing: None,
            sealed: None,
            holes: Vec::new(),
            whole: false,
        };
        self.chunks.insert(id, known);
        id
    }

    fn append(&mut self) {
        let chunk = self.open_chunk();
        let servers = self.chunks[&chunk].servers.clone();
        let length = match self.rng.one_in(20) {
            true => 60_000 + self.rng.below(20_000),
            false => self.rng.below(3000),
        };
        let salt = self.rng.next();
        let bytes = frame(salt, length);
        let capability = self.capability(chunk, DataRight::append(EPOCH, &servers));
        let (primary, crc) = (servers[0], crc32c::crc32c(&bytes));
        let call = DataCall::Append { capability, servers, known: 0, crc };
        self.wish(CLIENT, primary, chunk, (call, bytes), Wish::Append { salt, length });
    }

    /// Appends the beginning of some acknowledged frame again, without sending it.
    fn append_from(&mut self) {
        let chunk = self.open_chunk();
        let Some((from, frame, (salt, length))) = self.some_frame().filter(|(.., (_, length))| *length > 0)
        else {
            return;
        };
        let servers = self.chunks[&chunk].servers.clone();
        let part = 1 + self.rng.below(length);
        let source = Source {
            chunk: from,
            frame,
            skip: 0,
            length: part as u32,
            capability: self
                .capability(from, DataRight::Read(FramePart { frame, skip: 0, length: part as u32 })),
            servers: self.chunks[&from].servers.clone(),
        };
        let (capability, owner) = (self.capability(chunk, DataRight::append(EPOCH, &servers)), owner(salt));
        let primary = servers[0];
        let call = DataCall::AppendFrom { capability, servers, known: 0, owner, source: Box::new(source) };
        self.wish(CLIENT, primary, chunk, (call, Vec::new()), Wish::Append { salt, length: part });
    }

    fn some_frame(&mut self) -> Option<(ChunkId, u64, (u64, usize))> {
        let all: Vec<_> = self
            .chunks
            .iter()
            .flat_map(|(id, known)| known.acknowledged.iter().map(move |(at, frame)| (*id, *at, *frame)))
            .collect();
        if all.is_empty() { None } else { Some(all[self.rng.below(all.len())]) }
    }

    fn sync(&mut self) {
        let chunk = self.open_chunk();
        let servers = self.chunks[&chunk].servers.clone();
        let covers = self.chunks[&chunk].acknowledged.keys().copied().collect();
        let capability = self.capability(chunk, DataRight::append(EPOCH, &servers));
        let primary = servers[0];
        let call = DataCall::Sync { capability, servers };
        self.wish(CLIENT, primary, chunk, (call, Vec::new()), Wish::Sync { covers });
    }

    /// Reads a part of some acknowledged frame from some server.
    fn read_some(&mut self) {
        if let Some((chunk, at, (salt, length))) = self.some_frame() {
            let server = self.chunks[&chunk].servers[self.rng.below(self.chunks[&chunk].servers.len())];
            let skip = self.rng.below(length + 1);
            let part = self.rng.below(length - skip + 1);
            self.read(server, chunk, at, Wish::Read { salt, length, skip: skip as u32, part: part as u32 });
        }
    }

    fn read(&mut self, server: ServerId, chunk: ChunkId, frame: u64, wish: Wish) {
        let Wish::Read { skip, part, .. } = wish else { panic!("not a read") };
        let right = DataRight::Read(FramePart { frame, skip, length: part });
        let capability = self.capability(chunk, right);
        let call = DataCall::Read { capability, frame, skip, length: part, flow: None };
        self.wish(CLIENT, server, chunk, (call, Vec::new()), wish);
    }

    /// An answer to a client or to the metadata server. Repeats of an acknowledgement count as well.
    fn hear(&mut self, reply: DataReply, attachment: &[u8]) {
        let Some((chunk, wish, _)) = self.wishes.get(&reply.id) else { return };
        let chunk = *chunk;
        let known = self.chunks.get_mut(&chunk).unwrap();
        match (wish, reply.result.clone()) {
            (Wish::Append { salt, length }, Ok(DataBody::Appended { frame })) => {
                let before = known.acknowledged.insert(frame, (*salt, *length));
                assert!(before.is_none_or(|before| before == (*salt, *length)), "two frames at one place");
                return;
            }
            (Wish::Sync { covers }, Ok(DataBody::Done)) => known.synced.extend(covers),
            (Wish::Append { .. } | Wish::Sync { .. }, Err(error)) => match error {
                DataError::ReplicaLost(_) | DataError::Sealed | DataError::Failed => self.seal(chunk),
                DataError::NoChunk | DataError::Full | DataError::Source => {}
                other => panic!("an append or sync was refused with {other:?}"),
            },
            (Wish::Read { salt, length, skip, part }, Ok(DataBody::Bytes { crc })) => {
                self.reads_good += 1;
                assert_eq!(crc, crc32c::crc32c(attachment));
                let expected = &payload(*salt, *length)[*skip as usize..(skip + part) as usize];
                assert!(attachment == expected, "wrong bytes of {chunk}");
            }
            (Wish::Read { .. }, Err(error)) => self.reads_corrupt += u64::from(error == DataError::Corrupt),
            (Wish::Fence { server, epoch }, Ok(DataBody::Fenced { length, restarted, damaged })) => {
                if let Some(sealing) = known.sealing.as_mut().filter(|sealing| sealing.epoch == *epoch) {
                    sealing.fenced.insert(*server, Some((length, restarted, damaged)));
                }
            }
            (Wish::Fence { server, epoch }, Err(DataError::NoChunk)) => {
                if let Some(sealing) = known.sealing.as_mut().filter(|sealing| sealing.epoch == *epoch) {
                    sealing.fenced.insert(*server, None);
                }
            }
            (Wish::Fence { .. }, Err(_)) => {}
            (Wish::Seal { server }, result) => {
                let server = *server;
                self.seals.insert((chunk, server), result);
            }
            (_, other) => panic!("a strange answer: {other:?}"),
        }
        self.wishes.remove(&reply.id);
    }

    fn seal(&mut self, chunk: ChunkId) {
        let known = self.chunks.get_mut(&chunk).unwrap();
        if known.sealing.is_none() && known.sealed.is_none() {
            known.sealing = Some(Sealing { epoch: EPOCH.next(), tries: 0, fenced: BTreeMap::new() });
        }
    }

    /// The metadata server does the next thing for each chunk that is being sealed.
    fn tend_seals(&mut self) {
        let ids: Vec<_> = self.chunks.keys().copied().collect();
        for id in ids {
            let known = self.chunks.get_mut(&id).unwrap();
            let servers = known.servers.clone();
            let Some(sealing) = &mut known.sealing else { continue };
            sealing.tries += 1;
            let (epoch, all) = (sealing.epoch, sealing.fenced.len() == servers.len());
            let held: Vec<&Held> = sealing.fenced.values().flatten().collect();
            let intact = held.iter().any(|(_, restarted, _)| !restarted);
            if all || (sealing.tries > 12 && intact) {
                let length = held.iter().map(|(length, ..)| *length).max().unwrap_or(0);
                known.holes = holes(&held, length);
                known.whole = intact;
                known.sealed = Some(length);
                known.sealing = None;
                servers.iter().for_each(|server| self.send_seal(id, *server));
                continue;
            }
            for server in servers {
                if !self.chunks[&id].sealing.as_ref().unwrap().fenced.contains_key(&server) {
                    let call = DataCall::Fence { epoch };
                    self.wish(META, server, id, (call, Vec::new()), Wish::Fence { server, epoch });
                }
            }
        }
    }

    fn send_seal(&mut self, id: ChunkId, server: ServerId) {
        let length = self.chunks[&id].sealed.unwrap();
        let call = DataCall::Seal { epoch: EPOCH.next(), length };
        self.wish(META, server, id, (call, Vec::new()), Wish::Seal { server });
    }

    /// Something is sent again.
    fn resend(&mut self) {
        if !self.wishes.is_empty() {
            let which = self.rng.below(self.wishes.len());
            let packet = self.wishes.values().nth(which).unwrap().2.clone();
            self.wire.push(packet);
        }
    }

    fn pass_time(&mut self, up_to_ms: usize) {
        let by = Duration::from_micros(self.rng.below(up_to_ms * 1000) as u64);
        self.now = Now { mono: self.now.mono.after(by), wall: self.now.wall.after(by) };
        for at in 0..SERVERS {
            let wake = self.hosts[at].machine.as_ref().and_then(|machine| machine.next_wake());
            if wake.is_some_and(|wake| wake <= self.now.mono) {
                self.feed(at, Event::Tick);
            }
        }
    }

    fn misfortune(&mut self, at: usize) {
        match self.rng.below(10) {
            0..5 => {
                let fault = CrashFault::new(self.rng.next());
                self.crash(at, fault);
            }
            5 => self.hosts[at].log.fail_next_sync(),
            6 => {
                for at in 0..SERVERS {
                    let fault = CrashFault::new(self.rng.next());
                    self.crash(at, fault);
                }
            }
            _ => self.hosts[at].log.set_full(true),
        }
    }

    /// Somebody looks after a server that stands still.
    fn mend(&mut self, at: usize) {
        if self.hosts[at].machine.as_ref().is_some_and(|machine| machine.has_failed()) {
            let fault = CrashFault::new(self.rng.next());
            self.crash(at, fault);
        }
        if self.hosts[at].machine.is_none() {
            self.start(at);
        }
    }

    fn step(&mut self) {
        let at = self.rng.below(SERVERS);
        match self.rng.below(100) {
            0..50 => self.deliver(),
            50..75 => self.run_log(at),
            75..80 => self.late_read(at),
            80..83 => self.pass_time(20),
            83..86 => self.append(),
            86..88 => self.append_from(),
            88..90 => self.sync(),
            90..94 => self.read_some(),
            94 => self.tend_seals(),
            95 => self.hosts[at].log.set_full(false),
            96 => self.mend(at),
            97 => self.resend(),
            98 if self.rng.one_in(6) => self.misfortune(at),
            98 => self.deliver(),
            _ if self.rng.one_in(2) => self.deliver(),
            _ => self.pass_time(400),
        }
    }

    /// Everything works again, until nothing is left to do.
    fn come_to_rest(&mut self) {
        self.bad = false;
        for at in 0..SERVERS {
            self.hosts[at].log.set_full(false);
            if self.hosts[at].machine.is_none() {
                self.start(at);
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        for _ in 0..300_000 {
            let busy = self.hosts.iter().any(|host| !host.queue.is_empty() || !host.reads.is_empty());
            if !busy && self.wire.is_empty() {
                return;
            }
            let at = self.rng.below(SERVERS);
            match self.rng.below(3) {
                0 => self.deliver(),
                1 => self.run_log(at),
                _ => self.late_read(at),
            }
        }
        panic!("the world does not come to rest");
    }

    fn restart_all(&mut self, fault: CrashFault) {
        for at in 0..SERVERS {
            self.crash(at, fault.clone());
            self.start(at);
        }
    }

    /// Seals what is not sealed and tells every server so.
    fn seal_everything(&mut self) {
        let ids: Vec<_> = self.chunks.keys().copied().collect();
        ids.iter().for_each(|id| self.seal(*id));
        while self.chunks.values().any(|known| known.sealed.is_none()) {
            self.restart_failed();
            self.tend_seals();
            self.drain();
        }
        // A disk that failed, now or earlier, works again after a restart.
        for _ in 0..2 {
            self.restart_failed();
            self.seals.clear();
            for id in &ids {
                for server in self.chunks[id].servers.clone() {
                    self.send_seal(*id, server);
                }
            }
            self.drain();
        }
    }

    fn restart_failed(&mut self) {
        for at in 0..SERVERS {
            if self.hosts[at].machine.as_ref().unwrap().has_failed() {
                self.crash(at, CrashFault::losing_all());
                self.start(at);
            }
        }
    }

    /// Reads every acknowledged frame below the seal from every server that has the whole chunk; what came of
    /// it.
    fn check_everything(&mut self) -> u64 {
        let good = self.reads_good;
        let mut expected = 0;
        let ids: Vec<_> = self.chunks.keys().copied().collect();
        for id in ids {
            let (known, length) = (&self.chunks[&id], self.chunks[&id].sealed.unwrap());
            let lost = known.acknowledged.keys().find(|frame| !known.keeps(**frame));
            assert!(lost.is_none() || !known.whole, "{id}: acknowledged at {lost:?}, sealed at {length}");
            let lost = known.synced.iter().find(|frame| !known.keeps(**frame));
            assert!(lost.is_none(), "{id}: synced at {lost:?}, sealed at {length} without {:?}", known.holes);
            let below: Vec<_> = known.acknowledged.range(..length).map(|(at, frame)| (*at, *frame)).collect();
            for server in known.servers.clone() {
                let result = self.seals[&(id, server)].clone();
                // A server that was away may have less, or may never have heard of the chunk.
                let apart = matches!(result, Err(DataError::Corrupt | DataError::NoChunk));
                assert!(apart || result == Ok(DataBody::Done), "{id} {result:?}");
                if result.is_ok() {
                    let entries = self.hosts[index(server)].log.chunks().unwrap();
                    let entry = entries.iter().find(|entry| entry.chunk == id).unwrap();
                    assert!(entry.length >= length && entry.sealed == Some(entry.length), "{id} {entry:?}");
                    expected += below.len() as u64;
                    for (at, (salt, length)) in &below {
                        let wish = Wish::Read { salt: *salt, length: *length, skip: 0, part: *length as u32 };
                        self.read(server, id, *at, wish);
                    }
                }
            }
        }
        self.drain();
        if !self.spoils {
            assert_eq!(self.reads_good - good, expected, "not every frame could be read");
        }
        expected
    }
}

/// What of a chunk's first bytes is whole at none of these.
fn holes(held: &[&Held], length: u64) -> Vec<(u64, u64)> {
    let damaged_at = |(end, _, damaged): &&Held, at: u64| {
        at >= *end || damaged.iter().any(|(start, end)| (*start..*end).contains(&at))
    };
    let units = (0..length).step_by(8).filter(|at| held.iter().all(|held| damaged_at(held, *at)));
    units.map(|at| (at, at + 8)).collect()
}

/// A whole run; what was checked, and a digest of all commands.
fn run(seed: u64, steps: usize) -> (u64, u32) {
    let mut world = World::new(seed);
    (0..steps).for_each(|_| world.step());
    world.come_to_rest();
    world.wishes.retain(|_, (_, wish, _)| matches!(wish, Wish::Append { .. }));
    world.seal_everything();
    let checked = world.check_everything();
    world.restart_all(CrashFault::losing_all());
    world.check_everything();
    let good = world.reads_good;
    world.spoils = true;
    world.check_everything();
    let spoilt = world.reads_good - good;
    assert!(checked < 50 || (spoilt < checked / 2 && world.reads_corrupt > 0), "{spoilt} of {checked}");
    (checked, world.digest)
}

#[test]
fn what_was_promised_holds_in_a_bad_world() {
    let mut checked = 0;
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| run(seed, 4000));
        checked += result.unwrap_or_else(|_| panic!("seed {seed}: see above")).0;
    }
    assert!(checked > 30 * SEEDS, "only {checked} frames were checked");
}

#[test]
fn a_seed_tells_everything() {
    for seed in 100..103 {
        assert_eq!(run(seed, 2000), run(seed, 2000));
    }
}
