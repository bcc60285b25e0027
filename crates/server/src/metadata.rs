//! The metadata server's daemon: store and tablet log around the metadata machine.
//!
//! A turn steps the machine with all that came in and all that log and store have done, carries out its
//! commands in order, and begins what they are to do next, until nothing is left to do. They do it meanwhile,
//! on threads of their own, and wake the loop.

use crate::StartError;
use crate::cluster::DaemonName;
use crate::config::DaemonConfig;
use crate::data::random_disk_id;
use crate::disk::Disk;
use crate::formats::{LOG_CONTENTS, STORE_CONTENTS};
use crate::metrics::of_metadata::{self, Watched};
use crate::metrics::{self, Page};
use crate::post::Post;
use crate::shell::{self, Driver, LongStep};
use crate::space::HeldSpace;
use bearing_engines_local::{FileTabletLog, FjallStore};
use bearing_env::Clock;
use bearing_meta::{Command, Config, Event, Failing, Headroom, MetaServer, Note, reserve_bytes};
use bearing_proto::coordinator::{Ask, AskCall, TellBody, Told};
use bearing_proto::{Message, Sender};
use bearing_seams::EngineError;
use bearing_types::{Block, Mono, Now, ServerId, Squash};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The log takes at most this part of a small disk, and the room taken ahead for the store as much.
const LOG_OF_DISK: u64 = 16;
const JOURNAL_OF_DISK: u64 = 16;
/// A disk has had little space for so long before the store is flushed to cut the log.
const FLUSH_DELAY: Duration = Duration::from_millis(300);

/// Runs a metadata server until it is told to stop.
pub fn run_metadata(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, keys, waker| {
        // Before anything is opened: a full disk has no other room for that.
        let space = HeldSpace::open(&config.directory, config.metadata.reserve_bytes)?;
        let log_bytes_max =
            config.metadata.log_bytes_max.min((space.disk_bytes() / LOG_OF_DISK).max(1 << 20));
        let mut store = FjallStore::open(&config.directory.join("store"), &STORE_CONTENTS)
            .map_err(StartError::engine("open the store"))?;
        store.take_room(space.disk_bytes() / JOURNAL_OF_DISK);
        let copies = config.cluster.metadata_copies;
        let mut log = FileTabletLog::open_with_segments(
            &config.directory.join("tablet-log"),
            &LOG_CONTENTS,
            segment_bytes(log_bytes_max),
        )
        .map_err(|error| damaged_log(config.daemon.name, copies, error))?;
        let id = config.daemon.name.server();
        let limits = Config {
            cache_entries_max: config.metadata.cache_entries_max,
            lost_timeout: Duration::from_secs(config.metadata.data_server_lost_after_s),
            chunk_ttl: Duration::from_secs(config.metadata.chunk_life_s),
            scan_delay: Duration::from_secs(config.metadata.chunk_look_after_s),
            checkpoint_interval: Duration::from_secs(config.metadata.checkpoint_interval_s.max(1)),
            reserve_bytes: config.metadata.reserve_bytes,
            lookup: config.cluster.lookup,
            prefix: config.cluster.prefix,
            ..Config::standard()
        };
        let recovered = bearing_meta::recover(&mut store, &mut log, random_disk_id(), &limits)?;
        tracing::info!("the tablet log is replayed; records of {} tablets are here", recovered.tablets.len());
        let machine = MetaServer::new(id, limits, keys.clone());
        let unapplied = recovered.unapplied();
        let disk =
            Disk::start(store, log, log_bytes_max, unapplied, move || waker.wake()).map_err(|error| {
                let reason = format!("no threads could be made for store and tablet log: {error}");
                StartError::Stopped { server: id, reason }
            })?;
        let reserve_asked = config.metadata.reserve_bytes;
        let events = VecDeque::from([Event::Start(recovered)]);
        Ok(TabletKeeper {
            id,
            copies,
            machine,
            disk,
            space,
            events,
            operators: Vec::new(),
            commands: Vec::new(),
            owned: None,
            failed: None,
            low: false,
            low_since: None,
            reserve_asked,
            changes: Changes::default(),
            steps: BTreeMap::new(),
            watched: Watched::new(),
        })
    })
}

