//! Attributes: reading, changing; targets of symbolic links.

use crate::context::{Context, State};
use crate::delegation::decide::Local;
use crate::operation::{Answer, Found, OpenFile};
use crate::state::lease::node_keys;
use bearing_proto::client::{AttributeChange, Body, Call, Handle};
use bearing_proto::grant::OpenToken;
use bearing_proto::rules::FILE_BYTES_MAX;
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
        loop {
            match self.ask_change(node, file_type, who, change, token).await {
                Err(Code::TooLarge) if change.size.is_some() => {
                    self.cut_in_steps(node, who, change.size.unwrap_or(0), token).await?
                }
                done => return done.map(Answer::Found),
            }
        }
    }

    async fn ask_change(
        &self,
        node: Handle,
        file_type: FileType,
        who: &Credentials,
        change: AttributeChange,
        token: Option<OpenToken>,
    ) -> Result<Found, Code> {
        let keys = node_keys(node.node, file_type == FileType::Directory);
        let call = Call::SetAttributes { node, who: who.clone(), change, token };
        self.change(keys, node.home, call, |state, answered| {
            if let Some(size) = change.size {
                state.files.truncated(node.node, size);
            }
            state.take_node_body(answered)
        })
        .await?
    }

    /// Makes a file shorter from its end, down to about `size`: a server refuses to drop very many extents
    /// at once. A request for the size then has less to drop. `TooLarge` if no file can be so long.
    pub(crate) async fn cut_in_steps(
        &self,
        node: Handle,
        who: &Credentials,
        size: u64,
        token: Option<OpenToken>,
    ) -> Result<(), Code> {
        let mut end = self.ask_attributes(node).await?.attributes.size;
        if size > FILE_BYTES_MAX {
            return Err(Code::TooLarge);
        }
        // Somebody else may have cut it meanwhile.
        if end <= size {
            return Ok(());
        }
        let mut step = (end - size).div_ceil(2);
        while step > 0 && end - size > step {
            let shorter = AttributeChange { size: Some(end - step), ..AttributeChange::default() };
            match self.ask_change(node, FileType::Regular, who, shorter, token).await {
                // Extents may be fewer further in front: 2^17 empty steps must not be.
                Ok(_) => (end, step) = (end - step, step * 2),
                Err(Code::TooLarge) => step /= 2,
                Err(code) => return Err(code),
            }
        }
        if step > 0 { Ok(()) } else { Err(Code::TooLarge) }
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
