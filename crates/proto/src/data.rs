//! Between clients or metadata servers and data servers. Bulk bytes travel as the packet's attachment,
//! covered by `crc`.

use crate::frame::FrameOwner;
use crate::grant::{Capability, FramePart};
use bearing_types::{ChunkId, Epoch, NodeId, Position, ServerId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A request to a data server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRequest {
    /// Chosen by the asker; comes back with the reply.
    pub id: u64,
    /// The chunk.
    pub chunk: ChunkId,
    /// What is asked.
    pub call: DataCall,
}

/// What can be asked of a data server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataCall {
    /// To the primary, from a client: append the attached frame on all servers of the chunk. Answered when
    /// all have it (not yet synced). The first append creates the chunk. A repeat appends again: only what a
    /// node refers to counts.
    Append {
        /// The right to append.
        capability: Capability,
        /// All servers of the chunk, the primary first.
        servers: Vec<ServerId>,
        /// Bytes of the chunk that the client knows to be acknowledged. A primary that holds less has lost
        /// them, and takes no append.
        known: u64,
        /// CRC32C of the attachment.
        crc: u32,
    },
    /// To a replica, from the primary: the frame at this offset.
    Replicate {
        /// The chunk's epoch.
        epoch: Epoch,
        /// Where the frame starts.
        offset: u64,
        /// All below is acknowledged by all.
        committed: u64,
        /// CRC32C of the attachment.
        crc: u32,
    },
    /// To the primary, from a client: make all that was acknowledged stable on all servers of the chunk.
    Sync {
        /// The right to append.
        capability: Capability,
        /// All servers of the chunk, the primary first.
        servers: Vec<ServerId>,
    },
    /// To a replica, from the primary: make what you have stable.
    SyncReplica {
        /// The chunk's epoch.
        epoch: Epoch,
        /// All below is acknowledged by all.
        committed: u64,
    },
    /// From a client: a part of a frame's payload.
    Read {
        /// The right to read.
        capability: Capability,
        /// Where the frame starts.
        frame: u64,
        /// Payload bytes to skip.
        skip: u32,
        /// Payload bytes to give.
        length: u32,
        /// The flow that it is of, if the flow server has planned it: its bytes are counted for that.
        flow: Option<Flow>,
    },
    /// From a metadata server: refuse appends under older epochs from now on, and say which of the chunk's
    /// frames are here. First half of sealing. Of a chunk that is sealed already it is said which are whole
    /// now.
    Fence {
        /// The new epoch.
        epoch: Epoch,
    },
    /// From a metadata server: the chunk ends here. Second half of sealing. A replica that is shorter, or
    /// damaged below the length, keeps what it has and answers [`DataError::Corrupt`].
    Seal {
        /// The epoch of the fence.
        epoch: Epoch,
        /// The length.
        length: u64,
    },
    /// From a metadata server: forget the chunk, unless it was made under a newer epoch since.
    Remove {
        /// The newest epoch that is meant.
        epoch: Epoch,
    },
    /// From a metadata server: space, liveness and known damage. The chunk is ignored.
    Ping,
    /// From a metadata server: whose frames a sealed chunk holds.
    Frames {
        /// A frame starts here.
        from: u64,
        /// The chunk ends here. A replica that was sealed earlier refuses.
        end: u64,
        /// At most so many.
        count_max: u32,
    },
    /// From a metadata server: become a replica of a sealed chunk. Answered with [`DataBody::Busy`] until it
    /// is done; asked again till then.
    Copy {
        /// The epoch to keep.
        epoch: Epoch,
        /// Servers that have it, the best first.
        sources: Vec<ServerId>,
        /// The length at which it was sealed.
        length: u64,
    },
    /// From a data server that copies: bytes of a sealed chunk's log.
    Fetch {
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u32,
    },
    /// From a metadata server: read a sealed chunk and check all of it. Answered as [`DataCall::Copy`] is.
    Verify {
        /// The length at which it was sealed.
        length: u64,
    },
    /// From a metadata server: make this chunk of some frames of another, sealed one. Answered as
    /// [`DataCall::Copy`] is.
    Gather {
        /// The epoch to keep.
        epoch: Epoch,
        /// The other chunk.
        from: ChunkId,
        /// Servers that have that, the best first; this one may be among them.
        sources: Vec<ServerId>,
        /// Which frames.
        pieces: Pieces,
        /// Bytes of these: the length at which this chunk is sealed.
        length: u64,
    },
    /// To the primary, from a client: append a frame of bytes that servers hold already, as
    /// [`DataCall::Append`] would if the client sent them. A primary that cannot get them answers with
    /// [`DataError::Source`].
    AppendFrom {
        /// The right to append.
        capability: Capability,
        /// All servers of the chunk, the primary first.
        servers: Vec<ServerId>,
        /// As with [`DataCall::Append`].
        known: u64,
        /// Whose bytes they are then.
        owner: FrameOwner,
        /// Where they are now.
        source: Box<Source>,
    },
    /// From a metadata server: which of these chunks, sealed at these lengths, are not here? Asked after the
    /// server was started. The request's chunk is ignored.
    Holds {
        /// At most [`CHUNKS_ASKED_MAX`].
        chunks: Vec<(ChunkId, u64)>,
    },
    /// From the flow server: what has been sent of flows, and what is waiting? The chunk is ignored.
    Counters,
}

