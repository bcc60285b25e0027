//! kill -9 of random or all servers, and of the client, under programs that write: nothing that was synced is
//! lost.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Process};
use super::writers::{Known, ROUNDS_KEPT, Writers};
use crate::draw::Draw;
use crate::stage::Stage;

/// Programs that write.
const WRITERS: u64 = 3;

/// Within which programs are failed whose mount was killed; its guard looks each second.
const LET_GO_WITHIN: Duration = Duration::from_secs(10);

/// Kills so often.
pub fn run(root: &Path, program: &Path, kills: u64, seed: u64) -> Result<()> {
    let stage = Stage::new(root.join("target/kills"), program.to_owned())?;
    let directory = stage.directory.join("cluster");
    let cluster = Cluster::new(program, directory, stage.make("mnt")?, &stage.directory);
    let killed = kill_again_and_again(&cluster, kills, seed);
    if killed.is_err() {
        cluster.show_logs();
        cluster.keep(&root.join("target/kills-kept"))?;
    }
    killed
}

fn kill_again_and_again(cluster: &Cluster, kills: u64, seed: u64) -> Result<()> {
    let mut draw = Draw(seed);
    let mut known = Known::default();
    cluster.up()?;
    for round in 0..kills {
        let options = if round % 2 == 0 { "nodelegate" } else { "delegate" };
        cluster.mount(options)?;
        known.verify(&cluster.point).with_context(|| format!("after {round} kills"))?;
        known.forget_before(&cluster.point, round.saturating_sub(ROUNDS_KEPT))?;
        let writers = Writers::start(&cluster.point, round, WRITERS, seed, true)?;
        std::thread::sleep(Duration::from_millis(200 + draw.below(1_000)));
        let (what, with_client) = kill(cluster, &mut draw)?;
        if !with_client {
            // Writing goes on while the supervisor starts them again.
            std::thread::sleep(Duration::from_millis(500 + draw.below(2_500)));
            // Now the client, so that what is looked at comes from the servers.
            kill_those(cluster, Process::is_mount)?;
        }
        // Nobody waits for a client that was killed.
        let killed = Instant::now();
        let new = writers.end();
        if killed.elapsed() > LET_GO_WITHIN {
            bail!("after {what} was killed, programs waited for {:?}", killed.elapsed());
        }
        cluster.unmount()?;
        println!(
            "kill {}: {what}; {} operations, {} files known",
            round + 1,
            new.operations,
            known.count() + new.count()
        );
        known.absorb(new);
        // A supervisor that was killed starts nothing again.
        cluster.up()?;
    }
    cluster.mount("")?;
    known.verify(&cluster.point).with_context(|| format!("after {kills} kills"))?;
    cluster.check()?;
    println!(
        "{kills} kills, {} operations: all {} files as synced, check clean",
        known.operations,
        known.count()
    );
    Ok(())
}

/// Gives what was killed, and whether the client was among it.
fn kill(cluster: &Cluster, draw: &mut Draw) -> Result<(&'static str, bool)> {
    match draw.below(4) {
        0 => cluster.kill_all().map(|()| ("everything", true)),
        1 => kill_those(cluster, Process::is_daemon).map(|()| ("all servers", false)),
        2 => kill_those(cluster, Process::is_mount).map(|()| ("the client", true)),
        _ => {
            let daemons: Vec<Process> = cluster.processes()?.into_iter().filter(Process::is_daemon).collect();
            Process::kill(daemons.iter().filter(|_| draw.below(2) == 0))?;
            Ok(("some servers", false))
        }
    }
}

fn kill_those(cluster: &Cluster, chosen: impl Fn(&Process) -> bool) -> Result<()> {
    Process::kill(cluster.processes()?.iter().filter(|process| chosen(process)))
}
