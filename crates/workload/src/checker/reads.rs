//! Checks every answer that changed nothing: reads, refusals, and changes that the logs do not have.

use super::replay::is_permission;
use super::timeline::{Point, Timeline};
use super::violation::{Rule, Violation};
use super::{Check, listing};
use crate::oracle::answer;
use crate::{
    Entry, Event, History, Law, Mutation, MutationOutcome, OwnWrites, Piece, Query, Seen, State, View,
    refusals,
};
use bearing_proto::client::CommitMode;
use bearing_types::{Code, FileType, Mono, NodeId, Outcome, SetIds};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Checks answers against all states.
pub struct Reader<'a> {
    /// What to check against.
    pub check: &'a Check,
    /// What clients did.
    pub history: &'a History,
    /// All states.
    pub timeline: &'a Timeline,
    /// The point after each change that was made.
    pub made: &'a BTreeMap<usize, Point>,
}

type Window = RangeInclusive<Point>;

fn foreign_writers<'a>(
    history: &'a History,
    entry: &'a Entry,
    node: NodeId,
) -> impl Iterator<Item = &'a crate::WriteOpen> {
    history.writers.iter().filter(move |writer| {
        let overlaps = entry.returned.is_none_or(|returned| writer.from <= returned)
            && writer.until.is_none_or(|until| until >= entry.invoked);
        writer.node == node && writer.client != entry.client && overlaps
    })
}

/// Codes by which a node that is gone may be refused.
fn says_gone(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Stale)
}

/// Whether a change may need more names or bytes than were there.
fn may_take_more(mutation: &Mutation) -> bool {
    matches!(
        mutation,
        Mutation::Create { .. }
            | Mutation::MakeDirectory { .. }
            | Mutation::Link { .. }
            | Mutation::Commit { .. }
    )
}

fn same_code(expected: Code, seen: Code) -> bool {
    expected == seen || says_gone(expected) && says_gone(seen)
}

fn is_gone(state: &dyn State, node: NodeId) -> bool {
    state.node(node).is_none_or(|known| known.links == 0)
}

