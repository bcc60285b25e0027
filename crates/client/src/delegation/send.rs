//! Steps on their way to their tablet's owner: one batch at a time, whatever was decided meanwhile goes with the next. Batches renew the lease.

use super::Delegations;
use crate::hub::{Hub, State};
use crate::mutant::Mutant;
use crate::task::promise;
use bearing_proto::client::{Body, Call};
use bearing_proto::delegation::{LentIds, StepsDone};
use bearing_types::{Block, Code, NodeId, Position};
use std::time::Duration;

/// Steps in one batch.
const BATCH_MAX: usize = 256;
/// How long the first step of a batch waits for others.
const GATHER: Duration = Duration::from_millis(2);
/// A lease that is about to end, or has, is renewed after this time.
const RENEW_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Ids below which more are wanted.
const IDS_LOW: u32 = 256;

/// An owner that had none is asked for more ahead of time only after so long.
const IDS_PAUSE: Duration = Duration::from_secs(1);

/// A sync under way.
#[derive(Clone, Copy)]
pub(crate) struct Sync {
    losses: u64,
    before: bool,
}

struct Batch {
    incarnation: u64,
    position: Position,
    call: Call,
    steps: usize,
    returned: usize,
    wants_ids: bool,
}

impl State {
    /// The next batch of a tablet; `None` when there is nothing to say.
    fn next_batch(&mut self, tablet: Block, renew: bool) -> Option<Batch> {
        let lent = self.delegations.tablets.get_mut(&tablet)?;
        let count = lent.queue.len().min(BATCH_MAX);
        // What is given back goes with the last step that was decided before.
        let returned = if count == lent.queue.len() { lent.returned.clone() } else { Vec::new() };
        let ids_wanted = if lent.ids_wanted { IDS_LOW } else { 0 };
        if count == 0 && returned.is_empty() && ids_wanted == 0 && !renew {
            return None;
        }
        lent.on_way = count;
        let ids: Vec<LentIds> = lent.ids.iter().map(|(lent, _)| *lent).collect();
        let steps = lent.queue.iter().take(count).cloned().collect();
        let returned_count = returned.len();
        let incarnation = lent.incarnation;
        let names_kept = returned_count > 0;
        let over = false;
        let call = Call::Delegated { steps, ids, ids_wanted, returned, names_kept, incarnation, over };
        let (position, wants_ids) = (lent.position, ids_wanted > 0);
        Some(Batch { incarnation, position, call, steps: count, returned: returned_count, wants_ids })
    }

    fn take_steps_done(&mut self, tablet: Block, batch: &Batch, done: StepsDone, sent: bearing_types::Mono) {
        let until = self.lease_end(sent, done.lease);
        let tokens: Vec<_> = done.steps.iter().filter_map(|step| step.token).collect();
        for token in tokens {
            self.delegations.ours.take_token(token);
        }
        let current = self.delegations.tablets.get_mut(&tablet);
        let Some(lent) = current.filter(|lent| lent.incarnation == batch.incarnation) else { return };
        lent.until = lent.until.max(until.unwrap_or(lent.until));
        lent.queue.drain(..batch.steps);
        lent.returned.drain(..batch.returned);
        lent.on_way = 0;
        lent.done += batch.steps as u64;
        if batch.wants_ids {
            if done.ids.is_none() {
                lent.ids_not_before = self.now.mono.after(IDS_PAUSE);
            }
            lent.ids.extend(done.ids.map(|ids| (ids, 0)));
            lent.ids_wanted = false;
            for promise in lent.waiting_for_ids.drain(..) {
                promise.keep(done.ids.is_some());
            }
        }
        // Used up, and no step that shows them is left.
        let done_all = lent.queue.is_empty();
        while done_all && lent.ids.len() > 1 && lent.ids[0].1 == lent.ids[0].0.count {
            lent.ids.pop_front();
        }
        let reached = lent.done;
        let waiting = std::mem::take(&mut lent.waiting);
        for (number, promise) in waiting {
            if number <= reached && lent.returned.is_empty() {
                promise.keep(Ok(()));
            } else {
                lent.waiting.push((number, promise));
            }
        }
        self.counters.batches += 1;
    }

