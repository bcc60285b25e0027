//! Steps on their way to their tablet's owner: one batch at a time, whatever was decided meanwhile goes with
//! the next. Batches renew the lease.

use crate::context::{Context, State};
use crate::event::Note;
use crate::mutant::Mutant;
use crate::state::Answered;
use crate::state::lent::Batch;
use bearing_proto::client::{Body, Call};
use bearing_proto::delegation::StepsDone;
use bearing_types::{Block, Code, Mono, NodeId, Position};
use std::time::Duration;

/// How long the first step of a batch waits for others, unless somebody waits for it or the batch is full.
/// Longer costs nobody time, and fewer batches cost less of a processor: with 2 ms a fast writer's batches
/// hold some ten steps each.
const GATHER: Duration = Duration::from_millis(10);

/// A sync under way.
#[derive(Clone, Copy)]
pub(crate) struct Sync {
    losses: u64,
    before: bool,
}

impl State {
    fn on_steps_done(&mut self, tablet: Block, batch: &Batch, done: StepsDone, sent: Mono) {
        let until = self.io.lease_end(sent, done.lease);
        for token in done.steps.iter().filter_map(|step| step.token) {
            self.delegations.ours.on_token(token);
        }
        let Some(lent) = self.delegations.current(tablet, batch.incarnation) else { return };
        lent.on_done(batch, &done, until, self.io.now.mono);
        self.io.counters.batches += 1;
    }

    fn goes_alone(&mut self, tablet: Block, batch: &Batch) -> bool {
        self.delegations.current(tablet, batch.incarnation).is_some_and(|lent| lent.goes_alone(batch))
    }

    fn file_of(&mut self, tablet: Block, batch: &Batch) -> Option<NodeId> {
        self.delegations.current(tablet, batch.incarnation)?.file_of(batch)
    }
}

/// Gives up all that a tablet lends, steps on their way too.
pub(super) fn end_of(incarnation: u64) -> Call {
    let (steps, ids, returned, open) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (ids_wanted, names_kept, over) = (0, false, true);
    Call::Delegated { steps, ids, ids_wanted, returned, open, names_kept, incarnation, over }
}

impl Context {
    /// Sends a tablet's steps until there are none.
    pub(crate) async fn send_steps(self, tablet: Block, incarnation: u64) {
        let next = |state: &mut State| state.delegations.current(tablet, incarnation)?.next_batch(false);
        loop {
            let gather = |state: &mut State| state.delegations.current(tablet, incarnation)?.gather();
            if let Some(hurried) = self.with(gather) {
                self.sleep_unless(GATHER, hurried).await;
            }
            let Some(batch) = self.with(next) else { break };
            if !self.send_batch(tablet, batch).await {
                return;
            }
        }
        self.with(|state| {
            if let Some(lent) = state.delegations.current(tablet, incarnation) {
                lent.end_sending();
            }
        });
    }

    async fn send_batch(&self, tablet: Block, batch: Batch) -> bool {
        let answered = self.call_past_fence(batch.position, batch.call.clone()).await;
        self.with(|state| {
            match answered {
                Ok(Answered { body: Body::Steps(done), stamp, .. }) => {
                    state.on_steps_done(tablet, &batch, done, stamp.sent);
                    state.io.step("steps acknowledged");
                    return true;
                }
                Ok(_) => drop(state.io.unexpected()),
                Err(Code::NotFound | Code::TooLarge) if state.goes_alone(tablet, &batch) => return true,
                // A chunk was damaged, or nothing had come of it for so long that it counted as unused. What
                // was decided later may be about the same file, so it goes too.
                Err(Code::NotFound) if let Some(node) = state.file_of(tablet, &batch) => {
                    state.io.note(Note::WritesLost(node, Code::Io));
                }
                // Nothing is lent any more, or nobody can be asked.
                Err(Code::Stale | Code::SessionEnded | Code::Unreachable) => {}
                Err(code) => state.io.note(Note::StepsRefused(code)),
            }
            if state.delegations.current(tablet, batch.incarnation).is_some() {
                state.lose_tablet(tablet);
            }
            false
        })
    }

