//! Requests to metadata servers: numbered, sent, sent again, referred, retried, given up.
//!
//! Invariants: a request keeps its number whatever happens to it, so that a mutation is executed at most once; `finished_below` never passes
//! an outstanding one; every outstanding request has one time set. What a request asks is not looked at here, except for how it travels.

use crate::event::{Command, Target, Transport};
use crate::hub::{Hub, State};
use crate::lease::{Mark, Stamp};
use crate::session::Phase;
use crate::task::{Promise, promise};
use crate::timer::Timer;
use bearing_lookup::Located;
use bearing_proto::Message;
use bearing_proto::client::{Answer, Body, Call, LeaseKey, Reply, Request, XattrChange};
use bearing_types::{Block, Code, Epoch, Mono, NodeId, Position, Sequence, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Groups and extents beyond which a request goes over a stream at once: it would not fit a datagram.
const DATAGRAM_ITEMS_MAX: usize = 24;
/// Bytes of a symbolic link's target beyond which the same holds.
const DATAGRAM_TARGET_BYTES_MAX: usize = 512;
/// Referrals followed at once; after that, with pauses.
const REFERRALS_AT_ONCE: u32 = 4;
/// Resends after which the map is asked for again.
const RESENDS_BEFORE_MAP: u32 = 2;
/// Pauses after "retry" stay short for so many times.
const RETRIES_SOON: u32 = 10;
/// So many times a request without an answer is sent again after the first pause; then pauses double.
const RESENDS_SOON: u32 = 9;

/// What came back, and when it was asked.
#[derive(Debug)]
pub(crate) struct Answered {
    pub body: Body,
    pub stamp: Stamp,
}

/// Who shall answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    /// The owner of the position.
    Owner,
    /// Any metadata server.
    Anybody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// To be sent at the end of this step.
    Sending,
    /// For an answer.
    Answer,
    /// For the end of a pause.
    Pause,
    /// For a map that says who owns the position.
    Map,
}

struct Outstanding {
    whom: Whom,
    position: Position,
    call: Call,
    transport: Transport,
    waits: Waits,
    sent_to: Option<(ServerId, Epoch)>,
    /// The newest epoch it was sent under.
    epoch: Epoch,
    first_sent: Option<(Mono, Mark)>,
    /// What was finished when the request was made, if it says whether a file is open: that is of this moment, however late it is sent.
    as_of: Option<Sequence>,
    sends: u32,
    retries: u32,
    referrals: u32,
    due: Mono,
    deadline: Mono,
    promise: Promise<Result<Answered, Code>>,
}

/// All outstanding requests.
pub(crate) struct Requests {
    outstanding: BTreeMap<Sequence, Outstanding>,
    next: Sequence,
    sending: Vec<Sequence>,
}

impl Requests {
    pub fn new() -> Requests {
        Requests { outstanding: BTreeMap::new(), next: Sequence(1), sending: Vec::new() }
    }

    /// The oldest mark of a request that may still be answered.
    pub fn oldest_mark(&self) -> Option<Mark> {
        self.outstanding.values().filter_map(|request| request.first_sent).map(|(_, mark)| mark).min()
    }

    /// A number for a change that is no request of its own.
    pub fn take_number(&mut self) -> Sequence {
        let number = self.next;
        self.next = number.next();
        number
    }

    /// All requests below this one are finished: their replies were taken, or never will be.
    pub fn finished_below(&self) -> Sequence {
        self.outstanding.first_key_value().map_or(self.next, |(sequence, _)| *sequence)
    }
}

impl Hub {
    /// Asks the owner of a position.
    pub async fn call(&self, position: Position, call: Call) -> Result<Answered, Code> {
        self.past_lapse(position).await;
        self.past_fence(position).await;
        self.call_past_fence(position, call).await
    }

