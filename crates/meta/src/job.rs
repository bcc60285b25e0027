//! A job: one operation on one tablet, from its arrival to its decision.

use crate::context::{Context, QuestionSlot};
use crate::key::Key;
use crate::marks::Ripe;
use crate::words::JobId;
use bearing_proto::client::{Handle, Request};
use bearing_proto::peer::{ItemId, Part, Question, Work};
use bearing_types::{ChunkId, NodeId, Position, ServerId, SessionId, TransactionId};

/// See the module.
#[derive(Debug)]
pub(crate) struct Job {
    pub id: JobId,
    /// The start of its tablet.
    pub tablet: Position,
    pub work: JobWork,
    pub context: Context,
    /// How often it ran; a bound on loops that load forever.
    pub runs: u32,
}

/// What a job does.
#[derive(Debug)]
pub(crate) enum JobWork {
    /// A client's request.
    Request(SessionId, Box<Request>),
    /// A part of a transaction that another tablet coordinates.
    Prepare {
        from: Position,
        session: SessionId,
        transaction: TransactionId,
        part_number: u8,
        part: Box<Part>,
    },
    /// A queued item of another tablet.
    Deliver { from: Position, item: ItemId, done_below: ItemId, work: Work },
    /// A question of another tablet, or (without one) of this server.
    Ask { from: Option<Position>, id: u64, question: Question },
    /// Lets go of a page of a node's content.
    Reap(NodeId),
    /// A session says that it has an unlinked node open no more.
    LetGo(NodeId, SessionId),
    /// Ends a session that was not renewed.
    EndSession(SessionId),
    /// Asks whether a silent session lives, and forgets it if not.
    SweepSession(SessionId),
    /// Ends a delegation whose holder is silent.
    EndDelegation(NodeId, SessionId),
    /// Gives a chunk what it needs.
    Tend(ChunkId),
    /// Looks through chunk records from one on, and asks these data servers whether they hold what is theirs.
    SweepChunks(ChunkId, Vec<ServerId>),
    /// Tells a quota's home what is used here.
    ReportUsage(Handle),
    /// Looks through marks from a key on, and removes old ones.
    Collect { from: Key, ripe: Ripe },
}

impl Job {
    /// Whether it can go on with the answers that it has. Who asks many questions at once needs all the
    /// answers.
    pub fn has_answers(&self) -> bool {
        let open = |slot: &QuestionSlot| slot.asked.is_some() && slot.told.is_none();
        !matches!(self.work, JobWork::Tend(_)) || !self.context.questions.iter().any(open)
    }

    /// The session that asks, if a client does.
    pub fn session(&self) -> Option<SessionId> {
        match &self.work {
            JobWork::Request(session, _) => Some(*session),
            JobWork::Prepare { session, .. } => Some(*session),
            JobWork::Deliver { .. }
            | JobWork::Ask { .. }
            | JobWork::Reap(_)
            | JobWork::LetGo(..)
            | JobWork::EndSession(_)
            | JobWork::SweepSession(_)
            | JobWork::EndDelegation(..)
            | JobWork::Tend(_)
            | JobWork::SweepChunks(..)
            | JobWork::ReportUsage(_)
            | JobWork::Collect { .. } => None,
        }
    }
}
