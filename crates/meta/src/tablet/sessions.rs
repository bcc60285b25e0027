//! Sessions as one tablet knows them: answers kept for them, when they were heard of, those registered here,
//! those that are over.
//!
//! The log has the answers, who is registered, who is over and who closed itself. When somebody was heard of
//! and what sessions say of themselves is lost with the owner: the next owner gives them a full life anew.

use crate::record::Key;
use crate::tablet::replies::{Answered, Replies};
use bearing_proto::peer::ItemId;
use bearing_proto::sessions::SessionDescription;
use bearing_types::{Mono, Sequence, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: BTreeMap<SessionId, Known>,
    /// Sessions whose record lies here, and when they were last renewed.
    registered: BTreeMap<SessionId, Mono>,
    descriptions: BTreeMap<SessionId, SessionDescription>,
    ended: BTreeSet<SessionId>,
    running_out: BTreeSet<SessionId>,
    /// Those that may be over.
    doubted: BTreeSet<SessionId>,
}

#[derive(Debug, Default)]
struct Known {
    /// Those to its changes, from `finished_below` on.
    replies: Replies,
    /// The client has the replies to all smaller numbers.
    finished_below: Option<Sequence>,
    given_up: Option<u64>,
    heard: Option<Mono>,
    /// Its home said that it lives.
    met: bool,
}

/// Whether a change is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    New,
    /// It is answered, and its client may not have the answer.
    Answered,
    /// Its client has had the answer for long: a stray copy.
    Finished,
}

impl Sessions {
    fn known(&mut self, session: SessionId) -> &mut Known {
        self.known.entry(session).or_default()
    }

    // --- while one lives ---

    /// A request of a session came: it has all replies below a number. Gives the keys of replies that need
    /// not be kept any more.
    pub fn hear(&mut self, session: SessionId, now: Mono, finished_below: Sequence) -> Vec<Key> {
        let known = self.known(session);
        known.heard = Some(now);
        if known.finished_below.is_some_and(|below| below >= finished_below) {
            return Vec::new();
        }
        known.finished_below = Some(finished_below);
        let finished = known.replies.finish(finished_below);
        finished.into_iter().map(|sequence| Key::Reply(session, sequence)).collect()
    }

    /// A session that the tablet has something of: it is asked for when it stays silent from now on.
    pub fn expect(&mut self, session: SessionId, now: Mono) {
        self.known(session).heard.get_or_insert(now);
    }

    /// The session's home says that it lives.
    pub fn meet(&mut self, session: SessionId) {
        self.known(session).met = true;
    }