impl Reader<'_> {
    /// Checks one entry. `unmade`: it is a change that the witness does not have.
    pub fn check(&self, index: usize, entry: &Entry, unmade: bool) -> Result<(), Violation> {
        let Some(returned) = entry.returned else { return Ok(()) };
        let window = self.timeline.window(entry.invoked, returned);
        let wrong = |(rule, message): (Rule, String)| Violation::of(rule, index, entry, message);
        match &entry.event {
            // Nobody answered: that says nothing.
            Event::Read { result: Err(Code::Unreachable), .. } => Ok(()),
            Event::Read { query, result } => self.read(entry, &window, query, result).map_err(wrong),
            Event::Mutation { mutation, outcome: MutationOutcome::Told(told), .. } if unmade => match told {
                // The oracle knows no disks and no quotas; whoever made the history knows whether one was
                // full.
                Err(Code::NoSpace) => Ok(()),
                Err(Code::QuotaExceeded) if may_take_more(mutation) => Ok(()),
                Err(code) => self.refusal(&window, mutation, *code).map_err(wrong),
                Ok(_) => self.nothing_to_do(&window, mutation).map_err(wrong),
            },
            Event::Mutation { .. } => Ok(()),
        }
    }

    /// Checks what the answer to a change says of the node: as it was at some moment since the change.
    pub fn check_told(&self, index: usize, entry: &Entry, made: Point, view: &View) -> Result<(), Violation> {
        let returned = entry.returned.unwrap_or(Mono(u64::MAX));
        let window = made..=self.timeline.window(returned, returned).end().to_owned().max(made);
        let query = Query::Attributes { node: view.node, own_end: 0 };
        self.view(entry, &window, &query, view)
            .map_err(|(_, message)| Violation::of(Rule::WrongAnswer, index, entry, message))
    }

    fn refusal(&self, window: &Window, mutation: &Mutation, code: Code) -> Result<(), (Rule, String)> {
        let deserved =
            |structure, access| refusals(&self.timeline.at(structure), &self.timeline.at(access), mutation);
        let fits = |structure, access| {
            let deserved = deserved(structure, access);
            let count = match self.check.law {
                Law::Linux => deserved.len().min(1),
                Law::Posix => deserved.len(),
            };
            deserved[..count].iter().any(|expected| same_code(*expected, code))
        };
        let gone = |point| {
            let subject = subject(mutation);
            says_gone(code) && subject.is_some_and(|node| is_gone(&self.timeline.at(point), node))
        };
        // A rename of a node onto itself does nothing, whoever asks; POSIX lets permission be looked at
        // first.
        let idle = |point| {
            self.check.law == Law::Posix
                && is_permission(code)
                && matches!(mutation, Mutation::Rename { .. })
                && changes_nothing(&self.timeline.at(point), mutation)
        };
        if window.clone().any(|point| fits(point, point) || gone(point) || idle(point)) {
            return Ok(());
        }
        // What a grant says of permission may be of another moment than what the owner says of the names.
        if window.clone().any(|access| window.clone().any(|structure| fits(structure, access))) {
            return Ok(());
        }
        let mut expected: Vec<_> = window.clone().map(|point| deserved(point, point)).collect();
        expected.dedup();
        let message =
            format!("refused with {code:?}, but between call and return it deserves one of {expected:?}");
        Err((Rule::WrongRefusal, message))
    }

    /// A change that went well without a commit must have had nothing to do.
    fn nothing_to_do(&self, window: &Window, mutation: &Mutation) -> Result<(), (Rule, String)> {
        let idle = |point| {
            let state = self.timeline.at(point);
            refusals(&state, &state, mutation).is_empty() && changes_nothing(&state, mutation)
        };
        if window.clone().any(idle) {
            return Ok(());
        }
        Err((Rule::NeverCommitted, "told that it went well, but no log has it".into()))
    }

    fn read(
        &self,
        entry: &Entry,
        window: &Window,
        query: &Query,
        result: &Outcome<Seen>,
    ) -> Result<(), (Rule, String)> {
        match (query, result) {
            (Query::List { directory, .. }, Ok(Seen::Listing(seen))) => {
                self.refusal_of_read(window, query, None)?;
                listing::check(self.timeline, window, *directory, seen)
            }
            (Query::Content { node, offset, length, own }, Ok(Seen::Bytes(bytes))) => {
                self.content(entry, *node, (*offset, *length), own, bytes)
            }
            (_, Err(code)) => self.refusal_of_read(window, query, Some(*code)),
            (_, Ok(seen)) => self.answer_of_read(entry, window, query, seen),
        }
    }

    fn refusal_of_read(
        &self,
        window: &Window,
        query: &Query,
        code: Option<Code>,
    ) -> Result<(), (Rule, String)> {
        let expected =
            |structure, access| answer(&self.timeline.at(structure), &self.timeline.at(access), query).err();
        let fits = |structure, access| match (expected(structure, access), code) {
            (Some(expected), Some(code)) => same_code(expected, code),
            (expected, code) => expected.is_none() && code.is_none(),
        };
        let gone = |point| {
            let node = match query {
                Query::Attributes { node, .. }
                | Query::Open { node, .. }
                | Query::ReadLink { node }
                | Query::Xattr { node, .. }
                | Query::Xattrs { node, .. } => Some(*node),
                _ => None,
            };
            code.is_some_and(says_gone) && node.is_some_and(|node| is_gone(&self.timeline.at(point), node))
        };
        let any = window.clone().any(|point| fits(point, point) || gone(point))
            || window.clone().any(|access| window.clone().any(|structure| fits(structure, access)));
        if any {
            return Ok(());
        }
        let mut expected: Vec<_> = window.clone().map(|point| expected(point, point)).collect();
        expected.dedup();
        let message = format!(
            "answered with {}, but between call and return it deserves one of {expected:?} (None: it goes well)",
            code.map_or("an answer".to_owned(), |code| format!("{code:?}"))
        );
        Err((Rule::WrongRead, message))
    }

    fn answer_of_read(
        &self,
        entry: &Entry,
        window: &Window,
        query: &Query,
        seen: &Seen,
    ) -> Result<(), (Rule, String)> {
        // The name and the attributes of what it names may come from two tablets, at two moments.
        if let (Query::Lookup { directory, name, .. }, Seen::Node(view)) = (query, seen) {
            self.refusal_of_read(window, query, None)?;
            let names = |point| self.timeline.at(point).entry(*directory, name);
            if !window.clone().any(|point| names(point) == Some(view.node)) {
                let mut named: Vec<_> = window.clone().map(names).collect();
                named.dedup();
                return Err((
                    Rule::WrongRead,
                    format!("{name} names {}, it should name one of {named:?}", view.node),
                ));
            }
            let attributes = Query::Attributes { node: view.node, own_end: 0 };
            return self.view(entry, window, &attributes, view);
        }
        if let Seen::Node(view) = seen {
            self.refusal_of_read(window, query, None)?;
            return self.view(entry, window, query, view);
        }
        let past = |point| answer(&self.timeline.at(point), &self.timeline.at(point), query);
        if window.clone().any(|point| past(point).as_ref() == Ok(seen)) {
            return Ok(());
        }
        Err((Rule::WrongRead, format!("it should be {:?}", past(*window.end()))))
    }

    fn view(&self, entry: &Entry, window: &Window, query: &Query, seen: &View) -> Result<(), (Rule, String)> {
        if seen.file_type == FileType::Directory {
            return self.directory_view(entry, window, seen);
        }
        let own_end = if let Query::Attributes { own_end, .. } = query { *own_end } else { 0 };
        let since = foreign_writers(self.history, entry, seen.node).map(|writer| writer.from).min();
        let sizes = since
            .map(|since| self.timeline.window(since.min(entry.invoked), Mono(u64::MAX)).start().to_owned());
        let sizes = sizes.unwrap_or(*window.start())..=*window.end();
        let fits_size = |state_size: u64| {
            let exact = state_size.max(own_end) == seen.size;
            let late = || {
                self.timeline
                    .versions(seen.node, &sizes)
                    .any(|node| node.view(seen.node).size.max(own_end) == seen.size)
            };
            exact || since.is_some() && late()
        };
        let fits = |expected: View| {
            fits_size(expected.size) && View { size: seen.size, ..expected }.is_seen_as(seen)
        };
        if self.timeline.versions(seen.node, window).any(|node| fits(node.view(seen.node))) {
            return Ok(());
        }
        let expected: Vec<_> =
            self.timeline.versions(seen.node, window).map(|node| node.view(seen.node)).collect();
        Err((Rule::WrongRead, format!("seen {seen:?}, it should be one of {expected:?}")))
    }

    /// Mode and owner as of one point; the counts lie between what they were within the window, which may
    /// begin a little earlier.
    fn directory_view(&self, entry: &Entry, window: &Window, seen: &View) -> Result<(), (Rule, String)> {
        let late = self.check.counts_late.as_nanos() as u64;
        let early = Mono(entry.invoked.0.saturating_sub(late));
        let counts = *self.timeline.window(early, early).start()..=*window.end();
        let views = |window: &Window| -> Vec<View> {
            self.timeline.versions(seen.node, window).map(|node| node.view(seen.node)).collect()
        };
        let of_counts = views(&counts);
        // Fragments are read one after the other: a name that moves between them may be counted twice, or not
        // at all.
        let moves = of_counts.len().saturating_sub(1) as u64;
        let within = |seen: u64, count: fn(&View) -> u64, unit: u64| {
            let (low, high) = (of_counts.iter().map(count).min(), of_counts.iter().map(count).max());
            low.is_some_and(|low| low.saturating_sub(moves) * unit <= seen)
                && high.is_some_and(|high| seen <= (high + moves) * unit)
        };
        let fits_counts = within(u64::from(seen.links), |view| u64::from(view.links), 1)
            && self.check.entry_bytes.is_none_or(|unit| within(seen.size, |view| view.size, unit));
        let fits =
            |expected: &View| View { links: seen.links, size: seen.size, ..*expected }.is_seen_as(seen);
        if fits_counts && views(window).iter().any(fits) {
            return Ok(());
        }
        Err((
            Rule::WrongRead,
            format!("seen {seen:?}, it should be one of {:?} (sizes count entries)", views(window)),
        ))
    }

    fn content(
        &self,
        entry: &Entry,
        node: NodeId,
        (offset, length): (u64, u32),
        own: &OwnWrites,
        seen: &[u8],
    ) -> Result<(), (Rule, String)> {
        let returned = entry.returned.unwrap_or(entry.invoked);
        // Of what was there before its own cut the reader sees nothing.
        let cut = own.cut.and_then(|cut| self.made.get(&cut)).copied().unwrap_or(0);
        let window = |from: Mono| {
            let window = self.timeline.window(from, returned);
            let start = cut.max(*window.start());
            start..=start.max(*window.end())
        };
        let views = |from: Mono, writes: &[Piece]| -> Vec<Vec<u8>> {
            let versions = self.timeline.versions(node, &window(from));
            versions.map(|node| part(&node.content, writes, offset, length)).collect()
        };
        // Most answers are right and most readers wrote nothing: those are compared in place.
        let is_seen = |from: Mono, writes: &[Piece]| {
            self.timeline.versions(node, &window(from)).any(|node| match writes {
                [] => bounded(&node.content, offset, length) == seen,
                writes => part(&node.content, writes, offset, length) == seen,
            })
        };
        if is_seen(own.flushed, &own.unflushed) || is_seen(own.opened, &own.since_opened) {
            return Ok(());
        }
        let mut expected = views(own.opened, &own.since_opened);
        expected.extend(views(own.flushed, &own.unflushed));
        // Nothing orders a read and what is written while it goes on, byte by byte; nor does anything while
        // others have it open.
        let during = self.timeline.window(entry.invoked, returned);
        let changes = self.timeline.versions(node, &during).count() > 1;
        let opened = Entry { invoked: own.opened, ..entry.clone() };
        if changes || foreign_writers(self.history, &opened, node).next().is_some() {
            let unchanged = if changes { views(entry.invoked, &[]) } else { Vec::new() };
            expected.extend(unchanged);
            if fits_byte_by_byte(&expected, seen) {
                return Ok(());
            }
        }
        let best: Vec<_> = self
            .timeline
            .versions(node, &window(own.opened))
            .map(|node| difference(&part(&node.content, &own.since_opened, offset, length), seen))
            .collect();
        Err((Rule::WrongRead, format!("content fits no version since the file was opened: {best:?}")))
    }
}

