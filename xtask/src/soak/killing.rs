//! A metadata server is killed every so many seconds, and started again, while a program works on the mounts.
//!
//! It is away for as long as a supervisor needs, or for longer than others wait for it, or until all its
//! tablets have their copies elsewhere: one as often as the other. The next one is killed only when every
//! tablet has all its copies again, which may take so long and no longer.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Process};
use crate::draw::Draw;

/// How long a killed server is away; `None`: until nobody needs it any more.
const AWAY: [Option<Duration>; 3] = [Some(Duration::from_millis(300)), Some(Duration::from_secs(2)), None];
/// From the kill until every tablet has its copies again, on servers that are there: what is promised, and
/// when nobody waits any more.
const RESTORE_MAX: Duration = Duration::from_secs(5);
const RESTORE_PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Runs a program until it ends, well.
/// Gives, for each kill, how long tablets lacked copies.
pub fn while_running(
    program: &mut Command,
    cluster: &Cluster,
    seconds: u64,
    seed: u64,
) -> Result<Vec<Duration>> {
    let mut running = program.spawn().context("start the program")?;
    let mut servers = Vec::new();
    let killed = kill_while(cluster, &mut running, &mut servers, Duration::from_secs(seconds), seed);
    if killed.is_err() {
        let _ended = running.kill();
    }
    let status = running.wait().context("wait for the program")?;
    let restored = killed?;
    if !status.success() {
        bail!("the program ended with {status}");
    }
    Ok(restored)
}

/// Tells how long tablets lacked copies; fails if one did for too long.
pub fn judge(mut restored: Vec<Duration>) -> Result<()> {
    restored.sort();
    let at = |percent: usize| restored.get(restored.len().saturating_sub(1) * percent / 100).copied();
    if let (Some(median), Some(longest)) = (at(50), at(100)) {
        println!(
            "  {} kills of metadata servers meanwhile; every tablet had its copies again after {} ms (median), {} ms (longest)",
            restored.len(),
            median.as_millis(),
            longest.as_millis()
        );
        if longest > RESTORE_MAX {
            bail!("a tablet lacked copies for {longest:?}, longer than {RESTORE_MAX:?}");
        }
    }
    Ok(())
}

fn kill_while(
    cluster: &Cluster,
    running: &mut Child,
    servers: &mut Vec<Child>,
    every: Duration,
    seed: u64,
) -> Result<Vec<Duration>> {
    let (mut draw, mut restored) = (Draw(seed), Vec::new());
    let mut ended = || running.try_wait().context("look at the program").map(|status| status.is_some());
    loop {
        let due = Instant::now() + every;
        while Instant::now() < due {
            if ended()? {
                return Ok(restored);
            }
            std::thread::sleep(LOOK);
        }
        let metadata: Vec<Process> = cluster.processes()?.into_iter().filter(Process::is_metadata).collect();
        let victim = &metadata[draw.below(metadata.len() as u64) as usize];
        let away = AWAY[draw.below(AWAY.len() as u64) as usize];
        Process::kill([victim])?;
        let killed = Instant::now();
        if let Some(away) = away {
            std::thread::sleep(away);
            servers.push(cluster.start_again(victim)?);
        }
        let done = || -> Result<bool> {
            Ok(cluster.has_all_copies()? && (away.is_some() || !cluster.needs(victim.name())?))
        };
        while !done()? {
            if killed.elapsed() > RESTORE_PATIENCE {
                bail!("{RESTORE_PATIENCE:?} after {} was killed a tablet lacks copies", victim.name());
            }
            std::thread::sleep(LOOK);
        }
        restored.push(killed.elapsed());
        if away.is_none() {
            servers.push(cluster.start_again(victim)?);
        }
        // Those that were killed again are taken leave of.
        servers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}
