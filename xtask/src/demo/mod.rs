//! `cargo xtask demo` and `cargo xtask down`: a cluster on this machine that anybody can look at.
//!
//! The first start imports a real tree with `cp -a`, compares every entry with its source and keeps their
//! sums; each later start compares what is stored with those sums. The manifest is written last, so an
//! import that was cut short begins again. Everything is done by the `bearing` program, as a user would:
//! nothing here knows more than the command line.

mod host;
mod manifest;
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use host::MountState;
use manifest::{Differences, Manifest};

/// Fewer files than this make no filesystem demo.
const FILES_MIN: usize = 5_000;
/// How long the mount may take to appear once the cluster is up.
const MOUNT_DEADLINE: Duration = Duration::from_secs(30);
/// How many differences are printed.
const SHOWN_MAX: usize = 10;
/// Where the cluster and the manifest are, from the project's root, as a user types it.
const CLUSTER: &str = ".bearing";

/// The demo's places.
struct Places {
    root: PathBuf,
    /// The program, built beside this one.
    program: PathBuf,
    mount: PathBuf,
    cluster: PathBuf,
    manifest: PathBuf,
    /// Where generated and copied sources are kept until they are imported.
    staging: PathBuf,
}

/// What was done and how long each step took.
struct Steps {
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn run<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("demo: {name} ...");
        let start = Instant::now();
        let result = step().with_context(|| name.to_owned())?;
        let took = start.elapsed();
        println!("demo: {name}: {:.1} s", took.as_secs_f64());
        self.taken.push((name, took));
        Ok(result)
    }

    fn print(&self) {
        println!();
        for (name, took) in &self.taken {
            println!("{name:<36} {:>7.1} s", took.as_secs_f64());
        }
    }
}

/// Starts the cluster if it does not run, imports or verifies the tree, and leaves it running.
pub fn up(root: &Path) -> Result<()> {
    let places = places(root)?;
    let mut steps = Steps { taken: Vec::new() };
    if steps.run("look around", || look_around(&places))? {
        println!("demo: the cluster is already running and mounted at ./mnt");
    } else {
        steps.run("start the cluster and mount it", || start(&places))?;
    }
    let files = if places.manifest.exists() {
        steps.run("verify every file against its sum", || verify(&places))?
    } else {
        import(&places, &mut steps)?
    };
    steps.run("ask for the status", || bearing(&places, &["status", "--dir", CLUSTER]))?;
    steps.print();
    println!();
    println!(
        "{files} files at ./mnt are what they should be. The cluster keeps running; stop it with: make down"
    );
    println!("Start it again with: make demo. Throw it away with: make down && rm -r {CLUSTER}");
    Ok(())
}

