//! Does the changes in the order of the witness and compares what each gives with what its client saw.

use super::Check;
use super::timeline::{Point, Timeline};
use super::violation::{Rule, Violation};
use crate::{
    Entry, Event, History, Mutation, MutationOutcome, Oracle, RequestId, Seen, State, Touched, View,
    WitnessEvent, WitnessKind, refusals,
};
use bearing_types::{Code, NodeId, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// A replay under way, and afterwards what it found.
pub struct Replay<'a> {
    history: &'a History,
    /// The state now.
    pub oracle: Oracle,
    /// All states so far.
    pub timeline: Timeline,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Changes of the history that the witness does not have.
    pub unmade: BTreeSet<usize>,
    /// The point after each change that was made.
    pub made: BTreeMap<usize, Point>,
    /// What clients were told of the nodes that their changes made, with the place of the change in the
    /// order.
    pub told: Vec<(usize, Point, View)>,
    requests: BTreeMap<RequestId, usize>,
    debts: BTreeMap<RequestId, (usize, NodeId)>,
}

impl<'a> Replay<'a> {
    /// Before the first change.
    pub fn new(check: &'a Check, history: &'a History) -> Replay<'a> {
        let oracle = Oracle::new(check.root, check.root_access);
        let timeline = Timeline::new(&oracle);
        let mut requests = BTreeMap::new();
        let mut unmade = BTreeSet::new();
        for (index, entry) in history.entries.iter().enumerate() {
            if let Event::Mutation { requests: carried_by, .. } = &entry.event {
                unmade.insert(index);
                requests.extend(carried_by.iter().map(|request| (*request, index)));
            }
        }
        Replay {
            history,
            oracle,
            timeline,
            violations: Vec::new(),
            unmade,
            made: BTreeMap::new(),
            told: Vec::new(),
            requests,
            debts: BTreeMap::new(),
        }
    }

    /// Does all changes.
    pub fn run(&mut self, witness: &[WitnessEvent]) {
        for event in witness {
            let touched = match self.apply(event) {
                Ok(touched) => touched,
                Err(violation) => {
                    self.violations.push(violation);
                    Touched::default()
                }
            };
            self.timeline.record(event.at, &self.oracle, &touched);
        }
        for (request, (index, node)) in std::mem::take(&mut self.debts) {
            let message = format!("the link of {node} that {request:?} took was never dropped");
            self.violations.push(Violation::of(Rule::LinkDrop, index, &self.history.entries[index], message));
        }
    }

    fn apply(&mut self, event: &WitnessEvent) -> Result<Touched, Violation> {
        match event.kind {
            WitnessKind::Committed { created, link_owed } => self.commit(event, created, link_owed),
            WitnessKind::LinkDropped => self.drop_link(event),
        }
    }

    fn drop_link(&mut self, event: &WitnessEvent) -> Result<Touched, Violation> {
        let Some((index, node)) = self.debts.remove(&event.request) else {
            let message =
                format!("{:?} dropped a link that it did not owe, at {:?}", event.request, event.at);
            return Err(Violation::general(Rule::LinkDrop, message));
        };
        let entry = &self.history.entries[index];
        if entry.returned.is_some_and(|returned| returned < event.at) {
            let message = format!("the link of {node} was dropped only at {:?}, after the reply", event.at);
            self.violations.push(Violation::of(Rule::LinkDrop, index, entry, message));
        }
        Ok(self.oracle.drop_link(node))
    }

    fn commit(
        &mut self,
        event: &WitnessEvent,
        created: Option<NodeId>,
        link_owed: bool,
    ) -> Result<Touched, Violation> {
        let Some(index) = self.requests.get(&event.request).copied() else {
            let message =
                format!("{:?} was committed at {:?}, but no client sent it", event.request, event.at);
            return Err(Violation::general(Rule::NobodyAsked, message));
        };
        let entry = &self.history.entries[index];
        if !self.unmade.remove(&index) {
            let message = format!("made a second time at {:?}", event.at);
            return Err(Violation::of(Rule::CommittedTwice, index, entry, message));
        }
        let Event::Mutation { mutation, outcome, .. } = &entry.event else {
            unreachable!("only mutations have requests")
        };
        self.check_time(index, entry, event);
        self.check_possible(index, entry, mutation)?;
        let created = self.node_of(index, entry, outcome, created)?;
        let touched = self.oracle.apply(mutation, created, link_owed);
        self.made.insert(index, self.timeline.last() + 1);
        if let Some(node) = touched.owes_link {
            self.debts.insert(event.request, (index, node));
        }
        if let MutationOutcome::Told(told) = outcome {
            self.check_answer(index, entry, told, &touched);
        }
        Ok(touched)
    }

    fn check_time(&mut self, index: usize, entry: &Entry, event: &WitnessEvent) {
        if event.at < entry.invoked || entry.returned.is_some_and(|returned| returned < event.at) {
            let message = format!("committed at {} us", event.at.0 / 1000);
            self.violations.push(Violation::of(Rule::CommittedOutsideCall, index, entry, message));
        }
    }

    /// Whether the state at this place in the order takes the change. Who owns an entry of a sticky directory
    /// may be that of any point since the call: the entry's node lies elsewhere, and, as on Linux, is not
    /// locked against a chown.
    fn check_possible(&mut self, index: usize, entry: &Entry, mutation: &Mutation) -> Result<(), Violation> {
        let now = refusals(&self.oracle, &self.oracle, mutation);
        if now.is_empty() {
            return Ok(());
        }
        let only_permission = now.iter().all(|code| is_permission(*code));
        let only_ownership = now.iter().all(|code| *code == Code::NotPermitted);
        let last = self.timeline.last();
        let first: Point = self.timeline.window(entry.invoked, entry.invoked).start().to_owned().min(last);
        // Of the past only the entry's owner counts: its directory has to be as it is now.
        let same_directories = |point| {
            let then = self.timeline.at(point);
            let access = |state: &dyn State, node| state.node(node).map(|node| node.access);
            directories(mutation).into_iter().all(|node| access(&then, node) == access(&self.oracle, node))
        };
        let was_allowed = || {
            (first..=last).any(|point| {
                same_directories(point)
                    && refusals(&self.oracle, &self.timeline.at(point), mutation).is_empty()
            })
        };
        if only_ownership && was_allowed() {
            return Ok(());
        }
        let views: Vec<_> = concerned(mutation).into_iter().map(|node| self.oracle.view(node)).collect();
        let message =
            format!("committed, but at its place in the order it deserves {now:?}; nodes there: {views:?}");
        let violation = Violation::of(Rule::ImpossibleChange, index, entry, message);
        if !only_permission {
            return Err(violation);
        }
        // It makes sense but for who asked: what follows is judged from the state that it made.
        self.violations.push(violation);
        Ok(())
    }

    /// The new node of a create or mkdir.
    fn node_of(
        &self,
        index: usize,
        entry: &Entry,
        outcome: &MutationOutcome,
        witnessed: Option<NodeId>,
    ) -> Result<Option<NodeId>, Violation> {
        let Event::Mutation { mutation: Mutation::Create { .. } | Mutation::MakeDirectory { .. }, .. } =
            &entry.event
        else {
            return Ok(None);
        };
        let told = match outcome {
            MutationOutcome::Told(Ok(Seen::Node(view))) => Some(view.node),
            _ => None,
        };
        let wrong = |rule, message: String| Err(Violation::of(rule, index, entry, message));
        match (told, witnessed) {
            (Some(told), Some(made)) if told != made => {
                wrong(Rule::WrongAnswer, format!("the log made {made}, the client was told {told}"))
            }
            (None, None) => wrong(Rule::WrongAnswer, "neither reply nor log tell the new node".into()),
            (told, made) => {
                let node = told.or(made).expect("one of them is there");
                if self.oracle.view(node).is_some() {
                    return wrong(Rule::NodeIdReused, format!("{node} was in use already"));
                }
                Ok(Some(node))
            }
        }
    }

    /// What was done stays done: only the answer may be wrong, so the replay goes on from the new state.
    /// Attributes in it are those of some moment between the change and the reply (see [`Replay::told`]).
    fn check_answer(&mut self, index: usize, entry: &Entry, told: &Outcome<Seen>, touched: &Touched) {
        let fault = match (told, touched.answer) {
            (Err(code), _) => Some((Rule::RefusedButCommitted, format!("committed, but told {code:?}"))),
            (Ok(Seen::Node(view)), Some(node)) if view.node != node => {
                Some((Rule::WrongAnswer, format!("it made {node}, the client was told of {}", view.node)))
            }
            (Ok(Seen::Node(view)), Some(_)) => {
                self.told.push((index, self.timeline.last() + 1, *view));
                None
            }
            (Ok(Seen::Node(_) | Seen::Done), _) => None,
            (Ok(other), _) => Some((Rule::WrongAnswer, format!("no change answers with {other:?}"))),
        };
        if let Some((rule, message)) = fault {
            self.violations.push(Violation::of(rule, index, entry, message));
        }
    }
}

