//! A server's Bloom filters in a cluster that runs (G-HBA): `lookup::bloom`, told which tablets are served
//! here and which servers there are, and how it is let in and looks around.
//!
//! Invariants: the server's own filter has the keys of the parts of the ring that its tablets lie in, each
//! once. Who is in is what the servers agree on among themselves; the coordinator's list only says whom to
//! ask to be let in. Lost or wrong filters cost hops.

use bearing_lookup::bloom::{BloomOptions, BloomServer, Counts};
use bearing_lookup::{Command, Event, FileKey, Machine, Message, Query};
use bearing_proto::filters::FilterMessage;
use bearing_types::{Block, MapVersion, Mono, Position, ServerId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A listed server that is not in hears of this cluster so often, one after the other.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Who was let in by nobody for so long begins alone. The first of the list does before the others, so that
/// servers that start together mostly begin as one.
const ALONE_DELAY: Duration = Duration::from_secs(2);
const FIRST_ALONE_DELAY: Duration = Duration::from_millis(600);

/// See the module.
#[derive(Debug)]
pub(super) struct Filters {
    me: ServerId,
    /// None before the servers are known.
    machine: Option<BloomServer>,
    version: Option<MapVersion>,
    /// The other metadata servers, by the coordinator's list.
    others: Vec<ServerId>,
    /// The tablets that are served here, in the order of the ring.
    served: Vec<Block>,
    keys: BTreeSet<FileKey>,
    /// Since when it asks to be let in.
    joining_since: Option<Mono>,
    next_look: Mono,
    looked_at: ServerId,
}

/// What a server with filters knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterView {
    /// Who is in.
    pub members: BTreeSet<ServerId>,
    /// Whose filters it has.
    pub replicas: BTreeSet<ServerId>,
    /// Whether it is in, and all others that can be reached know it.
    pub is_in: bool,
    /// What it did.
    pub counts: Counts,
}

impl Filters {
    pub fn new(me: ServerId) -> Filters {
        Filters {
            me,
            machine: None,
            version: None,
            others: Vec::new(),
            served: Vec::new(),
            keys: BTreeSet::new(),
            joining_since: None,
            next_look: Mono::ZERO,
            looked_at: me,
        }
    }

    /// What it knows; nothing before it knows of a layout.
    pub fn view(&self) -> Option<FilterView> {
        let machine = self.machine.as_ref()?;
        Some(FilterView {
            members: machine.layout()?.division().all(),
            replicas: machine.replicas().map(|(of, _)| of).collect(),
            is_in: machine.is_in(),
            counts: machine.counts(),
        })
    }

    /// Before the servers are known every query is this server's: it refers what is not.
    pub fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match (&mut self.machine, event) {
            (Some(machine), event) => machine.step(now, event, out),
            (None, Event::Query(query)) => out.push(Command::Refer(query, None)),
            (None, _) => {}
        }
    }

    pub fn next_wake(&self) -> Option<Mono> {
        self.machine.as_ref()?.next_wake()
    }

    /// Takes the list of the other servers. The first one makes the machine: M follows from how many there
    /// are then.
    pub fn learn_list(
        &mut self,
        now: Mono,
        version: MapVersion,
        others: impl FnOnce() -> Option<Vec<ServerId>>,
        out: &mut Vec<Command>,
    ) {
        if self.version == Some(version) {
            return;
        }
        let Some(others) = others() else { return };
        self.version = Some(version);
        self.others = others;
        self.others.retain(|server| *server != self.me);
        self.others.sort_unstable();
        if let Some(machine) = &mut self.machine {
            return machine.list(self.others.iter().copied());
        }
        let options = BloomOptions::of_ring(self.others.len() as u32 + 1);
        let mut machine = BloomServer::new(self.me, options).expect("options of rings are within bounds");
        machine.list(self.others.iter().copied());
        for key in &self.keys {
            machine.step(now, Event::Stored(*key), out);
        }
        machine.step(now, Event::Join(self.first_asked()), out);
        self.machine = Some(machine);
    }

    /// Who is asked first to be let in: the next one of the list, so that not all ask the same one.
    fn first_asked(&self) -> Option<ServerId> {
        let next = self.others.iter().find(|server| **server > self.me);
        next.or(self.others.first()).copied()
    }

    /// Takes the tablets that are served here, in the order of the ring.
    pub fn learn_served(
        &mut self,
        now: Mono,
        served: impl Iterator<Item = Block> + Clone,
        out: &mut Vec<Command>,
    ) {
        if self.served.iter().copied().eq(served.clone()) {
            return;
        }
        self.served = served.collect();
        let parts = self.served.iter().flat_map(|block| FileKey::of_parts(*block));
        let keys: BTreeSet<FileKey> = parts.map(FileKey).collect();
        let before = std::mem::replace(&mut self.keys, keys);
        let stored: Vec<FileKey> = self.keys.difference(&before).copied().collect();
        stored.into_iter().for_each(|key| self.step(now, Event::Stored(key), out));
        before.difference(&self.keys.clone()).for_each(|key| self.step(now, Event::Removed(*key), out));
    }

    /// Whether a query is for this server.
    pub fn check(&mut self, now: Mono, query: Query, out: &mut Vec<Command>) {
        let serves = self.serves(query.target.position);
        self.step(now, Event::Checked(query, serves), out);
    }

    fn serves(&self, position: Position) -> bool {
        let behind = self.served.partition_point(|block| block.start() <= position);
        behind > 0 && self.served[behind - 1].contains(position)
    }

    /// Takes a message of a listed server. What nobody says is dropped.
    pub fn take(&mut self, now: Mono, from: ServerId, message: &FilterMessage, out: &mut Vec<Command>) {
        if self.others.binary_search(&from).is_err() {
            return;
        }
        let Ok(message) = message.message() else { return };
        self.step(now, Event::Message(from, Message::Bloom(message)), out);
    }

    pub fn wake(&mut self, now: Mono, out: &mut Vec<Command>) {
        let Some(machine) = self.machine.as_mut() else { return };
        if machine.next_wake().is_none_or(|due| now < due) {
            return;
        }
        machine.step(now, Event::Wake, out);
        match machine.sponsor() {
            Some(_) => self.ask_or_begin(now, out),
            None => self.joining_since = None,
        }
        if now >= self.next_look {
            self.next_look = now.after(LOOK_INTERVAL);
            self.look(out);
        }
    }

    /// The machine asks one after the other to be let in. After a while this server begins alone.
    fn ask_or_begin(&mut self, now: Mono, out: &mut Vec<Command>) {
        let since = *self.joining_since.get_or_insert(now);
        let is_first = self.others.first().is_none_or(|first| self.me < *first);
        let delay = if is_first { FIRST_ALONE_DELAY } else { ALONE_DELAY };
        if now.since(since) >= delay {
            self.joining_since = None;
            self.step(now, Event::Join(None), out);
        }
    }

    fn look(&mut self, out: &mut Vec<Command>) {
        let Some(machine) = &self.machine else { return };
        let is_in = |server: &ServerId| machine.layout().is_some_and(|all| all.birth(*server).is_some());
        let strangers = || self.others.iter().copied().filter(|server| !is_in(server));
        let next = strangers().find(|server| *server > self.looked_at).or_else(|| strangers().next());
        if let Some(stranger) = next {
            machine.look(stranger, out);
            self.looked_at = stranger;
        }
    }
}