    /// Waits until all that was decided in a tablet so far is done there.
    pub(crate) async fn flush_steps(&self, tablet: Block) -> Result<(), Code> {
        match self.with(|state| state.delegations.await_steps(tablet)) {
            Some(waiting) => waiting.await,
            None => Ok(()),
        }
    }

    /// Somebody asks for stability. Steps that were lost before are told of once, to whoever asks first.
    pub(crate) fn sync_begins(&self) -> Sync {
        self.with(|state| {
            let (losses, told) = state.delegations.losses();
            Sync { losses, before: losses > told }
        })
    }

    /// What that comes to: whatever was lost meanwhile is told of too, and again to the next who asks.
    pub(crate) fn sync_ends(&self, sync: Sync) -> Result<(), Code> {
        self.with(|state| {
            let (losses, told) = state.delegations.losses();
            if !sync.before && losses == sync.losses {
                return Ok(());
            }
            state.delegations.set_losses_told(told.max(sync.losses));
            Err(Code::Io)
        })
    }

    /// How many losses somebody was told of.
    pub(crate) fn losses_told(&self) -> u64 {
        self.with(|state| state.delegations.losses().1)
    }

    /// The same in all tablets.
    pub(crate) async fn flush_all_steps(&self) -> Result<(), Code> {
        if self.with(|state| state.io.config.planted(Mutant::SyncBeforeSteps)) {
            return Ok(());
        }
        let tablets = self.with(|state| state.delegations.tablets().collect::<Vec<_>>());
        let mut flushed = Ok(());
        for tablet in tablets {
            flushed = flushed.and(self.flush_steps(tablet).await);
        }
        flushed
    }

    /// Renews a tablet's lease until nothing of it is held.
    pub(crate) fn keep_renewing(&self, tablet: Block) {
        let context = self.clone();
        self.with(|state| {
            if state.delegations.begin_renewing(tablet) {
                state.spawn(context.renew_delegations(tablet));
            }
        });
    }

    async fn renew_delegations(self, tablet: Block) {
        loop {
            let pause =
                self.with(|state| Some(state.delegations.lent(tablet)?.renew_delay(state.io.now.mono)));
            let Some(pause) = pause else { break };
            self.sleep(pause).await;
            let idle = self.with(|state| {
                let held = state.delegations.any_lent(tablet);
                let lent = state.delegations.lent_mut(tablet).filter(|lent| held || !lent.is_idle())?;
                Some((lent.begin_sending(), lent.incarnation()))
            });
            let Some((idle, incarnation)) = idle else { break };
            self.hold_fewer();
            if idle {
                // Not awaited here: its owner may put it off for longer than the lease lasts, and the end of
                // that must not be missed.
                let context = self.clone();
                self.with(|state| state.spawn(context.renew_once(tablet, incarnation)));
            }
        }
        self.with(|state| {
            state.delegations.end_renewing(tablet);
            if !state.delegations.any_lent(tablet) {
                state.lose_tablet(tablet);
            }
        });
    }

    async fn renew_once(self, tablet: Block, incarnation: u64) {
        let next = |state: &mut State| state.delegations.current(tablet, incarnation)?.next_batch(true);
        let Some(batch) = self.with(next) else { return };
        if self.send_batch(tablet, batch).await {
            self.send_steps(tablet, incarnation).await;
        }
    }

    /// What was given up may be on its way yet. Its tablet's owner is told to take no more of it; until it
    /// says so nothing else is asked there, so that nobody here sees it missing and then there.
    pub(crate) async fn fence(self, tablet: Block, position: Position, incarnation: u64) {
        let call = end_of(incarnation);
        // If there is no answer, its lease is over there by now as well.
        let _ = self.call_past_fence(position, call).await;
        self.with(|state| state.delegations.fence_over(tablet));
    }
}
