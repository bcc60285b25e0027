//! What a primary knows of its chunk: frames on their way to the log here and to the other servers, and what
//! was heard of these.

use super::core::{Asked, AskedFor, Asker, Cx, Sent};
use crate::Config;
use crate::event::Payload;
use bearing_proto::data::{DataCall, DataError, DataRequest};
use bearing_types::{ChunkId, Epoch, Mono, ServerId};
use std::collections::VecDeque;

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Frame {
    pub offset: u64,
    pub bytes: Payload,
    pub crc: u32,
    /// Who waits for it; nobody once it was told that a disk is full.
    pub client: Option<Asker>,
    /// What was sent, one for each other server.
    pub copies: Vec<Sent>,
}

impl Frame {
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Another server of the chunk.
#[derive(Debug)]
pub(crate) struct Peer {
    pub server: ServerId,
    /// It has all below.
    pub has: u64,
    /// When it last answered, or when something was sent after it owed no answer.
    pub heard: Mono,
}

/// What a chunk's primary keeps.
#[derive(Debug)]
pub(crate) struct Primary {
    pub servers: Vec<ServerId>,
    pub peers: Vec<Peer>,
    pub frames: VecDeque<Frame>,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Where the next frame goes.
    pub end: u64,
    /// A disk is full: no more appends until all frames are through.
    pub full: bool,
    /// When to try again what the full disk here refused.
    pub retry: Option<Mono>,
    /// What the others were told to be on all servers, and since when nothing is on its way.
    pub told: u64,
    pub idle_since: Mono,
    /// All below is stable everywhere.
    pub synced: u64,
    pub round: Option<Round>,
    pub syncs: Vec<Asker>,
}

impl Primary {
    pub fn new(servers: &[ServerId]) -> Primary {
        let peers = servers[1..].iter().map(|server| Peer { server: *server, has: 0, heard: Mono::ZERO });
        Primary {
            servers: servers.to_vec(),
            peers: peers.collect(),
            frames: VecDeque::new(),
            bytes: 0,
            end: 0,
            full: false,
            retry: None,
            told: 0,
            idle_since: Mono::ZERO,
            synced: 0,
            round: None,
            syncs: Vec::new(),
        }
    }

    pub fn push(&mut self, bytes: Vec<u8>, crc: u32, client: Asker) {
        let frame =
            Frame { offset: self.end, bytes: bytes.into(), crc, client: Some(client), copies: Vec::new() };
        self.bytes += frame.bytes.len() as u64;
        self.end = frame.end();
        self.frames.push_back(frame);
    }

    /// Sends the frame at an index to all others. A peer that owed nothing is listened for from now on.
    pub fn spread(&mut self, cx: &mut Cx<'_>, chunk: (ChunkId, Epoch), committed: u64, index: usize) {
        self.told = committed;
        let frame = &mut self.frames[index];
        for peer in &mut self.peers {
            if peer.has == frame.offset {
                peer.heard = cx.mono();
            }
            let what = AskedFor::Frame { end: frame.end() };
            let id = cx.ask_id(Asked { chunk: chunk.0, server: peer.server, what });
            frame.copies.push(Sent { id, sent: cx.mono() });
            send_frame(cx, chunk, committed, frame, (peer.server, id));
        }
    }

    /// Tells all who wait that a disk is full; the frames stay.
    pub fn tell_full(&mut self, cx: &mut Cx<'_>) {
        self.full = true;
        for client in self.frames.iter_mut().filter_map(|frame| frame.client.take()) {
            cx.core.counters.full += 1;
            cx.reply(client, Err(DataError::Full));
        }
    }

    pub fn close(mut self, cx: &mut Cx<'_>, why: DataError) {
        for frame in &self.frames {
            cx.forget(frame.copies.iter());
            if let Some(client) = frame.client {
                cx.reply(client, Err(why));
            }
        }
        if let Some(round) = self.round.take() {
            round.close(cx, why);
        }
        self.syncs.iter().for_each(|asker| cx.reply(*asker, Err(why)));
    }

    /// When the first of the waits ends. Only the first frames are looked at: later ones were sent later.
    pub fn wake(&self, committed: u64, config: &Config) -> Option<Mono> {
        let frames = self.peers.iter().enumerate().filter_map(|(at, peer)| {
            let unheard = self.unheard(peer, config).filter_map(|frame| frame.copies.get(at));
            let again = unheard.map(|copy| copy.sent.after(config.resend_interval)).min()?;
            Some(again.min(peer.heard.after(config.append_timeout)))
        });
        let round = self.round.as_ref().and_then(|round| round.wake(config));
        let announce = self.announces(committed).then(|| self.idle_since.after(config.announce_delay));
        frames.chain(round).chain(announce).chain(self.retry).min()
    }

    /// Whether no frame is on its way that would tell the others what all servers have.
    pub fn announces(&self, committed: u64) -> bool {
        self.frames.is_empty() && self.told < committed && !self.peers.is_empty()
    }

    pub fn unheard<'a>(&'a self, peer: &Peer, config: &Config) -> impl Iterator<Item = &'a Frame> {
        let first = self.frames.partition_point(|frame| frame.end() <= peer.has);
        self.frames.iter().skip(first).take(config.resend_frames_max)
    }
}

pub(crate) fn send_frame(
    cx: &mut Cx<'_>,
    (chunk, epoch): (ChunkId, Epoch),
    committed: u64,
    frame: &Frame,
    (server, id): (ServerId, u64),
) {
    let call = DataCall::Replicate { epoch, offset: frame.offset, committed, crc: frame.crc };
    cx.send(server, DataRequest { id, chunk, call }, frame.bytes.clone());
}

/// One sync of all servers.
#[derive(Debug)]
pub(crate) struct Round {
    /// What is stable once it is through.
    pub covers: u64,
    pub started: Mono,
    /// Whether the log here is still at it.
    pub here: bool,
    /// The others that have not answered.
    pub peers: Vec<(ServerId, Sent)>,
    pub askers: Vec<Asker>,
}

impl Round {
    pub fn close(self, cx: &mut Cx<'_>, why: DataError) {
        cx.forget(self.peers.iter().map(|(_, copy)| copy));
        self.askers.iter().for_each(|asker| cx.reply(*asker, Err(why)));
    }

    pub fn wake(&self, config: &Config) -> Option<Mono> {
        let again = self.peers.iter().map(|(_, copy)| copy.sent.after(config.resend_interval)).min()?;
        Some(again.min(self.started.after(config.sync_timeout)))
    }

    pub fn silent_peer(&self, now: Mono, config: &Config) -> Option<ServerId> {
        let late = self.started.after(config.sync_timeout) <= now;
        self.peers.first().filter(|_| late).map(|(server, _)| *server)
    }
}
