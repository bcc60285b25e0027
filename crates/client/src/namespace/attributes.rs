//! Attributes: reading, changing; targets of symbolic links.

use crate::context::{Context, State};
use crate::delegation::decide::Local;
use crate::operation::{Answer, Found, OpenFile};
use crate::state::lease::node_keys;
use bearing_proto::client::{AttributeChange, Body, Call, Handle};
use bearing_types::{Code, Credentials, FileType};

impl Context {
    pub(crate) async fn attributes(&self, node: Handle, file_type: FileType) -> Result<Answer, Code> {
        let found = match file_type {
            FileType::Directory => self.directory_found(node).await?,
            _ => self.file_found(node).await?,
        };
        Ok(Answer::Found(found))
    }

    /// Attributes of a node that is no directory.
    pub(super) async fn file_found(&self, node: Handle) -> Result<Found, Code> {
        let cached = self.with(|state| {
            if let Some(seen) = state.our_node(node.node) {
                return Some(state.found(&seen, None));
            }
            let seen = state.cache.node(node.node, state.io.now.mono)?;
            state.io.counters.attribute_hits += 1;
            Some(state.found(&seen, None))
        });
        match cached {
            Some(found) => Ok(found),
            None => self.ask_attributes(node).await,
        }
    }

    /// Asks for attributes, whatever is cached.
    pub(crate) async fn ask_attributes(&self, node: Handle) -> Result<Found, Code> {
        self.catch_up(node.node).await;
        let answered = self.call(node.home, Call::Attributes { node }).await?;
        self.with(|state| {
            state.io.counters.attribute_misses += 1;
            state.take_node_body(answered)
        })
    }

    pub(crate) async fn set_attributes(
        &self,
        node: Handle,
        file_type: FileType,
        who: &Credentials,
        change: AttributeChange,
        file: Option<OpenFile>,
    ) -> Result<Answer, Code> {
        if change.accessed.is_some() {
            self.with(|state| state.files.forget_access(node.node));
        }
        // What was written before must not undo the change of size or times when it is flushed later.
        self.flush_if_dirty(node.node).await?;
        if file_type == FileType::Directory {
            let here = |state: &mut State, _| state.set_directory_here(node.node, who, &change);
            if let Some(done) = self.decide_in(node.node, here).await {
                return done.map(Answer::Found);
            }
            self.suspend(node.node).await;
        } else if let Local::Done(done) =
            self.with(|state| state.set_attributes_here(node.node, who, &change))
        {
            return done.map(Answer::Found);
        } else {
            self.publish_node(node.node).await;
            if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
                // If that is refused nobody could have read it either.
                let _ = self.hold_open(node.node).await;
            }
        }
        let token = self.with(|state| file.and_then(|file| state.files.token(file)));
        let keys = node_keys(node.node, file_type == FileType::Directory);
        let call = Call::SetAttributes { node, who: who.clone(), change, token };
        let found = self
            .change(keys, node.home, call, |state, answered| {
                if let Some(size) = change.size {
                    state.files.truncated(node.node, size);
                }
                state.take_node_body(answered)
            })
            .await??;
        Ok(Answer::Found(found))
    }

    pub(crate) async fn read_link(&self, node: Handle) -> Result<Answer, Code> {
        if let Some(target) = self.with(|state| state.link_here(node.node)) {
            return Ok(Answer::Target(target));
        }
        let answered = self.call(node.home, Call::ReadLink { node }).await?;
        self.with(|state| match answered.body {
            Body::Link(target) => Ok(Answer::Target(target)),
            _ => Err(state.io.unexpected()),
        })
    }
}
