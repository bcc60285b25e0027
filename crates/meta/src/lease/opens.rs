//! Who may have which file of one tablet open, so that an unlinked file lives on for all of them, however
//! long they are silent.
//!
//! Invariants: a session that was given a file (by an open, a create, or a lease with the right to open
//! without asking) counts as having it open until it says that it has not, or ends; time alone ends nothing
//! here. What a session says counts against a file only if it spoke after it had the reply that gave it the
//! file (`finished_below`), and, for a open-state query, if the file was not given again since the open-state
//! query was sent. A release counts only if it was sent after that, and after what the session said last. A
//! file is asked about only when no lease allows it to be opened without asking.
//!
//! Bounded: above so many files of one session it is only known that this session may have *any* file of the
//! tablet open, until it has said which. Marks of orphans are kept beside that: the log has them too.
//!
//! Every stat of a file that nobody leased yet passes here, and every end of its lease; so a file costs one
//! hashed entry, and one line in its session's calendar, which is not struck when the file goes or is given
//! again but found to be void when its time comes.

use crate::config::Config;
use crate::lease::leases::tick_after;
use bearing_types::{IdMap, Mono, NodeId, Sequence, SessionId};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A session that was asked longer ago is silent.
const SOON: Duration = Duration::from_millis(50);
/// A calendar may have so many lines beside two for each file before those that are void are struck.
const VOID_LINES_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    files: Files,
    sessions: BTreeMap<SessionId, Opener>,
    /// Sessions that may have any file open.
    coarse: BTreeSet<SessionId>,
    /// When each session is looked at next.
    due: BTreeSet<(Mono, SessionId)>,
    next_survey: u64,
}

/// Who may have each file open; mostly one session. Never walked, so its own order does not matter.
#[derive(Debug, Default)]
struct Files(IdMap<NodeId, Openers>);

type Openers = SmallVec<[(SessionId, Given); 1]>;

/// One session.
#[derive(Debug)]
struct Opener {
    session: SessionId,
    /// How many files it may have open, and of how many of these the log says so.
    files: usize,
    orphans: usize,
    calendar: Calendar,
    /// It may have any file open, also such as are not told apart.
    anything: Option<Anything>,
    open_state_query: Option<SurveyState>,
    /// Its place in [`OpenTable::due`].
    look: Option<Mono>,
}

/// When files of a session are looked at next ([`Given::filed`]). Lines of files that have gone, or stand
/// elsewhere by now, are void.
#[derive(Debug, Default)]
struct Calendar {
    lines: BTreeMap<Mono, Vec<NodeId>>,
    count: usize,
}

/// A file that a session may have open. It stands in the calendar of its session, or in the open-state query
/// that asks about it.
#[derive(Debug)]
struct Given {
    /// The last request whose reply gave it, or that was finished when the session said that it has it open.
    by: Sequence,
    /// When to ask about it.
    ask_at: Mono,
    /// Where it stands in the calendar: not after `ask_at`.
    filed: Mono,
    /// Until then a lease may let it be opened without asking: it is not asked about before.
    not_before: Mono,
    /// The open-state query that asks about it, if it was not given since.
    open_state_query: Option<u64>,
    /// What the session said last.
    said: Said,
    /// The log says that this session keeps the unlinked node.
    orphan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Open,
    Closed,
    /// It did not name the file, but spoke before it had a reply that gave it: an earlier request of it is on
    /// its way yet.
    Unclear,
}

#[derive(Clone, Copy, Debug)]
struct Anything {
    by: Sequence,
    ask_at: Mono,
}

#[derive(Debug)]
struct SurveyState {
    number: u64,
    /// When it is sent again.
    again: Mono,
    about: About,
}

#[derive(Clone, Debug)]
enum About {
    Everything,
    Files(Vec<NodeId>),
}

/// An open-state query to send; no nodes: all files of the tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenStateWish {
    pub session: SessionId,
    pub number: u64,
    pub nodes: Vec<NodeId>,
}

