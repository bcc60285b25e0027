//! Requests to metadata servers: numbered, sent, sent again, referred, retried, given up.
//!
//! Invariants: a request keeps its number whatever happens to it, so that a mutation is executed at most
//! once; `finished_below` never passes an outstanding one; every outstanding request has one time set. What a
//! request asks is not looked at here, except for how it travels.

use super::lease::{Mark, Stamp};
use super::routes::Routes;
use super::transport::transport_of;
use crate::event::{Command, Note, Target, Transport};
use crate::run::{Awaited, Io, Promise, Timer, promise};
use bearing_lookup::Located;
use bearing_proto::Message;
use bearing_proto::client::{Answer, Body, Call, ChangedDirectory, Reply, Request};
use bearing_types::{Block, Code, Epoch, MapVersion, Mono, Position, Sequence, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Referrals followed at once; after that, with pauses.
const REFERRALS_AT_ONCE: u32 = 4;
/// Resends after which the map is asked for again.
const RESENDS_BEFORE_MAP: u32 = 2;
/// From so many resends on a request goes to whoever may take over from the owner too: where it is by then,
/// it is answered at once.
const RESENDS_BEFORE_SUCCESSORS: u32 = 2;
/// Pauses after "retry" stay short for so many times.
const RETRIES_SOON: u32 = 10;
/// So many times a request without an answer is sent again after the first pause; then pauses double.
const RESENDS_SOON: u32 = 9;

/// What came back, and when it was asked.
#[derive(Debug)]
pub(crate) struct Answered {
    pub body: Body,
    /// Directories that a change changed.
    pub changed: Vec<ChangedDirectory>,
    pub stamp: Stamp,
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
    /// Whose owner is asked; `None`: any metadata server.
    position: Option<Position>,
    call: Call,
    transport: Transport,
    waits: Waits,
    sent_to: Option<(ServerId, Epoch)>,
    /// It went where the cluster's lookup says, instead of to whom it is sent to otherwise.
    by_lookup: bool,
    /// The newest epoch it was sent under.
    epoch: Epoch,
    first_sent: Option<(Mono, Mark)>,
    /// Whom it went to first.
    first_to: Option<Target>,
    /// How often it was sent.
    sent: u32,
    /// What was finished when the request was made, if it says whether a file is open: that is of this
    /// moment, however late it is sent.
    as_of: Option<Sequence>,
    /// Sendings in a row that whom they went to did not answer.
    sends: u32,
    retries: u32,
    referrals: u32,
    due: Mono,
    deadline: Mono,
    promise: Promise<Result<Answered, Code>>,
}

impl Outstanding {
    /// How it found who answers.
    fn looked(&self, from: Target, now: Mono) -> Option<Note> {
        let (Target::Server(answered), Some((sent, _))) = (from, self.first_sent) else { return None };
        let (position, first, after) = (self.position?, self.first_to?, now.since(sent));
        Some(Note::Looked { position, first, answered, sends: self.sent, after })
    }

    /// Whether it waits for a server that does not own its position any more.
    fn is_elsewhere(&self, routes: &Routes) -> bool {
        let (Some(position), Some((asked, epoch))) = (self.position, self.sent_to) else { return false };
        // Where servers point at each other, there are pauses.
        let waits = self.waits != Waits::Sending && self.referrals < REFERRALS_AT_ONCE;
        let located = routes.locate(position);
        waits && located.is_some_and(|located| located.owner != asked && located.epoch > epoch)
    }
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

    /// The number of the next request.
    pub fn next(&self) -> Sequence {
        self.next
    }

    /// All requests below this one are finished: their replies were taken, or never will be.
    pub fn finished_below(&self) -> Sequence {
        self.outstanding.first_key_value().map_or(self.next, |(sequence, _)| *sequence)
    }

    /// From now on nothing is tried for longer than any other request.
    pub fn begin_end(&mut self, io: &mut Io) {
        let latest = io.now.mono.after(io.config.request_timeout);
        let late = self.outstanding.iter_mut().filter(|(_, request)| request.deadline > latest);
        for (sequence, request) in late {
            request.deadline = latest;
            if request.due > latest {
                io.timers.cancel(request.due, Timer::Request(*sequence));
                request.due = latest;
                io.timers.set(latest, Timer::Request(*sequence));
            }
        }
    }

    /// Asks the owner of a position, or any metadata server: at the end of this step, and for so long at
    /// most.
    pub fn ask(
        &mut self,
        position: Option<Position>,
        call: Call,
        patience: Duration,
        io: &mut Io,
    ) -> Awaited<Result<Answered, Code>> {
        let (promise, awaited) = promise();
        let sequence = self.next;
        let finished_below = self.finished_below();
        self.next = sequence.next();
        let deadline = io.now.mono.after(patience);
        let request = Outstanding {
            position,
            transport: transport_of(&call),
            as_of: says_open(&call).then_some(finished_below),
            call,
            waits: Waits::Sending,
            sent_to: None,
            by_lookup: false,
            epoch: Epoch(0),
            first_sent: None,
            first_to: None,
            sent: 0,
            sends: 0,
            retries: 0,
            referrals: 0,
            due: deadline,
            deadline,
            promise,
        };
        io.timers.set(deadline, Timer::Request(sequence));
        self.outstanding.insert(sequence, request);
        self.sending.push(sequence);
        io.counters.requests += 1;
        awaited
    }

    /// Sends what is to be sent, requests for one tablet next to each other. The end of every step.
    pub fn send(&mut self, io: &mut Io, routes: &mut Routes, mark: Mark) {
        let mut sending = std::mem::take(&mut self.sending);
        let routed =
            sending.drain(..).filter_map(|sequence| Some((self.route(sequence, io, routes)?, sequence)));
        let mut routed: Vec<_> = routed.collect();
        routed.sort();
        for ((to, transport, _), sequence) in routed {
            self.send_one(sequence, (to, transport), mark, io, routes);
        }
        // Nothing was added meanwhile; this only keeps the buffer.
        self.sending = sending;
    }

    fn route(
        &mut self,
        sequence: Sequence,
        io: &mut Io,
        routes: &mut Routes,
    ) -> Option<(Target, Transport, Block)> {
        let request = self.outstanding.get_mut(&sequence)?;
        let Some(position) = request.position else {
            // Every other time somebody else than the shell's choice, in case all addresses it was given are
            // gone.
            let known =
                if request.sends % 2 == 1 { routes.some_metadata_server(&mut io.random) } else { None };
            request.sent_to = None;
            let to = known.map_or(Target::AnySeed, Target::Server);
            return Some((to, request.transport, Block::RING));
        };
        match routes.locate(position) {
            Some(Located { block, epoch, owner }) => {
                let now = io.now.mono;
                if std::mem::take(&mut request.by_lookup) {
                    routes.was_brought(now, false);
                }
                request.sent_to = Some((owner, epoch));
                // What nobody answered, and what does not fit a datagram, goes to the owner itself.
                let first = (request.sends == 0 && request.transport == Transport::Datagram)
                    .then(|| routes.asks_first(now, sequence, position, owner))
                    .flatten();
                request.by_lookup = first.is_some();
                Some((first.unwrap_or(Target::Server(owner)), request.transport, block))
            }
            None => {
                self.wait_for_map(sequence, io, routes);
                None
            }
        }
    }

    fn send_one(
        &mut self,
        sequence: Sequence,
        (to, transport): (Target, Transport),
        mark: Mark,
        io: &mut Io,
        routes: &Routes,
    ) {
        let finished_below = self.finished_below();
        let Some(request) = self.outstanding.get_mut(&sequence) else { return };
        request.waits = Waits::Answer;
        request.first_sent.get_or_insert((io.now.mono, mark));
        request.first_to.get_or_insert(to);
        request.sent += 1;
        let epoch = request.sent_to.map_or(Epoch(0), |(_, epoch)| epoch);
        request.epoch = request.epoch.max(epoch);
        let message = Message::Request(Request {
            sequence,
            finished_below: request.as_of.unwrap_or(finished_below),
            position: request.position.unwrap_or(Position(0)),
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
        let silent = tries.checked_sub(RESENDS_BEFORE_SUCCESSORS);
        let asked = request.position.zip(request.sent_to).zip(silent);
        let successors =
            asked.map(|((position, (owner, _)), times)| routes.successors(position, owner, times as usize));
        let pause = resend_interval(io, tries);
        self.pause(sequence, pause, io);
        for successor in successors.into_iter().flatten() {
            io.send(Target::Server(successor), transport, message.clone());
        }
        io.send(to, transport, message);
        step.into_iter().for_each(|name| io.step(name));
    }

    fn wait_for_map(&mut self, sequence: Sequence, io: &mut Io, routes: &mut Routes) {
        let pause = io.config.map_interval;
        let pause = io.random.jittered(pause);
        if let Some(request) = self.outstanding.get_mut(&sequence) {
            request.waits = Waits::Map;
            self.pause(sequence, pause, io);
            routes.want_map(true);
        }
    }

    /// Has servers hear of the session, which answer something that nobody waits for: they speak only to whom
    /// they have heard.
    pub fn greet(&mut self, servers: &[ServerId], have: Option<MapVersion>, io: &mut Io) {
        for server in servers {
            let (sequence, finished_below) = (self.next, self.finished_below());
            self.next = sequence.next();
            let (position, epoch, call) = (Position(0), Epoch(0), Call::Map { have });
            let message = Message::Request(Request { sequence, finished_below, position, epoch, call });
            io.send(Target::Server(*server), Transport::Datagram, message);
        }
    }

    /// Sets the time at which a request is looked at again.
    fn pause(&mut self, sequence: Sequence, pause: Duration, io: &mut Io) {
        let Some(request) = self.outstanding.get_mut(&sequence) else { return };
        io.timers.cancel(request.due, Timer::Request(sequence));
        request.due = io.now.mono.after(pause).min(request.deadline);
        io.timers.set(request.due, Timer::Request(sequence));
    }

    fn send_again(&mut self, sequence: Sequence) {
        if let Some(request) = self.outstanding.get_mut(&sequence)
            && request.waits != Waits::Sending
        {
            request.waits = Waits::Sending;
            self.sending.push(sequence);
        }
    }

    /// A request's time has come.
    pub fn on_due(&mut self, sequence: Sequence, io: &mut Io, routes: &mut Routes) {
        let Some(request) = self.outstanding.get(&sequence) else { return };
        if io.now.mono >= request.deadline {
            io.counters.deadlines += 1;
            self.finish(sequence, Err(Code::Unreachable), io);
            return;
        }
        if request.waits == Waits::Answer {
            io.counters.resends += 1;
            if request.position.is_some() && request.sends >= RESENDS_BEFORE_MAP {
                routes.want_map(false);
            }
        }
        self.send_again(sequence);
    }

    /// A newer map is here: requests that waited for it go out, and those that are with another server than
    /// the one that owns their position now.
    pub fn on_map(&mut self, routes: &Routes) {
        self.send_those(|request| request.waits == Waits::Map || request.is_elsewhere(routes));
    }

    /// A server says who owns a tablet. If that is news, what another one was asked of it goes there too.
    pub fn learn(&mut self, located: Located, routes: &mut Routes) {
        if routes.learn(located) {
            self.send_those(|request| request.is_elsewhere(routes));
        }
    }

    fn send_those(&mut self, chosen: impl Fn(&Outstanding) -> bool) {
        let chosen = self.outstanding.iter().filter(|(_, request)| chosen(request));
        let chosen: Vec<_> = chosen.map(|(sequence, _)| *sequence).collect();
        for sequence in chosen {
            self.send_again(sequence);
        }
    }

    /// A hint that a server cannot be reached: its requests are looked at soon, perhaps under a newer map.
    pub fn hurry(&mut self, server: ServerId, io: &mut Io, routes: &mut Routes) {
        let concerned: Vec<_> = self
            .outstanding
            .iter()
            .filter(|(_, request)| {
                request.waits == Waits::Answer && request.sent_to.is_some_and(|(to, _)| to == server)
            })
            .map(|(sequence, request)| (*sequence, request.sends))
            .collect();
        if !concerned.is_empty() {
            routes.want_map(false);
        }
        for (sequence, sends) in concerned {
            let pause = resend_interval(io, sends.saturating_sub(1));
            let due = self.outstanding.get(&sequence).map(|request| request.due);
            if due.is_some_and(|due| due > io.now.mono.after(pause)) {
                self.pause(sequence, pause, io);
            }
        }
    }

    /// A reply came. `mark`: what is recalled by now. Whether it says that the session is over.
    pub fn on_reply(
        &mut self,
        from: Target,
        reply: Reply,
        mark: Mark,
        io: &mut Io,
        routes: &mut Routes,
    ) -> bool {
        let sequence = reply.sequence;
        let Some(request) = self.outstanding.get_mut(&sequence) else {
            io.counters.late_replies += 1;
            return false;
        };
        let waits_for_it = request.waits == Waits::Answer;
        if std::mem::take(&mut request.by_lookup) {
            routes.was_brought(io.now.mono, true);
            // Whoever answers what the lookup brought is asked.
            if let (Some((asked, _)), Target::Server(server)) = (&mut request.sent_to, from) {
                *asked = server;
            }
        }
        let asked = request.sent_to.is_none_or(|(asked, _)| from == Target::Server(asked));
        if asked {
            request.sends = 0;
        }
        match reply.answer {
            // Refusals are not logged: whoever serves the tablet since then may know nothing of this one, and
            // do what was sent to it.
            Answer::Done { epoch, result: Err(_), .. } if request.call.mutates() && epoch < request.epoch => {
                io.counters.late_replies += 1;
            }
            Answer::Done { tablet, epoch, result, changed } => {
                let placed = request.position.is_some();
                if io.config.tells_lookups {
                    io.out.extend(request.looked(from, io.now.mono).map(Command::Note));
                }
                let over = self.on_result(sequence, result.map(|body| (*body, changed)), mark, io);
                if let (Target::Server(owner), true) = (from, placed) {
                    self.learn(Located { block: tablet, epoch, owner }, routes);
                }
                return over;
            }
            // Whatever else a reply says, it says of one sending to whom is taken for the owner. If that is
            // dealt with already, or others have it too, it may name another owner, and says nothing else.
            Answer::Referral { tablet, epoch, owner } => {
                let located = Located { block: tablet, epoch, owner };
                match waits_for_it && asked {
                    true => self.follow_referral(sequence, located, io, routes),
                    false => self.learn(located, routes),
                }
            }
            _ if !waits_for_it || !asked => {}
            Answer::Retry { after_us } => self.retry_later(sequence, after_us, io),
            Answer::Unknown => self.wait_for_map(sequence, io, routes),
            Answer::TooLarge => self.go_by_stream(sequence),
        }
        false
    }

    fn on_result(
        &mut self,
        sequence: Sequence,
        result: Result<(Body, Vec<ChangedDirectory>), Code>,
        mark: Mark,
        io: &mut Io,
    ) -> bool {
        let Some(request) = self.outstanding.get(&sequence) else { return false };
        if result == Err(Code::SessionEnded) {
            return true;
        }
        let (sent, mark) = request.first_sent.unwrap_or((io.now.mono, mark));
        let stamp = Stamp { sent, mark, own_change: false };
        self.finish(sequence, result.map(|(body, changed)| Answered { body, changed, stamp }), io);
        false
    }

    fn finish(&mut self, sequence: Sequence, result: Result<Answered, Code>, io: &mut Io) {
        if let Some(request) = self.outstanding.remove(&sequence) {
            io.timers.cancel(request.due, Timer::Request(sequence));
            request.promise.keep(result);
        }
    }

    /// What was lent under an incarnation is lost: what is asked about it is not sent again. What is on its
    /// way is refused when its owner has heard of that.
    pub fn give_up_lent(&mut self, lost: u64, io: &mut Io) {
        let of_it = |(sequence, request): (&Sequence, &Outstanding)| match request.call {
            Call::Delegate { incarnation, .. } | Call::Delegated { incarnation, .. } => {
                (incarnation == lost).then_some(*sequence)
            }
            _ => None,
        };
        let given_up: Vec<Sequence> = self.outstanding.iter().filter_map(of_it).collect();
        for sequence in given_up {
            self.finish(sequence, Err(Code::Stale), io);
        }
    }

    /// The session is over: so is every request.
    pub fn fail(&mut self, code: Code, io: &mut Io) {
        self.sending.clear();
        while let Some((sequence, request)) = self.outstanding.pop_first() {
            io.timers.cancel(request.due, Timer::Request(sequence));
            request.promise.keep(Err(code));
        }
    }

    fn retry_later(&mut self, sequence: Sequence, after_us: u32, io: &mut Io) {
        io.counters.retries += 1;
        let Some(request) = self.outstanding.get_mut(&sequence) else { return };
        let retries = request.retries;
        request.retries += 1;
        request.waits = Waits::Pause;
        // What a server waits for mostly takes some tens of milliseconds.
        let config = &io.config;
        let soon = retries < RETRIES_SOON;
        let limit = if soon { config.retry_delay_soon_max } else { config.retry_delay_max };
        let own = io.random.backed_off(io.config.retry_delay, limit, retries);
        self.pause(sequence, own.max(Duration::from_micros(u64::from(after_us))), io);
    }

    fn follow_referral(&mut self, sequence: Sequence, located: Located, io: &mut Io, routes: &mut Routes) {
        io.counters.referrals += 1;
        self.learn(located, routes);
        let Some(request) = self.outstanding.get_mut(&sequence) else { return };
        let known = request
            .position
            .and_then(|position| routes.locate(position))
            .map(|known| (known.owner, known.epoch));
        let news = known.is_some() && known != request.sent_to;
        request.referrals += 1;
        if news && request.referrals <= REFERRALS_AT_ONCE {
            self.send_again(sequence);
            return;
        }
        // Two servers point at each other, or nobody knows yet: wait a little, and ask for the map.
        let referrals = request.referrals;
        request.waits = Waits::Pause;
        let pause = io.random.backed_off(io.config.retry_delay, io.config.retry_delay_max, referrals);
        self.pause(sequence, pause, io);
        routes.want_map(false);
    }

    fn go_by_stream(&mut self, sequence: Sequence) {
        let Some(request) = self.outstanding.get_mut(&sequence) else { return };
        // It was told before, and goes by stream already: the network brought that answer twice.
        if request.transport == Transport::Stream {
            return;
        }
        request.transport = Transport::Stream;
        self.send_again(sequence);
    }
}

/// The pause before a request without an answer is sent again. A server that is started again is back
/// within a second: that long the pauses stay short.
fn resend_interval(io: &mut Io, sends: u32) -> Duration {
    let (first, max) = (io.config.resend_interval, io.config.resend_interval_max);
    io.random.backed_off(first, max, sends.saturating_sub(RESENDS_SOON))
}

/// Whether a call says if the client has a file open.
fn says_open(call: &Call) -> bool {
    matches!(call, Call::Unlink { .. } | Call::Rename { .. })
}