/// The size of a segment of a tablet log: the log is cut by whole segments, so a few make up its limit.
pub fn segment_bytes(log_bytes_max: u64) -> u64 {
    (log_bytes_max / 4).clamp(64 << 10, 64 << 20)
}

struct TabletKeeper {
    id: ServerId,
    /// On how many servers each tablet is.
    copies: u8,
    machine: MetaServer,
    disk: Disk,
    space: HeldSpace,
    events: VecDeque<Event>,
    /// Who asked what for people, and under which number.
    operators: Vec<(Sender, Ask)>,
    commands: Vec<Command>,
    /// The tablets that are this server's by the newest map.
    owned: Option<Vec<Block>>,
    failed: Option<StartError>,
    /// The disk has little space, and since when.
    low: bool,
    low_since: Option<Mono>,
    /// What is to be kept free of the disk.
    reserve_asked: u64,
    changes: Changes,
    /// The kinds of steps of this turn: how many, and how long they took.
    steps: BTreeMap<&'static str, (u32, Duration)>,
    watched: Watched,
}

/// What of tablets changed in a turn: a server may own thousands, and each line takes time that their clients
/// wait for.
#[derive(Debug, Default)]
struct Changes {
    claimed: BTreeMap<ServerId, Vec<Block>>,
    /// Members that they go on without, each with why the first of them does.
    without: BTreeMap<ServerId, (Failing, Vec<Block>)>,
    copied: BTreeMap<ServerId, Vec<Block>>,
    taken: Vec<Block>,
    served: Vec<Block>,
    left: Vec<Block>,
}

impl Changes {
    fn tell(&mut self) {
        let Changes { claimed, without, copied, taken, served, left } = std::mem::take(self);
        for (member, (why, blocks)) in without {
            let member = DaemonName::of(member);
            tracing::warn!("gone on with without {member}: {} ({why})", tablets(&blocks));
        }
        for (owner, blocks) in claimed {
            let owner = DaemonName::of(owner);
            tracing::warn!("{owner} is silent; claimed of it: {}", tablets(&blocks));
        }
        for (what, blocks) in [("taken", taken), ("served from now on", served), ("served elsewhere", left)] {
            if !blocks.is_empty() {
                tracing::info!("{what}: {}", tablets(&blocks));
            }
        }
        for (member, blocks) in copied {
            tracing::info!("{} is about to have a copy of {}", DaemonName::of(member), tablets(&blocks));
        }
    }
}

/// How many tablets, and the first of them.
fn tablets(blocks: &[Block]) -> String {
    const SHOWN: usize = 4;
    let first: Vec<String> = blocks.iter().take(SHOWN).map(Block::to_string).collect();
    let more = if blocks.len() > SHOWN { " ..." } else { "" };
    let noun = if blocks.len() == 1 { "tablet" } else { "tablets" };
    format!("{} {noun} ({}{more})", blocks.len(), first.join(" "))
}

impl Driver for TabletKeeper {
    fn take(&mut self, sender: Sender, squash: Squash, messages: Vec<Message>, _attachment: Vec<u8>) {
        for message in messages {
            match (sender, message) {
                // The command line signs as a server does: with the cluster's key.
                (Sender::Server(_), Message::Ask(ask)) => self.operators.push((sender, ask)),
                (sender, message) => self.events.extend(event_of(sender, squash, message)),
            }
        }
    }

