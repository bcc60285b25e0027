//! Hosts whose work takes time: each has one processor, which does one thing at a time, and one server or
//! several.
//!
//! Invariants: what follows from an event leaves the host when the work for it is done, so what the work
//! costs may depend on what the machine decided. A timer interrupts and costs nothing. No order changes how
//! long a processor is busy. Without costs nothing waits, and the order of events is that of a world without
//! hosts.

use crate::machine::{Command, Event};
use crate::query::Query;
use bearing_types::{Mono, ServerId};
use std::collections::VecDeque;
use std::time::Duration;

/// What a processor does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What came first; the machine decides when its turn has come.
    Arrival,
    /// Whatever does not touch the store, at once: it interrupts what does, which then goes on. The machine
    /// decides on arrival. So it is where storage waits for a disk and the processor does not.
    StoreLast,
}

/// What a server's work costs its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// To find out whom a query goes to: it is passed on, sent back or given up.
    pub relay: Duration,
    /// To carry a query out. Whether it is for this server is part of that.
    pub serve: Duration,
    /// To ask the store whether it has a file.
    pub check: Duration,
    /// To take any other message, also the acknowledgement of a copy.
    pub message: Duration,
    /// To begin: a server then takes all that waits for it, [`AT_ONCE`] at most, and what follows leaves when
    /// all of it is done, as in an event loop. Where it costs nothing, one thing is taken after the other.
    /// Only in the order of arrival.
    pub turn: Duration,
    /// To wake up, for a processor that has nothing to do when something comes. What comes meanwhile is taken
    /// with it. Only in the order of arrival.
    pub wake: Duration,
}

/// As many datagrams does a daemon take from its socket before it does anything.
pub const AT_ONCE: usize = 64;

impl Work {
    /// Nothing costs anything.
    pub const NONE: Work = Work {
        relay: Duration::ZERO,
        serve: Duration::ZERO,
        check: Duration::ZERO,
        message: Duration::ZERO,
        turn: Duration::ZERO,
        wake: Duration::ZERO,
    };

    /// What an event cost that led to these commands.
    fn of(&self, kind: Kind, commands: &[Command]) -> Duration {
        let cost = |command: &Command| match command {
            Command::Serve(_) => Some(self.serve),
            Command::Check(_) => Some(self.check),
            Command::Pass(..) | Command::Carry(_) | Command::Refer(..) | Command::Fail(..) => {
                Some(self.relay)
            }
            Command::Send(..) => None,
        };
        let decided = commands.iter().filter_map(cost).reduce(|sum, cost| sum + cost);
        match kind {
            // One that has to wait for something was taken in all the same.
            Kind::Query => decided.unwrap_or(self.message),
            Kind::Message => self.message + decided.unwrap_or_default(),
            Kind::Notice => decided.unwrap_or_default(),
        }
    }
}

/// Where an event comes from, as far as its cost depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A client, or a server that passes it on.
    Query,
    /// A machine.
    Message,
    /// The host says so itself.
    Notice,
}

impl Kind {
    pub(super) fn of(event: &Event) -> Kind {
        match event {
            Event::Query(_) | Event::Unreachable(_, Some(_)) => Kind::Query,
            Event::Message(..) => Kind::Message,
            Event::Unreachable(_, None)
            | Event::Served(..)
            | Event::Referred(..)
            | Event::Map(_)
            | Event::Stored(_)
            | Event::Removed(_)
            | Event::Checked(..)
            | Event::Join(_)
            | Event::Leave
            | Event::Wake => Kind::Notice,
        }
    }
}

/// What a processor has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How long it was busy.
    pub busy: Duration,
    /// The same without waking up, the beginnings of turns, and luck.
    pub work: Duration,
    /// Queries that it passed on, sent back or gave up.
    pub relayed: u64,
    /// Queries that it carried out.
    pub served: u64,
    /// Copies that it stored for others.
    pub copied: u64,
}

/// What waits for a processor.
#[derive(Debug)]
pub(super) enum Job {
    /// Something for the machine.
    Event(Event),
    /// To store a copy, and to tell the owner.
    Copy(Query, ServerId),
    /// The copy of what was carried out here is stored.
    Copied(Query),
}

/// What follows when the work under way is done.
#[derive(Debug)]
pub(super) enum Held {
    /// What the machine decided.
    Commands(Vec<Command>),
    /// The owner is told that the copy is stored.
    Copy(Query, ServerId),
    /// The client is answered.
    Copied(Query),
    /// What was taken together.
    Turn(Vec<Held>),
}

impl Held {
    /// Whether the store is touched.
    fn is_stored(&self) -> bool {
        match self {
            Held::Copy(..) => true,
            Held::Copied(_) => false,
            Held::Turn(taken) => taken.iter().any(Held::is_stored),
            Held::Commands(commands) => {
                commands.iter().any(|command| matches!(command, Command::Serve(_) | Command::Check(_)))
            }
        }
    }

    /// The queries in it: they are lost with the host.
    pub(super) fn queries(self) -> Vec<Query> {
        match self {
            Held::Copy(query, _) | Held::Copied(query) => vec![query],
            Held::Turn(taken) => taken.into_iter().flat_map(Held::queries).collect(),
            Held::Commands(commands) => commands
                .into_iter()
                .filter_map(|command| match command {
                    Command::Pass(_, query)
                    | Command::Carry(query)
                    | Command::Serve(query)
                    | Command::Refer(query, _)
                    | Command::Fail(query, _)
                    | Command::Check(query) => Some(query),
                    Command::Send(..) => None,
                })
                .collect(),
        }
    }
}