/// What a session said it has open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub session: SessionId,
    /// The session had taken all replies below this one.
    pub finished_below: Sequence,
    pub open: &'a [NodeId],
}

impl OpenTable {
    // --- what makes a session count ---

    /// After a take-over: a session of the former owner may have anything open.
    pub fn inherit(&mut self, session: SessionId, ask_at: Mono) {
        self.change(session, |opener, _| opener.anything = Some(Anything { by: Sequence(0), ask_at }));
    }

    /// The reply to a request gives a file to a session. No lease lets it be opened without asking after
    /// `lease_end`.
    pub fn give(&mut self, session: SessionId, node: NodeId, by: Sequence, lease_end: Mono, config: &Config) {
        let ask_at = tick_after(lease_end.after(config.open_query_delay));
        let max = config.opens_per_session_max;
        let given = self.change(session, |opener, files| opener.give(files, node, by, ask_at, max));
        if !given {
            self.forget_details(session, by, ask_at);
        }
    }

    /// Too many: only that the session may have anything open is remembered, and asked about once none of its
    /// leases can be alive.
    fn forget_details(&mut self, session: SessionId, by: Sequence, ask_at: Mono) {
        self.change(session, |opener, files| {
            let mut anything = opener.anything.unwrap_or(Anything { by, ask_at });
            let mut orphans = BTreeSet::new();
            for node in opener.nodes().collect::<Vec<_>>() {
                let Some(given) = files.given(session, node) else { continue };
                if given.orphan {
                    orphans.insert(node);
                    continue;
                }
                anything.by = anything.by.max(given.by);
                anything.ask_at = anything.ask_at.max(given.ask_at);
                opener.remove(files, node);
            }
            anything.by = anything.by.max(by);
            anything.ask_at = anything.ask_at.max(ask_at);
            opener.anything = Some(anything);
            opener.open_state_query = None;
            opener.calendar = Calendar::default();
            for node in orphans {
                let Some(given) = files.given_mut(session, node) else { continue };
                given.open_state_query = None;
                given.filed = given.ask_at;
                opener.calendar.write(given.filed, node);
            }
        });
    }

    /// The log says from now on that this session keeps an unlinked node. It is asked whether it does unless
    /// it said so.
    pub fn orphaned(&mut self, session: SessionId, node: NodeId, now: Mono) {
        self.change(session, |opener, files| {
            let known = std::mem::replace(&mut opener.give_at_least(files, node, now).orphan, true);
            opener.orphans += usize::from(!known);
        });
    }

    // --- what ends it ---

    /// The log does not say any more that this session keeps a node: it has let go of it.
    pub fn released(&mut self, session: SessionId, node: NodeId) {
        self.remove(session, node);
    }

    /// Whether a release under this number comes too late to count: the session may have opened the file
    /// again since it was sent.
    pub fn is_late_release(&self, session: SessionId, node: NodeId, sequence: Sequence) -> bool {
        let Some(opener) = self.sessions.get(&session) else { return false };
        let given = self.files.given(session, node).map(|given| given.by);
        given.max(opener.anything.map(|anything| anything.by)).is_some_and(|by| by >= sequence)
    }

    /// The session says, unasked, that it has closed a file. It is asked whether that is still so.
    pub fn closed(&mut self, session: SessionId, node: NodeId, sequence: Sequence, now: Mono) {
        if self.files.given(session, node).is_some_and(|given| given.by < sequence) {
            self.change(session, |opener, files| opener.ask_again(files, node, now, Said::Nothing));
        }
    }

    /// A node is gone.
    pub fn gone(&mut self, node: NodeId) {
        for session in self.files.sessions(node).collect::<Vec<_>>() {
            self.remove(session, node);
        }
    }

    /// A session is over.
    pub fn forget_session(&mut self, session: SessionId) {
        let Some(opener) = self.sessions.remove(&session) else { return };
        if let Some(look) = opener.look {
            self.due.remove(&(look, session));
        }
        self.coarse.remove(&session);
        for node in opener.nodes() {
            self.files.remove(session, node);
        }
    }

