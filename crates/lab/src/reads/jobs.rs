//! Who reads what, and when.

use super::{Experiment, Room};
use bearing_routing::Place;
use bearing_workload::{Seeded, Zipf};

/// The skew of files' popularity.
const ZIPF: f64 = 1.1;
/// Sizes of others' flows: a normal distribution, cut (section VI.G), in MB.
const OTHERS: (f64, f64, f64, f64) = (96.0, 64.0, 32.0, 256.0);
/// Locality of others' flows.
const OTHERS_LOCALITY: [f64; 3] = [0.2, 0.3, 0.5];

/// What a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A flow of others.
    Others,
    /// A chunk that is written.
    Write,
}

/// One read, one flow of others, or one write.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// When it begins, in nanoseconds.
    pub at: u64,
    /// Who wants the bytes, or writes them.
    pub reader: Place,
    /// Who has them; others' flows have one source, and of what is written nobody has them yet.
    pub replicas: Vec<Place>,
    /// How many.
    pub bytes: u64,
    /// What it is.
    pub kind: Kind,
}

/// All reads and others' flows of an experiment, by time. The same for every selection.
pub fn jobs(experiment: &Experiment) -> Vec<Job> {
    let mut rng = Seeded::new(experiment.seed);
    let (mut placing, mut reading, mut others) = (rng.fork(1), rng.fork(2), rng.fork(3));
    let mut writing = rng.fork(4);
    let room = &experiment.room;
    let files: Vec<Vec<Place>> =
        (0..experiment.files * experiment.sets).map(|_| replicas(room, &mut placing)).collect();
    let popularity = Zipf::new(experiment.files, ZIPF);
    let hosts = f64::from(room.topology.places());
    let mut jobs = Vec::new();
    let mut at = 0.0;
    for _ in 0..experiment.reads {
        at += exponential(&mut reading, experiment.rate * hosts);
        let set = if experiment.sets > 1 { reading.below(experiment.sets) } else { 0 };
        let file = set * experiment.files + popularity.rank(&mut reading);
        let replicas = files[file as usize].clone();
        let reader = loop {
            let reader = reader(room, replicas[0], experiment.locality, &mut reading);
            // Who has a replica needs no network.
            if !replicas.contains(&reader) {
                break reader;
            }
        };
        jobs.push(Job { at: nanoseconds(at), reader, replicas, bytes: experiment.bytes, kind: Kind::Read });
    }
    let end = at;
    if let Some(traffic) = experiment.others {
        let mut at = exponential(&mut others, traffic.rate * hosts);
        while at < end {
            let source = Place(others.below(u64::from(room.topology.places())) as u32);
            let reader = reader(room, source, OTHERS_LOCALITY, &mut others);
            let bytes = (size(&mut others) * 1e6) as u64;
            jobs.push(Job { at: nanoseconds(at), reader, replicas: vec![source], bytes, kind: Kind::Others });
            at += exponential(&mut others, traffic.rate * hosts);
        }
    }
    if let Some(writes) = experiment.writes {
        let mut at = exponential(&mut writing, writes.rate * hosts);
        while at < end {
            let reader = Place(writing.below(u64::from(room.topology.places())) as u32);
            let (at_ns, replicas) = (nanoseconds(at), Vec::new());
            jobs.push(Job { at: at_ns, reader, replicas, bytes: experiment.bytes, kind: Kind::Write });
            at += exponential(&mut writing, writes.rate * hosts);
        }
    }
    jobs.sort_by_key(|job| job.at);
    jobs
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn exponential(rng: &mut Seeded, rate: f64) -> f64 {
    -(1.0 - rng.fraction()).ln() / rate
}

/// A normal draw (Box and Muller), drawn again until it is within the bounds.
fn size(rng: &mut Seeded) -> f64 {
    let (mean, deviation, low, high) = OTHERS;
    loop {
        let (radius, angle) =
            ((-2.0 * (1.0 - rng.fraction()).ln()).sqrt(), std::f64::consts::TAU * rng.fraction());
        let size = mean + deviation * radius * angle.cos();
        if (low..=high).contains(&size) {
            return size;
        }
    }
}

/// The first anywhere, the second in another rack of its pod, the third in another pod.
fn replicas(room: &Room, rng: &mut Seeded) -> Vec<Place> {
    let primary = Place(rng.below(u64::from(room.topology.places())) as u32);
    vec![primary, in_pod(room, primary, rng), elsewhere(room, primary, rng)]
}

fn reader(room: &Room, primary: Place, locality: [f64; 3], rng: &mut Seeded) -> Place {
    let drawn = rng.fraction();
    if drawn < locality[0] {
        in_rack(room, primary, rng)
    } else if drawn < locality[0] + locality[1] {
        in_pod(room, primary, rng)
    } else {
        elsewhere(room, primary, rng)
    }
}

/// Another host of the rack.
fn in_rack(room: &Room, of: Place, rng: &mut Seeded) -> Place {
    let start = of.0 / room.rack * room.rack;
    let index = rng.below(u64::from(room.rack - 1)) as u32;
    Place(start + (of.0 - start + 1 + index) % room.rack)
}

/// A host of the pod in another rack.
fn in_pod(room: &Room, of: Place, rng: &mut Seeded) -> Place {
    let (start, rack) =
        (of.0 / room.pod * room.pod, of.0 / room.rack * room.rack - of.0 / room.pod * room.pod);
    let index = rng.below(u64::from(room.pod - room.rack)) as u32;
    Place(start + (rack + room.rack + index) % room.pod)
}

/// A host of another pod.
fn elsewhere(room: &Room, of: Place, rng: &mut Seeded) -> Place {
    let (start, places) = (of.0 / room.pod * room.pod, room.topology.places());
    let index = rng.below(u64::from(places - room.pod)) as u32;
    Place((start + room.pod + index) % places)
}
