//! Logged changes on their way to the store.
//!
//! What is committed is gathered for a moment before it goes, so that the store gets each key once, with its
//! last value: a directory's counts change with every create, and most replies are forgotten before anybody
//! could have needed them.
//!
//! Invariants: only committed changes go; what has gone, in the order given, is a prefix of the log, whatever
//! was left out of it because it came and went within one gathering.

use crate::record::{Key, KeyChange};
use bearing_seams::Change;
use bearing_types::LogIndex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where what the store may have ends, as long as nobody knows that.
const WITHOUT_END: LogIndex = LogIndex(u64::MAX);

/// See the module.
#[derive(Debug)]
pub(crate) struct Applies {
    logged: VecDeque<(LogIndex, Vec<KeyChange>)>,
    /// Of these, those at which the store is to be exactly as they leave it.
    marked: BTreeSet<LogIndex>,
    /// What was gathered up to such entries, and has not gone.
    up_to_marks: VecDeque<(LogIndex, BTreeMap<Key, Gathered>)>,
    gathered: BTreeMap<Key, Gathered>,
    gathered_up_to: LogIndex,
    /// What goes to the store, or went, ends with this entry.
    taken_up_to: LogIndex,
    /// Of what entries up to this one write, the store may have anything: it came with a snapshot that was
    /// read while they were written.
    known_up_to: LogIndex,
    /// Keys of the commands that are not confirmed.
    under_way: VecDeque<(LogIndex, Vec<Key>)>,
}

#[derive(Debug)]
enum Gathered {
    Put {
        value: Vec<u8>,
        /// The store has never had the key.
        first: bool,
    },
    Delete,
    /// Put and deleted again: the store need not know. The cache does.
    Nothing,
}

impl Applies {
    /// The store has everything up to an entry, and nothing is on its way.
    pub fn from(stored: LogIndex) -> Applies {
        Applies {
            logged: VecDeque::new(),
            marked: BTreeSet::new(),
            up_to_marks: VecDeque::new(),
            gathered: BTreeMap::new(),
            gathered_up_to: stored,
            taken_up_to: stored,
            known_up_to: LogIndex::ZERO,
            under_way: VecDeque::new(),
        }
    }

    /// Entries that are not committed, oldest first.
    pub fn prepared(&self) -> impl Iterator<Item = (LogIndex, &[KeyChange])> {
        self.logged.iter().map(|(index, changes)| (*index, &changes[..]))
    }

    /// Forgets entries that are not committed, from one on.
    pub fn cut(&mut self, from: LogIndex) {
        self.logged.retain(|(index, _)| *index < from);
        self.marked.split_off(&from);
    }

    /// What goes to the store next ends with an entry, once that is committed. It is one that was logged.
    pub fn mark(&mut self, index: LogIndex) {
        self.marked.insert(index);
    }

    /// Whether an entry that is not committed is marked.
    pub fn is_marked(&self, index: LogIndex) -> bool {
        self.marked.contains(&index)
    }

    /// What goes to the store, or went, ends with this entry.
    pub fn taken_up_to(&self) -> LogIndex {
        self.taken_up_to
    }

    /// The store may have anything of what entries up to this one write.
    pub fn is_known_up_to(&mut self, index: LogIndex) {
        self.known_up_to = self.known_up_to.max(index);
    }

    /// The store may have anything of what any entry writes.
    pub fn is_known_without_end(&mut self) {
        self.known_up_to = WITHOUT_END;
    }

    /// That ends with an entry.
    pub fn known_ends_with(&mut self, index: LogIndex) {
        if self.known_up_to == WITHOUT_END {
            self.known_up_to = index;
        }
    }

    /// Takes the changes of a log record, in the order of the log, or instead of those that it had.
    pub fn log(&mut self, index: LogIndex, changes: Vec<KeyChange>) {
        self.marked.remove(&index);
        match self.logged.binary_search_by_key(&index, |(logged, _)| *logged) {
            Ok(place) => self.logged[place].1 = changes,
            Err(_) => self.logged.push_back((index, changes)),
        }
    }

    /// Everything up to a log record is committed.
    pub fn commit(&mut self, up_to: LogIndex) {
        while self.logged.front().is_some_and(|(index, _)| *index <= up_to) {
            let (index, changes) = self.logged.pop_front().expect("seen just now");
            for (key, value) in changes {
                self.gather(index, key, value);
            }
            self.gathered_up_to = index;
            if self.marked.remove(&index) {
                self.up_to_marks.push_back((index, std::mem::take(&mut self.gathered)));
            }
        }
    }