    /// The same for what ends the waiting of all others.
    pub async fn call_past_fence(&self, position: Position, call: Call) -> Result<Answered, Code> {
        let patience = self.with(|state| state.patience_for(&call));
        self.ask(Whom::Owner, position, call, patience).await
    }

    /// The same for what is not worth waiting for as long as for others.
    pub async fn call_within(
        &self,
        position: Position,
        call: Call,
        patience: Duration,
    ) -> Result<Answered, Code> {
        self.ask(Whom::Owner, position, call, patience).await
    }

    /// Asks any metadata server.
    pub async fn call_anybody(&self, call: Call) -> Result<Answered, Code> {
        let patience = self.with(|state| state.config.request_deadline);
        self.ask(Whom::Anybody, Position(0), call, patience).await
    }

    /// Asks for a change of what these keys lease. They are dropped here before it is sent; `take` may take new leases from the reply.
    /// If the request was given up, a server may carry it out later: then nothing that was leased is believed, and these keys count as
    /// changing for a while yet.
    pub async fn change<R>(
        &self,
        keys: Vec<LeaseKey>,
        position: Position,
        call: Call,
        take: impl FnOnce(&mut State, Answered) -> R,
    ) -> Result<R, Code> {
        // A directory may have become ours since the operation found that it is not.
        let held = |state: &mut State| {
            keys.iter().find_map(|key| match key {
                LeaseKey::Content(directory) => state.delegations.is_ours(*directory).then_some(*directory),
                _ => None,
            })
        };
        let by_itself = changed_by_itself(&call);
        loop {
            if let Some(directory) = self.with(held) {
                // Boxed, because what is written out on the way is a change too, of files alone.
                Box::pin(self.suspend(directory)).await;
            } else if let Some(node) =
                self.with(|state| by_itself.filter(|node| state.delegations.is_our_node(*node)))
            {
                Box::pin(self.publish_node(node)).await;
            } else {
                break;
            }
        }
        self.with(|state| {
            state.cache.forget(&keys);
            state.leases.begin_change(&keys);
        });
        let patience = self.with(|state| state.patience_for(&call));
        let answered = self.call(position, call).await;
        if matches!(answered, Err(Code::Unreachable)) {
            self.with(State::drop_all_leased);
            let hub = self.clone();
            self.with(|state| state.spawn(hub.end_doubtful_change(keys, patience)));
            return Err(Code::Unreachable);
        }
        self.with(|state| {
            let result = answered.map(|mut answered| {
                answered.stamp.own_change = true;
                take(state, answered)
            });
            state.changed(&keys);
            result
        })
    }

    /// Ends a change of which it was never heard whether it happened: when it is as old again as when it was given up.
    async fn end_doubtful_change(self, keys: Vec<LeaseKey>, patience: Duration) {
        self.sleep(patience).await;
        self.with(|state| state.changed(&keys));
    }

    async fn ask(
        &self,
        whom: Whom,
        position: Position,
        call: Call,
        patience: Duration,
    ) -> Result<Answered, Code> {
        let (promise, awaited) = promise();
        self.with(|state| match state.session.phase() {
            Phase::Over(code) => promise.keep(Err(code)),
            // Of a session that is gone: what it began cannot go on in another one.
            Phase::Enrolling | Phase::Lost => promise.keep(Err(Code::Io)),
            Phase::Opening | Phase::Open => state.begin_request((whom, position), call, patience, promise),
        });
        awaited.await
    }
}

impl State {
    /// How long a call is tried. What stores bytes and names that a program was told are written is tried for
    /// longer than a server is away, except when the session is being ended.
    fn patience_for(&self, call: &Call) -> Duration {
        let stores = match call {
            Call::Commit { .. } | Call::OpenChunk { .. } | Call::SealChunk { .. } => true,
            Call::Delegated { over, .. } => !over,
            _ => false,
        };
        if stores && !self.session.is_ending() {
            self.config.write_deadline
        } else {
            self.config.request_deadline
        }
    }

