//! The machine: events in, commands out.

use crate::config::ClientConfig;
use crate::context::{Context, State};
use crate::counters::Counters;
use crate::event::{Command, Event, Target};
use crate::namespace::rename::Place;
use crate::operation::{Answer, ListPart, OpenFile, Operation, Ticket};
use crate::run::{Tasks, Timer};
use crate::state::files::Stability;
use bearing_proto::Message;
use bearing_proto::client::Reply;
use bearing_proto::rules::OpenWish;
use bearing_types::{Code, Mono, Now};

/// A client: one session with a cluster.
pub struct Client {
    context: Context,
    tasks: Tasks,
    begun: bool,
}

impl Client {
    /// A client that has not begun yet: its first step asks for a session. `seed` gives the jitter of its
    /// pauses.
    pub fn new(config: ClientConfig, seed: u64) -> Client {
        Client { context: Context::new(State::new(config, seed)), tasks: Tasks::default(), begun: false }
    }

    /// Takes one event and appends commands to `out`, to be carried out in their order.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        self.context.with(|state| {
            state.io.now = now;
            std::mem::swap(&mut state.io.out, out);
        });
        if !self.begun {
            self.begun = true;
            self.tasks.add(Box::pin(self.context.clone().live()));
        }
        self.context.with(State::on_timers);
        self.on_event(event);
        self.settle();
        self.context.with(|state| std::mem::swap(&mut state.io.out, out));
    }

    /// When to step with [`Event::Tick`] if nothing else happens before. Before the first step: at once.
    pub fn next_wake(&self) -> Option<Mono> {
        if self.begun { self.context.with(|state| state.io.timers.next_due()) } else { Some(Mono::ZERO) }
    }

    /// Sums since the start.
    pub fn counters(&self) -> Counters {
        self.context.with(|state| state.io.counters)
    }

    #[cfg(test)]
    pub(crate) fn chunks_remembered(&self) -> usize {
        self.context.with(|state| state.chunks.count())
    }

    /// Goes on with another session. All that was under way is dropped with its tasks.
    fn begin_anew(&mut self) {
        self.tasks = Tasks::default();
        self.context = Context::new(self.context.with(State::begin_anew));
        self.tasks.add(Box::pin(self.context.clone().live()));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Start(ticket, mut operation) => {
                operation.squash(self.context.with(|state| state.io.config.squash));
                self.tasks.add(Box::pin(self.context.clone().run(ticket, operation)));
            }
            Event::Message { from, message, attachment } => {
                self.context.with(|state| state.on_message(from, message, attachment));
            }
            Event::Enrolled(session) => self.context.with(|state| state.on_enrolled(session)),
            Event::Refused(refusal) => self.context.with(|state| state.on_refusal(refusal)),
            Event::Unreachable(server) => self.context.with(|state| {
                state.requests.hurry(server, &mut state.io, &mut state.routes);
                state.greet_again(server);
                state.data.on_unreachable(server, &mut state.io, &mut state.routes);
                state.flow.on_unreachable(server, &mut state.io);
            }),
            Event::GiveUp(ticket) => self.context.with(|state| state.locks.give_up(ticket, &mut state.io)),
            Event::Invalidated(number) => {
                self.context.with(|state| state.recalls.on_invalidated(number, &mut state.io))
            }
            Event::Tick => {}
        }
    }

    /// Runs tasks until all of them wait, then sends their requests.
    fn settle(&mut self) {
        loop {
            if self.context.with(|state| state.is_session_lost()) {
                self.begin_anew();
            }
            for task in self.context.with(|state| std::mem::take(&mut state.new_tasks)) {
                self.tasks.add(task);
            }
            while let Some(renew) = self.context.with(State::begin_renewal) {
                self.tasks.add(Box::pin(self.context.clone().renew_lease(renew)));
            }
            while let Some(hold) = self.context.with(|state| state.recalls.begin_hold()) {
                self.tasks.add(Box::pin(self.context.clone().hold_recalled(hold)));
            }
            while let Some((from, answer, directory)) =
                self.context.with(|state| state.recalls.begin_call_back())
            {
                self.tasks.add(Box::pin(self.context.clone().called_back(from, answer, directory)));
            }
            for (tablet, position, incarnation) in self.context.with(|state| state.delegations.take_fences())
            {
                self.tasks.add(Box::pin(self.context.clone().fence(tablet, position, incarnation)));
            }
            for (tablet, incarnation) in self.context.with(|state| state.delegations.take_senders()) {
                self.tasks.add(Box::pin(self.context.clone().send_steps(tablet, incarnation)));
            }
            if self.tasks.poll_one() || self.context.with(|state| state.has_new_tasks()) {
                continue;
            }
            self.context.with(|state| {
                let mark = state.leases.mark();
                state.requests.send(&mut state.io, &mut state.routes, mark);
            });
            // A request whose position nobody knows has just asked for a map.
            if !self.context.with(State::begin_fetching_map) {
                return;
            }
            self.tasks.add(Box::pin(self.context.clone().fetch_maps()));
        }
    }
}

