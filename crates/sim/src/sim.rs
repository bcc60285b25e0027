//! One run: boot, work under faults, heal, look at everything.

use crate::audit::Audit;
use crate::boundary::Cut;
use crate::client_host::{ClientHost, WORKERS};
use crate::clock::{Instantly, MILLISECOND, SECOND};
use crate::cluster::{COORDINATOR_HOST, Hosts, Role};
use crate::complaint::{Complaint, Promise};
use crate::coordinator::CoordinatorHost;
use crate::counts::Counts;
use crate::data_disks::Reach;
use crate::data_host::DataHost;
use crate::flow_host::FlowHost;
use crate::ledger::{ChunkNews, Ledger, NameNews};
use crate::meta_host::MetaHost;
use crate::nemesis::{Act, Crowded, Nemesis};
use crate::network::{HostId, Weather};
use crate::options::Options;
use crate::recorder::Recorder;
use crate::servers::Servers;
use crate::world::{Happening, World};
use bearing_client::Operation;
use bearing_placement::{Scheme, position_of_session};
use bearing_types::NameKey;
use bearing_workload::Seeded;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long clients may take for all their operations, in true time.
const WORK_MAX: u64 = 1_800 * SECOND;
/// How long it may take until nothing is under way any more, once all faults are over.
const DRAIN_MAX: u64 = 120 * SECOND;
/// How often it is looked whether an operation waits for ever.
const LOOK_EVERY: u64 = 5 * SECOND;

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Over everything that happened.
    pub hash: u64,
    /// What was broken.
    pub violations: Vec<Complaint>,
    /// What happened how often.
    pub counts: Counts,
    /// What clients did with names, if that was asked for: lines for another checker.
    pub names: Option<String>,
    /// Happenings.
    pub steps: u64,
    /// True time that passed, in nanoseconds.
    pub elapsed: u64,
}

/// A cluster under way.
pub struct Sim {
    /// What all share.
    pub world: World,
    /// What is stable.
    pub ledger: Ledger,
    /// What clients did.
    pub recorder: Recorder,
    /// Which hosts there are.
    pub hosts: Hosts,
    pub(crate) coordinator: CoordinatorHost,
    pub(crate) metadata: Vec<MetaHost>,
    pub(crate) data: Vec<DataHost>,
    flow: FlowHost,
    /// The clients.
    pub clients: Vec<ClientHost>,
    /// Which servers are to come, and which leave.
    pub(crate) servers: Servers,
    /// The data server that never comes back.
    pub(crate) lost: Option<HostId>,
    /// The data server that is away for so long that it counts as lost.
    pub(crate) away: Option<HostId>,
    /// Data servers whose disks were replaced by older ones.
    pub(crate) older_disks: std::collections::BTreeSet<HostId>,
    /// How well data servers could be reached.
    pub(crate) reach: Reach,
    /// Replicas of which a bit has flipped.
    pub(crate) rotten: std::collections::BTreeSet<(HostId, bearing_types::ChunkId)>,
    nemesis: Nemesis,
    faults_on: bool,
    /// When faults ended.
    pub(crate) peace: Instantly,
    /// Until when nobody can be expected to get through: somebody is down or stopped for long.
    pub(crate) excused: Instantly,
    /// Until when hosts stay down whatever happens to them.
    pub(crate) out_until: std::collections::BTreeMap<HostId, u64>,
    pub(crate) bounds_looked: u64,
    /// Until when each client was cut off last.
    cut_off_until: std::collections::BTreeMap<HostId, u64>,
    looked: u64,
    /// A node to tell everything about.
    pub about: Option<u64>,
    names: bool,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    let mut sim = Sim::new(seed, options);
    sim.boot();
    let mut audit = Audit::new();
    if audit.prepare(&mut sim) {
        sim.work(options);
        sim.check_checkpoints();
        sim.heal();
        sim.check_ring();
        sim.check_filters();
        audit.finish(&mut sim);
        audit.drill(&mut sim);
        sim.check_chunks();
        sim.check_recovery();
    }
    sim.report(seed)
}