    /// From now on nothing is tried for longer than any other request.
    pub fn begin_end(&mut self) {
        self.session.begin_end();
        let latest = self.now.mono.after(self.config.request_deadline);
        let late = self.requests.outstanding.iter_mut().filter(|(_, request)| request.deadline > latest);
        for (sequence, request) in late {
            request.deadline = latest;
            if request.due > latest {
                self.timers.cancel(request.due, Timer::Request(*sequence));
                request.due = latest;
                self.timers.set(latest, Timer::Request(*sequence));
            }
        }
    }

    fn changed(&mut self, keys: &[LeaseKey]) {
        self.leases.end_change(keys);
        self.prune_leases();
        self.plan_renewals_of(keys);
    }

    fn begin_request(
        &mut self,
        (whom, position): (Whom, Position),
        call: Call,
        patience: Duration,
        promise: Promise<Result<Answered, Code>>,
    ) {
        let sequence = self.requests.next;
        let finished_below = self.requests.finished_below();
        self.requests.next = sequence.next();
        let deadline = self.now.mono.after(patience);
        let request = Outstanding {
            whom,
            position,
            transport: transport_of(&call),
            as_of: says_open(&call).then_some(finished_below),
            call,
            waits: Waits::Sending,
            sent_to: None,
            epoch: Epoch(0),
            first_sent: None,
            sends: 0,
            retries: 0,
            referrals: 0,
            due: deadline,
            deadline,
            promise,
        };
        self.timers.set(deadline, Timer::Request(sequence));
        self.requests.outstanding.insert(sequence, request);
        self.requests.sending.push(sequence);
        self.counters.requests += 1;
    }

    /// Sends what is to be sent, requests for one tablet next to each other. The end of every step.
    pub fn send_requests(&mut self) {
        let mut sending = std::mem::take(&mut self.requests.sending);
        let mut routed: Vec<_> = sending
            .drain(..)
            .filter_map(|sequence| self.route(sequence).map(|route| (route, sequence)))
            .collect();
        routed.sort();
        for ((to, transport, _), sequence) in routed {
            self.send_request(sequence, to, transport);
        }
        // Nothing was added meanwhile; this only keeps the buffer.
        self.requests.sending = sending;
    }

    fn route(&mut self, sequence: Sequence) -> Option<(Target, Transport, Block)> {
        let request = self.requests.outstanding.get_mut(&sequence)?;
        if request.whom == Whom::Anybody {
            // Every other time somebody else than the shell's choice, in case all addresses it was given are gone.
            let known = if request.sends % 2 == 1 {
                self.routes.some_metadata_server(&mut self.random)
            } else {
                None
            };
            request.sent_to = None;
            let to = known.map_or(Target::AnySeed, Target::Server);
            return Some((to, request.transport, Block::RING));
        }
        match self.routes.locate(request.position) {
            Some(Located { block, epoch, owner }) => {
                request.sent_to = Some((owner, epoch));
                Some((Target::Server(owner), request.transport, block))
            }
            None => {
                self.wait_for_map(sequence);
                None
            }
        }
    }

    fn send_request(&mut self, sequence: Sequence, to: Target, transport: Transport) {
        let finished_below = self.requests.finished_below();
        let Some(request) = self.requests.outstanding.get_mut(&sequence) else { return };
        request.waits = Waits::Answer;
        request.first_sent.get_or_insert((self.now.mono, self.leases.mark()));
        let epoch = request.sent_to.map_or(Epoch(0), |(_, epoch)| epoch);
        request.epoch = request.epoch.max(epoch);
        let message = Message::Request(Request {
            sequence,
            finished_below: request.as_of.unwrap_or(finished_below),
            position: request.position,
            epoch,
            call: request.call.clone(),
        });
        let tries = request.sends;
        request.sends += 1;
        let step = match &request.call {
            Call::Commit { .. } => Some("commit sent"),
            call if call.mutates() => Some("change sent"),
            _ => None,
        };
        let pause = self.resend_pause(tries);
        self.pause_request(sequence, pause);
        self.out.push(Command::Send { to, transport, message, attachment: Vec::new() });
        step.into_iter().for_each(|name| self.step(name));
    }

