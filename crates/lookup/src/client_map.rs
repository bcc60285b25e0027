//! The client map: tablets by position, corrected by referrals.

use crate::tablet_index::{Located, TabletIndex};
use bearing_placement::Assignment;
use bearing_types::{MapVersion, Position};

/// Tablets by position. Blocks never overlap; positions that no tablet holds are unknown.
#[derive(Clone, Debug, Default)]
pub struct ClientMap {
    version: Option<MapVersion>,
    tablets: TabletIndex,
}

impl ClientMap {
    /// A map that knows nothing.
    pub fn new() -> ClientMap {
        ClientMap::default()
    }

    /// The version of the last whole assignment taken, if any.
    pub fn version(&self) -> Option<MapVersion> {
        self.version
    }

    /// Whom to ask for a position.
    pub fn locate(&self, position: Position) -> Option<Located> {
        self.tablets.at(position).copied()
    }

    /// Takes a whole assignment, unless a newer one was taken before. What single answers taught under a
    /// higher epoch stays.
    pub fn replace(&mut self, version: MapVersion, assignment: &Assignment) {
        if self.version.is_some_and(|known| known > version) {
            return;
        }
        self.version = Some(version);
        if self.is_empty() {
            self.tablets = TabletIndex::for_tablets(assignment.tablets().count());
        }
        for tablet in assignment.tablets() {
            self.learn(Located { block: tablet.block, epoch: tablet.epoch, owner: tablet.owner });
        }
    }

    /// Takes what an answer or a referral says of one tablet. Epochs only grow, so an older word about the
    /// same positions is ignored. Returns whether anything changed.
    pub fn learn(&mut self, located: Located) -> bool {
        let overlapping = self.tablets.overlapping(located.block);
        if overlapping.iter().any(|known| known.epoch >= located.epoch) {
            return false;
        }
        self.tablets.put(located);
        true
    }

    /// Forgets what is not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Located) -> bool) {
        let kept: Vec<Located> = self.tablets.in_order().into_iter().filter(keep).collect();
        self.tablets = TabletIndex::for_tablets(kept.len());
        kept.into_iter().for_each(|located| self.tablets.put(located));
    }

    /// How many tablets are known.
    pub fn len(&self) -> usize {
        self.tablets.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.tablets.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Block, Epoch, ServerId};

    fn located(block: Block, epoch: u64, owner: u32) -> Located {
        Located { block, epoch: Epoch(epoch), owner: ServerId(owner) }
    }

    #[test]
    fn an_older_epoch_never_replaces_a_newer_one() {
        let mut map = ClientMap::new();
        assert!(map.learn(located(Block::RING, 2, 1)));
        assert!(!map.learn(located(Block::RING, 1, 9)));
        assert!(!map.learn(located(Block::RING, 2, 9)));
        assert_eq!(map.locate(Position(77)).unwrap().owner, ServerId(1));
    }

    #[test]
    fn a_referral_into_a_part_leaves_the_rest_unknown_not_wrong() {
        let mut map = ClientMap::new();
        let (low, high) = Block::RING.halves().unwrap();
        map.learn(located(Block::RING, 1, 1));
        map.learn(located(high, 2, 2));
        assert_eq!(map.locate(high.start()).unwrap().owner, ServerId(2));
        assert_eq!(map.locate(low.start()), None);
    }

    #[test]
    fn an_old_assignment_is_ignored() {
        let servers = [ServerId(1), ServerId(2)];
        let assignment = Assignment::even(&servers, 1, 1).unwrap();
        let mut map = ClientMap::new();
        map.replace(MapVersion(5), &assignment);
        map.replace(MapVersion(4), &Assignment::even(&servers[..1], 0, 1).unwrap());
        assert_eq!(map.version(), Some(MapVersion(5)));
        assert_eq!(map.locate(Position(u64::MAX)).unwrap().owner, ServerId(2));
    }
}
