//! Table 5: bytes of the filters that servers hold, beside plain arrays of 8 bits a file.
//!
//! Measured: filters that machines exchanged, encoded. Not measured: the filters of recent files, whose size
//! the paper does not print and which are *fitted* to this very table.

use super::assumed::{FILES, HP, figure, in_bounds, xs};
use super::cluster::{Filters, Setting, world_of};
use super::files::FILES_A_DIRECTORY;
use super::where_found::{files_each, groups};
use crate::figure::Figure;
use crate::figures::draw::line;
use crate::figures::effort::Effort;
use crate::statistics::{Interval, mean};
use bearing_lookup::bloom::{Bloom, BloomOptions, BloomServer, Probe, Sizes};
use bearing_lookup::world::World;
use bearing_placement::LookupKind;
use bearing_types::ServerId;

const SERVERS: [u32; 5] = [20, 40, 60, 80, 100];
const HBA: [f64; 5] = [1.0002, 1.0004, 1.0006, 1.0008, 1.0010];
const GHBA: [f64; 5] = [0.2002, 0.1670, 0.1434, 0.1258, 0.1121];

/// Encoded bytes of the filters of a server, and how often one of them errs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    /// Mean over the members of full groups: what the table prints.
    full: f64,
    /// Mean over all servers.
    all: f64,
    /// How often a filter answers for a file that is nowhere.
    errs: f64,
}

fn held(setting: &Setting, asked: u64) -> Held {
    let options = setting.options();
    let mut world = world_of(setting, &options);
    world.run_for(options.beat + options.beat / 2);
    let bytes = |server: &ServerId| -> f64 {
        let machine = world.server(*server);
        machine.map_or(0, |machine| machine.filters().map(|filter| filter.encode().len()).sum::<usize>())
            as f64
    };
    let servers: Vec<ServerId> = world.servers().collect();
    let full: Vec<f64> = full_members(&world, &options).iter().map(bytes).collect();
    let all: Vec<f64> = servers.iter().map(bytes).collect();
    Held { full: mean(&full), all: mean(&all), errs: errs(&world, setting, asked) }
}

/// The members of groups of M; of the largest if none is as large.
fn full_members(world: &World<BloomServer>, options: &BloomOptions) -> Vec<ServerId> {
    let layout = world.server(ServerId(1)).and_then(|machine| machine.layout());
    let groups = layout.map(|layout| layout.division().groups()).unwrap_or_default();
    let largest = groups.values().map(Vec::len).max().unwrap_or(0).min(options.group_most as usize);
    groups.into_values().filter(|members| members.len() == largest).flatten().collect()
}

/// The share of filters, over files that nobody has, that say "perhaps".
fn errs(world: &World<BloomServer>, setting: &Setting, asked: u64) -> f64 {
    let files = setting.files();
    let filters: Vec<&Bloom> =
        world.server(ServerId(1)).map(|one| one.filters().collect()).unwrap_or_default();
    let Some(seed) = filters.first().map(|filter| filter.shape().seed) else { return 0.0 };
    let mut perhaps = 0;
    for absent in 0..asked {
        let probe = Probe::of(files.key(files.count + absent * FILES_A_DIRECTORY), seed);
        perhaps += filters.iter().filter(|filter| filter.may_hold_probe(probe)).count();
    }
    perhaps as f64 / (asked * filters.len() as u64).max(1) as f64
}

/// Bytes of the filters of recent files with all of the paper's files, beside the plain arrays.
fn recent(lookup: LookupKind, servers: u32) -> f64 {
    let sizes = Sizes { servers, keys_each: (FILES / f64::from(servers)) as u64 };
    let options = in_bounds(BloomOptions::of(lookup, sizes));
    let array = f64::from(servers) * options.filter.encoded_bytes() as f64;
    options.recent.map_or(0.0, |recent| recent.encoded_bytes(servers) as f64 / array)
}

struct Case {
    scheme: &'static str,
    lookup: LookupKind,
    filters: Filters,
}

const CASES: [Case; 5] = [
    Case { scheme: "BFA8", lookup: LookupKind::BloomArray8, filters: Filters::Published },
    Case { scheme: "BFA16", lookup: LookupKind::BloomArray16, filters: Filters::Wide },
    Case { scheme: "HBA", lookup: LookupKind::BloomLevels, filters: Filters::Published },
    Case { scheme: "G-HBA", lookup: LookupKind::BloomGroups, filters: Filters::Published },
    Case {
        scheme: "ours: G-HBA by directory",
        lookup: LookupKind::BloomGroups,
        filters: Filters::Directories,
    },
];