    /// The pause before a request without an answer is sent again. A server that is started again is back
    /// within a second: that long the pauses stay short.
    fn resend_pause(&mut self, sends: u32) -> Duration {
        let (first, max) = (self.config.resend_pause, self.config.resend_pause_max);
        self.random.backed_off(first, max, sends.saturating_sub(RESENDS_SOON))
    }

    fn wait_for_map(&mut self, sequence: Sequence) {
        let pause = self.config.map_pause;
        let pause = self.random.jittered(pause);
        if let Some(request) = self.requests.outstanding.get_mut(&sequence) {
            request.waits = Waits::Map;
            self.pause_request(sequence, pause);
            self.want_map(true);
        }
    }

    /// Sets the time at which a request is looked at again.
    fn pause_request(&mut self, sequence: Sequence, pause: Duration) {
        let Some(request) = self.requests.outstanding.get_mut(&sequence) else { return };
        self.timers.cancel(request.due, Timer::Request(sequence));
        request.due = self.now.mono.after(pause).min(request.deadline);
        self.timers.set(request.due, Timer::Request(sequence));
    }

    fn send_again(&mut self, sequence: Sequence) {
        if let Some(request) = self.requests.outstanding.get_mut(&sequence)
            && request.waits != Waits::Sending
        {
            request.waits = Waits::Sending;
            self.requests.sending.push(sequence);
        }
    }

    /// A request's time has come.
    pub fn request_due(&mut self, sequence: Sequence) {
        let Some(request) = self.requests.outstanding.get(&sequence) else { return };
        if self.now.mono >= request.deadline {
            self.counters.deadlines += 1;
            self.finish_request(sequence, Err(Code::Unreachable));
            return;
        }
        if request.waits == Waits::Answer {
            self.counters.resends += 1;
            if request.whom == Whom::Owner && request.sends >= RESENDS_BEFORE_MAP {
                self.want_map(false);
            }
        }
        self.send_again(sequence);
    }

    /// A newer map is here: requests that waited for it go out.
    pub fn map_came(&mut self) {
        let waiting: Vec<_> = self
            .requests
            .outstanding
            .iter()
            .filter(|(_, request)| request.waits == Waits::Map)
            .map(|(sequence, _)| *sequence)
            .collect();
        for sequence in waiting {
            self.send_again(sequence);
        }
    }

    /// A hint that a server cannot be reached: its requests are looked at soon, perhaps under a newer map.
    pub fn hurry_requests(&mut self, server: ServerId) {
        let concerned: Vec<_> = self
            .requests
            .outstanding
            .iter()
            .filter(|(_, request)| {
                request.waits == Waits::Answer && request.sent_to.is_some_and(|(to, _)| to == server)
            })
            .map(|(sequence, request)| (*sequence, request.sends))
            .collect();
        if !concerned.is_empty() {
            self.want_map(false);
        }
        for (sequence, sends) in concerned {
            let pause = self.resend_pause(sends.saturating_sub(1));
            let due = self.requests.outstanding.get(&sequence).map(|request| request.due);
            if due.is_some_and(|due| due > self.now.mono.after(pause)) {
                self.pause_request(sequence, pause);
            }
        }
    }

