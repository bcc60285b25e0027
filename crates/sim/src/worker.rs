//! What becomes of a worker's operations: into the history, into what the generator knows, and on with the
//! program.

use crate::client_host::{Asked, ClientHost};
use crate::network::HostId;
use crate::program::{FileRun, Listing, Meaning, Program, Stage};
use crate::recorder::Recorder;
use crate::world::World;
use bearing_client::{Answer, Found, Operation};
use bearing_proto::client::RenameMode;
use bearing_types::{Code, FileType, LockOwner, Mono, NodeId, Outcome, SetIds};
use bearing_workload::{FileSteps, OwnWrites, Piece, Query, Seen, View};

/// How often an action is drawn anew because another worker of the client is at the same file.
const DRAWS_MAX: u32 = 8;

/// Gives a worker something to do. `false` when there is nothing more.
pub fn draw(client: &mut ClientHost, recorder: &Recorder, worker: usize) -> bool {
    if recorder.operations_left == 0 {
        return false;
    }
    if client.wants_sync() {
        client.workers[worker].program = Program::SyncNames;
        return true;
    }
    for _ in 0..DRAWS_MAX {
        let Some(generator) = &mut client.generator else { return false };
        let mut program = Program::new(generator.next_action());
        program.lock_as(LockOwner(worker as u64 + 1));
        if !collides(client, &program) {
            client.workers[worker].program = program;
            return true;
        }
    }
    false
}

/// Whether another worker of this client writes the file of this program, or reads it while this one would
/// write it: what each would see of the other's unflushed writes is not for the checker to say.
fn collides(client: &ClientHost, program: &Program) -> bool {
    let Some(node) = program.node() else { return false };
    let others = client.workers.iter().map(|worker| &worker.program);
    others.filter(|other| other.node() == Some(node)).any(|other| other.writes() || program.writes())
}

/// What the client has written out by itself, before anybody asked it to.
pub fn refresh(client: &mut ClientHost, recorder: &Recorder, worker: usize) {
    let host = client.host;
    if let Program::File(run) = &mut client.workers[worker].program
        && let Some((sent, answered)) = recorder.last_commit(host, run.node.node)
    {
        // What was written behind its back went with a later one.
        let begun = client.write_outs.get(&run.node.node).into_iter().flatten();
        let begun = begun.rev().find(|begun| **begun <= sent).copied();
        run.written_out(begun.unwrap_or(sent), answered);
    }
}

/// A client says that buffered writes to a file are lost. The next flush has to say so too.
pub fn writes_lost(client: &mut ClientHost, node: NodeId) {
    for worker in &mut client.workers {
        if let Program::File(run) = &mut worker.program
            && run.write
            && run.node.node == node
        {
            (run.lost, run.doubtful) = (true, true);
        }
    }
}

/// An operation is about to begin.
pub fn begun(client: &mut ClientHost, world: &World, recorder: &mut Recorder, worker: usize) {
    let (host, session) = (client.host, client.session());
    match &mut client.workers[worker].program {
        Program::Listing(listing) => {
            listing.invoked.get_or_insert(world.true_mono());
        }
        Program::File(run) if run.stage == Stage::Open => {
            run.own.opened = world.true_mono();
            run.own.flushed = world.true_mono();
            if run.write {
                run.writer = Some(recorder.write_opened(world, host, run.node.node));
            }
        }
        Program::File(run) if run.stage == Stage::Unlock => {
            if let Some((_, number)) = run.locked {
                recorder.unlocking(world, number);
            }
        }
        Program::File(run) if run.stage == Stage::Steps => {
            if let Some(FileSteps::Lock { lock, .. }) = run.steps.front() {
                let number = recorder.locking(host, session, run.node.node, *lock);
                run.locked = Some((*lock, number));
            }
            if let Some(FileSteps::Copy { .. }) = run.steps.front() {
                recorder.copy_begun(host, run.node.node);
            }
            if let Some(FileSteps::Append { record: Some(record), .. }) = run.steps.front() {
                let number = recorder.append_begun(world, host, run.node.node, *record);
                run.appending.push(number);
            }
        }
        _ => {}
    }
}

