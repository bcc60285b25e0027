//! The state that all operations of one client share, and how they reach it.
//!
//! Invariants: the state is touched in short closures that never nest and never wait; an operation holds nothing of it while it
//! waits. Commands leave in the order in which they were given, requests at the end of a step, those for one tablet next to each other.

use crate::cache::Cache;
use crate::config::ClientConfig;
use crate::counters::Counters;
use crate::delegation::Delegations;
use crate::event::{Command, Note};
use crate::file::Files;
use crate::file::chunk::Chunks;
use crate::file::data_request::DataRequests;
use crate::lease::Leases;
use crate::locks::Locks;
use crate::namespace::ahead::Ahead;
use crate::operation::Ticket;
use crate::random::Random;
use crate::recall::Recalls;
use crate::request::Requests;
use crate::routes::Routes;
use crate::session::Session;
use crate::task::{Awaited, Task, promise};
use crate::timer::Timers;
use bearing_proto::client::LeaseMs;
use bearing_types::{Block, Mono, Now, Position, SessionId, Wall};
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Everything that operations share.
pub(crate) struct State {
    pub config: ClientConfig,
    pub random: Random,
    pub now: Now,
    pub out: Vec<Command>,
    pub new_tasks: Vec<Task>,
    /// Operations under way.
    pub running: BTreeSet<Ticket>,
    pub timers: Timers,
    pub session: Session,
    pub routes: Routes,
    pub requests: Requests,
    pub data: DataRequests,
    pub leases: Leases,
    pub cache: Cache,
    pub recalls: Recalls,
    pub files: Files,
    pub chunks: Chunks,
    pub locks: Locks,
    pub delegations: Delegations,
    pub ahead: Ahead,
    /// Tablets whose steps begin to be sent.
    pub new_senders: Vec<(Block, u64)>,
    /// Tablets whose owners have to be told that something was given up.
    pub new_fences: Vec<(Block, Position, u64)>,
    /// Tablets whose delegations are renewed.
    pub renewed_tablets: BTreeSet<Block>,
    pub counters: Counters,
}

impl State {
    pub fn new(config: ClientConfig, seed: u64) -> State {
        State {
            random: Random::new(seed),
            now: Now { mono: Mono::ZERO, wall: Wall(0) },
            out: Vec::new(),
            new_tasks: Vec::new(),
            running: BTreeSet::new(),
            timers: Timers::default(),
            session: Session::new(),
            routes: Routes::new(),
            requests: Requests::new(),
            data: DataRequests::default(),
            leases: Leases::new(),
            cache: Cache::new(&config),
            recalls: Recalls::default(),
            files: Files::new(&config),
            chunks: Chunks::new(&config),
            locks: Locks::new(&config),
            delegations: Delegations::new(SessionId(0)),
            ahead: Ahead::new(),
            new_senders: Vec::new(),
            new_fences: Vec::new(),
            renewed_tablets: BTreeSet::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// Until when a lease may be used, counted from when it was asked for and shortened by the margin.
    pub fn lease_end(&self, sent: Mono, lease: LeaseMs) -> Option<Mono> {
        let end = sent.after(self.usable(lease));
        (end > self.now.mono).then_some(end)
    }

    /// How much of a lease may be used, whatever our clock and its clock say.
    pub fn usable(&self, lease: LeaseMs) -> Duration {
        let length = Duration::from_millis(u64::from(lease.0));
        length.saturating_sub(length / 100 + self.config.lease_margin)
    }

    /// Whether something that a server signed is good for a while yet, whatever our clock and its clock say.
    pub fn signature_lives(&self, expires: Wall) -> bool {
        expires > self.now.wall.after(self.config.skew_max)
    }

    /// See [`crate::Note::Step`].
    pub fn step(&mut self, name: &'static str) {
        self.out.push(Command::Note(Note::Step(name)));
    }

    /// Whether something is to be begun.
    pub fn has_new_tasks(&self) -> bool {
        !self.new_tasks.is_empty() || !self.new_senders.is_empty() || !self.new_fences.is_empty()
    }

    /// Runs a task beside all others.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.new_tasks.push(Box::pin(task));
    }
}

/// What operations reach the state through.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Mutex<State>>);

impl Hub {
    pub fn new(state: State) -> Hub {
        Hub(Arc::new(Mutex::new(state)))
    }

    /// Looks at or changes the state. Never nested: that is a bug, and panics instead of waiting for itself.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.try_lock().expect("the state is used by one piece of code at a time"))
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        let due = self.with(|state| {
            let due = state.now.mono.after(duration);
            state.timers.sleep_until(due)
        });
        due.await;
    }

    /// Runs something beside the caller, who may wait for its result.
    pub fn fork<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Awaited<T> {
        let (promise, awaited) = promise();
        self.with(|state| state.spawn(async move { promise.keep(work.await) }));
        awaited
    }

    /// Runs pieces of work beside each other, at most `count_max` at a time; gives their results in their order.
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

/// A piece of work for [`Hub::windowed`].
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
