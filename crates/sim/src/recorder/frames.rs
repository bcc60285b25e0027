//! Which bytes the frames of chunks hold, who says that they are kept, and which of them a seal gave up.

use super::Recorder;
use crate::network::HostId;
use bearing_meta::ChunkRecord;
use bearing_proto::client::{Answer, Extent};
use bearing_proto::data::{DataBody, DataCall, DataReply, DataRequest, Pieces};
use bearing_proto::frame::{FrameHeader, frame_bytes};
use bearing_types::{ChunkId, Code, NodeId, SessionId};
use bearing_workload::{Event, Mutation, Piece, RequestId};
use std::rc::Rc;

/// A frame that all servers of its chunk have acknowledged.
pub(super) struct Frame {
    pub payload: Rc<Vec<u8>>,
    /// The bytes of the whole frame in its chunk.
    pub bytes: u64,
    /// Data servers were asked to keep it, or the end of its chunk, and said that they did.
    pub stable: bool,
    /// More than one of them did: it outlives one server.
    pub safe: bool,
    /// Its chunk was sealed without it, or cannot be: whoever may have it is lost.
    pub given_up: bool,
}

pub(super) enum DataAsked {
    Append(ChunkId, Rc<Vec<u8>>, u64),
    Sync(ChunkId, Vec<u64>),
}

impl Frame {
    fn acknowledged(payload: &Rc<Vec<u8>>, bytes: u64) -> Frame {
        Frame { payload: Rc::clone(payload), bytes, stable: false, safe: false, given_up: false }
    }
}

impl Recorder {
    /// The bytes that extents stand for.
    pub(super) fn pieces_of(&mut self, host: HostId, extents: &[Extent]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for extent in extents {
            let place = (extent.chunk.chunk, extent.frame);
            let frame = self.frames.get(&place).map(|frame| &frame.payload);
            let mut payloads = self.reborn.get(&place).into_iter().flatten().rev().chain(frame);
            let (from, length) = (extent.skip as usize, extent.length as usize);
            let bytes = payloads.find_map(|payload| payload.get(from..from + length));
            match bytes {
                Some(bytes) => pieces.push(Piece { offset: extent.file_offset, bytes: bytes.to_vec() }),
                None => self.complain(format!("{host:?} commits {extent:?}, which was never acknowledged")),
            }
        }
        pieces
    }

    pub(super) fn note_frames(&mut self, index: usize, extents: &[Extent]) {
        let frames = extents.iter().map(|extent| (extent.chunk.chunk, extent.frame)).collect();
        self.commit_frames.insert(index, frames);
    }

    /// A client asks a data server.
    pub fn data_sent(&mut self, session: SessionId, request: &DataRequest, bulk: &[u8]) {
        let asked = match &request.call {
            DataCall::Append { .. } => match FrameHeader::decode(bulk) {
                Ok(header) => {
                    let start = header.header_bytes as usize;
                    let payload = bulk[start..start + header.payload_bytes as usize].to_vec();
                    DataAsked::Append(request.chunk, Rc::new(payload), bulk.len() as u64)
                }
                Err(error) => return self.complain(format!("a client appends no frame: {error:?}")),
            },
            DataCall::AppendFrom { owner, source, .. } => {
                let place = (source.chunk, source.frame);
                let kept = self.frames.get(&place).map(|frame| &frame.payload);
                let from = source.skip as usize..(source.skip + source.length) as usize;
                let Some(bytes) = kept.and_then(|payload| payload.get(from)) else {
                    let what = format!("a client copies a part of {place:?}, which was never acknowledged");
                    return self.complain(what);
                };
                let payload = Rc::new(bytes.to_vec());
                DataAsked::Append(request.chunk, payload, frame_bytes(owner, source.length))
            }
            DataCall::Sync { .. } => {
                let range = (request.chunk, 0)..=(request.chunk, u64::MAX);
                let frames = self.frames.range(range).map(|((_, frame), _)| *frame).collect();
                DataAsked::Sync(request.chunk, frames)
            }
            _ => return,
        };
        self.asked.entry((session, request.id)).or_insert(asked);
    }