/// An operation is over.
pub fn finished(
    client: &mut ClientHost,
    world: &mut World,
    recorder: &mut Recorder,
    worker: usize,
    asked: Asked,
    result: Result<Answer, Code>,
) {
    count(world, &asked.meaning, &result);
    if let Ok(Answer::Found(found) | Answer::Opened(_, found)) = &result {
        client.last_found = Some(*found);
    }
    let mut program = std::mem::replace(&mut client.workers[worker].program, Program::Idle);
    match &mut program {
        Program::Idle => unreachable!("an idle worker asks nothing"),
        Program::SyncNames => return,
        Program::Single(operation) => {
            learn(client, operation, &result);
            record(client, world, recorder, asked, &result);
            return;
        }
        Program::Tree(run) => {
            learn(client, &asked.what, &result);
            let goes_on = run.step_over(result.as_ref().ok());
            record(client, world, recorder, asked, &result);
            if !goes_on {
                world.counts.add("trees");
                return;
            }
        }
        Program::Listing(listing) => {
            if listed(client, world, recorder, listing, result) {
                return;
            }
        }
        Program::File(run) => {
            if file_goes_on(client, world, recorder, run, asked, result) {
                return;
            }
        }
    }
    client.workers[worker].program = program;
}

fn count(world: &mut World, meaning: &Meaning, result: &Result<Answer, Code>) {
    let name = meaning.name();
    match result {
        Ok(_) => world.counts.add(&format!("{name}: done")),
        Err(code) => world.counts.add(&format!("{name}: {code:?}")),
    }
}

fn seen_of(query: Option<&Query>, answer: &Answer) -> Seen {
    match answer {
        Answer::Xattr(list) if matches!(query, Some(Query::Xattrs { .. })) => {
            let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            Seen::Names(names.map(<[u8]>::to_vec).collect())
        }
        Answer::Xattr(value) => Seen::Value(value.clone()),
        Answer::Found(found) | Answer::Opened(_, found) => Seen::Node(view_of(found)),
        Answer::Target(target) => Seen::Target(target.clone()),
        Answer::Bytes(bytes) => Seen::Bytes(bytes.clone()),
        Answer::Done
        | Answer::Listed(_)
        | Answer::Written(_)
        | Answer::Place(_)
        | Answer::Lock(_)
        | Answer::Named(..)
        | Answer::Quota(_)
        | Answer::Statfs(_)
        | Answer::Extents { .. }
        | Answer::Advice { .. }
        | Answer::Chunks { .. } => Seen::Done,
    }
}

/// A node as the checker compares it.
pub fn view_of(found: &Found) -> View {
    View::of(found.node.node, &found.attributes)
}

fn record(
    client: &ClientHost,
    world: &World,
    recorder: &mut Recorder,
    asked: Asked,
    result: &Result<Answer, Code>,
) {
    let query = match &asked.meaning {
        Meaning::Question(query) => Some(query),
        Meaning::Change(_) | Meaning::Part => None,
    };
    let told: Outcome<Seen> = result.as_ref().map(|answer| seen_of(query, answer)).map_err(|code| *code);
    match (asked.meaning, asked.entry) {
        (_, Some(entry)) => recorder.end(world, entry, told),
        (Meaning::Question(query), None) => {
            if !shows_own_writes(client, &asked.invoked, &query, &told) {
                recorder.read(world, client.host, asked.invoked, query, told);
            }
        }
        (Meaning::Change(_) | Meaning::Part, None) => {}
    }
}

/// Attributes of a file that this client itself was writing meanwhile show its unflushed writes.
fn shows_own_writes(client: &ClientHost, invoked: &Mono, query: &Query, told: &Outcome<Seen>) -> bool {
    let Ok(Seen::Node(view)) = told else { return false };
    if view.file_type != FileType::Regular || matches!(query, Query::Content { .. }) {
        return false;
    }
    let writing = |program: &Program| program.writes() && program.node() == Some(view.node);
    client.workers.iter().any(|worker| writing(&worker.program))
        || client.written.get(&view.node).is_some_and(|until| until >= invoked)
}

