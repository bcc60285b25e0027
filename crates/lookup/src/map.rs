//! A whole assignment as machines know it: made once for each version, and shared by all who know that one.

use crate::tablet_index::{Located, TabletIndex};
use bearing_placement::Assignment;
use bearing_types::{MapVersion, Position};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Map {
    version: MapVersion,
    assignment: Arc<Assignment>,
    index: TabletIndex,
}

impl Map {
    /// An assignment under its version.
    pub fn new(version: MapVersion, assignment: impl Into<Arc<Assignment>>) -> Arc<Map> {
        let assignment = assignment.into();
        let mut index = TabletIndex::for_tablets(assignment.tablets().count());
        for tablet in assignment.tablets() {
            index.put(Located { block: tablet.block, epoch: tablet.epoch, owner: tablet.owner });
        }
        Arc::new(Map { version, assignment, index })
    }

    /// Its version.
    pub fn version(&self) -> MapVersion {
        self.version
    }

    /// The assignment itself.
    pub fn assignment(&self) -> &Arc<Assignment> {
        &self.assignment
    }

    /// Who owns a position.
    pub fn at(&self, position: Position) -> Located {
        *self.index.at(position).expect("an assignment covers the ring")
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }
}
