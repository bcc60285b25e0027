//! What a sync owes.

use super::*;
use crate::program::{FileRun, Program};
use bearing_proto::client::{AttributeChange, Handle};
use bearing_types::{Credentials, Position, SetIds};
use bearing_workload::Action;

const NODE: NodeId = NodeId(7);
const CLIENT: HostId = HostId(9);

fn frame(number: u64) -> (ChunkId, u64) {
    (ChunkId(3), number)
}

/// An open file of the client, with nothing unflushed.
fn run() -> Box<FileRun> {
    let node = Handle { node: NODE, home: Position(0) };
    let who = Credentials::ROOT;
    let action = Action::File { node, who, read: true, write: true, truncate: false, steps: Vec::new() };
    match Program::new(action) {
        Program::File(run) => run,
        _ => unreachable!("an open file is a program of its own"),
    }
}

fn cut(size: u64) -> Mutation {
    let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
    Mutation::SetAttributes { node: NODE, who: Credentials::ROOT, change, through_file: true }
}

fn commit(offset: u64, bytes: usize) -> Mutation {
    let pieces = vec![Piece { offset, bytes: vec![1; bytes] }];
    Mutation::Commit { node: NODE, pieces, size_min: 0, mode: CommitMode::Put, set_ids: SetIds::Keep }
}

/// One change after the other, each told before the next is asked for; commits lie in frames that nobody made
/// stable. How many complaints a sync then gives.
fn complaints(changes: &[(Mutation, Outcome<Seen>)]) -> usize {
    let mut recorder = Recorder::default();
    for (number, (mutation, told)) in (1..).zip(changes) {
        let outcome = MutationOutcome::Told(told.clone());
        let event = Event::Mutation { mutation: mutation.clone(), requests: Vec::new(), outcome };
        if let Mutation::Commit { .. } = mutation {
            recorder.commit_frames.insert(recorder.history.entries.len(), vec![frame(number)]);
        }
        let (invoked, returned) = (Mono(10 * number), Some(Mono(10 * number + 5)));
        recorder.history.entries.push(Entry { client: client_id(CLIENT), invoked, returned, event });
    }
    recorder.flushed(&World::new(1, 12), CLIENT, &run(), true);
    recorder.complaints.len()
}

#[test]
fn a_sync_owes_what_was_committed_but_not_what_was_cut_off_or_written_over_since() {
    let done = |mutation| (mutation, Ok(Seen::Done));
    let committed = || done(commit(100, 50));
    assert_eq!(complaints(&[committed()]), 1);
    assert_eq!(complaints(&[committed(), done(cut(100))]), 0);
    assert_eq!(complaints(&[committed(), done(cut(101))]), 1, "one byte is still there");
    assert_eq!(complaints(&[done(cut(0)), committed()]), 1, "cut before");
    assert_eq!(complaints(&[committed(), (cut(0), Err(Code::Access))]), 1, "not cut");
    let hole = Mutation::MakeHole { node: NODE, start: 120, end: 150, size_min: 0, set_ids: SetIds::Keep };
    assert_eq!(complaints(&[committed(), done(hole.clone())]), 1);
    // The commit that overwrites is owed itself.
    assert_eq!(complaints(&[committed(), done(commit(100, 20))]), 2);
    assert_eq!(complaints(&[committed(), done(hole), done(commit(90, 30))]), 1);
}
