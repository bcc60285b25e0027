//! Keeps the history: what clients asked and were told, which request carried which change, and which bytes
//! which frame held.
//!
//! It reads along at the client's wire. A change is known by what it asks; a commit, which no operation asks
//! for by itself, becomes an entry of its own.

mod frames;
mod meaning;

use crate::complaint::{Complaint, Promise};
use crate::network::HostId;
use crate::program::FileRun;
use crate::world::World;
use bearing_proto::client::{Answer, Call, CommitMode, Extent, Reply, Request};
use bearing_proto::delegation::{Change, Step};
use bearing_types::{Amount, ChunkId, Code, Epoch, Lock, Mono, NodeId, Outcome, SessionId};
use bearing_workload::{
    Append, ClientId, Entry, Event, History, LockHold, Mutation, MutationOutcome, Piece, Query, RequestId,
    Seen, WitnessEvent, WitnessKind, WriteOpen,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use frames::{DataAsked, Frame};
use meaning::{cuts, is_same, mutation_of, replaces, seen_of, without};

/// A change that a client decided by itself.
#[derive(Clone, Copy)]
struct Decided {
    host: HostId,
    at: Mono,
    entry: usize,
}

/// See the module.
#[derive(Default)]
pub struct Recorder {
    /// What happened.
    pub history: History,
    /// Operations that may still begin.
    pub operations_left: u64,
    /// What clients did that no operation explains.
    pub complaints: Vec<Complaint>,
    /// Reads that said that bytes are lost, for the simulator to judge: when they began, and of what.
    pub lost_reads: Vec<(Mono, NodeId)>,
    /// The history was looked at: what is asked for from now on belongs to no operation in it.
    pub closed: bool,
    /// Whether a data server's disk was full at any time.
    pub disks_were_full: bool,
    /// The quota of the root, if it may be used up.
    pub tight_quota: Option<Amount>,
    /// Changes whose operation is under way, by client.
    under_way: BTreeMap<usize, HostId>,
    /// The changes that were asked for or decided, and the newest epoch each was sent under.
    known: BTreeMap<RequestId, Epoch>,
    commits: BTreeMap<RequestId, usize>,
    /// Changes that are no operations of the filesystem: of sessions and chunks.
    beside: BTreeSet<RequestId>,
    /// The last commit of a client to a file that went well: when it was sent, and when it was answered.
    committed: BTreeMap<(HostId, NodeId), (Mono, Mono)>,
    /// What clients decided by themselves in delegated directories: who, when, and which entry.
    decided: BTreeMap<RequestId, Decided>,
    /// When clients died, or ended their sessions.
    deaths: BTreeMap<HostId, Vec<Mono>>,
    /// Syncs in the order in which they were answered: when they began, and whether they went well.
    synced: Vec<(SessionId, Mono, bool)>,
    frames: BTreeMap<(ChunkId, u64), Frame>,
    /// The frames that a commit refers to, by its entry.
    commit_frames: BTreeMap<usize, Vec<(ChunkId, u64)>>,
    /// Commits that a sync said are stable: when, and whose.
    stable_commits: Vec<(Mono, RequestId)>,
    asked: BTreeMap<(SessionId, u64), DataAsked>,
    /// The chunks that clients asked to be sealed.
    seals: BTreeMap<RequestId, ChunkId>,
    /// Copies under way: the holes that they make are asked for by no operation.
    copies: BTreeSet<(HostId, NodeId)>,
    /// Frames that were acknowledged where there was another one before, in their order. A client may still
    /// hold any of them.
    reborn: BTreeMap<(ChunkId, u64), Vec<Rc<Vec<u8>>>>,
}

impl Recorder {
    /// A client did what none of its programs asked for.
    pub fn complain(&mut self, what: String) {
        if !self.closed {
            self.complaints.push(Complaint { promise: Promise::Wire, what });
        }
    }

    /// A change is asked for.
    pub fn begin(&mut self, world: &World, host: HostId, mutation: Mutation) -> usize {
        let index = self.history.entries.len();
        let event = Event::Mutation { mutation, requests: Vec::new(), outcome: MutationOutcome::Unknown };
        self.history.entries.push(Entry {
            client: client_id(host),
            invoked: world.true_mono(),
            returned: None,
            event,
        });
        self.under_way.insert(index, host);
        index
    }

    /// The client was told.
    pub fn end(&mut self, world: &World, index: usize, told: Outcome<Seen>) {
        self.under_way.remove(&index);
        let entry = &mut self.history.entries[index];
        let Event::Mutation { requests, outcome, .. } = &mut entry.event else {
            unreachable!("only changes are begun")
        };
        // What flushes first may fail with that, and then it was never asked for.
        let of_flush = |code: Code| {
            matches!(code, Code::Io | Code::NoSpace | Code::QuotaExceeded) && requests.is_empty()
        };
        let unknown = told.as_ref().is_err_and(|code| is_unknown(*code) || of_flush(*code));
        if !unknown {
            entry.returned = Some(world.true_mono());
            *outcome = MutationOutcome::Told(told);
        }
    }

    /// The client died: nobody will ever be told.
    pub fn client_died(&mut self, world: &World, host: HostId) {
        let now = world.true_mono();
        self.deaths.entry(host).or_default().push(now);
        let locks = self.history.locks.iter_mut().filter(|hold| hold.client == client_id(host));
        for hold in locks {
            hold.until.get_or_insert(now);
        }
        self.under_way.retain(|_, of| *of != host);
        self.copies.retain(|(of, _)| *of != host);
    }

    /// An operation ended so, whatever it was.
    pub fn told(&mut self, host: HostId, code: Option<Code>) {
        if code == Some(Code::NoSpace) && !self.disks_were_full {
            self.complain(format!("{host:?} was told that there is no space, but no disk was ever full"));
        }
        if code == Some(Code::QuotaExceeded) && self.tight_quota.is_none() {
            self.complain(format!("{host:?} was told that a quota is used up, but none is"));
        }
    }

    /// A question was answered.
    pub fn read(&mut self, world: &World, host: HostId, invoked: Mono, query: Query, result: Outcome<Seen>) {
        if result.as_ref().is_err_and(|code| is_unknown(*code)) {
            return;
        }
        let returned = Some(world.true_mono());
        let event = Event::Read { query, result };
        self.history.entries.push(Entry { client: client_id(host), invoked, returned, event });
    }

    /// A file is being opened for writing. Gives its number for [`Recorder::write_closed`].
    pub fn write_opened(&mut self, world: &World, host: HostId, node: NodeId) -> usize {
        let from = world.true_mono();
        self.history.writers.push(WriteOpen { client: client_id(host), node, from, until: None });
        self.history.writers.len() - 1
    }

    /// All writes of an open file are flushed, or it was not opened.
    pub fn write_closed(&mut self, world: &World, number: usize) {
        self.history.writers[number].until = Some(world.true_mono());
    }

    /// A record is about to be appended to a log. Gives its number for [`Recorder::appended`].
    pub fn append_begun(&mut self, world: &World, host: HostId, log: NodeId, record: u64) -> usize {
        let (client, invoked) = (client_id(host), world.true_mono());
        self.history.appends.push(Append { client, log, record, invoked, acknowledged: None });
        self.history.appends.len() - 1
    }

    /// A flush of it was answered.
    pub fn appended(&mut self, world: &World, number: usize) {
        self.history.appends[number].acknowledged = Some(world.true_mono());
    }

    /// A part of a file is about to be copied within it.
    pub fn copy_begun(&mut self, host: HostId, node: NodeId) {
        self.copies.insert((host, node));
    }

    /// That is over.
    pub fn copy_over(&mut self, host: HostId, node: NodeId) {
        self.copies.remove(&(host, node));
    }

    /// What a client has put into a range of a file since a copy began: bytes, and zeros where it made holes
    /// or found some.
    pub fn copied(&self, host: HostId, node: NodeId, since: Mono, range: Range<u64>) -> Vec<u8> {
        let changes = self.history.entries.iter().rev().filter_map(|entry| match &entry.event {
            Event::Mutation { mutation, outcome, .. } => Some((entry, mutation, outcome)),
            Event::Read { .. } => None,
        });
        let recent: Vec<_> = changes.take_while(|(entry, ..)| entry.invoked >= since).collect();
        let mut content = vec![0; range.end as usize];
        for (entry, mutation, outcome) in recent.into_iter().rev() {
            if entry.client != client_id(host) || !matches!(outcome, MutationOutcome::Told(Ok(_))) {
                continue;
            }
            match mutation {
                Mutation::Commit { node: of, pieces, mode: CommitMode::Put, .. } if *of == node => {
                    pieces.iter().for_each(|piece| piece.lay_over(&mut content));
                }
                Mutation::MakeHole { node: of, start, end, .. } if *of == node => {
                    let length = content.len();
                    content[(*start as usize).min(length)..(*end as usize).min(length)].fill(0);
                }
                _ => {}
            }
        }
        content[range.start as usize..range.end as usize].to_vec()
    }

    /// Whether nobody else can have changed a file since, beside who opened it for writing under this number.
    pub fn is_only_writer(&self, number: usize, since: Mono) -> bool {
        let WriteOpen { client, node, .. } = self.history.writers[number];
        let writes = |(at, writer): (usize, &WriteOpen)| {
            at != number && writer.node == node && writer.until.is_none_or(|until| until >= since)
        };
        let cuts = |entry: &Entry| {
            let late = entry.returned.is_none_or(|returned| returned >= since);
            let ours = entry.client == client && entry.invoked >= since;
            let cut = |mutation| cuts(mutation) == Some(node);
            late && !ours && matches!(&entry.event, Event::Mutation { mutation, .. } if cut(mutation))
        };
        !self.history.writers.iter().enumerate().any(writes) && !self.history.entries.iter().any(cuts)
    }

    /// A lock is asked for. Gives its number.
    pub fn locking(&mut self, host: HostId, session: SessionId, node: NodeId, lock: Lock) -> usize {
        let client = client_id(host);
        self.history.locks.push(LockHold { client, session, node, lock, got: None, until: None });
        self.history.locks.len() - 1
    }

    /// The client was told that it has it.
    pub fn locked(&mut self, world: &World, number: usize) {
        self.history.locks[number].got = Some(world.true_mono());
    }

    /// It begins to give it back.
    pub fn unlocking(&mut self, world: &World, number: usize) {
        self.history.locks[number].until = Some(world.true_mono());
    }

    /// Sessions that were over at some time had nothing any more.
    pub fn sessions_ended(&mut self, ended: &BTreeMap<SessionId, Mono>) {
        for hold in &mut self.history.locks {
            let until = [hold.until, ended.get(&hold.session).copied()];
            hold.until = until.into_iter().flatten().min();
        }
    }

    /// Whether the witness says something of this request that the history knows nothing of.
    pub fn is_beside(&self, request: RequestId) -> bool {
        self.beside.contains(&request)
    }

    /// A flush or a sync of a file was told that all is well: what was written is part of the file. After a
    /// sync it is also stable, at data servers now, and at the file's home as the witness will say.
    pub fn flushed(&mut self, world: &World, host: HostId, run: &FileRun, stable: bool) {
        let mut left: BTreeMap<u64, u8> = BTreeMap::new();
        for piece in &run.unsettled {
            left.extend((piece.offset..).zip(piece.bytes.iter().copied()));
        }
        let opened = run.own.opened;
        let mut complaints = Vec::new();
        for (index, entry) in self.history.entries.iter().enumerate().rev() {
            let Event::Mutation { mutation, requests, outcome } = &entry.event else { continue };
            let Mutation::Commit { node, pieces, mode, .. } = mutation else { continue };
            if entry.client != client_id(host) || *node != run.node.node {
                continue;
            }
            if entry.invoked < opened {
                break;
            }
            if !matches!(outcome, MutationOutcome::Told(Ok(_))) {
                continue;
            }
            if *mode == CommitMode::Put {
                for piece in pieces {
                    for (offset, byte) in (piece.offset..).zip(&piece.bytes) {
                        if left.get(&offset) == Some(byte) {
                            left.remove(&offset);
                        }
                    }
                }
            }
            if !stable {
                continue;
            }
            let unstable = |frame: &(ChunkId, u64)| self.frames.get(frame).is_none_or(|kept| !kept.stable);
            let frames = self.commit_frames.get(&index).into_iter().flatten().copied();
            let mut owed = frames.zip(pieces).filter(|(frame, _)| unstable(frame));
            if let Some((frame, _)) = owed.find(|(_, piece)| !self.may_be_replaced(index, *mode, piece)) {
                complaints.push(format!(
                    "a sync of {node} by {host:?} says that all is well, but no server was asked to keep {frame:?}"
                ));
            }
            self.stable_commits.extend(requests.last().map(|request| (world.true_mono(), *request)));
        }
        if let Some((offset, _)) = left.first_key_value() {
            let count = left.len();
            complaints.push(format!(
                "a flush of {} by {host:?} says that all is well, but {count} written bytes from {offset} on are in no commit",
                run.node.node
            ));
        }
        for what in complaints {
            self.complaints.push(Complaint { promise: Promise::Flushed, what });
        }
    }

    /// Whether bytes of a commit may be no part of the file any more: cut off, or written over. Then its
    /// chunk may be gone, and nobody is owed that they are kept.
    fn may_be_replaced(&self, commit: usize, mode: CommitMode, piece: &Piece) -> bool {
        let committed = &self.history.entries[commit];
        let Event::Mutation { mutation: Mutation::Commit { node, size_min, .. }, outcome, .. } =
            &committed.event
        else {
            return false;
        };
        let base = match (mode, outcome) {
            (CommitMode::Put, _) => Some(0),
            (CommitMode::Append, MutationOutcome::Told(Ok(Seen::Node(view)))) => {
                view.size.checked_sub(*size_min)
            }
            // A client that decided it by itself is not told where.
            (CommitMode::Append, _) => None,
        };
        let start = base.map(|base| base + piece.offset);
        let whole = start.map_or(0..u64::MAX, |start| start..start + piece.bytes.len() as u64);
        let mut left = vec![whole];
        for (index, entry) in self.history.entries.iter().enumerate() {
            let Event::Mutation { mutation, outcome, .. } = &entry.event else { continue };
            let refused = matches!(outcome, MutationOutcome::Told(Err(_)));
            let before = entry.returned.is_some_and(|returned| returned < committed.invoked);
            if index == commit || refused || before {
                continue;
            }
            for range in replaces(mutation, *node) {
                left = left.into_iter().flat_map(|part| without(part, &range)).collect();
            }
        }
        left.is_empty()
    }

    /// Whether a client has made bytes that it wrote since then a part of the file.
    pub fn has_committed(&self, host: HostId, node: NodeId, since: Mono, written: &Piece) -> bool {
        let whole = written.offset..written.end();
        let mut left = vec![whole];
        for entry in self.history.entries.iter().filter(|entry| entry.invoked >= since) {
            let Event::Mutation { mutation, outcome: MutationOutcome::Told(Ok(_)), .. } = &entry.event else {
                continue;
            };
            let Mutation::Commit { node: of, pieces, mode: CommitMode::Put, .. } = mutation else { continue };
            if entry.client == client_id(host) && *of == node {
                for piece in pieces {
                    let range = piece.offset..piece.end();
                    left = left.into_iter().flat_map(|part| without(part, &range)).collect();
                }
            }
        }
        left.is_empty()
    }

    /// Commits that were told as stable before they were.
    fn check_stable_commits(&self, witness: &[WitnessEvent]) -> Vec<String> {
        let committed: BTreeMap<RequestId, Mono> = witness
            .iter()
            .filter(|event| matches!(event.kind, WitnessKind::Committed { .. }))
            .map(|event| (event.request, event.at))
            .collect();
        let early = |(told, request): &&(Mono, RequestId)| committed.get(request).is_none_or(|at| at > told);
        let broken = self.stable_commits.iter().filter(early);
        broken
            .map(|(told, request)| {
                let at = committed.get(request).map(|at| at.0 / 1000);
                format!("{request:?} was told as stable at {} us, it was so at {at:?}", told.0 / 1000)
            })
            .collect()
    }

    // --- at the wire ---

    /// A client sends a request.
    pub fn sent(&mut self, world: &World, host: HostId, session: SessionId, request: &Request) {
        let id = RequestId { session, sequence: request.sequence };
        if !request.call.mutates() {
            return;
        }
        let sent = self.known.get(&id).copied();
        self.known.insert(id, sent.map_or(request.epoch, |sent| sent.max(request.epoch)));
        if sent.is_some() {
            return;
        }
        if let Call::Commit { node, extents, size_min, mode, set_ids, .. } = &request.call {
            let pieces = self.pieces_of(host, extents);
            let (size_min, mode, set_ids) = (*size_min, *mode, *set_ids);
            let commit = Mutation::Commit { node: node.node, pieces, size_min, mode, set_ids };
            return self.sent_commit(world, host, id, commit, extents);
        }
        let Some(asked) = mutation_of(&request.call) else {
            self.beside.insert(id);
            if let Call::SealChunk { chunk, .. } = &request.call {
                self.seals.insert(id, chunk.chunk);
            }
            return;
        };
        match &asked {
            Mutation::MakeHole { node, .. } if self.copies.contains(&(host, *node)) => {
                self.sent_commit(world, host, id, asked, &[]);
            }
            _ => drop(self.assign(host, id, asked)),
        }
    }

    /// Finds the operation that wants a change. Gives its entry.
    fn assign(&mut self, host: HostId, id: RequestId, asked: Mutation) -> Option<usize> {
        let Recorder { under_way, history, .. } = self;
        let mine = under_way.iter().filter(|(_, of)| **of == host).map(|(index, _)| *index);
        let mut matching = mine.filter(|index| match &history.entries[*index].event {
            Event::Mutation { mutation, .. } => is_same(mutation, &asked),
            Event::Read { .. } => false,
        });
        match matching.next() {
            Some(index) => {
                if let Event::Mutation { mutation, requests, .. } = &mut history.entries[index].event {
                    if !matches!(mutation, Mutation::SetXattr { .. }) {
                        *mutation = asked;
                    }
                    requests.push(id);
                }
                Some(index)
            }
            None => {
                self.complain(format!("{host:?} asks for {asked:?}, which no operation of it wants"));
                None
            }
        }
    }

    /// A client decides a change by itself, in a directory that is delegated to it.
    pub fn decided(&mut self, world: &World, host: HostId, session: SessionId, step: &Step) {
        let id = RequestId { session, sequence: step.sequence };
        if self.known.insert(id, Epoch(0)).is_some() {
            return self.complain(format!("{host:?} decides two changes under the number {id:?}"));
        }
        let at = world.true_mono();
        let entry = if let Change::Commit { node, extents, size_min, mode, set_ids, .. } = &step.change {
            let pieces = self.pieces_of(host, extents);
            let (size_min, mode, set_ids) = (*size_min, *mode, *set_ids);
            let commit = Mutation::Commit { node: node.node, pieces, size_min, mode, set_ids };
            let index = self.begin(world, host, commit);
            self.note_frames(index, extents);
            if let Event::Mutation { requests, .. } = &mut self.history.entries[index].event {
                requests.push(id);
            }
            self.committed.insert((host, node.node), (at, at));
            self.end(world, index, Ok(Seen::Done));
            Some(index)
        } else {
            match decided_mutation(&step.change) {
                Some(asked) => self.assign(host, id, asked),
                None => {
                    self.beside.insert(id);
                    None
                }
            }
        };
        if let Some(entry) = entry {
            self.decided.insert(id, Decided { host, at, entry });
        }
    }

    /// A sync of a client that began then is over: all that it had decided is stable, or it is told that
    /// something is lost.
    pub fn synced(&mut self, session: SessionId, invoked: Mono, well: bool) {
        self.synced.push((session, invoked, well));
    }

    /// Puts what clients decided by themselves where it belongs in the order: at the time at which it was
    /// decided. Nobody else can have looked in between: if somebody did, the checker finds that. What was
    /// decided and never done is lost, as a client's unsynced changes may be when it dies or is cut off: it
    /// is as if it had never been told, and what the client itself saw of it does not count. Gives what may
    /// not have been lost.
    pub fn settle(&mut self, witness: &mut [WitnessEvent]) -> Vec<String> {
        let mut broken = self.check_stable_commits(witness);
        let mut undone = self.decided.clone();
        for event in &mut *witness {
            if let Some(decided) = undone.remove(&event.request) {
                event.at = event.at.min(decided.at);
            }
        }
        witness.sort_by_key(|event| event.at);
        let mut since: BTreeMap<SessionId, (HostId, Mono)> = BTreeMap::new();
        for (id, decided) in &undone {
            let later = |sync: &&(SessionId, Mono, bool)| sync.0 == id.session && sync.1 > decided.at;
            if self.synced.iter().find(later).is_some_and(|(.., well)| *well) {
                let entry = &self.history.entries[decided.entry];
                broken.push(format!(
                    "{id:?}, decided at {} us, was synced and is lost: {entry:?}",
                    decided.at.0 / 1000
                ));
            }
            let first = since.entry(id.session).or_insert((decided.host, decided.at));
            first.1 = first.1.min(decided.at);
            if let Event::Mutation { requests, outcome, .. } = &mut self.history.entries[decided.entry].event
            {
                requests.clear();
                *outcome = MutationOutcome::Unknown;
            }
            self.history.entries[decided.entry].returned = None;
        }
        // Until the end of the session: it goes on with what its servers say, but from when is not seen here.
        let ends: BTreeMap<HostId, Vec<Mono>> = self.deaths.clone();
        for (host, from) in since.into_values() {
            let until = ends.get(&host).and_then(|ends| ends.iter().find(|end| **end >= from).copied());
            let inside = |entry: &Entry| {
                let late = entry.returned.is_none_or(|returned| returned >= from);
                entry.client == client_id(host) && late && until.is_none_or(|until| entry.invoked <= until)
            };
            for entry in self.history.entries.iter_mut().filter(|entry| inside(entry)) {
                forget_answer(entry);
            }
        }
        broken
    }

    fn sent_commit(
        &mut self,
        world: &World,
        host: HostId,
        id: RequestId,
        commit: Mutation,
        extents: &[Extent],
    ) {
        let index = self.begin(world, host, commit);
        self.note_frames(index, extents);
        if let Event::Mutation { requests, .. } = &mut self.history.entries[index].event {
            requests.push(id);
        }
        self.under_way.remove(&index);
        self.commits.insert(id, index);
    }

    /// A client gets a reply.
    pub fn replied(&mut self, world: &mut World, session: SessionId, reply: &Reply) {
        let id = RequestId { session, sequence: reply.sequence };
        self.seal_replied(id, &reply.answer);
        let (Some(index), Answer::Done { epoch, result, .. }) =
            (self.commits.get(&id).copied(), &reply.answer)
        else {
            return;
        };
        // A refusal of an older epoch than the request was sent under is no answer, for the client neither.
        if result.is_err() && self.known.get(&id).is_some_and(|sent| epoch < sent) {
            return;
        }
        // Its chunk was closed: nothing was changed, and the client makes another commit of the same bytes.
        if matches!(result, Err(Code::NotFound)) {
            world.counts.add("commit refused, chunk closed");
            return;
        }
        // An old token or a changed map: the client asks again under the same number.
        if self.history.entries[index].returned.is_none() {
            let told = result.as_ref().map(|body| seen_of(body)).map_err(|code| *code);
            self.note_commit(world, index, &told);
            self.end(world, index, told);
        }
    }

    fn note_commit(&mut self, world: &World, index: usize, told: &Outcome<Seen>) {
        let entry = &self.history.entries[index];
        if let (Ok(_), Event::Mutation { mutation: Mutation::Commit { node, .. }, .. }) = (told, &entry.event)
        {
            let place = (HostId(entry.client.0 as u8), *node);
            self.committed.insert(place, (entry.invoked, world.true_mono()));
        }
    }

    /// When the last commit of a client to a file was sent, and when it was answered.
    pub fn last_commit(&self, host: HostId, node: NodeId) -> Option<(Mono, Mono)> {
        self.committed.get(&(host, node)).copied()
    }

    /// Whether somebody had a file open for writing, or cut it, at some time since.
    pub fn was_written_since(&self, node: NodeId, since: Mono) -> bool {
        let writes =
            |writer: &WriteOpen| writer.node == node && writer.until.is_none_or(|until| until >= since);
        let cuts = |entry: &Entry| {
            let late = entry.returned.is_none_or(|returned| returned >= since);
            late && matches!(&entry.event, Event::Mutation { mutation, .. } if cuts(mutation) == Some(node))
        };
        self.history.writers.iter().any(writes) || self.history.entries.iter().any(cuts)
    }
}

/// What an entry was told does not count.
fn forget_answer(entry: &mut Entry) {
    match &mut entry.event {
        // Numbers of entries are kept elsewhere: it stays, and says nothing.
        Event::Read { result, .. } => *result = Err(Code::Unreachable),
        Event::Mutation { outcome, .. } => {
            if let MutationOutcome::Told(_) = outcome {
                *outcome = MutationOutcome::Unknown;
                entry.returned = None;
            }
        }
    }
}

/// What a step changes, as the oracle knows it.
fn decided_mutation(change: &Change) -> Option<Mutation> {
    Some(match change.clone() {
        Change::Create { directory, who, name, new, .. } => {
            Mutation::Create { directory: directory.node, name, who, new }
        }
        Change::MakeDirectory { directory, who, name, mode, .. } => {
            Mutation::MakeDirectory { directory: directory.node, name, who, mode }
        }
        Change::Unlink { directory, who, name, .. } => {
            Mutation::Unlink { directory: directory.node, name, who }
        }
        Change::RemoveDirectory { directory, who, name, .. } => {
            Mutation::RemoveDirectory { directory: directory.node, name, who }
        }
        Change::Rename { source, source_name, target, target_name, who, mode, .. } => {
            Mutation::Rename { source: source.node, source_name, target: target.node, target_name, who, mode }
        }
        Change::SetAttributes { node, who, change } => {
            Mutation::SetAttributes { node: node.node, who, change, through_file: false }
        }
        Change::Commit { .. } | Change::Accessed { .. } | Change::Release { .. } => return None,
    })
}

/// A host's name in the history.
pub fn client_id(host: HostId) -> ClientId {
    ClientId(u32::from(host.0))
}

/// Codes that leave open whether a change was made.
fn is_unknown(code: Code) -> bool {
    matches!(code, Code::Unreachable | Code::SessionEnded | Code::Interrupted)
}

#[cfg(test)]
mod tests;
