//! Asking servers: a position's owner, any metadata server, a data server; and asking for changes, for which
//! what they end is dropped here first.

use crate::context::{Context, State};
use crate::state::{Answered, DataAnswer, DataFailure, Phase};
use bearing_proto::client::{Call, LeaseKey, RenameMode};
use bearing_proto::data::DataCall;
use bearing_types::{ChunkId, Code, NodeId, Position, ServerId};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often it is looked whether the owner of what has lapsed has answered.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Context {
    /// Asks the owner of a position.
    pub async fn call(&self, position: Position, call: Call) -> Result<Answered, Code> {
        self.past_lapse(position).await;
        self.past_fence(position).await;
        self.call_past_fence(position, call).await
    }

    /// The same for what ends the waiting of all others.
    pub async fn call_past_fence(&self, position: Position, call: Call) -> Result<Answered, Code> {
        let patience = self.with(|state| state.patience_for(&call));
        self.ask(Some(position), call, patience).await
    }

    /// The same for what is not worth waiting for as long as for others.
    pub async fn call_within(
        &self,
        position: Position,
        call: Call,
        patience: Duration,
    ) -> Result<Answered, Code> {
        self.ask(Some(position), call, patience).await
    }

    /// Waits until the owner of a position has said whether what it lent is lent yet.
    pub(crate) async fn past_lapse(&self, position: Position) {
        while self.with(|state| state.delegations.is_lapsed_at(position, state.io.now.mono)) {
            self.await_owner().await;
        }
    }

    /// A moment in which the owner of what has lapsed may answer.
    pub(crate) async fn await_owner(&self) {
        self.sleep(LOOK_EVERY).await;
    }

    /// Waits while a position's owner may still take what was given up.
    pub(crate) async fn past_fence(&self, position: Position) {
        while let Some(waiting) = self.with(|state| state.delegations.await_fence(position)) {
            waiting.await;
        }
    }

    /// Asks any metadata server.
    pub async fn call_anybody(&self, call: Call) -> Result<Answered, Code> {
        let patience = self.with(|state| state.io.config.request_timeout);
        self.ask(None, call, patience).await
    }

    /// Asks for a change of what these keys lease. They are dropped here before it is sent; `take` may take
    /// new leases from the reply. If the request was given up, a server may carry it out later: then nothing
    /// that was leased is believed, and these keys count as changing for a while yet.
    pub async fn change<R>(
        &self,
        keys: Vec<LeaseKey>,
        position: Position,
        call: Call,
        take: impl FnOnce(&mut State, Answered) -> R,
    ) -> Result<R, Code> {
        let directories: Vec<NodeId> = keys
            .iter()
            .filter_map(|key| match key {
                LeaseKey::Content(directory) => Some(*directory),
                _ => None,
            })
            .collect();
        let among = |is_so: &dyn Fn(&State, NodeId) -> bool| {
            self.with(|state| directories.iter().copied().find(|directory| is_so(state, *directory)))
        };
        let (by_itself, mut told) = (changed_by_itself(&call), BTreeSet::new());
        // A directory may have become ours since the operation found that it is not. Or it was removed here,
        // of which its home is yet to hear.
        loop {
            if let Some(directory) = among(&|state, directory| state.delegations.is_ours(directory)) {
                // Boxed, because what is written out on the way is a change too, of files alone.
                Box::pin(self.suspend(directory)).await;
            } else if let Some(node) =
                self.with(|state| by_itself.filter(|node| state.delegations.is_our_node(*node)))
            {
                Box::pin(self.publish_node(node)).await;
            } else if let Some(directory) = among(&|state, directory| {
                !told.contains(&directory) && state.delegations.tablet_to_remove(directory).is_some()
            }) {
                told.insert(directory);
                Box::pin(self.settled(directory)).await;
            } else {
                break;
            }
        }
        self.with(|state| {
            state.cache.begin_change(&keys);
            state.leases.begin_change(&keys);
            state.note_names(&keys);
        });
        let patience = self.with(|state| state.patience_for(&call));
        let answered = self.call(position, call).await;
        if matches!(answered, Err(Code::Unreachable)) {
            self.with(State::drop_all_leased);
            let context = self.clone();
            self.with(|state| state.spawn(context.end_doubtful_change(keys, patience)));
            return Err(Code::Unreachable);
        }
        self.with(|state| {
            let mut news = Vec::new();
            let result = answered.map(|mut answered| {
                answered.stamp.own_change = true;
                let (changed, stamp) = (std::mem::take(&mut answered.changed), answered.stamp);
                news.extend(changed.into_iter().filter_map(|changed| state.weigh_changed(changed, &stamp)));
                take(state, answered)
            });
            state.changed(&keys);
            state.take_changed(&directories, &news);
            result
        })
    }

    /// Ends a change of which it was never heard whether it happened: when it is as old again as when it was
    /// given up.
    async fn end_doubtful_change(self, keys: Vec<LeaseKey>, patience: Duration) {
        self.sleep(patience).await;
        self.with(|state| state.changed(&keys));
    }

    async fn ask(
        &self,
        position: Option<Position>,
        mut call: Call,
        patience: Duration,
    ) -> Result<Answered, Code> {
        let asked = self.with(|state| match state.session.phase() {
            Phase::Over(code) => Err(code),
            // Of a session that is gone: what it began cannot go on in another one.
            Phase::Enrolling | Phase::Lost => Err(Code::Io),
            Phase::Opening | Phase::Open => {
                state.say_what_is_open(&mut call);
                Ok(state.requests.ask(position, call, patience, &mut state.io))
            }
        });
        asked?.await
    }

    /// Asks a data server.
    pub async fn data_call(
        &self,
        server: ServerId,
        chunk: ChunkId,
        call: DataCall,
        attachment: Vec<u8>,
    ) -> DataAnswer {
        let timeout = self.with(|state| state.io.config.data_timeout);
        self.data_call_within(timeout, server, chunk, call, attachment).await
    }

    /// The same, with a timeout of its own.
    pub async fn data_call_within(
        &self,
        timeout: Duration,
        server: ServerId,
        chunk: ChunkId,
        call: DataCall,
        attachment: Vec<u8>,
    ) -> DataAnswer {
        let asked = self.with(|state| match state.session.over() {
            Some(code) => Err(DataFailure::Over(code)),
            None => Ok(state.data.ask(server, (chunk, call), attachment, timeout, &mut state.io)),
        });
        asked?.await
    }
}