    // --- who counts ---

    /// The sessions that may have a node open.
    pub fn openers(&self, node: NodeId) -> BTreeSet<SessionId> {
        self.files.sessions(node).chain(self.coarse.iter().copied()).collect()
    }

    /// Whether a session that did not have a node open when it made a request, which declares this number
    /// finished, may have it open all the same: it may have opened it while the request was on its way.
    pub fn may_hold(&self, session: SessionId, node: NodeId, finished_below: Sequence) -> bool {
        let later = |given: &Given| given.by >= finished_below || given.said == Said::Open;
        self.coarse.contains(&session) || self.files.given(session, node).is_some_and(later)
    }

    /// Whether a session said last that it has the node open.
    pub fn said_open(&self, session: SessionId, node: NodeId) -> bool {
        self.files.given(session, node).is_some_and(|given| given.said == Said::Open)
    }

    /// Whether a session said last that it has the node open no more, and was not given it since.
    pub fn said_closed(&self, session: SessionId, node: NodeId) -> bool {
        self.files.given(session, node).is_some_and(|given| given.said == Said::Closed)
    }

    /// Whether the log says that a session other than this one keeps a node.
    pub fn kept_by_another(&self, session: SessionId, node: NodeId) -> bool {
        self.files.of(node).iter().any(|(other, given)| *other != session && given.orphan)
    }

    /// The unlinked nodes that a session keeps.
    pub fn orphans_of(&self, session: SessionId) -> Vec<NodeId> {
        let nodes = self.sessions.get(&session).into_iter().flat_map(Opener::nodes);
        let kept = |node: &NodeId| self.files.given(session, *node).is_some_and(|given| given.orphan);
        let orphans: BTreeSet<NodeId> = nodes.filter(kept).collect();
        orphans.into_iter().collect()
    }

    // --- asking ---

    /// Somebody would like to know at once whether a session has a file open; no lease lets it be opened
    /// unasked any more. Whether an answer can be expected soon: it has not said "open", and is not silent,
    /// and does not itself wait for an answer, perhaps of whoever would wait for it here.
    pub fn ask_now(&mut self, session: SessionId, node: NodeId, now: Mono, config: &Config) -> bool {
        let Some(opener) = self.sessions.get(&session) else { return false };
        let asked_for = |open_state_query: &SurveyState| {
            now.after(config.open_query_interval).since(open_state_query.again)
        };
        let silent = opener
            .open_state_query
            .as_ref()
            .is_some_and(|open_state_query| asked_for(open_state_query) > SOON);
        let unsaid = self.files.given(session, node);
        let unsaid = unsaid.filter(|given| !matches!(given.said, Said::Open | Said::Unclear));
        let Some(given) = unsaid.filter(|_| !silent) else { return false };
        if given.open_state_query.is_none() && given.ask_at > now {
            let said = given.said;
            self.change(session, |opener, files| {
                if let Some(given) = files.given_mut(session, node) {
                    given.not_before = now;
                }
                opener.ask_again(files, node, now, said);
            });
        }
        true
    }

    /// Open-state queries to send now: one at a time to each session, again and again until it answers.
    pub fn due(&mut self, now: Mono, config: &Config) -> Vec<OpenStateWish> {
        let mut wishes = Vec::new();
        while let Some((_, session)) = self.due.first().copied().filter(|(look, _)| *look <= now) {
            let mut number = self.next_survey;
            let mut wish = None;
            self.change(session, |opener, files| wish = opener.ask(files, &mut number, now, config));
            self.next_survey = number;
            wishes.extend(wish);
        }
        wishes
    }

