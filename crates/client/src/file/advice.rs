//! What the flow server would say, for whoever wants to know: why a file is read from where it is, which
//! hosts would read it fastest, what flows now. Nothing of it counts as a read.

use super::ahead::first_run;
use crate::context::Context;
use crate::operation::{Answer, OpenFile};
use crate::state::files::{Stored, end_of};
use bearing_proto::client::ChunkView;
use bearing_proto::flow::{FlowCall, RANKED_MAX, Replicated};
use bearing_proto::operation::Advice;
use bearing_types::{Code, NodeId};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// People wait longer than reads do.
const PATIENCE: Duration = Duration::from_secs(2);

impl Context {
    pub(crate) async fn advise(&self, advice: Advice) -> Result<Answer, Code> {
        match advice {
            Advice::Read { file, offset, reader } => self.explain_read(file, offset, reader).await,
            Advice::Rank { file, readers } => self.rank(file, readers).await,
            Advice::Traffic => {
                let told = self.ask_flow_server(FlowCall::Traffic, PATIENCE).await;
                Ok(Answer::Advice { range: 0..0, servers: Vec::new(), told })
            }
        }
    }

    async fn explain_read(
        &self,
        file: OpenFile,
        offset: u64,
        reader: Option<IpAddr>,
    ) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.readable(file))?;
        let size = self.with(|state| state.files.stored_size(node));
        let run_max = self.with(|state| state.io.config.ahead.run_max);
        let end = size.min(offset.saturating_add(run_max));
        let Some((range, view)) = self.next_run(node, offset..end).await? else {
            return Ok(Answer::Advice { range: end..end, servers: Vec::new(), told: None });
        };
        let servers = self.with(|state| state.replicas_in_order(&view));
        let read = Replicated { servers: servers.clone(), bytes: range.end - range.start };
        let told = self.ask_flow_server(FlowCall::Explain { reader, read }, PATIENCE).await;
        Ok(Answer::Advice { range, servers, told })
    }

    async fn rank(&self, file: OpenFile, readers: Vec<IpAddr>) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.readable(file))?;
        let size = self.with(|state| state.files.stored_size(node));
        let count_max = RANKED_MAX / readers.len().max(1);
        let (mut reads, mut from) = (Vec::new(), 0);
        while from < size && reads.len() < count_max {
            let Some((range, view)) = self.next_run(node, from..size).await? else { break };
            from = range.end;
            reads.push(Replicated { servers: view.servers, bytes: range.end - range.start });
        }
        let told = self.ask_flow_server(FlowCall::Rank { readers, reads }, PATIENCE).await;
        // Of a very large file only the beginning is looked at.
        Ok(Answer::Advice { range: 0..from, servers: Vec::new(), told })
    }

    /// The first bytes in a range that lie next to each other in one chunk, and who has it.
    async fn next_run(
        &self,
        node: NodeId,
        range: Range<u64>,
    ) -> Result<Option<(Range<u64>, ChunkView)>, Code> {
        let run: Vec<Stored> = first_run(self.extents(node, range).await?);
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(None) };
        let view = self.chunk_view(first.extent.chunk, false).await?;
        Ok(Some((first.extent.file_offset..end_of(&last.extent), view)))
    }
}
