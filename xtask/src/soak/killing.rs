//! A metadata server is killed every so many seconds, and started again, while a program works on the mounts.
//!
//! It is away for longer than others wait for it, so that they take over what it owned; and the next one is
//! killed only when every tablet has all its copies again.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Process};
use crate::draw::Draw;

/// How long a killed server is away.
const AWAY: Duration = Duration::from_secs(2);
/// Until every tablet has its copies again.
const RESTORE_PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Runs a program until it ends, well.
pub fn while_running(
    program: &mut Command,
    bearing: &Path,
    directory: &Path,
    seconds: u64,
    seed: u64,
) -> Result<()> {
    // Only looked at: its mounts and processes are the stage's.
    let cluster = std::mem::ManuallyDrop::new(Cluster::new(
        bearing,
        directory.to_owned(),
        directory.join("mnt"),
        directory,
    ));
    let mut running = program.spawn().context("start the program")?;
    let mut servers = Vec::new();
    let killed = kill_while(&cluster, &mut running, &mut servers, Duration::from_secs(seconds), seed);
    if killed.is_err() {
        let _ended = running.kill();
    }
    let status = running.wait().context("wait for the program")?;
    println!("  {} kills of metadata servers meanwhile", killed?);
    if !status.success() {
        bail!("the program ended with {status}");
    }
    Ok(())
}

fn kill_while(
    cluster: &Cluster,
    running: &mut Child,
    servers: &mut Vec<Child>,
    every: Duration,
    seed: u64,
) -> Result<u64> {
    let (mut draw, mut kills) = (Draw(seed), 0);
    let mut ended = || running.try_wait().context("look at the program").map(|status| status.is_some());
    loop {
        let due = Instant::now() + every;
        while Instant::now() < due {
            if ended()? {
                return Ok(kills);
            }
            std::thread::sleep(LOOK);
        }
        let metadata: Vec<Process> = cluster.processes()?.into_iter().filter(Process::is_metadata).collect();
        let victim = &metadata[draw.below(metadata.len() as u64) as usize];
        Process::kill([victim])?;
        std::thread::sleep(AWAY);
        servers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        servers.push(cluster.start_again(victim)?);
        kills += 1;
        let began = Instant::now();
        while !cluster.has_all_copies()? {
            if began.elapsed() > RESTORE_PATIENCE {
                bail!("{RESTORE_PATIENCE:?} after {} was started again a tablet lacks copies", victim.name());
            }
            std::thread::sleep(LOOK);
        }
    }
}