/// Runs a seed. One that panics has found a bug that asserts; it is reported like any broken promise.
pub fn run_caught(seed: u64, options: &Options) -> Report {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, options)));
    outcome.unwrap_or_else(|panic| panicked(seed, &*panic))
}

/// What is reported of a run that panicked.
pub fn panicked(seed: u64, panic: &(dyn std::any::Any + Send)) -> Report {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let what = format!("a machine panicked: {}", text.unwrap_or_default());
    let violations = vec![Complaint { promise: Promise::NoPanic, what }];
    Report { seed, hash: 0, violations, counts: Counts::default(), names: None, steps: 0, elapsed: 0 }
}

impl Sim {
    fn new(seed: u64, options: &Options) -> Sim {
        Sim::with_clients(seed, options, None)
    }

    /// A cluster, all of it down. `None`: as many clients as the seed says.
    pub fn with_clients(seed: u64, options: &Options, clients: Option<u8>) -> Sim {
        let mut rng = Seeded::new(seed ^ 0x5eed);
        let drawn = rng.between(3, 4) as u8;
        let hosts = Hosts { clients: clients.unwrap_or(drawn) };
        let mut world = World::new(rng.next(), hosts.count());
        world.digests_commands = options.commands;
        world.told = options.told;
        world.copies = options.copies;
        (world.delegations, world.compares) = (options.delegations, options.compares);
        world.lookup = options.lookup_of(seed);
        // Directories that lie in several tablets are not delegated.
        let scheme =
            if rng.chance(1, 4) && !options.delegations { Scheme::Hash } else { Scheme::AnglecutHashed };
        let tablets = (rng.between(3, 4) as u8, options.copies);
        let servers = Servers::draw(&mut rng, hosts);
        let scheme = options.scheme.unwrap_or(scheme);
        let registers = hosts.registers(scheme, tablets, NameKey(rng.next()), &servers.absent);
        let (planted, delegations) = (options.planted, options.delegations);
        let workers = *rng.pick(&WORKERS).expect("there are some");
        world.counts.add(match workers {
            ..=3 => "runs with few workers",
            4..=7 => "runs with more workers",
            _ => "runs with many workers",
        });
        let metadata =
            hosts.metadata().map(|host| MetaHost::new(host, hosts, rng.fork(2), planted)).collect();
        let data = hosts.data().map(|host| DataHost::new(host, hosts, rng.fork(3))).collect();
        let clients = hosts
            .clients()
            .map(|host| ClientHost::new(host, hosts, rng.fork(4), workers, (planted, delegations)))
            .collect();
        Sim {
            world,
            ledger: Ledger::default(),
            recorder: Recorder::default(),
            hosts,
            coordinator: CoordinatorHost::new(hosts, registers),
            metadata,
            data,
            flow: FlowHost::new(hosts.flow(), hosts, rng.fork(6)),
            clients,
            servers,
            lost: None,
            away: None,
            older_disks: std::collections::BTreeSet::new(),
            reach: Reach::default(),
            rotten: std::collections::BTreeSet::new(),
            nemesis: Nemesis::new(rng.fork(5), hosts),
            faults_on: false,
            peace: Instantly(0),
            excused: Instantly(0),
            out_until: std::collections::BTreeMap::new(),
            bounds_looked: 0,
            cut_off_until: std::collections::BTreeMap::new(),
            looked: 0,
            about: options.about,
            names: options.names,
        }
    }

    /// Starts everything.
    pub fn boot(&mut self) {
        let Sim { coordinator, ledger, hosts, .. } = self;
        for tablet in coordinator.news() {
            ledger.registered(&self.world, &tablet, *hosts);
            self.world.carry_to(tablet.block, tablet.owner);
        }
        for host in self.hosts.all() {
            self.start(host);
        }
    }

    fn work(&mut self, options: &Options) {
        self.recorder.operations_left = options.operations;
        if !options.calm {
            self.faults_on = true;
            self.world.network.weather = self.nemesis.weather();
            self.set_crashes(8_000);
            let pause = self.nemesis.pause();
            self.world.after(pause, Happening::Act(Act::Next));
        }
        let end = self.world.now().0 + WORK_MAX;
        for client in &self.clients {
            let life = self.world.life(client.host);
            for worker in 0..client.workers.len() {
                self.world.after(MILLISECOND, Happening::Go(client.host, life, worker));
            }
        }
        self.run_until(end, |sim| sim.recorder.operations_left == 0);
        if self.recorder.operations_left > 0 {
            let what = "clients did not get through their operations".to_owned();
            self.ledger.blame(&self.world, Promise::NoEndlessWait, what);
        }
    }

