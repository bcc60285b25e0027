//! The machine: events in, commands out.

use crate::again::opener_of;
use crate::config::ClientConfig;
use crate::counters::Counters;
use crate::event::{Command, Event, Target};
use crate::file::Stability;
use crate::file::open::Wish;
use crate::hub::{Hub, State};
use crate::namespace::list::Part;
use crate::namespace::rename::Place;
use crate::operation::{Answer, Operation, Ticket};
use crate::task::Tasks;
use crate::timer::Timer;
use bearing_proto::Message;
use bearing_types::{Code, Mono, Now};

/// A client: one session with a cluster.
pub struct Client {
    hub: Hub,
    tasks: Tasks,
    begun: bool,
}

impl Client {
    /// A client that has not begun yet: its first step asks for a session. `seed` gives the jitter of its pauses.
    pub fn new(config: ClientConfig, seed: u64) -> Client {
        Client { hub: Hub::new(State::new(config, seed)), tasks: Tasks::default(), begun: false }
    }

    /// Takes one event and appends commands to `out`, to be carried out in their order.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        self.hub.with(|state| {
            state.now = now;
            std::mem::swap(&mut state.out, out);
        });
        if !self.begun {
            self.begun = true;
            self.tasks.add(Box::pin(self.hub.clone().live()));
        }
        self.hub.with(State::take_due_timers);
        self.take(event);
        self.settle();
        self.hub.with(|state| std::mem::swap(&mut state.out, out));
    }

    /// When to step with [`Event::Tick`] if nothing else happens before. Before the first step: at once.
    pub fn next_wake(&self) -> Option<Mono> {
        if self.begun { self.hub.with(|state| state.timers.next_due()) } else { Some(Mono::ZERO) }
    }

    /// Sums since the start.
    pub fn counters(&self) -> Counters {
        self.hub.with(|state| state.counters)
    }

    #[cfg(test)]
    pub(crate) fn chunks_remembered(&self) -> usize {
        self.hub.with(|state| state.chunks.count())
    }

    /// Goes on with another session. All that was under way is dropped with its tasks.
    fn begin_anew(&mut self) {
        self.tasks = Tasks::default();
        self.hub = Hub::new(self.hub.with(State::begin_anew));
        self.tasks.add(Box::pin(self.hub.clone().live()));
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Start(ticket, mut operation) => {
                operation.squash(self.hub.with(|state| state.config.squash));
                self.tasks.add(Box::pin(self.hub.clone().run(ticket, operation)));
            }
            Event::Message { from, message, attachment } => {
                self.hub.with(|state| state.take_message(from, message, attachment));
            }
            Event::Enrolled(session) => self.hub.with(|state| state.enrolled(session)),
            Event::Refused(refusal) => self.hub.with(|state| state.take_refusal(refusal)),
            Event::Unreachable(server) => self.hub.with(|state| {
                state.hurry_requests(server);
                state.data_disconnected(server);
            }),
            Event::GiveUp(ticket) => self.hub.with(|state| state.give_up(ticket)),
            Event::Invalidated(number) => self.hub.with(|state| state.invalidated(number)),
            Event::Tick => {}
        }
    }

    /// Runs tasks until all of them wait, then sends their requests.
    fn settle(&mut self) {
        loop {
            if self.hub.with(|state| state.is_session_lost()) {
                self.begin_anew();
            }
            for task in self.hub.with(|state| std::mem::take(&mut state.new_tasks)) {
                self.tasks.add(task);
            }
            while let Some(renew) = self.hub.with(State::begin_renewal) {
                self.tasks.add(Box::pin(self.hub.clone().renew_lease(renew)));
            }
            while let Some(hold) = self.hub.with(State::begin_hold) {
                self.tasks.add(Box::pin(self.hub.clone().hold_recalled(hold)));
            }
            while let Some((from, answer, directory)) = self.hub.with(State::begin_call_back) {
                self.tasks.add(Box::pin(self.hub.clone().called_back(from, answer, directory)));
            }
            for (tablet, position, incarnation) in
                self.hub.with(|state| std::mem::take(&mut state.new_fences))
            {
                self.tasks.add(Box::pin(self.hub.clone().fence(tablet, position, incarnation)));
            }
            for (tablet, incarnation) in self.hub.with(|state| std::mem::take(&mut state.new_senders)) {
                self.tasks.add(Box::pin(self.hub.clone().send_steps(tablet, incarnation)));
            }
            if self.tasks.poll_one() || self.hub.with(|state| state.has_new_tasks()) {
                continue;
            }
            self.hub.with(State::send_requests);
            // A request whose position nobody knows has just asked for a map.
            if !self.hub.with(State::begin_fetching_map) {
                return;
            }
            self.tasks.add(Box::pin(self.hub.clone().fetch_maps()));
        }
    }
}

impl State {
    fn take_due_timers(&mut self) {
        while let Some(timer) = self.timers.take_due(self.now.mono) {
            match timer {
                Timer::Request(sequence) => self.request_due(sequence),
                Timer::Data(id) => self.data_request_due(id),
                Timer::Sleeper(sleeper) => self.timers.wake(sleeper),
                Timer::Enrol => self.ask_to_enrol(),
                Timer::Session(number) => self.session_wait_due(number),
                Timer::Renewal(node) => self.renewal_due(node),
                Timer::Lock(wait) => self.lock_due(wait),
            }
        }
    }

    fn take_message(&mut self, from: Target, message: Message, attachment: Vec<u8>) {
        match message {
            Message::Reply(reply) => self.take_reply(from, reply),
            Message::Recall(recall) => self.take_recall(from, recall),
            Message::Survey(survey) => self.take_survey(from, survey),
            Message::LockFree(free) => self.take_lock_free(free),
            Message::DataReply(reply) => self.take_data_reply(reply, attachment),
            Message::Refused(refusal) => self.take_refusal(refusal),
            Message::Request(_)
            | Message::Recalled(_)
            | Message::Surveyed(_)
            | Message::Peer(_)
            | Message::Data(_)
            | Message::Ask(_)
            | Message::Told(_)
            | Message::Clock(_)
            | Message::Welcome { .. }
            | Message::Ticket(_) => self.counters.unexpected += 1,
        }
    }
}

impl Hub {
    async fn run(self, ticket: Ticket, operation: Operation) {
        self.with(|state| {
            state.counters.operations += 1;
            state.running.insert(ticket);
        });
        let opener = opener_of(&operation);
        let mut result = self.session_open().await;
        if result.is_ok() {
            result = self.open_again(&operation).await;
        }
        let result = match result {
            Ok(()) => self.carry_out(ticket, operation).await,
            Err(code) => Err(code),
        };
        self.note_opener(opener, &result);
        self.with(|state| {
            state.running.remove(&ticket);
            state.out.push(Command::Finish(ticket, result));
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
            Operation::List { directory, who, after, count_max, with_attributes } => {
                let part = Part { after, count_max, with_attributes };
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
            Operation::Open { node, who, read, write, truncate, execute } => {
                self.open_file(node, &who, Wish { read, write, truncate, execute }).await
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

    async fn flush_open(
        &self,
        file: crate::operation::OpenFile,
        stability: Stability,
    ) -> Result<Answer, Code> {
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
            state.tell_losses_again(told);
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
