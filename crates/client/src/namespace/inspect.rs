//! What whoever checks a cluster asks: where files' bytes lie, and what is known of chunks. Nothing of it is
//! cached. Root alone may ask.

use crate::context::Context;
use crate::operation::Answer;
use bearing_proto::client::{Body, Call, CheckDepth, Handle};
use bearing_proto::grant::Admission;
use bearing_types::{ChunkId, Code, Credentials, Position};

/// Extents asked for at a time.
const EXTENTS_MAX: u32 = 1024;
/// Chunks asked for at a time.
const CHUNKS_MAX: u32 = 32;

impl Context {
    pub(crate) async fn extents_of(&self, node: Handle, offset: u64) -> Result<Answer, Code> {
        let by = Admission::User(Credentials::ROOT);
        let call = Call::Extents { node, by, offset, count_max: EXTENTS_MAX };
        let answered = self.call(node.home, call).await?;
        self.with(|state| match answered.body {
            Body::Extents { extents, complete, .. } => Ok(Answer::Extents { extents, complete }),
            _ => Err(state.io.unexpected()),
        })
    }

    pub(crate) async fn chunks(
        &self,
        position: Position,
        who: &Credentials,
        from: ChunkId,
        depth: CheckDepth,
    ) -> Result<Answer, Code> {
        let call = Call::Chunks { who: who.clone(), from, count_max: CHUNKS_MAX, depth };
        let answered = self.call(position, call).await?;
        self.with(|state| match answered.body {
            Body::Chunks { tablet, chunks, next } => Ok(Answer::Chunks { tablet, chunks, next }),
            _ => Err(state.io.unexpected()),
        })
    }
}