fn learn(client: &mut ClientHost, operation: &Operation, result: &Result<Answer, Code>) {
    let Some(generator) = &mut client.generator else { return };
    match (operation, result) {
        (
            Operation::Lookup { directory, name, .. }
            | Operation::Create { directory, name, .. }
            | Operation::MakeDirectory { directory, name, .. }
            | Operation::Link { directory, name, .. },
            Ok(Answer::Found(found) | Answer::Opened(_, found)),
        ) => generator.learn(*directory, name, found.node, found.attributes.file_type),
        (
            Operation::Unlink { directory, name, .. } | Operation::RemoveDirectory { directory, name, .. },
            Ok(_) | Err(Code::NotFound),
        )
        | (Operation::Lookup { directory, name, .. }, Err(Code::NotFound)) => {
            generator.forget_name(directory.node, name);
        }
        (
            Operation::Rename {
                source, source_name, target, target_name, mode: RenameMode::Exchange, ..
            },
            Ok(_),
        ) => generator.exchanged(*source, source_name, *target, target_name),
        (Operation::Rename { source, source_name, target, target_name, .. }, Ok(_)) => {
            generator.moved(source.node, source_name, *target, target_name);
        }
        (
            Operation::Attributes { node, .. }
            | Operation::SetAttributes { node, .. }
            | Operation::ReadLink { node }
            | Operation::Xattr { node, .. }
            | Operation::Xattrs { node, .. }
            | Operation::SetXattr { node, .. }
            | Operation::Link { node, .. },
            Err(Code::Stale | Code::NotFound),
        ) => generator.forget_node(node.node),
        _ => {}
    }
}

/// A part of a listing came. Gives whether it was the last.
fn listed(
    client: &mut ClientHost,
    world: &World,
    recorder: &mut Recorder,
    listing: &mut Listing,
    result: Result<Answer, Code>,
) -> bool {
    let query = Query::List { directory: listing.directory.node, who: listing.who.clone() };
    let invoked = listing.invoked.unwrap_or(world.true_mono());
    let entries = match result {
        Ok(Answer::Listed(entries)) => entries,
        Ok(other) => unreachable!("a listing is answered with entries, not {other:?}"),
        Err(code) => {
            if matches!(code, Code::Stale | Code::NotFound)
                && let Some(generator) = &mut client.generator
            {
                generator.forget_node(listing.directory.node);
            }
            recorder.read(world, client.host, invoked, query, Err(code));
            return true;
        }
    };
    // Fewer than asked is the end only when it is none: the promise says so.
    let Some(last) = entries.last() else {
        let seen = listing.seen.iter().map(|entry| (entry.name.clone(), entry.node.node, entry.file_type));
        recorder.read(world, client.host, invoked, query, Ok(Seen::Listing(seen.collect())));
        return true;
    };
    listing.after = last.cookie;
    if let Some(generator) = &mut client.generator {
        for entry in &entries {
            generator.learn(listing.directory, &entry.name, entry.node, entry.file_type);
        }
    }
    listing.seen.extend(entries);
    false
}

impl FileRun {
    /// All that was written so far is in the file, and after a sync for good. After a failure nobody knows
    /// which the answer is about.
    fn acknowledge(&mut self, world: &World, recorder: &mut Recorder, host: HostId, stable: bool) {
        if !self.doubtful {
            recorder.flushed(world, host, self, stable);
        }
        self.unsettled.clear();
        if self.lost {
            recorder.complain(format!(
                "writes to {} are lost, but a flush says that all is well",
                self.node.node
            ));
        }
        for number in self.appending.drain(..).filter(|_| !self.doubtful) {
            recorder.appended(world, number);
        }
    }
}

