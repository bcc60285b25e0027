//! What time brings: repeats of what may be lost, ends of leases and sessions, ids drawn ahead, data servers
//! watched.

use crate::decide::JobWork;
use crate::decide::rules::namespace::REAPER;
use crate::engine::jobs::Party;
use crate::engine::machine::MetaServer;
use crate::engine::startup::upkeep_interval;
use crate::event::Command;
use crate::record::{Key, Record};
use crate::view::{DataSlot, PartVote};
use crate::words::Asking;
use bearing_proto::data::{DataCall, DataReply, DataRequest};
use bearing_proto::peer::{PeerBody, Question, Told};
use bearing_types::{ChunkId, LogIndex, Mono, NodeId, NodeIdRange, Now, Position, ServerId, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that comes to listen so many beacons after it did last has left what was sent meanwhile unread.
const DEAF_BEACONS: u32 = 2;

/// So long after a change of owners they may not serve yet.
const SETTLING: Duration = Duration::from_secs(1);

/// Answers to pings are told apart by an id that no request has.
const PING: u64 = u64::MAX;

impl MetaServer {
    pub(crate) fn upkeep(&mut self, now: Now, out: &mut Vec<Command>) {
        self.next_upkeep = now.mono.after(upkeep_interval(&self.config));
        self.poll_map(now, out);
        self.take_over(now, out);
        self.swap_out(now, out);
        self.restore_copies(now, out);
        self.tend_ring(now, out);
        self.copies.values_mut().for_each(|copy| copy.log.apply(out));
        self.draw_ids(now);
        self.waiting_for_ids.retain(|id| self.jobs.contains(*id));
        self.expire_data_requests(now);
        let mut starts: Vec<Position> = self.tablets.keys().copied().collect();
        // What tablets share goes to each of them first in its turn.
        let turn = now.mono.0 / upkeep_interval(&self.config).as_nanos() as u64;
        let turn = turn as usize % starts.len().max(1);
        starts.rotate_left(turn);
        for start in &starts {
            if let Some(tablet) = self.tablets.get_mut(start) {
                tablet.leases.expire(now.mono);
                tablet.log.apply(out);
                let open_state_queries = tablet.opens.due(now.mono, &self.config);
                self.send_open_state_queries(*start, open_state_queries, out);
            }
            self.shrink_horizon(now, *start, out);
            self.watch_sessions(now, *start);
        }
        if now.mono >= self.next_resend {
            self.next_resend = now.mono.after(self.config.resend_interval);
            self.ping_data_servers(now, out);
            self.expire_jobs(now, out);
            self.resend_jobs(now, out);
            self.send_questions_again(now, out);
            let ask_back = self.delegations_are_asked_back(now);
            for start in starts {
                if ask_back {
                    self.ask_back_delegations(now, start, out);
                }
                self.resend_tablet(now, start, out);
                self.resume_reaping(now, start);
                self.collect(now, start);
                self.watch_locks(now, start, out);
                self.maintain_chunks(now, start);
                self.tend_checkpoint(now, start);
                self.watch_quotas(now, start);
            }
        }
    }

    // --- repeats ---

    /// The longest pause before something is sent again. What was sent to a tablet's old owner is lost, so
    /// pauses do not grow for a while after owners changed.
    pub(crate) fn resend_pause_max(&self, now: Now) -> Duration {
        let changed = self.owners_changed.is_some_and(|changed| now.mono.since(changed) < SETTLING);
        if changed { self.config.resend_interval } else { self.config.resend_interval_max }
    }

    fn resend_jobs(&mut self, now: Now, out: &mut Vec<Command>) {
        let (pause, pause_max) = (self.config.resend_interval, self.resend_pause_max(now));
        let due = |asked: Option<Asking>| asked.is_none_or(|asked| asked.is_due(now.mono, pause, pause_max));
        for id in self.jobs.ids() {
            let Some(mut job) = self.jobs.remove(id) else { continue };
            let sent = job.context.parts.iter_mut().filter(|slot| matches!(slot.vote, PartVote::Sent));
            for slot in sent.filter(|slot| due(slot.asked)) {
                slot.vote = PartVote::Wanted;
            }
            self.send_parts(now, &mut job, out);
            let speaking = self.tablets.get(&job.tablet).filter(|tablet| self.may_speak(tablet));
            let committed = speaking.map_or(LogIndex::ZERO, |tablet| tablet.log.committed());
            // Bytes go by a stream: what is lost on the way is given up with the whole checkpoint.
            let open = |slot: &&DataSlot| slot.result.is_none() && slot.bytes.is_none();
            for slot in job.context.data.iter().filter(open) {
                // What did not leave yet is held.
                let Some((id, _)) = slot.sent.filter(|(_, behind)| *behind <= committed) else { continue };
                let request = DataRequest { id, chunk: slot.chunk, call: slot.call.clone() };
                out.push(Command::Data(slot.server, request, None));
            }
            self.jobs.insert(job);
        }
    }

    fn resend_tablet(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let pause_max = self.resend_pause_max(now);
        let (resend, inquire) =
            ((self.config.resend_interval, pause_max), (self.config.inquire_interval, pause_max));
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let recalls = tablet.leases.unanswered();
        let mut doubted = tablet.leases.newly_silent(now.mono, &self.config);
        doubted.extend(tablet.sessions.running_out());
        doubted.into_iter().for_each(|session| tablet.sessions.doubt(session));
        let items = tablet.queue.due(now.mono, resend, self.config.items_resent_max);
        let decided = tablet.coordinated.due(now.mono, resend, tablet.log.committed());
        let in_doubt = tablet.participant.in_doubt(now.mono, inquire);
        self.send_recalls(start, recalls, out);
        for item in items {
            self.send_item(now, start, item, out);
        }
        for (transaction, position) in decided {
            self.send_peer(start, position, PeerBody::Decided { transaction, commit: true }, out);
        }
        for transaction in in_doubt {
            self.send_peer(start, transaction.coordinator, PeerBody::Inquire { transaction }, out);
        }
    }

    // --- ids ---

    pub(crate) fn draw_ids(&mut self, now: Now) {
        let low = self.ids.left() < u64::from(self.config.id_range) / 2;
        let Some(start) = self.tablets.keys().next().copied() else { return };
        if low && !self.ids_asked && self.filesystem.is_some() {
            self.ids_asked = true;
            let question = Question::Ids { count: self.config.id_range };
            self.new_job(start, JobWork::Ask { from: None, id: 0, question }, now);
        }
        let asking = |work: &JobWork| matches!(work, JobWork::Ask { from: None, .. });
        let held = self.tablets.values().any(|tablet| tablet.exit.holds_ids());
        self.ids_asked = self.ids_asked && (held || self.jobs.values().any(|job| asking(&job.work)));
    }

    /// Ids drawn ahead.
    pub(crate) fn on_ids(&mut self, told: Told) {
        self.ids_asked = false;
        if let Told::Ids { first, count } = told {
            self.ids.add(NodeIdRange { next: first, end: NodeId(first.0 + u64::from(count)) });
            self.ready.extend(std::mem::take(&mut self.waiting_for_ids));
        }
    }

    // --- sessions ---

    fn watch_sessions(&mut self, now: Now, start: Position) {
        let life = self.config.session_ttl;
        let room = self.config.sweeps_max.saturating_sub(self.jobs.share(Party::Silence));
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let lost = tablet.sessions.unrenewed(now.mono, life, room);
        // Half of the room is for those that are over: what asks about the others may wait for long.
        let room = room.saturating_sub(lost.len() + self.config.sweeps_max / 2);
        let doubtful = tablet.sessions.doubtful(now.mono, life * 2, room);
        for session in lost {
            self.new_job(start, JobWork::EndSession(session), now);
        }
        for session in doubtful {
            let sweeps = |work: &JobWork| matches!(work, JobWork::SweepSession(other) if *other == session);
            if !self.jobs.values().any(|job| job.tablet == start && sweeps(&job.work)) {
                self.new_job(start, JobWork::SweepSession(session), now);
            }
        }
    }

    /// The mark stands, or is about to: now everything that the session has goes too, here and in all
    /// tablets. Whoever is not told asks when the session does not answer.
    pub(crate) fn tell_session_over(&mut self, home: Position, session: SessionId, out: &mut Vec<Command>) {
        if let Some(tablet) = self.tablets.get_mut(&home) {
            tablet.sessions.doubt(session);
        }
        self.doubt_everywhere(session);
        // One tablet of each server: it looks through all that it has.
        let tablets = self.assignment.iter().flat_map(|assignment| assignment.tablets());
        let mut servers: BTreeMap<ServerId, Position> =
            tablets.map(|tablet| (tablet.owner, tablet.block.start())).collect();
        servers.remove(&self.id);
        for position in servers.into_values() {
            self.send_peer(home, position, PeerBody::SessionOver { session }, out);
        }
    }

    /// A session may be over: tablets of this server that hold something for it ask its home.
    pub(crate) fn doubt_everywhere(&mut self, session: SessionId) {
        let holding = self.tablets.values_mut().filter(|tablet| tablet.holds_for(session));
        holding.for_each(|tablet| tablet.sessions.doubt(session));
    }

    /// A session is over in this tablet.
    pub(crate) fn forget_session(&mut self, now: Now, start: Position, session: SessionId) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let ended = tablet.cache.get(&Key::Ended(session)).is_some_and(|slot| slot.record.is_some());
        if ended {
            tablet.sessions.forget(session);
            tablet.horizon.forget(session);
            tablet.leases.forget_session(session, now.mono, &self.config);
            tablet.delegations.forget_session(session);
            tablet.opens.forget_session(session);
            tablet.locks.forget_session(session);
            // Somebody may have waited for it.
            self.ready.extend(tablet.leases.parked.all());
        }
    }

    /// A server that was stopped for long heard nobody meanwhile: that is no silence of theirs. They get
    /// their time anew, as after a restart.
    pub(crate) fn notice_stop(&mut self, now: Now) {
        let awake = std::mem::replace(&mut self.awake, now.mono);
        let deaf = if awake == Mono::ZERO { Duration::ZERO } else { now.mono.since(awake) };
        if deaf < self.config.beacon_interval * DEAF_BEACONS {
            return;
        }
        self.pairs.was_deaf(now.mono, deaf);
        let owned = self.tablets.values_mut().map(|tablet| &mut tablet.log);
        let adopted = self.adoptions.values_mut().map(|adoption| &mut adoption.log);
        owned.chain(adopted).for_each(|log| log.members.was_deaf(now.mono, deaf));
        if deaf < self.config.stop_timeout {
            return;
        }
        self.health.stopped(now.mono);
        for tablet in self.tablets.values_mut() {
            tablet.sessions.hear_all(now.mono);
            tablet.delegations.renew_all(now.mono, &self.config);
        }
    }

    // --- the reaper ---

    /// Removes an unreachable node's content in the background.
    pub(crate) fn begin_reaping(&mut self, now: Now, start: Position, node: NodeId) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        if tablet.reaping.insert(node) {
            self.new_job(start, JobWork::Reap(node), now);
        }
    }

    /// Starts again what had to be put off.
    fn resume_reaping(&mut self, now: Now, start: Position) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let running = |node: NodeId| {
            self.jobs
                .values()
                .any(|job| job.tablet == start && matches!(job.work, JobWork::Reap(other) if other == node))
        };
        let idle: Vec<NodeId> = tablet.reaping.iter().copied().filter(|node| !running(*node)).collect();
        for node in idle {
            self.new_job(start, JobWork::Reap(node), now);
        }
    }

    // --- data servers ---

    fn ping_data_servers(&mut self, now: Now, out: &mut Vec<Command>) {
        for server in self.health.look(now.mono, &self.config) {
            let request = DataRequest { id: PING, chunk: ChunkId(0), call: DataCall::Ping };
            out.push(Command::Data(server, request, None));
        }
    }

    pub(crate) fn on_pong(&mut self, now: Now, server: ServerId, reply: &DataReply) {
        if reply.id == PING {
            self.health.pong(now.mono, server, &reply.result);
        }
    }

    fn expire_data_requests(&mut self, now: Now) {
        let wait = self.config.fence_timeout;
        let lost: Vec<u64> = self
            .data_requests
            .iter()
            .filter(|(_, (_, _, sent))| now.mono.since(*sent) >= wait)
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            let Some((job, slot, _)) = self.data_requests.remove(&id) else { continue };
            let Some(job) = self.jobs.get_mut(job) else { continue };
            if let Some(slot) = job.context.data.get_mut(slot) {
                slot.result = Some(None);
                self.ready.push_back(job.id);
            }
        }
    }
}

/// Nodes that a change leaves to the reaper.
pub(crate) fn nodes_to_reap(batch: &BTreeMap<Key, Option<Record>>) -> Vec<NodeId> {
    let marks = batch.iter().filter(|(_, record)| record.is_some());
    marks
        .filter_map(|(key, _)| if let Key::Orphan(node, REAPER) = key { Some(*node) } else { None })
        .collect()
}
