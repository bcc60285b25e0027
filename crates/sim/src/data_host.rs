//! A data server's host: its machine and its chunk logs. Commands of one chunk are carried out one after the
//! other, each taking its time; reads and chunks go beside each other. A crash loses what was not synced.

use crate::clock::MILLISECOND;
use crate::cluster::{COORDINATOR, COORDINATOR_HOST, Hosts, Role};
use crate::crash_point::CrashPoints;
use crate::network::{HostId, Way};
use crate::post::Post;
use crate::world::{Happening, World};
use bearing_data::{Claim, Claimed, Command, Config, DataServer, Event, LogCommand, Note, Start, Ticket};
use bearing_meta::recovery::{Found, scan_chunk};
use bearing_proto::coordinator::Told;
use bearing_proto::frame::FrameHeader;
use bearing_proto::{Message, Sender};
use bearing_seams::{ChunkLog, DiskLabel, MemChunkLog};
use bearing_types::{ChunkId, DiskId, ServerId};
use bearing_workload::Seeded;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// See the module.
pub struct DataHost {
    pub host: HostId,
    server: ServerId,
    hosts: Hosts,
    machine: Option<DataServer>,
    /// Until it is known that the disk is the right one.
    claim: Option<Claim>,
    /// The right disk, while an emptied one is in its place.
    right: Option<MemChunkLog>,
    log: MemChunkLog,
    /// What was stable on the disk some time ago.
    older: MemChunkLog,
    post: Post,
    rng: Seeded,
    /// What a crash loses.
    faults: Option<Seeded>,
    lanes: BTreeMap<ChunkId, VecDeque<(Ticket, LogCommand)>>,
    jobs: BTreeMap<u64, (Ticket, LogCommand)>,
    next_job: u64,
    wake_at: Option<crate::clock::Instantly>,
    out: Vec<Command>,
    /// Syncs take so many times longer than usual.
    pub slowness: u64,
    /// The next sync fails.
    pub fail_sync: bool,
    /// Since when it takes nothing any more, because a sync failed.
    pub disk_failed: Option<u64>,
    /// Where it may die.
    pub crash_points: CrashPoints,
    /// It wants to die now, and why.
    pub dying: Option<String>,
}

impl DataHost {
    /// A host that is down, with an empty log.
    pub fn new(host: HostId, hosts: Hosts, rng: Seeded) -> DataHost {
        let Role::Data(server) = hosts.role(host) else { unreachable!("{host:?} is no data server") };
        DataHost {
            host,
            server,
            hosts,
            machine: None,
            claim: None,
            right: None,
            log: MemChunkLog::new(),
            older: MemChunkLog::new(),
            post: Post::new(host, Sender::Server(server)),
            rng,
            faults: None,
            lanes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            wake_at: None,
            out: Vec::new(),
            slowness: 1,
            fail_sync: false,
            disk_failed: None,
            crash_points: CrashPoints::default(),
            dying: None,
        }
    }

    /// Starts the machine on what the log holds.
    pub fn start(&mut self, world: &mut World) {
        world.toggle(self.host);
        let chunks = self.log.chunks().expect("a log in memory lists its chunks");
        let start = Start { server: self.server, first_id: self.rng.next() >> 1 };
        let mut config = Config::standard();
        config.scrub_delay = Duration::from_millis(500);
        config.scrub_interval = Duration::from_secs(5);
        config.scrub_bytes_per_second = 256 << 10;
        // Slow, so that much happens while a copy is made.
        config.copy_bytes_per_second = 64 << 10;
        config.scan_bytes = 64 << 10;
        self.machine = Some(DataServer::new(start, config, world.keys.grants().clone(), chunks));
        let fresh = DiskId(u128::from(self.rng.next()));
        let disk = self.log.disk().expect("a log in memory has an id or none");
        self.claim = Some(Claim::new(self.server, disk, fresh, self.rng.next() >> 1));
        self.finish_step(world);
    }

