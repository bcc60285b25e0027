//! One of five metadata servers at a time is killed, or frozen, under a client that works: how long the
//! client feels it, and where that time goes.
//!
//! The server that has the most tablets is killed with kill -9 and started again when others have taken over;
//! every fifth time it is stopped for ten seconds instead, and goes on. The next turn waits until every
//! tablet has its three copies again. A call of the client that is under way, or begun, meanwhile is answered
//! by who took over: the longest such call is the outage, the first that is answered ends the reconstruction.
//! The servers' logs tell when they claimed what the dead one had, when the coordinator had given it to them,
//! and when they served it.
//!
//! In the end a second mount looks for every file that was made, and not removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cluster::{Cluster, Process, tablets};
use super::etcd::Etcd;
use crate::draw::Draw;
use crate::stage::Stage;

pub(super) const SERVERS: [&str; 9] =
    ["--metadata", "5", "--metadata-copies", "3", "--data", "2", "--data-copies", "2", "--no-restart"];
/// Directories that the client works in: enough for each server to have some.
pub(super) const DIRECTORIES: usize = 8;
/// Of so many files one is kept, to be looked for in the end.
const KEPT: u64 = 16;
/// Every so often a server is frozen and not killed.
const FREEZE_EVERY: u64 = 5;
const FROZEN: Duration = Duration::from_secs(10);
/// So long a killed server is away at least: longer than others wait for it.
const AWAY: Duration = Duration::from_millis(1_500);
/// For so long after a kill nobody asks the servers how they are: that takes processor time from what is
/// measured.
const UNWATCHED: Duration = Duration::from_millis(600);
/// How long an outage, or making copies again, may take at all: thousands of tablets take minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// The median of outages has to stay below this.
const MEDIAN_MAX: Duration = Duration::from_millis(500);

/// A call of the client, by the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) began: Duration,
    pub(super) ended: Duration,
}

/// What is killed, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// So often.
    pub kills: u64,
    /// 2 to this power of tablets.
    pub tablet_bits: u8,
    /// Files that are there before: what has to be copied when copies are made again.
    pub files: u64,
    /// Everything is drawn from it.
    pub seed: u64,
    /// Etcd coordinates, instead of a coordinator.
    pub etcd: bool,
}

/// How long calls take.
#[derive(Debug, Default)]
struct Calls {
    /// Before something is killed.
    quiet: Vec<Duration>,
    /// After the outage, while copies are made again.
    restoring: Vec<Duration>,
}

/// What one kill cost.
#[derive(Clone, Copy, Debug, Default)]
struct Outage {
    /// Until another server claimed anything.
    detected: Duration,
    /// From then on until the coordinator had given away all that was claimed.
    swapped: Duration,
    /// From then on until all of it was served.
    adopted: Duration,
    /// From then on until the client's longest call was answered.
    replied: Duration,
    /// From the first claim until the first call was answered that had waited since the kill.
    first_reply: Duration,
    /// The client's longest call.
    felt: Duration,
    /// From the kill until every tablet had its copies again.
    restored: Duration,
}

/// Kills so often.
pub fn run(root: &Path, program: &Path, plan: Plan) -> Result<()> {
    let stage = Stage::new(root.join("target/outages"), program.to_owned())?;
    let directory = stage.directory.join("cluster");
    let cluster = Cluster::new(program, directory.clone(), stage.make("mnt")?, &stage.directory);
    let idle = Cluster::new(program, directory, stage.make("idle")?, &stage.directory);
    let outages = kill_each(&cluster, &idle, plan);
    let _forgotten = idle.unmount();
    if outages.is_err() {
        cluster.show_logs();
        cluster.keep(&root.join("target/outages-kept"))?;
    }
    let (outages, calls) = outages?;
    judge(&outages, calls)
}

/// The smallest value that so many of 100 do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
}

