//! Disks of servers that are replaced, those of data servers that rot where nobody looks yet, servers that
//! are away for long, and what a seal has to keep of all that.
//!
//! What is drawn leaves every frame that is stable whole at one server at least that is not lost, as far as
//! it was there before.

use crate::clock::SECOND;
use crate::cluster::{DATA, METADATA, Role};
use crate::complaint::Promise;
use crate::disks::WrongDisk;
use crate::meta_host::MetaHost;
use crate::nemesis::Act;
use crate::network::HostId;
use crate::sim::{Sim, index_of};
use crate::world::Happening;
use bearing_meta::ChunkRecord;
use bearing_types::{ChunkId, ServerId};
use std::collections::BTreeMap;

/// A server that was out of reach for less than that counts as lost for nobody.
const OUT_OF_REACH: u64 = 4 * SECOND;
/// Who was out of reach may count as lost so long after.
const FORGIVEN: u64 = 10 * SECOND;

/// Who was back for less than that was perhaps asked nothing meanwhile: it was out of reach all the time.
const HARDLY_BACK: u64 = 2 * SECOND;

/// Since when hosts serve or do not, and when they were cut off last.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    stopped: BTreeMap<HostId, u64>,
    /// From when to when it was down last.
    down: BTreeMap<HostId, (u64, u64)>,
    mended: BTreeMap<HostId, u64>,
    /// The holes of chunks whose seals were heard of.
    judged: BTreeMap<ChunkId, Vec<(u64, u64)>>,
    /// Until when who has a chunk whole that is damaged elsewhere is away.
    missed: BTreeMap<ChunkId, u64>,
}

impl Reach {
    pub fn starts(&mut self, host: HostId, now: u64) {
        if let Some(from) = self.stopped.remove(&host) {
            self.down.insert(host, (from, now));
        }
    }

    pub fn stops(&mut self, host: HostId, now: u64) {
        let last = self.down.get(&host).filter(|(_, to)| now - to < HARDLY_BACK);
        self.stopped.entry(host).or_insert(last.map_or(now, |(from, _)| *from));
    }

    pub fn mended(&mut self, hosts: [HostId; 2], now: u64) {
        self.mended.extend(hosts.map(|host| (host, now)));
    }

    /// Whether one of these frames may have been nowhere to be read since then.
    pub fn is_missed(&self, frames: &[(ChunkId, u64)], since: u64) -> bool {
        frames.iter().any(|(chunk, _)| self.missed.get(chunk).is_some_and(|until| since <= *until))
    }

    /// Whether nobody could take a host for lost when something was decided that is stable now.
    fn counts(&self, host: HostId, decided: u64, now: u64) -> bool {
        let stopped = self.stopped.get(&host).is_some_and(|from| now - from >= OUT_OF_REACH);
        let down = self.down.get(&host);
        let was_down = down.is_some_and(|(from, to)| to - from >= OUT_OF_REACH && decided < to + FORGIVEN);
        let was_cut = self.mended.get(&host).is_some_and(|at| decided < at + FORGIVEN);
        !stopped && !was_down && !was_cut
    }
}

impl Sim {
    fn disk(&mut self, host: HostId) -> &mut crate::data_host::DataHost {
        &mut self.data[usize::from(host.0 - 1 - METADATA)]
    }

    /// A data server comes back with an empty disk, if nothing is lost with it.
    pub(crate) fn empty_disk(&mut self, host: HostId, downtime: u64) {
        if !self.may_lose_disk(host) {
            return;
        }
        self.world.counts.add("fault: a data disk is emptied");
        self.crash(host);
        self.disk(host).empty();
        self.register_anew(host);
        self.rotten.retain(|(of, _)| *of != host);
        self.world.after(downtime, Happening::Act(Act::Start(host)));
    }

    /// A data server comes back with its disk as it was the last time that this was drawn, if nothing is lost
    /// with it; or it is remembered for the next time.
    pub(crate) fn older_disk(&mut self, host: HostId, downtime: u64) {
        if !self.may_lose_disk(host) || !self.disk(host).remembers() || self.world.rng.chance(1, 2) {
            return self.disk(host).remember();
        }
        self.world.counts.add("fault: a data disk is replaced by an older one");
        self.crash(host);
        self.disk(host).take_back();
        self.older_disks.insert(host);
        self.world.after(downtime, Happening::Act(Act::Start(host)));
    }

    /// A data server that was lost for good gets another disk. Until then a chunk is not sealed of which
    /// nobody else has anything whole: what it held is not given up without a word.
    pub(crate) fn replace_lost(&mut self) {
        let Some(host) = self.lost.take() else { return };
        self.world.counts.add("a lost data server's disk is replaced");
        self.disk(host).empty();
        self.register_anew(host);
        self.rotten.retain(|(of, _)| *of != host);
        self.world.after(0, Happening::Act(Act::Start(host)));
    }