/// Memory beside plain arrays.
pub fn table_5(name: &str, effort: Effort) -> Figure {
    let asked = 20 * effort.queries as u64;
    let of = |case: &Case, servers: u32, asked| {
        let (lookup, filters) = (case.lookup, case.filters);
        held(&Setting { lookup, ..groups(servers, HP, filters, effort) }, asked)
    };
    let measured: Vec<Vec<Held>> =
        CASES.iter().map(|case| SERVERS.iter().map(|servers| of(case, *servers, asked)).collect()).collect();
    let relative = |case: usize, bytes: fn(&Held) -> f64| -> Vec<Interval> {
        let at = |index: usize| {
            let ratio = bytes(&measured[case][index]) / measured[0][index].all;
            Interval { mean: ratio + recent(CASES[case].lookup, SERVERS[index]), half: 0.0 }
        };
        (0..SERVERS.len()).map(at).collect()
    };
    let x = xs(&SERVERS);
    let mut series: Vec<_> = (0..CASES.len())
        .map(|case| line(CASES[case].scheme, &x, &relative(case, |held| held.full)))
        .collect();
    series.push(line("G-HBA, mean of all servers", &x, &relative(3, |held| held.all)));
    let axes = ["servers", "bytes of a server's filters, plain arrays of 8 bits a file = 1", ""];
    let mut figure = figure(name, effort, axes, series);
    for (index, servers) in SERVERS.iter().enumerate() {
        for (scheme, published, why) in [
            ("BFA16", 2.0, ""),
            ("HBA", HBA[index], "what is above 1 is fitted: it confirms nothing"),
            ("G-HBA", GHBA[index], "a member of a full group"),
        ] {
            let ours = figure.y(scheme, index);
            let said = format!("{scheme} at {servers} servers");
            figure.claim(&said, published, ours, 0.97 * published..=1.03 * published, why);
            figure.stands(Some(scheme), Some(f64::from(*servers)), published);
        }
    }
    let last = SERVERS.len() - 1;
    for (index, servers) in SERVERS.iter().enumerate() {
        let over = figure.y("G-HBA, mean of all servers", index) / GHBA[index];
        let said = format!("G-HBA at {servers} servers, mean of all, over the printed number");
        figure.see(said, over, "where M does not divide the servers, groups are smaller and hold more");
    }
    let worst = |of: &dyn Fn(usize) -> f64| (0..SERVERS.len()).map(of).fold(0.0, f64::max);
    let half = worst(&|index| measured[4][index].full / measured[3][index].full);
    figure.must("ours over G-HBA, at most".to_owned(), half, 0.0..=0.5, "four files a directory, assumed");
    let (mine, theirs) = (measured[4][last].errs, measured[3][last].errs);
    figure.must(
        "share of false hits of a filter, ours over G-HBA's: at most 1".to_owned(),
        mine / theirs.max(1e-9),
        0.0..=1.0,
        "9 bits a directory err less than 8 a file",
    );
    figure.see("share of false hits of a filter, G-HBA".to_owned(), theirs, "0.0214 by the formula");
    figure.see("share of false hits of a filter, ours".to_owned(), mine, "0.0132 by the formula");
    by_directory(&mut figure, effort, measured[3][last].full);
    figure
}

/// How much it is with smaller and larger directories: where two files share one it does not suffice.
fn by_directory(figure: &mut Figure, effort: Effort, published: f64) {
    for tenths in [15, 23, 160] {
        let setting = groups(100, HP, Filters::Directories, effort);
        let setting = Setting { tenths_a_directory: tenths, ..setting };
        let ratio = held(&setting, 1).full / published;
        let each = tenths as f64 / 10.0;
        let why = if ratio > 0.5 { "a losing case: more than half, as 9 bits are for few files" } else { "" };
        figure.see(format!("ours over G-HBA with {each} files a directory"), ratio, why);
    }
    figure.see(
        "files of a server".to_owned(),
        files_each(effort) as f64,
        "the paper has 1.6 million and more",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fitted_part_is_what_the_table_leaves() {
        for (servers, published) in SERVERS.iter().zip(HBA) {
            let off = 1.0 + recent(LookupKind::BloomLevels, *servers) - published;
            assert!(off.abs() < 0.0001, "{servers}: {off}");
        }
        assert_eq!(recent(LookupKind::BloomArray8, 20), 0.0);
    }

    #[test]
    fn a_member_of_a_full_group_holds_its_share_and_the_mean_of_all_more() {
        let effort = Effort { seeds: 1, queries: 400, seed: 1 };
        let setting = groups(40, HP, Filters::Published, effort);
        let found = held(&setting, 500);
        let filter = setting.options().filter.encoded_bytes() as f64;
        assert!((found.full - filter * (1.0 + 34.0 / 6.0)).abs() < 1e-6, "{found:?}");
        assert!((found.all - 7.0 * filter).abs() < 1e-6, "seven groups: {found:?}");
        assert!((0.015..0.03).contains(&found.errs), "{found:?}");
    }
}
