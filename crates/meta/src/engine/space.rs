//! How much space the disk of log and store has left, and what may still be decided with it.
//!
//! Invariants: a change that is refused for space leaves nothing behind and is refused whenever it comes
//! again; what was decided is never given up for want of space, it waits; reading never needs space, but for
//! the first lease or open file of a session in a tablet, which has to be logged.

use crate::decide::JobWork;
use crate::disk_space::{DiskSpace, Headroom};
use crate::engine::job::Job;
use crate::engine::machine::MetaServer;
use crate::engine::run::Effects;
use crate::event::{Command, Note};
use crate::tablet::Tablet;
use bearing_proto::client::{Call, XattrChange};
use bearing_proto::peer::Deferred;
use bearing_types::{Code, NodeId, Now, Position};
use std::time::Duration;

/// Who has delegated directories is asked for them so often while there is little space.
const ASK_BACK_EVERY: Duration = Duration::from_secs(1);

/// What an operation does to the space that a server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appetite {
    /// There is more to keep afterwards.
    Grows,
    /// There is as much or less afterwards, and a little more until then.
    Keeps,
    /// Clients could not go on as they are without it.
    Serves,
}

/// Why a decision must not be taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// There is no space for it.
    Refused(Code),
    /// It has to be done, when there is space.
    Later,
}

impl MetaServer {
    /// How much room there is for changes.
    pub fn headroom(&self) -> Headroom {
        self.space.headroom
    }

    /// What its disk has, as it was told last.
    pub fn disk_space(&self) -> DiskSpace {
        self.space.disk
    }

    /// The shell looked at the disk.
    pub(crate) fn on_space(&mut self, disk: DiskSpace, out: &mut Vec<Command>) {
        self.space.disk = disk;
        self.judge_space(out);
    }

    /// The log found no space for what was to be appended, or took it all.
    pub(crate) fn on_stuck(&mut self, stuck: bool, out: &mut Vec<Command>) {
        self.space.stuck = stuck;
        self.judge_space(out);
    }

    fn judge_space(&mut self, out: &mut Vec<Command>) {
        let before = self.space.headroom;
        self.space.judge(self.config.reserve_bytes);
        if self.space.headroom != before {
            self.space.ask_back = None;
            out.push(Command::Note(Note::Headroom(self.space.headroom)));
        }
    }

    /// Whoever decides by itself in a directory would go on to: it is asked for what it holds, and meets the
    /// refusals itself from then on.
    pub(crate) fn ask_back_delegations(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let held: Vec<NodeId> = tablet.delegations.iter().collect();
        for directory in held {
            self.call_back(now, start, directory, out);
        }
    }

    /// Whether it is time for that, in all tablets.
    pub(crate) fn delegations_are_asked_back(&mut self, now: Now) -> bool {
        let due =
            self.space.headroom != Headroom::Enough && self.space.ask_back.is_none_or(|due| now.mono >= due);
        if due {
            self.space.ask_back = Some(now.mono.after(ASK_BACK_EVERY));
        }
        due
    }

    /// Whether a decision would be logged for which there is no space, or members are lacking.
    pub(crate) fn lacks_headroom(&self, job: &Job, effects: &Effects) -> Option<Lack> {
        let headroom = self.space.headroom;
        let lacks_members = |tablet: &Tablet| tablet.log.members.lack_some();
        if self.tablets.get(&job.tablet).is_some_and(lacks_members) && self.would_log(job, effects) {
            return Some(Lack::Later);
        }
        if headroom == Headroom::Enough || !self.would_log(job, effects) {
            return None;
        }
        match &job.work {
            JobWork::Request(_, request) => lack_for_call(headroom, &request.call),
            JobWork::Prepare { .. } => match headroom {
                Headroom::Enough | Headroom::Low => None,
                Headroom::Short => Some(Lack::Refused(Code::NoSpace)),
                Headroom::None => Some(Lack::Later),
            },
            // What another tablet has queued cannot be refused.
            JobWork::Deliver { work: Deferred::MakeDirectory { .. }, .. } if headroom == Headroom::Short => {
                Some(Lack::Later)
            }
            JobWork::Deliver { .. }
            | JobWork::Ask { .. }
            | JobWork::Reap(_)
            | JobWork::ForgetHolder(..)
            | JobWork::EndSession(_)
            | JobWork::SweepSession(_)
            | JobWork::EndDelegation(..)
            | JobWork::Maintain(_)
            | JobWork::SweepChunks(..)
            | JobWork::ReportUsage(_)
            | JobWork::Collect { .. }
            | JobWork::Checkpoint(_) => (headroom == Headroom::None).then_some(Lack::Later),
        }
    }