    /// The host dies. Unsynced bytes are lost, torn or kept as the fault says.
    pub fn crash(&mut self, world: &mut World) {
        world.toggle(self.host);
        self.machine = None;
        self.post = Post::new(self.host, Sender::Server(self.server));
        self.claim = None;
        self.lanes.clear();
        self.jobs.clear();
        self.wake_at = None;
        self.fail_sync = false;
        self.disk_failed = None;
        self.dying = None;
        let mut fault =
            crate::nemesis::crash_fault(self.faults.as_mut().unwrap_or(&mut self.rng), &mut world.counts);
        self.log.crash(&mut fault);
    }

    /// What its crash loses is drawn from here from now on.
    pub fn draw_faults_from(&mut self, rng: Seeded) {
        self.faults = Some(rng);
    }

    /// Whether the disk takes no more bytes; its own too while another one is in its place.
    pub fn set_full(&mut self, full: bool) {
        for log in std::iter::once(&mut self.log).chain(&mut self.right) {
            log.set_full(full);
            log.set_inodes_used_up(false);
        }
    }

    /// The disk takes no further chunks until there is room again, and says that it has room.
    pub fn use_up_inodes(&mut self) {
        self.own_log().set_inodes_used_up(true);
    }

    /// What it holds on its own disk, also while another one is in its place.
    fn own_log(&mut self) -> &mut MemChunkLog {
        self.right.as_mut().unwrap_or(&mut self.log)
    }

    /// The disk is replaced by an empty one. The host is down.
    pub fn empty(&mut self) {
        self.log = MemChunkLog::new();
        self.older = MemChunkLog::new();
    }

    /// What is stable on the disk is remembered, for [`DataHost::take_back`].
    pub fn remember(&mut self) {
        self.older = self.log.clone();
        self.older.set_full(false);
        self.older.crash(&mut bearing_seams::CrashFault::losing_all());
    }

    /// Whether the disk of the server was remembered.
    pub fn remembers(&mut self) -> bool {
        matches!(self.older.disk(), Ok(Some(_)))
    }

    /// The disk is as it was when it was remembered last. The host is down.
    pub fn take_back(&mut self) {
        self.log = self.older.clone();
    }

    /// Where the frames of a chunk begin and end that fit their checksums.
    pub fn whole_frames(&mut self, chunk: ChunkId) -> BTreeMap<u64, u64> {
        let bytes = self.own_log().read(chunk, 0, u32::MAX).unwrap_or_default();
        let (mut whole, mut at) = (BTreeMap::new(), 0);
        while at < bytes.len() {
            match whole_frame(&bytes[at..]) {
                Some(length) => {
                    whole.insert(at as u64, (at + length) as u64);
                    at += length;
                }
                None => at += 8,
            }
        }
        whole
    }

    /// Where frames of a chunk begin whose headers fit their checksums, and where these say that they end.
    pub fn headers(&mut self, chunk: ChunkId) -> BTreeMap<u64, u64> {
        let bytes = self.own_log().read(chunk, 0, u32::MAX).unwrap_or_default();
        let places = (0..bytes.len()).step_by(8);
        let header = |at: usize| FrameHeader::decode(&bytes[at..]).ok();
        places.filter_map(|at| Some((at as u64, at as u64 + header(at)?.frame_bytes()))).collect()
    }

    /// How much of a chunk is here, and whether it is sealed.
    pub fn held(&mut self, chunk: ChunkId) -> Option<(u64, bool)> {
        let entries = self.own_log().chunks().unwrap_or_default();
        let entry = entries.iter().find(|entry| entry.chunk == chunk)?;
        Some((entry.length, entry.sealed.is_some()))
    }

    /// Whether a metadata server was told how much of a chunk is here to stay.
    pub fn has_told(&mut self, chunk: ChunkId) -> bool {
        let entries = self.own_log().chunks().unwrap_or_default();
        entries.iter().any(|entry| entry.chunk == chunk && (entry.fenced || entry.sealed.is_some()))
    }

    /// What a recovery of metadata reads of it.
    pub fn scan(&mut self, server: ServerId, found: &mut Found) {
        let log = self.own_log();
        for entry in log.chunks().unwrap_or_default() {
            scan_chunk(log, server, &entry, found).expect("a disk in memory is read");
        }
    }

