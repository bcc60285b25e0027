//! The wheel that turns around a machine: receive a batch, open, let the driver work, seal, send.
//!
//! One thread, one socket loop. The machine holds back what must not leave before it is stable, so what is
//! answered without a sync leaves before it.

use crate::StartError;
use crate::clocks::{Clocks, Verdict};
use crate::cluster::{COORDINATOR, DaemonName};
use crate::config::DaemonConfig;
use crate::contacts::Contacts;
use crate::init::registers_file;
use crate::joins::Joins;
use crate::metrics::{self, Histogram, Metric, Page, Publisher};
use crate::notify::{READY, STOPPING, notify};
use crate::post::{Opened, Post, Sealed};
use crate::registers::Registers;
use crate::relays::Relaying;
use crate::state::{Occupied, Phase};
use bearing_env::{
    Clock, Destination, Endpoint, EndpointError, Incoming, Peer, Secret, Transport, Waker, random_u64,
};
use bearing_meta::MetaServer;
use bearing_proto::client::ServerKind;
use bearing_proto::coordinator::{Ask, AskCall, TellBody, Told};
use bearing_proto::envelope::{Refusal, VERSION};
use bearing_proto::hello::HelloRefusal;
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::prefix::CARRIED_PORT;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, Squash};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest wait of a turn, so that a stop is never missed for long.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A clock's offset is reported anew when it moved by so much.
const CLOCK_REPORTED_MS: u64 = 20;

/// The disk's space is looked at so often.
const SPACE_SEEN_EVERY: Duration = Duration::from_secs(1);

/// A turn that lasts so long is reported: others count a server as dead that is silent for 250 ms
/// (`docs/promises.md`, timeouts).
const TURN_MAX: Duration = Duration::from_millis(100);
/// But not more often than this.
const TURNS_REPORTED_EVERY: Duration = Duration::from_secs(1);

/// A refusal ends a server at its start if the coordinator does not answer it within this time: anybody may
/// forge one, but not keep answers away by that.
const REFUSAL_DOUBTED: Duration = Duration::from_secs(2);

/// How far clocks of servers may be apart.
fn skew_max() -> Duration {
    bearing_meta::Config::standard().skew_max
}

/// Steps of one kind in one turn.
pub struct LongStep {
    /// What happened, for people.
    pub what: &'static str,
    /// How many.
    pub count: u32,
    /// How long they took.
    pub took: Duration,
}

/// What a daemon does with messages: the part that differs between kinds.
pub trait Driver {
    /// What is taken next was sent by this peer from here.
    fn hear(&mut self, sender: Sender, from: IpAddr) {
        let _ = (sender, from);
    }

    /// Takes the messages of one packet, whose user ids are to be squashed like this. Nothing needs to be
    /// carried out yet.
    fn take(&mut self, sender: Sender, squash: Squash, messages: Vec<Message>, attachment: Vec<u8>);

    /// Works on what is there now, and hands what is to be sent to the post.
    fn turn(&mut self, now: Now, post: &mut Post) -> Result<(), StartError>;

    /// When the next turn is due even if nothing comes in.
    fn next_wake(&self) -> Option<Mono>;

    /// Whether it serves all that it should.
    fn is_serving(&self) -> bool;

    /// The metadata machine, if it is one's.
    fn metadata(&self) -> Option<&MetaServer> {
        None
    }

    /// The kind of steps that took most of the last turn.
    fn longest_step(&mut self) -> Option<LongStep> {
        None
    }

    /// Why the disk takes no more writes, if the daemon goes on without it.
    fn disk_failure(&self) -> Option<&str> {
        None
    }

    /// What is refused for want of space, if anything is, in words.
    fn disk_full(&self) -> Option<String> {
        None
    }

    /// Whether its disk is the one that this server is registered with. Before that is known others are not
    /// told where it is: it may be a second server by the same name.
    fn has_own_disk(&self) -> bool {
        true
    }

    /// Shows what it does.
    fn show(&mut self, now: Mono, page: &mut Page) {
        let _ = (now, page);
    }

    /// The clock of this machine is too far from those of other servers, or is so no more.
    fn set_clock_off(&mut self, off: bool);

    /// Makes everything stable before the daemon ends.
    fn stop(&mut self) -> Result<(), StartError>;
}

