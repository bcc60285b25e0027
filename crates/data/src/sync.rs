//! Syncs: a client's makes what was acknowledged stable on all servers of the chunk.
//!
//! Group commit: one round runs at a time; requests that come meanwhile share the next one.

use crate::check;
use crate::event::LogCommand;
use crate::state::{Asked, AskedFor, Asker, Chunk, Chunks, Cx, Job, Peer, Role, Round, Sent};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::grant::Capability;
use bearing_seams::EngineResult;
use bearing_types::{ChunkId, Epoch, ServerId};

/// A client's sync, at the primary.
pub(crate) fn sync(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    (capability, servers): (&Capability, &[ServerId]),
) {
    let checked = check::append(cx, asker.from, capability, (id, servers));
    let checked = if cx.core.failed { checked.and(Err(DataError::Failed)) } else { checked };
    match (checked, chunks.get_mut(&id)) {
        (Err(error), _) => cx.refuse(asker, error),
        (Ok(_), None) => cx.refuse(asker, DataError::NoChunk),
        (Ok(epoch), Some(chunk)) => chunk.sync(cx, asker, epoch, servers),
    }
}

/// The primary's sync, at another server.
pub(crate) fn sync_replica(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    (epoch, committed): (Epoch, u64),
) {
    let Sender::Server(primary) = asker.from else { return cx.refuse(asker, DataError::Capability) };
    if cx.core.failed {
        return cx.refuse(asker, DataError::Failed);
    }
    let Some(chunk) = chunks.get_mut(&id) else { return cx.refuse(asker, DataError::NoChunk) };
    match chunk.follows(primary, epoch, committed) {
        Ok(()) => chunk.sync_follower(cx, asker, committed),
        Err(error) => cx.refuse(asker, error),
    }
}

impl Chunk {
    fn sync(&mut self, cx: &mut Cx<'_>, asker: Asker, epoch: Epoch, servers: &[ServerId]) {
        if let Err(error) = self.takes_appends(epoch) {
            return cx.refuse(asker, error);
        }
        let Role::Leads(primary) = &mut self.role else { return cx.refuse(asker, DataError::Capability) };
        if primary.servers != servers {
            return cx.refuse(asker, DataError::Capability);
        }
        if self.committed <= primary.synced {
            cx.core.counters.syncs += 1;
            return cx.reply(asker, Ok(DataBody::Done));
        }
        let running = primary.round.as_ref().is_some_and(|round| round.askers.contains(&asker));
        if running || primary.syncs.contains(&asker) {
            return;
        }
        if primary.syncs.len() >= cx.core.config.syncs_waiting_max {
            return cx.drop_request();
        }
        primary.syncs.push(asker);
        self.start_round(cx);
    }

    fn start_round(&mut self, cx: &mut Cx<'_>) {
        let (id, epoch, committed, now) = (self.id, self.epoch, self.committed, cx.mono());
        let Role::Leads(primary) = &mut self.role else { return };
        if primary.round.is_some() || primary.syncs.is_empty() {
            return;
        }
        primary.told = committed;
        cx.core.counters.log_syncs += 1;
        cx.log(Job::Sync { chunk: id, covers: committed }, LogCommand::Sync { chunk: id });
        let ask = |peer: &Peer| {
            let ask = cx.ask_id(Asked { chunk: id, server: peer.server, what: AskedFor::Sync });
            cx.ask_sync(peer.server, ask, id, DataCall::SyncReplica { epoch, committed });
            (peer.server, Sent { id: ask, sent: now })
        };
        let peers = primary.peers.iter().map(ask).collect();
        let askers = std::mem::take(&mut primary.syncs);
        primary.round = Some(Round { covers: committed, started: now, here: true, peers, askers });
        cx.step("sync begins");
    }

    /// The log here was synced, or could not be.
    pub fn synced(&mut self, cx: &mut Cx<'_>, covers: u64, result: EngineResult<()>) {
        if let Err(error) = result {
            self.sync_failed(cx, &error);
            return self.next_cut(cx);
        }
        match &mut self.role {
            Role::Nothing | Role::Copies(_) => {}
            Role::Leads(primary) => {
                if let Some(round) = &mut primary.round {
                    round.here = false;
                    cx.step("synced here");
                }
                self.finish_round(cx);
            }
            Role::Follows(backup) => {
                backup.synced = backup.synced.max(covers);
                cx.step("copy synced, not answered");
                for asker in std::mem::take(&mut backup.syncing) {
                    cx.reply(asker, Ok(DataBody::Done));
                }
                self.start_follower_sync(cx);
            }
        }
    }

    /// Another server has synced.
    pub fn peer_synced(&mut self, cx: &mut Cx<'_>, server: ServerId) {
        if let Role::Leads(primary) = &mut self.role
            && let Some(round) = &mut primary.round
        {
            round.peers.retain(|(peer, _)| *peer != server);
        }
        self.finish_round(cx);
    }

    fn finish_round(&mut self, cx: &mut Cx<'_>) {
        let Role::Leads(primary) = &mut self.role else { return };
        let Some(round) = primary.round.take_if(|round| !round.here && round.peers.is_empty()) else {
            return;
        };
        primary.synced = round.covers;
        cx.step("synced everywhere, not answered");
        for asker in round.askers {
            cx.core.counters.syncs += 1;
            cx.reply(asker, Ok(DataBody::Done));
        }
        self.start_round(cx);
    }

    pub fn resend_round(&mut self, cx: &mut Cx<'_>) {
        let (id, epoch, now) = (self.id, self.epoch, cx.mono());
        let Role::Leads(primary) = &mut self.role else { return };
        let Some(round) = &mut primary.round else { return };
        let committed = round.covers;
        for (server, copy) in &mut round.peers {
            if copy.sent.after(cx.core.config.resend_interval) <= now {
                copy.sent = now;
                cx.core.counters.resends += 1;
                cx.ask_sync(*server, copy.id, id, DataCall::SyncReplica { epoch, committed });
            }
        }
    }

    fn sync_follower(&mut self, cx: &mut Cx<'_>, asker: Asker, committed: u64) {
        let Role::Follows(backup) = &mut self.role else { return };
        if committed <= backup.synced {
            return cx.reply(asker, Ok(DataBody::Done));
        }
        if backup.syncing.contains(&asker) || backup.syncs.contains(&asker) {
            return;
        }
        if backup.syncs.len() >= cx.core.config.syncs_waiting_max {
            return cx.drop_request();
        }
        backup.syncs.push(asker);
        self.start_follower_sync(cx);
    }

    fn start_follower_sync(&mut self, cx: &mut Cx<'_>) {
        let (id, covers) = (self.id, self.writer.written);
        let Role::Follows(backup) = &mut self.role else { return };
        if !backup.syncing.is_empty() || backup.syncs.is_empty() {
            return;
        }
        backup.syncing = std::mem::take(&mut backup.syncs);
        cx.core.counters.log_syncs += 1;
        cx.log(Job::Sync { chunk: id, covers }, LogCommand::Sync { chunk: id });
    }
}