impl State {
    /// A file that is about to lose a name may have been opened since the operation looked.
    fn say_what_is_open(&mut self, call: &mut Call) {
        let (node, keep_open) = match call {
            Call::Unlink { node, keep_open, .. } => (*node, keep_open),
            // Nothing goes by an exchange.
            Call::Rename { mode, replaced: Some(node), keep_open, .. } if *mode != RenameMode::Exchange => {
                (*node, keep_open)
            }
            _ => return,
        };
        *keep_open |= self.files.name_goes(node);
    }

    /// How long a call is tried. What stores bytes and names that a program was told are written is tried for
    /// longer than a server is away, except when the session is being ended.
    fn patience_for(&self, call: &Call) -> Duration {
        let stores = match call {
            Call::Commit { .. } | Call::OpenChunk { .. } | Call::SealChunk { .. } => true,
            Call::Delegated { over, .. } => !over,
            _ => false,
        };
        if stores && !self.session.is_ending() {
            self.io.config.write_timeout
        } else {
            self.io.config.request_timeout
        }
    }

    /// From now on nothing is tried for longer than any other request.
    pub fn begin_end(&mut self) {
        self.session.begin_end();
        self.requests.begin_end(&mut self.io);
    }

    fn changed(&mut self, keys: &[LeaseKey]) {
        self.leases.end_change(keys);
        self.prune_leases();
        self.plan_renewals_of(keys);
    }
}

/// The node that a call changes wherever it is found, and not as an entry of a directory that the call names.
/// If it is lent to us with some directory, its home changes what we would go on to show as it was. Extents
/// that are committed are no such change, and nobody may wait for the kernel with them.
fn changed_by_itself(call: &Call) -> Option<NodeId> {
    match call {
        Call::Link { node, .. }
        | Call::SetAttributes { node, .. }
        | Call::SetXattr { node, .. }
        | Call::MakeHole { node, .. } => Some(node.node),
        _ => None,
    }
}
