//! The way of a query through the levels (G-HBA section 2.3).
//!
//! ```text
//! L1 the filters of recently found files    unique: pass it there
//! L2 own filter and replicas                unique: pass it there
//! L3 the same at all members of the group   unique: pass it there
//!    (option) the stores of all that filters named, if they are few      found: pass it there
//! L4 own filter, then store, at all         found: pass it there; nowhere: absent
//! ```
//!
//! A query that was passed to a server is looked up in its store, exactly. If it is not there, that server
//! goes on itself with the next level (the paper leaves open who does; sending it back would cost a hop). The
//! level is noted in the query, so nothing is kept at servers that it left. Missing answers: at L3 none is
//! waited for longer than `answer_wait`; at L4, which is to be certain, silent servers are asked `asks_max`
//! times.

use crate::bloom::filter::Probe;
use crate::bloom::layout::{Layout, LayoutVersion};
use crate::bloom::lru::Hit;
use crate::bloom::message::BloomMessage;
use crate::bloom::options::{HOPS_MAX, QUERIES_MAX};
use crate::bloom::round::{Checking, Round};
use crate::bloom::server::BloomServer;
use crate::machine::{Command, pass};
use crate::query::{FileKey, LookupError, Query, QueryId};
use bearing_types::{Mono, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Homes in an answer; more than one that counts is as good as none.
const HOMES_MAX: usize = 3;

const RECENT: u8 = 1;
const SEGMENT: u8 = 2;
const GROUP: u8 = 3;
const NAMED: u8 = 4;
const ALL: u8 = 5;

impl BloomServer {
    /// A query comes from a client, or from a server that believes that it is here.
    pub(super) fn on_query(&mut self, now: Mono, query: Query, out: &mut Vec<Command>) {
        let known = self.rounds.contains_key(&query.id);
        let checking = self.checks.get(&query.id).is_some_and(|check| check.own.is_some());
        if known || checking {
            // The same query by two ways: one goes on for both.
        } else if self.rounds.len() >= QUERIES_MAX || self.checks.len() >= QUERIES_MAX {
            out.push(Command::Refer(query, None));
        } else if !self.knows_itself_in() || query.trail.level != 0 {
            self.check(now, query, out);
        } else {
            self.recent_level(now, query, out);
        }
    }

    fn knows_itself_in(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.birth(self.id) == Some(self.birth))
    }

    fn recent_level(&mut self, now: Mono, mut query: Query, out: &mut Vec<Command>) {
        let Some(recent) = &mut self.recent else {
            return self.segment_level(now, query, false, out);
        };
        query.trail.entry = Some(self.id);
        match recent.home(query.target.file) {
            Hit::Only(home) if self.leads_to(home) => {
                // Used again: it is young again.
                self.learn(query.target.file, home);
                self.go(now, query, RECENT, home, out);
            }
            Hit::Only(_) | Hit::None => self.segment_level(now, query, false, out),
        }
    }

    /// `denied`: this server's own store was looked into.
    fn segment_level(&mut self, now: Mono, query: Query, denied: bool, out: &mut Vec<Command>) {
        let homes = self.homes(query.target.file, denied);
        match Hit::only_of(homes) {
            Hit::Only(home) if self.leads_to(home) => self.go(now, query, SEGMENT, home, out),
            Hit::Only(_) | Hit::None => self.group_level(now, query, denied, out),
        }
    }

    fn group_level(&mut self, now: Mono, query: Query, denied: bool, out: &mut Vec<Command>) {
        let Some(layout) = self.layout.clone() else {
            return self.all_level(now, query, denied, out);
        };
        let division = layout.division();
        let members = division.group_of(self.id).map_or(Vec::new(), |group| division.members(group));
        let peers: BTreeSet<ServerId> = members
            .into_iter()
            .filter(|peer| *peer != self.id && !self.away.contains(peer) && !self.silent.contains(peer))
            .collect();
        let homes: BTreeSet<ServerId> = self.homes(query.target.file, denied).into_iter().collect();
        if peers.is_empty() {
            return self.named_level(now, query, denied, homes, out);
        }
        peers.iter().for_each(|peer| self.send(*peer, BloomMessage::AskGroup(query), out));
        self.wait(
            now,
            Round { homes, waiting: peers.clone(), asked: peers, ..Round::of(query, GROUP, denied) },
        );
    }

    /// Beyond the paper: several filters answer, one of them rightly unless it is stale: asking those is
    /// cheaper than asking all.
    fn named_level(
        &mut self,
        now: Mono,
        query: Query,
        denied: bool,
        mut homes: BTreeSet<ServerId>,
        out: &mut Vec<Command>,
    ) {
        homes.retain(|home| *home != self.id && self.leads_to(*home));
        let Some(layout) = self.layout.clone() else {
            return self.all_level(now, query, denied, out);
        };
        if homes.is_empty() || homes.len() > self.options.named_max as usize {
            return self.all_level(now, query, denied, out);
        }
        for home in &homes {
            self.send(*home, BloomMessage::AskStore(query, layout.version()), out);
        }
        self.wait(now, Round { waiting: homes.clone(), asked: homes, ..Round::of(query, NAMED, denied) });
    }

    fn all_level(&mut self, now: Mono, query: Query, denied: bool, out: &mut Vec<Command>) {
        if !denied && self.own.may_hold(query.target.file) {
            return self.go(now, query, ALL, self.id, out);
        }
        let Some(layout) = self.layout.clone() else {
            return out.push(Command::Refer(query, None));
        };
        let mut round = Round::of(query, ALL, true);
        let mut everybody = layout.everybody();
        everybody.extend(self.strays.keys());
        self.ask_newcomers(&mut round, &everybody, layout.version(), out);
        if round.waiting.is_empty() {
            out.push(Command::Fail(query, LookupError::Absent));
        } else {
            self.wait(now, round);
        }
    }

    /// Asks those of these who were not asked yet.
    fn ask_newcomers(
        &self,
        round: &mut Round,
        servers: &BTreeSet<ServerId>,
        known: LayoutVersion,
        out: &mut Vec<Command>,
    ) {
        for server in servers {
            if *server != self.id && round.asked.insert(*server) {
                round.waiting.insert(*server);
                self.send(*server, BloomMessage::AskStore(round.query, known), out);
            }
        }
    }

    /// Others may have an answer too: rounds that are to be certain ask them.
    pub(super) fn ask_newcomers_of_all_rounds(
        &mut self,
        servers: &BTreeSet<ServerId>,
        out: &mut Vec<Command>,
    ) {
        let Some(known) = self.layout.as_ref().map(|layout| layout.version()) else { return };
        let mut rounds = std::mem::take(&mut self.rounds);
        for round in rounds.values_mut().filter(|round| round.level == ALL) {
            self.ask_newcomers(round, servers, known, out);
        }
        self.rounds = rounds;
    }

    /// What an answer says beside it. Taken before the answer counts: those that are named must be asked too.
    pub(super) fn learn_of_others(
        &mut self,
        now: Mono,
        from: ServerId,
        layout: Option<Arc<Layout>>,
        strays: Vec<ServerId>,
        out: &mut Vec<Command>,
    ) {
        let mut named: BTreeSet<ServerId> = strays.into_iter().collect();
        if let Some(layout) = layout {
            // Also those of an older one: it may be of the other side of a network that was cut, and they
            // came in there.
            named.extend(layout.everybody());
            self.on_layout(now, from, layout, out);
        }
        if !named.is_empty() {
            self.ask_newcomers_of_all_rounds(&named, out);
        }
    }

    fn wait(&mut self, now: Mono, mut round: Round) {
        // Of the same query by two ways, one goes on for both.
        self.take_round(round.query.id);
        round.deadline = now.after(self.options.answer_wait);
        self.deadlines.insert((round.deadline, round.query.id));
        self.rounds.insert(round.query.id, round);
    }

    fn take_round(&mut self, id: QueryId) -> Option<Round> {
        let round = self.rounds.remove(&id)?;
        self.deadlines.remove(&(round.deadline, id));
        Some(round)
    }

    /// Passes a query on to where a level says it is; that may be here.
    fn go(&mut self, now: Mono, mut query: Query, level: u8, home: ServerId, out: &mut Vec<Command>) {
        query.trail.level = level;
        if home == self.id { self.check(now, query, out) } else { pass(query, Some(home), HOPS_MAX, out) }
    }

    fn check(&mut self, now: Mono, query: Query, out: &mut Vec<Command>) {
        if !self.own.may_hold(query.target.file) {
            return self.denied(now, query, out);
        }
        let known = self.checks.contains_key(&query.id);
        self.checks.entry(query.id).or_default().own = Some(query);
        if !known {
            out.push(Command::Check(query));
        }
    }

    pub(super) fn on_checked(&mut self, now: Mono, query: Query, has: bool, out: &mut Vec<Command>) {
        let Some(check) = self.checks.remove(&query.id) else { return };
        for (asker, theirs) in check.asked_by {
            self.say(asker, query.id, has, theirs, out);
        }
        match check.own {
            Some(own) if has => self.serve(own, out),
            Some(own) => self.denied(now, own, out),
            None => {}
        }
    }

    fn serve(&mut self, query: Query, out: &mut Vec<Command>) {
        match query.trail.level {
            0 | RECENT => self.counts.found_recent += 1,
            SEGMENT => self.counts.found_segment += 1,
            GROUP => self.counts.found_group += 1,
            NAMED => self.counts.found_named += 1,
            _ => self.counts.found_all += 1,
        }
        match query.trail.entry {
            Some(entry) if entry == self.id => self.learn(query.target.file, self.id),
            Some(entry) if query.trail.level > RECENT => {
                self.send(entry, BloomMessage::Found(query.target.file), out);
            }
            Some(_) | None => {}
        }
        out.push(Command::Serve(query));
    }

    /// It is not here: the next level.
    fn denied(&mut self, now: Mono, query: Query, out: &mut Vec<Command>) {
        if !self.knows_itself_in() {
            return out.push(Command::Refer(query, None));
        }
        self.counts.misled += 1;
        match query.trail.level {
            0 | RECENT => self.segment_level(now, query, true, out),
            SEGMENT => self.group_level(now, query, true, out),
            _ => self.all_level(now, query, true, out),
        }
    }

    /// What could not be reached does not answer; a query that could not be passed on goes to the next level
    /// here.
    pub(super) fn on_unreachable(
        &mut self,
        now: Mono,
        server: ServerId,
        query: Option<Query>,
        out: &mut Vec<Command>,
    ) {
        self.away.insert(server);
        // One query that came back may have been a connection that broke: only for a message that came back
        // the server is gone to those that wait for it.
        let Some(query) = query else {
            self.unaware.remove(&server);
            let waits = |round: &&Round| round.waiting.contains(&server);
            let waiting: Vec<QueryId> =
                self.rounds.values().filter(waits).map(|round| round.query.id).collect();
            return waiting.into_iter().for_each(|id| self.answered(now, server, id, out));
        };
        match query.trail.level {
            0 | RECENT => self.segment_level(now, query, false, out),
            SEGMENT => self.group_level(now, query, false, out),
            _ => self.all_level(now, query, false, out),
        }
    }

    pub(super) fn on_ask_group(&mut self, from: ServerId, query: Query, out: &mut Vec<Command>) {
        let mut homes = self.homes(query.target.file, false);
        homes.truncate(HOMES_MAX);
        self.send(from, BloomMessage::Homes(query.id, homes), out);
    }

    pub(super) fn on_homes(
        &mut self,
        now: Mono,
        from: ServerId,
        id: QueryId,
        homes: Vec<ServerId>,
        out: &mut Vec<Command>,
    ) {
        if let Some(round) = self.rounds.get_mut(&id).filter(|round| round.level == GROUP) {
            round.homes.extend(homes.into_iter().take(HOMES_MAX));
            self.answered(now, from, id, out);
        }
    }

    pub(super) fn on_ask_store(
        &mut self,
        from: ServerId,
        query: Query,
        theirs: LayoutVersion,
        out: &mut Vec<Command>,
    ) {
        if !self.own.may_hold(query.target.file) {
            self.say(from, query.id, false, theirs, out);
        } else if let Some(check) = self.checks.get_mut(&query.id) {
            check.asked_by.insert(from, theirs);
        } else if self.checks.len() < QUERIES_MAX {
            let asked_by = BTreeMap::from([(from, theirs)]);
            self.checks.insert(query.id, Checking { own: None, asked_by });
            out.push(Command::Check(query));
        }
    }

    /// An answer at L4, for one who knows of this layout.
    fn say(&self, to: ServerId, id: QueryId, has: bool, theirs: LayoutVersion, out: &mut Vec<Command>) {
        let other = self.layout.clone().filter(|layout| layout.version() != theirs);
        self.send(to, BloomMessage::Has(id, has, other, self.strays.keys().copied().collect()), out);
    }

    pub(super) fn on_has(
        &mut self,
        now: Mono,
        from: ServerId,
        id: QueryId,
        has: bool,
        out: &mut Vec<Command>,
    ) {
        if self.rounds.get(&id).is_none_or(|round| round.level == GROUP) {
            return;
        }
        if !has {
            self.answered(now, from, id, out);
        } else if let Some(round) = self.take_round(id) {
            self.go(now, round.query, round.level, from, out);
        }
    }

    /// One of a round needs not be waited for any more; the last one ends it.
    fn answered(&mut self, now: Mono, server: ServerId, id: QueryId, out: &mut Vec<Command>) {
        let Some(round) = self.rounds.get_mut(&id) else { return };
        round.waiting.remove(&server);
        if round.waiting.is_empty()
            && let Some(round) = self.take_round(id)
        {
            self.end_round(now, round, out);
        }
    }

    fn end_round(&mut self, now: Mono, round: Round, out: &mut Vec<Command>) {
        match round.level {
            ALL => {
                let unsure = round.waiting.iter().find(|server| self.leads_to(**server));
                let error = unsure.map_or(LookupError::Absent, |server| LookupError::Unanswered(*server));
                return out.push(Command::Fail(round.query, error));
            }
            NAMED => return self.all_level(now, round.query, round.denied, out),
            _ => {}
        }
        let mut homes = round.homes;
        if round.denied {
            homes.remove(&self.id);
        }
        match Hit::only_of(homes.iter().copied()) {
            Hit::Only(home) if self.leads_to(home) => self.go(now, round.query, GROUP, home, out),
            Hit::Only(_) | Hit::None => self.named_level(now, round.query, round.denied, homes, out),
        }
    }

    /// Rounds whose time is up go on: at L4 by asking once more, before it without the missing answers.
    pub(super) fn rounds_due(&mut self, now: Mono, out: &mut Vec<Command>) {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            let Some(mut round) = self.take_round(id) else { return };
            if round.level != ALL || round.asks >= self.options.asks_max {
                self.end_round(now, round, out);
                continue;
            }
            round.asks += 1;
            let version = self.layout.as_ref().map(|layout| layout.version());
            for server in &round.waiting {
                let asked = version.map(|version| BloomMessage::AskStore(round.query, version));
                asked.into_iter().for_each(|message| self.send(*server, message, out));
            }
            self.wait(now, round);
        }
    }

    /// The homes that the filters here name: its own unless it was looked into, and the replicas.
    fn homes(&self, file: FileKey, denied: bool) -> Vec<ServerId> {
        let probe = Probe::of(file, self.options.filter.seed);
        let own = (!denied && self.own.bits().may_hold_probe(probe)).then_some(self.id);
        let others = self.replicas.values().filter(|replica| replica.filter.may_hold_probe(probe));
        own.into_iter().chain(others.map(|replica| replica.of)).collect()
    }

    /// Whether a filter that names this home is to be followed.
    fn leads_to(&self, home: ServerId) -> bool {
        let is_in = self.layout.as_ref().is_some_and(|layout| layout.birth(home).is_some());
        home == self.id || is_in && !self.away.contains(&home) && !self.silent.contains(&home)
    }

    /// A file was found at a home.
    pub(super) fn learn(&mut self, file: FileKey, home: ServerId) {
        if let Some(recent) = &mut self.recent {
            recent.learn(file, home);
        }
    }
}