/// An operation on an open file is over. Gives whether the program is.
fn file_goes_on(
    client: &mut ClientHost,
    world: &mut World,
    recorder: &mut Recorder,
    run: &mut FileRun,
    asked: Asked,
    result: Result<Answer, Code>,
) -> bool {
    if run.write {
        client.written.insert(run.node.node, world.true_mono());
    }
    match run.stage {
        Stage::Open => return opened(client, world, recorder, run, asked, result),
        Stage::Steps => {
            let step = run.steps.front().cloned().expect("the step that was asked");
            stepped(client, world, recorder, run, (step, asked), result);
        }
        Stage::Flush => {
            if result.is_err() {
                run.lost = false;
                world.counts.add("client: flush failed");
            }
            if result.is_ok() {
                run.acknowledge(world, recorder, client.host, false);
            }
            if let (Some(writer), true) = (run.writer.take(), result.is_ok()) {
                recorder.write_closed(world, writer);
            }
            run.stage = run.after_flush();
            return false;
        }
        Stage::Unlock => {
            run.locked = None;
            run.stage = Stage::Close;
            return false;
        }
        Stage::Close => return true,
    }
    run.step_over();
    false
}

fn opened(
    client: &mut ClientHost,
    world: &World,
    recorder: &mut Recorder,
    run: &mut FileRun,
    asked: Asked,
    result: Result<Answer, Code>,
) -> bool {
    let entry = asked.entry;
    record(client, world, recorder, asked, &result);
    match result {
        Ok(Answer::Opened(file, _)) => {
            run.file = Some(file);
            run.stage = if run.steps.is_empty() { Stage::Close } else { Stage::Steps };
            run.own.cut = entry.filter(|_| run.truncate);
            false
        }
        Ok(other) => unreachable!("a file is opened, not answered with {other:?}"),
        Err(code) => {
            if let Some(writer) = run.writer.take() {
                recorder.write_closed(world, writer);
            }
            if matches!(code, Code::Stale | Code::NotFound)
                && let Some(generator) = &mut client.generator
            {
                generator.forget_node(run.node.node);
            }
            true
        }
    }
}

/// Bytes of a file were copied within it. What was copied was read, as it were, and after that it is where it
/// was to go.
fn copied(
    client: &ClientHost,
    world: &mut World,
    recorder: &mut Recorder,
    run: &mut FileRun,
    invoked: Mono,
    (from, to, length, count): (u64, u64, u64, u32),
) {
    let (node, now) = (run.node.node, world.true_mono());
    let alone = run.writer.is_some_and(|writer| recorder.is_only_writer(writer, invoked));
    if !alone && !run.own.unflushed.is_empty() {
        // What was buffered was written out first: among what others did it cannot be told from what was
        // copied.
        run.doubtful = true;
    }
    if run.doubtful {
        world.counts.add("copies not known");
        return;
    }
    world.counts.add("copies");
    let bytes = recorder.copied(client.host, node, invoked, to..to + u64::from(count));
    let source = Query::Content { node, offset: from, length: length as u32, own: run.own.clone() };
    recorder.read(world, client.host, invoked, source, Ok(Seen::Bytes(bytes.clone())));
    // What copies nothing makes no file longer.
    if count > 0 {
        run.own.since_opened.push(Piece { offset: to, bytes: bytes.clone() });
    }
    run.flushed(now);
    if alone && count > 0 {
        world.counts.add("copies that nobody disturbed");
        let own = OwnWrites {
            opened: now,
            cut: None,
            flushed: now,
            since_opened: Vec::new(),
            unflushed: Vec::new(),
        };
        let target = Query::Content { node, offset: to, length: count, own };
        recorder.read(world, client.host, now, target, Ok(Seen::Bytes(bytes)));
    }
}

/// A lock was given, or not.
fn locked(
    world: &mut World,
    recorder: &mut Recorder,
    run: &mut FileRun,
    asked: &Asked,
    result: &Result<Answer, Code>,
) {
    match result {
        Ok(_) => {
            world.counts.add("locks: given");
            // What others committed before it was asked for is seen under it.
            (run.own.opened, run.own.flushed) = (asked.invoked, asked.invoked);
            if let Some((_, number)) = run.locked {
                recorder.locked(world, number);
            }
        }
        Err(code @ (Code::Locked | Code::Deadlock | Code::Interrupted)) => {
            world.counts.add(&format!("locks: {code:?}"));
            run.locked = None;
        }
        // It may have it, or not.
        Err(_) => world.counts.add("locks: not known"),
    }
}

