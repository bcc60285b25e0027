//! Between metadata servers: what servers with Bloom filters say to each other (G-HBA, sections 2 and 3).
//! These are the messages of `lookup::bloom` as they travel.
//!
//! Filters travel as `docs/formats/filters.md` says. What is decoded here may still be nothing that a server
//! would say, such as a layout that names somebody twice: [`FilterMessage::message`] tells.

use bearing_lookup::bloom::{
    Birth, Bloom, BloomMessage, Division, Edition, Group, GroupId, Layout, LayoutVersion, Move, Replica,
    Shares,
};
use bearing_lookup::{FileKey, Query, QueryId, Target};
use bearing_types::{Position, ServerId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// More servers than this are in no cluster: no list in these messages is longer.
pub const SERVERS_MAX: usize = 4096;
/// Homes that an answer of a group names at most.
const HOMES_MAX: usize = 3;

/// See [`BloomMessage`], whose variants these are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterMessage {
    /// Whom do your filters name?
    AskGroup {
        /// The number of the question.
        id: u64,
        /// What is looked for.
        position: Position,
    },
    /// The answer.
    Homes {
        /// The number of the question.
        id: u64,
        /// Up to three servers.
        homes: Vec<ServerId>,
    },
    /// Do you serve it?
    AskStore {
        /// The number of the question.
        id: u64,
        /// What is looked for.
        position: Position,
        /// The layout that the sender knows.
        layout: WireVersion,
    },
    /// The answer.
    Has {
        /// The number of the question.
        id: u64,
        /// Whether it does.
        has: bool,
        /// The sender's layout, if the one who asked has another.
        layout: Option<WireLayout>,
        /// Whom else to ask.
        strays: Vec<ServerId>,
    },
    /// The part of the ring with this key is at the sender.
    Found {
        /// The key.
        key: u64,
    },
    /// A new edition, to a member of each group.
    Publish(WireReplica),
    /// The same, from that member to whom it takes for its holder.
    Forwarded(WireReplica),
    /// A replica that is given up, or was asked for.
    Handed(WireReplica),
    /// Send me your filter if it is newer than this edition.
    Want(u64),
    /// A server asks to come in.
    Join {
        /// Which.
        server: ServerId,
        /// In which stay.
        birth: u64,
    },
    /// The sender asks to go.
    Leave,
    /// This server is silent, in this stay.
    Silent {
        /// Which.
        server: ServerId,
        /// In which stay.
        birth: u64,
    },
    /// Who is in.
    Layout(WireLayout),
    /// How the group shares out the replicas.
    Shares(WireShares),
    /// A heart-beat, or the answer to one.
    Beat {
        /// The sender's layout.
        layout: Option<WireVersion>,
        /// Its group's shares.
        shares: Option<WireVersion>,
        /// Whether it wants an answer.
        answer: bool,
    },
}

/// The version of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVersion {
    /// How many layouts came before.
    pub count: u64,
    /// Who made it.
    pub by: ServerId,
}

/// Who is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLayout {
    /// Its version.
    pub version: WireVersion,
    /// The most members of a group.
    pub group_most: u32,
    /// The number of the next group.
    pub next_group: u32,
    /// In the order in which they came: server, group, stay.
    pub seats: Vec<(ServerId, u32, u64)>,
    /// Who failed lately.
    pub gone: Vec<ServerId>,
}

/// How a group shares out the replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireShares {
    /// The layout's version.
    pub version: WireVersion,
    /// The group.
    pub group: u32,
    /// Its members, in the order in which they came.
    pub members: Vec<ServerId>,
    /// Whose replica is at which member.
    pub holders: Vec<(ServerId, ServerId)>,
    /// What must move for it: whose replica, from whom, to whom.
    pub moves: Vec<(ServerId, Option<ServerId>, ServerId)>,
}

/// A filter as its server published it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireReplica {
    /// Whose.
    pub of: ServerId,
    /// Its edition.
    pub edition: u64,
    /// The filter's bytes.
    pub filter: Vec<u8>,
}