    /// An open-state query is answered. Gives the orphans that this session does not keep open; nothing if
    /// nobody has asked this.
    pub fn open_state(&mut self, word: Word, number: u64, now: Mono, config: &Config) -> Option<Vec<NodeId>> {
        let opener = self.sessions.get_mut(&word.session)?;
        let open_state_query =
            opener.open_state_query.take_if(|open_state_query| open_state_query.number == number)?;
        let orphans = match open_state_query.about {
            About::Everything => {
                self.hear_of_everything(word, now, config);
                Vec::new()
            }
            About::Files(nodes) => {
                let given = |node: &NodeId| self.files.given(word.session, *node);
                let asked =
                    |node: &NodeId| given(node).is_some_and(|given| given.open_state_query == Some(number));
                let asked: Vec<NodeId> = nodes.into_iter().filter(asked).collect();
                self.hear(word, &asked, now, config)
            }
        };
        Some(orphans)
    }

    /// A recall of these files is answered: their leases are gone, and while it ran none were given. Gives
    /// the orphans that this session does not keep open.
    pub fn recalled(&mut self, word: Word, nodes: &[NodeId], now: Mono, config: &Config) -> Vec<NodeId> {
        self.hear(word, nodes, now, config)
    }

    /// The session has named all files of the tablet that it has open.
    pub fn hear_of_everything(&mut self, word: Word, now: Mono, config: &Config) {
        if !self.coarse.contains(&word.session) {
            return;
        }
        let many = word.open.len() > config.opens_per_session_max;
        for node in word.open.iter().filter(|_| !many) {
            self.hear_open(word, *node, now, config);
        }
        self.change(word.session, |opener, _| match &mut opener.anything {
            Some(anything) if many => anything.ask_at = now.after(config.opened_query_interval),
            Some(anything) if anything.by >= word.finished_below => {
                anything.ask_at = now.after(config.open_query_interval);
            }
            Some(_) | None => opener.anything = None,
        });
    }

    fn hear(&mut self, word: Word, nodes: &[NodeId], now: Mono, config: &Config) -> Vec<NodeId> {
        let mut let_go = Vec::new();
        let open: BTreeSet<NodeId> = word.open.iter().copied().collect();
        for node in nodes {
            if open.contains(node) {
                self.hear_open(word, *node, now, config);
                continue;
            }
            let Some(given) = self.files.given(word.session, *node) else { continue };
            let (late, orphan) = (given.by >= word.finished_below, given.orphan);
            if !late && !orphan {
                self.remove(word.session, *node);
                continue;
            }
            let said = match given.said {
                Said::Open if late => Said::Open,
                _ if late => Said::Unclear,
                _ => Said::Closed,
            };
            let again = tick_after(now.after(config.open_query_interval));
            self.change(word.session, |opener, files| opener.ask_again(files, *node, again, said));
            if !late {
                let_go.push(*node);
            }
        }
        let_go
    }

    fn hear_open(&mut self, word: Word, node: NodeId, now: Mono, config: &Config) {
        let again = tick_after(now.after(config.opened_query_interval));
        self.change(word.session, |opener, files| {
            let given = opener.give_at_least(files, node, again);
            given.by = given.by.max(Sequence(word.finished_below.0.saturating_sub(1)));
            opener.ask_again(files, node, again, Said::Open);
        });
    }

    // --- within ---

    fn remove(&mut self, session: SessionId, node: NodeId) {
        if self.sessions.contains_key(&session) {
            self.change(session, |opener, files| opener.remove(files, node));
        }
    }

    /// Changes a session, and notes when it has to be looked at.
    fn change<T>(&mut self, session: SessionId, change: impl FnOnce(&mut Opener, &mut Files) -> T) -> T {
        let opener = self.sessions.entry(session).or_insert_with(|| Opener::new(session));
        let changed = change(opener, &mut self.files);
        if opener.anything.is_some() {
            self.coarse.insert(session);
        } else {
            self.coarse.remove(&session);
        }
        let over = opener.files == 0 && opener.anything.is_none();
        let look = opener.next_look().filter(|_| !over);
        if look != opener.look {
            if let Some(before) = std::mem::replace(&mut opener.look, look) {
                self.due.remove(&(before, session));
            }
            self.due.extend(look.map(|look| (look, session)));
        }
        if over {
            self.sessions.remove(&session);
        }
        changed
    }
}

