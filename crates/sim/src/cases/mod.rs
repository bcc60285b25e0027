//! Crash cases: one or two operations, inside or outside a delegated directory, and a cut at each sync
//! boundary that they meet.
//!
//! A sequence is run once without a cut to count its boundaries; then once for each boundary and each kind of
//! cut. The same seed makes the same happenings up to the cut. After it everything starts again and is held
//! to all promises, as any other run. A case has a name that runs it again.

mod step;
mod tally;

use crate::audit::Audit;
use crate::boundary::Cut;
use crate::clock::{MILLISECOND, SECOND};
use crate::complaint::Promise;
use crate::options::Options;
use crate::program::Program;
use crate::sim::{Report, Sim, panicked};
use bearing_client::{Found, Operation};
use bearing_placement::Scheme;
use bearing_proto::client::Handle;
use bearing_workload::Seeded;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use step::{Doing, Places, Step};

pub use tally::{BrokenCase, Tally};

/// The client that works.
const WORKER: usize = 1;
/// Another one.
const BYSTANDER: usize = 0;
/// Clients of a case.
const CLIENTS: u8 = 2;
/// How long an operation may take with all that goes wrong.
const STEP_MAX: u64 = 90 * SECOND;
/// After the last operation: what goes on by itself meets boundaries too.
const AFTERWARDS: u64 = 300 * MILLISECOND;

/// Operations that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    steps: Vec<Step>,
    /// Whether the directory is delegated to the client that works.
    inside: bool,
    seed: u64,
}

/// A sequence that is cut somewhere, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    sequence: Sequence,
    cut: Option<(u32, Cut)>,
}

/// What came of a case.
pub struct Outcome {
    /// Boundaries that were met, up to the cut.
    pub boundaries: u32,
    /// What the run gave.
    pub report: Report,
}

impl Sequence {
    /// All of one operation, inside and outside; then so many of two as are drawn.
    pub fn all(pairs: usize, from: u64) -> Vec<Sequence> {
        let mut rng = Seeded::new(from ^ 0xca5e);
        let mut sequences = Vec::new();
        for (_, step) in Step::ALL {
            for inside in [false, true] {
                sequences.push(Sequence { steps: vec![step], inside, seed: from + sequences.len() as u64 });
            }
        }
        for _ in 0..pairs {
            let mut draw = || Step::ALL[rng.below(Step::ALL.len() as u64) as usize].1;
            let steps = vec![draw(), draw()];
            let inside = rng.chance(1, 2);
            sequences.push(Sequence { steps, inside, seed: from + sequences.len() as u64 });
        }
        sequences
    }

    /// The run that counts its boundaries.
    pub fn uncut(&self) -> Case {
        Case { sequence: self.clone(), cut: None }
    }

    /// One case for each boundary and kind of cut.
    pub fn cut_at_each(&self, boundaries: u32) -> impl Iterator<Item = Case> + '_ {
        let cuts = (0..boundaries).flat_map(|at| Cut::ALL.map(|cut| (at, cut)));
        cuts.map(|cut| Case { sequence: self.clone(), cut: Some(cut) })
    }
}

impl Case {
    /// The case of a name.
    pub fn named(name: &str) -> Option<Case> {
        let (steps, rest) = name.split_once('/')?;
        let (place, rest) = rest.split_once('/')?;
        let (seed, cut) = rest.split_once('/')?;
        let steps = steps.split('+').map(Step::named).collect::<Option<Vec<Step>>>()?;
        let inside = match place {
            "inside" => true,
            "outside" => false,
            _ => return None,
        };
        let cut = match cut.split_once('@') {
            None if cut == "uncut" => None,
            None => return None,
            Some((kind, at)) => {
                let kind = Cut::ALL.into_iter().find(|cut| cut.to_string() == kind)?;
                Some((at.parse().ok()?, kind))
            }
        };
        Some(Case { sequence: Sequence { steps, inside, seed: seed.parse().ok()? }, cut })
    }

    /// Whether its directory is delegated.
    pub fn is_inside(&self) -> bool {
        self.sequence.inside
    }

    /// How it is cut.
    pub fn cut(&self) -> Option<Cut> {
        self.cut.map(|(_, cut)| cut)
    }

    /// Runs it; a panic is a broken promise.
    pub fn run_caught(&self, options: &Options) -> Outcome {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run(options)));
        outcome
            .unwrap_or_else(|panic| Outcome { boundaries: 0, report: panicked(self.sequence.seed, &*panic) })
    }

    /// Runs it.
    pub fn run(&self, options: &Options) -> Outcome {
        let sequence = &self.sequence;
        let mut rng = Seeded::new(sequence.seed ^ 0x5e9);
        let scheme = if sequence.inside || rng.chance(3, 4) { Scheme::AnglecutHashed } else { Scheme::Hash };
        let options = Options { scheme: Some(scheme), ..options.clone() };
        let mut sim = Sim::with_clients(sequence.seed, &options, Some(CLIENTS));
        sim.clients[WORKER].always_delegates = sequence.inside;
        // Servers wait for late commits of what was decided: longer than any of them is away.
        sim.world.delegations = sequence.inside;
        sim.boot();
        let mut audit = Audit::new();
        let mut boundaries = 0;
        if let Some(directory) = audit.prepare_one(&mut sim, "d")
            && let Some(places) = prepare(&mut sim, directory, rng.chance(1, 2))
        {
            // Which part of what was not synced is kept, and how long all is down, differs from cut to cut.
            let (at, kind) = self.cut.map_or((0, 0), |(at, cut)| (at, cut as u64));
            sim.fork_faults(sequence.seed.wrapping_mul(1_000_003) + u64::from(at) * 8 + kind);
            sim.world.boundaries.count(self.cut);
            work(&mut sim, &sequence.steps, places);
            boundaries = sim.world.boundaries.end();
            sim.heal();
            audit.finish(&mut sim);
        }
        Outcome { boundaries, report: sim.report(sequence.seed) }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sequence { steps, inside, seed } = &self.sequence;
        let steps: Vec<&str> = steps.iter().map(|step| step.name()).collect();
        let place = if *inside { "inside" } else { "outside" };
        write!(f, "{}/{place}/{seed}/", steps.join("+"))?;
        match self.cut {
            None => write!(f, "uncut"),
            Some((at, cut)) => write!(f, "{cut}@{at}"),
        }
    }
}

