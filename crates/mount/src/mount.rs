//! The client machine under the threads of a program.
//!
//! The thread that brings an operation steps the machine, sends, and then waits for the socket itself until
//! its answer is there: no other thread stands between a request and its reply. One thread at a time waits
//! for the socket (the leader) and hands the others their answers; with its own answer it leaves, and calls
//! another. While nobody waits for an answer, a thread in the background leads, so that recalls, renewals and
//! timers are served.
//!
//! Invariants: there is a leader whenever an answer is waited for, or one is being called. Timers do not
//! depend on the leader: every waiting thread wakes when the machine wants to be stepped. Locks are taken in
//! the order driver, core.

use crate::caller::Caller;
use crate::config::MountConfig;
use crate::core::{Core, GroupId};
use crate::kernel_cache::{self, CacheSlot, KernelCache, Patience};
use crate::post::{Errand, Post};
use crate::probe::{self, Seen};
use bearing_client::{Answer, Client, ClientConfig, Event, Note, Operation};
use bearing_env::{Clock, Endpoint, EndpointError, Incoming, own_addresses, random_u64};
use bearing_proto::envelope::{Refusal, Versions};
use bearing_types::{Code, Mono, Outcome, ServerId, SessionId};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// No wait is longer, so that nothing depends on a wake that was missed.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Who waits for a lock looks so often whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The background thread leads when no operation has waited for an answer for this time. Shorter, and it
/// would take part in every operation of a program that does one after the other; longer, and a recall that
/// comes just after an operation would wait.
const IDLE: Duration = Duration::from_millis(2);

/// Servers of which none says anything for so long are not there.
const SILENCE_WAIT: Duration = Duration::from_secs(2);

/// Why no filesystem could be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is nobody to ask.
    #[error("no address of a metadata server was given; name at least one, like 10.0.0.1:9000")]
    NoSeeds,
    /// No socket.
    #[error("open a socket: {0}")]
    Endpoint(#[from] EndpointError),
    /// No thread.
    #[error("start a thread: {0}; check the limit of processes (`ulimit -u`)")]
    Thread(io::Error),
    /// Nobody answers.
    #[error("no metadata server answers: {}", told(seen))]
    Unreachable {
        /// Whom we asked, and what is there instead.
        seen: Vec<(SocketAddr, Seen)>,
    },
    /// Somebody answers, but nobody gives what is asked for.
    #[error(
        "the cluster at {} answers, but has not given its root in {} s: too few of its metadata servers are up (a cluster \
         of one host needs `bearing init --metadata-copies 1`), or a client that died holds it; `bearing status` shows \
         the servers",
        list(tried), waited.as_secs()
    )]
    NotServed {
        /// Whom we asked.
        tried: Vec<SocketAddr>,
        /// How long.
        waited: Duration,
    },
    /// The servers do not know our secret.
    #[error(
        "the cluster at {} refuses this client: its enrolment secret is another one, or was revoked; copy the cluster's secret \
         file again, or have another one made with `bearing enrol`",
        list(tried)
    )]
    WrongSecret {
        /// Whom we asked.
        tried: Vec<SocketAddr>,
    },
    /// The servers are of another release.
    #[error(
        "the cluster at {} speaks protocol version {speaks}, this program {}; use the same release on both sides",
        list(tried),
        Versions::SPOKEN
    )]
    Version {
        /// Whom we asked.
        tried: Vec<SocketAddr>,
        /// Their version.
        speaks: u16,
    },
    /// The cluster answers, but does not give the filesystem.
    #[error("read the root directory: {0}")]
    Root(Code),
}

fn told(seen: &[(SocketAddr, Seen)]) -> String {
    seen.iter().map(|(address, seen)| format!("{address} ({seen})")).collect::<Vec<_>>().join(", ")
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// What a mount counts besides its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountCounters {
    /// Incoming packets that were not taken: cut short, or their signature did not fit.
    pub packets_refused: u64,
    /// Tries of invalidations that the kernel refused.
    pub invalidations_failed: u64,
    /// Operations whose answer came by the thread that asked.
    pub answered_by_asker: u64,
    /// Operations whose answer came by another thread.
    pub answered_by_others: u64,
}

/// A connection to a filesystem, for all threads of a program. See the module. Dropping it does not end the
/// session (see [`Mount::end`]): what is not flushed is lost, and servers wait for its leases to run out.
pub struct Mount {
    shared: Arc<Shared>,
    background: Option<JoinHandle<()>>,
}

