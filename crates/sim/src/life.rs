//! The life of data: a data server that never comes back, bits that flip, and what has to be so in the end.
//!
//! A loss or a flip is drawn only when all of the data that counts is whole somewhere else: then no promise
//! allows that anything is lost.

use crate::clock::SECOND;
use crate::cluster::{METADATA, Role};
use crate::complaint::Promise;
use crate::network::HostId;
use crate::recovery::checkpoint_chunks;
use crate::sim::Sim;
use bearing_meta::{ChunkRecord, Key, Record};
use bearing_types::{ChunkId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// How long it may take until every chunk is as it should be, when nothing is wrong any more.
const MENDED_WITHIN: u64 = 240 * SECOND;

/// Of each chunk the frames that files refer to.
type UsedFrames = BTreeMap<ChunkId, BTreeSet<u64>>;

impl Sim {
    /// All chunk records that are stable, and the frames of all chunks that stable extents refer to.
    pub(crate) fn chunk_records(&self) -> (BTreeMap<ChunkId, ChunkRecord>, UsedFrames) {
        let (mut records, mut used) = (BTreeMap::new(), UsedFrames::new());
        for tablet in self.ledger.tablets() {
            for (key, value) in self.ledger.model.stored(tablet) {
                match (Key::decode(key), Record::decode(value)) {
                    (Some(Key::Chunk(chunk)), Ok(Record::Chunk(record))) => {
                        records.insert(chunk, *record);
                    }
                    (Some(Key::Extent(..)), Ok(Record::Extent(extent))) => {
                        used.entry(extent.chunk.chunk).or_default().insert(extent.frame);
                    }
                    _ => {}
                }
            }
        }
        (records, used)
    }

    /// Who holds which chunks of checkpoints.
    fn checkpoint_chunks(&self) -> BTreeSet<(ServerId, ChunkId)> {
        let tablets = self.ledger.tablets();
        let values =
            tablets.filter_map(|tablet| self.ledger.model.stored(tablet).get(&Key::Checkpoint.encode()));
        let records =
            values.filter_map(|value| Record::decode(value).ok()).filter_map(|record| match record {
                Record::Checkpoint(record) => Some(record),
                _ => None,
            });
        records.flat_map(|record| checkpoint_chunks(&record)).collect()
    }

    /// The frames whose chunks have no record, or are being removed.
    pub(crate) fn gone_chunks(&self, frames: &[(ChunkId, u64)]) -> Vec<(ChunkId, u64)> {
        let (records, _) = self.chunk_records();
        let gone = |chunk: &ChunkId| records.get(chunk).is_none_or(|record| record.deleting);
        frames.iter().filter(|(chunk, _)| gone(chunk)).copied().collect()
    }

    pub(crate) fn data_host(&self, server: ServerId) -> Option<HostId> {
        self.hosts.data().find(|host| self.hosts.role(*host) == Role::Data(server))
    }

    /// Whether what a data server holds counts: it will be back before it counts as lost.
    fn counts(&self, host: HostId) -> bool {
        self.lost != Some(host) && self.away != Some(host)
    }

    /// Whether a server holds all of a chunk, undamaged, and will again. Its bytes are looked at: an older
    /// disk brings damage back.
    fn holds(&mut self, host: HostId, chunk: ChunkId, record: &ChunkRecord) -> bool {
        if !self.counts(host) || self.rotten.contains(&(host, chunk)) {
            return false;
        }
        let data = &mut self.data[usize::from(host.0 - 1 - METADATA)];
        let held = data.held(chunk);
        let Some(length) = record.sealed else { return held.is_some_and(|(held, _)| held > 0) };
        let whole = data.whole_frames(chunk);
        let frames = self.recorder.frames_of(chunk);
        held.is_some_and(|(held, sealed)| sealed && held >= length)
            && frames.iter().all(|(start, _)| !record.keeps(*start) || whole.contains_key(start))
    }

    /// Whether all of a chunk that is stable is whole at other servers of it than this one.
    pub(crate) fn is_whole_without(&mut self, host: HostId, chunk: ChunkId, record: &ChunkRecord) -> bool {
        let others: Vec<HostId> = record
            .servers
            .iter()
            .filter_map(|server| self.data_host(*server))
            .filter(|other| *other != host && self.counts(*other))
            .collect();
        if record.deleting || record.sealed == Some(0) || record.is_in_the_making() {
            return true;
        }
        if record.sealed.is_some() {
            return others.iter().any(|other| self.holds(*other, chunk, record));
        }
        let frames = self.recorder.frames_of(chunk);
        let whole: BTreeSet<u64> = others
            .iter()
            .flat_map(|other| self.data[usize::from(other.0 - 1 - METADATA)].whole_frames(chunk).into_keys())
            .collect();
        // It may be what a seal that is not recorded yet goes by, and then a sync.
        let data = &mut self.data[usize::from(host.0 - 1 - METADATA)];
        let told = if data.has_told(chunk) { data.whole_frames(chunk) } else { BTreeMap::new() };
        let owed = |start: &u64, stable: &bool| *stable || told.contains_key(start);
        frames.iter().all(|(start, stable)| !owed(start, stable) || whole.contains(start))
    }

    /// Whether nothing is lost when a data server is, or its disk.
    pub(crate) fn can_do_without(&mut self, host: HostId) -> bool {
        let (records, _) = self.chunk_records();
        records.iter().all(|(chunk, record)| self.is_whole_without(host, *chunk, record))
    }

    /// A data server dies and never comes back, if nothing is lost with it.
    pub(crate) fn lose(&mut self, host: HostId) {
        let gone = self.servers.absent.contains(&host);
        if gone || self.lost.is_some() || self.away.is_some() || !self.can_do_without(host) {
            return;
        }
        self.world.counts.add("fault: a data server is lost for good");
        self.lost = Some(host);
        self.crash(host);
    }

    /// A bit of a sealed chunk flips on a disk, if the chunk is whole elsewhere.
    pub(crate) fn rot(&mut self, host: HostId, number: u64) {
        let (records, _) = self.chunk_records();
        let Role::Data(server) = self.hosts.role(host) else { return };
        let mut mine = Vec::new();
        for (chunk, record) in &records {
            let counts = record.sealed.is_some_and(|length| length > 0) && !record.is_in_the_making();
            let holds = record.servers.contains(&server) && counts;
            if holds && self.holds(host, *chunk, record) && self.is_whole_without(host, *chunk, record) {
                mine.push((*chunk, record.sealed.unwrap_or(0)));
            }
        }
        let Some((chunk, length)) = mine.get(number as usize % mine.len().max(1)).copied() else { return };
        self.world.counts.add("fault: a bit of a sealed chunk flips");
        self.rotten.insert((host, chunk));
        self.data[usize::from(host.0 - 1 - METADATA)].flip(chunk, (number >> 16) % length);
    }

    /// In the end the space of what nobody refers to is free, and everything else has all its copies, which
    /// are the same.
    pub(crate) fn check_chunks(&mut self) {
        let end = self.world.now().0 + MENDED_WITHIN;
        let mut wrong = self.wrong_chunks();
        while !wrong.is_empty() && self.world.now().0 < end && self.ledger.complaints.is_empty() {
            self.run_for(SECOND);
            wrong = self.wrong_chunks();
        }
        for (promise, what) in wrong.into_iter().take(5) {
            self.ledger.blame(&self.world, promise, what);
        }
        self.count_strays();
    }

    fn wrong_chunks(&mut self) -> Vec<(Promise, String)> {
        let (records, used) = self.chunk_records();
        let checkpoints = self.checkpoint_chunks();
        let mut wrong = Vec::new();
        for (chunk, record) in &records {
            let removed = record.deleting && record.former.is_empty();
            let Some(frames) = used.get(chunk) else {
                if !removed && !self.lacks_a_header(*chunk, record) {
                    wrong.push((
                        Promise::SpaceReturns,
                        format!("{chunk} is referred to by nobody: {record:?}"),
                    ));
                }
                continue;
            };
            let whole = self.whole_at_any(*chunk, record);
            let worth = frames.iter().any(|frame| record.keeps(*frame) && whole.contains(frame));
            if let Some(length) = record.sealed.filter(|length| *length > 0 && !record.deleting && worth) {
                wrong.extend(self.wrong_copies(*chunk, record, length));
            }
        }
        let leaving = self.leaving_data().into_iter();
        wrong.extend(leaving.map(|host| (Promise::Even, format!("{host:?} leaves, and chunks count on it"))));
        let there = |host: &HostId| Some(*host) != self.lost && !self.servers.absent.contains(host);
        let hosts: Vec<HostId> = self.hosts.data().filter(there).collect();
        for host in hosts {
            let Role::Data(server) = self.hosts.role(host) else { continue };
            for (chunk, sealed) in self.data[usize::from(host.0 - 1 - METADATA)].chunks() {
                let known = checkpoints.contains(&(server, chunk));
                let known = known
                    || records.get(&chunk).is_some_and(|record| {
                        record.servers.contains(&server)
                            || record.pending_replica == Some(server)
                            || record.former.contains(&server)
                    });
                // An older disk brings back what was removed since.
                if sealed && !known && !self.older_disks.contains(&host) {
                    wrong.push((
                        Promise::SpaceReturns,
                        format!("{server} holds {chunk}, which no record knows"),
                    ));
                }
            }
        }
        wrong
    }

    /// Whether nobody can say whose a frame is, because its header is damaged wherever it is: somebody may
    /// refer to it, so the chunk is kept. A frame need not be acknowledged: a seal goes by what is there.
    fn lacks_a_header(&mut self, chunk: ChunkId, record: &ChunkRecord) -> bool {
        let hosts: Vec<HostId> = record.servers.iter().filter_map(|server| self.data_host(*server)).collect();
        let data = |host: &HostId| usize::from(host.0 - 1 - METADATA);
        let headers: BTreeMap<u64, u64> =
            hosts.iter().flat_map(|host| self.data[data(host)].headers(chunk)).collect();
        let held = hosts.iter().filter_map(|host| self.data[data(host)].held(chunk));
        let end = held.map(|(length, _)| length).max().unwrap_or(0);
        let mut at = 0;
        while at < end && record.sealed.is_none_or(|sealed| at < sealed) {
            let hole = record.holes.iter().find(|(start, end)| (*start..*end).contains(&at));
            match (hole, headers.get(&at)) {
                (Some((_, end)), _) | (None, Some(end)) => at = *end,
                (None, None) => return true,
            }
        }
        let frames = self.recorder.frames_of(chunk);
        frames.iter().any(|(start, _)| record.keeps(*start) && !headers.contains_key(start))
    }

    /// Where frames begin that are whole at any server of a chunk.
    fn whole_at_any(&mut self, chunk: ChunkId, record: &ChunkRecord) -> BTreeSet<u64> {
        let hosts = record.servers.iter().filter_map(|server| self.data_host(*server));
        let hosts: Vec<HostId> = hosts.filter(|host| self.counts(*host)).collect();
        let data = |host: &HostId| usize::from(host.0 - 1 - METADATA);
        hosts.iter().flat_map(|host| self.data[data(host)].whole_frames(chunk).into_keys()).collect()
    }

    fn wrong_copies(
        &mut self,
        chunk: ChunkId,
        record: &ChunkRecord,
        length: u64,
    ) -> Option<(Promise, String)> {
        let mut copies: Vec<Vec<u8>> = Vec::new();
        for server in &record.servers {
            let Some(host) = self.data_host(*server).filter(|host| Some(*host) != self.lost) else {
                continue;
            };
            let Some(bytes) = self.data[usize::from(host.0 - 1 - METADATA)].sealed_bytes(chunk, length)
            else {
                return Some((Promise::Copies, format!("{server} does not hold {chunk}: {record:?}")));
            };
            copies.push(bytes);
        }
        let other = |pair: &[Vec<u8>]| pair[0].iter().zip(&pair[1]).position(|(one, other)| one != other);
        let differs = copies.windows(2).find_map(other);
        if copies.len() < usize::from(crate::cluster::COPIES) || differs.is_some() {
            let what = match differs {
                None => "has too few copies".to_owned(),
                Some(byte) => format!("has copies that differ, first at byte {byte}"),
            };
            return Some((Promise::Copies, format!("{chunk} {what}: {record:?}")));
        }
        None
    }

    /// Chunks that a late append brought back to life: nobody refers to them, and nobody removes them.
    fn count_strays(&mut self) {
        let (records, _) = self.chunk_records();
        for host in &mut self.data {
            let strays = host.chunks().into_iter().filter(|(chunk, _)| !records.contains_key(chunk)).count();
            self.world.counts.add_many("data: stray chunks", strays as u64);
        }
    }
}
