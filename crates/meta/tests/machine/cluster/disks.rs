//! What data servers say, as far as metadata servers ask them.

use super::Cluster;
use bearing_proto::data::{DataBody, DataCall, DataError, FrameAt};
use bearing_types::{ChunkId, ServerId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The length at which they fence every chunk.
pub const LENGTH: u64 = 5_000;

/// Data servers that hold the same frames of every chunk.
#[derive(Default)]
pub struct Disks {
    pub frames: Vec<FrameAt>,
    /// Which server holds which chunk, and which of these are damaged.
    pub held: BTreeSet<(ServerId, ChunkId)>,
    pub damaged: BTreeSet<(ServerId, ChunkId)>,
    /// Chunks that were sealed anywhere.
    pub sealed: BTreeSet<ChunkId>,
    /// Which lack bytes at their ends.
    pub short: BTreeSet<(ServerId, ChunkId)>,
    /// Which do not know yet that theirs is sealed.
    pub unsealed: BTreeSet<(ServerId, ChunkId)>,
    /// Pings tell of what was damaged, not of what is.
    pub late_pings: Option<BTreeSet<(ServerId, ChunkId)>>,
    /// Which servers have no room, which answer nothing, and which have a failed disk.
    pub full: BTreeSet<ServerId>,
    pub silent: BTreeSet<ServerId>,
    /// Which take no further chunks, whatever they say of their room.
    pub refusing: BTreeSet<ServerId>,
    pub failed: BTreeSet<ServerId>,
    /// How often each was started again.
    pub starts: BTreeMap<ServerId, u64>,
    pub calls: Vec<(ServerId, DataCall)>,
    pub copied: BTreeMap<ServerId, u32>,
}

impl Disks {
    /// Data servers of a cluster.
    pub fn of(cluster: &mut Cluster) -> Rc<RefCell<Disks>> {
        let disks: Rc<RefCell<Disks>> = Rc::default();
        let shared = Rc::clone(&disks);
        cluster.data = Box::new(move |server, request| {
            let silent = shared.borrow().silent.contains(&server);
            (!silent).then(|| shared.borrow_mut().answer(server, request.chunk, &request.call))
        });
        disks
    }

    pub fn answer(
        &mut self,
        server: ServerId,
        chunk: ChunkId,
        call: &DataCall,
    ) -> Result<DataBody, DataError> {
        let here = (server, chunk);
        if self.failed.contains(&server) {
            return Err(DataError::Failed);
        }
        if matches!(call, DataCall::Ping) {
            let damaged = self
                .late_pings
                .as_ref()
                .unwrap_or(&self.damaged)
                .iter()
                .filter(|(of, _)| *of == server)
                .map(|(_, chunk)| *chunk);
            let life = self.starts.get(&server).copied().unwrap_or(0);
            return Ok(DataBody::Space {
                used: 0,
                free: if self.full.contains(&server) { LENGTH } else { 1 << 40 },
                filesystem: None,
                damaged: damaged.collect(),
                life,
                waiting: 0,
            });
        }
        self.calls.push((server, call.clone()));
        let makes = matches!(
            call,
            DataCall::Fence { .. }
                | DataCall::Remove { .. }
                | DataCall::Copy { .. }
                | DataCall::Gather { .. }
        );
        if makes && self.refusing.contains(&server) && !self.held.contains(&here) {
            return Err(DataError::Full);
        }
        match call {
            DataCall::Holds { chunks } => {
                let lacks = chunks.iter().map(|(chunk, _)| *chunk);
                let lacks = lacks.filter(|chunk| !self.held.contains(&(server, *chunk)));
                Ok(DataBody::Lacks { chunks: lacks.collect() })
            }
            // What was sealed is read anew: a fence makes nothing whole.
            DataCall::Fence { .. } if self.sealed.contains(&chunk) => {
                let length = if self.short.contains(&here) { LENGTH / 2 } else { LENGTH };
                let damaged = if self.damaged.contains(&here) { vec![(0, LENGTH)] } else { Vec::new() };
                match self.held.contains(&here) {
                    true => Ok(DataBody::Fenced { length, restarted: false, damaged }),
                    false => Err(DataError::NoChunk),
                }
            }
            DataCall::Fence { .. } => {
                self.held.insert(here);
                Ok(DataBody::Fenced { length: LENGTH, restarted: false, damaged: Vec::new() })
            }
            DataCall::Remove { .. } => {
                self.held.remove(&here);
                self.damaged.remove(&here);
                self.short.remove(&here);
                Ok(DataBody::Done)
            }
            DataCall::Copy { .. } => {
                // The first answers say that it is not done yet.
                let asked = self.copied.entry(server).or_default();
                *asked += 1;
                if *asked < 4 {
                    return Ok(DataBody::Busy { done: 100 });
                }
                self.held.insert(here);
                Ok(DataBody::Done)
            }
            _ if !self.held.contains(&here) => Err(DataError::NoChunk),
            DataCall::Seal { .. } if self.sealed.insert(chunk) => Ok(DataBody::Done),
            DataCall::Seal { .. } if self.short.contains(&here) => Err(DataError::Corrupt),
            DataCall::Seal { .. } if self.unsealed.remove(&here) => Ok(DataBody::Done),
            DataCall::Verify { .. } if self.short.contains(&here) || self.unsealed.contains(&here) => {
                Err(DataError::BeyondEnd)
            }
            DataCall::Frames { from, end, .. } => {
                let asked = self.frames.iter().filter(|frame| (*from..*end).contains(&frame.frame));
                Ok(DataBody::Frames { frames: asked.copied().collect(), next: None })
            }
            DataCall::Verify { .. } if self.damaged.contains(&here) => Err(DataError::Corrupt),
            _ => Ok(DataBody::Done),
        }
    }
}
