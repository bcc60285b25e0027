//! Between metadata servers: what the servers of a ring say to each other (RDHT-MDSC, sections 3.1 and 3.3).
//! These are the messages of `lookup::finger` as they travel.
//!
//! Servers are named by their numbers alone: where one stands on the ring is a function of its number, so a
//! message cannot say that it stands elsewhere.

use bearing_lookup::finger::{Find, FingerMessage, Neighbours, Peer, Points};
use bearing_types::{Position, ServerId};
use serde::{Deserialize, Serialize};

/// See [`FingerMessage`], whose variants and fields these are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RingMessage {
    /// Goes from finger to finger to the owner of a position.
    Find {
        /// The position.
        key: Position,
        /// Who asks.
        asker: ServerId,
        /// What for.
        purpose: Purpose,
        /// How often it was passed on.
        hops: u8,
    },
    /// To a server that joins: its place.
    Welcome {
        /// Front predecessor.
        fpd: ServerId,
        /// Predecessor.
        pd: ServerId,
        /// Successor.
        sc: ServerId,
        /// Next successor.
        nsc: ServerId,
    },
    /// To who asked for a finger.
    Found {
        /// The position.
        key: Position,
        /// Its owner.
        owner: ServerId,
        /// The owner's successor.
        next: ServerId,
    },
    /// Are you there?
    Ping {
        /// The predecessor of who asks.
        pd: ServerId,
        /// Its successor.
        sc: ServerId,
    },
    /// The answer.
    Pong {
        /// The predecessor of who answers.
        pd: ServerId,
        /// Its successor.
        sc: ServerId,
    },
    /// Who follows the receiver from now on.
    Follows {
        /// Who is gone; nobody: `sc` has joined.
        gone: Option<ServerId>,
        /// The new successor.
        sc: ServerId,
        /// The one after.
        nsc: ServerId,
    },
    /// Who precedes the receiver from now on.
    Precedes {
        /// Who goes.
        gone: ServerId,
        /// The new predecessor.
        pd: ServerId,
        /// The one before.
        fpd: ServerId,
    },
    /// A server has come.
    Joined {
        /// The new server.
        new: ServerId,
        /// Its successor.
        next: ServerId,
    },
    /// A server is gone.
    Gone {
        /// Who is gone.
        gone: ServerId,
        /// Its successor.
        heir: ServerId,
        /// The heir's successor.
        next: ServerId,
        /// Whether the heir waits for an acknowledgement.
        acknowledge: bool,
    },
    /// To the heir: this server's end is known.
    Acknowledged(ServerId),
}

/// What the owner of a position is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Who asks joins right before it.
    Place,
    /// For a finger of who asks.
    Finger,
    /// Its predecessor may have to change fingers.
    Update,
}

impl RingMessage {
    /// What it says, on a ring of these places.
    pub fn on(&self, points: &Points) -> FingerMessage {
        let peer = |server: ServerId| points.peer(server);
        match *self {
            RingMessage::Find { key, asker, purpose, hops } => {
                FingerMessage::Find { key, asker: peer(asker), what: purpose.find(), hops }
            }
            RingMessage::Welcome { fpd, pd, sc, nsc } => FingerMessage::Welcome(Neighbours {
                fpd: peer(fpd),
                pd: peer(pd),
                sc: peer(sc),
                nsc: peer(nsc),
            }),
            RingMessage::Found { key, owner, next } => {
                FingerMessage::Found { key, owner: peer(owner), next: peer(next) }
            }
            RingMessage::Ping { pd, sc } => FingerMessage::Ping { pd: peer(pd), sc: peer(sc) },
            RingMessage::Pong { pd, sc } => FingerMessage::Pong { pd: peer(pd), sc: peer(sc) },
            RingMessage::Follows { gone, sc, nsc } => {
                FingerMessage::Follows { gone, sc: peer(sc), nsc: peer(nsc) }
            }
            RingMessage::Precedes { gone, pd, fpd } => {
                FingerMessage::Precedes { gone, pd: peer(pd), fpd: peer(fpd) }
            }
            RingMessage::Joined { new, next } => FingerMessage::Joined { new: peer(new), next: peer(next) },
            RingMessage::Gone { gone, heir, next, acknowledge } => {
                FingerMessage::Gone { gone: peer(gone), heir: peer(heir), next: peer(next), acknowledge }
            }
            RingMessage::Acknowledged(gone) => FingerMessage::Acknowledged(gone),
        }
    }

