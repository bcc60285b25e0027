//! Creates files in one directory, each durable before it is answered.

use super::drive::Work;
use super::tree::{Ask, Tree, name};
use anyhow::{Context, Result};
use bearing_proto::client::{Body, Call};
use bearing_types::{Code, Mono, Position};

/// See the module.
pub struct Creates<'a> {
    /// Where grants are kept.
    pub tree: &'a mut Tree,
    /// The directory.
    pub directory: u32,
    /// Files so far; their names follow from it.
    pub count: u32,
}

impl Work for Creates<'_> {
    type Tag = Ask;

    fn next(&mut self, now: Mono) -> Option<Ask> {
        if let Some(due) = self.tree.due(self.directory, now) {
            return Some(due);
        }
        self.count += 1;
        Some(Ask::Entry(self.count))
    }

    fn may_wait(&self, tag: Ask) -> bool {
        tag.may_wait()
    }

    fn call(&self, tag: Ask) -> (Position, Call) {
        match tag {
            Ask::Entry(number) => {
                let name = name(&format!("made-{number:08}.bin")).expect("a plain name");
                self.tree.create(self.directory, name)
            }
            other => self.tree.renewal(other),
        }
    }

    fn answered(&mut self, tag: Ask, result: Result<Body, Code>, sent: Mono) -> Result<bool> {
        let body = result.with_context(|| format!("create ({tag:?})"))?;
        self.tree.renewed(tag, &body, sent);
        Ok(matches!(tag, Ask::Entry(_)))
    }
}