/// Unmounts and stops the cluster. Nothing to stop is no failure.
pub fn down(root: &Path) -> Result<()> {
    let places = places(root)?;
    let start = Instant::now();
    let mounted = host::mount_state(&places.mount)?;
    if let MountState::Foreign { kind } = &mounted {
        bail!("what is mounted at ./mnt is of type `{kind}` and not ours: it is left alone");
    }
    if mounted == MountState::None && !places.cluster.exists() {
        println!("down: nothing is running here");
        return Ok(());
    }
    if !places.program.exists() {
        bail!("{} is not built, and only it can stop the cluster; run: make build", places.program.display());
    }
    let stopped = bearing(&places, &["down", "--dir", CLUSTER]);
    // What the program left mounted, for instance because it was killed before, is taken away here.
    if host::mount_state(&places.mount)? != MountState::None {
        host::unmount(&places.mount)?;
    }
    match stopped {
        Err(error) if is_running(&places) => return Err(error.context("the cluster still runs")),
        Err(_) => println!("down: no cluster answers"),
        Ok(()) => {}
    }
    println!(
        "down: nothing runs or is mounted any more ({:.1} s); {CLUSTER}/ keeps the data",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn places(root: &Path) -> Result<Places> {
    let ours = std::env::current_exe().context("find this program's own path")?;
    let built = ours.parent().context("find the directory of this program")?;
    Ok(Places {
        root: root.to_owned(),
        program: built.join("bearing"),
        mount: root.join("mnt"),
        cluster: root.join(CLUSTER),
        manifest: root.join(CLUSTER).join("demo-manifest"),
        staging: built.join("demo-tree"),
    })
}

/// Refuses what cannot work, clears away what a crash left, and says whether the cluster already runs.
fn look_around(places: &Places) -> Result<bool> {
    if !places.program.exists() {
        bail!("{} is not built; run: make build", places.program.display());
    }
    host::check_fuse()?;
    match host::mount_state(&places.mount)? {
        MountState::Foreign { kind } => {
            bail!("something of type `{kind}` is mounted at ./mnt and it is not ours; unmount it first")
        }
        MountState::Ours => {
            if is_running(places) {
                return Ok(true);
            }
            println!("demo: a mount without a cluster was left at ./mnt; unmounting it");
            host::unmount(&places.mount)?;
        }
        MountState::Dead => {
            println!("demo: a dead mount was left at ./mnt; unmounting it");
            host::unmount(&places.mount)?;
        }
        MountState::None => {}
    }
    std::fs::create_dir_all(&places.mount).context("make the directory ./mnt")?;
    let strays = std::fs::read_dir(&places.mount).context("list ./mnt")?.count();
    if strays > 0 {
        bail!("./mnt holds {strays} entries of its own that the mount would hide; move them away first");
    }
    if is_running(places) {
        println!("demo: the cluster runs and is not mounted; stopping it to start it whole");
        bearing(places, &["down", "--dir", CLUSTER])?;
    }
    Ok(false)
}

/// Whether the cluster answers. A cluster that was never made does not.
fn is_running(places: &Places) -> bool {
    places.cluster.exists()
        && Command::new(&places.program)
            .args(["status", "--dir", CLUSTER])
            .current_dir(&places.root)
            .output()
            .is_ok_and(|output| output.status.success())
}

fn start(places: &Places) -> Result<()> {
    let flags = ["up", "--dir", CLUSTER, "--metadata", "3", "--data", "3", "--mount", "./mnt", "--detach"];
    bearing(places, &flags)?;
    let deadline = Instant::now() + MOUNT_DEADLINE;
    while host::mount_state(&places.mount)? != MountState::Ours {
        if Instant::now() > deadline {
            let seconds = MOUNT_DEADLINE.as_secs();
            bail!(
                "the cluster is up, but nothing is mounted at ./mnt after {seconds} s; see the logs in {CLUSTER}/"
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Copies the tree in, compares all of it with its sources, and only then keeps the sums.
fn import(places: &Places, steps: &mut Steps) -> Result<usize> {
    let trees = steps
        .run("gather the tree to import", || source::gather(&places.root, &places.staging, FILES_MIN))?;
    steps.run("copy it in with cp -a", || {
        for tree in &trees {
            tree.copy_into(&places.mount)?;
        }
        Ok(())
    })?;
    steps.run("compare every entry with its source", || {
        let mut expected = Manifest::default();
        for tree in &trees {
            expected.add_tree(&tree.path, &tree.name)?;
        }
        compare(&expected, places)?;
        expected.write(&places.manifest)?;
        Ok(expected.files())
    })
}

fn verify(places: &Places) -> Result<usize> {
    let expected = Manifest::read(&places.manifest)?;
    compare(&expected, places)?;
    Ok(expected.files())
}

fn compare(expected: &Manifest, places: &Places) -> Result<()> {
    let Differences { list } = expected.compare(&places.mount)?;
    if list.is_empty() {
        return Ok(());
    }
    for line in list.iter().take(SHOWN_MAX) {
        println!("    {line}");
    }
    bail!(
        "{} of {} entries at ./mnt are not what was stored; if you changed them yourself, begin afresh with: \
         make down && rm -r {CLUSTER}",
        list.len(),
        expected.entries()
    );
}

fn bearing(places: &Places, flags: &[&str]) -> Result<()> {
    println!("bearing {}", flags.join(" "));
    let status = Command::new(&places.program)
        .args(flags)
        .current_dir(&places.root)
        .status()
        .with_context(|| format!("start {}", places.program.display()))?;
    if !status.success() {
        bail!("`bearing {}` ended with {status}", flags.join(" "));
    }
    Ok(())
}
