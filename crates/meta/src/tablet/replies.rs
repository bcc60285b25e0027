//! Answers to a session's changes, kept until it says that it has them: a change that comes again is
//! answered, not done again. They are in the log too, so whoever takes the tablet over holds as many.

use bearing_proto::client::{Body, ChangedDirectory};
use bearing_proto::peer::ItemId;
use bearing_types::{Code, LogIndex, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// What an answer takes that holds no list.
const BYTES_EACH: usize = 256;
/// What an entry of a directory that is delegated takes, with its name and its node.
const BYTES_PER_ENTRY: usize = 512;
/// What a step that was done takes.
const BYTES_PER_STEP: usize = 96;

/// What became of a mutation.
#[derive(Debug)]
pub(crate) struct Answered {
    pub result: Result<Body, Code>,
    /// Goes with it while it is remembered in memory: nobody has to be told that again.
    pub changed: Vec<ChangedDirectory>,
    /// The log record with the reply; zero for a refusal, which is remembered in memory only.
    pub index: LogIndex,
    /// Items that must arrive before the reply may leave.
    pub awaited: BTreeSet<ItemId>,
}

/// Those of one session, by number.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    answered: BTreeMap<Sequence, Answered>,
    bytes: usize,
}

impl Replies {
    pub fn get(&self, sequence: Sequence) -> Option<&Answered> {
        self.answered.get(&sequence)
    }

    pub fn get_mut(&mut self, sequence: Sequence) -> Option<&mut Answered> {
        self.answered.get_mut(&sequence)
    }

    pub fn len(&self) -> usize {
        self.answered.len()
    }

    /// What they take in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn keep(&mut self, sequence: Sequence, answered: Answered) {
        self.bytes += size(&answered);
        if let Some(before) = self.answered.insert(sequence, answered) {
            self.bytes -= size(&before);
        }
    }

    /// Drops those of smaller numbers. Gives the numbers of those that are in the log.
    pub fn finish(&mut self, below: Sequence) -> Vec<Sequence> {
        let kept = self.answered.split_off(&below);
        let finished = std::mem::replace(&mut self.answered, kept);
        self.bytes -= finished.values().map(size).sum::<usize>();
        let logged = finished.into_iter().filter(|(_, answered)| answered.result.is_ok());
        logged.map(|(sequence, _)| sequence).collect()
    }
}

fn size(answered: &Answered) -> usize {
    let list = match &answered.result {
        Ok(Body::Delegation(view)) => {
            view.directories.iter().map(|lent| 1 + lent.entries.len()).sum::<usize>() * BYTES_PER_ENTRY
        }
        Ok(Body::Steps(done)) => done.steps.len() * BYTES_PER_STEP,
        _ => 0,
    };
    BYTES_EACH + list + answered.changed.len() * size_of::<ChangedDirectory>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::replication::Log;
    use crate::tablet::served::Tablet;
    use bearing_proto::client::LeaseMs;
    use bearing_proto::delegation::{StepDone, StepsDone};
    use bearing_types::{Block, Mono, Now, SessionId, TabletSerial, Wall};

    fn answered(result: Result<Body, Code>) -> Answered {
        Answered { result, changed: Vec::new(), index: LogIndex(1), awaited: BTreeSet::new() }
    }

    #[test]
    fn nobody_has_more_kept_for_him_than_his_share() {
        let config = Config { replies_bytes_max: 512 * BYTES_EACH, ..Config::standard() };
        let now = Now { mono: Mono(0), wall: Wall(0) };
        let mut tablet = Tablet::new(now, Block::RING, Log::empty(TabletSerial(1)), &config);
        let keep = |tablet: &mut Tablet, session, number| {
            tablet.sessions.keep_answer(SessionId(session), Sequence(number), answered(Ok(Body::Done)));
        };
        let too_much = |tablet: &Tablet, session| {
            tablet.sessions.keeps_too_much_for(SessionId(session), (1000, config.replies_bytes_max))
        };
        (0..31).for_each(|number| keep(&mut tablet, 0, number));
        assert!(!too_much(&tablet, 0));
        keep(&mut tablet, 0, 31);
        assert!(too_much(&tablet, 0), "a 16th is one session's share");
        for session in 1..17 {
            assert!(!too_much(&tablet, session));
            (0..31).for_each(|number| keep(&mut tablet, session, number));
        }
        assert!(too_much(&tablet, 1), "all is used up");
        keep(&mut tablet, 17, 1);
        assert!(!too_much(&tablet, 17), "those with little are served all the same");
    }

    #[test]
    fn what_replies_take_is_what_is_left_of_them() {
        let step = StepDone { sequence: Sequence(1), made: None, token: None };
        let steps = Body::Steps(StepsDone { steps: vec![step; 100], lease: LeaseMs(0), ids: None });
        let mut replies = Replies::default();
        replies.keep(Sequence(1), answered(Ok(Body::Done)));
        replies.keep(Sequence(2), answered(Err(Code::Access)));
        let small = replies.bytes();
        replies.keep(Sequence(3), answered(Ok(steps)));
        assert!(replies.bytes() > small + 100 * BYTES_PER_STEP);
        replies.keep(Sequence(3), answered(Ok(Body::Done)));
        assert_eq!(replies.finish(Sequence(3)), [Sequence(1)], "refusals are in no log");
        assert_eq!((replies.len(), replies.bytes()), (1, BYTES_EACH));
        replies.finish(Sequence(4));
        assert_eq!(replies.bytes(), 0);
    }
}
