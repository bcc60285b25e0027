//! etcd's members are killed, one and two at a time, and slowed down, under a client that works on a cluster
//! that they coordinate; now and then a metadata server is killed meanwhile.
//!
//! While a majority lives nothing is felt. Without one what is served goes on, and what a dead server had
//! waits. In the end everything that was made and not removed is there, and all copies are alike.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

#[path = "../../../crates/engines-etcd/tests/members/mod.rs"]
mod members;
#[path = "../../../crates/engines-etcd/tests/members/slow.rs"]
mod slow;

use self::members::Members;
use self::slow::SlowWay;
use super::cluster::Cluster;
use super::outages::{DIRECTORIES, SERVERS, busiest, longest, look_for, serves, until, wall, work};
use crate::draw::Draw;
use crate::stage::Stage;

const MEMBERS: usize = 3;
/// Killed members are away for so long at most.
const AWAY_MS_MAX: u64 = 3_000;
/// Every so often a metadata server is killed too.
const SERVER_EVERY: u64 = 5;
/// And every so often etcd is slow as well, until all copies are there again: that takes a minute.
const SLOW_EVERY: u64 = 25;
const SLOW: Duration = Duration::from_secs(2);

/// Members, and the ways to them.
pub struct Etcd {
    members: Members,
    ways: Vec<SlowWay>,
}

impl Etcd {
    /// Starts members whose data lie in a new directory.
    pub fn start(directory: &Path) -> Result<Etcd> {
        let program = members::program().context("build etcd first: cargo xtask etcd")?;
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        let members = Members::start(&program, directory, MEMBERS);
        let ways = members.client_ports().map(SlowWay::to).collect();
        Ok(Etcd { members, ways })
    }

    /// The URLs, as `bearing up --etcd` takes them.
    pub fn endpoints(&self) -> String {
        self.ways.iter().map(SlowWay::url).collect::<Vec<_>>().join(",")
    }

    fn delay(&self, delay: Duration) {
        self.ways.iter().for_each(|way| way.delay(delay));
    }
}

/// Kills so often.
pub fn run(root: &Path, program: &Path, kills: u64, seed: u64) -> Result<()> {
    let stage = Stage::new(root.join("target/outages"), program.to_owned())?;
    let mut etcd = Etcd::start(&stage.make("etcd")?)?;
    let directory = stage.directory.join("cluster");
    let cluster = Cluster::new(program, directory.clone(), stage.make("mnt")?, &stage.directory);
    let other = Cluster::new(program, directory, stage.make("other")?, &stage.directory);
    let endpoints = etcd.endpoints();
    cluster.up_with(&SERVERS.into_iter().chain(["--etcd", &endpoints]).collect::<Vec<_>>())?;
    cluster.mount("nodelegate")?;
    other.mount("nodelegate")?;
    let names: Vec<String> = (0..DIRECTORIES).map(|number| format!("d{number}")).collect();
    for name in &names {
        fs::create_dir(cluster.point.join(name)).with_context(|| format!("make {name}"))?;
        fs::write(cluster.point.join(name).join("file"), b"x").context("write a file")?;
    }
    // Each mount works in half of the directories.
    let place = |number: usize| [&cluster, &other][number % 2].point.join(&names[number]);
    let places: Vec<PathBuf> = (0..DIRECTORIES).map(place).collect();
    let (stop, timed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (killed, made) = std::thread::scope(|scope| {
        let workers: Vec<_> = places.iter().map(|place| scope.spawn(|| work(place, &stop, &timed))).collect();
        let killed = kill_members(&cluster, &mut etcd, kills, seed, &timed);
        stop.store(true, Ordering::Relaxed);
        let made = workers.into_iter().map(|worker| worker.join().expect("workers do not panic"));
        (killed, made.collect::<Vec<Result<u64>>>())
    });
    if killed.is_err() {
        cluster.show_logs();
        cluster.keep(&root.join("target/outages-kept"))?;
    }
    let (mut known, longest) = (0, killed?);
    for (number, made) in made.into_iter().enumerate() {
        // As the mount that did not make them sees them.
        known += look_for(&[&other, &cluster][number % 2].point.join(&names[number]), made?)?;
    }
    cluster.check()?;
    let _forgotten = other.unmount();
    println!(
        "{kills} kills of etcd's members: all {known} files that were kept are there, check clean; the longest call \
         while a majority lived and no server was killed took {} ms",
        longest.as_millis()
    );
    Ok(())
}

/// Gives how long the longest call took of those that nothing should have delayed.
fn kill_members(
    cluster: &Cluster,
    etcd: &mut Etcd,
    kills: u64,
    seed: u64,
    timed: &Mutex<Vec<super::outages::Call>>,
) -> Result<Duration> {
    let (mut draw, mut undisturbed) = (Draw(seed), Duration::ZERO);
    let mut children = Vec::new();
    for number in 1..=kills {
        timed.lock().expect("nobody panics with it").clear();
        let begun = wall();
        let first = draw.below(MEMBERS as u64) as usize;
        let count = 1 + usize::from(number.is_multiple_of(3));
        let killed: Vec<usize> = (0..count).map(|more| (first + more) % MEMBERS).collect();
        let is_slow = number.is_multiple_of(SLOW_EVERY);
        etcd.delay(if is_slow { SLOW } else { Duration::ZERO });
        killed.iter().for_each(|member| etcd.members.kill(*member));
        let victim = if number.is_multiple_of(SERVER_EVERY) { Some(busiest(cluster)?) } else { None };
        if let Some(victim) = &victim {
            victim.signal(libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(200 + draw.below(AWAY_MS_MAX)));
        killed.iter().for_each(|member| etcd.members.launch(*member));
        let back = Instant::now();
        if let Some(victim) = &victim {
            until("others serve what the killed server had", || Ok(!cluster.needs(victim.name())?))?;
            children.push(cluster.start_again(victim)?);
            until("it is back", || serves(cluster, victim.name()))?;
            until("every tablet has its copies", || cluster.has_all_copies())?;
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        let longest = longest(timed, begun).map_or(Duration::ZERO, |call| call.ended - call.began);
        println!(
            "kill {number}: members {killed:?}{}{}, longest call {} ms, all well {} ms after they were back",
            if is_slow { ", slow" } else { "" },
            victim.as_ref().map_or(String::new(), |victim| format!(", {}", victim.name())),
            longest.as_millis(),
            back.elapsed().as_millis()
        );
        if victim.is_none() && count == 1 {
            undisturbed = undisturbed.max(longest);
        }
        children.retain_mut(|child: &mut std::process::Child| matches!(child.try_wait(), Ok(None)));
    }
    etcd.delay(Duration::ZERO);
    until("every tablet has its copies", || cluster.has_all_copies())?;
    if undisturbed > Duration::from_secs(2) {
        bail!("a call took {undisturbed:?} although a majority of etcd lived and no server was killed");
    }
    Ok(undisturbed)
}
