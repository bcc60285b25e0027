//! Appends of clients, at the primary.

use crate::check;
use crate::state::{Asker, Chunk, Chunks, Cx, Primary, Role};
use bearing_proto::data::DataError;
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Epoch, ServerId};

/// An append as it came.
pub(crate) struct Append<'a> {
    pub capability: &'a Capability,
    pub servers: &'a [ServerId],
    /// Bytes that the client knows to be acknowledged.
    pub known: u64,
    pub crc: u32,
    pub bytes: Vec<u8>,
}

/// Takes an append, or says why not. The first one makes the chunk.
pub(crate) fn append(chunks: &mut Chunks, cx: &mut Cx<'_>, asker: Asker, id: ChunkId, append: Append<'_>) {
    let epoch = match checked(cx, asker, id, &append) {
        Ok(epoch) => epoch,
        Err(error) => return cx.refuse(asker, error),
    };
    if cx.core.held_bytes + append.bytes.len() as u64 > cx.core.config.held_bytes_max {
        return cx.drop_request();
    }
    // The chunk was here, so the disk is not the one that it was on: made anew, its first frame would lie
    // where readers look for another one.
    if append.known > 0 && !chunks.contains_key(&id) {
        return cx.refuse(asker, DataError::NoChunk);
    }
    let chunk = chunks.entry(id).or_insert_with(|| {
        let mut chunk = Chunk::new(id, epoch, Role::Leads(Box::new(Primary::new(append.servers))));
        chunk.create(cx);
        chunk
    });
    chunk.append(cx, asker, epoch, append);
}

fn checked(cx: &Cx<'_>, asker: Asker, id: ChunkId, append: &Append<'_>) -> Result<Epoch, DataError> {
    let epoch = check::append(cx, asker.from, append.capability, (id, append.servers))?;
    if cx.core.failed {
        return Err(DataError::Failed);
    }
    check::frame(&append.bytes, append.crc, true)?;
    Ok(epoch)
}

impl Chunk {
    fn append(&mut self, cx: &mut Cx<'_>, asker: Asker, epoch: Epoch, append: Append<'_>) {
        match self.place(cx, asker, epoch, &append) {
            Ok(Place::Next) => {}
            Ok(Place::Known) => return,
            Ok(Place::NoRoom) => return cx.drop_request(),
            Err(DataError::Full) => {
                cx.core.counters.full += 1;
                return cx.reply(asker, Err(DataError::Full));
            }
            Err(error) => return cx.refuse(asker, error),
        }
        if let Role::Leads(primary) = &mut self.role {
            primary.push(append.bytes, append.crc, asker);
        }
        self.pump(cx);
    }

    /// Whether the frame can go to the end of the chunk.
    fn place(
        &self,
        cx: &Cx<'_>,
        asker: Asker,
        epoch: Epoch,
        append: &Append<'_>,
    ) -> Result<Place, DataError> {
        self.takes_appends(epoch)?;
        // Another primary orders this chunk, or the servers are not those of the first append: the asker is
        // mistaken.
        let Role::Leads(primary) = &self.role else { return Err(DataError::Capability) };
        if primary.servers != append.servers {
            return Err(DataError::Capability);
        }
        if primary.full {
            return Err(DataError::Full);
        }
        if primary.frames.iter().any(|frame| frame.client == Some(asker)) {
            return Ok(Place::Known);
        }
        let (config, bytes) = (&cx.core.config, append.bytes.len() as u64);
        let end = primary.end + bytes;
        if end > config.chunk_bytes_max {
            return Err(DataError::Sealed);
        }
        let room = primary.frames.len() < config.pipeline_frames_max
            && primary.bytes + bytes <= config.pipeline_bytes_max;
        Ok(if room { Place::Next } else { Place::NoRoom })
    }
}

enum Place {
    Next,
    /// This very request waits already.
    Known,
    NoRoom,
}
