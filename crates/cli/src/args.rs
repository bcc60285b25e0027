//! The command line: commands, flags and their help.

use bearing_placement::Scheme;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Bearing: a distributed filesystem that always knows where things are.
#[derive(Debug, Parser)]
#[command(name = "bearing", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  bearing up --mount ./mnt --detach     a cluster in .bearing, mounted at ./mnt
  cp -a /usr/share/doc ./mnt            use it
  bearing status                        who runs, who owns what
  bearing down                          stop it; the data stays in .bearing
  bearing mount 10.0.0.5:9000 /mnt --secret enrolment.key

Exit codes: 0 done, 1 refused (such as: not found), 2 wrong usage, 3 the cluster cannot be reached.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster on this machine (and make it, the first time)
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Stop a cluster and unmount it; the data stays
    Down(Down),
    /// Show the daemons, who owns which tablet, and the mount
    Status(Status),
    /// Mount a cluster
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(Mount),
    /// Unmount
    Umount(Umount),
    /// Use the files of a cluster without mounting it
    #[command(after_help = FS_EXAMPLES)]
    Fs(Fs),
    /// Walk all names, as fsck does: every name leads to a node, link counts match, sizes match the extents
    Check(Check),
    /// Measure this program on this machine
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Run one daemon (started by `up`)
    #[command(hide = true, subcommand)]
    Daemon(DaemonCommand),
}

const UP_EXAMPLES: &str = "\
Examples:
  bearing up                                     in the foreground; ctrl-c stops it
  bearing up --mount ./mnt --detach              in the background, mounted
  bearing up --dir /srv/b --metadata 5 --data 4 --data-copies 3

The first `up` makes the cluster, later ones start it again. Flags that
contradict its cluster.toml are refused.";

const MOUNT_EXAMPLES: &str = "\
Examples:
  bearing mount .bearing ./mnt
  bearing mount 10.0.0.5:9000,10.0.0.6:9000 /mnt --secret enrolment.key";

const FS_EXAMPLES: &str = "\
Examples:
  bearing fs ls /
  bearing fs put notes.txt /notes.txt
  bearing fs cat /notes.txt
  bearing fs stat /notes.txt --json
  tar c src | bearing fs put - /src.tar";

/// Where a cluster on this machine lies.
#[derive(Args, Clone, Debug)]
pub struct Directory {
    /// The cluster's directory
    #[arg(long, value_name = "DIR", default_value = ".bearing")]
    pub dir: PathBuf,
}

/// `up`.
#[derive(Args, Clone, Debug)]
pub struct Up {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Metadata servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub metadata: Option<u32>,
    /// Data servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub data: Option<u32>,
    /// On how many data servers each byte is kept [default: 2, or 1 with one data server]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub data_copies: Option<u8>,
    /// How entries are placed: anglecut-hashed or hash [default: anglecut-hashed]
    #[arg(long, value_name = "S")]
    pub scheme: Option<Scheme>,
    /// Mount it at this directory
    #[arg(long, value_name = "PATH")]
    pub mount: Option<PathBuf>,
    /// Return once everything answers, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Use this port and the following ones instead of any that are free (a new cluster only)
    #[arg(long, value_name = "P")]
    pub port_base: Option<u16>,
    /// Leave daemons dead that die (for tests)
    #[arg(long, hide = true)]
    pub no_restart: bool,
}

/// `down`.
#[derive(Args, Debug)]
pub struct Down {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
}

/// `status`.
#[derive(Args, Debug)]
pub struct Status {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mount`.
#[derive(Args, Clone, Debug)]
pub struct Mount {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    pub cluster: String,
    /// The directory to mount at
    pub path: PathBuf,
    /// The enrolment secret, when CLUSTER is not a directory
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Options as in mount(8): rw, ro, allow_other, owner_only, nonempty, suid, dev, locks=local, threads=N
    #[arg(short, long, value_name = "OPTIONS", default_value = "")]
    pub options: String,
    /// Stay in the foreground; ctrl-c unmounts
    #[arg(long)]
    pub foreground: bool,
    /// Where to report the state (used by `up`).
    #[arg(long, hide = true)]
    pub state: Option<PathBuf>,
}

/// `umount`.
#[derive(Args, Debug)]
pub struct Umount {
    /// Where it is mounted
    pub path: PathBuf,
}

/// The cluster to talk to as a client.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    #[arg(long, visible_alias = "dir", value_name = "CLUSTER", default_value = ".bearing", global = true)]
    pub cluster: String,
    /// The enrolment secret, when the cluster is not given as a directory
    #[arg(long, value_name = "FILE", global = true)]
    pub secret: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// `fs`.
#[derive(Args, Debug)]
pub struct Fs {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// What to do with its files.
    #[command(subcommand)]
    pub command: FsCommand,
}

/// What can be done without a mount. Paths in the cluster begin with `/`.
#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List a directory, one name per line
    Ls {
        /// The directory
        #[arg(default_value = "/")]
        path: String,
        /// With kind, mode, owner, size and time
        #[arg(short, long)]
        long: bool,
    },
    /// Show the attributes of a file or directory
    Stat {
        /// The file or directory
        path: String,
    },
    /// Make a directory
    Mkdir {
        /// The new directory
        path: String,
        /// Make its parents too, and do not mind if it exists
        #[arg(short, long)]
        parents: bool,
    },
    /// Store a local file
    Put {
        /// The local file, or - for standard input
        source: PathBuf,
        /// The file in the cluster; replaced if it exists
        target: String,
    },
    /// Fetch a file
    Get {
        /// The file in the cluster
        source: String,
        /// The local file; replaced if it exists
        target: PathBuf,
    },
    /// Print files
    Cat {
        /// The files in the cluster
        #[arg(required = true)]
        paths: Vec<String>,
    },
}

/// `check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// Also read every file to its end, so that every stored byte is checked
    #[arg(long)]
    pub read: bool,
}

/// One process of a cluster.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// The coordinator.
    Coordinator(DaemonFile),
    /// A metadata server.
    Metadata(DaemonFile),
    /// A data server.
    Data(DaemonFile),
    /// The supervisor of a cluster that was made before.
    Supervise(Supervise),
    /// Not a daemon: fails when the mount is dead.
    Probe {
        /// Where it is mounted
        point: PathBuf,
    },
}

/// A daemon's configuration.
#[derive(Args, Debug)]
pub struct DaemonFile {
    /// Its configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// `daemon supervise`.
#[derive(Args, Clone, Debug)]
pub struct Supervise {
    /// Where the cluster lies.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where to mount it.
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Leave daemons dead that die.
    #[arg(long)]
    pub no_restart: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        let error = Arguments::try_parse_from(["bearing", "up", "--scheme", "best"]).unwrap_err().to_string();
        assert!(error.contains("anglecut-hashed, hash"), "{error}");
    }

    #[test]
    fn the_cluster_of_fs_may_be_called_dir_before_or_after_the_command() {
        for line in [["bearing", "fs", "--dir", "d", "ls"], ["bearing", "fs", "ls", "--cluster", "d"]] {
            let Command::Fs(fs) = Arguments::try_parse_from(line).unwrap().command else { panic!("not fs") };
            assert_eq!(fs.target.cluster, "d");
        }
    }
}