/// What the sequences begin with, all of it synced. Two changes come first: after these the directory is
/// asked for. What is made before it is lent is not the client's own, what is made after is; both have to
/// work.
fn prepare(sim: &mut Sim, directory: Handle, own: bool) -> Option<Places> {
    let mut made = Vec::new();
    for called in ["x", "y0"] {
        made.push(must(sim, Program::new(step::create(directory, called)))?);
    }
    if own {
        sim.run_for(100 * MILLISECOND);
    }
    let a = must(sim, Program::new(step::create(directory, "a")))?;
    let b = must(sim, Program::new(step::create(directory, "b")))?;
    let s = must(sim, Program::new(step::make_directory(directory, "s")))?;
    for (file, number) in [(a, 1), (b, 2)] {
        perform(sim, WORKER, step::write_new(file, step::BASE_BYTES, number));
    }
    ask(sim, Operation::SyncAll);
    sim.run_for(100 * MILLISECOND);
    Some(Places { directory, file: a, a, b, s })
}

/// One step after the other. Who lives after the cut goes on.
fn work(sim: &mut Sim, steps: &[Step], mut places: Places) {
    let host = sim.clients[WORKER].host;
    let life = sim.world.life(host);
    for (number, step) in (3..).zip(steps) {
        match step.doing(&places, number) {
            Doing::Work(program) => {
                let found = perform(sim, WORKER, program);
                if let (Some(found), Step::Create) = (found, step) {
                    places.file = found.node;
                }
            }
            Doing::MakeAndWrite(program) => {
                if let Some(found) = perform(sim, WORKER, program) {
                    places.file = found.node;
                    if sim.world.life(host) == life {
                        perform(sim, WORKER, step::write_new(found.node, 600, number));
                    }
                }
            }
            Doing::SyncNames => ask(sim, Operation::SyncNames),
            Doing::SyncAll => ask(sim, Operation::SyncAll),
            Doing::Look(program) => {
                perform(sim, BYSTANDER, program);
            }
        }
        if sim.world.life(host) != life {
            break;
        }
    }
    sim.run_for(AFTERWARDS);
}

/// Runs a program of a client to its end, or to the client's.
fn perform(sim: &mut Sim, client: usize, program: Program) -> Option<Found> {
    let Sim { clients, world, .. } = sim;
    clients[client].perform(world, program);
    wait(sim, client);
    sim.clients[client].last_found
}

fn ask(sim: &mut Sim, operation: Operation) {
    let Sim { clients, world, recorder, .. } = sim;
    clients[WORKER].ask(world, recorder, operation);
    wait(sim, WORKER);
    while sim.clients[WORKER].take_finished().is_some() {}
}

fn wait(sim: &mut Sim, client: usize) {
    let host = sim.clients[client].host;
    let life = sim.world.life(host);
    let end = sim.world.now().0 + STEP_MAX;
    sim.run_until(end, |sim| sim.world.life(host) != life || sim.clients[client].is_idle());
}

fn must(sim: &mut Sim, program: Program) -> Option<Handle> {
    let found = perform(sim, WORKER, program);
    if found.is_none() && sim.ledger.complaints.is_empty() {
        let what = "nothing is wrong yet, but a case cannot be prepared".to_owned();
        sim.ledger.blame(&sim.world, Promise::Works, what);
    }
    found.map(|found| found.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_found_again_by_its_name() {
        for sequence in Sequence::all(3, 7) {
            for case in sequence.cut_at_each(2).chain([sequence.uncut()]) {
                assert_eq!(Case::named(&case.to_string()), Some(case));
            }
        }
        assert_eq!(Case::named("create/inside/7/meteor@1"), None);
        assert_eq!(Case::named("create+nothing/inside/7/uncut"), None);
    }

    #[test]
    fn a_case_is_the_same_twice_and_its_cut_comes() {
        let options = Options::usual(0);
        let sequence = Sequence { steps: vec![Step::WriteSync], inside: false, seed: 5 };
        let uncut = sequence.uncut().run(&options);
        assert!(uncut.boundaries > 3 && uncut.report.violations.is_empty());
        let case = Case { sequence, cut: Some((3, Cut::Everything)) };
        let (first, second) = (case.run(&options), case.run(&options));
        assert_eq!((first.boundaries, first.report.hash), (4, second.report.hash));
        assert_eq!(first.report.counts.of("fault: cut of everything"), 1);
    }
}