    fn turn(&mut self, now: Now, post: &mut Post) -> Result<(), StartError> {
        self.events.extend(self.space.look(now.mono).map(Event::Space));
        if self.machine.next_wake() <= now.mono {
            self.events.push_back(Event::Tick);
        }
        self.run_events(now, post)?;
        self.changes.tell();
        if self.disk.is_flush_due() {
            self.step(now, Event::LogFull, post)?;
            self.disk.flush();
            self.disk.begin(now.mono);
        }
        for (operator, Ask { id, call }) in std::mem::take(&mut self.operators) {
            let result = match call {
                AskCall::Sessions => Ok(TellBody::Sessions(self.machine.sessions())),
                AskCall::Tablets => Ok(TellBody::Tablets(self.machine.tablets(now.mono))),
                AskCall::Checkpoint => {
                    self.step(now, Event::Checkpoint, post)?;
                    Ok(TellBody::Tablets(self.machine.tablets(now.mono)))
                }
                AskCall::Holders => Ok(TellBody::Holders(self.machine.holders())),
                AskCall::Compare { tablets } => {
                    self.step(now, Event::Compare(tablets), post)?;
                    self.disk.begin(now.mono);
                    Ok(TellBody::Tablets(self.machine.tablets(now.mono)))
                }
                AskCall::Read { .. }
                | AskCall::Changes { .. }
                | AskCall::Await { .. }
                | AskCall::Metrics
                | AskCall::Swap { .. } => Err("only the coordinator has registers".to_owned()),
            };
            post.answer(operator, &Message::Told(Told { id, result }), None);
        }
        Ok(())
    }

    fn metadata(&self) -> Option<&MetaServer> {
        Some(&self.machine)
    }

    fn longest_step(&mut self) -> Option<LongStep> {
        std::mem::take(&mut self.steps)
            .into_iter()
            .max_by_key(|(_, (_, took))| *took)
            .map(|(what, (count, took))| LongStep { what, count, took })
    }

    fn next_wake(&self) -> Option<Mono> {
        let look = self.space.next_look();
        Some(self.machine.next_wake().min(look).min(self.disk.next_try().unwrap_or(look)))
    }

    fn is_serving(&self) -> bool {
        let served: BTreeSet<Block> = self.machine.serving().map(|(tablet, _)| tablet).collect();
        self.owned.as_ref().is_some_and(|owned| owned.iter().all(|tablet| served.contains(tablet)))
    }

    fn disk_full(&self) -> Option<String> {
        let (disk, room) = (self.machine.disk_space(), self.machine.headroom());
        let what = match room {
            Headroom::Enough => return None,
            Headroom::Low => "nothing new is made, but what is there is read and removed",
            Headroom::Short => {
                "what is there is read, but nothing is removed either, since even that needs a little space"
            }
            Headroom::None => "the log waits for space; what is there is read",
        };
        let reserve = reserve_bytes(self.reserve_asked, disk);
        Some(format!(
            "the disk is full: {} MiB are free of {}, and {} are kept in reserve; {what}. Free some space on it",
            disk.free >> 20,
            disk.total >> 20,
            reserve >> 20
        ))
    }

    fn has_own_disk(&self) -> bool {
        self.machine.has_own_disk()
    }

    fn show(&mut self, now: Mono, page: &mut Page) {
        self.watched.show(now, page);
        page.spread(&metrics::LOG_SYNC_SECONDS, [], self.disk.syncs());
        of_metadata::show_counters(page, &self.machine.counters());
        of_metadata::show_census(page, &self.machine.census(now));
        of_metadata::show_space(page, &self.machine.chunk_tally(), self.machine.disk_space());
    }

    fn set_clock_off(&mut self, off: bool) {
        self.events.push_back(Event::ClockOff(off));
    }

    fn stop(&mut self) -> Result<(), StartError> {
        self.disk.stop()
    }
}

impl TabletKeeper {
    /// The store is flushed, so that the log can be cut, when the disk has had little space for a moment. Not
    /// at once: whoever fills the disk would take what the flush needs.
    fn press_disk(&mut self, now: Mono) {
        if !self.low {
            self.low_since = None;
            return self.disk.set_pressed(false);
        }
        let since = *self.low_since.get_or_insert(now);
        if now.since(since) >= FLUSH_DELAY {
            self.disk.set_pressed(true);
        }
    }

    /// All that is there now, and not what log and store do meanwhile: others hear nothing of this server
    /// before it is done, and count it as dead after a while. Nothing stays for the next turn, so that no
    /// beacon lies behind work while time passes.
    fn run_events(&mut self, now: Now, post: &mut Post) -> Result<(), StartError> {
        self.press_disk(now.mono);
        while let Some(done) = self.disk.next_done(now.mono)? {
            if done == Event::LogStuck(true) {
                self.space.give_up_some();
            }
            self.events.push_back(done);
        }
        while let Some(event) = self.events.pop_front() {
            self.step(now, event, post)?;
        }
        self.disk.begin(now.mono);
        self.failed.take().map_or(Ok(()), Err)
    }