/// Datagrams that the network carried here by their position.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    taken: u64,
    /// Of a session that has no key here yet, or nothing that can be read: dropped.
    unknown: u64,
    /// To an address that is no position: dropped.
    astray: u64,
}

/// A daemon's process around its driver.
struct Shell<'a> {
    config: DaemonConfig,
    occupied: &'a Occupied,
    endpoint: Endpoint,
    post: Post,
    /// Of a cluster whose registers are in etcd.
    registers: Option<Registers>,
    contacts: Option<Contacts>,
    /// Of a metadata server.
    joins: Option<Joins>,
    /// Of a metadata server in a cluster whose servers pass requests on.
    relays: Option<Relaying>,
    carried: Carried,
    clocks: Clocks,
    /// What is reported of the clock.
    clock: Option<Verdict>,
    serving: bool,
    disk_failed: bool,
    /// Why there is no space, as it was reported.
    disk_full: Option<String>,
    /// The coordinator refuses this server, or somebody says so in its name: nobody signs that.
    refusal: Option<(Mono, StartError)>,
    /// When the disk's space was last looked at.
    space_seen: Mono,
    stopping: Arc<AtomicBool>,
    complained: BTreeSet<SocketAddr>,
    publisher: Option<Publisher>,
    turns: Histogram,
    /// When the coordinator, or etcd, answered last.
    coordinator_heard: Option<Mono>,
    /// When the last turn ended, and when a long one was last reported.
    turned: Mono,
    long_turn: Mono,
}

/// The keys of a server, from its cluster's secret files.
pub fn read_keys(config: &DaemonConfig) -> Result<ServerKeys, StartError> {
    let key = |path: &Path| match Secret::read(path) {
        Ok(secret) => Ok(Key::new(*secret.bytes())),
        Err(error) => Err(StartError::Refused(error.to_string())),
    };
    Ok(ServerKeys::new(&key(&config.layout.cluster_key())?, key(&config.layout.enrolment_key())?))
}

/// Runs a daemon from its lock to its end: `open` opens the stores and makes the driver. What works on other
/// threads ends the shell's wait by the waker.
pub fn run<D: Driver>(
    config: DaemonConfig,
    open: impl FnOnce(&DaemonConfig, &ServerKeys, Waker) -> Result<D, StartError>,
) -> Result<(), StartError> {
    crate::open_files::raise_limit();
    let occupied = Occupied::take(&config.directory, config.daemon)?;
    let name = config.daemon.name;
    let result = serve(config, &occupied, open);
    if let Err(error) = &result {
        tracing::error!("{name} stops: {error}");
        let phase = if error.is_of_disk() { Phase::DiskFailed } else { Phase::Failed };
        // What the log says nobody has to be told twice.
        let _ = occupied.enter(phase, Some(error.to_string()));
    }
    result
}

fn serve<D: Driver>(
    config: DaemonConfig,
    occupied: &Occupied,
    open: impl FnOnce(&DaemonConfig, &ServerKeys, Waker) -> Result<D, StartError>,
) -> Result<(), StartError> {
    let keys = read_keys(&config)?;
    let mut endpoint = listen(config.listen)?;
    let keeps_tablets = config.daemon.name.kind == ServerKind::Metadata;
    if keeps_tablets && config.cluster.prefix.is_some() {
        endpoint.carry(CARRIED_PORT).map_err(|error| StartError::Listen(error.to_string()))?;
    }
    let lookup = config.cluster.lookup;
    let relays = keeps_tablets.then(|| Relaying::new(config.daemon.name.server(), lookup)).flatten();
    let publisher = publish(&config, &endpoint);
    publisher.iter().for_each(|publisher| occupied.note_metrics(publisher.address()));
    let mut driver = open(&config, &keys, endpoint.waker())?;
    let me = config.daemon;
    let servers = config.cluster.daemons().into_iter().map(|daemon| (daemon.name.server(), daemon.address));
    let mut post = Post::new(me.name.server(), keys, servers);
    let registers = Registers::start(&config, || endpoint.waker())?;
    if registers.is_some() {
        post.keep_asks();
    }
    let contacts = (me.name.kind != ServerKind::Coordinator).then(|| Contacts::new(me, random_u64()));
    let stopping = stop_on_signals(&endpoint);
    let mut shell = Shell {
        config,
        occupied,
        endpoint,
        post,
        registers,
        contacts,
        joins: keeps_tablets.then(Joins::new),
        relays,
        carried: Carried::default(),
        clocks: Clocks::new(skew_max(), random_u64()),
        clock: None,
        serving: false,
        disk_failed: false,
        disk_full: None,
        refusal: None,
        space_seen: Mono::ZERO,
        stopping,
        complained: BTreeSet::new(),
        publisher,
        turns: Histogram::default(),
        coordinator_heard: None,
        turned: Clock.mono(),
        long_turn: Mono::ZERO,
    };
    shell.turn_until_stopped(&mut driver)
}