    /// All chunks that are here, and whether they are sealed; without graves, of which nothing is left but
    /// the name.
    pub fn chunks(&mut self) -> Vec<(ChunkId, bool)> {
        let entries = self.own_log().chunks().unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry.sealed != Some(0))
            .map(|entry| (entry.chunk, entry.sealed.is_some()))
            .collect()
    }

    /// The first bytes of a chunk, if it is sealed and has so many. What is kept between frames means
    /// nothing: a crash may leave anything there.
    pub fn sealed_bytes(&mut self, chunk: ChunkId, length: u64) -> Option<Vec<u8>> {
        self.held(chunk).filter(|(held, sealed)| *sealed && *held >= length)?;
        let mut bytes = self.own_log().read(chunk, 0, length as u32).ok()?;
        for Range { start, end } in gaps_in(&bytes) {
            bytes[start..end].fill(0);
        }
        Some(bytes)
    }

    /// A bit flips on the disk, near this place: not between frames.
    pub fn flip(&mut self, chunk: ChunkId, at: u64) {
        let bytes = self.own_log().read(chunk, 0, u32::MAX).unwrap_or_default();
        let gap = gaps_in(&bytes).into_iter().find(|gap| gap.contains(&(at as usize)));
        self.own_log().flip_bit(chunk, gap.map_or(at as usize, |gap| gap.start - 1));
    }

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, _from: HostId, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        if self.claim.is_some() {
            let told = packet.messages.iter().filter_map(|message| match message {
                Message::Told(told) => Some(told),
                _ => None,
            });
            told.for_each(|told| self.take_claim(world, told));
            return self.finish_step(world);
        }
        let mut attachment = Some(packet.attachment);
        for message in packet.messages {
            let event = match message {
                Message::Data(request) => {
                    let (chunk, call) = (request.chunk, &request.call);
                    world.tell(|| format!("{}: {:?} asks {chunk}: {call:?}", self.server, packet.sender));
                    let attachment = attachment.take().unwrap_or_default();
                    Event::Request { from: packet.sender, request, attachment }
                }
                Message::DataReply(reply) => {
                    let attachment = attachment.take().unwrap_or_default();
                    Event::Reply { from: packet.sender, reply, attachment }
                }
                _ => continue,
            };
            self.step(world, event);
        }
        self.finish_step(world);
    }

    /// The machine wanted to be woken now.
    pub fn wake(&mut self, world: &mut World) {
        if self.wake_at != Some(world.now()) {
            return;
        }
        self.wake_at = None;
        if self.claim.is_none() {
            self.step(world, Event::Tick);
        }
        self.finish_step(world);
    }

    fn take_claim(&mut self, world: &mut World, told: &Told) {
        let Some(claim) = &mut self.claim else { return };
        match claim.take(told) {
            Claimed::Nothing => {}
            Claimed::SetDisk(disk) => {
                self.log.set_disk(disk).expect("a log in memory keeps an id");
                claim.is_labelled(disk);
            }
            Claimed::Ours => {
                assert!(self.right.is_none(), "{} serves from an emptied disk", self.server);
                self.claim = None;
            }
            Claimed::Refused(_) => {
                assert!(self.right.is_some(), "{} refuses its own disk", self.server);
                world.counts.add("data: refused a disk that is not the right one");
                (self.claim, self.machine) = (None, None);
            }
        }
    }

    /// The host, which is down, is started on an empty disk next time. Whether it had one of its own to be
    /// emptied.
    pub fn empty_disk(&mut self, world: &mut World) -> bool {
        let registered = self.log.disk().is_ok_and(|disk| disk.is_some());
        if self.right.is_some() || !registered {
            return false;
        }
        world.counts.add("fault: a data disk is emptied");
        self.right = Some(std::mem::take(&mut self.log));
        true
    }

    /// The right disk is put back, if an empty one was in its place. The host is down.
    pub fn put_disk_back(&mut self) {
        if let Some(right) = self.right.take() {
            self.log = right;
        }
    }

    /// Whether an empty disk is in the place of the right one.
    pub fn has_wrong_disk(&self) -> bool {
        self.right.is_some()
    }

    /// Whether it answers: the coordinator, which may be slow, has said that its disk is the right one.
    pub fn serves(&self) -> bool {
        self.machine.is_some() && self.claim.is_none()
    }

    /// A command to the log is done now.
    pub fn done(&mut self, world: &mut World, number: u64) {
        let Some((ticket, command)) = self.jobs.remove(&number) else { return };
        if self.fail_sync && matches!(command, LogCommand::Sync { .. }) {
            self.fail_sync = false;
            self.log.fail_next_sync();
            world.counts.add("fault: data sync failed");
        }
        let event = command.run(ticket, &mut self.log);
        self.meet_boundary(world, syncs(&command));
        if let Some(chunk) = command.writes() {
            world.tell(|| told_of(self.server, chunk, &command, &event));
        }
        if let Some(chunk) = command.writes() {
            self.go_on(world, chunk);
        }
        self.step(world, event);
        self.finish_step(world);
    }

    fn step(&mut self, world: &mut World, event: Event) {
        if self.dying.is_some() {
            return;
        }
        let Some(machine) = &mut self.machine else { return };
        machine.step(world.clock_of(self.host), event, &mut self.out);
        for command in std::mem::take(&mut self.out) {
            world.commanded(self.host, &command);
            self.carry_out(world, command);
            if self.dying.is_some() {
                break;
            }
        }
    }

    fn finish_step(&mut self, world: &mut World) {
        let now = world.clock_of(self.host).mono;
        if let Some(ask) = self.claim.as_mut().and_then(|claim| claim.ask(now)) {
            let (to, message) = (Sender::Server(COORDINATOR), Message::Ask(ask));
            self.post.send(world, COORDINATOR_HOST, to, Way::Datagram, &message, &[]);
        }
        self.post.flush(world);
        self.set_wake(world);
    }

    fn carry_out(&mut self, world: &mut World, command: Command) {
        match command {
            Command::Ask { to, request, attachment } => {
                let Some(host) = self.hosts.host_of(to) else { return };
                let message = Message::Data(request);
                self.post.send(world, host, Sender::Server(to), Way::Datagram, &message, &attachment);
            }
            Command::Answer { to, reply, attachment } => {
                let Some(host) = world.host_of_sender(self.hosts, to) else { return };
                self.post.answer(world, host, to, &Message::DataReply(reply), &attachment);
            }
            Command::Log { ticket, command } => self.queue(world, ticket, command),
            Command::Note(Note::Step(name)) => {
                if self.crash_points.meet(&mut world.counts, &mut self.rng, "data ", name) {
                    self.dying = Some(format!("a crash at {name:?}"));
                }
            }
            Command::Note(note) => {
                if let Note::DiskFailed { .. } = note {
                    self.disk_failed.get_or_insert(world.now().0);
                    // Somebody notices after a while, and restarts it. Now and then so late that it is given
                    // up.
                    let noticed = match self.rng.chance(1, 4) {
                        true => self.rng.between(40_000, 80_000),
                        false => self.rng.between(1_000, 6_000),
                    };
                    let noticed = noticed * MILLISECOND;
                    let life = world.life(self.host);
                    world.after(noticed, Happening::Replace(self.host, life));
                }
                world.counts.add(name_of(&note));
                world.tell(|| format!("{}: {note}", self.server));
            }
        }
    }

    fn queue(&mut self, world: &mut World, ticket: Ticket, command: LogCommand) {
        match command.writes() {
            None => self.begin(world, ticket, command),
            Some(chunk) => {
                let lane = self.lanes.entry(chunk).or_default();
                lane.push_back((ticket, command));
                if lane.len() == 1 {
                    self.begin_first(world, chunk);
                }
            }
        }
    }

    /// The first command of a chunk stays in its lane until it is done.
    fn begin_first(&mut self, world: &mut World, chunk: ChunkId) {
        let first = self.lanes.get(&chunk).and_then(|lane| lane.front()).cloned();
        if let Some((ticket, command)) = first {
            self.begin(world, ticket, command);
        }
    }

    fn go_on(&mut self, world: &mut World, chunk: ChunkId) {
        let Some(lane) = self.lanes.get_mut(&chunk) else { return };
        lane.pop_front();
        if lane.is_empty() {
            self.lanes.remove(&chunk);
        } else {
            self.begin_first(world, chunk);
        }
    }

    fn begin(&mut self, world: &mut World, ticket: Ticket, command: LogCommand) {
        let delay = match &command {
            LogCommand::Sync { .. } | LogCommand::Set { .. } => {
                self.rng.between(100_000, 3 * MILLISECOND) * self.slowness
            }
            LogCommand::Append { .. } | LogCommand::Create { .. } | LogCommand::Remove { .. } => {
                self.rng.between(2_000, 60_000)
            }
            LogCommand::Read { .. } | LogCommand::Space => self.rng.between(5_000, 400_000),
        };
        self.next_job += 1;
        let syncs = syncs(&command);
        self.jobs.insert(self.next_job, (ticket, command));
        let life = world.life(self.host);
        world.after(delay, Happening::Done(self.host, life, self.next_job));
        self.meet_boundary(world, syncs);
    }

    fn meet_boundary(&mut self, world: &mut World, syncs: bool) {
        if syncs && world.boundaries.meet(self.host) {
            self.dying = Some("a cut at a sync".into());
        }
    }

    fn set_wake(&mut self, world: &mut World) {
        let due = match &self.claim {
            Some(claim) => Some(claim.next_wake()),
            None => self.machine.as_ref().and_then(DataServer::next_wake),
        };
        let Some(due) = due else { return };
        let at = world.when(self.host, due);
        if self.wake_at.is_none_or(|set| at < set) {
            self.wake_at = Some(at);
            let life = world.life(self.host);
            world.at(at, Happening::Wake(self.host, life));
        }
    }
}

