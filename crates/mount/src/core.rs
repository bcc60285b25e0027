//! What all threads share under one lock: the machine, and who waits for which answers.
//!
//! Invariants: the lock is held for steps of the machine only, never while anything is sent, received or
//! invalidated. A group of operations is answered when all of them are. This module must not know sockets.

use crate::kernel_cache::Job;
use crate::post::{Errand, Letter, Post};
use bearing_client::{Answer, Client, Command, Event, Note, Operation, Ticket};
use bearing_proto::envelope::Refusal;
use bearing_types::{Code, Mono, Now, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar};

/// Notes kept for whoever publishes them; the oldest give way.
const NOTES_MAX: usize = 256;

/// Identifies a group of operations that one thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(u64);

struct Group {
    answers: Vec<Option<Outcome<Answer>>>,
    missing: usize,
    /// Wakes the thread that waits for the group.
    bell: Arc<Condvar>,
}

/// See the module.
pub(crate) struct Core {
    client: Client,
    out: Vec<Command>,
    groups: BTreeMap<GroupId, Group>,
    tickets: BTreeMap<Ticket, (GroupId, usize)>,
    next_ticket: u64,
    next_group: u64,
    invalidations: Option<Sender<Job>>,
    notes: VecDeque<Note>,
    refusal: Option<Refusal>,
    /// Whether a thread waits for the socket, or is about to.
    pub is_led: bool,
    /// When it stops waiting by itself.
    pub led_until: Option<Mono>,
    /// How often a thread has waited for answers.
    pub waits: u64,
    /// No operation can run any more.
    pub is_broken: bool,
    /// The threads of the mount shall end.
    pub is_stopping: bool,
}

impl Core {
    /// A core around a machine; what the kernel shall forget goes to `invalidations`.
    pub fn new(client: Client, invalidations: Sender<Job>) -> Core {
        Core {
            client,
            out: Vec::new(),
            groups: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
            next_group: 0,
            invalidations: Some(invalidations),
            notes: VecDeque::new(),
            refusal: None,
            is_led: false,
            led_until: None,
            waits: 0,
            is_broken: false,
            is_stopping: false,
        }
    }

    /// Begins operations as one group. What is to be sent is added to `errands`.
    pub fn begin(
        &mut self,
        now: Now,
        operations: Vec<Operation>,
        post: &Post,
        errands: &mut Vec<Errand>,
    ) -> GroupId {
        let group = GroupId(self.next_group);
        self.next_group += 1;
        let count = operations.len();
        let bell = Arc::new(Condvar::new());
        self.groups.insert(group, Group { answers: vec![None; count], missing: count, bell });
        for (place, operation) in operations.into_iter().enumerate() {
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            self.tickets.insert(ticket, (group, place));
            if self.is_broken {
                self.finish(ticket, Err(Code::Io));
            } else {
                self.step(now, Event::Start(ticket, operation), post, errands);
            }
        }
        group
    }

    /// Steps the machine and sorts its commands.
    pub fn step(&mut self, now: Now, event: Event, post: &Post, errands: &mut Vec<Errand>) {
        if let Event::Refused(refusal) = event {
            self.refusal = Some(refusal);
        }
        let mut out = std::mem::take(&mut self.out);
        self.client.step(now, event, &mut out);
        for command in out.drain(..) {
            match command {
                Command::Send { to, transport, message, attachment } => {
                    let life = post.life();
                    errands.push(Errand::Send(Letter { to, transport, message, attachment, life }));
                }
                Command::Enrol => {
                    post.begin_life();
                    errands.push(Errand::Enrol);
                }
                Command::Finish(ticket, result) => self.finish(ticket, result),
                Command::Invalidate { number, what } => self.invalidate(Job { number, what }),
                Command::Servers(servers, prefix) => post.set_servers(servers, prefix),
                // Asked for by simulations only.
                Command::Decided(_) => {}
                Command::Note(note) => self.note(note),
            }
        }
        self.out = out;
    }

    /// Steps the machine if the time it named has come.
    pub fn tick(&mut self, now: Now, post: &Post, errands: &mut Vec<Errand>) {
        if !self.is_broken && self.client.next_wake().is_some_and(|wake| wake <= now.mono) {
            self.step(now, Event::Tick, post, errands);
        }
    }