struct Shared {
    core: Mutex<Core>,
    driver: Mutex<Driver>,
    post: Post,
    clock: Clock,
    cache: CacheSlot,
    /// Wakes the background thread.
    background: Condvar,
    /// Some server said something.
    heard: AtomicBool,
    invalidations_failed: AtomicU64,
    answered_by_asker: AtomicU64,
    answered_by_others: AtomicU64,
}

/// What only the leader uses.
struct Driver {
    endpoint: Endpoint,
    incoming: Vec<Incoming>,
}

/// Makes sure that the lead is given up even if its thread panics.
struct Lead<'a>(&'a Shared);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Ok(mut core) = self.0.core.lock() {
            core.is_led = false;
        }
    }
}

impl Mount {
    /// Connects: opens a session and reads the root directory.
    pub fn connect(config: &MountConfig) -> Result<Mount, ConnectError> {
        let client = ClientConfig {
            directory_ttl: config.consistency.lateness(),
            file_ttl: config.consistency.lateness(),
            delegates: config.delegates,
            description: config.description.clone(),
            access_times: config.access_times,
            tells_lookups: config.tells_lookups,
            squash: config.enrolment.squash,
            addresses: own_addresses(),
            ..ClientConfig::standard(config.filesystem)
        };
        Mount::connect_as(config, client)
    }

    /// The same with limits of one's own.
    pub fn connect_as(config: &MountConfig, client: ClientConfig) -> Result<Mount, ConnectError> {
        if config.seeds.is_empty() {
            return Err(ConnectError::NoSeeds);
        }
        let endpoint = Endpoint::client()?;
        let post = Post::new(config.enrolment.clone(), &endpoint, config.seeds.clone());
        let (invalidations, jobs) = channel();
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(Client::new(client, random_u64()), invalidations)),
            driver: Mutex::new(Driver { endpoint, incoming: Vec::new() }),
            post,
            clock: Clock,
            cache: CacheSlot::default(),
            background: Condvar::new(),
            heard: AtomicBool::new(false),
            invalidations_failed: AtomicU64::new(0),
            answered_by_asker: AtomicU64::new(0),
            answered_by_others: AtomicU64::new(0),
        });
        let thread = |name: &str| Builder::new().name(name.to_owned());
        let forgetter = shared.clone();
        // It ends when the core stops giving it jobs. Nobody joins it: it may stand at a lock of the kernel.
        thread("bearing-forget")
            .spawn(move || {
                kernel_cache::run(&jobs, &forgetter.cache, Patience::KERNEL, |number, failures| {
                    forgetter.forgotten(number, failures)
                })
            })
            .map_err(ConnectError::Thread)?;
        let leader = shared.clone();
        let background =
            thread("bearing-idle").spawn(move || leader.run_background()).map_err(ConnectError::Thread)?;
        let mount = Mount { shared, background: Some(background) };
        mount.first_answer(config)?;
        Ok(mount)
    }

    fn first_answer(&self, config: &MountConfig) -> Result<(), ConnectError> {
        let begun = self.shared.clock.mono();
        let ask =
            |wait: Duration| self.shared.run(vec![Operation::Root], Some(begun.after(wait))).pop().flatten();
        let heard = || self.shared.heard.load(Ordering::Relaxed);
        // Who answers at all gets the time that it needs; a wrong address is seen to be wrong soon.
        let mut answer = ask(config.connect_wait.min(SILENCE_WAIT));
        if answer.is_none() && heard() {
            answer = ask(config.connect_wait);
        }
        let tried = config.seeds.clone();
        match answer {
            Some(Ok(_)) => Ok(()),
            None | Some(Err(Code::Unreachable)) if heard() => {
                Err(ConnectError::NotServed { tried, waited: config.connect_wait })
            }
            None | Some(Err(Code::Unreachable)) => {
                Err(ConnectError::Unreachable { seen: probe::look(&config.seeds) })
            }
            Some(Err(Code::Unauthenticated)) => Err(ConnectError::WrongSecret { tried }),
            Some(Err(code)) => match self.shared.lock().refusal() {
                Some(Refusal::Version { speaks }) => Err(ConnectError::Version { tried, speaks }),
                _ => Err(ConnectError::Root(code)),
            },
        }
    }

    /// The session, if there is one at the moment.
    pub fn session(&self) -> Option<SessionId> {
        self.shared.post.session()
    }

    /// Puts a cache above this mount; from now on the machine makes it forget what is recalled.
    pub fn set_kernel_cache(&self, cache: Arc<dyn KernelCache>) {
        self.shared.cache.set(Some(cache));
    }

    /// The cache above is gone.
    pub fn forget_kernel_cache(&self) {
        self.shared.cache.set(None);
    }

    /// Makes everything stable and ends the session. Later operations fail with [`Code::SessionEnded`].
    pub fn end(&self) -> Outcome<()> {
        self.done(Operation::End)
    }

    /// Takes what the machine found worth telling since the last call (at most the last 256 notes).
    pub fn take_notes(&self) -> Vec<Note> {
        self.shared.lock().take_notes()
    }

    /// What the machine counted.
    pub fn client_counters(&self) -> bearing_client::Counters {
        self.shared.lock().counters()
    }

    /// What this mount counted.
    pub fn counters(&self) -> MountCounters {
        MountCounters {
            packets_refused: self.shared.post.packets_refused(),
            invalidations_failed: self.shared.invalidations_failed.load(Ordering::Relaxed),
            answered_by_asker: self.shared.answered_by_asker.load(Ordering::Relaxed),
            answered_by_others: self.shared.answered_by_others.load(Ordering::Relaxed),
        }
    }
}