    fn set_crashes(&mut self, per_million: u64) {
        self.metadata.iter_mut().for_each(|host| host.crash_points.per_million = per_million);
        self.data.iter_mut().for_each(|host| host.crash_points.per_million = per_million / 4);
        // Who crashes begins anew, with nothing open: that must not be all that clients do.
        self.clients.iter_mut().for_each(|client| client.crash_points.per_million = per_million / 16);
    }

    /// All faults end, and what is under way comes to its end.
    pub fn heal(&mut self) {
        self.end_faults();
        self.expect_service();
        self.expect_copies();
        self.expect_evenness();
        let end = self.world.now().0 + DRAIN_MAX;
        self.run_until(end, |sim| sim.clients.iter().all(ClientHost::is_idle));
        for client in self.clients.iter().filter(|client| !client.is_idle()) {
            let what = format!("{:?} is still at work long after all faults were over", client.host);
            self.ledger.blame(&self.world, Promise::NoEndlessWait, what);
        }
        // Drops of links and ends of transactions may still be on their way.
        self.settle();
    }

    fn end_faults(&mut self) {
        self.faults_on = false;
        self.peace = self.world.now();
        self.set_crashes(0);
        self.end_outages();
        self.world.network.heal();
        self.world.network.weather = Weather::FAIR;
        self.metadata.iter_mut().for_each(|host| (host.slowness, host.fail_sync) = (1, false));
        self.data.iter_mut().for_each(|host| (host.slowness, host.fail_sync) = (1, false));
        self.data.iter_mut().for_each(|host| host.set_full(false));
        for host in self.hosts.metadata() {
            self.unspoil(host);
            self.crowd(host, None);
        }
        for host in self.hosts.metadata().chain(self.hosts.data()) {
            self.put_disk_back(host);
        }
        for host in self.hosts.all() {
            self.world.clocks[usize::from(host.0)].wall_offset %= 100 * MILLISECOND as i64;
            self.judge_clock(host, false);
            self.start(host);
        }
    }

    /// Runs on until nothing is on its way between servers; what stays is broken.
    pub fn settle(&mut self) {
        for _ in 0..60 {
            self.run_for(500 * MILLISECOND);
            if self.ledger.model.check_quiet().is_empty() {
                return;
            }
        }
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, duration: u64) {
        let end = self.world.now().0 + duration;
        self.run_until(end, |_| false);
    }

    /// Runs until something is so, or it is too late.
    pub fn run_until(&mut self, end: u64, done: impl Fn(&mut Sim) -> bool) {
        while !done(self) && self.world.now().0 < end && self.ledger.complaints.is_empty() {
            let Some(happening) = self.world.next() else { return };
            if let Some(happening) = self.world.unless_frozen(happening) {
                self.happen(happening);
            }
            self.look_at_bounds();
            self.look();
        }
    }

    fn look(&mut self) {
        if self.world.now().0 < self.looked + LOOK_EVERY {
            return;
        }
        self.looked = self.world.now().0;
        let mut overdue = Vec::new();
        for client in &self.clients {
            let since = self.peace.max(self.excused);
            let late = client.overdue(&self.world, &self.recorder, &self.ledger, since);
            overdue.extend(late.into_iter().map(|what| format!("{:?} waits for ever: {what}", client.host)));
        }
        if self.faults_on && !overdue.is_empty() {
            // While faults go on, nobody can promise an end. So they end, and whoever waits on then waits for
            // ever.
            self.world.counts.add("faults ended early, for an operation that took long");
            return self.end_faults();
        }
        for what in overdue {
            self.ledger.blame(&self.world, Promise::NoEndlessWait, what);
        }
    }

