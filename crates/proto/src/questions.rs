//! In which order a coordinator works on what it is asked, where each question may take its registers long:
//! swaps first, because a tablet may wait for one; but after each swap comes the oldest of the rest, because
//! who knows too little swaps in vain, again and again.
//!
//! Invariant: however often registers change meanwhile, the next look at them is queued once. Looks that
//! pile up would keep later changes waiting for as long as all of them take.

use crate::coordinator::{Ask, AskCall, TellBody, Told};
use bearing_types::ServerId;
use std::collections::{BTreeSet, VecDeque};

/// What a coordinator works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Answer a server's question.
    Answer(ServerId, Ask),
    /// Answer those who await a change.
    News,
}

/// Questions that were taken and are not answered yet. Whoever sends one again is told that it is slow: work
/// that piles up with every repeat is never done.
#[derive(Clone, Debug, Default)]
pub struct Unanswered(BTreeSet<(ServerId, u64)>);

impl Unanswered {
    /// Takes a question; or gives the answer to one that is here already.
    pub fn take(&mut self, asker: ServerId, id: u64) -> Option<Told> {
        let again = !self.0.insert((asker, id));
        again.then_some(Told { id, result: Ok(TellBody::Slow) })
    }

    /// It is answered.
    pub fn answered(&mut self, asker: ServerId, id: u64) {
        self.0.remove(&(asker, id));
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    unanswered: Unanswered,
    swaps: VecDeque<(ServerId, Ask)>,
    rest: VecDeque<Work>,
    /// What was begun last is a swap.
    swapped: bool,
}

impl Questions {
    /// Takes a question; or gives the answer to one that is here already.
    pub fn take(&mut self, asker: ServerId, ask: Ask) -> Option<Told> {
        let slow = self.unanswered.take(asker, ask.id);
        if slow.is_none() {
            match ask.call {
                AskCall::Swap { .. } => self.swaps.push_back((asker, ask)),
                _ => self.rest.push_back(Work::Answer(asker, ask)),
            }
        }
        slow
    }

    /// Registers have changed, or may have.
    pub fn changed(&mut self) {
        if !self.rest.contains(&Work::News) {
            self.rest.push_back(Work::News);
        }
    }

    /// What is to be worked on now. It is not given twice.
    pub fn begin(&mut self) -> Option<Work> {
        let due = if self.swapped { self.rest.pop_front() } else { None };
        let swap = if due.is_none() { self.swaps.pop_front() } else { None };
        self.swapped = swap.is_some();
        let Some((asker, ask)) = swap else { return due.or_else(|| self.rest.pop_front()) };
        self.changed();
        Some(Work::Answer(asker, ask))
    }

    /// A question is answered.
    pub fn answered(&mut self, asker: ServerId, id: u64) {
        self.unanswered.answered(asker, id);
    }

    /// How many wait to be worked on.
    pub fn len(&self) -> usize {
        self.swaps.len() + self.rest.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId(1);

    fn read(id: u64) -> Ask {
        Ask { id, call: AskCall::Read { key: "k".into() } }
    }

    fn swap(id: u64) -> Ask {
        Ask { id, call: AskCall::swap("k".into(), None, None) }
    }

    #[test]
    fn swaps_come_first_but_for_one_in_between_and_looks_for_changes_are_queued_once() {
        let mut questions = Questions::default();
        let all = [read(1), swap(2), read(3), swap(4)];
        assert!(all.iter().all(|ask| questions.take(A, ask.clone()).is_none()));
        (0..9).for_each(|_| questions.changed());
        let order: Vec<Work> = std::iter::from_fn(|| questions.begin()).collect();
        let [first, second, third, fourth] = all.map(|ask| Work::Answer(A, ask));
        assert_eq!(order, [second, first, fourth, third, Work::News]);
        assert!(questions.is_empty());
    }

    #[test]
    fn after_a_swap_is_begun_there_is_a_look_though_one_was_begun_before() {
        let mut questions = Questions::default();
        questions.changed();
        assert_eq!(questions.begin(), Some(Work::News));
        questions.take(A, swap(1));
        assert_eq!(questions.begin(), Some(Work::Answer(A, swap(1))));
        assert_eq!((questions.begin(), questions.begin()), (Some(Work::News), None));
    }

    #[test]
    fn a_question_that_comes_again_is_told_to_be_slow_and_not_queued_again() {
        let mut questions = Questions::default();
        assert_eq!(questions.take(A, read(7)), None);
        assert!(questions.take(A, read(7)).is_some());
        assert_eq!(questions.len(), 1);
        questions.begin();
        assert!(questions.take(A, read(7)).is_some(), "it is being worked on");
        questions.answered(A, 7);
        assert_eq!(questions.take(A, read(7)), None, "its answer may have been lost");
    }

    #[test]
    fn a_question_that_comes_again_is_told_to_be_slow_until_it_is_answered() {
        let mut unanswered = Unanswered::default();
        assert_eq!(unanswered.take(ServerId(1), 7), None);
        assert_eq!(unanswered.take(ServerId(2), 7), None);
        let slow = Told { id: 7, result: Ok(TellBody::Slow) };
        assert_eq!(unanswered.take(ServerId(1), 7), Some(slow));
        unanswered.answered(ServerId(1), 7);
        assert_eq!(unanswered.take(ServerId(1), 7), None, "its answer may have been lost");
    }
}