    /// A reply came.
    pub fn take_reply(&mut self, from: Target, reply: Reply) {
        let sequence = reply.sequence;
        let Some(request) = self.requests.outstanding.get(&sequence) else {
            self.counters.late_replies += 1;
            return;
        };
        let waits_for_it = request.waits == Waits::Answer;
        match reply.answer {
            // Refusals are not logged: whoever serves the tablet since then may know nothing of this one, and do what was sent to it.
            Answer::Done { epoch, result: Err(_), .. } if request.call.mutates() && epoch < request.epoch => {
                self.counters.late_replies += 1;
            }
            Answer::Done { tablet, epoch, result } => {
                if let (Target::Server(owner), Whom::Owner) = (from, request.whom) {
                    self.routes.learn(Located { block: tablet, epoch, owner });
                }
                self.take_result(sequence, result);
            }
            // Whatever else a reply says, it says of one sending. If that is dealt with already, it says nothing new.
            _ if !waits_for_it => {}
            Answer::Retry { after_us } => self.retry_later(sequence, after_us),
            Answer::Referral { tablet, epoch, owner } => {
                self.follow_referral(sequence, Located { block: tablet, epoch, owner });
            }
            Answer::Unknown => self.wait_for_map(sequence),
            Answer::TooLarge => self.go_by_stream(sequence),
        }
    }

    fn take_result(&mut self, sequence: Sequence, result: Result<Box<Body>, Code>) {
        let Some(request) = self.requests.outstanding.get(&sequence) else { return };
        if result == Err(Code::SessionEnded) {
            self.session_ended();
            return;
        }
        let (sent, mark) = request.first_sent.unwrap_or((self.now.mono, self.leases.mark()));
        let stamp = Stamp { sent, mark, own_change: false };
        self.finish_request(sequence, result.map(|body| Answered { body: *body, stamp }));
    }

    fn finish_request(&mut self, sequence: Sequence, result: Result<Answered, Code>) {
        if let Some(request) = self.requests.outstanding.remove(&sequence) {
            self.timers.cancel(request.due, Timer::Request(sequence));
            request.promise.keep(result);
        }
    }

    /// What was lent under an incarnation is lost: what is asked about it is not sent again. What is on its way is refused when its owner has heard of that.
    pub fn give_up_lent(&mut self, lost: u64) {
        let of_it = |(sequence, request): (&Sequence, &Outstanding)| match request.call {
            Call::Delegate { incarnation, .. } | Call::Delegated { incarnation, .. } => {
                (incarnation == lost).then_some(*sequence)
            }
            _ => None,
        };
        let given_up: Vec<Sequence> = self.requests.outstanding.iter().filter_map(of_it).collect();
        for sequence in given_up {
            self.finish_request(sequence, Err(Code::Stale));
        }
    }

    /// The session is over: so is every request.
    pub fn fail_requests(&mut self, code: Code) {
        self.requests.sending.clear();
        while let Some((sequence, request)) = self.requests.outstanding.pop_first() {
            self.timers.cancel(request.due, Timer::Request(sequence));
            request.promise.keep(Err(code));
        }
    }

    fn retry_later(&mut self, sequence: Sequence, after_us: u32) {
        self.counters.retries += 1;
        let Some(request) = self.requests.outstanding.get_mut(&sequence) else { return };
        let retries = request.retries;
        request.retries += 1;
        request.waits = Waits::Pause;
        // What a server waits for mostly takes some tens of milliseconds.
        let config = &self.config;
        let soon = retries < RETRIES_SOON;
        let limit = if soon { config.retry_pause_soon_max } else { config.retry_pause_max };
        let own = self.random.backed_off(self.config.retry_pause, limit, retries);
        self.pause_request(sequence, own.max(Duration::from_micros(u64::from(after_us))));
    }

    fn follow_referral(&mut self, sequence: Sequence, located: Located) {
        self.counters.referrals += 1;
        self.routes.learn(located);
        let Some(request) = self.requests.outstanding.get_mut(&sequence) else { return };
        let known = self.routes.locate(request.position).map(|known| (known.owner, known.epoch));
        let news = known.is_some() && known != request.sent_to;
        request.referrals += 1;
        if news && request.referrals <= REFERRALS_AT_ONCE {
            self.send_again(sequence);
            return;
        }
        // Two servers point at each other, or nobody knows yet: wait a little, and ask for the map.
        let referrals = request.referrals;
        request.waits = Waits::Pause;
        let pause = self.random.backed_off(self.config.retry_pause, self.config.retry_pause_max, referrals);
        self.pause_request(sequence, pause);
        self.want_map(false);
    }