    fn gather(&mut self, index: LogIndex, key: Key, value: Option<Vec<u8>>) {
        let earlier = self.gathered.remove(&key);
        let first = match &earlier {
            Some(Gathered::Put { first, .. }) => *first,
            Some(Gathered::Delete | Gathered::Nothing) => false,
            None => key.is_written_once() && index > self.known_up_to,
        };
        let change = match value {
            Some(value) => Gathered::Put { value, first },
            None if first && earlier.is_some() => Gathered::Nothing,
            None => Gathered::Delete,
        };
        self.gathered.insert(key, change);
    }

    /// How many keys are gathered.
    pub fn len(&self) -> usize {
        self.gathered.len() + self.up_to_marks.iter().map(|(_, gathered)| gathered.len()).sum::<usize>()
    }

    /// What is gathered up to the first entry that is marked, and not taken yet, with that entry.
    pub fn take_up_to_mark(&mut self) -> Option<(LogIndex, Vec<Change>)> {
        let (index, gathered) = self.up_to_marks.pop_front()?;
        Some(self.taken(index, gathered))
    }

    /// What is gathered behind that, with the log record up to which that goes; `None` if there is nothing.
    pub fn take(&mut self) -> Option<(LogIndex, Vec<Change>)> {
        // An entry without changes has to be known of too.
        if self.gathered_up_to == self.taken_up_to {
            return None;
        }
        let gathered = std::mem::take(&mut self.gathered);
        Some(self.taken(self.gathered_up_to, gathered))
    }

    fn taken(&mut self, index: LogIndex, gathered: BTreeMap<Key, Gathered>) -> (LogIndex, Vec<Change>) {
        self.taken_up_to = index;
        let mut keys = Vec::with_capacity(gathered.len());
        let mut changes = Vec::with_capacity(gathered.len());
        for (key, change) in gathered {
            keys.push(key);
            match change {
                Gathered::Put { value, .. } => changes.push(Change { key: key.encode(), value: Some(value) }),
                Gathered::Delete => changes.push(Change { key: key.encode(), value: None }),
                Gathered::Nothing => {}
            }
        }
        self.under_way.push_back((index, keys));
        (index, changes)
    }