    fn would_log(&self, job: &Job, effects: &Effects) -> bool {
        let mutation = job.work.surely_logs() && !effects.nothing;
        let holder = !effects.given.is_empty() || !effects.handed.is_empty();
        let grows = || {
            let tablet = self.tablets.get(&job.tablet);
            let lacks = |tablet: &crate::tablet::Tablet, session| {
                tablet.horizon.lacks(session, &effects.given, &self.config)
            };
            job.session().zip(tablet).is_some_and(|(session, tablet)| lacks(tablet, session))
        };
        mutation || !effects.batch.is_empty() || effects.queues() || (holder && grows())
    }
}

fn lack_for_call(headroom: Headroom, call: &Call) -> Option<Lack> {
    let refused = match (headroom, appetite(call)) {
        (Headroom::Enough, _)
        | (Headroom::Low, Appetite::Keeps)
        | (Headroom::Low | Headroom::Short, Appetite::Serves) => {
            return None;
        }
        (Headroom::None, Appetite::Serves) => false,
        (Headroom::Low | Headroom::Short | Headroom::None, Appetite::Grows) => true,
        (Headroom::Short | Headroom::None, Appetite::Keeps) => true,
    };
    match call {
        // Whoever asks can do without.
        Call::Delegate { .. } if refused => Some(Lack::Refused(Code::Unsupported)),
        // These were promised to programs already.
        Call::Delegated { .. } => Some(Lack::Later),
        _ if refused => Some(Lack::Refused(Code::NoSpace)),
        _ => Some(Lack::Later),
    }
}

fn appetite(call: &Call) -> Appetite {
    match call {
        Call::Create { .. }
        | Call::MakeDirectory { .. }
        | Call::Link { .. }
        | Call::Commit { .. }
        | Call::OpenChunk { .. }
        | Call::Delegate { .. }
        | Call::SetXattr { change: XattrChange::Set { .. }, .. }
        | Call::SetQuota { .. } => Appetite::Grows,
        Call::Unlink { .. }
        | Call::RemoveDirectory { .. }
        | Call::Rename { .. }
        | Call::SetAttributes { .. }
        | Call::Open { truncate: true, .. }
        | Call::MakeHole { .. }
        | Call::Accessed { .. }
        | Call::SetXattr { change: XattrChange::Remove, .. } => Appetite::Keeps,
        Call::Delegated { steps, .. } if !steps.is_empty() => Appetite::Keeps,
        Call::Delegated { .. }
        | Call::Open { truncate: false, .. }
        | Call::OpenSession
        | Call::RenewSession
        | Call::CloseSession
        | Call::Map { .. }
        | Call::Root { .. }
        | Call::Directory { .. }
        | Call::Lookup { .. }
        | Call::List { .. }
        | Call::Prefetch { .. }
        | Call::Attributes { .. }
        | Call::ReadLink { .. }
        | Call::Extents { .. }
        | Call::Release { .. }
        | Call::Chunk { .. }
        | Call::SealChunk { .. }
        | Call::FinishChunk { .. }
        | Call::Statfs
        | Call::Describe { .. }
        | Call::Xattr { .. }
        | Call::Xattrs { .. }
        | Call::Lock { .. }
        | Call::Unlock { .. }
        | Call::TestLock { .. }
        | Call::StopWaiting { .. }
        | Call::Place { .. }
        | Call::Chunks { .. }
        | Call::Quota { .. } => Appetite::Serves,
    }
}