    // --- what happens ---

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { from, to, way, lives, packet } => {
                let stream_broke = way == crate::network::Way::Stream
                    && lives != (self.world.life(from), self.world.life(to));
                if self.world.is_up(to) && !stream_broke {
                    self.arrive(from, to, way, &packet);
                }
            }
            Happening::Wake(host, life) if life == self.world.life(host) => self.wake(host),
            Happening::Done(host, life, number) if life == self.world.life(host) => self.done(host, number),
            Happening::Go(host, life, worker) if life == self.world.life(host) => {
                let Sim { clients, world, recorder, .. } = self;
                if let Some(client) = clients.iter_mut().find(|client| client.host == host) {
                    client.go(world, recorder, worker);
                }
            }
            Happening::GiveUp(host, life, ticket) if life == self.world.life(host) => {
                let Sim { clients, world, recorder, .. } = self;
                if let Some(client) = clients.iter_mut().find(|client| client.host == host) {
                    client.give_up(world, recorder, ticket);
                }
            }
            Happening::Replace(host, life) if life == self.world.life(host) => {
                self.crash(host);
                self.start(host);
            }
            Happening::Wake(..)
            | Happening::Done(..)
            | Happening::Go(..)
            | Happening::GiveUp(..)
            | Happening::Replace(..) => {}
            Happening::Act(act) => self.act(act),
        }
        if let Some((at, cut)) = self.world.boundaries.take_due() {
            self.cut(at, cut);
        }
        self.bury();
        self.hear_of_chunks();
        self.hear_of_names();
        self.judge_lost_reads();
    }

    /// Kernels have forgotten what somebody else has changed, when that becomes stable.
    fn hear_of_names(&mut self) {
        for news in std::mem::take(&mut self.ledger.name_news) {
            for client in &self.clients {
                let Some(known) = client.goes_by(&self.world, &news) else { continue };
                let NameNews { author, directory, name, node } = &news;
                let what = format!(
                    "{author:?} has {name:?} in {directory} lead to {node:?}, but the kernel of {:?} still takes it for {known}",
                    client.host
                );
                self.ledger.blame(&self.world, Promise::KernelForgot, what);
            }
        }
    }

    /// What became of chunks, for who keeps the history of their frames.
    fn hear_of_chunks(&mut self) {
        for news in std::mem::take(&mut self.ledger.chunk_news) {
            match news {
                ChunkNews::Sealed(chunk, record, decided) => self.hear_of_seal(chunk, &record, decided),
                ChunkNews::Gathers(chunk, from, pieces) => self.recorder.gathers(chunk, from, &pieces),
            }
        }
    }

    /// From now on faults are drawn anew, and so is what crashes lose.
    pub fn fork_faults(&mut self, seed: u64) {
        let mut rng = Seeded::new(seed);
        self.nemesis = Nemesis::new(rng.fork(1), self.hosts);
        self.metadata.iter_mut().for_each(|host| host.draw_faults_from(rng.fork(2)));
        self.data.iter_mut().for_each(|host| host.draw_faults_from(rng.fork(3)));
    }

    /// The cut of a crash case. One in eight is longer than a delegation lasts.
    fn cut(&mut self, at: HostId, cut: Cut) {
        self.world.counts.add(&format!("fault: cut of {cut}"));
        let servers = || self.hosts.metadata().chain(self.hosts.data()).chain([COORDINATOR_HOST]);
        let dying: Vec<HostId> = match cut {
            Cut::Everything => self.hosts.all().collect(),
            Cut::Servers => servers().collect(),
            Cut::Server => vec![at],
            Cut::Client => vec![self.clients[1].host],
        };
        let downtime = self.nemesis.downtime_of_cut();
        for host in dying {
            self.crash(host);
            self.world.after(downtime, Happening::Act(Act::Start(host)));
        }
    }

    /// Bytes that were synced are never lost; bytes that were not may be, when data servers crash.
    fn judge_lost_reads(&mut self) {
        for (since, node) in std::mem::take(&mut self.recorder.lost_reads) {
            let frames = self.ledger.model.frames_of(node);
            // What a writer has replaced meanwhile may have been lost.
            let missed = self.reach.is_missed(&frames, since.0);
            if !missed && self.recorder.are_safe(&frames) && !self.recorder.was_written_since(node, since) {
                let what = format!("{node} cannot be read, but all of it was synced");
                self.ledger.blame(&self.world, Promise::SyncedIsKept, what);
            }
        }
    }

    fn arrive(&mut self, from: HostId, to: HostId, way: crate::network::Way, packet: &[u8]) {
        let Sim { world, ledger, recorder, coordinator, metadata, data, flow, clients, hosts, .. } = self;
        match hosts.role(to) {
            Role::Coordinator => {
                coordinator.arrive(world, from, way, packet);
                self.note_registers();
            }
            Role::Metadata(_) => metadata[index_of(to, 1)].arrive(world, ledger, way, packet),
            Role::Data(_) => {
                let data = &mut data[index_of(to, 1 + crate::cluster::METADATA)];
                data.arrive(world, from, way, packet);
                if data.serves() {
                    self.reach.starts(to, self.world.now().0);
                }
            }
            Role::Client(number) => clients[number as usize].arrive(world, recorder, way, packet),
            Role::Flow => flow.arrive(world, from, way, packet),
        }
    }

    fn wake(&mut self, host: HostId) {
        let Sim { world, ledger, recorder, metadata, data, flow, clients, hosts, .. } = self;
        match hosts.role(host) {
            Role::Coordinator => {}
            Role::Flow => flow.wake(world),
            Role::Metadata(_) => metadata[index_of(host, 1)].wake(world, ledger),
            Role::Data(_) => data[index_of(host, 1 + crate::cluster::METADATA)].wake(world),
            Role::Client(number) => clients[number as usize].wake(world, recorder),
        }
    }

    fn done(&mut self, host: HostId, number: u64) {
        let Sim { world, ledger, recorder, coordinator, metadata, data, clients, hosts, .. } = self;
        match hosts.role(host) {
            Role::Coordinator => {
                coordinator.done(world, number);
                self.note_registers();
            }
            Role::Metadata(_) => metadata[index_of(host, 1)].done(world, ledger, number),
            Role::Data(_) => data[index_of(host, 1 + crate::cluster::METADATA)].done(world, number),
            Role::Client(client) => clients[client as usize].done(world, recorder, number),
            Role::Flow => {}
        }
    }

    /// The coordinator may have changed registers.
    fn note_registers(&mut self) {
        let Sim { world, ledger, coordinator, hosts, .. } = self;
        let news = coordinator.news();
        for tablet in &news {
            ledger.registered(world, tablet, *hosts);
            world.carry_to(tablet.block, tablet.owner);
        }
        // Nobody else has what cannot be read there.
        let alone = news.iter().filter(|tablet| tablet.members.len() == 1);
        let alone: Vec<_> = alone.filter_map(|tablet| hosts.host_of(tablet.owner)).collect();
        alone.into_iter().for_each(|host| self.unspoil(host));
    }

    /// Hosts that want to die do, and start again later.
    fn bury(&mut self) {
        for index in 0..self.metadata.len() {
            if let Some(why) = self.metadata[index].dying.clone() {
                let host = HostId(1 + index as u8);
                self.world.tell(|| format!("{host:?} dies: {why}"));
                self.crash(host);
                self.start_later(host);
            }
        }
        for index in 0..self.data.len() {
            if let Some(why) = self.data[index].dying.clone() {
                let host = HostId(1 + crate::cluster::METADATA + index as u8);
                self.world.tell(|| format!("{host:?} dies: {why}"));
                self.crash(host);
                self.start_later(host);
            }
        }
        for index in 0..self.clients.len() {
            let (host, client) = (self.clients[index].host, &self.clients[index]);
            if let Some(why) = &client.dying {
                self.world.tell(|| format!("{host:?} dies: {why}"));
            }
            if (client.restart_wanted || client.dying.is_some()) && self.world.is_up(host) {
                self.crash(host);
                self.start_later(host);
            }
        }
    }

    fn start_later(&mut self, host: HostId) {
        let downtime = self.nemesis.downtime();
        self.world.after(downtime, Happening::Act(Act::Start(host)));
    }

    /// Starts a host, unless it runs.
    pub(crate) fn start(&mut self, host: HostId) {
        if self.world.is_up(host) || self.lost == Some(host) || self.servers.absent.contains(&host) {
            return;
        }
        self.world.tell(|| format!("{host:?} starts"));
        self.away = self.away.filter(|away| *away != host);
        let Sim { world, ledger, recorder, coordinator, metadata, data, flow, clients, hosts, .. } = self;
        match hosts.role(host) {
            Role::Coordinator => {
                coordinator.begin();
                world.toggle(host);
            }
            Role::Metadata(_) => metadata[index_of(host, 1)].start(world, ledger),
            Role::Data(_) => data[index_of(host, 1 + crate::cluster::METADATA)].start(world),
            Role::Client(number) => clients[number as usize].start(world, recorder),
            Role::Flow => flow.start(world),
        }
    }

    /// Kills a host, if it runs.
    pub fn crash(&mut self, host: HostId) {
        if !self.world.is_up(host) {
            return;
        }
        self.world.tell(|| format!("{host:?} crashes"));
        self.world.forget_frozen(host);
        self.reach.stops(host, self.world.now().0);
        let Sim { world, ledger, recorder, metadata, data, flow, clients, hosts, .. } = self;
        match hosts.role(host) {
            Role::Coordinator => world.toggle(host),
            Role::Flow => flow.crash(world),
            Role::Metadata(_) => metadata[index_of(host, 1)].crash(world, ledger),
            Role::Data(_) => data[index_of(host, 1 + crate::cluster::METADATA)].crash(world),
            Role::Client(number) => {
                clients[number as usize].count(world);
                clients[number as usize].crash(world, recorder);
            }
        }
    }

    // --- faults ---

    pub(crate) fn act(&mut self, act: Act) {
        let ends = matches!(act, Act::Start(_) | Act::RightDisk(_));
        if !self.faults_on && !ends || self.put_off(&act) {
            return;
        }
        self.world.tell(|| format!("{act:?}"));
        match act {
            Act::Next => {
                let fault = self.nemesis.draw();
                self.world.counts.add(&format!("fault: {}", fault.name()));
                self.act(fault);
                let pause = self.nemesis.pause();
                self.world.after(pause, Happening::Act(Act::Next));
            }
            Act::Crash(host, downtime) => {
                self.crash(host);
                self.world.after(downtime, Happening::Act(Act::Start(host)));
            }
            Act::PowerCut(downtime) => {
                for host in self.hosts.metadata().chain(self.hosts.data()).chain([COORDINATOR_HOST]) {
                    self.crash(host);
                    let apart = self.world.rng.below(200 * MILLISECOND);
                    self.world.after(downtime + apart, Happening::Act(Act::Start(host)));
                }
            }
            Act::Start(host) => self.start_unless_out(host),
            Act::CopyDisk(host) => self.metadata[index_of(host, 1)].copy_disk(),
            Act::WrongDisk(host, kind, spell) => self.give_wrong_disk(host, kind, spell),
            Act::RightDisk(host) => self.put_disk_back(host),
            Act::Outage(host, spell) => self.outage(host, spell),
            Act::Freeze(host, disk_only, spell) => self.freeze(host, disk_only, spell),
            Act::Thaw(host) => self.world.thaw(host),
            Act::OlderRegisters(number, spell) => self.put_older_registers_back(number, spell),
            Act::NewestRegisters => self.put_newest_registers_back(),
            Act::Dawdle(takes, loses, spell) => self.dawdle(takes, loses, spell),
            Act::Hasten => (self.coordinator.takes, self.coordinator.loses) = (0, false),
            Act::Cut(ways, spell) => {
                ways.iter().for_each(|(from, to)| self.world.network.set_cut(*from, *to, true));
                self.world.after(spell, Happening::Act(Act::Mend(ways)));
            }
            Act::Lag(ways, lag, spell) => {
                ways.iter().for_each(|(from, to)| self.world.network.set_lag(*from, *to, lag));
                self.world.after(spell, Happening::Act(Act::Prompt(ways)));
            }
            Act::Prompt(ways) => {
                ways.iter().for_each(|(from, to)| self.world.network.set_lag(*from, *to, 0));
            }
            Act::Isolate(host, lag, ways, spell) => {
                let others = self.hosts.metadata().filter(|other| *other != host);
                let back = others.map(|other| (other, host)).collect();
                let before = 2 * lag;
                self.act(Act::Lag(back, lag, before + spell + lag));
                self.world.after(before, Happening::Act(Act::Cut(ways, spell)));
            }
            Act::Unheard(number, downtime, spell) => self.unheard(number, downtime, spell),
            Act::Overtake(number, spell, after, downtime) => self.overtake(number, spell, after, downtime),
            Act::CrashTwo([first, second], apart, downtime) => {
                self.act(Act::Crash(first, downtime));
                self.world.after(apart, Happening::Act(Act::Crash(second, downtime)));
            }
            Act::CutOff(number, spell) => self.cut_off(number, spell),
            Act::CutFromHome(number, spell) => self.cut_from_home(number, spell),
            Act::Mend(ways) => {
                ways.iter().for_each(|(from, to)| self.reach.mended([*from, *to], self.world.now().0));
                ways.iter().for_each(|(from, to)| self.world.network.set_cut(*from, *to, false));
            }
            Act::Storm(spell) => {
                self.world.network.weather = Weather::STORM;
                self.world.after(spell, Happening::Act(Act::Calm));
            }
            Act::Calm => self.world.network.weather = Weather::USUAL,
            Act::Slow(host, spell) => {
                self.set_slowness(host, 100);
                self.world.after(spell, Happening::Act(Act::Fast(host)));
            }
            Act::Fast(host) => self.set_slowness(host, 1),
            Act::Clock(host, offset) => {
                if offset.unsigned_abs() > 250 * MILLISECOND {
                    self.world.counts.add("fault: clock off by more than servers allow");
                }
                self.world.clocks[usize::from(host.0)].wall_offset = offset;
                // Half of them measure it.
                let noticed = offset.unsigned_abs() > 250 * MILLISECOND && offset % 2 == 0;
                self.judge_clock(host, noticed);
                if noticed && matches!(self.hosts.role(host), Role::Metadata(_)) {
                    // Whoever has tablets there waits until somebody sets the clock.
                    let spell = SECOND + offset.unsigned_abs() % (10 * SECOND);
                    let right = Act::Clock(host, offset % (100 * MILLISECOND) as i64);
                    self.world.after(spell, Happening::Act(right));
                }
            }
            Act::FailSync(host) => match self.hosts.role(host) {
                Role::Metadata(_) => self.metadata[index_of(host, 1)].fail_sync = true,
                Role::Data(_) => self.data[index_of(host, 1 + crate::cluster::METADATA)].fail_sync = true,
                Role::Coordinator | Role::Client(_) | Role::Flow => {}
            },
            Act::Move(number, to) => self.move_tablet(number, to),
            Act::Members(number) => self.change_servers(number),
            Act::Fill(disks, spell) => {
                self.recorder.disks_were_full = true;
                self.set_full(&disks, true);
                self.world.after(spell, Happening::Act(Act::Room(disks)));
            }
            Act::UseUpInodes(disk, spell) => {
                self.recorder.disks_were_full = true;
                self.data[index_of(disk, 1 + crate::cluster::METADATA)].use_up_inodes();
                self.world.after(spell, Happening::Act(Act::Room(vec![disk])));
            }
            Act::Room(disks) => self.set_full(&disks, false),
            Act::Crowd(host, crowded, spell) => {
                self.recorder.disks_were_full = true;
                self.crowd(host, Some(crowded));
                self.world.after(spell, Happening::Act(Act::Uncrowd(host)));
            }
            Act::Uncrowd(host) => self.crowd(host, None),
            Act::Lose(host) => self.lose(host),
            Act::Rot(host, number) => self.rot(host, number),
            Act::Spoil(host, number, spell) => self.spoil(host, number, spell),
            Act::Unspoil(host) => self.unspoil(host),
            Act::EmptyDisk(host, downtime) => self.empty_disk(host, downtime),
            Act::OlderDisk(host, downtime) => self.older_disk(host, downtime),
            Act::RotOpen(number, downtime) => self.rot_open(number, downtime),
            Act::Away(host, spell) => self.go_away(host, spell),
            Act::Unmount(host) => {
                let Sim { clients, world, recorder, .. } = self;
                let client = clients.iter_mut().find(|client| client.host == host);
                if let Some(client) = client.filter(|_| world.is_up(host)) {
                    client.ask(world, recorder, Operation::End);
                }
            }
        }
    }

    fn set_full(&mut self, disks: &[HostId], full: bool) {
        for disk in disks {
            self.data[index_of(*disk, 1 + crate::cluster::METADATA)].set_full(full);
        }
    }

    fn crowd(&mut self, host: HostId, crowded: Option<Crowded>) {
        let Sim { metadata, world, ledger, .. } = self;
        metadata[index_of(host, 1)].crowd(world, ledger, crowded);
    }

    fn cut_off(&mut self, number: u64, spell: u64) {
        let Some(host) = self.one_to_cut_off(number, spell) else { return };
        self.world.counts.add("fault: a client with open files is cut off for long");
        let others = self.hosts.all().filter(|other| *other != host);
        let ways = others.flat_map(|other| [(host, other), (other, host)]).collect();
        self.act(Act::Cut(ways, spell));
    }

    fn cut_from_home(&mut self, number: u64, spell: u64) {
        let Some(host) = self.one_to_cut_off(number, spell) else { return };
        let client = self.clients.iter().find(|client| client.host == host).expect("it is a client's host");
        let position = position_of_session(client.session());
        let tablet = self.ledger.tablets().find(|tablet| tablet.contains(position));
        let Some(home) = tablet.and_then(|tablet| self.ledger.owner_of(tablet)) else { return };
        self.world.counts.add("fault: a client is cut off from its session's home for long");
        self.excuse(spell);
        self.act(Act::Cut(vec![(host, home), (home, host)], spell));
    }

    /// A client with open files, drawn by this number.
    fn one_to_cut_off(&mut self, number: u64, spell: u64) -> Option<HostId> {
        // Who was cut off gets some time before it happens again, or its operations would be late for no
        // other reason.
        let now = self.world.now().0;
        let rested =
            |host: &HostId| self.cut_off_until.get(host).is_none_or(|until| now >= until + 20 * SECOND);
        let open = self.clients.iter().filter(|client| client.has_any_open()).map(|client| client.host);
        // The first client asks whether all is well in the end: its session must not turn out to be over just
        // then.
        let outlived = spell > 30 * SECOND;
        let spared = |host: &HostId| outlived && self.hosts.role(*host) == Role::Client(0);
        let open: Vec<HostId> = open.filter(rested).filter(|host| !spared(host)).collect();
        let host = *open.get((number % open.len().max(1) as u64) as usize)?;
        self.cut_off_until.insert(host, now + spell);
        Some(host)
    }

    fn set_slowness(&mut self, host: HostId, slowness: u64) {
        match self.hosts.role(host) {
            Role::Metadata(_) => self.metadata[index_of(host, 1)].slowness = slowness,
            Role::Data(_) => self.data[index_of(host, 1 + crate::cluster::METADATA)].slowness = slowness,
            Role::Coordinator | Role::Client(_) | Role::Flow => {}
        }
    }

    /// A metadata server hears how its clock is.
    fn judge_clock(&mut self, host: HostId, off: bool) {
        if matches!(self.hosts.role(host), Role::Metadata(_)) && self.world.is_up(host) {
            let Sim { world, ledger, metadata, .. } = self;
            metadata[index_of(host, 1)].judge_clock(world, ledger, off);
        }
    }

    // --- the end ---

    /// What came of it.
    pub fn report(mut self, seed: u64) -> Report {
        for client in &self.clients {
            client.count(&mut self.world);
        }
        let mut violations = std::mem::take(&mut self.ledger.complaints);
        violations.extend(std::mem::take(&mut self.recorder.complaints));
        let names = self.names.then(|| crate::names::lines(&self.recorder.history));
        Report {
            seed,
            names,
            hash: self.world.digest.value(),
            violations,
            steps: self.world.steps,
            elapsed: self.world.now().0,
            counts: self.world.counts,
        }
    }
}

pub(crate) fn index_of(host: HostId, first: u8) -> usize {
    usize::from(host.0 - first)
}