    /// Whether its home said that it lives.
    pub fn is_met(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|known| known.met)
    }

    /// Whether anything of it is here.
    pub fn has(&self, session: SessionId) -> bool {
        self.known.contains_key(&session)
    }

    /// The session has given up what was lent to it under an incarnation, and any before. Not logged: what
    /// comes from before a new epoch is refused.
    pub fn give_up(&mut self, session: SessionId, incarnation: u64) {
        let given_up = &mut self.known(session).given_up;
        *given_up = (*given_up).max(Some(incarnation));
    }

    /// The newest incarnation of what was lent to it here that it has given up.
    pub fn given_up(&self, session: SessionId) -> Option<u64> {
        self.known.get(&session)?.given_up
    }

    // --- answers to changes ---

    /// Whether a change was answered.
    pub fn repeat(&self, session: SessionId, sequence: Sequence) -> Repeat {
        match self.known.get(&session) {
            Some(known) if known.finished_below.is_some_and(|below| sequence < below) => Repeat::Finished,
            Some(known) if known.replies.get(sequence).is_some() => Repeat::Answered,
            Some(_) | None => Repeat::New,
        }
    }

    pub fn answered(&self, session: SessionId, sequence: Sequence) -> Option<&Answered> {
        self.known.get(&session)?.replies.get(sequence)
    }

    pub fn keep_answer(&mut self, session: SessionId, sequence: Sequence, answered: Answered) {
        self.known(session).replies.keep(sequence, answered);
    }

    /// An answer waits for an item.
    pub fn await_item(&mut self, session: SessionId, sequence: Sequence, item: ItemId) {
        let known = self.known.get_mut(&session);
        if let Some(answered) = known.and_then(|known| known.replies.get_mut(sequence)) {
            answered.awaited.insert(item);
        }
    }

    /// An item that an answer waited for has arrived.
    pub fn item_arrived(&mut self, session: SessionId, sequence: Sequence, item: ItemId) {
        let known = self.known.get_mut(&session);
        if let Some(answered) = known.and_then(|known| known.replies.get_mut(sequence)) {
            answered.awaited.remove(&item);
        }
    }

    /// Whether a session has to say which replies it has before more are kept for it. Those with few are
    /// served also when all together have too many.
    pub fn keeps_too_much_for(&self, session: SessionId, (kept_max, bytes_max): (usize, usize)) -> bool {
        let Some(replies) = self.known.get(&session).map(|known| &known.replies) else { return false };
        replies.len() >= kept_max
            || replies.bytes() >= bytes_max / 16
            || replies.bytes() >= bytes_max / 256 && self.replies_bytes() >= bytes_max
    }

    /// What the replies take that are kept for all sessions.
    pub fn replies_bytes(&self) -> usize {
        self.known.values().map(|known| known.replies.bytes()).sum()
    }

    /// The most replies that are kept for any session.
    pub fn replies_max(&self) -> usize {
        self.known.values().map(|known| known.replies.len()).max().unwrap_or(0)
    }

    // --- those at home here ---

    /// A session is opened or renewed.
    pub fn register(&mut self, session: SessionId, now: Mono) {
        self.registered.insert(session, now);
    }

    pub fn is_registered(&self, session: SessionId) -> bool {
        self.registered.contains_key(&session)
    }

    pub fn describe(&mut self, session: SessionId, description: SessionDescription) {
        self.descriptions.insert(session, description);
    }

    /// Those at home here, with what they said of themselves to people.
    pub fn registered(&self) -> impl Iterator<Item = (SessionId, Option<&SessionDescription>)> + '_ {
        self.registered.keys().map(|session| (*session, self.descriptions.get(session)))
    }

    // --- silence ---

    /// Sessions at home here that were not renewed for `life`, so many at most. They are taken for renewed
    /// now: what is to be done about them may be put off, and then they are told of again.
    pub fn unrenewed(&mut self, now: Mono, life: Duration, count_max: usize) -> Vec<SessionId> {
        let silent = self.registered.iter_mut().filter(|(_, renewed)| now.since(**renewed) >= life);
        let tell = |(session, renewed): (&SessionId, &mut Mono)| {
            *renewed = now;
            *session
        };
        silent.take(count_max).map(tell).collect()
    }

    /// A session may be over: its home is to be asked when there is room for that.
    pub fn doubt(&mut self, session: SessionId) {
        self.doubted.insert(session);
    }

    /// Sessions that may be over, and those that were not heard of for so long, so many at most. They are
    /// told of again when they are doubted anew, or after another such time.
    pub fn doubtful(&mut self, now: Mono, silence: Duration, count_max: usize) -> Vec<SessionId> {
        let silent = self.known.iter_mut().filter(|(_, known)| known.is_silent(now, silence));
        for (session, known) in silent.take(count_max) {
            known.heard = Some(now);
            self.doubted.insert(*session);
        }
        std::iter::from_fn(|| self.doubted.pop_first()).take(count_max).collect()
    }

    /// Whether one session was not heard of for so long. It is said again after another such time.
    pub fn is_silent(&mut self, session: SessionId, now: Mono, silence: Duration) -> bool {
        let known = self.known(session);
        let silent = known.is_silent(now, silence);
        if silent {
            known.heard = Some(now);
        }
        silent
    }

    /// All that were heard of have a full life again.
    pub fn hear_all(&mut self, now: Mono) {
        self.registered.values_mut().for_each(|renewed| *renewed = now);
        self.known.values_mut().filter_map(|known| known.heard.as_mut()).for_each(|heard| *heard = now);
    }

    // --- ends ---

    pub fn has_ended(&self, session: SessionId) -> bool {
        self.ended.contains(&session)
    }

    /// A session at home here is over.
    pub fn end_registered(&mut self, session: SessionId) {
        self.registered.remove(&session);
        self.descriptions.remove(&session);
        self.ended.insert(session);
    }

    /// A session is over, is refused, and may use what it has leased here for a while yet. Returns whether
    /// that is news.
    pub fn run_out(&mut self, session: SessionId) -> bool {
        self.ended.insert(session);
        self.running_out.insert(session)
    }

    /// Sessions that run out.
    pub fn running_out(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.running_out.iter().copied()
    }

    /// Nothing of an ended session is left here but the mark.
    pub fn forget(&mut self, session: SessionId) {
        self.end_registered(session);
        self.running_out.remove(&session);
        self.doubted.remove(&session);
        self.known.remove(&session);
    }

    /// The mark of an ended session is collected.
    pub fn forget_mark(&mut self, session: SessionId) {
        self.ended.remove(&session);
    }
}

impl Known {
    fn is_silent(&self, now: Mono, silence: Duration) -> bool {
        self.heard.is_none_or(|heard| now.since(heard) >= silence)
    }
}
