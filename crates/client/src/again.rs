//! A session that the servers ended is followed by another one.
//!
//! The machine begins anew: all that was leased, lent, cached, locked or on its way belonged to the old
//! session and is gone, and the kernel forgets it too. Operations under way end with EIO. What stays are the
//! open files, by their handles: each is opened again, as whoever opened it, when it is next used; what
//! cannot be (it has no name any more, or may not be opened now) answers EIO. What was written or decided and
//! is not known to be stable is lost, and the next sync says so.

use crate::context::{Context, State};
use crate::event::{Command, Invalidation, Note};
use crate::operation::{Advice, Answer, OpenFile, Operation};
use crate::state::Phase;
use bearing_types::{Block, Code, Mono};

impl State {
    /// Whether the session is to be followed by another one.
    pub fn is_session_lost(&self) -> bool {
        self.session.phase() == Phase::Lost
    }

    /// What begins where this one ends.
    pub fn begin_anew(&mut self) -> State {
        self.io.note(Note::SessionLost);
        let tickets = std::mem::take(&mut self.running);
        self.io.out.extend(tickets.into_iter().map(|ticket| Command::Finish(ticket, Err(Code::Io))));
        self.forget_everything();
        let mut next = State::new(self.io.config.clone(), self.io.random.next());
        next.io.now = self.io.now;
        next.io.counters = self.io.counters;
        next.io.counters.sessions_lost += 1;
        next.session.follow(&self.session);
        next.recalls.follow(&mut self.recalls);
        next.delegations.follow(&self.delegations);
        let chunks = &self.chunks;
        self.files.forget_stable(|chunk| chunks.is_settled(chunk));
        next.files.follow(&mut self.files);
        next.io.out = std::mem::take(&mut self.io.out);
        next
    }

    /// The kernel forgets what it may have learnt under the session.
    fn forget_everything(&mut self) {
        let tablets: Vec<Block> = self.delegations.tablets().collect();
        for tablet in tablets {
            self.lose_tablet(tablet);
        }
        let mut kernel = Vec::new();
        // The kernel does not count the time for which a machine is suspended: what is over for us it may go
        // by yet.
        self.cache.recall_block(Block::RING, Mono::ZERO, &mut kernel);
        kernel.extend(self.files.in_use().map(|node| Invalidation::Node { node }));
        self.delegations.recall_names_in(Block::RING, Mono::ZERO, &mut kernel);
        self.invalidate(kernel);
    }
}

impl Context {
    /// Opens the files of an operation again that were open in an earlier session.
    pub(crate) async fn open_again(&self, operation: &Operation) -> Result<(), Code> {
        for file in files_of(operation) {
            let Some(left) = self.with(|state| state.files.left(file)) else { continue };
            let opened = self.open_file(left.node, &left.who, left.wish).await;
            let Ok(Answer::Opened(new, _)) = opened else { return Err(Code::Io) };
            if let Some(surplus) = self.with(|state| state.files.take_place(new, file)) {
                // Two operations opened it at the same time.
                let _ = self.close(surplus).await;
            }
        }
        Ok(())
    }
}

/// The files that an operation uses, but to close them.
fn files_of(operation: &Operation) -> Vec<OpenFile> {
    match operation {
        Operation::SetAttributes { file, .. } => file.iter().copied().collect(),
        Operation::Read { file, .. }
        | Operation::Write { file, .. }
        | Operation::MakeHole { file, .. }
        | Operation::Allocate { file, .. }
        | Operation::Seek { file, .. }
        | Operation::Flush { file }
        | Operation::Sync { file }
        | Operation::Advise(Advice::Read { file, .. } | Advice::Rank { file, .. }) => vec![*file],
        Operation::Copy { source, target, .. } => vec![*source, *target],
        Operation::Root
        | Operation::Lookup { .. }
        | Operation::Parent { .. }
        | Operation::Attributes { .. }
        | Operation::Create { .. }
        | Operation::MakeDirectory { .. }
        | Operation::Unlink { .. }
        | Operation::RemoveDirectory { .. }
        | Operation::Rename { .. }
        | Operation::Link { .. }
        | Operation::ReadLink { .. }
        | Operation::List { .. }
        | Operation::Open { .. }
        | Operation::Close { .. }
        | Operation::SyncAll
        | Operation::SyncNames
        | Operation::Statfs
        | Operation::Extents { .. }
        | Operation::Chunks { .. }
        | Operation::Advise(Advice::Traffic)
        | Operation::Xattr { .. }
        | Operation::Xattrs { .. }
        | Operation::SetXattr { .. }
        | Operation::Lock { .. }
        | Operation::Unlock { .. }
        | Operation::TestLock { .. }
        | Operation::SetQuota { .. }
        | Operation::Quota { .. }
        | Operation::Place { .. }
        | Operation::End => Vec::new(),
    }
}