    /// The store has everything up to a log record. Gives the records and keys that this is news of, oldest
    /// first.
    pub fn applied(&mut self, up_to: LogIndex) -> Vec<(LogIndex, Vec<Key>)> {
        let mut news = Vec::new();
        while self.under_way.front().is_some_and(|(index, _)| *index <= up_to) {
            news.extend(self.under_way.pop_front());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{NodeId, Sequence, SessionId};
    use proptest::prelude::*;

    const NODE: Key = Key::Node(NodeId(1));
    const REPLY: Key = Key::Reply(SessionId(1), Sequence(1));

    #[test]
    fn only_what_is_committed_goes_and_each_key_once_with_its_last_value() {
        let mut applies = Applies::from(LogIndex::ZERO);
        for index in 1..=3 {
            applies.log(LogIndex(index), vec![(NODE, Some(vec![index as u8]))]);
        }
        assert_eq!(applies.take(), None);
        applies.commit(LogIndex(2));
        let change = Change { key: NODE.encode(), value: Some(vec![2]) };
        assert_eq!(applies.take(), Some((LogIndex(2), vec![change])));
        assert_eq!(applies.applied(LogIndex(1)), []);
        assert_eq!(applies.applied(LogIndex(2)), [(LogIndex(2), vec![NODE])]);
        assert_eq!(applies.take(), None);
    }

    #[test]
    fn a_reply_that_came_and_went_is_not_told_to_the_store_but_one_it_has_is_deleted() {
        let mut applies = Applies::from(LogIndex::ZERO);
        applies.log(LogIndex(1), vec![(REPLY, Some(vec![1]))]);
        applies.log(LogIndex(2), vec![(REPLY, None)]);
        applies.commit(LogIndex(2));
        assert_eq!(applies.take(), Some((LogIndex(2), vec![])));
        assert_eq!(applies.applied(LogIndex(2)), [(LogIndex(2), vec![REPLY])]);

        applies.log(LogIndex(3), vec![(REPLY, Some(vec![1]))]);
        applies.commit(LogIndex(3));
        applies.take();
        applies.log(LogIndex(4), vec![(REPLY, None)]);
        applies.commit(LogIndex(4));
        let change = Change { key: REPLY.encode(), value: None };
        assert_eq!(applies.take(), Some((LogIndex(4), vec![change])));
    }

    #[test]
    fn what_a_snapshot_may_have_brought_is_deleted_although_it_came_and_went() {
        let mut applies = Applies::from(LogIndex::ZERO);
        applies.is_known_up_to(LogIndex(1));
        applies.log(LogIndex(1), vec![(REPLY, Some(vec![1]))]);
        applies.log(LogIndex(2), vec![(REPLY, None)]);
        applies.commit(LogIndex(2));
        let change = Change { key: REPLY.encode(), value: None };
        assert_eq!(applies.take(), Some((LogIndex(2), vec![change])));
    }

    #[test]
    fn what_came_and_went_is_deleted_until_it_is_known_where_a_snapshot_ended() {
        let mut applies = Applies::from(LogIndex::ZERO);
        applies.is_known_without_end();
        let come_and_go = |applies: &mut Applies, index: u64| {
            applies.log(LogIndex(index), vec![(REPLY, Some(vec![1]))]);
            applies.log(LogIndex(index + 1), vec![(REPLY, None)]);
            applies.commit(LogIndex(index + 1));
            applies.take().map(|(_, changes)| changes.len())
        };
        assert_eq!(come_and_go(&mut applies, 1), Some(1));
        applies.known_ends_with(LogIndex(4));
        assert_eq!(come_and_go(&mut applies, 3), Some(1));
        assert_eq!(come_and_go(&mut applies, 5), Some(0));
        applies.known_ends_with(LogIndex(99));
        assert_eq!(come_and_go(&mut applies, 7), Some(0), "the end is known");
    }

    #[test]
    fn what_goes_to_the_store_ends_at_a_mark_wherever_that_lies_in_what_is_gathered() {
        let mut applies = Applies::from(LogIndex::ZERO);
        for index in 1..=4 {
            applies.log(LogIndex(index), vec![(NODE, Some(vec![index as u8]))]);
        }
        [2, 3].into_iter().for_each(|index| applies.mark(LogIndex(index)));
        // Another entry has taken its place.
        applies.log(LogIndex(3), vec![(NODE, Some(vec![33]))]);
        assert!(applies.is_marked(LogIndex(2)) && !applies.is_marked(LogIndex(3)));
        applies.commit(LogIndex(4));
        assert_eq!(applies.len(), 2);
        let change = |value| vec![Change { key: NODE.encode(), value: Some(vec![value]) }];
        assert_eq!(applies.take_up_to_mark(), Some((LogIndex(2), change(2))));
        assert_eq!(applies.take_up_to_mark(), None);
        assert_eq!(applies.take(), Some((LogIndex(4), change(4))));
        assert_eq!(applies.take(), None);
        assert_eq!(applies.applied(LogIndex(4)), [(LogIndex(2), vec![NODE]), (LogIndex(4), vec![NODE])]);
    }

    fn store_after(log: &[KeyChange]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut store = BTreeMap::new();
        for (key, value) in log {
            match value {
                Some(value) => store.insert(key.encode(), value.clone()),
                None => store.remove(&key.encode()),
            };
        }
        store
    }

    proptest! {
        #[test]
        fn gathered_or_not_the_store_becomes_the_same(
            log in prop::collection::vec((0..4_u64, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut applies = Applies::from(LogIndex::ZERO);
            let mut store = BTreeMap::new();
            let mut history = Vec::new();
            let mut replies = 0;
            for (number, (key, put, takes)) in log.into_iter().enumerate() {
                // Key 0 stands for replies: each is put once and deleted once.
                let change = if key == 0 {
                    replies += 1;
                    let reply = Key::Reply(SessionId(1), Sequence(u64::div_ceil(replies, 2)));
                    (reply, (replies % 2 == 1).then(|| vec![0]))
                } else {
                    (Key::Node(NodeId(key)), put.then(|| vec![number as u8]))
                };
                history.push(change.clone());
                let index = LogIndex(number as u64 + 1);
                applies.log(index, vec![change]);
                applies.commit(index);
                if takes && let Some((up_to, changes)) = applies.take() {
                    prop_assert_eq!(up_to, index);
                    for change in changes {
                        match change.value {
                            Some(value) => store.insert(change.key, value),
                            None => store.remove(&change.key),
                        };
                    }
                    prop_assert_eq!(&store, &store_after(&history));
                }
            }
        }
    }
}