    /// All servers that it names.
    pub fn servers(&self) -> Vec<ServerId> {
        match *self {
            RingMessage::Find { asker, .. } => vec![asker],
            RingMessage::Welcome { fpd, pd, sc, nsc } => vec![fpd, pd, sc, nsc],
            RingMessage::Found { owner, next, .. } => vec![owner, next],
            RingMessage::Ping { pd, sc } | RingMessage::Pong { pd, sc } => vec![pd, sc],
            RingMessage::Follows { gone, sc, nsc } => gone.into_iter().chain([sc, nsc]).collect(),
            RingMessage::Precedes { gone, pd, fpd } => vec![gone, pd, fpd],
            RingMessage::Joined { new, next } => vec![new, next],
            RingMessage::Gone { gone, heir, next, .. } => vec![gone, heir, next],
            RingMessage::Acknowledged(gone) => vec![gone],
        }
    }
}

impl From<&FingerMessage> for RingMessage {
    fn from(message: &FingerMessage) -> RingMessage {
        let name = |peer: &Peer| peer.server;
        match message {
            FingerMessage::Find { key, asker, what, hops } => {
                RingMessage::Find { key: *key, asker: name(asker), purpose: Purpose::of(*what), hops: *hops }
            }
            FingerMessage::Welcome(Neighbours { fpd, pd, sc, nsc }) => {
                RingMessage::Welcome { fpd: name(fpd), pd: name(pd), sc: name(sc), nsc: name(nsc) }
            }
            FingerMessage::Found { key, owner, next } => {
                RingMessage::Found { key: *key, owner: name(owner), next: name(next) }
            }
            FingerMessage::Ping { pd, sc } => RingMessage::Ping { pd: name(pd), sc: name(sc) },
            FingerMessage::Pong { pd, sc } => RingMessage::Pong { pd: name(pd), sc: name(sc) },
            FingerMessage::Follows { gone, sc, nsc } => {
                RingMessage::Follows { gone: *gone, sc: name(sc), nsc: name(nsc) }
            }
            FingerMessage::Precedes { gone, pd, fpd } => {
                RingMessage::Precedes { gone: *gone, pd: name(pd), fpd: name(fpd) }
            }
            FingerMessage::Joined { new, next } => RingMessage::Joined { new: name(new), next: name(next) },
            FingerMessage::Gone { gone, heir, next, acknowledge } => RingMessage::Gone {
                gone: name(gone),
                heir: name(heir),
                next: name(next),
                acknowledge: *acknowledge,
            },
            FingerMessage::Acknowledged(gone) => RingMessage::Acknowledged(*gone),
        }
    }
}

impl Purpose {
    fn of(what: Find) -> Purpose {
        match what {
            Find::Place => Purpose::Place,
            Find::Finger => Purpose::Finger,
            Find::Update => Purpose::Update,
        }
    }