/// What came is nothing that a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

impl FilterMessage {
    /// What it says, if a server may say it.
    pub fn message(&self) -> Result<BloomMessage, Nonsense> {
        Ok(match self {
            FilterMessage::AskGroup { id, position } => BloomMessage::AskGroup(query(*id, *position)),
            FilterMessage::Homes { id, homes } => {
                BloomMessage::Homes(QueryId(*id), bounded(homes, HOMES_MAX)?.to_vec())
            }
            FilterMessage::AskStore { id, position, layout } => {
                BloomMessage::AskStore(query(*id, *position), layout.version())
            }
            FilterMessage::Has { id, has, layout, strays } => {
                let layout = layout.as_ref().map(WireLayout::layout).transpose()?;
                let strays = bounded(strays, SERVERS_MAX)?.to_vec();
                BloomMessage::Has(QueryId(*id), *has, layout.map(Arc::new), strays)
            }
            FilterMessage::Found { key } => BloomMessage::Found(FileKey(*key)),
            FilterMessage::Publish(replica) => BloomMessage::Publish(replica.replica()?),
            FilterMessage::Forwarded(replica) => BloomMessage::Forwarded(replica.replica()?),
            FilterMessage::Handed(replica) => BloomMessage::Handed(replica.replica()?),
            FilterMessage::Want(edition) => BloomMessage::Want(Edition(*edition)),
            FilterMessage::Join { server, birth } => BloomMessage::Join(*server, Birth(*birth)),
            FilterMessage::Leave => BloomMessage::Leave,
            FilterMessage::Silent { server, birth } => BloomMessage::Silent(*server, Birth(*birth)),
            FilterMessage::Layout(layout) => BloomMessage::Layout(Arc::new(layout.layout()?)),
            FilterMessage::Shares(shares) => BloomMessage::Shares(Arc::new(shares.shares()?)),
            FilterMessage::Beat { layout, shares, answer } => BloomMessage::Beat {
                layout: layout.map(WireVersion::version),
                shares: shares.map(WireVersion::version),
                answer: *answer,
            },
        })
    }
}

impl From<&BloomMessage> for FilterMessage {
    fn from(message: &BloomMessage) -> FilterMessage {
        match message {
            BloomMessage::AskGroup(query) => {
                FilterMessage::AskGroup { id: query.id.0, position: query.target.position }
            }
            BloomMessage::Homes(id, homes) => FilterMessage::Homes { id: id.0, homes: homes.clone() },
            BloomMessage::AskStore(query, layout) => {
                let (id, position) = (query.id.0, query.target.position);
                FilterMessage::AskStore { id, position, layout: WireVersion::of(*layout) }
            }
            BloomMessage::Has(id, has, layout, strays) => {
                let layout = layout.as_deref().map(WireLayout::of);
                FilterMessage::Has { id: id.0, has: *has, layout, strays: strays.clone() }
            }
            BloomMessage::Found(key) => FilterMessage::Found { key: key.0 },
            BloomMessage::Publish(replica) => FilterMessage::Publish(WireReplica::of(replica)),
            BloomMessage::Forwarded(replica) => FilterMessage::Forwarded(WireReplica::of(replica)),
            BloomMessage::Handed(replica) => FilterMessage::Handed(WireReplica::of(replica)),
            BloomMessage::Want(edition) => FilterMessage::Want(edition.0),
            BloomMessage::Join(server, birth) => FilterMessage::Join { server: *server, birth: birth.0 },
            BloomMessage::Leave => FilterMessage::Leave,
            BloomMessage::Silent(server, birth) => FilterMessage::Silent { server: *server, birth: birth.0 },
            BloomMessage::Layout(layout) => FilterMessage::Layout(WireLayout::of(layout)),
            BloomMessage::Shares(shares) => FilterMessage::Shares(WireShares::of(shares)),
            BloomMessage::Beat { layout, shares, answer } => FilterMessage::Beat {
                layout: layout.map(WireVersion::of),
                shares: shares.map(WireVersion::of),
                answer: *answer,
            },
        }
    }
}

