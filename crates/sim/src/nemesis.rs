//! Faults: which, when, for how long. Drawn from a seed of its own, so that a change of what clients do does
//! not shift them.

use crate::clock::{MILLISECOND, SECOND};
use crate::cluster::{COORDINATOR_HOST, Hosts, METADATA};
use crate::counts::Counts;
use crate::disks::WrongDisk;
use crate::network::{HostId, Weather};

use bearing_seams::CrashFault;
use bearing_types::{Block, ServerId};
use bearing_workload::Seeded;

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Time for the next fault.
    Next,
    /// A host dies, for so many nanoseconds.
    Crash(HostId, u64),
    /// Everything loses power at the same time, for so many nanoseconds.
    PowerCut(u64),
    /// A host starts again.
    Start(HostId),
    /// These directions are cut, for so many nanoseconds.
    Cut(Vec<(HostId, HostId)>, u64),
    /// Packets in these directions are late, each by another time up to this, for so many nanoseconds.
    Lag(Vec<(HostId, HostId)>, u64, u64),
    /// It answers at once again.
    Prompt(Vec<(HostId, HostId)>),
    /// A metadata server loses the others, but not its clients: what they tell it lags by up to so many
    /// nanoseconds, and a while later these directions are cut, for so many.
    Isolate(HostId, u64, Vec<(HostId, HostId)>, u64),
    /// The owner of a tablet, drawn by this number, is not heard by one of its other members, which takes it
    /// over with less than the third one has. A while later the third one dies: so many nanoseconds, all
    /// three.
    Overtake(u64, u64, u64, u64),
    /// The owner of a tablet, drawn by a number, reaches neither the coordinator nor a member for so many
    /// nanoseconds (the last); that member is down for so many, and back while the owner serves.
    Unheard(u64, u64, u64),
    /// Two metadata servers die, the second so many nanoseconds later, for so many.
    CrashTwo([HostId; 2], u64, u64),
    /// A client, drawn by this number among those that have files open, reaches nobody for so many
    /// nanoseconds: longer than any lease, shorter than the life of its session.
    CutOff(u64, u64),
    /// One drawn in the same way does not reach the server that has its session, for longer than that lives,
    /// and all others all the time.
    CutFromHome(u64, u64),
    /// They are whole again.
    Mend(Vec<(HostId, HostId)>),
    /// The network gets bad, for so many nanoseconds.
    Storm(u64),
    /// It is as usual again.
    Calm,
    /// A host's disk syncs slowly, for so many nanoseconds.
    Slow(HostId, u64),
    /// It is as fast as usual again.
    Fast(HostId),
    /// A host's wall clock is off by so much from now on, in nanoseconds.
    Clock(HostId, i64),
    /// The next sync of a host fails.
    FailSync(HostId),
    /// A tablet, drawn by this number, shall be served by another server.
    Move(u64, ServerId),
    /// A server comes, leaves or stays after all, drawn by this number.
    Members(u64),
    /// The disks of these data servers are full, for so many nanoseconds.
    Fill(Vec<HostId>, u64),
    /// The disk of a data server takes no further files, for so many nanoseconds, and says that it has room.
    UseUpInodes(HostId, u64),
    /// They have room again.
    Room(Vec<HostId>),
    /// The disk of a metadata server has little space or none, for so many nanoseconds.
    Crowd(HostId, Crowded, u64),
    /// It has space again.
    Uncrowd(HostId),
    /// A data server dies for good.
    Lose(HostId),
    /// A bit flips on a data server's disk, in a chunk and at a place drawn by this number.
    Rot(HostId, u64),
    /// A client ends its session, as an unmount does, and begins another.
    Unmount(HostId),
    /// A copy of a metadata server's disk is made.
    CopyDisk(HostId),
    /// A metadata server dies and is started on another disk, for so many nanoseconds.
    WrongDisk(HostId, WrongDisk, u64),
    /// It dies again, and its own disk is put back.
    RightDisk(HostId),
    /// A host is down for so many nanoseconds: perhaps longer than any session, job or lease lives.
    Outage(HostId, u64),
    /// A host's process is stopped, or only its disk, for so many nanoseconds; its clocks run on.
    Freeze(HostId, bool, u64),
    /// It goes on.
    Thaw(HostId),
    /// Each question takes the coordinator so many nanoseconds, and perhaps half of the answers are lost, for
    /// so many nanoseconds.
    Dawdle(u64, bool, u64),
    /// An older copy of the coordinator's registers, drawn by a number, is put back for so long.
    OlderRegisters(u64, u64),
    /// And the newest one again.
    NewestRegisters,
    /// It answers at once again.
    Hasten,
    /// A record of a tablet that a metadata server has, both drawn by this number, cannot be read, for so
    /// many nanoseconds.
    Spoil(HostId, u64, u64),
    /// All can be read again.
    Unspoil(HostId),
    /// A data server dies for so many nanoseconds, and comes back with an empty disk.
    EmptyDisk(HostId, u64),
    /// A data server dies for so many nanoseconds, and comes back with its disk as it was some time ago.
    OlderDisk(HostId, u64),
    /// Bits flip in chunks that are not sealed, drawn by this number, and everything loses power for so many
    /// nanoseconds.
    RotOpen(u64, u64),
    /// A data server is away for so many nanoseconds: longer than it takes until it counts as lost.
    Away(HostId, u64),
}