/// The number of a flow: no flow server gives one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowNumber(pub u64);

/// A flow that the flow server has planned, with all that it has to know of it when it was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Its number.
    pub number: FlowNumber,
    /// How many bytes it was planned to carry.
    pub bytes: u64,
    /// The reader's host, as the flow server sees it.
    pub reader: IpAddr,
}

/// Bytes that a network interface has carried since some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Out of the host.
    pub sent: u64,
    /// Into it.
    pub received: u64,
}

/// Flows told in one [`DataBody::Counters`]: of more, those that went on last.
pub const FLOWS_COUNTED_MAX: usize = 4096;

/// Chunks in one [`DataCall::Holds`].
pub const CHUNKS_ASKED_MAX: usize = 1024;

/// Bytes of a frame of any chunk, with the right to read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The chunk.
    pub chunk: ChunkId,
    /// Where the frame starts.
    pub frame: u64,
    /// Payload bytes to skip.
    pub skip: u32,
    /// Payload bytes to take; at least one.
    pub length: u32,
    /// The right to read them.
    pub capability: Capability,
    /// Servers that have them, the best first.
    pub servers: Vec<ServerId>,
}

impl Source {
    /// Which bytes of the frame.
    pub fn part(&self) -> FramePart {
        FramePart { frame: self.frame, skip: self.skip, length: self.length }
    }
}

/// A reply of a data server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataReply {
    /// The request's id.
    pub id: u64,
    /// The result.
    pub result: Result<DataBody, DataError>,
}

/// A frame of a chunk, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameAt {
    /// Where it starts.
    pub frame: u64,
    /// Bytes of its payload.
    pub payload: u32,
    /// The node whose bytes it holds.
    pub node: NodeId,
    /// That node's home.
    pub home: Position,
}

/// What frames begin and end at a multiple of.
const FRAME_UNIT: u64 = 8;

/// Whole frames of a chunk, in their order: what another chunk is made of when this one is compacted. Each
/// piece is what is left out before it, and what is taken, counted in 8 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces(Vec<(u32, u32)>);

impl Pieces {
    /// Those that lie in these ranges of the chunk: in order, none empty, none within another.
    pub fn of(ranges: &[std::ops::Range<u64>]) -> Pieces {
        let mut end = 0;
        let pieces = ranges.iter().map(|range| {
            let piece = ((range.start - end) / FRAME_UNIT, (range.end - range.start) / FRAME_UNIT);
            end = range.end;
            (piece.0 as u32, piece.1 as u32)
        });
        Pieces(pieces.collect())
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, taken)| u64::from(*taken) * FRAME_UNIT).sum()
    }

    /// Where each piece begins in the old chunk and in the new one, and its length.
    pub fn places(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let (mut old, mut new) = (0, 0);
        self.0.iter().map(move |(skipped, taken)| {
            let length = u64::from(*taken) * FRAME_UNIT;
            let start = old + u64::from(*skipped) * FRAME_UNIT;
            let place = (start, new, length);
            (old, new) = (start + length, new + length);
            place
        })
    }

    /// Where something of the old chunk lies in the new one; `None` if it was left out.
    pub fn new_place(&self, old: u64) -> Option<u64> {
        let mut places = self.places();
        places.find_map(|(from, to, length)| (from..from + length).contains(&old).then(|| to + (old - from)))
    }

    /// Where something of the new chunk lies in the old one, and up to where in the new one the piece goes.
    pub fn old_place(&self, new: u64) -> Option<(u64, u64)> {
        let mut places = self.places();
        places.find_map(|(from, to, length)| {
            (to..to + length).contains(&new).then(|| (from + (new - to), to + length))
        })
    }
}

