//! What all hosts share: true time, the queue of what will happen, the network, the keys, and the counts.

use crate::boundary::Boundaries;
use crate::clock::{Clock, Instantly, MILLISECOND};
use crate::cluster::Hosts;
use crate::counts::Counts;
use crate::digest::Digest;
use crate::nemesis::Act;
use crate::network::{HostId, Network, Way};
use bearing_placement::LookupKind;
use bearing_proto::Sender;
use bearing_proto::keys::{Key, ServerKeys};
use bearing_types::{Block, Mono, Now, Position, ServerId, SessionId};
use bearing_workload::Seeded;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Something that will happen.
#[derive(Debug)]
pub enum Happening {
    /// A packet arrives.
    Arrive {
        /// From.
        from: HostId,
        /// To.
        to: HostId,
        /// How.
        way: Way,
        /// Both ends' lives when it was sent; a stream ends with either.
        lives: (u32, u32),
        /// The packet.
        packet: Rc<Vec<u8>>,
    },
    /// A host wants to be stepped.
    Wake(HostId, u32),
    /// Something of a host's own is done: its disk, its kernel. The number says what.
    Done(HostId, u32, u64),
    /// A program of a client goes on.
    Go(HostId, u32, usize),
    /// Who waits for an operation of a client has lost patience.
    GiveUp(HostId, u32, u64),
    /// A host that does not work any more is restarted by hand.
    Replace(HostId, u32),
    /// A fault begins or ends.
    Act(Act),
}

/// See the module.
pub struct World {
    now: Instantly,
    queue: BTreeMap<(Instantly, u64), Happening>,
    next: u64,
    /// For everything that is not the network's, the faults' or a client's own.
    pub rng: Seeded,
    /// The network.
    pub network: Network,
    /// Clocks by host.
    pub clocks: Vec<Clock>,
    /// How often each host was started; an even number: it is down.
    lives: Vec<u32>,
    /// What happened how often.
    pub counts: Counts,
    /// Over everything that happened.
    pub digest: Digest,
    /// Whether the digest covers all that machines command, too.
    pub digests_commands: bool,
    /// Of each tablet.
    pub copies: u8,
    /// An older copy of the coordinator's registers was put back.
    pub older_registers: bool,
    /// Or was once: answers of that time may be very late.
    pub had_older_registers: bool,
    /// Whom clients ask first.
    pub lookup: LookupKind,
    /// The tables of the switches: for each tablet, from when on they lead to whom, and whom before.
    carried: BTreeMap<Position, (Block, ServerId, Instantly, ServerId)>,
    /// Whether clients ask for delegations.
    pub delegations: bool,
    /// Whether servers have them compared, again and again.
    pub compares: bool,
    /// What servers know.
    pub keys: ServerKeys,
    session_keys: BTreeMap<SessionId, Key>,
    session_hosts: BTreeMap<SessionId, HostId>,
    /// Happenings so far.
    pub steps: u64,
    /// Whether to tell on the terminal what happens.
    pub told: bool,
    /// Where disks sync.
    pub boundaries: Boundaries,
    /// Hosts whose processes are stopped, and those of which only the disk is.
    frozen: BTreeSet<HostId>,
    frozen_disks: BTreeSet<HostId>,
    /// What waits for them, in its order.
    waiting: Vec<(HostId, Happening)>,
}

impl World {
    /// The tables of the switches are told who owns a tablet: they lead there a while later.
    pub fn carry_to(&mut self, block: Block, owner: ServerId) {
        if self.lookup != LookupKind::InNetwork {
            return;
        }
        let before = self.carried_to(block.start()).unwrap_or(owner);
        if before != owner {
            let from = Instantly(self.now.0 + self.rng.between(1, 200) * MILLISECOND);
            self.carried.insert(block.start(), (block, owner, from, before));
        } else {
            self.carried.insert(block.start(), (block, owner, self.now, owner));
        }
    }

