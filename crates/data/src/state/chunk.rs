//! One chunk as this server sees it.
//!
//! ```text
//! phase    appends        readable up to   left by
//! Naming   wait           nothing          the first sync
//! Open     taken          committed        a lost replica, a failed disk, a fence
//! Broken   refused        committed        a fence
//! Fenced   refused        committed        a seal
//! Copying  refused        nothing          the last byte of the copy
//! Sealed   refused        its length       a removal; sealed at 0 it is a grave, or never held a byte
//! Removing refused        nothing          the engine's answer
//! ```
//!
//! A chunk that was here at the start and is neither fenced nor sealed is `Broken` from birth: unsynced bytes
//! may be gone, so it may not confirm anything any more; what it holds counts as committed, because a reader
//! checks frames anyway.

use super::backup::Backup;
use super::copier::Copier;
use super::core::Asker;
use super::cut::Cut;
use super::primary::Primary;
use crate::Config;
use bearing_proto::data::DataError;
use bearing_seams::ChunkEntry;
use bearing_types::{ChunkId, Epoch, Mono, ServerId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

pub(crate) type Chunks = BTreeMap<ChunkId, Chunk>;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Naming,
    Open,
    Broken(DataError),
    Fenced { settled: bool },
    Copying,
    Sealed(u64),
    Removing,
}

/// What this server does for the chunk's appends.
#[derive(Debug)]
pub(crate) enum Role {
    Nothing,
    Leads(Box<Primary>),
    Follows(Box<Backup>),
    Copies(Box<Copier>),
}

/// How far the log here has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writer {
    /// Bytes that the engine has taken.
    pub written: u64,
    /// The end of what was given to the engine.
    pub issued: u64,
    /// Commands on the way.
    pub in_flight: usize,
    /// The disk was full: what is on the way will fail as well, and is given again later.
    pub stalled: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub id: ChunkId,
    pub epoch: Epoch,
    pub phase: Phase,
    pub role: Role,
    pub writer: Writer,
    /// All below is acknowledged by all servers of the chunk, as far as this one knows.
    pub committed: u64,
    /// What was not synced may be gone.
    pub stained: bool,
    /// Which frames are whole is known: nothing happened since they were written, or the log was scanned in
    /// depth since.
    pub scanned: bool,
    /// When that was.
    pub deep_scanned: Option<Mono>,
    /// Where it found damage.
    pub damaged: Vec<Range<u64>>,
    pub cuts: VecDeque<Cut>,
    pub removers: Vec<(Asker, Epoch)>,
    /// When all of it was last found whole.
    pub checked: Option<Mono>,
    /// To be forgotten after this step.
    pub gone: bool,
    /// The timer and the held bytes that the server noted for it.
    pub wake_noted: Option<Mono>,
    pub held_noted: u64,
}

impl Chunk {
    /// A chunk that is being made, for a role.
    pub fn new(id: ChunkId, epoch: Epoch, role: Role) -> Chunk {
        Chunk {
            id,
            epoch,
            phase: Phase::Naming,
            role,
            writer: Writer::default(),
            committed: 0,
            stained: false,
            scanned: true,
            deep_scanned: None,
            damaged: Vec::new(),
            cuts: VecDeque::new(),
            removers: Vec::new(),
            checked: None,
            gone: false,
            wake_noted: None,
            held_noted: 0,
        }
    }

    /// A chunk that was here at the start.
    pub fn found(entry: &ChunkEntry, server: ServerId) -> Chunk {
        let mut chunk = Chunk::new(entry.chunk, entry.epoch, Role::Nothing);
        chunk.phase = match entry.sealed {
            _ if entry.epoch == ChunkEntry::HEADLESS => Phase::Broken(DataError::Corrupt),
            Some(length) => Phase::Sealed(length),
            None if entry.fenced => Phase::Fenced { settled: true },
            None => Phase::Broken(DataError::ReplicaLost(server)),
        };
        // A fence or seal made stable what there was, and keeps what it knew of that.
        let at_rest = entry.sealed.is_some() || entry.fenced;
        chunk.stained = !at_rest || entry.restarted;
        // What a deep scan found is not kept, and what was whole when it was fenced may have rotted since.
        chunk.scanned = false;
        chunk.writer.written = entry.length;
        chunk.writer.issued = entry.length;
        chunk.committed = entry.length;
        chunk
    }

    /// Nothing can be done with it but to remove it from the disk; then whoever asked comes again.
    pub fn is_headless(&self) -> bool {
        self.epoch == ChunkEntry::HEADLESS
    }

    /// Something of it is missing that its header tells of, or all of it.
    pub fn is_cut_short(&self) -> bool {
        self.is_headless() || matches!(self.phase, Phase::Sealed(length) if self.writer.written < length)
    }

    /// Why an append or sync of this epoch is not taken.
    pub fn takes_appends(&self, epoch: Epoch) -> Result<(), DataError> {
        match self.phase {
            Phase::Removing => Err(DataError::NoChunk),
            Phase::Fenced { .. } | Phase::Copying | Phase::Sealed(_) => Err(DataError::Sealed),
            Phase::Broken(why) => Err(why),
            // A newer epoch is of a life of the chunk that this server knows nothing of.
            Phase::Naming | Phase::Open if epoch != self.epoch => Err(DataError::Sealed),
            Phase::Naming | Phase::Open => Ok(()),
        }
    }

    /// Up to where frames may be read.
    pub fn readable(&self) -> u64 {
        match self.phase {
            Phase::Sealed(length) => length,
            Phase::Naming | Phase::Copying | Phase::Removing => 0,
            Phase::Open | Phase::Broken(_) | Phase::Fenced { .. } => self.committed.min(self.writer.written),
        }
    }

    /// Up to where other servers may fetch bytes: an end that is not sealed does not change any more either.
    pub fn fetchable(&self) -> u64 {
        match self.phase {
            Phase::Sealed(length) => length,
            Phase::Fenced { settled: true } => self.writer.written,
            _ => 0,
        }
    }

    /// What to say of frames behind that. What was lost here, or is not known here any more, may be
    /// elsewhere.
    pub fn beyond(&self) -> DataError {
        match self.phase {
            Phase::Copying | Phase::Removing | Phase::Sealed(0) => DataError::NoChunk,
            Phase::Sealed(_) => DataError::BeyondEnd,
            Phase::Fenced { .. } if self.writer.written == 0 => DataError::NoChunk,
            Phase::Broken(_) | Phase::Fenced { .. } if self.stained => DataError::NoChunk,
            Phase::Naming | Phase::Open | Phase::Broken(_) | Phase::Fenced { .. } => DataError::BeyondEnd,
        }
    }

    /// Bytes of frames held in memory.
    pub fn held(&self) -> u64 {
        match &self.role {
            Role::Nothing => 0,
            Role::Copies(_) => self.writer.issued.saturating_sub(self.writer.written),
            Role::Leads(primary) => primary.bytes,
            Role::Follows(backup) => {
                backup.waiting_bytes + self.writer.issued.saturating_sub(self.writer.written)
            }
        }
    }

    /// When it wants to be looked at again.
    pub fn wake(&self, config: &Config) -> Option<Mono> {
        match &self.role {
            Role::Nothing => None,
            Role::Copies(copier) => copier.wake(self.writer.in_flight, config),
            Role::Leads(primary) => primary.wake(self.committed, config),
            Role::Follows(backup) => backup.wake(config),
        }
    }
}
