//! Who may have which file of one tablet open, so that an unlinked file lives on for all of them, however long they are silent.
//!
//! Invariants: a session that was given a file (by an open, a create, or a lease with the right to open without asking) counts as having it open until
//! it says that it has not, or ends; time alone ends nothing here. What a session says counts against a file only if it spoke after it had
//! the reply that gave it the file (`finished_below`), and, for a survey, if the file was not given again since the survey was sent. A
//! release counts only if it was sent after that, and after what the session said last. A
//! file is asked about only when no lease allows it to be opened without asking.
//!
//! Bounded: above so many files of one session it is only known that this session may have *any* file of the tablet open, until it has said
//! which. Marks of orphans are kept beside that: the log has them too.

use crate::cache::KeyHasher;
use crate::config::Config;
use bearing_types::{Mono, NodeId, Sequence, SessionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::time::Duration;

/// A session that was asked longer ago is silent.
const SOON: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    sessions: BTreeMap<SessionId, Opener>,
    /// The sessions of each file, in order; mostly one. Never walked, so its own order does not matter.
    by_node: HashMap<NodeId, Vec<SessionId>, BuildHasherDefault<KeyHasher>>,
    /// Sessions that may have any file open.
    coarse: BTreeSet<SessionId>,
    /// When each session is looked at next.
    due: BTreeSet<(Mono, SessionId)>,
    next_survey: u64,
}

/// One session.
#[derive(Debug, Default)]
struct Opener {
    files: BTreeMap<NodeId, Given>,
    by_time: BTreeSet<(Mono, NodeId)>,
    /// It may have any file open, also such as are not in `files`.
    anything: Option<Anything>,
    survey: Option<SurveyState>,
    /// Its place in [`OpenTable::due`].
    look: Option<Mono>,
}