impl Files {
    fn of(&self, node: NodeId) -> &[(SessionId, Given)] {
        self.0.get(&node).map_or(&[], SmallVec::as_slice)
    }

    fn sessions(&self, node: NodeId) -> impl Iterator<Item = SessionId> {
        self.of(node).iter().map(|(session, _)| *session)
    }

    fn given(&self, session: SessionId, node: NodeId) -> Option<&Given> {
        self.of(node).iter().find(|(of, _)| *of == session).map(|(_, given)| given)
    }

    fn given_mut(&mut self, session: SessionId, node: NodeId) -> Option<&mut Given> {
        self.0.get_mut(&node)?.iter_mut().find(|(of, _)| *of == session).map(|(_, given)| given)
    }

    /// What `session` was given of a file, and whether it is new here.
    fn entry(&mut self, session: SessionId, node: NodeId, filed: Mono) -> (&mut Given, bool) {
        let sessions = self.0.entry(node).or_default();
        let place = sessions.iter().position(|(of, _)| *of == session);
        let index = place.unwrap_or(sessions.len());
        if place.is_none() {
            sessions.push((session, Given::new(filed)));
        }
        (&mut sessions[index].1, place.is_none())
    }

    fn remove(&mut self, session: SessionId, node: NodeId) -> Option<Given> {
        let Entry::Occupied(mut sessions) = self.0.entry(node) else { return None };
        let place = sessions.get().iter().position(|(of, _)| *of == session)?;
        let (_, gone) = sessions.get_mut().swap_remove(place);
        if sessions.get().is_empty() {
            sessions.remove();
        }
        Some(gone)
    }
}

impl Given {
    fn new(ask_at: Mono) -> Given {
        Given {
            by: Sequence(0),
            ask_at,
            filed: ask_at,
            not_before: Mono::ZERO,
            open_state_query: None,
            said: Said::Nothing,
            orphan: false,
        }
    }
}

impl Opener {
    fn new(session: SessionId) -> Opener {
        Opener {
            session,
            files: 0,
            orphans: 0,
            calendar: Calendar::default(),
            anything: None,
            open_state_query: None,
            look: None,
        }
    }

