//! What can be set about a Bloom lookup, with its bounds; and what each of the four published ones sets.

use crate::bloom::division::GROUP_MOST_MAX;
use crate::bloom::filter::Shape;
use crate::bloom::keying::DIRECTORY_BITS;
use crate::bloom::lru::RecentShape;
use crate::query::FileKey;
use bearing_placement::LookupKind;
use bearing_types::{ParameterError, within};
use std::time::Duration;

/// Passes before a query fails: six at most through the levels, the others to servers that could not be
/// reached or would not take it.
pub const HOPS_MAX: u8 = 64;

/// So many queries a server follows at the same time; clients are sent on with more.
pub const QUERIES_MAX: usize = 4096;

/// Options that all servers of a cluster share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BloomOptions {
    /// M, the most members of a group. 1 to 1,024; 1: every server holds the filters of all others.
    pub group_most: u32,
    /// The filter of a server's own files.
    pub filter: Shape,
    /// The filters of recently found files; none: there is no such level.
    pub recent: Option<RecentShape>,
    /// A server publishes its filter again when more than so many bits differ from the published one. 0 or
    /// more; 0: with every change of a bit.
    pub publish_at: u32,
    /// Beyond the paper: when several filters name a home, but at most so many, those are asked before all
    /// are. 0 is the published form. With T filters of rate f0 it is 1 + T * f0 homes that are named on
    /// average.
    pub named_max: u32,
    /// How long an answer is waited for before the next level, or the next try. Above 0.
    pub answer_wait: Duration,
    /// Between heart-beats. Above 0.
    pub beat: Duration,
    /// A server that was silent for so many heart-beats has failed. 2 or more.
    pub silent_beats: u32,
    /// How often a silent server is asked about a file before it counts as unreachable. 1 or more.
    pub asks_max: u32,
}

/// What a cluster is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Servers. 1 or more.
    pub servers: u32,
    /// Keys (files, or directories: see [`crate::bloom::Keying`]) of each. 1 or more. More than that are
    /// found too, but filters mislead more often.
    pub keys_each: u64,
}

/// Files that are remembered as recently found, a home. *Fitted*: G-HBA prints neither it nor the bits, so
/// they were chosen such that the filters take the 1,600 bytes a home which are left of table 5's HBA column
/// (the part above 1) for 160 million files. That column confirms nothing, therefore.
const RECENT_KEYS: u64 = 640;

/// Bits of each of them. More than a file has in the other filters: HBA (its section 1) has two arrays, and
/// the one of recent files is the more accurate. With 8 bits, as here before, one of a hundred such filters
/// errs about nine files in ten, so a list in it was hardly ever the only one that answers.
const RECENT_BITS: f64 = 20.0;

/// All filters of a cluster hash from here.
const SEED: u64 = 0x626c_6f6f_6d31;

impl BloomOptions {
    /// The published form of a lookup: HBA and G-HBA with 8 bits a file and filters of recent files, arrays
    /// with 8 or 16 bits and none. G-HBA's M is the best one published: 5 with 20 servers to 9 with 100.
    /// Refused: a lookup without Bloom filters, sizes out of bounds.
    pub fn of(lookup: LookupKind, sizes: Sizes) -> Result<BloomOptions, ParameterError> {
        within("servers", sizes.servers, sizes.servers >= 1, "1 or more")?;
        let (group_most, bits, recent) = match lookup {
            LookupKind::BloomLevels => (1, 8.0, true),
            LookupKind::BloomGroups => (published_group_most(sizes.servers), 8.0, true),
            LookupKind::BloomArray8 => (1, 8.0, false),
            LookupKind::BloomArray16 => (1, 16.0, false),
            other => {
                let bound = "bloom-levels, bloom-groups, bloom-array-8 or bloom-array-16";
                return Err(ParameterError { name: "lookup", value: other.to_string(), bound });
            }
        };
        let filter = Shape::for_keys(sizes.keys_each, bits, SEED)?;
        let recent_filter = Shape::for_keys(RECENT_KEYS, RECENT_BITS, SEED)?;
        let options = BloomOptions {
            group_most,
            filter,
            recent: recent.then_some(RecentShape { keys_each: RECENT_KEYS as u32, filter: recent_filter }),
            publish_at: filter.bits / 100,
            named_max: 0,
            answer_wait: Duration::from_millis(20),
            beat: Duration::from_secs(1),
            silent_beats: 10,
            asks_max: 8,
        };
        options.check()?;
        Ok(options)
    }

    /// The same with filters of directories instead of files: see [`crate::bloom::Keying`]. `keys_each` of
    /// the sizes counts directories.
    pub fn of_directories(lookup: LookupKind, sizes: Sizes) -> Result<BloomOptions, ParameterError> {
        let filter = Shape::for_keys(sizes.keys_each, DIRECTORY_BITS, SEED)?;
        Ok(BloomOptions { filter, publish_at: filter.bits / 100, ..BloomOptions::of(lookup, sizes)? })
    }

    /// G-HBA in a cluster that runs: its filters name parts of the ring. Failures are noticed in a second, as
    /// long as a client goes on asking owners itself, and a query is over before its client sends it again,
    /// which it does after 100 ms: 20 ms for the group, 40 ms for all. M is the published one from 20 servers
    /// on, about the square root of their number as there; below, the square root, 2 at least.
    pub fn of_ring(servers: u32) -> BloomOptions {
        let sizes = Sizes { servers: servers.max(1), keys_each: FileKey::RING_PARTS };
        let published = BloomOptions::of(LookupKind::BloomGroups, sizes).expect("these sizes are in bounds");
        let small = servers.isqrt().max(2);
        BloomOptions {
            group_most: if servers < 20 { small } else { published.group_most },
            beat: Duration::from_millis(200),
            silent_beats: 5,
            asks_max: 2,
            ..published
        }
    }