impl Act {
    /// What it is called where faults are counted.
    pub fn name(&self) -> &'static str {
        match self {
            Act::Crash(..) => "a host crashes",
            Act::PowerCut(_) => "all servers lose power",
            Act::Cut(ways, _) if ways.len() == 1 => "one way is cut",
            Act::Cut(ways, _) if ways.len() == 2 => "two hosts are parted",
            Act::Isolate(..) => "a metadata server loses the others",
            Act::Lag(..) => "packets lag",
            Act::Unheard(..) => "an owner reaches neither coordinator nor a member that starts",
            Act::Overtake(..) => "a metadata server overtakes another one",
            Act::CrashTwo(..) => "two metadata servers die within one grace",
            Act::CutOff(..) => "a client shall be cut off",
            Act::CutFromHome(..) => "a client shall be cut off from its session's home",
            Act::Cut(..) => "half of the hosts are parted",
            Act::Storm(_) => "a storm",
            Act::Slow(..) => "a slow disk",
            Act::Clock(..) => "a clock is turned",
            Act::FailSync(_) => "a sync will fail",
            Act::Move(..) => "a tablet is moved",
            Act::Members(_) => "servers come and go",
            Act::Lose(_) => "a data server shall be lost",
            Act::CopyDisk(_) => "a metadata disk is copied",
            Act::WrongDisk(..) => "a metadata server shall get another disk",
            Act::Rot(..) => "a bit shall flip",
            Act::Spoil(..) => "a record shall be unreadable",
            Act::EmptyDisk(..) => "a data disk shall be emptied",
            Act::OlderDisk(..) => "a data disk shall be replaced by an older one",
            Act::RotOpen(..) => "bits of unsealed chunks shall flip",
            Act::Away(..) => "a data server shall be away for long",
            Act::Unmount(_) => "a client ends its session",
            Act::Fill(disks, _) if disks.len() == 1 => "a data disk is full",
            Act::Fill(..) => "all data disks are full",
            Act::UseUpInodes(..) => "a data disk has no inodes left",
            Act::Crowd(_, Crowded::Low, _) => "a metadata disk has little space",
            Act::Crowd(_, Crowded::Short, _) => "a metadata disk has hardly any space",
            Act::Crowd(_, Crowded::Full, _) => "a metadata disk is full",
            Act::Next | Act::Start(_) | Act::Mend(_) | Act::Prompt(_) | Act::Calm | Act::Fast(_) => "an end",
            Act::Room(_) | Act::Uncrowd(_) | Act::RightDisk(_) | Act::Thaw(_) | Act::Hasten => "an end",
            Act::Unspoil(_) => "an end",
            Act::Outage(COORDINATOR_HOST, _) => "the coordinator is down for long",
            Act::Outage(..) => "a metadata server is down for long",
            Act::Freeze(_, true, _) => "a disk does nothing",
            Act::Freeze(..) => "a process is stopped",
            Act::Dawdle(..) => "the coordinator is slow",
            Act::OlderRegisters(..) => "the coordinator's registers shall be older",
            Act::NewestRegisters => "an end",
        }
    }
}