    /// Of losses after this number nobody was told yet.
    pub(crate) fn tell_losses_again(&mut self, told: u64) {
        self.delegations.losses_told = told;
    }

    fn lose_incarnation(&mut self, tablet: Block, incarnation: u64) {
        if self.delegations.is_current(tablet, incarnation) {
            self.lose_tablet(tablet);
        }
    }

    /// An id for something made in a tablet; `None` if all are used up for now.
    pub(super) fn take_lent_id(&mut self, tablet: Block) -> Option<NodeId> {
        let lent = self.delegations.tablets.get_mut(&tablet)?;
        let id = lent.take_id();
        // More are asked for before the last range is used up.
        let low = lent.ids.back().map_or(0, |(last, _)| last.count / 2).min(IDS_LOW);
        lent.ids_wanted |= lent.ids_left() < low && self.now.mono >= lent.ids_not_before;
        id
    }
}

/// Gives up all that a tablet lends, steps on their way too.
pub(super) fn end_of(incarnation: u64) -> Call {
    let (steps, ids, returned) = (Vec::new(), Vec::new(), Vec::new());
    let (ids_wanted, names_kept, over) = (0, false, true);
    Call::Delegated { steps, ids, ids_wanted, returned, names_kept, incarnation, over }
}

impl Hub {
    /// Sends a tablet's steps until there are none.
    pub(crate) async fn send_steps(self, tablet: Block, incarnation: u64) {
        self.sleep(GATHER).await;
        let next = |state: &mut State| {
            state
                .delegations
                .is_current(tablet, incarnation)
                .then(|| state.next_batch(tablet, false))
                .flatten()
        };
        while let Some(batch) = self.with(next) {
            if !self.send_batch(tablet, batch).await {
                return;
            }
        }
        self.with(|state| {
            let current = state.delegations.tablets.get_mut(&tablet);
            if let Some(lent) = current.filter(|lent| lent.incarnation == incarnation) {
                lent.sending = false;
            }
        });
    }

    async fn send_batch(&self, tablet: Block, batch: Batch) -> bool {
        let answered = self.call_past_fence(batch.position, batch.call.clone()).await;
        self.with(|state| match answered {
            Ok(answered) => match answered.body {
                Body::Steps(done) => {
                    state.take_steps_done(tablet, &batch, done, answered.stamp.sent);
                    state.step("steps acknowledged");
                    true
                }
                _ => {
                    state.counters.unexpected += 1;
                    state.lose_incarnation(tablet, batch.incarnation);
                    false
                }
            },
            Err(_) => {
                state.lose_incarnation(tablet, batch.incarnation);
                false
            }
        })
    }

    /// Waits until all that was decided in a tablet so far is done there.
    pub(crate) async fn flush_steps(&self, tablet: Block) -> Result<(), Code> {
        let waiting = self.with(|state| {
            let lent = state.delegations.tablets.get_mut(&tablet)?;
            if lent.done == lent.queued && lent.returned.is_empty() {
                return None;
            }
            let (promise, awaited) = promise();
            lent.waiting.push((lent.queued, promise));
            if !lent.sending {
                lent.sending = true;
                state.new_senders.push((tablet, lent.incarnation));
            }
            Some(awaited)
        });
        match waiting {
            Some(waiting) => waiting.await,
            None => Ok(()),
        }
    }

    /// Somebody asks for stability. Steps that were lost before are told of once, to whoever asks first.
    pub(crate) fn sync_begins(&self) -> Sync {
        self.with(|state| {
            let Delegations { losses, losses_told, .. } = &state.delegations;
            Sync { losses: *losses, before: losses > losses_told }
        })
    }