    fn go_by_stream(&mut self, sequence: Sequence) {
        let Some(request) = self.requests.outstanding.get_mut(&sequence) else { return };
        // It was told before, and goes by stream already: the network brought that answer twice.
        if request.transport == Transport::Stream {
            return;
        }
        request.transport = Transport::Stream;
        self.send_again(sequence);
    }

    /// Forgets recalls that no request can meet, now and then.
    pub fn prune_leases(&mut self) {
        if self.leases.wants_pruning() {
            self.leases.prune(self.requests.oldest_mark());
        }
    }
}

/// Whether a call says if the client has a file open.
fn says_open(call: &Call) -> bool {
    matches!(call, Call::Unlink { .. } | Call::Rename { .. })
}

/// The node that a call changes wherever it is found, and not as an entry of a directory that the call names. If it is lent to us with some directory, its home
/// changes what we would go on to show as it was. Extents that are committed are no such change, and nobody may wait for the kernel with them.
fn changed_by_itself(call: &Call) -> Option<NodeId> {
    match call {
        Call::Link { node, .. }
        | Call::SetAttributes { node, .. }
        | Call::SetXattr { node, .. }
        | Call::MakeHole { node, .. } => Some(node.node),
        _ => None,
    }
}

/// Calls whose request or answer does not fit a datagram go over a stream at once.
fn transport_of(call: &Call) -> Transport {
    let large = match call {
        Call::Map { .. }
        | Call::List { .. }
        | Call::Ahead { .. }
        | Call::Extents { .. }
        | Call::Delegate { .. }
        | Call::Delegated { .. } => true,
        Call::Commit { extents, .. } => extents.len() > DATAGRAM_ITEMS_MAX,
        Call::Create { new, who, .. } => {
            new.target.len() > DATAGRAM_TARGET_BYTES_MAX || who.groups.len() > DATAGRAM_ITEMS_MAX
        }
        Call::SetXattr { who, change, .. } => {
            let bytes = match change {
                XattrChange::Set { value, .. } => value.len(),
                XattrChange::Remove => 0,
            };
            bytes > DATAGRAM_TARGET_BYTES_MAX || who.groups.len() > DATAGRAM_ITEMS_MAX
        }
        Call::Lookup { who, .. }
        | Call::MakeDirectory { who, .. }
        | Call::Unlink { who, .. }
        | Call::RemoveDirectory { who, .. }
        | Call::Link { who, .. }
        | Call::Rename { who, .. }
        | Call::SetAttributes { who, .. }
        | Call::Xattr { who, .. }
        | Call::Xattrs { who, .. }
        | Call::Chunks { who, .. }
        | Call::SetQuota { who, .. }
        | Call::Open { who, .. } => who.groups.len() > DATAGRAM_ITEMS_MAX,
        Call::OpenSession
        | Call::RenewSession
        | Call::CloseSession
        | Call::Root { .. }
        | Call::Directory { .. }
        | Call::Attributes { .. }
        | Call::ReadLink { .. }
        | Call::Release { .. }
        | Call::OpenChunk { .. }
        | Call::Chunk { .. }
        | Call::SealChunk { .. }
        | Call::FinishChunk { .. }
        | Call::MakeHole { .. }
        | Call::Accessed { .. }
        | Call::Lock { .. }
        | Call::Unlock { .. }
        | Call::TestLock { .. }
        | Call::StopWaiting { .. }
        | Call::Place { .. }
        | Call::Quota { .. }
        | Call::Describe { .. }
        | Call::Statfs => false,
    };
    if large { Transport::Stream } else { Transport::Datagram }
}
