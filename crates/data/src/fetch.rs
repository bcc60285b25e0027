//! Appends of bytes that servers hold already, so that a copy of a file does not go through the client.
//!
//! The bytes are read as the client would read them, with the client's own right to: here, if they are here,
//! or else from the servers that the client names, one after the other. Blocks are checked against their
//! checksums where they are read, and what comes from another server against the answer's. Then they become a
//! frame of the owner that the client gives, which is taken as if the client had sent it. If no server gives
//! them in time, the client is told so, and sends them itself.

use crate::append::{self, Append};
use crate::state::{Asked, AskedFor, Asker, Chunks, Cx, Fetch, FetchWanted, Reader};
use crate::{check, read};
use bearing_proto::data::{DataBody, DataCall, DataError, DataRequest, Source};
use bearing_proto::frame::{self, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use bearing_proto::grant::FramePart;
use bearing_types::ChunkId;

/// Takes such an append, or says why not.
pub(crate) fn append_from(chunks: &Chunks, cx: &mut Cx<'_>, asker: Asker, id: ChunkId, wanted: FetchWanted) {
    if let Err(error) = checked(chunks, cx, (asker, id), &wanted) {
        return cx.refuse(asker, error);
    }
    let (config, fetches) = (&cx.core.config, &cx.core.fetches);
    if fetches.under_way.values().any(|fetch| fetch.asker == asker) {
        return;
    }
    let bytes = cx.core.held_bytes + fetches.bytes + u64::from(wanted.source.length);
    if fetches.under_way.len() >= config.fetches_max || bytes > config.held_bytes_max {
        return cx.drop_request();
    }
    let (myself, source) = (cx.core.server, &wanted.source);
    let here = chunks.contains_key(&source.chunk).then_some(myself);
    let others = source.servers.iter().copied().filter(|server| *server != myself);
    let left = here.into_iter().chain(others).take(config.fetch_sources_max).collect();
    let number = cx.core.fetches.begin(Fetch { asker, chunk: id, wanted, left, asked: None });
    ask_next(chunks, cx, number);
}

fn checked(
    chunks: &Chunks,
    cx: &Cx<'_>,
    (asker, id): (Asker, ChunkId),
    wanted: &FetchWanted,
) -> Result<(), DataError> {
    let epoch = check::append(cx, asker.from, &wanted.capability, (id, &wanted.servers))?;
    if cx.core.failed {
        return Err(DataError::Failed);
    }
    // Whoever sends the bytes asks for the right to read them again.
    let source = &wanted.source;
    check::read(cx, asker.from, &source.capability, (source.chunk, source.part()))
        .map_err(|_| DataError::Source)?;
    if !(1..=PAYLOAD_BYTES_MAX).contains(&source.length) || wanted.owner.name.len() > NAME_BYTES_MAX {
        return Err(DataError::Damaged);
    }
    chunks.get(&id).map_or(Ok(()), |chunk| chunk.takes_appends(epoch))
}

/// Reads the bytes from the next server; if none is left the client is told.
fn ask_next(chunks: &Chunks, cx: &mut Cx<'_>, number: u64) {
    let Some(fetch) = cx.core.fetches.under_way.get_mut(&number) else { return };
    fetch.asked = None;
    let Some(server) = fetch.left.pop_front() else {
        let asker = fetch.asker;
        cx.core.fetches.end(number);
        return cx.reply(asker, Err(DataError::Source));
    };
    let Source { chunk, ref capability, .. } = fetch.wanted.source;
    let (part, capability) = (fetch.wanted.source.part(), capability.clone());
    if server == cx.core.server {
        return read::read(chunks, cx, Reader::Fetch(number), chunk, (&capability, part, None));
    }
    let id = cx.ask_id(Asked { chunk, server, what: AskedFor::Fetch(number) });
    let until = cx.mono().after(cx.core.config.fetch_timeout);
    if let Some(fetch) = cx.core.fetches.under_way.get_mut(&number) {
        fetch.asked = Some((id, until));
    }
    let FramePart { frame, skip, length } = part;
    let call = DataCall::Read { capability, frame, skip, length, flow: None };
    cx.send(server, DataRequest { id, chunk, call }, crate::Payload::default());
}

/// Another server answered.
pub(crate) fn answered(
    cx: &mut Cx<'_>,
    (id, number): (u64, u64),
    result: Result<DataBody, DataError>,
    bytes: Vec<u8>,
) {
    cx.core.asked.remove(&id);
    let result = match result {
        Ok(DataBody::Bytes { crc }) if crc32c::crc32c(&bytes) == crc => Ok(bytes),
        Ok(_) => Err(DataError::Damaged),
        Err(error) => Err(error),
    };
    cx.core.fetches.came(number, result);
}

/// Servers that are silent for too long are passed over.
pub(crate) fn tick(chunks: &Chunks, cx: &mut Cx<'_>) {
    let now = cx.mono();
    let fetches = cx.core.fetches.under_way.iter();
    let late = fetches.filter_map(|(number, fetch)| {
        fetch.asked.filter(|(_, until)| *until <= now).map(|(id, _)| (*number, id))
    });
    for (number, id) in late.collect::<Vec<_>>() {
        cx.core.asked.remove(&id);
        ask_next(chunks, cx, number);
    }
}

/// Bytes came, or one server does not give them: the next one is asked. Gives the chunk that was appended to.
pub(crate) fn came(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    number: u64,
    result: Result<Vec<u8>, DataError>,
) -> Option<ChunkId> {
    let length = cx.core.fetches.under_way.get(&number)?.wanted.source.length;
    let Some(payload) = result.ok().filter(|bytes| bytes.len() == length as usize) else {
        ask_next(chunks, cx, number);
        return None;
    };
    let Fetch { asker, chunk, wanted, .. } = cx.core.fetches.end(number)?;
    let mut bytes = Vec::with_capacity(frame::frame_bytes(&wanted.owner, length) as usize);
    frame::encode(&wanted.owner, &payload, &mut bytes);
    cx.core.counters.drawn += 1;
    cx.core.counters.drawn_bytes += u64::from(length);
    cx.step("bytes of another frame are here, not appended");
    let crc = crc32c::crc32c(&bytes);
    let FetchWanted { capability, servers, known, .. } = &wanted;
    let given = Append { capability, servers, known: *known, crc, bytes };
    append::append(chunks, cx, asker, chunk, given);
    Some(chunk)
}