fn stepped(
    client: &mut ClientHost,
    world: &mut World,
    recorder: &mut Recorder,
    run: &mut FileRun,
    (step, asked): (FileSteps, Asked),
    result: Result<Answer, Code>,
) {
    let now = world.true_mono();
    match (step, &result) {
        // Who is out of reach for longer than a request lasts has lost nothing; the end of the run asks
        // again.
        (FileSteps::Read { .. }, Err(Code::Io)) => {
            // The simulator looks at it with the ledger: data that was never synced may be lost.
            world.counts.add("read: bytes lost");
            recorder.lost_reads.push((asked.invoked, run.node.node));
            run.doubtful = true;
        }
        // What was lost from the buffer is read no more, whether or not the program knows yet.
        (FileSteps::Read { .. }, Ok(_)) if run.doubtful => {}
        (FileSteps::Read { .. }, _) => record(client, world, recorder, asked, &result),
        (FileSteps::Write { offset, bytes }, Ok(Answer::Written(count))) => {
            if *count as usize != bytes.len() {
                recorder.complain(format!("{count} of {} bytes were written", bytes.len()));
            }
            let piece = Piece { offset, bytes };
            run.own.since_opened.push(piece.clone());
            run.unsettled.push(piece.clone());
            // One that takes set-id bits away is answered when it is in the file: what others wrote since
            // lies over it.
            let clears = matches!(asked.what, Operation::Write { set_ids: SetIds::Clear(_), .. });
            if !(clears && recorder.has_committed(client.host, run.node.node, asked.invoked, &piece)) {
                run.own.unflushed.push(piece);
                // It may have waited for an append of the same file: it is in the buffer when it is answered.
                run.written.push(now);
            }
        }
        (FileSteps::Append { bytes, .. }, Ok(Answer::Written(count))) => {
            if *count as usize != bytes.len() {
                recorder.complain(format!("{count} of {} bytes were appended", bytes.len()));
            }
            world.counts.add("appends");
        }
        (step @ (FileSteps::Flush | FileSteps::Sync), Ok(_)) => {
            run.flushed(now);
            run.acknowledge(world, recorder, client.host, step == FileSteps::Sync);
        }
        (FileSteps::Resize { .. } | FileSteps::MakeHole { .. }, Ok(_)) => {
            run.own.cut = asked.entry;
            record(client, world, recorder, asked, &result);
            run.own.since_opened.clear();
            run.unsettled.clear();
            run.flushed(now);
        }
        (FileSteps::Resize { .. } | FileSteps::MakeHole { .. }, Err(code)) => {
            run.lost = false;
            run.doubtful = *code != Code::Access && *code != Code::NotPermitted;
            record(client, world, recorder, asked, &result);
        }
        (FileSteps::Copy { from, to, length }, result) => {
            recorder.copy_over(client.host, run.node.node);
            match result {
                Ok(Answer::Written(count)) => {
                    copied(client, world, recorder, run, asked.invoked, (from, to, length, *count))
                }
                _ => (run.lost, run.doubtful) = (false, true),
            }
        }
        (FileSteps::Lock { .. }, result) => locked(world, recorder, run, &asked, result),
        (FileSteps::Unlink { directory, name }, _) => {
            record(client, world, recorder, asked, &result);
            if let (Ok(_) | Err(Code::NotFound), Some(generator)) = (&result, &mut client.generator) {
                generator.forget_name(directory.node, &name);
            }
        }
        (FileSteps::Write { .. } | FileSteps::Append { .. } | FileSteps::Flush | FileSteps::Sync, _) => {
            run.lost = false;
            run.doubtful = true;
        }
    }
}