impl State {
    fn on_timers(&mut self) {
        while let Some(timer) = self.io.timers.take_due(self.io.now.mono) {
            match timer {
                Timer::Request(sequence) => self.requests.on_due(sequence, &mut self.io, &mut self.routes),
                Timer::Data(id) => self.data.on_due(id, &mut self.io, &mut self.routes),
                Timer::Sleeper(sleeper) => self.io.timers.wake(sleeper),
                Timer::Enrol => self.session.ask_to_enrol(&mut self.io),
                Timer::Session(number) => self.session.on_wait_due(number, &mut self.io),
                Timer::Renewal(node) => self.on_renewal_due(node),
                Timer::Lock(wait) => self.locks.ask_again(wait, &mut self.io),
            }
        }
    }

    fn on_message(&mut self, from: Target, message: Message, attachment: Vec<u8>) {
        match message {
            Message::Reply(reply) => self.on_reply(from, reply),
            Message::Recall(recall) => self.on_recall(from, recall),
            Message::OpenStateQuery(open_state_query) => self.on_open_query(from, open_state_query),
            Message::LockFree(free) => self.locks.ask_again(free.wait, &mut self.io),
            Message::DataReply(reply) => self.data.on_reply(reply, attachment, &mut self.io),
            Message::FlowReply(reply) => self.flow.on_reply(reply, &mut self.io),
            Message::Refused(refusal) => self.on_refusal(refusal),
            Message::Request(_)
            | Message::Recalled(_)
            | Message::OpenState(_)
            | Message::Peer(_)
            | Message::Replication(_)
            | Message::Ring(_)
            | Message::Relay(_)
            | Message::Filters(_)
            | Message::Flow(_)
            | Message::Join(_)
            | Message::Joined(_)
            | Message::Data(_)
            | Message::Ask(_)
            | Message::Told(_)
            | Message::Clock(_)
            | Message::Welcome { .. }
            | Message::Ticket(_) => drop(self.io.unexpected()),
        }
    }
}

impl State {
    fn on_reply(&mut self, from: Target, reply: Reply) {
        let mark = self.leases.mark();
        if self.requests.on_reply(from, reply, mark, &mut self.io, &mut self.routes) {
            self.on_session_ended();
        }
    }
}

impl Context {
    async fn run(self, ticket: Ticket, operation: Operation) {
        self.with(|state| {
            state.io.counters.operations += 1;
            state.running.insert(ticket);
        });
        let mut result = self.with(|state| state.session.wait(&mut state.io)).await;
        if result.is_ok() {
            result = self.open_again(&operation).await;
        }
        let result = match result {
            Ok(()) => self.carry_out(ticket, operation).await,
            Err(code) => Err(code),
        };
        self.with(|state| {
            state.running.remove(&ticket);
            state.io.out.push(Command::Finish(ticket, result));
        });
    }

