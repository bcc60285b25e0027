//! A worker makes a tree of files, and removes it.

use crate::program::Ask;
use bearing_client::{Answer, Operation};
use bearing_proto::client::{Handle, NewNode};
use bearing_types::{Credentials, FileType};
use bearing_workload::TreeStep;
use std::collections::VecDeque;

/// A tree under way.
#[derive(Debug)]
pub struct TreeRun {
    who: Credentials,
    steps: VecDeque<TreeStep>,
    /// The directories, by number; `None` for those that could not be made.
    directories: Vec<Option<Handle>>,
}

impl TreeRun {
    /// A tree in a directory.
    pub fn new(directory: Handle, who: Credentials, steps: Vec<TreeStep>) -> TreeRun {
        TreeRun { who, steps: steps.into(), directories: vec![Some(directory)] }
    }

    /// The next operation. Steps in a directory that could not be made are none.
    pub fn next(&self) -> Option<Ask> {
        let step = self.steps.front()?;
        let directory = self.directories[step.parent()]?;
        let who = self.who.clone();
        Some(Ask::of(match step.clone() {
            TreeStep::MakeDirectory { name, mode, .. } => {
                Operation::MakeDirectory { directory, name, who, mode }
            }
            TreeStep::Create { name, mode, .. } => {
                let new = NewNode { file_type: FileType::Regular, mode, device: 0, target: Vec::new() };
                Operation::Create { directory, name, who, new, open: false }
            }
            TreeStep::Unlink { name, .. } => Operation::Unlink { directory, name, who },
            TreeStep::RemoveDirectory { name, .. } => Operation::RemoveDirectory { directory, name, who },
        }))
    }

    /// Goes on after the first step, which gave this, and after all that need what could not be made. Whether
    /// something is left to do.
    pub fn step_over(&mut self, answer: Option<&Answer>) -> bool {
        let mut answer = answer;
        while let Some(step) = self.steps.pop_front() {
            if let TreeStep::MakeDirectory { .. } = step {
                self.directories.push(match answer.take() {
                    Some(Answer::Found(found)) => Some(found.node),
                    _ => None,
                });
            }
            if self.steps.front().is_some_and(|next| self.directories[next.parent()].is_some()) {
                return true;
            }
            answer = None;
        }
        false
    }
}