    /// All its files, some of them more than once, and some that have gone.
    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let open_state = match &self.open_state_query {
            Some(SurveyState { about: About::Files(nodes), .. }) => &nodes[..],
            _ => &[],
        };
        self.calendar.lines.values().flatten().chain(open_state).copied()
    }

    /// Whether there was room.
    fn give(
        &mut self,
        files: &mut Files,
        node: NodeId,
        by: Sequence,
        ask_at: Mono,
        files_max: usize,
    ) -> bool {
        // Orphans stay when details are forgotten: if they counted, each file would have them walked again.
        if self.files - self.orphans >= files_max && files.given(self.session, node).is_none() {
            return false;
        }
        let given = self.give_at_least(files, node, ask_at);
        given.by = given.by.max(by);
        given.not_before = given.not_before.max(ask_at);
        // What it says of an earlier time does not count, and what it said of being closed neither.
        let said = if given.said == Said::Open { Said::Open } else { Said::Nothing };
        let ask_at = given.ask_at;
        file(&mut self.calendar, node, given, ask_at, said);
        true
    }

    /// Makes the file known if it is not.
    fn give_at_least<'a>(&mut self, files: &'a mut Files, node: NodeId, ask_at: Mono) -> &'a mut Given {
        let (given, new) = files.entry(self.session, node, ask_at);
        if new {
            self.files += 1;
            self.calendar.write(ask_at, node);
        }
        given
    }

    fn remove(&mut self, files: &mut Files, node: NodeId) {
        if let Some(gone) = files.remove(self.session, node) {
            (self.files, self.orphans) = (self.files - 1, self.orphans - usize::from(gone.orphan));
        }
        // Whoever answers no open-state query has no line read.
        if self.calendar.count > 2 * self.files + VOID_LINES_MAX {
            self.calendar.strike_void(|node, filed| {
                let given = files.given(self.session, node);
                given.is_some_and(|given| given.filed == filed && given.open_state_query.is_none())
            });
        }
    }

    /// Asks about a file at this time, but not while a lease may last.
    fn ask_again(&mut self, files: &mut Files, node: NodeId, ask_at: Mono, said: Said) {
        if let Some(given) = files.given_mut(self.session, node) {
            file(&mut self.calendar, node, given, ask_at, said);
        }
    }

    fn next_look(&self) -> Option<Mono> {
        if let Some(open_state_query) = &self.open_state_query {
            // Repeated, whatever else is due.
            return Some(open_state_query.again);
        }
        let files = self.calendar.lines.first_key_value().map(|(filed, _)| *filed);
        files.into_iter().chain(self.anything.map(|anything| anything.ask_at)).min()
    }

    fn ask(
        &mut self,
        files: &mut Files,
        number: &mut u64,
        now: Mono,
        config: &Config,
    ) -> Option<OpenStateWish> {
        if self.open_state_query.is_none() {
            let about = self.choose(files, *number, now, config)?;
            self.open_state_query = Some(SurveyState { number: *number, again: now, about });
            *number += 1;
        }
        let open_state_query = self.open_state_query.as_mut()?;
        open_state_query.again = now.after(config.open_query_interval);
        let nodes = match &open_state_query.about {
            About::Everything => Vec::new(),
            About::Files(nodes) => nodes.clone(),
        };
        Some(OpenStateWish { session: self.session, number: open_state_query.number, nodes })
    }

    /// What is asked about next: of files, all whose leases are over, so that one open-state query serves
    /// many. Nothing in the calendar is due after this gave nothing.
    fn choose(&mut self, files: &mut Files, number: u64, now: Mono, config: &Config) -> Option<About> {
        if self.anything.is_some_and(|anything| anything.ask_at <= now) {
            return Some(About::Everything);
        }
        let soon = now.after(config.open_query_delay);
        let mut nodes = Vec::new();
        while nodes.len() < config.open_query_nodes_max {
            let Some((filed, node)) = self.calendar.read_until(soon) else { break };
            let given = files.given_mut(self.session, node);
            let Some(given) = given.filter(|given| given.filed == filed && given.open_state_query.is_none())
            else {
                continue;
            };
            if given.ask_at <= soon {
                given.open_state_query = Some(number);
                nodes.push(node);
            } else {
                given.filed = given.ask_at;
                self.calendar.write(given.filed, node);
            }
        }
        (!nodes.is_empty()).then_some(About::Files(nodes))
    }
}

/// Notes what was said of a file, and when to ask about it next: not while a lease may last. Only if that is
/// before its place in the calendar, or if it has none, it is written there; otherwise it is found to be late
/// when its place comes.
fn file(calendar: &mut Calendar, node: NodeId, given: &mut Given, ask_at: Mono, said: Said) {
    given.said = said;
    given.ask_at = ask_at.max(given.not_before);
    if given.open_state_query.take().is_some() || given.ask_at < given.filed {
        given.filed = given.ask_at;
        calendar.write(given.filed, node);
    }
}

impl Calendar {
    fn write(&mut self, filed: Mono, node: NodeId) {
        self.lines.entry(filed).or_default().push(node);
        self.count += 1;
    }

    /// Takes a line that stands there until this time, one of the earliest.
    fn read_until(&mut self, time: Mono) -> Option<(Mono, NodeId)> {
        let mut line = self.lines.first_entry().filter(|line| *line.key() <= time)?;
        let filed = *line.key();
        let node = line.get_mut().pop()?;
        if line.get().is_empty() {
            line.remove();
        }
        self.count -= 1;
        Some((filed, node))
    }

    fn strike_void(&mut self, holds: impl Fn(NodeId, Mono) -> bool) {
        self.lines.retain(|filed, nodes| {
            nodes.sort_unstable();
            nodes.dedup();
            nodes.retain(|node| holds(*node, *filed));
            !nodes.is_empty()
        });
        self.count = self.lines.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests;
