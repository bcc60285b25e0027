//! The workloads that can be generated, with where their parameters come from. The whole list with sources is
//! in `docs/design/2026-11-30-generated-traces.md`; none of them is changed for a scheme that is measured.

use super::clock::period_ns;
use super::deck::{Ask, Cards};
use super::mdtest::Variant;
use super::mixed::Mixture;
use super::popularity::{Drift, HotPercent};
use bearing_workload::Mix;
use std::fmt;

/// A kind of workload.
#[derive(Debug)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Where its parameters come from.
    pub source: &'static str,
    /// How many clients it has if nothing else is said.
    pub clients: u32,
    /// The exponent of its popularity if nothing else is said; `None`: no file is more popular than another.
    pub skew: Option<f64>,
    pub(super) behaviour: Behaviour,
}

/// What its clients do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Behaviour {
    Mixed(Mixture),
    Loader,
    Mdtest(Variant),
}

/// No workload has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload(pub String);

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        write!(f, "no workload is called {:?}; give one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownWorkload {}

impl Workload {
    /// The workload of a name.
    pub fn named(name: &str) -> Result<&'static Workload, UnknownWorkload> {
        let known = WORKLOADS.iter().find(|workload| workload.name == name);
        known.ok_or_else(|| UnknownWorkload(name.to_owned()))
    }
}

/// A day of RES as its authors published it, with STAT, LSTAT and ACCESS as lookups, FSTAT as lookups of open
/// files, GETDIRENTRIES as lists.
const RES_DAY: &[(Ask, u64)] = &[
    (Ask::Lookup, 804_048 + 13_848 + 12_644),
    (Ask::LookupOpen, 727_905),
    (Ask::Close, 80_919),
    (Ask::Open, 79_163),
    (Ask::List, 21_211),
    (Ask::Remove, 3_218),
    (Ask::Create, 1_242),
    (Ask::Rename, 973),
    (Ask::MakeDirectory, 5),
];
const RES_DAY_RECORDS: u64 = 1_745_176;

/// INS, in units of 10,000 operations of the thirtyfold trace: opens 1,196.37, closes 1,215.33, stats
/// 4,076.58 million, as published. Stats are divided among names and open files as in RES; what is not
/// published comes as often per open as in RES.
const INS: &[(Ask, u64)] = &[
    (Ask::Lookup, 213_958),
    (Ask::LookupOpen, 193_700),
    (Ask::Close, 121_533),
    (Ask::Open, 119_637),
    (Ask::List, 32_056),
    (Ask::Remove, 4_863),
    (Ask::Create, 1_877),
    (Ask::Rename, 1_470),
    (Ask::MakeDirectory, 8),
];
/// What the recording of INS has of them all, in 31 days.
const INS_PERIOD_NS: u64 = period_ns(689_102 * 10_000 / 30, 31 * 24);

const EVEN: HotPercent = HotPercent(0);
const CONCENTRATED: HotPercent = HotPercent(70);

/// A tenth of the lookups are of directories, where nothing is published.
const fn mixed(cards: Cards, period_ns: u64, hot_percent: HotPercent) -> Mixture {
    Mixture { cards, period_ns, directories_percent: 10, hot_percent, drift: None }
}