impl Shell<'_> {
    fn turn_until_stopped(&mut self, driver: &mut impl Driver) -> Result<(), StartError> {
        tracing::info!("{} listens on {}", self.config.daemon.name, self.config.listen);
        let mut incoming = Vec::new();
        self.publish(Clock.mono(), driver);
        while !self.stopping.load(Ordering::Relaxed) {
            self.turn(driver, &mut incoming)?;
            if !self.serving
                && driver.is_serving()
                && self.contacts.as_ref().is_none_or(Contacts::is_registered)
            {
                self.serving = true;
                self.report(driver);
                tracing::info!("{} serves", self.config.daemon.name);
                notify(READY);
            }
            let now = Clock.mono();
            if self.serving && now.since(self.space_seen) >= SPACE_SEEN_EVERY {
                self.space_seen = now;
                let full = driver.disk_full();
                if full != self.disk_full {
                    self.disk_full = full;
                    self.report(driver);
                }
            }
            if self.publisher.as_ref().is_some_and(Publisher::is_wanted) {
                self.publish(now, driver);
            }
            if self.serving && !self.disk_failed && driver.disk_failure().is_some() {
                self.disk_failed = true;
                self.report(driver);
            }
        }
        notify(STOPPING);
        self.publisher = None;
        self.occupied.enter(Phase::Stopping, None)?;
        driver.stop()?;
        self.occupied.enter(Phase::Stopped, None)?;
        tracing::info!("{} stopped in order", self.config.daemon.name);
        Ok(())
    }

    fn turn(&mut self, driver: &mut impl Driver, incoming: &mut Vec<Incoming>) -> Result<(), StartError> {
        let timeout = self.timeout(driver);
        let worked = Clock.worked();
        self.endpoint.receive(Some(timeout), incoming).map_err(|error| self.network_failed(&error))?;
        let now = Clock.now();
        let packets = incoming.len();
        self.open(now, incoming, driver)?;
        self.ask_etcd(now, driver)?;
        if self.clocks.turn(now, &mut self.post) {
            self.watch_clock(now, driver);
        }
        if let Some(contacts) = &mut self.contacts {
            contacts.turn(now.mono, driver.has_own_disk(), &mut self.post);
            if let Some(reason) = contacts.refused() {
                return Err(StartError::Refused(reason.to_owned()));
            }
            let believed = |(since, _): &mut (Mono, StartError)| now.mono.since(*since) >= REFUSAL_DOUBTED;
            if contacts.was_answered() {
                self.refusal = None;
            } else if let Some((_, error)) = self.refusal.take_if(believed) {
                return Err(error);
            }
        }
        if let Some(joins) = &mut self.joins {
            joins.turn(now.mono, &mut self.post);
        }
        let by_others = self.by_others(now);
        if let Some(relays) = &mut self.relays {
            let decided = relays.turn(by_others, driver.metadata(), &mut self.post);
            decided.into_iter().for_each(|(sender, squash, message)| {
                driver.take(sender, squash, vec![message], Vec::new());
            });
        }
        driver.turn(now, &mut self.post)?;
        self.ask_etcd(now, driver)?;
        self.send();
        self.endpoint.flush().map_err(|error| self.network_failed(&error))?;
        let late = now.mono.since(self.turned).saturating_sub(timeout);
        self.watch_turn((now.mono, late), (packets, worked), driver);
        Ok(())
    }

    /// What etcd answered goes where the coordinator's answers go, or to the operator who asked; what is to
    /// be asked goes to etcd.
    fn ask_etcd(&mut self, now: Now, driver: &mut impl Driver) -> Result<(), StartError> {
        let Some(registers) = &mut self.registers else { return Ok(()) };
        let me = self.config.daemon.name.server();
        self.post.take_asks().into_iter().for_each(|ask| registers.ask(me, ask));
        for (asker, told) in registers.turn()? {
            let message = Message::Told(told);
            if asker != me {
                self.post.answer(Sender::Server(asker), &message, None);
                continue;
            }
            let opened = Opened::Messages {
                sender: Sender::Server(COORDINATOR),
                squash: Squash::None,
                messages: vec![message],
                attachment: Vec::new(),
            };
            self.handle(now, opened, driver)?;
        }
        Ok(())
    }

    /// Says so when others may have heard nothing of this server for too long, and whether it worked or had
    /// no processor.
    fn watch_turn(
        &mut self,
        (began, late): (Mono, Duration),
        (packets, worked): (usize, Duration),
        driver: &mut impl Driver,
    ) {
        let ended = Clock.mono();
        let took = ended.since(began);
        let longest = driver.longest_step();
        self.turned = ended;
        self.turns.record(took);
        if took + late < TURN_MAX || ended.since(self.long_turn) < TURNS_REPORTED_EVERY {
            return;
        }
        self.long_turn = ended;
        tracing::warn!(
            "{} answered nobody for {} ms: woken {} ms late, {} packets in {} ms, with a processor for {} ms of that; \
             most: {}",
            self.config.daemon.name,
            (took + late).as_millis(),
            late.as_millis(),
            packets,
            took.as_millis(),
            Clock.worked().saturating_sub(worked).as_millis(),
            longest.map_or_else(String::new, |step| {
                format!("{}, {} times, {} ms", step.what, step.count, step.took.as_millis())
            }),
        );
    }

    fn open(
        &mut self,
        now: Now,
        incoming: &mut Vec<Incoming>,
        driver: &mut impl Driver,
    ) -> Result<(), StartError> {
        let by_others = self.by_others(now);
        for mut packet in incoming.drain(..) {
            if let (Destination::Carried(_, at), prefix) = (packet.from, self.config.cluster.prefix)
                && prefix.is_none_or(|prefix| prefix.position(at).is_none())
            {
                self.carried.astray += 1;
                self.endpoint.recycle(packet.bytes);
                continue;
            }
            let opened = self.post.open(by_others, &mut packet);
            if let Destination::Carried(..) = packet.from {
                let taken = matches!(opened, Opened::Messages { .. });
                *(if taken { &mut self.carried.taken } else { &mut self.carried.unknown }) += 1;
            }
            if let (Opened::Messages { sender, .. }, Destination::Connection(connection)) =
                (&opened, packet.from)
                && let Some(peer) = peer_of(*sender)
            {
                self.endpoint.vouch(connection, peer);
            }
            if let Opened::Messages { sender, .. } = &opened {
                driver.hear(*sender, packet.peer.ip());
            }
            self.endpoint.recycle(packet.bytes);
            self.handle(now, opened, driver)?;
        }
        Ok(())
    }

    fn send(&mut self) {
        for sealed in self.post.take_sealed() {
            if let (Destination::Address(address), Transport::Stream) = (sealed.to, sealed.transport)
                && !self.endpoint.has_stream(address)
                && let Some(greeting) = self.post.greeting(address)
            {
                // If this fails the packet does too, and is reported.
                let _ = self.endpoint.send(sealed.to, sealed.transport, &greeting);
            }
            let Sealed { to, transport, packet, bulk } = sealed;
            if let Err(error) = self.endpoint.send_with_bulk(to, transport, &packet, bulk) {
                tracing::debug!("a packet to {to:?} was dropped: {error}");
            }
        }
    }

    fn timeout(&self, driver: &impl Driver) -> Duration {
        let contacts_wake = self.contacts.as_ref().map(Contacts::next_wake);
        let wake = [
            driver.next_wake(),
            contacts_wake,
            self.relays.as_ref().and_then(Relaying::next_wake),
            self.joins.as_ref().and_then(Joins::next_wake),
            Some(self.clocks.next_wake()),
        ]
        .into_iter()
        .flatten()
        .min();
        let now = Clock.mono();
        wake.map_or(WAIT_MAX, |wake| wake.since(now).min(WAIT_MAX))
    }

    /// Tells the driver and the report when the clock is off by another judgement than before, or by other
    /// milliseconds.
    fn watch_clock(&mut self, now: Now, driver: &mut impl Driver) {
        let verdict = self.clocks.verdict(now.mono);
        let (was_off, is_off) =
            (self.clock.is_some_and(Verdict::is_off), verdict.is_some_and(Verdict::is_off));
        let moved = |was: Verdict, is: Verdict| was.ahead_ms.abs_diff(is.ahead_ms) >= CLOCK_REPORTED_MS;
        let news = match (self.clock, verdict) {
            (Some(was), Some(is)) => was_off != is_off || moved(was, is),
            (was, is) => was.is_some() != is.is_some(),
        };
        if !news {
            return;
        }
        self.clock = verdict;
        self.occupied.note_clock(verdict.map(|verdict| verdict.ahead_ms));
        if was_off != is_off {
            driver.set_clock_off(is_off);
            match self.clock_complaint() {
                Some(complaint) => tracing::error!("{complaint}"),
                None => tracing::info!("the clock is right again"),
            }
        }
        self.report(driver);
    }

    fn clock_complaint(&self) -> Option<String> {
        let verdict = self.clock.filter(|verdict| verdict.is_off())?;
        let (ms, side) =
            (verdict.ahead_ms.unsigned_abs(), if verdict.ahead_ms < 0 { "behind" } else { "ahead of" });
        Some(format!(
            "the clock is {ms} ms {side} others, limit {}, by {} of {} servers heard; nothing is served until it is set \
             right, for instance by NTP",
            skew_max().as_millis(),
            verdict.far,
            verdict.heard
        ))
    }

    /// Tells people how it is. Nothing ends because that cannot be told.
    fn report(&self, driver: &mut impl Driver) {
        self.publish(Clock.mono(), driver);
        let (disk, clock) = (driver.disk_failure().map(str::to_owned), self.clock_complaint());
        let phase = match (self.serving, &disk, &clock, &self.disk_full) {
            (false, ..) => Phase::Starting,
            (true, Some(_), ..) => Phase::DiskFailed,
            (true, None, Some(_), _) => Phase::ClockOff,
            (true, None, None, Some(_)) => Phase::DiskFull,
            (true, None, None, None) => Phase::Serving,
        };
        let told = self.occupied.enter(phase, disk.or(clock).or(self.disk_full.clone()));
        told.err().iter().for_each(|error| tracing::warn!("the state of this server is not told: {error}"));
    }

    /// Whether it serves, or one sentence why not. Another server's failure, such as the coordinator's, is
    /// none of this one's while it serves: whoever asks would turn to servers that are no better off.
    fn health(&self, driver: &impl Driver) -> Result<(), String> {
        if !self.serving {
            return Err(self.awaited(driver));
        }
        let disk = driver.disk_failure().map(str::to_owned);
        disk.or_else(|| self.clock_complaint()).or_else(|| driver.disk_full()).map_or(Ok(()), Err)
    }

    /// What is missing until it serves.
    fn awaited(&self, driver: &impl Driver) -> String {
        let registrar = match self.config.cluster.coordinator {
            Some(address) => format!("the coordinator at {address}"),
            None => "etcd".to_owned(),
        };
        match &self.contacts {
            Some(contacts) if !contacts.was_answered() => format!("{registrar} has not answered yet"),
            Some(_) if !driver.has_own_disk() => {
                format!("{registrar} has not said yet whether this disk is this server's")
            }
            Some(contacts) if !contacts.is_registered() => {
                format!("{registrar} does not have this server's address yet")
            }
            _ => "not all tablets that are this server's are served yet".to_owned(),
        }
    }

    fn publish(&self, now: Mono, driver: &mut impl Driver) {
        if let Some(publisher) = &self.publisher {
            publisher.tell(self.health(driver), self.page(now, driver));
        }
    }

    /// Answers who asks what this daemon shows, and signs as a server does.
    fn tell_metrics(
        &mut self,
        now: Mono,
        sender: Sender,
        message: &Message,
        driver: &mut impl Driver,
    ) -> bool {
        let (Sender::Server(_), Message::Ask(Ask { id, call: AskCall::Metrics })) = (sender, message) else {
            return false;
        };
        let result = Ok(TellBody::Metrics(self.page(now, driver)));
        self.post.answer(sender, &Message::Told(Told { id: *id, result }), None);
        true
    }

    /// The time of day by most servers' clocks: tickets have an end by that.
    fn by_others(&self, now: Now) -> Now {
        self.clock.map_or(now, |verdict| verdict.by_others(now))
    }

    /// All that this daemon shows, in words.
    fn page(&self, now: Mono, driver: &mut impl Driver) -> String {
        let mut page = Page::default();
        let name = self.config.daemon.name.to_string();
        page.level(&metrics::BUILD, [env!("CARGO_PKG_VERSION"), &name], 1.0);
        page.level(&metrics::SERVING, [], f64::from(u8::from(self.health(driver).is_ok())));
        if let Some(verdict) = self.clock {
            page.level(&metrics::CLOCK_OFFSET, [], verdict.ahead_ms as f64 / 1e3);
        }
        if let Some(heard) = self.coordinator_heard {
            page.level(&metrics::COORDINATOR_HEARD, [], now.since(heard).as_secs_f64());
        }
        page.spread(&metrics::TURN_SECONDS, [], &self.turns);
        let network = self.endpoint.counters();
        for (transport, direction, packets) in [
            ("datagram", "received", network.datagrams_received),
            ("datagram", "sent", network.datagrams_sent),
            ("stream", "received", network.stream_packets_received),
        ] {
            page.count(&metrics::PACKETS, [transport, direction], packets);
        }
        if self.config.cluster.prefix.is_some() {
            let Carried { taken, unknown, astray } = self.carried;
            for (outcome, datagrams) in [("taken", taken), ("unknown", unknown), ("astray", astray)] {
                page.count(&metrics::CARRIED, [outcome], datagrams);
            }
        }
        if let Some(counts) = self.relays.as_ref().and_then(Relaying::filters) {
            for (outcome, requests) in [
                ("recent", counts.found_recent),
                ("segment", counts.found_segment),
                ("group", counts.found_group),
                ("all", counts.found_all),
                ("misled", counts.misled),
            ] {
                page.count(&metrics::FILTERS, [outcome], requests);
            }
        }
        let dropped = network.datagrams_truncated + network.datagrams_dropped + network.packets_not_queued;
        page.count(&metrics::PACKETS_LOST, [], dropped);
        for (event, streams) in [
            ("accepted", network.connections_accepted),
            ("closed", network.connections_closed),
            ("refused", network.connections_refused),
        ] {
            page.count(&metrics::STREAMS, [event], streams);
        }
        driver.show(now, &mut page);
        page.text()
    }

    fn handle(&mut self, now: Now, opened: Opened, driver: &mut impl Driver) -> Result<(), StartError> {
        match opened {
            Opened::Messages { sender, squash, mut messages, attachment } => {
                if sender == Sender::Server(COORDINATOR) {
                    self.coordinator_heard = Some(now.mono);
                }
                if let Some(contacts) = &mut self.contacts
                    && sender == Sender::Server(COORDINATOR)
                {
                    messages.retain(|message| !contacts.take(message, &mut self.post));
                }
                if let Some(registers) = &mut self.registers {
                    registers.take(sender, &mut messages);
                }
                if let Some(joins) = &mut self.joins {
                    messages.retain(|message| match (sender, message) {
                        (Sender::Client(session), Message::Join(join)) => {
                            joins.take(session, join.clone(), &mut self.post);
                            false
                        }
                        (Sender::Server(COORDINATOR), Message::Told(told)) => {
                            !joins.on_told(now, told, &self.config, &mut self.post)
                        }
                        _ => true,
                    });
                }
                messages.retain(|message| !self.clocks.take(now, sender, message, &mut self.post));
                let by_others = self.by_others(now);
                if let Some(relays) = &mut self.relays {
                    for (sender, squash, request) in
                        relays.take(by_others, (sender, squash), &mut messages, &mut self.post)
                    {
                        driver.take(sender, squash, vec![request], Vec::new());
                    }
                }
                messages.retain(|message| !self.tell_metrics(now.mono, sender, message, driver));
                driver.take(sender, squash, messages, attachment);
                Ok(())
            }
            Opened::Refused { peer, refusal } => self.refused(now.mono, peer, refusal),
            Opened::Nothing => Ok(()),
            Opened::NoSession { peer, reason } => {
                let why = match reason {
                    HelloRefusal::Version => "it speaks none of the protocol versions that this release does",
                    HelloRefusal::Secret => "its enrolment secret is not one of this cluster",
                    HelloRefusal::Revoked => "its enrolment was revoked",
                };
                tracing::warn!("a client at {peer} got no session: {why}");
                Ok(())
            }
            Opened::NotTaken { peer, error, first } => {
                if first {
                    tracing::warn!("a packet from {} was not taken: {error}", self.name_of(peer));
                }
                Ok(())
            }
        }
    }

    /// A refusal is unsigned, so it ends the daemon only while nothing contradicts it: before the coordinator
    /// ever answered.
    fn refused(&mut self, now: Mono, peer: SocketAddr, refusal: Refusal) -> Result<(), StartError> {
        let who = self.name_of(peer);
        let error = match refusal {
            Refusal::Unauthenticated => {
                StartError::WrongClusterKey { who, address: peer, secret: self.config.layout.cluster_key() }
            }
            Refusal::Version { speaks } => {
                StartError::OtherRelease { who, address: peer, speaks, ours: VERSION }
            }
            // For clients.
            Refusal::NeedTicket | Refusal::Expired | Refusal::Revoked => return Ok(()),
        };
        let is_coordinator = self.config.cluster.coordinator == Some(peer);
        if is_coordinator && self.contacts.as_ref().is_some_and(|contacts| !contacts.was_answered()) {
            self.refusal.get_or_insert((now, error));
            return Ok(());
        }
        if self.complained.len() < 1024 && self.complained.insert(peer) {
            tracing::error!("{error}");
        }
        Ok(())
    }

    fn name_of(&self, peer: SocketAddr) -> String {
        match self.post.server_at(peer) {
            Some(server) => format!("{} at {peer}", DaemonName::of(server)),
            None => peer.to_string(),
        }
    }

    fn network_failed(&self, error: &std::io::Error) -> StartError {
        StartError::Stopped {
            server: self.config.daemon.name.server(),
            reason: format!("the network of {} failed: {error}", self.config.listen),
        }
    }
}

