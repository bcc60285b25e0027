//! Space and entries.

use crate::context::Context;
use crate::operation::Answer;
use bearing_proto::client::{Body, Call};
use bearing_types::Code;

impl Context {
    pub(crate) async fn statfs(&self) -> Result<Answer, Code> {
        // Every server hears from all data servers.
        let answered = self.call_anybody(Call::Statfs).await?;
        self.with(|state| match answered.body {
            Body::Statfs(view) => Ok(Answer::Statfs(view)),
            _ => Err(state.io.unexpected()),
        })
    }
}