    /// What that comes to: whatever was lost meanwhile is told of too, and again to the next who asks.
    pub(crate) fn sync_ends(&self, sync: Sync) -> Result<(), Code> {
        self.with(|state| {
            let meanwhile = state.delegations.losses != sync.losses;
            if !sync.before && !meanwhile {
                return Ok(());
            }
            state.delegations.losses_told = state.delegations.losses_told.max(sync.losses);
            Err(Code::Io)
        })
    }

    /// How many losses somebody was told of.
    pub(crate) fn losses_told(&self) -> u64 {
        self.with(|state| state.delegations.losses_told)
    }

    /// The same in all tablets.
    pub(crate) async fn flush_all_steps(&self) -> Result<(), Code> {
        if self.with(|state| state.config.planted(Mutant::SyncBeforeSteps)) {
            return Ok(());
        }
        let tablets = self.with(|state| state.delegations.tablets.keys().copied().collect::<Vec<_>>());
        let mut flushed = Ok(());
        for tablet in tablets {
            flushed = flushed.and(self.flush_steps(tablet).await);
        }
        flushed
    }

    /// Renews a tablet's lease until nothing of it is held.
    pub(crate) fn keep_renewing(&self, tablet: Block) {
        let hub = self.clone();
        self.with(|state| {
            if state.renewed_tablets.insert(tablet) {
                state.spawn(hub.renew_delegations(tablet));
            }
        });
    }

    async fn renew_delegations(self, tablet: Block) {
        loop {
            let pause = self.with(|state| {
                let lent = state.delegations.tablets.get(&tablet)?;
                Some((lent.until.since(state.now.mono) / 3).max(RENEW_PAUSE_MIN))
            });
            let Some(pause) = pause else { break };
            self.sleep(pause).await;
            let idle = self.with(|state| {
                let held = state.delegations.any_lent(tablet);
                let lent = state.delegations.tablets.get_mut(&tablet)?;
                if !held && lent.queue.is_empty() && !lent.sending && lent.returned.is_empty() {
                    return None;
                }
                let idle = !lent.sending;
                lent.sending = true;
                Some((idle, lent.incarnation))
            });
            let Some((idle, incarnation)) = idle else { break };
            self.hold_fewer();
            if idle {
                // Not awaited here: its owner may put it off for longer than the lease lasts, and the end of that must not be missed.
                let hub = self.clone();
                self.with(|state| state.spawn(hub.renew_once(tablet, incarnation)));
            }
        }
        self.with(|state| {
            state.renewed_tablets.remove(&tablet);
            let held = state.delegations.any_lent(tablet);
            if !held {
                state.lose_tablet(tablet);
            }
        });
    }
}

impl Hub {
    async fn renew_once(self, tablet: Block, incarnation: u64) {
        let batch = self.with(|state| {
            let current = state.delegations.is_current(tablet, incarnation);
            current.then(|| state.next_batch(tablet, true)).flatten()
        });
        let Some(batch) = batch else { return };
        if self.send_batch(tablet, batch).await {
            self.send_steps(tablet, incarnation).await;
        }
    }

    /// What was given up may be on its way yet. Its tablet's owner is told to take no more of it; until it says so nothing else is asked there, so that nobody here
    /// sees it missing and then there.
    pub(crate) async fn fence(self, tablet: Block, position: Position, incarnation: u64) {
        let call = end_of(incarnation);
        // If there is no answer, its lease is over there by now as well.
        let _ = self.call_past_fence(position, call).await;
        self.with(|state| {
            for promise in state.delegations.fenced.remove(&tablet).into_iter().flatten() {
                promise.keep(());
            }
        });
    }

    /// Waits while a position's owner may still take what was given up.
    pub(crate) async fn past_fence(&self, position: Position) {
        loop {
            let waiting = self.with(|state| {
                let mut fenced = state.delegations.fenced.iter_mut();
                let (_, waiting) = fenced.find(|(tablet, _)| tablet.contains(position))?;
                let (promise, awaited) = promise();
                waiting.push(promise);
                Some(awaited)
            });
            match waiting {
                Some(waiting) => waiting.await,
                None => return,
            }
        }
    }
}