/// All of them.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "msn",
        about: "MSN storage server: create 8, lookup 90, update 2 %; use concentrates on two subtrees",
        source: "AngleCut, tables 3 and 4, section 7.3",
        clients: 30,
        skew: Some(1.1),
        behaviour: Behaviour::Mixed(mixed(Cards::Mix(&Mix::MSN), period_ns(26_657_063, 6), CONCENTRATED)),
    },
    Workload {
        name: "devtools",
        about: "Development Tools Release: create 11, lookup 82, update 7 %; use is spread over the tree",
        source: "AngleCut, tables 3 and 4, section 7.3",
        clients: 30,
        skew: Some(1.02),
        behaviour: Behaviour::Mixed(mixed(Cards::Mix(&Mix::DEVTOOLS), period_ns(17_952_090, 24), EVEN)),
    },
    Workload {
        name: "livemaps",
        about: "Live Maps back end: create 9, lookup 83, update 8 %; use concentrates on two subtrees",
        source: "AngleCut, tables 3 and 4, section 7.3",
        clients: 30,
        skew: Some(1.1),
        behaviour: Behaviour::Mixed(mixed(
            Cards::Mix(&Mix::LIVEMAPS),
            period_ns(44_755_552, 24),
            CONCENTRATED,
        )),
    },
    Workload {
        name: "hp",
        about: "HP file system trace: 94.7 million requests of 32 users in 10 days; kinds as in res",
        source: "G-HBA, table 4 and section 4; its kinds are chosen",
        clients: 32,
        skew: Some(1.05),
        behaviour: Behaviour::Mixed(mixed(Cards::Counts(RES_DAY), period_ns(94_700_000, 240), EVEN)),
    },
    Workload {
        name: "res",
        about: "research workstations: a day of 1,745,176 calls, nine tenths of them stats, half of open files",
        source: "the day of RES as its authors published it; hosts: G-HBA, table 3",
        clients: 13,
        skew: Some(1.05),
        behaviour: Behaviour::Mixed(mixed(Cards::Counts(RES_DAY), period_ns(RES_DAY_RECORDS, 24), EVEN)),
    },
    Workload {
        name: "ins",
        about: "instructional workstations: open 18, close 19, stat 63 of 100 published calls",
        source: "G-HBA, table 3; kinds that it does not give as in res",
        clients: 19,
        skew: Some(1.05),
        behaviour: Behaviour::Mixed(mixed(Cards::Counts(INS), INS_PERIOD_NS, EVEN)),
    },
    Workload {
        name: "spotify",
        about: "a Hadoop cluster: read 68.7, stat 17, list 9 %, the rest changes",
        source: "HopsFS, table 1; its rate is chosen",
        clients: 100,
        skew: Some(1.05),
        behaviour: Behaviour::Mixed(Mixture {
            // 3.96 of the 17 % that are stats.
            directories_percent: 23,
            ..mixed(Cards::Mix(&Mix::SPOTIFY), 100_000, EVEN)
        }),
    },
    Workload {
        name: "metaflow",
        about: "20 % get, 80 % put, 500,000 a second",
        source: "MetaFlow, evaluation: the ratio, 500 clients, the load in the background",
        clients: 500,
        skew: Some(1.02),
        behaviour: Behaviour::Mixed(Mixture {
            directories_percent: 0,
            ..mixed(Cards::Counts(&[(Ask::Create, 80), (Ask::Lookup, 20)]), 2_000, EVEN)
        }),
    },
    Workload {
        name: "mdtest-easy",
        about: "each client in its own directory: create all, stat all, remove all; empty files",
        source: "IO500, its phases of mdtest-easy; 10 clients as in its list of ten nodes",
        clients: 10,
        skew: None,
        behaviour: Behaviour::Mdtest(Variant::Easy),
    },
    Workload {
        name: "mdtest-hard",
        about: "all clients in one directory: create, stat, read, remove; files of 3,901 bytes",
        source: "IO500, its phases of mdtest-hard; 10 clients as in its list of ten nodes",
        clients: 10,
        skew: None,
        behaviour: Behaviour::Mdtest(Variant::Hard),
    },
    Workload {
        name: "loader",
        about: "training on a million files: every client uses all of them in each epoch, in a new order",
        source: "chosen after data sets of images: 732 to 1,300 files in each class",
        clients: 8,
        skew: None,
        behaviour: Behaviour::Loader,
    },
    Workload {
        name: "drift",
        about: "the mix of msn; what is popular moves, file by file and from subtree to subtree",
        source: "chosen",
        clients: 30,
        skew: Some(1.1),
        behaviour: Behaviour::Mixed(Mixture {
            drift: Some(Drift { rank_interval: 1_000, subtree_interval: 100_000 }),
            ..mixed(Cards::Mix(&Mix::MSN), period_ns(26_657_063, 6), HotPercent(50))
        }),
    },
];