/// Who is asked needs no more of a query than this: what was noted on its way stays with whoever has it.
fn query(id: u64, position: Position) -> Query {
    Query::new(QueryId(id), Target { position, file: FileKey::of_part(position) })
}

fn bounded<T>(list: &[T], count_max: usize) -> Result<&[T], Nonsense> {
    if list.len() <= count_max { Ok(list) } else { Err(Nonsense) }
}

impl WireVersion {
    fn of(version: LayoutVersion) -> WireVersion {
        WireVersion { count: version.count, by: version.by }
    }

    fn version(self) -> LayoutVersion {
        LayoutVersion { count: self.count, by: self.by }
    }
}

impl WireLayout {
    fn of(layout: &Layout) -> WireLayout {
        let division = layout.division();
        let seats = division.seats().iter().map(|(server, group)| {
            let birth = layout.birth(*server).map_or(0, |birth| birth.0);
            (*server, group.0, birth)
        });
        WireLayout {
            version: WireVersion::of(layout.version()),
            group_most: division.most(),
            next_group: division.next(),
            seats: seats.collect(),
            gone: layout.gone().to_vec(),
        }
    }

    fn layout(&self) -> Result<Layout, Nonsense> {
        let seats = bounded(&self.seats, SERVERS_MAX)?;
        let births: Vec<Birth> = seats.iter().map(|(_, _, birth)| Birth(*birth)).collect();
        let seats = seats.iter().map(|(server, group, _)| (*server, GroupId(*group))).collect();
        let division = Division::of_parts(self.group_most, seats, self.next_group).ok_or(Nonsense)?;
        Layout::of_parts(self.version.version(), division, &births, self.gone.clone()).ok_or(Nonsense)
    }
}

impl WireShares {
    fn of(shares: &Shares) -> WireShares {
        WireShares {
            version: WireVersion::of(shares.version),
            group: shares.group.0,
            members: shares.shared.members().to_vec(),
            holders: shares.shared.holders().collect(),
            moves: shares.moves.iter().map(|moved| (moved.of, moved.from, moved.to)).collect(),
        }
    }

    fn shares(&self) -> Result<Shares, Nonsense> {
        let members = bounded(&self.members, SERVERS_MAX)?.to_vec();
        let holders = bounded(&self.holders, SERVERS_MAX)?.to_vec();
        let moves = bounded(&self.moves, SERVERS_MAX)?.iter();
        Ok(Shares {
            version: self.version.version(),
            group: GroupId(self.group),
            shared: Arc::new(Group::of_parts(members, holders).ok_or(Nonsense)?),
            moves: moves.map(|(of, from, to)| Move { of: *of, from: *from, to: *to }).collect(),
        })
    }
}

impl WireReplica {
    fn of(replica: &Replica) -> WireReplica {
        WireReplica { of: replica.of, edition: replica.edition.0, filter: replica.filter.encode() }
    }

