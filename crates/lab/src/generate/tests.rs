//! Laws of all workloads, and what each of them is made for.

use super::*;
use crate::trace::{HEADER, Kind, Reader, line_of};
use bearing_workload::{Mix, MixKind};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn generate(name: &str, options: Options) -> Generator {
    Workload::named(name).expect("a known name").generate(options).expect("options within bounds")
}

fn small(operations: u64, seed: u64) -> Options {
    Options { seed, tree: Tree::Files(2_000), ..Options::new(operations) }
}

/// Options with which every workload runs, on a small tree if it has one.
fn fitting(workload: &Workload, operations: u64, seed: u64) -> Options {
    match workload.name.starts_with("mdtest") {
        true => Options { seed, ..Options::new(operations) },
        false => small(operations, seed),
    }
}

fn kinds(events: impl Iterator<Item = Event>) -> BTreeMap<Kind, u64> {
    let mut kinds = BTreeMap::new();
    events.for_each(|event| *kinds.entry(event.kind).or_default() += 1);
    kinds
}

fn uses(events: impl Iterator<Item = Event>) -> BTreeMap<String, u64> {
    let mut uses = BTreeMap::new();
    events.for_each(|event| *uses.entry(event.path).or_default() += 1);
    uses
}

/// A tree as a set of paths: slow and obvious.
#[derive(Default)]
struct Oracle {
    directories: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Oracle {
    fn starting(generator: &Generator) -> Oracle {
        let mut oracle = Oracle::default();
        oracle.directories.insert("/".to_owned());
        for entry in generator.start() {
            oracle.make(&entry.path, entry.kind == StartKind::Directory).expect("it starts as a tree");
        }
        oracle
    }

    fn make(&mut self, path: &str, directory: bool) -> Result<(), String> {
        let (parent, name) = path.rsplit_once('/').ok_or("it does not begin with /")?;
        let parent = if parent.is_empty() { "/" } else { parent };
        if name.is_empty() || !self.directories.contains(parent) {
            return Err("its directory is not there".to_owned());
        }
        let known = self.directories.contains(path) || self.files.contains(path);
        let names = if directory { &mut self.directories } else { &mut self.files };
        if known || !names.insert(path.to_owned()) {
            return Err("it is there already".to_owned());
        }
        Ok(())
    }

    fn replay(&mut self, event: &Event) -> Result<(), String> {
        let path = event.path.as_str();
        let is = |there: bool| if there { Ok(()) } else { Err("it is not there".to_owned()) };
        if event.to.is_some() != (event.kind == Kind::Rename) {
            return Err("a new name".to_owned());
        }
        match event.kind {
            Kind::Lookup => is(self.files.contains(path) || self.directories.contains(path)),
            Kind::List => is(self.directories.contains(path)),
            Kind::Open | Kind::Close | Kind::Update | Kind::Read | Kind::Write => {
                is(self.files.contains(path))
            }
            Kind::Create => self.make(path, false),
            Kind::MakeDirectory => self.make(path, true),
            Kind::Remove => is(self.files.remove(path)),
            Kind::Rename => {
                is(self.files.remove(path))?;
                self.make(event.to.as_deref().unwrap_or_default(), false)
            }
            Kind::RemoveDirectory | Kind::Link => Err("nobody does this".to_owned()),
        }
    }
}

/// Replays a whole trace, and says what it had.
fn replayed(name: &str, options: Options) -> Result<BTreeMap<Kind, u64>, String> {
    let (clients, copies) = (options.clients, options.intensify);
    let clients = clients.unwrap_or(Workload::named(name).map_err(|error| error.to_string())?.clients);
    let mut generator = generate(name, options);
    let mut oracle = Oracle::starting(&generator);
    let (mut left, mut last_us, mut kinds) = (generator.left(), 0, BTreeMap::new());
    while let Some(event) = generator.next() {
        oracle.replay(&event).map_err(|why| format!("{name}: {event:?}: {why}"))?;
        left -= 1;
        if generator.left() != left || event.at_us < last_us {
            return Err(format!("{name}: {left} were left before {event:?}, the last was at {last_us}"));
        }
        if event.client >= u64::from(clients) * u64::from(copies) {
            return Err(format!("{name}: {event:?} is of no client"));
        }
        last_us = event.at_us;
        *kinds.entry(event.kind).or_default() += 1;
    }
    Ok(kinds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn what_is_used_is_there(seed: u64, copies in 1..3u32, clients in 1..40u32) {
        for workload in WORKLOADS {
            let options = Options { intensify: copies, clients: Some(clients), ..fitting(workload, 3_000, seed) };
            let kinds = replayed(workload.name, options).map_err(TestCaseError::fail)?;
            prop_assert!(!kinds.is_empty());
        }
    }

    #[test]
    fn any_shape_will_do(
        seed: u64,
        directories in prop::collection::vec((0..40u32, 0..4u32), 0..40),
        name in prop::sample::select(vec!["msn", "res", "spotify", "loader", "drift"]),
    ) {
        let mut builder = ShapeBuilder::default();
        builder.files(ShapeBuilder::ROOT, 1).expect("few");
        for (number, (parent, files)) in (1..).zip(directories) {
            let added = builder.directory(DirectoryNumber(parent % number)).expect("shallow");
            builder.files(added, files).expect("few");
        }
        let tree = Tree::Scanned(builder.finish());
        let options = Options { seed, tree, ..Options::new(2_000) };
        replayed(name, options).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn many_changes_stay_consistent() {
    // Names are made again, moved, removed while they are open: more often than in short traces.
    for name in ["res", "spotify", "ins"] {
        let tree = Tree::Files(if name == "spotify" { 300 } else { 3_000 });
        let kinds = replayed(name, Options { tree, ..Options::new(150_000) }).expect("consistent");
        assert!(kinds[&Kind::Remove] > 200 && kinds[&Kind::Rename] > 50, "{name}: {kinds:?}");
    }
    let events = generate("spotify", small(60_000, 1));
    let mut made = BTreeMap::<String, u32>::new();
    events
        .filter(|event| event.kind == Kind::Create)
        .for_each(|event| *made.entry(event.path).or_default() += 1);
    assert!(made.values().any(|times| *times > 1), "no name is made again");
}

#[test]
fn a_seed_gives_the_same_bytes_and_another_seed_others() {
    for workload in WORKLOADS {
        let text = |seed| {
            let events = workload.generate(fitting(workload, 2_000, seed)).expect("within bounds");
            events.map(|event| line_of(&event) + "\n").collect::<String>()
        };
        assert_eq!(text(7), text(7), "{}", workload.name);
        // Nothing of mdtest is drawn.
        assert_eq!(text(7) == text(8), workload.name.starts_with("mdtest"), "{}", workload.name);
    }
}

/// A change of this makes other traces: every figure that was drawn with them has to be drawn anew.
#[test]
fn generated_traces_are_those_that_were_written_down() {
    let hash = |name| {
        let text: String = generate(name, small(50_000, 1)).map(|event| line_of(&event) + "\n").collect();
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    };
    let hashes = ["res", "msn", "drift", "loader"].map(hash);
    assert_eq!(hashes, [17846076570578725209, 2042326920905789213, 7796759601788161888, 7892019348850026290]);
}

#[test]
fn what_is_written_is_read_as_a_plain_trace() {
    let events: Vec<Event> = generate("spotify", small(5_000, 3)).collect();
    let lines = std::iter::once(HEADER.to_owned()).chain(events.iter().map(line_of));
    let text: String = lines.map(|line| line + "\n").collect();
    let mut reader = Reader::new(text.as_bytes(), None).expect("a trace");
    let zero = events[0].at_us;
    for event in events {
        let read = reader.next_event().expect("memory can be read").expect("as many as were written");
        assert_eq!(read, Event { at_us: event.at_us - zero, ..event });
    }
    assert_eq!((reader.tally().malformed, reader.next_event().expect("memory can be read")), (0, None));
}

#[test]
fn shares_are_the_published_ones() {
    let of = |kind| match kind {
        MixKind::Create => Kind::Create,
        MixKind::Stat => Kind::Lookup,
        MixKind::Update | MixKind::Append => Kind::Update,
        MixKind::List => Kind::List,
        MixKind::Open => Kind::Open,
        MixKind::Remove => Kind::Remove,
        MixKind::Rename => Kind::Rename,
        MixKind::MakeDirectory => Kind::MakeDirectory,
    };
    for mix in Mix::ALL {
        let operations = 54_321;
        let kinds = kinds(generate(mix.name, Options::new(operations)));
        for (part, _) in mix.parts {
            let published: u32 =
                mix.parts.iter().filter(|(kind, _)| of(*kind) == of(*part)).map(|(_, weight)| weight).sum();
            let share = kinds[&of(*part)] as f64 * 100.0 / operations as f64;
            let error = (share - f64::from(published) / 100.0).abs();
            assert!(error < 0.5, "{}: {part:?} is {share} %", mix.name);
        }
    }
    let kinds = kinds(generate("metaflow", small(10_000, 1)));
    assert_eq!(kinds, BTreeMap::from([(Kind::Create, 8_000), (Kind::Lookup, 2_000)]));
}

#[test]
fn a_day_of_res_has_exactly_the_published_counts() {
    let mut generator = generate("res", Options::new(1_745_176));
    let mut last_us = 0;
    let kinds = kinds(generator.by_ref().inspect(|event| last_us = event.at_us));
    let stats = 804_048 + 727_905 + 13_848 + 12_644;
    let published = [
        (Kind::Lookup, stats),
        (Kind::Open, 79_163),
        (Kind::Close, 80_919),
        (Kind::List, 21_211),
        (Kind::Remove, 3_218),
        (Kind::Create, 1_242),
        (Kind::Rename, 973),
        (Kind::MakeDirectory, 5),
    ];
    assert_eq!(kinds, BTreeMap::from(published));
    let day_us = 86_400_000_000u64;
    assert!(last_us.abs_diff(day_us) < day_us / 10_000, "the last one is at {last_us}");
}

#[test]
fn ins_has_the_published_ratios() {
    let kinds = kinds(generate("ins", Options::new(689_102)));
    assert_eq!((kinds[&Kind::Open], kinds[&Kind::Close]), (119_637, 121_533));
    assert_eq!(kinds[&Kind::Lookup], 407_658);
}

#[test]
fn the_rate_is_that_of_the_recording() {
    for (name, records, hours) in [
        ("msn", 26_657_063u64, 6u64),
        ("devtools", 17_952_090, 24),
        ("livemaps", 44_755_552, 24),
        ("hp", 94_700_000, 240),
    ] {
        let operations = 20_000;
        let last_us = generate(name, small(operations, 1)).last().expect("some").at_us;
        let expected = operations * hours * 3_600_000_000 / records;
        assert!(last_us.abs_diff(expected) < expected / 1000, "{name}: {last_us}, not {expected}");
    }
}

#[test]
fn a_larger_exponent_makes_use_more_uneven() {
    let share = |skew| {
        let options = Options { skew: Some(skew), ..small(40_000, 5) };
        let uses = uses(generate("devtools", options).filter(|event| event.kind == Kind::Update));
        let mut counts: Vec<u64> = uses.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.iter().take(10).sum::<u64>() as f64 / counts.iter().sum::<u64>() as f64
    };
    let (flat, usual, steep) = (share(0.1), share(1.02), share(1.5));
    // Zipf: of 2,000 files, the first ten have 35 % at 1.02 and 78 % at 1.5, and nine tenths of uses are by
    // it.
    assert!(
        flat < 0.08 && (0.25..0.40).contains(&usual) && (0.60..0.80).contains(&steep),
        "{flat} {usual} {steep}"
    );
}

#[test]
fn use_concentrates_on_two_subtrees_where_the_paper_says_so() {
    // What the two most used directories of any depth that have at most a fifth of the files have of all
    // uses.
    let share = |name| {
        let options = Options { tree: Tree::Files(20_000), ..Options::new(30_000) };
        let generator = generate(name, options);
        let mut files = BTreeMap::<String, u64>::new();
        let above = |path: &str| {
            let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
            ends.into_iter().map(|end| path[..end].to_owned()).collect::<Vec<_>>()
        };
        for entry in generator.start().filter(|entry| entry.kind == StartKind::File) {
            above(&entry.path).into_iter().for_each(|path| *files.entry(path).or_default() += 1);
        }
        let mut uses = BTreeMap::<String, u64>::new();
        for event in generator.filter(|event| event.kind == Kind::Update || event.kind == Kind::Lookup) {
            above(&event.path).into_iter().for_each(|path| *uses.entry(path).or_default() += 1);
        }
        let mut small: Vec<(u64, String)> = uses
            .into_iter()
            .filter(|(path, _)| files.get(path).is_some_and(|f| *f <= 4_000))
            .map(|(p, u)| (u, p))
            .collect();
        small.sort();
        let (most, first) = small.pop().expect("some");
        let apart =
            |(_, path): &&(u64, String)| !path.starts_with(&first) && !first.starts_with(path.as_str());
        let second = small.iter().rev().find(apart).map_or(0, |(uses, _)| *uses);
        (most + second) as f64 / 30_000.0
    };
    assert!(share("msn") > 0.6 && share("livemaps") > 0.6, "{} {}", share("msn"), share("livemaps"));
    assert!(share("devtools") < 0.45, "{}", share("devtools"));
}

#[test]
fn drift_moves_what_is_hot() {
    // The ten most used paths of the beginning, and how much they are used then and later.
    let shares = |name| {
        let files = Options { tree: Tree::Files(20_000), ..Options::new(300_000) };
        let events: Vec<String> = generate(name, files).map(|event| event.path).collect();
        let count = |events: &[String]| {
            let mut uses = BTreeMap::<String, u64>::new();
            events.iter().for_each(|path| *uses.entry(path.clone()).or_default() += 1);
            uses
        };
        let (first, last) = (count(&events[..10_000]), count(&events[290_000..]));
        let mut ranked: Vec<(&u64, &String)> = first.iter().map(|(path, uses)| (uses, path)).collect();
        ranked.sort();
        let hot: Vec<&String> = ranked.iter().rev().take(10).map(|(_, path)| *path).collect();
        let used = |uses: &BTreeMap<String, u64>| hot.iter().filter_map(|path| uses.get(*path)).sum::<u64>();
        (used(&first), used(&last))
    };
    let (before, after) = shares("drift");
    assert!(after * 5 < before, "{before} uses of 10,000, then {after}");
    let (before, after) = shares("msn");
    assert!(after * 10 > before * 7, "{before} uses of 10,000, then {after}");
}

#[test]
fn a_loader_visits_each_file_once_an_epoch_in_a_new_order() {
    let (files, clients, epochs) = (700, 3, 2);
    let options = Options {
        tree: Tree::Files(files),
        clients: Some(clients),
        ..Options::new(files * 3 * u64::from(clients) * epochs)
    };
    let generator = generate("loader", options);
    let all: BTreeSet<String> =
        generator.start().filter(|entry| entry.kind == StartKind::File).map(|entry| entry.path).collect();
    assert_eq!(all.len() as u64, files);
    let mut orders = BTreeMap::<u64, Vec<String>>::new();
    let mut visits = BTreeMap::<u64, Vec<(Kind, String)>>::new();
    for event in generator {
        visits.entry(event.client).or_default().push((event.kind, event.path));
    }
    for (client, visits) in visits {
        for visit in visits.chunks(3) {
            assert_eq!([visit[0].0, visit[1].0, visit[2].0], [Kind::Lookup, Kind::Open, Kind::Close]);
            assert!(visit[0].1 == visit[1].1 && visit[1].1 == visit[2].1);
            orders.entry(client).or_default().push(visit[0].1.clone());
        }
    }
    let epochs: Vec<&[String]> = orders.values().flat_map(|order| order.chunks(files as usize)).collect();
    assert_eq!(epochs.len(), 6);
    for (at, epoch) in epochs.iter().enumerate() {
        assert!(epoch.iter().cloned().collect::<BTreeSet<_>>() == all);
        assert!(!epochs[..at].contains(epoch), "an order comes again");
        assert!(!epoch.is_sorted(), "it is no order of its own");
    }
}

#[test]
fn mdtest_has_the_phases_of_io500() {
    for (name, per_file, directories) in [("mdtest-easy", 4, 5), ("mdtest-hard", 8, 1)] {
        let options = || Options { clients: Some(4), ..Options::new(4 * 10 * per_file + 3) };
        let generator = generate(name, options());
        assert_eq!((generator.left(), generator.start().count()), (4 * 10 * per_file, directories));
        let events: Vec<Event> = generator.collect();
        let mut phases: Vec<Kind> = events.iter().map(|event| event.kind).collect();
        phases.retain(|kind| matches!(kind, Kind::Create | Kind::Lookup | Kind::Read | Kind::Remove));
        phases.dedup();
        let easy = [Kind::Create, Kind::Lookup, Kind::Remove];
        let hard = [Kind::Create, Kind::Lookup, Kind::Read, Kind::Remove];
        let expected = if name == "mdtest-easy" { &easy[..] } else { &hard[..] };
        // Steps of a file alternate with closes only: each phase is one run of its kind.
        assert_eq!(phases, expected, "{name}");
        let by = |kind, client| {
            let of = events.iter().filter(move |event| event.kind == kind && event.client == client);
            of.map(|event| event.path.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(by(Kind::Create, 1).len(), 10);
        assert_eq!((by(Kind::Create, 1), by(Kind::Create, 3)), (by(Kind::Lookup, 0), by(Kind::Remove, 0)));
        let parents: BTreeSet<&str> =
            events.iter().filter_map(|event| event.path.rsplit_once('/')).map(|(parent, _)| parent).collect();
        assert_eq!(parents.len(), if name == "mdtest-easy" { 4 } else { 1 });
        let mut oracle = Oracle::starting(&generate(name, options()));
        events.iter().for_each(|event| oracle.replay(event).expect("consistent"));
        assert!(oracle.files.is_empty());
    }
}

#[test]
fn copies_are_apart_and_keep_the_histogram() {
    let options = |intensify| Options { intensify, clients: Some(5), ..small(5_000, 9) };
    let one: Vec<Event> = generate("res", options(1)).collect();
    let generator = generate("res", options(3));
    let start = generator.start().count();
    assert_eq!(start, 3 * (generate("res", options(1)).start().count() + 1));
    let mut copies = vec![Vec::new(); 3];
    for event in generator {
        let copy = (event.client / 5) as usize;
        copies[copy].push(event);
    }
    for (number, copy) in copies.into_iter().enumerate() {
        let top = format!("/copy-{number}");
        let own = |path: &str| {
            let rest = path.strip_prefix(&top).expect("in its own directory");
            if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }
        };
        let stripped = copy.into_iter().map(|event| Event {
            client: event.client % 5,
            path: own(&event.path),
            to: event.to.as_deref().map(own),
            ..event
        });
        assert!(stripped.eq(one.iter().cloned()), "copy {number} is another trace");
    }
}

#[test]
fn a_name_finds_its_workload_and_an_unknown_one_the_names() {
    for workload in WORKLOADS {
        assert_eq!(Workload::named(workload.name).expect("known").name, workload.name);
        assert!(!workload.about.is_empty() && !workload.source.is_empty());
    }
    let error = Workload::named("mns").expect_err("unknown").to_string();
    assert_eq!(
        error,
        "no workload is called \"mns\"; give one of msn, devtools, livemaps, hp, res, ins, spotify, metaflow, \
         mdtest-easy, mdtest-hard, loader, drift"
    );
}

#[test]
fn options_out_of_bounds_are_refused_with_value_and_bound() {
    let refused = |name: &str, options: Options| {
        Workload::named(name).expect("known").generate(options).expect_err("out of bounds").to_string()
    };
    let scanned = Tree::Scanned(ShapeBuilder::default().finish());
    let base = || small(1_000, 1);
    for (name, options, said) in [
        ("msn", Options { operations: 0, ..base() }, "operations may not be 0; give 1 to 1,000,000,000"),
        ("msn", Options { clients: Some(0), ..base() }, "clients may not be 0; give 1 to 1,000,000"),
        ("msn", Options { intensify: 0, ..base() }, "intensify may not be 0; give 1 to 10,000"),
        ("msn", Options { skew: Some(0.0), ..base() }, "skew may not be 0; give 0.1 to 4"),
        ("msn", Options { skew: Some(f64::NAN), ..base() }, "skew may not be NaN; give 0.1 to 4"),
        (
            "loader",
            Options { skew: Some(1.0), ..base() },
            "skew may not be 1; give none: no file of this workload is more popular",
        ),
        (
            "msn",
            Options { tree: Tree::Files(200_000_000), ..base() },
            "files of the tree may not be 200000000; give 1 to 100,000,000",
        ),
        (
            "loader",
            Options { tree: scanned, ..base() },
            "files of the tree may not be 0; give 1 to 100,000,000",
        ),
        ("mdtest-hard", base(), "tree may not be given; give none: mdtest makes all of its files"),
        (
            "mdtest-hard",
            Options::new(79),
            "operations may not be 79; give at least one file for each client, of 4 operations in the easy \
             one, 8 in the hard one",
        ),
    ] {
        assert_eq!(refused(name, options), said);
    }
}