/// Damaged ranges told of one replica.
pub const DAMAGED_RANGES_MAX: usize = 1024;

/// The content of a reply that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataBody {
    /// The frame starts here.
    Appended {
        /// Offset of the frame in the chunk's log.
        frame: u64,
    },
    /// Done.
    Done,
    /// The bytes are attached.
    Bytes {
        /// CRC32C of the attachment.
        crc: u32,
    },
    /// The chunk is fenced, and some of it is here. A server that holds nothing of it keeps the fence and
    /// answers [`DataError::NoChunk`]: how long the chunk is it cannot say.
    Fenced {
        /// Where the furthest frame ends that fits its checksums.
        length: u64,
        /// The server restarted since it took the chunk's first append, so what was not synced may be gone.
        restarted: bool,
        /// Ranges below that in which no frame fits its checksums, in order. Beyond [`DAMAGED_RANGES_MAX`]
        /// the last one covers all that follow.
        damaged: Vec<(u64, u64)>,
    },
    /// Space of the server.
    Space {
        /// Bytes used.
        used: u64,
        /// Bytes free.
        free: u64,
        /// The filesystem that these lie on, told from all others of the cluster, if that is known. Servers
        /// that name the same one share its space.
        filesystem: Option<u64>,
        /// Sealed chunks of which this server knows that its replica is damaged or cut short; the first of
        /// them, if there are many.
        damaged: Vec<ChunkId>,
        /// Drawn at each start of the server: with another number its disk may be another one.
        life: u64,
        /// Bytes of appends and reads that wait here, for its disk or for other servers.
        waiting: u64,
    },
    /// Frames in the order in which they lie.
    Frames {
        /// The frames.
        frames: Vec<FrameAt>,
        /// Where the next one starts; `None`: these are all to the end.
        next: Option<u64>,
    },
    /// It is being done.
    Busy {
        /// Bytes that are done.
        done: u64,
    },
    /// Of the chunks that were asked for these are not here, or not all of them.
    Lacks {
        /// In the order in which they were asked for.
        chunks: Vec<ChunkId>,
    },
    /// What a data server counts for the flow server.
    Counters {
        /// Bytes sent of each flow.
        flows: Vec<(Flow, u64)>,
        /// Bytes that readers asked for and that are not sent yet.
        queued: u64,
        /// Bytes that the disk gave since the start.
        read: u64,
        /// Microseconds since the start in which it was asked for any.
        busy_us: u64,
        /// What the host's network interface has carried, whoever sent it, if that is known.
        carried: Option<Carried>,
    },
}

/// Why a data server refused, divided by what the asker can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataError {
    /// The chunk is sealed or under a newer epoch: open a new one.
    Sealed,
    /// Another server of the chunk does not answer: have the chunk sealed, open a new one.
    ReplicaLost(ServerId),
    /// No such chunk here: ask another replica.
    NoChunk,
    /// Stored bytes are damaged here: ask another replica.
    Corrupt,
    /// The range lies beyond what all servers have.
    BeyondEnd,
    /// The capability is wrong or has expired: ask for a new one.
    Capability,
    /// The attached bytes do not fit their checksum: send again.
    Damaged,
    /// The disk is full.
    Full,
    /// The disk failed: this server takes no more appends.
    Failed,
    /// The server's clock is too far from those of others: it takes no new chunks.
    Clock,
    /// The bytes that were to be appended could not be had from the servers that were named: send them.
    Source,
    /// It is not known yet how much of the chunk is here: ask again.
    Unsettled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_lies_without_gaps_in_the_new_chunk_and_what_is_left_out_nowhere() {
        let pieces = Pieces::of(&[16..40, 40..48, 800..1600]);
        assert_eq!(pieces.bytes(), 24 + 8 + 800);
        for (old, new) in [(16, 0), (32, 16), (40, 24), (800, 32), (1592, 824)] {
            assert_eq!(pieces.new_place(old), Some(new));
            assert_eq!(pieces.old_place(new).map(|(old, _)| old), Some(old));
        }
        for old in [0, 8, 48, 792, 1600] {
            assert_eq!(pieces.new_place(old), None);
        }
        assert_eq!(pieces.old_place(8), Some((24, 24)));
        assert_eq!(pieces.old_place(832), None);
    }
}
