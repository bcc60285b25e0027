//! Nodes that are decided of here. A mount may hold more than a hundred thousand, so one takes little room.

use crate::tables::Table;
use bearing_proto::client::Handle;
use bearing_proto::grant::{OpenRights, OpenToken};
use bearing_proto::keys::Mac;
use bearing_types::{Attributes, Block, NodeId, Position, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
pub(crate) struct OurNodes {
    session: SessionId,
    nodes: Table<NodeId, Ours>,
    /// Where symbolic links lead that were made here.
    targets: BTreeMap<NodeId, Box<[u8]>>,
    /// Those without a name, which are open yet.
    nameless: BTreeSet<NodeId>,
}

/// A node that is decided of here. Its id is what it is kept under.
#[derive(Debug)]
pub(crate) struct Ours {
    pub attributes: Attributes,
    home: Position,
    /// The signature of our session's right to read and write it, also where it is not ours alone any more.
    mac: Option<Mac>,
    /// The bits of its home that all of its tablet share.
    tablet_bits: u8,
    pub extended: bool,
    /// Nobody else knows of it. Otherwise it was lent, and whatever is not said by its attributes its home
    /// says, as of any other node.
    pub made_here: bool,
}

impl Ours {
    /// A node at home in a tablet.
    pub fn new(
        home: Position,
        tablet: Block,
        attributes: Attributes,
        extended: bool,
        made_here: bool,
    ) -> Ours {
        debug_assert!(tablet.contains(home), "a tablet lends what is at home in it");
        let tablet_bits = tablet.prefix_bits();
        Ours { attributes, home, mac: None, tablet_bits, extended, made_here }
    }

    pub fn tablet(&self) -> Block {
        Block::around(self.home, self.tablet_bits)
    }

    pub fn handle(&self, node: NodeId) -> Handle {
        Handle { node, home: self.home }
    }
}

impl OurNodes {
    /// None yet, of a session.
    pub fn new(session: SessionId) -> OurNodes {
        let (nodes, targets, nameless) = (Table::new(), BTreeMap::new(), BTreeSet::new());
        OurNodes { session, nodes, targets, nameless }
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    pub fn get(&self, node: NodeId) -> Option<&Ours> {
        self.nodes.get(&node)
    }

    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Ours> {
        self.nodes.get_mut(&node)
    }

    pub fn insert(&mut self, node: NodeId, ours: Ours) {
        self.nodes.insert(node, ours);
    }

    /// The right to read and write a node that was made here.
    pub fn token(&self, node: NodeId) -> Option<OpenToken> {
        let mac = self.get(node)?.mac?;
        Some(OpenToken { node, session: self.session, rights: OpenRights::ReadWrite, mac })
    }

    /// Such a right came. Whoever signed one for another session is not believed.
    pub fn on_token(&mut self, token: OpenToken) {
        if let Some(ours) = self
            .nodes
            .get_mut(&token.node)
            .filter(|_| token.session == self.session && token.rights == OpenRights::ReadWrite)
        {
            ours.mac = Some(token.mac);
        }
    }

    /// Remembers where a symbolic link leads.
    pub fn insert_target(&mut self, node: NodeId, target: &[u8]) {
        self.targets.insert(node, target.into());
    }

    pub fn target(&self, node: NodeId) -> Option<&[u8]> {
        self.targets.get(&node).map(Box::as_ref)
    }

    pub fn remove(&mut self, node: NodeId) -> Option<Ours> {
        self.targets.remove(&node);
        self.nameless.remove(&node);
        self.nodes.remove(&node)
    }

    /// The last name of a node is gone.
    pub fn lose_name(&mut self, node: NodeId, touch: impl FnOnce(&mut Attributes)) {
        if let Some(ours) = self.nodes.get_mut(&node) {
            ours.attributes.links = 0;
            touch(&mut ours.attributes);
            self.nameless.insert(node);
        }
    }

    /// Those of a tablet that have no name any more, and of which their home has heard: who has one open that
    /// it has not heard of has no right yet to write it there.
    pub fn nameless(&self, tablet: Block) -> impl Iterator<Item = NodeId> + '_ {
        let heard = |ours: &Ours| !ours.made_here || ours.mac.is_some();
        let known =
            move |node: &NodeId| self.get(*node).is_some_and(|ours| ours.tablet() == tablet && heard(ours));
        self.nameless.iter().copied().filter(known)
    }

    /// All of a tablet.
    pub fn of_tablet(&self, tablet: Block) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(move |(_, ours)| ours.tablet() == tablet).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_node_takes_no_more_room_than_is_said() {
        // A mount's memory a held entry is in docs/benchmarks/2026-11-22-memory-of-cached-entries.md.
        let bytes = size_of::<Option<(NodeId, Ours)>>();
        assert!(bytes <= 120, "{bytes} bytes");
    }

    #[test]
    fn a_node_knows_its_tablet_by_its_home() {
        let attributes = crate::tests::world::attributes(bearing_types::FileType::Regular, 1);
        let tablet = Block::around(Position(0x4200_0000_0000_0000), 8);
        let home = Position(0x4212_3456_789a_bcde);
        let ours = Ours::new(home, tablet, attributes, false, true);
        assert_eq!((ours.tablet(), ours.handle(NodeId(7)).home), (tablet, home));
    }

    #[test]
    fn a_token_of_our_session_alone_is_taken() {
        let attributes = crate::tests::world::attributes(bearing_types::FileType::Regular, 1);
        let mut nodes = OurNodes::new(SessionId(9));
        nodes.insert(NodeId(7), Ours::new(Position(1), Block::RING, attributes, false, true));
        let token = OpenToken {
            node: NodeId(7),
            session: SessionId(9),
            rights: OpenRights::ReadWrite,
            mac: Mac([3; 16]),
        };
        nodes.on_token(OpenToken { session: SessionId(8), ..token });
        nodes.on_token(OpenToken { node: NodeId(6), ..token });
        assert_eq!((nodes.token(NodeId(7)), nodes.token(NodeId(6))), (None, None));
        nodes.on_token(token);
        assert_eq!(nodes.token(NodeId(7)), Some(token));
    }
}
