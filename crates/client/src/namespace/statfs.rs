//! Space and entries.

use super::unexpected;
use crate::hub::Hub;
use crate::operation::Answer;
use bearing_proto::client::{Body, Call};
use bearing_types::{Code, Position};

impl Hub {
    pub(crate) async fn statfs(&self) -> Result<Answer, Code> {
        // The first tablet keeps the sums.
        let answered = self.call(Position(0), Call::Statfs).await?;
        self.with(|state| match answered.body {
            Body::Statfs(view) => Ok(Answer::Statfs(view)),
            _ => Err(unexpected(state)),
        })
    }
}
