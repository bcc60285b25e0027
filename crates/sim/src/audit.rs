//! Before the work: the directories that clients work in. After it: everything is walked, read and compared.

use crate::clock::SECOND;
use crate::complaint::Promise;
use crate::post::TOO_LARGE;
use crate::sim::Sim;
use crate::worker::view_of;
use bearing_client::{Answer, Found, Listed, OpenFile, Operation, Ticket};
use bearing_proto::client::{Detail, Handle, NewNode};
use bearing_types::{Access, Amount, Code, Cookie, Credentials, FileType, Mode, Name, NodeId, SetIds};
use bearing_workload::{
    Check, Event, History, Law, Mutation, Observed, Record, Seen, View, WitnessEvent, compare_tree,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Files that clients append records to.
const LOGS: u32 = 2;
/// A quota by which all is counted and nothing is refused.
const WIDE: Amount = Amount { space: 1 << 40, entries: 1 << 30 };
/// How long one operation of the audit may take.
const OPERATION_MAX: u64 = 70 * SECOND;
/// So long after its end a session holds nothing anywhere.
const GIVEN_BACK_WITHIN: u64 = SECOND / 4;
/// What one entry adds to a directory's size.
const ENTRY_BYTES: u64 = 32;
/// How late counts of a directory may be.
const COUNTS_LATE: Duration = Duration::from_millis(1_000);

/// See the module.
pub struct Audit {
    root: Option<Found>,
    log: Option<Handle>,
}

impl Audit {
    /// Of a cluster.
    pub fn new() -> Audit {
        Audit { root: None, log: None }
    }

    fn ask(&self, sim: &mut Sim, operation: Operation) -> Result<Answer, Code> {
        let Sim { clients, world, recorder, .. } = sim;
        let ticket = clients[0].ask(world, recorder, operation);
        let end = sim.world.now().0 + OPERATION_MAX;
        let answer = std::cell::RefCell::new(None);
        sim.run_until(end, |sim| {
            while let Some((finished, result)) = sim.clients[0].take_finished() {
                if finished == ticket {
                    *answer.borrow_mut() = Some(result);
                }
            }
            answer.borrow().is_some()
        });
        answer.into_inner().unwrap_or(Err(Code::Unreachable))
    }

    /// Nothing is wrong any more: of a session that ends no server holds anything a moment later.
    fn end_a_session(&self, sim: &mut Sim) {
        let last = sim.clients.len() - 1;
        // One that was cut off from servers as it ended its session is not back yet, and they may not know of
        // the end.
        let end = sim.world.now().0 + OPERATION_MAX;
        sim.run_until(end, |sim| sim.clients[last].is_running());
        let session = sim.clients[last].session();
        if sim.metadata.iter().any(|host| host.holds_for(session)) {
            sim.world.counts.add("a session that something is held for ends in peace");
        }
        let Sim { clients, world, recorder, .. } = sim;
        clients[last].ask(world, recorder, Operation::End);
        // It begins another one then.
        let end = sim.world.now().0 + OPERATION_MAX;
        sim.run_until(end, |sim| sim.clients[last].session() != session);
        sim.run_for(GIVEN_BACK_WITHIN);
        let holding = sim.metadata.iter().filter(|host| host.holds_for(session)).count();
        if holding > 0 {
            let what = format!("{holding} servers hold something for {session}, which ended");
            sim.ledger.blame(&sim.world, Promise::Works, what);
        }
    }

    /// The root, once it was looked up.
    pub(crate) fn root_handle(&self) -> Option<Handle> {
        self.root.as_ref().map(|root| root.node)
    }

    /// How long something that the first client was asked for takes, in nanoseconds.
    pub(crate) fn time(&self, sim: &mut Sim, ticket: Ticket, begun: u64) -> u64 {
        self.time_all(sim, BTreeSet::from([ticket]), begun)
    }

    /// How long it takes until the first client has done all of this.
    pub(crate) fn time_all(&self, sim: &mut Sim, tickets: BTreeSet<Ticket>, begun: u64) -> u64 {
        let end = begun + OPERATION_MAX;
        let left = std::cell::RefCell::new(tickets);
        sim.run_until(end, |sim| {
            let mut left = left.borrow_mut();
            while let Some((finished, _)) = sim.clients[0].take_finished() {
                left.remove(&finished);
            }
            left.is_empty()
        });
        sim.world.now().0 - begun
    }

    pub(crate) fn must(&self, sim: &mut Sim, operation: Operation) -> Option<Answer> {
        let told = format!("{operation:?}");
        match self.ask(sim, operation) {
            Ok(answer) => Some(answer),
            Err(code) => {
                if sim.ledger.complaints.is_empty() {
                    sim.ledger.blame(
                        &sim.world,
                        Promise::Works,
                        format!("nothing is wrong any more, but {told} gives {code:?}"),
                    );
                }
                None
            }
        }
    }

    /// Makes the shared directory and each client's own, and lets the workers draw from them. `false`: the
    /// cluster does not work.
    pub fn prepare(&mut self, sim: &mut Sim) -> bool {
        let Some(Answer::Found(root)) = self.must(sim, Operation::Root) else { return false };
        self.root = Some(root);
        // All is counted: what is used has to come out right in the end. In half of these runs much is
        // refused.
        if sim.world.rng.chance(1, 3) {
            let rng = &mut sim.world.rng;
            let tight = Amount { space: rng.between(128, 1024) << 10, entries: rng.between(60, 300) };
            sim.recorder.tight_quota = rng.chance(1, 2).then_some(tight);
            if !self.set_quota(sim, sim.recorder.tight_quota.unwrap_or(WIDE)) {
                return false;
            }
            sim.world.counts.add("runs with a quota");
        }
        let Some(shared) = self.make(sim, root.node, "shared") else { return false };
        let mut logs = Vec::new();
        for log in 0..LOGS {
            let Some(log) = self.make_log(sim, root.node, &format!("log-{log}")) else { return false };
            logs.push(log);
            self.log = Some(log);
        }
        let mut own = Vec::new();
        for client in 0..sim.clients.len() {
            let Some(private) = self.make(sim, root.node, &format!("private-{client}")) else { return false };
            own.push(private);
        }
        for (number, client) in sim.clients.iter_mut().enumerate() {
            // A directory that all work in is delegated to nobody; with delegations every other client looks
            // in at its neighbour's instead.
            let neighbour = own[(number + 1) % own.len()];
            let common = if client.asks_for_delegations() && number % 2 == 1 { neighbour } else { shared };
            client.employ(own[number], common, logs.clone());
        }
        true
    }

    /// Makes one directory to work in. `None`: the cluster does not work.
    pub fn prepare_one(&mut self, sim: &mut Sim, name: &str) -> Option<Handle> {
        let Some(Answer::Found(root)) = self.must(sim, Operation::Root) else { return None };
        self.root = Some(root);
        self.make(sim, root.node, name)
    }

    fn make(&self, sim: &mut Sim, directory: Handle, name: &str) -> Option<Handle> {
        let name = Name::new(name.as_bytes()).expect("a plain name");
        let (who, mode) = (Credentials::ROOT, Mode::new(0o777));
        let mutation =
            Mutation::MakeDirectory { directory: directory.node, name: name.clone(), who: who.clone(), mode };
        let entry = sim.recorder.begin(&sim.world, sim.clients[0].host, mutation);
        let answer = self.must(sim, Operation::MakeDirectory { directory, name, who, mode })?;
        let Answer::Found(found) = answer else { return None };
        sim.recorder.end(&sim.world, entry, Ok(Seen::Node(view_of(&found))));
        Some(found.node)
    }

    /// A file that clients append records to.
    fn make_log(&self, sim: &mut Sim, directory: Handle, name: &str) -> Option<Handle> {
        let (name, who) = (Name::new(name.as_bytes()).expect("a plain name"), Credentials::ROOT);
        let new =
            NewNode { file_type: FileType::Regular, mode: Mode::new(0o666), device: 0, target: Vec::new() };
        let mutation = Mutation::Create {
            directory: directory.node,
            name: name.clone(),
            who: who.clone(),
            new: new.clone(),
        };
        let entry = sim.recorder.begin(&sim.world, sim.clients[0].host, mutation);
        let answer = self.must(sim, Operation::Create { directory, name, who, new, open: false })?;
        let Answer::Found(found) = answer else { return None };
        sim.recorder.end(&sim.world, entry, Ok(Seen::Node(view_of(&found))));
        Some(found.node)
    }

    /// When all faults are over, there is room again and everything can be written.
    fn append_again(&self, sim: &mut Sim) {
        let Some(log) = self.log else { return };
        // Its last session may just be over.
        let end = sim.world.now().0 + OPERATION_MAX;
        sim.run_until(end, |sim| sim.world.is_up(sim.clients[0].host));
        let record = Record { number: u64::MAX, bytes: 1000 };
        let open = Operation::Open {
            node: log,
            who: Credentials::ROOT,
            read: true,
            write: true,
            truncate: false,
            execute: false,
        };
        let Some(Answer::Opened(file, _)) = self.must(sim, open) else { return };
        // That earlier bytes of this client are lost, which nobody had synced, is told once.
        let _told = self.ask(sim, Operation::Sync { file });
        let number = sim.recorder.append_begun(&sim.world, sim.clients[0].host, log.node, record.number);
        let written = self.must(
            sim,
            Operation::Write { file, offset: None, bytes: record.encode(), set_ids: SetIds::Keep },
        );
        if written.and_then(|_| self.must(sim, Operation::Sync { file })).is_some() {
            sim.recorder.appended(&sim.world, number);
        }
        self.must(sim, Operation::Close { file });
    }

    fn set_quota(&self, sim: &mut Sim, limit: Amount) -> bool {
        let Some(root) = &self.root else { return false };
        let (directory, who) = (root.node, Credentials::ROOT);
        self.must(sim, Operation::SetQuota { directory, who, limit }).is_some()
    }

    /// No more is used than a quota allows, but a share for each tablet. From now on nothing is refused.
    fn lift_quota(&self, sim: &mut Sim) {
        let Some(limit) = sim.recorder.tight_quota else { return };
        let used = sim.ledger.model.used_of_quotas();
        let shares = sim.ledger.model.tablets();
        let most = Amount {
            space: limit.space + shares * (limit.space / 64).max(256 << 10),
            entries: limit.entries + shares * (limit.entries / 64).max(1),
        };
        if used.space > most.space || used.entries > most.entries {
            let what = format!("{used:?} is used of a quota of {limit:?}");
            sim.ledger.blame(&sim.world, Promise::Bounded, what);
        }
        self.set_quota(sim, WIDE);
    }

    /// Compares everything.
    pub fn finish(&self, sim: &mut Sim) {
        if !sim.ledger.complaints.is_empty() {
            return;
        }
        self.lift_quota(sim);
        self.append_again(sim);
        self.end_a_session(sim);
        sim.settle();
        let too_large = sim.world.counts.of(TOO_LARGE);
        if too_large > 0 {
            let what = format!("{too_large} messages to clients fit no datagram, so that they never arrive");
            sim.ledger.blame(&sim.world, Promise::Works, what);
        }
        for (promise, what) in sim.ledger.model.check_quiet() {
            sim.ledger.blame(&sim.world, promise, format!("when nothing happens any more: {what}"));
        }
        sim.compare_stores();
        sim.restart_client(0);
        let observed = self.walk(sim);
        let Some(root) = self.root else { return };
        let View { mode, uid, gid, .. } = view_of(&root);
        let check = Check {
            root: NodeId::ROOT,
            root_access: Access { mode, uid, gid },
            counts_late: COUNTS_LATE,
            entry_bytes: Some(ENTRY_BYTES),
            law: Law::Posix,
        };
        let mut witness: Vec<_> = sim
            .ledger
            .witness
            .iter()
            .filter(|event| !sim.recorder.is_beside(event.request))
            .cloned()
            .collect();
        for what in sim.recorder.settle(&mut witness) {
            sim.ledger.blame(&sim.world, Promise::SyncedIsKept, what);
        }
        if let Some(node) = sim.about {
            tell_about(&sim.recorder.history, &witness, node);
        }
        sim.recorder.sessions_ended(&sim.ledger.ended);
        let checked = check.run(&sim.recorder.history, &witness);
        sim.world.counts.add_many("answers checked", checked.answers);
        sim.world.counts.add_many("changes in the witness", witness.len() as u64);
        let trees = observed.map(|observed| compare_tree(&checked.oracle, NodeId::ROOT, &observed));
        for violation in checked.violations.into_iter().chain(trees.into_iter().flatten()) {
            sim.ledger.blame(&sim.world, Promise::History(violation.rule), violation.message);
        }
    }

    // --- the walk ---

    fn walk(&self, sim: &mut Sim) -> Option<Vec<Observed>> {
        let Some(Answer::Found(root)) = self.must(sim, Operation::Root) else { return None };
        let mut observed = vec![Observed { path: Vec::new(), view: view_of(&root), content: None }];
        let mut left = vec![(Vec::new(), root.node)];
        while let Some((path, directory)) = left.pop() {
            for entry in self.list(sim, directory)? {
                let mut path: Vec<Name> = path.clone();
                path.push(entry.name.clone());
                observed.push(self.observe(sim, path.clone(), &entry)?);
                if entry.file_type == FileType::Directory {
                    left.push((path, entry.node));
                }
            }
        }
        Some(observed)
    }

    fn list(&self, sim: &mut Sim, directory: Handle) -> Option<Vec<Listed>> {
        let (mut all, mut after) = (Vec::new(), Cookie::START);
        loop {
            let operation = Operation::List {
                directory,
                who: Credentials::ROOT,
                after,
                count_max: 64,
                detail: Detail::Attributes,
            };
            let Some(Answer::Listed(entries)) = self.must(sim, operation) else { return None };
            let Some(last) = entries.last() else { return Some(all) };
            after = last.cookie;
            all.extend(entries);
        }
    }

    fn observe(&self, sim: &mut Sim, path: Vec<Name>, entry: &Listed) -> Option<Observed> {
        let attributes = Operation::Attributes { node: entry.node, file_type: entry.file_type };
        let Some(Answer::Found(found)) = self.must(sim, attributes) else { return None };
        let content = match entry.file_type {
            FileType::Regular => self.read(sim, entry.node, found.attributes.size)?,
            FileType::Symlink => match self.must(sim, Operation::ReadLink { node: entry.node })? {
                Answer::Target(target) => Some(target),
                _ => None,
            },
            _ => None,
        };
        Some(Observed { path, view: view_of(&found), content })
    }

    /// A file's bytes; the inner `None` when bytes that were never synced are lost.
    fn read(&self, sim: &mut Sim, node: Handle, size: u64) -> Option<Option<Vec<u8>>> {
        let open = Operation::Open {
            node,
            who: Credentials::ROOT,
            read: true,
            write: false,
            truncate: false,
            execute: false,
        };
        let Some(Answer::Opened(file, _)) = self.must(sim, open) else { return None };
        let bytes = self.read_open(sim, node, file, size);
        self.must(sim, Operation::Close { file })?;
        bytes
    }

    fn read_open(&self, sim: &mut Sim, node: Handle, file: OpenFile, size: u64) -> Option<Option<Vec<u8>>> {
        match self.ask(sim, Operation::Read { file, offset: 0, length: size as u32 + 100 }) {
            Ok(Answer::Bytes(bytes)) => Some(Some(bytes)),
            Err(Code::Io | Code::Unreachable) => {
                let frames = sim.ledger.model.frames_of(node.node);
                if sim.recorder.are_safe(&frames) {
                    let gone = sim.gone_chunks(&frames);
                    let what =
                        format!("{} cannot be read, but all of it was synced; gone: {gone:?}", node.node);
                    sim.ledger.blame(&sim.world, Promise::SyncedIsKept, what);
                }
                sim.world.counts.add("audit: files with lost bytes");
                Some(None)
            }
            other => {
                let what = format!("{} cannot be read at the end: {other:?}", node.node);
                sim.ledger.blame(&sim.world, Promise::Works, what);
                None
            }
        }
    }
}

/// All that the history says of a node, with the times of the commits.
fn tell_about(history: &History, witness: &[WitnessEvent], node: u64) {
    let (alone, name) = (format!("n{node},"), format!("n{node} "));
    for (index, entry) in history.entries.iter().enumerate() {
        let mut told = format!("{:?}", entry.event);
        if !told.contains(&alone) && !told.contains(&name) {
            continue;
        }
        if let Event::Mutation { requests, .. } = &entry.event {
            let mine = witness.iter().enumerate().filter(|(_, event)| requests.contains(&event.request));
            let places: Vec<_> = mine.map(|(place, event)| (place, event.at.0 / 1000, event.kind)).collect();
            told = format!("{places:?} {told}");
        }
        told.truncate(told.char_indices().nth(700).map_or(told.len(), |(at, _)| at));
        let returned = entry.returned.map(|returned| returned.0 / 1000);
        eprintln!("[{index}] {} to {returned:?} client {}: {told}", entry.invoked.0 / 1000, entry.client.0);
    }
}
