//! Logs: files that several clients append records to, and nobody does anything else with.
//!
//! This rule looks at what programs were told and at the bytes of the file, not at which commits carried
//! them. So it holds the whole way from write(2) to the file to its promise, and not only the file's home.

use super::violation::{Rule, Violation};
use crate::history::Append;
use crate::{Oracle, State};
use bearing_types::{Mono, NodeId};
use std::collections::BTreeMap;

/// A record of a log: its number, and a length of bytes that follow from it. So one that was cut, or mixed
/// with another, is told from a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub number: u64,
    /// Its length in bytes, with all.
    pub bytes: u32,
}

impl Record {
    /// The shortest record: its number and its length.
    pub const BYTES_MIN: u32 = 12;

    /// As it is written.
    ///
    /// # Panics
    /// If it is shorter than [`Record::BYTES_MIN`].
    pub fn encode(self) -> Vec<u8> {
        let filler =
            self.bytes.checked_sub(Record::BYTES_MIN).expect("a record holds its number and its length");
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend((0..u64::from(filler)).map(|at| (self.number.rotate_left(at as u32 % 64) ^ at) as u8));
        bytes
    }

    /// The record at the start of some bytes, if there is a whole one.
    fn decode(bytes: &[u8]) -> Option<Record> {
        let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let length = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let record = Record { number, bytes: length };
        let whole = length >= Record::BYTES_MIN && bytes.get(..length as usize)? == record.encode();
        whole.then_some(record)
    }
}

/// Checks a log against what was appended to it.
pub fn check(oracle: &Oracle, log: NodeId, appends: &[Append]) -> Vec<Violation> {
    let Some(content) = oracle.node(log).map(|node| &node.content) else { return Vec::new() };
    let mut written: BTreeMap<u64, &Append> =
        appends.iter().filter(|append| append.log == log).map(|append| (append.record, append)).collect();
    let mut violations = Vec::new();
    let mut wrong =
        |rule, message: String| violations.push(Violation::general(rule, format!("log {log}: {message}")));
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut in_order = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let Some(record) = Record::decode(&content[at..]) else {
            wrong(Rule::AppendTorn, format!("no whole record begins at {at} of {} bytes", content.len()));
            break;
        };
        if let Some(before) = seen.insert(record.number, at as u64) {
            wrong(Rule::AppendRepeats, format!("record {} lies at {before} and at {at}", record.number));
        } else if let Some(append) = written.remove(&record.number) {
            in_order.push(append);
        } else {
            wrong(Rule::AppendTorn, format!("record {} at {at} was written by nobody", record.number));
        }
        at += record.bytes as usize;
    }
    for append in written.into_values().filter(|append| append.acknowledged.is_some()) {
        wrong(Rule::AppendLost, format!("{append:?} is not in it"));
    }
    // Of all that lie behind a record, which was acknowledged first?
    let mut earliest: Option<(Mono, &Append)> = None;
    for append in in_order.into_iter().rev() {
        if let Some((acknowledged, later)) =
            earliest.filter(|(acknowledged, _)| *acknowledged < append.invoked)
        {
            let message =
                format!("{append:?} lies before {later:?}, which was acknowledged at {acknowledged:?}");
            wrong(Rule::AppendOrder, message);
        }
        let own = append.acknowledged.map(|at| (at, append));
        earliest = [earliest, own].into_iter().flatten().min_by_key(|(at, _)| *at);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, Mutation, Piece};
    use bearing_proto::client::{CommitMode, NewNode};
    use bearing_types::{Access, Credentials, FileType, Gid, Mode, Name, SetIds, Uid};

    const LOG: NodeId = NodeId(9);

    fn append(record: u64, invoked: u64, acknowledged: Option<u64>) -> Append {
        Append {
            client: ClientId(1),
            log: LOG,
            record,
            invoked: Mono(invoked),
            acknowledged: acknowledged.map(Mono),
        }
    }

    fn found(content: &[Vec<u8>], appends: &[Append]) -> Vec<Rule> {
        let access = Access { mode: Mode::new(0o777), uid: Uid(0), gid: Gid(0) };
        let mut oracle = Oracle::new(NodeId::ROOT, access);
        let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o666), device: 0, target: vec![] };
        let (directory, name) = (NodeId::ROOT, Name::new(b"log").unwrap());
        let create = Mutation::Create { directory, name, who: Credentials::ROOT, new };
        oracle.apply(&create, Some(LOG), false);
        for bytes in content {
            let pieces = vec![Piece { offset: 0, bytes: bytes.clone() }];
            let commit = Mutation::Commit {
                node: LOG,
                pieces,
                size_min: 0,
                mode: CommitMode::Append,
                set_ids: SetIds::Keep,
            };
            oracle.apply(&commit, None, false);
        }
        check(&oracle, LOG, appends).into_iter().map(|violation| violation.rule).collect()
    }

    fn record(number: u64) -> Vec<u8> {
        Record { number, bytes: 12 + number as u32 % 50 }.encode()
    }

    #[test]
    fn whole_records_in_an_order_that_time_allows_are_good() {
        // 2 was written while 1 was on its way; 3 was never acknowledged and is there; 4 was not and is not.
        let appends =
            [append(1, 0, Some(10)), append(2, 5, Some(20)), append(3, 30, None), append(4, 30, None)];
        assert_eq!(found(&[record(2), record(1), record(3)], &appends), []);
    }

    #[test]
    fn a_lost_a_doubled_and_a_torn_record_are_caught() {
        let appends = [append(1, 0, Some(10)), append(2, 20, Some(30))];
        assert_eq!(found(&[record(1)], &appends), [Rule::AppendLost]);
        assert_eq!(found(&[record(1), record(2), record(1)], &appends), [Rule::AppendRepeats]);
        let torn = record(2)[..11].to_vec();
        assert_eq!(found(&[record(1), torn], &appends), [Rule::AppendTorn, Rule::AppendLost]);
        assert_eq!(found(&[record(1), record(2), record(3)], &appends), [Rule::AppendTorn]);
    }

    #[test]
    fn an_order_against_time_is_caught() {
        let appends = [append(1, 0, Some(10)), append(2, 20, Some(30))];
        assert_eq!(found(&[record(2), record(1)], &appends), [Rule::AppendOrder]);
    }
}