    async fn carry_out(&self, ticket: Ticket, operation: Operation) -> Result<Answer, Code> {
        self.past_lapse_of(&operation).await;
        match operation {
            Operation::Root => self.root().await,
            Operation::Lookup { directory, name, who } => self.lookup(directory, &name, &who).await,
            Operation::Parent { directory } => self.parent(directory).await,
            Operation::Attributes { node, file_type } => self.attributes(node, file_type).await,
            Operation::SetAttributes { node, file_type, who, change, file } => {
                self.set_attributes(node, file_type, &who, change, file).await
            }
            Operation::Create { directory, name, who, new, open } => {
                self.create(directory, &name, &who, new, open).await
            }
            Operation::MakeDirectory { directory, name, who, mode } => {
                self.make_directory(directory, &name, &who, mode).await
            }
            Operation::Unlink { directory, name, who } => self.unlink(directory, &name, &who).await,
            Operation::RemoveDirectory { directory, name, who } => {
                self.remove_directory(directory, &name, &who).await
            }
            Operation::Rename { source, source_name, target, target_name, who, mode } => {
                let source = Place { directory: source, name: &source_name };
                let target = Place { directory: target, name: &target_name };
                self.rename(source, target, &who, mode).await
            }
            Operation::Link { node, directory, name, who } => self.link(node, directory, &name, &who).await,
            Operation::ReadLink { node } => self.read_link(node).await,
            Operation::List { directory, who, after, count_max, detail } => {
                let part = ListPart { after, count_max, detail };
                self.list(directory, &who, part).await
            }
            Operation::Xattr { node, file_type, who, name } => self.xattr(node, file_type, &who, name).await,
            Operation::Xattrs { node, file_type, who } => self.xattrs(node, file_type, &who).await,
            Operation::SetXattr { node, file_type, who, name, change } => {
                self.set_xattr(node, file_type, &who, name, change).await
            }
            Operation::Lock { node, lock, waits } => self.lock(ticket, node, lock, waits).await,
            Operation::Unlock { node, owner, space, range } => self.unlock(node, owner, space, range).await,
            Operation::TestLock { node, lock } => self.test_lock(node, lock).await,
            Operation::SetQuota { directory, who, limit } => self.set_quota(directory, &who, limit).await,
            Operation::Quota { node } => self.quota(node).await,
            Operation::Place { directory } => self.place_of(directory).await,
            Operation::Statfs => self.statfs().await,
            Operation::Extents { node, offset } => self.extents_of(node, offset).await,
            Operation::Chunks { position, who, from, depth } => {
                self.chunks(position, &who, from, depth).await
            }
            Operation::Advise(advice) => self.advise(advice).await,
            Operation::Open { node, who, read, write, truncate, execute } => {
                self.open_file(node, &who, OpenWish { read, write, truncate, execute }).await
            }
            Operation::Close { file } => self.close(file).await,
            Operation::Read { file, offset, length } => self.read(file, offset, length).await,
            Operation::Write { file, offset, bytes, set_ids } => {
                self.write(file, offset, bytes, set_ids).await
            }
            Operation::MakeHole { file, start, end, size_min, set_ids } => {
                self.make_hole(file, start..end, size_min, set_ids).await
            }
            Operation::Allocate { file, start, end, grows, set_ids } => {
                self.allocate(file, start..end, grows, set_ids).await
            }
            Operation::Copy { source, source_offset, target, target_offset, length, set_ids } => {
                let (source, target) = ((source, source_offset), (target, target_offset));
                self.copy(source, target, length, set_ids).await
            }
            Operation::Seek { file, offset, target } => self.seek(file, offset, target).await,
            Operation::Flush { file } => self.flush_open(file, Stability::Visible).await,
            Operation::Sync { file } => self.flush_open(file, Stability::Stable).await,
            Operation::SyncAll => self.sync_all().await.map(|()| Answer::Done),
            Operation::SyncNames => {
                let sync = self.sync_begins();
                self.flush_all_steps().await.and(self.sync_ends(sync)).map(|()| Answer::Done)
            }
            Operation::End => self.end().await,
        }
    }

    async fn flush_open(&self, file: OpenFile, stability: Stability) -> Result<Answer, Code> {
        if stability == Stability::Visible {
            return self.flush(file, stability).await.map(|()| Answer::Done);
        }
        let sync = self.sync_begins();
        let flushed = self.flush(file, stability).await;
        // The names that lead to it too, and what was decided before.
        let done = self.flush_all_steps().await;
        flushed.and(done).and(self.sync_ends(sync)).map(|()| Answer::Done)
    }

    async fn end(&self) -> Result<Answer, Code> {
        let told = self.losses_told();
        self.tell_accesses_unheard();
        self.with(State::begin_end);
        let synced = self.sync_all().await;
        // Whoever asks while the session is being closed has not been told by an answer that is yet to come.
        self.with(|state| {
            state.delegations.set_losses_told(told);
            if synced.is_err() {
                state.files.tell_lost_again();
            }
        });
        if synced.is_ok() {
            self.finish_all_chunks().await;
        }
        self.give_all_back().await;
        let closed = self.close_session().await;
        synced.and(closed).map(|()| Answer::Done)
    }
}