/// The nodes that a change names by their ids.
fn concerned(mutation: &Mutation) -> Vec<NodeId> {
    match mutation {
        Mutation::Create { directory, .. }
        | Mutation::MakeDirectory { directory, .. }
        | Mutation::Unlink { directory, .. }
        | Mutation::RemoveDirectory { directory, .. } => vec![*directory],
        Mutation::Rename { source, target, .. } => vec![*source, *target],
        Mutation::Link { node, directory, .. } => vec![*node, *directory],
        Mutation::SetAttributes { node, .. }
        | Mutation::SetXattr { node, .. }
        | Mutation::Truncate { node, .. }
        | Mutation::MakeHole { node, .. }
        | Mutation::Commit { node, .. } => {
            vec![*node]
        }
    }
}

/// The directories whose entries a change changes.
fn directories(mutation: &Mutation) -> Vec<NodeId> {
    match mutation {
        Mutation::Unlink { directory, .. } | Mutation::RemoveDirectory { directory, .. } => vec![*directory],
        Mutation::Rename { source, target, .. } => vec![*source, *target],
        // The sticky rule asks nothing of others; what changes a node itself is decided at its home.
        _ => concerned(mutation),
    }
}

/// Whether a code is about who may, not about what exists.
pub fn is_permission(code: Code) -> bool {
    matches!(code, Code::Access | Code::NotPermitted)
}
