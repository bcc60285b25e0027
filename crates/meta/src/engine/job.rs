//! A job: one operation on one tablet, from its arrival to its decision.

use crate::decide::JobWork;
use crate::view::{Context, QuestionSlot};
use crate::words::JobId;
use bearing_types::{Mono, Position, SessionId};

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
    /// When it ran last, or began.
    pub ran: Mono,
    /// Since when it waits for clients to give something back, if it had to, and its place among those who
    /// do.
    pub parked: Option<(Mono, JobId)>,
}

impl Job {
    /// Whether it can go on with the answers that it has. Who asks many questions at once needs all the
    /// answers.
    pub fn has_answers(&self) -> bool {
        let open = |slot: &QuestionSlot| slot.asked.is_some() && slot.told.is_none();
        !matches!(self.work, JobWork::Maintain(_)) || !self.context.questions.iter().any(open)
    }

    /// The session that asks, if a client does.
    pub fn session(&self) -> Option<SessionId> {
        self.work.session()
    }
}
