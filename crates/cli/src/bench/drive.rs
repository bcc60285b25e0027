//! The closed loop: so many operations under way, a new one for each that is answered.

use super::link::{Link, Outgoing};
use anyhow::{Result, bail};
use bearing_env::Clock;
use bearing_lookup::Located;
use bearing_proto::client::{Answer, Body, Call, Reply};
use bearing_types::{Code, Mono, Position, Sequence};
use bearing_workload::Seeded;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A request without an answer is sent again after so long.
const RESEND: Duration = Duration::from_millis(1_000);
/// How often unanswered requests are looked through when none was told to come again.
const LOOK: Duration = Duration::from_millis(50);
/// Something goes wrong when a request is not answered for so long.
const LOST: Duration = Duration::from_secs(60);

/// How many operations are under way, and how they share datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Operations under way at the same time.
    pub in_flight: usize,
    /// Operations per datagram.
    pub packed: usize,
}

/// Where operations come from and answers go.
pub trait Work {
    /// Names an operation.
    type Tag: Copy;

    /// The next operation; `None` when there is none left.
    fn next(&mut self, now: Mono) -> Option<Self::Tag>;

    /// Whether it may wait until others fill its datagram.
    fn may_wait(&self, _tag: Self::Tag) -> bool {
        true
    }

    /// What an operation asks, and where.
    fn call(&self, tag: Self::Tag) -> (Position, Call);

    /// An operation is answered; says whether it counts. `sent` is when it was sent first.
    fn answered(&mut self, tag: Self::Tag, result: Result<Body, Code>, sent: Mono) -> Result<bool>;
}

/// What a loop did.
#[derive(Debug)]
pub struct Tally {
    /// Operations that were answered in time.
    pub operations: u64,
    /// The time that they took.
    pub elapsed: Duration,
    /// Replies, whether they count or not.
    pub replies: u64,
    /// Datagrams with replies.
    pub datagrams: u64,
    /// Requests that were told to come again.
    pub retries: u64,
    /// Requests that were sent again for want of an answer.
    pub resent: u64,
    /// From sending to answer, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Result<Tally> {
        Ok(Tally {
            operations: 0,
            elapsed: Duration::ZERO,
            replies: 0,
            datagrams: 0,
            retries: 0,
            resent: 0,
            latency: Histogram::new_with_max(60_000_000_000, 3)?,
        })
    }
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many are under way, all the time.
    Closed {
        /// How many.
        in_flight: usize,
    },
    /// As they come, with Poisson's gaps; they count from when they should have begun.
    Open {
        /// How many in the mean.
        per_second: f64,
    },
}

/// When to stop drawing operations.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Once the work has no more.
    Done,
    /// After so long.
    After(Duration),
}

struct Pending<T> {
    tag: T,
    sent: Mono,
    /// When to send it again.
    due: Mono,
    /// Because the server said so.
    told: bool,
}

/// The loop's state, across several runs over one link.
pub struct Loop<T> {
    window: VecDeque<Option<Pending<T>>>,
    /// The number of the window's first request.
    first: u64,
    under_way: usize,
    told_to_retry: usize,
    looked: Mono,
}

impl<T: Copy> Loop<T> {
    /// A loop whose next request has this number.
    pub fn new(next: Sequence) -> Loop<T> {
        Loop { window: VecDeque::new(), first: next.0, under_way: 0, told_to_retry: 0, looked: Mono::ZERO }
    }

    /// The number of the next request.
    pub fn next(&self) -> Sequence {
        Sequence(self.first + self.window.len() as u64)
    }

    /// Runs work over a link until its end; returns when everything is answered.
    pub fn run<W: Work<Tag = T>>(
        &mut self,
        link: &mut Link,
        work: &mut W,
        load: Load,
        until: Until,
    ) -> Result<Tally> {
        let started = Clock.mono();
        let deadline = match until {
            Until::Done => None,
            Until::After(duration) => Some(started.after(duration)),
        };
        let mut tally = Tally::new()?;
        let mut lanes = Lanes { by_tablet: BTreeMap::new(), left: true };
        loop {
            let now = Clock.mono();
            let over = deadline.is_some_and(|deadline| now >= deadline);
            while !over && self.under_way + load.packed <= load.in_flight.max(load.packed) {
                let group = lanes.draw(link, work, load.packed, now);
                if group.is_empty() {
                    break;
                }
                self.send(link, group, now)?;
            }
            if self.under_way == 0 {
                tally.elapsed = deadline.unwrap_or(now).since(started);
                return Ok(tally);
            }
            self.resend(link, work, now, &mut tally)?;
            let timeout = if self.told_to_retry > 0 { Duration::from_millis(1) } else { LOOK };
            self.receive(link, work, timeout, deadline, &mut tally)?;
        }
    }

    /// Runs work at a pace for so long, one operation a datagram. It looks for answers without ever sleeping,
    /// so that how long it takes to wake up is no part of what is measured.
    pub fn pace<W: Work<Tag = T>>(
        &mut self,
        link: &mut Link,
        work: &mut W,
        pace: Pace,
        rng: &mut Seeded,
        duration: Duration,
    ) -> Result<Tally> {
        let started = Clock.mono();
        let deadline = started.after(duration);
        let mut tally = Tally::new()?;
        let mut next = started;
        loop {
            let now = Clock.mono();
            let over = now >= deadline;
            loop {
                let due = match pace {
                    _ if over => break,
                    Pace::Closed { in_flight } if self.under_way >= in_flight => break,
                    Pace::Closed { .. } => now,
                    Pace::Open { .. } if next > now => break,
                    Pace::Open { per_second } => {
                        let gap = -(1.0 - rng.fraction()).ln() / per_second;
                        let after = next.after(Duration::from_secs_f64(gap));
                        std::mem::replace(&mut next, after)
                    }
                };
                let Some(tag) = work.next(now) else { break };
                let (position, call) = work.call(tag);
                self.send(link, vec![(tag, position, call)], due)?;
            }
            if over && self.under_way == 0 {
                tally.elapsed = duration;
                return Ok(tally);
            }
            self.resend(link, work, now, &mut tally)?;
            self.receive(link, work, Duration::ZERO, Some(deadline), &mut tally)?;
        }
    }

