//! A caller for tests: it answers from a list, or from one directory of made-up entries.

use bearing_mount::{Answer, Caller, Found, Handle, Listed, Operation, Remaining};
use bearing_types::{
    Attributes, Code, Cookie, FileType, Gid, Mode, Name, NameHash, NodeId, Outcome, Position, Uid, Wall,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

/// Remembers what it is asked.
#[derive(Default)]
pub(crate) struct FakeCaller {
    answers: Mutex<VecDeque<Outcome<Answer>>>,
    asked: Mutex<Vec<Operation>>,
    entries: Mutex<Vec<Listed>>,
    lost: Mutex<BTreeMap<usize, Code>>,
    fails: Mutex<Option<Code>>,
}

impl FakeCaller {
    /// A caller with these answers, in this order.
    pub fn answering(answers: Vec<Outcome<Answer>>) -> FakeCaller {
        FakeCaller { answers: Mutex::new(answers.into()), ..FakeCaller::default() }
    }

    /// A caller with a directory of so many entries.
    pub fn with_entries(count: usize) -> FakeCaller {
        let caller = FakeCaller::default();
        (0..count).for_each(|_| caller.add_entry());
        caller
    }

    /// Adds an entry behind the last.
    pub fn add_entry(&self) {
        let mut entries = self.entries.lock().unwrap();
        let at = entries.len() as u64;
        entries.push(Listed {
            // Every other pair shares a hash.
            cookie: Cookie::new(NameHash::from_bits(at / 2), (at % 2 + 1) as u16),
            name: Name::new(format!("entry-{at}").as_bytes()).unwrap(),
            node: handle(at + 10),
            file_type: FileType::Regular,
            attributes: None,
        });
    }

    /// From now on, looking the entry at this place up ends with a code.
    pub fn lose(&self, at: usize, code: Code) {
        self.lost.lock().unwrap().insert(at, code);
    }

    /// From now on, whatever is asked ends with a code.
    pub fn fail_all(&self, code: Code) {
        *self.fails.lock().unwrap() = Some(code);
    }

    /// The entries.
    pub fn entries(&self) -> Vec<Listed> {
        self.entries.lock().unwrap().clone()
    }

    /// The operations so far.
    pub fn asked(&self) -> Vec<Operation> {
        self.asked.lock().unwrap().clone()
    }

    fn list(&self, after: Cookie, count_max: u32) -> Outcome<Answer> {
        let entries = self.entries();
        let next = entries.into_iter().filter(|entry| entry.cookie > after);
        Ok(Answer::Listed(next.take(count_max as usize).collect()))
    }

    fn look_up(&self, name: &Name) -> Outcome<Answer> {
        let at = self.entries().iter().position(|entry| entry.name == *name).ok_or(Code::NotFound)?;
        let lost = self.lost.lock().unwrap();
        lost.get(&at)
            .map_or_else(|| Ok(Answer::Found(found(at as u64 + 10, FileType::Regular))), |code| Err(*code))
    }
}

impl Caller for FakeCaller {
    fn call(&self, operation: Operation) -> Outcome<Answer> {
        self.asked.lock().unwrap().push(operation.clone());
        if let Some(code) = *self.fails.lock().unwrap() {
            return Err(code);
        }
        if let Some(answer) = self.answers.lock().unwrap().pop_front() {
            return answer;
        }
        match operation {
            Operation::List { after, count_max, .. } => self.list(after, count_max),
            Operation::Lookup { name, .. } => self.look_up(&name),
            Operation::Attributes { node, file_type } => Ok(Answer::Found(found(node.node.0, file_type))),
            other => panic!("no answer is prepared for {other:?}"),
        }
    }

    fn call_while(&self, operation: Operation, _is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer> {
        self.call(operation)
    }

    fn call_all(&self, operations: Vec<Operation>) -> Vec<Outcome<Answer>> {
        operations.into_iter().map(|operation| self.call(operation)).collect()
    }
}

/// A node's handle.
pub(crate) fn handle(node: u64) -> Handle {
    Handle { node: NodeId(node), home: Position(node << 32) }
}

/// A node, leased for five seconds.
pub(crate) fn found(node: u64, file_type: FileType) -> Found {
    let attributes = Attributes::new(file_type, Mode::new(0o644), (Uid(0), Gid(0)), Wall(0));
    let remaining = Remaining(Duration::from_secs(5));
    Found { node: handle(node), attributes, name_remaining: remaining, attributes_remaining: remaining }
}
