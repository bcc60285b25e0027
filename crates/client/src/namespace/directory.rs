//! Directories: the root, a grant when one is needed, the parent.

use super::grants::Freshness;
use crate::context::Context;
use crate::operation::{Answer, Found};
use crate::state::lease::Directory;
use bearing_proto::client::{Body, Call, Handle};
use bearing_types::{Code, Position};

impl Context {
    pub(crate) async fn root(&self) -> Result<Answer, Code> {
        let filesystem = self.with(|state| state.io.config.filesystem);
        let answered = self.call(Position(0), Call::Root { filesystem }).await?;
        self.with(|state| match answered.body {
            Body::Directory(view) => {
                let directory = state.take_directory(*view, &answered.stamp);
                let seen = state.directory_seen(&directory);
                // A root has no name that could change.
                Ok(Answer::Found(state.found(&seen, seen.until)))
            }
            _ => Err(state.io.unexpected()),
        })
    }

    /// A directory's grant and attributes. What was asked for within an operation is good for that operation,
    /// leased or not.
    pub(super) async fn directory(&self, handle: Handle, freshness: Freshness) -> Result<Directory, Code> {
        if freshness == Freshness::Asked {
            // Its home did not take what is known here; so it decides.
            Box::pin(self.suspend(handle.node)).await;
        }
        self.settled(handle.node).await;
        if let Some(ours) = self.with(|state| state.local_directory(handle.node)) {
            return Ok(ours);
        }
        let cached = self.with(|state| {
            let cached = match freshness {
                Freshness::Asked => None,
                Freshness::Granted | Freshness::Content => {
                    state.cache.directory(handle.node, state.io.now.mono)
                }
            };
            let is_known = |cached: &Directory| {
                freshness == Freshness::Granted || cached.content_until.or(cached.shown_until).is_some()
            };
            let wanted = cached.filter(is_known);
            match wanted {
                Some(_) => state.io.counters.grant_hits += 1,
                None => state.io.counters.grant_misses += 1,
            }
            wanted
        });
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let answered = self.call(handle.home, Call::Directory { directory: handle }).await?;
        self.with(|state| match answered.body {
            Body::Directory(view) => Ok(state.take_directory(*view, &answered.stamp)),
            _ => Err(state.io.unexpected()),
        })
    }

    /// A directory's attributes, with its content.
    pub(super) async fn directory_found(&self, handle: Handle) -> Result<Found, Code> {
        let directory = self.directory(handle, Freshness::Content).await?;
        Ok(self.with(|state| {
            let seen = state.directory_seen(&directory);
            state.found(&seen, None)
        }))
    }

    pub(crate) async fn parent(&self, directory: Handle) -> Result<Answer, Code> {
        let child = self.directory(directory, Freshness::Granted).await?;
        self.directory_found(child.view.parent).await.map(Answer::Found)
    }

    /// Where a directory is and how it is called, as its home says.
    pub(crate) async fn place_of(&self, directory: Handle) -> Result<Answer, Code> {
        self.leave_to_home(directory.node).await;
        let answered = self.call(directory.home, Call::Place { directory }).await?;
        self.with(|state| match answered.body {
            Body::Place(parent, name) => Ok(Answer::Named(parent, name)),
            _ => Err(state.io.unexpected()),
        })
    }
}