    /// When the machine wants to be stepped next, whatever comes in.
    pub fn next_wake(&self) -> Option<Mono> {
        self.client.next_wake()
    }

    fn finish(&mut self, ticket: Ticket, result: Outcome<Answer>) {
        // Nobody waits any more for an operation whose thread gave up.
        let Some((group, place)) = self.tickets.remove(&ticket) else { return };
        let Some(group) = self.groups.get_mut(&group) else { return };
        debug_assert!(group.answers[place].is_none(), "an operation ends once");
        group.answers[place] = Some(result);
        group.missing -= 1;
        if group.missing == 0 {
            group.bell.notify_one();
        }
    }

    fn invalidate(&mut self, job: Job) {
        if let Some(invalidations) = &self.invalidations {
            // It fails only when the thread is gone, at the end of the mount.
            let _ = invalidations.send(job);
        }
    }

    fn note(&mut self, note: Note) {
        // These are for whoever steps the machine by hand; here they would only push out what people want to
        // know.
        if matches!(note, Note::Step(_) | Note::WriteOut(_)) {
            return;
        }
        tell(&note);
        if self.notes.len() == NOTES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    /// Takes the notes so far.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.notes.drain(..).collect()
    }

    /// The last refusal of a packet.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// What the machine counted.
    pub fn counters(&self) -> bearing_client::Counters {
        self.client.counters()
    }

    /// Whether all answers of a group are there.
    pub fn is_answered(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_none_or(|group| group.missing == 0)
    }

    /// Ends a group and gives its answers, in the order of its operations. Those that are missing are given
    /// up.
    pub fn end(&mut self, group: GroupId) -> Vec<Option<Outcome<Answer>>> {
        let answers = self.groups.remove(&group).map(|group| group.answers).unwrap_or_default();
        if answers.iter().any(Option::is_none) {
            self.tickets.retain(|_, (of, _)| *of != group);
        }
        answers
    }

    /// Nobody wants the answers of a group any more: what it waits for is given up.
    pub fn give_up_waiting(&mut self, now: Now, group: GroupId, post: &Post, errands: &mut Vec<Errand>) {
        let of = self.tickets.iter().filter(|(_, (of, _))| *of == group);
        let tickets: Vec<Ticket> = of.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.step(now, Event::GiveUp(ticket), post, errands);
        }
    }

    /// What wakes the thread that waits for a group.
    pub fn bell(&self, group: GroupId) -> Option<Arc<Condvar>> {
        self.groups.get(&group).map(|group| group.bell.clone())
    }

    /// Whether anybody waits for answers.
    pub fn is_waited_for(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether the machine wants to be stepped before the thread that waits for the socket would do so.
    pub fn leader_sleeps_too_long(&mut self) -> bool {
        let next = self.client.next_wake();
        let too_long =
            self.is_led && next.is_some_and(|next| self.led_until.is_none_or(|until| next < until));
        if too_long {
            // Once woken it looks by itself how long it may sleep: until it does, nobody wakes it again.
            self.led_until = next;
        }
        too_long
    }

    /// If nobody waits for the socket, wakes a thread that waits for answers, so that it does.
    pub fn call_a_leader(&self) {
        if !self.is_led
            && let Some(group) = self.groups.values().find(|group| group.missing > 0)
        {
            group.bell.notify_one();
        }
    }

    /// Nothing can be received any more: every operation ends.
    pub fn give_up(&mut self) {
        self.is_broken = true;
        let tickets: Vec<Ticket> = self.tickets.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.finish(ticket, Err(Code::Io)));
    }

    /// Lets the invalidation thread end after what it was given.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.invalidations = None;
    }
}

/// Losses go to the log, too: a program learns of them only when it syncs.
fn tell(note: &Note) {
    match note {
        Note::SessionLost => tracing::warn!(
            "the servers have ended this mount's session, and it begins another one: operations under way \
             fail, and what was not stable is lost"
        ),
        Note::StepsLost(count) => tracing::warn!(
            "{count} changes that were decided in delegated directories are lost; the next sync says so"
        ),
        Note::StepsRefused(code) => tracing::warn!(
            "a server refused changes that were decided here: {code}. This is a bug, please report it"
        ),
        Note::WritesLost(node, code) => tracing::warn!(
            "what was written to {node} could not be stored and is lost: {code}; its next flush, sync or \
             close says so"
        ),
        _ => {}
    }
}