    /// A metadata server dies, and somebody starts it on another disk.
    pub(crate) fn give_wrong_disk(&mut self, host: HostId, kind: WrongDisk, spell: u64) {
        // Two such mistakes at a time are not made.
        self.put_newest_registers_back();
        self.crash(host);
        let given = match self.hosts.role(host) {
            Role::Metadata(server) => {
                let tablets = self.coordinator.tablets_of(server);
                self.metadata[index_of(host, 1)].give_wrong_disk(&mut self.world, kind, &tablets)
            }
            // See `may_lose_disk`.
            Role::Data(server) if !self.coordinator.has_disk(server) => false,
            _ => self.data[index_of(host, 1 + METADATA)].empty_disk(&mut self.world),
        };
        self.start_unless_out(host);
        if given {
            self.world.after(spell, Happening::Act(Act::RightDisk(host)));
        }
    }

    pub(crate) fn put_disk_back(&mut self, host: HostId) {
        if matches!(self.hosts.role(host), Role::Metadata(_)) {
            self.metadata[index_of(host, 1)].keep_refilled_disk(&mut self.world);
            self.replace_metadata_disk(host);
            if self.metadata[index_of(host, 1)].has_wrong_disk() {
                self.crash(host);
                self.metadata[index_of(host, 1)].put_disk_back();
            }
        } else {
            let index = index_of(host, 1 + METADATA);
            if self.data[index].has_wrong_disk() {
                self.crash(host);
                self.data[index].put_disk_back();
            }
        }
        self.start_unless_out(host);
    }

    /// Somebody says that the disk of a metadata server is lost for good, as `bearing disk replace` does. Not
    /// while a register names the server: others would count on what it had.
    pub(crate) fn replace_metadata_disk(&mut self, host: HostId) {
        let Role::Metadata(server) = self.hosts.role(host) else { return };
        let disks = &mut self.metadata[index_of(host, 1)];
        if !disks.may_be_replaced() || self.coordinator.names(server) || self.world.rng.chance(1, 2) {
            return;
        }
        disks.replace_disk(&mut self.world);
        self.forget_disk(server);
        self.ledger.disk_replaced(host);
        self.crash(host);
    }

    /// A record of a metadata server's store cannot be read for a while, if others have it.
    pub(crate) fn spoil(&mut self, host: HostId, number: u64, spell: u64) {
        let Role::Metadata(server) = self.hosts.role(host) else { return };
        let copies = usize::from(self.world.copies);
        let mut tablets = self.coordinator.tablets_of(server);
        tablets.retain(|tablet| copies > 1 && tablet.members.len() == copies);
        let tablet = tablets.get(number as usize % tablets.len().max(1));
        if self.metadata.iter().any(MetaHost::is_spoilt) || self.metadata.iter().any(MetaHost::has_wrong_disk)
        {
            return;
        }
        if tablet.is_some_and(|tablet| self.metadata[index_of(host, 1)].spoil(tablet.serial, number >> 8)) {
            self.world.counts.add("fault: a record of a store cannot be read");
            self.world.after(spell, Happening::Act(Act::Unspoil(host)));
        }
    }

    /// All records can be read again. A server that started without some of them is started again by hand.
    pub(crate) fn unspoil(&mut self, host: HostId) {
        self.metadata[index_of(host, 1)].unspoil();
        if self.world.is_up(host) && self.metadata[index_of(host, 1)].is_to_start_again() {
            self.crash(host);
            self.start_unless_out(host);
        }
    }

    fn may_lose_disk(&mut self, host: HostId) -> bool {
        let wrong = self.data.iter().any(crate::data_host::DataHost::has_wrong_disk);
        // One that has not registered its disk yet may be given another one before its question is answered.
        let registered = match self.hosts.role(host) {
            Role::Data(server) => self.coordinator.has_disk(server),
            _ => true,
        };
        let gone = self.servers.absent.contains(&host) || !registered;
        !gone && self.lost.is_none() && self.away.is_none() && !wrong && self.can_do_without(host)
    }

    /// A person who changes registers sees first that they are not the newest.
    fn forget_disk(&mut self, server: ServerId) {
        self.put_newest_registers_back();
        self.coordinator.forget_disk(server);
    }

    /// Somebody says that the disk of a data server is lost for good, as `bearing disk replace` does.
    fn register_anew(&mut self, host: HostId) {
        if let Role::Data(server) = self.hosts.role(host) {
            self.forget_disk(server);
        }
    }