fn judge(outages: &[Outage], calls: Calls) -> Result<()> {
    println!("{} kills, in milliseconds: median, p99, longest", outages.len());
    let show = |what: &str, of: fn(&Outage) -> Duration| {
        let mut times: Vec<Duration> = outages.iter().map(of).collect();
        times.sort();
        let at = |percent: usize| percentile(&times, percent);
        println!("  {what}: {}, {}, {}", at(50).as_millis(), at(99).as_millis(), at(100).as_millis());
        at(50)
    };
    let median = show("outage felt by the client", |outage| outage.felt);
    show("  detected", |outage| outage.detected);
    show("  swapped", |outage| outage.swapped);
    show("  adopted", |outage| outage.adopted);
    show("  replied", |outage| outage.replied);
    show("reconstruction, from the first claim until the first reply", |outage| outage.first_reply);
    show("reconstruction, from the first claim until all is served", |outage| {
        outage.swapped + outage.adopted
    });
    show("every tablet has its copies again, from the kill", |outage| outage.restored);
    println!("the client's calls, in microseconds: how many, median, p99");
    for (what, mut times) in [
        ("before something is killed", calls.quiet),
        ("after the outage, while copies are made again", calls.restoring),
    ] {
        times.sort();
        let at = |percent: usize| percentile(&times, percent).as_micros();
        println!("  {what}: {}, {}, {}", times.len(), at(50), at(99));
    }
    if median >= MEDIAN_MAX {
        bail!("the median of {} outages is {median:?}, not below {MEDIAN_MAX:?}", outages.len());
    }
    Ok(())
}

