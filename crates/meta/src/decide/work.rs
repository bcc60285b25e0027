//! What there is to decide, and who decides it.

use crate::chunks::StepOutcome;
use crate::decide::checkpoint::{self, CheckpointOutcome, CheckpointStep};
use crate::decide::collect::{self, Collected};
use crate::decide::maintenance::{self, Swept};
use crate::decide::rules::{namespace, quotas};
use crate::decide::session_end::{self, SessionEnd};
use crate::decide::{deferred, ops, participants, questions};
use crate::record::Key;
use crate::view::{Decide, View};
use crate::words::Ripe;
use bearing_proto::client::{Body, Handle, Request};
use bearing_proto::peer::{Deferred, ItemId, Part, Promise, Question, Told};
use bearing_types::{ChunkId, NodeId, Position, ServerId, SessionId, TransactionId};

/// What a job does.
#[derive(Debug)]
pub(crate) enum JobWork {
    /// A client's request.
    Request(SessionId, Box<Request>),
    /// A part of a transaction that another tablet coordinates.
    Prepare {
        from: Position,
        to: Position,
        session: SessionId,
        transaction: TransactionId,
        part_number: u8,
        part: Box<Part>,
    },
    /// A queued item of another tablet.
    Deliver { from: Position, item: ItemId, done_below: ItemId, work: Deferred },
    /// A question of another tablet, or (without one) of this server.
    Ask { from: Option<Position>, id: u64, question: Question },
    /// Removes a page of a node's content.
    Reap(NodeId),
    /// A session says that it has an unlinked node open no more.
    ForgetHolder(NodeId, SessionId),
    /// Ends a session that was not renewed.
    EndSession(SessionId),
    /// Asks whether a silent session lives, and forgets it if not.
    SweepSession(SessionId),
    /// Ends a delegation whose holder is silent.
    EndDelegation(NodeId, SessionId),
    /// Gives a chunk what it needs.
    Maintain(ChunkId),
    /// Looks through chunk records from one on, and asks these data servers whether they hold what is theirs.
    SweepChunks(ChunkId, Vec<ServerId>),
    /// Tells a quota's home what is used here.
    ReportUsage(Handle),
    /// Looks through marks from a key on, and removes old ones.
    Collect { from: Key, ripe: Ripe },
    /// A step of the tablet's checkpoint.
    Checkpoint(CheckpointStep),
}

impl JobWork {
    /// Whether something is logged whatever is decided, but for what turns out to change nothing.
    pub fn surely_logs(&self) -> bool {
        match self {
            JobWork::Request(_, request) => request.call.mutates(),
            JobWork::Prepare { .. } | JobWork::Deliver { .. } => true,
            _ => false,
        }
    }

    /// The session that asks, if a client does.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            JobWork::Request(session, _) => Some(*session),
            JobWork::Prepare { session, .. } => Some(*session),
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
            | JobWork::Checkpoint(_) => None,
        }
    }
}

/// What a job came to.
pub(crate) enum Decided {
    Body(Body),
    Promise(Promise),
    Delivered,
    Told(Told),
    Reaped(bool),
    HolderForgotten,
    SessionOver,
    SessionSwept(SessionEnd),
    Reported,
    Collected(Collected),
    Maintained(StepOutcome),
    Swept(Swept),
    Checkpointed(CheckpointOutcome),
}

/// Decides what a job is about.
pub(crate) fn decide(view: &mut View, work: &JobWork) -> Decide<Decided> {
    match work {
        JobWork::Request(session, request) => {
            ops::meet(view, *session, &request.call)?;
            let body = ops::decide(view, &request.call)?;
            if ops::changes_entries(&request.call) {
                namespace::show_changed(view);
            }
            Ok(Decided::Body(body))
        }
        JobWork::Prepare { part, .. } => participants::decide(view, part).map(Decided::Promise),
        JobWork::Deliver { work, .. } => deferred::decide(view, work).map(|()| Decided::Delivered),
        JobWork::Ask { from: Some(_), question, .. } => questions::decide(view, question).map(Decided::Told),
        JobWork::Ask { from: None, question, .. } => view
            .ask(Position(0), question.clone(), |view| questions::decide(view, question))
            .map(Decided::Told),
        JobWork::Reap(node) => ops::reap_page(view, *node).map(Decided::Reaped),
        JobWork::ForgetHolder(node, session) => {
            ops::forget_closed(view, *node, *session).map(|()| Decided::HolderForgotten)
        }
        JobWork::EndSession(session) => {
            ops::end_session(view, *session);
            Ok(Decided::SessionOver)
        }
        JobWork::EndDelegation(directory, session) => {
            session_end::end_delegation(view, *directory, *session).map(|()| Decided::SessionOver)
        }
        JobWork::ReportUsage(quota) => quotas::report(view, *quota).map(|()| Decided::Reported),
        JobWork::SweepSession(session) => {
            session_end::sweep_session(view, *session).map(Decided::SessionSwept)
        }
        JobWork::Maintain(chunk) => maintenance::step(view, *chunk).map(Decided::Maintained),
        JobWork::SweepChunks(from, servers) => maintenance::sweep(view, *from, servers).map(Decided::Swept),
        JobWork::Checkpoint(step) => checkpoint::step(view, step).map(Decided::Checkpointed),
        JobWork::Collect { from, ripe } => collect::step(view, *from, *ripe).map(Decided::Collected),
    }
}
