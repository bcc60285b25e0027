//! Compressed tables against a search of all tables that forward alike, which knows runs as a list of
//! numbers.

use bearing_openflow::{Output, Pieces, compressed};
use bearing_routing::Port;
use bearing_types::Position;
use proptest::prelude::*;

const OUTPUTS: usize = 5;
/// More entries than any table here has.
const NEVER: usize = 1 << 20;

fn output(number: usize) -> Output {
    if number == 0 { Output::Up } else { Output::Port(Port(number as u16)) }
}

/// The number of the output at a position: that of the last run that begins at or before it.
fn meant(runs: &[(u64, usize)], position: u64) -> usize {
    runs.iter().rfind(|(start, _)| *start <= position).expect("a run begins at 0").1
}

/// The fewest entries at and below the block of so many bits at `first`, for each output that a shorter entry
/// may give it, and in the end for none.
fn fewest(runs: &[(u64, usize)], first: u64, bits: u32) -> [usize; OUTPUTS + 1] {
    let last = first | u64::MAX.checked_shr(bits).unwrap_or(0);
    let parted = runs.iter().any(|(start, _)| first < *start && *start <= last);
    // Without an entry at this very block.
    let without = if parted {
        let (low, high) = (fewest(runs, first, bits + 1), fewest(runs, first | 1 << (63 - bits), bits + 1));
        std::array::from_fn(|given| low[given] + high[given])
    } else {
        std::array::from_fn(|given| if given == meant(runs, first) { 0 } else { NEVER })
    };
    let with = 1 + without[..OUTPUTS].iter().min().expect("outputs");
    without.map(|entries| entries.min(with))
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..16).prop_map(|part| part << 60),
        0u64..8,
        (0u64..8).prop_map(|back| u64::MAX - back),
        (0u64..8).prop_map(|near| (5 << 60) - 4 + near),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_table_with_fewer_entries_forwards_as_the_compressed_one(starts in proptest::collection::btree_map(start(), 0..OUTPUTS, 0..24), zero in 0..OUTPUTS) {
        let mut runs = starts;
        runs.entry(0).or_insert(zero);
        let runs: Vec<(u64, usize)> = runs.into_iter().collect();
        let pieces = Pieces::new(runs.iter().map(|(start, number)| (Position(*start), output(*number)))).unwrap();
        let entries = compressed(&pieces);
        prop_assert_eq!(entries.len(), fewest(&runs, 0, 0)[OUTPUTS]);
        let ends = runs.iter().flat_map(|(start, _)| [*start, start.wrapping_sub(1)]);
        let blocks = entries.iter().flat_map(|entry| [entry.block.start().0, entry.block.last().0]);
        for position in ends.chain(blocks) {
            let matching = entries.iter().filter(|entry| entry.block.start().0 <= position && position <= entry.block.last().0);
            let longest = matching.max_by_key(|entry| entry.block.prefix_bits()).expect("all match");
            prop_assert_eq!(longest.output, output(meant(&runs, position)), "{:x}", position);
        }
    }
}
