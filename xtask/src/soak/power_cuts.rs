//! Power cuts: a cluster lies on a disk that forgets, programs write with fsync, the power goes, everything
//! is killed and started again on what the disk kept. What was synced is there, and `bearing check` finds
//! nothing wrong.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::writers::{Known, ROUNDS_KEPT, Writers};
use crate::draw::Draw;
use crate::lossyfs::Mounted;
use crate::stage::Stage;

/// Programs that write.
const WRITERS: u64 = 3;

/// Cuts the power so often.
pub fn run(root: &Path, program: &Path, cuts: u64, seed: u64) -> Result<()> {
    let stage = Stage::new(root.join("target/power-cuts"), program.to_owned())?;
    let disk_point = stage.make("disk")?;
    let disk = Mounted::new(&disk_point)?;
    let cluster = Cluster::new(program, disk_point.join("cluster"), stage.make("mnt")?, &stage.directory);
    let cut = cut_again_and_again(&disk, &cluster, cuts, seed);
    if cut.is_err() {
        disk.switch_on()?;
        cluster.show_logs();
    }
    cluster.unmount()?;
    cluster.kill_all()?;
    drop(cluster);
    drop(disk);
    cut
}

fn cut_again_and_again(disk: &Mounted, cluster: &Cluster, cuts: u64, seed: u64) -> Result<()> {
    let mut draw = Draw(seed);
    let mut known = Known::default();
    for cut in 0..cuts {
        let began = Instant::now();
        // Every other time the client decides by itself in directories that only it changes.
        let options = if cut % 2 == 0 { "nodelegate" } else { "delegate" };
        start_and_verify(cluster, options, &mut known).with_context(|| format!("after {cut} power cuts"))?;
        let ready = began.elapsed();
        known.forget_before(&cluster.point, cut.saturating_sub(ROUNDS_KEPT))?;
        let writers = Writers::start(&cluster.point, cut, WRITERS, seed, false)?;
        std::thread::sleep(Duration::from_millis(100 + draw.below(1_400)));
        disk.cut(draw.next())?;
        cluster.kill_all()?;
        cluster.unmount()?;
        let new = writers.end();
        disk.switch_on()?;
        println!(
            "power cut {}: {} operations of {WRITERS} programs before it; {} files known; ready after {:.1} s",
            cut + 1,
            new.operations,
            known.count() + new.count(),
            ready.as_secs_f64()
        );
        known.absorb(new);
    }
    start_and_verify(cluster, "", &mut known).with_context(|| format!("after {cuts} power cuts"))?;
    println!(
        "{cuts} power cuts, {} operations: all {} files as synced, check clean",
        known.operations,
        known.count()
    );
    Ok(())
}

fn start_and_verify(cluster: &Cluster, options: &str, known: &mut Known) -> Result<()> {
    cluster.up()?;
    cluster.mount(options)?;
    known.verify(&cluster.point)?;
    cluster.check()
}