/// How little space a metadata server's disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// The reserve is touched.
    Low,
    /// Most of the reserve is used.
    Short,
    /// There is none, and nobody said so before.
    Full,
}

/// What survives a crash: all, nothing, or a drawn part.
pub fn crash_fault(rng: &mut Seeded, counts: &mut Counts) -> CrashFault {
    match rng.below(4) {
        0 => {
            counts.add("fault: crash that keeps what was not synced");
            CrashFault::keeping_all()
        }
        1 => {
            counts.add("fault: crash that loses what was not synced");
            CrashFault::losing_all()
        }
        _ => {
            counts.add("fault: crash that tears what was not synced");
            CrashFault::new(rng.next())
        }
    }
}

/// Draws faults.
pub struct Nemesis {
    rng: Seeded,
    hosts: Hosts,
}

impl Nemesis {
    /// A nemesis of these hosts.
    pub fn new(rng: Seeded, hosts: Hosts) -> Nemesis {
        Nemesis { rng, hosts }
    }

    /// How long until the next fault.
    pub fn pause(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.rng.between(5, 100) * MILLISECOND,
            _ => self.rng.between(200, 2_500) * MILLISECOND,
        }
    }

    /// How long a host stays down.
    pub fn downtime(&mut self) -> u64 {
        match self.rng.below(5) {
            0 => self.rng.between(1_500, 5_000) * MILLISECOND,
            _ => self.rng.between(20, 900) * MILLISECOND,
        }
    }

    /// The same after a cut; now and then longer than a delegation lasts.
    pub fn downtime_of_cut(&mut self) -> u64 {
        match self.rng.below(8) {
            0 => self.rng.between(10_500, 14_000) * MILLISECOND,
            _ => self.rng.between(20, 900) * MILLISECOND,
        }
    }

    fn spell(&mut self) -> u64 {
        self.rng.between(50, 3_000) * MILLISECOND
    }

    fn one_of(&mut self, hosts: impl Iterator<Item = HostId>) -> HostId {
        let hosts: Vec<HostId> = hosts.collect();
        *self.rng.pick(&hosts).expect("there are hosts of every kind")
    }

    /// The next fault.
    pub fn draw(&mut self) -> Act {
        let hosts = self.hosts;
        let downtime = self.downtime();
        let spell = self.spell();
        let weights = [
            50, 50, 12, 10, 40, 20, 20, 20, 25, 25, 60, 6, 6, 3, 15, 15, 45, 4, 40, 20, 25, 18, 4, 10, 8, 8,
            8, 8, 6, 25, 8, 20, 8, 20, 8, 12, 40,
        ];
        match self.rng.weighted(&weights) {
            0 => Act::Crash(self.one_of(hosts.metadata()), downtime),
            1 if self.rng.chance(1, 4) => Act::Crash(hosts.flow(), downtime),
            1 => Act::Crash(self.one_of(hosts.data()), downtime),
            2 => Act::Crash(self.one_of(hosts.clients()), downtime),
            3 => Act::Crash(COORDINATOR_HOST, downtime),
            4 => self.cut_pair(true, spell),
            5 => self.cut_half(spell),
            6 => self.cut_pair(false, spell),
            7 => Act::Storm(spell),
            8 => Act::Slow(self.one_of(hosts.metadata().chain(hosts.data())), spell),
            9 => self.turn_clock(),
            10 => Act::Move(self.rng.next(), ServerId(self.rng.between(1, u64::from(METADATA)) as u32)),
            11 => Act::FailSync(self.one_of(hosts.metadata())),
            12 => Act::FailSync(self.one_of(hosts.data())),
            13 => Act::PowerCut(downtime),
            14 => self.fill(spell),
            15 => Act::Unmount(self.one_of(hosts.clients())),
            16 => self.cut_off(),
            17 => Act::Lose(self.one_of(hosts.data())),
            18 => Act::Rot(self.one_of(hosts.data()), self.rng.next()),
            19 => self.crowd(spell),
            20 => Act::CopyDisk(self.one_of(hosts.metadata())),
            21 => self.wrong_disk(spell),
            22 => self.outage(),
            23 => self.freeze(),
            24 => self.dawdle(),
            25 => Act::EmptyDisk(self.one_of(hosts.data()), downtime),
            26 => Act::OlderDisk(self.one_of(hosts.data()), downtime),
            27 => Act::RotOpen(self.rng.next(), downtime),
            28 => Act::Away(self.one_of(hosts.data()), self.rng.between(8_000, 14_000) * MILLISECOND),
            29 => self.isolate(),
            30 => self.crash_two(downtime),
            31 => self.overtake(),
            32 => Act::CutFromHome(self.rng.next(), self.rng.between(33_000, 50_000) * MILLISECOND),
            33 => Act::OlderRegisters(self.rng.next(), self.rng.between(3, 20) * SECOND),
            34 => Act::Unheard(self.rng.next(), self.rng.between(1, 40) * MILLISECOND, spell),
            35 => Act::Spoil(self.one_of(hosts.metadata()), self.rng.next(), spell),
            _ => Act::Members(self.rng.next()),
        }
    }

    fn isolate(&mut self) -> Act {
        let host = self.one_of(self.hosts.metadata());
        let others: Vec<HostId> = self.hosts.metadata().filter(|other| *other != host).collect();
        let out = others.iter().map(|other| (host, *other));
        let back = others.iter().map(|other| (*other, host));
        let ways = match self.rng.below(3) {
            0 => out.collect(),
            1 => back.collect(),
            _ => out.chain(back).collect(),
        };
        let lag = if self.rng.chance(1, 3) { 0 } else { self.rng.between(50, 400) * MILLISECOND };
        // Often just long enough to be taken for dead, and sometimes until others have forgotten it.
        let spell = match self.rng.below(4) {
            0 => self.rng.between(3_000, 10_000) * MILLISECOND,
            1 => self.spell(),
            _ => self.rng.between(200, 700) * MILLISECOND,
        };
        Act::Isolate(host, lag, ways, spell)
    }

    fn overtake(&mut self) -> Act {
        let spell = self.rng.between(300, 900) * MILLISECOND;
        let after = self.rng.between(250, 700) * MILLISECOND;
        Act::Overtake(self.rng.next(), spell, after, self.rng.between(5, 300) * MILLISECOND)
    }

    fn crash_two(&mut self, downtime: u64) -> Act {
        let first = self.one_of(self.hosts.metadata());
        let second = self.one_of(self.hosts.metadata().filter(|host| *host != first));
        Act::CrashTwo([first, second], self.rng.between(1, 300) * MILLISECOND, downtime)
    }

    fn outage(&mut self) -> Act {
        let spell = match self.rng.chance(1, 2) {
            true => self.rng.between(1_000, 20_000) * MILLISECOND,
            false => self.rng.between(20, 180) * SECOND,
        };
        let host = if self.rng.chance(1, 4) { COORDINATOR_HOST } else { self.one_of(self.hosts.metadata()) };
        Act::Outage(host, spell)
    }

    fn freeze(&mut self) -> Act {
        let spell = match self.rng.below(5) {
            0 => self.rng.between(20, 90) * SECOND,
            1 => self.rng.between(5_000, 20_000) * MILLISECOND,
            _ => self.rng.between(100, 4_000) * MILLISECOND,
        };
        let disk_only = self.rng.chance(1, 2);
        Act::Freeze(self.one_of(self.hosts.metadata()), disk_only, spell)
    }

    fn dawdle(&mut self) -> Act {
        let takes = self.rng.between(100, 2_500) * MILLISECOND;
        Act::Dawdle(takes, self.rng.chance(1, 3), self.rng.between(3, 20) * SECOND)
    }

    fn fill(&mut self, spell: u64) -> Act {
        if self.rng.chance(1, 4) {
            return Act::UseUpInodes(self.one_of(self.hosts.data()), spell);
        }
        let disks: Vec<HostId> = self.hosts.data().collect();
        // Clients wait a little for room, and are told that there is none only then.
        let (count, spell) = match self.rng.chance(1, 2) {
            true => (1, spell),
            false => (disks.len(), self.rng.between(1_000, 9_000) * MILLISECOND),
        };
        let first = self.rng.below(disks.len() as u64) as usize;
        Act::Fill(disks.into_iter().cycle().skip(first).take(count).collect(), spell)
    }

    fn wrong_disk(&mut self, spell: u64) -> Act {
        let kind = *self.rng.pick(&WrongDisk::ALL).expect("some kinds");
        // Of a data server it is always an empty one.
        let host = match self.rng.chance(1, 4) {
            true => self.one_of(self.hosts.data()),
            false => self.one_of(self.hosts.metadata()),
        };
        Act::WrongDisk(host, kind, spell)
    }

    fn crowd(&mut self, spell: u64) -> Act {
        let crowded = *self.rng.pick(&[Crowded::Low, Crowded::Short, Crowded::Full]).expect("three kinds");
        // Now and then longer than a delegation lives that can send nothing.
        let spell = if self.rng.chance(1, 5) { self.rng.between(9_000, 14_000) * MILLISECOND } else { spell };
        Act::Crowd(self.one_of(self.hosts.metadata()), crowded, spell)
    }

    /// Mostly longer than any lease, sometimes longer than a session lives.
    fn cut_off(&mut self) -> Act {
        let outlives = self.rng.chance(1, 5);
        let (least, most) = if outlives { (33_000, 50_000) } else { (4_000, 15_000) };
        Act::CutOff(self.rng.next(), self.rng.between(least, most) * MILLISECOND)
    }

    fn cut_pair(&mut self, both_ways: bool, spell: u64) -> Act {
        let from = self.one_of(self.hosts.all());
        let to = self.one_of(self.hosts.all().filter(|host| *host != from));
        let mut ways = vec![(from, to)];
        if both_ways {
            ways.push((to, from));
        }
        Act::Cut(ways, spell)
    }

    fn cut_half(&mut self, spell: u64) -> Act {
        let sides: Vec<bool> = self.hosts.all().map(|_| self.rng.chance(1, 2)).collect();
        let side = |host: HostId| sides[usize::from(host.0)];
        let all: Vec<HostId> = self.hosts.all().collect();
        let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to)));
        Act::Cut(pairs.filter(|(from, to)| side(*from) != side(*to)).collect(), spell)
    }

    /// Mostly within what servers allow each other (250 ms), sometimes far beyond.
    fn turn_clock(&mut self) -> Act {
        let bound = if self.rng.chance(1, 3) { 20 * SECOND } else { 120 * MILLISECOND };
        let offset = self.rng.below(2 * bound) as i64 - bound as i64;
        let host = self.one_of(self.hosts.all());
        Act::Clock(host, offset)
    }

    /// One of some tablets.
    pub fn tablet(number: u64, tablets: &[Block]) -> Option<Block> {
        if tablets.is_empty() { None } else { tablets.get((number % tablets.len() as u64) as usize).copied() }
    }

    /// How the network is while clients work.
    pub fn weather(&mut self) -> Weather {
        if self.rng.chance(1, 6) { Weather::FAIR } else { Weather::USUAL }
    }
}