/// A file that a session may have open.
#[derive(Debug)]
struct Given {
    /// The last request whose reply gave it, or that was finished when the session said that it has it open.
    by: Sequence,
    /// When to ask about it.
    ask_at: Mono,
    /// Until then a lease may let it be opened without asking: it is not asked about before.
    not_before: Mono,
    /// The survey that asks about it, if it was not given since.
    survey: Option<u64>,
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
    /// It did not name the file, but spoke before it had a reply that gave it: an earlier request of it is on its way yet.
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

/// A survey to send; no nodes: all files of the tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SurveyWish {
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
        self.change(session, |opener| opener.anything = Some(Anything { by: Sequence(0), ask_at }));
    }

    /// The reply to a request gives a file to a session. No lease lets it be opened without asking after `lease_end`.
    pub fn give(&mut self, session: SessionId, node: NodeId, by: Sequence, lease_end: Mono, config: &Config) {
        let ask_at = lease_end.after(config.survey_after);
        let opener = self.sessions.entry(session).or_default();
        if opener.files.len() >= config.opens_per_session_max && !opener.files.contains_key(&node) {
            self.forget_details(session, by, ask_at);
            return;
        }
        self.note_pair(session, node);
        self.change(session, |opener| opener.give(node, by, ask_at));
    }

    /// Too many: only that the session may have anything open is remembered, and asked about once none of its leases can be alive.
    fn forget_details(&mut self, session: SessionId, by: Sequence, ask_at: Mono) {
        let mut dropped = Vec::new();
        self.change(session, |opener| {
            let mut anything = opener.anything.unwrap_or(Anything { by, ask_at });
            for (node, given) in opener.files.iter().filter(|(_, given)| !given.orphan) {
                anything.by = anything.by.max(given.by);
                anything.ask_at = anything.ask_at.max(given.ask_at);
                dropped.push(*node);
            }
            anything.by = anything.by.max(by);
            anything.ask_at = anything.ask_at.max(ask_at);
            opener.anything = Some(anything);
            dropped.iter().for_each(|node| opener.remove(*node));
            opener.survey = None;
        });
        dropped.iter().for_each(|node| self.forget_pair(session, *node));
    }

    /// The log says from now on that this session keeps an unlinked node. It is asked whether it does unless it said so.
    pub fn orphaned(&mut self, session: SessionId, node: NodeId, now: Mono) {
        self.note_pair(session, node);
        self.change(session, |opener| {
            if opener.files.get(&node).is_none_or(|given| given.said != Said::Open) {
                opener.give_at_least(node, now);
            }
            if let Some(given) = opener.files.get_mut(&node) {
                given.orphan = true;
            }
        });
    }

    // --- what ends it ---

    /// The log does not say any more that this session keeps a node: it has let go of it.
    pub fn released(&mut self, session: SessionId, node: NodeId) {
        self.remove(session, node);
    }

    /// Whether a release under this number comes too late to count: the session may have opened the file again since it was sent.
    pub fn is_late_release(&self, session: SessionId, node: NodeId, sequence: Sequence) -> bool {
        let Some(opener) = self.sessions.get(&session) else { return false };
        let given = opener.files.get(&node).map(|given| given.by);
        given.max(opener.anything.map(|anything| anything.by)).is_some_and(|by| by >= sequence)
    }

    /// The session says, unasked, that it has closed a file. It is asked whether that is still so.
    pub fn closed(&mut self, session: SessionId, node: NodeId, sequence: Sequence, now: Mono) {
        if self.given(session, node).is_some_and(|given| given.by < sequence) {
            self.change(session, |opener| opener.ask_again(node, now, Said::Nothing));
        }
    }

    /// A node is gone.
    pub fn gone(&mut self, node: NodeId) {
        for session in self.by_node.get(&node).cloned().unwrap_or_default() {
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
        opener.files.keys().for_each(|node| self.forget_pair(session, *node));
    }

    // --- who counts ---

    /// The sessions that may have a node open.
    pub fn openers(&self, node: NodeId) -> BTreeSet<SessionId> {
        let known = self.by_node.get(&node).into_iter().flatten();
        known.chain(&self.coarse).copied().collect()
    }

    /// Whether a session that did not have a node open when it made a request, which declares this number finished, may have it open all the same:
    /// it may have opened it while the request was on its way.
    pub fn may_hold(&self, session: SessionId, node: NodeId, finished_below: Sequence) -> bool {
        let later = |given: &Given| given.by >= finished_below || given.said == Said::Open;
        self.coarse.contains(&session) || self.given(session, node).is_some_and(later)
    }

    /// Whether a session said last that it has the node open.
    pub fn said_open(&self, session: SessionId, node: NodeId) -> bool {
        self.given(session, node).is_some_and(|given| given.said == Said::Open)
    }

    /// Whether a session said last that it has the node open no more, and was not given it since.
    pub fn said_closed(&self, session: SessionId, node: NodeId) -> bool {
        self.given(session, node).is_some_and(|given| given.said == Said::Closed)
    }

    /// Whether the log says that a session other than this one keeps a node.
    pub fn kept_by_another(&self, session: SessionId, node: NodeId) -> bool {
        let keeps = |other: &SessionId| self.given(*other, node).is_some_and(|given| given.orphan);
        self.by_node.get(&node).into_iter().flatten().any(|other| *other != session && keeps(other))
    }

    /// The unlinked nodes that a session keeps.
    pub fn orphans_of(&self, session: SessionId) -> Vec<NodeId> {
        let files = self.sessions.get(&session).map(|opener| &opener.files);
        let orphans = files.into_iter().flatten().filter(|(_, given)| given.orphan);
        orphans.map(|(node, _)| *node).collect()
    }

    // --- asking ---

    /// Somebody would like to know at once whether a session has a file open; no lease lets it be opened unasked any more. Whether an answer can be expected
    /// soon: it has not said "open", and is not silent, and does not itself wait for an answer, perhaps of whoever would wait for it here.
    pub fn ask_now(&mut self, session: SessionId, node: NodeId, now: Mono, config: &Config) -> bool {
        let Some(opener) = self.sessions.get(&session) else { return false };
        let asked_for = |survey: &SurveyState| now.after(config.survey_again).since(survey.again);
        let silent = opener.survey.as_ref().is_some_and(|survey| asked_for(survey) > SOON);
        let unsaid = opener.files.get(&node);
        let unsaid = unsaid.filter(|given| !matches!(given.said, Said::Open | Said::Unclear));
        let Some(given) = unsaid.filter(|_| !silent) else { return false };
        if given.survey.is_none() && given.ask_at > now {
            let said = given.said;
            self.change(session, |opener| {
                if let Some(given) = opener.files.get_mut(&node) {
                    given.not_before = now;
                }
                opener.ask_again(node, now, said);
            });
        }
        true
    }

    /// Surveys to send now: one at a time to each session, again and again until it answers.
    pub fn due(&mut self, now: Mono, config: &Config) -> Vec<SurveyWish> {
        let mut wishes = Vec::new();
        while let Some((_, session)) = self.due.first().copied().filter(|(look, _)| *look <= now) {
            let mut number = self.next_survey;
            let mut wish = None;
            self.change(session, |opener| wish = opener.ask(session, &mut number, now, config));
            self.next_survey = number;
            wishes.extend(wish);
        }
        wishes
    }

    /// A survey is answered. Gives the orphans that this session does not keep open.
    pub fn surveyed(&mut self, word: Word, number: u64, now: Mono, config: &Config) -> Vec<NodeId> {
        let Some(opener) = self.sessions.get_mut(&word.session) else { return Vec::new() };
        let Some(survey) = opener.survey.take_if(|survey| survey.number == number) else {
            return Vec::new();
        };
        match survey.about {
            About::Everything => {
                self.hear_of_everything(word, now, config);
                Vec::new()
            }
            About::Files(nodes) => {
                let opener = &self.sessions[&word.session];
                let asked =
                    |node: &NodeId| opener.files.get(node).is_some_and(|given| given.survey == Some(number));
                let asked: Vec<NodeId> = nodes.into_iter().filter(asked).collect();
                self.hear(word, &asked, now, config)
            }
        }
    }

    /// A recall of these files is answered: their leases are gone, and while it ran none were given. Gives the orphans that this session does
    /// not keep open.
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
        self.change(word.session, |opener| match &mut opener.anything {
            Some(anything) if many => anything.ask_at = now.after(config.survey_opened),
            Some(anything) if anything.by >= word.finished_below => {
                anything.ask_at = now.after(config.survey_again);
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
            let Some(given) = self.given(word.session, *node) else { continue };
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
            self.change(word.session, |opener| {
                opener.ask_again(*node, now.after(config.survey_again), said);
            });
            if !late {
                let_go.push(*node);
            }
        }
        let_go
    }

    fn hear_open(&mut self, word: Word, node: NodeId, now: Mono, config: &Config) {
        self.note_pair(word.session, node);
        self.change(word.session, |opener| {
            opener.give_at_least(node, now);
            if let Some(given) = opener.files.get_mut(&node) {
                given.by = given.by.max(Sequence(word.finished_below.0.saturating_sub(1)));
            }
            opener.ask_again(node, now.after(config.survey_opened), Said::Open);
        });
    }

    // --- within ---

    fn given(&self, session: SessionId, node: NodeId) -> Option<&Given> {
        self.sessions.get(&session)?.files.get(&node)
    }

    fn remove(&mut self, session: SessionId, node: NodeId) {
        if self.sessions.contains_key(&session) {
            self.change(session, |opener| opener.remove(node));
            self.forget_pair(session, node);
        }
    }

    fn note_pair(&mut self, session: SessionId, node: NodeId) {
        let sessions = self.by_node.entry(node).or_default();
        if let Err(place) = sessions.binary_search(&session) {
            sessions.insert(place, session);
        }
    }

    fn forget_pair(&mut self, session: SessionId, node: NodeId) {
        if let Some(sessions) = self.by_node.get_mut(&node) {
            if let Ok(place) = sessions.binary_search(&session) {
                sessions.remove(place);
            }
            if sessions.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// Changes a session, and notes when it has to be looked at.
    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Opener)) {
        let opener = self.sessions.entry(session).or_default();
        change(opener);
        if opener.anything.is_some() {
            self.coarse.insert(session);
        } else {
            self.coarse.remove(&session);
        }
        let over = opener.files.is_empty() && opener.anything.is_none();
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
    }
}

impl Opener {
    fn give(&mut self, node: NodeId, by: Sequence, ask_at: Mono) {
        self.give_at_least(node, ask_at);
        let Some(given) = self.files.get_mut(&node) else { return };
        given.by = given.by.max(by);
        given.not_before = given.not_before.max(ask_at);
        // What it says of an earlier time does not count, and what it said of being closed neither.
        let said = if given.said == Said::Open { Said::Open } else { Said::Nothing };
        let ask_at = given.ask_at;
        self.ask_again(node, ask_at, said);
    }

    /// Makes the file known if it is not.
    fn give_at_least(&mut self, node: NodeId, ask_at: Mono) {
        let by_time = &mut self.by_time;
        self.files.entry(node).or_insert_with(|| {
            by_time.insert((ask_at, node));
            Given {
                by: Sequence(0),
                ask_at,
                not_before: Mono::ZERO,
                survey: None,
                said: Said::Nothing,
                orphan: false,
            }
        });
    }

    fn remove(&mut self, node: NodeId) {
        if let Some(given) = self.files.remove(&node) {
            self.by_time.remove(&(given.ask_at, node));
        }
    }

    /// Asks about a file at this time, but not while a lease may last.
    fn ask_again(&mut self, node: NodeId, ask_at: Mono, said: Said) {
        let Some(given) = self.files.get_mut(&node) else { return };
        given.said = said;
        given.survey = None;
        self.by_time.remove(&(given.ask_at, node));
        given.ask_at = ask_at.max(given.not_before);
        self.by_time.insert((given.ask_at, node));
    }

    fn next_look(&self) -> Option<Mono> {
        if let Some(survey) = &self.survey {
            // Repeated, whatever else is due.
            return Some(survey.again);
        }
        let files = self.by_time.first().map(|(ask_at, _)| *ask_at);
        files.into_iter().chain(self.anything.map(|anything| anything.ask_at)).min()
    }

    fn ask(
        &mut self,
        session: SessionId,
        number: &mut u64,
        now: Mono,
        config: &Config,
    ) -> Option<SurveyWish> {
        if self.survey.is_none() {
            let about = self.choose(*number, now, config)?;
            self.survey = Some(SurveyState { number: *number, again: now, about });
            *number += 1;
        }
        let survey = self.survey.as_mut()?;
        survey.again = now.after(config.survey_again);
        let nodes = match &survey.about {
            About::Everything => Vec::new(),
            About::Files(nodes) => nodes.clone(),
        };
        Some(SurveyWish { session, number: survey.number, nodes })
    }

    /// What is asked about next: of files, all whose leases are over, so that one survey serves many.
    fn choose(&mut self, number: u64, now: Mono, config: &Config) -> Option<About> {
        if self.anything.is_some_and(|anything| anything.ask_at <= now) {
            return Some(About::Everything);
        }
        let soon = now.after(config.survey_after);
        let due = self.by_time.iter().take_while(|(ask_at, _)| *ask_at <= soon);
        let nodes: Vec<NodeId> = due.take(config.survey_nodes_max).map(|(_, node)| *node).collect();
        for node in &nodes {
            if let Some(given) = self.files.get_mut(node) {
                given.survey = Some(number);
            }
        }
        (!nodes.is_empty()).then_some(About::Files(nodes))
    }
}

#[cfg(test)]
mod tests;