/// Whether every byte is that of some version (behind its end: zero), and the length is that of some version.
fn fits_byte_by_byte(versions: &[Vec<u8>], seen: &[u8]) -> bool {
    versions.iter().any(|version| version.len() == seen.len())
        && seen
            .iter()
            .enumerate()
            .all(|(at, byte)| versions.iter().any(|version| version.get(at).copied().unwrap_or(0) == *byte))
}

/// A part of a file's content with the reader's own writes laid over.
fn part(content: &[u8], writes: &[Piece], offset: u64, length: u32) -> Vec<u8> {
    let mut content = content.to_vec();
    writes.iter().for_each(|piece| piece.lay_over(&mut content));
    bounded(&content, offset, length).to_vec()
}

/// What there is of a range.
fn bounded(content: &[u8], offset: u64, length: u32) -> &[u8] {
    let start = (offset as usize).min(content.len());
    let end = (start + length as usize).min(content.len());
    &content[start..end]
}

fn difference(expected: &[u8], seen: &[u8]) -> String {
    let differs = expected.iter().zip(seen).position(|(expected, seen)| expected != seen);
    match differs {
        Some(at) => format!("byte {at} is {:02x}, should be {:02x}", seen[at], expected[at]),
        None => format!("{} bytes, should be {}", seen.len(), expected.len()),
    }
}