impl Caller for Mount {
    fn call(&self, operation: Operation) -> Outcome<Answer> {
        self.call_all(vec![operation]).pop().expect("one operation has one answer")
    }

    fn call_while(&self, operation: Operation, is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer> {
        self.shared.run_while(operation, is_wanted)
    }

    fn call_all(&self, operations: Vec<Operation>) -> Vec<Outcome<Answer>> {
        let answers = self.shared.run(operations, None);
        answers
            .into_iter()
            .map(|answer| answer.expect("without a limit all answers are waited for"))
            .collect()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.lock().stop();
        self.shared.background.notify_all();
        self.shared.post.wake();
        if let Some(background) = self.background.take() {
            // A panic of it was reported when it happened.
            let _ = background.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("the client machine has panicked; nothing it says can be trusted")
    }

    /// Runs operations and waits for their answers, or until a time; what is missing then is given up.
    fn run(&self, operations: Vec<Operation>, until: Option<Mono>) -> Vec<Option<Outcome<Answer>>> {
        let mut errands = Vec::new();
        let mut core = self.lock();
        let group = core.begin(self.clock.now(), operations, &self.post, &mut errands);
        let mut has_led = false;
        loop {
            if core.is_answered(group) || until.is_some_and(|until| until <= self.clock.mono()) {
                let answers = core.end(group);
                core.call_a_leader();
                let wakes = core.leader_sleeps_too_long();
                drop(core);
                self.deliver(errands);
                if wakes {
                    self.post.wake();
                }
                let counter = if has_led { &self.answered_by_asker } else { &self.answered_by_others };
                counter.fetch_add(1, Ordering::Relaxed);
                return answers;
            }
            core.waits += 1;
            core.tick(self.clock.now(), &self.post, &mut errands);
            if !errands.is_empty() {
                drop(core);
                self.deliver(std::mem::take(&mut errands));
                core = self.lock();
            } else if core.is_led {
                has_led = false;
                core = self.follow(core, group, until);
            } else {
                has_led = true;
                core = self.lead(core, until);
            }
        }
    }

    /// Runs an operation that may wait for long, and looks now and then whether its answer is wanted.
    fn run_while(&self, operation: Operation, is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer> {
        let mut errands = Vec::new();
        let mut core = self.lock();
        let group = core.begin(self.clock.now(), vec![operation], &self.post, &mut errands);
        let mut look = Some(self.clock.mono().after(LOOK_EVERY));
        loop {
            if core.is_answered(group) {
                let answer = core.end(group).pop().flatten();
                core.call_a_leader();
                let wakes = core.leader_sleeps_too_long();
                drop(core);
                self.deliver(errands);
                if wakes {
                    self.post.wake();
                }
                return answer.expect("the group is answered");
            }
            core.waits += 1;
            core.tick(self.clock.now(), &self.post, &mut errands);
            if !errands.is_empty() {
                drop(core);
                self.deliver(std::mem::take(&mut errands));
                core = self.lock();
            } else if look.is_some_and(|look| look <= self.clock.mono()) {
                drop(core);
                let wanted = is_wanted();
                core = self.lock();
                look = wanted.then(|| self.clock.mono().after(LOOK_EVERY));
                if !wanted {
                    core.give_up_waiting(self.clock.now(), group, &self.post, &mut errands);
                }
            } else if core.is_led {
                core = self.follow(core, group, look);
            } else {
                core = self.lead(core, look);
            }
        }
    }

    /// Waits until the group is answered, the lead is free, or a time has come.
    fn follow<'a>(
        &self,
        core: MutexGuard<'a, Core>,
        group: GroupId,
        until: Option<Mono>,
    ) -> MutexGuard<'a, Core> {
        let wait = self.wait_until(core.next_wake(), until);
        let Some(bell) = core.bell(group) else { return core };
        let waited = bell.wait_timeout(core, wait);
        waited.expect("the client machine has panicked; nothing it says can be trusted").0
    }

    /// How long to wait for what comes first: the machine's time, ours, or the longest wait.
    fn wait_until(&self, wake: Option<Mono>, until: Option<Mono>) -> Duration {
        let now = self.clock.mono();
        let next = [wake, until].into_iter().flatten().min();
        next.map_or(WAIT_MAX, |next| next.since(now).min(WAIT_MAX))
    }

    /// Waits for the socket once and steps the machine with what came.
    fn lead<'a>(&'a self, mut core: MutexGuard<'a, Core>, until: Option<Mono>) -> MutexGuard<'a, Core> {
        core.is_led = true;
        let wait = self.wait_until(core.next_wake(), until);
        core.led_until = Some(self.clock.mono().after(wait));
        drop(core);
        let lead = Lead(self);
        let (events, received) = self.receive(wait);
        let mut core = self.lock();
        let mut errands = Vec::new();
        let now = self.clock.now();
        if received.is_err() {
            core.give_up();
        }
        for event in events {
            core.step(now, event, &self.post, &mut errands);
        }
        if !errands.is_empty() {
            drop(core);
            self.deliver(errands);
            core = self.lock();
        }
        // Given up under the lock: the caller leads on, or calls another.
        core.is_led = false;
        std::mem::forget(lead);
        core
    }

    fn receive(&self, wait: Duration) -> (Vec<Event>, io::Result<()>) {
        let mut driver = self.driver.lock().expect("a thread that led has panicked");
        let Driver { endpoint, incoming } = &mut *driver;
        let mut lost = self.post.hand_over(endpoint);
        let wait = if lost.is_empty() { wait } else { Duration::ZERO };
        let received = endpoint.receive(Some(wait), incoming);
        let mut failed = Vec::new();
        endpoint.take_failures(&mut failed);
        lost.extend(self.post.take_failures(&failed));
        let mut events = Vec::new();
        for Incoming { peer, bytes, bulk, .. } in incoming.drain(..) {
            events.append(&mut self.post.open(peer, &bytes, bulk));
            self.heard.fetch_or(!events.is_empty(), Ordering::Relaxed);
            endpoint.recycle(bytes);
        }
        // After the answers: a peer may have answered before it broke the connection.
        events.extend(lost.into_iter().map(Event::Unreachable));
        (events, received)
    }

    /// Sends errands, and tells the machine whom they cannot reach.
    fn deliver(&self, errands: Vec<Errand>) {
        let mut unreachable = self.post.send(errands);
        while !unreachable.is_empty() {
            let errands = self.tell_unreachable(unreachable);
            unreachable = self.post.send(errands);
        }
    }

    fn tell_unreachable(&self, servers: Vec<ServerId>) -> Vec<Errand> {
        let mut errands = Vec::new();
        let mut core = self.lock();
        for server in servers {
            core.step(self.clock.now(), Event::Unreachable(server), &self.post, &mut errands);
        }
        errands
    }

    fn forgotten(&self, number: u64, failures: u64) {
        self.invalidations_failed.fetch_add(failures, Ordering::Relaxed);
        let mut errands = Vec::new();
        self.lock().step(self.clock.now(), Event::Invalidated(number), &self.post, &mut errands);
        self.deliver(errands);
    }

    /// Leads while nobody waits for an answer.
    fn run_background(&self) {
        let mut core = self.lock();
        let mut waits = core.waits;
        while !core.is_stopping {
            let mut errands = Vec::new();
            core.tick(self.clock.now(), &self.post, &mut errands);
            if !errands.is_empty() {
                drop(core);
                self.deliver(errands);
                core = self.lock();
                continue;
            }
            let is_idle = waits == core.waits && !core.is_led && !core.is_waited_for();
            waits = core.waits;
            if is_idle && !core.is_broken {
                core = self.lead(core, None);
                core.call_a_leader();
            } else {
                let waited = self.background.wait_timeout(core, IDLE);
                core = waited.expect("the client machine has panicked; nothing it says can be trusted").0;
            }
        }
    }
}