    /// Bits flip in chunks that are not sealed, in one replica of each that the others can do without, and
    /// all servers lose power. Sometimes a server that has all of them whole comes back last, when it counts
    /// as lost.
    pub(crate) fn rot_open(&mut self, number: u64, downtime: u64) {
        let absent = self.hosts.data().nth(number as usize % usize::from(DATA));
        let absent = absent.filter(|host| self.world.rng.chance(1, 2) && self.may_lose_disk(*host));
        let mut missed = Vec::new();
        let (records, _) = self.chunk_records();
        for (chunk, record) in records.iter().filter(|(_, record)| record.sealed.is_none()) {
            let mut hosts: Vec<HostId> =
                record.servers.iter().filter_map(|server| self.data_host(*server)).collect();
            let is_missed = absent.is_some_and(|absent| hosts.contains(&absent));
            hosts.retain(|host| Some(*host) != absent);
            let Some(host) = hosts.get(number as usize % hosts.len().max(1)).copied() else { continue };
            let mut held = self.disk(host).held(*chunk).map_or(0, |(held, _)| held);
            if is_missed {
                // A last frame that does not verify may be one that was never whole: it is no damage.
                held = self.disk(host).whole_frames(*chunk).into_keys().last().unwrap_or(0);
            }
            if held == 0 || self.lost == Some(host) || !self.is_whole_without(host, *chunk, record) {
                continue;
            }
            self.world.counts.add("fault: a bit of an unsealed chunk flips");
            self.rotten.insert((host, *chunk));
            self.disk(host).flip(*chunk, (number >> 16) % held);
            missed.extend(is_missed.then_some(*chunk));
        }
        self.act(Act::PowerCut(downtime));
        if let Some(absent) = absent.filter(|_| !missed.is_empty()) {
            self.world.counts.add("fault: who has damaged bytes whole is away for long");
            self.away = Some(absent);
            let spell = downtime + self.world.rng.between(8, 14) * SECOND;
            let until = self.world.now().0 + spell;
            self.reach.missed.extend(missed.into_iter().map(|chunk| (chunk, until)));
            self.outage(absent, spell);
        }
    }

    /// A data server is away for longer than it takes until it counts as lost, if nothing is lost with it.
    pub(crate) fn go_away(&mut self, host: HostId, spell: u64) {
        if !self.may_lose_disk(host) {
            return;
        }
        self.world.counts.add("fault: a data server is away for long");
        self.crash(host);
        self.away = Some(host);
        self.world.after(spell, Happening::Act(Act::Start(host)));
    }

    /// A chunk was sealed: no frame was given up that was acknowledged and that one of its servers holds
    /// whole, unless that may count as lost and lies behind the end of what the others have.
    pub(crate) fn hear_of_seal(&mut self, chunk: ChunkId, record: &ChunkRecord, decided: u64) {
        let now = self.world.now().0;
        // Who counted as lost then may be back when more is heard of the chunk.
        let judged = self.reach.judged.insert(chunk, record.holes.clone());
        let hosts: Vec<HostId> = record.servers.iter().filter_map(|server| self.data_host(*server)).collect();
        let mut held: BTreeMap<u64, usize> = BTreeMap::new();
        let (lost, mut last_frames) = (self.lost, Vec::new());
        for host in hosts.iter().copied().filter(|host| lost != Some(*host)) {
            let rots = |other: &HostId| *other != host && self.rotten.contains(&(*other, chunk));
            let rots_elsewhere = hosts.iter().any(rots);
            let whole = self.disk(host).whole_frames(chunk);
            let disk_failed = self.disk(host).disk_failed.is_some_and(|at| now - at >= OUT_OF_REACH);
            let reached = self.reach.counts(host, decided, now) && self.away != Some(host) && !disk_failed;
            for (start, end) in whole {
                *held.entry(start).or_default() += 1;
                let kept = record.keeps(start) && record.sealed.is_some_and(|length| end <= length);
                let acknowledged = || self.recorder.frames_of(chunk).iter().any(|(frame, _)| *frame == start);
                // Who may have what is damaged elsewhere is waited for, however long it is away.
                let reached = reached || record.sealed.is_some_and(|length| end <= length);
                let fell = judged.as_ref().is_none_or(|holes| new_hole(record, holes, start));
                if !kept && fell && !reached && rots_elsewhere && acknowledged() {
                    last_frames.push(start);
                }
                if !kept && fell && reached && acknowledged() && !self.recorder.was_reborn(chunk) {
                    let what = format!(
                        "{chunk} was sealed without its frame at {start}, which {host:?} holds: {record:?}"
                    );
                    self.ledger.blame(&self.world, Promise::SealKeeps, what);
                    return;
                }
            }
        }
        // One that rots counts as never whole where who has it counts as lost.
        last_frames.into_iter().for_each(|start| self.recorder.is_unsafe(chunk, start));
        self.recorder.sealed(chunk, record, |start| held.get(&start).copied().unwrap_or(0));
    }
}

/// Whether something lies in a hole that was noted since.
fn new_hole(record: &ChunkRecord, before: &[(u64, u64)], start: u64) -> bool {
    let within = |holes: &[(u64, u64)]| holes.iter().any(|(from, to)| (*from..*to).contains(&start));
    within(&record.holes) && !within(before)
}