/// Work that is under way.
#[derive(Debug)]
pub(super) struct Begun {
    /// Its number: what was interrupted, or was begun by a server that has vanished, does not end.
    pub(super) number: u64,
    /// Whose it is.
    pub(super) server: ServerId,
    /// What follows.
    pub(super) held: Held,
    /// How long it takes.
    pub(super) takes: Takes,
    /// When it ends.
    pub(super) until: Mono,
}

/// How long something takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Takes {
    /// With all that belongs to it.
    pub(super) all: Duration,
    /// Without waking up, the beginning of a turn, and luck.
    pub(super) work: Duration,
}

impl Takes {
    /// Nothing else belongs to it.
    pub(super) fn work(work: Duration) -> Takes {
        Takes { all: work, work }
    }

    /// The work in the part of it that is left.
    fn work_in(&self, left: Duration) -> Duration {
        match self.all.is_zero() {
            true => Duration::ZERO,
            false => self.work.mul_f64(left.as_secs_f64() / self.all.as_secs_f64()),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// What the machines have not seen yet.
    pub(super) waiting: VecDeque<(ServerId, Job)>,
    /// What they have decided on, and how long that will take; first what does not touch the store.
    decided: [VecDeque<Decided>; 2],
    pub(super) begun: Option<Begun>,
    /// When it had nothing to do any more. What comes at that moment does not find it asleep.
    pub(super) idle_since: Option<Mono>,
    done: Done,
}

/// What a server has decided on, and how long that will take.
pub(super) type Decided = (ServerId, Held, Takes);

impl Processor {
    /// What touches the store makes way for what does not.
    pub(super) fn decide(&mut self, (server, held, takes): Decided, now: Mono) {
        let is_stored = held.is_stored();
        self.decided[usize::from(is_stored)].push_back((server, held, takes));
        if !is_stored
            && let Some(Begun { server, held, takes, until, .. }) =
                self.begun.take_if(|begun| begun.held.is_stored())
        {
            let left = until.since(now);
            let left = Takes { all: left, work: takes.work_in(left) };
            self.done.busy = self.done.busy.saturating_sub(left.all);
            self.done.work = self.done.work.saturating_sub(left.work);
            self.decided[1].push_front((server, held, left));
        }
    }

    /// What was decided on and comes next.
    pub(super) fn next_decided(&mut self) -> Option<Decided> {
        self.decided.iter_mut().find_map(VecDeque::pop_front)
    }

    /// What the server whose turn it is takes at once: one thing, or all that waits for it.
    pub(super) fn next_waiting(&mut self, in_turns: bool) -> Option<(ServerId, Vec<Job>)> {
        let (server, first) = self.waiting.pop_front()?;
        let mut jobs = vec![first];
        if in_turns {
            let waiting = std::mem::take(&mut self.waiting);
            for (of, job) in waiting {
                if of == server && jobs.len() < AT_ONCE {
                    jobs.push(job);
                } else {
                    self.waiting.push_back((of, job));
                }
            }
        }
        Some((server, jobs))
    }

    /// A server vanishes: nothing waits for it any more, and nothing of it ends. What has to be answered for:
    /// what waited, and the queries that were decided on.
    pub(super) fn vanish(&mut self, server: ServerId) -> (Vec<Job>, Vec<Query>) {
        let begun = self.begun.take_if(|begun| begun.server == server).map(|begun| begun.held);
        let mut held: Vec<Held> = begun.into_iter().collect();
        for decided in &mut self.decided {
            let (its, others) = std::mem::take(decided).into_iter().partition(|(of, ..)| *of == server);
            *decided = others;
            held.extend(VecDeque::into_iter(its).map(|(_, held, _)| held));
        }
        let (its, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| *of == server);
        self.waiting = others;
        let jobs = VecDeque::into_iter(its).map(|(_, job)| job).collect();
        (jobs, held.into_iter().flat_map(Held::queries).collect())
    }

    /// Accounts for an event that led to these commands. What it takes.
    pub(super) fn work(&mut self, work: &Work, kind: Kind, commands: &[Command]) -> Duration {
        for command in commands {
            match command {
                Command::Serve(_) => self.done.served += 1,
                Command::Pass(..) | Command::Carry(_) | Command::Refer(..) | Command::Fail(..) => {
                    self.done.relayed += 1;
                }
                Command::Check(_) | Command::Send(..) => {}
            }
        }
        work.of(kind, commands)
    }

    /// Accounts for the storing of somebody's copy.
    pub(super) fn copy(&mut self, work: &Work) -> Duration {
        self.done.copied += 1;
        work.serve
    }

    /// Begins with something.
    pub(super) fn begin(&mut self, begun: Begun) {
        self.done.busy += begun.takes.all;
        self.done.work += begun.takes.work;
        self.begun = Some(begun);
    }

    /// What was done until now: of what is under way no more than that.
    pub(super) fn done(&self, now: Mono) -> Done {
        let Some(begun) = &self.begun else { return self.done };
        let left = begun.until.since(now);
        let work = begun.takes.work_in(left);
        Done {
            busy: self.done.busy.saturating_sub(left),
            work: self.done.work.saturating_sub(work),
            ..self.done
        }
    }
}
