//! kill -9 of one metadata server at a time, under a client that works: how long the client feels it. The
//! supervisor starts the server again; a second mount has looked at everything, and is idle.
//!
//! A call that is under way, or begun, while the server is away is answered when it is back: the longest such
//! call is the outage. It is told apart how much of that the server took to be there again, and how much the
//! client to find it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Process};
use crate::draw::Draw;
use crate::stage::Stage;

/// Directories that the client works in: enough for each server to have some.
const DIRECTORIES: usize = 8;
/// After a start a server has to be sound for so long before it is killed: longer than the supervisor takes a
/// failure for one in a row.
const SOUND: Duration = Duration::from_secs(6);
/// How long an outage may take at all.
const OUTAGE_MAX: Duration = Duration::from_secs(30);
/// The median has to stay below this.
const MEDIAN_MAX: Duration = Duration::from_millis(500);

/// A call that took long, or the last one.
#[derive(Clone, Copy, Debug)]
struct Call {
    began: Instant,
    ended: Instant,
}

/// What one kill cost.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// Until a process was there again.
    started: Duration,
    /// Until the client's longest call was answered.
    felt: Duration,
}

/// Kills so often.
pub fn run(root: &Path, program: &Path, kills: u64, seed: u64) -> Result<()> {
    let stage = Stage::new(root.join("target/outages"), program.to_owned())?;
    let directory = stage.directory.join("cluster");
    let cluster = Cluster::new(program, directory.clone(), stage.make("mnt")?, &stage.directory);
    let idle = Cluster::new(program, directory, stage.make("idle")?, &stage.directory);
    let outages = kill_each(&cluster, &idle, kills, seed);
    let _forgotten = idle.unmount();
    if outages.is_err() {
        cluster.show_logs();
    }
    judge(outages?)
}

fn judge(mut outages: Vec<Outage>) -> Result<()> {
    let at = |sorted: &[Duration], percent: usize| sorted[(sorted.len() - 1) * percent / 100].as_millis();
    outages.sort_by_key(|outage| outage.started);
    let started: Vec<Duration> = outages.iter().map(|outage| outage.started).collect();
    let mut rest: Vec<Duration> =
        outages.iter().map(|outage| outage.felt.saturating_sub(outage.started)).collect();
    rest.sort();
    let mut felt: Vec<Duration> = outages.iter().map(|outage| outage.felt).collect();
    felt.sort();
    println!("{} kills, in milliseconds: median, p99, longest", outages.len());
    for (what, sorted) in [("outage", &felt), ("until a process is there", &started), ("from then on", &rest)]
    {
        println!("  {what}: {}, {}, {}", at(sorted, 50), at(sorted, 99), at(sorted, 100));
    }
    let median = felt[(felt.len() - 1) / 2];
    if median >= MEDIAN_MAX {
        bail!("the median of {} outages is {median:?}, not below {MEDIAN_MAX:?}", outages.len());
    }
    Ok(())
}

fn kill_each(cluster: &Cluster, idle: &Cluster, kills: u64, seed: u64) -> Result<Vec<Outage>> {
    cluster.up()?;
    cluster.mount("nodelegate")?;
    idle.mount("nodelegate")?;
    let places: Vec<PathBuf> =
        (0..DIRECTORIES).map(|number| cluster.point.join(format!("d{number}"))).collect();
    for (number, place) in places.iter().enumerate() {
        fs::create_dir(place).with_context(|| format!("make {}", place.display()))?;
        fs::write(place.join("file"), b"x").context("write a file")?;
        let seen = idle.point.join(format!("d{number}/file"));
        fs::read(&seen).with_context(|| format!("read {}", seen.display()))?;
    }
    let (stop, slow) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for place in &places {
            scope.spawn(|| work(place, &stop, &slow));
        }
        let outages = kill_in_turn(cluster, kills, seed, &slow);
        stop.store(true, Ordering::Relaxed);
        outages
    })
}

/// Makes, changes and removes a file, again and again. Calls that take longer than the usual are kept.
fn work(place: &Path, stop: &AtomicBool, slow: &Mutex<Vec<Call>>) {
    let path = place.join("changing");
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let done = fs::File::create(&path).map(drop).and_then(|()| fs::remove_file(&path));
        let call = Call { began, ended: Instant::now() };
        if let Err(error) = done {
            println!("{}: {error}", path.display());
        }
        if call.ended - call.began > Duration::from_millis(30) {
            slow.lock().expect("nobody panics with it").push(call);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill_in_turn(cluster: &Cluster, kills: u64, seed: u64, slow: &Mutex<Vec<Call>>) -> Result<Vec<Outage>> {
    let mut draw = Draw(seed);
    let mut outages = Vec::new();
    for number in 0..kills {
        std::thread::sleep(SOUND + Duration::from_millis(draw.below(1_000)));
        slow.lock().expect("nobody panics with it").clear();
        let servers = metadata_servers(cluster)?;
        let victim =
            servers.get((number as usize) % servers.len().max(1)).context("no metadata server runs")?;
        let killed = Instant::now();
        Process::kill([victim])?;
        let started = until(|| {
            let now = metadata_servers(cluster)?;
            Ok(now.len() == servers.len() && now.iter().all(|process| !process.is(victim)))
        })?;
        // Whatever was under way when it died is answered by then, or is a long outage itself.
        until(
            || Ok(felt(slow, killed).is_some_and(|felt| killed.elapsed() > felt + Duration::from_secs(1))),
        )?;
        let felt = felt(slow, killed).unwrap_or_default();
        println!(
            "kill {}: {} ms, of which {} ms until a process was there",
            number + 1,
            felt.as_millis(),
            started.as_millis()
        );
        outages.push(Outage { started, felt });
    }
    Ok(outages)
}

/// From the kill to the end of the last slow call that was under way then or began before another was quick
/// again.
fn felt(slow: &Mutex<Vec<Call>>, killed: Instant) -> Option<Duration> {
    let calls = slow.lock().expect("nobody panics with it");
    let concerned = calls.iter().filter(|call| call.ended > killed);
    concerned.map(|call| call.ended - call.began.max(killed)).max()
}

fn until(done: impl Fn() -> Result<bool>) -> Result<Duration> {
    let began = Instant::now();
    while !done()? {
        if began.elapsed() > OUTAGE_MAX {
            bail!("it is not over after {OUTAGE_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(began.elapsed())
}

fn metadata_servers(cluster: &Cluster) -> Result<Vec<Process>> {
    Ok(cluster.processes()?.into_iter().filter(Process::is_metadata).collect())
}