    fn step(&mut self, now: Now, event: Event, post: &mut Post) -> Result<(), StartError> {
        if let Event::Request(session, _, request) = &event {
            self.watched.request(now.mono, *session, request);
        }
        let (name, began) = (event.name(), Clock.mono());
        self.machine.step(now, event, &mut self.commands);
        let ended = Clock.mono();
        let took = ended.since(began);
        let (count, all) = self.steps.entry(name).or_default();
        (*count, *all) = (*count + 1, *all + took);
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            if let Command::Reply(session, reply) = &command {
                self.watched.answered(ended, *session, reply.sequence);
            }
            self.carry_out(command, post)?;
        }
        // The buffer is used again.
        self.commands = commands;
        Ok(())
    }

    fn carry_out(&mut self, command: Command, post: &mut Post) -> Result<(), StartError> {
        match command {
            Command::Reply(session, reply) => post.to_session(session, &Message::Reply(reply), None),
            Command::Recall(session, recall) => post.to_session(session, &Message::Recall(recall), None),
            Command::OpenStateQuery(session, open_state_query) => {
                post.to_session(session, &Message::OpenStateQuery(open_state_query), None)
            }
            Command::LockFree(session, free) => post.to_session(session, &Message::LockFree(free), None),
            Command::Peer(server, message) => post.to_server(server, &Message::Peer(message), None),
            Command::Replication(server, message) => {
                post.to_server(server, &Message::Replication(message), None)
            }
            Command::Ring(server, message) => post.to_server(server, &Message::Ring(message), None),
            Command::Data(server, request, bytes) => post.to_server(server, &Message::Data(request), bytes),
            Command::Ask(ask) => post.to_server(crate::cluster::COORDINATOR, &Message::Ask(ask), None),
            Command::Append(number, record) => self.disk.append(number, record),
            Command::Load { ticket, tablet, keys, ranges } => self.disk.load(ticket, tablet, keys, ranges),
            Command::Apply(tablet, index, changes) => self.disk.apply(tablet, index, changes),
            Command::Digest(tablet, index) => self.disk.digest(tablet, index),
            Command::SetDisk(disk) => self.disk.set_disk(disk)?,
            Command::CreateTablet(tablet) => self.disk.create_tablet(tablet),
            Command::RemoveTablet(tablet) => self.disk.remove_tablet(tablet),
            Command::Map(_, assignment, servers) => {
                let owned = assignment.tablets().filter(|tablet| tablet.owner == self.id);
                self.owned = Some(owned.map(|tablet| tablet.block).collect());
                servers.iter().for_each(|entry| post.learn_server(entry.server, entry.address));
            }
            Command::Note(note) => self.note(note),
        }
        Ok(())
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Serving(tablet, _) => self.changes.served.push(tablet),
            Note::Taken(tablet, _) => self.changes.taken.push(tablet),
            Note::TakingOver(tablet, owner) => self.changes.claimed.entry(owner).or_default().push(tablet),
            Note::Counting(tablet, _, server) => {
                self.changes.copied.entry(server).or_default().push(tablet);
            }
            Note::SwappedOut(tablet, server, why) => {
                self.changes.without.entry(server).or_insert((why, Vec::new())).1.push(tablet);
            }
            Note::Yielded(tablet, to, _) => {
                tracing::info!("tablet {tablet} is left to {}", DaemonName::of(to));
            }
            Note::Left(tablet) => self.changes.left.push(tablet),
            Note::Failed(reason) => {
                self.failed = Some(StartError::DiskFailed { server: self.id, reason });
            }
            Note::Unreadable(reason) => self.failed = Some(StartError::Refused(reason)),
            Note::OlderRegisters => {
                tracing::error!(
                    "the coordinator's registers are older than what this server knows of them: it goes on with what it has, and takes nothing \
                     over; put the newest copy of registers.redb back"
                );
            }
            Note::WrongDisk(reason) => {
                let remedy = remedy(DaemonName::of(self.id), self.copies);
                self.failed = Some(StartError::Refused(format!("{reason}; {remedy}")));
            }
            Note::Headroom(room) => {
                self.low = room != Headroom::Enough;
                match self.disk_full() {
                    Some(complaint) => tracing::error!("{complaint}"),
                    None => tracing::info!("the disk has room again"),
                }
            }
            Note::DamagedStore(reason) => {
                tracing::error!(
                    "the store cannot read records, another server's copy is used if there is one: {reason}"
                );
            }
            Note::Damaged(reason) => tracing::error!("stored records make no sense: {reason}"),
            Note::Overtaken => tracing::debug!("a request was carried out before one that has waited longer"),
            Note::Step(name) => tracing::trace!("{name}"),
        }
    }
}