    fn find(self) -> Find {
        match self {
            Purpose::Place => Find::Place,
            Purpose::Finger => Find::Finger,
            Purpose::Update => Find::Update,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Message, PacketError, Stamp, VERSION, open, seal};
    use crate::{Sender, envelope};
    use proptest::prelude::*;

    fn server() -> impl Strategy<Value = ServerId> {
        any::<u32>().prop_map(ServerId)
    }

    fn peer() -> impl Strategy<Value = Peer> {
        server().prop_map(|server| Points::Numbered.peer(server))
    }

    fn find() -> impl Strategy<Value = Find> {
        prop_oneof![Just(Find::Place), Just(Find::Finger), Just(Find::Update)]
    }

    fn message() -> impl Strategy<Value = FingerMessage> {
        let key = || any::<u64>().prop_map(Position);
        let two = || (peer(), peer());
        prop_oneof![
            (key(), peer(), find(), any::<u8>()).prop_map(|(key, asker, what, hops)| FingerMessage::Find {
                key,
                asker,
                what,
                hops
            }),
            (two(), two()).prop_map(|((fpd, pd), (sc, nsc))| {
                FingerMessage::Welcome(Neighbours { fpd, pd, sc, nsc })
            }),
            (key(), two()).prop_map(|(key, (owner, next))| FingerMessage::Found { key, owner, next }),
            two().prop_map(|(pd, sc)| FingerMessage::Ping { pd, sc }),
            two().prop_map(|(pd, sc)| FingerMessage::Pong { pd, sc }),
            (proptest::option::of(server()), two()).prop_map(|(gone, (sc, nsc))| FingerMessage::Follows {
                gone,
                sc,
                nsc
            }),
            (server(), two()).prop_map(|(gone, (pd, fpd))| FingerMessage::Precedes { gone, pd, fpd }),
            two().prop_map(|(new, next)| FingerMessage::Joined { new, next }),
            (peer(), two(), any::<bool>()).prop_map(|(gone, (heir, next), acknowledge)| {
                FingerMessage::Gone { gone, heir, next, acknowledge }
            }),
            server().prop_map(FingerMessage::Acknowledged),
        ]
    }

    fn sealed(message: &Message) -> (crate::keys::Key, Vec<u8>) {
        let key = crate::keys::Key::new([7; 32]);
        let (sender, from) = (Sender::Server(ServerId(3)), envelope::Start(5));
        let stamp = Stamp { version: VERSION, sender, counter: 1, from, to: 9, ticket: &[] };
        let packet = seal(&stamp, Some(&key), Some(message), &[]);
        (key, packet)
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        let gone = RingMessage::Gone {
            gone: ServerId(2),
            heir: ServerId(3),
            next: ServerId(300),
            acknowledge: true,
        };
        let bytes = postcard::to_stdvec(&Message::Ring(gone)).unwrap();
        assert_eq!(bytes, [17, 8, 2, 3, 0xac, 0x02, 1]);
    }

    proptest! {
        #[test]
        fn what_is_said_is_what_is_heard(said in message()) {
            let (key, packet) = sealed(&Message::Ring(RingMessage::from(&said)));
            let opened = open(&packet, Some(&key)).unwrap();
            let [Message::Ring(heard)] = &opened.messages[..] else { panic!("{opened:?}") };
            prop_assert_eq!(heard.on(&Points::Numbered), said);
        }

        #[test]
        fn a_message_that_is_cut_short_or_has_more_is_refused(said in message(), cut in 1usize..20) {
            let bytes = postcard::to_stdvec(&Message::Ring(RingMessage::from(&said))).unwrap();
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(postcard::from_bytes::<Message>(short).is_err());
            let longer = [&bytes[..], &[0]].concat();
            let (_, rest) = postcard::take_from_bytes::<Message>(&longer).unwrap();
            prop_assert_eq!(rest, &[0]);
        }

        #[test]
        fn an_unknown_variant_is_no_message(variant in 10u8..128, rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let bytes = [&[17, variant][..], &rest].concat();
            prop_assert!(postcard::from_bytes::<Message>(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let bytes = [&[17][..], &bytes].concat();
            if let Ok(Message::Ring(heard)) = postcard::from_bytes::<Message>(&bytes) {
                prop_assert_eq!(RingMessage::from(&heard.on(&Points::Numbered)), heard);
            }
        }
    }

    #[test]
    fn a_packet_with_nonsense_inside_is_malformed() {
        let (key, packet) = sealed(&Message::Ring(RingMessage::Acknowledged(ServerId(1))));
        // The last byte but those of the MAC is the server's number: one more would have to follow.
        let mut broken = packet;
        *broken.last_mut().unwrap() = 0x80;
        let mac = key.sign(&[&broken[..56], &broken[72..]]);
        broken[56..72].copy_from_slice(&mac.0);
        assert_eq!(open(&broken, Some(&key)), Err(PacketError::Malformed));
    }
}