    /// Whether all is within bounds. The first that is not is named, with its bound.
    pub fn check(&self) -> Result<(), ParameterError> {
        let most = (1..=GROUP_MOST_MAX).contains(&self.group_most);
        within("group_most", self.group_most, most, "1 to 1024")?;
        self.filter.check()?;
        self.recent.map_or(Ok(()), |recent| recent.check())?;
        let shown = |duration: Duration| format!("{duration:?}");
        within("answer_wait", shown(self.answer_wait), !self.answer_wait.is_zero(), "a time above 0")?;
        within("beat", shown(self.beat), !self.beat.is_zero(), "a time above 0")?;
        within("silent_beats", self.silent_beats, self.silent_beats >= 2, "2 or more")?;
        within("asks_max", self.asks_max, self.asks_max >= 1, "1 or more")
    }
}

/// The best M that G-HBA published, by its table 5 and figure 7: 5, 6, 7, 8, 9 for 20, 40, 60, 80, 100
/// servers.
pub fn published_group_most(servers: u32) -> u32 {
    (4 + servers / 20).min(GROUP_MOST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { servers: 20, keys_each: 1000 };

    #[test]
    fn options_out_of_bounds_are_refused_with_the_bound() {
        let good = BloomOptions::of(LookupKind::BloomGroups, SIZES).unwrap();
        let said = |options: BloomOptions| options.check().unwrap_err().to_string();
        assert_eq!(said(BloomOptions { group_most: 0, ..good }), "group_most may not be 0; give 1 to 1024");
        let never = Duration::ZERO;
        assert_eq!(said(BloomOptions { beat: never, ..good }), "beat may not be 0ns; give a time above 0");
        assert!(said(BloomOptions { answer_wait: never, ..good }).starts_with("answer_wait may not be 0ns"));
        assert_eq!(
            said(BloomOptions { silent_beats: 1, ..good }),
            "silent_beats may not be 1; give 2 or more"
        );
        assert_eq!(said(BloomOptions { asks_max: 0, ..good }), "asks_max may not be 0; give 1 or more");
    }

    #[test]
    fn only_bloom_lookups_have_options() {
        let error = BloomOptions::of(LookupKind::Fingers, SIZES).unwrap_err().to_string();
        assert!(error.contains("fingers") && error.contains("bloom-array-16"), "{error}");
        let nobody = Sizes { servers: 0, ..SIZES };
        assert!(BloomOptions::of(LookupKind::BloomGroups, nobody).is_err());
        let nothing = Sizes { keys_each: 0, ..SIZES };
        assert!(BloomOptions::of(LookupKind::BloomGroups, nothing).is_err());
    }

    #[test]
    fn options_of_rings_are_within_bounds_and_groups_about_the_square_root() {
        let most = [0, 1, 3, 5, 9, 19, 20, 100].map(|servers| BloomOptions::of_ring(servers).group_most);
        assert_eq!(most, [2, 2, 2, 2, 3, 4, 5, 9]);
        for servers in [0, 1, 5000, u32::MAX] {
            let options = BloomOptions::of_ring(servers);
            assert_eq!(options.check(), Ok(()));
            assert_eq!(options.filter, BloomOptions::of_ring(5).filter, "all servers have one shape");
        }
    }

    /// A hundred filters of recent files all full: a file that is in one of them is named by that one alone.
    #[test]
    fn recent_files_are_told_apart_in_a_hundred_homes() {
        let recent = BloomOptions::of(LookupKind::BloomGroups, SIZES).unwrap().recent.unwrap();
        let set = (1.0 - (-f64::from(recent.filter.hashes) / RECENT_BITS).exp()).powi(14);
        assert_eq!((recent.filter.hashes, recent.keys_each), (14, 640));
        assert!(99.0 * set < 0.02, "{set}");
        assert_eq!(recent.encoded_bytes(1), 16 + 1600);
    }

    #[test]
    fn the_published_sizes_of_groups() {
        let best = [20, 40, 60, 80, 100].map(published_group_most);
        assert_eq!(best, [5, 6, 7, 8, 9]);
    }

    /// G-HBA's table 5: bytes of each server relative to plain arrays of 8 bits a file, for 160 million
    /// files; within 0.0002.
    #[test]
    fn memory_is_what_is_published() {
        let published = [
            (20, 0.2002, 1.0002),
            (40, 0.1670, 1.0004),
            (60, 0.1434, 1.0006),
            (80, 0.1258, 1.0008),
            (100, 0.1121, 1.0010),
        ];
        for (servers, grouped, levels) in published {
            let sizes = Sizes { servers, keys_each: 160_000_000 / u64::from(servers) };
            let bytes = |lookup| {
                let options = BloomOptions::of(lookup, sizes).unwrap();
                let filters = 1.0 + crate::bloom::replicas_each(servers, options.group_most);
                let recent = options.recent.map_or(0, |recent| recent.encoded_bytes(servers));
                filters * options.filter.encoded_bytes() as f64 + recent as f64
            };
            let array = bytes(LookupKind::BloomArray8);
            let near = |lookup, wanted: f64| {
                let ratio = bytes(lookup) / array;
                assert!(
                    (ratio - wanted).abs() < 0.0002,
                    "{lookup} at {servers}: {ratio:.4}, published {wanted}"
                );
            };
            near(LookupKind::BloomGroups, grouped);
            near(LookupKind::BloomLevels, levels);
            near(LookupKind::BloomArray16, 2.0);
        }
    }
}