/// Whose streams count together.
fn peer_of(sender: Sender) -> Option<Peer> {
    match sender {
        Sender::Client(session) => Some(Peer::Client(session.0)),
        Sender::Server(server) => Some(Peer::Server(u64::from(server.0))),
        Sender::Nobody => None,
    }
}

fn listen(address: SocketAddr) -> Result<Endpoint, StartError> {
    Endpoint::server(address).map_err(|error: EndpointError| StartError::Listen(error.to_string()))
}

/// Begins to show metrics, if the configuration says where. A server that cannot is still one.
fn publish(config: &DaemonConfig, endpoint: &Endpoint) -> Option<Publisher> {
    let inside = |name| config.directory.join(name);
    let places: Vec<(&'static Metric, PathBuf)> = match config.daemon.name.kind {
        ServerKind::Metadata => {
            vec![(&metrics::LOG_BYTES, inside("tablet-log")), (&metrics::STORE_BYTES, inside("store"))]
        }
        ServerKind::Data | ServerKind::Flow => Vec::new(),
        ServerKind::Coordinator => vec![(&metrics::REGISTERS_BYTES, registers_file(&config.directory))],
    };
    let address = config.metrics?;
    match Publisher::start(address, places, endpoint.waker()) {
        Ok(publisher) => Some(publisher),
        Err(error) => {
            tracing::error!(
                "metrics = \"{address}\" in {} cannot be listened on ({error}): nobody can read the metrics of this server; \
                 give another address and start it again",
                config.directory.join("config.toml").display()
            );
            None
        }
    }
}

/// A flag that SIGTERM and SIGINT set; they also end the endpoint's wait.
fn stop_on_signals(endpoint: &Endpoint) -> Arc<AtomicBool> {
    let stopping = Arc::new(AtomicBool::new(false));
    let (flag, waker) = (Arc::clone(&stopping), endpoint.waker());
    match Signals::new([SIGTERM, SIGINT]) {
        Ok(mut signals) => {
            std::thread::spawn(move || {
                for _ in signals.forever() {
                    flag.store(true, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
        Err(error) => tracing::warn!("cannot wait for SIGTERM ({error}); stopping will look like a crash"),
    }
    stopping
}