    fn replica(&self) -> Result<Replica, Nonsense> {
        let filter = Bloom::decode(&self.filter).map_err(|_| Nonsense)?;
        Ok(Replica { of: self.of, edition: Edition(self.edition), filter: Arc::new(filter) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{DATAGRAM_PACKED_MAX, Message, Packing};
    use bearing_lookup::bloom::{BloomOptions, GONE_MAX};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn server() -> impl Strategy<Value = ServerId> {
        any::<u32>().prop_map(ServerId)
    }

    /// A layout after servers came and went.
    fn layout() -> impl Strategy<Value = Layout> {
        (1u32..6, vec((0u32..30, any::<u64>(), any::<bool>()), 0..40)).prop_map(|(most, steps)| {
            let first = ServerId(99);
            let mut layout = Layout::first(first, Birth(7), most).unwrap();
            for (server, birth, comes) in steps {
                layout = match comes {
                    true => layout.with(first, ServerId(server), Birth(birth)),
                    false if layout.birth(ServerId(server)).is_none() => layout,
                    false => layout.without_failed(first, &BTreeSet::from([ServerId(server)])),
                };
            }
            layout
        })
    }

    fn shares() -> impl Strategy<Value = Shares> {
        layout().prop_map(|layout| {
            let division = layout.division();
            let group = division.seats()[0].1;
            let mut shared = Group::default();
            let moves = shared.settle(division.members(group), &division.all());
            Shares { version: layout.version(), group, shared: Arc::new(shared), moves }
        })
    }

    fn replica() -> impl Strategy<Value = Replica> {
        (server(), any::<u64>(), vec(0..FileKey::RING_PARTS, 0..50)).prop_map(|(of, edition, keys)| {
            let mut filter = Bloom::new(BloomOptions::of_ring(5).filter).unwrap();
            keys.into_iter().for_each(|key| filter.insert(FileKey(key)));
            Replica { of, edition: Edition(edition), filter: Arc::new(filter) }
        })
    }

    fn version() -> impl Strategy<Value = LayoutVersion> {
        (any::<u64>(), server()).prop_map(|(count, by)| LayoutVersion { count, by })
    }

    fn asked() -> impl Strategy<Value = Query> {
        (any::<u64>(), any::<u64>()).prop_map(|(id, position)| query(id, Position(position)))
    }

    fn message() -> impl Strategy<Value = BloomMessage> {
        use proptest::option::of;
        let birth = || any::<u64>().prop_map(Birth);
        let id = || any::<u64>().prop_map(QueryId);
        prop_oneof![
            asked().prop_map(BloomMessage::AskGroup),
            (id(), vec(server(), 0..=HOMES_MAX)).prop_map(|(id, homes)| BloomMessage::Homes(id, homes)),
            (asked(), version()).prop_map(|(query, layout)| BloomMessage::AskStore(query, layout)),
            (id(), any::<bool>(), of(layout().prop_map(Arc::new)), vec(server(), 0..9))
                .prop_map(|(id, has, layout, strays)| BloomMessage::Has(id, has, layout, strays)),
            any::<u64>().prop_map(|key| BloomMessage::Found(FileKey(key))),
            replica().prop_map(BloomMessage::Publish),
            replica().prop_map(BloomMessage::Forwarded),
            replica().prop_map(BloomMessage::Handed),
            any::<u64>().prop_map(|edition| BloomMessage::Want(Edition(edition))),
            (server(), birth()).prop_map(|(server, birth)| BloomMessage::Join(server, birth)),
            Just(BloomMessage::Leave),
            (server(), birth()).prop_map(|(server, birth)| BloomMessage::Silent(server, birth)),
            layout().prop_map(|layout| BloomMessage::Layout(Arc::new(layout))),
            shares().prop_map(|shares| BloomMessage::Shares(Arc::new(shares))),
            (of(version()), of(version()), any::<bool>())
                .prop_map(|(layout, shares, answer)| BloomMessage::Beat { layout, shares, answer }),
        ]
    }

    fn bytes_of(said: &BloomMessage) -> Vec<u8> {
        postcard::to_stdvec(&Message::Filters(FilterMessage::from(said))).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_said_is_what_is_heard(said in message()) {
            let Ok(Message::Filters(heard)) = postcard::from_bytes(&bytes_of(&said)) else {
                panic!("{said:?} is not decoded")
            };
            prop_assert_eq!(heard.message(), Ok(said));
        }

        #[test]
        fn a_message_that_is_cut_short_is_refused(said in message(), cut in 1usize..20) {
            let bytes = bytes_of(&said);
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(postcard::from_bytes::<Message>(short).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(variant in 0u8..20, rest in vec(any::<u8>(), 0..80)) {
            let bytes = [&[21, variant][..], &rest].concat();
            if let Ok(Message::Filters(heard)) = postcard::from_bytes::<Message>(&bytes)
                && let Ok(message) = heard.message()
            {
                prop_assert_eq!(FilterMessage::from(&message).message(), Ok(message));
            }
        }

        #[test]
        fn a_broken_layout_or_share_out_is_nonsense_or_whole(
            layout in layout(), shares in shares(), at in any::<usize>(), server in 0u32..40, group in 0u32..9
        ) {
            let mut wire = WireLayout::of(&layout);
            let place = at % wire.seats.len();
            (wire.seats[place].0, wire.seats[place].1) = (ServerId(server), group);
            if let Ok(layout) = wire.layout() {
                prop_assert_eq!(layout.division().all().len(), wire.seats.len());
                // Servers come and go in it, as in any.
                let next = layout.with(ServerId(1), ServerId(1000), Birth(1));
                let _ = next.without_failed(ServerId(1), &next.division().all());
            }
            let mut wire = WireShares::of(&shares);
            wire.members.push(ServerId(server));
            wire.holders.truncate(at % (wire.holders.len() + 1));
            if let Ok(shares) = wire.shares() {
                let mut shared = (*shares.shared).clone();
                let all = shared.members().iter().copied().collect();
                shared.settle(shares.shared.members().to_vec(), &all);
            }
        }
    }

    #[test]
    fn what_nobody_says_is_nonsense() {
        let layout = Layout::of_all([1, 2, 3].map(ServerId), Birth(1), 2).unwrap();
        let good = WireLayout::of(&layout);
        assert_eq!(good.layout(), Ok(layout));
        let wrong = |change: &dyn Fn(&mut WireLayout)| {
            let mut wire = good.clone();
            change(&mut wire);
            assert_eq!(wire.layout(), Err(Nonsense), "{wire:?}");
        };
        wrong(&|wire| wire.group_most = 0);
        wrong(&|wire| wire.group_most = 1);
        wrong(&|wire| wire.next_group = 1);
        wrong(&|wire| wire.next_group = u32::MAX);
        wrong(&|wire| wire.version.count = u64::MAX);
        wrong(&|wire| wire.seats[1].0 = ServerId(1));
        wrong(&|wire| wire.gone = vec![ServerId(1)]);
        wrong(&|wire| wire.gone = vec![ServerId(9); GONE_MAX + 1]);
        wrong(&|wire| wire.seats = (0..5000).map(|server| (ServerId(server), server, 1)).collect());
        let filter = WireReplica { of: ServerId(1), edition: 1, filter: vec![1, 6, 0, 0, 8, 0, 0] };
        assert_eq!(FilterMessage::Publish(filter).message(), Err(Nonsense));
        let homes = (0..4).map(ServerId).collect();
        assert_eq!(FilterMessage::Homes { id: 1, homes }.message(), Err(Nonsense));
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        let layout = Layout::of_all([1, 2, 300].map(ServerId), Birth(5), 2).unwrap();
        let said = bytes_of(&BloomMessage::Layout(Arc::new(layout)));
        assert_eq!(said, [21, 12, 1, 1, 2, 2, 3, 1, 0, 5, 2, 1, 5, 0xac, 0x02, 1, 5, 0]);
        let version = LayoutVersion { count: 3, by: ServerId(2) };
        let said = bytes_of(&BloomMessage::Beat { layout: Some(version), shares: None, answer: true });
        assert_eq!(said, [21, 14, 1, 3, 2, 0, 1]);
    }

    #[test]
    fn a_filter_and_a_layout_of_five_hundred_servers_fit_a_datagram() {
        let filter = Arc::new(Bloom::new(BloomOptions::of_ring(500).filter).unwrap());
        let replica = Replica { of: ServerId(u32::MAX), edition: Edition(u64::MAX), filter };
        let layout = Layout::of_all((0..500).map(ServerId), Birth(1 << 50), 29).unwrap();
        for said in [BloomMessage::Publish(replica), BloomMessage::Layout(Arc::new(layout))] {
            let message = Message::Filters(FilterMessage::from(&said));
            assert!(Packing::new().push(&message, DATAGRAM_PACKED_MAX), "{} bytes", bytes_of(&said).len());
        }
    }
}
