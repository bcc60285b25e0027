//! What the tests of several files share.

use crate::table::{Output, Pieces};
use bearing_placement::Arcs;
use bearing_routing::{Port, Shape, SwitchTree};
use bearing_types::{Position, ServerId};
use proptest::prelude::*;

/// One of a few outputs; 0 is up.
pub fn output(number: u16) -> Output {
    if number == 0 { Output::Up } else { Output::Port(Port(number)) }
}

/// Positions that often share long prefixes.
pub fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        any::<u64>(),
        0u64..40,
        (0u64..16).prop_map(|sixteenth| sixteenth << 60),
        (0u64..256, 0u64..4).prop_map(|(high, low)| high << 56 | low),
        (0u32..64).prop_map(|bit| 1 << bit),
        Just(u64::MAX),
    ]
    .prop_map(Position)
}

/// What a node may do with positions.
pub fn pieces() -> impl Strategy<Value = Pieces> {
    proptest::collection::vec((position(), 0u16..5), 0..30).prop_map(|mut starts| {
        starts.push((Position(0), 0));
        starts.sort();
        starts.dedup_by_key(|(start, _)| *start);
        Pieces::new(starts.into_iter().map(|(start, number)| (start, output(number)))).expect("begins at 0")
    })
}

/// Any division of the ring among some of the servers 1 to `servers`.
pub fn arcs(servers: u32) -> impl Strategy<Value = Arcs> {
    proptest::collection::vec((position(), (1..=servers).prop_map(ServerId)), 1..12)
        .prop_map(|starts| Arcs::new(starts).expect("at least one"))
}

/// Topologies of every kind with places for at least 8 servers.
pub fn topologies() -> Vec<SwitchTree> {
    vec![
        Shape::two_tiers(1, 8).expect("a tree").switch_tree().expect("a tree"),
        Shape::two_tiers(4, 2).expect("a tree").switch_tree().expect("a tree"),
        Shape::three_tiers(2, 2, 2).expect("a tree").switch_tree().expect("a tree"),
        Shape::fat_tree(4).expect("a fat tree").switch_tree().expect("a fat tree"),
        Shape::pods(2, 2, 1).expect("a fat tree").switch_tree().expect("a fat tree"),
    ]
}
