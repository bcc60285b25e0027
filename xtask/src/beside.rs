//! Filesystems that Bearing is measured beside, on the same disk: libfuse's `passthrough_ll` and, where its
//! packages are installed, MooseFS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::stage::{Stage, mounted_below, ran, said};

/// Where Debian's package has the example.
const SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";
/// How long something may take to show its mount.
const MOUNT_DEADLINE: Duration = Duration::from_secs(10);

/// Mounts libfuse's example twice over one directory of the stage, which unmounts it.
pub fn passthrough(stage: &Stage) -> Result<[PathBuf; 2]> {
    let source = stage.make("source")?;
    let built = build_passthrough(stage)?;
    let points = [stage.make("passthrough-1")?, stage.make("passthrough-2")?];
    for point in &points {
        // It keeps a descriptor for every file that the kernel knows.
        let mut mount = Command::new("sh");
        mount.args(["-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\""]).arg(&built);
        ran(mount.arg("-o").arg(format!("source={},timeout=1", source.display())).arg(point))?;
        await_mount(point)?;
    }
    Ok(points)
}

fn build_passthrough(stage: &Stage) -> Result<PathBuf> {
    if !Path::new(SOURCE).exists() {
        bail!("{SOURCE} is missing; install it: apt-get install libfuse3-dev");
    }
    let built = stage.directory.join("passthrough_ll");
    let flags = said("pkg-config", &["--cflags", "--libs", "fuse3"])?;
    let mut compile = Command::new("gcc");
    compile.args(["-O2", SOURCE, "-o"]).arg(&built).args(flags.split_whitespace());
    ran(&mut compile)?;
    Ok(built)
}

fn await_mount(point: &Path) -> Result<()> {
    let deadline = Instant::now() + MOUNT_DEADLINE;
    while mounted_below(point)?.is_empty() {
        if Instant::now() > deadline {
            bail!("nothing was mounted at {} within {MOUNT_DEADLINE:?}", point.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The network namespace that MooseFS runs in.
const NAMESPACE: &str = "bearing-bench-moosefs";
/// Its chunk server refuses to find its master at 127.0.0.1.
const ADDRESS: &str = "10.99.0.1";
/// What a new master begins with.
const EMPTY: &str = "/var/lib/mfs/metadata.mfs.empty";

/// MooseFS with one master and one chunk server, mounted four times. Taken down with the value; what a run
/// that was killed left, the next one clears away.
pub struct MooseFs {
    /// Where it is mounted.
    pub points: [PathBuf; 4],
    directory: PathBuf,
}

impl MooseFs {
    /// Whether Debian's packages are there.
    pub fn is_installed() -> bool {
        Path::new(EMPTY).exists()
    }

    /// Starts it.
    pub fn start(stage: &Stage) -> Result<MooseFs> {
        let directory = stage.make("moosefs")?;
        clear_namespace();
        ran(Command::new("ip").args(["netns", "add", NAMESPACE]))?;
        let inside = |arguments: &[&str]| ran(Command::new("ip").args(["-n", NAMESPACE]).args(arguments));
        inside(&["link", "set", "lo", "up"])?;
        inside(&["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
        let mount = |number: usize| stage.make(&format!("moosefs-{number}"));
        let points = [mount(1)?, mount(2)?, mount(3)?, mount(4)?];
        let moosefs = MooseFs { points, directory };
        moosefs.configure()?;
        moosefs.daemon("mfsmaster", "start")?;
        moosefs.daemon("mfschunkserver", "start")?;
        for point in &moosefs.points {
            ran(entered("mfsmount").args(["-H", ADDRESS]).arg(point))?;
            await_mount(point)?;
        }
        moosefs.await_space()?;
        Ok(moosefs)
    }

    fn configure(&self) -> Result<()> {
        let at = |name: &str| self.directory.join(name);
        let write = |name: &str, text: String| {
            std::fs::write(at(name), text).with_context(|| format!("write {}", at(name).display()))
        };
        for name in ["master", "chunks", "disk"] {
            std::fs::create_dir(at(name)).with_context(|| format!("make {}", at(name).display()))?;
        }
        std::fs::copy(EMPTY, at("master/metadata.mfs")).with_context(|| format!("copy {EMPTY}"))?;
        let common = |data: &str| {
            format!("WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {}\n", at(data).display())
        };
        write("exports", "* / rw,alldirs,admin,maproot=0:0\n".to_owned())?;
        write("topology", String::new())?;
        write("disks", format!("{}\n", at("disk").display()))?;
        write(
            "mfsmaster.cfg",
            format!(
                "{}EXPORTS_FILENAME = {}\nTOPOLOGY_FILENAME = {}\nMATOML_LISTEN_HOST = {ADDRESS}\n\
                 MATOCS_LISTEN_HOST = {ADDRESS}\nMATOCL_LISTEN_HOST = {ADDRESS}\n",
                common("master"),
                at("exports").display(),
                at("topology").display()
            ),
        )?;
        write(
            "mfschunkserver.cfg",
            format!(
                "{}HDD_CONF_FILENAME = {}\nMASTER_HOST = {ADDRESS}\nCSSERV_LISTEN_HOST = {ADDRESS}\n",
                common("chunks"),
                at("disks").display()
            ),
        )
    }

    fn daemon(&self, program: &str, action: &str) -> Result<()> {
        let configured = self.directory.join(format!("{program}.cfg"));
        ran(entered(program).arg("-c").arg(configured).arg(action))
    }

    /// Its chunk server has told its master of its disk.
    fn await_space(&self) -> Result<()> {
        let file = self.points[0].join("first");
        let deadline = Instant::now() + MOUNT_DEADLINE;
        while std::fs::write(&file, "a").is_err() {
            if Instant::now() > deadline {
                bail!("MooseFS takes no data within {MOUNT_DEADLINE:?}: see {}", self.directory.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))
    }
}

impl Drop for MooseFs {
    fn drop(&mut self) {
        for point in &self.points {
            let _ = ran(Command::new("umount").arg("-l").arg(point));
        }
        for program in ["mfschunkserver", "mfsmaster"] {
            let _ = self.daemon(program, "stop");
        }
        clear_namespace();
    }
}

/// A program in the namespace, which sees the mounts of this one.
fn entered(program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{NAMESPACE}")).arg(program);
    command
}

/// Ends what runs in the namespace, and it.
fn clear_namespace() {
    for process in said("ip", &["netns", "pids", NAMESPACE]).unwrap_or_default().lines() {
        let _ = ran(Command::new("kill").args(["-9", process]));
    }
    if Path::new("/run/netns").join(NAMESPACE).exists() {
        let _ = ran(Command::new("ip").args(["netns", "delete", NAMESPACE]));
    }
}
