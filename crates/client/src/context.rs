//! What all operations of one client share, and how they reach it.
//!
//! Invariants: the state is touched in short closures that never nest and never wait; an operation holds
//! nothing of it while it waits. Commands leave in the order in which they were given, requests at the end of
//! a step, those for one tablet next to each other. Whatever is known of one thing stands in its own file
//! below `state`; here is only what concerns several of them.

use crate::config::ClientConfig;
use crate::event::{Command, Invalidation};
use crate::operation::Ticket;
use crate::run::{Awaited, Io, Task, promise};
use crate::state::files::{Chunks, Files, Renewals};
use crate::state::lease::{Cache, Leases, Trails};
use crate::state::lent::Delegations;
use crate::state::{Ahead, DataRequests, FlowRequests, Locks, Recalls, Requests, Routes, Session};
use bearing_proto::client::LeaseKey;
use bearing_proto::delegation::{Change, Step};
use bearing_types::{Block, Name, NodeId, Sequence, ServerId, SessionId};
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Everything that operations share.
pub(crate) struct State {
    pub io: Io,
    pub new_tasks: Vec<Task>,
    /// Operations under way.
    pub running: BTreeSet<Ticket>,
    pub session: Session,
    pub routes: Routes,
    pub requests: Requests,
    pub data: DataRequests,
    pub flow: FlowRequests,
    pub ahead: Ahead,
    pub leases: Leases,
    pub cache: Cache,
    pub trails: Trails,
    pub recalls: Recalls,
    /// Names that renames under way are to make: the kernel takes them for good when it hears the answer,
    /// also when they were recalled before.
    pub renamed: Vec<(LeaseKey, NodeId, Name)>,
    pub files: Files,
    pub renewals: Renewals,
    pub chunks: Chunks,
    pub locks: Locks,
    pub delegations: Delegations,
    /// Since all metadata servers were greeted.
    pub greeted_again: BTreeSet<ServerId>,
}

impl State {
    pub fn new(config: ClientConfig, seed: u64) -> State {
        State {
            new_tasks: Vec::new(),
            running: BTreeSet::new(),
            session: Session::new(),
            routes: Routes::new(),
            requests: Requests::new(),
            data: DataRequests::default(),
            flow: FlowRequests::default(),
            ahead: Ahead::new(config.ahead),
            leases: Leases::new(),
            cache: Cache::new(&config),
            trails: Trails::new(),
            recalls: Recalls::default(),
            renamed: Vec::new(),
            files: Files::new(&config),
            renewals: Renewals::default(),
            chunks: Chunks::new(&config),
            locks: Locks::new(&config),
            delegations: Delegations::new(SessionId(0)),
            greeted_again: BTreeSet::new(),
            io: Io::new(config, seed),
        }
    }

    /// Runs a task beside all others.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.new_tasks.push(Box::pin(task));
    }

    /// Whether something is to be begun.
    pub fn has_new_tasks(&self) -> bool {
        !self.new_tasks.is_empty() || self.delegations.has_new_tasks()
    }

    /// Has the kernel forget something, if there is anything.
    pub fn invalidate(&mut self, what: impl IntoIterator<Item = Invalidation>) {
        let what: Vec<Invalidation> = what.into_iter().collect();
        if !what.is_empty() {
            self.recalls.invalidate(what, &mut self.io);
        }
    }

    /// The same, and says when it has.
    pub fn invalidate_and_tell(&mut self, what: Vec<Invalidation>) -> Awaited<()> {
        self.recalls.invalidate_and_tell(what, &mut self.io)
    }

    /// Something changed that may be leased to us: what was leased before, or is leased by answers on their
    /// way, is not so any more.
    pub fn drop_leases(&mut self, keys: &[LeaseKey]) {
        self.cache.forget(keys);
        self.leases.recall_keys(keys);
        self.prune_leases();
    }

    /// Forgets recalls that no request can meet, now and then.
    pub fn prune_leases(&mut self) {
        if self.leases.wants_pruning() {
            self.leases.prune(self.requests.oldest_mark());
        }
    }

    /// Puts a step into the queue of its tablet. Gives what was decided when.
    pub fn queue_step(&mut self, tablet: Block, change: Change) -> Sequence {
        let sequence = self.requests.take_number();
        let step = Step { sequence, at: self.delegations.now(tablet, self.io.now.mono), change };
        if self.io.config.tells_steps {
            self.io.out.push(Command::Decided(Box::new(step.clone())));
        }
        self.delegations.queue(tablet, step);
        self.io.counters.steps += 1;
        sequence
    }
}

/// What operations reach the state through.
#[derive(Clone)]
pub(crate) struct Context(Arc<Mutex<State>>);

impl Context {
    pub fn new(state: State) -> Context {
        Context(Arc::new(Mutex::new(state)))
    }

    /// Looks at or changes the state. Never nested: that is a bug, and panics instead of waiting for itself.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.try_lock().expect("the state is used by one piece of code at a time"))
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        self.due_after(duration).await;
    }

    /// Waits, but no longer than until something else happens.
    pub async fn sleep_unless(&self, duration: Duration, mut happens: Awaited<()>) {
        let mut due = self.due_after(duration);
        poll_fn(|task| match Pin::new(&mut happens).poll(task) {
            Poll::Pending => Pin::new(&mut due).poll(task),
            Poll::Ready(()) => Poll::Ready(()),
        })
        .await;
    }

    fn due_after(&self, duration: Duration) -> Awaited<()> {
        self.with(|state| {
            let due = state.io.now.mono.after(duration);
            state.io.timers.sleep_until(due)
        })
    }

    /// Runs something beside the caller, who may wait for its result.
    pub fn fork<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Awaited<T> {
        let (promise, awaited) = promise();
        self.with(|state| state.spawn(async move { promise.keep(work.await) }));
        awaited
    }

    /// Runs pieces of work beside each other, at most `count_max` at a time; gives their results in their
    /// order.
    pub async fn windowed<T: Send + 'static>(&self, count_max: usize, work: Vec<Work<T>>) -> Vec<T> {
        let mut results = Vec::with_capacity(work.len());
        let mut running = VecDeque::new();
        for piece in work {
            if running.len() >= count_max
                && let Some(oldest) = running.pop_front()
            {
                let oldest: Awaited<T> = oldest;
                results.push(oldest.await);
            }
            running.push_back(self.fork(piece));
        }
        for rest in running {
            results.push(rest.await);
        }
        results
    }
}

/// A piece of work for [`Context::windowed`].
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