/// Commands that make something stable.
fn syncs(command: &LogCommand) -> bool {
    matches!(command, LogCommand::Sync { .. } | LogCommand::Set { .. } | LogCommand::Create { .. })
}

fn name_of(note: &Note) -> &'static str {
    match note {
        Note::DiskFailed { .. } => "data: disk failed",
        Note::DiskFull { .. } => "data: disk full",
        Note::ReplicaLost { .. } => "data: replica lost",
        Note::Corrupt { .. } => "data: corrupt frame noticed",
        Note::Cut { .. } => "data: torn tail cut",
        Note::Short { .. } => "data: sealed beyond what is here",
        Note::Step(name) => name,
    }
}

fn told_of(server: ServerId, chunk: ChunkId, command: &LogCommand, event: &Event) -> String {
    let result = match event {
        Event::Done { result, .. } => format!("{result:?}"),
        _ => String::new(),
    };
    match command {
        LogCommand::Append { offset, bytes, .. } => {
            format!("{server}: {chunk}, {} bytes appended at {offset}: {result}", bytes.len())
        }
        other => format!("{server}: {chunk}, {other:?}: {result}"),
    }
}

/// The length of the frame with which these bytes begin, if it fits its checksums.
fn whole_frame(bytes: &[u8]) -> Option<usize> {
    let header = FrameHeader::decode(bytes).ok()?;
    let start = header.header_bytes as usize;
    let payload = bytes.get(start..start + header.payload_bytes as usize)?;
    let length = header.frame_bytes() as usize;
    (header.verify(0, payload) && length <= bytes.len()).then_some(length)
}

/// What lies between the payloads of frames and the next frames.
fn gaps_in(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut gaps = Vec::new();
    let mut start = 0;
    while let Ok(header) = FrameHeader::decode(&bytes[start..]) {
        let used = start + (header.header_bytes + header.payload_bytes) as usize;
        start += header.frame_bytes() as usize;
        if start > bytes.len() {
            break;
        }
        gaps.push(used..start);
    }
    gaps.retain(|gap| !gap.is_empty());
    gaps
}
