//! Space and entries.

use super::unexpected;
use crate::hub::Hub;
use crate::operation::Answer;
use bearing_proto::client::{Body, Call};
use bearing_types::Code;

impl Hub {
    pub(crate) async fn statfs(&self) -> Result<Answer, Code> {
        // Every server hears from all data servers.
        let answered = self.call_anybody(Call::Statfs).await?;
        self.with(|state| match answered.body {
            Body::Statfs(view) => Ok(Answer::Statfs(view)),
            _ => Err(unexpected(state)),
        })
    }
}