/// The node that a change is about, if it names it by its id.
fn subject(mutation: &Mutation) -> Option<NodeId> {
    match mutation {
        Mutation::SetAttributes { node, .. }
        | Mutation::SetXattr { node, .. }
        | Mutation::Truncate { node, .. }
        | Mutation::Link { node, .. }
        | Mutation::MakeHole { node, .. }
        | Mutation::Commit { node, .. } => Some(*node),
        _ => None,
    }
}

/// Whether a change that nothing refuses does nothing at all.
fn changes_nothing(state: &dyn State, mutation: &Mutation) -> bool {
    match mutation {
        Mutation::Rename { source, source_name, target, target_name, .. } => {
            state.entry(*source, source_name) == state.entry(*target, target_name)
        }
        Mutation::SetAttributes { change, .. } => *change == Default::default(),
        Mutation::Truncate { node, .. } => state.node(*node).is_some_and(|node| node.content.is_empty()),
        Mutation::Commit { pieces, size_min, mode: CommitMode::Append, .. } => {
            pieces.is_empty() && *size_min == 0
        }
        Mutation::Commit { node, pieces, size_min, mode: CommitMode::Put, set_ids: SetIds::Keep } => {
            pieces.is_empty() && state.node(*node).is_some_and(|node| node.content.len() as u64 >= *size_min)
        }
        _ => false,
    }
}
