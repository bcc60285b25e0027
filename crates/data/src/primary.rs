//! The primary's side: frames on their way to the log here and to the other servers, and what was heard of
//! them.
//!
//! A frame is acknowledged to its client when the log here has it and every other server said so. Servers
//! take frames in order, so that the answer to one frame speaks for all before it. Frames that a full disk
//! refused stay and are tried again, because another server may have them already and no other bytes may ever
//! come to lie there; their clients are told `Full` at once.

use crate::event::{Note, Payload};
use crate::state::{Chunk, Cx, Peer, Role, send_frame};
use bearing_proto::data::{DataBody, DataCall, DataError, DataRequest};
use bearing_types::ServerId;

impl Chunk {
    /// Gives new frames to the log here and to the others, in parallel.
    pub fn pump_leader(&mut self, cx: &mut Cx<'_>) {
        let Role::Leads(primary) = &self.role else { return };
        let first = primary.frames.partition_point(|frame| frame.offset < self.writer.issued);
        let fresh: Vec<Payload> = match self.writer.stalled {
            true => Vec::new(),
            false => primary.frames.iter().skip(first).map(|frame| frame.bytes.clone()).collect(),
        };
        let any = !fresh.is_empty();
        for bytes in fresh {
            self.write(cx, bytes);
        }
        if any {
            cx.step("append given to the log, not spread");
        }
        let (chunk, committed) = ((self.id, self.epoch), self.committed);
        let Role::Leads(primary) = &mut self.role else { return };
        if primary.peers.is_empty() {
            return;
        }
        let unsent = primary.frames.partition_point(|frame| !frame.copies.is_empty());
        for index in unsent..primary.frames.len() {
            primary.spread(cx, chunk, committed, index);
        }
    }

    pub fn primary_wrote(&mut self, cx: &mut Cx<'_>) {
        let full_delay = cx.core.config.full_delay;
        if let Role::Leads(primary) = &mut self.role
            && self.writer.stalled
            && self.writer.in_flight == 0
        {
            primary.retry = Some(cx.mono().after(full_delay));
        }
        cx.step("append is here");
        self.advance(cx);
    }

    /// The disk here is full.
    pub fn primary_full(&mut self, cx: &mut Cx<'_>) {
        if let Role::Leads(primary) = &mut self.role {
            primary.tell_full(cx);
        }
    }

    /// Acknowledges what all servers have.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        let Role::Leads(primary) = &mut self.role else { return };
        let all = primary.peers.iter().map(|peer| peer.has).fold(self.writer.written, u64::min);
        while primary.frames.front().is_some_and(|frame| frame.end() <= all) {
            let Some(frame) = primary.frames.pop_front() else { break };
            primary.bytes -= frame.bytes.len() as u64;
            self.committed = frame.end();
            cx.forget(frame.copies.iter());
            if let Some(client) = frame.client {
                cx.step("append is everywhere, not answered");
                cx.core.counters.appends += 1;
                cx.core.counters.append_bytes += frame.bytes.len() as u64;
                cx.reply(client, Ok(DataBody::Appended { frame: frame.offset }));
            }
        }
        if primary.frames.is_empty() {
            primary.full = false;
            primary.idle_since = cx.mono();
        }
    }

    /// Tells the others what all servers have, with a frame of no bytes. If it is lost, the next append or
    /// sync tells.
    fn announce(&mut self, cx: &mut Cx<'_>) {
        let (chunk, epoch, committed) = (self.id, self.epoch, self.committed);
        let Role::Leads(primary) = &mut self.role else { return };
        let due = primary.idle_since.after(cx.core.config.announce_delay) <= cx.mono();
        if due && primary.announces(committed) {
            primary.told = committed;
            for peer in &primary.peers {
                let call = DataCall::Replicate { epoch, offset: committed, committed, crc: 0 };
                let request = DataRequest { id: cx.next_id(), chunk, call };
                cx.send(peer.server, request, Payload::default());
            }
        }
    }

    /// Another server has a frame, and all before it.
    pub fn peer_has(&mut self, cx: &mut Cx<'_>, server: ServerId, end: u64) {
        let Role::Leads(primary) = &mut self.role else { return };
        if let Some(peer) = primary.peers.iter_mut().find(|peer| peer.server == server) {
            peer.has = peer.has.max(end);
            peer.heard = cx.mono();
        }
        self.advance(cx);
    }

    /// Another server refused a frame or a sync.
    pub fn peer_refused(&mut self, cx: &mut Cx<'_>, server: ServerId, error: DataError) {
        let Role::Leads(primary) = &mut self.role else { return };
        match error {
            // It goes again with the next resend.
            DataError::Damaged => {}
            DataError::Full => {
                if let Some(peer) = primary.peers.iter_mut().find(|peer| peer.server == server) {
                    peer.heard = cx.mono();
                }
                primary.tell_full(cx);
            }
            DataError::Sealed => self.give_up(cx, DataError::Sealed),
            DataError::ReplicaLost(_)
            | DataError::NoChunk
            | DataError::Corrupt
            | DataError::BeyondEnd
            | DataError::Capability
            | DataError::Failed
            | DataError::Clock
            | DataError::Source
            | DataError::Unsettled => self.peer_lost(cx, server),
        }
    }

    fn peer_lost(&mut self, cx: &mut Cx<'_>, server: ServerId) {
        cx.core.counters.replicas_lost += 1;
        cx.note(Note::ReplicaLost { chunk: self.id, server });
        self.give_up(cx, DataError::ReplicaLost(server));
    }

    pub fn tick_leader(&mut self, cx: &mut Cx<'_>) {
        let now = cx.mono();
        let Role::Leads(primary) = &mut self.role else { return };
        if primary.retry.is_some_and(|at| at <= now) {
            primary.retry = None;
            self.writer.stalled = false;
            self.pump(cx);
        }
        if let Some(server) = self.silent_peer(cx) {
            return self.peer_lost(cx, server);
        }
        self.resend_frames(cx);
        self.resend_round(cx);
        self.announce(cx);
    }

    /// A server that owes an answer for too long.
    fn silent_peer(&self, cx: &Cx<'_>) -> Option<ServerId> {
        let Role::Leads(primary) = &self.role else { return None };
        let (now, config) = (cx.mono(), &cx.core.config);
        let late = |peer: &&Peer| {
            let owes = primary.frames.iter().any(|frame| frame.end() > peer.has && !frame.copies.is_empty());
            owes && peer.heard.after(config.append_timeout) <= now
        };
        let round = primary.round.as_ref().and_then(|round| round.silent_peer(now, config));
        primary.peers.iter().find(late).map(|peer| peer.server).or(round)
    }

    fn resend_frames(&mut self, cx: &mut Cx<'_>) {
        let (chunk, committed, now) = ((self.id, self.epoch), self.committed, cx.mono());
        let Role::Leads(primary) = &mut self.role else { return };
        for (at, peer) in primary.peers.iter().enumerate() {
            let first = primary.frames.partition_point(|frame| frame.end() <= peer.has);
            let count = cx.core.config.resend_frames_max;
            for frame in primary.frames.iter_mut().skip(first).take(count) {
                let Some(copy) = frame.copies.get_mut(at) else { break };
                if copy.sent.after(cx.core.config.resend_interval) > now {
                    continue;
                }
                copy.sent = now;
                let id = copy.id;
                cx.core.counters.resends += 1;
                send_frame(cx, chunk, committed, frame, (peer.server, id));
            }
        }
    }
}