    fn send(&mut self, link: &mut Link, group: Vec<(T, Position, Call)>, now: Mono) -> Result<()> {
        let first = self.next().0;
        for (tag, ..) in &group {
            self.window.push_back(Some(Pending {
                tag: *tag,
                sent: now,
                due: now.after(RESEND),
                told: false,
            }));
        }
        self.under_way += group.len();
        let numbered = group.into_iter().zip(first..);
        let requests = numbered.map(|((_, position, call), sequence)| Outgoing {
            sequence: Sequence(sequence),
            position,
            call,
        });
        link.send(requests, Sequence(self.first))
    }

    fn resend<W: Work<Tag = T>>(
        &mut self,
        link: &mut Link,
        work: &W,
        now: Mono,
        tally: &mut Tally,
    ) -> Result<()> {
        if self.told_to_retry == 0 && now.since(self.looked) < LOOK {
            return Ok(());
        }
        self.looked = now;
        self.told_to_retry = 0;
        for (index, pending) in self.window.iter_mut().enumerate() {
            let Some(pending) = pending else { continue };
            if pending.due > now {
                self.told_to_retry += usize::from(pending.told);
                continue;
            }
            if now.since(pending.sent) > LOST {
                bail!("a request was not answered for {} s", LOST.as_secs());
            }
            tally.resent += u64::from(!pending.told);
            (pending.due, pending.told) = (now.after(RESEND), false);
            let (position, call) = work.call(pending.tag);
            let sequence = Sequence(self.first + index as u64);
            link.send([Outgoing { sequence, position, call }], Sequence(self.first))?;
        }
        Ok(())
    }

    fn receive<W: Work<Tag = T>>(
        &mut self,
        link: &mut Link,
        work: &mut W,
        timeout: Duration,
        deadline: Option<Mono>,
        tally: &mut Tally,
    ) -> Result<()> {
        let mut now = None;
        let datagrams = link.receive(timeout, |map, reply| {
            let now = *now.get_or_insert_with(|| Clock.mono());
            tally.replies += 1;
            let Some((tag, sent, answer)) = self.settle(map, reply, now, tally) else { return Ok(()) };
            let counts = work.answered(tag, answer, sent)?;
            if counts && deadline.is_none_or(|deadline| now < deadline) {
                tally.operations += 1;
                tally.latency.saturating_record(now.since(sent).as_nanos() as u64);
            }
            Ok(())
        })?;
        tally.datagrams += datagrams;
        Ok(())
    }

    /// Finds whose answer it is; `None` when there is nothing to hand on.
    fn settle(
        &mut self,
        map: &mut bearing_lookup::ClientMap,
        reply: Reply,
        now: Mono,
        tally: &mut Tally,
    ) -> Option<(T, Mono, Result<Body, Code>)> {
        let index = reply.sequence.0.checked_sub(self.first)? as usize;
        let slot = self.window.get_mut(index)?;
        let pending = slot.as_mut()?;
        let result = match reply.answer {
            Answer::Done { result, .. } => result.map(|body| *body),
            Answer::Retry { after_us } => {
                (pending.due, pending.told) = (now.after(Duration::from_micros(u64::from(after_us))), true);
                self.told_to_retry += 1;
                tally.retries += 1;
                return None;
            }
            Answer::Referral { tablet, epoch, owner } => {
                map.learn(Located { block: tablet, epoch, owner });
                (pending.due, pending.told) = (now, true);
                self.told_to_retry += 1;
                return None;
            }
            Answer::Unknown | Answer::TooLarge => Err(Code::Unreachable),
        };
        let (tag, sent) = (pending.tag, pending.sent);
        *slot = None;
        self.under_way -= 1;
        while self.window.front().is_some_and(Option::is_none) {
            self.window.pop_front();
            self.first += 1;
        }
        Some((tag, sent, result))
    }
}

/// Operations that wait until there are enough for one tablet to fill a datagram.
struct Lanes<T> {
    by_tablet: BTreeMap<Position, Vec<(T, Position, Call)>>,
    left: bool,
}

impl<T: Copy> Lanes<T> {
    /// The content of the next datagram: operations for one tablet.
    fn draw<W: Work<Tag = T>>(
        &mut self,
        link: &Link,
        work: &mut W,
        count: usize,
        now: Mono,
    ) -> Vec<(T, Position, Call)> {
        while self.left {
            let Some(tag) = work.next(now) else {
                self.left = false;
                break;
            };
            let (position, call) = work.call(tag);
            // Where nothing is known yet, the answer to a single request tells the tablet.
            let Some(located) = link.map().locate(position).filter(|_| count > 1) else {
                return vec![(tag, position, call)];
            };
            let tablet = located.block.start();
            let lane = self.by_tablet.entry(tablet).or_default();
            lane.push((tag, position, call));
            if lane.len() == count || !work.may_wait(tag) {
                return self.by_tablet.remove(&tablet).unwrap_or_default();
            }
        }
        // The rest, when the work is at its end.
        self.by_tablet.pop_first().map_or_else(Vec::new, |(_, lane)| lane)
    }
}