    /// A data server answers a client.
    pub fn data_replied(&mut self, session: SessionId, reply: &DataReply) {
        match (self.asked.get(&(session, reply.id)), &reply.result) {
            (Some(DataAsked::Append(chunk, payload, bytes)), &Ok(DataBody::Appended { frame })) => {
                let place = (*chunk, frame);
                match self.frames.get(&place) {
                    // The chunk was removed and brought back to life, of no use to anybody: no commit of this
                    // will be taken.
                    Some(kept) if kept.payload != *payload => {
                        self.reborn.entry(place).or_default().push(Rc::clone(payload));
                    }
                    Some(_) => {}
                    None => {
                        drop(self.frames.insert(place, Frame::acknowledged(payload, *bytes)));
                    }
                }
            }
            (Some(DataAsked::Sync(chunk, frames)), Ok(DataBody::Done)) => {
                // What is made stable of a chunk that was brought back to life is not what files refer to.
                let reborn = self.reborn.range((*chunk, 0)..=(*chunk, u64::MAX)).next().is_some();
                for frame in frames.iter().filter(|_| !reborn) {
                    if let Some(kept) = self.frames.get_mut(&(*chunk, *frame)) {
                        (kept.stable, kept.safe) = (true, true);
                    }
                }
            }
            _ => {}
        }
    }

    /// Frames of a chunk lie in another one too, which is stable before anybody refers to it.
    pub fn gathers(&mut self, chunk: ChunkId, from: ChunkId, pieces: &Pieces) {
        let old = self.frames.range((from, 0)..=(from, u64::MAX));
        let places: Vec<(u64, Frame)> = old
            .filter_map(|((_, frame), kept)| {
                let copy =
                    Frame { stable: true, safe: true, ..Frame::acknowledged(&kept.payload, kept.bytes) };
                pieces.new_place(*frame).map(|place| (place, copy))
            })
            .collect();
        for (place, frame) in places {
            self.frames.entry((chunk, place)).or_insert(frame);
        }
    }

    /// A chunk was sealed: servers keep what they hold stable before they tell how much that is. So many of
    /// them hold the frame that begins at a place.
    pub fn sealed(&mut self, chunk: ChunkId, record: &ChunkRecord, holders: impl Fn(u64) -> usize) {
        for ((_, start), frame) in self.frames.range_mut((chunk, 0)..=(chunk, u64::MAX)) {
            let kept =
                record.keeps(*start) && record.sealed.is_some_and(|length| start + frame.bytes <= length);
            frame.stable |= kept && holders(*start) > 0;
            frame.safe |= kept && holders(*start) > 1;
            frame.given_up |= !kept;
        }
    }

    /// A frame may be lost though it was synced on all servers.
    pub fn is_unsafe(&mut self, chunk: ChunkId, start: u64) {
        self.frames.entry((chunk, start)).and_modify(|frame| frame.safe = false);
    }

    pub(super) fn seal_replied(&mut self, id: RequestId, answer: &Answer) {
        if let (Some(chunk), Answer::Done { result: Err(Code::Io), .. }) = (self.seals.get(&id), answer) {
            let frames = self.frames.range_mut((*chunk, 0)..=(*chunk, u64::MAX));
            frames.for_each(|(_, frame)| frame.given_up = true);
        }
    }

    /// The frames of a chunk that were acknowledged: where each begins, and whether servers said that it is
    /// stable.
    pub fn frames_of(&self, chunk: ChunkId) -> Vec<(u64, bool)> {
        let frames = self.frames.range((chunk, 0)..=(chunk, u64::MAX));
        frames.map(|((_, start), frame)| (*start, frame.stable)).collect()
    }

    /// Whether other bytes were acknowledged at one of its places: nobody refers to it any more.
    pub fn was_reborn(&self, chunk: ChunkId) -> bool {
        self.reborn.range((chunk, 0)..=(chunk, u64::MAX)).next().is_some()
    }

    /// Whether there are some frames, and none of them may be lost with a server.
    pub fn are_safe(&self, frames: &[(ChunkId, u64)]) -> bool {
        !frames.is_empty() && frames.iter().all(|frame| self.frames.get(frame).is_some_and(|kept| kept.safe))
    }

    /// A client says that what it buffered of a file is lost, and that no decided step was lost with it.
    pub fn writes_lost(&mut self, host: HostId, node: NodeId, code: Code) {
        let of_file = |index: &usize| {
            let event = self.history.entries.get(*index).map(|entry| &entry.event);
            matches!(event, Some(Event::Mutation { mutation: Mutation::Commit { node: of, .. }, .. }) if *of == node)
        };
        let given_up = |frame: &(ChunkId, u64)| self.frames.get(frame).is_some_and(|frame| frame.given_up);
        let mut commits = self.commit_frames.iter().filter(|(index, _)| of_file(index));
        if code == Code::Io && !commits.any(|(_, frames)| frames.iter().any(given_up)) {
            self.complain(format!("{host:?} lost what was written to {node}, but all its frames are kept"));
        }
    }
}