    /// Whom the network carries a request to that goes to a position.
    pub fn carried_to(&self, position: Position) -> Option<ServerId> {
        let (_, (block, owner, from, before)) = self.carried.range(..=position).next_back()?;
        block.contains(position).then_some(if *from <= self.now { *owner } else { *before })
    }

    /// A world of so many hosts, all down.
    pub fn new(seed: u64, hosts: usize) -> World {
        let mut rng = Seeded::new(seed);
        let mut key = || {
            let mut bytes = [0; 32];
            bytes.iter_mut().for_each(|byte| *byte = rng.next() as u8);
            Key::new(bytes)
        };
        let (cluster, enrolment) = (key(), key());
        let clocks = (0..hosts).map(|_| World::draw_clock(&mut rng)).collect();
        World {
            now: Instantly(0),
            queue: BTreeMap::new(),
            next: 0,
            network: Network::new(rng.fork(1)),
            clocks,
            lives: vec![0; hosts],
            counts: Counts::default(),
            digest: Digest::default(),
            digests_commands: false,
            copies: 1,
            older_registers: false,
            had_older_registers: false,
            lookup: LookupKind::ClientMap,
            carried: BTreeMap::new(),
            delegations: false,
            compares: false,
            keys: ServerKeys::new(&cluster, enrolment),
            session_keys: BTreeMap::new(),
            session_hosts: BTreeMap::new(),
            rng,
            steps: 0,
            told: false,
            boundaries: Boundaries::default(),
            frozen: BTreeSet::new(),
            frozen_disks: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// A machine commands something.
    pub fn commanded(&mut self, host: HostId, command: &impl std::fmt::Debug) {
        if self.digests_commands {
            self.digest.bytes(format!("{host:?} {command:?}").as_bytes());
        }
    }

    fn draw_clock(rng: &mut Seeded) -> Clock {
        Clock {
            mono_start: rng.below(1 << 50),
            drift_ppm: rng.between(0, 200) as i64 - 100,
            wall_offset: (rng.between(0, 200) as i64 - 100) * 1_000_000,
        }
    }

    /// True time.
    pub fn now(&self) -> Instantly {
        self.now
    }

    /// True time as the checker's clock shows it.
    pub fn true_mono(&self) -> Mono {
        Mono(self.now.0)
    }

    /// What a host's clocks show.
    pub fn clock_of(&self, host: HostId) -> Now {
        self.clocks[usize::from(host.0)].now(self.now)
    }

    /// When a host's clock shows a time.
    pub fn when(&self, host: HostId, mono: Mono) -> Instantly {
        self.clocks[usize::from(host.0)].when(mono).max(self.now)
    }

    /// A host's present life.
    pub fn life(&self, host: HostId) -> u32 {
        self.lives[usize::from(host.0)]
    }

    /// Whether a host runs.
    pub fn is_up(&self, host: HostId) -> bool {
        self.life(host) % 2 == 1
    }

    /// Starts a host that is down, or takes down one that runs.
    pub fn toggle(&mut self, host: HostId) {
        self.lives[usize::from(host.0)] += 1;
    }

    /// Something will happen so many nanoseconds from now.
    pub fn after(&mut self, delay: u64, happening: Happening) {
        self.at(Instantly(self.now.0 + delay), happening);
    }

    /// Something will happen at a time.
    pub fn at(&mut self, at: Instantly, happening: Happening) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), happening);
    }

    /// The next thing that happens; time moves on to it.
    pub fn next(&mut self) -> Option<Happening> {
        let ((at, number), happening) = self.queue.pop_first()?;
        self.now = at;
        self.steps += 1;
        self.digest.number(at.0);
        self.digest.number(number);
        Some(happening)
    }

    /// A host does nothing any more, or its disk does not, while its clocks run on. What comes waits.
    pub fn freeze(&mut self, host: HostId, disk_only: bool) {
        let frozen = if disk_only { &mut self.frozen_disks } else { &mut self.frozen };
        frozen.insert(host);
    }

    /// It goes on, with all that came meanwhile.
    pub fn thaw(&mut self, host: HostId) {
        self.frozen.remove(&host);
        self.frozen_disks.remove(&host);
        let (its, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| *of == host);
        self.waiting = others;
        let its: Vec<(HostId, Happening)> = its;
        its.into_iter().for_each(|(_, happening)| self.after(0, happening));
    }

    /// A host that is stopped dies: what waited for it is lost.
    pub fn forget_frozen(&mut self, host: HostId) {
        self.frozen.remove(&host);
        self.frozen_disks.remove(&host);
        self.waiting.retain(|(of, _)| *of != host);
    }

    /// Whether a host's process is stopped.
    pub fn is_frozen(&self, host: HostId) -> bool {
        self.frozen.contains(&host)
    }

    /// What happens now, unless it waits for a host that is stopped.
    pub fn unless_frozen(&mut self, happening: Happening) -> Option<Happening> {
        let (host, of_disk) = match &happening {
            Happening::Arrive { to, .. } => (*to, false),
            Happening::Wake(host, _) | Happening::Go(host, ..) | Happening::GiveUp(host, ..) => {
                (*host, false)
            }
            Happening::Done(host, ..) => (*host, true),
            Happening::Replace(..) | Happening::Act(_) => return Some(happening),
        };
        if self.frozen.contains(&host) || (of_disk && self.frozen_disks.contains(&host)) {
            self.waiting.push((host, happening));
            return None;
        }
        Some(happening)
    }

    /// Sends a packet. Gives `false` when a stream cannot be made, or breaks.
    pub fn send(&mut self, from: HostId, to: HostId, way: Way, packet: Vec<u8>, bulk_bytes: usize) -> bool {
        self.digest.bytes(&packet);
        self.counts.add("packets");
        self.tell(|| format!("{from:?} -> {to:?} {way:?}, {} bytes", packet.len()));
        let lives = (self.life(from), self.life(to));
        if way == Way::Stream && (!self.is_up(to) || self.network.is_cut(to, from)) {
            self.counts.add("fault: stream broken");
            return false;
        }
        let delays = self.network.delays(from, to, way, self.now.0, &mut self.counts);
        let whole = Rc::new(packet);
        for delay in &delays {
            let mut packet = Rc::clone(&whole);
            if bulk_bytes > 0 && way == Way::Datagram {
                let bytes = Rc::make_mut(&mut packet);
                let start = bytes.len() - bulk_bytes;
                self.network.perhaps_damage(&mut bytes[start..], &mut self.counts);
            }
            self.after(*delay, Happening::Arrive { from, to, way, lives, packet });
        }
        way == Way::Datagram || !delays.is_empty()
    }

    /// The secret of a session. Nobody's, before it was agreed on.
    pub fn session_key(&self, session: SessionId) -> Key {
        self.session_keys.get(&session).cloned().unwrap_or_else(|| Key::new([0; 32]))
    }

    /// A client's host and the servers have agreed on this session: by the handshake, which is no part of the
    /// simulation.
    pub fn learn_session(&mut self, session: SessionId, host: HostId) {
        let mut secret = [0; 32];
        secret.iter_mut().for_each(|byte| *byte = self.rng.next() as u8);
        self.session_keys.insert(session, Key::new(secret));
        self.session_hosts.insert(session, host);
    }

    /// Where a session's client is.
    pub fn host_of_session(&self, session: SessionId) -> Option<HostId> {
        self.session_hosts.get(&session).copied()
    }

    /// Where a sender is.
    pub fn host_of_sender(&self, hosts: Hosts, sender: Sender) -> Option<HostId> {
        match sender {
            Sender::Client(session) => self.host_of_session(session),
            Sender::Server(server) => hosts.host_of(server),
            Sender::Nobody => None,
        }
    }

    /// Tells what happens, when somebody wants to know.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            eprintln!("{:>12} us  {}", self.now.0 / 1000, what());
        }
    }
}