fn kill_each(cluster: &Cluster, idle: &Cluster, plan: Plan) -> Result<(Vec<Outage>, Calls)> {
    let bits = plan.tablet_bits.to_string();
    let etcd = if plan.etcd { Some(Etcd::start(&cluster.directory.with_file_name("etcd"))?) } else { None };
    let endpoints = etcd.as_ref().map(Etcd::endpoints);
    let etcd = endpoints.iter().flat_map(|endpoints| ["--etcd", endpoints]);
    let flags: Vec<&str> = SERVERS.into_iter().chain(["--tablet-bits", &bits]).chain(etcd).collect();
    cluster.up_with(&flags)?;
    cluster.mount("nodelegate")?;
    idle.mount("nodelegate")?;
    let places: Vec<PathBuf> =
        (0..DIRECTORIES).map(|number| cluster.point.join(format!("d{number}"))).collect();
    for (number, place) in places.iter().enumerate() {
        fs::create_dir(place).with_context(|| format!("make {}", place.display()))?;
        fs::write(place.join("file"), b"x").context("write a file")?;
        let seen = idle.point.join(format!("d{number}/file"));
        fs::read(&seen).with_context(|| format!("read {}", seen.display()))?;
        fill(&cluster.point.join(format!("full{number}")), plan.files / DIRECTORIES as u64)?;
    }
    let (stop, timed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (outages, made) = std::thread::scope(|scope| {
        let workers: Vec<_> = places.iter().map(|place| scope.spawn(|| work(place, &stop, &timed))).collect();
        let outages = kill_in_turn(cluster, plan, &timed);
        stop.store(true, Ordering::Relaxed);
        let made: Vec<Result<u64>> =
            workers.into_iter().map(|worker| worker.join().expect("workers do not panic")).collect();
        (outages, made)
    });
    let ((outages, calls), mut known) = (outages?, 0);
    for (number, made) in made.into_iter().enumerate() {
        let made = made?;
        known += look_for(&idle.point.join(format!("d{number}")), made)?;
    }
    cluster.check()?;
    println!("{} kills: all {known} files that were kept are there, check clean", outages.len());
    Ok((outages, calls))
}

/// Makes empty files in a new directory.
fn fill(place: &Path, files: u64) -> Result<()> {
    if files == 0 {
        return Ok(());
    }
    fs::create_dir(place).with_context(|| format!("make {}", place.display()))?;
    for number in 0..files {
        let path = place.join(name_of(number));
        fs::File::create_new(&path).with_context(|| format!("make {}", path.display()))?;
    }
    Ok(())
}

fn name_of(number: u64) -> String {
    format!("f{number}")
}

/// Makes files and removes most of them again. Gives how many were made.
pub(super) fn work(place: &Path, stop: &AtomicBool, calls: &Mutex<Vec<Call>>) -> Result<u64> {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        let path = place.join(name_of(made));
        timed(calls, || fs::File::create_new(&path).map(drop))
            .with_context(|| format!("make {}", path.display()))?;
        if !made.is_multiple_of(KEPT) {
            timed(calls, || fs::remove_file(&path)).with_context(|| format!("remove {}", path.display()))?;
        }
        made += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(made)
}

fn timed<T>(calls: &Mutex<Vec<Call>>, call: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let began = wall();
    let done = call();
    calls.lock().expect("nobody panics with it").push(Call { began, ended: wall() });
    done
}

/// Exactly the files that were kept are there.
pub(super) fn look_for(place: &Path, made: u64) -> Result<usize> {
    let wanted = (0..made).filter(|number| number.is_multiple_of(KEPT)).map(name_of);
    let mut wanted: Vec<String> = wanted.chain(["file".to_owned()]).collect();
    wanted.sort();
    let entries = fs::read_dir(place).with_context(|| format!("list {}", place.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut found: Vec<String> = names.collect::<Result<_>>()?;
    found.sort();
    if found != wanted {
        let lost: Vec<&String> = wanted.iter().filter(|name| found.binary_search(name).is_err()).collect();
        let wrong: Vec<&String> = found.iter().filter(|name| wanted.binary_search(name).is_err()).collect();
        bail!("{}: lost {lost:?}; there although removed or never made: {wrong:?}", place.display());
    }
    Ok(wanted.len())
}

// --- kills ---

fn kill_in_turn(cluster: &Cluster, plan: Plan, timed: &Mutex<Vec<Call>>) -> Result<(Vec<Outage>, Calls)> {
    let mut draw = Draw(plan.seed);
    let (mut outages, mut calls) = (Vec::new(), Calls::default());
    let mut children = Vec::new();
    until("every tablet has its copies", || cluster.has_all_copies())?;
    for number in 1..=plan.kills {
        timed.lock().expect("nobody panics with it").clear();
        std::thread::sleep(Duration::from_millis(500 + draw.below(1_000)));
        let victim = busiest(cluster)?;
        let freeze = number.is_multiple_of(FREEZE_EVERY);
        let killed = wall();
        victim.signal(if freeze { libc::SIGSTOP } else { libc::SIGKILL });
        let away = Instant::now();
        std::thread::sleep(UNWATCHED);
        until("every tablet has its copies", || {
            Ok(!cluster.needs(victim.name())? && cluster.has_all_copies()?)
        })?;
        let restored = away.elapsed();
        std::thread::sleep(if freeze { FROZEN } else { AWAY }.saturating_sub(away.elapsed()));
        // Whatever was under way when it died is answered by then, or is a long outage itself.
        until("calls are quick again", || {
            let longest = longest(timed, killed).map_or(Duration::ZERO, |call| call.ended);
            Ok(wall() > longest.max(killed) + Duration::from_secs(1))
        })?;
        let mut outage = told_apart(cluster, victim.name(), killed, timed)?;
        if freeze {
            victim.signal(libc::SIGCONT);
        } else {
            children.push(cluster.start_again(&victim)?);
        }
        outage.restored = restored;
        calls.note(timed, killed, outage);
        until("it is back", || serves(cluster, victim.name()))?;
        let Outage { detected, swapped, adopted, replied, first_reply, felt, restored } = outage;
        println!(
            "{} {number}, {}: felt {} ms (detected {}, swapped {}, adopted {}, replied {}; first reply {}), \
             restored in {} ms",
            if freeze { "freeze" } else { "kill" },
            victim.name(),
            felt.as_millis(),
            detected.as_millis(),
            swapped.as_millis(),
            adopted.as_millis(),
            replied.as_millis(),
            first_reply.as_millis(),
            restored.as_millis()
        );
        outages.push(outage);
        // Those that were killed again are taken leave of.
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
    Ok((outages, calls))
}

impl Calls {
    fn note(&mut self, timed: &Mutex<Vec<Call>>, killed: Duration, outage: Outage) {
        let restoring = killed + outage.felt..killed + outage.restored;
        for call in timed.lock().expect("nobody panics with it").iter() {
            let took = call.ended - call.began;
            if call.ended <= killed {
                self.quiet.push(took);
            } else if restoring.contains(&call.began) {
                self.restoring.push(took);
            }
        }
    }
}

/// The metadata server that has the most tablets.
pub(super) fn busiest(cluster: &Cluster) -> Result<Process> {
    let status = cluster.status()?;
    let owners = tablets(&status).iter().filter_map(|tablet| tablet["owner"].as_u64());
    let mut counts = std::collections::BTreeMap::new();
    owners.for_each(|owner| *counts.entry(owner).or_insert(0) += 1);
    let most = counts.iter().max_by_key(|(_, count)| **count).context("nobody owns anything")?;
    let name = format!("metadata-{}", most.0);
    let processes = cluster.processes()?;
    let found = processes.into_iter().find(|process| process.is_metadata() && process.name() == name);
    found.with_context(|| format!("{name} does not run"))
}

/// Whether a server says that it serves.
pub(super) fn serves(cluster: &Cluster, name: &str) -> Result<bool> {
    let status = cluster.status()?;
    let daemons = status["daemons"].as_array().map_or(&[][..], Vec::as_slice);
    let title = |daemon: &Value| format!("{}-{}", daemon["kind"].as_str().unwrap_or(""), daemon["id"]);
    Ok(daemons.iter().any(|daemon| title(daemon) == name && daemon["state"] == "serving"))
}

/// The longest call that was under way when something was killed, or began later.
pub(super) fn longest(timed: &Mutex<Vec<Call>>, killed: Duration) -> Option<Call> {
    let calls = timed.lock().expect("nobody panics with it");
    let concerned = calls.iter().filter(|call| call.ended > killed);
    concerned.copied().max_by_key(|call| call.ended - call.began.max(killed))
}

/// When the first call was answered that began when something was killed or soon after, and was under way
/// when it was claimed.
fn first_reply(timed: &Mutex<Vec<Call>>, killed: Duration, claimed: Duration) -> Option<Duration> {
    let calls = timed.lock().expect("nobody panics with it");
    let soon = killed + (claimed - killed) / 2;
    calls.iter().filter(|call| call.began < soon && call.ended > claimed).map(|call| call.ended).min()
}

/// By what the logs of the servers say.
fn told_apart(cluster: &Cluster, victim: &str, killed: Duration, timed: &Mutex<Vec<Call>>) -> Result<Outage> {
    let longest = longest(timed, killed);
    let (mut claimed, mut taken, mut served) = (Vec::new(), Vec::new(), Vec::new());
    let day = Duration::from_secs(86_400);
    let midnight = Duration::from_secs(killed.as_secs() / day.as_secs() * day.as_secs());
    for process in cluster.processes()?.iter().filter(|process| process.is_metadata()) {
        let log = cluster.directory.join(process.name()).join("log");
        let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
        for line in text.lines() {
            let Some(at) = time_of(line).map(|at| midnight + at).filter(|at| *at >= killed) else { continue };
            if line.contains(&format!("{victim} is silent; claimed of it")) {
                claimed.push(at);
            } else if line.contains(" taken: ") {
                taken.push(at);
            } else if line.contains(" served from now on: ") {
                served.push(at);
            }
        }
    }
    let felt = longest.map_or(Duration::ZERO, |call| call.ended - call.began.max(killed));
    let first = claimed.iter().min().copied().unwrap_or(killed);
    // Tablets of others may be taken later on.
    let within = |times: &[Duration]| {
        let soon = times.iter().copied().filter(|at| *at >= first && *at < first + Duration::from_secs(1));
        soon.max().unwrap_or(first)
    };
    let (taken, served) = (within(&taken), within(&served));
    let replied = longest.map_or(served, |call| call.ended);
    let first_reply = first_reply(timed, killed, first).unwrap_or(served);
    Ok(Outage {
        detected: first - killed,
        swapped: taken.saturating_sub(first),
        adopted: served.saturating_sub(taken),
        replied: replied.saturating_sub(served),
        first_reply: first_reply.saturating_sub(first),
        felt,
        restored: Duration::ZERO,
    })
}

/// The time of day at the beginning of a line of a log.
fn time_of(line: &str) -> Option<Duration> {
    let (stamp, _) = line.trim_start().split_once('Z')?;
    let (_, time) = stamp.split_once('T')?;
    let mut parts = time.split(':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    Some(Duration::from_secs_f64(hours * 3_600.0 + minutes * 60.0 + seconds))
}

pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn until(what: &str, done: impl Fn() -> Result<bool>) -> Result<Duration> {
    let began = Instant::now();
    while !done()? {
        if began.elapsed() > PATIENCE {
            bail!("not after {PATIENCE:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reply_is_that_of_a_call_that_waited_since_the_kill() {
        let ms = Duration::from_millis;
        let call = |began, ended| Call { began: ms(began), ended: ms(ended) };
        // Of another server; before the claim; one that waited; one that waited longer; one that came late.
        let calls = vec![call(1_249, 1_251), call(990, 1_010), call(999, 1_262), call(1_001, 1_300)];
        let timed = Mutex::new([calls, vec![call(1_240, 1_260)]].concat());
        assert_eq!(first_reply(&timed, ms(1_000), ms(1_250)), Some(ms(1_262)));
        assert_eq!(first_reply(&timed, ms(1_000), ms(1_400)), None);
    }

    #[test]
    fn times_of_lines_are_read_and_other_lines_have_none() {
        let line = "2026-01-02T03:04:05.600000Z  INFO taken: 1 tablet (0)";
        assert_eq!(time_of(line), Some(Duration::from_millis(11_045_600)));
        assert_eq!(time_of("a panic: no time"), None);
    }
}