/// Why a tablet log does not open. Nobody knows of which tablets the damaged records are.
fn damaged_log(server: DaemonName, copies: u8, error: EngineError) -> StartError {
    match &error {
        EngineError::Corrupt { what } if copies > 1 => StartError::Refused(format!(
            "the tablet log is damaged ({what}): nothing is served from this disk; other metadata servers have copies of what this one had, and \
             serve it. If the disk is at fault, put an empty one in its place, and `bearing disk replace {server}` has that take its place"
        )),
        _ => StartError::engine("open the tablet log")(error),
    }
}

/// What helps a server whose disk is not the right one.
fn remedy(server: DaemonName, copies: u8) -> String {
    const BACK: &str = "Put the right disk back, or a copy of it that was made after this server last stopped, and start again";
    if copies < 2 {
        return format!("nothing is served from it, because nobody else has what it lacks. {BACK}");
    }
    format!(
        "nothing is served from it; other metadata servers have copies of what this one had, and serve it. {BACK}. If it is lost for good, \
         `bearing disk replace {server}` says what is lost with it and has this one take its place"
    )
}

/// What a message means to the machine; `None` for what this server does not take from such a sender.
fn event_of(sender: Sender, squash: Squash, message: Message) -> Option<Event> {
    match (sender, message) {
        (Sender::Client(session), Message::Request(request)) => {
            Some(Event::Request(session, squash, request))
        }
        (Sender::Client(session), Message::Recalled(recalled)) => Some(Event::Recalled(session, recalled)),
        (Sender::Client(session), Message::OpenState(open_state)) => {
            Some(Event::OpenState(session, open_state))
        }
        (Sender::Server(server), Message::Peer(message)) => Some(Event::Peer(server, message)),
        (Sender::Server(server), Message::Replication(message)) => Some(Event::Replication(server, message)),
        (Sender::Server(server), Message::Ring(message)) => Some(Event::Ring(server, message)),
        (Sender::Server(server), Message::DataReply(reply)) => Some(Event::Data(server, reply)),
        (Sender::Server(_), Message::Told(told)) => Some(Event::Told(told)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::data::{DataBody, DataReply};
    use bearing_proto::peer::{PeerBody, PeerMessage};
    use bearing_proto::ring::RingMessage;
    use bearing_types::{Epoch, Position, SessionId, TransactionId};

    #[test]
    fn clients_may_not_say_what_servers_say_to_each_other() {
        let transaction = TransactionId { coordinator: Position(1), epoch: Epoch(1), number: 1 };
        let body = PeerBody::Decided { transaction, commit: true };
        let peer = PeerMessage { from: Position(1), to: Position(2), epoch: Epoch(1), body };
        let said = [
            Message::Peer(peer),
            Message::Told(Told { id: 1, result: Ok(TellBody::Swapped(1)) }),
            Message::DataReply(DataReply { id: 1, result: Ok(DataBody::Done) }),
            Message::Ring(RingMessage::Acknowledged(ServerId(3))),
        ];
        for message in said {
            for stranger in [Sender::Client(SessionId(1)), Sender::Nobody] {
                assert!(event_of(stranger, Squash::None, message.clone()).is_none(), "{message:?}");
            }
            assert!(event_of(Sender::Server(ServerId(2)), Squash::None, message).is_some());
        }
    }
}
